"""Options that several commands have. Most are fields of `FitSpec`, which holds their help.

Settings of detectors are asked of the registry, which needs NumPy, when a command runs or its own
help is shown, so that `riskad --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import Field, fields
from functools import cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

import click

from riskad.app import spec as fit_spec
from riskad.cli.shell import in_words_of
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.web.connections import Binding

_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MOST_ROWS, MOST_REASONS = 10**9, 1000  # beyond these an option is a slip of the keyboard
PATH = click.Path(path_type=Path)
# Fields of `FitSpec` that other commands than `fit` have: `look` these, `label` the first two
# groups, `refit` the first.
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
NETWORK = Option(
    ["--backbone", "network"],
    type=PATH,
    metavar="FILE",
    help="Network (.onnx) that looks at the pictures of MODEL.  [default: RISKAD_BACKBONE]",
)
JSON = Option(["--json", "as_json"], is_flag=True, help="Print one JSON object, for machines.")
FORCE = Option(["--force"], is_flag=True, help="Replace output files that exist.")


def count(
    *names: str, default: int, help: str, least: int = 1, most: int = MOST_ROWS
) -> _Decorator:
    """Add an option that is a whole number."""
    settings: dict[str, Any] = {"default": default, "show_default": True, "help": help}
    return option(*names, type=click.IntRange(least, most), metavar="INTEGER", **settings)


# --- from the specification of a fit --------------------------------------------------------------


def _all_of(*options: _Decorator) -> _Decorator:
    return lambda command: reduce(lambda decorated, add: add(decorated), reversed(options), command)


def spec_options(*names: str, **changes: Any) -> _Decorator:
    """Add options for fields of `FitSpec`; `changes` are settings of click that differ here."""
    declared = (_declare_option(name, **changes) for name in names)
    return _all_of(*(option(*flags, **settings) for flags, settings in declared))


def _default(shown: str) -> str:
    return f"  [default: {shown}]" if shown else ""


@cache
def _typed_fields(spec: type[fit_spec.FitSpec]) -> dict[str, tuple[Field[Any], Any]]:
    """By name the fields of a specification, and their types."""
    kinds = get_type_hints(spec)
    return {each.name: (each, kinds[each.name]) for each in fields(spec)}


def _declare_option(name: str, **changes: Any) -> tuple[list[str], dict[str, Any]]:
    """How click declares the option of a field of `FitSpec`: its flags, and settings."""
    field, kind = _typed_fields(fit_spec.FitSpec)[name]
    about: dict[str, Any] = {"flags": (), "most": None, "check": None, **field.metadata, **changes}
    flags = [name, *about.pop("flags")]
    # A field without a spelling of its own is called as in Python.
    if not any(flag.startswith("--") for flag in flags):
        flags.append(f"--{name.replace('_', '-')}")
    del about["check"]
    if (most := about.pop("most")) is not None:
        about |= {"type": click.IntRange(0, most), "metavar": "INTEGER"}
    about["help"] += _default(about.pop("shown_default", ""))
    if kind is bool:
        about["is_flag"] = True
    elif get_origin(kind) is tuple:
        about["multiple"] = True
    elif get_origin(kind) is dict:
        about |= {"multiple": True, "callback": _reading(_read_kinds)}
    else:  # a type, or a type and None
        # What the field says itself comes last, and wins.
        about = {"type": (get_args(kind) or (kind,))[0], "default": field.default} | about
    return flags, about


# The windows of a time series, where there is no fit to judge by time.
window_options = _all_of(
    spec_options("time", help="Column of dates that orders the points of a time series."),
    spec_options("window", "step"),
)


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

    declared = map(_declare_option, _typed_fields(fit_spec.FitSpec))
    # A field without a heading is set by another option of the command line.
    of_spec = [Option(flags, **about) for flags, about in declared if about["heading"]]
    of_models: dict[str, Option] = {}
    for entry in DETECTORS.values():
        for each in entry.settings:
            # A setting that several detectors have is one option.
            if each.name in of_models:
                of_models[each.name].heading += f", {entry.name}"
                continue
            of_models[each.name] = Option(
                [each.name, f"--{each.name.replace('_', '-')}"],
                metavar=each.metavar,
                callback=_reading(each.read),
                help=each.help + _default(each.default),
                heading=f"Settings of {entry.name}",
            )
    return [*of_spec], [*of_models.values()]


# --- other machines, and servers ------------------------------------------------------------------


def engine_options(help: str, heading: str = "Output") -> _Decorator:
    """Add options for what works on Parquet files, and where it is."""
    return _all_of(
        option(
            "--engine",
            type=click.Choice(("threads", "spark", "dask")),
            default="threads",
            show_default=True,
            help=help,
            heading=heading,
        ),
        option(
            "--scheduler",
            metavar="ADDRESS",
            help="Where the engine is: tcp://host:8786 (dask), spark://host:7077 or local[4] "
            "(spark).  [default: as Spark is configured; threads of Dask in this process, which "
            "open no port]",
            heading=heading,
        ),
    )


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

    # Before the import, whose error would name a module and not what to install.
    if not all(map(find_spec, ("starlette", "uvicorn", "prometheus_client"))):
        raise MissingLibrary(f"The {what} needs other libraries: pip install 'riskad[app]'.")
    from riskad.web.connections import Binding

    place = {name: options[name] for name in ("host", "port", "names", "insecure")}
    bound = Binding(certificate=options["tls_cert"], key=options["tls_key"], **place)
    bound.check()
    return bound
