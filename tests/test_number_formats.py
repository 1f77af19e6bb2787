"""Numbers as people write them: which columns hold any, and what they say."""

from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from riskad.core.checks import InputError
from riskad.tables.formats.gaps import GAP_WORDS, is_gap, strip_blanks, without_gaps
from riskad.tables.formats.number_format import NumberFormat
from riskad.tables.formats.numbers import NumberLook

NBSP, THIN, NARROW, MINUS = "\u00a0", "\u2009", "\u202f", "\u2212"


def read(cells, first_row=1):
    """What a column of cells says, by its own format."""
    column = pl.Series("x", cells)
    look = NumberLook.of(column, first_row)
    values, bad = look.format().read(column)
    assert look.n_good == len(values.drop_nulls())
    assert look.n_bad == bad.sum()
    assert look.n_good + look.n_bad + look.n_gaps == len(column)
    if bad.any():
        row = bad.arg_max()
        assert look.first_bad == (first_row + row, str(column[row]).strip())
    return values.to_list()


# --- one cell -----------------------------------------------------------------------------------

CELLS = {
    "0": 0,
    "7": 7,
    "-7": -7,
    "+7": 7,
    " 7 ": 7,
    f"{NBSP}7": 7,
    "\ufeff7": 7,
    "\t7\n": 7,
    "0.5": 0.5,
    ".5": 0.5,
    "-.5": -0.5,
    "5.": 5,
    "1234567": 1234567,
    "1e-3": 1e-3,
    "1.5E+03": 1500,
    "2.5e2": 250,
    "-1e5": -1e5,
    "12,5": 12.5,
    ",5": 0.5,
    "0,123": 0.123,
    "-0,25": -0.25,
    "1,5e3": 1500,
    "1234,567": 1234.567,
    "1.234,50": 1234.5,
    "1.234.567": 1234567,
    "1.234.567,8": 1234567.8,
    "1,234.50": 1234.5,
    "1,234,567": 1234567,
    "1,234,567.8": 1234567.8,
    "1,234": 1234,
    "12,345": 12345,
    "1.234": 1.234,
    "1 234": 1234,
    "1 234,50": 1234.5,
    "1 234.50": 1234.5,
    f"1{NBSP}234,50": 1234.5,
    f"1{THIN}234{THIN}567": 1234567,
    f"1{NARROW}234,5": 1234.5,
    "1'234.50": 1234.5,
    "1\u2019234\u2019567.5": 1234567.5,
    "1,23,456.78": 123456.78,
    "12,34,567": 1234567,
    "12,34,56,789": 123456789,
    "(5)": -5,
    "(1,234.50)": -1234.5,
    "( 12 )": -12,
    "5-": -5,
    "1.234,50-": -1234.5,
    f"{MINUS}5": -5,
    f"{MINUS}1,234.5": -1234.5,
    "\u20135": -5,
    "- 5": -5,
    "+ 5": 5,
    "$5": 5,
    "$-5": -5,
    "-$5": -5,
    "($5)": -5,
    "($1,234.50)": -1234.5,
    "$ 5": 5,
    "$.50": 0.5,
    "5$": 5,
    "5 $": 5,
    "US$ 1,000": 1000,
    "€5": 5,
    "€ 1.234,50": 1234.5,
    "1.234,50 €": 1234.5,
    f"1{NBSP}234,50{NBSP}€": 1234.5,
    f"1{NARROW}234,50{NBSP}€": 1234.5,
    "-12,00€": -12,
    "1.234 €": 1234,
    "£1,234.50": 1234.5,
    "¥1000": 1000,
    "₹1,23,456.78": 123456.78,
    "1'234.50 CHF": 1234.5,
    "CHF 1'234.50": 1234.5,
    "CHF -5": -5,
    "-CHF 5": -5,
    "Fr. 12.50": 12.5,
    "Rs. 500": 500,
    "Rs.500": 500,
    "12,50 zł": 12.5,
    "USD 12": 12,
    "12 USD": 12,
    "1 234,50 PLN": 1234.5,
    "99 kr": 99,
    "99 kr.": 99,
    "R$ 1.234,50": 1234.5,
    "79.8%": 79.8,
    "79,8 %": 79.8,
    "-3%": -3,
    "(3%)": -3,
    "12‰": 12,
    "12 kg": 12,
    "12kg": 12,
    "12.5 KG": 12.5,
    "3.5 km/h": 3.5,
    "20°C": 20,
    "-4 °C": -4,
    "68 °F": 68,
    "5 m": 5,
    "45 m²": 45,
    "100 ml": 100,
    "2.4GHz": 2.4,
    "16 GB": 16,
    "5,5 km": 5.5,
    "300 K": 300,
    "5 min": 5,
    "8 €/h": 8,
    "12 apples": 12,
    "12.5k": 12500,
    "3.2M": 3.2e6,
    "1.1bn": 1.1e9,
    "$1.2M": 1.2e6,
    "-$1.2M": -1.2e6,
    "1,2 Mio. €": 1.2e6,
    "3 Mrd. €": 3e9,
    "5k €": 5000,
    "2 crore": 2e7,
}


@pytest.mark.parametrize(("cell", "value"), CELLS.items())
def test_a_cell_that_is_a_number(cell, value):
    if value is None:
        assert NumberLook.of(pl.Series([cell])).format() is None
    else:
        assert read([cell]) == [pytest.approx(value, rel=1e-12)]


NO_NUMBERS = [
    *("abc", "x", "12a", "a12", "v12", "Nr. 5", "#5", "No 5", "INV 1234", "Q1", "7B"),
    *("1,2,3", "1, 2", "[1]", "1;2", "1/2", "10-20", "5 x 5", "3 + 4", "1 2", "12 34"),
    *("1.2.3", "1.2.3.4", "192.168.0.1", "10.0.0.255", "12.03.2024", "2024-03-12", "12/03/2024"),
    *("12.03.24", "12:30", "12:30:15", "2024-03-12T12:30", "12 Mar 2024", "10 am", "3pm", "12 Uhr"),
    *("+49 30 1234567", "030 123 456", "555-1234", "(030) 123456", "555 1234", "0800 123 123"),
    *("0x1F", "1e", "e5", "1e5e5", "--5", "5--", "+-", "(5", "5)", "()", "($)", "$", "%", "€ €"),
    *("∞", "inf", "-inf", "Infinity", "1e999", "٣", "一", "½", "V", "XII", "1_000", "1,23,4"),
    *(
        "1,2345",
        "12,3456.7",
        "1..5",
        "1,,5",
        "1.234.56",
        "0.123.456",
        "1 23",
        "1 2345",
        "12.5.",
        "..",
    ),
    *("true", "FALSE", "yes", "<5", ">10", "~5", "5?", "5!", "5*", "=5", "5 kg 3 g", "12 kg/ha x"),
]


@pytest.mark.parametrize("cell", NO_NUMBERS)
def test_a_cell_that_is_no_number(cell):
    look = NumberLook.of(pl.Series([cell]))
    if cell not in ("..", "."):
        assert (look.n_good, look.n_bad, look.first_bad) == (0, 1, (1, cell)), look
    assert look.format() is None
    assert look.remarks() == []
    values, bad = NumberFormat().read(pl.Series([cell]))
    assert values.to_list() == [None]
    assert bad.to_list() == [cell != ".."]
