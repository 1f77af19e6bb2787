"""From records to figures: cells of all combinations, groups of rows, means, small JSON files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from experiments import tables
from experiments.records import OK
from experiments.runner import Cell
from riskad import InputError

Row = Mapping[str, Any]

DATA = "ADBench (RISKAD_DATA)"
COLLECTED = "tables/tables.npz in RISKAD_DATA"


def grid(**choices: Iterable[Any]) -> Callable[[], Iterator[Cell]]:
    """Return a function that yields a cell for each combination of these choices.

    >>> [str(cell) for cell in grid(trial=range(2), dataset=["cardio"])()]
    ['cardio/0', 'cardio/1']
    """

    def cells() -> Iterator[Cell]:
        for values in itertools.product(*choices.values()):
            yield Cell(**dict(zip(choices, values, strict=True)))

    return cells


def ok_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the records of cells that went well."""
    rows = frame.filter(pl.col("status") == OK).to_dicts()
    if not rows:
        raise InputError("no cell has figures yet; the column `reason` of the records says why.")
    return rows


def group(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Return rows by the value of a column, or by those of several, in the order of their trials.

    >>> list(group([{"set": "b", "n": 1}, {"set": "a", "n": 2}, {"set": "b", "n": 3}], "set"))
    ['b', 'a']
    """
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        key = row[names[0]] if len(names) == 1 else tuple(row[name] for name in names)
        groups.setdefault(key, []).append(row)
    return groups


def mean(rows: Iterable[Row], name: str) -> float:
    """Return the mean of a column."""
    return float(np.mean([row[name] for row in rows]))


def difference(gaps: np.ndarray | Sequence[float]) -> dict[str, float]:
    """Return a mean difference and its standard error over independent pairs."""
    gaps = np.asarray(gaps, dtype=float)
    error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.nan
    return {"mean": float(gaps.mean()), "se": float(error)}


def rounded(value: Any, digits: int = 4) -> Any:
    """Return a nest of dicts and lists with its floats rounded; what is not a number is None."""
    if isinstance(value, Mapping):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [rounded(each, digits) for each in value]
    if isinstance(value, (float, np.floating)):
        return round(float(value), digits) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def json_page(
    name: str, figures: Callable[[Sequence[Row]], Any], key: str | None = None
) -> Callable[[pl.DataFrame, Path], None]:
    """Return a report that writes figures; with a key, as a part of a file of several studies."""

    def report(frame: pl.DataFrame, folder: Path) -> None:
        path, value = folder / name, figures(ok_rows(frame))
        if key is not None:
            others = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            value = others | {key: value}
        tables.write_json(path, value)

    return report


def commits(rows: Iterable[Row]) -> list[str]:
    """Return the commits whose code made these records."""
    return sorted({row["commit"] for row in rows if row.get("commit")})
