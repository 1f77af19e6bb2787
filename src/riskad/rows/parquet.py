"""Rows of Parquet files, read anew in each pass: tables larger than memory.

>>> import polars as pl, tempfile, pathlib
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> for i in range(2):
...     table = pl.DataFrame({"x": [0.1 * i, 0.2, 3.0 + i], "label": ["ok", None, "fraud"]})
...     table.write_parquet(folder / f"{i}.parquet")
>>> rows = ParquetRows(folder, label="label", normal="ok", anomaly="fraud")
>>> print(rows.counts())
2 normal, 2 anomalies, 2 unlabelled
>>> from riskad import ShallowRAD
>>> ShallowRAD(lam=0.01).fit(rows).predict(pl.DataFrame({"x": [0.2, 4.0]}))
array([ 1, -1])
"""

from __future__ import annotations

import copy
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from scipy import sparse

from riskad.core.checks import InputError, enumerate_names
from riskad.core.label_parsing import parse_distinct
from riskad.core.labels import UNLABELLED
from riskad.rows.arrays import places_of
from riskad.rows.engine import Engine
from riskad.rows.parted import PartedRows
from riskad.rows.source import Block

__all__ = ["ENDINGS", "ParquetRows", "Paths", "count_values", "find_parquet", "parquet_columns"]

ENDINGS = (".parquet", ".pq")
Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_BLOCK_BYTES = 1 << 23
_MIN_BATCH = 4096
_MOST_LABELS = 1_000


class ParquetRows(PartedRows):
    """The rows of one or many Parquet files, as a source for `fit` and `score_samples`.

    Only the needed columns are read, batch by batch; row groups are the parts on which cores work.
    All files must have the same columns, of the same kind. What cannot be read is an error that
    names the file, never rows left out.

    Parameters
    ----------
    paths : str, path or list of these
        Files, folders (all .parquet and .pq files below them), or patterns such as
        "data/*.parquet".
    label : str, optional
        Column with the labels. Without it all rows are unlabelled, as scoring needs them.
    normal, anomaly, unlabelled, others :
        What the labels mean, as `riskad.parse_labels` takes it; nothing where the column holds
        +1, -1 and 0, and an anomaly is among them: 1 alone may elsewhere mean anomaly.
    columns : list of str, optional
        Columns to learn from; by default all but those of labels and weights.
    weight : str, optional
        Column with the weights of rows.
    prepare : callable, optional
        From a polars frame of the columns to numbers, `TablePreparer.transform` for instance.
        Without it all columns must hold numbers.
    feature_names : list of str, optional
        Names of what `prepare` gives.
    engine : Engine, optional
        Who reads; threads of this process by default.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        label: str | None = None,
        normal: object = None,
        anomaly: object = None,
        unlabelled: object = None,
        others: str = "raise",
        columns: Sequence[str] | None = None,
        weight: str | None = None,
        prepare: Callable[[Any], Any] | None = None,
        feature_names: Sequence[str] | None = None,
        engine: Engine | None = None,
    ):
        self.paths = find_parquet(paths)
        schemas = [_Schema.of(path) for path in self.paths]
        marks = [name for name in (label, weight) if name is not None]
        _check_known([*(columns or ()), *marks], schemas[0])
        self.columns = list(columns or (name for name in schemas[0].types if name not in marks))
        _check_alike(schemas, [*self.columns, *marks])
        if prepare is None:
            _check_numbers(schemas[0], self.columns)
        if not sum(sum(schema.group_rows) for schema in schemas):
            raise InputError(f"{_say_files(self.paths)} no rows.")
        codes = None
        if label is not None:
            counts = count_values(self.paths, label)
            spelled = {"normal": normal, "anomaly": anomaly, "unlabelled": unlabelled}
            codes = parse_distinct(counts, **spelled, others=others, name=f"column {label!r}")
        self._reader = _Reader(tuple(self.columns), label, weight, codes, prepare)
        parts = [
            _RowGroup(schema.path, group, n_rows, self._reader)
            for schema in schemas
            for group, n_rows in enumerate(schema.group_rows)
        ]
        first = next(block for part in parts for block in part.blocks()).X
        super().__init__(parts, first.shape[1], sparse.issparse(first), engine)
        self.labels_said = True  # parse_distinct has seen all labels
        self.feature_names = self.columns if prepare is None else feature_names

    def reading(self, columns: Sequence[str], prepare: Callable[[Any], Any]) -> ParquetRows:
        """The same rows with the same labels, of which some columns are read, in another way."""
        other = copy.copy(self)
        other.columns = list(columns)
        other._reader = replace(self._reader, columns=tuple(columns), prepare=prepare)
        parts = [replace(cast(_RowGroup, part), reader=other._reader) for part in self.parts]
        first = next(block for part in parts for block in part.blocks()).X
        PartedRows.__init__(other, parts, first.shape[1], sparse.issparse(first), self.engine)
        other._hidden = self._hidden
        other.feature_names = None
        return other


def find_parquet(paths: Paths) -> list[Path]:
    """The files that are meant, in the order of their names; an error where there are none."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found: list[Path] = []
    for item in given:
        path = Path(item)
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix in ENDINGS)
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


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of a file."""
    return list(_Schema.of(path).types)


@dataclass(frozen=True)
class _Schema:
    """What the end of a file says of it."""

    path: Path
    types: dict[str, Any]
    group_rows: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> _Schema:
        with _reading(path):
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


@dataclass(frozen=True)
class _Reader:
    """What is read of a file and how it becomes blocks."""

    columns: tuple[str, ...]
    label: str | None
    weight: str | None
    codes: Mapping[Any, int] | None
    prepare: Callable[[Any], Any] | None

    def block(self, batch: Any, path: Path, place: np.ndarray) -> Block:
        """The rows of a record batch; numbers are written to `place`."""
        y = np.full(batch.num_rows, UNLABELLED, dtype=np.int8)
        if self.label is not None:
            y = self._codes(batch.column(self.label), path)
        weight = None
        if self.weight is not None:
            weight = _numbers(batch.column(self.weight))
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise InputError(
                    f"{path}: weights must be numbers >= 0, and column {self.weight!r} has others."
                )
        return Block(self._rows(batch, place), y, weight, places_of(y))

    def _rows(self, batch: Any, place: np.ndarray) -> Any:
        if self.prepare is not None:
            import polars as pl

            return self.prepare(pl.from_arrow(batch.select(list(self.columns))))
        # Column by column into columns: no transposition, and one copy that also widens.
        X = place[: batch.num_rows]
        for j, name in enumerate(self.columns):
            X[:, j] = _numbers(batch.column(name))
        return X

    def _codes(self, column: Any, path: Path) -> np.ndarray:
        """Codes of labels: few are distinct, so that each is looked up once."""
        assert self.codes is not None
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        try:
            table = np.array([self.codes[value] for value in values], dtype=np.int8)
        except KeyError as error:
            raise InputError(
                f"{path} changed while it was read: label {error} was not there before."
            ) from None
        return table[encoded.indices.to_numpy()]


@dataclass(frozen=True)
class _RowGroup:
    """A row group of a file, as a part of the rows."""

    path: Path
    group: int
    n_rows: int
    reader: _Reader

    def blocks(self) -> Iterator[Block]:
        """Read the row group in batches."""
        reader = self.reader
        wanted = [*reader.columns, *(n for n in (reader.label, reader.weight) if n is not None)]
        size = max(_MIN_BATCH, _BLOCK_BYTES // (8 * len(wanted)))
        place = np.empty((min(size, self.n_rows), len(reader.columns)), order="F")
        seen = 0
        with _reading(self.path, f", row group {self.group}"), _open(self.path) as file:
            batches = file.iter_batches(size, [self.group], wanted, use_threads=False)
            for batch in batches:
                seen += batch.num_rows
                yield reader.block(batch, self.path, place)
        if seen != self.n_rows:
            raise InputError(
                f"{self.path}, row group {self.group}: {self.n_rows:,} rows were announced and "
                f"{seen:,} found. The file is damaged or has changed; write it again."
            )


def count_values(paths: Sequence[Path], column: str) -> dict[Any, int]:
    """How often each value of a column occurs: a pass over this column alone."""
    counts: Counter[Any] = Counter()
    for path in paths:
        kind = _Schema.of(path).types[column]
        if kind.num_fields:
            raise InputError(
                f"column {column!r} of {path} holds values of type {kind}, which cannot be labels."
            )
        with _reading(path), _open(path) as file:
            for batch in file.iter_batches(1 << 20, columns=[column], use_threads=False):
                for found in batch.column(column).value_counts().to_pylist():
                    counts[found["values"]] += found["counts"]
                if len(counts) > _MOST_LABELS:
                    raise InputError(
                        f"column {column!r} has more than {_MOST_LABELS:,} different values, too "
                        "many for labels."
                    )
    return dict(counts.most_common())


def _numbers(column: Any) -> np.ndarray:
    """A column of numbers, NaN where it is null."""
    return column.to_numpy(zero_copy_only=False)


@contextmanager
def _reading(path: Path, where: str = "") -> Iterator[None]:
    """Errors of the reader in one sentence that names the file."""
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is no longer there.") from None
    except (OSError, ValueError) as error:  # Arrow's own errors are of these kinds
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise InputError(
            f"{path}{where} cannot be read as Parquet: {reason}. Write the file again, or leave it "
            "out; nothing was fitted."
        ) from error


def _open(path: Path) -> Any:
    return _arrow_parquet().ParquetFile(path, page_checksum_verification=True)


def _arrow_parquet() -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise InputError(
            "rows from Parquet files need pyarrow: pip install 'riskad[parquet]'."
        ) from None
    return parquet


def _check_known(names: Sequence[str], schema: _Schema) -> None:
    unknown = [name for name in names if name not in schema.types]
    if unknown:
        raise InputError(
            f"{schema.path} has no column {enumerate_names(unknown)}; it has "
            f"{enumerate_names(schema.types)}."
        )


def _check_alike(schemas: Sequence[_Schema], names: Sequence[str]) -> None:
    """Each column is of one kind in all files: numbers of all types are one kind, so are texts."""
    first = schemas[0]
    for other in schemas[1:]:
        _check_known(names, other)
        for name in names:
            here, there = first.types[name], other.types[name]
            if not _one_kind(here, there):
                raise InputError(
                    f"column {name!r} is {here} in {first.path} and {there} in {other.path}. "
                    "Write the files with one type for each column, or leave the column out."
                )


def _check_numbers(schema: _Schema, columns: Sequence[str]) -> None:
    others = [name for name in columns if not _is_number(schema.types[name])]
    if others:
        raise InputError(
            f"columns {enumerate_names(others)} of {schema.path} hold no numbers. Leave them out "
            "with columns=[...], or let a TablePreparer make numbers of them: prepare=...; "
            "riskad.fit_table does so by itself."
        )


def _one_kind(here: Any, there: Any) -> bool:
    """Whether values of both types can stand in one column; a column of nulls goes with all."""
    import pyarrow.types as kinds

    either = (here, there)
    return (
        here == there
        or any(kinds.is_null(type_) for type_ in either)
        or all(_is_number(type_) for type_ in either)
        or all(_is_text(type_) for type_ in either)
        or all(kinds.is_timestamp(type_) for type_ in either)
    )


def _is_text(type_: Any) -> bool:
    import pyarrow.types as kinds

    if kinds.is_dictionary(type_):  # categories
        return _is_text(type_.value_type)
    checks = (kinds.is_string, kinds.is_large_string, kinds.is_string_view)
    return any(check(type_) for check in checks)


def _is_number(type_: Any) -> bool:
    import pyarrow.types as kinds

    checks = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_null)
    return any(check(type_) for check in checks)


def _say_files(paths: Sequence[Path]) -> str:
    return f"{paths[0]} holds" if len(paths) == 1 else f"the {len(paths)} files hold"
