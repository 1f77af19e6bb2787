"""Commands that start a server: `riskad label` and `riskad serve`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from riskad.cli import params
from riskad.cli.params import FORCE, MODEL, TABLE
from riskad.cli.run import Run, command, is_pipe
from riskad.cli.shell import echo, echo_notes, show_progress
from riskad.core.checks import InputError, printable


@command("Label rows in the browser, one key each.", TABLE, FORCE)
@params.spec_options(*params.LABELS, *params.COLUMNS, "backbone")
@params.window_options
@params.path("--model", help="A model to begin with; fits to your answers replace it.")
@params.path("--journal", help="Where to save answers.  [default: DATA.labels.jsonl, beside DATA]")
@params.path(
    "--harmless",
    help="Rules of the known harmless (.toml), to which the page adds.  [default: beside the "
    "journal]",
)
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

    With --time and --window, rows are points of time series: the page draws the series around a
    row, w marks a stretch, and the answer is about all of its rows.

    Each answer is on disk before the page says "saved", in a journal beside DATA. DATA itself is
    never changed. Run the command again to go on where you stopped.

    \b
    Examples:
      riskad label cards.csv
      riskad label cards.csv --label status --normal ok --anomaly fraud --model cards.riskad
      riskad label cards.csv --export labelled.xlsx
      riskad label pump.csv --time t --window 1h --step 10m --group machine
      riskad label photos/ --backbone resnet50.onnx
      riskad fit cards.csv --journal cards.csv.labels.jsonl -o cards.riskad
    """  # noqa: D301
    from riskad.app.spec import FitSpec
    from riskad.tables.paths import file_of

    if journal is None:
        if is_pipe(run.data[0]):
            raise click.UsageError("Say where to keep the answers, with --journal.")
        file, part = file_of(run.data[0])
        # A sheet or table of a file has a journal of its own.
        journal = file.with_name(f"{file.name}{f'.{part}' if part else ''}.labels.jsonl")
    options["cut"] = {name: options.pop(name) for name in ("time", "window", "step")}
    with params.mistakes_in_usage(run.ctx):
        FitSpec(**options["cut"])
        if options["cut"]["window"] is None:
            if options["cut"]["time"] is not None:
                raise InputError("--time is the clock of series: give --window, too.")
            options["cut"] = {}
    network = options.pop("backbone")
    if network is not None:
        os.environ["RISKAD_BACKBONE"] = network  # fits are other processes
    names = (*params.LABELS, "kinds")
    spec = FitSpec(**{name: options.pop(name) for name in names}, backbone=network)
    if network is not None or run.in_pictures:
        from riskad.app.pictures import open_pictures

        run.table, spec = open_pictures(run.table, spec, lambda _: None)
    labels, options["kinds"] = spec.labels, spec.kinds
    if export is not None:
        _export(run, journal, labels, export)
        return
    with show_progress() as progress:
        progress(f"Reading {run.source}")
        server = _server(run, journal, labels, options)
    address = server.invite()
    echo(f"Label {run.source} at {address}")
    echo(f"Answers are saved in {journal}. Ctrl-C stops; run the command again to go on.", err=True)
    echo_notes(server.session.notes)
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

    model, harmless = (options[name] and str(options[name]) for name in ("model", "harmless"))
    if model is not None:
        read_header(model)  # before any work
    names = (*params.COLUMNS, "cut", "who", "budget", "seed")
    table_options = Options(
        labels=labels,
        model=model,
        harmless=harmless,
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


@command("Serve the scores of a model over HTTP.", MODEL)
@params.path("--journal", help="Take labels at /feedback, and save them here.")
@params.path("--harmless", help="Rules of the known harmless (.toml): rows not to be flagged.")
@params.path(
    "--state",
    help="With a model of windows: where to keep the last points of each series, for a restart.",
)
@params.listening_options(port=8000)
@params.path(
    "--token-file",
    help="File with the token.  [default: RISKAD_TOKEN, or a new one, which is printed]",
)
@params.count("--max-rows", default=10_000, most=1_000_000, help="Most rows in one request.")
@params.count(
    "--max-waiting", default=64, most=10_000, help="Most requests that may wait; others get 503."
)
@params.option(
    "--log-level",
    type=click.Choice(("debug", "info", "warning", "error")),
    default="info",
    show_default=True,
    help="Log on stderr: all requests (info), only those that were refused or failed (warning) or "
    "that failed (error); debug adds those for /health.",
)
def serve(
    run: Run,
    journal: Path | None,
    harmless: Path | None,
    state: Path | None,
    log_level: str,
    **options: Any,
) -> None:
    """Serve the scores of MODEL over HTTP.

    POST /score takes a row as a JSON object, or {"rows": [...]}, and returns anomaly_score,
    is_anomaly and more for each; it reads cells as `riskad score` does. There are also /model,
    /health, /metrics (for Prometheus) and /openapi.json. With --journal, POST /feedback takes
    labels. When the file of MODEL changes, the new model takes over; each answer names its model.
    A model of windows takes the points of a series as they come, and returns the windows that they
    complete.

    Every request needs the token, and only this machine is answered. To let other machines in,
    give --host and a certificate.

    \b
    Examples:
      riskad serve cards.riskad
      riskad serve cards.riskad --journal cards.labels.jsonl --token-file token.txt
      riskad serve cards.riskad --host 0.0.0.0 --name scores.example.org \\
        --tls-cert cert.pem --tls-key key.pem
      curl -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
        -d '{"amount": 12.5, "country": "BE"}' 'http://127.0.0.1:8000/score?reasons=3'
    """  # noqa: D301
    with show_progress() as progress:
        progress(f"Loading {run.model_file.name}")
        bound = params.binding(options, "server")
        from riskad.tables.harmless import HarmlessRules
        from riskad.web.guard import start_log
        from riskad.web.serve.server import Limits, Server, Service, make_token

        token = _token_of(options["token_file"])
        limits = Limits(rows=options["max_rows"], waiting=options["max_waiting"])
        rules = None if harmless is None else HarmlessRules.read(harmless)
        echo_notes([] if rules is None else rules.notes())
        log = None if journal is None else str(journal)
        service = Service(str(run.model_file), log, limits, state, rules)
        new_token = make_token() if token is None else ""
        try:
            server = Server(service, bound, token or new_token)
        # The service has started threads, which would keep the process alive.
        except BaseException:
            service.close()
            raise
    echo(f"Serving {run.model_file.name} at {server.root}")
    if new_token:
        click.echo(f"Token: {new_token}")
    if journal is not None:
        echo(f"Labels are saved in {journal}.", err=True)
    click.echo("Ctrl-C stops.", err=True)
    start_log(log_level)
    server.run()


def _token_of(file: Path | None) -> str | None:
    """The token of a file, or of the environment."""
    from riskad.files.atomic import check_input_file
    from riskad.web.serve.server import check_token

    if file is not None:
        # Any bytes make a text in Latin-1; `check_token` says what a token may hold.
        return check_token(check_input_file(file).read_bytes().decode("latin-1"))
    text = os.environ.get("RISKAD_TOKEN")
    return None if text is None else check_token(text)
