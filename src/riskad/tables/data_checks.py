"""What looks wrong in a table, for a person to check before it is trusted.

Nothing is changed or left out: each finding names a column, what was seen, and in which rows.
Thresholds are set so that correct tables are seldom reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from scipy.special import comb
from scipy.stats import kstwo

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.metrics.ranking import auc_value
from riskad.rows.equal_rows import number_copies
from riskad.tables.formats.moments import MomentFormat, to_seconds
from riskad.tables.notes import list_names, pluralize, show_number
from riskad.tables.shifts import UNIT_FACTORS, factor_between, finite_or_nan

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SHOWN = 5  # rows, and rows with contradictory labels
_SAMPLE = 50_000  # values that show quantiles and clusters well enough


@dataclass(frozen=True)
class Finding:
    """Something that looks wrong, and the first of the rows where it does, counted from 1."""

    column: str | None  # None if it is about whole rows
    words: str
    rows: tuple[int, ...] = ()

    @classmethod
    def at(cls, column: str | None, words: str, places: NDArray[np.intp]) -> Finding:
        """A finding in rows, counted from 0."""
        return cls(column, words, tuple(int(place) + 1 for place in places[:_SHOWN]))

    def __str__(self) -> str:
        start = "" if self.column is None else f"{self.column}: "
        noun = "row" if len(self.rows) == 1 else "rows"
        rows = f" ({noun} {', '.join(f'{row:,}' for row in self.rows)})" if self.rows else ""
        return f"{start}{self.words}{rows}"


def check_data(parsed: pl.DataFrame, codes: Any, kinds: Mapping[str, str]) -> list[Finding]:
    """Look for what is wrong in a table: in whole rows, then by column, dates last.

    The columns are typed, null if a cell is blank; `codes` are the labels, None if there are none;
    `kinds` are those of the columns that are learned from.
    """
    codes = np.zeros(parsed.height, dtype=np.int16) if codes is None else np.asarray(codes)
    rows = parsed.select(list(kinds))
    # Prose has nearly as many levels as rows, so that neither leaks nor changes can be read from
    # them.
    in_words = [name for name, kind in kinds.items() if kind in ("text", "list")]
    compared = rows.drop(in_words, cs.temporal()).cast({pl.Boolean: pl.Float64})
    moments = [name for name, kind in kinds.items() if kind in ("date", "datetime")]
    findings = [*find_copies(rows, codes)]
    if compared.width:
        findings += [*find_leaks(compared, codes), *find_changes(compared, codes)]
    for column in compared.select(cs.numeric()):
        findings += [*find_mixed_units(column), *find_placeholders(column)]
    for name in moments:
        findings += find_clock_jumps(to_seconds(rows[name]))
    # A stable sort: findings of one column stay in the order of the checks.
    order = [None, *compared.columns, *moments]
    return sorted(findings, key=lambda finding: order.index(finding.column))


# Cells with the number, and different other values: fewer show nothing of a distance.
_FEWEST, _FEWEST_OTHERS = 5, 10
_NINES = {float("9" * digits) for digits in range(2, 11)}
_PLACEHOLDERS = {-1.0, -9.0, *_NINES, *(-nines for nines in _NINES)}


def find_copies(rows: pl.DataFrame, codes: NDArray[Any]) -> Iterator[Finding]:
    """Look for copies of an earlier row, and for copies with contradictory labels."""
    copies = number_copies(rows, codes)
    if copies is None:
        return
    # The first row of each number is the original; all others are its copies.
    repeated = np.delete(np.arange(len(copies)), np.unique(copies, return_index=True)[1])
    n = len(repeated)
    words = f"{pluralize(n, 'row')} {'is a copy' if n == 1 else 'are copies'} of an earlier one"
    yield Finding.at(None, f"{words} in all columns that are learned from", repeated)
    both = np.intersect1d(*(copies[codes == kind] for kind in (NORMAL, ANOMALY)))
    words = "copies of one row are labelled both normal and anomaly: which label is right?"
    for copy in both[:_SHOWN]:
        yield Finding.at(None, words, np.flatnonzero((copies == copy) & (codes != UNLABELLED)))


def find_placeholders(column: pl.Series) -> Iterator[Finding]:
    """Look for a number that stands for a blank: a usual one that occurs often and lies apart."""
    values = finite_or_nan(column)
    filled = values[~np.isnan(values)]
    if len(filled) < 2 * _FEWEST:
        return
    for value in {float(filled.min()), float(filled.max())} & _PLACEHOLDERS:
        places, others = np.flatnonzero(values == value), np.unique(filled[filled != value])
        if len(places) < _FEWEST or len(others) < _FEWEST_OTHERS:
            continue
        low, high = others[0], others[-1]
        # A negative code shows among values that are never negative; nines need a gap, since
        # amounts end in them, too.
        if low >= 0 if value < 0 else value - high >= (high - low) / 2:
            words = (
                f"{show_number(value)} in {pluralize(len(places), 'row')}, far from all other "
                "values: does it stand for a blank?"
            )
            yield Finding.at(column.name, words, places)
            return


# --- leaks ----------------------------------------------------------------------------------------


def find_leaks(parsed: pl.DataFrame, codes: NDArray[np.int16]) -> Iterator[Finding]:
    """Look for a column that separates anomalies from normal rows nearly perfectly.

    Numbers are ranked, blanks below them all, and have an AUC on the labelled rows; so has whether
    a cell is blank; for texts, levels that only anomalies have are compared with all others. A
    column is reported if its AUC, in either direction, is at least 0.995, that of the next best
    column is below 0.95 (otherwise anomalies are simply easy to find), and noise would reach it in
    at most one table of a thousand: with m anomalies among n labelled rows about 2 / C(n, m).
    """
    labelled = codes != UNLABELLED
    anomalous = codes[labelled] == ANOMALY
    m, n = int(anomalous.sum()), len(anomalous)
    if min(m, n - m) < _FEWEST or parsed.width * 2 / comb(n, m) > 1e-3:
        return
    aucs = [(*_best_auc(column, anomalous), column.name) for column in parsed.filter(labelled)]
    (auc, how, name), *others = sorted(aucs, key=lambda each: each[0], reverse=True)
    if auc >= 0.995 and not (others and others[0][0] >= 0.95):
        words = (
            f"{how} it tells the {m:,} labelled anomalies from the {n - m:,} normal rows (AUC "
            f"{auc:.3f}): was it filled in after they were found? If so, leave it out."
        )
        yield Finding(name, words)


def _best_auc(column: pl.Series, anomalous: Flags) -> tuple[float, str]:
    """The AUC of a column, and what it comes from."""
    values: NDArray[Any]
    if column.dtype.is_numeric():
        # Blanks below all numbers keep every labelled row in the AUC.
        values, how = np.nan_to_num(finite_or_nan(column), nan=-np.inf), "alone"
    else:
        texts = column.cast(pl.String).alias("level")
        counts = pl.DataFrame([texts, pl.Series("anomalous", anomalous)]).drop_nulls("level")
        counts = counts.group_by("level").agg(pl.len().alias("rows"), pl.col("anomalous").sum())
        # Levels of a few rows would be pure by chance, and a column of names consists of them.
        alone = (pl.col("anomalous") == pl.col("rows")) & (pl.col("rows") >= _FEWEST)
        levels = counts.filter(alone).sort("rows", "level", descending=[True, False])["level"]
        values = texts.is_in(levels.implode()).fill_null(value=False).to_numpy()
        how = f"by what only anomalies have ({list_names([repr(level) for level in levels], 3)})"
    aucs = []
    for each, source in ((values, how), (column.is_null().to_numpy(), "by its blanks alone")):
        auc = auc_value(each[anomalous], each[~anomalous])
        aucs.append((max(auc, 1 - auc), source))
    return max(aucs, key=lambda each: each[0])


# --- changes --------------------------------------------------------------------------------------

_BLOCKS, _CLASSES = 64, 32
_DISTANCE, _WITHIN = 0.5, 0.25  # D that is reported; of it, what may lie within a side
_MOVED, _MANY = 0.15, 0.25  # other columns: how far, and how many of them
_LEAST_SIDE = 0.1  # of the rows: a few odd ones at an end are no change of meaning


def find_changes(parsed: pl.DataFrame, codes: NDArray[np.int16]) -> list[Finding]:
    """Look for columns that change their meaning in some row.

    Rows are used in their order, in up to 64 blocks, and values in 32 classes: numbers by their
    quantiles, texts by their most frequent levels, blanks as a separate class. For each border
    between blocks the distance of the shares F before it and G after it is

        D = max_j |F_j - G_j|  of cumulative shares (numbers),     sum_j |f_j - g_j| / 2  (texts).

    A change is reported if the largest D is at least 0.5 and far beyond chance, and if both sides
    are uniform: wherever the middle half of a side is split, its own D is at most a quarter of
    that, plus what chance adds; a column that trends with the rows differs within the sides, too.
    Ignored are columns of one value on each side, by which the rows are sorted, columns that change
    where the labels do, and those that change where more than a quarter of the others move, by a D
    of 0.15. If more than half of the columns change outright, this is reported once.
    """
    n, width = parsed.height, parsed.width
    if n < 200:
        return []
    # At least ten rows in a block, since shares of fewer jump by chance.
    borders = np.linspace(0, n, min(_BLOCKS, n // 10) + 1).astype(np.int64)
    # Counts of all columns at once: each change is compared with what the others do there.
    columns = {column.name: _ClassCounts(column, borders) for column in parsed}
    changes = {}
    for name, column in columns.items():
        border, before = column.find_change(by_chance=1e-4 / width)
        if border:
            # A column that changes where the labels do may be what a person labelled by.
            labels = np.eye(3)[codes.astype(np.int64) + 1]
            gaps = labels[:before].mean(axis=0) - labels[before:].mean(axis=0)
            if np.abs(gaps).sum() / 2 < _DISTANCE:
                changes[name] = border, before + 1
    if len(changes) > max(1, width / 2):
        # Columns of one join change at slightly different rows, as far as their values tell.
        row = int(np.median([row for _, row in changes.values()]))
        words = (
            f"{len(changes)} of {width} columns hold other values from about row {row:,} on "
            f"({list_names([*changes])}): are two tables joined, or the rows sorted?"
        )
        return [Finding(None, words, (row,))]
    findings = []
    for name, (border, row) in changes.items():
        others = [column for other, column in columns.items() if other != name]
        moving = [column.distances()[border - 1] >= _MOVED for column in others]
        if not moving or np.mean(moving) <= _MANY:
            words = f"its values are others from row {row:,} on: does it mean something else there?"
            findings.append(Finding(name, words, (row,)))
    return findings


class _ClassCounts:
    """Number of cells of each class in each block of rows."""

    def __init__(self, column: pl.Series, borders: Integers):
        self.column, self.borders = column, borders
        n, size = len(borders) - 1, _CLASSES + 2
        cells = np.repeat(np.arange(n) * size, np.diff(borders)) + _classes(column)
        self.counts = np.bincount(cells, minlength=n * size).reshape(n, size).astype(float)

    def distances(self, blocks: slice = slice(None)) -> Floats:
        """D of each border between these blocks."""
        before = self.counts[blocks].cumsum(axis=0)
        after = before[-1] - before
        before, after = before[:-1], after[:-1]
        gaps = before / before.sum(axis=1, keepdims=True) - after / after.sum(axis=1, keepdims=True)
        # Kolmogorov's distance of numbers sees a shift that moves each class a little.
        if self.column.dtype.is_numeric():
            return np.abs(gaps.cumsum(axis=1)).max(axis=1)
        return np.abs(gaps).sum(axis=1) / 2

    def find_change(self, by_chance: float) -> tuple[int, int]:
        """The border near which a column changes, from 1, and the number of rows before the change.

        Both are 0 if there is none, or the rows are sorted by the column.
        """
        n, inner = int(self.borders[-1]), self.borders[1:-1]
        distances = self.distances()
        sides = (inner >= _LEAST_SIDE * n) & (inner <= (1 - _LEAST_SIDE) * n)
        border = 1 + int(np.where(sides, distances, 0).argmax())
        distance = float(distances[border - 1])
        start, middle, stop = (int(row) for row in self.borders[border - 1 : border + 2])
        # The effective number of rows of Kolmogorov and Smirnov's test of two samples.
        size = max(1, middle * (n - middle) // n)
        # Times the number of borders, of which the largest distance was taken (Bonferroni).
        if distance < _DISTANCE or kstwo.sf(distance, size) * len(inner) > by_chance:
            return 0, 0
        for side in (slice(None, border), slice(border, None)):
            within = self.distances(side)
            # Near the ends one of the two parts has few rows, and its distance is large by chance.
            within = within[len(within) // 4 : -(len(within) // 4) or None]
            # By chance that of two halves of n rows exceeds 3.5 / sqrt(n) in one of 200 cases.
            most = _WITHIN * distance + 3.5 / np.sqrt(self.counts[side].sum())
            if len(within) and within.max() > most:
                return 0, 0
        # Each row near the border votes for the side where its class is more frequent, by the
        # logarithm of the ratio.
        classes = _classes(self.column)  # again: those of all columns would take memory
        before, after = (
            np.bincount(side, minlength=_CLASSES + 2) + 0.5
            for side in (classes[:middle], classes[middle:])
        )
        votes = np.log(before / before.sum()) - np.log(after / after.sum())
        rows = start + int(np.append(0.0, votes[classes[start:stop]].cumsum()).argmax())
        sorted_by = all(np.ptp(side) == 0 for side in (classes[:rows], classes[rows:]) if len(side))
        return (0, 0) if sorted_by else (border, rows)


def _classes(column: pl.Series) -> Integers:
    """The class of each cell, 0 if it is blank."""
    if column.dtype.is_numeric():
        values = finite_or_nan(column)
        filled = values[~np.isnan(values)]
        some = filled[:: len(filled) // _SAMPLE + 1]
        if not len(some):
            return np.zeros(len(values), dtype=np.int64)
        edges = np.unique(np.quantile(some, np.arange(1, _CLASSES) / _CLASSES))
        return np.where(np.isnan(values), 0, np.searchsorted(edges, values, side="right") + 1)
    texts = column.cast(pl.String)
    levels = texts.drop_nulls().value_counts(sort=True)[column.name].head(_CLASSES - 1)
    numbers = pl.Series(range(1, len(levels) + 1), dtype=pl.Int64)
    classes = texts.replace_strict(levels, numbers, default=_CLASSES, return_dtype=pl.Int64)
    return np.where(texts.is_null().to_numpy(), 0, classes.to_numpy())


# --- units ----------------------------------------------------------------------------------------

_FEWEST_VALUES = 20  # different ones, of each unit
_EMPTY = 0.15  # half the width of the empty stretch between them, in powers of ten


def find_mixed_units(column: pl.Series) -> Iterator[Finding]:
    """Look for two units in a column of numbers.

    The sizes |x| > 0 must form two clusters with hardly a value between them, each of at least 20
    different values, and the quartiles of one must be those of the other times the same factor
    between units. Codes have too few values for that.
    """
    # Sizes, since a factor keeps the sign, and 0 is the same in every unit.
    sizes = np.abs(finite_or_nan(column))
    logs = np.log10(sizes[sizes > 0])
    logs = np.sort(logs[:: len(logs) // _SAMPLE + 1])
    if len(logs) < 2 * _FEWEST_VALUES:
        return
    for factor, sign in product(UNIT_FACTORS, (1, -1)):
        if (split := _split(logs, sign * np.log10(factor))) is None:
            continue
        clusters = logs[logs < split], logs[logs > split]
        if min(len(np.unique(cluster)) for cluster in clusters) < _FEWEST_VALUES:
            continue
        # Three quartiles must agree with one factor: two kinds of thing seldom do.
        quartiles = [10 ** np.quantile(cluster, (0.25, 0.5, 0.75)) for cluster in clusters]
        if factor_between(*quartiles, near=0.1) != factor:
            continue
        high, low = sizes > 10**split, (sizes > 0) & (sizes < 10**split)
        large = high.sum() <= low.sum()
        fewer, rest = (high, low) if large else (low, high)
        places, n_rest = np.flatnonzero(fewer), int(rest.sum())
        times = f"{factor:,.0f} times" if large else f"a {factor:,.0f}th of"
        words = f"{len(places):,} rows have about {times} what the {n_rest:,} others have"
        words += ": are two units mixed?"
        # The most useful case for a person: a change of the unit at one row.
        if not rest[places[0] :].any():
            words += f" The first is row {places[0] + 1:,}, after which all do"
        yield Finding.at(column.name, words, places)
        return


def _split(logs: Floats, step: float) -> float | None:
    """Where clusters of sorted values separate, half a step from the middle of the larger one.

    None if it is not empty there.
    """
    larger, split = logs, 0.0
    for _ in range(3):  # the smaller cluster has moved the first middle
        split = float(larger[len(larger) // 2]) + step / 2
        at = int(np.searchsorted(logs, split))
        larger = logs[:at] if step > 0 else logs[at:]
        if not len(larger):
            return None
    small = len(logs) - len(larger)
    between = int(np.diff(np.searchsorted(logs, (split - _EMPTY, split + _EMPTY)))[0])
    # A cluster of less than one value in a hundred is a tail.
    least = max(_FEWEST_VALUES, 0.01 * len(logs))
    return split if least <= small <= len(logs) / 2 and between <= 0.02 * small else None


# --- clocks ---------------------------------------------------------------------------------------

_IN_ORDER = 0.98  # of the steps, if rows follow each other in time
_MINUTE, _HOUR, _DAY, _YEAR = 60.0, 3_600.0, 86_400.0, 365.25 * 86_400.0


def find_clock_jumps(moments: pl.Series) -> Iterator[Finding]:
    """Look for odd moments, in seconds since 1970-01-01.

    These are moments that are farther from all others than ten times the span of these, and at
    least a year; and if nearly all rows follow each other in time, a step back of at least a
    minute, and a leap of more than a day and 100 times as long as all but 1 % of the steps.
    """
    name, seconds = moments.name, finite_or_nan(moments)
    filled = ~np.isnan(seconds)
    if filled.sum() < 30:
        return
    # Quantiles: the moments that are looked for would stretch the span.
    low, high = np.quantile(seconds[filled], [0.05, 0.95], method="nearest")
    reach = max(10 * (high - low), _YEAR)
    is_far = filled & ((seconds < low - reach) | (seconds > high + reach))
    far, rows = np.flatnonzero(is_far), np.flatnonzero(filled & ~is_far)
    values = seconds[rows]
    if len(far):
        show = MomentFormat("date", "%Y-%m-%d").show
        moments_far, counts = np.unique(seconds[far], return_counts=True)
        first, last, odd = map(show, (values.min(), values.max(), moments_far[counts.argmax()]))
        others = f"far from all others, which are of {first} to {last}, as {odd}"
        words = f"{pluralize(len(far), 'row')} {others}: does it stand for a blank?"
        yield Finding.at(name, words, far)
    if len(rows) < 30:
        return
    steps = np.diff(values)
    if (steps <= 0).mean() >= _IN_ORDER and (steps < 0).any():  # the latest row first
        steps = -steps
    if (steps >= 0).mean() < _IN_ORDER or not (steps > 0).any():
        return
    in_order = "rows follow each other in time, but"
    back = np.flatnonzero(steps <= -_MINUTE)
    ahead = np.flatnonzero(steps > max(100 * float(np.quantile(steps, 0.99)), _DAY))
    if len(back):
        times, length = pluralize(len(back), "time"), _length(-steps[back[0]])
        words = f"{in_order} it goes back {times}, first by {length}: was the clock set?"
        yield Finding.at(name, words, rows[back + 1])
    if len(ahead):
        words = f"{in_order} one comes {_length(steps[ahead[0]])} after the row before it"
        yield Finding.at(name, words, rows[ahead + 1])


def _length(seconds: float) -> str:
    """A duration in the largest unit of which it has two."""
    for unit, size in (("day", _DAY), ("hour", _HOUR)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}s"
    return f"{seconds / _MINUTE:,.0f} minutes"
