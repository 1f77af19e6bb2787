r"""Why a row is anomalous: what each column adds to its score, compared with a usual row.

A usual row r holds the median of each number and the most frequent text, of all rows or, where such
a row would be suspicious itself, of some that are alike (`choose_usual_row`). Let v(S) be the
anomaly score of the row that has the columns S from x and all others from r. Column j adds its
Shapley value: the mean of v(S with j) - v(S) over all orders in which the columns of x can replace
those of r, where S are the columns before j:

    anomaly_score(x) = anomaly_score(r) + sum_j phi_j,    phi_j = 0 where x_j = r_j

- *Linear scores*: phi_j = -w_j (x_j - r_j), exact, for a million rows in seconds.
- *Detectors that compute their own contributions* (boosted trees): phi_j(x) - phi_j(r) of these,
  which also add up but need not be 0 where x_j = r_j.
- *All others* (feature maps, networks, any score): exact over all 2^k sets if a row differs from r
  in k <= 10 columns; else over pairs of a random order and its reverse, 8 to 64 of them, until
  no standard error exceeds 2 % of the largest phi_j. In every order the gains add up to v(all) -
  v(none), so the sum stays exact. A single pair is exact if at most two columns interact at a time
  ("poly"). A row costs at most 128 (k - 1) scores.
- *Slow scores* (`AutoRAD`): over all sets if k <= 7, else by least squares over random sets and
  their complements (`riskad.decisions.shapley`). A row costs 8 k scores, and the rows are scored
  together. Members that are sums over columns and pairs of columns get exact values.
- *Wide tables*: with k > 1,000, or k > 100 if scores are slow, columns are compared in groups. The
  groups with the largest effects are halved repeatedly. With A and B the halves of a group G and O
  all columns outside of it, A adds the mean of v(A) - v(none), v(G) - v(B), v(O with A) - v(O) and
  v(all) - v(O with B), up to a constant that keeps the sum. About 8 columns that matter most end in
  groups of their own; the others share the effect of their group equally. A row costs at most
  48 (log2 k + 3) scores, for any width.

All features that come from one column of the table, including its yes/no columns and "is blank",
change together: reasons are about the columns of the user's table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.sparsefuncs import csc_median_axis_0

from riskad.app.noticed import no_warnings
from riskad.core.checks import InputError
from riskad.decisions.shapley import shapley_values
from riskad.detectors.base import Detector
from riskad.rows.table import TableSchema, as_table
from riskad.tables.cells import BLANK, Value
from riskad.tables.kinds.base import Column
from riskad.tables.kinds.derived import DerivedColumn
from riskad.tables.kinds.moments import MomentColumn
from riskad.tables.kinds.numbers import WrittenNumber
from riskad.tables.preparation import TablePreparer

__all__ = ["Reason", "Reasons", "choose_usual_row", "explain_rows", "show_value"]

Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Any  # an array, or a CSR matrix of scipy, which has no types

_LONGEST_TEXT = 40
_USUAL_ROWS = 25  # whose medians are a usual row; an odd number, so that a date is one of theirs
_USUAL_AMONG = 5_000
_BATCH_ENTRIES = 2_000_000  # of changed rows in memory at a time


@dataclass(frozen=True)
class Reason:
    """What one column of one row adds to the anomaly score.

    `error` is the standard error of `adds`, 0 if it is exact. The value None is a blank.

    >>> print(Reason("amount", 9500.0, 43.0, adds=1.87))
    amount 9,500 (usual 43) adds 1.87
    """

    column: str
    value: Value
    usual: Value
    adds: float
    error: float = 0.0

    def __str__(self) -> str:
        effect = f"adds {self.adds:.3g}" if self.adds >= 0 else f"takes off {-self.adds:.3g}"
        return f"{self.column} {show_value(self.value)} (usual {show_value(self.usual)}) {effect}"


@dataclass(frozen=True, eq=False)
class Reasons:
    """What each column of some rows adds to their anomaly scores.

    Attributes
    ----------
    columns : tuple of str
        Columns of the user's table that the model uses.
    values : ndarray of shape (n_rows, n_columns)
        Values of the rows: numbers in their own units, text as text.
    usual : tuple
        Values of the usual row, by column.
    contributions : ndarray of shape (n_rows, n_columns)
        What each column adds; positive values make a row more anomalous. `base` plus the sum of a
        row is its `anomaly_score`.
    errors : ndarray of shape (n_rows, n_columns)
        Standard errors of the contributions; 0 if they are exact.
    base : float
        Anomaly score of the usual row.
    anomaly_score : ndarray of shape (n_rows,)
        Anomaly scores of the rows.
    described_by : dict
        By name, the `riskad.tables.kinds.base.Column` that shows values of a column as the
        user knows them; empty for models of matrices.
    parts : dict
        By name of a column of dates or times, the part that counts most in each row: its weekday,
        for instance, or the time that has elapsed.
    """

    columns: tuple[str, ...]
    values: NDArray[Any]
    usual: tuple[Value, ...]
    contributions: Floats
    errors: Floats
    base: float
    anomaly_score: Floats
    described_by: Mapping[str, Column | DerivedColumn] = field(default_factory=dict)
    parts: Mapping[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.anomaly_score)

    def of(self, row: int) -> list[Reason]:
        """All columns of a row, counted from 0, the largest contribution first."""
        return [self._reason(row, j) for j in self._order(row)]

    def top(self, row: int, n: int = 3) -> list[Reason]:
        """The n columns that make a row most anomalous; fewer if fewer add to its score."""
        order = self._order(row)[:n]
        return [self._reason(row, j) for j in order if self.contributions[row, j] > 0]

    def _order(self, row: int) -> NDArray[np.intp]:
        return np.argsort(-self.contributions[row], kind="stable")

    def _reason(self, row: int, j: int) -> Reason:
        adds, error = float(self.contributions[row, j]), float(self.errors[row, j])
        value, usual = _plain(self.values[row, j]), self.usual[j]
        shown, shown_usual = self._in_words(j, value), self._in_words(j, usual)
        part, usual_part = self.part_in_words(row, j), self._part_in_words(row, j, usual)
        if part:
            shown, shown_usual = f"{shown}, {part}", usual_part or shown_usual
        return Reason(self.columns[j], shown, shown_usual, adds, error)

    def part_in_words(self, row: int, j: int) -> str:
        """Name the part of a date that counts most in a row, Saturday for instance, if any."""
        return self._part_in_words(row, j, _plain(self.values[row, j]))

    def _part_in_words(self, row: int, j: int, value: Value) -> str:
        column = self.described_by.get(self.columns[j])
        if not isinstance(column, MomentColumn) or not isinstance(value, float):
            return ""
        return column.show_part(value, self.parts[column.name][row])

    def _in_words(self, j: int, value: Value) -> Value:
        column = self.described_by.get(self.columns[j])
        return value if column is None else column.show(value)

    def ends(self, j: int) -> tuple[str, str] | None:
        """Words for small and large values of a column; None if they have no order."""
        column = self.described_by.get(self.columns[j])
        if column is not None:
            return column.extremes
        return None if isinstance(self.usual[j], str) else ("low", "high")

    def first(self, n: int) -> Reasons:
        """The reasons of the first n rows."""
        return replace(
            self,
            values=self.values[:n],
            contributions=self.contributions[:n],
            errors=self.errors[:n],
            anomaly_score=self.anomaly_score[:n],
            parts={name: parts[:n] for name, parts in self.parts.items()},
        )

    def text(self, row: int, n: int = 3) -> str:
        """`top` in words."""
        return "; ".join(map(str, self.top(row, n))) or "nothing adds to its score"

    def importance(self) -> dict[str, float]:
        """Mean absolute contribution of each column over these rows, the largest first."""
        sizes = np.abs(self.contributions).mean(axis=0)
        return {self.columns[j]: float(sizes[j]) for j in np.argsort(-sizes, kind="stable")}

    def __str__(self) -> str:
        return "\n".join(
            f"{score:.4g}: {self.text(row)}" for row, score in enumerate(self.anomaly_score)
        )


def explain_rows(
    model: Any,
    X: Any,
    *,
    background: Any = None,
    random_state: int = 0,
    seconds: float = math.inf,
) -> Reasons:
    """Return what each column of the rows X adds to their anomaly scores.

    Parameters
    ----------
    model
        A fitted detector, or a pipeline that ends in one. A pipeline that starts with a
        `TablePreparer`, as those of `riskad fit`, is explained by the columns of the table.
    X
        Rows, as the model scores them: a table or a matrix. Images are not explained.
    background
        Rows that define what is usual, for example the normal ones. By default the model's summary
        of its training rows is used: medians and most frequent texts of a `TablePreparer`, or the
        column means of a detector with `scale=True`.
    random_state
        Seed for the orders in which columns are compared, if these are sampled. The reasons of a
        row do not depend on which other rows are explained.
    seconds
        If many mixed rows must be scored, no row but the first is started after this many seconds:
        the reasons are then those of the first rows of X.

    Examples
    --------
    >>> import numpy as np
    >>> from riskad import ShallowRAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal([0, 3], 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> model = ShallowRAD().fit(X, y)
    >>> reasons = explain_rows(model, X[-20:], background=X[y == 1])
    >>> list(reasons.importance())
    ['x1', 'x0']
    >>> total = reasons.base + reasons.contributions.sum(axis=1)
    >>> np.allclose(total, model.anomaly_score(X[-20:]), atol=1e-8)
    True
    """
    view = _view(model, as_table(X), as_table(background))
    scores, base = view.score(view.matrix), float(view.score(view.reference_row)[0])
    own = _own_contributions(view)
    if own is None:
        end = time.perf_counter() + seconds
        contributions, errors = shapley_values(view, scores, base, random_state, end)
    else:
        contributions, size = own
        _check_sum(view.model, base + contributions.sum(axis=1), scores, size)
        errors = np.zeros_like(contributions)
    n = len(contributions)
    view = replace(view, matrix=view.matrix[:n])
    return Reasons(
        columns=view.columns,
        values=view.values[:n],
        usual=view.usual,
        contributions=contributions,
        errors=errors,
        base=base,
        anomaly_score=scores[:n],
        described_by=view.described_by,
        parts=_parts_that_count(view, scores[:n]),
    )


def _parts_that_count(view: _View, scores: Floats) -> dict[str, list[str]]:
    """The part of each date whose usual value would lower the score of its row most, if any would.

    Other columns stay as they are, and so do other parts of the date.
    """
    counting = {}
    for j, column in enumerate(map(view.described_by.get, view.columns)):
        if not isinstance(column, MomentColumn):
            continue
        features: dict[str, list[int]] = {}
        for place in map(int, np.flatnonzero(view.owners == j)):
            if part := column.part_of(view.features[place]):
                features.setdefault(part, []).append(place)
        drops = [scores - _score_with_usual(view, places) for places in features.values()]
        names = np.array(["", *features])
        counting[column.name] = names[np.argmax([np.zeros_like(scores), *drops], axis=0)].tolist()
    return counting


def _score_with_usual(view: _View, features: list[int]) -> Floats:
    """Scores of the rows with the usual values of some features."""
    size = max(1, _BATCH_ENTRIES // len(view.reference))
    parts = []
    for start in range(0, view.matrix.shape[0], size):
        rows = view.matrix[start : start + size]
        rows = rows.toarray() if sparse.issparse(rows) else rows.copy()
        rows[:, features] = view.reference[features]
        parts.append(view.score_mixed(rows))
    return np.concatenate([np.empty(0), *parts])


def choose_usual_row(model: Pipeline, parsed: pl.DataFrame, scores: Floats) -> None:
    """Set the row that reasons compare with, so that it is not suspicious itself.

    Medians and most frequent texts can make a row like no other: one between two groups of rows, or
    a payment on a Sunday. If it is more suspicious than half of the rows, it is replaced. Of the
    less suspicious half, take the row in the middle and the rows most like it, 25 in all: their
    medians and most frequent texts are then the usual row. No row itself is kept.

    Parameters
    ----------
    model
        A fitted pipeline of a `TablePreparer` and a detector; its preparer is changed.
    parsed, scores
        Training rows from `TablePreparer.parse`, and their anomaly scores.
    """
    preparer, detector = model[0], model[1]

    def score(usual: Mapping[str, Value]) -> float:
        return float(detector.anomaly_score(preparer.usual_features(usual))[0])

    middle, medians = float(np.median(scores)), preparer.usual_
    if score(medians) <= middle:
        return
    half = parsed.filter(scores <= middle)
    half = half.sample(min(half.height, _USUAL_AMONG), seed=0)
    with no_warnings():
        matrix = StandardScaler(with_mean=False).fit_transform(preparer.matrix(half))
    near = NearestNeighbors(n_neighbors=min(_USUAL_ROWS, half.height)).fit(matrix)
    [[centre]] = near.kneighbors(np.asarray(matrix.mean(axis=0)).reshape(1, -1), 1, False)
    [alike] = near.kneighbors(matrix[[centre]], return_distance=False)
    usual = preparer.usual_of(half[alike])
    if score(usual) < score(medians):
        preparer.usual_row_ = usual


# --- rows for users and for models -------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """Rows as the user knows them, and the features of these columns that a model scores."""

    model: Any
    columns: tuple[str, ...]
    values: NDArray[Any]
    usual: tuple[Value, ...]
    matrix: Matrix
    reference: Floats
    owners: NDArray[np.intp]  # of each feature, the column it comes from
    wrap: Callable[[Matrix], Any] = lambda matrix: matrix
    described_by: Mapping[str, Column | DerivedColumn] = field(default_factory=dict)
    features: Sequence[str] = ()

    @property
    def reference_row(self) -> Matrix:
        return self.like(self.reference[None, :])

    def like(self, rows: Floats) -> Matrix:
        """Rows as sparse as the matrix is: some models treat the two kinds differently."""
        return sparse.csr_matrix(rows) if sparse.issparse(self.matrix) else rows

    def score(self, matrix: Matrix) -> Floats:
        """Anomaly scores."""
        if isinstance(self.model, Detector):  # its rows were checked when the view was made
            return -self.model._scores(matrix)
        return -np.asarray(self.model.score_samples(self.wrap(matrix)), dtype=np.float64)

    @property
    def slow(self) -> bool:
        """Whether scoring is slow."""
        return isinstance(self.model, Detector) and self.model.slow_to_score

    def score_mixed(self, rows: Floats) -> Floats:
        """Anomaly scores of mixtures of one of these rows and the usual row."""
        return self.score(self.like(rows))

    def row(self, i: int) -> Floats:
        """The features of a row, dense."""
        row = self.matrix[[i]]
        dense = row.toarray() if sparse.issparse(row) else row
        return np.asarray(dense[0], dtype=np.float64)


def _view(model: Any, X: Any, background: Any) -> _View:
    model = getattr(model, "best_estimator_", model)
    if not hasattr(model, "score_samples"):
        raise InputError(f"A {type(model).__name__} gives no scores that could be explained.")
    if _reads_tables(model):
        return _view_table(model, X, background)
    return _view_matrix(model, X, background)


def _reads_tables(model: Any) -> bool:
    model = getattr(model, "best_estimator_", model)
    return isinstance(model, Pipeline) and isinstance(model[0], TablePreparer)


def _view_table(model: Pipeline, X: Any, background: Any) -> _View:
    preparer, rest = model[0], model[1:]
    final = rest[0] if len(rest) == 1 else rest
    final = getattr(final, "best_estimator_", final)
    parsed = preparer.parse(X)
    used = {column.name: column for column in preparer.used()}
    derived = {name: each.column(name) for each in preparer.derived_ for name in each.names()}
    usual = preparer.usual_
    if background is not None:
        usual = preparer.usual_of(preparer.parse(background))
    matrix, reference = preparer.features(parsed), preparer.usual_features(usual)
    if isinstance(final, Detector):
        matrix, reference = (final._check_rows(rows, reset=False) for rows in (matrix, reference))
    places = {name: j for j, name in enumerate([*used, *derived])}
    own = [column.plain(parsed[name]) for name, column in used.items()]
    return _View(
        model=final,
        columns=tuple(places),
        values=_side_by_side([*own, *(each.values(parsed) for each in preparer.derived_)]),
        usual=tuple(usual[name] for name in places),
        matrix=matrix,
        reference=(reference.toarray() if sparse.issparse(reference) else reference)[0],
        owners=np.array([places[name] for name in preparer.source_columns_]),
        described_by={**used, **derived},
        features=preparer.get_feature_names_out(),
    )


def _side_by_side(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Columns of numbers, or of numbers and texts, as one array."""
    mixed = any(column.dtype == object for column in columns)
    return np.column_stack([column.astype(object) if mixed else column for column in columns])


def _view_matrix(model: Any, X: Any, background: Any) -> _View:
    if getattr(X, "ndim", 2) > 2:
        raise InputError(
            f"Reasons are about columns, and X has {X.ndim} dimensions: images have none. Give a "
            "table or a matrix."
        )
    matrix = _numbers(model, X)
    reference = _usual_row(model, background)
    if len(reference) != matrix.shape[1]:
        raise InputError(
            f"X has {matrix.shape[1]} columns and the background has {len(reference)}; give rows "
            "of the same columns."
        )
    names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    columns = [f"x{j}" for j in range(matrix.shape[1])] if names is None else map(str, names)
    return _View(
        model=model,
        columns=tuple(columns),
        values=_cells(model, matrix),
        usual=tuple(_plain(value) for value in _cells(model, reference[None, :])[0]),
        matrix=matrix,
        reference=reference,
        owners=np.arange(matrix.shape[1]),
        wrap=_wrap_like(X),
    )


def _numbers(model: Any, X: Any) -> Matrix:
    """X as the detector checks it; for other models as floats."""
    if isinstance(model, Detector):
        return model._check_rows(X, reset=False)
    if sparse.issparse(X):
        return X.tocsr()
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"Only columns of numbers can be explained for a {type(model).__name__} ({error}). For "
            "a table with text, begin the pipeline with riskad.tables.preparation.TablePreparer."
        ) from error


def _cells(model: Any, matrix: Matrix) -> NDArray[Any]:
    """A matrix as users see it: texts instead of the codes that a detector of frames uses."""
    numbers = matrix.toarray() if sparse.issparse(matrix) else matrix
    levels = getattr(model, "schema_", TableSchema()).levels
    cells = numbers.astype(object) if levels else numbers
    for j, texts in levels.items():
        cells[:, j] = [
            texts[int(code)] if 0 <= code < len(texts) else None for code in numbers[:, j]
        ]
    return cells


def _wrap_like(X: Any) -> Callable[[Matrix], Any]:
    """How to convert a matrix to the type of X: pandas and polars build frames the same way."""
    if not hasattr(X, "columns"):
        return lambda matrix: matrix
    return lambda matrix: type(X)(dict(zip(X.columns, matrix.T, strict=True)))


def _usual_row(model: Any, background: Any) -> Floats:
    if background is not None:
        rows = _numbers(model, background)
        if sparse.issparse(rows):
            return csc_median_axis_0(rows.tocsc())
        usual = np.nanmedian(rows, axis=0).astype(np.float64)
        for j in getattr(model, "schema_", TableSchema()).levels:  # codes of texts have no median
            codes, counts = np.unique(rows[:, j], return_counts=True)
            usual[j] = codes[counts.argmax()]
        return usual
    if not getattr(model, "scale", False) or not hasattr(model, "_mean"):
        raise _nothing_usual(model)
    return np.asarray(model._mean, dtype=np.float64)


def _nothing_usual(model: Any) -> InputError:
    return InputError(
        f"This {type(model).__name__} does not remember what its training rows were like, so there "
        "is nothing to compare with. Give background=, rows that say what is usual: the training "
        "rows, or the normal ones among them."
    )


# --- contributions that a detector computes ----------------------------------------------


def _own_contributions(view: _View) -> tuple[Floats, float] | None:
    """phi(x) - phi(r), summed over the features of each column, and the size of their terms."""
    if not isinstance(view.model, Detector):
        return None
    found = view.model.contributions(view.matrix)
    usual = view.model.contributions(view.reference_row)
    if found is None or usual is None:
        return None
    size = max(float(abs(terms).sum(axis=1).max()) for terms, _ in (found, usual))
    phi, phi_r = (_by_column(view, terms) for terms, _ in (found, usual))
    return phi_r - phi, size  # a score is high if normal


def _by_column(view: _View, features: Matrix) -> Floats:
    d = len(view.owners)
    sums = sparse.csr_matrix((np.ones(d), (range(d), view.owners)), (d, len(view.columns)))
    total = features @ sums
    return np.asarray(total.toarray() if sparse.issparse(total) else total, dtype=np.float64)


def _check_sum(model: Detector, found: Floats, scores: Floats, size: float) -> None:
    """Check that contributions add up; otherwise the reasons would be false.

    Terms of a large `size` may almost cancel, for instance those of a column with values around 1e9
    that differ in their last digits. Their sum is then mostly rounding.
    """
    allowed = 1e-6 * np.maximum(max(1.0, float(np.ptp(scores))), np.abs(scores)) + 1e-12 * size
    off = np.abs(found - scores)
    if not (off <= allowed).all():
        raise RuntimeError(
            f"{type(model).__name__}.contributions does not add up to its scores; they differ by "
            f"{off.max():.3g}."
        )


# --- words -------------------------------------------------------------------------------


def _plain(value: Any) -> Value:
    """A cell as a float, a text, or None if it is blank."""
    if isinstance(value, str) or value is None:
        return value
    return None if math.isnan(value) else float(value)


def show_value(value: Value) -> str:
    """Return a value of a table in a few letters."""
    if value is None:
        return BLANK
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_TEXT else value[: _LONGEST_TEXT - 1] + "\u2026"
    if isinstance(value, WrittenNumber):
        return value.written
    whole = value == round(value) if math.isfinite(value) else False
    return f"{value:,.0f}" if whole and abs(value) < 1e12 else f"{value:,.6g}"
