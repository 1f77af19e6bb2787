"""The tables of the shallow experiments: ours beside the published, and what the paper claims.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.paper.published import DEFAULTS, PAPER_FACTS
from experiments.paper.summary import (
    BOTH,
    LOSS_NAMES,
    METHOD_NAMES,
    CellSummary,
    Summary,
    few,
    say_both,
    say_dataset,
    say_published,
    say_setting,
)
from experiments.tables import NONE, Table, counted, say_mean, say_share, say_signed

TARGET_SHARE = 0.9  # of rAD's cells are to reach what was published
SMALL_PI_N = 0.2  # up to here, the paper says, rAD is far better than PU
HEADLINE_RULE = "cv"  # the rule for lambda that stands for rAD
SWEPT = {"prior": "pi_p^e", "a": "a"}
SWEPT_VALUES = {"prior": ("true", 0.9, 0.8, 0.7, 0.6), "a": (0.1, 0.3, 0.7, 0.9)}

# The semi-supervised SVM that most resembles the published: it takes the unlabelled rows as normal.
LIKE_PUBLISHED = {"kernel": "biased", "unlabelled": "normal"}
_STROKE = "Ours / published."


def main_tables(main: Summary) -> list[Table]:
    """Tables of the part "main": the target, means, rAD, PU, one-class SVMs and the claims."""
    return [
        _reach_table(main),
        _means_table(main),
        *(_rad_table(main, loss) for loss in main.values("loss")),
        _by_loss_table(main, "pu", "cv", "PU"),
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
    title = "rAD with a free intercept"
    return [_means_table(part), _by_loss_table(part, "rad", "published", title)]


def by_rule(rule: str) -> str:
    """Say how lambda was chosen."""
    return f"lambda by rule {rule}"


# --- columns over datasets ---------------------------------------------------------------


class Column(NamedTuple):
    """A column over datasets: its cells, how to say one, what to average, whether to count."""

    head: str
    cells: Sequence[CellSummary]
    say: Callable[[CellSummary], str]
    means: Callable[[CellSummary], tuple[float, ...]] = lambda cell: ()
    counts: bool = False


def _cells(summary: Summary, method: str, **wanted: Any) -> list[CellSummary]:
    return [summary.cell(dataset, method, **wanted) for dataset in summary.datasets]


def _own_column(head: str, cells: Sequence[CellSummary], trials: int) -> Column:
    """Our means with their standard errors."""
    return Column(head, cells, lambda cell: cell.say(trials), lambda cell: (cell.auc.mean,), True)


def _both_column(
    head: str, cells: Sequence[CellSummary], trials: int, errors: bool = True
) -> Column:
    """Our means and the published ones; without standard errors as in Tables 4 and 5."""

    def say(cell: CellSummary) -> str:
        ours = cell.say(trials) if errors else say_mean(cell.auc.mean) + few(cell.auc.n, trials)
        return f"{ours} / {say_published(cell.published, errors)}"

    return Column(head, cells, say, lambda cell: cell.both, True)


def _published_column(head: str, cells: Sequence[CellSummary]) -> Column:
    return Column(
        head, cells, lambda cell: say_published(cell.published), lambda cell: cell.both[1:]
    )


def _difference_column(cells: Sequence[CellSummary], head: str = "difference") -> Column:
    """The difference from the published mean in joint standard errors."""
    return Column(head, cells, say=lambda cell: say_signed(cell.difference_in_se, 1))


def _dataset_table(
    summary: Summary, title: str, columns: Sequence[Column], note: str = ""
) -> Table:
    """One row for each dataset, then means and how many cells come up to the published."""
    rows = [
        [say_dataset(dataset), *(column.say(column.cells[i]) for column in columns)]
        for i, dataset in enumerate(summary.datasets)
    ]
    means = [map(fmean, zip(*map(c.means, c.cells), strict=True)) for c in columns]
    foot = [
        [f"mean of {counted(len(rows), 'set')}", *(" / ".join(map(say_mean, m)) for m in means)]
    ]
    questions = {
        "reach published - 2 SE": "reaches",
        "within 2 joint SE": "within",
        "the same, rounding allowed for": "within_rounded",
    }
    for name, answer in questions.items():
        yes = [sum(getattr(cell, answer) for cell in column.cells) for column in columns]
        texts = [
            f"{n} of {len(rows)}" if c.counts else "" for n, c in zip(yes, columns, strict=True)
        ]
        foot.append([name, *texts])
    head = ("dataset (d, n, pi_n)", *(column.head for column in columns))
    return Table(title, head, rows, foot, note=note)


# --- tables over datasets ----------------------------------------------------------------


def _rad_table(main: Summary, loss: str) -> Table:
    cells = {rule: _cells(main, "rad", loss=loss, lam=rule) for rule in main.values("lam")}
    headline = cells[HEADLINE_RULE]
    columns = [
        _published_column("published", headline),
        *(_own_column(rule, those, main.n_trials) for rule, those in cells.items()),
        _difference_column(headline, f"{HEADLINE_RULE}: difference"),
    ]
    return _dataset_table(main, f"rAD, {LOSS_NAMES[loss]} loss, by rule for lambda", columns)


def _by_loss_table(part: Summary, method: str, rule: str, title: str) -> Table:
    """Ours and published, and their difference, for each loss."""
    columns: list[Column] = []
    for loss in part.values("loss", method):
        cells = _cells(part, method, loss=loss, lam=rule)
        columns += [_both_column(LOSS_NAMES[loss], cells, part.n_trials), _difference_column(cells)]
    return _dataset_table(part, f"{title}, {by_rule(rule)}", columns, note=_STROKE)


def _svm_table(main: Summary) -> Table:
    """The one-class SVM and the three semi-supervised ones."""
    plain, semi = _cells(main, "ocsvm"), _cells(main, "semi_ocsvm", **LIKE_PUBLISHED)
    outside = _cells(main, "semi_ocsvm", kernel="biased", unlabelled="outside")
    laplacian = _cells(main, "semi_ocsvm", kernel="laplacian")
    columns = [
        _both_column("OC-SVM", plain, main.n_trials),
        _difference_column(plain),
        _published_column("semi: published", semi),
        _own_column("biased, unlabelled normal", semi, main.n_trials),
        _difference_column(semi),
        _own_column("biased, unlabelled outside", outside, main.n_trials),
        _own_column("laplacian", laplacian, main.n_trials),
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
            _sweep_cells(part, main, loss, rule, value),
            part.n_trials,
            errors=False,
        )
        for value in SWEPT_VALUES[name]
    ]
    title = f"rAD, {LOSS_NAMES[loss]} loss, {by_rule(rule)}, by {SWEPT[name]}"
    return _dataset_table(part, title, columns, note=_STROKE)


def _sweep_cells(
    part: Summary, main: Summary, loss: str, rule: str, value: Any
) -> list[CellSummary]:
    """Cells at a value of the setting that a part varies; those of the default are in "main"."""
    name = part.experiment
    place = main if value == DEFAULTS[name] else part
    wanted = {"loss": loss, "lam": rule, name: value}
    return [place.cell(dataset, "rad", **wanted) for dataset in part.datasets]


def _say_value(name: str, value: object) -> str:
    """A value of the setting that a part varies; its default is that of "main"."""
    return say_setting(value) + (" (main)" if value == DEFAULTS[name] else "")


# --- tables over methods, losses and rules -----------------------------------------------


def _means_table(part: Summary) -> Table:
    """Each method and setting over all sets."""
    shown = ("loss", "lam", "kernel", "unlabelled", *SWEPT.keys() & {part.experiment})
    variants: dict[str, list[CellSummary]] = defaultdict(list)
    for cell in part.cells:
        settings = {name: cell.settings[name] for name in shown if name in cell.settings}
        variants[_say_variant(cell.method, settings)].append(cell)
    counts = ("reach", "within 2 SE")
    head = ("method", "sets", *BOTH, *counts, "average precision", "fit (ms)")
    own = " The paper gives no SE here: it is ours." if part.experiment in SWEPT else ""
    published, joint = ("", "") if own else ("published ", "joint ")
    note = (
        f'"reach" counts sets with mean >= published - 2 {published}SE; "within 2 SE" those within '
        f"two {joint}SE either way, and after the stroke also those that only the rounding of the "
        f"published mean may keep out.{own}"
    )
    rows = [_means_row(name, cells, part.n_trials) for name, cells in variants.items()]
    return Table("Means over datasets", head, rows, note=note)


def _means_row(name: str, cells: Sequence[CellSummary], trials: int) -> list[str]:
    n = len(cells)
    reached, within, rounded = (
        sum(getattr(cell, answer) for cell in cells)
        for answer in ("reaches", "within", "within_rounded")
    )
    return [
        name,
        f"{n}{few(min(cell.auc.n for cell in cells), trials)}",
        *say_both(cells),
        f"{reached} of {n}",
        f"{within} / {rounded} of {n}",
        say_mean(fmean(cell.average_precision for cell in cells)),
        f"{1000 * fmean(cell.fit_seconds for cell in cells):.1f}",
    ]


def _say_variant(method: str, settings: dict[str, Any]) -> str:
    """A method and its settings in a line; a loss or a kernel needs no name."""
    parts = [METHOD_NAMES[method]]
    for name, value in settings.items():
        text = LOSS_NAMES[value] if name == "loss" else say_setting(value)
        parts.append({"loss": "", "kernel": "", "lam": "lambda "}.get(name, f"{name} ") + text)
    return ", ".join(parts)


def _reach_table(main: Summary) -> Table:
    """The target of "main": how often rAD reaches the published, loss by loss."""
    rows, n_all, missed_for, n_sets = [], 0, [], len(main.datasets)
    for loss in main.values("loss"):
        cells = _cells(main, "rad", loss=loss, lam=HEADLINE_RULE)
        missed = [cell.dataset for cell in cells if not cell.reaches]
        n_reach = n_sets - len(missed)
        n_all += n_reach
        if n_reach < TARGET_SHARE * n_sets:
            missed_for.append(LOSS_NAMES[loss])
        share = say_share(n_reach, n_sets)
        rows.append([LOSS_NAMES[loss], *share, *say_both(cells), ", ".join(missed)])
    verdict = f"missed for {' and '.join(missed_for)}" if missed_for else "met"
    return Table(
        f"Target: rAD reaches what was published, {by_rule(HEADLINE_RULE)}",
        ("loss", "reach", "share", *BOTH, "missed on"),
        rows,
        [["all", *say_share(n_all, len(rows) * n_sets), "", "", "", ""]],
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


def set_gaps(main: Summary, loss: str, rule: str, other: str) -> list[SetGap]:
    """AUC of rAD less that of `other` on each set.

    PU is taken with the same loss, the semi-supervised SVM as it most resembles the published.
    """
    wanted = {"pu": {"loss": loss}, "semi_ocsvm": LIKE_PUBLISHED}.get(other, {})
    pairs = zip(
        _cells(main, "rad", loss=loss, lam=rule), _cells(main, other, **wanted), strict=True
    )
    return [
        SetGap(
            PAPER_FACTS[rad.dataset]["pi_n"],
            rad.auc.mean - rival.auc.mean,
            rad.published.mean - rival.published.mean,
        )
        for rad, rival in pairs
    ]


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
        gaps = [_say_gap(set_gaps(main, loss, rule, other)) for other in others]
        rows.append([LOSS_NAMES[loss], rule, str(len(main.datasets)), *gaps])
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
        rare = [gap for gap in gaps if gap.pi_n <= SMALL_PI_N]
        frequent = [gap for gap in gaps if gap.pi_n > SMALL_PI_N]
        texts = [text for some in (rare, frequent) for text in (str(len(some)), _say_gap(some))]
        rows.append([LOSS_NAMES[loss], rule, *texts])
    small, large = f"pi_n <= {SMALL_PI_N:g}", f"pi_n > {SMALL_PI_N:g}"
    return Table(
        f"Claim: rAD - PU is large where {small} and small elsewhere",
        ("loss", "lambda", "sets", f"gap, {small}", "sets", f"gap, {large}"),
        rows,
        note="Mean difference of AUC, ours / published.",
        left=(0, 1),
    )


class Sweep(NamedTuple):
    """Mean AUC of rAD over sets at each of `SWEPT_VALUES`, ours and published."""

    loss: str
    rule: str
    ours: tuple[float, ...]
    published: tuple[float, ...]


def sweeps(part: Summary, main: Summary) -> list[Sweep]:
    """Curves over the setting that a part ("prior" or "a") is named after."""
    curves = []
    for loss, rule in product(part.values("loss"), part.values("lam")):
        columns = [
            _sweep_cells(part, main, loss, rule, value) for value in SWEPT_VALUES[part.experiment]
        ]
        ours = tuple(fmean(cell.auc.mean for cell in cells) for cells in columns)
        theirs = tuple(fmean(cell.published.mean for cell in cells) for cells in columns)
        curves.append(Sweep(loss, rule, ours, theirs))
    return curves


def _spread_table(part: Summary, main: Summary) -> Table:
    name = part.experiment
    rows = []
    for sweep in sweeps(part, main):
        curves = (sweep.ours, sweep.published)
        spreads = [say_mean(max(means) - min(means)) for means in curves]
        best = [_say_value(name, SWEPT_VALUES[name][m.index(max(m))]) for m in curves]
        sets = str(len(part.datasets))
        rows.append([LOSS_NAMES[sweep.loss], sweep.rule, sets, *spreads, *best])
    return Table(
        f"Claim: rAD is robust to {SWEPT[name]}",
        ("loss", "lambda", "sets", "ours", "published", "our best", "published best"),
        rows,
        note="The spread: largest less smallest mean AUC over the values of "
        f"{SWEPT[name]}, each a mean over the same sets; and the value with the largest mean.",
        left=(0, 1),
    )
