"""The addresses of the service, and what each does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from riskad.core.checks import InputError
from riskad.serving.access import JSON
from riskad.serving.answers import Answers, refuse, to_bytes
from riskad.serving.feedback import Feedback
from riskad.serving.logs import LOG, to_line
from riskad.serving.metrics import KIND, Metrics, Now
from riskad.serving.models import ModelFile, ServedModel
from riskad.serving.openapi import describe_service
from riskad.serving.queueing import Answer, Job, ScoringThread
from riskad.serving.window import Window
from riskad.web.guarding import Receive, Refusal, Scope, Send, reply

__all__ = ["MOST_REASONS", "Limits", "Service"]

Handler: TypeAlias = Callable[[Scope, Receive], Awaitable[Answer]]
MOST_REASONS = 20
_RETRY_SECONDS = 1
_BUSY = "The server is busy: too many requests wait. Try again in a second."


@dataclass(frozen=True)
class Limits:
    """The limits of a service.

    Attributes
    ----------
    rows
        Most rows of one request.
    body
        Most bytes of one request.
    waiting
        Requests that may wait for scores; further ones are told to try again (503).
    all_bodies
        Most bytes of all bodies in memory at a time.
    body_seconds
        Time limit for receiving a body.
    """

    rows: int = 10_000
    body: int = 16 << 20
    waiting: int = 64
    all_bodies: int = 128 << 20
    body_seconds: float = 10.0


class Service:
    """Answers requests with the model of a file.

    Parameters
    ----------
    path
        The model file; when it changes, the new model takes over.
    journal
        Journal for returned labels; None if none are accepted.
    limits
        The limits.
    """

    def __init__(self, path: str, journal: str | None = None, limits: Limits | None = None):
        self.limits = limits or Limits()
        self.metrics, self.window = Metrics(), Window()
        answers = Answers(self.limits.rows, self._scored)
        self.file = ModelFile(path, self._warm_up, self._taken_over)
        self.feedback = None if journal is None else Feedback(journal, self.file.current)
        self.thread = ScoringThread(answers.answer_small, answers.answer_large, self.limits.waiting)
        self._bytes = 0
        self._warm_up(self.file.current)
        self.file.watch()
        self._routes: dict[str, tuple[str, Handler]] = {
            "/score": ("POST", self.score),
            "/feedback": ("POST", self.take_labels),
            "/model": ("GET", self.model),
            "/health": ("GET", self.health),
            "/metrics": ("GET", self.show_metrics),
            "/openapi.json": ("GET", self.openapi),
        }

    def close(self) -> None:
        """End its threads."""
        self.file.close()
        self.thread.close()

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and log a request; all unknown paths count as one."""
        path = scope["path"]
        self.metrics.request(path if path in self._routes else "other", status, seconds)
        level = logging.INFO if status < 400 else logging.WARNING
        level = logging.ERROR if status >= 500 else level
        if path == "/health" and status == 200:  # which others ask for every few seconds
            level = logging.DEBUG
        client, _ = scope.get("client") or ("-", 0)
        told = {"method": scope["method"], "path": path[:100], "status": status}
        line = to_line(event="request", client=client, **told, ms=f"{1_000 * seconds:.1f}")
        LOG.log(level, "%s", line)

    def _warm_up(self, model: ServedModel) -> None:
        self.thread.call(model.scorer.warm_up)

    def _taken_over(self, found: ServedModel | str) -> None:
        if isinstance(found, ServedModel):
            self.metrics.reloads["taken"] += 1
            LOG.info("%s", to_line(event="model taken over", version=found.version))
        else:
            self.metrics.reloads["refused"] += 1
            LOG.warning("%s", to_line(event="model refused", reason=found))

    def _scored(
        self, model: ServedModel, rows: Any, scores: NDArray[np.float64], flagged: NDArray[np.bool_]
    ) -> None:
        self.metrics.scored(len(scores), int(flagged.sum()))
        self.window.add(model, rows, scores, flagged)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that passed the guard."""
        answer = await self._answer(scope, receive)
        kind = KIND if scope["path"] == "/metrics" and answer.status == 200 else JSON
        more = [("retry-after", str(_RETRY_SECONDS))] if answer.status == 503 else []
        if answer.status == 405:
            more = [("allow", self._routes[scope["path"]][0])]
        await reply(send, answer.status, kind, answer.body, more)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        """Turn mistakes of a request into answers that say what was wrong."""
        method, handler = self._routes.get(scope["path"], ("", None))
        if handler is None:
            return refuse(404, f"No such address; choose from {', '.join(self._routes)}.")
        if method != scope["method"]:
            return refuse(405, f"{scope['path']} takes {method}.")
        try:
            return await handler(scope, receive)
        except Refusal as refusal:
            return refuse(refusal.status, refusal.reason)
        except InputError as error:
            return refuse(422, str(error))
        except OSError as error:
            return refuse(507, f"Could not write the labels: {error.strerror or error}.")
        except Exception:
            LOG.exception("event=failed")
            return refuse(500, "The server failed; its log says more.")

    # --- addresses -----------------------------------------------------------------------

    async def score(self, scope: Scope, receive: Receive) -> Answer:
        """Score a row, or rows."""
        asked = _query(scope, {"reasons": MOST_REASONS, "p_values": 1})
        model = self.file.current
        with self._admitted(scope):
            body = await self._body(scope, receive)
            if self.thread.full:
                raise Refusal(503, _BUSY)
            job = Job(model, body, asked["reasons"], bool(asked["p_values"]))
            return await self.thread.submit(job)

    async def take_labels(self, scope: Scope, receive: Receive) -> Answer:
        """Append labels to the journal."""
        if self.feedback is None:
            raise Refusal(404, "No labels are taken: start the server with --journal PATH.")
        _query(scope, {})
        with self._admitted(scope):
            body = await self._body(scope, receive)
            n = await asyncio.to_thread(self.feedback.add, body)
        self.metrics.labels += n
        return Answer(200, to_bytes({"saved": n, "journal": self.feedback.journal.path.name}))

    async def model(self, scope: Scope, receive: Receive) -> Answer:
        """Describe the model."""
        return Answer(200, to_bytes(self.file.current.description))

    async def health(self, scope: Scope, receive: Receive) -> Answer:
        """Report whether the service works; clients with the token get more details."""
        live, ready = self.thread.alive, not self.thread.full
        said: dict[str, object] = {"live": live, "ready": live and ready}
        if scope["riskad_known"]:
            said |= {"model_version": self.file.current.version, "reload_error": self.file.error}
        return Answer(200 if live and ready else 503, to_bytes(said))

    async def show_metrics(self, scope: Scope, receive: Receive) -> Answer:
        """Return counts and times for Prometheus."""
        now = Now(self.file.current, self.file.error, self.thread.waiting)
        text = await asyncio.to_thread(self.metrics.text, now, self.window)
        return Answer(200, text.encode())

    async def openapi(self, scope: Scope, receive: Receive) -> Answer:
        """Describe all addresses."""
        return Answer(200, to_bytes(describe_service(self.file.current, self.limits.rows)))

    # --- bodies --------------------------------------------------------------------------

    @contextmanager
    def _admitted(self, scope: Scope) -> Iterator[None]:
        """Keep the memory of all bodies within bounds, from before they are read."""
        length = scope["riskad_length"]
        if self.thread.full or self._bytes + length > self.limits.all_bodies:
            raise Refusal(503, _BUSY)
        self._bytes += length
        try:
            yield
        finally:
            self._bytes -= length

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """The body of a request; one that does not come is not waited for."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                more = True
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(400, "The client went away.")
                    body += message.get("body", b"")
                    if len(body) > scope["riskad_length"]:
                        raise Refusal(413, "The body is longer than its Content-Length.")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise Refusal(408, "The body did not come in time.") from None
        return bytes(body)


def _query(scope: Scope, known: dict[str, int]) -> dict[str, int]:
    """The numbers that follow an address: each between 0 and a largest."""
    found = dict.fromkeys(known, 0)
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            there = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InputError(f"There is no setting {name[:40]!r} of {scope['path']}; {there}.")
        if not (value.isascii() and value.isdecimal() and len(value) < 4) or (
            int(value) > known[name]
        ):
            raise InputError(f"{name} must be a whole number from 0 to {known[name]}.")
        found[name] = int(value)
    return found
