"""Figures of the deep experiments: AUC over pi_n, gamma_l and a, ROC, ours and published.

As in the paper, bars are one standard deviation over trials, and panels are image sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeVar

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, PURPLE, legend_below, panels
from experiments.datasets import IMAGE_SETS
from experiments.evaluation import FALSE_POSITIVE_RATES, TrialMean
from experiments.paper.deep import BUDGETS, RATES, WEIGHTS
from experiments.paper.deep_comparisons import (
    DETECTORS,
    NNPU,
    RADS,
    SAD,
    Detector,
    Setup,
    find,
)
from experiments.paper.deep_tables import prior_cells
from experiments.paper.summary import LOSS_NAMES, CellSummary, Summary

T = TypeVar("T")
Parts = Mapping[str, Summary]


class _Look(NamedTuple):
    colour: str
    mark: str
    line: str = "-"


_RAD_LOOKS = (_Look(BLUE, "o"), _Look(GREEN, "^"), _Look(ORANGE, "s"), _Look(PURPLE, "D"))
_LOOKS = {
    **dict(zip(RADS, _RAD_LOOKS, strict=True)),
    SAD: _Look("black", "x", "--"),
    NNPU: _Look(GREY, "v", ":"),
}
_SET_LOOKS = dict(
    zip(IMAGE_SETS, (_Look(BLUE, "o"), _Look(ORANGE, "^"), _Look(GREEN, "s")), strict=True)
)
_BESIDE = 0.11  # between detectors at the same place, in units of a step
_RATE, _SHARE = 0.1, BUDGETS[0]  # where the paper shows gamma_l and ROC curves


# --- AUC over a setting ------------------------------------------------------------------


def _over_pi_n(share: float, parts: Parts) -> Any | None:
    """AUC against the share of anomalies, at one share of labelled rows."""
    return _curve_figure(
        RATES,
        rf"$\pi_n$, at $\gamma_l$ = {share:g}",
        lambda dataset, detector, rate: find(
            parts["images"], Setup(dataset, rate, share), detector
        ),
    )


def _over_gamma_l(parts: Parts) -> Any | None:
    """AUC against the share of labelled rows, at pi_n = 0.1."""
    return _curve_figure(
        BUDGETS,
        rf"$\gamma_l$, at $\pi_n$ = {_RATE:g}",
        lambda dataset, detector, share: find(
            parts["images"], Setup(dataset, _RATE, share), detector
        ),
    )


def _over_a(rate: float, parts: Parts) -> Any | None:
    """AUC of rAD against the weight of the unlabelled rows, at one share of anomalies."""
    return _curve_figure(
        WEIGHTS,
        rf"$a$, at $\pi_n$ = {rate:g}",
        lambda dataset, detector, a: find(
            parts["images-a"], Setup(dataset, rate, _SHARE), detector, a=a
        ),
    )


def _curve_figure(
    values: Sequence[float],
    label: str,
    find_cell: Callable[[str, Detector, float], CellSummary | None],
) -> Any | None:
    """A panel for each image set with an AUC axis of its own: their AUC lie far apart."""

    def curve(dataset: str, detector: Detector) -> list[TrialMean | None] | None:
        cells = [find_cell(dataset, detector, value) for value in values]
        estimates = [cell.auc if cell else None for cell in cells]
        return estimates if any(estimates) else None

    by_set = _by_set(curve)
    if not by_set:
        return None
    figure, drawn = panels(by_set, sharey=False)
    for ax, curves in drawn:
        for i, (detector, estimates) in enumerate(curves.items()):
            _draw_curve(ax, detector, estimates, _BESIDE * (i - (len(curves) - 1) / 2))
        ax.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        ax.set_xlabel(label)
    drawn[0][0].set_ylabel("mean AUC, bars: one std")
    _legend(figure, drawn)
    return figure


def _by_set(show: Callable[[str, Detector], T | None]) -> dict[str, dict[Detector, T]]:
    """What there is to show of each detector on each image set; sets without any are left out."""
    by_set: dict[str, dict[Detector, T]] = {}
    for dataset, detector in product(IMAGE_SETS, DETECTORS):
        shown = show(dataset, detector)
        if shown is not None:
            by_set.setdefault(dataset, {})[detector] = shown
    return by_set


def _legend(figure: Any, drawn: Sequence[tuple[Any, Sized]]) -> None:
    """The legend of the panel that shows the most."""
    legend_below(figure, max(drawn, key=lambda panel: len(panel[1]))[0])


def _draw_curve(
    ax: Any, detector: Detector, estimates: Sequence[TrialMean | None], shift: float
) -> None:
    """Draw means and deviations, a little beside those of other detectors."""
    look = _LOOKS[detector]
    there = [(i + shift, estimate) for i, estimate in enumerate(estimates) if estimate]
    ax.errorbar(
        [x for x, _ in there],
        [estimate.mean for _, estimate in there],
        yerr=[estimate.sd or 0.0 for _, estimate in there],
        color=look.colour,
        marker=look.mark,
        linestyle=look.line,
        elinewidth=0.7,
        label=detector.name,
    )


# --- ROC ---------------------------------------------------------------------------------


def _roc(parts: Parts) -> Any | None:
    """The mean ROC curve of each detector, at gamma_l = 0.05 and pi_n = 0.1."""

    def curve(dataset: str, detector: Detector) -> Sequence[float] | None:
        cell = find(parts["images"], Setup(dataset, _RATE, _SHARE), detector)
        return cell.roc if cell else None

    by_set = _by_set(curve)
    if not by_set:
        return None
    figure, drawn = panels(by_set, height=3.1)
    for ax, curves in drawn:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.5)
        for detector, rates in curves.items():
            look = _LOOKS[detector]
            ax.plot(
                FALSE_POSITIVE_RATES,
                rates,
                color=look.colour,
                linestyle=look.line,
                label=detector.name,
            )
        ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="false positive rate", aspect="equal")
    drawn[0][0].set_ylabel("true positive rate, mean over trials")
    _legend(figure, drawn)
    return figure


# --- ours against published --------------------------------------------------------------


def _agreement(parts: Parts) -> Any | None:
    """For each loss a panel: published mean AUC across, ours up, all pi_n and priors."""
    by_loss: dict[str, list[CellSummary]] = {}
    for cell in prior_cells(parts["images-prior"]):
        if cell.both:
            by_loss.setdefault(f"{LOSS_NAMES[cell.settings['loss']]} loss", []).append(cell)
    if not by_loss:
        return None
    figure, drawn = panels(by_loss, height=3.3)
    both = [auc for cells in by_loss.values() for cell in cells for auc in cell.both or ()]
    low, high = min(both) - 0.03, max(both) + 0.03
    for ax, cells in drawn:
        ax.plot([low, high], [low, high], color=GREY, linewidth=0.7, zorder=1)
        for dataset, look in _SET_LOOKS.items():
            pairs = [cell.both for cell in cells if cell.dataset == dataset and cell.both]
            if pairs:
                ours, theirs = zip(*pairs, strict=True)
                marks = {"color": look.colour, "markersize": 3, "alpha": 0.8, "label": dataset}
                ax.plot(theirs, ours, look.mark, **marks)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel="published AUC", aspect="equal")
    drawn[0][0].set_ylabel("our AUC")
    _legend(figure, drawn)
    return figure


FIGURES: dict[str, Callable[[Parts], Any]] = {
    **{f"images-pi_n-gamma_l-{share:g}": partial(_over_pi_n, share) for share in BUDGETS},
    "images-gamma_l": _over_gamma_l,
    **{f"images-a-pi_n-{rate:g}": partial(_over_a, rate) for rate in RATES},
    "images-roc": _roc,
    "images-agreement": _agreement,
}
"""What draws each figure from the summaries of all parts."""
