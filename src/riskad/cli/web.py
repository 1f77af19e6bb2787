"""Commands that start a server: `riskad label` and `riskad serve`."""

from __future__ import annotations

import os
from contextlib import nullcontext
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
    from tempfile import TemporaryDirectory

    from riskad.app.spec import FitSpec
    from riskad.tables.paths import file_of

    if journal is None:
        if is_pipe(run.data[0]):
            raise click.UsageError("Say where to keep the answers, with --journal.")
        file, part = file_of(run.data[0])
        # A sheet or table of a file has a journal of its own.
        journal = file.with_name(f"{file.name}{f'.{part}' if part else ''}.labels.jsonl")
    cut = {name: options.pop(name) for name in ("time", "window", "step")}
    with params.mistakes_in_usage(run.ctx):
        FitSpec(**cut)
        if cut["window"] is None and cut["time"] is not None:
            raise InputError("--time is the clock of series: give --window, too.")
    options["cut"] = {} if cut["window"] is None else cut
    network = options.pop("backbone")
    if network is not None:
        os.environ["RISKAD_BACKBONE"] = network  # fits are other processes
    of_spec = {name: options.pop(name) for name in (*params.LABELS, "kinds")}
    spec = FitSpec(**of_spec, backbone=network)
    if network is not None or run.in_pictures:
        from riskad.app.pictures import open_pictures

        run.table, spec = open_pictures(run.table, spec, lambda _: None)
    labels, options["kinds"] = spec.labels, spec.kinds
    if export is not None:
        from riskad.app.journal import apply_labels
        from riskad.files.atomic import check_different

        check_different([journal, export])
        with run.start(export=export):
            applied = apply_labels(run.table, journal, labels)
            run.write_table(applied.frame, export)
            echo_notes(applied.notes)
            labelled = sum(bool(source) for source in applied.sources)
            run.text = printable(f"{export}: {labelled:,} rows have a label from {journal.name}.")
        return
    with show_progress() as progress:
        progress(f"Reading {run.source}")
        bound = params.binding(options, "page")
        from riskad.app.model_files import read_header
        from riskad.tables.reading import csv_format
        from riskad.web.label.server import Server
        from riskad.web.label.session import Options, Session

        for name in ("model", "harmless"):
            options[name] = options[name] and str(options[name])
        if options["model"] is not None:
            read_header(options["model"])  # before any work
        names = (*params.COLUMNS, "cut", "model", "harmless", "who", "budget", "seed")
        table_options = {name: options[name] for name in names}
        table_options |= {"labels": labels, "csv": csv_format(run.places)}
        session = Session(run.table, journal, Options(**table_options), run.source)
        server = Server(session, bound, lambda address: click.echo(f"A new address: {address}"))
    address = server.invite()
    echo(f"Label {run.source} at {address}")
    echo(f"Answers are saved in {journal}. Ctrl-C stops; run the command again to go on.", err=True)
    echo_notes(session.notes)
    with TemporaryDirectory(prefix="riskad-label-") if open_ else nullcontext() as folder:
        if folder is not None:
            # Other users see command lines, so the address goes to the browser in a file.
            page = Path(folder, "label.html")
            page.write_text(f'<meta http-equiv="refresh" content="0; url={address}">', "utf-8")
            click.launch(page.as_uri())
        server.run()


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
        from riskad.files.atomic import check_input_file
        from riskad.tables.harmless import HarmlessRules
        from riskad.web.guard import start_log
        from riskad.web.serve.server import Limits, Server, Service, check_token, make_token

        token = os.environ.get("RISKAD_TOKEN")
        if options["token_file"] is not None:
            # Any bytes make a text in Latin-1; `check_token` says what a token may hold.
            token = check_input_file(options["token_file"]).read_bytes().decode("latin-1")
        is_new = token is None
        token = make_token() if token is None else check_token(token)
        limits = Limits(rows=options["max_rows"], waiting=options["max_waiting"])
        rules = None if harmless is None else HarmlessRules.read(harmless)
        echo_notes([] if rules is None else rules.notes())
        log = None if journal is None else str(journal)
        service = Service(str(run.model_file), log, limits, state, rules)
        try:
            server = Server(service, bound, token)
        # The service has started threads, which would keep the process alive.
        except BaseException:
            service.close()
            raise
    echo(f"Serving {run.model_file.name} at {server.root}")
    if is_new:
        click.echo(f"Token: {token}")
    if journal is not None:
        echo(f"Labels are saved in {journal}.", err=True)
    click.echo("Ctrl-C stops.", err=True)
    start_log(log_level)
    server.run()
