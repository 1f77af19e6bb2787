"""What all figures share: style, colours, panels side by side, and how they become SVG.

The same figure gives the same bytes. Nothing uses matplotlib's global state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.figure import Figure

from riskad.files.atomic import atomic_path

T = TypeVar("T")

# Okabe and Ito's colours, told apart by people who see red and green alike.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"
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


def draw(makers: Mapping[str, Callable[[T], Any]], summary: T) -> dict[str, Any]:
    """Return the matplotlib figures by name; one without anything to show is left out."""
    with matplotlib.rc_context(_STYLE):
        drawn = {name: make(summary) for name, make in makers.items()}
    return {name: figure for name, figure in drawn.items() if figure is not None}


def write_svgs(figures: Mapping[str, Any], folder: Path) -> None:
    """Write FOLDER/NAME.svg for each figure."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        with atomic_path(folder / f"{name}.svg", force=True) as part, matplotlib.rc_context(_STYLE):
            figure.savefig(part, format="svg", metadata={"Date": None, "Creator": "riskad"})


def blank_figure(width: float, height: float) -> Any:
    """A figure of this size in inches, with nothing in it."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(
    shown: Mapping[str, T], height: float = 2.7, sharey: bool = True
) -> tuple[Any, list[tuple[Any, T]]]:
    """A figure with a panel for each title, side by side, and what it is to show."""
    figure = blank_figure(0.5 + 2.4 * len(shown), height)
    axes = figure.subplots(1, len(shown), sharex=True, sharey=sharey, squeeze=False)[0]
    for ax, title in zip(axes, shown, strict=True):
        ax.set_title(title)
    return figure, list(zip(axes, shown.values(), strict=True))


def legend_below(figure: Any, ax: Any) -> None:
    """One legend for all panels, below them."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
