"""Theorem 1: its printed values, and the guarantee itself against random and adversarial w."""

from itertools import product

import numpy as np
import pytest
from conftest import THEOREM_CONSTANTS, make_contaminated_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from support.loops import each

from riskad.core import regularization
from riskad.core.checks import InputError
from riskad.core.losses import LOSSES, Logistic
from riskad.core.regularization import measure_reach, theorem_lambda
from riskad.core.risks import RISKS, get_risk
from riskad.detectors.shallow import ShallowRAD

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
        anomaly, loss, a=a, prior=0.5, penalty=penalty, tight=True, intercept_scaling=0
    )
    return tight / 0.5


@each("intercept_scaling", [0, 1])
@each(("a", "prior"), [(0.1, 0.8), (0.7, 0.3)])
@every_loss
def test_the_paper_s_values(loss, a, prior, intercept_scaling):
    phi = np.array([[3.0, -4.0], [0.0, 0.5]])
    b1, b2, b3 = THEOREM_CONSTANTS[loss]
    pi_n = 1 - prior
    c_squared, c_inf = 25 + intercept_scaling, 4
    l2 = ((1 - a) * b2 + a * b1) ** 2 * pi_n * c_squared / (4 * (1 - a) * b2 * b3)
    l1 = c_inf * ((1 - a) * b2 + a * b1) * pi_n
    options = {"a": a, "prior": prior, "intercept_scaling": intercept_scaling}
    assert_allclose(theorem_lambda(phi, loss, penalty="l2", **options), l2, rtol=1e-12)
    assert_allclose(theorem_lambda(phi, loss, penalty="l1", **options), l1, rtol=1e-12)


@each("tight", [False, True])
@every_penalty
def test_the_intercept_is_a_feature_of_size_one_or_as_set(penalty, tight):
    small = np.array([[0.1, 0.2], [0.3, -0.1]])
    options = {"penalty": penalty, "tight": tight}

    def as_column(size):
        counted = np.column_stack([small, [size, size]])
        return theorem_lambda(counted, intercept_scaling=0, **options)

    assert_allclose(theorem_lambda(small, **options), as_column(1.0))
    for size in (0.25, 1, 40.0):
        assert_allclose(theorem_lambda(small, intercept_scaling=size, **options), as_column(size))


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

    def check(self, lam, search):
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


@pytest.mark.slow
@each("tight", [False, True])
@each("weighted", [0, 2])
@each(("risk", "sign"), [("rad", 1), ("pn", 1), ("pnu", 1), ("pnu", -1), ("nnrad", 1)])
@given(**setting)
@settings(max_examples=20, deadline=None)
def test_the_regularised_objective_is_never_negative(risk, sign, weighted, tight, **case):
    case["a"] *= sign
    sample = Sample(**case, risk=risk, weighted=weighted)
    sample.check(sample.lam(tight), search=risk == "rad" and not weighted)


def test_the_theorem_applies_where_a_risk_says_so():
    applies = {name for name in RISKS if get_risk(name).theorem is not None}
    assert applies == {"pn", "pnu", "rad", "nnrad"}
    assert get_risk("rad", a=0.3, prior=0.9).theorem == (-1, 0.3, 0.9)
    kind, a, prior = get_risk("pnu", a=-0.3, prior=0.9).theorem
    assert (kind, a) == (1, 0.3)
    assert prior == pytest.approx(0.1)


@each("constant", [1.0, 0.0, 2.5])
def test_reach_is_what_its_fields_say_in_blocks_and_with_weights(constant):
    block = np.random.default_rng(0).normal(size=(7, 3))
    phi = np.column_stack([block, np.full(7, constant)]) if constant else block
    copies = np.array([1, 3, 2, 5, 1, 1, 2])
    repeated = np.repeat(phi, copies, axis=0)
    parts = [block[:1], block[1:1], block[1:5], block[5:]]
    of_parts = [copies[:1], copies[1:1], copies[1:5], copies[5:]]
    for reach, rows in (
        (measure_reach([block], constant), phi),
        (measure_reach(parts, constant), phi),
        (measure_reach([block], constant, [copies.astype(float)]), repeated),
        (measure_reach(parts, constant, [part.astype(float) for part in of_parts]), repeated),
    ):
        assert_allclose(reach.c, max(np.linalg.norm(row) for row in rows))
        assert_allclose(reach.c_inf, np.abs(rows).max())
        assert_allclose(reach.spectral, np.linalg.norm(rows, 2) ** 2 / len(rows))
        assert_allclose(reach.column_mean, np.abs(rows).mean(axis=0).max())


def test_very_many_features_are_measured_by_their_norm_alone(monkeypatch):
    monkeypatch.setattr(regularization, "_MAX_SPECTRAL", 3)
    phi = np.random.default_rng(3).normal(size=(5, 3))
    reach = measure_reach([phi[:2], phi[2:]])
    assert_allclose(reach.spectral, reach.c**2)
    assert measure_reach([phi], constant=0.0).spectral < reach.c**2


def test_a_loss_without_constants_takes_lambda_as_a_number_alone():
    class Other(Logistic):
        name = "other"
        theorem_constants = None

    X, y, _ = make_contaminated_rows(200)
    for lam in ("theorem", "tight", "cv"):
        with pytest.raises(InputError, match=r"the other loss has no constants.*lam as a number"):
            ShallowRAD(Other(), lam=lam).fit(X, y)
    assert ShallowRAD(Other(), lam=0.1).fit(X, y).lambda_ == 0.1


def test_mistakes_are_sentences():
    one = np.ones((1, 1))
    for name, values, words in (
        ("a", [-0.1, 1, 1.5, np.nan, "0.1"], "a must be a number"),
        ("prior", [0, 1, -1, np.nan], "prior must be a number"),
        ("intercept_scaling", [-1.0, np.nan, np.inf, "1", None, True], "must be a number"),
        ("penalty", ["ridge"], "choose from l2, l1"),
        ("loss", ["logistics"], "Did you mean 'logistic'"),
    ):
        for value in values:
            with pytest.raises(InputError, match=f"{name}.*{words}|^{words}"):
                theorem_lambda(one, **{name: value})
    for call, nothing in (
        (theorem_lambda, np.empty((0, 2))),
        (theorem_lambda, []),
        (measure_reach, []),
    ):
        with pytest.raises(InputError, match="needs at least one labelled anomaly"):
            call(nothing)
    for value, options in product(
        [np.nan, np.inf], [{}, {"penalty": "l1", "intercept_scaling": 0}]
    ):
        with pytest.raises(InputError, match="NaN or infinity"):
            theorem_lambda(np.array([[1.0, value]]), **options)
