"""Networks with the face of our other detectors: `DeepRAD`, `NNPU` and `DeepSAD`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED, count_labels
from riskad.core.losses import LOSSES, Loss
from riskad.core.risks import KIND_NAMES, RISKS, Risk, get_risk
from riskad.decisions.thresholds import zero_one_threshold
from riskad.deep.base import Callback, DeepDetector, Module
from riskad.deep.batches import KINDS, Draws, NetworkRows, Pools, hold_out
from riskad.deep.criteria import GUARDS, RiskCriterion, SADCriterion, SquareCriterion
from riskad.deep.nets import (
    Autoencoder,
    Decoder,
    Stack,
    StackedNet,
    build_stack,
    find_architecture,
)
from riskad.deep.ranks import world
from riskad.deep.trainer import (
    History,
    Validation,
    evaluate,
    pad_rows,
    train,
)
from riskad.detectors.base import check_kinds_present
from riskad.storage.fields import COUNT, SHARE, SIZE, Array, Fields, Number, State, Text, require

__all__ = ["NNPU", "DeepRAD", "DeepSAD"]

# Coordinates of Deep SAD's centre stay this far from 0, where a zero weight would reach them.
_CENTRE_MARGIN = 0.1
# Rows whose representations are summed at a time.
_CENTRE_ROWS = 2**14


class _RiskDetector(DeepDetector):
    """A network that descends a risk of the core."""

    guard: str
    beta: float
    gamma: float
    validation: float
    patience: int

    _state_fields: ClassVar[Fields] = {
        "loss": Text(choices=LOSSES),
        "prior": SHARE,
        "guard": Text(choices=GUARDS),
        "beta": Number(0),
        "gamma": Number(0),
        "validation": SHARE,
        "patience": SIZE,
    }

    @abstractmethod
    def _check_risk(self) -> Risk:
        """The bound risk; its parameters are checked."""

    @abstractmethod
    def _batch_sizes(self, risk: Risk) -> dict[int, int]:
        """Rows of each kind in a batch, 0 for those that the risk does not use."""

    def _place_threshold(self, scores: np.ndarray, codes: np.ndarray) -> None:
        self.offset_ = zero_one_threshold(self._check_risk(), scores, codes)

    def _check_member(self, codes: np.ndarray) -> None:
        risk = self._check_risk()
        self._settings(patience=self.patience)
        self._batch_sizes(risk)
        check_choice("guard", self.guard, GUARDS)
        if not isinstance(self.validation, Real) or not 0 <= float(self.validation) < 1:
            raise InputError(f"validation must be a number in [0, 1), got {self.validation!r}.")
        totals = np.array([(codes == code).sum() for code in (UNLABELLED, NORMAL, ANOMALY)])
        check_kinds_present(risk, count_labels(codes), totals, besides="")

    def _build(self, members: Sequence[Self]) -> Stack:
        seeds = [member._seed for member in members]
        centred = [member._check_risk().loss.bounded for member in members]
        return build_stack(self.module, self.shape_, seeds, self.hidden, centred)

    def _train(
        self,
        members: Sequence[Self],
        stack: Stack,
        data: NetworkRows,
        pools: Sequence[Pools],
        **settings: Any,
    ) -> History:
        risks = [member._check_risk() for member in members]
        sizes = self._batch_sizes(risks[0])
        how = self._settings(patience=self.patience, **settings)
        left, held = self._hold_out(members, pools, sizes)
        draws = Draws(left, sizes, [member._seed for member in members], data.device)
        criterion = RiskCriterion(risks, draws.kinds, self.guard, self.beta, self.gamma)
        criterion.to(data.device)
        held_out = Validation(held, risks, data.device) if held else None
        with self._progress(how.n_steps) as callback:
            first = self.n_steps_ if self._goes_on() else 0
            return train(stack, criterion, data, draws, how, held_out, callback, first)

    def _hold_out(
        self, members: Sequence[Self], pools: Sequence[Pools], sizes: dict[int, int]
    ) -> tuple[list[Pools], list[Pools]]:
        """Pools to draw from, and those held out, for all networks or for none."""
        used = [
            {kind: rows if sizes[kind] else rows[:0] for kind, rows in pool.items()}
            for pool in pools
        ]
        parts = [
            hold_out(pool, self.validation, member._seed)
            for pool, member in zip(used, members, strict=True)
        ]
        some = [any(len(rows) for rows in held.values()) for _, held in parts]
        if any(some) and not all(some):
            raise InputError(
                f"{some.count(False)} of {len(some)} networks to be trained together have a kind "
                "with a single row, of which none can be held out. Train them apart, or with "
                "validation=0."
            )
        return [left for left, _ in parts], [held for _, held in parts] if all(some) else []

    def _from_outputs(self, members: Sequence[Self], outputs: Tensor) -> Tensor:
        return outputs


class DeepRAD(_RiskDetector):
    r"""Semi-supervised anomaly detection by risk minimisation, with a neural network.

    Trains g to minimise an estimate of the classification risk from labelled normals (P), labelled
    anomalies (N) and a contaminated unlabelled pile (U). The default is the paper's non-negative
    estimator R1_s,

        (1 - a) pi_p R_p^+ + pi_n R_n^- + max(0, a [R_u^+ - pi_n R_n^+])

    where R_k^{+/-} is the mean of l(+/- g) over the rows of kind k and pi_n = 1 - pi_p. Every batch
    holds rows of all three kinds (`riskad.deep.batches`), and Adam descends its risk.

    Where `torch.distributed` is initialised, its processes share every batch and come out with the
    network of one process (`riskad.deep.ranks`). Rows of a memory-mapped file are read while
    training and scoring (`riskad.deep.disk`).

    Parameters
    ----------
    module : str, nn.Module or callable, default="mlp"
        A name of `riskad.deep.nets.ARCHITECTURES`; a module that maps a batch to one score for each
        row, of which a copy is trained; or a function from the shape of a row to such a module.
    loss : str or Loss, default="logistic"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    risk : str, default="nnrad"
        Risk estimator: a name of `riskad.core.risks.RISKS`.
    a : float in (0, 1), default=0.1
        Weight of the pile; in (-1, 1) for risk="pnu".
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows in the pile. 1 - prior is the anomaly rate.
    guard : {"clip", "kiryo"}, default="clip"
        How a guarded risk is descended where the bracket is negative. "clip" leaves the bracket
        out, as max(0, .) does; "kiryo" (Kiryo et al. 2017) leaves everything else out and descends
        minus `gamma` times the bracket where it is below -`beta`.
    beta, gamma : float, default=0.0 and 1.0
        Those of guard="kiryo".
    hidden : tuple of int, default=None
        Sizes of the linear layers, in place of those of the named architecture.
    learning_rate, weight_decay : float, default=1e-3 and 5e-4
        Those of Adam; the decay is an l2 penalty.
    n_steps : int, default=100
        Most steps. A network with few labels soon knows them by heart: more is not better.
    batch : tuple of three int, default=(64, 32, 128)
        Rows of P, N and U in a batch. Kinds that the risk does not use are not drawn.
    schedule : {"constant", "cosine"}, default="constant"
        Of the learning rate.
    validation : float in [0, 1), default=0.0
        Share of each kind of the training rows that is held out, to stop by. Where a kind has a
        single row nothing is: all steps are taken. With few labelled anomalies it costs more than
        it gives (`results/deep`); with hundreds try 0.2 and more steps.
    patience : int, default=10
        Checks of the risk on held-out rows without improvement after which training ends. The
        network that is kept is the best one.
    check_every : int, default=10
        Steps between two checks.
    scale : bool, default=True
        Whether columns, or channels of images, are standardised by the training rows. Without
        it, images of bytes are seen as brightness from 0 to 1, and all else as it is.
    warm_start : bool, default=False
        Whether fit goes on from the network and the standardisation of the fit before. Adam starts
        afresh.
    device : str, default="auto"
        A device of torch; "auto" is the GPU where there is one. A GPU trains in bfloat16.
    random_state : int, default=None
        Seed of weights, batches and held-out rows. None is 0: the same data gives the same model
        on the same device.
    verbose : bool, default=False
        Whether to show a progress bar.
    callback : callable, default=None
        Called at each check with a `riskad.deep.trainer.Progress`.

    Attributes
    ----------
    weights_ : dict of ndarray
        Parameters and running statistics of the network, with a leading axis of length 1 where
        the architecture is a named one.
    history_ : dict of ndarray
        Learning curves: "step", "risk" (mean over batches) and "validation" (on held-out rows).
    n_steps_, best_step_ : int
        Steps trained, and the step whose network was kept, over all fits of a warm start.
    offset_ : float
        Threshold on `score_samples`: where the risk, with the zero-one loss for its own, is lowest.
    shape_ : tuple
        Shape of a row.
    n_features_in_, feature_names_in_ :
        Columns seen in fit; for images the number of values in a row.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)          # nobody checked these
    >>> y[:40], y[-10:] = 1, -1                # 40 known normal rows, 10 known anomalies
    >>> model = DeepRAD(n_steps=100).fit(X, y)
    >>> model.predict([[0.0, 0.0], [4.0, 4.0]])
    array([ 1, -1])
    """

    _state_fields: ClassVar[Fields] = {"risk": Text(choices=RISKS), "a": Number(-1, 1)}

    def __init__(
        self,
        module: Module = "mlp",
        *,
        loss: str | Loss = "logistic",
        risk: str = "nnrad",
        a: float = 0.1,
        prior: float = 0.8,
        guard: str = "clip",
        beta: float = 0.0,
        gamma: float = 1.0,
        hidden: Sequence[int] | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-4,
        n_steps: int = 100,
        batch: tuple[int, int, int] = (64, 32, 128),
        schedule: str = "constant",
        validation: float = 0.0,
        patience: int = 10,
        check_every: int = 10,
        scale: bool = True,
        warm_start: bool = False,
        device: str = "auto",
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ):
        self.module = module
        self.loss = loss
        self.risk = risk
        self.a = a
        self.prior = prior
        self.guard = guard
        self.beta = beta
        self.gamma = gamma
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_steps = n_steps
        self.batch = batch
        self.schedule = schedule
        self.validation = validation
        self.patience = patience
        self.check_every = check_every
        self.scale = scale
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    _own = frozenset({"loss", "a", "prior", "random_state"})

    def fit(self, X: Any, y: Any = None) -> DeepRAD:
        """Fit to rows X with labels y.

        Parameters
        ----------
        X : array or frame of shape (n, columns), or array (n, h, w) or (n, c, h, w)
            Training rows: a table, or images. An `np.memmap`, as `np.load(path, mmap_mode="r")`
            gives, stays on disk.
        y : array of shape (n,)
            +1 normal, -1 anomaly, 0 unlabelled. `riskad.parse_labels` translates other spellings.
        """
        X, codes, _ = self._check_training(X, y)
        self._fit_alone(X, codes)
        return self

    def _check_risk(self) -> Risk:
        check_choice("risk", self.risk, RISKS)
        return get_risk(self.risk, self.loss, a=self.a, prior=self.prior)

    def _batch_sizes(self, risk: Risk) -> dict[int, int]:
        used = risk.kinds()
        return {kind: b if kind in used else 0 for kind, b in self._sizes(KINDS).items()}


class NNPU(_RiskDetector):
    r"""Non-negative PU learning (Kiryo et al. 2017): labelled normals and the pile.

        pi_p R_p^+ + max(0, R_u^- - pi_p R_p^-)

    with the sigmoid loss and, where the bracket is below -beta, a step along minus gamma times its
    gradient alone. It has no place for labelled anomalies: they go into the pile, as unlabelled
    rows.

    Parameters
    ----------
    module, hidden, learning_rate, weight_decay, n_steps, schedule, validation, patience, \
check_every, scale, warm_start, device, random_state, verbose, callback :
        As in `DeepRAD`.
    loss : str or Loss, default="sigmoid"
        Margin loss l: a name of `riskad.core.losses.LOSSES`.
    prior : float in (0, 1), default=0.8
        pi_p^e, the assumed share of normal rows in the pile.
    guard : {"kiryo", "clip"}, default="kiryo"
        How the risk is descended where the bracket is negative.
    beta, gamma : float, default=0.0 and 1.0
        Those of guard="kiryo".
    batch : tuple of two int, default=(64, 160)
        Rows of P and U in a batch.

    Attributes
    ----------
    weights_, history_, n_steps_, best_step_, offset_, shape_, n_features_in_, feature_names_in_ :
        As in `DeepRAD`.

    Examples
    --------
    >>> import numpy as np
    >>> import riskad
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(0, 1, (900, 2)), rng.normal(3, 1, (100, 2))])
    >>> y = np.zeros(1000, dtype=int)
    >>> y[:100] = 1
    >>> y = riskad.parse_labels(y, normal=1, unlabelled=0)  # elsewhere 1 may mean anomaly
    >>> normal, anomaly = NNPU(prior=0.9, n_steps=100).fit(X, y).score_samples([[0, 0], [4, 4]])
    >>> bool(normal > anomaly)
    True
    """

    def __init__(
        self,
        module: Module = "mlp",
        *,
        loss: str | Loss = "sigmoid",
        prior: float = 0.8,
        guard: str = "kiryo",
        beta: float = 0.0,
        gamma: float = 1.0,
        hidden: Sequence[int] | None = None,
        learning_rate: float = 1e-3,
        weight_decay: float = 5e-4,
        n_steps: int = 100,
        batch: tuple[int, int] = (64, 160),
        schedule: str = "constant",
        validation: float = 0.0,
        patience: int = 10,
        check_every: int = 10,
        scale: bool = True,
        warm_start: bool = False,
        device: str = "auto",
        random_state: int | None = None,
        verbose: bool = False,
        callback: Callback | None = None,
    ):
        self.module = module
        self.loss = loss
        self.prior = prior
        self.guard = guard
        self.beta = beta
        self.gamma = gamma
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_steps = n_steps
        self.batch = batch
        self.schedule = schedule
        self.validation = validation
        self.patience = patience
        self.check_every = check_every
        self.scale = scale
        self.warm_start = warm_start
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    _own = frozenset({"loss", "prior", "random_state"})

    def fit(self, X: Any, y: Any = None) -> NNPU:
        """Fit to rows X with labels y; rows labelled -1 count as unlabelled."""
        X, codes, _ = self._check_training(X, y)
        self._fit_alone(X, self._used(codes))
        return self

    def _used(self, codes: np.ndarray) -> np.ndarray:
        return np.where(codes == ANOMALY, UNLABELLED, codes)

    def _check_member(self, codes: np.ndarray) -> None:
        for kind, code in ((NORMAL, "+1"), (UNLABELLED, "0")):
            if not (codes == kind).any():
                raise InputError(
                    f"NNPU learns from normals and a pile, and y has no {KIND_NAMES[kind]} rows "
                    f"({count_labels(codes)}). Label some with {code}."
                )
        super()._check_member(codes)

    def _check_risk(self) -> Risk:
        return get_risk("nnpu", self.loss, prior=self.prior)

    def _batch_sizes(self, risk: Risk) -> dict[int, int]:
        return {ANOMALY: 0} | self._sizes((NORMAL, UNLABELLED))


class DeepSAD(DeepDetector):
    r"""Deep SAD (Ruff et al. 2020): distances from a centre, with all three kinds of label.

    An autoencoder is trained first on all rows. The mean of its representations phi(x) is the
    centre c, no coordinate of which stays nearer to 0 than 0.1. Then its encoder is trained to
    minimise, with d(x) = ||phi(x) - c||^2 and n rows in all,

        1/n [ sum_U d(x)  +  eta sum_P d(x)  +  eta sum_N 1 / (d(x) + eps) ]

    The pile and the normals are pulled to the centre, anomalies are pushed away. Scores are -d(x).
    With eta = 1 a labelled row counts as one row, so that a few of them say little beside a large
    pile; raise eta then.

    Parameters
    ----------
    module : str, default="mlp"
        A name of `riskad.deep.nets.ARCHITECTURES`; its last linear layer is the representation.
    eta : float > 0, default=1.0
        Weight of labelled rows.
    eps : float > 0, default=1e-6
        Keeps the push finite at the centre.
    prior : float in (0, 1), default=0.8
        Assumed share of normal rows in the pile. Only the threshold depends on it.
    pretrain_steps : int >= 0, default=500
        Steps of the autoencoder; 0 leaves the encoder as it was drawn.
    batch : tuple of three int, default=(32, 32, 128)
        Rows of P, N and U in a batch. Kinds that y does not have are not drawn.
    weight_decay : float, default=1e-6
        That of Adam.
    hidden, learning_rate, n_steps, schedule, check_every, scale, warm_start, device, \
random_state, verbose, callback :
        As in `DeepRAD`. A warm start goes on with the same centre.

    Attributes
    ----------
    centre_ : ndarray
        c.
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
        self._sizes(KINDS)

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
        counts = torch.tensor([[len(pool[kind]) for kind in KINDS] for pool in pools])
        present = counts[0].bool().tolist()
        if not (counts.bool() == counts[0].bool()).all():
            raise InputError(
                "networks that are trained together must have the same kinds of rows: all of them "
                "labelled normals, or none, and likewise anomalies and unlabelled rows."
            )
        sizes = {
            kind: b if there else 0
            for (kind, b), there in zip(self._sizes(KINDS).items(), present, strict=True)
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
        """Train encoders within autoencoders, on rows of all kinds alike; errors (checks, K)."""
        if self.pretrain_steps == 0:
            return np.empty((0, len(members)))
        architecture = find_architecture(self.module, self.hidden)
        # Other seeds than the encoders', whose weights would otherwise be repeated.
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
        """Where the zero-one risk is lowest, by the risk for the kinds of label that there are.

        Where there is a single kind, so that no risk exists, its (1 - prior)-quantile.
        """
        present = set(codes.tolist())
        for name in ("rad", "pn", "nu", "pu"):
            risk = get_risk(name, prior=self.prior)
            if risk.kinds() <= present:
                return zero_one_threshold(risk, scores, codes)
        return float(np.quantile(scores, 1 - self.prior))


def _all_rows(pool: Pools) -> Tensor:
    return torch.cat([pool[kind] for kind in KINDS]).sort().values


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
