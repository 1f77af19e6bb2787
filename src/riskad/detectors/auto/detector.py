"""The class `AutoRAD`: members over views of the columns, combined by held-out labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import ClassifierTags
from sklearn.utils.validation import check_is_fitted

from riskad.core.checks import DataWarning, InputError, check_in_interval
from riskad.core.labels import ANOMALY, UNLABELLED, count_labels
from riskad.core.risks import get_risk
from riskad.decisions.anomaly_rate import as_rate_estimate, check_label_source
from riskad.decisions.calibration import Calibration, quietly
from riskad.decisions.thresholds import Likely, zero_one_threshold
from riskad.detectors.auto.cross_fit import (
    CrossFitter,
    ExtraLabelled,
    HeldOut,
    MemberRows,
    extra_labelled,
)
from riskad.detectors.auto.members import (
    MEMBER_TYPES,
    MEMBERS,
    Clock,
    Plan,
    Sizes,
    available_members,
    plan_fit,
    rows_within_budget,
    without_lightgbm,
)
from riskad.detectors.auto.novelty import NOVELTY
from riskad.detectors.auto.views import (
    COMPARED,
    VIEWS,
    Member,
    Views,
    mean_and_spread,
    rows_around,
    sample_rows,
    some_unlabelled,
    thinned,
    with_labelled,
)
from riskad.detectors.base import RandomState, check_whole
from riskad.detectors.description import DetectorTags
from riskad.detectors.features.maps import beside
from riskad.detectors.features.union import NativeColumns
from riskad.detectors.frame_detector import ENCODER, FrameDetector
from riskad.detectors.pretrained import PretrainedRAD
from riskad.files import fields
from riskad.files.fields import State, require
from riskad.metrics.folds import as_groups
from riskad.rows.arrays import GraphNumbers
from riskad.rows.encoding import fit_encoder
from riskad.rows.engine import one_blas_thread, usable_cpus
from riskad.rows.equal_rows import group_copies, number_copies, repeats_label

if TYPE_CHECKING:
    from riskad.detectors.compressed import CompressedRAD

_BLOCK = 5_000  # rows scored at a time: their kernels, the widest part, take 24 MB
_LARGEST = 1e150
_CLEARLY_LOWER = 0.05  # difference of AUCs that counts as clear
# Fields of model files.
_MEMBER = fields.Text(choices=MEMBERS)
_VIEW = fields.Record(("LearnedFeatures",), {"n_features_in_": "encoded"})
_LEADERBOARD_ROW = fields.Fixed(
    {
        "member": _MEMBER,
        "weight": fields.SHARE,
        "auc": fields.Maybe(fields.SHARE),
        "error": fields.Maybe(fields.Number(0)),
        "seconds": fields.Number(0),
        "left_out": fields.Optional(fields.FLAG),
    }
)


class AutoRAD(FrameDetector):
    """Anomaly detection from few labels and contaminated unlabelled rows, without settings.

    Averages several kinds of detector over features learned from all rows, weighted by held-out
    labelled rows (`riskad.detectors.auto`). Columns may have missing values (NaN), and those of a
    pandas or polars frame may hold text, categories or dates. One kind of label is enough. The
    model and its file contain up to 2,000 standardised training rows for each of two views, and the
    labelled rows.

    Parameters
    ----------
    budget : float, default=60.0
        Seconds of work on one core of a typical machine, planned in advance: with a small budget
        rows are sampled, fewer labels are held out, and slow members left out.
    contamination : float, optional
        Share of anomalies among the unlabelled rows. By default it is estimated.
    quick : bool, default=False
        Whether to learn a student at the end of a fit: see `compress`.
    device : str, optional
        Where torch computes the network, such as "cuda"; by default NumPy does, on processors.
    n_jobs : int, optional
        Threads of a fit; None and -1 use all processors. The model does not depend on it.
    callback : callable, optional
        Called with a sentence at each step of a fit, such as `print`. Not saved with the model.
    random_state : int, RandomState or None, default=0
        Seed. With a number, the same data and budget give the same model.

    Attributes
    ----------
    members_, weights_ : dict
        The fitted detectors by name, and their weights in the score, which sum to 1.
    leaderboard_ : list of dict
        Members, best first: weight, AUC on held-out labelled rows with its error, and seconds.
    auc_ : Auc or None
        AUC on labelled rows that were held out of fits, settings and weights.
    kinds_auc_ : Auc or None
        AUC for clusters of labelled anomalies whose like fits have not seen.
    prior_ : float
        Share of normal rows among the unlabelled rows, given or estimated.
    offset_ : float
        Threshold on `score_samples`.
    student_ : CompressedRAD or None
        What `compress` learned.

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

    _evidence_in_words = "scored by members that were fitted, tuned and weighted without its label"

    budget: Annotated[float, fields.POSITIVE]
    contamination: Annotated[Any, fields.Maybe(fields.SHARE)]
    n_rows_: Annotated[int, fields.COUNT]
    encoder_: Annotated[Any, ENCODER]
    views_: Annotated[Any, fields.DictOf(fields.Text(choices=VIEWS), _VIEW)]
    members_: Annotated[
        dict[str, Member], fields.DictOf(_MEMBER, fields.Record(MEMBER_TYPES), nonempty=True)
    ]
    scales_: Annotated[Any, fields.DictOf(_MEMBER, fields.Tuple(fields.NUMBER, fields.POSITIVE))]
    weights_: Annotated[Any, fields.DictOf(_MEMBER, fields.SHARE)]
    leaderboard_: Annotated[Any, fields.ListOf(_LEADERBOARD_ROW)]
    auc_: Annotated[Any, fields.Maybe(fields.Record(("Auc",)))]
    kinds_auc_: Annotated[Any, fields.Maybe(fields.Record(("Auc",)))]
    prior_: Annotated[float, fields.SHARE]
    quick: Annotated[bool, fields.FLAG]
    student_: Annotated[
        Any, fields.Maybe(fields.Record(("CompressedRAD",), {"n_features_in_": "n_features_in_"}))
    ]

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        encoder, views, members = state["encoder_"], state["views_"], state["members_"]
        require(set(views) == set(VIEWS), "views_: not all")
        native = NativeColumns.of(encoder, views["plain"])
        for name, member in members.items():
            recipe = MEMBERS[name]
            spans = views[recipe.view].slices_
            require(set(recipe.parts) <= set(spans), f"members_: {name!r} without its features")
            widths = {part: span.stop - span.start for part, span in spans.items()}
            widths["native"] = 0 if native is None else native.n_features_out_
            width = sum(widths.get(part, 0) for part in recipe.parts_among(spans, native))
            require(member.n_features_in_ == width, f"members_: {name!r} of other features")
        for name in ("scales_", "weights_"):
            require(set(state[name]) == set(members), f"{name}: of other members")

    def __init__(
        self,
        *,
        budget: float = 60.0,
        contamination: float | None = None,
        quick: bool = False,
        device: str | None = None,
        n_jobs: int | None = None,
        callback: Callable[[str], object] | None = None,
        random_state: RandomState = 0,
    ):
        self.budget = budget
        self.contamination = contamination
        self.quick = quick
        self.device = device
        self.n_jobs = n_jobs
        self.callback = callback
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        label_source: Any = "unknown",
    ) -> AutoRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array, CSR matrix or frame of shape (n_rows, n_features)
            Training rows: numbers, NaN, and in a frame text and dates.
        y : array of shape (n_rows,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        sample_weight : array of shape (n_rows,), optional
            Relative weight of rows in members that minimise a risk. 0 leaves a row out; features,
            the network, AUC and anomaly rate count every other row as one.
        groups : array of shape (n_rows,), optional
            Rows of a group, such as a customer, are held out together, and its anomalies count
            as one in the weights. A row with a blank group (None, NaN) is a group of its own.
            Copies of a row are one group in any case.
        label_source : str or array of str, default="unknown"
            How rows were chosen for labelling: "random", "chosen" or "unknown", or one of these for
            each row. It affects the anomaly rate, not the ranking.
        """
        clock = Clock(check_in_interval("budget", self.budget, 0, np.inf))
        with one_blas_thread(), quietly():
            self._fit(X, y, sample_weight, groups, label_source, clock)
            self.student_ = None
            if self.quick:
                self.compress()
        if (reason := without_lightgbm()) is not None:
            warnings.warn(
                f"{reason} With many labels this costs accuracy.", DataWarning, stacklevel=2
            )
        if clock.ran_out:
            absent = f", and lacks {self._left_out()}" if self._left_out() else ""
            warnings.warn(
                f"The fit was still running after {clock.seconds:,.0f} s and was cut short: it has "
                f"no more folds of held-out labels{absent}. The same data gives another model "
                "where there is more time. Give it a quieter machine, fewer rows or columns, or a "
                "smaller budget, which plans less work.",
                DataWarning,
                stacklevel=2,
            )
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, groups: Any, label_source: Any, clock: Clock
    ) -> None:
        matrix, codes, weight = self._check_training(X, y, sample_weight)
        values = matrix.data if issparse(matrix) else matrix
        if (np.abs(values) > _LARGEST).any():
            raise InputError(
                f"X has values beyond {_LARGEST:g}, whose squares are too large to compute with; "
                "rescale its columns."
            )
        groups = None if groups is None else as_groups(groups, len(codes))
        # Before any work: a wrong word would be found after a minute.
        if self.n_jobs not in (None, -1):
            check_whole("n_jobs", self.n_jobs)
        if not (self.callback is None or callable(self.callback)):
            raise InputError(
                f"callback must be a function that takes a sentence, such as print, got "
                f"{self.callback!r}."
            )
        source = check_label_source(label_source, len(codes))
        if self.contamination is not None:
            as_rate_estimate(self.contamination)
        if weight is not None and not (weight > 0).all():
            present = np.flatnonzero(weight > 0)
            matrix, codes, weight = matrix[present], codes[present], weight[present]
            groups = None if groups is None else groups[present]
            source = source if isinstance(source, str) else source[present]
        copies, anomalies, n_groups = number_copies(matrix, codes), codes == ANOMALY, None
        if groups is not None:
            n_distinct = anomalies.sum() if copies is None else len(np.unique(copies[anomalies]))
            n_groups = len(np.unique(groups[anomalies]))
            # Groups of copies alone, such as `fit_table` gives, are found below in any case.
            n_groups = n_groups if n_groups < n_distinct else None
        # Copies count as one group from here on: they must not be in two folds.
        groups = group_copies(copies, codes, groups)
        recipes = available_members(count_labels(codes))

        # Features, from all rows or a sample of them
        # From all rows, before any is left out: evidence uses every labelled anomaly.
        with_evidence = self._learn_evidence(matrix, codes, weight, groups)
        most, fewest_unlabelled = rows_within_budget(self.budget, matrix.shape[1])
        rows = sample_rows(codes, most, fewest_unlabelled, self._seed)
        self.n_rows_ = len(rows)
        self._log(f"Learning features from {len(rows):,} rows")
        self.encoder_ = fit_encoder(with_evidence[rows], self.schema_.levels, self._seed)
        views = Views.fit(self.encoder_, with_evidence[rows], recipes.values(), self._seed)
        self.views_ = dict(views.learned)
        extra, places = None, extra_labelled(codes, groups, rows)
        if len(places):
            extra_views = Views(self.views_, self.encoder_, with_evidence[places])
            extra_weight = None if weight is None else weight[places]
            # Only members that learn from all labelled rows read these, and see plain columns.
            extra = ExtraLabelled(extra_views.part("plain", "columns"), codes[places], extra_weight)
        training = MemberRows(
            matrix=matrix[rows],
            codes=codes[rows],
            groups=None if groups is None else groups[rows],
            weight=None if weight is None else weight[rows],
            views=views,
            repeats=repeats_label(codes[rows], number_copies(matrix[rows], codes[rows])),
            extra=extra,
            n_groups=n_groups,
        )

        # Members, within the budget
        n_columns, slices = self.encoder_.n_features_out_, self.views_["plain"].slices_
        sizes = Sizes.of(training.codes, n_columns, slices, n_extra=len(places))
        plan = plan_fit(sizes, recipes, self.budget)
        clock.planned = plan.seconds(self._threads)
        # The plan's seconds, not those that passed: what is left to do is known in these.
        clock.finish(plan.feature_seconds)
        seconds = self._fit_members(training, plan, clock)

        # Their scores on unlabelled rows, and on labelled rows that fits have not seen
        decided = some_unlabelled(training.codes, plan.decided)
        compared = thinned(decided, COMPARED)
        self._log(f"Scoring {len(decided):,} rows{clock.in_words()}")
        scores = self._standard_scores(training, decided, np.isin(decided, compared))
        network = (plan.member_seconds[name] for name in self.members_ if recipes[name].pretrained)
        clock.finish(sum(network))  # which does its work when it scores
        places = np.union1d(np.flatnonzero(training.codes != UNLABELLED), compared)
        fitter = CrossFitter(
            training.take(places), self.members_, self.encoder_, self.evidence_, self._seed
        )
        held_out = fitter.hold_out(places, plan, clock, self._threads, self._log)

        # Weights and decisions
        self.weights_ = held_out.weights()
        self.leaderboard_ = held_out.leaderboard(self.weights_, seconds)
        self.auc_, self.kinds_auc_ = held_out.auc(held_out.combined()), held_out.kinds_auc
        for name in [name for name in recipes if name not in self.members_]:
            self._log(f"No time left for {name}")
            none = {"weight": 0.0, "auc": None, "error": None, "seconds": 0.0, "left_out": True}
            self.leaderboard_.append({"member": name, **none})
        # Positions are those of all training rows, so that labels and sources can be indexed alike.
        fitted = np.full(len(rows), np.nan)
        fitted[decided] = sum(w * scores[name] for name, w in self.weights_.items())
        source = source if isinstance(source, str) else source[rows]
        self._decide(fitted, training.codes, held_out, source)

    @property
    def _threads(self) -> int:
        return usable_cpus() if self.n_jobs in (None, -1) else int(self.n_jobs)

    def _log(self, sentence: str) -> None:
        if self.callback is not None:
            self.callback(sentence)

    def _fit_members(self, training: MemberRows, plan: Plan, clock: Clock) -> dict[str, float]:
        """Fit the planned members; returns the seconds that each took."""
        self.members_ = {}
        codes, labels = training.codes, count_labels(training.codes)
        seconds: dict[str, float] = {}
        for name in plan.member_seconds:
            # At least one member is always fitted: a model without any could not score.
            if seconds and not clock.allows_more():
                break
            self._log(f"Fitting {name}{clock.in_words()}")
            start = time.perf_counter()
            recipe = MEMBERS[name]
            F, detector = training.views.features_for(recipe), recipe.build(labels, self._seed)
            if "n_jobs" in detector.get_params():
                # Threads of LightGBM spin while they wait. With 50,000 rows two took 1.3 s where
                # one took 2.0 s, but beside two busy processes over a minute where one took 3.4 s.
                threads = 1 if recipe.needs_lightgbm else self._threads
                detector.set_params(n_jobs=threads)
            if recipe.tune is not None:
                detector.set_params(**recipe.tune(F, codes, self._seed))
            if recipe.pretrained:
                detector.set_params(unlabelled=plan.read, device=self.device)
            rows = with_labelled(codes, recipe.most_rows)
            self.members_[name] = training.fit(detector, recipe, F, rows)
            seconds[name] = time.perf_counter() - start
            clock.finish(0.0 if recipe.pretrained else plan.member_seconds[name])
        return seconds

    def _standard_scores(
        self, training: MemberRows, rows: np.ndarray, compared: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Scores of rows by each member, whose mean and spread over compared rows set its scale."""
        # While members learn, the evidence on the levels of a category is cross-fitted and weaker.
        # A threshold must be set on scores of the kind that it is applied to.
        if self.evidence_.places:
            with_evidence = self.evidence_.transform(training.matrix[rows])
            views = Views(self.views_, self.encoder_, with_evidence)
        else:
            views = training.views.take(rows)
        self.scales_, standard = {}, {}
        for name, detector in self.members_.items():
            scores = detector.score_samples(views.features_for(MEMBERS[name]))
            mean, spread = self.scales_[name] = mean_and_spread(scores[compared])
            standard[name] = (scores - mean) / spread
        return standard

    def _decide(
        self, fitted: np.ndarray, codes: np.ndarray, held_out: HeldOut, label_source: Any
    ) -> None:
        """Set rate, threshold and calibration; `fitted` scores are NaN where not needed."""
        unseen = np.full(len(codes), np.nan)
        for places, scores in held_out.on_scale_of(fitted):
            unseen[places] = scores
        n_unlabelled = int((codes == UNLABELLED).sum())
        rows = np.flatnonzero((codes != UNLABELLED) | ~np.isnan(fitted))
        # Unlabelled rows that nobody scored take no part: of many, a sample decides.
        unseen, fitted, codes = unseen[rows], fitted[rows], codes[rows]
        source = label_source if isinstance(label_source, str) else label_source[rows]
        calibration = Calibration.of(
            -unseen,
            codes,
            -fitted,
            zero=0.0,
            pi_n=self.contamination,
            random_state=self._seed,
            label_source=source,
        )
        # Scores of some unlabelled rows stand for all of them.
        calibration = replace(calibration, n_unlabelled=n_unlabelled)
        if calibration.rate is None:  # all rows are labelled; neither 0 nor 1
            self.prior_ = 1 - (int((codes == ANOMALY).sum()) + 0.5) / (len(codes) + 1)
        else:
            self.prior_ = 1 - calibration.pi_n
        if calibration.rate is None or not calibration.has_both_kinds:
            scores = fitted[codes == UNLABELLED]
            scores = scores if len(scores) else fitted[~np.isnan(fitted)]
            # Without both kinds held out no risk can be measured: the rate alone sets the
            # threshold.
            self.offset_ = float(np.quantile(scores, 1 - self.prior_))
        else:  # the lowest zero-one risk of held-out rows
            if not (codes[~np.isnan(unseen)] == UNLABELLED).any():  # so few that none was held out
                unseen = np.where(codes == UNLABELLED, fitted, unseen)
            present, risk = ~np.isnan(unseen), get_risk("rad", prior=self.prior_)
            self.offset_ = zero_one_threshold(risk, unseen[present], codes[present])
        self.calibration_ = replace(calibration, zero=-self.offset_)
        # Last, when calibration and rate are known.
        self.set_threshold(Likely())

    # Scoring does not change the detector: threads may share one.
    def _scores(self, X: Any) -> np.ndarray:
        with one_blas_thread():
            return np.concatenate([self._average(rows) for rows in self._blocks(X)])

    def _blocks(self, X: Any) -> Iterator[Views]:
        for start in range(0, X.shape[0], _BLOCK):
            rows = self._append_evidence(X[start : start + _BLOCK])
            yield Views(self.views_, self.encoder_, rows)

    def _average(self, rows: Views) -> np.ndarray:
        total = np.zeros(len(rows))
        for name, detector in self.members_.items():
            mean, spread = self.scales_[name]
            # The device is a matter of this machine: set at each use, not in the fit.
            if isinstance(detector, PretrainedRAD):
                detector.device = self.device
            scores = rows.scores_by(MEMBERS[name], detector)
            total += self.weights_[name] * (scores - mean) / spread
        return total

    @property
    def _detector_tags(self) -> DetectorTags:
        return DetectorTags(
            accepts_frames=True,
            cross_fits=True,
            reports_progress=True,
            slow_to_score=True,
            needs_rows=True,
            supports_novelty=NOVELTY in getattr(self, "members_", {}),  # if there was time for it
            threshold=Likely(),
        )

    def novelty(self, X: Any) -> np.ndarray:
        """Return how unlike all training rows each row is, labelled or not.

        It is 0 for a usual row, in standard deviations over unlabelled rows. A kind of anomaly that
        nobody labelled may have a high novelty and a low `anomaly_score`.
        """
        novelty = self._anomaly_score_and_novelty(X)[1]
        if novelty is None:
            raise InputError(
                "This model had no time to learn novelty. Fit it again, with a larger budget."
            )
        return novelty

    def _anomaly_score_and_novelty(self, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
        check_is_fitted(self)
        if NOVELTY not in self.members_:
            return super()._anomaly_score_and_novelty(X)
        mean, spread = self.scales_[NOVELTY]
        scores, outlier_scores = [], []
        with one_blas_thread():
            for rows in self._blocks(self._check_rows(X, reset=False)):
                scores.append(self._average(rows))
                outlier_scores.append(rows.scores_by(MEMBERS[NOVELTY], self.members_[NOVELTY]))
        return -np.concatenate(scores), (mean - np.concatenate(outlier_scores)) / spread

    def compress(self) -> CompressedRAD:
        """Let boosted trees learn the scores, and return them as a `CompressedRAD`.

        The model keeps this student in `student_`, and stores it in its file. It has the same
        thresholds and probabilities, but no training rows and no novelty.
        """
        from riskad.detectors.compressed import CompressedRAD

        check_is_fitted(self)
        self._log("Learning a student")
        self.student_ = CompressedRAD(random_state=self._seed)._learn(self)
        return self.student_._deciding_as(self)

    @property
    def _graph_tolerance(self) -> float:
        """More than usual if a member with much weight computes in single precision."""
        members = (
            self.weights_[name] / self.scales_[name][1] * getattr(detector, "_graph_tolerance", 0.0)
            for name, detector in self.members_.items()
        )
        return max(super()._graph_tolerance, sum(members))

    def _onnx_scores(self, graph: Any, rows: str, sparse: bool) -> str:
        return self._onnx_member_scores(graph, rows)[0]

    def _onnx_scores_and_novelty(self, graph: Any, rows: str, sparse: bool) -> tuple[str, str]:
        average, standard = self._onnx_member_scores(graph, rows)
        # Standardised scores have a column for each member, in their order.
        place = np.array(list(self.members_).index(NOVELTY))
        return average, graph.node("Neg", graph.node("Gather", standard, place, axis=1))

    def _onnx_member_scores(self, graph: Any, rows: str) -> tuple[str, str]:
        """The average, and the standardised scores of the members, a column each."""
        table = self._graph_rows(graph, rows)
        numbers = self.encoder_.onnx_rows(graph, table)
        views = {name: view.onnx_parts(graph, numbers) for name, view in self.views_.items()}
        native = NativeColumns.of(self.encoder_, self.views_["plain"])
        if native is not None:
            columns = views["plain"]["columns"]
            views["plain"]["native"] = native.onnx_columns(graph, columns, table)
        features: dict[tuple[str, ...], str] = {}
        scores = []
        for name, detector in self.members_.items():
            recipe = MEMBERS[name]
            parts = recipe.parts_among(self.views_[recipe.view].slices_, native)
            key = (recipe.view, *parts)
            if key not in features:
                features[key] = beside(graph, [views[recipe.view][part] for part in parts])
            score = detector._onnx_scores(graph, features[key], False)
            scores.append(graph.node("Reshape", score, np.array([-1, 1])))
        mean, spread = np.array([self.scales_[name] for name in self.members_]).T
        standard = ((GraphNumbers(graph, beside(graph, scores)) - mean) / spread).node
        weights = np.array([self.weights_[name] for name in self.members_])
        return graph.node("MatMul", standard, weights), standard

    def _trial_rows(self, rng: np.random.Generator, n_rows: int) -> np.ndarray:
        return rows_around(self.encoder_, self.views_["plain"], self.n_features_in_, rng, n_rows)

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {
            "leaderboard": self.leaderboard_,
            "prior": self.prior_,
            "rows": self.n_rows_,
        }

    def _describe_in_words(self) -> list[str]:
        learners, kinds, auc = [*self.members_.keys() - {NOVELTY}], self.kinds_auc_, self.auc_
        labels = "without held-out labels to weight them by"
        labels = labels if auc is None else "weighted by held-out labels"
        sentences = [f"average of {len(self.members_)} kinds of detector, {labels}"]
        if len(learners) == 1:
            sentences = [f"one kind of detector ({learners[0]}); there was no time for others"]
        if left_out := self._left_out():
            sentences.append(f"left out for lack of time (budget={self.budget:g}): {left_out}")
        if len(learners) > 1:
            if kinds is not None and auc is not None and kinds.value <= auc.value - _CLEARLY_LOWER:
                sentences.append(
                    "new kinds of anomaly may rank low: labelled anomalies of a kind that fits had "
                    f"not seen have an AUC of {kinds.value:.2f} (all others {auc.value:.2f}); look "
                    "at novelty, too"
                )
            sentences.append(f"learned from {self.n_rows_:,} rows")
        if self.student_ is not None:
            sentences.append(f"quick scores by trees, {self.student_.fidelity_.in_words()}")
        return sentences

    def _left_out(self) -> str:
        return ", ".join(row["member"] for row in self.leaderboard_ if "left_out" in row)

    def _kept_rows(self) -> int:
        views = sum(view.kept_rows() for view in self.views_.values())
        return views + sum(member._kept_rows() for member in self.members_.values())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags(multi_class=False)  # `predict_proba` tells two kinds
        return tags
