"""Changed units and new blanks in rows to be scored, and differences of batches."""

import json

import numpy as np
import polars as pl
import pytest
from support.loops import each

from riskad.core.checks import InputError
from riskad.files import codec
from riskad.tables.notes import MOST_NEW_VALUES, NotAsInTraining
from riskad.tables.shifts import Shifts, factor_between

RNG = np.random.default_rng(0)


def amounts(n, factor=1.0, seed=0, spread=0.5):
    return factor * np.exp(np.random.default_rng(seed).normal(3.7, spread, n))


def changes(before, after, first_row=1):
    """The sentences about a frame after another, or about new values of x."""
    if not isinstance(before, pl.DataFrame):
        before, after = pl.DataFrame({"x": before}), pl.DataFrame({"x": after})
    found = Shifts.learn(before).changes(after, first_row)
    return [sentence for sentences in found.values() for sentence in sentences]


@each("factor", [60, 100, 1000, 3600, 1e6, 1 / 100, 1 / 1000])
def test_a_changed_unit_is_found_with_its_factor(factor):
    (sentence,) = changes(amounts(2000), amounts(300, factor, seed=1))
    said = f"{factor:,.0f} times as large" if factor > 1 else f"a {1 / factor:,.0f}th"
    assert sentence.startswith("x: usually 39.8, here ")
    assert f"{said}: has the unit changed? First in row 1." in sentence


def test_a_unit_that_changes_within_the_batch_is_found_with_its_row():
    values = amounts(400, seed=1, spread=0.3)
    values[250:] *= 100
    values[3] = 1e9
    (sentence,) = changes(amounts(2000, spread=0.3), values, first_row=1001)
    assert "in 150 of 400 rows" in sentence
    assert sentence.endswith("First in row 1,251.")
    # The rest is counted among all rows, also where all have moved and some lie beyond.
    values = amounts(400, 100, seed=1)
    values[::8] = 1e9
    (sentence,) = changes(amounts(2000), values)
    assert "in 350 of 400 rows" in sentence


@each("spread", [0.2, 1.0, 2.5])
def test_rows_like_those_of_the_fit_are_left_alone(spread):
    for seed in range(20):
        before, after = (
            pl.DataFrame({"amount": amounts(n, seed=of, spread=spread), "z": RNG.normal(size=n)})
            for n, of in ((1000, seed), (200, seed + 100))
        )
        assert changes(before, after) == []


def test_what_is_no_unit_is_left_alone():
    for factor in (2.0, 5.0, 20.0, 30.0):
        assert changes(amounts(1000), amounts(300, factor)) == []
    assert changes(amounts(1000), amounts(300, 100, spread=2.5)) == []  # another shape
    assert changes(amounts(1000), amounts(10, 100)) == []  # few rows
    assert changes(amounts(20), amounts(300, 100)) == []
    base = np.array([1.0, 2.0, 3.0])
    for factor, named in ((70, 60), (90, 100), (1 / 1100, 1 / 1000), (10, None)):
        assert factor_between(base, factor * base, near=0.15) == named
    (sentence,) = changes(RNG.normal(0, 1, 2000), 1000 * RNG.normal(0, 1, 500))  # about zero
    assert "1,000 times" in sentence


def test_new_blanks_are_said_with_the_first_row():
    before = pl.DataFrame({"age": [None, *RNG.normal(40, 5, 99)], "city": ["Bonn"] * 100})
    after = pl.DataFrame({"age": [41.0, None] * 50, "city": ["Bonn"] * 40 + [None] * 60})
    assert changes(before, after, first_row=5) == [
        "age: 50 % of the cells are blank, where 1 % were. First in row 6.",
        "city: 60 % of the cells are blank, where 0 % were. First in row 45.",
    ]
    for share in (0.0, 0.3):
        as_before = [[None if x < share else 1.0 for x in RNG.random(200)] for _ in range(2)]
        assert changes(*as_before) == []


def test_the_summary_is_stored_and_checked():
    shifts = Shifts.learn(pl.DataFrame({"x": amounts(100), "t": ["a"] * 100}))
    tree, arrays = codec.to_tree(shifts)
    again = codec.from_tree(json.loads(json.dumps(tree)), arrays)
    after = pl.DataFrame({"x": amounts(100, 100), "t": ["a"] * 100})
    assert again.changes(after, 1) == shifts.changes(after, 1) != {}
    for change in (
        {"blanks": shifts.rows + 1},
        {"columns": ["x", "x"]},
        {"columns": ["x"]},
        {"quantiles": shifts.quantiles[:, ::-1].copy()},
    ):
        with pytest.raises(InputError):
            codec.build(Shifts, {**vars(shifts), **change})


def test_batches_are_merged():
    first = NotAsInTraining(unread={"u": (2, "'k' in row 1")}, changes={"x": ["x: first."]})
    many = {f"{i:04}" for i in range(MOST_NEW_VALUES + 1)}
    later = NotAsInTraining(
        rows={"c": len(many)},
        values={"c": many},
        unread={"u": (3, "'m' in row 9")},
        changes={"x": ["x: later."], "z": ["z: new."]},
    )
    assert str(NotAsInTraining.of_all([first, later])) == (
        "Not as in training: u: 5 cells that cannot be read count as blank ('k' in row 1 first); "
        "c: 1,001 rows with a new value ('0000', '0001', '0002' and at least 997 more); "
        "x: first; z: new."
    )
    assert str(first).endswith("x: first.")  # as it was
