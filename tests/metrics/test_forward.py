"""Training on the past and judging by what came later."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import riskad
from riskad import InputError
from riskad.app.fit import fit_table
from riskad.app.spec import FitSpec
from riskad.metrics.folds import forward_splits, periods_of

LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def drifting(n=1_500, seed=0):
    """Anomalies are high in x at first; in the last fifth of the time they are low instead."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n) < 0.2
    late = np.arange(n) >= 0.8 * n
    shift = np.where(late, -4.0, 4.0) * anomalous
    X = rng.normal(size=(n, 3)) + np.outer(shift, [1, 0, 0])
    label = np.where(anomalous, "fraud", "ok").astype(object)
    label[rng.random(n) < 0.7] = None
    days = [date(2024, 1, 1) + timedelta(days=int(i)) for i in np.arange(n) // 3]
    columns = {f"x{i}": X[:, i] for i in range(3)} | {"when": days}
    return pl.DataFrame(columns | {"label": label.tolist()})


def test_periods_have_as_many_labelled_rows_each():
    rng = np.random.default_rng(0)
    moments = rng.random(1_000)
    codes = np.where(rng.random(1_000) < 0.1 + 0.4 * (moments > 0.8), 1, 0)
    periods = periods_of(codes, moments)
    counts = np.bincount(periods[codes != 0])
    assert len(counts) == 5
    assert np.ptp(counts) <= 1
    for earlier in range(4):
        assert moments[periods == earlier].max() < moments[periods == earlier + 1].min()


def test_rows_of_a_moment_stay_together_and_blanks_come_first():
    moments = np.array([np.nan, 1, 1, 1, 1, 2, 2, np.nan, 5])
    periods = periods_of(np.array([1, 1, -1, 1, 1, -1, 1, 0, 0]), moments)
    assert_array_equal(periods, [0, 0, 0, 0, 0, 1, 1, 0, 1])
    assert not periods_of(np.array([1, -1, 0]), np.array([3.0, 3.0, 9.0])).any()
    assert not periods_of(np.array([0, 0]), np.array([1.0, 2.0])).any()


def test_fits_see_earlier_rows_alone():
    periods = np.array([2, 0, 1, 1, 0, 2])
    splits = [(train.tolist(), held.tolist()) for train, held in forward_splits(periods)]
    assert splits == [([1, 4], [2, 3]), ([1, 2, 3, 4], [0, 5])]


@pytest.mark.parametrize(("model", "n"), [("shallow", 1_500), ("forest", 900)])
def test_a_change_that_random_folds_hide_is_seen_over_time(model, n, tmp_path):
    table = drifting(n)
    told = fit_table(table, LABELS, time="when", model=model)
    first, *later = told.report.over_time
    assert first.auc is None
    assert [period.auc.value > 0.9 for period in later] == [True, True, True, False]
    assert later[-1].auc.value < 0.5  # what was learned points the wrong way by then
    assert sum(period.rows for period in told.report.over_time) == len(table)
    assert first.start == "2024-01-01"
    assert later[-1].end == str(table["when"].max())
    assert "fit to rows that are earlier by 'when'" in told.report.evidence
    calibration = told.model[-1].calibration_
    judged = sum(period.normal + period.anomaly for period in later)
    assert len(calibration.scores) == judged == told.report.auc.n_normal + told.report.auc.n_anomaly
    riskad.save(told.model, tmp_path / "m.riskad", report=told.report)
    riskad.load(tmp_path / "m.riskad")


def test_the_model_itself_learns_from_all_rows_and_time_alone_changes_no_score():
    table = drifting()
    told, untold = (fit_table(table, LABELS, model="shallow", time=t) for t in ("when", None))
    features = table.drop("label")
    assert_array_equal(told.model.score_samples(features), untold.model.score_samples(features))
    assert untold.report.over_time == []


def test_what_is_no_time_is_refused():
    said = r"must be a column of dates .* it was read as 'number'.*--kind x0=date"
    for time, words in (("x0", said), ("missing", "missing")):
        with pytest.raises(InputError, match=words):
            fit_table(drifting(), LABELS, model="shallow", time=time)
