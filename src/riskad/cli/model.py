"""Commands that take a model: those for the rows of a table, then those for the model alone."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any

import click

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, MODEL, TABLE, TABLES
from riskad.cli.run import Run, answered, command, is_pipe
from riskad.cli.shell import ALARM, time_in_words
from riskad.core.checks import InputError, printable

_id = params.spec_options("id", shown_default="that of the fit")


@command("Score the rows of a table with a model.", MODEL, TABLES, JSON, FORCE)
@params.output(
    required=True,
    help="Where to write the scored table: a file (.csv, .tsv, .xlsx, .parquet), a table "
    "(scores.sqlite::scored, scores.duckdb::scored), or with --day a folder.",
)
@_id
@params.option(
    "--threshold",
    metavar="RULE",
    help="Decide is_anomaly by this rule instead of the model's; see `riskad threshold --help`.",
)
@params.option(
    "--fdr",
    type=float,
    metavar="SHARE",
    help="Add p_value, and flag rows of which at most this share is normal, on average.",
)
@params.count(
    "--reasons",
    default=0,
    least=0,
    most=params.MOST_REASONS,
    help="Columns reason_1, reason_2, ... to add: why flagged rows are flagged.",
)
@params.option(
    "--by",
    type=click.Choice(["score", "novelty"]),
    default="score",
    show_default=True,
    help="Which rows to print first: the most anomalous, or those most unlike all training rows.",
)
@params.spec_options("top")
@params.path("--harmless", help="Rules of the known harmless (.toml): rows not to be flagged.")
@click.option(
    "--quick/--no-quick",
    default=None,
    help="Let the trees of `riskad compress` or `fit --quick` score rows; without novelty.  "
    "[default: no; with --engine for more than 1,000,000 rows]",
)
@click.option(
    "--add", is_flag=True, help="Add the rows that OUTPUT lacks, each once, identified by --id."
)
@params.option(
    "--day",
    metavar="COLUMN",
    help="Write a folder of Parquet files, split by the day in this column: day=2026-11-17/.",
)
@params.engine_options("What scores Parquet files; spark and dask write a folder of them.")
def score(
    run: Run,
    output: Path,
    add: bool,
    day: str | None,
    id: str | None,
    quick: bool | None,
    harmless: Path | None,
    engine: str,
    scheduler: str | None,
    **options: Any,
) -> None:
    """Score the rows of DATA with MODEL, and write them with anomaly_score and is_anomaly.

    A model fitted with both kinds of label adds anomaly_probability. The default model of `fit`
    adds novelty, which is high for rows unlike all training rows. Rows are read, scored and written
    in batches, so DATA need not fit in memory. It may be CSV, Excel, JSON lines, Parquet, SQLite or
    DuckDB; several files, a folder of Parquet files or a pattern in quotes are scored as one table,
    in their order. - means standard input or, as output, standard output (CSV); all messages then
    go to stderr. A line on stderr says how long scoring takes if that is more than half a minute.

    DATA and OUTPUT may be in an object store (s3://bucket/new.csv). With --engine spark or dask the
    workers score and write; OUTPUT is then a folder, complete when it holds _SUCCESS.

    OUTPUT may be CSV, Excel (at most 1,048,575 rows) or Parquet. If DATA is a CSV, too, its
    separator, encoding and decimal mark are kept.

    In a database table or a folder by day, a run adds all of its rows or none, even if it is
    killed. With --add a second run adds what is missing; it is not an error if nothing is
    missing.

    \b
    Examples:
      riskad score cards.riskad new.csv -o scored.csv --reasons 3
      riskad score cards.riskad new.csv -o scored.csv --threshold top:50
      riskad score cards.riskad new.csv -o scored.csv --fdr 0.1
      riskad score cards.riskad new.csv -o scored.xlsx --by novelty
      riskad score cards.riskad new.csv -o scored.csv --quick
      riskad score cards.riskad new.csv -o scored.csv --harmless rules.toml
      riskad score cards.riskad 'new/*.parquet' -o scored.parquet
      riskad score cards.riskad cards.sqlite::payments -o scored.csv
      riskad score cards.riskad cards.duckdb::payments -o cards.duckdb::scored --add
      riskad score cards.riskad payments/ -o scored/ --day paid_at --add
      riskad score cards.riskad s3://bucket/new/ -o s3://bucket/scored --engine spark
      cat new.csv | riskad score cards.riskad - -o - > scored.csv
    """  # noqa: D301
    from riskad.app.report.terminal import print_score
    from riskad.app.score import score_into, score_table
    from riskad.tables.cells import check_columns
    from riskad.tables.harmless import HarmlessRules
    from riskad.tables.reading import csv_format, read_batches
    from riskad.tables.targets import choose_target
    from riskad.tables.writing import open_writer

    options["id"] = id or run.spec.id
    if engine != "threads":
        others = {"add": add or None, "day": day, "fdr": options.pop("fdr"), "harmless": harmless}
        left = [f"--{name}" for name, value in others.items() if value is not None]
        if options.pop("by") != "score":
            left.append("--by")
        if left:
            raise click.UsageError(f"{', '.join(left)}: not with --engine {engine}; leave it out.")
        with run.start(), run.engine(engine, scheduler) as cluster:
            from riskad.app.batch_scoring import score_files

            assert cluster is not None  # threads are those of this process
            options |= {"source": run.source, "progress": run.progress, "force": run.force}
            report = score_files(run.model, run.paths, output, cluster, quick=quick, **options)
            run.written["scored"] = str(output)
            run.present(report, print_score, str(output))
        return
    # Read before any row: a mistake in the rules must not cost a run.
    options["harmless"] = None if harmless is None else HarmlessRules.read(harmless)
    target = None
    if add or not is_pipe(output):
        target = choose_target(output, day, id=options["id"], add=add, force=run.force)
    # A target checks and names its files itself: databases and folders are not replaced as a whole.
    with run.start(scoring=True, scored=output if target is None else None):
        run.written["scored"] = str(output)
        batches = read_batches(run.places)
        if id is not None:
            check_columns([id], next(iter(batches)).columns)
        if not add:  # else only reading tells how many rows are new
            run.progress.count_rows = batches.about_rows
        if not quick:
            run.progress.hint = partial(_quick_hint, run)
        options |= {"source": run.source, "progress": run.progress, "scored": run.progress.rows}
        model = run.model
        if quick:
            from riskad.app.change_model import quick_model

            model = quick_model(model)
        if target is not None:
            report = score_into(model, batches, target, **options)
        else:
            with open_writer(output, run.force, csv_format(run.places)) as write:
                _, report = score_table(model, batches, write, **options)
        run.present(report, print_score, str(output))


def _quick_hint(run: Run, seconds: float) -> str:
    """What would be quicker, if scoring takes so many seconds."""
    from riskad.app.change_model import times_as_fast
    from riskad.app.score import steps_of

    detector = steps_of(run.model)[1]
    # Only `AutoRAD` learns a student.
    if not hasattr(detector, "compress"):
        return ""
    if detector.student_ is not None:
        return f" With --quick: about {time_in_words(seconds / times_as_fast(detector))}."
    command = f"riskad compress {shlex.quote(str(run.model_file))}"
    return f" Some 30 times as fast: {command}, once, then score --quick."


@command("Explain why the most suspicious rows are suspicious.", MODEL, TABLE, JSON, FORCE)
@params.count("--rows", default=10, help="How many rows to explain.")
@params.count(
    "--reasons", default=3, most=params.MOST_REASONS, help="How many columns to name for each row."
)
@_id
@params.option(
    "--only",
    multiple=True,
    metavar="VALUE",
    help="Explain the row that has this value in the column of --id; without such a column, the "
    "row with this number (may repeat).",
)
@params.path(
    "--maps",
    metavar="FOLDER",
    help="Write the pictures of these rows here, each with a map of what is unusual in it.",
)
@params.output(help="Where to write the reasons for every column of these rows.")
def explain(
    run: Run, id: str | None, output: Path | None, maps: Path | None, **options: Any
) -> None:
    """Explain which columns make rows of DATA suspicious, according to MODEL.

    These are the most suspicious rows, or those that --only names.

    Each value is compared with the usual one: the median of a number, the most frequent text. Of a
    date, the part that counts most is named, its weekday for instance. The amounts that the columns
    add sum to the row's score minus the score of a usual row.

    \b
    Examples:
      riskad explain cards.riskad new.csv --rows 20 -o reasons.csv
      riskad explain cards.riskad new.csv --id payment --only 4711
      riskad explain photos.riskad photos/ --rows 20 --maps maps/
    """  # noqa: D301
    from riskad.app.explain import explain_table
    from riskad.app.pictures import write_maps
    from riskad.app.report.terminal import print_explain

    with run.start(reasons=output):
        rows, report = explain_table(
            run.model,
            run.table,
            id=run.id_column(id),
            source=run.source,
            progress=run.progress,
            **options,
        )
        run.write_table(rows, output)
        if maps is not None:
            numbers = [each.row for each in report.explained]
            rows = run.table[[number - 1 for number in numbers]]
            run.written["maps"] = str(maps)
            write_maps(run.model[0], rows, numbers, maps)
        run.present(report, print_explain, run.written, run.spec.unit)


@command("Write a page about a model and a table it scores.", MODEL, TABLE, FORCE, name="report")
@params.output(required=True, help="Page (.html) or .json to write.")
@params.spec_options("top")
def report_table(run: Run, output: Path, top: int) -> None:
    """Write a report on DATA, scored by MODEL, as one page that opens offline or as JSON.

    The page shows the most suspicious rows with reasons, the scores compared with those of the fit,
    how good the model is on held-out labelled rows, its settings and warnings. Labels in DATA are
    not read. (`riskad fit --report` lists only the unlabelled rows of the training table.)

    \b
    Example:
      riskad report cards.riskad new.csv -o new.html
    """  # noqa: D301
    from riskad.app.describe import describe_table

    with run.start(scoring=True, report=output):
        run.progress.count_rows = lambda: run.table.height
        run.progress.hint = partial(_quick_hint, run)
        report = describe_table(
            run.model,
            run.header,
            run.table,
            top=top,
            source=run.source,
            command=run.ctx.obj,
            progress=run.progress,
            scored=run.progress.rows,
        )
        run.write_report(report, output)
        flagged = f"{report.flagged:,} of {report.flagged_of:,} {report.spec.unit}s look anomalous."
        run.text = printable(f"{flagged}\nWrote {output}.")


@command("List the rows to label next.", MODEL, TABLE, JSON, FORCE)
@params.count("-n", default=20, help="How many rows to list.")
@params.option(
    "-l",
    "--label",
    metavar="COLUMN",
    help="Column with the labels; labelled rows are left out. If DATA has no such column, "
    "the output gets a blank one.  [default: that of the fit, if DATA has it]",
)
@params.path("--journal", help="Answers of `riskad label`; rows they label are left out, too.")
@click.option(
    "--doubtful",
    is_flag=True,
    help="List labelled rows to look at again instead: those whose label looked wrong to the fit.",
)
@_id
@params.output(help="Where to write these rows, to be labelled.")
def suggest(
    run: Run,
    n: int,
    label: str | None,
    journal: Path | None,
    doubtful: bool,
    id: str | None,
    output: Path | None,
) -> None:
    """List the rows of DATA to label next, so that MODEL gains most when it is fitted again.

    Some are likely anomalies, some borderline, some unlike what was labelled, and no two are alike.
    A blank label, or "unlabelled", counts as no label.

    \b
    Examples:
      riskad suggest cards.riskad cards.csv -n 20 --label status -o to_label.csv
      riskad suggest cards.riskad cards.csv --journal cards.csv.labels.jsonl -o to_label.xlsx
      riskad suggest cards.riskad cards.csv --doubtful
    """  # noqa: D301
    from riskad.app.report.terminal import print_suggest
    from riskad.app.spec import FitSpec
    from riskad.app.suggest import doubtful_table, suggest_table

    with run.start(suggested=output):
        table, id = run.table, run.id_column(id)
        if label is None and run.spec.label in table.columns:
            label = run.spec.label
        if journal is not None:  # whatever its words are: only whether there is one matters
            answers = FitSpec(label=label, normal=("normal",), anomaly=("anomaly",))
            applied, spec = answered(table, journal, answers)
            table, label = applied.frame, spec.label
        options: dict[str, Any] = {"label": label, "id": id, "source": run.source}
        if doubtful:
            rows, report = doubtful_table(run.header.report, table, n, **options)
        else:
            rows, report = suggest_table(run.model, table, n, progress=run.progress, **options)
        run.write_table(rows, output)
        run.present(report, print_suggest, run.written.get("suggested"), run.spec.unit)


@command("Say whether new rows differ from the training rows.", MODEL, TABLE, JSON)
@params.option(
    "--level",
    type=float,
    default=0.05,
    show_default=True,
    help="Probability of a false alarm if nothing has moved.",
)
@params.option(
    "--fail-above",
    type=float,
    metavar="DISTANCE",
    help="End with exit code 3 if a column or the scores have moved by more than this distance, "
    "from 0 (any movement) to 1.",
)
def drift(run: Run, **options: Any) -> None:
    """Say whether the rows of DATA have moved away from the training rows of MODEL.

    Compares each column, and the scores of a shallow model, with a summary of the unlabelled rows
    that the model keeps; estimates the anomaly rate of DATA. The exit code is 0 with or without
    drift, unless --fail-above says how much drift is an alarm (3). The JSON says which columns have
    moved.

    \b
    Examples:
      riskad drift cards.riskad new.csv
      riskad drift cards.riskad new.csv --fail-above 0.2 --json > drift.json || mail -s drift ...
    """  # noqa: D301
    from riskad.app.report.terminal import print_drift
    from riskad.app.score import drift_table

    with run.start():
        report = drift_table(
            run.model, run.table, source=run.source, progress=run.progress, **options
        )
        run.present(report, print_drift)
    run.ctx.exit(ALARM if report.alarm else 0)


@command("Let a model learn quick scores, and say what is lost.", MODEL, JSON, FORCE)
@params.output(help="Where to write the model, instead of replacing MODEL.")
@click.option(
    "--alone",
    is_flag=True,
    help="Write the trees alone: a small model that contains no training row. Needs --output.",
)
def compress(run: Run, output: Path | None, alone: bool) -> None:
    """Let boosted trees learn the scores of MODEL, for `riskad score --quick`.

    No table is needed: the trees learn from training rows that MODEL stores, and from rows made of
    these. Thresholds and probabilities keep their meaning. The trees are compared with MODEL on
    rows that they have not learned from: how alike both rank them, and on how many both decide
    alike.

    \b
    Examples:
      riskad compress cards.riskad
      riskad compress cards.riskad --alone -o small.riskad
    """  # noqa: D301
    from riskad.app.change_model import compress_model
    from riskad.app.model_files import save
    from riskad.app.report.terminal import print_compress

    if alone and output is None:
        raise InputError("--alone writes another model, without rows: say where with --output.")
    target = run.model_file if output is None else output
    # Replacing MODEL by itself with more in it loses nothing.
    run.force = run.force or output is None
    with run.start(model=target):
        model, fit_report, report = compress_model(
            run.model, run.header, alone=alone, progress=run.progress
        )
        save(model, target, report=fit_report, force=run.force)
        run.present(report, print_compress, str(target))


# --- the model alone --------------------------------------------------------------------


class _RuleCommand(click.Command):
    """A command whose help lists the rules for thresholds that there are."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write an example of each rule, and what it means."""
        from riskad.decisions.thresholds import THRESHOLDS

        with formatter.section("Rules"):
            formatter.write_dl([(rule.example, rule.meaning) for rule in THRESHOLDS.values()])
        super().format_epilog(ctx, formatter)


@command("Change the threshold rule of a model.", MODEL, JSON, FORCE, cls=_RuleCommand)
@click.argument("rule")
@params.output(required=True, help="Where to write the model.")
def threshold(run: Run, rule: str, output: Path) -> None:
    """Change the threshold rule of MODEL to RULE, without another fit.

    \b
    Example:
      riskad threshold cards.riskad false-alarms:0.01 -o strict.riskad
    """  # noqa: D301
    from riskad.app.change_model import change_threshold
    from riskad.app.model_files import save
    from riskad.app.report.terminal import print_threshold

    with run.start(model=output):
        fit_report, report = change_threshold(run.model, run.header, rule)
        save(run.model, output, report=fit_report, force=run.force)
        run.present(report, print_threshold, str(output))


@command("Write a model as ONNX, to be run without Python.", MODEL, JSON, FORCE, name="export")
@click.argument("output", type=params.PATH)
def export_(run: Run, output: Path) -> None:
    """Write MODEL to OUTPUT as an ONNX graph, which onnxruntime runs in many languages.

    The graph takes the columns of the table as they are, one input each, prepares them and returns
    anomaly_score and is_anomaly. It is compared with the model before it is written.

    \b
    Example:
      riskad export cards.riskad cards.onnx
    """  # noqa: D301
    from riskad.app.onnx import export
    from riskad.app.report.terminal import print_export

    with run.start(graph=output):
        model = run.model
        run.progress(f"Writing {output.name} and comparing it with the model")
        run.present(export(model, output, force=run.force), print_export, str(output))


@command("Show what a model is and what it was trained on.", MODEL, JSON, FORCE)
@params.path("--card", help="Where to write a model card, a page of Markdown.")
def inspect(run: Run, card: Path | None) -> None:
    """Show what MODEL is, when and on what data it was trained, and its weights.

    \b
    Example:
      riskad inspect cards.riskad --card cards.md
    """  # noqa: D301
    from riskad.app.describe import describe_model
    from riskad.app.report.documents import make_card, write_text
    from riskad.app.report.terminal import print_model

    with run.start(card=card):
        report, name = describe_model(run.model, run.header), run.model_file.name
        if card is not None:
            write_text(make_card(report, name), card, run.force)
        run.present(report, print_model, name)
