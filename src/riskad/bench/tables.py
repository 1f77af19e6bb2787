"""The tables of an experiment: ours beside the published, and what the paper claims.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, TypeAlias

from riskad.bench.formats import Table, shorten
from riskad.bench.paper import Published, paper_set
from riskad.bench.summary import (
    DEFAULTS,
    LIKE_PUBLISHED,
    LOSSES,
    SMALL_PI_N,
    TARGET_SHARE,
    Cell,
    Estimate,
    Gap,
    Overall,
    Reach,
    Remark,
    Summary,
    Sweep,
    by_rule,
    counted,
    gaps,
    headline_rule,
    loss_name,
    method_name,
    overall,
    reach_by_loss,
    setting_name,
    sweep_cell,
    sweep_values,
    sweeps,
)
from riskad.bench.words import (
    NONE,
    few,
    say_estimate,
    say_mean,
    say_own,
    say_own_mean,
    say_printed,
    say_published,
    say_setting,
    say_share,
    say_signed,
)

__all__ = ["Table", "paper_tables", "remark_table", "tables_of"]

_Find: TypeAlias = Callable[[str], Cell | None]  # the cell of a dataset
_Maker: TypeAlias = Callable[[Summary, str], list[Table]]

_SWEPT = {"prior": "pi_p^e", "a": "a"}
_MOST_REMARKS = 6
_SEMI_VARIANTS: dict[str, dict[str, str]] = {
    "biased, pile outside": {"kernel": "biased", "pile": "outside"},
    "laplacian": {"kernel": "laplacian"},
}


def tables_of(summary: Summary, experiment: str) -> list[Table]:
    """Tables of an experiment, in the order in which they are read."""
    makers: dict[str, _Maker] = {
        "main": _main_tables,
        "prior": _sweep_tables,
        "a": _sweep_tables,
        "published": _published_tables,
    }
    first = [_reach_table(summary)] if experiment == "main" else []
    rest = makers.get(experiment, _plain_tables)(summary, experiment)
    return [table for table in (*first, _overview(summary, experiment), *rest) if table.rows]


def paper_tables(summary: Summary, experiment: str) -> list[Table]:
    """The same, with ours and the published in the layout of the paper's tables first.

    An experiment that the paper does not have keeps its tables.
    """
    makers: dict[str, _Maker] = {"main": _paper_main, "prior": _paper_sweeps, "a": _paper_sweeps}
    first = makers[experiment](summary, experiment) if experiment in makers else []
    rest = tables_of(summary, experiment)
    if first:
        rest = [table for table in rest if table.head[0] not in _DATASET_HEADS]
        rest += [_svm_table(summary)] if experiment == "main" else []
    return [table for table in (*first, *rest) if table.rows]


# --- tables over datasets ----------------------------------------------------------------


def _main_tables(summary: Summary, experiment: str) -> list[Table]:
    return [
        *(_rad_table(summary, loss) for loss in summary.values(experiment, "loss")),
        *_by_loss(summary, experiment, "pu", "PU"),
        _svm_table(summary),
        _gap_table(summary),
        _pi_n_table(summary),
    ]


def _rad_table(summary: Summary, loss: str) -> Table:
    rules = summary.values("main", "lam", loss=loss)
    find = {rule: _finder(summary, "main", "rad", loss=loss, lam=rule) for rule in rules}
    headline = headline_rule(summary)
    shown = [headline] if headline in rules else rules[:1]
    trials = summary.n_trials("main")
    columns = [
        _published_column("published", *find.values()),
        *(_own_column(str(rule), find[rule], trials) for rule in rules),
        *(_difference_column(find[rule], f"{rule}: difference") for rule in shown),
    ]
    title = f"rAD, {loss_name(loss)} loss, by rule for lambda"
    return _dataset_table(summary, "main", title, columns)


def _by_loss(summary: Summary, experiment: str, method: str, title: str) -> list[Table]:
    """Ours and published, and their difference, for each loss; a table for each rule for lambda."""
    trials, tables = summary.n_trials(experiment), []
    for rule in summary.values(experiment, "lam", method) or [None]:
        columns: list[_Column] = []
        for loss in summary.values(experiment, "loss", method, lam=rule):
            find = _finder(summary, experiment, method, loss=loss, lam=rule)
            columns += [_both_column(loss_name(loss), find, trials), _difference_column(find)]
        full = title if rule is None else f"{title}, {by_rule(rule)}"
        tables.append(_dataset_table(summary, experiment, full, columns, note=_STROKE))
    return tables


def _svm_table(summary: Summary) -> Table:
    trials = summary.n_trials("main")
    plain = _finder(summary, "main", "ocsvm")
    semi = _finder(summary, "main", "semi_ocsvm", **LIKE_PUBLISHED)
    others = {
        name: _finder(summary, "main", "semi_ocsvm", **wanted)
        for name, wanted in _SEMI_VARIANTS.items()
    }
    columns = [
        _both_column("OC-SVM", plain, trials),
        _difference_column(plain),
        _published_column("semi: published", semi, *others.values()),
        _own_column("biased, pile normal", semi, trials),
        _difference_column(semi),
        *(_own_column(name, find, trials) for name, find in others.items()),
    ]
    note = (
        f"OC-SVM: {_STROKE.lower()} Of the three semi-supervised variants, the published column "
        'most resembles "biased, pile normal", an SVM that takes the pile as normal: that one is '
        "the comparison of like with like."
    )
    return _dataset_table(summary, "main", "OC-SVM and semi-OC-SVM", columns, note)


def _sweep_tables(summary: Summary, experiment: str) -> list[Table]:
    curves = product(summary.values(experiment, "loss"), summary.values(experiment, "lam"))
    tables = [_sweep_table(summary, experiment, loss, rule) for loss, rule in curves]
    return [*tables, _spread_table(summary, experiment)]


def _sweep_table(summary: Summary, experiment: str, loss: str, rule: object) -> Table:
    columns = [
        _means_column(
            _say_value(experiment, value),
            _sweep_finder(summary, experiment, loss, rule, value),
            summary.n_trials(experiment),
        )
        for value in sweep_values(summary, experiment, loss, [rule])
    ]
    title = f"rAD, {loss_name(loss)} loss, {by_rule(rule)}, by {_SWEPT[experiment]}"
    return _dataset_table(summary, experiment, title, columns, note=_STROKE)


def _published_tables(summary: Summary, experiment: str) -> list[Table]:
    return _by_loss(summary, experiment, "rad", "rAD with a free intercept")


def _plain_tables(summary: Summary, experiment: str) -> list[Table]:
    """For an experiment the paper does not have: a table for each method and setting."""
    tables = []
    for entry in overall(summary, experiment):
        find = entry.cells.get
        columns = [
            _own_column("AUC", find, summary.n_trials(experiment)),
            _Column(
                "average precision",
                find,
                lambda cell: say_estimate(cell.average_precision),
                lambda cell: _mean_of(cell.average_precision),
            ),
            _Column("trials", find, lambda cell: str(cell.n_ok)),
        ]
        title = _say_variant(entry)
        tables.append(_dataset_table(summary, experiment, title, columns))
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


def _reach_row(row: Reach) -> list[str]:
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
    own = " The paper gives no SE here: it is ours." if experiment in _SWEPT else ""
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
        _say_variant(entry),
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
            rows.append([loss_name(loss), str(rule), sets, *map(_say_gap, three)])
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
            row += [str(gap.n_sets if gap else 0), _say_gap(gap)]
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
    name = _SWEPT[experiment]
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
        return _say_value(sweep.experiment, sweep.values[means.index(max(means))])

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


# --- the layout of the paper -------------------------------------------------------------


_BELOW = "In italics below: as published."


def _paper_main(summary: Summary, experiment: str) -> list[Table]:
    """Tables 1 and 3 in one, once for each rule for lambda."""
    losses = _paper_losses(summary, experiment)
    rest = [
        *(_finder(summary, experiment, "pu", loss=loss) for loss in losses),
        _finder(summary, experiment, "ocsvm"),
        _finder(summary, experiment, "semi_ocsvm", **LIKE_PUBLISHED),
    ]
    names = [loss_name(loss) for loss in losses]
    head = ("dataset", *names, *names, "OC-SVM", "semi-OC-SVM")
    groups = (("", 1), ("rAD", len(names)), ("PU", len(names)), ("", 2))
    tables = []
    for rule in summary.values(experiment, "lam"):
        own = [_finder(summary, experiment, "rad", loss=loss, lam=rule) for loss in losses]
        title = f"rAD with {by_rule(rule)}, PU and one-class SVMs: mean (SE x 100). {_BELOW}"
        tables.append(
            _paired_table(summary, experiment, title, head, groups, [*own, *rest], _say_with_errors)
        )
    return tables


def _paper_sweeps(summary: Summary, experiment: str) -> list[Table]:
    """Tables 4 and 5, once for each rule for lambda."""
    name = _SWEPT[experiment]
    values = {
        loss: sweep_values(summary, experiment, loss) for loss in _paper_losses(summary, experiment)
    }
    places = [(loss, value) for loss in values for value in values[loss]]
    head = ("dataset", *(_say_value(experiment, value) for _, value in places))
    groups = [("", 1), *((f"{loss_name(loss)} / {name}", len(values[loss])) for loss in values)]
    tables = []
    for rule in summary.values(experiment, "lam"):
        finders = [_sweep_finder(summary, experiment, loss, rule, value) for loss, value in places]
        title = f"AUC means of rAD for different {name}, {by_rule(rule)}. {_BELOW}"
        tables.append(_paired_table(summary, experiment, title, head, groups, finders, _say_means))
    return tables


def _paper_losses(summary: Summary, experiment: str) -> list[str]:
    return [loss for loss in summary.values(experiment, "loss") if loss in LOSSES]


def _paired_table(
    summary: Summary,
    experiment: str,
    title: str,
    head: Sequence[str],
    groups: Sequence[tuple[str, int]],
    finders: Sequence[_Find],
    say: Callable[[Cell, int], tuple[str, str]],
) -> Table:
    """Two rows for each dataset, as in the paper its name and its (d, n, pi_n): ours, published."""
    datasets = [name for name in summary.datasets(experiment) if any(f(name) for f in finders)]
    trials, rows = summary.n_trials(experiment), []
    for dataset in datasets:
        name, _, facts = _say_dataset(dataset).partition(" ")
        cells = [find(dataset) for find in finders]
        said = [say(cell, trials) if cell else (NONE, NONE) for cell in cells]
        rows += [[name, *(ours for ours, _ in said)], [facts, *(theirs for _, theirs in said)]]
    some = any("[" in text for row in rows for text in row)
    return Table(
        title,
        head,
        rows,
        _paired_means(datasets, finders),
        groups=[(name, width) for name, width in groups if width],
        note="[n]: only n trials succeeded." if some else "",
        pairs=True,
    )


def _paired_means(datasets: Sequence[str], finders: Sequence[_Find]) -> list[list[str]]:
    cells = [[find(dataset) for dataset in datasets] for find in finders]
    n_sets, means = _means([[(cell and cell.both) or () for cell in column] for column in cells])
    if not n_sets:
        return []
    ours, theirs = ([say_mean(mean[i]) if mean else "" for mean in means] for i in (0, 1))
    return [["mean", *ours], [f"of {counted(n_sets, 'set')}", *theirs]]


def _say_with_errors(cell: Cell, trials: int) -> tuple[str, str]:
    ours, theirs = say_own(cell, trials), say_published(cell.published)
    return ours.replace(" ", ""), theirs.replace(" ", "")


def _say_means(cell: Cell, trials: int) -> tuple[str, str]:
    return say_own_mean(cell, trials).replace(" ", ""), say_printed(cell.published)


# --- columns and rows over datasets ------------------------------------------------------


_STROKE = "Ours / published."
_DATASET_HEADS = ("dataset", "dataset (d, n, pi_n)")  # of sets of one's own, of the paper's


@dataclass(frozen=True)
class _Column:
    """A column over datasets: where its cells are, how to say one, what to average and count.

    `means` are the numbers of a cell that go into the row of means; none if one is missing.
    """

    head: str
    find: _Find
    say: Callable[[Cell], str]
    means: Callable[[Cell], tuple[float, ...]] = lambda cell: ()
    counts: bool = False

    def text(self, dataset: str) -> str:
        cell = self.find(dataset)
        return self.say(cell) if cell else NONE

    def numbers(self, dataset: str) -> tuple[float, ...]:
        cell = self.find(dataset)
        return self.means(cell) if cell else ()


def _dataset_table(
    summary: Summary, experiment: str, title: str, columns: Sequence[_Column], note: str = ""
) -> Table:
    """One row for each dataset that has a cell in some column, then the mean row and counts."""
    datasets = [
        dataset
        for dataset in summary.datasets(experiment)
        if any(column.find(dataset) for column in columns)
    ]
    head = (_DATASET_HEADS[any(map(paper_set, datasets))], *(column.head for column in columns))
    rows = [
        [_say_dataset(dataset), *(column.text(dataset) for column in columns)]
        for dataset in datasets
    ]
    foot = [*_mean_rows(datasets, columns), *_count_rows(datasets, columns)]
    return Table(title, head, rows, foot, note=note)


def _mean_rows(datasets: Sequence[str], columns: Sequence[_Column]) -> list[list[str]]:
    """The row of means, if there is a set that it can be over."""
    numbers = [[column.numbers(dataset) for dataset in datasets] for column in columns]
    n_sets, means = _means(numbers)
    if not n_sets:
        return []
    texts = [" / ".join(map(say_mean, mean)) for mean in means]
    return [[f"mean of {counted(n_sets, 'set')}", *texts]]


def _means(
    numbers: Sequence[Sequence[tuple[float, ...]]],
) -> tuple[int, list[tuple[float, ...]]]:
    """Means of columns over the sets on which every column has its numbers, if it has any at all.

    So, if one column is of published numbers, only the paper's sets count. Returns how many sets
    those are, too.

    >>> _means([[(0.5,), (0.75,)], [(), (1.0,)], [(), ()]])
    (1, [(0.75,), (1.0,), ()])
    """
    averaged = [column for column in numbers if any(column)]
    rows = [i for i in range(len(averaged[0])) if all(c[i] for c in averaged)] if averaged else []
    parts = [zip(*(column[i] for i in rows), strict=True) for column in numbers]
    return len(rows), [tuple(map(fmean, part)) for part in parts]


def _count_rows(datasets: Sequence[str], columns: Sequence[_Column]) -> list[list[str]]:
    """How many cells of a column reach the published mean, and are within two joint errors."""
    questions: dict[str, Callable[[Cell], bool | None]] = {
        "reach published - 2 SE": lambda cell: cell.reaches,
        "within 2 joint SE": lambda cell: cell.within,
        "the same, rounding allowed for": lambda cell: cell.within_rounded,
    }
    rows = []
    for name, ask in questions.items():
        row = [name]
        for column in columns:
            cells = map(column.find, datasets) if column.counts else ()
            answers = [answer for cell in cells if cell and (answer := ask(cell)) is not None]
            row.append(f"{sum(answers)} of {len(answers)}" if answers else "")
        if any(row[1:]):
            rows.append(row)
    return rows


def _finder(summary: Summary, experiment: str, method: str, **wanted: Any) -> _Find:
    return lambda dataset: summary.cell(experiment, dataset, method, **wanted)


def _sweep_finder(
    summary: Summary, experiment: str, loss: str, rule: object, value: float | str
) -> _Find:
    return lambda dataset: sweep_cell(summary, experiment, dataset, loss, rule, value)


def _own_column(head: str, find: _Find, trials: int) -> _Column:
    return _Column(
        head,
        find,
        lambda cell: say_own(cell, trials),
        lambda cell: _mean_of(cell.auc),
        counts=True,
    )


def _both_column(head: str, find: _Find, trials: int) -> _Column:
    def say(cell: Cell) -> str:
        return f"{say_own(cell, trials)} / {say_published(cell.published)}"

    return _Column(head, find, say, lambda cell: cell.both or (), counts=True)


def _means_column(head: str, find: _Find, trials: int) -> _Column:
    """Means without standard errors, as in Tables 4 and 5."""

    def say(cell: Cell) -> str:
        return f"{say_own_mean(cell, trials)} / {say_printed(cell.published)}"

    return _Column(head, find, say, lambda cell: cell.both or (), counts=True)


def _published_column(head: str, *finders: _Find) -> _Column:
    """The published number, which any of several cells of a row can give."""
    return _Column(
        head,
        lambda dataset: next(filter(None, (find(dataset) for find in finders)), None),
        lambda cell: say_published(cell.published),
        lambda cell: _mean_of(cell.published),
    )


def _difference_column(find: _Find, head: str = "difference") -> _Column:
    return _Column(head, find, lambda cell: say_signed(cell.difference_in_se, 1))


def _mean_of(value: Estimate | Published | None) -> tuple[float, ...]:
    return (value.mean,) if value else ()


# --- numbers as text ---------------------------------------------------------------------


def _say_dataset(name: str) -> str:
    facts = paper_set(name)
    return f"{name} ({facts.d}, {facts.n}, {facts.pi_n:.2f})" if facts else name


def _say_gap(gap: Gap | None) -> str:
    return f"{say_signed(gap.ours, 3)} / {say_signed(gap.published, 3)}" if gap else NONE


def _say_value(experiment: str, value: object) -> str:
    default = " (main)" if value == DEFAULTS[experiment] else ""
    return say_setting(experiment, value) + default


def _say_variant(entry: Overall) -> str:
    """A method and its settings in a line; a loss or a kernel needs no name."""
    parts = []
    for name, value in entry.settings.items():
        said = loss_name(str(value)) if name == "loss" else say_setting(name, value)
        parts.append(said if name in ("loss", "kernel") else f"{setting_name(name)} {said}")
    return ", ".join([method_name(entry.method), *parts])
