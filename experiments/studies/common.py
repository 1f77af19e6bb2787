"""What the studies share: rows of records, means, and small JSON files of figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from experiments import tables
from experiments.records import OK

Row = Mapping[str, Any]

DATA = "ADBench (RISKAD_DATA)"
COLLECTED = "tables/tables.npz in RISKAD_DATA"


def ok_rows(frame: pl.DataFrame, **wanted: Any) -> list[dict[str, Any]]:
    """Return the records of cells that went well, of these settings."""
    rows = frame.filter(pl.col("status") == OK).to_dicts()
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


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


def write_json(figures: Any, path: Path, key: str | None = None) -> None:
    """Write figures; with a key, in place of what a file of several studies has under it."""
    if key is not None:
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        figures = known | {key: figures}
    tables.write_json(path, figures)


def commits(rows: Iterable[Row]) -> list[str]:
    """Return the commits whose code made these records."""
    return sorted({row["commit"] for row in rows if row.get("commit")})
