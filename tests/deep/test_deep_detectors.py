"""DeepRAD, NNPU and DeepSAD: the contract, and that they learn from labels."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from conftest import make_contaminated_rows
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.contract import Translates, assert_rows_score_alike, run_in_single_precision
from support.loops import each
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


@pytest.mark.slow
@each(
    "model",
    [
        DeepRAD(prior=0.9),
        # Without a guard the risk falls without end: what is held out stops it.
        DeepRAD(
            prior=0.9, loss="modified_huber", risk="rad", max_iter=300, validation_fraction=0.2
        ),
        DeepRAD("lenet-mnist", prior=0.9),
        NNPU(prior=0.9),
        DeepSAD(prior=0.9, max_iter=300, pretrain_iter=100),
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


@pytest.mark.slow
@each("method", METHODS)
def test_labels_matter(method):
    X, y, _ = make_contaminated_rows()
    rng = np.random.default_rng(1)
    model = quick(method).fit(X, y)
    permuted = quick(method).fit(X, rng.permutation(y))
    assert not np.allclose(model.score_samples(X), permuted.score_samples(X), atol=1e-3)


@each("labels", [(0,), (1, 0), (-1, 0), (1, -1), (1, -1, 0)])
def test_deep_sad_takes_the_kinds_that_there_are(labels):
    X, y, _ = make_contaminated_rows()
    y = read_codes(np.where(np.isin(y, labels), y, labels[-1]))
    model = quick(DeepSAD, prior=0.9).fit(X, y)
    assert np.isfinite(model.offset_)
    if labels == (0,):
        assert (model.predict(X) == -1).mean() == pytest.approx(0.1, abs=0.01)


@each("risk", RISKS)
def test_any_risk_and_loss_of_the_core(risk):
    X, y, _ = make_contaminated_rows()
    for loss in LOSSES:
        model = quick(DeepRAD, risk=risk, loss=loss, max_iter=2).fit(X, y)
        assert np.isfinite(model.history_["risk"]).all()


def test_history_and_early_stopping():
    X, y, _ = make_contaminated_rows()
    model = DeepRAD(learning_rate=0.02, max_iter=400, validation_fraction=0.2).fit(X, y)
    assert model.n_iter_ < 400
    curve = model.history_["validation"]
    assert model.best_iter_ == model.history_["step"][np.argmin(curve)]
    assert model.n_iter_ == model.history_["step"][-1] == model.best_iter_ + 100
    assert set(model.history_) == {"step", "risk", "validation"}


def test_the_threshold_is_that_of_the_core():
    X, y, _ = make_contaminated_rows()
    model = quick(DeepRAD).fit(X, y)
    risk = riskad.core.risks.get_risk("nnrad", "logistic", a=0.1, prior=0.8)
    assert model.offset_ == zero_one_threshold(risk, model.score_samples(X), y)
    np.testing.assert_array_equal(
        model.decision_function(X), model.score_samples(X) - model.offset_
    )


@each("method", METHODS)
def test_the_same_seed_gives_the_same_scores(method):
    X, y, _ = make_contaminated_rows()
    first, again, other = (
        quick(method, random_state=seed).fit(X, y).score_samples(X) for seed in (3, 3, 4)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.slow
@each("shape", [(8, 8), (1, 8, 8), (3, 9, 8)])
@each("name", [name for name in ARCHITECTURES if name != "mlp"])
@each("method", METHODS)
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


def test_columns_are_learned_block_by_block():
    """To the last digits but a few, where squares less the squared mean would have none left."""
    X = np.random.default_rng(0).standard_normal((500_000, 3)) * [1e-3, 1, 1e3] + 1e6
    mean, spread = _moments(X)
    np.testing.assert_allclose(mean, X.mean(0), rtol=1e-13)
    np.testing.assert_allclose(spread, X.std(0), rtol=1e-8)


@each("scale", [False, True])
def test_bytes_are_brightness_and_arrays_may_be_read_only(scale):
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 8, 8)).astype(np.uint8), np.resize([1, -1, 0], 60)
    X.setflags(write=False)
    of_bytes, of_floats = (
        quick(DeepRAD, module="lenet-mnist", scale=scale).fit(Z, y).score_samples(Z)
        for Z in (X, X.astype(np.float32) / 255)
    )
    np.testing.assert_allclose(of_bytes, of_floats, atol=1e-3)


BAD_SETTINGS = [
    (DeepRAD, {"module": "lenet-mnits"}, "Did you mean 'lenet-mnist'"),
    (DeepSAD, {"module": "mpl"}, "Did you mean 'mlp'"),
    (DeepRAD, {"module": "lenet-mnist"}, "reads images"),
    (DeepRAD, {"risk": "nrad"}, "risk='nrad' is not known"),
    (DeepRAD, {"prior": 1.0}, "prior must be a number"),
    (DeepRAD, {"a": 2}, "a must be a number"),
    (DeepRAD, {"validation_fraction": -0.1}, "validation_fraction must be a number in"),
    (DeepRAD, {"batch_size": (8, 8)}, "batch_size must be 3 whole numbers"),
    (NNPU, {"batch_size": (8, 0)}, "batch_size must be 2 whole .*: rows that are normal"),
    (DeepSAD, {"eta": 0}, "eta must be"),
    (DeepSAD, {"pretrain_iter": -1}, "pretrain_iter must be a whole number >= 0"),
    (DeepSAD, {"module": nn.Linear(4, 2)}, "needs a named architecture"),
    (DeepRAD, {"learning_rate": 1e30, "scale": False}, "training broke.*smaller learning_rate"),
]


@each(("method", "settings", "message"), BAD_SETTINGS)
def test_bad_settings(method, settings, message):
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=message):
        quick(method, **settings).fit(X, y)


@each(
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


@each("method", METHODS)
def test_a_row_has_the_same_score_alone_in_company_and_in_any_order(method):
    X, y = images(shape=(5,))
    assert_rows_score_alike(quick(method).fit(X, y), X)


class TranslatedRAD(Translates, DeepRAD):
    """On labels of scikit-learn's checks."""


class TranslatedPU(Translates, NNPU):
    pass


class TranslatedSAD(Translates, DeepSAD):
    pass


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [quick(TranslatedRAD), quick(TranslatedPU), quick(TranslatedSAD, pretrain_iter=4)]
)
def test_common_checks(estimator, check):
    run_in_single_precision(check, estimator)
