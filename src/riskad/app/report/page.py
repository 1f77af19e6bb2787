"""Reports as pages: one HTML file that needs nothing else, neither scripts nor a network.

Jinja writes it by the macros of `templates/blocks.html`. Autoescape is on, so whatever comes from
the data is escaped where it is printed; control characters, which a page cannot hold, are spelled
out there, too. A name that a template misspells is an error (`StrictUndefined`), never a blank. A
content security policy forbids the browser to run or fetch anything.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from riskad.app.fit_report import FitReport
from riskad.app.report.blocks import Section
from riskad.app.report.look import LOOK_SECTIONS
from riskad.app.report.sections import SECTIONS
from riskad.app.report.wording import minute, sentence

if TYPE_CHECKING:
    from riskad.app.look import TableLook


def render_page(report: FitReport) -> str:
    """Make the page of a report, a whole HTML document."""
    made = "scored" if report.trained_on else "fitted"
    facts = [f"{report.rows:,} rows", f"{made} with {report.model}"]
    facts += [minute(report.reported)] if report.reported else []
    facts += [f"riskad {report.versions['riskad']}"] if "riskad" in report.versions else []
    return _render(f"riskad report: {report.source}", ", ".join(facts), SECTIONS, report)


def render_look(look: TableLook) -> str:
    """Make the page of `riskad look`, a whole HTML document."""
    return _render(f"A look at {look.source}", "", LOOK_SECTIONS, look)


def _render(title: str, subtitle: str, sections: Sequence[Section], record: Any) -> str:
    shown = [(each, blocks) for each in sections if (blocks := each.on("page", record))]
    template = _environment().get_template("page.html")
    return template.render(title=title, subtitle=subtitle, sections=shown) + "\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("riskad.app.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"kind": _kind, "sentence": sentence, "short": _short}
    return made


def _visible(value: object) -> object:
    """Spell out the control characters of a text that a template prints."""
    if isinstance(value, Markup):  # made by a template: its texts have been here
        return value
    text = str(value)
    if text.isprintable():
        return text
    hidden = ("Cc", "Cs")
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in hidden else c for c in text)


def _kind(block: object) -> str:
    return type(block).__name__


def _short(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"
