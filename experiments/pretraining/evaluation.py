"""How well the network finds anomalies in the kept tables, beside trees.

Of each table some rows are labelled, once: 1, 5 or 20 % of them at random
("few": 5 %, of whose anomalies one to three keep their label). The others are unlabelled. Detectors
are judged by at most 600 of them. The network reads columns and outlier scores; trees learn from
the labelled rows. All budgets but 5 % are tried in every third table. Records of "tables-2", the
weights before, are kept to compare with.

Tables are named by hashes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.evaluation import TrialMean
from experiments.pretraining.split import hashes, kept_table
from experiments.runner import Cell, NotAvailable
from experiments.summaries import group, ok_rows
from experiments.tables import Table, markdown_table, write_text
from riskad import PretrainedRAD
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.detectors.features import LearnedFeatures

_MOST_JUDGED = 600
_SHARES = {"5 %": 0.05, "few": 0.05, "1 %": 0.01, "20 %": 0.2}
_SELDOM = 3  # all budgets but 5 % are tried in every third table
DETECTORS = ("tables-3", "extra trees", "catboost")
BEFORE = "tables-2"


def labelled(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Rows drawn to be labelled; both kinds among them."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = rng.random(len(y)) < share
        if 0 < y[drawn].sum() < drawn.sum():
            return drawn


def draw_codes(y: np.ndarray, budget: str, seed: int) -> np.ndarray:
    """Codes of the rows of a table under a budget."""
    drawn = labelled(y, _SHARES[budget], seed)
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


def _figures(truth: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    return {
        "auc": round(float(roc_auc_score(truth, scores)), 4),
        "average_precision": round(float(average_precision_score(truth, scores)), 4),
    }


# --- the network beside trees ------------------------------------------------------------


def kept_cells() -> Iterator[Cell]:
    """All cells; the seed of a table is its place among the kept ones."""
    for place, table in enumerate(hashes("kept")):
        for budget in _SHARES if place % _SELDOM == 0 else ("5 %",):
            for method in DETECTORS:
                yield Cell(dataset=table, method=method, budget=budget)


def run_kept(cell: Cell) -> dict[str, Any]:
    """Fit a detector to a kept table and judge it by unlabelled rows."""
    X, y = kept_table(cell["dataset"])
    seed = hashes("kept").index(cell["dataset"])
    codes = draw_codes(y, cell["budget"], seed)
    rows = judged_rows(y, codes, seed)
    drawn = codes != UNLABELLED
    smooth = _smooth(X) if cell["method"] == "tables-3" else X
    start = time.process_time()
    if cell["method"] == "tables-3":
        scores = -PretrainedRAD().fit(smooth, codes).score_samples(smooth[rows])
    else:
        model = _classifier(cell["method"]).fit(X[drawn], codes[drawn] == ANOMALY)
        scores = model.predict_proba(X[rows])[:, 1]
    return {
        "n_anomaly": int((codes == ANOMALY).sum()),
        "n_normal": int((codes == NORMAL).sum()),
        **_figures(y[rows], scores),
        "cpu_seconds": round(time.process_time() - start, 2),
    }


def _smooth(X: np.ndarray) -> np.ndarray:
    """Columns and outlier scores, as the documentation advises."""
    return LearnedFeatures(("columns", "outliers"), smooth=True).fit_transform(X)


def _classifier(name: str) -> Any:
    """500 extra trees, or CatBoost with its own settings."""
    if name == "extra trees":
        return ExtraTreesClassifier(500, random_state=0)
    try:
        from catboost import CatBoostClassifier
    except ImportError as error:
        raise NotAvailable(str(error), method=name) from None
    return CatBoostClassifier(
        random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    )


def report_kept(frame: pl.DataFrame, folder: Path) -> None:
    """Write the table of kept tables into the page of the folder."""
    write_part(folder / "README.md", "kept", kept_table_text(frame))


def kept_table_text(frame: pl.DataFrame) -> str:
    """Means over tables, and tables-3 less each other detector, with standard errors."""
    rows = []
    for budget in _SHARES:
        by_table = group(ok_rows(frame.filter(pl.col("budget") == budget)), "dataset").values()
        tables = [{row["method"]: row for row in rows_of} for rows_of in by_table]
        for place, name in enumerate(("tables-3", BEFORE, "extra trees", "catboost")):
            gaps = [_say_gap(tables, "tables-3", name, column) for column in _COLUMNS]
            means = [f"{np.mean([of[name][column] for of in tables]):.4f}" for column in _COLUMNS]
            first = [_SAY_BUDGET.get(budget, budget), str(len(tables))] if not place else ["", ""]
            rows.append([*first, name, *means, *(gaps if place else ["", ""])])
    head = ("labelled", "tables", "detector", "mean AUC", "mean AP", "AUC of tables-3 less it (SE)")
    return markdown_table(Table("", (*head, "AP (SE)"), rows, left=(0, 2)))


_COLUMNS = ("auc", "average_precision")
_SAY_BUDGET = {"few": "5 %, 1 to 3 anomalies"}


def _say_gap(tables: Sequence[Mapping[str, Any]], one: str, other: str, column: str) -> str:
    """The mean difference of two methods over tables with its standard error."""
    gap = TrialMean.of([of[one][column] - of[other][column] for of in tables])
    return f"{gap.mean:+.4f} ({gap.se or 0:.4f})" if gap else ""


def write_part(path: Path, name: str, text: str) -> None:
    """Put a table between the marks `<!-- NAME -->` and `<!-- end of NAME -->` of a page."""
    page = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(rf"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    write_text(path, pattern.sub(lambda match: f"{begin}\n\n{text}\n\n{end}", page))
