"""What to tell a person of how dates, times and durations were read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.tables.formats.moment_patterns import directives
from riskad.tables.formats.moments import MomentFormat, way_of

if TYPE_CHECKING:
    from riskad.tables.formats.moment_looks import MomentLook

__all__ = ["remarks_on"]

_ORDER = {"dmy": "the day first", "mdy": "the month first", "ymd": "the year first"}


def remarks_on(look: MomentLook, written: MomentFormat) -> list[str]:
    """Sentences on what was decided although it could be otherwise."""
    found = [*_order(look), *_several(look, written), *_zone(look)]
    main = look.chosen[0][0]
    if written.kind == "time" and len(main.ways) > 1 and not look.moment_name:
        kind, pattern = main.ways[1]
        found.append(
            f"{main.first[1]} is read as a time of day; if it is a duration, "
            f"say kind '{kind}:{pattern}'."
        )
    if any("%y" in pattern for pattern in written.patterns):
        found.append("Years of two digits are read as 1969 to 2068.")
    return found


def _order(look: MomentLook) -> list[str]:
    order, why = look.order
    undecided = [pair for pair in look.chosen if order and len(pair[0].readings) > 1]
    if not undecided:
        return []
    writing, reading = undecided[0]
    others = " or ".join(f"'date:{way[1]}'" for way in writing.ways if way != reading.way)
    example = writing.first[1]
    if why == "cells":
        if not reading.unread:
            return []
        row, value = reading.unread
        return [
            f"Dates are read with {_ORDER[order]}, as most cells need it; {value!r} in row {row:,} "
            f"and {writing.n - reading.n - 1:,} more can only be read otherwise and count as bad."
        ]
    reason = "the rows are then in order" if why == "rows" else "no cell decides it"
    return [
        f"{example!r} could have the day or the month first; read with {_ORDER[order]} because "
        f"{reason}. Say kind 'date:{reading.way[1]}' to confirm, or {others} to change it."
    ]


def _several(look: MomentLook, written: MomentFormat) -> list[str]:
    main = look.chosen[0][0]
    found = []
    for writing, reading in look.chosen[1:]:
        row, example = writing.first
        where = f"from row {row:,} on" if row > main.last_row else f"in {reading.n:,} rows"
        found.append(
            f"Most {way_of(written.kind)}s are written like {main.first[1]!r}, {where} like "
            f"{example!r} (first in row {row:,}); both are read."
        )
    taken = {writing.ways for writing, _ in look.chosen}
    left = [writing for writing in look.writings if writing.ways not in taken]
    if left:
        row, example = left[0].first
        found.append(
            f"More than {len(taken)} ways of writing occur: {example!r} (row {row:,}) and "
            f"{sum(writing.n for writing in left) - 1:,} more cells count as bad."
        )
    return found


def _zone(look: MomentLook) -> list[str]:
    aware = [each for _, each in look.chosen if "z" in directives(each.way[1])]
    if not aware:
        return []
    found = []
    if look.zone != "UTC":
        found.append(f"All offsets are {look.zone}: the clock is taken as written.")
    elif len({offset for writing, _ in look.chosen for offset in writing.offsets}) > 1:
        found.append("Several offsets from UTC occur: all moments are by the clock of UTC.")
    if len(aware) < len(look.chosen):
        found.append("Cells without an offset are taken as written.")
    return found
