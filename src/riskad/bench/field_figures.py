"""Figures of the benchmark against the field: critical differences, and the lead by budget."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from riskad.bench.canvas import BLUE, GREY, ORANGE, draw, panels, write_svgs
from riskad.bench.field import (
    METRICS,
    Budget,
    Comparison,
    budgets,
    comparisons,
    groups,
    lead,
    say_budget,
)
from riskad.bench.summary import Summary

__all__ = ["draw_field_figures", "write_field_figures"]

_LINE, _BAR = 0.16, 0.07  # inches between names, and between bars of groups


def write_field_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write FOLDER/NAME.svg for each figure that the records allow, and return the paths."""
    return write_svgs(draw_field_figures(summary), folder)


def draw_field_figures(summary: Summary) -> dict[str, Any]:
    """Return the matplotlib figures by name; one without anything to show is left out."""
    makers: dict[str, Callable[[Summary], Any]] = {"field-lead": _lead_figure}
    for budget in budgets(summary):
        place = say_budget(budget).replace(" %", "pct").replace(" ", "-")
        makers[f"field-ranks-{place}"] = partial(_rank_figure, budget=budget)
    return draw(makers, summary)


# --- critical differences ----------------------------------------------------------------


def _rank_figure(summary: Summary, budget: Budget) -> Any | None:
    """Mean ranks of all methods, a panel for each metric; bars join those not told apart."""
    compared = [c for c in comparisons(summary, budget) if len(c.methods) > 2 and len(c.sets) > 1]
    if not compared:
        return None
    comparison = compared[0]
    rows = (len(comparison.methods) + 1) // 2
    bars = max(len(_bars(comparison, metric)) for metric in METRICS)
    height = 0.75 + rows * _LINE + bars * _BAR
    figure = import_module("matplotlib.figure").Figure(
        figsize=(6.4, height * len(METRICS)), layout="constrained"
    )
    for ax, metric in zip(figure.subplots(len(METRICS), 1), METRICS, strict=True):
        _draw_ranks(ax, comparison, metric)
    return figure


def _bars(comparison: Comparison, metric: str) -> list[tuple[int, int]]:
    return groups(list(comparison.ranks[metric].values()), comparison.critical_difference)


def _draw_ranks(ax: Any, comparison: Comparison, metric: str) -> None:
    """The axis at the top, bars of groups below it, then names: the better half on the left."""
    ranks, k = comparison.ranks[metric], len(comparison.methods)
    bars = _bars(comparison, metric)
    top = -0.14 - _BAR * len(bars)
    half = (k + 1) // 2
    for place, (method, rank) in enumerate(ranks.items()):
        left = place < half
        y = top - _LINE * (place if left else k - 1 - place)
        edge = 1 - 0.02 * k if left else k + 0.02 * k
        colour = GREY if method in comparison.peers else BLUE
        ax.plot([rank, rank, edge], [0, y, y], color=colour, linewidth=0.7, clip_on=False)
        text = f"{method}  {rank:.2f}" if left else f"{rank:.2f}  {method}"
        side = "right" if left else "left"
        ax.text(edge, y, f" {text} ", ha=side, va="center", color=colour, fontsize=7)
    values = list(ranks.values())
    for row, (first, last) in enumerate(bars):
        y = -0.1 - _BAR * row
        ends = [values[first] - 0.01 * k, values[last] + 0.01 * k]
        ax.plot(ends, [y, y], color="black", linewidth=2.2, solid_capstyle="butt")
    _draw_axis(ax, k, comparison.critical_difference)
    ax.set(xlim=(1 - 0.35 * k, k + 0.35 * k), ylim=(top - _LINE * half, 0.35))
    ax.set_title(f"{metric}, {say_budget(comparison.budget)} labelled, {len(comparison.sets)} sets")


def _draw_axis(ax: Any, k: int, cd: float) -> None:
    ax.set_axis_off()
    ax.plot([1, k], [0, 0], color="black", linewidth=0.8)
    for rank in range(1, k + 1):
        ax.plot([rank, rank], [0, 0.04], color="black", linewidth=0.8)
        ax.text(rank, 0.06, str(rank), ha="center", va="bottom", fontsize=6.5)
    ax.plot([1, 1 + cd], [0.24, 0.24], color=ORANGE, linewidth=1.6)
    ax.text(1 + cd, 0.24, f"  CD {cd:.2f}", va="center", fontsize=7, color=ORANGE)


# --- the lead by budget ------------------------------------------------------------------


def _lead_figure(summary: Summary) -> Any | None:
    """AutoRAD's mean less that of the best peer against the budget, with one SE over sets."""
    shown: dict[str, list[tuple[Budget, Any]]] = {metric: [] for metric in METRICS}
    for budget in budgets(summary):
        for metric in METRICS:
            if (found := lead(summary, budget, metric)) is not None:
                shown[metric].append((budget, found))
    if len(shown[METRICS[0]]) < 2:
        return None
    figure, drawn = panels(shown, sharey=False)
    for ax, points in drawn:
        means = [found.over_sets.mean for _, found in points]
        errors = [found.over_sets.se or 0.0 for _, found in points]
        ax.axhline(0, color=GREY, linewidth=0.7)
        ax.errorbar(range(len(points)), means, errors, color=BLUE, marker="o", elinewidth=0.8)
        for place, (_, found) in enumerate(points):
            at, offset = (place, found.over_sets.mean), (3, -9 if place % 2 else 4)
            ax.annotate(found.peer, at, offset, textcoords="offset points", fontsize=6)
        said = [say_budget(budget).replace(" a", "\na") for budget, _ in points]
        ax.set_xticks(range(len(points)), said)
        ax.set_xlabel("labelled; beside the dots the best peer")
        ax.margins(x=0.25)
    drawn[0][0].set_ylabel("AutoRAD less the best peer")
    return figure
