"""Decisions of `AutoRAD` on real tables, however labels were chosen, and on tables of known law.

`label-choice`: 100 of the 418 collected tables (`experiments.datasets.load_collected`), which took
no part in the choice of the prior of the anomaly rate and of other settings of
`riskad.decisions.anomaly_rate`. Half of the rows of each are there to fit, the others to test. Of
the former 30 or 100 are labelled, but never more than half of the anomalies:

- random: drawn by chance;
- kinds: 30 % anomalies and 70 % normal rows, each drawn by chance among their kind;
- rule: rows beyond the 70 % quantile of one column, drawn by chance, are 10 times as likely;
- odd: the tenth with the highest score of an isolation forest is 10 times as likely;
- anomalies: anomalies alone, drawn by chance among their kind.

Rate, interval and list are those of the default settings, where nobody says how rows were chosen,
and those of `label_source="random"` or "chosen". The truth is that of the unlabelled rows of the
fit; F1 and the AUC are of test rows.

`decision-laws`: tables of 300 rows of four known laws, 10 % anomalies, 60 rows labelled at random
and said to be random; 2,000 new rows. Draws with one labelled anomaly or none are skipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from experiments.datasets import collected_name, load_collected
from experiments.runner import RESULTS, Cell, Experiment, Skipped
from experiments.summaries import COLLECTED, Row, commits, grid, group, json_page, mean, ok_rows
from experiments.tables import write_text
from riskad import AutoRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, read_codes
from riskad.decisions.calibration import Calibration
from riskad.decisions.capacity import review_rows
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.thresholds import FalseAlarms, Likely

# In the order of a hash of their names, these come after the 110 that settings were chosen on.
_JUDGED = """
    13 15 24 27 31 33 37 39 42 44 45 47 55 59 65 78 79 82 88 90 97 98 101 103 110 112 116 119
    121 123 125 130 133 134 145 149 154 156 158 163 168 171 172 179 186 189 190 198 203 207 213
    219 223 228 232 233 238 240 243 249 250 267 269 271 281 282 285 286 289 295 297 299 304 306
    309 310 311 322 326 327 328 334 335 336 339 341 343 348 350 353 359 362 363 366 368 375 382
    386 398 402
"""
_WAYS = ("random", "kinds", "rule", "odd", "anomalies")
_SIZES = (30, 100)


# --- labels that were chosen --------------------------------------------------------------


def choose(way: str, X: np.ndarray, truth: np.ndarray, n: int, rng: Any) -> np.ndarray:
    """Return which rows are labelled; `truth` is where rows are anomalies."""
    most = int(truth.sum()) // 2
    if way in ("kinds", "anomalies"):
        m = min(n if way == "anomalies" else round(0.3 * n), most)
        anomalies = rng.choice(np.flatnonzero(truth), m, replace=False)
        if way == "anomalies":
            return anomalies
        normals = rng.choice(np.flatnonzero(~truth), n - m, replace=False)
        return np.concatenate([anomalies, normals])
    weight = np.ones(len(truth))
    if way == "rule":
        several = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) > 2]
        x = X[:, rng.choice(several)] * rng.choice([-1, 1]) + 1e-9 * rng.random(len(truth))
        weight = np.where(x >= np.quantile(x, 0.7), 10.0, 1.0)
    elif way == "odd":
        s = -IsolationForest(random_state=0).fit(X).score_samples(X)
        weight = np.where(s >= np.quantile(s, 0.9), 10.0, 1.0)
    rows = rng.choice(len(truth), n, replace=False, p=weight / weight.sum())
    return np.concatenate([rows[~truth[rows]], rows[truth[rows]][:most]])


class _Watched(AutoRAD):
    """Keeps the scores that its decisions are made of."""

    def _decide(self, fitted: Any, codes: Any, held_out: Any, source: Any) -> None:
        self.fitted, self.unseen = -fitted, np.full(len(codes), np.nan)
        for places, scores in () if held_out is None else held_out.on_scale_of(fitted):
            self.unseen[places] = -scores
        super()._decide(fitted, codes, held_out, source)


def run_choice(cell: Cell) -> dict[str, Any]:
    """Return what was decided on a table with labels chosen in one way, beside the truth."""
    table, way, size = load_collected(cell["dataset"]), cell["method"], cell["budget"]
    seed = int(hashlib.sha256(collected_name(cell["dataset"]).encode()).hexdigest()[:8], 16)
    order = np.random.default_rng([0, seed]).permutation(len(table.y))
    own, other = np.split(order, [len(order) // 2])
    X, truth = table.X[own], table.y[own] == ANOMALY
    rng = np.random.default_rng([size, seed, *way.encode()])
    rows = choose(way, X, truth, min(size, len(own) // 3), rng)
    y = np.zeros(len(own), dtype=int)
    y[rows] = np.where(truth[rows], ANOMALY, NORMAL)
    model = _Watched(budget=600, n_jobs=1, random_state=0).fit(X, read_codes(y))
    scores, anomalous = model.anomaly_score(table.X[other]), table.y[other] == ANOMALY
    auc = model.auc_
    return {
        "labelled_anomalies": int((y == ANOMALY).sum()),
        "true_rate": float(truth[y == UNLABELLED].mean()),
        "test_auc": float(roc_auc_score(anomalous, scores)),
        "best_f1": best_f1(scores, anomalous),
        **({} if auc is None else {"auc": auc.value, "auc_low": auc.low, "auc_high": auc.high}),
        **_decisions(model.unseen, y, model.fitted, scores, anomalous, "unknown", ""),
        **_decisions(
            model.unseen, y, model.fitted, scores, anomalous,
            "random" if way == "random" else "chosen", "said_",
        ),
    }  # fmt: skip


def _decisions(
    unseen: np.ndarray,
    y: np.ndarray,
    fitted: np.ndarray,
    scores: np.ndarray,
    anomalous: np.ndarray,
    source: str,
    prefix: str,
) -> dict[str, Any]:
    """Rate, list and probabilities where labels are said to be of this source."""
    calibration = Calibration.of(unseen, read_codes(y), fitted, 0.0, None, 0, source)
    rate, threshold = calibration.rate, Likely().of(calibration)
    decided = {
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
        "flagged": float((fitted[y == UNLABELLED] > threshold).mean()),
        "f1": f1_score(scores > threshold, anomalous),
    }
    if calibration.knows_probabilities:
        p = calibration.anomaly_probability(scores)
        decided["brier"] = float(np.mean((p - anomalous) ** 2))
        decided["brier_constant"] = float(np.mean((calibration.pi_n - anomalous) ** 2))
    return {prefix + name: value for name, value in decided.items()}


def best_f1(scores: np.ndarray, truth: np.ndarray) -> float:
    """Return the highest F1 of any threshold."""
    hits = np.cumsum(truth[np.argsort(-scores)])
    return float((2 * hits / (np.arange(1, len(truth) + 1) + truth.sum())).max())


def f1_score(flagged: np.ndarray, truth: np.ndarray) -> float:
    """Return the F1 of a list."""
    return float(2 * (flagged & truth).sum() / max(flagged.sum() + truth.sum(), 1))


def choice_figures(rows: Sequence[Row], prefix: str = "") -> dict[str, dict[str, float]]:
    """Return the figures of each way and number of labels."""
    return {
        f"{way}, {size}": _choice(cells, prefix)
        for (way, size), cells in sorted(
            group(rows, "method", "budget").items(),
            key=lambda each: (_WAYS.index(each[0][0]), each[0][1]),
        )
    }


def _choice(rows: Sequence[Row], prefix: str) -> dict[str, float]:
    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows], dtype=float)

    true = column("true_rate")
    rate, low, high, flagged, f1 = (
        column(prefix + name) for name in ("rate", "low", "high", "flagged", "f1")
    )
    brier, constant = column(prefix + "brier"), column(prefix + "brier_constant")
    known = ~np.isnan(brier)
    auc, auc_low, auc_high, test = map(column, ("auc", "auc_low", "auc_high", "test_auc"))
    judged = ~np.isnan(auc)
    return {
        "tables": len(rows),
        "rate / truth, median": float(np.median(rate / true)),
        "rate / truth, 10 %": float(np.quantile(rate / true, 0.1)),
        "rate / truth, 90 %": float(np.quantile(rate / true, 0.9)),
        "error of the rate": float(np.abs(rate - true).mean()),
        "interval covers": float(((low <= true) & (true <= high)).mean()),
        "flagged / truth, median": float(np.median(flagged / true)),
        "more than 3 times": float((flagged > 3 * true).mean()),
        "nothing flagged": float((flagged == 0).mean()),
        "F1 / best": float(f1.mean() / column("best_f1").mean()),
        "Brier <= constant": float((brier <= constant + 1e-12)[known].mean())
        if known.any()
        else np.nan,
        "AUC covered": float(((auc_low <= test) & (test <= auc_high))[judged].mean())
        if judged.any()
        else np.nan,
    }


_SHOWN = {
    "rate / truth, median": ("rate / truth", "{:.2f}"),
    "interval covers": ("interval covers", "{:.0%}"),
    "error of the rate": ("mean error", "{:.3f}"),
    "flagged / truth, median": ("flagged / truth", "{:.2f}"),
    "more than 3 times": ("more than 3 times", "{:.0%}"),
    "nothing flagged": ("nothing", "{:.0%}"),
    "F1 / best": ("F1 / best", "{:.3f}"),
    "Brier <= constant": ("Brier <= constant", "{:.0%}"),
    "AUC covered": ("AUC covered", "{:.0%}"),
}


def report_choice(frame: pl.DataFrame, folder: Path) -> None:
    """Write the tables of label_choice.md, below the text that people wrote."""
    rows, mark = ok_rows(frame), "<!-- figures -->"
    path = folder / "label_choice.md"
    written = path if path.exists() else RESULTS / "decisions" / path.name
    parts = [written.read_text(encoding="utf-8").partition(mark)[0] + mark]
    for title, prefix in (("Nothing said", ""), ("Said to be random, or chosen", "said_")):
        lines = [["labels", *(title for title, _ in _SHOWN.values())]]
        for name, figures in choice_figures(rows, prefix).items():
            cells = [
                "" if np.isnan(figures[key]) else form.format(figures[key])
                for key, (_, form) in _SHOWN.items()
            ]
            lines.append([name, *cells])
        lines.insert(1, ["---"] * len(lines[0]))
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"## {title}\n\n{table}")
    made = ", ".join(commits(rows))
    write_text(path, "\n\n".join([*parts, f"Records of {made}.\n"]))


# --- tables of known law ------------------------------------------------------------------

_LAWS = {
    "easy": lambda rng, a: rng.normal(size=(len(a), 4)) + 2.0 * a[:, None],
    "overlapping": lambda rng, a: rng.normal(size=(len(a), 4)) + 0.5 * a[:, None],
    "heavy-tailed": lambda rng, a: rng.standard_t(2, size=(len(a), 4)) + 1.5 * a[:, None],
    "discrete": lambda rng, a: 1.0 * rng.binomial(4, np.where(a, 0.55, 0.3)[:, None], (len(a), 4)),
}
_LEVEL, _FDR = 0.1, 0.2


def run_law(cell: Cell) -> dict[str, Any]:
    """Return errors of one fit, and 1 for each promise that new rows keep."""
    law, seed = cell["method"], cell["trial"]
    rng = np.random.default_rng([seed, *law.encode()])
    truth, new_truth = rng.random(300) < 0.1, rng.random(2_000) < 0.1
    X, new = _LAWS[law](rng, truth), _LAWS[law](rng, new_truth)
    y = np.zeros(300, dtype=int)
    rows = rng.choice(300, 60, replace=False)
    y[rows] = np.where(truth[rows], ANOMALY, NORMAL)
    if (y == ANOMALY).sum() < 2:
        raise Skipped("an AUC needs two labelled anomalies.")
    model = AutoRAD(budget=600, n_jobs=1, random_state=seed)
    model.fit(X, read_codes(y), label_source="random")
    decided, scores, free = model.calibration_, model.anomaly_score(new), y == UNLABELLED
    threshold, auc = model._anomaly_threshold, float(roc_auc_score(new_truth, scores))
    flagged = model.anomaly_score(X[free]) > threshold
    review = review_rows(decided, decided.unlabelled, decided.n_unlabelled)
    expected = review.at(int(flagged.sum())).precision if review and flagged.any() else None
    p, p_values = decided.anomaly_probability(scores), decided.p_values(scores)
    selected = select_at_fdr(p_values, _FDR, len(decided.normals)).selected
    true_rate, normal = float(truth[free].mean()), ~new_truth
    constant = np.mean((decided.pi_n - new_truth) ** 2)
    return {
        "test AUC": auc,
        "nested AUC less it": model.auc_.value - auc,
        "AUC covered": float(model.auc_.low <= auc <= model.auc_.high),
        "rate covered": float(decided.rate.low <= true_rate <= decided.rate.high),
        "error of the rate": abs(decided.rate.value - true_rate),
        "F1 / best": f1_score(scores > threshold, new_truth) / best_f1(scores, new_truth),
        "expected precision covered": float(
            expected.low <= truth[free][flagged].mean() <= expected.high
        ),
        "Brier not above the constant's": float(np.mean((p - new_truth) ** 2) <= constant + 1e-12),
        "mean probability - rate": abs(float(p.mean()) - decided.pi_n),
        "p <= 0.05": float((p_values[normal] <= 0.05).mean()),
        "p <= 0.1": float((p_values[normal] <= _LEVEL).mean()),
        "false-alarms:0.1": float((scores[normal] > FalseAlarms(_LEVEL).of(decided)).mean()),
        "false discoveries at 0.2": float(normal[selected].mean()) if selected.any() else 0.0,
    }


def law_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means over draws, law by law."""
    names = [name for name in rows[0] if name not in ("experiment", "method", "trial", "status",
                                                      "reason", "commit", "versions", "warnings",
                                                      "dataset", "budget")]  # fmt: skip
    return {
        law: {"draws": len(draws)}
        | {name: round(mean(draws, name), 4) for name in names if draws[0][name] is not None}
        for law, draws in group(rows, "method").items()
    }


EXPERIMENTS = (
    Experiment(
        name="label-choice",
        title="Rates, lists and probabilities where labels were chosen in five ways",
        cells=grid(
            dataset=[f"table {int(number):03d}" for number in _JUDGED.split()],
            method=_WAYS,
            budget=_SIZES,
        ),
        run_cell=run_choice,
        report=report_choice,
        folder="decisions",
        needs=COLLECTED,
        minutes="an hour on one core",
    ),
    Experiment(
        name="decision-laws",
        title="Whether decisions keep their promises on tables of known law",
        cells=grid(trial=range(50), method=_LAWS),
        run_cell=run_law,
        report=json_page("simulations.json", law_figures),
        folder="decisions",
        minutes="10 minutes on one core",
    ),
)
