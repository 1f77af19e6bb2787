"""`riskad label`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from riskad.cli import params
from riskad.cli.params import FORCE, TABLE
from riskad.cli.run import Run, command, is_pipe
from riskad.cli.shell import echo, echo_notes, show_progress
from riskad.core.checks import printable


@command("Label rows in the browser, one key each.", TABLE, FORCE)
@params.spec_options(*params.LABELS, *params.COLUMNS)
@params.path("--model", help="A model to begin with; fits to your answers replace it.")
@params.path("--journal", help="Where to save answers.  [default: DATA.labels.jsonl, beside DATA]")
@params.option("--who", default="", metavar="NAME", help="Who answers.  [default: your user name]")
@params.path(
    "--export", help="Write a copy of DATA with the labels of the journal here; open no page."
)
@params.option(
    "--budget",
    type=click.FloatRange(1, 3600),
    default=20.0,
    show_default=True,
    help="Seconds that each fit in the background may take.",
)
@params.listening_options(port=0)
@params.option("--open", "open_", is_flag=True, help="Open the page in a browser.")
@params.spec_options("seed")
def label(run: Run, export: Path | None, journal: Path | None, open_: bool, **options: Any) -> None:
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
    from riskad.app.spec import FitSpec
    from riskad.tables.paths import file_of

    if journal is None:
        if is_pipe(run.data[0]):
            raise click.UsageError("Say where to keep the answers, with --journal.")
        file, part = file_of(run.data[0])
        journal = file.with_name(f"{file.name}{f'.{part}' if part else ''}.labels.jsonl")
    labels = FitSpec(**{name: options.pop(name) for name in params.LABELS}).labels
    if export is not None:
        _export(run, journal, labels, export)
        return
    with show_progress() as progress:
        progress(f"Reading {run.source}")
        server = _server(run, journal, labels, options)
    address = server.invite()
    echo(f"Label {run.source} at {address}")
    echo(f"Answers are saved in {journal}. Ctrl-C stops; run the command again to go on.", err=True)
    echo_notes(server.session.said)
    with _opened(address) if open_ else nullcontext():
        server.run()


def _export(run: Run, journal: Path, labels: Any, export: Path) -> None:
    from riskad.app.journal import apply_labels
    from riskad.files.atomic import check_different

    check_different([journal, export])
    with run.start(export=export):
        applied = apply_labels(run.table, journal, labels)
        run.write_table(applied.frame, export)
        echo_notes(applied.notes())
        labelled = sum(bool(source) for source in applied.sources)
        run.text = printable(f"{export}: {labelled:,} rows have a label from {journal.name}.")


def _server(run: Run, journal: Path, labels: Any, options: dict[str, Any]) -> Any:
    bound = params.binding(options, "page")
    from riskad.app.model_files import read_header
    from riskad.tables.reading import csv_format
    from riskad.web.label.server import Server
    from riskad.web.label.session import Options, Session

    model = options["model"]
    if model is not None:
        read_header(model)  # before any work
    names = (*params.COLUMNS, "who", "budget", "seed")
    table_options = Options(
        labels=labels,
        model=None if model is None else str(model),
        csv=csv_format(run.places),
        **{name: options[name] for name in names},
    )
    session = Session(run.table, journal, table_options, run.source)
    return Server(session, bound, lambda address: click.echo(f"A new address: {address}"))


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Open a browser. Other users see command lines, so the address goes there in a file."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="riskad-label-") as folder:
        page = Path(folder, "label.html")
        page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', "utf-8")
        click.launch(page.as_uri())
        yield
