"""`riskad fit`, whose options are the fields of `FitSpec` and the settings of all detectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, TABLES
from riskad.cli.run import Run, answered, command
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.app.spec import FitSpec
    from riskad.rows.engine import Engine

_HEADINGS = ("Labels", "Columns", "Output", "Decision", "Model", "Large tables")


class _FitCommand(click.Command):
    """A command with an option for each field of `FitSpec` and each setting of a detector."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters and those of the library, by heading."""
        *own, last = super().get_params(ctx)
        options = [*params.make_spec_options(), *own]
        options.sort(key=_place)
        return [*options, *params.make_setting_options(), last]  # --help stands last

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return by heading how each option is written and what it does; and the models."""
        from riskad.detectors.registry import DETECTORS

        lines: dict[str, list[tuple[str, str]]] = {each: [] for each in (*_HEADINGS, "Models")}
        for each in self.get_params(ctx):
            if isinstance(each, params.Option) and (line := each.get_help_record(ctx)) is not None:
                lines.setdefault(each.heading, []).append(line)
        for entry in DETECTORS.values():
            needs = f"; needs pip install 'riskad[{entry.extra}]'" if entry.extra else ""
            lines["Models"].append((entry.name, entry.summary + needs))
        return lines

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write options under their headings."""
        for heading, lines in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def _place(parameter: click.Parameter) -> tuple[int, bool]:
    """Arguments first, then options by heading, those first that must be given."""
    heading = parameter.heading if isinstance(parameter, params.Option) else ""
    return [*_HEADINGS, heading].index(heading) if heading else -1, not parameter.required


@command("Fit a model on a table with a few labels.", TABLES, JSON, FORCE, cls=_FitCommand)
@params.path(
    "--journal",
    help="Answers of `riskad label`; they override the labels in DATA.",
    heading="Labels",
)
@params.output(required=True, help="Where to write the model.")
@params.path(
    "--ranked",
    help="Where to write the unlabelled rows, most suspicious first; in Excel (.xlsx) the first "
    "1,048,575 of them.",
)
@params.path(
    *("--report", "page"),
    help="Where to write a report: a page (.html) that opens offline, or .json.",
)
@params.option("-v", "--verbose", is_flag=True, help="Print the whole summary, not only 40 lines.")
@params.option(
    "--engine",
    type=click.Choice(("threads", "dask")),
    default="threads",
    show_default=True,
    help="Who reads Parquet files that are larger than memory.",
    heading="Large tables",
)
@params.option(
    "--scheduler",
    metavar="ADDRESS",
    help="dask: address of the cluster, tcp://host:8786 for instance.  [default: none; threads of "
    "Dask in this process, which opens no port]",
    heading="Large tables",
)
def fit(
    run: Run,
    output: Path,
    ranked: Path | None,
    page: Path | None,
    journal: Path | None,
    engine: str,
    scheduler: str | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Fit a model on DATA, a table with a column of labels.

    Without any label, rows are ranked by how unlike the others they are, and the output says so.

    DATA is a CSV, compressed or not (.gz, .zst, ...), an Excel sheet (cards.xlsx,
    cards.xlsx::March), JSON lines, Parquet, a table of SQLite or DuckDB (cards.sqlite::payments),
    or - for standard input. Blank labels mean unlabelled. The output says how each column was read
    and prepared.

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
    from riskad.app.describe import describe_fit
    from riskad.app.fit import fit_table
    from riskad.app.model_files import save, save_report
    from riskad.app.report.terminal import print_fit
    from riskad.tables.workbooks import SHEET_ROWS

    if scheduler is not None and engine != "dask":
        raise click.UsageError("--scheduler is the address of a Dask cluster: add --engine dask.")
    spec, sampling = _spec(options), None
    with run.start(keep_if_interrupted=True, model=output, ranked=ranked, report=page):
        with _engine(run, engine, scheduler) as cluster:
            table = _read(run, spec, journal, cluster)
            if journal is not None:
                applied, spec = answered(table, journal, spec)
                table = applied.frame
                if spec.label_sampling == "unknown":  # the journal knows
                    sampling = applied.sources
            fit = fit_table(
                table,
                spec,
                source=run.source,
                sampling=sampling,
                engine=cluster,
                progress=run.progress,
                # Written before columns are explained, so that an interrupt loses no fit.
                fitted=lambda model, report: save(model, output, report=report, force=run.force),
            )
        run.progress(f"Writing {output.name}")
        save_report(output, fit.report)
        if ranked is not None:
            fits = SHEET_ROWS if ranked.suffix.lower() == ".xlsx" else None
            run.write_table(fit.ranked[:fits], ranked)
        if page is not None:
            run.write_report(describe_fit(fit, command=run.ctx.obj), page)
        run.say(describe_fit(fit) if run.as_json else fit.report, print_fit, run.written, verbose)


def _spec(options: dict[str, Any]) -> FitSpec:
    """The specification; options that are none of its fields are settings of a detector."""
    from riskad.app.spec import FitSpec

    names = [each.name for each in fields(FitSpec) if each.name in options]
    own = {name: options.pop(name) for name in names}
    return FitSpec(**own, settings={name: v for name, v in options.items() if v is not None})


@contextmanager
def _engine(run: Run, engine: str, scheduler: str | None) -> Iterator[Engine | None]:
    if engine == "threads":
        yield None
        return
    from riskad.rows.cluster import dask_engine

    if not all(path.suffix.lower() in (".parquet", ".pq") for path in run.paths):
        raise InputError(
            "--engine dask works on Parquet files: write the table as Parquet, or leave --engine "
            "out."
        )
    with dask_engine(scheduler) as cluster:
        yield cluster


def _read(run: Run, spec: FitSpec, journal: Path | None, cluster: Engine | None) -> Any:
    """The table in memory, or files of which some rows are read at a time."""
    from riskad.tables.reading import is_larger_than_memory

    if journal is not None:
        if len(run.paths) > 1:
            raise InputError("A journal is about one table; give one file as DATA.")
    elif spec.label is not None and (cluster is not None or is_larger_than_memory(run.paths)):
        return run.paths
    return run.table
