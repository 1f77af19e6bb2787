"""The network of `AutoRAD` on a device of torch beside NumPy: rows a second, and how scores differ.

It needs NumPy, threadpoolctl and torch alone, since a machine with a GPU may have no more:

    PYTHONPATH=src python experiments/speed/device.py cuda

prints one JSON object. Rows are drawn; the context is that of a fit with 75 labelled rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from riskad.detectors.table_network import TableNetwork
from riskad.detectors.table_network_torch import DeviceNetwork


def least_seconds(side: Callable[[], object], runs: int = 3) -> float:
    """Return the least wall time; scores are on the host again when a side returns."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        side()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def compare(device: str, columns: int, rows: int) -> dict[str, float]:
    """Return rows a second of both, and the largest difference of their scores."""
    rng = np.random.default_rng(0)
    network = TableNetwork.load("tables-3")
    context = rng.normal(size=(375, columns)).astype(np.float32)
    states = np.repeat([0, 1, 2], [300, 65, 10])
    context[states == 2, :3] += 1.5
    memory = network.read(context, states)
    moved = DeviceNetwork(network, memory, device)
    Z = rng.normal(size=(rows, columns)).astype(np.float32)
    few = Z[:2_048]  # NumPy in blocks of 256, as PretrainedRAD scores them on one core

    def by_numpy() -> np.ndarray:
        blocks = range(0, len(few), 256)
        return np.concatenate([network.score(few[i : i + 256], memory) for i in blocks])

    moved.scores(few)
    ours, theirs = by_numpy(), moved.scores(few)
    slow, fast = least_seconds(by_numpy), least_seconds(lambda: moved.scores(Z))
    return {
        "columns": columns,
        "rows_per_second_numpy": round(len(few) / slow),
        "rows_per_second_device": round(rows / fast),
        "times_as_fast": round(rows / fast * slow / len(few), 1),
        "largest_difference": float(f"{np.abs(ours - theirs).max():.2g}"),
        "one_row_ms_device": round(1e3 * least_seconds(lambda: moved.scores(Z[:1]), 20), 2),
    }


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cuda"
    n_rows = 200_000 if where.startswith("cuda") else 2_048
    name = torch.cuda.get_device_name() if where.startswith("cuda") else where
    shapes = [compare(where, columns, n_rows) for columns in (7, 12, 22, 42)]
    print(json.dumps({"device": name, "rows": n_rows, "shapes": shapes}, indent=2))
