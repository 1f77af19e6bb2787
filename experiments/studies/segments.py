"""Segments: rates and thresholds of each beside one for all, on simulated scores.

In each of 200 trials twelve segments of 150 to 4,000 rows differ in their normal scores, which are
normally distributed around a mean of their own, and in their anomaly rates; anomalies score 2.5
higher. A tenth of the rows of each is labelled, at random; the thirteenth segment has no label, and
one has normal labels only by chance. Truth is known, so that false alarm rates are computed, not
counted. `spread` is the standard deviation of the means and of the log odds of the rates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit
from scipy.stats import norm

from experiments.runner import Cell, Experiment, seed_of
from experiments.summaries import grid, group, mean, ok_rows
from experiments.tables import Table, markdown_table, write_text
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.calibration import Calibration
from riskad.decisions.segments import ENOUGH_NORMALS, describe_segments, learn_segments
from riskad.decisions.thresholds import FalseAlarms, Likely

TRIALS, SPREADS = 200, (0.0, 0.5, 1.0)
ALARMS = 0.05
_SIZES = (150, 200, 300, 400, 600, 800, 1200, 1500, 2000, 2500, 3000, 4000, 1000)
_APART, _LABELLED = 2.5, 0.1


def run_cell(cell: Cell) -> dict[str, Any]:
    """Simulate a trial, and compare rates and false alarms of segments with the truth."""
    rng = np.random.default_rng(seed_of(0, "segments", cell["trial"], cell["spread"]))
    spread, n = cell["spread"], len(_SIZES)
    means, rates = spread * rng.normal(size=n), expit(-2.5 + spread * rng.normal(size=n))
    of = np.repeat(np.arange(n), _SIZES)
    anomalous = rng.random(len(of)) < rates[of]
    scores = rng.normal(means[of] + _APART * anomalous)
    labelled = (rng.random(len(of)) < _LABELLED) & (of < n - 1)
    codes = np.where(labelled, np.where(anomalous, ANOMALY, NORMAL), UNLABELLED)
    calibration = Calibration.of(scores, codes, scores, 0.0, label_source="random")
    names = np.array([f"shop {i:02}" for i in range(n)], dtype=object)
    unlabelled = names[of[~labelled]].tolist(), scores[~labelled], calibration
    segments = learn_segments("shop", names[of[labelled]].tolist(), *unlabelled)
    places = segments.places(names.tolist())
    record: dict[str, Any] = {}
    likely = segments.thresholds(Likely(), calibration)
    results = describe_segments(segments, likely, *unlabelled)
    by_name = {result.name: result for result in results}
    truth = [anomalous[(of == i) & ~labelled].mean() for i in range(n)]
    ours = [by_name[name].rate for name in names]
    record["error"] = [abs(o.value - t) for o, t in zip(ours, truth, strict=True)]
    record["error_of_one"] = [abs(calibration.rate.value - t) for t in truth]
    record["covered"] = [float(o.low <= t <= o.high) for o, t in zip(ours, truth, strict=True)]
    thresholds = segments.thresholds(FalseAlarms(ALARMS), calibration)
    normals = [int(((of == i) & (codes == NORMAL)).sum()) for i in range(n)]
    record["normals"] = normals
    record["alarms"] = norm.sf(thresholds[places] - means).tolist()
    record["alarms_of_one"] = norm.sf(thresholds[-1] - means).tolist()
    # F1 over all rows, of rows that either flags
    for name, chosen in (("f1", likely[places][of]), ("f1_of_one", Likely().of(calibration))):
        flagged = (scores > chosen)[~labelled]
        true = anomalous[~labelled]
        record[name] = 2 * float((flagged & true).sum()) / max(int(flagged.sum() + true.sum()), 1)
    return record


def report(frame: pl.DataFrame, folder: Path) -> None:
    """Write segments.md."""
    rows = []
    for spread, trials in group(ok_rows(frame), "spread").items():
        enough = [np.array(t["normals"]) >= ENOUGH_NORMALS for t in trials]

        def of_enough(name: str, trials: Any = trials, enough: Any = enough) -> np.ndarray:
            return np.concatenate(
                [np.array(t[name])[e] for t, e in zip(trials, enough, strict=True)]
            )

        errors, of_one = (np.mean([t[k] for t in trials]) for k in ("error", "error_of_one"))
        alarms, global_alarms = of_enough("alarms"), of_enough("alarms_of_one")
        rows.append(
            [
                f"{spread:g}",
                f"{errors:.4f}",
                f"{of_one:.4f}",
                f"{np.mean([t['covered'] for t in trials]):.3f}",
                f"{mean(trials, 'f1'):.3f}",
                f"{mean(trials, 'f1_of_one'):.3f}",
                f"{alarms.mean():.4f}",
                f"{np.quantile(global_alarms, 0.05):.3f} to {np.quantile(global_alarms, 0.95):.3f}",
                f"{np.quantile(alarms, 0.05):.3f} to {np.quantile(alarms, 0.95):.3f}",
            ]
        )
    head = (
        *("segments differ by", "error of rates", "of one rate", "95 % intervals that cover"),
        *("F1", "of one threshold", "mean false alarms", "with one threshold, 90 % of segments"),
        "with their own, 90 % of segments",
    )
    write_text(
        folder / "segments.md", f"{_INTRODUCTION}\n{markdown_table(Table('', head, rows))}\n"
    )


_INTRODUCTION = f"""# Segments

    python -m experiments run segments

{TRIALS} trials of thirteen simulated segments, of which one has no label; see
`experiments/studies/segments.py`. Errors are means over segments of the absolute difference to the
true anomaly rate. False alarms are those of normal rows of segments with at least {ENOUGH_NORMALS}
labelled normal rows, at a stated rate of {ALARMS:g}: the mean must not be above it.
"""

EXPERIMENTS = (
    Experiment(
        name="segments",
        title="Rates and thresholds by segment beside one for all",
        cells=grid(trial=range(TRIALS), method=["segments"], spread=SPREADS),
        run_cell=run_cell,
        report=report,
        folder="alarms",
        minutes="2 minutes",
    ),
)
