"""Are the probabilities right? Brier and log score on test rows, calibrated and not.

    RISKAD_DATA=... python benchmarks/probabilities.py --output results/decisions/probabilities.json

On the paper's sets that the data folder holds, split and labelled as by
`riskad bench shallow main`: ShallowRAD with logistic loss and the tight lambda, whose scores become
probabilities of being an anomaly in four ways:

- calibrated: `anomaly_probability` after `riskad.calibrate`, the anomaly rate being estimated;
- known rate: the same with the true rate, to tell what the estimate costs;
- sigmoid: 1 / (1 + exp(-s)), what logistic loss would have if its prior, its weights and its
  regularisation changed nothing;
- min-max: (s - min) / (max - min) over the pile, within 0 and 1, as PyOD does.

The share of normal test rows with a p-value of at most 0.1 is counted as well. Trials with fewer
than two labelled anomalies, where `anomaly_probability` refuses, are left out and counted. With the
result goes a reliability diagram of all test rows of all sets.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from cv_rules import sets_at_hand
from scipy.special import expit

from riskad import DataWarning, ShallowRAD, calibrate
from riskad.bench.canvas import BLUE, GREY, ORANGE, write_svgs
from riskad.bench.trial import make_split
from riskad.core.labels import ANOMALY
from riskad.decisions.probability_metrics import brier_score, log_score, reliability

METHODS = ("calibrated", "known rate", "sigmoid", "min-max")
LEVEL = 0.1


def run_trial(dataset: str, trial: int, root: int) -> dict[str, Any] | None:
    """Probabilities of the test rows by each method, with the truth."""
    warnings.simplefilter("ignore", DataWarning)  # constant columns after a split
    split = make_split(dataset, trial, root, 0.3, 0.05)
    if (split.y_train == ANOMALY).sum() < 2:
        return None
    model = ShallowRAD("logistic", lam="tight").fit(split.X_train, split.y_train)
    calibrate(model, split.X_train, split.y_train)
    known = calibrate(
        ShallowRAD("logistic", lam="tight").fit(split.X_train, split.y_train),
        split.X_train,
        split.y_train,
        pi_n=split.anomaly_rate,
    )
    s, pile = model.anomaly_score(split.X_test), model.calibration_.pile
    said = {
        "calibrated": model.anomaly_probability(split.X_test),
        "known rate": known.anomaly_probability(split.X_test),
        "sigmoid": expit(s),
        "min-max": np.clip((s - pile[0]) / (pile[-1] - pile[0]), 0, 1),
    }
    normal = split.truth_test != ANOMALY
    return {
        "truth": split.truth_test,
        "said": said,
        "brier": {name: brier_score(split.truth_test, p).value for name, p in said.items()},
        "log": {name: log_score(split.truth_test, p).value for name, p in said.items()},
        "small_p": float((model.p_values(split.X_test)[normal] <= LEVEL).mean()),
        "rate": (split.anomaly_rate, *model.calibration_.rate),
        "n_anomaly": int((split.y_train == ANOMALY).sum()),
    }


def summary(records: list[dict[str, Any]], refused: int) -> dict[str, Any]:
    """Means over the trials of one set."""
    means = {
        score: {name: round(fmean(r[score][name] for r in records), 4) for name in METHODS}
        for score in ("brier", "log")
    }
    return means | {
        "n_anomaly": round(fmean(r["n_anomaly"] for r in records), 1),
        "rate": {
            "true": round(records[0]["rate"][0], 4),
            "estimated": [round(r["rate"][1], 4) for r in records],
        },
        "small_p": round(fmean(r["small_p"] for r in records), 4),
        "trials": len(records),
        "refused": refused,
    }


def diagram(records: list[dict[str, Any]], folder: Path) -> None:
    """Reliability over all test rows of all sets; bars are 95 % intervals of binomial shares."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    truth = np.concatenate([r["truth"] for r in records])
    for name, colour in (("calibrated", BLUE), ("sigmoid", ORANGE)):
        found = reliability(truth, np.concatenate([r["said"][name] for r in records]))
        bars = [found.observed - found.low, found.high - found.observed]
        axes.errorbar(
            found.predicted, found.observed, bars, marker="o", color=colour, label=name, capsize=2
        )
    axes.set(xlabel="said: probability of anomaly", ylabel="seen: share of anomalies")
    axes.legend(frameon=False)
    write_svgs({"reliability": figure}, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="root seed")
    parser.add_argument("--trials", type=int, default=5, help="splits of each set")
    parser.add_argument("--output", type=Path, help="also write the result as JSON, and the figure")
    arguments = parser.parse_args()
    names = sets_at_hand()
    if not names:
        parser.error("none of the paper's sets can be had; set RISKAD_DATA")
    sets, every = {}, []
    for name in names:
        trials = [run_trial(name, trial, arguments.seed) for trial in range(arguments.trials)]
        records = [record for record in trials if record is not None]
        every += records
        if records:
            sets[name] = summary(records, len(trials) - len(records))
            print(name, sets[name], flush=True)
    means = {
        score: {name: round(fmean(s[score][name] for s in sets.values()), 4) for name in METHODS}
        for score in ("brier", "log")
    }
    better = {
        score: sum(
            s[score]["calibrated"] < min(s[score][n] for n in METHODS[2:]) for s in sets.values()
        )
        for score in ("brier", "log")
    }
    result = means | {
        "sets_better": better,
        "n_sets": len(sets),
        "sets_refused": [name for name in names if name not in sets],
        "trials": len(every),
        "small_p": round(fmean(s["small_p"] for s in sets.values()), 4),
        "sets": sets,
    }
    print({key: value for key, value in result.items() if key != "sets"})
    if arguments.output:
        about = {"seed": arguments.seed, "trials_per_set": arguments.trials, "level": LEVEL}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(about | result, indent=1) + "\n")
        diagram(every, arguments.output.parent)


if __name__ == "__main__":
    main()
