"""The command line: parse, call one function of `riskad.app`, print.

NumPy, polars and scikit-learn are imported by the commands that need them, so that
`riskad --help` answers at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from riskad.cli import fit, model, web
from riskad.cli.shell import Group


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="riskad", message="riskad %(version)s")
def cli() -> None:
    """Find anomalies when a few rows are labelled and the rest is not.

    Start with `riskad demo`; then `riskad look` and `riskad fit` on a table of your own.
    """


for _command in (
    *(fit.demo, fit.look, web.label, fit.fit, model.score, model.explain, model.report_table),
    *(model.suggest, fit.refit, model.drift, web.serve),
    *(model.inspect, model.threshold, model.compress, model.export_),
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; exit with a code of `docs/reference/commands.md`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up as for Ctrl-C
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that a terminal lacks is no failure
            stream.reconfigure(errors="backslashreplace")
    try:
        code = cli.main(arguments, prog_name="riskad", standalone_mode=False) or 0
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; nothing was left half written.", err=True)
        code = 130
    except BrokenPipeError:
        # The reader of the pipe has seen enough; Python would complain when flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
