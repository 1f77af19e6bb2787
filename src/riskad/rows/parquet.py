"""Rows of Parquet files, read again in each pass: for tables larger than memory.

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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from scipy import sparse

from riskad.core.checks import InputError, enumerate_names
from riskad.core.label_parsing import parse_distinct
from riskad.core.labels import UNLABELLED
from riskad.rows.arrays import places_of
from riskad.rows.engine import Engine
from riskad.rows.parquet_files import (
    ParquetSchema,
    Paths,
    find_parquet,
    parquet_errors,
    record_batches,
)
from riskad.rows.parted import PartedRows
from riskad.rows.sources import Block

__all__ = ["ParquetRows", "count_values"]

_BLOCK_BYTES = 1 << 23
_MIN_BATCH = 4096
_MOST_LABELS = 1_000


class ParquetRows(PartedRows):
    """The rows of one or many Parquet files, as a source for `fit` and `score_samples`.

    Only the needed columns are read, in batches; cores work on row groups in parallel. All files
    must have the same columns, of the same kind. An unreadable part raises an error that names the
    file; no rows are left out silently.

    Parameters
    ----------
    paths : str, path or list of these
        Files, folders (all .parquet and .pq files below them), or patterns such as
        "data/*.parquet".
    label : str, optional
        Column with the labels. Without it all rows are unlabelled, which is enough for scoring.
    normal, anomaly, unlabelled, others :
        Meaning of the labels, as in `riskad.parse_labels`. Not needed if the column holds +1, -1
        and 0 with at least one anomaly: 1 alone may elsewhere mean anomaly.
    columns : list of str, optional
        Columns to learn from; by default all but those of labels and weights.
    weight : str, optional
        Column with the weights of rows.
    prepare : callable, optional
        Turns a polars frame of the columns into numbers, for instance `TablePreparer.transform`.
        Without it all columns must hold numbers.
    feature_names : list of str, optional
        Names of the columns that `prepare` returns.
    engine : Engine, optional
        Reads the files; by default threads of this process.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> import riskad
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pl.DataFrame({"x": range(100), "label": [1] * 20 + [0] * 70 + [-1] * 10})
    ...     table[:50].write_parquet(f"{folder}/1.parquet")
    ...     table[50:].write_parquet(f"{folder}/2.parquet")
    ...     rows = ParquetRows(f"{folder}/*.parquet", label="label")
    ...     model = riskad.ShallowRAD().fit(rows)
    >>> rows.n_rows, model.predict(table[[0, 99]].select("x")).tolist()
    (100, [1, -1])
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
        schemas = [ParquetSchema.of(path) for path in self.paths]
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
        self.feature_names = self.columns if prepare is None else feature_names

    def reading(self, columns: Sequence[str], prepare: Callable[[Any], Any]) -> ParquetRows:
        """The same rows with the same labels, with other columns or another preparation."""
        other = copy.copy(self)
        other.columns = list(columns)
        other._reader = replace(self._reader, columns=tuple(columns), prepare=prepare)
        parts = [replace(cast(_RowGroup, part), reader=other._reader) for part in self.parts]
        first = next(block for part in parts for block in part.blocks()).X
        PartedRows.__init__(other, parts, first.shape[1], sparse.issparse(first), self.engine)
        other.feature_names = None
        return other


@dataclass(frozen=True)
class _Reader:
    """What is read from a file and how it becomes blocks."""

    columns: tuple[str, ...]
    label: str | None
    weight: str | None
    codes: Mapping[Any, int] | None
    prepare: Callable[[Any], Any] | None

    def block(self, batch: Any, path: Path, place: np.ndarray) -> Block:
        """The rows of a record batch; numbers are written to `place`."""
        y = np.full(batch.num_rows, UNLABELLED, dtype=np.int16)
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
        """Codes of labels: few are distinct, so each is looked up once."""
        assert self.codes is not None
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        try:
            table = np.array([self.codes[value] for value in values], dtype=np.int16)
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
        with parquet_errors(self.path, f", row group {self.group}"):
            for batch in record_batches(self.path, size, wanted, [self.group]):
                seen += batch.num_rows
                yield reader.block(batch, self.path, place)
        if seen != self.n_rows:
            raise InputError(
                f"{self.path}, row group {self.group}: {self.n_rows:,} rows were announced and "
                f"{seen:,} found. The file is damaged or has changed; write it again."
            )


def count_values(paths: Sequence[Path], column: str) -> dict[Any, int]:
    """How often each value of a column occurs: a pass over only this column."""
    counts: Counter[Any] = Counter()
    for path in paths:
        kind = ParquetSchema.of(path).types[column]
        if kind.num_fields:
            raise InputError(
                f"column {column!r} of {path} holds values of type {kind}, which cannot be labels."
            )
        with parquet_errors(path):
            for batch in record_batches(path, 1 << 20, [column]):
                for found in batch.column(column).value_counts().to_pylist():
                    counts[found["values"]] += found["counts"]
                if len(counts) > _MOST_LABELS:
                    raise InputError(
                        f"column {column!r} has more than {_MOST_LABELS:,} different values, too "
                        "many for labels."
                    )
    return dict(counts.most_common())


def _numbers(column: Any) -> np.ndarray:
    """A column of numbers, NaN for null."""
    return column.to_numpy(zero_copy_only=False)


def _check_known(names: Sequence[str], schema: ParquetSchema) -> None:
    unknown = [name for name in names if name not in schema.types]
    if unknown:
        raise InputError(
            f"{schema.path} has no column {enumerate_names(unknown)}; it has "
            f"{enumerate_names(schema.types)}."
        )


def _check_alike(schemas: Sequence[ParquetSchema], names: Sequence[str]) -> None:
    """Check that each column has one kind in all files: all number types are one, so are texts."""
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


def _check_numbers(schema: ParquetSchema, columns: Sequence[str]) -> None:
    others = [name for name in columns if not _is_number(schema.types[name])]
    if others:
        raise InputError(
            f"columns {enumerate_names(others)} of {schema.path} hold no numbers. Leave them out "
            "with columns=[...], or let a TablePreparer make numbers of them: prepare=...; "
            "riskad.fit_table does so by itself."
        )


def _one_kind(here: Any, there: Any) -> bool:
    """Whether one column can hold values of both types; a column of nulls fits all."""
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
