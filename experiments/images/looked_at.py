"""What the network saw of the pictures of an image set, computed once and kept in a folder.

    python -m experiments.images.looked_at CIFAR-10 F-MNIST MNIST

The folder is the one that `RISKAD_PICTURES` names, `.pictures` by default. A file holds a record
for each of the first 20,000 training pictures, and then of the first 5,000 test pictures; a run
that was cut off goes on. 32 pixels a side become 96.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.datasets import load_images
from experiments.images.network import export
from riskad import read_pictures
from riskad.tables.backbones import Backbone, trust_backbone

SIDE = 96
N_TRAIN, N_TEST = 20_000, 5_000
FOLDER = Path(os.environ.get("RISKAD_PICTURES", ".pictures"))
_BATCH = 1_000


def backbone(side: int = SIDE) -> Backbone:
    """The network for pictures of `side` pixels."""
    return trust_backbone(export(FOLDER / f"efficientnet-lite0-{side}.onnx", side))


def records_of(name: str, side: int = SIDE) -> NDArray[np.void]:
    """The records of a set, computed now if they are not there."""
    network = backbone(side)
    path = FOLDER / f"{name}-{side}.records"
    size, n = network.record.itemsize, N_TRAIN + N_TEST
    begun = path.stat().st_size // size if path.exists() else 0
    if begun < n:
        images = load_images(name)
        pixels = [*images.X_train[:N_TRAIN], *images.X_test[:N_TEST]]
        start = time.perf_counter()
        with open(path, "ab") as file:
            file.truncate(begun * size)
            for first in range(begun, n, _BATCH):
                some = read_pictures(
                    [np.moveaxis(p, 0, -1) for p in pixels[first : first + _BATCH]]
                )
                for _, record in network.look(some["picture"].to_list()):
                    file.write(record.tobytes())
            each = 1000 * (time.perf_counter() - start) / (n - begun)
            print(f"{name}: {n - begun:,} pictures, {each:.1f} ms each", flush=True)
    return np.memmap(path, dtype=network.record, mode="r")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        records_of(each)
