"""The server of the labelling page: addresses and answers over a `Session`."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from riskad.core.checks import InputError
from riskad.labelling.journal import LONGEST_NAME, LONGEST_NOTE
from riskad.labelling.security import LARGEST_BODY, Access, Guard
from riskad.labelling.session import Conflict, Session
from riskad.web.binding import Binding
from riskad.web.listening import make_server

__all__ = ["Binding", "Server"]

_FILES = {
    "page.html": "text/html",
    "label.css": "text/css",
    "label.js": "text/javascript",
    "draw.js": "text/javascript",
    "talk.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_BODY_SECONDS = 10.0
_MOST_NEXT = 20
Handler = Callable[[Request], Awaitable[Response]]


class Server:
    """A page for a session, on a port.

    Parameters
    ----------
    session
        What is labelled.
    binding
        Where to listen.
    announce
        Called with an address when the last one that was printed is spent.
    frames
        Who may show the page inside another one (a notebook).
    """

    def __init__(
        self,
        session: Session,
        binding: Binding,
        announce: Callable[[str], object] = lambda address: None,
        frames: str = "'none'",
    ):
        binding.check()
        self.session = session
        self._socket = binding.bound()
        port = self._socket.getsockname()[1]
        self.root = f"{binding.scheme}://{binding.shown_host()}:{port}"
        self.access = Access(
            binding.scheme,
            binding.hosts(port),
            cookie=f"riskad_{port}",
            frames=frames,
            announce=lambda token: announce(self._address(token)),
        )
        self._server = make_server(Guard(_pages(session, self), self.access), binding)

    def _address(self, token: str) -> str:
        return f"{self.root}/?token={token}"

    def invite(self) -> str:
        """Return an address that opens the page once."""
        return self._address(self.access.invite())

    def run(self) -> None:
        """Serve until somebody interrupts."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self.session.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


def _pages(session: Session, server: Server) -> Starlette:
    handlers = _Handlers(session, server)
    return Starlette(
        routes=[
            Route("/", handlers.page),
            Route("/favicon.ico", handlers.icon),
            Route("/static/{name}", handlers.file),
            Route("/api/start", handlers.start),
            Route("/api/state", handlers.state),
            Route("/api/next", handlers.next),
            Route("/api/row/{row}", handlers.row),
            Route("/api/rows", handlers.rows),
            Route("/api/export", handlers.export),
            Route("/api/answer", handlers.answer, methods=["POST"]),
            Route("/api/fit", handlers.fit, methods=["POST"]),
            Route("/api/invite", handlers.invite, methods=["POST"]),
            Route("/api/leave", handlers.leave, methods=["POST"]),
        ]
    )


def _told(handler: Callable[[Any, Request], Awaitable[Response]]) -> Any:
    """Turn mistakes of a request into answers that say what was wrong."""

    @functools.wraps(handler)
    async def answered(self: Any, request: Request) -> Response:
        try:
            return await handler(self, request)
        except Conflict as conflict:
            return JSONResponse({"conflict": str(conflict)}, 409)
        except InputError as error:
            return JSONResponse({"error": str(error)}, 422)
        except OSError as error:
            said = f"Could not write the answer: {error.strerror or error}."
            return JSONResponse({"error": said}, 507)

    return answered


class _Handlers:
    """What each address does. The session works in threads, so that nobody waits for another."""

    def __init__(self, session: Session, server: Server):
        self.session, self.server = session, server

    async def page(self, request: Request) -> Response:
        return _file("page.html")

    async def icon(self, request: Request) -> Response:
        return _file("icon.svg")  # which browsers ask for before they have read the page

    async def file(self, request: Request) -> Response:
        return _file(request.path_params["name"])

    @_told
    async def start(self, request: Request) -> Response:
        session = self.session
        return JSONResponse(
            {
                "csrf": request.scope["riskad_csrf"],
                "who": session.who,
                "columns": session.cards.drawn(),
                "names": session.frame.columns,
            }
        )

    @_told
    async def state(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self.session.state, _who(request)))

    @_told
    async def next(self, request: Request) -> Response:
        tab = request.query_params.get("tab", "")[:40]
        n = min(_number(request, "n", 5), _MOST_NEXT)
        return JSONResponse(await run_in_threadpool(self.session.next, tab, _who(request), n))

    @_told
    async def row(self, request: Request) -> Response:
        text = request.path_params["row"]
        row = int(text) if text.isdecimal() and len(text) < 10 else 0
        return JSONResponse(await run_in_threadpool(self.session.card, row, _who(request)))

    @_told
    async def rows(self, request: Request) -> Response:
        query, order = (request.query_params.get(n, "")[:200] for n in ("q", "order"))
        offset = _number(request, "offset", 0)
        found = await run_in_threadpool(self.session.listed, query, order, offset, _who(request))
        return JSONResponse(found)

    @_told
    async def export(self, request: Request) -> Response:
        body = await run_in_threadpool(self.session.export)
        headers = {"content-disposition": 'attachment; filename="labelled.csv"'}
        kind = f"text/csv; charset={self.session.options.csv.encoding}"
        return Response(body, media_type=kind, headers=headers)

    @_told
    async def answer(self, request: Request) -> Response:
        said = await _json(request)
        row = said.get("row")
        if not isinstance(row, int) or isinstance(row, bool):
            raise InputError(f"row must be the number of a row, got {row!r}.")
        texts = {
            name: _text(said, name, longest)
            for name, longest in (
                ("label", 20),
                ("source", 20),
                ("who", LONGEST_NAME),
                ("before", 20),
                ("note", LONGEST_NOTE),
            )
        }
        if not texts["who"].strip():
            raise InputError("who must not be blank.")
        return JSONResponse(await run_in_threadpool(self.session.answer, row, **texts))

    @_told
    async def fit(self, request: Request) -> Response:
        return JSONResponse({"started": await run_in_threadpool(self.session.fit)})

    @_told
    async def invite(self, request: Request) -> Response:
        return JSONResponse({"address": self.server.invite()})

    @_told
    async def leave(self, request: Request) -> Response:
        tab = _text(await _json(request), "tab", 40)
        await run_in_threadpool(self.session.leave, tab)
        return JSONResponse({"left": True})


@functools.cache
def _read(name: str) -> bytes:
    if name == "page.css":  # the look of all our pages
        return files("riskad.app.report").joinpath("templates", "page.css").read_bytes()
    return files("riskad.labelling").joinpath("static", name).read_bytes()


def _file(name: str) -> Response:
    kind = (_FILES | {"page.css": "text/css"}).get(name)
    if kind is None:
        return Response("There is no such file.", 404)
    return Response(_read(name), media_type=kind)


def _who(request: Request) -> str:
    return request.query_params.get("who", "")[:LONGEST_NAME]


def _number(request: Request, name: str, otherwise: int) -> int:
    text = request.query_params.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else otherwise


async def _json(request: Request) -> dict[str, Any]:
    """The object that a body holds; a body that grows or does not come is not waited for."""
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    raise InputError(f"The body is longer than {LARGEST_BODY:,} bytes.")
    except TimeoutError:
        raise InputError("The body did not come in time.") from None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("The body is not JSON.") from None
    if not isinstance(said, dict):
        raise InputError("The body must be a JSON object.")
    return said


def _text(said: dict[str, Any], name: str, longest: int) -> str:
    value = said.get(name, "")
    if not isinstance(value, str) or len(value) > longest:
        raise InputError(f"{name} must be a text of at most {longest:,} letters.")
    try:
        value.encode()
    except UnicodeEncodeError:  # half a letter, which no file can hold
        raise InputError(f"{name} holds half a letter (a lone surrogate).") from None
    return value
