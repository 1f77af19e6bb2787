"""Commands that learn from a table: look, fit, refit, demo.

The options of `riskad fit` are the fields of `FitSpec` and the settings of all detectors.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, MODEL, TABLE, TABLES
from riskad.cli.run import Run, answered, command
from riskad.cli.shell import ALARM
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.app.fit import Fit

_HEADINGS = ("Labels", "Output", "Decision", "Columns", "Model", "Large tables")


@command("Show what each column of a table is, before a fit.", TABLES, JSON, FORCE)
@params.spec_options(*params.LABELS, *params.COLUMNS)
@params.window_options
@params.path("--page", help="Where to write a page (.html) that opens offline.")
def look(run: Run, page: Path | None, **options: Any) -> None:
    """Show what each column of DATA is, how it is written, and what a model would see.

    Nothing is fitted. With --label the values of each column are shown by kind of row. The output
    also names what looks wrong: mixed units, duplicated rows, a column that gives the labels away.
    If a kind is wrong, say what the column is with --kind, here and in `riskad fit`.

    \b
    Example:
      riskad look cards.csv --label status --normal ok --anomaly fraud --page look.html
    """  # noqa: D301
    from riskad.app.look import look_table
    from riskad.app.report.documents import render_look, write_text
    from riskad.app.report.terminal import print_look
    from riskad.tables.reading import is_larger_than_memory, read_batches

    with run.start(page=page):
        table = read_batches(run.paths) if is_larger_than_memory(run.paths) else run.table
        report = look_table(table, source=run.source, progress=run.progress, **options)
        run.present(report, print_look, _fit_command(run, options), run.written.get("page"))
        if page is not None:
            write_text(render_look(report), page, run.force)


def _fit_command(run: Run, options: dict[str, Any]) -> str:
    """The command that fits a model as this one looked at the table."""
    words = ["riskad", "fit", *run.data]
    for parameter in run.ctx.command.params:
        value = options.get(parameter.name or "")
        # A place to fill in: without labels a fit only ranks rows.
        if parameter.name == "label" and not value and not run.in_pictures:
            value = "COLUMN"
        if isinstance(value, dict):
            value = [f"{column}={kind}" for column, kind in value.items()]
        for each in value if isinstance(value, (list, tuple)) else [value] if value else []:
            words += [parameter.opts[-1]] if each is True else [parameter.opts[-1], each]
    network = " --backbone FILE.onnx" if run.in_pictures else ""
    return f"{shlex.join(words)}{network} -o model.riskad"


# --- fit ------------------------------------------------------------------------------------


class _FitCommand(click.Command):
    """A command with an option for each field of `FitSpec` and each setting of a detector."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return arguments, then options by heading, those first that must be given."""
        *declared, last = super().get_params(ctx)  # --help stands last
        of_spec, of_models = params.make_fit_options()
        every = sorted([*of_spec, *declared], key=lambda each: not each.required)
        places = {heading: place for place, heading in enumerate(_HEADINGS)}
        every.sort(key=lambda each: places.get(getattr(each, "heading", ""), -1))
        return [*every, *of_models, last]

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


@command("Fit a model on a table with a few labels.", TABLES, JSON, FORCE, cls=_FitCommand)
@params.path(
    "--journal",
    help="Answers of `riskad label`; they override the labels in DATA.",
    heading="Labels",
)
@params.path(
    "--spans",
    metavar="TABLE",
    help="Incidents of a time series: a table with the columns from and to, and optionally those "
    "of --group and --label; without --label all are anomalies.",
    heading="Labels",
)
@params.path(
    "--labels",
    metavar="TABLE",
    help="Labels of a folder of pictures: a table with a column of file names and one of labels "
    "(name it by --label if there are others, which are learned from, too).",
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
@params.engine_options("What reads Parquet files that are larger than memory.", "Large tables")
def fit(
    run: Run,
    output: Path,
    ranked: Path | None,
    page: Path | None,
    journal: Path | None,
    labels: Path | None,
    spans: Path | None,
    engine: str,
    scheduler: str | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Fit a model on DATA, a table with a column of labels.

    Without any label, rows are ranked by how unlike the others they are, and the output says so.

    DATA is a CSV, compressed or not (.gz, .zst, ...), an Excel sheet (cards.xlsx,
    cards.xlsx::March), JSON lines, Parquet, a table of SQLite or DuckDB (cards.sqlite::payments), a
    folder of pictures, or - for standard input. Blank labels mean unlabelled. The output says how
    each column was read and prepared.

    DATA may be several Parquet files, a folder of them, or a pattern in quotes, here or in an
    object store (s3://bucket/cards/). These, and a file that does not fit in memory, are read in
    batches (pip install 'riskad[parquet]'), or by other machines with --engine spark or dask. Of
    such a table shallow learns from all rows; the other models learn from all labelled rows and a
    random sample of the unlabelled ones, and --ranked writes the 10,000 most suspicious rows.

    \b
    Examples:
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --report cards.html
      riskad fit cards.csv --label status --normal ok --anomaly fraud -o cards.riskad \\
        --model shallow --loss logistic
      riskad fit cards.csv --journal cards.csv.labels.jsonl -o cards.riskad
      riskad fit photos/ --labels labels.csv --backbone resnet50.onnx -o photos.riskad
      riskad fit 'cards/*.parquet' --label status --normal ok --anomaly fraud \\
        -o cards.riskad --model shallow
    """  # noqa: D301
    from riskad.app.fit import fit_table
    from riskad.app.model_files import save
    from riskad.app.report.terminal import print_fit
    from riskad.app.series import mark_spans
    from riskad.app.spec import FitSpec
    from riskad.tables.pictures import join_labels
    from riskad.tables.reading import is_larger_than_memory, read_table
    from riskad.tables.workbooks import SHEET_ROWS

    names = [each.name for each in fields(FitSpec) if each.name in options]
    with params.mistakes_in_usage(run.ctx):
        of_spec = {name: options.pop(name) for name in names}
        settings = {name: value for name, value in options.items() if value is not None}
        spec = FitSpec(**of_spec, settings=settings)
    sampling = None

    with run.start(keep_if_interrupted=True, model=output, ranked=ranked, report=page):
        with run.engine(engine, scheduler) as cluster:
            in_batches = cluster is not None or is_larger_than_memory(run.paths)
            table: Any
            if labels is not None:
                if journal is not None or not run.in_pictures:
                    raise click.UsageError(
                        "--labels is for a folder of pictures, without --journal."
                    )
                table, label = join_labels(run.table, read_table(labels), spec.label)
                spec = spec.updated(label=label)
            elif journal is None:
                # Without labels rows are only ranked, which is done in memory.
                table = run.paths if in_batches and spec.label is not None else run.table
            else:
                if len(run.paths) > 1:
                    raise InputError("A journal is about one table; give one file as DATA.")
                applied, spec = answered(run.table, journal, spec)
                table = applied.frame
                if spec.label_sampling == "unknown" and spec.window is None:  # the journal knows
                    sampling = applied.sources
            if spans is not None:
                if spec.time is None:
                    raise InputError("--spans needs --time, the column that they are about.")
                marks, label = read_table(spans), spec.label or "label"
                table = mark_spans(table, marks, time=spec.time, group=spec.group, label=label)
                spec = spec.updated(label=label)
            fitted: list[Any] = []
            try:
                fit = fit_table(
                    table,
                    spec,
                    source=run.source,
                    sampling=sampling,
                    engine=cluster,
                    progress=run.progress,
                    on_fit=lambda *model_and_report: fitted.extend(model_and_report),
                )
            except (KeyboardInterrupt, SystemExit):
                if fitted:  # columns were being explained: that must not lose the fit
                    save(fitted[0], output, report=fitted[1], force=run.force)
                raise
        run.progress(f"Writing {output.name}")
        save(fit.model, output, report=fit.report, force=run.force)
        if ranked is not None:
            fits = SHEET_ROWS if ranked.suffix.lower() == ".xlsx" else None
            run.write_table(fit.ranked[:fits], ranked)
        _present_fit(run, fit, page, print_fit, run.written, verbose)


def _present_fit(
    run: Run, fit: Fit, page: Path | None, show: Callable[..., None], *arguments: Any
) -> None:
    """Write the report of a fit, if requested, and say it: complete for machines."""
    report = fit.report
    if page is not None or run.as_json:
        from riskad.app.describe import describe_fit

        report = describe_fit(fit, command=run.ctx.obj)
    if page is not None:
        run.write_report(report, page)
    run.present(report if run.as_json else fit.report, show, *arguments)


# --- refit, demo ----------------------------------------------------------------------------


@command("Fit the next model, and compare it with the last one.", MODEL, TABLE, JSON, FORCE)
@params.output(required=True, help="Where to write the new model.")
@params.path(
    "--journal", help="Answers of `riskad label` or of feedback; they override the labels in DATA."
)
@params.path(
    "--held-out",
    metavar="TABLE",
    help="Labelled rows that neither model learns from, to compare the two.  [default: answers in "
    "the journal that are newer than MODEL]",
)
@params.path(
    *("--report", "page"),
    help="Where to write a report with both models: a page (.html) that opens offline, or .json.",
)
@params.option(
    "--even-if-worse", is_flag=True, help="Write the new model even if it is clearly worse."
)
@params.spec_options("label", shown_default="the model's")
@params.spec_options(*params.LABELS[1:])
@params.spec_options("label_sampling", default=None, shown_default="the model's")
def refit(
    run: Run,
    journal: Path | None,
    held_out: Path | None,
    output: Path,
    page: Path | None,
    even_if_worse: bool,
    **labels: Any,
) -> None:
    """Fit the next model on DATA with the settings and columns of MODEL, and compare the two.

    Both are compared on labels that they have not learned from: answers in the journal that are
    newer than MODEL. MODEL scores these rows as it is; for the new model, each row is scored by a
    fit that has not seen it. If the new model is clearly worse, that is, if the whole 95 % interval
    of the difference of AUCs is below 0, it is not written, and the exit code is 3.

    OUTPUT may be MODEL itself, with --force; it is replaced in one step.

    \b
    Examples:
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o next.riskad
      riskad refit cards.riskad cards.csv --journal cards.csv.labels.jsonl -o cards.riskad \\
        --force --json > refit.json
    """  # noqa: D301
    from riskad.app.model_files import save
    from riskad.app.refit import judged_since, refit_spec, refit_table
    from riskad.app.report.terminal import print_refit
    from riskad.tables.labelled import FrameTable
    from riskad.tables.reading import read_table

    with run.start(model=output, report=page):
        spec = refit_spec(run.header, **labels)
        table, sampling, unseen, other = run.table, None, None, None
        if journal is not None:
            applied, spec = answered(table, journal, spec)
            table, sampling = applied.frame, applied.sources
            unseen = judged_since(applied.first_judged, run.header.created)
        if held_out is not None:
            if spec.labels is None:
                raise InputError(
                    "--held-out is a table of labelled rows, and MODEL was fitted without a label "
                    "column: name it with --label, or give the answers with --journal."
                )
            other = FrameTable(read_table(held_out), spec.labels)
        fit = refit_table(
            run.model,
            run.header,
            table,
            unseen=unseen,
            held_out=other,
            spec=spec,
            sampling=sampling,
            even_if_worse=even_if_worse,
            source=run.source,
            progress=run.progress,
        )
        before = fit.report.before
        assert before is not None
        if before.takes_over:
            save(fit.model, output, report=fit.report, force=run.force)
        else:
            # What is not written must not be reported as written.
            del run.written["model"]
        _present_fit(run, fit, page, print_refit, run.written)
    run.ctx.exit(ALARM if before.alarm else 0)


@command("Run everything once on built-in data.", JSON)
@params.spec_options("seed")
def demo(run: Run, seed: int) -> None:
    """Run everything once, on data that comes with scikit-learn; takes about half a minute."""
    from tempfile import TemporaryDirectory

    from riskad.app.demo import run_demo
    from riskad.app.report.terminal import print_demo

    with TemporaryDirectory() as folder, run.start():
        run.present(run_demo(Path(folder), seed=seed, progress=run.progress), print_demo)
