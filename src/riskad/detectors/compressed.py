r"""CompressedRAD: a small forest trained to reproduce the scores of a slower detector.

`AutoRAD` compares each new row with thousands of stored rows. Its score is a function of the
columns of a row. A single forest can learn this function, without labels, from rows that the
original detector has scored: the training rows, or any rows like the ones to be scored later.

The forest learns from most of the given rows. A forest pulls extreme scores towards the mean, more
so on rows that it has not seen. So a second part of the rows maps its scores to the original scores
by rank: as many of these rows exceed the mapped score as exceed the original one,

    s(x) = Q_teacher(F_forest(f(x))),

with F the distribution function of the forest's scores f on these rows and Q the quantiles of the
original detector's scores (in code, the original detector is the `teacher`). Thresholds,
probabilities and p-values of the original then keep their meaning, and are copied. A third part,
used for neither step, measures what was lost (`Fidelity`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.stats import spearmanr
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, check_codes
from riskad.detectors.auto.detector import AutoRAD
from riskad.detectors.tree_arrays import Trees, from_sklearn
from riskad.detectors.tree_graph import sum_of_trees
from riskad.detectors.trees import TREES, FrameDetector, check_encoder
from riskad.metrics.ranking import auc_with_interval
from riskad.rows.encoding import fit_encoder
from riskad.storage.fields import (
    COUNT,
    POSITIVE,
    SEED,
    SHARE,
    SIZE,
    TEXT,
    Array,
    Fields,
    Maybe,
    Number,
    Record,
    State,
    require,
)

__all__ = ["CompressedRAD", "Fidelity"]

FEWEST_ROWS = 50
"""Number of rows from which a forest can learn scores."""
_LEAF_ROWS, _SPLIT_COLUMNS = 2, 100
_MOST_LEARNED, _MOST_COMPARED = 50_000, 10_000
_SHARE = 0.15  # of the rows, for each of the two parts that the forest does not learn from
_KNOTS = 201
_TAKEN_OVER = ("calibration_", "threshold_", "unlabelled_")


@dataclass(frozen=True)
class Fidelity:
    """A compressed model compared with the original, on rows that it has not learned from."""

    rows: int
    """Number of these rows."""
    rank_correlation: float
    """Spearman's rank correlation of both scores; 0 if one of them is constant."""
    agreement: float
    """Share of the rows on which both decide the same."""
    flagged_before: int
    flagged_after: int
    auc_before: float | None = None
    """AUC of the original on the labelled rows; None without both kinds."""
    auc_after: float | None = None

    _state_fields: ClassVar[Fields] = {
        "rows": COUNT,
        "rank_correlation": Number(-1, 1),
        "agreement": SHARE,
        "flagged_before": COUNT,
        "flagged_after": COUNT,
        "auc_before": Maybe(SHARE),
        "auc_after": Maybe(SHARE),
    }

    @classmethod
    def of(
        cls, before: np.ndarray, after: np.ndarray, offset: float, codes: np.ndarray
    ) -> Fidelity:
        """Compare scores, high for normal rows, and the decisions by a threshold on them."""
        flagged = before < offset, after < offset
        aucs: list[float | None] = [None, None]
        if (codes == NORMAL).any() and (codes == ANOMALY).any():
            aucs = [float(auc_with_interval(codes, -scores).value) for scores in (before, after)]
        return cls(
            len(before),
            _rank_correlation(before, after),
            float((flagged[0] == flagged[1]).mean()),
            *(int(each.sum()) for each in flagged),
            *aucs,
        )

    def in_words(self) -> list[str]:
        """Describe the comparison in words.

        >>> Fidelity(200, 0.9876, 0.995, 11, 10).in_words()
        ['on 200 other rows: rank correlation 0.988, the same decision on 99.5 % (11 rows flagged \
before, 10 now)']
        """
        said = [
            f"on {self.rows:,} other rows: rank correlation {self.rank_correlation:.3f}, the same "
            f"decision on {100 * self.agreement:.1f} % ({self.flagged_before:,} rows flagged "
            f"before, {self.flagged_after:,} now)"
        ]
        if self.auc_before is not None:
            said.append(f"AUC on the labelled ones {self.auc_before:.3f} before, now ")
            said[-1] += f"{self.auc_after:.3f}"
        return said


class CompressedRAD(FrameDetector):
    """A forest trained to reproduce the scores of another detector; it stores no rows.

    See `riskad.detectors.compressed`. Columns may have missing values (NaN), and columns of a
    pandas or polars frame may hold text, categories or dates.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    budget : float, default=60.0
        Budget of the `AutoRAD` that `fit` learns from, in seconds.
    random_state : int, optional
        Seed; None means 0.

    Attributes
    ----------
    teacher_ : str
        The class of the detector whose scores were learned.
    n_rows_ : int
        Number of rows that the forest learned from.
    fidelity_ : Fidelity
        What was lost, measured on rows that the forest did not learn from.
    trees_ : Trees
        The forest.
    knots_ : ndarray of shape (2, n_knots)
        Quantiles of the forest's scores, and the original scores that they map to.
    offset_ : float
        Threshold on `score_samples`: that of the original detector.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(4, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> from riskad import ForestRAD
    >>> teacher = ForestRAD().fit(X, y)
    >>> small = CompressedRAD(n_estimators=20).learn(teacher, X)
    >>> bool(small.fidelity_.agreement > 0.95)
    True
    """

    trees_: Trees

    _state_fields: ClassVar[Fields] = {
        "n_estimators": SIZE,
        "budget": POSITIVE,
        "random_state": SEED,
        "teacher_": TEXT,
        "n_rows_": COUNT,
        "encoder_": Record(("OneHotImputer", "SingularVectors")),
        "trees_": TREES,
        "knots_": Array("f", (2, "knots")),
        "fidelity_": Record(("Fidelity",)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        d = check_encoder(state)
        require(state["trees_"].n_features == d, "trees_: of other columns")
        require(state["trees_"].n_trees > 0, "trees_: none")
        own, theirs = state["knots_"]
        require(len(own) > 0, "knots_: none")
        require(bool((np.diff(own) > 0).all() and (np.diff(theirs) >= 0).all()), "knots_: falling")

    def __init__(
        self, *, n_estimators: int = 100, budget: float = 60.0, random_state: int | None = None
    ):
        self.n_estimators = n_estimators
        self.budget = budget
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> CompressedRAD:
        """Fit an `AutoRAD` to rows X with labels y, and learn its scores.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, NaN, and in a frame text and dates.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled.

        Returns
        -------
        CompressedRAD
            The fitted detector.
        """
        teacher = AutoRAD(budget=self.budget, random_state=self.random_state).fit(X, y)
        return self.learn(teacher, X, y)

    def learn(self, teacher: Any, X: Any, y: Any = None) -> CompressedRAD:
        """Learn the scores that a fitted detector gives to rows X.

        Parameters
        ----------
        teacher : Detector
            A fitted detector of riskad. Its thresholds and probabilities are copied.
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Rows like the ones to be scored later, at least 50.
        y : array of shape (n_rows,), optional
            Codes +1, -1 and 0. The forest does not learn from them; if both kinds are present, they
            measure the AUC before and after.

        Returns
        -------
        CompressedRAD
            The fitted detector.
        """
        check_is_fitted(teacher)
        before = teacher.score_samples(X)
        if len(before) < FEWEST_ROWS:
            raise InputError(
                f"{len(before):,} rows are too few to learn scores from; give at least "
                f"{FEWEST_ROWS}, the more the better. They need no labels."
            )
        codes = np.zeros(len(before), dtype=int) if y is None else np.asarray(check_codes(y))
        self._forget_decisions()
        matrix = self._check_rows(X, reset=True)
        learned, mapped, judged = _three_parts(len(before), self._seed)
        self.teacher_, self.n_rows_ = type(teacher).__name__, len(learned)
        seen = self._seen(matrix[learned])
        self.encoder_ = fit_encoder(seen, self.schema_.levels, self._seed)
        self.trees_ = self._grow(self.encoder_.transform(seen), before[learned])
        self.knots_ = _knots(self._forest_scores(matrix[mapped]), before[mapped])
        self.offset_ = float(teacher.offset_)
        for name in _TAKEN_OVER:
            if hasattr(teacher, name):
                setattr(self, name, getattr(teacher, name))
        after = self._scores(matrix[judged])
        self.fidelity_ = Fidelity.of(before[judged], after, self.offset_, codes[judged])
        return self

    def _grow(self, Z: np.ndarray, scores: np.ndarray) -> Trees:
        from sklearn.ensemble import ExtraTreesRegressor  # scoring does without

        forest = ExtraTreesRegressor(
            self.n_estimators,
            min_samples_leaf=_LEAF_ROWS,
            max_features=min(_SPLIT_COLUMNS, Z.shape[1]),
            random_state=self._seed,
        )
        grown = [member.tree_ for member in forest.fit(Z.astype(np.float32), scores).estimators_]
        return from_sklearn(grown, np.concatenate([t.value[:, 0, 0] for t in grown]), Z.shape[1])

    def _forest_scores(self, X: Any) -> np.ndarray:
        return self.trees_.mean(self.encoder_.transform(self._seen(X)))

    def _scores(self, X: Any) -> np.ndarray:
        own, theirs = self.knots_
        f = self._forest_scores(X)
        # Beyond all knots, scores differ by as much as the forest's.
        beyond = np.minimum(f - own[0], 0) + np.maximum(f - own[-1], 0)
        return np.asarray(np.interp(f, own, theirs) + beyond)

    def onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the same scores in an ONNX graph.

        A score is that of the first knot, and what each segment between knots adds: its slope times
        the length of it that lies before the forest's score. Beyond all knots the slope is 1.
        """
        numbers = self.encoder_.onnx_rows(graph, self._graph_rows(graph, rows))
        f = sum_of_trees(graph, numbers, self.trees_, weight=1 / self.trees_.n_trees)
        own, theirs = self.knots_
        starts, lengths = np.append(own[0], own), np.diff(own)
        least = np.append(-np.inf, np.zeros(len(own)))
        most = np.concatenate([[0.0], lengths, [np.inf]])
        slopes = np.concatenate([[1.0], np.diff(theirs) / lengths, [1.0]])
        past = graph.node("Sub", graph.node("Reshape", f, np.array([-1, 1])), starts)
        past = graph.node("Min", graph.node("Max", past, least), most)
        return str(graph.node("Add", graph.node("MatMul", past, slopes), theirs[:1]))

    def describe(self) -> dict[str, Any]:
        """Return the threshold, the original detector, and what was lost."""
        lost = {name: getattr(self.fidelity_, name) for name in Fidelity._state_fields}
        told = {"teacher": self.teacher_, "rows": self.n_rows_, "trees": self.trees_.n_trees}
        return super().describe() | told | {"fidelity": lost}

    def describe_in_words(self) -> list[str]:
        """Return which detector was compressed, and what was lost."""
        return [
            f"forest of {self.trees_.n_trees:,} trees that learned the scores of {self.teacher_} "
            f"from {self.n_rows_:,} rows",
            *self.fidelity_.in_words(),
        ]

    def evidence_in_words(self) -> str:
        """Describe that held-out scores come from the original model."""
        return f"scored by {self.teacher_}, before it was compressed"


def _rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.clip(spearmanr(first, second).statistic, -1, 1))


def _three_parts(n: int, seed: int) -> list[np.ndarray]:
    """Positions of rows to learn from, to map scores by, and to judge by."""
    order = np.random.default_rng(seed).permutation(n)
    size = min(int(_SHARE * n), _MOST_COMPARED)
    judged, mapped, learned = np.split(order, [size, 2 * size])
    return [np.sort(each) for each in (learned[:_MOST_LEARNED], mapped, judged)]


def _knots(own: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Quantiles of both scores; where several of the forest's are equal, the mean of the others."""
    shares = np.linspace(0, 1, min(_KNOTS, len(own)))
    ours, place = np.unique(np.quantile(own, shares), return_inverse=True)
    sums = np.bincount(place, np.quantile(theirs, shares))
    return np.stack([ours, np.maximum.accumulate(sums / np.bincount(place))])
