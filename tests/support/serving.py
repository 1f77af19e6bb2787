"""Models to serve, servers in processes of their own, and clients: polite, quick and malformed."""

import gzip
import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import polars as pl
from fuzz.mutations import mutate_json

import riskad
from riskad.app.model_files import load, read_header
from riskad.app.score import score_table
from riskad.app.spec import FitSpec

from . import PATIENCE, wait_for

TOKEN = "correct-horse-battery-staple"
LABELS = FitSpec(label="label", normal=["ok"], anomaly=["fraud"])
BAD_CELLS = [
    *(None, True, False, 0, -1, 2**63, -(2**64), 10**40, 1e308, -1e-320, 0.1, "", " ", "abc"),
    *("1,234.50 €", "12.5", "NaN", "\x00", "é" * 50, "\ud800", "x" * 5000, "2025-01-01", "=1+1"),
    *([], [1, 2], {}, {"a": 1}, {"a": {"b": [None]}}, [[[[[[[[[[1]]]]]]]]]]),
]


def make_rows(n=400, seed=0):
    """Payments, most of them without a label."""
    rng = np.random.default_rng(seed)
    fraud, known = rng.random(n) < 0.1, rng.random(n) < 0.3
    return pl.DataFrame(
        {
            "amount": np.exp(rng.normal(np.where(fraud, 5, 3.5), 0.6)).round(2),
            "hour": rng.normal(np.where(fraud, 4, 14), 3).round(1) % 24,
            "country": np.where(rng.random(n) < np.where(fraud, 0.5, 0.05), "XX", "BE"),
            "attempts": 1 + rng.poisson(np.where(fraud, 2, 0.2)),
            "label": np.where(known, np.where(fraud, "fraud", "ok"), ""),
        }
    )


def make_model(path, seed=0, model="shallow", n=400):
    """Fit a model on such payments, and write it over what is there."""
    fitted = riskad.fit_table(make_rows(n, seed), LABELS, model=model).model
    riskad.save(fitted, path, force=True)
    return fitted


def make_bodies(n=400, seed=1):
    """Rows to be scored, as JSON objects."""
    return make_rows(n, seed).drop("label").to_dicts()


class Serving:
    """`riskad serve` in a process of its own."""

    def __init__(self, model, *options, token=TOKEN):
        command = [sys.executable, "-m", "riskad", "serve", str(model), "--port", "0", *options]
        environment = os.environ | {"RISKAD_TOKEN": token, "POLARS_MAX_THREADS": "1"}
        self.log = tempfile.NamedTemporaryFile("w")  # noqa: SIM115
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment
        )
        self.root = self.process.stdout.readline().rpartition(" ")[2].strip()
        assert self.root, self.logged()
        self.place = urlsplit(self.root).hostname, urlsplit(self.root).port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.log.close()
        assert code in (143, -9), code  # as it was asked to, by SIGTERM or SIGKILL

    def logged(self):
        """What it wrote to stderr."""
        return Path(self.log.name).read_text()

    def client(self, **options):
        return Client(self.place, **options)

    def memory(self):
        """Resident mebibytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.split("VmRSS:")[1].split()[0]) / 1024


class Client:
    """Keeps its connection, and shows its token."""

    def __init__(self, place, token=TOKEN):
        self.connection = http.client.HTTPConnection(*place, timeout=PATIENCE)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def request(self, method, path, body=None, **headers):
        """Status, headers and body of an answer."""
        self.connection.request(method, path, body, self.headers | headers)
        answer = self.connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def get(self, path):
        status, _, body = self.request("GET", path)
        assert status == 200, body
        return body.decode() if path == "/metrics" else json.loads(body)

    def post(self, path, said):
        status, _, body = self.request("POST", path, json.dumps(said))
        return status, json.loads(body)


# --- malformed requests ------------------------------------------------------------------

ROW = {"amount": 12.5, "hour": 3, "country": "BE", "attempts": 1}


def _head(path="/score", method="POST", length=None, token=TOKEN, kind="application/json", more=""):
    told = "" if length is None else f"Content-Length: {length}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: {{host}}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: {kind}\r\n{told}{more}\r\n"
    )


def _request(data, **options):
    return _head(length=len(data), **options), data


def _json(rng):
    """What JSON can hold in place of a row, a label or any part of them."""
    label = {"row": ROW, "label": "normal", "who": "ada", "note": "", "source": "random"}
    path, said = rng.choice(
        [
            ("/score", ROW),
            ("/score?reasons=2", {"rows": [ROW, ROW]}),
            ("/score?p_values=1", {"rows": [ROW] * 5}),
            ("/feedback", label),
            ("/feedback", {"labels": [label, label]}),
        ]
    )
    return _request(mutate_json(rng, json.dumps(said).encode()), path=path)


def _encoding(rng):
    text = json.dumps(ROW | {"country": rng.choice(["é" * 50, "\ud800"])}, ensure_ascii=False)
    data = text.encode("utf-8", "surrogatepass")
    data = rng.choice(
        [
            text.encode("utf-16", "surrogatepass"),
            b"\xef\xbb\xbf" + data,
            data.replace(b"amount", bytes([rng.randrange(128, 256)])),
            gzip.compress(data),
            rng.randbytes(rng.randint(0, 300)),
            b'{"amount": ' + b"9" * 5000 + b"}",
            b'{"amount": NaN}',
            b'{"amount": -Infinity}',
        ]
    )
    more = rng.choice(["", "", "Content-Encoding: gzip\r\n"])
    kind = rng.choice(["application/json", "application/json; charset=utf-16", "text/csv", ""])
    return _request(data, kind=kind, more=more)


def _sizes(rng):
    head, data = _request(json.dumps({"rows": [ROW] * rng.choice([1, 300])}).encode())
    kind = rng.randrange(6)
    if kind == 0:  # shorter than it says
        return _head(length=len(data) + rng.choice([1, 10**6])), data
    if kind == 1:  # longer
        return _head(length=max(0, len(data) - 10)), data
    if kind == 2:
        return _head(length=rng.choice(["-1", "1e3", "10" * 20, "", "0x10", "٣", 10**9])), data
    if kind == 3:
        return _head(more="Transfer-Encoding: chunked\r\n"), b"5\r\nhello\r\n0\r\n\r\n"
    if kind == 4:
        return _head(length=len(data), more="X: " + "y" * rng.choice([1000, 70_000]) + "\r\n"), data
    return head, b'{"amount": "' + b"x" * 200_000 + b'"}'


def _heads(rng):
    path = rng.choice(["/", "/score/", "/../etc/passwd", "/%00", "/score?reasons=99", "/score?a"])
    method = rng.choice(["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "BREW", "POST"])
    token = rng.choice([TOKEN, "", "x" * 2000, "wrong-token-of-some-length"])
    more = rng.choice(
        ["", "Host: evil.example\r\n", "Upgrade: websocket\r\nConnection: upgrade\r\n"]
    )
    return _head(path, method, rng.choice([None, 0]), token, more=more), b""


def _garbage(rng):
    start = rng.choice(
        [b"", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01", b"POST /score HTTP/1.1\r\n"]
    )
    return "", start + rng.randbytes(rng.randint(1, 400)) + b"\r\n\r\n"


KINDS = (_json, _encoding, _json, _sizes, _json, _heads, _json, _garbage)


def malformed(number, seed=0):
    """Head and body of a malformed request; {host} in its head is the server's."""
    rng = random.Random(seed * 1_000_003 + number)
    return KINDS[number % len(KINDS)](rng)


def _is_cut_short(head, data):
    """Whether a server would wait for more, which the client then says will not come."""
    length = re.search(r"Content-Length: (\d+)\r", head)
    return not head or (length and int(length[1]) > len(data))


def send_malformed(place, number, seed=0):
    """Send such a request; gives the status of the answer, 0 where the connection was closed."""
    head, data = malformed(number, seed)
    host = f"{place[0]}:{place[1]}"
    with closing(socket.create_connection(place, timeout=PATIENCE)) as sock:
        try:
            sock.sendall(head.replace("{host}", host).encode("utf-8", "replace") + data)
            if _is_cut_short(head, data):
                sock.shutdown(socket.SHUT_WR)
            return read_status(sock)
        except TimeoutError:
            raise
        except OSError:  # the server has closed the connection already
            return 0


def read_status(sock):
    """The status of the answer that comes, 0 if the connection is closed before."""
    said = b""
    while b"\r\n\r\n" not in said:
        more = sock.recv(65_536)
        if not more:
            break
        said += more
    return int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else 0


# --- new models under load -----------------------------------------------------------------

ROUNDING = 1e-4  # of the network, in single precision, whose sums depend on a row's company


class Asking(threading.Thread):
    """Asks for scores of known rows, and compares them with those of the model that is named."""

    def __init__(self, place, expected, rows):
        super().__init__(daemon=True)
        self.place, self.expected, self.rows = place, expected, rows
        self.ended, self.statuses = threading.Event(), Counter()
        self.wrong, self.versions = 0, Counter()

    def run(self):
        rng = np.random.default_rng(threading.get_ident() % 2**32)
        with Client(self.place) as client:
            while not self.ended.is_set():
                picked = rng.integers(
                    len(self.rows), size=rng.choice([1, 3, 700], p=[0.6, 0.3, 0.1])
                )
                status, said = client.post("/score", {"rows": [self.rows[i] for i in picked]})
                self.statuses[status] += 1
                if status == 200:
                    self.compare(said, picked)

    def compare(self, said, picked):
        scores = np.array([row["anomaly_score"] for row in said["rows"]])
        version = said["model_version"]
        self.versions[version] += 1
        known = self.expected.get(version)
        self.wrong += known is None or np.abs(scores - known[picked]).max() > ROUNDING


def health(server):
    with server.client() as client:  # one that waits for long is let go
        return client.get("/health")


def reload_under_load(folder, models, n, clients):
    """Models take turns in one file, every tenth after a broken one; what clients heard."""
    rows = make_bodies(500)
    frame = pl.DataFrame(rows)
    versions = [read_header(path).checksum[:12] for path in models]
    scored = [score_table(load(path), frame)[0]["anomaly_score"].to_numpy() for path in models]
    expected = dict(zip(versions, scored, strict=True))
    served = folder / "served.riskad"
    shutil.copy(models[0], served)
    with Serving(served) as server:
        asking = [Asking(server.place, expected, rows) for _ in range(clients)]
        for each in asking:
            each.start()
        for turn in range(1, n + 1):
            part = folder / "part"
            if turn % 10 == 0:
                part.write_bytes(b"broken")
                os.replace(part, served)
                wait_for(lambda: health(server).get("reload_error"))
            shutil.copy(models[turn % len(models)], part)
            os.replace(part, served)
            version = versions[turn % len(models)]
            wait_for(lambda v=version: health(server)["model_version"] == v)
            wait_for(lambda v=version: any(each.versions[v] for each in asking))
        for each in asking:
            each.ended.set()
        for each in asking:
            each.join()
    return asking
