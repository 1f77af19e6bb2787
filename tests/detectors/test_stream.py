"""StreamingRAD: the model is that of `ShallowRAD` on all rows so far, or close to it."""

import itertools
import warnings

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import RBFSampler
from support.loops import each

from riskad import ShallowRAD, StreamingRAD, calibrate, load, save
from riskad.app.bounds import bounds_of
from riskad.app.onnx import export
from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.core.risks import get_risk
from riskad.detectors.linear import stream
from riskad.detectors.linear.stream import StreamSummary
from riskad.files.codec import build, state_of
from riskad.rows.sources import MappedRows, RowBlocks

LOSSES = ("squared", "modified_huber", "logistic")


def make_rows(n=1500, seed=0):
    """Correlated columns, one with a mean far from zero, and 10 % anomalies."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5)) + np.array([0, 1e3, -5, 1e6, 0])
    anomaly = rng.random(n) < 0.1
    X[anomaly] += 2
    known = rng.random(n) < 0.15
    return X, np.where(known, np.where(anomaly, -1, 1), 0)


def stream_over(model, X, y, n_batches=7, weight=None, **options):
    for rows in np.array_split(np.arange(len(y)), n_batches):
        own = None if weight is None else weight[rows]
        model.partial_fit(X[rows], y[rows], own, **options)
    return model


def assert_same(streamed, fitted, X, rtol=1e-9):
    np.testing.assert_allclose(streamed.coef_, fitted.coef_, rtol=rtol)
    scores = fitted.score_samples(X)
    close = {"rtol": rtol, "atol": rtol * np.abs(scores).max()}
    np.testing.assert_allclose(streamed.score_samples(X), scores, **close)
    for name in ("lambda_", "objective_", "weight_norm_", "offset_"):
        np.testing.assert_allclose(getattr(streamed, name), getattr(fitted, name), **close)
    assert streamed.risk_parts_.keys() == fitted.risk_parts_.keys()
    for name, part in fitted.risk_parts_.items():
        np.testing.assert_allclose(streamed.risk_parts_[name], part, **close)


@each(("loss", "lam"), itertools.product(LOSSES, ["theorem", "tight", 1e-3]))
def test_batches_give_the_model_of_all_rows(loss, lam):
    X, y = make_rows()
    settings = {"lam": lam, "tol": 1e-8}
    fitted = ShallowRAD(loss, **settings).fit(X, y)
    rtol = 1e-9 if loss == "squared" else 1e-6  # Newton's method stops where it may
    assert_same(stream_over(StreamingRAD(loss, **settings), X, y), fitted, X, rtol)


@each(
    "settings",
    [
        *({"risk": "pn"}, {"risk": "nu", "lam": 0.1}, {"risk": "pu", "lam": 0.1}, {"scale": False}),
        *({"risk": "pnu", "a": -0.3}, {"intercept_scaling": 0}, {"intercept_scaling": 20.0}),
    ],
)
def test_other_settings_are_exact_as_well(settings):
    X, y = make_rows(seed=1)
    X = X - X.mean(axis=0)
    fitted = ShallowRAD("squared", **settings).fit(X, y)
    assert_same(stream_over(StreamingRAD("squared", **settings), X, y), fitted, X)


@pytest.fixture
def small_sample(monkeypatch):
    """A sample of 40 rows of each kind, so that most rows leave it."""
    monkeypatch.setattr(stream, "SAMPLE_SIZE", 40)


@each("lam", ["tight", 1e-3])
def test_squared_loss_is_exact_for_rows_that_left_the_sample(small_sample, lam):
    X, y = make_rows(3000)
    fitted = ShallowRAD("squared", lam=lam).fit(X, y)
    streamed = stream_over(StreamingRAD("squared", lam=lam), X, y)
    assert len(streamed._summary.y) == 120
    streamed.offset_ = fitted.offset_  # that of a sample; see below
    assert_same(streamed, fitted, X)


def test_batches_of_one_row_and_permuted_rows_change_nothing(small_sample):
    X, y = make_rows(300, seed=2)
    order = np.random.default_rng(0).permutation(300)
    some = stream_over(StreamingRAD("squared", lam="tight"), X, y, 3)
    single = StreamingRAD("squared", lam="tight").partial_fit(X[order[:2]], y[order[:2]])
    for i in order[2:]:
        single.partial_fit(X[[i]], y[[i]])
    np.testing.assert_allclose(single.coef_, some.coef_, rtol=1e-8)


def test_labels_matter():
    X, y = make_rows()
    permuted = np.random.default_rng(0).permutation(y)
    one, other = (stream_over(StreamingRAD("logistic"), X, each) for each in (y, permuted))
    assert abs(one.coef_ - other.coef_).max() > 0.1 * abs(one.coef_).max()


@each("loss", LOSSES)
def test_weights_count_as_repeated_rows(loss):
    X, y = make_rows(400)
    weight = np.random.default_rng(0).integers(0, 4, 400)
    weighted = stream_over(StreamingRAD(loss, lam="tight"), X, y, 3, weight.astype(float))
    repeated = stream_over(
        StreamingRAD(loss, lam="tight"), np.repeat(X, weight, axis=0), np.repeat(y, weight), 3
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)
    assert weighted.offset_ == pytest.approx(repeated.offset_, rel=1e-6)


def test_what_is_forgotten_counts_less():
    X, y = make_rows(900)
    age = np.repeat([2, 1, 0], 300)
    fitted = ShallowRAD("squared").fit(X, y, sample_weight=0.7**age)
    assert_same(stream_over(StreamingRAD("squared"), X, y, 3, forget=0.3), fitted, X)


def test_forgetting_follows_a_change_and_its_sample_is_recent(small_sample):
    X, y = make_rows(4000)
    X[2000:, 0] += 30
    model = stream_over(StreamingRAD("squared", lam="tight"), X, y, 40, forget=0.3)
    late = ShallowRAD("squared", lam="tight").fit(X[3500:], y[3500:])
    fixed = stream_over(StreamingRAD("squared", lam="tight"), X, y, 40)
    distance = [abs(m.score_samples(X) - late.score_samples(X)).mean() for m in (model, fixed)]
    assert distance[0] < distance[1] / 2
    assert (model._summary.X[model._summary.y == 0, 0] > 15).mean() > 0.9


@each("rate", [-0.1, 1.0, 2])
def test_rates_out_of_range_are_refused(rate):
    X, y = make_rows(100)
    with pytest.raises(InputError, match="half-life"):
        StreamingRAD("squared").partial_fit(X, y, forget=rate)


def test_columns_that_are_constant_at_first():
    X, y = make_rows(600)
    X[:200, 2] = 0.1
    X[:, 4] = 7.3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ShallowRAD("squared").fit(X, y)
    streamed = StreamingRAD("squared").partial_fit(X[:200], y[:200])
    assert streamed.coef_[2] == 0
    streamed.partial_fit(X[200:400], y[200:400]).partial_fit(X[400:], y[400:])
    assert streamed.coef_[2] != 0
    assert streamed.coef_[4] == 0
    assert_same(streamed, fitted, X)


def test_a_constant_column_that_begins_to_vary_after_rows_have_left(small_sample):
    X, y = make_rows(1200)
    X[:600, 2] = 0.1
    model = stream_over(StreamingRAD("squared"), X, y, 6)
    assert model.lambda_ >= ShallowRAD("squared").fit(X, y).lambda_ * (1 - 1e-9)


def test_means_that_wander_lose_no_digits():
    rng = np.random.default_rng(0)
    X = np.column_stack([1e9 + np.arange(2000) * 60.0, rng.normal(size=2000)])
    y = rng.choice([0, 0, 0, 1, -1], 2000)
    X[y == -1, 1] += 3
    fitted = ShallowRAD("squared", lam=1e-3).fit(X, y)
    streamed = stream_over(StreamingRAD("squared", lam=1e-3), X, y, 20)
    np.testing.assert_allclose(streamed.coef_, fitted.coef_, rtol=1e-8)


@each("lam", ["theorem", "tight"])
def test_theorem_holds_for_anomalies_that_left_the_sample(small_sample, lam):
    X, y = make_rows(3000)
    exact = ShallowRAD("logistic", lam=lam).fit(X, y).lambda_
    found = stream_over(StreamingRAD("logistic", lam=lam), X, y, 10).lambda_
    assert exact * (1 - 1e-9) <= found <= exact * (2.0 if lam == "theorem" else 1 + 1e-9)


@each("loss", ["modified_huber", "logistic"])
def test_other_losses_come_close_when_rows_leave_the_sample(small_sample, loss):
    X, y = make_rows(4000)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    settings = {"lam": 1e-3, "scale": False}
    fitted = ShallowRAD(loss, **settings).fit(X, y)
    streamed = stream_over(StreamingRAD(loss, **settings), X, y, 20)
    risk = get_risk("rad", loss)

    def value(model):
        return risk.value(model.score_samples(X), y) + 1e-3 * model.weight_norm_**2

    gap = (value(streamed) - value(fitted)) / (risk.value(np.zeros(4000), y) - value(fitted))
    assert 0 < gap < 0.02
    assert streamed.objective_ == pytest.approx(value(streamed), rel=0.05)


def test_sample_weights_stand_for_all_rows(small_sample):
    rng = np.random.default_rng(0)
    weight = rng.uniform(0.1, 5, 2000)
    X, totals = rng.normal(size=(2000, 1)), []
    for seed in range(200):
        found = StreamSummary.empty(1).add(X, np.zeros(2000, dtype=np.int16), weight, seed)
        found = found.thin(lambda rows: np.zeros(len(rows)), get_risk("rad").loss)
        totals.append(found.sample_weights() @ (found.X[:, 0] > 0))
    truth = weight @ (X[:, 0] > 0)
    assert abs(np.mean(totals) - truth) < 4 * np.std(totals) / np.sqrt(200)


def test_first_batches_without_labels():
    X, y = make_rows(900)
    unlabelled, labelled = y == 0, y != 0
    model = StreamingRAD("logistic", tol=1e-9).partial_fit(X[unlabelled], y[unlabelled])
    with pytest.raises(NotFittedError, match="anomaly and normal rows as well"):
        model.predict(X)
    model.partial_fit(X[labelled], y[labelled])
    order = np.argsort(labelled, kind="stable")
    assert_same(model, ShallowRAD("logistic", tol=1e-9).fit(X[order], y[order]), X, rtol=1e-6)


@each(
    ("settings", "named"),
    [
        ({"loss": "hinge"}, "loss='hinge'.*Choose squared, modified_huber or logistic"),
        ({"loss": "sigmoid"}, "loss='sigmoid'"),
        ({"risk": "nnrad"}, "risk='nnrad'.*Choose pn, pu, nu, pnu or rad"),
        ({"lam": "cv"}, "lam='cv'.*Choose a number, theorem or tight"),
        ({"lam": -1.0}, "lam must be a number >= 0"),
        ({"risk": "pu"}, "no value for the pu risk. Give lam as a number."),
    ],
)
@each("method", ["fit", "partial_fit"])
def test_settings_that_need_all_rows_are_refused(settings, named, method):
    X, y = make_rows(300)
    with pytest.raises(InputError, match=named):
        getattr(StreamingRAD(**settings), method)(X, y)


def test_bad_rows_leave_the_stream_as_it_was():
    X, y = make_rows(300)
    model = StreamingRAD("squared").partial_fit(X, y)
    before = model.coef_.copy()
    bad = X[:5].copy()
    bad[3, 2] = np.nan
    with pytest.raises(InputError, match="row 3, column 2"):
        model.partial_fit(bad, y[:5])
    assert model.unlabelled_ is not None
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], y)
    np.testing.assert_array_equal(model.coef_, before)
    with pytest.raises(InputError, match="999 columns"):
        StreamingRAD("squared").partial_fit(np.ones((3, 1000)), [0, 1, -1])


def test_fit_starts_anew_and_partial_fit_goes_on_from_it():
    X, y = make_rows(300)
    model = StreamingRAD("squared").partial_fit(X[:100], y[:100]).fit(X[:200], y[:200])
    assert_same(model, ShallowRAD("squared").fit(X[:200], y[:200]), X)
    assert_same(model.partial_fit(X[200:], y[200:]), ShallowRAD("squared").fit(X, y), X)
    assert not hasattr(clone(model), "_summary")


def test_a_fit_needs_all_kinds_of_row_at_once():
    X, y = make_rows(300)
    with pytest.raises(InputError, match="the rad risk needs a labelled anomaly"):
        StreamingRAD().fit(X[y != -1], read_codes(y[y != -1]))


def test_sources_are_taken_batch_by_batch():
    X, y = make_rows(300)
    with pytest.raises(InputError, match="one batch in memory at a time, got a MappedRows"):
        StreamingRAD().fit(MappedRows(RowBlocks(X, y), lambda block: block, 5))
    in_memory = StreamingRAD().fit(RowBlocks(X, y))
    assert_same(in_memory, StreamingRAD().fit(X, y), X)


@each("loss", LOSSES)
def test_weights_and_bounds_are_those_of_the_shallow_detector(loss):
    X, y = make_rows(400)
    streamed, fitted = (kind(loss, tol=1e-9).fit(X, y) for kind in (StreamingRAD, ShallowRAD))
    assert streamed._largest_norm(X) == pytest.approx(fitted._largest_norm(X))
    one, other = (bounds_of(model, X, y).error.value for model in (streamed, fitted))
    assert one == pytest.approx(other, rel=1e-6)
    shares, base = streamed._contributions(X)
    np.testing.assert_allclose(shares.sum(axis=1) + base, streamed.score_samples(X))


def test_loss_may_not_change_on_the_way(small_sample):
    X, y = make_rows(600)
    model = stream_over(StreamingRAD("squared", lam=0.1), X, y, 2).set_params(a=0.3, prior=0.9)
    model.partial_fit(X[:100], y[:100])
    rows = np.r_[0:600, 0:100]
    fitted = ShallowRAD("squared", a=0.3, prior=0.9, lam=0.1).fit(X[rows], y[rows])
    np.testing.assert_allclose(model.coef_, fitted.coef_, rtol=1e-8)
    with pytest.raises(InputError, match="loss may not"):
        model.set_params(loss="logistic").partial_fit(X, y)


def test_saved_streams_go_on(tmp_path, small_sample):
    X, y = make_rows(900)
    model = stream_over(StreamingRAD("logistic"), X[:600], y[:600], 2)
    save(model, tmp_path / "stream.riskad")
    loaded = load(tmp_path / "stream.riskad")
    for stored in (model, loaded):
        stored.partial_fit(X[600:], y[600:], forget=0.1)
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    assert loaded.offset_ == model.offset_
    assert loaded.get_params() == model.get_params()


def test_streams_are_exported(tmp_path):
    pytest.importorskip("onnxruntime")
    X, y = make_rows(400)
    model = stream_over(StreamingRAD(lam=0.1, feature_map="rbf"), X - X.mean(axis=0), y, 2)
    report = export(model, tmp_path / "stream.onnx")
    assert report.largest_difference < 1e-5


def test_streams_are_calibrated_by_fits_to_parts_of_their_rows():
    X, y = make_rows(600)
    model = calibrate(stream_over(StreamingRAD("squared"), X, y, 3), X, y)
    model.set_threshold("false-alarms:0.1")
    assert 0 < (model.predict(X[y == 1]) == -1).mean() < 0.3
    model.partial_fit(X[:5], y[:5])
    assert not hasattr(model, "calibration_")  # which was of another model


def test_a_stored_summary_of_other_columns_is_refused():
    X, y = make_rows(300)
    state = state_of(StreamingRAD("squared").fit(X, y))
    other = StreamingRAD("squared").fit(X[:, :3], y)._summary
    with pytest.raises(InputError, match="_summary: of another size"):
        build(StreamingRAD, state | {"_summary": other})


def test_sparse_rows_are_made_dense():
    X, y = make_rows(400)
    X[np.random.default_rng(0).random(X.shape) < 0.7] = 0
    dense = stream_over(StreamingRAD("squared"), X, y, 3)
    some = stream_over(StreamingRAD("squared"), sparse.csr_array(X), y, 3)
    np.testing.assert_allclose(some.coef_, dense.coef_, rtol=1e-10)


@each("feature_map", ["rbf", "nystroem", "poly", RBFSampler(random_state=0)])
def test_feature_maps_are_those_of_the_first_batch(feature_map):
    X, y = make_rows(500)
    fitted = ShallowRAD("squared", feature_map=feature_map, lam=0.1).fit(X, y)
    one = StreamingRAD("squared", feature_map=feature_map, lam=0.1).partial_fit(X, y)
    np.testing.assert_allclose(one.score_samples(X), fitted.score_samples(X), rtol=1e-6, atol=1e-9)
    two = StreamingRAD("squared", feature_map=feature_map, lam=0.1).partial_fit(X, y)
    two.partial_fit(X, y)
    np.testing.assert_allclose(two.score_samples(X), one.score_samples(X), rtol=1e-6, atol=1e-9)


def test_a_stream_that_forgot_its_rows_scores_as_before(tmp_path):
    X, y, _ = make_contaminated_rows(200)
    stream = StreamingRAD("squared").fit(X, y)
    scores = stream.score_samples(X)
    assert stream._kept_rows() == len(X)
    assert stream._forget_rows()._kept_rows() == 0
    np.testing.assert_array_equal(stream.score_samples(X), scores)
    with pytest.raises(InputError, match="rows of this stream were forgotten"):
        stream.partial_fit(X, y)
    save(stream, tmp_path / "ended.riskad")
    np.testing.assert_array_equal(load(tmp_path / "ended.riskad").score_samples(X), scores)
