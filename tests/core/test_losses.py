"""Losses against Table 1 written out in 60-digit decimals, and every flag checked by numbers."""

from decimal import Decimal, localcontext

import array_api_strict
import numpy as np
import pytest
import torch
from conftest import DECIMAL_LOSSES, THEOREM_CONSTANTS
from numpy.testing import assert_allclose
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.losses import LOSSES, get_loss

NAMES = list(LOSSES)

BOUNDED = {"sigmoid", "ramp"}

SIZES = [0.0, 1e-9, 0.25, 0.5, 1 - 1e-6, 1 + 1e-6, 1.5, 2.0, 10.0, 30.0, 36.0, 750.0, 1e3, 1e6]
MARGINS = np.array(sorted({sign * size for size in SIZES for sign in (1, -1)}))
KINKS = np.array([-1.0, 1.0])
LINE = np.unique(np.concatenate([np.linspace(-4, 4, 161), np.linspace(-50, 50, 101), [-1e6, 1e6]]))

ARRAYS = {
    "numpy64": lambda z: np.asarray(z, dtype=np.float64),
    "numpy32": lambda z: np.asarray(z, dtype=np.float32),
    "torch64": lambda z: torch.tensor(z, dtype=torch.float64),
    "torch32": lambda z: torch.tensor(z, dtype=torch.float32),
    "strict64": lambda z: array_api_strict.asarray(z, dtype=array_api_strict.float64),
    "strict32": lambda z: array_api_strict.asarray(z, dtype=array_api_strict.float32),
}


def as_numpy(array):
    if isinstance(array, array_api_strict.asarray([0.0]).__class__):
        return np.from_dlpack(array)
    return np.asarray(array)


def in_decimals(function, points):
    with localcontext(prec=60):
        return np.array([float(function(Decimal(float(z)))) for z in points])


def exact_value(name, points):
    return in_decimals(DECIMAL_LOSSES[name], points)


def exact_slope(name, points, left=0, right=0):
    """Difference quotient over z - left ... z + right, far below float64's resolution."""
    step, f = Decimal("1e-18"), DECIMAL_LOSSES[name]
    left, right = left * step, right * step
    return in_decimals(lambda z: (f(z + right) - f(z - left)) / (left + right), points)


def exact_bend(name, points):
    step, f = Decimal("1e-14"), DECIMAL_LOSSES[name]
    return in_decimals(lambda z: (f(z + step) - 2 * f(z) + f(z - step)) / step**2, points)


def assert_slopes(function, z, step, slope_atol, **bend_tolerance):
    """Derivative and curvature are central differences of value and derivative."""
    slope = (function.value(z + step) - function.value(z - step)) / (2 * step)
    bend = (function.derivative(z + step) - function.derivative(z - step)) / (2 * step)
    assert_allclose(function.derivative(z), slope, atol=slope_atol)
    assert_allclose(function.curvature(z), bend, **bend_tolerance)


def midpoint_excess(function, points):
    """Largest f((s + t) / 2) - (f(s) + f(t)) / 2, relative to the values: above 0 if concave."""
    s, t = np.meshgrid(points, points)
    middle, ends = function((s + t) / 2), (function(s) + function(t)) / 2
    return float(np.max((middle - ends) / (1 + np.abs(ends))))


@each("name", NAMES)
def test_value_is_that_of_table_1(name):
    points = np.concatenate([MARGINS, KINKS])
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        value = LOSSES[name].value(points)
    assert_allclose(value, exact_value(name, points), rtol=1e-14, atol=1e-16)


@each("name", NAMES)
def test_derivatives_are_those_of_the_table(name):
    slope = exact_slope(name, MARGINS, left=1, right=1)
    assert_allclose(LOSSES[name].derivative(MARGINS), slope, rtol=1e-14, atol=1e-16)
    bend = exact_bend(name, MARGINS)
    assert_allclose(LOSSES[name].curvature(MARGINS), bend, rtol=1e-12, atol=1e-15)


@each("kind", ARRAYS)
@each("name", NAMES)
def test_every_kind_of_array_gives_the_same_numbers_and_keeps_its_type(name, kind):
    points = np.concatenate([MARGINS, KINKS]).astype(np.float32)
    z = ARRAYS[kind](points.tolist())
    wide = points.astype(np.float64)
    rtol = 1e-14 if kind.endswith("64") else 1e-6
    for method in ("value", "derivative", "curvature"):
        result = getattr(LOSSES[name], method)(z)
        assert type(result) is type(z)
        assert result.dtype == z.dtype
        expected = getattr(LOSSES[name], method)(wide)
        assert_allclose(as_numpy(result), expected, rtol=rtol, atol=rtol)


@each("dtype", [torch.float64, torch.float32])
@each("name", NAMES)
def test_autograd_gives_the_derivative_kinks_included(name, dtype):
    points = np.concatenate([MARGINS, KINKS])
    z = torch.tensor(points, dtype=dtype, requires_grad=True)
    LOSSES[name].value(z).sum().backward()
    expected = LOSSES[name].derivative(z.detach())
    tol = 1e-14 if dtype == torch.float64 else 1e-6
    assert_allclose(z.grad, expected, rtol=tol, atol=tol)


def test_at_a_kink_the_derivative_is_the_steeper_side():
    for name, kink, slope in (
        *(("hinge", 1.0, -1.0), ("double_hinge", 1.0, -0.5), ("double_hinge", -1.0, -1.0)),
        *(("ramp", 1.0, -0.5), ("ramp", -1.0, -0.5)),
    ):
        sides = exact_slope(name, [kink], left=1), exact_slope(name, [kink], right=1)
        assert slope == min(sides) < max(sides)
        assert LOSSES[name].derivative(np.array([kink])) == slope
        assert LOSSES[name].curvature(np.array([kink])) == 0


@each("name", NAMES)
def test_flags_are_what_numbers_show(name):
    loss = LOSSES[name]
    assert (midpoint_excess(loss.value, np.linspace(-6, 6, 241)) <= 1e-14) == loss.convex
    points = np.array([-1.0, 0.0, 1.0])
    jump = exact_slope(name, points, right=1) - exact_slope(name, points, left=1)
    assert (np.abs(jump).max() < 1e-12) == loss.smooth
    third = np.diff(loss.value(np.linspace(-4.0, 4.0, 81)), n=3)
    assert (np.abs(third).max() < 1e-12) == loss.quadratic
    values, turned = exact_value(name, LINE), exact_value(name, -LINE)
    assert np.allclose(values + turned, 1, rtol=0, atol=1e-15) == loss.symmetric
    z = LINE[LINE != 0]
    slope = -(exact_value(name, z) - exact_value(name, -z)) / z
    if loss.linear_odd is None:
        assert np.ptp(slope) > 0.1
    else:
        assert_allclose(slope, loss.linear_odd, rtol=1e-9)
    assert loss.bounded == (name in BOUNDED) == (values.max() <= 1)
    assert loss.bounded or values.max() >= 1e6
    assert loss.value(LINE).min() >= 0


@each("bound", [0.1, 0.5, 1.0, 1.2, 3.0, 50.0, 1e6])
@each("name", NAMES)
def test_lipschitz_constant_is_sufficient_and_attained(name, bound):
    t = np.union1d(np.linspace(-1, 1, 21) * min(bound, 2.0), [-bound, bound])
    slopes = exact_slope(name, t[:-1], right=1), exact_slope(name, t[1:], left=1)
    assert_allclose(LOSSES[name].lipschitz(bound), np.abs(slopes).max(), rtol=1e-12)
    chords = np.abs(np.subtract.outer(*[LOSSES[name].value(t)] * 2))
    gaps = np.abs(np.subtract.outer(t, t))
    assert (chords <= LOSSES[name].lipschitz(bound) * gaps * (1 + 1e-12) + 1e-14).all()


@each("eta", [0.02, 0.3, 0.45, 0.55, 0.7, 0.98])
@each("name", NAMES)
def test_calibrated_flag_wrong_signs_cost_more_than_the_best_score(name, eta):
    t = np.linspace(-60, 60, 24001)
    risk = eta * LOSSES[name].value(t) + (1 - eta) * LOSSES[name].value(-t)
    wrong = t * (2 * eta - 1) <= 0
    assert (risk[wrong].min() > risk.min() + 1e-6) == LOSSES[name].calibrated


@each("name", NAMES)
def test_theorem_constants_are_those_of_table_1_and_satisfy_its_conditions(name):
    assert LOSSES[name].theorem_constants == THEOREM_CONSTANTS[name]
    b1, b2, b3 = THEOREM_CONSTANTS[name]
    as_anomaly, as_normal = exact_value(name, -LINE), exact_value(name, LINE)
    size = np.abs(LINE)
    rounding = 1e-15 * (1 + as_anomaly + as_normal)
    assert (as_anomaly - as_normal + b1 * size >= -rounding).all()
    assert (as_anomaly - b2 * (b3 - size) >= -rounding).all()


PARTS = [part for name in NAMES for part in LOSSES[name].dc_parts() if part is not None]
KINKED = [part for part in PARTS if not part.smooth]


@each("name", NAMES)
def test_dc_parts_differ_by_the_loss(name):
    u, v = LOSSES[name].dc_parts()
    assert (v is None) == LOSSES[name].convex
    for method in ("value", "derivative", "curvature"):
        points = np.concatenate([MARGINS, KINKS]) if method == "value" else MARGINS
        difference = getattr(u, method)(points)
        if v is not None:
            difference = difference - getattr(v, method)(points)
        expected = getattr(LOSSES[name], method)(points)
        # u and v are as large as |z| where their difference is at most 1.
        assert_allclose(difference, expected, rtol=1e-13, atol=1e-15 + 1e-15 * np.abs(points).max())


@each("part", PARTS)
def test_dc_parts_are_convex_and_have_the_slopes_they_claim(part):
    assert midpoint_excess(part.value, np.linspace(-6, 6, 241)) <= 1e-14
    assert (part.smoothed(0.1) is part) == part.smooth
    assert_slopes(part, np.linspace(-5, 5, 98), 1e-5, 1e-9, atol=1e-6)


@each("gamma", [1.0, 0.1, 1e-3, 1e-9])
@each("part", KINKED)
def test_rounding_lowers_a_function_by_at_most_half_the_width_times_its_slopes(part, gamma):
    z = np.concatenate([LINE, KINKS, KINKS - gamma / 3, KINKS - gamma, KINKS + gamma])
    lowered = part.value(z) - part.smoothed(gamma).value(z)
    most = sum(part.slopes) * gamma / 2
    rounding = 1e-15 * (1 + np.abs(part.value(z)))
    assert (lowered >= -rounding).all()
    assert (lowered <= most + rounding).all()
    assert lowered.max() >= 0.99 * most - rounding.min()


@each("gamma", [1.0, 0.1, 1e-3])
@each("part", KINKED)
def test_a_rounded_function_is_convex_and_has_the_slopes_it_claims(part, gamma):
    rounded = part.smoothed(gamma)
    z = np.concatenate([kink - gamma * np.linspace(-1.03, 2.03, 50) for kink in part.kinks])
    assert_slopes(rounded, z, 1e-4 * gamma, 1e-8, rtol=1e-6, atol=1e-6)
    assert midpoint_excess(rounded.value, z) <= 1e-14


@each("gamma", [1.0, 0.1, 1e-3])
@each("part", PARTS)
def test_support_lines_stay_below_the_sharp_function(part, gamma):
    rounded = part.smoothed(gamma)
    kinks = np.array([kink - gamma * s for kink in KINKS for s in (0, 0.2, 0.5, 0.9, 1)])
    touch = np.concatenate([kinks, np.linspace(-5, 5, 101)])[:, None]
    z = np.concatenate([LINE, kinks])
    line = rounded.support_value(touch) + rounded.derivative(touch) * (z - touch)
    assert (line <= part.value(z) + 1e-14 * (1 + np.abs(z))).all()


def test_the_registry_finds_a_loss_by_name_or_takes_it_as_it_is():
    assert list(LOSSES) == list(DECIMAL_LOSSES)
    assert all(loss.name == name for name, loss in LOSSES.items())
    assert get_loss("ramp") is get_loss(LOSSES["ramp"]) is LOSSES["ramp"]
    assert repr(LOSSES["ramp"]) == "<ramp loss>"
    for name, words in (
        ("modified_hubber", r"loss='modified_hubber'.*Did you mean 'modified_huber'"),
        ("0-1", "choose from hinge, double_hinge, squared"),
        (None, "loss=None"),
    ):
        with pytest.raises(InputError, match=words):
            get_loss(name)
