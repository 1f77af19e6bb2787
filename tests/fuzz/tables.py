"""Tables that a careless or hostile hand has written: CSV, numbers in CSV, Parquet."""

import datetime
import decimal
import io

import pyarrow as pa
import pyarrow.parquet as pq

from . import bases
from .mutations import mutate_bytes

LABEL = "--label status --normal ok --anomaly fraud"
QUICK = "--model shallow --lam 0.1 --loss squared"
# What is done with a table, how often, and what may be added.
COMMANDS = {
    "score MODEL TABLE -o scored.csv": (35, ("--reasons 2", "--fdr 0.1", "--threshold top:3")),
    "score MODEL TABLE -o scored.parquet": (10, ("--reasons 2", "--json")),
    f"look TABLE {LABEL}": (10, ("--json", "--page page.html", "--group txid")),
    "drift QUICK TABLE": (10, ("--json", "--level 0.5")),
    "suggest QUICK TABLE": (10, ("-o next.csv", "--label status", "-n 5 --json")),
    "explain QUICK TABLE": (10, ("-o reasons.csv", "--id txid", "--rows 40 --json")),
    "report QUICK TABLE -o page.html": (4, ("--top 0",)),
    "report QUICK TABLE -o page.json": (3, ("--top 100",)),
    f"fit TABLE {LABEL} {QUICK} -o new.riskad": (8, ("--ranked ranked.csv", "--report page.html")),
    f"fit TABLE {LABEL} -o new.riskad --model shallow": (1, ("--penalty l1", "--loss logistic")),
    f"fit TABLE {LABEL} -o new.riskad --budget 0.5": (0.3, ("--report page.html",)),
    f"fit TABLE {LABEL} -o new.riskad --model boosted": (0.3, ("--risk pu",)),
    f"fit TABLE {LABEL} -o new.riskad --model deep": (0.3, ("--risk pu",)),
}
JUNK = ("", " ", '"', "''", ",", ";", "\t", "\n", "\r", "\\", "\0", "#", "é", "😀", "\u202e", "?")
JUNK += ("ok", "OK ", "fraud", "normal", "1", "-1", "0", "True", "x" * 100_000, "null", "\ud800")
LABELS = ("ok", "OK", " ok", "fraud", "Fraud", "1", "0", "-1", "1.0", "", " ", "NA", "nan", "maybe")
HEADERS = ("", " ", "amount", "status", "anomaly_score", "is_anomaly", "reason_1", "é", "a,b", "1")
HEADERS += ("amount\n", '"', "x" * 5000, "\ufeff", "True", "None", "p_value", "anomaly_probability")
NUMBERS = (
    *("1e308", "-1e308", "1.7976931348623157e308", "1e400", "-1e400", "1e-320", "5e-324", "1e-400"),
    *("inf", "-inf", "Infinity", "nan", "NaN", "-nan", "NA", "", " ", "0", "-0", "-0.0", "1e300"),
    *("9" * 40, "-" + "9" * 40, "0." + "3" * 400, "9007199254740993", "18446744073709551616"),
    *("0x1F", "0b101", "1_000", "1 000", "1,000", "1.234,5", "$5", "5 €", "12%", "1/2", "١٢٣"),
    *("²", "½", "2024-01-31", "31.12.2024", "12:30", "2024-01-31T12:30:00Z", "1e", "e5", "+"),
    *("00123", "+7", ".5", "5.", "1e5", "1E+05", "true", "t" * 50, "1\u00a0000", "1e999999999"),
    *("\uff11\uff12", "\u22125", "--1"),
)
CONSTANTS = ("1e300", "-1e300", "1e-300", "0", "1e308", "5e-324", "123456789012345678", "", "nan")


def commands(rng, table):
    """A command line that reads a table, with a model that knows such tables."""
    line = rng.choices(list(COMMANDS), [weight for weight, _ in COMMANDS.values()])[0]
    line = f"riskad {line} {rng.choice(('', *COMMANDS[line][1]))}".replace("TABLE", table)
    quick = [name for name in bases.TABLE_MODELS if name != "auto"]
    line = line.replace("MODEL", f"{bases.choose(rng, bases.TABLE_MODELS)}.riskad")
    return [line.replace("QUICK", f"{rng.choice(quick)}.riskad").split()]


def csv(rng, folder, store):
    """Structure: quotes, separators, encodings, lines cut short, names, labels."""
    rows = [list(bases.COLUMNS), *bases.table()]
    for _ in range(rng.choice((1, 1, 2, 3))):
        _break_rows(rng, rows)
    data = _csv_text(rng, rows)
    if rng.random() < 0.15:
        data = mutate_bytes(rng, data)
    others = ("table.tsv", "table.txt", "table.CSV", "table.parquet")
    name = rng.choice(("table.csv",) * 30 + others)
    (folder / name).write_bytes(data)
    return commands(rng, name)


def _break_rows(rng, rows):
    if not rows:
        return
    row, change = rng.choice(rows), rng.randrange(10)
    if change == 0:
        rows[0] = [rng.choice(HEADERS) if rng.random() < 0.3 else name for name in rows[0]]
    elif change == 1 and row:
        del row[rng.randrange(len(row)) :]
    elif change == 2:
        row.extend(rng.choice(JUNK) for _ in range(rng.choice((1, 2, 50))))
    elif change == 3 and row:
        row[rng.randrange(len(row))] = rng.choice(JUNK)
    elif change == 4:
        rows.insert(rng.randrange(len(rows) + 1), rng.choice(([], [""], [","] * 6, list(row))))
    elif change == 5 and rng.random() < 0.3:
        del rows[rng.choice((0, 1, 2)) :]
    elif change == 6:
        place, size = rng.randrange(6), rng.choice((0, 2))  # a column less, or one twice
        for row in rows:
            row[place : place + 1] = row[place : place + 1] * size
    elif change == 7:
        for row in rows[1:]:
            if row:
                row[-1] = rng.choice(LABELS)
    elif change == 8:
        column, junk = rng.randrange(6), rng.choice(JUNK)
        for row in rows[rng.choice((0, 1, 1)) :]:
            if len(row) > column:
                row[column] = junk
    elif rng.random() < 0.2:
        del rows[0]


def _csv_text(rng, rows, separator=None):
    separator = separator or rng.choice((",",) * 12 + (";", "\t", "|", " "))
    quote = rng.choice(('"',) * 6 + ("'", ""))
    end = rng.choice(("\n",) * 8 + ("\r\n", "\r", "\n\n"))

    def cell(value):
        special = separator in value or "\n" in value or (quote and quote in value)
        if not special or not quote or rng.random() < 0.1:
            return value
        return f"{quote}{value.replace(quote, quote * 2)}{quote}"

    text = end.join(separator.join(map(cell, row)) for row in rows) + rng.choice((end, end, ""))
    encoding = rng.choice(("utf-8",) * 30 + ("utf-8-sig", "utf-16", "latin-1", "cp1252", "utf-32"))
    return text.encode(encoding, "surrogatepass" if "utf" in encoding else "replace")


def numbers(rng, folder, store):
    """Numbers that overflow, vanish, are none, or are written as people write them."""
    rows = bases.table()
    for _ in range(rng.choice((1, 2, 3))):
        column, how = rng.choice((1, 1, 2, 2, 3)), rng.random()
        few = rng.sample(NUMBERS, rng.choice((1, 1, 2, 4)))
        share = rng.choice((0.04, 0.3, 1))
        constant = rng.choice(CONSTANTS)
        for row in rows:
            if how < 0.25:
                row[column] = constant
            elif how < 0.4:
                row[column] = f"{rng.uniform(-1, 1)}e{rng.choice((-320, -300, 150, 300, 307))}"
            elif rng.random() < share:
                row[column] = rng.choice(few)
    if rng.random() < 0.1:
        rows *= rng.choice((2, 20))
    lines = [",".join(f'"{c}"' if "," in c else c for c in row) for row in (bases.COLUMNS, *rows)]
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return commands(rng, "table.csv")


def parquet(rng, folder, store):
    """Columns of every type, twice, without rows; files that are cut or have changed bytes."""
    columns = list(zip(*bases.table(), strict=True))
    numbers_or_none = [[float(v) if v else None for v in columns[i]] for i in (1, 2)]
    arrays = [pa.array(column) for column in (columns[0], *numbers_or_none, *columns[3:])]
    names = list(bases.COLUMNS)
    for _ in range(rng.choice((0, 1, 1, 2))):
        arrays[rng.randrange(6)] = _column(rng)
    if rng.random() < 0.15:
        names[rng.randrange(6)] = rng.choice(HEADERS)
    if rng.random() < 0.1:
        keep = rng.sample(range(6), rng.choice((0, 1, 3)))
        arrays, names = [arrays[i] for i in keep], [names[i] for i in keep]
    table = pa.table(arrays, names=names)
    table = table.slice(0, rng.choice((30,) * 8 + (0, 1, 2)))
    out = io.BytesIO()
    compression = rng.choice(("snappy", "none", "gzip", "zstd", "brotli", "lz4"))
    options = {"row_group_size": rng.choice((1, 7, 100)), "use_dictionary": rng.random() < 0.5}
    pq.write_table(table, out, compression=compression, **options)
    data = out.getvalue()
    if rng.random() < 0.4:
        start = rng.choice((0, len(data) // 2))  # the second half is mostly the footer
        data = data[:start] + mutate_bytes(rng, data[start:])
    name = rng.choice(("table.parquet",) * 8 + ("table.pq", "table.csv"))
    (folder / name).write_bytes(data)
    return commands(rng, name)


def _column(rng):
    """A column of a type that tables of anomalies seldom have."""
    n, day = bases.N_ROWS, datetime.date(2024, 1, 31)
    moment = datetime.datetime(2024, 1, 31, 12, 30)
    values, kind = rng.choice(
        (
            ([[1.0, 2.0]], pa.list_(pa.float64())),
            ([[]], pa.list_(pa.list_(pa.string()))),
            ([{"a": 1, "b": "x"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ([decimal.Decimal("1.50"), None], pa.decimal128(38, 2)),
            ([decimal.Decimal(10) ** 50], pa.decimal256(76, 0)),
            (["ok", "fraud", None], pa.dictionary(pa.int32(), pa.string())),
            ([b"\xff\x00", b"ok"], pa.binary()),
            ([b"abcd"], pa.binary(4)),
            ([moment], pa.timestamp("ns")),
            ([moment, None], pa.timestamp("us", tz="Europe/Paris")),
            ([day], pa.date32()),
            ([datetime.time(12, 30)], pa.time64("us")),
            ([datetime.timedelta(days=1)], pa.duration("us")),
            ([None], pa.null()),
            ([None], pa.float64()),
            ([1e308, -1e308], pa.float64()),
            ([float("nan"), float("inf"), 1.0], pa.float64()),
            ([1.5, None], pa.float32()),
            ([0.5], pa.float16()),
            ([2**64 - 1, 0], pa.uint64()),
            ([-(2**63), 2**63 - 1], pa.int64()),
            ([True, False, None], pa.bool_()),
            (["", "é", "x" * 5000], pa.large_string()),
            ([{"k": 1.0}], pa.map_(pa.string(), pa.float64())),
            (list(LABELS), pa.string()),
            (list(NUMBERS), pa.string()),
            ([1, -1, 0, None], pa.int16()),
        )
    )
    pairs = [[tuple(v.items())] if pa.types.is_map(kind) else [v] for v in values]
    spread = [pairs[row % len(pairs)][0] for row in range(n)]
    return pa.array(spread, kind)
