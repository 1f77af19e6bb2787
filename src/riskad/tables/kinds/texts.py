r"""Columns of free text and of lists, as a few numbers learned without a label.

A text in lower case, with a blank before and after it, is cut into its pieces of three, four and
five characters and into its words. Each piece falls into one of 4,096 buckets by its hash, and is
weighted by how rare the bucket is,

    w_b = 1 + log((1 + n) / (1 + n_b)),        n_b of the n texts have a piece in bucket b.

A text is then the vector with w_b for each of its pieces, divided by the root of the sum of their
squares, so that long and short texts are equally far from 0. Its sixteen numbers are the components
of this vector along the leading singular directions of up to 20,000 of the texts: texts with the
same pieces, and texts with pieces that occur together, are close.

The hash of a piece is that of a polynomial. With c_i the characters of many texts, one after the
other, and A odd,

    H_i = c_0 + c_1 A + ... + c_{i-1} A^(i-1)    mod 2^64,

the piece of the characters i to j - 1 has the hash (H_j - H_i) A^-i, at any position, and all
pieces are hashed in a few operations on arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from riskad.core.checks import quoted
from riskad.files.codec import register
from riskad.files.fields import COUNT, Array
from riskad.tables.cells import BLANK, Value
from riskad.tables.kinds.base import Column, ColumnProfile, Feature
from riskad.tables.notes import say_count
from riskad.tables.sketches import Texts

MANY_LEVELS = 50
"""Levels beyond which a category is one of many levels."""

# Texts of which hardly two are alike name the rows if they are codes, with digits or in one word;
# words may carry information. If many repeat, only sentences are text.
_WORDS_OF_TEXT, _WORDS_OF_ITEMS, _WORDS_OF_SENTENCES = 1.5, 3.0, 5.0
_MOSTLY, _OFTEN = 0.9, 0.1
_LONG_LIST = 3.0  # items on average
_SAMPLED = 10_000
_FEWEST_TEXTS, _FEWEST_LISTS = 20, 8  # different ones, to learn what they have in common

_PIECES = (3, 4, 5)
_BITS = 12
_BUCKETS = 1 << _BITS
_DIRECTIONS = 16
_MOST_LEARNED = 20_000
_LONGEST = 1_000  # characters of a text that are used
_BLOCK = 1 << 20  # characters at a time
_A = 0x9E3779B97F4A7C15  # odd, so that it has an inverse
_A_INVERSE = pow(_A, -1, 1 << 64)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_SHAPE = ("length", "digits", "capitals", "words")


@register
@dataclass(frozen=True)
class TextVectors:
    """Texts as numbers: their shape, and directions in which texts differ.

    The numbers are the length in characters, the shares of digits and of capitals, the number of
    words, and up to sixteen directions. A blank text has length 0 and no words, and NaN in all
    else. Of a long text the first 1,000 characters count.
    """

    rarity: Annotated[NDArray[np.float64], Array("f", (_BUCKETS,), low=0)]  # w_b
    directions: Annotated[
        NDArray[np.float64], Array("f", (_BUCKETS, "directions"))
    ]  # (buckets, directions)

    @classmethod
    def learn(cls, texts: pl.Series) -> TextVectors:
        """Learn rarities and directions from texts, at most 20,000 of them, always the same."""
        texts = texts.str.head(_LONGEST)
        filled = np.flatnonzero((texts.str.len_bytes() > 0).fill_null(False).to_numpy())
        if len(filled) > _MOST_LEARNED:
            rng = np.random.default_rng(0)
            filled = np.sort(rng.choice(filled, _MOST_LEARNED, replace=False))
        texts = texts.gather(filled)
        n_b = np.zeros(_BUCKETS)
        for pieces in _each_block(texts):
            pieces.sum_duplicates()
            n_b += np.bincount(pieces.indices, minlength=_BUCKETS)
        rarity = 1 + np.log((1 + len(texts)) / (1 + n_b))
        size = min(_DIRECTIONS, texts.n_unique() - 1)
        if size < 1:
            return cls(rarity, np.zeros((_BUCKETS, 0)))
        from sklearn.utils.extmath import randomized_svd  # scoring does without

        rows = sparse.vstack([_weighted(pieces, rarity) for pieces in _each_block(texts)]).tocsr()
        _, _, right = randomized_svd(rows, size, n_iter=4, random_state=0)
        return cls(rarity, np.ascontiguousarray(right.T))

    def names(self, column: str) -> list[str]:
        directions = (f"direction {i + 1}" for i in range(self.directions.shape[1]))
        return [f"{column}: {name}" for name in (*_SHAPE, *directions)]

    def features(self, texts: pl.Series) -> NDArray[np.float64]:
        """Return the numbers of texts, one row for each."""
        texts = texts.str.head(_LONGEST)
        length = texts.str.len_chars().fill_null(0)
        shape = (
            length,
            texts.str.count_matches(r"\d") / length,
            texts.str.count_matches(r"\p{Lu}") / length,
            texts.str.count_matches(r"\S+").fill_null(0),
        )
        blocks = [_weighted(p, self.rarity) @ self.directions for p in _each_block(texts)]
        vectors = np.concatenate([np.zeros((0, self.directions.shape[1])), *blocks])
        vectors[length.to_numpy() == 0] = np.nan
        return np.column_stack([*(each.cast(pl.Float64).to_numpy() for each in shape), vectors])


def _each_block(texts: pl.Series) -> Iterator[sparse.csr_array]:
    """The pieces of some texts at a time, a row for each text, with a bucket for each piece."""
    padded = " " + texts.fill_null("").str.to_lowercase() + " "
    ends = np.cumsum(padded.str.len_chars().to_numpy().astype(np.int64))
    starts = np.concatenate([[0], ends])[:-1]
    cuts = np.flatnonzero(np.diff(starts // _BLOCK, prepend=-1))
    for first, last in pairwise([*map(int, cuts), len(texts)]):
        yield _pieces(padded[first:last], np.diff(ends[first:last], prepend=starts[first]))


def _pieces(texts: pl.Series, lengths: NDArray[np.int64]) -> sparse.csr_array:
    characters = "".join(texts.to_list()).encode("utf-32-le", errors="replace")
    c = np.frombuffer(characters, dtype=np.uint32).astype(np.uint64)
    text_of = np.repeat(np.arange(len(lengths)), lengths)
    inside = [
        np.flatnonzero(text_of[: max(0, len(c) - n + 1)] == text_of[n - 1 :]) for n in _PIECES
    ]
    letters = np.concatenate([[False], c != ord(" "), [False]])
    edges = np.flatnonzero(letters[1:] != letters[:-1])  # of words
    starts = np.concatenate([*inside, edges[::2]])
    stops = np.concatenate([*(at + n for at, n in zip(inside, _PIECES, strict=True)), edges[1::2]])
    # Products and sums overflow by design.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(c * _powers(_A, len(c)))])
    hashes = (sums[stops] - sums[starts]) * _powers(_A_INVERSE, len(c) + 1)[starts]
    buckets = ((hashes * _MIX) >> np.uint64(64 - _BITS)).astype(np.int64)
    order = np.argsort(text_of[starts], kind="stable")
    rows = np.concatenate([[0], np.cumsum(np.bincount(text_of[starts], minlength=len(lengths)))])
    ones = np.ones(len(buckets))
    return sparse.csr_array((ones, buckets[order], rows), shape=(len(lengths), _BUCKETS))


def _powers(base: int, n: int) -> NDArray[np.uint64]:
    factors = np.full(n, base, dtype=np.uint64)
    factors[:1] = 1
    return np.asarray(np.multiply.accumulate(factors))


def _weighted(pieces: sparse.csr_array, rarity: NDArray[np.float64]) -> sparse.csr_array:
    """Each row with w_b for its pieces, divided by the root of the sum of their squares."""
    w = rarity[pieces.indices]
    counts = np.diff(pieces.indptr)
    row_of = np.repeat(np.arange(len(counts)), counts)
    norms = np.sqrt(np.bincount(row_of, w**2, minlength=len(counts)))
    return sparse.csr_array((w / norms[row_of], pieces.indices, pieces.indptr), pieces.shape)


# --- the kind of texts -----------------------------------------------------------------------


def text_kind(profile: ColumnProfile) -> str:
    """Return the kind of texts: text, list, category, or identifier if they name the rows."""
    if profile.reader.word != "text":
        return ""
    if profile.requested:
        return profile.requested
    texts = profile.values.drop_nulls().head(_SAMPLED)
    n_distinct = cast(Texts, profile.sketch).n_distinct
    if not len(texts):
        return "category"
    number = profile.look.cells.get("number")
    is_measured = number is not None and 2 * number.n_measured > profile.n_filled
    if not is_measured and _are_lists(texts):  # 38,0 kg is no list
        return "list" if n_distinct >= _FEWEST_LISTS else "category"
    words = _mean(texts.str.count_matches(r"\S+"))
    in_letters = _mean(texts.str.count_matches(r"\p{L}")) > 0.5 * _mean(texts.str.len_chars())
    differ = n_distinct > profile.n_filled / 2 and n_distinct > 2
    speak = differ and words >= _WORDS_OF_TEXT
    speak = speak or (n_distinct > MANY_LEVELS and words >= _WORDS_OF_SENTENCES)
    if speak and in_letters:
        return "text" if n_distinct >= _FEWEST_TEXTS else "category"
    return "identifier" if differ else "category"


def _mean(values: pl.Series) -> float:
    return float(cast(float, values.mean()))


def _are_lists(texts: pl.Series) -> bool:
    """Whether texts are lists: in brackets, or with few items of varying number."""
    if _mean(texts.str.contains(r"^[\[{(].*[\])}]$")) >= _MOSTLY:
        return True
    for separator in (";", "|", ","):
        if _mean(texts.str.contains(separator, literal=True)) < _OFTEN:
            continue
        split = texts.str.split(separator)
        items, sizes = split.explode().str.strip_chars(), split.list.len()
        short = _mean(items.str.count_matches(r"\S+")) < _WORDS_OF_ITEMS
        uneven = _mean(sizes != sizes.mode()[0]) >= _OFTEN
        few = items.n_unique() <= texts.n_unique()
        few = few or (_mean(sizes) >= _LONG_LIST and 2 * items.n_unique() <= len(items))
        if short and uneven and few:
            return True
    return False


def format_hint(look: Any) -> list[str]:
    """Say what prevents a column of texts from being one of numbers or moments, if it is little."""
    for word in ("number", "moment"):
        cells = look.cells.get(word)
        if cells is None or cells.first_bad is None or not 0 < cells.n_bad < cells.n_good:
            continue
        written, (row, cell) = cells.format(), cells.first_bad
        what, remedy = "numbers", "leave such blank"
        if word == "moment":
            what = written.describe()
            kind = f"{cells.name}={written.kind}:{written.pattern}"
            remedy += f", or write all in one way and say --kind {quoted(kind)},"
        return [f"most are {what}, but not {cell!r} in row {row:,}: {remedy} to have it so"]
    return []


@dataclass(frozen=True)
class TextColumn(Column):
    """Texts of which hardly two are alike: each becomes a short vector."""

    vectors: TextVectors = None  # type: ignore[assignment]
    blanks: Annotated[int, COUNT] = 0  # rows without a text

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if its texts differ, and are words rather than names of the rows."""
        kind = text_kind(profile)
        if kind not in ("text", "list") or cast(Texts, profile.sketch).n_distinct < 2:
            return None
        vectors = TextVectors.learn(profile.values.drop_nulls())
        hint = format_hint(profile.look)
        return cls(profile.name, kind, hint, vectors=vectors, blanks=profile.sketch.blanks)

    @property
    def requested_kind(self) -> str:
        return "text"

    @property
    def typical(self) -> Value:
        return None

    def features(self, values: pl.Series) -> list[Feature]:
        vectors = self.vectors.features(values)
        vectors[values.is_null().to_numpy()] = np.nan
        names = self.vectors.names(self.name)
        return [Feature(name, vectors[:, j]) for j, name in enumerate(names)]

    def show(self, value: Value) -> Value:
        return BLANK if value is None else value

    def describe(self) -> str:
        return f"{say_count(len(self.vectors.names('')), 'number')} for each text"

    def random_values(self, rng: np.random.Generator, n: int) -> pl.Series:
        return self.typed([None] * n)  # no text is stored
