"""Networks in model files: what comes back, and what is refused."""

import hashlib
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from click.testing import CliRunner
from conftest import make_contaminated_rows
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from sklearn.pipeline import Pipeline, make_pipeline
from torch import nn

from riskad.app.model_files import load, read_header, save
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD
from riskad.detectors.features import SmoothScaler
from riskad.tables.preparation import TablePreparer

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


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path, name, data):
    """Replace a member of the archive, whose own checksum is then right."""
    kept = members(path) | {name: data}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in kept.items():
            archive.writestr(name, data)


@pytest.fixture(scope="module")
def network():
    X, y, _ = make_contaminated_rows()
    return quick(DeepRAD, module=(8, 4)).fit(X, y)


@pytest.fixture
def model_file(tmp_path, network):
    save(network, tmp_path / "model.riskad", notes={"rows": 600})
    return tmp_path / "model.riskad"


# --- what comes back ---------------------------------------------------------------------


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


def test_the_file_holds_the_weights_for_other_tools(model_file, network):
    parts = members(model_file)
    assert list(parts) == ["riskad.json", "state.json", "arrays.safetensors"]
    weights = load_arrays(parts["arrays.safetensors"])["weights_['output.weight']"]
    np.testing.assert_array_equal(weights, network.weights_["output.weight"])


def test_the_header_names_the_libraries(model_file):
    header = read_header(model_file)
    assert header.model == "riskad.deep.risk_detectors.DeepRAD"
    assert header.notes == {"rows": 600}
    assert header.versions["torch"].startswith(torch.__version__.split("+")[0])
    assert {"riskad", "numpy", "scikit-learn", "safetensors"} < set(header.versions)


def test_inside_a_pipeline(tmp_path):
    X, y, _ = make_contaminated_rows()
    model = make_pipeline(SmoothScaler(), quick(DeepRAD)).fit(X, y)
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad")
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


def test_a_network_for_a_device_that_is_not_here_is_loaded(tmp_path, network):
    model = DeepRAD().set_params(**network.get_params())
    model.__setstate__(network.__getstate__() | {"device": "cuda:7"})
    save(model, tmp_path / "model.riskad")
    again = load(tmp_path / "model.riskad").set_params(device="cpu")
    X, _, _ = make_contaminated_rows()
    np.testing.assert_array_equal(again.score_samples(X), network.score_samples(X))


# --- what cannot be saved ----------------------------------------------------------------


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


def test_notes_and_fitting_are_checked_as_for_other_models(tmp_path, network):
    with pytest.raises(InputError, match="is not fitted"):
        save(DeepRAD(), tmp_path / "model.riskad")
    with pytest.raises(InputError, match="JSON"):
        save(network, tmp_path / "model.riskad", notes={"x": {1}})
    assert list(tmp_path.iterdir()) == []


class Own(DeepRAD):
    """Somebody else's detector."""


def test_a_subclass_is_refused_by_name(tmp_path):
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=r"Own, and a model file holds"):
        save(quick(Own).fit(X, y), tmp_path / "model.riskad")


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"hello", b"\x80\x04N.", bytes(range(256)) * 4], ids=repr)
def test_a_member_that_is_no_network(model_file, data):
    rewrite(model_file, "arrays.safetensors", data[:100])
    with pytest.raises(InputError, match=r"damaged \(its content is not what was written"):
        load(model_file)


def test_damage_never_passes(tmp_path, model_file, network):
    """Whatever byte is changed or cut off: an InputError, or the very same model."""
    whole = model_file.read_bytes()
    X, _, _ = make_contaminated_rows()
    expected = network.score_samples(X)
    broken = tmp_path / "broken.riskad"
    step = max(len(whole) // 300, 1)
    survived = 0
    for position in range(0, len(whole), step):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        for data in (flipped, whole[:position]):
            broken.write_bytes(data)
            try:
                again = load(broken)
            except InputError:
                continue
            survived += 1
            np.testing.assert_array_equal(again.score_samples(X), expected)
    # Dates and attributes of members may change unnoticed; the model may not.
    assert survived < 0.1 * 2 * len(whole) / step


def forge(path, arrays=(), **values):
    """Put arrays and values in place of a model's own, with the right checksum."""
    parts = members(path)
    tree = json.loads(parts["state.json"])
    tree["$type"][1] |= values
    parts["state.json"] = json.dumps(tree).encode()
    parts["arrays.safetensors"] = save_arrays(
        load_arrays(parts["arrays.safetensors"]) | dict(arrays)
    )
    header = json.loads(parts["riskad.json"])
    checksum = hashlib.sha256()
    for name in sorted(set(parts) - {"riskad.json"}):
        checksum.update(parts[name])
    parts["riskad.json"] = json.dumps(header | {"checksum": checksum.hexdigest()}).encode()
    for name, data in parts.items():
        rewrite(path, name, data)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape_": [5]},
        {"shape_": None},
        {"shape_": ["x"]},
        {"module": [7, 7]},
        {"module": "many"},
        {"module": [10**6] * 12},
        {"module": "lenet-mnist"},
        {"module": "os.system"},
        {"module": 3},
        {"loss": "none"},
        {"random_state": "x"},
        {"offset_": {"$number": "nan"}},
        {"n_iter_": -1},
        {"device": "/etc/passwd"},
        {"_mean": {"$array": "nowhere"}},
        {"more": 1},
        {"arrays": {"weights_['output.weight']": np.zeros((9, 9), dtype=np.float32)}},
        {"arrays": {"weights_['output.weight']": np.full((1, 4), np.nan, dtype=np.float32)}},
        {"arrays": {"weights_['norm0.running_mean']": np.zeros(8)}},
        {"arrays": {"_scale": np.zeros(4)}},
    ],
    ids=str,
)
def test_values_that_make_no_detector(model_file, changes):
    load(model_file)
    forge(model_file, **changes)
    with pytest.raises(InputError, match=r"damaged \((?!its content)"):
        load(model_file)


def test_a_centre_of_another_size(tmp_path):
    X, y, _ = make_contaminated_rows()
    save(quick(DeepSAD, module=(3, 2)).fit(X, y), tmp_path / "model.riskad")
    forge(tmp_path / "model.riskad", arrays={"centre_": np.zeros(0, dtype=np.float32)})
    with pytest.raises(InputError, match="centre_: expected 2 numbers"):
        load(tmp_path / "model.riskad")


# --- torch -------------------------------------------------------------------------------


def forget(monkeypatch, library):
    """Be on a machine where a library is not installed."""
    monkeypatch.delitem(sys.modules, "riskad.deep.risk_detectors", raising=False)
    monkeypatch.setitem(sys.modules, library, None)


def test_without_torch_a_sentence_says_what_to_install(monkeypatch, model_file):
    forget(monkeypatch, "torch")
    message = r"with torch, which is not installed: pip install 'riskad\[deep\]'"
    with pytest.raises(InputError, match=message):
        load(model_file)
    result = CliRunner().invoke(cli, ["inspect", str(model_file)])
    assert result.exit_code == 1
    assert "pip install 'riskad[deep]'" in result.stderr


def test_nor_does_a_pipeline_with_a_network_pass_for_unsafe(monkeypatch, tmp_path):
    X, y, _ = make_contaminated_rows()
    save(make_pipeline(SmoothScaler(), quick(DeepRAD)).fit(X, y), tmp_path / "model.riskad")
    forget(monkeypatch, "torch")
    with pytest.raises(InputError, match="torch, which is not installed: pip install"):
        load(tmp_path / "model.riskad")


def test_other_models_are_saved_and_loaded_without_torch(tmp_path):
    code = (
        "import sys, riskad\n"
        "model = riskad.ShallowRAD().fit([[0.0], [1.0], [2.0]], [1, 0, -1])\n"
        "riskad.save(model, sys.argv[1]); riskad.load(sys.argv[1])\n"
        "assert not {'riskad.deep', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.riskad")], check=True)


# --- on the command line -----------------------------------------------------------------


def test_inspect(model_file):
    result = CliRunner().invoke(cli, ["inspect", str(model_file)])
    assert result.exit_code == 0, result.output
    assert "model.riskad: a DeepRAD" in result.stdout
    assert "neural network, nnrad risk" in result.stdout
    result = CliRunner().invoke(cli, ["inspect", str(model_file), "--json"])
    assert "safetensors" in json.loads(result.stdout)["versions"]


@pytest.mark.parametrize("method", [NNPU, DeepSAD])
def test_inspect_of_networks_without_a_choice_of_risk(tmp_path, method):
    X, y, _ = make_contaminated_rows()
    save(quick(method).fit(X, y), tmp_path / "model.riskad")
    result = CliRunner().invoke(cli, ["inspect", str(tmp_path / "model.riskad")])
    assert result.exit_code == 0, result.output
    assert "neural network" in result.stdout


def test_score_wants_to_know_how_to_read_a_table(model_file, tmp_path):
    (tmp_path / "new.csv").write_text("a,b,c,d\n1,2,3,4\n")
    arguments = ["score", model_file, tmp_path / "new.csv", "-o", tmp_path / "out.csv"]
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    assert "a DeepRAD, was not made by riskad.fit_table" in result.stderr


def test_score_with_a_network_behind_a_preparer(tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_contaminated_rows()
    table = pandas.DataFrame(X, columns=list("abcd"))
    model = Pipeline([("prepare", TablePreparer()), ("detect", quick(DeepRAD))]).fit(table, y)
    save(model, tmp_path / "model.riskad")
    table.to_csv(tmp_path / "new.csv", index=False)
    arguments = ["score", "model.riskad", "new.csv", "-o", "out.csv"]
    paths = [str(tmp_path / name) if "." in name else name for name in arguments]
    result = CliRunner().invoke(cli, paths)
    assert result.exit_code == 0, result.output
    scored = pandas.read_csv(tmp_path / "out.csv")
    np.testing.assert_array_equal(scored["anomaly_score"], -model.score_samples(table))
