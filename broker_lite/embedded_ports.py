"""The ports of a broker that may be down: reserved, so that no other process gets them until it is back.

Theory of operation: a port that no socket is bound to may become the local end of any connection that is made
meanwhile, even of a client that tries to reach the broker there, and then cannot be listened on. A socket that is bound
to it, and never listens, keeps it out of what the system chooses from; with SO_REUSEADDR on both, the broker's own can
be bound beside it and listen. While the broker is down, connections are refused as usual.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.security.settings import ListenerConfig


class HeldPorts:
    """A socket bound to the address of each listener; ports that were left open are chosen here."""

    def __init__(self, config: BrokerConfig) -> None:
        """Bind; what cannot be had is left to the broker, which says why it cannot listen there."""
        self._config = config
        self._sockets: dict[str, socket.socket] = {}
        for each in config.listener_configs:
            with contextlib.suppress(OSError):
                self._sockets[each.name] = _bound(each)

    def settings(self) -> Mapping[str, object]:
        """Return the settings by which the broker listens on these ports."""
        if not self._config.security.listeners:
            (only,) = self._config.listener_configs
            return {"port": self._port(only)}
        return {"listeners": ",".join(map(self._url, self._config.listener_configs))}

    def close(self) -> None:
        """Release the ports; a second call does nothing."""
        for each in self._sockets.values():
            each.close()
        self._sockets.clear()

    def _url(self, listener: ListenerConfig) -> str:
        host = f"[{listener.host}]" if ":" in listener.host else listener.host
        return f"{listener.name}://{host}:{self._port(listener)}"

    def _port(self, listener: ListenerConfig) -> int:
        held = self._sockets.get(listener.name)
        return listener.port if held is None else int(held.getsockname()[1])


def _bound(listener: ListenerConfig) -> socket.socket:
    """Bind as `broker_lite.server.listener` does.

    Raises:
        OSError: if the address cannot be resolved, or is in use.
    """
    found = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        undo.pop_all()
    return sock
