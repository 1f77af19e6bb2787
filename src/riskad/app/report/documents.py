"""Reports as documents: a page of HTML, a model card in Markdown, JSON and its schema.

A page is one file that needs nothing else, neither scripts nor a network. Jinja writes it by the
macros of `templates/blocks.html`. Autoescape is on, so whatever comes from the data is escaped
where it is printed; control characters, which a page cannot hold, are spelled out there, too. A
name that a template misspells is an error (`StrictUndefined`), never a blank. A content security
policy forbids the browser to run or fetch anything.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from riskad.app.fit_report import FitReport
from riskad.app.report.blocks import Lines, Section, Table, blocks_on
from riskad.app.report.sections import LOOK_SECTIONS, SECTIONS
from riskad.app.report.wording import minute, sentence
from riskad.core.checks import InputError, shorten, with_article
from riskad.files.atomic import atomic_path
from riskad.files.records import json_schema

if TYPE_CHECKING:
    from jinja2 import Environment

    from riskad.app.look import TableLook

SCHEMA = "riskad-report-1"
"""The version that reports name; `report_schema` describes it."""

_MOST_ROWS = 30  # of a table on a card
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!$&])")


def check_report_name(path: str | os.PathLike[str]) -> Path:
    """Return the path of a report, if it ends in .html, .htm or .json."""
    if Path(path).suffix.lower() in (".html", ".htm", ".json"):
        return Path(path)
    raise InputError(
        f"The name of a report, {str(path)!r}, must end in .html (a page) or .json (for machines)."
    )


def write_report(report: FitReport, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a page, or JSON if `path` ends in .json, atomically."""
    is_json = check_report_name(path).suffix.lower() == ".json"
    write_text(to_json(report) + "\n" if is_json else render_page(report), path, force)


def write_text(text: str, path: str | os.PathLike[str], force: bool = False) -> None:
    """Write a document atomically; an existing file needs `force`."""
    with atomic_path(path, force) as part:
        part.write_text(text, encoding="utf-8")


# --- JSON ---------------------------------------------------------------------------------


def to_json(report: Any, **more: Any) -> str:
    """Write a record as one JSON object, after other fields; a `FitReport` names its schema.

    The text is ASCII, because a terminal would obey control characters in names. Numbers that are
    not finite become null.
    """
    schema = {"schema": SCHEMA} if isinstance(report, FitReport) else {}
    return json.dumps(_finite(schema | more | asdict(report)), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema of reports, which follows from the annotations of `FitReport`."""
    schema = json_schema(FitReport)
    written = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "riskad report",
        **schema,
        "properties": {"schema": {"const": SCHEMA}, "written": written, **schema["properties"]},
        "required": ["schema", *schema["required"]],
    }


# --- pages --------------------------------------------------------------------------------


def render_page(report: FitReport) -> str:
    """Make the page of a report, a whole HTML document."""
    verb = "scored" if report.trained_on else "fitted"
    facts = [f"{report.rows:,} {report.spec.unit}s", f"{verb} with {report.model}"]
    facts += [minute(report.reported)] if report.reported else []
    facts += [f"riskad {report.versions['riskad']}"] if "riskad" in report.versions else []
    return _render(f"riskad report: {report.source}", ", ".join(facts), SECTIONS, report)


def render_look(look: TableLook) -> str:
    """Make the page of `riskad look`, a whole HTML document."""
    return _render(f"A look at {look.source}", "", LOOK_SECTIONS, look)


def _render(title: str, subtitle: str, sections: Sequence[Section], record: Any) -> str:
    drawn = ((each, blocks_on("page", each.blocks(record))) for each in sections)
    shown = [(section, blocks) for section, blocks in drawn if blocks]
    template = _environment().get_template("page.html")
    return template.render(title=title, subtitle=subtitle, sections=shown) + "\n"


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("riskad.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sentence": sentence, "short": shorten}
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _visible(value: object) -> object:
    """Spell out the control characters of a text that a template prints."""
    if hasattr(value, "__html__"):  # made by a template: its texts have been here
        return value
    text, hidden = str(value), ("Cc", "Cs")
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in hidden else c for c in text)


# --- model cards --------------------------------------------------------------------------


def make_card(report: FitReport, name: str) -> str:
    """Return the model card of a model file, Markdown with its contents for its users.

    `report` comes from `riskad.app.describe.describe_model`. Texts from the data are escaped, so
    that no column name becomes markup.
    """
    kind = with_article(report.model)
    lines = [f"# {_plain(name)}", "", f"{kind[:1].upper()}{kind[1:]}."]
    for section in SECTIONS:
        after_list = False
        for i, block in enumerate(blocks_on("card", section.blocks(report))):
            lines += [] if i else ["", f"## {section.title}"]
            is_list = isinstance(block, Lines)
            lines += [] if is_list and after_list else [""]
            after_list = is_list
            if isinstance(block, Lines):
                written = sentence if block.is_text else str
                lines += [f"- {_plain(written(line))}" for line in block.lines]
                continue
            assert isinstance(block, Table)
            right = ["---:" if j in block.right else "---" for j in range(len(block.head))]
            rows = [block.head, *block.rows[:_MOST_ROWS]]
            cells = [" | ".join(map(_plain, row)) for row in rows]
            lines += [f"**{_plain(block.title)}**", ""] if block.title else []
            lines += [f"| {row} |" for row in (cells[0], " | ".join(right), *cells[1:])]
            more = len(block.rows) - _MOST_ROWS
            lines += ["", f"and {more:,} more"] if more > 0 else []
    return "\n".join(lines) + "\n"


def _plain(text: object) -> str:
    """A text of the data as Markdown that shows it unchanged, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))
