"""Cells of image experiments: those whose networks have one shape are trained together."""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from riskad.bench.curves import rank_metrics
from riskad.bench.experiment import Cell, seed_of
from riskad.bench.provenance import provenance
from riskad.bench.records import OK
from riskad.bench.trial import build_estimator, failure, find_object, kept_warnings, prior_words
from riskad.core.checks import InputError, check_choice
from riskad.core.labels import ANOMALY, NORMAL
from riskad.datasets import DatasetSource, ImageDataset, OneClassSplit, one_class_split, read_source

__all__ = ["Device", "find_device", "image_set", "image_split", "run_images", "run_together"]

_DEVICES = ("auto", "cpu", "cuda")
_N_CLASSES = 10


# --- the way to the networks, which alone import torch -----------------------------------


def team_class() -> Any:
    """`riskad.deep.Together`, which trains many detectors at once."""
    return import_module("riskad.deep").Together


@dataclass(frozen=True)
class Device:
    """Where networks are trained: torch's word for it, and what records call it."""

    kind: str
    name: str

    @property
    def together(self) -> int:
        """How many networks to train together unless told otherwise.

        A GPU is idle with few. A core is not, and with few a kill loses less.
        """
        return 400 if self.kind == "cuda" else 4


def find_device(device: str = "auto") -> Device:
    """The device of that name; "auto" is the GPU where there is one."""
    check_choice("device", device, _DEVICES)
    gpu = import_module("riskad.deep.trainer").gpu_name()
    if device == "cpu" or (device == "auto" and gpu is None):
        return Device("cpu", "cpu")
    if gpu is None:
        raise InputError("device='cuda' asks for a GPU, and torch finds none. Use device='cpu'.")
    return Device("cuda", gpu)


# --- data --------------------------------------------------------------------------------


@functools.lru_cache(maxsize=3)
def image_set(source: DatasetSource) -> ImageDataset:
    """The image set, read once."""
    images: ImageDataset = source.load()
    return images


@functools.lru_cache(maxsize=8)
def image_split(
    source: DatasetSource, trial: int, root: int, anomaly_rate: float, labelled: float
) -> OneClassSplit:
    """The split of a trial under a condition; all methods and all their settings share it."""
    return one_class_split(
        image_set(source).y_train,
        _normal_class(trial),
        anomaly_rate,
        labelled,
        random_state=seed_of(root, source.name, trial, "split", anomaly_rate, labelled),
    )


def _source(cell: Cell) -> DatasetSource:
    return cell.source or read_source(cell.dataset, images=True)


def _normal_class(trial: int) -> int:
    return trial % _N_CLASSES


# --- one group ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """A cell that is ready to be trained: its detector, its rows and their labels."""

    record: dict[str, Any]
    detector: Any
    rows: np.ndarray
    labels: np.ndarray
    truth_test: np.ndarray


def run_together(cells: Sequence[Cell], device: Device) -> list[dict[str, Any]]:
    """Records of cells of one dataset whose detectors can be trained together, in their order."""
    records: list[dict[str, Any]] = [{}] * len(cells)
    tasks: dict[int, _Task] = {}
    for place, cell in enumerate(cells):
        try:
            tasks[place] = _task(cell, device)
        except Exception as error:
            records[place] = _opening(cell) | failure(error) | _closing(device)
    if tasks:
        data = image_set(_source(cells[0]))
        outcomes = _train(list(tasks.values()), data)
        for (place, task), outcome in zip(tasks.items(), outcomes, strict=True):
            records[place] = task.record | outcome | _closing(device)
    return records


def _task(cell: Cell, device: Device) -> _Task:
    data = image_set(_source(cell))
    split = image_split(_source(cell), cell.trial, cell.root, _rate(cell), cell.labelled)
    detector = _detector(cell, device)
    labels = split.y_pu if isinstance(detector, find_object("riskad.NNPU")) else split.y_rad
    truth = np.where(data.y_test == _normal_class(cell.trial), NORMAL, ANOMALY)
    counts = {
        "n_train": len(labels),
        "n_test": len(truth),
        "n_normal": int((labels == NORMAL).sum()),
        "n_anomaly": int((labels == ANOMALY).sum()),
    }
    return _Task(_opening(cell) | counts, detector, split.rows, labels, truth)


def _rate(cell: Cell) -> float:
    assert cell.anomaly_rate is not None, "a cell of a table"
    return cell.anomaly_rate


def _detector(cell: Cell, device: Device) -> Any:
    detector = build_estimator(cell, _seed(cell), prior=prior_words(_rate(cell)))
    return detector.set_params(device=device.kind)


def _seed(cell: Cell) -> int:
    return seed_of(cell.root, cell.dataset, cell.trial, "method")


def _opening(cell: Cell) -> dict[str, Any]:
    return cell.identity | {
        "settings": dict(cell.settings),
        "seed": _seed(cell),
        "normal_class": _normal_class(cell.trial),
    }


def _closing(device: Device) -> dict[str, str]:
    return {"device": device.name, **provenance("torch")}


def _train(tasks: Sequence[_Task], data: ImageDataset) -> list[dict[str, Any]]:
    """What came out for each task.

    Tasks that fail together are halved until each that fails is alone: the others succeed without
    it, and what is too much for the memory becomes less.
    """
    try:
        return _train_at_once(tasks, data)
    except Exception as error:
        if len(tasks) == 1:
            return [failure(error)]
    # Here, not in the handler: the error holds on to the networks that failed.
    half = len(tasks) // 2
    return _train(tasks[:half], data) + _train(tasks[half:], data)


def _train_at_once(tasks: Sequence[_Task], data: ImageDataset) -> list[dict[str, Any]]:
    k = len(tasks)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        team = team_class()([task.detector for task in tasks])
        team.fit(data.X_train, [task.rows for task in tasks], [task.labels for task in tasks])
        fitted = time.perf_counter()
        scores = team.score_samples(data.X_test)
        scored = time.perf_counter()
    shared = {
        "fit_seconds": round((fitted - start) / k, 4),
        "score_seconds": round((scored - fitted) / k, 4),
        "together": k,
        **kept_warnings(caught),
    }
    steps = zip(team.n_steps_.tolist(), team.best_step_.tolist(), strict=True)
    return [
        _outcome(task.truth_test, scores[i], {"n_steps": n, "best_step": best, **shared})
        for i, (task, (n, best)) in enumerate(zip(tasks, steps, strict=True))
    ]


def _outcome(truth: np.ndarray, scores: np.ndarray, more: dict[str, Any]) -> dict[str, Any]:
    """A task's metrics; scores that are not finite are the failure of this task alone."""
    try:
        return rank_metrics(truth, scores) | more | {"status": OK}
    except InputError as error:
        return failure(error)


# --- all groups --------------------------------------------------------------------------


def run_images(
    cells: Sequence[Cell], device: Device, together: int | None = None
) -> Iterator[dict[str, Any]]:
    """Records of all cells, dataset by dataset, at most `together` of them trained at once."""
    for group in _groups(cells, device):
        for chunk in _chunks(group, together or device.together):
            yield from run_together(chunk, device)


def _groups(cells: Sequence[Cell], device: Device) -> Iterator[list[Cell]]:
    """Cells of one dataset whose detectors can be trained together."""
    key_of = team_class().key
    datasets = list(dict.fromkeys(cell.dataset for cell in cells))
    for dataset in datasets:
        groups: dict[Any, list[Cell]] = {}
        for cell in cells:
            if cell.dataset == dataset:
                groups.setdefault(_key(cell, device, key_of), []).append(cell)
        yield from groups.values()


def _key(cell: Cell, device: Device, key_of: Callable[[Any], Any]) -> Any:
    """What detectors that can be trained together have in common."""
    try:
        return key_of(_detector(cell, device))
    except Exception:
        return None  # its record will say why


def _chunks(cells: Sequence[Cell], most: int) -> Iterator[Sequence[Cell]]:
    """As few parts as possible of at most so many cells, and of nearly equal size."""
    n_parts = -(-len(cells) // most)
    ends = [round(i * len(cells) / n_parts) for i in range(n_parts + 1)]
    for begin, end in itertools.pairwise(ends):
        yield cells[begin:end]
