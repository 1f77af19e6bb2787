"""Which of the real tables are trained on, which are kept to judge, and which are left out.

    python -m benchmarks.pretraining.split TABLES.npz PAPER_FOLDER results/pretrained/split.json

Tables are relatives if their names share a rare word, if they come from the same batch of their
collection, or if columns of theirs hold the same values. Relatives of the paper's sets are left
out: these judge at the very end. Of the others, families are kept by a hash of their first name
until a quarter is reached. The file has hashes of names, since the tables may not be published.
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

KEPT_SHARE = 0.25
RARE = 6  # a word in more names than that tells nothing
PAPER_WORDS = {"thyroi", "hypoth", "allbp", "vowels", "wavefo", "bank", "bankad"}
FEWEST_VALUES = 60  # of a column that can be recognised


class Column(NamedTuple):
    """What a column can be recognised by."""

    values: np.ndarray
    quantiles: np.ndarray


def name_hash(name: str) -> str:
    """A name that does not tell the name."""
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def words(name: str) -> set[str]:
    """Beginnings of the long words of a name, and its first word; or its batch."""
    rest = name.split("_", 1)[1]
    if batch := re.match(r"batch-\d+", rest):
        return {batch[0]}
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", rest)
    return {word.lower()[:6] for i, word in enumerate(found) if i == 0 or len(word) > 4}


def recognisable(X: np.ndarray, most: int = 40) -> list[Column]:
    """Columns of many values that are not simply 0, 1, 2 and so on."""
    columns = []
    for x in X.T[:most]:
        values = np.unique(x)
        whole = bool(np.all(values == np.round(values)))
        counted = whole and len(values) > 0.3 * (float(values[-1]) - float(values[0]) + 1)
        if len(values) >= FEWEST_VALUES and not counted:
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
    for one in narrow:
        misses += not any(alike(one, other) for other in wide)
        if 2 * misses >= len(narrow):
            return False
    return len(narrow) > 0


def families(names: list[str], pairs: list[tuple[str, str]]) -> list[list[str]]:
    """Names in groups of relatives: by rare words, and by pairs whose values are alike."""
    said = {name: words(name) for name in names}
    common = Counter(itertools.chain(*said.values()))
    parent = {name: name for name in names}

    def root(name: str) -> str:
        while parent[name] != name:
            name = parent[name]
        return name

    for a, b in itertools.combinations(names, 2):
        if any(common[word] <= RARE for word in said[a] & said[b]):
            parent[root(b)] = root(a)
    for a, b in pairs:
        parent[root(b)] = root(a)
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(root(name), []).append(name)
    return list(groups.values())


def of_the_paper(names: list[str], paper: set[str], pairs: list[tuple[str, str]]) -> set[str]:
    """Tables of the same origin as one of the paper's: by words, or by values."""
    found = {name for name in names if words(name) & PAPER_WORDS} | paper
    for a, b in pairs:
        if a in found or b in found:
            found |= {a, b}
    return found - paper


def split(groups: list[list[str]], left_out: set[str]) -> dict[str, list[str]]:
    """Names by side."""
    sides: dict[str, list[str]] = {"train": [], "kept": [], "left_out": sorted(left_out)}
    groups = [[name for name in group if name not in left_out] for group in groups]
    total = sum(map(len, groups))
    for group in sorted(filter(None, groups), key=lambda group: name_hash(group[0])):
        fits = len(sides["kept"]) + len(group) <= KEPT_SHARE * total
        sides["kept" if fits else "train"] += group
    return sides


def read_tables(file: str | Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Values and labels (1 anomaly) by name."""
    with np.load(file) as data:
        X = {key[:-2]: data[key] for key in data.files if key.endswith("|X")}
        return X, {name: data[name + "|y"].astype(bool) for name in X}


def side(file: str | Path, names: list[str], which: str) -> list[str]:
    """Names on one side, by a file of hashes."""
    known = set(json.loads(Path(file).read_text())[which])
    return sorted(name for name in names if name_hash(name) in known)


def main() -> None:
    """Split once."""
    source, folder, target = (Path(argument) for argument in sys.argv[1:])
    tables, _ = read_tables(source)
    paper = {f"paper {file.stem}": np.load(file)["X"][:3000] for file in folder.glob("*.npz")}
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
    print({which: len(names) for which, names in sides.items()})
    hashes = {which: sorted(map(name_hash, names)) for which, names in sides.items()}
    target.write_text(json.dumps(hashes, indent=0) + "\n")


if __name__ == "__main__":
    main()
