"""The sections of the page, in order. To add one, write its content and enter it in `SECTIONS`.

`add_section` adds a section from outside the package. Such a section collects its own data from the
model, if its page and JSON show more than `ReportData`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from sklearn.pipeline import Pipeline

from riskad.app.model_files import ModelHeader
from riskad.app.report import content
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.app.report.summary import ReportData

__all__ = ["SECTIONS", "Section", "add_section", "collect_data", "shown_sections"]


def _nothing(model: Pipeline, header: ModelHeader) -> None:
    return None


@dataclass(frozen=True)
class Section:
    """A part of the report.

    Parameters
    ----------
    title
        Its heading; no two sections share one.
    content
        Makes the content below the heading: HTML by `riskad.app.report.jinja.fill_text`, or text,
        which is escaped.
    is_shown
        Whether there is anything to show.
    collect
        Finds its own data in the model and the header of its file, in a form that JSON can hold, or
        None. `ReportData.sections` has them by the section's `anchor`, on the page and in JSON.
    css_class
        Class of the HTML element.
    """

    title: str
    content: Callable[[ReportData], Markup | str]
    is_shown: Callable[[ReportData], bool] = lambda data: True
    collect: Callable[[Pipeline, ModelHeader], Any] = _nothing
    css_class: str = ""

    @property
    def anchor(self) -> str:
        """Name of the section in addresses and JSON.

        >>> Section("Anomaly rate", lambda data: "").anchor
        'anomaly-rate'
        """
        return self.title.lower().replace(" ", "-")


SECTIONS: dict[str, Section] = {}
"""By anchor, in the order of the page."""


def add_section(section: Section) -> Section:
    """Add a section to the end of every later report.

    Returns
    -------
    Section
        The section itself.

    Examples
    --------
    >>> from riskad.app.report.jinja import fill_text
    >>> def collect(model, header):
    ...     return {"steps": [name for name, _ in model.steps]}
    >>> def content(data):
    ...     return fill_text("<p>{{ steps|join(', ') }}</p>", **data.sections["steps"])
    >>> steps = Section("Steps", content, lambda data: "steps" in data.sections, collect)
    >>> _ = add_section(steps)
    >>> del SECTIONS["steps"]
    """
    if section.anchor in SECTIONS:
        raise InputError(
            f"There is a section {section.title!r} already: give the new one another title, or "
            f"delete SECTIONS[{section.anchor!r}] first."
        )
    SECTIONS[section.anchor] = section
    return section


def shown_sections(data: ReportData) -> Iterator[Section]:
    """Yield the sections that have something to show.

    Yields
    ------
    Section
        In the order of the page.
    """
    return (section for section in SECTIONS.values() if section.is_shown(data))


def collect_data(model: Pipeline, header: ModelHeader) -> dict[str, Any]:
    """Let every section collect its own data.

    Returns
    -------
    dict
        By anchor, for those sections that have any.
    """
    collected = {name: each.collect(model, header) for name, each in SECTIONS.items()}
    return {name: found for name, found in collected.items() if found is not None}


def _periods(model: Pipeline, header: ModelHeader) -> Any:
    """The notes of the fit on periods of time, if it had a time column."""
    return header.notes.get("fit", {}).get("over_time")


def _refit(model: Pipeline, header: ModelHeader) -> Any:
    """How the model compares with the one before it, if it was made by a refit."""
    return header.notes.get("refit")


for _section in (
    Section("Warnings", content.warnings, lambda data: bool(data.warnings), css_class="warnings"),
    Section(
        "Beside the model before",
        content.model_before,
        lambda data: "beside-the-model-before" in data.sections,
        _refit,
    ),
    Section("Most suspicious rows", content.suspicious_rows),
    Section(
        "Rows looked at against anomalies found",
        content.rows_looked_at,
        lambda data: data.review is not None,
    ),
    Section("Scores", content.scores),
    Section("Quality", content.quality),
    Section("Over time", content.over_time, lambda data: "over-time" in data.sections, _periods),
    Section("Anomaly rate", content.anomaly_rate),
    Section("Model", content.model),
    Section("Columns", content.columns),
    Section("How this report was made", content.origin),
):
    add_section(_section)
