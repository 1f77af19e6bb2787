"""One run of a command: check outputs, show progress, read, work, write files together, speak."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from riskad.app.spec import FitSpec
from riskad.cli.params import MODEL, NETWORK
from riskad.cli.shell import Progress, echo_notes, in_words_of, printed, show_progress
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.app.fit_report import FitReport
    from riskad.app.journal import LabelledFrame
    from riskad.app.model_files import ModelHeader
    from riskad.rows.engine import Engine

# Outputs that hold rows: of these one may be standard output.
_TABLES = ("export", "ranked", "reasons", "scored", "suggested")


def command(
    short_help: str, *parameters: click.Parameter, **settings: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that takes a `Run` and what its own options say.

    The run takes MODEL and DATA, if they are among the parameters, and --json and --force, which
    stand last in the help.
    """

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def start(model_file: Any = None, data: Any = (), **options: Any) -> None:
            data = data if isinstance(data, tuple) else (str(data),)
            if (network := options.pop("network", None)) is not None:
                os.environ["RISKAD_BACKBONE"] = str(network)  # other processes need it, too
            run = Run(model_file, data, options.pop("as_json", False), options.pop("force", False))
            function(run, **options)

        click_command = click.command(**{"short_help": short_help, **settings})(start)
        first = [each for each in parameters if isinstance(each, click.Argument)]
        last = [each for each in parameters if each not in first]
        network = [NETWORK] if MODEL in first and len(first) > 1 else []
        click_command.params = [*first, *click_command.params, *network, *last]
        return click_command

    return make


class Run:
    """What a command reads, how far it is, what it writes and, as `text`, what it says."""

    def __init__(self, model_file: Any, data: tuple[str, ...], as_json: bool, force: bool):
        self.ctx = click.get_current_context()
        self.model_file, self.data = model_file, data  # a path, if the command takes a model
        self.as_json, self.force = as_json, force
        self.progress = Progress()
        self.written: dict[str, str] = {}
        self.text = ""

    @contextmanager
    def start(
        self, *, scoring: bool = False, keep_if_interrupted: bool = False, **outputs: Path | None
    ) -> Iterator[None]:
        """Do the work of a command, the block, between checks of its outputs and what it says.

        All outputs, named by what they are, get their names at the end of the block, or none of
        them, however late a failure is; if requested, an interrupt keeps the complete ones. Then
        `text` is printed, on stderr if a table goes to standard output.
        """
        from riskad.files.atomic import together

        self._check_outputs(outputs)
        self._has_outputs = bool(outputs)
        names = [self.model_file.name] if self.model_file else []
        names += [self.source] if self.data else []
        # Without outputs, files of the command's own get their names at once.
        files = together(keep_if_interrupted) if outputs else nullcontext()
        with files, show_progress(scoring) as self.progress:
            if names:
                self.progress(f"Reading {' and '.join(names)}")
            yield
        click.echo(self.text, err="-" in self.written.values())

    def _check_outputs(self, outputs: dict[str, Path | None]) -> None:
        """Set `written` to the files to be written; refuse before any work what cannot be."""
        from riskad.files.atomic import check_different, check_output_file
        from riskad.tables.paths import file_of
        from riskad.tables.writing import check_writable

        # Names may differ for one file: links, and relative paths.
        files, tables = [], {os.path.realpath(file_of(path)[0]) for path in self.data}
        inputs = {
            os.path.realpath(value)
            for value in self.ctx.params.values()
            if isinstance(value, Path) and all(value is not path for path in outputs.values())
        }
        for what, path in outputs.items():
            if path is None:
                continue
            self.written[what] = str(path)
            # Standard output exists already, and needs no check.
            if what in _TABLES and is_pipe(path):
                continue
            files.append(path)
            check_output_file(path, self.force)
            if what in _TABLES:
                check_writable(path)
            elif what == "report":
                from riskad.app.report.documents import check_report_name

                check_report_name(path)
            elif what == "page" and path.suffix.lower() not in (".html", ".htm"):
                raise click.UsageError(f"The name of a page, {str(path)!r}, must end in .html.")
            # --force replaces results, not what they come from; but scored rows hold all of the
            # table, and a model may take the place of the one before.
            replaced = {"scored": tables, "model": {os.path.realpath(self.model_file or "")}}
            if os.path.realpath(path) in (tables | inputs) - replaced.get(what, set()):
                raise InputError(
                    f"{str(path)!r} is both read and written here; give another name for the "
                    "output."
                )
        check_different(files)

    def present(self, report: Any, show: Callable[..., None], *arguments: Any) -> None:
        """Set `text` to one JSON object, or to what `show` prints of the report."""
        report = self._in_options(report)
        if not self.as_json:
            self.text = printed(show, report, *arguments)
            return
        from riskad.app.report.documents import to_json

        name = self.ctx.info_name
        if hasattr(report, "command"):  # the line in reports, the name for machines
            report = replace(report, command=name)
        written = {"written": self.written} if self._has_outputs or self.written else {}
        self.text = to_json(report, command=name, **written)

    def _in_options(self, report: Any) -> Any:
        """The report, with warnings that name options as they are typed."""
        warnings = getattr(report, "warnings", [])
        lines = [in_words_of(self.ctx.command, self.ctx, line) for line in warnings]
        return replace(report, warnings=lines) if lines else report

    @cached_property
    def source(self) -> str:
        """What reports call the tables."""
        first = "standard input" if is_pipe(self.data[0]) else Path(self.data[0]).name
        first = first or self.data[0]
        return first if len(self.data) == 1 else f"{first} and {len(self.data) - 1} more"

    @cached_property
    def _loaded(self) -> tuple[Any, ModelHeader]:
        from riskad.app.model_files import load_with_header

        return load_with_header(self.model_file)

    @property
    def model(self) -> Any:
        """The model."""
        return self._loaded[0]

    @property
    def header(self) -> ModelHeader:
        """The header of the model's file."""
        return self._loaded[1]

    @property
    def spec(self) -> FitSpec:
        """The specification of the model's fit."""
        return FitSpec() if self.header.report is None else self.header.report.spec

    @cached_property
    def paths(self) -> list[Path]:
        """The files of the tables."""
        from riskad.tables.paths import find_tables

        return find_tables(self.data)

    @cached_property
    def places(self) -> list[Any]:
        """Where the tables are, all of which can be read."""
        from riskad.tables.paths import check_readable

        return list(map(check_readable, self.paths))

    @property
    def in_pictures(self) -> bool:
        """Whether the data are a folder of pictures."""
        return self.places[0].format == "pictures"

    @cached_property
    def table(self) -> Any:
        """The table, in memory; for a model of windows those of the table."""
        import polars as pl

        from riskad.tables.reading import read_batches, read_table

        several = len(self.places) > 1
        table = pl.concat(read_batches(self.places)) if several else read_table(self.places[0])
        # These cut windows themselves, from the points.
        points = self.ctx.info_name in ("refit", "report")
        if not self.model_file or self.spec.window is None or points:
            return table
        from riskad.app.series import cut_table

        return cut_table(self.model[0].windower_, table, self.spec)

    @contextmanager
    def engine(self, name: str, scheduler: str | None) -> Iterator[Engine | None]:
        """Give what works on the tables on other machines; None if this process does."""
        if name == "threads":
            if scheduler is not None:
                raise click.UsageError("--scheduler is where a cluster is: add --engine.")
            yield None
            return
        from riskad.rows.cluster import open_engine

        if not all(path.suffix.lower() in (".parquet", ".pq") for path in self.paths):
            raise InputError(
                f"--engine {name} works on Parquet files: write the table as Parquet, or leave "
                "--engine out."
            )
        with open_engine(name, scheduler) as engine:
            yield engine

    def id_column(self, id: str | None) -> str | None:
        """Return the column that names the rows, by default that of the fit."""
        from riskad.tables.cells import check_columns

        if id is not None:
            check_columns([id], self.table.columns)
        return id or self.spec.row_names

    def write_table(self, rows: Any, path: Path | None) -> None:
        """Write rows as the table was written, if there is a path."""
        if path is not None:
            from riskad.tables.reading import csv_format
            from riskad.tables.writing import write_table

            write_table(rows, path, self.force, csv_format(self.places))

    def write_report(self, report: FitReport, path: Path) -> None:
        """Write a page, or JSON."""
        from riskad.app.report.documents import write_report

        self.progress(f"Writing {path.name}")
        write_report(self._in_options(report), path, self.force)


def answered(table: Any, journal: Path, spec: FitSpec) -> tuple[LabelledFrame, FitSpec]:
    """Return a table with the labels of a journal, and the specification with their meaning."""
    from riskad.app.journal import apply_labels

    applied = apply_labels(table, journal, replace(spec, label=spec.label or "label").labels)
    echo_notes(applied.notes)
    words = {name: getattr(applied.labels, name) for name in ("normal", "anomaly", "unlabelled")}
    return applied, replace(spec, label=applied.labels.column, **words)


def is_pipe(path: str | Path) -> bool:
    """Whether standard input or output is meant in place of a file."""
    return str(path) == "-"
