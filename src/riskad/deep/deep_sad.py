"""Deep SAD: a network that measures distances from a centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, UNLABELLED, count_labels
from riskad.core.risks import get_risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.deep.base import Callback, DeepDetector
from riskad.deep.batches import BATCH_ORDER, Draws, NetworkRows, Pools
from riskad.deep.criteria import SADCriterion, SquareCriterion
from riskad.deep.nets import Autoencoder, Decoder, Stack, StackedNet, find_architecture
from riskad.deep.ranks import world
from riskad.deep.trainer import (
    History,
    evaluate,
    pad_rows,
    train,
)
from riskad.storage.fields import COUNT, SHARE, Array, Fields, Number, State, require

__all__ = ["DeepSAD"]


# Coordinates of Deep SAD's centre stay this far from 0, so that zero weights cannot reach them.
_CENTRE_MARGIN = 0.1
# Rows whose representations are summed at a time.
_CENTRE_ROWS = 2**14


class DeepSAD(DeepDetector):
    r"""Deep SAD (Ruff et al. 2020): distances from a centre, with all three kinds of label.

    An autoencoder is first trained on all rows. The mean of its representations phi(x) is the
    centre c, whose coordinates are kept at least 0.1 away from 0. Then its encoder is trained to
    minimise, with d(x) = ||phi(x) - c||^2 and n rows in total,

        1/n [ sum_U d(x)  +  eta sum_P d(x)  +  eta sum_N 1 / (d(x) + eps) ]

    Unlabelled and normal rows are pulled to the centre, anomalies are pushed away. Scores are
    -d(x). With eta = 1 a labelled row counts as one row, so a few of them matter little among many
    unlabelled rows; then raise eta.

    Parameters
    ----------
    module : str, default="mlp"
        A name of `riskad.deep.nets.ARCHITECTURES`; its last linear layer is the representation.
    eta : float > 0, default=1.0
        Weight of labelled rows.
    eps : float > 0, default=1e-6
        Keeps the loss of anomalies finite at the centre.
    prior : float in (0, 1), default=0.8
        Assumed share of normal rows among the unlabelled rows. Only the threshold depends on it.
    pretrain_steps : int >= 0, default=500
        Steps of the autoencoder; 0 leaves the encoder at its random initial weights.
    batch : tuple of three int, default=(32, 32, 128)
        Rows of P, N and U in a batch. Kinds that y does not have are not drawn.
    weight_decay : float, default=1e-6
        Parameter of Adam.
    hidden, learning_rate, n_steps, schedule, check_every, scale, warm_start, device, \
random_state, verbose, callback :
        As in `DeepRAD`. A warm start keeps the centre.

    Attributes
    ----------
    centre_ : ndarray
        The centre c.
    weights_, history_, n_steps_, best_step_, offset_, shape_, n_features_in_, feature_names_in_ :
        As in `DeepRAD`; "pretraining" in `history_` is the autoencoder's error.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:40], y[-10:] = 1, -1
    >>> normal, anomaly = DeepSAD(eta=10, n_steps=200).fit(X, y).score_samples([[0, 0], [4, 4]])
    >>> bool(normal > anomaly)
    True
    """

    _state_fields: ClassVar[Fields] = {
        "eta": Number(0),
        "eps": Number(0),
        "prior": SHARE,
        "pretrain_steps": COUNT,
        "centre_": Array("f", ("representation",)),
    }

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        if state["module"] is not None:
            size = find_architecture(state["module"], state["hidden"]).sizes[-1]
            require(len(state["centre_"]) == size, f"centre_: expected {size} numbers")

    def __init__(
        self,
        module: str = "mlp",
        *,
        eta: float = 1.0,
        eps: float = 1e-6,
        prior: float = 0.8,
        pretrain_steps: int = 500,
        hidden: Sequence[int] | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-6,
        n_steps: int = 500,
        batch: tuple[int, int, int] = (32, 32, 128),
        schedule: str = "constant",
        check_every: int = 10,
        scale: bool = True,
        warm_start: bool = False,
        device: str = "auto",
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ):
        self.module = module
        self.eta = eta
        self.eps = eps
        self.prior = prior
        self.pretrain_steps = pretrain_steps
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_steps = n_steps
        self.batch = batch
        self.schedule = schedule
        self.check_every = check_every
        self.scale = scale
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    _own = frozenset({"prior", "random_state"})

    def fit(self, X: Any, y: Any = None) -> DeepSAD:
        """Fit to rows X with labels y: +1 normal, -1 anomaly, 0 unlabelled."""
        X, codes, _ = self._check_training(X, y)
        self._fit_alone(X, codes)
        return self

    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        self.offset_ = self._threshold(scores, codes)

    def _check_member(self, codes: np.ndarray) -> None:
        if not isinstance(self.module, str):
            raise InputError(
                "DeepSAD mirrors its encoder for pre-training and needs a named architecture, got "
                f"module={self.module!r}."
            )
        check_in_interval("eta", self.eta, 0, math.inf)
        check_in_interval("eps", self.eps, 0, math.inf)
        check_in_interval("prior", self.prior, 0, 1)
        steps = self.pretrain_steps
        if not isinstance(steps, (int, np.integer)) or isinstance(steps, bool) or steps < 0:
            raise InputError(f"pretrain_steps must be a whole number >= 0, got {steps!r}.")
        if not set(codes.tolist()) - {ANOMALY}:
            raise InputError(
                "DeepSAD needs normal or unlabelled rows to pull to its centre, and y has none "
                f"({count_labels(codes)})."
            )
        self._settings()
        self._sizes(BATCH_ORDER)

    def _build(self, members: Sequence[Self]) -> StackedNet:
        architecture = find_architecture(self.module, self.hidden)
        architecture.check_shape(self.module, self.shape_)
        seeds = [member._seed for member in members]
        return StackedNet(architecture, self.shape_, seeds, scores=False)

    def _train(
        self,
        members: Sequence[Self],
        stack: Stack,
        data: NetworkRows,
        pools: Sequence[Pools],
        **settings: Any,
    ) -> History:
        goes_on = self._goes_on()
        how = self._settings(**settings)
        errors = np.empty((0, len(members)))
        if not goes_on:
            errors = self._pretrain(members, stack, data, pools, settings)
            for member, centre in zip(members, _centres(stack, data, pools), strict=True):
                member.centre_ = centre.cpu().numpy()
        counts = torch.tensor([[len(pool[kind]) for kind in BATCH_ORDER] for pool in pools])
        present = counts[0].bool().tolist()
        if not (counts.bool() == counts[0].bool()).all():
            raise InputError(
                "networks that are trained together must have the same kinds of rows: all of them "
                "labelled normals, or none, and likewise anomalies and unlabelled rows."
            )
        sizes = {
            kind: b if there else 0
            for (kind, b), there in zip(self._sizes(BATCH_ORDER).items(), present, strict=True)
        }
        draws = Draws(pools, sizes, [member._seed for member in members], data.device)
        centres = torch.stack([torch.from_numpy(member.centre_) for member in members])
        criterion = SADCriterion(centres, draws.kinds, counts, self.eta, self.eps).to(data.device)
        with self._progress(how.n_steps) as callback:
            first = self.n_steps_ if goes_on else 0
            history = train(stack, criterion, data, draws, how, None, callback, first)
        return replace(history, pretraining=errors)

    def _pretrain(
        self,
        members: Sequence[Self],
        encoder: Stack,
        data: NetworkRows,
        pools: Sequence[Pools],
        settings: dict[str, Any],
    ) -> np.ndarray:
        """Train encoders within autoencoders, on rows of all kinds equally; errors (checks, K)."""
        if self.pretrain_steps == 0:
            return np.empty((0, len(members)))
        architecture = find_architecture(self.module, self.hidden)
        # Seeds differ from the encoders', whose weights would otherwise be repeated.
        seeds = [member._seed + 1 for member in members]
        decoder = Decoder(architecture, self.shape_, seeds)
        both = Autoencoder(encoder, decoder).to(data.device)
        everything = [{UNLABELLED: _all_rows(pool)} for pool in pools]
        draws = Draws(everything, {UNLABELLED: sum(self.batch)}, seeds, data.device)
        how = replace(self._settings(**settings), n_steps=int(self.pretrain_steps))
        return train(both, SquareCriterion(), data, draws, how).risk

    def _from_outputs(self, members: Sequence[Self], outputs: Tensor) -> Tensor:
        centres = torch.stack([torch.from_numpy(member.centre_) for member in members])
        return -(outputs - centres.to(outputs.device)[:, None]).square().sum(2)

    def _threshold(self, scores: np.ndarray, codes: np.ndarray) -> float:
        """The threshold with the lowest zero-one risk, by the risk for the kinds of label present.

        If there is a single kind, no risk exists, and it is the (1 - prior)-quantile.
        """
        present = set(codes.tolist())
        for name in ("rad", "pn", "nu", "pu"):
            risk = get_risk(name, prior=self.prior)
            if risk.kinds() <= present:
                return zero_one_threshold(risk, scores, codes)
        return float(np.quantile(scores, 1 - self.prior))


def _all_rows(pool: Pools) -> Tensor:
    return torch.cat([pool[kind] for kind in BATCH_ORDER]).sort().values


def _centres(stack: Stack, data: NetworkRows, pools: Sequence[Pools]) -> list[Tensor]:
    """For each network the mean of its rows' representations, kept away from 0."""
    each = [_all_rows(pool).cpu() for pool in pools]
    rows = pad_rows(each).to(data.device)
    counts = torch.tensor([[len(own)] for own in each], device=data.device)
    counted = torch.arange(rows.shape[1], device=data.device) < counts  # not the padding
    total = torch.zeros((), dtype=torch.float64, device=data.device)
    for start in range(0, rows.shape[1], _CENTRE_ROWS):
        some = slice(start, start + _CENTRE_ROWS)
        outputs = evaluate(stack, data, rows[:, some], world())
        total = total + (outputs * counted[:, some, None]).sum(1, dtype=torch.float64)
    mean = (total / counts).float()
    side = torch.where(mean < 0, -1.0, 1.0)
    return list(torch.where(mean.abs() < _CENTRE_MARGIN, _CENTRE_MARGIN * side, mean))
