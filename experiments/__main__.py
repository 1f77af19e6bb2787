"""`python -m experiments`: list experiments, run them, check records, write pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from experiments.records import read_records
from experiments.runner import RESULTS, Experiment, check, run
from riskad import InputError
from riskad.core.checks import lookup, printable

ROOMS = ("paper", "field", "images", "pretraining", "studies", "speed", "stack")


def rooms() -> Iterator[tuple[str, dict[str, Experiment] | ImportError]]:
    """Each room with its experiments by name, or with the reason why it cannot be loaded."""
    for room in ROOMS:
        try:
            module = import_module(f"experiments.{room}")
        except ImportError as error:
            yield room, error
        else:
            yield room, {each.name: each for each in module.EXPERIMENTS}


def find(name: str) -> Experiment:
    """Return the experiment of that name; rooms after its own are not loaded."""
    known: dict[str, Experiment] = {}
    closed: dict[str, ImportError] = {}
    for room, experiments in rooms():
        if isinstance(experiments, ImportError):
            closed[room] = experiments
        elif name in experiments:
            return experiments[name]
        else:
            known |= experiments
    for room, reason in closed.items():
        _warn_of_closed(room, reason)
    return lookup("experiment", name, known)


def _warn_of_closed(room: str, reason: ImportError) -> None:
    advice = "pip install -r experiments/requirements.txt"
    click.echo(f"experiments/{room} cannot be loaded ({reason}): {advice}", err=True)


_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS,
    help="Folder of records and pages.  [default: results/ of the repository]",
)
_cells = click.option(
    "--cells",
    metavar="PATTERN|K",
    help="Only cells whose name matches, such as '*/cardio/*', or K drawn at random.",
)
_jobs = click.option("--jobs", type=click.IntRange(1), default=1, help="Number of processes.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Reproduce the paper, and what the documentation says of the package.

    Each finished cell is recorded at once: an interrupted run continues where it stopped.
    """


@cli.command(name="list")
@click.argument("name", required=False)
def list_(name: str | None) -> None:
    """Name all experiments, or the cells of one."""
    if name is not None:
        for cell in find(name).cells():
            click.echo(str(cell))
        return
    for room, experiments in rooms():
        if isinstance(experiments, ImportError):
            _warn_of_closed(room, experiments)
            continue
        for each in experiments.values():
            click.echo(f"{each.name}: {each.title}")
            needs = f"needs {each.needs}; " if each.needs else ""
            click.echo(f"    results/{each.folder}; {needs}takes {each.minutes or 'seconds'}")


@cli.command(name="run")
@click.argument("name")
@_cells
@_jobs
@_out
@click.option("--resume/--anew", default=True, help="Keep what is recorded, or replace it.")
def run_(name: str, cells: str | None, jobs: int, out: Path, resume: bool) -> None:
    """Run the cells of an experiment that have no record yet, then write its pages."""
    experiment = find(name)
    chosen = experiment.chosen(cells)
    with click.progressbar(length=len(chosen), label=name, show_pos=True, file=sys.stderr) as bar:
        outcome = run(
            experiment,
            cells=chosen,
            resume=resume,
            jobs=jobs,
            results=out,
            progress=lambda done, total: bar.update(done - bar.pos),
        )
    click.echo(f"{name}: {outcome}")
    write_pages(experiment, out)


@cli.command(name="check")
@click.argument("name")
@_cells
@_jobs
@_out
@click.option("--tolerance", default=1e-5, show_default=True, help="By which numbers may differ.")
def check_(name: str, cells: str | None, jobs: int, out: Path, tolerance: float) -> None:
    """Run cells again and compare with their records; nothing is written."""
    experiment = find(name)
    chosen = experiment.chosen(cells, among=experiment.recorded(out))
    n_cells = n_equal = 0
    for cell, lines in check(experiment, chosen, jobs=jobs, tolerance=tolerance, results=out):
        n_cells, n_equal = n_cells + 1, n_equal + (not lines)
        click.echo(f"{cell}: {'; '.join(lines) or 'as recorded'}")
    click.echo(f"{n_equal:,} of {n_cells:,} cells are as recorded.")
    if n_equal < n_cells:
        raise SystemExit(1)


@cli.command()
@click.argument("name")
@_out
def report(name: str, out: Path) -> None:
    """Write the pages of an experiment from its records."""
    write_pages(find(name), out)


def write_pages(experiment: Experiment, results: Path) -> None:
    """Write the pages of an experiment, and say where."""
    path = experiment.path(results)
    experiment.report(read_records(path), path.parent)
    click.echo(f"The pages are in {path.parent}.")


def main() -> int:
    """Run the command line; mistakes and Ctrl-C end in a sentence."""
    try:
        cli.main(standalone_mode=False, prog_name="python -m experiments")
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except InputError as error:
        click.echo(f"Error: {printable(error)}", err=True)
        return 1
    except (KeyboardInterrupt, click.Abort):
        click.echo("Interrupted. Run the same command again to go on.", err=True)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
