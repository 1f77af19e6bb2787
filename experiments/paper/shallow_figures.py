"""Figures of the shallow experiments: ours against published, over priors and a, the gap to PU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, legend_below, panels
from experiments.paper.shallow_tables import (
    HEADLINE_RULE,
    SMALL_PI_N,
    SWEPT_VALUES,
    Sweep,
    by_rule,
    set_gaps,
    sweeps,
)
from experiments.paper.summary import LOSS_NAMES, CellSummary, Summary
from experiments.tables import counted

T = TypeVar("T")

_RULE_LOOKS = {"theorem": (BLUE, "o"), "tight": (GREEN, "^"), "cv": (ORANGE, "s")}
_OUTLIER = 0.03  # difference of AUC from which a set is named
_MOST_NAMES = 4  # on either side of the diagonal
_NAME_HEIGHT, _NAME_OFFSET = 0.03, 0.012  # in AUC


def _loss_panels(by_loss: Mapping[str, T], height: float = 2.7) -> tuple[Any, list[tuple[Any, T]]]:
    return panels({f"{LOSS_NAMES[loss]} loss": shown for loss, shown in by_loss.items()}, height)


def agreement(main: Summary) -> Any:
    """For each loss a panel: published mean AUC across, ours up, with one SE either way."""
    by_loss = {
        loss: [main.cell(d, "rad", loss=loss, lam=HEADLINE_RULE) for d in main.datasets]
        for loss in main.values("loss")
    }
    figure, drawn = _loss_panels(by_loss, height=3.0)
    every = [auc for cells in by_loss.values() for cell in cells for auc in cell.both]
    low, high = min(every) - 0.06, max(every) + 0.03
    for ax, cells in drawn:
        ax.plot([low, high], [low, high], color=GREY, linewidth=0.7, zorder=1)
        ax.errorbar(
            [cell.published.mean for cell in cells],
            [cell.auc.mean for cell in cells],
            xerr=[cell.published.se for cell in cells],
            yerr=[cell.auc.se for cell in cells],
            fmt="o",
            color=BLUE,
            markersize=3,
            elinewidth=0.7,
            zorder=2,
        )
        _name_outliers(ax, cells)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel="published AUC", aspect="equal")
    drawn[0][0].set_ylabel(f"our AUC, {by_rule(HEADLINE_RULE)}")
    return figure


def _name_outliers(ax: Any, cells: Sequence[CellSummary]) -> None:
    """Name the sets that lie farthest from the diagonal, away from it and from each other."""
    for side in (+1, -1):
        far = [cell for cell in cells if side * cell.difference > _OUTLIER]
        here = sorted(far, key=lambda cell: -abs(cell.difference))[:_MOST_NAMES]
        free = float("-inf")
        for cell in sorted(here, key=lambda cell: side * cell.auc.mean):
            y, x = cell.both
            free = max(side * (y + side * _NAME_OFFSET), free)
            ax.annotate(
                cell.dataset,
                (x, y),
                xytext=(x - side * 2 * _NAME_OFFSET, side * free),
                ha="right" if side > 0 else "left",
                va="center",
                fontsize=6.5,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0},
            )
            free += _NAME_HEIGHT


def sweep_figure(part: Summary, main: Summary) -> Any:
    """Mean AUC over sets against the assumed prior or against a: ours solid, published dashed."""
    by_loss: dict[str, list[Sweep]] = {}
    for sweep in sweeps(part, main):
        by_loss.setdefault(sweep.loss, []).append(sweep)
    values = SWEPT_VALUES[part.experiment]
    # A prior in words has a place of its own.
    labels = [r"$1-\pi_n$" if value == "true" else f"{value}" for value in values]
    places = range(len(labels)) if "true" in values else values
    figure, drawn = _loss_panels(by_loss)
    for ax, curves in drawn:
        for sweep in curves:
            colour, mark = _RULE_LOOKS[sweep.rule]
            ax.plot(places, sweep.ours, color=colour, marker=mark, label=f"ours, {sweep.rule}")
        theirs = curves[0].published
        ax.plot(places, theirs, color="black", marker="x", linestyle="--", label="published")
        ax.set_xticks(places, labels)
        ax.set_title(f"{ax.get_title()}, {counted(len(part.datasets), 'set')}")
        name = r"assumed share of normal rows, $\pi_p^e$" if part.experiment == "prior" else "$a$"
        ax.set_xlabel(name)
    drawn[0][0].set_ylabel("mean AUC over sets")
    legend_below(figure, drawn[0][0])
    return figure


def gap_figure(main: Summary) -> Any:
    """AUC of rAD less that of PU against the share of anomalies, ours and published."""
    by_loss = {loss: set_gaps(main, loss, HEADLINE_RULE, "pu") for loss in main.values("loss")}
    figure, drawn = _loss_panels(by_loss)
    for ax, gaps in drawn:
        x = _spread_out([gap.pi_n for gap in gaps])
        ours, theirs = [gap.ours for gap in gaps], [gap.published for gap in gaps]
        ax.axhline(0, color=GREY, linewidth=0.7)
        ax.axvline(SMALL_PI_N, color=GREY, linewidth=0.7, linestyle=":")
        ax.vlines(x, ours, theirs, color=GREY, linewidth=0.4)
        ax.plot(x, theirs, "o", color=ORANGE, markerfacecolor="white", label="published")
        ax.plot(x, ours, "o", color=BLUE, label=f"ours, {HEADLINE_RULE}")
        ax.set_xlabel(r"share of anomalies, $\pi_n$")
    drawn[0][0].set_ylabel("AUC of rAD less AUC of PU")
    legend_below(figure, drawn[0][0])
    return figure


def _spread_out(places: list[float]) -> list[float]:
    """Set equal places a little beside each other.

    >>> [round(x, 3) for x in _spread_out([0.1, 0.2, 0.1])]
    [0.098, 0.2, 0.102]
    """
    width = 0.004
    return [
        place + width * (places[:i].count(place) - (places.count(place) - 1) / 2)
        for i, place in enumerate(places)
    ]
