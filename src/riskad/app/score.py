"""Score the rows of a table, in memory or in batches, and report what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, Progress, merge_warnings, no_warnings
from riskad.app.reasons import explain_rows
from riskad.app.results import (
    RESULT_COLUMNS,
    SCORE_COLUMNS,
    SUSPECT_COLUMNS,
    Decision,
    Suspect,
    check_not_scored,
    decide,
    free_name,
    knows_probabilities,
    own_decision,
    rank,
    read_rule,
    score_columns,
    score_rows,
    steps_of,
    suspects_of,
)
from riskad.core.checks import InputError, check_choice
from riskad.decisions.capacity import Found, review_rows
from riskad.decisions.thresholds import Threshold
from riskad.detectors.base import Detector
from riskad.detectors.description import detector_tags
from riskad.tables.notes import catch_kinds
from riskad.tables.targets import NewRows, Since, Target

_COLUMN = {"score": "anomaly_score", "novelty": "novelty"}
RANKED_BY = tuple(_COLUMN)
"""Columns by which a report can rank rows."""

Said: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64] | None]
Scored: TypeAlias = Iterator[tuple[pl.DataFrame, Said]]
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
    whole = isinstance(table, pl.DataFrame)
    job = _Scoring(model, [table] if whole else table, fdr, reasons, progress, scored)
    check_choice("by", by, RANKED_BY)
    if by == "novelty" and not detector_tags(job.detector).supports_novelty:
        raise InputError(
            f"{type(job.detector).__name__} does not tell novelty. Fit the model again with "
            "model='auto', or rank rows by score."
        )
    totals = _Totals(id, top, _COLUMN[by])
    decision = job.decide(None if threshold is None else read_rule(threshold), fdr)
    kept: list[pl.DataFrame] = []
    for batch, results in job.results(decision, reasons):
        frame = batch.hstack(results)
        write(frame)
        kept += [frame] if whole else []
        totals.add(batch, results)
    report = ScoreReport(
        source=source,
        rows=totals.rows,
        id=totals.id,
        threshold=decision.threshold,
        flagged=totals.flagged,
        top=suspects_of(totals.worst, totals.id),
        warnings=list(map(str, job.news)),
        rule=decision.rule,
        selection=decision.selection,
        added=job.added,
        by=by,
        expected=_expected(job.detector, totals),
    )
    return (kept[0] if whole else None), report


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
    with target.writing():
        try:
            told = {"source": source, **options}
            _, report = score_table(model, batches if rows is None else rows, target.add, **told)
        except NoRows:
            if rows is None:
                raise
            report = _nothing_new(model, source, options.get("id"))
    return report if rows is None else replace(report, skipped=rows.skipped)


def _nothing_new(model: Pipeline, source: str, id: str | None) -> ScoreReport:
    decision = own_decision(steps_of(model)[1])
    return ScoreReport(source, 0, id, decision.threshold, 0, [], rule=decision.rule)


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

    def add(self, batch: pl.DataFrame, results: pl.DataFrame) -> None:
        """Count the rows of a batch."""
        self.id = self.id if self.id in batch.columns else None
        names = batch.select([] if self.id is None else [self.id])
        seen = results.select(SUSPECT_COLUMNS).hstack(names)
        seen = seen.with_row_index(free_name(names.columns), self.rows + 1)
        both = [self.worst, seen] if self.rows else [seen]
        self.worst = rank(pl.concat(both), self.by).head(self.top)
        scores = results["anomaly_score"].to_numpy()
        self.scores = np.append(self.scores, scores[-self.rows % self.step :: self.step])
        while len(self.scores) > _KEPT_SCORES:
            self.scores, self.step = self.scores[::2], 2 * self.step
        self.rows += batch.height
        self.flagged += int(results["is_anomaly"].sum())


def _expected(detector: Detector, totals: _Totals) -> Found | None:
    """Expected anomalies among the flagged rows, by the labels of the fit."""
    calibration = getattr(detector, "calibration_", None)
    if calibration is None or not totals.flagged:
        return None
    review = review_rows(calibration, totals.scores, totals.rows)
    return None if review is None else review.at(totals.flagged)


class _Scoring:
    """Scores of a table that comes in batches, computed once."""

    def __init__(
        self,
        model: Pipeline,
        batches: Any,
        fdr: float | None,
        reasons: int,
        progress: Progress,
        scored: Callable[[int], object],
    ):
        self.model, self.batches = model, batches
        self.progress, self.scored = progress, scored
        self.preparer, self.detector = steps_of(model)
        self.added = added_columns(self.detector, fdr, reasons)
        self.news: list[Warning] = []
        self._kept: list[Said] = []
        self._slice = _FIRST_SLICE

    def decide(self, rule: Threshold | None, fdr: float | None) -> Decision:
        """Decide which rows are flagged, from all scores if the rule depends on them."""

        def all_scores() -> NDArray[np.float64]:
            self._kept.extend(said for _, said in self._scored())
            return np.concatenate([scores for scores, _ in self._kept])

        return decide(self.detector, rule, fdr, all_scores)

    def results(
        self, decision: Decision, reasons: int
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Batches, and the columns to be added to each."""
        scored = _again(self.batches, self._kept, self.progress) if self._kept else self._scored()
        for batch, (scores, novelty) in scored:
            results = pl.DataFrame(score_columns(self.detector, scores, decision, novelty))
            if reasons:
                found = _reason_columns(self.model, batch, results["is_anomaly"], reasons)
                results = results.hstack(found)
            yield batch, results

    def _scored(self) -> Scored:
        """Non-empty batches with their scores; messages for the user go into `news`."""
        n_rows = 0
        self.scored(0)
        for batch in self.batches:
            check_not_scored(batch.columns, self.added)
            if not batch.height:
                continue
            with catch_kinds(*NOTICED) as notes:
                prepared = self.preparer.transform(batch, first_row=n_rows + 1)
                said = self._score(prepared, n_rows)
            if notes:
                self.news[:] = merge_warnings([*self.news, *notes])
            n_rows += batch.height
            self.progress(f"Scoring: {n_rows:,} rows done")
            yield batch, said
        if not n_rows:
            raise NoRows("The table has a header but no rows.")

    def _score(self, prepared: Any, rows_before: int) -> Said:
        """Score a batch in slices, larger ones until they take about a second."""
        n_rows, start, parts = prepared.shape[0], 0, []
        while start < n_rows:
            clock = perf_counter()
            parts.append(score_rows(self.detector, prepared[start : start + self._slice]))
            start += self._slice
            self.scored(rows_before + min(start, n_rows))
            if perf_counter() - clock < _SECONDS_OF_A_SLICE:
                self._slice *= 2
        scores, novelty = zip(*parts, strict=True)
        return np.concatenate(scores), None if novelty[0] is None else np.concatenate(novelty)


def _again(batches: Iterable[pl.DataFrame], kept: Sequence[Said], progress: Progress) -> Scored:
    """Go through batches again, with their earlier scores."""
    n_rows = 0
    with_rows = (batch for batch in batches if batch.height)
    for batch, said in zip_longest(with_rows, kept):
        if batch is None or said is None or batch.height != len(said[0]):
            raise InputError(
                "The table was another when it was read a second time, which this way of deciding "
                "takes. Score a copy that nothing writes to; in Python give a list of frames, or "
                "riskad.tables.reading.read_batches(path)."
            )
        n_rows += batch.height
        progress(f"Writing: {n_rows:,} rows done")
        yield batch, said


def added_columns(detector: Detector, fdr: float | None, reasons: int) -> list[str]:
    """The columns that scoring adds."""
    score, flag, probability, p_value, novelty = RESULT_COLUMNS
    return [
        score,
        flag,
        *([probability] if knows_probabilities(detector) else []),
        *([p_value] if fdr is not None else []),
        *([novelty] if detector_tags(detector).supports_novelty else []),
        *_reason_names(reasons),
    ]


def _reason_names(n: int) -> list[str]:
    return list(map("reason_{}".format, range(1, n + 1)))


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
    return pl.DataFrame(columns, schema=dict.fromkeys(_reason_names(n), pl.String), orient="col")
