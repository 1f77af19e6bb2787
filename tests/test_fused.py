"""The kernel that reads rows once, run here by Triton's interpreter."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from riskad.core.losses import LOSSES
from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.rows.fused import can_bend, can_fuse, column_sums, curvature, value_and_gradient


def problem(n, d, weighted, risk="rad", loss="modified_huber"):
    rng = np.random.default_rng(n + d)
    X = rng.normal(size=(n, d)).astype(np.float32)
    y = rng.choice(np.array([0, 0, 0, 1, -1], dtype=np.int8), n)
    weight = rng.uniform(0.5, 2, n).astype(np.float32) if weighted else None
    ones = np.ones(n) if weight is None else weight
    totals = np.array([ones[y == kind].sum() for kind in (0, 1, -1)])
    return X, y, weight, Objective(get_risk(risk, loss), totals).plain


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (100, 3), (1500, 7), (300, 64), (50, 130)])
@pytest.mark.parametrize("loss", ["squared", "modified_huber", "logistic"])
def test_one_read_gives_what_products_give(loss, shape, weighted):
    n, d = shape
    if n < 5:
        n = 12
    X, y, weight, s = problem(n, d, weighted, loss=loss)
    w, b = np.random.default_rng(0).normal(size=d) / d**0.5, 0.3
    f = X.astype(float) @ w.astype(np.float32) + b
    r = s.gradient(f, y, weight)
    tensors = (None if part is None else torch.from_numpy(part) for part in (X, y, weight))
    value, gradient, total = value_and_gradient(*tensors, w, b, s)
    assert value == pytest.approx(s.value(f, y, weight), rel=1e-5, abs=1e-6)
    assert_allclose(gradient, r @ X, rtol=1e-4, atol=1e-5)
    assert total == pytest.approx(r.sum(), rel=1e-4, abs=1e-5)


def test_rows_apart_in_memory():
    X, y, _, s = problem(200, 4, False)
    wide = torch.from_numpy(np.hstack([X, X + 7]))
    part, w = wide[:, :4], np.array([1.0, -1.0, 0.5, 0.0])
    found = value_and_gradient(part, torch.from_numpy(y), None, w, 0.0, s)
    alone = value_and_gradient(torch.from_numpy(X), torch.from_numpy(y), None, w, 0.0, s)
    assert found[0] == alone[0]
    assert_allclose(found[1], alone[1])


def test_what_is_left_to_products():
    X = torch.zeros(4, 2)
    for name in LOSSES:
        s = problem(30, 2, False, loss=name)[3]
        assert can_fuse(X, s) == (name in ("squared", "modified_huber", "logistic"))
    s = problem(30, 2, False)[3]
    assert not can_fuse(X.double(), s)
    assert not can_fuse(X.T, s)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(12, 1), (1500, 7), (300, 64)])
def test_column_sums_in_one_read(shape, weighted):
    X, _, weight, _ = problem(*shape, weighted)
    shift = np.linspace(-1, 1, shape[1])
    tensors = (None if part is None else torch.from_numpy(part) for part in (X, weight))
    first, second = column_sums(*tensors, shift)
    C, s = X - shift, np.ones(len(X)) if weight is None else weight
    assert_allclose(first, s @ C, rtol=1e-4, atol=1e-3)
    assert_allclose(second, s @ C**2, rtol=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(12, 1), (1500, 7), (300, 64), (200, 100)])
@pytest.mark.parametrize("loss", ["squared", "modified_huber", "logistic"])
def test_curvature_in_one_read(loss, shape, weighted):
    X, y, weight, s = problem(*shape, weighted, loss=loss)
    w, b = np.random.default_rng(0).normal(size=shape[1]) / shape[1] ** 0.5, 0.3
    mean = np.linspace(-1, 1, shape[1])
    D = s.curvature(X.astype(float) @ w.astype(np.float32) + b, y, weight)
    tensors = (None if part is None else torch.from_numpy(part) for part in (X, y, weight))
    products, column, corner = curvature(*tensors, w, b, mean, s)
    C = X - mean
    assert_allclose(products, (C.T * D) @ C, rtol=1e-4, atol=1e-5)
    assert_allclose(column, D @ C, rtol=1e-4, atol=1e-5)
    assert corner == pytest.approx(D.sum(), rel=1e-5)


def test_what_is_left_to_products_of_the_curvature():
    s = problem(30, 2, False)[3]
    assert can_bend(torch.zeros(4, 128), s)
    assert can_fuse(torch.zeros(4, 129), s)
    assert not can_bend(torch.zeros(4, 129), s)
