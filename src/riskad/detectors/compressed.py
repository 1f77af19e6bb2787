r"""CompressedRAD: boosted trees that learned the scores of an `AutoRAD`, its student.

The score of an `AutoRAD` is a function of the columns of a row, and trees can learn it without
labels, from rows that the original detector (in code, the `teacher`) has scored. A fitted teacher
holds what is needed: up to 2,000 of its training rows, from which others are made,

- half of them by taking three tenths of the cells from one of the five nearest rows, numbers with
  noise (as MUNGE; Bucila, Caruana and Niculescu-Mizil, 2006),
- half of them by taking up to half of the cells from any other row;

and of each half, one part in two starts from the fifth of the rows with the most anomalous scores:
there a list is cut off, and there training rows are few. So the student can be learned at the end
of a fit or at any time later, without a table.

One stored row in five is held out. On these the two are compared (`Fidelity`), and the student's
scores get the spread of the teacher's: trees pull scores towards the mean. Thresholds,
probabilities and p-values of the teacher then keep their meaning, and are copied
when it is used (`CompressedRAD._deciding_as`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.detectors.auto.detector import AutoRAD
from riskad.detectors.auto.views import Views
from riskad.detectors.base import RandomState
from riskad.detectors.frame_detector import ENCODER, FrameDetector
from riskad.detectors.tree_growth import from_hist_gradient_boosting
from riskad.files import fields
from riskad.rows.encoding import OneHotImputer
from riskad.rows.engine import one_blas_thread

_MIN_ROWS = 50
_SYNTHETIC_CELLS, _MOST_SYNTHETIC = 120_000, 6_000  # rows to make, and fewer of wide tables
_HELD_OUT = 5  # one stored row in so many
_MOST_ANOMALOUS = 0.2  # share of rows from which half of the made ones start
# Neighbours to choose from; share of cells from one of them; noise in multiples of the difference
# between the two rows: more makes rows that the table could not contain.
_NEIGHBOURS, _NEIGHBOUR_CELLS, _NOISE = 5, 0.3, 0.5
_MANY_VALUES = 10  # from here, a number may take values that no row has
# Attributes of the teacher: what follows its later changes, and what is fixed when it is learned.
_DECISIONS = ("offset_", "calibration_", "threshold_", "unlabelled_")
_SHARED = ("n_features_in_", "feature_names_in_", "schema_", "evidence_", "encoder_", "offset_")


@dataclass(frozen=True)
class Fidelity:
    """A student compared with its teacher, on rows that it has not learned from."""

    rows: Annotated[int, fields.COUNT]
    """Number of these rows."""
    rank_correlation: Annotated[float, fields.Number(-1, 1)]
    """Spearman's rank correlation of both scores; 0 if one of them is constant."""
    agreement: Annotated[float, fields.SHARE]
    """Share of the rows on which both decide the same."""
    flagged_before: Annotated[int, fields.COUNT]
    flagged_after: Annotated[int, fields.COUNT]

    @classmethod
    def of(cls, before: np.ndarray, after: np.ndarray, offset: float) -> Fidelity:
        rank_correlation = 0.0
        if np.ptp(before) > 0 and np.ptp(after) > 0:
            rank_correlation = float(np.clip(spearmanr(before, after).statistic, -1, 1))
        return cls(
            rows=len(before),
            rank_correlation=rank_correlation,
            agreement=float(((before < offset) == (after < offset)).mean()),
            flagged_before=int((before < offset).sum()),
            flagged_after=int((after < offset).sum()),
        )

    def in_words(self) -> str:
        """Describe the comparison in words.

        >>> Fidelity(200, 0.9876, 0.995, 11, 10).in_words()
        'on 200 rows that it did not learn from: rank correlation 0.988, the same decision on \
99.5 % (the model flags 11, trees flag 10)'
        """
        return (
            f"on {self.rows:,} rows that it did not learn from: rank correlation "
            f"{self.rank_correlation:.3f}, the same decision on {100 * self.agreement:.1f} % "
            f"(the model flags {self.flagged_before:,}, trees flag {self.flagged_after:,})"
        )


class CompressedRAD(FrameDetector):
    """Boosted trees that learned the scores of an `AutoRAD`; they store no rows.

    See `riskad.detectors.compressed`. `AutoRAD.compress` makes one.

    Parameters
    ----------
    max_iter : int, default=600
        Number of trees.
    random_state : int, RandomState or None, default=0
        Seed.

    Attributes
    ----------
    fidelity_ : Fidelity
        What was lost, measured on rows that the trees did not learn from.
    n_rows_ : int
        Number of rows that it learned from, stored and made.
    trees_ : Trees
        The trees.
    offset_ : float
        Threshold on `score_samples`: that of the original detector.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(4, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> teacher = AutoRAD(budget=5).fit(X, y)
    >>> student = teacher.compress()
    >>> bool(student.fidelity_.agreement > 0.95)
    True
    """

    _evidence_in_words = "scored by AutoRAD, before it was compressed"

    max_iter: Annotated[int, fields.SIZE]
    n_rows_: Annotated[int, fields.COUNT]
    encoder_: Annotated[Any, ENCODER]
    trees_: Annotated[Any, fields.Record(("Trees",), {"n_features": "encoded"})]
    fidelity_: Annotated[Any, fields.Record(("Fidelity",))]

    def __init__(self, *, max_iter: int = 600, random_state: RandomState = 0):
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CompressedRAD:
        """Fit an `AutoRAD` to rows X with labels y, +1, -1 or 0, and learn its scores."""
        teacher = AutoRAD(random_state=self._seed).fit(X, y, sample_weight=sample_weight)
        self._forget_decisions()
        self.__dict__ |= self._learn(teacher)._deciding_as(teacher).__dict__
        return self

    def _learn(self, teacher: AutoRAD) -> CompressedRAD:
        """Learn the scores of a fitted `AutoRAD`."""
        check_is_fitted(teacher)
        for name in _SHARED:
            if hasattr(teacher, name):
                setattr(self, name, getattr(teacher, name))
        rng = np.random.default_rng(self._seed)
        rows = rng.permutation(_stored_rows(teacher))
        if len(rows) < _MIN_ROWS:
            raise InputError(
                f"The model stores {len(rows):,} training rows, too few to learn its scores "
                f"from: {_MIN_ROWS} are needed. With so few rows, scores are quick."
            )
        # Held out first: a synthetic row near a held-out one would give its score away.
        held_out, training = np.split(rows, [len(rows) // _HELD_OUT])
        before, scores = (_teacher_scores(teacher, rows) for rows in (held_out, training))
        synthetic = _synthetic_rows(teacher, training, scores, rng)
        Z = np.vstack([training, synthetic])
        scores = np.concatenate([scores, _teacher_scores(teacher, synthetic)])
        self.n_rows_ = len(Z)
        boosting = HistGradientBoostingRegressor(
            max_iter=self.max_iter,
            learning_rate=0.05,
            max_leaf_nodes=31,
            min_samples_leaf=5,
            early_stopping=False,
            random_state=self._seed,
        )
        self.trees_ = from_hist_gradient_boosting(boosting.fit(Z, scores))
        # Scores of trees get the mean and the spread of the teacher's on held-out rows. The score
        # is the sum over all trees: each carries its share of the shift.
        after = self.trees_.predict(held_out)
        slope = before.std() / after.std() if after.std() > 0 else 1.0
        shift = (before.mean() - slope * after.mean()) / self.trees_.n_trees
        self.trees_ = replace(self.trees_, value=slope * self.trees_.value + shift)
        after = self.trees_.predict(held_out)
        self.fidelity_ = Fidelity.of(before, after, self.offset_)
        return self

    def _deciding_as(self, teacher: AutoRAD) -> CompressedRAD:
        """Return a copy with the present thresholds and probabilities of the teacher."""
        student = copy(self)
        for name in _DECISIONS:
            if hasattr(teacher, name):
                setattr(student, name, getattr(teacher, name))
        return student

    def _scores(self, X: Any) -> np.ndarray:
        return self.trees_.predict(self.encoder_.transform(self._append_evidence(X)))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        numbers = self.encoder_.onnx_rows(graph, self._graph_rows(graph, rows))
        return self.trees_.onnx(graph, numbers)

    def _describe(self) -> dict[str, Any]:
        sizes = {"rows": self.n_rows_, "trees": self.trees_.n_trees}
        return super()._describe() | sizes | {"fidelity": asdict(self.fidelity_)}

    def _describe_in_words(self) -> list[str]:
        trees = f"{self.trees_.n_trees:,} trees that learned the scores of AutoRAD"
        return [f"{trees} for {self.n_rows_:,} rows", self.fidelity_.in_words()]


# --- rows to learn from, as the encoder returns them ----------------------------------------


def _stored_rows(teacher: AutoRAD) -> np.ndarray:
    """The training rows with which the plain view compares others."""
    view = teacher.views_["plain"]
    rows = np.tile(view.scaler_.mean, (len(view.maps_["outliers"].rows), 1))
    rows[:, view.kept_] += view.scaler_.scale[view.kept_] * view.maps_["outliers"].rows
    if isinstance(teacher.encoder_, OneHotImputer) and teacher.evidence_.places:
        # Evidence on levels was cross-fitted for training rows. New rows get that of all labels.
        table = _decode(teacher.encoder_, rows)[:, : -len(teacher.evidence_.places)]
        rows = teacher.encoder_.transform(teacher.evidence_.transform(table))
    return rows


def _teacher_scores(teacher: AutoRAD, encoded: np.ndarray) -> np.ndarray:
    """Scores of encoded rows, which come close to those of the rows themselves."""
    encoder = teacher.encoder_
    if isinstance(encoder, OneHotImputer):
        rows = Views(teacher.views_, encoder, _decode(encoder, encoded))
    else:
        rows = Views(teacher.views_, encoder, encoded)
        # These rows are encoded already: the cached property gets its value.
        rows._numbers = encoded
    with one_blas_thread():
        return teacher._average(rows)


def _decode(encoder: OneHotImputer, encoded: np.ndarray) -> np.ndarray:
    """Rows that the encoder turns into these: with blanks where marked, and codes of levels."""
    n_numbers, n_marks = len(encoder.numbers_), len(encoder.marks_)
    rows = np.full((len(encoded), encoder.n_features_in_), np.nan)
    rows[:, encoder.numbers_] = encoded[:, :n_numbers]
    # Marks were standardised and back: they are 0 and 1 up to rounding.
    marked = encoded[:, n_numbers : n_numbers + n_marks] > 0.5
    rows[:, encoder.marks_] = np.where(marked, np.nan, rows[:, encoder.marks_])
    start = n_numbers + n_marks
    for column, codes in zip(encoder.categories_, encoder.codes_, strict=True):
        yes = encoded[:, start : start + len(codes)] > 0.5
        start += len(codes)
        if len(codes):
            rows[:, column] = np.where(yes.any(axis=1), codes[yes.argmax(axis=1)], np.nan)
    return rows


def _synthetic_rows(
    teacher: AutoRAD, rows: np.ndarray, scores: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Rows that mix encoded ones; what comes from one column of a table stays together."""
    n_synthetic = min(_MOST_SYNTHETIC, max(_SYNTHETIC_CELLS // rows.shape[1], len(rows)))
    origin = np.arange(rows.shape[1])
    if isinstance(teacher.encoder_, OneHotImputer):
        appended = [*teacher.schema_.part_columns, *teacher.evidence_.places]
        origins = np.append(np.arange(teacher.n_features_in_), np.array(appended, dtype=int))
        origin = origins[teacher.encoder_.columns_]
    n_origins = origin.max() + 1
    anomalous = np.argsort(scores)[: max(1, int(_MOST_ANOMALOUS * len(rows)))]
    first = rng.integers(len(rows), size=n_synthetic)
    first[::2] = rng.choice(anomalous, size=len(first[::2]))

    # A neighbour's cells, numbers with noise; numbers with few values keep to these.
    near = n_synthetic // 2
    Z = rows / (rows.std(axis=0) + 1e-12)
    search = NearestNeighbors(n_neighbors=_NEIGHBOURS + 1).fit(Z)
    neighbours = search.kneighbors(Z, return_distance=False)
    a = first[:near]
    b = neighbours[a, rng.integers(1, _NEIGHBOURS + 1, size=near)]
    # Noise would give a code or a flag values that no row has.
    continuous = np.array([len(np.unique(column)) > _MANY_VALUES for column in rows.T])
    continuous &= np.bincount(origin, minlength=n_origins)[origin] == 1
    noise = _NOISE * rng.standard_normal((near, rows.shape[1])) * continuous
    swapped = rng.random((near, n_origins)) < _NEIGHBOUR_CELLS
    by_neighbours = np.where(swapped[:, origin], rows[b] + noise * (rows[b] - rows[a]), rows[a])

    # Up to half of the cells of any other row
    a, b = first[near:], rng.integers(len(rows), size=n_synthetic - near)
    swapped = rng.random((len(a), n_origins)) < rng.random((len(a), 1)) / 2
    return np.vstack([by_neighbours, np.where(swapped[:, origin], rows[b], rows[a])])
