r"""One loop that trains the K networks of a stack side by side.

A step draws rows, gathers them, runs the stack, computes K losses by the criterion and lets Adam
descend their sum. Data and pools stay on the device, and no step waits for it; rows on disk are
read some steps ahead. K = 1 is the ordinary case.

Early stopping uses rows held out of the *training* rows. Every `check_every` steps each network is
measured on its own held-out rows; its best state is kept, and a network that has not improved for
`patience` checks has stopped. The others continue, and the loop ends with the last. A stopped
network is still computed, but its results are not kept: training together and training alone give
the same networks.

Several processes do the same, each with its part of every batch (`riskad.deep.ranks`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from riskad.core.checks import InputError, check_choice, check_in_interval
from riskad.core.risks import Risk
from riskad.deep.batches import BATCH_ORDER, Draws, NetworkRows, Pools
from riskad.deep.criteria import PADDING, Losses, RiskCriterion
from riskad.deep.nets import Stack
from riskad.deep.ranks import ALONE, Ranks, world

__all__ = [
    "SCHEDULES",
    "History",
    "Progress",
    "Settings",
    "Validation",
    "choose_device",
    "evaluate",
    "pad_rows",
    "train",
]

SCHEDULES = ("constant", "cosine")
# Rows of all networks together that are evaluated at a time, and values in them: what fits in
# memory, by device.
_ROWS_AT_ONCE = {"cpu": 2**12, "cuda": 2**16}
_VALUES_AT_ONCE = {"cpu": 2**20, "cuda": 2**28}

Criterion = Callable[[Tensor], Losses]


@dataclass(frozen=True)
class Settings:
    """How to train.

    Parameters
    ----------
    n_steps : int, default=500
        Maximum number of steps.
    learning_rate, weight_decay : float, default=1e-3 and 5e-4
        Parameters of Adam; the decay is an l2 penalty in the gradient.
    schedule : {"constant", "cosine"}, default="constant"
        "cosine" multiplies the learning rate by (1 + cos(pi t / n_steps)) / 2 in step t.
    check_every : int, default=10
        Steps between two points of the learning curves, and two checks of held-out rows.
    patience : int, default=10
        A network stops after this many checks without improvement.
    deterministic : bool, default=True
        Whether a GPU may only use algorithms that give the same numbers every time.
    """

    n_steps: int = 500
    learning_rate: float = 1e-3
    weight_decay: float = 5e-4
    schedule: str = "constant"
    check_every: int = 10
    patience: int = 10
    deterministic: bool = True

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_in_interval("learning_rate", self.learning_rate, 0, math.inf)
        check_in_interval("weight_decay", self.weight_decay, 0, math.inf, closed=True)
        for name in ("n_steps", "check_every", "patience"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise InputError(f"{name} must be a whole number >= 1, got {value!r}.")

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * step / self.n_steps)) / 2


class Progress(NamedTuple):
    """Argument of a callback at each check; tensors of shape (K,), on the device."""

    step: int
    n_steps: int
    risk: Tensor
    validation: Tensor | None


@dataclass(frozen=True)
class History:
    """Learning curves: a row for each check, a column for each network.

    `risk` is the mean over the batches since the last check, `validation` the risk on held-out
    rows; both are NaN after a network has stopped. `n_steps` is how far each network was trained
    and `best_step` the step whose parameters were kept. `pretraining` are the errors of
    autoencoders that were trained before, if any.
    """

    step: np.ndarray
    risk: np.ndarray
    validation: np.ndarray | None
    n_steps: np.ndarray
    best_step: np.ndarray
    pretraining: np.ndarray | None = None


def choose_device(device: str | torch.device) -> torch.device:
    """The device with this name; "auto" is the GPU if there is one.

    Returns
    -------
    torch.device
        The device; whether this machine has it is checked when it is used.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    refusal = f"device must be 'auto', 'cpu', 'cuda' or another of torch's names, got {device!r}."
    if not isinstance(device, str | int | torch.device):
        raise InputError(refusal)
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise InputError(refusal) from error


def gpu_name() -> str | None:
    """The name of this machine's GPU; None if torch finds none.

    Returns
    -------
    str or None
        For example "NVIDIA H200".
    """
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


class Validation:
    """Each network's risk on its own held-out rows.

    Parameters
    ----------
    held : sequence of mappings
        For each network and kind the rows held out.
    risks : sequence of Risk
        One for each network.
    """

    def __init__(self, held: Sequence[Pools], risks: Sequence[Risk], device: torch.device):
        rows = [torch.cat([pool[kind] for kind in BATCH_ORDER]).cpu() for pool in held]
        kinds = [
            torch.cat([torch.full((len(pool[kind]),), kind) for kind in BATCH_ORDER])
            for pool in held
        ]
        self.rows = pad_rows(rows).to(device)
        self.criterion = RiskCriterion(risks, _padded(kinds, [PADDING] * len(held))).to(device)

    def __call__(self, stack: Stack, data: NetworkRows) -> Tensor:
        """Current risks (K,) of the networks."""
        with torch.no_grad():
            return self.criterion(evaluate(stack, data, self.rows, world())).value


def pad_rows(rows: Sequence[Tensor]) -> Tensor:
    """Rows of K networks as (K, n): padding columns repeat the network's first row."""
    return _padded(rows, [int(each[0]) for each in rows])


def _padded(each: Sequence[Tensor], fill: Sequence[int]) -> Tensor:
    longest = max(len(values) for values in each)
    padded = [
        nn.functional.pad(values, (0, longest - len(values)), value=value)
        for values, value in zip(each, fill, strict=True)
    ]
    return torch.stack(padded)


@torch.no_grad()
def evaluate(
    stack: Stack,
    data: NetworkRows,
    rows: Tensor | None = None,
    ranks: Ranks = ALONE,
    then: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Outputs (K, n) or (K, n, rep) in evaluation mode and full precision.

    `rows` (K, n) are the rows of the data that each network sees; without it all see all of them.
    `ranks` share the work, and each gets all outputs. `then` computes scores from outputs of some
    rows, so that representations of all rows need never be in memory at once.
    """
    K, n = stack.n_networks, len(data) if rows is None else rows.shape[1]
    at_once = max(1, _rows_at_once(data) // K)
    ranks = ranks if n >= ranks.size else ALONE
    mine = ranks.part(n)
    was_training = stack.training
    stack.eval()
    outputs = []
    for start in range(mine.start, mine.stop, at_once):
        stop = min(start + at_once, mine.stop)
        x = data.shared(start, stop) if rows is None else data.own(rows[:, start:stop])
        outputs.append(stack(x) if then is None else then(stack(x)))
    stack.train(was_training)
    return ranks.join(torch.cat(outputs, dim=1), mine, n)


def _rows_at_once(data: NetworkRows) -> int:
    kind = data.device.type if data.device.type in _ROWS_AT_ONCE else "cpu"
    return min(_ROWS_AT_ONCE[kind], _VALUES_AT_ONCE[kind] // math.prod(data.shape))


def train(
    stack: Stack,
    criterion: Criterion,
    data: NetworkRows,
    draws: Draws,
    settings: Settings,
    validation: Validation | None = None,
    callback: Callable[[Progress], None] | None = None,
    first_step: int = 0,
) -> History:
    """Train all networks of the stack; with `validation` each is left in its best state.

    Every process of an initialised process group must call it, with the same arguments.

    Parameters
    ----------
    stack : Stack
        K networks, on the device of the data.
    criterion : callable
        Maps outputs to `Losses`.
    data : NetworkRows
        Rows that `draws` and `validation` index.
    draws : Draws
        Which rows each step sees.
    settings : Settings
        Steps, learning rate, patience.
    validation : Validation, optional
        Held-out rows. Without them all steps are taken and the last parameters are kept.
    callback : callable, optional
        Called with a `Progress` at each check. Reading its tensors waits for the device.
    first_step : int, default=0
        First step of the draws, for a stack that was trained before.

    Returns
    -------
    History
        Learning curves, and the step whose network was kept.

    Examples
    --------
    Two networks with different losses, over the same rows:

    >>> from riskad.deep.batches import NetworkRows, pools_of
    >>> from riskad.deep.nets import build_stack
    >>> from riskad.core.risks import get_risk
    >>> data, y = NetworkRows(torch.randn(90, 4)), torch.tensor([1, -1, 0] * 30)
    >>> risks = [get_risk("nnrad", "logistic"), get_risk("rad", "squared", a=0.5)]
    >>> stack = build_stack("mlp", shape=(4,), seeds=[0, 1])
    >>> draws = Draws([pools_of(y)] * 2, {1: 8, -1: 8, 0: 16}, seeds=[0, 1])
    >>> criterion = RiskCriterion(risks, draws.kinds)
    >>> history = train(stack, criterion, data, draws, Settings(n_steps=20))
    >>> history.risk.shape, evaluate(stack, data).shape
    ((2, 2), torch.Size([2, 90]))
    """
    ranks, B = world(), len(draws.kinds)
    ranks.begin(stack, B)
    curves = _Curves(stack, validation, settings)
    optimiser = _adam(stack, settings, data.device)

    def draw(step: int) -> Tensor:
        return draws(first_step + step)[:, ranks.columns]

    stack.train()
    with _algorithms(data.device, settings.deterministic):
        for step, x in enumerate(data.batches(draw, settings.n_steps)):
            _set_rate(optimiser, settings.rate(step))
            losses = criterion(ranks.join(_outputs(stack, x), ranks.columns, B))
            _descend(stack, optimiser, losses, ranks)
            curves.add(losses.value)
            if (step + 1) % settings.check_every == 0 or step + 1 == settings.n_steps:
                progress = curves.check(step + 1, data)
                if callback is not None:
                    callback(progress)
                if curves.all_stopped():
                    break
    return curves.finish()


def _outputs(stack: Stack, x: Tensor) -> Tensor:
    with _autocast(x.device):
        outputs: Tensor = stack(x)
    return outputs


def _descend(stack: Stack, optimiser: torch.optim.Optimizer, losses: Losses, ranks: Ranks) -> None:
    optimiser.zero_grad(set_to_none=True)
    losses.objective.sum().backward()  # type: ignore[no-untyped-call]
    ranks.sum_gradients(stack.parameters())
    optimiser.step()


def _adam(stack: Stack, settings: Settings, device: torch.device) -> torch.optim.Adam:
    return torch.optim.Adam(
        stack.parameters(),
        lr=settings.learning_rate,
        weight_decay=settings.weight_decay,
        fused=device.type == "cuda",
    )


def _set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def _autocast(device: torch.device) -> AbstractContextManager[None]:
    """Products in bfloat16 on a GPU that has hardware for it; parameters stay in float32."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16)


@contextmanager
def _algorithms(device: torch.device, deterministic: bool) -> Iterator[None]:
    if device.type != "cuda":
        yield
        return
    # flags() disables cuDNN by default.
    with torch.backends.cudnn.flags(enabled=True, deterministic=deterministic, benchmark=False):
        yield


class _Curves:
    """Learning curves, and for each network its best parameters and whether it has stopped.

    Sums and comparisons stay on the device; only `all_stopped` waits for it, once a check.
    """

    def __init__(self, stack: Stack, validation: Validation | None, settings: Settings):
        K, device = stack.n_networks, next(stack.parameters()).device
        self._stack, self._validation, self._patience = stack, validation, settings.patience
        self._n_steps = settings.n_steps
        self._sum, self._added = torch.zeros(K, device=device), 0
        self._active = torch.ones(K, dtype=torch.bool, device=device)
        self._best = torch.full((K,), math.inf, device=device)
        self._misses = torch.zeros(K, dtype=torch.int64, device=device)
        self._trained = torch.zeros(K, dtype=torch.int64, device=device)
        self._best_step = torch.zeros(K, dtype=torch.int64, device=device)
        self._kept = _copied(stack) if validation is not None else {}
        self._rows: list[tuple[int, Tensor, Tensor]] = []

    def add(self, value: Tensor) -> None:
        """Add the values of a batch."""
        self._sum += value
        self._added += 1

    def check(self, step: int, data: NetworkRows) -> Progress:
        """End a series of steps: measure, keep the best state, and see which networks stopped."""
        nan = torch.full_like(self._sum, math.nan)
        risk = torch.where(self._active, self._sum / self._added, nan)
        self._sum, self._added = torch.zeros_like(self._sum), 0
        self._trained = torch.where(self._active, step, self._trained)
        held_out = None
        if self._validation is None:
            self._best_step = self._trained
        else:
            held_out = torch.where(self._active, self._validation(self._stack, data), nan)
            self._keep(step, held_out)
        self._rows.append((step, risk, nan if held_out is None else held_out))
        return Progress(step, self._n_steps, risk, held_out)

    def _keep(self, step: int, held_out: Tensor) -> None:
        better = held_out < self._best  # never where NaN: stopped, or broken
        self._best = torch.where(better, held_out, self._best)
        self._best_step = torch.where(better, step, self._best_step)
        self._misses = torch.where(better, 0, self._misses + 1)
        self._active = self._active & (self._misses < self._patience)
        for name, now in self._stack.state_dict().items():
            self._kept[name] = torch.where(_over(better, now), now, self._kept[name])

    def all_stopped(self) -> bool:
        """Whether no network is left to train."""
        return self._validation is not None and not bool(self._active.any())

    def finish(self) -> History:
        """Leave each network in its best state, and return the curves."""
        if self._validation is not None:
            self._stack.load_state_dict(self._kept)
        self._stack.eval()
        held_out = torch.stack([row[2] for row in self._rows]).cpu().numpy()
        return History(
            step=np.array([row[0] for row in self._rows]),
            risk=torch.stack([row[1] for row in self._rows]).cpu().numpy(),
            validation=None if self._validation is None else held_out,
            n_steps=self._trained.cpu().numpy(),
            best_step=self._best_step.cpu().numpy(),
        )


def _copied(stack: Stack) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in stack.state_dict().items()}


def _over(networks: Tensor, value: Tensor) -> Tensor:
    """A mask (K,) shaped to select along the first axis; for one network, to select all of it."""
    if len(networks) == 1:
        return networks.reshape(())
    return networks.reshape(-1, *[1] * (value.ndim - 1))
