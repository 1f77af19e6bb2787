"""Counts and lists as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["list_names", "say_count", "say_distinct", "show_number"]


def say_count(n: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def say_distinct(n_distinct: int, n_rows: int, about: bool) -> str:
    """Say how many different values there are, or about how many."""
    if about:
        return f"about {float(f'{n_distinct:.2g}'):,.0f} different values in {n_rows:,} rows"
    return f"{n_distinct:,} different values in {n_rows:,} rows"


def show_number(value: float) -> str:
    """Return a number as people write it."""
    return f"{value:,.6g}"


def list_names(names: Sequence[str], limit: int = 8) -> str:
    """Return names in one line, at most `limit` of them."""
    rest = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + rest
