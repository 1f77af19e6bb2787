"""CSVs as people export them, and what may happen to them on the way."""

import csv
import io
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Export:
    """A table as some program writes it."""

    rows: tuple[tuple[str, ...], ...]
    separator: str = ","
    end: str = "\n"
    encoding: str = "utf-8"
    always_quoted: bool = False

    def text(self):
        out = io.StringIO(newline="")
        quoting = csv.QUOTE_ALL if self.always_quoted else csv.QUOTE_MINIMAL
        writer = csv.writer(out, delimiter=self.separator, lineterminator=self.end, quoting=quoting)
        writer.writerows(self.rows)
        return out.getvalue()


def exports():
    """Payments, a German bank, sensors, people with notes, a shop's spreadsheet, a log."""
    rng = Random(0)

    def pick(*words):
        return rng.choice(words)

    n = 40
    payments = [("txid", "amount", "age", "country", "status")] + [
        (f"t{i:03d}", f"{rng.gauss(40, 9):.2f}", str(rng.randint(18, 80)), pick("FR", "DE"), "ok")
        for i in range(n)
    ]
    bank = [("Buchungstag", "Empfänger", "Betrag", "Währung")] + [
        (f"{i % 28 + 1:02d}.03.2025", pick("Müller", "Größe GmbH"), f"-{i},5{i % 10}", "€")
        for i in range(n)
    ]
    sensors = [("time", "°C", "hPa", "ok")] + [
        (f"2025-01-01T00:{i:02d}:00Z", f"{rng.gauss(20, 2):.3f}", f"{1000 + i}", pick("yes", "no"))
        for i in range(n)
    ]
    notes = [("name", "note", "score")] + [
        (f"Ann {i}", pick("two\nlines", 'a 5" pipe', "a, b; c", "plain"), str(i)) for i in range(n)
    ]
    shop = [("id", "item", "price", "label")] + [
        (f"{i:05d}", pick("naïve café", "tea"), f"{i * 1.1:,.2f}", pick("", "fraud"))
        for i in range(n)
    ]
    log = [("level", "where", "ms", "code", "user")] + [
        (pick("INFO", "WARN"), f"/a/{i}?x=1&y=2", str(i * 7), "200", pick("", "u1"))
        for i in range(n)
    ]
    return {
        "payments": Export(tuple(payments)),
        "bank": Export(tuple(bank), ";", "\r\n", "cp1252"),
        "sensors": Export(tuple(sensors), "\t", "\n", "utf-16"),
        "notes": Export(tuple(notes), always_quoted=True),
        "shop": Export(tuple(shop), ",", "\r\n", "utf-8-sig"),
        "log": Export(tuple(log), "|"),
    }


def corrupted(rng, export):
    """The bytes of an export after one to three accidents."""
    text, encoding = export.text(), export.encoding
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = rng.choice(ACCIDENTS)(rng, text, export)
    if rng.random() < 0.15:
        encoding = rng.choice(("utf-8", "cp1252", "utf-16", "utf-8-sig", "latin-1"))
    data = text.encode(encoding, "replace")
    if rng.random() < 0.15:
        data = _bytes(rng, data)
    return data


def _place(rng, text):
    return rng.randrange(len(text) + 1)


def _insert(*marks):
    def accident(rng, text, export):
        place = _place(rng, text)
        return text[:place] + rng.choice(marks) + text[place:]

    return accident


def _delete(rng, text, export):
    place = _place(rng, text)
    return text[:place] + text[place + rng.choice((1, 1, 2, 30)) :]


def _cut(rng, text, export):
    return text[: _place(rng, text)]


def _cut_line(rng, text, export):
    lines = text.split("\n")
    k = rng.randrange(len(lines))
    lines[k] = lines[k][: _place(rng, lines[k])]
    return "\n".join(lines)


def _lose_marks(rng, text, export):
    mark = rng.choice((export.separator, '"', "\n"))
    return text.replace(mark, rng.choice(("", " ")), rng.choice((1, 5)))


def _other_marks(rng, text, export):
    lines = text.split("\n")
    k = rng.randrange(len(lines))
    lines[k] = lines[k].replace(export.separator, rng.choice(",;\t|"))
    return "\n".join(lines)


def _title(rng, text, export):
    return (
        rng.choice(("Report of March\n\n", "made by: Ann\n", "sep=;\n", "\n\n", "# note\n")) + text
    )


def _footer(rng, text, export):
    return text + rng.choice(
        (f"Total{export.separator}{export.separator}5\n", "(40 rows)\n", "\n\n")
    )


def _twice(rng, text, export):
    lines = text.split("\n")
    k = rng.randrange(len(lines))
    return "\n".join([*lines[:k], lines[k], *lines[k:]])


ACCIDENTS = (
    _insert('"', "'", '""'),
    _insert(",", ";", "\t", "|"),
    _insert("\n", "\r", "\r\n", "\0"),
    _insert("é", "€", "\ufeff", "日"),
    _delete,
    _cut,
    _cut_line,
    _lose_marks,
    _other_marks,
    _title,
    _footer,
    _twice,
)


def _bytes(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data[: rng.choice((len(data), len(data), len(data) - 1))])
