"""A row's way through the server: JSON in, cells as `riskad score` reads them, JSON out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.reasons import explain_rows
from riskad.app.score import (
    RESULT_COLUMNS,
    SCORE_COLUMNS,
    decide,
    merge_notes,
    note_of_segments,
    score_columns,
    segments_of,
    steps_of,
    unseen_segments,
)
from riskad.app.stream import Stream
from riskad.core.checks import DataWarning, InputError
from riskad.decisions.calibration import quietly
from riskad.tables.harmless import HarmlessRules, Suppression, check_rows_are_scored
from riskad.tables.json_lines import frame_of_objects
from riskad.web.guard import Refusal, parse_object

_MOST_EXPLAINED = 100  # rows whose reasons are given at once: they take as long as hundreds
# What may follow /score: whole numbers, each with the largest and its meaning.
SCORE_SETTINGS: Mapping[str, tuple[int, str]] = {
    "reasons": (20, "How many reasons for flagged rows."),
    "p_values": (1, "1 to add p-values of being normal."),
}
_EXAMPLE = '{"amount": 12.5, "country": "BE"} or {"rows": [{"amount": 12.5}, {"amount": 3}]}'
_PART = 1_000  # rows that are scored before others get their turn: some 10 to 100 ms
_WARM_UP_ROWS = 2
_MOST_COMPARED = 1_000  # names among which one that was meant is looked for
_DEEPEST = 8
_MOST_KEYS = 10_000
_MOST_NESTED = 1_000_000
Floats = NDArray[np.float64]


class RowScorer:
    """Scores rows like `riskad.score_table`, in steps between which a server can do others.

    Cells are read and compared with those of the fit in the same way. But rows are not ranked, and
    there are no messages about all of them together. Python's list of warnings, which this uses, is
    shared by all threads: call it from one thread.
    """

    def __init__(
        self,
        model: Pipeline,
        state: Path | None = None,
        harmless: HarmlessRules | None = None,
    ):
        self.model = model
        self.preparer, self.detector = steps_of(model)
        self.columns: list[str] = self.preparer.read_columns  # which rows must have
        self.kinds = self.preparer.kinds_  # of each column that is read
        self._segments = segments_of(self.detector)
        if self._segments is not None and self._segments.column not in self.columns:
            self.columns = [*self.columns, self._segments.column]
        self.stream = Stream(model, state) if hasattr(self.preparer, "windower_") else None
        if self.stream is not None:
            self.model, self.columns = self.stream.model, self.stream.columns
            windower = self.stream.windower
            group = {} if windower.group is None else {windower.group: "category"}
            self.kinds = {**windower.reader.kinds_, **group}
        self.suppression = None
        if harmless is not None:
            check_rows_are_scored(self.preparer)
            sent = pl.DataFrame(schema=dict.fromkeys(self.columns, pl.String))
            harmless.check(self.preparer, sent)
            self.suppression = Suppression(harmless)
        self._pictures = [name for name in self.columns if self.kinds.get(name) == "image"]
        self._decision = decide(self.detector)

    def warm_up(self) -> None:
        """Score rows made up from the columns, so that the first real row is fast."""
        rng = np.random.default_rng(0)
        columns = {c.name: c.random_values(rng, _WARM_UP_ROWS) for c in self.preparer.used()}
        others = {*self.preparer.read_columns, *self.columns} - set(columns)
        columns |= {name: pl.Series(["", ""]) for name in others}
        with quietly():
            frame = pl.DataFrame(columns)
            rows = self.preparer.transform(frame)
            scores, novelty = self.detector._anomaly_score_and_novelty(rows)
            score_columns(self.detector, scores, self._decision, novelty, frame)

    def answer(
        self,
        body: bytes,
        head: Mapping[str, Any],
        *,
        most_rows: int,
        reasons: int = 0,
        p_values: int = 0,
    ) -> Iterator[tuple[bytes, Any, Floats, NDArray[np.bool_]] | None]:
        """Answer a request for scores, in steps."""
        objects, single = _parse_rows(parse_object(body, _EXAMPLE), most_rows)
        if reasons and len(objects) > _MOST_EXPLAINED:
            raise InputError(
                f"Reasons are given for at most {_MOST_EXPLAINED} rows at once, and there are "
                f"{len(objects):,}. Send fewer, or ask again for those that are flagged."
            )
        frame = self._frame(objects, single)
        del objects  # which take far more memory than the frame
        if self.stream is not None:
            yield self._answer_series(frame, dict(head), reasons)
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DataWarning)
            rows = self.preparer.transform(frame)
        notes = [each.message for each in caught if isinstance(each.message, DataWarning)]
        parts = []
        for start in range(0, frame.height, _PART):
            if start:
                yield None
            part = rows[start : start + _PART] if frame.height > _PART else rows
            parts.append(self.detector._anomaly_score_and_novelty(part))
        scores = np.concatenate([each for each, _ in parts])
        novelties = [novelty for _, novelty in parts if novelty is not None]
        novelty = np.concatenate(novelties) if novelties else None
        results = score_columns(self.detector, scores, self._decision, novelty, frame)
        if self.suppression is not None:
            results = self.suppression.apply(self.preparer, frame, results)
        if p_values:
            results["p_value"] = self.detector._calibrated("p-values").p_values(scores)
        flagged, content = results["is_anomaly"], dict(head)
        sentences = [str(note) for note in merge_notes(notes)] if notes else []
        if self._segments is not None and (unseen := unseen_segments(self._segments, frame)):
            sentences.append(note_of_segments(unseen))
        if sentences:
            content["notes"] = sentences
        if single or reasons:
            lists = [np.asarray(values).tolist() for values in results.values()]
            scored = [dict(zip(results, row, strict=True)) for row in zip(*lists, strict=True)]
            if reasons:
                self._add_reasons(scored, frame, flagged, reasons)
            content |= scored[0] if single else {"rows": scored}
            answer = _to_json(content)
        else:  # polars writes many rows much faster
            written = pl.DataFrame(results).write_json()
            opening = json.dumps(content, ensure_ascii=False)[:-1]
            answer = f'{opening}, "rows": {written}}}'.encode()
        yield answer, rows, scores, flagged

    def _answer_series(
        self, frame: pl.DataFrame, content: dict[str, Any], reasons: int
    ) -> tuple[bytes, Any, Floats, NDArray[np.bool_]]:
        """The windows that these points complete, with their scores; often there are none."""
        assert self.stream is not None
        windows = self.stream.push(frame)
        scores, flagged, rows = np.empty(0), np.empty(0, dtype=bool), None
        if windows.height:
            scores, flagged = (windows[name].to_numpy() for name in SCORE_COLUMNS)
            with quietly():
                rows = self.preparer.transform(windows)
        shown = [name for name in windows.columns if name in (*self.stream.names, *RESULT_COLUMNS)]
        moments = windows.select(shown).with_columns(cs.datetime().dt.to_string("iso:strict"))
        scored = moments.to_dicts()
        if reasons:
            self._add_reasons(scored, windows, flagged, reasons)
        content |= {"windows": scored, "left_out": self.stream.left_out}
        return _to_json(content), rows, scores, flagged

    def _frame(self, rows: Sequence[Mapping[str, Any]], single: bool) -> pl.DataFrame:
        """The columns that the model reads, parsed like the lines of a JSON file.

        Every row must have all of these columns, so that the answer to a row is the same alone and
        among others.
        """
        for number, row in enumerate(rows, 1):
            if row.keys() >= set(self.columns):
                continue
            inner = [f"{k}.{each}" for k, v in row.items() if type(v) is dict for each in v]
            present = dict.fromkeys([*row, *inner])
            if missing := [name for name in self.columns if name not in present]:
                name = missing[0]
                close = get_close_matches(name, [*present][:_MOST_COMPARED], n=1)
                guess = f" Did you mean it by {close[0]!r}?" if close else ""
                raise InputError(
                    f"{'The row' if single else f'Row {number:,}'} lacks the column {name!r}, "
                    f"which the model reads; send it, with null where it is blank.{guess}"
                )
        check_nesting(rows, self.columns)
        frame = frame_of_objects(rows, self.columns)
        for name in self._pictures:
            # A path would be one of this machine, whose files are nobody else's.
            cells = frame[name].cast(pl.String).drop_nulls()
            if not cells.str.starts_with("data:image/").all():
                raise InputError(
                    f"Column {name!r} holds pictures, and takes no path here: send each picture "
                    "itself, as data:image/png;base64,..."
                )
        return frame

    def _add_reasons(
        self, scored: list[dict[str, Any]], frame: pl.DataFrame, flagged: NDArray[np.bool_], n: int
    ) -> None:
        """Add to each row the columns that make it anomalous; none if it is not flagged."""
        for row in scored:
            row["reasons"] = []
        places = np.flatnonzero(flagged)
        if places.size:
            with quietly():
                reasons = explain_rows(self.model, frame[places])
            for i, place in enumerate(places):
                of_row = [asdict(each) | {"text": str(each)} for each in reasons.top(i, n)]
                scored[place]["reasons"] = of_row


def _to_json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _parse_rows(body: Mapping[str, Any], most: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """The rows of a body, which is one itself unless it has a list under "rows"."""
    rows = body.get("rows")
    if not isinstance(rows, list):
        return [body], True
    if len(body) > 1:
        other = next(key for key in body if key != "rows")
        raise InputError(
            f'"rows" must stand alone, and {other[:40]!r} is beside it; leave that out.'
        )
    if not rows:
        raise InputError("rows is empty; send at least one row.")
    if len(rows) > most:
        raise Refusal(413, f"There are {len(rows):,} rows; send at most {most:,} at once.")
    for number, row in enumerate(rows, 1):
        if type(row) is not dict:
            raise InputError(f"Row {number:,} is not an object of columns; send {_EXAMPLE}.")
    return rows, False


def check_nesting(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Refuse objects as cells, and cells that would take minutes to read, so nested are they."""
    n_values, depth, keys = 0, 0, set[str]()
    nested = (dict, list)
    level = [(name, cell) for row in rows for name, cell in row.items() if type(cell) in nested]
    while level:
        n_values, depth = n_values + len(level), depth + 1
        if depth > _DEEPEST:
            raise InputError(
                f"The cell {level[0][0][:40]!r} is nested more than {_DEEPEST} levels deep; send a "
                "number, a text or null."
            )
        below: list[tuple[str, Any]] = []
        for name, cell in level:
            # Alone it would become columns of its own, and among other rows a text.
            if depth == 1 and type(cell) is dict and name in columns:
                what = "an object; send a number, a text or null"
                raise InputError(f"The cell {name[:40]!r} is {what}.")
            keys.update(cell if type(cell) is dict else ())
            inside = cell.values() if type(cell) is dict else cell
            below += [(name, each) for each in inside if type(each) in nested]
        level = below
    # Each object becomes a row of a table with all the keys.
    if len(keys) > _MOST_KEYS or n_values * (1 + len(keys)) > _MOST_NESTED:
        raise InputError(
            f"The cells hold {n_values:,} lists and objects with {len(keys):,} different keys, "
            "which would take too long to read; send numbers, texts or nulls."
        )
