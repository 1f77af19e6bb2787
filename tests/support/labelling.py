"""A labelling server to talk to, as a browser or a script would, and one that can be killed."""

import http.client
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import closing
from http.client import HTTPException
from urllib.parse import urlencode, urlsplit

from . import PATIENCE
from .cards import draw_cards

# Without fits, which have tests of their own: a server is there as soon as its libraries are.
SERVER = """
import sys
from pathlib import Path
from riskad.web.label.server import Binding, Server
from riskad.web.label.session import Options, Session
from riskad.tables.reading import read_table

Session.fit = lambda self: False
table, journal, port = sys.argv[1:]
session = Session(read_table(table), journal, Options(id="card", who="ada"), Path(table).name)
server = Server(session, Binding(port=int(port)))
print(server.invite(), flush=True)
server.run()
"""


def make_payments(n=300, seed=0):
    """Payments without labels, and which of them are fraud."""
    table, fraud = draw_cards(n, seed)
    return table.select("card", "amount", "age", "country"), fraud


def start_server(table, journal, port=0):
    """A process that serves the page, and the address that it printed."""
    command = [sys.executable, "-c", SERVER, str(table), str(journal), str(port)]
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with process.stdout as printed:
        return process, printed.readline().strip()


class Client:
    """Talks to a server as its page does."""

    def __init__(self, address, who="ada"):
        parts = urlsplit(address)
        self.place, self.host, self.who = (parts.hostname, parts.port), parts.netloc, who
        self.origin = f"{parts.scheme}://{parts.netloc}"
        _, headers, _ = self.request("GET", f"/?{parts.query}")
        self.cookie = re.match(r"[^;]+", headers["set-cookie"])[0]
        self.start = self.get("/api/start")

    def request(self, method, path, body=None, headers=None):
        with closing(http.client.HTTPConnection(*self.place, timeout=PATIENCE)) as connection:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()

    def get(self, path, **parameters):
        query = urlencode({"who": self.who, **parameters})
        status, _, body = self.request("GET", f"{path}?{query}", headers={"Cookie": self.cookie})
        assert status == 200, body
        return json.loads(body)

    def post(self, path, body=None, **changed):
        headers = {
            "Cookie": self.cookie,
            "Origin": self.origin,
            "X-Riskad-Csrf": self.start["csrf"],
            "Content-Type": "application/json",
        } | changed
        headers = {name: value for name, value in headers.items() if value is not None}
        text = body if isinstance(body, bytes) else json.dumps(body or {})
        status, _, told = self.request("POST", path, text, headers)
        return status, told

    def answer(self, row, label, before="", source="suggested", note=""):
        body = {"row": row, "label": label, "before": before, "source": source, "note": note}
        return self.post("/api/answer", body | {"who": self.who})


def answer_until_killed(process, client, labels, chance):
    """Answer rows as fast as they are acknowledged; after three somebody kills the server."""
    try:
        for number in itertools.count():
            if number == 3:
                threading.Timer(chance.uniform(0, 0.4), process.kill).start()
            row, label = chance.randint(1, 200), chance.choice(["normal", "anomaly"])
            status, _ = client.answer(row, label, before=labels.get(row, ""))
            assert status == 200
            labels[row] = label
    except (OSError, HTTPException):
        assert process.wait() == -signal.SIGKILL
    return row, label
