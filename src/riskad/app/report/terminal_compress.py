"""What `riskad compress` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.app.compress import CompressReport
from riskad.app.report.layout import print_facts, print_title

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_compress"]


def print_compress(console: Console, report: CompressReport, path: str) -> None:
    """Print what was learned from what, and what was lost; `path` is where it was written."""
    print_title(console, f"{report.teacher} as {report.trees:,} trees")
    held = f"no training rows are in the file ({report.kept_rows_before:,} before)"
    print_facts(
        console,
        {
            "Learned": [f"the scores of {report.learned_rows:,} of {report.rows:,} rows"],
            "Lost": report.fidelity.in_words(),
            "Gained": [
                f"scores in 1/{report.times_as_fast:.0f} of the time"
                if report.times_as_fast >= 1.5
                else "no time: the model was as quick before",
                *([held] if report.kept_rows_before else []),
            ],
            "Notes": report.warnings,
            "Written": [path],
        },
    )
