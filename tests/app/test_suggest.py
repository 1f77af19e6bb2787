import shutil

import numpy as np
import polars as pl
import pytest
from conftest import make_contaminated_rows
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.cards import make_cards
from support.commands import result_of, run

from riskad import InputError, ShallowRAD, suggest_rows
from riskad.app.fit import fit_table
from riskad.app.journal import Answer, Journal, hash_rows
from riskad.app.model_files import load
from riskad.app.suggest import suggest_table
from riskad.decisions import suggest as room
from riskad.decisions.suggest import BORDERLINE, LIKELY, UNLIKE
from riskad.tables.reading import read_table

KINDS = {LIKELY, BORDERLINE, UNLIKE}


@pytest.fixture(scope="module")
def fitted():
    X, y, truth = make_contaminated_rows(labelled=0.05)
    return ShallowRAD().fit(X, y), X, y, truth


def test_labelled_rows_are_never_suggested_and_none_twice(fitted):
    model, X, y, _ = fitted
    chosen = suggest_rows(model, X, 100, y=y)
    assert len(chosen) == len(set(chosen.rows.tolist())) == 100
    assert (y[chosen.rows] == 0).all()


def test_all_kinds_come_with_their_scores(fitted):
    model, X, y, _ = fitted
    chosen = suggest_rows(model, X, 60, y=y)
    assert {LIKELY, BORDERLINE} <= set(chosen.reasons[:20])
    assert set(chosen.reasons) == KINDS
    assert_array_equal(chosen.anomaly_score, model.anomaly_score(X)[chosen.rows])
    above = chosen.anomaly_score + model.offset_
    by_kind = {kind: above[np.array(chosen.reasons) == kind] for kind in KINDS}
    assert by_kind[LIKELY].min() > by_kind[BORDERLINE].max()
    assert by_kind[BORDERLINE].min() > by_kind[UNLIKE].max()
    assert by_kind[LIKELY].min() > 0 > by_kind[UNLIKE].max()
    assert str(chosen).count("\n") == 59


def test_groups_are_those_of_the_formula():
    s = np.arange(40.0)
    borderline, likely = room._groups(s, 20.2, 1)
    assert_array_equal(np.flatnonzero(borderline), [19, 20, 21, 22])  # a tenth of the rows
    assert_array_equal(likely, s > 22)
    borderline, likely = room._groups(s, 37.6, 6)
    assert_array_equal(borderline, s >= 36)
    assert_array_equal(likely, s >= 34)  # only borderline rows are flagged: the highest


def test_weights_are_those_of_the_formula():
    w, borderline = room._SHARE, np.arange(10) == 7
    p = (1 - w) / 10 + w * borderline
    assert_allclose(room._weights(borderline, np.arange(10) >= 7), p)
    few = np.arange(100) == 99
    q = room._weights(np.arange(100) >= 90, few)
    assert_allclose([q.sum(), q[few].sum()], [1, 0.1])
    assert_allclose(q[95] / q[5], (w / 10 + (1 - w) / 100) / ((1 - w) / 100))
    assert_allclose(room._weights(np.array([False]), np.array([True])), 1)


def test_herding_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    Z, known = rng.normal(size=(12, 3)), rng.normal(size=(2, 3))
    q, likely = rng.dirichlet(np.ones(12)), np.arange(12) >= 8
    pairs = ((Z[:, None] - Z) ** 2).sum(axis=2)
    h = np.median(pairs[pairs > 0])

    def k(x, others):
        return np.exp(-((np.asarray(others) - x) ** 2).sum(axis=1) / h)

    done, chosen = list(known), []
    for _ in range(5):
        gain = [
            -np.inf if i in chosen else q @ k(z, Z) - k(z, done).sum() / (len(done) + 1)
            for i, z in enumerate(Z)
        ]
        if not chosen:
            gain = np.where(likely, gain, -np.inf)
        chosen.append(int(np.argmax(gain)))
        done.append(Z[chosen[-1]])
    assert room._herd(Z, q, known, likely, 5).tolist() == chosen


def test_copies_of_a_row_are_not_all_chosen(fitted):
    model, X, _, _ = fitted
    worst = np.argmax(model.anomaly_score(X))
    many = np.vstack([X, np.repeat(X[[worst]], 200, axis=0)])
    top = np.argsort(-model.anomaly_score(many))[:20]
    assert len(np.unique(many[top], axis=0)) == 1
    chosen = suggest_rows(model, many, 20).rows
    assert len(np.unique(many[chosen], axis=0)) == 20


def test_rows_near_labelled_ones_are_left_for_others():
    rng = np.random.default_rng(0)
    places = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])
    cluster = np.repeat(np.arange(4), 100)
    X = places[cluster] + rng.normal(size=(400, 2))
    y = np.zeros(400, dtype=int)
    y[:300:10] = 1  # the last cluster has no label
    y[5] = -1
    model = ShallowRAD().fit(X, y)
    model.offset_ = -np.inf  # no row is flagged
    chosen = suggest_rows(model, X, 8, y=y)
    new = cluster[chosen.rows] == 3
    assert new.sum() >= 4
    assert UNLIKE in np.array(chosen.reasons)[new]


def test_the_same_seed_gives_the_same_rows_in_any_units(monkeypatch):
    monkeypatch.setattr(room, "_CANDIDATES", 150)
    X, y, _ = make_contaminated_rows()
    first, again, other = (
        suggest_rows(ShallowRAD().fit(X, y), X, 20, y=y, random_state=seed) for seed in (1, 1, 2)
    )
    assert_array_equal(first.rows, again.rows)
    assert set(first.rows) != set(other.rows)
    scaled = X * [1, 10, 100, 1000]
    moved = suggest_rows(ShallowRAD().fit(scaled, y), scaled, 20, y=y, random_state=1)
    assert_array_equal(moved.rows, first.rows)


def test_labels_matter():
    X, y, _ = make_contaminated_rows()
    chosen = suggest_rows(ShallowRAD().fit(X, y), X, 20).rows
    swapped = suggest_rows(ShallowRAD().fit(X, -y), X, 20).rows
    assert len(set(chosen) & set(swapped)) < 20


def test_all_rows_come_where_there_are_fewer(fitted):
    model, X, _, _ = fitted
    assert sorted(suggest_rows(model, X[:7], 20).rows) == list(range(7))
    assert suggest_rows(model, X[:1], 3).rows.tolist() == [0]
    assert len(suggest_rows(model, np.repeat(X[:1], 5, axis=0), 3)) == 3


def test_kinds_of_rows(fitted):
    model, X, y, _ = fitted
    rows = suggest_rows(model, X, 15, y=y).rows
    same = sparse.csr_matrix(X)
    assert_array_equal(suggest_rows(ShallowRAD().fit(same, y), same, 15, y=y).rows, rows)
    piped = make_pipeline(StandardScaler(), ShallowRAD()).fit(X, y)
    assert_array_equal(suggest_rows(piped, X, 15, y=y).rows, rows)


def test_mistakes_are_named(fitted):
    model, X, _, _ = fitted
    with pytest.raises(InputError, match="n must be a whole number"):
        suggest_rows(model, X, 0)
    with pytest.raises(InputError, match="Every row is labelled"):
        suggest_rows(model, X, y=np.ones(len(X)))
    with pytest.raises(InputError, match="StandardScaler gives no scores"):
        suggest_rows(StandardScaler().fit(X), X)


def test_the_work_does_not_grow_with_the_number_of_rows(monkeypatch):
    """Candidates are compared with each other, with labelled and chosen rows: never all rows."""
    pairs = []

    def counted(distances):
        def of(X, Y=None, **options):
            pairs.append(X.shape[0] * (X if Y is None else Y).shape[0])
            return distances(X, Y, **options)

        return of

    for name in ("euclidean_distances", "pairwise_distances_chunked"):
        monkeypatch.setattr(room, name, counted(getattr(room, name)))
    for n in (5_000, 20_000):
        X, y, _ = make_contaminated_rows(n, labelled=0.0)
        y[:20], y[20:30] = 1, -1
        pairs.clear()
        chosen = suggest_rows(ShallowRAD().fit(X, y), X, 50, y=y)
        assert {LIKELY, BORDERLINE} <= set(chosen.reasons)
        m = room._CANDIDATES
        assert 0 < sum(pairs) <= 2 * m**2 + 30 * m + 50 * m


# --- tables ------------------------------------------------------------------------------


@pytest.fixture
def model(card_model):
    return load(card_model)


def test_a_table_is_ready_to_be_labelled_and_fitted_again(model):
    cards = make_cards()
    table, report = suggest_table(model, cards, 15, label="label", id="card")
    assert table.columns == [*cards.columns, "anomaly_score", "reason"]
    assert table["label"].unique().to_list() == [""]
    assert [s.id for s in report.suggested] == table["card"].to_list()
    assert [int(s.id) + 1 for s in report.suggested] == [s.row for s in report.suggested]
    assert report.labelled == (cards["label"] != "").sum()
    assert report.warnings == []
    labelled = pl.concat([cards.filter(pl.col("label") != ""), table], how="diagonal")
    labels = {"label": "label", "normal": "ok", "anomaly": "fraud"}
    again = fit_table(labelled, **labels, id="card", model="shallow").report
    assert again.columns == {"amount": "number", "country": "category"}


def test_a_label_column_that_is_missing_is_added(model):
    new = make_cards(30, 1).drop("label")
    table, report = suggest_table(model, new, 40, label="label")
    assert table["label"].null_count() == table.height == 30
    assert "no column 'label' yet" in report.warnings[0]
    assert report.warnings[1].endswith("only 30 have no label: all are listed")
    unnamed = suggest_table(model, new, 5)[0]
    assert unnamed.columns == ["row", *new.columns, "anomaly_score", "reason"]
    assert unnamed["card"].to_list() == [f"{row - 1:05}" for row in unnamed["row"]]


def test_tables_that_cannot_be_used(model):
    cards = make_cards()
    with pytest.raises(InputError, match="no rows"):
        suggest_table(model, cards.head(0))
    with pytest.raises(InputError, match="already has a column 'reason'"):
        suggest_table(model, cards.rename({"card": "reason"}))
    with pytest.raises(InputError, match="missing: 'amount'"):
        suggest_table(model, cards.drop("amount"))
    with pytest.raises(InputError, match="Every row is labelled"):
        suggest_table(model, cards.filter(pl.col("label") != ""), label="label")


# --- command line ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch, card_model):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    make_cards().write_csv("cards.csv")
    make_cards(40, 1).drop("label").write_csv("new.csv")
    shutil.copy(card_model, tmp_path)
    return tmp_path


def test_the_command_prints_and_writes(folder):
    said = run("suggest", "model.riskad", "cards.csv", "-n", 12, "-o", "next.csv").stdout
    parts = ("cards.csv: 300 rows, 84 labelled", "likely anomaly", "borderline")
    for words in (*parts, "next.csv (these rows"):
        assert words in said
    assert max(map(len, said.splitlines())) <= 80
    written = pl.read_csv("next.csv", infer_schema=False)
    assert written.height == 12
    assert written["label"].unique().to_list() == [""]  # the label column of the fit was looked at
    assert written["card"].str.len_chars().unique().to_list() == [5]


def test_rows_that_a_journal_labels_are_not_suggested_again(folder):
    asked = ("suggest", "model.riskad", "new.csv", "-n", 10)
    first = result_of(*asked)["suggested"]
    cards = read_table("new.csv")
    journal = Journal("labels.jsonl", "new.csv", cards.columns, cards.height)
    hashes = hash_rows(cards, cards.columns)
    words = {row["row"]: word for row, word in zip(first, ["normal", "anomaly"] * 5, strict=True)}
    for row, word in words.items():
        journal.add(Answer(row, hashes[row - 1], word, "suggested", "ada"))
    report = result_of(*asked, "--journal", "labels.jsonl", "-o", "next.csv")
    assert (report["labelled"], report["label"]) == (10, "label")
    assert not words.keys() & {row["row"] for row in report["suggested"]}
    assert pl.read_csv("next.csv", infer_schema=False)["label"].null_count() == 10
    # A table with labels in words of its own, which the journal need not know.
    both = run("suggest", "model.riskad", "cards.csv", "-n", 5, "--journal", "labels.jsonl")
    assert "84 labelled" in both.stdout


def test_the_command_names_mistakes(folder):
    pl.read_csv("new.csv").drop("amount").write_csv("short.csv")
    for arguments, words, code in (
        (["new.csv", "--id", "crad"], "Did you mean 'card'", 1),
        (["new.csv", "-o", "cards.csv"], "--force", 1),
        (["new.csv", "-n", "0"], "Invalid value for '-n'", 2),
        (["short.csv"], "missing: 'amount'", 1),
        (["nowhere.csv"], "no file", 1),
    ):
        assert words in run("suggest", "model.riskad", *arguments, code=code).stderr
