"""`riskad demo`."""

from __future__ import annotations

from pathlib import Path

from riskad.cli import params
from riskad.cli.params import JSON
from riskad.cli.run import Run, command


@command("Run everything once on built-in data.", JSON)
@params.spec_options("seed")
def demo(run: Run, seed: int) -> None:
    """Run everything once, on data that comes with scikit-learn; takes about half a minute."""
    from tempfile import TemporaryDirectory

    from riskad.app.demo import run_demo
    from riskad.app.report.terminal import print_demo

    with TemporaryDirectory() as folder, run.start():
        run.say(run_demo(Path(folder), seed=seed, progress=run.progress), print_demo)
