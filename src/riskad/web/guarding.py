"""Shared code of the servers' guards: headers of requests and answers, secrets, refusals."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

__all__ = [
    "ANSWER_HEADERS",
    "App",
    "Headers",
    "Message",
    "Receive",
    "Refusal",
    "Scope",
    "Send",
    "reply",
    "same_secret",
]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

ANSWER_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""With every answer: a browser may guess no types, tell nobody where it was, and keep nothing."""


class Refusal(Exception):
    """A request that is not served, with its status and the reason."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status, self.reason = status, reason


class Headers:
    """Headers of a request; a duplicated header counts as missing."""

    def __init__(self, raw: Iterable[tuple[bytes, bytes]]):
        self._found: dict[str, list[str]] = {}
        for name, value in raw:
            self._found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def only(self, name: str) -> str:
        """Return the value of a header; blank if it is missing or duplicated."""
        values = self._found.get(name, [])
        return values[0] if len(values) == 1 else ""

    def check_length(self) -> None:
        """Refuse a body of two lengths, of which a proxy before us may have read the other."""
        if self._found.keys() >= {"content-length", "transfer-encoding"}:
            raise Refusal(400, "Send Content-Length or Transfer-Encoding, not both.")


def same_secret(first: str, second: str) -> bool:
    """Compare secrets in constant time."""
    return secrets.compare_digest(first.encode(), second.encode())


async def reply(
    send: Send,
    status: int,
    kind: str,
    body: str | bytes,
    headers: Iterable[tuple[str, str]] = (),
) -> None:
    """Send a whole answer of a kind such as "text/plain"."""
    data = body.encode() if isinstance(body, str) else body
    told = [("content-type", f"{kind}; charset=utf-8"), ("content-length", str(len(data)))]
    encoded = [(n.encode(), v.encode()) for n, v in (*told, *headers)]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": data})
