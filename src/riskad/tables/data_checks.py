"""What looks wrong in a table, for a person to check before it is trusted.

Nothing is changed or left out: each finding names a column, what was seen, and in which rows.
Thresholds are set so that correct tables are seldom reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from numpy.typing import NDArray
from scipy.special import comb

from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.metrics.ranking import auc_value
from riskad.rows.equal_rows import number_copies
from riskad.tables.formats.moments import MomentFormat, to_seconds
from riskad.tables.notes import list_names, pluralize, show_number
from riskad.tables.shifts import UNIT_FACTORS, factor_between, finite_or_nan

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
    # Prose has nearly as many levels as rows, so that no leak can be read from them.
    in_words = [name for name, kind in kinds.items() if kind in ("text", "list")]
    compared = rows.drop(in_words, cs.temporal()).cast({pl.Boolean: pl.Float64})
    moments = [name for name, kind in kinds.items() if kind in ("date", "datetime")]
    findings = [*find_copies(rows, codes)]
    if compared.width:
        findings += find_leaks(compared, codes)
    for column in compared.select(cs.numeric()):
        findings += [*find_mixed_units(column), *find_placeholders(column)]
    for name in moments:
        findings += find_far_moments(to_seconds(rows[name]))
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


# --- moments --------------------------------------------------------------------------------------

_YEAR = 365.25 * 86_400.0


def find_far_moments(moments: pl.Series) -> Iterator[Finding]:
    """Look for moments, in seconds since 1970-01-01, that stand for a blank.

    They are farther from all others than ten times the span of these, and at least a year.
    """
    seconds = finite_or_nan(moments)
    filled = seconds[~np.isnan(seconds)]
    if len(filled) < 30:
        return
    # Quantiles: the moments that are looked for would stretch the span.
    low, high = np.quantile(filled, [0.05, 0.95], method="nearest")
    reach = max(10 * (high - low), _YEAR)
    is_far = (seconds < low - reach) | (seconds > high + reach)
    if is_far.any():
        values, counts = np.unique(seconds[is_far], return_counts=True)
        others = seconds[~is_far & ~np.isnan(seconds)]
        show = MomentFormat("date", "%Y-%m-%d").show
        first, last, odd = map(show, (others.min(), others.max(), values[counts.argmax()]))
        rows = f"{pluralize(int(is_far.sum()), 'row')} far from all others"
        words = f"{rows}, which are of {first} to {last}, as {odd}: does it stand for a blank?"
        yield Finding.at(moments.name, words, np.flatnonzero(is_far))
