"""The members of a group, asked for while its page is open."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparkonce.jobs.ui.kafka.loop import PROBLEMS
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.groups import GroupMember, group_members
from sparkonce.kafka.client.settings import ClientSettings

KEPT_S = 1.0
"""How long a response is cached."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of one group, or why they are unknown."""

    all: Sequence[GroupMember] = ()
    problem: str | None = None


class MembersReader:
    """Requests members, and caches the last response briefly; any thread may call it."""

    def __init__(self, settings: ClientSettings) -> None:
        self._client = Client(settings)
        self._lock = threading.Lock()
        self._kept: tuple[str, float, Members] = "", 0.0, Members()
        self._is_closed = False

    def of(self, group_id: str, kind: str) -> Members:
        """Return the members of a group of this kind."""
        with self._lock:
            name, at, known = self._kept
            if self._is_closed or (name == group_id and time.monotonic() - at < KEPT_S):
                return known  # a page that is still being read opens no connection after the end
            try:
                found = Members(group_members(self._client, group_id, kind))
            except PROBLEMS as error:
                found = Members(problem=str(error))
            self._kept = group_id, time.monotonic(), found
            return found

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._is_closed = True
            self._client.close()
