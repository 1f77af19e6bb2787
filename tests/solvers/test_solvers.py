"""Solvers against independent optimisers, and what they refuse and report."""

import clarabel
import numpy as np
import pytest
from conftest import make_contaminated_rows
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES, get_loss
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


@each(("risk", "loss"), SMOOTH_CONVEX)
@each("solver", ["newton", "lbfgs", "auto"])
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


@each("constant", [1.0, 30.0])
@each("as_sparse", [False, True])
@each("moments", [False, True])
def test_the_pn_squared_risk_is_weighted_ridge_regression(as_sparse, moments, constant):
    layout = {"as_sparse": as_sparse, "moments": moments, "constant": constant}
    problem = make_problem("pn", "squared", lam=0.02, **layout)
    Z, y = design(problem)
    oracle = Ridge(alpha=2 * problem.lam, fit_intercept=False, solver="cholesky")
    oracle.fit(Z, y, sample_weight=pn_weights(problem))
    np.testing.assert_allclose(solve(problem, "closed_form").theta, oracle.coef_, atol=1e-10)


@each("loss", ["modified_huber", "logistic"])
def test_conjugate_gradients_and_cholesky_agree(monkeypatch, loss):
    problem = make_problem("rad", loss, d=12)
    by_cholesky = solve(problem, "newton", tol=1e-10).theta
    monkeypatch.setattr(smooth_module, "MAX_DENSE", 5)
    np.testing.assert_allclose(solve(problem, "newton", tol=1e-10).theta, by_cholesky, atol=1e-8)
    A = np.random.default_rng(0).normal(size=(12, 12))
    H = A @ A.T + np.eye(12)
    found = smooth_module.conjugate_gradients(lambda x: H @ x, A[0], 1e-12)
    np.testing.assert_allclose(H @ found, A[0], atol=1e-9)


@each("constant", [1.0, 0.0, 30.0])
@each("loss", ["modified_huber", "logistic", "hinge"])
def test_solving_a_sample_first_does_not_change_the_answer(monkeypatch, loss, constant):
    problem = make_problem("rad", loss, n=6000, lam=0.1, constant=constant)
    plain = solve(problem, tol=1e-8)
    monkeypatch.setattr(smooth_module, "_SAMPLE_ABOVE", 500)
    monkeypatch.setattr(dc_module, "_SAMPLE_ABOVE", 500)
    sampled = solve(problem, tol=1e-8)
    assert sampled.converged
    assert sampled.value == pytest.approx(plain.value, abs=2e-8)


@each("loss", ["squared", "modified_huber"])
def test_a_constant_that_leaves_the_other_weights_no_digits_is_reported(loss):
    with pytest.warns(ConvergenceWarning, match="gradient norm relative to that at zero"):
        solve(make_problem("rad", loss, lam=1.0, constant=1e9))


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


@each("loss", ["squared", "modified_huber", "logistic"])
@each("risk", ["pn", "pu", "rad"])
@each("lam", [0.1, 0.3])
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


@each("lam", [0.01, 0.3])
@each(
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


NEEDS_DC = [
    (risk, loss)
    for risk in RISKS
    for loss in LOSSES
    if RISKS[risk].guarded or loss in ("hinge", "sigmoid", "ramp")
]


@pytest.mark.slow
@each(("risk", "loss"), NEEDS_DC)
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


def test_a_guard_that_binds_is_balanced_not_ignored():
    problem = make_problem("nnnu", "modified_huber", lam=0.01, n=300)
    found = solve(problem)
    guard = problem.model.values(found.theta, [problem.objective.guarded])[0]
    unguarded = solve(make_problem("nu", "modified_huber", lam=0.01, n=300), tol=1e-4, warn=False)
    assert unguarded.value < 0  # without the guard this one runs away
    assert found.value >= 0
    assert guard == pytest.approx(0, abs=1e-3)


@each(
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
        ("auto", {"loss": "hinge", "penalty": "l1"}, "smooth .*penalty='l2'"),
        ("auto", {"loss": "hinge", "lam": 0.0}, "lam > 0, got 0.* Choose lam > 0"),
    ],
)
def test_a_mismatch_is_one_sentence_that_names_solver_and_need(solver, settings, message):
    # When nothing fits, it is the sentence of the solver with the fewest needs.
    fewest = "proximal" if settings.get("penalty") == "l1" else "dc"
    named = fewest if solver == "auto" else solver
    with pytest.raises(InputError, match=f"solver='{named}' needs .*{message}"):
        choose_solver(make_problem(**settings), solver)


@each("loss", LOSSES)
@each("risk", RISKS)
def test_every_risk_and_loss_with_l2_has_a_solver(risk, loss):
    assert choose_solver(make_problem(risk, loss)).name in SOLVERS


def test_what_the_stopping_test_measured_is_what_is_reported():
    problem = make_problem(loss="logistic")
    found = solve(problem, "newton", tol=1e-7)
    _, gradient = problem.smooth_task.value_and_gradient(found.theta)
    at_zero = problem.smooth_task.value_and_gradient(np.zeros(5))[1]
    expected = np.linalg.norm(gradient) / np.linalg.norm(at_zero)
    assert found.optimality == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert found.optimality <= 1e-7


@each("lam", [0.05, 0.5])
def test_the_duality_gap_is_an_upper_bound_on_the_error(lam):
    problem = make_problem("pn", "hinge", n=200, lam=lam)
    exact, scale = solve(problem, tol=1e-9), problem.value(np.zeros(5))
    for tol in (0.3, 0.1, 1e-2):
        rough = solve(problem, tol=tol)
        assert 0 <= rough.value - exact.value <= rough.optimality * scale + 1e-9
    assert "duality gap" in rough.criterion


BEYOND_ROUNDING = [
    ("newton", {"loss": "logistic"}),
    ("newton", {"loss": "modified_huber", "lam": 1e-4}),
    ("lbfgs", {"loss": "logistic"}),
    ("lbfgs", {"loss": "sigmoid"}),
    ("proximal", {"loss": "logistic", "penalty": "l1", "lam": 0.1}),
    ("dc", {"risk": "pn", "loss": "hinge"}),
]


@each(("solver", "settings"), BEYOND_ROUNDING)
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


@each(("solver", "settings"), BEYOND_ROUNDING[:5])
def test_too_few_iterations_are_no_success_whatever_the_tolerance(solver, settings):
    problem, limits = make_problem(**settings), {"tol": 1e-30, "max_iter": 1}
    said = rf"{solver} stopped after 1 .*> tol=1e-30; raise max_iter"
    with pytest.warns(ConvergenceWarning, match=said):
        assert not solve(problem, solver, **limits).converged
    solve(problem, solver, **limits, warn=False)  # a warning would be an error


def test_a_risk_without_a_minimum_asks_for_more_regularisation():
    problem = make_problem("nu", "modified_huber", lam=1e-6, penalty="l1", n=40, d=8)
    with pytest.warns(ConvergenceWarning, match="negative .*raise lam"):
        solve(problem, max_iter=5)


def test_settings_and_equations_that_overflow_are_a_sentence():
    X, y, _ = make_contaminated_rows()
    with pytest.raises(InputError, match=r"intercept_scaling must be .* 1e\+100"):
        ShallowRAD("logistic", intercept_scaling=1e200).fit(X, y)
    with pytest.raises(InputError, match="overflow to infinity"):
        _solve_symmetric(np.full((2, 2), np.inf), np.ones(2))
