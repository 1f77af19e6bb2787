"""The Jinja environment of the page: the one place where text becomes HTML.

Autoescape is on for every template, so whatever comes from the data is escaped where it is printed;
control characters, which a page cannot hold, are spelled out there, too. A name that a template
misspells is an error (`StrictUndefined`), never a blank.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from riskad.app.reasons import show_value

__all__ = ["fill", "fill_text"]

_LONGEST = 60  # letters of a name or value


def fill(template: str, /, **values: Any) -> Markup:
    """Fill a template of the folder `templates`.

    Returns
    -------
    Markup
        HTML, which another template prints as it is.
    """
    return Markup(_environment().get_template(template).render(values))


def fill_text(template: str, /, **values: Any) -> Markup:
    r"""Fill a template that is given as text; it may import the macros of `parts.html`.

    Returns
    -------
    Markup
        HTML, which another template prints as it is.

    Examples
    --------
    >>> fill_text("<p title='{{ name }}'>{{ name }}</p>", name="<'\x00>")
    Markup("<p title='&lt;&#39;\\x00&gt;'>&lt;&#39;\\x00&gt;</p>")
    """
    return Markup(_environment().from_string(template).render(values))


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
    filters = (likely, minute, number, percent, sentence, short, show_value)
    made.filters |= {each.__name__: each for each in filters}
    return made


def _visible(value: object) -> object:
    r"""Spell out the control characters of a text that a template prints.

    >>> print(_visible("a\x00b"))
    a\x00b
    """
    if isinstance(value, Markup):  # made by a template: its texts have been here
        return value
    text = str(value)
    if text.isprintable():
        return text
    hidden = ("Cc", "Cs")
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in hidden else c for c in text)


# --- filters -----------------------------------------------------------------------------


def short(text: str, longest: int = _LONGEST) -> str:
    """Cut a long text off.

    >>> short("abcdefgh", 5)
    'abcd…'
    """
    return text if len(text) <= longest else text[: longest - 1] + "\u2026"


def number(value: float, spec: str = ",") -> str:
    """Format a number; with commas between thousands unless told otherwise."""
    return format(value, spec)


def percent(share: float) -> str:
    """Say a share in percent.

    >>> percent(0.5), percent(0.123)
    ('50%', '12.3%')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def likely(probability: float) -> str:
    """Say a probability, which is never 0 or 1."""
    if 0.001 <= probability <= 0.999:
        return percent(probability)
    return "below 0.1%" if probability < 0.5 else "above 99.9%"


def minute(time: str) -> str:
    """Say the minute of an ISO time.

    >>> minute("2026-01-31T12:34:56+00:00")
    '2026-01-31 12:34 UTC'
    """
    day, _, rest = time.partition("T")
    return f"{day} {rest[:5]} UTC"


def sentence(line: str) -> str:
    """Make a sentence of a line.

    >>> sentence("no AUC")
    'No AUC.'
    """
    return f"{line[:1].upper()}{line[1:]}."
