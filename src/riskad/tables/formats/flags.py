"""Yes and no, as people write them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import polars as pl

from riskad.core.checks import InputError, quoted
from riskad.tables.formats.gaps import is_gap, strip_blanks
from riskad.tables.formats.number_format import as_column_of_texts
from riskad.tables.formats.tallies import Tally, join_tallies, tally_cells
from riskad.tables.words import say_count

__all__ = ["MARKS", "PAIRS", "FlagFormat", "FlagLook"]

# No and yes; 0 and 1 stay numbers. The more usual pair of those with a word in common comes first.
PAIRS = (
    *(("no", "yes"), ("n", "y"), ("false", "true"), ("f", "t"), ("off", "on")),
    *((".false.", ".true."), ("nope", "yep"), ("not ok", "ok"), ("nok", "ok")),
    *(("nein", "ja"), ("n", "j"), ("falsch", "wahr"), ("aus", "an")),
    *(("non", "oui"), ("n", "o"), ("faux", "vrai"), ("no", "si"), ("no", "sí"), ("no", "sì")),
    *(("n", "s"), ("falso", "vero"), ("falso", "verdadero"), ("falso", "verdadeiro")),
    *(("não", "sim"), ("nao", "sim"), ("nee", "ja"), ("nej", "ja"), ("nei", "ja"), ("ei", "kyllä")),
    *(("nie", "tak"), ("ne", "ano"), ("nie", "áno"), ("nem", "igen"), ("nu", "da"), ("ne", "da")),
    *(
        ("\u043d\u0435\u0442", "\u0434\u0430"),
        ("hay\u0131r", "evet"),
        ("hayir", "evet"),
        ("否", "是"),
    ),
    *(("いいえ", "はい"), ("아니오", "예"), ("✗", "✓"), ("✘", "✔"), ("☐", "☑"), ("❌", "✅")),
)
# A cross or tick in some rows and nothing in the others.
MARKS = ("x", "✓", "✔", "☑", "✅", "y", "j")
_WORDS = sorted({word for pair in PAIRS for word in pair} | set(MARKS))
_LONGEST = max(len(word.encode()) for word in _WORDS) * 2  # a capital may take more bytes
_SHORTEST_ALONE = 3  # letters of a word that is a flag without its opposite; NO may be Norway
_MOST_BAD = 0.01  # of the filled cells; more of them are levels of a category


@dataclass(frozen=True)
class FlagFormat:
    """How a column writes no and yes, in capitals or not.

    Parameters
    ----------
    no, yes
        The words as the table spells them; where `no` is empty, nothing means no.

    >>> values, bad = FlagFormat("nein", "ja").read(pl.Series(["Ja", "NEIN", "", "yes"]))
    >>> values.to_list(), bad.to_list()
    ([True, False, None, None], [False, False, False, True])
    """

    no: str
    yes: str

    @property
    def words(self) -> tuple[str, str]:
        """No and yes as the table spells them."""
        return self.no or "(blank)", self.yes

    def read(self, column: pl.Series) -> tuple[pl.Series, pl.Series]:
        """Return the flags (null where there is none), and where a cell holds something else.

        Values that are true or false, or the numbers 1 and 0, are read as such.
        """
        column = as_column_of_texts(column)
        if column.dtype == pl.String:
            return self._read_texts(column)
        nothing = column.is_null() & False
        if column.dtype.is_numeric():
            numbers = column.cast(pl.Float64).fill_nan(None)
            wrong = (~numbers.is_in([0.0, 1.0])).fill_null(False)
            return numbers.set(wrong, None).cast(pl.Boolean), wrong
        if column.dtype in (pl.Boolean, pl.Null):
            return column.cast(pl.Boolean), nothing
        return nothing.set(column.is_not_null() | True, None), column.is_not_null()

    def _read_texts(self, texts: pl.Series) -> tuple[pl.Series, pl.Series]:
        cells = strip_blanks(texts)
        lower = cells.str.to_lowercase()
        yes = (lower == self.yes.lower()).fill_null(False)
        no = (lower == self.no.lower()).fill_null(False)
        rest = ~yes & ~no
        gaps = rest & is_gap(cells)
        return (yes if not self.no else yes.set(gaps, None)).set(rest & ~gaps, None), rest & ~gaps

    def describe(self) -> str:
        """Return in a few words how yes and no are written.

        >>> FlagFormat("nein", "ja").describe(), FlagFormat("", "x").describe()
        ('yes/no, written ja and nein', 'yes/no, written x and nothing')
        """
        return f"yes/no, written {self.yes} and {self.no or 'nothing'}"

    def show(self, value: float) -> str:
        """Return yes or no as the column writes it."""
        return self.words[bool(value)]

    def to_dict(self) -> dict[str, Any]:
        """Return the format as JSON has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, state: Any) -> FlagFormat:
        """Return the format that `to_dict` wrote, or refuse what it cannot have written."""
        if not isinstance(state, dict) or set(state) != {"no", "yes"}:
            raise InputError("A format of flags has the entries no, yes.")
        no, yes = state["no"], state["yes"]
        known = isinstance(no, str) and isinstance(yes, str)
        if not known or not (
            (no.lower(), yes.lower()) in PAIRS or (not no and yes.lower() in MARKS)
        ):
            raise InputError(f"{quoted(state)} is no format of flags: the model is damaged.")
        return cls(no, yes)


@dataclass(frozen=True)
class FlagLook:
    """What all cells of a column, or of a part of its rows, look like as yes and no.

    A column holds flags if its words, whatever their capitals, are the two of one pair, or one that
    has at least three letters. Gaps may occur, and something else in at most one of a hundred cells
    that are filled. A column of crosses, all the same, and gaps holds flags, too: a gap is no.

    Attributes
    ----------
    spellings
        Cells that hold a word of any pair, by how it is spelled.
    others
        Cells that hold something else.
    n_gaps
        Blank cells and those with a word for nothing.

    >>> look = FlagLook.of(pl.Series(["Ja", "Nein", "ja", "n/a"]))
    >>> look.format(), look.n_good, look.n_gaps, look.n_bad
    (FlagFormat(no='Nein', yes='Ja'), 3, 1, 0)
    """

    spellings: dict[str, Tally] = field(default_factory=dict)
    others: Tally | None = None
    n_gaps: int = 0

    @classmethod
    def of(cls, column: pl.Series, first_row: int = 1) -> FlagLook:
        """Look at all cells of a column, the first of which is in row `first_row`."""
        column = as_column_of_texts(column)
        rows = pl.int_range(first_row, first_row + len(column), eager=True)
        if column.dtype == pl.Boolean:
            column = column.replace_strict([False, True], ["False", "True"], return_dtype=pl.String)
        if column.dtype != pl.String:
            blank = column.is_null() | (column.is_nan() if column.dtype.is_float() else False)
            others = tally_cells(column.filter(~blank), rows.filter(~blank))
            return cls(others=others, n_gaps=int(blank.sum()))
        cells = strip_blanks(column)
        short = (cells.str.len_bytes() <= _LONGEST).fill_null(False)
        known = short & cells.set(~short, None).str.to_lowercase().is_in(_WORDS).fill_null(False)
        rest, rest_rows = cells.filter(~known), rows.filter(~known)
        gaps = is_gap(rest)
        others = tally_cells(rest.filter(~gaps), rest_rows.filter(~gaps))
        return cls(_spellings(cells.filter(known), rows.filter(known)), others, int(gaps.sum()))

    def joined(self, other: FlagLook) -> FlagLook:
        """Return what the cells of both look like together."""
        return FlagLook(
            self.spellings
            | {
                word: tally.joined(self.spellings.get(word))
                for word, tally in other.spellings.items()
            },
            join_tallies(self.others, other.others),
            self.n_gaps + other.n_gaps,
        )

    @cached_property
    def _counts(self) -> Counter[str]:
        counts = Counter[str]()
        for word, tally in self.spellings.items():
            counts[word.lower()] += tally.n
        return counts

    @cached_property
    def _pair(self) -> tuple[str, str]:
        """The two words that most cells hold; both, if there is such a pair."""
        marks = [mark for mark in MARKS if self._counts[mark]]
        if len(self._counts) == len(marks) == 1 and self.n_gaps and self.others is None:
            return "", marks[0]
        return max(PAIRS, key=self._support)

    def _support(self, pair: tuple[str, str]) -> tuple[int, int]:
        counts = [self._counts[word] for word in pair]
        return sum(counts), sum(count > 0 for count in counts)

    @property
    def n_good(self) -> int:
        """How many cells hold yes or no."""
        return sum(self._counts[word] for word in self._pair)

    @cached_property
    def _bad(self) -> Tally | None:
        bad = self.others
        for word, tally in self.spellings.items():
            if word.lower() not in self._pair:
                bad = join_tallies(bad, tally)
        return bad

    @property
    def n_bad(self) -> int:
        """How many cells hold something else."""
        return self._bad.n if self._bad else 0

    @property
    def first_bad(self) -> tuple[int, str] | None:
        """The first row, with its text, that holds something else."""
        return (self._bad.row, self._bad.cell) if self._bad else None

    def format(self) -> FlagFormat | None:
        """Return how yes and no are written, or None if the column does not hold them."""
        if self.n_good == 0 or self.n_bad > _MOST_BAD * (self.n_good + self.n_bad):
            return None
        no, yes = self._pair
        said = [word for word in self._pair if self._counts[word]]
        if no and len(said) == 1 and len(said[0]) < _SHORTEST_ALONE:
            return None
        return FlagFormat(self._spelled(no, yes), self._spelled(yes, no))

    def _spelled(self, word: str, opposite: str) -> str:
        """Return a word as most cells spell it, or in the style of its opposite if none has it."""
        ways = [spelled for spelled in self.spellings if spelled.lower() == word]
        if ways:
            return min(ways, key=lambda way: (-self.spellings[way].n, self.spellings[way].row))
        if not word:
            return ""
        style = self._spelled(opposite, "")
        return word.upper() if style.isupper() else word.title() if style.istitle() else word

    def remarks(self) -> list[str]:
        """Say, in a sentence, what was a guess."""
        found = self.format()
        if found is None or found.no:
            return []
        return [
            f"{quoted(found.yes)} in {say_count(self.n_good, 'row')} is read as yes, "
            f"nothing in {say_count(self.n_gaps, 'row')} as no."
        ]


def _spellings(cells: pl.Series, rows: pl.Series) -> dict[str, Tally]:
    groups = (
        pl.DataFrame({"cell": cells, "row": rows})
        .group_by("cell")
        .agg(n=pl.len(), row=pl.col("row").first())
    )
    return {cell: Tally(n, row, cell, "") for cell, n, row in groups.iter_rows()}
