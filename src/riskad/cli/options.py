"""Options that several commands have. Most are fields of `FitSpec`, which has their help.

Settings of detectors are asked of the registry, which needs NumPy, when a command runs or its own
help is shown, so that `riskad --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

import click

from riskad.app import spec as fit_spec
from riskad.cli.words import in_words_of
from riskad.core.checks import InputError

if TYPE_CHECKING:
    from riskad.web.binding import Binding

_Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MOST_ROWS, MOST_REASONS = 10**9, 1000  # beyond these an option is a slip of the keyboard
PATH = click.Path(path_type=Path)
COLUMN_FIELDS = ("id", "drop", "kinds", "group")
LABEL_FIELDS = ("label", "normal", "anomaly", "unlabelled", "others_unlabelled")


class Option(click.Option):
    """An option that is listed under a heading of its command's help."""

    def __init__(self, *names: Any, heading: str = "", **settings: Any):
        super().__init__(*names, **settings)
        self.heading = heading


model_file = click.argument("model_file", metavar="MODEL", type=PATH)
one_table = click.argument("data", type=PATH)
tables = click.argument("data", nargs=-1, required=True)
as_json = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object, for machines.",
    cls=Option,
    heading="Output",
)
force = click.option(
    "--force", is_flag=True, help="Replace output files that exist.", cls=Option, heading="Output"
)


def make_options() -> list[click.Parameter]:
    """Return an option for each field of `FitSpec` that has a heading."""
    return [
        Option(names, **settings) for names, settings in _declared().values() if settings["heading"]
    ]


def spec_options(*names: str, **changes: Any) -> _Decorator:
    """Add the options of some fields of `FitSpec` to a command.

    Parameters
    ----------
    *names
        The fields.
    **changes
        Settings of `click.Option` that differ here, or `shown_default`, the default in words.

    Returns
    -------
    callable
        A decorator.
    """
    declared = _declared(**changes)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):
            flags, settings = declared[name]
            command = click.option(*flags, cls=Option, **settings)(command)
        return command

    return add


def _declared(**changes: Any) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """By field of `FitSpec` how click declares its option: names, and settings."""
    kinds = get_type_hints(fit_spec.FitSpec)
    shown_default = changes.pop("shown_default", None)
    declared = {}
    for each in fields(fit_spec.FitSpec):
        about, kind = each.metadata, kinds[each.name]
        flags = [*about["flags"], each.name]
        if not any(flag.startswith("--") for flag in flags):
            flags.append(f"--{each.name.replace('_', '-')}")
        default = about["shown_default"] if shown_default is None else shown_default
        settings: dict[str, Any] = {
            "help": about["help"] + (f"  [default: {default}]" if default else ""),
            "heading": about["heading"],
            "metavar": about["metavar"],
            "callback": _reader(_checked(about["check"])),
        }
        if kind is bool:
            settings |= {"is_flag": True}
        elif get_origin(kind) is tuple:
            settings |= {"multiple": True}
        elif get_origin(kind) is dict:
            settings |= {"multiple": True, "callback": _reader(_read_kinds)}
        else:  # a type, or a type and None
            settings |= {"type": (get_args(kind) or (kind,))[0], "default": each.default}
        declared[each.name] = flags, settings | changes
    return declared


def _reader(read: Callable[[Any], Any]) -> Callable[..., Any]:
    """A callback of click that reads a value; one that cannot be read is a mistake in usage."""

    def callback(ctx: click.Context, parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else read(value)
        except InputError as error:
            raise click.UsageError(in_words_of(ctx.command, ctx, str(error)), ctx) from error

    return callback


def _checked(check: Callable[[Any], object] | None) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if check is not None:
            check(value)
        return value

    return read


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


def make_setting_options() -> list[click.Parameter]:
    """Return an option for each setting, under the heading of the first detector that has it."""
    from riskad.detectors.registry import DETECTORS

    options: dict[str, click.Parameter] = {}
    for entry in DETECTORS.values():
        for setting in entry.settings:
            default = f"  [default: {setting.default}]" if setting.default else ""
            option = Option(
                [f"--{setting.name.replace('_', '-')}", setting.name],
                metavar=setting.metavar,
                callback=_reader(setting.read),
                help=f"{setting.help}{default}",
                heading=entry.name,
            )
            options.setdefault(setting.name, option)
    return list(options.values())


# --- where a server listens -----------------------------------------------------------------------


def listening_options(port: int) -> _Decorator:
    """Add options for where a server listens; port 0 is any that is free."""
    options = (
        click.option(
            "--host", default="127.0.0.1", show_default=True, help="Address to listen on."
        ),
        click.option(
            "--port",
            type=click.IntRange(0, 65535),
            default=port,
            show_default=True,
            help="Port to listen on; 0 means any free port.",
        ),
        click.option(
            "--name",
            "names",
            multiple=True,
            metavar="HOST",
            help="Another name of this host (may repeat).",
        ),
        click.option("--tls-cert", type=PATH, help="Certificate (PEM), for https."),
        click.option("--tls-key", type=PATH, help="Its key."),
        click.option("--insecure", is_flag=True, help="Admit other machines without https."),
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def binding(options: dict[str, Any], what: str, client_ca: Path | None = None) -> Binding:
    """Return where a server listens, by its options; `what` it is, if libraries are missing."""
    from importlib.util import find_spec

    from riskad.core.checks import MissingLibrary
    from riskad.web.binding import Binding

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingLibrary(f"The {what} needs two libraries: pip install 'riskad[app]'.")
    bound = Binding(
        host=options["host"],
        port=options["port"],
        names=options["names"],
        certificate=options["tls_cert"],
        key=options["tls_key"],
        insecure=options["insecure"],
        client_ca=client_ca,
    )
    bound.check()
    return bound
