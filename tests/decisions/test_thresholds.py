"""The threshold that minimises the zero-one risk, and other rules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loops import each

from riskad import InputError
from riskad.core.risks import RISKS, get_risk
from riskad.decisions.anomaly_rate import as_rate_estimate
from riskad.decisions.calibration import Calibration
from riskad.decisions.thresholds import (
    THRESHOLDS,
    AnomalyRate,
    BestF,
    Cost,
    FalseAlarms,
    Likely,
    RiskZero,
    TopK,
    parse_threshold,
    zero_one_threshold,
)


def zero_one_risk(risk, scores, y, threshold):
    """The risk's definition, with l(z) = 1 for a wrong decision, spelled out."""
    normal = scores >= threshold
    parts = {False: 0.0, True: 0.0}  # the guarded part is never negative
    for term in risk.terms():
        wrong = ~normal if term.sign > 0 else normal
        guarded = risk.guarded and term.guarded
        parts[guarded] += term.weight * wrong[y == term.kind].mean()
    return parts[False] + max(0.0, parts[True])


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


RULES = [RiskZero(), Likely(), AnomalyRate(), AnomalyRate(0.07), BestF(), BestF(0.5)]
RULES += [Cost(1, 25), FalseAlarms(0.05), TopK(50)]


def make_calibration(n_p=200, n_n=40, n_u=1000, pi_n=0.1, seed=0):
    """Scores of labelled rows and of unlabelled rows, and which of these are anomalies."""
    rng = np.random.default_rng(seed)
    anomalous = rng.random(n_u) < pi_n
    unlabelled = rng.normal(0, 1, n_u) + 2.5 * anomalous
    scores = np.concatenate([rng.normal(0, 1, n_p), rng.normal(2.5, 1, n_n)])
    codes = np.repeat([1, -1], [n_p, n_n]).astype(np.int16)
    calibration = Calibration(scores, codes, np.sort(unlabelled), n_u, 1.1, as_rate_estimate(pi_n))
    return calibration, unlabelled, anomalous


@each("rule", RULES)
def test_a_spelling_is_read_as_it_is_written(rule):
    assert parse_threshold(str(rule)) == rule
    assert type(rule) in THRESHOLDS.values()
    assert np.isfinite(rule.of(make_calibration()[0]))


@each(
    ("text", "message"),
    [
        ("f-one", "is not known"),
        ("false_alarms:0.1", "Did you mean 'false-alarms'"),
        ("cost:1:x", "cost:FALSE_ALARM:MISS"),
        ("cost:1:2:3", "cost:FALSE_ALARM:MISS"),
        ("risk:1", "risk alone"),
        ("top:2.5", "whole number"),
        ("top:inf", "top:K"),
        ("top:0", "threshold='top:0' cannot be used: k must be a whole number"),
        ("rate:2", "pi_n must be"),
        ("f0", "beta must be"),
        ("cost:-1:1", "false_alarm must be"),
        ("false-alarms:1", "rate must be"),
    ],
)
def test_other_spellings_are_refused_with_the_right_one(text, message):
    with pytest.raises(InputError, match=message):
        parse_threshold(text)


def test_the_rate_and_the_top_are_counted_in_the_unlabelled_rows():
    c, unlabelled, _ = make_calibration()
    assert (unlabelled > AnomalyRate().of(c)).sum() == 100
    assert (unlabelled > AnomalyRate(0.25).of(c)).sum() == 250
    for k in (1, 17, 999, 1000, 5000):
        assert (unlabelled > TopK(k).of(c)).sum() == min(k, 1000)
    other = np.arange(30.0)
    assert (other > TopK(7).of(c.over(other))).sum() == 7
    tied = c.over(np.repeat([0.0, 1.0], [5, 5]))
    assert (tied.unlabelled > TopK(3).of(tied)).sum() == 0


@each("rule", [BestF(1), BestF(2), Cost(1, 1), Cost(1, 10)])
def test_best_f_and_cost_are_nearly_those_of_the_hidden_truth(rule):
    def merit(flagged, truth):
        hits, false = (flagged & truth).sum(), (flagged & ~truth).sum()
        misses = (truth & ~flagged).sum()
        if isinstance(rule, Cost):
            return -(rule.false_alarm * false + rule.miss * misses)
        b2 = rule.beta**2
        return (1 + b2) * hits / ((1 + b2) * hits + b2 * misses + false)

    found, best, nothing = [], [], []
    for seed in range(20):
        c, unlabelled, truth = make_calibration(seed=seed)
        found.append(merit(unlabelled > rule.of(c), truth))
        levels = np.quantile(unlabelled, np.linspace(0, 1, 99))
        best.append(max(merit(unlabelled > t, truth) for t in levels))
        nothing.append(merit(unlabelled > 99, truth))
    assert np.mean(nothing) + 0.85 * (np.mean(best) - np.mean(nothing)) < np.mean(found)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 60), rate=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_false_alarms_are_the_rows_with_small_p_values(n, rate, seed):
    c, unlabelled, _ = make_calibration(n_p=n, seed=seed)
    if rate * (n + 1) < 1:
        with pytest.raises(InputError, match=rf"the smallest is 1/{n + 1}"):
            FalseAlarms(rate).of(c)
    else:
        t = FalseAlarms(rate).of(c)
        np.testing.assert_array_equal(unlabelled > t, c.p_values(unlabelled) <= rate + 1e-9)


def test_false_alarms_say_how_many_labels_are_missing():
    c, _, _ = make_calibration(n_p=20)
    with pytest.raises(InputError, match=r"smallest is 1/21 = 0\.048.*label 979 more"):
        FalseAlarms(0.001).of(c)
    c, _, _ = make_calibration(n_p=99)
    assert FalseAlarms(0.01).of(c) == c.normals.max()


@each("rule", [BestF(), Cost(), AnomalyRate(), TopK()])
def test_without_unlabelled_rows_rules_that_need_it_say_so(rule):
    c, _, _ = make_calibration()
    with pytest.raises(InputError, match="unlabelled rows, and there are none"):
        rule.of(c.over(np.array([])))
