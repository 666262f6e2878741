"""No request keeps the others waiting: what is done in one turn of the event loop is bounded, for every API.

Each API that takes an array is asked with a large one, beside a small client that is served between two turns. Work is
counted in calls of functions, not timed. Reading the request and writing the answer are left out: they are one step
each, whose size `MAX_ARRAY_ELEMENTS` bounds. So is writing a file of all topics or rules, once for a request.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparkonce.broker_lite import dispatch
from sparkonce.broker_lite.log import topics_file
from sparkonce.broker_lite.node import turns
from sparkonce.broker_lite.node.request import Body, Endpoint, Request
from sparkonce.broker_lite.security.authorizer import Authorizer
from sparkonce.kafka.protocol import apis, produce
from sparkonce.kafka.protocol.apis import APIS, ApiKey
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.limits import MAX_ARRAY_ELEMENTS
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.handling import handle
from tests.unit.broker.admin_support import NODE, NOW_MS, Asked

MANY = 200
UNITS = 50
CALLS_PER_UNIT = 80
MAX_CALLS = UNITS * CALLS_PER_UNIT
"""What a turn may take with `UNITS` units. `MANY` items without turns take more."""

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SMALL = 40
"""How many small topics there are besides."""
NAMES = [f"n{number}" for number in range(MANY)]
INDEXES = list(range(MANY))

REASONS: dict[ApiKey, str] = {
    ApiKey.FETCH: "it reads up to fetch.max.bytes; each partition is a look-up, MAX_ARRAY_ELEMENTS of them at most",
    ApiKey.OFFSET_COMMIT: "one batch of records, which is there as a whole or not at all",
    ApiKey.TXN_OFFSET_COMMIT: "one batch of records, which is there as a whole or not at all",
    ApiKey.OFFSET_DELETE: "one batch of records, which is there as a whole or not at all",
    ApiKey.ADD_PARTITIONS_TO_TXN: "one change of a transaction's state",
    ApiKey.WRITE_TXN_MARKERS: "among brokers: one marker for each partition of a transaction",
    ApiKey.OFFSET_FETCH: "look-ups in memory, MAX_ARRAY_ELEMENTS of them at most",
    ApiKey.FIND_COORDINATOR: "look-ups in memory, MAX_ARRAY_ELEMENTS of them at most",
    ApiKey.LEAVE_GROUP: "one change of a group's state",
    ApiKey.JOIN_GROUP: "one member",
    ApiKey.SYNC_GROUP: "one change of a group's state",
    ApiKey.HEARTBEAT: "one member",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "one member",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "look-ups in memory, MAX_ARRAY_ELEMENTS of them at most",
    ApiKey.LIST_GROUPS: "one look at each group; there are MAX_GROUPS at most",
    ApiKey.LIST_TRANSACTIONS: "one look at each transactional id; there are MAX_TRANSACTIONAL_IDS at most",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "at most max.request.partition.size.limit partitions an answer",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "one look at each partition that moves",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "look-ups in memory, MAX_ARRAY_ELEMENTS of them at most",
    ApiKey.DESCRIBE_QUORUM: "one entry for each broker",
    ApiKey.DESCRIBE_ACLS: "one look at each rule",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "one look at each user",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "there are none",
    ApiKey.LIST_CONFIG_RESOURCES: "one name for each topic and group",
    ApiKey.DESCRIBE_CLUSTER: "one entry for each broker",
    ApiKey.API_VERSIONS: "no array",
    ApiKey.SASL_HANDSHAKE: "no array",
    ApiKey.SASL_AUTHENTICATE: "no array",
    ApiKey.INIT_PRODUCER_ID: "no array",
    ApiKey.ADD_OFFSETS_TO_TXN: "no array",
    ApiKey.END_TXN: "no array",
    ApiKey.ALTER_PARTITION: "among brokers: one decision of the controller",
    ApiKey.ENVELOPE: "holds one request of another API",
    ApiKey.BROKER_REGISTRATION: "among brokers: no array of a client's making",
    ApiKey.BROKER_HEARTBEAT: "among brokers: no array",
    ApiKey.ALLOCATE_PRODUCER_IDS: "among brokers: no array",
}
"""The APIs that are done in one turn, and why that is bounded all the same."""


def _produce() -> bytes:
    batch = encode_batch([Record(None, b"v", NOW_MS)])
    topic = produce.ProduceTopic("large", ZERO_UUID, [produce.ProducePartition(index, batch) for index in INDEXES])
    return bytes(produce.encode_request(9, produce.ProduceRequest(None, -1, 1000, [topic])))


LARGE: list[tuple[ApiKey, int, dict[str, Any] | Callable[[], bytes]]] = [
    (ApiKey.PRODUCE, 9, _produce),
    (ApiKey.METADATA, 9, {"topics": [(name,) for name in NAMES], "allow_auto_topic_creation": False}),
    (ApiKey.METADATA, 9, {"topics": [(name,) for name in NAMES], "allow_auto_topic_creation": True}),
    (ApiKey.METADATA, 9, {"topics": None}),
    (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [("large", [(each, -1, -1) for each in INDEXES])]}),
    (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [("large", [(each, -1, 5) for each in INDEXES])]}),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, {"topics": [("large", [(each, -1, 0) for each in INDEXES])]}),
    (ApiKey.CREATE_TOPICS, 5, {"topics": [(name, 1, 1, [], []) for name in NAMES], "timeout_ms": 1}),
    (ApiKey.CREATE_TOPICS, 5, {"topics": [("much", MANY, 1, [], [])], "timeout_ms": 1}),
    (ApiKey.CREATE_TOPICS, 5, {"topics": [("a b", 1, 1, [], [])] + [(f"!{name}", 1, 1, [], []) for name in NAMES]}),
    (ApiKey.CREATE_PARTITIONS, 2, {"topics": [("large", 2 * MANY, None)], "timeout_ms": 1}),
    (ApiKey.CREATE_PARTITIONS, 2, {"topics": [(name, 3, None) for name in NAMES], "timeout_ms": 1}),
    (ApiKey.DELETE_TOPICS, 4, {"topic_names": NAMES, "timeout_ms": 1}),
    (ApiKey.DELETE_TOPICS, 4, {"topic_names": ["large", *(f"small{each}" for each in INDEXES)], "timeout_ms": 1}),
    (ApiKey.DELETE_RECORDS, 2, {"topics": [("large", [(each, -1) for each in INDEXES])], "timeout_ms": 1}),
    (ApiKey.DELETE_GROUPS, 2, {"groups_names": NAMES}),
    (ApiKey.DESCRIBE_GROUPS, 5, {"groups": NAMES}),
    (ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [(2, f"small{each}", None) for each in INDEXES]}),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    (ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": [(name, [0]) for name in NAMES]}),
    (ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [("large", INDEXES)]}),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": NAMES}),
    (ApiKey.ALTER_CONFIGS, 2, {"resources": [(2, f"small{each}", [("retention.ms", "9")]) for each in INDEXES]}),
    (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"resources": [(2, f"small{each}", [("retention.ms", 0, "9")]) for each in INDEXES]},
    ),
    (ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": None, "timeout_ms": 1}),
    (ApiKey.ELECT_LEADERS, 2, {"election_type": 0, "topic_partitions": [("large", INDEXES)], "timeout_ms": 1}),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": [("large", [(each, [NODE]) for each in INDEXES])]}),
    (ApiKey.CREATE_ACLS, 2, {"creations": [(2, name, 3, "User:a", "*", 3, 3) for name in NAMES]}),
    (ApiKey.DELETE_ACLS, 2, {"filters": [(2, name, 3, None, None, 1, 1) for name in NAMES]}),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [(name, 1) for name in NAMES], "upsertions": []}),
]


def test_every_api_is_asked_or_has_a_reason() -> None:
    asked = {key for key, _, _ in LARGE}
    assert not asked & REASONS.keys()
    assert asked | REASONS.keys() == {ApiKey(key) for key in APIS}


class Turning(Asked):
    """A broker whose event loop goes round by hand, and that counts what is done in each callback."""

    def __init__(self, **settings: object) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self.calls: list[int] = []
        self.answers: list[Any] = []
        super().__init__(**settings)

    def call_soon(self, callback: Callable[[], object]) -> object:
        self.waiting.append(callback)
        return None

    def request(self, key: ApiKey, version: int, body: bytes) -> Request:
        endpoint = Endpoint("127.0.0.1", 9092)
        here = memoryview(bytearray(body))
        return Request(key, version, 1, "tests", "127.0.0.1", here, "User:ANONYMOUS", endpoint)

    def answer_to(self, key: ApiKey, version: int, body: bytes, between: Callable[[], object]) -> Body:
        """Ask, and let the loop go round until the answer is there; `between` is called after each turn."""
        answers: list[Any] = []
        request = self.request(key, version, body)
        dispatch.handler_of(key)  # loads it
        with counted(self.calls):
            now = handle(self.broker, request, answers)
        if now is not None:
            return now
        while not answers:
            between()
            callback = self.waiting.popleft()
            with counted(self.calls):
                callback()
        assert not isinstance(answers[0], Exception), answers
        body_later: Body = answers[0]
        return body_later


@contextmanager
def counted(calls: list[int]) -> Iterator[None]:
    """Count the functions that are called, but for what reading and writing messages calls."""
    count, inside = 0, 0
    codecs = {
        *(Request.message.__code__, Request.response.__code__, produce.decode_request.__code__),
        *(topics_file.encode.__code__, Authorizer._write.__code__),
    }

    def note(frame: Any, event: str, _: object) -> None:
        nonlocal count, inside
        if event in ("call", "return") and frame.f_code in codecs:
            inside += 1 if event == "call" else -1
        elif not inside and event in ("call", "c_call"):
            count += 1

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        calls.append(count)


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> Turning:
    monkeypatch.setattr(turns, "MAX_UNITS_PER_TURN", UNITS)
    broker = Turning(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    assert broker.broker.groups, "made with the first request that needs them, as are the transactions"
    assert broker.broker.transactions
    broker.create("large", MANY)
    for index in range(10):
        broker.append("large", b"v", partition=index)
    for each in range(SMALL):
        broker.create(f"small{each}")
    return broker


def _id(each: object) -> str:
    return each.name if isinstance(each, ApiKey) else ""


@pytest.mark.parametrize(("key", "version", "wanted"), LARGE, ids=_id)
def test_a_large_request_is_done_in_turns(
    turning: Turning, key: ApiKey, version: int, wanted: dict[str, Any] | Callable[[], bytes]
) -> None:
    body = wanted() if callable(wanted) else bytes(apis.encode_request(apis.request(key, version, **wanted), version))
    served: list[int] = []

    def small_client() -> None:
        assert handle(turning.broker, turning.request(ApiKey.API_VERSIONS, 0, b"")) is not None
        served.append(len(turning.calls))

    turning.answer_to(key, version, body, small_client)
    assert served == list(range(1, len(turning.calls))), "others are served after each turn"
    assert served
    assert max(turning.calls) <= MAX_CALLS


def test_the_elements_of_all_arrays_are_bounded(turning: Turning) -> None:
    for key, version, wanted in (
        (ApiKey.DELETE_TOPICS, 4, {"topic_names": ["t"] * (MAX_ARRAY_ELEMENTS + 1), "timeout_ms": 1}),
        (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": [("t", [(1, -1, -1)])] * (MAX_ARRAY_ELEMENTS // 2 + 1)}),
    ):
        with pytest.raises(ProtocolError, match="more than 100000 elements"):
            turning.ask(key, version, **wanted)
    names = [f"t{number}" for number in range(MAX_ARRAY_ELEMENTS)]
    body = apis.encode_request(apis.request(ApiKey.DELETE_TOPICS, 4, topic_names=names, timeout_ms=1), 4)
    assert len(apis.decode_request(ApiKey.DELETE_TOPICS, 4, body).topic_names) == MAX_ARRAY_ELEMENTS


@pytest.mark.parametrize("codec", Compression)
def test_others_are_served_between_looks_into_batches(turning: Turning, codec: Compression) -> None:
    batch = bytes(encode_batch([Record(None, b"v", NOW_MS + each) for each in range(3_000)], compression=codec))
    turning.create("timed", 4)
    topic = produce.ProduceTopic("timed", ZERO_UUID, [produce.ProducePartition(each, batch) for each in range(4)])
    body = bytes(produce.encode_request(9, produce.ProduceRequest(None, -1, 1000, [topic])))
    turning.answer_to(ApiKey.PRODUCE, 9, body, lambda: None)
    served: list[int] = []
    topics = [("timed", [(each, -1, NOW_MS + 2_999) for each in range(4)])]
    wanted = apis.request(ApiKey.LIST_OFFSETS, 7, replica_id=-1, topics=topics)
    turning.calls.clear()
    answer = turning.answer_to(
        ApiKey.LIST_OFFSETS, 7, bytes(apis.encode_request(wanted, 7)), lambda: served.append(len(turning.calls))
    )
    (part,) = answer
    assert isinstance(part, bytearray)
    read = apis.decode_response(ApiKey.LIST_OFFSETS, 7, part)
    assert [each.offset for each in read.topics[0].partitions] == [2_999] * 4
    assert len(served) >= 4 * 2, "within a batch too"
    # A thousand records are passed over at a stretch, each with some calls; four batches as a whole take far more.
    assert max(turning.calls) <= 1_000 * 6 + MAX_CALLS
