"""What all commands share: mistakes as sentences, remarks on stderr, progress on a terminal."""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from riskad.core.checks import InputError, is_unicode, printable
from riskad.tables.notes import ReadingNote, catch_kinds

if TYPE_CHECKING:
    from rich.console import Console

_SECONDS_TO_ESTIMATE = 2.0  # of scoring, after which its time can be estimated
_LONG = 30.0  # seconds of scoring that are announced
ALARM = 3  # exit code of a command that did its work and found what it was asked to warn of

# A setting as messages of the library spell it: name='text', name=0.5, name=..., name=True.
_SETTING = re.compile(
    r"""\b(?P<name>[a-z_]+)=(?:(?P<quote>['"])(?P<text>.*?)(?P=quote)|(?P<number>-?\d(?:[\d.]*\d)?)|(?P<any>\.\.\.)|(?P<flag>True))"""
)
_FLAGS = {("others", "unlabelled"): "--others-unlabelled"}


class Group(click.Group):
    """Commands that report a user's mistake in a sentence; `ctx.obj` is the line as typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List commands in the order in which a user comes to need them, not of the alphabet."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse what is no text, and remember what was typed."""
        for argument in args:
            if not is_unicode(argument):
                raise click.UsageError(
                    f"The argument {argument!r} holds bytes that are not UTF-8, which no table or "
                    "model can hold. Rename the file, or correct the argument."
                )
        # Reports quote the line, so that a reader can repeat the fit.
        ctx.obj = shlex.join(["riskad", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a mistake of the user's ends in a sentence."""
        notes: list[Warning] = []
        try:
            with catch_kinds(ReadingNote) as notes:
                return super().invoke(ctx)
        except BrokenPipeError:
            raise  # click ends quietly
        except InputError as error:
            command = self.get_command(ctx, ctx.invoked_subcommand or "")
            sentence = in_words_of(command, ctx, str(error))
            raise click.ClickException(printable(sentence)) from error
        except OSError as error:
            sentence = str(error)
            if error.strerror:
                sentence = error.strerror + (f": {error.filename}" if error.filename else "")
            raise click.ClickException(printable(sentence)) from error
        except click.ClickException as error:  # click's own, with names as they were typed
            if isinstance(error, click.NoSuchOption):
                _suggest_kind(error)
            error.message = printable(error.message)  # type: ignore[misc]  # click shows this
            raise
        finally:  # what was decided about the files that were read
            echo_notes(dict.fromkeys(map(str, notes)))


def _suggest_kind(error: click.NoSuchOption) -> None:
    """Somebody who writes `--text body` means the kind of a column."""
    from riskad.tables.kinds.base import KINDS

    kind, ctx = error.option_name.lstrip("-"), error.ctx
    if kind in KINDS and ctx and any(each.name == "kinds" for each in ctx.command.get_params(ctx)):
        message = f"No such option '--{kind}'. Did you mean '--kind COLUMN={kind}'?"
        raise click.UsageError(message, ctx) from error


def in_words_of(command: click.Command | None, ctx: click.Context, message: str) -> str:
    """Spell `name='value'`, as the library says it, as the option that a command has for it."""
    if command is None:
        return message
    options = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in command.get_params(ctx)
        if isinstance(parameter, click.Option)
    }

    def spell(match: re.Match[str]) -> str:
        name, value = match["name"], match["text"] or match["number"] or ""
        if (name, value) in _FLAGS:
            return _FLAGS[name, value]
        if name not in options:  # which model it is, is decided by another command
            return f"`riskad fit --model {value}`" if name == "model" else match[0]
        if match["flag"]:
            return options[name]
        if match["any"] or value == "...":
            return f"{options[name]} VALUE"
        plain = re.fullmatch(r"[\w.:+-]+", value)
        return f"{options[name]} {value if plain else repr(value)}"

    return _SETTING.sub(spell, message)


def echo(text: str, err: bool = False) -> None:
    """Print a text that may hold names from anywhere."""
    click.echo(printable(text), err=err)


def echo_notes(lines: Iterable[str]) -> None:
    """Print remarks on stderr."""
    for line in lines:
        echo(f"Note: {line}", err=True)


def console(stderr: bool = False) -> Console:
    """Return a console that prints what it is given, and never reads it as markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def printed(show: Callable[..., None], *arguments: Any) -> str:
    """Return what `show` would print, so that it is known to succeed before files are named."""
    target = console()
    with target.capture() as capture:
        show(target, *arguments)
    return capture.get().removesuffix("\n")


class Progress:
    """Shows on a bar, if there is one, what is being done; says how long scoring takes, if long.

    `count_rows` tells about how many rows there are, if that is known; it is asked where that is
    shown: on a terminal, or when scoring takes long. `hint` then tells, by the seconds, what is
    quicker.
    """

    def __init__(self, bar: Any = None, clock: Callable[[], float] = time.perf_counter):
        self.count_rows: Callable[[], float] | None = None
        self.hint: Callable[[float], str] = lambda _: ""
        self._bar, self._clock = bar, clock
        self._task = None if bar is None else bar.add_task("Loading", total=None)
        self._has_warned = False

    @cached_property
    def _total(self) -> float:
        return self.count_rows() if self.count_rows is not None else math.nan

    def __call__(self, description: str) -> None:
        """Show what is being done."""
        if self._bar is not None:
            self._bar.update(self._task, description=printable(description))

    def rows(self, n_done: int) -> None:
        """Show that so many rows have a score; 0 starts the clock."""
        self(f"Scoring: {n_done:,} rows done")
        if not n_done:
            self._start = self._clock()
        elif self.count_rows is not None:
            seconds = self._clock() - self._start
            if seconds >= _SECONDS_TO_ESTIMATE and not self._has_warned:
                # A guess of the number of rows may be too low: never less than what is done.
                whole = seconds * max(self._total / n_done, 1.0)
                self._has_warned = whole >= _LONG
                if self._has_warned:
                    rows = f"about {float(f'{self._total:.2g}'):,.0f} rows"  # two digits: a guess
                    line = f"Scoring {rows} takes about {time_in_words(whole)}.{self.hint(whole)}"
                    if self._bar is None:
                        echo(line, err=True)
                    else:
                        self._bar.console.print(printable(line))
            if self._bar is not None:
                self._bar.update(self._task, completed=n_done, total=max(self._total, n_done))


def time_in_words(seconds: float) -> str:
    """Say a time in its largest unit.

    >>> time_in_words(45), time_in_words(2220), time_in_words(9000)
    ('45 seconds', '37 minutes', '2.5 hours')
    """
    if seconds < 100:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 6000 else f"{seconds / 3600:.1f} hours"


@contextmanager
def show_progress(scoring: bool = False) -> Iterator[Progress]:
    """Show on a terminal's stderr what is being done and for how long; elsewhere nothing.

    While rows are scored, a bar shows how much time is left.
    """
    terminal = console(stderr=True)
    if not terminal.is_terminal:
        yield Progress()
        return
    from rich import progress

    text = progress.TextColumn("{task.description}", markup=False)
    columns = [progress.SpinnerColumn(), text, progress.TimeElapsedColumn()]
    if scoring:
        columns = [text, progress.BarColumn(), progress.TimeElapsedColumn()]
        columns += [progress.TextColumn("left"), progress.TimeRemainingColumn()]
    # A long period: batches of rows come in steps, and the last ones alone would make the estimate
    # jump.
    bar = progress.Progress(*columns, console=terminal, transient=True, speed_estimate_period=600)
    with bar:
        yield Progress(bar)
