"""The network that was trained on other tables: what it finds, and that NumPy runs it right."""

import copy
import gc
import importlib
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import (
    TranslatesScore,
    as_codes,
    assert_rows_score_alike,
    run_in_single_precision,
)

import riskad
from riskad import InputError, PretrainedRAD
from riskad.core.labels import read_codes
from riskad.detectors import pretrained, table_network
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.pretrained import READS_COLUMNS
from riskad.detectors.table_network import WEIGHTS, TableNetwork

ROOT = Path(__file__).parents[1]
OLD, NEW = WEIGHTS


def auc(model, X, truth):
    return roc_auc_score(truth == -1, model.anomaly_score(X))


@pytest.fixture(scope="module")
def rows():
    return make_contaminated_rows(400, shift=2.0)


@pytest.fixture(scope="module")
def fitted(rows):
    return PretrainedRAD(unlabelled=100).fit(*rows[:2])


@pytest.fixture(scope="module")
def training():
    """Imports modules of the training."""
    pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield lambda name: importlib.import_module(f"benchmarks.pretraining.{name}")


@pytest.fixture(scope="module")
def blanked(rows):
    """Rows of which the first column is blank in most anomalies and in few normals."""
    X, y, truth = rows
    rng = np.random.default_rng(0)
    X = rng.normal(size=X.shape)
    X[rng.random(len(X)) < np.where(truth == -1, 0.8, 0.05), 0] = np.nan
    return X, y, truth


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
    X, y, truth = make_contaminated_rows(300, READS_COLUMNS + 10, shift=1.0)
    model = PretrainedRAD(unlabelled=100).fit(X, y)
    assert model.context_.shape[1] < READS_COLUMNS
    assert auc(model, X, truth) > 0.95
    dense = model.score_samples(X[:20])
    np.testing.assert_allclose(model.score_samples(sparse.csr_matrix(X[:20])), dense, atol=1e-4)


def test_the_context_has_its_limits():
    X, y, _ = make_contaminated_rows(3000, labelled=0.6)
    model = PretrainedRAD(unlabelled=30).fit(X, y)
    assert np.bincount(model.states_).tolist() == [30, 400, 200]


# --- blanks and levels ------------------------------------------------------------------------


def test_blanks_are_read_as_such(blanked):
    X, y, truth = blanked
    model = PretrainedRAD(unlabelled=100, weights=NEW).fit(X, y)
    assert np.isnan(model.context_).any()
    assert model.marked_.tolist() == [0]
    assert auc(model, X, truth) > 0.85
    X = np.where(np.isnan(X), X, X + np.random.default_rng(1).normal(size=X.shape))
    X[:, 0] = np.where(np.random.default_rng(2).random(len(X)) < 0.3, np.nan, X[:, 1])
    assert not len(PretrainedRAD(weights=NEW).fit(X, y).marked_)  # blanks anywhere tell nothing


def test_only_the_later_weights_read_blanks(blanked):
    X, y, _ = blanked
    with pytest.raises(InputError, match="NaN"):
        PretrainedRAD(weights=OLD).fit(X, y)
    X = X.copy()
    X[3, 1] = np.inf
    with pytest.raises(InputError, match="infinity"):
        PretrainedRAD(weights=NEW).fit(X, y)


def test_a_column_that_is_blank_or_not_is_a_column(rows):
    X, y, truth = rows
    X = np.column_stack([X[:, 0] * 0 + 1, np.random.default_rng(0).normal(size=len(X))])
    X[truth == -1, 0] = np.nan
    model = PretrainedRAD(unlabelled=100, weights=NEW).fit(X, y)
    assert model.kept_.tolist() == [0, 1]
    assert auc(model, X, truth) > 0.95
    X[:, 0] = np.nan
    assert PretrainedRAD(unlabelled=100, weights=NEW).fit(X, y).kept_.tolist() == [1]


def test_levels_are_known_by_their_rows_whatever_their_numbers():
    rng = np.random.default_rng(0)
    level, noise = rng.integers(0, 20, 900), rng.normal(size=900)
    odd = np.isin(level, [2, 7, 11, 16]) & (rng.random(900) < 0.9)
    y = np.where(rng.random(900) < 0.15, np.where(odd, -1, 1), 0)
    X, some = np.column_stack([level, noise]), slice(400)
    old, new = (
        auc(
            PretrainedRAD(weights=weights, unlabelled=100).fit(X, y),
            X[some],
            -odd[some].astype(int),
        )
        for weights in WEIGHTS
    )
    assert new > 0.97
    assert old < 0.8


def test_wide_tables_with_blanks_go_by_their_components():
    X, y, truth = make_contaminated_rows(300, 110, shift=1.0)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    model = PretrainedRAD(unlabelled=100, weights=NEW).fit(X, y)
    assert np.isfinite(model.context_).all()
    assert auc(model, X, truth) > 0.9


# --- the network ------------------------------------------------------------------------------


def test_numpy_runs_the_network_as_torch_does(training):
    import torch

    module = training("network")
    torch.manual_seed(0)
    network = module.Network()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_((parameter + 0.1 * torch.randn_like(parameter)).half().float())
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(50, 4)).astype(np.float32)
    Z[:, 1] = np.round(Z[:, 1])
    Z[rng.random(Z.shape) < 0.1] = np.nan
    states = np.repeat([0, 1, 2, 0], [10, 20, 5, 15])
    with torch.no_grad():
        state = torch.tensor(states)[None]
        said = module.channels(torch.tensor(Z)[None], state, 35)
        expected = network(said, state, 35)[0, 35:]
    ours = TableNetwork({name: a.astype(np.float32) for name, a in module.arrays(network).items()})
    memory = ours.read(Z[:35], states[:35])
    np.testing.assert_allclose(ours.score(Z[35:], memory), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("size", [0.3, 3, 30])
def test_exponentials_of_large_logits_do_not_run_over(size):
    rng = np.random.default_rng(0)
    asked, keys, values = (
        rng.normal(size=shape).astype(np.float32) for shape in ((20, 64), (2, 32, 50), (2, 50, 32))
    )
    longest = float(size * np.sqrt((keys**2).sum(axis=1)).max())
    found = table_network._found(asked, table_network._Known(size * keys, values, longest))
    for head, columns in enumerate((slice(32), slice(32, 64))):
        weights = softmax(asked[:, columns].astype(float) @ (size * keys[head]), axis=1)
        np.testing.assert_allclose(found[:, columns], weights @ values[head], rtol=1e-3, atol=1e-3)


def test_the_weights_have_the_shapes_of_the_script(training):
    module = training("network")
    expected = {name: a.shape for name, a in module.arrays(module.Network()).items()}
    assert {name: a.shape for name, a in TableNetwork.load(NEW).arrays.items()} == expected


@pytest.mark.parametrize("weights", WEIGHTS)
def test_training_goes_on_from_a_file_and_what_is_new_says_nothing(training, weights):
    import torch

    module, ours = training("network"), TableNetwork.load(weights)
    network = module.Network()
    module.restore(network, ours.arrays)
    again = module.arrays(network)
    for name, values in ours.arrays.items():
        held = again[name][[*range(len(values) - 1), -1]] if name == "cell" else again[name]
        np.testing.assert_array_equal(held, values.astype(np.float16), err_msg=name)
    Z = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    states = np.repeat([1, 2, 0], [10, 5, 15])
    with torch.no_grad():
        state = torch.tensor(states)[None]
        scores = network(module.channels(torch.tensor(Z)[None], state, 20), state, 20)[0, 20:]
    memory = ours.read(Z[:20], states[:20])
    np.testing.assert_allclose(ours.score(Z[20:], memory), scores, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def batches(training):
    """Batches of synthetic tables and of two small ones that stand for real ones."""
    import torch

    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    X = {"a": rng.normal(size=(400, 6)), "b": rng.integers(0, 5, (300, 4)).astype(float)}
    y = {name: np.arange(len(values)) % 9 == 0 for name, values in X.items()}
    real = training("real").Real(X, y, "cpu")
    return training("batches").Batches(real, "cpu")


@pytest.mark.parametrize("real", [True, False])
def test_batches_are_what_the_script_says(batches, training, real):
    import torch

    said, state, y = batches.make(40, 5, 100, 60, real=real)
    assert said.shape[:2] == (40, 160)
    assert said.shape[3] == training("network").CHANNELS
    assert torch.isfinite(said).all()
    assert (state[:, 100:] == 0).all()
    assert (y[state == 2]).all()
    assert not (y[state == 1]).any()
    assert (said[..., -1] == 1).any()  # blanks
    assert ((state[:, :100] == 2).sum(1) > 0).float().mean() > 0.8
    assert 0.02 < y[:, :100].float().mean() < 0.4
    assert ((state == 2).sum(1) <= 3).sum() > 5


def test_training_lowers_the_risk_of_a_batch_and_goes_on_from_its_files(
    training, batches, tmp_path
):
    import torch

    train, network = training("train"), training("network")
    trainer = train.Trainer(network.Network(), batches, 1e-3, 5_000, 0.5)
    same = batches.make(4, 2, 32, 16, real=False)
    trainer.batch = lambda: (32, same)
    trainer.steps = 300  # past the slow start
    risks = [float(trainer.step(0.0)[1]) for _ in range(6)]
    assert risks[-1] < 0.99 * risks[0]
    trainer.save(tmp_path)
    other = train.Trainer(network.Network(), batches, 1e-3, 5_000, 0.5)
    other.batch = trainer.batch
    other.resume(tmp_path)
    torch.testing.assert_close(other.step(0.0)[1], trainer.step(0.0)[1])


def test_a_step_of_gradients_that_are_not_finite_is_left_out(training, batches):
    import torch

    trainer = training("train").Trainer(training("network").Network(), batches, 1e-3, 5_000, 0.5)
    said, state, y = batches.make(4, 2, 32, 16, real=False)
    before = [one.clone() for one in trainer.network.parameters()]
    trainer.batch = lambda: (32, (said * torch.nan, state, y))
    tables, risk, _ = trainer.step(0.0)
    assert (tables, trainer.skipped, trainer.steps) == (4, 1, 1)
    assert torch.isnan(risk)
    for one, held in zip(trainer.network.parameters(), before, strict=True):
        torch.testing.assert_close(one, held, rtol=0, atol=0)
    trainer.batch = lambda: (32, (said, state, y))
    assert torch.isfinite(trainer.step(0.0)[1])
    assert trainer.skipped == 1


def test_relatives_are_on_one_side(training):
    split = training("split")
    rng = np.random.default_rng(0)
    one, two = (
        split.recognisable(rng.normal(size=(200, 3))),
        split.recognisable(rng.normal(size=(200, 3))),
    )
    assert split.relatives(one, one[:2])
    assert not split.relatives(one, two)
    names = ["ovr_batch-1_a", "ovr_batch-1_b", "odd_WaterPumps", "ovr_thyroid", "ovr_x", "ovr_y"]
    groups = split.families(names, [("ovr_x", "ovr_y")])
    assert ["ovr_batch-1_a", "ovr_batch-1_b"] in groups
    assert ["ovr_x", "ovr_y"] in groups
    left_out = split.of_the_paper(names, {"paper"}, [("ovr_x", "paper")])
    assert left_out == {"ovr_thyroid", "ovr_x"}
    sides = split.split(groups, left_out)
    assert sorted(name for side in sides.values() for name in side) == sorted(names)


def test_the_split_has_every_table_once():
    sides = json.loads((ROOT / "results" / "pretrained" / "split.json").read_text())
    together = [name for names in sides.values() for name in names]
    assert len(together) == len(set(together)) == 418
    assert len(sides["kept"]) >= 80


# --- what is kept between calls ---------------------------------------------------------------


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
    model.weights_ = OLD
    model.score_samples(X[:3, :2])
    assert len(readings) == 3


def test_what_was_read_is_in_no_file_and_goes_with_the_model(rows, tmp_path, readings):
    X, y, _ = rows
    model = PretrainedRAD(unlabelled=20).fit(X, y)
    before = len(pickle.dumps(model))
    scores = model.score_samples(X[:5])
    assert len(pickle.dumps(model)) == before
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.score_samples(X[:5]), scores)
    assert len(readings) == 3
    held = len(pretrained._memories._kept)
    del model, other
    gc.collect()
    assert len(pretrained._memories._kept) <= held - 2


def test_a_large_memory_is_not_kept(rows, readings, monkeypatch):
    X, y, _ = rows
    monkeypatch.setattr(pretrained, "_MOST_BYTES", 1000)
    model = PretrainedRAD(unlabelled=20).fit(X, y)
    np.testing.assert_array_equal(model.score_samples(X[:5]), model.score_samples(X[:5]))
    assert len(readings) == 2


def test_threads_that_score_at_once_get_the_scores_of_one(rows):
    X, y, _ = rows
    X = np.tile(X, (2, 1))  # several blocks
    expected = PretrainedRAD(unlabelled=20).fit(X, np.tile(y, 2)).score_samples(X)
    model = PretrainedRAD(unlabelled=20).fit(X, np.tile(y, 2))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(model.score_samples, [X] * 4))
    for scores in found:
        np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)


# --- files and mistakes ---------------------------------------------------------------------


def test_blanks_are_saved(blanked, tmp_path):
    X, y, _ = blanked
    model = PretrainedRAD(unlabelled=50, weights=NEW).fit(X, y)
    riskad.save(model, tmp_path / "model.riskad")
    again = riskad.load(tmp_path / "model.riskad")
    assert again.weights_ == again.weights == NEW
    np.testing.assert_array_equal(again.score_samples(X[:50]), model.score_samples(X[:50]))


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
        ({"weights": "tables-9"}, None, "weights must be one of 'tables-2', 'tables-3', got"),
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
        PretrainedRAD(weights=OLD).fit(np.where(X.max() - 1e-9 < X, np.nan, X), y)


class Translated(TranslatesScore, PretrainedRAD):
    """PretrainedRAD that reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


@parametrize_with_checks([Translated(unlabelled=20, weights=each) for each in WEIGHTS])
def test_common_checks_with_translated_labels(estimator, check):
    run_in_single_precision(check, estimator)
