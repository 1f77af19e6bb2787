"""The command line: parse, call the library, print. The work is in `riskad.app.workflow`.

NumPy, polars and scikit-learn are imported by the commands that need them, so that
`riskad --help` answers at once.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from riskad import __version__
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from riskad.app.workflow import Fit

__all__ = ["cli", "main"]

# Spelled out here because importing the registries would import NumPy; a test compares them.
MODELS = ("auto", "shallow", "boosted", "deep")
ENGINES = ("threads", "dask")
LOSSES = ("hinge", "double_hinge", "squared", "modified_huber", "logistic", "sigmoid", "ramp")
RISKS = ("pn", "pu", "nnpu", "nu", "nnnu", "pnu", "rad", "nnrad")
PENALTIES = ("l2", "l1")
FEATURE_MAPS = ("none", "rbf", "nystroem", "poly")
_LARGEST_SEED = 2**32 - 1  # that scikit-learn takes
_MOST_ROWS, _MOST_REASONS = 10**9, 1000  # beyond these an option is a slip of the keyboard
PRIOR_METHODS = ("auto", "em", "divergence", "shift", "pu", "nu")
LAMBDAS = ("cv", "tight", "theorem")
SHALLOW_PARTS = ("main", "prior", "a", "published")
FIELD_PARTS = ("field", "field-slow", "field-budgets", "field-five", "field-budgets-slow")
DEEP_PARTS = ("images", "images-prior", "images-a")


class _Group(click.Group):
    """A group whose commands report a user's mistake in a sentence, without a traceback.

    Its context holds the command as it was typed.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        for argument in args:
            if not _is_unicode(argument):
                raise click.UsageError(
                    f"The argument {argument!r} holds bytes that are not UTF-8, which no table or "
                    "model can hold. Rename the file, or correct the argument."
                )
        ctx.obj = shlex.join(["riskad", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly
        except (InputError, OSError) as error:
            raise click.ClickException(_sentence(error)) from error


def _is_unicode(text: str) -> bool:
    """Whether a text can be written; bytes of the command line that are no text cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _parse_lambda(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | str | None:
    if value is None or value in LAMBDAS:
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
    type=click.IntRange(0, _MOST_ROWS),
    default=10,
    show_default=True,
    help="Suspicious rows to print.",
)
_seed = click.option(
    "--seed",
    type=click.IntRange(0, _LARGEST_SEED),
    default=0,
    show_default=True,
    help="Same seed, same answer.",
)
_path = click.Path(path_type=Path)
_RULES = "risk|rate[:SHARE]|f1|cost:1:10|false-alarms:0.01|top:50"


_TABLE_OPTIONS = (
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
    """What the labels of a table mean, and which columns to learn from."""
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
@click.argument("data", nargs=-1, required=True)
@_table_options
@click.option("-o", "--output", type=_path, required=True, help="Where to write the model.")
@click.option("--ranked", type=_path, help="Where to write the unlabelled rows, worst first.")
@click.option(
    "--report",
    "page",
    type=_path,
    help="Where to write a report: a page (.html) that opens offline, or .json.",
)
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default="auto",
    show_default=True,
    help="auto needs no settings; the others have those below, and their own defaults.",
)
@click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="auto: what a fit may take; explaining it may take 1/4 more.  [default: 60]",
)
@click.option(
    "--risk",
    type=click.Choice(RISKS),
    help="Not auto: which labels are used and how; without anomalies pu, without normal rows nu.",
)
@click.option(
    "--loss", type=click.Choice(LOSSES), help="Not auto: what a score on the wrong side costs."
)
@click.option(
    "--prior", type=float, help="Not auto: share of rows that are normal.  [default: 0.8]"
)
@click.option("--a", type=float, help="Not auto: weight of unlabelled rows.  [default: 0.1]")
@click.option(
    "--lam",
    callback=_parse_lambda,
    metavar="|".join(("NUMBER", *LAMBDAS)),
    help="shallow: regularisation, cross-validated, the smallest that is proved safe, or Theorem "
    "1's.  [default: cv]",
)
@click.option(
    "--penalty",
    type=click.Choice(PENALTIES),
    help="shallow: what is regularised; l1 leaves columns out.  [default: l2]",
)
@click.option(
    "--feature-map",
    type=click.Choice(FEATURE_MAPS),
    help="shallow: features in which the score is linear.  [default: none]",
)
@click.option(
    "--max-iter",
    type=click.IntRange(1),
    help="shallow: most steps of the solver.  [default: 100]",
)
@click.option(
    "--threshold",
    default="risk",
    show_default=True,
    metavar="RULE",
    help=f"What is_anomaly means: {_RULES}; see `riskad threshold --help`.",
)
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default="threads",
    show_default=True,
    help="Who reads Parquet files that are larger than memory.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="dask: the cluster to work on, tcp://host:8786 for instance.  [default: a local one]",
)
@_seed
@_top
@_json
@_force
@click.pass_obj
def fit(
    command: str,
    /,
    data: Sequence[str],
    label: str,
    normal: Sequence[str],
    anomaly: Sequence[str],
    unlabelled: Sequence[str],
    others_unlabelled: bool,
    output: Path,
    ranked: Path | None,
    page: Path | None,
    id_: str | None,
    drop: Sequence[str],
    as_text: Sequence[str],
    as_number: Sequence[str],
    model: str,
    threshold: str,
    engine: str,
    scheduler: str | None,
    seed: int,
    top: int,
    as_json: bool,
    force: bool,
    **settings: Any,
) -> None:
    """Fit a model on DATA (CSV or Parquet), in which one column holds the labels.

    Blank labels mean unlabelled. Text columns become yes/no columns, blank numbers the median;
    the output says what was done to which column.

    DATA may be several Parquet files, a folder of them, or a pattern in quotes. These, and a file
    that does not fit in memory, are read some rows at a time, which needs
    pip install 'riskad[parquet]'. shallow learns from all rows, the others from all labelled rows
    and a random sample of the rest; --ranked has the 10,000 most suspicious rows.

    \b
    Models:
      auto      average of several kinds of detector, weighted by held-out labels
      shallow   linear, or with a feature map; has bounds, is fast and easy to read
      boosted   boosted trees; needs pip install 'riskad[boost]'
      deep      a neural network; needs pip install 'riskad[deep]'

    \b
    Examples:
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --report cards.html
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --model shallow --loss logistic
      riskad fit 'cards/*.parquet' --label status --normal ok --anomaly fraud \\
        -o cards.riskad --model shallow
    """  # noqa: D301
    from riskad.app.model_files import save
    from riskad.app.text import print_fit, to_json
    from riskad.app.workflow import Labels
    from riskad.storage.files import check_different, check_output_file, together, write_again
    from riskad.tables.files import check_table_name, write_table

    if scheduler is not None and engine != "dask":
        raise click.UsageError("--scheduler is the address of a Dask cluster: add --engine dask.")
    check_output_file(output, force)
    if ranked is not None:
        check_output_file(ranked, force)
        check_table_name(ranked)
    if page is not None:
        _check_report(page, force)
    paths = {"model": output, "ranked": ranked, "report": page}
    written = {what: str(path) for what, path in paths.items() if path is not None}
    check_different(written.values())
    _check_not_read(written.values(), data)
    given = {name: value for name, value in settings.items() if value is not None}
    if given.get("feature_map") == "none":
        given["feature_map"] = None
    others = "unlabelled" if others_unlabelled else "raise"

    def keep(fitted: Any, report: Any) -> None:
        """Write the model before columns are explained, so that an interrupt loses no fit."""
        save(fitted, output, notes=report.notes(), force=force)

    with together(keep_if_interrupted=True), _progress() as progress:
        result = _fit(
            data,
            engine,
            scheduler,
            labels=Labels(label, normal, anomaly, unlabelled, others),
            id=id_,
            drop=drop,
            text=as_text,
            number=as_number,
            model=model,
            settings=given | {"random_state": seed},
            threshold=threshold,
            top=top,
            source=_name(data),
            progress=progress,
            fitted=keep,
        )
        progress(f"Writing {output.name}")
        write_again(output)  # now that it is known which columns matter
        save(result.model, output, notes=result.report.notes(), force=force)
        if ranked is not None:
            write_table(result.ranked, ranked, force)
        if page is not None:
            from riskad.app.findings import fit_findings
            from riskad.app.page import write_report

            progress(f"Writing {page.name}")
            write_report(fit_findings(result, command=command), page, force)
        said = (
            to_json(result.report, command="fit", written=written)
            if as_json
            else _printed(print_fit, result.report, written)
        )
    click.echo(said)


def _fit(data: Sequence[str], engine: str, scheduler: str | None, **options: Any) -> Fit:
    """Fit on a table in memory, or on files of which some rows are read at a time."""
    from riskad.app.workflow import fit_files, fit_table
    from riskad.tables.files import find_tables, is_larger_than_memory, read_table

    options["progress"](f"Reading {_name(data)}")
    paths = find_tables(data)
    if engine == "dask":
        if not all(path.suffix.lower() in (".parquet", ".pq") for path in paths):
            raise InputError(
                "--engine dask works on Parquet files: write the table as Parquet, or leave "
                "--engine out."
            )
        from riskad.rows.cluster import dask_engine

        with dask_engine(scheduler) as cluster:
            return fit_files(paths, engine=cluster, **options)
    if is_larger_than_memory(paths):
        return fit_files(paths, **options)
    return fit_table(read_table(paths[0]), **options)


def _check_not_read(outputs: Iterable[str], data: Sequence[str]) -> None:
    """--force replaces results, never the table that they come from."""
    read = {os.path.realpath(path) for path in data}
    for output in outputs:
        if os.path.realpath(output) in read:
            raise InputError(
                f"{output!r} is both read and written here; give another name for the output."
            )


def _name(data: Sequence[str]) -> str:
    """What reports call the tables that were given."""
    first = Path(data[0]).name or data[0]
    return first if len(data) == 1 else f"{first} and {len(data) - 1} more"


@cli.command(short_help="Estimate the anomaly rate of the unlabelled rows.")
@click.argument("data", type=_path)
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
    which the estimate rests, and what to pass to `riskad fit` as --prior, the share of normal rows;
    the model auto estimates that itself.

    \b
    Example:
      riskad prior cards.csv --label status --normal ok --anomaly fraud
    """  # noqa: D301
    from riskad.app.text import print_prior, to_json
    from riskad.app.workflow import Labels, estimate_table_prior
    from riskad.tables.files import read_table

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
@click.argument("data", nargs=-1, required=True)
@click.option("-o", "--output", type=_path, required=True, help="Where to write the scored table.")
@click.option(
    "--threshold",
    metavar="RULE",
    help=f"Another meaning of is_anomaly than the model's: {_RULES}.",
)
@click.option(
    "--fdr",
    type=float,
    metavar="SHARE",
    help="Add p_value, and flag rows of which at most this share is normal, on average.",
)
@click.option(
    "--reasons",
    type=click.IntRange(0, _MOST_REASONS),
    default=0,
    show_default=True,
    help="Columns reason_1, reason_2, ... to add: why flagged rows are flagged.",
)
@_top
@_json
@_force
def score(
    model: Path,
    data: Sequence[str],
    output: Path,
    threshold: str | None,
    fdr: float | None,
    reasons: int,
    top: int,
    as_json: bool,
    force: bool,
) -> None:
    """Score the rows of DATA with MODEL, and write them with anomaly_score and is_anomaly.

    A model of both kinds of label adds anomaly_probability. Rows are read, scored and written some
    at a time: DATA (CSV or Parquet) need not fit in memory. Several files, a folder of Parquet
    files or a pattern in quotes are scored as one table, in their order.

    \b
    Examples:
      riskad score cards.riskad new.csv -o scored.csv --reasons 3
      riskad score cards.riskad new.csv -o scored.csv --threshold top:50
      riskad score cards.riskad new.csv -o scored.csv --fdr 0.1
      riskad score cards.riskad 'new/*.parquet' -o scored.parquet
    """  # noqa: D301
    from riskad.app.model_files import load, read_header
    from riskad.app.text import print_score, to_json
    from riskad.app.workflow import score_batches
    from riskad.storage.files import check_output_file, together
    from riskad.tables.files import check_table_name, find_tables, open_writer, read_batches

    check_output_file(output, force)
    check_table_name(output)
    with together(), _progress() as progress:
        progress(f"Reading {model.name} and {_name(data)}")
        id_ = read_header(model).notes.get("fit", {}).get("id")
        detector, batches = load(model), read_batches(find_tables(data))
        with open_writer(output, force) as write:
            report = score_batches(
                detector,
                batches,
                write,
                id=id_,
                threshold=threshold,
                fdr=fdr,
                reasons=reasons,
                top=top,
                source=_name(data),
                progress=progress,
            )
        said = (
            to_json(report, command="score", written={"scored": str(output)})
            if as_json
            else _printed(print_score, report, str(output))
        )
    click.echo(said)


@cli.command(short_help="Say why the most suspicious rows of a table are so.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option(
    "--rows", type=click.IntRange(1, _MOST_ROWS), default=10, show_default=True, help="Rows."
)
@click.option(
    "--reasons",
    type=click.IntRange(1, _MOST_REASONS),
    default=3,
    show_default=True,
    help="Columns for each.",
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
    from riskad.app.model_files import load, read_header
    from riskad.app.text import print_explain, to_json
    from riskad.app.workflow import explain_table
    from riskad.storage.files import check_output_file, together
    from riskad.tables.files import check_columns, check_table_name, read_table, write_table

    if output is not None:
        check_output_file(output, force)
        check_table_name(output)
    with together(), _progress() as progress:
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
        written = {} if output is None else {"reasons": str(output)}
        said = (
            to_json(report, command="explain", written=written)
            if as_json
            else _printed(print_explain, report, None if output is None else str(output))
        )
    click.echo(said)


@cli.command("report", short_help="Write a page about a model and a table it scores.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option("-o", "--output", type=_path, required=True, help="Page (.html) or .json to write.")
@_top
@_force
@click.pass_obj
def report_table(
    command: str, model: Path, data: Path, output: Path, top: int, force: bool
) -> None:
    """Write what MODEL says of DATA to one page that opens offline, or as JSON.

    The page has the most suspicious rows with reasons, the scores beside those of the fit, how good
    the model is on held-out labelled rows, its settings and warnings. Labels in DATA are not read:
    `riskad fit --report` lists the unlabelled rows of the training table alone.

    \b
    Example:
      riskad report cards.riskad new.csv -o new.html
    """  # noqa: D301
    from riskad.app.findings import table_findings
    from riskad.app.model_files import load, read_header
    from riskad.app.page import write_report
    from riskad.storage.files import together
    from riskad.tables.files import read_table

    _check_report(output, force)
    with together(), _progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        findings = table_findings(
            load(model),
            read_header(model),
            read_table(data),
            top=top,
            source=data.name,
            command=command,
            progress=progress,
        )
        write_report(findings, output, force)
        said = f"{findings.flagged:,} of {findings.flagged_of:,} rows look anomalous."
    click.echo(f"{said}\nWrote {output}.")


def _check_report(path: Path, force: bool) -> None:
    from riskad.app.page import check_report_name
    from riskad.storage.files import check_output_file

    check_report_name(path)
    check_output_file(path, force)


@cli.command(short_help="Let a model decide by another threshold.")
@click.argument("model", type=_path)
@click.argument("rule")
@click.option("-o", "--output", type=_path, required=True, help="Where to write the model.")
@_json
@_force
def threshold(model: Path, rule: str, output: Path, as_json: bool, force: bool) -> None:
    """Let MODEL decide by RULE, without another fit.

    \b
    Rules:
      risk                where the risk of the fit is lowest
      rate, rate:0.05     flag as many as there are anomalies, by estimate or as given
      f1, f2, f0.5        best F score; f2 weighs recall twice
      cost:1:10           lowest cost of false alarms (here 1) and misses (here 10)
      false-alarms:0.01   flag at most this share of normal rows
      top:50              flag the 50 most anomalous rows

    \b
    Example:
      riskad threshold cards.riskad false-alarms:0.01 -o strict.riskad
    """  # noqa: D301
    from riskad.app.model_files import load, read_header, save
    from riskad.app.text import print_threshold, to_json
    from riskad.app.workflow import change_threshold
    from riskad.storage.files import check_output_file, together

    check_output_file(output, force)
    with together(), _progress() as progress:
        progress(f"Reading {model.name}")
        loaded = load(model)
        notes, report = change_threshold(loaded, read_header(model), rule)
        save(loaded, output, notes=notes, force=force)
        said = (
            to_json(report, command="threshold", written={"model": str(output)})
            if as_json
            else _printed(print_threshold, report, str(output))
        )
    click.echo(said)


@cli.command("export", short_help="Write a model as ONNX, to be run without Python.")
@click.argument("model", type=_path)
@click.argument("output", type=_path)
@_json
@_force
def export_(model: Path, output: Path, as_json: bool, force: bool) -> None:
    """Write MODEL to OUTPUT as an ONNX graph, which onnxruntime runs in many languages.

    The graph takes the columns of the table as they are, one input each, prepares them and gives
    anomaly_score and is_anomaly. It is compared with the model before it is written.

    \b
    Example:
      riskad export cards.riskad cards.onnx
    """  # noqa: D301
    from riskad.app.model_files import load
    from riskad.app.onnx import export
    from riskad.app.text import print_export, to_json
    from riskad.storage.files import check_output_file, together

    check_output_file(output, force)
    with together(), _progress() as progress:
        progress(f"Reading {model.name}")
        fitted = load(model)
        progress(f"Writing {output.name} and comparing it with the model")
        report = export(fitted, output, force=force)
        said = (
            to_json(report, command="export", written={"graph": str(output)})
            if as_json
            else _printed(print_export, report, str(output))
        )
    click.echo(said)


@cli.command(short_help="Say what a model is and what it was trained on.")
@click.argument("model", type=_path)
@_json
def inspect(model: Path, as_json: bool) -> None:
    """Say what MODEL is, when and on what it was trained, and what it weighs."""
    from riskad.app.model_files import load, read_header
    from riskad.app.text import print_model, to_json
    from riskad.app.workflow import describe_model

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
    from riskad.app.model_files import read_header
    from riskad.app.text import print_bounds, to_json
    from riskad.app.workflow import bound_model

    with _progress() as progress:
        progress(f"Reading {model.name}")
        found = bound_model(read_header(model), delta)
    if as_json:
        click.echo(to_json(found, command="bounds"))
    else:
        print_bounds(_console(), found, model.name)


@cli.command(short_help="Run everything once on built-in data.")
@_seed
@_json
def demo(seed: int, as_json: bool) -> None:
    """Run everything once, on data that comes with scikit-learn; takes about half a minute."""
    from tempfile import TemporaryDirectory

    from riskad.app.demo import run_demo
    from riskad.app.text import print_demo, to_json

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


@bench.command(short_help="AutoRAD beside other packages' methods, by budget of labels.")
@click.argument("parts", nargs=-1, metavar=f"[{'|'.join(FIELD_PARTS)}]...")
@_run_options(_jobs)
def field(parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    """Compare AutoRAD with what others use, on the paper's datasets and splits.

    PARTS are field (5 % of the rows labelled), field-budgets (1 % and 10 %), field-five (5
    anomalies and no other label), field-slow and field-budgets-slow (methods that take long, in
    fewer trials); all of them unless you name some. One report covers them all.

    The others come with pip install 'riskad[peers]', and DeepOD with pip install --no-deps
    deepod==0.4.1; what is not installed is left out, and the report says so.
    """
    _run_suite("field", parts or FIELD_PARTS, out, **choices)


@bench.command(short_help="An experiment of your own, described in TOML.")
@click.argument("description", type=_path)
@_run_options(_jobs, _together, _device)
def run(description: Path, out: Path | None, **choices: Any) -> None:
    """Run the experiment that DESCRIPTION (TOML) asks for, on any tables whose truth is known.

    DESCRIPTION may also be the name of one that comes with riskad, as choosing or trees: see
    `riskad/bench/experiments`, whose files are written in the same way.
    """
    from riskad.bench.experiment import find_experiment

    path = find_experiment(description)
    _run_experiments([path], out or Path("results") / path.stem, **choices)


@bench.command(short_help="Write tables and figures from records once more.")
@click.argument("folder", type=_path)
def report(folder: Path) -> None:
    """Write FOLDER/tables and FOLDER/figures from the records in FOLDER/records."""
    _write_report(folder)


def _run_suite(suite: str, parts: Sequence[str], out: Path | None, **choices: Any) -> None:
    from riskad.bench.experiment import built_in
    from riskad.core.checks import lookup

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
@click.option("-n", type=click.IntRange(1, _MOST_ROWS), default=20, show_default=True, help="Rows.")
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
    from riskad.app.model_files import load, read_header
    from riskad.app.text import print_suggest, to_json
    from riskad.app.workflow import suggest_table
    from riskad.storage.files import check_output_file, together
    from riskad.tables.files import check_columns, check_table_name, read_table, write_table

    if output is not None:
        check_output_file(output, force)
        check_table_name(output)
    with together(), _progress() as progress:
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
        written = {} if output is None else {"suggested": str(output)}
        said = (
            to_json(report, command="suggest", written=written)
            if as_json
            else _printed(print_suggest, report, None if output is None else str(output))
        )
    click.echo(said)


@cli.command(short_help="Say whether new rows differ from those of the fit.")
@click.argument("model", type=_path)
@click.argument("data", type=_path)
@click.option(
    "--level",
    type=float,
    default=0.05,
    show_default=True,
    help="Chance that anything is said to have moved if nothing has.",
)
@_json
def drift(model: Path, data: Path, level: float, as_json: bool) -> None:
    """Say whether the rows of DATA have moved away from those that MODEL was fitted to.

    Compares each column, and the scores of a shallow model, with a summary of the unlabelled rows
    that the model keeps; estimates the anomaly rate of DATA. Drift or not, the exit code is 0; the
    JSON says which columns have moved.

    \b
    Example:
      riskad drift cards.riskad new.csv
    """  # noqa: D301
    from riskad.app.model_files import load
    from riskad.app.text import print_drift, to_json
    from riskad.app.workflow import drift_table
    from riskad.tables.files import read_table

    with _progress() as progress:
        progress(f"Reading {model.name} and {data.name}")
        table = read_table(data)
        report = drift_table(load(model), table, level=level, source=data.name, progress=progress)
    if as_json:
        click.echo(to_json(report, command="drift"))
    else:
        print_drift(_console(), report)


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def _printed(show: Callable[..., None], *arguments: Any) -> str:
    """What `show` would print, so that it is known to succeed before files get their names."""
    console = _console()
    with console.capture() as capture:
        show(console, *arguments)
    return capture.get().removesuffix("\n")


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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a letter that a terminal lacks is no failure
            stream.reconfigure(errors="backslashreplace")
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
