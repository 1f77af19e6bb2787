"""What looks wrong in a table, and tables where nothing does."""

import re

import numpy as np
import polars as pl
from support.loops import each

from riskad.tables.data_checks import (
    check_data,
    find_changes,
    find_clock_jumps,
    find_copies,
    find_leaks,
    find_mixed_units,
    find_placeholders,
)

DAY = 86_400.0


def rng_of(seed=0):
    return np.random.default_rng(seed)


def amounts(n, seed=0, spread=0.4):
    return np.exp(rng_of(seed).normal(3.7, spread, n))


def no_labels(n):
    return np.zeros(n, dtype=np.int16)


def changes(n=1000, codes=None, **columns):
    return find_changes(pl.DataFrame(columns), no_labels(n) if codes is None else codes)


def units(values):
    return [*find_mixed_units(pl.Series("x", np.ravel(values)))]


@each("factor", [100, 1000, 1 / 100, 3600])
@each("share", [0.05, 0.4])
def test_two_units_are_found(factor, share):
    odd = rng_of(1).random(2000) < share
    (found,) = units(amounts(2000) * np.where(odd, factor, 1))
    said = f"{factor:,.0f} times" if factor > 1 else f"a {1 / factor:,.0f}th of"
    assert said in found.words
    assert f"{odd.sum():,} rows" in found.words
    assert found.rows[0] == odd.argmax() + 1
    (found,) = units(amounts(1000) * np.where(np.arange(1000) < 700, 1, factor))
    assert "The first is row 701, after which all do" in found.words


def test_columns_of_one_unit_are_left_alone():
    for values in (
        amounts(2000, spread=2.0),
        rng_of().normal(size=2000),
        rng_of().choice([1.0, 100.0], 2000),
        np.r_[amounts(1900), 1e4 * rng_of().random(100)],
        np.r_[amounts(1900), amounts(100, spread=0.02) * 100],
        amounts(1000)[:, None] @ np.array([[1.0, 17.0]]),
        np.r_[amounts(1990), amounts(10) * 100],
        np.full(50, np.nan),
        np.zeros(50),
    ):
        assert units(values) == []


@each("at", [150, 333, 600])
def test_a_change_is_found_with_its_row(at):
    x, z = rng_of().normal(size=1000), rng_of(2).normal(size=1000)
    after = np.arange(1000) >= at
    found = [(np.where(after, 5 + 3 * x, x), 3)]
    if at == 600:  # a column that dies, and levels that are renamed
        found += [([*x[:600], *[None] * 400], 0), (np.where(after, 0.0, x), 3)]
        sexes = np.where(x > 0, "m", "f"), np.where(x > 0, "male", "female")
        found += [(np.where(after, sexes[1], sexes[0]), 0)]
    for changed, near in found:
        (finding,) = changes(x=changed, y=rng_of(1).normal(size=1000), z=z)
        assert finding.column == "x"
        assert abs(finding.rows[0] - (at + 1)) <= near
    x = rng_of().normal(size=(1000, 6))
    x[at:] += 5
    (finding,) = changes(**{f"c{j}": x[:, j] for j in range(6)})
    assert finding.column is None
    assert finding.words.startswith("6 of 6 columns")


def test_trends_order_and_small_changes_are_left_alone():
    for x in (
        np.arange(1000.0),
        np.arange(1000.0) + rng_of().normal(0, 50, 1000),
        np.sin(np.arange(1000) / 30),
        np.sort(rng_of().choice([0.0, 1.0], 1000)),
        np.sort(rng_of().choice([0.0, 1.0, 2.0, 3.0], 1000)),
        rng_of().normal(size=1000) + 0.5 * (np.arange(1000) > 500),
        np.r_[rng_of().normal(size=970), rng_of().normal(9, 1, 30)],
        np.full(1000, np.nan),
        np.full(1000, 3.0),
    ):
        assert changes(x=x, y=rng_of(1).normal(size=1000)) == []


def test_rows_sorted_by_label_are_left_alone():
    codes = np.repeat(np.array([1, -1], dtype=np.int16), 500)
    x = rng_of().normal(size=1000) + 5 * (codes == -1)
    assert changes(codes=codes, x=x, y=rng_of(1).normal(size=1000)) == []
    assert len(changes(x=x, y=rng_of(1).normal(size=1000))) == 1


def labelled(n=400, anomalies=20):
    counts = [anomalies, n - anomalies - 100, 100]
    return np.repeat(np.array([-1, 1, 0], dtype=np.int16), counts)


def leaks(codes, **columns):
    return [*find_leaks(pl.DataFrame(columns), codes)]


def test_a_column_that_tells_the_labels_is_named():
    codes, noise = labelled(), rng_of().normal(size=400)
    (found,) = leaks(codes, x=noise, closed=-1.0 * (codes == -1))
    assert found.column == "closed"
    assert "AUC 1.000" in found.words
    assert "the 20 labelled anomalies from the 280 normal rows" in found.words
    (found,) = leaks(codes, case=[5.0 if code == -1 else None for code in codes], x=noise)
    assert found.words.startswith(("alone", "by its blanks alone"))
    (found,) = leaks(codes, state=["blocked" if code == -1 else "open" for code in codes], x=noise)
    assert "only anomalies have ('blocked')" in found.words


def test_what_is_no_leak_is_left_alone():
    codes = labelled()
    far = 9.0 * (codes == -1)
    few = np.where(np.cumsum(codes == -1) > 3, 0, codes).astype(np.int16)
    noise = rng_of().normal(size=400)
    assert leaks(codes, x=far + noise, y=far + rng_of(1).random(400)) == []  # easy to tell
    assert leaks(codes, x=2.0 * (codes == -1) + noise) == []
    assert leaks(codes, id=[f"row {i}" for i in range(400)]) == []  # each level is one row
    assert leaks(no_labels(400), x=far) == []
    assert leaks(few, x=1.0 * (few == -1)) == []
    codes, wide = np.repeat(np.array([-1, 1, 0]), [5, 5, 90]), rng_of().normal(size=(100, 2000))
    assert leaks(codes, **{f"c{j}": wide[:, j] for j in range(2000)}) == []  # noise


def moments(n=500, step=300.0, seed=0):
    return 1.7e9 + np.cumsum(rng_of(seed).exponential(step, n))


def jumps(values):
    return [*find_clock_jumps(pl.Series("when", values))]


def test_clocks_that_jump_are_found():
    back = moments()
    back[200:] -= 3 * DAY
    for values, row in ((back, 201), (back[::-1], 301)):
        (found,) = jumps(values)
        assert "goes back 1 time, first by 3 days" in found.words
        assert found.rows == (row,)
    (found,) = jumps(moments() - 3_000 * (np.arange(500) >= 200))
    assert re.search(r"first by \d\d minutes: was the clock set\?", found.words)
    (found,) = jumps(moments() + 90 * DAY * (np.arange(500) >= 200))
    assert "90 days after the row before it" in found.words
    assert found.rows == (201,)


@each("odd", [0.0, -2208988800.0, 253370764800.0, 1e15])
def test_moments_that_stand_for_none_are_found_in_any_order(odd):
    values = rng_of().permutation(moments())
    values[[7, 30]] = odd
    (found,) = jumps(values)
    assert found.words.startswith("2 rows far from all others")
    assert found.rows == (8, 31)
    assert odd != 0 or "as 1970-01-01" in found.words


def test_clocks_that_run_are_left_alone():
    for values in (
        moments(),
        rng_of().permutation(moments()),
        moments()[::-1],
        np.round(moments(step=DAY) / DAY) * DAY,
        np.concatenate([moments(50) + day * DAY for day in range(10)]),
        np.full(100, 1.7e9),
        np.full(100, np.nan),
        moments(20),
    ):
        assert jumps(values) == []


def copies(*parts, codes=None):
    rows = pl.concat(parts)
    return [*find_copies(rows, no_labels(rows.height) if codes is None else codes)]


def test_copies_are_counted():
    rows = pl.DataFrame({"x": amounts(100), "y": ["a", "b"] * 50})
    others = pl.DataFrame({"x": amounts(50, 1), "y": ["c"] * 50})
    alike = "of an earlier one in all columns that are learned from"
    assert copies(rows) == []
    (found,) = copies(rows, rows)
    assert found.words == f"100 rows are copies {alike}"
    assert found.rows[0] == 101
    (found,) = copies(rows, rows[:1], others)
    assert str(found) == f"1 row is a copy {alike} (row 101)"
    few_codes = pl.DataFrame({"x": rng_of().integers(0, 3, 99), "y": rng_of(1).integers(0, 3, 99)})
    assert copies(few_codes) == copies(pl.DataFrame()) == []


def test_copies_that_contradict_each_other_are_named_by_row():
    rows, codes = pl.DataFrame({"x": amounts(100)}), no_labels(200)
    codes[[3, 103]], codes[[7, 107]] = (1, -1), (1, 1)
    _, contradiction = copies(rows, rows, codes=codes)
    assert "labelled both normal and anomaly" in contradiction.words
    assert contradiction.rows == (4, 104)


def test_numbers_that_stand_for_a_blank_are_found_and_others_left_alone():
    ages = np.linspace(18, 90, 200)
    for value in (-1.0, -999.0, 9999.0, 999999.0):
        (found,) = find_placeholders(pl.Series("age", [*ages, *[value] * 10]))
        assert found.words.startswith(f"{value:,.0f} in 10 rows")
        assert found.rows == (201, 202, 203, 204, 205)
    for values in (
        np.linspace(-50, 90, 200),
        [*np.linspace(-50, 90, 200), *[-1.0] * 10],
        [*np.linspace(18, 98, 200), *[99.0] * 10],
        [*ages, 9999.0],
        [-1.0] * 50 + [1.0] * 50,
        [*ages, *[500.0] * 10],
        [np.nan] * 50,
    ):
        assert [*find_placeholders(pl.Series("x", values))] == []


def as_datetime(seconds):
    return pl.Series((np.asarray(seconds) * 1e6).astype(np.int64)).cast(pl.Datetime("us"))


def test_a_table_in_order_has_no_findings():
    rng = rng_of()
    rows = pl.DataFrame(
        {
            "amount": amounts(2000),
            "age": rng.integers(18, 90, 2000).astype(float),
            "city": rng.choice(["Bonn", "Köln"], 2000),
            "paid": rng.random(2000) < 0.5,
            "when": as_datetime(moments(2000)),
        }
    )
    codes = rng.choice([0, 1, -1], 2000, p=[0.9, 0.08, 0.02])
    kinds = {"amount": "number", "age": "number", "city": "category", "paid": "flag"}
    kinds |= {"when": "datetime"}
    assert check_data(rows, codes, kinds) == []
    assert check_data(rows.clear(), None, kinds) == []


def test_findings_come_in_the_order_of_the_columns_that_are_used():
    n = pl.int_range(pl.len())
    rows = pl.DataFrame(
        {"when": as_datetime([0.0, *moments(999)]), "a": amounts(1000), "b": amounts(1000, 1)}
    ).with_columns(
        b=pl.when(n % 20 == 3).then(pl.col("b") * 100).otherwise("b"),
        a=pl.when(n % 50 == 7).then(-1.0).otherwise("a"),
        note=pl.lit("a text") + (n > 500).cast(pl.String),
    )
    rows = pl.concat([rows, rows[980:]])
    kinds = {"when": "datetime", "a": "number", "b": "number", "note": "text"}
    found = check_data(rows, None, kinds)
    assert [each.column for each in found] == [None, "a", "b", "when", "when"]
    assert [each.rows[0] for each in found] == [1001, 8, 4, 1, 1001]
    assert str(found[-2]).startswith("when: 1 row far from all others")
