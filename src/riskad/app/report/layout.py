"""How the terminal is laid out: names on the left, lines and tables beside them, through Rich.

There are colours and a width on a terminal, and plain text where the output is piped. Values from
tables are printed as they are, never read as markup; control characters are shown, not sent.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from riskad.core.checks import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Command",
    "fact_blocks",
    "print_blocks",
    "print_facts",
    "print_line",
    "print_table",
    "print_title",
    "table_block",
]

_INDENT = 10
_WIDEST = 100  # longer lines are hard to read, however wide the terminal
_LONGEST_CELL = 40


class Command(str):
    """A line to be copied: never broken."""


def _clean(text: object) -> str:
    r"""Make a text printable, in one line.

    >>> print(_clean("a\nb"))
    a\nb
    """
    return printable(text).replace("\n", "\\n")


def print_line(console: Console, *parts: tuple[str, str]) -> None:
    """Print (text, style) pairs as one line, which only the terminal may break."""
    console.print(Text.assemble(*parts), soft_wrap=True)


def print_title(console: Console, text: str) -> None:
    """Print a heading and a blank line."""
    print_line(console, (_clean(text), "bold"))
    print_line(console)


def print_blocks(
    console: Console, blocks: Iterable[Sequence[Text]], most: int | None = None
) -> None:
    """Print blocks of lines; if they have more than `most` lines, the longest ones are cut."""
    blocks = list(blocks)
    longest = max(map(len, blocks), default=0)
    while most is not None and sum(min(len(block), longest) for block in blocks) > most:
        longest -= 1
    for block in blocks:
        cut = len(block) > longest
        for line in block[: longest - cut]:
            console.print(line, soft_wrap=True)
        if cut:
            more = f"... {len(block) - longest + 1:,} more lines (--verbose)"
            print_line(console, (" " * _INDENT + more, "dim"))


def print_facts(console: Console, facts: Mapping[str, Iterable[str]]) -> None:
    """Print names and their lines in two columns; a name without lines is left out."""
    print_blocks(console, fact_blocks(console, facts))


def fact_blocks(console: Console, facts: Mapping[str, Iterable[str]]) -> list[list[Text]]:
    """Return the lines that `print_facts` prints, in a block for each name."""
    blocks = []
    for name, lines in facts.items():
        block: list[Text] = []
        for piece in chain.from_iterable(map(_wrap, repeat(console), lines)):
            head = f"{'' if block else name:<{_INDENT}}"
            block.append(Text.assemble((head, "cyan"), piece))
        blocks.append(block)
    return blocks


def _wrap(console: Console, line: str) -> list[str]:
    if isinstance(line, Command):
        return [_clean(line)]
    width = min(console.width, _WIDEST) - _INDENT
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)
    return list(chain.from_iterable(map(wrapper.wrap, map(_clean, line.splitlines()))))


def print_table(
    console: Console,
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int],
) -> None:
    """Print a table beside its name, columns to the right except those counted in `left`."""
    print_blocks(console, [table_block(name, head, rows, left)])


def table_block(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[int]
) -> list[Text]:
    """Return the lines that `print_table` prints."""
    cells = [list(map(_shorten, map(_clean, row))) for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    lines = []
    for i, row in enumerate(cells):
        padded = [
            set_cell_size(cell, width) if j in left else " " * (width - cell_len(cell)) + cell
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        beside = f"{'' if i else name:<{_INDENT}}"
        lines.append(Text(beside + "  ".join(padded).rstrip(), "" if i else "cyan"))
    return lines


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else cell[: _LONGEST_CELL - 1] + "\u2026"
