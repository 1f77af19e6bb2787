"""What the terminal prints about rows looked at and anomalies found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.app.capacity import CapacityPlan
from riskad.app.report.layout import print_facts, print_table
from riskad.app.report.wording import about, between, say_cost, share_between
from riskad.app.review import ReviewReport
from riskad.decisions.capacity import Found

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_review"]

_HEAD = ["rows", "anomalies", "share of all", "precision", "by chance"]


def print_review(
    console: Console, review: ReviewReport | None, capacity: CapacityPlan | None
) -> None:
    """Print how many anomalies looking at 5, 10, 20, ... rows finds, and what was planned."""
    if review is not None:
        rows = {found.rows: found for found in review.table}
        if review.flagged.rows:
            rows[review.flagged.rows] = review.flagged
        cells = [_cells(rows[k], k == review.flagged.rows) for k in sorted(rows)]
        print_table(console, "Look at", _HEAD, cells, left=())
    lines = [] if capacity is None else [str(capacity)]
    lines += [] if review is None or review.cost is None else [say_cost(review.cost)]
    print_facts(console, {"Expect": lines})


def _cells(found: Found, is_flagged: bool) -> list[str]:
    count = found.found
    return [
        f"{'flagged ' if is_flagged else ''}{found.rows:,}",
        f"{about(count.value)} ({between(count, '-')})",
        share_between(found.recall, "-"),
        share_between(found.precision, "-"),
        about(found.by_chance),
    ]
