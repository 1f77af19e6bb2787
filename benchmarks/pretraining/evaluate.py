"""How well a network tells anomalies in real tables, on the device, while it is trained."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.pretraining.network import Network, channels

MOST_NORMAL, MOST_ANOMALY, UNLABELLED = 400, 200, 300  # rows that are read
NEIGHBOURS = 10


class Case(NamedTuple):
    """A table with some labels: rows that are read come first."""

    Z: np.ndarray
    state: np.ndarray
    y: np.ndarray
    context: int
    free: np.ndarray
    """Rows without a label, which are judged."""


def labelled(y: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Rows drawn to be labelled; both kinds among them."""
    rng = np.random.default_rng(seed)
    while True:
        known = rng.random(len(y)) < share
        if 0 < y[known].sum() < known.sum():
            return known


def case(X: np.ndarray, y: np.ndarray, known: np.ndarray, most: int, seed: int = 0) -> Case:
    """What `PretrainedRAD` would read, with two outlier scores."""
    rng = np.random.default_rng(seed)
    sizes = ((known & ~y, MOST_NORMAL), (known & y, MOST_ANOMALY), (~known, UNLABELLED))
    read = np.concatenate([rng.permutation(np.flatnonzero(kind))[:n] for kind, n in sizes])
    state = np.where(known, np.where(y, 2, 1), 0)
    Z = _drawn_in(_z(X.astype(float)))
    if Z.shape[1] > most:
        U = np.linalg.svd(Z - Z.mean(axis=0), full_matrices=False)[0][:, :24]
        Z = _drawn_in(U * math.sqrt(len(U)))
    T = torch.from_numpy(Z)
    near = torch.cdist(T, T).topk(NEIGHBOURS + 1, 1, largest=False).values[:, -1].numpy()
    scores = np.stack([np.log(near + 0.03), (Z**2).mean(axis=1)], axis=1)
    Z = np.hstack([Z, _drawn_in(_z(scores))]).astype(np.float32)
    free = np.flatnonzero(~known)
    return Case(
        np.concatenate([Z[read], Z[free]]),
        np.concatenate([state[read], np.zeros(len(free), int)]),
        y[free],
        len(read),
        free,
    )


def _z(X: np.ndarray) -> np.ndarray:
    return (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)


def _drawn_in(z: np.ndarray) -> np.ndarray:
    return np.sign(z) * np.log1p(np.abs(z))


@torch.no_grad()
def scores(network: Network, case: Case, device: str) -> np.ndarray:
    """Of the rows that are judged."""
    Z = torch.from_numpy(case.Z).to(device)[None]
    state = torch.from_numpy(case.state).to(device)[None]
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        found = network(channels(Z, state, case.context), state, case.context)
    return found[0, case.context :].float().cpu().numpy()


def auc_and_ap(scores: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Area under the ROC curve and average precision; ties count half, or in any order."""
    order = np.argsort(-scores, kind="stable")
    hits = y[order]
    odd = int(y.sum())
    ranks = np.empty(len(y))
    ranks[order] = np.arange(len(y), 0, -1)
    area = (ranks[y].sum() - odd * (odd + 1) / 2) / (odd * (len(y) - odd))
    precision = np.cumsum(hits) / np.arange(1, len(y) + 1)
    return float(area), float(precision[hits].mean())


def cases(
    X: Mapping[str, np.ndarray], y: Mapping[str, np.ndarray], names: Sequence[str], share: float
) -> list[Case]:
    """One of each table."""
    return [
        case(X[name], y[name], labelled(y[name], share, seed=i), 40) for i, name in enumerate(names)
    ]


def mean_auc_and_ap(network: Network, among: Sequence[Case], device: str) -> tuple[float, float]:
    """Over all tables."""
    network.eval()
    found = [auc_and_ap(scores(network, one, device), one.y) for one in among]
    areas, precisions = zip(*found, strict=True)
    return float(np.mean(areas)), float(np.mean(precisions))
