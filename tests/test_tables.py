import gzip
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.tables.columns import check_columns
from riskad.tables.paths import check_table_name
from riskad.tables.reading import read_table
from riskad.tables.writing import write_table


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


def test_gzip(read):
    assert read(gzip.compress(b"a,b\n1,2\n"), "cards.csv.gz").rows() == [("1", "2")]
    with pytest.raises(InputError, match="could not be unpacked"):
        read(gzip.compress(b"a,b\n1,2\n")[:-4], "cards.csv.gz")
    with pytest.raises(InputError, match="could not be unpacked"):
        read(b"a,b\n1,2\n", "cards.csv.gz")


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
        (b"1.5,2\n3,4\n", "holds only numbers"),
        (b"a,b\n1,2\n1,\x81\n", "line 3: byte 0x81 is neither UTF-8 nor Windows-1252"),
        ("a,b\n\u00e9\u00fc,\u00e9\n".encode() + b"1,\xe9\n", "line 3: byte 0xe9 is not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16")[:-1], "begins as UTF-16"),
        (b"a,b\n1,2\n1\n1,2\n", "line 3: 1 field where the header has 2"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: 3 fields where the header has 2"),
        (b'a,b\n"two\nlines",2\n3,\n4\n', "line 5: 1 field where"),
        (b"a,b\n1\n2\n3\n", r"\(at least 2 more lines like it\)"),
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


def test_no_overwriting_without_force(tmp_path):
    frame = pl.DataFrame({"a": ["1"], "b": ["2"]})
    (tmp_path / "out.csv").write_text("precious")
    with pytest.raises(InputError, match="force=True"):
        write_table(frame, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "precious"
    write_table(frame, tmp_path / "out.csv", force=True)
    assert read_table(tmp_path / "out.csv").equals(frame)


def test_what_csv_cannot_hold(tmp_path):
    frame = pl.DataFrame({"a": [[1, 2], [3]]})
    with pytest.raises(InputError, match=r"'a' hold lists, .* \.parquet"):
        write_table(frame, tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="must end in"):
        write_table(frame, tmp_path / "out.csv.gz")


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
@pytest.mark.parametrize("name", ["out.csv", "out.tsv"])
def test_nothing_written_is_a_formula(tmp_path, name, text):
    frame = pl.DataFrame({text: ["x"], "t": [text], "c": pl.Series([text], dtype=pl.Categorical)})
    write_table(frame, tmp_path / name)
    again = read_table(tmp_path / name)
    assert again.columns == [f"'{text}", "t", "c"]
    assert again.rows() == [("x", f"'{text}", f"'{text}")]


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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a,b,c\n1,2,3\n4,5\n6,7,8\n", r"line 3: 2 fields .* the line was cut short"),
        (b"a,b,c\n1,2,3\n4,5\n", r"line 3: 2 fields .* the file was cut short"),
        (b"a,b,c\n1,2,3\n4,5", r"line 3: 2 fields .* the file was cut short"),
        (b'a,b,c\n1,2,3\n4,"5', "line 3 opens a double quote that it never closes"),
        (b"a,b,c\n1,2,3,4\n", "A field that contains ',' must be in double quotes"),
    ],
)
def test_a_line_cut_short_is_called_that(tmp_path, data, said):
    path = tmp_path / "cut.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said):
        read_table(path)


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xef\xbb\xbf\r\n \n"])
def test_a_byte_order_mark_alone_is_an_empty_table(tmp_path, data):
    path = tmp_path / "empty.csv"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is empty"):
        read_table(path)


def test_types_that_csv_lacks(tmp_path):
    """Durations are written as text, bytes and lists refused before anything is there."""
    write_table(pl.DataFrame({"t": [timedelta(seconds=90), None]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "t\n0:01:30\n\n"
    for values in ([b"x"], [[1]], [{"a": 1}]):
        with pytest.raises(InputError, match="hold lists, structures or bytes"):
            write_table(pl.DataFrame({"b": values}), tmp_path / "b.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]
