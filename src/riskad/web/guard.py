r"""What every request passes before an application sees it, and every answer after.

- A server answers only to its own names (Host): otherwise a name that an attacker points to
  127.0.0.1 (DNS rebinding) would be as good as ours.
- Programs carry a token (`BearerToken`); browsers exchange one for a cookie (`BrowserSessions`).
- A body is JSON, and states its length before it is read; no more than that is read.
- A browser runs no script and loads nothing but what the server sends as a file (content security
  policy), guesses no types, puts the page into no other one, and keeps nothing.
- The log has lines of `key=value` (logfmt): of a request the client's address, the method, the path
  without its query, the status and the duration; never a token, a header, a body or an answer. What
  clients chose is quoted and escaped, so that it can neither begin a line nor reach a terminal. Of
  an exception only type and place are logged, because its message may quote a cell.

>>> to_line(event="request", path="/a b\x1b[2J", status=404)
'event=request path="/a b\\u001b[2J" status=404'
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from urllib.parse import parse_qs, parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Message, Receive, Scope, Send

from riskad.core.checks import InputError

Headers: TypeAlias = defaultdict[str, str]  # one that is missing or comes twice is blank
Query: TypeAlias = dict[str, str]

CSRF_HEADER = "x-riskad-csrf"
LOG = logging.getLogger("riskad.web")
LOG.addHandler(logging.NullHandler())  # whoever serves from Python decides what becomes of it
_ANSWER_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_BODY_SECONDS = 10.0  # for the body of a request, so that slow clients hold no place for long
_NO_TOKEN = (
    "Send the token that `riskad serve` printed, or was started with, in a header "
    "'Authorization: Bearer TOKEN'."
)
_NO_COOKIE = (
    "Open this page with the address that `riskad label` printed. Each address works once; a new "
    "one is in its terminal."
)
# The browser follows this itself: a redirect would be a request that another site began, and
# SameSite=Strict would leave the new cookie out of it.
_WELCOME = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>riskad label</title>'
    '<meta http-equiv="refresh" content="0; url=/"></head><body><a href="/">Label</a></body></html>'
)


class Refusal(Exception):
    """A request that is not served, with its status and the reason."""

    def __init__(self, status: int, reason: str, **headers: str):
        super().__init__(reason)
        self.status, self.reason = status, reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def _error(reason: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": " ".join(reason.split())}, status, headers)


# --- who may ask --------------------------------------------------------------------------


class BearerToken:
    """Every request carries one token: `Authorization: Bearer ...`."""

    policy = "default-src 'none'; frame-ancestors 'none'"
    open_paths = frozenset({"/health"})  # for anybody, by any name of the server
    refusal = staticmethod(_error)

    def __init__(self, token: str):
        self._token = token.encode()

    def admit(self, scope: Scope, headers: Headers) -> None:
        """Compare the token, in constant time; `riskad_trusted` in the scope is the result."""
        scheme, _, token = headers["authorization"].partition(" ")
        same = secrets.compare_digest(token.strip().encode(), self._token)
        scope["riskad_trusted"] = scheme.lower() == "bearer" and same
        if not scope["riskad_trusted"] and scope["path"] not in self.open_paths:
            raise Refusal(401, _NO_TOKEN, www_authenticate="Bearer")


class BrowserSessions:
    """An address with a token opens the page once, and leaves a cookie in the browser.

    Scripts cannot read the cookie (HttpOnly), and no other site's request carries it
    (SameSite=Strict). A request that writes must come from our page (Origin) and carry a header
    that only our page knows, which no form and no request without permission (CORS, of which none
    is given) can add.
    """

    open_paths: frozenset[str] = frozenset()
    refusal = PlainTextResponse  # which a person may see instead of the page

    def __init__(
        self,
        scheme: str,
        cookie: str = "riskad",
        frames: str = "'none'",
        announce: Callable[[str], object] = lambda token: None,
    ):
        self.policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; "
            f"frame-ancestors {frames}"
        )
        self._scheme, self._cookie, self._announce = scheme, cookie, announce
        self._tokens: set[str] = set()
        self._csrf: dict[str, str] = {}  # by session

    def invite(self) -> str:
        """Return a new token, which opens the page once."""
        token = secrets.token_urlsafe(32)
        self._tokens.add(token)
        return token

    def admit(self, scope: Scope, headers: Headers) -> Response | None:
        """Exchange a token for a cookie, or look for the cookie."""
        try:
            cookie = SimpleCookie(headers["cookie"]).get(self._cookie)
        except CookieError:
            cookie = None
        session = None if cookie is None else _member(cookie.value, self._csrf)
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if token and scope["path"] == "/" and scope["method"] == "GET":
            invitation = _member(token[0], self._tokens)
            # Used up, even if the browser has a session already, which its other tabs go on with.
            self._tokens.discard(invitation or "")
            if session is None and invitation is not None:
                session = secrets.token_urlsafe(32)
                self._csrf[session] = secrets.token_urlsafe(32)
            if session is not None:
                secure = "; Secure" if self._scheme == "https" else ""
                text = f"{self._cookie}={session}; HttpOnly; SameSite=Strict; Path=/{secure}"
                return HTMLResponse(_WELCOME, headers={"set-cookie": text})
        # A link on another site may open the page itself, which shows nothing without the cookie.
        if headers["sec-fetch-site"] == "cross-site" and scope["path"] != "/":
            raise Refusal(403, "Another site asked for this.")
        if session is None:
            if not self._tokens:  # unless an address is unused, the terminal shows a new one
                self._announce(self.invite())
            raise Refusal(403, _NO_COOKIE)
        if scope["method"] == "POST":
            if headers["origin"] != f"{self._scheme}://{headers['host']}":
                raise Refusal(403, "Only the page itself may write (Origin).")
            if _member(headers[CSRF_HEADER], [self._csrf[session]]) is None:
                raise Refusal(403, f"Only the page itself may write ({CSRF_HEADER}).")
        scope["riskad_csrf"], scope["riskad_trusted"] = self._csrf[session], True
        return None


def _member(text: str, secret_texts: Iterable[str]) -> str | None:
    """Which of some secrets a text is; each is compared in constant time."""
    # All are compared, so that the time does not tell which was nearly right. Other threads may add
    # some meanwhile: these are the secrets of now.
    now = tuple(secret_texts)
    matches = [s for s in now if secrets.compare_digest(s.encode(), text.encode())]
    return matches[0] if matches else None


# --- the guard ----------------------------------------------------------------------------


class Guard:
    """Refuses requests that may not be served, and completes answers."""

    def __init__(
        self,
        app: Any,
        entrance: BearerToken | BrowserSessions,
        hosts: frozenset[str],
        largest_body: int,
        answered: Callable[[Scope, int, float], object] = lambda scope, status, seconds: None,
    ):
        self._app, self._entrance, self._hosts = app, entrance, hosts
        self._largest, self._answered = largest_body, answered
        headers = _ANSWER_HEADERS | {"content-security-policy": entrance.policy}
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        start, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            answer = self._check(scope) or self._app
        except Refusal as refusal:
            answer = self._entrance.refusal(refusal.reason, refusal.status, refusal.headers)
        try:
            await answer(scope, receive, send_guarded)
        except Exception:  # which the application has answered
            LOG.exception("event=failed")
        self._answered(scope, status, time.perf_counter() - start)

    def _check(self, scope: Scope) -> Response | None:
        headers: Headers = defaultdict(str)
        for raw_name, value in scope["headers"]:
            name = raw_name.decode("latin-1")
            # Of two values we and a proxy might each believe another one.
            headers[name] = "" if name in headers else value.decode("latin-1")
        if headers.keys() >= {"content-length", "transfer-encoding"}:
            # A proxy before us may have read the other length.
            raise Refusal(400, "Send Content-Length or Transfer-Encoding, not both.")
        is_our_name = headers["host"].lower() in self._hosts
        if not is_our_name and scope["path"] not in self._entrance.open_paths:
            raise Refusal(
                421,
                "This server does not answer to that name; start it with --name HOST if it is one "
                "of its own.",
            )
        if (answer := self._entrance.admit(scope, headers)) is not None:
            return answer
        if scope["method"] not in ("GET", "POST"):
            raise Refusal(405, "Only GET and POST are served.")
        if scope["method"] == "POST":
            if headers["content-type"].partition(";")[0].strip().lower() != "application/json":
                raise Refusal(415, "Send JSON, and say so: 'Content-Type: application/json'.")
            if headers["content-encoding"].lower() not in ("", "identity"):
                raise Refusal(415, "Send the body as it is, without Content-Encoding.")
            length, most = headers["content-length"], self._largest
            if not (length.isascii() and length.isdecimal()):
                raise Refusal(411, "Say how long the body is (Content-Length).")
            if len(length) > 12 or int(length) > most:  # int() of a long text would take long
                raise Refusal(413, f"The body is longer than {most:,} bytes; send less at once.")
            scope["riskad_length"] = int(length)
        return None


# --- applications -------------------------------------------------------------------------


def make_app(routes: list[BaseRoute]) -> Starlette:
    """Return an application that answers mistakes with a sentence, {"error": ...}."""
    mistakes = (Refusal, InputError, OSError, HTTPException, Exception)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys(mistakes, _explain))
    app.router.redirect_slashes = False
    return app


def show(path: str, work: Callable[[Query], Any]) -> Route:
    """Return the route of an address whose query, and path, `work` answers, in a thread."""

    async def answer(request: Request) -> Response:
        query = {**request.query_params, **request.path_params}
        return JSONResponse(await run_in_threadpool(work, query))

    return Route(path, answer)


async def _explain(request: Request, error: Exception) -> Response:
    if isinstance(error, Refusal):
        return _error(error.reason, error.status, error.headers)
    if isinstance(error, InputError):
        return _error(str(error), 422)
    if isinstance(error, OSError):
        return _error(f"Could not write the labels: {error.strerror or error}.", 507)
    if not isinstance(error, HTTPException):
        return _error("The server failed; its log says more.", 500)
    if error.status_code == 405:
        method = "GET" if "GET" in (error.headers or {})["Allow"] else "POST"
        return _error(f"{request.url.path} takes {method}.", 405, {"allow": method})
    paths = ", ".join(route.path for route in request.app.routes)
    return _error(f"No such address; choose from {paths}.", error.status_code)


def read_query(scope: Scope, settings: Mapping[str, tuple[int, str]]) -> dict[str, int]:
    """Return the whole numbers after an address: by default 0, each up to that of its setting."""
    query = dict.fromkeys(settings, 0)
    for name, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in settings:
            takes = f"it takes {', '.join(settings)}" if settings else "it takes none"
            raise InputError(f"There is no setting {name[:40]!r} of {scope['path']}; {takes}.")
        largest, _ = settings[name]
        # int() of a very long text would take long.
        whole = value.isascii() and value.isdecimal() and len(value) < 4
        if not whole or int(value) > largest:
            raise InputError(f"{name} must be a whole number from 0 to {largest}.")
        query[name] = int(value)
    return query


async def read_body(request: Request, seconds: float = _BODY_SECONDS) -> bytes:
    """Return the body of a request; one that does not come is not waited for."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                body += part
                if len(body) > request.scope["riskad_length"]:
                    raise Refusal(413, "The body is longer than its Content-Length.")
    except TimeoutError:
        raise Refusal(408, "The body did not come in time.") from None
    except ClientDisconnect:
        raise Refusal(400, "The client went away.") from None
    return bytes(body)


def parse_object(body: bytes, example: str = "{...}") -> dict[str, Any]:
    """Return the JSON object of a body; anything else is refused with status 400."""
    if not body.strip():
        raise Refusal(400, f"The body is empty; send {example}.")
    try:
        # Some programs begin with a byte order mark, which JSON does not know.
        text = body.decode("utf-8-sig")
        content = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
        if b"\\ud" in body.lower():  # perhaps half a letter, which nothing could write again
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise Refusal(400, "The body is nested too deeply.") from None
    except UnicodeEncodeError:
        raise Refusal(400, "The body holds half a letter (a lone surrogate).") from None
    except ValueError as error:  # also where a number has too many digits
        reason = str(error).partition(";")[0] if "digits" in str(error) else str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = f"byte {error.start:,} is no letter"
        raise Refusal(400, f"The body is not JSON in UTF-8: {reason}.") from None
    if not isinstance(content, dict):
        raise Refusal(400, f"The body must be a JSON object, such as {example}.")
    return content


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number; send null for a blank")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the body; of two values under one key nobody knows which is meant."""
    content = dict(pairs)
    if len(content) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refusal(400, f"An object names {twice[:40]!r} twice; send each column once.")
    return content


# --- the log ------------------------------------------------------------------------------

_PLAIN = re.compile(r"[\w./:+-]+", re.ASCII)


def to_line(**values: object) -> str:
    """Return `key=value` pairs; a value that is not plain is quoted as JSON, in ASCII."""
    pairs = []
    for key, value in values.items():
        text = str(value)
        pairs.append(f"{key}={text if _PLAIN.fullmatch(text) else json.dumps(text)}")
    return " ".join(pairs)


def start_log(level: str) -> None:
    """Write lines of this level and above to stderr, also what the web server has to say."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Line())
    logging.basicConfig(handlers=[handler])
    LOG.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(LOG.level, logging.WARNING))


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        start = to_line(time=f"{seconds}.{int(record.msecs):03d}Z", level=record.levelname.lower())
        text = record.getMessage()
        if record.name != LOG.name:  # of a library
            text = to_line(event=text.strip())
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return f"{start} {text}"
        places = traceback.extract_tb(error.__traceback__)
        # Names of files without their folders, which say who runs the server.
        at = " ".join(f"{Path(place.filename).name}:{place.lineno}" for place in places)
        return f"{start} {text} {to_line(error=type(error).__name__, at=at)}"
