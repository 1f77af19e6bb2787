"""Linear scores against explicitly standardised data, dense and sparse."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from support.loops import each
from support.rows import LAYOUTS

from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.rows.linear import LinearModel, WideModel, column_statistics
from riskad.rows.sources import RowBlocks

every_layout = each("layout", LAYOUTS)
any_weights = each("weighted", [False, True])
any_constant = each("constant", [1.0, 0.0, 2.5])


def make_table(n_rows=60, n_features=4, seed=0):
    """Columns of different sizes with zeros among them, exact in float32."""
    rng = np.random.default_rng(seed)
    X = rng.normal(1, 2, (n_rows, n_features)) * (rng.random((n_rows, n_features)) < 0.7)
    X *= 4.0 ** np.arange(n_features)
    y = np.concatenate([[1, 1, -1, -1, 0, 0], rng.integers(-1, 2, n_rows - 6)])
    weight = rng.uniform(0.5, 2, n_rows)
    return X.astype(np.float32).astype(np.float64), rng.permutation(y).astype(np.int16), weight


def make_rows(X, y, weight=None, layout="C order", block_rows=13):
    rows = RowBlocks(LAYOUTS[layout](X), y, weight)
    rows.block_rows = block_rows
    return rows


def statistics(X, y=None, weight=None, layout="C order", second_moments=False):
    y = np.zeros(len(X), dtype=np.int16) if y is None else y
    rows = make_rows(X, y, weight, layout)
    return column_statistics(rows, second_moments)


@any_weights
@every_layout
def test_mean_and_spread_are_those_of_numpy(layout, weighted):
    X, y, weight = make_table()
    weight = weight if weighted else None
    found = statistics(X, y, weight, layout)
    mean = np.average(X, axis=0, weights=weight)
    assert_allclose(found.mean, mean, rtol=1e-12)
    assert_allclose(found.scale**2, np.average((X - mean) ** 2, axis=0, weights=weight), rtol=1e-12)
    assert not found.constant.any()
    assert found.finite


@any_weights
@each("far", [0.0, 1e7])
@each("second_moments", [False, True])
def test_moments_are_sums_over_each_kind_about_the_shift(second_moments, far, weighted):
    X, y, weight = make_table()
    X[:, 0] += far
    weight = weight if weighted else np.ones(len(y))
    moments = statistics(X, y, weight if weighted else None, second_moments=second_moments).moments
    assert (moments.products is not None) == second_moments
    assert (moments.shift[0] > 1e6) == (far > 0)
    C = X - moments.shift
    for kind in (0, 1, -1):
        members = y == kind
        expected = weight[members] @ C[members]
        assert_allclose(moments.sums[kind], expected, rtol=1e-11, atol=1e-9)
        if second_moments:
            products = (C[members].T * weight[members]) @ C[members]
            assert_allclose(moments.products[kind], products, rtol=1e-11, atol=1e-9)


@each("second_moments", [False, True])
@each("layout", ["C order", "Fortran order"])
def test_a_time_stamp_keeps_its_digits(layout, second_moments):
    X = np.column_stack([1.7e9 + np.sin(np.arange(500)), np.cos(np.arange(500))])
    found = statistics(X, layout=layout, second_moments=second_moments)
    assert_allclose(found.mean, X.mean(axis=0), rtol=1e-15, atol=1e-15)
    assert_allclose(found.scale, X.std(axis=0), rtol=1e-9)
    assert not found.constant.any()


@each("value", [0.0, 1.0, 0.1, 0.2, 0.3, 123.456, -1 / 3, 1e5 / 3, 1.7e9, 1e-300])
@each("layout", ["C order", "Fortran order", "csr_array"])
def test_a_constant_column_is_found_whatever_its_value(layout, value):
    X, y, weight = make_table(1000)
    X[:, 1] = value
    found = statistics(X, y, None if layout == "csr_array" else weight, layout)
    assert_array_equal(found.constant, [False, True, False, False])
    assert_allclose(found.mean[1], value, rtol=1e-14)
    # Whatever is divided by it vanishes: the column gets no weight.
    assert found.scale[1] == np.inf


@each("value", [1e-8, 1e-3, 1e5])
def test_a_column_with_little_spread_is_not_constant(value):
    X, y, _ = make_table()
    X[:, 1] = value * (1 + 1e-6 * np.arange(len(y)))
    found = statistics(X, y)
    assert not found.constant.any()
    assert_allclose(found.scale[1], X[:, 1].std(), rtol=1e-6)


@each("row", [0, 40])
@each("value", [np.nan, np.inf, -np.inf])
@each("second_moments", [False, True])
@every_layout
def test_gaps_and_infinities_are_noticed_without_a_warning(layout, value, row, second_moments):
    X, y, weight = make_table()
    X[row, 2] = value
    full = second_moments and "csr" not in layout
    assert not statistics(X, y, weight, layout, full).finite
    assert not statistics(X, y, None, layout, full).finite


class Case:
    """A model over blocks, and the same as one explicit matrix Z."""

    def __init__(self, risk="rad", loss="logistic", layout="C order", weighted=True, constant=1.0):
        self.X, self.y, weight = make_table()
        self.weight = weight if weighted else None
        rows = make_rows(self.X, self.y, self.weight, layout)
        found = column_statistics(rows)
        self.model = LinearModel(rows, found.mean, found.scale, constant)
        Z = (self.X - found.mean) / found.scale
        self.Z = np.column_stack([Z, np.full(len(Z), constant)]) if constant else Z
        self.objective = Objective(get_risk(risk, loss, a=0.4, prior=0.7), rows.totals())
        self.theta = np.random.default_rng(2).normal(size=self.Z.shape[1])
        self.f = self.Z @ self.theta

    def curvature(self, sums):
        return sum(s.curvature(self.f, self.y, self.weight) for s in sums)


@any_constant
@every_layout
def test_scores_are_those_of_standardised_rows(layout, constant):
    case = Case(layout=layout, constant=constant)
    assert case.model.n_parameters == case.Z.shape[1]
    assert_allclose(case.model.scores(case.theta, case.X), case.f, rtol=1e-11, atol=1e-12)
    w, b = case.model.raw(case.theta)
    assert_allclose(case.X @ w + b, case.f, rtol=1e-11, atol=1e-12)


@any_constant
@any_weights
@each(
    ("risk", "loss"), [("rad", "logistic"), ("nnrad", "hinge"), ("pu", "ramp"), ("pn", "squared")]
)
@every_layout
def test_values_and_gradients_are_those_of_the_explicit_matrix(
    layout, risk, loss, weighted, constant
):
    case = Case(risk, loss, layout, weighted, constant)
    sums = case.objective.sums
    values = case.model.values(case.theta, sums)
    together = case.model.values_and_gradients(case.theta, sums)
    for s, value, (same, gradient) in zip(sums, values, together, strict=True):
        assert_allclose(value, s.value(case.f, case.y, case.weight) + s.constant, rtol=1e-11)
        assert_allclose(same, value, rtol=1e-13)
        expected = case.Z.T @ s.gradient(case.f, case.y, case.weight)
        assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)


# Modified Huber and the rounded hinge leave many rows without curvature, logistic none.
@any_constant
@any_weights
@each("loss", ["squared", "logistic", "modified_huber", "hinge"])
@each("risk", ["rad", "pn"])
@every_layout
def test_hessian_and_its_product_are_those_of_the_explicit_matrix(
    layout, risk, loss, weighted, constant
):
    case = Case(risk, loss, layout, weighted, constant)
    sums = [s.smoothed(0.8) for s in case.objective.plain.dc_split()[0]]
    expected = (case.Z.T * case.curvature(sums)) @ case.Z
    hessian = case.model.hessian(case.theta, sums)
    assert_allclose(hessian, expected, rtol=1e-10, atol=1e-12)
    x = np.random.default_rng(3).normal(size=len(expected))
    product = case.model.hessian_product(case.theta, sums)
    assert_allclose(product(x), expected @ x, rtol=1e-9, atol=1e-11)


@each("layout", ["C order", "csr_array"])
def test_a_constant_column_has_no_score_no_gradient_and_no_curvature(layout):
    X, y, _ = make_table()
    X[:, 1] = 1.0
    rows = make_rows(X, y, None, layout)
    found = column_statistics(rows)
    model = LinearModel(rows, found.mean, found.scale)
    sums = Objective(get_risk("rad", "logistic"), rows.totals()).sums
    theta = np.ones(5)
    w, _ = model.raw(theta)
    assert w[1] == 0
    assert model.values_and_gradients(theta, sums)[0][1][1] == 0
    assert_array_equal(model.hessian(theta, sums)[1], 0)
    assert np.isfinite(model.hessian(theta, sums)).all()


def make_wide(n_rows=40, n_features=90, rank=25, seed=0):
    """Fewer rows than columns, and of lower rank still; one column is constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, n_features)) + 3
    X[:, 7] = 5.0
    y = rng.permutation(np.repeat([1, -1, 0], [12, 8, 20])).astype(np.int16)
    return X, y


@any_constant
def test_a_wide_model_scores_as_a_plain_one(constant):
    X, y = make_wide()
    rows = make_rows(X, y)
    found = column_statistics(rows)
    wide = WideModel(rows, found.mean, found.scale, constant)
    plain = LinearModel(rows, found.mean, found.scale, constant)
    theta = np.random.default_rng(2).normal(size=wide.n_parameters)
    w, b = wide.weights(theta)
    assert w[7] == 0
    assert_allclose(X @ w + b, wide.scores(theta, wide.rows.X), rtol=1e-6, atol=1e-6)
    v = np.append(w * np.where(found.constant, 0, found.scale), theta[-1] if constant else [])
    objective = Objective(get_risk("rad", "logistic"), rows.totals())
    value, gradient = wide.values_and_gradients(theta, objective.sums)[0]
    expected, full = plain.values_and_gradients(v, objective.sums)[0]
    assert_allclose(value, expected, rtol=1e-7)
    assert_allclose(np.linalg.norm(gradient), np.linalg.norm(full), rtol=1e-5)
