"""Risks against the formulas of the paper, the identities between them, and known truth."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES
from riskad.core.risks import RISKS, get_risk

GUARDED = {"nnpu": "pu", "nnnu": "nu", "nnrad": "rad"}

losses = st.sampled_from(list(LOSSES))
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

    p, n = pi_p * mean(+1, +1), pi_n * mean(-1, -1)
    p_as_n, n_as_p = pi_p * mean(+1, -1), pi_n * mean(-1, +1)
    values = {
        "pn": p + n,
        "pu": p - p_as_n + mean(0, -1),
        "nnpu": p + max(0, mean(0, -1) - p_as_n),
        "nu": n - n_as_p + mean(0, +1),
        "nnnu": n + max(0, mean(0, +1) - n_as_p),
        "rad": a * mean(0, +1) + (1 - a) * p + n - a * n_as_p,
        "nnrad": n + (1 - a) * p + a * max(0, mean(0, +1) - n_as_p),
    }
    if name in values:
        return values[name]
    other = "nu" if a >= 0 else "pu"
    pn, other = (by_hand(risk, loss, f, y, 0, prior) for risk in ("pn", other))
    return (1 - abs(a)) * pn + abs(a) * other


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


@each("loss", ["hinge", "logistic", "ramp"])
@each("name", RISKS)
def test_an_integer_weight_is_a_repeated_row(name, loss):
    f, y = draw(5)
    weight = np.random.default_rng(5).integers(1, 4, len(y))
    risk = get_risk(name, loss, a=0.3)
    repeated = risk.value(np.repeat(f, weight), np.repeat(y, weight))
    assert_allclose(risk.value(f, y, weight.astype(float)), repeated, rtol=1e-12, atol=1e-14)
    assert abs(risk.value(f, y) - repeated) > 1e-6


@each("loss", LOSSES)
@each("name", RISKS)
def test_parts_add_up_to_the_unguarded_risk(name, loss):
    f, y = draw(7)
    weight = np.random.default_rng(7).uniform(0.5, 2, len(y))
    parts = get_risk(name, loss, a=0.3).parts(f, y, weight)
    total = get_risk(GUARDED.get(name, name), loss, a=0.3).value(f, y, weight)
    assert_allclose(sum(parts.values()), total, rtol=1e-12, atol=1e-14)


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


NEEDS = {"pn": {1, -1}, "pu": {1, 0}, "nnpu": {1, 0}, "nu": {-1, 0}, "nnnu": {-1, 0}}
NEEDS |= {name: {1, -1, 0} for name in ("pnu", "rad", "nnrad")}
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


def test_mistakes_are_refused_with_a_guess():
    for name, a in (("rad", -0.1), ("rad", 1.1), ("nnrad", np.nan), ("pnu", -1.1), ("pnu", 2)):
        low = -1 if name == "pnu" else 0
        with pytest.raises(InputError, match=f"a must be a number between {low} and 1, got"):
            get_risk(name, a=a)
    for name, prior in product(RISKS, [0, 1, -0.2, 1.5, float("nan"), "0.8", None, True]):
        with pytest.raises(InputError, match="prior must be a number strictly between 0 and 1"):
            get_risk(name, prior=prior)
    with pytest.raises(InputError, match=r"risk='nrad'.*Did you mean 'n?n?rad'"):
        get_risk("nrad")
    with pytest.raises(InputError, match="Did you mean 'hinge'"):
        get_risk("rad", "hinje")
    f, y = draw(13)
    with pytest.raises(InputError, match="needs anomaly rows"):
        get_risk("rad").value(f, y, (y != -1).astype(float))
