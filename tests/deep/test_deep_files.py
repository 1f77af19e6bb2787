"""Networks in model files: what comes back, and what is refused."""

import json
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import make_contaminated_rows
from fuzz.mutations import read_archive, reseal, write_archive
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from support.commands import run
from torch import nn

from riskad.app.model_files import load, read_header, save
from riskad.core.checks import InputError
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD

torch.set_num_threads(1)
QUICK = {"max_iter": 4, "device": "cpu", "random_state": 1}
METHODS = [DeepRAD, NNPU, DeepSAD]


def quick(method, **others):
    pretraining = {"pretrain_iter": 2} if method is DeepSAD else {}
    return method(**QUICK | pretraining | others)


def images(n=60, dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, size=(n, 8, 8)).astype(dtype)
    return X, np.resize([1, -1, 0, 0], n)


@pytest.fixture(scope="module")
def network():
    X, y, _ = make_contaminated_rows()
    return quick(DeepRAD, module=(8, 4)).fit(X, y)


@pytest.fixture
def model_file(tmp_path, network):
    save(network, tmp_path / "model.riskad", notes={"rows": 600})
    return tmp_path / "model.riskad"


def assert_comes_back(model, X, path):
    save(model, path)
    again = load(path)
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    assert again.offset_ == model.offset_
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    return again


@pytest.mark.parametrize("method", METHODS)
def test_networks_over_tables(method, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_contaminated_rows()
    table = pandas.DataFrame(X, columns=["a", "b", "größe", "日本"])
    model = quick(method, module=(8, 4)).fit(table, y)
    again = assert_comes_back(model, table, tmp_path / "model.riskad")
    assert again.feature_names_in_.tolist() == list(table.columns)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(table[["b", "a", "größe", "日本"]])


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("method", METHODS)
def test_networks_over_images(method, dtype, tmp_path):
    X, y = images(dtype=dtype)
    model = quick(method, module="lenet-mnist").fit(X, y)
    again = assert_comes_back(model, X, tmp_path / "model.riskad")
    assert again.shape_ == (1, 8, 8)
    assert again.history_.keys() == model.history_.keys()


def test_the_header_names_the_libraries(model_file):
    header = read_header(model_file)
    assert header.model == "riskad.deep.risk_detectors.DeepRAD"
    assert header.notes == {"rows": 600}
    assert header.versions["torch"].startswith(torch.__version__.split("+")[0])
    assert {"riskad", "numpy", "scikit-learn", "safetensors"} < set(header.versions)


def test_a_network_for_a_device_that_is_not_here_is_loaded(tmp_path, network):
    model = DeepRAD().set_params(**network.get_params())
    model.__setstate__(network.__getstate__() | {"device": "cuda:7"})
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad").set_params(device="cpu")
    X, _, _ = make_contaminated_rows()
    np.testing.assert_array_equal(again.score_samples(X), network.score_samples(X))


@pytest.mark.parametrize("module", [nn.Linear(4, 1), lambda shape: nn.Linear(*shape, 1)])
def test_a_module_of_ones_own_is_code_and_is_given_again(tmp_path, module):
    X, y, _ = make_contaminated_rows()
    model = quick(DeepRAD, module=module).fit(X, y)
    scores = model.score_samples(X)
    with pytest.raises(InputError, match=r"module='mlp'.*set_params\(module=None\).*loaded model"):
        save(model, tmp_path / "model.riskad")
    assert list(tmp_path.iterdir()) == []
    save(model.set_params(module=None), tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    with pytest.raises(InputError, match=r"module must be one of mlp.*got None"):
        again.score_samples(X)
    with pytest.raises(InputError, match=r"module is not the one of the fit.*\(1, 4\)"):
        again.set_params(module=nn.Linear(3, 1)).score_samples(X)
    np.testing.assert_array_equal(again.set_params(module=module).score_samples(X), scores)


def forge(path, arrays=(), **values):
    """Put arrays and values in place of a model's own, with the right checksum."""
    parts = read_archive(path.read_bytes())
    tree = json.loads(parts["state.json"])
    tree["$type"][1] |= values
    parts["state.json"] = json.dumps(tree).encode()
    parts["arrays.safetensors"] = save_arrays(
        load_arrays(parts["arrays.safetensors"]) | dict(arrays)
    )
    path.write_bytes(write_archive(reseal(parts)))


def of_weights(name, *shape, fill=0.0):
    return {"arrays": {name: np.full(shape, fill, dtype=np.float32)}}


FORGED = [
    *({"shape_": value} for value in ([5], None, ["x"])),
    *({"module": value} for value in ([7, 7], "many", [10**6] * 12, "lenet-mnist", "os.system", 3)),
    *({"loss": "none"}, {"random_state": "x"}, {"n_iter_": -1}, {"device": "/etc/passwd"}),
    *({"offset_": {"$number": "nan"}}, {"_mean": {"$array": "nowhere"}}, {"more": 1}),
    of_weights("weights_['output.weight']", 9, 9),
    of_weights("weights_['output.weight']", 1, 4, fill=np.nan),
    {"arrays": {"weights_['norm0.running_mean']": np.zeros(8)}},
    {"arrays": {"_scale": np.zeros(4)}},
    {"arrays": {"_mean": np.zeros(3), "_scale": np.ones(3)}},
]


def test_values_that_make_no_detector(model_file):
    whole = model_file.read_bytes()
    load(model_file)
    for changes in FORGED:
        model_file.write_bytes(whole)
        forge(model_file, **changes)
        with pytest.raises(InputError, match=r"damaged \((?!its content)"):
            load(model_file)


def test_a_centre_of_another_size(tmp_path):
    X, y, _ = make_contaminated_rows()
    save(quick(DeepSAD, module=(3, 2)).fit(X, y), tmp_path / "model.riskad")
    forge(tmp_path / "model.riskad", arrays={"centre_": np.zeros(0, dtype=np.float32)})
    with pytest.raises(InputError, match="centre_: expected 2 numbers"):
        load(tmp_path / "model.riskad")


def test_without_torch_a_sentence_says_what_to_install(monkeypatch, model_file):
    monkeypatch.delitem(sys.modules, "riskad.deep.risk_detectors", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    message = r"with torch, which is not installed: pip install 'riskad\[deep\]'"
    with pytest.raises(InputError, match=message):
        load(model_file)
    assert "pip install 'riskad[deep]'" in run("inspect", model_file, code=1).stderr
