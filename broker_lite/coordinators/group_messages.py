"""Input and output of a classic group's state machine; a ``token`` identifies a request that waits for its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sparkonce.kafka.protocol.errors import ErrorCode

NO_GENERATION = -1
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000
"""How long a member may wait in its first rebalance; Kafka's group.new.member.join.timeout.ms, which is fixed too."""


class GroupState(Enum):
    """The states of a classic group; the values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings for groups."""

    min_session_timeout_ms: int
    max_session_timeout_ms: int
    initial_rebalance_delay_ms: int
    max_size: int


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request. ``new_member_id`` is used if the member has none; the caller generates it."""

    token: object
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    require_known_member_id: bool = False
    supports_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup request; a None protocol type or name is not compared (versions before 5)."""

    token: object
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """The answer to a Join; ``members`` (id, instance id, subscription) is filled in for the leader only."""

    token: object
    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """The answer to a Sync."""

    token: object
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


Answer = JoinAnswer | SyncAnswer


def refused(answer: Answer, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> Answer:
    """Return the answer to the same request that makes its member retry."""
    if isinstance(answer, JoinAnswer):
        return JoinAnswer(answer.token, error, answer.member_id)
    return SyncAnswer(answer.token, error)


@dataclass(slots=True)
class Member:
    """One member; at most one of the two tokens is set."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    session_deadline_ms: int
    supports_skip_assignment: bool = False
    assignment: bytes = b""
    awaiting_join: object | None = None
    awaiting_sync: object | None = None
    synced: bool = field(default=False)
    is_new: bool = field(default=False)
    """Whether its first rebalance is not complete: it may wait for that up to a limit, then it is removed."""

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the subscription that this member sent for one protocol."""
        return next((data for name, data in self.protocols if name == protocol_name), b"")

    @property
    def waits(self) -> bool:
        """Whether a request of the member is held: it cannot send heartbeats then, and is not expected to.

        A new member has a limit: if its client gave up, nothing would show it.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
