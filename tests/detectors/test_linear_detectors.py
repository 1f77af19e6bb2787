"""The parts of linear detectors, each by itself: `riskad.detectors.linear`."""

import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.preprocessing import PolynomialFeatures
from support.loops import each

import riskad
from riskad import ShallowRAD
from riskad.core.checks import DataWarning, InputError
from riskad.core.objective import Objective
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.linear.detector import risk_parts
from riskad.detectors.linear.feature_maps import fit_features, standardise
from riskad.detectors.registry import DETECTORS
from riskad.detectors.shallow import checked_statistics
from riskad.rows.linear import LinearModel, column_statistics
from riskad.rows.sources import RowBlocks, sample_in_memory
from riskad.solvers import Problem, solve


def test_features_are_standardised_columns_or_what_a_map_makes_of_them():
    X, y, _ = make_contaminated_rows(200, 3)
    rows = RowBlocks(X, y)
    statistics = column_statistics(rows)
    plain = fit_features(None, rows, statistics, scale=True, seed=0)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(plain(X), Z, atol=1e-12)
    np.testing.assert_array_equal(fit_features(None, rows, None, scale=False, seed=0)(X), X)
    mapped = fit_features("poly", rows, statistics, scale=True, seed=0)
    products = mapped.of_rows(rows).X
    np.testing.assert_allclose(products, mapped(X))
    np.testing.assert_allclose(products[:, 3], Z[:, 0] ** 2, atol=1e-12)


def test_a_map_learns_nothing_from_rows_without_weight():
    X, y, _ = make_contaminated_rows(200, 3)
    weight = np.ones(200)
    weight[:50], X[:50] = 0, 1e6
    weighted, absent = (
        fit_features(PCA(2), rows, None, scale=False, seed=0).feature_map.components_
        for rows in (RowBlocks(X, y, weight), RowBlocks(X[50:], y[50:]))
    )
    np.testing.assert_array_equal(weighted, absent)


def test_sparse_rows_are_scaled_but_not_centred():
    X = sparse.csr_array([[2.0, 0.0], [0.0, 3.0]])
    found = standardise(X, np.array([5.0, 5.0]), np.array([2.0, 3.0]))
    np.testing.assert_array_equal(found.toarray(), np.eye(2))


def test_named_maps_need_no_more_components_than_rows():
    rows = RowBlocks(*make_contaminated_rows(20, 4)[:2])
    landmarks = fit_features("nystroem", rows, None, scale=False, seed=0).feature_map
    assert len(landmarks.landmarks) == 20
    assert landmarks.gamma == 0.25
    with pytest.raises(InputError, match="Did you mean 'poly'"):
        fit_features("polly", rows, None, scale=False, seed=0)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("rbf", RBFSampler(gamma=0.25, n_components=300, random_state=3)),
        ("nystroem", Nystroem(gamma=0.25, n_components=200, random_state=3)),
        ("poly", PolynomialFeatures(degree=2, include_bias=False)),
    ],
)
def test_named_maps_are_those_of_scikit_learn(name, same):
    X, y, _ = make_contaminated_rows(200, 4)
    for rows in (X, sparse.csr_array(np.where(X > 0.5, X, 0.0))):
        named = fit_features(name, RowBlocks(rows, y), None, scale=False, seed=3)
        found, expected = named.transform(rows), same.fit_transform(rows)
        assert sparse.issparse(found) == sparse.issparse(expected)
        if sparse.issparse(found):
            found, expected = found.toarray(), expected.toarray()
        np.testing.assert_allclose(found, expected, atol=1e-12)
        assert named.feature_map.n_features_in_ == 4
        assert named.feature_map.n_features_out_ == found.shape[1]


def test_samples_hold_no_row_without_weight():
    X, y, _ = make_contaminated_rows(300, 2)
    weight = np.random.default_rng(0).integers(0, 2, 300).astype(float)
    for n in (50, 1000):
        some = sample_in_memory(RowBlocks(X, y, weight), n, np.ones(3), seed=0)
        assert (some.sample_weight > 0).all()
        assert some.n_rows <= n + 3


def test_columns_that_do_not_vary_are_named():
    X, y, _ = make_contaminated_rows(100, 3)
    X[:, 1] = 4
    names = np.array(["age", "unit", "speed"], dtype=object)
    with pytest.warns(DataWarning, match="a single value and cannot tell rows apart: 'unit'"):
        checked_statistics(RowBlocks(X, y), names, products=False)


@pytest.mark.parametrize("name", RISKS)
def test_reported_parts_are_those_of_the_risk_at_the_scores(name):
    rows, risk = RowBlocks(*make_contaminated_rows(300, 3)[:2]), get_risk(name, "logistic")
    statistics = column_statistics(rows)
    model = LinearModel(rows, statistics.mean, statistics.scale, 1.0)
    problem = Problem(model, Objective(risk, rows.totals()), 0.1)
    solution = solve(problem, tol=1e-4)
    scores, parts = model.scores(solution.theta, rows.X), risk_parts(problem, solution)
    for term, part in risk.parts(scores, rows.y).items():
        assert parts[term] == pytest.approx(part, abs=1e-9)
    assert parts["total"] == pytest.approx(risk.value(scores, rows.y), abs=1e-9)


@pytest.mark.parametrize("w", [[1.0, 1.0], [1.0, 0.0]])
def test_no_value_that_is_not_finite_gets_a_score(w):
    model = ShallowRAD()
    model.coef_, model.intercept_, model.offset_ = np.array(w), 0.0, 0.0
    model.feature_map_, model.n_features_in_ = None, 2
    X = sparse.csr_array([[1.0, 2.0], [3.0, np.nan]])
    for rows in (X, X.toarray()):
        with pytest.raises(InputError, match="row 1, column 1"):
            model.score_samples(rows)


def test_random_state_has_its_usual_meaning(tmp_path):
    X, y, _ = make_contaminated_rows()

    def scores(random_state):
        model = ShallowRAD(feature_map="rbf", lam=0.1, random_state=random_state).fit(X, y)
        riskad.save(model, tmp_path / "model.riskad", force=True)
        np.testing.assert_array_equal(
            riskad.load(tmp_path / "model.riskad").score_samples(X), model.score_samples(X)
        )
        return model.score_samples(X)

    np.testing.assert_array_equal(
        scores(0), ShallowRAD(feature_map="rbf", lam=0.1).fit(X, y).score_samples(X)
    )
    seeded = [scores(np.random.RandomState(7)) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    assert not np.array_equal(scores(None), scores(None))
    generator = np.random.RandomState(7)
    assert not np.array_equal(scores(generator), scores(generator))


@each("name", DETECTORS)
def test_tab_completion_shows_an_estimator(name):
    detector = DETECTORS[name].load()
    shown = {each for each in dir(detector) if not each.startswith("_")}
    assert len(shown) <= 20
    assert {"fit", "predict", "score_samples", "set_params"} <= shown
