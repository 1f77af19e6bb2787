"""Texts as compact vectors."""

import numpy as np
import polars as pl
import pytest
from support.loops import each

from riskad import InputError
from riskad.files.codec import build, from_tree, to_tree
from riskad.tables.kinds import texts
from riskad.tables.kinds.texts import TextVectors

REFUNDS = [f"refund of order {i} to card" for i in range(40)]
CALLS = [f"customer called about delivery {i}" for i in range(40)]
SHAPE = 4


@pytest.fixture(scope="module")
def notes():
    return pl.Series("note", REFUNDS + CALLS)


def near(vectors, a, b):
    a, b = vectors.features(pl.Series([a, b]))[:, SHAPE:]
    return a @ b / np.sqrt((a @ a) * (b @ b))


def test_texts_with_the_same_pieces_are_close(notes):
    vectors = TextVectors.learn(notes)
    alike = near(vectors, "refunded an order", "REFUND order 7")
    assert alike > 0.8
    assert near(vectors, "refund order 7", "delivery: customer calls") < alike - 0.5


def test_the_numbers_say_what_a_text_looks_like(notes):
    vectors = TextVectors.learn(notes)
    features = vectors.features(pl.Series(["Ab 12", "ÄÖ", " x  y "]))
    np.testing.assert_allclose(
        features[:, :SHAPE], [[5, 2 / 5, 1 / 5, 2], [2, 0, 1, 1], [6, 0, 0, 2]]
    )
    names = vectors.names
    assert len(names) == features.shape[1] == SHAPE + 16
    assert names[0] == "length"
    assert names[-1] == "direction 16"


def test_blank_long_and_odd_texts_have_finite_vectors_or_none(notes):
    vectors = TextVectors.learn(notes)
    features = vectors.features(pl.Series([None, "", "refund"], dtype=pl.String))
    np.testing.assert_array_equal(features[:2, [0, 3]], 0)
    assert np.isnan(np.delete(features[:2], [0, 3], axis=1)).all()
    assert np.isfinite(features[2]).all()
    cut, longer = vectors.features(pl.Series(["ab " * 400, "ab " * 100_000]))
    np.testing.assert_allclose(cut, longer)
    assert cut[0] == 1_000
    odd = pl.Series(["\x00", "日本語 テキスト", "👩‍👩‍👧 ok", "İstanbul ß", "\n\t", " "])
    features = TextVectors.learn(odd).features(odd)
    assert np.isfinite(features).all()
    assert TextVectors.learn(odd).features(odd[:0]).shape == (0, features.shape[1])


def test_the_same_texts_give_the_same_vectors(notes, monkeypatch):
    every = TextVectors.learn(notes)
    monkeypatch.setattr(texts, "_MOST_LEARNED", 30)
    first, again = (TextVectors.learn(notes) for _ in range(2))
    np.testing.assert_array_equal(first.directions, again.directions)
    assert not np.array_equal(first.rarity, every.rarity)  # of a sample


def test_a_text_is_the_same_in_any_company(notes, monkeypatch):
    vectors = TextVectors.learn(notes)
    together = vectors.features(notes)
    monkeypatch.setattr(texts, "_BLOCK", 50)
    np.testing.assert_allclose(vectors.features(notes), together, atol=1e-12)
    alone = np.vstack([vectors.features(notes[i : i + 1]) for i in range(len(notes))])
    np.testing.assert_allclose(alone, together, atol=1e-12)


@each("known", [[], [None, ""], ["one"], ["one", "one", None]])
def test_without_texts_that_differ_there_are_no_directions(known):
    vectors = TextVectors.learn(pl.Series(known, dtype=pl.String))
    features = vectors.features(pl.Series(["two", None], dtype=pl.String))
    assert features.shape == (2, SHAPE)
    assert len(vectors.names) == SHAPE


def test_vectors_can_be_stored(notes):
    vectors = TextVectors.learn(notes)
    loaded = from_tree(*to_tree(vectors))
    np.testing.assert_array_equal(loaded.features(notes), vectors.features(notes))
    with pytest.raises(InputError, match="rarity"):
        build(TextVectors, vars(vectors) | {"rarity": vectors.rarity[:-1]})
