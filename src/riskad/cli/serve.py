"""`riskad serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from riskad.cli import params
from riskad.cli.params import MODEL
from riskad.cli.run import Run, command
from riskad.cli.shell import echo, show_progress


@command("Serve the scores of a model over HTTP.", MODEL)
@params.path("--journal", help="Take labels at /feedback, and save them here.")
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
def serve(run: Run, journal: Path | None, log_level: str, **options: Any) -> None:
    """Serve the scores of MODEL over HTTP.

    POST /score takes a row as a JSON object, or {"rows": [...]}, and returns anomaly_score,
    is_anomaly and more for each; it reads cells as `riskad score` does. There are also /model,
    /health, /metrics (for Prometheus) and /openapi.json. With --journal, POST /feedback takes
    labels. When the file of MODEL changes, the new model takes over; each answer names its model.

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
        from riskad.web.serve.logs import start_log
        from riskad.web.serve.server import Limits, Server, Service, make_token

        token = _given_token(options["token_file"])
        limits = Limits(rows=options["max_rows"], waiting=options["max_waiting"])
        service = Service(str(run.model_file), None if journal is None else str(journal), limits)
        made = make_token() if token is None else ""
        try:
            server = Server(service, bound, token or made)
        except BaseException:
            service.close()
            raise
    echo(f"Serving {run.model_file.name} at {server.root}")
    if made:
        click.echo(f"Token: {made}")
    if journal is not None:
        echo(f"Labels are saved in {journal}.", err=True)
    click.echo("Ctrl-C stops.", err=True)
    start_log(log_level)
    server.run()


def _given_token(file: Path | None) -> str | None:
    """The token of a file, or of the environment."""
    from riskad.files.atomic import check_input_file
    from riskad.web.serve.server import check_token

    if file is not None:
        return check_token(check_input_file(file).read_bytes().decode("latin-1"))
    text = os.environ.get("RISKAD_TOKEN")
    return None if text is None else check_token(text)
