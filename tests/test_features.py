"""Feature maps learned from all rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline

import riskad
from riskad import InputError, ShallowRAD
from riskad.detectors.features import (
    GaussianKernels,
    LearnedFeatures,
    NeighbourDistances,
    OutlierScores,
    SmoothScaler,
    TreeLeaves,
)
from riskad.detectors.features.native import native_columns
from riskad.rows.encoding import fit_encoder
from riskad.storage.codec import build

MAPS = [
    GaussianKernels(n_components=30),
    TreeLeaves(20),
    OutlierScores(),
    NeighbourDistances(),
    SmoothScaler(),
    LearnedFeatures(),
    LearnedFeatures(["kernels", "columns"], smooth=True),
]
NAMES = [type(each).__name__ for each in MAPS]


def dense(features):
    return features.toarray() if hasattr(features, "toarray") else features


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, 100]
    return X, np.repeat([1, -1, 0], [20, 8, 92])


@pytest.mark.parametrize("features", MAPS, ids=NAMES)
def test_maps_are_transformers_that_repeat_themselves(features, rows):
    X, y = rows
    first, second = clone(features).fit(X, y), clone(features).fit(X, y)
    new = X + 0.01
    assert np.array_equal(dense(first.transform(new)), dense(second.transform(new)))
    assert dense(first.transform(new)).shape == (120, len(first.get_feature_names_out()))
    assert np.isfinite(dense(first.transform(new * 1e6))).all()


@pytest.mark.parametrize("features", MAPS, ids=NAMES)
def test_maps_keep_what_they_learned_on_disk(features, rows, tmp_path):
    X, y = rows
    fitted = clone(features).fit(X, y)
    riskad.save(fitted, tmp_path / "map.riskad")
    loaded = riskad.load(tmp_path / "map.riskad")
    assert np.array_equal(dense(loaded.transform(X)), dense(fitted.transform(X)))


@pytest.mark.parametrize("features", MAPS, ids=NAMES)
def test_maps_compose_with_a_linear_detector(features, rows):
    X, y = rows
    model = make_pipeline(clone(features), ShallowRAD(scale=False, lam=0.01)).fit(X, y)
    assert np.isfinite(model.score_samples(X)).all()


def test_kernels_are_near_gaussian_ones_of_the_median_distance(rows):
    X, _ = rows
    features = GaussianKernels((2.0,), n_components=120).fit(X)
    assert features.median_ == pytest.approx(np.median(pdist(X, "sqeuclidean")))
    F = features.transform(X)
    exact = rbf_kernel(X, gamma=1 / (2 * features.median_))
    assert np.abs(F @ F.T - exact).max() < 1e-6


def test_kernels_do_not_depend_on_the_units_of_a_table(rows):
    X, _ = rows
    F, G = (GaussianKernels(n_components=20).fit_transform(scale * X) for scale in (1, 1000))
    assert np.abs(F - G).max() < 1e-8


def test_isolation_scores_are_as_near_to_scikit_learns_as_two_of_its_seeds(rows):
    X, _ = rows

    def theirs(seed):
        scores = -IsolationForest(random_state=seed).fit(X).score_samples(X)
        return ((scores - scores.mean()) / scores.std()).clip(-5, 5)

    apart = np.mean([np.abs(theirs(seed) - theirs(seed + 3)).mean() for seed in range(3)])
    ours = [OutlierScores(random_state=seed).fit(X).transform(X)[:, 0] for seed in range(3)]
    assert np.mean([np.abs(ours[s] - theirs(s)).mean() for s in range(3)]) < 1.2 * apart


def test_a_training_row_is_not_its_own_neighbour(rows):
    X, _ = rows
    k = 3
    distances = np.sort(cdist(X, X), axis=1)[:, k]  # the first is the row itself
    scores = OutlierScores(k).fit_transform(X)[:, 1]
    order = np.argsort(distances)
    assert (np.diff(scores[order]) >= -1e-12).all()


def test_distances_to_labels_leave_the_row_itself_out(rows):
    X, y = rows
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    found = NeighbourDistances().fit_transform(Z, y)
    D = cdist(Z, Z) + np.where(np.eye(len(Z)), np.inf, 0)
    floor = 1e-3 * np.median(pdist(Z, "sqeuclidean")) ** 0.5
    for column, kind in enumerate((1, -1, 0)):
        expected = np.log(D[:, y == kind].min(axis=1) + floor)
        assert np.abs(found[:, column] - expected).max() < 1e-6
    assert np.allclose(found[:, 3], found[:, 0] - found[:, 1])


def test_the_only_anomaly_is_no_nearer_to_itself_than_others_are():
    X = np.arange(20.0)[:, None]
    y = np.array([1] * 10 + [-1] + [0] * 9)
    found = NeighbourDistances(unlabelled=False).fit_transform(X, y)
    assert found[10, 1] == pytest.approx(np.median(found[y != -1, 1]))


def test_a_kind_of_label_that_is_absent_has_no_column(rows):
    X, y = rows
    only = np.where(y == 1, 0, y)
    assert NeighbourDistances(unlabelled=False).fit_transform(X, only).shape == (120, 1)
    with pytest.raises(InputError, match="no labelled row"):
        NeighbourDistances(unlabelled=False).fit(X, np.zeros(120, dtype=int))


def test_smooth_scales_ignore_a_few_huge_values(rows):
    X, _ = rows
    wild = X.copy()
    wild[:5, 1] = 1e12
    calm, drawn_in = (SmoothScaler().fit(each).transform(X)[:, 1] for each in (X, wild))
    assert np.abs(calm - drawn_in).max() < 0.5
    assert np.abs(SmoothScaler().fit_transform(wild)).max() <= 3


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
    features = LearnedFeatures(["outliers", "kernels", "shapes", "columns", "distances"])
    F = features.fit(X, y).transform(X)
    assert [*features.slices_] == ["outliers", "kernels", "shapes", "columns", "distances"]
    assert F.shape[1] == sum(s.stop - s.start for s in features.slices_.values())
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert np.allclose(F[:, features.slices_["columns"]], Z)
    assert np.allclose(
        F[:, features.slices_["outliers"]], OutlierScores().fit(Z).transform(Z), atol=1e-8
    )


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
    native = native_columns(encoder, view)
    new = table.copy()
    new[3, 1] = np.nan  # which is filled: it was never blank in fit
    Z = view.columns_of(encoder.transform(new))
    numbers, mark = Z[:, :d].copy(), Z[:, [d + 2]]
    numbers[::2, 0], numbers[7, 2] = np.nan, np.nan
    codes = np.where(np.isnan(level) | (level == 3), 3, level)
    expected = np.column_stack([numbers, mark, codes])
    np.testing.assert_array_equal(native.transform(Z, new), expected)
    assert native.n_features_out_ == expected.shape[1]
    assert native_columns(fit_encoder(table[:, 1:2], {}, seed=0), view) is None


def test_wrong_settings_are_refused(rows):
    X, y = rows
    with pytest.raises(InputError, match="parts"):
        LearnedFeatures(["colours"]).fit(X, y)
    with pytest.raises(InputError, match="needs y"):
        LearnedFeatures().fit(X)
    with pytest.raises(InputError, match="widths"):
        GaussianKernels((0.0,)).fit(X)


def test_smooth_scales_of_values_whose_squares_overflow():
    scaler = SmoothScaler().fit(np.arange(5.0)[:, None])
    np.testing.assert_allclose(scaler.transform([[1e200], [-1e200]]).ravel(), [3.0, -3.0])


def test_files_whose_trees_do_not_fit_the_map_are_refused(rows):
    X, _ = rows
    leaves, outliers = TreeLeaves(3).fit(X), OutlierScores().fit(X)
    for model, change, message in (
        (leaves, {"n_features_out_": leaves.n_features_out_ + 1}, "another number of leaves"),
        (leaves, {"trees_": outliers.trees_}, "another number of leaves"),
        (leaves, {"trees_": replace(leaves.trees_, value=leaves.trees_.value + 1)}, "each leaf"),
        (outliers, {"trees_": OutlierScores().fit(X[:, :2]).trees_}, "of other columns"),
    ):
        with pytest.raises(InputError, match=message):
            build(type(model), vars(model) | change)
