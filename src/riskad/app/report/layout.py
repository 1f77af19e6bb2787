"""How the terminal is laid out: names on the left, lines and tables beside them, through Rich.

There are colours and a width on a terminal, and plain text where the output is piped. Values from
tables are printed as they are, never read as markup; control characters are shown, not sent.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from riskad.app.report.blocks import Block, Lines, Section, Table
from riskad.core.checks import printable

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 10
_WIDEST = 100  # longer lines are hard to read, however wide the terminal
_LONGEST_CELL = 40


class Command(str):
    """A line to be copied: never broken."""


def walk(sections: Sequence[Section], record: Any, medium: str) -> list[Block]:
    """Return the blocks of sections, the last section first; each names its first block."""
    walked: list[Block] = []
    for section in reversed(sections):
        for i, block in enumerate(section.on(medium, record)):
            walked.append(replace(block, name=block.name or ("" if i else section.name)))
    return walked


def print_title(console: Console, text: str) -> None:
    """Print a heading and a blank line."""
    console.print(Text(_clean(text), "bold"), soft_wrap=True)
    console.print()


def print_facts(console: Console, facts: Mapping[str, Iterable[str]]) -> None:
    """Print names and their lines in two columns; a name without lines is left out."""
    print_blocks(console, [Lines(list(lines), name=name) for name, lines in facts.items()])


def print_blocks(console: Console, blocks: Iterable[Block], most: int | None = None) -> None:
    """Print lines and tables; if there are more than `most` lines, only some of each block."""
    pairs = [(block, lines) for block in blocks if (lines := _draw(block, console.width))]
    drawn = [lines for _, lines in pairs]
    heads = [isinstance(block, Table) for block, _ in pairs]  # which say nothing without a row
    shown = [len(lines) for lines in drawn]
    if most is not None:
        # The end is nearest to the prompt and matters most: what stands above it is cut first.
        half, every = len(drawn) // 2, len(drawn)
        steps = ((4, half), (6, every), (3, half), (2, half), (4, every), (2, every), (1, every))
        for fewest, end in steps:
            for i, n in enumerate(shown[:end]):
                shown[i] = min(n, max(fewest + heads[i], n - max(sum(shown) - most, 0)))
    for lines, n in zip(drawn, shown, strict=True):
        cut = n < len(lines)
        for line in lines[: n - cut]:
            console.print(line, soft_wrap=True)
        if cut:
            more = f"... {len(lines) - n + 1:,} more lines (--verbose)"
            console.print(Text(" " * _INDENT + more, "dim"), soft_wrap=True)


def _draw(block: Block, width: int) -> list[Text]:
    """The lines of a block, its name beside the first."""
    if isinstance(block, Table):
        pieces, style = _table(block), "cyan"
    else:
        assert isinstance(block, Lines)
        pieces, style = [piece for line in block.lines for piece in _wrap(line, width)], ""
    if not pieces:
        return []
    head = Text.assemble((f"{block.name:<{_INDENT}}", "cyan"), (pieces[0], style))
    return [head, *(Text(" " * _INDENT + piece) for piece in pieces[1:])]


def _wrap(line: str, width: int) -> list[str]:
    if isinstance(line, Command):
        return [_clean(line)]
    room = min(width, _WIDEST) - _INDENT
    wrapper = textwrap.TextWrapper(room, subsequent_indent="  ", break_on_hyphens=False)
    return [piece for part in line.splitlines() for piece in wrapper.wrap(_clean(part))]


def _table(block: Table) -> list[str]:
    cells = [[_shorten(_clean(cell)) for cell in row] for row in (block.head, *block.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{block.title}:"] if block.title else []
    for row in cells:
        padded = [
            " " * (size - cell_len(cell)) + cell if i in block.right else set_cell_size(cell, size)
            for i, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else cell[: _LONGEST_CELL - 1] + "\u2026"


def _clean(text: object) -> str:
    """A printable text, in one line."""
    return printable(text).replace("\n", "\\n")
