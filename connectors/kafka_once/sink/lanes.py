"""Connections for producing, kept in the process from one producer to the next.

A lane is a client whose connections carry Produce requests and nothing else, for several of them wait for their answers
at a time. Each producer has a lane of its own as long as it lives; then the next one takes it, with its connections.
"""

from __future__ import annotations

import os

from sparkonce.connectors.kafka_once.client import Client
from sparkonce.connectors.kafka_once.settings import ClientSettings


class Lanes:
    """Lanes that nobody uses just now."""

    def __init__(self) -> None:
        self._idle: dict[tuple[int, ClientSettings], list[Client]] = {}

    def take(self, settings: ClientSettings) -> Client:
        """Return a lane; a forked child gets none of its parent's."""
        idle = self._idle.get((os.getpid(), settings))
        return idle.pop() if idle else Client(settings)

    def give_back(self, lane: Client) -> None:
        """Keep a lane on which no answer is due."""
        self._idle.setdefault((os.getpid(), lane.settings), []).append(lane)

    def close(self) -> None:
        """Close the connections of idle lanes."""
        for idle in self._idle.values():
            for lane in idle:
                lane.close()
        self._idle.clear()


lanes = Lanes()
"""Those of this process."""
