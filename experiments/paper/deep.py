"""The paper's deep experiments: deep rAD, Deep SAD and nnPU on images, one class of ten normal.

In trial t of 20 class t % 10 is normal. The share of anomalies pi_n among the training rows is a
setting of the cell (`anomaly_rate`), as is the share gamma_l of labelled rows (`budget`):

    images          all detectors, for each pi_n and gamma_l
    images-prior    rAD with other assumed shares pi_p^e of normal rows, gamma_l = 0.05
    images-a        rAD with other weights a of the unlabelled rows, gamma_l = 0.05

Networks of one shape are trained together, many at once on a GPU (`experiments.stack`); how long
and how fast was chosen on training images alone (the study `stopping`).
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import (
    IMAGE_SETS,
    ImageDataset,
    OneClassSplit,
    load_images,
    one_class_split,
)
from experiments.evaluation import rank_metrics
from experiments.records import versions
from experiments.runner import Cell, NotAvailable, kept_warnings, seed_of
from riskad.core.labels import ANOMALY, NORMAL

PARTS = ("images", "images-prior", "images-a")
N_TRIALS = 20
N_CLASSES = 10
ROOT = 0

RATES = (0.01, 0.05, 0.1, 0.2)
BUDGETS = (0.05, 0.1, 0.2)
LOSSES = ("squared", "sigmoid", "logistic", "modified_huber")
PRIORS: tuple[str | float, ...] = ("true", 0.9, 0.8, 0.7, "flipped")
WEIGHTS = (0.1, 0.5, 0.9)

_NETWORKS: dict[str, dict[str, Any]] = {
    "MNIST": {"module": "lenet-mnist", "learning_rate": 1e-3},
    "F-MNIST": {"module": "lenet-fmnist", "learning_rate": 2e-4},
    "CIFAR-10": {"module": "lenet-cifar10", "learning_rate": 2e-4},
}
_N_STEPS = 100
_SAD_STEPS = {"MNIST": 300, "F-MNIST": 100, "CIFAR-10": 300}


def cells() -> Iterator[Cell]:
    """All cells, part by part and trial by trial."""
    for part in PARTS:
        variants = list(_variants(part))
        budgets = BUDGETS if part == "images" else BUDGETS[:1]
        places = product(range(N_TRIALS), IMAGE_SETS, variants, RATES, budgets)
        for trial, dataset, variant, rate, budget in places:
            place = {"dataset": dataset, "budget": budget, "trial": trial, "anomaly_rate": rate}
            yield Cell(experiment=part, **place, **variant)


def _variants(part: str) -> Iterator[dict[str, Any]]:
    """Methods and their settings in a part."""
    rad = {"method": "rad", "a": 0.1, "prior": 0.8}
    swept = {"images": ("prior", (0.8,)), "images-prior": ("prior", PRIORS)}
    name, values = swept.get(part, ("a", WEIGHTS))
    for value, loss in product(values, LOSSES):
        yield {**rad, name: value, "loss": loss}
    if part == "images":
        yield {"method": "sad"}
        # The paper gives no prior for nnPU; its authors' own experiments use the true one.
        yield {"method": "nnpu", "prior": "true"}


# --- one cell ----------------------------------------------------------------------------


class Task(NamedTuple):
    """A cell that is ready to be trained: its detector, its rows and their labels."""

    cell: Cell
    detector: Any
    rows: NDArray[np.int64]
    labels: NDArray[np.int16]
    truth_test: NDArray[np.int16]


@functools.lru_cache(maxsize=3)
def image_set(name: str) -> ImageDataset:
    """The image set, read once."""
    return load_images(name)


@functools.lru_cache(maxsize=8)
def image_split(dataset: str, trial: int, rate: float, budget: float) -> OneClassSplit:
    """The split of a trial under a condition; all methods and all their settings share it."""
    seed = seed_of(ROOT, dataset, trial, "split", rate, budget)
    labels = image_set(dataset).y_train
    return one_class_split(labels, trial % N_CLASSES, rate, budget, random_state=seed)


def make_task(cell: Cell, device: str) -> Task:
    """Draw the rows and labels of a cell, and make its detector."""
    dataset, trial = cell["dataset"], cell["trial"]
    split = image_split(dataset, trial, cell["anomaly_rate"], cell["budget"])
    labels = split.y_pu if cell["method"] == "nnpu" else split.y_rad
    normal = image_set(dataset).y_test == trial % N_CLASSES
    truth = np.where(normal, NORMAL, ANOMALY).astype(np.int16)
    return Task(cell, make_detector(cell, device), split.rows, labels, truth)


def make_detector(cell: Cell, device: str) -> Any:
    """Return the unfitted detector of a cell."""
    from riskad import NNPU, DeepRAD, DeepSAD

    seed = seed_of(ROOT, cell["dataset"], cell["trial"], "method")
    shared = {"scale": False, "random_state": seed, "device": device}
    network = _NETWORKS[cell["dataset"]]
    if cell["method"] == "sad":
        return DeepSAD(
            module=network["module"],
            learning_rate=1e-3,
            pretrain_iter=300,
            max_iter=_SAD_STEPS[cell["dataset"]],
            **shared,
        )
    rate = cell["anomaly_rate"]
    prior = {"true": 1 - rate, "flipped": rate}.get(cell["prior"], cell["prior"])
    shared |= {"prior": prior, "max_iter": _N_STEPS, **network}
    if cell["method"] == "nnpu":
        return NNPU(**shared)
    return DeepRAD(loss=cell["loss"], a=cell["a"], **shared)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Train the network of one cell alone."""
    ((_, outcome),) = run_cells([cell])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


# --- many cells at once ------------------------------------------------------------------


def run_cells(cells: Sequence[Cell]) -> Iterator[tuple[Cell, dict[str, Any] | Exception]]:
    """Train cells of one dataset and of one shape together, and yield what came of each."""
    import torch

    from experiments.stack import StackedTrainer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    # A GPU is idle with few networks. A core is not, and with few a kill loses less.
    most = 400 if device == "cuda" else 4
    for dataset in dict.fromkeys(cell["dataset"] for cell in cells):
        here = [cell for cell in cells if cell["dataset"] == dataset]
        try:
            image_set(dataset)
        except NotAvailable as error:
            yield here[0], error
            continue
        groups: dict[Hashable, list[Cell]] = {}
        for cell in here:
            groups.setdefault(StackedTrainer.key(make_detector(cell, "cpu")), []).append(cell)
        for group in groups.values():
            n_parts = -(-len(group) // most)
            ends = [round(i * len(group) / n_parts) for i in range(n_parts + 1)]
            for begin, end in pairwise(ends):
                tasks = [make_task(cell, device) for cell in group[begin:end]]
                for task, outcome in zip(tasks, _train(tasks, image_set(dataset)), strict=True):
                    yield task.cell, outcome


def _train(tasks: Sequence[Task], data: ImageDataset) -> list[Any]:
    """What came out for each task: metrics, or an error.

    Tasks that fail together are halved until each that fails is alone: the others succeed without
    it, and what is too much for the memory becomes less.
    """
    try:
        return _train_at_once(tasks, data)
    except Exception as error:
        if len(tasks) == 1:
            return [error]
    # Here, not in the handler: the error holds on to the networks that failed.
    half = len(tasks) // 2
    return _train(tasks[:half], data) + _train(tasks[half:], data)


def _train_at_once(tasks: Sequence[Task], data: ImageDataset) -> list[Any]:
    import torch

    from experiments.stack import StackedTrainer

    k, start = len(tasks), time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = StackedTrainer([task.detector for task in tasks])
        trainer.fit(data.X_train, [task.rows for task in tasks], [task.labels for task in tasks])
        fitted = time.perf_counter()
        scores = trainer.score_samples(data.X_test)
        scored = time.perf_counter()
    on_gpu = tasks[0].detector.device == "cuda"
    shared = {
        "fit_seconds": round((fitted - start) / k, 4),
        "score_seconds": round((scored - fitted) / k, 4),
        "together": k,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "versions": versions("torch"),
        **kept_warnings(caught),
    }
    outcomes: list[Any] = []
    for task, row_scores, n_steps in zip(tasks, scores, trainer.n_iter_.tolist(), strict=True):
        facts = {
            "seed": task.detector.random_state,
            "normal_class": task.cell["trial"] % N_CLASSES,
            "n_train": len(task.labels),
            "n_test": len(task.truth_test),
            "n_normal": int((task.labels == NORMAL).sum()),
            "n_anomaly": int((task.labels == ANOMALY).sum()),
            "n_steps": n_steps,
        }
        outcomes.append(facts | rank_metrics(task.truth_test, row_scores) | shared)
    return outcomes
