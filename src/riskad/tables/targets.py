"""Scored rows into a table of a database, or into a folder of Parquet files by day, each row once.

Rows wait on the disk until all of them are scored. Then a database takes them in one transaction,
and a folder gets one complete file for each day. A row is known by its `id`: in mode "add" rows
whose id is there already are left out. So after a kill, at whatever moment, the same command adds
what is missing.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from riskad.core.checks import InputError, describe_column_difference, enumerate_names
from riskad.files.atomic import atomic_path, check_output_file, together
from riskad.rows.parquet_files import ENDINGS, parquet_columns, parquet_errors, record_batches
from riskad.tables.cells import check_columns, to_text
from riskad.tables.databases import open_database, quote_name, table_names
from riskad.tables.paths import DATABASES, Place, file_of, hive_folder, is_duckdb
from riskad.tables.writing import Spool

try:
    import fcntl
except ImportError:  # Windows: there is no lock that goes with the process
    fcntl = None  # type: ignore[assignment]

_DATE = r"^\d{4}-\d{2}-\d{2}"
_NO_IDS = pl.Series("id", [], dtype=pl.String)


def choose_target(
    path: str | os.PathLike[str],
    day: str | None = None,
    *,
    id: str | None = None,
    add: bool = False,
    force: bool = False,
) -> Target | None:
    """Return where rows are to be added, or None if a file is to be written.

    `scores.sqlite::scored` is a table of a database; with `day`, a column by whose day rows are
    parted, it is a folder; anything else is a file. `id` is the column that names rows, `add` adds
    those that are not there yet, `force` replaces a table that is there.
    """
    mode = "add" if add else "replace" if force else "new"
    file, table = file_of(path)
    ending = file.suffix.lower()
    # First, as a folder is no file whatever its name; an ending shows that a file was meant.
    if day is not None:
        if table is not None or ending:
            raise InputError(
                f"{str(path)!r} looks like a file, but rows split by day go into a folder."
            )
        return _Folder(Path(path), day, id, mode)
    if ending in DATABASES:
        if not table:
            raise InputError(
                f"{str(path)!r} is a database; say into which table to write: {file.name}::scored"
            )
        return _Table(Place(file, ending, table, f"{file.name}::{table}"), id, mode)
    if add:
        raise InputError(
            f"add=True adds rows, and {str(path)!r} is a file, which is written whole. Write to a "
            "table (scores.sqlite::scored, scores.duckdb::scored), or split a folder by a column "
            "of dates: day='COLUMN'."
        )
    return None


class Target(ABC):
    """A place to which the rows of a run are added when all of them are there.

    `mode` is "new" if nothing may be there yet, "replace" what is there, or "add" rows to it.
    """

    def __init__(self, name: str, id: str | None, mode: str):
        if mode == "add" and id is None:
            raise InputError(
                f"Rows are added to {name!r} once each, by the column that names them, but the "
                "model has no such column. Say which it is: id='COLUMN'."
            )
        self._name, self._id, self._mode = name, str(id), mode
        self.adds = mode == "add"

    @contextmanager
    def writing(self) -> Iterator[Target]:
        """Add what is given to `add` when the block succeeds."""
        self._ids: dict[str, pl.Series] = {}  # of rows that were there at the beginning, by day
        # Spools close before the lock is given up.
        with self._open(), ExitStack() as stack:
            self._spools = defaultdict[str, Spool](lambda: stack.enter_context(Spool()))
            yield self
            if self.adds:
                self._check_ids()
            self._append()

    def add(self, frame: pl.DataFrame) -> None:
        """Keep a frame until the block ends."""
        for day, rows in self._by_day(frame):
            self._spools[day].add(rows)

    def lacking(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of a frame that are not there yet."""
        if not self.adds or not frame.height:
            return frame
        check_columns([self._id], frame.columns)
        parts = []
        for day, rows in self._by_day(frame):
            if day not in self._ids:
                self._ids[day] = self._read_ids(day)
            parts.append(self._without(rows, self._ids[day]))
        return pl.concat(parts)

    def _without(self, frame: pl.DataFrame, ids: pl.Series) -> pl.DataFrame:
        if not len(ids):
            return frame
        return frame.filter(~to_text(frame[self._id]).is_in(ids.implode()).fill_null(False))

    def _check_ids(self) -> None:
        # Before anything is written: ids that repeat would be found only by the next run.
        frames = chain.from_iterable(self._spools.values())
        ids = pl.concat([_NO_IDS, *(to_text(frame[self._id]).alias("id") for frame in frames)])
        twice = ids.filter(ids.is_duplicated()).drop_nulls()
        if len(twice) or ids.null_count():
            blank = f"is blank in {ids.null_count():,} rows"
            fault = f"names several rows {twice[0]!r}" if len(twice) else blank
            raise InputError(
                f"Column {self._id!r} {fault}, so there is no telling which rows are there "
                "already. Name a column that is filled and different in every row: id='COLUMN'."
            )

    def _check_columns(self, there: Sequence[str], columns: Sequence[str]) -> None:
        if set(there) != set(columns):
            raise InputError(
                f"{self._name!r} has other columns than the rows that would be added; write to "
                "another place, or score with the same options as before.\n"
                + describe_column_difference(there, columns)
            )

    def _by_day(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """Part a frame as the target is parted."""
        yield "", frame

    @abstractmethod
    def _open(self) -> AbstractContextManager[None]:
        """Fail, before any work, if rows cannot be added; keep others from adding, if need be."""

    @abstractmethod
    def _read_ids(self, day: str) -> pl.Series:
        """The ids, as text, of the rows that are there."""

    @abstractmethod
    def _append(self) -> None:
        """Add all rows that wait, or none."""


class _Table(Target):
    """A table of SQLite or DuckDB.

    DuckDB keeps the types of the rows; SQLite has dates and times as ISO 8601 text, yes and no as 1
    and 0.
    """

    def __init__(self, place: Place, id: str | None, mode: str):
        super().__init__(place.name, id, mode)
        self._place, self._duckdb = place, is_duckdb(place)
        self._table = quote_name(str(place.part))

    @contextmanager
    def _open(self) -> Iterator[None]:
        # With force: a database that is there is no file to be replaced, but must be writable.
        check_output_file(self._place.path, force=True)
        self._ids[""] = self._read_ids("")
        yield

    def _read_ids(self, day: str) -> pl.Series:
        path = self._place.path
        if not path.exists() or not path.stat().st_size:
            return _NO_IDS
        with open_database(self._place, read_only=True) as database:
            return self._there(database)[1]

    def _there(self, database: Any) -> tuple[list[str], pl.Series]:
        """The columns of the table, and the ids of its rows; none if it is not there."""
        if str(self._place.part).lower() not in map(str.lower, table_names(database)):
            return [], _NO_IDS
        if self._mode == "new":
            raise InputError(
                f"{self._name!r} exists already and was left as it is. Add rows that it lacks by "
                "add=True, replace it with force=True, or name another table."
            )
        # Asked of a query without rows: both databases describe it alike.
        rows = database.execute(f"SELECT * FROM {self._table} LIMIT 0")
        columns = [column[0] for column in rows.description]
        if not self.adds:
            return columns, _NO_IDS
        check_columns([self._id], columns)
        # As texts, since 17 in a table and "17" in a CSV name the same row.
        query = f"SELECT CAST({quote_name(self._id)} AS VARCHAR) AS id FROM {self._table}"
        ids = pl.read_database(query, database, schema_overrides={"id": pl.String})
        return columns, ids.to_series()

    def _append(self) -> None:
        # A connection that is closed before it commits leaves all as it was.
        with open_database(self._place, read_only=False) as database:
            # Rows that another process has added since are seen: no third one can write now.
            database.execute("BEGIN" if self._duckdb else "BEGIN IMMEDIATE")
            columns, ids = self._there(database)
            if columns and self._mode == "replace":
                database.execute(f"DROP TABLE {self._table}")
                columns = []
            for frame in self._spools.get("", ()):
                if cut := [name for name in (self._table, *frame.columns) if "\0" in name]:
                    raise InputError(
                        f"The names {enumerate_names(cut)} hold a zero byte, which {self._name!r} "
                        "cannot."
                    )
                self._check_columns(columns or frame.columns, frame.columns)
                rows = self._without(frame, ids)
                if not self._duckdb:
                    self._insert_sqlite(database, rows, create=not columns)
                else:
                    database.register("rows_to_add", rows.to_arrow())
                    source = "SELECT * FROM rows_to_add"
                    if not columns:
                        # Without rows, so that creating and adding go the same way.
                        database.execute(f"CREATE TABLE {self._table} AS {source} LIMIT 0")
                    database.execute(f"INSERT INTO {self._table} BY NAME {source}")
                columns = frame.columns
            database.execute("COMMIT")

    def _insert_sqlite(self, database: Any, frame: pl.DataFrame, create: bool) -> None:
        # SQLite has no truth values, no moments and no NaN.
        whole = cs.boolean() | cs.integer()
        cells = frame.with_columns(
            whole.cast(pl.Int64), (cs.numeric() - whole).cast(pl.Float64).fill_nan(None)
        ).with_columns(to_text(c) for c in frame.select(~(whole | cs.numeric() | cs.binary())))
        names = [quote_name(name) for name in cells.columns]
        if create:
            types = {pl.Int64: "INTEGER", pl.Float64: "REAL", pl.Binary: "BLOB"}
            columns = (
                f"{name} {types.get(dtype.base_type(), 'TEXT')}"
                for name, dtype in zip(names, cells.dtypes, strict=True)
            )
            database.execute(f"CREATE TABLE {self._table} ({', '.join(columns)})")
        places = ", ".join("?" * len(names))
        query = f"INSERT INTO {self._table} ({', '.join(names)}) VALUES ({places})"
        database.executemany(query, cells.iter_rows())


class _Folder(Target):
    """A folder of Parquet files by day: `day=2026-11-17/part-….parquet`.

    A row is known by its id and its day, so that only the days of new rows are looked at. The mode
    "replace" is refused, for it might remove what others put there.
    """

    def __init__(self, path: Path, column: str, id: str | None, mode: str):
        super().__init__(str(path), id, mode)
        self._path, self._column = path, column

    @contextmanager
    def _open(self) -> Iterator[None]:
        if self._mode == "replace":  # before anything is made
            raise self._not_replaced()
        is_new = not self._path.exists()
        try:
            self._path.mkdir(exist_ok=True)
        except FileExistsError:
            raise InputError(f"{self._name!r} is a file; name a folder for rows by day.") from None
        # A lock of the system goes with the process: after a kill nobody has to remove the file.
        # Readers of folders of Parquet files skip names that begin with an underscore.
        lock_file = self._path / "_riskad.lock"
        with open(lock_file, "a") as lock:
            try:
                if fcntl is not None:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not os.path.samestat(os.fstat(lock.fileno()), os.stat(lock_file)):
                        raise BlockingIOError  # a run that failed has removed this file
            except (BlockingIOError, FileNotFoundError):
                raise InputError(
                    f"Another run is adding rows to {self._name!r}; wait until it has ended."
                ) from None
            for part in self._path.glob("day=*/.part-*.part"):  # which a killed run left
                part.unlink()
            if self._mode == "new" and _parquet_files(self._path):
                raise self._not_replaced()
            try:
                yield
            finally:
                # Of a run that failed; rmdir removes empty folders alone.
                for day in self._path.glob("day=*"):
                    with suppress(OSError):  # a day that has files
                        day.rmdir()
                if is_new and os.listdir(self._path) == [lock_file.name]:  # all as it was before
                    with suppress(OSError):  # another run may have come meanwhile
                        lock_file.unlink()
                        self._path.rmdir()

    def _not_replaced(self) -> InputError:
        return InputError(
            f"{self._name!r} is a folder, which may hold rows already and is not replaced. Add the "
            "rows that it lacks by add=True, or name another folder."
        )

    def _read_ids(self, day: str) -> pl.Series:
        ids = [_NO_IDS]
        for file in _parquet_files(self._path / hive_folder("day", day or None)):
            check_columns([self._id], parquet_columns(file))
            with parquet_errors(file):
                for batch in record_batches(file, 1 << 18, [self._id]):
                    ids.append(to_text(pl.DataFrame(batch).to_series()).alias("id"))
        return pl.concat(ids)

    def _by_day(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        check_columns([self._column], frame.columns)
        values = frame[self._column]
        typed = isinstance(values.dtype, pl.Datetime)
        texts = to_text(values.dt.date() if typed else values).str.strip_chars()
        odd = texts.filter(~texts.str.contains(_DATE + "([T ].*)?$") & (texts != ""))
        if len(odd):
            raise InputError(
                f"Rows are split by the day in column {self._column!r}, and {odd[0]!r} in it is "
                "not a date such as 2026-11-17 or 2026-11-17 08:30. Name a column of dates."
            )
        # Readers take the folders for a column `day`, so there can be no other.
        times = typed or bool((texts.str.len_chars() > 10).any())
        if "day" in frame.columns and (self._column != "day" or times):
            raise InputError(
                "Readers take folders such as 'day=2026-11-17' for a column 'day', and there "
                "is another of that name. Rename it, or split by it if it holds dates."
            )
        days = texts.str.slice(0, 10).fill_null("")
        for day in days.unique().sort():
            yield day, frame.filter(days == day)

    def _append(self) -> None:
        # Different names in every run, so that files of earlier ones are never replaced.
        run = secrets.token_hex(6)
        with together():
            for day, spool in sorted(self._spools.items()):
                folder = self._path / hive_folder("day", day or None)
                # One file tells for all: each was compared with another when it was added.
                for file in _parquet_files(folder)[:1]:
                    columns = set(next(iter(spool)).columns) - {"day"}
                    self._check_columns(parquet_columns(file), sorted(columns))
                folder.mkdir(exist_ok=True)
                with atomic_path(folder / f"part-{run}.parquet") as part:
                    spool.write_parquet(part, without=["day"])


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.suffix in ENDINGS)


class NewRows:
    """The rows of a table that a target lacks; `skipped` counts the others once they are read."""

    def __init__(self, batches: Iterable[pl.DataFrame], target: Target):
        self._batches, self._target = batches, target
        self.skipped = 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        self.skipped = 0
        for batch in self._batches:
            new = self._target.lacking(batch)
            self.skipped += batch.height - new.height
            yield new
