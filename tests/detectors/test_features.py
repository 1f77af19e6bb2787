"""Feature maps learned from all rows."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.metrics.pairwise import rbf_kernel
from support.loops import each

import riskad
from riskad import InputError
from riskad.detectors.features import LearnedFeatures, SmoothScaler
from riskad.detectors.features.maps import GaussianKernels, OutlierScores
from riskad.detectors.features.union import NativeColumns
from riskad.files.codec import build
from riskad.rows.encoding import fit_encoder

MAPS = [SmoothScaler(), LearnedFeatures(), LearnedFeatures(["kernels", "columns"], smooth=True)]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, 100]
    return X, np.repeat([1, -1, 0], [20, 8, 92])


@each("features", MAPS)
def test_maps_are_transformers_that_repeat_themselves(features, rows, tmp_path):
    X, y = rows
    first, second = clone(features).fit(X, y), clone(features).fit(X, y)
    new = X + 0.01
    assert np.array_equal(first.transform(new), second.transform(new))
    assert first.transform(new).shape == (120, len(first.get_feature_names_out()))
    assert clone(features).fit_transform(X, y).shape == first.transform(X).shape
    assert np.isfinite(first.transform(new * 1e6)).all()
    riskad.save(first, tmp_path / "map.riskad", force=True)
    assert np.array_equal(riskad.load(tmp_path / "map.riskad").transform(X), first.transform(X))


def test_kernels_are_near_gaussian_ones_of_the_median_distance(rows):
    X, _ = rows
    kernels, F = GaussianKernels.fit_transform(X, seed=0, widths=(2.0,))
    median = np.median(pdist(X, "sqeuclidean"))
    assert kernels.gammas == pytest.approx([1 / (2 * median)])
    assert np.abs(F @ F.T - rbf_kernel(X, gamma=1 / (2 * median))).max() < 1e-6


@each("widths", [(0.5, 1.0, 2.0), (1.0, 3.0), (2.0,), (4.0, 1.0, 2.0)])
def test_kernels_do_not_depend_on_units_and_give_products_without_features(rows, widths):
    X, _ = rows
    kernels, F = GaussianKernels.fit_transform(X, seed=0, widths=widths)
    _, G = GaussianKernels.fit_transform(1000 * X, seed=0, widths=widths)
    assert np.abs(F @ F.T - G @ G.T).max() < 1e-6
    weights = np.random.default_rng(0).normal(size=(F.shape[1], 2))
    np.testing.assert_allclose(kernels.products(X, weights), F @ weights, rtol=1e-6, atol=1e-6)


def test_isolation_scores_are_as_near_to_scikit_learns_as_two_of_its_seeds(rows):
    X, _ = rows

    def theirs(seed):
        scores = -IsolationForest(random_state=seed).fit(X).score_samples(X)
        return ((scores - scores.mean()) / scores.std()).clip(-5, 5)

    apart = np.mean([np.abs(theirs(seed) - theirs(seed + 3)).mean() for seed in range(3)])
    maps = [OutlierScores.fit_transform(X, seed)[0] for seed in range(3)]
    ours = [scores.transform(X)[:, 0] for scores in maps]
    assert np.mean([np.abs(ours[s] - theirs(s)).mean() for s in range(3)]) < 1.2 * apart


def test_a_training_row_is_not_its_own_neighbour(rows):
    X, _ = rows
    distances = np.sort(cdist(X, X), axis=1)[:, 10]  # the first is the row itself
    scores = OutlierScores.fit_transform(X, seed=0)[1][:, 1]
    assert (np.diff(scores[np.argsort(distances)]) >= -1e-12).all()


def test_smooth_scales_ignore_a_few_huge_values(rows):
    X, _ = rows
    wild = X.copy()
    wild[:5, 1] = 1e12
    calm, drawn_in = (SmoothScaler().fit(each).transform(X)[:, 1] for each in (X, wild))
    assert np.abs(calm - drawn_in).max() < 0.5
    assert np.abs(SmoothScaler().fit_transform(wild)).max() <= 3
    scaler = SmoothScaler().fit(np.arange(5.0)[:, None])  # squares of 1e200 overflow
    np.testing.assert_allclose(scaler.transform([[1e200], [-1e200]]).ravel(), [3.0, -3.0])


def test_columns_of_a_single_value_are_dropped(rows):
    X, y = rows
    X = np.column_stack([X, np.full(120, 7.0)])
    for smooth in (False, True):
        features = LearnedFeatures(["columns"], smooth=smooth).fit(X, y)
        assert features.transform(X).shape == (120, 4)
    with pytest.raises(InputError, match="single value"):
        LearnedFeatures(["columns"]).fit(np.ones((9, 2)), np.zeros(9, dtype=int))


def test_parts_stand_where_slices_say(rows):
    X, y = rows
    features = LearnedFeatures(["outliers", "kernels", "components", "columns"])
    F = features.fit(X, y).transform(X)
    assert [*features.slices_] == ["outliers", "kernels", "components", "columns"]
    assert F.shape[1] == sum(s.stop - s.start for s in features.slices_.values())
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert np.allclose(F[:, features.slices_["columns"]], Z)
    outliers = OutlierScores.fit_transform(Z, seed=0)[0].transform(Z)
    assert np.allclose(F[:, features.slices_["outliers"]], outliers, atol=1e-8)


def test_native_columns_are_those_of_the_table(rows):
    """On the scale of the encoded columns; what never varies but for its blanks is its mark."""
    X, _ = rows
    n, d = X.shape
    X[::2, 0], X[7, 2] = np.nan, np.nan
    same, level = np.ones(n), np.arange(n) % 4.0
    same[5], level[level == 3] = np.nan, np.nan  # blanks have no yes/no column of their own
    level[9] = 3  # nor has a level of a single row
    table = np.column_stack([X, level, same])
    encoder = fit_encoder(table, {d: ["a", "b", "c", "d"]}, seed=0)
    view = LearnedFeatures(["columns"]).fit(encoder.transform(table))
    native = NativeColumns.of(encoder, view)
    new = table.copy()
    new[3, 1] = np.nan  # which is filled: it was never blank in fit
    Z = view.columns_of(encoder.transform(new))
    numbers, mark = Z[:, :d].copy(), Z[:, [d + 2]]
    numbers[::2, 0], numbers[7, 2] = np.nan, np.nan
    codes = np.where(np.isnan(level) | (level == 3), 3, level)
    expected = np.column_stack([numbers, mark, codes])
    np.testing.assert_array_equal(native.transform(Z, new), expected)
    assert native.n_features_out_ == expected.shape[1]
    assert NativeColumns.of(fit_encoder(table[:, 1:2], {}, seed=0), view) is None


def test_wrong_settings_are_refused(rows):
    X, y = rows
    with pytest.raises(InputError, match="parts"):
        LearnedFeatures(["colours"]).fit(X, y)
    with pytest.raises(InputError, match="widths"):
        LearnedFeatures(["kernels"], widths=(0.0,)).fit(X)


def test_files_whose_parts_do_not_fit_each_other_are_refused(rows):
    X, _ = rows
    features = LearnedFeatures(["columns", "outliers", "kernels"]).fit(X)
    outliers, narrow = features.maps_["outliers"], LearnedFeatures(["outliers"]).fit(X[:, :2])
    other = narrow.maps_["outliers"]
    for model, change, message in (
        (outliers, {"trees": other.trees}, "of another size"),
        (outliers, {"rows": outliers.rows[:0]}, "rows: expected at least one value"),
        (features, {"maps_": features.maps_ | {"outliers": other}}, "of other columns"),
        (features, {"maps_": {"outliers": outliers}}, "without their maps"),
    ):
        with pytest.raises(InputError, match=message):
            build(type(model), vars(model) | change)
