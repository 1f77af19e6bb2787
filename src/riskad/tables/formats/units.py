"""Which words behind the numbers of a column are units, seen over all of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from riskad.tables.formats.gaps import BLANKS
from riskad.tables.formats.number_marks import (
    is_currency,
    is_moment_or_rank,
    is_unit,
    scale_of,
    words_of,
)

__all__ = ["accepted"]

_MOST_UNKNOWN = 3  # 5 stars, 4.5 stars, 1 star; more than that are words


def accepted(counts: Mapping[str, int], n_filled: int) -> set[str]:
    """Return the suffixes that leave a number a number.

    These are: nothing, a known unit, a currency, or a word of two letters or more if at most three
    such words occur and at least half of all filled cells have one of them or a known unit. One
    letter (5m) is a unit where no other letter occurs: 12a, 12b and 14c are house numbers; behind a
    blank (5 m, 3 l, 2 t) all known ones are. Words that multiply (k, Mio.) do so only if no cell
    has another unit: 5k beside 12 kg is not read.

    Parameters
    ----------
    counts
        How many cells have each suffix.
    n_filled
        How many cells hold anything.

    >>> sorted(accepted({" kg": 9, " t": 2, " m": 2, " boxes": 3}, 16))
    [' boxes', ' kg', ' m', ' t']
    >>> sorted(accepted({"": 9, " boxes": 3}, 12))
    ['']
    >>> accepted({"a": 9, "b": 2}, 11)
    set()
    """
    suffixes = Counter(dict(counts))
    return set(counts) - _unknown(suffixes, n_filled) - _letters(suffixes) - _scales(suffixes)


def _unknown(suffixes: Counter[str], n_filled: int) -> set[str]:
    """Refuse words that are not known to be units, unless most cells have the same few."""
    unknown = {suffix for suffix in suffixes if not is_unit(suffix)}
    times = {suffix for suffix in unknown if is_moment_or_rank(suffix)}
    short = {suffix for suffix in unknown if any(len(word) < 2 for word in words_of(suffix))}
    words = unknown - times - short
    n_words = len({suffix.strip().casefold() for suffix in words})
    units = {suffix for suffix in suffixes.keys() - unknown if words_of(suffix)}
    common = 2 * sum(suffixes[suffix] for suffix in words | units) >= n_filled
    return unknown - words if common and n_words <= _MOST_UNKNOWN else unknown


def _letters(suffixes: Counter[str]) -> set[str]:
    """Refuse single letters where there are several, unless all are units behind a blank."""
    letters = {
        suffix
        for suffix in suffixes
        if len(suffix.strip()) == 1
        and suffix.strip().isalpha()
        and scale_of(suffix) == 1
        and not is_currency(suffix.strip())
    }
    units = all(letter[0] in BLANKS and is_unit(letter) for letter in letters)
    several = len({letter.strip() for letter in letters}) > 1
    return letters if several and not units else set()


def _scales(suffixes: Counter[str]) -> set[str]:
    """Refuse words that multiply where other units occur, and B (12B is a seat) on its own."""
    scales = {suffix for suffix in suffixes if scale_of(suffix) != 1}
    units = {
        suffix
        for suffix in suffixes
        if suffix not in scales and not all(is_currency(word) for word in words_of(suffix))
    }
    return scales if units or scales == {"B"} else set()
