"""The threshold that minimises the zero-one risk."""

import numpy as np
import pytest
from conftest import make_pile
from hypothesis import given, settings
from hypothesis import strategies as st

from riskad.risks import RISKS, get_risk
from riskad.thresholds import zero_one_threshold


def zero_one_risk(risk, scores, y, threshold):
    """The risk's definition, with l(z) = 1 for a wrong decision, spelled out."""
    normal = scores >= threshold
    plain = guarded = 0.0
    for term in risk.terms():
        wrong = ~normal if term.sign > 0 else normal
        part = term.weight * wrong[y == term.kind].mean()
        if risk.guarded and term.guarded:
            guarded += part
        else:
            plain += part
    return plain + (max(0.0, guarded) if risk.guarded else guarded)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(RISKS)))
def test_no_other_threshold_has_a_lower_zero_one_risk(seed, name):
    rng = np.random.default_rng(seed)
    y = np.concatenate([[1, -1, 0], rng.choice([1, -1, 0], 25)])
    scores = np.round(rng.normal(y, 1.5), 1)  # ties
    risk = get_risk(name, a=0.3, prior=0.7)
    best = zero_one_risk(risk, scores, y, zero_one_threshold(risk, scores, y))
    candidates = np.concatenate([scores, scores + 0.05, [-99, 99]])
    assert best <= min(zero_one_risk(risk, scores, y, t) for t in candidates) + 1e-9


def test_integer_weights_are_repeated_rows():
    X, y, _ = make_pile(80)
    weight = np.random.default_rng(0).integers(1, 4, 80)
    risk = get_risk("rad")
    repeated = zero_one_threshold(risk, np.repeat(X[:, 0], weight), np.repeat(y, weight))
    assert zero_one_threshold(risk, X[:, 0], y, weight.astype(float)) == pytest.approx(repeated)


def test_a_clean_gap_is_cut_in_its_middle():
    scores, y = np.array([10.0, 12.0, -4.0, -6.0, 11.0]), np.array([1, 1, -1, -1, 0])
    assert zero_one_threshold(get_risk("rad"), scores, y) == pytest.approx(3.0)
