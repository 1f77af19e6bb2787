"""Figures as SVG: ours against published, over priors and a, and the gap to PU.

The same summary gives the same bytes. matplotlib is imported when a figure is drawn, and without
its global state.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from riskad._checks import InputError
from riskad._files import atomic_path
from riskad.bench.summary import (
    SMALL_PI_N,
    Cell,
    Summary,
    Sweep,
    headline_rule,
    set_gaps,
    sweeps,
)

__all__ = ["draw_figures", "write_figures"]

# Okabe and Ito's colours, told apart by people who see red and green alike.
_BLUE, _ORANGE, _GREEN, _PURPLE, _GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
_RULE_COLOURS = {"theorem": _BLUE, "tight": _GREEN, "cv": _ORANGE, "auto": _PURPLE}
_RULE_MARKS = {"theorem": "o", "tight": "^", "cv": "s", "auto": "D"}
_LOSS_NAMES = {"squared": "square", "hinge": "hinge", "modified_huber": "m-Huber"}
_STYLE = {
    "svg.hashsalt": "riskad",  # ids of paths come from it, not from chance
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
}
_OUTLIER = 0.03  # difference of AUC from which a set is named
_MOST_NAMES = 6
_NAME_HEIGHT, _NAME_OFFSET = 0.03, 0.012  # in AUC


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write FOLDER/NAME.svg for each figure that the records allow, and return the paths."""
    paths = []
    figures = draw_figures(summary)
    if figures:
        folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        path = folder / f"{name}.svg"
        with atomic_path(path, force=True) as part, _matplotlib().rc_context(_STYLE):
            figure.savefig(part, format="svg", metadata={"Date": None, "Creator": "riskad"})
        paths.append(path)
    return paths


def draw_figures(summary: Summary) -> dict[str, Any]:
    """Return the matplotlib figures by name; one without anything to show is left out."""
    makers: dict[str, Callable[[Summary], Any]] = {
        "agreement": _agreement,
        "prior": lambda summary: _sweep_figure(summary, "prior"),
        "a": lambda summary: _sweep_figure(summary, "a"),
        "gap": _gap_figure,
    }
    with _matplotlib().rc_context(_STYLE):
        drawn = {name: make(summary) for name, make in makers.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def _matplotlib() -> Any:
    try:
        return import_module("matplotlib")
    except ImportError:
        raise InputError(
            "Figures need matplotlib, which is not installed: pip install 'riskad[bench]'"
        ) from None


def _panels(n: int, height: float = 2.7) -> tuple[Any, list[Any]]:
    """A figure with n panels side by side that share their axes."""
    figure = import_module("matplotlib.figure").Figure(
        figsize=(0.5 + 2.4 * n, height), layout="constrained"
    )
    axes = figure.subplots(1, n, sharex=True, sharey=True, squeeze=False)[0]
    return figure, list(axes)


# --- ours against published --------------------------------------------------------------


def _agreement(summary: Summary) -> Any | None:
    """For each loss a panel: published mean AUC across, ours up, with one SE either way."""
    rule = headline_rule(summary)
    panels = {
        loss: [
            cell
            for cell in summary.of("main", "rad")
            if cell.settings.get("loss") == loss
            and cell.settings.get("lam") == rule
            and cell.auc
            and cell.published
        ]
        for loss in summary.values("main", "loss")
    }
    panels = {loss: cells for loss, cells in panels.items() if cells}
    if not panels:
        return None
    figure, axes = _panels(len(panels), height=3.0)
    every = [x for cells in panels.values() for cell in cells for x in _means(cell)]
    low, high = min(every) - 0.06, max(every) + 0.03
    for ax, (loss, cells) in zip(axes, panels.items(), strict=True):
        ax.plot([low, high], [low, high], color=_GREY, linewidth=0.7, zorder=1)
        _dots(ax, cells)
        _name_outliers(ax, cells)
        ax.set(title=f"{_LOSS_NAMES.get(loss, loss)} loss", xlim=(low, high), ylim=(low, high))
        ax.set(xlabel="published AUC", aspect="equal")
    axes[0].set_ylabel(f"our AUC, lambda by rule {rule}")
    return figure


def _means(cell: Cell) -> tuple[float, float]:
    """Published and own mean AUC of a cell that has both."""
    assert cell.published is not None
    assert cell.auc is not None
    return cell.published.mean, cell.auc.mean


def _dots(ax: Any, cells: list[Cell]) -> None:
    points = [_means(cell) for cell in cells]
    ax.errorbar(
        [x for x, _ in points],
        [y for _, y in points],
        xerr=[(cell.published and cell.published.se) or 0.0 for cell in cells],
        yerr=[(cell.auc and cell.auc.se) or 0.0 for cell in cells],
        fmt="o",
        color=_BLUE,
        markersize=3,
        elinewidth=0.7,
        zorder=2,
    )


def _name_outliers(ax: Any, cells: list[Cell]) -> None:
    """Name the sets that lie farthest from the diagonal, away from it and from each other."""
    far = [cell for cell in cells if abs(cell.difference or 0.0) > _OUTLIER]
    far = sorted(far, key=lambda cell: -abs(cell.difference or 0.0))[:_MOST_NAMES]
    for side in (+1, -1):
        here = [cell for cell in far if side * (cell.difference or 0.0) > 0]
        free = float("-inf")
        for cell in sorted(here, key=lambda cell: side * _means(cell)[1]):
            x, y = _means(cell)
            free = max(side * (y + side * _NAME_OFFSET), free)
            ax.annotate(
                cell.dataset,
                (x, y),
                xytext=(x - side * 2 * _NAME_OFFSET, side * free),
                ha="right" if side > 0 else "left",
                va="center",
                fontsize=6.5,
                arrowprops={"arrowstyle": "-", "color": _GREY, "linewidth": 0.4, "shrinkA": 0},
            )
            free += _NAME_HEIGHT


# --- over a setting ----------------------------------------------------------------------


def _sweep_figure(summary: Summary, experiment: str) -> Any | None:
    """Mean AUC over sets against the assumed prior or against a: ours solid, published dashed."""
    if experiment not in summary.experiments:
        return None
    found = sweeps(summary, experiment)
    losses = list(dict.fromkeys(sweep.loss for sweep in found))
    if not losses:
        return None
    figure, axes = _panels(len(losses))
    for ax, loss in zip(axes, losses, strict=True):
        curves = [sweep for sweep in found if sweep.loss == loss]
        _draw_sweeps(ax, curves)
        name, n_sets = _LOSS_NAMES.get(loss, loss), curves[0].n_sets
        ax.set_title(f"{name} loss, {n_sets} set{'' if n_sets == 1 else 's'}")
        ax.set_xlabel({"prior": r"assumed share of normal rows, $\pi_p^e$", "a": "$a$"}[experiment])
    axes[0].set_ylabel("mean AUC over sets")
    _legend_below(figure, axes[0])
    return figure


def _draw_sweeps(ax: Any, curves: list[Sweep]) -> None:
    """Draw the rules' curves and, once, the published one; a prior in words has its own place."""
    numbers = all(isinstance(value, int | float) for value in curves[0].values)
    labels = [r"$1-\pi_n$" if value == "true" else f"{value}" for value in curves[0].values]
    places = list(curves[0].values) if numbers else list(range(len(labels)))
    for sweep in curves:
        colour, mark = _RULE_COLOURS.get(sweep.rule, _GREY), _RULE_MARKS.get(sweep.rule, "v")
        ax.plot(places, sweep.ours, color=colour, marker=mark, label=f"ours, {sweep.rule}")
    theirs = curves[0].published
    ax.plot(places, theirs, color="black", marker="x", linestyle="--", label="published")
    ax.set_xticks(places, labels)


# --- the gap to PU -----------------------------------------------------------------------


def _gap_figure(summary: Summary) -> Any | None:
    """AUC of rAD less that of PU against the share of anomalies, ours and published."""
    rule = headline_rule(summary)
    panels = {
        loss: set_gaps(summary, loss, rule, "pu")
        for loss in summary.values("main", "loss")
        if rule is not None
    }
    panels = {loss: found for loss, found in panels.items() if found}
    if not panels:
        return None
    figure, axes = _panels(len(panels))
    for ax, (loss, found) in zip(axes, panels.items(), strict=True):
        x = _spread_out([gap.pi_n for gap in found])
        ours, theirs = [gap.ours for gap in found], [gap.published for gap in found]
        ax.axhline(0, color=_GREY, linewidth=0.7)
        ax.axvline(SMALL_PI_N, color=_GREY, linewidth=0.7, linestyle=":")
        ax.vlines(x, ours, theirs, color=_GREY, linewidth=0.4)
        ax.plot(x, theirs, "o", color=_ORANGE, markerfacecolor="white", label="published")
        ax.plot(x, ours, "o", color=_BLUE, label=f"ours, {rule}")
        ax.set(title=f"{_LOSS_NAMES.get(loss, loss)} loss", xlabel=r"share of anomalies, $\pi_n$")
    axes[0].set_ylabel("AUC of rAD less AUC of PU")
    _legend_below(figure, axes[0])
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


def _legend_below(figure: Any, ax: Any) -> None:
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
