"""Parquet files: finding them, reading their footers, and reading rows in batches."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from riskad.core.checks import InputError, enumerate_names, required
from riskad.files.remote import address, is_file, is_folder, is_remote, list_files, open_file
from riskad.rows.engine import Threads

ENDINGS = (".parquet", ".pq")
_MOST_OTHERS = 100_000  # files and folders
_FOOTERS_AT_ONCE = 16
UNFINISHED, COMPLETE = "_temporary", "_SUCCESS"
"""In a folder that is being written, and in one that is complete, as Spark has it."""
Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def find_parquet(paths: Paths) -> list[Path]:
    """The files of these paths, in the order of their names; an error if there are none."""
    items = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    matches: list[Path] = []
    for item in items:
        path = Path(item)
        if is_folder(path):
            files = _parquet_below(path)
            _check_complete(path)
        elif is_file(path):
            files = [path]
        elif is_remote(path):
            files = list_files(path)
        else:
            files = sorted(Path(name) for name in glob.glob(str(item), recursive=True))
        for folder in {file.parent for file in files if file != path}:
            _check_complete(folder)
        if not files:
            raise InputError(
                f"no Parquet file at {address(item)!r}. Give a file, a folder of .parquet files, "
                "or a pattern such as 'data/*.parquet'."
            )
        # A file that is named twice is read twice, as its rows would be in a table.
        matches += files
    if not matches:
        raise InputError("no Parquet file was named.")
    return matches


def _parquet_below(folder: Path) -> list[Path]:
    """The Parquet files of a folder and its folders; an error for one that is a whole disk."""
    if is_remote(folder):
        return [file for file in list_files(folder) if file.suffix in ENDINGS]
    tables: list[Path] = []
    n_others = 0
    # A folder such as the home directory would be searched for minutes.
    for file in folder.rglob("*"):
        # By its ending: engines put markers and checksums beside their files.
        if file.suffix in ENDINGS:
            tables.append(file)
        else:
            n_others += 1
        if n_others > _MOST_OTHERS:
            raise InputError(
                f"{str(folder)!r} holds more than {_MOST_OTHERS:,} files and folders that are not "
                "Parquet, so it is not searched to the end. Name the folder of the .parquet files."
            )
    return sorted(tables)


def _check_complete(folder: Path) -> None:
    """Refuse a folder whose writing has not ended, for rows would be missing."""
    # A job removes the first and writes the second when all parts are there; a killed one does
    # neither.
    begun = folder / UNFINISHED
    if (is_file(begun) or is_folder(begun)) and not is_file(folder / COMPLETE):
        raise InputError(
            f"{address(folder)!r} is not complete: the job that writes it has not ended, or was "
            f"killed (there is {UNFINISHED!r} and no {COMPLETE!r}). Wait for it, or write it again."
        )


def _source(path: Path) -> Any:
    return open_file(path) if is_remote(path) else path


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of a file."""
    return list(ParquetSchema.of(path).types)


@dataclass(frozen=True)
class ParquetSchema:
    """The footer of a file."""

    path: Path
    types: dict[str, Any]
    group_rows: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> ParquetSchema:
        """Read the footer of a file."""
        with parquet_errors(path):
            metadata = _arrow_parquet().read_metadata(_source(path))
            fields = list(metadata.schema.to_arrow_schema())
        types = {field.name: field.type for field in fields}
        # A dict of names has dropped the second of two alike, and nothing would say which of them
        # is read.
        if len(types) < len(fields):
            twice = [name for name, n in Counter(f.name for f in fields).items() if n > 1]
            raise InputError(
                f"{path} has more than one column named {enumerate_names(twice)}; rename them so "
                "that each name occurs once."
            )
        groups = range(metadata.num_row_groups)
        return cls(path, types, tuple(metadata.row_group(i).num_rows for i in groups))


def read_schemas(paths: Sequence[Path]) -> list[ParquetSchema]:
    """Read the footers of files, several at a time: a store takes long to answer."""
    # Footers are small: a store's answers take the time, so that more threads than cores help.
    threads = Threads(_FOOTERS_AT_ONCE if is_remote(paths[0]) else None)
    return list(threads.map(lambda path, number: ParquetSchema.of(path), paths))


def check_columns_exist(names: Iterable[str], types: Mapping[str, Any], where: Path | str) -> None:
    """Check that these are columns of a file, or of a dataframe."""
    unknown = [name for name in names if name not in types]
    if unknown:
        raise InputError(
            f"{address(where)} has no column {enumerate_names(unknown)}; it has "
            f"{enumerate_names(types)}."
        )


def check_alike(schemas: Sequence[ParquetSchema], names: Collection[str]) -> None:
    """Check that each column has one kind in all files; a column of nulls fits all."""
    import pyarrow.types as kinds

    first = schemas[0]
    for other in schemas:
        check_columns_exist(names, other.types, other.path)
        for name in names:
            type_1, type_2 = first.types[name], other.types[name]
            blank = kinds.is_null(type_1) or kinds.is_null(type_2)
            if not blank and _kind_of(type_1) != _kind_of(type_2):
                raise InputError(
                    f"column {name!r} is {type_1} in {address(first.path)} and {type_2} in "
                    f"{address(other.path)}. Write the files with one type for each column, or "
                    "leave the column out."
                )


def _kind_of(type_: Any) -> Any:
    """What a type has in common with others: writers choose the width of a number file by file."""
    import pyarrow.types as kinds

    if is_number(type_):
        return "number"
    text = type_.value_type if kinds.is_dictionary(type_) else type_  # dictionary: categories
    if any(check(text) for check in (kinds.is_string, kinds.is_large_string, kinds.is_string_view)):
        return "text"
    return "moment" if kinds.is_timestamp(type_) else type_


def is_number(type_: Any) -> bool:
    """Whether a column of this type holds numbers."""
    import pyarrow.types as kinds

    checks = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_null)
    return any(check(type_) for check in checks)


def record_batches(
    path: Path,
    size: int,
    columns: Sequence[str] | None = None,
    groups: Sequence[int] | None = None,
    *,
    threads: bool = False,
) -> Iterator[Any]:
    """Read a file in batches of at most `size` rows, each of them verified.

    Checksums of pages are verified if the file has them. Damaged texts would otherwise go
    unnoticed.
    """
    # A store takes long to answer, so that the columns of a row group are asked for together.
    options = {"page_checksum_verification": True, "pre_buffer": is_remote(path)}
    file = _arrow_parquet().ParquetFile(_source(path), **options)
    with file:
        for batch in file.iter_batches(size, groups, columns, use_threads=threads):
            batch.validate(full=True)
            yield batch


def empty_batch(path: Path) -> Any:
    """The columns of a file, without rows."""
    return _arrow_parquet().read_schema(_source(path)).empty_table()


@contextmanager
def parquet_errors(path: Path, where: str = "") -> Iterator[None]:
    """Turn errors of the reader into one sentence that names the file."""
    _arrow_parquet()
    from pyarrow import ArrowException

    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{address(path)} is no longer there.") from None
    except (OSError, ValueError, ArrowException) as error:
        # The first line: the others are the stack of the library in C++.
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(
            f"{address(path)}{where} cannot be read as Parquet: {reason}. It may be cut short, "
            "damaged, or another kind of file under this name: write it again, or leave it out."
        ) from error


def _arrow_parquet() -> Any:
    with required("Parquet files need pyarrow: pip install 'riskad[parquet]'."):
        import pyarrow.parquet as parquet
    return parquet
