"""When to stop training networks on few labels: rules compared on training images alone.

The paper's setups, but all from the official training part of an image set: of each normal class
and of the other nine some hundred images are set aside to measure AUC on, so that the test images
stay unseen. A cell has a network for each of the ten normal classes, and its AUC is followed:

- after a fixed number of steps;
- "held out": a fifth of each kind of row is held out, and the network is that of the step with the
  lowest risk there, as `DeepRAD(validation=0.2)` does it;
- "three folds": three networks are trained without a third of the labelled rows each; the step
  with the lowest mean risk on what they have not seen is where the network on all rows stops.

Deep SAD and nnPU are followed over fixed numbers of steps. Meant for a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from riskad.bench.experiment import Cell
from riskad.bench.studies import Record
from riskad.bench.trial import dataset_of, prior_words
from riskad.core.labels import ANOMALY, NORMAL, UNLABELLED
from riskad.core.risks import Risk, get_risk
from riskad.datasets import DatasetSource, ImageDataset, load_images
from riskad.deep.batches import Draws, NetworkRows, Pools, hold_out
from riskad.deep.criteria import RiskCriterion
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.nets import build_stack
from riskad.deep.together import Together
from riskad.deep.trainer import (
    Progress,
    Settings,
    Validation,
    choose_device,
    evaluate,
    gpu_name,
    train,
)

__all__ = ["TrainingImages", "measure", "measure_nnpu", "measure_sad", "report"]

_SIZES = {NORMAL: 64, ANOMALY: 32, UNLABELLED: 128}
_N_CLASSES, _N_FOLDS, _N_ASIDE, _LABELLED = 10, 3, 300, 0.05
_SHARE_USED, _SHARE_HELD, _MOST_HELD = 0.85, 0.2, 300


@dataclass(frozen=True)
class TrainingImages(DatasetSource):
    """MNIST, F-MNIST or CIFAR-10, of which this study takes the training part alone.

    `ImageSource` would come with the splits of the experiments, which have the test part in them.
    """

    def load(self) -> ImageDataset:
        """Read it, see `load_images`."""
        return load_images(self.name)


# --- rows ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """A normal class: its rows of each kind, and rows set aside with whether each is normal."""

    pools: Pools
    aside: np.ndarray
    normal: np.ndarray


def make_setup(y: np.ndarray, normal_class: int, anomaly_rate: float) -> Setup:
    """The paper's setup on 85 % of the normal class's training images."""
    rng = np.random.default_rng([normal_class, round(1000 * anomaly_rate)])
    normal = rng.permutation(np.flatnonzero(y == normal_class))
    other = rng.permutation(np.flatnonzero(y != normal_class))
    n = int(_SHARE_USED * len(normal))
    aside = np.r_[normal[n:][:_N_ASIDE], other[:_N_ASIDE]]
    anomalies = other[_N_ASIDE:][: round(n * anomaly_rate)]
    normal = normal[: n - len(anomalies)]
    n_p = round(_LABELLED * len(normal))
    n_n = max(round(_LABELLED * len(anomalies)), 1)
    rows = {
        NORMAL: normal[:n_p],
        ANOMALY: anomalies[:n_n],
        UNLABELLED: np.r_[normal[n_p:], anomalies[n_n:]],
    }
    pools = {kind: torch.from_numpy(np.ascontiguousarray(part)) for kind, part in rows.items()}
    return Setup(pools, aside, y[aside] == normal_class)


def folds(pools: Pools) -> Iterator[tuple[Pools, Pools]]:
    """What is left and what is held out, three times; each labelled row is held out once."""
    for fold in range(_N_FOLDS):
        # Where there are fewer anomalies than folds, some are held out twice.
        held = {kind: rows[fold % len(rows) :: _N_FOLDS] for kind, rows in pools.items()}
        held[UNLABELLED] = held[UNLABELLED][:_MOST_HELD]
        left = {kind: rows[~torch.isin(rows, held[kind])] for kind, rows in pools.items()}
        yield left, held


def _images_and_setups(cell: Cell) -> tuple[np.ndarray, list[Setup]]:
    """All training images, and the setup of each normal class."""
    assert cell.source is not None, "this study has a source of its own"
    images: ImageDataset = dataset_of(cell.source)
    rate = cell.settings["anomaly_rate"]
    setups = [make_setup(images.y_train, each, rate) for each in range(_N_CLASSES)]
    return images.X_train, setups


# --- networks ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """One network to follow: where it draws from, and what was held out, if anything."""

    setup: Setup
    pools: Pools
    held: Pools | None
    seed: int


def follow(
    cell: Cell, risk: Risk, X: np.ndarray, tasks: Sequence[Task]
) -> tuple[np.ndarray, np.ndarray]:
    """AUC on what was set aside and risk on what was held out: (checks, K) each."""
    data = NetworkRows(torch.from_numpy(X).to(choose_device("auto")))
    settings, seeds, risks = cell.settings, [task.seed for task in tasks], [risk] * len(tasks)
    centred = [risk.loss.bounded] * len(tasks)
    stack = build_stack(settings["module"], X.shape[1:], seeds, centred=centred).to(data.device)
    used = {kind: size for kind, size in _SIZES.items() if kind in risk.kinds()}
    draws = Draws([task.pools for task in tasks], used, seeds, data.device)
    guard = "kiryo" if risk.name == "nnpu" else "clip"
    criterion = RiskCriterion(risks, draws.kinds, guard).to(data.device)
    held = [task.held for task in tasks if task.held is not None]
    validation = Validation(held, risks, data.device) if held else None
    aside = torch.from_numpy(np.stack([task.setup.aside for task in tasks])).to(data.device)
    aucs, values = [], []

    def look(_: Progress) -> None:
        scores = evaluate(stack, data, aside).float().cpu().numpy()
        aucs.append(_aucs([task.setup for task in tasks], scores))
        if validation is not None:
            values.append(validation(stack, data).cpu().numpy())

    how = Settings(
        n_steps=max(settings["steps"]),
        learning_rate=settings["learning_rate"],
        check_every=settings["check_every"],
        deterministic=False,
    )
    train(stack, criterion, data, draws, how, callback=look)
    return np.stack(aucs), np.stack(values) if values else np.empty(0)


def _aucs(setups: Sequence[Setup], scores: np.ndarray) -> np.ndarray:
    """AUC of each network's scores of what was set aside for it."""
    pairs = zip(setups, scores, strict=True)
    return np.array([roc_auc_score(setup.normal, own) for setup, own in pairs])


def _at(curves: np.ndarray, check: np.ndarray) -> np.ndarray:
    """The value of each curve at its own check."""
    return np.take_along_axis(curves, check[None], 0)[0]


def _at_steps(cell: Cell, curves: np.ndarray) -> dict[str, np.ndarray]:
    """AUCs after fixed numbers of steps."""
    every = cell.settings["check_every"]
    return {f"{steps} steps": curves[steps // every - 1] for steps in cell.settings["steps"]}


# --- what is measured ----------------------------------------------------------------------------


def measure(cell: Cell) -> dict[str, Any]:
    """Return the AUC of nnrad for each normal class, by each rule."""
    loss, prior = cell.settings["loss"], cell.settings["prior"]
    words = prior_words(cell.settings["anomaly_rate"])
    risk = get_risk("nnrad", loss, a=0.1, prior=words.get(prior, prior))
    X, setups = _images_and_setups(cell)
    full, _ = follow(cell, risk, X, [Task(s, s.pools, None, k) for k, s in enumerate(setups)])
    fifth = [Task(s, *hold_out(s.pools, _SHARE_HELD, k), k) for k, s in enumerate(setups)]
    curves, risks = follow(cell, risk, X, fifth)
    thirds = [
        Task(setup, left, held, k + 100 * fold)
        for k, setup in enumerate(setups)
        for fold, (left, held) in enumerate(folds(setup.pools))
    ]
    _, risks_of_folds = follow(cell, risk, X, thirds)
    mean_risks = risks_of_folds.reshape(*full.shape, _N_FOLDS).mean(-1)
    return _said(
        _at_steps(cell, full)
        | {
            "held out": _at(curves, risks.argmin(0)),
            "three folds": _at(full, mean_risks.argmin(0)),
        }
    )


def measure_nnpu(cell: Cell) -> dict[str, Any]:
    """Return the AUC of nnPU with the true prior, over fixed numbers of steps."""
    risk = get_risk("nnpu", "sigmoid", prior=1 - cell.settings["anomaly_rate"])
    X, setups = _images_and_setups(cell)
    curves, _ = follow(cell, risk, X, [Task(s, s.pools, None, k) for k, s in enumerate(setups)])
    return _said(_at_steps(cell, curves))


def measure_sad(cell: Cell) -> dict[str, Any]:
    """Return the AUC of Deep SAD after so many steps of pre-training and of training."""
    names = ("module", "learning_rate", "n_steps", "pretrain_steps")
    settings = {name: cell.settings[name] for name in names}
    X, setups = _images_and_setups(cell)
    team = Together([DeepSAD(**settings, scale=False, random_state=k) for k in range(_N_CLASSES)])
    rows = [torch.cat([*setup.pools.values()]).numpy() for setup in setups]
    labels = [
        np.repeat([*setup.pools], [len(part) for part in setup.pools.values()]) for setup in setups
    ]
    team.fit(X, rows, labels)
    scores = [team.score_samples(X[setup.aside])[k] for k, setup in enumerate(setups)]
    return _said({f"{settings['n_steps']} steps": _aucs(setups, np.stack(scores))})


def _said(aucs: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        "auc": {rule: values.tolist() for rule, values in aucs.items()},
        "device": gpu_name() or "cpu",
    }


def report(rows: Sequence[Record]) -> dict[str, Any]:
    """Return the mean AUC over the ten normal classes, for each rule, risk and loss."""
    found = sorted(map(_row, rows), key=lambda row: [str(value) for value in row.values()])
    return {"devices": sorted({row["device"] for row in rows}), "rows": found}


def _row(row: Record) -> dict[str, Any]:
    settings = row["settings"]
    means = {rule: round(float(np.mean(values)), 4) for rule, values in row["auc"].items()}
    return {
        "dataset": row["dataset"],
        "pi_n": settings["anomaly_rate"],
        "method": row["method"],
        "loss": settings.get("loss"),
        "prior": settings.get("prior"),
        "learning_rate": settings["learning_rate"],
        "auc": means,
    }
