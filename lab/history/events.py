"""Events of a history: what Kafka clients report of their actions, one JSON object per line.

Theory of operation: each client (producer, consumer, reader of a result table) writes a file, or several share one,
distinguished by the field `client`. Names and fields are those of Kafka's own VerifiableProducer and
VerifiableConsumer (org.apache.kafka.tools) wherever these have them, so the output of those tools can be read too;
`docs/internals/histories.md` lists all of them. `reading.py` makes these types from text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class HistoryError(ValueError):
    """A history that cannot be read or checked; the message says where, and the remedy."""


class Outcome(StrEnum):
    """What a client knows about the outcome of a request."""

    SUCCESS = "success"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Isolation(StrEnum):
    """Kafka's `isolation.level`."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class ResetPolicy(StrEnum):
    """Kafka's `auto.offset.reset`."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class Partition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionOffset(NamedTuple):
    """One offset of one partition."""

    topic: str
    partition: int
    offset: int

    @property
    def of(self) -> Partition:
        """Its partition."""
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"offset {self.offset} of {self.of}"


class End(NamedTuple):
    """A reader's position in one partition: everything from `start_offset` to below `offset` was read."""

    partition: Partition
    offset: int
    start_offset: int


class Where(NamedTuple):
    """A line of a history."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The fields of every event. `name` is as in the file; `client` distinguishes clients that share a file."""

    name: str
    where: Where
    client: str

    @property
    def stream(self) -> tuple[str, str]:
        """The client that wrote it: within a stream, lines are in order of time."""
        return (self.where.file, self.client)


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup(Event):
    """`startup_complete`: a client starts. A later one in the same stream is a restart of the client."""

    isolation: Isolation
    reset_policy: ResetPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStarted(Event):
    """`producer_send_started`: a record is about to be passed to the client library."""

    topic: str
    value: str | None
    transaction: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSucceeded(Event):
    """`producer_send_success`: the broker acknowledged a record. Offset -1: it did not return one (acks=0)."""

    place: PartitionOffset
    value: str | None
    transaction: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendFailed(Event):
    """`producer_send_error`: the record was certainly not written (`failed`), or that is unknown (`unknown`)."""

    topic: str
    value: str | None
    transaction: int | None
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep(Event):
    """`transaction_begin`, `transaction_commit_started`, `transaction_commit` or `transaction_abort`."""

    transaction: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentChanged(Event):
    """`partitions_assigned` or `partitions_revoked`: a consumer's position may change here.

    Each partition has the offset from which the consumer starts, if it knows.
    """

    partitions: tuple[tuple[Partition, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek(Event):
    """`seek`: a consumer sets its position."""

    place: PartitionOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRead(Event):
    """`record_data`: one record of a poll."""

    place: PartitionOffset
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsConsumed(Event):
    """`records_consumed`: a poll, after its `record_data`."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReached(Event):
    """`end_reached`: a consumer read to the end; `final`: no producer was writing any more."""

    ends: tuple[End, ...]
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow(Event):
    """`result_row`: one row of a result table, with its record's partition and offset if the table keeps them."""

    topic: str
    value: str | None
    place: PartitionOffset | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEnd(Event):
    """`result_end`: the result table has everything below these offsets, by its stored offsets."""

    ends: tuple[End, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark(Event):
    """Events that the checker ignores: `shutdown_complete`, `tool_data`, `offsets_committed`, …."""
