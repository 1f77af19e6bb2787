"""Which kinds of label a detector needs."""

from __future__ import annotations

from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, LabelCounts

__all__ = ["require_labels"]


_ROWS = {
    NORMAL: "a labelled normal row (+1)",
    ANOMALY: "a labelled anomaly (-1)",
    UNLABELLED: "an unlabelled row (0)",
}


def require_labels(who: str, counts: LabelCounts, *groups: tuple[int, ...]) -> None:
    """Require a row of at least one kind in each group of kinds."""
    found = {NORMAL: counts.normal, ANOMALY: counts.anomaly, UNLABELLED: counts.unlabelled}
    for kinds in groups:
        if not any(found[kind] for kind in kinds):
            wanted = " or ".join(_ROWS[kind] for kind in kinds)
            raise InputError(
                f"{who} needs {wanted}, and y has none ({counts}). Mark at least one "
                "row so, or choose a method that does without: OneClassSVM() needs no labels."
            )
