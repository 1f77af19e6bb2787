"""`riskad look`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from riskad.cli.options import (
    PATH,
    as_json,
    force,
    given_kinds,
    label_column,
    name_of,
    table_options,
)
from riskad.cli.shell import say, show_progress

__all__ = ["look"]


@click.command(short_help="Show what each column of a table is, before a fit.")
@click.argument("data", nargs=-1, required=True)
@table_options(label_required=False)
@click.option("--page", type=PATH, help="Where to write a page (.html) that opens offline.")
@as_json
@force
@click.pass_context
def look(
    ctx: click.Context,
    /,
    data: tuple[str, ...],
    page: Path | None,
    as_json: bool,
    force: bool,
    **options: Any,
) -> None:
    """Show what each column of DATA is, how it is written, and what a model would see.

    Nothing is fitted. With --label the values of each column are shown by kind of row. The output
    also names what looks wrong: mixed units, duplicated rows, a column that gives the labels away.
    If a kind is wrong, say what the column is with --kind, here and in `riskad fit`.

    \b
    Example:
      riskad look cards.csv --label status --normal ok --anomaly fraud --page look.html
    """  # noqa: D301
    from riskad.app.look import look_table
    from riskad.app.report.terminal_look import print_look

    fit, written = _fit_command(ctx), _checked(page, force)
    kinds = given_kinds(options)
    labels = label_column(options)
    with show_progress() as progress:
        progress(f"Reading {name_of(data)}")
        found = look_table(
            _read(data),
            labels if labels.column else None,
            kinds=kinds,
            source=name_of(data),
            progress=progress,
            **options,
        )
    said = say("look", as_json, found, print_look, fit, written)
    if page is not None:
        _write_page(found, page, force)
    click.echo(said)


def _checked(page: Path | None, force: bool) -> str | None:
    """The path of the page, if one can be written there."""
    from riskad.storage.files import check_output_file

    if page is None:
        return None
    check_output_file(page, force)
    if page.suffix.lower() not in (".html", ".htm"):
        raise click.UsageError(f"The name of a page, {str(page)!r}, must end in .html.")
    return str(page)


def _read(data: tuple[str, ...]) -> Any:
    """The table, in memory or some rows at a time."""
    from riskad.tables.paths import find_tables
    from riskad.tables.reading import is_larger_than_memory, read_batches, read_table

    paths = find_tables(data)
    return read_batches(paths) if is_larger_than_memory(paths) else read_table(paths[0])


def _write_page(found: Any, page: Path, force: bool) -> None:
    from riskad.app.report.look_page import render_look
    from riskad.storage.files import atomic_path

    with atomic_path(page, force) as part:
        part.write_text(render_look(found), encoding="utf-8")


def _fit_command(ctx: click.Context) -> str:
    """The command that fits a model as this one looked at the table."""
    said = [part for name in ("data", "label") for part in _typed(ctx, name)]
    if "--label" not in said:
        said += ["--label", "COLUMN"]
    for name in ("normal", "anomaly", "unlabelled", "others_unlabelled", "id", "drop"):
        said += _typed(ctx, name)
    return shlex.join(["riskad", "fit", *said, *_typed(ctx, "group"), *_typed(ctx, "kinds")]) + (
        " -o model.riskad"
    )


def _typed(ctx: click.Context, name: str) -> list[str]:
    """A parameter as it was typed."""
    value = ctx.params[name]
    if name == "data":
        return list(value)
    option = next(p.opts[-1] for p in ctx.command.params if p.name == name)
    if isinstance(value, bool):
        return [option] * value
    values = value if isinstance(value, tuple) else () if value is None else (value,)
    return [part for each in values for part in (option, each)]
