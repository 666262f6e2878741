"""The APIs that the broker serves, and the codecs of all but the hottest ones.

One table has each API's versions, and from which of them it is flexible (KIP-482). Produce and Fetch are
hand-written (`produce.py`, `fetch.py`); the others use the codecs that kafka-python generates from Kafka's own
schemas. Their modules are imported when an API is first used, because importing all of them costs more than
starting the broker does.

The generated codecs trust their input: a slice past the end is silently short, and trailing bytes are accepted. So
this module compares where decoding ended with where the body ends, which detects both, and turns all other errors of
the codecs into `ProtocolError`.
"""

from __future__ import annotations

import re
import struct
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib import import_module
from types import FunctionType, MappingProxyType
from typing import Any, Final, NamedTuple

from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.limits import MAX_ARRAY_ELEMENTS, MAX_GENERIC_REQUEST_BYTES, MAX_VARINT_BYTES
from sparkonce.kafka.protocol.primitives import Buffer


class ApiKey(IntEnum):
    """The numbers of the APIs served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


AMONG_BROKERS = frozenset(
    {
        ApiKey.ALTER_PARTITION,
        ApiKey.ENVELOPE,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)
"""APIs between the brokers of a cluster; not listed to clients."""

OWN_SCHEMAS = "sparkonce.kafka.protocol.schemas"
"""The package with codecs for APIs without schemas in kafka-python."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API: its versions, and the module of its generated codec (None for hand-written ones)."""

    key: ApiKey
    min_version: int
    max_version: int
    flexible_from: int
    codec_name: str
    codec_module: str | None
    advertised_min_version: int


def _table(rows: Iterable[tuple[ApiKey, int, int, int, str, str | None]]) -> MappingProxyType[int, Api]:
    table: dict[int, Api] = {int(row[0]): Api(*row, advertised_min_version=row[1]) for row in rows}
    # librdkafka detects a broker's features by a listed Produce v0, so Kafka lists it without serving it (KAFKA-18659),
    # and so do we.
    produce = table[ApiKey.PRODUCE]
    table[ApiKey.PRODUCE] = Api(
        produce.key, produce.min_version, produce.max_version, produce.flexible_from, produce.codec_name, None, 0
    )
    return MappingProxyType(table)


APIS = _table(
    [
        # The lowest versions are Apache Kafka 4's. InitProducerId v6 (KIP-939) is two-phase commit: not served.
        (ApiKey.PRODUCE, 3, 13, 9, "Produce", None),
        (ApiKey.FETCH, 4, 18, 12, "Fetch", None),
        (ApiKey.LIST_OFFSETS, 1, 11, 6, "ListOffsets", "consumer.offsets"),
        (ApiKey.METADATA, 0, 13, 9, "Metadata", "metadata.metadata"),
        (ApiKey.OFFSET_COMMIT, 2, 10, 8, "OffsetCommit", "consumer.group"),
        (ApiKey.OFFSET_FETCH, 1, 10, 6, "OffsetFetch", "consumer.group"),
        (ApiKey.FIND_COORDINATOR, 0, 6, 3, "FindCoordinator", "metadata.find_coordinator"),
        (ApiKey.JOIN_GROUP, 0, 9, 6, "JoinGroup", "consumer.group"),
        (ApiKey.HEARTBEAT, 0, 4, 4, "Heartbeat", "consumer.group"),
        (ApiKey.LEAVE_GROUP, 0, 5, 4, "LeaveGroup", "consumer.group"),
        (ApiKey.SYNC_GROUP, 0, 5, 4, "SyncGroup", "consumer.group"),
        (ApiKey.DESCRIBE_GROUPS, 0, 6, 5, "DescribeGroups", "admin.groups"),
        (ApiKey.LIST_GROUPS, 0, 5, 3, "ListGroups", "admin.groups"),
        (ApiKey.API_VERSIONS, 0, 4, 3, "ApiVersions", "metadata.api_versions"),
        (ApiKey.CREATE_TOPICS, 2, 7, 5, "CreateTopics", "admin.topics"),
        (ApiKey.DELETE_TOPICS, 1, 6, 4, "DeleteTopics", "admin.topics"),
        (ApiKey.SASL_HANDSHAKE, 0, 1, 2, "SaslHandshake", "sasl"),
        (ApiKey.SASL_AUTHENTICATE, 0, 2, 2, "SaslAuthenticate", "sasl"),
        (ApiKey.DESCRIBE_ACLS, 1, 3, 2, "DescribeAcls", "admin.acl"),
        (ApiKey.CREATE_ACLS, 1, 3, 2, "CreateAcls", "admin.acl"),
        (ApiKey.DELETE_ACLS, 1, 3, 2, "DeleteAcls", "admin.acl"),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0, "DescribeUserScramCredentials", "admin.users"),
        (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0, "AlterUserScramCredentials", "admin.users"),
        (ApiKey.INIT_PRODUCER_ID, 0, 5, 2, "InitProducerId", "producer.transaction"),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3, "AddPartitionsToTxn", "producer.transaction"),
        (ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3, "AddOffsetsToTxn", "producer.transaction"),
        (ApiKey.END_TXN, 0, 5, 3, "EndTxn", "producer.transaction"),
        (ApiKey.WRITE_TXN_MARKERS, 1, 2, 1, "WriteTxnMarkers", "producer.transaction"),
        (ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3, "TxnOffsetCommit", "producer.transaction"),
        (ApiKey.DELETE_GROUPS, 0, 2, 2, "DeleteGroups", "admin.groups"),
        # 99: no version of OffsetDelete is flexible.
        (ApiKey.OFFSET_DELETE, 0, 0, 99, "OffsetDelete", "consumer.group"),
        (ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, "DescribeCluster", "admin.cluster"),
        (ApiKey.DESCRIBE_QUORUM, 0, 2, 0, "DescribeQuorum", "admin.cluster"),
        (ApiKey.DELETE_RECORDS, 0, 2, 2, "DeleteRecords", "admin.topics"),
        (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4, "OffsetForLeaderEpoch", "consumer.offsets"),
        (ApiKey.DESCRIBE_CONFIGS, 1, 4, 4, "DescribeConfigs", "admin.configs"),
        (ApiKey.ALTER_CONFIGS, 0, 2, 2, "AlterConfigs", "admin.configs"),
        (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2, "AlterReplicaLogDirs", "admin.cluster"),
        (ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2, "DescribeLogDirs", "admin.cluster"),
        (ApiKey.CREATE_PARTITIONS, 0, 3, 2, "CreatePartitions", "admin.topics"),
        (ApiKey.ELECT_LEADERS, 0, 2, 2, "ElectLeaders", "admin.topics"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1, "IncrementalAlterConfigs", "admin.configs"),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, "AlterPartitionReassignments", "admin.topics"),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, "ListPartitionReassignments", "admin.topics"),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1, "DescribeClientQuotas", "admin.client_quotas"),
        (ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0, "ListConfigResources", "admin.configs"),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0, "DescribeTopicPartitions", "admin.topics"),
        (ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, "DescribeProducers", "admin.transactions"),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0, "DescribeTransactions", "admin.transactions"),
        (ApiKey.LIST_TRANSACTIONS, 0, 2, 0, "ListTransactions", "admin.transactions"),
        (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0, "ConsumerGroupHeartbeat", OWN_SCHEMAS),
        (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0, "ConsumerGroupDescribe", OWN_SCHEMAS),
        (ApiKey.ALTER_PARTITION, 2, 3, 0, "AlterPartition", OWN_SCHEMAS),
        (ApiKey.ENVELOPE, 0, 0, 0, "Envelope", OWN_SCHEMAS),
        (ApiKey.BROKER_REGISTRATION, 0, 3, 0, "BrokerRegistration", OWN_SCHEMAS),
        (ApiKey.BROKER_HEARTBEAT, 0, 0, 0, "BrokerHeartbeat", OWN_SCHEMAS),
        (ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0, "AllocateProducerIds", OWN_SCHEMAS),
    ]
)
"""All APIs served, by key."""

FLEXIBLE: Final[Mapping[tuple[int, int], bool]] = {
    (key, version): version >= api.flexible_from
    for key, api in APIS.items()
    for version in range(api.min_version, api.max_version + 1)
}
"""For each served API and version: whether it is flexible. To look it up here is cheaper than to call a function."""


def serves(api_key: int, version: int) -> bool:
    """Whether this API and version is served."""
    return (api_key, version) in FLEXIBLE


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version of a served API is flexible (compact lengths, tagged fields)."""
    return version >= APIS[api_key].flexible_from


def request_class(api_key: int) -> Any:
    """Return kafka-python's class of the request; its fields are Kafka's, in snake_case."""
    return _codec_class(api_key, "Request")


def response_class(api_key: int) -> Any:
    """Return kafka-python's class of the response; its fields are Kafka's, in snake_case."""
    return _codec_class(api_key, "Response")


def request(api_key: int, version: int, **fields: Any) -> Any:
    """Build a request; missing fields have the schema's defaults.

    Elements of arrays of structures may be tuples of that version's fields in the schema's order, which encode faster
    than objects; an array holds either tuples or objects, not both.
    """
    return request_class(api_key)(version=version, **fields)


def response(api_key: int, version: int, **fields: Any) -> Any:
    """Build a response; as `request`."""
    return response_class(api_key)(version=version, **fields)


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """Decode a request's body, without its header.

    Bytes after it are ignored, as by Kafka: librdkafka's Metadata has three too many, kafka-go's DescribeAcls one.

    Raises:
        ProtocolError: if the body does not begin with such a request.
    """
    codec = request_class(api_key)
    # Requests between brokers may cover all partitions of a cluster.
    most = MAX_ARRAY_ELEMENTS if api_key not in AMONG_BROKERS else sys.maxsize
    message = _decode(codec, api_key, version, body, most, exact=False)
    _refuse_nulls(message, _not_null(codec, version), APIS[api_key].codec_name)
    return message


def decode_response(api_key: int, version: int, body: Buffer) -> Any:
    """Decode a response's body, without its header; as `decode_request`, but nothing may follow it."""
    if api_key == ApiKey.API_VERSIONS and bytes(body[:2]) not in (b"\0\0", b""):
        version = 0  # the error response has version 0, whatever the request's version
    return _decode(response_class(api_key), api_key, version, body, sys.maxsize, exact=True)


def encode_request(message: Any, version: int) -> bytearray:
    """Encode what `request` or `request_class` built, without the header."""
    return _encode(message, version)


def encode_response(message: Any, version: int) -> bytearray:
    """Encode what `response` or `response_class` built, without the header."""
    return _encode(message, version)


def _encode(message: Any, version: int) -> bytearray:
    encoded: bytearray = message.encode(version=version)
    return encoded


@lru_cache(maxsize=2 * len(ApiKey))
def _codec_class(api_key: int, kind: str) -> Any:
    api = APIS[api_key]
    if api.codec_module is None:
        raise ValueError(
            f"{api.codec_name} has a codec of its own: use sparkonce.kafka.protocol.{api.codec_name.lower()}"
        )
    with warnings.catch_warnings():
        # kafka-python reads its schemas by a function that Python 3.11 and 3.12 deprecated; 3.13 reverted that.
        warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
        own = api.codec_module == OWN_SCHEMAS
        module = import_module(api.codec_module if own else f"kafka.protocol.{api.codec_module}")
    return getattr(module, api.codec_name + kind)


class _Elements(threading.local):
    """Replaces `range` in our decoders: it counts the elements of each array before they are decoded."""

    left = 0

    def __call__(self, count: int) -> range:
        self.left -= max(count, 0)
        if self.left < 0:
            raise ProtocolError(f"its arrays have more than {MAX_ARRAY_ELEMENTS} elements")
        return range(count)


_elements = _Elements()


@lru_cache(maxsize=256)
def _decoder(codec: Any, version: int) -> Any:
    flexible = codec.flexible_version_q(version)
    shared = codec._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=codec[None])
    # A copy: kafka-python's own clients in this process use the same function.
    return FunctionType(shared.__code__, {**shared.__globals__, "range": _elements}, closure=shared.__closure__)


# A generated decoder reads a varint of any length, in quadratic time: tens of ms for this many bytes.
_LONG_RUN_BYTES = 16 * 1024
_LONG_RUN = re.compile(rb"[\x80-\xff]{%d}" % _LONG_RUN_BYTES)


class _Watched(bytes):
    """A body with a long run of bytes above 127: text in most scripts, but to a decoder also a varint of any length.

    A generated decoder reads single bytes only for varints, so it is stopped after the longest valid one.
    """

    _last, _run = -1, 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        if isinstance(index, int) and found > 127:
            self._run = self._run + 1 if index == self._last + 1 else 1
            self._last = index
            if self._run > MAX_VARINT_BYTES:
                raise ProtocolError(f"the number at byte {index - MAX_VARINT_BYTES} has too many bytes")
        return found


def _decode(codec: Any, api_key: int, version: int, body: Buffer, most_elements: int, *, exact: bool) -> Any:
    name = APIS[api_key].codec_name
    if not serves(api_key, version):
        raise ProtocolError(f"{name} v{version} is not served")
    size = len(body)
    if size > MAX_GENERIC_REQUEST_BYTES:
        raise ProtocolError(f"{name} of {size} bytes; at most {MAX_GENERIC_REQUEST_BYTES}")
    watched = size >= _LONG_RUN_BYTES and _LONG_RUN.search(body)
    _elements.left = most_elements
    try:
        message, end = _decoder(codec, version)(_Watched(body) if watched else memoryview(body), 0)
    except (IndexError, struct.error, ValueError, OverflowError, TypeError, AssertionError) as error:
        raise ProtocolError(f"{name} v{version} of {size} bytes is malformed: {error}") from error
    if end > size or (exact and end < size):
        raise ProtocolError(f"{name} v{version} is malformed: it ends at byte {end}, its body at byte {size}")
    return message


class _NotNull(NamedTuple):
    """The fields of a structure that must not be null: simple ones, arrays of texts, and those of nested structures."""

    fields: tuple[str, ...]
    texts: tuple[str, ...]
    structures: tuple[tuple[str, _NotNull], ...]


@lru_cache(maxsize=256)
def _not_null(codec: Any, version: int) -> _NotNull:
    return _not_null_in(codec._struct, version)


def _not_null_in(struct: Any, version: int) -> _NotNull:
    fields, texts, structures = [], [], []
    for field in struct.fields.values():
        if not field.for_version_q(version) or field.tagged_field_q(version):
            continue
        if field.is_struct_array() or field.type_str in ("string", "bytes", "records") or field.is_array():
            if not field.nullable_for_version_q(version):
                fields.append(field.name)
            if field.is_struct_array():
                structures.append((field.name, _not_null_in(field, version)))
            elif field.is_array() and field.array_of.type_str == "string":
                texts.append(field.name)
    return _NotNull(tuple(fields), tuple(texts), tuple(structures))


def _refuse_nulls(message: Any, not_null: _NotNull, name: str) -> None:
    """Reject null as the schema does, as Kafka: the generated codecs accept it, and no handler expects it."""
    for field in not_null.fields:
        if getattr(message, field) is None:
            raise ProtocolError(f"{name}: {field} must not be null")
    for field in not_null.texts:
        if None in (getattr(message, field) or ()):
            raise ProtocolError(f"{name}: what is in {field} must not be null")
    for field, inside in not_null.structures:
        for element in getattr(message, field) or ():
            _refuse_nulls(element, inside, name)
