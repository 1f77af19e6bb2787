"""Modules that are imported on first use, so that `import riskad` costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def lazy_modules(
    package: str, path: Iterable[str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package from its `__name__` and `__path__`."""
    names = sorted(each.name for each in iter_modules(path) if not each.name.startswith("_"))

    def get(name: str) -> Any:
        if name in names:
            return import_named(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: names


def import_named(module: str) -> Any:
    """Import a module; if torch is missing, raise an error that says how to install it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        message = "Neural networks need torch, which is not installed: pip install 'riskad[deep]'."
        raise ImportError(message) from None
