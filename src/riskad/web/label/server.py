"""The server of the labelling page: addresses and answers over a `Session`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from riskad.app.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.core.checks import InputError
from riskad.files.fields import Text
from riskad.files.records import from_plain
from riskad.tables.harmless import HarmlessRule
from riskad.web.connections import Binding, WebServer
from riskad.web.guard import (
    BrowserSessions,
    Guard,
    Query,
    make_app,
    parse_object,
    read_body,
    show,
)
from riskad.web.label.session import Session

LARGEST_BODY = 16_384
_FILES = {
    "page.html": "text/html",
    "page.css": "text/css",
    "label.css": "text/css",
    "label.js": "text/javascript",
    "draw.js": "text/javascript",
    "talk.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_MOST_NEXT = 20


@dataclass(frozen=True)
class AnswerRequest:
    """An answer from the page; `before` is the person's earlier one, as far as the page knows."""

    row: int
    label: Literal[LABELS]  # type: ignore[valid-type]
    source: Literal[SOURCES]  # type: ignore[valid-type]
    who: Annotated[str, Text(shortest=1, longest=LONGEST_NAME)]
    before: Literal[LABELS] = ""  # type: ignore[valid-type]
    note: Annotated[str, Text(longest=LONGEST_NOTE)] = ""
    others: list[int] = field(default_factory=list)  # of the same stretch of a series


class Server(WebServer):
    """A page for a session, on a port.

    The session works in threads, so that nobody waits for another.
    """

    def __init__(
        self,
        session: Session,
        binding: Binding,
        announce: Callable[[str], object] = lambda address: None,
        frames: str = "'none'",
    ):
        super().__init__(binding)
        self.session = session
        self.access = BrowserSessions(
            binding.scheme,
            cookie=f"riskad_{self.port}",
            frames=frames,
            announce=lambda token: announce(f"{self.root}/?token={token}"),
        )
        self.app = make_app(
            [
                Route("/", self._file),
                Route("/favicon.ico", self._file),  # asked for before the page is read
                Route("/static/{name}", self._file),
                Route("/api/start", self._start),
                Route("/api/export", self._export),
                show("/api/state", lambda q: session.state(_who(q))),
                show("/api/next", self._next),
                show("/api/row/{row}", lambda q: session.card(_whole(q, "row"), _who(q))),
                show("/api/rows", self._rows),
                show("/api/rule/of/{row}", lambda q: session.propose_rule(_whole(q, "row"))),
                show(
                    "/api/rule/effect", lambda q: session.rule_effect(q.get("where", ""), _who(q))
                ),
                _change("/api/answer", self._answer),
                _change("/api/fit", lambda body: {"started": session.fit()}),
                _change("/api/rule", lambda body: session.add_rule(from_plain(HarmlessRule, body))),
                _change("/api/invite", lambda body: {"address": self.invite()}),
                _change("/api/leave", lambda body: session.leave(str(body.get("tab"))[:40])),
            ]
        )
        self.mount(Guard(self.app, self.access, self.hosts, LARGEST_BODY))

    def invite(self) -> str:
        """Return an address that opens the page once."""
        return f"{self.root}/?token={self.access.invite()}"

    def close(self) -> None:
        """Release the port, and end the fits."""
        super().close()
        self.session.close()

    # --- addresses ------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        start = {"/": "page.html", "/favicon.ico": "icon.svg"}.get(request.url.path)
        name = start or request.path_params["name"]
        if name not in _FILES:
            return Response("There is no such file.", 404)
        return Response(_read(name), media_type=_FILES[name])

    async def _start(self, request: Request) -> Response:
        return JSONResponse(
            {
                "csrf": request.scope["riskad_csrf"],
                "who": self.session.who,
                "columns": [each.bars for each in self.session.cards.pictures.values()],
            }
        )

    async def _export(self, request: Request) -> Response:
        body = await run_in_threadpool(self.session.export)
        headers = {"content-disposition": 'attachment; filename="labelled.csv"'}
        kind = f"text/csv; charset={self.session.options.csv.encoding}"
        return Response(body, media_type=kind, headers=headers)

    # --- what the session is asked, in threads --------------------------------------------

    def _next(self, query: Query) -> list[dict[str, Any]]:
        n = min(_whole(query, "n", 5), _MOST_NEXT)
        return self.session.next(query.get("tab", "")[:40], _who(query), n)

    def _rows(self, query: Query) -> dict[str, Any]:
        text, order = (query.get(name, "")[:200] for name in ("q", "order"))
        return self.session.list_rows(text, order, _whole(query, "offset"), _who(query))

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = from_plain(AnswerRequest, body)
        if not answer.who.strip():
            raise InputError("who must not be blank.")
        return self.session.answer(**vars(answer))


def _change(path: str, work: Callable[[dict[str, Any]], Any]) -> Route:
    """Return the route of an address to which the page sends an object."""

    async def change(request: Request) -> Response:
        body = parse_object(await read_body(request))
        return JSONResponse(await run_in_threadpool(work, body))

    return Route(path, change, methods=["POST"])


@functools.cache
def _read(name: str) -> bytes:
    if name == "page.css":  # the look of all our pages
        return files("riskad.app.report").joinpath("templates", name).read_bytes()
    return files("riskad.web.label").joinpath("static", name).read_bytes()


def _who(query: Query) -> str:
    return query.get("who", "")[:LONGEST_NAME]


def _whole(query: Query, name: str, otherwise: int = 0) -> int:
    text = query.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else otherwise
