"""What the terminal prints about rows looked at and anomalies found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.app.capacity import CapacityPlan
from riskad.app.report.layout import fact_blocks, table_block
from riskad.app.report.wording import cost_lines, looked_at
from riskad.app.review import ReviewReport

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["review_blocks"]

_HEAD = ["rows", "anomalies", "share of all", "precision", "by chance"]


def review_blocks(
    console: Console, review: ReviewReport | None, capacity: CapacityPlan | None
) -> list[list[Text]]:
    """Return how many anomalies looking at 5, 10, 20, ... rows finds, and what was planned."""
    lines = [] if capacity is None else [str(capacity)]
    if review is None:
        return fact_blocks(console, {"Expect": lines})
    rows = [
        [f"{'flagged ' * is_flagged}{k}", *cells]
        for is_flagged, (k, *cells) in looked_at(review, "-")
    ]
    table = [table_block("Look at", _HEAD, rows, left=())] if rows else []
    lines += cost_lines(review.cost)
    return [*table, *fact_blocks(console, {"Expect": lines})]
