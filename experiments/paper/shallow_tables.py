"""The tables of the shallow experiments: ours beside the published, and what the paper claims.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.datasets import PAPER_SETS
from experiments.paper.published import DEFAULTS, PAPER_FACTS
from experiments.paper.summary import (
    LOSS_NAMES,
    METHOD_NAMES,
    CellSummary,
    Summary,
    few,
    say_dataset,
    say_published,
    say_setting,
    value_order,
)
from experiments.tables import NONE, Table, counted, say_mean, say_share, say_signed

TARGET_SHARE = 0.9  # of rAD's cells are to reach what was published
SMALL_PI_N = 0.2  # up to here, the paper says, rAD is far better than PU
SWEPT = {"prior": "pi_p^e", "a": "a"}

# The semi-supervised SVM that most resembles the published: it takes the unlabelled rows as normal.
LIKE_PUBLISHED = {"kernel": "biased", "unlabelled": "normal"}
# What tells methods apart in the table of means; other settings are the same throughout a part.
_SHOWN = {
    "main": ("loss", "lam", "kernel", "unlabelled"),
    "published": ("loss", "lam"),
    "prior": ("loss", "lam", "prior"),
    "a": ("loss", "lam", "a"),
}
_STROKE = "Ours / published."

Find = Callable[[str], CellSummary | None]  # the cell of a dataset


def main_tables(main: Summary) -> list[Table]:
    """Tables of the part "main": the target, means, rAD, PU, one-class SVMs and the claims."""
    return [
        _reach_table(main),
        _means_table(main),
        *(_rad_table(main, loss) for loss in main.values("loss")),
        *_by_loss_tables(main, "pu", "PU"),
        _svm_table(main),
        _gap_table(main),
        _pi_n_table(main),
    ]


def sweep_tables(part: Summary, main: Summary) -> list[Table]:
    """Tables of the parts "prior" and "a", whose default value is in "main"."""
    curves = product(part.values("loss"), part.values("lam"))
    return [
        _means_table(part),
        *(_sweep_table(part, main, loss, rule) for loss, rule in curves),
        _spread_table(part, main),
    ]


def published_tables(part: Summary) -> list[Table]:
    """Tables of the part "published"."""
    return [_means_table(part), *_by_loss_tables(part, "rad", "rAD with a free intercept")]


def by_rule(rule: object) -> str:
    """Say how lambda was chosen."""
    return f"lambda by rule {rule}"


def headline_rule(main: Summary) -> str | None:
    """The rule for lambda that stands for rAD: "cv" where it was run, else the first that was."""
    rules = main.values("lam")
    return "cv" if "cv" in rules else next(iter(rules), None)


# --- columns over datasets ---------------------------------------------------------------


class Column(NamedTuple):
    """A column over datasets: where its cells are, how to say one, what to average and count.

    `means` are the numbers of a cell that go into the row of means; none if one is missing.
    """

    head: str
    find: Find
    say: Callable[[CellSummary], str]
    means: Callable[[CellSummary], tuple[float, ...]] = lambda cell: ()
    counts: bool = False


def _finder(summary: Summary, method: str, **wanted: Any) -> Find:
    return lambda dataset: summary.cell(dataset, method, **wanted)


def _own_column(head: str, find: Find, trials: int) -> Column:
    """Our means with their standard errors."""
    return Column(
        head,
        find,
        say=lambda cell: cell.say(trials),
        means=lambda cell: (cell.auc.mean,) if cell.auc else (),
        counts=True,
    )


def _both_column(head: str, find: Find, trials: int, errors: bool = True) -> Column:
    """Our means and the published ones; without standard errors as in Tables 4 and 5."""

    def say(cell: CellSummary) -> str:
        ours = cell.say(trials) if errors else cell.say_mean(trials)
        return f"{ours} / {say_published(cell.published, errors)}"

    return Column(head, find, say, means=lambda cell: cell.both or (), counts=True)


def _published_column(head: str, *finders: Find) -> Column:
    """The published number, which any of several cells of a row can give."""
    return Column(
        head,
        lambda dataset: next(filter(None, (find(dataset) for find in finders)), None),
        say=lambda cell: say_published(cell.published),
        means=lambda cell: (cell.published.mean,) if cell.published else (),
    )


def _difference_column(find: Find, head: str = "difference") -> Column:
    """The difference from the published mean in joint standard errors."""
    return Column(head, find, say=lambda cell: say_signed(cell.difference_in_se, 1))


def _dataset_table(
    summary: Summary, title: str, columns: Sequence[Column], note: str = ""
) -> Table:
    """One row for each dataset that has a cell in some column, then means and counts."""
    rows, cells = [], []
    for dataset in summary.datasets:
        line = [column.find(dataset) for column in columns]
        if any(line):
            texts = [c.say(cell) if cell else NONE for c, cell in zip(columns, line, strict=True)]
            rows.append([say_dataset(dataset), *texts])
            cells.append(line)
    by_column = [list(line) for line in zip(*cells, strict=True)]
    foot = [*_mean_row(columns, by_column), *_count_rows(columns, by_column)]
    head = ("dataset (d, n, pi_n)", *(column.head for column in columns))
    return Table(title, head, rows, foot, note=note)


def _mean_row(
    columns: Sequence[Column], cells: Sequence[Sequence[CellSummary | None]]
) -> list[list[str]]:
    """Means of columns over the sets on which every column has its numbers, if it has any."""
    numbers = [
        [column.means(cell) if cell else () for cell in line]
        for column, line in zip(columns, cells, strict=False)
    ]
    averaged = [line for line in numbers if any(line)]
    if not averaged:
        return []
    rows = [i for i in range(len(averaged[0])) if all(line[i] for line in averaged)]
    if not rows:
        return []
    means = [map(fmean, zip(*(line[i] for i in rows), strict=True)) for line in numbers]
    texts = [" / ".join(map(say_mean, mean)) for mean in means]
    return [[f"mean of {counted(len(rows), 'set')}", *texts]]


def _count_rows(
    columns: Sequence[Column], cells: Sequence[Sequence[CellSummary | None]]
) -> list[list[str]]:
    """How many cells of a column reach the published mean, and are within two joint errors."""
    questions: dict[str, Callable[[CellSummary], bool | None]] = {
        "reach published - 2 SE": lambda cell: cell.reaches,
        "within 2 joint SE": lambda cell: cell.within,
        "the same, rounding allowed for": lambda cell: cell.within_rounded,
    }
    rows = []
    for name, ask in questions.items():
        row = [name]
        for column, line in zip(columns, cells, strict=False):
            answers = [ask(cell) for cell in line if cell and column.counts]
            given = [answer for answer in answers if answer is not None]
            row.append(f"{sum(given)} of {len(given)}" if given else "")
        if any(row[1:]):
            rows.append(row)
    return rows


# --- tables over datasets ----------------------------------------------------------------


def _rad_table(main: Summary, loss: str) -> Table:
    rules, headline = main.values("lam"), headline_rule(main)
    find = {rule: _finder(main, "rad", loss=loss, lam=rule) for rule in rules}
    columns = [
        _published_column("published", *find.values()),
        *(_own_column(str(rule), find[rule], main.n_trials) for rule in rules),
        _difference_column(find[headline], f"{headline}: difference"),
    ]
    return _dataset_table(main, f"rAD, {LOSS_NAMES[loss]} loss, by rule for lambda", columns)


def _by_loss_tables(part: Summary, method: str, title: str) -> list[Table]:
    """Ours and published, and their difference, for each loss; a table for each rule for lambda."""
    tables = []
    for rule in part.values("lam", method):
        columns: list[Column] = []
        for loss in part.values("loss", method):
            find = _finder(part, method, loss=loss, lam=rule)
            columns += [_both_column(LOSS_NAMES[loss], find, part.n_trials)]
            columns += [_difference_column(find)]
        tables.append(_dataset_table(part, f"{title}, {by_rule(rule)}", columns, note=_STROKE))
    return tables


def _svm_table(main: Summary) -> Table:
    """The one-class SVM and the three semi-supervised ones."""
    plain = _finder(main, "ocsvm")
    semi = _finder(main, "semi_ocsvm", **LIKE_PUBLISHED)
    others = {
        "biased, unlabelled outside": _finder(
            main, "semi_ocsvm", kernel="biased", unlabelled="outside"
        ),
        "laplacian": _finder(main, "semi_ocsvm", kernel="laplacian"),
    }
    columns = [
        _both_column("OC-SVM", plain, main.n_trials),
        _difference_column(plain),
        _published_column("semi: published", semi, *others.values()),
        _own_column("biased, unlabelled normal", semi, main.n_trials),
        _difference_column(semi),
        *(_own_column(name, find, main.n_trials) for name, find in others.items()),
    ]
    note = (
        f"OC-SVM: {_STROKE.lower()} Of the three semi-supervised variants, the published column "
        'most resembles "biased, unlabelled normal", an SVM that takes the unlabelled rows as '
        "normal: that one is the comparison of like with like."
    )
    return _dataset_table(main, "OC-SVM and semi-OC-SVM", columns, note)


def _sweep_table(part: Summary, main: Summary, loss: str, rule: str) -> Table:
    name = part.experiment
    columns = [
        _both_column(
            _say_value(name, value),
            lambda dataset, value=value: sweep_cell(part, main, dataset, loss, rule, value),
            part.n_trials,
            errors=False,
        )
        for value in sweep_values(part, main)
    ]
    title = f"rAD, {LOSS_NAMES[loss]} loss, {by_rule(rule)}, by {SWEPT[name]}"
    return _dataset_table(part, title, columns, note=_STROKE)


def _say_value(name: str, value: object) -> str:
    """A value of the setting that a part varies; its default is that of "main"."""
    return say_setting(name, value) + (" (main)" if value == DEFAULTS[name] else "")


# --- tables over methods, losses and rules -----------------------------------------------


def _means_table(part: Summary) -> Table:
    """Each method and setting, over the sets that all of them have."""
    variants: dict[tuple[Any, ...], dict[str, CellSummary]] = {}
    for cell in part.cells:
        shown = {name: cell.settings.get(name) for name in _SHOWN[part.experiment]}
        if cell.auc:
            variants.setdefault((cell.method, *shown.items()), {})[cell.dataset] = cell
    sets = [name for name in part.datasets if all(name in cells for cells in variants.values())]
    absent = [name for name in part.datasets if name not in sets]
    head = (
        "method",
        "sets",
        "AUC",
        "published",
        "AUC - published",
        "reach",
        "within 2 SE",
        "average precision",
        "fit (ms)",
    )
    own = " The paper gives no SE here: it is ours." if part.experiment in SWEPT else ""
    published, joint = ("", "") if own else ("published ", "joint ")
    note = (
        f'"reach" counts sets with mean >= published - 2 {published}SE; "within 2 SE" those within '
        f"two {joint}SE either way, and after the stroke also those that only the rounding of the "
        f"published mean may keep out.{own}"
    )
    if absent:
        note += f" Only sets that all rows have, so without {', '.join(absent)}."
    rows = [
        _means_row(variant, [cells[name] for name in sets], part.n_trials)
        for variant, cells in variants.items()
        if sets
    ]
    return Table("Means over datasets", head, rows, note=note)


def _means_row(variant: Sequence[Any], cells: Sequence[CellSummary], trials: int) -> list[str]:
    judged = [cell.reaches for cell in cells if cell.reaches is not None]
    within = [cell.within for cell in cells if cell.within is not None]
    rounded = sum(bool(cell.within_rounded) for cell in cells)
    both = [cell.both for cell in cells if cell.both]
    ours, theirs = (fmean(pair[i] for pair in both) for i in (0, 1))
    precision = fmean(c.average_precision.mean for c in cells if c.average_precision)
    seconds = fmean(cell.fit_seconds for cell in cells if cell.fit_seconds is not None)
    return [
        _say_variant(*variant),
        f"{len(cells)}{few(min(cell.n_ok for cell in cells), trials)}",
        say_mean(ours),
        say_mean(theirs),
        say_signed(ours - theirs, 3),
        f"{sum(judged)} of {len(judged)}" if judged else NONE,
        f"{sum(within)} / {rounded} of {len(within)}" if within else NONE,
        say_mean(precision),
        f"{1000 * seconds:.1f}",
    ]


def _say_variant(method: str, *settings: tuple[str, Any]) -> str:
    """A method and its settings in a line; a loss or a kernel needs no name."""
    parts = [METHOD_NAMES[method]]
    for name, value in settings:
        if value is None:
            continue
        text = LOSS_NAMES[value] if name == "loss" else say_setting(name, value)
        head = {"loss": "", "kernel": "", "lam": "lambda "}.get(name, f"{name} ")
        parts.append(head + text)
    return ", ".join(parts)


def _reach_table(main: Summary) -> Table:
    """The target of "main": how often rAD reaches the published, loss by loss.

    A set on which every trial failed is not reached.
    """
    rule, rows, counts, missed_for = headline_rule(main), [], [], []
    for loss in main.values("loss"):
        cells = [c for d in main.datasets if (c := main.cell(d, "rad", loss=loss, lam=rule))]
        both = [cell.both for cell in cells if cell.both]
        if not both:
            continue
        ours, theirs = (fmean(pair[i] for pair in both) for i in (0, 1))
        missed = [cell.dataset for cell in cells if not cell.reaches]
        n_reach, n_sets = len(cells) - len(missed), len(cells)
        counts.append((n_reach, n_sets))
        if n_reach < TARGET_SHARE * n_sets:
            missed_for.append(LOSS_NAMES[loss])
        texts = [say_mean(ours), say_mean(theirs), say_signed(ours - theirs, 3), ", ".join(missed)]
        rows.append([LOSS_NAMES[loss], *say_share(n_reach, n_sets), *texts])
    verdict = f"missed for {' and '.join(missed_for)}" if missed_for else "met"
    totals = [sum(numbers) for numbers in zip(*counts, strict=True)]
    return Table(
        f"Target: rAD reaches what was published, {by_rule(rule)}",
        ("loss", "reach", "share", "AUC", "published", "AUC - published", "missed on"),
        rows,
        [["all", *say_share(*totals), "", "", "", ""]] if len(rows) > 1 else [],
        note=f"A set is reached where mean AUC >= published - 2 published SE. The target, at least "
        f"{100 * TARGET_SHARE:g} % of the sets for each loss, is {verdict}. AUC and published are "
        "means over the sets.",
        left=(0, 6),
    )


# --- what the paper claims ---------------------------------------------------------------


class SetGap(NamedTuple):
    """AUC of rAD less that of another method on one set, ours and published."""

    pi_n: float
    ours: float
    published: float


def set_gaps(main: Summary, loss: str, rule: str | None, other: str) -> list[SetGap]:
    """AUC of rAD less that of `other` on each of the paper's sets on which both were run.

    PU is taken with the same loss, the semi-supervised SVM as it most resembles the published.
    """
    wanted = {"pu": {"loss": loss}, "semi_ocsvm": LIKE_PUBLISHED}.get(other, {})
    gaps = []
    for dataset in PAPER_SETS:
        rad = main.cell(dataset, "rad", loss=loss, lam=rule)
        rival = main.cell(dataset, other, **wanted)
        if rad and rival and rad.both and rival.both:
            differences = (x - y for x, y in zip(rad.both, rival.both, strict=True))
            gaps.append(SetGap(PAPER_FACTS[dataset].pi_n, *differences))
    return gaps


def _say_gap(gaps: Sequence[SetGap]) -> str:
    """Our mean difference of AUC and the published one."""
    if not gaps:
        return NONE
    ours, theirs = fmean(gap.ours for gap in gaps), fmean(gap.published for gap in gaps)
    return f"{say_signed(ours, 3)} / {say_signed(theirs, 3)}"


def _gap_table(main: Summary) -> Table:
    """RAD less PU and less the one-class SVMs: per loss and rule, ours / published."""
    others = ("pu", "ocsvm", "semi_ocsvm")
    rows = []
    for loss, rule in product(main.values("loss"), main.values("lam")):
        three = [set_gaps(main, loss, rule, other) for other in others]
        if any(three):
            sets = "/".join(dict.fromkeys(str(len(gaps)) for gaps in three if gaps))
            rows.append([LOSS_NAMES[loss], str(rule), sets, *map(_say_gap, three)])
    return Table(
        "Claim: on average, rAD outperforms PU and the one-class SVMs",
        ("loss", "lambda", "sets", *(f"rAD - {METHOD_NAMES[other]}" for other in others)),
        rows,
        note="Mean difference of AUC over the sets on which both were run, ours / published.",
        left=(0, 1),
    )


def _pi_n_table(main: Summary) -> Table:
    """RAD less PU where anomalies are rare and where they are not."""
    rows = []
    for loss, rule in product(main.values("loss"), main.values("lam")):
        gaps = set_gaps(main, loss, rule, "pu")
        kinds = [gap for gap in gaps if gap.pi_n <= SMALL_PI_N]
        others = [gap for gap in gaps if gap.pi_n > SMALL_PI_N]
        if gaps:
            texts = [text for some in (kinds, others) for text in (str(len(some)), _say_gap(some))]
            rows.append([LOSS_NAMES[loss], str(rule), *texts])
    small, large = f"pi_n <= {SMALL_PI_N:g}", f"pi_n > {SMALL_PI_N:g}"
    return Table(
        f"Claim: rAD - PU is large where {small} and small elsewhere",
        ("loss", "lambda", "sets", f"gap, {small}", "sets", f"gap, {large}"),
        rows,
        note="Mean difference of AUC, ours / published.",
        left=(0, 1),
    )


@dataclass(frozen=True)
class Sweep:
    """Mean AUC of rAD over sets at each value of a setting, ours and published.

    The sets are those on which every rule was run with this loss at every value.
    """

    loss: str
    rule: str
    n_sets: int
    values: tuple[Any, ...]
    ours: tuple[float, ...]
    published: tuple[float, ...]


def sweeps(part: Summary, main: Summary) -> list[Sweep]:
    """Curves over the setting that a part ("prior" or "a") is named after."""
    rules, values, curves = part.values("lam"), sweep_values(part, main), []
    for loss in part.values("loss"):
        pairs: dict[str, Mapping[tuple[str, Any], tuple[float, float]]] = {}
        for dataset in part.datasets:
            cells = {
                (rule, value): sweep_cell(part, main, dataset, loss, rule, value)
                for rule, value in product(rules, values)
            }
            both = {place: cell.both for place, cell in cells.items() if cell and cell.both}
            if len(both) == len(cells):
                pairs[dataset] = both
        for rule in rules if pairs else ():
            ours, theirs = (
                tuple(fmean(both[rule, value][i] for both in pairs.values()) for value in values)
                for i in (0, 1)
            )
            curves.append(Sweep(loss, rule, len(pairs), tuple(values), ours, theirs))
    return curves


def sweep_values(part: Summary, main: Summary) -> list[Any]:
    """Values in the order of the paper, with the default if "main" was run."""
    name = part.experiment
    values = {*part.values(name), *([DEFAULTS[name]] if main.cells else [])}
    return sorted(values, key=lambda value: value_order(name, value))


def sweep_cell(
    part: Summary, main: Summary, dataset: str, loss: str, rule: str, value: Any
) -> CellSummary | None:
    """The cell at a value of the setting that a part varies; that of the default is in "main"."""
    name = part.experiment
    place = main if value == DEFAULTS[name] else part
    return place.cell(dataset, "rad", loss=loss, lam=rule, **{name: value})


def _spread_table(part: Summary, main: Summary) -> Table:
    name = part.experiment

    def best(sweep: Sweep, means: Sequence[float]) -> str:
        return _say_value(name, sweep.values[means.index(max(means))])

    rows = [
        [
            LOSS_NAMES[sweep.loss],
            sweep.rule,
            str(sweep.n_sets),
            *(say_mean(max(means) - min(means)) for means in (sweep.ours, sweep.published)),
            *(best(sweep, means) for means in (sweep.ours, sweep.published)),
        ]
        for sweep in sweeps(part, main)
    ]
    return Table(
        f"Claim: rAD is robust to {SWEPT[name]}",
        ("loss", "lambda", "sets", "ours", "published", "our best", "published best"),
        rows,
        note="The spread: largest less smallest mean AUC over the values of "
        f"{SWEPT[name]}, each a mean over the same sets; and the value with the largest mean.",
        left=(0, 1),
    )
