"""Measurements of speed run on their smallest cells, and pages are those of the records."""

import numpy as np
import polars as pl
import pytest

from experiments import speed
from experiments.records import read_records
from experiments.runner import RESULTS, Cell, Skipped
from experiments.speed import auto, core, scale, serve, tables
from experiments.speed.timing import figures, flat, in_own_process, least_seconds, memory
from experiments.summaries import ok_rows

EXPERIMENTS = {experiment.name: experiment for experiment in speed.EXPERIMENTS}

pytestmark = pytest.mark.filterwarnings("ignore::riskad.DataWarning")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_pages_are_those_of_the_records(name, tmp_path):
    experiment = EXPERIMENTS[name]
    experiment.report(read_records(experiment.path()), tmp_path)
    pages = list(tmp_path.iterdir())
    assert pages
    for page in pages:
        assert page.read_text() == (RESULTS / experiment.folder / page.name).read_text(), page.name


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_two_cells_are_the_same(name):
    experiment = EXPERIMENTS[name]
    keys = [experiment.key(cell) for cell in experiment.cells()]
    assert len(keys) == len(set(keys)) > 0


# --- how it is measured ------------------------------------------------------------------------


def test_sides_take_turns_and_the_least_counts():
    ticks, calls = iter([0, 3, 3, 5, 5, 6, 6, 10]), []
    sides = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    assert least_seconds(sides, 2, clock=lambda: next(ticks)) == {"a": 1, "b": 2}
    assert calls == ["a", "b", "a", "b"]


def test_a_function_runs_in_a_process_of_its_own():
    here = memory("VmRSS")
    there = in_own_process("experiments.speed.timing.memory", "VmHWM")
    assert 0 < there != here
    assert in_own_process("builtins.max", 3, 7, 5) == 7


def test_figures_are_columns_without_what_all_records_say():
    assert flat({"ms": {"p99": 2.0, "by": {"x": 1}}}) == {"ms: p99": 2.0, "ms: by: x": 1}
    frame = pl.DataFrame(
        [
            {"method": "a", "status": "ok", "commit": "x", "ms": 1.0},
            {"method": "b", "status": "ok", "commit": "x", "rows": 3},
            {"method": "c", "status": "failed", "commit": "x"},
        ]
    )
    assert figures(ok_rows(frame)) == [{"method": "a", "ms": 1.0}, {"method": "b", "rows": 3}]


# --- smallest cells ----------------------------------------------------------------------------


def few_rows(n=1_500, d=5):
    rng = np.random.default_rng(0)
    odd = rng.random(n) < 0.1
    X = rng.normal(size=(n, d)) + 2 * odd[:, None]
    return X, np.where(rng.random(n) < 0.2, np.where(odd, -1, 1), 0).astype(np.int16)


@pytest.mark.parametrize(
    "name", [name for name in core.CORE if "import" not in name and "memory" not in name]
)
def test_the_core_is_measured(name, monkeypatch):
    monkeypatch.setattr(core, "make_rows", few_rows)
    monkeypatch.setattr(core, "make_sparse_rows", lambda: few_rows(500))
    metrics = core.run_core(Cell(method=name))
    assert metrics["ratio"] > 0
    assert metrics["met"] in (True, False)


def test_memory_of_a_fit_is_measured(monkeypatch):
    monkeypatch.setattr(core, "in_own_process", lambda function, loss: [2.0, 400.0])
    metrics = core.run_core(Cell(method="fit 1e6 x 50, squared: peak extra memory over X"))
    assert metrics == {
        "ratio": 0.005,
        "extra_MB": 2.0,
        "X_MB": 400,
        "target": "<= 0.1",
        "met": True,
    }


def test_import_times_are_without_that_of_python(monkeypatch):
    least = {"python": 0.1, "peer": 0.6, "ours": 0.4}
    monkeypatch.setattr(core, "least_seconds", lambda starts, runs: least)
    metrics = core.run_core(Cell(method="import riskad: time over import sklearn.linear_model"))
    assert (metrics["ratio"], metrics["met"]) == (0.6, True)


@pytest.mark.slow
def test_autorad_is_measured_beside_others():
    pytest.importorskip("catboost")
    metrics = auto.beside_others(300, 4, repetitions=1)
    assert metrics["fit_ratio"] == metrics["fit_seconds"] / metrics["fit_seconds_of_others"]
    assert -1 <= metrics["compressed_rank_correlation"] <= 1
    assert metrics["single_row_ms"] > 0


@pytest.mark.slow
def test_reasons_are_measured():
    assert auto.run_reasons(Cell(method="5 columns"))["ms_a_row"] > 0


@pytest.mark.slow
def test_graphs_are_measured():
    pytest.importorskip("onnxruntime")
    metrics = auto.run_graph(Cell(method="ForestRAD, 20 columns"))
    assert metrics["largest_difference"] < 1e-4
    assert metrics["megabytes"] > 0


@pytest.mark.needs_data
@pytest.mark.slow
def test_wall_time_of_a_set():
    assert auto.run_auto(Cell(dataset="vertebral", method="wall time"))["fit_seconds"] > 0
    with pytest.raises(Skipped, match="10,000 rows"):
        auto.run_auto(Cell(dataset="mammography", method="wall time"))


def test_preparation_is_measured():
    metrics = tables.run_preparation(Cell(rows=3_000))
    assert metrics["time_ratio"] == metrics["raw_seconds"] / metrics["typed_seconds"]
    assert metrics["raw_frame_mb"] > 0


@pytest.mark.parametrize(("file", "way"), [("parquet", "streamed"), ("csv", "whole")])
def test_scoring_of_files_is_measured(file, way):
    metrics = tables.run_streaming(Cell(file=file, method=way, rows=2_000))
    assert metrics["peak_mb"] > 50
    with pytest.raises(Skipped, match="too large"):
        tables.run_streaming(Cell(file=file, method="whole", rows=10**7))


@pytest.mark.slow
def test_a_server_is_measured(tmp_path):
    pytest.importorskip("uvicorn")
    metrics = serve.latency(tmp_path, "shallow", requests=5)
    assert 0 < metrics["row, ms"]["median"] <= metrics["row, ms"]["p999"]
    metrics = serve.bulk(tmp_path, "shallow", n=5_000, turns=1)
    assert metrics["largest difference of scores"] == 0.0


def test_clocks_of_both_sides_are_read_in_turns():
    now = [0.0]

    def call(seconds):
        now[0] += seconds

    sides = {"a": (lambda: call(1), lambda: now[0]), "b": (lambda: call(2), lambda: now[0])}
    wall, cpu = serve.in_turns(sides, turns=3, warm_up=1)
    assert cpu == {"a": [1.0] * 3, "b": [2.0] * 3}
    assert all(len(times) == 3 for times in wall.values())


@pytest.mark.slow
def test_scores_survive_kills():
    pytest.importorskip("duckdb")
    metrics = serve.run_score_kills(Cell(method="sqlite"), kills=2, step=20)
    assert metrics["killed"] == 2
    assert metrics["rows_twice"] == metrics["rows_missing_at_the_end"] == 0


def test_fits_to_files_are_measured(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("RISKAD_SCALE", str(tmp_path))
    metrics = scale.run_parquet(Cell(rows=3_000))
    assert metrics["passes"] >= 1
    assert metrics["ratio_to_reading"] > 0
    paths = list(tmp_path.iterdir())
    assert scale.run_growth(Cell(rows=3_000))["passes"] == metrics["passes"]
    assert list(tmp_path.iterdir()) == paths  # files are kept


@pytest.mark.parametrize("density", [None, 0.1])
def test_shapes_are_measured(density):
    method = "columns" if density is None else "density"
    metrics = scale.run_shape(Cell(method=method, rows=8_000, columns=10, density=density))
    assert metrics["seconds"] > 0
    assert ("stored" in metrics) == (density is not None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_find_the_same_model():
    pytest.importorskip("distributed")
    assert scale.run_dask(Cell(rows=160_000, workers=1))["largest_difference"] < 1e-6
