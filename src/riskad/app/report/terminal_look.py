"""What `riskad look` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.app.look import ColumnLook, TableLook
from riskad.app.report.layout import Command, print_facts, print_table, print_title

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_look"]

_MOST_DIFFERENCES = 12


def print_look(console: Console, look: TableLook, fit: str, page: str | None) -> None:
    """Print each column in a line, how its values differ by label, and what looks wrong.

    `fit` is the command to come next, `page` the path of the page if one was written.
    """
    width = f"{len(look.columns):,} column{'s' * (len(look.columns) != 1)}"
    print_title(console, f"{look.source}: {look.rows:,} rows, {width}")
    if look.label is not None and look.labels is not None:
        print_facts(console, {"Labels": [f"{look.labels} (column {look.label!r})"]})
    head = ("column", "kind", "blank", "for example", "what becomes of it")
    print_table(console, "Columns", head, [_line(c) for c in look.columns], range(5))
    by_label = [
        f"{column.name}: " + "; ".join(f"{v.kind} {v.said}" for v in column.values)
        for column in look.columns
        if len(column.values) > 1
    ]
    more = len(by_label) - _MOST_DIFFERENCES
    if more > 0:
        by_label = [*by_label[:_MOST_DIFFERENCES], f"and {more} more: see the page (--page)"]
    print_facts(
        console,
        {
            "By label": by_label,
            "Remarks": [f"{c.name}: {remark}" for c in look.columns for remark in c.remarks],
            "Look at": look.suspicious,
            "Notes": look.warnings,
            "Written": [f"{page} (page)"] if page is not None else [],
            "Next": [Command(fit)],
        },
    )


def _line(column: ColumnLook) -> tuple[str, ...]:
    blank = f"{column.blank_share:.0%}" if column.blank_share else ""
    examples = ", ".join(column.examples)
    return column.name, column.kind, blank, examples, column.made_of_it
