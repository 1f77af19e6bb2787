"""The paper's bounds against simulations in which the truth is known.

Rows sit on finitely many points, so that true risks are finite sums, estimates follow from
multinomial counts, and the best of a class of linear scores is found by trying them all.
"""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.spatial import ConvexHull
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from support.loops import each

from riskad.app.bounds import bounds_of
from riskad.core.bounds import (
    bias,
    deviation,
    estimation_error,
    excess_risk,
    fitted_bounds,
    psi,
    psi_inverse,
)
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts, count_labels
from riskad.core.losses import LOSSES, Logistic
from riskad.core.risks import RISKS, get_risk
from riskad.core.score_classes import LinearClass, MeasuredClass, measure_rademacher
from riskad.detectors.shallow import ShallowRAD

every_loss = each("loss", LOSSES)
both = each("name", ["rad", "nnrad"])

COUNTS = LabelCounts(normal=60, anomaly=15, unlabelled=400)
KINDS = {"normal": 1, "anomaly": -1, "unlabelled": 0}


class World:
    """Normal rows and anomalies on 12 points of the unit disc, and scores <w, x>, ||w|| <= C_w."""

    def __init__(self, loss="logistic", prior=0.8, C_w=2.0, seed=0):
        rng = np.random.default_rng(seed)
        self.loss, self.prior, self.C_w = LOSSES[loss], prior, C_w
        self.X = in_disc(rng, 12)
        tilt = np.exp(3 * self.X[:, 0])
        self.p, self.n = tilt / tilt.sum(), (1 / tilt) / (1 / tilt).sum()
        self.u = prior * self.p + (1 - prior) * self.n
        W = C_w * in_disc(rng, 400)
        self.W = np.vstack([W, -W, C_w * W / np.linalg.norm(W, axis=1)[:, None]])
        self.W = np.vstack([self.W, -self.W])

    def true_risk(self, W):
        scores = W @ self.X.T
        as_normal, as_anomaly = self.loss.value(scores), self.loss.value(-scores)
        return self.prior * as_normal @ self.p + (1 - self.prior) * as_anomaly @ self.n

    def estimates(self, risk, counts, draws, W=None, seed=1):
        """Estimated risks, a row for each draw and a column for each w."""
        rng = np.random.default_rng(seed)
        scores = (self.W if W is None else W) @ self.X.T
        losses = {sign: self.loss.value(sign * scores).T for sign in (1, -1)}
        shares = {}
        for kind, weights in {"normal": self.p, "anomaly": self.n, "unlabelled": self.u}.items():
            n = getattr(counts, kind)
            shares[KINDS[kind]] = rng.multinomial(n, weights, draws) / n
        sums = {True: 0.0, False: 0.0}
        for term in risk.terms():
            part = term.weight * shares[term.kind] @ losses[term.sign]
            sums[term.guarded and risk.guarded] += part
        return sums[False] + np.maximum(sums[True], 0)


def in_disc(rng, n):
    x = rng.standard_normal((n, 2))
    return x / np.linalg.norm(x, axis=1)[:, None] * np.sqrt(rng.random((n, 1)))


@each("a", [0.1, 0.6])
@both
def test_the_formulas_of_the_paper(name, a):
    """Written out once more with its symbols, for hinge loss on scores within 2."""
    pi_p, pi_n, n_p, n_n, n_u, delta, rho = 0.7, 0.3, 60, 15, 400, 0.1, 0.3
    C_l, L_l, rad = 3.0, 1.0, 2.0  # rad: Rademacher complexity times sqrt(n)
    risk = get_risk(name, "hinge", a=a, prior=pi_p)
    nonnegative = name == "nnrad"
    exponent = -2 * pi_p**2 * rho**2 / (C_l**2 * (1 / n_u + pi_n**2 / n_n))
    epsilon = a * pi_n * C_l * np.exp(exponent) if nonnegative else 0.0
    rate = (1 + a) * pi_n / n_n**0.5 + (1 - a) * pi_p / n_p**0.5 + a / n_u**0.5
    squares = ((1 + a) * pi_n) ** 2 / n_n + ((1 - a) * pi_p) ** 2 / n_p + a**2 / n_u

    assert_allclose(bias(risk, COUNTS, 2.0, rho=rho).value, epsilon)
    near = deviation(risk, COUNTS, 2.0, delta=delta, rho=rho)
    assert_allclose(near.value, C_l * np.sqrt(np.log(2 / delta) / 2) * rate + epsilon)
    assert_allclose(near.sharper, C_l * np.sqrt(squares * np.log(2 / delta) / 2) + epsilon)

    far = estimation_error(risk, COUNTS, LinearClass(0.5, 4.0), delta=delta, rho=rho)
    factor, events = (8, 2) if nonnegative else (4, 6)
    complexity = factor * L_l * rad * rate
    chance = 2 * C_l * np.sqrt(np.log(events / delta) / 2) * rate
    assert_allclose(far.complexity.total, complexity)
    assert_allclose(far.chance.total, chance)
    assert_allclose(far.by_kind.total, complexity + chance)
    assert_allclose(far.value, complexity + chance + 2 * epsilon)
    assert far.theorem == ("Theorem 2" if nonnegative else "Theorem 3")
    assert (far.C_l, far.L_l) == (C_l, L_l)
    assert far.vacuous == (complexity + chance + 2 * epsilon >= C_l)


@every_loss
def test_the_bound_on_the_loss_and_the_least_loss(loss):
    t = np.linspace(-1.7, 1.7, 100_001)
    values = LOSSES[loss].value(t)
    found = bias(get_risk("nnrad", loss), COUNTS, 1.7)
    assert_allclose([found.C_l, found.rho], [values.max(), values.min()], atol=1e-8)


def test_terms_of_kinds_that_a_risk_does_not_use_are_zero():
    found = estimation_error(get_risk("pn", "ramp"), LabelCounts(50, 5, 0), LinearClass(1, 1))
    assert found.complexity.unlabelled == found.chance.unlabelled == 0
    alone = estimation_error(get_risk("rad", "ramp", a=0.0), COUNTS, LinearClass(1, 1))
    assert alone == estimation_error(get_risk("pn", "ramp"), COUNTS, LinearClass(1, 1))


def test_vacuous_is_said():
    few, many = (
        estimation_error(get_risk("rad", "ramp"), LabelCounts(*counts), LinearClass(3, 3))
        for counts in ((5, 1, 50), (10**6, 10**6, 10**6))
    )
    for bound, vacuous in ((few, True), (many, False), (excess_risk(few, "ramp"), True)):
        assert bound.vacuous == ("vacuous" in str(bound)) == vacuous
    assert few.by_kind.largest == "normal"
    with pytest.raises(FrozenInstanceError):
        few.value = 0.0


@each("counts", [(30, 3, 100), (200, 50, 1000)])
@each("loss", ["hinge", "modified_huber", "sigmoid"])
@each("name", RISKS)
def test_deviations_stay_within_the_bound(name, loss, counts):
    world, counts, delta = World(loss), LabelCounts(*counts), 0.2
    risk = get_risk(name, loss, a=0.5, prior=world.prior)
    W = world.W[:5]
    error = np.abs(world.estimates(risk, counts, 4000, W) - world.true_risk(W))
    bound = deviation(risk, counts, world.C_w, delta=delta)
    assert bound.sharper <= bound.value
    assert (error > bound.sharper).mean(axis=0).max() <= delta


@each("prior", [0.05, 0.3, 0.8])
@each("n_n", [1, 3, 20])
@each("n_u", [2, 10, 100])
def test_the_bias_lies_between_zero_and_epsilon(n_u, n_n, prior):
    """Exactly: losses take two values, so that the guard is a function of two binomials."""
    a, q_p, q_n, low, high = 0.4, 0.1, 0.9, 0.05, 1.0
    q_u = prior * q_p + (1 - prior) * q_n
    k_u, k_n = np.arange(n_u + 1)[:, None], np.arange(n_n + 1)[None, :]
    probability = binom.pmf(k_u, n_u, q_u) * binom.pmf(k_n, n_n, q_n)
    R_u, R_n = (low + (high - low) * k / n for k, n in ((k_u, n_u), (k_n, n_n)))
    bracket = a * (R_u - (1 - prior) * R_n)
    rho = low + (high - low) * q_p
    exact = float((probability * np.maximum(bracket, 0)).sum() - a * prior * rho)
    assert_allclose((probability * bracket).sum(), a * prior * rho, atol=1e-12)
    # Ramp loss takes the values between 0 and 1 = C_l on scores within 1.
    risk = get_risk("nnrad", "ramp", a=a, prior=prior)
    epsilon = bias(risk, LabelCounts(1, n_n, n_u), 1.0, rho=rho).value
    assert -1e-12 <= exact <= epsilon
    assert (n_n, n_u, prior) != (1, 2, 0.05) or exact > 0.05 * epsilon


def test_the_bias_vanishes_fast_and_only_where_there_is_a_guard():
    risk = get_risk("nnrad", "logistic", a=0.3, prior=0.6)
    sizes = [bias(risk, LabelCounts(9, n, 10 * n), 0.5).value for n in (1, 10, 100, 1000)]
    assert_allclose(
        np.diff(np.log(sizes)) / np.diff([1, 10, 100, 1000]), np.log(sizes[1] / sizes[0]) / 9
    )
    assert sizes[-1] < 1e-10
    assert bias(get_risk("rad", "logistic"), COUNTS, 0.5).value == 0
    assert bias(get_risk("nnrad", "logistic", a=0.0), COUNTS, 0.5).value == 0
    # Where a loss can be 0 nothing is known of R_p^+, and the guard may always be at work.
    assert_allclose(
        bias(get_risk("nnrad", "hinge", a=0.3, prior=0.6), COUNTS, 2.0).value, 0.3 * 0.4 * 3
    )


@each("counts", [(30, 3, 100), (300, 60, 2000)])
@every_loss
@both
def test_the_minimiser_is_as_near_to_the_best_as_the_theorems_say(name, loss, counts):
    world, counts, delta = World(loss), LabelCounts(*counts), 0.2
    risk = get_risk(name, loss, a=0.3, prior=world.prior)
    truth = world.true_risk(world.W)
    chosen = world.estimates(risk, counts, 300).argmin(axis=1)
    excess = truth[chosen] - truth.min()
    bound = estimation_error(risk, counts, LinearClass(world.C_w, 1.0), delta=delta)
    assert (excess > bound.value).mean() <= delta
    assert excess.max() > 0


@each("n", [10, 100, 1000])
def test_measured_complexity_of_a_ball_is_just_below_the_closed_form(n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5))
    X *= 3 / np.linalg.norm(X, axis=1)[:, None]  # all of norm C_x
    found = measure_rademacher(lambda s: 2 * np.linalg.norm(s @ X) / n, n, draws=3000)
    closed = LinearClass(C_w=2.0, C_x=3.0).complexity(0, n)
    # E ||sum|| <= sqrt(E ||sum||^2), with a ratio of at least 1 / sqrt(2) (Khintchine, Kahane).
    assert closed / np.sqrt(2) < found.value < closed + 3 * found.standard_error
    assert found.standard_error < 0.02 * found.value


def test_one_function_has_no_complexity_and_all_signs_have_one():
    assert abs(measure_rademacher(np.ones((1, 50)), draws=4000).value) < 0.01
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
    assert_allclose(measure_rademacher(signs, draws=10).value, 1.0)


@every_loss
def test_psi_is_the_transform_of_bartlett_jordan_and_mcauliffe(loss):
    """By its definition, on a grid: conditional risks, infima, and the convex hull from below."""
    t = np.concatenate([-np.geomspace(40, 1e-4, 4000), [0.0], np.geomspace(1e-4, 40, 4000)])
    t = np.sort(np.concatenate([t, np.linspace(-1, 1, 4001)]))
    theta = np.linspace(0, 1, 101)
    eta = (1 + theta[:, None]) / 2
    risk = eta * LOSSES[loss].value(t) + (1 - eta) * LOSSES[loss].value(-t)
    wrong = np.where(t * (2 * eta - 1) <= 0, risk, np.inf)
    gap = wrong.min(axis=1) - risk.min(axis=1)
    points = np.column_stack([theta, gap + 1e-9 * theta**2])  # bent a little: lines keep their ends
    hull = ConvexHull(np.vstack([points, [0.5, 10.0]]))
    below = np.sort(hull.vertices[hull.vertices < len(theta)])
    expected = np.interp(theta, theta[below], gap[below])
    assert_allclose([psi(loss, x) for x in theta], expected, atol=2e-6)


@every_loss
def test_psi_inverse_inverts_psi(loss):
    theta = np.linspace(0, 1, 57)
    values = [psi(loss, x) for x in theta]
    assert values[0] == 0
    assert (np.diff(values) > 0).all()
    assert (np.diff(values, 2) > -1e-12).all()
    assert_allclose([psi_inverse(loss, v) for v in values], theta, atol=1e-7)
    assert psi_inverse(loss, 100.0) == psi_inverse(loss, np.inf) == 1.0


def test_excess_risk_adds_what_the_class_lacks():
    many = LabelCounts(10**5, 10**5, 10**5)
    error = estimation_error(get_risk("rad", "ramp"), many, LinearClass(1, 1))
    found = excess_risk(error, "ramp", approximation=0.05)
    assert_allclose(found.value, 2 * (error.value + 0.05))
    assert excess_risk(error, "ramp").value < found.value
    assert not found.vacuous


@each("penalty", ["l2", "l1"])
def test_norms_of_a_fitted_model(penalty):
    X, y, _ = make_contaminated_rows(seed=3)
    model = ShallowRAD("logistic", penalty=penalty, lam=0.01, intercept_scaling=2.0).fit(X, y)
    w = model.coef_ * X.std(axis=0)
    t = (model.intercept_ + X.mean(axis=0) @ model.coef_) / 2.0
    order = 2 if penalty == "l2" else 1
    assert_allclose(model.weight_norm_, np.linalg.norm([*w, t], order), rtol=1e-8)
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.full(len(X), 2.0)])
    assert_allclose(model._largest_norm(X), np.linalg.norm(Z, axis=1).max())
    assert np.abs(model.score_samples(X)).max() <= model.weight_norm_ * model._largest_norm(X)
    assert_allclose(model._largest_norm(sparse.csr_array(X)), model._largest_norm(X))


def test_the_radius_is_paid_for():
    k = np.arange(-10_000, 10_001)
    assert (1 / (4 * (1 + k**2.0))).sum() < 1
    risk = get_risk("rad", "hinge")
    found = fitted_bounds(risk, COUNTS, 3.0, 1.5, delta=0.1)
    assert (found.C_w, found.error.delta) == (4.0, 0.1 / (4 * 5))
    assert found.error == estimation_error(risk, COUNTS, LinearClass(4.0, 1.5), delta=0.1 / 20)
    assert fitted_bounds(risk, COUNTS, 4.0, 1.5).C_w == 4.0
    assert fitted_bounds(risk, COUNTS, 0.0, 1.5).C_w == 2.0**-20


class Other(Logistic):
    name = "other"


MISTAKES = [
    (lambda r: deviation(r, COUNTS, 1.0, delta=0.0), "delta must be a number strictly between"),
    (lambda r: deviation(r, COUNTS, 1.0, delta=5), "probability that the bound fails"),
    (lambda r: deviation(r, COUNTS, -1.0), "C_g must be"),
    (lambda r: deviation(r, COUNTS, np.inf), "C_g must be"),
    (lambda r: deviation(r, LabelCounts(5, 0, 9), 1.0), "needs anomaly rows, got 0"),
    (lambda r: bias(r, COUNTS, 1.0, rho=-0.1), "lower bound on a mean loss"),
    (lambda r: bias(r, COUNTS, 1.0, rho=9.0), "rho must be"),
    (lambda r: LinearClass(0.0, 1.0), "C_w must be"),
    (lambda r: LinearClass(1.0, "long"), "C_x must be"),
    (lambda r: MeasuredClass(1.0, 2.0, 0.1, 0.1), "normal must be .*does not exceed C_g"),
    (lambda r: psi("hinge", 1.5), "theta must be"),
    (lambda r: psi("hinges", 0.5), "Did you mean 'hinge'"),
    (lambda r: psi_inverse("hinge", -1.0), "value must be"),
    (lambda r: psi_inverse("hinge", np.nan), "value must be"),
    (lambda r: measure_rademacher(np.ones(3)), r"shape \(3,\)"),
    (lambda r: measure_rademacher([[np.nan]]), "finite"),
    (lambda r: measure_rademacher(lambda s: 0.0), "n is missing"),
    (lambda r: measure_rademacher(lambda s: 0.0, 5, draws=1), "2 draws at least"),
    (lambda r: psi(Other(), 0.5), "psi of the other loss is not known.*estimation_error"),
    (lambda r: bounds_of(LogisticRegression(), [[1.0]], [1]), "got a LogisticRegression"),
]


@each(("call", "words"), MISTAKES)
def test_mistakes_are_explained(call, words):
    with pytest.raises(InputError, match=words):
        call(get_risk("nnrad", "hinge"))


def test_bounds_are_for_the_a_and_prior_of_the_fit():
    X, y, _ = make_contaminated_rows(n_rows=400)
    model = ShallowRAD().fit(X, y)
    model.a_, model.prior_ = 0.4, 0.9
    counts = count_labels(y)
    risk = get_risk("rad", "modified_huber", a=0.4, prior=0.9)
    expected = fitted_bounds(risk, counts, model.weight_norm_, model._largest_norm(X))
    assert bounds_of(model, X, y).error.value == pytest.approx(expected.error.value)
