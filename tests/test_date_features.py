"""What dates, times and durations tell, against the calendar of Python."""

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import riskad
from riskad import AutoRAD, BoostedRAD, ForestRAD, ShallowRAD
from riskad.core.checks import InputError
from riskad.detectors.compressed import CompressedRAD
from riskad.detectors.outlier_mean import OutlierMean
from riskad.files.codec import build, state_of
from riskad.rows.date_features import (
    PERIODS,
    GapToPrevious,
    MomentParts,
    civil_of_days,
    days_of_civil,
    elapsed,
    elapsed_pairs,
)
from riskad.rows.encoding import OneHotImputer
from riskad.rows.table import Table, TableSchema

DAY = 86_400.0
EPOCH = dt.datetime(1970, 1, 1)
HASH_OF_A = 3405396810240292928
ALL = ("hour", "weekday", "day of month", "month", "elapsed")


def moments(n, seed=0, first=1900, last=2100):
    low = (dt.datetime(first, 1, 1) - EPOCH).total_seconds()
    high = (dt.datetime(last, 12, 31) - EPOCH).total_seconds()
    return np.floor(np.random.default_rng(seed).uniform(low, high, n))


# --- parts ----------------------------------------------------------------------------------------


def test_parts_are_those_of_the_calendar_for_10000_random_moments():
    seconds = moments(10_000)
    first = float(seconds.min())
    made = MomentParts("datetime", ALL, first, (seconds.max() - first) / DAY).ordered(seconds)
    truth = [EPOCH + dt.timedelta(seconds=second) for second in seconds]
    expected = [
        (
            each.hour + each.minute / 60 + each.second / 3600,
            each.weekday(),
            each.day,
            each.month,
            (each - min(truth)) / dt.timedelta(days=1),
        )
        for each in truth
    ]
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-9)


def test_the_calendar_goes_both_ways_from_year_1_to_9999():
    days = np.arange(-719_162, 2_932_897, 7, dtype=np.float64)
    year, month, day = civil_of_days(days)
    np.testing.assert_array_equal(days_of_civil(year, month, day), days)
    assert (year[0], month[0], day[0]) == (1, 1, 1)
    assert year[-1] == 9999


def test_leap_days():
    for date in ("1900-02-28", "2000-02-29", "2024-02-29", "2100-03-01"):
        moment = dt.datetime.fromisoformat(date)
        seconds = np.array([(moment - EPOCH).total_seconds()])
        made = MomentParts("date", ("day of month", "month")).ordered(seconds)
        assert made.tolist() == [[moment.day, moment.month]]


@pytest.mark.parametrize(
    ("days", "parts"),
    [
        ([5.0, 5.0], ()),
        ([0.25, 0.75], ("elapsed",)),  # half a day: the hour says what elapsed says
        ([0.0, 1.5], ("elapsed",)),  # no hour has come back
        ([0.0, 2.5], ("hour", "elapsed")),
        ([0.0, 3.0], ("elapsed",)),  # always at midnight
        ([0.0, 8.0, 13.0], ("elapsed",)),
        ([0.0, 8.0, 15.0], ("weekday", "elapsed")),
        ([0.0, 7.0, 14.0], ("elapsed",)),  # always on a Thursday
        ([0.0, 13.0, 70.0], ("weekday", "day of month", "elapsed")),
        ([0.0, 100.5, 729.0], ALL[:3] + ALL[4:]),
        ([0.0, 100.5, 731.0], ALL),
        ([None, None], ()),
        ([], ()),
    ],
)
def test_parts_that_say_nothing_are_left_out(days, parts):
    seconds = pl.Series(days, dtype=pl.Float64) * DAY
    assert MomentParts.learn("datetime", seconds).parts == parts


def test_dates_have_no_hour_and_times_nothing_else():
    seconds = pl.Series([0.0, 3_600.0, 7_200.0])
    assert MomentParts.learn("date", seconds * 10_000).parts == ALL[1:]
    assert MomentParts.learn("time", seconds).parts == ("hour",)
    assert MomentParts.learn("duration", seconds).parts == ("seconds",)
    assert MomentParts.learn("duration", seconds).ordered(seconds)[:, 0].tolist() == [0, 3600, 7200]


def test_elapsed_counts_from_the_earliest_to_the_latest_training_row():
    """Time passes for normal rows, too: a row of next year is not odd for that."""
    parts = MomentParts.learn("date", pl.Series([5 * DAY, 2 * DAY, 3 * DAY]))
    assert parts.origin == 2 * DAY
    assert parts.ordered(np.array([2 * DAY, 4 * DAY])).tolist() == [[0.0], [2.0]]
    later = parts.ordered(np.array([6 * DAY, 400 * DAY, np.nan, DAY]))[:, 0]
    np.testing.assert_array_equal(later, [3.0, 3.0, np.nan, 0.0])
    assert MomentParts.from_dict(parts.to_dict()) == parts


def test_gaps_are_nan_in_every_part():
    parts = MomentParts("datetime", ALL, 0.0)
    seconds = pl.Series([None, 0.0, math.nan])
    assert np.isnan(parts.ordered(seconds)).all(axis=1).tolist() == [True, False, True]


def test_parts_that_come_round_lie_on_circles_and_midnight_is_near_itself():
    periods = {j: float(PERIODS[part][0]) for j, part in enumerate(ALL[:-1])}
    values = MomentParts("datetime", ALL, span=1e5).ordered(moments(500))
    made = OneHotImputer().fit_transform(Table(values, ALL, {}, periods))
    assert made.shape[1] == 9
    np.testing.assert_allclose(made[:, 0:8:2] ** 2 + made[:, 1:8:2] ** 2, 1.0)
    hours = MomentParts("time", ("hour",)).ordered(np.array([86_399.0, 1.0, 43_200.0]))
    late, early, noon = OneHotImputer().fit_transform(Table(hours, ("hour",), {}, {0: 24.0}))
    assert np.linalg.norm(late - early) < 0.001 < 1.9 < np.linalg.norm(noon - early)


def test_no_parts_make_no_columns_and_no_rows_no_numbers():
    parts = MomentParts("date", ())
    assert parts.ordered(np.zeros(3)).shape == (3, 0)
    assert MomentParts("datetime", ALL).ordered(np.zeros(0)).shape == (0, 5)


def test_changed_parts_are_refused():
    stored = MomentParts("datetime", ("hour", "elapsed"), 0.0).to_dict()
    for change in (
        {"kind": "number"},
        {"parts": ["seconds"]},
        {"parts": ["elapsed", "hour"]},
        {"parts": "hour"},
        {"parts": ["hour", "hour"]},
        {"origin": math.inf},
        {"origin": "0"},
        {"more": 1},
    ):
        with pytest.raises(InputError):
            MomentParts.from_dict(stored | change)
    with pytest.raises(InputError, match="Did you mean 'date'"):
        MomentParts.learn("dates", pl.Series([0.0]))


# --- pairs of columns -----------------------------------------------------------------------------


def test_pairs_need_dates_that_are_filled_and_a_difference_that_varies():
    rng = np.random.default_rng(0)
    sent = rng.uniform(0, 1e8, 100)
    columns = {
        "sent": ("datetime", pl.Series(sent)),
        "copy": ("datetime", pl.Series(sent)),
        "paid": ("date", pl.Series(sent + rng.uniform(0, 1e6, 100))),
        "rare": ("date", pl.Series([*sent[:40], *[None] * 60])),
        "took": ("duration", pl.Series(sent)),
    }
    assert elapsed_pairs(columns) == [("sent", "paid"), ("copy", "paid")]
    assert elapsed_pairs({}) == []


def test_of_many_pairs_the_nearest_ten_are_taken():
    rng = np.random.default_rng(0)
    base = rng.uniform(0, 1e9, 50)
    columns = {f"d{i}": ("date", rng.uniform(0, 1e9, 50)) for i in range(6)}
    columns |= {"a": ("date", base), "b": ("date", base + rng.uniform(0, 1e5, 50))}
    pairs = elapsed_pairs(columns)
    assert len(pairs) == 10
    assert ("a", "b") in pairs


def test_elapsed_is_in_days_with_a_sign():
    assert elapsed(pl.Series([DAY, None]), pl.Series([0.0, 0.0])).tolist()[0] == -1.0
    assert math.isnan(elapsed(pl.Series([DAY, None]), pl.Series([0.0, 0.0]))[1])


# --- rows of one group ----------------------------------------------------------------------------


def slow_gaps(groups, seconds):
    """Row by row: the time since the latest row that was earlier."""
    found = []
    for group, second in zip(groups, seconds, strict=True):
        before = [
            other
            for name, other in zip(groups, seconds, strict=True)
            if name == group and None not in (name, other, second) and other < second
        ]
        found.append(second - max(before) if before else math.nan)
    return found


def random_rows(n, seed):
    rng = np.random.default_rng(seed)
    groups = [None if each == 0 else f"g{each}" for each in rng.integers(0, 6, n)]
    seconds = [None if each == 0 else float(each) for each in rng.integers(0, 40, n)]
    return groups, seconds


def test_gaps_are_those_of_a_slow_loop():
    for seed in range(20):
        groups, seconds = map(pl.Series, random_rows(60, seed))
        found = GapToPrevious.learn(groups, seconds).gaps(groups, seconds)
        np.testing.assert_array_equal(found, slow_gaps(groups, seconds))


def test_rows_in_parts_have_the_gaps_of_the_whole():
    rng = np.random.default_rng(1)
    groups = pl.Series(rng.integers(0, 5, 90)).cast(pl.String)
    seconds = pl.Series(rng.permutation(90).astype(float))
    kept = GapToPrevious.learn(groups, seconds)
    parts = [kept.gaps(groups[i : i + 7], seconds[i : i + 7]) for i in range(0, 90, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), kept.gaps(groups, seconds))


def test_a_row_before_all_known_ones_has_no_gap():
    kept = GapToPrevious.learn(pl.Series(["a"]), pl.Series([100.0]))
    found = kept.gaps(pl.Series(["a", "a"]), pl.Series([120.0, 50.0]))
    assert found[0] == 20.0
    assert math.isnan(found[1])


def test_no_more_moments_are_kept_than_fit(monkeypatch):
    monkeypatch.setattr("riskad.rows.date_features._MOST_KEPT", 3)
    kept = GapToPrevious.learn(pl.Series([f"g{i}" for i in range(10)]), pl.Series(np.arange(10.0)))
    assert sorted(kept.seconds.tolist()) == [7.0, 8.0, 9.0]


def test_no_rows_have_no_gaps():
    empty = pl.Series([], dtype=pl.String), pl.Series([], dtype=pl.Float64)
    kept = GapToPrevious.learn(*empty)
    assert len(kept.groups) == 0
    assert kept.gaps(*empty).tolist() == []


def test_hashes_are_fixed():
    """A model that was saved long ago must know its groups."""
    assert GapToPrevious.learn(pl.Series(["a"]), pl.Series([1.0])).groups.tolist() == [HASH_OF_A]


def test_what_is_kept_comes_back_from_a_file():
    kept = GapToPrevious.learn(pl.Series(["a", "b"]), pl.Series([1.0, 2.0]))
    again = GapToPrevious.from_dict(kept.to_dict())
    assert again.gaps(pl.Series(["b"]), pl.Series([5.0])).tolist() == [3.0]


def test_changed_arrays_are_refused():
    stored = {"groups": np.array([1, 2]), "seconds": np.array([1.0, 2.0])}
    assert len(GapToPrevious.from_dict(stored).groups) == 2
    for change in (
        {"seconds": np.array([1.0])},
        {"seconds": np.array([1.0, np.nan])},
        {"seconds": np.array([1, 2])},
        {"groups": np.array([2, 1])},
        {"groups": np.array([[1, 2]])},
        {"more": 1},
    ):
        with pytest.raises(InputError):
            GapToPrevious.from_dict(stored | change)


# --- columns of dates in the frames of detectors --------------------------------------------------


def nightly(n=600, seed=0):
    """Payments over 100 days, of which those at night are anomalies."""
    rng = np.random.default_rng(seed)
    odd = rng.random(n) < 0.2
    hours = np.where(odd, rng.uniform(0, 5, n), rng.uniform(8, 20, n))
    days = rng.integers(0, 100, n)
    moments = [
        dt.datetime(2025, 1, 1) + dt.timedelta(int(day), int(3600 * hour))
        for day, hour in zip(days, hours, strict=True)
    ]
    frame = pl.DataFrame(
        {
            "amount": rng.normal(size=n),
            "paid": pl.Series(moments).set(pl.Series(rng.random(n) < 0.02), None),
            "lasted": pl.Series([dt.timedelta(seconds=float(x)) for x in rng.uniform(1, 60, n)]),
        }
    )
    truth = np.where(odd, -1, 1)
    return frame, np.where(rng.random(n) < 0.3, truth, 0), truth


FRAMES = {
    "polars": lambda frame: frame,
    "polars, milliseconds": lambda frame: frame.cast({"paid": pl.Datetime("ms")}),
    "polars, zoned": lambda frame: frame.with_columns(
        pl.col("paid").dt.replace_time_zone("Asia/Tokyo")
    ),
    "pandas": lambda frame: frame.to_pandas(),
    "pandas, nanoseconds": lambda frame: frame.to_pandas().astype({"paid": "datetime64[ns]"}),
    "pandas, zoned": lambda frame: frame.to_pandas().assign(
        paid=lambda table: table["paid"].dt.tz_localize("Asia/Tokyo")
    ),
    "pandas, objects": lambda frame: frame.to_pandas().astype({"paid": object}),
    "pandas, Arrow": lambda frame: frame.to_pandas(use_pyarrow_extension_array=True),
}
DETECTORS = {
    "AutoRAD": AutoRAD(budget=1),
    "BoostedRAD": BoostedRAD(max_iter=40),
    "ForestRAD": ForestRAD(n_estimators=40),
}


@pytest.mark.parametrize("name", DETECTORS)
def test_detectors_learn_from_parts_of_dates(name, tmp_path):
    frame, y, truth = nightly()
    model = clone(DETECTORS[name]).fit(frame, y)
    assert model.schema_.dates == {1: ["hour", "weekday", "day of month"], 2: []}
    assert model.n_features_in_ == 3
    scores = model.score_samples(frame)
    assert roc_auc_score(truth[y == 0], scores[y == 0]) > 0.95
    np.testing.assert_array_equal(clone(model).fit(frame, y).score_samples(frame), scores)
    np.testing.assert_allclose(model.score_samples(frame[:1]), scores[:1])
    riskad.save(model, tmp_path / "model.riskad")
    loaded = riskad.load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(loaded.score_samples(frame.to_pandas()), scores)
    shares = getattr(model, "feature_importances_", None)
    assert shares is None or (len(shares) == 3 and shares.argmax() == 1)


@pytest.mark.parametrize("kind", FRAMES)
def test_dates_are_the_same_in_every_frame(kind):
    if "pandas" in kind:
        pytest.importorskip("pandas")
    if "Arrow" in kind:
        pytest.importorskip("pyarrow")
    frame, y, _ = nightly(300)
    given = FRAMES[kind](frame)
    model, other = (ForestRAD(n_estimators=10).fit(X, y) for X in (frame, given))
    assert other.schema_ == model.schema_
    np.testing.assert_array_equal(other.score_samples(given), model.score_samples(frame))
    np.testing.assert_array_equal(model.score_samples(given), model.score_samples(frame))


def test_days_without_a_clock_have_weekdays():
    frame, y, _ = nightly()
    days = frame.with_columns(pl.col("paid").cast(pl.Date), at=pl.col("paid").dt.time())
    parts = ["weekday", "day of month"]
    model = ForestRAD(n_estimators=5).fit(days, y)
    assert model.schema_.dates == {1: parts, 2: [], 3: []}
    pandas = days.select("amount", "paid").to_pandas()
    pandas["paid"] = np.array(days["paid"].to_list(), dtype=object)  # of datetime.date
    assert pandas["paid"].dtype == object
    assert ForestRAD(n_estimators=5).fit(pandas, y).schema_.dates == {1: parts}


def test_a_column_that_is_no_longer_of_dates_is_refused():
    frame, y, _ = nightly(300)
    model = ForestRAD(n_estimators=5).fit(frame, y)
    for wrong in (pl.lit("2025-01-01"), pl.lit(1.0)):
        with pytest.raises(InputError, match=r"'paid' held dates or times .* Give it as dates"):
            model.score_samples(frame.with_columns(paid=wrong))
    with pytest.raises(InputError, match="'amount' held no dates or times"):
        model.score_samples(frame.with_columns(amount="paid"))
    with pytest.raises(InputError, match="frame with dates in 'paid', 'lasted', got ndarray"):
        model.score_samples(np.zeros((2, 3)))
    blank = frame.with_columns(paid=None)
    assert np.isfinite(model.score_samples(blank)).all()
    assert np.isfinite(model.score_samples(blank.to_pandas())).all()
    with pytest.raises(InputError, match=r"'paid' .* ForestRAD take dates as they are"):
        ShallowRAD().fit(frame, y)


def test_a_stored_model_with_other_parts_of_dates_is_refused():
    frame, y, _ = nightly(300)
    model = ForestRAD(n_estimators=5).fit(frame, y)
    for wrong, message in (
        ({1: ["hour"]}, "trees_: of other columns"),
        ({9: model.schema_.dates[1]}, "schema_: no such column"),
    ):
        with pytest.raises(InputError, match=message):
            build(ForestRAD, state_of(model) | {"schema_": TableSchema(dates=wrong)})
    for wrong in ({"dates": {1: ["century"]}}, {"levels": {1: ["a"]}, "dates": {1: ["hour"]}}):
        with pytest.raises(InputError, match="dates"):
            build(TableSchema, {"levels": {}, **wrong})


@pytest.mark.parametrize("name", [*DETECTORS, "CompressedRAD", "OutlierMean"])
def test_a_graph_takes_dates_as_seconds(name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    from riskad.app.onnx import export, feeds, to_onnx

    frame, y, _ = nightly()
    if name == "CompressedRAD":
        model = CompressedRAD(max_iter=20).learn(AutoRAD(budget=1).fit(frame, y))
    else:
        model = clone(DETECTORS.get(name, OutlierMean())).fit(frame, y)
    proto = to_onnx(model)
    words = {entry.name: entry.doc_string for entry in proto.graph.input}
    assert words["paid"].startswith("seconds since 1970-01-01")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    scores = session.run(["anomaly_score"], feeds(proto, frame))[0]
    np.testing.assert_allclose(scores, model.anomaly_score(frame), atol=1e-6)
    assert np.ptp(scores) > 0.5
    assert export(model, tmp_path / "model.onnx").largest_difference < 1e-5
