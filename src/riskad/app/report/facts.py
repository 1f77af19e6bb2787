"""Facts that page and terminal show as tables, if a detector has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["list_members", "list_risk_parts"]


def list_members(leaderboard: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """List the members of an average, without those left out.

    Returns
    -------
    list of dict
        With `member`, `weight`, `auc` (None if not known) and `seconds`.
    """
    return [member for member in leaderboard if not member.get("left_out")]


def list_risk_parts(fitted: Mapping[str, Any]) -> dict[str, float]:
    """List the parts of the estimated risk.

    Returns
    -------
    dict
        Empty if the detector minimises no risk.
    """
    parts: dict[str, float] = fitted.get("risk_parts", {})
    return parts
