r"""How unusual a row's cells are within its group, such as its customer.

A payment of 900 is normal in a table of payments, but odd for a customer who never spends more than
20. Each column of numbers or categories gets one feature that says so. Both kinds blend the group
with the table, more so if the group has few rows; rows of a new group, or of none, are compared
with the table alone.

Numbers: values of group g are modelled as draws from N(mu_g, sigma_g^2), where mu_g ~ N(m, tau^2)
and 1 / sigma_g^2 ~ chi^2_d / (d s^2) over the groups. m, tau^2, s^2 and d are found by moments from
the n_g values, mean m_g and variance s_g^2 of all groups. With k = s^2 / tau^2, the group then has

    mean      (n_g m_g + k m) / (n_g + k)
    variance  (d s^2 + (n_g - 1) s_g^2) / (d + n_g - 1)

and a new value x of it has the score z = (x - mean) / sqrt(variance + tau^2 k / (n_g + k)).

Categories: with c_gl the rows of group g that have level l, n_g its rows that have any, and p_l the
share of l in the table, the score is -log((c_gl + k p_l) / (n_g + k)). Shares of groups vary about
p as draws from a Dirichlet distribution of strength k do. Two rows of one group then agree with
probability A = (1 + k S) / (1 + k), where S = sum_l p_l^2 is that for two rows of the table. So
k = (1 - A) / (A - S).

A model stores 64-bit hashes of the names of groups and levels: they do not reveal names, though
anyone with a list of names can find out which of them occur.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import norm

from riskad.core.checks import InputError
from riskad.files import fields
from riskad.files.fields import Array, ListOf, Record, State, require
from riskad.tables.notes import pluralize
from riskad.tables.shifts import finite_or_nan

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

MOST_GROUPS = 100_000
MOST_CELLS = 8_000_000  # of the rows that are kept while a table is counted
MOST_LEVELS = 1_000  # of a column; the rarer ones count as one
_GROUP, _KEY = "\0group", "\0key"  # no column of a table has these names

# Standard deviations at which values are clipped before they are averaged: a smaller number loses
# more of clean values, a larger one follows extreme values more.
_REACH = 1.5
_ROUNDS = 4
_MOST_DEGREES = 1e4  # variances that differ by less than sampling does
_LEAST_SCALE = 1e-3  # of the table's: if groups hold one value each, a difference still has a size
_LARGEST = 1e100  # squares of larger numbers might overflow
_FARTHEST = 30.0  # beyond so many standard deviations all values count the same
# E min(Z^2, c^2) of a standard normal Z: clipping lowers the variance to this share.
_CLIPPED_VARIANCE = float(1 - 2 * _REACH * norm.pdf(_REACH) + 2 * (_REACH**2 - 1) * norm.sf(_REACH))
_LEAST_STRENGTH, _MOST_STRENGTH = 0.1, 1e6  # groups of one level each, and groups all alike


# --- rows of each group, in bounded memory --------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """Rows with the hash of their group, of a table or of parts of it that are joined.

    All groups together keep no more than 8 million cells: small groups every row, large ones those
    with the smallest of random keys, so that the rows kept from parts are a sample of the whole. Of
    more than 100,000 groups those with the most rows are kept.
    """

    group: str  # the name of the group column
    rows: pl.DataFrame
    dropped: int = 0  # number of groups

    @classmethod
    def of(cls, parsed: pl.DataFrame, groups: pl.Series, *, seed: int = 0) -> Self:
        """Count rows; each part needs another seed. Rows without a group are kept separately."""
        # Half the memory of float64; a tie among 2^24 keys does no harm.
        keys = np.random.default_rng(seed).random(parsed.height, dtype=np.float32)
        rows = parsed.with_columns(hash_texts(groups).alias(_GROUP), pl.Series(_KEY, keys))
        return cls(groups.name, rows)._thinned()

    def joined(self, other: Self) -> Self:
        """The counts of both."""
        rows = pl.concat([self.rows, other.rows], how="vertical_relaxed")
        return replace(self, rows=rows, dropped=self.dropped + other.dropped)._thinned()

    def _thinned(self) -> Self:
        rows = self.rows.sort([_GROUP, _KEY])
        # Of equally large groups, those with the larger hash, whatever the order of parts.
        sizes = rows[_GROUP].drop_nulls().value_counts(name="rows")
        largest = sizes.sort(["rows", _GROUP], descending=True).head(MOST_GROUPS)
        dropped = sizes.height - largest.height
        if dropped:
            rows = rows.filter(rows[_GROUP].is_in(largest[_GROUP].implode()).fill_null(value=True))
        most_rows = MOST_CELLS // rows.width
        if rows.height > most_rows:
            ordered = np.sort(largest["rows"].to_numpy())
            # Groups in the order of their size: how many rows all smaller ones have.
            before = np.concatenate([[0], np.cumsum(ordered)[:-1]])
            # Rows left for each group if all smaller ones keep every row.
            limits = (most_rows - before) // np.arange(len(ordered), 0, -1)
            limits = limits[limits < ordered]
            most_each = max(1, int(limits[0])) if len(limits) else most_rows
            # Rows are sorted by their random keys, so that the first of each group are a sample.
            rows = rows.filter(pl.int_range(pl.len()).over(_GROUP) < most_each)
        return replace(self, rows=rows, dropped=self.dropped + dropped)


def hash_texts(column: pl.Series) -> pl.Series:
    """64 bits of a hash of each text, the same in all versions and on all machines."""
    texts = column.cast(pl.String).alias("text")
    distinct = texts.drop_nulls().unique()
    digests = b"".join(blake2b(text.encode(), digest_size=8).digest() for text in distinct)
    hashes = pl.Series("hash", np.frombuffer(digests, ">u8").astype(np.uint64))
    by_text = pl.DataFrame([distinct, hashes])
    return texts.to_frame().join(by_text, on="text", how="left", maintain_order="left")["hash"]


def _positions(column: pl.Series, among: Hashes | Integers) -> Integers:
    """The position of each number among sorted ones; -1 if it is null or not among them."""
    if not len(among):
        return np.full(len(column), -1)
    numbers = column.fill_null(0).to_numpy()
    # A number beyond the last would be given the place after it, which is not there.
    at = np.minimum(np.searchsorted(among, numbers), len(among) - 1)
    return np.where((among[at] == numbers) & column.is_not_null().to_numpy(), at, -1)


# --- a column of numbers --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NumberByGroup:
    """A column of numbers: statistics of each group, and of all groups together.

    Here and in `ShareByGroup`, `groups` are positions; -1 for rows of no group that is stored, for
    which a 0 is added to the statistics. A training row is judged `without_itself`, by the other
    rows of its group: a new row of the group will not be among the rows that judge it.
    """

    name: str
    # Of values whose logarithms are compared; None: values as they are.
    floor: Annotated[float | None, fields.Maybe(fields.POSITIVE)]
    centre: float  # m
    between: Annotated[float, fields.Number(0)]  # tau^2
    within: Annotated[float, fields.POSITIVE]  # s^2
    degrees: Annotated[float, fields.POSITIVE]  # d
    n: Annotated[Integers, Array("i", ("groups",), low=0)]
    mean: Annotated[Floats, Array("f", ("groups",))]
    variance: Annotated[Floats, Array("f", ("groups",), low=0)]

    @classmethod
    def learn(cls, column: pl.Series, groups: Integers, n_groups: int) -> Self:
        """Learn the groups of a column; null if a cell is blank."""
        values = finite_or_nan(column)
        filled = ~np.isnan(values)
        floor = _log_floor(values[filled])
        filled &= groups >= 0
        x, of = _transform(values[filled], floor), groups[filled]
        n = np.bincount(of, minlength=n_groups)
        # Some of the rows are anomalies. So start at medians, and clip values around the last
        # estimate: a few extreme ones then hardly change mean and variance.
        mean = _medians(x, of, n_groups)
        # The median distance of a normal distribution from its middle is 0.67 standard deviations.
        scale = _medians(np.abs(x - mean[of]), of, n_groups) / norm.ppf(0.75)
        usual = float(np.median(scale[n > 1])) if (n > 1).any() else 0.0
        usual = usual or float(np.std(x)) or 1.0 if len(x) else 1.0
        scale = np.maximum(scale, _LEAST_SCALE * usual)
        # A group of two rows knows its spread badly: the usual one counts as five more rows.
        scale = np.exp((n * np.log(scale) + 5 * np.log(usual)) / (n + 5))
        for _ in range(_ROUNDS):
            clipped = np.clip(x, (mean - _REACH * scale)[of], (mean + _REACH * scale)[of])
            mean = np.bincount(of, clipped, n_groups) / np.maximum(n, 1)
            squares = np.bincount(of, (clipped - mean[of]) ** 2, n_groups)
            variance = squares / np.maximum(n - 1, 1) / _CLIPPED_VARIANCE
            moments = _moments(n, mean, variance)
            scale = np.sqrt(_blended(n, variance, *moments[2:]))
        return cls(column.name, floor, *moments, n, mean, variance)

    def scores(self, column: pl.Series, groups: Integers, *, without_itself: bool) -> Floats:
        """Z of each value; NaN if the cell is blank."""
        x = _transform(finite_or_nan(column), self.floor)
        least = _LEAST_SCALE**2 * (self.between + self.within)
        n, mean, variance = (np.append(s, 0.0)[groups] for s in (self.n, self.mean, self.variance))
        if without_itself:
            reach = _REACH * np.sqrt(_blended(n, variance, self.within, self.degrees, least))
            gap = np.clip(x - mean, -reach, reach)
            others = np.where(np.isnan(x), n, np.maximum(n - 1, 0))
            # The sum of squares as it was before the correction for clipping.
            squares = np.maximum(n - 1, 0) * variance * _CLIPPED_VARIANCE
            # Welford's formula backwards: what remains without a value `gap` from the mean.
            squares = np.maximum(squares - gap**2 * n / np.maximum(others, 1), 0)
            variance = squares / np.maximum(others - 1, 1) / _CLIPPED_VARIANCE
            n, mean = others, mean - gap / np.maximum(others, 1)
        # The share of a group's own mean, as in a model with random effects.
        trust = n * self.between / (n * self.between + self.within)
        spread = _blended(n, variance, self.within, self.degrees, least)
        # What is not known of the group's mean adds to the spread of its values.
        spread += self.between * (1 - trust)
        z = (x - trust * mean - (1 - trust) * self.centre) / np.sqrt(spread)
        return np.clip(z, -_FARTHEST, _FARTHEST)


def _log_floor(values: Floats) -> float | None:
    """The smallest value whose logarithm is taken, if logarithms spread more evenly (money)."""
    if not len(values) or values.min() <= 0:
        return None
    skews = []  # how much farther the upper tail reaches than the lower, from -1 to 1
    for x in (values, np.log(values)):
        low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
        skews.append((high + low - 2 * middle) / (high - low) if high > low else 0.0)
    # A new value of 0, or below the smallest, has no logarithm: half the smallest takes its place.
    is_skewed = skews[0] >= 0.1 and abs(skews[1]) < skews[0] / 2
    return float(values.min()) / 2 if is_skewed else None


def _transform(values: Floats, floor: float | None) -> Floats:
    if floor is None:
        return np.clip(values, -_LARGEST, _LARGEST)
    return np.log(np.maximum(values, floor))


def _blended(n: Any, variance: Floats, within: float, degrees: float, least: float = 0.0) -> Floats:
    """The variance of groups: a mean of theirs and that of all."""
    freedom = np.maximum(n - 1, 0)
    return np.maximum((degrees * within + freedom * variance) / (degrees + freedom), least)


def _medians(x: Floats, of: Integers, n_groups: int) -> Floats:
    """The median of each group, 0 if it has no values."""
    by_group = pl.DataFrame({"of": of, "x": x}).group_by("of").agg(pl.col("x").median())
    medians = np.zeros(n_groups)
    medians[by_group["of"].to_numpy()] = by_group["x"].to_numpy()
    return medians


def _moments(n_g: Integers, means: Floats, variances: Floats) -> tuple[float, float, float, float]:
    """Return m, tau^2, s^2 and d."""
    some = n_g > 0
    n, means, variances = n_g[some].astype(float), means[some], variances[some]
    if not len(n):
        return 0.0, 0.0, 1.0, _MOST_DEGREES
    middle = np.median(means)
    reach = 3 * np.median(np.abs(means - middle)) / norm.ppf(0.75)
    means = np.clip(means, middle - reach, middle + reach) if reach > 0 else means
    if n.max() < 2:  # no group tells what is within
        return float(means.mean()), 0.0, float(means.var()) or 1.0, _MOST_DEGREES
    within, degrees, pooled = _variances(n[n > 1] - 1, variances[n > 1])
    centre = float(np.average(means, weights=n))
    # One group tells nothing of how far groups lie apart.
    if len(n) < 2:
        return centre, 0.0, within, degrees
    # Means of groups vary by tau^2, and also by pooled / n_g.
    apart = float(n @ (means - centre) ** 2) - (len(n) - 1) * pooled
    # The estimate of the method of moments, which chance can make negative.
    between = max(0.0, apart / (n.sum() - n @ n / n.sum()))
    trust = n * between / (n * between + within)
    centre = float(np.average(means, weights=trust)) if between > 0 else centre
    return centre, between, within, degrees


def _variances(f: Floats, variances: Floats) -> tuple[float, float, float]:
    """Return s^2, d, and the average variance of groups with f = n_g - 1 degrees of freedom.

    log s_g^2 has mean log s^2 + (psi(f/2) - log(f/2)) - (psi(d/2) - log(d/2)) and variance
    psi'(f/2) + psi'(d/2) (Smyth, 2004). So d is found from the spread beyond psi'(f/2).
    """
    pooled = float(np.average(variances, weights=f))
    if pooled <= 0:
        # Every group holds one value each: any variance above 0 will do, the floor decides.
        return np.finfo(float).tiny, _MOST_DEGREES, 0.0
    # A group of equal values has no logarithm: the floor is a thousandth of the usual spread.
    logs = np.log(np.maximum(variances, _LEAST_SCALE**2 * pooled))
    sizes, at = np.unique(f, return_inverse=True)  # groups are many, and these functions slow
    logs += (np.log(sizes / 2) - digamma(sizes / 2))[at]
    middle = float(np.average(logs, weights=f))
    by_chance = polygamma(1, sizes / 2)[at]
    spread = float(np.average((logs - middle) ** 2 - by_chance, weights=f))
    degrees = least = 1e-2
    if spread <= polygamma(1, _MOST_DEGREES / 2):
        degrees = _MOST_DEGREES
    elif spread < polygamma(1, least / 2):
        degrees = float(brentq(lambda d: polygamma(1, d / 2) - spread, least, _MOST_DEGREES))
    return float(np.exp(middle + digamma(degrees / 2) - np.log(degrees / 2))), degrees, pooled


# --- a column of categories -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ShareByGroup:
    """A column of categories: how often groups and the table have each level."""

    name: str
    strength: Annotated[float, fields.POSITIVE]  # k
    # In rising order; one more position is for all other levels.
    levels: Annotated[Hashes, Array("u", ("levels",), rising=True, most=MOST_LEVELS)]
    # Rows of each level in the table, those of other levels last.
    counts: Annotated[Integers, Array("i", ("levels+1",), low=0)]
    n: Annotated[Integers, Array("i", ("groups",), low=0)]  # rows of each group that have a level
    # Each level of a group, as group * (levels + 1) + level.
    pairs: Annotated[Integers, Array("i", ("pairs",), low=0, rising=True)]
    rows: Annotated[Integers, Array("i", ("pairs",), low=1)]  # rows of the group that have it
    n_others: Annotated[int, fields.COUNT]  # different levels that count as one

    @classmethod
    def _check_state(cls, state: State) -> None:
        size, pairs, groups = len(state["levels"]) + 1, state["pairs"], len(state["n"])
        require(not len(pairs) or pairs[-1] < groups * size, "pairs: of no group")
        of_groups = np.bincount(pairs // size, state["rows"], groups)
        require(np.array_equal(of_groups, state["n"]), "rows: other numbers than those of groups")

    @classmethod
    def learn(cls, column: pl.Series, groups: Integers, n_groups: int) -> Self:
        """Learn the groups of a column; null if a cell is blank."""
        counts = column.cast(pl.String).drop_nulls().value_counts(sort=True, name="rows")
        levels = np.sort(hash_texts(counts.head(MOST_LEVELS)[column.name]).to_numpy())
        codes, size = _level_codes(column, levels), len(levels) + 1
        filled = (codes >= 0) & (groups >= 0)
        pairs, rows = np.unique(groups[filled] * size + codes[filled], return_counts=True)
        # Rows without a group count in the table, too.
        table = np.bincount(codes[codes >= 0], minlength=size)
        n = np.bincount(groups[filled], minlength=n_groups)

        # Two rows of a group have the same level with the probability `within`, two of the table
        # with `overall`: a Polya urn of strength k has just this ratio.
        def ordered_pairs(counts: Any) -> float:
            return float((counts * (counts - 1.0)).sum())

        strength = _MOST_STRENGTH
        if ordered_pairs(n):
            within = ordered_pairs(rows) / ordered_pairs(n)
            overall = ordered_pairs(table) / ordered_pairs(table.sum())
            strength = (1 - within) / (within - overall) if within > overall else strength
        strength = float(np.clip(strength, _LEAST_STRENGTH, _MOST_STRENGTH))
        n_others = counts.height - len(levels)
        return cls(column.name, strength, levels, table, n, pairs, rows, n_others)

    def scores(self, column: pl.Series, groups: Integers, *, without_itself: bool) -> Floats:
        """-log(share) of each level; NaN if the cell is blank."""
        codes, size = _level_codes(column, self.levels), len(self.levels) + 1
        itself = float(without_itself)
        # One more row for each level, and for a new one; levels that count as one share its rows.
        rows = np.maximum(self.counts[codes] - itself, 0)
        rows = np.where(codes == size - 1, rows / (self.n_others + 1), rows) + 1
        in_table = rows / (self.counts.sum() - itself + size + self.n_others)
        pairs = _positions(pl.Series(groups * size + codes), self.pairs)
        in_group = np.maximum(np.append(self.rows, 0)[pairs] - itself, 0)
        n = np.maximum(np.append(self.n, 0)[groups] - itself, 0)
        share = (in_group + self.strength * in_table) / (n + self.strength)
        return np.where(codes >= 0, -np.log(share), np.nan)


def _level_codes(column: pl.Series, levels: Hashes) -> Integers:
    """The position of each text among the levels, the last if it is none, -1 if it is blank."""
    codes = _positions(hash_texts(column), levels)
    return np.where(column.is_null().to_numpy(), -1, np.where(codes < 0, len(levels), codes))


# --- all columns ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """What a model stores about groups; their names and levels as hashes, and no row.

    >>> rows = pl.DataFrame({"amount": [10.0, 11, 12, 10, 11, 50, 52, 51, 49, 50]})
    >>> customers = pl.Series("customer", ["Ann"] * 5 + ["Bob"] * 5)
    >>> comparison = GroupComparison.of(GroupCounts.of(rows, customers))
    >>> comparison.names()
    ['amount beside its customer']
    >>> new = pl.DataFrame({"amount": [50.0, 50.0, 50.0, None]})
    >>> of = pl.Series("customer", ["Ann", "Bob", "Cid", "Ann"])
    >>> comparison.features(new, of).round(1).T.tolist()
    [[28.2, -0.3, 0.7, nan]]
    """

    group: str  # the name of the group column
    columns: Annotated[list[str], ListOf(fields.TEXT, different=True)]  # compared, in their order
    groups: Annotated[Hashes, Array("u", ("groups",), rising=True, nonempty=True, most=MOST_GROUPS)]
    numbers: Annotated[list[NumberByGroup], ListOf(Record(("NumberByGroup",), {"n": "groups"}))]
    shares: Annotated[list[ShareByGroup], ListOf(Record(("ShareByGroup",), {"n": "groups"}))]
    dropped: Annotated[int, fields.COUNT] = 0  # groups that are not stored, since there are many

    @classmethod
    def _check_state(cls, state: State) -> None:
        names = [part.name for part in (*state["numbers"], *state["shares"])]
        require(sorted(names) == sorted(state["columns"]), "columns: others are compared")

    @classmethod
    def of(cls, counts: GroupCounts) -> Self:
        """Learn the groups of a table whose rows were counted, perhaps in parts."""
        rows = counts.rows.drop(_GROUP, _KEY)
        if not rows.width:
            raise InputError(
                f"there is nothing to compare within {counts.group!r}: the table has no column of "
                "numbers or categories besides it. Add one, or leave the group out."
            )
        hashes = counts.rows[_GROUP]
        groups = hashes.drop_nulls().unique().sort().to_numpy()
        if not len(groups):
            raise InputError(
                f"{counts.group!r} names no group: all its cells are blank. Name another column."
            )
        of, n = _positions(hashes, groups), len(groups)
        numbers = [NumberByGroup.learn(each, of, n) for each in rows if each.dtype.is_numeric()]
        shares = [ShareByGroup.learn(each, of, n) for each in rows if not each.dtype.is_numeric()]
        return cls(counts.group, rows.columns, groups, numbers, shares, counts.dropped)

    def names(self) -> list[str]:
        """The name of each feature, in the order of the columns."""
        return [f"{name} beside its {self.group}" for name in self.columns]

    def features(
        self, parsed: pl.DataFrame, groups: pl.Series, *, training: bool = False
    ) -> Floats:
        """How unusual each cell is within its group: (rows, columns), NaN if the cell is blank.

        `training` rows are compared with the others of their group, all other rows with all of it.
        """
        of = _positions(hash_texts(groups), self.groups)
        both: list[NumberByGroup | ShareByGroup] = [*self.numbers, *self.shares]
        parts = {part.name: part for part in both}
        return np.column_stack(
            [parts[n].scores(parsed[n], of, without_itself=training) for n in self.columns]
        )

    def describe(self) -> str:
        """What is compared, in one sentence."""
        n, groups = len(self.columns), pluralize(len(self.groups), "group")
        compared = f"{pluralize(n, 'column')} {'is' if n == 1 else 'are'} compared within {groups}"
        rest = f"; the {self.dropped:,} smallest are compared with the table"
        return f"{self.group}: {compared}{rest if self.dropped else ''}"
