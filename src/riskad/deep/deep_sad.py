"""Deep SAD: a network that measures distances from a centre."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from riskad.core.checks import InputError, check_in_interval
from riskad.core.labels import ANOMALY, UNLABELLED, count_labels
from riskad.core.risks import get_risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.deep.base import Curves, DeepDetector
from riskad.deep.batches import BATCH_ORDER, BatchSampler, Pools
from riskad.deep.criteria import SADCriterion, mean_square
from riskad.deep.nets import build_decoder, build_network, find_architecture
from riskad.deep.trainer import evaluate, train
from riskad.detectors.base import RandomState, check_whole
from riskad.files.fields import COUNT, SHARE, Array, Number, State, require

# Least distance of the centre's coordinates from 0, to which a network with all weights 0 maps
# every row: were the centre there, it would be the perfect fit.
CENTRE_MARGIN = 0.1


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
    module : str or sequence of int, default="mlp"
        A name of `riskad.deep.nets.ARCHITECTURES`, or the sizes of linear layers; the last one is
        the representation.
    eta, eps : float > 0, default=1.0 and 1e-6
        Weight of labelled rows; what keeps the loss of anomalies finite at the centre.
    prior : float in (0, 1), default=0.8
        Assumed share of normal rows among the unlabelled rows. Only the threshold depends on it.
    pretrain_iter : int >= 0, default=500
        Steps of the autoencoder; 0 leaves the encoder at its random initial weights.
    batch_size : tuple of three int, default=(32, 32, 128)
        Rows of P, N and U in a batch. Kinds that y does not have are not drawn.
    learning_rate, max_iter, scale, device, random_state :
        As in `DeepRAD`, but the l2 penalty is 1e-6 and max_iter=500.

    Attributes
    ----------
    centre_ : ndarray
        The centre c.
    weights_, history_, n_iter_, best_iter_, offset_, shape_, n_features_in_, feature_names_in_ :
        As in `DeepRAD`; "pretraining" in `history_` is the autoencoder's error.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.repeat([1, 0, -1], [40, 950, 10])
    >>> normal, anomaly = DeepSAD(eta=10, max_iter=200).fit(X, y).score_samples([[0, 0], [4, 4]])
    >>> bool(normal > anomaly)
    True
    """

    _gives_scores = False
    _weight_decay = 1e-6
    eta: Annotated[float, Number(0)]
    eps: Annotated[float, Number(0)]
    prior: Annotated[float, SHARE]
    pretrain_iter: Annotated[int, COUNT]
    centre_: Annotated[np.ndarray, Array("f", ("representation",))]

    @classmethod
    def _check_state(cls, state: State) -> None:
        super()._check_state(state)
        if state["module"] is not None:
            size = find_architecture(state["module"]).sizes[-1]
            require(len(state["centre_"]) == size, f"centre_: expected {size} numbers")

    def __init__(
        self,
        module: str | Sequence[int] = "mlp",
        *,
        eta: float = 1.0,
        eps: float = 1e-6,
        prior: float = 0.8,
        pretrain_iter: int = 500,
        learning_rate: float = 1e-3,
        max_iter: int = 500,
        batch_size: tuple[int, int, int] = (32, 32, 128),
        scale: bool = True,
        device: str = "auto",
        random_state: RandomState = 0,
    ):
        self.module = module
        self.eta = eta
        self.eps = eps
        self.prior = prior
        self.pretrain_iter = pretrain_iter
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.scale = scale
        self.device = device
        self.random_state = random_state

    def _check_fit(self, codes: np.ndarray) -> None:
        if not isinstance(self.module, (str, list, tuple)):
            raise InputError(
                "DeepSAD mirrors its encoder for pre-training and needs a named architecture, got "
                f"module={self.module!r}."
            )
        for name, high in (("eta", math.inf), ("eps", math.inf), ("prior", 1)):
            check_in_interval(name, getattr(self, name), 0, high)
        check_whole("pretrain_iter", self.pretrain_iter, 0)
        if (codes == ANOMALY).all():
            raise InputError(
                "DeepSAD needs normal or unlabelled rows to pull to its centre, and y has none "
                f"({count_labels(codes)})."
            )
        self._settings()
        self._sizes(BATCH_ORDER)

    def _build(self) -> nn.Module:
        return build_network(self.module, self.shape_, self._seed, scores=False)

    def _train(self, network: nn.Module, data: Tensor, pools: Pools) -> tuple[Curves, int]:
        # Before the centre: it is the mean of what the pre-trained encoder gives.
        errors = self._pretrain(network, data) if self.pretrain_iter > 0 else np.empty(0)
        centre = centre_of(evaluate(network, data))
        self.centre_ = centre.cpu().numpy()
        counts = {kind: len(rows) for kind, rows in pools.items()}
        sizes = {kind: b if counts[kind] else 0 for kind, b in self._sizes(BATCH_ORDER).items()}
        sampler = BatchSampler(pools, sizes, self._seed, data.device)
        criterion = SADCriterion(centre, sampler.kinds, counts, self.eta, self.eps)
        curves, best_step = train(network, criterion, data, sampler, self._settings())
        return curves | {"pretraining": errors}, best_step

    def _pretrain(self, encoder: nn.Module, data: Tensor) -> np.ndarray:
        """Train the encoder within an autoencoder, on rows of all kinds equally; its errors."""
        seed = self._seed + 1  # not the encoder's, whose weights would otherwise be repeated
        decoder = build_decoder(find_architecture(self.module), self.shape_, seed)
        both = Autoencoder(encoder, decoder).to(data.device)
        rows = {UNLABELLED: torch.arange(len(data))}
        sampler = BatchSampler(rows, {UNLABELLED: sum(self.batch_size)}, seed, data.device)
        settings = replace(self._settings(), max_iter=int(self.pretrain_iter))
        return train(both, mean_square, data, sampler, settings)[0]["risk"]

    def _output_scores(self, outputs: Tensor) -> Tensor:
        centre = torch.from_numpy(self.centre_).to(outputs.device)
        return -(outputs - centre).square().sum(-1)

    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        """The threshold with the lowest zero-one risk, by the risk for the kinds of label present.

        If there is a single kind, no risk exists, and it is the (1 - prior)-quantile.
        """
        present = set(codes.tolist())
        # From most to least information; the first whose kinds of row are all there.
        for name in ("rad", "pn", "nu", "pu"):
            risk = get_risk(name, prior=self.prior)
            if risk.kinds() <= present:
                self.offset_ = zero_one_threshold(risk, scores, codes)
                return
        self.offset_ = float(np.quantile(scores, 1 - self.prior))


class Autoencoder(nn.Sequential):
    """Encoder and decoder; gives the reconstruction minus the input, (B, values of a row)."""

    def forward(self, x: Tensor) -> Tensor:
        """Errors of each value."""
        encoder, decoder = self
        errors: Tensor = decoder(encoder(x)) - x
        return errors.flatten(1)


def centre_of(representations: Tensor) -> Tensor:
    """The mean of representations (..., n, rep), with coordinates kept away from 0."""
    # Summed in doubles, since there may be very many rows.
    mean = representations.mean(-2, dtype=torch.float64).float()
    side = torch.where(mean < 0, -1.0, 1.0)
    return torch.where(mean.abs() < CENTRE_MARGIN, CENTRE_MARGIN * side, mean)
