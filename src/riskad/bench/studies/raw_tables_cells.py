"""What the raw tables of the study share: cells, moments, levels, how anomalies are drawn."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

__all__ = [
    "RawTable",
    "as_frame",
    "as_texts",
    "by_night",
    "clock_parts",
    "draw_anomalies",
    "draw_levels",
    "draw_moments",
    "dress",
    "pick",
    "write_moments",
    "write_numbers",
]

Values = np.ndarray


@dataclass(frozen=True, eq=False)
class RawTable:
    """Cells as texts, which rows are anomalies, and columns made of the cells by hand.

    `labelled` is the share of training rows whose label is given; `many_levels` says whether a
    category with very many levels matters.
    """

    raw: pl.DataFrame
    anomalous: Values
    engineered: pl.DataFrame
    labelled: float = 0.1
    many_levels: bool = False


def draw_anomalies(rng: np.random.Generator, risk: Values, rate: float) -> Values:
    """Draw anomalies with log-odds `risk` plus what makes their expected share `rate`."""
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        share = np.mean(1 / (1 + np.exp(-(risk + middle))))
        low, high = (middle, high) if share < rate else (low, middle)
    return rng.random(len(risk)) < 1 / (1 + np.exp(-(risk + low)))


def draw_moments(rng: np.random.Generator, n: int, days: float = 240) -> list[datetime.datetime]:
    """Draw moments in order, more of them by day than by night."""
    start = datetime.datetime(2025, 1, 7)
    day = np.sort(rng.integers(0, int(days), n))
    hour = np.clip(rng.normal(14, 4.5, n), 0, 23.98)
    hour = np.where(rng.random(n) < 0.12, rng.uniform(0, 23.98, n), hour)
    minutes = (day * 1440 + hour * 60).astype(int)
    return [start + datetime.timedelta(minutes=int(minute)) for minute in minutes]


def write_moments(moments: Sequence[datetime.datetime], form: str) -> list[str]:
    """Write moments in a form of `strftime`."""
    return [moment.strftime(form) for moment in moments]


def clock_parts(moments: Sequence[datetime.datetime]) -> dict[str, Values]:
    """Hour, weekday and day of a moment: what anybody takes from it."""
    return {
        "hour": np.array([moment.hour + moment.minute / 60 for moment in moments]),
        "weekday": np.array([float(moment.weekday()) for moment in moments]),
        "day": np.array([(moment - moments[0]).days for moment in moments], dtype=float),
    }


def by_night(hour: Values) -> Values:
    """Return 1 before six in the morning, else 0."""
    return (hour < 6).astype(float)


def draw_levels(
    rng: np.random.Generator, n: int, size: int, stem: str
) -> tuple[list[str], Values, Values]:
    """Levels of very different shares, and how risky each is: name by row, place, risk."""
    share = rng.dirichlet(np.full(size, 0.6))
    place = rng.choice(size, n, p=share)
    names = np.array([f"{stem} {number:03d}" for number in rng.permutation(size) + 1])
    risk = np.where(rng.random(size) < 0.12, rng.normal(2.5, 0.6, size), rng.normal(0, 0.4, size))
    return names[place].tolist(), place, risk[place]


def write_numbers(values: Values, thousands: str, decimal: str, digits: int = 2) -> list[str]:
    """Write numbers with these marks."""
    swap = str.maketrans({",": thousands, ".": decimal})
    return [f"{value:,.{digits}f}".translate(swap) for value in values]


def dress(before: str, numbers: Sequence[str], after: str) -> list[str]:
    """Put a sign or a unit before or after each number."""
    return [f"{before}{number}{after}" for number in numbers]


def as_frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Texts stay texts; numbers are floats, gaps null."""
    return pl.DataFrame(
        {
            name: pl.Series(list(values), dtype=pl.String)
            if any(isinstance(value, str) for value in values)
            else pl.Series(np.asarray(values, dtype=np.float64), nan_to_null=True)
            for name, values in columns.items()
        }
    )


def as_texts(columns: Mapping[str, Sequence[str | None]]) -> pl.DataFrame:
    """Return a frame of texts, as a CSV file is read."""
    return pl.DataFrame(
        {name: pl.Series(list(cells), dtype=pl.String) for name, cells in columns.items()}
    )


def pick(rng: np.random.Generator, n: int, *words: str) -> list[str]:
    """Draw one of some words for each row."""
    return rng.choice(np.array(words), n).tolist()
