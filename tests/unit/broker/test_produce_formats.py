"""Which forms of batches Produce takes, and what it says of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol import produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.legacy_records import encode_message_set
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.unit.broker.test_connection import Client, make_topic

NOW = 1_700_000_000_000


@pytest.fixture
def client() -> Iterator[Client]:
    with EmbeddedBroker(config={"log.cleanup.policy": "compact"}) as broker:
        connected = Client(broker)
        make_topic(connected, "t")
        yield connected
        connected.close()


def send(client: Client, batch: bytes, version: int) -> produce.ProducePartitionResult:
    topic = produce.ProduceTopic("t", ZERO_UUID, [produce.ProducePartition(0, batch)])
    body = produce.encode_request(version, produce.ProduceRequest(None, -1, 1000, [topic]))
    client.request(ApiKey.PRODUCE, version, bytes(body))
    return produce.decode_response(version, client.answer(ApiKey.PRODUCE, version)[1]).topics[0].partitions[0]


def test_zstd_is_for_producers_that_know_it(client: Client) -> None:
    batch = bytes(encode_batch([Record(b"k", b"v", NOW)], compression=Compression.ZSTD))
    assert send(client, batch, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert send(client, batch, 7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_refused(client: Client, magic: int) -> None:
    batch = bytes(encode_message_set([Record(b"k", b"v" * 100, NOW)], magic=magic))
    assert send(client, batch, 3).error_code == ErrorCode.INVALID_RECORD


def test_records_without_a_key_are_named(client: Client) -> None:
    batch = bytes(encode_batch([Record(key, b"v", NOW) for key in (b"k", None, None)]))
    result = send(client, batch, 8)
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in result.record_errors] == [1, 2]
    assert "2 record errors in total" in (result.error_message or "")
    assert send(client, batch, 7).error_code == ErrorCode.INVALID_RECORD
