"""`riskad demo`."""

from __future__ import annotations

from pathlib import Path

import click

from riskad.cli.options import as_json, spec_options
from riskad.cli.run import Run, pass_run


@click.command(short_help="Run everything once on built-in data.")
@spec_options("seed")
@as_json
@pass_run
def demo(run: Run, seed: int) -> None:
    """Run everything once, on data that comes with scikit-learn; takes about half a minute."""
    from tempfile import TemporaryDirectory

    from riskad.app.demo import run_demo
    from riskad.app.report.terminal import print_demo

    with TemporaryDirectory() as folder, run.start():
        run.say(run_demo(Path(folder), seed=seed, progress=run.progress), print_demo)
