"""Pages of the paper's experiments: tables in Markdown, with what was run and what failed.

What is written depends on the records alone, not on their order and not on the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.paper.summary import Summary
from experiments.tables import (
    Table,
    counted,
    markdown_safe,
    markdown_table,
    shorten,
    write_text,
)

FEW = "[n] says that n trials succeeded where fewer did than elsewhere."
ROUNDED = (
    "The paper prints most means with two digits: rounding alone can be several of the smallest SE."
)
LEGEND = (
    f'Cells are mean AUC (SE x 100) over trials; {FEW} "published" is the paper\'s number. A '
    f'"difference" is (ours - published) / sqrt(SE^2 + published SE^2). {ROUNDED}'
)


def write_pages(
    folder: Path,
    summary: Summary,
    tables: Sequence[Table],
    *,
    title: str,
    legend: str,
    paper_sets: Sequence[str],
) -> None:
    """Write FOLDER/PART.md for one part of an experiment."""
    shown = [table for table in tables if table.rows]
    parts = [f"# {title}", *_opening(summary, paper_sets), legend]
    for table in shown:
        parts += [f"## {table.title}", *filter(None, [table.note]), markdown_table(table)]
    parts += _closing(summary, paper_sets)
    path = folder / f"{summary.experiment}.md"
    write_text(path, "\n\n".join(parts) + "\n")


def _opening(summary: Summary, paper_sets: Sequence[str]) -> list[str]:
    """How many trials on which datasets, with what."""
    trials = f"{counted(summary.n_trials, 'trial')} per cell at most (root seed 0)"
    sets = f"{len(summary.datasets)} of the {len(paper_sets)} datasets of the paper"
    lines = [f"{trials}, on {sets}.", f"Versions: {'; or '.join(summary.versions)}."]
    if summary.commits:  # older records have none
        lines.append(f"Code: {', '.join(summary.commits)}.")
    if len(summary.versions) > 1:
        lines.append("**Careful: these records were made with more than one set of versions.**")
    return lines


def _closing(summary: Summary, paper_sets: Sequence[str]) -> list[str]:
    """What was not run, what failed and what warned; said also when there is nothing to say."""
    lines = [
        f"- {name}: {markdown_safe(shorten(reason))}" for name, reason in summary.not_run.items()
    ]
    known = {*summary.datasets, *summary.not_run}
    if missing := [name for name in paper_sets if name not in known]:
        lines.append(f"- no record at all: {', '.join(missing)}")
    return [
        "## Not run",
        "\n".join(lines) or "Every dataset of the paper was run.",
        "## Failed trials",
        summary.failures or "No trial failed.",
        "## Warnings",
        summary.warnings or "No trial gave a warning.",
    ]
