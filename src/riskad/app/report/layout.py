"""How the terminal is laid out: names on the left, lines and tables beside them, through Rich.

There are colours and a width on a terminal, and plain text where the output is piped. Values from
tables are printed as they are, never read as markup; control characters are shown, not sent.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Command", "print_facts", "print_line", "print_table", "print_title"]

_INDENT = 10
_WIDEST = 100  # longer lines are hard to read, however wide the terminal
_LONGEST_CELL = 40


class Command(str):
    """A line to be copied: never broken."""


def _clean(text: object) -> str:
    r"""Show control characters instead of sending them to the terminal.

    >>> print(_clean("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def print_line(console: Console, *parts: tuple[str, str]) -> None:
    """Print (text, style) pairs as one line, which only the terminal may break."""
    from rich.text import Text

    console.print(Text.assemble(*parts), soft_wrap=True)


def print_title(console: Console, text: str) -> None:
    """Print a heading and a blank line."""
    print_line(console, (_clean(text), "bold"))
    print_line(console)


def print_facts(console: Console, facts: Mapping[str, Iterable[str]]) -> None:
    """Print names and their lines in two columns; a name without lines is left out."""
    for name, lines in facts.items():
        heads = chain([name], repeat(""))
        for line in chain.from_iterable(_wrap(console, line) for line in lines):
            print_line(console, (f"{next(heads):<{_INDENT}}", "cyan"), (line, ""))


def _wrap(console: Console, line: str) -> list[str]:
    if isinstance(line, Command):
        return [_clean(line)]
    width = min(console.width, _WIDEST) - _INDENT
    wrapper = textwrap.TextWrapper(width, subsequent_indent="  ", break_on_hyphens=False)
    return [piece for part in line.splitlines() for piece in wrapper.wrap(_clean(part))]


def print_table(
    console: Console,
    name: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int],
) -> None:
    """Print a table beside its name, columns to the right except those counted in `left`."""
    from rich.cells import cell_len, set_cell_size

    cells = [[_shorten(_clean(cell)) for cell in row] for row in (head, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for i, row in enumerate(cells):
        padded = [
            set_cell_size(cell, width) if j in left else " " * (width - cell_len(cell)) + cell
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        beside = f"{'' if i else name:<{_INDENT}}"
        print_line(console, (beside + "  ".join(padded).rstrip(), "" if i else "cyan"))


def _shorten(cell: str) -> str:
    return cell if len(cell) <= _LONGEST_CELL else cell[: _LONGEST_CELL - 1] + "\u2026"
