"""Parquet files: finding them, reading their footers, and reading rows in batches."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from riskad.core.checks import InputError, enumerate_names

__all__ = [
    "ENDINGS",
    "ParquetSchema",
    "Paths",
    "empty_batch",
    "find_parquet",
    "parquet_columns",
    "parquet_errors",
    "record_batches",
]

ENDINGS = (".parquet", ".pq")
_MOST_OTHERS = 100_000  # files and folders
Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def find_parquet(paths: Paths) -> list[Path]:
    """The files of these paths, in the order of their names; an error if there are none."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[Path] = []
    for item in given:
        path = Path(item)
        if path.is_dir():
            files = _parquet_below(path)
        elif path.exists():
            files = [path]
        else:
            files = sorted(Path(name) for name in glob.glob(str(item), recursive=True))
        if not files:
            raise InputError(
                f"no Parquet file at {str(item)!r}. Give a file, a folder of .parquet files, or a "
                "pattern such as 'data/*.parquet'."
            )
        found += files
    if not found:
        raise InputError("no Parquet file was named.")
    return found


def _parquet_below(folder: Path) -> list[Path]:
    """The Parquet files of a folder and its folders; an error for one that is a whole disk."""
    found: list[Path] = []
    n_others = 0
    for file in folder.rglob("*"):
        if file.suffix in ENDINGS:
            found.append(file)
        else:
            n_others += 1
        if n_others > _MOST_OTHERS:
            raise InputError(
                f"{str(folder)!r} holds more than {_MOST_OTHERS:,} files and folders that are not "
                "Parquet, so it is not searched to the end. Name the folder of the .parquet files."
            )
    return sorted(found)


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
            metadata = _arrow_parquet().read_metadata(path)
            fields = list(metadata.schema.to_arrow_schema())
        types = {field.name: field.type for field in fields}
        if len(types) < len(fields):
            twice = [name for name, n in Counter(f.name for f in fields).items() if n > 1]
            raise InputError(
                f"{path} has more than one column named {enumerate_names(twice)}; rename them so "
                "that each name occurs once."
            )
        groups = range(metadata.num_row_groups)
        return cls(path, types, tuple(metadata.row_group(i).num_rows for i in groups))


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
    file = _arrow_parquet().ParquetFile(path, page_checksum_verification=True)
    with file:
        for batch in file.iter_batches(size, groups, columns, use_threads=threads):
            batch.validate(full=True)
            yield batch


def empty_batch(path: Path) -> Any:
    """The columns of a file, without rows."""
    return _arrow_parquet().read_schema(path).empty_table()


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
        raise InputError(f"{path} is no longer there.") from None
    except (OSError, ValueError, ArrowException) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(
            f"{path}{where} cannot be read as Parquet: {reason}. It may be cut short, damaged, or "
            "another kind of file under this name: write it again, or leave it out."
        ) from error


def _arrow_parquet() -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'riskad[parquet]'.") from None
    return parquet
