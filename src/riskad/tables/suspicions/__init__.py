"""What looks wrong in a table, for a person to check before it is trusted.

Nothing is changed or left out: each suspicion names a column, what was seen, and in which rows.
Thresholds are set so that correct tables are seldom suspected.

===========  ===========================================================================
module       looks for
===========  ===========================================================================
`changes`    columns that change their meaning halfway
`clocks`     clocks that were set, and placeholder moments
`leaks`      columns that alone determine the labels
`repeats`    duplicate rows, and numbers that mean a blank
`units`      mixed units
===========  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from riskad.core.checks import InputError
from riskad.tables.suspicions.changes import find_changes
from riskad.tables.suspicions.clocks import find_clock_jumps
from riskad.tables.suspicions.finding import Suspicion
from riskad.tables.suspicions.leaks import find_leaks
from riskad.tables.suspicions.repeats import find_copies, find_stand_ins
from riskad.tables.suspicions.units import find_mixed_units

__all__ = ["Suspicion", "find_suspicions"]


def find_suspicions(
    parsed: pl.DataFrame,
    rows: pl.DataFrame,
    codes: Any,
    *,
    moments: Mapping[str, pl.Series] | None = None,
    first_row: int = 1,
) -> list[Suspicion]:
    """Look for what is wrong in a table.

    Parameters
    ----------
    parsed
        Columns of numbers and texts, null if a cell is blank, without labels.
    rows
        The same rows in all columns that are learned from, to find copies.
    codes
        The label of each row: +1 normal, -1 anomaly, 0 unlabelled; None if there are none.
    moments
        Dates and times by the names of their columns, as seconds since 1970-01-01.
    first_row
        The number of the first row.

    Returns
    -------
    What looks wrong, first for whole rows, then by column in their order.

    Examples
    --------
    >>> rows = pl.DataFrame({"age": [*map(float, range(20, 80)), *[-1.0] * 6]})
    >>> for suspicion in find_suspicions(rows, rows.with_row_index(), None):
    ...     print(suspicion)
    age: -1 in 6 rows, far from all other values: does it stand for a blank? (rows 61, 62, 63, \
64, 65)
    """
    n, moments = parsed.height, moments or {}
    labels = np.zeros(n, dtype=np.int8) if codes is None else np.asarray(codes)
    for what, size in (("rows", rows.height), ("codes", len(labels))):
        if size != n:
            raise InputError(f"{what} has {size:,} rows, and the parsed columns have {n:,}.")
    for name, seconds in moments.items():
        if len(seconds) != n:
            raise InputError(f"moments of {name!r}: {len(seconds):,} for {n:,} rows.")
    numbers = [column for column in parsed if column.dtype.is_numeric()]
    found = [*find_copies(rows, labels, first_row), *find_leaks(parsed, labels)]
    found += find_changes(parsed, labels, first_row)
    for column in numbers:
        for look in (find_mixed_units, find_stand_ins):
            suspicion = look(column, first_row)
            found += [suspicion] if suspicion else []
    for name, seconds in moments.items():
        found += find_clock_jumps(name, seconds, first_row)
    order = {name: place for place, name in enumerate([*parsed.columns, *moments])}
    return sorted(found, key=lambda each: -1 if each.column is None else order[each.column])
