"""A row's way through the server: JSON in, cells as `riskad score` reads them, JSON out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from riskad.app.noticed import NOTICED, merge_warnings, no_warnings
from riskad.app.reasons import explain_rows
from riskad.app.results import own_decision, score_columns, score_rows, steps_of
from riskad.core.checks import InputError
from riskad.tables.json_lines import frame_of_objects
from riskad.tables.notes import catch_kinds
from riskad.web.guard import Refusal, parse_object

MOST_EXPLAINED = 100
"""Most rows whose reasons may be requested at once: they take as long as hundreds of rows."""
_EXAMPLE = '{"amount": 12.5, "country": "BE"} or {"rows": [{"amount": 12.5}, {"amount": 3}]}'
_PART = 1_000
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

    def __init__(self, model: Pipeline):
        self.model = model
        self.preparer, self.detector = steps_of(model)
        self.columns: list[str] = self.preparer.read_columns
        """The columns that rows must have."""
        self._decision = own_decision(self.detector)

    def warm_up(self) -> None:
        """Score rows made up from the columns, so that the first real row is fast."""
        rng = np.random.default_rng(0)
        made = {c.name: c.random_values(rng, _WARM_UP_ROWS) for c in self.preparer.used()}
        made |= {name: pl.Series(["", ""]) for name in self.columns if name not in made}
        with no_warnings():
            scores, novelty = score_rows(self.detector, self.preparer.transform(pl.DataFrame(made)))
            score_columns(self.detector, scores, self._decision, novelty)

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
        if reasons and len(objects) > MOST_EXPLAINED:
            raise InputError(
                f"Reasons are told of at most {MOST_EXPLAINED} rows at once, and there are "
                f"{len(objects):,}. Send fewer, or ask again for those that are flagged."
            )
        frame = self._frame(objects, single)
        del objects  # which take far more memory than the frame
        with catch_kinds(*NOTICED) as noticed:
            rows = self.preparer.transform(frame)
        parts = []
        for start in range(0, frame.height, _PART):
            if start:
                yield None
            part = rows[start : start + _PART] if frame.height > _PART else rows
            parts.append(score_rows(self.detector, part))
        scores = np.concatenate([each for each, _ in parts])
        novelties = [novelty for _, novelty in parts if novelty is not None]
        novelty = np.concatenate(novelties) if novelties else None
        results = score_columns(self.detector, scores, self._decision, novelty)
        if p_values:
            results["p_value"] = self.detector._calibrated("p-values").p_values(scores)
        flagged = results["is_anomaly"]
        said = dict(head)
        if noticed:
            said["notes"] = [str(note) for note in merge_warnings(noticed)]
        if single or reasons:
            cells = zip(*[values.tolist() for values in results.values()], strict=True)
            scored: list[dict[str, Any]] = [dict(zip(results, row, strict=True)) for row in cells]
            if reasons:
                for row, its in zip(scored, self._reasons(frame, flagged, reasons), strict=True):
                    row["reasons"] = its
            said |= scored[0] if single else {"rows": scored}
            answer = json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
        else:  # polars writes many rows much faster
            written = pl.DataFrame(results).write_json()
            answer = f'{json.dumps(said, ensure_ascii=False)[:-1]}, "rows": {written}}}'.encode()
        yield answer, rows, scores, flagged

    def _frame(self, rows: Sequence[Mapping[str, Any]], single: bool) -> pl.DataFrame:
        """The columns that the model reads, parsed like the lines of a JSON file.

        Every row must have all of these columns, so that the answer to a row is the same alone and
        among others.
        """
        for number, row in enumerate(rows, 1):
            if not row.keys() >= set(self.columns):
                inner = [f"{k}.{each}" for k, v in row.items() if type(v) is dict for each in v]
                self._check_columns([*row, *inner], "The row" if single else f"Row {number:,}")
        check_nesting(rows)
        return frame_of_objects(rows, self.columns)

    def _check_columns(self, columns: Sequence[str], of: str) -> None:
        """Refuse rows that lack a column, with a message that names it."""
        present = set(columns)
        for name in self.columns:
            if name not in present:
                close = get_close_matches(name, columns[:_MOST_COMPARED], n=1)
                guess = f" Did you mean it by {close[0]!r}?" if close else ""
                raise InputError(
                    f"{of} lacks the column {name!r}, which the model reads; send it, with null "
                    f"where it is blank.{guess}"
                )

    def _reasons(
        self, frame: pl.DataFrame, flagged: NDArray[np.bool_], n: int
    ) -> list[list[dict[str, Any]]]:
        """For each row the columns that make it anomalous; none if it is not flagged."""
        by_row: list[list[dict[str, Any]]] = [[] for _ in range(frame.height)]
        places = np.flatnonzero(flagged)
        if places.size:
            with no_warnings():
                reasons = explain_rows(self.model, frame[places])
            for i, place in enumerate(places):
                by_row[place] = [asdict(r) | {"text": str(r)} for r in reasons.top(i, n)]
        return by_row


def _parse_rows(said: Mapping[str, Any], most: int) -> tuple[Sequence[Mapping[str, Any]], bool]:
    """The rows of a body, which is one itself unless it has a list under "rows"."""
    rows = said.get("rows")
    if not isinstance(rows, list):
        return [said], True
    if len(said) > 1:
        other = next(key for key in said if key != "rows")
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


def check_nesting(rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse cells that are nested so deeply or widely that reading them would take minutes."""
    n_values, keys = 0, set[str]()
    for row in rows:
        for name, cell in row.items():
            level = [cell] if type(cell) in (dict, list) else []
            depth = 0
            while level:
                depth += 1
                if depth > _DEEPEST:
                    raise InputError(
                        f"The cell {name[:40]!r} is nested more than {_DEEPEST} levels deep; send "
                        "a number, a text or null."
                    )
                n_values += len(level)
                below: list[Any] = []
                for value in level:
                    keys.update(value if type(value) is dict else ())
                    inside = value.values() if type(value) is dict else value
                    below += [each for each in inside if type(each) in (dict, list)]
                level = below
    # Each object becomes a row of a table with all the keys.
    if len(keys) > _MOST_KEYS or n_values * (1 + len(keys)) > _MOST_NESTED:
        raise InputError(
            f"The cells hold {n_values:,} lists and objects with {len(keys):,} different keys, "
            "which would take too long to read; send numbers, texts or nulls."
        )
