r"""Value and gradient of a risk in one read of the rows, and sums of columns: for NVIDIA GPUs.

On a GPU, the cost of a pass over rows is the cost of reading them. With one product for the scores
f = X w + b and one for the gradient X^T r, rows are read twice, and the scores are written and read
a dozen times in between. Here a program takes a tile of rows, computes its scores, losses and their
derivatives r, and adds r^T X to its sums while the tile is still in registers:

    value = sum_i s_i (A[y_i] l(f_i) + L[y_i] f_i),    r_i = s_i (A[y_i] l'(f_i) + L[y_i])

with weights s_i. Sums of a program are in single precision, those over programs in double, in a
fixed order: every run gives the same numbers. Compared with torch.compile, value and gradient take
0.60 and 0.76 of the time (`benchmarks/kernels.py`, results/scale/kernels.json).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from riskad.core.objective import RowSum

__all__ = ["column_sums", "knows_loss", "takes", "value_and_gradient"]

_LOSSES = {"squared": 0, "modified_huber": 1, "logistic": 2}
_TILE = 8192  # values of a tile: rows times columns
_TILES = 8  # that a program goes through, one after another
_MOST_COLUMNS = 1024


def knows_loss(X: Any, s: RowSum) -> bool:
    """Whether the kernel knows the loss, and supports these rows."""
    return getattr(s.loss, "name", None) in _LOSSES and not s.B.any() and takes(X)


def takes(X: Any) -> bool:
    """Whether kernels support these rows: single precision, contiguous in memory, not too wide."""
    return X.dtype == torch.float32 and X.stride(1) == 1 and X.shape[1] <= _MOST_COLUMNS


def column_sums(X: Tensor, weight: Tensor | None, shift: np.ndarray) -> Tensor:
    """Sums of x - shift and of their squares, weighted, in one read of the rows: (2, columns)."""
    n, d = X.shape
    D, R, programs = _division(n, d)
    sums = X.new_empty(programs, 2, D)
    _column_pass[(programs,)](
        X, X if weight is None else weight,
        torch.as_tensor(shift, dtype=X.dtype, device=X.device), sums, n, d, X.stride(0),
        WEIGHTED=weight is not None, R=R, D=D, TILES=_TILES,
    )  # fmt: skip
    return sums.sum(0, dtype=torch.float64)[:, :d]


def value_and_gradient(
    X: Tensor, y: Tensor, weight: Tensor | None, w: np.ndarray, b: float, s: RowSum
) -> tuple[float, np.ndarray, float]:
    """The sum `s` over rows with scores X w + b, X^T r and sum(r), on the host."""
    n, d = X.shape
    D, R, programs = _division(n, d)
    sums = X.new_empty(programs, D + 2)
    _value_and_gradient_pass[(programs,)](
        X, y, y if weight is None else weight, _beside(X, w, s.A, s.L), sums,
        n, d, X.stride(0), float(b),
        LOSS=_LOSSES[getattr(s.loss, "name", "")],
        WEIGHTED=weight is not None, R=R, D=D, TILES=_TILES,
    )  # fmt: skip
    total = sums.sum(0, dtype=torch.float64).cpu().numpy()
    return float(total[D]), total[:d], float(total[D + 1])


def _beside(X: Tensor, *vectors: np.ndarray) -> Tensor:
    """The vectors, one after another, on the device of the rows."""
    return torch.as_tensor(np.concatenate(vectors), dtype=X.dtype, device=X.device)


def _division(n: int, d: int) -> tuple[int, int, int]:
    """Columns and rows of a tile, and how many programs there are."""
    D = triton.next_power_of_2(d)
    R = max(1, _TILE // D)
    return D, R, triton.cdiv(n, R * _TILES)


@triton.jit
def _loss_and_derivative(f, LOSS: tl.constexpr):
    """l(f) and l'(f) of the loss with this number."""
    if LOSS == 0:
        z = f - 1.0
        loss = 0.5 * z * z
        derivative = z
    elif LOSS == 1:
        z = 1.0 - f
        u = tl.minimum(tl.maximum(z, 0.0), 2.0)
        loss = u * (2.0 * z - u)
        derivative = -2.0 * u
    else:
        size = tl.abs(f)
        e = tl.exp(-size)
        loss = 0.5 * (size - f) + tl.log(1.0 + e)
        derivative = tl.where(f > 0, -e / (1.0 + e), -1.0 / (1.0 + e))
    return loss, derivative


@triton.jit
def _value_and_gradient_pass(
    X, y, weight, w, sums, n, d, stride, b,
    LOSS: tl.constexpr, WEIGHTED: tl.constexpr,
    R: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Sums of value, r^T X and r over the tiles of a program; A and L come after w."""
    program = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, D)
    known = c < d
    w_c = tl.load(w + c, mask=known, other=0.0)
    gradient = tl.zeros([D], tl.float32)
    value = tl.zeros([R], tl.float32)
    slope = tl.zeros([R], tl.float32)
    for t in range(TILES):
        i = (program * TILES + t) * R + tl.arange(0, R)
        there = i < n
        x = tl.load(
            X + i[:, None] * stride + c[None, :], mask=there[:, None] & known[None, :], other=0.0
        )
        f = tl.sum(x * w_c[None, :], axis=1) + b
        kind = tl.load(y + i, mask=there, other=0).to(tl.int32)
        place = tl.where(kind < 0, 2, kind)
        A = tl.load(w + d + place, mask=there, other=0.0)
        L = tl.load(w + d + 3 + place, mask=there, other=0.0)
        if WEIGHTED:
            s = tl.load(weight + i, mask=there, other=0.0)
            A = A * s
            L = L * s
        loss, derivative = _loss_and_derivative(f, LOSS)
        r = A * derivative + L
        value += A * loss + L * f
        slope += r
        gradient += tl.sum(x * r[:, None], axis=0)
    out = sums + program * (D + 2)
    tl.store(out + c, gradient)
    tl.store(out + D, tl.sum(value, axis=0))
    tl.store(out + D + 1, tl.sum(slope, axis=0))


@triton.jit
def _column_pass(
    X, weight, shift, sums, n, d, stride,
    WEIGHTED: tl.constexpr, R: tl.constexpr, D: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Sums of x - shift and of their squares over the tiles of a program."""
    program = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, D)
    known = c < d
    shift_c = tl.load(shift + c, mask=known, other=0.0)
    first = tl.zeros([D], tl.float32)
    second = tl.zeros([D], tl.float32)
    for t in range(TILES):
        i = (program * TILES + t) * R + tl.arange(0, R)
        there = (i < n)[:, None] & known[None, :]
        x = tl.load(X + i[:, None] * stride + c[None, :], mask=there, other=0.0)
        x = tl.where(there, x - shift_c[None, :], 0.0)
        y = x
        if WEIGHTED:
            y = x * tl.load(weight + i, mask=i < n, other=0.0)[:, None]
        first += tl.sum(y, axis=0)
        second += tl.sum(x * y, axis=0)
    out = sums + program * 2 * D
    tl.store(out + c, first)
    tl.store(out + D + c, second)
