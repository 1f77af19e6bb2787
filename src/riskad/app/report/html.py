"""The report as a page: one HTML file that needs nothing else, neither scripts nor a network.

Jinja writes it (`riskad.app.report.jinja`), and a content security policy forbids the browser
to run or fetch anything.
"""

from __future__ import annotations

from riskad.app.report.content import headline
from riskad.app.report.jinja import fill
from riskad.app.report.sections import shown_sections
from riskad.app.report.summary import ReportData

__all__ = ["render_page"]


def render_page(data: ReportData) -> str:
    """Make the page.

    Returns
    -------
    str
        A whole HTML document.
    """
    sections = [(section, section.content(data)) for section in shown_sections(data)]
    page = fill("page.html", data=data, headline=headline(data), sections=sections)
    return f"{page}\n"
