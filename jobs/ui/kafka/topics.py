"""Reads brokers, topics and the start and end offsets of logs."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sparkonce.jobs.ui.kafka.past import UNKNOWN, EndOffsetHistory
from sparkonce.jobs.ui.kafka.state import BrokerState, ClusterState, PartitionState, TopicState
from sparkonce.kafka.client.client import EARLIEST, LATEST, Client
from sparkonce.kafka.client.list_offsets import Asked, decode_response, encode_request
from sparkonce.kafka.client.metadata import ClusterMetadata, TopicMetadata
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.client.topic_ids import topic_id_text
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.offset_store.group import Slot

RATE_S = 10.0
"""The time span of average rates."""


class TopicsLook:
    """Reads the cluster; belongs to one thread."""

    def __init__(self, settings: ClientSettings, past: EndOffsetHistory) -> None:
        self._client = Client(replace(settings, read_committed=False))
        self._committed = Client(replace(settings, read_committed=True))
        self._past = past
        self._described: tuple[ClusterMetadata, dict[str, TopicMetadata]] | None = None

    def __call__(self) -> ClusterState:
        """Read once."""
        cluster = self._client.cluster()
        if self._described is None or self._described[0] is not cluster:
            self._described = cluster, cluster.metadata()
        known = self._described[1]
        led = [(name, number) for name, topic in known.items() for number, leader in topic.partitions.items() if leader]
        start = _offsets_now(self._client, led, known, EARLIEST)
        stable = _offsets_now(self._committed, led, known, LATEST)
        end = _offsets_now(self._client, led, known, LATEST)
        now_s = time.monotonic()
        _, last = self._past.before(now_s, 0.0)
        everything = ((name, number) for name, topic in known.items() for number in topic.partitions)
        self._past.note(now_s, {slot: last.get(slot, UNKNOWN) for slot in everything} | end)
        ago_s, before = self._past.before(now_s, RATE_S)

        def partition(topic: str, each: Any) -> PartitionState:
            slot = topic, each.partition_index
            return PartitionState(
                each.partition_index,
                each.leader_id,
                getattr(each, "leader_epoch", -1),
                tuple(each.replica_nodes),
                tuple(each.isr_nodes),
                start.get(slot),
                stable.get(slot),
                end.get(slot),
                _rate(before, end, slot, ago_s),
            )

        topics = {
            topic.name: TopicState(
                topic.name,
                topic_id_text(getattr(topic, "topic_id", None)),
                bool(topic.is_internal),
                tuple(
                    partition(topic.name, each)
                    for each in sorted(topic.partitions, key=lambda each: int(each.partition_index))
                ),
            )
            for topic in sorted(cluster.topics, key=lambda each: str(each.name))
        }
        return ClusterState(cluster.cluster_id, cluster.controller_id, _brokers(cluster), topics)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        self._committed.close()


def _offsets_now(
    client: Client, partitions: Iterable[Slot], known: Mapping[str, TopicMetadata], at: int
) -> dict[Slot, int]:
    """Return offsets in one attempt, without partitions whose leader does not answer, or has changed.

    `Client.offsets` requires all of them, and retries; a page should show the others meanwhile.
    """
    by_leader: dict[tuple[str, int], dict[str, list[Asked]]] = defaultdict(lambda: defaultdict(list))
    for topic, partition in partitions:
        leader = known[topic].partitions[partition]
        if leader is not None:
            by_leader[leader.address][topic].append((partition, leader.epoch, at))
    found: dict[Slot, int] = {}
    settings = client.settings
    for address, asked in by_leader.items():
        try:
            connection = client.connection(address)
            version = connection.version(ApiKey.LIST_OFFSETS)
            body = encode_request(
                version, asked, read_committed=settings.read_committed, timeout_ms=settings.request_timeout_ms
            )
            answer = connection.request(ApiKey.LIST_OFFSETS, version, body)
            found |= decode_response(version, answer, skip_errors=True)
        except (OSError, ProtocolError):
            client.drop(address)
    return found


def _rate(before: Mapping[Slot, int], end: Mapping[Slot, int], slot: Slot, ago_s: float) -> float | None:
    if slot not in end or not ago_s or before.get(slot) == UNKNOWN:
        return None
    return max(end[slot] - before.get(slot, 0), 0) / ago_s


def _brokers(cluster: ClusterMetadata) -> tuple[BrokerState, ...]:
    return tuple(
        BrokerState(each.node_id, each.host, each.port, getattr(each, "rack", None))
        for each in sorted(cluster.brokers, key=lambda each: int(each.node_id))
    )
