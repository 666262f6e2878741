"""A client without any opinion of its own: it sends the Produce and Fetch requests that it is told to."""

from __future__ import annotations

import time

from sparkonce.kafka.protocol import fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.interop.plain_client import DEADLINE_S, FETCH_VERSION, PRODUCE_VERSION, PlainClient

DEFAULT_FETCH_BYTES = 1 << 20
"""The default of `max.partition.fetch.bytes`."""
NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""What a real Kafka answers between the creation of a topic and the election of its leader."""


def batch_of(*values: bytes) -> bytes:
    """Return one record batch, uncompressed, with one record for each value."""
    return bytes(encode_batch([Record(None, value, 1_700_000_000_000) for value in values]))


class RawClient(PlainClient):
    """One connection; a context manager."""

    def append(self, topic: str, batch: bytes) -> None:
        """Send one batch to partition 0 and wait for its acknowledgement."""
        wanted = produce.ProduceTopic(topic, ZERO_UUID, [produce.ProducePartition(0, batch)])
        body = produce.encode_request(PRODUCE_VERSION, produce.ProduceRequest(None, -1, 10_000, [wanted]))
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            self.send(ApiKey.PRODUCE, PRODUCE_VERSION, body)
            answer = produce.decode_response(PRODUCE_VERSION, self.receive(ApiKey.PRODUCE, PRODUCE_VERSION))
            error = answer.topics[0].partitions[0].error_code
            if error not in NOT_YET or time.monotonic() > deadline_s:
                break
        assert error == ErrorCode.NONE, answer

    def fetch_bytes(
        self, topic: str, offset: int, *, max_bytes: int, max_partition_bytes: int = DEFAULT_FETCH_BYTES
    ) -> bytes:
        """Return the bytes that partition 0 answers from `offset` on; the two limits are those of the request."""
        partition = fetch.FetchPartition(0, offset, max_partition_bytes)
        request = fetch.FetchRequest(0, 0, max_bytes, [fetch.FetchTopic(topic, ZERO_UUID, [partition])])
        self.send(ApiKey.FETCH, FETCH_VERSION, fetch.encode_request(FETCH_VERSION, request))
        answer = self.receive_fetch()
        assert answer.error_code == ErrorCode.NONE, answer
        records = answer.records
        assert records is None or isinstance(records, (bytes, memoryview))
        return bytes(records or b"")
