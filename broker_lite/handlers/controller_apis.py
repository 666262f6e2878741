"""Requests of brokers to the controller (KIP-631, KIP-497, KIP-903, KIP-730).

BrokerRegistration v0 to v3, BrokerHeartbeat v0, AlterPartition v2 and v3, AllocateProducerIds v0. A broker that is not
the controller answers NOT_CONTROLLER. Absent: features and racks of brokers, and several directories, which are ignored
in requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from sparkonce.broker_lite.cluster.roles import ControllerRole
from sparkonce.broker_lite.controller.controller import Controller, Heartbeat, InSyncProposal
from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, PartitionState, Record
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.forwarding import answer_when_written
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.apis import APIS
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.broker_lite.security.acls import Operation
from sparkonce.broker_lite.security.authorizer import authorized_on_cluster

EPOCHS_FROM = 3
"""The version of AlterPartition from which on brokers are named with their epochs."""

NOTHING_READ = -1
"""An offset of the controller's log with which no broker has caught up."""

Answer = TypeVar("Answer")


def controller_of(broker: Broker, request: Request) -> ControllerRole:
    """Return this broker's controller role, for a request that only brokers may send.

    Raises:
        ProtocolError: if this broker decides for no other.
        KafkaError: CLUSTER_AUTHORIZATION_FAILED.
    """
    if not broker.member.controller.is_shared:
        raise ProtocolError(f"{APIS[request.api_key].codec_name} is for brokers of a cluster, and this one is in none")
    if not authorized_on_cluster(broker, request, Operation.CLUSTER_ACTION):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return broker.member.controller


def _decide(
    broker: Broker, request: Request, decision: Callable[[Controller], tuple[list[Record], Answer]]
) -> tuple[ErrorCode, Answer | None]:
    try:
        return ErrorCode.NONE, controller_of(broker, request).decide(decision)
    except KafkaError as error:
        return error.code, None


def _once_written(handler: Callable[[Broker, Request], Body]) -> Callable[[Broker, Request], Body | None]:
    """Answer when what the controller has decided is durable; if it is over before, with NOT_CONTROLLER."""

    @wraps(handler)
    def handle(broker: Broker, request: Request) -> Body | None:
        answer = handler(broker, request)
        controller = broker.member.controller
        if not controller.active:
            return answer
        refusal = request.response(error_code=int(ErrorCode.NOT_CONTROLLER))
        return answer_when_written(controller, request, answer, lambda: request.answer(refusal))

    return handle


@_once_written
def handle_registration(broker: Broker, request: Request) -> Body:
    """Register a broker that has started.

    The broker holds the lock on its id, so that a former start of it is dead, whatever its lease says.
    """
    wanted = request.message()
    try:
        controller_of(broker, request)
    except KafkaError as error:
        return request.response(error_code=int(error.code))
    listeners = tuple((each.name, each.host, each.port) for each in wanted.listeners)
    if not listeners:
        return request.response(error_code=int(ErrorCode.INVALID_REGISTRATION))
    if wanted.cluster_id != broker.cluster_id:
        return request.response(error_code=int(ErrorCode.INCONSISTENT_CLUSTER_ID))
    last_epoch = wanted.previous_broker_epoch if request.version >= 3 else NO_BROKER_EPOCH
    now_ms = broker.clock.monotonic_ms()

    def register(controller: Controller) -> tuple[list[Record], int]:
        known = controller.image.brokers.get(wanted.broker_id)
        former = known is not None and known.incarnation != wanted.incarnation_id
        fenced = controller.fence([wanted.broker_id]) if former else []
        _, host, port = listeners[0]
        records, epoch = controller.register(
            wanted.broker_id, wanted.incarnation_id, host, port, last_epoch, now_ms, listeners
        )
        return fenced + records, epoch

    code, epoch = _decide(broker, request, register)
    return request.response(error_code=int(code), broker_epoch=NO_BROKER_EPOCH if epoch is None else epoch)


@_once_written
def handle_heartbeat(broker: Broker, request: Request) -> Body:
    """Handle a broker's heartbeat, and whether it wants to stop."""
    wanted = request.message()
    now_ms = broker.clock.monotonic_ms()
    is_gone = broker.member.is_gone(wanted.broker_id)

    def hear(controller: Controller) -> tuple[list[Record], Heartbeat]:
        return controller.heartbeat(
            wanted.broker_id,
            wanted.broker_epoch,
            NOTHING_READ if is_gone else wanted.current_metadata_offset,  # it would be fenced again at once
            wanted.want_shut_down,
            now_ms,
            wants_fence=wanted.want_fence,
        )

    code, heard = _decide(broker, request, hear)
    if heard is None:
        return request.response(error_code=int(code))
    return request.response(
        error_code=0, is_caught_up=heard.caught_up, is_fenced=heard.fenced, should_shut_down=heard.may_shut_down
    )


@_once_written
def handle_alter_partition(broker: Broker, request: Request) -> Body:
    """Handle a leader's proposals of in-sync replicas; answer each partition with its new state, or the error."""
    wanted, version = request.message(), request.version
    proposals = [
        _proposal((topic.topic_id, each.partition_index), each, version)
        for topic in wanted.topics
        for each in topic.partitions
    ]
    code, answers = _decide(
        broker, request, lambda controller: controller.alter_in_sync(wanted.broker_id, wanted.broker_epoch, proposals)
    )
    if answers is None:
        return request.response(error_code=int(code), topics=[])
    kind = apis.response_class(request.api_key).TopicData
    topics: dict[Any, list[Any]] = {}
    for proposal, answer in zip(proposals, answers, strict=True):
        topic_id, index = proposal.key
        partition = kind.PartitionData(version=version, partition_index=index, **_altered(answer))
        topics.setdefault(topic_id, []).append(partition)
    return request.response(
        error_code=0,
        topics=[kind(version=version, topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
    )


def _proposal(key: PartitionKey, partition: Any, version: int) -> InSyncProposal:
    if version < EPOCHS_FROM:
        in_sync = tuple((broker_id, NO_BROKER_EPOCH) for broker_id in partition.new_isr)
    else:
        in_sync = tuple((each.broker_id, each.broker_epoch) for each in partition.new_isr_with_epochs)
    return InSyncProposal(key, partition.leader_epoch, partition.partition_epoch, in_sync)


def _altered(answer: PartitionState | KafkaError) -> dict[str, Any]:
    if isinstance(answer, KafkaError):
        nobody = {"leader_id": -1, "leader_epoch": -1, "isr": [], "partition_epoch": -1}
        return {"error_code": int(answer.code), **nobody}
    return {
        "error_code": 0,
        "leader_id": answer.leader,
        "leader_epoch": answer.leader_epoch,
        "isr": list(answer.in_sync_replicas),
        "partition_epoch": answer.partition_epoch,
    }


@_once_written
def handle_allocate_producer_ids(broker: Broker, request: Request) -> Body:
    """Return a block of producer ids for a broker."""
    wanted = request.message()
    code, block = _decide(
        broker,
        request,
        lambda controller: controller.allocate_producer_ids(wanted.broker_id, wanted.broker_epoch),
    )
    if block is None:
        return request.response(error_code=int(code), producer_id_start=-1, producer_id_len=0)
    return request.response(error_code=0, producer_id_start=block.start, producer_id_len=len(block))
