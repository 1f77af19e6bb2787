"""When to stop training networks on few labels: rules compared on training images alone.

    RISKAD_DATA=... python benchmarks/stopping.py --output results/deep/stopping.json

The paper's setups, but all from the official training part of an image set: of each normal class
and of the other nine some hundred images are set aside to measure AUC on, so that the test images
stay unseen. Each setup is trained with all four losses and three priors, and its AUC is followed:

- after a fixed number of steps;
- "held out": a fifth of each kind of row is held out, and the network is that of the step with the
  lowest risk there, as `DeepRAD(validation=0.2)` does it;
- "three folds": three networks are trained without a third of the labelled rows each; the step
  with the lowest mean risk on what they have not seen is where the network on all rows stops.

Deep SAD and nnPU are followed over fixed numbers of steps. Meant for a GPU.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from riskad.core.risks import Risk, get_risk
from riskad.datasets import load_images
from riskad.deep.batches import Draws, NetworkRows, Pools, hold_out
from riskad.deep.criteria import RiskCriterion
from riskad.deep.deep_sad import DeepSAD
from riskad.deep.nets import build_stack
from riskad.deep.trainer import Progress, Settings, Validation, choose_device, evaluate, train

MODULES = {"MNIST": "lenet-mnist", "F-MNIST": "lenet-fmnist", "CIFAR-10": "lenet-cifar10"}
RATES = {"MNIST": 1e-3, "F-MNIST": 2e-4, "CIFAR-10": 2e-4}
LOSSES = ("squared", "sigmoid", "logistic", "modified_huber")
PRIORS = ("0.8", "true", "flipped")
SIZES = {1: 64, -1: 32, 0: 128}
STEPS, EVERY, FIXED = 300, 25, (25, 50, 100, 200, 300)
N_FOLDS, N_ASIDE, LABELLED = 3, 300, 0.05


@dataclass(frozen=True)
class Setup:
    """A normal class: its rows of each kind, and rows set aside, normals first."""

    pools: Pools
    aside: torch.Tensor


@dataclass(frozen=True)
class Task:
    """One network to follow: its risk, where it draws from, and what was held out, if anything."""

    setup: Setup
    risk: Risk
    pools: Pools
    held: Pools | None
    seed: int


def make_setup(y: np.ndarray, normal_class: int, anomaly_rate: float) -> Setup:
    """The paper's setup on 85 % of the normal class's training images."""
    rng = np.random.default_rng([normal_class, round(1000 * anomaly_rate)])
    normal = rng.permutation(np.flatnonzero(y == normal_class))
    other = rng.permutation(np.flatnonzero(y != normal_class))
    n = int(0.85 * len(normal))
    aside = np.r_[normal[n:][:N_ASIDE], other[:N_ASIDE]]
    anomalies = other[N_ASIDE:][: round(n * anomaly_rate)]
    normal = normal[: n - len(anomalies)]
    n_p = round(LABELLED * len(normal))
    n_n = max(round(LABELLED * len(anomalies)), 1)
    rows = {1: normal[:n_p], -1: anomalies[:n_n], 0: np.r_[normal[n_p:], anomalies[n_n:]]}
    pools = {kind: torch.from_numpy(np.ascontiguousarray(part)) for kind, part in rows.items()}
    return Setup(pools, torch.from_numpy(aside))


def folds(pools: Pools) -> Iterator[tuple[Pools, Pools]]:
    """What is left and what is held out, three times; each labelled row is held out once."""
    for fold in range(N_FOLDS):
        # Where there are fewer anomalies than folds, some are held out twice.
        held = {kind: rows[fold % len(rows) :: N_FOLDS] for kind, rows in pools.items()}
        held[0] = held[0][:300]
        left = {k: rows[~torch.isin(rows, held[k])] for k, rows in pools.items()}
        yield left, held


def follow(tasks: Sequence[Task], data: NetworkRows, dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """AUC on what was set aside and risk on what was held out: (checks, K) each."""
    risks, seeds = [task.risk for task in tasks], [task.seed for task in tasks]
    centred = [risk.loss.bounded for risk in risks]
    shape = tuple(data.data.shape[1:])
    stack = build_stack(MODULES[dataset], shape, seeds, centred=centred).to(data.device)
    used = {kind: size for kind, size in SIZES.items() if kind in risks[0].kinds()}
    draws = Draws([task.pools for task in tasks], used, seeds, data.device)
    guard = "kiryo" if risks[0].name == "nnpu" else "clip"
    criterion = RiskCriterion(risks, draws.kinds, guard).to(data.device)
    held = [task.held for task in tasks if task.held is not None]
    validation = Validation(held, risks, data.device) if held else None
    aside = torch.stack([task.setup.aside for task in tasks]).to(data.device)
    aucs, values = [], []

    def look(_: Progress) -> None:
        aucs.append(auc(evaluate(stack, data, aside)))
        if validation is not None:
            values.append(validation(stack, data).cpu().numpy())

    settings = Settings(
        n_steps=STEPS, learning_rate=RATES[dataset], check_every=EVERY, deterministic=False
    )
    train(stack, criterion, data, draws, settings, callback=look)
    return np.stack(aucs), np.stack(values) if values else np.empty(0)


def auc(scores: torch.Tensor) -> np.ndarray:
    """AUC of each network's scores, the normals in the first half of the columns."""
    normal, anomalous = scores.float().chunk(2, dim=1)
    ordered = normal.sort(dim=1).values
    anomalous = anomalous.contiguous()
    below = sum(torch.searchsorted(ordered, anomalous, right=right) for right in (False, True))
    return (1 - below.float().mean(1) / (2 * ordered.shape[1])).cpu().numpy()


def compare(dataset: str, anomaly_rate: float, data: NetworkRows, y: np.ndarray) -> list[dict]:
    """Mean AUC over the ten normal classes, for each rule, loss and prior."""
    setups = [make_setup(y, normal_class, anomaly_rate) for normal_class in range(10)]
    kinds: dict[str, list[Task]] = {"full": [], "fifth": [], "folds": []}
    columns = [(loss, prior) for loss in LOSSES for prior in PRIORS]
    for loss, prior in columns:
        value = {"true": 1 - anomaly_rate, "flipped": anomaly_rate}.get(prior) or float(prior)
        risk = get_risk("nnrad", loss, a=0.1, prior=value)
        for k, setup in enumerate(setups):
            kinds["full"].append(Task(setup, risk, setup.pools, None, k))
            kinds["fifth"].append(Task(setup, risk, *hold_out(setup.pools, 0.2, k), k))
            kinds["folds"] += [
                Task(setup, risk, left, held, k + 100 * fold)
                for fold, (left, held) in enumerate(folds(setup.pools))
            ]
    full, _ = follow(kinds["full"], data, dataset)
    fifth, fifth_risk = follow(kinds["fifth"], data, dataset)
    _, folds_risk = follow(kinds["folds"], data, dataset)
    folds_risk = folds_risk.reshape(*full.shape, N_FOLDS).mean(-1)
    rules = {f"{steps} steps": full[steps // EVERY - 1] for steps in FIXED}
    rules["held out"] = at(fifth, fifth_risk.argmin(0))
    rules["three folds"] = at(full, folds_risk.argmin(0))
    means = {name: values.reshape(-1, 10).mean(1) for name, values in rules.items()}
    return [
        {"dataset": dataset, "pi_n": anomaly_rate, "loss": loss, "prior": prior}
        | {name: round(float(values[j]), 4) for name, values in means.items()}
        for j, (loss, prior) in enumerate(columns)
    ]


def at(curves: np.ndarray, step: np.ndarray) -> np.ndarray:
    """The value of each curve at its own step."""
    return np.take_along_axis(curves, step[None], 0)[0]


def follow_pu(dataset: str, anomaly_rate: float, data: NetworkRows, y: np.ndarray) -> dict:
    """NnPU with the true prior, over fixed numbers of steps."""
    risk = get_risk("nnpu", "sigmoid", prior=1 - anomaly_rate)
    setups = [make_setup(y, normal_class, anomaly_rate) for normal_class in range(10)]
    curves, _ = follow(
        [Task(s, risk, s.pools, None, k) for k, s in enumerate(setups)], data, dataset
    )
    steps = {f"{steps} steps": curves[steps // EVERY - 1] for steps in FIXED}
    return {"dataset": dataset, "pi_n": anomaly_rate, "method": "nnpu"} | {
        name: round(float(values.mean()), 4) for name, values in steps.items()
    }


def follow_sad(
    dataset: str, anomaly_rate: float, data: NetworkRows, y: np.ndarray
) -> Iterator[dict]:
    """Deep SAD with 300 steps of pre-training, over fixed numbers of steps."""
    setups = [make_setup(y, normal_class, anomaly_rate) for normal_class in range(10)]
    aside = torch.stack([setup.aside for setup in setups]).to(data.device)
    for rate in (1e-4, 1e-3):
        for steps in (100, 300):
            members = [
                DeepSAD(
                    MODULES[dataset], n_steps=steps, pretrain_steps=300, learning_rate=rate,
                    scale=False, random_state=k,
                )
                for k in range(10)
            ]  # fmt: skip
            first = members[0]
            first.shape_ = tuple(data.data.shape[1:])
            stack = first._build(members).to(data.device)
            pools = [setup.pools for setup in setups]
            first._train(members, stack, data, pools, deterministic=False)
            scores = first._from_outputs(members, evaluate(stack, data, aside))
            yield {
                "dataset": dataset, "pi_n": anomaly_rate, "method": "sad", "learning_rate": rate,
                "steps": steps, "auc": round(float(auc(scores).mean()), 4),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dataset", choices=MODULES, action="append")
    parser.add_argument("--pi-n", type=float, action="append")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for dataset in arguments.dataset or MODULES:
        images = load_images(dataset)
        data = NetworkRows(torch.from_numpy(images.X_train).to(choose_device("auto")))
        for anomaly_rate in arguments.pi_n or (0.01, 0.1):
            start = time.perf_counter()
            rows += compare(dataset, anomaly_rate, data, images.y_train)
            rows.append(follow_pu(dataset, anomaly_rate, data, images.y_train))
            rows += follow_sad(dataset, anomaly_rate, data, images.y_train)
            print(f"{dataset}, pi_n = {anomaly_rate}: {time.perf_counter() - start:.0f} s")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row) for row in rows)
    arguments.output.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
