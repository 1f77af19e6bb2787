"""ONNX graphs beside the models they were made of, run in onnxruntime."""

import itertools

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import SkewedChi2Sampler
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from support.loops import each

import riskad
from riskad.app.onnx import Graph, export, feeds, to_onnx
from riskad.core.checks import InputError
from riskad.detectors.compressed import CompressedRAD
from riskad.detectors.description import SelfDescribing
from riskad.detectors.tree_growth import from_hist_gradient_boosting, from_lightgbm
from riskad.tables.preparation import TablePreparer

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")


def run(proto, given):
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [out.name for out in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


GRAPH_TOLERANCE = SelfDescribing._graph_tolerance


def assert_parity(model, proto, rows, given=None, tolerance=GRAPH_TOLERANCE):
    """Scores within the tolerance, flags equal, of a model and its graph."""
    got = run(proto, feeds(proto, rows) if given is None else given)
    ours = -model.score_samples(rows)
    assert got["anomaly_score"].dtype == np.float64
    assert got["anomaly_score"].shape == got["is_anomaly"].shape == (len(ours),)
    np.testing.assert_allclose(got["anomaly_score"], ours, atol=tolerance, rtol=tolerance)
    assert np.ptp(ours) > 100 * tolerance  # a constant would agree with anything
    flags = model.predict(rows) == -1
    assert 0 < flags.sum() < len(flags)
    np.testing.assert_array_equal(got["is_anomaly"], flags)


# --- linear and maps ---------------------------------------------------------------------


@each(("feature_map", "scale"), itertools.product([None, "rbf", "nystroem", "poly"], [True, False]))
def test_shallow(feature_map, scale):
    X, y, _ = make_contaminated_rows()
    model = riskad.ShallowRAD(feature_map=feature_map, scale=scale, lam="tight").fit(X, y)
    assert_parity(model, to_onnx(model), X, tolerance=1e-9)


def make_table(n=400, seed=0):
    """Numbers with and without blanks, a column that is only at times there, texts of two kinds."""
    rng = np.random.default_rng(seed)
    odd = rng.random(n) < 0.15
    amount = np.where(odd, rng.normal(90, 10, n), rng.normal(30, 10, n))
    age = rng.normal(40, 10, n)
    table = pl.DataFrame(
        {
            "amount": amount,
            "the age": pl.Series(age).set(pl.Series(rng.random(n) < 0.2), None),
            "flag": pl.Series(np.where(rng.random(n) < 0.5, "1", ""), dtype=pl.String),
            "country": np.where(odd, rng.choice(["XX", "FR", "é"], n), "FR"),
            "city": pl.Series(
                ["once", *(None if u < 0.1 else f"c{int(8 * u)}" for u in rng.random(n - 1))]
            ),
            "constant": "same",
        }
    )
    y = np.where(rng.random(n) < 0.4, np.where(odd, -1, 1), 0)
    return table, y


def as_inputs(table):
    """The table as a graph takes it: numbers as numbers."""
    return table.with_columns(pl.col("flag").replace("", None).cast(pl.Float64))


@each("feature_map", [None, "rbf", "nystroem", "poly"])
def test_a_table_of_numbers_texts_and_blanks(feature_map):
    table, y = make_table()
    detector = riskad.ShallowRAD(feature_map=feature_map, lam="tight")
    model = Pipeline([("prepare", TablePreparer()), ("detect", detector)]).fit(table, y)
    proto = to_onnx(model)
    names = [entry.name for entry in proto.graph.input]
    assert names == ["amount", "the age", "flag", "country", "city"]  # nothing that was dropped
    assert_parity(model, proto, as_inputs(table), tolerance=1e-9)


def test_new_values_and_blanks_that_training_had_not():
    table, y = make_table()
    model = make_pipeline(TablePreparer(), riskad.ShallowRAD()).fit(table, y)
    names = set(model[0].get_feature_names_out())
    assert {"city=(other)", "city=(blank)"} <= names
    assert "country=(other)" not in names
    new = as_inputs(make_table(seed=1)[0]).with_columns(
        amount=pl.when(pl.int_range(pl.len()) % 7 == 0).then(None).otherwise("amount"),
        country=pl.when(pl.int_range(pl.len()) % 5 == 0).then(pl.lit("ZZ")).otherwise("country"),
        city=pl.when(pl.int_range(pl.len()) % 3 == 0).then(pl.lit("new")).otherwise("city"),
    )
    with pytest.warns(riskad.tables.preparation.NotAsInTraining):
        assert_parity(model, to_onnx(model), new, tolerance=1e-9)


@each("feature_map", [None, "rbf", "poly"])
def test_sparse_tables_are_scaled_but_not_centred_before_a_map(feature_map):
    rng = np.random.default_rng(0)
    n = 500
    odd = rng.random(n) < 0.2
    level = np.where(odd, rng.integers(0, 6, n), rng.integers(4, 24, n))
    table = pl.DataFrame({"code": [f"k{i}" for i in level], "x": rng.normal(0, 1, n) + 2 * odd})
    y = np.where(rng.random(n) < 0.4, np.where(odd, -1, 1), 0)
    model = make_pipeline(
        TablePreparer(), riskad.ShallowRAD(feature_map=feature_map, lam="tight")
    ).fit(table, y)
    assert model[0].sparse_
    assert_parity(model, to_onnx(model), table, tolerance=1e-9)


# --- networks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("DeepRAD", {}),
        ("DeepRAD", {"loss": "sigmoid", "module": (8, 8, 4), "scale": False}),
        ("NNPU", {"prior": 0.7}),
        ("DeepSAD", {"eta": 10.0, "pretrain_iter": 20}),
    ],
)
def test_networks_over_tables(kind, settings):
    pytest.importorskip("torch")
    X, y, _ = make_contaminated_rows(400)
    model = getattr(riskad, kind)(max_iter=40, device="cpu", **settings).fit(X, y)
    proto = to_onnx(model)
    ours = -model.score_samples(X)
    got = run(proto, {"X": X})
    scale = max(1.0, np.abs(ours).max()) if kind == "DeepSAD" else 1.0
    np.testing.assert_allclose(got["anomaly_score"], ours, atol=GRAPH_TOLERANCE * scale)
    clear = np.abs(ours + model.offset_) > GRAPH_TOLERANCE * scale
    np.testing.assert_array_equal(got["is_anomaly"][clear], (model.predict(X) == -1)[clear])


@each(("kind", "module"), [("DeepRAD", "lenet-mnist"), ("DeepSAD", "lenet-fmnist")])
def test_networks_over_images(module, kind):
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3, 9, 11)).astype(np.float32)  # odd sides: the last row is not pooled
    y = np.repeat([1, 0, -1], [30, 30, 20])
    X[y == -1] += 1
    brief = {"pretrain_iter": 5} if kind == "DeepSAD" else {}
    model = getattr(riskad, kind)(module, max_iter=10, device="cpu", **brief).fit(X, y)
    got = run(to_onnx(model), {"X": X})["anomaly_score"]
    np.testing.assert_allclose(
        got, -model.score_samples(X), atol=GRAPH_TOLERANCE, rtol=GRAPH_TOLERANCE
    )


def test_a_module_of_ones_own_is_not_known():
    torch = pytest.importorskip("torch")
    X, y, _ = make_contaminated_rows(200)
    net = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Flatten(0))
    model = riskad.DeepRAD(net, max_iter=2, device="cpu").fit(X, y)
    with pytest.raises(InputError, match=r"module of your own.*torch\.onnx"):
        to_onnx(model)


# --- trees -------------------------------------------------------------------------------


def tree_rows(n=1500, seed=0):
    """Numbers with gaps, a column without any, one of zeros and ones, and categories."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    X[:, 2] = rng.integers(0, 2, n)
    X[:, 4] = rng.integers(0, 12, n)
    gaps = rng.random((n, 5)) < 0.1
    gaps[:, 1] = False
    X[gaps] = np.nan
    target = np.nan_to_num(X[:, 0], nan=2) + X[:, 1] ** 2 + np.isin(X[:, 4], [1, 5, 6]) * X[:, 1]
    return X, target


def run_trees(trees, rows):
    graph = Graph(onnx)
    X = graph.input("X", onnx.TensorProto.DOUBLE, (trees.n_features,), "")
    graph.output("anomaly_score", trees.onnx(graph, X), onnx.TensorProto.DOUBLE)
    return run(graph.model("trees"), {"X": rows})["anomaly_score"]


@pytest.mark.parametrize(
    "settings",
    [{}, {"use_missing": False}, {"extra_trees": True, "num_leaves": 3}, {"max_cat_to_onehot": 1}],
)
def test_trees_of_lightgbm(settings):
    lightgbm = pytest.importorskip("lightgbm")
    X, target = tree_rows()
    settings = {"verbosity": -1, "num_threads": 1, "min_data_per_group": 5, **settings}
    data = lightgbm.Dataset(X, target, categorical_feature=[4], params=settings)
    booster = lightgbm.train(settings, data, 60)
    trees = from_lightgbm(booster)
    assert trees.categorical.any()
    np.testing.assert_allclose(
        run_trees(trees, edges(trees)), booster.predict(edges(trees)), atol=1e-12
    )


def edges(trees):
    """Rows with gaps, a category that was never seen, and values on a threshold."""
    new, _ = tree_rows(seed=1)
    new[:50, 4] = 40
    new[50:100] = np.nan
    new[100:150, 0] = trees.threshold[trees.feature == 0][0]
    return new


def test_trees_of_histogram_boosting():
    model = HistGradientBoostingRegressor(max_iter=40).fit(*tree_rows())
    trees = from_hist_gradient_boosting(model)
    new = edges(trees)
    np.testing.assert_allclose(run_trees(trees, new), model.predict(new), atol=1e-12)


def test_a_tree_without_a_split():
    lone = from_hist_gradient_boosting(
        HistGradientBoostingRegressor(max_iter=1).fit(np.eye(2), [1.5, 1.5])
    )
    rows = np.array([[0.0, 1.0], [np.nan, 3.0]])
    np.testing.assert_array_equal(run_trees(lone, rows), [1.5] * 2)


@pytest.mark.parametrize("kind", ["boosted", "boosted, prepared", "forest, prepared"])
def test_trees_over_texts_and_gaps(kind):
    table, y = make_table()
    table = as_inputs(table).drop("constant")
    model = riskad.ForestRAD(n_estimators=20)
    if kind.startswith("boosted"):
        pytest.importorskip("lightgbm")
        model = riskad.BoostedRAD(max_iter=30)
    model = make_pipeline(TablePreparer(), model) if kind.endswith("prepared") else model
    assert_parity(model.fit(table, y), to_onnx(model), table, tolerance=1e-9)


@pytest.mark.parametrize("kind", ["forest", "forest of gaps", "compressed"])
def test_trees_of_a_detector(kind, tmp_path):
    X, y, _ = make_contaminated_rows()
    X[::7, 1] = 0.0 if kind == "forest" else np.nan
    if kind == "compressed":
        model = CompressedRAD(max_iter=10)._learn(riskad.AutoRAD(budget=1).fit(X, y))
    else:
        model = riskad.ForestRAD(n_estimators=30).fit(X, y)
    new = make_contaminated_rows(seed=1)[0]
    new[:100] = X[:100]
    # On the edge, and next to it in double precision.
    edge, column = float(model.trees_.threshold[0]), model.trees_.feature[0]
    new[100:110, column], new[110:120, column] = edge, np.nextafter(edge, 9)
    new[120:140, :2] = np.nan
    assert_parity(model, to_onnx(model), new, tolerance=1e-9)
    assert export(model, tmp_path / "model.onnx").largest_difference < 1e-9


# --- the file ----------------------------------------------------------------------------


def test_a_graph_that_differs_is_not_written(tmp_path, contaminated_rows, monkeypatch):
    X, y, _ = contaminated_rows
    model = riskad.ShallowRAD().fit(X, y)
    proto = to_onnx(model)
    monkeypatch.setattr("riskad.app.onnx.to_onnx", lambda model: proto)
    model.coef_ = model.coef_ + 1e-3
    with pytest.raises(InputError, match="other scores than the model"):
        export(model, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_without_onnx_the_remedy_is_said(tmp_path, contaminated_rows, monkeypatch):
    X, y, _ = contaminated_rows
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(InputError, match=r"pip install 'riskad\[onnx\]'"):
        export(riskad.ShallowRAD().fit(X, y), tmp_path / "model.onnx")


def test_what_cannot_be_exported_says_what_can(contaminated_rows):
    X, y, _ = contaminated_rows
    own_map = riskad.ShallowRAD(feature_map=SkewedChi2Sampler(skewedness=100), scale=False)
    for model in (
        own_map.fit(X, y),
        make_pipeline(StandardScaler(), riskad.ShallowRAD()).fit(X, y),
    ):
        with pytest.raises(InputError, match=r"cannot be exported.*(shallow|poly|ShallowRAD)"):
            to_onnx(model)
    with pytest.raises(InputError, match="not fitted"):
        to_onnx(riskad.ShallowRAD())
