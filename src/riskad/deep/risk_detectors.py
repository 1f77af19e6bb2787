"""Networks that minimise a risk of `riskad.core`, with the interface of the other detectors."""

from __future__ import annotations

from numbers import Real
from typing import Annotated, Any, ClassVar

import numpy as np
from torch import Tensor, nn

from riskad.core.checks import InputError, check_choice
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.core.losses import LOSSES, Loss
from riskad.core.risks import KIND_NAMES, RISKS, Risk, get_risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.deep.base import Curves, DeepDetector
from riskad.deep.batches import BATCH_ORDER, BatchSampler, Pools, split_pools
from riskad.deep.criteria import RiskCriterion
from riskad.deep.nets import Module, build_network
from riskad.deep.trainer import Validation, train
from riskad.detectors.base import RandomState
from riskad.detectors.description import RiskMinimizer, check_kinds_present
from riskad.files.fields import SHARE, Number, Text


class _RiskDetector(DeepDetector, RiskMinimizer):
    """A network that minimises a risk of `riskad.core`."""

    validation_fraction: Annotated[float, SHARE]
    _guard: ClassVar[str]
    loss: Annotated[str | Loss, Text(choices=LOSSES)]
    prior: Annotated[float, SHARE]
    _batch_kinds: ClassVar[tuple[int, ...]] = BATCH_ORDER  # that `batch` gives numbers of

    def _batch_sizes(self, risk: Risk) -> dict[int, int]:
        """Rows of each kind in a batch; 0 for kinds that the risk does not use."""
        sizes = self._sizes(self._batch_kinds)
        return {kind: sizes[kind] if kind in risk.kinds() else 0 for kind in BATCH_ORDER}

    def _check_fit(self, codes: np.ndarray) -> None:
        risk = self._bound_risk()
        self._settings()
        self._batch_sizes(risk)
        held_out = self.validation_fraction
        if not isinstance(held_out, Real) or not 0 <= float(held_out) < 1:
            raise InputError(f"validation_fraction must be a number in [0, 1), got {held_out!r}.")
        # In the order of label codes: 0, 1, and -1 as the last.
        totals = np.array([(codes == code).sum() for code in (UNLABELLED, NORMAL, ANOMALY)])
        check_kinds_present(risk, count_labels(codes), totals)

    def _build(self) -> nn.Module:
        # A bounded loss has no slope for scores far from 0 (see `ScoreUnit`).
        centred = self._bound_risk().loss.bounded
        return build_network(self.module, self.shape_, self._seed, centred=centred)

    def _train(self, network: nn.Module, data: Tensor, pools: Pools) -> tuple[Curves, int]:
        risk = self._bound_risk()
        sizes = self._batch_sizes(risk)
        # A kind without rows in a batch is not held out either: it would count for nothing.
        used = {kind: rows if sizes[kind] else rows[:0] for kind, rows in pools.items()}
        training, held = split_pools(used, self.validation_fraction, self._seed)
        held_out = any(map(len, held.values()))
        sampler = BatchSampler(training, sizes, self._seed, data.device)
        criterion = RiskCriterion(risk, sampler.kinds, self._guard)
        # The held-out rows have every kind that the risk needs, so that it has a value on them.
        validation = Validation(held, risk, data.device) if held_out else None
        return train(network, criterion, data, sampler, self._settings(), validation)

    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        self.offset_ = zero_one_threshold(self._bound_risk(), scores, codes)


class DeepRAD(_RiskDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with a neural network.

    Trains g to minimise an estimate of the classification risk from labelled normal rows (P),
    labelled anomalies (N) and contaminated unlabelled rows (U). The default is the paper's
    non-negative estimator R1_s,

        (1 - a) pi_p R_p^+ + pi_n R_n^- + max(0, a [R_u^+ - pi_n R_n^+])

    where R_k^{+/-} is the mean of l(+/- g) over the rows of kind k and pi_n = 1 - pi_p. Every batch
    holds rows of all three kinds, and Adam minimises its risk. In a step in which the bracket is
    negative, it is left out.

    Parameters
    ----------
    module : str, sequence of int, nn.Module or callable, default="mlp"
        A name of `riskad.deep.nets.ARCHITECTURES`; the sizes of linear layers; a module that maps a
        batch to one score for each row (a copy of it is trained); or a function from the shape of a
        row to such a module.
    loss : str or Loss, default="logistic"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    risk : str, default="nnrad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    a : float in (0, 1), default=0.1
        Weight of the unlabelled rows; in (-1, 1) for risk="pnu".
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows. 1 - prior is the anomaly
        rate.
    learning_rate : float, default=1e-3
        Step size of Adam, which also descends an l2 penalty of 5e-4.
    max_iter : int, default=100
        Maximum number of steps. With few labels a network soon overfits: more is not better.
    batch_size : tuple of three int, default=(64, 32, 128)
        Rows of P, N and U in a batch. Kinds that the risk does not use are not drawn.
    validation_fraction : float in [0, 1), default=0.0
        Share of each kind of training row that is held out for early stopping: training ends after
        ten checks of the risk on these rows without improvement, one every ten steps, and the best
        network is kept. If a kind has a single row nothing is held out, and all steps are taken.
        With few labelled anomalies this costs more than it gains (`results/deep`); with hundreds
        try 0.2 and more steps.
    scale : bool, default=True
        Whether to standardise columns, or channels of images, by the training rows. Without it,
        images of bytes are read as brightness from 0 to 1, and everything else is unchanged.
    device : str, default="auto"
        A torch device; "auto" is the GPU if there is one. A GPU trains in bfloat16.
    random_state : int, RandomState or None, default=0
        Seed for weights, batches and held-out rows. With a number, the same data give the same
        model on the same device.

    Attributes
    ----------
    weights_ : dict of ndarray
        Parameters and running statistics of the network.
    history_ : dict of ndarray
        Learning curves: "step", "risk" (mean over batches) and "validation" (on held-out rows).
    n_iter_, best_iter_ : int
        Steps trained, and the step whose network was kept.
    offset_ : float
        Threshold on `score_samples` that minimises the risk under the zero-one loss.
    shape_, n_features_in_, feature_names_in_ :
        Shape of a row, its number of values, and the names of columns if they have any.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = DeepRAD(max_iter=100).fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _guard = "clip"
    risk: Annotated[str, Text(choices=RISKS)]
    a: Annotated[float, Number(-1, 1)]

    def __init__(
        self,
        module: Module = "mlp",
        *,
        loss: str | Loss = "logistic",
        risk: str = "nnrad",
        a: float = 0.1,
        prior: float = 0.8,
        learning_rate: float = 1e-3,
        max_iter: int = 100,
        batch_size: tuple[int, int, int] = (64, 32, 128),
        validation_fraction: float = 0.0,
        scale: bool = True,
        device: str = "auto",
        random_state: RandomState = 0,
    ):
        self.module = module
        self.loss = loss
        self.risk = risk
        self.a = a
        self.prior = prior
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.scale = scale
        self.device = device
        self.random_state = random_state

    def _bound_risk(self) -> Risk:
        check_choice("risk", self.risk, RISKS)
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)


class NNPU(_RiskDetector):
    r"""Non-negative PU learning (Kiryo et al. 2017): labelled normal and unlabelled rows.

        pi_p R_p^+ + max(0, R_u^- - pi_p R_p^-)

    with the sigmoid loss. If the bracket is negative, a step follows minus its gradient only. The
    risk does not use labelled anomalies: they count as unlabelled rows.

    Parameters
    ----------
    module, learning_rate, max_iter, validation_fraction, scale, device, random_state :
        As in `DeepRAD`.
    loss : str or Loss, default="sigmoid"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows among the unlabelled rows.
    batch_size : tuple of two int, default=(64, 160)
        Rows of P and U in a batch.

    Attributes
    ----------
    weights_, history_, n_iter_, best_iter_, offset_, shape_, n_features_in_, feature_names_in_ :
        As in `DeepRAD`.

    Examples
    --------
    >>> import numpy as np
    >>> import riskad
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.repeat([1, 0], [100, 900])
    >>> y = riskad.parse_labels(y, normal=1, unlabelled=0)  # elsewhere 1 may mean anomaly
    >>> normal, anomaly = NNPU(prior=0.9, max_iter=100).fit(X, y).score_samples([[0, 0], [4, 4]])
    >>> bool(normal > anomaly)
    True
    """

    _guard = "kiryo"
    _batch_kinds = (NORMAL, UNLABELLED)

    def __init__(
        self,
        module: Module = "mlp",
        *,
        loss: str | Loss = "sigmoid",
        prior: float = 0.8,
        learning_rate: float = 1e-3,
        max_iter: int = 100,
        batch_size: tuple[int, int] = (64, 160),
        validation_fraction: float = 0.0,
        scale: bool = True,
        device: str = "auto",
        random_state: RandomState = 0,
    ):
        self.module = module
        self.loss = loss
        self.prior = prior
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.scale = scale
        self.device = device
        self.random_state = random_state

    def _check_labels(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        codes, weight = super()._check_labels(X, y, sample_weight)
        return np.where(codes == ANOMALY, UNLABELLED, codes), weight

    def _check_fit(self, codes: np.ndarray) -> None:
        for kind, code in ((NORMAL, "+1"), (UNLABELLED, "0")):
            if not (codes == kind).any():
                raise InputError(
                    "NNPU learns from normals and unlabelled rows, and y has no "
                    f"{KIND_NAMES[kind]} rows ({count_labels(codes)}). Label some with {code}."
                )
        super()._check_fit(codes)

    def _bound_risk(self) -> Risk:
        return get_risk("nnpu", self.loss, prior=self.prior)
