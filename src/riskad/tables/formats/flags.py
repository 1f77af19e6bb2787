"""Yes and no, as people write them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from riskad.core.checks import quoted
from riskad.tables.cells import (
    BLANK,
    CellFormat,
    CellLook,
    Tally,
    are_blank,
    categories_as_texts,
    strip_spaces,
    tally_filled,
)
from riskad.tables.notes import pluralize

# No and yes; 0 and 1 stay numbers. The more usual pair of those with a word in common comes first.
_PAIRS = """
    no/yes n/y false/true f/t off/on .false./.true. nope/yep nok/ok nein/ja n/j falsch/wahr aus/an
    non/oui n/o faux/vrai no/si no/sí no/sì n/s falso/vero falso/verdadero falso/verdadeiro não/sim
    nao/sim nee/ja nej/ja nei/ja ei/kyllä nie/tak ne/ano nie/áno nem/igen nu/da ne/da
    \u043d\u0435\u0442/\u0434\u0430 hay\u0131r/evet hayir/evet 否/是 いいえ/はい 아니오/예
    ✗/✓ ✘/✔ ☐/☑ ❌/✅
"""
PAIRS = [(no, yes) for no, yes in (pair.split("/") for pair in _PAIRS.split())]
# A cross or tick in some rows and nothing in the others.
MARKS = ("x", "✓", "✔", "☑", "✅", "y", "j")
_WORDS = sorted({word for pair in PAIRS for word in pair} | set(MARKS))
_LONGEST = max(len(word.encode()) for word in _WORDS) * 2  # a capital may take more bytes
_SHORTEST_ALONE = 3  # letters of a word that is a flag without its opposite; NO may be Norway
_MOST_BAD = 0.01  # of the filled cells; more of them are levels of a category


@dataclass(frozen=True)
class FlagFormat(CellFormat):
    """How a column writes no and yes, in capitals or not; where `no` is empty, nothing means no.

    >>> values, bad = FlagFormat("nein", "ja").read(pl.Series(["Ja", "NEIN", "", "yes"]))
    >>> values.to_list(), bad.to_list()
    ([True, False, None, None], [False, False, False, True])
    """

    no: str
    yes: str

    word = "flag"
    expected = "one of these"

    @property
    def words(self) -> tuple[str, str]:
        """No and yes as the table spells them."""
        return self.no or BLANK, self.yes

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the flags (null where there is none), and where a cell holds something else.

        Values that are true or false, or the numbers 1 and 0, are read as such.
        """
        column = categories_as_texts(column)
        if column.dtype == pl.String:
            yes, plain = column == self.yes, column == self.no
            if (yes | plain).all(ignore_nulls=False):  # all spelled as most are
                return yes, pl.repeat(False, len(column), eager=True)
            cells = strip_spaces(column)
            lower = cells.str.to_lowercase()
            yes = (lower == self.yes.lower()).fill_null(False)
            rest = ~yes & (lower != self.no.lower()).fill_null(True)
            blank = rest & are_blank(cells)
            bad = rest & ~blank
            return yes.set(bad if not self.no else rest, None), bad
        if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null):
            numbers = column.cast(pl.Float64).fill_nan(None)
            bad = (~numbers.is_in([0.0, 1.0])).fill_null(False)
            return numbers.set(bad, None).cast(pl.Boolean), bad
        return pl.Series(column.name, [None] * len(column), dtype=pl.Boolean), column.is_not_null()

    def describe(self) -> str:
        return f"yes/no, written {self.yes} and {self.no or 'nothing'}"

    def show(self, value: float) -> str:
        return self.words[bool(value)]


@dataclass(frozen=True)
class FlagLook(CellLook):
    """What all cells of a column, or of a part of its rows, look like as yes and no.

    A column holds flags if its words, whatever their capitals, are the two of one pair, or one that
    has at least three letters. Blanks may occur, and something else in at most one of a hundred
    filled cells. A column of crosses, all the same, and blanks holds flags, too: a blank is no.
    The ways of writing are the words of any pair as the cells spell them.
    """

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> FlagLook:
        """Look at all cells of a column, the first of which is in row `first_row`."""
        column = categories_as_texts(column)
        if column.dtype == pl.Boolean:
            column = column.replace_strict([False, True], ["False", "True"], return_dtype=pl.String)
        if column.dtype != pl.String:
            return cls(*tally_filled(column, first_row))
        cells = strip_spaces(column)
        short = (cells.str.len_bytes() <= _LONGEST).fill_null(False)
        # Long texts are not folded to small letters: most columns of text hold no flags at all.
        flags = short & cells.set(~short, None).str.to_lowercase().is_in(_WORDS).fill_null(False)
        blank = (~flags).scatter((~flags).arg_true(), are_blank(cells.filter(~flags)))
        counted = (
            pl.DataFrame({"way": cells.set(~flags, None), "cell": cells})
            .with_row_index("row", first_row)
            .filter(~blank)
            .group_by("way")
            .agg(pl.len(), pl.col("row", "cell").first())
        )
        return cls({word: Tally(*tally) for word, *tally in counted.iter_rows()}, int(blank.sum()))

    @cached_property
    def _counts(self) -> Counter[str]:
        counts = Counter[str]()
        for word, tally in self.tallies.items():
            counts[(word or "").lower()] += tally.n
        return counts

    @cached_property
    def _pair(self) -> tuple[str, str]:
        """The two words that most cells hold; both, if there is such a pair."""
        words = list(self._counts)
        if len(words) == 1 and words[0] in MARKS and self.n_blank:
            return "", words[0]

        def support(pair: tuple[str, str]) -> tuple[int, int]:
            counts = [self._counts[word] for word in pair]
            return sum(counts), sum(count > 0 for count in counts)

        # The pair with most cells, then the one of which both words occur; then the more usual one.
        return max(PAIRS, key=support)

    @cached_property
    def _good(self) -> set[str]:
        return {word for word in self.tallies if word and word.lower() in self._pair}

    def format(self) -> FlagFormat | None:
        if self.n_good == 0 or self.n_bad > _MOST_BAD * (self.n_good + self.n_bad):
            return None
        no, yes = self._pair
        present = [word for word in self._pair if self._counts[word]]
        # "no" alone may be Norway, and "y" a coordinate.
        if no and len(present) == 1 and len(present[0]) < _SHORTEST_ALONE:
            return None
        return FlagFormat(self._spelled(no, yes), self._spelled(yes, no))

    def _spelled(self, word: str, opposite: str) -> str:
        """Return a word as most cells spell it, or in the style of its opposite if none has it."""
        tallies = [tally for way, tally in self.tallies.items() if (way or "").lower() == word]
        if tallies or not word:
            return min(tallies, key=lambda tally: (-tally.n, tally.row)).cell if tallies else ""
        style = self._spelled(opposite, "")
        return word.upper() if style.isupper() else word.title() if style.istitle() else word

    def remarks(self) -> list[str]:
        flags = self.format()
        if flags is None or flags.no:
            return []
        good, blank = pluralize(self.n_good, "row"), pluralize(self.n_blank, "row")
        return [f"{quoted(flags.yes)} in {good} is read as yes, nothing in {blank} as no."]
