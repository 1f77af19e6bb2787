"""Sentences, without a full stop, and tables that the page, the card and the terminal share.

An interval that leaves nearly everything open is not printed: the sentence then says that the
labels are too few to tell.
"""

from __future__ import annotations

import math

from riskad.app.fit_report import few_anomalies
from riskad.app.report.blocks import TERMINAL, Table
from riskad.app.score import SCORE_COLUMNS, Suspect
from riskad.core.labels import LabelCounts
from riskad.decisions.anomaly_rate import (
    ANOMALIES_ALONE,
    CHOSEN,
    GIVEN,
    PRIOR_ALONE,
    SURPRISE,
    UNKNOWN,
    RateEstimate,
)
from riskad.decisions.capacity import ExpectedCost, ReviewReport, TopRows
from riskad.metrics.ranking import Auc, Estimate
from riskad.tables.harmless import SUPPRESSED
from riskad.tables.notes import pluralize

WIDE = 0.75  # an interval of a share that is wider says nothing
_NOT_KNOWN = "not known"  # in place of a number whose interval does
_WIDE_AUC = 0.25  # of an AUC that includes chance: half of the way to a perfect order
_FAR_APART = 20  # the upper end of a count that says nothing: as many, and times the lower end
_HARDLY = 0.1  # p-value below which labelled rows may not be a random sample

_ADVICE = {
    UNKNOWN: "label 20 rows drawn at random, or say how rows were selected: `--label-sampling "
    "random` or `chosen`",
    CHOSEN: "label 20 rows drawn at random, and say which they are: `--label-sampling COLUMN`",
    ANOMALIES_ALONE: "mark ten ordinary rows as normal (key n in `riskad label`)",
    PRIOR_ALONE: "label some anomalies and some ordinary rows (`riskad label`)",
}
"""What would make a better estimate of the anomaly rate."""


def is_vague(estimate: Estimate | RateEstimate) -> bool:
    """Whether the interval of a share, or of an AUC, leaves nearly everything open."""
    low, high = estimate.low, estimate.high
    if isinstance(estimate, Auc):
        return low <= 0.5 and high - low > _WIDE_AUC
    return high - low > WIDE


def top_is_vague(top: TopRows) -> bool:
    """Whether an interval leaves open how many of some rows are anomalies."""
    low, high = top.found.low / max(top.rows, 1), top.found.high / max(top.rows, 1)
    return high - low > WIDE or _ends_are_far_apart(top.found)


def _ends_are_far_apart(count: Estimate) -> bool:
    """Whether an interval is like 1 to 4,168; from none to a few says enough."""
    return count.high >= _FAR_APART and count.high > _FAR_APART * count.low


def too_few_labels(what: str) -> str:
    """Say that the labels do not determine something, and what to do."""
    return f"too few labels to tell {what}; label 20 more (`riskad suggest`, or some at random)"


def sentence(line: str) -> str:
    """Make a sentence of a line; a name at its beginning stays as it is."""
    is_name = "_" in line.partition(" ")[0]
    return f"{line[:1] if is_name else line[:1].upper()}{line[1:].removesuffix('.')}."


def minute(time: str) -> str:
    """Write the minute of an ISO time: 2026-01-31 12:34 UTC."""
    day, _, rest = time.partition("T")
    return f"{day} {rest[:5]} UTC"


def percent(share: float) -> str:
    """Write a share in percent: 50%, 12.3%."""
    return f"{100 * share:.1f}".removesuffix(".0") + "%"


def interval(estimate: Estimate | RateEstimate, form: str = "") -> str:
    """Write the interval of a number, by default that of a share in percent."""
    low, high = (f"{end:{form}}" if form else percent(end) for end in (estimate.low, estimate.high))
    return f"95% interval {low} to {high}"


def about(count: float) -> str:
    """Write an expected count, small ones with a digit more: 35, 3.4, less than 0.1."""
    if count >= 9.95:
        return f"{count:,.0f}"
    return "less than 0.1" if 0 < count < 0.05 else f"{count:.1f}".removesuffix(".0")


def between(estimate: Estimate, to: str = " to ") -> str:
    """The interval of a count in whole numbers."""
    return f"{math.floor(estimate.low + 1e-9):,}{to}{math.ceil(estimate.high - 1e-9):,}"


def share_between(estimate: Estimate, to: str = " to ") -> str:
    """A share with its interval; it is only called all, or nothing, if it is exactly that."""
    if is_vague(estimate):
        return _NOT_KNOWN
    value = ">99%" if 0.995 <= estimate.value < 1 else f"{estimate.value:.0%}"
    value = "<1%" if 0 < estimate.value < 0.005 else value
    low = f"{estimate.low:.0%}" if to == " to " else f"{100 * estimate.low:.0f}"
    return f"{value} ({low}{to}{estimate.high:.0%})"


def cell(estimate: Estimate | RateEstimate | None) -> str:
    """Return an AUC or a share for a table: with its interval, blank if there is none."""
    if estimate is None:
        return ""
    form = ".3f" if isinstance(estimate, Auc) else ".1%"
    value, low, high = (f"{each:{form}}" for each in (estimate.value, estimate.low, estimate.high))
    return _NOT_KNOWN if is_vague(estimate) else f"{value} ({low}-{high})"


def label_line(labels: LabelCounts, column: str | None) -> str:
    """Say how many rows have which label, and in which column, if any has one."""
    is_named = column and (labels.normal or labels.anomaly)
    return f"{labels} (column {column!r})" if is_named else str(labels)


def threshold_line(threshold: float | None, rule: str) -> str:
    """Say which rows are flagged."""
    return f"is_anomaly where anomaly_score > {threshold:.4g} (threshold {rule})"


def flagged_line(flagged: int, n_rows: int, rows: str) -> str:
    """Say how many rows are flagged."""
    share = f" ({flagged / n_rows:.1%})" if n_rows else ""
    return f"{flagged:,} of {n_rows:,} {rows}{share} look anomalous"


def quality_lines(
    auc: Auc | None, why_no_auc: str, evidence: str, labels: LabelCounts | None
) -> list[str]:
    """Say how well labelled rows, scored by fits without them, are ranked, or why not."""
    if auc is None:
        return [f"no AUC on labelled rows: {why_no_auc}"] if why_no_auc else []
    if is_vague(auc):
        return [too_few_labels("whether the order of the rows is better than chance")]
    held_out = auc.n_normal + auc.n_anomaly  # which may not be all
    labelled = held_out if labels is None else labels.normal + labels.anomaly
    rows = f"the {held_out:,}" if held_out == labelled else f"{held_out:,} of the {labelled:,}"
    value = f"AUC {auc.value:.3f} ({interval(auc, '.3f')})"
    return [f"{value} on {rows} labelled rows, each {evidence}"]


def precision_lines(review: ReviewReport | None) -> list[str]:
    """Say how good the ranking is at its top, if labels tell."""
    if review is None:
        return []
    precision, rate = review.average_precision, review.anomalies.value / review.rows
    if is_vague(precision):
        return [too_few_labels("how many of the highest scores are anomalies")]
    value = f"average precision {precision.value:.3f} ({interval(precision, '.3f')})"
    return [f"{value}; a random order has {rate:.3f}"]


def rate_lines(rate: RateEstimate | None) -> list[str]:
    """Describe the anomaly rate, its interval, its basis, and what would give a better estimate."""
    if rate is None:
        return []
    basis = rate.assumption
    if basis == GIVEN and rate.low == rate.high:
        return [f"anomaly rate {rate.value:.1%}, as given"]
    if is_vague(rate):
        return [too_few_labels("which share of the unlabelled rows are anomalies")]
    counted = "anomaly rate"
    if basis in (UNKNOWN, CHOSEN, ANOMALIES_ALONE):
        # Chosen labels need not include every kind of anomaly, and no score counts other kinds.
        counted = "rate of anomalies like the labelled ones"
    line = f"estimated {counted}: {rate.value:.1%} ({interval(rate, '.1%')})"
    line = line if basis == GIVEN else f"{line}, {basis}"
    return [line, f"for a better estimate, {_ADVICE[basis]}"] if basis in _ADVICE else [line]


def sampling_lines(p_value: float | None) -> list[str]:
    """Say whether labelled rows look like a random sample, by their held-out scores."""
    if p_value is None:
        return []
    table = f"a random sample of the table (p-value {p_value:.2g})"
    if p_value < SURPRISE:
        return [f"labelled rows are not {table}: their scores differ from those of other rows"]
    return [f"labelled rows {'may not be' if p_value < _HARDLY else 'look like'} {table}"]


def found_line(top: TopRows) -> str:
    """Say how many of the rows with the highest scores are anomalies, and of random ones."""
    k = top.rows
    if top_is_vague(top):
        unclear = f"how many of these {k:,} rows are anomalies"
        return too_few_labels("whether this row is an anomaly" if k == 1 else unclear)
    if k == 1:
        return (
            f"this row is an anomaly with a probability of {top.precision.value:.0%}, a random row "
            f"with {top.by_chance:.1%}"
        )
    return (
        f"about {about(top.found.value)} of these {k:,} rows are anomalies (95% interval "
        f"{between(top.found)}), compared with {about(top.by_chance)} of {k:,} random rows"
    )


def flagged_lines(
    expected: TopRows | None, flagged: int, labels: LabelCounts | None = None, likely: int = 0
) -> list[str]:
    """Say how many of the flagged rows are expected to be right, or why that is not known.

    Of all rows, flagged or not, `likely` are more likely an anomaly than not.
    """
    if expected is None:
        if labels is None:
            return []
        few = f"no {'anomaly' if labels.normal else 'normal row'} is"
        if min(labels.normal, labels.anomaly):
            few = "too few rows are"
        return [
            f"how many of these rows are anomalies is not known: {few} labelled; look at the first "
            "of them, label them, and fit again"
        ]
    lines = [found_line(expected)] if flagged else []
    unflagged = likely - flagged
    if unflagged > 0:
        rows = pluralize(unflagged, "more row" if flagged else "row")
        has, them = ("has", "it") if unflagged == 1 else ("have", "them")
        likely_rows = f"{rows} {has} an anomaly_probability above 50%"
        lines.append(f"{likely_rows}, but this threshold does not flag {them}")
    if not flagged:
        return [*lines, "the table of rows reviewed shows what the highest scores would turn up"]
    if expected.lift.low <= 1 and not top_is_vague(expected):
        lines.append(
            f"{few_anomalies(expected.found.n_anomaly, 'too few')} to tell whether this is better "
            "than chance; label more rows, those of `riskad suggest` or some at random"
        )
    return lines


def suspects_table(suspects: list[Suspect], id: str | None, name: str, unit: str = "row") -> Table:
    """Return the most suspicious rows, or windows, the first first, for a terminal."""
    columns = {unit: [f"{each.row:,}" for each in suspects]}
    if id:
        columns[id] = [each.id or "" for each in suspects]
    columns[SCORE_COLUMNS[0]] = [f"{each.anomaly_score:.4f}" for each in suspects]
    columns[SCORE_COLUMNS[1]] = ["yes" if each.is_anomaly else "no" for each in suspects]
    if any(each.suppressed_by for each in suspects):
        columns[SUPPRESSED] = [each.suppressed_by or "" for each in suspects]
    if suspects[0].novelty is not None:
        columns["novelty"] = [f"{each.novelty:.2f}" for each in suspects]
    right = [i for i, column in enumerate(columns) if column not in (id, SUPPRESSED)]
    rows = list(zip(*columns.values(), strict=True))
    return Table(list(columns), rows, right=right, on=TERMINAL, name=f"{name} {len(rows)}")


def cost_lines(cost: ExpectedCost | None) -> list[str]:
    """Say what a rule that weighs false alarms against misses is expected to cost, if known."""
    if cost is None or _ends_are_far_apart(cost.cost):
        return []
    alarms, misses, price = cost.false_alarms, cost.misses, cost.cost
    return [
        f"about {about(alarms.value)} false alarms ({between(alarms)}) and "
        f"{about(misses.value)} missed anomalies ({between(misses)}), which together cost "
        f"{about(price.value)} ({between(price)})"
    ]


def option(value: object) -> str:
    """Write the value of an option."""
    if isinstance(value, dict):
        value = tuple(f"{name}={each}" for name, each in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)
