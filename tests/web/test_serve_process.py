"""`riskad serve` as a process: who may ask, who is not waited for, and what a kill leaves."""

import gc
import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import PATIENCE
from support import wait_for
from support.loops import each
from support.serving import (
    TOKEN,
    Client,
    Serving,
    make_bodies,
    make_model,
    read_status,
    reload_under_load,
    send_malformed,
)

pytest.importorskip("uvicorn", reason="needs riskad[app]")

import riskad.web.connections
from riskad.app.journal import Journal
from riskad.cli.main import cli
from riskad.core.checks import InputError
from riskad.web.connections import Binding
from riskad.web.guard import LOG, _Line
from riskad.web.serve.server import Server, Service, check_token

ROOT = Path(__file__).parents[2]
ROW = make_bodies(1)[0]
PATHS = {"GET": ["/model", "/metrics", "/openapi.json"], "POST": ["/score", "/feedback"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / "first.riskad", folder / "second.riskad"]
    for seed, path in enumerate(paths):
        make_model(path, seed, n=200)
    return paths


class InThread:
    """A server in a thread of this process."""

    def __init__(self, model, binding=None, token=TOKEN):
        self.server = Server(Service(str(model)), binding or Binding(), token)
        self.place = self.server._socket.getsockname()
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.stop()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def served(models):
    with InThread(models[0]) as server:
        yield server


# --- who may ask ---------------------------------------------------------------------------


@each("token", ["", "wrong-token-of-some-length", TOKEN[:-1], TOKEN + "x"])
def test_nothing_but_health_is_told_without_the_token(served, token):
    with Client(served.place, token=token) as client:
        for method, paths in PATHS.items():
            for path in [*paths, "/no/such/address"]:
                status, headers, body = client.request(method, path, "{}")
                assert status == 401, path
                assert headers["www-authenticate"] == "Bearer"
                assert "model" not in json.loads(body)
        status, _, body = client.request("GET", "/health")
        assert (status, json.loads(body)) == (200, {"live": True, "ready": True})


def test_only_its_own_names_are_answered_to(served):
    with Client(served.place) as client:
        assert client.request("GET", "/model")[0] == 200
        status, _, body = client.request("GET", "/model", Host="evil.example")
        assert status == 421
        assert "--name" in json.loads(body)["error"]
        assert client.request("GET", "/health", Host="10.0.0.7:8000")[0] == 200


def test_every_answer_has_the_headers_and_only_known_methods_are_served(served):
    with Client(served.place) as client:
        for method, path, status in [
            ("GET", "/health", 200),
            ("PUT", "/score", 405),
            ("GET", "/score", 405),
            ("GET", "/nothing", 404),
        ]:
            found, headers, _ = client.request(method, path)
            assert found == status
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cache-control"] == "no-store"
            assert headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(("method", "path"), [("POST", "/score"), ("GET", "/health")])
def test_a_body_of_two_lengths_is_refused(served, method, path):
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {{}}:{{}}\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with closing(socket.create_connection(served.place, timeout=PATIENCE)) as sock:
        sock.sendall(head.format(*served.place).encode() + b"10\r\n" + b" " * 16 + b"\r\n")
        assert read_status(sock) == 400


def test_tokens_that_can_be_guessed_are_refused():
    for token in ("", "short", "fifteen-letters", "x" * 15 + "é", "a token\nof two lines"):
        with pytest.raises(InputError, match="at least 16"):
            check_token(token)


def run(*arguments, **environment):
    return CliRunner().invoke(cli, ["serve", *map(str, arguments)], env=environment)


def test_the_command_is_never_open_by_accident(models, tmp_path, monkeypatch):
    monkeypatch.setattr(Server, "run", Server.close)
    monkeypatch.setenv("RISKAD_TOKEN", TOKEN)
    (tmp_path / "token").write_bytes(b"\xff\xfe" * 20)
    for arguments, words in (
        ([models[0], "--host", "0.0.0.0"], ("--insecure", "--tls-cert")),
        ([models[0], "--token-file", tmp_path / "token"], ("at least 16 ASCII",)),
        ([models[0], "--tls-cert", models[0]], ("--tls-cert VALUE and --tls-key VALUE",)),
        ([tmp_path / "none.riskad"], ("There is no file",)),
        ([models[0], "--tls-cert", models[0], "--tls-key", models[0]], ("PEM",)),
    ):
        told = run(*arguments, "--port", 0)
        assert told.exit_code == 1, arguments
        assert all(word in told.output for word in words), told.output
    told = run(models[0], "--port", 0, RISKAD_TOKEN="")
    assert (told.exit_code, "at least 16" in told.output) == (1, True)


def test_a_token_that_is_made_is_printed_and_one_that_is_given_is_not(
    models, tmp_path, monkeypatch
):
    monkeypatch.setattr(Server, "run", Server.close)
    monkeypatch.delenv("RISKAD_TOKEN", raising=False)
    first, second = (run(models[0], "--port", 0).output for _ in range(2))
    tokens = [text.partition("Token: ")[2].split()[0] for text in (first, second)]
    assert tokens[0] != tokens[1]
    assert min(map(len, tokens)) >= 43
    (tmp_path / "token.txt").write_text(f"{TOKEN}\n")
    told = run(models[0], "--port", 0, "--token-file", tmp_path / "token.txt")
    assert told.exit_code == 0
    assert "Token" not in told.output
    assert TOKEN not in told.output


def make_certificates(folder):
    """An authority, and a certificate that it signed for the server."""
    run = lambda *words: subprocess.run(  # noqa: E731
        ["openssl", *map(str, words)], check=True, capture_output=True, cwd=folder
    )
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    run("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    run("x509", "-req", "-in", "server.csr", *signed, "-out", "server.pem")


# --- who is not waited for -----------------------------------------------------------------


@pytest.mark.slow
def test_slow_clients_are_let_go(models, monkeypatch):
    monkeypatch.setattr(riskad.web.connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(riskad.web.connections, "REQUEST_SECONDS", 1.5)
    monkeypatch.setattr(riskad.web.connections, "_LOOK_SECONDS", 0.1)
    big = json.dumps({"rows": [ROW] * 9000})
    head = (
        f"POST /score HTTP/1.1\r\nHost: {{host}}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(big)}\r\n\r\n"
    )
    with InThread(models[0]) as server:
        host = "{}:{}".format(*server.place)
        connections = server.server._server.server_state.connections
        silent = socket.create_connection(server.place, timeout=PATIENCE)
        dripping = socket.create_connection(server.place, timeout=PATIENCE)
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect(server.place)
        with closing(silent), closing(dripping), closing(deaf):
            with suppress(OSError):  # it may be let go already
                dripping.sendall(head[:30].encode())
            # More answers than the system keeps for it, until it is let go.
            asking = 9 * (head.replace("{host}", host).encode() + big.encode())

            def send():
                with suppress(OSError):
                    deaf.sendall(asking)

            sending = threading.Thread(target=send)
            sending.start()
            for sock in (silent, dripping):
                with suppress(ConnectionError):
                    assert read_status(sock) == 0
            sending.join(PATIENCE)
            wait_for(lambda: not connections)
        monkeypatch.setattr(riskad.web.connections, "HEAD_SECONDS", PATIENCE)
        monkeypatch.setattr(riskad.web.connections, "REQUEST_SECONDS", PATIENCE)
        with Client(server.place) as client:
            assert client.post("/score", ROW)[0] == 200
            (connection,) = connections
            monkeypatch.setattr(riskad.web.connections, "HEAD_SECONDS", 0)
            for _ in range(2):  # between requests there is more time
                look = connection._look
                wait_for(lambda look=look: connection._look is not look or not connections)
            monkeypatch.setattr(riskad.web.connections, "HEAD_SECONDS", PATIENCE)
            assert client.post("/score", ROW)[0] == 200


@contextmanager
def silent_connections(place, n):
    """Connections on which nothing is said, all of them accepted."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(n):
            stack.enter_context(closing(socket.create_connection(place, timeout=PATIENCE)))
        yield


@pytest.mark.slow
def test_silent_connections_do_not_lock_out_those_with_a_token(models):
    with InThread(models[0]) as server, Client(server.place) as early:
        server.server._server.config.timeout_keep_alive = 10 * PATIENCE  # it is idle for long here
        assert early.post("/score", ROW)[0] == 200
        sock = early.connection.sock
        with silent_connections(server.place, 1200), Client(server.place) as late:
            assert late.post("/score", ROW)[0] == 200
            assert early.post("/score", ROW)[0] == 200
            assert early.connection.sock is sock  # the one that it had


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_handshakes_that_never_come_do_not_lock_out_others(models, tmp_path, monkeypatch):
    monkeypatch.setattr(riskad.web.connections, "_most_files", lambda: 40)
    make_certificates(tmp_path)
    files = {"certificate": tmp_path / "server.pem", "key": tmp_path / "server.key"}
    context = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    with InThread(models[0], Binding(**files)) as server:
        with silent_connections(server.place, 60):
            client = Client(server.place)
            client.connection = http.client.HTTPSConnection(
                *server.place, context=context, timeout=PATIENCE
            )
            with client:
                assert client.post("/score", ROW)[0] == 200
            assert len(server.server._server.server_state.connections) < 20
        with closing(socket.create_connection(server.place, timeout=PATIENCE)) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")  # no TLS
            assert read_status(sock) == 0
    assert not server.server._server.server_state.connections


def test_nothing_is_kept_of_connections_that_were_reset(served, monkeypatch):
    """For as long as uvicorn would keep them."""
    monkeypatch.setattr(served.server._server.config, "timeout_keep_alive", 10 * PATIENCE)
    head = f"POST /score HTTP/1.1\r\nHost: {{}}:{{}}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    for _ in range(20):
        with closing(socket.create_connection(served.place, timeout=PATIENCE)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(head.format(*served.place).encode())
            assert read_status(sock) == 415

    def is_left():
        gc.collect()  # what refers to itself goes at the collector's leisure
        return any(
            type(each) is riskad.web.connections.TimeoutProtocol for each in gc.get_objects()
        )

    wait_for(lambda: not is_left())


# --- a process -----------------------------------------------------------------------------


@pytest.mark.slow
def test_malformed_requests_upset_nobody_and_labels_outlive_a_kill(models, tmp_path):
    journal = tmp_path / "labels.jsonl"
    with Serving(models[0], "--journal", str(journal)) as server:
        with server.client() as client:
            assert client.post("/score", ROW)[0] == 200
            before = server.memory()
        statuses = [send_malformed(server.place, number, seed=3) for number in range(320)]
        assert set(statuses) >= {200, 400, 401, 415, 422}
        assert max(statuses) < 500
        assert server.memory() < before + 100
        saved = len(Journal(journal).log)
        with server.client() as client:
            for i in range(20):
                label = {"row": ROW | {"amount": i}, "label": "normal", "who": "eve"}
                assert client.post("/feedback", label)[0] == 200
        server.process.send_signal(signal.SIGKILL)
    assert len(Journal(journal).log) == saved + 20


LINE = re.compile(
    r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=(\w+) "
    r'event=(\w+|"[ -~]+")((?: \w+=(?:[\w./:+-]+|"(?:[^"\\]|\\.)*"))*)'
)


@pytest.mark.slow
def test_each_request_is_a_line_of_the_log_without_secrets_or_cells(models):
    with Serving(models[0], "--log-level", "debug") as server:
        with server.client() as client:
            client.get("/health")
            client.post("/score?reasons=1", ROW | {"country": "cell-value"})
            client.post("/score", ROW | {"hour": "cell-value"})
            client.request("GET", "/%1b[2J%0alevel=error%22")
        with closing(socket.create_connection(server.place, timeout=PATIENCE)) as sock:
            sock.sendall(b"nonsense\x1b[2J\r\n\r\n")
            assert read_status(sock) == 400
        server.process.terminate()
        server.process.wait()
        logged = server.logged()
    lines = [LINE.fullmatch(line) for line in logged.splitlines() if line != "Ctrl-C stops."]
    assert all(lines), logged
    requests = [line for line in lines if line[2] == "request"]
    assert [(line[1], *line[3].split()[1:4]) for line in requests] == [
        ("debug", "method=GET", "path=/health", "status=200"),
        ("info", "method=POST", "path=/score", "status=200"),
        ("warning", "method=POST", "path=/score", "status=422"),
        ("warning", "method=GET", 'path="/\\u001b[2J\\nlevel=error\\""', "status=404"),
    ]
    assert lines[-1][2] == '"Invalid HTTP request received."'
    assert not any(word in logged for word in (TOKEN, "cell-value", "reasons", "\x1b"))


def test_a_failure_is_logged_by_its_place_and_not_by_its_message():
    try:
        int("cell-value")
    except ValueError as error:
        record = LOG.makeRecord(LOG.name, 40, "", 0, "event=failed", (), (None, error, None))
    line = _Line().format(record)
    assert LINE.fullmatch(line)
    assert "error=ValueError at=test_serve_process.py:" in line
    assert "cell-value" not in line


@pytest.mark.slow
def test_models_that_change_under_load_give_no_wrong_answer(models, tmp_path):
    heard = reload_under_load(tmp_path, models, 3, clients=2)
    assert [each.wrong for each in heard] == [0, 0]
    assert len(set().union(*(each.versions for each in heard))) == 2
    assert {status for each in heard for status in each.statuses} == {200}


def test_requests_that_are_under_way_are_answered_when_the_server_ends(models, monkeypatch):
    with InThread(models[0]) as server, Client(server.place) as client:
        assert client.post("/score", ROW)[0] == 200
        monkeypatch.setattr(server.server._server.config, "timeout_graceful_shutdown", PATIENCE)
        scoring, under_way = server.server.service.scoring, threading.Event()
        submit = scoring.submit
        monkeypatch.setattr(scoring, "submit", lambda *job: under_way.set() or submit(*job))
        body = json.dumps({"rows": [ROW] * 9000})
        client.connection.request("POST", "/score", body, client.headers)
        assert under_way.wait(PATIENCE)
        server.server.stop()
        answer = client.connection.getresponse()
        assert answer.status == 200
        assert len(json.loads(answer.read())["rows"]) == 9000


# --- the container -------------------------------------------------------------------------


def instructions(word):
    """What follows a word of the Dockerfile, line by line."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return [line.removeprefix(f"{word} ") for line in lines if line.startswith(f"{word} ")]


@pytest.mark.slow
def test_the_container_serves_a_model_as_nobody_in_particular(models):
    assert instructions("USER") == ["10001:10001"]
    (command,), (options,) = instructions("ENTRYPOINT"), instructions("CMD")
    assert json.loads(command) == ["riskad", "serve"]
    _, *options = json.loads(options)
    with Serving(models[0], *options) as server:
        port = server.place[1]
        with Client(("127.0.0.1", port)) as client:
            for host in ("localhost", "127.0.0.1"):
                assert client.request("GET", "/model", Host=f"{host}:{port}")[0] == 200
        (check,) = instructions("HEALTHCHECK")
        python, *words = json.loads(check.removeprefix("CMD "))
        assert python == "python"
        words[-1] = words[-1].replace("127.0.0.1:8000", f"127.0.0.1:{port}")
        assert subprocess.run([sys.executable, *words]).returncode == 0
    assert subprocess.run([sys.executable, *words], stderr=subprocess.DEVNULL).returncode
