"""Files that were written before: each loads, and scores as it did.

What fails here breaks files that people have. `tests/fixtures/make_models.py` says what to do.
"""

import json
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone

import riskad
from riskad.app.describe import describe_model
from riskad.app.model_files import FORMAT_VERSION, read_header
from riskad.detectors.base import Detector
from riskad.files import codec

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.riskad"))
NETWORKS = ("deep", "deep_sad", "nnpu", "pretrained", "auto", "auto_network")
# Doubles that are added up in another order, by another BLAS or another version of NumPy, differ by
# some 1e-15 of the largest term; networks are computed in single precision, with 6e-8.
IN_DOUBLES, IN_SINGLES = 1e-9, 1e-4


def expected(name):
    """The rows of a fixture, and the scores they had when it was written."""
    stored = json.loads((MODELS / f"{name}.json").read_text(encoding="utf-8"))
    if "columns" in stored:
        rows = pl.DataFrame(stored["columns"])
    else:
        rows = np.array(stored["rows"], dtype=float)  # None becomes NaN
    return rows, np.array(stored["scores"])


def types_in(name):
    """The types that stand in a file."""
    with zipfile.ZipFile(MODELS / f"{name}.riskad") as archive:
        found, open_ = set(), [json.loads(archive.read("state.json"))]
    while open_:
        value = open_.pop()
        if isinstance(value, dict):
            found |= {value["$type"][0]} if "$type" in value else set()
            open_ += value.values()
        elif isinstance(value, list):
            open_ += value
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_file_from_before_loads_is_described_and_scores_the_same(name):
    if name in NETWORKS[:3]:
        pytest.importorskip("torch")
    path = MODELS / f"{name}.riskad"
    assert read_header(path).format_version == FORMAT_VERSION
    rows, scores = expected(name)
    model = riskad.load(path)
    assert type(model).__name__ in repr(model)
    assert clone(model).get_params().keys() == model.get_params().keys()
    assert describe_model(model, read_header(path)).model
    found = model.score_samples(rows)
    tolerance = IN_SINGLES if name in NETWORKS else IN_DOUBLES
    np.testing.assert_allclose(found, scores, rtol=tolerance, atol=tolerance * np.ptp(scores))


def test_every_type_that_can_be_stored_has_a_file():
    """The fuzzer changes these files, so that it covers every type, too."""
    pytest.importorskip("torch")
    missing = set(codec.OURS) - set().union(*map(types_in, NAMES))
    assert not missing, f"write a function for each in tests/fixtures/make_models.py: {missing}"
    models = {read_header(MODELS / f"{name}.riskad").model.rpartition(".")[2] for name in NAMES}
    types = {name: codec._find_type(name) for name in codec.OURS}
    assert {name for name, cls in types.items() if issubclass(cls, Detector)} <= models


def test_scores_of_a_file_are_worth_comparing():
    """Rows must differ, or any constant would do."""
    for name in NAMES:
        _, scores = expected(name)
        assert len(np.unique(scores.round(6))) > 5, name


def test_files_are_small():
    sizes = {path.name: path.stat().st_size for path in MODELS.iterdir()}
    assert {name for name, size in sizes.items() if size > 150_000} == set()
