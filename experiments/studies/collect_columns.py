"""Collect the cells of the columns that labels.txt and labels_held_out.txt name.

    python -m experiments.studies.collect_columns FOLDER

FOLDER holds the unpacked packages of tests/fixtures/columns/README.md, each under its name. Run
only to add columns: the cells are kept there, so that the tests need none of the packages.
"""

import bz2
import gzip
import io
import json
import lzma
import re
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import polars as pl

HERE = Path(__file__).parents[2] / "tests" / "fixtures" / "columns"
CELLS = {"identifier": 200, "text": 120, "list": 120, "category": 240, "categories": 240}
OTHER_CELLS = 60
MOST_LEVELS = 60  # of a column with more, the levels that are sampled


def read_labels(path):
    """Yield file, options, column, kind and kinds that are as right."""
    file, options = "", []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        found = re.match(r"([a-z]+)(?:\(([a-z ]+)\))?: (.*)", line)
        if not found:
            file, *options = line.split(" ")
            continue
        kind, also, columns = found.groups()
        for column in columns.split(" ; "):
            yield file, options, column.strip('"'), kind, also.split(" ") if also else []


def read_file(path, header=True):
    """All cells as strings."""
    raw = path.read_bytes()
    for suffix, unpack in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        raw = unpack.decompress(raw) if path.suffix == suffix else raw
    if path.suffix == ".zip":
        archive = zipfile.ZipFile(io.BytesIO(raw))
        raw = archive.read(archive.namelist()[0])
    if path.suffix == ".json":
        rows = json.loads(raw)
        texts = [
            {
                key: value if value is None or isinstance(value, str) else json.dumps(value)
                for key, value in row.items()
            }
            for row in rows
        ]
        return pl.DataFrame(texts, infer_schema_length=None)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        raw = raw.decode("cp1252", "replace").encode()
    first = raw.split(b"\n", 1)[0].decode()
    separator = max(",;\t|", key=first.count)
    options = {"infer_schema": False, "separator": separator, "truncate_ragged_lines": True}
    return pl.read_csv(raw, has_header=header, **options)


def sample(cells, kind, rng):
    """Some rows in their order: like the column in what its kind depends on."""
    n, most = len(cells), CELLS.get(kind, OTHER_CELLS)
    if n <= most:
        return cells
    blank = cells.is_null().to_numpy()
    filled = np.flatnonzero(~blank)
    if kind == "identifier":  # rows that are numbered are so one after the other
        return cells.slice(int(filled[0]), most)
    counts = cells.drop_nulls().value_counts(sort=True, name="n")
    if kind == "categories" and len(counts) > MOST_LEVELS:
        share = counts["n"].to_numpy() / counts["n"].sum()
        kept = rng.choice(len(counts), MOST_LEVELS, replace=False, p=share)
        levels = counts[cells.name].gather(sorted(kept.tolist()))
        filled = np.flatnonzero(cells.is_in(levels.implode()).fill_null(False).to_numpy())
    n_blank = min(round(most * blank.mean()), most - min(20, len(filled)))
    first = []  # a row of each level, so that none of few is lost
    if len(counts) <= MOST_LEVELS or kind == "categories":
        texts = cells.to_list()
        place = {texts[row]: row for row in reversed(filled.tolist())}
        first = sorted(place.values())[: most - n_blank]
    rest = np.setdiff1d(filled, first)
    more = rng.choice(rest, min(len(rest), most - n_blank - len(first)), replace=False)
    gaps = rng.choice(np.flatnonzero(blank), n_blank, replace=False)
    return cells.gather(np.sort(np.concatenate([first, more, gaps]).astype(int)))


def collect(folder, labels, written):
    """Write a file of columns, one column to a line."""
    lines, frames = [], {}
    for file, options, column, kind, also in read_labels(HERE / labels):
        if file not in frames:
            frames = {file: read_file(folder / file, "noheader" not in options)}
        cells = frames[file][column]
        cells = cells.set(cells == "", None)
        rng = np.random.default_rng(zlib.crc32(f"{file} {column}".encode()))
        entry = {"file": file, "column": column, "kind": kind}
        entry |= {"also": also} if also else {}
        entry |= {"n_rows": len(cells), "n_distinct": cells.drop_nulls().n_unique()}
        entry["cells"] = sample(cells, kind, rng).to_list()
        lines.append(json.dumps(entry, ensure_ascii=False))
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    (HERE / written).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    collect(Path(sys.argv[1]), "labels.txt", "real.json.gz")
    collect(Path(sys.argv[1]), "labels_held_out.txt", "held_out.json.gz")
