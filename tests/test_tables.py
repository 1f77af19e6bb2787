import sys
import zipfile
from datetime import UTC, date, datetime, timedelta

import fastexcel
import numpy as np
import polars as pl
import pytest

from riskad.core.checks import InputError, MissingLibrary
from riskad.tables import csv_reading, workbooks
from riskad.tables.cells import check_columns
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.paths import check_readable, check_table_name
from riskad.tables.reading import csv_format, read_table
from riskad.tables.writing import check_writable, open_writer, write_table


@pytest.fixture
def read(tmp_path):
    """Write bytes under a name and read them back as a table."""

    def write_and_read(data, name="cards.csv"):
        (tmp_path / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        return read_table(tmp_path / name)

    return write_and_read


# --- what is read ------------------------------------------------------------------------


def test_csv_comes_as_text(read):
    frame = read("code,amount\n007,1.50\n,x\n")
    assert frame.rows() == [("007", "1.50"), (None, "x")]
    assert set(frame.dtypes) == {pl.String}


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b"a,b\r\n1,2\r\n3,4\r\n",
        b"a,b\r1,2\r3,4\r",
        b"a,b\n1,2\n3,4",
        b"\na,b\n1,2\n\n3,4\n\n\n",
        b"a,b\r\n1,2\r\n\r\n3,4\r\n\r\n",
        b"a;b\n1;2\n3;4\n",
        b"a\tb\n1\t2\n3\t4\n",
        b"a|b\n1|2\n3|4\n",
        b'"a","b"\n"1","2"\n"3","4"\n',
        b"a,b\n1,2\n,\n3,4\n",
    ],
    ids=[
        "byte order mark",
        "CRLF",
        "CR",
        "no final newline",
        "blank lines",
        "blank CRLF lines",
        "semicolon",
        "tab",
        "bar",
        "quoted",
        "row of blanks",
    ],
)
def test_the_same_table_however_it_was_exported(read, data):
    frame = read(data)
    assert frame.columns == ["a", "b"]
    assert frame.rows() == [("1", "2"), ("3", "4")]


def test_quoted_newlines_separators_and_quotes(read):
    frame = read('note,n\n"two\nlines",1\n"a, b",2\n"5"" pipe",3\n"",\n')
    assert frame["note"].to_list() == ["two\nlines", "a, b", '5" pipe', ""]


def test_a_separator_inside_the_quoted_header_is_not_one(read):
    assert read('"a;b;c",d\n1,2\n').columns == ["a;b;c", "d"]


def test_unicode_names_and_values(read):
    frame = read("größe,国\nåé,日本\n")
    assert frame.to_dicts() == [{"größe": "åé", "国": "日本"}]


def test_one_column_and_no_rows(read):
    assert read("a\n1\n2\n").rows() == [("1",), ("2",)]
    assert read("a,b\n").shape == (0, 2)


def test_tab_separated_by_its_name(read):
    assert read("a,x\tb\n1\t2\n", "cards.tsv").columns == ["a,x", "b"]


def test_parquet_keeps_its_types(tmp_path):
    frame = pl.DataFrame({"n": [1, None], "t": ["x", None], "f": [0.5, 1.5], "b": [True, False]})
    frame.write_parquet(tmp_path / "cards.parquet")
    assert read_table(tmp_path / "cards.parquet").equals(frame)


def test_parquet_names_are_not_patterns(tmp_path):
    frame = pl.DataFrame({"n": [1]})
    frame.write_parquet(tmp_path / "cards[1].parquet")
    assert read_table(tmp_path / "cards[1].parquet").equals(frame)


# --- what is refused, and how ------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"\n\n \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"\xef\xbb\xbf\r\n \n", "is empty"),
        (b"1.5,2\n3,4\n", "holds only numbers"),
        (b"a,b\n1,2\n1\n1,2\n", "line 3: 1 field where the header has 2"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: 3 fields where the header has 2"),
        (b'a,b\n"two\nlines",2\n3,\n4\n', "line 5: 1 field where"),
        (b"a,b,c\n1,2,3\n4,5", "line 3: 2 fields .* must not be cut short"),
        (b'a,b,c\n1,2,3\n4,"5', "line 3: a double quote .* never closes"),
        (b"a,b,c\n1,2,3,4\n", "A field that contains ',' must be in double quotes"),
        (b'a,b\n1,5" pipe\n2,6" pipe\n', "line 2: a double quote stands inside"),
        (b'a,b\n1,"2\n3,4\n', "never closes"),
    ],
)
def test_bad_csv_says_what_and_where(read, data, message):
    with pytest.raises(InputError, match=message):
        read(data)


def test_bad_parquet(read):
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read(b"a,b\n1,2\n", "cards.parquet")


def test_unknown_kinds_of_file(read, tmp_path):
    with pytest.raises(InputError, match=r"must end in one of \.csv"):
        read(b"PK", "cards.sas7bdat")
    with pytest.raises(InputError, match=r"Did you mean 'cards\.sas7bdat'"):
        read_table(tmp_path / "card.sas7bdat")
    assert check_table_name("a.b.CSV.GZ", (".csv", ".csv.gz"))[1] == ".csv.gz"


def test_unknown_columns():
    check_columns(["a"], ["a", "b"])
    with pytest.raises(InputError, match="Did you mean 'LABEL'"):
        check_columns(["label"], ["amount", "LABEL"])
    with pytest.raises(InputError, match="and 88 more"):
        check_columns(["label"], [f"c{i}" for i in range(100)])


def test_a_large_ragged_file_is_found_fast_enough_to_be_checked_always(read):
    rows = b"1.25,2.5,\n" * 200_000
    frame = read(b"a,b,c\n" + rows)
    assert frame.shape == (200_000, 3)
    with pytest.raises(InputError, match="line 200002: 2 fields"):
        read(b"a,b,c\n" + rows + b"1,2\n")


# --- what is written ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.pq"])
def test_round_trip(tmp_path, name):
    frame = pl.DataFrame({"a": ["007", "", None, 'x,"y"\nz', "t\tab"], "b": ["1"] * 5})
    write_table(frame, tmp_path / name)
    assert read_table(tmp_path / name).equals(frame)


def test_numbers_survive_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-300, 300, 0.6)
    write_table(pl.DataFrame({"x": values, "y": 1}), tmp_path / "out.csv")
    again = read_table(tmp_path / "out.csv")["x"].cast(pl.Float64).to_numpy()
    np.testing.assert_array_equal(again, values)


GERMAN = (
    "Offene Posten, Müller GmbH\n"
    "Beleg;Betrag;Datum;Ort\n"
    "0001;1.234,50;27.03.2025;Köln\n"
    "0002;-7,25;28.03.2025;\n"
)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.filterwarnings("ignore::riskad.tables.notes.ReadingNote")
def test_a_csv_is_written_as_another_was(tmp_path, encoding):
    (tmp_path / "in.csv").write_bytes(GERMAN.encode(encoding))
    place = check_readable(tmp_path / "in.csv")
    frame = read_table(place).with_columns(anomaly_score=pl.Series([0.5, -1e-7]))
    expected = "Beleg;Betrag;Datum;Ort;anomaly_score\n0001;1.234,50;27.03.2025;Köln;0,5\n"
    expected += "0002;-7,25;28.03.2025;;-1e-7\n"
    write_table(frame, tmp_path / "out.csv", csv=csv_format([place]))
    assert (tmp_path / "out.csv").read_bytes() == expected.encode(encoding)
    with open_writer(tmp_path / "parts.csv", csv=csv_format([place])) as write:
        write(frame[:1])
        write(frame[1:])
    assert (tmp_path / "parts.csv").read_bytes() == expected.encode(encoding)
    again = read_table(tmp_path / "out.csv")
    assert again.drop("anomaly_score").equals(frame.drop("anomaly_score"))
    write_table(frame, tmp_path / "out.tsv", csv=csv_format([place]))
    written = (tmp_path / "out.tsv").read_bytes()
    assert written == expected.replace(";", "\t").encode(encoding)


@pytest.mark.parametrize(
    ("data", "separator", "decimal_comma"),
    [
        ("a,b\n1.5,x\n", ",", False),
        ('a,b\n"1,5",x\n', ",", True),  # but a comma separates fields of what is written
        ("a;b\n1.5;x\n", ";", False),
        ("a;b\n1,5;x\n", ";", True),
        ("a;b\n1;x\n", ";", True),
        ("a|b\n1|x\n", "|", False),
    ],
)
def test_how_a_csv_is_written(tmp_path, data, separator, decimal_comma):
    (tmp_path / "in.csv").write_text(data)
    written = csv_format([check_readable(tmp_path / "in.csv")])
    assert written == CsvFormat(separator, decimal_comma=decimal_comma)


def test_tables_that_are_written_differently_are_followed_by_none(tmp_path):
    (tmp_path / "a.csv").write_text("a;b\n1;2\n")
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    (tmp_path / "c.jsonl").write_text('{"a": 1, "b": 2}\n')
    semicolon, comma, json = (
        check_readable(tmp_path / name) for name in ("a.csv", "b.csv", "c.jsonl")
    )
    assert csv_format([semicolon, semicolon]).separator == ";"
    for places in ([semicolon, comma], [semicolon, json], [json], []):
        assert csv_format(places) == CsvFormat()


def test_an_encoding_that_shows_late_is_that_of_the_output(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 64)
    (tmp_path / "in.csv").write_bytes(("a;b\n" + "1;x\n" * 500 + "2;ü\n").encode("cp1252"))
    assert csv_format([check_readable(tmp_path / "in.csv")]).encoding == "cp1252"


# --- workbooks ---------------------------------------------------------------------------


def cells_of(path):
    """The rows of a sheet with the types that Excel sees."""
    return fastexcel.read_excel(path).load_sheet(0).to_polars()


def test_a_workbook_has_numbers_dates_and_texts(tmp_path):
    frame = pl.DataFrame(
        {
            "code": ["007", "008"],
            "paid": ["1.234,50", "-7,25"],
            "day": ["27.03.2025", None],
            "either": ["01/02/2025", "02/03/2025"],
            "money": ["5 €", "6 €"],
            "gap": ["1", "n/a"],
            "card": ["4000123412341234", "4000123412341235"],
            "score": [0.25, float("nan")],
            "rows": pl.Series([1, None], dtype=pl.UInt8),
            "flag": [True, False],
            "when": [datetime(2025, 3, 27, 18, 14), None],
            "old": [date(1899, 1, 1), None],
            "took": [timedelta(seconds=90), None],
            "large": [10**15, -(10**15)],
            "zone": [datetime(2025, 3, 27, tzinfo=UTC), None],
        }
    )
    write_table(frame, tmp_path / "out.xlsx")
    found = cells_of(tmp_path / "out.xlsx")
    assert found.columns == frame.columns
    assert found.row(0) == (
        "007",
        1234.5,
        datetime(2025, 3, 27),
        "01/02/2025",
        "5 €",
        "1",
        "4000123412341234",
        0.25,
        1.0,
        True,
        datetime(2025, 3, 27, 18, 14),
        "1899-01-01",
        "0:01:30",
        "1000000000000000",
        "2025-03-27 00:00:00.000000+00:00",
    )
    assert found.row(1)[:3] == ("008", -7.25, None)
    assert found.row(1)[-8:-2] == (None, None, False, None, None, None)


@pytest.mark.parametrize("text", ["=1+1", "{=1}", "+cmd|' /C calc'!A0", "@SUM(A1)", "http://x.y"])
def test_no_text_of_a_workbook_is_a_formula_or_a_link(tmp_path, text):
    write_table(pl.DataFrame({text: ["x"], "t": [text]}), tmp_path / "out.xlsx")
    assert read_table(tmp_path / "out.xlsx").rows() == [("x", text)]
    assert read_table(tmp_path / "out.xlsx").columns == [text, "t"]
    with zipfile.ZipFile(tmp_path / "out.xlsx") as archive:
        sheet = archive.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "hyperlink" not in sheet


def test_what_a_sheet_cannot_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(workbooks, "SHEET_ROWS", 3)
    path = tmp_path / "out.xlsx"
    frame = pl.DataFrame({"a": [1, 2]})
    with pytest.raises(InputError, match=r"so many rows: a sheet of Excel has 4 with its header"):
        write_table(pl.concat([frame, frame]), path)
    with open_writer(path) as write:
        write(frame)
        with pytest.raises(InputError, match="so many rows"):
            write(frame)
    path.unlink()
    with pytest.raises(InputError, match=r"32,768 characters of a cell of column 'a'"):
        write_table(pl.DataFrame({"a": ["x" * 32_768]}), path)
    with pytest.raises(InputError, match="16,385 columns"):
        write_table(pl.DataFrame({f"c{i}": [1] for i in range(16_385)}), path)
    assert list(tmp_path.iterdir()) == []
    write_table(pl.concat([frame, frame[:1]]), path)
    assert read_table(path)["a"].to_list() == ["1", "2", "1"]


def test_a_library_that_a_workbook_needs_is_named_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(MissingLibrary, match=r"xlsxwriter: pip install 'riskad\[excel\]'"):
        check_writable(tmp_path / "out.xlsx")
    check_writable(tmp_path / "out.csv")


def test_no_overwriting_without_force(tmp_path):
    frame = pl.DataFrame({"a": ["1"], "b": ["2"]})
    (tmp_path / "out.csv").write_text("precious")
    with pytest.raises(InputError, match="force=True"):
        write_table(frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "precious"
    write_table(frame, tmp_path / "out.csv", force=True)
    assert read_table(tmp_path / "out.csv").equals(frame)


def test_what_csv_cannot_hold(tmp_path):
    """Durations are written as text, bytes and lists refused before anything is there."""
    for values in ([b"x"], [[1]], [{"a": 1}]):
        with pytest.raises(InputError, match=r"'b' hold lists, structures or bytes.* \.parquet"):
            write_table(pl.DataFrame({"b": values}), tmp_path / "b.csv")
    with pytest.raises(InputError, match="must end in"):
        write_table(pl.DataFrame({"b": [1]}), tmp_path / "out.csv.gz")
    assert list(tmp_path.iterdir()) == []
    write_table(pl.DataFrame({"t": [timedelta(seconds=90), None]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "t\n0:01:30\n\n"


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
@pytest.mark.parametrize("name", ["out.csv", "out.tsv"])
def test_nothing_written_is_a_formula(tmp_path, name, text):
    frame = pl.DataFrame({text: ["x"], "t": [text], "c": pl.Series([text], dtype=pl.Categorical)})
    write_table(frame, tmp_path / name)
    again = read_table(tmp_path / name)
    expected = f"'{text}"
    if text[0] == "\r" or (text[0] == "\t" and name == "out.csv"):  # where it may be split as well
        expected = f"'{text[0]}'{text[1:]}"
    assert again.columns == [expected, "t", "c"]
    assert again.rows() == [("x", expected, expected)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x;=cmd|' /C calc'!A0", "x;'=cmd|' /C calc'!A0"),
        ('x;"@SUM(1)"', 'x;"\'@SUM(1)"'),
        ("x\n=1+1;-3;+b", "x\n'=1+1;-3;'+b"),
    ],
)
def test_nothing_written_is_a_formula_where_another_separator_splits_it(tmp_path, text, expected):
    frame = pl.DataFrame({"n": ["1", "2"], "x;=1": [text, None]})
    for name in ("out.csv", "out.tsv"):
        write_table(frame, tmp_path / name)
        again = read_table(tmp_path / name)
        assert again.to_dict(as_series=False) == {"n": ["1", "2"], "x;'=1": [expected, None]}
    write_table(pl.DataFrame({"t": ["x\t=1", "x,=1"], "u": ["1", "2"]}), tmp_path / "both.csv")
    assert read_table(tmp_path / "both.csv")["t"].to_list() == ["x\t'=1", "x,=1"]
    write_table(pl.DataFrame({"t": ["x\t=1", "x,=1"], "u": ["1", "2"]}), tmp_path / "both.tsv")
    assert read_table(tmp_path / "both.tsv")["t"].to_list() == ["x\t=1", "x,'=1"]


@pytest.mark.parametrize(
    "text",
    [
        "-3",
        "-3.5e-7",
        "+1e5",
        "-1,5",
        "-1'000.5",
        "-5 %",
        "-",
        "a=b",
        "1-2",
        "'=1",
        "x;'=1",
        "Berlin, +49 30; -5; -",
        "1;-2,5",
        "",
        "3+4",
        "\u2212",
    ],
)
def test_what_is_no_formula_is_written_as_it_is(tmp_path, text):
    frame = pl.DataFrame({"t": [text, "x"], "u": ["1", "2"]})
    write_table(frame, tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv").equals(frame)


def test_numbers_are_no_formulas_and_parquet_needs_no_care(tmp_path):
    frame = pl.DataFrame(
        {"n": [-1.5, 2.0], "i": [-1, None], "=t": ["=1", "'=1"], "'=t": ["", None]}
    )
    write_table(frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "n,i,''=t,'=t\n-1.5,-1,'=1,\"\"\n2.0,,'=1,\n"
    write_table(frame, tmp_path / "out.parquet")
    assert read_table(tmp_path / "out.parquet").equals(frame)
