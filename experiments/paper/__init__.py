"""The paper's experiments: its tables and figures, ours beside the published numbers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import polars as pl

from experiments.datasets import IMAGE_SETS
from experiments.paper import deep, shallow
from experiments.paper.summary import FEW, LEGEND, ROUNDED, Summary, summarise, write_page
from experiments.runner import Experiment
from experiments.tables import counted

_SWEEP_TITLES = {
    "prior": "Table 4 of the paper: rAD with other assumed shares of normal rows",
    "a": "Table 5 of the paper: rAD with other weights of the unlabelled rows",
}
_DEEP_TITLES = {
    "images": "Deep rAD beside Deep SAD and nnPU on images",
    "images-prior": "The paper's table of deep rAD: other assumed shares of normal rows",
    "images-a": "Deep rAD with other weights of the unlabelled rows",
}
_SWEEP_LEGEND = (
    f"Cells are mean AUC over trials, as the paper prints them: without SE. {FEW} Where counts "
    f"need an SE, it is ours, but for the column of main. {ROUNDED}"
)
_FIGURES_LEGEND = (
    "pi_n is the share of anomalies in the training rows and gamma_l that of labelled rows. The "
    f"paper shows this experiment in figures, without numbers. {FEW}"
)


def write_shallow(records: pl.DataFrame, folder: Path) -> None:
    """Write the tables and figures of the shallow experiments."""
    from experiments.canvas import draw, write_svgs
    from experiments.paper import shallow_figures as figures
    from experiments.paper import shallow_tables as tables

    cells = list(shallow.cells())
    main = summarise(records, "main", cells)
    swept = [summarise(records, part, cells, among=main.datasets) for part in ("prior", "a")]
    published = summarise(records, "published", cells)
    if _is_complete(main):
        title = "Tables 1 and 3 of the paper: rAD beside PU and one-class SVMs"
        write_page(folder / "tables", main, tables.main_tables(main), title, LEGEND)
        makers = {"agreement": figures.agreement, "gap": figures.gap_figure}
        write_svgs(draw(makers, main), folder / "figures")
    for part in filter(_is_complete, swept):
        made, title = tables.sweep_tables(part, main), _SWEEP_TITLES[part.experiment]
        write_page(folder / "tables", part, made, title, _SWEEP_LEGEND)
        draw_sweep = partial(figures.sweep_figure, main=main)
        write_svgs(draw({part.experiment: draw_sweep}, part), folder / "figures")
    if _is_complete(published):
        title = "What the published runs amounted to: lambda growing with n, a free intercept"
        made = tables.published_tables(published)
        write_page(folder / "tables", published, made, title, LEGEND)


def write_deep(records: pl.DataFrame, folder: Path) -> None:
    """Write the tables and figures of the deep experiments, of parts with all image sets."""
    from experiments.canvas import draw, write_svgs
    from experiments.paper.deep_figures import FIGURES
    from experiments.paper.deep_tables import TABLES

    for part, title in _DEEP_TITLES.items():
        summary = summarise(records, part, deep.cells())
        if _is_complete(summary, len(IMAGE_SETS)):
            printed = f"{LEGEND} The paper prints SE with two digits, too."
            legend = printed if part == "images-prior" else _FIGURES_LEGEND
            write_page(folder / "tables", summary, TABLES[part](summary), title, legend)
            write_svgs(draw(FIGURES[part], summary), folder / "figures")


def _is_complete(summary: Summary, n_sets: int = 1) -> bool:
    """Whether there are datasets enough for a page; if not, say so of a part that was begun."""
    is_complete = len(summary.datasets) >= n_sets
    if summary.versions and not is_complete:
        needs = f"two trials of every cell on {counted(n_sets, 'dataset')}"
        print(f"{summary.experiment}: no page yet, which needs {needs}.")
    return is_complete


EXPERIMENTS = (
    Experiment(
        name="shallow",
        title="the paper's shallow tables: rAD, PU and one-class SVMs on 26 tables",
        cells=shallow.cells,
        run_cell=shallow.run_cell,
        report=write_shallow,
        folder="shallow",
        needs="ADBench",
        minutes="an hour on two cores",
    ),
    Experiment(
        name="deep",
        title="the paper's deep experiments: deep rAD, Deep SAD and nnPU on images",
        cells=deep.cells,
        run_cell=deep.run_cell,
        run_cells=deep.run_cells,
        report=write_deep,
        folder="deep",
        needs="MNIST, F-MNIST and CIFAR-10, torch",
        minutes="10 minutes on an H200",
    ),
)
