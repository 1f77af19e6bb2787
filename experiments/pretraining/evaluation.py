"""How well the network finds anomalies in the kept tables, beside trees.

Of each table some rows are labelled, once; detectors are judged by at most 600 of the others. The
network reads columns and outlier scores; trees learn from the labelled rows. Records of "tables-2",
the weights before, are kept to compare with.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.evaluation import TrialMean
from experiments.pretraining.split import hashes, load_table
from experiments.records import OK
from experiments.runner import Cell, NotAvailable
from experiments.tables import Table, markdown_table, write_text
from riskad import PretrainedRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.detectors.features import LearnedFeatures

_MOST_JUDGED = 600
_SHARES = {"5 %": 0.05, "few": 0.05, "1 %": 0.01, "20 %": 0.2}
_SELDOM = 3  # all budgets but 5 % are tried in every third table
DETECTORS = ("tables-3", "extra trees", "catboost")
BEFORE = "tables-2"
_COLUMNS = ("auc", "average_precision")
_SAY_BUDGET = {"few": "5 %, 1 to 3 anomalies"}


def draw_codes(y: np.ndarray, budget: str, seed: int) -> np.ndarray:
    """Codes of the rows of a table under a budget, drawn until both kinds are labelled."""
    rng, drawn = np.random.default_rng(seed), np.zeros(len(y), dtype=bool)
    while not 0 < y[drawn].sum() < drawn.sum():
        drawn = rng.random(len(y)) < _SHARES[budget]
    if budget == "few":
        rng = np.random.default_rng(seed)
        anomalies = rng.permutation(np.flatnonzero(drawn & y))
        drawn[anomalies[rng.integers(1, 4) :]] = False
    return np.where(drawn, np.where(y, ANOMALY, NORMAL), UNLABELLED)


def judged_rows(y: np.ndarray, codes: np.ndarray, seed: int) -> np.ndarray:
    """Some of the unlabelled rows, with as many anomalies as their share says."""
    free = np.random.default_rng(seed).permutation(np.flatnonzero(codes == UNLABELLED))
    anomalous, normal = free[y[free]], free[~y[free]]
    share = min(1.0, _MOST_JUDGED / len(free))
    n_anomalous = max(5, round(share * len(anomalous)))
    return np.concatenate([anomalous[:n_anomalous], normal[: round(share * len(normal))]])


def kept_cells() -> Iterator[Cell]:
    """All cells; the seed of a table is its place among the kept ones."""
    for place, table in enumerate(hashes("kept")):
        for budget in _SHARES if place % _SELDOM == 0 else ("5 %",):
            for method in DETECTORS:
                yield Cell(dataset=table, method=method, budget=budget)


def run_kept(cell: Cell) -> dict[str, Any]:
    """Fit a detector to a kept table and judge it by unlabelled rows."""
    X, y = load_table(cell["dataset"])
    seed = hashes("kept").index(cell["dataset"])
    codes = draw_codes(y, cell["budget"], seed)
    rows, drawn = judged_rows(y, codes, seed), codes != UNLABELLED
    if cell["method"] == "tables-3":  # columns and outlier scores, as the documentation advises
        X = LearnedFeatures(("columns", "outliers"), smooth=True).fit_transform(X)
    start = time.process_time()
    if cell["method"] == "tables-3":
        scores = -PretrainedRAD().fit(X, codes).score_samples(X[rows])
    else:
        model = _classifier(cell["method"]).fit(X[drawn], codes[drawn] == ANOMALY)
        scores = model.predict_proba(X[rows])[:, 1]
    return {
        "n_anomaly": int((codes == ANOMALY).sum()),
        "n_normal": int((codes == NORMAL).sum()),
        "auc": round(float(roc_auc_score(y[rows], scores)), 4),
        "average_precision": round(float(average_precision_score(y[rows], scores)), 4),
        "cpu_seconds": round(time.process_time() - start, 2),
    }


def _classifier(name: str) -> Any:
    """500 extra trees, or CatBoost with its own settings."""
    if name == "extra trees":
        return ExtraTreesClassifier(500, random_state=0)
    try:
        from catboost import CatBoostClassifier
    except ImportError as error:
        raise NotAvailable(str(error), method=name) from None
    options = {"thread_count": 1, "verbose": False, "allow_writing_files": False}
    return CatBoostClassifier(random_seed=0, **options)


def report_kept(frame: pl.DataFrame, folder: Path) -> None:
    """Write the table between the marks `<!-- kept -->` and `<!-- end of kept -->` of the page."""
    path = folder / "README.md"
    before, _, rest = path.read_text(encoding="utf-8").partition("<!-- kept -->")
    after = rest.partition("<!-- end of kept -->")[2]
    table = kept_table_text(frame)
    write_text(path, f"{before}<!-- kept -->\n\n{table}\n\n<!-- end of kept -->{after}")


def kept_table_text(frame: pl.DataFrame) -> str:
    """Means over tables, and tables-3 less each other detector, with standard errors."""
    rows = []
    for budget in _SHARES:
        own = frame.filter(pl.col("status") == OK, pl.col("budget") == budget)
        tables = {name: own.pivot("method", index="dataset", values=name) for name in _COLUMNS}
        for place, method in enumerate((DETECTORS[0], BEFORE, *DETECTORS[1:])):
            means = [f"{table[method].mean():.4f}" for table in tables.values()]
            gaps = [_say_gap(table, method) if place else "" for table in tables.values()]
            n_tables = str(len(tables["auc"]))
            first = ["", ""] if place else [_SAY_BUDGET.get(budget, budget), n_tables]
            rows.append([*first, method, *means, *gaps])
    head = ("labelled", "tables", "detector", "mean AUC", "mean AP", "AUC of tables-3 less it (SE)")
    return markdown_table(Table("", (*head, "AP (SE)"), rows, left=(0, 2)))


def _say_gap(table: pl.DataFrame, other: str) -> str:
    """The mean difference to a method over tables with its standard error."""
    gap = TrialMean.of((table["tables-3"] - table[other]).to_list())
    return f"{gap.mean:+.4f} ({gap.se or 0:.4f})" if gap else ""
