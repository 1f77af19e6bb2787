"""The web server: HTTP/1.1 with bounded heads and time limits for slow clients."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from riskad.core.checks import InputError
from riskad.storage.files import check_input_file
from riskad.web.binding import Binding
from riskad.web.guarding import App

__all__ = ["HEAD_SECONDS", "REQUEST_SECONDS", "make_server"]

HEAD_SECONDS = 10.0
"""Time limit for the head of a request."""
REQUEST_SECONDS = 120.0
"""Time limit for a whole request, until the client has read the answer."""
_LOOK_SECONDS = 2.0


class Impatient(H11Protocol):
    """A connection that is closed when its client takes too long to send a head or read an answer.

    uvicorn bounds the time between requests (keep-alive), but neither the time in which a client
    sends a head, nor that in which it reads an answer: a client that sends a byte a minute, or
    never reads, would hold a connection and its memory forever.
    """

    _since: float
    _look: asyncio.TimerHandle

    def connection_made(self, transport: Any) -> None:
        """Start the clock."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop checking, and free the buffers of the connection.

        uvicorn would keep the buffers of a connection that was reset until its time between
        requests is over.
        """
        self._look.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Start the clock at the first byte of a request."""
        if self.timeout_keep_alive_task is not None:
            self._since = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Start the clock for what the client still has to read."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _look_again(self) -> None:
        if self.loop.time() - self._since > self._patience():
            self.transport.abort()
            return
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_again)

    def _patience(self) -> float:
        if self.transport.get_write_buffer_size():
            return REQUEST_SECONDS
        if self.timeout_keep_alive_task is not None:
            return float("inf")  # between requests, which uvicorn ends
        at_work = self.cycle is not None and not self.cycle.response_complete
        return REQUEST_SECONDS if at_work else HEAD_SECONDS


def make_server(
    app: App, binding: Binding, *, most_connections: int = 200, grace_seconds: int = 1
) -> uvicorn.Server:
    """Return a server that runs with `serve(sockets=[binding.bound()])`.

    Parameters
    ----------
    app
        The application, behind its guard.
    binding
        Where it listens.
    most_connections
        Further clients are told to try again (503).
    grace_seconds
        How long running requests may take when the server is to end.
    """
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http=Impatient,  # h11, which bounds the headers of a request
        limit_concurrency=most_connections,
        h11_max_incomplete_event_size=32_768,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=grace_seconds,
        **_tls(binding),
    )
    try:
        config.load()
    except (ssl.SSLError, ValueError) as error:
        raise InputError(
            f"The certificate or its key cannot be used: {error}. Both must be PEM, and belong "
            "together."
        ) from error
    return uvicorn.Server(config)


def _tls(binding: Binding) -> dict[str, Any]:
    if binding.certificate is None:
        return {}
    for file in (binding.certificate, binding.key, binding.client_ca):
        if file is not None:
            check_input_file(file)
    said = {"ssl_certfile": str(binding.certificate), "ssl_keyfile": str(binding.key)}
    if binding.client_ca is None:
        return said
    return said | {"ssl_ca_certs": str(binding.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
