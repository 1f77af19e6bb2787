"""Training hundreds of networks at once, against one at a time in an ordinary loop.

    RISKAD_DATA=... python benchmarks/deep.py --output results/deep/speed.json

Samples per second of training on one device, both measured in the same run: a plain torch network
of the same architecture, float32, batches of 128 from a DataLoader (the faster of no and four
workers), the same risk and Adam; and K networks by `riskad.deep.trainer.train`, whose draws,
optimiser and learning curves are included. Meant for a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from riskad.core.risks import get_risk
from riskad.datasets import load_images, one_class_split
from riskad.deep.batches import Draws, NetworkRows
from riskad.deep.criteria import RiskCriterion
from riskad.deep.nets import ARCHITECTURES, build_stack
from riskad.deep.trainer import Settings, choose_device, train

MODULES = {"MNIST": "lenet-mnist", "F-MNIST": "lenet-fmnist", "CIFAR-10": "lenet-cifar10"}
RISK = get_risk("nnrad", "logistic", a=0.1, prior=0.8)
SIZES = {1: 64, -1: 32, 0: 128}


def plain_network(name: str, shape: tuple[int, ...]) -> nn.Sequential:
    """The architecture as anyone would write it in torch."""
    architecture = ARCHITECTURES[name]
    layers: list[nn.Module] = []
    channels = shape[0]
    for c in architecture.channels:
        layers += [
            nn.Conv2d(channels, c, 5, padding=2, bias=False),
            nn.BatchNorm2d(c, eps=1e-4, affine=False),
            nn.LeakyReLU(),
            nn.MaxPool2d(2),
        ]
        channels = c
    layers.append(nn.Flatten())
    n = int(np.prod(architecture.map_shape(shape)))
    *hidden, rep = architecture.sizes
    for size in hidden:
        layers += [
            nn.Linear(n, size, bias=False),
            nn.BatchNorm1d(size, eps=1e-4, affine=False),
            nn.LeakyReLU(),
        ]
        n = size
    return nn.Sequential(*layers, nn.Linear(n, rep, bias=False), nn.LeakyReLU(), nn.Linear(rep, 1))


def plain_risk(f: torch.Tensor, y: torch.Tensor, a: float = 0.1, pi_p: float = 0.8) -> torch.Tensor:
    """The non-negative risk with logistic loss, over the kinds that the batch holds."""
    loss = nn.functional.softplus

    def mean(values: torch.Tensor, kind: int) -> torch.Tensor:
        return values[y == kind].sum() / (y == kind).sum().clamp(min=1)

    pi_n = 1 - pi_p
    bracket = mean(loss(-f), 0) - pi_n * mean(loss(-f), -1)
    plain = (1 - a) * pi_p * mean(loss(-f), 1) + pi_n * mean(loss(f), -1)
    return plain + a * bracket.clamp(min=0.0)


def one_at_a_time(
    name: str, X: torch.Tensor, y: torch.Tensor, workers: int, seconds: float
) -> float:
    """Samples per second of an ordinary loop."""
    device = choose_device("auto")
    net = plain_network(name, tuple(X.shape[1:])).to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=5e-4)
    loader = DataLoader(
        TensorDataset(X, y),
        batch_size=128,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )

    def step(batch: list[torch.Tensor]) -> int:
        x, kinds = (part.to(device, non_blocking=True) for part in batch)
        optimiser.zero_grad()
        plain_risk(net(x).squeeze(1), kinds).backward()
        optimiser.step()
        return len(x)

    batches = endless(loader)
    return rate(lambda: step(next(batches)), seconds, warm_up=30)


def endless(loader: DataLoader) -> Iterator[list[torch.Tensor]]:
    """Epoch after epoch."""
    while True:
        yield from loader


def rate(step: Callable[[], int], seconds: float, warm_up: int) -> float:
    """Samples per second of calls of `step` that go on for so many seconds."""
    for _ in range(warm_up):
        step()
    wait()
    start, samples = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        samples += sum(step() for _ in range(10))
        wait()
    return samples / (time.perf_counter() - start)


def wait() -> None:
    """Until the device has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def together(
    name: str, data: NetworkRows, codes: torch.Tensor, rows: torch.Tensor, k: int, seconds: float
) -> float:
    """Samples per second of K networks in one stack."""
    pools = {kind: rows[codes == kind] for kind in SIZES}
    stack = build_stack(name, tuple(data.data.shape[1:]), range(k)).to(data.device)
    draws = Draws([pools] * k, SIZES, range(k), data.device)
    criterion = RiskCriterion([RISK] * k, draws.kinds).to(data.device)

    def steps(n: int = 20) -> int:
        train(stack, criterion, data, draws, Settings(n_steps=n, deterministic=False))
        return n * k * sum(SIZES.values())

    steps()
    wait()
    start, samples = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        samples += steps()
        wait()
    return samples / (time.perf_counter() - start)


def measure(dataset: str, ks: list[int], seconds: float) -> dict:
    """Both ways on one image set."""
    images, name = load_images(dataset), MODULES[dataset]
    split = one_class_split(images.y_train, 0, 0.1, 0.05, random_state=0)
    X = torch.from_numpy(images.X_train[split.rows]).float() / 255
    y = torch.from_numpy(split.y_rad.astype(np.int64))
    loops = {w: one_at_a_time(name, X, y, w, seconds) for w in (0, 4)}
    best = max(loops.values())
    data = NetworkRows(torch.from_numpy(images.X_train).to(choose_device("auto")))
    rows = torch.from_numpy(split.rows)
    rates = {k: together(name, data, y, rows, k, seconds) for k in ks}
    line = {
        "dataset": dataset,
        "one at a time": {f"{w} workers": round(value) for w, value in loops.items()},
        "together": {str(k): round(value) for k, value in rates.items()},
        "ratio": {str(k): round(value / best, 1) for k, value in rates.items()},
    }
    print(json.dumps(line), flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", choices=MODULES, action="append")
    parser.add_argument("--k", type=int, action="append", help="networks at once")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    ks = arguments.k or [1, 80, 320]
    lines = [measure(name, ks, arguments.seconds) for name in arguments.dataset or MODULES]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    result = {"device": device, "torch": torch.__version__, "rates": lines}
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
