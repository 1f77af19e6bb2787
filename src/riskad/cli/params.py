"""Options that several commands have. Most are fields of `FitSpec`, which holds their help.

Settings of detectors are asked of the registry, which needs NumPy, when a command runs or its own
help is shown, so that `riskad --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

import click

from riskad.app import spec as fit_spec
from riskad.cli.shell import in_words_of
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.web.listening import Binding

_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MOST_ROWS, MOST_REASONS = 10**9, 1000  # beyond these an option is a slip of the keyboard
PATH = click.Path(path_type=Path)
LABELS = ("label", "normal", "anomaly", "unlabelled", "others_unlabelled")
COLUMNS = ("id", "drop", "kinds", "group")


class Option(click.Option):
    """An option that is listed under a heading in the help of `riskad fit`."""

    def __init__(self, *names: Any, heading: str = "Output", **settings: Any):
        super().__init__(*names, **settings)
        self.heading = heading

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what stands in brackets: no ranges, which only stop slips of the keyboard."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


option = partial(click.option, cls=Option)
path = partial(option, type=PATH)
output = partial(path, "-o", "--output")

MODEL = click.Argument(["model_file"], metavar="MODEL", type=PATH)
TABLE = click.Argument(["data"], type=PATH)
TABLES = click.Argument(["data"], nargs=-1, required=True)
JSON = Option(["--json", "as_json"], is_flag=True, help="Print one JSON object, for machines.")
FORCE = Option(["--force"], is_flag=True, help="Replace output files that exist.")


def count(
    *names: str, default: int, help: str, least: int = 1, most: int = MOST_ROWS
) -> _Decorator:
    """Add an option that is a whole number."""
    settings: dict[str, Any] = {"default": default, "show_default": True, "help": help}
    return option(*names, type=click.IntRange(least, most), metavar="INTEGER", **settings)


def _all_of(*options: _Decorator) -> _Decorator:
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


# --- from the specification of a fit --------------------------------------------------------------


def spec_options(*names: str, **changes: Any) -> _Decorator:
    """Add options for fields of `FitSpec`; `changes` are settings of click that differ here."""
    declared = _declare_options(**changes)
    return _all_of(*(option(*declared[name][0], **declared[name][1]) for name in names))


def _declare_options(**changes: Any) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """By field of `FitSpec` how click declares its option: names, and settings."""
    kinds = get_type_hints(fit_spec.FitSpec)
    declared = {}
    for each in fields(fit_spec.FitSpec):
        kind, about = kinds[each.name], dict(each.metadata) | changes
        names = [each.name, *about.pop("flags", ())]
        if not any(name.startswith("--") for name in names):
            names.append(f"--{each.name.replace('_', '-')}")
        about.pop("check", None)
        if (most := about.pop("most", None)) is not None:
            about |= {"type": click.IntRange(0, most), "metavar": "INTEGER"}
        about["help"] = _with_default(about["help"], about.pop("shown_default", ""))
        if kind is bool:
            about["is_flag"] = True
        elif get_origin(kind) is tuple:
            about["multiple"] = True
        elif get_origin(kind) is dict:
            about |= {"multiple": True, "callback": _reading(_read_kinds)}
        else:  # a type, or a type and None
            about = {"type": (get_args(kind) or (kind,))[0], "default": each.default} | about
        declared[each.name] = names, about
    return declared


def _reading(read: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback of click, in which a value that cannot be read is a mistake in usage."""

    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> Any:
        with mistakes_in_usage(ctx):
            return value if value is None else read(value)

    return callback


@contextmanager
def mistakes_in_usage(ctx: click.Context) -> Iterator[None]:
    """Turn what the library says of a wrong value into a mistake in usage."""
    try:
        yield
    except InputError as error:
        raise click.UsageError(in_words_of(ctx.command, ctx, str(error)), ctx) from error


def _read_kinds(values: tuple[str, ...]) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for value in values:
        column, _, kind = value.rpartition("=")
        if not (column and kind):
            raise InputError(
                f"--kind {value!r}: expected the name of a column, '=', and what it is, such as "
                "amount=number or when=date:%d.%m.%Y."
            )
        kinds[column] = kind
    return kinds


def make_fit_options() -> tuple[list[click.Parameter], list[click.Parameter]]:
    """Return options of `FitSpec` and, under a heading that names their models, of detectors."""
    from riskad.detectors.registry import DETECTORS

    of_spec: list[click.Parameter] = []
    for names, about in _declare_options().values():
        of_spec += [Option(names, **about)] if about["heading"] else []
    of_models: dict[str, Option] = {}
    for entry in DETECTORS.values():
        for each in entry.settings:
            if each.name in of_models:
                of_models[each.name].heading += f", {entry.name}"
                continue
            of_models[each.name] = Option(
                [each.name, f"--{each.name.replace('_', '-')}"],
                metavar=each.metavar,
                callback=_reading(each.read),
                help=_with_default(each.help, each.default),
                heading=f"Settings of {entry.name}",
            )
    return of_spec, list(of_models.values())


def _with_default(text: str, default: str) -> str:
    return f"{text}  [default: {default}]" if default else text


# --- where a server listens -----------------------------------------------------------------------


def listening_options(port: int) -> _Decorator:
    """Add options for where a server listens; port 0 is any that is free."""
    return _all_of(
        option("--host", default="127.0.0.1", show_default=True, help="Address to listen on."),
        count(
            "--port",
            default=port,
            least=0,
            most=65535,
            help="Port to listen on; 0 means any free port.",
        ),
        option(
            *("--name", "names"),
            multiple=True,
            metavar="HOST",
            help="Another name of this host (may repeat).",
        ),
        path("--tls-cert", help="Certificate (PEM), for https."),
        path("--tls-key", help="Its key."),
        option("--insecure", is_flag=True, help="Admit other machines without https."),
    )


def binding(options: dict[str, Any], what: str) -> Binding:
    """Return where a server listens, by its options; `what` it is, if libraries are missing."""
    from importlib.util import find_spec

    from riskad.core.checks import MissingLibrary

    if not all(map(find_spec, ("starlette", "uvicorn", "prometheus_client"))):
        raise MissingLibrary(f"The {what} needs other libraries: pip install 'riskad[app]'.")
    from riskad.web.listening import Binding

    bound = Binding(
        host=options["host"],
        port=options["port"],
        names=options["names"],
        certificate=options["tls_cert"],
        key=options["tls_key"],
        insecure=options["insecure"],
    )
    bound.check()
    return bound
