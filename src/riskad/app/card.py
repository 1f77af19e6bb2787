"""A model card: one page of Markdown with the contents of a model file, for its users."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from riskad.app.fit_report import FitReport
from riskad.app.report.blocks import Block, Lines, Table
from riskad.app.report.sections import SECTIONS
from riskad.app.report.wording import sentence
from riskad.core.checks import with_article
from riskad.storage.files import atomic_path

__all__ = ["make_card", "write_card"]

_MOST_ROWS = 30  # of a table
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!$&])")


def make_card(report: FitReport, name: str) -> str:
    """Return the card of a model.

    Parameters
    ----------
    report
        Result of `riskad.app.describe.describe_model` for the model.
    name
        Name of its file.

    Returns
    -------
    str
        Markdown. Texts from the data are escaped, so that no column name becomes markup.

    Examples
    --------
    >>> import numpy as np
    >>> from riskad.app.describe import describe_model
    >>> from riskad.app.model_files import make_header
    >>> from riskad.detectors.shallow import ShallowRAD
    >>> X, y = np.array([[0.0], [1.0], [8.0], [0.5]]), np.array([1, 1, -1, 0])
    >>> model = ShallowRAD().fit(X, y)
    >>> card = make_card(describe_model(model, make_header(model)), "model.riskad")
    >>> card.splitlines()[:3]
    ['# model.riskad', '', 'A ShallowRAD.']
    """
    kind = with_article(report.model)
    lines = [f"# {_plain(name)}", "", f"{kind[:1].upper()}{kind[1:]}."]
    for section in SECTIONS:
        blocks = section.on("card", report)
        lines += ["", f"## {section.title}"] if blocks else []
        for i, block in enumerate(blocks):
            is_list = isinstance(block, Lines) and i and isinstance(blocks[i - 1], Lines)
            lines += [*([] if is_list else [""]), *_draw(block)]
    return "\n".join(lines) + "\n"


def write_card(
    report: FitReport, name: str, path: str | os.PathLike[str], force: bool = False
) -> None:
    """Write the card of a model atomically."""
    with atomic_path(path, force) as part:
        part.write_text(make_card(report, name), encoding="utf-8")


def _plain(text: object) -> str:
    """A text of the data as Markdown that shows it unchanged, on one line."""
    return _MARKUP.sub(r"\\\1", " ".join(str(text).split()))


def _draw(block: Block) -> list[str]:
    if isinstance(block, Lines):
        written = sentence if block.is_text else str
        return [f"- {_plain(written(line))}" for line in block.lines]
    assert isinstance(block, Table)
    rules = ["---:" if i in block.right else "---" for i in range(len(block.head))]
    lines = [_row([_plain(name) for name in block.head]), _row(rules)]
    lines += [_row([_plain(cell) for cell in row]) for row in block.rows[:_MOST_ROWS]]
    if len(block.rows) > _MOST_ROWS:
        lines += ["", f"and {len(block.rows) - _MOST_ROWS:,} more"]
    return [*([f"**{_plain(block.title)}**", ""] if block.title else []), *lines]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
