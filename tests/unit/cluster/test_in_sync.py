"""Proposals of who is in sync: what a leader goes by when the controller's answer comes."""

from __future__ import annotations

import copy
import uuid
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.in_sync import InSyncProposals
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings, InSyncProposal
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS, ClusterImage
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, PartitionChanged, PartitionState, TopicCreated
from sparkonce.broker_lite.replication.replicas import Replicas, ReplicationSettings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from tests.unit.replication.partition import new_log

TOPIC = uuid.UUID(int=1)
KEY = (TOPIC, 0)
VERSION = 3


def accepted(state: PartitionState) -> Any:
    """Return the answer to AlterPartition."""
    topic = apis.response_class(ApiKey.ALTER_PARTITION).TopicData
    partition = topic.PartitionData(
        version=VERSION,
        partition_index=0,
        error_code=0,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.in_sync_replicas),
        leader_recovery_state=0,
        partition_epoch=state.partition_epoch,
    )
    data = topic(version=VERSION, topic_id=TOPIC, partitions=[partition])
    return apis.response(ApiKey.ALTER_PARTITION, VERSION, throttle_time_ms=0, error_code=0, topics=[data])


def test_a_proposal_that_is_refused_for_an_unknown_reason_is_sent_again() -> None:
    """A controller of a later version may have reasons that this broker does not know."""
    image = ClusterImage()
    image.apply(TopicCreated("t", TOPIC, ()))
    image.apply(PartitionChanged(*KEY, PartitionState((1, 2), (1, 2), 1, 0, 0)))
    log, asked = new_log(), []
    replicas = Replicas(1, lambda _: log, ReplicationSettings(replica_lag_time_max_ms=1000))
    replicas.apply(image, 0)
    log.log_end_offset = 1
    replicas.tick(5_000)
    proposals = InSyncProposals(
        replicas, lambda request, then: asked.append((request, then)), lambda: None, lambda _: None, lambda: 5_000
    )
    proposals.send(1, 7)
    answer = refused(9_999)
    [(_, answered)] = asked
    answered(answer)
    proposals.send(1, 7)
    assert len(asked) == 2


def refused(error_code: int) -> Any:
    """Return an answer to AlterPartition that refuses the partition."""
    topic = apis.response_class(ApiKey.ALTER_PARTITION).TopicData
    partition = topic.PartitionData(version=VERSION, partition_index=0, error_code=error_code)
    data = topic(version=VERSION, topic_id=TOPIC, partitions=[partition])
    return apis.response(ApiKey.ALTER_PARTITION, VERSION, throttle_time_ms=0, error_code=0, topics=[data])


@pytest.mark.parametrize("readable", [True, False])
def test_a_leader_hears_what_the_controller_went_by_before_its_answer(readable: bool) -> None:
    """Else it acknowledges by an older `min.insync.replicas` what an eligible replica does not have (KIP-966).

    So it does nothing with the answer if the controller's log cannot be read just then.
    """
    image = ClusterImage()
    controller = Controller(image, ControllerSettings(), 0)
    epochs = {}
    for broker_id in (1, 2):
        _, epochs[broker_id] = controller.register(broker_id, uuid.uuid4(), "h", 1, NO_BROKER_EPOCH, 0)
        controller.heartbeat(broker_id, epochs[broker_id], image.next_offset, False, 0)
    controller.create_topic("t", TOPIC, 1, 2, {}, [(1, 2)])
    log, now_ms = new_log(), [0]
    asked: list[Any] = []
    replicas = Replicas(1, lambda _: log, ReplicationSettings(replica_lag_time_max_ms=1000))

    def catch_up() -> None:
        if now_ms[0] == 0 or readable:
            replicas.apply(copy.deepcopy(image), now_ms[0])

    catch_up()
    proposals = InSyncProposals(
        replicas, lambda request, then: asked.append((request, then)), catch_up, lambda _: None, lambda: now_ms[0]
    )
    log.begin_at(5)  # both have everything below
    replicas.fetched_by(KEY, 2, epochs[2], 5, 0, 1)
    log.log_end_offset = 6
    now_ms[0] = 5_000
    replicas.tick(5_000)
    proposal = replicas.leader(KEY).proposal
    proposals.send(1, epochs[1])
    controller.change_settings("t", {MIN_IN_SYNC_REPLICAS: "2"})
    assert proposal is not None
    found = InSyncProposal(KEY, proposal.leader_epoch, proposal.partition_epoch, proposal.in_sync_replicas)
    _, (state,) = controller.alter_in_sync(1, epochs[1], [found])
    assert isinstance(state, PartitionState)
    assert (state.in_sync_replicas, state.eligible_leader_replicas) == ((1,), (2,))
    [(_, answer)] = asked
    answer(accepted(state))
    assert log.high_watermark == 5, "record 5 is on this broker alone, and 2 may be elected"
    readable = True
    catch_up()
    assert log.high_watermark == 5
    assert replicas.leader(KEY).min_in_sync_replicas == 2
