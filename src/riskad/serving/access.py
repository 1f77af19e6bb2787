"""Who may send requests: every request is checked here first, and every answer passes here.

- The server only answers to its own names (Host), except for /health, which is called by address.
- Every request except /health carries a token: `Authorization: Bearer ...`. If clients show a
  certificate (mTLS), it may replace the token.
- A body states its length before it is read, and is JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from riskad.serving.answers import refuse
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

__all__ = ["JSON", "Access", "Guard"]

JSON = "application/json"
_HEADERS = [
    (name.encode(), value.encode())
    for name, value in (
        ANSWER_HEADERS | {"content-security-policy": "default-src 'none'; frame-ancestors 'none'"}
    ).items()
]
_NO_TOKEN = (
    "Send the token that `riskad serve` printed, or was started with, in a header "
    "'Authorization: Bearer TOKEN'."
)


@dataclass(frozen=True)
class Access:
    """Names of a server, its token (None: a certificate of the client is enough), and a bound."""

    hosts: frozenset[str]
    token: str | None
    largest_body: int


class Guard:
    """Refuses requests that may not be served, and counts answers.

    Parameters
    ----------
    app
        The application. Its scope says whether the request has shown the token (`riskad_known`),
        and how long its body is (`riskad_length`).
    access
        Who may send requests.
    answered
        Called with scope, status and seconds of each request.
    """

    def __init__(self, app: App, access: Access, answered: Callable[[Scope, int, float], object]):
        self._app, self._access, self._answered = app, access, answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not served")
        started, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        try:
            self._check(scope)
        except Refusal as refusal:
            more = [("www-authenticate", "Bearer")] if refusal.status == 401 else []
            answer = refuse(refusal.status, refusal.reason)
            await reply(send_guarded, answer.status, JSON, answer.body, more)
        else:
            await self._app(scope, receive, send_guarded)
        self._answered(scope, status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope["headers"])
        headers.check_length()
        known = scope["riskad_known"] = self._knows_token(headers)
        if scope["path"] != "/health":
            if headers.only("host").lower() not in self._access.hosts:
                raise Refusal(
                    421,
                    "This server does not answer to that name; start it with --name HOST if it is "
                    "one of its own.",
                )
            if not known:
                raise Refusal(401, _NO_TOKEN)
        if scope["method"] not in ("GET", "POST"):
            raise Refusal(405, "Only GET and POST are served.")
        scope["riskad_length"] = self._length(headers) if scope["method"] == "POST" else 0

    def _knows_token(self, headers: Headers) -> bool:
        if self._access.token is None:
            return True
        scheme, _, token = headers.only("authorization").partition(" ")
        return scheme.lower() == "bearer" and same_secret(token.strip(), self._access.token)

    def _length(self, headers: Headers) -> int:
        """The length of the body that follows."""
        if headers.only("content-type").partition(";")[0].strip().lower() != JSON:
            raise Refusal(415, f"Send JSON, and say so: 'Content-Type: {JSON}'.")
        if headers.only("content-encoding").lower() not in ("", "identity"):
            raise Refusal(415, "Send the body as it is, without Content-Encoding.")
        length, most = headers.only("content-length"), self._access.largest_body
        if not (length.isascii() and length.isdecimal()):
            raise Refusal(411, "Say how long the body is (Content-Length).")
        if len(length) > 12 or int(length) > most:
            raise Refusal(413, f"The body is longer than {most:,} bytes; send fewer rows at once.")
        return int(length)
