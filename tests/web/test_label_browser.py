"""The labelling page in a real browser: keys, undo, tabs, people, hostile data, a killed server."""

import random
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from support.browser import REQUIRED, playwright
from support.labelling import Client, answer_until_killed, make_payments, start_server
from support.page import HOSTILE, make_hostile

if not REQUIRED:
    pytest.importorskip("starlette", reason="needs riskad[app]")

from riskad.app.journal import Journal
from riskad.web.label.server import Binding, Server
from riskad.web.label.session import Options, Session

expect = playwright.expect
expect.set_options(timeout=1000 * PATIENCE)


class Served:
    """A page that is being served, and what browsers said of it."""

    def __init__(self, browser, table, journal, **options):
        self.session = Session(table, journal, Options(who="ada", **options), "cards.csv")
        self.server = Server(self.session, Binding())
        self.browser, self.heard, self.contexts = browser, [], []
        self.expected = None  # a status that the console may speak of
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def page(self, width=1280, who=None, context=None, **options):
        if context is None:
            size = {"width": width, "height": 900}
            context = self.browser.new_context(viewport=size, **options)
            self.contexts.append(context)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.on("console", lambda said: self.heard.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self.heard.append(str(error)))
        page.on("dialog", lambda dialog: self.heard.append(dialog.message))
        page.goto(self.server.invite())
        expect(page.locator("#row-cells table").first).to_be_visible()
        if who is not None:
            page.fill("#who", who)
            page.locator("#who").blur()
        return page

    def close(self):
        for context in self.contexts:
            context.close()
        self.server.stop()
        self._thread.join()
        assert [line for line in self.heard if not (self.expected and self.expected in line)] == []


@pytest.fixture
def serve(browser, tmp_path, monkeypatch):
    monkeypatch.setattr(Session, "fit", lambda self: False)
    opened = []

    def start(table, id="card", **options):
        opened.append(Served(browser, table, tmp_path / f"{len(opened)}.jsonl", id=id, **options))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture
def served(serve):
    return serve(make_payments(60)[0])


def shown_row(page):
    return int(re.search(r"Row ([\d,]+)", page.inner_text("#row-title"))[1].replace(",", ""))


def press(page, key):
    """Press a key that labels, and wait until the answer is on the disk."""
    row = shown_row(page)
    page.keyboard.press(key)
    words = {"n": "saved as normal", "a": "saved as anomaly", "u": "saved as unsure"}
    expect(page.locator("#status")).to_have_text(f"Row {row} {words[key]}.")
    return row


def open_row(page, row):
    page.keyboard.press("/")
    page.fill("#query", str(row))
    page.locator("#matches button").filter(has_text=re.compile(f"^{row}$")).click()


# --- series ---------------------------------------------------------------------------------------


def test_a_key_or_the_pointer_marks_a_stretch_and_undo_takes_it_back(serve):
    t = np.datetime64("2024-01-01", "us") + (np.arange(300) * 15).astype("m8[m]")
    table = pl.DataFrame({"t": t, "x": np.random.default_rng(0).normal(size=300)})
    served = serve(table, id=None, cut={"time": "t", "window": "2h", "step": "30m"})
    page = served.page()
    expect(page.locator("#row-series path.moves")).to_have_count(1)
    row = shown_row(page)
    page.keyboard.press("w")
    expect(page.locator("#row-series")).to_contain_text("A stretch is marked")
    page.keyboard.press("a")
    expect(page.locator("#status")).to_contain_text(f"Row {row} and ")
    labels = served.session.labels()
    rows = sorted(labels)
    assert set(labels.values()) == {"anomaly"}
    assert row in rows
    assert rows == list(range(rows[0], rows[-1] + 1))
    assert 4 <= len(rows) <= 9  # two hours around it, as far as there are points
    assert shown_row(page) not in rows
    page.keyboard.press("z")
    expect(page.locator("#status")).to_contain_text("answer taken back")
    assert served.session.labels() == {}

    expect(page.locator("#row-title")).to_contain_text(f"Row {row} ")
    series = page.locator("#row-series svg").first
    expect(series).to_be_visible()
    box = series.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20)
    page.mouse.up()
    expect(page.locator("#status")).to_contain_text("Your answer is about")
    page.keyboard.press("n")
    expect(page.locator("#status")).to_contain_text("saved as normal")
    assert list(served.session.labels().values()).count("normal") > 3


# --- one person -----------------------------------------------------------------------------------


def test_a_whole_session_with_keys(served):
    page = served.page()
    first = press(page, "n")
    second = press(page, "a")
    third = press(page, "u")
    assert len({first, second, third, shown_row(page)}) == 4
    assert served.session.labels() == {first: "normal", second: "anomaly"}
    expect(page.locator("#counts")).to_contain_text("1 normal, 1 anomaly, 58 unlabelled (1 unsure)")

    page.keyboard.press("z")  # takes back the last
    expect(page.locator("#status")).to_have_text(f"Row {third}: answer taken back.")
    assert shown_row(page) == third
    page.keyboard.press("z")
    expect(page.locator("#status")).to_have_text(f"Row {second}: answer taken back.")
    assert served.session.labels() == {first: "normal"}

    page.keyboard.press("ArrowLeft")  # moves without judging
    assert shown_row(page) == first
    expect(page.locator("#normal")).to_have_attribute("aria-pressed", "true")
    before = len(served.session.journal.log)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert shown_row(page) == third
    assert len(served.session.journal.log) == before

    page.keyboard.press("m")  # keys are letters in a note
    page.keyboard.type("looks a bit unusual, now what?")
    page.keyboard.press("Enter")
    assert shown_row(page) == third
    press(page, "a")
    assert served.session.journal.log[-1].note == "looks a bit unusual, now what?"
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#note")).to_have_value("looks a bit unusual, now what?")
    page.reload()  # begins with the first that has no answer
    expect(page.locator("#row-title")).to_contain_text(f"Row {second}:")


def test_the_page_says_what_labels_allow_and_takes_changed_answers_and_held_keys(served):
    page = served.page()
    told = page.locator("#model-body")
    expect(told).to_contain_text("No label was learned from")
    expect(told).to_contain_text("Still missing: a normal row and an anomaly.")
    row = press(page, "n")
    expect(told).to_contain_text("Still missing: an anomaly.")
    page.keyboard.press("ArrowLeft")
    press(page, "a")
    assert served.session.labels() == {row: "anomaly"}
    page.keyboard.down("n")
    for _ in range(5):
        page.keyboard.down("n")  # repeats, as a key that is held
    page.keyboard.up("n")
    expect(page.locator("#counts")).to_contain_text("1 normal, 1 anomaly")
    expect(told).not_to_contain_text("Still missing")
    assert len(served.session.journal.log) == 3


def test_mouse_and_touch_on_a_phone_in_the_dark(served):
    page = served.page(390, color_scheme="dark", has_touch=True, is_mobile=True)
    for label in ("normal", "anomaly", "unsure", "skip"):
        row = shown_row(page)
        page.tap(f"#{label}")
        expect(page.locator("#status")).to_have_text(f"Row {row} saved as {label}.")
    page.tap("#undo")
    expect(page.locator("#status")).to_have_text(f"Row {row}: answer taken back.")
    assert [a.label for a in served.session.journal.log] == [
        *("normal", "anomaly", "unsure", "skip", "")
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.tap("#open-help")
    expect(page.locator("#help kbd").first).to_be_visible()  # a narrow window may have a keyboard
    page.keyboard.press("Escape")
    for name in ("normal", "anomaly", "unsure", "skip", "undo", "previous", "following"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["height"] >= 40  # a finger
        assert box["width"] >= 40


UNDER_THE_BAR = """(() => {
  const focus = document.activeElement, bar = document.querySelector("footer");
  const inside = focus === document.body || focus.closest("footer");
  return !inside && focus.getBoundingClientRect().bottom > bar.getBoundingClientRect().top;
})()"""


def test_a_row_is_found_and_help_and_names_for_screen_readers_are_there(served):
    page = served.page()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("n")  # labels nothing
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("c41")
    page.locator("#matches button").filter(has_text=re.compile("^42$")).click()
    expect(page.locator("#row-title")).to_have_text("Row 42: C41")
    press(page, "n")
    assert [(a.row, a.source) for a in served.session.journal.log] == [(42, "chosen")]
    names = {
        button.get_attribute("aria-label") or button.inner_text()
        for button in page.locator(".keys button").all()
    }
    assert {"Previous row, without judging", "Next row, without judging"} <= names
    assert all(names)
    assert page.get_attribute("#status", "aria-live") == "polite"
    assert page.get_attribute("#row-title", "aria-live") == "polite"
    assert page.get_attribute("#trouble", "role") == "alert"
    heads = page.locator("#row-cells table").first.locator("th[scope]")
    assert heads.count() >= 5 + 3
    assert page.locator("svg.place").first.get_attribute("aria-label").startswith("value ")
    tabs = []
    for _ in range(30):
        page.keyboard.press("Tab")
        tabs.append(page.evaluate("document.activeElement.id"))
        assert not page.evaluate(UNDER_THE_BAR), tabs
    assert {"open-list", "note", "normal", "anomaly", "undo"} - {"undo"} <= set(tabs)


# --- wrong labels and harmless rows ---------------------------------------------------------------


@pytest.mark.slow
def test_labels_that_look_wrong_are_judged_again_by_key(served):
    session = served.session
    for row in (7, 9, 11):
        session.answer(row, "normal", "suggested", "ada", "")
    session.ranking.doubtful = {
        row: {"row": row, "label": "normal", "percent": "90%", "why": "probably wrong (90%)"}
        for row in (9, 7)
    }
    page = served.page()
    expect(page.locator("#again")).to_contain_text("Look again: 2")
    expect(page.locator("#doubtful-body")).to_contain_text("Row 9: 90%")
    page.keyboard.press("l")
    expect(page.locator("#row-title")).to_contain_text("Row 9:")
    expect(page.locator("#row-kind")).to_have_text("labelled normal, probably wrong (90%)")
    expect(page.locator("#normal")).to_have_attribute("aria-pressed", "true")
    press(page, "a")
    expect(page.locator("#row-title")).to_contain_text("Row 7:")  # the next one
    press(page, "n")
    expect(page.locator("#again")).to_be_hidden()
    assert session.labels() == {7: "normal", 9: "anomaly", 11: "normal"}


@pytest.mark.slow
def test_a_rule_is_seen_before_it_is_saved(served):
    page = served.page()
    served.expected = "422"
    row = shown_row(page)
    page.keyboard.press("h")
    expect(page.locator("#rule")).to_be_visible()
    expect(page.locator("#rule-effect")).to_contain_text("of 60 match")
    expect(page.locator("#rule-save")).to_be_enabled()
    page.keyboard.press("n")  # labels nothing, in the dialog
    page.fill("#rule-where", "amont < 1")
    expect(page.locator("#rule-save")).to_be_disabled()
    expect(page.locator("#rule-trouble")).to_contain_text("Did you mean 'amount'")
    page.fill("#rule-where", "amount > 0 AND card = card")  # the name of the rows is no column
    expect(page.locator("#rule-trouble")).to_contain_text("There is no column 'card'")
    page.fill("#rule-where", "country = 'FR' AND amount > 25")
    expect(page.locator("#rule-effect")).to_contain_text("Besides this row")
    assert not served.session.harmless.path.exists()
    page.fill("#rule-reason", "Our own card <b>readers</b>")
    page.locator("#rule-reason").press("Enter")
    expect(page.locator("#status")).to_contain_text(f"Rule “as row {row}” saved in 0.harmless.toml")
    assert served.session.harmless.rules.rules[0].reason == "Our own card <b>readers</b>"
    assert len(served.session.journal.log) == 0
    press(page, "n")
    expect(page.locator("#row-title")).to_contain_text("Row ")
    assert not served.session.harmless.of(shown_row(page))


@pytest.mark.parametrize("width", [390, 1280])
def test_the_dialog_of_a_rule_fits_and_has_names(served, width):
    page = served.page(width)
    page.click("#harmless")
    expect(page.locator("#rule-save")).to_be_enabled()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    box = page.locator("#rule").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    for name in ("where", "name", "reason", "until"):
        assert page.locator(f"label[for=rule-{name}]").inner_text()
    page.keyboard.press("Escape")
    expect(page.locator("#rule")).to_be_hidden()


# --- tabs and people ------------------------------------------------------------------------------


def test_reasons_are_seen_on_a_phone(served):
    reason = {"column": "amount", "value": "912.5", "usual": "37.7", "adds": 1.5}
    told = {"score": 2.0, "adds": [reason]}
    served.session.ranking.reasons.update(dict.fromkeys(range(1, 61), told))
    page = served.page(width=390)
    adds = page.locator("#row-cells td.adds").first
    expect(adds).to_have_text("1.5")
    expect(adds).to_be_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390


@pytest.mark.slow
def test_two_tabs_share_the_rows_and_do_not_overwrite_each_other(served):
    first = served.page()
    served.expected = "422"
    second = served.page(context=served.contexts[0])
    assert shown_row(first) != shown_row(second)
    row = press(first, "n")
    for page in (first, second):
        open_row(page, row)
        expect(page.locator("#row-title")).to_contain_text(f"Row {row}:")
    press(first, "a")  # the second tab still thinks that it is normal
    second.keyboard.press("u")
    expect(second.locator("#trouble")).to_contain_text("In another tab you gave “anomaly”")
    assert shown_row(second) == row
    assert served.session.labels() == {row: "anomaly"}
    press(second, "n")  # knowing it, the person may change it
    assert served.session.labels() == {row: "normal"}


def test_another_person_in_the_same_tab_answers_for_herself(served):
    page = served.page()
    row = press(page, "n")
    page.fill("#who", "bob")
    page.locator("#who").blur()
    page.keyboard.press("ArrowLeft")
    assert shown_row(page) == row
    expect(page.locator("#normal")).to_have_attribute("aria-pressed", "false")
    press(page, "a")  # and no conflict with what ada said
    assert served.session.journal.disputes() == [row]
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#row-answers")).to_contain_text("ada said normal")
    expect(page.locator("#row-answers")).to_contain_text("bob said anomaly")
    page.keyboard.press("ArrowRight")
    other = served.page()
    expect(other.locator("#disputes")).to_contain_text("People disagree about 1 row")
    other.locator("#disputes button").click()
    expect(other.locator("#row-answers")).to_contain_text("bob said anomaly")


# --- hostile data and hostile pages ---------------------------------------------------------------


@pytest.mark.slow
def test_hostile_names_and_values_stay_text(serve):
    served = serve(make_hostile(60).drop("label"))
    page = served.page()
    for _ in range(4):
        press(page, "n")
        press(page, "a")
    page.fill("#note", HOSTILE[1])
    page.locator("#note").blur()
    press(page, "n")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    expect(page.locator("#matches button").first).to_be_visible()
    page.keyboard.press("Escape")
    assert page.locator("img, iframe, script:not([src]), h1 h1").count() == 0
    assert page.locator("script").count() == 1
    assert HOSTILE[1] in page.locator("#row-cells").text_content()
    assert HOSTILE[0] in page.locator("#row-cells").text_content()
    assert page.title() == "Label cards.csv"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


ATTACK = """<!doctype html><script>
const told = [];
const post = (mode) => fetch("%s/api/answer", {
  method: "POST", mode, credentials: "include", headers: {"Content-Type": "text/plain"},
  body: JSON.stringify({row: 1, label: "anomaly", source: "chosen", who: "evil", before: ""}),
}).then(() => told.push("sent"), () => told.push("refused"));
Promise.all([post("no-cors"), post("cors")]).then(() => { document.title = told.join(); });
</script><iframe src="%s/"></iframe>"""


@pytest.mark.slow
def test_another_site_can_neither_write_nor_frame_the_page(served):
    page = served.page()
    root = served.server.root

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write((ATTACK % (root, root)).encode())

        def log_message(self, *args):
            pass

    evil = HTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=evil.serve_forever, daemon=True).start()
    try:
        other = page.context.new_page()  # with the cookie in its jar
        other.goto(f"http://localhost:{evil.server_port}/")
        expect(other).to_have_title(re.compile("refused"))
        assert other.frames[1].locator("#row-title").count() == 0
    finally:
        evil.shutdown()
        evil.server_close()
    assert served.session.journal.log == []


# --- a server that is killed ----------------------------------------------------------------------


@pytest.mark.slow
def test_no_acknowledged_answer_is_lost_when_the_server_is_killed(browser, tmp_path):
    table, journal = tmp_path / "cards.csv", tmp_path / "labels.jsonl"
    make_payments(200)[0].write_csv(table)
    chance, said, port = random.Random(0), {}, 0
    page = browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    for attempt in range(3):
        process, address = start_server(table, journal, port)
        port = re.search(r":(\d+)/", address)[1]
        if attempt < 2:  # the address works once: the page invites the other client
            page.goto(address)
            expect(page.locator("#row-cells table").first).to_be_visible()
            found = sum(label == "anomaly" for label in said.values())
            expect(page.locator("#counts")).to_contain_text(f"{found} anomal")
            said[press(page, "a")] = "anomaly"
            page.click("#invite")
            expect(page.locator("#address")).to_have_value(re.compile("token="))
            address = page.input_value("#address")
        client = Client(address)
        last = answer_until_killed(process, client, said, chance)
        if attempt == 0:
            lost = shown_row(page)
            page.keyboard.press("n")
            expect(page.locator("#trouble")).to_contain_text(f"Row {lost} was not saved")
            expect(page.locator("#normal")).to_have_attribute("aria-pressed", "false")
        kept = {answer.row: answer.label for answer in Journal(journal).log}
        # The answer that was under way when the server died may have been kept, or not.
        assert {row: kept[row] for row in said if row != last[0]} == {
            row: label for row, label in said.items() if row != last[0]
        }
        assert kept.get(last[0]) in (said.get(last[0]), last[1])
        said = kept
    page.close()
    assert len(said) > 5
