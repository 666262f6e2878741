"""Requests of every API that is served, in every version: built from Kafka's schemas, and by our own codecs."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, APIS, Api, ApiKey
from sparkonce.kafka.protocol.frames import encode_request_header
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch

TOPIC = "t"
NAMES = {"topicName": TOPIC, "groupId": "g", "transactionalId": "tx"}
NOW_MS = 1_700_000_000_000


def message(api: Api, version: int, rng: random.Random, topic_id: uuid.UUID = ZERO_UUID) -> Any:
    """Build a request of an API with generated codecs, its arrays filled."""
    kind = apis.request_class(api.key)
    return kind(version=version, **_values(kind._struct, version, rng, topic_id))


def body(api: Api, version: int, rng: random.Random, topic_id: uuid.UUID = ZERO_UUID) -> bytes:
    """Encode a request's body."""
    if api.key == ApiKey.PRODUCE:
        return bytes(produce.encode_request(version, _produce(version, rng, topic_id)))
    if api.key == ApiKey.FETCH:
        return bytes(fetch.encode_request(version, _fetch(version, rng, topic_id)))
    return bytes(apis.encode_request(message(api, version, rng, topic_id), version))


CLIENTS_APIS = [api for api in APIS.values() if api.key not in AMONG_BROKERS]


def frames(
    rng: random.Random, topic_id: uuid.UUID = ZERO_UUID, kinds: Iterable[Api] = CLIENTS_APIS
) -> Iterator[tuple[Api, int, bytes]]:
    """Yield a frame, without its size, for each version of APIs; of those that clients use by default."""
    for api in kinds:
        for version in range(api.min_version, api.max_version + 1):
            header = encode_request_header(api.key, version, rng.getrandbits(31), "fuzz")
            yield api, version, bytes(header) + body(api, version, rng, topic_id)


def _values(struct: Any, version: int, rng: random.Random, topic_id: uuid.UUID) -> dict[str, Any]:
    values = {}
    for field in struct.fields.values():
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        if field.is_struct_array():
            elements = [_values(field, version, rng, topic_id) for _ in range(rng.randint(1, 2))]
            values[field.name] = [field.data_class(version=version, **each) for each in elements]
        elif field.is_struct():
            values[field.name] = field.data_class(version=version, **_values(field, version, rng, topic_id))
        elif field.is_array():
            values[field.name] = [_scalar(field.array_of, field, rng, topic_id) for _ in range(rng.randint(1, 2))]
        else:
            values[field.name] = _scalar(field, field, rng, topic_id)
    return values


def _scalar(kind: Any, field: Any, rng: random.Random, topic_id: uuid.UUID) -> Any:
    name = kind.type_str
    if name == "string":
        return NAMES.get(field._entity_type or "", field.name[:8])
    if name == "bool":
        return rng.random() < 0.5
    if name == "uuid":
        return topic_id
    if name in ("bytes", "records"):
        return rng.randbytes(8)
    if name.startswith("float"):
        return float(rng.randint(0, 2))
    return rng.randint(0, 2)


def batch(rng: random.Random) -> bytes:
    """Make a record batch that the log accepts."""
    records = [Record(b"k", rng.randbytes(rng.randint(0, 40)), NOW_MS) for _ in range(rng.randint(1, 3))]
    return bytes(encode_batch(records))


def _produce(version: int, rng: random.Random, topic_id: uuid.UUID) -> produce.ProduceRequest:
    partitions = [produce.ProducePartition(index, batch(rng)) for index in range(rng.randint(1, 2))]
    topic = produce.ProduceTopic(TOPIC, topic_id, partitions)
    return produce.ProduceRequest(None, rng.choice((-1, 1)), 1000, [topic])


def _fetch(version: int, rng: random.Random, topic_id: uuid.UUID) -> fetch.FetchRequest:
    partitions = [fetch.FetchPartition(index, 0, 1 << 20) for index in range(rng.randint(1, 2))]
    topic = fetch.FetchTopic(TOPIC, topic_id, partitions)
    epoch = rng.choice((-1, 0)) if version >= 7 else -1
    return fetch.FetchRequest(0, 0, 1 << 20, [topic], session_epoch=epoch)
