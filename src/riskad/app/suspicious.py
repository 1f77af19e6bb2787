"""What looks wrong in the rows of a table, in sentences."""

from __future__ import annotations

from typing import Any

import polars as pl

from riskad.tables.kinds.moments import MomentColumn
from riskad.tables.kinds.texts import TextColumn
from riskad.tables.preparation import TablePreparer
from riskad.tables.readers import to_seconds
from riskad.tables.suspicions import find_suspicions

__all__ = ["say_suspicions"]


def say_suspicions(preparer: TablePreparer, parsed: pl.DataFrame, codes: Any) -> list[str]:
    """List what looks wrong: copies, leaks, mixed units, clock jumps, changes halfway.

    Parameters
    ----------
    preparer
        A preparer fitted on the table.
    parsed
        Rows as parsed.
    codes
        Their labels; None if there are none.

    Returns
    -------
    list of str
        A sentence for each suspicion.
    """
    moments: dict[str, pl.Series] = {}
    compared: dict[str, pl.Series] = {}
    for column in preparer.used():
        values = parsed[column.name]
        if isinstance(column, MomentColumn):
            if column.kind in ("date", "datetime"):
                moments[column.name] = to_seconds(values)
        elif values.dtype == pl.Boolean:
            compared[column.name] = values.cast(pl.Float64)
        elif not isinstance(column, TextColumn):
            compared[column.name] = values
    frame = pl.DataFrame(compared) if compared else pl.DataFrame({"": [0.0] * parsed.height})
    rows = parsed.select([column.name for column in preparer.used()])
    return [str(each) for each in find_suspicions(frame, rows, codes, moments=moments)]
