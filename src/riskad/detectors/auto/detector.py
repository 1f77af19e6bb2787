"""`AutoRAD` itself: members over views of the columns, combined by held-out labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from riskad.core.checks import DataWarning, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.decisions.held_out import quietly
from riskad.decisions.ranking_metrics import Auc
from riskad.decisions.rates import check_label_source, given_rate
from riskad.decisions.row_groups import as_groups
from riskad.decisions.thresholds import Likely, Threshold
from riskad.detectors.auto.budget import MOST_READ, Clock, rows_to_learn_from
from riskad.detectors.auto.deciding import calibrated
from riskad.detectors.auto.held_out import (
    HeldOut,
    fold_scores,
    folds_to_hold_out,
    leaderboard,
    mean_and_spread,
    member_weights,
)
from riskad.detectors.auto.members import MEMBER_TYPES, MEMBERS, LabelsGiven, Recipe
from riskad.detectors.auto.plan import FOLD_READ, FOLD_SCORED, SPLITS, Plan, plan_fit, sizes_of
from riskad.detectors.auto.samples import COMPARED, some_unlabelled, to_learn_from, with_labelled
from riskad.detectors.auto.saying import SaysWhatItIs, say_late
from riskad.detectors.auto.scoring import ScoresRows
from riskad.detectors.auto.unseen_kinds import ALONE, Kinds, hold_kinds_out
from riskad.detectors.auto.views import VIEWS, Views, fit_table, numbers_of, table_widths
from riskad.detectors.pretrained import PretrainedRAD
from riskad.detectors.trees import FrameDetector
from riskad.rows.blas_threads import one_blas_thread
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


class AutoRAD(ScoresRows, SaysWhatItIs, FrameDetector):
    r"""Anomaly detection from few labels and contaminated unlabelled rows, without settings.

    Fits several kinds of detector to features learned from all rows, and averages their scores with
    weights from held-out labelled rows (`riskad.detectors.auto` says how). Columns may have gaps
    (NaN), and those of a pandas or polars frame may hold text or categories. With labels of one
    kind alone members take a risk that needs no others. Of more than 20,000 rows the unlabelled
    rows are sampled.

    The fitted model, and a file of it, hold training rows, standardised: up to 2,000 of any kind
    for each of two views, and the labelled ones, with which new rows are compared (`kept_rows`).

    Parameters
    ----------
    budget : float, default=60.0
        Seconds of work, on one core of a usual machine, that a fit may take. It is planned by them
        beforehand: where they are short, rows are sampled, fewer labels are held out, and slow
        members are left out. On a slow or busy machine the same work takes longer
        (`riskad.detectors.auto.budget`).
    deep : bool, default=False
        Whether a network (`DeepRAD`; needs torch) is a member, too.
    verbose : bool, default=False
        Whether to print what is being done.
    callback : callable, optional
        Called with a sentence at each step of a fit; not saved with the model.
    n_jobs : int, default=1
        Trees grown at a time.
    anomaly_rate : float, optional
        Share of anomalies among the unlabelled rows, where it is known. By default it is estimated
        (`riskad.decisions.rates`).
    random_state : int, optional
        Seed. None is 0: the same data and budget give the same model.

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
        their numbers: all, or fewer where the budget ran short. Neither the fits of members nor
        their settings and weights had seen the labels of these rows.
    kinds_auc_ : Auc or None
        AUC of labelled anomalies of a kind that fits have not seen (`riskad.detectors.auto.
        unseen_kinds`): clusters of them, held out one by one; None where they are too few.
    n_rows_ : int
        Rows that members learned from.
    n_distilled_ : int
        Unlabelled rows that the pretrained network scored for the distilled forest.
    prior_ : float
        Share of normal rows among the unlabelled rows: as given, or as estimated from labels and
        held-out scores; with labels of one kind alone 0.8.
    offset_ : float
        Threshold on `score_samples`: the best list by probabilities
        (`riskad.decisions.thresholds.Likely`); where labels do not tell these, so that the share
        1 - prior_ of the unlabelled rows are below it.
    calibration_ : Calibration
        What `set_threshold`, `p_values` and `anomaly_probability` rest on.
    categories_ : dict
        Texts of each text column, by its place, the most frequent first.
    evidence_ : LevelEvidence
        What labelled anomalies say of the texts of columns with many of them.
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

    slow_to_score: ClassVar[bool] = True
    tells_progress: ClassVar[bool] = True
    holds_out_groups: ClassVar[bool] = True
    default_threshold: ClassVar[Threshold] = Likely()

    _state_fields: ClassVar[Fields] = {
        "budget": POSITIVE,
        "deep": FLAG,
        "verbose": FLAG,
        "callback": NOTHING,
        "n_jobs": JOBS,
        "anomaly_rate": Optional(Maybe(SHARE)),
        "random_state": SEED,
        "n_rows_": COUNT,
        "n_distilled_": COUNT,
        "table_": Record(("Filled", "TruncatedSVD")),
        "views_": DictOf(Text(choices=VIEWS), Record(("LearnedFeatures",))),
        "members_": DictOf(
            Text(choices=MEMBERS),
            Record(MEMBER_TYPES),
        ),
        "scales_": DictOf(Text(choices=MEMBERS), Tuple(NUMBER, POSITIVE)),
        "weights_": DictOf(Text(choices=MEMBERS), SHARE),
        "leaderboard_": ListOf(
            Fixed(
                {
                    "member": Text(choices=MEMBERS),
                    "weight": SHARE,
                    "auc": Maybe(SHARE),
                    "seconds": Number(0),
                    "left_out": Optional(FLAG),
                }
            )
        ),
        "auc_": Maybe(Record(("Auc",))),
        "kinds_auc_": Optional(Maybe(Record(("Auc",)))),  # files of earlier versions have none
        "prior_": SHARE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        table, views, members = (state[name] for name in ("table_", "views_", "members_"))
        before, after = table_widths(table)
        appended = len(state["evidence_"].places) if "evidence_" in state else 0
        require(before == state["n_features_in_"] + appended, "table_: of other columns")
        require(all(v.n_features_in_ == after for v in views.values()), "views_: of other columns")
        for name, member in members.items():
            recipe = MEMBERS[name]
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
        anomaly_rate: float | None = None,
        random_state: int | None = None,
    ):
        self.budget = budget
        self.deep = deep
        self.verbose = verbose
        self.callback = callback
        self.n_jobs = n_jobs
        self.anomaly_rate = anomaly_rate
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, groups: Any = None, label_source: Any = "unknown"
    ) -> AutoRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, gaps, and in a frame text.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        groups : array of shape (n_rows,), optional
            Which rows belong together, those of one customer for instance: they are held out
            together, and `auc_` has an interval for as many groups. Blank (None, NaN) is a group
            of its own.
        label_source : str or array of str, default="unknown"
            How rows came to be labelled: "random", "chosen" or "unknown", or a word for each row.
            The anomaly rate depends on it (`riskad.decisions.rates`), the ranking does not.

        Returns
        -------
        AutoRAD
            Itself.
        """
        clock = Clock(check_in_interval("budget", self.budget, 0, np.inf))
        with one_blas_thread(), quietly():
            self._fit(X, y, groups, label_source, clock)
        if clock.ran_out:
            warnings.warn(say_late(clock, self.leaderboard_), DataWarning, stacklevel=2)
        return self

    def _fit(self, X: Any, y: Any, groups: Any, label_source: Any, clock: Clock) -> None:
        matrix, codes, _ = self._check_training(X, y)
        groups = None if groups is None else as_groups(groups, len(codes))
        source = check_label_source(label_source, len(codes))
        if self.anomaly_rate is not None:
            given_rate(self.anomaly_rate)
        labels = LabelsGiven.of(codes)
        seen = self._learn_evidence(matrix, codes)
        most = rows_to_learn_from(self.budget, matrix.shape[1])
        rows = to_learn_from(codes, *most, self._seed)
        codes, self.n_rows_ = codes[rows], len(rows)
        self._say(f"Learning features from {len(rows):,} rows")
        self.table_: Any = fit_table(seen[rows], self.categories_, self._seed)
        views = Views.fit(numbers_of(self.table_, seen[rows]), codes, self._seed)
        self.views_ = dict(views.learned)
        sizes = sizes_of(codes, table_widths(self.table_)[1], views.seen_by_teacher().shape[1])
        plan = plan_fit(sizes, self._names(), self.budget)
        seconds = self._fit_members(views, codes, plan, clock)
        self._standardise(views, codes)
        groups = None if groups is None else groups[rows]
        held_out = self._hold_out(views, matrix[rows], codes, groups, plan, clock)
        self._weigh(held_out, seconds, labels.anomaly)
        self._decide(views, codes, held_out, source if isinstance(source, str) else source[rows])

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

    # --- members --------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Members that can be had, the quickest first."""
        return [name for name, recipe in MEMBERS.items() if recipe.can_be_had(self)]

    def _fit_members(
        self, views: Views, codes: np.ndarray, plan: Plan, clock: Clock
    ) -> dict[str, float]:
        """Fit the members that are planned; gives the seconds of each."""
        self.members_: dict[str, Any] = {}
        self.n_distilled_ = 0
        labels = LabelsGiven.of(codes)
        seconds: dict[str, float] = {}
        for name in plan.members:
            if seconds and not clock.allows_more():
                break
            self._say(f"Fitting {name}")
            start = time.perf_counter()
            F, recipe = views.seen_by(name), MEMBERS[name]
            rows, target = self._lesson(recipe, views, codes, plan.distilled)
            detector = self._build(recipe, F, codes, labels)
            self.members_[name] = detector.fit(F[rows], target)
            seconds[name] = time.perf_counter() - start
        for name in self._names():
            if name not in self.members_:
                self._say(f"No time left for {name}")
        return seconds

    def _build(self, recipe: Recipe, F: np.ndarray, codes: np.ndarray, labels: LabelsGiven) -> Any:
        detector = recipe.build(labels, self._seed)
        if "n_jobs" in detector.get_params():
            detector.set_params(n_jobs=self.n_jobs)
        if recipe.tune is not None:
            detector.set_params(**recipe.tune(F, codes, self._seed))
        return detector

    def _lesson(
        self, recipe: Recipe, views: Views, codes: np.ndarray, distilled: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Places of rows to learn from, and what is learned of them: labels or scores.

        Scores are those of unlabelled rows by a pretrained network.
        """
        if not recipe.distilled:
            rows = with_labelled(codes, recipe.most_rows)
            return rows, codes[rows]
        F, rows = views.seen_by_teacher(), some_unlabelled(codes, distilled)
        self.n_distilled_ = len(rows)
        read = min(MOST_READ, distilled)
        teacher = PretrainedRAD(unlabelled=read, random_state=self._seed).fit(F, codes)
        return rows, teacher.score_samples(F[rows])

    def _standardise(self, views: Views, codes: np.ndarray) -> None:
        """Mean and spread of each member's scores on unlabelled rows, or on all of them."""
        rows = views.take(some_unlabelled(codes, COMPARED))
        self.scales_ = {
            name: mean_and_spread(detector.score_samples(rows.seen_by(name)))
            for name, detector in self.members_.items()
        }

    # --- held-out labels ------------------------------------------------------------------

    def _hold_out(
        self,
        views: Views,
        matrix: Any,
        codes: np.ndarray,
        groups: np.ndarray | None,
        plan: Plan,
        clock: Clock,
    ) -> HeldOut | None:
        """Scores of labelled rows by fits that have not seen them, in as many folds as planned."""
        self.kinds_auc_: Auc | None = None
        n_splits = min(SPLITS, *(int((codes == kind).sum()) for kind in (NORMAL, ANOMALY)))
        rows = with_labelled(codes, COMPARED)
        views, matrix, codes = views.take(rows), matrix[rows], codes[rows]
        groups = None if groups is None else groups[rows]
        folds = folds_to_hold_out(codes, n_splits, self._seed, groups)
        if len(folds) < 2:
            return None
        kinds = self._judge_kinds(views, matrix, codes) if plan.kinds else Kinds()
        self.kinds_auc_ = kinds.auc() if kinds.folds else None
        found = HeldOut(
            rows,
            codes,
            {name: [] for name in self.members_},
            [],
            len(folds),
            groups,
            kinds.weight(),
        )
        for held in folds[: plan.folds]:
            if not clock.allows_more():
                break
            self._say(f"Holding out {int((codes[held] != UNLABELLED).sum())} labelled rows")
            fold_views = self._fold_views(views, matrix, codes, held)
            for name, scores in self._fold_scores(fold_views, codes, held).items():
                found.scores[name].append(scores)
            found.folds.append(held)
        return found if found.folds else None

    def _judge_kinds(self, views: Views, matrix: Any, codes: np.ndarray) -> Kinds:
        """Scores of kinds of anomaly by fits that have not seen them."""
        make = {name: partial(self._for_fold, name) for name in self.members_}
        without = partial(self._fold_views, views, matrix, codes)
        return hold_kinds_out(views, codes, make, without, self._seed)

    def _fold_views(self, views: Views, matrix: Any, codes: np.ndarray, held: np.ndarray) -> Views:
        """The views as if held-out rows had no label: neither distances nor evidence know it."""
        if not self.evidence_.places:
            return views.without_labels(codes, held)
        known = codes.copy()
        known[held] = UNLABELLED
        evidence = self.evidence_.relearned(matrix, known)
        seen = evidence.appended_in_fit(matrix, known, self._seed)
        seen[held] = evidence.appended(matrix[held])
        return Views.fit_without(numbers_of(self.table_, seen), codes, held, self._seed)

    def _fold_scores(
        self, views: Views, codes: np.ndarray, held: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Scores of held-out rows by lighter fits to the others, on the same scale."""
        distilled = [name for name in self.members_ if MEMBERS[name].distilled]
        labels = LabelsGiven.of(np.delete(codes, held))
        scores = {
            name: fold_scores(self._for_fold(name, labels), views.seen_by(name), codes, held)
            for name in self.members_
            if name not in distilled
        }
        if distilled:  # the teacher itself: it need not score many rows here
            read, most = (min(self.n_distilled_, size) for size in (FOLD_READ, FOLD_SCORED))
            teacher = PretrainedRAD(unlabelled=read, random_state=self._seed)
            F = views.seen_by_teacher()
            scores |= dict.fromkeys(distilled, fold_scores(teacher, F, codes, held, most))
        return scores

    def _for_fold(self, name: str, labels: LabelsGiven) -> Any:
        """An unfitted member, light, none of whose settings was chosen by held-out labels."""
        recipe = MEMBERS[name]
        return recipe.build(labels, self._seed) if recipe.chooses else self.members_[name].lighter()

    # --- weights, threshold ---------------------------------------------------------------

    def _weigh(
        self, held_out: HeldOut | None, seconds: Mapping[str, float], n_anomaly: int
    ) -> None:
        aucs = {name: None if held_out is None else held_out.auc(name) for name in self.members_}
        if held_out is None:
            share = Kinds().weight() if n_anomaly else ALONE
            self.weights_ = member_weights(aucs, n_anomaly, share)
        else:
            self.weights_ = held_out.weights()
        left_out = [name for name in self._names() if name not in self.members_]
        self.leaderboard_ = leaderboard(self.weights_, aucs, seconds, left_out)
        self.auc_ = None if held_out is None else held_out.combined_auc()

    def _decide(
        self, views: Views, codes: np.ndarray, held_out: HeldOut | None, source: Any
    ) -> None:
        """The anomaly rate, the threshold, and what other thresholds rest on."""
        told = (self.anomaly_rate, source, self._seed)
        self.calibration_, self.prior_ = calibrated(self._combine(views), codes, held_out, *told)
        self.offset_ = -self.calibration_.zero
        self.set_threshold(self.default_threshold)

    # --- what it says of itself -----------------------------------------------------------

    def evidence_in_words(self) -> str:
        """Say what the held-out AUC rests on."""
        return "scored by members that were fitted, tuned and weighted without its label"
