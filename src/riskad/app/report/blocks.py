"""What reports are made of: sections, and the blocks of text, tables and charts in them.

A section turns a record into blocks, and each medium draws those that are for it: a page all kinds
of block, a terminal and a model card lines and tables. A "brief" terminal has little room; on a
"verbose" one everything was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from riskad.app.report.charts import Chart

TERMINAL = ("brief", "verbose")
AT_LENGTH = ("page", "verbose", "card")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A part of a section; `name` stands beside it on a terminal, by default the section's."""

    on: tuple[str, ...] = ("page", "brief", "verbose", "card")
    name: str = ""


@dataclass(frozen=True)
class Lines(Block):
    """Phrases without a full stop: as bullets, or as the sentences of a text."""

    lines: Sequence[str]
    is_text: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Table(Block):
    """Rows of text below a head; `right` are columns that are aligned to the right.

    At the end of each row there may be a bar, a share of the full length.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = field(default=(), kw_only=True)
    bars: Sequence[float] = field(default=(), kw_only=True)
    title: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Group(Block):
    """Blocks that a page shows beside each other, or folds away below a summary."""

    blocks: Sequence[Block]
    summary: str = ""


# --- on pages alone -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PageBlock(Block):
    """A block that only a page can draw."""

    on: tuple[str, ...] = ("page",)


@dataclass(frozen=True)
class Note(PageBlock):
    """A whole paragraph that explains what is around it."""

    text: str


@dataclass(frozen=True)
class Figure(PageBlock):
    """A chart, made when it is drawn, with a caption and a legend of kinds of row and words."""

    chart: Callable[[], Chart]
    caption: str = ""
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Pictures(PageBlock):
    """Pictures beside each other, as data URIs with what they show."""

    pictures: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Tiles(PageBlock):
    """Numbers at a glance: a name, the number, and a line below it."""

    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Card:
    """A row or a column of a table: its name, a badge and its style, and blocks."""

    title: str
    badge: str
    style: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Cards(PageBlock):
    """Cards beside each other, made when they are drawn."""

    cards: Callable[[], Sequence[Card]]


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    title
        Its heading on a page; no two sections share one.
    name
        What stands beside it on a terminal, in at most nine letters.
    blocks
        A function from the record to blocks; a section without blocks is not shown.
    style
        Class of the HTML element.
    """

    title: str
    name: str
    blocks: Callable[[Any], Sequence[Block]]
    style: str = ""


def blocks_on(medium: str, blocks: Iterable[Block]) -> list[Block]:
    """Return what a medium shows: what is beside or folded on a page is in line elsewhere."""
    shown: list[Block] = []
    for block in blocks:
        if medium not in block.on or (isinstance(block, Lines) and not block.lines):
            continue
        if not isinstance(block, Group):
            shown.append(block)
        elif inner := blocks_on(medium, block.blocks):
            if medium == "page":
                inner = [replace(block, blocks=inner)]
            elif block.summary and isinstance(inner[0], Table):
                inner[0] = replace(inner[0], title=block.summary)
            shown += inner
    return shown
