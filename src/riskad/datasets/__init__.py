"""Datasets with known truth: benchmark sets by name, tables of your own, and the protocols.

======================  ===============================================================
module                  knows
======================  ===============================================================
`sources`               the kinds of dataset that experiments may name, in one registry
`adbench`               the 121 tables of ADBench: `load_adbench`
`images`                MNIST, F-MNIST and CIFAR-10: `load_images`
`files`                 tables of your own, CSV, Parquet or npz: `load_table`
`dataset`               rows and the truth about them
`protocols`             which rows to train on, which labels to keep
`fetch`                 files: from a folder of yours or downloaded, with integrity checks
======================  ===============================================================

The package contains none of the benchmark sets, and each keeps the terms of its source. If the
environment variable `RISKAD_DATA` names a folder, they are read from its folders `adbench` and
`images`, and nothing is downloaded. Otherwise they are downloaded once into the user's cache
folder. If the SHA-256 sum of a file is known, it is checked each time the file is read.
"""

from riskad.datasets.adbench import adbench_names, load_adbench
from riskad.datasets.dataset import Dataset, FrameDataset
from riskad.datasets.fetch import DatasetMissing
from riskad.datasets.files import load_table
from riskad.datasets.images import IMAGE_SETS, ImageDataset, load_images
from riskad.datasets.protocols import OneClassSplit, label_anomalies, mask_labels, one_class_split
from riskad.datasets.sources import SOURCES, DatasetSource, read_source

__all__ = [
    "IMAGE_SETS",
    "SOURCES",
    "Dataset",
    "DatasetMissing",
    "DatasetSource",
    "FrameDataset",
    "ImageDataset",
    "OneClassSplit",
    "adbench_names",
    "label_anomalies",
    "load_adbench",
    "load_images",
    "load_table",
    "mask_labels",
    "one_class_split",
    "read_source",
]
