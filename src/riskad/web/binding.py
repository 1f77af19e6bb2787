"""Where a server listens, and which host names it accepts."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

from riskad.core.checks import InputError

__all__ = ["Binding"]


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
    client_ca: Path | None = None
    """Certificates of the authorities that sign client certificates, which are then required."""

    def check(self) -> None:
        """Refuse to serve other machines in plain text."""
        if (self.certificate is None) != (self.key is None):
            raise InputError("TLS takes two files: tls_cert='...' and tls_key='...'.")
        if self.client_ca is not None and self.certificate is None:
            raise InputError(
                "Clients show a certificate only to a server that has one: give tls_cert='...' and "
                "tls_key='...' besides client_ca='...'."
            )
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
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # asyncio sends small answers at once (TCP_NODELAY) only where the protocol is named.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self.host, self.port))
            sock.listen(128)  # a browser that comes before the server runs waits
        except OSError as error:
            sock.close()
            place = f"{self.host} port {self.port}" if self.port else self.host
            other = "port (0 for any free one)" if self.port else "host"
            raise InputError(
                f"Cannot listen on {place}: {error.strerror}. Give another {other}."
            ) from error
        return sock

    def hosts(self, port: int) -> frozenset[str]:
        """Return the host names that a browser may use."""
        names = {*self.names, f"[{self.host}]" if ":" in self.host else self.host}
        if self.local:
            names |= {"127.0.0.1", "localhost", "[::1]"}
        else:
            names |= {socket.gethostname(), socket.getfqdn()}
        return frozenset(f"{name}:{port}".lower() for name in names)

    def shown_host(self) -> str:
        """Return the name to print."""
        if self.host in ("0.0.0.0", "::"):
            return self.names[0] if self.names else socket.gethostname().lower()
        return f"[{self.host}]" if ":" in self.host else self.host
