"""`riskad label`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from riskad.cli.fit import check_not_read
from riskad.cli.options import (
    PATH,
    binding,
    check_table_output,
    force,
    given_kinds,
    is_pipe,
    label_column,
    listening_options,
    name_of,
    seed,
    table_options,
)
from riskad.cli.shell import echo, echo_notes, show_progress

__all__ = ["label"]


@click.command(short_help="Label rows in the browser, one key each.")
@click.argument("data", type=PATH)
@table_options(label_required=False)
@click.option("--model", type=PATH, help="A model to begin with; fits to your answers replace it.")
@click.option(
    "--journal",
    type=PATH,
    help="Where to save answers.  [default: DATA.labels.jsonl, beside DATA]",
)
@click.option("--who", default="", metavar="NAME", help="Who answers.  [default: your user name]")
@click.option(
    "--export",
    type=PATH,
    help="Write a copy of DATA with the labels of the journal here; open no page.",
)
@click.option(
    "--budget",
    type=click.FloatRange(1, 3600),
    default=20.0,
    show_default=True,
    help="Seconds that each fit in the background may take.",
)
@listening_options(port=0)
@click.option("--open", "open_", is_flag=True, help="Open the page in a browser.")
@seed
@force
def label(
    data: Path, export: Path | None, journal: Path | None, force: bool, **options: Any
) -> None:
    """Label rows of DATA in the browser while a model learns.

    Opens a page on this machine that shows one row at a time, the most informative first. One key
    labels it: n normal, a anomaly, u unsure, s skip, z undo. No label is needed to begin.

    Each answer is on disk before the page says "saved", in a journal beside DATA. DATA itself is
    never changed. Run the command again to go on where you stopped.

    \b
    Examples:
      riskad label cards.csv
      riskad label cards.csv --label status --normal ok --anomaly fraud --model cards.riskad
      riskad label cards.csv --export labelled.xlsx
      riskad fit cards.csv --journal cards.csv.labels.jsonl -o cards.riskad
    """  # noqa: D301
    from riskad.tables.paths import check_readable, file_of
    from riskad.tables.reading import csv_format, read_table

    source = name_of((str(data),))
    if journal is None:
        if is_pipe(data):
            raise click.UsageError("Say where to keep the answers, with --journal.")
        file, part = file_of(data)
        journal = file.with_name(f"{file.name}{f'.{part}' if part else ''}.labels.jsonl")
    said = label_column(options)
    labels = said if said.column else None
    if export is not None:
        check_table_output(export, force)
        check_not_read([str(export)], [str(data), str(journal)])
        place = check_readable(data)
        _export(read_table(place), journal, labels, export, force, csv_format([place]))
        return
    with show_progress() as progress:
        progress(f"Reading {source}")
        place = check_readable(data)
        frame = read_table(place)
        progress("Looking at the columns")
        options["csv"] = csv_format([place])
        server = _server(frame, journal, labels, source, options)
    address = server.invite()
    echo(f"Label {source} at {address}")
    echo(f"Answers are saved in {journal}. Ctrl-C stops; run the command again to go on.", err=True)
    echo_notes(server.session.said)
    with _opened(address) if options["open_"] else nullcontext():
        server.run()


def _export(frame: Any, journal: Path, labels: Any, export: Path, force: bool, csv: Any) -> None:
    from riskad.labelling.applying import apply_labels
    from riskad.tables.writing import write_table

    applied = apply_labels(frame, journal, labels)
    write_table(applied.frame, export, force, csv)
    echo_notes(applied.notes())
    labelled = sum(bool(source) for source in applied.sources)
    echo(f"{export}: {labelled:,} rows have a label from {journal.name}.")


def _server(frame: Any, journal: Path, labels: Any, source: str, options: dict[str, Any]) -> Any:
    bound = binding(options, "page")
    from riskad.labelling.server import Server
    from riskad.labelling.session import Session

    session = Session(frame, journal, _options(labels, options), source)
    return Server(session, bound, lambda address: click.echo(f"A new address: {address}"))


def _options(labels: Any, options: dict[str, Any]) -> Any:
    from riskad.labelling.session import Options

    model = options["model"]
    if model is not None:
        from riskad.app.model_files import read_header

        read_header(model)  # before any work
    told = ("id", "drop", "group", "who", "budget", "seed", "csv")
    return Options(
        labels=labels,
        kinds=given_kinds(options),
        model=None if model is None else str(model),
        **{name: options[name] for name in told},
    )


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open a browser. Other users see command lines, so the address goes there in a file."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="riskad-label-") as folder:
        page = Path(folder, "label.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', "utf-8")
        click.launch(page.as_uri())
        yield
