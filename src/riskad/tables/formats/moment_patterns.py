"""How moments are written: patterns of directives as in strptime, and those that fit a cell.

A pattern is text with directives:

========= ==================================== ====== =========================================
``%Y %y`` year of 4 or of 2 digits             ``%H`` hour, 0 to 23
``%m``    month, 1 to 12                       ``%I`` hour, 1 to 12, beside ``%p``, AM or PM
``%b %B`` name of a month, shortened or not    ``%M`` minute
``%d``    day of the month                     ``%S`` second, with a fraction or without
``%a %A`` name of a weekday, which is not read ``%z`` Z, UTC, GMT, +02, +0200 or +02:00
========= ==================================== ====== =========================================

Leading zeros may be absent. Years of 2 digits are 1969 to 2068. A date without a day is the first
of its month. Beside these there are the patterns `SPECIAL`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from riskad.core.checks import InputError, quoted
from riskad.tables.formats.month_names import MONTHS, WEEKDAYS

__all__ = [
    "COUNTS",
    "ISO",
    "SPECIAL",
    "checked_pattern",
    "directives",
    "expression",
    "has_clock",
    "offset_seconds",
    "ways_to_read",
]

Way = tuple[str, str]  # "date", "time" or "duration", and a pattern

_DIRECTIVES = {
    "Y": "(?P<Y>[0-9]{4})",
    "y": "(?P<y>[0-9]{2})",
    "m": "(?P<m>[0-9]{1,2})",
    "b": r"(?P<b>\p{L}+)\.?",
    "B": r"(?P<b>\p{L}+)\.?",
    "d": "(?P<d>[0-9]{1,2})(?:st|nd|rd|th|er|º)?",
    "a": r"\p{L}+\.?",
    "A": r"\p{L}+\.?",
    "H": "(?P<H>[0-9]{1,2})",
    "I": "(?P<I>[0-9]{1,2})",
    "M": "(?P<M>[0-9]{1,2})",
    "S": "(?P<S>[0-9]{1,2}(?:[.,][0-9]{1,9})?)",
    "p": r"(?P<p>[AaPp])\.?\s?[Mm]\.?",
    "z": r"(?P<z>Z|z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?)",
}
_NUMBER = r"[0-9]+(?:[.,][0-9]+)?"
_UNITS = (
    ("w", "w|(?i:weeks?|wochen?|semaines?|semanas?)"),
    ("D", "d|(?i:days?|tage?n?|jours?|d[ií]as?)"),
    ("H", "h|(?i:hrs?|hours?|std|stunden?|heures?|horas?)"),
    ("M", "m|(?i:mins?|minutes?|minuten?|minutos?)"),
    ("S", "s|(?i:secs?|seconds?|sek|sekunden?|secondes?|segundos?)"),
    ("f", "ms|(?i:msecs?|milliseconds?|millisekunden?)"),
)
# Durations with units: every part may be absent; a cell without any is no duration.
SPECIAL = {
    "units": "^(?P<sign>-)?"
    + "".join(
        rf"(?:(?P<{key}>{_NUMBER})\s?(?:{words})\.?(?:,?\s*(?:and\s|und\s)?|$))?"
        for key, words in _UNITS
    )
    + "$",
    "days and clock": r"^(?P<sign>-)?(?P<D>[0-9]+)\s?(?:d|days?|Tage?),?\s\+?"
    r"(?P<H>[0-9]{1,2}):(?P<M>[0-9]{2})(?::(?P<S>[0-9]{2}(?:[.,][0-9]{1,9})?))?$",
    "iso": rf"^(?P<sign>-)?P(?:(?P<w>{_NUMBER})W)?(?:(?P<D>{_NUMBER})D)?"
    rf"(?:T(?:(?P<H>{_NUMBER})H)?(?:(?P<M>{_NUMBER})M)?(?:(?P<S>{_NUMBER})S)?)?$",
}
ISO = (
    *(
        f"%Y-%m-%d{clock}{zone}"
        for clock in (" %H:%M:%S", "T%H:%M:%S", " %H:%M", "T%H:%M")
        for zone in ("", "%z")
    ),
    "%Y-%m-%d",
)
COUNTS = {"unix": "Unix seconds", "unix ms": "Unix milliseconds", "excel": "days since 1900"}
_CLOCKS = ("%H:%M:%S", "%H:%M", "%M:%S")
_LONGEST = 60
_SAME_AS = {"%e": "%d", "%-d": "%d", "%-m": "%m", "%-H": "%H", "%-I": "%I", "%h": "%b"}
_SAME_AS |= {"%F": "%Y-%m-%d", "%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y"}
_SAME_AS |= {"%S.%f": "%S", "%S,%f": "%S", "%S%.f": "%S"}


# --- what a pattern means -------------------------------------------------------------------------


def directives(pattern: str) -> list[str]:
    """The letters of a pattern's directives, in order.

    >>> directives("%d.%m.%Y %H:%M")
    ['d', 'm', 'Y', 'H', 'M']
    """
    return re.findall("%(.)", pattern)


def has_clock(pattern: str) -> bool:
    """Whether cells with this pattern have an hour."""
    return pattern in COUNTS or bool({"H", "I"} & set(directives(pattern)))


@lru_cache(maxsize=256)
def expression(kind: str, pattern: str) -> str:
    """The regular expression of cells with this pattern, one named group for each directive."""
    if kind == "duration" and pattern in SPECIAL:
        return SPECIAL[pattern]
    pieces = [piece for piece in re.split("(%.|\\s+)", pattern) if piece]
    written = []
    for before, piece, after in zip(["", *pieces], pieces, [*pieces[1:], ""], strict=False):
        if piece.startswith("%"):
            close = before.startswith("%") or (after.startswith("%") and after != "%z")
            known = _DIRECTIVES[piece[1]]
            written.append(known.replace("{1,2}", "{2}") if close else known)  # 20250327
        elif piece.isspace():  # AM, PM and offsets may stand close to the clock
            written.append(r"\s?" if after in ("%p", "%z") else r"\s+")
        else:
            written.append(re.escape(piece))
    found = "".join(written)
    if kind == "duration":  # hours or minutes in front have no limit
        found = "(?P<sign>-)?" + found.replace("[0-9]{1,2})", "[0-9]+)", 1)
    return f"^{found}$"


def offset_seconds(text: str) -> int | None:
    """Seconds east of Greenwich of an offset as `%z` reads it; None for a day or more.

    >>> offset_seconds("Z"), offset_seconds("+0530"), offset_seconds("-02")
    (0, 19800, -7200)
    """
    if text.upper() in ("Z", "UTC", "GMT"):
        return 0
    digits = re.sub(r"\D", "", text).ljust(4, "0")
    hours, minutes = int(digits[:2]), int(digits[2:])
    if hours > 23 or minutes > 59:
        return None
    return (-1 if text.startswith("-") else 1) * (3_600 * hours + 60 * minutes)


def checked_pattern(kind: str, text: object) -> str:
    """A pattern that a person or a file gave, in the form that is used here.

    >>> checked_pattern("date", "%d.%m.%Y %T")
    '%d.%m.%Y %H:%M:%S'
    """
    if not isinstance(text, str) or not text or len(text) > _LONGEST or not text.isprintable():
        raise InputError(f"A pattern of {kind}s is a text such as '%d.%m.%Y'; got {quoted(text)}.")
    pattern = " ".join(text.split())
    for spelled, same in _SAME_AS.items():
        pattern = pattern.replace(spelled, same)
    if kind == "duration":
        if pattern in SPECIAL or pattern in _CLOCKS:
            return pattern
        raise InputError(
            f"'duration:{text}' is not known; write one of "
            + ", ".join(f"'duration:{each}'" for each in (*_CLOCKS, *SPECIAL))
            + " ('units' reads 1h 20m)."
        )
    if kind == "date" and pattern in COUNTS:
        return pattern
    problem = _problem(kind, pattern)
    if problem:
        example = "%d.%m.%Y %H:%M" if kind == "date" else "%H:%M"
        others = ", 'date:iso', 'date:unix', 'date:unix ms', 'date:excel'" if kind == "date" else ""
        raise InputError(
            f"'{kind}:{text}' {problem}; write a pattern such as '{kind}:{example}'{others}."
        )
    return pattern


def _problem(kind: str, pattern: str) -> str:
    """What is wrong with a pattern of dates or times; nothing is ''."""
    found = [{"B": "b", "A": "a"}.get(each, each) for each in directives(pattern)]
    unknown = [each for each in found if each not in _DIRECTIVES]
    if unknown or pattern.replace("%%", "").endswith("%"):
        return f"has %{unknown[0] if unknown else ''}, which is not known"
    if not found:
        return "has no directive such as %d"
    if len(set(found)) < len(found):
        return f"has %{next(each for each in found if found.count(each) > 1)} twice"
    has = set(found)
    if ("I" in has) != ("p" in has):
        return "has one of %I and %p without the other"
    if {"H", "I"} <= has or {"Y", "y"} <= has or {"m", "b"} <= has:
        return "says the same thing twice"
    if ("M" in has and not has & {"H", "I"}) or ("S" in has and "M" not in has):
        return "has minutes without hours, or seconds without minutes"
    dated = bool(has & {"Y", "y"}) and bool(has & {"m", "b"})
    if kind == "date" and not dated:
        return "has no year and month"
    if kind == "time" and (has & set("YymbdaAz") or not has & {"H", "I"}):
        return "is not a time of day only"
    return ""


# --- which patterns fit a cell --------------------------------------------------------------------

_CLOCK = re.compile(
    r"(?:(?<=\d{4}:)|(?<![\d:.]))\d{1,2}:\d{2}(?P<S>:\d{2}(?:[.,]\d{1,9})?)?(?P<p>\s?[AaPp]\.?\s?[Mm]\b\.?)?(?![\d:])"
)
_ZONE = re.compile(r"\s?(?:Z|z|UTC|GMT|[+-]\d{2}(?::?\d{2})?)(?=$|\s)")
_LONG_CLOCK = re.compile(r"-?\d+:\d{2}(?P<S>:\d{2})?(?P<f>[.,]\d+)?")
_COMPACT = re.compile(r"\d{8}(?P<clock>T?\d{4}(?P<S>\d{2}(?:[.,]\d{1,9})?)?)?(?P<z>Z|[+-]\d{4})?")
_PIECE = re.compile(r"(?P<number>\d+)(?:st|nd|rd|th|er|º)?(?![^\W\d_])|(?P<word>[^\W\d_]+)|\D")
_WORDS = {"t", "de", "del", "um", "at", "à", "le", "den", "uhr", "of", "the"}
_LONGEST_CELL = 60


def ways_to_read(cell: str, moment_name: bool = False) -> tuple[Way, ...]:
    """The patterns that may have written a cell, none where it is no moment.

    There are several where the cell alone does not decide: 03/04/2025 is in April or in March.
    `moment_name` is whether the column's name speaks of a date or time, without which ten digits
    are no count of seconds.

    >>> ways_to_read("27. März 2025 18:14")
    (('date', '%d. %b %Y %H:%M'),)
    >>> ways_to_read("03/04/2025")
    (('date', '%d/%m/%Y'), ('date', '%m/%d/%Y'))
    """
    cell = re.sub(r"\s", " ", cell)
    if not cell.isprintable() or len(cell) > _LONGEST_CELL or not re.search("[0-9]", cell):
        return ()
    return _digits_only(cell, moment_name) or _duration(cell) or _dates(cell)


def _digits_only(cell: str, moment_name: bool) -> tuple[Way, ...]:
    if moment_name and cell.isdecimal() and len(cell) in (10, 13):
        return (("date", "unix" if len(cell) == 10 else "unix ms"),)
    found = _COMPACT.fullmatch(cell)
    if not found:
        return ()
    clock = found["clock"] or ""
    if (found["z"] or "." in clock or "," in clock) and not clock.startswith("T"):
        return ()
    pattern = "%Y%m%d" + ("T" if clock.startswith("T") else "") + ("%H%M" if clock else "")
    return (("date", pattern + ("%S" if found["S"] else "") + ("%z" if found["z"] else "")),)


def _duration(cell: str) -> tuple[Way, ...]:
    for name in SPECIAL:
        found = _PYTHON_SPECIAL[name].match(cell)
        parts = {key for key, value in found.groupdict().items() if value} if found else set()
        if parts - {"sign"}:
            return (("duration", name),)
    clock = _LONG_CLOCK.fullmatch(cell)
    if not clock:
        return ()
    if clock["f"] and not clock["S"]:
        return (("duration", "%M:%S"),)
    pattern = "%H:%M:%S" if clock["S"] else "%H:%M"
    return (("time", pattern), ("duration", pattern))


_PYTHON_SPECIAL = {name: re.compile(text) for name, text in SPECIAL.items()}


def _dates(cell: str) -> tuple[Way, ...]:
    clock = _CLOCK.search(cell)
    if not clock:
        return tuple(("date", each) for each in _date_patterns(cell, ""))
    hour, ending = ("%I", " %p") if clock["p"] else ("%H", "")
    written = f"{hour}:%M{':%S' if clock['S'] else ''}{ending}"
    before, after = cell[: clock.start()], cell[clock.end() :]
    if not before.strip() and not after.strip():
        return (("time", written),)
    zone = _ZONE.match(after)
    if zone:
        space = " " if zone[0][0].isspace() else ""
        written, after = f"{written}{space}%z", after[zone.end() :]
    return tuple(("date", each) for each in _date_patterns(before + "\0" + after, written))


def _date_patterns(text: str, clock: str) -> list[str]:
    """Patterns of a cell whose clock, if any, is NUL in `text`."""
    pieces = list(_PIECE.finditer(text))
    words = [piece["word"].lower() for piece in pieces if piece["word"]]
    n_months = sum(word in MONTHS for word in words)
    written: list[str] = []
    digits: list[int] = []
    for at, piece in enumerate(pieces):
        word = (piece["word"] or "").lower()
        if piece["number"]:
            digits.append(len(piece["number"]))
            written.append("{}")
        elif word in WEEKDAYS and not digits and (n_months > 1 or word not in MONTHS):
            n_months -= word in MONTHS
            written.append("%a")
        elif word in MONTHS:
            written.append("%b")
        elif word in _WORDS or piece[0] in "-/., :\u00a0\u202f\0":
            after_name = bool(written) and written[-1] in ("%b", "%a") and piece[0] == "."
            close = after_name and at + 1 < len(pieces) and pieces[at + 1]["number"]
            written.append("" if after_name and not close else piece[0])
        else:
            return []
    template = " ".join("".join(written).split())
    if template.count("%b") > 1 or not _separated(template):
        return []
    return [template.format(*order).replace("\0", clock) for order in _orders(template, digits)]


def _separated(template: str) -> bool:
    """Whether numbers stand between marks as dates have them, all of one sort."""
    if "%b" in template:
        return True
    marks = {mark.strip() for mark in re.findall(r"\{\}([-/. ]+)(?=\{\})", template)}
    return len(marks) == 1 and template.count("{}") - 1 == len(re.findall(r"\}[-/. ]+\{", template))


def _orders(template: str, digits: list[int]) -> list[tuple[str, ...]]:
    """What the numbers of a date may be, by their digits."""
    if any(each > 4 or each == 3 for each in digits):
        return []
    years = [place for place, each in enumerate(digits) if each == 4]
    if "%b" in template:
        by_years = {(2, 0): ("%Y", "%d"), (2, 1): ("%d", "%Y"), (1, 0): ("%Y",)}
        if len(years) == 1:
            return [by_years[len(digits), years[0]]] if (len(digits), years[0]) in by_years else []
        last_two = bool(digits) and digits[-1] == 2 and not years
        if not last_two or len(digits) > 2:
            return []
        return [("%y",)] if len(digits) == 1 else [("%d", "%y")]
    if len(digits) == 2 and len(years) == 1 and re.search(r"\}[-/]\{", template):
        return [("%Y", "%m") if years == [0] else ("%m", "%Y")]
    if len(digits) != 3 or len(years) > 1:
        return []
    if years == [0]:
        return [("%Y", "%m", "%d")]
    if years == [2]:
        return [("%d", "%m", "%Y"), ("%m", "%d", "%Y")]
    if years or digits[2] != 2 or "} {" in template:  # 1 12 10 are three numbers
        return []
    by_year = [("%y", "%m", "%d")] if digits == [2, 2, 2] and "{}-{}" in template else []
    return [("%d", "%m", "%y"), ("%m", "%d", "%y"), *by_year]
