"""The tables of an experiment: ours beside the published, and what the paper claims.

Numbers are written as in the paper: a mean AUC and, in parentheses, its standard error x 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

from riskad.bench.formats import Table, shorten
from riskad.bench.paper import Published, paper_set
from riskad.bench.summary import (
    DEFAULTS,
    LIKE_PUBLISHED,
    LOSSES,
    SMALL_PI_N,
    Cell,
    Estimate,
    Gap,
    Overall,
    Remark,
    Summary,
    Sweep,
    counted,
    gaps,
    headline_rule,
    loss_name,
    method_name,
    overall,
    sweep_cell,
    sweep_values,
    sweeps,
)

__all__ = ["Table", "paper_tables", "remark_table", "tables_of"]

_Find: TypeAlias = Callable[[str], Cell | None]  # the cell of a dataset
_Maker: TypeAlias = Callable[[Summary, str], list[Table]]

_NONE = "-"
_FAILED = "failed"
_SWEPT = {"prior": "pi_p^e", "a": "a"}
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
    tables = makers.get(experiment, _plain_tables)(summary, experiment)
    return [table for table in (_overview(summary, experiment), *tables) if table.rows]


def paper_tables(summary: Summary, experiment: str) -> list[Table]:
    """The same, with ours and the published in the layout of the paper's tables first.

    An experiment that the paper does not have keeps its tables.
    """
    makers: dict[str, _Maker] = {"main": _paper_main, "prior": _paper_sweeps, "a": _paper_sweeps}
    first = makers[experiment](summary, experiment) if experiment in makers else []
    rest = tables_of(summary, experiment)
    if first:
        rest = [table for table in rest if table.head[0] != _DATASET_HEAD]
        rest += [_svm_table(summary)] if experiment == "main" else []
    return [table for table in (*first, *rest) if table.rows]


# --- tables over datasets ----------------------------------------------------------------


def _main_tables(summary: Summary, experiment: str) -> list[Table]:
    return [
        *(_rad_table(summary, loss) for loss in summary.values(experiment, "loss")),
        _by_loss(summary, experiment, "pu", "PU, lambda cross-validated"),
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


def _by_loss(summary: Summary, experiment: str, method: str, title: str) -> Table:
    """Ours and published, and their difference, for each loss."""
    trials, columns = summary.n_trials(experiment), []
    for loss in summary.values(experiment, "loss", method):
        find = _finder(summary, experiment, method, loss=loss)
        columns += [_both_column(loss_name(loss), find, trials), _difference_column(find)]
    return _dataset_table(summary, experiment, title, columns, note="Ours / published.")


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
        "OC-SVM: ours / published. Of the three semi-supervised variants, the published column "
        'most resembles "biased, pile normal", an SVM that takes the pile as normal: that one is '
        "the comparison of like with like."
    )
    return _dataset_table(summary, "main", "OC-SVM and semi-OC-SVM", columns, note)


def _sweep_tables(summary: Summary, experiment: str) -> list[Table]:
    curves = product(summary.values(experiment, "loss"), summary.values(experiment, "lam"))
    tables = [_sweep_table(summary, experiment, loss, rule) for loss, rule in curves]
    return [*tables, _spread_table(summary, experiment)]


def _sweep_table(summary: Summary, experiment: str, loss: str, rule: str) -> Table:
    columns = [
        _means_column(
            _say_value(experiment, value), _sweep_finder(summary, experiment, loss, rule, value)
        )
        for value in sweep_values(summary, experiment, loss, [rule])
    ]
    title = f"{loss_name(loss)} loss, lambda by rule {rule}"
    return _dataset_table(summary, experiment, title, columns)


def _published_tables(summary: Summary, experiment: str) -> list[Table]:
    return [_by_loss(summary, experiment, "rad", "rAD as the published runs amounted to")]


def _plain_tables(summary: Summary, experiment: str) -> list[Table]:
    """For an experiment the paper does not have: a table for each method and setting."""
    tables = []
    for entry in overall(summary, experiment):
        find = _finder(summary, experiment, entry.method, **entry.settings)
        columns = [
            _own_column("AUC", find, summary.n_trials(experiment)),
            _Column(
                "average precision",
                find,
                lambda cell: _say_estimate(cell.average_precision),
                lambda cell: _mean_of(cell.average_precision),
            ),
            _Column("trials", find, lambda cell: str(cell.n_ok)),
        ]
        title = _say_variant(entry.method, entry.settings)
        tables.append(_dataset_table(summary, experiment, title, columns))
    return tables


# --- tables over methods, losses and rules -----------------------------------------------


def _overview(summary: Summary, experiment: str) -> Table:
    return Table(
        "Means over datasets",
        (
            "method",
            "sets",
            "AUC",
            "published",
            "difference",
            "reach",
            "within 2 SE",
            "average precision",
            "fit (ms)",
        ),
        [_overview_row(entry) for entry in overall(summary, experiment)],
        note='"reach" counts sets with mean >= published - 2 published SE; "within 2 SE" those '
        "within two joint SE either way, and after the stroke also those that only the rounding "
        "of the published mean may keep out.",
    )


def _overview_row(entry: Overall) -> list[str]:
    within = f"{entry.n_within} / {entry.n_within_rounded} of {entry.n_compared}"
    return [
        _say_variant(method_name(entry.method), entry.settings),
        str(entry.n_sets),
        _say_mean(entry.auc),
        _say_mean(entry.published),
        _say_signed(entry.difference, 3),
        f"{entry.n_reach} of {entry.n_judged}" if entry.n_judged else _NONE,
        within if entry.n_compared else _NONE,
        _say_mean(entry.average_precision),
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
            rows.append([loss_name(loss), rule, sets, *map(_say_gap, three)])
    return Table(
        "Claim: on average, rAD outperforms PU and the one-class SVMs",
        ("loss", "lambda", "sets", *(f"rAD - {method_name(other)}" for other in others)),
        rows,
        note="Mean difference of AUC over the sets on which both were run, ours / published.",
        left=2,
    )


def _pi_n_table(summary: Summary) -> Table:
    """RAD less PU where anomalies are rare and where they are not."""
    found = {(gap.loss, gap.rule, gap.sets): gap for gap in gaps(summary, "pu")}
    rows = []
    for loss, rule in dict.fromkeys((loss, rule) for loss, rule, _ in found):
        row = [loss_name(loss), rule]
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
        left=2,
    )


def _spread_table(summary: Summary, experiment: str) -> Table:
    name = _SWEPT[experiment]
    return Table(
        f"Claim: rAD is robust to {name}",
        ("loss", "lambda", "sets", "ours", "published", "our best", "published best"),
        [_spread_row(sweep) for sweep in sweeps(summary, experiment)],
        note="The spread: largest less smallest mean AUC over the values of "
        f"{name}, each a mean over the same sets; and the value with the largest mean.",
        left=2,
    )


def _spread_row(sweep: Sweep) -> list[str]:
    def best(means: Sequence[float]) -> str:
        return _say_value(sweep.experiment, sweep.values[means.index(max(means))])

    return [
        loss_name(sweep.loss),
        sweep.rule,
        str(sweep.n_sets),
        _say_mean(sweep.spread),
        _say_mean(sweep.published_spread),
        best(sweep.ours),
        best(sweep.published),
    ]


def remark_table(title: str, remarks: Iterable[Remark]) -> Table:
    """Why trials failed, or what they warned of: how many, by method and by dataset."""
    rows = [
        [
            str(remark.count),
            ", ".join(f"{method_name(method)} {k}" for method, k in remark.methods.items()),
            ", ".join(f"{dataset} {k}" for dataset, k in remark.datasets.items()),
            shorten(remark.text),
        ]
        for remark in remarks
    ]
    return Table(title, ("trials", "by method", "by dataset", "what was said"), rows, left=4)


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
        title = f"rAD with lambda by rule {rule}, PU and one-class SVMs: mean (SE x 100). {_BELOW}"
        rows = _paired_rows(summary, experiment, [*own, *rest], _say_with_errors)
        tables.append(Table(title, head, rows, groups=groups, pairs=True))
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
        title = f"AUC means of rAD for different {name}, lambda by rule {rule}. {_BELOW}"
        rows = _paired_rows(summary, experiment, finders, _say_means)
        tables.append(Table(title, head, rows, groups=groups, pairs=True))
    return tables


def _paper_losses(summary: Summary, experiment: str) -> list[str]:
    return [loss for loss in summary.values(experiment, "loss") if loss in LOSSES]


def _paired_rows(
    summary: Summary,
    experiment: str,
    finders: Sequence[_Find],
    say: Callable[[Cell], tuple[str, str]],
) -> list[list[str]]:
    """Two rows for each dataset, as in the paper its name and its (d, n, pi_n): ours, published."""
    rows = []
    for dataset in summary.datasets(experiment):
        cells = [find(dataset) for find in finders]
        if any(cells):
            name, _, facts = _say_dataset(dataset).partition(" ")
            said = [say(cell) if cell else (_NONE, _NONE) for cell in cells]
            rows += [[name, *(ours for ours, _ in said)], [facts, *(theirs for _, theirs in said)]]
    return rows


def _say_with_errors(cell: Cell) -> tuple[str, str]:
    ours, theirs = _say_estimate(cell.auc), _say_published(cell.published)
    return ours.replace(" ", ""), theirs.replace(" ", "")


def _say_means(cell: Cell) -> tuple[str, str]:
    return _say_mean(cell.auc.mean if cell.auc else None), _say_printed(cell.published)


# --- columns and rows over datasets ------------------------------------------------------


_DATASET_HEAD = "dataset (d, n, pi_n)"


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
        return self.say(cell) if cell else _NONE

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
    head = (_DATASET_HEAD, *(column.head for column in columns))
    rows = [
        [_say_dataset(dataset), *(column.text(dataset) for column in columns)]
        for dataset in datasets
    ]
    foot = [_mean_row(datasets, columns), *_count_rows(datasets, columns)]
    return Table(title, head, rows, foot, note=note)


def _mean_row(datasets: Sequence[str], columns: Sequence[_Column]) -> list[str]:
    """Means over the sets on which every column has its numbers, if it has any at all.

    So, if one column is of published numbers, only the paper's sets count.
    """
    numbers = [[column.numbers(dataset) for dataset in datasets] for column in columns]
    averaged = [column for column in numbers if any(column)]
    common = [i for i in range(len(datasets)) if all(column[i] for column in averaged)]
    row = [f"mean of {counted(len(common), 'set')}"]
    for column in numbers:
        parts = zip(*(column[i] for i in common), strict=True)
        row.append(" / ".join(_say_mean(sum(part) / len(part)) for part in parts))
    return row


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
    summary: Summary, experiment: str, loss: str, rule: str, value: float | str
) -> _Find:
    return lambda dataset: sweep_cell(summary, experiment, dataset, loss, rule, value)


def _own_column(head: str, find: _Find, trials: int) -> _Column:
    return _Column(
        head,
        find,
        lambda cell: _say_own(cell, trials),
        lambda cell: _mean_of(cell.auc),
        counts=True,
    )


def _both_column(head: str, find: _Find, trials: int) -> _Column:
    def say(cell: Cell) -> str:
        return f"{_say_own(cell, trials)} / {_say_published(cell.published)}"

    return _Column(head, find, say, lambda cell: cell.both or (), counts=True)


def _means_column(head: str, find: _Find) -> _Column:
    """Means without standard errors, as in Tables 4 and 5."""

    def say(cell: Cell) -> str:
        ours = _say_mean(cell.auc.mean) if cell.auc else _FAILED
        return f"{ours} / {_say_printed(cell.published)}"

    return _Column(head, find, say, lambda cell: cell.both or (), counts=True)


def _published_column(head: str, *finders: _Find) -> _Column:
    """The published number, which any of several cells of a row can give."""
    return _Column(
        head,
        lambda dataset: next(filter(None, (find(dataset) for find in finders)), None),
        lambda cell: _say_published(cell.published),
        lambda cell: _mean_of(cell.published),
    )


def _difference_column(find: _Find, head: str = "difference") -> _Column:
    return _Column(head, find, lambda cell: _say_signed(cell.difference_in_se, 1))


def _mean_of(value: Estimate | Published | None) -> tuple[float, ...]:
    return (value.mean,) if value else ()


# --- numbers as text ---------------------------------------------------------------------


def _say_dataset(name: str) -> str:
    facts = paper_set(name)
    return f"{name} ({facts.d}, {facts.n}, {facts.pi_n:.2f})" if facts else name


def _say_estimate(value: Estimate | None) -> str:
    if value is None:
        return _FAILED
    return f"{value.mean:.3f} ({_NONE if value.se is None else f'{100 * value.se:.2f}'})"


def _say_own(cell: Cell, trials: int) -> str:
    """Mean (SE x 100), and in brackets the trials that succeeded where some are missing."""
    few = f" [{cell.n_ok}]" if 0 < cell.n_ok < trials else ""
    return _say_estimate(cell.auc) + few


def _say_printed(value: Published | None) -> str:
    """A published mean with the digits that were printed."""
    if value is None:
        return _NONE
    return f"{value.mean:.2f}" if value.rounding == 0.005 else f"{value.mean:.3f}"


def _say_published(value: Published | None) -> str:
    error = f" ({100 * value.se:.2f})" if value and value.se is not None else ""
    return _say_printed(value) + error


def _say_mean(value: float | None) -> str:
    return _NONE if value is None else f"{value:.3f}"


def _say_signed(value: float | None, digits: int) -> str:
    return _NONE if value is None else f"{round(value, digits) + 0.0:+.{digits}f}"


def _say_gap(gap: Gap | None) -> str:
    return f"{_say_signed(gap.ours, 3)} / {_say_signed(gap.published, 3)}" if gap else _NONE


def _say_value(experiment: str, value: object) -> str:
    if value == "true":
        return "1 - pi_n"
    return f"{value} (main)" if value == DEFAULTS[experiment] else str(value)


def _say_variant(method: str, settings: Mapping[str, Any]) -> str:
    """A method and its settings in a line; a loss or a kernel needs no name."""
    bare = ("loss", "kernel")
    parts = [
        loss_name(str(value)) if key in bare else f"{key} {value}"
        for key, value in settings.items()
    ]
    return ", ".join([method, *parts])
