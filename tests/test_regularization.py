"""Theorem 1: its printed values, and the guarantee itself against random and adversarial w."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from support.loops import each

from riskad.core import regularization
from riskad.core.checks import InputError
from riskad.core.losses import LOSSES
from riskad.core.regularization import measure_reach, theorem_lambda, theorem_margin
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.shallow import ShallowRAD

# (b1, b2, b3) as Table 1 prints them.
TABLE = {
    "hinge": (2, 1, 1),
    "double_hinge": (1, 1 / 2, 1),
    "squared": (2, 1 / 2, 1 / 2),
    "modified_huber": (4, 1, 1 / 2),
    "logistic": (1, 1, np.log(2)),
    "sigmoid": (1, 1 / 2, 1),
    "ramp": (1, 1 / 2, 1),
}
PENALTY = {"l2": lambda w: (w**2).sum(axis=-1), "l1": lambda w: np.abs(w).sum(axis=-1)}

every_loss = each("loss", LOSSES)
every_penalty = each("penalty", PENALTY)


def anomaly_loss(loss, t, a):
    """h(t) = l(-t) - a l(t)."""
    return LOSSES[loss].value(-t) - a * LOSSES[loss].value(t)


def worst_ratio(loss, a, penalty):
    """The factor of the tight lambda: its value for one anomaly at phi = 1, per pi_n."""
    anomaly = np.array([[1.0]])
    tight = theorem_lambda(
        anomaly, loss, a=a, prior=0.5, penalty=penalty, tight=True, fit_intercept=False
    )
    return tight / 0.5


# --- values --------------------------------------------------------------------------------


@each("fit_intercept", [True, False])
@each(("a", "prior"), [(0.1, 0.8), (0.7, 0.3)])
@every_loss
def test_the_paper_s_values(loss, a, prior, fit_intercept):
    phi = np.array([[3.0, -4.0], [0.0, 0.5]])
    b1, b2, b3 = TABLE[loss]
    pi_n = 1 - prior
    c_squared, c_inf = 25 + fit_intercept, 4
    l2 = ((1 - a) * b2 + a * b1) ** 2 * pi_n * c_squared / (4 * (1 - a) * b2 * b3)
    l1 = c_inf * ((1 - a) * b2 + a * b1) * pi_n
    options = {"a": a, "prior": prior, "fit_intercept": fit_intercept}
    assert_allclose(theorem_lambda(phi, loss, penalty="l2", **options), l2, rtol=1e-12)
    assert_allclose(theorem_lambda(phi, loss, penalty="l1", **options), l1, rtol=1e-12)


@each("tight", [False, True])
@every_penalty
def test_the_intercept_is_a_feature_of_size_one_or_as_set(penalty, tight):
    small = np.array([[0.1, 0.2], [0.3, -0.1]])
    options = {"penalty": penalty, "tight": tight}

    def as_column(size):
        counted = np.column_stack([small, [size, size]])
        return theorem_lambda(counted, fit_intercept=False, **options)

    assert_allclose(theorem_lambda(small, **options), as_column(1.0))
    for size in (0.25, 1, 40.0):
        assert_allclose(theorem_lambda(small, intercept_scaling=size, **options), as_column(size))
    without = theorem_lambda(small, fit_intercept=False, **options)
    ignored = theorem_lambda(small, fit_intercept=False, intercept_scaling=9.0, **options)
    assert ignored == without


@each("a", [1e-7, 1e-3, 0.1, 0.5, 0.9, 0.99, 0.9999, 1 - 1e-7])
@each(("loss", "factor"), [("squared", 2), ("modified_huber", 4)])
def test_closed_forms_of_the_tight_l2_value(loss, factor, a):
    q = worst_ratio(loss, a, "l2")
    assert_allclose(q, factor * a / (1 - a), rtol=3e-6)
    assert q >= factor * a / (1 - a)


@each("a", [0.05, 0.3, 0.6, 0.95])
def test_closed_forms_for_the_ramp(a):
    inner = (1 + a) ** 2 / (8 * (1 - a)) if a >= 1 / 3 else a
    assert_allclose(worst_ratio("ramp", a, "l2"), inner, rtol=3e-6)
    assert_allclose(worst_ratio("ramp", a, "l1"), a, rtol=3e-6)


@each("a", [1e-4, 0.03, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6])
@every_penalty
@every_loss
def test_the_tight_factor_is_the_largest_ratio_there_is(loss, penalty, a):
    s = np.concatenate([np.geomspace(1e-9, 1e9, 50_001), np.linspace(0.9, 1.1, 50_001)])
    ratio = -anomaly_loss(loss, -s, a) / s ** (2 if penalty == "l2" else 1)
    # Below this s the difference has no digits left.
    largest = ratio[s > 1e-3 * (1 - a)].max()
    assert worst_ratio(loss, a, penalty) >= largest
    assert worst_ratio(loss, a, penalty) <= largest * (1 + 1e-4)


@every_penalty
@every_loss
def test_without_unlabelled_rows_nothing_has_to_be_paid_for(loss, penalty):
    phi = np.array([[3.0, -4.0]])
    assert theorem_lambda(phi, loss, a=0, penalty=penalty, tight=True) == 0
    assert theorem_lambda(phi, loss, a=0, penalty=penalty) > 0


@given(
    st.sampled_from(list(LOSSES)),
    st.sampled_from(list(PENALTY)),
    st.floats(1e-6, 1 - 1e-6),
    st.floats(0.01, 0.99),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_the_tight_value_is_never_above_the_theorem_s(loss, penalty, a, prior, seed):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(rng.integers(1, 6), rng.integers(1, 5))) * rng.lognormal(0, 2)
    options = {"a": a, "prior": prior, "penalty": penalty}
    tight = theorem_lambda(phi, loss, tight=True, **options)
    assert 0 < tight <= theorem_lambda(phi, loss, **options) * (1 + 1e-12)


# --- the guarantee -----------------------------------------------------------------------------


class Sample:
    """A small data set with its regularised objective, and the w that could break the guarantee."""

    def __init__(self, seed, loss, a, prior, penalty, constant, helpful, risk="rad", weighted=0):
        rng = np.random.default_rng(seed)
        self.risk = get_risk(risk, loss, a=a, prior=prior)
        n_anomalies, n_normals, d = rng.integers(1, 4, 3)
        y = np.repeat([-1, 1, 0], [n_anomalies, n_normals, 3])
        phi = rng.normal(size=(len(y), d)) * rng.lognormal(0, 1)
        if helpful:
            # Other rows far away: what sends the first anomaly down sends them up.
            others = y != self.risk.theorem[0]
            phi[others] = -1e3 * rng.uniform(1, 2, (others.sum(), 1)) * np.sign(phi[~others][0])
        self.features = phi
        self.Z = np.column_stack([phi, np.full(len(y), constant)]) if constant else phi
        self.y, self.loss, self.a, self.prior = y, loss, a, prior
        self.penalty, self.constant = penalty, constant
        self.weight = rng.lognormal(0, weighted, len(y)) if weighted else None
        self.rng = rng

    def lam(self, tight=False):
        kind, a, prior = self.risk.theorem
        rows = self.y == kind
        weights = [None if self.weight is None else self.weight[rows]]
        reach = measure_reach([self.features[rows]], self.constant, weights)
        options = {"a": a, "prior": prior, "penalty": self.penalty, "tight": tight}
        return theorem_lambda(reach, self.loss, **options)

    def values(self, W, lam):
        """Risk plus penalty for each row of W."""
        f = self.Z @ np.atleast_2d(W).T
        weight = np.ones(len(self.y)) if self.weight is None else self.weight
        parts = {True: 0.0, False: 0.0}
        for term in self.risk.terms():
            rows = self.y == term.kind
            losses = LOSSES[self.loss].value(term.sign * f[rows])
            parts[term.guarded] += term.weight * np.average(losses, axis=0, weights=weight[rows])
        bracket = np.maximum(parts[True], 0) if self.risk.guarded else parts[True]
        return parts[False] + bracket + lam * PENALTY[self.penalty](np.atleast_2d(W))

    def candidates(self):
        """Random w of all sizes, and w that send one labelled row to each bad score."""
        d = self.Z.shape[1]
        W = [np.zeros((1, d)), 10.0 ** self.rng.uniform(-3, 3, (20, 1)) * self.rng.normal(size=d)]
        sizes = np.geomspace(1e-3, 1e3, 50)[:, None]
        for row in self.Z[self.y != 0]:
            single = np.zeros(d)
            single[np.argmax(np.abs(row))] = 1 / row[np.argmax(np.abs(row))]
            for direction in (row / (row @ row), single):
                W += [sizes * direction, -sizes * direction]
        return np.concatenate(W)

    def minima(self, lam):
        """Where Nelder-Mead and L-BFGS end from the worst candidates."""
        W = self.candidates()
        starts = W[np.argsort(self.values(W, lam))]
        for method, start in (("Nelder-Mead", starts[0]), ("L-BFGS-B", starts[1])):
            options = {"maxiter": 40}
            yield minimize(
                lambda w: self.values(w, lam)[0], start, method=method, options=options
            ).x

    def check(self, lam, search=True):
        W = self.candidates()
        W = np.concatenate([W, [*self.minima(lam)]]) if search else W
        paid = lam * PENALTY[self.penalty](W)
        assert (self.values(W, lam) >= -1e-9 * (1 + paid)).all()


setting = {
    "seed": st.integers(0, 2**32 - 1),
    "loss": st.sampled_from(list(LOSSES)),
    "a": st.floats(1e-3, 0.999) | st.sampled_from([0.1, 0.5, 1e-6, 1 - 1e-6]),
    "prior": st.floats(0.01, 0.99),
    "penalty": st.sampled_from(list(PENALTY)),
    "constant": st.sampled_from([0.0, 1.0]) | st.floats(0.01, 100),
    "helpful": st.booleans(),
}


@each("tight", [False, True])
@given(**setting)
@settings(max_examples=40, deadline=None)
def test_the_regularised_objective_is_never_negative(tight, **case):
    sample = Sample(**case)
    sample.check(sample.lam(tight))


@each("tight", [False, True])
@given(**setting)
@settings(max_examples=30, deadline=None)
def test_nor_when_rows_have_weights(tight, **case):
    sample = Sample(**case, weighted=2)
    sample.check(sample.lam(tight), search=False)


@each("tight", [False, True])
@each(("risk", "sign"), [("pn", 1), ("pnu", 1), ("pnu", -1), ("nnrad", 1)])
@given(**setting)
@settings(max_examples=30, deadline=None)
def test_nor_for_the_other_risks_to_which_the_theorem_applies(risk, sign, tight, **case):
    case["a"] *= sign
    sample = Sample(**case, risk=risk)
    sample.check(sample.lam(tight), search=False)


def test_the_theorem_applies_where_a_risk_says_so():
    applies = {name for name in RISKS if get_risk(name).theorem is not None}
    assert applies == {"pn", "pnu", "rad", "nnrad"}
    assert get_risk("rad", a=0.3, prior=0.9).theorem == (-1, 0.3, 0.9)
    kind, a, prior = get_risk("pnu", a=-0.3, prior=0.9).theorem
    assert (kind, a) == (1, 0.3)
    assert prior == pytest.approx(0.1)


@each("a", [0.02, 0.1, 0.5, 0.9])
@every_penalty
@every_loss
def test_less_than_the_tight_value_is_not_safe_for_one_anomaly(loss, penalty, a):
    phi = np.array([[0.5, -2.0, 1.0]])
    options = {"a": a, "prior": 0.7, "penalty": penalty, "fit_intercept": False}
    lam = theorem_lambda(phi, loss, tight=True, **options)
    # The cheapest w that gives the anomaly the score -s.
    cheapest = -phi[0] / (phi[0] @ phi[0]) if penalty == "l2" else np.array([0, 0.5, 0])
    s = np.geomspace(1e-3, 1e8, 2000)
    costs = PENALTY[penalty](s[:, None] * cheapest)
    anomalies = 0.3 * anomaly_loss(loss, -s, a)
    assert (anomalies + lam * costs >= -1e-9 * (1 + lam * costs)).all()
    assert (anomalies + 0.9 * lam * costs).min() < 0


@each("loss", ["squared", "modified_huber", "logistic"])
def test_the_printed_l1_value_would_not_satisfy_the_theorem_s_condition(loss):
    b1, b2, b3 = TABLE[loss]
    a, prior = 0.1, 0.8
    w = np.array([100.0])
    printed = ((1 - a) * b2 * b3 + a * b1) * (1 - prior)
    proved = theorem_lambda(np.array([[1.0]]), loss, a=a, prior=prior, penalty="l1")
    for lam, holds in ((printed, False), (proved, True)):
        assert (theorem_margin(w, np.abs(w).sum(), lam, loss, a=a, prior=prior) >= 0) == holds


def intercept_example(loss):
    """Anomalies at 0, all else far away, and the (w, b) that scores anomalies -1, others well."""
    target = 1.0 if loss == "squared" else 60.0
    x = np.concatenate([[0.0], np.full(4, 1e3)])
    y = np.array([-1, 1, 1, 0, 0])
    return x, y, np.array([(target + 1) / 1e3, -1.0])


@every_loss
def test_an_intercept_that_is_not_counted_or_not_penalised_voids_the_guarantee(loss):
    x, y, theta = intercept_example(loss)
    a, prior = 0.9, 0.2
    phi = x[:1, None]
    options = {"a": a, "prior": prior}
    risk = float(get_risk("rad", loss, **options).value(x * theta[0] + theta[1], y))
    counted = theorem_lambda(phi, loss, **options)
    not_counted = theorem_lambda(phi, loss, fit_intercept=False, **options)
    assert risk + counted * theta @ theta >= 0
    assert risk + counted * theta[0] ** 2 < -1e-3
    assert risk + not_counted * theta @ theta < -1e-3


def test_sample_weights_count_in_the_tight_value():
    rng = np.random.default_rng(0)
    anomalies = np.concatenate([[[-10.0]], np.full((9, 1), 0.01)])
    X = np.vstack([rng.normal(size=(50, 1)), [[3.0], [4.0]], anomalies])
    y = np.repeat([0, 1, -1], [50, 2, 10])
    weight = np.ones(len(y))
    weight[52] = 1000.0
    model = ShallowRAD(lam="tight", loss="squared", scale=False, a=0.5, prior=0.5)
    assert model.fit(X, y, sample_weight=weight).objective_ >= 0


# --- the condition for a given w ------------------------------------------------------------


@given(**setting, size=st.floats(0, 100), lam=st.floats(0, 10))
@settings(max_examples=60, deadline=None)
def test_the_objective_is_at_least_the_margin_so_that_a_margin_proves_it(size, lam, **case):
    sample = Sample(**case)
    w = size * sample.rng.normal(size=sample.Z.shape[1])
    scores = sample.Z[sample.y == -1] @ w
    cost = PENALTY[sample.penalty](w)
    margin = theorem_margin(scores, cost, lam, sample.loss, a=sample.a, prior=sample.prior)
    assert sample.values(w, lam)[0] >= margin - 1e-9 * (1 + abs(margin) + lam * cost)


@given(**setting)
@settings(max_examples=40, deadline=None)
def test_the_theorem_s_lambda_satisfies_the_condition_for_every_w(**case):
    sample = Sample(**case)
    lam = sample.lam()
    for w in sample.candidates():
        scores = sample.Z[sample.y == -1] @ w
        cost = PENALTY[sample.penalty](w)
        margin = theorem_margin(scores, cost, lam, sample.loss, a=sample.a, prior=sample.prior)
        assert margin >= -1e-9 * (1 + lam * cost)


@every_loss
def test_the_margin_is_the_difference_of_the_two_sides(loss):
    scores, a, prior, lam, cost = np.array([-2.0, 1.0, 0.5]), 0.2, 0.7, 0.3, 1.5
    b1, b2, b3 = TABLE[loss]
    slope, pi_n = (1 - a) * b2 + a * b1, 1 - prior
    right = slope * pi_n / 3 * (2 + 1 + 0.5) - (1 - a) * pi_n * b2 * b3
    margin = theorem_margin(scores, cost, lam, loss, a=a, prior=prior)
    assert_allclose(margin, lam * cost - right, rtol=1e-12)


# --- reach ------------------------------------------------------------------------------------


@each("constant", [1.0, 0.0, 2.5])
def test_reach_is_what_its_fields_say(constant):
    block = np.random.default_rng(0).normal(size=(7, 3))
    phi = np.column_stack([block, np.full(7, constant)]) if constant else block
    reach = measure_reach([block], constant)
    assert_allclose(reach.c, max(np.linalg.norm(row) for row in phi))
    assert_allclose(reach.c_inf, np.abs(phi).max())
    assert_allclose(reach.spectral, np.linalg.norm(phi, 2) ** 2 / 7)
    assert_allclose(reach.column_mean, np.abs(phi).mean(axis=0).max())


def test_reach_comes_from_blocks_as_from_the_whole():
    phi = np.random.default_rng(1).normal(size=(7, 3))
    whole, parts = measure_reach([phi]), measure_reach([phi[:1], phi[1:1], phi[1:5], phi[5:]])
    for field in ("c", "c_inf", "spectral", "column_mean"):
        assert_allclose(getattr(parts, field), getattr(whole, field), rtol=1e-12)


def test_an_integer_weight_is_a_repeated_anomaly():
    phi = np.random.default_rng(2).normal(size=(4, 3))
    copies = np.array([1, 3, 2, 5])
    weighted = measure_reach([phi], weights=[copies.astype(float)])
    repeated = measure_reach([np.repeat(phi, copies, axis=0)])
    for field in ("c", "c_inf", "spectral", "column_mean"):
        assert_allclose(getattr(weighted, field), getattr(repeated, field), rtol=1e-12)


def test_very_many_features_are_measured_by_their_norm_alone(monkeypatch):
    monkeypatch.setattr(regularization, "_MAX_SPECTRAL", 3)
    phi = np.random.default_rng(3).normal(size=(5, 3))
    reach = measure_reach([phi[:2], phi[2:]])
    assert_allclose(reach.spectral, reach.c**2)
    assert measure_reach([phi], constant=0.0).spectral < reach.c**2


# --- mistakes ---------------------------------------------------------------------------------


@each("a", [-0.1, 1, 1.5, float("nan"), "0.1"])
def test_a_that_is_no_mixing_weight_is_refused(a):
    with pytest.raises(InputError, match="a must be a number strictly between 0 and 1, got"):
        theorem_lambda(np.ones((1, 1)), a=a)
    with pytest.raises(InputError, match="a must be a number strictly between 0 and 1, got"):
        theorem_margin(np.ones(1), 1.0, 1.0, a=a)


@each("prior", [0, 1, -1, float("nan")])
def test_a_prior_that_is_no_share_is_refused(prior):
    with pytest.raises(InputError, match="prior must be a number strictly between 0 and 1, got"):
        theorem_lambda(np.ones((1, 1)), prior=prior)


@each("size", [0, -1.0, float("nan"), float("inf"), "1", None, True])
def test_a_constant_that_is_no_positive_number_is_refused(size):
    with pytest.raises(InputError, match="intercept_scaling must be a number strictly between 0"):
        theorem_lambda(np.ones((1, 1)), intercept_scaling=size)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="penalty='ridge' is not known; choose from l2, l1"):
        theorem_lambda(np.ones((1, 1)), penalty="ridge")
    with pytest.raises(InputError, match="Did you mean 'logistic'"):
        theorem_lambda(np.ones((1, 1)), "logistics")


@each("nobody", [np.empty((0, 2)), []])
def test_without_a_labelled_anomaly_there_is_no_value(nobody):
    with pytest.raises(InputError, match="needs at least one labelled anomaly"):
        theorem_lambda(nobody)
    with pytest.raises(InputError, match="needs at least one labelled anomaly"):
        measure_reach([])


@each("fit_intercept", [True, False])
@each("penalty", PENALTY)
@each("value", [np.nan, np.inf])
def test_features_that_are_not_finite_are_refused(value, penalty, fit_intercept):
    phi = np.array([[1.0, value], [1.0, 2.0]])
    with pytest.raises(InputError, match="NaN or infinity"):
        theorem_lambda(phi, penalty=penalty, fit_intercept=fit_intercept)
