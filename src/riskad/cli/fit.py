"""`riskad fit`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riskad.cli.options import (
    PATH,
    RegisteredChoice,
    SettingType,
    as_json,
    force,
    given_kinds,
    is_pipe,
    label_column,
    name_of,
    seed,
    table_options,
    top,
)
from riskad.cli.shell import echo_notes, say, show_progress
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.app.fit import Fit, FitReport
    from riskad.rows.engine import Engine

__all__ = ["check_not_read", "fit"]

ENGINES = ("threads", "dask")
_LABEL_NAMES = {
    *("label", "labels", "class", "target", "anomaly", "is_anomaly"),
    *("outlier", "is_outlier", "fraud", "is_fraud"),
}


def _models() -> Any:
    from riskad.detectors.registry import DETECTORS

    return DETECTORS


class _FitCommand(click.Command):
    """A command with an option for each setting that some detector has."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, and the settings of all detectors."""
        *own, last = super().get_params(ctx)
        return [*own, *_setting_options(), last]  # --help stands last

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write which models there are."""
        entries = _models().values()
        with formatter.section("Models"):
            formatter.write_dl([(entry.name, _summary(entry)) for entry in entries])
        super().format_epilog(ctx, formatter)


def _summary(entry: Any) -> str:
    needs = f"; needs pip install 'riskad[{entry.extra}]'" if entry.extra else ""
    return f"{entry.summary}{needs}"


def _setting_options() -> list[click.Parameter]:
    """One option for each setting, which says what models have it."""
    settings: dict[str, Any] = {}
    owners: dict[str, list[str]] = {}
    for entry in _models().values():
        for setting in entry.settings:
            settings.setdefault(setting.name, setting)
            owners.setdefault(setting.name, []).append(entry.name)
    return [
        click.Option(
            [f"--{name.replace('_', '-')}", name],
            type=SettingType(setting),
            help=f"{', '.join(owners[name])}: {setting.help[:1].lower()}{setting.help[1:]}"
            + (f"  [default: {setting.default}]" if setting.default else ""),
        )
        for name, setting in settings.items()
    ]


class _LabelSource(click.Choice[str]):
    """How rows came to be labelled; or the journal that says it of each."""

    def __init__(self) -> None:
        super().__init__(("random", "chosen", "unknown"))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word, or the path of a journal."""
        if isinstance(value, str) and (value.endswith(".jsonl") or Path(value).is_file()):
            return Path(value)
        return super().convert(value, param, ctx)


@click.command(cls=_FitCommand, short_help="Fit a model on a table with a few labels.")
@click.argument("data", nargs=-1, required=True)
@table_options(label_required=False)
@click.option(
    "--journal", type=PATH, help="Answers of `riskad label`; they override the labels in DATA."
)
@click.option("-o", "--output", type=PATH, required=True, help="Where to write the model.")
@click.option(
    "--ranked",
    type=PATH,
    help="Where to write the unlabelled rows, most suspicious first; in Excel (.xlsx) the first "
    "1,048,575 of them.",
)
@click.option(
    "--report",
    "page",
    type=PATH,
    help="Where to write a report: a page (.html) that opens offline, or .json.",
)
@click.option(
    "--model",
    type=RegisteredChoice(_models),
    default="auto",
    show_default=True,
    help="auto needs no settings; the others have the settings below, with their own defaults.",
)
@click.option(
    "--threshold",
    metavar="RULE",
    help="What is_anomaly means, top:50 for instance; see `riskad threshold --help`.  [default: "
    "likely with auto, risk with other models]",
)
@click.option(
    "--capacity",
    metavar="ROWS/PERIOD",
    help="How many rows you can check: 50/day, 50/week, 200/month, or 50 for the whole table. That "
    "many rows are flagged, and the same proportion of later rows; --time tells how many rows "
    "arrive per period.",
)
@click.option(
    "--anomaly-rate",
    type=float,
    metavar="SHARE",
    help="Share of anomalies among the unlabelled rows, 0.03 for instance, if you know it.  "
    "[default: estimated]",
)
@click.option(
    "--labels",
    "label_source",
    type=_LabelSource(),
    default="unknown",
    show_default=True,
    help="How rows were selected for labelling: drawn at random, or chosen because they looked "
    "odd, by a rule or by `riskad suggest`. The estimated anomaly rate depends on it. "
    "A file is taken as --journal.",
)
@click.option(
    "--time",
    metavar="COLUMN",
    help="Column of dates: quality and probabilities then come from fits to earlier rows, "
    "evaluated on later rows. Blank counts as earliest.",
)
@click.option(
    "--forget-rows",
    is_flag=True,
    help="Write a model that contains no row of DATA; not possible with auto and pretrained.",
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
    help="dask: address of the cluster, tcp://host:8786 for instance.  [default: none; threads of "
    "Dask in this process, which opens no port]",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print all lines of the summary, not only the first 40."
)
@seed
@top
@as_json
@force
@click.pass_obj
def fit(
    command: str,
    /,
    data: tuple[str, ...],
    output: Path,
    ranked: Path | None,
    page: Path | None,
    verbose: bool,
    as_json: bool,
    force: bool,
    **options: Any,
) -> None:
    """Fit a model on DATA, a table with a column of labels.

    Without any label, rows are ranked by how unlike the others they are, and the output says so.

    DATA is a CSV, compressed or not (.gz, .zst, ...), an Excel sheet (cards.xlsx,
    cards.xlsx::March), JSON lines, Parquet, a table of SQLite or DuckDB (cards.sqlite::payments),
    or - for standard input.

    Blank labels mean unlabelled. The output says how each column was read and prepared.

    DATA may be several Parquet files, a folder of them, or a pattern in quotes. These, and a file
    that does not fit in memory, are read in batches, which needs pip install 'riskad[parquet]'.
    shallow learns from all rows, the other models from all labelled rows and a random sample of the
    unlabelled rows; --ranked then writes the 10,000 most suspicious rows.

    \b
    Examples:
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --report cards.html
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --model shallow --loss logistic
      riskad fit cards.csv --journal cards.csv.labels.jsonl -o cards.riskad
      riskad fit 'cards/*.parquet' --label status --normal ok --anomaly fraud \\
        -o cards.riskad --model shallow
    """  # noqa: D301
    from riskad.app.model_files import save
    from riskad.app.report.terminal import print_fit
    from riskad.storage.files import together, write_again

    written = _check_outputs({"model": output, "ranked": ranked, "report": page}, data, force)

    def keep(model: Any, report: FitReport) -> None:
        """Write the model before columns are explained, so that an interrupt loses no fit."""
        save(model, output, notes=report.notes(), force=force)

    with together(keep_if_interrupted=True), show_progress() as progress:
        progress(f"Reading {name_of(data)}")
        found = _fit(data, progress=progress, fitted=keep, **options)
        progress(f"Writing {output.name}")
        write_again(output)  # now that it is known which columns matter
        save(found.model, output, notes=found.report.notes(), force=force)
        if ranked is not None:
            _write_ranked(found.ranked, ranked, data, force)
        if page is not None:
            from riskad.app.report.files import write_report
            from riskad.app.report.summary import describe_fit

            progress(f"Writing {page.name}")
            write_report(describe_fit(found, command=command), page, force)
        said = say("fit", as_json, found.report, print_fit, written, verbose, written=written)
    click.echo(said)


def _write_ranked(rows: Any, ranked: Path, data: Sequence[str], force: bool) -> None:
    """Write rows as the table was written, if that can be read again."""
    from riskad.tables.paths import check_readable, find_tables
    from riskad.tables.reading import csv_format
    from riskad.tables.workbooks import SHEET_ROWS
    from riskad.tables.writing import write_table

    places = [check_readable(path) for path in find_tables(data) if not is_pipe(path)]
    rows = rows.head(SHEET_ROWS) if ranked.suffix.lower() == ".xlsx" else rows
    write_table(rows, ranked, force, csv_format(places))


def _check_outputs(
    paths: dict[str, Path | None], data: Sequence[str], force: bool
) -> dict[str, str]:
    """The files to be written, by what they are; said before the work that they can be."""
    from riskad.storage.files import check_different, check_output_file
    from riskad.tables.writing import check_writable

    written = {what: str(path) for what, path in paths.items() if path is not None}
    for path in written.values():
        check_output_file(path, force)
    if paths["ranked"] is not None:
        check_writable(paths["ranked"])
    if paths["report"] is not None:
        from riskad.app.report.files import check_report_name

        check_report_name(paths["report"])
    check_different(written.values())
    check_not_read(written.values(), data)
    return written


def check_not_read(outputs: Iterable[str], data: Sequence[str]) -> None:
    """--force replaces results, never the table that they come from."""
    from riskad.tables.paths import file_of

    read = {os.path.realpath(file_of(path)[0]) for path in data}
    for output in outputs:
        if os.path.realpath(output) in read:
            raise InputError(
                f"{output!r} is both read and written here; give another name for the output."
            )


def _fit(
    data: tuple[str, ...],
    engine: str,
    scheduler: str | None,
    seed: int,
    journal: Path | None,
    **options: Any,
) -> Fit:
    """Fit on a table in memory, or on files of which some rows are read at a time."""
    from riskad.tables.labelled import FrameTable
    from riskad.tables.paths import find_tables
    from riskad.tables.reading import is_larger_than_memory, read_table

    if scheduler is not None and engine != "dask":
        raise click.UsageError("--scheduler is the address of a Dask cluster: add --engine dask.")
    journal = _journal(options, journal)
    unlabelled = _without_labels(options, journal)
    names = {setting.name for entry in _models().values() for setting in entry.settings}
    settings = {name: options.pop(name) for name in names & set(options)}
    settings = {name: value for name, value in settings.items() if value is not None}
    options["settings"] = settings | {"random_state": seed}
    options |= {"labels": label_column(options), "kinds": given_kinds(options)}
    options["source"] = name_of(data)
    paths = find_tables(data)
    if journal is not None:
        return _fit_in_memory(_with_answers(paths, journal, options), options)
    if engine == "dask":
        return _fit_on_cluster(paths, scheduler, options)
    if unlabelled:
        table = read_table(paths[0])
        if _model_is_chosen():
            return _fit_table(FrameTable(table, None), None, options)
        _check_forgotten(table, options["drop"])
        return _rank(table, options)
    if is_larger_than_memory(paths):
        return _fit_table(paths, None, options)
    return _fit_in_memory(read_table(paths[0]), options)


def _fit_in_memory(table: Any, options: dict[str, Any]) -> Fit:
    """Fit on a table, or rank its rows where none has a label and no model was asked for."""
    if not _model_is_chosen() and _is_unlabelled(table, options["labels"]):
        return _rank(table.drop(options["labels"].column), options)
    return _fit_table(table, None, options)


def _is_unlabelled(table: Any, labels: Any) -> bool:
    """Whether the column of labels is there, and blank in every row."""
    from riskad.tables.cells import to_text

    if labels.normal or labels.anomaly or labels.column not in table.columns or not table.height:
        return False
    return bool(to_text(table[labels.column]).str.strip_chars().replace("", None).is_null().all())


def _rank(table: Any, options: dict[str, Any]) -> Fit:
    from riskad.tables.labelled import FrameTable

    click.echo(
        "Note: no row is labelled, so rows are ranked by how unlike the others they are "
        "(--model outliers). `riskad label` helps to label some.",
        err=True,
    )
    options |= {"model": "outliers", "label_source": "unknown"}
    return _fit_table(FrameTable(table, None), None, options)


def _model_is_chosen() -> bool:
    source = click.get_current_context().get_parameter_source("model")
    return source is not click.core.ParameterSource.DEFAULT


def _check_forgotten(table: Any, drop: Sequence[str]) -> None:
    """Refuse to learn from labels as from any other column, where --label was forgotten."""
    found = [name for name in table.columns if name.strip().lower() in _LABEL_NAMES]
    found = [name for name in found if name not in drop]
    if found:
        raise click.UsageError(
            f"The table has a column {found[0]!r}. If it holds labels, add --label {found[0]}; if "
            f"not, add --drop {found[0]}, or --model outliers to use it as any other."
        )


def _journal(options: dict[str, Any], journal: Path | None) -> Path | None:
    """The journal, which may also be given as --labels."""
    if not isinstance(options["label_source"], Path):
        return journal
    if journal is not None:
        raise click.UsageError("--labels and --journal both name a journal; give one of them.")
    given: Path = options["label_source"]
    options["label_source"] = "unknown"
    return given


def _fit_on_cluster(paths: Sequence[Path], scheduler: str | None, options: dict[str, Any]) -> Fit:
    if not all(path.suffix.lower() in (".parquet", ".pq") for path in paths):
        raise InputError(
            "--engine dask works on Parquet files: write the table as Parquet, or leave --engine "
            "out."
        )
    from riskad.rows.cluster import dask_engine

    with dask_engine(scheduler) as cluster:
        return _fit_table(paths, cluster, options)


def _without_labels(options: dict[str, Any], journal: Path | None) -> bool:
    """Whether there are no labels, which only a model without any takes."""
    unlabelled = options["label"] is None and journal is None
    if unlabelled and _model_is_chosen() and options["model"] != "outliers":
        raise click.UsageError(
            f"--model {options['model']} needs labels: name their column with --label, or give the "
            "answers of `riskad label` with --journal. --model outliers does without."
        )
    return unlabelled


def _with_answers(paths: Sequence[Path], journal: Path, options: dict[str, Any]) -> Any:
    """The table with the labels of a journal; `options` learns their column and their sources."""
    from dataclasses import replace

    from riskad.labelling.applying import apply_labels
    from riskad.tables.reading import read_table

    if len(paths) > 1:
        raise InputError("A journal is about one table; give one file as DATA.")
    labels = options["labels"]
    labels = labels if labels.column else replace(labels, column="label")
    applied = apply_labels(read_table(paths[0]), journal, labels)
    echo_notes(applied.notes())
    options["labels"] = applied.labels
    if options["label_source"] == "unknown":  # the journal knows
        options["label_source"] = applied.sources
    return applied.frame


def _fit_table(table: Any, engine: Engine | None, options: dict[str, Any]) -> Fit:
    from riskad.app.fit import fit_table

    return fit_table(table, engine=engine, **options)
