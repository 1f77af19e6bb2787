"""Drift: false alarms are as rare as promised, changes are seen, and the summary goes along."""

import warnings

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from scipy.stats import ks_2samp
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.cards import make_aged_cards
from support.commands import result_of, run
from support.loops import each

from riskad import ForestRAD, ShallowRAD, StreamingRAD, calibrate, drift_report, load, save
from riskad.app.fit import fit_table
from riskad.app.score import drift_table
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.decisions.drift import UnlabelledSummary, remember_unlabelled, rows_to_sum_up


def make_rows(n, rng, d=8):
    """Normal, skewed, whole, yes or no and correlated columns; 10 % anomalies."""
    X = rng.normal(size=(n, d))
    X[:, 1] = np.exp(X[:, 1])
    X[:, 2] = rng.integers(0, 5, n)
    X[:, 3] = rng.random(n) < 0.2
    X[:, 4] = X[:, 0] + 0.3 * X[:, 4]
    anomaly = rng.random(n) < 0.1
    X[anomaly] += np.where(np.arange(d) == 3, 0, 1.5)
    return X, anomaly


def make_labelled(n, rng, share=0.1):
    X, anomaly = make_rows(n, rng)
    return X, np.where(rng.random(n) < share, np.where(anomaly, -1, 1), 0)


def make_model(rng, n=1500, **settings):
    X, y = make_labelled(n, rng)
    return ShallowRAD(lam="tight", **settings).fit(X, y), X, y


@pytest.fixture(scope="module")
def fitted():
    return make_model(np.random.default_rng(0))


# --- level and power -----------------------------------------------------------------------


def test_false_alarms_and_power():
    draws, alarms, found, others = 300, 0, 0, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        X, _ = make_rows(1500, rng)
        # The fit is spared: only scores depend on it, and they are tested below.
        model = ShallowRAD()
        model.unlabelled_ = UnlabelledSummary.of(X)
        model.coef_, model.intercept_, model.feature_map_ = np.zeros(8), 0.0, None
        model._mean, model._scale = np.zeros(8), np.ones(8)
        model.n_features_in_ = 8
        new, _ = make_rows(1000, rng)
        alarms += bool(drift_report(model, new).moved)
        if seed >= 100:
            continue
        new[:, 5] += 0.5 * X[:, 5].std()
        moved = drift_report(model, new).moved
        found += "5" in moved
        others += len(moved) > 1
    assert alarms <= 0.05 * draws + 2 * np.sqrt(draws * 0.05 * 0.95)
    assert found == 100
    assert others <= 10


def test_scores_of_the_fit_give_no_false_alarms():
    draws, alarms = 60, 0
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        model, *_ = make_model(rng)
        alarms += drift_report(model, make_rows(1000, rng)[0]).scores.p_value <= 0.05
    assert alarms <= 0.05 * draws + 2 * np.sqrt(draws * 0.05 * 0.95)


def test_distance_is_close_to_and_never_above_kolmogorovs():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(800, 3)), rng.normal(0.2, 1.3, size=(900, 3))
    old[:, 1], new[:, 1] = old[:, 1].round(), new[:, 1].round()
    model = ShallowRAD().fit(np.vstack([old, old[:2]]), [0] * 800 + [1, -1])
    for j, column in enumerate(drift_report(model, new).columns):
        exact = ks_2samp(old[:, j], new[:, j], method="asymp")
        assert exact.statistic - 0.02 <= column.distance <= exact.statistic + 1e-12
        assert column.p_value >= exact.pvalue * (1 - 1e-9)


def test_a_share_of_yes_is_compared_exactly(fitted):
    model, X, y = fitted
    new = X[y == 0].copy()
    new[:, 3] = np.random.default_rng(0).random(len(new)) < 0.27
    report = drift_report(model, new)
    assert report.moved == ["3"]
    assert report.columns[3].p_value < 0.01
    assert ks_2samp(X[y == 0, 3], new[:, 3]).pvalue > 0.03


@each("value", [-1.0, 6.0, 8.0])
def test_a_column_that_was_constant(value):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), np.full(500, 7.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ShallowRAD().fit(X, [1] * 5 + [-1] * 5 + [0] * 490)
    assert drift_report(model, X).moved == []
    X[:, 1] = value
    report = drift_report(model, X)
    assert report.moved == ["1"]
    assert np.isinf(report.columns[1].shift)
    said = "higher" if value > 7 else "lower"
    assert f"1 ({said}, where it was constant)" in report.verdict
    assert "inf" not in report.verdict


# --- what is said ----------------------------------------------------------------------------


def test_verdicts(fitted):
    model, X, y = fitted
    unlabelled = X[y == 0]
    report = drift_report(model, unlabelled)
    assert str(report).startswith(
        f"no drift seen in {len(unlabelled):,} rows: 8 columns and the scores"
    )
    assert report.unlabelled == len(unlabelled)
    names = [f"x{i}" for i in range(8)]
    moved = drift_report(model, unlabelled + np.array([0, 0, 0, 0, 0, 2, 1, 0]), names=names)
    assert moved.moved == ["x5", "x6"]
    assert "2 of 8 columns have moved" in str(moved)
    assert "x5 (+" in str(moved)
    assert moved.scores.moved
    assert "more anomalous" in str(moved)
    assert moved.columns[5].shift == pytest.approx(2 / unlabelled[:, 5].std(), rel=1e-6)


def test_anomaly_rate_of_new_rows():
    rng = np.random.default_rng(0)
    model, X, y = make_model(rng, 3000)
    assert drift_report(model, X).rate is None
    calibrate(model, X, y)
    more, anomaly = make_rows(8000, rng)
    rows = np.r_[np.flatnonzero(anomaly)[:600], np.flatnonzero(~anomaly)[:1400]]
    report = drift_report(model, more[rows])
    assert report.rate_before == tuple(model.calibration_.rate)
    low, high = report.rate[1:]
    assert low <= 0.3 <= high
    assert report.rate[0] > 2 * report.rate_before[0]


def test_pipelines_frames_and_sparse_rows():
    rng = np.random.default_rng(0)
    X, y = make_labelled(800, rng, 0.2)
    frame = pl.DataFrame(X, schema=[f"c{i}" for i in range(8)])
    named = ShallowRAD().fit(frame, y)
    assert drift_report(named, frame.with_columns(c2=pl.col("c2") + 3)).moved == ["c2"]
    scaled = make_pipeline(StandardScaler(), ShallowRAD()).fit(X, y)
    assert drift_report(scaled, X + np.eye(8)[6] * 3).moved == ["x6"]
    thin = sparse.csr_array(np.where(rng.random(X.shape) < 0.8, 0, X))
    model = ShallowRAD().fit(thin, y)
    assert drift_report(model, thin).moved == []
    assert drift_report(model, 3 * thin).moved == ["2", "1"]


def test_wide_rows_and_feature_maps_are_compared_by_scores():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1001))
    y = np.r_[np.ones(5), -np.ones(5), np.zeros(50)].astype(int)
    X[y == -1] += 1
    report = drift_report(ShallowRAD().fit(X, y), X)
    assert report.columns == ()
    assert "the scores are distributed" in report.verdict
    model, rows, codes = make_model(rng, feature_map="rbf")
    assert len(drift_report(model, rows).columns) == 8
    streamed = StreamingRAD(feature_map="poly").partial_fit(rows, codes)
    with pytest.raises(InputError, match="keeps no summary"):
        drift_report(streamed, rows)


def test_streams_keep_a_summary_of_their_sample():
    X, y = make_labelled(3000, np.random.default_rng(0))
    model = StreamingRAD("squared").partial_fit(X[:2000], y[:2000])
    assert drift_report(model, X[2000:]).moved == []
    X[2000:, 7] += 3
    model.partial_fit(X[2000:], y[2000:], forget=0.99)
    assert drift_report(model, X[:2000]).moved[0] == "7"


def test_other_detectors_remember_unlabelled_rows_when_told():
    rng = np.random.default_rng(0)
    X, y = make_labelled(600, rng, 0.2)
    X[rng.random(X.shape) < 0.05] = np.nan
    model = ForestRAD(n_estimators=10, random_state=0).fit(X, y)
    with pytest.raises(InputError, match="remember_unlabelled"):
        drift_report(model, X)
    assert remember_unlabelled(model, X, y) is model
    report = drift_report(model, X)
    assert report.scores is None
    assert report.moved == []
    X[:300, 6] = np.nan
    gaps = drift_report(model, X)
    assert gaps.moved == ["6"]
    assert gaps.columns[6].missing == pytest.approx(0.52, abs=0.03)
    assert "gaps 5 % to 5" in str(gaps)
    assert not hasattr(model.fit(X, y), "unlabelled_")


def test_bad_input(fitted):
    model, X, _ = fitted
    with pytest.raises(InputError, match="level must"):
        drift_report(model, X, level=0)
    with pytest.raises(InputError, match="one name for each of 8"):
        drift_report(model, X, names=["a"])
    with pytest.raises(InputError, match="fitted detector"):
        drift_report(StandardScaler().fit(X), X)
    with pytest.raises(ValueError, match="features"):
        drift_report(model, X[:, :3])
    alone = ShallowRAD(risk="pn").fit(X, np.where(X[:, 0] > 0, 1, -1))
    with pytest.raises(InputError, match="it had no unlabelled rows"):
        drift_report(alone, X)


# --- what is kept ----------------------------------------------------------------------------


def test_summary_is_small_and_saved(fitted, tmp_path):
    model, X, _ = fitted
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    assert drift_report(again, X) == drift_report(model, X)
    assert model.unlabelled_.edges.shape == (9, 64)
    kept = [value for value in vars(model.unlabelled_).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in kept) < 20_000
    assert again.unlabelled_.n_columns == 8
    np.testing.assert_array_equal(again.unlabelled_.below, model.unlabelled_.below)


def test_summary_takes_a_sample_of_many_rows():
    assert rows_to_sum_up(2) == 20_000
    assert rows_to_sum_up(50) == 1_000
    assert rows_to_sum_up(5_000) == 500
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 50)), np.r_[[1, -1] * 10, [0] * 2980]
    assert ShallowRAD().fit(X, y).unlabelled_.n_rows == 1_000


# --- tables ----------------------------------------------------------------------------------


LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])


def make_table(n, seed, shift=0.0):
    return make_aged_cards(n, seed).drop("card").with_columns(pl.col("amount") + shift)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and two tables, one of which has moved."""
    place = tmp_path_factory.mktemp("drift")
    save(fit_table(make_table(800, 0), LABELS, model="shallow").model, place / "model.riskad")
    make_table(600, 1).write_csv(place / "same.csv")
    make_table(600, 2, shift=8).write_csv(place / "moved.csv")
    return place


def test_the_command_says_what_has_moved_to_people_and_machines(folder):
    said = run("drift", folder / "model.riskad", folder / "moved.csv").output
    assert "has moved in 600 rows: amount (+" in said
    assert "% of the unlabelled rows of the fit (95%" in said
    said = run("drift", folder / "model.riskad", folder / "same.csv").output
    assert "no drift seen in 600 rows" in said
    report = result_of("drift", folder / "model.riskad", folder / "moved.csv")
    assert (report["command"], report["source"]) == ("drift", "moved.csv")
    columns = {column["name"]: column for column in report["drift"]["columns"]}
    countries = ["country=DE", "country=FR", "country=XX"]
    assert list(columns) == ["amount", "age", "age is blank", *countries]
    assert columns["amount"]["moved"]
    assert not columns["age"]["moved"]
    assert report["drift"]["rate"][0] > 0


@each(
    ("table", "limit", "code", "above"),
    [
        ("moved.csv", "0", 3, ["amount"]),
        ("moved.csv", "0.9", 0, []),
        ("same.csv", "0", 0, []),  # by chance no distance is 0
    ],
)
def test_drift_beyond_a_limit_is_an_alarm_to_a_scheduler(folder, table, limit, code, above):
    arguments = ("drift", folder / "model.riskad", folder / table, "--fail-above", limit)
    report = result_of(*arguments, code=code)
    assert report["alarm"] is (code == 3)
    assert report["above"][:1] == above
    assert report["fail_above"] == float(limit)
    said = "amount, scores: moved by a distance" if above else "none: nothing has moved"
    assert said in " ".join(run(*arguments, code=code).output.split())


def test_few_rows_raise_no_alarm_by_chance(folder):
    """Five rows may lie anywhere: their distance is large, and says nothing."""
    table, model = make_table(5, 1), load(folder / "model.riskad")
    found = drift_table(model, table, fail_above=0.2)
    assert max(column.distance for column in found.drift.columns) > 0.2
    assert not found.alarm


def test_a_limit_that_is_no_distance_is_a_mistake(folder):
    command = ("drift", folder / "model.riskad", folder / "same.csv", "--fail-above")
    for limit in ("1", "-0.1", "nan"):
        message = run(*command, limit, code=1).output
        assert f"{float(limit):g} must be at least 0 and below 1" in message


def test_any_model_of_a_table_remembers_unlabelled_rows():
    fit = fit_table(make_table(300, 0), LABELS, model="auto", settings={"budget": 2})
    found = drift_table(fit.model, make_table(400, 5, shift=15), source="new")
    assert found.drift.scores is None
    assert "amount" in found.drift.moved
    assert found.source == "new"
