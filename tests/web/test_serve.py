"""`riskad serve`: the same answers as the library, whatever comes in between."""

import asyncio
import json
import os
import random
import re
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import jsonschema
import numpy as np
import polars as pl
import pytest
from conftest import PATIENCE
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal
from support.asgi import request, scope_of
from support.cards import RULE
from support.loops import each
from support.serving import BAD_CELLS, LABELS, make_bodies, make_model, make_rows

import riskad
from riskad.app.journal import Journal, apply_labels
from riskad.app.model_files import read_header
from riskad.app.score import score_table
from riskad.core.checks import InputError
from riskad.tables import json_lines
from riskad.tables.harmless import HarmlessRule, HarmlessRules
from riskad.tables.json_lines import frame_of_objects
from riskad.tables.reading import read_table
from riskad.web.guard import BearerToken, Guard, Refusal, _no_key_twice, parse_object
from riskad.web.serve import scoring
from riskad.web.serve.scoring import check_nesting
from riskad.web.serve.server import Limits, Service

HOST, TOKEN = "127.0.0.1:8000", "correct-horse-battery"
ROW = {"amount": 900.0, "hour": 3.5, "country": "XX", "attempts": 6}
LABEL = {"row": ROW, "label": "normal", "who": "ada"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models of one kind that give other scores, and one of another kind."""
    folder = tmp_path_factory.mktemp("models")
    made = {"first": (0, "shallow"), "second": (7, "shallow"), "forest": (0, "forest")}
    for name, (seed, kind) in made.items():
        make_model(folder / f"{name}.riskad", seed, kind, n=200)
    return folder


class Caller:
    """Sends requests straight into the guarded service."""

    def __init__(self, service, largest=10**6):
        self.service = service
        token, hosts = BearerToken(TOKEN), frozenset({HOST})
        self.app = Guard(service.app, token, hosts, largest, service.answered)

    def __call__(self, method, path, body=b"", headers=None):
        return asyncio.run(self.send(method, path, body, headers))

    def post(self, path, said):
        status, _, body = self("POST", path, json.dumps(said).encode())
        return status, json.loads(body)

    def get(self, path):
        status, _, body = self("GET", path)
        assert status == 200, body
        return body.decode() if path == "/metrics" else json.loads(body)

    async def send(self, method, path, body=b"", headers=None):
        sent = {
            "host": HOST,
            "authorization": f"Bearer {TOKEN}",
            "content-type": "application/json",
            "content-length": str(len(body)),
        } | (headers or {})
        halves = [body[: len(body) // 2], body[len(body) // 2 :]]
        return await request(self.app, scope_of(method, path, sent), halves)


@pytest.fixture
def served(models, tmp_path):
    """A service over a copy of the first model, whose file is looked at only when told."""
    made = []

    def serve(name="first", journal=None, **limits):
        path = tmp_path / "served.riskad"
        shutil.copy(models / f"{name}.riskad", path)
        service = Service(str(path), journal, Limits(**limits))
        service.file.close()
        made.append(service)
        return Caller(service)

    yield serve
    for service in made:
        service.close()


# --- the same answers as the library -------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), [("first", 60), ("first", 2500), ("forest", 60)])
def test_rows_get_what_riskad_score_gives_them(served, models, tmp_path, name, n):
    rows = make_bodies(n)
    rows[3] |= {"amount": "1,234.50", "hour": None, "country": 7}
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    model = riskad.load(models / f"{name}.riskad")
    scored, _ = score_table(model, read_table(tmp_path / "rows.jsonl"))
    ask = Caller(served(name).service, 10**7)
    status, said = ask.post("/score", {"rows": rows})
    assert status == 200
    names = [each for each in scored.columns if each not in rows[0]]
    assert list(said["rows"][0]) == names
    assert_frame_equal(pl.DataFrame(said["rows"]), scored.select(names), check_exact=n == 60)
    assert said["model_version"] == read_header(models / f"{name}.riskad").checksum[:12]


def test_a_row_alone_is_scored_as_among_others(served):
    ask = served()
    rows = [*make_bodies(5), ROW, ROW | {"country": 5, "amount": "12"}]
    _, together = ask.post("/score", {"rows": rows})
    alone = [ask.post("/score", row)[1] for row in rows]
    for one, other in zip(alone, together["rows"], strict=True):
        assert one["anomaly_score"] == pytest.approx(other["anomaly_score"], rel=1e-12)
        assert one["is_anomaly"] == other["is_anomaly"]


def test_a_row_passes_few_functions(served):
    ask, home, passed = served(), os.path.dirname(riskad.__file__) + os.sep, set()

    def profile(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(home):
            passed.add((frame.f_code.co_filename[len(home) :], frame.f_code.co_qualname))

    assert ask.post("/score", ROW)[0] == 200
    ask.service.scoring.shutdown()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        ask.service.scoring = ThreadPoolExecutor(1)  # whose thread is followed, too
        assert ask.post("/score", ROW)[0] == 200
    finally:
        threading.setprofile(None)
        sys.setprofile(None)
    assert len(passed) <= 60, sorted(passed)
    assert len({file for file, _ in passed}) <= 15, sorted(passed)


def test_json_objects_are_read_as_lines_of_a_file(tmp_path):
    rng = random.Random(0)
    pool = [cell for cell in BAD_CELLS if cell != "\ud800"]
    compared = 0
    for _ in range(150):
        few = rng.sample(pool, 3)
        names = ("a", "", "a.c")
        rows = [
            {name: rng.choice(few) for name in names if rng.random() < 0.9}
            for _ in range(rng.randint(1, 4))
        ]
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
        try:
            read = read_table(tmp_path / "rows.jsonl")
        except InputError:  # nothing in it, or two columns of one name
            continue
        here = frame_of_objects(rows, read.columns)
        assert here.schema == read.schema, rows
        assert here.equals(read), rows
        compared += 1
    assert compared > 100


def test_reasons_and_p_values_come_when_asked_for_and_what_is_not_as_in_training_is_said(served):
    ask = served()
    _, plain = ask.post("/score", ROW)
    assert not {"reasons", "p_value"} & set(plain)
    _, said = ask.post("/score?reasons=2&p_values=1", {"rows": [ROW, make_bodies(1)[0]]})
    flagged, other = said["rows"]
    assert flagged["is_anomaly"]
    assert len(flagged["reasons"]) == 2
    assert flagged["reasons"][0]["adds"] >= flagged["reasons"][1]["adds"] > 0
    assert flagged["reasons"][0]["column"] in flagged["reasons"][0]["text"]
    assert other["is_anomaly"] or other["reasons"] == []
    assert 0 < flagged["p_value"] <= 1
    _, said = ask.post("/score", ROW | {"country": "QQ", "hour": None})
    (note,) = said["notes"]
    assert "'QQ'" in note
    assert "hour: 1 blank" in note


# --- mistakes ------------------------------------------------------------------------------


@each(
    ("said", "status", "words"),
    [
        ({k: v for k, v in ROW.items() if k != "hour"}, 422, "lacks the column 'hour'"),
        (ROW | {"hour": "noon"}, 422, "Column 'hour' holds numbers, but 'noon' in row 1"),
        (ROW | {"hour": [1]}, 422, "'hour'"),
        (ROW | {"hour": 1e200}, 422, "too large to compute with"),
        (ROW | {"hour": 10**400}, 422, "is not a number"),
        (ROW | {"hour": {"of": 1}}, 422, "The cell 'hour' is an object"),
        ({"rows": [ROW, ROW | {"country": {"of": 1}}]}, 422, "The cell 'country' is an object"),
        ({"rows": [ROW, {"amount": 1}]}, 422, "Row 2 lacks the column 'hour'"),
        ({"Amount": 1, "hour": 1, "country": "", "attempts": 1}, 422, "mean it by 'Amount'"),
        ({"rows": []}, 422, "at least one row"),
        ({"rows": [ROW, 7]}, 422, "Row 2 is not an object"),
        ({"rows": {"amount": 1}}, 422, "lacks the column 'amount'"),
        ({"rows": [ROW], "model": 1}, 422, "\"rows\" must stand alone, and 'model' is beside it"),
        (ROW | {"x": [[[[[[[[[[1]]]]]]]]]]}, 422, "'x' is nested more than 8"),
        ({"rows": [ROW] * 160}, 413, "at most 150"),
        ([ROW], 400, "must be a JSON object"),
        (ROW | {"country": "\ud800"}, 400, "half a letter"),
        (b"", 400, "The body is empty"),
        (b'{"amount": 1, "amount": 2}', 400, "names 'amount' twice"),
        (b'{"amount": NaN}', 400, "NaN is not a JSON number"),
        (b"\xff\xfe{}", 400, "byte 0"),
        (b'{"a":' * 100_000, 400, "nested too deeply"),
        (b'{"amount": ' + b"9" * 5000 + b"}", 400, "not JSON"),
        ("?reasons=99", 422, "reasons must be a whole number from 0 to 20"),
        ("?reasons=-1", 422, "reasons must be"),
        ("?resons=3", 422, "no setting 'resons' of /score; it takes reasons, p_values"),
        ("?p_values=yes", 422, "from 0 to 1"),
        ("?reasons=1", 422, "at most 100 rows"),
    ],
)
def test_a_mistake_is_named_in_a_sentence(served, said, status, words):
    query, said = (said, {"rows": [ROW] * 101}) if isinstance(said, str) else ("", said)
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    found, _, answer = served(rows=150)("POST", f"/score{query}", body)
    assert found == status
    assert words in json.loads(answer)["error"]
    assert "\n" not in json.loads(answer)["error"]


def test_a_key_that_comes_twice_is_found_without_comparing_all_with_all():
    compared = 0

    class Key(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    pairs = [(Key(f"k{i}"), 1) for i in [*range(2000), 1999]]
    with pytest.raises(Refusal, match="names 'k1999' twice"):
        _no_key_twice(pairs)
    assert compared < 10 * len(pairs)


@pytest.mark.slow
@each(
    "cells",
    [
        [{"amount": {f"k{i}": 1}} for i in range(1200)],
        [{"amount": {f"k{i}": 1 for i in range(20_000)}}],
        [{"amount": [[]] * 1_000_001}],
    ],
)
def test_cells_that_would_take_minutes_are_refused(cells):
    with pytest.raises(InputError, match="would take too long to read"):
        check_nesting([ROW | each for each in cells], ())
    nested = {"tags": ["a", "b"], "shop": {"city": "Gent"}}
    check_nesting([ROW | nested for _ in range(10_000)], ["shop.city"])


def test_of_keys_that_the_model_does_not_read_no_columns_are_made(served, monkeypatch):
    parsed = []
    parse = json_lines._parse
    monkeypatch.setattr(json_lines, "_parse", lambda *said: parsed.append(said[0]) or parse(*said))
    rows = [ROW | {f"more {i}": i, "country": i if i % 2 else "XX"} for i in range(40)]
    assert served().post("/score", {"rows": rows})[0] == 200
    assert parsed
    assert b"more" not in b"".join(parsed)


def test_a_name_is_guessed_from_some_thousand_only(served, monkeypatch):
    asked = []
    monkeypatch.setattr(scoring, "get_close_matches", lambda *said, n: asked.append(said[1]) or [])
    assert served().post("/score", {f"amoun{i}": i for i in range(5000)})[0] == 422
    assert len(asked[0]) == 1000


# --- a new model ---------------------------------------------------------------------------


def test_a_changed_file_takes_over_and_each_answer_names_its_model(served, models):
    ask = served()
    file = ask.service.file
    _, before = ask.post("/score", ROW)
    old = file.current
    head = {"model_version": old.version}
    late = old.scorer.answer(json.dumps(ROW).encode(), head, most_rows=1)  # it has come already
    shutil.copy(models / "second.riskad", file.path)
    file.look()
    _, after = ask.post("/score", ROW)
    assert after["model_version"] == read_header(models / "second.riskad").checksum[:12]
    assert after["anomaly_score"] != before["anomaly_score"]
    assert json.loads(next(late)[0]) == before
    assert 'riskad_reloads_total{result="taken"} 1' in ask.get("/metrics")


@pytest.mark.parametrize("how", ["cut", "gone", "other", "matrix"])
def test_a_broken_file_leaves_the_old_model_and_is_told(served, models, how, tmp_path):
    ask = served()
    file = ask.service.file
    _, before = ask.post("/score", ROW)
    if how == "gone":
        file.path.unlink()
    elif how == "cut":
        file.path.write_bytes((models / "second.riskad").read_bytes()[:3000])
    elif how == "other":
        file.path.write_text("amount,hour\n1,2\n")
    else:  # a model that does not know how to read a table
        detector = riskad.load(models / "second.riskad")[-1]
        riskad.save(detector, file.path, force=True)
    file.look()
    assert ask.post("/score", ROW)[1] == before
    assert "served.riskad" in ask.get("/health")["reload_error"] or how == "matrix"
    assert ask.get("/health")["reload_error"]
    assert "riskad_reload_failed 1" in ask.get("/metrics")
    shutil.copy(models / "second.riskad", file.path)
    file.look()
    assert ask.get("/health")["reload_error"] == ""
    assert ask.post("/score", ROW)[1]["model_version"] != before["model_version"]


# --- waiting -------------------------------------------------------------------------------


def test_a_small_request_does_not_wait_for_all_parts_of_a_large_one(served, monkeypatch):
    monkeypatch.setattr(scoring, "_PART", 10)
    ask, order = Caller(served().service, 10**7), []
    detector, small = type(ask.service.file.current.scorer.detector), {}
    scored = detector._anomaly_score_and_novelty

    def score(detector, rows):
        order.append(len(rows))
        if len(order) == 2:  # the second part of the large request: now the small one comes
            loop.call_soon_threadsafe(came.set)
            assert submitted.wait(PATIENCE)
        return scored(detector, rows)

    async def crowd():
        nonlocal loop, came
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        large = {"rows": [ROW] * 1000}
        asking = asyncio.create_task(ask.send("POST", "/score", json.dumps(large).encode()))
        await came.wait()
        small["task"] = asyncio.create_task(ask.send("POST", "/score", json.dumps(ROW).encode()))
        while ask.service.waiting < 2:
            await asyncio.sleep(0.01)
        submitted.set()
        return [each[0] for each in await asyncio.gather(asking, small["task"])]

    loop = came = None
    submitted = threading.Event()
    monkeypatch.setattr(detector, "_anomaly_score_and_novelty", score)
    assert asyncio.run(crowd()) == [200, 200]
    assert len(order) == 101
    assert order.index(1) in (2, 3)


def test_too_many_requests_are_told_to_come_again(served):
    ask = served(waiting=3)
    held, go = threading.Event(), threading.Event()

    def hold():
        held.set()
        go.wait(PATIENCE)

    async def crowd():
        body = json.dumps(ROW).encode()
        holding = asyncio.wrap_future(ask.service.scoring.submit(hold))
        await asyncio.to_thread(held.wait, PATIENCE)
        waiting = [asyncio.create_task(ask.send("POST", "/score", body)) for _ in range(3)]
        while ask.service.waiting < 3:
            await asyncio.sleep(0.01)
        refused = await ask.send("POST", "/score", body)
        busy = await ask.send("GET", "/health")
        go.set()
        await holding
        return refused, busy, await asyncio.gather(*waiting)

    (status, headers, body), busy, answered = asyncio.run(crowd())
    assert status == 503
    assert headers["retry-after"] == "1"
    assert "busy" in json.loads(body)["error"]
    assert busy[0] == 503
    assert json.loads(busy[2])["ready"] is False
    assert [each[0] for each in answered] == [200] * 3


def test_the_memory_of_bodies_is_bounded_before_they_are_read(served):
    ask = served(all_bodies=50_000)
    status, headers, _ = ask("POST", "/score", b"{}", {"content-length": "60000"})
    assert status == 503
    assert headers["retry-after"] == "1"
    assert ask.post("/score", ROW)[0] == 200  # and is given back


def status_of(ask, path, length, receive):
    """The answer to a body that the guard let through by its length alone."""
    told = []

    async def send(message):
        told.append(message)

    scope = {"type": "http", "path": path, "method": "POST", "headers": [], "query_string": b""}
    asyncio.run(ask.service.app(scope | {"riskad_length": length}, receive, send))
    assert ask.service._bytes == 0  # its memory is given back
    return told[0]["status"]


@pytest.mark.parametrize("path", ["/score", "/feedback"])
def test_no_more_of_a_body_is_read_or_waited_for_than_it_said(served, tmp_path, path):
    ask = served(journal=str(tmp_path / "labels.jsonl"), body_seconds=0.05)
    read = 0

    async def endless():
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b" " * 1000, "more_body": True}

    async def never():
        await asyncio.Event().wait()

    assert status_of(ask, path, 5, never) == 408
    ask.service.limits = Limits()  # as much time as there is
    assert status_of(ask, path, 2500, endless) == 413
    assert read == 3


# --- what is told --------------------------------------------------------------------------

LINE = re.compile(r'riskad_\w+(\{\w+="[^"\n]*"(,\w+="[^"\n]*")*\})? -?[\d.e+-]+')


def metric(text, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


def test_metrics_count_what_happened(served):
    ask = served()
    said = ask.post("/score", {"rows": make_bodies(80)})[1]
    ask.post("/score", {"nothing": 1})
    ask("GET", "/no/such/address")
    text = ask.get("/metrics")
    assert all(LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    flagged = sum(row["is_anomaly"] for row in said["rows"])
    assert metric(text, "riskad_rows_total") == 80
    assert metric(text, "riskad_flagged_total") == flagged
    assert metric(text, "riskad_flagged_share") == pytest.approx(flagged / 80)
    assert metric(text, 'riskad_requests_total{path="/score",status="200"}') == 1
    assert metric(text, 'riskad_requests_total{path="/score",status="422"}') == 1
    assert metric(text, 'riskad_requests_total{path="other",status="404"}') == 1
    median = np.median([row["anomaly_score"] for row in said["rows"]])
    assert metric(text, 'riskad_score{quantile="0.5"}') == pytest.approx(median)
    buckets = [
        float(n) for n in re.findall(r'seconds_bucket\{le="\S+",path="/score"\} (\d+)', text)
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == metric(text, 'riskad_request_seconds_count{path="/score"}') == 2


def test_rows_that_a_rule_calls_harmless_are_counted_and_named(models, tmp_path):
    text = RULE.format("from XX", "country = 'XX'", "2999-01-01")
    (tmp_path / "rules.toml").write_text(text + RULE.format("old", "amount > 0", "2020-01-01"))
    rules = HarmlessRules.read(tmp_path / "rules.toml")
    services = [
        Service(str(models / "first.riskad"), None, Limits(), None, chosen)
        for chosen in (None, rules)
    ]
    body = {"rows": make_bodies(80)}
    plain, ruled = (Caller(service).post("/score", body)[1]["rows"] for service in services)
    text = Caller(services[1]).get("/metrics")
    for service in services:
        service.close()
    hidden = 0
    for row, before, after in zip(body["rows"], plain, ruled, strict=True):
        harmless = row["country"] == "XX" and before["is_anomaly"]
        hidden += harmless
        assert after["is_anomaly"] == (before["is_anomaly"] and not harmless)
        assert after["suppressed_by"] == ("from XX" if harmless else None)
        assert after["anomaly_score"] == before["anomaly_score"]
    assert hidden
    assert metric(text, 'riskad_suppressed_total{rule="from XX"}') == hidden
    assert metric(text, 'riskad_suppressed_total{rule="old"}') == 0
    assert metric(text, 'riskad_suppressed_likely{rule="from XX"}') <= hidden
    assert metric(text, 'riskad_rule_expired{rule="old"}') == 1
    assert metric(text, 'riskad_rule_expired{rule="from XX"}') == 0


def test_segments_need_their_column_and_rules_may_read_it(tmp_path):
    """A column of segments that the model does not learn from is part of a row all the same."""
    table = make_rows(n=200).with_columns(shop=pl.Series(["a", "b"] * 100))
    fit = riskad.fit_table(table, LABELS, model="shallow", drop=("shop",), threshold_by="shop")
    riskad.save(fit.model, tmp_path / "m.riskad", report=fit.report)
    rule = HarmlessRule("shop b", "shop = 'b'", "we know", "Ann", date(2999, 1, 1))
    service = Service(str(tmp_path / "m.riskad"), None, Limits(), None, HarmlessRules((rule,)))
    post = Caller(service).post
    threshold = {each.name: each.threshold for each in fit.report.segments}
    for body in make_bodies(40):
        status, answer = post("/score", body | {"shop": "a"})
        assert status == 200
        assert answer["is_anomaly"] == (answer["anomaly_score"] > threshold["a"])
        assert not post("/score", body | {"shop": "b"})[1]["is_anomaly"]
    new, blank = (post("/score", ROW | {"shop": shop})[1] for shop in ("z", None))
    assert "'z'" in new.pop("notes")[0]
    assert new == blank
    status, answer = post("/score", ROW)
    service.close()
    assert (status, "lacks the column 'shop'" in answer["error"]) == (422, True)


def test_drift_of_the_last_rows_is_seen(served):
    ask = served()
    assert "riskad_drift " not in ask.get("/metrics")  # no rows yet
    ask.post("/score", {"rows": make_bodies(150)})
    quiet = ask.get("/metrics")
    assert metric(quiet, "riskad_drift_moved") == 0
    ask = served()
    ask.post("/score", {"rows": [row | {"amount": 9 * row["amount"]} for row in make_bodies(150)]})
    moved = ask.get("/metrics")
    assert metric(moved, "riskad_drift_moved") >= 1
    assert metric(moved, 'riskad_drift_column{column="amount"}') > 0.5
    assert metric(moved, "riskad_drift") > metric(quiet, "riskad_drift")


def test_the_window_forgets(served, monkeypatch):
    monkeypatch.setattr("riskad.web.serve.window._MOST_ROWS", 60)
    ask = served()
    for rows in (make_bodies(100), make_bodies(40), make_bodies(30)):
        said = ask.post("/score", {"rows": rows})[1]
    assert metric(ask.get("/metrics"), "riskad_window_rows") == 60
    scores, _ = ask.service.file.current.window.scores()
    assert_allclose(scores[-30:], [row["anomaly_score"] for row in said["rows"]])


def test_answers_are_as_the_description_says(served, tmp_path):
    ask = served(journal=str(tmp_path / "labels.jsonl"))
    api = ask.get("/openapi.json")
    assert list(api["paths"]) == [route.path for route in ask.service.app.routes]
    asked = [
        *(("POST", path, said) for path in ("/score?reasons=3&p_values=1", "/score")
          for said in (ROW, {"rows": [ROW, *make_bodies(3)]}, {"amount": "x"}, {"rows": []}, [])),
        *(("POST", "/feedback", said) for said in (LABEL, {"labels": [LABEL]}, {"label": 1})),
        *(("GET", path, None) for path in ("/model", "/health", "/openapi.json")),
    ]  # fmt: skip
    for method, path, said in asked:
        body = b"" if said is None else json.dumps(said).encode()
        status, headers, answer = ask(method, path, body)
        answers = api["paths"][path.partition("?")[0]][method.lower()]["responses"]
        if status >= 400:
            assert answers["default"] == {"$ref": "#/components/responses/Refusal"}
        described = api["components"]["responses"]["Refusal"] if status >= 400 else answers["200"]
        schema = described["content"][headers["content-type"].partition(";")[0]]["schema"]
        jsonschema.validate(json.loads(answer), schema | {"components": api["components"]})
    model = ask.get("/model")
    numbers = dict.fromkeys(("amount", "hour", "attempts"), "number")
    assert model["columns"] == numbers | {"country": "category"}
    assert model["card"].startswith("# served.riskad")
    assert model["report"]["model"] == "ShallowRAD"
    row = {"$ref": "#/components/schemas/Row", "components": api["components"]}
    jsonschema.validate(ROW, row)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"amount": 1}, row)


# --- labels that come back -----------------------------------------------------------------


def test_labels_go_into_a_journal_that_a_fit_reads(served, tmp_path):
    table = make_rows(200).with_columns(pl.col("label").replace({"fraud": "", "ok": ""}))
    table.write_csv(tmp_path / "cards.csv")
    table = read_table(tmp_path / "cards.csv")
    journal = tmp_path / "cards.labels.jsonl"
    ask = served(journal=str(journal))
    rows = table.drop("label").to_dicts()
    labels = [{"row": rows[i], "label": "anomaly", "who": "ada"} for i in (5, 9)]
    labels += [
        {"row": rows[i], "label": "normal", "who": "ada", "source": "random"} for i in (2, 3)
    ]
    status, said = ask.post("/feedback", {"labels": labels})
    assert (status, said) == (200, {"saved": 4, "journal": "cards.labels.jsonl"})
    other = {"row": rows[9], "label": "normal", "who": "bob", "note": "?"}
    assert ask.post("/feedback", other)[0] == 200
    applied = apply_labels(table.reverse(), journal, LABELS.labels)
    found = {199 - i: label for i, label in enumerate(applied.frame["label"]) if label}
    assert found == {5: "fraud", 2: "ok", 3: "ok"}
    assert any("disagree about row 191:" in note for note in applied.notes)
    assert sorted(source for source in applied.sources if source) == ["chosen", "random", "random"]
    assert "riskad_labels_total 5" in ask.get("/metrics")


def test_a_journal_of_riskad_label_goes_on(served, tmp_path):
    path = tmp_path / "labels.jsonl"
    Journal(path, "cards.csv", ["card", "amount"], 3)
    ask = served(journal=str(path))
    status, said = ask.post("/feedback", LABEL)
    assert status == 422
    assert "lacks the column 'card', by which the journal tells rows apart" in said["error"]
    known = LABEL | {"row": ROW | {"card": "C7"}, "number": 2}
    assert ask.post("/feedback", known)[0] == 200
    assert ask.post("/feedback", known | {"row": ROW | {"card": "C8"}, "number": None})[0] == 200
    assert [answer.row for answer in Journal(path).log] == [2, 4]


def test_two_servers_on_one_journal_number_each_row_once(served, tmp_path):
    path = str(tmp_path / "labels.jsonl")
    first, second = served(journal=path), served(journal=path)
    for i, ask in enumerate([first, second, first, second, second]):
        assert ask.post("/feedback", LABEL | {"row": ROW | {"amount": i}})[0] == 200
    seen = {"row": ROW | {"amount": 1}, "label": "anomaly", "who": "bob"}  # by the second server
    many = [seen, {**seen, "row": ROW, "number": 20}, {**seen, "row": ROW | {"hour": 1}}]
    assert first.post("/feedback", {"labels": many})[0] == 200
    assert [answer.row for answer in Journal(path).log] == [1, 2, 3, 4, 5, 2, 20, 21]


def test_bodies_are_taken_apart_beside_the_event_loop(served, tmp_path, monkeypatch):
    threads = []

    def parse(*body):
        threads.append(threading.current_thread())
        return parse_object(*body)

    for module in ("scoring", "server"):
        monkeypatch.setattr(f"riskad.web.serve.{module}.parse_object", parse)
    ask = served(journal=str(tmp_path / "labels.jsonl"))
    assert ask.post("/score", ROW)[0] == 200
    assert ask.post("/feedback", LABEL)[0] == 200
    assert len(threads) == 2
    assert threading.main_thread() not in threads


NESTED: object = 1
for _ in range(500):  # which polars would read for half a minute
    NESTED = [NESTED]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"label": "normal", "who": "ada"}, "Each label needs its row"),
        (LABEL | {"label": "fraud"}, "label: expected one of"),
        ({"row": ROW, "label": "normal"}, "'who' is missing"),
        (LABEL | {"who": " "}, "Say who"),
        (LABEL | {"who": 7}, "who: expected a text"),
        (LABEL | {"number": 0}, "number: expected"),
        (LABEL | {"when": "now"}, "there is no 'when'"),
        (LABEL | {"": "now"}, "there is no ''"),
        (LABEL | {"row": ROW | {"hour": NESTED}}, "more than 8 levels"),
        ({"labels": []}, "1 to 1,000"),
        ({"labels": [LABEL, 3]}, "Each label needs"),
    ],
)
def test_a_label_that_is_wrong_writes_nothing(served, tmp_path, said, words):
    path = tmp_path / "labels.jsonl"
    ask = served(journal=str(path))
    status, answer = ask.post("/feedback", said)
    assert status == 422
    assert words in answer["error"]
    assert len(path.read_text().splitlines()) == 1


def test_labels_that_cannot_be_written_are_not_acknowledged(served, tmp_path, monkeypatch):
    ask = served(journal=str(tmp_path / "labels.jsonl"))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    status, answer = ask.post("/feedback", LABEL)
    assert status == 507
    assert "No space left" in answer["error"]
    status, answer = served().post("/feedback", LABEL)  # of a server without a journal
    assert (status, "--journal" in answer["error"]) == (404, True)
