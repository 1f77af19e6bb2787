"""Look at a table before a fit: the kind of each column, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.app.reasons import show_value
from riskad.app.score import NoRows, Progress, catch_notes, earlier_results, pick_features
from riskad.app.series import WindowTable
from riskad.app.spec import FitSpec
from riskad.core.checks import DataWarning, InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, Codes, LabelCounts
from riskad.tables.cells import BLANK, as_text, is_flat
from riskad.tables.data_checks import check_data
from riskad.tables.kinds.base import Column
from riskad.tables.labelled import FrameTable
from riskad.tables.preparation import TablePreparer
from riskad.tables.sketches import RowSample

_EXAMPLES = 3
_BINS = 24  # ten units wide each in the chart of a column
_LEVELS = 3
_FEWEST_TEXTS = 5  # of which it is worth a word that none comes twice
_MOST_ROWS = 100_000  # drawn at random from a table that comes in batches
_KINDS = {"normal": NORMAL, "anomaly": ANOMALY, "unlabelled": UNLABELLED}


@dataclass(frozen=True)
class KindValues:
    """The values of a column in rows of one kind: in words, and counted in bins or by level."""

    kind: str
    rows: int
    text: str
    counts: list[int]


@dataclass(frozen=True)
class ColumnLook:
    """The kind of a column, some of its cells as written, and what a fit makes of it."""

    name: str
    kind: str
    used: bool
    use: str
    examples: list[str]
    blank_share: float
    """Share of the rows that hold no value, also where somebody wrote "n/a"."""
    values: list[KindValues]
    remarks: list[str]


@dataclass(frozen=True)
class TableLook:
    """What `look_table` found."""

    source: str
    rows: int
    label: str | None
    labels: LabelCounts | None
    columns: list[ColumnLook]
    suspicious: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def look_table(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    spec: FitSpec | None = None,
    *,
    source: str = "table",
    progress: Progress = lambda _: None,
    **options: Any,
) -> TableLook:
    """Find for each column its kind, how it is written and what a fit would make of it.

    `table` is a frame, or frames that can be read several times, such as those of
    `riskad.tables.reading.read_batches`; of these a random sample of rows is shown. The
    specification is that of `riskad.fit_table`: labels, `id`, `drop`, `kinds`, `group`.

    Examples
    --------
    >>> import polars as pl
    >>> table = pl.DataFrame({"paid": ["1.234,50 €", "7,00 €", "19,90 €"], "card": ["a", "b", "a"]})
    >>> for column in look_table(table).columns:
    ...     print(column.name, column.kind, column.examples[0])
    paid number 1.234,50 €
    card category a
    """
    progress("Looking at the columns")
    spec = (spec or FitSpec()).updated(**options)
    with catch_notes() as notes:
        if spec.window is not None:
            frame = table if isinstance(table, pl.DataFrame) else pl.concat(table)
            series = WindowTable(FrameTable(frame, spec.labels), spec)
            notes += [DataWarning(series.describe_cut()), *series.notes]
        raw, n_rows = (table, table.height) if isinstance(table, pl.DataFrame) else _sample(table)
        if not raw.height:
            raise NoRows
        labelled = None if spec.label is None else FrameTable(raw, spec.labels)
        codes = None if labelled is None else labelled.codes
        names = [name for name in raw.columns if name != spec.label]
        features = pick_features(names, spec.label, spec, earlier_results(raw.columns))
        preparer = TablePreparer(kinds=spec.kinds, group=spec.group)
        if isinstance(table, pl.DataFrame):
            parsed = preparer.fit_parse(raw.select(features))
        else:
            preparer.fit_batches(_Selected(table, features))
            parsed = preparer.parse(raw)
        used = {column.name: column.kind for column in preparer.used()}
        columns = [
            _look_at(column, raw[column.name], parsed, codes)
            for column in preparer.columns_.values()
        ]
        suspicious = [str(finding) for finding in check_data(parsed, codes, used)]
    return TableLook(
        source=source,
        rows=n_rows,
        label=spec.label,
        labels=labelled.counts if labelled is not None and raw is table else None,
        columns=columns,
        suspicious=suspicious,
        warnings=[str(note) for note in notes],
    )


@dataclass(frozen=True)
class _Selected:
    """Some columns of consecutive frames, which can be read several times."""

    batches: Iterable[pl.DataFrame]
    columns: Sequence[str]

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return (batch.select(self.columns) for batch in self.batches)


def _sample(batches: Iterable[pl.DataFrame]) -> tuple[pl.DataFrame, int]:
    """Random rows, and the number of all rows."""
    sample, first_row = None, 1
    for batch in batches:
        part = RowSample.of(batch, first_row, _MOST_ROWS)
        sample = part if sample is None else sample.joined(part)
        first_row += batch.height
    if sample is None:
        raise InputError("The table has no rows; nothing to do.")
    return sample.rows, sample.n_rows


def _look_at(
    column: Column, raw: pl.Series, parsed: pl.DataFrame, codes: Codes | None
) -> ColumnLook:
    filled = raw.is_not_null()
    texts = pl.Series(dtype=pl.String)
    if is_flat(raw):
        texts = as_text(raw)
        read = parsed[column.name] if column.used else texts
        filled = texts.is_not_null() & read.is_not_null()
        texts = texts.filter(filled)
    return ColumnLook(
        name=column.name,
        kind=column.kind,
        used=column.used,
        use=column.describe(),
        examples=texts.unique(maintain_order=True).head(_EXAMPLES).to_list(),
        blank_share=float(np.mean(~filled.to_numpy())),
        values=_values_by_label(column, parsed[column.name], codes) if column.used else [],
        remarks=column.remarks,
    )


# --- values in words and counts ----------------------------------------------------------


def _values_by_label(column: Column, cells: pl.Series, codes: Codes | None) -> list[KindValues]:
    plain = column.plain(cells)
    kinds = {"rows": np.ones(len(plain), dtype=bool)}
    if codes is not None:
        kinds = {kind: np.asarray(codes == code) for kind, code in _KINDS.items()}
    bins = _bins(plain, has_order=column.extremes is not None)
    values = []
    for kind, rows in kinds.items():
        if rows.any():
            inside = plain[rows]
            words = _values_in_words(column, inside)
            values.append(KindValues(kind, int(rows.sum()), words, _count(inside, bins)))
    return values


def _values_in_words(column: Column, plain: NDArray[Any]) -> str:
    """The middle half of numbers, or the most frequent levels."""
    if column.extremes is None:
        texts = pl.Series([BLANK if text is None else str(text) for text in plain], dtype=pl.String)
        if len(texts) >= _FEWEST_TEXTS and texts.is_unique().all():
            return "no value twice"
        shares = texts.alias("level").value_counts(sort=True, normalize=True, name="share")
        first = shares.sort(["share", "level"], descending=[True, False]).head(_LEVELS)
        return ", ".join(f"{show_value(text)} {share:.0%}" for text, share in first.iter_rows())
    numbers = plain[~np.isnan(plain)]
    if not len(numbers):
        return BLANK
    if column.kind in ("flag", "identifier"):  # of an identifier it counts whether it is blank
        return f"{column.show(1.0)} {numbers.mean():.0%}"
    low, middle, high = (
        show_value(column.show(float(q)))
        for q in np.quantile(numbers, (0.25, 0.5, 0.75), method="nearest")
    )
    return low if low == high else f"{middle} (half of them {low} to {high})"


def _bins(plain: NDArray[Any], has_order: bool) -> list[Any] | NDArray[np.float64]:
    """The most frequent levels, the different numbers, or edges from the 1% to the 99% quantile."""
    if not has_order:
        levels = pl.Series("level", [None if v is None else str(v) for v in plain], dtype=pl.String)
        return levels.drop_nulls().value_counts(sort=True)["level"].head(_BINS).to_list()
    numbers = plain[~np.isnan(plain)]
    different = np.unique(numbers)
    if len(different) <= _BINS:
        return list(different)
    low, high = np.quantile(numbers, (0.01, 0.99))
    if not low < high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, _BINS + 1)


def _count(plain: NDArray[Any], bins: list[Any] | NDArray[np.float64]) -> list[int]:
    """Count values, or numbers between edges; the outermost bins count what lies beyond them."""
    if isinstance(bins, list):
        return [int((plain == value).sum()) for value in bins]
    numbers = np.clip(plain[~np.isnan(plain)], bins[0], bins[-1])
    counts: list[int] = np.histogram(numbers, bins)[0].tolist()
    return counts
