"""Rules that all of `src` keeps: one order of the kinds, declared imports, errors of our own."""

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import riskad
from riskad import ShallowRAD
from riskad.core.labels import ANOMALY, KINDS, NORMAL, UNLABELLED, read_codes
from riskad.decisions.drift import _names
from riskad.decisions.thresholds import parse_threshold

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(path):
    return path.relative_to(ROOT / "src" / "riskad").as_posix()


def nodes(path, *kinds):
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


# --- one order of the kinds of label ----------------------------------------------------------


def orders_of_kinds(source):
    """The names that a module gives to an order of the three kinds of label."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Tuple):
            found = [each.id for each in node.value.elts if isinstance(each, ast.Name)]
            if sorted(found) == ["ANOMALY", "NORMAL", "UNLABELLED"]:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                yield from ((ast.unparse(target), *found) for target in targets)


def test_the_kinds_of_label_have_one_order():
    found = [
        (name_of(path), *each) for path in SOURCES for each in orders_of_kinds(path.read_text())
    ]
    assert found == [
        ("core/labels.py", "KINDS", "UNLABELLED", "NORMAL", "ANOMALY"),
        # That of the parameter `batch` of networks, which users spell: P, N, U.
        ("deep/batches.py", "BATCH_ORDER", "NORMAL", "ANOMALY", "UNLABELLED"),
    ]


def test_a_second_order_is_seen():
    second = "from x import *\nKINDS = (NORMAL, ANOMALY, UNLABELLED)\n"
    assert list(orders_of_kinds(second)) == [("KINDS", "NORMAL", "ANOMALY", "UNLABELLED")]


def test_arrays_in_the_order_of_the_kinds_are_indexed_by_label_code():
    by_kind = np.array(KINDS)
    assert [int(by_kind[code]) for code in (NORMAL, ANOMALY, UNLABELLED)] == [1, -1, 0]


# --- what is imported is declared, and where --------------------------------------------------

DISTRIBUTION_OF = {"sklearn": "scikit-learn", "array_api_compat": "array-api-compat"}
# Modules that only some users need: the extra that installs each, and the files that import it.
CONFINED = {
    "torch": ("deep", ["deep/*.py", "detectors/table_network_torch.py"]),
    "lightgbm": ("boost", ["detectors/boosted.py"]),
    "pyarrow": ("parquet", ["rows/parquet.py", "rows/parquet_files.py"]),
    "fastexcel": ("excel", ["tables/workbooks.py"]),
    "xlsxwriter": ("excel", ["tables/workbooks.py"]),
    "duckdb": ("duckdb", ["tables/databases.py"]),
    "zstandard": ("zstd", ["tables/paths.py"]),
    "dask": ("scale", ["rows/cluster.py"]),
    "distributed": ("scale", ["rows/cluster.py"]),
    "starlette": ("app", ["web/guard.py", "web/label/server.py", "web/serve/server.py"]),
    "uvicorn": ("app", ["web/listening.py"]),
    "prometheus_client": ("app", ["web/serve/metrics.py", "web/serve/server.py"]),
    "onnx": ("onnx", ["app/onnx.py"]),
    "onnxruntime": ("onnx", ["app/onnx.py"]),
    "mlflow": ("mlflow", ["mlflow.py"]),
    "pandas": ("mlflow", ["mlflow.py"]),
}


def imported(source):
    """Top-level modules, other than Python's and our own, that a file imports by whatever words."""
    for node in ast.walk(ast.parse(source)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            modules = [each.value for each in node.args if isinstance(each, ast.Constant)]
        for module in modules:
            top = module.split(".")[0]
            if top not in sys.stdlib_module_names and top != "riskad":
                yield top


def misplaced(name, source):
    """What a file imports that is confined to other files."""
    return [
        module
        for module in imported(source)
        if module in CONFINED and not any(fnmatch(name, each) for each in CONFINED[module][1])
    ]


def declared(requirements):
    return {re.split(r"[\s\[<>=;!~]", line)[0].lower() for line in requirements}


def test_every_module_that_is_imported_is_declared():
    always = declared(PROJECT["project"]["dependencies"])
    found = {module for path in SOURCES for module in imported(path.read_text())} - set(CONFINED)
    assert {DISTRIBUTION_OF.get(module, module) for module in found} <= always


@pytest.mark.parametrize("module", [name for name in CONFINED if CONFINED[name][0]])
def test_the_extra_beside_a_module_declares_it(module):
    extra = PROJECT["project"]["optional-dependencies"][CONFINED[module][0]]
    # dask[array,distributed]; a part of MLflow is enough
    names = {"distributed": "dask", "mlflow": "mlflow-skinny"}
    wanted = (names | {"prometheus_client": "prometheus-client"}).get(module, module)
    assert wanted in declared(extra)
    assert module != "distributed" or any("distributed" in line for line in extra)


def test_the_extra_all_names_what_users_need_but_torch():
    extras = PROJECT["project"]["optional-dependencies"]
    named = re.search(r"\[(.*)\]", *extras["all"])[1].split(",")
    assert set(named) == set(extras) - {"all", "deep", "dev", "docs"}


def test_optional_libraries_are_imported_in_their_files_alone():
    assert {name_of(path): misplaced(name_of(path), path.read_text()) for path in SOURCES} == {
        name_of(path): [] for path in SOURCES
    }


def test_an_import_elsewhere_is_seen():
    for words in ("import torch.nn", "from torch import nn", "import_module('torch.cuda')"):
        assert misplaced("rows/linear.py", f"def f():\n    {words}\n") == ["torch"]
        assert misplaced("deep/nets.py", words) == []


# --- a bug of ours is no mistake of the user --------------------------------------------------


@pytest.fixture
def model_file(tmp_path):
    model = ShallowRAD().fit([[0.0], [1.0], [2.0], [3.0]], [1, 0, 0, -1])
    riskad.save(model, tmp_path / "model.riskad")
    return tmp_path / "model.riskad"


def broken(*args, **kwargs):
    raise TypeError("a bug of ours")


@pytest.mark.parametrize(
    "place",
    [
        "riskad.files.codec.load_arrays",
        "riskad.files.codec.json.loads",
        "riskad.files.codec._from_state",
        "riskad.files.codec._find_type",
        "riskad.app.model_files._check_depth",
        "riskad.app.model_files._checksum",
        "riskad.detectors.shallow.ShallowRAD._check_state",
    ],
)
def test_a_bug_of_ours_in_loading_is_not_called_a_damaged_file(monkeypatch, model_file, place):
    monkeypatch.setattr(place, broken)
    with pytest.raises(TypeError, match="a bug of ours"):
        riskad.load(model_file)


def test_a_bug_of_ours_in_saving_is_not_called_a_mistake_in_the_notes(monkeypatch, tmp_path):
    monkeypatch.setattr("riskad.app.model_files.to_plain", broken)
    model = ShallowRAD().fit([[0.0], [1.0], [2.0], [3.0]], [1, 0, 0, -1])
    with pytest.raises(TypeError, match="a bug of ours"):
        riskad.save(model, tmp_path / "model.riskad", notes={"rows": 4})


def test_a_bug_of_ours_in_a_threshold_is_not_called_unreadable(monkeypatch):
    monkeypatch.setattr("riskad.decisions.thresholds.check_in_interval", broken)
    with pytest.raises(TypeError, match="a bug of ours"):
        parse_threshold("false-alarms:0.01")


def test_a_bug_of_ours_in_reading_labels_is_not_called_a_mistake_in_y(monkeypatch):
    monkeypatch.setattr("riskad.core.labels._on_host", broken)
    with pytest.raises(TypeError, match="a bug of ours"):
        read_codes([1, -1, 0])


def test_a_bug_of_ours_in_reading_columns_is_not_called_a_mistake_in_them(monkeypatch):
    monkeypatch.setattr("riskad.rows.table._floats", broken)
    with pytest.raises(TypeError, match="a bug of ours"):
        ShallowRAD().fit(pl.DataFrame({"x": [0.0, 1.0, None, 3.0]}), [1, 0, 0, -1])


def test_a_bug_of_ours_in_naming_columns_surfaces(monkeypatch):
    class Broken:
        def get_feature_names_out(self):
            raise AttributeError("'NoneType' object has no attribute 'columns'")

    class Nameless:
        def get_feature_names_out(self):
            raise AttributeError("Estimator x does not provide get_feature_names_out.")

    with pytest.raises(AttributeError, match="NoneType"):
        _names(Broken(), ShallowRAD(), 2)
    assert _names(Nameless(), ShallowRAD(), 2) == ["0", "1"]


# Where TypeError or AttributeError may be caught: a single call of another library, which raises it
# of what the user gave.
CAUGHT = {
    "app/model_files.py": "json.dumps(header.notes, allow_nan=False)",
    "app/reasons.py": "return np.asarray(X, dtype=np.float64)",
    "core/labels.py": "values = column_or_1d(y)",
    "core/masking.py": "return np.random.default_rng(random_state)",
    "deep/trainer.py": "return torch.device(device)",
    "decisions/drift.py": "return [str(name) for name in before.get_feature_names_out()]",
    "decisions/suggest.py": "matrix = np.asarray(matrix, dtype=np.float64)",
    "rows/table.py": "numbers = column.to_numpy(dtype=precision, na_value=np.nan)",
}


def test_errors_of_programming_are_caught_around_single_calls_of_other_libraries():
    for path in SOURCES:
        for node in nodes(path, ast.Try):
            caught = [ast.unparse(each.type) for each in node.handlers if each.type]
            if not re.search("TypeError|AttributeError", str(caught)):
                continue
            assert len(node.body) == 1
            assert ast.unparse(node.body[0]) == CAUGHT[name_of(path)], name_of(path)


# --- folders -----------------------------------------------------------------------------------


def test_the_folders_are_those_of_the_contributing_guide():
    packages = {path.parent.name for path in (ROOT / "src" / "riskad").glob("*/__init__.py")}
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert packages == set(re.findall(r"^\| `(\w+)/` \|", guide, flags=re.M))
