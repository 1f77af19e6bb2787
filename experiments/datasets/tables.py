"""Tables of numbers with known truth: ADBench (Han et al., 2022) and collected tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.datasets.fetch import File, data_folder, load_file, unpack_npz
from experiments.runner import NotAvailable
from riskad.core.checks import lookup
from riskad.core.labels import ANOMALY, NORMAL, Codes


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of numbers as published, not scaled, and the truth about each: +1 normal, -1 anomaly.

    Seeds depend on the name, so another name gives another split. To learn from a dataset, split
    it and hide most labels of the training rows: `make_split`.
    """

    name: str
    X: NDArray[np.float64]
    y: Codes

    @property
    def anomaly_rate(self) -> float:
        """The share of anomalies among all rows."""
        return float(np.mean(self.y == ANOMALY))


# --- ADBench: tables, images as ResNet-18 and texts as BERT embeddings -------------------

_BASE_URL = "https://github.com/Minqi824/ADBench/raw/main/adbench/datasets"

# In ADBench's order: file names start with the position in this list.
_CLASSICAL = """
    ALOI annthyroid backdoor breastw campaign cardio Cardiotocography celeba census cover donors
    fault fraud glass Hepatitis http InternetAds Ionosphere landsat letter Lymphography magic.gamma
    mammography mnist musk optdigits PageBlocks pendigits Pima satellite satimage-2 shuttle skin
    smtp SpamBase speech Stamps thyroid vertebral vowels Waveform WBC WDBC Wilt wine WPBC yeast
"""
# Of the images and texts, those that experiments use.
_EMBEDDED = {
    "CV_by_ResNet18": "CIFAR10_0 CIFAR10_1 SVHN_0 SVHN_1",
    "NLP_by_BERT": "20news_1 20news_3 agnews_1 amazon imdb yelp",
}
_FILES = {name: f"Classical/{i}_{name}" for i, name in enumerate(_CLASSICAL.split(), start=1)} | {
    name: f"{group}/{name}" for group, names in _EMBEDDED.items() for name in names.split()
}

# Of the files without the extension ".npz".
_SHA256 = {
    "5_campaign": "74dd4d0072d6c6f1aabab63bc102f9633454f32bb936fa9bcfbd38f9f2386bcd",
    "6_cardio": "bc5009bde6930b4d298b594f31b34485a9a17210cff0e8fb00a8c3068b885a2d",
    "7_Cardiotocography": "5ae84910430f05923e11b6f537243263977c9136949dabd891e3570aeec51e29",
    "12_fault": "ec27301f9a4cf7c5d8b22c360cf37ddb043b7fb062465723dfd8b34e2771e5dd",
    "17_InternetAds": "bdd8ad5cf5bf2cb96cba53dde30d522d0f6a279083a8e2bc7efbac5981b04385",
    "19_landsat": "ba17e2158c07469597b89db49d3982c874c6b713ff6670721ddc88969da77987",
    "22_magic.gamma": "0be375984d7af9ea7a63b12206c240840d8b7daa3607021c5fb8756407dd86f1",
    "23_mammography": "a0308ac9712d78321073b1c2dc98dc37665c0f35c1cc33019416fe8f8d7de7ea",
    "24_mnist": "be7706272325fdd3592c1be555ae1a82f916a2f8545f4f8cbaa548ab102cc44c",
    "26_optdigits": "60de17a375a278ba220a7849727d998aa02b5e2f9fd17732a004bba28de4656e",
    "28_pendigits": "c4936b89dcdad59d303020e492f763a0f54170080d787c77497609acbb9c2d79",
    "30_satellite": "1f048f5686f1b8c16a227fdfa3c81a62cd9a92715714a6b24c69b1c5ad96b46e",
    "31_satimage-2": "1b056e357f801b8b20c3f380a30224a3c4088d7ed764ec5a24828dc9b1918d6f",
    "35_SpamBase": "d0c46c7928e43f6496bcd06e09de0b70f6bc8143792dfa0a43f450263d254e9b",
    "37_Stamps": "99fe739447284f613fa54bf2dccdb51c5120175ce6260adec6dad77576c42509",
    "38_thyroid": "8de161b3f235b7647bb0b39a836d983ff61d67bf234edac461da2d71e889cb87",
    "39_vertebral": "0816286f92b96fe6867664a41a031ac7228dcfbf1a5feefe50ca3883b2e9073d",
    "40_vowels": "4bfc4244d1c882773bbbc50d4a5db5e52276e53506e46b2d45e02d074cfcb1b6",
    "41_Waveform": "6c9d867337ad1a2f8372c1d27f4c032f0401237e2041b7c45f00de8d319ff30f",
    "CIFAR10_0": "f0e89be5576c37e5c2f7393f7a478d8ec0cc348559fc177c273ff076ef10db00",
    "SVHN_0": "3526704c19ae4c62337a37f1f9294e3ec065d9f7a8e21f9e7c881b5acab13579",
    "20news_3": "b5a1d572cac7c81ebc3cf485649c45b7580cb326edf07a1681679984d016831d",
}

# The sets of the paper's tables 1 and 3, in its order.
_PAPER_SETS = """
    pendigits mammography optdigits Stamps cardio InternetAds Cardiotocography magic.gamma SpamBase
    satimage-2 thyroid vowels Waveform CIFAR10_1 SVHN_1 20news_1 agnews_1 amazon imdb yelp mnist
    campaign vertebral landsat satellite fault
"""
PAPER_SETS = tuple(_PAPER_SETS.split())


def load_adbench(name: str) -> Dataset:
    """Load a dataset of ADBench, such as "pendigits", "CIFAR10_1" or "imdb"; case matters."""
    path = lookup("dataset", name, _FILES)
    file = path.partition("/")[2]
    url = f"{_BASE_URL}/{path}.npz"
    X, y = load_file(File(name, "adbench", f"{file}.npz", url, _SHA256.get(file)), _parse)
    return Dataset(name, X, y)


def _parse(content: bytes) -> tuple[NDArray[np.float64], Codes]:
    """Return the rows and the truth from an .npz file of ADBench."""
    X, y = unpack_npz(content, "X", "y")
    return np.ascontiguousarray(X, dtype=np.float64), _truth(y.ravel())


def _truth(y: NDArray[Any]) -> Codes:
    """From 1 for an anomaly and 0 for a normal row."""
    return np.where(y == 1, ANOMALY, NORMAL).astype(np.int16)


# --- collected tables --------------------------------------------------------------------


def collected_name(name: str) -> str:
    """Return what a collected table is called in the collection: "table 017" is the eighteenth."""
    with _collection(name) as arrays:
        return _named(arrays, name)


def load_collected(name: str) -> Dataset:
    """Load one of 418 real tables of OddBench and OvRBench (arXiv 2602.09329) by its number.

    They may not be passed on: who has them puts `tables.npz` into the folder `tables` of the folder
    that `RISKAD_DATA` names, with the arrays "NAME|X" and "NAME|y" (1 anomaly, 0 normal) of each
    table. "table 017" is the eighteenth in the order of names.
    """
    with _collection(name) as arrays:
        table = _named(arrays, name)
        return Dataset(name, arrays[f"{table}|X"].astype(float), _truth(arrays[f"{table}|y"]))


def _collection(name: str) -> Any:
    path = (data_folder() or Path("nowhere")) / "tables" / "tables.npz"
    if not path.exists():
        raise NotAvailable(
            "tables/tables.npz is not in the folder that RISKAD_DATA names", dataset=name
        )
    return np.load(path)


def _named(arrays: Any, name: str) -> str:
    names = sorted({key.partition("|")[0] for key in arrays.files})
    return names[int(name.removeprefix("table "))]
