"""Speed and memory, measured side by side so that ratios can be compared."""

from importlib import import_module
from typing import Any

_MODULES = ("core", "auto", "tables", "serve", "scale", "engines")


def __getattr__(name: str) -> Any:
    """Import all modules for `EXPERIMENTS` alone: a process that is measured needs one of them."""
    if name != "EXPERIMENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    modules = [import_module(f"{__name__}.{module}") for module in _MODULES]
    return tuple(experiment for module in modules for experiment in module.EXPERIMENTS)
