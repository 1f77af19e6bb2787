"""Tables with a label column, in memory or in files, with one way to go through them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import accumulate, chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.core.label_parsing import parse_distinct, parse_labels
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, LabelCounts, count_labels
from riskad.rows.cluster import SparkRows, count_rows, is_spark
from riskad.rows.engine import Engine
from riskad.rows.parquet import ParquetRows, count_values
from riskad.rows.parquet_files import find_parquet, parquet_columns
from riskad.rows.partitions import Part
from riskad.tables.cells import as_polars, check_columns, free_name, is_frame, to_text
from riskad.tables.notes import pluralize
from riskad.tables.preparation import TablePreparer
from riskad.tables.profiling import first_rows
from riskad.tables.sketches import RowSample

T = TypeVar("T")
Work: TypeAlias = Callable[[pl.DataFrame, Codes, int], T]
"""For some rows: their columns, their codes, and the number of the first, counted from 1."""

# Of tables that do not fit in memory, these are sampled: at most so many rows of each kind, and
# fewer where they have many columns, so that all samples together take about 200 MB.
_SAMPLED_ROWS = 100_000
_FEWEST_SAMPLED = 4_096
_SAMPLED_CELLS = 1 << 23
_NOUNS = ("normal rows", "anomalies", "unlabelled rows")
_NORMAL_WORDS = {
    *("normal", "ok", "okay", "benign", "legit", "legitimate", "genuine", "good", "regular"),
    *("in ordnung", "i.o.", "gut", "unauffällig"),
}


@dataclass(frozen=True)
class LabelColumn:
    """Which column holds the labels and what its values mean; blank is always unlabelled."""

    column: str
    normal: Sequence[str] = ()
    anomaly: Sequence[str] = ()
    unlabelled: Sequence[str] = ()
    others: str = "raise"  # or "unlabelled": what all other values are

    def spelling(self) -> dict[str, Any]:
        """Return the meaning of labels as arguments of `riskad.parse_labels`."""
        return {
            "normal": self.normal or None,
            "anomaly": self.anomaly or None,
            "unlabelled": self.unlabelled or None,
            "others": self.others,
            "name": f"column {self.column!r}",
        }

    def resolve(self, occurrences: Mapping[Any, int]) -> LabelColumn:
        """Return a column in which every value has a meaning, by how often each of them occurs.

        'normal' and 'anomaly' are accepted directly; for other values, ask what they mean.
        """
        if self.normal or self.anomaly:
            return self
        counts: Counter[str] = Counter()
        for value, rows in occurrences.items():
            if value is not None and str(value).strip():
                counts[str(value).strip()] += rows
        if not counts:
            raise InputError(
                f"Column {self.column!r} is blank in every row: no row is labelled. Label some "
                "rows that you know (`riskad label`), or rank them without labels "
                "(model='outliers')."
            )
        values = [value for value, _ in counts.most_common()]
        # Only words that can mean nothing else are understood without being explained.
        if set(values) <= {"normal", "anomaly", "unlabelled"}:
            normal, anomaly = ([word] if word in values else [] for word in ("normal", "anomaly"))
            return LabelColumn(self.column, normal, anomaly, ["unlabelled"])
        shown = ", ".join(f"{value!r} ({rows:,})" for value, rows in counts.most_common(8))
        raise InputError(
            f"Say what the values of column {self.column!r} mean. Seen, with rows: {shown}"
            f"{' and others' * (len(counts) > 8)}. {_show_meanings(values)}"
        )


def _show_meanings(values: Sequence[str]) -> str:
    """Show how to say what values mean; only a word that is plainly normal is called normal."""
    normal = [value for value in values if value.lower() in _NORMAL_WORDS]
    others = [value for value in values if value not in normal]
    if len(values) == 1 and not normal:
        return f"If it is an anomaly: anomaly={values[0]!r}; if it is normal: normal={values[0]!r}"
    if len(normal) != 1:
        return "Name those that mean normal and those that mean anomaly: normal=..., anomaly=..."
    anomaly = repr(others[0]) if len(others) == 1 else "..."
    return f"For example: normal={normal[0]!r}" + (f", anomaly={anomaly}" if others else "")


@dataclass(frozen=True)
class TrainingSample:
    """Parsed rows in memory, with their codes: all rows of a table, or some of each kind."""

    parsed: pl.DataFrame
    codes: Codes
    complete: bool
    extent: str  # "all rows", or how many of each kind
    training_codes: Codes | None = None  # of windows: codes to learn from, if others than `codes`
    stretches: NDArray[np.intp] | None = None  # of windows: what is held out together
    moments: pl.Series | None = None  # of windows: their starts


class LabelledTable(ABC):
    """Rows with labels. Every fit goes through them by `fold`, wherever they are stored."""

    columns: list[str]  # without the label column
    shown_columns: list[str]  # with the label column, if it is available
    label: str
    counts: LabelCounts
    n_rows: int
    in_memory: bool
    # All rows for a detector that can use any source, once they are prepared and not all kept.
    training_rows: Any = None

    @abstractmethod
    def fold(self, work: Work[T], join: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Return the results of `work` for all rows, joined in their order."""

    @abstractmethod
    def prepare(self, preparer: TablePreparer, features: Sequence[str]) -> TrainingSample:
        """Fit a preparer to all rows, and return the rows that are kept in memory."""

    def how_read(self) -> list[str]:
        """Describe how the table was read, if that matters."""
        return []


class FrameTable(LabelledTable):
    """A table in memory; without a label column, for detectors that need none."""

    in_memory = True

    def __init__(self, frame: pl.DataFrame, labels: LabelColumn | None):
        if not frame.height:
            raise InputError("The table has a header but no rows.")
        self.frame, self.n_rows, self.shown_columns = frame, frame.height, frame.columns
        if labels is None:
            self.codes = np.zeros(frame.height, dtype=np.int16)
            self.label = free_name(frame.columns, "label")
        else:
            check_columns([labels.column], frame.columns)
            column = frame[labels.column]
            texts = to_text(column).alias("value").value_counts(name="rows")
            labels = labels.resolve(dict(texts.iter_rows()))
            self.codes = parse_labels(column, **labels.spelling())
            self.label = labels.column
        self.columns = [name for name in frame.columns if name != self.label]
        self.counts = count_labels(self.codes)

    def fold(self, work: Work[T], join: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Return the result of `work` for the frame."""
        return work(self.frame.select(columns), self.codes, 1)

    def prepare(self, preparer: TablePreparer, features: Sequence[str]) -> TrainingSample:
        """Fit a preparer and return all rows; each cell is read once."""
        parsed = preparer.fit_parse(self.frame.select(features))
        return TrainingSample(parsed, self.codes, True, "all rows")


class BatchedTable(LabelledTable):
    """Parquet files, or a dataframe of Spark, whose rows need not fit in memory.

    Each pass over a dataframe is a job, and all but samples stays on the executors.
    """

    in_memory = False

    def __init__(self, source: Any, labels: LabelColumn, engine: Engine | None = None):
        make_rows: Callable[..., Any]
        if is_spark(source):
            check_columns([labels.column], source.columns)
            counted = count_rows(source, labels.column)
            occurrences: Mapping[Any, int] = counted[1]
            make_rows = partial(SparkRows, source, counted=counted)
        else:
            files = find_parquet(source)
            check_columns([labels.column], parquet_columns(files[0]))
            occurrences = count_values(files, labels.column, engine)
            make_rows = partial(ParquetRows, files, engine=engine, counted=occurrences)
        spelling = labels.resolve(occurrences).spelling()
        codes = parse_distinct(occurrences, **spelling)
        sums = Counter[int]()
        for value, n in occurrences.items():
            sums[codes[value]] += n
        self.counts = LabelCounts(sums[NORMAL], sums[ANOMALY], sums[UNLABELLED])
        del spelling["name"]
        self.rows = make_rows(label=labels.column, prepare=_unchanged, **spelling)
        self.label, self.columns, self.n_rows = labels.column, self.rows.columns, self.rows.n_rows
        self.shown_columns = self.columns
        self.passes = 1  # the labels are counted

    def fold(self, work: Work[T], join: Callable[[T, T], T], columns: Sequence[str]) -> T:
        """Return the results of `work` for all blocks of rows, joined in their order."""
        self.passes += 1
        rows = self.rows.reading(columns, _unchanged)
        # Numbers of rows are known before any part is read: workers report rows of the whole table.
        starts = list(accumulate((part.n_rows for part in rows.parts), initial=1))
        folded = partial(_fold_part, work, join, starts)
        return reduce(join, chain.from_iterable(rows.engine.map(folded, rows.parts)))

    def prepare(self, preparer: TablePreparer, features: Sequence[str]) -> TrainingSample:
        """Fit a preparer in passes over the files, and keep samples of the rows of each kind."""

        def fold(work: Any, join: Any, batches: object) -> Any:
            return self.fold(partial(_without_codes, work), join, features)

        if isinstance(self.rows, SparkRows):
            first = pl.DataFrame(pl.from_arrow(self.rows.some.select(list(features))))
        else:
            parts = self.rows.reading(features, _unchanged).parts
            first = first_rows(block.X for part in parts for block in part.blocks())
        preparer.fit_batches(self.rows.parts, fold, first, self.n_rows)
        self.training_rows = self.rows.reading(
            preparer.read_columns, partial(preparer.transform, quiet=True)
        )
        width = preparer.parse(first, quiet=True).width
        most = min(_SAMPLED_ROWS, max(_FEWEST_SAMPLED, _SAMPLED_CELLS // width))
        work = partial(_sample, preparer=preparer, most=most, counts=self.counts)
        samples = self.fold(work, _join_samples, preparer.read_columns)
        complete = all(sample.complete for sample in samples.values())
        codes = [np.full(s.rows.height, kind, dtype=np.int16) for kind, s in samples.items()]
        kinds = []
        for sample, noun in zip(samples.values(), _NOUNS, strict=True):
            drawn = f"{sample.rows.height:,} of {sample.n_rows:,} {noun} drawn at random"
            if sample.n_rows:
                kinds.append(f"all {sample.n_rows:,} {noun}" if sample.complete else drawn)
        extent = " and ".join(filter(None, [", ".join(kinds[:-1]), kinds[-1]]))
        return TrainingSample(
            pl.concat([sample.rows for sample in samples.values()]),
            np.concatenate(codes),
            complete,
            "all rows" if complete else extent,
        )

    def how_read(self) -> list[str]:
        """Describe what was read, and how often."""
        passes = self.passes + getattr(self.training_rows, "passes", 0)
        if isinstance(self.rows, SparkRows):
            return [f"a dataframe of Spark, read by {passes} jobs"]
        files = pluralize(len(self.rows.paths), "file")
        return [f"{files}, read {passes} times, some rows at a time"]


def open_table(table: Any, labels: LabelColumn, engine: Engine | None = None) -> LabelledTable:
    """Return a table to go through: a frame, Parquet files, or a `LabelledTable` as it is."""
    if isinstance(table, LabelledTable):
        return table
    if isinstance(table, pl.DataFrame):  # which may have no rows
        return FrameTable(table, labels)
    if is_frame(table) and not is_spark(table):
        return FrameTable(as_polars(table), labels)
    return BatchedTable(table, labels, engine)


def _fold_part(
    work: Work[T], join: Callable[[T, T], T], starts: Sequence[int], part: Part, number: int
) -> list[T]:
    """Joined results for all blocks of a part; empty if it has no rows."""
    first_row, total = starts[number], list[T]()
    for block in part.blocks():
        result = work(block.X, block.y, first_row)
        total = [join(total[0], result)] if total else [result]
        first_row += len(block.y)
    return total


def _unchanged(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def _without_codes(
    work: Callable[[pl.DataFrame, int], T], frame: pl.DataFrame, codes: Codes, first_row: int
) -> T:
    return work(frame, first_row)


def _sample(
    frame: pl.DataFrame,
    codes: Codes,
    first_row: int,
    *,
    preparer: TablePreparer,
    most: int,
    counts: LabelCounts,
) -> dict[int, RowSample]:
    """Draw random samples of the rows of each kind, by its code."""
    parsed = preparer.parse(frame, first_row=first_row, quiet=True)
    totals = {NORMAL: counts.normal, ANOMALY: counts.anomaly, UNLABELLED: counts.unlabelled}
    samples = {}
    for kind, n_rows in totals.items():
        # Rows are taken by position: a polars filter of neighbours is a view that keeps all rows.
        rows = parsed[np.flatnonzero(codes == kind)]
        samples[kind] = RowSample.of(rows, first_row, most, n_rows)
    return samples


def _join_samples(
    first: dict[int, RowSample], second: dict[int, RowSample]
) -> dict[int, RowSample]:
    return {kind: sample.joined(second[kind]) for kind, sample in first.items()}
