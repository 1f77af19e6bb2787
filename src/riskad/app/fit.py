"""Fit a detector on a table, in memory or in files, and report what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.asked import Asked
from riskad.app.capacity import CapacityPlan, asked_rule, plan_capacity
from riskad.app.evidence import Evidence, Known, find_evidence, groups_of, say_held_out
from riskad.app.explain import ColumnEffect, explain_fit
from riskad.app.fit_rows import check_dense, join_judged, judge, largest, note_of_rows
from riskad.app.fit_warnings import say_warnings
from riskad.app.inspect import plain_parameters
from riskad.app.label_sources import column_of_sources, read_sources, with_rate
from riskad.app.noticed import NOTICED, Progress
from riskad.app.over_time import Period, Times, judge_later_rows
from riskad.app.reasons import Reasons, choose_usual_row
from riskad.app.results import (
    RESULT_COLUMNS,
    Suspect,
    check_not_scored,
    describe_left_out,
    earlier_results,
    free_name,
    own_decision,
    pick_features,
    score_columns,
    score_rows,
    suspects_of,
    with_group,
)
from riskad.app.review import (
    ReviewReport,
    count_groups,
    review_rows,
    review_table,
)
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts
from riskad.decisions.calibration import Calibration
from riskad.decisions.drift import remember_unlabelled
from riskad.decisions.ranking_metrics import Auc
from riskad.decisions.thresholds import Threshold
from riskad.detectors.registry import make_detector
from riskad.rows.engine import Engine
from riskad.rows.equal_rows import group_equal_rows, number_copies, repeats_label
from riskad.tables.labelled import KeptRows, LabelColumn, LabelledTable, open_table
from riskad.tables.notes import catch_kinds
from riskad.tables.preparation import TablePreparer

__all__ = ["Fit", "FitReport", "fit_table"]

_RANKED_ROWS = 10_000  # kept for tables that do not fit in memory


@dataclass(frozen=True)
class FitReport:
    """What `fit_table` did and found."""

    source: str
    rows: int
    label: str
    id: str | None
    labels: LabelCounts
    columns: dict[str, str]
    preparation: list[str]
    settings: dict[str, Any]
    fitted: dict[str, Any]
    said: list[str]
    evidence: str
    effects: list[ColumnEffect]
    auc: Auc | None
    why_no_auc: str
    unlabelled_flagged: int
    top: list[Suspect]
    warnings: list[str] = field(default_factory=list)
    rule: str = "risk"
    rate: tuple[float, float, float] | None = None
    rate_rests_on: str = ""
    labels_random_p: float | None = None
    model: str = "ShallowRAD"
    effects_of: str = ""
    reading: list[str] = field(default_factory=list)
    over_time: list[Period] = field(default_factory=list)
    capacity: CapacityPlan | None = None
    review: ReviewReport | None = None
    asked: Asked | None = None

    def notes(self) -> dict[str, Any]:
        """Return the notes for the model file: everything but the rows themselves.

        What a review of rows finds can be computed again from the model's calibration.
        """
        left_out = {"top", "review"} | ({"over_time"} if not self.over_time else set())
        return {"fit": {key: value for key, value in asdict(self).items() if key not in left_out}}


@dataclass(frozen=True)
class Fit:
    """A fitted pipeline, the report, and the unlabelled rows, the most suspicious first.

    `reasons` are for the first of these rows: as many as requested, if time allowed.
    `held_out` are anomaly scores of labelled rows by fits that have not seen them, NaN for other
    rows; None if the rows are in files.
    """

    model: Pipeline
    report: FitReport
    ranked: pl.DataFrame
    reasons: Reasons | None = None
    held_out: NDArray[np.float64] | None = None


Fitted: TypeAlias = Callable[[Pipeline, FitReport], object]


def fit_table(
    table: Any,
    labels: LabelColumn,
    *,
    id: str | None = None,
    drop: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    group: str | None = None,
    time: str | None = None,
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    threshold: Threshold | str | None = None,
    capacity: str | int | None = None,
    anomaly_rate: float | None = None,
    label_source: Any = "unknown",
    forget_rows: bool = False,
    top: int = 10,
    source: str = "table",
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
    fitted: Fitted = lambda model, report: None,
) -> Fit:
    """Fit a detector on a table in which one column holds the labels.

    A table in memory is read once. Parquet files need not fit in memory: they are read in batches,
    several times. Labels, kinds of columns, their levels and blanks are found on all rows, medians
    on a sample. Detectors that can use any source of rows (`ShallowRAD`) learn from all of them.
    Others learn from rows in memory: all labelled rows and a random sample of the unlabelled rows,
    at most 100,000 of each kind. Calibration, AUC and effects of columns are computed on these
    rows. All unlabelled rows are scored and counted.

    Parameters
    ----------
    table
        A frame of polars, pandas, pyarrow or DuckDB (`riskad.tables.reading.read_table` reads one),
        paths of Parquet files (needs pyarrow), or your own `riskad.tables.labelled.LabelledTable`.
    labels
        The label column and the meaning of its values.
    id, drop
        Columns to ignore: the one that names the rows, and others.
    kinds
        Kinds of columns by name, which override what is found: `{"when": "date:%d.%m.%Y"}`; see
        `riskad.TablePreparer`.
    group
        A column that names the group of each row, a customer for instance. The model then also
        learns how unusual a value is within its group. Rows of one group are held out together, so
        that quality, thresholds and probabilities are those for new groups, and intervals count
        groups. A row with a blank cell is a group of its own.
    time
        A column of dates, to train on the past and judge on later rows. Rows are split into five
        periods with equally many labelled rows, and each period but the first is scored by a fit to
        all earlier ones. Quality, probabilities and all thresholds use these scores, except "risk",
        which is the model's own. `FitReport.over_time` shows how quality and the share of anomalies
        change. The model itself is fitted to all rows. Rows with a blank cell count as the
        earliest. These fits take about as long as the model itself, or longer.
    model
        A name of `riskad.detectors.registry.DETECTORS`, such as "auto" or "shallow".
    settings
        Parameters of that detector. For "shallow" the default of `lam` is "cv" here.
    threshold
        Rule of `riskad.decisions.thresholds`, or its spelling. By default the detector's own:
        "likely" for "auto" and "risk" for the others.
    capacity
        How many rows people can review, instead of a threshold: 50, "50/day", "50/week" or
        "200/month". The column `time` shows how many rows arrive in that time; without it the
        unlabelled rows count as one batch. Later rows are flagged in the same proportion
        (`Capacity`).
    anomaly_rate
        Share of anomalies among the unlabelled rows, if you know it; by default estimated. A
        detector with a `prior` uses 1 minus this rate, unless `settings` contain it.
    label_source
        How rows were chosen for labelling, which decides how the anomaly rate is estimated
        (`riskad.decisions.rates`): "random", "chosen" or "unknown". Or the name of a column with a
        word for each row, or these words: rows marked "random" were drawn at random, any other word
        means that they were chosen.
    forget_rows
        Whether the model must contain no training row. Detectors that need some, such as "auto",
        are refused before any work.
    top
        Number of the most suspicious unlabelled rows to report.
    source, progress
        Name of the table in the report; a function that is called with each step.
    engine
        Reads Parquet files; by default threads of this process.
    fitted
        A function that is called with the model and the report when only the effects of columns
        are missing. On wide tables these take long: at most a quarter of `budget` beyond it.

    Returns
    -------
    Fit
        The model, a report, and ranked rows: all unlabelled rows of a table in memory, or the
        10,000 most suspicious ones of files, numbered over all files.

    Examples
    --------
    >>> import numpy as np, polars as pl
    >>> rng = np.random.default_rng(0)
    >>> amount = np.concatenate([rng.normal(20, 5, 180), rng.normal(60, 5, 20)])
    >>> label = ["ok"] * 30 + [""] * 160 + ["fraud"] * 10
    >>> table = pl.DataFrame({"amount": amount, "label": label})
    >>> labels = LabelColumn("label", normal=["ok"], anomaly=["fraud"])
    >>> fit = fit_table(table, labels, model="shallow")
    >>> print(fit.report.labels)
    30 normal, 10 anomalies, 160 unlabelled
    >>> fit.report.auc.value
    1.0
    >>> sorted(suspect.row for suspect in fit.report.top)
    [181, 182, 183, 184, 185, 186, 187, 188, 189, 190]
    """
    start = perf_counter()
    detector = make_detector(model, with_rate(model, settings or {}, anomaly_rate))
    rule = asked_rule(threshold, capacity) or detector.default_threshold
    if forget_rows:
        detector.forget_rows()
    progress("Reading the labels")
    opened = open_table(table, labels, engine)
    _check_counts(detector, opened.counts, model)
    preparer = TablePreparer(kinds=kinds, group=group, encode=not detector.takes_frames)
    work = _Work(opened, preparer, detector, progress, Known(None, anomaly_rate, label_source))
    work.prepare(id, drop, time)
    work.fit(rule if capacity is None else work.plan(capacity), top)
    if forget_rows:
        detector.forget_rows()
    asked = Asked.of(labels, time, capacity, anomaly_rate, label_source, forget_rows)
    report = replace(work.report(id, top, source), asked=asked)
    fitted(work.model, report)
    return work.explained(report, top, start)


def _check_counts(detector: Any, counts: LabelCounts, model: str) -> None:
    try:
        detector.check_counts(counts)
    except InputError as error:
        if model == "auto":
            raise
        raise InputError(f"{error} Or choose model='auto', which does without.") from error


class _Work:
    """A fit in progress: each step stores what later ones need."""

    features: Any
    scores: NDArray[np.float64]
    evidence: Evidence
    kept: KeptRows
    times: Times | None
    periods: list[Period]
    ranked: pl.DataFrame
    flagged: int
    capacity: CapacityPlan | None = None

    def __init__(
        self,
        table: LabelledTable,
        preparer: TablePreparer,
        detector: Any,
        progress: Progress,
        known: Known,
    ):
        self.table, self.preparer = table, preparer
        self.detector, self.progress, self.known = detector, progress, known
        self.model = Pipeline([("prepare", preparer), ("detect", detector)])
        self.earlier = earlier_results(table.columns)
        self.columns = [name for name in table.columns if name not in self.earlier]
        self.noted: list[Warning] = []
        self.facts: dict[str, float] = {}
        check_not_scored(self.columns, RESULT_COLUMNS[:3])

    def prepare(self, id: str | None, drop: Sequence[str], time: str | None) -> None:
        """Decide the kind of each column, and keep rows in memory as numbers."""
        label = self.table.label
        features = pick_features(self.table.columns, label, id, drop, self.earlier)
        features = with_group(features, self.preparer.group, self.table.columns)
        sources = column_of_sources(self.known.label_source, self.table)
        features = [name for name in features if name != sources]
        self.progress("Preparing the columns")
        with catch_kinds(*NOTICED) as notes:
            self.kept = self.table.prepare(self.preparer, features)
            self.features = self.preparer.features(self.kept.parsed, training=True)
            copies = number_copies(self.features, self.kept.codes)
            groups = groups_of(self.preparer, self.kept)
            groups = group_equal_rows(self.features, self.kept.codes, groups)
            self.times = Times.of(time, self.preparer, self.kept)
        source = read_sources(self.known.label_source, self.table, self.kept)
        self.known = replace(self.known, groups=groups, copies=copies, label_source=source)
        self.noted += notes
        check_dense(self.detector, self.features)

    def plan(self, capacity: str | int) -> Threshold:
        """Find how many rows arrive per period of the capacity, and return the rule."""
        table, times = self.table, self.times
        told = (None, None) if times is None else (times.column, times.moments)
        self.capacity = plan_capacity(capacity, table.n_rows, table.counts.unlabelled, *told)
        return self.capacity.rule

    def fit(self, rule: Threshold, top: int) -> None:
        """Fit, score, hold out labelled rows, set the threshold, and rank the unlabelled rows."""
        detector = self.detector
        self.progress("Fitting the model")
        with catch_kinds(*NOTICED) as notes:
            self._fit_detector()
        self.noted += notes
        self.progress("Scoring the rows")
        self.scores, self.novelty = score_rows(detector, self.features)
        choose_usual_row(self.model, self.kept.parsed, self.scores)
        self.progress("Checking it on held-out labelled rows")
        self.evidence, self.periods = self._find_evidence()
        counts = ~repeats_label(self.kept.codes, self.known.copies)
        groups = None if self.known.groups is None else self.known.groups[counts]
        detector.calibration_ = replace(
            count_groups(self.evidence.calibration, self.kept.codes[counts], groups),
            n_unlabelled=self.table.counts.unlabelled,
        )
        detector.set_threshold(rule)
        if not hasattr(detector, "unlabelled_"):
            remember_unlabelled(detector, self.features, self.kept.codes)
        self.facts = self._facts_of_rows()
        self.flagged, self.ranked = self._rank(rule, top)

    def _find_evidence(self) -> tuple[Evidence, list[Period]]:
        told = (self.preparer, self.detector, self.kept, self.scores)
        if self.times is None:
            return find_evidence(*told, self.known), []
        return judge_later_rows(*told, self.times, self.known)

    def _fit_detector(self) -> None:
        detector, rows = self.detector, self.table.training_rows
        if detector.fits_any_source and rows is not None:
            detector.fit(rows)
            return
        # For the others, groups are held out together when their folds are fitted.
        told: dict[str, Any] = {}
        if detector.holds_out_groups:
            told = {"groups": self.known.groups, "label_source": self.known.label_source}
        if not detector.tells_progress or detector.callback is not None:
            detector.fit(self.features, self.kept.codes, **told)
            return
        detector.set_params(callback=self.progress)
        try:
            detector.fit(self.features, self.kept.codes, **told)
        finally:
            detector.set_params(callback=None)

    def _facts_of_rows(self) -> dict[str, float]:
        """The largest of the values that the detector notes for rows, over all rows."""
        if not self.detector.has_bounds:
            return {}  # this saves another pass over files
        if self.table.in_memory:
            return dict(self.detector.note_of_rows(self.features))
        noted = partial(note_of_rows, preparer=self.preparer, detector=self.detector)
        return self.table.fold(noted, largest, self.preparer.read_columns)

    def _rank(self, rule: Threshold, top: int) -> tuple[int, pl.DataFrame]:
        """Count the flagged unlabelled rows, and find the most suspicious of them.

        The top k depend on all rows; the threshold is then set again.
        """
        detector, table = self.detector, self.table
        shown_rows = table.n_rows if table.in_memory else max(_RANKED_ROWS, top)
        most = max(shown_rows, rule.top_rows)
        row = free_name([*self.columns, table.label])
        scores = self.scores if table.in_memory else None
        judging = partial(judge, model=self.model, scores=scores, most=most, row=row)
        shown = [name for name in table.shown_columns if name not in self.earlier]
        flagged, worst = table.fold(judging, partial(join_judged, most=most), shown)
        found = worst["anomaly_score"].to_numpy()
        if rule.depends_on_table and len(found):
            calibration = detector.calibration_
            detector.calibration_ = calibration.over(found)
            detector.set_threshold(rule)
            detector.calibration_ = calibration
            flagged = int((found > detector.anomaly_threshold).sum())
        novelty = self._novelty_of(worst, row)
        columns = score_columns(detector, found, own_decision(detector), novelty)
        results = pl.DataFrame(columns)
        ranked = worst.drop("anomaly_score").hstack(results)
        if table.label not in ranked.columns:
            blank = pl.lit(None, dtype=pl.String).alias(table.label)
            ranked = ranked.with_columns(blank)
        others = [name for name in ranked.columns if name not in (row, *results.columns)]
        return flagged, ranked.select(row, *results.columns, *others).head(shown_rows)

    def _novelty_of(self, worst: pl.DataFrame, row: str) -> NDArray[np.float64] | None:
        """The novelty of ranked rows; not for rows in files, which may be too many to store."""
        if self.novelty is None or not self.table.in_memory or "novelty" in worst.columns:
            return None
        return self.novelty[worst[row].to_numpy() - 1]

    def report(self, id: str | None, top: int, source: str) -> FitReport:
        """Report what was done and found, without the effects of columns."""
        detector, table = self.detector, self.table
        return FitReport(
            source=source,
            rows=table.n_rows,
            label=table.label,
            id=id,
            labels=table.counts,
            columns=self.preparer.kinds_,
            preparation=self.preparer.describe() + describe_left_out(self.earlier),
            settings=plain_parameters(detector),
            fitted=detector.describe() | self.facts,
            said=detector.describe_in_words(),
            evidence=say_held_out(detector, self.preparer.group, self._judged_by()),
            effects=[],
            auc=self.evidence.auc,
            why_no_auc=self.evidence.why_no_auc,
            unlabelled_flagged=self.flagged,
            top=suspects_of(self.ranked.head(top), id),
            warnings=say_warnings(self.model, self.kept, table.counts, self.noted, self.evidence),
            rule=str(detector.threshold_),
            **_say_rate(detector.calibration_),
            model=type(detector).__name__,
            reading=self._how_read(),
            over_time=self.periods,
            capacity=self.capacity,
            review=self._review(),
        )

    def explained(self, report: FitReport, top: int, start: float) -> Fit:
        """Find which columns matter; the fit began at `start`."""
        self.progress("Finding out which columns matter")
        found = explain_fit(self.model, self.kept, self.ranked, top, start)
        report = replace(report, effects=found.effects, effects_of=found.effects_of)
        held_out = self.evidence.held_out if self.table.in_memory else None
        return Fit(self.model, report, self.ranked, found.reasons, held_out)

    def _review(self) -> ReviewReport | None:
        found = self.detector.calibration_
        review = review_rows(found, found.unlabelled, found.n_unlabelled)
        return review_table(review, self.flagged, str(self.detector.threshold_))

    def _judged_by(self) -> str | None:
        """The column of times, if later rows were judged by it."""
        return None if self.times is None or self.evidence.auc is None else self.times.column

    def _how_read(self) -> list[str]:
        if self.table.in_memory:
            return []
        kept, learned = self.kept, "learned from all rows"
        if not kept.complete and self.detector.fits_any_source:
            learned += f"; quality and calibration rest on {kept.said}"
        elif not kept.complete:
            learned = f"learned from {kept.said}; then scored all"
        return [*self.table.how_read(), learned]


def _say_rate(calibration: Calibration) -> dict[str, Any]:
    """The rate with its interval, its basis, and whether labels look random."""
    rate = calibration.rate
    return {
        "rate": None if rate is None else (rate.value, rate.low, rate.high),
        "rate_rests_on": "" if rate is None else rate.assumption,
        "labels_random_p": calibration.random_p_value,
    }
