"""What looks wrong in a table, and tables where nothing does."""

import numpy as np
import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.tables.suspicions import Suspicion, find_suspicions
from riskad.tables.suspicions.changes import find_changes
from riskad.tables.suspicions.clocks import find_clock_jumps
from riskad.tables.suspicions.leaks import find_leaks
from riskad.tables.suspicions.repeats import find_copies, find_stand_ins
from riskad.tables.suspicions.units import find_mixed_units

DAY = 86_400.0


def rng_of(seed=0):
    return np.random.default_rng(seed)


def amounts(n, seed=0, spread=0.4):
    return np.exp(rng_of(seed).normal(3.7, spread, n))


def no_labels(n):
    return np.zeros(n, dtype=np.int8)


def changes(n=1000, codes=None, **columns):
    codes = no_labels(n) if codes is None else codes
    return find_changes(pl.DataFrame(columns), codes, 1)


# --- units ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [100, 1000, 1 / 100, 3600])
@pytest.mark.parametrize("share", [0.05, 0.4])
def test_two_units_are_found(factor, share):
    odd = rng_of(1).random(2000) < share
    found = find_mixed_units(pl.Series("x", amounts(2000) * np.where(odd, factor, 1)), 1)
    assert found is not None
    said = f"{factor:,.0f} times" if factor > 1 else f"a {1 / factor:,.0f}th of"
    assert said in found.words
    assert f"{odd.sum():,} rows" in found.words
    assert found.rows[0] == odd.argmax() + 1


def test_a_unit_that_changes_in_a_row_is_said_so():
    values = amounts(1000)
    values[700:] *= 1000
    found = find_mixed_units(pl.Series("x", values), 2)
    assert found is not None
    assert "The first is row 702, after which all do" in found.words


@pytest.mark.parametrize(
    "values",
    [
        amounts(2000, spread=2.0),
        rng_of().normal(size=2000),
        rng_of().choice([1.0, 100.0], 2000),
        np.r_[amounts(1900), 1e4 * rng_of().random(100)],
        np.r_[amounts(1900), amounts(100, spread=0.02) * 100],
        amounts(1000)[:, None] @ np.array([[1.0, 17.0]]),
        np.r_[amounts(1990), amounts(10) * 100],
        np.full(50, np.nan),
        np.zeros(50),
    ],
)
def test_columns_of_one_unit_are_left_alone(values):
    assert find_mixed_units(pl.Series("x", np.ravel(values)), 1) is None


# --- changes --------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [150, 333, 700])
def test_a_change_is_found_with_its_row(at):
    x = rng_of().normal(size=1000)
    x[at:] = 5 + 3 * x[at:]
    (found,) = changes(x=x, y=rng_of(1).normal(size=1000), z=rng_of(2).normal(size=1000))
    assert found.column == "x"
    assert abs(found.rows[0] - (at + 1)) <= 3


def test_a_column_that_dies_is_found():
    x = [*rng_of().normal(size=600), *[None] * 400]
    (found,) = changes(x=x, y=rng_of(1).normal(size=1000))
    assert found.rows == (601,)
    x = [*rng_of().normal(size=600), *[0.0] * 400]
    (found,) = changes(x=x, y=rng_of(1).normal(size=1000))
    assert abs(found.rows[0] - 601) <= 3


def test_levels_that_are_renamed_are_found():
    texts = [*rng_of().choice(["m", "f"], 500), *rng_of().choice(["male", "female"], 500)]
    (found,) = changes(sex=texts, y=rng_of(1).normal(size=1000))
    assert found.column == "sex"
    assert found.rows == (501,)


def test_many_columns_that_change_are_said_at_once():
    x = rng_of().normal(size=(1000, 6))
    x[400:] += 5
    (found,) = changes(**{f"c{j}": x[:, j] for j in range(6)})
    assert found.column is None
    assert found.words.startswith("6 of 6 columns")


@pytest.mark.parametrize(
    "x",
    [
        np.arange(1000.0),
        np.arange(1000.0) + rng_of().normal(0, 50, 1000),
        np.sin(np.arange(1000) / 30),
        np.sort(rng_of().choice([0.0, 1.0], 1000)),
        np.sort(rng_of().choice([0.0, 1.0, 2.0, 3.0], 1000)),
        rng_of().normal(size=1000) + 0.5 * (np.arange(1000) > 500),
        np.r_[rng_of().normal(size=970), rng_of().normal(9, 1, 30)],
        np.full(1000, np.nan),
        np.full(1000, 3.0),
    ],
)
def test_trends_order_and_small_changes_are_left_alone(x):
    assert changes(x=x, y=rng_of(1).normal(size=1000)) == []


def test_walks_are_seldom_taken_for_changes():
    said = [
        bool(changes(x=rng_of(seed).normal(size=1000).cumsum(), y=rng_of(99).normal(size=1000)))
        for seed in range(100)
    ]
    assert np.mean(said) < 0.1


def test_rows_sorted_by_label_are_left_alone():
    codes = np.repeat(np.array([1, -1], dtype=np.int8), 500)
    x = rng_of().normal(size=1000) + 5 * (codes == -1)
    assert changes(codes=codes, x=x, y=rng_of(1).normal(size=1000)) == []
    assert len(changes(x=x, y=rng_of(1).normal(size=1000))) == 1


def test_columns_that_change_with_others_are_left_alone():
    """The rows are sorted by something: what the columns mean is the same."""
    x = rng_of().normal(size=(1000, 6))
    x[400:, 0] += 5
    assert len(changes(**{f"c{j}": x[:, j] for j in range(6)})) == 1
    x[400:, 1:4] += 1
    assert changes(**{f"c{j}": x[:, j] for j in range(6)}) == []


# --- leaks ----------------------------------------------------------------------------------


def labelled(n=400, anomalies=20):
    return np.r_[np.full(anomalies, -1), np.ones(n - anomalies - 100), np.zeros(100)].astype(
        np.int8
    )


def test_a_column_that_tells_the_labels_is_named():
    codes = labelled()
    noise = rng_of().normal(size=400)
    (found,) = find_leaks(pl.DataFrame({"x": noise, "closed": -1.0 * (codes == -1)}), codes)
    assert found.column == "closed"
    assert "AUC 1.000" in found.words
    assert "the 20 labelled anomalies from the 280 normal rows" in found.words


def test_a_column_filled_for_anomalies_alone_is_named():
    codes = labelled()
    case = [5.0 if code == -1 else None for code in codes]
    (found,) = find_leaks(pl.DataFrame({"case": case, "x": rng_of().normal(size=400)}), codes)
    assert found.words.startswith(("alone", "by its blanks alone"))


def test_a_level_that_only_anomalies_have_is_named():
    codes = labelled()
    state = ["blocked" if code == -1 else "open" for code in codes]
    (found,) = find_leaks(pl.DataFrame({"state": state, "x": rng_of().normal(size=400)}), codes)
    assert "only anomalies have ('blocked')" in found.words


def test_what_is_no_leak_is_left_alone():
    codes = labelled()
    far = 9.0 * (codes == -1)
    easy = pl.DataFrame({"x": far + rng_of().normal(size=400), "y": far + rng_of(1).random(400)})
    assert find_leaks(easy, codes) == []  # anomalies are easy to tell
    good = pl.DataFrame({"x": 2.0 * (codes == -1) + rng_of().normal(size=400)})
    assert find_leaks(good, codes) == []
    ids = pl.DataFrame({"id": [f"row {i}" for i in range(400)]})
    assert find_leaks(ids, codes) == []  # each level is one row
    assert find_leaks(pl.DataFrame({"x": far}), no_labels(400)) == []
    few = np.where(np.cumsum(codes == -1) > 3, 0, codes).astype(np.int8)
    assert find_leaks(pl.DataFrame({"x": 1.0 * (few == -1)}), few) == []
    assert find_leaks(pl.DataFrame(height=400), codes) == []


def test_noise_does_not_leak():
    codes = np.r_[np.full(5, -1), np.ones(5), np.zeros(90)].astype(np.int8)
    wide = rng_of().normal(size=(100, 2000))
    assert find_leaks(pl.DataFrame({f"c{j}": wide[:, j] for j in range(2000)}), codes) == []


# --- clocks ---------------------------------------------------------------------------------


def moments(n=500, step=300.0, seed=0):
    return 1.7e9 + np.cumsum(rng_of(seed).exponential(step, n))


def jumps(values):
    return find_clock_jumps("when", pl.Series(values), 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_that_was_set_back_is_found(sign):
    values = moments()
    values[200:] -= 3 * DAY
    (found,) = jumps(values if sign > 0 else values[::-1])
    assert "goes back 1 time, first by 3 days" in found.words
    assert found.rows == ((201,) if sign > 0 else (301,))


def test_a_leap_ahead_is_found():
    values = moments()
    values[200:] += 90 * DAY
    (found,) = jumps(values)
    assert "90 days after the row before it" in found.words
    assert found.rows == (201,)


@pytest.mark.parametrize("odd", [0.0, -2208988800.0, 253370764800.0, 1e15])
def test_moments_that_stand_for_none_are_found_in_any_order(odd):
    values = rng_of().permutation(moments())
    values[[7, 30]] = odd
    (found,) = jumps(values)
    assert found.words.startswith("2 rows far from all others")
    assert found.rows == (8, 31)
    assert odd != 0 or "as 1970-01-01" in found.words


@pytest.mark.parametrize(
    "values",
    [
        moments(),
        rng_of().permutation(moments()),
        moments()[::-1],
        np.round(moments(step=DAY) / DAY) * DAY,
        np.concatenate([moments(50) + day * DAY for day in range(10)]),
        np.full(100, 1.7e9),
        np.full(100, np.nan),
        moments(20),
    ],
)
def test_clocks_that_run_are_left_alone(values):
    assert jumps(values) == []


# --- copies and stand-ins -------------------------------------------------------------------


def test_copies_are_counted():
    rows = pl.DataFrame({"x": amounts(100), "y": ["a", "b"] * 50})
    none = np.zeros(201, dtype=int)
    assert find_copies(rows, none[:100], 1) == []
    (found,) = find_copies(pl.concat([rows, rows]), none[:200], 1)
    alike = "of an earlier one in all columns that are learned from"
    assert found.words == f"100 rows are copies {alike}"
    assert found.rows[0] == 101
    others = pl.DataFrame({"x": amounts(50, 1), "y": ["c"] * 50})
    (found,) = find_copies(pl.concat([rows, rows[:1], others]), none[:151], 1)
    assert str(found) == f"1 row is a copy {alike} (row 101)"
    few_codes = pl.DataFrame({"x": rng_of().integers(0, 3, 99), "y": rng_of(1).integers(0, 3, 99)})
    assert find_copies(few_codes, none[:99], 1) == []
    assert find_copies(pl.DataFrame(), none[:0], 1) == []


def test_copies_that_contradict_each_other_are_named_by_row():
    rows = pl.DataFrame({"x": amounts(100)})
    codes = np.zeros(200, dtype=int)
    codes[[3, 103]], codes[[7, 107]] = (1, -1), (1, 1)
    _, contradiction = find_copies(pl.concat([rows, rows]), codes, 1)
    assert "labelled both normal and anomaly" in contradiction.words
    assert contradiction.rows == (4, 104)


@pytest.mark.parametrize("value", [-1, -999, 9999, 999999])
def test_a_number_that_stands_for_a_blank_is_found(value):
    column = pl.Series("age", [*np.linspace(18, 90, 200), *[float(value)] * 10])
    found = find_stand_ins(column, 1)
    assert found is not None
    assert found.words.startswith(f"{value:,} in 10 rows")
    assert found.rows == (201, 202, 203, 204, 205)


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(-50, 90, 200),
        [*np.linspace(-50, 90, 200), *[-1.0] * 10],
        [*np.linspace(18, 98, 200), *[99.0] * 10],
        [*np.linspace(18, 90, 200), 9999.0],
        [-1.0] * 50 + [1.0] * 50,
        [*np.linspace(18, 90, 200), *[500.0] * 10],
        [np.nan] * 50,
    ],
)
def test_numbers_that_may_be_meant_are_left_alone(values):
    assert find_stand_ins(pl.Series("x", values), 1) is None


# --- all together ---------------------------------------------------------------------------


def test_a_table_in_order_has_no_suspicions():
    rng = rng_of()
    rows = pl.DataFrame(
        {"amount": amounts(2000), "age": rng.integers(18, 90, 2000).astype(float)}
    ).with_columns(city=pl.Series(rng.choice(["Bonn", "Köln"], 2000)))
    codes = rng.choice([0, 1, -1], 2000, p=[0.9, 0.08, 0.02])
    found = find_suspicions(rows, rows, codes, moments={"when": pl.Series(moments(2000))})
    assert found == []


def test_suspicions_come_in_the_order_of_the_columns():
    rows = pl.DataFrame({"a": amounts(1000), "b": amounts(1000, 1)})
    rows = rows.with_columns(
        b=pl.when(pl.int_range(pl.len()) % 20 == 3).then(pl.col("b") * 100).otherwise("b"),
        a=pl.when(pl.int_range(pl.len()) % 50 == 7).then(-1.0).otherwise("a"),
    )
    when = pl.Series([0.0, *moments(999)])
    raw = pl.concat([rows[:980], rows[:20]])
    found = find_suspicions(rows, raw, None, moments={"when": when}, first_row=11)
    assert [each.column for each in found] == [None, "a", "b", "when"]
    assert [each.rows[0] for each in found] == [991, 18, 14, 11]
    assert str(found[-1]).startswith("when: 1 row far from all others")


def test_rows_of_another_table_are_refused():
    rows = pl.DataFrame({"x": [1.0, 2.0]})
    with pytest.raises(InputError, match="rows has 1 rows, and the parsed columns have 2"):
        find_suspicions(rows, rows[:1], None)
    with pytest.raises(InputError, match="codes has 3 rows"):
        find_suspicions(rows, rows, [0, 0, 0])
    with pytest.raises(InputError, match="moments of 'when': 1 for 2 rows"):
        find_suspicions(rows, rows, None, moments={"when": pl.Series([1.0])})


def test_a_table_without_rows_has_no_suspicions():
    rows = pl.DataFrame({"x": [1.0], "t": ["a"]}).clear()
    assert find_suspicions(rows, rows, None) == []


def test_suspicions_read_as_sentences():
    assert (
        str(Suspicion(None, "2 rows are copies", (4, 1234))) == "2 rows are copies (rows 4, 1,234)"
    )
    assert str(Suspicion("x", "odd")) == "x: odd"
