"""`riskad refit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riskad.cli.options import PATH, as_json, force, label_column, label_options, name_of
from riskad.cli.shell import ALARM, echo_notes, say, show_progress

if TYPE_CHECKING:
    from riskad.app.model_files import ModelHeader
    from riskad.app.refit import Refit

__all__ = ["refit"]


@click.command(short_help="Fit the next model, and compare it with the last one.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@label_options("the model's")
@click.option(
    "--journal",
    type=PATH,
    help="Answers of `riskad label` or of feedback; they override the labels in DATA.",
)
@click.option(
    "--held-out",
    type=PATH,
    metavar="TABLE",
    help="Labelled rows that neither model learns from, to compare the two.  [default: answers in "
    "the journal that are newer than MODEL]",
)
@click.option("-o", "--output", type=PATH, required=True, help="Where to write the new model.")
@click.option(
    "--report",
    "page",
    type=PATH,
    help="Where to write a report with both models: a page (.html) that opens offline, or .json.",
)
@click.option(
    "--even-if-worse", is_flag=True, help="Write the new model even if it is clearly worse."
)
@as_json
@force
@click.pass_context
def refit(
    ctx: click.Context,
    /,
    model: Path,
    data: Path,
    output: Path,
    page: Path | None,
    as_json: bool,
    force: bool,
    **options: Any,
) -> None:
    """Fit the next model on DATA with the settings and columns of MODEL, and compare the two.

    Both are compared on labels that they have not learned from: answers in the journal that are
    newer than MODEL. MODEL scores these rows as it is; for the new model, each row is scored by a
    fit that has not seen it. If the new model is clearly worse, that is, if the whole 95 % interval
    of the difference of AUCs is below 0, it is not written, and the exit code is 3.

    OUTPUT may be MODEL itself, with --force; it is replaced in one step.

    \b
    Examples:
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o next.riskad
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o cards.riskad \\
        --force --json > refit.json
    """  # noqa: D301
    from riskad.app.model_files import save
    from riskad.app.report.side_by_side import print_refit
    from riskad.storage.files import together

    files = {"model": output} | ({} if page is None else {"report": page})
    _check_outputs(files, data, force)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        found = _refit(model, data, progress=progress, **options)
        report = found.report
        if report.takes_over:
            save(found.fit.model, output, notes=report.notes(), force=force)
        if page is not None:
            _write_page(found, page, ctx.obj, force)
        kept = files if report.takes_over else {k: v for k, v in files.items() if k != "model"}
        written = {what: str(path) for what, path in kept.items()}
        said = say("refit", as_json, report, print_refit, written, written=written)
    click.echo(said)
    ctx.exit(ALARM if report.alarm else 0)


def _check_outputs(files: dict[str, Path], data: Path, force: bool) -> None:
    """Say before the work whether files can be written."""
    from riskad.cli.fit import check_not_read
    from riskad.storage.files import check_different, check_output_file

    for path in files.values():
        check_output_file(path, force)
    if "report" in files:
        from riskad.app.report.files import check_report_name

        check_report_name(files["report"])
    check_different(files.values())
    check_not_read(map(str, files.values()), (str(data),))


def _refit(
    model: Path,
    data: Path,
    journal: Path | None,
    held_out: Path | None,
    even_if_worse: bool,
    progress: Any,
    **options: Any,
) -> Refit:
    from riskad.app.model_files import load, read_header
    from riskad.app.refit import label_column_of, refit_table
    from riskad.tables.reading import read_table

    options["label"] = options["label"] or ""
    header = read_header(model)
    labels = label_column_of(header, label_column(options))
    table = read_table(data)
    told: dict[str, Any] = {"labels": labels, "label_source": None}
    judging = None
    if journal is not None:
        table, told, judging = _with_answers(table, journal, labels, header)
    if held_out is not None:
        from riskad.app.judging import Judging

        judging = Judging.by_table(read_table(held_out), labels)
    return refit_table(
        load(model),
        header,
        table,
        judging,
        even_if_worse=even_if_worse,
        source=name_of((str(data),)),
        progress=progress,
        **told,
    )


def _with_answers(table: Any, journal: Path, labels: Any, header: ModelHeader) -> Any:
    """The table with the labels of a journal, and what these tell of how to judge."""
    from riskad.app.judging import Judging, judged_since
    from riskad.labelling.applying import apply_labels

    applied = apply_labels(table, journal, labels)
    echo_notes(applied.notes())
    told = {"labels": applied.labels, "label_source": applied.sources}
    unseen = judged_since(applied.first_judged, header.created)
    return applied.frame, told, Judging(unseen, applied.sources)


def _write_page(found: Refit, page: Path, command: str, force: bool) -> None:
    from riskad.app.report.files import write_report
    from riskad.app.report.summary import describe_fit

    described = describe_fit(found.fit, command=command, notes=found.report.notes())
    write_report(described, page, force)
