"""Rows of Parquet files, read again in each pass: for tables larger than memory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from riskad.core.checks import InputError, enumerate_names
from riskad.core.label_parsing import parse_distinct
from riskad.core.labels import UNLABELLED
from riskad.files.remote import address
from riskad.rows.arrays import places_of
from riskad.rows.engine import Engine, Threads
from riskad.rows.parquet_files import (
    ParquetSchema,
    Paths,
    check_alike,
    check_columns_exist,
    find_parquet,
    is_number,
    parquet_errors,
    read_schemas,
    record_batches,
)
from riskad.rows.partitions import PartitionedRows
from riskad.rows.sources import Block

__all__ = ["BatchReader", "BatchRows", "ParquetRows", "count_values"]

_BLOCK_BYTES = 1 << 23  # as for rows in memory: a block stays in the cache
_MIN_BATCH = 4096  # rows, also of tables so wide that these leave the cache
_MOST_LABELS = 1_000  # different values; more are a column of numbers or names


class BatchRows(PartitionedRows):
    """Rows that come as record batches, of files or of a dataframe, with labels among them."""

    columns: list[str]
    feature_names: Sequence[str] | None

    def _read(self, reader: BatchReader, parts: Sequence[Any], engine: Engine | None) -> None:
        parts = [replace(part, reader=reader) for part in parts]
        # Some rows are read now: `prepare` decides how many columns there are.
        some = self._some(parts).X
        super().__init__(parts, some.shape[1], sparse.issparse(some), engine)
        self._reader, self.columns, self.feature_names = reader, list(reader.columns), None

    def _some(self, parts: Sequence[Any]) -> Block:
        """Some of the rows."""
        return next(block for part in parts for block in part.blocks())

    def reading(self, columns: Sequence[str], prepare: Callable[[Any], Any]) -> Self:
        """The same rows with the same labels, with other columns or another preparation."""
        other = copy.copy(self)
        reader = replace(self._reader, columns=tuple(columns), prepare=prepare)
        other._read(reader, self.parts, self.engine)
        return other


class ParquetRows(BatchRows):
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
    counted : dict, optional
        How often each label occurs, to spare a pass.

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
        counted: dict[Any, int] | None = None,
    ):
        self.paths = find_parquet(paths)
        schemas = read_schemas(self.paths)
        # Types are those of the first file; `check_alike` compares the others with it.
        reader = BatchReader.of(schemas[0].types, schemas[0].path, columns, label, weight, prepare)
        check_alike(schemas, reader.read_columns)
        if not sum(sum(schema.group_rows) for schema in schemas):
            one = len(self.paths) == 1
            where = f"{self.paths[0]} holds" if one else f"the {len(self.paths)} files hold"
            raise InputError(f"{where} no rows.")
        if label is not None:
            meanings = {"normal": normal, "anomaly": anomaly, "unlabelled": unlabelled}
            # A pass over the labels alone, before any other: what they mean is asked before hours
            # of work.
            counted = counted or count_values(self.paths, label, engine)
            reader = reader.with_labels(counted, others=others, **meanings)
        parts = [
            _RowGroup(schema.path, group, n_rows, reader)
            for schema in schemas
            for group, n_rows in enumerate(schema.group_rows)
        ]
        self._read(reader, parts, engine)
        self.feature_names = self.columns if prepare is None else feature_names


@dataclass(frozen=True)
class BatchReader:
    """What is read from a file and how it becomes blocks."""

    columns: tuple[str, ...]
    label: str | None
    weight: str | None
    codes: Mapping[Any, int] | None
    prepare: Callable[[Any], Any] | None

    @classmethod
    def of(
        cls,
        types: Mapping[str, Any],
        where: Path | str,
        columns: Sequence[str] | None,
        label: str | None,
        weight: str | None,
        prepare: Callable[[Any], Any] | None,
    ) -> BatchReader:
        """Check that there are such columns; by default all but those of labels and weights."""
        marks = [name for name in (label, weight) if name is not None]
        columns = list(columns or (name for name in types if name not in marks))
        check_columns_exist([*columns, *marks], types, where)
        others = [name for name in columns if not is_number(types[name])]
        if prepare is None and others:
            raise InputError(
                f"columns {enumerate_names(others)} of {where} hold no numbers. Leave them out "
                "with columns=[...], or let a TablePreparer make numbers of them: prepare=...; "
                "riskad.fit_table does so by itself."
            )
        return cls(tuple(columns), label, weight, None, prepare)

    def with_labels(self, values: Mapping[Any, int], **meanings: Any) -> BatchReader:
        """The same with the codes of all values in the column of labels."""
        codes = parse_distinct(values, **meanings, name=f"column {self.label!r}")
        return replace(self, codes=codes)

    @property
    def read_columns(self) -> list[str]:
        """The columns that are read."""
        marks = [name for name in (self.label, self.weight) if name is not None]
        return [*self.columns, *marks]

    def block(self, batch: Any, path: Path | str, place: np.ndarray) -> Block:
        """The rows of a record batch; numbers are written to `place`."""
        y = np.full(batch.num_rows, UNLABELLED, dtype=np.int16)
        if self.label is not None:
            y = self._codes(batch.column(self.label), path)
        weight = None
        if self.weight is not None:
            weight = batch.column(self.weight).to_numpy(zero_copy_only=False)
            # NaN, which a blank cell becomes, fails the first test.
            if not (np.isfinite(weight).all() and (weight >= 0).all()):
                raise InputError(
                    f"{path}: weights must be numbers >= 0, and column {self.weight!r} has others."
                )
        if self.prepare is not None:
            import polars as pl

            X = self.prepare(pl.from_arrow(batch.select(list(self.columns))))
        else:
            X = place[: batch.num_rows]
            # Column by column into columns: no transposition, and one copy that also widens.
            for j, name in enumerate(self.columns):
                X[:, j] = batch.column(name).to_numpy(zero_copy_only=False)  # NaN for null
        return Block(X, y, weight, places_of(y))

    def _codes(self, column: Any, path: Path | str) -> np.ndarray:
        """Codes of labels: few are distinct, so each is looked up once."""
        assert self.codes is not None
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        try:
            # Of each batch its few distinct values; rows are then looked up by NumPy.
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
    reader: BatchReader

    def blocks(self) -> Iterator[Block]:
        """Read the row group in batches."""
        reader, columns = self.reader, self.reader.read_columns
        size = max(_MIN_BATCH, _BLOCK_BYTES // (8 * len(columns)))
        # Columns are written one after the other: Fortran order keeps each of them together.
        place = np.empty((min(size, self.n_rows), len(reader.columns)), order="F")
        n_read = 0
        with parquet_errors(self.path, f", row group {self.group}"):
            for batch in record_batches(self.path, size, columns, [self.group]):
                n_read += batch.num_rows
                yield reader.block(batch, self.path, place)
        # The footer was read before the rows: a file may be replaced in between.
        if n_read != self.n_rows:
            raise InputError(
                f"{self.path}, row group {self.group}: {self.n_rows:,} rows were announced and "
                f"{n_read:,} found. The file is damaged or has changed; write it again."
            )


def count_values(
    paths: Sequence[Path], column: str, engine: Engine | None = None
) -> dict[Any, int]:
    """How often each value of a column occurs: a pass over only this column."""
    counts: Counter[Any] = Counter()
    for some in (engine or Threads()).map(partial(_count_values, column), paths):
        counts.update(some)
        _check_labels(counts, column)
    return dict(counts.most_common())


def _count_values(column: str, path: Path, number: int) -> Counter[Any]:
    counts: Counter[Any] = Counter()
    kind = ParquetSchema.of(path).types[column]
    if kind.num_fields:
        raise InputError(
            f"column {column!r} of {address(path)} holds values of type {kind}, which cannot be "
            "labels."
        )
    with parquet_errors(path):
        for batch in record_batches(path, 1 << 20, [column]):
            for each in batch.column(column).value_counts().to_pylist():
                counts[each["values"]] += each["counts"]
            # Checked while reading: a column of numbers would fill the memory.
            _check_labels(counts, column)
    return counts


def _check_labels(counts: Counter[Any], column: str) -> None:
    if len(counts) > _MOST_LABELS:
        raise InputError(
            f"column {column!r} has more than {_MOST_LABELS:,} different values, too many for "
            "labels."
        )
