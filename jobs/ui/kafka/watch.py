"""Looks at a cluster again and again, in one thread, and keeps what was found last.

Pages read `ClusterWatch.state`, which never waits for a broker. While a page is followed there are two looks a second;
otherwise one in a while, for the rates and trends to have a past.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from sparkonce.broker_lite.protocol.errors import KafkaError, ProtocolError
from sparkonce.connectors.kafka_client.client import (
    EARLIEST,
    LATEST,
    Client,
    ClusterMetadata,
    MissingTopicError,
    TopicMetadata,
    topic_id_text,
)
from sparkonce.connectors.kafka_client.settings import read_settings
from sparkonce.jobs.ui.kafka.state import BrokerState, ClusterState, PartitionState, TopicState
from sparkonce.offset_store.clock import now_ms

PATIENCE = {
    "kafka.default.api.timeout.ms": "3000",
    "kafka.socket.connection.setup.timeout.ms": "3000",
    "kafka.request.timeout.ms": "3000",
}
"""How long a look waits for the brokers, unless the user says otherwise."""
LOOKED_AT_S = 0.4
"""The pause between two looks while somebody follows a page."""
UNSEEN_S = 5.0
"""The same while nobody does."""
STILL_SEEN_S = 3.0
"""How long after a page has read the state somebody counts as following."""
FIRST_LOOK_S = 4.0
"""How long the first page waits for the first look."""
RATE_S = 10.0
"""The time that rates are means of."""

Ends = Mapping[tuple[str, int], int]


class ClusterWatch:
    """One cluster."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """``options`` have the prefix ``kafka.``.

        Raises:
            OptionError: one cannot be used.
        """
        self.options = {**PATIENCE, **options}
        settings = read_settings(self.options)
        self._committed = Client(replace(settings, read_committed=True))
        self._client = Client(replace(settings, read_committed=False))
        self._ends: deque[tuple[float, Ends]] = deque()
        self._described: tuple[ClusterMetadata, dict[str, TopicMetadata]] | None = None
        self._state = ClusterState()
        self._looked = threading.Event()
        self._wake = threading.Event()
        self._seen_at = time.monotonic()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ui-cluster", daemon=True)
        self._thread.start()

    @property
    def servers(self) -> str:
        """The brokers that it was given."""
        return self._client.settings.servers_text

    def state(self) -> ClusterState:
        """Return what was found last."""
        before, self._seen_at = self._seen_at, time.monotonic()
        if self._seen_at - before > STILL_SEEN_S:
            self._wake.set()
        self._looked.wait(FIRST_LOOK_S)
        return self._state

    def close(self) -> None:
        """Stop looking, and close all connections."""
        self._closed = True
        self._wake.set()
        self._thread.join()
        self._client.close()
        self._committed.close()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._state = self._look()
            except (OSError, KafkaError, ProtocolError, MissingTopicError) as error:
                self._state = replace(self._state, problem=str(error) or type(error).__name__)
            self._looked.set()
            seen = time.monotonic() - self._seen_at < STILL_SEEN_S
            self._wake.wait(LOOKED_AT_S if seen else UNSEEN_S)
            self._wake.clear()

    def _look(self) -> ClusterState:
        cluster = self._client.cluster()
        if self._described is None or self._described[0] is not cluster:
            self._described = cluster, cluster.metadata()
        known = dict(self._described[1])
        led = [(name, number) for name, topic in known.items() for number, at in topic.partitions.items() if at]
        start = self._client.offsets(dict.fromkeys(led, EARLIEST), known)
        end = self._client.offsets(dict.fromkeys(led, LATEST), known)
        stable = self._committed.offsets(dict.fromkeys(led, LATEST), known)
        before_s, before = self._noted(end)
        topics = {}
        for topic in sorted(cluster.topics, key=lambda each: str(each.name)):
            partitions = []
            for each in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
                slot = topic.name, each.partition_index
                added = end[slot] - before[slot] if slot in end and slot in before else None
                partitions.append(
                    PartitionState(
                        each.partition_index,
                        each.leader_id,
                        getattr(each, "leader_epoch", -1),
                        tuple(each.replica_nodes),
                        tuple(each.isr_nodes),
                        start.get(slot),
                        stable.get(slot),
                        end.get(slot),
                        None if added is None or not before_s else max(added, 0) / before_s,
                    )
                )
            topic_id = topic_id_text(getattr(topic, "topic_id", None))
            topics[topic.name] = TopicState(topic.name, topic_id, bool(topic.is_internal), tuple(partitions))
        brokers = tuple(
            BrokerState(each.node_id, each.host, each.port, getattr(each, "rack", None))
            for each in sorted(cluster.brokers, key=lambda each: int(each.node_id))
        )
        return ClusterState(now_ms(), cluster.cluster_id, cluster.controller_id, brokers, topics)

    def _noted(self, ends: Ends) -> tuple[float, Ends]:
        """Note where the logs end now; return where they ended a while ago, and how many seconds ago that was."""
        now = time.monotonic()
        self._ends.append((now, ends))
        while len(self._ends) > 2 and self._ends[1][0] <= now - RATE_S:
            self._ends.popleft()
        then, before = self._ends[0]
        return now - then, before
