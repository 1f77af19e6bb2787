"""Risks against the formulas of the paper, the identities between them, and known truth."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, Risk, Term, get_risk

UNGUARDED = [name for name in RISKS if not RISKS[name].guarded]
GUARDED = {"nnpu": "pu", "nnnu": "nu", "nnrad": "rad"}
SYMMETRIC = [name for name, loss in LOSSES.items() if loss.symmetric]
LINEAR_ODD = [name for name, loss in LOSSES.items() if loss.linear_odd is not None]

losses = st.sampled_from(list(LOSSES))
mixing = st.floats(0, 1)
priors = st.floats(0.01, 0.99)
seeds = st.integers(0, 2**32 - 1)


def draw(seed, n_rows=12, spread=3.0):
    """Scores and labels with at least two rows of each kind, in random order."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([[1, 1, -1, -1, 0, 0], rng.integers(-1, 2, n_rows - 6)])
    return spread * rng.standard_normal(n_rows), rng.permutation(y)


def by_hand(name, loss, f, y, a, prior):
    """The estimators as the paper and Sakai et al. print them."""
    pi_p, pi_n = prior, 1 - prior

    def mean(kind, sign):
        margins = [sign * score for score, label in zip(f, y, strict=True) if label == kind]
        return sum(float(LOSSES[loss].value(np.array(z))) for z in margins) / len(margins)

    if name == "pn":
        return pi_p * mean(+1, +1) + pi_n * mean(-1, -1)
    if name == "pu":
        return pi_p * (mean(+1, +1) - mean(+1, -1)) + mean(0, -1)
    if name == "nnpu":
        return pi_p * mean(+1, +1) + max(0, mean(0, -1) - pi_p * mean(+1, -1))
    if name == "nu":
        return -pi_n * (mean(-1, +1) - mean(-1, -1)) + mean(0, +1)
    if name == "nnnu":
        return pi_n * mean(-1, -1) + max(0, mean(0, +1) - pi_n * mean(-1, +1))
    if name == "rad":
        return (
            a * mean(0, +1)
            + (1 - a) * pi_p * mean(+1, +1)
            + pi_n * mean(-1, -1)
            - a * pi_n * mean(-1, +1)
        )
    if name == "nnrad":
        return (
            pi_n * mean(-1, -1)
            + (1 - a) * pi_p * mean(+1, +1)
            + a * max(0, mean(0, +1) - pi_n * mean(-1, +1))
        )
    other = "nu" if a >= 0 else "pu"
    pn, other = (by_hand(risk, loss, f, y, 0, prior) for risk in ("pn", other))
    return (1 - abs(a)) * pn + abs(a) * other


# --- values --------------------------------------------------------------------------------


def test_the_registry_holds_the_promised_risks():
    assert {"pn", "pu", "nnpu", "nu", "pnu", "rad", "nnrad"} <= set(RISKS)
    assert all(risk.name == name for name, risk in RISKS.items())


@each("loss", LOSSES)
@each("name", RISKS)
def test_value_is_that_of_the_formula(name, loss):
    signs = (1, -1) if name == "pnu" else (1,)
    for seed in range(5):
        f, y = draw(seed)
        rng = np.random.default_rng(seed)
        a, prior = rng.choice(signs) * rng.uniform(), rng.uniform(0.05, 0.95)
        value = get_risk(name, loss, a=a, prior=prior).value(f, y)
        assert_allclose(value, by_hand(name, loss, f, y, a, prior), rtol=1e-12, atol=1e-12)


@given(losses, mixing, priors, seeds)
@settings(max_examples=50, deadline=None)
def test_mixtures_meet_their_parents(loss, a, prior, seed):
    f, y = draw(seed)

    def value(name, a):
        return get_risk(name, loss, a=a, prior=prior).value(f, y)

    close = {"rtol": 1e-12, "atol": 1e-12}
    assert_allclose(value("rad", 0), value("pn", a), **close)
    assert_allclose(value("rad", 1), value("nu", a), **close)
    assert_allclose(value("pnu", a), value("rad", a), **close)
    assert_allclose(value("rad", a), (1 - a) * value("pn", a) + a * value("nu", a), **close)
    assert_allclose(value("pnu", -a), (1 - a) * value("pn", a) + a * value("pu", a), **close)
    assert_allclose(value("nnrad", 1), value("nnnu", a), **close)
    assert_allclose(value("nnrad", 0), value("pn", a), **close)


@given(losses, priors, st.floats(0, 1), seeds)
@settings(max_examples=50, deadline=None)
def test_exchanging_normal_and_anomaly_turns_pu_into_nu(loss, prior, a, seed):
    f, y = draw(seed)

    def value(name, sign, a=a):
        p = prior if sign > 0 else 1 - prior
        return get_risk(name, loss, a=a, prior=p).value(sign * f, sign * y)

    assert_allclose(value("pu", 1), value("nu", -1), rtol=1e-12, atol=1e-12)
    assert_allclose(value("nnpu", 1), value("nnnu", -1), rtol=1e-12, atol=1e-12)
    assert_allclose(value("pnu", 1, a), value("pnu", -1, -a), rtol=1e-12, atol=1e-12)


@each("loss", SYMMETRIC)
def test_symmetric_losses_give_the_first_forms_of_pu_and_nu(loss):
    f, y = draw(3)
    pi_p, pi_n = 0.7, 0.3
    value = LOSSES[loss].value
    first_pu = 2 * pi_p * value(f[y == 1]).mean() - pi_p + value(-f[y == 0]).mean()
    first_nu = 2 * pi_n * value(-f[y == -1]).mean() - pi_n + value(f[y == 0]).mean()
    assert_allclose(get_risk("pu", loss, prior=pi_p).value(f, y), first_pu, atol=1e-14)
    assert_allclose(get_risk("nu", loss, prior=pi_p).value(f, y), first_nu, atol=1e-14)


@each("loss", LINEAR_ODD)
def test_linear_odd_losses_give_the_second_forms_of_pu_and_nu(loss):
    f, y = draw(4)
    pi_p, pi_n, c = 0.7, 0.3, LOSSES[loss].linear_odd
    value = LOSSES[loss].value
    second_pu = -c * pi_p * f[y == 1].mean() + value(-f[y == 0]).mean()
    second_nu = c * pi_n * f[y == -1].mean() + value(f[y == 0]).mean()
    assert_allclose(get_risk("pu", loss, prior=pi_p).value(f, y), second_pu, atol=1e-12)
    assert_allclose(get_risk("nu", loss, prior=pi_p).value(f, y), second_nu, atol=1e-12)


# --- the guard -----------------------------------------------------------------------------


@each("name", GUARDED)
@given(loss=losses, a=st.floats(0.01, 0.99), prior=priors, seed=seeds)
@settings(max_examples=40, deadline=None)
def test_a_guard_raises_the_value_or_leaves_it(name, loss, a, prior, seed):
    f, y = draw(seed)
    guarded = get_risk(name, loss, a=a, prior=prior)
    plain = get_risk(GUARDED[name], loss, a=a, prior=prior)
    bracket = {"nnpu": (0, +1), "nnnu": (0, -1), "nnrad": (0, -1)}[name]
    as_normal = -1 if name == "nnpu" else +1
    inside = sum(
        (1 if kind == 0 else -(prior if kind > 0 else 1 - prior))
        * LOSSES[loss].value(as_normal * f[y == kind]).mean()
        for kind in bracket
    )
    gain = max(0.0, -inside) * (a if name == "nnrad" else 1)
    assert_allclose(guarded.value(f, y) - plain.value(f, y), gain, rtol=1e-9, atol=1e-12)
    assert guarded.value(f, y) >= -1e-12


@each("name", GUARDED)
def test_a_guard_holds_where_the_bracket_would_be_negative(name):
    f, y = np.array([4.0, -4.0, 4.0]), np.array([1, -1, 0])
    f = -f if name == "nnpu" else f
    y = -y if name == "nnpu" else y
    held = get_risk(name, "hinge", a=0.5, prior=0.5)
    free = get_risk(GUARDED[name], "hinge", a=0.5, prior=0.5)
    assert held.value(f, y) == 0
    assert free.value(f, y) < -1


# --- weights and parts -----------------------------------------------------------------------


@each("loss", ["hinge", "logistic", "ramp"])
@each("name", RISKS)
def test_an_integer_weight_is_a_repeated_row(name, loss):
    f, y = draw(5)
    weight = np.random.default_rng(5).integers(1, 4, len(y))
    risk = get_risk(name, loss, a=0.3)
    repeated = risk.value(np.repeat(f, weight), np.repeat(y, weight))
    assert_allclose(risk.value(f, y, weight.astype(float)), repeated, rtol=1e-12, atol=1e-14)
    assert abs(risk.value(f, y) - repeated) > 1e-6


@each("name", RISKS)
def test_a_row_of_weight_zero_is_as_good_as_absent(name):
    f, y = draw(6)
    weight = np.ones(len(y))
    weight[[0, -1]] = 0
    risk = get_risk(name, a=0.3)
    assert_allclose(risk.value(f, y, weight), risk.value(f[1:-1], y[1:-1]), rtol=1e-12)


@each("loss", LOSSES)
@each("name", RISKS)
def test_parts_add_up_to_the_unguarded_risk(name, loss):
    f, y = draw(7)
    weight = np.random.default_rng(7).uniform(0.5, 2, len(y))
    parts = get_risk(name, loss, a=0.3).parts(f, y, weight)
    total = get_risk(GUARDED.get(name, name), loss, a=0.3).value(f, y, weight)
    assert_allclose(sum(parts.values()), total, rtol=1e-12, atol=1e-14)


def test_parts_are_named_after_what_they_charge():
    f, y = draw(8)
    parts = get_risk("rad", "hinge", a=0.2, prior=0.9).parts(f, y)
    hinge = LOSSES["hinge"].value
    expected = {
        "normal as normal": 0.8 * 0.9 * hinge(f[y == 1]).mean(),
        "anomaly as anomaly": 0.1 * hinge(-f[y == -1]).mean(),
        "unlabelled as normal": 0.2 * hinge(f[y == 0]).mean(),
        "anomaly as normal": -0.2 * 0.1 * hinge(f[y == -1]).mean(),
    }
    assert parts == pytest.approx(expected, rel=1e-12)


@each("name", RISKS)
def test_labels_matter(name):
    f, y = draw(9)
    risk = get_risk(name, a=0.3)
    assert abs(risk.value(f, y) - risk.value(f, np.roll(y, 1))) > 1e-3


@each("name", RISKS)
def test_the_order_of_rows_does_not_matter(name):
    f, y = draw(9)
    order = np.random.default_rng(1).permutation(len(y))
    risk = get_risk(name, a=0.3)
    assert_allclose(risk.value(f, y), risk.value(f[order], y[order]), rtol=1e-12)


@each(
    ("name", "parameter", "used"),
    [("rad", "a", True), ("nnrad", "a", True), ("pnu", "a", True), ("pu", "a", False)]
    + [("nu", "a", False), ("pn", "a", False)]
    + [(name, "prior", True) for name in RISKS],
)
def test_parameters_are_used_where_they_belong(name, parameter, used):
    f, y = draw(10)
    low, high = (get_risk(name, **{parameter: value}).value(f, y) for value in (0.3, 0.6))
    assert (abs(low - high) > 1e-6) == used


# --- truth -----------------------------------------------------------------------------------


def expectation(function, mean, spread):
    x = np.linspace(mean - 12 * spread, mean + 12 * spread, 20001)
    density = np.exp(-0.5 * ((x - mean) / spread) ** 2) / (spread * np.sqrt(2 * np.pi))
    return np.trapezoid(function(x) * density, x)


def simulate(risk, n_draws, seed, n_p=4, n_n=3, n_u=10):
    """Values of the risk over draws of P, N and U from a mixture of N(1, 1) and N(-1.5, 2)."""
    rng = np.random.default_rng(seed)
    y = np.repeat([1, -1, 0], [n_p, n_n, n_u])
    values = []
    for _ in range(n_draws):
        normal = np.concatenate([np.ones(n_p), np.zeros(n_n), rng.random(n_u) < risk.prior])
        f = np.where(normal, rng.normal(1, 1, len(y)), rng.normal(-1.5, 2, len(y)))
        values.append(float(risk.value(f, y)))
    return np.array(values)


def true_risk(loss, prior):
    value = LOSSES[loss].value
    as_normal = expectation(value, 1, 1)
    as_anomaly = expectation(lambda x: value(-x), -1.5, 2)
    return prior * as_normal + (1 - prior) * as_anomaly


@each("loss", LOSSES)
@each("name", UNGUARDED)
def test_an_unguarded_risk_is_unbiased(name, loss):
    a = -0.6 if name == "pnu" else 0.6
    values = simulate(get_risk(name, loss, a=a, prior=0.7), 300, seed=len(name))
    error = values.std(ddof=1) / len(values) ** 0.5
    assert abs(values.mean() - true_risk(loss, 0.7)) < 4 * error


@each("name", GUARDED)
def test_a_guarded_risk_is_biased_upwards_and_less_so_with_more_rows(name):
    risk = get_risk(name, "logistic", a=0.6, prior=0.7)
    truth = true_risk("logistic", 0.7)
    few = simulate(risk, 300, seed=1, n_p=1, n_n=1, n_u=1)
    many = simulate(risk, 30, seed=2, n_p=400, n_n=300, n_u=1000)
    assert few.mean() - truth > 3 * few.std() / len(few) ** 0.5
    assert abs(many.mean() - truth) < 4 * many.std() / len(many) ** 0.5


# --- torch -----------------------------------------------------------------------------------


@each("weighted", [False, True])
@each("loss", LOSSES)
@each("name", RISKS)
def test_torch_gives_the_same_value_and_the_gradient(name, loss, weighted):
    f, y = draw(11)
    weight = np.random.default_rng(11).uniform(0.5, 2, len(y)) if weighted else None
    risk = get_risk(name, loss, a=0.4, prior=0.6)
    scores = torch.tensor(f, requires_grad=True)
    value = risk.value(scores, torch.tensor(y), None if weight is None else torch.tensor(weight))
    assert_allclose(value.detach(), risk.value(f, y, weight), rtol=1e-12)
    value.backward()
    step = 1e-6 * np.eye(len(f))
    up, down = ([risk.value(row, y, weight) for row in f + sign * step] for sign in (1, -1))
    assert_allclose(scores.grad, (np.array(up) - np.array(down)) / 2e-6, atol=1e-7)
    assert scores.grad.abs().max() > 1e-4


@each("name", RISKS)
def test_single_precision_stays_single(name):
    f, y = draw(12)
    risk = get_risk(name)
    value = risk.value(torch.tensor(f, dtype=torch.float32), torch.tensor(y))
    assert value.dtype == torch.float32
    assert risk.value(f.astype(np.float32), y).dtype == np.float32
    assert_allclose(value, risk.value(f, y), rtol=1e-5, atol=1e-6)


# --- mistakes --------------------------------------------------------------------------------

NEEDS = {
    "pn": {1, -1},
    "pu": {1, 0},
    "nnpu": {1, 0},
    "nu": {-1, 0},
    "nnnu": {-1, 0},
    "pnu": {1, -1, 0},
    "rad": {1, -1, 0},
    "nnrad": {1, -1, 0},
}
WORDS = {1: "normal", -1: "anomaly", 0: "unlabelled"}


@each("missing", [1, -1, 0])
@each("name", RISKS)
def test_a_missing_kind_is_named_if_the_risk_needs_it(name, missing):
    f, y = draw(13)
    f, y = f[y != missing], y[y != missing]
    risk = get_risk(name)
    assert risk.kinds() == NEEDS[name]
    if missing in NEEDS[name]:
        with pytest.raises(InputError, match=f"{name} risk needs {WORDS[missing]} rows"):
            risk.value(f, y)
    else:
        assert np.isfinite(risk.value(f, y))


@each(("a", "missing"), [(0, 0), (1, 1)])
@each("name", ["rad", "nnrad", "pnu"])
def test_at_the_ends_of_a_one_kind_is_not_needed(name, a, missing):
    f, y = draw(13)
    risk = get_risk(name, a=a)
    assert missing not in risk.kinds()
    expected = risk.value(f, y)
    assert risk.value(f[y != missing], y[y != missing]) == expected


def test_a_kind_without_weight_is_missing():
    f, y = draw(13)
    with pytest.raises(InputError, match="needs anomaly rows"):
        get_risk("rad").value(f, y, (y != -1).astype(float))


@each(
    ("name", "a"),
    [("rad", -0.1), ("rad", 1.1), ("nnrad", -1), ("nnrad", np.nan), ("pnu", -1.1), ("pnu", 2)],
)
def test_a_out_of_range_is_refused(name, a):
    low = -1 if name == "pnu" else 0
    with pytest.raises(InputError, match=f"a must be a number between {low} and 1, got"):
        get_risk(name, a=a)


@each("prior", [0, 1, -0.2, 1.5, float("nan"), "0.8", None, True])
@each("name", RISKS)
def test_a_prior_that_is_no_share_is_refused(name, prior):
    with pytest.raises(InputError, match="prior must be a number strictly between 0 and 1, got"):
        get_risk(name, prior=prior)


def test_an_unknown_risk_or_loss_is_refused_with_a_guess():
    with pytest.raises(InputError, match=r"risk='nrad'.*Did you mean 'n?n?rad'"):
        get_risk("nrad")
    with pytest.raises(InputError, match="Did you mean 'hinge'"):
        get_risk("rad", "hinje")


def test_a_risk_of_ones_own_needs_only_its_terms():
    class Trusting(Risk):
        name = "trusting"

        def terms(self):
            return Term(-1, -1, self.pi_n), Term(0, +1, self.pi_p)

    f, y = draw(14)
    value = get_risk(Trusting, "hinge", prior=0.9).value(f, y)
    hinge = LOSSES["hinge"].value
    assert_allclose(value, 0.1 * hinge(-f[y == -1]).mean() + 0.9 * hinge(f[y == 0]).mean())
