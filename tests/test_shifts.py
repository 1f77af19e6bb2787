"""Shifted units and new gaps in rows to be scored."""

import json

import numpy as np
import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.storage import codec
from riskad.tables.shifts import Shifts, factor_between

RNG = np.random.default_rng(0)


def amounts(n, factor=1.0, seed=0, spread=0.5):
    return factor * np.exp(np.random.default_rng(seed).normal(3.7, spread, n))


@pytest.mark.parametrize("factor", [60, 100, 1000, 3600, 1e6, 1 / 100, 1 / 1000])
def test_a_changed_unit_is_found_with_its_factor(factor):
    shifts = Shifts.learn(pl.DataFrame({"amount": amounts(2000)}))
    (sentence,) = shifts.compare(pl.DataFrame({"amount": amounts(300, factor, seed=1)}))
    said = f"{factor:,.0f} times as large" if factor > 1 else f"a {1 / factor:,.0f}th"
    assert sentence.startswith("amount: usually 39.8, here ")
    assert f"{said}: has the unit changed? First in row 1." in sentence


def test_a_unit_that_changes_within_the_batch_is_found_with_its_row():
    shifts = Shifts.learn(pl.DataFrame({"amount": amounts(2000, spread=0.3)}))
    values = amounts(400, seed=1, spread=0.3)
    values[250:] *= 100
    values[3] = 1e9
    (sentence,) = shifts.compare(pl.DataFrame({"amount": values}), first_row=1001)
    assert "in 150 of 400 rows" in sentence
    assert sentence.endswith("First in row 1,251.")


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spread", [0.2, 1.0, 2.5])
def test_rows_like_those_of_the_fit_are_left_alone(seed, spread):
    before = pl.DataFrame(
        {"amount": amounts(1000, seed=seed, spread=spread), "z": RNG.normal(size=1000)}
    )
    after = {"amount": amounts(200, seed=seed + 100, spread=spread), "z": RNG.normal(size=200)}
    assert Shifts.learn(before).compare(pl.DataFrame(after)) == []


@pytest.mark.parametrize("factor", [2.0, 5.0, 20.0, 30.0])
def test_other_factors_are_left_to_drift(factor):
    shifts = Shifts.learn(pl.DataFrame({"amount": amounts(1000)}))
    assert shifts.compare(pl.DataFrame({"amount": amounts(300, factor)})) == []


def test_another_shape_at_the_distance_of_a_unit_is_no_unit():
    shifts = Shifts.learn(pl.DataFrame({"x": amounts(1000)}))
    wide = pl.DataFrame({"x": amounts(300, 100, spread=2.5)})
    assert shifts.compare(wide) == []


def test_values_about_zero_are_compared_by_their_size():
    shifts = Shifts.learn(pl.DataFrame({"x": RNG.normal(0, 1, 2000)}))
    for factor, said in ((1000, "1,000 times"), (0.01, "a 100th")):
        (sentence,) = shifts.compare(pl.DataFrame({"x": factor * RNG.normal(0, 1, 500)}))
        assert said in sentence


def test_few_rows_say_nothing():
    shifts = Shifts.learn(pl.DataFrame({"x": amounts(1000)}))
    assert shifts.compare(pl.DataFrame({"x": amounts(10, 100)})) == []
    few = Shifts.learn(pl.DataFrame({"x": amounts(20)}))
    assert few.compare(pl.DataFrame({"x": amounts(300, 100)})) == []


def test_new_blanks_are_said_with_the_first_row():
    before = pl.DataFrame({"age": [None, *RNG.normal(40, 5, 99)], "city": ["Bonn"] * 100})
    after = pl.DataFrame({"age": [41.0, None] * 50, "city": ["Bonn"] * 40 + [None] * 60})
    assert Shifts.learn(before).compare(after, first_row=5) == [
        "age: 50 % of the cells are blank, where 1 % were. First in row 6.",
        "city: 60 % of the cells are blank, where 0 % were. First in row 45.",
    ]


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_blanks_as_before_are_left_alone(share):
    def column(seed):
        rng = np.random.default_rng(seed)
        return pl.DataFrame({"x": [None if rng.random() < share else 1.0 for _ in range(200)]})

    assert Shifts.learn(column(0)).compare(column(1)) == []


def test_columns_of_one_value_texts_and_missing_columns_do_no_harm():
    before = pl.DataFrame(
        {"one": [1.0] * 60, "zero": [0.0] * 60, "none": [None] * 60, "text": ["a"] * 60, "x": 2.0}
    )
    shifts = Shifts.learn(before)
    assert shifts.compare(before) == []
    assert shifts.compare(before.drop("x")) == []
    assert shifts.compare(before.clear()) == []
    odd = before.with_columns(one=pl.Series([np.inf, np.nan] * 30))
    assert shifts.compare(odd) == []


def test_the_summary_is_stored_and_checked():
    shifts = Shifts.learn(pl.DataFrame({"x": amounts(100), "t": ["a"] * 100}))
    tree, arrays = codec.to_tree(shifts)
    again = codec.from_tree(json.loads(json.dumps(tree)), arrays)
    after = pl.DataFrame({"x": amounts(100, 100), "t": ["a"] * 100})
    assert again.compare(after) == shifts.compare(after) != []
    for change in (
        {"blanks": shifts.rows + 1},
        {"columns": ["x", "x"]},
        {"columns": ["x"]},
        {"quantiles": shifts.quantiles[:, ::-1].copy()},
    ):
        with pytest.raises(InputError):
            codec.build(Shifts, {**vars(shifts), **change})


def test_the_nearest_factor_is_named():
    base = np.array([1.0, 2.0, 3.0])
    assert factor_between(base, 70 * base) == 60
    assert factor_between(base, 90 * base) == 100
    assert factor_between(base, base / 1100) == 1 / 1000
    assert factor_between(base, 10 * base) is None
