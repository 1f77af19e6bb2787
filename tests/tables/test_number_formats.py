"""Numbers as people write them: which columns hold any, and what they say."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loops import each

from riskad.core.checks import InputError
from riskad.files.codec import from_tree, to_tree
from riskad.tables.cells import BLANK_WORDS
from riskad.tables.formats.numbers import NumberFormat, NumberLook, _clean

NBSP, THIN, NARROW, MINUS = "\u00a0", "\u2009", "\u202f", "\u2212"


def read(cells, first_row=1):
    """What a column of cells says, by its own format."""
    column = pl.Series("x", cells)
    look = NumberLook.of(column, first_row)
    values, bad = look.format().read(column)
    assert look.n_good == len(values.drop_nulls())
    assert look.n_bad == bad.sum()
    assert look.n_good + look.n_bad + look.n_blank == len(column)
    if bad.any():
        row = bad.arg_max()
        assert look.first_bad == (first_row + row, _clean(column.cast(pl.String))[row])
    return values.to_list()


# Cells by the number that they are.
NUMBERS = {
    0: "0",
    7: "7|+7| 7 |\xa07|\ufeff7|\t7\n|7 M€",
    -7: "-7",
    0.5: "0.5|.5|,5|$.50",
    -0.5: "-.5",
    5: "5.|+ 5|$5|$ 5|5$|5 $|€5|5 m|5 min",
    1234567: "1234567|1.234.567|1,234,567|1\u2009234\u2009567|12,34,567",
    0.001: "1e-3",
    1500: "1.5E+03|1,5e3",
    250: "2.5e2",
    -100000.0: "-1e5",
    12.5: "12,5|Fr. 12.50|12,50 zł|12.5 KG|12.5k",
    0.123: "0,123",
    -0.25: "-0,25",
    1234.567: "1234,567",
    1234.5: (
        "1.234,50|1,234.50|1 234,50|1 234.50|1\xa0234,50|1\u202f234,5|1'234.50|"
        "€ 1.234,50|1.234,50 €|1\xa0234,50\xa0€|1\u202f234,50\xa0€|£1,234.50|"
        "1'234.50 CHF|CHF 1'234.50|1 234,50 PLN|R$ 1.234,50"
    ),
    1234567.8: "1.234.567,8|1,234,567.8",
    1234: "1,234|1 234|1.234 €",
    12345: "12,345",
    1.234: "1.234",
    1234567.5: "1\u2019234\u2019567.5",
    123456.78: "1,23,456.78|₹1,23,456.78",
    123456789: "12,34,56,789",
    -5: "(5)|5-|\u22125|\u20135|- 5|$-5|-$5|($5)|CHF -5|-CHF 5",
    -1234.5: "(1,234.50)|1.234,50-|\u22121,234.5|($1,234.50)",
    -12: "( 12 )|-12,00€",
    1000: "US$ 1,000|¥1000",
    500: "Rs. 500|Rs.500",
    12: "USD 12|12 USD|12‰|12 kg|12kg|12 apples",
    99: "99 kr|99 kr.",
    79.8: "79.8%|79,8 %",
    -3: "-3%|(3%)",
    3.5: "3.5 km/h",
    20: "20°C",
    -4: "-4 °C",
    68: "68 °F",
    45: "45 m²|45 m2",
    1.5: "1,5 cm3",
    2: "2km2",
    100: "100 ml",
    2.4: "2.4GHz",
    16: "16 GB",
    5.5: "5,5 km",
    300: "300 K",
    8: "8 €/h",
}
CELLS = {cell: value for value, cells in NUMBERS.items() for cell in cells.split("|")}


def test_a_cell_that_is_a_number():
    for cell, value in CELLS.items():
        assert read([cell]) == [pytest.approx(value, rel=1e-12)], cell


NO_NUMBERS = (
    "abc|x|12a|a12|v12|Nr. 5|#5|No 5|INV 1234|Q1|7B|1,2,3|1, 2|[1]|1;2|1/2|10-20|5 x 5|"
    "3 + 4|1 2|12 34|1.2.3|1.2.3.4|192.168.0.1|10.0.0.255|12.03.2024|2024-03-12|"
    "12/03/2024|12.03.24|12:30|12:30:15|2024-03-12T12:30|12 Mar 2024|10 am|3pm|12 Uhr|"
    "+49 30 1234567|030 123 456|555-1234|(030) 123456|555 1234|0800 123 123|0x1F|1e|e5|"
    "1e5e5|--5|5--|+-|(5|5)|()|($)|$|%|€ €|∞|inf|-inf|Infinity|1e999|٣|一|½|V|XII|1_000|"
    "1,23,4|12,3456.7|1..5|1,,5|1.234.56|0.123.456|1 23|1 2345|12.5.|..|true|FALSE|yes|<5|"
    ">10|~5|5?|5!|5*|=5|5 kg 3 g|12 kg/ha x"
)


def test_a_cell_that_is_no_number():
    for cell in NO_NUMBERS.split("|"):
        look = NumberLook.of(pl.Series([cell]))
        if cell != "..":
            assert (look.n_good, look.n_bad, look.first_bad) == (0, 1, (1, cell)), look
        assert (look.format(), look.remarks()) == (None, []), cell
        values, bad = NumberFormat().read(pl.Series([cell]))
        assert (values.to_list(), bad.to_list()) == ([None], [cell != ".."]), cell


COLUMNS = {
    "German": (["1.234,50", "12", "1.234", "0,5", "-3"], [1234.5, 12, 1234, 0.5, -3]),
    "English": (["1,234.50", "12", "1,234", "0.5", "-3"], [1234.5, 12, 1234, 0.5, -3]),
    "a cast would be wrong": (["1.234", "2.500", "12,5"], [1234, 2500, 12.5]),
    "French": ([f"1{NARROW}234,50 €", "12,00 €", "-3 €"], [1234.5, 12, -3]),
    "Swiss": (["CHF 1'234.50", "CHF 12.00", "CHF 1'234"], [1234.5, 12, 1234]),
    "Indian": (["₹1,23,456.78", "₹12,345", "₹999"], [123456.78, 12345, 999]),
    "accountants": (["1,234.50", "(1,234.50)", "(12.00)", "-"], [1234.5, -1234.5, -12, None]),
    "trailing minus": (["12,50-", "12,50", "1.000,00-"], [-12.5, 12.5, -1000]),
    "percent": (["79.8%", "5 %", "100%"], [79.8, 5, 100]),
    "percent and plain": (["79.8%", "0.5"], [79.8, 0.5]),
    "gaps": (
        ["1", "NA", "n/a", "#N/A", "nan", "null", " None ", "?", "-", "--", ".", " "],
        [1] + [None] * 11,
    ),
    "other gaps": (["1", "", "\u200b", "N/A", "#DIV/0!", "Not Available"], [1] + [None] * 5),
    "a word that begins like a gap": (["1", "2", "3", "nano"], [1, 2, 3, None]),
    "gaps in words": (["1", "unknown", "(blank)", "missing", "k.A.", NBSP, None], [1] + [None] * 6),
    "thousands, said by a million": (["1,234", "1,234,567"], [1234, 1234567]),
    "thousands, by a longer group": (["1.234", "1.234.567"], [1234, 1234567]),
    "decimals, by fewer digits": (["1.234", "1.5"], [1.234, 1.5]),
    "decimals, by a zero": (["1,234", "0,125"], [1.234, 0.125]),
    "nothing settles a comma": (["1,234", "5,678", "12"], [1234, 5678, 12]),
    "nothing settles a point": (["1.234", "5.678", "12"], [1.234, 5.678, 12]),
    "money has no thousandths": (["1.234 €", "12 €", "5.678 €"], [1234, 12, 5678]),
    "both marks of three digits": (["1,234", "1.234"], [1234, 1.234]),
    "populations": (["1.234", "12.000"] * 10 + ["999"], [1234, 12000] * 10 + [999]),
    "few populations": (["1.234", "12.000"] * 9 + ["999"], [1.234, 12] * 9 + [999]),
    "three decimals": (["1.234", "12.000"] * 10, [1.234, 12] * 10),
    "three decimals or four digits": (["1.234"] * 20 + ["5", "1234"], [1.234] * 20 + [5, 1234]),
    "minority of commas is bad": (["1.5", "2.5", "3,5"], [1.5, 2.5, None]),
    "minority of points is bad": (["1,5", "2,5", "3.5", "x"], [1.5, 2.5, None, None]),
    "a note among numbers": (["12 kg", "13 kg", "see note"], [12, 13, None]),
    "unit in most": (["12 kg", "13 kg", "14"], [12, 13, 14]),
    "two units": (["12 kg", "13 kg", "4 lb"], [12, 13, 4]),
    "spellings of a unit": (["12 kg", "13kg", "4 KG"], [12, 13, 4]),
    "unknown unit": (["1 star", "4.5 stars", "5 stars", "3"], [1, 4.5, 5, 3]),
    "rare unknown unit": (["1", "2", "3", "4 boxes"], [1, 2, 3, None]),
    "a few rare units": (["12 kg", "13 kg", "4 boxes", "1"], [12, 13, 4, 1]),
    "pieces and ranks": (["12 St", "13 kg", "14 kg", "1st"], [12, 13, 14, None]),
    "an abbreviated unit": (["38,0 kg", "0,665 t", "18 Stk."], [38, 0.665, 18]),
    "several letters that are units": (["12 m", "3,5 l", "14 t"], [12, 3.5, 14]),
    "letters of which one is no unit": (["12 m", "3 l", "4 a", *"5678"], [None] * 3 + [5, 6, 7, 8]),
    "house numbers": (["12", "13", "14", "14a", "14b"], [12, 13, 14, None, None]),
    "one letter": (["12 m", "13 m", "14 m"], [12, 13, 14]),
    "thousands and units": (["900", "7", "1.2k", "1.1bn"], [900, 7, None, None]),
    "kelvins or thousands": (["300", "310", "1.2K"], [300, 310, None]),
    "no scale beside units": (["12 kg", "13 kg", "5k"], [12, 13, None]),
    "kelvin": (["300 K", "273.15 K"], [300, 273.15]),
    "signs": ([f"{MINUS}5", "+5", "-5", "\u20135", "(5)", "5-"], [-5, 5, -5, -5, -5, -5]),
    "signs of money": (["$-5", "-$5", "($5)", "$5-", "$5"], [-5, -5, -5, -5, 5]),
    "currencies": (["5 €", "$6", "7 CHF", "GBP 8"], [5, 6, 7, 8]),
    "a point behind a currency": (["$.50", "Fr. 12.50", "Fr.3", "Fr. .5"], [0.5, 12.5, 3, 0.5]),
    "scientific": (["1e-3", "1.5E+03", "7"], [1e-3, 1500, 7]),
    "infinity is bad": (["1", "2", "inf", "1e999"], [1, 2, None, None]),
    "digits without end": (["1", "2", "9" * 400], [1, 2, None]),
    "a telephone among numbers": (["612 345 678", "1 234", "12"], [612345678, 1234, 12]),
    "exponents that only a cast reads": (["1,5", "0E100", "1e120"], [1.5, 0, 1e120]),
    "kind changes": (["1", "2", "3", "2024-01-01"], [1, 2, 3, None]),
}


@each("name", COLUMNS)
def test_a_column_of_numbers(name):
    cells, values = COLUMNS[name]
    forth, back = (np.array(each, dtype=float) for each in (read(cells), read(cells[::-1], 100)))
    np.testing.assert_allclose(forth, np.array(values, dtype=float), rtol=1e-12)
    np.testing.assert_array_equal(back[::-1], forth)
    learnt = NumberLook.of(pl.Series(cells)).format()
    assert from_tree(*to_tree(learnt)) == learnt


def test_a_column_of_something_else():
    for cells in (
        "12A|13B|14C|2F",
        "12a|12b|14c",
        "1st|2nd|3rd|4th",
        "1st|2nd",
        "Anna 5|Bob 7|Cid 9",
        "12 Main|5 Oak|7 Elm|9 Ash",
        "192.168.0.1|10.0.0.255|192.168.100.200",
        "612 345 678|912 345 678",
        "+49 170 123 456",
        f"612{NBSP}345{NBSP}678",
        "12.03.2024|13.03.2024",
        "1.2.3|1.10.0",
        "a|b|1",
        "12B|14B",
        "3M|6M|1Y|5Y",
        "5 Mio. €|1 Mrd. €",
        "10 am|11 am",
        "|NA|-",
    ):
        look = NumberLook.of(pl.Series(cells.split("|")))
        assert (look.format(), look.remarks()) == (None, []), cells


@each(
    ("column", "values"),
    [
        (pl.Series([1, None, 3]), [1, None, 3]),
        (pl.Series([1, 2], dtype=pl.UInt8), [1, 2]),
        (pl.Series([1.5, float("nan"), None]), [1.5, None, None]),
        (pl.Series([1.5, float("inf"), 2.0]), [1.5, None, 2]),
        (pl.Series([Decimal("1.50"), None]), [1.5, None]),
        (pl.Series(["1,5", "2,5", "1,5", "x"], dtype=pl.Categorical), [1.5, 2.5, 1.5, None]),
        (pl.Series(["5 kg", "7 kg"], dtype=pl.Enum(["5 kg", "7 kg"])), [5, 7]),
    ],
)
def test_columns_of_other_types(column, values):
    assert read(column) == values


def test_truth_values_and_dates_are_no_numbers():
    column = pl.Series([True, False, None])
    look = NumberLook.of(column)
    assert (look.format(), look.n_bad, look.n_blank) == (None, 2, 1)
    values, bad = NumberFormat().read(column)  # if it is asked for
    assert values.to_list() == [1, 0, None]
    assert not bad.any()
    for dtype in (pl.Date, pl.Datetime, pl.Duration, pl.Time):
        column = pl.Series([0, None], dtype=pl.Int64).cast(dtype)
        look = NumberLook.of(column)
        assert (look.format(), look.n_bad, look.n_blank) == (None, 1, 1)
        values, bad = NumberFormat().read(column)
        assert values.to_list() == [None, None]
        assert bad.to_list() == [True, False]


def test_another_unit_or_mark_at_scoring_time_is_bad():
    learnt = NumberLook.of(pl.Series(["12,5 kg", "1.000 kg"])).format()
    values, bad = learnt.read(pl.Series("x", ["7 kg", "7 lb", "7.5 kg", "7", "7k", None, "NA"]))
    assert values.to_list() == [7, None, None, 7, None, None, None]
    assert bad.to_list() == [False, True, True, False, True, False, False]
    assert values.name == "x"
    learnt = NumberLook.of(pl.Series(["Rs 50"])).format()
    assert learnt.read(pl.Series(["Rs.50", "Rs. 7", "Rs 7"]))[0].to_list() == [50, 7, 7]
    assert NumberFormat(",").read(pl.Series([1.234, None]))[0].to_list() == [1.234, None]


@each(
    ("cells", "code"),
    [
        (["7", "007"], (2, "007")),
        (["00", "7"], (1, "00")),
        (["x", " 01 ", "7", "8"], (2, "01")),
        (["0", "0.5", "0,5", "-0.1", "00.5", "10"], None),
    ],
)
def test_whole_numbers_with_leading_zeros_are_codes(cells, code):
    look = NumberLook.of(pl.Series(cells))
    assert look.first_code == code
    assert any("leading zeros" in remark for remark in look.remarks()) == (code is not None)


READINGS = "can be read in two ways, and no row decides which: it is read as"
REMARKS = {
    "1,234|5": f"'1,234' {READINGS} 1234. ",
    "1.234|5": f"'1.234' {READINGS} 1.234. ",
    "1.234 kr.": "is read as 1234. Say kind 'number:1,234.5' for the other one.",
    "-1.234 €": "is read as -1234. Say kind 'number:1,234.5' for the other one.",
    "1.5|2.5|1,5|1,5 €": "'1,5' in row 3 has a decimal comma, unlike most: 2 such",
} | dict.fromkeys(("1|2", "1.5|1.234", "1,5 €|1.234 €", "12 kg|12 KG|5kg", "5 EUR|7 €|Euro 8", "x"))


@each(("cells", "words"), REMARKS.items())
def test_remarks_say_what_was_a_guess(cells, words):
    remarks = NumberLook.of(pl.Series(cells.split("|"))).remarks()
    assert remarks == [] if words is None else any(words in remark for remark in remarks)


SHOWN = [
    ("1.234,50 €|12,00 €", 1234.5, "1.234,50 €", "numbers with decimal comma, in €"),
    ("1.234,50 €|12,00 €", -1234567.891, "-1.234.567,89 €", "numbers with decimal comma, in €"),
    ("$1,234.50", -5, "-$5.00", "numbers in $"),
    ("($1,234.50)|$5.00", -1234.5, "-$1,234.50", "numbers in $"),
    ("12,50-|1,00", -2.5, "-2,5", "numbers with decimal comma"),
    ("79.8%", 79.8, "79.8%", "numbers in %"),
    ("CHF 1'234.50", 1234.5, "CHF 1'234.50", "numbers in CHF"),
    ("2024|2025", 2024, "2024", "numbers"),
    ("0.5|1234.25", 1234.25, "1234.25", "numbers"),
    ("0.5", 1 / 3, "0.333333", "numbers"),
    ("0.5", 0.00123456, "0.00123456", "numbers"),
    ("0.5", 1e-9, "1e-09", "numbers"),
    ("0,5", 1.5e-9, "1,5e-09", "numbers with decimal comma"),
    ("0.5", 0, "0", "numbers"),
    ("5 kg", 12.5, "12.5 kg", "numbers in kg"),
    ("5k|3k", 12.5, "12.5k", "numbers in k"),
    ("1 234 567", 1e6, "1 000 000", "numbers"),
    ("1.234|1,5", 1234, "1234", "numbers with decimal comma"),
    ("1", float("inf"), "inf", "numbers"),
    ("$5|5 €|5 €|5 £|5 CHF", 5, "$5 €", "numbers in $, €, CHF, ..."),
]


@each(("cells", "value", "shown", "words"), SHOWN)
def test_numbers_are_shown_as_the_column_writes_them(cells, value, shown, words):
    written = NumberLook.of(pl.Series(cells.split("|"))).format()
    assert written.show(value) == shown
    assert written.describe() == words


def test_a_person_says_by_an_example_how_numbers_are_written():
    for example, cell, value in [
        ("1.234,50", "1.234", 1234),
        ("1.234,5", "7,125", 7.125),
        ("1,234.50", "1,234", 1234),
        ("1,234.50 €", "1.234 €", 1.234),
        ("1234.5", "1.234", 1.234),
        ("12,5", "1,234", 1.234),
        ("0,5", "1.234", 1234),
        ("1.234.567", "1.234", 1234),
        ("-$5.00", "$7", 7),
        ("(5.5)", "(7)", -7),
        ("79.8%", "5%", 5),
        ("5.5 boxes", "7 boxes", 7),
        ("1 234,5", "1 234", 1234),
        ("CHF 1'234.50", "CHF 7", 7),
        ("5", "5", 5),
    ]:
        assert NumberFormat.from_example(example).read(pl.Series([cell]))[0].to_list() == [value], (
            example
        )


@each(
    ("example", "cells", "values"),
    [
        ("1.234,5", ["1,234 €", "1.234 €", "5 $"], [1.234, 1234, 5]),
        ("1,234.5", ["1,234 €", "1.234 €", "5 $"], [1234, 1.234, 5]),
        ("1.234,5", ["1.5", "2,5", "3,5"], [None, 2.5, 3.5]),
        ("1.5 x", ["1.5", "2.5", "3.5", "4 x"], [1.5, 2.5, 3.5, 4]),
        ("5 boxes", ["1.5", "2.5", "3.5", "4 boxes"], [1.5, 2.5, 3.5, 4]),
        ("5", ["1.5", "2.5", "3.5", "4 boxes"], [1.5, 2.5, 3.5, None]),
    ],
)
def test_what_a_person_says_settles_a_column_with_its_units(example, cells, values):
    look = NumberLook.of(pl.Series(cells[:1])).joined(NumberLook.of(pl.Series(cells[1:]), 2))
    look = replace(look, example=NumberFormat.from_example(example))
    assert look.format().read(pl.Series(cells))[0].to_list() == values
    assert (look.n_good, look.n_bad) == (len(values) - values.count(None), values.count(None))
    assert not any("in two ways" in remark for remark in look.remarks())


def test_an_example_with_two_readings_or_none_is_refused():
    for example in ("1,234", "1.234", "1.234 €", "", "abc", "1,2,3", "12.03.2024"):
        with pytest.raises(InputError, match="Write a number with decimals as the column has them"):
            NumberFormat.from_example(example)


ANY_CELL = st.one_of(
    st.sampled_from(
        [*CELLS, *NO_NUMBERS.split("|"), *sorted(BLANK_WORDS), "007", " 01", "1.234", None]
    ),
    st.from_regex(r"[0-9]{1,4}[.,' ][0-9]{1,3}( [a-z]{1,2})?", fullmatch=True),
    st.text(max_size=6),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_CELL, max_size=30), st.data())
def test_parts_look_like_the_whole_and_are_read_as_they_look(cells, data):
    column = pl.Series(cells, dtype=pl.String)
    cut = data.draw(st.integers(0, len(cells)))
    parts = NumberLook.of(column[:cut]).joined(NumberLook.of(column[cut:], 1 + cut))
    whole = NumberLook.of(column)
    assert parts == whole
    assert parts.format() == whole.format()
    assert parts.remarks() == whole.remarks()
    if whole.format() is not None:
        read(column)


@each("affixes", [("", ""), ("$", ""), ("", " €"), ("", "%"), ("Rs. ", "")])
@each("decimal", [".", ","])
def test_usual_cells_are_read_quickly_and_as_all_others(affixes, decimal):
    prefix, suffix = affixes
    written = NumberFormat(
        decimal, prefixes=(prefix,) if prefix else (), suffixes=(suffix,) if suffix else ()
    )
    digits = ["5", "-5", "0012", "1.", ".5", "5.25", "1e5", "1E400", "0e500", "inf", "nan", "1.e3"]
    digits += ["1.234", "1,234.5", "9" * 14, "9" * 130, "- 5", "+5", "(5)", "5-", "n/a", "", None]
    digits += [cell.replace(".", ",") for cell in filter(None, digits)]
    cells = [None if cell is None else f"{prefix}{cell}{suffix}" for cell in digits]
    column = pl.Series("x", [*cells, *digits, " 7 ", f"{prefix} 7 {suffix}"])
    for got, expected in zip(written.read(column), written._read_any(column), strict=True):
        assert got.to_list() == expected.to_list()
