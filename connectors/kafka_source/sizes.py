"""The size of a topic's records, as planning needs it: from one small fetch for each topic.

Offsets do not show it: a thousand of them may be a thousand records of a hundred bytes, a thousand of a megabyte,
or, after compaction, three. One fetch returns the first batches of a range, whose headers have sizes and numbers of
records; the records themselves are not decoded. If it fails, a guess will do: it only decides into how many tasks a
batch is divided.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sparkonce.connectors.kafka_source.planning import Density
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.topic_ids import topic_id_from_text
from sparkonce.kafka.protocol import fetch
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import CorruptBatchError, KafkaError, ProtocolError
from sparkonce.kafka.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from sparkonce.kafka.protocol.records import scan

SAMPLE_BYTES = 64 << 10
GUESS = Density(bytes_per_offset=512, records_per_offset=1)

_log = logging.getLogger(__name__)


def densities(client: Client, ranges: Iterable[FetchRange]) -> dict[str, Density]:
    """Return the density of each topic, as it is at the beginning of its largest range. Never fails."""
    largest: dict[str, FetchRange] = {}
    for each in ranges:
        known = largest.get(each.topic)
        if known is None or each.end - each.start > known.end - known.start:
            largest[each.topic] = each
    return {topic: _density(client, wanted) for topic, wanted in largest.items()}


def _density(client: Client, wanted: FetchRange) -> Density:
    if wanted.leader is None:
        return GUESS
    try:
        return _of_batches(wanted, _fetch(client, wanted))
    except (OSError, ProtocolError):
        client.drop(wanted.leader.address)  # its response may still arrive
        _log.debug("kafka_once: the size of records of %s is a guess", wanted.topic, exc_info=True)
    except (KafkaError, CorruptBatchError):  # the task that reads the range will report it
        _log.debug("kafka_once: the size of records of %s is a guess", wanted.topic, exc_info=True)
    return GUESS


def _fetch(client: Client, wanted: FetchRange) -> memoryview:
    assert wanted.leader is not None
    connection = client.connection(wanted.leader.address)
    version = connection.version(ApiKey.FETCH)
    if not wanted.topic_id:
        version = min(version, fetch.TOPIC_ID_FROM - 1)
    partition = FetchPartition(wanted.partition, wanted.start, SAMPLE_BYTES, wanted.leader.epoch)
    topic = FetchTopic(wanted.topic, topic_id_from_text(wanted.topic_id), [partition])
    request = FetchRequest(0, 0, SAMPLE_BYTES, [topic], int(client.settings.read_committed))
    connection.send(ApiKey.FETCH, version, fetch.encode_request(version, request))
    response = fetch.decode_response(version, connection.receive(bytearray()))
    for found in response.topics:
        for result in found.partitions:
            if not result.error_code and isinstance(result.records, memoryview):
                return result.records
    return memoryview(b"")


def _of_batches(wanted: FetchRange, batches: memoryview) -> Density:
    size = records = 0
    end = wanted.start
    for _, header in scan(batches):
        size += header.size
        records += header.record_count
        end = max(end, header.next_offset)
    span = end - wanted.start
    return Density(size / span, max(0.0, min(1.0, records / span))) if span > 0 else GUESS
