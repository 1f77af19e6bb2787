r"""From outputs to a loss: the core's risks, Deep SAD's objective and an autoencoder's error.

A risk is a table of coefficients over scores f (see `riskad.core.risks`). For a batch it is
plain + max(0, guarded), both sums over its rows of alpha_i l(f_i) + beta_i l(-f_i). A term of
weight w over a kind gives each of its b rows the coefficient w / b.

All criteria also take outputs with leading axes; losses then have these axes.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from riskad.core.checks import InputError, check_choice
from riskad.core.labels import ANOMALY, UNLABELLED
from riskad.core.risks import KIND_NAMES, Risk
from riskad.deep.batches import BATCH_ORDER

GUARDS = ("clip", "kiryo")


class Losses(NamedTuple):
    """The objective, and the value for the learning curve."""

    objective: Tensor
    value: Tensor


class RiskCriterion(nn.Module):
    r"""A risk over a batch whose columns have given kinds.

    With guard="clip" the objective is the risk itself, plain + max(0, guarded), so that a negative
    guarded part has no gradient. "kiryo" is the step of Kiryo et al. (2017) with their beta = 0 and
    gamma = 1: if guarded < 0, only -guarded is descended, which brings the guarded part back up;
    otherwise it is plain + guarded. The value is plain + max(0, guarded) under either.
    """

    plain: Tensor
    guarded: Tensor

    def __init__(self, risk: Risk, kinds: Tensor, guard: str = "clip"):
        super().__init__()
        self.guard = check_choice("guard", guard, GUARDS)
        self.loss = risk.loss
        plain, guarded = _coefficients(risk, kinds.cpu())
        self.register_buffer("plain", plain.float().to(kinds.device))
        self.register_buffer("guarded", guarded.float().to(kinds.device))

    def forward(self, scores: Tensor) -> Losses:
        """Losses of scores (..., B)."""
        # Half precision ends here: terms of opposite sign are added up below.
        scores = scores.to(self.plain.dtype)
        sides = self.loss.value(torch.stack([scores, -scores], dim=-2))
        plain, guarded = (self.plain * sides).sum((-2, -1)), (self.guarded * sides).sum((-2, -1))
        value = plain + guarded.clamp(min=0.0)
        if self.guard == "clip":
            return Losses(value, value.detach())
        descended = torch.where(guarded < 0, -guarded, plain + guarded)
        return Losses(descended, value.detach())


def _coefficients(risk: Risk, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients (alpha, beta) of l(f) and l(-f), each (2, B): without guard, and guarded."""
    plain, guarded = torch.zeros(2, 2, len(kinds), dtype=torch.float64)
    for term in risk.terms():
        if term.weight != 0:
            of_kind = kinds == term.kind
            if not of_kind.any():
                name = KIND_NAMES[term.kind]
                raise InputError(f"the {risk.name} risk needs {name} rows, and the batch has none.")
            target = guarded if risk.guarded and term.guarded else plain
            # A kind may stand in two terms, one of which is guarded: coefficients add up.
            target[0 if term.sign > 0 else 1] += term.weight * of_kind / of_kind.sum()
    return plain, guarded


class SADCriterion(nn.Module):
    r"""Deep SAD's objective (Ruff et al. 2020) with a centre c.

    With d_i = ||phi(x_i) - c||^2 and n rows in total, n_p, n_n and n_u of each kind,

        1/n [ sum_U d_i  +  eta sum_P d_i  +  eta sum_N 1 / (d_i + eps) ]

    The batch has its own shares of the kinds: a column of kind K weighs n_K / (n b_K), times eta
    if labelled, so that the expectation over batches is the objective over all rows. `counts` are
    n_p, n_n and n_u by kind.
    """

    centre: Tensor
    near: Tensor
    far: Tensor

    def __init__(
        self, centre: Tensor, kinds: Tensor, counts: dict[int, int], eta: float, eps: float
    ):
        super().__init__()
        self.eps = eps
        near, far = torch.zeros(2, len(kinds), dtype=torch.float64)
        for kind in BATCH_ORDER:
            of_kind = kinds.cpu() == kind
            if of_kind.any():
                weight = (1.0 if kind == UNLABELLED else eta) * counts[kind] / sum(counts.values())
                # Each row of a kind has an equal share of the kind's weight in the whole table.
                (far if kind == ANOMALY else near)[of_kind] = weight / of_kind.sum()
        self.register_buffer("centre", centre)
        self.register_buffer("near", near.float().to(kinds.device))
        self.register_buffer("far", far.float().to(kinds.device))

    def forward(self, outputs: Tensor) -> Losses:
        """Losses of representations (..., B, rep)."""
        d = (outputs.to(self.centre.dtype) - self.centre[..., None, :]).square().sum(-1)
        value = (self.near * d + self.far / (d + self.eps)).sum(-1)
        return Losses(value, value.detach())


def mean_square(errors: Tensor) -> Losses:
    """The loss of an autoencoder whose errors are (..., B, values)."""
    value = errors.float().square().mean((-2, -1))
    return Losses(value, value.detach())
