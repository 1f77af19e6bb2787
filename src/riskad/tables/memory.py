"""Whether a table fits in memory, estimated without reading all of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from riskad.core.checks import InputError
from riskad.rows.parquet_files import ENDINGS as _PARQUET
from riskad.tables.database_reading import sqlite_size
from riskad.tables.duckdb_reading import duckdb_size
from riskad.tables.packing import unpacked_size
from riskad.tables.parquet_reading import parquet_size
from riskad.tables.paths import Place, check_readable, is_duckdb

__all__ = ["check_memory", "check_place", "estimate_rows", "is_larger_than_memory"]


# Peak of `riskad fit` over the size of the table, as measured on tables of numbers and of texts.
_MEMORY_OF_A_FIT = 8
_UNPACKED_SHEET = 4  # bytes in memory over bytes in a workbook, which is compressed


def is_larger_than_memory(paths: Sequence[Path]) -> bool:
    """Whether tables should be read in batches: several files, or one that does not fit.

    This needs Parquet; of several files all must be Parquet.
    """
    others = [path.name for path in paths if path.suffix.lower() not in _PARQUET]
    if len(paths) == 1:
        return not others and memory_shortage(check_readable(paths[0])) is not None
    if others:
        raise InputError(
            f"Several files are read as one table if they are Parquet, which {others[0]!r} is not. "
            "Give one file, or write them as Parquet."
        )
    return True


def check_memory(path: str | os.PathLike[str], available: int | None = None) -> None:
    """Fail if fitting on the table needs more memory than available, without reading all of it.

    `available` is in bytes; None asks the system, and checks nothing if it does not answer.
    """
    check_place(check_readable(path), available)


def check_place(place: Place, available: int | None = None) -> None:
    """Fail as `check_memory` does."""
    shortage = memory_shortage(place, available)
    if shortage is not None:
        needed, available = shortage
        rows = "Take a sample of the unlabelled rows, with all labelled ones"
        if place.format != "parquet":
            rows += "; or save it as Parquet, which riskad.fit_table reads some rows at a time"
        raise InputError(
            f"{place.name!r} does not fit in memory: fitting on it takes about "
            f"{_show_bytes(needed)}, and {_show_bytes(available)} are free. {rows}. "
            "Scoring has no such limit."
        )


def memory_shortage(place: Place, available: int | None = None) -> tuple[int, int] | None:
    """Bytes that a fit needs and available bytes, if these are fewer."""
    available = available_memory() if available is None else available
    needed = int(_MEMORY_OF_A_FIT * _estimate_size(place))
    return None if available is None or needed <= available else (needed, available)


def available_memory() -> int | None:
    """Bytes that this process may still use, if the system reports them."""
    found = [_free_memory(), _free_in_container()]
    return min((free for free in found if free is not None), default=None)


def _free_memory() -> int | None:
    try:
        text = Path("/proc/meminfo").read_text()
        return 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        pass
    if not hasattr(os, "sysconf"):  # Windows
        return None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # all there is: at most
    except (OSError, ValueError):
        return None


def _free_in_container() -> int | None:
    folder = Path("/sys/fs/cgroup")
    try:
        limit, used = (int((folder / f"memory.{name}").read_text()) for name in ("max", "current"))
        counts = (folder / "memory.stat").read_text().split()
        cached = int(counts[counts.index("inactive_file") + 1])  # files, let go when need be
        return max(limit - used + cached, 0)
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        return None


def _estimate_size(place: Place) -> float:
    """Bytes of the table in memory; text takes what it takes on disk."""
    if place.format == "parquet":
        return parquet_size(place.path)
    if place.format == "database":
        return duckdb_size(place) if is_duckdb(place) else sqlite_size(place)
    return (_UNPACKED_SHEET if place.format == "excel" else 1) * unpacked_size(place)


def estimate_rows(place: Place, first: pl.DataFrame) -> float:
    """About how many rows a table has, by the size of its first ones."""
    if place.format == "excel" or not first.height:
        return first.height
    if place.format in ("csv", "json"):
        some = first.head(1_000)
        csv = place.format == "csv"
        text = some.write_csv(quote_style="never") if csv else some.write_ndjson()
        return unpacked_size(place) * some.height / len(text.encode())
    return _estimate_size(place) * first.height / max(first.estimated_size(), 1)


def _show_bytes(n: int) -> str:
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:,.0f} MB"
