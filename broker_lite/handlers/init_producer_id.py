"""InitProducerId, versions 0 to 5, for idempotent producers.

As in Kafka, one that asks again, to start over, gets a new id. Absent: transactions; a transactional id
is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error of this API that clients take as final and as
being about the transactional id.
"""

from __future__ import annotations

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol.errors import ErrorCode


def handle(broker: Broker, request: Request) -> Body:
    """Give an id and an epoch."""
    wanted = request.message()
    if wanted.transactional_id is not None:
        broker.note_refusal(
            f"{request.client_id}@{request.client_host}: transactional.id {wanted.transactional_id!r} is refused: "
            "this broker serves idempotent producers, but no transactions"
        )
        error = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if wanted.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return request.response(error_code=int(error), producer_id=-1, producer_epoch=-1)
    return request.response(error_code=0, producer_id=broker.producer_ids.take(), producer_epoch=0)
