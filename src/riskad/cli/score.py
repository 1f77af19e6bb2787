"""Commands that take a model and a table: score, explain, report, suggest, drift, compress."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from riskad.cli.options import (
    MOST_REASONS,
    MOST_ROWS,
    PATH,
    as_json,
    check_table_output,
    force,
    is_pipe,
    label_column,
    label_options,
    name_of,
    seed,
    top,
)
from riskad.cli.shell import ALARM, echo, say, show_progress, show_scoring

__all__ = ["compress", "drift", "explain", "report_table", "score", "suggest"]


@click.command(short_help="Score the rows of a table with a model.")
@click.argument("model", type=PATH)
@click.argument("data", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    help="Where to write the scored table: a file (.csv, .tsv, .xlsx, .parquet), a table "
    "(scores.sqlite::scored, "
    "scores.duckdb::scored), or with --day a folder.",
)
@click.option(
    "--since",
    metavar="auto|COLUMN=VALUE",
    help="Add only rows that OUTPUT lacks, each once, identified by --id. With a column and a "
    "value (day=2026-11-17), consider only rows from that value on.",
)
@click.option(
    "--day",
    metavar="COLUMN",
    help="Write a folder of Parquet files, split by the day in this column: day=2026-11-17/.",
)
@click.option(
    "--id", "id", metavar="COLUMN", help="Column that names the rows.  [default: that of the fit]"
)
@click.option(
    "--threshold",
    metavar="RULE",
    help="Decide is_anomaly by this rule instead of the model's; see `riskad threshold --help`.",
)
@click.option(
    "--fdr",
    type=float,
    metavar="SHARE",
    help="Add p_value, and flag rows of which at most this share is normal, on average.",
)
@click.option(
    "--reasons",
    type=click.IntRange(0, MOST_REASONS),
    default=0,
    show_default=True,
    help="Columns reason_1, reason_2, ... to add: why flagged rows are flagged.",
)
@click.option(
    "--by",
    type=click.Choice(["score", "novelty"]),
    default="score",
    show_default=True,
    help="Which rows to print first: the most anomalous, or those most unlike all training rows.",
)
@top
@as_json
@force
def score(
    model: Path,
    data: tuple[str, ...],
    output: Path,
    since: str | None,
    day: str | None,
    id: str | None,
    as_json: bool,
    force: bool,
    **options: Any,
) -> None:
    """Score the rows of DATA with MODEL, and write them with anomaly_score and is_anomaly.

    A model fitted with both kinds of label adds anomaly_probability. The default model of `fit`
    adds novelty, which is high for rows unlike all training rows. Rows are read, scored and written
    in batches, so DATA need not fit in memory. It may be CSV, Excel, JSON lines, Parquet, SQLite or
    DuckDB; several files, a folder of Parquet files or a pattern in quotes are scored as one table,
    in their order. - means standard input or, as output, standard output (CSV); all messages then
    go to stderr. If scoring takes more than half a minute, a line on stderr says how long after the
    first seconds; a terminal shows the time left.

    OUTPUT may be CSV, Excel (at most 1,048,575 rows) or Parquet. Where DATA is a CSV, too, a CSV is
    written like it: with its separator, its encoding and its decimal mark.

    In a database table or a folder by day, a run adds all of its rows or none, even if it is
    killed. With --since a second run adds what is missing; it is not an error if nothing is
    missing.

    \b
    Examples:
      riskad score cards.riskad new.csv -o scored.csv --reasons 3
      riskad score cards.riskad new.csv -o scored.csv --threshold top:50
      riskad score cards.riskad new.csv -o scored.csv --fdr 0.1
      riskad score cards.riskad new.csv -o scored.xlsx --by novelty
      riskad score cards.riskad 'new/*.parquet' -o scored.parquet
      riskad score cards.riskad cards.sqlite::payments -o scored.csv
      riskad score cards.riskad cards.duckdb::payments -o cards.duckdb::scored --since auto
      riskad score cards.riskad payments/ -o scored/ --day paid_at --since paid_at=2026-11-10
      cat new.csv | riskad score cards.riskad - -o - > scored.csv
    """  # noqa: D301
    from riskad.app.model_files import load, read_header
    from riskad.app.report.terminal import print_score
    from riskad.app.score import score_table
    from riskad.app.score_new import score_into
    from riskad.storage.files import together
    from riskad.tables.cells import check_columns
    from riskad.tables.paths import check_readable, find_tables
    from riskad.tables.reading import csv_format, read_batches
    from riskad.tables.targets import Since, choose_target
    from riskad.tables.workbooks import check_sheet_rows
    from riskad.tables.writing import open_writer

    written = {"scored": str(output)}
    named = id  # by the person, who may have misspelled it
    options["id"] = id or read_header(model).notes.get("fit", {}).get("id")
    told: dict[str, Any] = {"id": options["id"], "since": since is not None, "force": force}
    target = None if is_pipe(output) else choose_target(output, day, **told)
    after = None if since is None else Since.read(since)
    if target is None:
        check_table_output(output, force)
    with show_scoring() as shown:
        shown.step(f"Reading {model.name} and {name_of(data)}")
        options |= {"progress": shown.step, "scored": shown.rows, "source": name_of(data)}
        paths = find_tables(data)
        if after is not None:
            paths = after.files(paths) or paths[:1]  # of which no row is new enough
        places = list(map(check_readable, paths))
        pipeline, batches = load(model), read_batches(places)
        if named is not None:
            check_columns([named], next(iter(batches)).columns)
        if after is None:  # else only reading tells how many rows are new
            shown.count_rows = batches.about_rows
        shown.hint = lambda: _compress_hint(pipeline, model)
        if target is not None:
            report = score_into(pipeline, batches, target, after, **options)
            said = say("score", as_json, report, print_score, str(output), written=written)
        else:
            if output.suffix.lower() == ".xlsx":
                check_sheet_rows(batches, output.name)
            with together():
                with open_writer(output, force, csv_format(places)) as write:
                    _, report = score_table(pipeline, batches, write, **options)
                said = say("score", as_json, report, print_score, str(output), written=written)
    click.echo(said, err=is_pipe(output))


def _compress_hint(pipeline: Any, model: Path) -> str:
    """What to do if scoring takes long."""
    from riskad.app.results import steps_of

    if not steps_of(pipeline)[1].slow_to_score:
        return ""
    command = f"riskad compress {shlex.quote(str(model))} DATA -o small.riskad"
    return f" A model that scores some 10 times as fast: {command}"


@click.command(short_help="Explain why the most suspicious rows are suspicious.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option(
    "--rows", type=click.IntRange(1, MOST_ROWS), default=10, show_default=True, help="Rows."
)
@click.option(
    "--reasons",
    type=click.IntRange(1, MOST_REASONS),
    default=3,
    show_default=True,
    help="Columns for each.",
)
@click.option(
    "--id", "id", metavar="COLUMN", help="Column that names the rows.  [default: that of the fit]"
)
@click.option(
    "--only",
    multiple=True,
    metavar="VALUE",
    help="Explain the row that has this value in the column of --id; without such a column, the "
    "row with this number (may repeat).",
)
@click.option(
    "-o", "--output", type=PATH, help="Where to write the reasons for every column of these rows."
)
@as_json
@force
def explain(
    model: Path,
    data: Path,
    rows: int,
    reasons: int,
    id: str | None,
    only: tuple[str, ...],
    output: Path | None,
    as_json: bool,
    force: bool,
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
    """  # noqa: D301
    from riskad.app.explain import explain_table
    from riskad.app.model_files import load, read_header
    from riskad.app.report.terminal import print_explain
    from riskad.storage.files import together
    from riskad.tables.cells import check_columns
    from riskad.tables.paths import check_readable
    from riskad.tables.reading import csv_format, read_table
    from riskad.tables.writing import write_table

    check_table_output(output, force)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name} and {name_of((str(data),))}")
        place = check_readable(data)
        table = read_table(place)
        check_columns([] if id is None else [id], table.columns)
        found, report = explain_table(
            load(model),
            table,
            id=id or read_header(model).notes.get("fit", {}).get("id"),
            rows=rows,
            only=only,
            reasons=reasons,
            source=name_of((str(data),)),
            progress=progress,
        )
        if output is not None:
            write_table(found, output, force, csv_format([place]))
        written = {} if output is None else {"reasons": str(output)}
        said = say(
            "explain", as_json, report, print_explain, written.get("reasons"), written=written
        )
    click.echo(said, err=is_pipe(output))


@click.command("report", short_help="Write a page about a model and a table it scores.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="Page (.html) or .json to write.")
@top
@force
@click.pass_obj
def report_table(
    command: str, model: Path, data: Path, output: Path, top: int, force: bool
) -> None:
    """Write a report on DATA, scored by MODEL, as one page that opens offline or as JSON.

    The page shows the most suspicious rows with reasons, the scores compared with those of the fit,
    how good the model is on held-out labelled rows, its settings and warnings. Labels in DATA are
    not read. (`riskad fit --report` lists only the unlabelled rows of the training table.)

    \b
    Example:
      riskad report cards.riskad new.csv -o new.html
    """  # noqa: D301
    from riskad.app.model_files import load, read_header
    from riskad.app.report.files import write_report
    from riskad.app.report.summary import describe_table
    from riskad.storage.files import together
    from riskad.tables.reading import read_table

    _check_report(output, force)
    with together(), show_scoring() as shown:
        shown.step(f"Reading {model.name} and {name_of((str(data),))}")
        pipeline, table = load(model), read_table(data)
        shown.count_rows = lambda: table.height
        shown.hint = lambda: _compress_hint(pipeline, model)
        described = describe_table(
            pipeline,
            read_header(model),
            table,
            top=top,
            source=name_of((str(data),)),
            command=command,
            progress=shown.step,
            scored=shown.rows,
        )
        write_report(described, output, force)
        said = f"{described.flagged:,} of {described.flagged_of:,} rows look anomalous."
    echo(f"{said}\nWrote {output}.")


def _check_report(path: Path, force: bool) -> None:
    from riskad.app.report.files import check_report_name
    from riskad.storage.files import check_output_file

    check_report_name(path)
    check_output_file(path, force)


@click.command(short_help="List the rows to label next.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option("-n", type=click.IntRange(1, MOST_ROWS), default=20, show_default=True, help="Rows.")
@click.option(
    "-l",
    "--label",
    metavar="COLUMN",
    help="Column with the labels; labelled rows are left out. If DATA has no such column, "
    "the output gets a blank one.  [default: that of the fit, if DATA has it]",
)
@click.option(
    "--journal", type=PATH, help="Answers of `riskad label`; rows they label are left out, too."
)
@click.option(
    "--id", "id", metavar="COLUMN", help="Column that names the rows.  [default: that of the fit]"
)
@click.option("-o", "--output", type=PATH, help="Where to write these rows, to be labelled.")
@as_json
@force
def suggest(
    model: Path,
    data: Path,
    n: int,
    label: str | None,
    journal: Path | None,
    id: str | None,
    output: Path | None,
    as_json: bool,
    force: bool,
) -> None:
    """List the rows of DATA to label next, so that MODEL gains most when it is fitted again.

    Some are likely anomalies, some borderline, some unlike what was labelled, and no two are alike.
    A blank label, or "unlabelled", counts as no label.

    \b
    Examples:
      riskad suggest cards.riskad cards.csv -n 20 --label status -o to_label.csv
      riskad suggest cards.riskad cards.csv --journal cards.csv.labels.jsonl -o to_label.xlsx
    """  # noqa: D301
    from riskad.app.model_files import load, read_header
    from riskad.app.report.terminal import print_suggest
    from riskad.app.suggest import suggest_table
    from riskad.storage.files import together
    from riskad.tables.cells import check_columns
    from riskad.tables.paths import check_readable
    from riskad.tables.reading import csv_format, read_table
    from riskad.tables.writing import write_table

    check_table_output(output, force)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name} and {name_of((str(data),))}")
        place = check_readable(data)
        table, fitted = read_table(place), read_header(model).notes.get("fit", {})
        check_columns([] if id is None else [id], table.columns)
        if label is None and fitted.get("label") in table.columns:
            label = fitted["label"]
        if journal is not None:
            table, label = _with_answers(table, journal, label or "label")
        names: dict[str, Any] = {
            "label": label,
            "id": id or fitted.get("id"),
            "source": name_of((str(data),)),
        }
        found, report = suggest_table(load(model), table, n, progress=progress, **names)
        if output is not None:
            write_table(found, output, force, csv_format([place]))
        written = {} if output is None else {"suggested": str(output)}
        said = say(
            "suggest", as_json, report, print_suggest, written.get("suggested"), written=written
        )
    click.echo(said, err=is_pipe(output))


def _with_answers(table: Any, journal: Path, label: str) -> tuple[Any, str]:
    """The table with the labels of a journal, and their column; which words it has is no matter."""
    from riskad.labelling.applying import apply_labels
    from riskad.tables.labelled import LabelColumn

    applied = apply_labels(table, journal, LabelColumn(label, ["normal"], ["anomaly"]))
    for line in applied.notes():
        click.echo(f"Note: {line}", err=True)
    return applied.frame, label


@click.command(short_help="Say whether new rows differ from the training rows.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option(
    "--level",
    type=float,
    default=0.05,
    show_default=True,
    help="Probability of a false report if nothing has moved.",
)
@click.option(
    "--fail-above",
    type=float,
    metavar="DISTANCE",
    help="End with exit code 3 if a column or the scores have moved by more than this distance, "
    "from 0 (any movement) to 1.",
)
@as_json
@click.pass_context
def drift(
    ctx: click.Context,
    model: Path,
    data: Path,
    level: float,
    fail_above: float | None,
    as_json: bool,
) -> None:
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
    from riskad.app.drift import drift_table
    from riskad.app.model_files import load
    from riskad.app.report.terminal import print_drift
    from riskad.tables.reading import read_table

    with show_progress() as progress:
        progress(f"Reading {model.name} and {name_of((str(data),))}")
        table = read_table(data)
        report = drift_table(
            load(model),
            table,
            level=level,
            fail_above=fail_above,
            source=name_of((str(data),)),
            progress=progress,
        )
    click.echo(say("drift", as_json, report, print_drift))
    ctx.exit(ALARM if report.alarm else 0)


@click.command(short_help="Make a model small and quick, and say what is lost.")
@click.argument("model", type=PATH)
@click.argument("data", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, help="Where to write the small model.")
@label_options()
@seed
@as_json
@force
def compress(
    model: Path, data: Path, output: Path, seed: int, as_json: bool, force: bool, **options: Any
) -> None:
    """Let a forest learn the scores that MODEL gives to the rows of DATA, and write it instead.

    DATA should resemble the rows you will score; the training rows will do, and need no labels. The
    forest scores rows some 10 times as fast, and contains no training rows. Thresholds and
    probabilities keep their meaning. The forest is compared with MODEL on rows that it has not
    learned from: how alike both rank them, on how many both decide alike and, with --label, the AUC
    of both. Labels that MODEL was fitted to make both AUCs look better than they are.

    \b
    Examples:
      riskad compress cards.riskad cards.csv -o small.riskad
      riskad compress cards.riskad checked.csv --label status --normal ok --anomaly fraud \\
        -o small.riskad
    """  # noqa: D301
    from riskad.app.compress import compress_table
    from riskad.app.model_files import load, read_header, save
    from riskad.app.report.terminal_compress import print_compress
    from riskad.storage.files import check_output_file, together
    from riskad.tables.reading import read_table

    check_output_file(output, force)
    labels = label_column(options)
    with together(), show_progress() as progress:
        progress(f"Reading {model.name} and {name_of((str(data),))}")
        small, notes, report = compress_table(
            load(model),
            read_header(model),
            read_table(data),
            labels=labels if labels.column else None,
            seed=seed,
            source=name_of((str(data),)),
            progress=progress,
        )
        save(small, output, notes=notes, force=force)
        written = {"model": str(output)}
        said = say("compress", as_json, report, print_compress, str(output), written=written)
    click.echo(said)
