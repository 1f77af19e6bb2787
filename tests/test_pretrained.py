"""The network that was trained on synthetic tables: what it finds, and that NumPy runs it right."""

import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import as_codes, assert_rows_score_alike, run_in_single_precision

import riskad
from riskad import InputError, PretrainedRAD
from riskad.core.labels import read_codes
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.pretrained import _WEIGHTS, MOST_COLUMNS, _Network


def auc(model, X, truth):
    return roc_auc_score(truth == -1, model.anomaly_score(X))


@pytest.fixture(scope="module")
def rows():
    return make_contaminated_rows(400, shift=2.0)


@pytest.fixture(scope="module")
def fitted(rows):
    return PretrainedRAD(unlabelled=100).fit(*rows[:2])


@pytest.fixture(scope="module")
def pretrain():
    """The script that trains the network."""
    pytest.importorskip("torch")
    path = Path(__file__).parents[1] / "benchmarks" / "pretrain.py"
    spec = importlib.util.spec_from_file_location("pretrain", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- what it finds --------------------------------------------------------------------------


def test_it_tells_anomalies_and_decides_at_the_given_rate(fitted, rows):
    X, _, truth = make_contaminated_rows(400, shift=2.0, seed=1)
    X = X * rows[0].std(axis=0) / X.std(axis=0)
    X = X - X.mean(axis=0) + rows[0].mean(axis=0)
    assert auc(fitted, X, truth) > 0.97
    assert (fitted.predict(X) == truth).mean() > 0.9
    assert fitted.offset_ == pytest.approx(np.log(0.2 / 0.8))
    fewer = PretrainedRAD(unlabelled=100, prior=0.99).fit(*rows[:2])
    np.testing.assert_array_equal(fewer.score_samples(X), fitted.score_samples(X))
    assert (fewer.predict(X) == -1).sum() < (fitted.predict(X) == -1).sum()


def test_labels_decide_what_is_an_anomaly(rows):
    X, y, truth = rows
    turned = PretrainedRAD(unlabelled=100).fit(X, -y)
    assert auc(turned, X, truth) < 0.1


@pytest.mark.parametrize("kept", [1, -1])
def test_one_kind_of_label_is_enough(rows, kept):
    X, y, truth = rows
    model = PretrainedRAD(unlabelled=100).fit(X, read_codes(np.where(y == kept, y, 0)))
    assert auc(model, X, truth) > 0.8


def test_five_labels_find_a_ring_around_the_normals():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 60)
    far = 5 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.normal(0, 0.3, (60, 2))
    X, truth = np.vstack([rng.normal(size=(540, 2)), far]), np.repeat([1, -1], [540, 60])
    y = np.zeros(600, dtype=int)
    y[:20], y[-5:] = 1, -1
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
    X, y, truth = make_contaminated_rows(300, MOST_COLUMNS + 10, shift=1.0)
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert model.context_.shape[1] < MOST_COLUMNS
    assert auc(model, X, truth) > 0.95
    dense = model.score_samples(X[:20])
    np.testing.assert_allclose(model.score_samples(sparse.csr_matrix(X[:20])), dense, atol=1e-4)


def test_the_context_has_its_limits():
    X, y, _ = make_contaminated_rows(3000, labelled=0.6)
    model = PretrainedRAD(unlabelled=30).fit(X, y)
    assert np.bincount(model.states_).tolist() == [30, 400, 200]


# --- the network ----------------------------------------------------------------------------


def test_numpy_runs_the_network_as_torch_does(pretrain):
    import torch

    torch.manual_seed(0)
    network = pretrain.Network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((parameter + 0.1 * torch.randn_like(parameter)).half().float())
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50, 4)).astype(np.float32)
    states = np.repeat([0, 1, 2, 0], [10, 20, 5, 15])
    with torch.no_grad():
        expected = network(torch.tensor(Z)[None], torch.tensor(states)[None], 35)[0, 35:]
    ours = _Network({name: a.astype(np.float32) for name, a in pretrain.arrays(network).items()})
    memory = ours.read(Z[:35], states[:35])
    np.testing.assert_allclose(ours.score(Z[35:], memory), expected, rtol=1e-4, atol=1e-4)


def test_the_weights_have_the_shapes_of_the_script(pretrain):
    expected = {name: a.shape for name, a in pretrain.arrays(pretrain.Network()).items()}
    assert {name: a.shape for name, a in _Network.load(_WEIGHTS).arrays.items()} == expected


def test_training_goes_on_from_the_file_and_a_new_layer_is_idle(pretrain, monkeypatch):
    import torch

    saved = _Network.load(_WEIGHTS).arrays
    network = pretrain.Network()
    pretrain.restore(network, saved)
    for name, values in pretrain.arrays(network).items():
        np.testing.assert_array_equal(values, saved[name].astype(np.float16), err_msg=name)
    monkeypatch.setattr(pretrain, "DEPTH", pretrain.DEPTH + 1)
    deeper = pretrain.Network()
    pretrain.restore(deeper, saved)
    X, state = torch.randn(1, 30, 4), torch.tensor([[1] * 10 + [2] * 5 + [0] * 15])
    with torch.no_grad():
        torch.testing.assert_close(deeper(X, state, 20), network(X, state, 20))


def test_synthetic_tables_are_what_the_script_says(pretrain):
    import torch

    torch.manual_seed(0)
    X, state, y = pretrain.Tables("cpu").batch(60, 5, 200, 60)
    assert X.shape == (60, 260, 6)
    assert torch.isfinite(X).all()
    assert (state[:, 200:] == 0).all()
    assert (y[state == 2]).all()
    assert not (y[state == 1]).any()
    context = X[:, :200]
    assert context.mean(1).abs().max() < 1  # z-values, drawn in
    assert (y[:, 200:].sum(1) <= 30).all()
    assert 0.02 < y[:, :200].float().mean() < 0.3


def test_a_step_lowers_the_risk_of_its_own_batch(pretrain):
    import torch

    torch.manual_seed(0)
    trainer = pretrain.Trainer(pretrain.Network(), "cpu", 1e-3)
    X, state, y = trainer.tables.batch(8, 2, 64, 32)
    trainer.tables.batch = lambda *sizes: (X, state, y)
    stage = pretrain.Stage(1.0, 1, (64,), 32, (2,))
    trainer.steps = 300  # past the slow start
    risks = [float(trainer.step(stage, 0.0)[1]) for _ in range(12)]
    assert risks[-1] < 0.98 * risks[0]


# --- files and mistakes ---------------------------------------------------------------------


def test_it_is_saved_without_the_network(fitted, rows, tmp_path):
    riskad.save(fitted, tmp_path / "model.riskad")
    assert (tmp_path / "model.riskad").stat().st_size < 50_000
    for again in (riskad.load(tmp_path / "model.riskad"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(
            again.score_samples(rows[0][:50]), fitted.score_samples(rows[0][:50])
        )


def test_weights_of_another_version(fitted, rows):
    other = pickle.loads(pickle.dumps(fitted))
    other.weights_ = "tables-0"
    with pytest.raises(InputError, match="weights 'tables-0', which this version"):
        other.score_samples(rows[0])


@pytest.mark.parametrize(
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
    with pytest.raises(ValueError, match="NaN"):
        PretrainedRAD().fit(np.where(X.max() - 1e-9 < X, np.nan, X), y)


class Translated(PretrainedRAD):
    """PretrainedRAD that reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


@parametrize_with_checks([Translated(unlabelled=20)])
def test_common_checks_with_translated_labels(estimator, check):
    run_in_single_precision(check, estimator)
