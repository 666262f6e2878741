"""BrokerRegistration v0 to v3: a broker that has started joins its cluster (KIP-631).

A broker whose former start still has a session is rejected with DUPLICATE_BROKER_REGISTRATION, as in Kafka, unless that
start is known to be dead: `Coordination` knows which start of a broker is alive.
Absent: features, racks and log directories of brokers, which are ignored.
"""

from __future__ import annotations

from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, MetadataRecord
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.controller_requests import controller_of, decide, once_written
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


@once_written
async def handle(broker: Broker, request: Request) -> Body:
    """Register a broker that has started."""
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

    def register(controller: Controller) -> tuple[list[MetadataRecord], int]:
        known = controller.image.brokers.get(wanted.broker_id)
        is_new = known is not None and known.incarnation != wanted.incarnation_id
        former_is_dead = is_new and broker.member.is_announced(wanted.broker_id, wanted.incarnation_id)
        fenced = controller.fence([wanted.broker_id]) if former_is_dead else []
        _, host, port = listeners[0]
        records, epoch = controller.register(
            wanted.broker_id, wanted.incarnation_id, host, port, last_epoch, now_ms, listeners
        )
        return fenced + records, epoch

    code, epoch = decide(broker, request, register)
    return request.response(error_code=int(code), broker_epoch=NO_BROKER_EPOCH if epoch is None else epoch)
