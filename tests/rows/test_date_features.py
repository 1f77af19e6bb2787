"""What dates, times and durations tell, against the calendar of Python."""

import datetime as dt
import math

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from support.loops import each

import riskad
from riskad import AutoRAD, BoostedRAD, ForestRAD, ShallowRAD
from riskad.core.checks import InputError
from riskad.files.codec import build, from_tree, to_tree
from riskad.rows.date_features import (
    PERIODS,
    MomentParts,
    civil_of_days,
    elapsed_pairs,
)
from riskad.rows.encoding import OneHotImputer
from riskad.rows.table import Table

DAY = 86_400.0
EPOCH = dt.datetime(1970, 1, 1)
ALL = ("hour", "weekday", "day of month", "month", "elapsed")


def moments(n, seed=0, first=1900, last=2100):
    low = (dt.datetime(first, 1, 1) - EPOCH).total_seconds()
    high = (dt.datetime(last, 12, 31) - EPOCH).total_seconds()
    return np.floor(np.random.default_rng(seed).uniform(low, high, n))


def test_parts_are_those_of_the_calendar_for_10000_random_moments():
    seconds = moments(10_000)
    first = float(seconds.min())
    made = MomentParts("datetime", ALL, first, (seconds.max() - first) / DAY).ordered(seconds)
    truth = [EPOCH + dt.timedelta(seconds=second) for second in seconds]
    days = [(each - min(truth)) / dt.timedelta(days=1) for each in truth]
    hours = [each.hour + each.minute / 60 + each.second / 3600 for each in truth]
    dates = [(each.weekday(), each.day, each.month) for each in truth]
    expected = np.column_stack([hours, dates, days])
    np.testing.assert_allclose(made, expected, rtol=0, atol=1e-9)


def test_the_calendar_is_that_of_the_standard_library_from_year_1_to_9999():
    days = np.arange(-719_162, 2_932_897, 97, dtype=np.float64)
    year, month, day = civil_of_days(days)
    dates = [dt.date.fromordinal(int(n) + 719_163) for n in days]
    truth = [(each.year, each.month, each.day) for each in dates]
    np.testing.assert_array_equal(np.transpose([year, month, day]), truth)
    assert (year[0], month[0], day[0]) == (1, 1, 1)
    assert year[-1] == 9999


@each(
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
    assert from_tree(*to_tree(parts)) == parts


def test_parts_that_come_round_lie_on_circles_and_midnight_is_near_itself():
    periods = {j: float(PERIODS[part][0]) for j, part in enumerate(ALL[:-1])}
    values = MomentParts("datetime", ALL, span=1e5).ordered(moments(500))
    made = OneHotImputer().fit_transform(Table(values, ALL, {}, periods))
    assert made.shape[1] == 9
    np.testing.assert_allclose(made[:, 0:8:2] ** 2 + made[:, 1:8:2] ** 2, 1.0)
    hours = MomentParts("time", ("hour",)).ordered(np.array([86_399.0, 1.0, 43_200.0]))
    late, early, noon = OneHotImputer().fit_transform(Table(hours, ("hour",), {}, {0: 24.0}))
    assert np.linalg.norm(late - early) < 0.001 < 1.9 < np.linalg.norm(noon - early)


def test_changed_parts_are_refused():
    stored = vars(MomentParts("datetime", ("hour", "elapsed"), 0.0))
    changes = [{"kind": "number"}, {"origin": math.inf}, {"origin": "0"}, {"more": 1}]
    parts = ["seconds"], ["elapsed", "hour"], "hour", ["hour", "hour"]
    for change in [*changes, *({"parts": some} for some in parts)]:
        with pytest.raises(InputError):
            build(MomentParts, stored | change)
    with pytest.raises(InputError, match="Did you mean 'date'"):
        MomentParts.learn("dates", pl.Series([0.0]))


def test_pairs_need_dates_that_are_filled_and_a_difference_that_varies():
    rng = np.random.default_rng(0)
    sent = rng.uniform(0, 1e8, 100)
    dates = {
        "sent": sent,
        "copy": sent,
        "paid": sent + rng.uniform(0, 1e6, 100),
        "rare": np.append(sent[:40], np.full(60, np.nan)),
    }
    assert elapsed_pairs(dates) == [("sent", "paid"), ("copy", "paid")]
    assert elapsed_pairs({}) == []


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


@each("kind", FRAMES)
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
