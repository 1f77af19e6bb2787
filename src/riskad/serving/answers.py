"""Scores, decisions, probabilities and reasons as JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.app.online import RowScorer, join_rows
from riskad.app.reasons import Reason
from riskad.core.checks import InputError
from riskad.serving.models import ServedModel
from riskad.serving.queueing import Answer, Job
from riskad.serving.rows import make_frame, parse_body, parse_rows
from riskad.web.guarding import Refusal

__all__ = ["MOST_EXPLAINED", "Answers", "refuse", "to_bytes"]

MOST_EXPLAINED = 100
"""Most rows whose reasons may be requested at once: they take as long as hundreds of rows."""
_PART = 1_000
Floats = NDArray[np.float64]


def to_bytes(said: Any) -> bytes:
    """Return JSON."""
    return json.dumps(said, ensure_ascii=False, allow_nan=False).encode()


def refuse(status: int, reason: str) -> Answer:
    """Return the answer to a request that is not served: one sentence."""
    return Answer(status, to_bytes({"error": " ".join(reason.split())}))


@dataclass(frozen=True)
class _Read:
    """A request whose cells have been read."""

    job: Job
    single: bool
    frame: pl.DataFrame
    rows: Any
    notes: list[str]


class Answers:
    """Answers requests for scores, in one thread.

    Parameters
    ----------
    most_rows
        Most rows of one request.
    scored
        Called with a model, prepared rows, their scores and which are flagged.
    """

    def __init__(
        self,
        most_rows: int,
        scored: Callable[[ServedModel, Any, Floats, NDArray[np.bool_]], object],
    ):
        self._most_rows, self._scored = most_rows, scored

    def answer_small(self, jobs: Sequence[Job]) -> list[Answer]:
        """Answer jobs of one model; all their rows are scored together."""
        read = [self._read(job) for job in jobs]
        good = [each for each in read if isinstance(each, _Read)]
        scores: Floats = np.empty(0)
        novelty = None
        if good:
            scores, novelty = jobs[0].model.scorer.score(join_rows([each.rows for each in good]))
        answers, start = [], 0
        for each in read:
            if isinstance(each, Answer):
                answers.append(each)
                continue
            place = slice(start, start := start + each.frame.height)
            answers.append(self._finish(each, scores[place], _part(novelty, place)))
        return answers

    def answer_large(self, job: Job) -> Iterator[Answer | None]:
        """Answer a job, with None between its parts."""
        read = self._read(job)
        if isinstance(read, Answer):
            yield read
            return
        yield None
        scorer, parts = job.model.scorer, []
        for start in range(0, read.frame.height, _PART):
            parts.append(scorer.score(read.rows[start : start + _PART]))
            yield None
        scores = np.concatenate([scores for scores, _ in parts])
        found = [novelty for _, novelty in parts if novelty is not None]
        yield self._finish(read, scores, np.concatenate(found) if found else None)

    def _read(self, job: Job) -> _Read | Answer:
        """The rows of a request in the detector's form, or what is wrong with it."""
        scorer = job.model.scorer
        try:
            rows, single = parse_rows(parse_body(job.body), self._most_rows)
            if job.reasons and len(rows) > MOST_EXPLAINED:
                raise InputError(
                    f"Reasons are told of at most {MOST_EXPLAINED} rows at once, and there are "
                    f"{len(rows):,}. Send fewer, or ask again for those that are flagged."
                )
            frame = make_frame(rows, single, scorer)
            return _Read(job, single, frame, *scorer.prepare(frame))
        except Refusal as refusal:
            return refuse(refusal.status, refusal.reason)
        except InputError as error:
            return refuse(422, str(error))

    def _finish(self, read: _Read, scores: Floats, novelty: Floats | None) -> Answer:
        job, scorer = read.job, read.job.model.scorer
        try:
            results = _results(scorer, job, scores, novelty)
        except InputError as error:
            return refuse(422, str(error))
        flagged = results["is_anomaly"]
        self._scored(job.model, read.rows, scores, flagged)
        more: dict[str, Any] = {"notes": read.notes} if read.notes else {}
        if not (read.single or job.reasons):
            return Answer(200, _many(job.model.version, results, more))
        cells = zip(*(values.tolist() for values in results.values()), strict=True)
        rows: list[dict[str, Any]] = [dict(zip(results, row, strict=True)) for row in cells]
        if job.reasons:
            for row, found in zip(
                rows, scorer.reasons(read.frame, flagged, job.reasons), strict=True
            ):
                row["reasons"] = [_reason(each) for each in found]
        said = rows[0] if read.single else {"rows": rows}
        return Answer(200, to_bytes({"model_version": job.model.version, **said, **more}))


def _part(novelty: Floats | None, place: slice) -> Floats | None:
    return None if novelty is None else novelty[place]


def _results(
    scorer: RowScorer, job: Job, scores: Floats, novelty: Floats | None
) -> dict[str, NDArray[Any]]:
    results = scorer.results(scores, novelty)
    return results | {"p_value": scorer.p_values(scores)} if job.p_values else results


def _many(version: str, results: dict[str, NDArray[Any]], more: dict[str, Any]) -> bytes:
    """The same for many rows, whose objects polars writes much faster."""
    head = to_bytes({"model_version": version, **more}).removesuffix(b"}")
    return head + b', "rows": ' + pl.DataFrame(results).write_json().encode() + b"}"


def _reason(reason: Reason) -> dict[str, Any]:
    return asdict(reason) | {"text": str(reason)}
