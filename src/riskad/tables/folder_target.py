r"""Scored rows into a folder of Parquet files, one folder inside it for each day.

A run first writes its files under names that no reader takes for Parquet (`*.part`). Then a small
file, `_riskad.json`, is replaced by one that lists them: from that moment on they count. Then each
gets its name, and the list is emptied. A process that is killed before the list is there has
written nothing that counts; one that is killed later has done its work but for the names, and the
next run gives these before it does anything else. A lock keeps two runs from mixing; it goes with
the process that holds it.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError
from riskad.rows.parquet_files import ENDINGS, parquet_columns, parquet_errors, record_batches
from riskad.storage.files import flush_to_disk
from riskad.tables.columns import check_columns, to_text
from riskad.tables.hive import hive_folder
from riskad.tables.targets import Spool, Target, check_same_columns, without_known
from riskad.tables.writing import disk_errors

try:
    import fcntl
except ImportError:  # Windows: there is no lock that goes with the process
    fcntl = None  # type: ignore[assignment]

__all__ = ["FolderTarget"]

_DAY = "day"
_STATE, _LOCK, _PART = "_riskad.json", "_riskad.lock", ".part"
_WRITTEN = re.compile(r"\d{4}-\d{2}-\d{2}(?P<time>[T ].*)?")
_IN_A_DAY = re.compile(rf"{_DAY}=[^/\\]+/part-[0-9a-f]+\.parquet(\.part)?")
_BATCH_ROWS = 1 << 18


class FolderTarget(Target):
    """A folder of Parquet files by day: `day=2026-11-17/part-….parquet`.

    A row is known by its id and its day, so that only the days of new rows are looked at. One that
    comes again under another day is another row.

    Parameters
    ----------
    path
        The folder, which is made if need be.
    column
        The column of dates or times by whose day rows are parted.
    id, mode
        See `Target`; "replace" is refused, for it might remove what others put there.
    """

    def __init__(self, path: Path, column: str, id: str | None, mode: str):
        super().__init__(str(path), id, mode)
        self.path, self.column = path, column
        self._known: dict[str, pl.Series] = {}

    @contextmanager
    def writing(self) -> Iterator[Target]:
        """Add what is given to `add` when the block succeeds; no other run does meanwhile."""
        with self._locked(), super().writing() as target:
            yield target

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.name!r} is a file; name a folder for rows by day.")
        self.path.mkdir(exist_ok=True)
        with open(self.path / _LOCK, "a") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise InputError(
                        f"Another run is adding rows to {self.name!r}; wait until it has ended."
                    ) from None
            yield

    def check(self) -> None:
        """Finish what a run that was killed left undone, and look at what is there."""
        self._publish(self._read_state())
        self._remove_parts()
        if self.mode == "replace":
            raise InputError(
                f"{self.name!r} is a folder, and force=True replaces files only. Remove it "
                "yourself, or add the rows that it lacks by since='auto'."
            )
        if self.mode == "new" and any(self._files()):
            raise InputError(
                f"{self.name!r} holds Parquet files already. Add the rows that they lack by "
                "since='auto', or name another folder."
            )

    # --- which rows are there ---------------------------------------------------------------

    def _files(self, day: str | None = None) -> Iterator[Path]:
        folder = self.path if day is None else self.path / _folder(day)
        return (each for each in sorted(folder.rglob("*")) if each.suffix in ENDINGS)

    def lacking(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows whose id is not there under their day."""
        if self.mode != "add" or not frame.height:
            return frame
        assert self.id is not None
        parts = [
            without_known(part, self.id, self._ids_of(day)) for day, part in self._by_day(frame)
        ]
        return pl.concat(parts)

    def _ids_of(self, day: str) -> pl.Series:
        if day not in self._known:
            found = [pl.Series("id", [], dtype=pl.String)]
            for file in self._files(day):
                check_columns([str(self.id)], parquet_columns(file))
                with parquet_errors(file):
                    for batch in record_batches(file, _BATCH_ROWS, [str(self.id)]):
                        found.append(to_text(pl.DataFrame(batch).to_series()).alias("id"))
            self._known[day] = pl.concat(found)
        return self._known[day]

    def _by_day(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        days = self._days(frame)
        for day in days.unique().sort():
            yield day, frame.filter(days == day)

    def _days(self, frame: pl.DataFrame) -> pl.Series:
        """The day of each row; the empty text where it is blank."""
        check_columns([self.column], frame.columns)
        values = frame[self.column]
        if isinstance(values.dtype, pl.Datetime):
            values = values.dt.date()
        texts = to_text(values).str.strip_chars()
        odd = texts.filter(~texts.str.contains(f"^{_WRITTEN.pattern}$") & (texts != ""))
        if len(odd):
            raise InputError(
                f"Rows are parted by the day in column {self.column!r}, and {odd[0]!r} in it is no "
                "date as 2026-11-17 or 2026-11-17 08:30. Name a column of dates."
            )
        return texts.str.slice(0, 10).fill_null("")

    # --- adding -----------------------------------------------------------------------------

    def add(self, frame: pl.DataFrame) -> None:
        """Keep a frame until the block ends, day by day."""
        self._check_name(frame)
        for day, part in self._by_day(frame):
            self._spool.add(part, day)

    def _check_name(self, frame: pl.DataFrame) -> None:
        """The folders are a column `day` to those who read them; there can be no other."""
        if _DAY not in frame.columns:
            return
        dates = to_text(frame[_DAY]).str.strip_chars().fill_null("").str.len_chars() <= 10
        if self.column != _DAY or not dates.all():
            raise InputError(
                f"Rows are written into folders such as {_folder('2026-11-17')!r}, which readers "
                f"take for a column {_DAY!r}, and there is another column of that name. Rename it, "
                "or part by it if it holds dates."
            )

    def take(self, frames: Spool) -> None:
        """Write all files, then let them count; if one cannot be written, none stays."""
        try:
            staged = self._stage(frames)
            if staged:
                self._write_state(staged)  # from here on they count
        except BaseException:
            if not self._read_state():
                self._remove_parts()
            raise
        self._publish(staged)

    def _stage(self, frames: Spool) -> list[tuple[str, str]]:
        """Write files, and return their names now and when they count."""
        run, staged = secrets.token_hex(6), list[tuple[str, str]]()
        for day in frames.keys:
            rows = pl.concat([frame.drop(_DAY, strict=False) for frame in frames.of(day)])
            first = next(self._files(day), None)
            if first is not None:
                check_same_columns(parquet_columns(first), rows, self.name)
            folder = self.path / _folder(day)
            folder.mkdir(exist_ok=True)
            part = folder / f"part-{run}.parquet{_PART}"
            with disk_errors():
                rows.write_parquet(part)
            flush_to_disk(part)
            staged.append((self._inside(part), self._inside(part.with_suffix(""))))
        return staged

    def _remove_parts(self) -> None:
        """Remove files that do not count, and the folders of days that hold nothing else."""
        for part in list(self.path.rglob(f"*{_PART}")):
            part.unlink()
            with suppress(OSError):
                part.parent.rmdir()

    def _inside(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def _read_state(self) -> list[tuple[str, str]]:
        path = self.path / _STATE
        if not path.exists():
            return []
        try:
            found = json.loads(path.read_text("utf-8"))
        except ValueError:
            found = None
        moves = found.get("publish") if isinstance(found, dict) else None
        if not (isinstance(moves, list) and all(_is_move(each) for each in moves)):
            raise InputError(
                f"{str(path)!r} is not what riskad wrote. It lists files whose rows count already; "
                "put it back from a copy."
            )
        return [(part, name) for part, name in moves]

    def _write_state(self, publish: Sequence[tuple[str, str]]) -> None:
        part = self.path / f"{_STATE}{_PART}"
        part.write_text(json.dumps({"publish": list(publish)}) + "\n", encoding="utf-8")
        flush_to_disk(part)
        os.replace(part, self.path / _STATE)

    def _publish(self, staged: Sequence[tuple[str, str]]) -> None:
        """Give files that count their names, some of which they may have."""
        for part, name in staged:
            if (self.path / part).exists():
                os.replace(self.path / part, self.path / name)
        if staged:
            self._write_state([])


def _folder(day: str) -> str:
    return hive_folder(_DAY, day or None)


def _is_move(names: object) -> bool:
    """Whether an entry of the list names two files by day, and nothing elsewhere."""
    if not (isinstance(names, list) and len(names) == 2):
        return False
    return all(isinstance(name, str) and _IN_A_DAY.fullmatch(name) for name in names)
