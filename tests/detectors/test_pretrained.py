"""The network that was trained on other tables: what it finds, and that NumPy runs it right."""

import copy
import gc
import pickle

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import (
    Translates,
    assert_rows_score_alike,
    auc_of,
    run_in_single_precision,
)
from support.loops import each

import riskad
from riskad import InputError, PretrainedRAD
from riskad.core.labels import read_codes
from riskad.detectors import pretrained, table_network
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.detectors.table_network import TableNetwork


@pytest.fixture(scope="module")
def rows():
    return make_contaminated_rows(400, shift=2.0)


@pytest.fixture(scope="module")
def fitted(rows):
    return PretrainedRAD(unlabelled=100).fit(*rows[:2])


@pytest.fixture(scope="module")
def blanked(rows):
    """Rows of which the first column is blank in most anomalies and in few normals."""
    X, y, truth = rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=X.shape)
    X[rng.random(len(X)) < np.where(truth == -1, 0.8, 0.05), 0] = np.nan
    return X, y, truth


def test_it_tells_anomalies_and_decides_at_the_given_rate(fitted, rows):
    X, _, truth = make_contaminated_rows(400, shift=2.0, seed=1)
    X = X * rows[0].std(axis=0) / X.std(axis=0)
    X = X - X.mean(axis=0) + rows[0].mean(axis=0)
    assert auc_of(fitted, X, truth) > 0.97
    assert (fitted.predict(X) == truth).mean() > 0.9
    assert fitted.offset_ == pytest.approx(np.log(0.2 / 0.8))
    fewer = PretrainedRAD(unlabelled=100, prior=0.99).fit(*rows[:2])
    np.testing.assert_array_equal(fewer.score_samples(X), fitted.score_samples(X))
    assert (fewer.predict(X) == -1).sum() < (fitted.predict(X) == -1).sum()


def test_labels_decide_what_is_an_anomaly_and_one_kind_is_enough(rows):
    X, y, truth = rows
    turned = PretrainedRAD(unlabelled=100).fit(X, -y)
    assert auc_of(turned, X, truth) < 0.1
    for kept in (1, -1):
        model = PretrainedRAD(unlabelled=100).fit(X, read_codes(np.where(y == kept, y, 0)))
        assert auc_of(model, X, truth) > 0.8


def test_five_labels_find_a_ring_around_the_normals():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 60)
    far = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.3, (60, 2))
    X, truth = np.vstack([rng.normal(size=(540, 2)), far]), np.repeat([1, -1], [540, 60])
    y = np.repeat([1, 0, -1], [20, 575, 5])
    model = make_pipeline(LearnedFeatures(("columns", "outliers"), smooth=True), PretrainedRAD())
    model.fit(X, y)
    assert roc_auc_score(truth == -1, -model.score_samples(X)) > 0.98


def test_order_and_company_do_not_matter(fitted, rows):
    X, y, _ = rows
    scores = fitted.score_samples(X)
    assert_rows_score_alike(fitted, X)
    turned = PretrainedRAD(unlabelled=100).fit(X[:, ::-1], y)
    np.testing.assert_allclose(turned.score_samples(X[:, ::-1]), scores, atol=1e-3)
    moved = PretrainedRAD(unlabelled=100).fit(1000 * X - 5, y)
    np.testing.assert_allclose(moved.score_samples(1000 * X - 5), scores, atol=1e-3)


def test_many_columns_are_read_by_their_components():
    X, y, truth = make_contaminated_rows(300, READS_COLUMNS + 10, shift=1.0)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert model.context_.shape[1] < READS_COLUMNS
    assert np.isfinite(model.context_).all()
    assert auc_of(model, X, truth) > 0.9
    dense = model.score_samples(X[:20])
    np.testing.assert_allclose(model.score_samples(sparse.csr_matrix(X[:20])), dense, atol=1e-4)


def test_the_context_has_its_limits():
    X, y, _ = make_contaminated_rows(3000, labelled=0.6)
    model = PretrainedRAD(unlabelled=30).fit(X, y)
    assert np.bincount(model.states_).tolist() == [30, 400, 200]


def test_blanks_are_read_as_such(blanked):
    X, y, truth = blanked
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert np.isnan(model.context_).any()
    assert model.marked_.tolist() == [0]
    assert auc_of(model, X, truth) > 0.85
    X = np.where(np.isnan(X), X, X + np.random.default_rng(1).normal(size=X.shape))
    X[:, 0] = np.where(np.random.default_rng(2).random(len(X)) < 0.3, np.nan, X[:, 1])
    assert not len(PretrainedRAD().fit(X, y).marked_)  # blanks anywhere tell nothing


def test_a_column_that_is_blank_or_not_is_a_column(rows):
    X, y, truth = rows
    X = np.column_stack([X[:, 0] * 0 + 1, np.random.default_rng(0).normal(size=len(X))])
    X[truth == -1, 0] = np.nan
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert model.kept_.tolist() == [0, 1]
    assert auc_of(model, X, truth) > 0.95
    X[:, 0] = np.nan
    assert PretrainedRAD(unlabelled=100).fit(X, y).kept_.tolist() == [1]


def test_levels_are_known_by_their_rows_whatever_their_numbers():
    rng = np.random.default_rng(0)
    level, noise = rng.integers(0, 20, 900), rng.normal(size=900)
    odd = np.isin(level, [2, 7, 11, 16]) & (rng.random(900) < 0.9)
    y = np.where(rng.random(900) < 0.15, np.where(odd, -1, 1), 0)
    X, some = np.column_stack([level, noise]), slice(400)
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert auc_of(model, X[some], -odd[some].astype(int)) > 0.97


@each("size", [0.3, 3, 30])
def test_exponentials_of_large_logits_do_not_run_over(size):
    rng = np.random.default_rng(0)
    asked, keys, values = (
        rng.normal(size=shape).astype(np.float32) for shape in ((20, 64), (2, 32, 50), (2, 50, 32))
    )
    longest = float(size * np.sqrt((keys**2).sum(axis=1)).max())
    found = table_network._attend(asked, table_network.KeysValues(size * keys, values, longest))
    for head, columns in enumerate((slice(32), slice(32, 64))):
        weights = softmax(asked[:, columns].astype(float) @ (size * keys[head]), axis=1)
        np.testing.assert_allclose(found[:, columns], weights @ values[head], rtol=1e-3, atol=1e-3)


@pytest.fixture
def readings(monkeypatch):
    """Contexts that are read from here on."""
    seen, read = [], TableNetwork.read
    monkeypatch.setattr(TableNetwork, "read", lambda *told: seen.append(told[1]) or read(*told))
    return seen


def test_the_context_is_read_once(rows, readings):
    X, y, _ = rows
    model = PretrainedRAD(unlabelled=20).fit(X, y)
    first = model.score_samples(X[:40])
    np.testing.assert_array_equal(model.score_samples(X[:40]), first)
    assert len(readings) == 1
    again = model.fit(X[:, :2], y)  # other rows are read anew
    assert not np.allclose(again.score_samples(X[:40, :2]), first)
    assert len(readings) == 2


def test_what_was_read_is_in_no_file_and_goes_with_the_model(rows, tmp_path, readings):
    X, y, _ = rows
    model = PretrainedRAD(unlabelled=20).fit(X, y)
    before = len(pickle.dumps(model))
    scores = model.score_samples(X[:5])
    assert len(pickle.dumps(model)) == before
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.score_samples(X[:5]), scores)
    assert len(readings) == 3
    held = len(pretrained._memories)
    del model, other
    gc.collect()
    assert len(pretrained._memories) <= held - 2


def test_a_large_memory_is_not_kept(rows, readings, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(pretrained, "_MOST_BYTES", 1000)
    model = PretrainedRAD(unlabelled=20).fit(X, y)
    np.testing.assert_array_equal(model.score_samples(X[:5]), model.score_samples(X[:5]))
    assert len(readings) == 2


def test_rows_with_blanks_are_saved_without_the_network(blanked, tmp_path):
    X, y, _ = blanked
    model = PretrainedRAD(unlabelled=50).fit(X, y)
    riskad.save(model, tmp_path / "model.riskad")
    assert (tmp_path / "model.riskad").stat().st_size < 50_000
    again = riskad.load(tmp_path / "model.riskad")
    assert again.weights_ == "tables-3"
    np.testing.assert_array_equal(again.score_samples(X[:50]), model.score_samples(X[:50]))


def test_weights_of_another_version(fitted, rows):
    other = pickle.loads(pickle.dumps(fitted))
    other.weights_ = "tables-0"
    with pytest.raises(InputError, match="weights 'tables-0', which this version"):
        other.score_samples(rows[0])


@each(
    ("settings", "codes", "message"),
    [
        ({"prior": 1.0}, None, "prior"),
        ({"unlabelled": -1}, None, "unlabelled must be a whole number >= 0, got -1"),
        ({"unlabelled": 2.5}, None, "unlabelled must be a whole number"),
        ({}, 0, "needs labels"),
        ({}, 1, "needs labels"),
    ],
)
def test_mistakes_are_told(rows, settings, codes, message):
    X, y, _ = rows
    with pytest.raises(InputError, match=message):
        PretrainedRAD(**settings).fit(X, y if codes is None else np.full(len(X), codes))


def test_columns_that_say_nothing_and_gaps(rows):
    X, y, _ = rows
    with pytest.raises(InputError, match="every column holds a single value"):
        PretrainedRAD().fit(np.ones_like(X), y)
    with pytest.raises(InputError, match="infinity"):
        PretrainedRAD().fit(np.where(X.max() - 1e-9 < X, np.inf, X), y)


class Translated(Translates, PretrainedRAD):
    """PretrainedRAD on the labels of the checks."""


@parametrize_with_checks([Translated(unlabelled=20)])
def test_common_checks_with_translated_labels(estimator, check):
    run_in_single_precision(check, estimator)


def test_torch_computes_the_same_network(contaminated_rows):
    pytest.importorskip("torch")
    X, y, _ = contaminated_rows
    new = make_contaminated_rows(seed=1)[0]
    new[::5, 0] = np.nan
    model = PretrainedRAD().fit(X, y)
    expected = model.score_samples(new)
    np.testing.assert_allclose(
        model.set_params(device="cpu").score_samples(new), expected, atol=3e-4
    )
    with pytest.raises(InputError, match="device='nowhere' cannot be used"):
        model.set_params(device="nowhere").score_samples(new)
