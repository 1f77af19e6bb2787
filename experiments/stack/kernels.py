r"""Batch normalisation, leaky ReLU and max-pooling over 2 x 2 in one: kernels for NVIDIA GPUs.

Between two convolutions a network does little arithmetic and moves much memory. In

    out = max over 2 x 2 of leaky((y - mean) / sqrt(variance + eps))

the functions around the maximum increase, so it may come first: a quarter of the values is left to
normalise. Then `y` is read once forwards (its maxima, and the sums for mean and variance) and once
backwards, and its gradient written once. torch's own layers, one after another, do about ten times
that. With x = (y - mean) / s, s = sqrt(variance + eps), N values in a channel, and g the gradient
at the maxima before leaky ReLU,

    dy = 1/s [ g at the first place of each maximum  -  sum(g) / N  -  x sum(g x) / N ]

Values in `y` have the layout (G, B, H, W, C): in G groups of C channels adjacent in memory.
Sums over many values are taken in parts of a fixed order, so that every run gives the same numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Values in a tile: positions times channels.
_TILE = 1024
# Tiles a program goes through, one after another.
_TILES = 8


def norm_pool(y: Tensor, eps: float, slope: float) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise by the batch, activate and pool: (G, B, H, W, C) to (B, H / 2, W / 2, G C).

    H and W are even. Also returned are mean and variance of each of the G C channels.
    """
    out, mean, variance = _NormPool.apply(y, eps, slope)
    return out, mean, variance


class _NormPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, eps: float, slope: float) -> tuple[Tensor, Tensor, Tensor]:
        G, B, H, W, C = y.shape
        plan = _Plan(y)
        pooled = y.new_empty(B, H // 2, W // 2, G * C)
        sums = y.new_empty(2, plan.chunks, G * C, dtype=torch.float32)
        _pool[plan.grid](y, pooled, sums, *plan.sizes, *plan.strides, **plan.tile)
        first, second = sums.sum(1) / (B * H * W)
        mean, variance = first, (second - first.square()).clamp(min=0.0)
        inverse = torch.rsqrt(variance + eps)
        out = torch.empty_like(pooled)
        _normalise[plan.grid](pooled, out, mean, inverse, *plan.sizes, slope, **plan.tile)
        ctx.save_for_backward(y, pooled, mean, inverse)
        ctx.slope = slope
        ctx.mark_non_differentiable(mean, variance)
        return out, mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        y, pooled, mean, inverse = ctx.saved_tensors
        g = gradients[0].contiguous()
        G, B, H, W, C = y.shape
        plan = _Plan(y)
        sums = y.new_empty(2, plan.chunks, G * C, dtype=torch.float32)
        _sum_gradients[plan.grid](
            g, pooled, mean, inverse, sums, *plan.sizes, ctx.slope, **plan.tile
        )
        means = sums.sum(1) / (B * H * W)
        dy = torch.empty_like(y)
        _spread[plan.grid](
            y, g, pooled, mean, inverse, means, dy, *plan.sizes, *plan.strides, ctx.slope,
            **plan.tile,
        )  # fmt: skip
        return dy, None, None


class _Plan:
    """How the work on a tensor is divided: chunks of positions x blocks of channels x groups."""

    def __init__(self, y: Tensor):
        G, B, H, W, C = y.shape
        channels = min(triton.next_power_of_2(C), 64)
        positions = _TILE // channels
        n = B * (H // 2) * (W // 2)
        self.chunks = triton.cdiv(n, positions * _TILES)
        self.grid = (self.chunks, triton.cdiv(C, channels), G)
        self.sizes = (n, H // 2, W // 2, C, G * C)
        self.strides = y.stride()[:4]
        self.tile = {"P": positions, "CB": channels, "TILES": _TILES}


@triton.jit
def _pool(
    y, pooled, sums, n, h, w, C, GC, s_g, s_b, s_h, s_w,
    P: tl.constexpr, CB: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Maxima over 2 x 2, and each channel's sums of values and of squares."""
    g = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    first = tl.zeros([CB], tl.float32)
    second = tl.zeros([CB], tl.float32)
    for t in range(TILES):
        p = ((tl.program_id(0) * TILES + t) * P + tl.arange(0, P)).to(tl.int64)
        mask = (p < n)[:, None] & (c < C)[None, :]
        corner = g * s_g + (p // (h * w)) * s_b + (p // w % h) * 2 * s_h + (p % w) * 2 * s_w
        # Tiles of positions x 2 neighbours in a row x channels: these lie together in memory.
        side = tl.arange(0, 2).to(tl.int64) * s_w
        at = y + corner[:, None, None] + side[None, :, None] + c[None, None, :]
        top = tl.load(at, mask[:, None, :], other=0.0).to(tl.float32)
        bottom = tl.load(at + s_h, mask[:, None, :], other=0.0).to(tl.float32)
        first += tl.sum(tl.sum(top + bottom, 1), 0)
        second += tl.sum(tl.sum(top * top + bottom * bottom, 1), 0)
        most = tl.max(tl.maximum(top, bottom), 1)
        tl.store(pooled + p[:, None] * GC + g * C + c[None, :], most, mask)
    part = sums + tl.program_id(0) * GC + g * C + c
    tl.store(part, first, c < C)
    tl.store(part + tl.num_programs(0) * GC, second, c < C)


@triton.jit
def _normalise(
    pooled, out, mean, inverse, n, h, w, C, GC, slope,
    P: tl.constexpr, CB: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Normalise the maxima and apply leaky ReLU."""
    g = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    mu = tl.load(mean + g * C + c, c < C, other=0.0)
    inv = tl.load(inverse + g * C + c, c < C, other=0.0)
    for t in range(TILES):
        p = ((tl.program_id(0) * TILES + t) * P + tl.arange(0, P)).to(tl.int64)
        mask = (p < n)[:, None] & (c < C)[None, :]
        at = p[:, None] * GC + g * C + c[None, :]
        x = (tl.load(pooled + at, mask, other=0.0).to(tl.float32) - mu[None, :]) * inv[None, :]
        tl.store(out + at, tl.where(x > 0, x, x * slope), mask)


@triton.jit
def _sum_gradients(
    gradient, pooled, mean, inverse, sums, n, h, w, C, GC, slope,
    P: tl.constexpr, CB: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Each channel's sums of g and of g x."""
    g = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    mu = tl.load(mean + g * C + c, c < C, other=0.0)
    inv = tl.load(inverse + g * C + c, c < C, other=0.0)
    first = tl.zeros([CB], tl.float32)
    second = tl.zeros([CB], tl.float32)
    for t in range(TILES):
        p = ((tl.program_id(0) * TILES + t) * P + tl.arange(0, P)).to(tl.int64)
        mask = (p < n)[:, None] & (c < C)[None, :]
        at = p[:, None] * GC + g * C + c[None, :]
        x = (tl.load(pooled + at, mask, other=0.0).to(tl.float32) - mu[None, :]) * inv[None, :]
        d = tl.load(gradient + at, mask, other=0.0).to(tl.float32)
        d = tl.where(x > 0, d, d * slope)
        first += tl.sum(d, 0)
        second += tl.sum(d * x, 0)
    part = sums + tl.program_id(0) * GC + g * C + c
    tl.store(part, first, c < C)
    tl.store(part + tl.num_programs(0) * GC, second, c < C)


@triton.jit
def _spread(
    y, gradient, pooled, mean, inverse, means, dy, n, h, w, C, GC, s_g, s_b, s_h, s_w, slope,
    P: tl.constexpr, CB: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The gradient of y; `dy` has the memory layout of `y`."""
    g = tl.program_id(2).to(tl.int64)
    c = tl.program_id(1) * CB + tl.arange(0, CB)
    mu = tl.load(mean + g * C + c, c < C, other=0.0)
    inv = tl.load(inverse + g * C + c, c < C, other=0.0)
    # dy = (g - a - b y) / s  with  x sum(g x) / N + sum(g) / N = a + b y
    slant = tl.load(means + GC + g * C + c, c < C, other=0.0) * inv
    level = tl.load(means + g * C + c, c < C, other=0.0) - slant * mu
    for t in range(TILES):
        p = ((tl.program_id(0) * TILES + t) * P + tl.arange(0, P)).to(tl.int64)
        mask = (p < n)[:, None] & (c < C)[None, :]
        at = p[:, None] * GC + g * C + c[None, :]
        most = tl.load(pooled + at, mask, other=0.0).to(tl.float32)
        d = tl.load(gradient + at, mask, other=0.0).to(tl.float32)
        d = tl.where(most > mu[None, :], d, d * slope)
        corner = g * s_g + (p // (h * w)) * s_b + (p // w % h) * 2 * s_h + (p % w) * 2 * s_w
        side = tl.arange(0, 2)
        at = corner[:, None, None] + side.to(tl.int64)[None, :, None] * s_w + c[None, None, :]
        top = tl.load(y + at, mask[:, None, :], other=0.0).to(tl.float32)
        bottom = tl.load(y + at + s_h, mask[:, None, :], other=0.0).to(tl.float32)
        # Places 0, 1 above and 2, 3 below; the first that holds the maximum gets the gradient.
        place = tl.where(top == most[:, None, :], side[None, :, None], 4)
        place = tl.minimum(place, tl.where(bottom == most[:, None, :], side[None, :, None] + 2, 4))
        chosen = tl.min(place, 1)[:, None, :]
        a, b, s = level[None, None, :], slant[None, None, :], inv[None, None, :]
        above = tl.where(side[None, :, None] == chosen, d[:, None, :], 0.0)
        below = tl.where(side[None, :, None] + 2 == chosen, d[:, None, :], 0.0)
        tl.store(dy + at, (above - a - b * top) * s, mask[:, None, :])
        tl.store(dy + at + s_h, (below - a - b * bottom) * s, mask[:, None, :])
