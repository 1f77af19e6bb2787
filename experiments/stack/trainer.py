"""K detectors over networks trained at once, on one device and over one array of rows.

What is trained is what `riskad.deep` trains: its networks, batches, criteria and settings, stacked.
Left out is what the paper's experiments do not use: standardisation, early stopping, warm starts
and thresholds.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from experiments.stack.layers import stack_networks
from riskad import NNPU, DeepSAD
from riskad.core.checks import InputError
from riskad.core.labels import ANOMALY, UNLABELLED, check_codes
from riskad.core.risks import Risk, get_risk
from riskad.deep.batches import BATCH_ORDER, BatchSampler, read_rows
from riskad.deep.criteria import Losses, RiskCriterion, SADCriterion, mean_square
from riskad.deep.deep_sad import centre_of
from riskad.deep.nets import build_decoder, build_network, find_architecture
from riskad.deep.trainer import CHECK_EVERY, Settings, choose_device

VARYING = ("loss", "a", "prior", "random_state")  # parameters that may differ between detectors
DRAWN_STEPS = 100  # whose rows are drawn at a time
# Rows of all networks together that are scored at a time, and values in them, by device.
ROWS_AT_ONCE = {"cpu": 2**12, "cuda": 2**16}
VALUES_AT_ONCE = {"cpu": 2**20, "cuda": 2**28}

Criterion = Callable[[Tensor], Losses]


class StackedTrainer:
    """Train the networks of K detectors side by side, each on its own rows and labels.

    They are one stack, which on a GPU takes little longer to train than one network. Each network
    is the one that the detector's own `fit` trains, up to rounding.

    Parameters
    ----------
    detectors : sequence of DeepRAD, of NNPU or of DeepSAD
        Unfitted detectors, of which the parameters are read. They may differ in loss, a, prior and
        random_state; see `key`.

    Attributes
    ----------
    n_iter_ : int array of shape (K,)
        The steps that each network was trained for: all of them.
    risk_ : array of shape (checks, K)
        Learning curves: means over the batches since the last check.
    """

    def __init__(self, detectors: Sequence[Any]):
        keys = dict.fromkeys(map(self.key, detectors))
        if len(keys) > 1:
            raise InputError(f"detectors may differ in {', '.join(VARYING)} only, got {[*keys]}.")
        self.detectors = list(detectors)

    @staticmethod
    def key(detector: Any) -> Hashable:
        """What detectors must share to be trained together: compare with ==."""
        parameters = detector.get_params(deep=False)
        for name in ("scale", "validation_fraction"):
            if parameters.get(name):
                raise InputError(f"{name}={parameters[name]!r} is for a detector's own fit.")
        shared = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in sorted(parameters.items())
            if name not in VARYING
        }
        return (type(detector).__name__, *shared.items())

    def fit(
        self,
        X: np.ndarray,
        rows: Sequence[np.ndarray],
        labels: Sequence[Any],
        callback: Callable[[int], None] | None = None,
    ) -> StackedTrainer:
        """Train each network on its rows of X.

        Parameters
        ----------
        X : array of shape (n, columns), (n, h, w) or (n, c, h, w)
            The rows of all networks, float32 or bytes; copied to the device once.
        rows : sequence of K integer arrays
            Which rows of X each network is trained on.
        labels : sequence of K arrays
            +1 normal, -1 anomaly, 0 unlabelled, for these rows.
        callback : callable, optional
            Called with the number of steps at each check, every ten steps.
        """
        first = self.detectors[0]
        self._data = self._on_device(X)
        self._pools = [
            _pools_of(np.asarray(part), self._codes(given))
            for part, given in zip(rows, labels, strict=True)
        ]
        shape, scores = self._data.shape[1:], not isinstance(first, DeepSAD)
        networks: list[Any] = [
            build_network(
                detector.module,
                shape,
                _seed(detector),
                scores=scores,
                centred=scores and _risk(detector).loss.bounded,
            )
            for detector in self.detectors
        ]
        self._stack = stack_networks(networks).to(self._data.device)
        settings = first._settings()
        if not scores:
            self._prepare_sad(settings)
        samplers, criterion = self._samplers_and_criterion()
        self.risk_ = self._train(self._stack, criterion, samplers, settings, callback)
        self.n_iter_ = np.full(len(self.detectors), settings.max_iter)
        return self

    def score_samples(self, X: np.ndarray) -> np.ndarray:
        """Scores (K, n) of rows X by each network, high for normal rows."""
        data = self._on_device(X)
        parts = [slice(start, start + self._at_once) for start in range(0, len(X), self._at_once)]
        scores = [self._scores(self._evaluate(read_rows(data, part)[None])) for part in parts]
        return torch.cat(scores, dim=1).cpu().numpy().astype(np.float64)

    # --- what is trained ------------------------------------------------------------------

    def _codes(self, labels: Any) -> np.ndarray:
        codes = np.asarray(check_codes(labels))
        if isinstance(self.detectors[0], NNPU):
            return np.where(codes == ANOMALY, UNLABELLED, codes)
        return codes

    def _samplers_and_criterion(self) -> tuple[list[BatchSampler], Criterion]:
        """Each network's batches, and the losses of all."""
        samplers, criteria = [], []
        for k, (detector, pools) in enumerate(zip(self.detectors, self._pools, strict=True)):
            counts = {kind: len(pools[kind]) for kind in BATCH_ORDER}
            sizes = _batch_sizes(detector, counts)
            sampler = BatchSampler(pools, sizes, _seed(detector), self._data.device)
            samplers.append(sampler)
            if isinstance(detector, DeepSAD):
                how = {"eta": detector.eta, "eps": detector.eps}
                criteria.append(SADCriterion(self._centres[k], sampler.kinds, counts, **how))
            else:
                criteria.append(RiskCriterion(_risk(detector), sampler.kinds, detector._guard))
            if not torch.equal(sampler.kinds, samplers[0].kinds):
                raise InputError("networks that are trained together need the same kinds of rows.")
        return samplers, stack_criteria(criteria)

    def _prepare_sad(self, settings: Settings) -> None:
        """Train encoders within autoencoders, and find the centres of their representations."""
        first, device = self.detectors[0], self._data.device
        everything = [torch.cat([*pools.values()]).sort().values for pools in self._pools]
        if first.pretrain_iter:
            architecture = find_architecture(first.module)
            # Seeds differ from the encoders', as in DeepSAD.
            seeds = [_seed(detector) + 1 for detector in self.detectors]
            shape, batch = self._data.shape[1:], {UNLABELLED: sum(first.batch_size)}
            decoders = stack_networks([build_decoder(architecture, shape, s) for s in seeds])
            samplers = [
                BatchSampler({UNLABELLED: rows}, batch, seed, device)
                for rows, seed in zip(everything, seeds, strict=True)
            ]
            both = _Autoencoders(self._stack, decoders).to(device)
            settings = replace(settings, max_iter=int(first.pretrain_iter))
            self._train(both, mean_square, samplers, settings)
        outputs = self._evaluate_own([rows.numpy() for rows in everything])
        self._centres = torch.stack(
            [centre_of(own[: len(rows)]) for own, rows in zip(outputs, everything, strict=True)]
        )

    def _train(
        self,
        stack: nn.Module,
        criterion: Criterion,
        samplers: Sequence[BatchSampler],
        settings: Settings,
        callback: Callable[[int], None] | None = None,
    ) -> np.ndarray:
        """Train all networks of a stack; returns learning curves (checks, K)."""
        device = self._data.device
        on_gpu = device.type == "cuda"
        half = on_gpu and torch.cuda.get_device_capability(device) >= (8, 0)
        decay = settings.weight_decay
        optimiser = torch.optim.Adam(stack.parameters(), weight_decay=decay, fused=on_gpu)
        values, curves = [], []
        stack.train()
        # Unlike a detector's own fit, a stack may use algorithms that differ in the last digits.
        with torch.backends.cudnn.flags(enabled=True, deterministic=False, benchmark=False):
            for step in range(settings.max_iter):
                if step % DRAWN_STEPS == 0:
                    steps = torch.arange(step, step + DRAWN_STEPS, device=device)[:, None]
                    drawn = torch.stack([sampler(steps) for sampler in samplers], dim=1)
                optimiser.param_groups[0]["lr"] = settings.learning_rate
                x = read_rows(self._data, drawn[step % DRAWN_STEPS])
                with torch.autocast("cuda", torch.bfloat16, enabled=half):
                    outputs = stack(x)
                losses = criterion(outputs)
                optimiser.zero_grad(set_to_none=True)
                losses.objective.sum().backward()
                optimiser.step()
                values.append(losses.value)
                if (step + 1) % CHECK_EVERY == 0 or step + 1 == settings.max_iter:
                    curves.append(torch.stack(values).mean(0))
                    values.clear()
                    if callback is not None:
                        callback(step + 1)
        return torch.stack(curves).cpu().numpy()

    # --- what comes out -------------------------------------------------------------------

    def _on_device(self, X: np.ndarray) -> Tensor:
        X = np.asarray(X) if np.asarray(X).dtype == np.uint8 else np.asarray(X, dtype=np.float32)
        shape = (len(X), 1, *X.shape[1:]) if X.ndim == 3 else X.shape
        rows = torch.from_numpy(np.require(X, requirements=["C", "W"]).reshape(len(X), -1))
        return rows.to(choose_device(self.detectors[0].device)).view(shape)

    @property
    def _at_once(self) -> int:
        kind = self._data.device.type
        values = VALUES_AT_ONCE[kind] // math.prod(self._data.shape[1:])
        return max(1, min(ROWS_AT_ONCE[kind], values) // len(self.detectors))

    @torch.no_grad()
    def _evaluate(self, x: Tensor) -> Tensor:
        """Outputs (K, B) or (K, B, rep) in full precision."""
        outputs: Tensor = self._stack.eval()(x)
        return outputs

    def _evaluate_own(self, rows: Sequence[np.ndarray]) -> Tensor:
        """Outputs for each network's own rows, (K, most rows, ...); shorter ones are padded."""
        longest = max(len(part) for part in rows)
        padded = np.stack([np.pad(part, (0, longest - len(part)), mode="edge") for part in rows])
        index = torch.from_numpy(padded).to(self._data.device)
        parts = index.split(self._at_once, dim=1)
        return torch.cat([self._evaluate(read_rows(self._data, part)) for part in parts], dim=1)

    def _scores(self, outputs: Tensor) -> Tensor:
        if outputs.ndim == 2:
            return outputs
        return -(outputs - self._centres[:, None]).square().sum(2)


class _Autoencoders(nn.Module):
    """Encoders and decoders; gives reconstructions minus inputs, (K, B, values of a row)."""

    def __init__(self, encoders: nn.Module, decoders: nn.Module):
        super().__init__()
        self.encoders, self.decoders = encoders, decoders

    def forward(self, x: Tensor) -> Tensor:
        """Errors of each value."""
        errors: Tensor = self.decoders(self.encoders(x)).flatten(2) - x.flatten(2)
        return errors


def stack_criteria(criteria: Sequence[RiskCriterion | SADCriterion]) -> Criterion:
    """One criterion for K networks, given that of each; equal losses are computed at once."""
    losses = [getattr(criterion, "loss", None) for criterion in criteria]
    groups = []
    for loss in dict.fromkeys(losses):
        members = [k for k, each in enumerate(losses) if each is loss]
        group = copy.deepcopy(criteria[members[0]])
        for name in dict(group.named_buffers()):
            stacked = torch.stack([getattr(criteria[k], name) for k in members])
            setattr(group, name, stacked)
        groups.append((torch.tensor(members, device=stacked.device), group))
    order = torch.cat([members for members, _ in groups]).argsort()

    def losses_of_all(outputs: Tensor) -> Losses:
        parts = [group(outputs[members]) for members, group in groups]
        objective = torch.cat([part.objective for part in parts])[order]
        return Losses(objective, torch.cat([part.value for part in parts])[order])

    return losses_of_all if len(groups) > 1 else groups[0][1]


def _pools_of(rows: np.ndarray, codes: np.ndarray) -> dict[int, Tensor]:
    return {kind: torch.from_numpy(rows[codes == kind].astype(np.int64)) for kind in BATCH_ORDER}


def _seed(detector: Any) -> int:
    return int(detector.random_state or 0)


def _risk(detector: Any) -> Risk:
    if isinstance(detector, NNPU):
        return get_risk("nnpu", detector.loss, prior=detector.prior)
    return get_risk(detector.risk, detector.loss, a=detector.a, prior=detector.prior)


def _batch_sizes(detector: Any, counts: dict[int, int]) -> dict[int, int]:
    """Rows of each kind in a batch; 0 for kinds that are not used, or for DeepSAD not there."""
    if isinstance(detector, NNPU):
        b_p, b_u = detector.batch_size
        return dict(zip(BATCH_ORDER, (b_p, 0, b_u), strict=True))
    used = (
        {kind for kind, count in counts.items() if count}
        if isinstance(detector, DeepSAD)
        else _risk(detector).kinds()
    )
    sizes = zip(BATCH_ORDER, detector.batch_size, strict=True)
    return {kind: size if kind in used else 0 for kind, size in sizes}
