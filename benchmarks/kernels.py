"""What our GPU kernels gain over eager torch and torch.compile, measured in one run.

    python benchmarks/kernels.py --output results/scale/kernels.json     # on an NVIDIA GPU

Shallow: value and gradient and column sums of a risk over float32 rows on the device,
then a whole fit, each through `LinearModel` as `ShallowRAD` uses it. Deep: one training step of a
stack of networks by `riskad.deep.trainer.train`, draws and optimiser included. Three ways:

- eager: what happens where Triton is not installed;
- compiled: the same formulas in plain torch behind torch.compile. Of two spellings, matrix products
  and element-wise sums (shallow), or what follows a convolution and the whole stack (deep), the
  faster counts;
- kernels: `riskad.rows.gpu_sums` and `riskad.deep.kernels`.

A time is the median over repetitions after a warm-up in which everything is compiled. The seconds
of the first call, compilation included, stand beside it: a user pays them once a process.
`gain` is compiled / kernels; below 1.3 a kernel is not worth its code.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from riskad import ShallowRAD
from riskad.core.losses import LOSSES
from riskad.core.objective import Objective, RowSum
from riskad.core.risks import get_risk
from riskad.deep import layers, nets
from riskad.deep.batches import Draws, NetworkRows, pools_of
from riskad.deep.criteria import RiskCriterion
from riskad.deep.trainer import Settings, train
from riskad.rows import linear
from riskad.rows.memory import RowBlocks

SHAPES = ((2_000_000, 50), (200_000, 500))
STACKS = (("lenet-mnist", (1, 28, 28), 80), ("lenet-cifar10", (3, 32, 32), 80))
SIZES = {1: 64, -1: 32, 0: 128}
NEEDED = 1.3

Times = dict[str, float]


def wait() -> None:
    """Until the device has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(work: Callable[[], object], repeats: int) -> Times:
    """Seconds of the first call, then the median milliseconds of so many."""
    start = time.perf_counter()
    work()
    wait()
    first = time.perf_counter() - start
    for _ in range(3):
        work()
    seconds = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - start)
    return {"first_s": round(first, 3), "ms": round(1e3 * median(seconds), 4)}


# --- shallow: the sums of a fit ----------------------------------------------------------------


class Compiled:
    """The sums of `riskad.rows.gpu_sums` in plain torch, compiled, under the same names."""

    def __init__(self, products: bool) -> None:
        self._dot, self._back = _by_products() if products else _by_sums()
        self._value_and_gradient = torch.compile(self._plain_value_and_gradient)
        self._column_sums = torch.compile(self._plain_column_sums)

    def takes(self, X: Tensor) -> bool:
        return True

    def knows_loss(self, X: Tensor, s: RowSum) -> bool:
        return not s.B.any()

    def value_and_gradient(
        self, X: Tensor, y: Tensor, weight: Tensor | None, w: np.ndarray, b: float, s: RowSum
    ) -> tuple[float, np.ndarray, float]:
        moved = _to(X, w), _to(X, np.array(b)), _to(X, s.A), _to(X, s.L)
        total = self._value_and_gradient(X, y, *moved, s.loss).double().cpu().numpy()
        return float(total[-2]), total[:-2], float(total[-1])

    def _plain_value_and_gradient(
        self, X: Tensor, y: Tensor, w: Tensor, b: Tensor, A: Tensor, L: Tensor, loss: Any
    ) -> Tensor:
        f = self._dot(X, w) + b
        a, slope = A[y.int()], L[y.int()]
        r = a * loss.derivative(f) + slope
        value = (a * loss.value(f) + slope * f).sum(dtype=torch.float64)
        return torch.cat([self._back(r, X).double(), value[None], r.sum(dtype=torch.float64)[None]])

    def column_sums(self, X: Tensor, weight: Tensor | None, shift: np.ndarray) -> Tensor:
        return self._column_sums(X, _to(X, shift))

    def _plain_column_sums(self, X: Tensor, shift: Tensor) -> Tensor:
        z = X - shift
        return torch.stack([z.sum(0), (z * z).sum(0)]).double()


def _by_products() -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    return lambda X, w: X @ w, lambda r, X: r @ X


def _by_sums() -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]:
    """What Inductor can merge with the work around it, which it cannot with a product."""
    return lambda X, w: (X * w).sum(1), lambda r, X: (X * r[:, None]).sum(0)


def _to(X: Tensor, vector: np.ndarray) -> Tensor:
    return torch.as_tensor(vector, dtype=X.dtype, device=X.device)


@contextmanager
def kernels_are(face: Any) -> Iterator[None]:
    """Rows on a device are summed by this; None: by eager torch."""
    before = linear._kernels
    linear._kernels = lambda X: face
    try:
        yield
    finally:
        linear._kernels = before


def make_rows(n: int, d: int, device: str) -> tuple[Tensor, Tensor]:
    """Rows on the device, a hundredth of them labelled."""
    torch.manual_seed(0)
    y = torch.zeros(n, dtype=torch.int8, device=device)
    y[: n // 200], y[-n // 200 :] = 1, -1
    X = torch.randn(n, d, device=device)
    X[-n // 10 :] += 0.3
    return X, y


def shallow(n: int, d: int, loss: str, device: str, repeats: int) -> dict[str, dict[str, Times]]:
    """Times of each sum, and of a fit, by each way; all ways must agree."""
    from riskad.rows import gpu_sums

    X, y = make_rows(n, d, device)
    rows = RowBlocks(X, y)
    s = Objective(get_risk("rad", loss), rows.totals()).plain
    model = linear.LinearModel(rows, np.full(d, 0.02), np.full(d, 1.1))
    theta = np.random.default_rng(0).normal(size=d + 1) / d**0.5
    works: dict[str, Callable[[], Any]] = {
        "value and gradient": lambda: model.values_and_gradients(theta, [s])[0][1],
        "column sums": lambda: linear.column_statistics(rows).mean,
        "fit": lambda: ShallowRAD(loss, tol=1e-5).fit(X, y).coef_,
    }
    ways = {
        "eager": None,
        "compiled, products": Compiled(products=True),
        "compiled, sums": Compiled(products=False),
        "kernels": gpu_sums,
    }
    found: dict[str, dict[str, Times]] = {}
    for name, work in works.items():
        answers, found[name] = {}, {}
        for way, face in ways.items():
            with kernels_are(face):
                found[name][way] = timed(work, repeats)
                answers[way] = work()
        _agree(name, answers)
    return {name: _with_gain(times) for name, times in found.items()}


def _agree(name: str, answers: dict[str, np.ndarray]) -> None:
    for way, answer in answers.items():
        apart = np.abs(answer - answers["eager"]).max() / np.abs(answers["eager"]).max()
        if not apart < 1e-2:
            raise SystemExit(f"{name}: {way} is {apart:.2g} apart from eager")


# --- deep: one step of training ----------------------------------------------------------------


@torch.compile
def _tail(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """What follows a convolution, as `layers.ConvBlock` does it without kernels."""
    normal = F.batch_norm(
        x, mean, variance, training=True, momentum=layers._MOMENTUM, eps=layers.NORM_EPS
    )
    return F.leaky_relu(F.max_pool2d(normal, 2), layers.LEAKY_SLOPE)


def _tail_compiled(block: Any, x: Tensor) -> Tensor:
    y = block.conv(x)
    statistics = block.norm.mean.view(-1), block.norm.variance.view(-1)
    return layers.apart(_tail(layers.side_by_side(y), *statistics), len(y))


@contextmanager
def layers_are(triton: bool, forward: Callable[..., Tensor] | None) -> Iterator[None]:
    """Whether stacks use our kernels, or another forward pass of a convolutional block."""
    before = layers._TRITON, layers.ConvBlock.forward
    layers._TRITON = triton
    if forward is not None:
        layers.ConvBlock.forward = forward
    try:
        yield
    finally:
        layers._TRITON, layers.ConvBlock.forward = before


def deep(name: str, shape: tuple[int, ...], k: int, device: str, repeats: int) -> dict[str, Times]:
    """Milliseconds of a step by each way."""
    n = 6000
    data = NetworkRows(torch.randint(0, 256, (n, *shape), dtype=torch.uint8, device=device))
    y = torch.zeros(n, dtype=torch.int64)
    y[:300], y[-100:] = 1, -1
    draws = Draws([pools_of(y)] * k, SIZES, range(k), data.device)
    risk = get_risk("nnrad", "logistic", a=0.1, prior=0.8)
    criterion = RiskCriterion([risk] * k, draws.kinds).to(data.device)
    steps = 10
    settings = Settings(n_steps=steps, check_every=steps)
    times = {}
    for way, triton, forward in (
        ("eager", False, None),
        ("compiled, after convolutions", False, _tail_compiled),
        ("compiled, whole stack", False, None),
        ("kernels", True, None),
    ):
        stack = nets.build_stack(name, shape, range(k)).to(data.device)
        if "whole" in way:
            stack.compile()
        with layers_are(triton, forward):
            work = lambda: train(stack, criterion, data, draws, settings)  # noqa: B023, E731
            found = timed(work, repeats)
        times[way] = {"first_s": found["first_s"], "ms": round(found["ms"] / steps, 4)}
    return _with_gain(times)


def _with_gain(times: dict[str, Times]) -> dict[str, Any]:
    compiled = min(own["ms"] for way, own in times.items() if way.startswith("compiled"))
    gain = {"over compiled": compiled, "over eager": times["eager"]["ms"]}
    ours = times["kernels"]["ms"]
    return times | {"gain": {way: round(ms / ours, 2) for way, ms in gain.items()}}


# --- all of it ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--loss", choices=[*LOSSES], default="modified_huber")
    parser.add_argument("--only", choices=["shallow", "deep"])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("kernels are for an NVIDIA GPU, and torch sees none")
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    found |= {"loss": options.loss, "needed_gain": NEEDED, "shallow": {}, "deep": {}}

    def keep(part: str, name: str, times: dict[str, Any]) -> None:
        found[part][name] = times
        print(part, name, json.dumps(times), flush=True)
        if options.output:
            options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    if options.only != "deep":
        for n, d in SHAPES:
            keep("shallow", f"{n} x {d}", shallow(n, d, options.loss, "cuda", options.repeats))
    if options.only != "shallow":
        for name, shape, k in STACKS:
            keep("deep", f"{name}, {k} at once", deep(name, shape, k, "cuda", options.repeats))


if __name__ == "__main__":
    main()
