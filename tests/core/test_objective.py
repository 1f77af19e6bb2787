"""The objective against the risk it stands for, finite differences and 60-digit sums."""

from decimal import Decimal, localcontext

import numpy as np
from conftest import DECIMAL_LOSSES
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from support.loops import each

from riskad.core.losses import LOSSES
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import RISKS, get_risk

# Every risk, with the mixing weights that make a difference to it.
CASES = [
    *[(name, 0.3) for name in RISKS],
    ("pnu", -0.3),
    *[(name, a) for name in ("rad", "nnrad") for a in (0.0, 1.0)],
]
GUARDED = [(name, 0.3) for name in RISKS if RISKS[name].guarded]


SEEDS = st.integers(0, 2**32 - 1)
every_loss = each("loss", LOSSES)
every_case = each(("name", "a"), CASES)


def draw(seed, n_rows=20, spread=2.0):
    """Scores off the kinks, labels and weights."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.concatenate([[1, 1, -1, -1, 0, 0], rng.integers(-1, 2, n_rows - 6)]))
    f = spread * rng.standard_normal(n_rows)
    f += np.where(np.abs(np.abs(f) - 1) < 1e-3, 0.01, 0)
    return f, y.astype(np.int16), rng.uniform(0.5, 2, n_rows)


def make(name, loss, a, y, weight=None, prior=0.7):
    weight = np.ones(len(y)) if weight is None else weight
    totals = np.array([weight[y == 0].sum(), weight[y == 1].sum(), weight[y == -1].sum()])
    risk = get_risk(name, loss, a=a, prior=prior)
    return risk, Objective(risk, totals)


def value_of(objective, f, y, weight=None):
    """plain + max(0, guarded), the sums of blocks joined."""
    return objective.join(s.value(f, y, weight) + s.constant for s in objective.sums)


def differences(function, f, step):
    """Central differences of function(f) along each score."""
    moves = step * np.eye(len(f))
    return np.array([(function(f + move) - function(f - move)) / (2 * step) for move in moves])


def looks_convex(function, n_tries, n_rows=20, spread=3.0):
    """Whether no midpoint lies above the mean of its ends, over random moves of a few scores."""
    rng = np.random.default_rng(0)
    for _ in range(n_tries):
        s = spread * rng.standard_normal(n_rows)
        t = s + (rng.random(n_rows) < 0.2) * rng.normal(0, rng.choice([1, 5]), n_rows)
        if function((s + t) / 2) - (function(s) + function(t)) / 2 > 1e-10:
            return False
    return True


@every_loss
@every_case
def test_value_is_that_of_the_risk(name, a, loss):
    for seed in range(3):
        f, y, weight = draw(seed)
        for w in (None, weight):
            risk, objective = make(name, loss, a, y, w)
            found = value_of(objective, f, y, w)
            assert_allclose(found, risk.value(f, y, w), rtol=1e-12, atol=1e-12)


@every_loss
@every_case
@each("weighted", [False, True])
def test_gradient_and_curvature_are_differences_of_value(name, a, loss, weighted):
    f, y, weight = draw(11)
    weight = weight if weighted else None
    _, objective = make(name, loss, a, y, weight)
    for part in objective.sums:
        slope = differences(lambda f, part=part: part.value(f, y, weight), f, 1e-5)
        assert_allclose(part.gradient(f, y, weight), slope, atol=1e-9)
        bend = differences(lambda f, part=part: part.gradient(f, y, weight), f, 1e-5)
        assert_allclose(np.diag(part.curvature(f, y, weight)), bend, atol=1e-9)
    assert np.abs(objective.plain.gradient(f, y, weight)).max() > 1e-3


@every_loss
@every_case
def test_blocks_of_rows_add_up_whatever_kinds_they_hold(name, a, loss):
    f, y, weight = draw(3)
    _, objective = make(name, loss, a, y, weight)
    blocks = [y == 0, y == 1, y == -1, np.zeros(len(y), dtype=bool)]
    for part in objective.sums:
        whole = part.value(f, y, weight)
        pieces = sum(part.value(f[b], y[b], weight[b]) for b in blocks)
        assert_allclose(pieces, whole, rtol=1e-12, atol=1e-13)
        for b in blocks:
            assert_allclose(
                part.gradient(f[b], y[b], weight[b]), part.gradient(f, y, weight)[b], rtol=1e-13
            )


@each("loss", ["hinge", "logistic", "sigmoid"])
@each(("name", "a"), GUARDED)
def test_a_guard_that_holds_adds_nothing(name, a, loss):
    y = draw(7)[1]
    side = -1 if name == "nnpu" else 1
    # Labelled rows of the bracket on its wrong side, the unlabelled rows on its right one.
    f = np.where(y == 0, 3.0, -3.0) * side
    risk, objective = make(name, loss, a, y, prior=0.5)
    plain = {term.name for term in risk.terms() if not term.guarded}
    kept = sum(part for name, part in risk.parts(f, y).items() if name in plain)
    assert sum(risk.parts(f, y).values()) < kept
    assert_allclose(value_of(objective, f, y), kept, rtol=1e-12)
    assert_array_equal(objective.plain.gradient(f, y)[y == 0], 0)


@every_loss
@every_case
def test_flags_say_whether_it_is_smooth_and_convex(name, a, loss):
    y = draw(9)[1]
    risk, objective = make(name, loss, a, y)
    assert objective.smooth == (LOSSES[loss].smooth and not RISKS[name].guarded)
    n_tries = 30 if objective.convex else 400
    assert looks_convex(lambda f: risk.value(f, y), n_tries) == objective.convex


def test_scaling_scales_everything():
    f, y, _ = draw(10)
    table = make("pu", "sigmoid", 0.3, y)[1].plain
    assert table.constant != 0
    twice = table.scaled(2.0)
    assert twice.constant == 2 * table.constant
    assert_allclose(twice.value(f, y), 2 * table.value(f, y))
    assert_allclose(twice.gradient(f, y), 2 * table.gradient(f, y))


def exact_value(risk, f, y):
    """The risk of these scores in 60 digits."""
    with localcontext(prec=60):
        loss = DECIMAL_LOSSES[risk.loss.name]
        sums = {True: Decimal(0), False: Decimal(0)}
        for term in risk.terms():
            rows = [loss(term.sign * Decimal(float(score))) for score in f[y == term.kind]]
            part = Decimal(term.weight) * sum(rows, Decimal(0)) / len(rows)
            sums[risk.guarded and term.guarded] += part
        return float(sums[False] + max(Decimal(0), sums[True]))


@every_loss
@every_case
@each("large", [1, -1, 0])
def test_sums_are_exact_for_large_scores(name, a, loss, large):
    f, y, _ = draw(12)
    f = np.where(y == large, 1e6 * np.sign(f) + f, f)
    risk, objective = make(name, loss, a, y)
    # What is left once the loss's identity has been used, row by row, is the yardstick.
    size, value = 1.0, LOSSES[loss].value
    for table in objective.sums:
        terms = np.abs(table.A[y]) * value(f) + np.abs(table.B[y]) * value(-f)
        size += float((terms + np.abs(table.L[y] * f)).sum())
    assert abs(value_of(objective, f, y) - exact_value(risk, f, y)) <= 1e-14 * size


@every_loss
@every_case
def test_dc_split_reproduces_each_sum_with_convex_sides_only(name, a, loss):
    f, y, weight = draw(14)
    _, objective = make(name, loss, a, y, weight)
    signed = RowSum(
        LOSSES[loss], np.array([1.0, -2.0, 0.0]), np.array([-0.5, 1.0, -1.5]), np.ones(3), 0.25
    )
    for table in [*objective.sums, signed]:
        g, h = table.dc_split()
        assert all(isinstance(s, RowSum) and s.convex for s in [*g, *h])
        assert not (table.convex and h)
        for method in ("value", "gradient", "curvature"):
            pieces = [[getattr(s, method)(f, y, weight) for s in side] for side in (g, h)]
            difference = sum(pieces[0]) - sum(pieces[1])
            whole = getattr(table, method)(f, y, weight)
            assert_allclose(difference, whole, rtol=1e-12, atol=1e-13)
        constants = [sum(s.constant for s in side) for side in (g, h)]
        assert_allclose(constants[0] - constants[1], table.constant)
        for side in (g, h):
            assert looks_convex(lambda f, side=side: sum(s.value(f, y) for s in side), 20)


@given(st.sampled_from(list(LOSSES)), st.sampled_from(CASES), st.floats(0.01, 0.99), SEEDS)
@settings(max_examples=50, deadline=None)
def test_the_tangent_of_the_concave_side_gives_an_upper_bound(loss, case, prior, seed):
    f, y, _ = draw(seed)
    other = draw(seed + 1)[0]
    _, objective = make(*[case[0], loss, case[1]], y, prior=prior)
    for table in objective.sums:
        g, h = table.dc_split()
        tangent = sum(s.value(f, y) + s.gradient(f, y) @ (other - f) for s in h)
        bound = sum(s.value(other, y) for s in g) - tangent
        assert table.value(other, y) <= bound + 1e-10


@each("gamma", [0.5, 1e-3])
@each(("name", "a"), [("pn", 0.3), ("rad", 0.3), ("nnrad", 0.3)])
@each("loss", ["hinge", "double_hinge", "ramp"])
def test_rounded_sums_and_support_sums_lie_below_the_sharp_one(name, a, loss, gamma):
    f, y, weight = draw(16, spread=0.8)
    _, objective = make(name, loss, a, y, weight)
    for table in objective.sums:
        for side in table.dc_split():
            for sharp in side:
                rounded = sharp.smoothed(gamma)
                lines = rounded.support_value(f, y, weight)
                assert rounded.value(f, y, weight) <= lines + 1e-14
                assert lines <= sharp.value(f, y, weight) + 1e-14
                slope = differences(lambda f, s=rounded: s.value(f, y, weight), f, 1e-6)
                assert_allclose(rounded.gradient(f, y, weight), slope, atol=1e-6)
