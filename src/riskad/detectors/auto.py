r"""AutoRAD: several kinds of detector over learned features, combined by held-out labels.

Labels are few and the pile is large. So the pile teaches the representation
(`riskad.detectors.features.LearnedFeatures`), in two views of the columns, and labelled rows decide
on it:

| member | what it is | sees |
|---|---|---|
| forest | `ForestRAD` | columns, outlier scores, components of columns and kernels, distances |
| smooth forest | `ForestRAD` | the smooth view: columns, outlier scores, components |
| kernel | `ShallowRAD` | the smooth view: Gaussian kernels, outlier scores |
| boosted | `BoostedRAD` | as the smooth forest, if LightGBM is installed |
| linear | `ShallowRAD` | the smooth view: columns |
| taught forest | `DistilledForest` | as the forest |
| deep | `DeepRAD` | as the smooth forest, if asked for |

The taught one learns the scores that `PretrainedRAD` gives to a thousand rows of the pile.

Each member's scores are brought to mean 0 and standard deviation 1 on the pile and averaged with
weights w_k. With A_k the AUC of member k on held-out labelled rows, A the best of them and SE the
standard error of A,

    w_k  ~  b_k exp(-(A - A_k) / SE):

what is clearly worse counts little, and since SE is large where anomalies are few, weights are
then nearly b_k. With fewer than two labelled rows of a kind nothing can be held out, and they are.
The weights, and the settings of the kernel and linear members, are chosen on the labels that are
then held out: the AUC of the average is somewhat too high.
b_k is 1/2 for the linear member, since the kernel can do what it does, and 1 for the others but
the taught forest. What its teacher knows beforehand counts most where labels are few: it has
3 / (1 + m / 100) with m labelled anomalies.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning

from riskad.core.checks import DataWarning, InputError, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.core.losses import get_loss
from riskad.core.risks import get_risk
from riskad.decisions.calibration import Calibration
from riskad.decisions.metrics import Auc, auc_of_folds, auc_with_interval, labelled_folds
from riskad.decisions.selection import FEWEST_FOR_AUC, Candidate, choose
from riskad.decisions.thresholds import zero_one_threshold
from riskad.detectors.distilled import DistilledForest
from riskad.detectors.features import LearnedFeatures, NeighbourDistances
from riskad.detectors.forest import ForestRAD
from riskad.detectors.pretrained import MOST_COLUMNS, PretrainedRAD, labelled_rows_read
from riskad.detectors.shallow import ShallowRAD
from riskad.detectors.trees import FrameDetector
from riskad.rows.blocks import one_blas_thread
from riskad.rows.columns import Filled
from riskad.rows.linear import sparse_to_dense
from riskad.storage.fields import (
    COUNT,
    FLAG,
    JOBS,
    NOTHING,
    NUMBER,
    POSITIVE,
    SEED,
    SHARE,
    DictOf,
    Fields,
    Fixed,
    ListOf,
    Maybe,
    Number,
    Optional,
    Record,
    State,
    Text,
    Tuple,
    require,
)

__all__ = ["AutoRAD"]

_QUANTILE = 1.96  # half an interval in standard errors
_HASTE = 1.2  # a step is begun if so many times what it may take is left
_FOLD_SHARE = 0.3  # of the seconds of all members, that their lighter fits of a fold take
_TREES = 200
_ANY_LEAF = 0.001
_FOLD_TREES, _FOLD_ROUNDS = 50, 100
_BLOCK = 5_000  # rows that are scored at a time
_ROWS_PER_SECOND, _FEWEST_PER_SECOND, _FEWEST_ROWS = 1_000, 150, 200
_MAX_ROWS = 20_000  # rows that members learn from; beyond it the pile is sampled
_MAX_LABELLED = 10_000
_PILE_ROWS = 1_000  # whose scores set the scale of a member's scores
_TAUGHT = 1_000  # rows of the pile whose scores the taught forest learns
_READ, _FOLD_READ = 300, 150  # rows of the pile that its teacher reads
_FOLD_PILE = 100  # that the teacher scores beside held-out rows
_FEWEST_TAUGHT = 50
_TEACHER_WORTH = 100  # labelled anomalies that halve what its knowledge counts
_CELLS_PER_SECOND = 8_000  # that the teacher reads or scores, by a cautious guess
_SPLITS = 5
_WIDE_SPARSE = 1_000  # columns beyond which a sparse matrix is reduced
_REDUCED = 100
_A, _PRIOR, _LAMBDA = 0.02, 0.8, 0.003
_GUESSED = 5  # rows that a guess of the anomaly rate is worth
_KERNEL_LOSS = "squared"
_KERNEL_CHOICES = [
    Candidate(_A, _PRIOR, _LAMBDA),
    *(Candidate(_A, _PRIOR, lam) for lam in (0.001, 0.01, 0.03)),
    Candidate(_A, 0.95, _LAMBDA),
    Candidate(0.1, _PRIOR, _LAMBDA),
    Candidate(0.1, 0.95, _LAMBDA),
]
_FREE_INTERCEPT = 10.0
_VIEWS = {
    "plain": LearnedFeatures(("columns", "outliers", "components", "shapes", "distances")),
    "smooth": LearnedFeatures(
        ("columns", "outliers", "components", "kernels"), smooth=True, widths=(1.0, 2.0, 4.0)
    ),
}


# --- members ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Recipe:
    """How a member is made: which parts of which view it sees, and the unfitted detector."""

    view: str
    parts: tuple[str, ...]
    build: Callable[[_Labels, int], Any]
    """From the labels and a seed."""
    base: float = 1.0
    """Weight beside others that do as well on held-out rows, where anomalies are few."""
    most: int = _MAX_ROWS
    """Rows of the pile that it learns from."""
    taught: bool = False
    """Whether it learns a teacher's scores rather than labels."""

    def weight(self, n_anomaly: int) -> float:
        """b_k with so many labelled anomalies."""
        return self.base / (1 + n_anomaly / _TEACHER_WORTH) if self.taught else self.base


@dataclass(frozen=True)
class _Labels:
    """What the labels allow."""

    normal: int
    anomaly: int
    unlabelled: int

    @classmethod
    def of(cls, codes: np.ndarray) -> _Labels:
        labels = cls(*(int((codes == kind).sum()) for kind in (NORMAL, ANOMALY, UNLABELLED)))
        if (labels.normal > 0) + (labels.anomaly > 0) + (labels.unlabelled > 0) < 2:
            raise InputError(
                f"AutoRAD tells kinds of row apart, and y has one only: {count_labels(codes)}. "
                "Label some rows with -1 (anomaly) or +1 (normal), and leave the others at 0."
            )
        return labels

    @property
    def risk(self) -> str:
        """The risk for which all kinds of row are there."""
        if not self.normal:
            return "nu"
        if not self.anomaly:
            return "pu"
        return "rad" if self.unlabelled else "pn"

    @property
    def labelled_risk(self) -> str:
        """The same for members that take the pile as their teacher of features alone."""
        return "pn" if self.risk == "rad" else self.risk


def _forest(labels: _Labels, seed: int) -> ForestRAD:
    forest = ForestRAD(
        risk=labels.labelled_risk, prior=_PRIOR, n_estimators=_TREES, random_state=seed
    )
    # Without the pile no leaf is too small: each labelled row was looked at by somebody.
    return forest.set_params(min_leaf=_ANY_LEAF) if forest.risk == "pn" else forest


def _kernel(labels: _Labels, seed: int) -> ShallowRAD:
    return ShallowRAD(
        _KERNEL_LOSS,
        risk=labels.risk,
        a=_A,
        prior=_PRIOR,
        lam=_LAMBDA,
        scale=False,
        intercept_scaling=_FREE_INTERCEPT,
        random_state=seed,
    )


def _linear(labels: _Labels, seed: int) -> ShallowRAD:
    if labels.risk == "rad":
        return ShallowRAD(select="cv", random_state=seed)
    return ShallowRAD(risk=labels.risk, lam=0.1, random_state=seed)


def _boosted(labels: _Labels, seed: int) -> Any:
    from riskad.detectors.boosted import BoostedRAD

    return BoostedRAD(risk=labels.risk, a=_A, prior=_PRIOR, random_state=seed)


def _taught_forest(labels: _Labels, seed: int) -> DistilledForest:
    return DistilledForest(n_estimators=_TREES, random_state=seed)


def _deep(labels: _Labels, seed: int) -> Any:
    from riskad.deep.detectors import DeepRAD

    risk = labels.risk if labels.risk == "pn" else "nn" + labels.risk
    return DeepRAD(risk=risk, prior=_PRIOR, random_state=seed)


_TABLE = ("columns", "outliers", "components")
_ALL = (*_TABLE, "shapes", "distances")
_KERNELS = ("kernels", "outliers")
_RECIPES = {
    "kernel": _Recipe("smooth", _KERNELS, _kernel),
    "smooth forest": _Recipe("smooth", _TABLE, _forest),
    "forest": _Recipe("plain", _ALL, _forest),
    "linear": _Recipe("smooth", ("columns",), _linear, base=0.5),  # a poor man's kernel
    "boosted": _Recipe("smooth", _TABLE, _boosted, most=3_000),
    "taught forest": _Recipe("plain", _ALL, _taught_forest, base=3.0, taught=True),
    "deep": _Recipe("smooth", _TABLE, _deep),
}


# --- the detector -------------------------------------------------------------------------------


class AutoRAD(FrameDetector):
    r"""Anomaly detection from few labels and a contaminated pile, without settings.

    Fits several kinds of detector to features learned from all rows, and averages their scores with
    weights from held-out labelled rows (`riskad.detectors.auto` says how). Columns may have gaps
    (NaN), and those of a pandas or polars frame may hold text or categories. With labels of one
    kind alone members take a risk that needs no others. Of more than 20,000 rows the pile is
    sampled.

    Parameters
    ----------
    budget : float, default=60.0
        Seconds that a fit may take. When they run short rows are sampled, fewer labels are held
        out, and members are left out, the slowest first; one is always fitted.
    deep : bool, default=False
        Whether a network (`DeepRAD`; needs torch) is a member, too.
    verbose : bool, default=False
        Whether to print what is being done.
    callback : callable, optional
        Called with a sentence at each step of a fit; not saved with the model.
    n_jobs : int, default=1
        Trees grown at a time.
    random_state : int, optional
        Seed. None is 0: the same data gives the same model, unless the budget runs short.

    Attributes
    ----------
    members_ : dict
        The fitted detectors by name.
    weights_ : dict
        The weight of each in the score; they add up to 1.
    leaderboard_ : list of dict
        For each member its weight, its AUC on held-out labelled rows (None where nothing could be
        held out) and the seconds it took, the best first. Members for which the budget left no
        time come last, with weight 0 and `left_out`.
    auc_ : Auc or None
        AUC of the weighted average on the labelled rows that were held out, with its interval and
        their numbers: all, or fewer where the budget ran short. Fits of members had not seen their
        labels, but weights and settings of members were chosen on them: it is somewhat too high.
    n_rows_ : int
        Rows that members learned from.
    n_taught_ : int
        Rows of the pile that the pretrained network scored for the taught forest.
    prior_ : float
        Share of normal rows in the pile, estimated from held-out scores. Where labels are too few
        for that, their share among labelled rows, to which five are added of which four are normal;
        with labels of one kind alone 0.8.
    offset_ : float
        Threshold on `score_samples`: where the zero-one risk of held-out labelled rows and the pile
        is lowest (`riskad.decisions.thresholds`); where none could be held out, so that the share 1
        - prior_ of the pile is below it.
    calibration_ : Calibration
        What `set_threshold`, `p_values` and `anomaly_probability` rest on.
    n_features_in_, feature_names_in_ :
        Columns seen in fit.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (450, 2)), rng.normal(0, 3, (50, 2))])
    >>> y = np.zeros(500, dtype=int)           # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = AutoRAD().fit(X, y)
    >>> middle, right, below = model.anomaly_score([[0.0, 0.0], [9.0, 0.0], [0.0, -9.0]])
    >>> bool(right > middle and below > middle)  # no line tells these apart
    True
    """

    _slow_scores = True

    _state_fields: ClassVar[Fields] = {
        "budget": POSITIVE,
        "deep": FLAG,
        "verbose": FLAG,
        "callback": NOTHING,
        "n_jobs": JOBS,
        "random_state": SEED,
        "n_rows_": COUNT,
        "n_taught_": COUNT,
        "table_": Record(("Filled", "TruncatedSVD")),
        "views_": DictOf(Text(choices=_VIEWS), Record(("LearnedFeatures",))),
        "members_": DictOf(
            Text(choices=_RECIPES),
            Record(("ForestRAD", "ShallowRAD", "BoostedRAD", "DistilledForest", "DeepRAD")),
        ),
        "scales_": DictOf(Text(choices=_RECIPES), Tuple(NUMBER, POSITIVE)),
        "weights_": DictOf(Text(choices=_RECIPES), SHARE),
        "leaderboard_": ListOf(
            Fixed(
                {
                    "member": Text(choices=_RECIPES),
                    "weight": SHARE,
                    "auc": Maybe(SHARE),
                    "seconds": Number(0),
                    "left_out": Optional(FLAG),
                }
            )
        ),
        "auc_": Maybe(Record(("Auc",))),
        "prior_": SHARE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        table, views, members = (state[name] for name in ("table_", "views_", "members_"))
        before, after = _widths(table)
        require(before == state["n_features_in_"], "table_: of other columns")
        require(all(v.n_features_in_ == after for v in views.values()), "views_: of other columns")
        for name, member in members.items():
            recipe = _RECIPES[name]
            require(recipe.view in views, f"members_: {name!r} without its view")
            spans = views[recipe.view].slices_
            require(set(recipe.parts) <= set(spans), f"members_: {name!r} without its features")
            width = sum(spans[part].stop - spans[part].start for part in recipe.parts)
            require(member.n_features_in_ == width, f"members_: {name!r} of other features")
        for name in ("scales_", "weights_"):
            require(set(state[name]) == set(members), f"{name}: of other members")
        require(len(members) > 0, "members_: none")

    def __init__(
        self,
        *,
        budget: float = 60.0,
        deep: bool = False,
        verbose: bool = False,
        callback: Callable[[str], object] | None = None,
        n_jobs: int = 1,
        random_state: int | None = None,
    ):
        self.budget = budget
        self.deep = deep
        self.verbose = verbose
        self.callback = callback
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> AutoRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, gaps, and in a frame text.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        """
        clock = _Clock(check_in_interval("budget", self.budget, 0, np.inf))
        with one_blas_thread(), _quiet():
            return self._fit(X, y, clock)

    def _fit(self, X: Any, y: Any, clock: _Clock) -> AutoRAD:
        matrix, codes, _ = self._check_training(X, y)
        labels = _Labels.of(codes)
        rows = self._sampled(codes, *clock.affordable(matrix.shape[1]))
        codes, self.n_rows_ = codes[rows], len(rows)
        self._say(f"Learning features from {len(rows):,} rows")
        views = self._fit_views(self._fit_table(matrix[rows]), codes)
        seconds = self._fit_members(views, codes, labels, clock)
        self._standardise(views, codes)
        trials = self._held_out(views, codes, seconds, clock)
        self._weigh(trials, seconds, labels.anomaly)
        self._decide(views, codes, trials)
        return self

    @property
    def _seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)

    def _say(self, what: str) -> None:
        if self.verbose:
            print(what, flush=True)
        if self.callback is not None:
            self.callback(what)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the callback, which is code."""
        return {**super().__getstate__(), "callback": None}

    # --- rows and features ----------------------------------------------------------------

    def _sampled(self, codes: np.ndarray, most: int, fewest: int) -> np.ndarray:
        """Places of the rows to learn from: labelled ones, then at least `fewest` of the pile."""
        rng = np.random.default_rng(self._seed)
        order = rng.permutation(len(codes))
        order = order[np.argsort(codes[order] == UNLABELLED, kind="stable")]
        labelled = int((codes != UNLABELLED).sum())
        kept = order[: min(labelled, _MAX_LABELLED)]
        pile = order[labelled:][: max(most - len(kept), fewest)]
        return np.sort(np.concatenate([kept, pile]))

    def _fit_table(self, matrix: Any) -> np.ndarray:
        """Numbers without gaps; a wide sparse matrix by its leading directions."""
        if sparse.issparse(matrix) and matrix.shape[1] > _WIDE_SPARSE:
            size = min(_REDUCED, *(side - 1 for side in matrix.shape))
            self.table_: Any = TruncatedSVD(size, random_state=self._seed).fit(matrix)
        else:
            self.table_ = Filled(self.categories_).fit(sparse_to_dense(matrix))
        return self._numbers(matrix)

    def _numbers(self, matrix: Any) -> np.ndarray:
        if isinstance(self.table_, Filled):
            matrix = sparse_to_dense(matrix)
        return np.asarray(self.table_.transform(matrix))

    def _fit_views(self, matrix: np.ndarray, codes: np.ndarray) -> dict[str, np.ndarray]:
        self.views_ = {
            name: clone(view).set_params(random_state=self._seed) for name, view in _VIEWS.items()
        }
        return {name: view.fit_transform(matrix, codes) for name, view in self.views_.items()}

    def _features(self, name: str, views: Mapping[str, np.ndarray]) -> np.ndarray:
        """What a member sees."""
        recipe = _RECIPES[name]
        slices = self.views_[recipe.view].slices_
        return np.hstack([views[recipe.view][:, slices[part]] for part in recipe.parts])

    # --- members --------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Members that can be had, the quickest first."""
        missing = {"deep"} if not self.deep else set()
        if find_spec("lightgbm") is None:
            missing.add("boosted")
        return [name for name in _RECIPES if name not in missing]

    def _fit_members(
        self, views: Mapping[str, np.ndarray], codes: np.ndarray, labels: _Labels, clock: _Clock
    ) -> dict[str, float]:
        """Fit members while there is time; gives the seconds of each."""
        self.members_: dict[str, Any] = {}
        self.n_taught_ = 0
        seconds: dict[str, float] = {}
        for name in self._names():
            kept = _FOLD_SHARE * sum(seconds.values())  # to hold out labelled rows at least once
            if seconds and clock.left() < _HASTE * max(seconds.values()) + kept:
                self._say(f"No time left for {name}")
                break
            self._say(f"Fitting {name}")
            start = time.perf_counter()
            detector = _RECIPES[name].build(labels, self._seed)
            if "n_jobs" in detector.get_params():
                detector.set_params(n_jobs=self.n_jobs)
            F = self._features(name, views)
            if name == "kernel" and labels.risk == "rad":
                detector.set_params(**_chosen(F, codes, self._seed)._asdict())
            if _RECIPES[name].taught:
                rows, target = self._lesson(views, codes, clock)
                if not len(rows):
                    self._say(f"No time left for {name}")
                    continue
            else:
                rows = _with_labelled(codes, _RECIPES[name].most)
                target = codes[rows]
            self.members_[name] = detector.fit(F[rows], target)
            seconds[name] = time.perf_counter() - start
        return seconds

    def _lesson(
        self, views: Mapping[str, np.ndarray], codes: np.ndarray, clock: _Clock
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places of rows of the pile, and the teacher's scores of them; none without time."""
        F = self._teacher_features(views)
        most = clock.teachable(F.shape[1], labelled_rows_read(codes))
        rows = _pile(codes, min(_TAUGHT, most)) if most >= _FEWEST_TAUGHT else np.array([], int)
        self.n_taught_ = len(rows)
        if not self.n_taught_:
            return rows, np.array([])
        teacher = PretrainedRAD(pile=min(_READ, most), random_state=self._seed).fit(F, codes)
        return rows, teacher.score_samples(F[rows])

    def _teacher_features(self, views: Mapping[str, np.ndarray]) -> np.ndarray:
        """Outlier scores with the columns, or with their components where there are too many."""
        slices = self.views_["plain"].slices_
        n_columns = slices["outliers"].stop
        first = "columns" if n_columns <= MOST_COLUMNS else "components"
        return np.hstack([views["plain"][:, slices[part]] for part in (first, "outliers")])

    def _standardise(self, views: Mapping[str, np.ndarray], codes: np.ndarray) -> None:
        """Mean and spread of each member's scores on the pile; of all rows where there is none."""
        pile = _pile(codes, _PILE_ROWS)
        self.scales_ = {
            name: _mean_and_spread(detector.score_samples(self._features(name, views)[pile]))
            for name, detector in self.members_.items()
        }

    # --- held-out labels ------------------------------------------------------------------

    def _held_out(
        self,
        views: Mapping[str, np.ndarray],
        codes: np.ndarray,
        seconds: Mapping[str, float],
        clock: _Clock,
    ) -> _Trials | None:
        """Scores of labelled rows by fits that have not seen them, while time lasts."""
        n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
        n_splits = min(_SPLITS, n, m)
        if n_splits < 2:
            return None
        rows = _with_labelled(codes, _PILE_ROWS)
        views = {name: features[rows] for name, features in views.items()}
        trials = _Trials(rows, codes[rows], {name: [] for name in self.members_}, [], n_splits)
        # Fits of a fold are light, but for the teacher's, which may take as long as its lesson.
        slowest = max((seconds[name] for name in seconds if _RECIPES[name].taught), default=0.0)
        for held in labelled_folds(trials.codes, n_splits, self._seed):
            if clock.left() < _HASTE * slowest:
                break
            self._say(f"Holding out {len(held)} labelled rows")
            start = time.perf_counter()
            fold_views = self._without(views, trials.codes, held)
            for name, scores in self._fold_scores(fold_views, trials.codes, held).items():
                trials.scores[name].append(scores)
            trials.folds.append(held)
            slowest = max(slowest, time.perf_counter() - start)
        return trials if trials.folds else None

    def _fold_scores(
        self, views: Mapping[str, np.ndarray], codes: np.ndarray, held: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Scores of held-out rows, on the scale of the pile, by lighter fits to the others."""
        taught = [name for name in self.members_ if _RECIPES[name].taught]
        scores = {
            name: _fold_scores(_lighter(detector), self._features(name, views), codes, held)
            for name, detector in self.members_.items()
            if name not in taught
        }
        if taught:  # the teacher itself: it need not score many rows here
            read, most = (min(self.n_taught_, size) for size in (_FOLD_READ, _FOLD_PILE))
            teacher = PretrainedRAD(pile=read, random_state=self._seed)
            F = self._teacher_features(views)
            scores |= dict.fromkeys(taught, _fold_scores(teacher, F, codes, held, most))
        return scores

    def _without(
        self, views: Mapping[str, np.ndarray], codes: np.ndarray, held: np.ndarray
    ) -> dict[str, np.ndarray]:
        """The views as if the held-out rows had no label: distances are to other rows' labels."""
        plain = self.views_["plain"]
        Z = views["plain"][:, plain.slices_["columns"]]
        others = np.setdiff1d(np.arange(len(codes)), held)
        distances = NeighbourDistances(unlabelled=False)
        D = np.empty(
            (len(codes), plain.slices_["distances"].stop - plain.slices_["distances"].start)
        )
        D[others] = distances.fit_transform(Z[others], codes[others])
        D[held] = distances.transform(Z[held])
        changed = views["plain"].copy()
        changed[:, plain.slices_["distances"]] = D
        return {**views, "plain": changed}

    # --- weights, threshold ---------------------------------------------------------------

    def _weigh(self, trials: _Trials | None, seconds: Mapping[str, float], n_anomaly: int) -> None:
        aucs = {name: None if trials is None else trials.auc(name) for name in self.members_}
        self.weights_ = _weights(aucs, n_anomaly)
        self.leaderboard_: list[dict[str, Any]] = [
            {
                "member": name,
                "weight": round(self.weights_[name], 4),
                "auc": None if (auc := aucs[name]) is None else round(auc.value, 4),
                "seconds": round(seconds[name], 2),
            }
            for name in sorted(self.members_, key=lambda name: -self.weights_[name])
        ]
        self.leaderboard_ += [
            {"member": name, "weight": 0.0, "auc": None, "seconds": 0.0, "left_out": True}
            for name in self._names()
            if name not in self.members_
        ]
        self.auc_ = None if trials is None else trials.combined_auc(self.weights_)

    def _decide(
        self, views: Mapping[str, np.ndarray], codes: np.ndarray, trials: _Trials | None
    ) -> None:
        """The anomaly rate, the threshold, and what other thresholds rest on."""
        fitted = self._combine(views)
        held_out = np.where(codes == UNLABELLED, fitted, np.nan)
        if trials is not None:
            for held, scores in zip(trials.folds, trials.combined(self.weights_), strict=True):
                held_out[trials.rows[held]] = scores
        calibration = Calibration.of(-held_out, codes, -fitted, 0.0, random_state=self._seed)
        if calibration.rate is None:
            self.prior_ = 1 - _labelled_rate(codes)
            pile = fitted[codes == UNLABELLED]
            self.offset_ = float(np.quantile(pile if len(pile) else fitted, 1 - self.prior_))
        else:
            self.prior_ = 1 - calibration.pi_n
            seen = ~np.isnan(held_out)
            risk = get_risk("rad", prior=self.prior_)
            self.offset_ = zero_one_threshold(risk, held_out[seen], codes[seen])
        self.calibration_ = replace(calibration, zero=-self.offset_)

    def _combine(self, views: Mapping[str, np.ndarray]) -> np.ndarray:
        total = np.zeros(len(next(iter(views.values()))))
        for name, detector in self.members_.items():
            mean, spread = self.scales_[name]
            scores = detector.score_samples(self._features(name, views))
            total += self.weights_[name] * (scores - mean) / spread
        return total

    def _scores(self, X: Any) -> np.ndarray:
        parts = []
        with one_blas_thread():
            for start in range(0, X.shape[0], _BLOCK):
                matrix = self._numbers(X[start : start + _BLOCK])
                views = {name: view.transform(matrix) for name, view in self.views_.items()}
                parts.append(self._combine(views))
        return np.concatenate(parts)


def _thinned(places: np.ndarray, most: int) -> np.ndarray:
    """At most so many of the places, evenly spaced."""
    return places[:: max(1, -(-len(places) // most))]


def _pile(codes: np.ndarray, most: int) -> np.ndarray:
    """Places of rows of the pile, or of any kind where there is none, not too many."""
    places = np.flatnonzero(codes == UNLABELLED)
    return _thinned(places if len(places) else np.arange(len(codes)), most)


def _with_labelled(codes: np.ndarray, most: int) -> np.ndarray:
    """Places of the labelled rows and of at most so many of the pile, in order."""
    pile = _thinned(np.flatnonzero(codes == UNLABELLED), most)
    return np.sort(np.concatenate([np.flatnonzero(codes != UNLABELLED), pile]))


def _chosen(F: np.ndarray, codes: np.ndarray, seed: int) -> Candidate:
    """a, prior and lambda of the kernel member, by `riskad.decisions.selection`."""
    if min((codes == kind).sum() for kind in (NORMAL, ANOMALY)) < FEWEST_FOR_AUC:
        return _KERNEL_CHOICES[0]
    rows = _with_labelled(codes, _PILE_ROWS)
    Z = np.column_stack([F[rows], np.full(len(rows), _FREE_INTERCEPT)])
    selection = choose(Z, codes[rows], None, get_loss(_KERNEL_LOSS), _KERNEL_CHOICES, seed)
    return _KERNEL_CHOICES[selection.chosen]


def _fold_scores(
    detector: Any, F: np.ndarray, codes: np.ndarray, held: np.ndarray, most: int = _PILE_ROWS
) -> np.ndarray:
    """Scores of held-out rows by a fit to the others, on the scale of so many of the pile."""
    others = np.setdiff1d(np.arange(len(codes)), held)
    pile = others[_pile(codes[others], most)]
    detector.fit(F[others], codes[others])
    scores = detector.score_samples(F[np.concatenate([pile, held])])
    mean, spread = _mean_and_spread(scores[: len(pile)])
    return np.asarray((scores[len(pile) :] - mean) / spread)


def _lighter(detector: Any) -> Any:
    """The same detector unfitted: fewer trees, and nothing left to choose."""
    copy = clone(detector)
    if isinstance(copy, ForestRAD):
        return copy.set_params(n_estimators=_FOLD_TREES)
    if isinstance(copy, ShallowRAD):
        a, prior, lam = detector.a_, detector.prior_, detector.lambda_
        return copy.set_params(a=a, prior=prior, lam=lam, select=None)
    if hasattr(detector, "n_rounds_"):
        return copy.set_params(n_rounds=_FOLD_ROUNDS)
    return copy


def _labelled_rate(codes: np.ndarray) -> float:
    """Share of anomalies among labelled rows, of which the usual guess counts as five more.

    With one kind of label alone it is the guess.
    """
    n, m = (int((codes == kind).sum()) for kind in (NORMAL, ANOMALY))
    guess = 1 - _PRIOR
    return (m + _GUESSED * guess) / (n + m + _GUESSED) if n and m else guess


def _mean_and_spread(scores: np.ndarray) -> tuple[float, float]:
    return float(scores.mean()), float(scores.std()) or 1.0


def _weights(aucs: Mapping[str, Auc | None], n_anomaly: int) -> dict[str, float]:
    """w_k ~ b_k exp(-(A - A_k) / SE), adding up to 1."""
    known = [auc for auc in aucs.values() if auc is not None]
    raw = {name: _RECIPES[name].weight(n_anomaly) for name in aucs}
    if known:
        best = max(known, key=lambda auc: auc.value)
        error = (best.high - best.low) / 2 / _QUANTILE
        for name, auc in aucs.items():
            raw[name] *= float(np.exp(-(best.value - auc.value) / error)) if auc else 0.0
    return {name: weight / sum(raw.values()) for name, weight in raw.items()}


@dataclass(frozen=True)
class _Trials:
    """Scores of held-out rows, member by member and fold by fold."""

    rows: np.ndarray
    """Places of the rows that took part."""
    codes: np.ndarray
    scores: dict[str, list[np.ndarray]]
    folds: list[np.ndarray]
    """Those that were held out: fewer than `n_splits` where time ran short."""
    n_splits: int

    def auc(self, name: str) -> Auc:
        return self._auc(self.scores[name])

    def combined(self, weights: Mapping[str, float]) -> list[np.ndarray]:
        """Weighted averages, fold by fold."""
        return [
            np.sum([weights[name] * parts[i] for name, parts in self.scores.items()], axis=0)
            for i in range(len(self.folds))
        ]

    def combined_auc(self, weights: Mapping[str, float]) -> Auc:
        return self._auc(self.combined(weights))

    def _auc(self, scores: list[np.ndarray]) -> Auc:
        values = [
            auc_with_interval(self.codes[held], -part).value
            for held, part in zip(self.folds, scores, strict=True)
        ]
        held_out = self.codes[np.concatenate(self.folds)]
        n, m = (int((held_out == kind).sum()) for kind in (NORMAL, ANOMALY))
        return auc_of_folds(values, self.n_splits, n, m)


def _widths(table: Any) -> tuple[int, int]:
    """How many columns a fitted table has before and after."""
    if isinstance(table, Filled):
        return table.widths
    after, before = table.components_.shape
    return before, after


class _Clock:
    """Seconds that are left."""

    def __init__(self, budget: float):
        self.end = time.perf_counter() + budget
        self.budget = budget

    def left(self) -> float:
        return self.end - time.perf_counter()

    def teachable(self, n_columns: int, n_labelled: int) -> int:
        """Rows that a teacher can score in a part of the time, after as many and `n_labelled`."""
        rows = self.left() / 4 * _CELLS_PER_SECOND / (n_columns + 1)
        return max(0, int((rows - n_labelled) / 2))

    def affordable(self, n_columns: int) -> tuple[int, int]:
        """Rows whose features can be learned in a part of the budget, and fewest of the pile."""
        most = _ROWS_PER_SECOND * self.budget / (1 + n_columns / 50)  # a cautious guess
        fewest = min(_PILE_ROWS, max(_FEWEST_ROWS, _FEWEST_PER_SECOND * self.budget))
        return int(min(_MAX_ROWS, max(1, most))), int(fewest)


@contextmanager
def _quiet() -> Iterator[None]:
    """What members warn of, such as columns without variation in a fold, is no news to a user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
