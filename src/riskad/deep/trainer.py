r"""The loop that trains a network.

Early stopping uses rows held out of the *training* rows. Every ten steps the network is measured on
them; its best state is kept, and ten checks without improvement end training.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from riskad.core.checks import InputError, check_in_interval
from riskad.core.risks import Risk
from riskad.deep.batches import BATCH_ORDER, BatchSampler, Pools, read_rows
from riskad.deep.criteria import Losses, RiskCriterion
from riskad.detectors.base import check_whole

CHECK_EVERY, PATIENCE = 10, 10  # steps between checks, and checks without improvement
# Rows that are evaluated at a time, and values in them: what fits in memory, by device.
_ROWS_AT_ONCE = {"cpu": 2**12, "cuda": 2**16}
_VALUES_AT_ONCE = {"cpu": 2**20, "cuda": 2**28}


@dataclass(frozen=True)
class Settings:
    """How to train: parameters of `riskad.DeepRAD`, checked."""

    max_iter: int = 500
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        check_in_interval("learning_rate", self.learning_rate, 0, math.inf)
        check_whole("max_iter", self.max_iter)


def choose_device(device: str | torch.device) -> torch.device:
    """The device with this name; "auto" is the GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        names = "'auto', 'cpu', 'cuda' or another of torch's names"
        raise InputError(f"device must be {names}, got {device!r}.") from error


class Validation:
    """The risk on held-out rows, given for each kind."""

    def __init__(self, held: Pools, risk: Risk, device: torch.device):
        self.rows = torch.cat([held[kind] for kind in BATCH_ORDER]).to(device)
        counts = torch.tensor([len(held[kind]) for kind in BATCH_ORDER])
        kinds = torch.tensor(BATCH_ORDER).repeat_interleave(counts).to(device)
        self.criterion = RiskCriterion(risk, kinds)

    def __call__(self, network: nn.Module, data: Tensor) -> float:
        """The current risk of the network."""
        return float(self.criterion(evaluate(network, data, self.rows)).value)


@torch.no_grad()
def evaluate(network: nn.Module, data: Tensor, rows: Tensor | None = None) -> Tensor:
    """Outputs (n,) or (n, rep) for rows of the data, or for all, in full precision."""
    kind = data.device.type if data.device.type in _ROWS_AT_ONCE else "cpu"
    at_once = min(_ROWS_AT_ONCE[kind], max(1, _VALUES_AT_ONCE[kind] // data[0].numel()))
    was_training, outputs = network.training, []
    network.eval()
    for start in range(0, len(data) if rows is None else len(rows), at_once):
        some = slice(start, start + at_once)
        outputs.append(network(read_rows(data, some if rows is None else rows[some])))
    network.train(was_training)
    return torch.cat(outputs)


def train(
    network: nn.Module,
    criterion: Callable[[Tensor], Losses],
    data: Tensor,
    sampler: BatchSampler,
    settings: Settings,
    validation: Validation | None = None,
) -> tuple[dict[str, np.ndarray], int]:
    """Train a network, which is on the device of the data, on rows that the sampler draws.

    With `validation` it is left in its best state; otherwise all steps are taken. Returns the
    learning curves "step", "risk" (mean over the batches since the last check) and "validation",
    and the step whose parameters were kept, 0 if no check gave a number.
    """
    on_gpu = data.device.type == "cuda"
    # Products are in half precision where the GPU has hardware for it; parameters stay in single.
    half = on_gpu and torch.cuda.get_device_capability(data.device) >= (8, 0)
    rate, decay = settings.learning_rate, settings.weight_decay
    optimiser = torch.optim.Adam(network.parameters(), rate, weight_decay=decay, fused=on_gpu)
    curves: dict[str, list[float]] = {"step": [], "risk": [], "validation": []}
    best, best_step, step, values, best_state = math.inf, 0, 0, [], network.state_dict()
    network.train()
    # Algorithms that give the same numbers every time. (Without `enabled`, cuDNN would be off.)
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False):
        while step < settings.max_iter:
            x = read_rows(data, sampler(step))
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                outputs = network(x)
            losses = criterion(outputs)
            optimiser.zero_grad(set_to_none=True)
            losses.objective.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            values.append(losses.value)
            step += 1
            if step % CHECK_EVERY != 0 and step != settings.max_iter:
                continue
            curves["step"].append(step)
            # Losses leave the device only here: at each step the GPU would have to wait for it.
            curves["risk"].append(float(torch.stack(values).mean()))
            values.clear()
            if validation is None:
                best_step = step
            else:
                held_out = validation(network, data)
                curves["validation"].append(held_out)
                if held_out < best:  # never if it is NaN
                    best, best_step, best_state = held_out, step, deepcopy(network.state_dict())
            # Checks since the best one; without validation the last step is always the best.
            if sum(each > best_step for each in curves["step"]) >= PATIENCE:
                break
    if validation is not None:
        network.load_state_dict(best_state)
    network.eval()
    return {name: np.array(curve) for name, curve in curves.items() if curve}, best_step
