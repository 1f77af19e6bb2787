"""Yes and no as people write them: which columns hold them, and what they say."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from support.loops import each

from riskad.files.codec import from_tree, to_tree
from riskad.tables.formats.flags import MARKS, PAIRS, FlagFormat, FlagLook

NBSP = "\u00a0"


def read(cells, first_row=1):
    """What a column of cells says, by its own format."""
    column = pl.Series("x", cells)
    look = FlagLook.of(column, first_row)
    learnt = look.format()
    values, bad = learnt.read(column)
    assert (values.dtype, bad.dtype, values.name) == (pl.Boolean, pl.Boolean, "x")
    assert look.n_good == len(values.drop_nulls()) - (0 if learnt.no else look.n_blank)
    assert look.n_bad == bad.sum()
    assert look.n_good + look.n_bad + look.n_blank == len(column)
    return values.to_list()


# A Turkish i without its dot has a capital that is that of another letter.
SPELLINGS = [
    tuple(map(spell, pair))
    for pair in PAIRS
    for spell in (str.lower, str.upper, str.title)
    if tuple(spell(word).lower() for word in pair) == pair
]


@each(("no", "yes"), SPELLINGS)
def test_the_usual_pairs(no, yes):
    cells = [no, yes, f" {yes}{NBSP}", "", None, "NA"]
    assert FlagLook.of(pl.Series(cells)).format() == FlagFormat(no, yes)
    assert read(cells) == [False, True, True, None, None, None]


@each(
    ("cells", "values", "words"),
    [
        (["Yes", "no", "YES", "yes", "yes"], [True, False, True, True, True], ("no", "yes")),
        (["TRUE", "", "TRUE"], [True, None, True], ("FALSE", "TRUE")),
        (["False", None], [False, None], ("False", "True")),
        (["yes", "n/a", "-", "unknown"], [True, None, None, None], ("no", "yes")),
        (["Oui", "oui", "Oui"], [True, True, True], ("Non", "Oui")),
        (["no", "si"], [False, True], ("no", "si")),
        (["No", "Sí"], [False, True], ("No", "Sí")),
        (["J", "N"], [True, False], ("N", "J")),
        (["x", "", None, "X"], [True, False, False, True], ("(blank)", "x")),
        (["✓", " "], [True, False], ("(blank)", "✓")),
        (["x", "-"], [True, False], ("(blank)", "x")),
        ([True, None, False], [True, None, False], ("False", "True")),
        (["yes"] * 99 + ["maybe"], [True] * 99 + [None], ("no", "yes")),
        (["yes"] * 98 + ["no", "true"], [True] * 98 + [False, None], ("no", "yes")),
    ],
)
def test_a_column_of_flags(cells, values, words):
    assert read(cells) == values
    look = FlagLook.of(pl.Series(cells))
    assert look.format().words == words
    assert [look.format().show(flag) for flag in (False, True)] == list(words)
    assert from_tree(*to_tree(look.format())) == look.format()


def test_a_column_of_something_else():
    texts = (
        "yes|no|maybe,yes|no|true|false,yes|nein,a|b,m|f,0|1,n|n|,NO|NO,ON|,x|x,x|y|,x|✓|,x||other"
        ",|NA,yesterday|nobody,yes yes|no no"
    )
    columns = [pl.Series(cells.split("|")) for cells in texts.split(",")]
    columns += [pl.Series([0, 1]), pl.Series([0.0, float("nan")]), pl.Series([], dtype=pl.String)]
    for column in [*columns, pl.Series(["yes"] * 98 + ["maybe"])]:
        look = FlagLook.of(column)
        assert (look.format(), look.remarks()) == (None, []), column


def test_what_is_bad_is_said_with_its_row_and_a_gap_that_means_no():
    look = FlagLook.of(pl.Series(["yes", "no", " perhaps ", "true", ""]), first_row=10)
    assert (look.n_good, look.n_bad, look.n_blank) == (2, 2, 1)
    assert look.first_bad == (12, "perhaps")
    assert look.remarks() == []
    look = FlagLook.of(pl.Series([None, 0, 1]))
    assert (look.n_good, look.n_bad, look.n_blank, look.first_bad) == (0, 2, 1, (2, "0"))
    look = FlagLook.of(pl.Series(["x", None, "", "x"]))
    assert look.remarks() == ["'x' in 2 rows is read as yes, nothing in 2 rows as no."]
    values, bad = FlagFormat("", "x").read(pl.Series(["X", "", None, "y"]))
    assert values.to_list() == [True, False, False, None]
    assert bad.to_list() == [False, False, False, True]


@each(
    ("column", "values", "bad"),
    [
        (pl.Series(["JA", "nein", "yes", ""]), [True, False, None, None], [0, 0, 1, 0]),
        (pl.Series([True, None, False]), [True, None, False], [0, 0, 0]),
        (pl.Series([1, 0, None, 2]), [True, False, None, None], [0, 0, 0, 1]),
        (pl.Series([1.0, 0.5, float("nan")]), [True, None, None], [0, 1, 0]),
        (pl.Series(["ja", "no"], dtype=pl.Categorical), [True, None], [0, 1]),
        (pl.Series([0, None], dtype=pl.Int64).cast(pl.Date), [None, None], [1, 0]),
        (pl.Series([None, None]), [None, None], [0, 0]),
        (pl.Series([], dtype=pl.String), [], []),
    ],
)
def test_other_columns_are_read_by_a_known_format(column, values, bad):
    found, wrong = FlagFormat("nein", "ja").read(column)
    assert found.to_list() == values
    assert wrong.to_list() == [bool(each) for each in bad]


WORDS = [word for pair in PAIRS[:8] for word in pair]
ANY_CELL = st.sampled_from([*WORDS, *MARKS, "Yes", "YES", "No", "", " x", "NA", None, "other", "0"])


@settings(max_examples=150, deadline=None)
@given(st.lists(ANY_CELL, max_size=20), st.data())
def test_parts_look_like_the_whole(cells, data):
    column = pl.Series(cells, dtype=pl.String)
    cut = data.draw(st.integers(0, len(cells)))
    parts = FlagLook.of(column[:cut]).joined(FlagLook.of(column[cut:], 1 + cut))
    whole = FlagLook.of(column)
    assert parts == whole
    assert parts.format() == whole.format()
    assert (parts.n_bad, parts.first_bad) == (whole.n_bad, whole.first_bad)
    if whole.format():
        read(column)
