"""Windows of time series: features beside plain formulas, clocks of all kinds, streams."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import riskad
from riskad import InputError
from riskad.tables.notes import ReadingNote
from riskad.tables.windows import END, Windower, parse_span

pytestmark = pytest.mark.filterwarnings("ignore::riskad.DataWarning")

HOUR = 3600.0


@pytest.fixture
def points() -> pl.DataFrame:
    """Three weeks of irregular points of two series, with blanks and a category."""
    rng = np.random.default_rng(0)
    n = 3_000
    seconds = np.sort(rng.uniform(0, 21 * 86_400, n))
    t = [datetime(2024, 1, 1) + timedelta(seconds=float(s)) for s in seconds]
    x = 5 + np.sin(seconds / 86_400 * 2 * np.pi) + 0.1 * rng.normal(size=n)
    y = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    state = rng.choice(["on", "off", "idle"], n)
    frame = pl.DataFrame(
        {"t": t, "x": x, "y": y, "state": state, "machine": rng.choice(["a", "b"], n)}
    )
    return frame.with_columns(pl.col("y").fill_nan(None))


def cut(points: pl.DataFrame, step: str = "1h", **options: object) -> pl.DataFrame:
    return riskad.windows(points, time="t", window="6h", step=step, group="machine", **options)


@pytest.mark.parametrize("step", ["6h", "2h", "1h", "72m", "10m"])
def test_features_are_those_of_the_rows_of_a_window(points: pl.DataFrame, step: str) -> None:
    windows = cut(points, step)
    for place in np.random.default_rng(1).choice(windows.height, 30, replace=False):
        window = windows.row(int(place), named=True)
        rows = points.filter(
            (pl.col("machine") == window["machine"])
            & (pl.col("t") >= window["t"])
            & (pl.col("t") < window[END])
        )
        x = rows["x"].to_numpy()
        seconds = rows["t"].dt.epoch("us").to_numpy() / 1e6
        assert window["points"] == rows.height > 0
        assert window["x: level"] == pytest.approx(x.mean())
        assert window["x: low"] == pytest.approx(x.min())
        assert window["x: high"] == pytest.approx(x.max())
        assert window["y: blank"] == pytest.approx(rows["y"].null_count() / rows.height)
        assert window["state: share of 'on'"] == pytest.approx((rows["state"] == "on").mean())
        if rows.height > 2:
            assert window["x: spread"] == pytest.approx(x.std(), abs=1e-9)
            slope = np.polyfit((seconds - seconds[0]) / (6 * HOUR), x, 1)[0]
            assert window["x: trend"] == pytest.approx(slope, rel=1e-5, abs=1e-6)
        both = rows.drop_nulls("y")
        if both.height == rows.height > 2:
            r = np.corrcoef(both["x"], both["y"])[0, 1]
            assert window["x and y: correlation"] == pytest.approx(r, abs=1e-6)


def test_windows_across_gaps_are_those_without_the_rest(points: pl.DataFrame) -> None:
    one = points.filter(pl.col("machine") == "a").drop("machine")
    gap = one.filter((pl.col("t") < datetime(2024, 1, 5)) | (pl.col("t") > datetime(2024, 1, 9)))
    with pytest.warns(ReadingNote, match="1 gap"):
        windows = riskad.windows(gap, time="t", window="6h", step="1h")
    whole = riskad.windows(one, time="t", window="6h", step="1h")
    both = windows.join(whole, on=["t", END], suffix=" of all")
    assert both.height == windows.height
    assert windows["points"].min() > 0
    first, last = datetime(2024, 1, 5), gap.filter(pl.col("t") > datetime(2024, 1, 9))["t"].min()
    beside = both.filter((pl.col(END) <= first) | (pl.col("t") >= last))
    assert beside.height > 200
    for name in ("points", "x: level", "x: trend", "x: jump"):
        assert beside[name].to_numpy() == pytest.approx(beside[f"{name} of all"].to_numpy())
    into = windows.filter((pl.col("t") < first) & (pl.col(END) > first))
    assert into.height == 5  # the next one would hold no point


def test_the_middle_of_a_window_is_one_of_its_rows(points: pl.DataFrame) -> None:
    windows = Windower.fit(points, time="t", window="6h", step="1h", group="machine")
    rows = points[windows.middles()]
    assert (rows["machine"] == windows.frame["machine"]).all()
    into = (rows["t"] - windows.frame["t"]).dt.total_seconds() / HOUR
    assert into.is_between(0, 6, closed="left").all()
    assert into.is_between(2, 4.5).mean() > 0.9
    values = np.random.default_rng(0).random(len(windows.end))
    for point in np.random.default_rng(1).choice(len(points), 30):
        row = points.row(int(windows.points.rows[point]), named=True)
        holds = pl.col("t").le(row["t"]) & pl.col(END).gt(row["t"])
        holds &= pl.col("machine") == row["machine"]
        inside = windows.frame.select(holds).to_series().to_numpy()
        assert values[windows.highest(np.array([point]), values)] == values[inside].max()


def test_one_moment_has_no_trend_and_categories_do_without_numbers() -> None:
    t = [*range(0, 40_000, 100), 100_000]
    frame = pl.DataFrame({"t": t, "x": np.arange(401.0) % 200, "s": ["a", "b"] * 200 + ["a"]})
    windows = riskad.windows(frame, time="t", window="1h", step="10m")
    states = riskad.windows(frame.drop("x"), time="t", window="1h", step="10m")
    alone = windows.filter(pl.col("points") == 1)
    assert alone.height > 0
    assert alone["x: trend"].null_count() == alone.height
    assert windows["x: trend"][0] == pytest.approx(36)
    assert states["s: share of 'a'"][0] == 0.5


def test_changes_reach_back_to_the_point_before(points: pl.DataFrame) -> None:
    one = points.filter(pl.col("machine") == "a").select("t", "x")
    windows = riskad.windows(one, time="t", window="6h", step="6h")
    window = windows.row(5, named=True)
    inside = ((one["t"] >= window["t"]) & (one["t"] < window[END])).to_numpy()
    moves = np.abs(np.diff(one["x"].to_numpy()))[inside[1:]]
    assert window["x: change"] == pytest.approx(moves.mean())
    assert window["x: jump"] == pytest.approx(moves.max())


def test_the_weeks_before_are_those_of_the_same_hour() -> None:
    hours = np.arange(6 * 168)
    rng = np.random.default_rng(0)
    x = np.sin(2 * np.pi * hours / 168) * 10 + rng.normal(size=len(hours)) * 0.01
    x[5 * 168 + 20] += 3
    frame = pl.DataFrame({"t": hours * HOUR, "x": x})
    windows = riskad.windows(frame, time="t", window="1h", step="1h")
    beside = windows["x: level beside the weeks before"].to_numpy()
    assert np.isnan(beside[:168].astype(float)).all()
    assert beside[5 * 168 + 20] == pytest.approx(3, abs=0.1)
    expected = x[-1] - np.median([x[-1 - 168 * week] for week in (1, 2, 3, 4)])
    assert beside[-1] == pytest.approx(expected)


def test_a_wave_has_its_frequency() -> None:
    t = np.arange(600) * 60.0
    frame = pl.DataFrame({"t": t, "x": np.sin(2 * np.pi * t / 900)})  # four cycles an hour
    windows = riskad.windows(frame, time="t", window="1h", step="30m")
    assert windows["x: cycles"].to_list() == [4.0] * windows.height
    assert windows["x: rhythm"].min() > 0.9


def test_the_order_of_rows_does_not_matter(points: pl.DataFrame) -> None:
    shuffled = points.sample(fraction=1, shuffle=True, seed=0)
    first, second = cut(points).sort("machine", "t"), cut(shuffled).sort("machine", "t")
    assert_frame_equal(first, second, check_column_order=False)


def test_clocks_are_described(points: pl.DataFrame) -> None:
    gap = points.filter((pl.col("t") < datetime(2024, 1, 5)) | (pl.col("t") > datetime(2024, 1, 9)))
    odd = pl.concat([gap, gap[:3], gap[:1].with_columns(t=None)])
    with pytest.warns(ReadingNote) as notes:
        riskad.windows(odd, time="t", window="6h", step="1h")
    text = str(notes[0].message)
    for words in ("1 row without a moment", "goes back 1 time", "3 moments as in the row", "1 gap"):
        assert words in text


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
def test_numbers_count_seconds_or_parts_of_them(unit: float) -> None:
    t = np.arange(200) * 60 + 1_700_000_000
    frame = pl.DataFrame(
        {"t": (t * unit).astype(np.int64), "x": np.random.default_rng(0).random(200)}
    )
    windows = riskad.windows(frame, time="t", window="1h", step="10m")
    assert windows["t"][0] == datetime(2023, 11, 14, 22, 10)


def test_texts_with_a_zone_are_read() -> None:
    t = [f"2024-03-31T{h:02d}:{m:02d}:00+02:00" for h in range(24) for m in (0, 30)]
    frame = pl.DataFrame({"t": t, "x": [f"{i},5" for i in range(48)]})
    with pytest.warns(ReadingNote, match=r"by the clock of \+02:00"):
        windows = riskad.windows(frame, time="t", window="2h", step="1h")
    assert windows["t"][0] == datetime(2024, 3, 31)
    assert windows["x: level"][0] == pytest.approx(2.0)


def test_hours_that_a_clock_skips_or_repeats_are_hours_of_utc() -> None:
    t = pl.datetime_range(
        datetime(2024, 10, 26), datetime(2024, 10, 28), "15m", time_zone="UTC", eager=True
    ).dt.convert_time_zone("Europe/Berlin")
    x = np.random.default_rng(0).normal(size=len(t))
    zoned = pl.DataFrame({"t": t, "x": x})
    for frame in (zoned, zoned.with_columns(pl.col("t").dt.strftime("%Y-%m-%dT%H:%M:%S%:z"))):
        with pytest.warns(ReadingNote, match="by the clock of UTC"):
            windows = riskad.windows(frame, time="t", window="2h", step="1h")
        assert windows["t"][0] == datetime(2024, 10, 26)
        assert windows["points"][:-1].to_list() == [8.0] * (windows.height - 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": "soon"}, "no length of time"),
        ({"window": "1h", "step": "25m"}, "multiple of"),
        ({"window": "1000h", "step": "1s"}, "multiple of"),
        ({"window": "1h", "time": "x"}, "x"),
        ({"window": "1h", "time": "hour"}, "hour"),
        ({"window": "1h", "group": "engine"}, "engine"),
    ],
)
def test_mistakes_are_named(points: pl.DataFrame, options: dict[str, str], words: str) -> None:
    frame = points.with_columns(hour=pl.lit("x"))
    with pytest.raises(InputError, match=words):
        riskad.windows(
            frame.drop("x") if options.get("time") == "x" else frame, **({"time": "t"} | options)
        )


def test_spans() -> None:
    spans = {"1w": 604_800, "2 d": 172_800, "90min": 5400, 5: 5}
    assert {text: parse_span(text, "step") for text in spans} == spans


def test_a_level_that_is_new_is_another_one(points: pl.DataFrame) -> None:
    windower = Windower.fit(points, time="t", window="6h", step="1h").windower
    later = points.with_columns(pl.col("t") + timedelta(days=21), state=pl.lit("broken"))
    frame = windower.cut(later).frame
    assert frame["state: share of others"].min() == 1
    assert frame["state: share of 'on'"].max() == 0


def test_errors_of_forecasts_by_their_formula(points: pl.DataFrame) -> None:
    windows = Windower.fit(points, time="t", window="6h", step="1h", group="machine")
    table, windower = windows.frame, windows.windower
    constant, *weights, usual = windower.forecasts[0]
    one = points.filter(pl.col("machine") == "a")
    seconds, x = one["t"].dt.epoch("us").to_numpy() / 1e6, one["x"].to_numpy()
    hours = np.floor(seconds / HOUR)
    level = {hour: x[hours == hour].mean() for hour in np.unique(hours)}
    before = [[level.get(hour - 24 * day, np.nan) for day in range(1, 11)] for hour in hours]
    # The days before that have points: the last seven, of at most ten.
    near = [[each for each in levels if each == each][:7] for levels in before]
    centre, scale = windower.centres[0], windower.scales[0]
    deviation = np.array(
        [v - (np.median(levels) if levels else centre) for v, levels in zip(x, near, strict=True)]
    )
    forecast = [constant * scale + deviation[i - 6 : i][::-1] @ weights for i in range(6, len(x))]
    error = np.abs(deviation[6:] - forecast)
    own = table.filter(pl.col("machine") == "a")
    for place in np.random.default_rng(1).choice(np.arange(30, own.height), 20, replace=False):
        window = own.row(int(place), named=True)
        held = ((one["t"] >= window["t"]) & (one["t"] < window[END])).to_numpy()[6:]
        assert window["x: forecast error"] == pytest.approx(error[held].mean())
        assert window["x: largest forecast error"] == pytest.approx(error[held].max())
        whole = window["all columns: largest forecast error"]
        assert whole >= window["x: largest forecast error"] / (usual * scale) - 1e-9


def test_a_table_of_constants_says_why_nothing_is_left() -> None:
    frame = pl.DataFrame({"t": [0, 60, 120], "valve": [5.0] * 3, "note": [None] * 3})
    with pytest.raises(InputError, match=r"(?s)'valve': left out: every row holds 5.*'note': left"):
        riskad.windows(frame, time="t", window="2m", step="1m")
