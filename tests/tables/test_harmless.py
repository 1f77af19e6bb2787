"""Rules of the known harmless: what they match, and what is refused when a file is read."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from riskad.core.checks import InputError
from riskad.tables.harmless import (
    HarmlessRule,
    HarmlessRules,
    Suppression,
    add_rule,
    parse_condition,
    propose_condition,
)
from riskad.tables.preparation import TablePreparer

LATER = date(2999, 1, 1)
TABLE = pl.DataFrame(
    {
        "shop": ["a", "test till", "b", "test till", None] * 20,
        "amount": [float(i) for i in range(100)],
        "day": ["2026-01-02", "2026-02-03"] * 50,
    }
)


@pytest.fixture(scope="module")
def preparer():
    return TablePreparer(kinds={"amount": "number"}).fit(TABLE)


def rule(where: str, name: str = "r", until: date = LATER) -> HarmlessRule:
    return HarmlessRule(name=name, where=where, reason="known", by="Ann", until=until)


def rules(*conditions: str) -> HarmlessRules:
    return HarmlessRules(tuple(rule(each, f"r{i}") for i, each in enumerate(conditions)))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
[[rule]]
name = "test till"
where = "shop = 'test till' AND amount < 50"
reason = "Clerks try the till."
by = "Ann"
until = 2999-01-01
"""


def test_rules_match_the_rows_that_their_condition_says(tmp_path, preparer):
    read = HarmlessRules.read(write(tmp_path / "rules.toml", GOOD))
    read.check(preparer)
    shop, amount = TABLE["shop"].to_list(), TABLE["amount"].to_list()
    expected = [0 if s == "test till" and a < 50 else -1 for s, a in zip(shop, amount, strict=True)]
    assert read.match(preparer, TABLE).tolist() == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("amount BETWEEN 3 AND 5", {3, 4, 5}),
        ("shop IS NULL AND amount < 10", {4, 9}),
        ("shop LIKE 'test%' AND NOT amount > 4", {1, 3}),
        ("UPPER(shop) IN ('A') AND amount <= 5", {0, 5}),
        ("EXTRACT(MONTH FROM day) = 1 AND amount < 3", {0, 2}),
        ("(amount < 2) = (0 < amount OR shop == 'b') AND amount < 2", {1}),
        ("CASE WHEN amount > 2 THEN amount < 5 ELSE amount = 1 END", {1, 3, 4}),
    ],
)
def test_sql_conditions_over_typed_columns(preparer, where, expected):
    chosen = rules(where)
    chosen.check(preparer)
    assert set(np.flatnonzero(chosen.match(preparer, TABLE) == 0)) == expected


def test_blank_cells_match_nothing_and_the_first_rule_counts(preparer):
    both = rules("amount < 2", "amount < 4 AND shop <> 'b'")
    assert both.match(preparer, TABLE)[:6].tolist() == [0, 0, -1, 1, -1, -1]


@pytest.mark.parametrize("name", ["amount (EUR)", "select", "it's", 'so "called"'])
def test_columns_may_be_called_anything(name):
    quoted_name = '"' + name.replace('"', '""') + '"'
    assert parse_condition(f"{quoted_name} > 1").meta.root_names() == [name]


def test_a_proposed_rule_matches_its_row_and_little_else():
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {
            "till (no.)": rng.choice(["a'b", "c", None], 300).tolist(),
            "amount": rng.normal(50, 20, 300),
            "tiny": rng.normal(0, 1e-12, 300),
            "open": rng.choice(["yes", "no"], 300).tolist(),
            "when": [f"2026-01-{1 + i % 28:02} 10:00:00" for i in range(300)],
        }
    )
    own = TablePreparer().fit(table)
    for row in range(40):
        where = propose_condition(own, table[[row]], own.read_columns)
        assert "when" not in where
        matching = rules(where).match(own, table) == 0
        assert matching[row]
        assert matching.sum() < 30
    assert propose_condition(own, table[[0]], ["when"]) == ""


def test_a_rule_is_added_to_what_is_there(tmp_path):
    path = tmp_path / "rules.toml"
    first, second = rule("amount < 1", 'so "called" \\ é'), rule("shop = 'a'", "b")
    assert add_rule(path, first).rules == (first,)
    path.write_text("# ours\n" + path.read_text("utf-8").rstrip(), "utf-8")
    assert add_rule(path, second) == HarmlessRules.read(path)
    assert HarmlessRules.read(path).rules == (first, second)
    before = path.read_bytes()
    assert before.startswith(b"# ours")
    with pytest.raises(InputError, match="two rules"):
        add_rule(path, second)
    assert path.read_bytes() == before
    (tmp_path / "link.toml").symlink_to(tmp_path / "elsewhere.toml")
    with pytest.raises(InputError, match="is a link"):
        add_rule(tmp_path / "link.toml", first)
    assert not (tmp_path / "elsewhere.toml").exists()


def test_an_expired_rule_is_not_applied_and_said(preparer):
    old = HarmlessRules((rule("amount < 5", until=date.today() - timedelta(days=1)),))
    suppression = Suppression(old)
    columns = {"is_anomaly": np.ones(TABLE.height, dtype=bool)}
    assert suppression.apply(preparer, TABLE, columns)["is_anomaly"].all()
    assert "ended on" in old.notes()[0]
    assert suppression.of_table()[0].expired


def test_rules_take_flags_count_them_and_warn_of_likely_anomalies(preparer):
    suppression = Suppression(rules("amount < 10"))
    flagged = np.arange(100) % 2 == 0
    columns = {"is_anomaly": flagged, "anomaly_probability": np.linspace(1, 0, 100)}
    after = suppression.apply(preparer, TABLE, columns)
    assert after["is_anomaly"].tolist() == (flagged & (np.arange(100) >= 10)).tolist()
    assert set(np.flatnonzero((after["suppressed_by"] == "r0").fill_null(False))) == {0, 2, 4, 6, 8}
    (result,) = suppression.of_table()
    assert (result.matching, result.suppressed, result.likely, result.highest) == (10, 5, 5, 1.0)
    assert "hides 5 rows" in result.warnings()[0]
    result.likely = 1
    assert "hides 1 row with an anomaly_probability above 50%" in result.warnings()[0]
    assert result.warnings()[0].endswith("look at it")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("amount <", "cannot be read"),
        ("amont < 1", "Did you mean 'amount'"),
        ("1 = 1", "reads no column"),
        ("amount > AVG(amount)", "calls 'AVG'"),
        ("amount = (SELECT 1)", "without SELECT"),
        ("ROW_NUMBER() OVER (ORDER BY amount) < 3", "calls 'ROW_NUMBER'"),
        ("REPEAT(shop, 1000000000) = 'a'", "calls 'REPEAT'"),
        ("amount + 1", "true or false"),
        ("amount < 'a'", "cannot be computed"),
        ("amount < 1e12 OR amount IS NULL", "matches every row"),
        ("amount = amount OR amount IS NULL", "matches every row"),
        ("amount < 1; DROP TABLE t", "cannot be read"),
        ("amount < 1 /* ' */ OR SUM(amount) > 1 /* ' */", "cannot be read at '/'"),
        ("amount < 1 -- ' \" OR SUM(amount) > 1", "cannot be read at '-'"),
        (r"shop = E'\'' OR SUM(amount) > 1 OR shop = ''", "cannot be read at 'E'"),
        ("amount < 1 OR `a'b` = SUM(amount) OR shop = 'x'", "cannot be read at '`'"),
        ("\"it's\" = 1 OR SUM(amount) = 1 OR shop = 'x'", "calls 'SUM'"),
        ("a" * 3000, "at most 2000"),
        ("amount <\n 1", "one line"),
        ("1 < amount < 20", "compares twice in a row at '<'; write 1 < amount AND amount < 20"),
        ("NOT shop = 'a' != amount", "compares twice in a row at '!='"),
    ],
)
def test_rules_that_cannot_be_right_are_refused_in_a_sentence(preparer, where, message):
    with pytest.raises(InputError, match=message) as caught:
        rules(where).check(preparer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[rule]]", "[[rule", "is not TOML"),
        ('"Ann"', "[" * 9_999, "nested too deeply"),
        ("[[rule]]", "[rule]", r"called \[\[rule\]\]"),
        ("[[rule]]", "[[rules]]", "'rules'"),
        ("by =", "who =", "lacks 'by'"),
        ('by = "Ann"', 'by = "Ann"\nextra = 1', "'extra'"),
        ("until = 2999-01-01", 'until = "soon"', "a date"),
        (
            "until = 2999-01-01",
            "until = 2999-01-01T00:00:00",
            "until=2999-01-01 00:00:00 must be a date",
        ),
        ('by = "Ann"', "by = 3", "a quoted text"),
        (GOOD, "", "has 0 rules"),
        (GOOD, GOOD + GOOD, "two rules"),
    ],
)
def test_files_that_are_no_rules_are_refused_in_a_sentence(tmp_path, old, new, message):
    path = write(tmp_path / "rules.toml", GOOD.replace(old, new, 1) if old != GOOD else new)
    with pytest.raises(InputError, match=message) as caught:
        HarmlessRules.read(path)
    assert "\n" not in str(caught.value)


def test_a_rule_that_matches_a_whole_table_is_refused(preparer):
    suppression = Suppression(rules("amount >= 0"))
    suppression.apply(preparer, TABLE, {"is_anomaly": np.ones(100, dtype=bool)})
    with pytest.raises(InputError, match="matches all 100 rows"):
        suppression.of_table()


PARTS = [
    *("amount", "shop", "day", "nothing", '"^.*$"', "*", "1", "-1", "1e308", "'a'", "''", "NULL"),
    *("=", "<>", "<", ">=", "+", "-", "/", "%", "||", "~", "AND", "OR", "NOT", "IN", "IS", "LIKE"),
    *("(", ")", ",", "ABS(", "LOWER(", "CAST(", "AS INT)", "EXTRACT(", "SUM(", "BETWEEN", "CASE"),
    *("WHEN", "THEN", "END", "SELECT", "FROM", ";", "--", "/*", "'", '"', "\\", "\x00", "é", "[0]"),
]


def random_condition(rng: np.random.Generator) -> str:
    """Tokens in any order, or conditions that are put together and then damaged or not."""
    if rng.random() < 0.5:
        return " ".join(rng.choice(PARTS, rng.integers(1, 9)))
    parts = []
    for _ in range(rng.integers(1, 4)):
        column = rng.choice(["amount", "shop", "day", "LOWER(shop)", "ABS(amount)"])
        value = rng.choice(["1", "'a'", "50.5", "NULL", "DATE '2026-01-02'", "-1e400", "shop"])
        parts.append(f"{column} {rng.choice(['=', '<', '>=', '<>', 'LIKE', 'IS'])} {value}")
    text = f" {rng.choice(['AND', 'OR', 'AND NOT'])} ".join(parts)
    if rng.random() < 0.3:
        place = int(rng.integers(len(text)))
        text = text[:place] + str(rng.choice(PARTS)) + text[place + 1 :]
    return text


@pytest.mark.slow
def test_two_thousand_random_rules_are_refused_or_applied(tmp_path, preparer):
    rng = np.random.default_rng(0)
    applied, messages = 0, []
    for _ in range(2_000):
        where = random_condition(rng)
        text = GOOD.replace("shop = 'test till' AND amount < 50", where)
        if rng.random() < 0.1:  # bytes of the file itself
            place = int(rng.integers(len(text)))
            text = text[:place] + str(rng.choice(PARTS)) + text[place + 1 :]
        try:
            read = HarmlessRules.read(write(tmp_path / "rules.toml", text))
            read.check(preparer)
            read.match(preparer, TABLE)
            applied += 1
        except InputError as error:
            messages.append(str(error))
    assert applied > 100
    assert not any("\n" in message for message in messages)
