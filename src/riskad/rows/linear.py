r"""Scores that are linear in their parameters: f = Z theta with Z = [(X - mean) / scale, B].

Standardisation is algebra here, not a copy. In the units of X the scores are f = X w + b_0 with
w = v / scale and b_0 = B t - mean . w, where theta = (v, t); a gradient X^T r comes back as
(X^T r - mean sum(r)) / scale and B sum(r). Every method is one sum over row blocks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from riskad.core.labels import ANOMALY, KINDS, NORMAL
from riskad.core.losses import namespace
from riskad.core.objective import RowSum
from riskad.rows.arrays import to_numpy
from riskad.rows.sources import Block, RowBlocks, RowSource

_SHIFT_ROWS = 1 << 13  # of the first block, which show whether sums need a shift
_FEW_SCORES = 1 << 17  # for these a transfer to the host is faster than work on a device


@dataclass(frozen=True)
class Moments:
    """Sums over the rows of each kind: enough for a risk at zero, and for squared loss anywhere."""

    shift: np.ndarray
    sums: np.ndarray  # (3, d): sum w (x - shift), indexed by label code
    products: np.ndarray | None = None  # (3, d, d): sum w (x - shift)(x - shift)^T, if requested


@dataclass(frozen=True)
class ColumnStatistics:
    """Weighted mean and standard deviation of each column, over all rows."""

    mean: np.ndarray
    scale: np.ndarray  # infinite for a constant column, whose weight is then exactly 0
    constant: np.ndarray  # which columns do not vary
    finite: bool
    moments: Moments


@np.errstate(invalid="ignore", over="ignore")  # `finite` tells
def column_statistics(rows: RowSource, second_moments: bool = False) -> ColumnStatistics:
    """Mean and standard deviation of each column in one pass, and the moments of each kind.

    Columns with a large mean and a small spread (time stamps) would lose digits in sums of
    squares; sums are then taken around the first block's mean. `second_moments` requests the full
    products of each kind (dense rows only).
    """
    shift = _shift(rows.first())
    block_sums = _sparse_sums if rows.sparse else _products if second_moments else _squares
    x, x_p, x_n, *squares = rows.sum(functools.partial(block_sums, shift=shift))
    total = float(rows.totals().sum())
    # Unlabelled rows, the bulk, are the remainder: only the few labelled ones are added twice. In
    # the order of label codes 0, 1 and -1, so that `array[code]` finds each.
    sums = np.stack([x - x_p - x_n, x_p, x_n])
    products, total_squares = None, squares[0]
    if second_moments:
        xx, xx_p, xx_n = squares
        products = np.stack([xx - xx_p - xx_n, xx_p, xx_n])
        total_squares = np.diagonal(xx)
    # Safe although it subtracts: columns with a large mean were shifted by it.
    variance = total_squares / total - (x / total) ** 2
    mean = shift + x / total
    # A spread within rounding does not count. Kernels that add one row after the other have errors
    # of up to eps for each, usually far less; columns with so small a spread relative to their mean
    # have a shift, unless only rows without weight spread.
    eps = np.finfo(float).eps
    constant = variance <= 1_000 * eps * (mean - shift) ** 2 + (10 * eps * np.abs(mean)) ** 2
    scale = np.where(constant, np.inf, np.sqrt(np.maximum(variance, 0)))
    finite = bool(np.isfinite(variance).all())
    return ColumnStatistics(mean, scale, constant, finite, Moments(shift, sums, products))


def _shift(first: Any) -> np.ndarray:
    """The first block's mean if some column needs it, otherwise 0, which saves a copy per block."""
    if sparse.issparse(first):
        mean = np.asarray(first.mean(axis=0)).ravel()
        spread = np.sqrt(np.maximum(np.asarray(first.power(2).mean(axis=0)).ravel() - mean**2, 0))
    else:
        xp = namespace(first)
        some = xp.astype(first[:_SHIFT_ROWS], xp.float64, copy=False)
        mean, spread = (to_numpy(of(some, axis=0)) for of in (xp.mean, xp.std))
    # Squares then lose at most 6 of 16 digits; beyond, a shift pays.
    needed = np.abs(mean) > 1e3 * spread
    if not needed.any() or not np.isfinite(mean).all():
        return np.zeros(first.shape[1])
    # Each shifted column of a sparse matrix fills its zeros: only where needed.
    return np.where(needed, mean, 0.0) if sparse.issparse(first) else mean


def _squares(block: Block, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    C = block.X - _like(shift, block.X) if shift.any() else block.X
    weight = _weights(block)
    operands = (C, C) if block.weight is None else (C, C, weight)
    subscripts = "ij,ij->j" if block.weight is None else "ij,ij,i->j"
    squares = to_numpy(namespace(C).einsum(subscripts, *operands))
    return *_kind_sums(C, block.labelled, block.y, weight), squares


def _products(block: Block, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    C = block.X - _like(shift, block.X) if shift.any() else block.X
    weight = _weights(block)
    sums = _kind_sums(C, block.labelled, block.y, weight)
    if block.weight is not None:
        # With roots on both sides one symmetric product serves, at half the cost.
        C = C * weight[:, None] ** 0.5
    members = [C[block.y == kind] for kind in (NORMAL, ANOMALY)]
    return *sums, *(to_numpy(D.T @ D) for D in (C, *members))


def _weights(block: Block) -> Any:
    """The weights of a block's rows, ones if they have none."""
    if block.weight is not None:
        return block.weight
    if isinstance(block.y, np.ndarray):
        return np.ones(len(block.y))
    return namespace(block.X).ones_like(block.X[:, 0])


def _sparse_sums(block: Block, shift: np.ndarray) -> tuple[np.ndarray, ...]:
    """As `_squares`; entries that are not stored count as (0 - shift), by their weight alone."""
    X, weight = block.X, _weights(block)
    sums = _kind_sums(X, block.labelled, block.y, weight)
    if not shift.any():
        return *sums, X.multiply(X).T @ weight
    stored = X.copy()
    stored.data = stored.data - shift[X.indices]
    ones = X.copy()
    ones.data = np.ones_like(X.data)
    absent = weight.sum() - ones.T @ weight
    kinds = [weight, *(weight * (block.y == kind) for kind in (NORMAL, ANOMALY))]
    shifted = (s - shift * w.sum() for s, w in zip(sums[1:], kinds[1:], strict=True))
    total = stored.T @ weight - absent * shift
    return total, *shifted, stored.multiply(stored).T @ weight + absent * shift**2


def _kind_sums(X: Any, labelled: Any, y: Any, weight: Any) -> tuple[np.ndarray, ...]:
    """Weighted sums over all rows, the normal rows and the anomalies."""
    total = _weighted_rows(X, weight)
    X, y, weight = X[labelled], y[labelled], weight[labelled]
    members = [weight * (y == kind) for kind in (NORMAL, ANOMALY)]
    if isinstance(weight, np.ndarray):
        return total, *(_weighted_rows(X, member) for member in members)
    return total, *to_numpy(namespace(weight).stack(members) @ X)  # a device is asked once


class LinearModel:
    """Linear scores over a source of rows, standardised by `mean` and `scale`.

    `constant` is B, the value of a last column like any other, whose weight t makes the intercept
    B t; 0 for none.
    """

    def __init__(self, rows: RowSource, mean: np.ndarray, scale: np.ndarray, constant: float = 1.0):
        self.rows = rows
        self.mean = mean
        self.scale = scale
        self.constant = constant
        self.n_parameters = rows.n_features + int(constant != 0)

    def over(self, rows: RowSource) -> LinearModel:
        """The same model over other rows."""
        return LinearModel(rows, self.mean, self.scale, self.constant)

    def raw(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """(w, b_0) in the units of X."""
        # A constant column has an infinite scale, and so a weight of exactly 0.
        w = theta[: self.rows.n_features] / self.scale
        b = self.constant * theta[-1] if self.constant else 0.0
        return w, float(b - self.mean @ w)

    def weights(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        """(w, b_0) for rows in their original form, which may not be that of `rows`."""
        return self.raw(theta)

    def score_rounding(self, theta: np.ndarray) -> float:
        """How far rounding moves a score: f = x . w + b_0 cancels terms as large as mean . w."""
        w, b = self.raw(theta)
        return self.rows.eps * (float(np.abs(self.mean) @ np.abs(w)) + abs(b))

    def scores(self, theta: np.ndarray, X: Any) -> np.ndarray:
        """Scores f of the rows of one block, on the host."""
        w, b = self.raw(theta)
        return to_numpy(_scores(X, w, b))

    def values(
        self, theta: np.ndarray, sums: Sequence[RowSum], support: bool = False
    ) -> list[float]:
        """Value of each row sum, constants included; with `support`, its `support_value`."""
        w, b = self.raw(theta)

        def block_values(block: Block) -> tuple[float, ...]:
            f = _scores(block.X, w, b)
            marks: tuple[Any, ...] = block.marks
            # Few scores on the host: for these, transfer is faster than work on a device.
            if not isinstance(f, np.ndarray) and len(f) <= _FEW_SCORES:
                f = to_numpy(f)
                marks = tuple(None if mark is None else mark.cpu().numpy() for mark in marks)
            functions = [s.support_value if support else s.value for s in sums]
            return tuple(function(f, *marks) for function in functions)

        totals = self._sum(block_values, sums)
        return [v + s.constant for v, s in zip(totals, sums, strict=True)]

    def values_and_gradients(
        self, theta: np.ndarray, sums: Sequence[RowSum]
    ) -> list[tuple[float, np.ndarray]]:
        """Value and gradient with respect to theta of each row sum, in one pass."""
        w, b = self.raw(theta)

        def block_sums(block: Block) -> tuple[Any, ...]:
            f, marks = _scores(block.X, w, b), block.marks
            out: list[Any] = []
            for s in sums:
                r = s.gradient(f, *marks)
                out += [s.value(f, *marks), _weighted_rows(block.X, r), float(r.sum())]
            return tuple(out)

        totals = self._sum(block_sums, sums)
        return [
            (totals[3 * i] + s.constant, self._pull_back(totals[3 * i + 1], totals[3 * i + 2]))
            for i, s in enumerate(sums)
        ]

    def kind_slopes(self, theta: np.ndarray, s: RowSum) -> tuple[np.ndarray, np.ndarray]:
        """For each kind of row the sum of d s / d f_i, and the sum of the rows, by code."""
        w, b = self.raw(theta)

        def block_sums(block: Block) -> tuple[np.ndarray, np.ndarray]:
            r = s.gradient(_scores(block.X, w, b), *block.marks)
            total, normals, anomalies = _kind_sums(
                block.X, block.labelled, block.y, _weights(block)
            )
            xp = namespace(r)
            kinds = xp.stack([block.y == kind for kind in KINDS])
            slopes = to_numpy(xp.sum(r * kinds, axis=1))
            return slopes, np.stack([total - normals - anomalies, normals, anomalies])

        slopes, sums = self.rows.sum(block_sums)
        return slopes, sums

    def hessian(self, theta: np.ndarray, sums: Sequence[RowSum]) -> np.ndarray:
        """Sum of the (positive semi-definite) Hessians Z^T D Z of convex row sums."""
        (w, b), mean = self.raw(theta), self.mean

        def block_hessian(block: Block) -> tuple[Any, ...]:
            D = _curvature(sums, _scores(block.X, w, b), block)
            if sparse.issparse(block.X):
                # They stay uncentred, since centring would fill them: the means are subtracted.
                weighted = block.X.multiply(D[:, None]).tocsr()
                return (block.X.T @ weighted).toarray(), block.X.T @ D, D.sum()
            return _dense_products(block.X, D, mean)

        products, column, corner = self._sum(block_hessian, sums)
        if self.rows.sparse:
            products = products - np.outer(self.mean, column) - np.outer(column, self.mean)
            products += corner * np.outer(self.mean, self.mean)
            column = column - corner * self.mean
        return self.assemble(products, column, corner)

    def assemble(self, products: np.ndarray, column: np.ndarray, corner: float) -> np.ndarray:
        """Z^T D Z from (X - mean)^T D (X - mean), (X - mean)^T D 1 and sum(D)."""
        d = self.rows.n_features
        H = np.empty((self.n_parameters, self.n_parameters))
        H[:d, :d] = products / np.outer(self.scale, self.scale)
        if self.constant:
            H[:d, d] = H[d, :d] = self.constant * column / self.scale
            H[d, d] = self.constant**2 * corner
        return H

    def hessian_product(
        self, theta: np.ndarray, sums: Sequence[RowSum]
    ) -> Callable[[np.ndarray], np.ndarray]:
        """The map x -> Z^T D Z x, one pass over the rows each time it is applied."""
        w, b = self.raw(theta)

        def product(x: np.ndarray) -> np.ndarray:
            w_x, b_x = self.raw(x)

            def block_product(block: Block) -> tuple[Any, ...]:
                D = _curvature(sums, _scores(block.X, w, b), block)
                r = D * _scores(block.X, w_x, b_x)
                return _weighted_rows(block.X, r), float(r.sum())

            return self._pull_back(*self._sum(block_product, sums))

        return product

    def _sum(
        self, f: Callable[[Block], tuple[Any, ...]], sums: Sequence[RowSum]
    ) -> tuple[Any, ...]:
        """A pass over the rows, without the unlabelled ones if none of the sums counts them."""
        if any(s.unlabelled for s in sums):
            return self.rows.sum(f)
        return self.rows.only_labelled().sum(lambda block: f(block.only_labelled()))

    def _pull_back(self, raw: np.ndarray, total: float) -> np.ndarray:
        """Z^T r from X^T r and sum(r)."""
        return self.with_constant((raw - self.mean * total) / self.scale, total)

    def with_constant(self, v: np.ndarray, total: float) -> np.ndarray:
        """Z^T r from its entries for the features and sum(r)."""
        return np.append(v, self.constant * total) if self.constant else v


class WideModel(LinearModel):
    r"""A linear model over fewer rows than columns: rows Z in a basis Q of their span, Z = C Q^T.

    A pivoted Cholesky factor of Z Z^T = L L^T, its rows put back in order, is C, and the pivot
    rows P with their triangle T = P Q give w = Q v = P^T T^{-T} v, so Q itself is never formed.
    Norms do not change, and so neither do an l2 penalty and Theorem 1; by the representer theorem
    nothing outside the span can lower the objective.
    """

    def __init__(self, rows: RowBlocks, mean: np.ndarray, scale: np.ndarray, constant: float = 1.0):
        Z = (rows.X - mean) / scale
        gram = np.asfortranarray(Z @ Z.T)
        # Without directions in which no row reaches 1e-6 of the longest: its square is 1e-12.
        factor, order, rank, _ = linalg.lapack.dpstrf(gram, tol=1e-12 * gram.max(), lower=1)
        order = order - 1  # LAPACK counts from 1
        lower = np.tril(factor)[:, :rank]
        coordinates = np.empty_like(lower)
        coordinates[order] = lower
        self._pivots, self._triangle = Z[order[:rank]], lower[:rank]
        self._mean, self._scale = mean, scale
        wide = RowBlocks(coordinates, rows.y, rows.sample_weight)
        super().__init__(wide, np.zeros(rank), np.ones(rank), constant)

    def weights(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        v, b = self.raw(theta)
        w = linalg.solve_triangular(self._triangle, v, lower=True, trans="T")
        w = self._pivots.T @ w / self._scale
        return w, float(b - self._mean @ w)


def _like(w: np.ndarray, X: Any) -> Any:
    """The vector as an array of the same kind, and on the same device, as the rows."""
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return w
    return namespace(X).asarray(w, dtype=X.dtype, device=X.device)


def _scores(X: Any, w: np.ndarray, b: float) -> Any:
    return X @ _like(w, X) + b


def _curvature(sums: Sequence[RowSum], f: Any, block: Block) -> Any:
    total = sums[0].curvature(f, *block.marks)
    for s in sums[1:]:
        total += s.curvature(f, *block.marks)
    return total


def _weighted_rows(X: Any, r: Any) -> np.ndarray:
    """sum_i r_i x_i, on the host."""
    return X.T @ r if sparse.issparse(X) else to_numpy(r @ X)


def _dense_products(X: Any, D: Any, mean: np.ndarray) -> tuple[Any, ...]:
    """(X - mean)^T D (X - mean) and its margins; centred first, so that no digits cancel."""
    if isinstance(D, np.ndarray):  # to find the rows that count costs a device more than it saves
        curved = np.flatnonzero(D)
        if len(curved) < 0.7 * len(D):
            X, D = X[curved], D[curved]
    # One symmetric product, at half the cost of X^T (D X).
    root = D**0.5
    C = X - _like(mean, X)
    C *= root[:, None]
    return to_numpy(C.T @ C), to_numpy(root @ C), float(D.sum())
