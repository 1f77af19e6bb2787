"""Kinds of column, found in columns of real files that were labelled by hand."""

import gzip
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.tables.preparation import TablePreparer

FOLDER = Path(__file__).parents[1] / "fixtures" / "columns"
KINDS = {
    *("number", "flag", "category", "categories", "date", "datetime", "time", "duration"),
    *("text", "identifier", "constant", "list"),
}


def columns(name):
    if name == "made":
        return json.loads((FOLDER / "made.json").read_text(encoding="utf-8"))
    return json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))


def kind_of(entry):
    frame = pl.DataFrame({entry["column"]: pl.Series(entry["cells"], dtype=pl.String)})
    preparer = TablePreparer()
    with suppress(InputError):  # no column is left
        preparer.fit(frame)
    return preparer.kinds_[entry["column"]]


def right(entry, found):
    return found in (entry["kind"], *entry.get("also", []))


def wrong_ones(entries):
    """What was found in place of each kind that was missed."""
    found = [(entry, kind_of(entry)) for entry in entries]
    assert {kind for _, kind in found} <= KINDS
    return [
        f"{entry['kind']} found as {kind}: {entry['column']!r} of {entry['file']}, "
        f"as {entry['cells'][:4]}"
        for entry, kind in found
        if not right(entry, kind)
    ]


@pytest.mark.slow
def test_kinds_of_real_and_made_columns_are_found():
    real, made = columns("real"), columns("made")
    wrong_real, wrong_made = wrong_ones(real), wrong_ones(made)
    print("\n".join(wrong_real + wrong_made))
    assert len(wrong_real) <= 0.02 * len(real)
    assert len(wrong_made) <= 0.05 * len(made)
    counts = Counter(entry["kind"] for entry in real + made)
    missed = Counter(line.split()[0] for line in wrong_real + wrong_made)
    often = {kind: missed[kind] for kind, n in counts.items() if n >= 10 and missed[kind] > 0.1 * n}
    assert not often


@pytest.mark.slow
def test_kinds_of_columns_that_nothing_was_learned_from_are_found():
    fresh = columns("held_out")
    assert not {entry["file"] for entry in fresh} & {entry["file"] for entry in columns("real")}
    wrong = wrong_ones(fresh)
    print("\n".join(wrong))
    assert len(wrong) <= 0.05 * len(fresh)
