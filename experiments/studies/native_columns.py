"""What it brings a network, and boosted trees, to read blank cells and categories as such.

`native-columns`: real tables that the pretrained network has not seen, at most 2,000 rows of each.
They have neither gaps nor texts, so these are made, in every other column. Cells are blanked, more
of them the larger their value, and in a third of the columns more of them in anomalies. Or a column
is cut into three to eight levels. Half of the rows are there to fit, 5 % of them, at least 40,
labelled at random. A detector learns from encoded columns (medians with marks, a yes/no column for
each level) and from columns as such, both beside two outlier scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from experiments.pretraining.split import hashes, load_table
from experiments.runner import Cell, Experiment, Skipped
from experiments.summaries import Row, commits, group, json_page, rounded
from riskad import BoostedRAD, PretrainedRAD
from riskad.detectors.features.union import LearnedFeatures, NativeColumns
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.rows.encoding import fit_encoder
from riskad.rows.table import Table

_TABLES = 60
_MOST_ROWS, _LEAST_LABELLED, _SHARE = 2_000, 40, 0.05
_LEVELS = (3, 9)
_BLANKS, _MORE_IF_LARGE, _MORE_IF_ANOMALOUS = 0.05, 0.3, 0.2
DETECTORS = {
    "network": lambda: PretrainedRAD(unlabelled=300, random_state=0),
    "boosted": lambda: BoostedRAD(max_iter=150, random_state=0),
}


def blank_cells(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Return a table with blank cells in about half of its columns."""
    X = X.copy()
    for j in range(X.shape[1]):
        if rng.random() < 0.5:
            rank = np.argsort(np.argsort(X[:, j])) / len(y)
            chance = _BLANKS + _MORE_IF_LARGE * rng.random() * rank
            chance = chance + _MORE_IF_ANOMALOUS * y * (rng.random() < 1 / 3)
            X[rng.random(len(y)) < chance, j] = np.nan
    return Table(X, tuple(f"x{j}" for j in range(X.shape[1])))


def cut_columns(X: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> Table:
    """Return a table about half of whose columns are categories, the most frequent level first."""
    X, levels = X.copy(), {}
    for j in range(X.shape[1]):
        if rng.random() < 0.5 and len(np.unique(X[:, j])) > 2:
            n_levels = int(rng.integers(*_LEVELS))
            edges = np.quantile(X[:, j], np.arange(1, n_levels) / n_levels)
            level = np.searchsorted(np.unique(edges), X[:, j])
            counts = np.bincount(level)
            X[:, j] = np.argsort(np.argsort(-counts, kind="stable"))[level]
            levels[j] = [str(each) for each in range(len(counts))]
    return Table(X, tuple(f"x{j}" for j in range(X.shape[1])), levels)


CHANGES = {"blanks": blank_cells, "categories": cut_columns}


def both_ways(table: Table, n_fit: int) -> dict[str, np.ndarray]:
    """Return encoded and native columns of all rows, learned from the first ones."""
    encoder = fit_encoder(table[:n_fit].values, table.levels, seed=0)
    numbers = encoder.transform(table.values)
    view = LearnedFeatures(("columns", "outliers")).fit(numbers[:n_fit])
    Z = view.columns_of(numbers)
    native = NativeColumns.of(encoder, view)
    if native is None:
        raise Skipped("No column was changed.")
    outliers = view.part_of("outliers", Z)
    ways = {"encoded": Z, "native": native.transform(Z, table.values)}
    return {way: np.hstack([columns, outliers]) for way, columns in ways.items()}


def run_native(cell: Cell) -> dict[str, Any]:
    """Return AUC and average precision on test rows, by detector and way."""
    X, y = load_table(cell["dataset"])
    rng = np.random.default_rng(int(cell["dataset"][:8], 16))
    order = rng.permutation(len(y))[:_MOST_ROWS]
    y = y[order]
    table = CHANGES[cell["method"]](X[order], y, rng)
    n_fit = len(y) // 2
    codes = np.zeros(n_fit, int)
    labelled = rng.choice(n_fit, max(_LEAST_LABELLED, round(_SHARE * n_fit)), replace=False)
    codes[labelled] = np.where(y[labelled], -1, 1)
    if (codes == -1).sum() < 2 or y[n_fit:].sum() < 3:
        raise Skipped("Too few anomalies.")
    ways = both_ways(table, n_fit)
    if ways["encoded"].shape[1] > READS_COLUMNS:
        raise Skipped("More columns than the network reads.")
    figures = {}
    for name, make in DETECTORS.items():
        for way, F in ways.items():
            scores = -make().fit(F[:n_fit], codes).score_samples(F[n_fit:])
            figures[f"{name}, {way}, auc"] = float(roc_auc_score(y[n_fit:], scores))
            precision = float(average_precision_score(y[n_fit:], scores))
            figures[f"{name}, {way}, average precision"] = precision
    return rounded(figures)


def native_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return means over tables, and the gain of native columns with its standard error."""
    figures: dict[str, Any] = {"commits": commits(rows)}
    for change, cells in group(rows, "method").items():
        part: dict[str, Any] = {"tables": len(cells)}
        for name in DETECTORS:
            for metric in ("auc", "average precision"):
                encoded, native = (
                    np.array([row[f"{name}, {way}, {metric}"] for row in cells])
                    for way in ("encoded", "native")
                )
                gain = native - encoded
                part[f"{name}, {metric}"] = {
                    "encoded": encoded.mean(),
                    "native": native.mean(),
                    "gain": gain.mean(),
                    "standard error": gain.std(ddof=1) / np.sqrt(len(gain)),
                }
        figures[change] = part
    return rounded(figures)


def native_cells() -> Iterator[Cell]:
    """The first tables by their hashes, each changed in both ways."""
    for table in sorted(hashes("kept"))[:_TABLES]:
        for change in CHANGES:
            yield Cell(dataset=table, method=change)


EXPERIMENTS = (
    Experiment(
        name="native-columns",
        title="What reading blank cells and categories as such is worth",
        cells=native_cells,
        run_cell=run_native,
        report=json_page("native_columns.json", native_figures),
        folder="tables",
        minutes="10 minutes",
    ),
)
