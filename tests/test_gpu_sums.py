"""The kernel that reads rows once, run here by Triton's interpreter."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from riskad.core.losses import LOSSES
from riskad.core.objective import Objective
from riskad.core.risks import get_risk
from riskad.rows.gpu_sums import column_sums, knows_loss, value_and_gradient


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
        assert knows_loss(X, s) == (name in ("squared", "modified_huber", "logistic"))
    s = problem(30, 2, False)[3]
    assert not knows_loss(X.double(), s)
    assert not knows_loss(X.T, s)


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
