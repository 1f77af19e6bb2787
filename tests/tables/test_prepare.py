import copy
import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from support.loops import each

from riskad.core.checks import DataWarning, InputError
from riskad.files.codec import build
from riskad.tables.cells import as_text
from riskad.tables.kinds.categories import CategoryColumn
from riskad.tables.notes import NotAsInTraining
from riskad.tables.preparation import TablePreparer


def kind_of(values, name="x", n_times=1, **parameters):
    """Return the kind that a column of these values gets, beside one that is always usable."""
    values = list(values) * n_times
    frame = pl.DataFrame({name: values, "other column": np.arange(len(values)) % 7 / 2})
    preparer = TablePreparer(**parameters).fit(frame)
    column = preparer.columns_[name]
    return column.kind, "" if column.used else column.why


KINDS_OF_CELLS = {
    "number": "1|2.5|-3e4| 7 |+1,1||2,1|NA|n/a|?|2,$1.50|$7.00,79.8%|0.7%,12 kg|7.5 kg",
    "flag": "true|False|TRUE,yes|no,Ja|nein|",
    "category": "a|b|,1|2|A,01|02|10,NA|DE",
    "constant": "| ,a|a,3|3.0",
    "date": "2024-01-02|2024-02-03,31.12.2024|01.01.2025,13/2/24|3/4/24",
    "datetime": "2024-01-02T10:00|2024-01-02T11:00|",
    "time": "10:30|11:45:10",
    "duration": "1h 20m|2h 5m",
}
KINDS_OF_VALUES = [
    ([True, False, None], "flag"),
    ([1, 2, None], "number"),
    ([1.5, float("nan")], "number"),
    (["1,5", "2,25", "1.000,5"], "number"),
    ([None, None], "constant"),
    ([float("nan")], "constant"),
    ([datetime.date(2024, 1, 1), datetime.date(2024, 1, 3)], "date"),
    ([datetime.datetime(2024, 1, 1, 9), datetime.datetime(2024, 1, 3)], "datetime"),
    ([[1], [2]], "unusable"),
    ([b"a", b"b"], "unusable"),
]


def test_kinds():
    for kind, columns in KINDS_OF_CELLS.items():
        for cells in columns.split(","):
            assert kind_of(cells.split("|"), n_times=10)[0] == kind, cells
    for values, kind in KINDS_OF_VALUES:
        assert kind_of(values, n_times=10)[0] == kind, values


def test_columns_that_name_the_rows_are_dropped():
    assert kind_of([f"C{i}" for i in range(100)]) == (
        "identifier",
        "100 different values in 100 rows",
    )
    kind, reason = kind_of(range(5, 105), name="x")
    assert (kind, reason) == ("identifier", "it numbers the rows (100 different values)")
    spread = [37 * i for i in range(100)]
    assert kind_of(spread, name="amount")[0] == "number"
    for name in ("id", "customer_id", "customerId", "CUSTOMER ID", "", "Unnamed: 0"):
        assert kind_of(spread, name=name)[0] == "identifier", name
    assert kind_of(spread, name="paid")[0] == "number"
    assert kind_of([x + 0.5 for x in spread], name="id")[0] == "number"
    assert kind_of(range(10), name="x")[0] == "number"


def test_running_numbers_are_left_out_though_some_are_skipped():
    gaps = np.random.default_rng(0).integers(1, 20, 3_000)
    running = 5_100_000_000 + np.cumsum(gaps)
    kind, reason = kind_of(running.astype(str), name="Referenz")
    assert (kind, reason) == ("identifier", "it numbers the rows (3,000 different values)")
    blank = ["" if i % 500 == 7 else str(number) for i, number in enumerate(running)]
    assert kind_of(blank, name="Referenz")[0] == "identifier"
    assert kind_of(running, name="Referenz", kinds={"Referenz": "number"})[0] == "number"
    wide = [str(number) for number in 7_000_003 + 401 * running[:200]]
    for name in ("Belegnummer", "Beleg-Nr.", "Rechnungsnr", "Beleg", "invoiceNumber", "OrderNo"):
        assert kind_of(wide, name=name)[0] == "identifier", name


def test_measurements_clocks_and_years_do_not_number_the_rows():
    rng = np.random.default_rng(0)
    seconds = np.cumsum(rng.integers(1, 20, 3_000))
    for name in ("elapsed_s", "Sekunde", "Time", "t", "Zeitstempel"):
        assert kind_of(seconds, name=name)[0] == "number", name
    assert kind_of(range(0, 30_000, 10), name="offset")[0] == "number"  # every ten seconds
    assert kind_of(range(1990, 2025), name="Jahr")[0] == "number"
    cents = np.unique(rng.lognormal(10, 1.5, 2_000).astype(int))  # sorted and all different
    assert kind_of(cents, name="Betrag in Cent")[0] == "number"
    few = np.sort(rng.choice(200_000, 1_000, replace=False))
    assert kind_of(few, name="odometer")[0] == "number"


def test_a_wish_overrides_the_look():
    number, category = {"x": "number"}, {"x": "category"}
    assert kind_of(range(100), kinds=number)[0] == "number"
    assert kind_of(["01", "02"], n_times=10, kinds=number)[0] == "number"
    assert kind_of([5411, 5812], n_times=10, kinds=category)[0] == "category"
    assert kind_of(["2024-01-02", "2024-01-03"], n_times=10, kinds=category)[0] == "category"
    unix = {"x": "datetime:unix"}
    assert kind_of([1743099240, 1743012840], n_times=10, kinds=unix)[0] == "datetime"
    with pytest.raises(InputError, match="'a' in row 1 is not a number"):
        kind_of(["a", "1"], kinds=number)
    with pytest.raises(InputError, match="no column 'y'"):
        kind_of(["a", "1"], kinds={"y": "number"})
    rare = ("identifier", "none of its values occurs in 2 rows")
    assert kind_of(["a", "b", "c"], kinds=category) == rare
    assert kind_of(["NA", ""], kinds=number, n_times=3) == ("constant", "it holds no number")


@each(
    ("said", "message"),
    [
        ("numbr", "Did you mean 'number'"),
        ("category:x", "for category give the word alone"),
        ("text:encode", "choose from ngrams, encoder"),
        ("date:%d.%m", "year"),
        ("number:abc", "does not show how numbers are written"),
        ("flag", "values other than two such words"),
        ("date", "written in none of the usual ways"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(said, message):
    with pytest.raises(InputError, match=message):
        kind_of(["a", "b", "c"], n_times=5, kinds={"x": said})


def test_how_a_column_is_written_can_be_said():
    """03/04/2025 alone may be in March or in April."""
    table = pl.DataFrame({"when": ["03/04/2025", "05/06/2025", "07/08/2025"] * 4})
    for pattern, month in (("%d/%m/%Y", 4), ("%m/%d/%Y", 3)):
        preparer = TablePreparer(kinds={"when": f"date:{pattern}"}).fit(table)
        assert preparer.parse(table)["when"][0].month == month
    amounts = pl.DataFrame({"paid": ["1.234", "2.500", "7.125"] * 4})
    preparer = TablePreparer(kinds={"paid": "number:1.234,50"}).fit(amounts)
    assert preparer.parse(amounts)["paid"][0] == 1234.0


def test_what_keeps_a_column_from_being_numbers_or_dates_is_said():
    numbers = [f"{i / 7:.4f}" for i in range(40)]
    table = pl.DataFrame({"x": [*numbers, "lots"], "y": list(range(0, 82, 2))})
    preparer = TablePreparer().fit(table)
    assert preparer.kinds_["x"] == "identifier"
    assert any("most are numbers, but not 'lots' in row 41" in line for line in preparer.describe())
    days = [f"{day:02d}.03.2025" for day in range(1, 31)]
    table = pl.DataFrame({"when": [*days, "next week"], "y": [7 * i % 31 / 2 for i in range(31)]})
    said = "\n".join(TablePreparer().fit(table).describe())
    assert "most are dates like 27.03.2025, but not 'next week' in row 31: leave such blank" in said
    assert "--kind 'when=date:%d.%m.%Y'" in said


def test_nothing_left_is_an_error_with_the_reasons():
    words = r"(?s)No column is left.*'a': left out: every row holds 'x'"
    with pytest.raises(InputError, match=words):
        TablePreparer().fit(pl.DataFrame({"a": ["x", "x"], "b": ["", ""]}))


def test_the_same_table_as_text_as_types_and_from_pandas():
    rng = np.random.default_rng(0)
    typed = pl.DataFrame(
        {
            "n": rng.normal(size=60),
            "i": rng.integers(5, size=60),
            "b": rng.random(60) < 0.5,
            "t": rng.choice(["x", "y"], size=60),
        }
    )
    gaps = pl.Series(rng.random(60) < 0.2)
    typed = typed.with_columns(pl.when(~gaps).then(pl.all()))
    text = typed.with_columns(pl.all().cast(pl.String))
    frame = pd.DataFrame({name: typed[name].to_list() for name in typed.columns})
    nullable = frame.convert_dtypes()
    preparer = TablePreparer().fit(text)
    expected = preparer.transform(text)
    for table in (typed, frame, nullable):
        np.testing.assert_array_equal(preparer.transform(table), expected)
        np.testing.assert_array_equal(TablePreparer().fit_transform(table), expected)


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "customer_id": [f"C{i}" for i in range(100)],
            "income": [f"{x:.1f}" for x in rng.normal(40, 9, size=100)],
            "land": rng.choice(["FR", "DE"], size=100),
        }
    )
    return TablePreparer().fit(table), table


def test_missing_columns_show_the_difference_and_others_may_come_or_not(fitted):
    preparer, table = fitted
    with pytest.raises(InputError) as caught:
        preparer.transform(table.rename({"income": "Income"}))
    assert "- missing: 'income' (did you mean 'Income'?)" in str(caught.value)
    assert "customer_id" not in str(caught.value)
    rearranged = table.drop("customer_id").with_columns(label=pl.lit("ok")).select("land", "income")
    np.testing.assert_array_equal(preparer.transform(rearranged), preparer.transform(table))


def test_a_value_that_is_no_number_is_named(fitted):
    preparer, table = fitted
    bad = pl.when(pl.int_range(pl.len()) == 41).then(pl.lit("lots")).otherwise("income")
    for income, first_row, words in (
        (bad, 1, r"'income' .* 'lots' in row 42 is not a number \(at least 1 "),
        (pl.lit("lots"), 1001, "'lots' in row 1,001 is not a number"),
        (pl.lit("-Infinity"), 1, "row 1 is not a number"),
        (pl.lit(float("inf")), 1, "row 1 is not a number"),
        (pl.date(2024, 1, 1), 1, "is not a number"),
    ):
        with pytest.raises(InputError, match=words):
            preparer.transform(table.with_columns(income=income), first_row=first_row)


def test_a_matrix_is_the_same_in_blocks_and_the_given_frame_is_left_as_it_is(monkeypatch):
    rng = np.random.default_rng(0)
    n = 30_000  # formats are expected from some rows, and one column has others besides
    days = pl.Series(rng.integers(0, 10**8, n)).cast(pl.Datetime("ms")).dt.strftime("%d.%m.%Y")
    frame = pl.DataFrame(
        {
            "paid": pl.Series(rng.lognormal(size=n).round(2)).cast(pl.String) + " €",
            "when": days,
            "shop": pl.Series(rng.integers(0, 40, n)).cast(pl.String) + "s ",
            "late": ["5"] * (n - 1) + ["soon"],
            "note": rng.choice(["paid by card", "called twice", "no answer at all"], n),
        }
    )
    before = frame.clone()
    preparer = TablePreparer(encode=False, kinds={"note": "text"})
    parsed = preparer.fit_parse(frame)
    assert frame.equals(before)
    whole = preparer.table(parsed)
    monkeypatch.setattr("riskad.tables.preparation._BLOCK_ROWS", 1 << 12)
    blocks = preparer.table(parsed)
    assert blocks.names == whole.names
    assert blocks.levels == whole.levels
    np.testing.assert_array_equal(blocks.values, whole.values)


def test_a_few_rows_are_read_as_many_are():
    """Few rows are read by Python, many by polars: both must see the same blanks and levels."""
    white = [chr(code) for code in range(0x3001) if chr(code).isspace()]
    texts = [*(f"{w}A{w}" for w in white), *white, "", "A\x00", "\u200bB", "B", "new", None] * 2
    rng = np.random.default_rng(0)
    column = pl.Series("t", [texts[i] for i in rng.permutation(len(texts))], dtype=pl.String)
    read = as_text(column)
    alone = pl.concat([as_text(column[i : i + 1]) for i in range(len(column))])
    assert alone.equals(read, null_equal=True)
    for levels, blanks in ((["A", "B"], 3), (["B"], 0)):
        column = CategoryColumn("t", "category", [], levels=levels, blanks=blanks)
        codes = [column.features(read[i : i + 1])[0].values for i in range(len(read))]
        np.testing.assert_array_equal(np.concatenate(codes), column.features(read)[0].values)
        new = [column.check_new(read[i : i + 1]) for i in range(len(read))]
        said = column.check_new(read)
        assert sum(each.rows["t"] for each in new if each) == (said.rows["t"] if said else 0)


def test_new_values_are_reported_and_have_no_yes(fitted):
    preparer, table = fitted
    new = table.head(3).with_columns(land=pl.Series(["FR", "XX", None]), income=pl.lit(""))
    with pytest.warns(DataWarning) as caught:
        matrix = preparer.transform(new)
    message = str(caught[0].message)
    assert "income: 3 blanks filled with the median, where it had none" in message
    assert "land: 2 rows with a new value ('(blank)', 'XX')" in message
    np.testing.assert_array_equal(matrix[:, 1:].sum(axis=1), [1, 0, 0])
    np.testing.assert_array_equal(matrix[:, 0], preparer.columns_["income"].middle)


def test_what_is_no_table():
    with pytest.raises(InputError, match="got ndarray"):
        TablePreparer().fit(np.eye(3))
    with pytest.raises(InputError, match="0 rows and 1 columns"):
        TablePreparer().fit(pl.DataFrame({"a": []}))
    for names in (["a", "a"], [0, 1]):
        with pytest.raises(InputError, match="different texts"):
            TablePreparer().fit(pd.DataFrame(np.eye(2), columns=names))


def test_it_is_an_estimator(fitted):
    preparer, table = fitted
    copy = clone(preparer.set_params(max_levels=7))
    assert copy.get_params() == {"kinds": None, "group": None, "max_levels": 7, "encode": True}
    with pytest.raises(NotFittedError):
        copy.transform(table)
    assert list(preparer.feature_names_in_) == table.columns
    assert preparer.n_features_in_ == 3
    y = np.arange(100) % 2
    pipeline = make_pipeline(TablePreparer(), LogisticRegression()).fit(table, y)
    assert pipeline.predict(table).shape == (100,)
    assert list(pipeline[:-1].get_feature_names_out()) == ["income", "land=DE", "land=FR"]


def test_the_account():
    n = 1000
    rng = np.random.default_rng(0)
    income = [f"{x:.0f}" for x in rng.normal(42_000, 1, size=n)]
    income[:31] = [""] * 31
    table = pl.DataFrame(
        {
            "customer_id": [f"C{i}" for i in range(n)],
            "income": income,
            "country": [f"L{i % 11}" for i in range(n - 1)] + ["XX"],
            "channel": ["web", "shop"] * (n // 2),
        }
    )
    preparer = TablePreparer().fit(table)
    assert preparer.describe() == [
        "1 number column: income",
        "2 category columns: country (12 levels), channel (2 levels)",
        "income: 31 blanks filled with the median 42000",
        "country: 1 value in fewer than 5 rows",
        "left out 'customer_id': 1,000 different values in 1,000 rows",
    ]


@each("value", ["1e101", "-1e308", "1" * 300, 1e200])
def test_numbers_too_large_to_compute_with_are_shown(value):
    kind = pl.Float64 if isinstance(value, float) else pl.String
    values = ["1.5", "2", "3"] if kind == pl.String else [1.5, 2.0, 3.0]
    table = pl.DataFrame({"x": pl.Series([*values, value], dtype=kind)})
    with pytest.raises(InputError, match=r"in row 4 is beyond 1e\+100, too large to .*units") as e:
        TablePreparer().fit(table)
    assert len(str(e.value)) < 300
    preparer = TablePreparer().fit(table[:3])
    with pytest.raises(InputError, match="in row 14 is beyond"):
        preparer.transform(table, first_row=11)


def test_a_new_level_is_noted_where_rare_values_share_other():
    """Rare values of the training table are no news; values that it had not are."""
    towns = ["Ulm"] * 5 + ["Bonn"] * 5 + ["Kiel", "Jena"]
    preparer = TablePreparer(kinds={"town": "category"}).fit(pl.DataFrame({"town": towns}))
    assert list(preparer.get_feature_names_out()) == ["town=Bonn", "town=Ulm", "town=(other)"]
    new = pl.DataFrame({"town": ["Ulm", "Kiel", "Oz", "Oz", "Jena"]})
    with pytest.warns(NotAsInTraining, match=r"town: 2 rows with a new value \('Oz'\)"):
        matrix = preparer.transform(new)
    np.testing.assert_array_equal(matrix, [[0, 1, 0], *[[0, 0, 1]] * 4])
    preparer.transform(new.filter(pl.col("town") != "Oz"))  # without a warning


def test_a_model_file_holds_no_fill_that_overflows(fitted):
    preparer, _ = fitted
    encoder = copy.deepcopy(preparer.encoder_)
    encoder.fills_ = encoder.fills_ * 1e300
    with pytest.raises(InputError, match="encoder_: too large"):
        build(TablePreparer, vars(preparer) | {"encoder_": encoder})


def test_a_model_file_groups_rows_by_no_column_that_the_model_learns_from(fitted):
    preparer, _ = fitted
    for name in ("income", "land"):
        with pytest.raises(InputError, match="group: a column that the model learns from"):
            build(TablePreparer, vars(preparer) | {"group": name})
