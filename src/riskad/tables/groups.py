"""How unusual a row's cells are within its group, such as its customer.

A payment of 900 is normal in a table of payments, but odd for a customer who never spends more than
20. For each column of numbers the comparison adds how many standard deviations a value lies from
the values of its group (`group_numbers`), for each category how rare its level is there
(`group_shares`). Both blend the group with the table, more so if the group has few rows; rows of a
new group, or of none, are compared with the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, describe_column_difference
from riskad.storage.fields import COUNT, TEXT, Array, Fields, ListOf, Record, State, require
from riskad.tables.group_counts import MOST_GROUPS, GroupCounts, check_groups
from riskad.tables.group_names import as_texts, find_hashes
from riskad.tables.group_numbers import NumberByGroup
from riskad.tables.group_shares import ShareByGroup
from riskad.tables.words import say_count

__all__ = ["GroupComparison"]


@dataclass(frozen=True, eq=False)
class GroupComparison:
    """What a model stores about groups; their names and levels as hashes, and no row.

    Training rows are compared by `training_features`, which leaves the row itself out of its group;
    all other rows by `features`.

    Examples
    --------
    >>> rows = pl.DataFrame({"amount": [10.0, 11, 12, 10, 11, 50, 52, 51, 49, 50]})
    >>> customers = pl.Series("customer", ["Ann"] * 5 + ["Bob"] * 5)
    >>> comparison = GroupComparison.learn(rows, customers)
    >>> comparison.names()
    ['amount beside its customer']
    >>> new = pl.DataFrame({"amount": [50.0, 50.0, 50.0, None]})
    >>> of = pl.Series("customer", ["Ann", "Bob", "Cid", "Ann"])
    >>> comparison.features(new, of).round(1).T.tolist()
    [[28.2, -0.3, 0.7, nan]]
    """

    group: str
    """The name of the group column."""
    columns: list[str]
    """The compared columns, in their order."""
    groups: NDArray[np.uint64]
    """Hashes of the groups' names, in rising order."""
    numbers: list[NumberByGroup]
    shares: list[ShareByGroup]
    dropped: int = 0
    """Number of groups that are not stored, since there are too many."""

    _state_fields: ClassVar[Fields] = {
        "group": TEXT,
        "columns": ListOf(TEXT),
        "groups": Array("u", ("groups",)),
        "numbers": ListOf(Record(("NumberByGroup",))),
        "shares": ListOf(Record(("ShareByGroup",))),
        "dropped": COUNT,
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        """Refuse a stored state whose parts are inconsistent."""
        parts = [*state["numbers"], *state["shares"]]
        names = [part.name for part in parts]
        require(sorted(names) == sorted(set(state["columns"])), "columns: others are compared")
        require(len(names) == len(state["columns"]), "columns: a name twice")
        groups, n_groups = state["groups"], len(state["groups"])
        # Differences of unsigned numbers are never below 0.
        require(bool((groups[1:] > groups[:-1]).all()), "groups: expected hashes in rising order")
        require(n_groups <= MOST_GROUPS, "groups: too many")
        require(all(len(part.n) == n_groups for part in parts), "groups: another number of them")

    @classmethod
    def learn(cls, parsed: pl.DataFrame, groups: pl.Series) -> Self:
        """Learn the groups of a table in memory.

        Parameters
        ----------
        parsed
            Numbers and texts, null if a cell is blank; without the group column.
        groups
            The group of each row; null if it has none.
        """
        return cls.of(GroupCounts.of(parsed, groups))

    @classmethod
    def of(cls, counts: GroupCounts) -> Self:
        """Learn the groups of a table whose rows were counted, perhaps in parts."""
        if not counts.columns:
            raise InputError(
                f"there is nothing to compare within {counts.group!r}: the table has no column of "
                "numbers or categories besides it. Add one, or leave the group out."
            )
        hashes = counts.hashes
        groups = hashes.drop_nulls().unique().sort().to_numpy()
        if not len(groups):
            raise InputError(
                f"{counts.group!r} names no group: all its cells are blank. Name another column."
            )
        of = np.searchsorted(groups, hashes.fill_null(0).to_numpy())
        places = np.where(hashes.is_null().to_numpy(), -1, of)
        numbers, shares = [], []
        for name in counts.columns:
            column = counts.rows[name]
            if column.dtype.is_numeric():
                values = _floats(column)
                numbers.append(NumberByGroup.learn(name, values, places, len(groups)))
            else:
                texts = column.cast(pl.String)
                shares.append(ShareByGroup.learn(name, texts, places, len(groups)))
        return cls(counts.group, counts.columns, groups, numbers, shares, counts.dropped)

    def names(self) -> list[str]:
        """The name of each feature, in the order of the columns."""
        return [f"{name} beside its {self.group}" for name in self.columns]

    def features(self, parsed: pl.DataFrame, groups: pl.Series) -> NDArray[np.float64]:
        """How unusual each cell of new rows is within its group: (rows, columns).

        For numbers this is z, below 0 if the value is lower than the group's; for categories
        it is -log(share). NaN if the cell is blank.
        """
        return self._features(parsed, groups, without_itself=False)

    def training_features(self, parsed: pl.DataFrame, groups: pl.Series) -> NDArray[np.float64]:
        """The same for training rows, each compared with the others of its group."""
        return self._features(parsed, groups, without_itself=True)

    def _features(
        self, parsed: pl.DataFrame, groups: pl.Series, *, without_itself: bool
    ) -> NDArray[np.float64]:
        self._check(parsed, groups)
        places = find_hashes(as_texts(groups), self.groups)
        found = np.empty((parsed.height, len(self.columns)))
        at = {name: i for i, name in enumerate(self.columns)}
        for number in self.numbers:
            values = _floats(parsed[number.name])
            of_column = number.scores(values, places, without_itself=without_itself)
            found[:, at[number.name]] = of_column
        for share in self.shares:
            texts = parsed[share.name].cast(pl.String)
            found[:, at[share.name]] = share.scores(texts, places, without_itself=without_itself)
        return found

    def _check(self, parsed: pl.DataFrame, groups: pl.Series) -> None:
        missing = [name for name in self.columns if name not in parsed.columns]
        if missing:
            raise InputError(
                f"columns that are compared within {self.group!r} are not there:\n"
                + describe_column_difference(self.columns, parsed.columns)
            )
        check_groups(parsed.select(self.columns), groups)
        for number in self.numbers:
            if not parsed[number.name].dtype.is_numeric():
                raise InputError(
                    f"column {number.name!r} was learned as numbers, got "
                    f"{parsed[number.name].dtype}. Parse it as it was parsed for the fit."
                )

    def describe(self) -> str:
        """What is compared, in one sentence.

        >>> rows = pl.DataFrame({"amount": [1.0, 2.0, 3.0], "shop": ["a", "a", "b"]})
        >>> GroupComparison.learn(rows, pl.Series("customer", ["Ann", "Ann", "Bob"])).describe()
        'customer: 2 columns are compared within 2 groups'
        """
        rest = (
            f"; the {self.dropped:,} smallest are compared with the table" if self.dropped else ""
        )
        columns = say_count(len(self.columns), "column")
        verb = "is" if len(self.columns) == 1 else "are"
        groups = say_count(len(self.groups), "group")
        return f"{self.group}: {columns} {verb} compared within {groups}{rest}"


def _floats(column: pl.Series) -> NDArray[np.float64]:
    """Numbers, NaN for missing values and infinities."""
    values = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)
