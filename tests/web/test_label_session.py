"""Which row comes next, what a person sees of it, and what a fit in the background changes."""

import io
import json
import os
import queue
import re
import sys
import threading
from datetime import date

import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from support import wait_for
from support.labelling import Client, make_payments

import riskad
from riskad.app.spec import FitSpec
from riskad.core.checks import InputError
from riskad.detectors.outlier_mean import OutlierMean
from riskad.tables.harmless import HarmlessRule
from riskad.tables.labelled import FrameTable, LabelColumn
from riskad.web.label.fit_process import FitResult, Task, _listen, _Worker
from riskad.web.label.fits import Ranking, Worker, hint_to_stop
from riskad.web.label.row_queue import RANDOM, RowQueue
from riskad.web.label.session import Options, Session

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


def test_every_tenth_row_is_drawn_at_random_and_two_tabs_get_different_rows(session):
    rows, others = (session.next(tab, "ada", 20) for tab in ("one", "two"))
    assert [i for i, card in enumerate(rows) if card["source"] == "random"] == [9, 19]
    assert rows[9]["kind"] == RANDOM
    assert not {card["row"] for card in rows} & {card["row"] for card in others}


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


# --- answers --------------------------------------------------------------------------------------


def name_doubtful(session, *rows):
    """As if a fit had found that these labels, all normal, look wrong."""
    session.ranking.doubtful = {
        row: {"row": row, "label": "normal", "percent": "90%", "why": "probably wrong (90%)"}
        for row in rows
    }


def test_labels_that_look_wrong_come_again_until_they_are_judged(session):
    for row in (3, 5, 8):
        say(session, row, "normal", source="random" if row == 5 else "suggested")
    name_doubtful(session, 5, 3, 8)
    assert [each["row"] for each in session.state("ada")["doubtful"]] == [5, 3, 8]
    card = session.card(5, "ada")
    assert card["kind"] == "labelled normal, probably wrong (90%)"
    assert card["source"] == "random"  # how it was chosen does not change
    say(session, 5, "anomaly", before="normal", source=card["source"])
    say(session, 3, "normal", before="normal")  # it was right
    assert [each["row"] for each in session.look_again()] == [8]
    name_doubtful(session, 3, 8)  # the next fit says the same
    assert [each["row"] for each in session.look_again()] == [8]
    say(session, 8, "unsure", before="normal")
    assert session.look_again() == []


def test_the_result_of_a_fit_names_the_rows_of_the_table_whose_labels_look_wrong():
    table, fraud = make_payments(400)
    wrong = np.flatnonzero(~fraud)[:12]
    codes = np.where(fraud, -1, 1)
    codes[wrong] = -1  # called anomalies
    codes[260:] = 0
    words = pl.Series("label", [{1: "normal", -1: "anomaly", 0: None}[code] for code in codes])
    labelled = table.drop("card").with_columns(words)
    fit = riskad.fit_table(
        labelled, model="shallow", label="label", normal="normal", anomaly="anomaly"
    )
    worker = object.__new__(_Worker)  # without its process
    numbers = [1000 - i for i in range(400)]  # of the rows, in the whole table
    worker.task, worker.codes = Task("labels", numbers, codes.tolist()), codes
    doubtful = worker._summary(fit.model, fit.report, [], None).doubtful
    assert [each["row"] for each in doubtful] == [
        1001 - each.row for each in fit.report.doubtful.rows
    ]
    assert {1000 - int(i) for i in wrong} <= {
        each["row"] for each in doubtful if each["label"] == "anomaly"
    }
    json.dumps(doubtful)


# --- the known harmless ---------------------------------------------------------------------------


def test_a_rule_is_proposed_shown_and_saved_beside_the_journal(tmp_path, session):
    row = session.next("tab", "ada", 1)[0]["row"]
    reason = {"column": "amount", "value": "1", "usual": "1", "adds": 1.0}
    session.ranking.reasons[row] = {"score": 1.0, "adds": [reason]}
    rule = session.propose_rule(row)
    assert rule["where"].startswith('"amount" BETWEEN')
    assert "AND" not in rule["where"].partition("AND")[2]  # other columns are no reason
    rule["where"] = "amount > 60"
    matching = (session.frame["amount"] > 60).to_numpy()
    hidden = (np.flatnonzero(matching) + 1).tolist()
    say(session, hidden[0], "anomaly")
    effect = session.rule_effect(rule["where"], "ada")
    scores, threshold = session.ranking.scores, session.ranking.result.threshold
    assert effect["matching"] == matching.sum()
    assert effect["flagged"] == (matching & (scores > threshold)).sum() > 0
    assert effect["labels"] == {"normal": 0, "anomaly": 1}
    assert {line["row"] for line in effect["lines"]} == set(hidden)
    until = date.fromisoformat(rule.pop("until"))
    session.add_rule(HarmlessRule(**rule, reason="we know them", by="ada", until=until))
    assert session.card(hidden[1], "ada")["harmless"] == rule["name"]
    assert session.rule_effect(rule["where"], "ada")["matching"] == 0  # what it hides besides

    read = riskad.tables.harmless.HarmlessRules.read(tmp_path / "labels.harmless.toml")
    assert (read.rules[0].where, read.rules[0].by) == ("amount > 60", "ada")
    again = open_session(tmp_path, make_payments()[0])
    assert again.card(hidden[1], "ada")["harmless"] == rule["name"]
    cards = again.next("tab", "ada", 120)
    suggested = {card["row"] for card in cards if card["source"] == "suggested"}
    assert not suggested & set(hidden)
    assert len(suggested) > 100


def test_a_file_of_rules_is_read_at_the_start(tmp_path, no_fits):
    path = tmp_path / "labels.harmless.toml"
    lines = ["[[rule]]", 'name = "old"', 'where = "amount < 1"', 'reason = "b"', 'by = "ada"']
    path.write_text("\n".join([*lines, "until = 2020-01-01"]))
    session = open_session(tmp_path, make_payments()[0])
    assert "the rule 'old' of labels.harmless.toml ended" in session.state("ada")["notes"][-1]
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="lacks 'until'"):
        open_session(tmp_path, make_payments()[0])


def test_a_second_tab_does_not_overwrite_the_first_and_people_who_differ_are_shown(session):
    say(session, 5, "normal")
    with pytest.raises(InputError, match="In another tab you gave “normal”"):
        say(session, 5, "anomaly")  # it knew of no answer
    assert session.labels() == {5: "normal"}
    say(session, 5, "anomaly", before="normal")
    assert session.labels() == {5: "anomaly"}
    say(session, 5, "normal", who="bob")
    assert session.state("ada")["disputes"] == [5]
    card = session.card(5, "ada")
    assert card["disputed"]
    assert (card["mine"], card["label"]) == ("anomaly", "")
    assert [said["who"] for said in card["answers"]] == ["ada", "bob"]


def test_starting_again_goes_on_and_a_changed_table_is_said(tmp_path, session):
    rows = [card["row"] for card in session.next("tab", "ada", 5)]
    for row in rows:
        say(session, row, "normal")
    again = open_session(tmp_path, make_payments()[0])
    assert again.labels() == dict.fromkeys(rows, "normal")
    assert not set(rows) & {card["row"] for card in again.next("tab", "ada", 20)}
    assert again.notes == []
    again = open_session(tmp_path, make_payments()[0].reverse())
    assert again.labels() == {301 - row: "normal" for row in rows}
    assert "5 have moved" in again.notes[0]


# --- what is seen of a row ------------------------------------------------------------------------


def test_a_card_says_where_its_values_lie(session):
    table, _ = make_payments()
    drawn = {name: picture.bars for name, picture in session.cards.pictures.items()}
    assert {bars["name"] for bars in drawn.values()} == set(drawn) == {"amount", "age", "country"}
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
    found = session.list_rows("c17", "score", 0, "ada")["rows"]
    assert {row["id"] for row in found} >= {"C17", "C170", "C179"}
    scores = [row["score"] for row in found]
    assert scores == sorted(scores, reverse=True)
    assert session.list_rows("17", "row", 0, "ada")["rows"][0]["row"] == 17
    assert session.list_rows("nothing like it", "score", 0, "ada") == {"rows": [], "more": False}
    by_score = session.list_rows("", "score", 50, "ada")["rows"]
    assert [row["row"] for row in by_score] == session.ranking.worst(100)[50:]
    say(session, 8, "skip")
    assert [row["row"] for row in session.list_rows("", "labelled", 0, "ada")["rows"]] == [8]
    assert session.list_rows("²", "score", 0, "ada")["rows"] == []  # a digit, and no number


def test_a_score_of_zero_is_not_the_lowest(session, monkeypatch):
    scores = {1: -1.0, 2: 0.0, 3: 1.0, 4: None}
    monkeypatch.setattr(session, "_search", lambda query: list(scores))
    monkeypatch.setattr(
        type(session.ranking),
        "of",
        lambda _, row: {"score": scores[row], "probability": None, "flagged": None},
    )
    found = session.list_rows("x", "score", 0, "ada")["rows"]
    assert [row["row"] for row in found] == [3, 2, 1, 4]


def test_the_download_has_the_labels_and_runs_in_no_spreadsheet(tmp_path, no_fits):
    table = make_payments(30)[0].with_columns(country=pl.lit("=1+1"))
    session = open_session(tmp_path, table)
    say(session, 2, "anomaly")
    lines = session.export().decode().splitlines()
    assert lines[0] == "card,amount,age,country,label"
    assert [line.rsplit(",", 1)[1] for line in lines[1:4]] == ["", "anomaly", ""]
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


def failed(session):
    return any("failed" in note for note in session.notes)


@pytest.mark.slow
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
        wait_for(lambda: failed(session) or session.ranking.result.how == "labels")
        assert not failed(session), session.notes
        told = session.state("ada")["model"]
        assert told["labelled"] == 60
        assert told["auc"][0] > 0.8
        assert told["members"]
        worst = np.array(session.ranking.worst(20))
        assert fraud[worst - 1].mean() > 0.5
        (card,) = session.next("tab", "ada", 1)
        assert card["kind"] in ("likely anomaly", "borderline", "unlike what was labelled")
        assert card["row"] > 60
        wait_for(lambda: failed(session) or session.card(card["row"], "ada")["reasons"])
        reasons = {r["column"] for r in session.card(card["row"], "ada")["reasons"]}
        assert {"amount", "age", "country"} <= reasons
        assert 0 <= session.card(card["row"], "ada")["probability"] <= 1
    finally:
        session.close()
    assert session.worker._process.poll() is not None


@pytest.mark.slow
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
        def __init__(self, task, frame, changed):
            self.task, self.running, self.ranking = task, False, ranking([1, 2])
            tasks.append(task.how)

        def close(self):
            pass

    monkeypatch.setattr("riskad.web.label.session.Worker", Started)
    session = open_session(tmp_path, make_payments()[0])
    session._use_result(session.next_worker)
    for row in range(1, 8):
        say(session, row, "normal")
    assert session.fit() is False  # it would find the same
    say(session, 8, "anomaly")
    session.close()
    session.fit()
    assert set(tasks) == {"outliers", "labels"}
    assert tasks[0] == "outliers"


# --- series ---------------------------------------------------------------------------------------

CUT = {"time": "t", "window": "4h", "step": "1h"}


def make_points(n=600):
    """A point every 15 minutes of two machines, one with two hours of noise; rows are shuffled."""
    rng = np.random.default_rng(0)
    t = np.datetime64("2024-01-01", "us") + np.tile(np.arange(n) * 15, 2).astype("m8[m]")
    x = 10 + np.sin(np.arange(2 * n) / 15) + rng.normal(0, 0.1, 2 * n)
    x[400:416] += rng.normal(0, 3, 16)
    table = pl.DataFrame({"t": t, "machine": ["a"] * n + ["b"] * n, "x": x, "odd": x > 12})
    return table.sample(fraction=1, shuffle=True, seed=0)


def test_the_series_around_a_row_is_shown_and_a_stretch_gets_one_answer(tmp_path, no_fits):
    table = make_points().drop("odd")
    session = open_session(tmp_path, table, Options(cut=CUT, group="machine", who="ada"))
    row = 17
    series = session.card(row, "ada")["series"]
    (line,) = series["lines"]
    shown = table[[each - 1 for each in series["rows"]]]
    assert shown["machine"].n_unique() == 1
    assert shown["t"].is_sorted()
    assert line == {"name": "x", "values": shown["x"].to_list()}
    assert series["moments"][series["rows"].index(row)] == 0
    assert max(series["moments"]) <= 3 * series["window"] == 3 * 4 * 3600
    others = [each for each in series["rows"][:5] if each != row]
    session.answer(row, "anomaly", "suggested", "ada", "", "", others)
    assert session.labels() == dict.fromkeys([row, *others], "anomaly")
    assert session.card(others[0], "ada")["series"]["labels"].count("anomaly") >= len(others)
    with pytest.raises(InputError, match="There is no row"):
        session.answer(row, "normal", "suggested", "ada", "anomaly", "", [9_999])
    assert session.labels()[row] == "anomaly"


def test_a_model_of_rows_does_not_score_windows(tmp_path, no_fits):
    table = make_points()
    model = riskad.fit_table(table, model="outliers").model
    riskad.save(model, tmp_path / "m.riskad")
    options = Options(cut=CUT, model=str(tmp_path / "m.riskad"))
    with pytest.raises(InputError, match="is one of rows, so leave out window and time"):
        open_session(tmp_path, table, options)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["outliers", "labels"])
def test_a_fit_to_windows_ranks_the_rows_that_they_hold(how):
    table = make_points()
    x = table.with_row_index("row").sort("machine", "t")
    noisy = x[400:416]["row"].to_numpy()
    codes = np.zeros(table.height, dtype=int)
    if how == "labels":
        codes[noisy[:12]], codes[x[900:1000]["row"].to_numpy()] = -1, 1
    rows = list(range(1, table.height + 1))
    task = Task(how, rows, codes.tolist(), group="machine", budget=1.0, n_rows=5, cut=CUT)
    changed = threading.Condition()

    def tell(worker):
        with changed:
            changed.notify_all()

    worker = Worker(task, table.drop("odd"), tell)
    try:
        with changed:
            ends = lambda: not worker.running and (worker.failed or worker.ranking.reasons)  # noqa: E731
            assert changed.wait_for(ends, PATIENCE)
        assert not worker.failed
        assert len(worker.ranking.scores) == table.height
        if how == "labels":
            assert set(np.array(worker.ranking.worst(8)) - 1) <= set(x[385:431]["row"])
        (row, reasons), *_ = worker.ranking.reasons.items()
        assert row in worker.ranking.result.rows
        assert any(each["column"].startswith("x: ") for each in reasons["adds"])
    finally:
        worker.close()


class Broken:
    """A process that found nothing."""

    ranking, running, failed, closed = None, False, "There is no file 'none.riskad'.", False

    def close(self):
        self.closed = True


def test_a_fit_that_fails_leaves_the_last_one_in_place(session):
    session.next_worker = broken = Broken()
    before = session.ranking
    session._use_result(broken)
    assert session.notes == ["A fit failed: There is no file 'none.riskad'."]
    assert session.ranking is before
    assert session.next_worker is None
    assert broken.closed


def test_nobody_waits_while_a_fit_is_started(tmp_path, monkeypatch):
    """A process takes tens of milliseconds to start, on a busy machine seconds."""
    started, go_on = threading.Event(), threading.Event()

    def slow(task, frame, changed):
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
    assert session.notes == ["A fit could not be started: No space left on device."]
    assert len(session.journal.log) == 6


def ranking(rows):
    result = FitResult("labels", [], [], 0.0, 0, [])
    return Ranking(result, np.array(rows), -np.arange(len(rows), dtype=float), None)


def test_rows_by_score_follow_the_suggested_ones():
    queue = RowQueue(1000)
    queue.refill(ranking([7, 3, 9]))
    rows = list(queue.next("tab", 4, lambda row: False))
    assert [row for row, _, source in rows if source == "suggested"] == [7, 3, 9]
    assert rows[-1][2] == "random"


@pytest.mark.parametrize(
    ("moved", "labels", "stop"), [(2, 35, True), (2, 20, False), (30, 35, False), (0, 30, True)]
)
def test_the_hint_says_when_one_could_stop(moved, labels, stop):
    fits = [(20, frozenset(range(100)))]
    assert hint_to_stop([]) == hint_to_stop(fits) == ""
    hint = hint_to_stop([*fits, (20 + labels, frozenset(range(moved, moved + 100)))])
    assert f"changed the top 100 by {moved} row" in hint
    assert ("you could stop" in hint) == stop


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
    ended, asked = [], queue.LifoQueue()
    monkeypatch.setattr("sys.stdin", io.StringIO("17\n"))
    monkeypatch.setattr("os._exit", ended.append)
    _listen(asked, tmp_path)
    assert asked.get_nowait() == 17
    assert ended == [0]
    assert not tmp_path.exists()
