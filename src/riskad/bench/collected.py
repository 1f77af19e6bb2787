"""418 real tables of the OddBench and OvRBench collections (arXiv 2602.09329), by number.

They may not be passed on: who has them puts `tables.npz` into the folder `tables` of the folder
that `RISKAD_DATA` names, with the arrays "NAME|X" and "NAME|y" (1 anomaly, 0 normal) of each table.
Without the file they are recorded as not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from riskad.core.checks import InputError
from riskad.datasets import DatasetMissing, DatasetSource
from riskad.datasets.fetch import data_folder

__all__ = ["CollectedSource", "load_collected"]


@dataclass(frozen=True)
class CollectedSource(DatasetSource):
    """A table by its number: "table 017" is the eighteenth in the order of names."""

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Return its rows, and which are anomalies."""
        return load_collected(self.name)


def load_collected(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of a table in double precision, and which of them are anomalies."""
    with np.load(_file()) as arrays:
        names = sorted({key.partition("|")[0] for key in arrays.files})
        number = name.removeprefix("table ")
        if not number.isdecimal() or int(number) >= len(names):
            raise InputError(f"tables are called 'table 000' to 'table {len(names) - 1}'.")
        table = names[int(number)]
        return arrays[f"{table}|X"].astype(float), arrays[f"{table}|y"] == 1


def _file() -> Path:
    folder = data_folder()
    path = None if folder is None else folder / "tables" / "tables.npz"
    if path is None or not path.exists():
        reason = "tables/tables.npz is not in the folder that RISKAD_DATA names"
        raise DatasetMissing(f"The collected tables cannot be read: {reason}.", reason)
    return path
