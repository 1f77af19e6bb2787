r"""Why a row is anomalous: what each column adds to its score, compared with a usual row.

A usual row r holds the median of each number and the most frequent text, of all rows or, where such
a row would be suspicious itself, of some that are alike (`choose_usual_row`). Contributions phi_j
of the columns add up: anomaly_score(x) = anomaly_score(r) + sum_j phi_j. They are

- -w_j (x_j - r_j) for linear scores: exact, for a million rows in seconds;
- phi_j(x) - phi_j(r) of what a detector computes itself (boosted trees), also exact;
- Shapley values for all other scores (`riskad.decisions.shapley`): exact if a row differs from r in
  few columns, else sampled, with standard errors.

All features that come from one column of the table, including its yes/no columns and "is blank",
change together: reasons are about the columns of the user's table.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.sparsefuncs import csc_median_axis_0

from riskad.core.checks import InputError, shorten
from riskad.decisions.calibration import quietly
from riskad.decisions.shapley import shapley_values
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.rows.table import TableSchema, as_table
from riskad.tables.cells import BLANK, Value
from riskad.tables.kinds.base import Column
from riskad.tables.kinds.derived import DerivedColumn
from riskad.tables.kinds.numbers import MomentColumn, WrittenNumber
from riskad.tables.preparation import TablePreparer

Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Any  # an array, or a CSR matrix of scipy, which has no types

_LONGEST_TEXT = 40
_USUAL_ROWS = 25  # whose medians are a usual row; an odd number, so that a date is one of theirs
_USUAL_AMONG = 5_000  # rows to choose from, at random if there are more
_BATCH_ENTRIES = 2_000_000  # of changed rows in memory at a time


@dataclass(frozen=True)
class Reason:
    """What one column of one row adds to the anomaly score.

    `error` is the standard error of `adds`, 0 if it is exact. The value None is a blank.

    >>> print(Reason("amount", 9500.0, 43.0, adds=1.87))
    amount 9,500 (usual 43) adds 1.87
    >>> print(Reason("heat: spread beside the days before", 1.4, -0.08, adds=0.21))
    heat: spread 4.1 times as usual at this hour of the days before adds 0.21
    """

    column: str
    value: Value
    usual: Value
    adds: float
    error: float = 0.0

    def __str__(self) -> str:
        effect = f"adds {self.adds:.3g}" if self.adds >= 0 else f"takes off {-self.adds:.3g}"
        what, beside, before = self.column.partition(": spread beside ")
        if beside and isinstance(self.value, float):  # the logarithm of a ratio: see tables.windows
            when = f"in {before}" if "hours" in before else f"at this hour of {before}"
            return f"{what}: spread {np.exp(self.value):.2g} times as usual {when} {effect}"
        value, usual = show_value(self.value), show_value(self.usual)
        value = "is blank" if value == BLANK else value
        usual = "usually blank" if usual == BLANK else f"usual {usual}"
        return f"{self.column} {value} ({usual}) {effect}"


@dataclass(frozen=True, eq=False)
class Reasons:
    """What each column of some rows adds to their anomaly scores."""

    columns: tuple[str, ...]
    """Columns of the user's table that the model uses."""
    values: NDArray[Any]
    """(rows, columns): numbers in their own units, text as text."""
    usual: tuple[Value, ...]
    """Values of the usual row."""
    contributions: Floats
    """(rows, columns): what each adds; positive values make a row more anomalous."""
    errors: Floats
    """Their standard errors; 0 if they are exact."""
    base: float
    """Anomaly score of the usual row; with the sum of a row's contributions, that of the row."""
    anomaly_score: Floats
    described_by: Mapping[str, Column | DerivedColumn] = field(default_factory=dict)
    """By name, what shows values of a column as the user knows them; empty for matrices."""
    parts: Mapping[str, list[str]] = field(default_factory=dict)
    """By name of a column of dates, the part that counts most in each row: its weekday, say."""
    from_detector: bool = False
    """Whether the detector computes them itself, which costs almost nothing."""

    def __len__(self) -> int:
        return len(self.anomaly_score)

    def of(self, row: int, n: int | None = None) -> list[Reason]:
        """All columns of a row, or n of them; rows count from 0, the largest contribution first."""
        reasons = []
        for j in np.argsort(-self.contributions[row], kind="stable")[:n]:
            name, value, usual = self.columns[j], plain_value(self.values[row, j]), self.usual[j]
            column = self.described_by.get(name)
            shown, usual_shown = value, usual
            if column is not None:
                shown, usual_shown = column.show(value), column.show(usual)
            if part := self.part_in_words(row, j, value):
                shown = f"{shown}, {part}"
                usual_shown = self.part_in_words(row, j, usual) or usual_shown
            adds, error = float(self.contributions[row, j]), float(self.errors[row, j])
            reasons.append(Reason(name, shown, usual_shown, adds, error))
        return reasons

    def top(self, row: int, n: int = 3) -> list[Reason]:
        """The n columns that make a row most anomalous; fewer if fewer add to its score."""
        return [reason for reason in self.of(row, n) if reason.adds > 0]

    def part_in_words(self, row: int, j: int, value: Value) -> str:
        """Name the part of a date that counts most in a row: Saturday, if the value is one."""
        column = self.described_by.get(self.columns[j])
        if not isinstance(column, MomentColumn) or not isinstance(value, float):
            return ""
        return column.show_part(value, self.parts[column.name][row])

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
        Seed for the sets of columns that are compared, if these are drawn. The reasons of a row do
        not depend on which other rows are explained.
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
    model = getattr(model, "best_estimator_", model)
    if not hasattr(model, "score_samples"):
        raise InputError(f"A {type(model).__name__} gives no scores that could be explained.")
    reads_tables = isinstance(model, Pipeline) and isinstance(model[0], TablePreparer)
    read = _rows_of_table if reads_tables else _rows_of_matrix
    rows = read(model, as_table(X), as_table(background))
    scores, base = rows.score(rows.matrix), float(rows.score(rows.reference[None, :])[0])
    exact = _exact_contributions(rows, scores, base)
    if exact is not None:
        contributions, errors = exact, np.zeros_like(exact)
    else:
        contributions, errors = shapley_values(
            rows.score,
            rows.matrix,
            rows.reference,
            rows.owners,
            len(rows.columns),
            scores=scores,
            base=base,
            slow=detector_tags(rows.model).slow_to_score,
            random_state=random_state,
            end=time.perf_counter() + seconds,
        )
    n = len(contributions)
    return Reasons(
        columns=rows.columns,
        values=rows.values[:n],
        usual=rows.usual,
        contributions=contributions,
        errors=errors,
        base=base,
        anomaly_score=scores[:n],
        described_by=rows.described_by,
        parts=_parts_that_count(rows, scores[:n]),
        from_detector=exact is not None,
    )


def _exact_contributions(rows: _Rows, scores: Floats, base: float) -> Floats | None:
    """phi(r) - phi(x) of a detector that computes them (its scores are high if normal)."""
    if not isinstance(rows.model, Detector):
        return None
    terms = rows.model._contributions(rows.matrix)
    usual = rows.model._contributions(rows.like_matrix(rows.reference[None, :]))
    if terms is None or usual is None:
        return None
    d = len(rows.owners)
    # Features of one column are added up by one product, sparse or not.
    by_column = sparse.csr_matrix((np.ones(d), (range(d), rows.owners)), (d, len(rows.columns)))
    # Scores are high for normal rows: what raises them lowers the anomaly score.
    contributions: Floats = _dense(usual[0] @ by_column) - _dense(terms[0] @ by_column)
    # Terms that almost cancel, for instance those of a column with values around 1e9 that differ in
    # their last digits, leave a sum that is mostly rounding.
    size = max(float(abs(features).sum(axis=1).max()) for features, _ in (terms, usual))
    allowed = 1e-6 * np.maximum(max(1.0, float(np.ptp(scores))), np.abs(scores)) + 1e-12 * size
    deviation = np.abs(base + contributions.sum(axis=1) - scores)
    if not (deviation <= allowed).all():
        raise RuntimeError(
            f"{type(rows.model).__name__}._contributions does not add up to its scores; they "
            f"differ by {deviation.max():.3g}."
        )
    return contributions


def _parts_that_count(rows: _Rows, scores: Floats) -> dict[str, list[str]]:
    """The part of each date whose usual value alone would lower the score of its row most."""
    parts = {}
    for j, column in enumerate(map(rows.described_by.get, rows.columns)):
        if not isinstance(column, MomentColumn):
            continue
        places: dict[str, list[int]] = {}
        for place in map(int, np.flatnonzero(rows.owners == j)):
            if part := column.part_of(rows.features[place]):
                places.setdefault(part, []).append(place)
        drops = np.zeros((1 + len(places), len(scores)))
        size = max(1, _BATCH_ENTRIES // len(rows.reference))
        for drop, features in zip(drops[1:], places.values(), strict=True):
            for start in range(0, len(scores), size):
                some = slice(start, min(start + size, len(scores)))
                changed = _dense(rows.matrix[some]).copy()
                changed[:, features] = rows.reference[features]
                drop[some] = scores[some] - rows.score(changed)
        # The first entry, a drop of 0, wins where no part lowers the score.
        parts[column.name] = np.array(["", *places])[np.argmax(drops, axis=0)].tolist()
    return parts


def choose_usual_row(model: Pipeline, parsed: pl.DataFrame, scores: Floats) -> None:
    """Set the row that reasons compare with, so that it is not suspicious itself.

    Medians and most frequent texts can make a row like no other: one between two groups of rows, or
    a payment on a Sunday. If it is more suspicious than half of the rows, those of 25 rows replace
    it: of the row in the middle of the less suspicious half, and of the rows most like it. `parsed`
    are the training rows; the preparer of the model is changed, and keeps no row itself.
    """
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    preparer, detector = model[0], model[1]

    def score(usual: Mapping[str, Value]) -> float:
        return float(detector.anomaly_score(preparer.usual_features(usual))[0])

    middle, medians = float(np.median(scores)), preparer.usual_
    if score(medians) <= middle:
        return
    half = parsed.filter(scores <= middle)
    half = half.sample(min(half.height, _USUAL_AMONG), seed=0)
    with quietly():
        # One scale for all columns; not centred, since the matrix may be sparse.
        matrix = StandardScaler(with_mean=False).fit_transform(preparer.matrix(half))
    near = NearestNeighbors(n_neighbors=min(_USUAL_ROWS, half.height)).fit(matrix)
    [[centre]] = near.kneighbors(np.asarray(matrix.mean(axis=0)).reshape(1, -1), 1, False)
    [alike] = near.kneighbors(matrix[[centre]], return_distance=False)
    usual = preparer.usual_of(half[alike])
    # The middle of many rows may still be odder than the medians.
    if score(usual) < score(medians):
        preparer.usual_row_ = usual


# --- rows for users and for models -------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows as the user knows them, and the features of these columns that a model scores."""

    model: Any
    columns: tuple[str, ...]
    values: NDArray[Any]
    usual: tuple[Value, ...]
    matrix: Matrix
    reference: Floats  # features of the usual row
    owners: NDArray[np.intp]  # of each feature, the column it comes from
    frame: Any = None  # the rows as a frame, where the model is to be given one
    described_by: Mapping[str, Column | DerivedColumn] = field(default_factory=dict)
    features: Sequence[str] = ()

    def like_matrix(self, rows: Matrix) -> Matrix:
        """Rows as sparse as the matrix is: some models treat the two kinds differently."""
        return sparse.csr_matrix(rows) if sparse.issparse(self.matrix) else rows

    def score(self, rows: Matrix) -> Floats:
        """Anomaly scores of rows of features."""
        rows = self.like_matrix(rows)
        if isinstance(self.model, Detector):  # which has checked the rows already
            return -self.model._scores(rows)
        if self.frame is not None:  # frames of pandas and polars are built in the same way
            rows = type(self.frame)(dict(zip(self.frame.columns, rows.T, strict=True)))
        return -np.asarray(self.model.score_samples(rows), dtype=np.float64)


def _rows_of_table(model: Pipeline, X: Any, background: Any) -> _Rows:
    preparer, rest = model[0], model[1:]
    final = rest[0] if len(rest) == 1 else rest
    final = getattr(final, "best_estimator_", final)
    parsed = preparer.parse(X)
    usual = preparer.usual_
    if background is not None:
        usual = preparer.usual_of(preparer.parse(background))
    matrix, reference = preparer.features(parsed), preparer.usual_features(usual)
    if isinstance(final, Detector):
        # Rows as the detector checks them, once: mixtures are then scored without checks.
        matrix, reference = (final._check_rows(rows, reset=False) for rows in (matrix, reference))
    used = {column.name: column for column in preparer.used()}
    derived = {name: each.column(name) for each in preparer.derived_ for name in each.names()}
    values = [column.plain(parsed[name]) for name, column in used.items()]
    values += [each.values(parsed) for each in preparer.derived_]
    # np.column_stack would turn numbers beside texts into texts.
    if any(column.dtype == object for column in values):
        values = [column.astype(object) for column in values]
    places = {name: j for j, name in enumerate([*used, *derived])}
    return _Rows(
        model=final,
        columns=tuple(places),
        values=np.column_stack(values),
        usual=tuple(usual[name] for name in places),
        matrix=matrix,
        reference=_dense(reference)[0],
        owners=np.array([places[name] for name in preparer.source_columns_]),
        described_by={**used, **derived},
        features=preparer.get_feature_names_out(),
    )


def _rows_of_matrix(model: Any, X: Any, background: Any) -> _Rows:
    if getattr(X, "ndim", 2) > 2:
        raise InputError(
            f"Reasons are about columns, and X has {X.ndim} dimensions: images have none. Give a "
            "table or a matrix."
        )
    levels = getattr(model, "schema_", TableSchema()).levels
    matrix, reference = _as_matrix(model, X), _usual_features(model, background, levels)
    width = matrix.shape[1]
    if len(reference) != width:
        raise InputError(
            f"X has {width} columns and the background has {len(reference)}; give rows "
            "of the same columns."
        )
    names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    if names is None:
        names = [f"x{j}" for j in range(width)]
    return _Rows(
        model=model,
        columns=tuple(map(str, names)),
        values=_cells(matrix, levels),
        usual=tuple(map(plain_value, _cells(reference[None, :], levels)[0])),
        matrix=matrix,
        reference=reference,
        owners=np.arange(width),
        frame=X if hasattr(X, "columns") else None,
    )


def _as_matrix(model: Any, X: Any) -> Matrix:
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


def _usual_features(model: Any, background: Any, levels: Mapping[int, Sequence[str]]) -> Floats:
    """Medians and most frequent codes of background rows, or means that the model stores."""
    if background is None:
        if getattr(model, "scale", False) and hasattr(model, "_mean"):
            return np.asarray(model._mean, dtype=np.float64)
        raise InputError(
            f"This {type(model).__name__} does not remember what its training rows were like, so "
            "there is nothing to compare with. Give background=, rows that say what is usual: the "
            "training rows, or the normal ones among them."
        )
    rows = _as_matrix(model, background)
    if sparse.issparse(rows):
        return csc_median_axis_0(rows.tocsc())
    usual = np.nanmedian(rows, axis=0).astype(np.float64)
    for j in levels:  # codes of texts have no median
        codes, counts = np.unique(rows[:, j], return_counts=True)
        usual[j] = codes[counts.argmax()]
    return usual


def _cells(matrix: Matrix, levels: Mapping[int, Sequence[str]]) -> NDArray[Any]:
    """A matrix as users see it: texts instead of the codes that a detector of frames uses."""
    numbers = _dense(matrix)
    cells = numbers.astype(object) if levels else numbers
    for j, texts in levels.items():
        cells[:, j] = [
            texts[int(code)] if 0 <= code < len(texts) else None for code in numbers[:, j]
        ]
    return cells


def _dense(matrix: Matrix) -> NDArray[Any]:
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# --- words -------------------------------------------------------------------------------


def plain_value(value: Any) -> Value:
    """Return a cell as a float, a text, or None if it is blank."""
    if isinstance(value, str) or value is None:
        return value
    return None if math.isnan(value) else float(value)


def show_value(value: Value) -> str:
    """Return a value of a table in a few letters."""
    if value is None:
        return BLANK
    if isinstance(value, str):
        return shorten(value, _LONGEST_TEXT)
    if isinstance(value, WrittenNumber):
        return value.written
    whole = value == round(value) if math.isfinite(value) else False
    return f"{value:,.0f}" if whole and abs(value) < 1e12 else f"{value:,.6g}"
