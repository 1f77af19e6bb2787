"""Who may talk to the labelling page: each promise of its guard, broken on purpose."""

import asyncio
import json

import pytest
from support.asgi import request, scope_of
from support.commands import run
from support.labelling import make_payments
from support.loops import each

pytest.importorskip("starlette", reason="needs riskad[app]")

from riskad.core.checks import InputError
from riskad.web.connections import Binding
from riskad.web.guard import BrowserSessions, Guard
from riskad.web.label.server import LARGEST_BODY, Server
from riskad.web.label.session import Options, Session

HOST = "127.0.0.1:4711"
ORIGIN = f"http://{HOST}"


class Browser:
    """Sends requests straight into the guarded pages, and keeps the cookie."""

    def __init__(self, app, access):
        self.app, self.access = app, access
        self.cookie = self.csrf = ""

    def send(self, method, path, headers=None, body=b""):
        sent = {"host": HOST, "cookie": self.cookie} | (headers or {})
        self.scope = scope_of(method, path, sent)
        return asyncio.run(request(self.app, self.scope, [body]))

    def enter(self):
        status, headers, _ = self.send("GET", f"/?token={self.access.invite()}")
        assert status == 200
        self.cookie = headers["set-cookie"].partition(";")[0]
        self.csrf = json.loads(self.send("GET", "/api/start")[2])["csrf"]
        return headers["set-cookie"]

    def post(self, path, body, **changed):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {
            "origin": ORIGIN,
            "x-riskad-csrf": self.csrf,
            "content-type": "application/json",
            "content-length": str(len(text)),
        } | {name.replace("_", "-"): value for name, value in changed.items()}
        return self.send("POST", path, headers, text)


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    table, _ = make_payments(60)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "fit", lambda self: False)
        journal = tmp_path_factory.mktemp("journal") / "labels.jsonl"
        yield Session(table, journal, Options(id="card", who="ada"), "cards.csv")


@pytest.fixture(scope="module")
def pages(session):
    server = Server(session, Binding())
    yield server.app
    server._socket.close()


def guarded(pages, access):
    hosts = Binding(port=4711).hosts(4711)
    return Browser(Guard(pages, access, hosts, LARGEST_BODY), access)


@pytest.fixture
def access():
    return BrowserSessions("http", cookie="riskad_4711")


@pytest.fixture
def browser(pages, access):
    return guarded(pages, access)


RULE = {"name": "a", "where": "amount < 1", "reason": "b", "by": "ada", "until": "2999-01-01"}
ANSWER = {"row": 1, "label": "normal", "source": "suggested", "who": "ada", "before": ""}


# --- the token and the cookie ---------------------------------------------------------------------


def test_a_token_works_once_and_becomes_a_strict_cookie(browser, access):
    token = access.invite()
    status, headers, body = browser.send("GET", f"/?token={token}")
    assert status == 200
    cookie = headers["set-cookie"]
    assert cookie.startswith("riskad_4711=")
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; ")[1:])
    assert token not in body.decode() + cookie
    assert browser.send("GET", f"/?token={token}")[0] == 403


def test_another_address_in_the_same_browser_leaves_its_tabs_alone(browser, access):
    browser.enter()
    token = access.invite()
    status, headers, _ = browser.send("GET", f"/?token={token}")
    assert status == 200
    assert headers["set-cookie"].partition(";")[0] == browser.cookie
    assert browser.post("/api/fit", {})[0] == 200
    assert Browser(browser.app, access).send("GET", f"/?token={token}")[0] == 403  # it is spent


def test_over_tls_the_cookie_is_secure(pages):
    browser = guarded(pages, BrowserSessions("https"))
    assert "; Secure" in browser.enter()


@each("path", ["/", "/static/label.js", "/api/start", "/api/next?tab=1", "/api/export", "/nothing"])
def test_nothing_is_served_without_a_cookie(browser, path):
    for cookie in ("", "riskad_4711=", "riskad_4711=guess", "other=1", "\x7f;;=\xff", None):
        browser.cookie = cookie
        status, headers, body = browser.send("GET", path)
        assert status == 403
        assert b"the address that" in body
        assert headers["content-type"].startswith("text/plain")


@each("token", ["", "x", "%00", "\xff" * 100, "a" * 10_000])
def test_a_token_that_is_none_opens_nothing(browser, access, token):
    access.invite()
    assert browser.send("GET", f"/?token={token}")[0] == 403


def test_connections_of_browsers_that_entered_are_told_from_others(browser):
    browser.send("GET", "/api/state")
    assert not browser.scope.get("riskad_trusted")
    browser.enter()
    browser.send("GET", "/api/state")
    assert browser.scope["riskad_trusted"]


def test_the_terminal_hears_a_new_address_when_the_last_is_spent(pages):
    heard = []
    browser = guarded(pages, BrowserSessions("http", announce=heard.append))
    for _ in range(3):
        assert browser.send("GET", "/")[0] == 403
    assert len(heard) == 1  # it is unused
    assert browser.send("GET", f"/?token={heard[0]}")[0] == 200


# --- names ----------------------------------------------------------------------------------------


@each(
    ("host", "status"),
    [
        *((host, 200) for host in ("localhost:4711", "127.0.0.1:4711", "[::1]:4711")),
        *((host, 421) for host in ("evil.example:4711", "127.0.0.1", "127.0.0.1:80", "", None)),
        ("localhost.evil.example:4711", 421),
    ],
)
def test_only_the_names_of_this_machine_are_answered_to(browser, host, status):
    browser.enter()
    assert browser.send("GET", "/api/start", {"host": host})[0] == status


def test_two_hosts_are_none(browser):
    browser.enter()

    async def twice(scope, receive, send):
        scope["headers"] = [*scope["headers"], (b"host", b"evil.example")]
        await guard(scope, receive, send)

    guard, browser.app = browser.app, twice
    assert browser.send("GET", "/api/start")[0] == 421


# --- writing --------------------------------------------------------------------------------------


def test_the_page_may_write(browser, session):
    browser.enter()
    status, _, body = browser.post("/api/answer", ANSWER)
    assert status == 200
    assert json.loads(body)["saved"] == 1
    assert session.journal.labels() == {1: "normal"}
    assert browser.post("/api/answer", ANSWER | {"label": "", "before": "normal"})[0] == 200


HERE, NAME = "https://127.0.0.1:4711", "http://localhost:4711"
FORGED = ("http://evil.example", "null", "", None, HERE, NAME)
LARGE = str(LARGEST_BODY + 1)


@each(
    ("status", "changed"),
    [
        *((403, {"origin": origin}) for origin in FORGED),
        *((403, {"x_riskad_csrf": csrf}) for csrf in ("", "guess", "\xff", None)),
        *((415, {"content_type": kind}) for kind in ("text/plain", "text/html", "", None)),
        (415, {"content_type": "application/x-www-form-urlencoded"}),
        (415, {"content_encoding": "gzip"}),
        *((411, {"content_length": length}) for length in (None, "-5", "1e3", "²")),
        (411, {"content_length": None, "transfer_encoding": "chunked"}),
        *((413, {"content_length": length}) for length in (LARGE, "9" * 5_000)),
        (400, {"transfer_encoding": "chunked"}),
    ],
)
def test_a_write_with_a_wrong_header_is_refused(browser, session, status, changed):
    browser.enter()
    before = len(session.journal.log)
    for path in ("/api/answer", "/api/fit", "/api/invite", "/api/rule"):
        assert browser.post(path, RULE if "rule" in path else ANSWER, **changed)[0] == status
    assert len(session.journal.log) == before
    assert not session.harmless.path.exists()


def test_what_comes_from_another_session_or_site_is_refused(browser, access):
    browser.enter()
    other = Browser(browser.app, access)
    other.enter()
    assert browser.post("/api/answer", ANSWER, x_riskad_csrf=other.csrf)[0] == 403
    for path in ("/api/start", "/api/export", "/static/label.js"):
        assert browser.send("GET", path, {"sec-fetch-site": "cross-site"})[0] == 403


@each("method", ["OPTIONS", "PUT", "DELETE", "TRACE", "HEAD"])
def test_no_permission_is_given_to_other_sites(browser, method):
    browser.enter()
    status, headers, _ = browser.send(method, "/api/answer", {"origin": "http://evil.example"})
    assert status == 405
    assert not [name for name in headers if name.startswith("access-control-")]


def test_reading_does_not_write(browser, session):
    browser.enter()
    before = len(session.journal.log)
    assert browser.send("GET", "/api/answer?row=1&label=normal")[0] == 405
    assert browser.send("GET", "/api/rule?name=a&where=amount")[0] == 405
    status, _, body = browser.send("GET", "/api/rule/effect?where=amount%20%3C%201")
    assert (status, json.loads(body)["rows"]) == (200, 60)
    assert len(session.journal.log) == before
    assert not session.harmless.path.exists()


# --- sizes and shapes -----------------------------------------------------------------------------


NO_ANSWERS = [
    *(b"", b"{", b"[]", b"5", b"[" * 5_000, b"\xff", {}),
    *({"row": row} for row in ("1", True, 10**30, 0, -1, 61, 1.5)),
    *({"label": label} for label in ("fraud", None, ["normal"])),
    *({"who": who} for who in ("", "x" * 61, "\ud800")),
    *({"source": "guessed"}, {"note": "x" * 2_001}, {"before": 5}),
]
NO_RULES = [
    *({"where": where} for where in ("", 5, "amount <", "SUM(amount) > 1", "x" * 3_000)),
    {"where": "amount > 0 OR age > 0"},  # every row
    *({"name": name} for name in ("", "a\nb", "x" * 81)),
    *({"until": until} for until in ("", "2020-01-01", "x", 5)),
    *({"by": ""}, {"reason": None}, {"more": 1}),
]


@each(
    ("path", "right", "body"),
    [
        *(("/api/answer", ANSWER, body) for body in NO_ANSWERS),
        *(("/api/rule", RULE, body) for body in NO_RULES),
    ],
)
def test_what_is_no_answer_or_rule_is_refused_in_a_sentence(browser, session, path, right, body):
    browser.enter()
    before = len(session.journal.log)
    status, _, told = browser.post(path, right | body if isinstance(body, dict) and body else body)
    assert status == (400 if isinstance(body, bytes) or body.get("who") == "\ud800" else 422)
    assert json.loads(told)["error"]
    assert len(session.journal.log) == before
    assert not session.harmless.path.exists()


@each("row", ["0", "61", "x", "-1", "9" * 5_000, "%F0%9F%A6%8A"])
def test_a_row_that_is_not_there_is_refused_in_a_sentence(browser, row):
    browser.enter()
    status, _, told = browser.send("GET", f"/api/row/{row}")
    assert status == 422
    assert "The table has rows" in json.loads(told)["error"].replace("the", "The")


@each("name", ["../server.py", "..%2fserver.py", "server.py", "", "page.htm"])
def test_no_other_file_is_served(browser, name):
    browser.enter()
    assert browser.send("GET", f"/static/{name}")[0] == 404


def test_every_answer_forbids_scripts_from_elsewhere_and_frames(browser, access):
    refused = browser.send("GET", "/")
    welcome = browser.send("GET", f"/?token={access.invite()}")
    browser.enter()
    for _, headers, _ in (refused, welcome, browser.send("GET", "/"), browser.send("GET", "/x")):
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_page_has_no_script_or_style_of_its_own(browser):
    browser.enter()
    page = browser.send("GET", "/")[2].decode()
    assert "<style" not in page
    assert " style=" not in page
    assert " onclick" not in page
    assert page.count("<script") == page.count('<script type="module" src="/static/') == 1
    assert "//" not in page.replace("<!doctype html>", "")  # nothing comes from elsewhere


# --- other machines -------------------------------------------------------------------------------


@each("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_other_machines_need_tls_or_a_word(tmp_path, host):
    with pytest.raises(InputError, match="insecure=True if nobody else is on the network"):
        Binding(host).check()
    Binding(host, insecure=True).check()
    Binding(host, certificate=tmp_path, key=tmp_path).check()
    with pytest.raises(InputError, match="two files"):
        Binding(host, certificate=tmp_path).check()
    for here in ("127.0.0.1", "localhost", "::1", "127.8.0.1"):
        Binding(here).check()


def test_the_command_line_refuses_other_machines(tmp_path):
    make_payments(20)[0].write_csv(tmp_path / "cards.csv")
    said = run("label", tmp_path / "cards.csv", "--host", "0.0.0.0", code=1).output
    assert "--insecure" in said
    assert "--tls-cert" in said
    assert not (tmp_path / "cards.csv.labels.jsonl").exists()


def test_a_port_that_is_taken_is_said():
    with Binding().bound() as taken:
        taken.listen()
        with pytest.raises(InputError, match="Give another port"):
            Binding(port=taken.getsockname()[1]).bound()
