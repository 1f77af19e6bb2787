r"""From outputs to K losses: the core's risks for K networks at once, and Deep SAD's objective.

A risk is a table of coefficients over scores f (see `riskad.core.risks`). For network k with kinds
of label y_1 ... y_B in its batch,

    plain_k   = sum_i alpha_ki l_k(f_ki) + beta_ki l_k(-f_ki)      over the terms without guard
    guarded_k = the same over the guarded terms
    risk_k    = plain_k + max(0, guarded_k)

where a term of weight w over a kind gives each of its b rows the coefficient w / b. Networks may
differ in loss, risk, a and prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.losses import Loss
from riskad.core.risks import KIND_NAMES, Risk

__all__ = ["GUARDS", "PADDING", "Losses", "RiskCriterion", "SADCriterion", "SquareCriterion"]

GUARDS = ("clip", "kiryo")

PADDING = 2
"""Value in `kinds` for a column that does not count."""


class Losses(NamedTuple):
    """For each network the objective, and the value for its learning curve: both (K,)."""

    objective: Tensor
    value: Tensor


class RiskCriterion(nn.Module):
    r"""The risks of K networks over a batch whose columns have given kinds.

    Parameters
    ----------
    risks : sequence of Risk
        One for each network, with its own loss, a and prior.
    kinds : Tensor of shape (B,) or (K, B)
        Kind of label of each column, or `PADDING`.
    guard : {"clip", "kiryo"}, default="clip"
        The objective if the risk has a guard. "clip" is the risk itself,

            plain + max(0, guarded),

        so that a negative guarded part has no gradient. "kiryo" is the step of Kiryo et al. (2017):
        if guarded < -beta, only -gamma guarded is descended, which brings the guarded part back up;
        otherwise it is plain + guarded.
    beta, gamma : float, default=0.0 and 1.0
        Parameters of "kiryo".

    The value is plain + max(0, guarded) under either guard.
    """

    _plain: Tensor
    _guarded: Tensor

    def __init__(
        self,
        risks: Sequence[Risk],
        kinds: Tensor,
        guard: str = "clip",
        beta: float = 0.0,
        gamma: float = 1.0,
    ):
        super().__init__()
        self.guard = check_choice("guard", guard, GUARDS)
        self.beta = check_in_interval("beta", beta, 0, float("inf"), closed=True)
        self.gamma = check_in_interval("gamma", gamma, 0, 1, closed=True)
        kinds = kinds.cpu().expand(len(risks), -1)
        plain, guarded = zip(
            *(_coefficients(risk, kinds[k]) for k, risk in enumerate(risks)), strict=True
        )
        self.register_buffer("_plain", torch.stack(plain).float())
        self.register_buffer("_guarded", torch.stack(guarded).float())
        self._groups = _LossGroups([risk.loss for risk in risks])

    def forward(self, scores: Tensor) -> Losses:
        """Losses of scores (K, B)."""
        scores = scores.to(self._plain.dtype)
        sides = self._groups(scores)
        plain, guarded = (self._plain * sides).sum((1, 2)), (self._guarded * sides).sum((1, 2))
        value = plain + guarded.clamp(min=0.0)
        if self.guard == "clip":
            return Losses(value, value.detach())
        descended = torch.where(guarded < -self.beta, -self.gamma * guarded, plain + guarded)
        return Losses(descended, value.detach())


class _LossGroups(nn.Module):
    """l_k(f) and l_k(-f) for networks with different losses: (K, B) to (K, 2, B)."""

    _members: Tensor
    _order: Tensor

    def __init__(self, losses: Sequence[Loss]):
        super().__init__()
        self._losses = list(dict.fromkeys(losses))
        members = [
            torch.tensor([k for k, loss in enumerate(losses) if loss is each])
            for each in self._losses
        ]
        self._sizes = [len(group) for group in members]
        self.register_buffer("_members", torch.cat(members))
        self.register_buffer("_order", torch.cat(members).argsort())

    def forward(self, f: Tensor) -> Tensor:
        """Both sides of each network's loss."""
        sides = torch.stack([f, -f], dim=1)
        if len(self._losses) == 1:
            return self._losses[0].value(sides)
        groups = torch.split_with_sizes(sides[self._members], self._sizes)
        values = [loss.value(z) for loss, z in zip(self._losses, groups, strict=True)]
        return torch.cat(values)[self._order]


def _coefficients(risk: Risk, kinds: Tensor) -> tuple[Tensor, Tensor]:
    """Coefficients (alpha, beta) of l(f) and l(-f), each (2, B): without guard, and guarded."""
    plain, guarded = (torch.zeros(2, len(kinds), dtype=torch.float64) for _ in range(2))
    for term in risk.terms():
        if term.weight != 0:
            of_kind = kinds == term.kind
            if not of_kind.any():
                name = KIND_NAMES[term.kind]
                raise InputError(f"the {risk.name} risk needs {name} rows, and the batch has none.")
            target = guarded if risk.guarded and term.guarded else plain
            target[0 if term.sign > 0 else 1] += term.weight * of_kind / of_kind.sum()
    return plain, guarded


class SADCriterion(nn.Module):
    r"""Deep SAD's objective (Ruff et al. 2020) for K networks with centres c_k.

    With d_i = ||phi(x_i) - c||^2 and n rows in total, n_p, n_n and n_u of each kind,

        1/n [ sum_U d_i  +  eta sum_P d_i  +  eta sum_N 1 / (d_i + eps) ]

    The batch has its own shares of the kinds: a column of kind K weighs n_K / (n b_K), times eta
    if labelled, so that the expectation over batches is the objective over all rows.

    Parameters
    ----------
    centres : Tensor of shape (K, rep)
        c_k.
    kinds : Tensor of shape (B,)
        Kind of label of each column.
    counts : Tensor of shape (K, 3)
        n_p, n_n, n_u of each network.
    eta : float, default=1.0
        Weight of labelled rows.
    eps : float, default=1e-6
        Keeps 1 / (d + eps) finite at the centre.
    """

    _near: Tensor
    _far: Tensor
    centres: Tensor

    def __init__(
        self, centres: Tensor, kinds: Tensor, counts: Tensor, eta: float = 1.0, eps: float = 1e-6
    ):
        super().__init__()
        self.eps = eps
        shares = counts.double() / counts.sum(1, keepdim=True)
        near, far = (torch.zeros(len(counts), len(kinds), dtype=torch.float64) for _ in range(2))
        for column, kind in enumerate((NORMAL, ANOMALY, UNLABELLED)):
            of_kind = (kinds == kind).cpu()
            if of_kind.any():
                weight = 1.0 if kind == UNLABELLED else eta
                target = far if kind == ANOMALY else near
                target[:, of_kind] = weight * shares[:, [column]].cpu() / of_kind.sum()
        self.register_buffer("centres", centres)
        self.register_buffer("_near", near.float())
        self.register_buffer("_far", far.float())

    def forward(self, outputs: Tensor) -> Losses:
        """Losses of representations (K, B, rep)."""
        d = self.distances(outputs)
        value = (self._near * d + self._far / (d + self.eps)).sum(1)
        return Losses(value, value.detach())

    def distances(self, outputs: Tensor) -> Tensor:
        """Squared distances from the centre: (K, B)."""
        return (outputs.to(self.centres.dtype) - self.centres[:, None]).square().sum(2)


class SquareCriterion(nn.Module):
    """Mean square of outputs (K, B, values): the error of an `Autoencoder`."""

    def forward(self, outputs: Tensor) -> Losses:
        """Mean squares, one for each network."""
        value = outputs.float().square().mean((1, 2))
        return Losses(value, value.detach())
