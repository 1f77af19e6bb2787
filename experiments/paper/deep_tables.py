"""The tables of the deep experiments: ours beside the published, detectors, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from statistics import fmean

from experiments.datasets import IMAGE_SETS
from experiments.paper.deep import BUDGETS, PRIORS, WEIGHTS
from experiments.paper.deep_claims import (
    DETECTORS,
    NNPU,
    RADS,
    SAD,
    SLIGHT,
    Claim,
    Detector,
    Setup,
    best,
    detector_claims,
    find,
    is_clear,
    lead,
    mean_auc,
    mean_trials,
    over_trials,
    paper_setups,
    prior_claims,
    weight_claims,
)
from experiments.paper.summary import (
    BOTH,
    LOSS_NAMES,
    CellSummary,
    Summary,
    few,
    say_both,
    say_published,
    say_setting,
)
from experiments.tables import (
    Table,
    counted,
    say_difference,
    say_estimate,
    say_mean,
    say_share,
    say_signed,
)

TARGET_SHARE = 0.95  # of the cells of the published table are to be reached


def _claim_table(claims: Sequence[Claim], note: str = "") -> Table:
    """What the paper's text says, and whether it holds."""
    return Table(
        "What the paper claims, and what the records say",
        ("claim", "verdict", "taken to hold where", "our figures"),
        claims,
        note="Differences are of AUC, paired by trial, as mean (SE x 100); rAD is the mean of its "
        "four losses, and what a claim does not name is averaged over. The paper does not measure "
        f'"similar", "small", "little" or "robust": here it is {SLIGHT:g}. "Significant" is more '
        f"than two SE.{note}",
        left=(0, 1, 2, 3),
    )


# --- detectors: the part "images" --------------------------------------------------------


def _images_tables(summary: Summary) -> list[Table]:
    unjudged = (
        " Not judged: that Deep SAD falls behind what its authors report, on other anomalies."
    )
    return [
        _standings(summary),
        *(_win_table(summary, rival) for rival in (SAD, NNPU)),
        _claim_table(detector_claims(summary), unjudged),
        _best_table(summary),
        *(
            _rate_table(summary, dataset, budget)
            for budget, dataset in product(BUDGETS, IMAGE_SETS)
        ),
    ]


def _standings(summary: Summary) -> Table:
    """The mean of each detector over setups, and how often it is best."""
    setups = paper_setups()
    winners = [best(summary, setup, DETECTORS) for setup in setups]
    rows = []
    for detector in DETECTORS:
        means = {setup: mean_auc(summary, setup, detector) for setup in setups}
        by_set = [fmean(means[s] for s in setups if s.dataset == name) for name in IMAGE_SETS]
        texts = map(say_mean, [*by_set, fmean(means.values())])
        rows.append([detector.name, str(winners.count(detector)), *texts])
    return Table(
        "Mean AUC over setups, and how often a detector is best",
        ("detector", "best in", *IMAGE_SETS, "all"),
        rows,
        note=f"Over {counted(len(setups), 'setup')}, each an image set with its pi_n and gamma_l, "
        "that all detectors have.",
    )


def _win_table(summary: Summary, rival: Detector) -> Table:
    """Each loss of rAD, and the best of them, against a rival."""
    choices: dict[str, Callable[[Setup], Detector]] = {
        detector.name: lambda setup, detector=detector: detector for detector in RADS
    }
    choices["best rAD"] = lambda setup: best(summary, setup, RADS)
    groups = [*(paper_setups(dataset=name) for name in IMAGE_SETS), paper_setups()]
    return Table(
        f"rAD against {rival.name}",
        ("detector", *IMAGE_SETS, "all"),
        [
            [name, *(_say_wins(summary, setups, choose, rival) for setups in groups)]
            for name, choose in choices.items()
        ],
        note="Setups won of those that both have, +those won / -those lost by more than two SE, "
        "and the mean difference of AUC paired by trial, with its SE x 100. The best rAD is chosen "
        "for each setup by its test AUC, so it says what rAD could reach, not what one gets.",
    )


def _say_wins(
    summary: Summary,
    setups: Sequence[Setup],
    choose: Callable[[Setup], Detector],
    rival: Detector,
) -> str:
    """How the rAD that `choose` names for each setup does against a rival."""
    leads = [lead(summary, [choose(setup)], [rival], [setup]) for setup in setups]
    paired = [over_trials(trials) for trials in leads]
    clear = [estimate.mean for estimate in paired if is_clear(estimate)]
    n_won = sum(estimate.mean > 0 for estimate in paired)
    clearly = f"+{sum(x > 0 for x in clear)} / -{sum(x < 0 for x in clear)}"
    overall = say_difference(over_trials(mean_trials(leads)))
    return f"{n_won} of {len(paired)}, {clearly}, {overall}"


def _best_table(summary: Summary) -> Table:
    """Setup by setup: who is best, and the best rAD against its rivals."""
    rows = []
    for setup in paper_setups():
        first, own = best(summary, setup, DETECTORS), best(summary, setup, RADS)
        leads = [over_trials(lead(summary, [own], [rival], [setup])) for rival in (SAD, NNPU)]
        rows.append(
            [
                setup.dataset,
                f"{setup.anomaly_rate:g}",
                f"{setup.budget:g}",
                first.name,
                say_mean(mean_auc(summary, setup, first)),
                LOSS_NAMES[own.loss],
                say_mean(mean_auc(summary, setup, own)),
                *map(say_difference, leads),
            ]
        )
    rivals = (f"less {rival.name}" for rival in (SAD, NNPU))
    return Table(
        "Setup by setup",
        ("dataset", "pi_n", "gamma_l", "best", "AUC", "best rAD", "AUC", *rivals),
        rows,
        note="Differences of AUC of the best rAD from its rivals, paired by trial: mean "
        "(SE x 100). Which rAD is best is seen from its test AUC.",
        left=(0, 3, 5),
    )


def _rate_table(summary: Summary, dataset: str, budget: float) -> Table:
    """Detectors across, shares of anomalies down."""
    rows = []
    for setup in paper_setups(dataset=dataset, budget=budget):
        cells = (find(summary, setup, detector) for detector in DETECTORS)
        texts = [_say_with_sd(cell, summary.n_trials) for cell in cells]
        rows.append([f"{setup.anomaly_rate:g}", *texts])
    return Table(
        f"{dataset}, gamma_l = {budget:g}",
        ("pi_n", *(detector.name for detector in DETECTORS)),
        rows,
        note="Mean AUC (SE x 100; standard deviation x 100).",
    )


def _say_with_sd(cell: CellSummary, trials: int) -> str:
    sd = f"; {100 * cell.auc.sd:.1f})"
    return say_estimate(cell.auc).replace(")", sd) + few(cell.auc.n, trials)


# --- the published table: "images-prior" -------------------------------------------------


def prior_cells(summary: Summary) -> list[CellSummary]:
    """The cells of the published table, in its order."""
    places = product(paper_setups(budget=BUDGETS[0]), RADS, PRIORS)
    return [find(summary, setup, detector, prior=prior) for setup, detector, prior in places]


def _prior_tables(summary: Summary) -> list[Table]:
    def beside(cell: CellSummary) -> str:
        return f"{cell.say(summary.n_trials)} / {say_published(cell.published)}"

    def apart(cell: CellSummary) -> str:
        return say_signed(cell.difference_in_se, 1)

    cells, note = prior_cells(summary), "Ours / published: mean AUC (SE x 100)."
    tables = [_target_table(cells), _missed_table(cells), _claim_table(prior_claims(summary))]
    for dataset in IMAGE_SETS:
        title = f"{dataset}, by pi_p^e"
        less = f"{title}: ours less published in joint SE"
        tables.append(_prior_table(summary, dataset, title, beside, note))
        tables.append(_prior_table(summary, dataset, less, apart))
    return tables


def _target_table(cells: Sequence[CellSummary]) -> Table:
    """How many of the published cells are reached, by image set, pi_n, loss and prior."""
    keys: list[Callable[[CellSummary], str]] = [
        lambda cell: cell.dataset,
        lambda cell: f"pi_n = {cell.settings['anomaly_rate']:g}",
        lambda cell: f"{LOSS_NAMES[cell.settings['loss']]} loss",
        lambda cell: f"pi_p^e = {say_setting(cell.settings['prior'])}",
    ]
    rows = []
    for key in keys:
        for name in dict.fromkeys(map(key, cells)):
            rows.append(_reach_row(name, [cell for cell in cells if key(cell) == name]))
    n_reach = sum(cell.reaches for cell in cells)
    verdict = "met" if n_reach >= TARGET_SHARE * len(cells) else "missed"
    is_above = fmean(cell.difference for cell in cells) > 0
    return Table(
        "Target: rAD reaches what was published",
        ("cells", "reach", "share", *BOTH),
        rows,
        [_reach_row("all", cells)],
        note=f"A cell is reached where mean AUC >= published - 2 published SE. The target, at "
        f"least {100 * TARGET_SHARE:g} % of the cells, is {verdict}; on average our AUC is "
        f"{'above' if is_above else 'not above'} the published.",
    )


def _reach_row(name: str, cells: Sequence[CellSummary]) -> list[str]:
    share = say_share(sum(cell.reaches for cell in cells), len(cells))
    return [name, *share, *say_both(cells)]


def _missed_table(cells: Sequence[CellSummary]) -> Table:
    missed = [cell for cell in cells if not cell.reaches]
    return Table(
        f"{counted(len(missed), 'cell')} below published - 2 published SE",
        ("dataset", "pi_n", "loss", "pi_p^e", "ours", "published", "difference", "in joint SE"),
        [
            [
                cell.dataset,
                f"{cell.settings['anomaly_rate']:g}",
                LOSS_NAMES[cell.settings["loss"]],
                say_setting(cell.settings["prior"]),
                say_estimate(cell.auc),
                say_published(cell.published),
                say_signed(cell.difference, 3),
                say_signed(cell.difference_in_se, 1),
            ]
            for cell in missed
        ],
        left=(0, 2),
    )


def _prior_table(
    summary: Summary, dataset: str, title: str, say: Callable[[CellSummary], str], note: str = ""
) -> Table:
    """Share of anomalies and loss down, priors across."""
    swept = _swept(summary, dataset, "prior", PRIORS)
    head = ("pi_n", "loss", *map(say_setting, PRIORS))
    rows = [[*names, *map(say, cells)] for names, cells in swept]
    return Table(title, head, rows, note=note, left=(0, 1))


def _swept(
    summary: Summary, dataset: str, name: str, values: Sequence[float | str]
) -> Iterator[tuple[tuple[str, str], list[CellSummary]]]:
    """The cells at each value of a setting, for each pi_n and loss."""
    for setup, detector in product(paper_setups(dataset=dataset, budget=BUDGETS[0]), RADS):
        cells = [find(summary, setup, detector, **{name: value}) for value in values]
        yield (f"{setup.anomaly_rate:g}", LOSS_NAMES[detector.loss]), cells


# --- the weight of the unlabelled rows: "images-a" ---------------------------------------


def _weight_tables(summary: Summary) -> list[Table]:
    return [
        _weight_means(summary),
        _claim_table(weight_claims(summary)),
        *(_weight_table(summary, dataset) for dataset in IMAGE_SETS),
    ]


def _weight_means(summary: Summary) -> Table:
    """Means over shares of anomalies and losses."""
    rows = []
    for dataset in IMAGE_SETS:
        swept = [cells for _, cells in _swept(summary, dataset, "a", WEIGHTS)]
        means = [fmean(c.auc.mean for c in column) for column in zip(*swept, strict=True)]
        rows.append([dataset, *map(say_mean, means), say_mean(max(means) - min(means))])
    return Table(
        "Means over pi_n and losses",
        ("dataset", *(f"a = {a:g}" for a in WEIGHTS), "spread"),
        rows,
        note="Over the pi_n and losses that were run at every a.",
    )


def _weight_table(summary: Summary, dataset: str) -> Table:
    rows = []
    for names, cells in _swept(summary, dataset, "a", WEIGHTS):
        means = [cell.auc.mean for cell in cells]
        texts = [_say_with_sd(cell, summary.n_trials) for cell in cells]
        rows.append([*names, *texts, say_mean(max(means) - min(means))])
    return Table(
        f"{dataset}, by a",
        ("pi_n", "loss", *(f"a = {a:g}" for a in WEIGHTS), "spread"),
        rows,
        note="Mean AUC (SE x 100; standard deviation x 100), and the largest less the smallest.",
        left=(0, 1),
    )


TABLES = {"images": _images_tables, "images-prior": _prior_tables, "images-a": _weight_tables}
"""What makes the tables of each part from its summary."""
