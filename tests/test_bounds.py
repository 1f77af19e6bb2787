"""The paper's bounds against simulations in which the truth is known.

Rows sit on finitely many points, so that true risks are finite sums, estimates follow from
multinomial counts, and the best of a class of linear scores is found by trying them all.
"""

from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.spatial import ConvexHull
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from riskad.app.bounds import bounds_of
from riskad.core.bounds import bias, deviation, estimation_error, excess_risk, fitted_bounds
from riskad.core.checks import InputError
from riskad.core.labels import LabelCounts, count_labels
from riskad.core.losses import LOSSES, Logistic
from riskad.core.psi_transform import psi, psi_inverse
from riskad.core.risks import RISKS, get_risk
from riskad.core.score_classes import LinearClass, MeasuredClass, measure_rademacher
from riskad.detectors.shallow import ShallowRAD

every_loss = pytest.mark.parametrize("loss", LOSSES)
both = pytest.mark.parametrize("name", ["rad", "nnrad"])

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
        plain, guarded = 0.0, 0.0
        for term in risk.terms():
            part = term.weight * shares[term.kind] @ losses[term.sign]
            if term.guarded and risk.guarded:
                guarded = guarded + part
            else:
                plain = plain + part
        return plain + np.maximum(guarded, 0)


def in_disc(rng, n):
    x = rng.standard_normal((n, 2))
    return x / np.linalg.norm(x, axis=1)[:, None] * np.sqrt(rng.random((n, 1)))


# --- the paper's formulas ------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.1, 0.6])
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
    risk = get_risk("rad", "ramp")
    few = estimation_error(risk, LabelCounts(5, 1, 50), LinearClass(3, 3))
    many = estimation_error(risk, LabelCounts(10**6, 10**6, 10**6), LinearClass(3, 3))
    assert few.vacuous
    assert "vacuous" in str(few)
    assert not many.vacuous
    assert "vacuous" not in str(many)
    assert few.by_kind.largest == "normal"
    assert excess_risk(few, "ramp").vacuous
    assert "vacuous" in str(excess_risk(few, "ramp"))
    with pytest.raises(FrozenInstanceError):
        few.value = 0.0


def test_the_page_shows_what_its_example_prints(capsys):
    page = Path(__file__).parents[1] / "docs/explanation/bounds.md"
    text = page.read_text(encoding="utf-8")
    code, shown = (text.split(f"```{kind}\n")[1].split("```")[0] for kind in ("python", "text"))
    exec(code, {})
    assert capsys.readouterr().out == shown


# --- Proposition 1 -------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(30, 3, 100), (200, 50, 1000)])
@pytest.mark.parametrize("loss", ["hinge", "modified_huber", "sigmoid"])
@pytest.mark.parametrize("name", RISKS)
def test_deviations_stay_within_the_bound(name, loss, counts):
    world, counts, delta = World(loss), LabelCounts(*counts), 0.2
    risk = get_risk(name, loss, a=0.5, prior=world.prior)
    W = world.W[:5]
    error = np.abs(world.estimates(risk, counts, 4000, W) - world.true_risk(W))
    bound = deviation(risk, counts, world.C_w, delta=delta)
    assert bound.sharper <= bound.value
    assert (error > bound.sharper).mean(axis=0).max() <= delta


@pytest.mark.parametrize("name", ["pn", "pu", "nu", "rad"])
def test_the_deviation_is_not_far_above_what_happens(name):
    """The largest spread that losses within C_l can have: two points, and scores of size C_g."""
    world, delta = World("ramp", prior=0.7, C_w=1.0), 0.1
    world.X = np.array([[1.0, 0.0], [-1.0, 0.0]])
    world.p = world.n = world.u = np.array([0.5, 0.5])
    risk = get_risk(name, "ramp", a=0.3, prior=0.7)
    W = np.array([[1.0, 0.0]])
    counts = LabelCounts(100, 50, 200)
    error = np.abs(world.estimates(risk, counts, 20_000, W) - world.true_risk(W))
    measured = np.quantile(error, 1 - delta)
    bound = deviation(risk, counts, 1.0, delta=delta)
    assert measured < bound.sharper < 1.6 * measured
    assert bound.value < 1.8 * bound.sharper


@pytest.mark.parametrize("prior", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("n_n", [1, 3, 20])
@pytest.mark.parametrize("n_u", [2, 10, 100])
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


@pytest.mark.parametrize("name", ["nnpu", "nnnu", "nnrad"])
def test_the_bias_of_every_guarded_risk(name):
    world = World("ramp", prior=0.3)
    counts = LabelCounts(4, 4, 5)
    risk = get_risk(name, "ramp", a=0.5, prior=world.prior)
    W = world.W[:20]
    found = world.estimates(risk, counts, 100_000, W).mean(axis=0) - world.true_risk(W)
    scores = W @ world.X.T
    other = (
        world.loss.value(-scores) @ world.n
        if name == "nnpu"
        else world.loss.value(scores) @ world.p
    )
    for gap, rho in zip(found, other, strict=True):
        assert -0.005 <= gap <= bias(risk, counts, world.C_w, rho=rho).value + 0.005
    assert found.max() > 0.01


# --- Theorems 2 and 3 ----------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(30, 3, 100), (300, 60, 2000)])
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


@both
def test_the_uniform_deviation_behind_the_theorems(name):
    """Their proofs bound sup (R - R^) + sup (R^ - R), which is harder than the excess."""
    world, counts, delta = World("sigmoid"), LabelCounts(40, 10, 300), 0.1
    risk = get_risk(name, "sigmoid", a=0.3, prior=world.prior)
    error = world.estimates(risk, counts, 500) - world.true_risk(world.W)
    spread = error.max(axis=1) - error.min(axis=1)
    bound = estimation_error(risk, counts, LinearClass(world.C_w, 1.0), delta=delta)
    assert (spread > bound.value).mean() <= delta
    assert bound.value < 15 * np.quantile(spread, 1 - delta)


@pytest.mark.parametrize("kind", KINDS)
@both
def test_the_rate_is_the_stated_one(name, kind):
    """1 / sqrt(n) in the rows of each kind, the other two being plentiful."""
    world = World("sigmoid", prior=0.6)
    risk = get_risk(name, "sigmoid", a=0.4, prior=0.6)
    sizes, measured, stated = np.array([50, 200, 800, 3200]), [], []
    for n in sizes:
        counts = LabelCounts(**(dict.fromkeys(KINDS, 10**9) | {kind: int(n)}))
        error = np.abs(world.estimates(risk, counts, 400) - world.true_risk(world.W))
        measured.append(np.quantile(error.max(axis=1), 0.9))
        bound = estimation_error(risk, counts, LinearClass(2.0, 1.0))
        stated.append(getattr(bound.by_kind, kind))
        assert bound.by_kind.largest == kind
    for values, tolerance in ((measured, 0.06), (stated, 1e-9)):
        slope = np.polyfit(np.log(sizes), np.log(values), 1)[0]
        assert_allclose(slope, -0.5, atol=tolerance)


# --- Rademacher complexity -----------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 100, 1000])
def test_measured_complexity_of_a_ball_is_just_below_the_closed_form(n):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 5))
    X *= 3 / np.linalg.norm(X, axis=1)[:, None]  # all of norm C_x
    found = measure_rademacher(lambda s: 2 * np.linalg.norm(s @ X) / n, n, draws=3000)
    closed = LinearClass(C_w=2.0, C_x=3.0).complexity(0, n)
    # E ||sum|| <= sqrt(E ||sum||^2), with a ratio of at least 1 / sqrt(2) (Khintchine, Kahane).
    assert closed / np.sqrt(2) < found.value < closed + 3 * found.standard_error
    assert found.standard_error < 0.02 * found.value


def test_a_finite_class_and_its_callable_agree():
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, (30, 20))
    table = measure_rademacher(scores, draws=500, random_state=3)
    function = measure_rademacher(lambda s: (scores @ s).max() / 20, 20, draws=500, random_state=3)
    assert table == function
    assert table != measure_rademacher(scores, draws=500, random_state=4)
    # Massart's lemma: r sqrt(2 ln m) / n for m functions of norm at most r.
    assert table.value <= np.linalg.norm(scores, axis=1).max() * np.sqrt(2 * np.log(30)) / 20
    assert "standard error" in str(table)


def test_one_function_has_no_complexity_and_all_signs_have_one():
    assert abs(measure_rademacher(np.ones((1, 50)), draws=4000).value) < 0.01
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1).T
    assert_allclose(measure_rademacher(signs, draws=10).value, 1.0)


def test_a_measured_class_takes_the_place_of_a_linear_one():
    linear = LinearClass(2.0, 1.5)
    sizes = {kind: linear.complexity(0, getattr(COUNTS, kind)) for kind in KINDS}
    measured = MeasuredClass(C_g=3.0, **sizes)
    for name in ("rad", "nnrad"):
        risk = get_risk(name, "squared")
        assert estimation_error(risk, COUNTS, measured) == estimation_error(risk, COUNTS, linear)


# --- the corollary -------------------------------------------------------------------------


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


@every_loss
def test_error_rates_obey_the_corollary(loss):
    """psi(I(g) - I*) <= R(g) - R*, for every score on the points of a world."""
    world = World(loss)
    eta = world.prior * world.p / world.u
    t = np.linspace(-30, 30, 24_001)
    best = (eta[:, None] * world.loss.value(t) + (1 - eta[:, None]) * world.loss.value(-t)).min(
        axis=1
    )
    wrong = np.where(world.W @ world.X.T > 0, 1 - eta, eta) @ world.u
    errors = wrong - np.minimum(eta, 1 - eta) @ world.u
    gaps = world.true_risk(world.W) - best @ world.u
    for error, gap in zip(errors, gaps, strict=True):
        assert error <= psi_inverse(loss, max(gap, 0.0)) + 1e-3


def test_excess_risk_adds_what_the_class_lacks():
    error = estimation_error(
        get_risk("rad", "ramp"), LabelCounts(10**5, 10**5, 10**5), LinearClass(1, 1)
    )
    found = excess_risk(error, "ramp", approximation=0.05)
    assert_allclose(found.value, 2 * (error.value + 0.05))
    assert excess_risk(error, "ramp").value < found.value
    assert not found.vacuous


# --- fitted models -------------------------------------------------------------------------


def standardised(X, B=1.0):
    return np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.full(len(X), B)])


@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_norms_of_a_fitted_model(penalty):
    X, y, _ = make_contaminated_rows(seed=3)
    model = ShallowRAD("logistic", penalty=penalty, lam=0.01, intercept_scaling=2.0).fit(X, y)
    w = model.coef_ * X.std(axis=0)
    t = (model.intercept_ + X.mean(axis=0) @ model.coef_) / 2.0
    order = 2 if penalty == "l2" else 1
    assert_allclose(model.weight_norm_, np.linalg.norm([*w, t], order), rtol=1e-8)
    assert_allclose(model._largest_norm(X), np.linalg.norm(standardised(X, 2.0), axis=1).max())
    assert np.abs(model.score_samples(X)).max() <= model.weight_norm_ * model._largest_norm(X)
    assert_allclose(model._largest_norm(sparse.csr_array(X)), model._largest_norm(X))


@pytest.mark.parametrize(
    "settings", [{"feature_map": "rbf"}, {"feature_map": "poly"}, {"scale": False}]
)
def test_scores_stay_within_the_product_of_the_norms(settings):
    X, y, _ = make_contaminated_rows(seed=4)
    model = ShallowRAD(lam=0.1, **settings).fit(X, y)
    assert np.abs(model.score_samples(X)).max() <= model.weight_norm_ * model._largest_norm(X)


def test_norms_of_a_table_with_more_columns_than_rows():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 100)), rng.choice([1, -1, 0], 40)
    model = ShallowRAD(lam=0.1).fit(X, y)
    w = model.coef_ * X.std(axis=0)
    t = model.intercept_ + X.mean(axis=0) @ model.coef_
    assert_allclose(model.weight_norm_, np.linalg.norm([*w, t]), rtol=1e-6)


def test_the_radius_is_paid_for():
    k = np.arange(-10_000, 10_001)
    assert (1 / (4 * (1 + k**2.0))).sum() < 1
    risk = get_risk("rad", "hinge")
    found = fitted_bounds(risk, COUNTS, 3.0, 1.5, delta=0.1)
    assert (found.C_w, found.error.delta) == (4.0, 0.1 / (4 * 5))
    assert found.error == estimation_error(risk, COUNTS, LinearClass(4.0, 1.5), delta=0.1 / 20)
    assert fitted_bounds(risk, COUNTS, 4.0, 1.5).C_w == 4.0
    assert fitted_bounds(risk, COUNTS, 0.0, 1.5).C_w == 2.0**-20


@both
def test_fitted_models_are_as_near_to_the_best_as_is_said(name):
    world, counts, delta = World("logistic"), LabelCounts(60, 15, 300), 0.2
    rng = np.random.default_rng(0)
    y = np.repeat([1, -1, 0], [60, 15, 300])
    model = ShallowRAD(
        "logistic", risk=name, prior=world.prior, lam=0.02, scale=False, fit_intercept=False
    )
    failures = 0
    for _ in range(25):
        drawn = [rng.choice(12, n, p=p) for n, p in ((60, world.p), (15, world.n), (300, world.u))]
        X = world.X[np.concatenate(drawn)]
        found = bounds_of(model.fit(X, y), X, y, delta=delta)
        assert found.counts == counts
        own_ball = world.W / world.C_w * model.weight_norm_
        excess = world.true_risk(model.coef_[None])[0] - world.true_risk(own_ball).min()
        failures += excess > found.error.value
    assert failures <= delta * 25


def test_a_fit_minimises_the_risk_in_its_own_ball():
    """What makes it the empirical minimiser of the theorems, although it is regularised."""
    X, y, _ = make_contaminated_rows(seed=5)
    model = ShallowRAD("logistic", lam=0.05, tol=1e-10).fit(X, y)
    risk, Z = get_risk("rad", "logistic"), standardised(X)
    directions = np.random.default_rng(0).standard_normal((500, Z.shape[1]))
    rivals = model.weight_norm_ * directions / np.linalg.norm(directions, axis=1)[:, None]
    own = risk.value(model.score_samples(X), y)
    w = np.append(model.coef_ * X.std(axis=0), model.intercept_ + X.mean(axis=0) @ model.coef_)
    near = w + 0.1 * rivals
    near *= np.minimum(1, model.weight_norm_ / np.linalg.norm(near, axis=1))[:, None]
    for rival in (*rivals, *near):
        assert risk.value(Z @ rival, y) >= own - 1e-9


def test_weights_count_by_their_effective_number():
    X, y, _ = make_contaminated_rows(seed=6)
    model = ShallowRAD(lam=0.1).fit(X, y)
    plain = bounds_of(model, X, y)
    assert bounds_of(model, X, y, np.full(len(y), 3.0)) == plain
    uneven = bounds_of(model, X, y, np.where(np.arange(len(y)) % 2, 1.0, 1e-9))
    assert_allclose(uneven.counts.normal, plain.counts.normal / 2, rtol=0.1)
    assert uneven.error.value > plain.error.value


def test_labels_matter():
    X, y, _ = make_contaminated_rows(seed=7)
    model = ShallowRAD(lam=0.1).fit(X, y)
    fewer = np.where((y == -1) & (np.arange(len(y)) % 2 == 0), 0, y)
    found, poorer = bounds_of(model, X, y), bounds_of(model, X, fewer)
    assert poorer.error.by_kind.anomaly > found.error.by_kind.anomaly
    assert str(found.counts) in str(found)


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
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
        (lambda r: bounds_of(LogisticRegression(), [[1.0]], [1]), "got a LogisticRegression"),
    ],
)
def test_mistakes_are_explained(call, words):
    with pytest.raises(InputError, match=words):
        call(get_risk("nnrad", "hinge"))


def test_mistakes_with_a_fitted_model():
    X, y, _ = make_contaminated_rows()
    model = ShallowRAD(lam=0.1).fit(X, y)
    with pytest.raises(InputError, match="600 labels and weights of shape"):
        bounds_of(model, X, y, np.ones(3))
    with pytest.raises(InputError, match="missing value"):
        bounds_of(model, np.where(np.arange(len(X))[:, None] == 7, np.nan, X), y)
    with pytest.raises(InputError, match="delta"):
        bounds_of(model, X, y, delta=1.0)


def test_a_loss_without_a_known_psi_says_what_is_left():
    class Other(Logistic):
        name = "other"

    with pytest.raises(InputError, match=r"psi of the other loss is not known.*estimation_error"):
        psi(Other(), 0.5)


def test_bounds_are_for_the_a_and_prior_of_the_fit():
    X, y, _ = make_contaminated_rows(n_rows=400)
    model = ShallowRAD().fit(X, y)
    model.a_, model.prior_ = 0.4, 0.9
    counts = count_labels(y)
    risk = get_risk("rad", "modified_huber", a=0.4, prior=0.9)
    expected = fitted_bounds(risk, counts, model.weight_norm_, model._largest_norm(X))
    assert bounds_of(model, X, y).error.value == pytest.approx(expected.error.value)
