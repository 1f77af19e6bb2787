"""Score the rows of a table, in memory or in batches, and report what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app import results
from riskad.app.noticed import NOTICED, Progress, merge_warnings, no_warnings
from riskad.app.reasons import explain_rows
from riskad.app.results import SCORE_COLUMNS, Suspect, steps_of
from riskad.core.checks import InputError, check_choice
from riskad.decisions.capacity import Found, review_rows
from riskad.decisions.thresholds import Threshold
from riskad.detectors.description import detector_tags
from riskad.tables.notes import catch_kinds
from riskad.tables.targets import NewRows, Since, Target

_COLUMN = {"score": "anomaly_score", "novelty": "novelty"}
RANKED_BY = tuple(_COLUMN)
"""Columns by which a report can rank rows."""

_Scores: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64] | None]
"""Anomaly scores and, if the detector has it, novelty."""
_ANOTHER_TABLE = (
    "The table had changed when it was read a second time, which this way of deciding takes. Score "
    "a copy that nothing writes to; in Python give a list of frames, or "
    "riskad.tables.reading.read_batches(path)."
)
_KEPT_SCORES = 200_000
_FIRST_SLICE = 512  # rows: see `_BATCH_MULTIPLE` of riskad.tables.reading
_SECONDS_OF_A_SLICE = 1.0


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
    expected: Found | None = None
    """Expected anomalies among the flagged rows, if the labels of the fit determine them."""
    skipped: int = 0
    """Number of rows that were left out because they were scored before."""


class NoRows(InputError):
    """There is nothing to score."""


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
    source: str = "table",
    progress: Progress = lambda _: None,
    scored: Callable[[int], object] = lambda _: None,
) -> tuple[Any, ScoreReport]:
    """Add `anomaly_score`, `is_anomaly` and more to the rows of a table, and report on them.

    Rows and columns stay as they are; columns the model does not know are ignored. Which rows are
    the top k, and which can be selected at a false discovery rate, depends on all rows: for these,
    a table in batches is read twice, and the scores of all rows are kept.

    Parameters
    ----------
    model
        A model from `riskad.fit_table`. One that was fitted with both kinds of label adds
        `anomaly_probability`.
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
    source, progress
        Name of the table in the report; a function that is called with each step.
    scored
        Called with the number of rows that have a score: with 0 at the start, then every second or
        so.

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
        raise InputError("threshold and fdr are two ways to decide; give one of them.")
    check_choice("by", by, RANKED_BY)
    whole = isinstance(table, pl.DataFrame)
    batches = [table] if isinstance(table, pl.DataFrame) else table
    _, detector = steps_of(model)
    if by == "novelty" and not detector_tags(detector).supports_novelty:
        raise InputError(
            f"{type(detector).__name__} has no novelty. Fit the model again with model='auto', or "
            "rank rows by score."
        )
    added = added_columns(detector, fdr, reasons)
    scoring = _Scoring(model, batches, added, progress, scored)
    decision = results.decide(detector, threshold, fdr, scoring.all_scores)
    totals, frames = _Totals(id, top, _COLUMN[by]), []
    for batch, (scores, novelty) in scoring:
        columns = pl.DataFrame(results.score_columns(detector, scores, decision, novelty))
        if reasons:
            why = _reason_columns(model, batch, columns["is_anomaly"], reasons)
            columns = columns.hstack(why)
        frame = batch.hstack(columns)
        write(frame)
        frames += [frame] if whole else []
        totals.add(batch, columns)
    expected, calibration = None, getattr(detector, "calibration_", None)
    if calibration is not None and totals.flagged:
        review = review_rows(calibration, totals.scores, totals.rows)
        expected = None if review is None else review.at(totals.flagged)
    report = ScoreReport(
        source=source,
        rows=totals.rows,
        id=totals.id,
        threshold=decision.threshold,
        flagged=totals.flagged,
        top=results.suspects_of(totals.worst, totals.id),
        warnings=list(map(str, scoring.notes)),
        rule=decision.rule,
        selection=decision.selection,
        added=added,
        by=by,
        expected=expected,
    )
    return (frames[0] if whole else None), report


def score_into(
    model: Pipeline,
    batches: Iterable[pl.DataFrame],
    target: Target,
    since: Since | None = None,
    *,
    source: str = "table",
    **options: Any,
) -> ScoreReport:
    """Score the rows of a table, and add them to a target in one step.

    With `since`, rows that are in the target already, or too old, are left out; there may be none.
    `options` are those of `score_table`.
    """
    rows = None if since is None else NewRows(batches, since, target)
    options["source"] = source
    with target.writing():
        if rows is None:
            return score_table(model, batches, target.add, **options)[1]
        try:
            _, report = score_table(model, rows, target.add, **options)
        except NoRows:
            decision = results.own_decision(steps_of(model)[1])
            threshold, rule = decision.threshold, decision.rule
            report = ScoreReport(source, 0, options.get("id"), threshold, 0, [], rule=rule)
    return replace(report, skipped=rows.skipped)


@dataclass
class _Totals:
    """Number of rows, number of flagged rows, the most suspicious of them, and scores of all."""

    id: str | None
    top: int
    by: str
    rows: int = 0
    flagged: int = 0
    worst: pl.DataFrame = field(default_factory=pl.DataFrame)
    scores: NDArray[np.float64] = field(default_factory=partial(np.empty, 0))
    step: int = 1
    """Every score is kept, or every 2nd, 4th, 8th, ... of more than `_KEPT_SCORES`."""

    def add(self, batch: pl.DataFrame, columns: pl.DataFrame) -> None:
        """Count the rows of a batch, to which scoring adds columns."""
        self.id = self.id if self.id in batch.columns else None
        names = batch.select([] if self.id is None else [self.id])
        seen = columns.select(results.SUSPECT_COLUMNS).hstack(names)
        seen = seen.with_row_index(results.free_name(names.columns), self.rows + 1)
        both = [self.worst, seen] if self.rows else [seen]
        self.worst = results.rank(pl.concat(both), self.by).head(self.top)
        scores = columns["anomaly_score"].to_numpy()
        self.scores = np.append(self.scores, scores[-self.rows % self.step :: self.step])
        while len(self.scores) > _KEPT_SCORES:
            self.scores, self.step = self.scores[::2], 2 * self.step
        self.rows += batch.height
        self.flagged += int(columns["is_anomaly"].sum())


class _Scoring:
    """Batches of a table with their scores, which are computed once; `notes` are for the user."""

    def __init__(
        self,
        model: Pipeline,
        batches: Iterable[pl.DataFrame],
        added: Sequence[str],
        progress: Progress,
        scored: Callable[[int], object],
    ):
        self.preparer, self.detector = steps_of(model)
        self.batches, self.added = batches, added
        self.progress, self.scored = progress, scored
        self.notes: list[Warning] = []
        self._kept: list[_Scores] = []
        self._slice = _FIRST_SLICE

    def all_scores(self) -> NDArray[np.float64]:
        """Return the scores of the whole table, which are kept."""
        self._kept = [scores for _, scores in self]
        return np.concatenate([scores for scores, _ in self._kept])

    def __iter__(self) -> Iterator[tuple[pl.DataFrame, _Scores]]:
        """Go through the batches that are not empty, with earlier scores if they were kept."""
        n_rows, kept = 0, iter(self._kept)
        if not self._kept:
            self.scored(0)
        for batch in self.batches:
            results.check_not_scored(batch.columns, self.added)
            if not batch.height:
                continue
            if self._kept:
                scores = next(kept, None)
                if scores is None or batch.height != len(scores[0]):
                    raise InputError(_ANOTHER_TABLE)
            else:
                with catch_kinds(*NOTICED) as notes:
                    prepared = self.preparer.transform(batch, first_row=n_rows + 1)
                    scores = self._score(prepared, n_rows)
                if notes:
                    self.notes = merge_warnings([*self.notes, *notes])
            n_rows += batch.height
            self.progress(f"{'Writing' if self._kept else 'Scoring'}: {n_rows:,} rows done")
            yield batch, scores
        if next(kept, None) is not None:
            raise InputError(_ANOTHER_TABLE)
        if not n_rows:
            raise NoRows("The table has a header but no rows.")

    def _score(self, prepared: Any, rows_before: int) -> _Scores:
        """Score a batch in slices, larger ones until they take about a second."""
        n_rows, start, parts = prepared.shape[0], 0, []
        while start < n_rows:
            clock = perf_counter()
            parts.append(results.score_rows(self.detector, prepared[start : start + self._slice]))
            start += self._slice
            self.scored(rows_before + min(start, n_rows))
            if perf_counter() - clock < _SECONDS_OF_A_SLICE:
                self._slice *= 2
        scores, novelty = zip(*parts, strict=True)
        return np.concatenate(scores), None if novelty[0] is None else np.concatenate(novelty)


def added_columns(detector: Any, fdr: float | None, reasons: int) -> list[str]:
    """The columns that scoring adds."""
    score, flag, probability, p_value, novelty = results.RESULT_COLUMNS
    return [
        score,
        flag,
        *([probability] if results.knows_probabilities(detector) else []),
        *([p_value] if fdr is not None else []),
        *([novelty] if detector_tags(detector).supports_novelty else []),
        *(f"reason_{i + 1}" for i in range(reasons)),
    ]


def _reason_columns(
    model: Pipeline, frame: pl.DataFrame, is_anomaly: pl.Series, n: int
) -> pl.DataFrame:
    """The first reasons of flagged rows in words; blank for all others."""
    columns: list[list[str | None]] = [[None] * frame.height for _ in range(n)]
    flagged = np.flatnonzero(is_anomaly.to_numpy())
    if flagged.size:
        with no_warnings():
            found = explain_rows(model, frame[flagged])
        for i, row in enumerate(flagged):
            for column, reason in zip(columns, found.top(i, n), strict=False):
                column[row] = str(reason)
    names = [f"reason_{i + 1}" for i in range(n)]
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String), orient="col")
