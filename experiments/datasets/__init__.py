"""Datasets with known truth: the tables of ADBench, image sets, collected tables, and splits.

The repository contains none of them, and each keeps the terms of its source. If the environment
variable `RISKAD_DATA` names a folder, they are read from its folders `adbench`, `images` and
`tables`, and nothing is downloaded. Otherwise they are downloaded once into the user's cache
folder. If the SHA-256 sum of a file is known, it is checked each time the file is read.
"""

# ruff: noqa: F401

from experiments.datasets.images import IMAGE_SETS, ImageDataset, load_images
from experiments.datasets.splits import (
    OneClassSplit,
    Split,
    anomaly_budget,
    label_anomalies,
    make_split,
    one_class_split,
)
from experiments.datasets.tables import (
    PAPER_SETS,
    Dataset,
    collected_name,
    load_adbench,
    load_collected,
)
