"""Benchmark sets by name, and the paper's protocols over them.

======================  ===============================================================
room                    knows
======================  ===============================================================
`adbench`               the 121 tables of ADBench: `load_adbench`
`images`                MNIST, F-MNIST and CIFAR-10: `load_images`
`protocols`             which rows are trained on, which labels are kept
`fetch`                 files: in a folder of yours or downloaded, whole or damaged
======================  ===============================================================

None of the sets comes with this package, and each keeps the terms of its own source. If the
environment variable `RISKAD_DATA` names a folder, they are read from its folders `adbench` and
`images`, and nothing is ever downloaded; otherwise they are downloaded once into the cache folder
of the user. Where the SHA-256 sum of a file is known, it is checked each time the file is read.
"""

from riskad.datasets.adbench import Dataset, adbench_names, load_adbench
from riskad.datasets.fetch import DatasetMissing
from riskad.datasets.images import IMAGE_SETS, ImageDataset, load_images
from riskad.datasets.protocols import (
    OneClassSplit,
    label_anomalies,
    mask_labels,
    one_class_split,
)

__all__ = [
    "IMAGE_SETS",
    "Dataset",
    "DatasetMissing",
    "ImageDataset",
    "OneClassSplit",
    "adbench_names",
    "label_anomalies",
    "load_adbench",
    "load_images",
    "mask_labels",
    "one_class_split",
]
