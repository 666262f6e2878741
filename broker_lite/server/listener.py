"""A bound listener: its settings, its advertised address, its keys."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkonce.broker_lite.node.request import Endpoint
from sparkonce.broker_lite.security.settings import ListenerConfig

if TYPE_CHECKING:
    import ssl


class ServerError(Exception):
    """The broker cannot start; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Listener:
    """The listener of a connection, as connections need it."""

    config: ListenerConfig
    endpoint: Endpoint
    context: ssl.SSLContext | None = None

    @property
    def failed_delay_s(self) -> float:
        """How long the response to a failed authentication is delayed."""
        return self.config.sasl.failed_delay_ms / 1000 if self.config.sasl is not None else 0.0


def bind(config: ListenerConfig) -> tuple[socket.socket, Listener]:
    """Bind a listener, before clients can connect. Raises ServerError if address, keys or certificates do not work."""
    context = _context(config) if config.tls is not None else None
    sock = _bound(config)
    port: int = config.advertised_port or sock.getsockname()[1]
    return sock, Listener(config, Endpoint(config.advertised_host, port), context)


def _context(config: ListenerConfig) -> ssl.SSLContext:
    # Imported lazily: faster start of a broker without TLS.
    from sparkonce.broker_lite.security.tls import TlsError, server_context

    try:
        return server_context(config)
    except TlsError as error:
        raise ServerError(str(error)) from error


def _bound(config: ListenerConfig) -> socket.socket:
    host, port = config.host, config.port
    where = f"listener {config.name}: host {host!r}"
    try:
        # A str would load the IDNA tables, which few need.
        name = host.encode() if host.isascii() else host
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ServerError(f"{where} cannot be resolved: {error}") from error
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
        except OSError as error:
            foreign = error.errno == errno.EADDRNOTAVAIL
            remedy = "choose an address of this machine" if foreign else "choose another port, or 0 for any"
            raise ServerError(f"cannot listen on {host}:{port} ({error}): {remedy}") from error
        sock.setblocking(False)
        undo.pop_all()
    return sock
