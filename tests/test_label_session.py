"""Which row comes next, what a person sees of it, and what a fit in the background changes."""

import io
import os
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from support.labelling import Client, make_payments

import riskad
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.detectors.outlier_mean import OutlierMean
from riskad.tables.csv_reading import CsvFormat
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.web.label.fitting import History, Ranking, Worker
from riskad.web.label.session import Conflict, Options, Session
from riskad.web.label.upcoming import RANDOM, Upcoming
from riskad.web.label.work import Found, Task, _Asked, _listen

OPTIONS = Options(id="card", who="ada", budget=1.0)


def open_session(tmp_path, table, options=OPTIONS, name="labels.jsonl"):
    return Session(table, tmp_path / name, options, "cards.csv")


@pytest.fixture
def no_fits(monkeypatch):
    monkeypatch.setattr(Session, "fit", lambda self: False)


@pytest.fixture
def session(tmp_path, no_fits):
    return open_session(tmp_path, make_payments()[0])


def say(session, row, label, before="", who="ada", source="suggested"):
    return session.answer(row, label, source, who, before)


# --- the first rows -------------------------------------------------------------------------------


def test_without_labels_the_first_rows_are_unlike_the_others(session):
    _, fraud = make_payments()
    first = session.next("tab", "ada", 12)
    assert first[0]["kind"] == "likely anomaly"
    assert {card["source"] for card in first[:2]} == {"suggested"}
    assert len({card["row"] for card in first}) == 12
    worst = session.ranking.worst(20)
    assert fraud[np.array(worst) - 1].mean() > 3 * fraud.mean()
    assert session.state("ada")["model"]["how"] == "outliers"


def test_every_tenth_row_is_drawn_at_random_and_says_so(session):
    rows = session.next("tab", "ada", 20)
    assert [i for i, card in enumerate(rows) if card["source"] == "random"] == [9, 19]
    assert rows[9]["kind"] == RANDOM


def test_two_tabs_get_different_rows(session):
    first, second = (session.next(tab, "ada", 10) for tab in ("one", "two"))
    assert not {card["row"] for card in first} & {card["row"] for card in second}


def test_rows_of_a_tab_that_left_come_again(session):
    rows = [card["row"] for card in session.next("one", "ada", 6)]
    say(session, rows[0], "normal")
    session.leave("one")
    again = [card["row"] for card in session.next("two", "ada", 6) if card["source"] == "suggested"]
    assert again[:3] == rows[1:4]


def test_rows_come_until_all_are_judged(tmp_path, no_fits):
    session = open_session(tmp_path, make_payments(40)[0])
    seen = []
    while cards := session.next("tab", "ada", 7):
        for card in cards:
            say(session, card["row"], "normal", source=card["source"])
            seen.append(card["row"])
    assert sorted(seen) == list(range(1, 41))
    assert session.counts()["unlabelled"] == 0


def test_labels_of_the_table_count_and_their_rows_do_not_come(tmp_path, no_fits):
    table, fraud = make_payments(60)
    words = ["fraud" if bad else "ok" for bad in fraud[:50]] + [""] * 10
    table = table.with_columns(pl.Series("status", words))
    options = Options(LabelColumn("status", ["ok"], ["fraud"]), id="card", who="ada")
    session = open_session(tmp_path, table, options)
    assert session.counts()["anomaly"] == fraud[:50].sum()
    assert sorted(card["row"] for card in session.next("tab", "ada", 20)) == list(range(51, 61))
    assert "status" not in {cell["column"] for cell in session.card(1, "ada")["cells"]}
    row = int(np.flatnonzero(~fraud)[0]) + 1
    say(session, row, "anomaly", source="chosen")
    assert session.labels()[row] == "anomaly"


def test_a_label_column_that_is_blank_or_not_there_is_no_mistake(tmp_path, no_fits):
    table, _ = make_payments(30)
    blank = table.with_columns(pl.lit(None, dtype=pl.String).alias("label"))
    for n, each in enumerate((table, blank)):
        session = open_session(tmp_path, each, Options(LabelColumn("label")), f"{n}.jsonl")
        assert session.counts()["unlabelled"] == 30
    with pytest.raises(InputError, match="no column 'statsu'"):
        open_session(tmp_path, blank, Options(LabelColumn("statsu", ["ok"])))
    with pytest.raises(InputError, match=r"no column 'crad'\. Did you mean 'card'"):
        open_session(tmp_path, table, Options(id="crad"))


def test_a_model_of_other_columns_is_refused_at_once(tmp_path, no_fits):
    table, _ = make_payments(60)
    unlabelled = FrameTable(table, None)
    model = riskad.fit_table(unlabelled, FitSpec(label="label"), id="card", model="outliers").model
    riskad.save(model, tmp_path / "m.riskad")
    options = Options(id="card", model=str(tmp_path / "m.riskad"))
    assert open_session(tmp_path, table, options).counts()["unlabelled"] == 60
    with pytest.raises(
        InputError, match=r"'m\.riskad' reads a column 'age', which the table lacks"
    ):
        open_session(tmp_path, table.drop("age"), options, "other.jsonl")


def test_one_column_is_enough(tmp_path, no_fits):
    session = open_session(
        tmp_path, pl.DataFrame({"x": np.random.default_rng(0).normal(size=30)}), Options()
    )
    assert session.next("tab", "ada", 1)[0]["cells"][0]["column"] == "x"


# --- answers --------------------------------------------------------------------------------------


def test_a_second_tab_does_not_overwrite_the_first(session):
    say(session, 5, "normal")
    with pytest.raises(Conflict, match="normal"):
        say(session, 5, "anomaly")  # it knew of no answer
    assert session.labels() == {5: "normal"}
    say(session, 5, "anomaly", before="normal")
    assert session.labels() == {5: "anomaly"}


def test_two_people_who_differ_are_shown(session):
    say(session, 5, "normal", who="ada")
    say(session, 5, "anomaly", who="bob")
    assert session.state("ada")["disputes"] == [5]
    card = session.card(5, "ada")
    assert card["disputed"]
    assert card["mine"] == "normal"
    assert [said["who"] for said in card["said"]] == ["ada", "bob"]
    assert card["label"] == ""


def test_starting_again_goes_on(tmp_path, session):
    rows = [card["row"] for card in session.next("tab", "ada", 5)]
    for row in rows:
        say(session, row, "normal")
    again = open_session(tmp_path, make_payments()[0])
    assert again.labels() == dict.fromkeys(rows, "normal")
    assert not set(rows) & {card["row"] for card in again.next("tab", "ada", 20)}
    assert again.said == []


def test_a_changed_table_is_said(tmp_path, session):
    say(session, 5, "normal")
    again = open_session(tmp_path, make_payments()[0].reverse())
    assert again.labels() == {296: "normal"}
    assert "1 has moved" in again.said[0]


# --- what is seen of a row ------------------------------------------------------------------------


def test_a_card_says_where_its_values_lie(session):
    table, _ = make_payments()
    drawn = {column["name"]: column for column in session.cards.drawn()}
    assert set(drawn) == {"amount", "age", "country"}
    assert sum(drawn["amount"]["counts"]) == 300
    assert drawn["country"]["levels"] == ["FR", "XX"]
    most = int(table["amount"].arg_max()) + 1
    cells = {cell["column"]: cell for cell in session.card(most, "ada")["cells"]}
    assert cells["amount"]["at"] == 1.0
    assert cells["amount"]["rarity"] < 0.02
    assert "at" not in cells["card"]


def test_the_nearest_labelled_rows_are_nearest(session):
    table, fraud = make_payments()
    bad, good = np.flatnonzero(fraud) + 1, np.flatnonzero(~fraud) + 1
    for row in [*bad[:6], *good[:6]]:
        say(session, int(row), "anomaly" if fraud[row - 1] else "normal")
    card = session.card(int(bad[7]), "ada")
    near = card["near"]
    assert {kind: len(rows) for kind, rows in near.items()} == {"normal": 3, "anomaly": 3}
    labels = session.labels()
    numbers = table.select("amount", "age").to_numpy()
    for kind, rows in near.items():
        assert {labels[row["row"]] for row in rows} == {kind}
    gaps = np.abs(numbers[[row["row"] - 1 for row in near["anomaly"]]] - numbers[bad[7] - 1])
    others = np.abs(numbers[bad[:6] - 1] - numbers[bad[7] - 1])
    assert gaps[:, 0].mean() <= others[:, 0].mean() + 5


def test_rows_are_found_by_what_they_hold_and_by_number(session):
    found = session.listed("c17", "score", 0, "ada")["rows"]
    assert {row["id"] for row in found} >= {"C17", "C170", "C179"}
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert session.listed("17", "row", 0, "ada")["rows"][0]["row"] == 17
    assert session.listed("nothing like it", "score", 0, "ada") == {"rows": [], "more": False}
    by_score = session.listed("", "score", 50, "ada")["rows"]
    assert [row["row"] for row in by_score] == session.ranking.worst(50, 50)
    say(session, 8, "skip")
    assert [row["row"] for row in session.listed("", "labelled", 0, "ada")["rows"]] == [8]
    assert session.listed("²", "score", 0, "ada")["rows"] == []  # a digit, and no number


def test_a_score_of_zero_is_not_the_lowest(session, monkeypatch):
    scores = {1: -1.0, 2: 0.0, 3: 1.0, 4: None}
    monkeypatch.setattr(session, "_holding", lambda query: list(scores))
    monkeypatch.setattr(
        type(session.ranking),
        "of",
        lambda _, row: {"score": scores[row], "probability": None, "flagged": None},
    )
    found = session.listed("x", "score", 0, "ada")["rows"]
    assert [row["row"] for row in found] == [3, 2, 1, 4]


def test_the_download_has_the_labels(session):
    say(session, 2, "anomaly")
    lines = session.export().decode().splitlines()
    assert lines[0] == "card,amount,age,country,label"
    assert [line.rsplit(",", 1)[1] for line in lines[1:4]] == ["", "anomaly", ""]


def test_the_download_is_written_as_the_table_was(tmp_path, no_fits):
    options = replace(OPTIONS, csv=CsvFormat(";", "cp1252"))
    table = make_payments(30)[0].with_columns(pl.lit("Köln").alias("country"))
    lines = open_session(tmp_path, table, options).export().decode("cp1252").splitlines()
    assert lines[0] == "card;amount;age;country;label"
    assert ";Köln;" in lines[1]


def test_the_download_runs_in_no_spreadsheet(tmp_path, no_fits):
    table = make_payments(30)[0].with_columns(pl.lit("=1+1").alias("country"))
    lines = open_session(tmp_path, table).export().decode().splitlines()
    assert "'=1+1" in lines[1]


def test_large_tables_are_sampled_and_any_row_can_be_opened(tmp_path, no_fits, monkeypatch):
    monkeypatch.setattr("riskad.web.label.session._START_ROWS", 100)
    session = open_session(tmp_path, make_payments(500)[0], Options(id="card", pool=100))
    assert session.state("ada")["pool"] == 100
    outside = next(row for row in range(1, 500) if row not in set(session.ranking.places.tolist()))
    card = session.card(outside, "ada")
    assert card["score"] is None
    assert card["cells"][0]["text"] == f"C{outside - 1}"


# --- fits -----------------------------------------------------------------------------------------


def wait_for(session, done):
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, (session.said, session.state("ada")["progress"])
        time.sleep(0.05)


def test_a_model_takes_over_and_explains(tmp_path):
    table, fraud = make_payments(200)
    words = ["fraud" if bad else "ok" for bad in fraud[:60]] + [None] * 140
    table = table.with_columns(pl.Series("status", words))
    labels = LabelColumn("status", ["ok"], ["fraud"])
    session = open_session(tmp_path, table, Options(labels, id="card", who="ada", budget=600))
    try:
        assert session.state("ada")["progress"]
        assert session.state("ada")["model"]["how"] == "outliers"
        assert session.next("tab", "ada", 1)  # nobody waits
        wait_for(session, lambda: session.ranking.found.how == "labels")
        told = session.state("ada")["model"]
        assert told["labelled"] == 60
        assert told["auc"][0] > 0.8
        assert told["members"]
        worst = np.array(session.ranking.worst(20))
        assert fraud[worst - 1].mean() > 0.5
        (card,) = session.next("tab", "ada", 1)
        assert card["kind"] in ("likely anomaly", "borderline", "unlike what was labelled")
        assert card["row"] > 60
        wait_for(session, lambda: session.card(card["row"], "ada")["reasons"])
        reasons = {r["column"] for r in session.card(card["row"], "ada")["reasons"]}
        assert {"amount", "age", "country"} <= reasons
        assert 0 <= session.card(card["row"], "ada")["probability"] <= 1
    finally:
        session.close()
    assert session.worker._process.poll() is not None


@pytest.mark.parametrize(
    "first", ["", "the folder", "lib"], ids=["console", "python -m", "relative"]
)
def test_a_fit_imports_nothing_from_the_working_folder(planted, monkeypatch, first):
    """A table that somebody sent may lie beside a `queue.py`."""
    first = os.getcwd() if "itself" in first else first  # as after `python -m riskad`
    monkeypatch.setattr(sys, "path", [first, *sys.path])
    table, _ = make_payments(80)
    model = riskad.fit_table(
        FrameTable(table, None), FitSpec(label="label"), model="outliers"
    ).model
    riskad.save(model, "m.riskad")
    done = threading.Event()
    task = Task("model", list(range(1, 81)), [0] * 80, model=os.path.abspath("m.riskad"))
    worker = Worker(task, table, lambda worker: worker.running or done.set())
    try:
        assert done.wait(PATIENCE)
        assert worker.ranking is not None, worker.failed
    finally:
        worker.close()
    assert planted() == ""


def test_labels_of_one_kind_leave_the_ranking_without_labels(tmp_path, monkeypatch):
    """A model needs both kinds; the first anomaly starts it."""
    tasks = []

    class Started:
        def __init__(self, task, frame, heard):
            self.task, self.running, self.ranking = task, False, ranking([1, 2])
            tasks.append(task.how)

        def close(self):
            pass

    monkeypatch.setattr("riskad.web.label.session.Worker", Started)
    session = open_session(tmp_path, make_payments()[0])
    session._heard(session.fitting)
    for row in range(1, 8):
        say(session, row, "normal")
    assert session.fit() is False  # it would find the same
    say(session, 8, "anomaly")
    session.close()
    session.fit()
    assert set(tasks) == {"outliers", "labels"}
    assert tasks[0] == "outliers"


class Broken:
    """A process that found nothing."""

    ranking, running, failed, closed = None, False, "There is no file 'none.riskad'.", False

    def close(self):
        self.closed = True


def test_a_fit_that_fails_leaves_the_last_one_in_place(session):
    session.fitting = broken = Broken()
    before = session.ranking
    session._heard(broken)
    assert session.said == ["A fit failed: There is no file 'none.riskad'."]
    assert session.ranking is before
    assert session.fitting is None
    assert broken.closed


def test_nobody_waits_while_a_fit_is_started(tmp_path, monkeypatch):
    """A process takes tens of milliseconds to start, on a busy machine seconds."""
    started, go_on = threading.Event(), threading.Event()

    def slow(task, frame, heard):
        started.set()
        assert go_on.wait(PATIENCE)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(Session, "fit", lambda self: False)
        session = open_session(tmp_path, make_payments()[0])
    monkeypatch.setattr("riskad.web.label.session.Worker", slow)
    for card in session.next("tab", "ada", 5):
        assert say(session, card["row"], "normal")["saved"] == card["row"]
    assert started.wait(PATIENCE)
    (card,) = session.next("tab", "ada", 1)
    assert say(session, card["row"], "anomaly")["counts"]["anomaly"] == 1
    go_on.set()
    session.close()
    assert session.said == ["A fit could not be started: No space left on device."]
    assert len(session.journal.log) == 6


def ranking(rows):
    found = Found("labels", [], [], 0.0, 0, [])
    return Ranking(found, np.array(rows), -np.arange(len(rows), dtype=float), None)


def test_rows_by_score_follow_the_suggested_ones():
    upcoming = Upcoming(1000)
    upcoming.take_over(ranking([7, 3, 9]))
    rows = list(upcoming.next("tab", 4, lambda row: False))
    assert [row for row, _, source in rows if source == "suggested"] == [7, 3, 9]
    assert rows[-1][2] == "random"


def test_random_rows_are_drawn_evenly():
    upcoming = Upcoming(10, seed=1)
    drawn = Counter()
    for _ in range(2000):
        ((row, _, _),) = upcoming.next("tab", 1, lambda row: False)
        upcoming.give_back("tab")
        drawn[row] += 1
    assert min(drawn.values()) > 140
    assert sorted(drawn) == list(range(1, 11))


@pytest.mark.parametrize(
    ("moved", "labels", "stop"), [(2, 35, True), (2, 20, False), (30, 35, False), (0, 30, True)]
)
def test_the_hint_says_when_one_could_stop(moved, labels, stop):
    history = History()
    assert history.hint() == ""
    history.add(20, range(100))
    assert history.hint() == ""
    history.add(20 + labels, range(moved, moved + 100))
    assert f"changed the top 100 by {moved} row" in history.hint()
    assert ("you could stop" in history.hint()) == stop


# --- the ranking without labels -------------------------------------------------------------------


def test_the_unsupervised_ranking_learns_from_no_label():
    table, fraud = make_payments()
    X = table.select("amount", "age").to_numpy()
    nothing = np.zeros(len(X), dtype=np.int16)
    some = np.where(fraud, -1, 1)
    scores = OutlierMean().fit(X, nothing).anomaly_score(X)
    assert np.array_equal(scores, OutlierMean().fit(X, some).anomaly_score(X))
    flagged = OutlierMean().fit(X, some).predict(X) == -1
    assert flagged.mean() == pytest.approx(0.05, abs=0.01)


def test_the_unsupervised_ranking_takes_gaps_texts_and_files(tmp_path):
    table, _ = make_payments()
    rows = table.drop("card").with_columns(pl.Series("age", [None, *table["age"][1:].to_list()]))
    y = np.zeros(300, dtype=np.int16)
    model = OutlierMean().fit(rows, y)
    riskad.save(model, tmp_path / "m.riskad")
    again = riskad.load(tmp_path / "m.riskad")
    assert np.array_equal(again.anomaly_score(rows), model.anomaly_score(rows))
    assert "no label was learned from" in model._describe_in_words()[0]


# --- from Python ----------------------------------------------------------------------------------


def test_a_notebook_shows_the_page_and_gets_the_labels(tmp_path, no_fits):
    pytest.importorskip("starlette", reason="needs riskad[app]")
    table, _ = make_payments(40)
    with riskad.label(table.to_pandas(), tmp_path / "labels.jsonl", id="card", who="ada") as page:
        shown = page._repr_html_()
        address = re.search(r'src="([^"]+)"', shown)[1]
        assert address.startswith("http://localhost:")
        client = Client(address)
        assert client.answer(3, "anomaly")[0] == 200
        assert client.answer(4, "normal", source="random")[0] == 200
        policy = client.request("GET", "/", headers={"Cookie": client.cookie})[1]
        assert "frame-ancestors http://localhost:*" in policy["content-security-policy"]
        assert "1 normal, 1 anomalies" in repr(page)
        applied = page.applied()
    assert page.labels().tolist() == [0, 0, -1, 1, *[0] * 36]
    assert applied.sources[2:4] == ["suggested", "random"]
    assert applied.frame["label"].to_list()[2:4] == ["anomaly", "normal"]
    with pytest.raises(InputError, match="table must be a frame, got str"):
        riskad.label("cards.csv")


def test_a_process_whose_server_is_gone_leaves_no_row_behind(tmp_path, monkeypatch):
    """Standard input closes when the server ends, in whatever way."""
    (tmp_path / "rows.ipc").write_text("rows of the table")
    ended, asked = [], _Asked()
    monkeypatch.setattr("sys.stdin", io.StringIO("17\n"))
    monkeypatch.setattr("os._exit", ended.append)
    _listen(asked, tmp_path)
    assert asked.get_nowait() == 17
    assert ended == [0]
    assert not tmp_path.exists()
