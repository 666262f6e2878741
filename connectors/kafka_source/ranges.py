"""The ranges that a task reads. Separate from the code that reads them, so that planning does not load the compiler."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition

from sparkonce.kafka.client.metadata import Leader


class RecreatedTopicError(RuntimeError):
    """A topic was deleted and created again under the same name, so saved offsets mean nothing in it."""


class NoLeaderError(RuntimeError):
    """A partition had no leader when its batch was planned, and other topics do not wait for it."""


@dataclass(frozen=True, slots=True)
class FetchRange:
    """The half-open range of offsets ``[start, end)`` to fetch from one partition of the topic with this id.

    In a batch query ``start`` may be EARLIEST and ``end`` LATEST: see `connectors.kafka_source.resolving`.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader: Leader | None = None
    """The leader when the range was planned, which had all of it."""
    epoch: int | None = None
    """The leader epoch of the record before the end of the batch, None if it is not known. Another leader whose log has
    it up to ``end`` has the same records (KIP-320)."""
    lost: bool = False
    """Whether its records are gone, which was reported when it was planned: there is nothing to read."""
    leaderless: bool = False
    """Whether its partition had no leader when it was planned, which is its table's trouble alone: nobody waits."""


@dataclass(slots=True)
class ReadCount:
    """What a task has read so far of its ranges."""

    records: int = 0
    """Those that a consumer may see: without gaps, markers of transactions and aborted records."""
    bytes: int = 0
    """Of the record batches that the brokers returned, compressed as they are."""
    unknown: set[str] = field(default_factory=set)
    """The schemas that records name and the registry does not have, as `RegisteredValues.unknown`."""


@dataclass
class KafkaInputPartition(InputPartition):
    """The ranges that one task reads, in order."""

    wanted: tuple[FetchRange, ...]


def is_same_topic(planned_id: str, found_id: str) -> bool:
    """Compare topic ids; an unknown one (a broker before Kafka 2.8) may be any."""
    return not planned_id or not found_id or planned_id == found_id


def check_same_topic(topic: str, planned_id: str, found_id: str) -> None:
    """Compare topic ids. Raises RecreatedTopicError if they differ."""
    if not is_same_topic(planned_id, found_id):
        raise RecreatedTopicError(
            f"topic {topic} was deleted and created again, or kafka.bootstrap.servers names another cluster: the saved "
            f"offsets belong to topic id {planned_id}, the topic now has id {found_id}. Offsets of the old topic mean "
            "nothing in the new one. Check the servers first. If they are right: to read the new one from its start, "
            "use a new checkpointLocation and startingOffsets=earliest, or set failOnDataLoss=false to continue with "
            "the new one in this query"
        )
