"""`riskad demo`."""

from __future__ import annotations

from pathlib import Path

import click

from riskad.cli.options import as_json, seed
from riskad.cli.shell import say, show_progress

__all__ = ["demo"]


@click.command(short_help="Run everything once on built-in data.")
@seed
@as_json
def demo(seed: int, as_json: bool) -> None:
    """Run everything once, on data that comes with scikit-learn; takes about half a minute."""
    from tempfile import TemporaryDirectory

    from riskad.app.demo import run_demo
    from riskad.app.report.terminal import print_demo

    with TemporaryDirectory() as folder, show_progress() as progress:
        report = run_demo(Path(folder), seed=seed, progress=progress)
    click.echo(say("demo", as_json, report, print_demo))
