"""AllocateProducerIds v0: a broker requests a block of producer ids (KIP-730)."""

from __future__ import annotations

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.controller_requests import decide, once_written
from sparkonce.broker_lite.node.request import Body, Request


@once_written
async def handle(broker: Broker, request: Request) -> Body:
    """Return a block of producer ids for a broker."""
    wanted = request.message()
    code, block = decide(
        broker,
        request,
        lambda controller: controller.allocate_producer_ids(wanted.broker_id, wanted.broker_epoch),
    )
    if block is None:
        return request.response(error_code=int(code), producer_id_start=-1, producer_id_len=0)
    return request.response(error_code=0, producer_id_start=block.start, producer_id_len=len(block))
