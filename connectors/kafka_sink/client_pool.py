"""Clients for producing, kept in the process from one producer to the next.

Several Produce requests wait for their answers at a time on a connection of such a client, so it carries nothing else.
Each producer has a client of its own as long as it lives; then the next one takes it over, with its connections.
"""

from __future__ import annotations

import os

from sparkonce.connectors.kafka_client.client import Client
from sparkonce.connectors.kafka_client.settings import ClientSettings


class ClientPool:
    """Clients that no producer uses just now."""

    def __init__(self) -> None:
        self._idle: dict[tuple[int, ClientSettings], list[Client]] = {}

    def take(self, settings: ClientSettings) -> Client:
        """Return a client; a forked child gets none of its parent's."""
        idle = self._idle.get((os.getpid(), settings))
        return idle.pop() if idle else Client(settings)

    def put_back(self, client: Client) -> None:
        """Keep a client on which no answer is due."""
        self._idle.setdefault((os.getpid(), client.settings), []).append(client)

    def close(self) -> None:
        """Close the connections of all idle clients."""
        for idle in self._idle.values():
            for client in idle:
                client.close()
        self._idle.clear()


pool = ClientPool()
"""That of this process."""
