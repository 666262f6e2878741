"""Sends leaders' proposals of in-sync replicas to the controller, and handles its answers (AlterPartition).

As Kafka's AlterPartitionManager: all pending proposals go in one request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import PartitionState
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.broker_lite.replication.replicas import Event, Replicas
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

VERSION = 3

Proposals = list[tuple[PartitionKey, Proposal]]


class InSyncProposals:
    """Sends one broker's proposals."""

    def __init__(
        self,
        replicas: Replicas,
        send_to_controller: Callable[[Any, Callable[[Any], None]], None],
        catch_up: Callable[[], None],
        publish: Callable[[Iterable[Event]], None],
        monotonic_ms: Callable[[], int],
    ) -> None:
        """`catch_up` applies the controller's log; `publish` is called with the resulting events."""
        self._replicas = replicas
        self._send = send_to_controller
        self._catch_up = catch_up
        self._publish = publish
        self._monotonic_ms = monotonic_ms

    def send(self, broker_id: int, broker_epoch: int) -> None:
        """Send the unsent proposals; to be called many times a second."""
        proposals = self._replicas.proposals()
        if proposals:
            request = _request(broker_id, broker_epoch, proposals)
            self._send(request, lambda answer: self._answered(proposals, answer))

    def _answered(self, proposals: Proposals, answer: Any) -> None:
        # The controller's answer depends on its log. A leader with an older value, such as of
        # `min.insync.replicas`, would acknowledge records that a newly elected leader may not have.
        self._catch_up()
        found = {} if answer is None or answer.error_code else dict(_answers(answer, self._replicas))
        events: list[Event] = []
        for key, proposal in proposals:
            events += self._replicas.proposal_answered(key, proposal, found.get(key), self._monotonic_ms())
        self._publish(events)


def _request(broker_id: int, broker_epoch: int, proposals: Proposals) -> Any:
    topics: dict[Any, list[Any]] = {}
    kind = apis.request_class(ApiKey.ALTER_PARTITION).TopicData
    for (topic_id, index), proposal in proposals:
        in_sync = [
            kind.PartitionData.BrokerState(version=VERSION, broker_id=each, broker_epoch=epoch)
            for each, epoch in proposal.in_sync_replicas
        ]
        partition = kind.PartitionData(
            version=VERSION,
            partition_index=index,
            leader_epoch=proposal.leader_epoch,
            new_isr_with_epochs=in_sync,
            leader_recovery_state=0,
            partition_epoch=proposal.partition_epoch,
        )
        topics.setdefault(topic_id, []).append(partition)
    data = [kind(version=VERSION, topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
    return apis.request(ApiKey.ALTER_PARTITION, VERSION, broker_id=broker_id, broker_epoch=broker_epoch, topics=data)


def _answers(answer: Any, replicas: Replicas) -> Iterable[tuple[PartitionKey, PartitionState | ErrorCode]]:
    for topic in answer.topics:
        for each in topic.partitions:
            key = (topic.topic_id, each.partition_index)
            role = replicas.roles.get(key)
            if each.error_code:
                yield key, ErrorCode.of(each.error_code)
            elif isinstance(role, PartitionLeader):
                # The answer does not have the eligible replicas, the log does. If it could not be read just now,
                # wait for it, as when the controller has a newer state.
                heard = role.state.partition_epoch >= each.partition_epoch
                yield key, role.state if heard else ErrorCode.INVALID_UPDATE_VERSION
