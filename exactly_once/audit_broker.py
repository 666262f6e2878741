"""Stored offsets compared with the broker's logs, to check that each chain can continue from its end.

A stored offset must lie within the log of its partition, of the same topic that it was read from. If it is below the
log start offset, records expired that were never read. If it is past the end, or has another topic id, this is not
the topic that was read. If the log no longer has the leader epoch stored with the offset, it is not the log that was
read. The distance to the end is the lag, which is no error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkonce.exactly_once.audit_findings import Chain, Finding, Problem
from sparkonce.offset_store.offsets import lag


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """The offsets of a partition on the broker: log start offset and log end offset."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic as the broker has it now; the id is "" for brokers without topic ids (Kafka before 2.8)."""

    topic_id: str
    partitions: Mapping[int, PartitionLog]


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """The broker's state for one chain; the lag is None if the chain is not of the broker's topic."""

    log: PartitionLog | None
    lag: int | None


def compare_with_broker(
    chains: Iterable[Chain], topics: Mapping[str, BrokerTopic | None]
) -> tuple[list[BrokerSide], list[Finding]]:
    """Compare each chain with the topic of its name, None if there is none; returns one side for each chain, in order.

    A chain whose topic id is an older one is over, not broken, if another chain of the same source has the new one.
    """
    known_ids: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    chains = list(chains)
    for chain in chains:
        known_ids[chain.app_id, chain.source, chain.topic].add(chain.topic_id)
    sides, findings = [], []
    for chain in chains:
        ids = known_ids[chain.app_id, chain.source, chain.topic]
        side, finding = _compare(chain, topics.get(chain.topic), ids)
        sides.append(side)
        if finding is not None:
            findings.append(finding)
    return sides, findings


def _compare(chain: Chain, topic: BrokerTopic | None, known_ids: set[str]) -> tuple[BrokerSide, Finding | None]:
    nothing = BrokerSide(None, None)
    if topic is None:
        return nothing, Finding(Problem.TOPIC_DELETED, f"{chain}: {_no_topic(chain)}", None, chain)
    if chain.topic_id and topic.topic_id and chain.topic_id != topic.topic_id:
        if topic.topic_id in known_ids:
            return nothing, None
        message = f"the topic was deleted and created again: offsets are of {chain.topic_id}, it is now "
        return nothing, Finding(Problem.TOPIC_RECREATED, f"{chain}: {message}{topic.topic_id}", None, chain)
    log = topic.partitions.get(chain.partition)
    if log is None:
        message = f"the topic no longer has this partition (it has {len(topic.partitions)}): it was created again"
        return nothing, Finding(Problem.TOPIC_RECREATED, f"{chain}: {message}", None, chain)
    if chain.stored is None:
        return BrokerSide(log, None), None
    side = BrokerSide(log, lag(chain.stored, log.end))
    if chain.parted_at is not None:
        message = (
            f"records [{chain.parted_at}, {chain.stored}) of {chain.topic_partition} that were written have been "
            f"replaced in the broker's log, or are gone: it no longer has the record of leader epoch {chain.epoch} "
            f"before offset {chain.stored}. It was truncated, by an unclean leader election or a broker restored to "
            "an older state"
        )
        return side, Finding(Problem.LOG_TRUNCATED, f"{chain}: {message}", None, chain)
    if chain.stored > log.end:
        message = (
            f"{chain.stored} is stored, and the broker's log ends at {log.end}: it was truncated (records that were "
            "read were lost there), or the topic was created again"
        )
        return side, Finding(Problem.LOG_TRUNCATED, f"{chain}: {message}", None, chain)
    if chain.stored < log.start:
        message = (
            f"{chain.stored} is stored, and the broker's log begins at {log.start}: records [{chain.stored}, "
            f"{log.start}) were removed before they were read"
        )
        return side, Finding(Problem.RECORDS_EXPIRED, f"{chain}: {message}", None, chain)
    return side, None


def _no_topic(chain: Chain) -> str:
    if not chain.topic:
        return "the broker has no topic of this id: it was deleted, or created again, or these are not its brokers"
    return f"the broker has no topic {chain.topic!r}: it was deleted, or these are not its brokers"
