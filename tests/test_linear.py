"""Linear scores against explicitly standardised data, dense and sparse."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.rows.linear import LinearModel, RowSpace, WideModel, column_statistics
from riskad.rows.sources import RowBlocks

LAYOUTS = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "float32": lambda X: X.astype(np.float32),
    "csr_array": sparse.csr_array,
    "float32 csr_array": lambda X: sparse.csr_array(X.astype(np.float32)),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
any_weights = pytest.mark.parametrize("weighted", [False, True])
any_constant = pytest.mark.parametrize("constant", [1.0, 0.0, 2.5])


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


# --- column statistics --------------------------------------------------------------------------


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


@every_layout
def test_an_integer_weight_is_a_repeated_row(layout):
    X, y, _ = make_table()
    copies = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = statistics(X, y, copies.astype(float), layout)
    repeated = statistics(np.repeat(X, copies, axis=0), np.repeat(y, copies), None, layout)
    assert_allclose(weighted.mean, repeated.mean, rtol=1e-12)
    assert_allclose(weighted.scale, repeated.scale, rtol=1e-12)


@any_weights
@pytest.mark.parametrize("far", [0.0, 1e7])
@pytest.mark.parametrize("second_moments", [False, True])
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


@every_layout
def test_sparse_moments_are_sums_over_each_kind_about_zero(layout):
    X, y, weight = make_table()
    moments = statistics(X, y, weight, layout).moments
    for kind in (0, 1, -1):
        members = y == kind
        assert_allclose(moments.sums[kind], weight[members] @ X[members], rtol=1e-12)


@pytest.mark.parametrize("second_moments", [False, True])
@pytest.mark.parametrize("layout", ["C order", "Fortran order"])
def test_a_time_stamp_keeps_its_digits(layout, second_moments):
    X = np.column_stack([1.7e9 + np.sin(np.arange(500)), np.cos(np.arange(500))])
    found = statistics(X, layout=layout, second_moments=second_moments)
    assert_allclose(found.mean, X.mean(axis=0), rtol=1e-15, atol=1e-15)
    assert_allclose(found.scale, X.std(axis=0), rtol=1e-9)
    assert not found.constant.any()


def test_a_sparse_time_stamp_is_no_constant_column():
    X = np.column_stack([1.7e9 + np.sin(np.arange(500)), np.cos(np.arange(500))])
    found = statistics(X, layout="csr_array")
    assert not found.constant.any()
    assert_allclose(found.scale, X.std(axis=0), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1 / 3, 1.7e9, 1e-300])
@pytest.mark.parametrize("layout", ["C order", "Fortran order"])
def test_a_constant_column_is_found_whatever_its_value(layout, value):
    X, y, weight = make_table(1000)
    X[:, 1] = value
    found = statistics(X, y, weight, layout)
    assert_array_equal(found.constant, [False, True, False, False])
    assert_allclose(found.mean[1], value, rtol=1e-14)
    # Whatever is divided by it vanishes: the column gets no weight.
    assert found.scale[1] == np.inf


FRACTIONS = (0.1, 0.2, 0.3, 123.456, 1e5 / 3)


@pytest.mark.parametrize("value", [0.0, 1.0, -4.0])
def test_a_constant_sparse_column_is_found_if_its_square_is_exact(value):
    X, y, _ = make_table(1000)
    X[:, 1] = value
    assert_array_equal(statistics(X, y, None, "csr_array").constant, [False, True, False, False])


def test_a_constant_sparse_column_is_found_whatever_its_value():
    X, y, _ = make_table(1000)
    X = np.column_stack([X, *(np.full(1000, value) for value in FRACTIONS)])
    assert statistics(X, y, None, "csr_array").constant[4:].all()


def test_a_column_that_is_constant_where_there_is_weight_is_constant():
    X, y, _ = make_table(1000)
    weighted = np.arange(1000) < 500
    X = np.column_stack([X, *(np.where(weighted, value, X[:, 0]) for value in FRACTIONS)])
    rows = RowBlocks(X, y, weighted.astype(float))
    assert column_statistics(rows).constant[4:].all()


@pytest.mark.parametrize("value", [1e-8, 1e-3, 1e5])
def test_a_column_with_little_spread_is_not_constant(value):
    X, y, _ = make_table()
    X[:, 1] = value * (1 + 1e-6 * np.arange(len(y)))
    found = statistics(X, y)
    assert not found.constant.any()
    assert_allclose(found.scale[1], X[:, 1].std(), rtol=1e-6)


@pytest.mark.parametrize("row", [0, 40])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("second_moments", [False, True])
@every_layout
def test_gaps_and_infinities_are_noticed_without_a_warning(layout, value, row, second_moments):
    X, y, weight = make_table()
    X[row, 2] = value
    full = second_moments and "csr" not in layout
    assert not statistics(X, y, weight, layout, full).finite
    assert not statistics(X, y, None, layout, full).finite


# --- the model ----------------------------------------------------------------------------------


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
@pytest.mark.parametrize(
    ("risk", "loss"),
    [("rad", "logistic"), ("nnrad", "hinge"), ("pu", "ramp"), ("pn", "squared")],
)
@every_layout
def test_values_and_gradients_are_those_of_the_explicit_matrix(
    layout, risk, loss, weighted, constant
):
    case = Case(risk, loss, layout, weighted, constant)
    sums = case.objective.sums
    values = case.model.values(case.theta, sums)
    together = case.model.values_and_gradients(case.theta, sums)
    assert_allclose(
        case.objective.join(values), case.objective.value(case.f, case.y, case.weight), rtol=1e-11
    )
    for s, value, (same, gradient) in zip(sums, values, together, strict=True):
        assert_allclose(value, s.value(case.f, case.y, case.weight) + s.constant, rtol=1e-11)
        assert_allclose(same, value, rtol=1e-13)
        expected = case.Z.T @ s.gradient(case.f, case.y, case.weight)
        assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)


@any_weights
@any_constant
@every_layout
def test_support_values_are_those_of_the_explicit_matrix(layout, constant, weighted):
    case = Case("rad", "hinge", layout, weighted, constant)
    convex, _ = case.objective.plain.dc_split()
    rounded = [s.smoothed(0.5) for s in convex]
    values = case.model.values(case.theta, rounded, support=True)
    expected = [s.support_value(case.f, case.y, case.weight) + s.constant for s in rounded]
    assert_allclose(values, expected, rtol=1e-11)
    assert abs(values[0] - case.model.values(case.theta, rounded)[0]) > 1e-6


# Modified Huber and the rounded hinge leave many rows without curvature, logistic none.
@any_constant
@any_weights
@pytest.mark.parametrize("loss", ["squared", "logistic", "modified_huber", "hinge"])
@pytest.mark.parametrize("risk", ["rad", "pn"])
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


def test_hessians_of_several_sums_add_up():
    case = Case("rad", "sigmoid")
    convex, concave = case.objective.plain.dc_split()
    both = [*convex, *concave]
    assert len(both) == 2
    expected = (case.Z.T * case.curvature(both)) @ case.Z
    assert_allclose(case.model.hessian(case.theta, both), expected, rtol=1e-10, atol=1e-12)
    x = np.ones(len(expected))
    product = case.model.hessian_product(case.theta, both)(x)
    assert_allclose(product, expected @ x, rtol=1e-10, atol=1e-12)


@any_constant
def test_gradient_and_hessian_are_differences_of_value(constant):
    case = Case("rad", "logistic", constant=constant)
    sums, step = case.objective.sums, 1e-5 * np.eye(len(case.theta))
    slope = [
        (case.model.values(case.theta + h, sums)[0] - case.model.values(case.theta - h, sums)[0])
        / 2e-5
        for h in step
    ]
    ((_, gradient),) = case.model.values_and_gradients(case.theta, sums)
    assert_allclose(gradient, slope, atol=1e-9)
    bend = [
        case.model.values_and_gradients(case.theta + h, sums)[0][1]
        - case.model.values_and_gradients(case.theta - h, sums)[0][1]
        for h in step
    ]
    assert_allclose(case.model.hessian(case.theta, sums), np.array(bend) / 2e-5, atol=1e-9)


@pytest.mark.parametrize("layout", ["C order", "csr_array"])
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


def test_a_time_stamp_does_not_spoil_gradient_and_hessian():
    X, y, _ = make_table()
    X[:, 0] += 1.7e9
    rows = make_rows(X, y)
    found = column_statistics(rows)
    model = LinearModel(rows, found.mean, found.scale)
    Z = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(X))])
    (table,) = Objective(get_risk("rad", "logistic"), rows.totals()).sums
    theta = np.random.default_rng(4).normal(size=5)
    f = Z @ theta
    ((_, gradient),) = model.values_and_gradients(theta, [table])
    assert_allclose(gradient, Z.T @ table.gradient(f, y), atol=1e-6)
    hessian = (Z.T * table.curvature(f, y)) @ Z
    assert_allclose(model.hessian(theta, [table]), hessian, atol=1e-6)


def test_a_model_goes_over_other_rows_with_the_same_scales_and_constant():
    case = Case(constant=2.5)
    other = make_rows(case.X[:7], case.y[:7])
    model = case.model.over(other)
    values = model.values(case.theta, case.objective.sums)
    expected = case.objective.plain.value(case.f[:7], case.y[:7])
    assert_allclose(values, [expected + case.objective.plain.constant], rtol=1e-11)


@pytest.mark.parametrize("block_rows", [1, 59, 60, 1000])
@pytest.mark.parametrize("risk", ["nnrad", "pn", "pu"])
@pytest.mark.parametrize("layout", ["C order", "csr_array"])
def test_the_size_of_blocks_changes_nothing(layout, risk, block_rows):
    case = Case(risk, "modified_huber", layout)
    other = case.model.over(make_rows(case.X, case.y, case.weight, layout, block_rows))
    before, after = (
        model.values_and_gradients(case.theta, case.objective.sums) for model in (case.model, other)
    )
    for (value, gradient), (again, same) in zip(before, after, strict=True):
        assert_allclose(again, value, rtol=1e-12)
        assert_allclose(same, gradient, rtol=1e-10, atol=1e-13)


# --- wide tables --------------------------------------------------------------------------------


def make_wide(n_rows=40, n_features=90, rank=25, seed=0):
    """Fewer rows than columns, and of lower rank still; one column is constant."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, n_features)) + 3
    X[:, 7] = 5.0
    y = rng.permutation(np.repeat([1, -1, 0], [12, 8, 20])).astype(np.int16)
    return X, y


def test_coordinates_in_the_row_space_keep_all_products():
    X, _ = make_wide()
    Z = X - X.mean(axis=0)
    space = RowSpace.of(Z)
    assert space.coordinates.shape == (40, np.linalg.matrix_rank(Z))
    assert_allclose(space.coordinates @ space.coordinates.T, Z @ Z.T, rtol=1e-9, atol=1e-7)
    v = np.random.default_rng(1).normal(size=space.coordinates.shape[1])
    w = space.weights(v)
    assert_allclose(Z @ w, space.coordinates @ v, rtol=1e-6, atol=1e-6)
    assert_allclose(np.linalg.norm(w), np.linalg.norm(v), rtol=1e-6)


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
