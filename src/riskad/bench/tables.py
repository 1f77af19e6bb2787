"""The tables of an experiment: ours beside the published, and what the paper claims.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from riskad.bench.columns import (
    STROKE,
    SWEPT,
    Column,
    Maker,
    both_column,
    dataset_table,
    difference_column,
    finder,
    mean_of,
    means_column,
    own_column,
    published_column,
    say_gap,
    say_value,
    say_variant,
    sweep_finder,
)
from riskad.bench.comparisons import (
    LossReach,
    Overall,
    Sweep,
    gaps,
    headline_rule,
    overall,
    reach_by_loss,
    sweep_values,
    sweeps,
)
from riskad.bench.formats import Table, shorten
from riskad.bench.summary import (
    LIKE_PUBLISHED,
    SMALL_PI_N,
    TARGET_SHARE,
    Remark,
    Summary,
    by_rule,
    counted,
    loss_name,
    method_name,
)
from riskad.bench.words import NONE, few, say_estimate, say_mean, say_share, say_signed

__all__ = ["remark_table", "svm_table", "tables_of"]

_MOST_REMARKS = 6
_SEMI_VARIANTS: dict[str, dict[str, str]] = {
    "biased, unlabelled outside": {"kernel": "biased", "unlabelled": "outside"},
    "laplacian": {"kernel": "laplacian"},
}


def tables_of(summary: Summary, experiment: str) -> list[Table]:
    """Tables of an experiment, in the order in which they are read."""
    makers: dict[str, Maker] = {
        "main": _main_tables,
        "prior": _sweep_tables,
        "a": _sweep_tables,
        "published": _published_tables,
    }
    first = [_reach_table(summary)] if experiment == "main" else []
    rest = makers.get(experiment, _plain_tables)(summary, experiment)
    return [table for table in (*first, _overview(summary, experiment), *rest) if table.rows]


# --- tables over datasets ----------------------------------------------------------------


def _main_tables(summary: Summary, experiment: str) -> list[Table]:
    return [
        *(_rad_table(summary, loss) for loss in summary.values(experiment, "loss")),
        *_by_loss(summary, experiment, "pu", "PU"),
        svm_table(summary),
        _gap_table(summary),
        _pi_n_table(summary),
    ]


def _rad_table(summary: Summary, loss: str) -> Table:
    rules = summary.values("main", "lam", loss=loss)
    find = {rule: finder(summary, "main", "rad", loss=loss, lam=rule) for rule in rules}
    headline = headline_rule(summary)
    shown = [headline] if headline in rules else rules[:1]
    trials = summary.n_trials("main")
    columns = [
        published_column("published", *find.values()),
        *(own_column(str(rule), find[rule], trials) for rule in rules),
        *(difference_column(find[rule], f"{rule}: difference") for rule in shown),
    ]
    title = f"rAD, {loss_name(loss)} loss, by rule for lambda"
    return dataset_table(summary, "main", title, columns)


def _by_loss(summary: Summary, experiment: str, method: str, title: str) -> list[Table]:
    """Ours and published, and their difference, for each loss; a table for each rule for lambda."""
    trials, tables = summary.n_trials(experiment), []
    for rule in summary.values(experiment, "lam", method) or [None]:
        columns: list[Column] = []
        for loss in summary.values(experiment, "loss", method, lam=rule):
            find = finder(summary, experiment, method, loss=loss, lam=rule)
            columns += [both_column(loss_name(loss), find, trials), difference_column(find)]
        full = title if rule is None else f"{title}, {by_rule(rule)}"
        tables.append(dataset_table(summary, experiment, full, columns, note=STROKE))
    return tables


def svm_table(summary: Summary) -> Table:
    """The one-class SVM and the three semi-supervised ones."""
    trials = summary.n_trials("main")
    plain = finder(summary, "main", "ocsvm")
    semi = finder(summary, "main", "semi_ocsvm", **LIKE_PUBLISHED)
    others = {
        name: finder(summary, "main", "semi_ocsvm", **wanted)
        for name, wanted in _SEMI_VARIANTS.items()
    }
    columns = [
        both_column("OC-SVM", plain, trials),
        difference_column(plain),
        published_column("semi: published", semi, *others.values()),
        own_column("biased, unlabelled normal", semi, trials),
        difference_column(semi),
        *(own_column(name, find, trials) for name, find in others.items()),
    ]
    note = (
        f"OC-SVM: {STROKE.lower()} Of the three semi-supervised variants, the published column "
        'most resembles "biased, unlabelled normal", an SVM that takes the unlabelled rows as '
        "normal: that one is "
        "the comparison of like with like."
    )
    return dataset_table(summary, "main", "OC-SVM and semi-OC-SVM", columns, note)


def _sweep_tables(summary: Summary, experiment: str) -> list[Table]:
    curves = product(summary.values(experiment, "loss"), summary.values(experiment, "lam"))
    tables = [_sweep_table(summary, experiment, loss, rule) for loss, rule in curves]
    return [*tables, _spread_table(summary, experiment)]


def _sweep_table(summary: Summary, experiment: str, loss: str, rule: object) -> Table:
    columns = [
        means_column(
            say_value(experiment, value),
            sweep_finder(summary, experiment, loss, rule, value),
            summary.n_trials(experiment),
        )
        for value in sweep_values(summary, experiment, loss, [rule])
    ]
    title = f"rAD, {loss_name(loss)} loss, {by_rule(rule)}, by {SWEPT[experiment]}"
    return dataset_table(summary, experiment, title, columns, note=STROKE)


def _published_tables(summary: Summary, experiment: str) -> list[Table]:
    return _by_loss(summary, experiment, "rad", "rAD with a free intercept")


def _plain_tables(summary: Summary, experiment: str) -> list[Table]:
    """For an experiment the paper does not have: a table for each method and setting."""
    tables = []
    for entry in overall(summary, experiment):
        find = entry.cells.get
        columns = [
            own_column("AUC", find, summary.n_trials(experiment)),
            Column(
                "average precision",
                find,
                lambda cell: say_estimate(cell.average_precision),
                lambda cell: mean_of(cell.average_precision),
            ),
            Column("trials", find, lambda cell: str(cell.n_ok)),
        ]
        title = say_variant(entry)
        tables.append(dataset_table(summary, experiment, title, columns))
    return tables


# --- tables over methods, losses and rules -----------------------------------------------


def _reach_table(summary: Summary) -> Table:
    """The target of the experiment "main": how often rAD reaches the published, loss by loss."""
    found = reach_by_loss(summary)
    rule = found[0].rule if found else None
    n_reach, n_cells = sum(row.n_reach for row in found), sum(row.n_sets for row in found)
    missed = [loss_name(row.loss) for row in found if row.n_reach < TARGET_SHARE * row.n_sets]
    verdict = f"missed for {' and '.join(missed)}" if missed else "met"
    fewest = min((row.fewest for row in found), default=0)
    few = f" There are sets with no more than {counted(fewest, 'trial')}."
    return Table(
        f"Target: rAD reaches what was published, {by_rule(rule)}",
        ("loss", "reach", "share", "AUC", "published", "AUC - published", "missed on"),
        [_reach_row(row) for row in found],
        [["all", *say_share(n_reach, n_cells), "", "", "", ""]] if len(found) > 1 else [],
        note=f"A set is reached where mean AUC >= published - 2 published SE. The target, at least "
        f"{100 * TARGET_SHARE:g} % of the sets for each loss, is {verdict}. AUC and published are "
        f"means over the sets.{few if fewest < summary.n_trials('main') else ''}",
        left=(0, 6),
    )


def _reach_row(row: LossReach) -> list[str]:
    return [
        loss_name(row.loss),
        *say_share(row.n_reach, row.n_sets),
        say_mean(row.auc),
        say_mean(row.published),
        say_signed(row.auc - row.published, 3),
        ", ".join(row.missed),
    ]


def _overview(summary: Summary, experiment: str) -> Table:
    """Means over datasets; what an experiment has nothing of, as a published mean, is left out."""
    entries, trials = overall(summary, experiment), summary.n_trials(experiment)
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
    rows = [_overview_row(entry, trials) for entry in entries]
    kept = [i for i in range(len(head)) if any(row[i] != NONE for row in rows)]
    notes = [
        _counts_note(experiment) if any(entry.n_judged for entry in entries) else "",
        _sets_note(entries),
        'In the column "sets", [n] says that one of them has no more than n trials.'
        if any(entry.fewest < trials for entry in entries)
        else "",
    ]
    return Table(
        "Means over datasets",
        [head[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        note=" ".join(filter(None, notes)),
    )


def _counts_note(experiment: str) -> str:
    own = " The paper gives no SE here: it is ours." if experiment in SWEPT else ""
    published, joint = ("", "") if own else ("published ", "joint ")
    return (
        f'"reach" counts sets with mean >= published - 2 {published}SE; "within 2 SE" those within '
        f"two {joint}SE either way, and after the stroke also those that only the rounding of the "
        f"published mean may keep out.{own}"
    )


def _sets_note(entries: Sequence[Overall]) -> str:
    """Say which sets some rows have and some have not."""
    every = dict.fromkeys(name for entry in entries for name in entry.candidates)
    if len({frozenset(entry.sets) for entry in entries}) > 1:
        return "No set is in all rows: each is over its own, so that rows cannot be compared."
    absent = [name for name in every if name not in entries[0].sets] if entries else []
    return f"Only sets that all rows have, so without {', '.join(absent)}." if absent else ""


def _overview_row(entry: Overall, trials: int) -> list[str]:
    within = f"{entry.n_within} / {entry.n_within_rounded} of {entry.n_compared}"
    return [
        say_variant(entry),
        f"{entry.n_sets}{few(entry.fewest, trials)}",
        say_mean(entry.auc),
        say_mean(entry.published),
        say_signed(entry.difference, 3),
        f"{entry.n_reach} of {entry.n_judged}" if entry.n_judged else NONE,
        within if entry.n_compared else NONE,
        say_mean(entry.average_precision),
        f"{1000 * entry.fit_seconds:.1f}",
    ]


def _gap_table(summary: Summary) -> Table:
    """RAD less PU and less the one-class SVMs: per loss and rule, ours / published."""
    others = ("pu", "ocsvm", "semi_ocsvm")
    found = {
        (gap.loss, gap.rule, gap.other): gap
        for other in others
        for gap in gaps(summary, other)
        if gap.sets == "all"
    }
    rows = []
    for loss, rule in product(summary.values("main", "loss"), summary.values("main", "lam")):
        three = [found.get((loss, rule, other)) for other in others]
        if any(three):
            sets = "/".join(dict.fromkeys(str(gap.n_sets) for gap in three if gap))
            rows.append([loss_name(loss), str(rule), sets, *map(say_gap, three)])
    return Table(
        "Claim: on average, rAD outperforms PU and the one-class SVMs",
        ("loss", "lambda", "sets", *(f"rAD - {method_name(other)}" for other in others)),
        rows,
        note="Mean difference of AUC over the sets on which both were run, ours / published.",
        left=(0, 1),
    )


def _pi_n_table(summary: Summary) -> Table:
    """RAD less PU where anomalies are rare and where they are not."""
    found = {(gap.loss, gap.rule, gap.sets): gap for gap in gaps(summary, "pu")}
    rows = []
    for loss, rule in dict.fromkeys((loss, rule) for loss, rule, _ in found):
        row = [loss_name(loss), str(rule)]
        for kind in ("small", "large"):
            gap = found.get((loss, rule, kind))
            row += [str(gap.n_sets if gap else 0), say_gap(gap)]
        rows.append(row)
    small, large = f"pi_n <= {SMALL_PI_N:g}", f"pi_n > {SMALL_PI_N:g}"
    return Table(
        f"Claim: rAD - PU is large where {small} and small elsewhere",
        ("loss", "lambda", "sets", f"gap, {small}", "sets", f"gap, {large}"),
        rows,
        note="Mean difference of AUC, ours / published.",
        left=(0, 1),
    )


def _spread_table(summary: Summary, experiment: str) -> Table:
    name = SWEPT[experiment]
    return Table(
        f"Claim: rAD is robust to {name}",
        ("loss", "lambda", "sets", "ours", "published", "our best", "published best"),
        [_spread_row(sweep) for sweep in sweeps(summary, experiment)],
        note="The spread: largest less smallest mean AUC over the values of "
        f"{name}, each a mean over the same sets; and the value with the largest mean.",
        left=(0, 1),
    )


def _spread_row(sweep: Sweep) -> list[str]:
    def best(means: Sequence[float]) -> str:
        return say_value(sweep.experiment, sweep.values[means.index(max(means))])

    return [
        loss_name(sweep.loss),
        str(sweep.rule),
        str(sweep.n_sets),
        say_mean(sweep.spread),
        say_mean(sweep.published_spread),
        best(sweep.ours),
        best(sweep.published),
    ]


def remark_table(title: str, remarks: Iterable[Remark]) -> Table:
    """Why trials failed, or what they warned of: how many, by method and by dataset."""
    listed = list(remarks)
    rows = [
        [
            str(remark.count),
            ", ".join(f"{method_name(method)} {k}" for method, k in remark.methods.items()),
            ", ".join(f"{dataset} {k}" for dataset, k in remark.datasets.items()),
            _say_remark(remark),
        ]
        for remark in listed[:_MOST_REMARKS]
    ]
    others = len(listed) - len(rows)
    foot = [["", "", "", f"and {counted(others, 'other message')}"]] if others else []
    head = ("trials", "by method", "by dataset", "what was said")
    return Table(title, head, rows, foot, left=(1, 2, 3))


def _say_remark(remark: Remark) -> str:
    alike = f" (an example of {remark.n_texts} alike)" if remark.n_texts > 1 else ""
    return shorten(remark.text) + alike
