"""The paper's experiments: its tables and figures, ours beside the published numbers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments.datasets import IMAGE_SETS, PAPER_SETS
from experiments.paper import deep, shallow
from experiments.paper.pages import FEW, LEGEND, ROUNDED, write_pages
from experiments.paper.summary import summarise
from experiments.runner import Experiment

_SHALLOW_TITLES = {
    "main": "Tables 1 and 3 of the paper: rAD beside PU and one-class SVMs",
    "prior": "Table 4 of the paper: rAD with other assumed shares of normal rows",
    "a": "Table 5 of the paper: rAD with other weights of the unlabelled rows",
    "published": "What the published runs amounted to: lambda growing with n, a free intercept",
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

    parts = {part: summarise(records, part) for part in shallow.PARTS}
    main = parts["main"]
    for part, summary in parts.items():
        if part == "main":
            made = tables.main_tables(main)
        elif part == "published":
            made = tables.published_tables(summary)
        else:
            made = tables.sweep_tables(summary, main)
        if summary.cells:
            legend = LEGEND if part in ("main", "published") else _SWEEP_LEGEND
            title = _SHALLOW_TITLES[part]
            place = folder / "tables"
            write_pages(place, summary, made, title=title, legend=legend, paper_sets=PAPER_SETS)
    makers = {
        "agreement": lambda parts: figures.agreement(main),
        "prior": lambda parts: figures.sweep_figure(parts["prior"], main),
        "a": lambda parts: figures.sweep_figure(parts["a"], main),
        "gap": lambda parts: figures.gap_figure(main),
    }
    write_svgs(draw(makers, parts), folder / "figures")


def write_deep(records: pl.DataFrame, folder: Path) -> None:
    """Write the tables and figures of the deep experiments."""
    from experiments.canvas import draw, write_svgs
    from experiments.paper.deep_figures import FIGURES
    from experiments.paper.deep_tables import TABLES

    parts = {part: summarise(records, part) for part in deep.PARTS}
    for part, summary in parts.items():
        if summary.cells:
            legend = _FIGURES_LEGEND
            if part == "images-prior":
                legend = f"{LEGEND} The paper prints SE with two digits, too."
            write_pages(
                folder / "tables",
                summary,
                TABLES[part](summary),
                title=_DEEP_TITLES[part],
                legend=legend,
                paper_sets=IMAGE_SETS,
            )
    write_svgs(draw(FIGURES, parts), folder / "figures")


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
