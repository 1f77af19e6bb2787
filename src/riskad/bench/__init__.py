"""Experiments: what is run is described in TOML, records are kept for good, tables follow.

    riskad bench shallow        the paper's shallow tables, recomputed beside the published numbers
    riskad bench deep           the paper's deep experiments, on images
    riskad bench run NAME       an experiment that comes with the package, or
    riskad bench run FILE.toml  one of your own, on any table whose truth is known
    riskad bench report FOLDER  the tables and figures once more, from the records

`experiment` says what a description may hold, `trial` runs one cell of it, `image_trial` many
cells in one training, `records` keeps what came out, `runner` does all cells and resumes,
`summarise` and `comparisons` make numbers of records, `render` makes tables of them.
"""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    from pkgutil import iter_modules

    if name in [found.name for found in iter_modules(__path__)]:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
