"""The parts of linear detectors, each by itself: `riskad.detectors.linear`."""

import numpy as np
import pytest
import torch
from conftest import make_contaminated_rows
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.preprocessing import PolynomialFeatures

import riskad
from riskad import ShallowRAD
from riskad.core.checks import DataWarning, InputError
from riskad.core.objective import Objective
from riskad.core.regularization import theorem_lambda
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.linear.feature_maps import Features, fit_features, standardise
from riskad.detectors.linear.lambda_search import (
    CV_DECADES,
    find_lambda,
    held_out_aucs,
    lambda_grid,
)
from riskad.detectors.linear.scores import report_fit, summarise_unlabelled
from riskad.detectors.linear.settings import SolverSettings, bound_risk, check_lambda
from riskad.detectors.registry import DETECTORS
from riskad.detectors.shallow import (
    are_codes,
    check_tensor,
    checked_statistics,
    linear_model,
    tensor_rows,
)
from riskad.metrics.search import held_out_folds
from riskad.rows.linear import LinearModel, WideModel, column_statistics
from riskad.rows.sources import RowBlocks, sample_in_memory
from riskad.solvers import Problem


def make_model(n=300, d=3, constant=1.0):
    X, y, _ = make_contaminated_rows(n, d)
    rows = RowBlocks(X, y)
    statistics = column_statistics(rows)
    return LinearModel(rows, statistics.mean, statistics.scale, constant)


# --- lambda -------------------------------------------------------------------------------


def test_a_grid_goes_down_in_decades_and_knows_the_tight_place():
    lambdas, tight = lambda_grid(50.0, 1.0)
    np.testing.assert_allclose(lambdas, [50, 10, 1, 0.1, 0.01, 0.001])
    assert lambdas[tight] == 1
    assert len(lambdas) == tight + 1 + CV_DECADES
    lambdas, tight = lambda_grid(50.0, 0.0)
    assert tight is None
    np.testing.assert_allclose(lambdas, 50 * 10.0 ** -np.arange(6))


def test_rules_give_lambda_for_standardised_anomalies():
    model, risk, settings = make_model(), get_risk("rad", a=0.3), SolverSettings()
    rows = model.rows
    Z = (rows.X[rows.y == -1] - model.mean) / model.scale
    for rule, tight in (("theorem", False), ("tight", True)):
        found = find_lambda(rule, model, risk, "l2", settings)
        assert found == pytest.approx(theorem_lambda(Z, risk.loss, a=0.3, prior=0.8, tight=tight))
    assert find_lambda(0.25, model, risk, "l2", settings) == 0.25
    with pytest.raises(InputError, match="Theorem 1 has no value for the pu risk"):
        find_lambda("tight", model, get_risk("pu"), "l2", settings)


def test_held_out_aucs_follow_the_labels():
    model, risk, settings = make_model(), get_risk("rad"), SolverSettings()
    rows = model.rows

    def mean_auc(y):
        problem = Problem(model.over(RowBlocks(rows.X, y)), Objective(risk, rows.totals()), 1.0)
        folds = held_out_folds(y, None)
        return held_out_aucs(problem, np.array([1.0]), folds, settings).mean()

    assert mean_auc(rows.y) > 0.9
    assert mean_auc(np.random.default_rng(0).permutation(rows.y)) < 0.7


# --- feature maps -------------------------------------------------------------------------


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


# --- rows ---------------------------------------------------------------------------------


def test_tensors_become_rows_of_floats_with_codes_on_their_device():
    X = torch.arange(6, dtype=torch.int16).reshape(3, 2)
    assert check_tensor(X).dtype == torch.float32
    assert check_tensor(X.long()).dtype == torch.float64
    assert are_codes(torch.tensor([1, 0, -1]), 3)
    assert not are_codes(torch.tensor([1, 0, 2]), 3)
    assert not are_codes(np.array([1, 0, -1]), 3)
    rows = tensor_rows(X.double(), np.array([1, 0, -1]), np.array([1.0, 2.0, 3.0]))
    assert (rows.y.dtype, rows.sample_weight.dtype) == (torch.int16, torch.float64)
    np.testing.assert_array_equal(rows.totals(), [2, 1, 3])
    with pytest.raises(InputError, match=r"got a tensor of shape \(6,\)"):
        check_tensor(X.flatten())


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


def test_wide_tables_are_rotated_under_an_l2_penalty_alone():
    X = np.random.default_rng(0).normal(size=(20, 50))
    rows, features = RowBlocks(X, np.ones(20)), Features(None, np.zeros(50), np.ones(50))
    assert isinstance(linear_model(rows, features, 1.0, "l2"), WideModel)
    assert not isinstance(linear_model(rows, features, 1.0, "l1"), WideModel)


# --- settings, solution, scores -----------------------------------------------------------


def test_settings_are_refused_by_name():
    assert bound_risk("pnu", "logistic", -0.3, 0.7).a == -0.3
    with pytest.raises(InputError, match=r"a must be .* between 0 and 1"):
        bound_risk("rad", "logistic", -0.3, 0.7)
    with pytest.raises(InputError, match="or one of theorem, tight, got nan"):
        check_lambda(np.nan, ("theorem", "tight"))


@pytest.mark.parametrize("name", RISKS)
def test_reported_parts_are_those_of_the_risk_at_the_scores(name):
    model, risk = make_model(), get_risk(name, "logistic")
    rows = model.rows
    problem = Problem(model, Objective(risk, rows.totals()), 0.1)
    solution = SolverSettings(tol=1e-4).solve(problem)
    fitted = report_fit(problem, solution, seed=0)
    scores = rows.X @ fitted.coef + fitted.intercept
    for term, part in risk.parts(scores, rows.y).items():
        assert fitted.risk_parts[term] == pytest.approx(part, abs=1e-9)
    assert fitted.risk_parts["total"] == pytest.approx(risk.value(scores, rows.y), abs=1e-9)
    penalty = 0.1 * fitted.weight_norm**2
    assert fitted.objective == pytest.approx(fitted.risk_parts["total"] + penalty)
    assert fitted.converged


def test_weights_that_are_all_zero_are_said():
    model = make_model()
    problem = Problem(model, Objective(get_risk("pn"), model.rows.totals()), 1e9, "l1")
    with pytest.warns(DataWarning, match=r"all weights are zero under lam=1e\+09"):
        report_fit(problem, SolverSettings().solve(problem), seed=0)


def linear_detector(w, b, mean, scale):
    """A detector with these weights, and the constant 2 beside the features."""
    model = ShallowRAD(intercept_scaling=2.0)
    model.coef_, model.intercept_, model.offset_, model.n_features_in_ = w, b, 0.0, len(w)
    model.feature_map_, model._mean, model._scale = None, mean, scale
    return model


def test_scores_are_sums_of_contributions_and_bounded_by_norms():
    X, _, _ = make_contaminated_rows(50, 3)
    w, b = np.array([1.0, -2.0, 0.5]), 0.3
    model = linear_detector(w, b, X.mean(axis=0), X.std(axis=0))
    shares, base = model._contributions(X)
    scores = model.score_samples(X)
    np.testing.assert_allclose(shares.sum(axis=1) + base, scores)
    np.testing.assert_allclose(model.score_samples(sparse.csr_array(X)), scores)
    np.testing.assert_allclose(model.score_samples(torch.tensor(X)).numpy(), scores)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert model._largest_norm(X) == pytest.approx(np.sqrt((Z**2).sum(axis=1) + 4).max())


@pytest.mark.parametrize("w", [[1.0, 1.0], [1.0, 0.0]])
def test_no_value_that_is_not_finite_gets_a_score(w):
    model = linear_detector(np.array(w), 0.0, np.zeros(2), np.ones(2))
    X = sparse.csr_array([[1.0, 2.0], [3.0, np.nan]])
    for rows in (X, X.toarray()):
        with pytest.raises(InputError, match="row 1, column 1"):
            model.score_samples(rows)


def test_unlabelled_rows_are_summarised_and_their_absence_is_none():
    X, y, _ = make_contaminated_rows(300, 2)
    found = summarise_unlabelled(RowBlocks(X, y), lambda rows: rows[:, 0], seed=0)
    assert found.n_columns == 2
    labelled = RowBlocks(X[y != 0], y[y != 0])
    assert summarise_unlabelled(labelled, lambda rows: rows[:, 0], seed=0) is None


# --- what users see --------------------------------------------------------------------------


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


@pytest.mark.parametrize("name", DETECTORS)
def test_tab_completion_shows_an_estimator(name):
    detector = DETECTORS[name].load()
    shown = {each for each in dir(detector) if not each.startswith("_")}
    assert len(shown) <= 20
    assert not any(each.startswith(("onnx", "describe", "takes", "tells")) for each in shown)
