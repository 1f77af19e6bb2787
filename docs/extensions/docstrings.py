"""Docstrings as they are written here: plain text with code in single backticks.

Outside of backticks `*`, `|` and a final `_` are ordinary characters, and an indented line before
the first section is a formula, to be shown as it stands.
"""

from __future__ import annotations

import re
from textwrap import dedent

from sphinx.application import Sphinx

CODE = re.compile(r"(``.+?``|`[^`]+`)")
SPECIAL = re.compile(r"([*|])|(?<=\w)(_)(?=\W|$)")


def escape(line: str) -> str:
    """Escape what reStructuredText would take for markup, but in code."""
    if line.lstrip().startswith((">>>", "...", ".. ")):
        return line
    parts = CODE.split(line)
    parts[::2] = [SPECIAL.sub(lambda found: "\\" + found[0], part) for part in parts[::2]]
    return "".join(parts)


def joined(lines: list[str]) -> list[str]:
    """Join lines that end in a backslash; the line after one is not indented."""
    text = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    first, _, rest = text.partition("\n")
    return [first, *dedent(rest).splitlines()]


def _first_section(lines: list[str]) -> int:
    """The place of the first heading, which is underlined."""
    rules = (place for place, line in enumerate(lines) if re.fullmatch(r"-{3,}", line.strip()))
    return next(rules, len(lines) + 1) - 1


def mark_formulas(lines: list[str]) -> list[str]:
    """Make literal blocks of indented lines."""
    marked: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ") and not line.lstrip().startswith(">>>")
        if indented and not inside and (not marked or not marked[-1].strip()):
            marked += ["::", ""]
            inside = True
        elif line.strip() and not indented:
            if inside and marked[-1].strip():
                marked.append("")
            inside = False
        marked.append(line if inside else escape(line))
    return marked


def process(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Change a docstring in place, before numpydoc reads it."""
    lines[:] = joined(lines)
    first = _first_section(lines)
    lines[:] = [*mark_formulas(lines[:first]), *map(escape, lines[first:])]


def skip(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """Leave out what scikit-learn adds for the routing of metadata."""
    return True if re.fullmatch(r"set_\w+_request", name) else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before numpydoc, whose priority is 500."""
    app.connect("autodoc-process-docstring", process, priority=400)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}
