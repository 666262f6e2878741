"""BrokerHeartbeat v0: a broker is alive, or requests to stop or to be fenced (KIP-631)."""

from __future__ import annotations

from sparkonce.broker_lite.controller.controller import Controller, Heartbeat
from sparkonce.broker_lite.controller.records import MetadataRecord
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.controller_requests import decide, once_written
from sparkonce.broker_lite.node.request import Body, Request

NOTHING_READ = -1
"""An offset of the controller's log that no broker counts as caught up with."""


@once_written
async def handle(broker: Broker, request: Request) -> Body:
    """Handle a broker's heartbeat, or its request for a controlled shutdown."""
    wanted = request.message()
    now_ms = broker.clock.monotonic_ms()
    is_gone = broker.member.is_gone(wanted.broker_id)

    def hear(controller: Controller) -> tuple[list[MetadataRecord], Heartbeat]:
        return controller.heartbeat(
            wanted.broker_id,
            wanted.broker_epoch,
            NOTHING_READ if is_gone else wanted.current_metadata_offset,  # it would be fenced again at once
            wanted.want_shut_down,
            now_ms,
            wants_fence=wanted.want_fence,
        )

    code, heard = decide(broker, request, hear)
    if heard is None:
        return request.response(error_code=int(code))
    return request.response(
        error_code=0, is_caught_up=heard.caught_up, is_fenced=heard.fenced, should_shut_down=heard.may_shut_down
    )
