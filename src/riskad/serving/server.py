"""A service on a port."""

from __future__ import annotations

import asyncio
import secrets
import warnings

from riskad.core.checks import InputError
from riskad.serving.access import Access, Guard
from riskad.serving.service import Service
from riskad.web.binding import Binding
from riskad.web.listening import make_server

__all__ = ["Server", "check_token", "make_token"]

_SHORTEST_TOKEN = 16


def make_token() -> str:
    """Return a new token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return a token without surrounding blanks; refuse one that could be guessed.

    >>> check_token(" correct-horse-battery ")
    'correct-horse-battery'
    """
    token = token.strip()
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise InputError(
            f"The token must be one line of at least {_SHORTEST_TOKEN} ASCII letters, digits or "
            "signs. `openssl rand -base64 32` makes one."
        )
    return token


class Server:
    """Serves a model.

    Parameters
    ----------
    service
        The service.
    binding
        Where to listen.
    token
        The token that requests must carry; None only if clients show a certificate.
    """

    def __init__(self, service: Service, binding: Binding, token: str | None):
        binding.check()
        if token is None and binding.client_ca is None:
            raise InputError("Without certificates of clients there must be a token.")
        self.service = service
        self._socket = binding.bound()
        port = self._socket.getsockname()[1]
        self.root = f"{binding.scheme}://{binding.shown_host()}:{port}"
        access = Access(binding.hosts(port), token, service.limits.body)
        guard = Guard(service, access, service.answered)
        try:
            self._server = make_server(guard, binding, most_connections=1_000, grace_seconds=30)
        except BaseException:
            self._socket.close()
            raise

    def run(self) -> None:
        """Serve until interrupted; running requests are answered first."""
        try:
            with warnings.catch_warnings():
                # Messages about rows are in the answers; nothing else may accumulate.
                warnings.simplefilter("ignore")
                asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self.close()

    def close(self) -> None:
        """Release the port, and end the service."""
        self._socket.close()
        self.service.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True
