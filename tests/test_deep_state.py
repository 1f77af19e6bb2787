"""Detectors as bytes: what comes back, and what is refused."""

import json
import struct

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from conftest import make_contaminated_rows
from safetensors.numpy import load, save
from torch import nn

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES, Logistic
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.risk_detectors import NNPU, DeepRAD
from riskad.deep.state import state_from_bytes, state_to_bytes

torch.set_num_threads(1)
QUICK = {"n_steps": 6, "hidden": (8, 4), "random_state": 1}
MODELS = [DeepRAD(**QUICK), NNPU(**QUICK), DeepSAD(pretrain_steps=2, **QUICK)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_everything_comes_back(model):
    X, y, _ = make_contaminated_rows()
    model.fit(X, y)
    again = state_from_bytes(state_to_bytes(model))
    assert type(again) is type(model)
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.shape_ == model.shape_
    for name, curve in model.history_.items():
        np.testing.assert_array_equal(again.history_[name], curve)
    again.set_params(warm_start=True).fit(X, y)
    assert again.n_steps_ == 12


def test_the_weights_are_there_for_other_tools():
    X, y, _ = make_contaminated_rows()
    model = DeepRAD(loss=LOSSES["squared"], **QUICK).fit(X, y)
    arrays = load(state_to_bytes(model))
    np.testing.assert_array_equal(
        arrays["weights_['output.weight']"], model.weights_["output.weight"]
    )
    assert state_from_bytes(state_to_bytes(model)).loss == "squared"


def test_column_names_come_back():
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_contaminated_rows()
    table = pandas.DataFrame(X, columns=list("abcd"))
    again = state_from_bytes(state_to_bytes(DeepRAD(**QUICK).fit(table, y)))
    assert again.feature_names_in_.tolist() == list("abcd")
    again.predict(table)


def test_a_module_of_ones_own_is_given_again_and_a_callback_is_left_out():
    X, y, _ = make_contaminated_rows()
    module = nn.Linear(4, 1)
    model = DeepRAD(module, n_steps=3, callback=print).fit(X, y)
    data = state_to_bytes(model)
    with pytest.raises(InputError, match=r"give it again: state_from_bytes\(data, module"):
        state_from_bytes(data)
    again = state_from_bytes(data, module=nn.Linear(4, 1))
    assert again.callback is None
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    with pytest.raises(InputError, match=r"weights do not fit the module.*\(1, 3\)"):
        state_from_bytes(data, module=nn.Linear(3, 1))


def test_arrays_without_an_axis_come_back():
    X, y, _ = make_contaminated_rows()
    module = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    model = DeepRAD(module, n_steps=3).fit(X, y)
    again = state_from_bytes(state_to_bytes(model), module=module)
    assert again.weights_["module.1.num_batches_tracked"].shape == ()
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))


class Own(DeepRAD):
    """Not one of this package's."""


def test_what_cannot_be_stored_is_refused():
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match="is not fitted"):
        state_to_bytes(DeepRAD())
    with pytest.raises(InputError, match=r"loss is a riskad\.core\.losses\.Logistic, and a model"):
        state_to_bytes(DeepRAD(loss=Logistic(), **QUICK).fit(X, y))
    with pytest.raises(InputError, match="only DeepRAD, NNPU, DeepSAD can be stored, not Own"):
        state_to_bytes(Own(**QUICK).fit(X, y))


def with_tree(tree):
    return save({"a": np.zeros(2)}, metadata={"riskad": json.dumps(tree)})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello, this is no detector",
        struct.pack("<Q", 2**60) + b"{}",
        save({"a": np.zeros(2)}),
        with_tree({"$type": ["os.system", {}]}),
        with_tree({"$type": ["DeepRAD"]}),
        with_tree({"$type": [["DeepRAD"], {}]}),
        with_tree({"$type": ["DeepRAD", [1, 2]]}),
        with_tree({"$type": ["DeepRAD", {"module": "mlp"}]}),  # without the rest
        with_tree({"$type": ["Auc", dict.fromkeys(("value", "low", "high"), 0.5)]}),
        with_tree({"$call": "os.system"}),
        with_tree(7),
        save({"a": np.zeros(2)}, metadata={"riskad": "[" * 100_000}),
        with_tree({})[:-3],
    ],
)
def test_foreign_bytes(data):
    with pytest.raises(InputError, match="not a detector that riskad stored"):
        state_from_bytes(data)


def forged(model, arrays=(), **values):
    """The bytes of a model with arrays and values put in place of its own."""
    data = state_to_bytes(model)
    (length,) = struct.unpack("<Q", data[:8])
    tree = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["riskad"])
    tree["$type"][1] |= values
    return save(load(data) | dict(arrays), metadata={"riskad": json.dumps(tree)})


@pytest.fixture(scope="module")
def small():
    X, y, _ = make_contaminated_rows(n_features=3)
    return DeepRAD(n_steps=2, hidden=(3, 2), validation=0, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    "changes",
    [
        {"shape_": [5]},
        {"shape_": None},
        {"shape_": ["x"]},
        {"hidden": [7, 7]},
        {"hidden": "many"},
        {"module": "lenet-mnist"},
        {"module": "os.system"},
        {"module": 3},
        {"loss": "none"},
        {"random_state": "x"},
        {"hidden": [1000, 1000]},
        {"offset_": {"$number": "nan"}},
        {"n_steps_": -1},
        {"device": "/etc/passwd"},
        {"callback": "print"},
        {"_mean": {"$array": "nowhere"}},
        {"more": 1},
        {"arrays": {"weights_['output.weight']": np.zeros((1, 9, 9), dtype=np.float32)}},
        {"arrays": {"weights_['output.weight']": np.full((1, 2), np.nan, dtype=np.float32)}},
        {"arrays": {"_scale": np.zeros(3)}},
    ],
    ids=str,
)
def test_values_that_make_no_detector(small, changes):
    with pytest.raises(InputError, match="damaged"):
        state_from_bytes(forged(small, **changes))


def test_whatever_byte_is_changed_there_is_a_detector_or_an_input_error(small):
    whole = state_to_bytes(small)
    (length,) = struct.unpack("<Q", whole[:8])
    for position in range(8 + length):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 7
        for data in (bytes(changed), whole[:position]):
            try:
                assert type(state_from_bytes(data)) in (DeepRAD, NNPU, DeepSAD)
            except InputError:
                continue


def test_a_centre_of_another_size():
    X, y, _ = make_contaminated_rows(n_features=3)
    model = DeepSAD(n_steps=2, pretrain_steps=1, hidden=(3, 2), random_state=0).fit(X, y)
    with pytest.raises(InputError, match="centre_: expected 2 numbers"):
        state_from_bytes(forged(model, arrays={"centre_": np.zeros(0, dtype=np.float32)}))
