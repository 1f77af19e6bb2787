"""Scores of a table: the columns that scoring adds, which rows are flagged, and the report.

Other verbs use the first half: decisions, result columns, the most suspicious rows, and notes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from riskad.app.reasons import Reason, explain_rows
from riskad.app.series import plain_model, scores_of_points
from riskad.app.spec import FitSpec
from riskad.core.checks import DataWarning, InputError, check_choice, enumerate_names
from riskad.decisions.calibration import Calibration, quietly
from riskad.decisions.capacity import TopRows, review_rows
from riskad.decisions.conformal import select_at_fdr
from riskad.decisions.drift import DriftReport, drift_report
from riskad.decisions.segments import Segments
from riskad.decisions.thresholds import Threshold, parse_threshold
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.tables.cells import check_columns, free_name, to_text
from riskad.tables.harmless import (
    SUPPRESSED,
    HarmlessRules,
    SuppressedRows,
    Suppression,
    check_rows_are_scored,
)
from riskad.tables.notes import NotAsInTraining, catch_kinds
from riskad.tables.preparation import TablePreparer
from riskad.tables.targets import NewRows, Target

Progress: TypeAlias = Callable[[str], object]
"""A function that is called with each step."""

SCORE_COLUMNS = ("anomaly_score", "is_anomaly")
# Those of them that there are.
SUSPECT_COLUMNS = f"^(anomaly_score|is_anomaly|anomaly_probability|novelty|{SUPPRESSED})$"
RESULT_TYPES: dict[str, Any] = {
    "anomaly_score": pl.Float64,
    "is_anomaly": pl.Boolean,
    "anomaly_probability": pl.Float64,  # if the model is calibrated
    "p_value": pl.Float64,  # with a false discovery rate
    "novelty": pl.Float64,  # if the model has it
    SUPPRESSED: pl.String,  # the rule of the known harmless that took the flag, if there are any
}
"""Columns that scoring may add. Reasons, which are texts, come after these."""
RESULT_COLUMNS = tuple(RESULT_TYPES)
_RESULT_COLUMN = re.compile("|".join((*RESULT_COLUMNS, r"reason(_\d+)?")))


@dataclass(frozen=True)
class Suspect:
    """A row that looks anomalous; rows are counted from 1, below the header."""

    row: int
    id: str | None
    anomaly_score: float
    is_anomaly: bool
    novelty: float | None = None
    suppressed_by: str | None = None
    """The rule of the known harmless that kept it from being flagged."""
    anomaly_probability: float | None = None
    reasons: list[Reason] = field(default_factory=list)
    """The columns that raise its score most, if it was explained."""
    others: float = 0.0  # what all other columns add


@dataclass(frozen=True)
class Decision:
    """Which rows are flagged: those above a threshold, or those with p-values up to a maximum."""

    rule: str
    threshold: float | None
    largest_p: float = 0.0
    selection: str = ""
    by_segment: NDArray[np.float64] | None = None
    """Thresholds of segments, and last that of all others (`riskad.decisions.segments`)."""


def steps_of(model: object) -> tuple[TablePreparer, Any]:
    """Return the preparer and the detector of a model that was fitted on a table."""
    if (
        isinstance(model, Pipeline)
        and len(model) == 2
        and isinstance(model[0], TablePreparer)
        and hasattr(model[1], "anomaly_score")
    ):
        return model[0], model[1]
    if isinstance(getattr(model, "model", None), Pipeline):
        raise InputError("This is the result of riskad.fit_table, not its model: give fit.model.")
    raise InputError(
        f"This model, a {type(model).__name__}, was not made by riskad.fit_table, so it does not "
        "know how to read a table. Score it in Python, or save "
        "Pipeline([('prepare', TablePreparer()), ('detect', detector)]) instead."
    )


# --- notes for the user -------------------------------------------------------------------


def catch_notes() -> AbstractContextManager[list[Warning]]:
    """Collect warnings about the data or the fit, which reports show once."""
    return catch_kinds(DataWarning, ConvergenceWarning)


def merge_notes(notes: Sequence[Warning]) -> list[Warning]:
    """Merge what several batches of rows have in common."""
    changes = [note for note in notes if isinstance(note, NotAsInTraining)]
    others = {str(note): note for note in notes if not isinstance(note, NotAsInTraining)}
    return [*([NotAsInTraining.of_all(changes)] if changes else []), *others.values()]


# --- columns -----------------------------------------------------------------------------


def earlier_results(columns: Sequence[str]) -> list[str]:
    """Return the columns with old results, in rows that were scored and then labelled."""
    if not set(SCORE_COLUMNS) & set(columns):
        return []  # a column p_value then belongs to the table itself
    return [name for name in columns if _RESULT_COLUMN.fullmatch(name)]


def check_not_scored(columns: Sequence[str], added: Sequence[str]) -> None:
    """Refuse a table with columns that results would overwrite."""
    clashes = sorted(set(added) & set(columns), key=added.index)
    if clashes:
        one = len(clashes) == 1
        raise InputError(
            f"The table already has {'a column' if one else 'columns'} {enumerate_names(clashes)}, "
            "under which the scores would be written; it may have been scored before. Rename "
            f"{'it or take it' if one else 'them or take them'} out."
        )


def pick_features(
    columns: Sequence[str], label: str | None, spec: FitSpec, earlier: Sequence[str]
) -> list[str]:
    """Return the columns to learn from, without results of an earlier run.

    The group column is among them, even if it names the rows.
    """
    out = [name for name in (label, spec.id) if name is not None]
    out += [name for name in spec.drop if name not in earlier]
    out += [spec.label_sampling] if spec.label_sampling in columns else []
    check_columns(out, columns if label is None else [*columns, label])
    features = [name for name in columns if name not in {*out, *earlier}]
    if not features:
        raise InputError("Every column is left out; there is nothing to learn from.")
    if spec.threshold_by is not None:
        check_columns([spec.threshold_by], columns)
    if spec.group is not None and spec.group not in features:
        check_columns([spec.group], columns)
        features.append(spec.group)
    return features


# --- decisions ---------------------------------------------------------------------------


def segments_of(detector: Detector) -> Segments | None:
    """Return the segments that have thresholds of their own, if a fit was asked for them."""
    segments: Segments | None = getattr(getattr(detector, "calibration_", None), "segments", None)
    return segments


def decide(
    detector: Detector,
    rule: Threshold | str | None = None,
    fdr: float | None = None,
    all_scores: Callable[[bool], NDArray[np.float64]] = lambda _: np.empty(0),
) -> Decision:
    """Decide by a rule or at a false discovery rate, else by the model's own rule.

    The model does not change. `all_scores` returns the scores of the whole table, shifted by
    segment or not; it is called if the decision depends on them.
    """
    if fdr is not None:
        calibration: Calibration = detector._calibrated("p-values")
        p_values = calibration.p_values(all_scores(False))
        chosen = select_at_fdr(p_values, fdr, len(calibration.normals))
        largest = float(p_values[chosen.selected].max(initial=0.0))
        return Decision(f"fdr:{fdr:g}", None, largest, str(chosen))
    segments = segments_of(detector)
    if rule is None and segments is None:
        return Decision(str(getattr(detector, "threshold_", "risk")), detector._anomaly_threshold)
    # The model's own rule counts rows of the fit, another one those of this table.
    counts_rows = False
    if rule is None:
        rule, calibration = detector.threshold_, detector.calibration_
    else:
        rule = parse_threshold(rule) if isinstance(rule, str) else rule
        calibration = detector._calibrated("other thresholds than the model's")
        counts_rows = rule.depends_on_table
    if segments is None:
        calibration = calibration.over(all_scores(False)) if counts_rows else calibration
        return Decision(str(rule), rule.of(calibration))
    shifted = all_scores(True) if counts_rows else None
    thresholds = segments.thresholds(rule, calibration, shifted)
    differ = (thresholds != thresholds[-1]).any()
    meaning = f"{rule}, and others by {segments.column!r}" if differ else str(rule)
    return Decision(meaning, float(thresholds[-1]), by_segment=thresholds)


def knows_probabilities(detector: Detector) -> bool:
    """Return whether a model gives the probability that a row is an anomaly."""
    calibration = getattr(detector, "calibration_", None)
    return calibration is not None and calibration.knows_probabilities


def segment_values(frame: pl.DataFrame, column: str) -> list[str | None]:
    """Return the segment of each row; None where it is blank."""
    if column not in frame.columns:
        raise InputError(
            f"The model has thresholds by {column!r}, and the table lacks this column; add it "
            "(blank cells have the threshold of the whole)."
        )
    return to_text(frame[column]).str.strip_chars().replace("", None).to_list()


def score_columns(
    detector: Detector,
    scores: NDArray[np.float64],
    decision: Decision,
    novelty: NDArray[np.float64] | None = None,
    frame: pl.DataFrame | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the columns that scoring adds, except reasons, in the order of `RESULT_COLUMNS`.

    `frame` has the rows of the table, which a model with thresholds by segment looks at.
    """
    calibration: Calibration | None = getattr(detector, "calibration_", None)
    segments: Segments | None = getattr(calibration, "segments", None)
    shifted = scores
    threshold: Any = decision.threshold
    if segments is not None and frame is not None:
        places = segments.places(segment_values(frame, segments.column))
        shifted = scores + segments.shift_of(places)
        if decision.by_segment is not None:
            threshold = decision.by_segment[places]
    p_values = detector.calibration_.p_values(scores) if threshold is None else None
    flagged = scores > threshold if p_values is None else p_values <= decision.largest_p
    columns = {"anomaly_score": scores, "is_anomaly": flagged}
    if calibration is not None and calibration.knows_probabilities:
        columns["anomaly_probability"] = calibration.anomaly_probability(shifted)
    if p_values is not None:
        columns["p_value"] = p_values
    if novelty is not None:
        columns["novelty"] = novelty
    return columns


# --- rows --------------------------------------------------------------------------------


def rank(scored: pl.DataFrame, by: str = "anomaly_score") -> pl.DataFrame:
    """Return rows, the most suspicious, or the newest, first."""
    return scored.sort(by, descending=True, maintain_order=True)


def suspects_of(ranked: pl.DataFrame, id: str | None) -> list[Suspect]:
    """Return ranked rows for a report; their first column is their number."""
    rows = ranked.get_column(ranked.columns[0]).to_list()
    ids = to_text(ranked[id]).to_list() if id is not None else [None] * len(rows)
    ids = ["a picture" if name and name.startswith("data:image") else name for name in ids]
    cells = ranked.select(SUSPECT_COLUMNS).iter_rows(named=True)
    return [Suspect(row, id, **each) for row, id, each in zip(rows, ids, cells, strict=True)]


_COLUMN = {"score": "anomaly_score", "novelty": "novelty"}
RANKED_BY = tuple(_COLUMN)
"""Columns by which a report can rank rows."""

_Scores: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64] | None]
"""Anomaly scores and, if the detector has it, novelty."""
_ANOTHER_TABLE = (
    "This way of deciding reads the table twice, and it had changed in between. Score a copy that "
    "nothing writes to; in Python give a list of frames, or "
    "riskad.tables.reading.read_batches(path)."
)
# Scores of a larger table are thinned: they only serve to estimate how many rows are anomalies.
_KEPT_SCORES = 200_000
_FIRST_SLICE = 512  # rows: see `_BATCH_MULTIPLE` of riskad.tables.reading
_SECONDS_OF_A_SLICE = 1.0  # so that the bar moves, and an interrupt is heard


@dataclass(frozen=True)
class ScoreReport:
    """What `score_table` found."""

    source: str
    rows: int
    id: str | None
    threshold: float | None
    flagged: int
    top: list[Suspect]
    warnings: list[str] = field(default_factory=list)
    rule: str = "risk"
    selection: str = ""
    added: list[str] = field(default_factory=lambda: list(SCORE_COLUMNS))
    by: str = "score"
    expected: TopRows | None = None
    """Expected anomalies among the flagged rows, if the labels of the fit determine them."""
    alarms: list[str] = field(default_factory=list)
    """Events of time series, the highest ones with start, end, peak and reasons."""
    skipped: int = 0  # number of rows that were left out because they were scored before
    suppressed: list[SuppressedRows] = field(default_factory=list)
    """What each rule of the known harmless did."""


class NoRows(InputError):
    """There is nothing to score."""

    def __init__(self) -> None:
        super().__init__("The table has a header but no rows.")


def score_table(
    model: Pipeline,
    table: pl.DataFrame | Iterable[pl.DataFrame],
    write: Callable[[pl.DataFrame], object] = lambda _: None,
    *,
    id: str | None = None,
    threshold: Threshold | str | None = None,
    fdr: float | None = None,
    reasons: int = 0,
    top: int = 10,
    by: str = RANKED_BY[0],
    harmless: HarmlessRules | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
    scored: Callable[[int], object] = lambda _: None,
) -> tuple[Any, ScoreReport]:
    """Add `anomaly_score`, `is_anomaly` and more to the rows of a table, and report on them.

    Rows and columns stay as they are; columns the model does not know are ignored. "top:k" and
    `fdr` depend on all rows: for these, a table in batches is read twice, and all scores are kept.

    Parameters
    ----------
    model
        A model from `riskad.fit_table`. With both kinds of label it adds `anomaly_probability`.
    table
        A frame, or consecutive frames, such as those of `riskad.tables.reading.read_batches`: the
        table need not fit in memory, and only the most suspicious rows are kept.
    write
        Called with each scored frame.
    id
        Column that names the rows; no error if it is missing.
    threshold
        Rule to decide by, instead of the model's own. The k of "top:k" counts rows of this table.
    fdr
        False discovery rate at which rows are selected instead; adds `p_value`.
    reasons
        How many columns `reason_1`, `reason_2`, ... explain in words why rows are flagged.
    top
        Number of the most suspicious rows to report.
    by
        How to rank these rows: by "score", or by "novelty" for rows unlike all training rows.
    harmless
        Rules of the known harmless: matching rows are not flagged, and `suppressed_by` names the
        rule of those that would have been (`riskad.tables.harmless`).
    source, progress
        Name of the table in the report; a function that is called with each step.
    scored
        Called with the number of rows that have a score: 0 first, then every second or so.

    Returns
    -------
    tuple
        The scored frame (None if the table came in batches), and a report.

    Examples
    --------
    >>> import polars as pl
    >>> import riskad
    >>> amounts = [*range(10, 40), *range(80, 90)]
    >>> table = pl.DataFrame({"amount": amounts, "label": ["ok"] * 12 + [""] * 22 + ["fraud"] * 6})
    >>> labels = riskad.FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
    >>> fit = riskad.fit_table(table, labels, model="shallow")
    >>> scored, report = score_table(fit.model, pl.DataFrame({"amount": [15.0, 85.0]}))
    >>> scored.columns
    ['amount', 'anomaly_score', 'is_anomaly', 'anomaly_probability']
    >>> scored["is_anomaly"].to_list()
    [False, True]
    """
    if threshold is not None and fdr is not None:
        raise InputError("threshold=... and fdr=... are two ways to decide; give one of them.")
    check_choice("by", by, RANKED_BY)
    preparer, detector = steps_of(model)
    whole = isinstance(table, pl.DataFrame)
    batches = [table] if isinstance(table, pl.DataFrame) else table
    if harmless is not None:
        check_rows_are_scored(preparer)
    if hasattr(preparer, "windower_"):
        decided = {"threshold": threshold, "fdr": fdr, "reasons": reasons, "by": by}
        about = {"source": source, "progress": progress, "scored": scored}
        scored_rows, report = _score_series(model, list(batches), id, top, decided | about)
        write(scored_rows)
        return (scored_rows if whole else None), report
    if by == "novelty" and not detector_tags(detector).supports_novelty:
        raise InputError(
            f"{type(detector).__name__} has no novelty. Fit the model again with model='auto', or "
            "rank rows by score."
        )
    added = added_columns(detector, fdr, reasons, harmless)
    suppression = None if harmless is None else Suppression(harmless)
    segments, unseen = segments_of(detector), Counter[str]()
    scoring = _Scoring(preparer, detector, batches, added, progress, scored, _FIRST_SLICE)
    decision = decide(detector, threshold, fdr, scoring.all_scores)
    totals, frames = Totals(id, top, _COLUMN[by]), []
    for batch, (scores, novelty) in scoring.batches_and_scores():
        judged = score_columns(detector, scores, decision, novelty, batch)
        if suppression is not None:
            if not totals.rows:
                suppression.rules.check(preparer, batch)
            judged = suppression.apply(preparer, batch, judged)
        if segments is not None:
            unseen.update(unseen_segments(segments, batch))
        columns = pl.DataFrame(judged)
        if reasons:
            why = reason_columns(model, batch, columns["is_anomaly"], reasons)
            columns = columns.hstack(why)
        frame = batch.hstack(columns)
        write(frame)
        frames += [frame] if whole else []
        totals.add(batch, columns)
    notes, suppressed = list(map(str, scoring.notes)), list[SuppressedRows]()
    expected, calibration = None, getattr(detector, "calibration_", None)
    # What is known of the highest scores says nothing of rows that segments or rules chose.
    by_score = segments is None
    if suppression is not None:
        suppressed = suppression.of_table()
        notes += suppression.rules.notes()
        notes += [warning for each in suppressed for warning in each.warnings()]
        by_score = by_score and not any(each.suppressed for each in suppressed)
    if unseen:
        notes.append(note_of_segments(unseen))
    if calibration is not None and by_score and totals.flagged:
        review = review_rows(calibration, totals.scores, totals.rows)
        expected = None if review is None else review.at(totals.flagged)
    report = ScoreReport(
        source=source,
        rows=totals.rows,
        id=totals.id,
        threshold=decision.threshold,
        flagged=totals.flagged,
        top=suspects_of(totals.worst, totals.id),
        warnings=notes,
        rule=decision.rule,
        selection=decision.selection,
        added=added,
        by=by,
        expected=expected,
        suppressed=suppressed,
    )
    return (frames[0] if whole else None), report


def _score_series(
    model: Pipeline, frames: list[pl.DataFrame], id: str | None, top: int, options: dict[str, Any]
) -> tuple[pl.DataFrame, ScoreReport]:
    """Score the rows of series by the windows that hold them; suspects are peaks of events."""
    rows = pl.concat(frames) if frames else pl.DataFrame()
    if not rows.height:
        raise NoRows
    windower = model[0].windower_
    with catch_notes() as notes:
        windows = windower.cut(rows)
    scored, report = score_table(plain_model(model), windows.frame, top=0, **options)
    added = [*report.added, "event"]
    check_not_scored(rows.columns, added)
    columns, alarms = scores_of_points(windows, scored, rows.height, report.threshold, report.added)
    columns = columns.select(added)
    id = id if id in rows.columns else windower.time
    peaks = windows.points.rows[alarms.events["peak_point"].to_numpy()]
    worst = columns.hstack(rows.select(id)).with_row_index(free_name([id, *added]), 1)[peaks]
    report = replace(
        report,
        rows=rows.height,
        id=id,
        flagged=int(columns["is_anomaly"].sum()),
        top=suspects_of(rank(worst).head(top), id),
        warnings=[*map(str, notes), *report.warnings],
        added=added,
        expected=None,
        alarms=alarms.in_words(top),
    )
    return rows.hstack(columns), report


def score_into(
    model: Pipeline,
    batches: Iterable[pl.DataFrame],
    target: Target,
    *,
    source: str = "table",
    **options: Any,
) -> ScoreReport:
    """Score the rows of a table, and add them to a target in one step.

    A target that `adds` rows takes those that are not there already; there may be none. `options`
    are those of `score_table`.
    """
    rows = NewRows(batches, target)
    with target.writing():
        try:
            _, report = score_table(model, rows, target.add, source=source, **options)
        except NoRows:
            if not target.adds:
                raise
            decision = decide(steps_of(model)[1])
            report = ScoreReport(
                source, 0, options.get("id"), decision.threshold, 0, [], rule=decision.rule
            )
    return replace(report, skipped=rows.skipped)


@dataclass
class Totals:
    """Number of rows, number of flagged rows, the most suspicious of them, and scores of all."""

    id: str | None
    top: int
    by: str = SCORE_COLUMNS[0]
    rows: int = 0
    flagged: int = 0
    worst: pl.DataFrame = field(default_factory=pl.DataFrame)
    scores: NDArray[np.float64] = field(default_factory=partial(np.empty, 0))
    step: int = 1  # every score is kept, or every 2nd, 4th, 8th, ... of more than `_KEPT_SCORES`

    def add(self, batch: pl.DataFrame, columns: pl.DataFrame) -> None:
        """Count the rows of a batch, to which scoring adds columns."""
        self.id = self.id if self.id in batch.columns else None
        names = batch.select([] if self.id is None else [self.id])
        suspects = columns.select(SUSPECT_COLUMNS).hstack(names)
        suspects = suspects.with_row_index(free_name(names.columns), self.rows + 1)
        both = [self.worst, suspects] if self.rows else [suspects]
        self.worst = rank(pl.concat(both), self.by).head(self.top)
        scores = columns["anomaly_score"].to_numpy()
        self.scores = np.append(self.scores, scores[-self.rows % self.step :: self.step])
        # Every other score goes, so that those that stay are as far apart as all that follow.
        while len(self.scores) > _KEPT_SCORES:
            self.scores, self.step = self.scores[::2], 2 * self.step
        self.rows += batch.height
        self.flagged += int(columns["is_anomaly"].sum())


@dataclass
class _Scoring:
    """Batches of a table with their scores, which are computed once; `notes` are for the user."""

    preparer: TablePreparer
    detector: Any
    batches: Iterable[pl.DataFrame]
    added: Sequence[str]
    progress: Progress
    scored: Callable[[int], object]
    slice_rows: int
    notes: list[Warning] = field(default_factory=list)
    kept: list[_Scores] = field(default_factory=list)

    def all_scores(self, shifted: bool) -> NDArray[np.float64]:
        """Return the scores of the whole table, which are kept; or shifted by segment."""
        kept, parts, segments = [], [], segments_of(self.detector)
        for batch, scores in self.batches_and_scores():
            kept.append(scores)
            parts.append(scores[0])
            if shifted and segments is not None:
                places = segments.places(segment_values(batch, segments.column))
                parts[-1] = scores[0] + segments.shift_of(places)
        self.kept = kept
        return np.concatenate(parts)

    def batches_and_scores(self) -> Iterator[tuple[pl.DataFrame, _Scores]]:
        """Go through the batches that are not empty, with earlier scores if they were kept."""
        n_rows, kept = 0, iter(self.kept)
        if not self.kept:
            self.scored(0)
        for batch in self.batches:
            check_not_scored(batch.columns, self.added)
            if not batch.height:
                continue
            if self.kept:
                scores = next(kept, None)
                if scores is None or batch.height != len(scores[0]):
                    raise InputError(_ANOTHER_TABLE)
            else:
                with catch_notes() as notes:
                    prepared = self.preparer.transform(batch, first_row=n_rows + 1)
                    scores = self._score(prepared, n_rows)
                if notes:
                    self.notes = merge_notes([*self.notes, *notes])
            n_rows += batch.height
            self.progress(f"{'Writing' if self.kept else 'Scoring'}: {n_rows:,} rows done")
            yield batch, scores
        if next(kept, None) is not None:
            raise InputError(_ANOTHER_TABLE)
        if not n_rows:
            raise NoRows

    def _score(self, prepared: Any, rows_before: int) -> _Scores:
        """Score a batch in slices, larger ones until they take about a second."""
        n_rows, start, parts = prepared.shape[0], 0, []
        while start < n_rows:
            clock = perf_counter()
            part = prepared[start : start + self.slice_rows]
            parts.append(self.detector._anomaly_score_and_novelty(part))
            start += self.slice_rows
            self.scored(rows_before + min(start, n_rows))
            if perf_counter() - clock < _SECONDS_OF_A_SLICE:
                self.slice_rows *= 2
        scores, novelty = zip(*parts, strict=True)
        return np.concatenate(scores), None if novelty[0] is None else np.concatenate(novelty)


def unseen_segments(segments: Segments, frame: pl.DataFrame) -> Counter[str]:
    """Count the rows of segments of which the fit has no labels; blank ones are none."""
    values = Counter(segment_values(frame, segments.column))
    return Counter({name: n for name, n in values.items() if name and name not in segments.names})


def note_of_segments(unseen: Counter[str]) -> str:
    """Say what becomes of rows of segments without labels."""
    rows = "1 row is" if unseen.total() == 1 else f"{unseen.total():,} rows are"
    names = enumerate_names(list(unseen))
    whole = "threshold and probability are as for rows of no segment"
    return f"{rows} of segments that have no labels in the fit ({names}): {whole}"


def added_columns(
    detector: Detector, fdr: float | None = None, reasons: int = 0, harmless: Any = None
) -> list[str]:
    """Return the columns that scoring adds."""
    score, flag, probability, p_value, novelty, suppressed = RESULT_COLUMNS
    optional = {
        probability: knows_probabilities(detector),
        p_value: fdr is not None,
        novelty: detector_tags(detector).supports_novelty,
        suppressed: harmless is not None,
    }
    names = [score, flag, *filter(optional.__getitem__, optional)]
    return names + [f"reason_{i + 1}" for i in range(reasons)]


def reason_columns(
    model: Pipeline, frame: pl.DataFrame, is_anomaly: pl.Series, n: int
) -> pl.DataFrame:
    """The first reasons of flagged rows in words; blank for all others."""
    columns: list[list[str | None]] = [[None] * frame.height for _ in range(n)]
    flagged = np.flatnonzero(is_anomaly.to_numpy())
    if flagged.size:
        with quietly():
            explained = explain_rows(model, frame[flagged])
        for i, row in enumerate(flagged):
            for column, reason in zip(columns, explained.top(i, n), strict=False):
                column[row] = str(reason)
    names = [f"reason_{i + 1}" for i in range(n)]
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String), orient="col")


# --- drift ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableDrift:
    """What `drift_table` found.

    `alarm` is whether anything has moved further than `fail_above`; `above` lists what has, the
    furthest first: columns, and "scores".
    """

    source: str
    drift: DriftReport
    warnings: list[str] = field(default_factory=list)
    fail_above: float | None = None
    alarm: bool = False
    above: list[str] = field(default_factory=list)


def drift_table(
    model: Pipeline,
    frame: pl.DataFrame,
    *,
    level: float = 0.05,
    fail_above: float | None = None,
    source: str = "table",
    progress: Progress = lambda _: None,
) -> TableDrift:
    """Compare the rows of a table with the unlabelled rows that the model was fitted to.

    `level` is the probability of reporting a change if nothing has moved. Beyond `fail_above`, a
    distance D (`riskad.decisions.drift`), a column that has moved, or the scores, raise an alarm.
    In few rows a distance may be large by chance: a column that has not moved at this `level`
    raises no alarm, however large its D.
    """
    if not frame.height:
        raise NoRows
    if fail_above is not None and not 0 <= fail_above < 1:
        raise InputError(
            f"fail_above={fail_above:g} must be at least 0 and below 1. It is a distance of "
            "two distributions: 0 is for any that has moved, 0.2 for one of which a fifth has."
        )
    steps_of(model)
    with catch_notes() as notes:
        progress("Comparing the rows with those of the fit")
        drift = drift_report(model, frame, level=level)
    above: list[str] = []
    if fail_above is not None:
        compared = [*drift.columns, *([] if drift.scores is None else [drift.scores])]
        beyond = [each for each in compared if each.moved and each.distance > fail_above]
        above = [each.name for each in sorted(beyond, key=lambda each: -each.distance)]
    return TableDrift(source, drift, list(map(str, notes)), fail_above, bool(above), above)
