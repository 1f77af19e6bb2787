"""The server of the labelling page: addresses and answers over a `Session`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Annotated, Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from riskad.app.journal import LABELS, LONGEST_NAME, LONGEST_NOTE, SOURCES
from riskad.core.checks import InputError
from riskad.files.fields import Text
from riskad.files.records import from_plain
from riskad.web.guard import BrowserSessions, Guard, make_app, parse_object, read_body
from riskad.web.label.session import Conflict, Session
from riskad.web.listening import Binding, WebServer

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
    """What the page sends as an answer; `before` is the person's earlier one that it knows."""

    row: int
    label: Literal[LABELS]  # type: ignore[valid-type]
    source: Literal[SOURCES]  # type: ignore[valid-type]
    who: Annotated[str, Text(shortest=1, longest=LONGEST_NAME)]
    before: Literal[LABELS] = ""  # type: ignore[valid-type]
    note: Annotated[str, Text(longest=LONGEST_NOTE)] = ""


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
            announce=lambda token: announce(self._address(token)),
        )
        self.app = make_app(
            [
                Route("/", self.file),
                Route("/favicon.ico", self.file),  # asked for before the page is read
                Route("/static/{name}", self.file),
                Route("/api/start", self.start),
                Route("/api/state", self.state),
                Route("/api/next", self.next),
                Route("/api/row/{row}", self.row),
                Route("/api/rows", self.rows),
                Route("/api/export", self.export),
                Route("/api/answer", self.answer, methods=["POST"]),
                Route("/api/fit", self.fit, methods=["POST"]),
                Route("/api/invite", self.new_address, methods=["POST"]),
                Route("/api/leave", self.leave, methods=["POST"]),
            ],
            {Conflict: _tell_conflict},
        )
        self.mount(Guard(self.app, self.access, self.hosts, LARGEST_BODY))

    def _address(self, token: str) -> str:
        return f"{self.root}/?token={token}"

    def invite(self) -> str:
        """Return an address that opens the page once."""
        return self._address(self.access.invite())

    def close(self) -> None:
        """Release the port, and end the fits."""
        super().close()
        self.session.close()

    # --- addresses ------------------------------------------------------------------------

    async def file(self, request: Request) -> Response:
        """Send the page, or one of its files."""
        start = {"/": "page.html", "/favicon.ico": "icon.svg"}.get(request.url.path)
        name = start or request.path_params["name"]
        if name not in _FILES:
            return Response("There is no such file.", 404)
        return Response(_read(name), media_type=_FILES[name])

    async def start(self, request: Request) -> Response:
        """Tell the page what it shows all the time."""
        return JSONResponse(
            {
                "csrf": request.scope["riskad_csrf"],
                "who": self.session.who,
                "columns": self.session.cards.drawn(),
                "names": self.session.frame.columns,
            }
        )

    async def state(self, request: Request) -> Response:
        """Tell counts, the progress of a fit and what it found."""
        return JSONResponse(await run_in_threadpool(self.session.state, _who(request)))

    async def next(self, request: Request) -> Response:
        """Tell the rows to judge next."""
        tab, n = request.query_params.get("tab", "")[:40], _number(request, "n", 5)
        rows = run_in_threadpool(self.session.next, tab, _who(request), min(n, _MOST_NEXT))
        return JSONResponse(await rows)

    async def row(self, request: Request) -> Response:
        """Show a row that was asked for."""
        row = _whole(request.path_params["row"], 0)
        return JSONResponse(await run_in_threadpool(self.session.card, row, _who(request)))

    async def rows(self, request: Request) -> Response:
        """List rows."""
        query, order = (request.query_params.get(n, "")[:200] for n in ("q", "order"))
        offset, who = _number(request, "offset", 0), _who(request)
        return JSONResponse(await run_in_threadpool(self.session.listed, query, order, offset, who))

    async def export(self, request: Request) -> Response:
        """Send the table with its labels."""
        body = await run_in_threadpool(self.session.export)
        headers = {"content-disposition": 'attachment; filename="labelled.csv"'}
        kind = f"text/csv; charset={self.session.options.csv.encoding}"
        return Response(body, media_type=kind, headers=headers)

    async def answer(self, request: Request) -> Response:
        """Save an answer."""
        said = from_plain(AnswerRequest, parse_object(await read_body(request)))
        if not said.who.strip():
            raise InputError("who must not be blank.")
        return JSONResponse(await run_in_threadpool(self.session.answer, **vars(said)))

    async def fit(self, request: Request) -> Response:
        """Start a fit."""
        return JSONResponse({"started": await run_in_threadpool(self.session.fit)})

    async def new_address(self, request: Request) -> Response:
        """Invite another person."""
        return JSONResponse({"address": self.invite()})

    async def leave(self, request: Request) -> Response:
        """Release the rows of a tab that was closed."""
        tab = parse_object(await read_body(request)).get("tab")
        await run_in_threadpool(self.session.leave, str(tab)[:40])
        return JSONResponse({"left": True})


async def _tell_conflict(request: Request, error: Exception) -> Response:
    return JSONResponse({"conflict": str(error)}, 409)


@functools.cache
def _read(name: str) -> bytes:
    if name == "page.css":  # the look of all our pages
        return files("riskad.app.report").joinpath("templates", name).read_bytes()
    return files("riskad.web.label").joinpath("static", name).read_bytes()


def _who(request: Request) -> str:
    return request.query_params.get("who", "")[:LONGEST_NAME]


def _number(request: Request, name: str, otherwise: int) -> int:
    return _whole(request.query_params.get(name, ""), otherwise)


def _whole(text: str, otherwise: int) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else otherwise
