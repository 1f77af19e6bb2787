"""Solvers against independent optimisers, and what they refuse and report."""

import warnings

import clarabel
import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES, Squared, get_loss
from riskad.core.objective import Objective
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.shallow import ShallowRAD
from riskad.rows.linear import LinearModel, column_statistics
from riskad.rows.sources import RowBlocks
from riskad.solvers import SOLVERS, Problem, choose_solver, solve
from riskad.solvers import _dc as dc_module
from riskad.solvers import _smooth as smooth_module
from riskad.solvers._smooth import _solve_symmetric


def make_problem(
    risk="rad", loss="modified_huber", *, lam=0.05, penalty="l2", a=0.3, prior=0.7, n=400, d=4,
    seed=0, as_sparse=False, constant=1.0, moments=True,
):  # fmt: skip
    X, y, _ = make_contaminated_rows(n, d, seed=seed)
    rows = RowBlocks(sparse.csr_array(X) if as_sparse else X, y)
    totals = rows.totals()
    dense_quadratic = get_loss(loss).quadratic and not as_sparse
    statistics = column_statistics(rows, second_moments=dense_quadratic)
    model = LinearModel(rows, statistics.mean, statistics.scale, constant)
    bound = get_risk(risk, loss, a=a, prior=prior)
    collected = statistics.moments if moments else None
    return Problem(model, Objective(bound, totals), lam, penalty, collected)


def design(problem):
    """Z and y, spelled out."""
    rows = problem.model.rows
    X = rows.X.toarray() if rows.sparse else rows.X
    Z = (X - problem.model.mean) / problem.model.scale
    return np.column_stack([Z, np.full(len(Z), problem.model.constant)]), rows.y


def pn_weights(problem):
    _, y = design(problem)
    risk = problem.objective.risk
    return np.where(y == 1, risk.pi_p / (y == 1).sum(), risk.pi_n / (y == -1).sum()) * (y != 0)


SMOOTH_CONVEX = [
    (risk, loss)
    for risk in RISKS
    for loss in ("squared", "modified_huber", "logistic")
    if not RISKS[risk].guarded
]


# --- smooth, l2 ---------------------------------------------------------------------------


@pytest.mark.parametrize(("risk", "loss"), SMOOTH_CONVEX)
@pytest.mark.parametrize("solver", ["newton", "lbfgs", "auto"])
def test_smooth_solvers_find_the_minimum_of_a_derivative_free_search(risk, loss, solver):
    problem = make_problem(risk, loss, lam=0.5, d=2)
    found = solve(problem, solver, tol=1e-8)
    search = minimize(
        problem.value, np.zeros(3), method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13, "maxiter": 5000},
    )  # fmt: skip
    assert found.converged
    assert found.value == pytest.approx(problem.value(found.theta), abs=1e-12)
    assert found.value <= search.fun + 1e-10
    np.testing.assert_allclose(found.theta, search.x, atol=1e-4)


def test_the_pn_logistic_risk_is_weighted_logistic_regression():
    problem = make_problem("pn", "logistic", lam=0.02)
    Z, y = design(problem)
    oracle = LogisticRegression(C=1 / (2 * problem.lam), fit_intercept=False, tol=1e-12)
    oracle.fit(Z[y != 0], y[y != 0], sample_weight=pn_weights(problem)[y != 0])
    np.testing.assert_allclose(solve(problem, tol=1e-10).theta, oracle.coef_[0], atol=1e-6)


@pytest.mark.parametrize("constant", [1.0, 30.0])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("moments", [False, True])
def test_the_pn_squared_risk_is_weighted_ridge_regression(as_sparse, moments, constant):
    layout = {"as_sparse": as_sparse, "moments": moments, "constant": constant}
    problem = make_problem("pn", "squared", lam=0.02, **layout)
    Z, y = design(problem)
    oracle = Ridge(alpha=2 * problem.lam, fit_intercept=False, solver="cholesky")
    oracle.fit(Z, y, sample_weight=pn_weights(problem))
    np.testing.assert_allclose(solve(problem, "closed_form").theta, oracle.coef_, atol=1e-10)


@pytest.mark.parametrize("loss", ["modified_huber", "logistic"])
def test_conjugate_gradients_and_cholesky_agree(monkeypatch, loss):
    problem = make_problem("rad", loss, d=12)
    by_cholesky = solve(problem, "newton", tol=1e-10).theta
    monkeypatch.setattr(smooth_module, "MAX_DENSE", 5)
    np.testing.assert_allclose(solve(problem, "newton", tol=1e-10).theta, by_cholesky, atol=1e-8)


@pytest.mark.parametrize("constant", [1.0, 0.0, 30.0])
@pytest.mark.parametrize("loss", ["modified_huber", "logistic", "hinge"])
def test_solving_a_sample_first_does_not_change_the_answer(monkeypatch, loss, constant):
    problem = make_problem("rad", loss, n=6000, lam=0.1, constant=constant)
    plain = solve(problem, tol=1e-8)
    monkeypatch.setattr(smooth_module, "_SAMPLE_ABOVE", 500)
    monkeypatch.setattr(dc_module, "_SAMPLE_ABOVE", 500)
    sampled = solve(problem, tol=1e-8)
    assert sampled.converged
    assert sampled.value == pytest.approx(plain.value, abs=2e-8)


@pytest.mark.parametrize("moments", [False, True])
def test_gradients_are_measured_as_if_the_constant_were_one(moments):
    problems = [make_problem(constant=constant, moments=moments) for constant in (1.0, 1e6)]
    expected, found = (problem.reference for problem in problems)
    assert found == pytest.approx(expected, rel=1e-12)


class Parabola(Squared):
    """3 (z - 2)^2 + 1."""

    name = "parabola"
    linear_odd = 24.0

    def value(self, z):
        return 3 * (z - 2) ** 2 + 1

    def derivative(self, z):
        return 6 * (z - 2)

    def curvature(self, z):
        return np.full_like(z, 6.0)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_closed_form_is_for_every_quadratic_loss(as_sparse):
    problem = make_problem("rad", Parabola(), as_sparse=as_sparse)
    assert choose_solver(problem).name == "closed_form"
    found, expected = (solve(problem, name, tol=1e-12) for name in ("closed_form", "newton"))
    np.testing.assert_allclose(found.theta, expected.theta, rtol=1e-8)
    assert found.value == pytest.approx(expected.value, rel=1e-10)


@pytest.mark.parametrize("loss", ["squared", "modified_huber"])
def test_a_constant_that_leaves_the_other_weights_no_digits_is_reported(loss):
    with pytest.warns(ConvergenceWarning, match="gradient norm relative to that at zero"):
        solve(make_problem("rad", loss, lam=1.0, constant=1e9))


def test_a_singular_system_without_penalty_is_solved():
    problem = make_problem("pn", "squared", lam=0.0, n=60, d=2)
    doubled = np.column_stack([problem.model.rows.X, problem.model.rows.X])
    rows = RowBlocks(doubled, problem.model.rows.y)
    model = LinearModel(rows, doubled.mean(axis=0), doubled.std(axis=0))
    twice = Problem(model, problem.objective, 0.0)
    assert solve(twice).value == pytest.approx(solve(problem).value, abs=1e-9)


# --- l1 -----------------------------------------------------------------------------------


def split_variables(problem):
    """R(p - q) + lam sum(p + q) over p, q >= 0, by a bound-constrained optimiser."""
    n = problem.model.n_parameters

    def value(pq):
        theta = pq[:n] - pq[n:]
        (risk, gradient), *_ = problem.model.values_and_gradients(theta, problem.objective.sums)
        return risk + problem.lam * pq.sum(), np.concatenate([gradient, -gradient]) + problem.lam

    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 20_000, "maxfun": 100_000}
    bounds = [(0, None)] * (2 * n)
    best = minimize(
        value, np.full(2 * n, 0.01), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return best.x[:n] - best.x[n:], best.fun


@pytest.mark.parametrize("loss", ["squared", "modified_huber", "logistic"])
@pytest.mark.parametrize("risk", ["pn", "pu", "rad"])
@pytest.mark.parametrize("lam", [0.1, 0.3])
def test_the_proximal_solver_agrees_with_split_variables(risk, loss, lam):
    problem = make_problem(risk, loss, penalty="l1", lam=lam, d=8)
    theta, value = split_variables(problem)
    found = solve(problem, tol=1e-8)
    assert found.solver == "proximal"
    assert found.converged
    assert found.value == pytest.approx(value, abs=1e-8)
    np.testing.assert_allclose(found.theta, theta, atol=1e-3)


def test_l1_sets_weights_exactly_to_zero_and_all_of_them_under_a_heavy_penalty():
    light = solve(make_problem(penalty="l1", lam=0.1, d=8))
    assert 0 < np.count_nonzero(light.theta) < 9
    heavy = solve(make_problem(penalty="l1", lam=1e3, d=8))
    assert not heavy.theta.any()
    assert heavy.optimality == 0


def test_the_proximal_solver_works_without_a_dense_hessian(monkeypatch):
    problem = make_problem(penalty="l1", lam=0.2, d=12)
    dense = solve(problem, tol=1e-8)
    monkeypatch.setattr("riskad.solvers._proximal.MAX_DENSE", 3)
    np.testing.assert_allclose(solve(problem, tol=1e-8).theta, dense.theta, atol=1e-6)


# --- kinks and concave parts --------------------------------------------------------------


def conic_optimum(problem, kinks, slopes):
    """The convex piecewise linear problem as a QP in (theta, xi), solved by Clarabel.

    min  sum_ij c_i s_j xi_ij + L . Z theta + lam ||theta||^2,  xi_ij >= 0, xi_ij >= k_j - z_i
    """
    Z, y = design(problem)
    plain = problem.objective.plain
    pieces = [(plain.A[y], 1.0), (plain.B[y], -1.0)]
    columns, right, cost = [], [], []
    for weight, sign in pieces:
        used = np.flatnonzero(weight)
        for kink, slope in zip(kinks, slopes, strict=True):
            columns.append(sign * Z[used])
            right.append(np.full(len(used), kink))
            cost.append(slope * weight[used])
    G, k, c = np.vstack(columns), np.concatenate(right), np.concatenate(cost)
    m, d = G.shape
    P = sparse.block_diag([2 * problem.lam * np.eye(d), sparse.csc_array((m, m))], format="csc")
    q = np.concatenate([plain.L[y] @ Z, c])
    eye = sparse.eye_array(m)
    A = sparse.block_array([[-sparse.csc_array(G), -eye], [None, -eye]], format="csc")
    b = np.concatenate([-k, np.zeros(m)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * m)]
    solution = clarabel.DefaultSolver(P, q, A, b, cones, settings).solve()
    return np.array(solution.x[:d]), solution.obj_val


@pytest.mark.parametrize("lam", [0.01, 0.3])
@pytest.mark.parametrize(
    ("risk", "loss"),
    [("pn", "hinge"), ("pn", "double_hinge"), ("rad", "double_hinge"), ("pu", "double_hinge")],
)
def test_convex_problems_with_kinks_reach_the_conic_optimum(risk, loss, lam):
    problem = make_problem(risk, loss, lam=lam, n=200)
    pieces = LOSSES[loss].dc_parts()[0]
    theta, value = conic_optimum(problem, pieces.kinks, pieces.slopes)
    found = solve(problem, tol=1e-7)
    assert found.solver == "dc"
    assert found.converged
    assert value - 1e-7 <= found.value <= value + 1e-6
    np.testing.assert_allclose(found.theta, theta, atol=5e-3)


def test_the_pn_hinge_risk_is_a_weighted_linear_svm():
    problem = make_problem("pn", "hinge", lam=0.05)
    Z, y = design(problem)
    oracle = LinearSVC(
        loss="hinge", C=1 / (2 * problem.lam), fit_intercept=False, tol=1e-9, max_iter=200_000
    )
    oracle.fit(Z[y != 0], y[y != 0], sample_weight=pn_weights(problem)[y != 0])
    found = solve(problem, tol=1e-8)
    assert found.value <= problem.value(oracle.coef_[0]) + 1e-8
    np.testing.assert_allclose(found.theta, oracle.coef_[0], atol=5e-3)


NEEDS_DC = [
    (risk, loss)
    for risk in RISKS
    for loss in LOSSES
    if RISKS[risk].guarded or loss in ("hinge", "sigmoid", "ramp")
]


@pytest.mark.parametrize(("risk", "loss"), NEEDS_DC)
def test_dc_descends_monotonically_and_ends_where_no_neighbour_is_better(risk, loss):
    problem = make_problem(risk, loss, n=200, d=2, lam=0.05)
    found = solve(problem)
    assert found.solver == "dc"
    assert found.converged
    assert found.value == pytest.approx(problem.value(found.theta), abs=1e-12)
    assert (np.diff(found.history) <= 1e-12).all()
    rng = np.random.default_rng(0)
    for radius in (1e-1, 1e-2, 1e-3):
        steps = radius * rng.standard_normal((40, 3))
        assert min(problem.value(found.theta + step) for step in steps) >= found.value - 5e-6


@pytest.mark.parametrize(
    ("risk", "loss"), [("rad", "hinge"), ("rad", "ramp"), ("nnrad", "squared")]
)
def test_dc_is_as_low_as_the_best_of_many_local_searches(risk, loss):
    problem = make_problem(risk, loss, n=150, d=2, lam=0.05)
    rng = np.random.default_rng(1)
    options = {"maxiter": 4000, "xatol": 1e-9, "fatol": 1e-12}
    best = min(
        minimize(problem.value, start, method="Nelder-Mead", options=options).fun
        for start in rng.standard_normal((15, 3))
    )
    assert solve(problem).value <= best + 1e-5


def test_a_guard_that_binds_is_balanced_not_ignored():
    problem = make_problem("nnnu", "modified_huber", lam=0.01, n=300)
    found = solve(problem)
    guard = problem.model.values(found.theta, [problem.objective.guarded])[0]
    unguarded = solve(make_problem("nu", "modified_huber", lam=0.01, n=300), tol=1e-4, warn=False)
    assert unguarded.value < 0  # without the guard this one runs away
    assert found.value >= 0
    assert guard == pytest.approx(0, abs=1e-3)


def test_the_same_seed_gives_the_same_solution():
    problem = make_problem("rad", "ramp")
    np.testing.assert_array_equal(solve(problem, seed=3).theta, solve(problem, seed=3).theta)


def test_lambdas_of_a_numpy_grid_are_numbers_like_others():
    """What rounding ends is said in words, whatever the type of lambda."""
    solution = solve(make_problem("pn", "hinge", lam=np.float64(0.05)), tol=1e-300, warn=False)
    assert solution.criterion.endswith("as small as rounding allows")


# --- needs, stopping, warnings ------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "settings", "message"),
    [
        ("closed_form", {"loss": "logistic"}, "squared loss, got the rad risk with logistic loss"),
        ("closed_form", {"risk": "nnrad", "loss": "squared"}, "an unguarded risk"),
        ("newton", {"loss": "hinge"}, "a smooth risk, and the rad risk with hinge loss has kinks"),
        ("newton", {"loss": "sigmoid"}, "a convex risk"),
        ("newton", {"penalty": "l1"}, "penalty='l2', got 'l1'"),
        ("proximal", {}, "penalty='l1', got 'l2'"),
        ("lbfgs", {"loss": "ramp"}, "a smooth risk"),
        ("dc", {"loss": "hinge", "lam": 0.0}, "lam > 0, got 0"),
    ],
)
def test_a_mismatch_is_one_sentence_that_names_solver_and_need(solver, settings, message):
    with pytest.raises(InputError, match=f"solver='{solver}' needs .*{message}"):
        choose_solver(make_problem(**settings), solver)


def test_when_nothing_fits_the_error_says_why():
    with pytest.raises(InputError, match=r"solver='proximal' needs a smooth .*penalty='l2'"):
        choose_solver(make_problem(loss="hinge", penalty="l1"))
    with pytest.raises(InputError, match=r"needs lam > 0, got 0.* Choose lam > 0"):
        choose_solver(make_problem(loss="hinge", lam=0.0))


def test_an_unknown_solver_is_guessed():
    with pytest.raises(InputError, match="Did you mean 'newton'"):
        choose_solver(make_problem(), "newtno")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("risk", RISKS)
def test_every_risk_and_loss_with_l2_has_a_solver(risk, loss):
    assert choose_solver(make_problem(risk, loss)).name in SOLVERS


def test_what_the_stopping_test_measured_is_what_is_reported():
    problem = make_problem(loss="logistic")
    found = solve(problem, "newton", tol=1e-7)
    _, gradient = problem.value_and_gradient(found.theta)
    at_zero = problem.value_and_gradient(np.zeros(5))[1]
    expected = np.linalg.norm(gradient) / np.linalg.norm(at_zero)
    assert found.optimality == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert found.optimality <= 1e-7


def test_the_duality_gap_is_an_upper_bound_on_the_error():
    problem = make_problem("pn", "hinge", n=200)
    rough = solve(problem, tol=1e-2)
    exact = solve(problem, tol=1e-9)
    scale = problem.value(np.zeros(5))
    assert 0 <= rough.value - exact.value <= rough.optimality * scale + 1e-9
    assert "duality gap" in rough.criterion


def test_stopping_early_warns_with_the_measured_value_and_a_remedy():
    problem = make_problem(loss="logistic", lam=1e-4)
    with pytest.warns(ConvergenceWarning, match=r"newton stopped after 1 .* > tol=.* max_iter"):
        unfinished = solve(problem, tol=1e-9, max_iter=1)
    assert not unfinished.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solve(problem, tol=1e-9, max_iter=1, warn=False)


BEYOND_ROUNDING = [
    ("newton", {"loss": "logistic"}),
    ("newton", {"loss": "modified_huber", "lam": 1e-4}),
    ("lbfgs", {"loss": "logistic"}),
    ("lbfgs", {"loss": "sigmoid"}),
    ("proximal", {"loss": "logistic", "penalty": "l1", "lam": 0.1}),
    ("dc", {"risk": "pn", "loss": "hinge"}),
]


@pytest.mark.parametrize(("solver", "settings"), BEYOND_ROUNDING, ids=str)
def test_a_tolerance_below_rounding_ends_as_success_and_says_so(solver, settings):
    """No gradient is that small: rounding, on whatever processor, ends the search."""
    problem = make_problem(**settings)
    exact, usual = solve(problem, solver, tol=1e-30), solve(problem, solver, tol=1e-8)
    assert exact.converged
    assert exact.n_iter < 100
    if exact.optimality > 1e-30:  # a gap of exactly 0 is no gap
        assert exact.criterion == f"{usual.criterion}, as small as rounding allows"
    assert exact.optimality < 1e-9
    assert exact.value <= usual.value + 1e-13


@pytest.mark.parametrize(("solver", "settings"), BEYOND_ROUNDING[:5], ids=str)
def test_too_few_iterations_are_no_success_whatever_the_tolerance(solver, settings):
    with pytest.warns(ConvergenceWarning, match=r"> tol=1e-30; raise max_iter"):
        found = solve(make_problem(**settings), solver, tol=1e-30, max_iter=1)
    assert not found.converged


@pytest.mark.parametrize("loss", ["modified_huber", "logistic"])
def test_columns_far_from_zero_cost_no_more_digits_than_their_scores(loss):
    """x . w + b_0 cancels 1e6 to 1: values have 6 digits less, and gradients decide."""
    problem = make_problem(loss=loss, lam=0.5)
    rows = RowBlocks(problem.model.rows.X + 1e6, problem.model.rows.y)
    statistics = column_statistics(rows)
    model = LinearModel(rows, statistics.mean, statistics.scale)
    far = solve(Problem(model, problem.objective, problem.lam), "newton", tol=1e-8)
    assert far.optimality <= 1e-8
    np.testing.assert_allclose(far.theta, solve(problem, "newton", tol=1e-8).theta, atol=1e-7)


def test_a_risk_without_a_minimum_asks_for_more_regularisation():
    problem = make_problem("nu", "modified_huber", lam=1e-6, penalty="l1", n=40, d=8)
    with pytest.warns(ConvergenceWarning, match="negative .*raise lam"):
        solve(problem, max_iter=5)


def test_many_rows_without_unlabelled_rows_are_fitted_without_a_warning():
    """The start on a part of the rows corrects means; a kind without rows has none."""
    rng = np.random.default_rng(0)
    X = 5.3 + 3 * rng.standard_normal((40_000, 3))
    y = np.where(np.arange(len(X)) < 2000, 1, -1)
    ShallowRAD(risk="pn", lam=0.01).fit(X, y)


def test_settings_that_overflow_are_a_sentence():
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=r"intercept_scaling must be .* 1e\+100"):
        ShallowRAD("logistic", intercept_scaling=1e200).fit(X, y)


def test_equations_that_are_not_finite_are_a_sentence():
    with pytest.raises(InputError, match="overflow to infinity"):
        _solve_symmetric(np.full((2, 2), np.inf), np.ones(2))
