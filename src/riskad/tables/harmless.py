"""Rules of the known harmless: rows that people know to be no anomalies, whatever their score.

A file of TOML beside the model holds them:

    [[rule]]
    name = "test till"
    where = "shop = 'test till' AND amount < 1"
    reason = "Clerks try the till each morning."
    by = "Ann"
    until = 2027-06-30

`where` is an SQL expression over the columns of the table, with values as the model reads them.
polars parses it; nothing is evaluated as code. It consists of names, numbers, texts and operators,
and calls only functions of `_FUNCTIONS`, which look at one row alone. Every rule ends, so that none
hides rows that nobody remembers. A rule that cannot be right is refused when the file is read.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from riskad.core.checks import InputError, quoted
from riskad.files.atomic import atomic_path, check_input_file
from riskad.tables.cells import check_columns
from riskad.tables.preparation import TablePreparer

SUPPRESSED = "suppressed_by"
"""The column that names the rule of a row that would have been flagged."""
LIKELY = 0.5  # probability from which on a hidden row is warned of
_FIELDS = {"name": str, "where": str, "reason": str, "by": str, "until": date}
_LONGEST = {"name": 80, "where": 2_000, "reason": 500, "by": 80}
_MOST_RULES, _MOST_BYTES = 1_000, 1_000_000
_ENOUGH_ROWS = 20  # of a table; a rule may well match all of fewer
_TRIED_ROWS = 200
# Functions that take and make short values; with others a short rule could fill the memory.
_FUNCTIONS = (
    *("abs", "ceil", "floor", "round", "sign", "sqrt", "exp", "ln", "log10"),
    *("lower", "upper", "length", "left", "right", "substr", "trim", "ltrim", "rtrim"),
    *("starts_with", "ends_with", "strpos", "coalesce", "nullif", "least", "greatest"),
    *("cast", "try_cast", "date", "extract", "date_part"),
)
_WORDS = ("and", "or", "not", "in", "between", "like", "is", "case", "when", "then", "else", "end")
# No token is a comment, another quote or a prefix of a text (E'...'), in which calls could hide.
_TOKEN = re.compile(
    r"""(?P<text>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*")|(?P<word>[^\W\d]\w*(?!'))|\d\w*|\s+"""
    r"""|(?P<comparison><>|<=|>=|!=|==|[=<>])|!?~\*?|\|\||-(?!-)|/(?!\*)|[+*%(),.]|(?P<other>.)"""
)
_SPREAD = 40  # a proposed range reaches so many parts of a number, or of its column, to each side
_LONGEST_PART = 200  # of a proposed condition


@dataclass(frozen=True)
class HarmlessRule:
    """A rule, who made it and why, and the last day on which it holds."""

    name: str
    where: str
    reason: str
    by: str
    until: date

    def __post_init__(self) -> None:
        for name, longest in _LONGEST.items():
            text = getattr(self, name)
            if not text.strip() or len(text) > longest or not text.isprintable():
                raise InputError(
                    f"{name}={quoted(text)} must be a text of one line, at most {longest} "
                    "characters."
                )
        parse_condition(self.where)

    @property
    def expired(self) -> bool:
        """Whether its last day is over."""
        return self.until < datetime.now(UTC).date()


@dataclass
class SuppressedRows:
    """What a rule did in a table, counted batch by batch."""

    name: str
    until: str = ""
    expired: bool = False
    matching: int = 0
    suppressed: int = 0
    """Of the matching rows, those that would have been flagged; the first rule counts."""
    likely: int = 0
    """Of these, rows that are more likely anomalies than not."""
    highest: float | None = None
    """The highest probability of a suppressed row."""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.suppressed:,} of {self.matching:,} matching rows suppressed "
            f"(until {self.until})"
        )

    def warnings(self) -> list[str]:
        """Say if it hides rows that are probably anomalies."""
        if not self.likely:
            return []
        rows, them = ("row that is", "it") if self.likely == 1 else ("rows that are", "them")
        return [
            f"the rule {self.name!r} hides {self.likely:,} {rows} more likely anomalous than not "
            f"(up to {min(self.highest or 0.0, 0.99):.0%}); look at {them}"
        ]


@dataclass(frozen=True)
class HarmlessRules:
    """The rules of a file, in its order; the first that matches a row counts."""

    rules: tuple[HarmlessRule, ...]
    source: str = "rules"

    def __post_init__(self) -> None:
        counts = Counter(rule.name for rule in self.rules)
        twice = [name for name, n in counts.items() if n > 1]
        if twice:
            raise InputError(f"{self.source}: two rules are called {quoted(twice[0])}.")

    @classmethod
    def read(cls, path: str | Path) -> HarmlessRules:
        """Read a file of rules."""
        path = check_input_file(path)
        return cls._of(path.read_bytes(), path.name)

    @classmethod
    def _of(cls, content: bytes, source: str) -> HarmlessRules:
        if len(content) > _MOST_BYTES:
            raise InputError(f"{source}: {len(content):,} bytes are too many for rules.")
        try:
            document = tomllib.loads(content.decode("utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else error
            raise InputError(f"{source} is not TOML: {reason}.") from error
        entries = document.pop("rule", [])
        if document or not isinstance(entries, list):
            other = next(iter(document), "rule")
            raise InputError(
                f"{source}: rules are tables called [[rule]], and there is {quoted(other)}."
            )
        if not entries or len(entries) > _MOST_RULES:
            raise InputError(
                f"{source} has {len(entries):,} rules; 1 to {_MOST_RULES:,} are possible."
            )
        rules = []
        for number, entry in enumerate(entries, 1):
            where = f"{source}: rule {number}"
            if not isinstance(entry, dict):
                raise InputError(f"{where} is not a table; begin it with [[rule]].")
            for name in [*_FIELDS, *entry]:
                if name not in entry or name not in _FIELDS:
                    fault = f"has {quoted(name)}, which no rule has"
                    fault = fault if name in entry else f"lacks {name!r}"
                    raise InputError(f"{where} {fault}; it takes {', '.join(_FIELDS)}.")
                value, kind = entry[name], _FIELDS[name]
                if not isinstance(value, kind) or isinstance(value, datetime):
                    what = (
                        "a date such as 2027-06-30, unquoted" if kind is date else "a quoted text"
                    )
                    shown = value if isinstance(value, date) else quoted(value)
                    raise InputError(f"{where}: {name}={shown} must be {what}.")
            try:
                rules.append(HarmlessRule(**entry))
            except InputError as error:
                raise InputError(f"{where}: {error}") from error
        return cls(tuple(rules), source)

    def notes(self) -> list[str]:
        """Say which rules are over."""
        return [
            f"the rule {rule.name!r} of {self.source} ended on {rule.until} and is not applied"
            for rule in self.rules
            if rule.expired
        ]

    def check(self, preparer: TablePreparer, table: pl.DataFrame | None = None) -> None:
        """Refuse rules over other columns than a model reads, or a table has, and absurd ones."""
        rng = np.random.default_rng(0)
        blank = pl.Series([None] * _TRIED_ROWS, dtype=pl.String)
        others = (
            pl.Schema() if table is None else table.drop(preparer.read_columns, strict=False).schema
        )
        frame = pl.DataFrame(
            {name: blank.cast(kind, strict=False) for name, kind in others.items()}
            | dict.fromkeys(preparer.read_columns, blank)
            | {c.name: c.random_values(rng, _TRIED_ROWS) for c in preparer.used()}
        )
        for rule in self.rules:
            try:
                check_columns(parse_condition(rule.where).meta.root_names(), frame.columns)
            except InputError as error:
                raise InputError(f"{self._where(rule)}: {error}") from None
            if self._matches(rule, frame).all():
                raise InputError(
                    f"{self._where(rule)} matches every row that the model can expect: "
                    f"{quoted(rule.where)}. Say what is special about the harmless ones."
                )

    def check_not_all(self, rule: HarmlessRule, matching: int, rows: int) -> None:
        """Refuse a rule that matches every row of a table."""
        if matching == rows >= _ENOUGH_ROWS:
            raise InputError(
                f"{self._where(rule)} matches all {rows:,} rows of the table, so that nothing "
                "could be flagged. Say what is special about the harmless ones."
            )

    def match(self, preparer: TablePreparer, table: pl.DataFrame) -> NDArray[np.intp]:
        """The number of the first rule in force that matches each row; -1 if none does."""
        frame = table.with_columns(preparer.parse(table, quiet=True))
        numbers = np.full(table.height, -1, dtype=np.intp)
        for i, rule in reversed(list(enumerate(self.rules))):
            if not rule.expired:
                numbers[self._matches(rule, frame)] = i
        return numbers

    def _matches(self, rule: HarmlessRule, frame: pl.DataFrame) -> NDArray[np.bool_]:
        with _refusing(f"{self._where(rule)} cannot be computed", quoted(rule.where)):
            expression = parse_condition(rule.where).alias("matching")
            matching = frame.select(expression).to_series()
        if matching.dtype != pl.Boolean or len(matching) != frame.height:
            raise InputError(
                f"{self._where(rule)} must be a condition that is true or false of a row, as in "
                f"amount < 1, got {quoted(rule.where)}."
            )
        return cast(NDArray[np.bool_], matching.fill_null(False).to_numpy())

    def _where(self, rule: HarmlessRule) -> str:
        return f"{self.source}: the rule {quoted(rule.name)}"


class Suppression:
    """What rules do in the batches of a table: `counts` of each rule, and how many `rows`."""

    def __init__(self, rules: HarmlessRules):
        self.rules, self.rows = rules, 0
        self.counts = [
            SuppressedRows(rule.name, str(rule.until), rule.expired) for rule in rules.rules
        ]

    def apply(
        self, preparer: TablePreparer, table: pl.DataFrame, columns: Mapping[str, NDArray[Any]]
    ) -> dict[str, Any]:
        """Take flags from matching rows, and name the rule where one was taken."""
        numbers = self.rules.match(preparer, table)
        flagged = columns["is_anomaly"]
        hidden = flagged & (numbers >= 0)
        probabilities = columns.get("anomaly_probability")
        for i, count in enumerate(self.counts):
            matching = numbers == i
            count.matching += int(matching.sum())
            count.suppressed += int((hidden & matching).sum())
            if probabilities is not None and (likely := probabilities[hidden & matching]).size:
                count.likely += int((likely > LIKELY).sum())
                count.highest = max(count.highest or 0.0, float(likely.max()))
        self.rows += table.height
        names = [*(rule.name for rule in self.rules.rules), None]
        suppressed = pl.Series([names[i] for i in np.where(hidden, numbers, -1)], dtype=pl.String)
        return {**columns, "is_anomaly": flagged & ~hidden, SUPPRESSED: suppressed}

    def of_table(self) -> list[SuppressedRows]:
        """The counts of a whole table, in which no rule may match every row."""
        for rule, count in zip(self.rules.rules, self.counts, strict=True):
            self.rules.check_not_all(rule, count.matching, self.rows)
        return self.counts


def check_rows_are_scored(preparer: TablePreparer) -> None:
    """Refuse a model that scores windows: a rule is about a row."""
    if hasattr(preparer, "windower_"):
        raise InputError("Rules of the known harmless are about rows, and this model has windows.")


@lru_cache(_MOST_RULES)
def parse_condition(where: str) -> pl.Expr:
    """Return the expression of a condition.

    It decides on each row by itself, since no function is left that looks at other rows.
    """
    before, compared = "", False
    for token in _TOKEN.finditer(where):
        text = token[0]
        if token.lastgroup == "other":
            raise InputError(
                f"where={quoted(where)} cannot be read at {quoted(text)}: a condition has columns, "
                "numbers, texts in single quotes and operators, and no comments."
            )
        if text.lower() == "select":
            raise InputError(f"where={quoted(where)} must decide by the row alone, without SELECT.")
        if text == "(" and before and before.lower() not in (*_FUNCTIONS, *_WORDS):
            raise InputError(
                f"where={quoted(where)} calls {quoted(before)}; possible are "
                f"{', '.join(sorted(_FUNCTIONS))}."
            )
        # SQL compares the truth of 1 < a, which is less than 20 in every row, with 20.
        if token.lastgroup == "comparison" and compared:
            raise InputError(
                f"where={quoted(where)} compares twice in a row at {quoted(text)}; write "
                "1 < amount AND amount < 20, for instance."
            )
        if token.lastgroup == "comparison" or text in "()," or text.lower() in _WORDS:
            compared = token.lastgroup == "comparison"
        if not text.isspace():
            before = text if token.lastgroup in ("word", "name") else ""
    with _refusing(f"where={quoted(where)} cannot be read", "write amount < 1, for instance"):
        expression = pl.sql_expr(where)
        names = expression.meta.root_names()
        several = expression.meta.has_multiple_outputs() or expression.meta.is_regex_projection()
    if not names:
        raise InputError(
            f"where={quoted(where)} reads no column, so that it matches every row or none."
        )
    if several:
        raise InputError(
            f"where={quoted(where)} names several columns at once; name each by itself."
        )
    return expression


@contextmanager
def _refusing(what: str, hint: str) -> Iterator[None]:
    """Turn any failure of polars into a sentence."""
    try:
        yield
    except (InputError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise InputError(f"{what} ({reason}); {hint}.") from error


# --- a rule from a row --------------------------------------------------------------------


def propose_condition(preparer: TablePreparer, row: pl.DataFrame, columns: Sequence[str]) -> str:
    """Return a condition that holds for a row and for those like it in some columns.

    A number may lie some way to both sides, never anywhere beyond, where the next anomaly may be.
    Moments do not come again, and are left out.

    Examples
    --------
    >>> table = pl.DataFrame({"shop": ["a", "b"] * 20, "amount": [0.5 + i // 2 for i in range(40)]})
    >>> print(propose_condition(TablePreparer().fit(table), table[[7]], ["shop", "amount"]))
    "shop" = 'b' AND "amount" BETWEEN 2.5 AND 4.5
    """
    parsed, parts = preparer.parse(row, quiet=True), []
    for name in columns:
        value, column = parsed[name][0], '"' + name.replace('"', '""') + '"'
        if value is None:
            parts.append(f"{column} IS NULL")
        elif isinstance(value, bool):
            parts.append(f"{column} = {str(value).upper()}")
        elif isinstance(value, str):
            parts.append(f"{column} = '" + value.replace("'", "''") + "'")
        elif isinstance(value, float) and math.isfinite(value):
            low, high = preparer.columns_[name].usual_range
            reach = max(abs(value), high - low) / _SPREAD
            step = 10.0 ** math.floor(math.log10(reach))
            ends = math.floor((value - reach) / step), math.ceil((value + reach) / step)
            parts.append(f"{column} BETWEEN " + " AND ".join(f"{end * step:.12g}" for end in ends))
    return " AND ".join(p for p in parts if p.isprintable() and len(p) <= _LONGEST_PART)


def add_rule(path: Path, rule: HarmlessRule) -> HarmlessRules:
    """Write a rule to the end of a file, which keeps everything that is in it, and return all."""
    if path.is_symlink():  # somebody else may have left it here
        raise InputError(f"{path.name!r} is a link to another file, and no rules are added to it.")
    old = path.read_bytes() if path.exists() else b""
    # A text of JSON is one of TOML, too.
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value}"
        for name, value in asdict(rule).items()
    ]
    before = old.rstrip() + b"\n\n" if old.strip() else b""
    content = before + "\n".join(["[[rule]]", *lines, ""]).encode()
    rules = HarmlessRules._of(content, path.name)
    with atomic_path(path, force=True) as part:
        part.write_bytes(content)
    return rules
