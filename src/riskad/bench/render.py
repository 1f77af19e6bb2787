r"""Reports for people, for machines and for papers: Markdown, CSV and LaTeX from a summary.

The Markdown sets ours beside the published column by column; the LaTeX has the layout of the
paper's tables, with ours in one line and the published in italics below. The output depends on
the records alone, not on their order and not on the day.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from riskad.bench.field_tables import field_paper_tables, field_tables
from riskad.bench.formats import Table, latex_table, markdown_safe, markdown_table, shorten
from riskad.bench.images_tables import images_paper_tables, images_tables
from riskad.bench.paper import IMAGE_EXPERIMENTS, IMAGE_SETS, PAPER_SETS, paper_set
from riskad.bench.paper_layout import paper_tables
from riskad.bench.records import read_records
from riskad.bench.studies import write_studies
from riskad.bench.summarise import summarise
from riskad.bench.summary import FIELD, CellSummary, NotRun, Remark, Summary, counted, setting_name
from riskad.bench.tables import remark_table, tables_of
from riskad.core.checks import InputError
from riskad.storage.files import atomic_path

__all__ = ["csv_text", "latex_text", "markdown_text", "write_report"]

_TITLES = {
    "main": "Tables 1 and 3 of the paper: rAD beside PU and one-class SVMs",
    "prior": "Table 4 of the paper: rAD with other assumed shares of normal rows",
    "a": "Table 5 of the paper: rAD with other weights of the unlabelled rows",
    "published": "What the published runs amounted to: lambda growing with n, a free intercept",
    "images": "Deep rAD beside Deep SAD and nnPU on images",
    "images-prior": "The paper's table of deep rAD: other assumed shares of normal rows",
    "images-a": "Deep rAD with other weights of the unlabelled rows",
    FIELD: "riskad beside the field: classifiers, self-training, XGBOD, deep detectors and AutoML",
}
_Maker: TypeAlias = Callable[[Summary, str], list[Table]]

_FEW = "[n] says that n trials succeeded where fewer did than elsewhere."
_ROUNDED = (
    "The paper prints most means with two digits: rounding alone can be several of the smallest SE."
)
_LEGEND = (
    f'Cells are mean AUC (SE x 100) over trials; {_FEW} "published" is the paper\'s number. A '
    f'"difference" is (ours - published) / sqrt(SE^2 + published SE^2). {_ROUNDED}'
)
_SWEEP_LEGEND = (
    f"Cells are mean AUC over trials, as the paper prints them: without SE. {_FEW} Where counts "
    f"need an SE, it is ours, but for the column of main. {_ROUNDED}"
)
_OWN_LEGEND = f"Cells are means (SE x 100) over trials; {_FEW}"
_FIGURES_LEGEND = (
    "pi_n is the share of anomalies in the training rows and gamma_l that of labelled rows. The "
    f"paper shows this experiment in figures, without numbers. {_FEW}"
)
_LEGENDS = {
    "main": _LEGEND,
    "published": _LEGEND,
    "prior": _SWEEP_LEGEND,
    "a": _SWEEP_LEGEND,
    "images": _FIGURES_LEGEND,
    "images-prior": f"{_LEGEND} The paper prints SE with two digits, too.",
    "images-a": _FIGURES_LEGEND,
    FIELD: "All methods see the same splits and labels. A classifier learns from labelled rows "
    "alone; with +U it takes unlabelled rows as normal. A dash: not applicable under this budget, "
    "or not run; see below.",
}


def write_report(folder: Path, figures: bool = True) -> list[Path]:
    """Write tables and figures of the records in a folder, and return where they are.

    FOLDER/records/*.jsonl is read; FOLDER/tables/NAME.{md,csv,tex} is written for each
    experiment, and FOLDER/figures/*.svg for what the records allow; for a study that measures
    something else FOLDER/tables/NAME.json. Each file is replaced whole.
    """
    folder = Path(folder)
    paths = sorted((folder / "records").glob("*.jsonl"))
    records = [row for path in paths for row in read_records(path)]
    if not records:
        raise InputError(
            f"There are no records in {str(folder / 'records')!r}; run an experiment into this "
            "folder first."
        )
    studies = {row["experiment"] for row in records if "measure" in row}
    written = write_studies([r for r in records if r["experiment"] in studies], folder, figures)
    summary = summarise(row for row in records if row["experiment"] not in studies)
    written += _write_tables(summary, folder / "tables")
    if figures:
        from riskad.bench.field_figures import write_field_figures
        from riskad.bench.figures import write_figures
        from riskad.bench.images_figures import write_images_figures

        written += write_figures(summary, folder / "figures")
        written += write_images_figures(summary, folder / "figures")
        written += write_field_figures(summary, folder / "figures")
    return written


def _write_tables(summary: Summary, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    writers = {"md": markdown_text, "csv": csv_text, "tex": latex_text}
    written = []
    for experiment in summary.experiments:
        for ending, write in writers.items():
            path = folder / f"{experiment}.{ending}"
            with atomic_path(path, force=True) as part:
                part.write_text(write(summary, experiment), encoding="utf-8", newline="\n")
            written.append(path)
    return written


def _tables_of(summary: Summary, experiment: str) -> list[Table]:
    return _maker(experiment, tables_of, images_tables, field_tables)(summary, experiment)


def _paper_tables(summary: Summary, experiment: str) -> list[Table]:
    make = _maker(experiment, paper_tables, images_paper_tables, field_paper_tables)
    return make(summary, experiment)


def _maker(experiment: str, shallow: _Maker, images: _Maker, field: _Maker) -> _Maker:
    if experiment == FIELD:
        return field
    return images if experiment in IMAGE_EXPERIMENTS else shallow


def _paper_sets(experiment: str) -> tuple[str, ...]:
    return IMAGE_SETS if experiment in IMAGE_EXPERIMENTS else PAPER_SETS


# --- Markdown ----------------------------------------------------------------------------


def markdown_text(summary: Summary, experiment: str) -> str:
    """Return the report of one experiment as Markdown."""
    parts = [f"# {_TITLES.get(experiment, f'Experiment {experiment}')}"]
    parts += _opening(summary, experiment)
    for table in _tables_of(summary, experiment):
        note = [table.note] if table.note else []
        parts += [f"## {table.title}", *note, markdown_table(table)]
    parts += _closing(summary, experiment)
    return "\n\n".join(parts) + "\n"


def _opening(summary: Summary, experiment: str) -> list[str]:
    return [
        _scope(summary, experiment),
        *_version_lines(summary, experiment),
        _LEGENDS.get(experiment, _OWN_LEGEND),
    ]


def _scope(summary: Summary, experiment: str) -> str:
    """How many trials on which datasets."""
    trials, datasets = summary.n_trials(experiment), summary.datasets(experiment)
    seeds = ", ".join(map(str, summary.roots.get(experiment, ()))) or "unknown"
    opening = f"{counted(trials, 'trial')} per cell at most (root seed {seeds}), on"
    if not _in_paper(experiment):
        return f"{opening} {counted(len(datasets), 'dataset')}."
    known = _paper_sets(experiment)
    others = [name for name in datasets if name not in known]
    shared = len(datasets) - len(others)
    more = f" Not in the paper, and not in its means: {', '.join(others)}." if others else ""
    return f"{opening} {shared} of the {len(known)} datasets of the paper.{more}"


def _in_paper(experiment: str) -> bool:
    return experiment in _TITLES


def _version_lines(summary: Summary, experiment: str) -> list[str]:
    versions = summary.versions.get(experiment, ())
    lines = [f"Versions: {'; or '.join(versions) or 'not recorded'}."]
    if commits := summary.commits.get(experiment):  # older records have none
        lines.append(f"Code: {', '.join(commits)}.")
    if peers := summary.peers.get(experiment):
        lines.append(f"Compared with: {', '.join(peers)}.")
    if len(versions) > 1:
        lines.append("**Careful: these records were made with more than one set of versions.**")
    hidden = summary.hidden(experiment)
    if hidden:
        lines.append(
            f"**Careful: some cells were run with several values of "
            f"{', '.join(map(setting_name, hidden))}, which the tables do not tell apart: they "
            "show the one with the most trials. The CSV has all.**"
        )
    return lines


def _closing(summary: Summary, experiment: str) -> list[str]:
    """What was not run, what failed and what warned; said also when there is nothing to say."""
    lines = _not_run_lines(summary.not_run, experiment)
    known = {*summary.datasets(experiment), *(row.name for row in summary.not_run)}
    missing = [name for name in _paper_sets(experiment) if name not in known]
    if missing and _in_paper(experiment):
        lines.append(f"- no record at all: {', '.join(missing)}")

    def said(title: str, remarks: Iterable[Remark], otherwise: str) -> list[str]:
        table = remark_table(title, (row for row in remarks if row.experiment == experiment))
        return [f"## {title}", markdown_table(table) if table.rows else otherwise]

    methods = _not_run_lines(summary.absent, experiment)
    skipped = [row for row in summary.skipped if row.experiment == experiment]
    return [
        "## Not run",
        "\n".join(lines)
        or f"Every dataset{' of the paper' if _in_paper(experiment) else ''} was run.",
        *(["## Methods not installed", "\n".join(methods)] if methods else []),
        *(said("Not applicable", skipped, "") if skipped else []),
        *said("Failed trials", summary.failures, "No trial failed."),
        *said("Warnings", summary.warnings, "No trial gave a warning."),
    ]


def _not_run_lines(rows: Iterable[NotRun], experiment: str) -> list[str]:
    return [
        f"- {row.name}: {markdown_safe(shorten(row.reason))}"
        for row in rows
        if row.experiment == experiment
    ]


# --- CSV ---------------------------------------------------------------------------------


def csv_text(summary: Summary, experiment: str) -> str:
    """Return all cells of one experiment as CSV, a row each and a column for each setting."""
    cells = summary.of(experiment)
    settings = sorted({key for cell in cells for key in cell.settings})
    protocol = sorted({key for cell in cells for key in cell.protocol})
    rows = [_csv_row(cell, settings, protocol) for cell in cells]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()


def _csv_row(cell: CellSummary, settings: Sequence[str], protocol: Sequence[str]) -> dict[str, str]:
    auc, precision, printed = cell.auc, cell.average_precision, cell.published
    row = {
        "experiment": cell.experiment,
        "dataset": cell.dataset,
        **_csv_facts(cell),
        "method": cell.method,
        **{name: cell.settings.get(name) for name in settings},
        **{name: cell.protocol.get(name) for name in protocol},
        "n_trials": cell.n_ok,
        "n_failed": cell.n_failed,
        "auc_mean": auc and auc.mean,
        "auc_se": auc and auc.se,
        "average_precision_mean": precision and precision.mean,
        "average_precision_se": precision and precision.se,
        "fit_seconds_mean": cell.fit_seconds,
        "published_mean": printed and printed.mean,
        "published_se": printed and printed.se,
        "published_rounding": printed and printed.rounding,
        "difference": cell.difference,
        "difference_in_joint_se": cell.difference_in_se,
        "reaches": cell.reaches,
        "within_2_joint_se": cell.within,
        "within_2_joint_se_rounded": cell.within_rounded,
    }
    return {name: _csv_value(value) for name, value in row.items()}


def _csv_facts(cell: CellSummary) -> dict[str, float | None]:
    """What the paper says about a set; image sets are made for each share of anomalies."""
    if cell.experiment in IMAGE_EXPERIMENTS:
        return {}
    facts = paper_set(cell.dataset)
    return {
        "set_d": facts and facts.d,
        "set_n": facts and facts.n,
        "set_pi_n": facts and facts.pi_n,
    }


def _csv_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


# --- LaTeX -------------------------------------------------------------------------------


def latex_text(summary: Summary, experiment: str) -> str:
    r"""Return the tables of one experiment as LaTeX, for \input in a document with booktabs."""
    opening = (
        f"% {_TITLES.get(experiment, experiment)}\n"
        "% Needs \\usepackage{booktabs}, and about 17 cm of text width.\n"
    )
    return opening + "\n".join(map(latex_table, _paper_tables(summary, experiment)))
