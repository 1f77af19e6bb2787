from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.loops import each

from riskad.core.checks import InputError
from riskad.core.label_parsing import parse_labels
from riskad.core.labels import (
    ANOMALY,
    NORMAL,
    UNLABELLED,
    LabelCounts,
    ambiguity_hint,
    check_codes,
    comparable_text,
    count_labels,
    read_codes,
)

WORDS = ["ok", "fraud", "", "ok", None, "  "]
WORD_CODES = [1, -1, 0, 1, 0, 0]
MISSING = [None, float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT, Decimal("NaN"), "", " \t"]

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "object array": lambda v: np.array(v, dtype=object),
    "column": lambda v: np.array(v, dtype=object)[:, None],
    "pandas": pd.Series,
    "pandas object": lambda v: pd.Series(v, dtype=object),
    "pandas categorical": lambda v: pd.Series(v).astype("category"),
    "pandas frame": lambda v: pd.DataFrame({"label": v}),
    "polars": pl.Series,
    "polars categorical": lambda v: pl.Series(v).cast(pl.Categorical),
    "polars enum": lambda v: pl.Series(v).cast(pl.Enum(["ok", "fraud", "", "  "])),
}


def assert_codes(got, expected):
    assert got.dtype == np.int16
    assert got.tolist() == list(expected)


@each("container", CONTAINERS.values())
def test_words_in_any_container(container):
    assert_codes(parse_labels(container(WORDS), normal="ok", anomaly="fraud"), WORD_CODES)


def test_numbers_and_truth_values_in_any_form():
    numbers = [
        np.array([1, 0, 9, 1], dtype=np.uint8),
        np.array([1.0, 0.0, np.nan, 1.0], dtype=np.float32),
        np.array(["1", "0", "", "1"]),
        np.array(["1.0", "0.0", "9.0", "1.0"], dtype="S"),
        np.ma.masked_array([1, 0, 7, 1], mask=[0, 0, 1, 0]),
        pd.Series([1, 0, None, 1], dtype="Int8"),
        pl.Series([1, 0, None, 1]),
        [1, "0", None, 1.0],
    ]
    for y, (normal, anomaly) in product(numbers, [(0, 1), ("0", "1"), (0.0, [np.int64(1)])]):
        codes = parse_labels(y, normal=normal, anomaly=anomaly, unlabelled=9)
        assert_codes(codes, [-1, 1, 0, -1])
    truths = [[True, False, None], np.array(["TRUE", "false", ""])]
    truths += [pd.Series([True, False, None], dtype="boolean"), pl.Series([True, False, None])]
    for y in truths:
        assert_codes(parse_labels(y, normal=False, anomaly="true"), [-1, 1, 0])
    assert_codes(parse_labels([" ok ", "ok\n"], normal="ok "), [1, 1])
    codes = parse_labels(["a", "A", "7", "007"], normal=["a", 7], anomaly=["A", "007"])
    assert_codes(codes, [1, -1, 1, -1])
    assert_codes(parse_labels([1, -1, "+1", "-1.0"], normal=1, anomaly=-1), [1, -1, 1, -1])
    assert_codes(parse_labels([-0.0, "-0"], normal=0), [1, 1])


def test_truth_values_are_not_numbers_even_in_one_column():
    codes = parse_labels([True, 1, False, 0], normal=[1, False], anomaly=[True, 0])
    assert_codes(codes, [-1, 1, 1, -1])
    with pytest.raises(InputError, match="anomaly=True never occurs"):
        parse_labels([1, 0], anomaly=True)


@each("missing", MISSING)
def test_missing_is_always_unlabelled(missing):
    assert_codes(parse_labels(["ok", missing], normal="ok"), [1, 0])
    assert_codes(parse_labels(["ok", missing], normal="ok", unlabelled=missing), [1, 0])
    with pytest.raises(InputError, match="missing always means unlabelled"):
        parse_labels(["ok", missing], anomaly=["ok", missing])


@each("text", ["NA", "nan", "None", "null"])
def test_a_word_for_missing_is_a_word(text):
    with pytest.raises(InputError, match=f"unknown meaning: '{text}'"):
        parse_labels(["ok", text], normal="ok")
    assert_codes(parse_labels(["ok", text], normal="ok", unlabelled=text), [1, 0])


@each("several", [["a", "b"], ("a", "b"), {"a", "b"}, np.array(["a", "b"]), pd.Series(["a", "b"])])
def test_a_kind_may_have_several_spellings(several):
    assert_codes(parse_labels(["a", "b", "c"], normal=several, anomaly="c"), [1, 1, -1])


def test_other_values_can_be_unlabelled_on_request():
    y = ["fraud", "open", "held"]
    assert_codes(parse_labels(y, anomaly="fraud", others="unlabelled"), [-1, 0, 0])
    with pytest.raises(InputError, match=r"anomaly='hold' never occurs.*mean 'held'"):
        parse_labels(y, anomaly=["fraud", "hold"], others="unlabelled")
    # Without it a misspelling shows itself by the value it leaves over.
    assert_codes(parse_labels(["a"], normal=["a", "b"]), [1])


def test_unknown_values_are_listed_with_counts_and_a_guess():
    with pytest.raises(InputError) as caught:
        parse_labels(
            ["ok", "fraud", "Fruad", "open", "open"], normal="ok", anomaly="fraud", name="label"
        )
    message = str(caught.value)
    assert message.startswith("label holds values")
    assert "'open' (2 rows), 'Fruad' (1 row)." in message
    assert "By 'Fruad', did you mean 'fraud'?" in message
    assert "By 'open'" not in message
    assert 'unlabelled=...; or, with others="unlabelled"' in message
    with pytest.raises(InputError, match=r"'h' \(1 row\) and 4 more values"):
        parse_labels(["ok", *"abcdefghijkl"], normal="ok")


def test_a_spelling_that_never_occurs():
    for y, meaning, words in (
        (["ok", "fraud"], {"normal": "OK", "anomaly": "fraud"}, "'OK' never.* Did you mean 'ok'"),
        ([1, 1, None], {"normal": 1, "anomaly": 2}, r"=2 never occurs.*: 1 \(2 rows\), missing"),
        ([], {"normal": 1}, "no values at all"),
        ([1, 0], {"normal": 0, "anomaly": -1}, "(?!.*Did you mean).*-1 never occurs"),
        (["ok"], {"normal": "ok", "others": "unlabeled"}, "Did you mean 'unlabelled'"),
    ):
        with pytest.raises(InputError, match=f"^.*{words}" if words[0] != "(" else f"^{words}"):
            parse_labels(y, **meaning)


def test_a_value_has_one_meaning():
    with pytest.raises(InputError, match="'x' is given both as normal and as anomaly"):
        parse_labels(["x"], normal="x", anomaly=["y", " x"])
    with pytest.raises(InputError, match="1 is given both as anomaly and as unlabelled"):
        parse_labels(["1"], anomaly=1, unlabelled="1.0")


def test_some_meaning_must_be_given_and_labels_form_one_column():
    for nothing in ({}, {"unlabelled": "a"}, {"normal": [], "anomaly": None}):
        with pytest.raises(InputError, match=r"normal=\.\.\., anomaly=.* 'a' \(1 row\)"):
            parse_labels(["a"], **nothing)
    for y in ("ok", 1, np.zeros((2, 2)), [["a", "b"], ["c", "d"]]):
        with pytest.raises(InputError, match="column 'label' must hold one label for each row"):
            parse_labels(y, normal="ok", name="column 'label'")
    for y in (1, None, np.zeros((2, 2))):
        with pytest.raises(InputError, match="one label for each row: y should be a 1d array"):
            check_codes(y)


kinds = st.sampled_from([NORMAL, ANOMALY, UNLABELLED])
wholes = st.integers(-(10**9), 10**9)


@given(st.lists(kinds, min_size=1), st.lists(st.text(min_size=1), min_size=3, max_size=3))
def test_translation_inverts_any_spelling(codes, words):
    texts = [comparable_text(word) for word in words]
    if None in texts or len(set(texts)) < 3:
        return
    word_of = dict(zip((NORMAL, ANOMALY, UNLABELLED), words, strict=True))
    used = {
        kind: word_of[code]
        for kind, code in (("normal", 1), ("anomaly", -1), ("unlabelled", 0))
        if code in codes
    }
    if set(used) == {"unlabelled"}:
        return
    assert_codes(parse_labels([word_of[code] for code in codes], **used), codes)


@given(wholes, st.sampled_from([int, float, str, np.int64, np.float64, lambda n: f" {n}.0 "]))
def test_a_whole_number_is_one_value_however_written(number, form):
    assert_codes(parse_labels([form(number)], normal=number), [1])
    assert_codes(parse_labels([number], normal=form(number)), [1])
    with pytest.raises(InputError):
        parse_labels([form(number)], normal=number + 1)


@given(st.lists(st.one_of(st.none(), st.booleans(), wholes, st.floats(), st.text()), min_size=1))
def test_any_column_is_translated_or_refused_with_reason(rows):
    rows = ["ok", *rows]
    codes = parse_labels(rows, normal="ok", others="unlabelled")
    assert set(codes.tolist()) <= {0, 1}
    known = [comparable_text(row) in ("ok", None) for row in rows]
    if all(known):
        assert_codes(parse_labels(rows, normal="ok"), codes)
    else:
        with pytest.raises(InputError, match="unknown meaning"):
            parse_labels(rows, normal="ok")


def test_conventions_of_other_libraries():
    """As the table in docs/reference/labels.md spells them."""
    for y, meaning, expected in (
        ([1, 0, None], {"anomaly": 1, "normal": 0}, [-1, 1, 0]),  # PyOD
        ([True, False], {"anomaly": True, "normal": False}, [-1, 1]),
        (pl.Series([1, 0]), {"anomaly": 1, "unlabelled": 0}, [-1, 0]),  # DeepOD, ADBench
        ([1, -1, 0], {"anomaly": 1, "normal": -1, "unlabelled": 0}, [-1, 1, 0]),  # anomatools
        ([0, 1, -1], {"normal": 0, "anomaly": 1, "unlabelled": -1}, [1, -1, 0]),  # scikit-learn
        ([1, 0, -1], {"normal": 1, "unlabelled": [0, -1]}, [1, 0, 0]),  # pulearn
    ):
        assert_codes(parse_labels(y, **meaning), expected)


def test_codes_pass_in_any_container():
    for y in (
        (1.0, -1.0, 0.0),
        np.array([1, -1, 0], dtype=np.float32),
        np.array([[1], [-1], [0]], dtype=object),
        pd.Series([1, -1, 0], dtype="Int8"),
        pd.Series([1, -1, 0], dtype="category"),
        pl.Series([1, -1, 0]),
    ):
        assert_codes(check_codes(y), [1, -1, 0])
    y = np.array([1, 0, -1], dtype=np.int16)
    assert np.shares_memory(check_codes(y), y)
    assert_codes(check_codes(np.array([], dtype=np.int16)), [])


NO_CODES = [
    (["ok", "fraud"], "'fraud' (1 row)", "parse_labels(y, normal=..., anomaly=...)"),
    ([True, False], "True (1 row)", "parse_labels(y, anomaly=True, normal=False)"),
    (
        [True, None],
        "True (1 row), missing (1 row)",
        "parse_labels(y, anomaly=True, unlabelled=False)",
    ),
    ([1.0, np.nan], "missing (1 row)", "riskad.parse_labels(y, normal=1)"),
    ([1, -1, None], "missing (1 row)", "riskad.parse_labels(y, normal=1, anomaly=-1)"),
    (["1", "-1", "0"], "0 (1 row)", "parse_labels(y, normal=1, anomaly=-1, unlabelled=0)"),
    (np.array([True, 1], dtype=object), "True (1 row), 1 (1 row)", "parse_labels"),
    (pl.Series([-1, None]), "missing (1 row)", "parse_labels(y, anomaly=-1)"),
    ([0, 1, 2], "2 (1 row)", "cross_val_predict"),
    (np.array([1, -128], dtype=np.int16), "-128 (1 row)", "parse_labels"),
    ([1, 0.5], "0.5 (1 row)", "parse_labels"),
    ([1, np.inf], "'inf' (1 row)", "parse_labels"),
    ([None, None], "missing (2 rows)", "No row is labelled"),
]


@each(("y", "shown", "remedy"), NO_CODES)
def test_anything_else_is_refused_with_the_way_out(y, shown, remedy):
    with pytest.raises(InputError) as caught:
        check_codes(y)
    for words in ("+1 (normal), -1 (anomaly) and 0 (unlabelled)", shown, remedy):
        assert words in str(caught.value)


@given(st.lists(st.one_of(wholes, st.floats()), min_size=1))
def test_numbers_pass_exactly_if_they_are_codes(y):
    if all(value in (-1, 0, 1) for value in y):
        assert_codes(read_codes(y), y)
    else:
        with pytest.raises(InputError):
            read_codes(y)


def test_zeros_and_ones_have_three_readings_and_counts_read_as_a_sentence():
    hint = ambiguity_hint(np.array([0, 1, 1], dtype=np.int16))
    assert "0 (1 row) and 1 (2 rows)" in hint
    for meaning in ("normal=1, unlabelled=0", "anomaly=1, unlabelled=0", "anomaly=1, normal=0"):
        assert f"riskad.parse_labels(y, {meaning})" in hint
    for codes in ([0, 1, -1], [1, -1], [0, -1], [1, 1], [0], []):
        y = np.array(codes, dtype=np.int16)
        assert ambiguity_hint(y) == ""
        assert count_labels(y) == LabelCounts(codes.count(1), codes.count(-1), codes.count(0))
    assert str(LabelCounts(95, 12, 1893)) == "95 normal, 12 anomalies, 1,893 unlabelled"
    assert str(LabelCounts(0, 1, 0)) == "0 normal, 1 anomaly, 0 unlabelled"
