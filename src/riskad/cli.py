"""The command line: parse, call the library, print. The work is in `riskad.workflow`.

NumPy, polars and scikit-learn are imported by the commands that need them, so that
`riskad --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from riskad import __version__
from riskad._checks import InputError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["cli", "main"]

# Spelled out here because importing the registries would import NumPy; a test compares them.
LOSSES = ("hinge", "double_hinge", "squared", "modified_huber", "logistic", "sigmoid", "ramp")
RISKS = ("pn", "pu", "nnpu", "nu", "nnnu", "pnu", "rad", "nnrad")
PENALTIES = ("l2", "l1")
FEATURE_MAPS = ("none", "rbf", "nystroem", "poly")
PRIOR_METHODS = ("auto", "em", "divergence", "shift", "pu", "nu")
LAMBDAS = ("cv", "tight", "theorem")
SHALLOW_PARTS = ("main", "prior", "a", "published")
DEEP_PARTS = ("images", "images-prior", "images-a")


class _Group(click.Group):
    """A group whose commands report a user's mistake in a sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly
        except (InputError, OSError) as error:
            raise click.ClickException(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _parse_lambda(ctx: click.Context, param: click.Parameter, value: str) -> float | str:
    if value in LAMBDAS:
        return value
    try:
        return float(value)
    except ValueError:
        choices = ", ".join(LAMBDAS)
        raise click.BadParameter(f"{value!r} is neither a number nor one of {choices}.") from None


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for machines.")
_force = click.option("--force", is_flag=True, help="Replace output files that exist.")
_top = click.option(
    "--top",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    help="Suspicious rows to print.",
)
_seed = click.option(
    "--seed", type=int, default=0, show_default=True, help="Same seed, same answer."
)
_path = click.Path(path_type=Path)


_TABLE_OPTIONS = (
    click.argument("data", type=_path),
    click.option("-l", "--label", required=True, metavar="COLUMN", help="Column with the labels."),
    click.option(
        "--normal", multiple=True, metavar="VALUE", help="Label of normal rows (may repeat)."
    ),
    click.option(
        "--anomaly", multiple=True, metavar="VALUE", help="Label of anomalies (may repeat)."
    ),
    click.option(
        "--unlabelled",
        multiple=True,
        metavar="VALUE",
        help="Label that means no label, beside blank (may repeat).",
    ),
    click.option("--others-unlabelled", is_flag=True, help="Any other label means no label."),
    click.option(
        "--id", "id_", metavar="COLUMN", help="Column that names the rows; not learned from."
    ),
    click.option("--drop", multiple=True, metavar="COLUMN", help="Column to ignore (may repeat)."),
    click.option("--as-text", multiple=True, metavar="COLUMN", help="Read as text (may repeat)."),
    click.option(
        "--as-number", multiple=True, metavar="COLUMN", help="Read as numbers (may repeat)."
    ),
)


def _table_options(command: Callable[..., None]) -> Callable[..., None]:
    """The table with labels, what its labels mean, and which columns to learn from."""
    for option in reversed(_TABLE_OPTIONS):
        command = option(command)
    return command


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="riskad %(version)s")
def cli() -> None:
    """Find anomalies when a few rows are labelled and the rest is not.

    Start with `riskad demo`; then `riskad fit` on a table of your own.
    """


@cli.command(short_help="Fit a model on a table with a few labels.")
@_table_options
@click.option("-o", "--output", type=_path, required=True, help="Where to write the model.")
@click.option("--ranked", type=_path, help="Where to write the unlabelled rows, worst first.")
@click.option(
    "--risk",
    type=click.Choice(RISKS),
    default="rad",
    show_default=True,
    help="Which labels are used and how; without anomalies pu, without normal rows nu.",
)
@click.option(
    "--loss",
    type=click.Choice(LOSSES),
    default="modified_huber",
    show_default=True,
    help="What a score on the wrong side costs.",
)
@click.option(
    "--prior", type=float, default=0.8, show_default=True, help="Share of rows that are normal."
)
@click.option("--a", type=float, default=0.1, show_default=True, help="Weight of unlabelled rows.")
@click.option(
    "--lam",
    callback=_parse_lambda,
    metavar="|".join(("NUMBER", *LAMBDAS)),
    default="cv",
    show_default=True,
    help="Regularisation: cross-validated, the smallest that is proved safe, or Theorem 1's.",
)
@click.option(
    "--penalty",
    type=click.Choice(PENALTIES),
    default="l2",
    show_default=True,
    help="What is regularised; l1 leaves columns out.",
)
@click.option(
    "--feature-map",
    type=click.Choice(FEATURE_MAPS),
    default="none",
    show_default=True,
    help="Features in which the score is linear.",
)
@click.option(
    "--max-iter",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Most steps of the solver.",
)
@_seed
@_top
@_json
@_force
def fit(
    data: Path,
    label: str,
    normal: Sequence[str],
    anomaly: Sequence[str],
    unlabelled: Sequence[str],
    others_unlabelled: bool,
    output: Path,
    ranked: Path | None,
    id_: str | None,
    drop: Sequence[str],
    as_text: Sequence[str],
    as_number: Sequence[str],
    feature_map: str,
    seed: int,
    top: int,
    as_json: bool,
    force: bool,
    **settings: Any,
) -> None:
    """Fit a model on DATA (CSV or Parquet), in which one column holds the labels.

    Blank labels mean unlabelled. Text columns become yes/no columns, blank numbers the median;
    the output says what was done to which column.

    \b
    Example:
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad
    """  # noqa: D301
    from riskad._files import check_output_file
    from riskad.io import save
    from riskad.report import print_fit, to_json
    from riskad.tables import check_table_name, read_table, write_table
    from riskad.workflow import Labels, fit_table

    check_output_file(output, force)
    if ranked is not None:
        check_output_file(ranked, force)
        check_table_name(ranked)
    settings |= {"feature_map": None if feature_map == "none" else feature_map}
    others = "unlabelled" if others_unlabelled else "raise"
    with _progress() as progress:
        progress(f"Reading {data.name}")
        result = fit_table(
            read_table(data),
            Labels(label, normal, anomaly, unlabelled, others),
            id=id_,
            drop=drop,
            text=as_text,
            number=as_number,
            settings=settings | {"random_state": seed},
            top=top,
            source=data.name,
            progress=progress,
        )
        progress(f"Writing {output.name}")
        save(result.model, output, notes=result.report.notes(), force=force)
        if ranked is not None:
            write_table(result.ranked, ranked, force)
    written = {"model": str(output)} | ({"ranked": str(ranked)} if ranked else {})
    if as_json:
        click.echo(to_json(result.report, command="fit", written=written))
    else:
        print_fit(_console(), result.report, written)


@cli.command(short_help="Estimate the anomaly rate of the unlabelled rows.")
@_table_options
@click.option(
    "--method",
    type=click.Choice(PRIOR_METHODS),
    default="auto",
    show_default=True,
    help="em, divergence, shift use both kinds of label; pu only normal rows, nu anomalies.",
)
@_seed
@_json
def prior(
    data: Path,
    label: str,
    normal: Sequence[str],
    anomaly: Sequence[str],
    unlabelled: Sequence[str],
    others_unlabelled: bool,
    id_: str | None,
    drop: Sequence[str],
    as_text: Sequence[str],
    as_number: Sequence[str],
    method: str,
    seed: int,
    as_json: bool,
) -> None:
    """Estimate which share of the unlabelled rows of DATA (CSV or Parquet) are anomalies.

    Prints the rate with its 95 % interval, whether labelled rows look like those in the pile, on
    which the estimate rests, and what to pass to `riskad fit` as --prior, the share of normal rows.

    \b
    Example:
      riskad prior cards.csv --label status --normal ok --anomaly fraud
    """  # noqa: D301
    from riskad.report import print_prior, to_json
    from riskad.tables import read_table
    from riskad.workflow import Labels, estimate_table_prior

    others = "unlabelled" if others_unlabelled else "raise"
    with _progress() as progress:
        progress(f"Reading {data.name}")
        report = estimate_table_prior(
            read_table(data),
            Labels(label, normal, anomaly, unlabelled, others),
            id=id_,
            drop=drop,
            text=as_text,
            number=as_number,
            method=method,
            seed=seed,
            source=data.name,
            progress=progress,
        )
    if as_json:
        click.echo(to_json(report, command="prior"))
    else:
        print_prior(_console(), report)


@cli.command(short_help="Score the rows of a table with a model.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option("-o", "--output", type=_path, required=True, help="Where to write the scored table.")
@click.option(
    "--reasons",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Columns reason_1, reason_2, ... to add: why flagged rows are flagged.",
)
@_top
@_json
@_force
def score(
    model: Path, data: Path, output: Path, reasons: int, top: int, as_json: bool, force: bool
) -> None:
    """Score the rows of DATA with MODEL, and write them with anomaly_score and is_anomaly.

    \b
    Example:
      riskad score cards.riskad new.csv -o scored.csv --reasons 3
    """  # noqa: D301
    from riskad._files import check_output_file
    from riskad.io import load, read_header
    from riskad.report import print_score, to_json
    from riskad.tables import check_table_name, read_table, write_table
    from riskad.workflow import score_table

    check_output_file(output, force)
    check_table_name(output)
    with _progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        id_ = read_header(model).notes.get("fit", {}).get("id")
        scored, report = score_table(
            load(model),
            read_table(data),
            id=id_,
            top=top,
            reasons=reasons,
            source=data.name,
            progress=progress,
        )
        progress(f"Writing {output.name}")
        write_table(scored, output, force)
    if as_json:
        click.echo(to_json(report, command="score", written={"scored": str(output)}))
    else:
        added = (
            "anomaly_score, is_anomaly and reasons" if reasons else "anomaly_score and is_anomaly"
        )
        print_score(_console(), report, str(output), added)


@cli.command(short_help="Say why the most suspicious rows of a table are so.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True, help="Rows.")
@click.option(
    "--reasons", type=click.IntRange(1), default=3, show_default=True, help="Columns for each."
)
@click.option(
    "--id", "id_", metavar="COLUMN", help="Column that names the rows.  [default: that of the fit]"
)
@click.option("-o", "--output", type=_path, help="Where to write every column of these rows.")
@_json
@_force
def explain(
    model: Path,
    data: Path,
    rows: int,
    reasons: int,
    id_: str | None,
    output: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    """Say which columns make the most suspicious rows of DATA so, according to MODEL.

    What a row holds is compared with what is usual: the median of a number, the most frequent
    text. What the columns of a row add is together its score less that of a usual row.

    \b
    Example:
      riskad explain cards.riskad new.csv --rows 20 -o reasons.csv
    """  # noqa: D301
    from riskad._files import check_output_file
    from riskad.io import load, read_header
    from riskad.report import print_explain, to_json
    from riskad.tables import check_columns, check_table_name, read_table, write_table
    from riskad.workflow import explain_table

    if output is not None:
        check_output_file(output, force)
        check_table_name(output)
    with _progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        table = read_table(data)
        check_columns([] if id_ is None else [id_], table.columns)
        found, report = explain_table(
            load(model),
            table,
            id=id_ or read_header(model).notes.get("fit", {}).get("id"),
            rows=rows,
            reasons=reasons,
            source=data.name,
            progress=progress,
        )
        if output is not None:
            write_table(found, output, force)
    if as_json:
        written = {} if output is None else {"reasons": str(output)}
        click.echo(to_json(report, command="explain", written=written))
    else:
        print_explain(_console(), report, None if output is None else str(output))


@cli.command(short_help="Say what a model is and what it was trained on.")
@click.argument("model", type=_path)
@_json
def inspect(model: Path, as_json: bool) -> None:
    """Say what MODEL is, when and on what it was trained, and what it weighs."""
    from riskad.io import load, read_header
    from riskad.report import print_model, to_json
    from riskad.workflow import describe_model

    with _progress() as progress:
        progress(f"Reading {model.name}")
        report = describe_model(load(model), read_header(model))
    if as_json:
        click.echo(to_json(report, command="inspect"))
    else:
        print_model(_console(), report, model.name)


@cli.command(short_help="Say how far a model may be from the best of its kind.")
@click.argument("model", type=_path)
@click.option(
    "--delta",
    type=float,
    default=0.05,
    show_default=True,
    help="Probability with which the bounds may fail.",
)
@_json
def bounds(model: Path, delta: float, as_json: bool) -> None:
    """Say how far the risk of MODEL, made by `riskad fit`, may be from the best of its class.

    The numbers are those of the paper's theorems, term by term: they show which kind of row there
    is too little of. They hold for every distribution and are large for small tables; where they
    say nothing at all, that is said.

    \b
    Example:
      riskad bounds cards.riskad --delta 0.1
    """  # noqa: D301
    from riskad.io import read_header
    from riskad.report import print_bounds, to_json
    from riskad.workflow import bound_model

    with _progress() as progress:
        progress(f"Reading {model.name}")
        found = bound_model(read_header(model), delta)
    if as_json:
        click.echo(to_json(found, command="bounds"))
    else:
        print_bounds(_console(), found, model.name)


@cli.command(short_help="Run everything once on built-in data, in seconds.")
@_seed
@_json
def demo(seed: int, as_json: bool) -> None:
    """Run everything once, on data that comes with scikit-learn; takes seconds."""
    from tempfile import TemporaryDirectory

    from riskad.demo import run_demo
    from riskad.report import print_demo, to_json

    with TemporaryDirectory() as folder, _progress() as progress:
        report = run_demo(Path(folder), seed=seed, progress=progress)
    if as_json:
        click.echo(to_json(report, command="demo"))
    else:
        print_demo(_console(), report)


@cli.group(short_help="Run the paper's experiments, or your own.")
def bench() -> None:
    """Run experiments and write their tables.

    Records are kept line by line: a run that was interrupted goes on where it stopped.
    """


_out = click.option(
    "--out",
    type=_path,
    help="Folder for records, tables and figures.  [default: results/ and the experiment's name]",
)
_jobs = click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Processes to work with, for tables; images need one.  [default: all cores]",
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
_trials = click.option("--trials", type=click.IntRange(1), help="Only the first so many trials.")
_dataset = click.option("--dataset", multiple=True, metavar="NAME", help="Only this (may repeat).")
_method = click.option("--method", multiple=True, metavar="NAME", help="Only this (may repeat).")
_retry = click.option("--retry-failed", is_flag=True, help="Run failed cells once more.")


def _run_options(*special: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that runs experiments, with those special to it."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in (_retry, *reversed(special), _method, _dataset, _trials, _out):
            command = option(command)
        return command

    return decorate


@bench.command(short_help="The paper's shallow tables, beside the published numbers.")
@click.argument("parts", nargs=-1, metavar=f"[{'|'.join(SHALLOW_PARTS)}]...")
@_run_options(_jobs)
def shallow(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Recompute the paper's shallow tables and write them beside the published numbers.

    PARTS are main (Table 1 and its supplement), prior and a (sensitivity), and published (the
    regularisation that the published runs amounted to); all of them unless you name some.
    Datasets are downloaded from ADBench, or read from the folder that RISKAD_DATA names.
    """
    _run_suite("shallow", parts or SHALLOW_PARTS, out, **choices)


@bench.command(short_help="The paper's deep experiments, on images.")
@click.argument("parts", nargs=-1, metavar=f"[{'|'.join(DEEP_PARTS)}]...")
@_run_options(_together, _device)
def deep(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Run the paper's deep experiments on MNIST, F-MNIST and CIFAR-10. Needs torch.

    PARTS are images (deep rAD, Deep SAD and nnPU), images-prior and images-a (sensitivity of deep
    rAD); all of them unless you name some. Many networks are trained at once, in one process.
    Datasets are downloaded, or read from the folder that RISKAD_DATA names.
    """
    _run_suite("deep", parts or DEEP_PARTS, out, **choices)


@bench.command(short_help="An experiment of your own, described in TOML.")
@click.argument("description", type=_path)
@_run_options(_jobs, _together, _device)
def run(description: Path, out: Path | None, **choices: Any) -> None:
    """Run the experiment that DESCRIPTION (TOML) asks for.

    The built-in ones are written in the same way: see `riskad/bench/experiments`.
    """
    _run_experiments([description], out or Path("results") / description.stem, **choices)


@bench.command(short_help="Write tables and figures from records once more.")
@click.argument("folder", type=_path)
def report(folder: Path) -> None:
    """Write FOLDER/tables and FOLDER/figures from the records in FOLDER/records."""
    _write_report(folder)


def _run_suite(suite: str, parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    from riskad._checks import lookup
    from riskad.bench.experiment import built_in

    known = built_in(suite)
    paths = [lookup("part", name, known) for name in parts]
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
    from joblib import cpu_count

    from riskad.bench.experiment import load_experiment
    from riskad.bench.runner import run_experiment

    experiments = [
        load_experiment(path).narrowed(datasets=dataset, methods=method, trials=trials)
        for path in paths
    ]
    for experiment in experiments:
        with _cells_progress(experiment.name) as progress:
            outcome = run_experiment(
                experiment,
                out / "records",
                jobs=jobs or cpu_count(),
                together=together,
                device=device,
                retry_failed=retry_failed,
                progress=progress,
            )
        click.echo(f"{experiment.name}: {outcome}")
    _write_report(out)


def _write_report(folder: Path) -> None:
    from riskad.bench.render import write_report

    with _progress() as progress:
        progress("Writing tables and figures")
        paths = write_report(folder)
    click.echo(f"Wrote {len(paths)} files to {folder / 'tables'} and {folder / 'figures'}.")


@cli.command(short_help="Say which rows to label next.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option("-n", type=click.IntRange(1), default=20, show_default=True, help="Rows.")
@click.option(
    "-l",
    "--label",
    metavar="COLUMN",
    help="Column with the labels; rows that have one are left out, and where DATA has no such "
    "column the output gets it, blank.  [default: that of the fit, if DATA has it]",
)
@click.option(
    "--id", "id_", metavar="COLUMN", help="Column that names the rows.  [default: that of the fit]"
)
@click.option("-o", "--output", type=_path, help="Where to write these rows, to be labelled.")
@_json
@_force
def suggest(
    model: Path,
    data: Path,
    n: int,
    label: str | None,
    id_: str | None,
    output: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    """Say which rows of DATA to label next, so that MODEL, fitted again, gains most.

    Some are likely anomalies, some borderline, some unlike what was labelled, and no two alike. A
    blank label, or "unlabelled", is none.

    \b
    Example:
      riskad suggest cards.riskad cards.csv -n 20 --label status -o to_label.csv
    """  # noqa: D301
    from riskad._files import check_output_file
    from riskad.io import load, read_header
    from riskad.report import print_suggest, to_json
    from riskad.tables import check_columns, check_table_name, read_table, write_table
    from riskad.workflow import suggest_table

    if output is not None:
        check_output_file(output, force)
        check_table_name(output)
    with _progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        table, fitted = read_table(data), read_header(model).notes.get("fit", {})
        check_columns([] if id_ is None else [id_], table.columns)
        if label is None and fitted.get("label") in table.columns:
            label = fitted["label"]
        found, report = suggest_table(
            load(model),
            table,
            n,
            label=label,
            id=id_ or fitted.get("id"),
            source=data.name,
            progress=progress,
        )
        if output is not None:
            write_table(found, output, force)
    if as_json:
        written = {} if output is None else {"suggested": str(output)}
        click.echo(to_json(report, command="suggest", written=written))
    else:
        print_suggest(_console(), report, None if output is None else str(output))


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


@contextmanager
def _progress() -> Iterator[Callable[[str], object]]:
    """Show on a terminal's stderr what is being done and for how long; elsewhere nothing."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Loading", total=None)
        yield lambda description: bar.update(task, description=description)


@contextmanager
def _cells_progress(name: str) -> Iterator[Callable[[int, int], object]]:
    """A bar with the time left on a terminal's stderr; elsewhere a line at each tenth."""
    console = _console(stderr=True)
    if not console.is_terminal:
        yield _TenthPrinter(name)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Cells take from milliseconds to seconds: the speed is that of the last ten minutes.
    with Progress(*columns, console=console, speed_estimate_period=600) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class _TenthPrinter:
    """Prints how far a run is, ten times in all, for logs."""

    def __init__(self, name: str):
        self._name = name
        self._tenth = -1

    def __call__(self, done: int, total: int) -> None:
        tenth = 10 * done // max(total, 1)
        if tenth > self._tenth:
            self._tenth = tenth
            click.echo(f"{self._name}: {done:,} of {total:,} cells", err=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; exit with 0, 1 (data), 2 (usage) or 130 (interrupted)."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # clean up as for Ctrl-C
    try:
        cli.main(arguments, prog_name="riskad", standalone_mode=False)
        sys.stdout.flush()
        code = 0
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


if __name__ == "__main__":
    main()
