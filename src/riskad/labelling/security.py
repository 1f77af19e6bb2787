"""Who may talk to the server of the labelling page, and what a browser may do with it.

The page runs on a machine that others may share, in a browser that has other pages open. So

- the address that is printed holds a token that works once, and becomes a cookie that scripts
  cannot read (HttpOnly) and that no other site's request carries (SameSite=Strict);
- a request must name this server (Host), or a name that an attacker points to 127.0.0.1 (DNS
  rebinding) would be as good as ours;
- a request that writes must come from our page (Origin) and carry a header that only our page
  knows, which no form and no request without permission (CORS, of which none is given) can add;
- bodies are JSON of at most 16 kB;
- the browser may run no script and load nothing but what this server sends as a file (content
  security policy), may not guess types, may not put the page into another one, and keeps nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs

from riskad.web.guarding import (
    ANSWER_HEADERS,
    App,
    Headers,
    Message,
    Receive,
    Refusal,
    Scope,
    Send,
    reply,
    same_secret,
)

__all__ = ["CSRF_HEADER", "LARGEST_BODY", "Access", "Guard", "Refusal"]

CSRF_HEADER = "x-riskad-csrf"
LARGEST_BODY = 16_384
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors {frames}"
)
_WELCOME = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>riskad label</title>'
    '<meta http-equiv="refresh" content="0; url=/"></head><body><a href="/">Label</a></body></html>'
)
_NO_ACCESS = (
    "Open this page with the address that `riskad label` printed. Each address works once; a new "
    "one is in its terminal."
)


@dataclass
class Access:
    """Tokens, sessions and names of a server.

    Parameters
    ----------
    scheme
        "http" or "https".
    hosts
        What the header Host may be, with the port.
    cookie
        Name of the cookie; servers on other ports have others.
    frames
        Who may show the page inside another one.
    announce
        Called with a new token when somebody came with a spent one or none.
    """

    scheme: str
    hosts: frozenset[str]
    cookie: str = "riskad"
    frames: str = "'none'"
    announce: Callable[[str], object] = lambda token: None
    _tokens: set[str] = field(default_factory=set)
    _sessions: dict[str, str] = field(default_factory=dict)

    def invite(self) -> str:
        """Return a new token, which opens the page once."""
        token = secrets.token_urlsafe(32)
        self._tokens.add(token)
        return token

    def spend(self, token: str) -> str | None:
        """Return a new session for a token; None if it is not one, or spent."""
        found = [each for each in self._tokens if same_secret(each, token)]
        if not found:
            return None
        self._tokens.discard(found[0])
        session = secrets.token_urlsafe(32)
        self._sessions[session] = secrets.token_urlsafe(32)
        return session

    def csrf_of(self, session: str) -> str | None:
        """Return what requests of a session that write have to carry; None if there is none."""
        for each, csrf in self._sessions.items():
            if same_secret(each, session):
                return csrf
        return None

    def refused(self) -> None:
        """Let the owner of the terminal have a new address, unless one is unused."""
        if not self._tokens:
            self.announce(self.invite())


class Guard:
    """What every request passes before the pages see it, and every answer after."""

    def __init__(self, app: App, access: Access):
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers()]
            await send(message)

        try:
            welcome = self._check(scope)
        except Refusal as refusal:
            await reply(send_guarded, refusal.status, "text/plain", refusal.reason)
            return
        if welcome is not None:
            await reply(send_guarded, 200, "text/html", _WELCOME, [("set-cookie", welcome)])
            return
        await self._app(scope, receive, send_guarded)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        policy = {"content-security-policy": _POLICY.format(frames=self._access.frames)}
        return [(n.encode(), v.encode()) for n, v in (ANSWER_HEADERS | policy).items()]

    def _check(self, scope: Scope) -> str | None:
        """Refuse what may not be served; gives the cookie for somebody who comes with a token."""
        access, headers = self._access, Headers(scope["headers"])
        headers.check_length()
        if headers.only("host") not in access.hosts:
            raise Refusal(421, "This server answers only to the address that it printed.")
        if scope["method"] not in ("GET", "POST"):
            raise Refusal(405, "Only GET and POST are served.")
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if token and scope["path"] == "/" and scope["method"] == "GET":
            return self._welcome(token[0], headers)
        if headers.only("sec-fetch-site") == "cross-site" and scope["path"] != "/":
            raise Refusal(403, "Another site asked for this.")
        csrf = access.csrf_of(_cookie(headers.only("cookie"), access.cookie))
        if csrf is None:
            access.refused()
            raise Refusal(403, _NO_ACCESS)
        if scope["method"] == "POST":
            self._check_write(headers, csrf)
        scope["riskad_csrf"], scope["riskad_known"] = csrf, True
        return None

    def _welcome(self, token: str, headers: Headers) -> str:
        """The cookie of a new session, or the one that is there: its other tabs go on with it."""
        known = _cookie(headers.only("cookie"), self._access.cookie)
        new = self._access.spend(token)
        session = new if self._access.csrf_of(known) is None else known
        if session is None:
            self._access.refused()
            raise Refusal(403, _NO_ACCESS)
        return f"{self._access.cookie}={session}; {self._attributes()}"

    def _attributes(self) -> str:
        secure = "; Secure" if self._access.scheme == "https" else ""
        return f"HttpOnly; SameSite=Strict; Path=/{secure}"

    def _check_write(self, headers: Headers, csrf: str) -> None:
        if headers.only("origin") != f"{self._access.scheme}://{headers.only('host')}":
            raise Refusal(403, "Only the page itself may write (Origin).")
        if not same_secret(headers.only(CSRF_HEADER), csrf):
            raise Refusal(403, f"Only the page itself may write ({CSRF_HEADER}).")
        if headers.only("content-type").partition(";")[0].strip() != "application/json":
            raise Refusal(415, "Send JSON.")
        length = headers.only("content-length")
        if not length.isdecimal():
            raise Refusal(411, "Say how long the body is (Content-Length).")
        if int(length) > LARGEST_BODY:
            raise Refusal(413, f"The body is longer than {LARGEST_BODY:,} bytes.")


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
