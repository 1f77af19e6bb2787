"""Tables as finite numbers, and tables given to detectors directly."""

import numpy as np
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from support.loops import each
from support.rows import dense

import riskad
from riskad import AutoRAD, BoostedRAD, ForestRAD, InputError, ShallowRAD
from riskad.detectors.outlier_mean import OutlierMean
from riskad.rows.encoding import OneHotImputer
from riskad.rows.table import Table, TableSchema

_TEXTS = [f"v{i}" for i in range(40)]


def mixed(n=400, seed=0, levels=4):
    """Numbers, of which two have blanks and one never varies, an hour, and two categories."""
    rng = np.random.default_rng(seed)
    values = np.column_stack(
        [
            rng.normal(size=n),
            np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
            np.where(rng.random(n) < 0.1, np.nan, 7.0),
            rng.uniform(0, 24, n),
            np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, levels, n)),
            np.full(n, 1.0),
        ]
    )
    texts = {4: _TEXTS[:levels], 5: ["no", "yes"]}
    return Table(values, ("a", "b", "same", "at: hour", "kind", "flag"), texts, {3: 24.0})


def graph_values(encoder, values):
    onnxruntime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from riskad.app.onnx import Graph

    graph = Graph(onnx)
    rows = graph.input("X", onnx.TensorProto.DOUBLE, (values.shape[1],), "")
    graph.output("Z", encoder.onnx_rows(graph, rows), onnx.TensorProto.DOUBLE)
    session = onnxruntime.InferenceSession(graph.model("encoder").SerializeToString())
    return session.run(None, {"X": values})[0].reshape(len(values), -1)


@each("many", ["other", "codes"])
def test_numbers_then_marks_then_levels(many):
    table = mixed()
    encoder = OneHotImputer(many=many).fit(table)
    names = ["a", "b", "at: hour (sine)", "at: hour (cosine)"]
    names += ["b is blank", "same is blank", "kind=v0", "kind=v1", "kind=v2", "kind=v3"]
    names += ["kind=(blank)", "flag=yes"] if many == "other" else ["flag=yes"]
    columns = [0, 1, 3, 3, 1, 2, *[4] * (5 if many == "other" else 4), 5]
    if many == "codes":
        names.insert(2, "same")
        columns.insert(2, 2)
    assert encoder.get_feature_names_out().tolist() == names
    assert encoder.columns_.tolist() == columns
    assert encoder.n_features_out_ == len(names)
    rows = dict(zip(names, dense(encoder.transform(table)).T, strict=True))
    assert all(np.isfinite(each).all() for each in rows.values())
    blank = np.isnan(table.values[:, 1])
    np.testing.assert_array_equal(rows["b is blank"], blank)
    assert (rows["b"][blank] == np.nanmedian(table.values[:, 1])).all()
    angle = table.values[:, 3] * (2 * np.pi / 24)
    np.testing.assert_allclose(rows["at: hour (sine)"], np.sin(angle), atol=1e-12)
    np.testing.assert_allclose(rows["at: hour (cosine)"], np.cos(angle), atol=1e-12)
    np.testing.assert_array_equal(rows["kind=v2"], table.values[:, 4] == 2)
    plain = clone(encoder).set_params(cyclic=False).fit(table)
    assert "at: hour" in plain.get_feature_names_out()


def test_rare_levels_share_a_column():
    """Of 1,000 rows a level needs 5; new levels are like rare ones, if there were any."""
    counts = {0: 500, 1: 300, 2: 100, 3: 50, 4: 5, 5: 4, np.nan: 41}
    column = np.repeat([*counts], [*counts.values()])
    texts = {0: [f"v{i}" for i in range(6)]}
    new = np.array([[5.0], [6.0], [np.nan], [1.0]])
    for most, levels, expected in (
        (50, ["v0", "v1", "v2", "v3", "v4", "(blank)", "(other)"], ["(other)"] * 2 + ["(blank)"]),
        (3, ["v0", "v1", "v2", "(other)"], ["(other)"] * 3),
    ):
        encoder = OneHotImputer(max_levels=most).fit(Table(column[:, None], ("c",), texts))
        names = encoder.get_feature_names_out()
        assert names.tolist() == [f"c={level}" for level in levels]
        rows = dense(encoder.transform(new))
        assert names[rows.argmax(axis=1)].tolist() == [f"c={e}" for e in [*expected, "v1"]]
        assert (rows.sum(axis=1) == 1).all()
    often = column[~np.isnan(column) & (column < 5)]
    encoder = OneHotImputer().fit(Table(often[:, None], ("c",), texts))
    assert dense(encoder.transform(new)).sum(axis=1).tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("settings", [{}, {"many": "codes", "max_levels": 10}, {"max_levels": 3}])
@pytest.mark.parametrize("levels", [4, 40])
def test_sparse_rows_graphs_and_files_are_the_same_encoding(settings, levels, tmp_path):
    table = mixed(levels=levels)
    encoder = OneHotImputer(**settings).fit(table)
    expected = encoder.transform(table)
    assert encoder.sparse_ == sparse.issparse(expected) == (settings == {} and levels == 40)
    expected = dense(expected)
    new = mixed(50, seed=1, levels=levels).values
    few = sparse.csr_matrix(np.nan_to_num(new))
    for rows in (new, few.toarray()):
        np.testing.assert_allclose(graph_values(encoder, rows), dense(encoder.transform(rows)))
    np.testing.assert_array_equal(
        dense(encoder.transform(few)), dense(encoder.transform(few.toarray()))
    )
    np.testing.assert_array_equal(dense(encoder.transform(table[:3])), expected[:3])
    riskad.save(encoder, tmp_path / "encoder.riskad")
    loaded = riskad.load(tmp_path / "encoder.riskad")
    np.testing.assert_array_equal(dense(loaded.transform(table)), expected)


def labels(table):
    return np.repeat([1, 0, -1], [60, len(table) - 80, 20])


@pytest.mark.usefixtures("few_members")
@pytest.mark.parametrize(
    "detector",
    [ForestRAD(n_estimators=20), BoostedRAD(max_iter=20), OutlierMean(), AutoRAD(budget=5)],
    ids=lambda each: type(each).__name__,
)
def test_a_table_is_the_frame_it_was_read_from(detector, tmp_path):
    rng = np.random.default_rng(0)
    n = 300
    frame = pl.DataFrame(
        {
            "a": [None if i % 9 == 0 else x for i, x in enumerate(rng.normal(size=n))],
            "town": rng.choice(["Ulm", "Bonn", None], n).tolist(),
            "shop": [f"shop {i}" for i in rng.integers(0, 20, n)],
        }
    )
    table = TableSchema.learn(frame).read(frame)
    y = labels(table)
    model = clone(detector).fit(table, y)
    expected = clone(detector).fit(frame, y)
    assert model.schema_ == expected.schema_
    assert model.feature_names_in_.tolist() == ["a", "town", "shop"]
    for rows in (table, frame, frame.to_pandas(), frame.to_arrow(), frame.lazy()):
        np.testing.assert_array_equal(model.score_samples(rows), expected.score_samples(frame))
    np.testing.assert_allclose(model.score_samples(table[:5]), model.score_samples(frame[:5]))
    renamed = Table(table.values, ("a", "city", "shop"), table.levels)
    with pytest.raises(InputError, match=r"columns 'a', 'city', 'shop'.*same columns in the same"):
        model.score_samples(renamed)
    others = Table(table.values, table.names, {**table.levels, 1: ["Bonn", "Ulm"]})
    with pytest.raises(InputError, match=r"'town' has the levels 'Bonn', 'Ulm', others than"):
        model.score_samples(others)
    infinite = np.where(np.isnan(table.values), np.inf, table.values)
    with pytest.raises(InputError, match=r"an infinity \(inf\).*column 'a'"):
        model.score_samples(Table(infinite, table.names, table.levels))


def test_methods_of_numbers_take_a_table_of_numbers():
    table = mixed()
    y = labels(table)
    numbers = Table(table.values[:, [0, 3]], ("a", "at"))
    expected = ShallowRAD().fit(numbers.values, y).score_samples(numbers.values)
    np.testing.assert_array_equal(ShallowRAD().fit(numbers, y).score_samples(numbers), expected)
    with pytest.raises(InputError, match=r"categories in 'kind', 'flag'.*OneHotImputer"):
        ShallowRAD().fit(table, y)
    filled = OneHotImputer().fit_transform(Table(table.values[:, :5], table.names, {4: _TEXTS}))
    assert np.isfinite(ShallowRAD().fit(filled, y).score_samples(filled)).all()
