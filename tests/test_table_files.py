"""Tables as people have them: of other programs, packed, badly exported, through pipes."""

import csv
import gzip
import io
import json
import sqlite3
import sys
import warnings
import zipfile
from datetime import date, datetime, time, timedelta
from random import Random

import duckdb
import fastexcel
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import xlsxwriter
import zstandard
from click.testing import CliRunner
from support.broken_csv import corrupted, exports

import riskad
from riskad.app.spec import FitSpec
from riskad.cli.main import cli
from riskad.core.checks import DataWarning, InputError, MissingLibrary
from riskad.tables import csv_reading, databases, workbooks
from riskad.tables.cells import as_polars, is_frame
from riskad.tables.notes import ReadingNote
from riskad.tables.paths import file_of, find_tables
from riskad.tables.preparation import TablePreparer
from riskad.tables.reading import check_memory, read_batches, read_table
from riskad.tables.writing import open_writer, write_table

CSV = b"a,b\n1,2\n3,4\n"
ROWS = [("1", "2"), ("3", "4")]


@pytest.fixture
def read(tmp_path):
    """Write bytes under a name, read them as a table, and return it with what was noted."""

    def write_and_read(data, name="cards.csv", part=""):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = read_table(f"{path}{part}")
            batches = list(read_batches(f"{path}{part}"))
        assert pl.concat(batches).equals(frame)
        assert all(isinstance(w.message, ReadingNote) for w in caught)
        notes = [str(w.message) for w in caught]
        assert notes[: len(notes) // 2] == notes[len(notes) // 2 :]  # each reading says the same
        return frame, notes[: len(notes) // 2]

    return write_and_read


def refuse(read, match, *arguments):
    with pytest.raises(InputError, match=match) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)


# --- encodings ---------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_in_any_of_its_encodings(read, encoding):
    frame, notes = read("name;größe\nAnn;1,5 €\nBob;2,5 €\n".encode(encoding))
    assert frame.columns == ["name", "größe"]
    assert frame.rows() == [("Ann", "1,5 €"), ("Bob", "2,5 €")]
    assert notes == []


def test_windows_encodings_are_read_and_said(read):
    frame, notes = read("name,größe\nZoë,5 €\n".encode("cp1252"))
    assert (frame.columns, frame.rows()) == (["name", "größe"], [("Zoë", "5 €")])
    assert len(notes) == 1
    assert "Windows-1252: byte 0xf6 on line 1" in notes[0]
    assert issubclass(ReadingNote, DataWarning)


def test_an_encoding_shows_late(read, monkeypatch):
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 100)
    frame, notes = read(b"a,b\n" + b"1,2\n" * 100 + "é,ü\n".encode("cp1252") * 100)
    assert frame.rows()[99:101] == [("1", "2"), ("é", "ü")]
    assert len(notes) == 1
    assert "line 102" in notes[0]


def test_what_is_in_no_encoding(read, monkeypatch):
    refuse(read, "line 2: byte 0x81 is neither UTF-8 nor Windows-1252", b"a,b\n\x81,1\n")
    mixed = "a,b\nñ,1\nñ,1\nñ,1\n".encode() + b"\xe9,1\n"
    refuse(read, "line 5: byte 0xe9 is not UTF-8, which the rest of the file is", mixed)
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 8)
    refuse(read, "line 5: byte 0xe9 is not UTF-8, which the rest of the file is", mixed)
    refuse(read, "begins as UTF-16", "a,b\nxé,1\n".encode("utf-16")[:-1])


# --- separators, headers, totals ---------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "columns", "row"),
    [
        ("betrag;datum\n1,5;1.3.25\n2,5;2.3.25\n", ["betrag", "datum"], ("1,5", "1.3.25")),
        ("who, what|n\na, b|1\nc|2\nd|3\n", ["who, what", "n"], ("a, b", "1")),
        ("a;b\n1;x,y,z\n2;x,y,z\n", ["a", "b"], ("1", "x,y,z")),
        ("sep=;\r\na;b\r\n1,5;2,5\r\n", ["a", "b"], ("1,5", "2,5")),
        ("sep=;\na,b\n1,2\n", ["a", "b"], ("1", "2")),
    ],
)
def test_separators_are_those_of_most_lines(read, data, columns, row):
    frame, notes = read(data)
    assert (frame.columns, frame.row(0), notes) == (columns, row, [])


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("Report of March 2025\n", "skipped 1 line above the header ('Report of March 2025')"),
        ("Account;DE12\nFrom;1.3.2025\n\n", "skipped 2 lines above the header ('Account;DE12')"),
        ("Payments;;;\n;;;\n", "skipped 2 lines above the header ('Payments;;;')"),
        ("# by export 1.2; all rows\n", "skipped 1 line above the header ('# by export 1.2"),
    ],
)
def test_lines_above_the_header_are_skipped_and_said(read, above, said):
    table = "card;shop;paid;status\n1;A;1,5;ok\n2;B;2,5;ok\n"
    frame, notes = read(above + table)
    assert frame.columns == ["card", "shop", "paid", "status"]
    assert frame.rows() == [("1", "A", "1,5", "ok"), ("2", "B", "2,5", "ok")]
    assert len(notes) == 1
    assert said in notes[0]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        ("card,shop\n1,A,3\n2,B,4\n", "line 2: 3 fields where the header has 2"),
        ("card\n1,2,3,4\n5,6,7,8\n", "line 2: 4 fields where the header has 1"),
        ("Title\n\ncard,paid\n1,2\n3\n", "line 5: 1 field where the header has 2"),
        ("card,paid\r1,2\n3,4\n", "carriage return .* line ends of the file are mixed"),
    ],
)
def test_a_bad_header_is_no_title(read, data, match):
    refuse(read, match, data)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ('1,x"y\n2,z\n3,w"v\n', "line 2: a double quote stands inside"),
        ('1,x"\n2,z\n3,w"\n', "line 2: a double quote stands inside"),
        ('1,"x, y"\n2,"z"v\n', "line 3: a double quote stands inside"),
        ('1,""x\n2,z\n', "line 2: a double quote stands inside"),
        ('"1","x\n"2","z"\n"3",w"\n', "line 2: a double quote stands inside"),
        (
            '"1","x ""y"", z"\n"2","z\n',
            "line 3: a double quote stands inside a field or never closes",
        ),
    ],
)
def test_a_quote_that_is_out_of_place(read, rows, said):
    refuse(read, said, f"a,b\n{rows}")


def test_names_that_are_blank_or_twice(read):
    frame, notes = read("a,,a,a_2,a, \n1,2,3,4,5,6\n")
    assert frame.columns == ["a", "column_2", "a_3", "a_2", "a_4", "column_6"]
    assert len(notes) == 1
    assert "4 columns without a name, or with the name of another: called 'column_2'," in notes[0]


# --- packed files ------------------------------------------------------------------------

PACK = {
    "gz": gzip.compress,
    "zst": zstandard.compress,
}


@pytest.mark.parametrize("ending", PACK)
def test_packed_text(read, ending):
    pack = PACK[ending]
    assert read(pack(CSV), f"cards.csv.{ending}")[0].rows() == ROWS
    assert read(pack(CSV[:6]) + pack(CSV[6:]), f"cards.txt.{ending}")[0].rows() == ROWS
    assert read(pack(b'{"a": 1}'), f"cards.jsonl.{ending}")[0].rows() == [(1,)]
    random = b"a\n" + np.random.default_rng(0).bytes(5000).hex().encode()
    for damaged in (pack(random)[:-20], pack(CSV)[:-4], CSV):
        refuse(read, "could not be unpacked", damaged, f"cards.csv.{ending}")


@pytest.mark.parametrize("name", ["cards.csv.bz2", "cards.csv.xz", "cards.csv.zip", "cards.zip"])
def test_other_packings_are_no_kind_of_table(read, name):
    refuse(read, r"no kind of table that riskad knows.*\.csv\.gz, \.csv\.zst", b"BZh9", name)


def test_a_missing_library_is_named(read, monkeypatch):
    for name, module, extra in (
        ("cards.csv.zst", "zstandard", "zstd"),
        ("cards.xlsx", "fastexcel", "excel"),
        ("cards.duckdb", "duckdb", "duckdb"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingLibrary, match=rf"pip install 'riskad\[{extra}\]'"):
            read(b"x", name)


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x1f\x8b\x08", b"PAR1", b"SQLite format 3\0"])
def test_a_wrong_ending_is_said(read, start):
    refuse(read, r"is no text: its first bytes are those of a \.", start + b"xyz\n1,2\n")


# --- JSON lines --------------------------------------------------------------------------


def test_json_lines_of_all_kinds(read, monkeypatch):
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 60)
    lines = [
        {"n": 1, "x": 1, "ok": True, "shop": {"city": "Rome", "at": {"lat": 1.5}}},
        {"n": 2, "x": 2.5, "t": "007", "shop": {"city": None}, "l": [1, 2]},
        *[{"n": 3, "x": None, "late": "2025-03-27"}] * 70,
    ]
    frame, notes = read("\n\n".join(json.dumps(line) for line in lines), "cards.ndjson")
    assert dict(frame.schema) == {
        "n": pl.Int64,
        "x": pl.Float64,
        "ok": pl.Boolean,
        "shop.city": pl.String,
        "shop.at": pl.String,
        "t": pl.String,
        "l": pl.String,
        "late": pl.String,
    }
    assert frame.row(0) == (1, 1.0, True, "Rome", '{"lat":1.5}', None, None, None)
    assert frame.row(1) == (2, 2.5, None, None, None, "007", "[1,2]", None)
    assert (frame.row(71)[-1], notes) == ("2025-03-27", [])


def test_json_lines_whose_values_are_of_several_kinds(read):
    frame, _ = read('{"a": 1}\n{"a": "x"}\n{"a": {"b": 1}}\n{"a": true}\n', "cards.jsonl")
    assert frame["a"].to_list() == ["1", "x", '{"b": 1}', "true"]
    frame, _ = read('{"a": NaN}\n{"a": 3}\n{"a": null}\n', "cards.jsonl")
    assert str(frame["a"].to_list()) == "[nan, 3.0, None]"
    assert read('{"ä": "é"}\n'.encode("utf-16"), "cards.jsonl")[0].rows() == [("é",)]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b'{"a": 1}\n{"a": \n', r"line 2: '\{\"a\":' is not JSON"),
        (b'{"a": 1}\n\n[1, 2]\n', r"line 3: '\[1, 2\]' is no object"),
        (b"{}\n", "is empty"),
        (b'{"a.b": 1, "a": {"b": 2}}\n', "a key 'a.b' and an object"),
        (b'{"a": "\xc3\xa9\xc3\xa9"}\n{"a": "\xe9"}\n', "line 2: byte 0xe9 is not UTF-8"),
        (b"a,b\n1,2\n", "line 1: 'a,b' is not JSON"),
        (b"[" * 100_000, "line 1: .* is not JSON"),
    ],
)
def test_bad_json_lines_say_what_and_where(read, data, match):
    refuse(read, match, data, "cards.jsonl")


# --- workbooks ---------------------------------------------------------------------------


def workbook(tmp_path, sheets, name="cards.xlsx"):
    with xlsxwriter.Workbook(tmp_path / name, {"remove_timezone": True}) as book:
        formats = {
            datetime: book.add_format({"num_format": "dd.mm.yyyy hh:mm"}),
            date: book.add_format({"num_format": "dd.mm.yyyy"}),
        }
        for title, rows in sheets.items():
            sheet = book.add_worksheet(title)
            for i, row in enumerate(rows):
                for j, cell in enumerate(row):
                    if cell is not None:
                        sheet.write(i, j, cell, formats.get(type(cell)))
    return (tmp_path / name).read_bytes()


def test_a_sheet_is_text_and_decimal_numbers(read, tmp_path):
    rows = [
        ("Payments of March",),
        (),
        ("card", "when", "day", "paid", "paid", "ok", "label"),
        ("007", datetime(2025, 3, 27, 18, 14), date(2025, 3, 27), 1.5, 3, True, "fraud"),
        ("008", datetime(2025, 3, 28, 0, 0), date(2025, 3, 28), 2, "x", False, None),
        (None,) * 7,
    ]
    frame, notes = read(workbook(tmp_path, {"March": rows}), "cards.xlsx")
    assert frame.columns == ["card", "when", "day", "paid", "paid_2", "ok", "label"]
    assert frame.rows() == [
        ("007", "2025-03-27 18:14:00", "2025-03-27", 1.5, "3", "true", "fraud"),
        ("008", "2025-03-28 00:00:00", "2025-03-28", 2.0, "x", "false", None),
    ]
    assert ["skipped 1 row" in notes[0], "'paid_2'" in notes[1]] == [True] * 2


def test_several_sheets_are_said(read, tmp_path):
    sheets = {"Notes": [], "March": [("a", "b"), (1, "x")], "April": [("a", "b"), (2, "y")]}
    data = workbook(tmp_path, sheets)
    frame, notes = read(data, "cards.xlsx")
    assert frame.rows() == [("1", "x")]
    assert notes == [
        "'cards.xlsx' has 2 sheets: 'March' was read. For another write cards.xlsx::April"
    ]
    frame, notes = read(data, "cards.xlsx", "::April")
    assert (frame.rows(), notes) == ([("2", "y")], [])
    refuse(
        read,
        "no sheet 'May'; its sheets are 'Notes', 'March', 'April'",
        data,
        "cards.xlsx",
        "::May",
    )
    refuse(read, "'cards.xlsx::Notes' is empty", data, "cards.xlsx", "::Notes")
    for damaged in (data[:900], data[20:]):
        refuse(read, "could not be read as an Excel workbook", damaged, "cards.xlsx")


def sheet_of(tmp_path, rows, sheet=b"sheet1.xml"):
    """A workbook whose sheet has these rows, as XML, and may have another name."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook(tmp_path, {"S": [("a",)]}))) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as book,
    ):
        for name in source.namelist():
            data = source.read(name)
            if name == "xl/worksheets/sheet1.xml":
                start, _, rest = data.partition(b"<sheetData>")
                data = start + b"<sheetData>" + rows + rest[rest.index(b"</sheetData>") :]
            book.writestr(
                name.replace("sheet1.xml", sheet.decode()), data.replace(b"sheet1.xml", sheet)
            )
    return packed.getvalue()


NEAR = (
    b'<row r="1"><c r="A1" t="str"><v>a</v></c><c r="B1" t="str"><v>b</v></c></row>'
    b'<row r="2"><c r="A2"><v>1</v></c><c r="B2"><v>2</v></c></row>'
)


@pytest.mark.parametrize(
    "far",
    [
        b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
        b'<row><c t=">" r="XFD1048576"><v>1</v></c></row>',
        b"<row></row>" * 1_048_573 + b'<row><c r="XFC1048576"><v>1</v></c><c><v>1</v></c></row>',
    ],
)
def test_a_cell_far_from_the_others_is_refused_before_it_takes_memory(read, tmp_path, far):
    refuse(
        read,
        "cells up to row 1,048,576 and column 16,384, but only . are filled. Delete",
        sheet_of(tmp_path, NEAR + far),
        "cards.xlsx",
    )


def test_a_sheet_is_looked_at_whatever_its_name_in_the_workbook(read, tmp_path):
    assert read(sheet_of(tmp_path, NEAR, b"s.dat"), "cards.xlsx")[0].rows() == [("1", "2")]
    far = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    refuse(read, "cells up to row", sheet_of(tmp_path, NEAR + far, b"s.dat"), "cards.xlsx")


def test_a_tag_of_a_sheet_without_an_end_is_refused(read, tmp_path):
    padded = NEAR + b'<row><c t=">" ' + b" " * 3_000_000 + b'r="XFD1048576"><v>1</v></c></row>'
    refuse(read, "could not be read as an Excel workbook", sheet_of(tmp_path, padded), "cards.xlsx")


def test_an_empty_cell_far_from_the_others_does_not_matter(read, tmp_path):
    far = b'<row r="1048576"><c r="XFD1048576" s="0"/></row>'
    frame, _ = read(sheet_of(tmp_path, NEAR + far), "cards.xlsx")
    assert frame.rows() == [("1", "2")]


def test_a_model_of_german_texts_reads_the_same_moments_and_numbers_with_their_type(read, tmp_path):
    days = [date(2025, 3, 1) + timedelta(days=i % 29) for i in range(60)]
    moments = [datetime.combine(day, time(18, i)) for i, day in enumerate(days)]
    amounts = [1.234, *(round(i / 7, 2) for i in range(1, 60))]
    columns = ["Datum", "Zeitpunkt", "Betrag"]
    texts = pl.DataFrame(
        [
            [f"{day:%d.%m.%Y}" for day in days],
            [f"{moment:%d.%m.%Y %H:%M}" for moment in moments],
            [str(amount).replace(".", ",") for amount in amounts],
        ],
        schema=columns,
    )
    preparer = TablePreparer().fit(texts)
    expected = preparer.transform(texts)
    typed = pl.DataFrame([days, moments, amounts], schema=columns)
    sheet, _ = read(workbook(tmp_path, {"S": [columns, *typed.rows()]}), "cards.xlsx")
    iso = typed.with_columns(pl.col("Datum", "Zeitpunkt").cast(pl.String))
    for rows in (typed, iso, sheet, sheet[:1]):
        np.testing.assert_allclose(preparer.transform(rows), expected[: rows.height])


# --- databases ---------------------------------------------------------------------------


def sqlite_file(tmp_path, *statements):
    path = tmp_path / "made.sqlite"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return path.read_bytes()


def test_sqlite_tables(read, tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "_BATCH_CELLS", 500)
    data = sqlite_file(
        tmp_path,
        'CREATE TABLE "my ""cards"""(n INTEGER, x REAL, t TEXT, mixed, blank)',
        "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i < 1000) "
        'INSERT INTO "my ""cards""" '
        "SELECT i, i / 2, printf('%03d', i), iif(i = 900, 'odd', i), NULL FROM c",
    )
    frame, _ = read(data, "cards.db")
    assert dict(frame.schema) == {
        "n": pl.Int64,
        "x": pl.Float64,
        "t": pl.String,
        "mixed": pl.String,
        "blank": pl.Null,
    }
    assert frame.height == 1000
    assert frame.row(899) == (900, 450.0, "900", "odd", None)
    assert read(data, "cards.sqlite", '::my "cards"')[0].equals(frame)


def test_which_table_of_a_database(read, tmp_path):
    data = sqlite_file(tmp_path, "CREATE TABLE a(x)", "CREATE VIEW b AS SELECT 1 AS x")
    assert read(data, "cards.sqlite", "::a")[0].shape == (0, 1)
    assert read(data, "cards.sqlite", "::b")[0].rows() == [(1,)]
    refuse(
        read,
        "holds 2 tables; say which of 'a', 'b' is meant: cards.sqlite::a",
        data,
        "cards.sqlite",
    )
    refuse(read, "no table 'c'; say which of 'a', 'b' is meant", data, "cards.sqlite", "::c")
    refuse(read, "holds no table", sqlite_file(tmp_path, "PRAGMA user_version = 1"), "cards.db")
    refuse(read, "could not be read as SQLite", b"x" * 2000, "cards.sqlite")
    refuse(read, "could not be read as SQLite", data[:1500], "cards.sqlite")
    broken = data.replace(b"CREATE VIEW b", b"CREATE VI\xff\xff b")  # SQLite quotes these bytes
    refuse(read, "could not be read as SQLite", broken, "cards.sqlite", "::b")
    mixed = sqlite_file(tmp_path, "CREATE TABLE a(x)", "INSERT INTO a VALUES (x'00'), (1)")
    refuse(read, "Column 'x' holds bytes and other values", mixed, "cards.sqlite")


def test_duckdb_tables(read, tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "_BATCH_CELLS", 500)
    with duckdb.connect(str(tmp_path / "made.duckdb")) as database:
        database.execute(
            "CREATE TABLE cards AS SELECT i AS n, i / 2 AS x, 'a' || i AS t, DATE '2025-01-01' "
            "AS d FROM range(5000) r(i)"
        )
    data = (tmp_path / "made.duckdb").read_bytes()
    frame, _ = read(data, "cards.duckdb")
    assert dict(frame.schema) == {"n": pl.Int64, "x": pl.Float64, "t": pl.String, "d": pl.Date}
    assert frame.sort("n").row(4999) == (4999, 2499.5, "a4999", date(2025, 1, 1))
    assert read(data, "cards.db", "::cards")[0].shape == (5000, 4)
    refuse(read, "no table 'x'; say which of 'cards' is meant", data, "cards.duckdb", "::x")
    refuse(read, "could not be read as DuckDB", data[:5000], "cards.duckdb")
    refuse(read, "could not be read as DuckDB", b"x" * 20_000, "cards.duckdb")
    with duckdb.connect(str(tmp_path / "made.duckdb")) as database:
        database.execute("DELETE FROM cards")
    assert read((tmp_path / "made.duckdb").read_bytes(), "cards.duckdb")[0].shape == (0, 4)


def test_memory_is_that_of_the_table_not_of_the_database(tmp_path):
    small, large = "CREATE TABLE small AS SELECT 1 AS x", "CREATE TABLE large AS SELECT {} AS x"
    sqlite_file(tmp_path, small, large.format("zeroblob(3000000)"))
    with duckdb.connect(str(tmp_path / "made.duckdb")) as database:
        database.execute(small)
        database.execute(large.format("repeat('x', 3000000)"))
    for name in ("made.sqlite", "made.duckdb"):
        check_memory(tmp_path / f"{name}::small", available=10**6)
        with pytest.raises(InputError, match=r"does not fit in memory: .* takes about 24 MB"):
            check_memory(tmp_path / f"{name}::large", available=10**6)


def test_the_parts_of_a_path(tmp_path, read):
    assert file_of("a.xlsx::b::c") == (file_of("a.xlsx::b")[0].with_name("a.xlsx::b"), "c")
    assert [str(p) for p in find_tables(["a.sqlite::t[1]", "-"])] == ["a.sqlite::t[1]", "-"]
    (tmp_path / "odd::name.csv").write_bytes(CSV)
    assert read_table(tmp_path / "odd::name.csv").rows() == ROWS
    refuse(read, "holds one table: leave out '::x'", CSV, "cards.csv", "::x")


# --- tables of other libraries -----------------------------------------------------------


def test_tables_in_memory_of_any_library():
    frame = pl.DataFrame({"n": [1, 2], "t": ["x", None]})
    database = duckdb.connect()
    given = {
        "polars": frame,
        "lazy": frame.lazy().filter(pl.col("n") > 0),
        "pandas": pd.DataFrame({"n": [1, 2], "t": ["x", None]}),
        "arrow": pa.table({"n": [1, 2], "t": ["x", None]}),
        "duckdb": database.sql("SELECT * FROM (VALUES (1::BIGINT, 'x'), (2, NULL)) v(n, t)"),
    }
    for name, table in given.items():
        assert is_frame(table), name
        assert as_polars(table).equals(frame), name
    database.close()


def test_what_is_no_table_in_memory():
    for other in ("cards.parquet", np.eye(2), [1, 2], {"a": [1]}):
        assert not is_frame(other)
        with pytest.raises(InputError, match="needs named columns"):
            as_polars(other)
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InputError, match="different names"):
        as_polars(twice)
    with pytest.raises(InputError, match="0 rows"):
        as_polars(pl.LazyFrame({"a": []}))


# --- pipes -------------------------------------------------------------------------------


class Stdin:
    def __init__(self, data):
        self.buffer = io.BytesIO(data)

    def isatty(self):
        return not self.buffer.getvalue()


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "xlsx"])
def test_standard_input_is_any_table(monkeypatch, tmp_path, kind):
    data = {"csv": b"a;b\n1;2\n", "jsonl": b' {"a": "1", "b": "2"}\n'}.get(kind)
    if kind == "parquet":
        pl.DataFrame({"a": ["1"], "b": ["2"]}).write_parquet(tmp_path / "x")
        data = (tmp_path / "x").read_bytes()
    if kind == "xlsx":
        data = workbook(tmp_path, {"S": [("a", "b"), (1, 2)]})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", Stdin(data))
    batches = read_batches("-")
    for _ in range(2):  # can be gone through again
        assert pl.concat(batches).rows() == [("1", "2")]
    assert list(tmp_path.glob("riskad-*"))
    del batches
    assert not list(tmp_path.glob("riskad-*"))


def test_what_cannot_come_through_a_pipe(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for data, match in [
        (b"", "nothing is piped into it"),
        (gzip.compress(CSV), r"is packed \(\.gz\)"),
        (zstandard.compress(CSV), r"is packed \(\.zst\)"),
        (b"a,b\n1\n", "'standard input', line 2: 1 field where"),
    ]:
        monkeypatch.setattr(sys, "stdin", Stdin(data))
        with pytest.raises(InputError, match=match):
            read_table("-")
        assert not list(tmp_path.iterdir())


def test_standard_output(capfdbinary, monkeypatch):
    frame = pl.DataFrame({"a": ["=1", "2"]})
    write_table(frame, "-")
    with open_writer("-") as write:
        write(frame)
        write(frame)
    assert capfdbinary.readouterr().out == b"a\n'=1\n2\n" + b"a\n'=1\n2\n'=1\n2\n"


def test_a_reader_that_went_away_is_no_error_of_the_table(monkeypatch):
    class Gone:
        def write(self, data):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", type("Out", (), {"buffer": Gone()}))
    with pytest.raises(BrokenPipeError), open_writer("-") as write:
        write(pl.DataFrame({"a": ["1"]}))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return model_of(tmp_path_factory.mktemp("model"), ".")


def model_of(folder, decimal):
    """The file of a model of amounts that are written with a decimal mark."""
    rng = np.random.default_rng(0)
    labels = ["ok"] * 20 + ["fraud"] * 10 + [None] * 30
    amount = rng.normal(20, 3, 60) + 40 * (np.arange(60) // 10 == 2)
    texts = [f"{each:.2f}".replace(".", decimal) for each in amount]
    table = pl.DataFrame({"amount": texts, "status": labels})
    fit = riskad.fit_table(
        table,
        FitSpec(label="status", normal=["ok"], anomaly=["fraud"]),
        model="shallow",
        settings={"lam": 0.1},
    )
    path = folder / "cards.riskad"
    riskad.save(fit.model, path, report=fit.report)
    return path


@pytest.mark.parametrize("options", [(), ("--json",), ("--threshold", "top:1")])
def test_score_in_a_pipe_prints_the_table_alone(model, options):
    runner = CliRunner()
    ran = runner.invoke(cli, ["score", str(model), "-", "-o", "-", *options], b"amount\n20\n75\n")
    assert ran.exit_code == 0, ran.output
    rows = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [row["amount"] for row in rows] == ["20", "75"]
    assert float(rows[1]["anomaly_score"]) > float(rows[0]["anomaly_score"])
    assert "standard input" in ran.stderr


def test_commands_say_on_stderr_how_they_read(model, tmp_path):
    (tmp_path / "new.csv").write_bytes("Report\n\namount;größe\n20;1\n75;2\n".encode("cp1252"))
    ran = CliRunner().invoke(
        cli, ["score", str(model), str(tmp_path / "new.csv"), "-o", "-", "--threshold", "top:1"]
    )
    assert ran.exit_code == 0, ran.output
    notes = [line for line in ran.stderr.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 2
    assert "Windows-1252" in notes[0]
    assert "skipped 1 line above the header" in notes[1]
    written = ran.stdout_bytes.decode("cp1252").splitlines()  # as it was read
    assert written[0].startswith("amount;größe;anomaly_score;")
    assert written[1].startswith("20;1;-0,")


GERMAN = "Stand: März\namount;größe\n20,5;klein\n75,25;groß\n"


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig"])
def test_a_german_csv_is_scored_into_one_and_into_a_workbook(tmp_path, encoding):
    model = model_of(tmp_path, ",")
    (tmp_path / "neu.csv").write_bytes(GERMAN.encode(encoding))
    asked = ["score", str(model), str(tmp_path / "neu.csv"), "--reasons", "1", "-o"]
    for name in ("scored.csv", "scored.xlsx", "scored.parquet"):
        ran = CliRunner().invoke(cli, [*asked, str(tmp_path / name)])
        assert ran.exit_code == 0, ran.output
    lines = (tmp_path / "scored.csv").read_bytes().decode(encoding).splitlines()
    assert lines[0].startswith("amount;größe;anomaly_score;is_anomaly")
    exact = pl.read_parquet(tmp_path / "scored.parquet")["anomaly_score"].to_list()
    assert [float(line.split(";")[2].replace(",", ".")) for line in lines[1:]] == exact
    with warnings.catch_warnings(action="ignore"):
        again = read_table(tmp_path / "scored.csv")
    sheet = fastexcel.read_excel(tmp_path / "scored.xlsx").load_sheet(0).to_polars()
    assert sheet.columns == again.columns
    assert sheet["amount"].to_list() == [20.5, 75.25]
    assert sheet["größe"].to_list() == again["größe"].to_list() == ["klein", "groß"]
    np.testing.assert_allclose(sheet["anomaly_score"].to_list(), exact, rtol=1e-14)


def test_too_many_rows_for_a_workbook_are_said_before_they_are_scored(model, tmp_path, monkeypatch):
    monkeypatch.setattr(workbooks, "SHEET_ROWS", 1)
    monkeypatch.setattr("riskad.app.score.score_table", None)
    (tmp_path / "new.csv").write_text("amount\n20\n75\n")
    asked = ["score", str(model), str(tmp_path / "new.csv"), "-o", str(tmp_path / "out.xlsx")]
    ran = CliRunner().invoke(cli, asked)
    assert ran.exit_code == 1
    assert "'out.xlsx' cannot hold so many rows" in ran.stderr


# --- whatever happens on the way ---------------------------------------------------------


def oracle(data, separator):
    """The records as Python's own reader sees them; None where it may see others than we do."""
    encodings = ["utf-16"] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]
    for encoding in encodings:
        try:
            text = data.decode(encoding)
        except UnicodeError:
            continue
        if '"' in text or "\r" in text.replace("\r\n", ""):
            return None
        records = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        return [tuple(record) for record in records if any(record)]
    return None


@pytest.mark.parametrize("name", exports())
def test_corrupted_csvs_are_read_right_or_refused_in_a_sentence(name, tmp_path):
    export, path = exports()[name], tmp_path / "cards.csv"
    refused, n_read = [], 0
    for number in range(170):
        path.write_bytes(data := corrupted(Random(f"{name}/{number}"), export))
        try:
            with warnings.catch_warnings(action="ignore", category=ReadingNote):
                frame = read_table(path)
        except InputError as error:
            refused.append(str(error))
            continue
        n_read += 1
        assert len(set(frame.columns)) == frame.width > 0
        records = oracle(data, export.separator)
        if records is not None:
            rows = [tuple(cell or "" for cell in row) for row in frame.rows()]
            n = len(rows)
            assert n >= len(records) - 4, number
            assert rows in (records[len(records) - n :], records[len(records) - n - 1 : -1]), number
    assert min(n_read, len(refused)) > 20
    assert [text for text in refused if "\n" in text or "cards.csv" not in text] == []


def test_a_view_of_a_database_reads_no_other_file(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n", encoding="utf-8")
    path = tmp_path / "sent.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(f"CREATE VIEW payments AS SELECT * FROM read_csv('{secret}')")
    with pytest.raises(InputError):
        read_table(path)
