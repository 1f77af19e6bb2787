"""The class `AutoRAD`: members over views of the columns, combined by held-out labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import ClassifierTags

from riskad.core.checks import DataWarning, MissingLibrary, check_in_interval
from riskad.core.labels import ANOMALY
from riskad.decisions.anomaly_rate import check_label_source, given_rate
from riskad.decisions.calibration import quietly
from riskad.decisions.thresholds import Likely, Threshold
from riskad.detectors.auto.budget import MOST_READ, Clock, rows_to_learn_from
from riskad.detectors.auto.deciding import calibrated
from riskad.detectors.auto.graph import SaysItsGraph
from riskad.detectors.auto.held_out import (
    HeldOut,
    fit_weighted,
    leaderboard,
    mean_and_spread,
    member_weights,
)
from riskad.detectors.auto.holding_out import Given, HoldsOut
from riskad.detectors.auto.members import (
    MEMBER_TYPES,
    MEMBERS,
    QUICK,
    LabelsGiven,
    Recipe,
    chosen_members,
)
from riskad.detectors.auto.more_labels import More, places_of_more
from riskad.detectors.auto.plan import FEATURES, Plan, plan_fit, sizes_of
from riskad.detectors.auto.remembering import Remembered, views_of
from riskad.detectors.auto.samples import (
    COMPARED,
    some_unlabelled,
    taken,
    thinned,
    to_learn_from,
    with_labelled,
    without_absent,
)
from riskad.detectors.auto.saying import SaysWhatItIs, say_late
from riskad.detectors.auto.scoring import ScoresRows
from riskad.detectors.auto.unseen_kinds import novelty_untested
from riskad.detectors.auto.views import VIEWS, EncodedRows, Views
from riskad.detectors.features.native import native_columns
from riskad.detectors.frame_detector import FrameDetector, check_encoder
from riskad.detectors.pretrained import PretrainedRAD
from riskad.metrics.folds import as_groups
from riskad.rows.blas_threads import one_blas_thread
from riskad.rows.encoding import fit_encoder
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.storage.fields import (
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    SEED,
    SHARE,
    DictOf,
    Either,
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


class AutoRAD(  # type: ignore[override]  # tells_novelty depends on its members
    HoldsOut, ScoresRows, SaysItsGraph, SaysWhatItIs, FrameDetector
):
    r"""Anomaly detection from few labels and contaminated unlabelled rows, without settings.

    Fits several kinds of detector to features learned from all rows, and averages their scores with
    weights from held-out labelled rows (see `riskad.detectors.auto`). Columns may have missing
    values (NaN), and columns of a pandas or polars frame may hold text, categories or dates. If
    only one kind of label is present, members use a risk that needs no other. With more than 20,000
    rows the unlabelled rows are sampled.

    The fitted model and its file contain standardised training rows, with which new rows are
    compared: up to 2,000 rows for each of two views, and the labelled rows (`kept_rows`).

    Parameters
    ----------
    budget : float, default=60.0
        Seconds of work that a fit may take, on one core of a typical machine. The work is planned
        in advance: with a small budget rows are sampled, fewer labels are held out, and slow
        members are left out. On a slow or busy machine the same work takes longer
        (`riskad.detectors.auto.budget`).
    deep : bool, default=False
        Whether to add a network (`DeepRAD`; needs torch) as a member.
    verbose : bool, default=False
        Whether to print each step.
    callback : callable, optional
        Called with a sentence at each step of a fit. It is not saved with the model.
    members : sequence of str or "quick", optional
        Names of the members to average (`riskad.detectors.auto` lists them). "quick" selects
        members that score rows quickly: a forest that learned the network's scores replaces it.
    n_jobs : int, optional
        Threads of a fit: how many folds are held out, and how many trees are grown, at a time. None
        uses all processors. The model does not depend on it.
    anomaly_rate : float, optional
        Share of anomalies among the unlabelled rows, if you know it. By default it is estimated
        (`riskad.decisions.anomaly_rate`).
    random_state : int, optional
        Seed. None means 0: the same data and budget give the same model.

    Attributes
    ----------
    members_ : dict
        The fitted detectors by name.
    weights_ : dict
        The weight of each member in the score; the weights sum to 1.
    leaderboard_ : list of dict
        The members, best first: the weight of each, its AUC on held-out labelled rows with its
        standard error (None if nothing could be held out), and the seconds it took. Members for
        which the budget left no time come last, with weight 0 and `left_out`.
    auc_ : Auc or None
        AUC of the weighted average on the labelled rows that were held out, with its interval and
        the numbers of rows: all, or fewer if the budget ran short. The labels of these rows were
        not used to fit members, nor to choose their settings and weights.
    kinds_auc_ : Auc or None
        AUC for labelled anomalies of a kind that fits have not seen (`riskad.detectors.auto.
        unseen_kinds`): clusters of them, held out one by one. None if there are too few.
    n_rows_ : int
        Number of rows that members learned from.
    n_distilled_ : int
        Number of unlabelled rows that the pretrained network scored for the distilled network.
    prior_ : float
        Share of normal rows among the unlabelled rows: as given, or estimated from labels and
        held-out scores. It is 0.8 if only one kind of label is present.
    offset_ : float
        Threshold on `score_samples`: the best list by probabilities
        (`riskad.decisions.thresholds.Likely`). If the labels do not determine probabilities, the
        share 1 - prior_ of the unlabelled rows is below it.
    calibration_ : Calibration
        What `set_threshold`, `p_values` and `anomaly_probability` are computed from.
    schema_ : TableSchema
        The texts of each text column, and the parts of dates that are used.
    evidence_ : AnomalyRateEncoder
        Evidence of the labelled anomalies on each text, for columns with many texts.
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
        "members": Maybe(Either(Text(choices=(QUICK,)), ListOf(Text(choices=MEMBERS)))),
        "verbose": FLAG,
        "anomaly_rate": Maybe(SHARE),
        "random_state": SEED,
        "n_rows_": COUNT,
        "n_distilled_": COUNT,
        "encoder_": Record(("OneHotImputer", "SingularVectors")),
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
                    "error": Maybe(Number(0)),
                    "seconds": Number(0),
                    "left_out": Optional(FLAG),
                }
            )
        ),
        "auc_": Maybe(Record(("Auc",))),
        "kinds_auc_": Maybe(Record(("Auc",))),
        "prior_": SHARE,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        encoder, views, members = (state[name] for name in ("encoder_", "views_", "members_"))
        d = check_encoder(state)
        require(all(v.n_features_in_ == d for v in views.values()), "views_: of other columns")
        require(set(views) == set(VIEWS), "views_: not all")
        native = native_columns(encoder, views["plain"])
        n_native = None if native is None else native.n_features_out_
        for name, member in members.items():
            recipe = MEMBERS[name]
            spans = views[recipe.view].slices_
            require(set(recipe.parts) <= set(spans), f"members_: {name!r} without its features")
            parts = recipe.parts_among(spans, n_native)
            widths = {part: span.stop - span.start for part, span in spans.items()}
            widths["native"] = n_native or 0
            require(set(parts) <= set(widths), f"members_: {name!r} without its features")
            width = sum(widths[part] for part in parts)
            require(member.n_features_in_ == width, f"members_: {name!r} of other features")
        for name in ("scales_", "weights_"):
            require(set(state[name]) == set(members), f"{name}: of other members")
        require(len(members) > 0, "members_: none")

    def __init__(
        self,
        *,
        budget: float = 60.0,
        deep: bool = False,
        members: str | Sequence[str] | None = None,
        verbose: bool = False,
        callback: Callable[[str], object] | None = None,
        n_jobs: int | None = None,
        anomaly_rate: float | None = None,
        random_state: int | None = None,
    ):
        self.budget = budget
        self.deep = deep
        self.members = members
        self.verbose = verbose
        self.callback = callback
        self.n_jobs = n_jobs
        self.anomaly_rate = anomaly_rate
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        label_source: Any = "unknown",
        sample_weight: Any = None,
    ) -> AutoRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, NaN, and in a frame text and dates.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        groups : array of shape (n_rows,), optional
            Group of each row, such as its customer. Rows of a group are held out together, and the
            interval of `auc_` counts groups instead of rows. A row with a blank group (None, NaN)
            is a group of its own. Copies of a row are one group in any case
            (`riskad.rows.equal_rows`).
        label_source : str or array of str, default="unknown"
            How rows were chosen for labelling: "random", "chosen" or "unknown", or one of these for
            each row. It affects the anomaly rate (`riskad.decisions.anomaly_rate`) alone.
        sample_weight : array of shape (n_rows,), optional
            Weight of each row in the fits of members that minimise a risk; only ratios of weights
            matter. A row with weight 0 is ignored. Features, the network, AUC and anomaly rate
            count every other row as one.

        Returns
        -------
        AutoRAD
            The fitted detector.
        """
        self._remembered: Remembered | None = None
        return self.refit(X, y, groups, label_source, sample_weight)

    def refit(
        self,
        X: Any,
        y: Any = None,
        groups: Any = None,
        label_source: Any = "unknown",
        sample_weight: Any = None,
    ) -> AutoRAD:
        """Fit again, for instance after labels have changed; gives the same model as `fit`.

        Features learned from the same rows are reused, as long as the model stays in memory.

        Parameters
        ----------
        X, y, groups, label_source, sample_weight
            As in `fit`.

        Returns
        -------
        AutoRAD
            The fitted detector.
        """
        clock = Clock(check_in_interval("budget", self.budget, 0, np.inf))
        with one_blas_thread(), quietly():
            self._fit(X, y, groups, label_source, sample_weight, clock)
        if clock.ran_out:
            warnings.warn(say_late(clock, self.leaderboard_), DataWarning, stacklevel=2)
        return self

    def _fit(
        self, X: Any, y: Any, groups: Any, label_source: Any, sample_weight: Any, clock: Clock
    ) -> None:
        matrix, codes, weight = self._check_training(X, y, sample_weight)
        groups = None if groups is None else as_groups(groups, len(codes))
        source = check_label_source(label_source, len(codes))
        if self.anomaly_rate is not None:
            given_rate(self.anomaly_rate)
        matrix, codes, groups, source, weight = without_absent(
            matrix, codes, groups, source, weight
        )
        groups = group_equal_rows(matrix, codes, groups)
        labels = LabelsGiven.of(codes)
        names = [name for name in self._names() if MEMBERS[name].learns_from(labels)]
        seen = self._learn_evidence(matrix, codes, weight, groups)
        most = rows_to_learn_from(self.budget, matrix.shape[1])
        rows = to_learn_from(codes, *most, self._seed)
        own_groups, own_weight = taken(rows, groups, weight)
        repeats = repeats_label(codes[rows], number_copies(matrix[rows], codes[rows]))
        given = Given(matrix[rows], codes[rows], own_groups, own_weight, repeats)
        self.n_rows_ = len(rows)
        self._say(f"Learning features from {len(rows):,} rows")
        self.encoder_: Any = fit_encoder(seen[rows], self.schema_.levels, self._seed)
        table = EncodedRows.of(self.encoder_, seen[rows])
        known = getattr(self, "_remembered", None)
        views, self._remembered = views_of(known, table, given.codes, names, self._seed)
        self.views_ = dict(views.learned)
        more = places_of_more(codes, groups, rows)
        if len(more):
            columns = views.columns_of(EncodedRows.of(self.encoder_, seen[more]))
            weights = None if weight is None else weight[more]
            given = given._replace(more=More(columns, codes[more], weights))
        source = source if isinstance(source, str) else source[rows]
        self._average(views, given, names, source, clock)

    def _average(
        self, views: Views, given: Given, names: Sequence[str], source: Any, clock: Clock
    ) -> None:
        """Fit members to features, weight them by held-out labels, and set the threshold."""
        codes, more = given.codes, given.more
        widths = self.encoder_.n_features_out_, views.seen_by_teacher().shape[1]
        sizes = sizes_of(codes, *widths, 0 if more is None else len(more.codes))
        plan = plan_fit(sizes, names, self.budget)
        clock.expect(plan.seconds_in(self._threads))
        clock.finish(plan.steps[FEATURES])
        seconds = self._fit_members(views, given, plan, clock)
        decided = some_unlabelled(codes, plan.decided)
        compared = thinned(decided, COMPARED)
        self._say(f"Scoring {len(decided):,} rows{clock.in_words()}")
        scores = self._standardise(self._as_new_rows(views, given, decided), decided, compared)
        clock.finish(sum(plan.steps[name] for name in plan.members if MEMBERS[name].pretrained))
        held_out = self._hold_out(views, given, compared, plan, clock)
        self._weigh(held_out, seconds, names, int((codes == ANOMALY).sum()))
        fitted = np.full(len(codes), np.nan)
        fitted[decided] = sum(w * scores[name] for name, w in self.weights_.items())
        self._decide(fitted, codes, held_out, source)

    def _say(self, what: str) -> None:
        if self.verbose:
            print(what, flush=True)
        if self.callback is not None:
            self.callback(what)

    def __getstate__(self) -> dict[str, Any]:
        """The state without the callback, which is code, and without the features of rows."""
        state = {**super().__getstate__(), "callback": None}
        state.pop("_remembered", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)  # `predict_proba` tells two kinds
        return tags

    # --- members --------------------------------------------------------------------------

    def _names(self) -> list[str]:
        """Members that are requested and whose libraries are installed."""
        asked = chosen_members(self.members)
        had = [name for name in asked if MEMBERS[name].can_be_had(self)]
        if isinstance(self.members, str) or self.members is None or had == asked:
            return had
        missing = next(name for name in asked if name not in had)
        raise MissingLibrary(
            f"The member {missing!r} needs {MEMBERS[missing].needs or 'deep=True'}, which is not "
            "there. Install it, or leave the member out."
        )

    def _fit_members(
        self, views: Views, given: Given, plan: Plan, clock: Clock
    ) -> dict[str, float]:
        """Fit the planned members; returns the seconds that each took."""
        self.members_: dict[str, Any] = {}
        self.n_distilled_ = 0
        codes, seconds = given.codes, dict[str, float]()
        for name in plan.members:
            if seconds and not clock.allows_more():
                break
            self._say(f"Fitting {name}{clock.in_words()}")
            start = time.perf_counter()
            F, recipe = views.seen_by(name), MEMBERS[name]
            rows, target = self._lesson(recipe, views, codes, plan.distilled)
            detector = self._build(recipe, F, given)
            if recipe.pretrained:
                detector.set_params(unlabelled=plan.read)
            fit = given.more.before(detector) if recipe.all_labelled and given.more else detector
            self.members_[name] = fit_weighted(fit, F[rows], target, given.weight, rows)
            seconds[name] = time.perf_counter() - start
            clock.finish(0.0 if recipe.pretrained else plan.steps[name])
        return seconds

    def _build(self, recipe: Recipe, F: np.ndarray, given: Given) -> Any:
        detector = recipe.build(LabelsGiven.of(given.codes), self._seed)
        if "n_jobs" in detector.get_params():
            # Threads of LightGBM spin while they wait. With 50,000 rows two took 1.3 s where one
            # took 2.0 s, but beside two busy processes over a minute where one took 3.4 s.
            detector.set_params(n_jobs=1 if recipe.needs == "lightgbm" else self._threads)
        if recipe.tune is not None:
            detector.set_params(**recipe.tune(F, given.codes, self._seed))
        return detector

    def _lesson(
        self, recipe: Recipe, views: Views, codes: np.ndarray, distilled: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Positions of the rows to learn from, and their targets: labels or scores.

        Scores are those that a pretrained network gives to unlabelled rows.
        """
        if not recipe.distilled:
            rows = with_labelled(codes, recipe.most_rows)
            return rows, codes[rows]
        F, rows = views.seen_by_teacher(), some_unlabelled(codes, distilled)
        self.n_distilled_ = len(rows)
        read = min(MOST_READ, distilled)
        teacher = PretrainedRAD(unlabelled=read, random_state=self._seed).fit(F, codes)
        return rows, teacher.score_samples(F[rows])

    def _as_new_rows(self, views: Views, given: Given, rows: np.ndarray) -> Views:
        """The features of some rows as `score_samples` will see them.

        While members learn, the evidence on the levels of a category is cross-fitted and weaker.
        A threshold must be set on scores of the kind that it is applied to.
        """
        if not self.evidence_.places:
            return views.take(rows)
        seen = self.evidence_.transform(given.matrix[rows])
        return Views.of(self.views_, EncodedRows.of(self.encoder_, seen))

    def _standardise(
        self, views: Views, decided: np.ndarray, compared: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Scores of the decided rows by each member; mean and spread set the member's scale."""
        few = np.isin(decided, compared)
        self.scales_, scores = {}, {}
        for name, detector in self.members_.items():
            found = detector.score_samples(views.seen_by(name))
            mean, spread = self.scales_[name] = mean_and_spread(found[few])
            scores[name] = (found - mean) / spread
        return scores

    # --- weights, threshold ---------------------------------------------------------------

    def _weigh(
        self,
        held_out: HeldOut | None,
        seconds: Mapping[str, float],
        names: Sequence[str],
        n_anomaly: int,
    ) -> None:
        aucs = {name: None if held_out is None else held_out.auc(name) for name in self.members_}
        if held_out is None:
            self.weights_ = member_weights(aucs, n_anomaly, novelty_untested(n_anomaly))
        else:
            self.weights_ = held_out.weights()
        left_out = [name for name in names if name not in self.members_]
        for name in left_out:
            self._say(f"No time left for {name}")
        self.leaderboard_ = leaderboard(self.weights_, aucs, seconds, left_out)
        self.auc_ = None if held_out is None else held_out.combined_auc()

    def _decide(
        self, fitted: np.ndarray, codes: np.ndarray, held_out: HeldOut | None, source: Any
    ) -> None:
        """Set the anomaly rate, the threshold, and the calibration for other thresholds."""
        told = (self.anomaly_rate, source, self._seed)
        self.calibration_, self.prior_ = calibrated(fitted, codes, held_out, *told)
        self.offset_ = -self.calibration_.zero
        self.set_threshold(self.default_threshold)

    # --- description ----------------------------------------------------------------------

    def evidence_in_words(self) -> str:
        """Describe how the held-out rows were scored."""
        return "scored by members that were fitted, tuned and weighted without its label"
