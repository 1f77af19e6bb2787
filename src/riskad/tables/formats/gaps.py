"""How people write that there is nothing in a cell."""

from __future__ import annotations

import re

import polars as pl

__all__ = ["BLANKS", "GAP_WORDS", "is_gap", "strip_blanks", "without_gaps"]

# Inside a number: a space, one that does not break the line, and the thin ones of typesetters.
BLANKS = " \u00a0\u2007\u2009\u200a\u202f"
# Around a cell also what cannot be seen at all: a byte order mark, spaces without width.
_AROUND = BLANKS + "\t\n\r\v\f\u1680\u2002\u2003\u2004\u2005\u2006\u2008\u3000\u200b\u2060\ufeff"

# Among numbers, dates or yes and no these say that there is none. Among words they may be words:
# NA is Namibia, None a maiden name, and "unknown" tells something about a customer.
_WORDS = """
    na n/a n.a. n.a #n/a #na nan #nan <na> null (null) nil none nat
    ? ?? - -- --- \u2013 \u2014 \u2212 . .. \u2026 / \\ * \\n
    blank (blank) empty (empty) missing (missing) unknown (unknown) undefined unspecified
    #value! #ref! #div/0! #null! #num! #name? nd n.d. tbd tba k.a. s/o 0000-00-00
"""
GAP_WORDS = frozenset(_WORDS.split()) | {
    "not available",
    "not applicable",
    "no data",
    "keine angabe",
}
_ANY_WORD = f"^(?i:{'|'.join(re.escape(word) for word in sorted(GAP_WORDS))})$"


def strip_blanks(texts: pl.Series) -> pl.Series:
    r"""Take blanks from around texts; a text that was nothing else is null.

    This is what a gap is in a column of words.

    >>> strip_blanks(pl.Series([" NA", "\u00a0", ""])).to_list()
    ['NA', None, None]
    """
    stripped = texts.str.strip_chars(_AROUND)
    empty = stripped == ""
    return stripped.set(empty, None) if empty.any() else stripped


def is_gap(texts: pl.Series) -> pl.Series:
    """Whether each text, without blanks around it, says that nothing is there.

    >>> is_gap(pl.Series(["n/a", "12", None, "#N/A"])).to_list()
    [True, False, True, True]
    """
    return texts.str.contains(_ANY_WORD).fill_null(True)


def without_gaps(texts: pl.Series) -> pl.Series:
    """Take blanks from around texts; null where nothing is left or a word for nothing.

    This is what a gap is in a column of numbers, dates or yes and no.

    >>> without_gaps(pl.Series(["12 ", "N/A", "-", "", None])).to_list()
    ['12', None, None, None, None]
    """
    stripped = strip_blanks(texts)
    return stripped.set(is_gap(stripped), None)
