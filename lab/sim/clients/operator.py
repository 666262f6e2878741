"""An administrator that sends all APIs in all versions: describes, lists, alters, creates and deletes.

Requests are drawn from the schemas of all APIs, field by field; a field's name determines its values. Requests that
change something concern the operator's own topics, groups, transactional ids and users, so that other clients lose
nothing; requests that only read concern everybody's. Some responses are remembered, so that a later request continues
what an earlier one began.

    answered    no response is UNKNOWN_SERVER_ERROR, and every response is valid in its version
"""

from __future__ import annotations

import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from lab.sim.clients.client import GROUP, TRANSACTION, Client, UnreachableError
from lab.sim.marks import Mark
from lab.sim.scheduler import stream
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import AMONG_BROKERS, APIS, ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from lab.sim.world import World

_OPERATORS: Final = 0.35
"""The share of seeds that have one."""
_PAUSE_MS: Final = 120
_TOPICS: Final = ("o0", "o1", "o2")
_GROUPS: Final = ("of-operator", "of-operator-too")
_IDS: Final = ("of-operator",)
_USERS: Final = ("u0", "u1")
_LONG_MS: Final = 2_000
"""Added to the request timeout: some requests wait for members, or for the controller."""

_OF_GROUPS: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
    }
)  # fmt: skip
_OF_TRANSACTIONS: Final = frozenset(
    {
        ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN,
        ApiKey.DESCRIBE_TRANSACTIONS,
    }
)  # fmt: skip
_OF_BOTH: Final = frozenset({ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_OFFSETS_TO_TXN})
_ONLY_READ: Final = frozenset(
    {
        ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.DESCRIBE_CONFIGS, ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_QUORUM, ApiKey.ALTER_REPLICA_LOG_DIRS,
    }
)  # fmt: skip
_BY_LEADERS: Final = frozenset(
    {ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DELETE_RECORDS, ApiKey.DESCRIBE_PRODUCERS}
)
_LEFT_OUT: Final = frozenset(
    {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, *AMONG_BROKERS}
)
_NEVER_NULL: Final = frozenset({(ApiKey.DELETE_ACLS, "principal_filter")})
"""Nullable fields of requests that change something, where null would also mean what other clients own."""
_REMEMBERED: Final = ("member_id", "member_epoch", "generation_id", "producer_id", "producer_epoch")
_CONFIGS: Final = {
    "retention.ms": "100000", "segment.bytes": "500", "cleanup.policy": "compact", "max.message.bytes": "90000",
    "min.insync.replicas": "1", "compression.type": "gzip", "consumer.session.timeout.ms": "900", "no.such": "1",
    "flush.messages": "2", "delete.retention.ms": "-5",
}  # fmt: skip
_TOPIC, _GROUP_CONFIG = 2, 32


def has_operator(seed: int) -> bool:
    """Whether a seed has an operator."""
    return stream("operator", seed).random() < _OPERATORS


class Operator(Client):
    """Sends all APIs until all faults are over."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._is_over = False
        self._known: dict[str, Any] = {}
        planned = {topic.name for topic in world.plan.topics}
        without = set(_LEFT_OUT)
        if OFFSETS_TOPIC not in planned:
            without |= {*_OF_GROUPS, *_OF_BOTH}
        if TRANSACTIONS_TOPIC not in planned:
            without |= {*_OF_TRANSACTIONS, *_OF_BOTH}
        if not {OFFSETS_TOPIC, TRANSACTIONS_TOPIC} <= planned:
            without.add(ApiKey.FIND_COORDINATOR)
        self._apis = [each for each in ApiKey if each not in without]

    def begin(self) -> None:
        """Begin."""
        self.run(self._work())

    def end(self) -> None:
        """Stop sending."""
        self._is_over = True

    async def _work(self) -> None:
        while not self._is_over:
            await self.pause(int(self.rng.random() * _PAUSE_MS))
            api_key = self.rng.choice(self._apis)
            version = self.rng.randrange(APIS[api_key].min_version, APIS[api_key].max_version + 1)
            try:
                await self._try(api_key, version)
            except UnreachableError:
                self._leaders.clear()
                self._coordinators.clear()

    async def _try(self, api_key: ApiKey, version: int) -> None:
        fields = self._fields(apis.request_class(api_key)._struct, version, api_key, "")
        address = await self._address(api_key)
        answer = await self.ask(address, api_key, version, patience_ms=_LONG_MS, **fields)
        self.world.mark(Mark.OPERATED)
        codes = {ErrorCode.of(code) for code in error_codes(answer)}
        self.world.trace(lambda: f"operator: {api_key.name} v{version} {sorted(each.name for each in codes)}")
        if ErrorCode.UNKNOWN_SERVER_ERROR in codes:
            text = f"{api_key.name} v{version} is answered with UNKNOWN_SERVER_ERROR: {fields}"
            self.world.violated(ViolationError("answered", text))
        for name in _REMEMBERED if codes == {ErrorCode.NONE} else ():
            if hasattr(answer, name):
                self._known[name] = getattr(answer, name)
        if ErrorCode.NOT_COORDINATOR in codes:
            self._coordinators.clear()

    async def _address(self, api_key: ApiKey) -> Any:
        """Return the broker to ask: mostly one that can answer."""
        if self.rng.random() < 0.9:
            if api_key in _OF_GROUPS:
                return await self.coordinator(GROUP, self.rng.choice(_GROUPS))
            if api_key in _OF_TRANSACTIONS:
                return await self.coordinator(TRANSACTION, self.rng.choice(_IDS))
            if api_key in _BY_LEADERS:
                return await self.leader(*self.rng.choice(self.world.places))
        return self.some_broker()

    # The values of a request.

    def _fields(self, struct: Any, version: int, api_key: ApiKey, parent: str) -> dict[str, Any]:
        found = {}
        for field in struct.fields.values():
            if field.for_version_q(version) and not field.tagged_field_q(version):
                found[field.name] = self._value(field, version, api_key, parent)
        return found

    def _value(self, field: Any, version: int, api_key: ApiKey, parent: str) -> Any:
        is_null = field.nullable_for_version_q(version) and self.rng.random() < 0.25
        if is_null and (api_key, field.name) not in _NEVER_NULL:
            return None
        if field.is_struct_array():
            kind = self.rng.choice((1, 1, 1, 2, 0))
            # Tuples in the schema's order, as `apis.request` takes them.
            return [tuple(self._fields(field, version, api_key, field.name).values()) for _ in range(kind)]
        if field.is_array():
            one = field.array_of
            values = [self._one(field.name, one.type_str, api_key, parent) for _ in range(self.rng.choice((1, 1, 2)))]
            return list(dict.fromkeys(values))
        if getattr(field, "fields", None):
            return None
        return self._one(field.name, field.type_str, api_key, parent)

    def _one(self, name: str, kind: str, api_key: ApiKey, parent: str) -> Any:
        rng = self.rng
        name = name.removeprefix("v3_and_below_")
        if name in self._known and rng.random() < 0.7:
            return self._known[name]
        if kind in ("string", "bytes"):
            text = rng.choice(self._texts(name, api_key, parent))
            return text if kind == "string" else text.encode()
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "uuid":
            topics = self.world.image.topics.items()
            ids = [topic_id for topic_id, topic in topics if api_key in _ONLY_READ or topic.name in _TOPICS]
            return rng.choice([*ids, ZERO_UUID, uuid.UUID(int=9)])
        return rng.choice(_NUMBERS.get(name, (0, 1, -1, 2)))

    def _texts(self, name: str, api_key: ApiKey, parent: str) -> tuple[str, ...]:
        """Return the values that a string field may have."""
        own = _TEXTS.get(parent) if name == "name" else _TEXTS.get(name)
        if own is not None:
            return own
        if api_key in (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS):
            return _USERS
        if api_key is ApiKey.DESCRIBE_QUORUM:
            return ("__cluster_metadata", *_TOPICS)
        if api_key in _ONLY_READ:
            return (*_TOPICS, *(place[0] for place in self.world.places))
        return _TOPICS


_NUMBERS: Final[dict[str, tuple[int, ...]]] = {
    "num_partitions": (1, 2, 3, -1, 0),
    "replication_factor": (3, 3, 2, -1, 9),
    "count": (2, 3, 4, 1),
    "broker_ids": (1, 2, 3),
    "replicas": (1, 2, 3),
    "timeout_ms": (1_000, 300, 0),
    "rebalance_timeout_ms": (300, 600),
    "session_timeout_ms": (400, 900),
    "transaction_timeout_ms": (300, 800),
    "resource_type": (_TOPIC, _TOPIC, _GROUP_CONFIG, 3),
    "resource_type_filter": (1, _TOPIC, 3, 4),
    "resource_pattern_type": (3, 3, 4),
    "pattern_type_filter": (1, 2, 3, 4),
    "operation": (3, 4, 5, 2, 7),
    "permission_type": (3, 2, 1),
    "config_operation": (0, 1, 2, 3, 7),
    "iterations": (4096, 8192, 1),
    "mechanism": (1, 2, 9),
    "timestamp": (-1, -2, -3, -4, 1_700_000_003_000, 9_000_000_000_000),
    "offset": (0, 1, 3, -1, 10_000),
    "partition_indexes": (0, 0, 1),
    "partitions": (0, 0, 1),
    "partition_index": (0, 0, 1),
    "partition": (0, 0, 1),
    "member_epoch": (0, 0, -1),
    "generation_id": (-1, 1),
    "election_type": (0, 0, 5),
    "producer_id": (-1, 999_999),
    "producer_epoch": (0, 1, -1),
    "endpoint_type": (1, 2),
    "key_type": (0, 1, 0, 7),
    "replica_id": (-1,),
    "response_partition_limit": (1, 2_000, 0),
    "resource_types": (_TOPIC, 4, 8, 16, _GROUP_CONFIG),
    "isolation_level": (0, 1),
}
"""The values of numeric fields by field name; others get four small numbers."""

_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "configs": tuple(_CONFIGS),
    "protocols": ("range", "sticky"),
    "protocol_name": ("range",),
    "protocol_type": ("consumer",),
    "value": (*_CONFIGS.values(), "x"),
    "configuration_keys": tuple(_CONFIGS),
    "group_id": _GROUPS,
    "group_ids": _GROUPS,
    "groups": _GROUPS,
    "groups_names": _GROUPS,
    "key": _GROUPS,
    "coordinator_keys": (*_GROUPS, ""),
    "transactional_id": _IDS,
    "transactional_ids": _IDS,
    "member_id": ("", "", "of-nobody"),
    "group_instance_id": ("i",),
    "instance_id": ("i",),
    "principal": ("User:u0", "User:u1", "nobody"),
    "principal_filter": ("User:u0", "User:u1"),
    "host": ("*", "10.9.9.9"),
    "host_filter": ("*", "10.9.9.9"),
    "resource_name_filter": (*_TOPICS, "o"),
    "subscribed_topic_regex": ("o.*", "o[0-1]", "(", ""),
    "server_assignor": ("uniform", "range", "none"),
    "states_filter": ("Stable", "empty"),
    "state_filters": ("Ongoing", "Empty", "x"),
    "types_filter": ("classic", "consumer"),
    "transactional_id_pattern": ("of.*", "("),
    "client_software_name": ("operator",),
    "client_software_version": ("1.0",),
    "entity_type": ("user", "client-id"),
    "committed_metadata": ("", "m"),
    "mechanism": ("PLAIN", "NONE"),
    "path": ("/data", "/nowhere"),
    "rack_id": ("r",),
    "reason": ("why",),
    "match": ("u0",),
    "salt": ("0123456789abcdef",),
    "salted_password": ("0123456789abcdef0123456789abcdef",),
    "metadata": ("m",),
    "assignment": ("a",),
    "auth_bytes": ("\0u0\0u0",),
}
"""The values of string fields by name of the field, or of the array whose entries have a `name`; otherwise topics."""


@lru_cache(maxsize=256)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(kind._struct.fields) if hasattr(kind, "_struct") else ()


def error_codes(answer: Any) -> list[int]:
    """Return all error codes of a response."""
    found: list[int] = []
    kind: Any = type(answer)
    for name in _names(kind):
        value = getattr(answer, name, None)
        if name.endswith("error_code") and isinstance(value, int):
            found.append(value)
        elif isinstance(value, list):
            for each in value:
                found += error_codes(each)
    return found
