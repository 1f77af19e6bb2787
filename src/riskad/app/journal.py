r"""Answers about rows, on disk: a file of JSON lines to which answers are only ever added.

The first line describes the table:

    {"riskad_journal": 1, "table": "cards.csv", "columns": ["card", "amount"], "rows": 5000}

and every other line is an answer:

    {"row": 17, "hash": "5f2b…", "label": "anomaly", "source": "suggested", "who": "ada",
     "when": "2026-11-16T22:10:05+00:00", "note": ""}

`row` counts from 1 below the header; `hash` is that of the row's content in `columns`
(`hash_rows`), by which it is found again if rows were added, removed or sorted.
`label` is "normal", "anomaly", "unsure", "skip", or "" if an answer was withdrawn. `source` is how
the row was chosen: "suggested" by the model, drawn at "random", or "chosen" by the person. Only
rows drawn at random determine the anomaly rate.

An answer is on the disk (`fsync`) before it is confirmed. A process that is killed while it writes
leaves an incomplete line, which was never confirmed: readers skip it, and the next answer begins on
a new line. Writers take turns by a lock on the file. Nothing is overwritten: the last answer of
each person counts, and if two people disagree both answers are kept.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError
from riskad.core.labels import Codes
from riskad.files.atomic import check_input_file
from riskad.tables.cells import check_columns, to_text
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.tables.notes import pluralize

try:
    import fcntl
except ImportError:  # Windows, where one write to the end of a file is not torn apart either
    fcntl = None  # type: ignore[assignment]

VERSION = 1
LABELS = ("normal", "anomaly", "unsure", "skip", "")
SOURCES = ("suggested", "random", "chosen")
LONGEST_NOTE, LONGEST_NAME = 2_000, 60
_HEAD = b'{"riskad_journal": '


@dataclass(frozen=True)
class Answer:
    """A person's answer about a row; with row 0 about one that is known by its content alone."""

    row: int
    hash: str
    label: str
    source: str
    who: str
    when: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    note: str = ""

    @classmethod
    def read(cls, content: Any) -> Answer | None:
        """Return the answer in a line of the journal; None if it has none."""
        if not isinstance(content, dict):
            return None
        answer = cls(**{each.name: content.get(each.name, "") for each in fields(cls)})
        row, *texts = vars(answer).values()
        valid = type(row) is int and row > 0 and all(isinstance(text, str) for text in texts)
        valid = valid and answer.label in LABELS and answer.source in SOURCES
        return answer if valid and answer.who else None


@dataclass
class RowAnswers:
    """The last answer of each person about a row, and when it was first called either kind."""

    by_person: dict[str, Answer] = field(default_factory=dict)
    first: str = ""

    @property
    def standing(self) -> list[Answer]:
        """The answers that were not withdrawn."""
        return [answer for answer in self.by_person.values() if answer.label]

    @property
    def label(self) -> str:
        """The label on which all who decided agree, normal or anomaly; blank if they disagree."""
        labels = {answer.label for answer in self.standing} & {"normal", "anomaly"}
        return labels.pop() if len(labels) == 1 else ""

    @property
    def disputed(self) -> bool:
        """Whether one person said normal and another anomaly."""
        return {"normal", "anomaly"} <= {answer.label for answer in self.standing}

    @property
    def source(self) -> str:
        """How the row was chosen: the source of the first of the answers that count."""
        sources = (a.source for a in self.standing if not self.label or a.label == self.label)
        return next(sources, "")


def _say_changes(rows: int, moved: int, lost: int) -> str:
    """Say how many of the rows with answers moved and how many are gone; blank if none.

    >>> _say_changes(20, moved=3, lost=1)
    'The table has changed: of 20 judged rows 3 have moved and 1 is gone.'
    >>> _say_changes(20, moved=0, lost=20)
    'None of the 20 judged rows is in this table. Is the journal that of another table?'
    """
    if not (moved or lost):
        return ""
    if lost == rows:
        none = f"None of the {rows:,} judged rows is" if rows > 1 else "The judged row is not"
        return f"{none} in this table. Is the journal that of another table?"
    moves = f"{moved:,} {'has' if moved == 1 else 'have'} moved"
    losses = f"{lost:,} {'is' if lost == 1 else 'are'} gone"
    changes = [text for text, n in ((moves, moved), (losses, lost)) if n]
    return f"The table has changed: of {rows:,} judged rows {' and '.join(changes)}."


class Journal:
    """A file of answers, and the resulting labels.

    The file need not exist; `table`, `columns` and `rows` describe the table for a new one.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str = "table",
        columns: Sequence[str] = (),
        rows: int = 0,
    ):
        self.path = Path(path)
        self.table, self.columns, self.rows = table, list(columns), rows
        self.log: list[Answer] = []
        self.answers: dict[int, RowAnswers] = {}
        """Answers about the rows of the table, by row number."""
        self.disputed: set[int] = set()
        """Rows about which people disagree."""
        self.unsure: set[int] = set()
        """Rows without a label about which someone is unsure."""
        self.unreadable = 0
        """Lines that hold no answer."""
        self._labels: dict[int, str] = {}
        self._numbers: dict[str, int] = {}  # of rows, by their content
        self._last_row = rows
        self._places: dict[tuple[int, str], int | None] = {}
        self._has_head, self._read_to = False, 0
        self._lock = RLock()
        if self.columns and (not self.path.exists() or _never_begun(self.path)):
            self._write_head()
        elif self.columns and not os.access(self.path, os.W_OK):
            raise self._unwritable("it is read-only")
        if self.path.exists():
            self.refresh()
        if not self._has_head:
            other = ", or the name of a new file" if columns else ""
            raise InputError(
                f"{str(self.path)!r} is no journal of answers: its first line does not say which "
                f"table they are about. Give a journal that `riskad label` wrote{other}."
            )

    def _write_head(self) -> None:
        head = {"table": self.table, "columns": self.columns, "rows": self.rows}
        try:
            # A link that somebody left here must not decide which file is made or begun.
            with self._locked(os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)) as file:
                if _never_begun(self.path):  # nobody was quicker
                    os.ftruncate(file, 0)
                    _append(file, {"riskad_journal": VERSION} | head)
                    if os.name != "nt":  # make the name of the file survive a power cut, too
                        folder = os.open(self.path.parent, os.O_RDONLY)
                        try:
                            os.fsync(folder)
                        finally:
                            os.close(folder)
        except OSError as error:
            if self.path.is_symlink():
                raise self._unwritable("it is a link to a file that is no journal") from error
            raise self._unwritable(str(error.strerror)) from error

    def _unwritable(self, why: str) -> InputError:
        return InputError(
            f"Cannot write the journal {str(self.path)!r}: {why}. Give another place for it: "
            "journal='...'."
        )

    @contextmanager
    def _locked(self, flags: int = 0) -> Iterator[int]:
        """Open the file and keep others from appending; the lock ends with this process, too."""
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | flags, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            if fcntl is not None:  # a process that was forked meanwhile would keep it otherwise
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def add(self, *answers: Answer) -> None:
        """Append answers; when this returns, they are on the disk.

        A row without a number gets the next free one, and the same one when it comes again, here or
        from another process.
        """
        with self._lock, self._locked() as file:
            self.refresh()
            numbered, new, last = [], dict[str, int](), self._last_row
            for answer in answers:
                row = answer.row or self._numbers.get(answer.hash) or new.get(answer.hash)
                new[answer.hash] = row = row or last + 1
                last = max(last, row)
                numbered.append(replace(answer, row=row))
            _append(file, *map(asdict, numbered))
            self.refresh()  # which counts what is on the disk

    def refresh(self) -> None:
        """Read what was added since, by this process or by others."""
        with self._lock:
            with open(self.path, "rb") as file:
                file.seek(self._read_to)
                lines = file.read()
            is_first = not self._read_to
            whole = lines.rfind(b"\n") + 1  # what comes after it is being written, or never was
            self._read_to += whole
            for line in lines[:whole].splitlines():
                try:
                    content = json.loads(line)
                except (ValueError, RecursionError):
                    content = None
                if is_first:
                    is_first, head = False, content if isinstance(content, dict) else {}
                    columns, rows = head.get("columns"), head.get("rows")
                    if head.get("riskad_journal") == VERSION and isinstance(columns, list):
                        self._has_head = True
                        self.columns = [name for name in columns if isinstance(name, str)]
                        self.table = str(head.get("table", self.table))
                        self.rows = self._last_row = rows if isinstance(rows, int) else 0
                elif (answer := Answer.read(content)) is None:
                    self.unreadable += 1
                else:
                    self.log.append(answer)
                    self._numbers[answer.hash] = answer.row
                    self._last_row = max(self._last_row, answer.row)
                    self._count(answer)

    def _count(self, answer: Answer) -> None:
        place = self._places.get((answer.row, answer.hash), answer.row)
        if place is None:
            return
        of_row = self.answers.setdefault(place, RowAnswers())
        of_row.by_person.pop(answer.who, None)  # the newest comes last
        of_row.by_person[answer.who] = answer
        if answer.label in ("normal", "anomaly"):
            of_row.first = of_row.first or answer.when
        self._labels.pop(place, None)
        if label := of_row.label:
            self._labels[place] = label
        no_one_decided = {each.label for each in of_row.standing} - {"skip"} == {"unsure"}
        for rows, holds in ((self.disputed, of_row.disputed), (self.unsure, no_one_decided)):
            (rows.add if holds else rows.discard)(place)

    # --- resulting labels ----------------------------------------------------------------

    def labels(self) -> dict[int, str]:
        """Return the label of each row on which all who decided agree."""
        return self._labels.copy()

    def disputes(self) -> list[int]:
        """Return the rows about which people disagree, in order."""
        return sorted(self.disputed)

    def locate(self, frame: pl.DataFrame) -> list[str]:
        """Find the rows of all answers in a table, and say how it has changed since.

        A row with unchanged content is where it was. For others all rows are searched, and the
        nearest with the same content is used. Answers about rows that are gone no longer count.
        """
        with self._lock:
            keys = list(dict.fromkeys((answer.row, answer.hash) for answer in self.log))
            there = [row - 1 for row, _ in keys if row <= frame.height]
            hashes = dict(zip(there, self._hashed(frame[there]), strict=True))
            places = {key: key[0] if hashes.get(key[0] - 1) == key[1] else None for key in keys}
            gone = [key for key in keys if places[key] is None]
            if gone:
                same: dict[str, list[int]] = {hash: [] for _, hash in gone}
                for place, hash in enumerate(self._hashed(frame), 1):
                    if hash in same:
                        same[hash].append(place)
                for row, hash in gone:
                    distances = {place: abs(place - row) for place in same[hash]}
                    places[row, hash] = min(distances, key=distances.__getitem__, default=None)
            self._places = places
            self.answers, self._labels, self.disputed, self.unsure = {}, {}, set(), set()
            for answer in self.log:
                self._count(answer)
            moved = sum(place not in (None, row) for (row, _), place in places.items())
            lost = sum(place is None for place in places.values())
            notes = [_say_changes(len(keys), moved, lost)]
            if self.unreadable:
                lines = pluralize(self.unreadable, "line")
                what = (
                    "holds no answer and was" if self.unreadable == 1 else "hold no answer and were"
                )
                notes.append(f"{lines} of the journal {self.path.name!r} {what} skipped.")
            return [note for note in notes if note]

    def _hashed(self, frame: pl.DataFrame) -> list[str]:
        lost = [name for name in self.columns if name not in frame.columns]
        if lost:
            raise InputError(
                f"The journal {self.path.name!r} is about a table with a column {lost[0]!r}, which "
                "this one lacks, so that its rows cannot be told apart. Put the column back, or "
                "start a new journal."
            )
        return hash_rows(frame, self.columns)


def _never_begun(path: Path) -> bool:
    """Whether a file is empty, or holds the beginning of a first line whose writer was killed."""
    with open(path, "rb") as file:
        start = file.read(len(_HEAD))
        if start != _HEAD:
            return _HEAD.startswith(start)
        return not any(b"\n" in part for part in iter(lambda: file.read(1 << 20), b""))


def _append(file: int, *lines: dict[str, Any]) -> None:
    """Write lines, after ending an incomplete one if necessary, and wait for the disk."""
    line = b"".join(json.dumps(each, ensure_ascii=True).encode() + b"\n" for each in lines)
    size = os.lseek(file, 0, os.SEEK_END)
    if size:
        os.lseek(file, size - 1, os.SEEK_SET)
        if os.read(file, 1) != b"\n":
            line = b"\n" + line
    while line:
        line = line[os.write(file, line) :]
    os.fsync(file)


# --- which row is meant -------------------------------------------------------------------


def hash_rows(frame: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return a hash of the content of each row in some columns.

    A cell counts as its displayed text, preceded by its length, so that two rows cannot be confused
    by moving text from one cell to the next. A hash has 16 hexadecimal digits.

    >>> table = pl.DataFrame({"card": ["ab", "a", None], "shop": ["c", "bc", "x"]})
    >>> len(set(hash_rows(table, ["card", "shop"])))
    3
    >>> hash_rows(table.reverse(), ["card"])[0] == hash_rows(table, ["card"])[2]
    True
    """
    texts = pl.DataFrame([to_text(frame[name]).alias(str(j)) for j, name in enumerate(columns)])
    cells = [
        pl.concat_str([pl.col(name).str.len_bytes().cast(pl.String), pl.lit(":"), pl.col(name)])
        for name in texts.columns
    ]
    joined = texts.select(pl.concat_str([cell.fill_null("-") for cell in cells], separator=","))
    contents = joined.to_series() if columns else [""] * frame.height
    return [blake2b(text.encode(), digest_size=8).hexdigest() for text in contents]


# --- labels of a table --------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledFrame:
    """A table with the labels of a journal, in the column that `labels` names."""

    frame: pl.DataFrame
    labels: LabelColumn
    # By row: how it was chosen for labelling, and when it was first called normal or an anomaly;
    # "" where the journal has no label.
    sources: list[str]
    first_judged: list[str]
    notes: list[str]
    """What the user should know."""


def apply_labels(
    frame: pl.DataFrame,
    journal: Journal | str | os.PathLike[str],
    labels: LabelColumn | None = None,
) -> LabelledFrame:
    """Put the answers of a journal into the label column of a table.

    An answer replaces the label of the row in the table. Rows are found by their content, so the
    table may have been sorted or may have grown since. "unsure" and "skip" label nothing, and
    neither do answers that contradict each other. `labels` is the label column, by default
    "label", and the meaning of its values; a missing column is added.
    """
    if not isinstance(journal, Journal):
        journal = Journal(check_input_file(journal))
    labels = labels or LabelColumn("label")
    values: list[str | None] = [None] * frame.height
    if labels.column in frame.columns:
        values = to_text(frame[labels.column]).to_list()
        occurrences = Counter(value for value in values if value is not None and value.strip())
        labels = labels.resolve(occurrences) if occurrences else labels
    # Both kinds need a word, for the answers.
    normal, anomaly = list(labels.normal) or ["normal"], list(labels.anomaly) or ["anomaly"]
    labels = replace(labels, normal=normal, anomaly=anomaly)
    words = {"normal": str(normal[0]), "anomaly": str(anomaly[0])}
    notes = journal.locate(frame)
    if disputed := journal.disputes():
        rows = "row " if len(disputed) == 1 else "rows "
        rows += ", ".join(f"{row:,}" for row in disputed[:5])
        rows += " and others" if len(disputed) > 5 else ""
        notes.append(f"People disagree about {rows}: the journal gives no label there.")
    sources, first = [""] * frame.height, [""] * frame.height
    for row, answers in journal.answers.items():
        if answers.label:
            values[row - 1], sources[row - 1] = words[answers.label], answers.source
            first[row - 1] = answers.first
    column = pl.Series(labels.column, values, dtype=pl.String)
    labels = _occurring(labels, column)
    return LabelledFrame(frame.with_columns(column), labels, sources, first, notes)


def _occurring(labels: LabelColumn, column: pl.Series) -> LabelColumn:
    """The same without words that no row has yet; a fit would treat those as typing errors."""
    seen = set(to_text(column).str.strip_chars().unique().drop_nulls())
    kinds = (labels.normal, labels.anomaly, labels.unlabelled)
    normal, anomaly, none = ([word for word in words if word in seen] for words in kinds)
    return replace(labels, normal=normal, anomaly=anomaly, unlabelled=none)


def table_codes(frame: pl.DataFrame, labels: LabelColumn | None) -> tuple[Codes, str | None]:
    """Return the labels that a table has, and their column, which may be missing."""
    nothing = np.zeros(frame.height, dtype=np.int16)
    if labels is None:
        return nothing, None
    if labels.column not in frame.columns:
        if labels.normal or labels.anomaly:
            check_columns([labels.column], frame.columns)
        return nothing, labels.column
    if to_text(frame[labels.column]).str.strip_chars().replace("", None).is_null().all():
        return nothing, labels.column
    occurring = _occurring(labels, frame[labels.column])
    if (labels.normal or labels.anomaly) and not (occurring.normal or occurring.anomaly):
        occurring = labels  # none of the words occurs: the reader reports that
    return FrameTable(frame, occurring).codes, labels.column
