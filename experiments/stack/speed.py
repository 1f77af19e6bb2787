"""Training hundreds of networks at once, against one at a time in an ordinary loop.

Samples per second of training on one device: a network in float32 over batches of 128 from a
DataLoader without or with four workers, with the same risk and Adam; and K networks by
`StackedTrainer`, whose draws, optimiser and learning curves are included. Meant for a GPU.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset

from experiments.datasets import load_images, one_class_split
from experiments.runner import Cell, Experiment
from experiments.stack.trainer import StackedTrainer
from riskad import DeepRAD
from riskad.deep.nets import build_network
from riskad.deep.trainer import choose_device

MODULES = {"MNIST": "lenet-mnist", "F-MNIST": "lenet-fmnist", "CIFAR-10": "lenet-cifar10"}
NETWORKS = {"MNIST": (1, 80, 320), "F-MNIST": (1, 80, 320), "CIFAR-10": (80, 320)}
WORKERS = (0, 4)
WARM_UP, MEASURED = 20, 200  # steps


def cells() -> Iterator[Cell]:
    """Each image set by the loop and by stacks of several sizes."""
    for dataset in MODULES:
        for workers in WORKERS:
            yield Cell(experiment="speed-stack", dataset=dataset, method="loop", size=workers)
        for n_networks in NETWORKS[dataset]:
            yield Cell(experiment="speed-stack", dataset=dataset, method="stack", size=n_networks)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Measure samples per second."""
    images = load_images(cell["dataset"])
    split = one_class_split(images.y_train, 0, 0.1, 0.05, random_state=0)
    module, device = MODULES[cell["dataset"]], choose_device("auto")
    if cell["method"] == "loop":
        X = torch.from_numpy(images.X_train[split.rows]).float() / 255
        y = torch.from_numpy(split.y_rad.astype(np.int64))
        rate = _rate_of_loop(module, X, y, cell["size"], device)
    else:
        rate = _rate_of_stack(module, images.X_train, split.rows, split.y_rad, cell["size"])
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    return {"samples_per_second": round(rate), "device": name, "torch": torch.__version__}


def _rate_of_loop(
    module: str, X: torch.Tensor, y: torch.Tensor, workers: int, device: torch.device
) -> float:
    network = build_network(module, tuple(X.shape[1:]), 0).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=5e-4)
    batches = {"batch_size": 128, "shuffle": True, "drop_last": True}
    options = {"pin_memory": device.type == "cuda", "persistent_workers": workers > 0}
    loader = DataLoader(TensorDataset(X, y), num_workers=workers, **batches, **options)
    step, samples, start = 0, 0, 0.0
    while step < WARM_UP + MEASURED:
        for batch in loader:
            x, kinds = (part.to(device, non_blocking=True) for part in batch)
            optimiser.zero_grad()
            _risk(network(x), kinds).backward()
            optimiser.step()
            step += 1
            if step == WARM_UP:
                _wait()
                samples, start = 0, time.perf_counter()
            samples += len(x)
    _wait()
    return samples / (time.perf_counter() - start)


def _risk(f: torch.Tensor, y: torch.Tensor, a: float = 0.1, pi_p: float = 0.8) -> torch.Tensor:
    """The non-negative risk with logistic loss, over the kinds that the batch holds."""

    def mean(values: torch.Tensor, kind: int) -> torch.Tensor:
        return values[y == kind].sum() / (y == kind).sum().clamp(min=1)

    bracket = mean(softplus(-f), 0) - (1 - pi_p) * mean(softplus(-f), -1)
    plain = (1 - a) * pi_p * mean(softplus(-f), 1) + (1 - pi_p) * mean(softplus(f), -1)
    return plain + a * bracket.clamp(min=0.0)


def _rate_of_stack(
    module: str, X: np.ndarray, rows: np.ndarray, labels: np.ndarray, n_networks: int
) -> float:
    settings = {"scale": False, "max_iter": WARM_UP + MEASURED}
    detectors = [DeepRAD(module, random_state=k, **settings) for k in range(n_networks)]
    times = []

    def note_time(step: int) -> None:
        _wait()
        times.append(time.perf_counter())

    trainer = StackedTrainer(detectors)
    trainer.fit(X, [rows] * n_networks, [labels] * n_networks, callback=note_time)
    samples = MEASURED * n_networks * sum(detectors[0].batch_size)
    return samples / (times[-1] - times[0])  # the first check ends the warm-up


def _wait() -> None:
    """Until the device has done what it was asked to."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def report(records: pl.DataFrame, folder: Path) -> None:
    """Write `speed.json`: rates, and those of stacks over the faster loop."""
    lines = []
    for dataset in MODULES:
        here = records.filter(dataset=dataset).sort("size")
        loop, stack = (
            dict(here.filter(method=method)["size", "samples_per_second"].rows())
            for method in ("loop", "stack")
        )
        best = max(loop.values())
        lines.append(
            {
                "dataset": dataset,
                "one at a time": {f"{workers} workers": rate for workers, rate in loop.items()},
                "together": {str(k): rate for k, rate in stack.items()},
                "ratio": {str(k): float(f"{rate / best:.3g}") for k, rate in stack.items()},
            }
        )
    first = records.row(0, named=True)
    page = {"device": first["device"], "torch": first["torch"], "rates": lines}
    (folder / "speed.json").write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")


EXPERIMENTS = (
    Experiment(
        name="speed-stack",
        title="Training hundreds of networks at once beside one at a time",
        cells=cells,
        run_cell=run_cell,
        report=report,
        folder="deep",
        needs="images, torch; meant for an NVIDIA GPU",
        minutes="3 minutes on an H200",
    ),
)
