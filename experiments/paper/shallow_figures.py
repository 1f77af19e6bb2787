"""Figures of the shallow experiments: ours against published, over priors and a, the gap to PU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from experiments.canvas import BLUE, GREEN, GREY, ORANGE, legend_below, panels
from experiments.paper.shallow_tables import (
    SMALL_PI_N,
    Sweep,
    by_rule,
    headline_rule,
    set_gaps,
    sweeps,
)
from experiments.paper.summary import LOSS_NAMES, Summary
from experiments.tables import counted

T = TypeVar("T")

_RULE_COLOURS = {"theorem": BLUE, "tight": GREEN, "cv": ORANGE}
_RULE_MARKS = {"theorem": "o", "tight": "^", "cv": "s"}
_OUTLIER = 0.03  # difference of AUC from which a set is named
_MOST_NAMES = 4  # on either side of the diagonal
_NAME_HEIGHT, _NAME_OFFSET = 0.03, 0.012  # in AUC


def _loss_panels(by_loss: Mapping[str, T], height: float = 2.7) -> tuple[Any, list[tuple[Any, T]]]:
    return panels({f"{LOSS_NAMES[loss]} loss": shown for loss, shown in by_loss.items()}, height)


class _Dot(NamedTuple):
    """A set: the published mean AUC across and ours up, each with its SE."""

    name: str
    x: float
    y: float
    x_se: float
    y_se: float


def agreement(main: Summary) -> Any | None:
    """For each loss a panel: published mean AUC across, ours up, with one SE either way."""
    rule = headline_rule(main)
    by_loss: dict[str, list[_Dot]] = {}
    for cell in main.cells:
        if cell.method == "rad" and cell.settings["lam"] == rule and cell.auc and cell.published:
            (x, x_se), (y, y_se) = cell.published, (cell.auc.mean, cell.auc.se)
            dot = _Dot(cell.dataset, x, y, x_se or 0.0, y_se or 0.0)
            by_loss.setdefault(cell.settings["loss"], []).append(dot)
    if not by_loss:
        return None
    figure, drawn = _loss_panels(by_loss, height=3.0)
    every = [x for _, dots in drawn for dot in dots for x in (dot.x, dot.y)]
    low, high = min(every) - 0.06, max(every) + 0.03
    for ax, dots in drawn:
        ax.plot([low, high], [low, high], color=GREY, linewidth=0.7, zorder=1)
        _draw_dots(ax, dots)
        _name_outliers(ax, dots)
        ax.set(xlim=(low, high), ylim=(low, high), xlabel="published AUC", aspect="equal")
    drawn[0][0].set_ylabel(f"our AUC, {by_rule(rule)}")
    return figure


def _draw_dots(ax: Any, dots: list[_Dot]) -> None:
    ax.errorbar(
        [dot.x for dot in dots],
        [dot.y for dot in dots],
        xerr=[dot.x_se for dot in dots],
        yerr=[dot.y_se for dot in dots],
        fmt="o",
        color=BLUE,
        markersize=3,
        elinewidth=0.7,
        zorder=2,
    )


def _name_outliers(ax: Any, dots: list[_Dot]) -> None:
    """Name the sets that lie farthest from the diagonal, away from it and from each other."""
    for side in (+1, -1):
        far = [dot for dot in dots if side * (dot.y - dot.x) > _OUTLIER]
        here = sorted(far, key=lambda dot: -abs(dot.y - dot.x))[:_MOST_NAMES]
        free = float("-inf")
        for dot in sorted(here, key=lambda dot: side * dot.y):
            free = max(side * (dot.y + side * _NAME_OFFSET), free)
            ax.annotate(
                dot.name,
                (dot.x, dot.y),
                xytext=(dot.x - side * 2 * _NAME_OFFSET, side * free),
                ha="right" if side > 0 else "left",
                va="center",
                fontsize=6.5,
                arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.4, "shrinkA": 0},
            )
            free += _NAME_HEIGHT


def sweep_figure(part: Summary, main: Summary) -> Any | None:
    """Mean AUC over sets against the assumed prior or against a: ours solid, published dashed."""
    by_loss: dict[str, list[Sweep]] = {}
    for sweep in sweeps(part, main):
        by_loss.setdefault(sweep.loss, []).append(sweep)
    if not by_loss:
        return None
    label = {"prior": r"assumed share of normal rows, $\pi_p^e$", "a": "$a$"}[part.experiment]
    figure, drawn = _loss_panels(by_loss)
    for ax, curves in drawn:
        _draw_sweeps(ax, curves)
        ax.set_title(f"{ax.get_title()}, {counted(curves[0].n_sets, 'set')}")
        ax.set_xlabel(label)
    drawn[0][0].set_ylabel("mean AUC over sets")
    legend_below(figure, drawn[0][0])
    return figure


def _draw_sweeps(ax: Any, curves: list[Sweep]) -> None:
    """Draw the rules' curves and, once, the published one; a prior in words has its own place."""
    values = curves[0].values
    numbers = all(isinstance(value, int | float) for value in values)
    labels = [r"$1-\pi_n$" if value == "true" else f"{value}" for value in values]
    places = list(values) if numbers else list(range(len(labels)))
    for sweep in curves:
        colour, mark = _RULE_COLOURS[sweep.rule], _RULE_MARKS[sweep.rule]
        ax.plot(places, sweep.ours, color=colour, marker=mark, label=f"ours, {sweep.rule}")
    theirs = curves[0].published
    ax.plot(places, theirs, color="black", marker="x", linestyle="--", label="published")
    ax.set_xticks(places, labels)


def gap_figure(main: Summary) -> Any | None:
    """AUC of rAD less that of PU against the share of anomalies, ours and published."""
    rule = headline_rule(main)
    by_loss = {
        loss: gaps for loss in main.values("loss") if (gaps := set_gaps(main, loss, rule, "pu"))
    }
    if not by_loss:
        return None
    figure, drawn = _loss_panels(by_loss)
    for ax, gaps in drawn:
        x = _spread_out([gap.pi_n for gap in gaps])
        ours, theirs = [gap.ours for gap in gaps], [gap.published for gap in gaps]
        ax.axhline(0, color=GREY, linewidth=0.7)
        ax.axvline(SMALL_PI_N, color=GREY, linewidth=0.7, linestyle=":")
        ax.vlines(x, ours, theirs, color=GREY, linewidth=0.4)
        ax.plot(x, theirs, "o", color=ORANGE, markerfacecolor="white", label="published")
        ax.plot(x, ours, "o", color=BLUE, label=f"ours, {rule}")
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
