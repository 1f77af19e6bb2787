"""Tables as people have them: of other programs, packed, badly exported, through pipes."""

import csv
import gzip
import io
import json
import sqlite3
import sys
import warnings
import zipfile
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from random import Random

import duckdb
import fastexcel
import numpy as np
import polars as pl
import pytest
import xlsxwriter
import zstandard
from fuzz import bases, tables
from fuzz.mutations import mutate_bytes
from support.commands import run
from support.loops import each

import riskad
from riskad.app.spec import FitSpec
from riskad.core.checks import DataWarning, InputError, MissingLibrary
from riskad.tables import csv_reading, databases
from riskad.tables.notes import ReadingNote
from riskad.tables.reading import read_batches, read_table
from riskad.tables.writing import open_writer, write_table

CSV = b"a,b\n1,2\n3,4\n"
ROWS = [("1", "2"), ("3", "4")]


def refuse(read, match, *arguments):
    with pytest.raises(InputError, match=match) as caught:
        read(*arguments)
    assert "\n" not in str(caught.value)


# --- encodings ---------------------------------------------------------------------------


def test_windows_encodings_are_read_and_said(read):
    frame, notes = read("name,größe\nZoë,5 €\n".encode("cp1252"))
    assert (frame.columns, frame.rows()) == (["name", "größe"], [("Zoë", "5 €")])
    assert len(notes) == 1
    assert "Windows-1252: byte 0xf6 on line 1" in notes[0]
    assert issubclass(ReadingNote, DataWarning)


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


# --- packed files ------------------------------------------------------------------------

PACK = {"gz": gzip.compress, "zst": zstandard.compress}


@pytest.mark.parametrize("ending", PACK)
def test_packed_text(read, ending):
    pack = PACK[ending]
    assert read(pack(CSV), f"cards.csv.{ending}")[0].rows() == ROWS
    assert read(pack(CSV[:6]) + pack(CSV[6:]), f"cards.txt.{ending}")[0].rows() == ROWS
    assert read(pack(b'{"a": 1}'), f"cards.jsonl.{ending}")[0].rows() == [(1,)]
    random = b"a\n" + np.random.default_rng(0).bytes(5000).hex().encode()
    for damaged in (pack(random)[:-20], pack(CSV)[:-4], CSV):
        refuse(read, "could not be unpacked", damaged, f"cards.csv.{ending}")


def test_a_missing_library_is_named(read, monkeypatch):
    for name, module, extra in (
        ("cards.csv.zst", "zstandard", "zstd"),
        ("cards.xlsx", "fastexcel", "excel"),
        ("cards.duckdb", "duckdb", "duckdb"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingLibrary, match=rf"pip install 'riskad\[{extra}\]'"):
            read(b"x", name)


# --- JSON lines --------------------------------------------------------------------------


def test_json_lines_of_all_kinds(read, monkeypatch):
    monkeypatch.setattr(csv_reading, "_BATCH_BYTES", 60)
    lines = [
        {"n": 1, "x": 1, "ok": True, "shop": {"city": "Rome", "at": {"lat": 1.5}}},
        {"n": 2, "x": 2.5, "t": "007", "shop": {"city": None}, "l": [1, 2]},
        *[{"n": 3, "x": None, "late": "2025-03-27"}] * 70,
    ]
    frame, notes = read("\n\n".join(json.dumps(line) for line in lines), "cards.ndjson")
    assert frame.columns == ["n", "x", "ok", "shop.city", "shop.at", "t", "l", "late"]
    assert frame.dtypes == [pl.Int64, pl.Float64, pl.Boolean, *[pl.String] * 5]
    assert frame.row(0) == (1, 1.0, True, "Rome", '{"lat":1.5}', None, None, None)
    assert frame.row(1) == (2, 2.5, None, None, None, "007", "[1,2]", None)
    assert (frame.row(71)[-1], notes) == ("2025-03-27", [])


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (
            b'{"a": 1}\n{"a": \n',
            r"line 2: '\{\"a\":' is not JSON \(Expecting value at character 7\)",
        ),
        (b'{"a": 1}\n\n[1, 2]\n', r"line 3: '\[1, 2\]' is not an object"),
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
    frame, (note,) = read(data, "cards.xlsx")
    assert frame.rows() == [("1", "x")]
    assert (
        note == "'cards.xlsx' has 2 sheets: 'March' was read. For another write cards.xlsx::April"
    )
    frame, notes = read(data, "cards.xlsx", "::April")
    assert (frame.rows(), notes) == ([("2", "y")], [])
    sheets = "'Notes', 'March', 'April'"
    refuse(read, f"no sheet 'May'; its sheets are {sheets}", data, "cards.xlsx", "::May")
    refuse(read, "'cards.xlsx::Notes' is empty", data, "cards.xlsx", "::Notes")
    for damaged in (data[:900], data[20:]):
        refuse(read, "could not be read as an Excel workbook", damaged, "cards.xlsx")


def sheet_of(tmp_path, rows):
    """A workbook whose sheet has these rows, as XML."""
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
            book.writestr(name, data)
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
    words = "cells up to row 1,048,576 and column 16,384, but only . are filled. Delete"
    refuse(read, words, sheet_of(tmp_path, NEAR + far), "cards.xlsx")


# --- databases ---------------------------------------------------------------------------


def sqlite_file(tmp_path, *statements):
    path = tmp_path / "made.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database, database:
        for statement in statements:
            database.execute(statement)
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
    assert frame.columns == ["n", "x", "t", "mixed", "blank"]
    assert frame.dtypes == [pl.Int64, pl.Float64, pl.String, pl.String, pl.Null]
    assert frame.height == 1000
    assert frame.row(899) == (900, 450.0, "900", "odd", None)
    assert read(data, "cards.sqlite", '::my "cards"')[0].equals(frame)


def test_which_table_of_a_database(read, tmp_path):
    data = sqlite_file(tmp_path, "CREATE TABLE a(x)", "CREATE VIEW b AS SELECT 1 AS x")
    assert read(data, "cards.sqlite", "::a")[0].shape == (0, 1)
    assert read(data, "cards.sqlite", "::b")[0].rows() == [(1,)]
    which = "holds 2 tables; say which of 'a', 'b' is meant: cards.sqlite::a"
    refuse(read, which, data, "cards.sqlite")
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


def model_of(folder, decimal):
    """The file of a model of amounts that are written with a decimal mark."""
    rng = np.random.default_rng(0)
    labels = ["ok"] * 20 + ["fraud"] * 10 + [None] * 30
    amount = rng.normal(20, 3, 60) + 40 * (np.arange(60) // 10 == 2)
    texts = [f"{each:.2f}".replace(".", decimal) for each in amount]
    table = pl.DataFrame({"amount": texts, "status": labels})
    labels = FitSpec(label="status", normal=["ok"], anomaly=["fraud"])
    fit = riskad.fit_table(table, labels, model="shallow", settings={"lam": 0.1})
    path = folder / "cards.riskad"
    riskad.save(fit.model, path, report=fit.report)
    return path


GERMAN = "Stand: März\namount;größe\n20,5;klein\n75,25;groß\n"


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8-sig"])
def test_a_german_csv_is_scored_into_one_and_into_a_workbook(tmp_path, encoding):
    model = model_of(tmp_path, ",")
    (tmp_path / "neu.csv").write_bytes(GERMAN.encode(encoding))
    asked = ("score", model, tmp_path / "neu.csv", "--reasons", 1, "-o")
    for name in ("scored.csv", "scored.xlsx", "scored.parquet"):
        run(*asked, tmp_path / name)
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


# --- whatever happens on the way ---------------------------------------------------------


def oracle(data, separator):
    """The records as Python's own reader sees them; None where it may see others than we do."""
    encodings = ["utf-16"] if data[:2] in (b"\xff\xfe", b"\xfe\xff") else ["utf-8-sig", "cp1252"]
    for encoding in ["utf-32"] if data[:4] == b"\xff\xfe\0\0" else encodings:
        try:
            text = data.decode(encoding)
        except UnicodeError:
            continue
        if '"' in text or "\r" in text.replace("\r\n", ""):
            return None
        records = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        return [tuple(record) for record in records if any(record)]
    return None


def corrupted(rng, separator):
    """A CSV after up to three accidents, which are those of the fuzzer."""
    rows = [list(bases.COLUMNS), *bases.table()]
    for _ in range(rng.choice((0, 1, 2, 3))):
        tables._break_rows(rng, rows)
    data = tables._csv_text(rng, rows, separator)
    return mutate_bytes(rng, data) if rng.random() < 0.15 else data


@pytest.mark.slow
@each("separator", [",", ";", "\t", "|"])
def test_corrupted_csvs_are_read_right_or_refused_in_a_sentence(separator, tmp_path):
    path, refused, n_read = tmp_path / "cards.csv", [], 0
    for number in range(250):
        path.write_bytes(data := corrupted(Random(f"{separator}/{number}"), separator))
        try:
            with warnings.catch_warnings(action="ignore", category=ReadingNote):
                frame = read_table(path)
        except InputError as error:
            refused.append(str(error))
            continue
        n_read += 1
        assert len(set(frame.columns)) == frame.width > 0
        records = oracle(data, separator)
        if records is not None:
            rows = [tuple(cell or "" for cell in row) for row in frame.rows()]
            n = len(rows)
            assert n >= len(records) - 4, number
            assert rows in (records[len(records) - n :], records[len(records) - n - 1 : -1]), number
    assert min(n_read, len(refused)) > 20
    assert [text for text in refused if "\n" in text or "cards.csv" not in text] == []


def test_a_view_of_a_database_reads_no_other_file(tmp_path):
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n", encoding="utf-8")
    path = tmp_path / "sent.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(f"CREATE VIEW payments AS SELECT * FROM read_csv('{secret}')")
    with pytest.raises(InputError):
        read_table(path)


def test_decimals_of_256_bits_are_numbers(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    amounts = arrow.array([Decimal("1.25"), None], arrow.decimal256(60, 2))
    parquet.write_table(arrow.table({"amount": amounts, "n": [1, 2]}), tmp_path / "x.parquet")
    assert read_table(tmp_path / "x.parquet").to_dict(as_series=False) == {
        "amount": [1.25, None],
        "n": [1, 2],
    }
