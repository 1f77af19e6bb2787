"""The ONNX graphs of `AutoRAD` and `PretrainedRAD` beside the models, run in onnxruntime."""

import subprocess
import sys
import warnings

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from support.cards import LABELLED
from support.commands import result_of, succeed

import riskad
from riskad.app.onnx import Graph, export, feeds, to_onnx
from riskad.detectors.features import LearnedFeatures
from riskad.detectors.outlier_mean import OutlierMean

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


def session_of(model):
    made = to_onnx(model).SerializeToString()
    return ort.InferenceSession(made, providers=["CPUExecutionProvider"])


def run(session, rows):
    names = [out.name for out in session.get_outputs()]
    return dict(zip(names, session.run(names, rows), strict=True))


def assert_parity(model, rows, given=None):
    """All that a model tells of rows is the same by its graph, in a batch and one by one."""
    session = session_of(model)
    given = {"X": rows} if given is None else given
    got = run(session, given)
    score, novelty = model._anomaly_score_and_novelty(rows)
    close = {"rtol": 1e-5, "atol": 1e-5}
    in_singles = {"rtol": 1e-5, "atol": 1e-4}  # the network's precision, in Python, too
    np.testing.assert_allclose(got["anomaly_score"], score, **in_singles)
    np.testing.assert_allclose(got["novelty"], novelty, **close)
    np.testing.assert_array_equal(got["is_anomaly"], model.predict(rows) == -1)
    assert np.ptp(score) > 0.5
    assert ("anomaly_probability" in got) == model.calibration_.knows_probabilities
    if "anomaly_probability" in got:
        probability = model.anomaly_probability(rows)
        np.testing.assert_allclose(got["anomaly_probability"], probability, **in_singles)
    for i in range(5):
        alone = run(session, {name: values[i : i + 1] for name, values in given.items()})
        np.testing.assert_allclose(alone["anomaly_score"], score[i : i + 1], **in_singles)


def fitted(X, y, budget=60.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return riskad.AutoRAD(budget=budget).fit(X, y)


def few_columns():
    """Few columns, one of whole numbers, and rows that are there many times."""
    X, y, _ = make_contaminated_rows(400, 3)
    X[:, 1] = np.round(X[:, 1])
    X[200:300] = X[100:200]
    return X, y


def wide():
    """More columns than components, of which some are sums of others."""
    X, y, _ = make_contaminated_rows(300, 30)
    return np.hstack([X, X[:, :5] + X[:, 5:10]]), y


def gaps():
    """Gaps, a column that never varies, one of nothing but gaps, one with an outlier."""
    X, y, _ = make_contaminated_rows(400, 5)
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    X[:, 2], X[:, 3], X[7, 4] = 4.0, np.nan, 1e30
    return X, y


def anomalies_alone():
    X, y, _ = make_contaminated_rows(300, 4)
    return X, np.where(y == 1, 0, y)


def normals_alone():
    X, y, _ = make_contaminated_rows(300, 4)
    return X, riskad.parse_labels(np.where(y == -1, 0, y), normal=1, unlabelled=0)


TABLES = {
    "few columns": (few_columns, 60.0),
    "wide": (wide, 2.0),
    "gaps": (gaps, 2.0),
    "anomalies alone": (anomalies_alone, 1.0),
    "normals alone": (normals_alone, 1.0),
}


@pytest.mark.parametrize(("table", "budget"), TABLES.values(), ids=TABLES)
def test_numbers(table, budget):
    X, y = table()
    model = fitted(X, y, budget)
    if budget == 60:
        assert len(model.members_) > 5
    new = make_contaminated_rows(200, X.shape[1], seed=1)[0]
    new[::9, 0] = np.nan  # where there was no gap in training
    assert_parity(model, np.vstack([X, new]))


def mixed(n=400):
    """A frame of numbers, few levels and many, of which some tell."""
    rng = np.random.default_rng(0)
    odd = rng.random(n) < 0.25
    shop = np.where(odd, rng.integers(0, 3, n), rng.integers(0, 30, n))
    gone = pl.Series(rng.random(n) < 0.1)
    some = rng.random(n) < 0.05
    frame = pl.DataFrame(
        {
            "amount": pl.Series(rng.normal(0, 1, n) + odd).set(gone, None),
            "country": rng.choice(["FR", "é", "US"], n),
            "shop": [None if gap else f"s{i}" for i, gap in zip(shop, some, strict=True)],
        }
    )
    return frame, np.where(rng.random(n) < 0.4, np.where(odd, -1, 1), 0)


def test_categories_and_their_evidence(tmp_path):
    frame, y = mixed()
    model = fitted(frame, y, budget=1)
    assert model.evidence_.places == [2]
    new = frame.with_columns(shop=pl.Series(["never seen"] * 50 + frame["shop"].to_list()[50:]))
    assert_parity(model, new, feeds(to_onnx(model), new))
    assert export(model, tmp_path / "model.onnx").largest_difference < 1e-5


def test_a_wide_sparse_matrix():
    from scipy import sparse

    X = sparse.random(300, 1200, 0.01, format="csr", random_state=0)
    y = np.repeat([1, -1, 0], [40, 20, 240])
    X = X + sparse.csr_matrix((np.ones(20), (np.arange(40, 60), np.zeros(20))), X.shape)
    model = fitted(X.tocsr(), y, budget=2)
    session = session_of(model)
    got = run(session, {"X": X.toarray()})["anomaly_score"]
    np.testing.assert_allclose(got, model.anomaly_score(X.tocsr()), atol=1e-5)


def test_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame, y = mixed(300)
    words = {1: "ok", -1: "fraud", 0: None}
    day = pl.date_range(pl.date(2025, 1, 1), pl.date(2025, 10, 27), eager=True).alias("day")
    frame.with_columns(day, label=pl.Series([words[v] for v in y.tolist()])).write_csv("t.csv")

    succeed("fit", "t.csv", *LABELLED, "--budget", 1, "-o", "m.riskad")
    said = result_of("export", "m.riskad", "m.onnx")
    assert said["model"] == "AutoRAD"
    assert said["outputs"] == ["anomaly_score", "is_anomaly", "anomaly_probability", "novelty"]
    assert said["largest_difference"] < 1e-5
    succeed("score", "m.riskad", "t.csv", "-o", "s.parquet")
    scored = pl.read_parquet("s.parquet")
    session = ort.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    columns = frame.with_columns(day).select(each.name for each in session.get_inputs())
    got = run(session, feeds(onnx.load("m.onnx"), columns))
    for name in said["outputs"]:
        np.testing.assert_allclose(got[name], scored[name].to_numpy(), atol=1e-5, err_msg=name)
    succeed("compress", "m.riskad", "--alone", "-o", "small.riskad")
    said = result_of("export", "small.riskad", "small.onnx")
    assert said["model"] == "CompressedRAD"
    assert said["outputs"] == ["anomaly_score", "is_anomaly", "anomaly_probability"]


def test_outliers_without_labels(tmp_path):
    X, y = gaps()
    model = OutlierMean().fit(X, np.zeros(len(y), dtype=int))
    assert export(model, tmp_path / "model.onnx").largest_difference < 1e-5
    got = run(session_of(model), {"X": X})["anomaly_score"]
    np.testing.assert_allclose(got, model.anomaly_score(X), atol=1e-9)


def test_every_part_of_learned_features():
    X, y, _ = make_contaminated_rows(200, 6)
    X[50:60] = X[40:50]  # at distance 0 from each other
    parts = ("columns", "outliers", "components", "kernels")
    for smooth in (False, True):
        learned = LearnedFeatures(parts, smooth=smooth).fit(X, y)
        graph = Graph(onnx)
        given = learned.onnx_parts(graph, graph.input("X", onnx.TensorProto.DOUBLE, (6,), ""))
        for part in parts:
            graph.output(part, given[part], onnx.TensorProto.DOUBLE)
        made = graph.model("features")
        for out in made.graph.output:  # columns, not one number for each row
            out.type.tensor_type.shape.dim.add()
        session = ort.InferenceSession(made.SerializeToString())
        F, got = learned.transform(X), run(session, {"X": X})
        for part, span in learned.slices_.items():
            np.testing.assert_allclose(got[part], F[:, span], atol=1e-6, err_msg=part)


# --- the pretrained network ---------------------------------------------------------------


def with_blanks(X):
    X = X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    X[:, 0] = np.round(X[:, 0])
    return X


@pytest.mark.parametrize("n_features", [3, 110])
def test_a_pretrained_network(n_features, tmp_path):
    X, y, _ = make_contaminated_rows(300, n_features, shift=0.7)
    X = with_blanks(X)
    X[y == -1, 1] = np.nan  # so that blanks tell
    model = riskad.PretrainedRAD(unlabelled=100).fit(X, y)
    session = session_of(model)
    score = model.anomaly_score(X)
    assert np.ptp(score) > 1
    close = {"rtol": model._graph_tolerance, "atol": model._graph_tolerance}
    np.testing.assert_allclose(run(session, {"X": X})["anomaly_score"], score, **close)
    for i in range(3):
        alone = run(session, {"X": X[i : i + 1]})["anomaly_score"]
        np.testing.assert_allclose(alone, score[i : i + 1], **close)
    report = export(model, tmp_path / "model.onnx")
    assert report.largest_difference < model._graph_tolerance


PEAK = """
import onnxruntime, sys
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_graph_loads_in_a_few_times_the_memory_of_its_file(tmp_path):
    """A context of 900 rows, the most that are read; onnxruntime alone takes 50 MB."""
    X, _, _ = make_contaminated_rows(3000, 20)
    y = np.repeat([1, -1, 0], [400, 200, 2400])
    model = riskad.PretrainedRAD().fit(X, y)
    assert model.context_.shape == (900, 20)
    path = tmp_path / "model.onnx"
    path.write_bytes(to_onnx(model).SerializeToString())
    loaded = subprocess.run(
        [sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True
    )
    assert path.stat().st_size < 60e6
    assert int(loaded.stdout) * 1024 < 50e6 + 6 * path.stat().st_size
