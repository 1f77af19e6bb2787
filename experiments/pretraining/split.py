"""Which of the collected tables the network was trained on, and which are kept to judge it.

Tables are relatives if their names share a rare word, if they come from the same batch of their
collection, or if columns of theirs hold the same values. Relatives of the paper's sets are left
out: these judge at the very end. Of the others, families are kept by a hash of their first name
until a quarter is reached. `results/pretrained/split.json` has the outcome, as hashes of names in
the order of names, since the tables may not be published; the script that made it is
`benchmarks/pretraining/split.py` of commit bb7e85f. Tables are read from `tables/tables.npz` in the
folder that RISKAD_DATA names.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np

from experiments.datasets.fetch import data_folder
from experiments.runner import RESULTS, NotAvailable

SPLIT = RESULTS / "pretrained" / "split.json"


def name_hash(name: str) -> str:
    """A name that does not tell the name."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def hashes(side: str) -> list[str]:
    """Hashes of the tables of one side: "train", "kept" or "left_out"; in the order of names."""
    return list(json.loads(SPLIT.read_text())[side])


def load_table(table_hash: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows and anomalies of the collected table with this hash."""
    folder = data_folder()
    path = None if folder is None else folder / "tables" / "tables.npz"
    if path is None or not path.exists():
        reason = "tables/tables.npz is not in the folder that RISKAD_DATA names"
        raise NotAvailable(reason, dataset=table_hash)
    with np.load(path) as arrays:
        name = next(key[:-2] for key in arrays.files if name_hash(key[:-2]) == table_hash)
        return arrays[f"{name}|X"].astype(float), arrays[f"{name}|y"].astype(bool)
