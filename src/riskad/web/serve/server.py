"""The addresses of a served model, what each does, and how much may wait."""

from __future__ import annotations

import asyncio
import logging
import secrets
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from riskad.app.journal import Answer, Journal, hash_rows
from riskad.core.checks import InputError
from riskad.files.records import from_plain
from riskad.tables.harmless import HarmlessRules
from riskad.tables.json_lines import frame_of_objects
from riskad.web.connections import Binding, WebServer
from riskad.web.guard import (
    LOG,
    BearerToken,
    Guard,
    Refusal,
    make_app,
    parse_object,
    read_body,
    read_query,
    show,
    to_line,
)
from riskad.web.serve.metrics import Metrics
from riskad.web.serve.model import ModelFile
from riskad.web.serve.schemas import MOST_LABELS, LabelledRow, describe_service
from riskad.web.serve.scoring import SCORE_SETTINGS, check_nesting

# Of a body; larger ones take turns, and only one of them takes memory as objects of Python.
_LARGE_BYTES = 32_768
_SHORTEST_TOKEN = 16
_LABEL_EXAMPLE = '{"row": {"amount": 12.5}, "label": "anomaly", "who": "ada"}'


def make_token() -> str:
    """Return a new token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return a token without surrounding blanks; refuse one that could be guessed."""
    token = token.strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InputError(
            f"The token must be one line of at least {_SHORTEST_TOKEN} ASCII letters, digits or "
            "signs. `openssl rand -base64 32` makes one."
        )
    return token


@dataclass(frozen=True)
class Limits:
    """The limits of a service."""

    rows: int = 10_000  # of one request
    body: int = 16 << 20  # bytes of one request
    waiting: int = 64  # requests for scores; further ones are told to try again (503)
    all_bodies: int = 128 << 20  # bytes of all bodies in memory at a time
    body_seconds: float = 10.0  # for receiving a body


class Service:
    """Answers requests with the model of a file.

    One thread scores, beside the event loop. A request with many rows is scored in parts, and other
    requests come between them: a client with one row never waits for one with ten thousand. Of
    requests with many rows one is scored at a time, so that only its objects take memory.
    """

    def __init__(
        self,
        path: str,
        journal: str | None = None,
        limits: Limits | None = None,
        state: Path | None = None,
        harmless: HarmlessRules | None = None,
    ):
        self.limits = limits or Limits()
        self.scoring = ThreadPoolExecutor(1, thread_name_prefix="riskad-score")
        self.waiting = 0
        self._bytes, self._large = 0, asyncio.Lock()
        try:
            self.file = ModelFile(path, self.scoring, state, harmless)
            model = self.file.current
            self.journal = journal and Journal(journal, model.name, model.scorer.columns)
        except BaseException:
            self.scoring.shutdown()
            raise
        self._journal_lock = Lock()  # one body of labels at a time is taken apart
        self.metrics = Metrics(self.file, lambda: self.waiting)
        self.app = make_app(
            [
                Route("/score", self._score, methods=["POST"]),
                Route("/feedback", self._take_labels, methods=["POST"]),
                show("/model", lambda query: self.file.current.description),
                Route("/health", self._health),
                Route("/metrics", self._show_metrics),
                show(
                    "/openapi.json",
                    lambda query: describe_service(self.file.current, self.limits.rows),
                ),
            ]
        )
        self._paths = {route.path for route in self.app.routes if isinstance(route, Route)}

    def close(self) -> None:
        """End its threads."""
        self.file.close()
        self.scoring.shutdown(cancel_futures=True)

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request; all unknown paths count as one."""
        path = scope["path"]
        counted = path if path in self._paths else "other"
        self.metrics.requests.labels(counted, status).inc()
        self.metrics.seconds.labels(counted).observe(seconds)
        level = logging.INFO if status < 400 else logging.WARNING
        level = logging.ERROR if status >= 500 else level
        if path == "/health" and status == 200:  # which others ask for every few seconds
            level = logging.DEBUG
        if LOG.isEnabledFor(level):
            line = to_line(
                event="request",
                client=(scope.get("client") or "-")[0],
                method=scope["method"],
                path=path[:100],
                status=status,
                ms=f"{1_000 * seconds:.1f}",
            )
            LOG.log(level, "%s", line)

    @asynccontextmanager
    async def _body(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, and keep the memory of all of them within bounds, from before that."""
        length = request.scope["riskad_length"]
        self._refuse_if_busy(self._bytes + length > self.limits.all_bodies)
        self._bytes += length
        try:
            yield await read_body(request, self.limits.body_seconds)
        finally:
            self._bytes -= length

    def _refuse_if_busy(self, no_memory: bool = False) -> None:
        if no_memory or self.waiting >= self.limits.waiting:
            reason = "The server is busy: too many requests wait. Try again in a second."
            raise Refusal(503, reason, retry_after="1")

    # --- addresses ------------------------------------------------------------------------

    async def _score(self, request: Request) -> Response:
        query = read_query(request.scope, SCORE_SETTINGS)
        model = self.file.current
        async with self._body(request) as body:
            self._refuse_if_busy()  # others came while this body did
            head = {"model_version": model.version}
            steps = model.scorer.answer(body, head, most_rows=self.limits.rows, **query)
            loop, scored = asyncio.get_running_loop(), None
            self.waiting += 1
            try:
                async with self._large if len(body) > _LARGE_BYTES else nullcontext():
                    while scored is None:
                        scored = await loop.run_in_executor(self.scoring, next, steps)
            finally:
                self.waiting -= 1
        answer, rows, scores, flagged = scored
        self.metrics.rows.inc(len(scores))
        self.metrics.flagged.inc(int(flagged.sum()))
        if len(scores):  # of points that complete no window there are none
            model.window.add(rows, scores, flagged)
        return Response(answer, media_type="application/json")

    async def _take_labels(self, request: Request) -> Response:
        if not self.journal:
            raise Refusal(404, "No labels are taken: start the server with --journal PATH.")
        read_query(request.scope, {})
        async with self._body(request) as body:
            n = await asyncio.to_thread(self._save_labels, self.journal, body)
        self.metrics.labels.inc(n)
        return JSONResponse({"saved": n, "journal": self.journal.path.name})

    def _save_labels(self, journal: Journal, body: bytes) -> int:
        with self._journal_lock:
            content = parse_object(body, _LABEL_EXAMPLE)
            labels = content["labels"] if content.keys() == {"labels"} else [content]
            if not isinstance(labels, list) or not 0 < len(labels) <= MOST_LABELS:
                raise InputError(f"labels must be a list of 1 to {MOST_LABELS:,} labels.")
            journal.add(*[_read_label(each, journal.columns) for each in labels])
        return len(labels)

    async def _health(self, request: Request) -> Response:
        # Clients with the token get more details.
        ready = self.waiting < self.limits.waiting
        state: dict[str, Any] = {"live": True, "ready": ready}
        if request.scope["riskad_trusted"]:
            state |= {"model_version": self.file.current.version, "reload_error": self.file.error}
        return JSONResponse(state, 200 if ready else 503)

    async def _show_metrics(self, request: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, self.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)


def _read_label(content: Any, columns: list[str]) -> Answer:
    """A label that came back; its row is found by its cells in the columns of the journal.

    They are compared as text: cells must be written as in the table from which the next model is
    fitted.
    """
    if not isinstance(content, dict) or not isinstance(content.get("row"), dict):
        raise InputError(f"Each label needs its row: {_LABEL_EXAMPLE}.")
    check_nesting([content["row"]], columns)
    label = from_plain(LabelledRow, content)
    if not label.who.strip():
        raise InputError("Say who labelled the row: who must not be blank.")
    frame = frame_of_objects([label.row], columns)
    lost = [name for name in columns if name not in frame.columns]
    if lost:
        raise InputError(
            f"The row lacks the column {lost[0]!r}, by which the journal tells rows apart; "
            "send it as the table has it, with null where it is blank."
        )
    return Answer(
        label.number or 0,
        hash_rows(frame, columns)[0],
        label.label,
        label.source,
        label.who.strip(),
        note=label.note,
    )


class Server(WebServer):
    """Serves a model."""

    def __init__(self, service: Service, binding: Binding, token: str):
        super().__init__(binding)
        self.service = service
        guard = Guard(
            service.app, BearerToken(token), self.hosts, service.limits.body, service.answered
        )
        self.mount(guard, most_connections=1_000, grace_seconds=30)

    def run(self) -> None:
        """Serve until interrupted; requests that are under way are answered first."""
        with warnings.catch_warnings():
            # Messages about rows are in the answers; nothing else may accumulate.
            warnings.simplefilter("ignore")
            super().run()

    def close(self) -> None:
        """Release the port, and end the service."""
        super().close()
        self.service.close()
