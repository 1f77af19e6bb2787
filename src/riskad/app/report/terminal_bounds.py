"""What `riskad bounds` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from riskad.app.report.layout import print_facts, print_line, print_table, print_title
from riskad.core.bounds import EstimationError, FittedBounds
from riskad.core.risks import KIND_NAMES

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_bounds"]


def print_bounds(console: Console, bounds: FittedBounds, name: str) -> None:
    """Print how far a model may be from the best of its class, and why."""
    print_title(console, f"{name}: {bounds.risk} risk, {bounds.loss} loss")
    print_facts(
        console,
        {
            "Rows": [str(bounds.counts)],
            "Class": [
                f"weights of norm at most {bounds.C_w:.4g} (fitted: {bounds.weight_norm:.4g}), "
                f"on rows of norm at most {bounds.C_x:.4g}, both standardised"
            ],
            **_bound_facts(bounds),
        },
    )
    print_line(console)
    print_table(console, "Terms", *_term_rows(bounds.error), left={0})
    largest = bounds.error.by_kind.largest
    print_facts(
        console,
        {
            "": [f"most comes from the {largest} rows: more of these help most"],
            "Assumed": [
                f"{bounds.prior:.4g} of the rows are normal (prior); labelled rows are like "
                "the unlabelled rows of their kind; new rows have no larger norm than those seen; "
                "the solver found the minimum"
            ],
        },
    )


def _bound_facts(bounds: FittedBounds) -> dict[str, list[str]]:
    """Say by how much the risk and the error rate may exceed the lowest ones."""
    error, sure = bounds.error, f"with probability {100 * (1 - bounds.delta):.4g}%"
    return {
        "Risk": [
            f"{sure}, the risk of the fitted model exceeds that of the best in its class "
            f"by at most {error.value:.4g} ({error.theorem})",
            _say_use(bounds),
        ],
        "Errors": [
            f"{sure}, its error rate at score 0 exceeds the lowest possible one by at most "
            f"{bounds.excess.value:.4g}, if the best score is in the class (corollary)",
            *(["vacuous: no error rate can be further off"] if bounds.excess.vacuous else []),
        ],
    }


def _say_use(bounds: FittedBounds) -> str:
    """Say what a bound is good for."""
    error, zero = bounds.error, f"{bounds.zero_risk:.4g}, the risk of scoring every row 0"
    if error.vacuous:
        return f"vacuous: no risk in this class exceeds {error.C_l:.4g} anyway"
    if error.value >= bounds.zero_risk:
        return f"of little use: it is above {zero}"
    return f"of use: it is below {zero}"


def _term_rows(error: EstimationError) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table of terms."""
    rows = []
    for kind in KIND_NAMES.values():
        parts = [getattr(part, kind) for part in (error.complexity, error.chance)]
        rows.append([f"{kind} rows", *(f"{part:.4g}" for part in (*parts, sum(parts)))])
    bias = [["bias of the guard", "", "", f"{error.bias:.4g}"]] if error.bias else []
    return ["", "complexity", "chance", "both"], [*rows, *bias]
