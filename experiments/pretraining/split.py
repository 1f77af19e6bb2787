"""Which of the collected tables are trained on, which are kept to judge, and which are left out.

    python -m experiments.pretraining.split PAPER_FOLDER

Tables are relatives if their names share a rare word, if they come from the same batch of their
collection, or if columns of theirs hold the same values. Relatives of the paper's sets are left
out: these judge at the very end. Of the others, families are kept by a hash of their first name
until a quarter is reached. `results/pretrained/split.json` has hashes of names, since the tables
may not be published. They are read from `tables/tables.npz` in the folder that RISKAD_DATA names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.datasets.fetch import data_folder
from experiments.runner import RESULTS, NotAvailable

SPLIT = RESULTS / "pretrained" / "split.json"
_KEPT_SHARE = 0.25
_RARE = 6  # a word in more names than that tells nothing
_PAPER_WORDS = {"thyroi", "hypoth", "allbp", "vowels", "wavefo", "bank", "bankad"}
_FEWEST_VALUES = 60  # of a column that can be recognised


def name_hash(name: str) -> str:
    """A name that does not tell the name."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def hashes(side: str) -> list[str]:
    """Hashes of the tables of one side: "train", "kept" or "left_out"; in the order of names."""
    return list(json.loads(SPLIT.read_text())[side])


def tables_path() -> Path:
    """Where the collected tables are."""
    folder = data_folder()
    path = None if folder is None else folder / "tables" / "tables.npz"
    if path is None or not path.exists():
        raise NotAvailable("tables/tables.npz is not in the folder that RISKAD_DATA names")
    return path


def table_names(side: str | None = None) -> list[str]:
    """Names of the collected tables, or of those of one side, in order."""
    with np.load(tables_path()) as arrays:
        names = sorted(key[:-2] for key in arrays.files if key.endswith("|X"))
    chosen = None if side is None else set(hashes(side))
    return [name for name in names if chosen is None or name_hash(name) in chosen]


def read_table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a table as stored, and which are anomalies."""
    with np.load(tables_path()) as arrays:
        return arrays[f"{name}|X"], arrays[f"{name}|y"].astype(bool)


def kept_table(table_hash: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows in double precision and anomalies of the table with this hash."""
    try:
        name = next(name for name in table_names() if name_hash(name) == table_hash)
    except NotAvailable as error:
        raise NotAvailable(str(error), dataset=table_hash) from None
    X, y = read_table(name)
    return X.astype(float), y


# --- relatives ---------------------------------------------------------------------------


class Column(NamedTuple):
    """What a column can be recognised by."""

    values: np.ndarray
    quantiles: np.ndarray


def words(name: str) -> set[str]:
    """Beginnings of the long words of a name, and its first word; or its batch."""
    rest = name.split("_", 1)[1]
    if batch := re.match(r"batch-\d+", rest):
        return {batch[0]}
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", rest)
    return {word.lower()[:6] for i, word in enumerate(parts) if i == 0 or len(word) > 4}


def recognisable(X: np.ndarray, most: int = 40) -> list[Column]:
    """Columns of many values that are not simply 0, 1, 2 and so on."""
    columns = []
    for x in X.T[:most]:
        values = np.unique(x)
        whole = bool(np.all(values == np.round(values)))
        counted = whole and len(values) > 0.3 * (float(values[-1]) - float(values[0]) + 1)
        if len(values) >= _FEWEST_VALUES and not counted:
            columns.append(Column(values, np.quantile(x.astype(float), [0.1, 0.3, 0.5, 0.7, 0.9])))
    return columns


def alike(a: Column, b: Column) -> bool:
    """Nearly the same quantiles, and a fifth of the values in common."""
    scale = max(np.ptp(a.quantiles), np.ptp(b.quantiles), 1e-12)
    if np.abs(a.quantiles - b.quantiles).max() > 0.15 * scale:
        return False
    both = int(np.isin(a.values, b.values, assume_unique=True).sum())
    return both > 0.2 * (len(a.values) + len(b.values) - both)


def relatives(a: list[Column], b: list[Column]) -> bool:
    """More than half of the columns of the narrower one are alike."""
    narrow, wide = sorted((a, b), key=len)
    misses = 0
    for column in narrow:
        misses += not any(alike(column, other) for other in wide)
        if 2 * misses >= len(narrow):
            return False
    return len(narrow) > 0


def families(names: list[str], pairs: list[tuple[str, str]]) -> list[list[str]]:
    """Names in groups of relatives: by rare words, and by pairs whose values are alike."""
    by_name = {name: words(name) for name in names}
    common = Counter(itertools.chain(*by_name.values()))
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for a, b in itertools.combinations(names, 2):
        if any(common[word] <= _RARE for word in by_name[a] & by_name[b]):
            parent[root(b)] = root(a)
    for a, b in pairs:
        parent[root(b)] = root(a)
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(root(name), []).append(name)
    return list(groups.values())


def of_the_paper(names: list[str], paper: set[str], pairs: list[tuple[str, str]]) -> set[str]:
    """Tables of the same origin as one of the paper's: by words, or by values."""
    related = {name for name in names if words(name) & _PAPER_WORDS} | paper
    for a, b in pairs:
        if a in related or b in related:
            related |= {a, b}
    return related - paper


def split(groups: list[list[str]], left_out: set[str]) -> dict[str, list[str]]:
    """Names by side."""
    sides: dict[str, list[str]] = {"train": [], "kept": [], "left_out": sorted(left_out)}
    groups = [[name for name in group if name not in left_out] for group in groups]
    total = sum(map(len, groups))
    for group in sorted(filter(None, groups), key=lambda group: name_hash(group[0])):
        fits = len(sides["kept"]) + len(group) <= _KEPT_SHARE * total
        sides["kept" if fits else "train"] += group
    return sides


def main() -> None:
    """Split once."""
    tables = {name: read_table(name)[0] for name in table_names()}
    files = Path(sys.argv[1]).glob("*.npz")
    paper = {f"paper {file.stem}": np.load(file)["X"][:3000] for file in files}
    paper = {name: X.astype(np.float32) for name, X in paper.items() if X.ndim == 2}
    columns = {name: recognisable(X) for name, X in (tables | paper).items()}
    pairs = [
        (a, b)
        for a, b in itertools.combinations(columns, 2)
        if not (a in paper and b in paper) and relatives(columns[a], columns[b])
    ]
    left_out = of_the_paper(list(tables), set(paper), pairs)
    among = [pair for pair in pairs if not paper.keys() & set(pair)]
    sides = split(families(list(tables), among), left_out)
    print({side: len(names) for side, names in sides.items()})
    by_side = {side: [name_hash(name) for name in sorted(names)] for side, names in sides.items()}
    SPLIT.write_text(json.dumps(by_side, indent=0) + "\n")


if __name__ == "__main__":
    main()
