"""`riskad bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from riskad.cli.options import PATH
from riskad.cli.shell import show_cells, show_progress

__all__ = ["bench"]


@click.group(short_help="Run the paper's experiments, or your own.")
def bench() -> None:
    """Run experiments and write their tables.

    Records are kept line by line: an interrupted run continues where it stopped.
    """


_out = click.option(
    "--out",
    type=PATH,
    help="Folder for records, tables and figures.  [default: results/ and the experiment's name]",
)
_jobs = click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Number of processes, for tables; images need one.  [default: all cores]",
)
_together = click.option(
    "--together",
    type=click.IntRange(1),
    help="Most networks to train at once, for images.  [default: 400 on a GPU, 4 on a CPU]",
)
_device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where networks are trained, for images.",
)
_trials = click.option("--trials", type=click.IntRange(1), help="Run only the first N trials.")
_dataset = click.option("--dataset", multiple=True, metavar="NAME", help="Only this (may repeat).")
_method = click.option("--method", multiple=True, metavar="NAME", help="Only this (may repeat).")
_retry = click.option("--retry-failed", is_flag=True, help="Run failed cells again.")


def _run_options(*special: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that runs experiments, with those special to it."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in (_retry, *reversed(special), _method, _dataset, _trials, _out):
            command = option(command)
        return command

    return decorate


@bench.command(short_help="The paper's shallow tables, beside the published numbers.")
@click.argument("parts", nargs=-1, metavar="[PART]...")
@_run_options(_jobs)
def shallow(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Recompute the paper's shallow tables and write them beside the published numbers.

    PARTS are main (Table 1 and its supplement), prior and a (sensitivity), and published (the
    regularisation that the published runs amounted to); all of them unless you name some.
    Datasets are downloaded from ADBench, or read from the folder that RISKAD_DATA names.
    """
    _run_suite("shallow", parts, out, **choices)


@bench.command(short_help="The paper's deep experiments, on images.")
@click.argument("parts", nargs=-1, metavar="[PART]...")
@_run_options(_together, _device)
def deep(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Run the paper's deep experiments on MNIST, F-MNIST and CIFAR-10. Needs torch.

    PARTS are images (deep rAD, Deep SAD and nnPU), images-prior and images-a (sensitivity of deep
    rAD); all of them unless you name some. Many networks are trained at once, in one process.
    Datasets are downloaded, or read from the folder that RISKAD_DATA names.
    """
    _run_suite("deep", parts, out, **choices)


@bench.command(short_help="AutoRAD compared with other packages, by budget of labels.")
@click.argument("parts", nargs=-1, metavar="[PART]...")
@_run_options(_jobs)
def field(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Compare AutoRAD with methods of other packages, on the paper's datasets and splits.

    PARTS are field (5 % of the rows labelled), field-budgets (1 % and 10 %), field-five (5
    anomalies and no other label), field-slow and field-budgets-slow (methods that take long, in
    fewer trials), and field-recent (TabPFN, RealMLP, FLAML and AutoGluon, 5 %); all of them unless
    you name some. One report covers them all.

    The others come with pip install 'riskad[peers]', DeepOD with pip install --no-deps
    deepod==0.4.1, and TabPFN's weights and AutoGluon as a run without them says; what is not
    installed is left out, and the report says so.
    """
    _run_suite("field", parts, out, **choices)


@bench.command(short_help="An experiment of your own, described in TOML.")
@click.argument("description", type=PATH)
@_run_options(_jobs, _together, _device)
def run(description: Path, out: Path | None, **choices: Any) -> None:
    """Run the experiment that DESCRIPTION (TOML) describes, on any tables whose truth is known.

    DESCRIPTION may also be the name of an experiment that comes with riskad, such as choosing or
    trees: see `riskad/bench/experiments` for their files.
    """
    from riskad.bench.experiment import find_experiment

    path = find_experiment(description)
    _run_experiments([path], out or Path("results") / path.stem, **choices)


@bench.command(short_help="Write tables and figures from records again.")
@click.argument("folder", type=PATH)
def report(folder: Path) -> None:
    """Write FOLDER/tables and FOLDER/figures from the records in FOLDER/records."""
    _write_report(folder)


def _run_suite(suite: str, parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    from riskad.bench.experiment import built_in
    from riskad.core.checks import lookup

    known = built_in(suite)
    paths = [lookup("part", name, known) for name in parts or known]
    _run_experiments(paths, out or Path("results") / suite, **choices)


def _run_experiments(
    paths: Sequence[Path],
    out: Path,
    *,
    trials: int | None,
    dataset: Sequence[str],
    method: Sequence[str],
    retry_failed: bool,
    jobs: int | None = None,
    together: int | None = None,
    device: str = "auto",
) -> None:
    from riskad.bench.experiment import load_experiment
    from riskad.bench.runner import run_experiment
    from riskad.rows.engine import usable_cpus

    experiments = [
        load_experiment(path).narrowed(datasets=dataset, methods=method, trials=trials)
        for path in paths
    ]
    for experiment in experiments:
        with show_cells(experiment.name) as progress:
            outcome = run_experiment(
                experiment,
                out / "records",
                jobs=jobs or usable_cpus(),
                together=together,
                device=device,
                retry_failed=retry_failed,
                progress=progress,
            )
        click.echo(f"{experiment.name}: {outcome}")
    _write_report(out)


def _write_report(folder: Path) -> None:
    from riskad.bench.render import write_report

    with show_progress() as progress:
        progress("Writing tables and figures")
        paths = write_report(folder)
    click.echo(f"Wrote {len(paths)} files to {folder / 'tables'} and {folder / 'figures'}.")
