"""DeepRAD, NNPU and DeepSAD: the contract, and that they learn from labels."""

import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import make_contaminated_rows
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import (
    TranslatesScore,
    as_codes,
    assert_rows_score_alike,
    run_in_single_precision,
)
from torch import nn

import riskad
from riskad.core.checks import InputError
from riskad.core.labels import read_codes
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS
from riskad.decisions.thresholds import zero_one_threshold
from riskad.deep.base import _moments
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.nets import ARCHITECTURES
from riskad.deep.risk_detectors import NNPU, DeepRAD

torch.set_num_threads(1)
METHODS = [DeepRAD, NNPU, DeepSAD]
QUICK = {"max_iter": 12, "module": (16, 8)}


def quick(method, **settings):
    more = {"pretrain_iter": 4} if method is DeepSAD else {}
    return method(**QUICK | more | settings)


def images(n=60, shape=(8, 8), seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice([1, -1, 0], n)
    return rng.standard_normal((n, *shape)) + y.reshape(-1, *[1] * len(shape)), y


@pytest.fixture(scope="module")
def digits():
    """Fives among the other digits, a tenth of the training rows labelled: X, y, X_test, truth.

    Of the ten digits it is the five that an isolation forest finds best.
    """
    X, digit = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    truth, test = np.where(digit == 5, -1, 1), rng.random(len(digit)) < 0.3
    y = np.where(rng.random(len(digit)) < 0.1, truth, 0)
    return X[~test], y[~test], X[test], truth[test]


# --- what they learn --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(DeepRAD(prior=0.9), id="rad"),
        pytest.param(
            DeepRAD(
                prior=0.9, loss="modified_huber", risk="rad", max_iter=300, validation_fraction=0.2
            ),
            id="huber",  # without a guard the risk falls without end: what is held out stops it
        ),
        pytest.param(DeepRAD("lenet-mnist", prior=0.9), id="lenet"),
        pytest.param(NNPU(prior=0.9), id="nnpu"),
        pytest.param(DeepSAD(prior=0.9, max_iter=300, pretrain_iter=100), id="sad"),
    ],
)
def test_on_digits_each_beats_an_isolation_forest(digits, model):
    X, y, X_test, truth = digits
    forest = IsolationForest(random_state=0).fit(X)
    if model.module != "mlp":
        X, X_test = X.reshape(-1, 8, 8), X_test.reshape(-1, 8, 8)
    model = clone(model).fit(X, y)
    auc = roc_auc_score(truth, model.score_samples(X_test))
    assert auc > roc_auc_score(truth, forest.score_samples(digits[2])) + 0.1
    assert auc > 0.8
    assert roc_auc_score(truth, model.anomaly_score(X_test)) == pytest.approx(1 - auc)


@pytest.mark.parametrize("method", METHODS)
def test_labels_matter(method):
    X, y, _ = make_contaminated_rows()
    rng = np.random.default_rng(1)
    model = quick(method).fit(X, y)
    permuted = quick(method).fit(X, rng.permutation(y))
    assert not np.allclose(model.score_samples(X), permuted.score_samples(X), atol=1e-3)


def test_labelled_anomalies_are_a_part_of_the_unlabelled_rows_for_nnpu():
    X, y, _ = make_contaminated_rows()
    moved = quick(NNPU).fit(X, read_codes(np.where(y == -1, 0, y)))
    assert np.array_equal(quick(NNPU).fit(X, y).score_samples(X), moved.score_samples(X))


def test_eta_makes_labels_count_more_in_deep_sad():
    X, y, truth = make_contaminated_rows(shift=1.0)
    aucs = [
        roc_auc_score(truth, DeepSAD(eta=eta, max_iter=150).fit(X, y).score_samples(X))
        for eta in (0.01, 10.0)
    ]
    assert aucs[1] > aucs[0] + 0.05


def test_the_centre_of_deep_sad_keeps_away_from_zero_and_is_kept():
    X, y, _ = make_contaminated_rows()
    model = quick(DeepSAD).fit(X, y)
    assert model.centre_.shape == (8,)
    assert np.abs(model.centre_).min() >= 0.1 - 1e-7
    untrained = quick(DeepSAD, pretrain_iter=0).fit(X, y)
    assert len(untrained.history_["pretraining"]) == 0
    assert not np.allclose(untrained.centre_, model.centre_)


def test_pretraining_lowers_the_error_of_the_autoencoder():
    X, y, _ = make_contaminated_rows(n_features=8)
    X = np.hstack([X, X @ np.random.default_rng(0).normal(size=(8, 8))])
    errors = DeepSAD(pretrain_iter=200, max_iter=1).fit(X, y).history_["pretraining"]
    assert len(errors) == 20
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.parametrize("labels", [(0,), (1, 0), (-1, 0), (1, -1), (1, -1, 0)])
def test_deep_sad_takes_the_kinds_that_there_are(labels):
    X, y, _ = make_contaminated_rows()
    y = read_codes(np.where(np.isin(y, labels), y, labels[-1]))
    model = quick(DeepSAD, prior=0.9).fit(X, y)
    assert np.isfinite(model.offset_)
    if labels == (0,):
        assert (model.predict(X) == -1).mean() == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("risk", RISKS)
def test_any_risk_and_loss_of_the_core(risk):
    X, y, _ = make_contaminated_rows()
    for loss in LOSSES:
        model = quick(DeepRAD, risk=risk, loss=loss, max_iter=2).fit(X, y)
        assert np.isfinite(model.history_["risk"]).all()


def test_risks_without_a_kind_do_without_its_rows():
    X, y, _ = make_contaminated_rows()
    y = read_codes(y)
    for risk, absent in (("pn", 0), ("nnpu", -1), ("nu", 1)):
        quick(DeepRAD, risk=risk).fit(X[y != absent], y[y != absent])


@pytest.mark.parametrize("parameter", ["a", "prior", "loss", "batch_size"])
def test_parameters_change_the_network(parameter):
    X, y, _ = make_contaminated_rows()
    other = {
        "a": 0.9,
        "prior": 0.5,
        "loss": "squared",
        "batch_size": (8, 4, 20),
    }[parameter]
    first, second = (
        quick(DeepRAD, **change).fit(X, y).score_samples(X) for change in ({}, {parameter: other})
    )
    assert not np.allclose(first, second)


# --- when to stop ------------------------------------------------------------------------------


def test_history_and_early_stopping():
    X, y, _ = make_contaminated_rows()
    model = DeepRAD(learning_rate=0.02, max_iter=400, validation_fraction=0.2).fit(X, y)
    assert model.n_iter_ < 400
    curve = model.history_["validation"]
    assert model.best_iter_ == model.history_["step"][np.argmin(curve)]
    assert model.n_iter_ == model.history_["step"][-1] == model.best_iter_ + 100
    assert set(model.history_) == {"step", "risk", "validation"}


def test_without_validation_all_steps_are_taken():
    X, y, _ = make_contaminated_rows()
    single = np.where(np.cumsum(y == -1) > 1, np.where(y == -1, 0, y), y)
    for labels, share in ((y, 0.0), (single, 0.2)):
        model = quick(DeepRAD, validation_fraction=share).fit(X, labels)
        assert (model.n_iter_, model.best_iter_) == (12, 12)
        assert "validation" not in model.history_


def test_the_threshold_is_that_of_the_core():
    X, y, _ = make_contaminated_rows()
    model = quick(DeepRAD).fit(X, y)
    risk = riskad.core.risks.get_risk("nnrad", "logistic", a=0.1, prior=0.8)
    assert model.offset_ == zero_one_threshold(risk, model.score_samples(X), y)
    np.testing.assert_array_equal(
        model.decision_function(X), model.score_samples(X) - model.offset_
    )


# --- the contract --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_scores(method):
    X, y, _ = make_contaminated_rows()
    first, again, other = (
        quick(method, random_state=seed).fit(X, y).score_samples(X) for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_the_order_of_columns_and_their_units_do_not_matter_much():
    X, y, truth = make_contaminated_rows()
    models = [
        DeepRAD(max_iter=100).fit(Z, y).score_samples(Z)
        for Z in (X, X[:, ::-1], X * [1, 10, 100, 0.1])
    ]
    aucs = [roc_auc_score(truth, scores) for scores in models]
    assert max(aucs) - min(aucs) < 0.05
    np.testing.assert_allclose(models[0], models[2], rtol=1e-2, atol=1e-2)


def test_without_scaling_units_do_matter():
    X, y, _ = make_contaminated_rows()
    scores = [quick(DeepRAD, scale=False).fit(Z, y).score_samples(Z) for Z in (X, 3 * X)]
    assert not np.allclose(*scores)


@pytest.mark.parametrize("method", METHODS)
def test_clone_and_parameters(method):
    model = quick(method, random_state=1)
    again = clone(model)
    assert again.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        again.predict([[0.0]])


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8), (3, 9, 8)])
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name != "mlp"])
@pytest.mark.parametrize("method", METHODS)
def test_images(method, name, shape):
    X, y = images(shape=shape)
    model = quick(method, module=name, max_iter=2, scale=shape != (8, 8)).fit(X, y)
    assert model.score_samples(X).shape == (60,)
    assert model.n_features_in_ == np.prod(shape)
    assert model.shape_ == (shape if len(shape) == 3 else (1, *shape))
    assert len(model._mean) == model.shape_[0]


def test_a_module_of_ones_own():
    X, y, truth = make_contaminated_rows()
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    before = module[0].weight.clone()
    model = DeepRAD(module, max_iter=200).fit(X, y)
    assert torch.equal(module[0].weight, before)
    assert roc_auc_score(truth, model.score_samples(X)) > 0.85
    made = DeepRAD(lambda shape: nn.Linear(shape[0], 1), max_iter=50).fit(X, y)
    assert made.weights_["module.weight"].shape == (1, 4)
    X, y = images(shape=(3, 4))
    flat = nn.Sequential(nn.Flatten(), nn.Linear(12, 1))
    assert DeepRAD(flat, max_iter=2).fit(X, y).shape_ == (3, 4)


def test_tables_far_from_zero_keep_their_precision():
    X, y, _ = make_contaminated_rows()
    near, far = (quick(DeepRAD).fit(X + shift, y) for shift in (0.0, 1e9))
    np.testing.assert_allclose(near.score_samples(X), far.score_samples(X + 1e9), atol=1e-2)


def test_columns_are_learned_block_by_block():
    """To the last digits but a few, where squares less the squared mean would have none left."""
    X = np.random.default_rng(0).standard_normal((500_000, 3)) * [1e-3, 1, 1e3] + 1e6
    mean, spread = _moments(X)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-13)
    np.testing.assert_allclose(spread, X.std(0), rtol=1e-8)


@pytest.mark.parametrize("scale", [False, True])
def test_bytes_are_brightness_and_arrays_may_be_read_only(scale):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 8, 8)).astype(np.uint8), np.resize([1, -1, 0], 60)
    X.setflags(write=False)
    of_bytes, of_floats = (
        quick(DeepRAD, module="lenet-mnist", scale=scale).fit(Z, y).score_samples(Z)
        for Z in (X, X.astype(np.float32) / 255)
    )
    np.testing.assert_allclose(of_bytes, of_floats, atol=1e-3)


def test_images_picked_from_others_are_seen_in_the_usual_layout():
    """`X[rows]` of images with one channel may have strides that torch takes for another layout."""
    X = np.random.default_rng(0).integers(0, 256, (60, 8, 8)).astype(np.uint8)[:, None]
    picked, model = X[np.arange(60)], DeepRAD("lenet-mnist", scale=False, device="cpu")
    assert picked.strides[1] == 1
    assert model._data(picked).stride() == model._data(X).stride() == (64, 64, 8, 1)


def test_frames_keep_their_column_names():
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_contaminated_rows()
    table = pandas.DataFrame(X, columns=list("abcd"))
    model = quick(DeepRAD).fit(table, y)
    assert model.feature_names_in_.tolist() == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"a": "z"}))


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        (DeepRAD, {"module": "lenet-mnits"}, "Did you mean 'lenet-mnist'"),
        (DeepSAD, {"module": "mpl"}, "Did you mean 'mlp'"),
        (DeepRAD, {"module": "lenet-mnist"}, "reads images"),
        (DeepRAD, {"risk": "nrad"}, "risk='nrad' is not known"),
        (NNPU, {"loss": "sigmod"}, "Did you mean 'sigmoid'"),
        (DeepRAD, {"prior": 1.0}, "prior must be a number"),
        (DeepRAD, {"a": 2}, "a must be a number"),
        (DeepRAD, {"validation_fraction": 1.0}, "validation_fraction must be a number in"),
        (DeepRAD, {"validation_fraction": -0.1}, "validation_fraction must be a number in"),
        (DeepRAD, {"batch_size": (8, 8)}, "batch_size must be 3 whole numbers"),
        (NNPU, {"batch_size": (8, 0)}, "batch_size must be 2 whole .*: rows that are normal"),
        (DeepRAD, {"max_iter": 0}, "max_iter"),
        (DeepRAD, {"device": "gpu"}, "device must be"),
        (DeepSAD, {"eta": 0}, "eta must be"),
        (DeepSAD, {"pretrain_iter": -1}, "pretrain_iter must be a whole number >= 0"),
        (DeepSAD, {"module": nn.Linear(4, 2)}, "needs a named architecture"),
        (DeepRAD, {"module": nn.Linear(4, 2)}, "one score for each"),
        (DeepRAD, {"learning_rate": 1e30, "scale": False}, "training broke.*smaller learning_rate"),
    ],
)
def test_bad_settings(method, settings, message):
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=message):
        quick(method, **settings).fit(X, y)


@pytest.mark.parametrize(
    ("method", "labels", "message"),
    [
        (DeepRAD, {-1: 1}, "needs a labelled anomaly, and there is none"),
        (DeepRAD, {1: 0}, r"needs a labelled normal row.*risk='nu'\."),
        (DeepRAD, {0: 1}, r"needs an unlabelled row.*risk='pn'\."),
        (NNPU, {1: 0}, r"y has no normal rows.*Label some with \+1"),
        (NNPU, {0: 1, -1: 1}, "y has no unlabelled rows"),
        (DeepSAD, {0: -1, 1: -1}, "needs normal or unlabelled rows"),
    ],
)
def test_missing_kinds(method, labels, message):
    X, y, _ = make_contaminated_rows()
    changed = read_codes([labels.get(int(code), int(code)) for code in y])
    with pytest.raises(InputError, match=message):
        quick(method).fit(X, changed)


def test_bad_rows():
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match="requires y"):
        quick(DeepRAD).fit(X)
    with pytest.raises(InputError, match=r"missing value \(NaN\).*row 0, column 1"):
        quick(DeepRAD).fit(np.where(np.arange(4) == 1, np.nan, X), y)
    Z, z = images()
    lenet = quick(DeepRAD, module="lenet-mnist")
    with pytest.raises(InputError, match="first in row 2"):
        lenet.fit(np.where((np.arange(60) == 2)[:, None, None], np.inf, Z), z)
    with pytest.raises(InputError, match=r"shape \(1, 9, 9\).*fitted to rows of shape \(1, 8, 8\)"):
        lenet.fit(Z, z).predict(images(shape=(9, 9))[0])
    with pytest.raises(InputError, match="reads tables"):
        quick(DeepRAD).fit(Z, z)


def test_importing_riskad_does_not_load_torch():
    code = (
        "import riskad, sys, riskad.app.model_files, riskad.detectors.outlier_mean\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_has_the_same_score_alone_in_company_and_in_any_order(method):
    X, y = images(shape=(5,))
    assert_rows_score_alike(quick(method).fit(X, y), X)


# --- scikit-learn's checks ---------------------------------------------------------------------


class TranslatedRAD(TranslatesScore, DeepRAD):
    """Reads a check's invented labels as codes, whatever they are."""

    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


class TranslatedPU(TranslatesScore, NNPU):
    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


class TranslatedSAD(TranslatesScore, DeepSAD):
    def fit(self, X, y=None):
        return super().fit(X, as_codes(X, y))


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [quick(TranslatedRAD), quick(TranslatedPU), quick(TranslatedSAD, pretrain_iter=4)]
)
def test_common_checks(estimator, check):
    run_in_single_precision(check, estimator)


@pytest.mark.parametrize("method", [DeepRAD, DeepSAD])
def test_values_beyond_single_precision_are_scored(method):
    X, y, _ = make_contaminated_rows(60)
    model = method(max_iter=2, random_state=0).fit(X, y)
    far = np.vstack([X[:3], 1e99 * np.ones((2, X.shape[1]))])
    scores = model.anomaly_score(far)
    assert np.isfinite(scores).all()
    np.testing.assert_allclose(scores[:3], model.anomaly_score(X[:3]), rtol=1e-5)
