"""Fit a detector on a table, in memory or in files, and report what happened.

`fit_table` is the recipe: read, label, prepare, fit, hold out, calibrate, decide, report, explain.
Below it are the steps that take more than a line, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline

from riskad.app.explain import explain_fit
from riskad.app.fit_report import FitReport
from riskad.app.hold_out import (
    Evidence,
    TrainingRows,
    describe_hold_out,
    hold_out,
    in_order,
    list_warnings,
)
from riskad.app.label_issues import check_labels_of_fit
from riskad.app.pictures import open_pictures, refuse_broken
from riskad.app.reasons import Reasons, choose_usual_row
from riskad.app.score import (
    RESULT_COLUMNS,
    Progress,
    catch_notes,
    check_not_scored,
    decide,
    earlier_results,
    pick_features,
    rank,
    score_columns,
    segment_values,
    suspects_of,
)
from riskad.app.series import WindowTable
from riskad.app.spec import LABEL_SAMPLING, FitSpec
from riskad.core.checks import DataWarning, InputError, enumerate_names
from riskad.core.labels import UNLABELLED, Codes
from riskad.decisions.anomaly_rate import check_label_source
from riskad.decisions.capacity import plan_capacity
from riskad.decisions.drift import remember_unlabelled
from riskad.decisions.segments import SegmentResult, describe_segments, learn_segments
from riskad.decisions.thresholds import Threshold, parse_threshold
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.detectors.registry import DETECTORS, make_detector
from riskad.rows.cluster import is_spark
from riskad.rows.engine import Engine
from riskad.tables.cells import as_polars, free_name, is_frame, to_text
from riskad.tables.labelled import FrameTable, LabelledTable, TrainingSample, open_table
from riskad.tables.notes import pluralize
from riskad.tables.paths import find_tables
from riskad.tables.preparation import TablePreparer
from riskad.tables.reading import is_larger_than_memory, read_table

__all__ = ["Fit", "FitReport", "fit_table"]

OnFit: TypeAlias = Callable[[Pipeline, FitReport], object]

_RANKED_ROWS = 10_000  # kept for tables that do not fit in memory
_LABEL_NAMES = {
    *("label", "labels", "class", "target", "anomaly", "is_anomaly"),
    *("outlier", "is_outlier", "fraud", "is_fraud"),
}
_NO_LABELS = (
    "no row is labelled, so rows are ranked by how unlike the others they are (model='outliers'). "
    "`riskad label` helps to label some."
)


@dataclass(frozen=True)
class Fit:
    """A fitted pipeline, the report, and the unlabelled rows, the most suspicious first.

    `reasons` are for `report.top`, the first of these rows, if time allowed; of time series these
    are the highest windows of alarms.
    `held_out` are anomaly scores of labelled rows by fits that have not seen them, NaN for other
    rows; None if the rows are in files.
    """

    model: Pipeline
    report: FitReport
    ranked: pl.DataFrame
    reasons: Reasons | None = None
    held_out: NDArray[np.float64] | None = None


def fit_table(
    table: Any,
    spec: FitSpec | None = None,
    *,
    source: str = "table",
    sampling: Sequence[str] | None = None,
    engine: Engine | None = None,
    progress: Progress = lambda _: None,
    on_fit: OnFit = lambda model, report: None,
    **options: Any,
) -> Fit:
    """Fit a detector on a table in which one column holds a few labels.

    A table in memory is read once. Parquet files need not fit in memory: they are read in batches,
    several times. Labels, kinds of columns, their levels and blanks are found on all rows, medians
    on a sample. Detectors that can use any source of rows (`ShallowRAD`) learn from all of them.
    Others learn from rows in memory: all labelled rows and a random sample of the unlabelled rows,
    at most 100,000 of each kind. Calibration, AUC and effects of columns are computed on these
    rows. All unlabelled rows are scored and counted.

    Parameters
    ----------
    table
        A frame of polars, pandas, pyarrow or DuckDB, the path of a file that `riskad.read_table`
        reads, paths of Parquet files (needs pyarrow), a dataframe of Spark, or your own
        `riskad.tables.labelled.LabelledTable`.
    spec, **options
        What to do, as a `riskad.FitSpec` or by its fields: `label`, `normal`, `anomaly`, `model`
        and so on. Options replace fields of the specification.
    source
        Name of the table in the report.
    sampling
        How each row was chosen for labelling: one word per row, instead of `spec.label_sampling`.
    engine
        Reads Parquet files; by default threads of this process.
    progress
        A function that is called with each step.
    on_fit
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
    >>> fit = fit_table(table, label="label", normal="ok", anomaly="fraud", model="shallow")
    >>> print(fit.report.labels)
    30 normal, 10 anomalies, 160 unlabelled
    >>> fit.report.auc.value
    1.0
    >>> sorted(suspect.row for suspect in fit.report.top)
    [181, 182, 183, 184, 185, 186, 187, 188, 189, 190]
    """
    start = perf_counter()
    if not isinstance(spec, FitSpec | None):
        raise InputError(
            f"spec must be a riskad.FitSpec, got {type(spec).__name__}. Give the entries of a dict "
            "as options: fit_table(table, **entries)."
        )
    spec = (spec or FitSpec()).updated(**options)
    table, spec = open_pictures(table, spec, progress)

    progress("Reading the labels")
    labelled, spec, detector, notes = _open(table, spec, engine)
    counts, in_windows = labelled.counts, isinstance(labelled, WindowTable)

    progress("Preparing the columns")
    # Rows that were scored and then labelled hold old scores, which would be learned from.
    earlier = earlier_results(labelled.columns)
    preparer, sample, rows, preparation_notes = _prepare(labelled, spec, detector, earlier)
    sampling = spec.label_sampling if sampling is None else sampling
    label_source = _label_source(labelled, sample, sampling)
    rule, plan = detector_tags(detector).threshold, None
    if spec.capacity is not None:
        n, u = labelled.n_rows, counts.unlabelled
        plan = plan_capacity(spec.capacity, n, u, rows.time, rows.moments)
        rule = plan.rule
    elif spec.threshold is not None:
        rule = parse_threshold(spec.threshold)

    progress("Fitting the model")
    with catch_notes() as fit_notes:
        _fit_detector(detector, labelled, rows, label_source, progress)
    model = Pipeline([("prepare", preparer), ("detect", detector)])

    progress("Scoring the rows")
    scores, novelty = detector._anomaly_score_and_novelty(rows.features)
    # A window learned as normal may be an unmarked incident.
    if rows.training_codes is not rows.codes:
        unseen = in_order(detector.calibration_, rows)
        if unseen is not None:
            scores = np.where((rows.codes == UNLABELLED) & ~np.isnan(unseen), unseen, scores)
    # Now, while all rows have scores: reasons compare with this row, also after loading.
    choose_usual_row(model, rows.parsed, scores)

    progress("Checking it on held-out labelled rows")
    evidence = hold_out(model, rows, scores, spec.anomaly_rate, label_source, counts.unlabelled)
    detector.calibration_ = evidence.calibration

    doubtful = None
    if labelled.in_memory and not in_windows and evidence.held_out is not None:
        progress("Checking the labels")
        single = np.where(rows.repeats, np.nan, evidence.held_out)
        ids = None
        if isinstance(labelled, FrameTable) and spec.id is not None:
            ids = labelled.frame[spec.id]
        doubtful = check_labels_of_fit(model, rows.codes, single, rows.parsed, ids)

    detector.set_threshold(rule)
    segments = list[SegmentResult]()
    if spec.threshold_by is not None:
        progress("Finding thresholds by segment")
        segments = _set_segments(detector, spec.threshold_by, labelled, rows, scores, evidence)
    flagged, ranked = _rank(labelled, model, rule, spec.top, scores, novelty, earlier)
    top = (labelled.peaks(ranked) if isinstance(labelled, WindowTable) else ranked).head(spec.top)
    # `riskad drift` compares with this summary; linear models have made theirs in `fit`.
    if not hasattr(detector, "unlabelled_"):
        remember_unlabelled(detector, rows.features, rows.codes)
    if spec.forget_rows:
        detector._forget_rows()

    report = FitReport(
        spec=spec,
        source=source,
        rows=labelled.n_rows,
        labels=counts,
        reading=_reading(labelled, sample, detector),
        evidence=describe_hold_out(
            detector, rows, "stretch" if in_windows else spec.group, evidence.auc
        ),
        auc=evidence.auc,
        why_no_auc=evidence.why_no_auc,
        over_time=evidence.periods,
        doubtful=doubtful,
        flagged=flagged,
        flagged_of=counts.unlabelled,
        segments=segments,
        capacity=plan,
        warnings=list_warnings(
            model, sample, counts, [*notes, *preparation_notes, *fit_notes], evidence
        ),
        top=suspects_of(top, spec.row_names),
    ).of_model(model)
    if earlier:
        left_out = f"left out {', '.join(earlier)}: results of an earlier run"
        report = replace(report, preparation=[*report.preparation, left_out])
    if isinstance(labelled, WindowTable):
        raised = labelled.alarms(scores, detector._anomaly_threshold)
        report = replace(report, alarms=[str(raised)], series=raised.pictures())
    # The caller may save the model now: explaining columns can take as long as the fit.
    on_fit(model, report)

    progress("Finding out which columns matter")
    worst = ranked
    if in_windows:  # those at the top first, whose reasons are shown
        both, row = pl.concat([top, ranked]), ranked.columns[0]
        worst = both.unique(row, keep="first", maintain_order=True)
    effects, effects_of, reasons = explain_fit(model, sample, worst, spec.top, start)
    report = replace(report, effects=effects, effects_of=effects_of)
    return Fit(model, report, ranked, reasons, evidence.held_out if labelled.in_memory else None)


# --- read, label --------------------------------------------------------------------------


def make_detector_of(spec: FitSpec) -> Any:
    """Make the detector of a specification, for a known anomaly rate if there is one."""
    settings, rate = {"random_state": spec.seed} | spec.settings, spec.anomaly_rate
    entry = DETECTORS[spec.model]
    names = entry.load()._get_param_names()
    if spec.quick and "quick" in names:
        settings["quick"] = True  # scores of the others are quick
    if rate is not None and "contamination" in names:
        settings.setdefault("contamination", rate)
    if rate is not None and 0 < rate < 1 and "prior" in (each.name for each in entry.settings):
        settings.setdefault("prior", 1 - rate)
    detector = make_detector(spec.model, settings)
    return detector._forget_rows() if spec.forget_rows else detector  # refused before any work


def _open(
    table: Any, spec: FitSpec, engine: Engine | None
) -> tuple[LabelledTable, FitSpec, Detector, list[Warning]]:
    """Open a table with its labels, and refuse before any work what these do not allow."""
    detector = make_detector_of(spec)  # settings are refused before any row is read
    labelled, notes = _read_labels(table, spec, engine), list[Warning]()
    if spec.model == "auto" and not labelled.counts.normal + labelled.counts.anomaly:
        spec = replace(spec, model="outliers", settings={}, label_sampling="unknown")
        detector, notes = make_detector_of(spec), [DataWarning(_NO_LABELS)]
    try:
        detector._check_counts(labelled.counts)
    except InputError as error:
        counts = labelled.counts  # with rows of one kind alone no model does
        if spec.model == "auto" or counts.unlabelled + counts.normal * counts.anomaly == 0:
            raise
        raise InputError(f"{error} Or choose model='auto', which does without.") from error
    if (by := spec.threshold_by) is not None:
        if not isinstance(labelled, FrameTable):
            raise InputError(
                f"threshold_by={by!r} takes a table that fits in memory; leave it out."
            )
        if by in labelled.frame.columns and not any(segment_values(labelled.frame, by)):
            raise InputError(
                f"threshold_by={by!r}: this column is blank in every row, so that there are no "
                "segments; name another, or leave it out."
            )
    return labelled, spec, detector, notes


def _read_labels(table: Any, spec: FitSpec, engine: Engine | None) -> LabelledTable:
    """Open a table with its labels; with none if there are none, and the model takes that."""
    if spec.window is not None and not isinstance(table, WindowTable):
        return WindowTable(_read_labels(table, replace(spec, window=None, step=None), engine), spec)
    if isinstance(table, LabelledTable):
        return table
    labels = spec.labels
    if labels is None and spec.model not in ("auto", "outliers"):
        raise InputError(
            f"model={spec.model!r} needs labels: name their column, label=..., or give the answers "
            "of `riskad label` (journal=...). model='outliers' does without."
        )
    if isinstance(table, str | Path):
        paths = find_tables([table])
        in_batches = labels is not None and is_larger_than_memory(paths)
        table = paths if in_batches else read_table(paths[0])
    if not isinstance(table, pl.DataFrame):
        if labels is None and is_spark(table):
            raise InputError(
                "Rows of Spark are ranked without labels in two steps: take a sample to this "
                "machine (frame.sample(0.01).toPandas()), fit to it, and score all rows by "
                "riskad.spark.score."
            )
        named = is_frame(table) or isinstance(table, np.ndarray)  # an array, refused by its type
        if labels is not None and (is_spark(table) or not named):
            return open_table(table, labels, engine)
        table = as_polars(table)
    frame: pl.DataFrame = table
    if labels is None:
        # Labels whose column was not named would be learned from as any other column.
        for name in frame.columns if spec.model == "auto" else []:
            if name.strip().lower() in _LABEL_NAMES and name not in spec.drop:
                raise InputError(
                    f"The table has a column {name!r}. If it holds labels, say so: label={name!r}; "
                    f"if not, leave it out, drop={name!r}, or use it as any other: "
                    "model='outliers'."
                )
        return FrameTable(frame, None)
    has_column = labels.column in frame.columns and frame.height
    if spec.model == "auto" and not labels.normal and not labels.anomaly and has_column:
        texts = to_text(frame[labels.column]).str.strip_chars()
        if texts.replace("", None).is_null().all():
            return FrameTable(frame.drop(labels.column), None)
    return FrameTable(frame, labels)


# --- prepare, fit -------------------------------------------------------------------------


def _prepare(
    labelled: LabelledTable, spec: FitSpec, detector: Detector, earlier: list[str]
) -> tuple[TablePreparer, TrainingSample, TrainingRows, list[Warning]]:
    """Learn how to prepare the columns, and prepare the rows in memory."""
    check_not_scored([each for each in labelled.columns if each not in earlier], RESULT_COLUMNS[:3])
    notes, kinds = list[Warning](), spec.kinds
    if isinstance(labelled, WindowTable):  # which has read its columns to cut windows
        features, notes, kinds = labelled.features, [*labelled.notes], {}
    else:
        features = pick_features(labelled.columns, labelled.label, spec, earlier)
    encode = not detector_tags(detector).accepts_frames
    preparer = TablePreparer(kinds=kinds, group=spec.group, encode=encode)
    with catch_notes() as preparation_notes:
        sample = labelled.prepare(preparer, features)
        if not detector_tags(detector).cross_fits:
            sample = replace(sample, training_codes=None)
        rows = TrainingRows.of(preparer, sample, spec.time)
    refuse_broken(preparation_notes, spec)
    return preparer, sample, rows, [*notes, *preparation_notes]


def _label_source(labelled: LabelledTable, kept: TrainingSample, sampling: Any) -> str | np.ndarray:
    """How rows were chosen for labelling: a word, or one for each row in memory."""
    words = ", ".join(LABEL_SAMPLING)
    if isinstance(sampling, str):
        if sampling in LABEL_SAMPLING:
            return sampling
        if sampling not in labelled.columns:
            raise InputError(
                f"label_sampling={sampling!r} is neither one of {words} nor a column; there are "
                f"{enumerate_names(labelled.columns)}."
            )
    if not kept.complete:
        raise InputError(
            "label_sampling by row takes a table that fits in memory; give one of "
            f"{words} for all rows instead."
        )
    if isinstance(sampling, str):
        columns = labelled.fold(lambda frame, *_: [frame.to_series(0)], list.__add__, [sampling])
        texts = pl.concat([column.cast(pl.String) for column in columns])
        sampling = texts.fill_null("").str.strip_chars().str.to_lowercase()
    return check_label_source(list(sampling), len(kept.codes))


def _fit_detector(
    detector: Detector, labelled: LabelledTable, rows: TrainingRows, source: Any, progress: Progress
) -> None:
    if sparse.issparse(rows.features) and not detector.__sklearn_tags__().input_tags.sparse:
        raise InputError(
            f"The text columns of this table have so many values that they become "
            f"{rows.features.shape[1]:,} columns, mostly zeros, which networks do not take. Leave "
            "the longest out with drop, or choose model='auto'."
        )
    tags = detector_tags(detector)
    if tags.accepts_any_source and labelled.training_rows is not None:
        detector.fit(labelled.training_rows)
        return
    options: dict[str, Any] = {}
    if tags.cross_fits:  # for the others, groups matter when their folds are fitted
        options = {"groups": rows.groups, "label_source": source}
    listens = tags.reports_progress and detector.callback is None
    if listens:
        detector.set_params(callback=progress)
    try:
        detector.fit(rows.features, rows.training_codes, **options)
    finally:
        if listens:
            detector.set_params(callback=None)


# --- decide -------------------------------------------------------------------------------


def _rank(
    labelled: LabelledTable,
    model: Pipeline,
    rule: Threshold,
    top: int,
    scores: NDArray[np.float64],
    novelty: NDArray[np.float64] | None,
    earlier: list[str],
) -> tuple[int, pl.DataFrame]:
    """Count the flagged unlabelled rows, and rank the unlabelled rows.

    The top k depend on all rows: the threshold is then set again.
    """
    preparer, detector = model[0], model[1]
    in_memory = labelled.in_memory
    shown_rows = labelled.n_rows if in_memory else max(_RANKED_ROWS, top)
    most = max(shown_rows, rule.top_rows)
    row = free_name([*(c for c in labelled.columns if c not in earlier), labelled.label])
    known_scores = scores if in_memory else None

    def judge(frame: pl.DataFrame, codes: Codes, first_row: int) -> tuple[int, pl.DataFrame]:
        """Count the flagged among the unlabelled rows, and keep those with the highest scores."""
        unlabelled = np.asarray(codes == UNLABELLED)
        rows = frame.with_row_index(row, first_row).filter(unlabelled)
        if known_scores is not None:
            scores = known_scores[unlabelled]
        elif rows.height:
            scores = detector.anomaly_score(preparer.transform(rows, quiet=True))
        else:
            scores = np.empty(0)
        scored = rows.with_columns(pl.Series("anomaly_score", scores, dtype=pl.Float64))
        if rows.height > most:  # the others need not be sorted
            scored = scored.filter(scores >= np.partition(scores, -most)[-most])
        flagged = int((scores > detector._anomaly_threshold).sum())
        return flagged, rank(scored).head(most)

    def join(
        first: tuple[int, pl.DataFrame], second: tuple[int, pl.DataFrame]
    ) -> tuple[int, pl.DataFrame]:
        both = pl.concat([first[1], second[1]], how="vertical_relaxed")
        return first[0] + second[0], rank(both).head(most)

    shown = [name for name in labelled.shown_columns if name not in earlier]
    flagged, worst = labelled.fold(judge, join, shown)
    highest = worst["anomaly_score"].to_numpy()
    if rule.depends_on_table and len(highest):
        calibration = detector.calibration_
        detector.calibration_ = calibration.over(highest)
        detector.set_threshold(rule)
        detector.calibration_ = calibration
    if novelty is not None:  # of rows in files there may be too many to store
        keep = in_memory and "novelty" not in worst.columns
        novelty = novelty[worst[row].to_numpy() - 1] if keep else None
    decision = decide(detector)
    added = pl.DataFrame(score_columns(detector, highest, decision, novelty, worst))
    if in_memory or rule.depends_on_table:  # all that are flagged are among these
        flagged = int(added["is_anomaly"].sum())
    ranked = worst.drop("anomaly_score").hstack(added)
    if labelled.label not in ranked.columns:
        ranked = ranked.with_columns(pl.lit(None, dtype=pl.String).alias(labelled.label))
    others = [name for name in ranked.columns if name not in (row, *added.columns)]
    return flagged, ranked.select(row, *added.columns, *others).head(shown_rows)


def _set_segments(
    detector: Any,
    column: str,
    labelled: LabelledTable,
    rows: TrainingRows,
    scores: NDArray[np.float64],
    evidence: Evidence,
) -> list[SegmentResult]:
    """Find thresholds by segment, which the calibration keeps."""
    calibration, held_out = detector.calibration_, evidence.held_out
    if held_out is None or not len(calibration.scores):
        raise InputError(
            f"threshold_by={column!r} takes held-out scores of all labelled rows, and there are "
            "none: label rows of both kinds, or give the fit a larger budget."
        )
    assert isinstance(labelled, FrameTable)  # others were refused before the fit
    values = np.array(segment_values(labelled.frame, column), dtype=object)
    unlabelled = rows.codes == UNLABELLED
    judged = ~unlabelled & ~rows.repeats & ~np.isnan(held_out)
    sides = values[unlabelled], scores[unlabelled], calibration
    segments = learn_segments(column, values[judged], *sides)
    detector.calibration_ = replace(calibration, segments=segments)
    detector.set_threshold(detector.threshold_)
    thresholds = segments.thresholds(detector.threshold_, calibration)
    return describe_segments(segments, thresholds, *sides)


# --- report -------------------------------------------------------------------------------


def _reading(labelled: LabelledTable, kept: TrainingSample, detector: Detector) -> list[str]:
    """How files larger than memory, or series, were read, and which rows were learned from."""
    if isinstance(labelled, WindowTable):
        lines = [labelled.describe_cut()]
        more = 0 if kept.training_codes is None else int((kept.training_codes != kept.codes).sum())
        if more:
            lines.append(
                f"learned {pluralize(more, 'unlabelled window')} that share no row as normal, "
                "since incidents are rare; quality and alarms rest on your labels alone"
            )
        return lines
    if labelled.in_memory:
        return []
    learned = "learned from all rows"
    if not kept.complete and detector_tags(detector).accepts_any_source:
        learned += f"; quality and calibration rest on {kept.extent}"
    elif not kept.complete:
        learned = f"learned from {kept.extent}; then scored all"
    return [*labelled.how_read(), learned]
