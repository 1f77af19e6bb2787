"""Options that several commands have, and choices that come from the library's registries.

The registries need NumPy, which takes a while to load: they are asked when a command runs or its
own help is shown, so that `riskad --help` answers at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

if TYPE_CHECKING:
    from riskad.detectors.settings import Setting
    from riskad.tables.labelled import LabelColumn
    from riskad.web.binding import Binding

    _ParamType: TypeAlias = click.ParamType[Any]
else:
    _ParamType = click.ParamType  # which older versions of click do not subscript

_Decorator: TypeAlias = Callable[[Callable[..., None]], Callable[..., None]]

__all__ = [
    "MOST_REASONS",
    "MOST_ROWS",
    "PATH",
    "RegisteredChoice",
    "SettingType",
    "as_json",
    "binding",
    "check_table_output",
    "force",
    "given_kinds",
    "is_pipe",
    "label_column",
    "label_options",
    "listening_options",
    "name_of",
    "seed",
    "table_options",
    "top",
]

MOST_ROWS, MOST_REASONS = 10**9, 1000  # beyond these an option is a slip of the keyboard
_LARGEST_SEED = 2**32 - 1  # that scikit-learn takes
PATH = click.Path(path_type=Path)

as_json = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object, for machines."
)
force = click.option("--force", is_flag=True, help="Replace output files that exist.")
top = click.option(
    "--top",
    type=click.IntRange(0, MOST_ROWS),
    default=10,
    show_default=True,
    help="Suspicious rows to print.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(0, _LARGEST_SEED),
    default=0,
    show_default=True,
    help="Same seed, same answer.",
)

_LABEL_OPTIONS = (
    click.option(
        "--normal", multiple=True, metavar="VALUE", help="Label of normal rows (may repeat)."
    ),
    click.option(
        "--anomaly", multiple=True, metavar="VALUE", help="Label of anomalies (may repeat)."
    ),
    click.option(
        "--unlabelled",
        multiple=True,
        metavar="VALUE",
        help="Label that means unlabelled, besides blank (may repeat).",
    ),
    click.option("--others-unlabelled", is_flag=True, help="All other labels mean unlabelled."),
)
_COLUMN_OPTIONS = (
    click.option("--id", "id", metavar="COLUMN", help="Column that names the rows."),
    click.option("--drop", multiple=True, metavar="COLUMN", help="Column to ignore (may repeat)."),
    click.option(
        "--group",
        metavar="COLUMN",
        help="Column that says which rows belong together, a customer for instance: values are "
        "also compared within a group, and its rows are held out together.",
    ),
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        metavar="COLUMN=KIND",
        help="What a column is, whatever it looks like: amount=number, code=category, "
        "when=date:%d.%m.%Y, paid=number:1.234,50 (may repeat).",
    ),
)


def table_options(label_required: bool = True) -> _Decorator:
    """Add options for what the labels of a table mean, and which columns to learn from."""
    return _all_of((_label_option(label_required), *_LABEL_OPTIONS, *_COLUMN_OPTIONS))


def label_options(default: str = "") -> _Decorator:
    """Add options for what the labels of a table mean, if it has any that count."""
    return _all_of((_label_option(False, default), *_LABEL_OPTIONS))


def listening_options(port: int) -> _Decorator:
    """Add options for where a server listens; port 0 is any that is free."""
    return _all_of(
        (
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
    )


def binding(options: dict[str, Any], what: str, client_ca: Path | None = None) -> Binding:
    """Return where a server listens, by its options; `what` it is, if libraries are missing."""
    from importlib.util import find_spec

    from riskad.core.checks import MissingLibrary
    from riskad.web.binding import Binding

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise MissingLibrary(f"The {what} needs two libraries: pip install 'riskad[app]'.")
    bound = Binding(
        options["host"],
        options["port"],
        options["names"],
        options["tls_cert"],
        options["tls_key"],
        options["insecure"],
        client_ca,
    )
    bound.check()
    return bound


def _label_option(required: bool, default: str = "") -> _Decorator:
    said = "Column with the labels." + (f"  [default: {default}]" if default else "")
    return click.option("-l", "--label", required=required, metavar="COLUMN", help=said)


def _all_of(options: Sequence[_Decorator]) -> _Decorator:
    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def given_kinds(options: dict[str, Any]) -> dict[str, str]:
    """Take what columns were said to be out of the options of a command."""
    kinds: dict[str, str] = {}
    for said in options.pop("kinds"):
        column, equals, kind = said.rpartition("=")
        if not (column and equals and kind):
            raise click.UsageError(
                f"--kind {said!r}: expected the name of a column, '=', and what it is, such as "
                "amount=number or when=date:%d.%m.%Y."
            )
        kinds[column] = kind
    return kinds


def label_column(options: dict[str, Any]) -> LabelColumn:
    """Take the column of labels, and what its values mean, out of the options of a command."""
    from riskad.tables.labelled import LabelColumn

    others = "unlabelled" if options.pop("others_unlabelled") else "raise"
    return LabelColumn(
        options.pop("label"),
        options.pop("normal"),
        options.pop("anomaly"),
        options.pop("unlabelled"),
        others,
    )


def name_of(data: tuple[str, ...]) -> str:
    """Return what reports call the tables that were given."""
    first = "standard input" if is_pipe(data[0]) else Path(data[0]).name or data[0]
    return first if len(data) == 1 else f"{first} and {len(data) - 1} more"


def is_pipe(path: str | Path | None) -> bool:
    """Whether standard input or output is meant in place of a file."""
    return str(path) == "-"


def check_table_output(path: Path | None, force: bool) -> None:
    """Refuse, before any work, a name under which no table can be written."""
    from riskad.storage.files import check_output_file
    from riskad.tables.writing import check_writable

    if path is not None and not is_pipe(path):
        check_output_file(path, force)
        check_writable(path)


class RegisteredChoice(_ParamType):
    """One of the names of a registry."""

    name = "choice"

    def __init__(self, registry: Callable[[], Collection[str]]):
        self._registry = registry

    def _choice(self) -> click.Choice[str]:
        return click.Choice(list(self._registry()))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return the names."""
        return self._choice().get_metavar(param, ctx)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str | None:
        """Say which names there are."""
        return self._choice().get_missing_message(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name, if there is one."""
        return self._choice().convert(value, param, ctx)


class SettingType(_ParamType):
    """What a setting of a detector may be."""

    def __init__(self, setting: Setting):
        self.setting = setting
        self.name = setting.metavar

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """Return what it may be."""
        return self.setting.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text stands for."""
        from riskad.core.checks import InputError

        if not isinstance(value, str):
            return value
        try:
            return self.setting.read(value)
        except InputError as error:
            return self.fail(str(error), param, ctx)
