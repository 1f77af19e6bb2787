"""The tables of the experiments on images: ours beside the published, detectors, claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from statistics import fmean

from riskad.bench.formats import Table
from riskad.bench.images import (
    AS,
    DETECTORS,
    LABELLED,
    NNPU,
    PRIORS,
    RADS,
    SAD,
    SLIGHT,
    TARGET_SHARE,
    Detector,
    ImageReach,
    Setup,
    Study,
    Win,
    best,
    image_reach,
    prior_cells,
    win,
)
from riskad.bench.images_claims import claims
from riskad.bench.summary import CellSummary, Summary, TrialMean, counted, loss_name
from riskad.bench.words import (
    NONE,
    few,
    say_difference,
    say_estimate,
    say_mean,
    say_own,
    say_published,
    say_setting,
    say_share,
    say_signed,
)

__all__ = ["images_paper_tables", "images_tables"]

_N_PUBLISHED = 240


def images_tables(summary: Summary, experiment: str) -> list[Table]:
    """Tables of an experiment on images, in the order in which they are read."""
    makers = {"images": _detector_tables, "images-prior": _prior_tables, "images-a": _a_tables}
    return [table for table in makers[experiment](summary) if table.rows]


def images_paper_tables(summary: Summary, experiment: str) -> list[Table]:
    """The same; the published table in its own layout, ours and below in italics the published."""
    tables = images_tables(summary, experiment)
    if experiment != "images-prior":
        return tables
    study = Study(summary, experiment)
    first = [_paper_prior_table(study, dataset) for dataset in _datasets(study)]
    rest = [table for table in tables if table.head[0] != "pi_n"]  # those say the same
    return [*first, *rest]


def _datasets(study: Study) -> list[str]:
    return list(dict.fromkeys(setup.dataset for setup in study.setups()))


def _claim_table(summary: Summary, experiment: str) -> Table:
    """What the paper's text says, and whether it holds."""
    unjudged = (
        " Not judged: that Deep SAD falls behind what its authors report, on other anomalies."
    )
    return Table(
        "What the paper claims, and what the records say",
        ("claim", "verdict", "taken to hold where", "our figures"),
        [
            [claim.text, claim.verdict, claim.rule, claim.figures]
            for claim in claims(summary, experiment)
        ],
        note="Differences are of AUC, paired by trial, as mean (SE x 100); rAD is the mean of its "
        "four losses, and what a claim does not name is averaged over. The paper does not measure "
        f'"similar", "small", "little" or "robust": here it is {SLIGHT:g}. "Significant" is more '
        f"than two SE.{unjudged if experiment == 'images' else ''}",
        left=(0, 1, 2, 3),
        broken=(0, 1, 2, 3),
    )


# --- detectors: the experiment "images" --------------------------------------------------


def _detector_tables(summary: Summary) -> list[Table]:
    study = Study(summary, "images")
    return [
        _standings(study),
        *(_win_table(study, rival) for rival in (SAD, NNPU)),
        _claim_table(summary, "images"),
        _best_table(study),
        *(
            _rate_table(study, dataset, labelled)
            for labelled, dataset in product(LABELLED, _datasets(study))
        ),
    ]


def _standings(study: Study) -> Table:
    """The mean of each detector over the setups that all have, and how often it is best."""
    detectors = study.detectors()
    setups = [s for s in study.setups() if all(_mean(study, s, d) is not None for d in detectors)]
    winners = [best(study, setup, detectors) for setup in setups]
    names = [name for name in _datasets(study) if any(s.dataset == name for s in setups)]

    def row(detector: Detector) -> list[str]:
        means = {setup: _mean(study, setup, detector) or 0.0 for setup in setups}
        by_set = [fmean(means[s] for s in setups if s.dataset == name) for name in names]
        n_best = str(winners.count(detector))
        return [detector.name, n_best, *map(say_mean, [*by_set, fmean(means.values())])]

    n_missing = len(study.setups()) - len(setups)
    missing = f" Left out: {counted(n_missing, 'setup')} without all of them." if n_missing else ""
    return Table(
        "Mean AUC over setups, and how often a detector is best",
        ("detector", "best in", *names, "all"),
        [row(detector) for detector in detectors] if setups else [],
        note=f"Over {counted(len(setups), 'setup')}, each an image set with its pi_n and gamma_l, "
        f"that all detectors have.{missing}",
    )


def _mean(study: Study, setup: Setup, detector: Detector) -> float | None:
    cell = study.find(setup, detector)
    return cell.auc.mean if cell and cell.auc else None


def _win_table(study: Study, rival: Detector) -> Table:
    """Each loss of rAD, and the best of them, against a rival."""
    names = _datasets(study)
    run = study.detectors()
    choices: dict[str, Callable[[Setup], Detector | None]] = {
        detector.name: partial(_always, detector) for detector in RADS if detector in run
    }
    if choices:
        choices["best rAD"] = lambda setup: best(study, setup, RADS)
    rows = []
    for name, choose in choices.items() if rival in run else ():
        wins = [win(study, study.setups(dataset=dataset), choose, rival) for dataset in names]
        rows.append([name, *map(_say_win, [*wins, win(study, study.setups(), choose, rival)])])
    return Table(
        f"rAD against {rival.name}",
        ("detector", *names, "all"),
        rows,
        note="Setups won of those that both have, +those won / -those lost by more than two SE, "
        "and the mean difference of AUC paired by trial, with its SE x 100. The best rAD is chosen "
        "for each setup by its test AUC, so it says what rAD could reach, not what one gets.",
    )


def _always(detector: Detector, setup: Setup) -> Detector:
    return detector


def _say_win(result: Win) -> str:
    if not result.n_setups:
        return NONE
    clear = f"+{result.n_clearly_won} / -{result.n_clearly_lost}"
    return f"{result.n_won} of {result.n_setups}, {clear}, {say_difference(result.lead)}"


def _best_table(study: Study) -> Table:
    """Setup by setup: who is best, and the best rAD against its rivals."""
    rows = [_best_row(study, setup) for setup in study.setups()]
    return Table(
        "Setup by setup",
        (
            "dataset",
            "pi_n",
            "gamma_l",
            "best",
            "AUC",
            "best rAD",
            "AUC",
            *(f"less {rival.name}" for rival in (SAD, NNPU)),
        ),
        rows,
        note="Differences of AUC of the best rAD from its rivals, paired by trial: mean "
        "(SE x 100). Which rAD is best is seen from its test AUC.",
        left=(0, 3, 5),
    )


def _best_row(study: Study, setup: Setup) -> list[str]:
    first, own = best(study, setup, DETECTORS), best(study, setup, RADS)
    leads = [
        TrialMean.of(list(study.lead([own], [rival], [setup]).values())) if own else None
        for rival in (SAD, NNPU)
    ]
    return [
        setup.dataset,
        f"{setup.anomaly_rate:g}",
        f"{setup.labelled:g}",
        first.name if first else NONE,
        say_mean(_mean(study, setup, first) if first else None),
        loss_name(str(own.loss)) if own else NONE,
        say_mean(_mean(study, setup, own) if own else None),
        *map(say_difference, leads),
    ]


def _rate_table(study: Study, dataset: str, labelled: float) -> Table:
    """Detectors across, shares of anomalies down."""
    trials = study.summary.n_trials("images")
    detectors = study.detectors()
    rows = [
        [
            f"{setup.anomaly_rate:g}",
            *(_say_with_sd(study.find(setup, detector), trials) for detector in detectors),
        ]
        for setup in study.setups(dataset=dataset, labelled=labelled)
    ]
    return Table(
        f"{dataset}, gamma_l = {labelled:g}",
        ("pi_n", *(detector.name for detector in detectors)),
        rows,
        note="Mean AUC (SE x 100; standard deviation x 100).",
    )


def _say_with_sd(cell: CellSummary | None, trials: int) -> str:
    if cell is None:
        return NONE
    if cell.auc is None or cell.auc.sd is None:
        return say_own(cell, trials)
    sd = f"; {100 * cell.auc.sd:.1f})"
    return say_estimate(cell.auc).replace(")", sd) + few(cell.n_ok, trials)


# --- the published table: "images-prior" -------------------------------------------------


def _prior_tables(summary: Summary) -> list[Table]:
    study, cells = Study(summary, "images-prior"), prior_cells(summary)
    tables = [_target_table(cells), _missed_table(cells), _claim_table(summary, "images-prior")]
    for dataset in _datasets(study):
        tables += [_beside_table(study, dataset), _difference_table(study, dataset)]
    return tables


def _target_table(cells: Sequence[CellSummary]) -> Table:
    """How many of the published cells are reached, and the means."""
    every = ImageReach.of("all", cells)
    reached = bool(cells) and every.n_reach >= TARGET_SHARE * every.n_cells
    above = every.auc is not None and every.published is not None and every.auc > every.published
    absent = _N_PUBLISHED - len(cells)
    unseen = f" {counted(absent, 'cell')} of the {_N_PUBLISHED} have no record." if absent else ""
    return Table(
        "Target: rAD reaches what was published",
        ("cells", "reach", "share", "AUC", "published", "AUC - published"),
        [_reach_row(reach) for reach in image_reach(cells)],
        [_reach_row(every)] if cells else [],
        note=f"A cell is reached where mean AUC >= published - 2 published SE. The target, at "
        f"least {100 * TARGET_SHARE:g} % of the cells, is {'met' if reached else 'missed'}; on "
        f"average our AUC is {'above' if above else 'not above'} the published.{unseen}",
    )


def _reach_row(reach: ImageReach) -> list[str]:
    known = reach.auc is not None and reach.published is not None
    difference = (reach.auc or 0.0) - (reach.published or 0.0) if known else None
    return [
        reach.name,
        *say_share(reach.n_reach, reach.n_cells),
        say_mean(reach.auc),
        say_mean(reach.published),
        say_signed(difference, 3),
    ]


def _missed_table(cells: Iterable[CellSummary]) -> Table:
    missed = [cell for cell in cells if not cell.reaches]
    return Table(
        f"{counted(len(missed), 'cell')} below published - 2 published SE",
        ("dataset", "pi_n", "loss", "pi_p^e", "ours", "published", "difference", "in joint SE"),
        [
            [
                cell.dataset,
                f"{cell.recorded['anomaly_rate']:g}",
                loss_name(cell.settings["loss"]),
                say_setting("prior", cell.settings["prior"]),
                say_own(cell, cell.n_ok),
                say_published(cell.published),
                say_signed(cell.difference, 3),
                say_signed(cell.difference_in_se, 1),
            ]
            for cell in missed
        ],
        left=(0, 2),
    )


def _beside_table(study: Study, dataset: str) -> Table:
    trials = study.summary.n_trials(study.experiment)
    return _prior_table(
        study,
        dataset,
        f"{dataset}, by pi_p^e",
        lambda cell: f"{say_own(cell, trials)} / {say_published(cell.published)}",
        "Ours / published: mean AUC (SE x 100).",
    )


def _difference_table(study: Study, dataset: str) -> Table:
    return _prior_table(
        study,
        dataset,
        f"{dataset}, by pi_p^e: ours less published in joint SE",
        lambda cell: say_signed(cell.difference_in_se, 1),
    )


def _prior_table(
    study: Study, dataset: str, title: str, say: Callable[[CellSummary], str], note: str = ""
) -> Table:
    """Share of anomalies and loss down, priors across."""
    rows = [
        [f"{setup.anomaly_rate:g}", loss_name(str(detector.loss)), *_texts(cells, say)]
        for setup, detector, cells in _swept(study, dataset, "prior", PRIORS)
    ]
    heads = [say_setting("prior", prior) for prior in PRIORS]
    return Table(title, ("pi_n", "loss", *heads), rows, note=note, left=(0, 1))


def _swept(
    study: Study, dataset: str, key: str, values: Sequence[float | str]
) -> list[tuple[Setup, Detector, list[CellSummary | None]]]:
    """The cells at each value of a setting, for each setup and loss that has any."""
    found = []
    for setup, detector in product(study.setups(dataset=dataset, labelled=LABELLED[0]), RADS):
        cells = [study.at(**{key: value}).find(setup, detector) for value in values]
        if any(cells):
            found.append((setup, detector, cells))
    return found


def _texts(cells: Iterable[CellSummary | None], say: Callable[[CellSummary], str]) -> list[str]:
    return [say(cell) if cell else NONE for cell in cells]


def _paper_prior_table(study: Study, dataset: str) -> Table:
    """A part of the published table in its layout: dataset, loss, priors."""
    trials, rows = study.summary.n_trials(study.experiment), []
    seen: set[Setup] = set()
    for setup, detector, cells in _swept(study, dataset, "prior", PRIORS):
        names = ("", "") if setup in seen else (dataset, f"(pi_n = {setup.anomaly_rate:g})")
        seen.add(setup)
        ours = _texts(cells, lambda cell: say_own(cell, trials).replace(" ", ""))
        theirs = _texts(cells, lambda cell: say_published(cell.published).replace(" ", ""))
        rows += [[names[0], loss_name(str(detector.loss)), *ours], [names[1], "", *theirs]]
    return Table(
        f"AUC means (SE x 100) of deep rAD on {dataset} for different pi_p^e. In italics below: "
        "as published.",
        ("dataset", "loss", *(f"pi_p^e = {say_setting('prior', prior)}" for prior in PRIORS)),
        rows,
        left=(0, 1),
        pairs=True,
    )


# --- the weight of the unlabelled rows: "images-a" ---------


def _a_tables(summary: Summary) -> list[Table]:
    study = Study(summary, "images-a")
    return [
        _a_means(study),
        _claim_table(summary, "images-a"),
        *(_a_table(study, dataset) for dataset in _datasets(study)),
    ]


def _a_means(study: Study) -> Table:
    """Means over shares of anomalies and losses."""
    rows = []
    for dataset in _datasets(study):
        swept = [_all_means(cells) for _, _, cells in _swept(study, dataset, "a", AS)]
        means = [fmean(column) for column in zip(*filter(None, swept), strict=True)]
        if means:
            rows.append([dataset, *map(say_mean, means), _spread(means)])
    return Table(
        "Means over pi_n and losses",
        ("dataset", *(f"a = {a:g}" for a in AS), "spread"),
        rows,
        note="Over the pi_n and losses that were run at every a.",
    )


def _all_means(cells: Sequence[CellSummary | None]) -> list[float]:
    """The mean AUC of each cell; none if one is missing."""
    means = [cell.auc.mean for cell in cells if cell and cell.auc]
    return means if len(means) == len(cells) else []


def _spread(means: Sequence[float]) -> str:
    return say_mean(max(means) - min(means)) if means else NONE


def _a_table(study: Study, dataset: str) -> Table:
    trials, rows = study.summary.n_trials(study.experiment), []
    for setup, detector, cells in _swept(study, dataset, "a", AS):
        rows.append(
            [
                f"{setup.anomaly_rate:g}",
                loss_name(str(detector.loss)),
                *(_say_with_sd(cell, trials) for cell in cells),
                _spread(_all_means(cells)),
            ]
        )
    return Table(
        f"{dataset}, by a",
        ("pi_n", "loss", *(f"a = {a:g}" for a in AS), "spread"),
        rows,
        note="Mean AUC (SE x 100; standard deviation x 100), and the largest less the smallest.",
        left=(0, 1),
    )
