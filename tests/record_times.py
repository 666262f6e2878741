"""Times of records, in milliseconds since 1970: of each kind that producers write, by mistake or not."""

from __future__ import annotations

import time
from typing import Any

from sparkonce.connectors.values.record_times import MAX_TIMESTAMP_MS
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.interop.plain_client import PlainClient

FIT = (-1, -2, -62_135_596_800_001, -MAX_TIMESTAMP_MS, 0, 1, 1_700_000_000_000, 1_700_000_000_000_000, MAX_TIMESTAMP_MS)
"""These are timestamps of Spark; one of them was written in microseconds."""
TIMES_MS = (*FIT, MAX_TIMESTAMP_MS + 1, -MAX_TIMESTAMP_MS - 1, 1_700_000_000_000_000_000, 2**63 - 1, -(2**63))
"""One of the others was written in nanoseconds."""
ANY_TIME: dict[str, Any] = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
"""Settings of topics that take them."""
DEADLINE_S = 30
_NEW_TO_ITS_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""What Kafka answers until the leader knows of a new topic."""


def send(bootstrap_servers: str, topic: str, records: list[Record]) -> None:
    """Write one batch, as clients refuse to that check times."""
    with PlainClient(bootstrap_servers) as client:
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, encode_batch(records))])
        code, until = ErrorCode.NOT_LEADER_OR_FOLLOWER, time.monotonic() + DEADLINE_S
        while code in _NEW_TO_ITS_LEADER and time.monotonic() < until:
            request = produce.ProduceRequest(None, -1, 30_000, [wanted])
            client.send(ApiKey.PRODUCE, 9, produce.encode_request(9, request))
            answer = produce.decode_response(9, client.receive(ApiKey.PRODUCE, 9))
            code = ErrorCode(answer.topics[0].partitions[0].error_code)
        assert code == ErrorCode.NONE
