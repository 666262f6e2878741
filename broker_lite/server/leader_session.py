"""A follower's side of its fetch session with a leader (KIP-227; Kafka's FetchSessionHandler).

Theory of operation: the leader remembers the requested partitions, so a request names only new, changed and forgotten
ones. This class tracks the leader's state. Only the request that begins a session iterates over all partitions: a
follower of thousands of idle partitions does nothing for each of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.node.fetch_sessions import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch
from sparkonce.kafka.protocol.fetch import FetchPartition, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable

    from sparkonce.broker_lite.controller.image import PartitionKey


class LeaderSession:
    """What the leader's session has of this follower; without a session, the last request."""

    def __init__(self) -> None:
        self.session_id = INVALID_SESSION_ID
        self.epoch = INITIAL_EPOCH
        """The epoch of the next request; at INITIAL_EPOCH it names everything."""
        self._asked: dict[PartitionKey, FetchPartition] = {}
        self._changed: set[PartitionKey] = set()
        self._forgotten: set[PartitionKey] = set()

    @property
    def begins(self) -> bool:
        """Whether the next request begins a session, and names everything."""
        return self.epoch == INITIAL_EPOCH

    def want(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Fetch a partition from now on."""
        if self._asked.get(key) != wanted:
            self._asked[key] = wanted
            self._changed.add(key)
            self._forgotten.discard(key)

    def leave(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        if self._asked.pop(key, None) is not None:
            self._changed.discard(key)
            self._forgotten.add(key)

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """Return the last request for a partition, if there was one."""
        return self._asked.get(key)

    def take_changes(self) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return the partitions of the next request: all to begin a session, else changed and forgotten ones."""
        named: Iterable[PartitionKey] = self._asked if self.begins else self._changed
        wanted: dict[uuid.UUID, list[FetchPartition]] = {}
        for key in named:
            wanted.setdefault(key[0], []).append(self._asked[key])
        gone: dict[uuid.UUID, list[int]] = {}
        for topic_id, index in () if self.begins else self._forgotten:
            gone.setdefault(topic_id, []).append(index)
        self._changed.clear()
        self._forgotten.clear()
        return (
            [FetchTopic("", topic_id, partitions) for topic_id, partitions in wanted.items()],
            [ForgottenTopic("", topic_id, indexes) for topic_id, indexes in gone.items()],
        )

    def begin(self) -> None:
        """Begin a new session with the next request: the leader's state is unknown."""
        self.epoch = INITIAL_EPOCH

    def answered(self, session_id: int) -> None:
        """Continue the session that a response names; a leader whose cache is full names none."""
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH if session_id == INVALID_SESSION_ID else next_epoch(self.epoch)
