r"""CompressedRAD: trees that learned the scores of a slower detector.

`AutoRAD` compares each new row with thousands of stored rows. Its score is a function of the
columns of a row. Trees can learn this function, without labels, from rows that the original
detector (in code, the `teacher`) has scored: the training rows, or any rows like the ones to be
scored later.

Trees learn from most of the given rows. They pull extreme scores towards the mean, more so on rows
that they have not seen. So a second part of the rows maps their scores to the original scores by
rank: as many of these rows exceed the mapped score as exceed the original one,

    s(x) = Q_teacher(F_trees(f(x))),

with F the distribution function of the trees' scores f on these rows and Q the quantiles of the
original scores. Thresholds, probabilities and p-values of the original then keep their meaning, and
are copied. A third part, used for neither step, measures what was lost (`Fidelity`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.stats import spearmanr
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, check_codes
from riskad.detectors.auto.detector import AutoRAD
from riskad.detectors.base import RandomState
from riskad.detectors.frame_detector import FrameDetector, check_encoder
from riskad.detectors.tree_ensemble import TREES, Trees
from riskad.detectors.tree_growth import from_sklearn
from riskad.metrics.ranking import auc_with_interval
from riskad.rows.encoding import fit_encoder
from riskad.storage import fields

__all__ = ["CompressedRAD", "Fidelity"]

_MIN_ROWS = 50
_MAX_LEARNED, _MAX_COMPARED = 50_000, 10_000
_SHARE = 0.15  # of the rows, for each of the two parts that the trees do not learn from
_KNOTS = 201
_COPIED = ("calibration_", "threshold_", "unlabelled_")


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

    _state_fields: ClassVar[fields.Fields] = {
        "rows": fields.COUNT,
        "rank_correlation": fields.Number(-1, 1),
        "agreement": fields.SHARE,
        "flagged_before": fields.COUNT,
        "flagged_after": fields.COUNT,
        "auc_before": fields.Maybe(fields.SHARE),
        "auc_after": fields.Maybe(fields.SHARE),
    }

    @classmethod
    def of(
        cls, before: np.ndarray, after: np.ndarray, offset: float, codes: np.ndarray
    ) -> Fidelity:
        """Compare scores, high for normal rows, and the decisions by a threshold on them."""
        rank_correlation = 0.0
        aucs: list[float | None] = [None, None]
        if np.ptp(before) > 0 and np.ptp(after) > 0:
            rank_correlation = float(np.clip(spearmanr(before, after).statistic, -1, 1))
        if (codes == NORMAL).any() and (codes == ANOMALY).any():
            aucs = [float(auc_with_interval(codes, -s).value) for s in (before, after)]
        return cls(
            rows=len(before),
            rank_correlation=rank_correlation,
            agreement=float(((before < offset) == (after < offset)).mean()),
            flagged_before=int((before < offset).sum()),
            flagged_after=int((after < offset).sum()),
            auc_before=aucs[0],
            auc_after=aucs[1],
        )

    def in_words(self) -> list[str]:
        """Describe the comparison in words.

        >>> Fidelity(200, 0.9876, 0.995, 11, 10).in_words()
        ['on 200 other rows: rank correlation 0.988, the same decision on 99.5 % (11 rows flagged \
before, 10 now)']
        """
        words = [
            f"on {self.rows:,} other rows: rank correlation {self.rank_correlation:.3f}, the same "
            f"decision on {100 * self.agreement:.1f} % ({self.flagged_before:,} rows flagged "
            f"before, {self.flagged_after:,} now)"
        ]
        if self.auc_before is not None:
            aucs = f"{self.auc_before:.3f} before, now {self.auc_after:.3f}"
            words.append(f"AUC on the labelled ones {aucs}")
        return words


class CompressedRAD(FrameDetector):
    """Trees that learned the scores of another detector; they store no rows.

    See `riskad.detectors.compressed`. Columns may have missing values (NaN), and columns of a
    pandas or polars frame may hold text, categories or dates.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    budget : float, default=60.0
        Budget of the `AutoRAD` that `fit` learns from, in seconds.
    random_state : int, RandomState or None, default=0
        Seed.

    Attributes
    ----------
    fidelity_ : Fidelity
        What was lost, measured on rows that the trees did not learn from.
    teacher_, n_rows_ : str, int
        The class of the detector whose scores were learned, and from how many rows.
    trees_ : Trees
        The trees.
    knots_ : ndarray of shape (2, n_knots)
        Quantiles of the trees' scores, and the original scores that they map to.
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

    _state_fields: ClassVar[fields.Fields] = {
        "n_estimators": fields.SIZE,
        "budget": fields.POSITIVE,
        "random_state": fields.SEED,
        "teacher_": fields.TEXT,
        "n_rows_": fields.COUNT,
        "encoder_": fields.Record(("OneHotImputer", "SingularVectors")),
        "trees_": TREES,
        "knots_": fields.Array("f", (2, "knots")),
        "fidelity_": fields.Record(("Fidelity",)),
    }

    @classmethod
    def _check_state(cls, state: fields.State) -> None:
        super()._check_state(state)
        own_columns = state["trees_"].n_features == check_encoder(state)
        fields.require(own_columns, "trees_: of other columns")
        own, original = state["knots_"]
        fields.require(len(own) > 0, "knots_: none")
        rising = bool((np.diff(own) > 0).all() and (np.diff(original) >= 0).all())
        fields.require(rising, "knots_: falling")

    def __init__(
        self, *, n_estimators: int = 100, budget: float = 60.0, random_state: RandomState = 0
    ):
        self.n_estimators = n_estimators
        self.budget = budget
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> CompressedRAD:
        """Fit an `AutoRAD` to rows X with labels y, +1, -1 or 0, and learn its scores."""
        teacher = AutoRAD(budget=self.budget, random_state=self.random_state)
        return self.learn(teacher.fit(X, y, sample_weight=sample_weight), X, y)

    def learn(self, teacher: Any, X: Any, y: Any = None) -> CompressedRAD:
        """Learn the scores that a fitted detector gives to rows X.

        Parameters
        ----------
        teacher : Detector
            A fitted detector of riskad. Its thresholds and probabilities are copied.
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Rows like the ones to be scored later, at least 50.
        y : array of shape (n_rows,), optional
            Codes +1, -1 and 0. The trees do not learn from them; if both kinds are present, they
            measure the AUC before and after.
        """
        check_is_fitted(teacher)
        before = teacher.score_samples(X)
        n = len(before)
        if n < _MIN_ROWS:
            raise InputError(
                f"{n:,} rows are too few to learn scores from; give at least {_MIN_ROWS}, the more "
                "the better. They need no labels."
            )
        codes = np.zeros(n, dtype=int) if y is None else np.asarray(check_codes(y))
        self._forget_decisions()
        matrix = self._check_rows(X, reset=True)
        size = min(int(_SHARE * n), _MAX_COMPARED)
        order = np.random.default_rng(self._seed).permutation(n)[: 2 * size + _MAX_LEARNED]
        test, mapped, train = (np.sort(part) for part in np.split(order, [size, 2 * size]))
        self.teacher_, self.n_rows_ = type(teacher).__name__, len(train)
        seen = self._seen(matrix[train])
        self.encoder_ = fit_encoder(seen, self.schema_.levels, self._seed)
        encoded = self.encoder_.transform(seen)
        self.trees_ = _grow_student(encoded, before[train], self.n_estimators, self._seed)
        self.knots_ = _knots(self._tree_scores(matrix[mapped]), before[mapped])
        self.offset_ = float(teacher.offset_)
        for name in _COPIED:
            if hasattr(teacher, name):
                setattr(self, name, getattr(teacher, name))
        after = self._scores(matrix[test])
        self.fidelity_ = Fidelity.of(before[test], after, self.offset_, codes[test])
        return self

    def _tree_scores(self, X: Any) -> np.ndarray:
        return self.trees_.predict(self.encoder_.transform(self._seen(X)))

    def _scores(self, X: Any) -> np.ndarray:
        own, original = self.knots_
        f = self._tree_scores(X)
        # Beyond all knots, scores differ by as much as those of the trees.
        beyond = np.minimum(f - own[0], 0) + np.maximum(f - own[-1], 0)
        return np.asarray(np.interp(f, own, original) + beyond)

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        """Return the same scores in an ONNX graph.

        A score is that of the first knot, and what each segment between knots adds: its slope times
        the length of it that lies before the score of the trees. Beyond all knots the slope is 1.
        """
        numbers = self.encoder_.onnx_rows(graph, self._graph_rows(graph, rows))
        f = self.trees_.onnx(graph, numbers)
        own, original = self.knots_
        starts, lengths = np.append(own[0], own), np.diff(own)
        least = np.append(-np.inf, np.zeros(len(own)))
        most = np.concatenate([[0.0], lengths, [np.inf]])
        slopes = np.concatenate([[1.0], np.diff(original) / lengths, [1.0]])
        past = graph.node("Sub", graph.node("Reshape", f, np.array([-1, 1])), starts)
        past = graph.node("Min", graph.node("Max", past, least), most)
        return str(graph.node("Add", graph.node("MatMul", past, slopes), original[:1]))

    def _describe(self) -> dict[str, Any]:
        """Return the threshold, the original detector, and what was lost."""
        learned = {"teacher": self.teacher_, "rows": self.n_rows_, "trees": self.trees_.n_trees}
        return super()._describe() | learned | {"fidelity": asdict(self.fidelity_)}

    def _describe_in_words(self) -> list[str]:
        """Return which detector was compressed, and what was lost."""
        learned = f"learned the scores of {self.teacher_} from {self.n_rows_:,} rows"
        return [f"{self.trees_.n_trees:,} trees that {learned}", *self.fidelity_.in_words()]

    def _evidence_in_words(self) -> str:
        """Describe that held-out scores come from the original model."""
        return f"scored by {self.teacher_}, before it was compressed"


def _grow_student(Z: np.ndarray, scores: np.ndarray, n_estimators: int, seed: int) -> Trees:
    """Trees whose `predict` approximates these scores of the encoded rows Z."""
    from sklearn.ensemble import ExtraTreesRegressor  # scoring does without

    forest = ExtraTreesRegressor(
        n_estimators,
        min_samples_leaf=2,
        max_features=min(100, Z.shape[1]),  # so that wide tables do not take long
        random_state=seed,
    )
    trees = from_sklearn(forest.fit(Z.astype(np.float32), scores))
    return replace(trees, value=trees.value / n_estimators)


def _knots(own: np.ndarray, original: np.ndarray) -> np.ndarray:
    """Quantiles of both scores; where several of the trees' are equal, the mean of the others."""
    shares = np.linspace(0, 1, min(_KNOTS, len(own)))
    ours, place = np.unique(np.quantile(own, shares), return_inverse=True)
    sums = np.bincount(place, np.quantile(original, shares))
    return np.stack([ours, np.maximum.accumulate(sums / np.bincount(place))])
