"""Columns of tables that come in parts: as the whole table where that is possible, and bounded."""

from functools import reduce
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from support.loops import each

from riskad.core.checks import InputError
from riskad.tables import profiling
from riskad.tables.preparation import TablePreparer
from riskad.tables.sketches import Distinct, Numbers, RowSample

KINDS = (
    "number number number identifier identifier number category number category identifier "
    "number date time constant date constant datetime flag constant constant number constant "
    "unusable flag"
)


def make_table(n, seed=0):
    """A column of each kind, with what makes kinds hard to tell in a part of the rows."""
    rng = np.random.default_rng(seed)
    late = np.arange(n) >= n - 2
    words = np.array(["a", "b", "c", "rare"])[rng.choice(4, n, p=[0.5, 0.3, 0.19, 0.01])]
    return pl.DataFrame(
        {
            "float": rng.normal(size=n),
            "gaps": pl.Series(rng.normal(size=n)).set(pl.Series(rng.random(n) < 0.3), None),
            "whole": rng.integers(0, 50, n),
            "row": np.arange(n),
            "user_id": rng.permutation(10 * n)[:n],
            "spelled": [["1.5", " 2 ", "NA", "1,000"][i] for i in rng.integers(0, 4, n)],
            "code": np.where(late, "007", "7"),
            "almost": np.where(late, "broken", rng.integers(0, 9, n).astype(str)),
            "word": pl.Series(words).set(pl.Series(rng.random(n) < 0.1), None),
            "name": [f"n{i}" for i in rng.permutation(n)],
            "amounts": [f"{i},50 €" for i in rng.permutation(n)],
            "date": [f"{1 + i}.03.2024" for i in rng.integers(0, 31, n)],
            "clock": [f"{i % 24:02}:{i % 60:02}" for i in rng.integers(0, 999, n)],
            "one_date": ["2024-01-02"] * n,
            "nearly_date": np.where(late, "tomorrow", "2024-01-02"),
            "epoch": pl.Series([0] * n, dtype=pl.Datetime),
            "when": pl.Series(rng.integers(0, 10**15, n)).cast(pl.Datetime("us")),
            "paid": np.array(["ja", "nein"])[rng.integers(0, 2, n)],
            "one": ["x"] * n,
            "four": [4.0] * n,
            "mark": pl.Series([4.0] * n).set(pl.Series(rng.random(n) < 0.2), None),
            "nothing": pl.Series([None] * n, dtype=pl.String),
            "list": [[1]] * n,
            "flag": rng.random(n) < 0.5,
        }
    )


def cut(table, *sizes):
    bounds = [0, *np.cumsum(sizes).tolist(), table.height]
    return [table[i:j] for i, j in pairwise(bounds)]


@pytest.mark.slow
@each("sizes", [(), (1,), (299,), (3, 50, 0, 100), (10,) * 29])
def test_parts_of_a_table_tell_what_the_whole_does(sizes):
    table = make_table(300)
    whole = TablePreparer().fit(table)
    parts = TablePreparer().fit_batches(cut(table, *sizes))
    assert parts.columns_ == whole.columns_
    assert parts.n_rows_ == whole.n_rows_
    assert parts.describe() == whole.describe()
    assert " ".join(whole.kinds_.values()) == KINDS
    prepared = [each.transform(table, quiet=True) for each in (parts, whole)]
    np.testing.assert_array_equal(*prepared)


def test_columns_asked_for_as_text_or_numbers():
    table = make_table(300)
    words = {"whole": "category", "float": "category", "row": "number", "spelled": "number"}
    whole = TablePreparer(kinds=words).fit(table)
    parts = TablePreparer(kinds=words).fit_batches(cut(table, 77))
    assert parts.describe() == whole.describe()
    with pytest.raises(InputError, match=r"'broken' in row 299 is not a number"):
        TablePreparer(kinds={"almost": "number"}).fit_batches(cut(table, 100, 100))


def test_parts_need_the_same_columns_and_some_rows():
    parts = [pl.DataFrame({"a": [1, 2]}), pl.DataFrame({"b": [1, 2]})]
    with pytest.raises(InputError, match="missing: 'a'"):
        TablePreparer().fit_batches(parts)
    with pytest.raises(InputError, match="no rows"):
        TablePreparer().fit_batches([parts[0].head(0)])


def test_medians_of_many_rows_come_from_a_sample(monkeypatch):
    monkeypatch.setattr(profiling, "_MOST_SAMPLED", 2000)
    monkeypatch.setattr(profiling, "_FEWEST_SAMPLED", 2000)
    values = np.random.default_rng(0).permutation(np.arange(40_000.0)) / 7
    batches = [pl.DataFrame({"a": part}) for part in np.split(np.sort(values), 40)]
    median = TablePreparer().fit_batches(batches).columns_["a"].middle
    assert median != np.median(values)
    share = np.mean(values < median)
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(2000)


def test_a_column_of_many_texts_is_bounded_and_judged_as_in_memory(monkeypatch):
    monkeypatch.setattr(profiling, "_MOST_VALUES", 1000)
    rng = np.random.default_rng(0)
    n = 40_000
    frequent = rng.random(n) < 0.5
    shops = np.where(frequent, rng.integers(0, 3, n), rng.integers(3, 5000, n)).astype(str)
    table = pl.DataFrame({"shop": np.char.add("s", shops), "name": [f"n{i}" for i in range(n)]})
    batches = [table[i : i + 2000] for i in range(0, n, 2000)]
    whole, parts = TablePreparer().fit(table), TablePreparer().fit_batches(batches)
    shop, about = whole.columns_["shop"], parts.columns_["shop"]
    assert about.levels[:3] == shop.levels[:3]
    assert abs(about.n_levels / shop.n_levels - 1) < 0.15
    assert whole.columns_["name"].why.startswith("40,000 different values")
    assert parts.columns_["name"].why.startswith("about ")
    assert parts.kinds_ == whole.kinds_


def test_numbers_of_parts_are_counted_and_on_one_grid():
    def numbers(*values):
        return Numbers.of(pl.Series(values, dtype=pl.Float64), 10)

    first, second = numbers(1.0, 2.0), numbers(2.0, 3.0)
    assert first.repeats == 0
    assert first.joined(second).repeats == 1
    assert first.joined(numbers(3.0, 4.0)).distinct.number == 4
    assert first.joined(numbers(3.5)).distinct is None
    wide = numbers(4.0, 64.0)
    assert wide.step == 60
    assert wide.joined(numbers(None)).joined(numbers(24.0)).step == 20
    assert wide.joined(numbers(25.0, 85.0)).step == 3


@each("n", [50, 5_000, 300_000])
def test_estimates_of_distinct_values(n):
    values = pl.Series(np.random.default_rng(1).permutation(n))
    tally = Distinct.of(values[: n // 2], 1024).joined(Distinct.of(values[n // 3 :], 1024))
    assert len(tally.hashes) <= 1024
    assert tally.number == n if n < 1024 else abs(tally.number / n - 1) < 4 / np.sqrt(1024)


def test_row_samples_are_even_over_parts():
    rows = pl.DataFrame({"a": np.arange(10_000)})
    sample = RowSample.of(rows[:1000], 0, 500)
    for i in range(1, 10):
        sample = sample.joined(RowSample.of(rows[1000 * i : 1000 * (i + 1)], i, 500))
    assert sample.rows.height == 500
    assert sample.n_rows == 10_000
    assert not sample.complete
    counts = np.bincount(sample.rows["a"].to_numpy() // 1000, minlength=10)
    assert (abs(counts - 50) < 4 * np.sqrt(50)).all()


def test_parts_of_a_table_of_known_length_keep_little_more_than_their_share():
    rows = pl.DataFrame({"x": np.arange(100_000)})
    parts = [rows[start : start + 5_000] for start in range(0, 100_000, 5_000)]
    few = [RowSample.of(part, i, 1_000, 100_000) for i, part in enumerate(parts)]
    many = [RowSample.of(part, i, 1_000) for i, part in enumerate(parts)]
    assert sum(sample.rows.height for sample in many) == 20_000
    assert sum(sample.rows.height for sample in few) < 1_400
    sample, wanted = reduce(RowSample.joined, few), reduce(RowSample.joined, many)
    assert sample.rows.equals(wanted.rows)
    assert sample.n_rows == 100_000
