"""Sentences that the page, the model card and the terminal share.

An interval that leaves nearly everything open is not printed: the sentence then says that the
labels are too few to tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from riskad.app.review import ReviewReport
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import (
    ANOMALIES_ALONE,
    CHOSEN,
    GIVEN,
    PRIOR_ALONE,
    SURPRISE,
    UNKNOWN,
)
from riskad.decisions.capacity import ExpectedCost, Found
from riskad.metrics.estimates import Estimate
from riskad.metrics.ranking import Auc

__all__ = [
    "NOT_KNOWN",
    "about",
    "auc_cell",
    "auc_is_vague",
    "cost_lines",
    "flagged_lines",
    "found_is_vague",
    "looked_at",
    "quality_lines",
    "rate_line",
    "sample_line",
    "say_found",
    "say_labels",
    "say_prior",
    "share_between",
    "share_is_vague",
    "too_few_labels",
    "top_lines",
]

NOT_KNOWN = "not known"
"""What a table shows in place of a number whose interval says nothing."""

_WIDE = 0.75  # an interval of a share that is wider says nothing
_WIDE_AUC = 0.25  # of an AUC: half of the way from chance to a perfect order
_FAR_APART = 20  # the upper end of a count that says nothing: as many, and times the lower end

_HARDLY = 0.1  # p-value below which labelled rows may not be a random sample

_ADVICE = {
    UNKNOWN: "to know it better, label 20 rows drawn at random, or say how rows were chosen "
    "(--labels random or chosen)",
    CHOSEN: "to know it better, label 20 rows drawn at random, and say which (--labels COLUMN)",
    ANOMALIES_ALONE: "to know it better, mark ten ordinary rows as normal (key n in riskad label)",
    PRIOR_ALONE: "to know it better, label some anomalies and some ordinary rows (riskad label)",
}
"""What would make the anomaly rate better known."""


# --- intervals that say nothing ----------------------------------------------------------


def share_is_vague(low: float, high: float) -> bool:
    """Whether the interval of a share leaves open more than three quarters of what is possible.

    >>> share_is_vague(0.09, 1.0), share_is_vague(0.3, 0.99)
    (True, False)
    """
    return high - low > _WIDE


def auc_is_vague(auc: Auc) -> bool:
    """Whether an interval includes chance, and half of what is better than chance."""
    return auc.low <= 0.5 and auc.high - auc.low > _WIDE_AUC


def found_is_vague(found: Found) -> bool:
    """Whether an interval leaves open how many of some rows are anomalies.

    It leaves open more than three quarters of the rows, or it reaches from almost none to many,
    such as 1 to 4,168.
    """
    low, high = (end / max(found.rows, 1) for end in (found.found.low, found.found.high))
    return share_is_vague(low, high) or _ends_are_far_apart(found.found)


def _ends_are_far_apart(count: Estimate) -> bool:
    """Whether an interval reaches from almost none to many; from none to a few says enough."""
    return count.high >= _FAR_APART and count.high > _FAR_APART * count.low


def too_few_labels(what: str) -> str:
    """Say that the labels do not determine something, and what to do."""
    return f"too few labels to tell {what}; label 20 more (`riskad suggest`, or some at random)"


# --- how good a model is -----------------------------------------------------------------


def quality_lines(
    auc: Auc | None, why_not: str, evidence: str, labels: LabelCounts | None
) -> list[str]:
    """Say how well labelled rows are ranked, or why that is not known.

    Parameters
    ----------
    auc, why_not
        The AUC on held-out labelled rows, or why there is none.
    evidence
        Which fits scored the held-out rows (`SelfDescribing.evidence_in_words`).
    labels
        Labels of the fit; the AUC may use fewer if not all were held out.

    Returns
    -------
    list of str
        Lines without a full stop.
    """
    if auc is None:
        return [f"no AUC on labelled rows: {why_not}"]
    held_out = auc.n_normal + auc.n_anomaly
    labelled = held_out if labels is None else labels.normal + labels.anomaly
    if auc_is_vague(auc):
        return [too_few_labels("whether the order of the rows is better than chance")]
    rows = f"the {held_out:,}" if held_out == labelled else f"{held_out:,} of the {labelled:,}"
    said = f"AUC {auc.value:.3f} (95% interval {auc.low:.3f} to {auc.high:.3f})"
    return [f"{said} on {rows} labelled rows, each {evidence}"]


def auc_cell(auc: Auc | None) -> str:
    """Return an AUC for a table: with its interval, blank if there is none."""
    if auc is None:
        return ""
    return NOT_KNOWN if auc_is_vague(auc) else f"{auc.value:.3f} ({auc.low:.3f}-{auc.high:.3f})"


def say_prior(pi_p: float) -> str:
    """Spell a share of normal rows as the setting `prior` takes it.

    A prior lies strictly between 0 and 1; three digits are more precise than its interval.

    Returns
    -------
    str
        The number.

    Examples
    --------
    >>> say_prior(1.0), say_prior(0.93712)
    ('0.999', '0.937')
    """
    return f"{min(max(pi_p, 0.001), 0.999):.3f}"


# --- rows looked at ----------------------------------------------------------------------


def about(count: float) -> str:
    """Say an expected count: small ones with a digit more.

    Examples
    --------
    >>> about(34.6), about(3.42), about(2.0), about(0.01)
    ('35', '3.4', '2', 'less than 0.1')
    """
    if count >= 9.95:
        return f"{count:,.0f}"
    return "less than 0.1" if 0 < count < 0.05 else f"{count:.1f}".removesuffix(".0")


def _between(estimate: Estimate, to: str = " to ") -> str:
    """Say the interval of a count in whole numbers."""
    return f"{math.floor(estimate.low + 1e-9):,}{to}{math.ceil(estimate.high - 1e-9):,}"


def share_between(estimate: Estimate, to: str = " to ") -> str:
    """A share with its interval; it is only called all, or nothing, if it is exactly that."""
    if share_is_vague(estimate.low, estimate.high):
        return NOT_KNOWN
    value = ">99%" if 0.995 <= estimate.value < 1 else f"{estimate.value:.0%}"
    value = "<1%" if 0 < estimate.value < 0.005 else value
    low = f"{estimate.low:.0%}" if to == " to " else f"{100 * estimate.low:.0f}"
    return f"{value} ({low}{to}{estimate.high:.0%})"


def say_found(found: Found) -> str:
    """Say how many of the rows with the highest scores are anomalies, and of random ones.

    Returns
    -------
    str
        A line without a full stop.
    """
    k, chance = found.rows, about(found.by_chance)
    if found_is_vague(found):
        rows = "whether this row is an anomaly" if k == 1 else f"how many of these {k:,} rows are"
        return too_few_labels(rows if k == 1 else f"{rows} anomalies")
    if k == 1:
        return (
            f"this row is an anomaly with a probability of {found.precision.value:.0%}; one drawn "
            f"at random with {found.by_chance:.1%}"
        )
    return (
        f"of these {k:,} rows about {about(found.found.value)} are anomalies (95% interval "
        f"{_between(found.found)}); a random {k:,} would hold {chance}"
    )


def flagged_lines(
    expected: Found | None,
    flagged: int,
    labels: LabelCounts | None = None,
    likely: int = 0,
) -> list[str]:
    """Say how many of the flagged rows are expected to be right, or why that is not known.

    Parameters
    ----------
    expected
        Expected anomalies among them, if the labels determine these.
    flagged
        Number of flagged rows.
    labels
        Labels of the fit.
    likely
        Number of rows that are more likely an anomaly than not, flagged or not.

    Returns
    -------
    list of str
        Lines without a full stop.
    """
    if expected is None:
        return _untold(labels)
    lines = [say_found(expected)] if flagged else []
    if likely > flagged:
        more = f"{likely - flagged:,} {'more rows' if flagged else 'rows'}"
        more = more.removesuffix("s") if likely - flagged == 1 else more
        are = "is" if likely - flagged == 1 else "are"
        lines.append(
            f"{more} {are} more likely an anomaly than not, and not flagged by this threshold"
        )
    if not flagged:
        return [*lines, "what looking at rows would find stands in the table of rows looked at"]
    if expected.lift.low <= 1 and not found_is_vague(expected):
        m = expected.found.n_anomaly
        lines.append(
            f"that this is more than by chance cannot be told from {m:,} labelled "
            f"{'anomaly' if m == 1 else 'anomalies'}; label more rows, those of `riskad suggest` "
            "or some at random"
        )
    return lines


def _untold(labels: LabelCounts | None) -> list[str]:
    if labels is None:
        return []
    missing = "anomaly" if labels.normal else "normal row"
    few = f"no {missing} is" if not min(labels.normal, labels.anomaly) else "too few rows are"
    return [
        f"how many of these rows are anomalies is not known: {few} labelled; look at the first of "
        "them, label what they are, and fit again",
    ]


def rate_line(rate: Sequence[float] | None, rests_on: str) -> list[str]:
    """Describe the anomaly rate, its interval, its basis, and what would make it better known.

    Examples
    --------
    >>> rate_line((0.05, 0.02, 0.09), "by labelled rows as a random sample")
    ['estimated anomaly rate 5.0% (95% interval 2.0% to 9.0%), by labelled rows as a random sample']
    >>> rate_line((0.03, 0.03, 0.03), "given")
    ['anomaly rate 3.0%, as given']
    """
    if rate is None:
        return []
    value, low, high = rate
    if rests_on == GIVEN and low == high:
        return [f"anomaly rate {value:.1%}, as given"]
    if share_is_vague(low, high):
        return [too_few_labels("which share of the unlabelled rows are anomalies")]
    counted = "anomaly rate"
    if rests_on in (UNKNOWN, CHOSEN, ANOMALIES_ALONE):
        # Chosen labels need not hold every kind of anomaly, and no score counts the other kinds.
        counted = "rate of anomalies like the labelled ones"
    said = f"estimated {counted} {value:.1%} (95% interval {low:.1%} to {high:.1%})"
    said = f"{said}, {rests_on}" if rests_on and rests_on != GIVEN else said
    return [said, _ADVICE[rests_on]] if rests_on in _ADVICE else [said]


def sample_line(p_value: float | None) -> list[str]:
    """Say whether labelled rows look like a random sample of the table, by their held-out scores.

    Examples
    --------
    >>> sample_line(0.23)
    ['labelled rows score like a random sample of the table (p-value 0.23)']
    """
    if p_value is None:
        return []
    table = f"a random sample of the table (p-value {p_value:.2g})"
    if p_value >= _HARDLY:
        return [f"labelled rows score like {table}"]
    if p_value >= SURPRISE:
        return [f"labelled rows may not be {table}"]
    return [f"labelled rows are not {table}: they score unlike the others"]


def top_lines(review: ReviewReport | None) -> list[str]:
    """Say how good the top of the ranking is: average precision, and lift.

    Returns
    -------
    list of str
        Lines without a full stop; none if the labels do not determine them.
    """
    if review is None:
        return []
    found, rate = review.average_precision, review.anomalies.value / review.rows
    lines = []
    if not share_is_vague(found.low, found.high):
        lines.append(
            f"average precision {found.value:.3f} (95% interval {found.low:.3f} to "
            f"{found.high:.3f}); in random order {rate:.3f}"
        )
    tops = [
        f"{'of ' if i else 'of the '}{top.rows:,}{'' if i else ' highest scores'} "
        f"({top.rows / review.rows:.1%} of the rows) {share_between(top.precision)}"
        f"{'' if i else ' are anomalies'}, {top.lift.value:.1f} times as many as by chance"
        for i, top in enumerate(top for top in review.tops if not found_is_vague(top))
    ]
    lines += ["; ".join(tops)] if tops else []
    return lines or [too_few_labels("how many of the highest scores are anomalies")]


def looked_at(review: ReviewReport, to: str = " to ") -> list[tuple[bool, list[str]]]:
    """List what looking at 5, 10, 20, ... rows, or at the flagged ones, finds.

    Parameters
    ----------
    review
        What was found.
    to
        What stands between the ends of an interval.

    Returns
    -------
    list of tuple
        Whether these are the flagged rows, and: their number, anomalies, share of all anomalies,
        precision, anomalies among as many random rows. Numbers of rows for which the labels do not
        tell these are left out.
    """
    flagged = review.flagged.rows
    rows = {found.rows: found for found in review.table} | {flagged: review.flagged}
    return [
        (
            k == flagged,
            [
                f"{k:,}",
                f"{about(found.found.value)} ({_between(found.found, to)})",
                share_between(found.recall, to),
                share_between(found.precision, to),
                about(found.by_chance),
            ],
        )
        for k, found in sorted(rows.items())
        if k and not found_is_vague(found)
    ]


def cost_lines(cost: ExpectedCost | None) -> list[str]:
    """Say what a rule that weighs false alarms against misses is expected to cost.

    Returns
    -------
    list of str
        A line without a full stop; none for other rules, or if the labels do not tell.
    """
    if cost is None or _ends_are_far_apart(cost.cost):
        return []
    alarms, misses, price = cost.false_alarms, cost.misses, cost.cost
    return [
        f"about {about(alarms.value)} false alarms ({_between(alarms)}) and "
        f"{about(misses.value)} anomalies missed ({_between(misses)}), which together cost "
        f"{about(price.value)} ({_between(price)})"
    ]


def say_labels(labels: LabelCounts, column: str) -> str:
    """Say how many rows have which label, and in which column, if any has one.

    >>> say_labels(LabelCounts(2, 1, 7), "status")
    "2 normal, 1 anomaly, 7 unlabelled (column 'status')"
    """
    named = f" (column {column!r})" if labels.normal or labels.anomaly else ""
    return f"{labels}{named}"
