"""Figures of the deep experiments: AUC over pi_n, gamma_l and a, ROC, ours and published.

As in the paper, bars are one standard deviation over trials, and panels are image sets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, legend_below, panels
from experiments.datasets import IMAGE_SETS
from experiments.evaluation import FALSE_POSITIVE_RATES
from experiments.paper.deep import BUDGETS, RATES, WEIGHTS
from experiments.paper.deep_claims import DETECTORS, RADS, Detector, Setup, find
from experiments.paper.deep_tables import prior_cells
from experiments.paper.summary import LOSS_NAMES, CellSummary, Summary

# Colour, mark and line of each detector.
_LOOKS = dict(
    zip(
        DETECTORS,
        (
            (BLUE, "o", "-"),
            (GREEN, "^", "-"),
            (ORANGE, "s", "-"),
            (PURPLE, "D", "-"),
            ("black", "x", "--"),
            (GREY, "v", ":"),
        ),
        strict=True,
    )
)
_SET_LOOKS = dict(zip(IMAGE_SETS, ((BLUE, "o"), (ORANGE, "^"), (GREEN, "s")), strict=True))
_BESIDE = 0.11  # between detectors at the same place, in units of a step
_RATE, _SHARE = 0.1, BUDGETS[0]  # where the paper shows gamma_l and ROC curves


def _over_pi_n(share: float, summary: Summary) -> Any:
    """AUC against the share of anomalies, at one share of labelled rows."""
    return _curve_figure(
        RATES,
        rf"$\pi_n$, at $\gamma_l$ = {share:g}",
        DETECTORS,
        lambda dataset, each, rate: find(summary, Setup(dataset, rate, share), each),
    )


def _over_gamma_l(summary: Summary) -> Any:
    """AUC against the share of labelled rows, at pi_n = 0.1."""
    return _curve_figure(
        BUDGETS,
        rf"$\gamma_l$, at $\pi_n$ = {_RATE:g}",
        DETECTORS,
        lambda dataset, each, share: find(summary, Setup(dataset, _RATE, share), each),
    )


def _over_a(rate: float, summary: Summary) -> Any:
    """AUC of rAD against the weight of the unlabelled rows, at one share of anomalies."""
    return _curve_figure(
        WEIGHTS,
        rf"$a$, at $\pi_n$ = {rate:g}",
        RADS,
        lambda dataset, each, a: find(summary, Setup(dataset, rate, _SHARE), each, a=a),
    )


def _curve_figure(
    values: Sequence[float],
    label: str,
    detectors: Sequence[Detector],
    find_cell: Callable[[str, Detector, float], CellSummary],
) -> Any:
    """A panel for each image set with an AUC axis of its own: their AUC lie far apart."""
    figure, drawn = panels({dataset: dataset for dataset in IMAGE_SETS}, sharey=False)
    for ax, dataset in drawn:
        for i, detector in enumerate(detectors):
            # A little beside the other detectors.
            shift = _BESIDE * (i - (len(detectors) - 1) / 2)
            aucs = [find_cell(dataset, detector, value).auc for value in values]
            colour, mark, line = _LOOKS[detector]
            ax.errorbar(
                [place + shift for place in range(len(values))],
                [auc.mean for auc in aucs],
                yerr=[auc.sd for auc in aucs],
                color=colour,
                marker=mark,
                linestyle=line,
                elinewidth=0.7,
                label=detector.name,
            )
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_xlabel(label)
    drawn[0][0].set_ylabel("mean AUC, bars: one std")
    legend_below(figure, drawn[0][0])
    return figure


def _roc(summary: Summary) -> Any:
    """The mean ROC curve of each detector, at gamma_l = 0.05 and pi_n = 0.1."""
    figure, drawn = panels({dataset: dataset for dataset in IMAGE_SETS}, height=3.1)
    for ax, dataset in drawn:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.5)
        for detector, (colour, _, line) in _LOOKS.items():
            rates = find(summary, Setup(dataset, _RATE, _SHARE), detector).roc
            curve = {"color": colour, "linestyle": line, "label": detector.name}
            ax.plot(FALSE_POSITIVE_RATES, rates, **curve)
        ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="false positive rate", aspect="equal")
    drawn[0][0].set_ylabel("true positive rate, mean over trials")
    legend_below(figure, drawn[0][0])
    return figure


def _agreement(summary: Summary) -> Any:
    """For each loss a panel: published mean AUC across, ours up, all pi_n and priors."""
    every = prior_cells(summary)
    figure, drawn = panels({f"{LOSS_NAMES[r.loss]} loss": r.loss for r in RADS}, height=3.3)
    aucs = [auc for cell in every for auc in cell.both]
    low, high = min(aucs) - 0.03, max(aucs) + 0.03
    for ax, loss in drawn:
        ax.plot([low, high], [low, high], color=GREY, linewidth=0.7, zorder=1)
        for dataset, (colour, mark) in _SET_LOOKS.items():
            cells = [c for c in every if c.dataset == dataset and c.settings["loss"] == loss]
            ours, theirs = zip(*(cell.both for cell in cells), strict=True)
            marks = {"color": colour, "markersize": 3, "alpha": 0.8, "label": dataset}
            ax.plot(theirs, ours, mark, **marks)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel="published AUC", aspect="equal")
    drawn[0][0].set_ylabel("our AUC")
    legend_below(figure, drawn[0][0])
    return figure


FIGURES: dict[str, dict[str, Callable[[Summary], Any]]] = {
    "images": {
        **{f"images-pi_n-gamma_l-{share:g}": partial(_over_pi_n, share) for share in BUDGETS},
        "images-gamma_l": _over_gamma_l,
        "images-roc": _roc,
    },
    "images-prior": {"images-agreement": _agreement},
    "images-a": {f"images-a-pi_n-{rate:g}": partial(_over_a, rate) for rate in RATES},
}
"""What draws each figure of a part from its summary."""
