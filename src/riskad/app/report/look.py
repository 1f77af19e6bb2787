"""The sections of a look at a table, on its page and on the terminal."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from riskad.app.report.blocks import (
    PAGE,
    TERMINAL,
    Block,
    Card,
    Cards,
    Figure,
    Lines,
    Note,
    Section,
    Table,
    Tiles,
)
from riskad.app.report.charts import values_chart
from riskad.app.report.sections import label_tile
from riskad.app.report.wording import label_line, percent

if TYPE_CHECKING:
    from riskad.app.look import ColumnLook, TableLook

_MOST_DIFFERENCES = 12  # columns whose values are compared on a terminal


def in_short(look: TableLook) -> list[Block]:
    """Numbers of rows, columns and labels."""
    used = sum(column.used for column in look.columns)
    tiles = [
        ("Rows", f"{look.rows:,}", ""),
        ("Columns", f"{len(look.columns):,}", f"{used:,} used"),
    ]
    if look.labels is None:
        return [Tiles(tiles)]
    line = label_line(look.labels, look.label)
    return [Tiles([*tiles, label_tile(look.labels)]), Lines([line], on=TERMINAL)]


def suspicions(look: TableLook) -> list[Block]:
    """What looks wrong."""
    return [
        Lines([*look.suspicious, *look.warnings], on=PAGE),
        Lines(look.suspicious, on=TERMINAL),
        Lines(look.warnings, on=TERMINAL, name="Notes"),
    ]


def columns(look: TableLook) -> list[Block]:
    """Each column: its kind, what becomes of it, and its values by kind of row."""
    about = (
        "Bars count rows by value, or by the most frequent levels; their heights grow with the "
        "square root, and the highest of each kind of row has the same height."
    )
    by_label = [
        f"{column.name}: " + "; ".join(f"{values.kind} {values.text}" for values in column.values)
        for column in look.columns
        if len(column.values) > 1
    ]
    more = len(by_label) - _MOST_DIFFERENCES
    if more > 0:
        by_label = [*by_label[:_MOST_DIFFERENCES], f"and {more} more: see the page (--page)"]
    remarks = [f"{column.name}: {each}" for column in look.columns for each in column.remarks]
    head = ["column", "kind", "blank", "for example", "what becomes of it"]
    rows = [
        [
            column.name,
            column.kind,
            f"{column.blank_share:.0%}" if column.blank_share else "",
            ", ".join(column.examples),
            column.use,
        ]
        for column in look.columns
    ]
    return [
        Cards([_column_card(column) for column in look.columns]),
        Note(about),
        Table(head, rows, on=TERMINAL),
        Lines(by_label, on=TERMINAL, name="By label"),
        Lines(remarks, on=TERMINAL, name="Remarks"),
    ]


def _column_card(column: ColumnLook) -> Card:
    blank = f"; blank in {percent(column.blank_share)}" if column.blank_share else ""
    blocks: list[Block] = [Note(column.use + blank)]
    if column.examples:
        blocks.append(Note(f"For example {', '.join(column.examples)}"))
    if any(any(values.counts) for values in column.values):
        legend = [(values.kind, f"{values.kind}: {values.text}") for values in column.values]
        blocks.append(Figure(partial(values_chart, column), legend=legend))
    blocks.append(Lines(column.remarks))
    return Card(column.name, column.kind, "" if column.used else "unused", blocks)


LOOK_SECTIONS = [
    Section("In short", "Labels", in_short, style="headline"),
    Section("What looks wrong", "Look at", suspicions, style="warnings"),
    Section("Columns", "Columns", columns),
]
