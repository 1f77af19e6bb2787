"""`riskad look`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from riskad.cli import params
from riskad.cli.params import FORCE, JSON, TABLES
from riskad.cli.run import Run, command


@command("Show what each column of a table is, before a fit.", TABLES, JSON, FORCE)
@params.spec_options(*params.LABELS, *params.COLUMNS)
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
    from riskad.app.report.page import render_look
    from riskad.app.report.terminal import print_look
    from riskad.storage.files import atomic_path
    from riskad.tables.reading import is_larger_than_memory, read_batches

    with run.start(page=page):
        found = look_table(
            read_batches(run.paths) if is_larger_than_memory(run.paths) else run.table,
            source=run.source,
            progress=run.progress,
            **options,
        )
        run.say(found, print_look, _fit_command(run, options), run.written.get("page"))
        if page is not None:
            with atomic_path(page, run.force) as part:
                part.write_text(render_look(found), encoding="utf-8")


def _fit_command(run: Run, options: dict[str, Any]) -> str:
    """The command that fits a model as this one looked at the table."""
    words = ["riskad", "fit", *run.data]
    for parameter in run.ctx.command.params:
        value = options.get(parameter.name or "")
        values = list(value) if isinstance(value, tuple) else [value] if value else []
        if isinstance(value, dict):
            values = [f"{column}={kind}" for column, kind in value.items()]
        if parameter.name == "label" and not values:
            values = ["COLUMN"]
        for each in values:
            words += [parameter.opts[-1]] if each is True else [parameter.opts[-1], each]
    return f"{shlex.join(words)} -o model.riskad"
