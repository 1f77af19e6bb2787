"""What every request passes before an application sees it, and every answer after.

- A server answers only to its own names (Host): otherwise a name that an attacker points to
  127.0.0.1 (DNS rebinding) would be as good as ours.
- Programs carry a token (`BearerToken`); browsers exchange one for a cookie (`BrowserSessions`).
- A body is JSON, and states its length before it is read; no more than that is read.
- A browser runs no script and loads nothing but what the server sends as a file (content security
  policy), guesses no types, puts the page into no other one, and keeps nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, NoReturn, TypeAlias
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute

from riskad.core.checks import InputError

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

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
_BODY_SECONDS = 10.0
_NO_TOKEN = (
    "Send the token that `riskad serve` printed, or was started with, in a header "
    "'Authorization: Bearer TOKEN'."
)
_NO_COOKIE = (
    "Open this page with the address that `riskad label` printed. Each address works once; a new "
    "one is in its terminal."
)
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


class Headers(dict[str, str]):
    """Headers of a request; one that is missing or comes twice is blank."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]):
        super().__init__()
        for name, value in raw:
            key = name.decode("latin-1")
            self[key] = "" if key in self else value.decode("latin-1")

    def __missing__(self, name: str) -> str:
        return ""


# --- who may ask --------------------------------------------------------------------------


class Entrance(ABC):
    """Decides who may send requests, and how a refusal looks."""

    policy: str
    """The content security policy of all answers."""
    open_paths: frozenset[str] = frozenset()
    """Paths that anybody may ask for, by any name of the server."""

    @abstractmethod
    def admit(self, scope: Scope, headers: Headers) -> Response | None:
        """Let a request pass, answer it, or raise a `Refusal`.

        `riskad_known` in the scope says whether the client has shown that it may ask.
        """

    def refuse(self, refusal: Refusal) -> Response:
        """Return the answer to a request that is not served."""
        return JSONResponse(
            {"error": " ".join(refusal.reason.split())}, refusal.status, refusal.headers
        )


class BearerToken(Entrance):
    """Every request carries one token: `Authorization: Bearer ...`."""

    policy = "default-src 'none'; frame-ancestors 'none'"
    open_paths = frozenset({"/health"})

    def __init__(self, token: str):
        self._token = token

    def admit(self, scope: Scope, headers: Headers) -> None:
        """Compare the token, in constant time."""
        scheme, _, token = headers["authorization"].partition(" ")
        known = scheme.lower() == "bearer" and _same(token.strip(), self._token)
        scope["riskad_known"] = known
        if not known and scope["path"] not in self.open_paths:
            raise Refusal(401, _NO_TOKEN, www_authenticate="Bearer")


class BrowserSessions(Entrance):
    """An address with a token opens the page once, and leaves a cookie in the browser.

    Scripts cannot read the cookie (HttpOnly), and no other site's request carries it
    (SameSite=Strict). A request that writes must come from our page (Origin) and carry a header
    that only our page knows, which no form and no request without permission (CORS, of which none
    is given) can add.
    """

    def __init__(
        self,
        scheme: str,
        cookie: str = "riskad",
        frames: str = "'none'",
        announce: Callable[[str], object] = lambda token: None,
    ):
        self.policy = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
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
        session = self._session(headers)
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if token and scope["path"] == "/" and scope["method"] == "GET":
            return self._welcome(token[0], session)
        if headers["sec-fetch-site"] == "cross-site" and scope["path"] != "/":
            raise Refusal(403, "Another site asked for this.")
        if session is None:
            raise self._no_access()
        if scope["method"] == "POST":
            if headers["origin"] != f"{self._scheme}://{headers['host']}":
                raise Refusal(403, "Only the page itself may write (Origin).")
            if not _same(headers[CSRF_HEADER], self._csrf[session]):
                raise Refusal(403, f"Only the page itself may write ({CSRF_HEADER}).")
        scope["riskad_csrf"], scope["riskad_known"] = self._csrf[session], True
        return None

    def refuse(self, refusal: Refusal) -> Response:
        """Return plain words, which a person may see instead of the page."""
        return PlainTextResponse(refusal.reason, refusal.status, refusal.headers)

    def _session(self, headers: Headers) -> str | None:
        try:
            found = SimpleCookie(headers["cookie"]).get(self._cookie)
        except CookieError:
            return None
        return next((s for s in self._csrf if found is not None and _same(s, found.value)), None)

    def _welcome(self, token: str, session: str | None) -> Response:
        """Leave the cookie of a new session, or the one that is there: other tabs go on with it."""
        fresh = [each for each in self._tokens if _same(each, token)]
        self._tokens.difference_update(fresh)
        if session is None:
            if not fresh:
                raise self._no_access()
            session = secrets.token_urlsafe(32)
            self._csrf[session] = secrets.token_urlsafe(32)
        secure = "; Secure" if self._scheme == "https" else ""
        cookie = f"{self._cookie}={session}; HttpOnly; SameSite=Strict; Path=/{secure}"
        return HTMLResponse(_WELCOME, headers={"set-cookie": cookie})

    def _no_access(self) -> Refusal:
        """Let the owner of the terminal have a new address, unless one is unused."""
        if not self._tokens:
            self._announce(self.invite())
        return Refusal(403, _NO_COOKIE)


def _same(first: str, second: str) -> bool:
    """Compare secrets in constant time."""
    return secrets.compare_digest(first.encode(), second.encode())


# --- the guard ----------------------------------------------------------------------------


class Guard:
    """Refuses requests that may not be served, and completes answers."""

    def __init__(
        self,
        app: Any,
        entrance: Entrance,
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
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        started, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        try:
            answer = self._check(scope) or self._app
        except Refusal as refusal:
            answer = self._entrance.refuse(refusal)
        try:
            await answer(scope, receive, send_guarded)
        except Exception:  # which the application has answered
            LOG.exception("event=failed")
        self._answered(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> Response | None:
        headers = Headers(scope["headers"])
        if headers.keys() >= {"content-length", "transfer-encoding"}:
            # A proxy before us may have read the other length.
            raise Refusal(400, "Send Content-Length or Transfer-Encoding, not both.")
        named = headers["host"].lower() in self._hosts
        if not named and scope["path"] not in self._entrance.open_paths:
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
            scope["riskad_length"] = self._length(headers)
        return None

    def _length(self, headers: Headers) -> int:
        """The length of the body that follows."""
        if headers["content-type"].partition(";")[0].strip().lower() != "application/json":
            raise Refusal(415, "Send JSON, and say so: 'Content-Type: application/json'.")
        if headers["content-encoding"].lower() not in ("", "identity"):
            raise Refusal(415, "Send the body as it is, without Content-Encoding.")
        length, most = headers["content-length"], self._largest
        if not (length.isascii() and length.isdecimal()):
            raise Refusal(411, "Say how long the body is (Content-Length).")
        if len(length) > 12 or int(length) > most:
            raise Refusal(413, f"The body is longer than {most:,} bytes; send less at once.")
        return int(length)


# --- applications -------------------------------------------------------------------------


def make_app(
    routes: list[BaseRoute], handlers: Mapping[type[Exception], Any] | None = None
) -> Starlette:
    """Return an application that answers mistakes with a sentence, {"error": ...}."""
    known = {Refusal, InputError, OSError, HTTPException, Exception}
    app = Starlette(
        routes=routes,
        exception_handlers={**dict.fromkeys(known, _explain), **(handlers or {})},
    )
    app.router.redirect_slashes = False
    return app


async def _explain(request: Request, error: Exception) -> Response:
    status, reason, headers = 500, "The server failed; its log says more.", {}
    if isinstance(error, Refusal):
        status, reason, headers = error.status, error.reason, error.headers
    elif isinstance(error, InputError):
        status, reason = 422, str(error)
    elif isinstance(error, OSError):
        status, reason = 507, f"Could not write the labels: {error.strerror or error}."
    elif isinstance(error, HTTPException):
        status, paths = error.status_code, [route.path for route in request.app.routes]
        reason = f"No such address; choose from {', '.join(paths)}."
        if status == 405:
            headers = {"allow": "GET" if "GET" in (error.headers or {})["Allow"] else "POST"}
            reason = f"{request.url.path} takes {headers['allow']}."
    return JSONResponse({"error": " ".join(reason.split())}, status, headers)


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
    """Return the JSON object of a body; anything else is refused with status 400.

    >>> parse_object(b'{"amount": 1}')
    {'amount': 1}
    """
    if not body.strip():
        raise Refusal(400, f"The body is empty; send {example}.")
    try:
        text = body.decode("utf-8-sig")
        said = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_key_twice)
        if b"\\ud" in body.lower():
            json.dumps(said, ensure_ascii=False).encode()
    except RecursionError:
        raise Refusal(400, "The body is nested too deeply.") from None
    except UnicodeEncodeError:
        raise Refusal(400, "The body holds half a letter (a lone surrogate).") from None
    except UnicodeDecodeError as error:
        reason = f"byte {error.start:,} is no letter"
        raise Refusal(400, f"The body is not JSON in UTF-8: {reason}.") from None
    except ValueError as error:  # also where a number has too many digits
        reason = str(error).partition(";")[0] if "digits" in str(error) else str(error)
        raise Refusal(400, f"The body is not JSON in UTF-8: {reason}.") from None
    if not isinstance(said, dict):
        raise Refusal(400, f"The body must be a JSON object, such as {example}.")
    return said


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number; send null for a blank")


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the body; of two values under one key nobody knows which is meant."""
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise Refusal(400, f"An object names {twice[:40]!r} twice; send each column once.")
    return made
