"""Where a server listens, and the web server: HTTP/1.1 with time limits for slow clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from riskad.core.checks import InputError
from riskad.files.atomic import check_input_file

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

HEAD_SECONDS = 10.0  # for the head of a request
REQUEST_SECONDS = 120.0  # for a whole request, until the client has read the answer
_LOOK_SECONDS = 2.0  # between looks at a connection; limits are exceeded by no more than that


@dataclass(frozen=True)
class Binding:
    """Where a server listens: port 0 is any free port, `names` are further names of the host.

    Other machines can reach a server that is not bound to a loopback address. This needs a
    certificate, or an explicit statement that the network is safe.
    """

    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse to serve other machines in plain text."""
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS takes two files: tls_cert='...' and tls_key='...'.")
        if self.local or self.certificate is not None or self.insecure:
            return
        raise InputError(
            f"host={self.host!r} lets other machines reach this server, and what they send and see "
            "could be read on the way. Give a certificate (tls_cert='...' and tls_key='...'), or "
            "say insecure=True if nobody else is on the network."
        )

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        """The scheme of its address."""
        return "http" if self.certificate is None else "https"

    def bound(self) -> socket.socket:
        """Return a listening socket, on its own port."""
        is_six = ":" in self.host
        try:
            sock = socket.create_server(
                (self.host, self.port),
                family=socket.AF_INET6 if is_six else socket.AF_INET,
                backlog=128,  # a browser that comes before the server runs waits
                dualstack_ipv6=is_six and socket.has_dualstack_ipv6(),
            )
        except OSError as error:
            place = f"{self.host} port {self.port}" if self.port else self.host
            other = "port (0 for any free one)" if self.port else "host"
            reason = str(error.strerror).partition(" (while")[0]
            raise InputError(
                f"Cannot listen on {place}: {reason}. Give another {other}."
            ) from error
        # Small answers go at once; asyncio would say so only of sockets that name their protocol.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def hosts(self, port: int) -> frozenset[str]:
        """Return the host names that a browser may use."""
        names = {*self.names, f"[{self.host}]" if ":" in self.host else self.host}
        if self.local:
            names |= {"127.0.0.1", "localhost", "[::1]"}
        else:
            # Under which other machines know this one.
            names |= {socket.gethostname(), socket.getfqdn()}
        return frozenset(f"{name}:{port}".lower() for name in names)


class TimeoutProtocol(H11Protocol):
    """A connection that is closed when its client takes too long, or when others need its place.

    uvicorn bounds the time between requests (keep-alive), but neither the time in which a client
    sends a head, nor that in which it reads an answer: a client that sends a byte a minute, or
    never reads, would hold a connection and its memory forever. And where there are as many
    connections as there may be, it refuses everybody: connections on which nobody showed a token
    would lock out those who have one. Here a new connection takes the place of one that waits for
    a request, first of those whose last request showed no token (`riskad_trusted` in its scope).

    TLS begins here, too: asyncio would do it before it makes a connection, so that clients that
    connect and say nothing would be neither counted nor closed.
    """

    _since: float
    _look: asyncio.TimerHandle

    def __init__(self, *arguments: Any, tls: ssl.SSLContext | None = None, **settings: Any):
        super().__init__(*arguments, **settings)
        self._tls, self._early = tls, b""

    def connection_made(self, transport: Any) -> None:
        """Start the clock and TLS, and close the connection that waited longest of too many."""
        self.transport = transport
        self._since = self.loop.time()
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_again)
        self.connections.add(self)
        assert self.limit_concurrency is not None
        if len(self.connections) >= self.limit_concurrency:
            others: Any = self.connections - {self}
            waiting = [each for each in others if not each._at_work]
            if waiting:
                # Those without a token first (False < True), then the oldest.
                longest = min(waiting, key=lambda each: (each._trusted, each._since))
                # At once: `connection_lost`, which would do it, comes later.
                self.connections.discard(longest)
                longest.transport.abort()
        if self._tls is None:
            super().connection_made(transport)
            return
        # Nothing may be read as HTTP before the handshake.
        transport.pause_reading()
        self._handshake = self.loop.create_task(self._start_tls(self._tls))

    async def _start_tls(self, tls: ssl.SSLContext) -> None:
        secured = None
        with suppress(OSError):  # also mistakes of TLS
            secured = await self.loop.start_tls(self.transport, self, tls, server_side=True)
        if secured is None:
            self.connection_lost(None)
            return
        super().connection_made(secured)
        if self._early:
            self.data_received(self._early)

    @property
    def _trusted(self) -> bool:
        return self.scope is not None and bool(self.scope.get("riskad_trusted"))

    @property
    def _at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

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
        if self.flow is None:  # it came with the end of the handshake
            self._early += data
            return
        if self.timeout_keep_alive_task is not None:
            self._since = self.loop.time()
        super().data_received(data)

    def on_response_complete(self) -> None:
        """Start the clock for what the client still has to read."""
        self._since = self.loop.time()
        super().on_response_complete()

    def _look_again(self) -> None:
        seconds = REQUEST_SECONDS  # until the client has read the answer
        if not self.transport.get_write_buffer_size():
            if self.timeout_keep_alive_task is not None:
                seconds = float("inf")  # between requests, which uvicorn ends
            elif not self._at_work:
                seconds = HEAD_SECONDS
        if self.loop.time() - self._since > seconds:
            self.transport.abort()
            return
        self._look = self.loop.call_later(_LOOK_SECONDS, self._look_again)


class WebServer:
    """An application on a port."""

    _server: uvicorn.Server

    def __init__(self, binding: Binding):
        binding.check()
        self._binding, self._socket = binding, binding.bound()
        self.port = self._socket.getsockname()[1]
        host = f"[{binding.host}]" if ":" in binding.host else binding.host
        if binding.host in ("0.0.0.0", "::"):
            host = binding.names[0] if binding.names else socket.gethostname().lower()
        self.root = f"{binding.scheme}://{host}:{self.port}"
        self.hosts = binding.hosts(self.port)

    def mount(self, app: Any, *, most_connections: int = 200, grace_seconds: int = 1) -> None:
        """Say what is served."""
        binding = self._binding
        try:
            config = uvicorn.Config(
                app,
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                lifespan="off",
                ws="none",
                http=TimeoutProtocol,  # h11, which bounds the headers of a request
                # Half of the files that may be open: the rest is for models, journals and tables.
                limit_concurrency=min(most_connections, _most_files() // 2),
                backlog=128,  # as many may be accepted before the first of them is counted
                h11_max_incomplete_event_size=32_768,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=grace_seconds,
                ssl_certfile=binding.certificate and check_input_file(binding.certificate),
                ssl_keyfile=binding.key and str(check_input_file(binding.key)),
            )
            config.load()
            # uvicorn must not begin TLS itself: `TimeoutProtocol` does.
            tls, config.ssl = config.ssl, None
            config.http_protocol_class = partial(TimeoutProtocol, tls=tls)  # type: ignore[assignment]
        except InputError:
            self._socket.close()
            raise
        except (ssl.SSLError, ValueError) as error:
            self._socket.close()
            raise InputError(
                f"The certificate or its key cannot be used: {error}. Both must be PEM, and belong "
                "together."
            ) from error
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until interrupted; requests that are under way are answered first."""
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self.close()

    def close(self) -> None:
        """Release the port."""
        self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True


def _most_files() -> int:
    """How many files and connections this process may open."""
    if resource is None:
        return 512  # Windows without changes
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
