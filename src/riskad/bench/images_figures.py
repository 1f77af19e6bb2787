"""Figures of the experiments on images: AUC over pi_n, gamma_l and a, ROC, ours and published.

As in the paper, bars are one standard deviation over trials, and panels are image sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from riskad.bench.canvas import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    draw,
    legend_below,
    panels,
    write_svgs,
)
from riskad.bench.images import (
    AS,
    DETECTORS,
    LABELLED,
    NNPU,
    RADS,
    RATES,
    SAD,
    Detector,
    Setup,
    Study,
    prior_cells,
)
from riskad.bench.paper import IMAGE_SETS
from riskad.bench.summary import CellSummary, Summary, TrialMean, loss_name

__all__ = ["draw_images_figures", "write_images_figures"]


class _Look(NamedTuple):
    colour: str
    mark: str
    line: str = "-"


_LOOKS = {
    **dict(
        zip(
            RADS,
            (_Look(BLUE, "o"), _Look(GREEN, "^"), _Look(ORANGE, "s"), _Look(PURPLE, "D")),
            strict=True,
        )
    ),
    SAD: _Look("black", "x", "--"),
    NNPU: _Look(GREY, "v", ":"),
}
_SET_LOOKS = dict(
    zip(IMAGE_SETS, (_Look(BLUE, "o"), _Look(ORANGE, "^"), _Look(GREEN, "s")), strict=True)
)
_BESIDE = 0.11  # between detectors at the same place, in units of a step
_RATE, _SHARE = 0.1, LABELLED[0]  # where the paper shows gamma_l and ROC curves

T = TypeVar("T")
_Place: TypeAlias = tuple[Study, float, float]  # with pi_n and gamma_l; a setup but for its set


def write_images_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write FOLDER/NAME.svg for each figure that the records allow, and return the paths."""
    return write_svgs(draw_images_figures(summary), folder)


def draw_images_figures(summary: Summary) -> dict[str, Any]:
    """Return the matplotlib figures by name; one without anything to show is left out."""
    makers: dict[str, Callable[[Summary], Any]] = {
        **{f"images-pi_n-gamma_l-{share:g}": partial(_over_pi_n, share) for share in LABELLED},
        "images-gamma_l": _over_gamma_l,
        **{f"images-a-pi_n-{rate:g}": partial(_over_a, rate) for rate in RATES},
        "images-roc": _roc,
        "images-agreement": _agreement,
    }
    return draw(makers, summary)


# --- AUC over a setting ------------------------------------------------------------------


def _over_pi_n(share: float, summary: Summary) -> Any | None:
    """AUC against the share of anomalies, at one share of labelled rows."""
    study = Study(summary, "images")
    places = {rate: (study, rate, share) for rate in RATES}
    return _curve_figure(places, rf"$\pi_n$, at $\gamma_l$ = {share:g}")


def _over_gamma_l(summary: Summary) -> Any | None:
    """AUC against the share of labelled rows, at pi_n = 0.1."""
    study = Study(summary, "images")
    places = {share: (study, _RATE, share) for share in LABELLED}
    return _curve_figure(places, rf"$\gamma_l$, at $\pi_n$ = {_RATE:g}")


def _over_a(rate: float, summary: Summary) -> Any | None:
    """AUC of rAD against the weight of the unlabelled rows, at one share of anomalies."""
    study = Study(summary, "images-a")
    places = {a: (study.at(a=a), rate, _SHARE) for a in AS}
    return _curve_figure(places, rf"$a$, at $\pi_n$ = {rate:g}")


def _curve_figure(places: Mapping[float, _Place], label: str) -> Any | None:
    """A panel for each image set with an AUC axis of its own: their AUC lie far apart."""
    by_set = _by_set(lambda dataset, detector: _curve(places.values(), dataset, detector))
    if not by_set:
        return None
    figure, drawn = panels(by_set, sharey=False)
    for ax, curves in drawn:
        for i, (detector, estimates) in enumerate(curves.items()):
            _draw_curve(ax, detector, estimates, _BESIDE * (i - (len(curves) - 1) / 2))
        ax.set_xticks(range(len(places)), [f"{value:g}" for value in places])
        ax.set_xlabel(label)
    drawn[0][0].set_ylabel("mean AUC, bars: one std")
    _legend(figure, drawn)
    return figure


def _curve(
    places: Iterable[_Place], dataset: str, detector: Detector
) -> list[TrialMean | None] | None:
    """The AUC of a detector at each place; None if there is none at all."""
    cells = [study.find(Setup(dataset, *shares), detector) for study, *shares in places]
    estimates = [cell.auc if cell else None for cell in cells]
    return estimates if any(estimates) else None


def _by_set(find: Callable[[str, Detector], T | None]) -> dict[str, dict[Detector, T]]:
    """What there is to show of each detector on each image set; sets without any are left out."""
    found: dict[str, dict[Detector, T]] = {}
    for dataset, detector in product(IMAGE_SETS, DETECTORS):
        shown = find(dataset, detector)
        if shown is not None:
            found.setdefault(dataset, {})[detector] = shown
    return found


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


def _roc(summary: Summary) -> Any | None:
    """The mean ROC curve of each detector, at gamma_l = 0.05 and pi_n = 0.1."""
    study = Study(summary, "images")

    def find(dataset: str, detector: Detector) -> Sequence[float] | None:
        cell = study.find(Setup(dataset, _RATE, _SHARE), detector)
        return cell.roc if cell else None

    by_set = _by_set(find)
    if not by_set:
        return None
    figure, drawn = panels(by_set, height=3.1)
    for ax, curves in drawn:
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.5)
        for detector, rates in curves.items():
            look = _LOOKS[detector]
            ax.plot(
                _false_positive_rates(len(rates)),
                rates,
                color=look.colour,
                linestyle=look.line,
                label=detector.name,
            )
        ax.set(xlim=(0, 1), ylim=(0, 1.01), xlabel="false positive rate", aspect="equal")
    drawn[0][0].set_ylabel("true positive rate, mean over trials")
    _legend(figure, drawn)
    return figure


def _false_positive_rates(n: int) -> list[float]:
    """Where the records hold true positive rates: dense where false alarms are few.

    >>> _false_positive_rates(5)
    [0.0, 0.0625, 0.25, 0.5625, 1.0]
    """
    return [(i / (n - 1)) ** 2 for i in range(n)]


# --- ours against published --------------------------------------------------------------


def _agreement(summary: Summary) -> Any | None:
    """For each loss a panel: published mean AUC across, ours up, all pi_n and priors."""
    by_loss: dict[str, list[CellSummary]] = {}
    for cell in prior_cells(summary):
        if cell.both:
            by_loss.setdefault(f"{loss_name(cell.settings['loss'])} loss", []).append(cell)
    if not by_loss:
        return None
    figure, drawn = panels(by_loss, height=3.3)
    both = [auc for cells in by_loss.values() for cell in cells for auc in cell.both or ()]
    low, high = min(both) - 0.03, max(both) + 0.03
    for ax, cells in drawn:
        ax.plot([low, high], [low, high], color=GREY, linewidth=0.7, zorder=1)
        _draw_sets(ax, cells)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel="published AUC", aspect="equal")
    drawn[0][0].set_ylabel("our AUC")
    _legend(figure, drawn)
    return figure


def _draw_sets(ax: Any, cells: Sequence[CellSummary]) -> None:
    for dataset, look in _SET_LOOKS.items():
        pairs = [cell.both for cell in cells if cell.dataset == dataset and cell.both]
        if pairs:
            ours, theirs = zip(*pairs, strict=True)
            marks = {"color": look.colour, "markersize": 3, "alpha": 0.8, "label": dataset}
            ax.plot(theirs, ours, look.mark, **marks)
