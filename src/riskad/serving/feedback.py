"""Returned labels, into a journal of `riskad label`.

A row is identified by its content in the columns of the journal, as text
(`riskad.labelling.row_hashes`): cells must be written as in the table from which the next model is
fitted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from riskad.core.checks import InputError, check_choice
from riskad.labelling.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES, Answer, Journal
from riskad.labelling.row_hashes import hash_rows
from riskad.serving.models import ServedModel
from riskad.serving.rows import check_nesting, parse_body
from riskad.tables.json_lines import frame_of_objects

__all__ = ["MOST_LABELS", "Feedback"]

MOST_LABELS = 1_000
"""Most labels in one request."""
_KEYS = ("row", "label", "who", "source", "note", "number")


class Feedback:
    """Appends labels to a journal; they are on the disk when `add` returns.

    A row without a number gets the next free one, and the same one when it comes again: only its
    content counts.

    Parameters
    ----------
    path
        Path of the journal, which may not exist yet.
    model
        The model whose columns identify rows in a new journal.
    """

    def __init__(self, path: str | os.PathLike[str], model: ServedModel):
        self.journal = Journal(Path(path), model.name, model.scorer.columns)
        self._numbers: dict[str, int] = {}
        self._last, self._counted = self.journal.rows, 0
        self._lock = Lock()

    def add(self, body: bytes) -> int:
        """Append the label, or the labels, of a request; returns their number."""
        with self._lock:  # one body at a time is taken apart
            said = parse_body(body)
            labels = said["labels"] if said.keys() == {"labels"} else [said]
            if not isinstance(labels, list) or not 0 < len(labels) <= MOST_LABELS:
                raise InputError(f"labels must be a list of 1 to {MOST_LABELS:,} labels.")
            hashes = [self._hash(each) for each in labels]
            with self.journal.turn() as append:
                self._count()
                append(*self._answers(labels, hashes))
        return len(labels)

    def _count(self) -> None:
        """Take note of rows that got a number since, here or from another server."""
        for answer in self.journal.log[self._counted :]:
            self._numbers[answer.hash] = answer.row
            self._last = max(self._last, answer.row)
        self._counted = len(self.journal.log)

    def _answers(self, labels: Sequence[Any], hashes: Sequence[str]) -> Iterator[Answer]:
        last, numbers = self._last, dict[str, int]()
        for each, hash in zip(labels, hashes, strict=True):
            number = _number(each) or self._numbers.get(hash) or numbers.get(hash)
            number = last + 1 if number is None else number
            last, numbers[hash] = max(last, number), number
            yield _answer(each, number, hash)

    def _hash(self, said: Any) -> str:
        """The hash of a row's content."""
        cells = said.get("row") if isinstance(said, dict) else None
        if not isinstance(cells, dict):
            raise InputError(
                'Each label needs its row: {"row": {"amount": 12.5}, "label": "anomaly", '
                '"who": "ada"}.'
            )
        unknown = [key for key in said if key not in _KEYS]
        if unknown:
            raise InputError(f"There is no {unknown[0][:40]!r}; a label has {', '.join(_KEYS)}.")
        check_nesting([cells])
        columns = self.journal.columns
        frame = frame_of_objects([cells], columns)
        lost = [name for name in columns if name not in frame.columns]
        if lost:
            raise InputError(
                f"The row lacks the column {lost[0]!r}, by which the journal tells rows apart; "
                "send it as the table has it, with null where it is blank."
            )
        return hash_rows(frame, columns)[0]


def _answer(said: Mapping[str, Any], number: int, hash: str) -> Answer:
    label, source = _text(said, "label", 20), _text(said, "source", 20) or "chosen"
    if label not in LABELS or "label" not in said:
        raise InputError(
            f'label must be normal, anomaly, unsure or skip, or "" to take one back, got {label!r}.'
        )
    check_choice("source", source, SOURCES)
    who, note = _text(said, "who", LONGEST_NAME).strip(), _text(said, "note", LONGEST_NOTE)
    if not who:
        raise InputError("Say who labelled the row: who must not be blank.")
    return Answer(number, hash, label, source, who, note=note)


def _number(said: Mapping[str, Any]) -> int | None:
    number = said.get("number")
    if number is None:
        return None
    if type(number) is not int or not 0 < number < 10**12:
        raise InputError("number must be that of the row in the table, counted from 1, or absent.")
    return number


def _text(said: Mapping[str, Any], name: str, longest: int) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or len(value) > longest:
        raise InputError(f"{name} must be a text of at most {longest:,} letters.")
    return value
