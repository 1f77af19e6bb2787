import zipfile
from datetime import UTC, date, datetime, timedelta

import fastexcel
import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.tables import csv_reading, workbooks
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.paths import check_readable, check_table_name
from riskad.tables.reading import csv_format, read_table
from riskad.tables.writing import open_writer, write_table

# --- what is read ------------------------------------------------------------------------


def test_csv_comes_as_text(read):
    frame, _ = read("code,amount\n007,1.50\n,x\n")
    assert frame.rows() == [("007", "1.50"), (None, "x")]
    assert set(frame.dtypes) == {pl.String}


def test_the_same_table_however_it_was_exported(read):
    for data in (
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b"a,b\r1,2\r3,4\r",
        b"a,b\n1,2\n3,4",
        b"\na,b\n1,2\n\n3,4\n\n\n",
        b"a,b\r\n1,2\r\n\r\n3,4\r\n\r\n",
        b"a;b\n1;2\n3;4\n",
        b"a\tb\n1\t2\n3\t4\n",
        b"a|b\n1|2\n3|4\n",
        b'"a","b"\n"1","2"\n"3","4"\n',
        b"a,b\n1,2\n,\n3,4\n",
    ):
        frame, notes = read(data)
        assert (frame.columns, notes) == (["a", "b"], [])
        assert frame.rows() == [("1", "2"), ("3", "4")], data


def test_quoted_newlines_separators_and_quotes(read):
    frame, _ = read('note,n\n"two\nlines",1\n"a, b",2\n"5"" pipe",3\n"",\n')
    assert frame["note"].to_list() == ["two\nlines", "a, b", '5" pipe', ""]


# --- what is refused, and how ------------------------------------------------------------


def test_bad_csv_says_what_and_where(read):
    for data, message in (
        (b"", "is empty"),
        (b"\n\n \n", "is empty"),
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
        (b"card,shop\n1,A,3\n2,B,4\n", "line 2: 3 fields where the header has 2"),
        (b"card\n1,2,3,4\n5,6,7,8\n", "line 2: 4 fields where the header has 1"),
        (b"Title\n\ncard,paid\n1,2\n3\n", "line 5: 1 field where the header has 2"),
        (b"card,paid\r1,2\n3,4\n", "carriage return .* line ends of the file are mixed"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read(data)
        assert "\n" not in str(caught.value)


def test_unknown_kinds_of_file(read, tmp_path):
    with pytest.raises(InputError, match=r"must end in one of \.csv"):
        read(b"PK", "cards.sas7bdat")
    with pytest.raises(InputError, match=r"Did you mean 'cards\.sas7bdat'"):
        read_table(tmp_path / "card.sas7bdat")
    assert check_table_name("a.b.CSV.GZ", (".csv", ".csv.gz"))[1] == ".csv.gz"


# --- what is written ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.pq"])
def test_round_trip(tmp_path, name):
    frame = pl.DataFrame({"a": ["007", "", None, 'x,"y"\nz', "t\tab"], "b": ["1"] * 5})
    write_table(frame, tmp_path / name)
    assert read_table(tmp_path / name).equals(frame)


GERMAN = (
    "Offene Posten, Müller GmbH\n"
    "Beleg;Betrag;Datum;Ort\n"
    "0001;1.234,50;27.03.2025;Köln\n"
    "0002;-7,25;28.03.2025;\n"
)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8", "utf-8-sig", "utf-16", "utf-32"])
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


def test_an_encoding_that_shows_late_is_that_of_the_output(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 64)
    (tmp_path / "in.csv").write_bytes(("a;b\n" + "1;x\n" * 500 + "2;ü\n").encode("cp1252"))
    assert csv_format([check_readable(tmp_path / "in.csv")]).encoding == "cp1252"


# --- workbooks ---------------------------------------------------------------------------


def cells_of(path):
    """The rows of a sheet with the types that Excel sees."""
    return fastexcel.read_excel(path).load_sheet(0).to_polars()


NOON = datetime(2025, 3, 27, 12)
CELLS = {  # what is written, and what Excel sees
    "code": (["007", "008"], ["007", "008"]),
    "paid": (["1.234,50", "-7,25"], [1234.5, -7.25]),
    "day": (["27.03.2025", None], [datetime(2025, 3, 27), None]),
    "either": (["01/02/2025", "02/03/2025"], ["01/02/2025", "02/03/2025"]),
    "money": (["5 €", "6 €"], ["5 €", "6 €"]),
    "gap": (["1", "n/a"], ["1", "n/a"]),
    "card": (["4000123412341234", "4000123412341235"],) * 2,
    "score": ([0.25, float("nan")], [0.25, None]),
    "flag": ([True, False], [True, False]),
    "when": ([NOON, None], [NOON, None]),
    "old": ([date(1899, 1, 1), None], ["1899-01-01", None]),
    "took": ([timedelta(seconds=90), None], ["0:01:30", None]),
    "large": ([10**15, -(10**15)], ["1000000000000000", "-1000000000000000"]),
    "zone": ([NOON.replace(tzinfo=UTC), None], ["2025-03-27 12:00:00+00:00", None]),
}


def test_a_workbook_has_numbers_dates_and_texts(tmp_path):
    frame = pl.DataFrame({name: written for name, (written, _) in CELLS.items()})
    write_table(frame, tmp_path / "out.xlsx")
    sheet = cells_of(tmp_path / "out.xlsx").to_dict(as_series=False)
    assert sheet == {name: seen for name, (_, seen) in CELLS.items()}


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


NO_FORMULAS = (
    *("-3", "-3.5e-7", "+1e5", "-1,5", "-1'000.5", "-5 %", "-", "a=b", "1-2", "'=1", "x;'=1"),
    *("Berlin, +49 30; -5; -", "1;-2,5", "", "3+4", "\u2212"),
)


def test_what_is_no_formula_is_written_as_it_is(tmp_path):
    frame = pl.DataFrame({"t": NO_FORMULAS, "u": "1"})
    write_table(frame, tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv").equals(frame)
    numbers = pl.DataFrame({"n": [-1.5, 2.0], "i": [-1, None], "=t": ["=1", "'=1"]})
    write_table(numbers, tmp_path / "n.csv")
    assert (tmp_path / "n.csv").read_text() == "n,i,'=t\n-1.5,-1,'=1\n2.0,,'=1\n"
    write_table(numbers, tmp_path / "n.parquet")
    assert read_table(tmp_path / "n.parquet").equals(numbers)
