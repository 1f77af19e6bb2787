"""A user's own table as a dataset: CSV, Parquet or npz, with a column that holds the truth."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.core.label_parsing import parse_labels
from riskad.core.labels import Codes, count_labels
from riskad.datasets.dataset import Dataset, FrameDataset
from riskad.datasets.fetch import Damage, unpack_npz
from riskad.storage.files import check_input_file
from riskad.tables.columns import check_columns
from riskad.tables.paths import READABLE, check_table_name
from riskad.tables.reading import read_table

__all__ = ["FILE_ENDINGS", "Words", "digest_of", "load_table"]

_NPZ = ".npz"
FILE_ENDINGS = (*READABLE, _NPZ)
# There must be enough for test rows and labelled training rows of both kinds.
_FEWEST_ROWS = 20
_FEWEST_OF_A_KIND = 2

_MOST_SHOWN = 6

Word = str | int | float | bool
Words = Word | tuple[Word, ...] | None


def load_table(
    path: str | Path,
    *,
    label: str | None = None,
    normal: Words = None,
    anomaly: Words = None,
    drop: tuple[str, ...] = (),
    name: str | None = None,
) -> Dataset | FrameDataset:
    """Read a table whose truth is known, to run experiments on.

    Parameters
    ----------
    path
        A CSV or Parquet file; or an .npz file with the arrays X (rows x columns of numbers) and y.
    label
        The column with the truth; an .npz file has it in y.
    normal, anomaly
        The value, or the values, of that column with this meaning.
    drop
        Columns to leave out, such as numbers of customers.
    name
        Name in records and tables; by default the file's name without its extension.

    Returns
    -------
    `FrameDataset`, or `Dataset` for an .npz file.

    Raises
    ------
    InputError
        If the file cannot be read, if a column or a word is missing, if rows have no truth, or if
        there are too few rows of a kind.
    """
    path, ending = check_table_name(check_input_file(Path(path)), FILE_ENDINGS)
    name = name or path.name[: -len(ending)]
    if ending == _NPZ:
        X, values = _read_npz(path, label, drop)
        return Dataset(name, X, _truth(values, f"y of {path.name}", normal, anomaly))
    if label is None:
        raise InputError(
            f'{path.name}: which column holds the truth? Name it: label = "...", and say what '
            'its values mean: normal = "...", anomaly = "...".'
        )
    frame = read_table(path)
    check_columns([label, *drop], frame.columns)
    features = frame.drop(label, *drop)
    if not features.width:
        raise InputError(f"{path.name} has no column left to learn from beside {label!r}.")
    column = f"column {label!r} of {path.name}"
    return FrameDataset(name, features, _truth(frame[label], column, normal, anomaly))


def digest_of(path: Path, *more: object) -> str:
    """Return a short digest of a file's bytes and of how it is read.

    It distinguishes a record from those of a table that was changed since.
    """
    content = hashlib.sha256(check_input_file(path).read_bytes())
    content.update(repr(more).encode())
    return f"sha256:{content.hexdigest()[:16]}"


def _read_npz(
    path: Path, label: str | None, drop: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    if label is not None or drop:
        given = "label" if label is not None else "drop"
        raise InputError(
            f"{path.name}: {given} names a column, and the arrays of an .npz file have no names. "
            "Leave it out: X are the rows, y is the truth."
        )
    try:
        X, y = unpack_npz(path.read_bytes(), "X", "y")
    except Damage as damage:
        raise InputError(
            f"{path.name} cannot be read: {damage}. Write it with numpy.savez(path, X=X, y=y)."
        ) from None
    y = y.ravel()
    if X.ndim != 2 or not X.size or X.dtype.kind not in "biuf":
        raise InputError(
            f"X of {path.name} must be a table of numbers (rows x columns), got shape {X.shape} "
            f"and type {X.dtype}."
        )
    if len(X) != len(y):
        raise InputError(f"X of {path.name} has {len(X):,} rows and y {len(y):,}.")
    if not np.isfinite(X).all():
        row, column = np.argwhere(~np.isfinite(X))[0]
        raise InputError(
            f"X of {path.name} must hold finite numbers, got {X[row, column]} in row {row}, "
            f"column {column}. Fill gaps, or write the table as CSV, where they may be blank."
        )
    return np.ascontiguousarray(X, dtype=np.float64), y


def _truth(values: NDArray[Any] | pl.Series, where: str, normal: Words, anomaly: Words) -> Codes:
    """Codes +1 and -1 of all rows, enough of each kind."""
    if normal is None or anomaly is None:
        raise InputError(
            f"Say what the values of {where} mean: both normal = ... and anomaly = ... are needed, "
            f"each a value or a list of values. {_seen(values)}"
        )
    if len(set(_present(values))) == 1:
        raise InputError(
            f"{where} has the same value in every row, and experiments measure how well normal "
            f"rows and anomalies are told apart. Give a table with rows of both kinds. "
            f"{_seen(values)}"
        )
    codes = parse_labels(values, normal=normal, anomaly=anomaly, name=where)
    counts = count_labels(codes)
    if counts.unlabelled:
        raise InputError(
            f"{where} is blank in {counts.unlabelled:,} of {len(codes):,} rows. An experiment "
            "hides labels itself and needs the truth of every row: leave these rows out of the "
            "file."
        )
    if len(codes) < _FEWEST_ROWS or min(counts.normal, counts.anomaly) < _FEWEST_OF_A_KIND:
        raise InputError(
            f"{where} has {counts.normal:,} normal rows and {counts.anomaly:,} anomalies: too few "
            f"to train with some and to test with others. It takes at least {_FEWEST_ROWS} rows, "
            f"{_FEWEST_OF_A_KIND} of each kind."
        )
    return codes


def _present(values: NDArray[Any] | pl.Series) -> list[Any]:
    """The values that are not missing."""
    listed = values.tolist() if isinstance(values, np.ndarray) else values.to_list()
    return [value for value in listed if value is not None]


def _seen(values: NDArray[Any] | pl.Series) -> str:
    """Say which values there are.

    >>> _seen(np.array([0, 0, 1]))
    'Values seen: 0 (2 rows), 1 (1 row).'
    """
    common = Counter(_present(values)).most_common()
    shown = [f"{value} ({n:,} row{'' if n == 1 else 's'})" for value, n in common[:_MOST_SHOWN]]
    more = [f"and {len(common) - len(shown):,} more"] if len(common) > len(shown) else []
    return f"Values seen: {', '.join(shown + more)}."
