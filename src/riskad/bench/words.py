"""Numbers as the tables write them: a mean AUC and, in parentheses, its standard error x 100."""

from __future__ import annotations

from riskad.bench.paper import Published
from riskad.bench.summary import CellSummary, TrialMean

__all__ = [
    "NONE",
    "few",
    "say_difference",
    "say_estimate",
    "say_mean",
    "say_own",
    "say_own_mean",
    "say_printed",
    "say_published",
    "say_setting",
    "say_share",
    "say_signed",
]

NONE = "-"
FAILED = "failed"
_PRIORS = {"true": "1 - pi_n", "flipped": "pi_n"}


def say_estimate(value: TrialMean | None) -> str:
    """Mean (SE x 100)."""
    if value is None:
        return FAILED
    return f"{value.mean:.3f} ({NONE if value.se is None else f'{100 * value.se:.2f}'})"


def say_own(cell: CellSummary, trials: int) -> str:
    """The mean AUC of a cell, with its error and with how many trials succeeded if not all."""
    return say_estimate(cell.auc) + few(cell.n_ok, trials)


def say_own_mean(cell: CellSummary, trials: int) -> str:
    """The same without its standard error."""
    return (say_mean(cell.auc.mean) if cell.auc else FAILED) + few(cell.n_ok, trials)


def few(n: int, trials: int) -> str:
    """In brackets, how many trials succeeded where some are missing."""
    return f" [{n}]" if 0 < n < trials else ""


def say_printed(value: Published | None) -> str:
    """A published mean with the digits that were printed."""
    if value is None:
        return NONE
    return f"{value.mean:.2f}" if value.rounding == 0.005 else f"{value.mean:.3f}"


def say_published(value: Published | None) -> str:
    """A published mean and, where it was printed, its standard error x 100."""
    error = f" ({100 * value.se:.2f})" if value and value.se is not None else ""
    return say_printed(value) + error


def say_mean(value: float | None) -> str:
    """A mean with three digits."""
    return NONE if value is None else f"{value:.3f}"


def say_signed(value: float | None, digits: int) -> str:
    """A number with its sign; what is zero when rounded has none.

    >>> say_signed(0.0123, 3), say_signed(-0.0004, 3), say_signed(None, 3)
    ('+0.012', '0.000', '-')
    """
    if value is None:
        return NONE
    return f"{value:+.{digits}f}" if round(value, digits) else f"{0:.{digits}f}"


def say_difference(value: TrialMean | None) -> str:
    """A mean difference with its sign, and its standard error x 100."""
    if value is None:
        return NONE
    error = NONE if value.se is None else f"{100 * value.se:.2f}"
    return f"{say_signed(value.mean, 3)} ({error})"


def say_share(n: int, total: int) -> tuple[str, str]:
    """How many of all, and in percent."""
    return f"{n} of {total}", f"{100 * n / total:.1f} %"


def say_setting(name: str, value: object) -> str:
    """A value of a setting; a prior in words is written as in the paper."""
    return _PRIORS.get(str(value), str(value)) if name == "prior" else str(value)
