"""Do new rows differ from the unlabelled rows that a model was fitted to?

A model keeps a summary of the unlabelled rows: for each column, and for its scores, 64 quantiles
e_j and the shares F(e_j) of these rows at or below and F(e_j-) below them, with mean, spread and
missing values. No row is kept. With G the shares of new rows, a column has moved by

    D = max_j max(|F(e_j) - G(e_j)|, |F(e_j-) - G(e_j-)|),

which is at most Kolmogorov and Smirnov's distance of the two samples, so its p-value is
conservative. Columns with two values are compared by Fisher's exact test, and so are shares of
missing values. Benjamini and Hochberg's procedure over all columns and the scores decides which
have moved: if new rows are like the unlabelled rows, it reports any with probability at most
`level`, also if columns move together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
from scipy import sparse
from scipy.stats import false_discovery_control, fisher_exact, kstwo

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, UNLABELLED, check_codes
from riskad.decisions.anomaly_rate import FEWEST, FEWEST_UNLABELLED, estimate_rate
from riskad.files.fields import COUNT, Array, State, require

# Between two quantiles a share can move by no more than 1/64: so much of a distance may be missed.
_QUANTILES = 64
# Cells of the unlabelled rows that are summarised; of more, a sample. By chance the distance of 500
# rows from their like is up to 0.06 (95 %), that of 20,000 up to 0.01.
_CELLS = 50_000
_FEWEST_ROWS, _MOST_ROWS = 500, 20_000
_MOST_COLUMNS = 1_000  # a line of the summary takes 1.5 KB of the model file
_NAMED = 8  # columns in a verdict; `columns` of the report has all


@dataclass(frozen=True, eq=False)
class UnlabelledSummary:
    """Summary of the unlabelled rows of a fit: a line for each column, and perhaps for scores."""

    n_columns: Annotated[int, COUNT]
    # Quantiles in ascending order; shares of rows below them, and at or below them.
    edges: Annotated[np.ndarray, Array("f", ("lines", _QUANTILES), gaps=True, rising=True)]
    below: Annotated[np.ndarray, Array("f", ("lines", 2, _QUANTILES), 0, 1)]
    # Numbers of rows with a value, and without one.
    present: Annotated[np.ndarray, Array("i", ("lines",), low=0)]
    missing: Annotated[np.ndarray, Array("i", ("lines",), low=0)]
    mean: Annotated[np.ndarray, Array("f", ("lines",))]
    scale: Annotated[np.ndarray, Array("f", ("lines",), low=0)]

    @classmethod
    def _check_state(cls, state: State) -> None:
        lines, d = len(state["edges"]), state["n_columns"]
        require(lines in (d, d + 1) and lines > 0, "n_columns: another number of lines")
        rows = state["present"] + state["missing"]
        require(bool((rows == rows[0]).all()) and rows[0] > 0, "present: other numbers of rows")
        gaps = np.isnan(state["edges"][state["present"] > 0]).any()
        require(not gaps, "edges: none of a column with values")

    @classmethod
    def of(cls, X: Any, anomaly_scores: np.ndarray | None = None) -> Self | None:
        """Summarise two rows or more; of more than 1,000 columns, only the scores."""
        n, d = X.shape
        if n < 2:
            return None
        # Very wide rows (texts, images) have no columns that a person would look at one by one.
        columns = _lines(X) if d <= _MOST_COLUMNS else np.zeros((0, n))
        scores = np.zeros((0, n)) if anomaly_scores is None else [anomaly_scores]
        lines = np.concatenate([columns, scores])
        if not len(lines):
            return None
        ordered = np.sort(lines, axis=1)  # missing values last
        gaps = np.isnan(ordered)
        missing = gaps.sum(axis=1)
        present = lines.shape[1] - missing
        parts = np.arange(1, _QUANTILES + 1) / _QUANTILES
        # The j-th quantile is the smallest value that j / 64 of the rows do not exceed.
        places = np.maximum(np.ceil(np.outer(present, parts)).astype(int) - 1, 0)
        edges = np.take_along_axis(ordered, places, axis=1)
        # Runs of equal values over all lines end to end: the run of a quantile tells how many
        # values of its line are below it, and how many at or below it.
        new = np.ones(ordered.shape, dtype=bool)
        new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        starts = np.append(np.flatnonzero(new), new.size)
        firsts = np.arange(len(ordered))[:, None] * ordered.shape[1]
        run = np.searchsorted(starts, firsts + places, side="right")
        ranks = np.stack([starts[run - 1] - firsts, starts[run] - firsts], axis=1)
        n = np.maximum(present, 1)
        # Missing values come last and are no part of the shares.
        below = np.minimum(ranks, present[:, None, None]) / n[:, None, None]
        mean = np.where(gaps, 0.0, ordered).sum(axis=1) / n
        deviation = np.where(gaps, 0.0, ordered - mean[:, None])
        scale = np.sqrt(np.einsum("ij,ij->i", deviation, deviation) / n)
        return cls(len(columns), edges, below, present, missing, mean, scale)

    @property
    def n_rows(self) -> int:
        """Number of summarised rows."""
        return int(self.present[0] + self.missing[0])

    @property
    def has_scores(self) -> bool:
        """Whether the last line is that of the scores."""
        return len(self.edges) > self.n_columns


def rows_to_sum_up(n_columns: int) -> int:
    """Number of unlabelled rows that describe their columns well enough, at little cost."""
    return int(np.clip(_CELLS // max(n_columns, 1), _FEWEST_ROWS, _MOST_ROWS))


def remember_unlabelled(model: Any, X: Any, y: Any) -> Any:
    """Add the summary of its unlabelled rows to a fitted detector or a pipeline that ends in one.

    `ShallowRAD` keeps one whenever it is fitted, and so does every model of `riskad fit`; this
    function is for the other detectors. Their scores are not summarised: a flexible model scores
    the rows it has seen differently from others, drift or not. X and y are those of the fit.
    """
    before, detector = _steps(model)
    rows = _rows(detector, X if before is None else before.transform(X))
    unlabelled = np.flatnonzero(check_codes(y) == UNLABELLED)
    most = rows_to_sum_up(rows.shape[1])
    if len(unlabelled) > most:
        unlabelled = np.sort(np.random.default_rng(0).choice(unlabelled, most, replace=False))
    detector.unlabelled_ = UnlabelledSummary.of(rows[unlabelled])
    return model


def _lines(X: Any) -> np.ndarray:
    """The columns of a table, one per line."""
    return np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float).T


@dataclass(frozen=True)
class ColumnDrift:
    """How one column of new rows, or their scores, differ from the unlabelled rows."""

    name: str
    distance: float  # D, between 0 and 1
    shift: float  # difference of the means, in standard deviations of the unlabelled rows
    missing: float  # share of missing values among new rows, and among the unlabelled rows
    missing_before: float
    p_value: float
    moved: bool  # at the level of the report, after Benjamini and Hochberg

    def __str__(self) -> str:
        gaps = ""
        if abs(self.missing - self.missing_before) > 0.005:
            gaps = f", gaps {100 * self.missing_before:.0f} % to {100 * self.missing:.0f} %"
        return f"{self.name} ({shift_in_words(self.shift)}{gaps})"


@dataclass(frozen=True)
class DriftReport:
    """What `drift_report` found; `str` of it is the verdict.

    `scores` is None if the model keeps no scores of its unlabelled rows, `columns` is empty if it
    keeps no columns. Rates of a calibrated model are (estimate, low, high) of the share of
    anomalies: among the new rows, and among the unlabelled rows.
    """

    rows: int
    unlabelled: int
    level: float
    columns: tuple[ColumnDrift, ...]
    scores: ColumnDrift | None
    rate: tuple[float, float, float] | None
    rate_before: tuple[float, float, float] | None
    verdict: str

    @property
    def moved(self) -> list[str]:
        """Names of the columns that have moved, the most certain first."""
        return [column.name for column in _moved_columns(self.columns)]

    def __str__(self) -> str:
        return self.verdict


def drift_report(
    model: Any, X: Any, *, level: float = 0.05, names: Sequence[str] | None = None
) -> DriftReport:
    """Compare new unlabelled rows with the unlabelled rows that a model was fitted to.

    Parameters
    ----------
    model : detector, or Pipeline that ends in one
        A fitted model. Columns are those that the detector sees.
    X : array, sparse matrix or frame
        New rows, as the model scores them. They should be many, and selected in the same way as the
        unlabelled rows.
    level : float in (0, 1), default=0.05
        Probability of reporting a change if nothing has moved.
    names : sequence of str, optional
        Names of the columns; by default those of the pipeline or the frame, or numbers.

    Returns
    -------
    DriftReport
        Its `str` is a verdict; `moved` lists columns. The anomaly rate of the new rows is estimated
        from held-out scores of labelled rows (`riskad.calibrate`). It is valid if the rows of each
        kind have not changed; if columns have moved, its interval includes the rate of the fit.

    Examples
    --------
    >>> import numpy as np
    >>> from riskad import ShallowRAD
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> model = ShallowRAD().fit(X, y)
    >>> new = rng.permutation(X)[:500]
    >>> print(drift_report(model, new))
    no drift seen in 500 rows: 2 columns and the scores are distributed as in the fit.
    >>> print(drift_report(model, new + [0.5, 0], names=["age", "income"]))
    1 of 2 columns has moved in 500 rows: age (+0.45 SD). Scores have moved: rows look more \
anomalous (+0.32 SD).
    """
    level = check_in_interval("level", level, 0, 1, "It is the chance of a false alarm.")
    before, detector = _steps(model)
    X = X if before is None else before.transform(X)
    scores = np.asarray(detector.anomaly_score(X), dtype=float)
    if names is None:
        names = _names(before, detector, _rows(detector, X).shape[1])
    columns, drift_of_scores = compare_scored(detector, X, scores, names, level)
    calibration: Any = getattr(detector, "calibration_", None)
    rate = rate_before = None
    if calibration is not None and calibration.rate is not None:
        of_fit = calibration.rate
        rate_before = of_fit.value, of_fit.low, of_fit.high
        anomalous = calibration.codes == ANOMALY
        if min(anomalous.sum(), (~anomalous).sum()) >= FEWEST and len(scores) >= FEWEST_UNLABELLED:
            # The labelled rows are not a random sample of the new rows.
            new = estimate_rate(calibration.scores, anomalous, scores, len(scores), "chosen")
            assert new is not None  # there are rows
            rate = new.value, new.low, new.high
            if any(column.moved for column in columns):
                # More anomalies and other normal rows look alike: neither rate can be excluded.
                rate = new.value, min(new.low, of_fit.low), max(new.high, of_fit.high)
    return DriftReport(
        rows=len(scores),
        unlabelled=_summary_of(detector).n_rows,
        level=level,
        columns=tuple(columns),
        scores=drift_of_scores,
        rate=rate,
        rate_before=rate_before,
        verdict=_verdict(len(scores), columns, drift_of_scores),
    )


def compare_scored(
    detector: Any, X: Any, scores: np.ndarray, names: Sequence[str], level: float = 0.05
) -> tuple[list[ColumnDrift], ColumnDrift | None]:
    """The drift of each column of new rows, and of their scores, if the detector keeps them."""
    rows, summary = _rows(detector, X), _summary_of(detector)
    names = [str(name) for name in names]
    if len(names) != rows.shape[1]:
        raise InputError(
            f"names must have one name for each of {rows.shape[1]} columns, got {names}."
        )
    lines = list(zip(names, _lines(rows), strict=True)) if summary.n_columns else []
    n_columns = len(lines)
    lines += [("scores", scores)] if summary.has_scores else []
    differences = [_difference(summary, i, values) for i, (_, values) in enumerate(lines)]
    q_values = false_discovery_control([p_value for *_, p_value in differences])
    gaps = summary.missing / (summary.present + summary.missing)
    drifts = []
    for i, (name, values) in enumerate(lines):
        distance, shift, p_value = differences[i]
        missing, moved = float(np.isnan(values).mean()), bool(q_values[i] <= level)
        drifts.append(ColumnDrift(name, distance, shift, missing, float(gaps[i]), p_value, moved))
    return drifts[:n_columns], drifts[n_columns] if summary.has_scores else None


def _steps(model: Any) -> tuple[Any, Any]:
    """The steps before the detector, if any, and the detector."""
    before = model[:-1] if hasattr(model, "steps") and len(model) > 1 else None
    detector = model[-1] if hasattr(model, "steps") else model
    detector = getattr(detector, "best_estimator_", detector)
    if not hasattr(detector, "anomaly_score"):
        raise InputError(
            "Drift is found with a fitted detector of riskad, or with a pipeline that ends in one; "
            f"got {model!r}."
        )
    return before, detector


def _rows(detector: Any, X: Any) -> Any:
    """The rows as numbers, as the detector checks them."""
    rows = detector._check_rows(X, reset=False)
    if rows.ndim != 2:
        raise InputError("Drift is found in the columns of a table, and these rows have none.")
    return rows


def _summary_of(detector: Any) -> UnlabelledSummary:
    summary = getattr(detector, "unlabelled_", None)
    if summary is None:
        raise InputError(
            f"this {type(detector).__name__} keeps no summary of rows to compare with: it had no "
            "unlabelled rows, or comes from another version. Fit it again with unlabelled rows, or "
            "call riskad.decisions.drift.remember_unlabelled(model, X, y) with the rows of the fit."
        )
    return summary


def _names(before: Any, detector: Any, n_columns: int) -> list[str]:
    if before is not None:
        try:
            return [str(name) for name in before.get_feature_names_out()]
        except ValueError:  # a step that does not know the names
            pass
        except AttributeError as error:  # scikit-learn's error for a step without this method
            if "get_feature_names_out" not in str(error):
                raise
    return [str(name) for name in getattr(detector, "feature_names_in_", range(n_columns))]


def _difference(summary: UnlabelledSummary, i: int, new: np.ndarray) -> tuple[float, float, float]:
    """D, the shift, and the p-value of one line."""
    present = new[~np.isnan(new)]
    n, m = int(summary.present[i]), len(present)
    gaps = int(summary.missing[i]), len(new) - m
    distance, shift, tests = 0.0, 0.0, []
    if n and m:
        edges, F = summary.edges[i], summary.below[i]
        # x < e_j if at most j edges are at or below x, counted from 0; likewise x <= e_j.
        places = (np.searchsorted(edges, present, side) for side in ("right", "left"))
        counts = np.stack([np.bincount(place, minlength=len(edges) + 1) for place in places])
        G = np.cumsum(counts, axis=1)[:, :-1] / m
        distance = float(np.abs(F - G).max())
        gap, scale = float(present.mean() - summary.mean[i]), float(summary.scale[i])
        if gap:  # of a column that was constant, any
            shift = gap / scale if scale > 0 else float(np.copysign(np.inf, gap))
        if len(np.unique(edges)) == 2 and np.isin(present, edges).all():  # yes or no
            before, after = round(F[1, 0] * n), round(G[1, 0] * m)  # rows with the lower value
            table = [[before, n - before], [after, m - after]]
            tests.append(float(fisher_exact(table).pvalue))
        else:
            # The one-sample distribution for n m / (n + m) rows is that of two samples, nearly.
            tests.append(float(kstwo.sf(distance, max(1, round(n * m / (n + m))))))
    if any(gaps):
        tests.append(float(fisher_exact([[n, gaps[0]], [m, gaps[1]]]).pvalue))
    # Bonferroni's correction for the two tests of a column.
    return distance, shift, min(1.0, len(tests) * min(tests, default=1.0))


def _moved_columns(columns: Sequence[ColumnDrift]) -> list[ColumnDrift]:
    """The columns that have moved, the most certain first."""
    return sorted((c for c in columns if c.moved), key=lambda c: (c.p_value, -c.distance))


def shift_in_words(shift: float) -> str:
    """The shift in standard deviations, which a column that was constant does not have."""
    if np.isinf(shift):
        return f"{'higher' if shift > 0 else 'lower'}, where it was constant"
    return f"{shift:+.2f} SD"


def _verdict(n: int, columns: Sequence[ColumnDrift], scores: ColumnDrift | None) -> str:
    moved, several = _moved_columns(columns), "column" if len(columns) == 1 else "columns"
    rows = f"{n:,} row" if n == 1 else f"{n:,} rows"
    sentences = []
    if moved:
        columns_in_words = ", ".join(map(str, moved[:_NAMED]))
        rest = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
        has = "has" if len(moved) == 1 else "have"
        sentences.append(
            f"{len(moved)} of {len(columns)} {several} {has} moved in {rows}: "
            f"{columns_in_words}{rest}."
        )
    if scores is not None and scores.moved:
        direction = "more" if scores.shift > 0 else "less"
        sentences.append(
            f"Scores have moved: rows look {direction} anomalous ({shift_in_words(scores.shift)})."
        )
    if sentences:
        return " ".join(sentences)
    compared = [f"{len(columns):,} {several}"] if columns else []
    compared += ["the scores"] if scores is not None else []
    verb = "are" if len(columns) != 1 or scores is not None else "is"
    what = " and ".join(compared)
    return f"no drift seen in {rows}: {what} {verb} distributed as in the fit."
