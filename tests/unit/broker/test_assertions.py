"""Each assertion fires on a planted mistake: its request or partition fails, it is logged, and the broker goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from lab.sim.replacing import replaced
from sparkonce import EmbeddedBroker
from sparkonce.broker_lite.assertions import BrokenInvariantError
from sparkonce.broker_lite.controller import controller
from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.election import next_state
from sparkonce.broker_lite.controller.records import PartitionChanged, PartitionState
from sparkonce.broker_lite.log.local_log import LocalLog
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.fetch import FetchPartition
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from sparkonce.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic, encode_request
from sparkonce.kafka.protocol.records import BatchHeader, Record, encode_batch
from tests.cases import each_case
from tests.unit.broker.script import CONTROLLER, Script
from tests.unit.broker.scripted_follower import TOPIC, fetch_request, send_fetch
from tests.unit.broker.test_connection import Client
from tests.unit.cluster.shared import Candidate, SharedClock, SharedStorage
from tests.unit.controller.cluster import KEY, Cluster
from tests.unit.replication.test_replicas import OneBroker

BROKEN, FINE = ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE


@pytest.fixture
def script() -> Iterator[Script]:
    """Return a cluster with a topic of two partitions, which broker 1 leads."""
    with Script() as script:
        script.create_topic(TOPIC, [1, 1])
        script.expected += (BrokenInvariantError,)
        yield script


def produced(script: Script) -> list[ErrorCode]:
    """Append a record to each partition, in one request."""
    batches = [encode_batch([Record(None, b"v", script.brokers[1].now_ms())]) for _ in range(2)]
    topic = ProduceTopic(TOPIC, ZERO_UUID, [ProducePartition(*each) for each in enumerate(batches)])
    body = encode_request(9, ProduceRequest(None, -1, 1_000, [topic]))
    answer = script.answer(script.send_bytes(1, ApiKey.PRODUCE, 9, body))
    return [ErrorCode(each.error_code) for each in answer.topics[0].partitions]


def consumed(script: Script) -> list[ErrorCode]:
    """Read both partitions as a consumer, in one request."""
    asked = [FetchPartition(index, 0, 1 << 20) for index in (0, 1)]
    answer = script.answer(send_fetch(script, fetch_request(script, asked, replica_id=-1, max_wait_ms=0)))
    return [ErrorCode(each.error_code) for each in answer.topics[0].partitions]


@contextmanager
def _offset_assigned_twice(log: PartitionLog) -> Iterator[None]:
    write = LocalLog._write

    def assign(self: LocalLog, batch: Any, header: BatchHeader, leader_epoch: int, now_ms: int) -> object:
        if self is not log:
            return write(self, batch, header, leader_epoch, now_ms)
        return self._put(batch, header, self.log_end_offset - 1 + header.last_offset_delta, now_ms)

    with replaced(LocalLog, "_write", assign):
        yield


@contextmanager
def _high_watermark_kept_by_truncation(log: PartitionLog) -> Iterator[None]:
    before, log._high_watermark = log._high_watermark, log.log_end_offset + 1
    yield
    log._high_watermark = before


@contextmanager
def _older_epoch_than_the_log_has(log: PartitionLog) -> Iterator[None]:
    log.leader_epochs.assign(log.latest_epoch + 1, log.log_end_offset)
    yield
    log.leader_epochs.truncate_from_end(log.log_end_offset)


@each_case(
    ("mistake", "invariant", "reads"),
    [
        (_older_epoch_than_the_log_has, "epochs-rise", [FINE, FINE]),
        (_offset_assigned_twice, "offsets-in-order", [FINE, FINE]),
        (_high_watermark_kept_by_truncation, "high-watermark-in-log", [BROKEN, FINE]),
    ],
)
def test_a_log_whose_state_is_broken_refuses_writes_and_the_other_partition_takes_them(
    script: Script,
    mistake: Callable[[PartitionLog], AbstractContextManager[None]],
    invariant: str,
    reads: list[ErrorCode],
) -> None:
    script.noted.clear()
    assert produced(script) == [FINE, FINE]
    log = script.log(TOPIC, 0)
    end = log.log_end_offset
    with mistake(log):
        assert produced(script) == [BROKEN, FINE]
        assert consumed(script) == reads
    assert log.log_end_offset == end
    assert all(f"{invariant}: {log.directory}" in each for each in script.noted)
    assert script.noted
    assert (produced(script), consumed(script)) == ([FINE, FINE], [FINE, FINE])


def _in_sync_without_replica(state: PartitionState, *others: Any, **named: Any) -> PartitionState:
    """Count a broker that has no replica as in sync, in partitions whose preferred leader is broker 1."""
    changed = next_state(state, *others, **named)
    return changed if state.replicas[0] != 1 else changed._replace(in_sync_replicas=(*changed.in_sync_replicas, 9))


def _led_by_nobody_in_sync(*state: Any) -> PartitionState:
    return PartitionState(*state)._replace(leader=9)


def _elect(script: Script, index: int) -> ErrorCode:
    topics = [(TOPIC, [index])]
    answer = script.ask(CONTROLLER, ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=topics, timeout_ms=1_000)
    return ErrorCode(answer.replica_election_results[0].partition_result[0].error_code)


def test_a_decision_that_breaks_a_state_is_refused_and_later_ones_are_taken(script: Script) -> None:
    script.kill(1)
    script.revive(1)
    before = script.state(TOPIC, 0)
    assert before.leader != 1
    with replaced(controller, "next_state", _in_sync_without_replica):
        assert _elect(script, 0) is BROKEN
    assert script.state(TOPIC, 0) == before
    assert any("leader-in-sync: partition" in each for each in script.noted)
    assert _elect(script, 0) is FINE
    assert script.leader(TOPIC, 0) == 1


def test_a_controller_whose_decision_failed_half_done_resigns() -> None:
    """Also under ``python -O``: the next one begins with what is in the log."""

    def half_done(self: Controller, *_: object) -> None:
        self._change(1, fenced=True, shutting_down=False)
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    candidate = Candidate(SharedStorage(), clock := SharedClock(), 1)
    candidate.service.tick()
    candidate.register(clock)
    with (
        replaced(Controller, "create_topic", half_done),
        pytest.raises(AssertionError, match="changes nothing"),
    ):
        candidate.create("t")
    assert not candidate.service.active
    candidate.service.tick()
    candidate.create("t")
    candidate.read()
    assert list(candidate.image.topic_ids) == ["t"]


def test_brokers_are_fenced_though_one_of_their_partitions_cannot_move(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    cluster.make_topic((1, 2, 3), (2, 1, 3), (3, 1, 2))
    before = cluster.state
    with replaced(controller, "next_state", _in_sync_without_replica):
        cluster.write(cluster.controller.fence([1]))
    assert cluster.state == before
    assert "leader-in-sync: partition" in caplog.text
    moved = cluster.image.partition((KEY[0], 1))
    assert moved is not None
    assert moved.in_sync_replicas == (2, 3)
    assert cluster.replay() == cluster.image


def create(client: Client) -> ErrorCode:
    topic = apis.request(ApiKey.CREATE_TOPICS, 5, topics=[("t", 1, 1, [], [])], timeout_ms=1_000, validate_only=False)
    client.request(ApiKey.CREATE_TOPICS, 5, bytes(apis.encode_request(topic, 5)))
    _, answer = client.answer(ApiKey.CREATE_TOPICS, 5)
    return ErrorCode(apis.decode_response(ApiKey.CREATE_TOPICS, 5, answer).topics[0].error_code)


def test_a_standalone_broker_creates_nothing_of_a_topic_whose_state_would_be_broken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EmbeddedBroker() as broker:
        client = Client(broker)
        with replaced(controller, "PartitionState", _led_by_nobody_in_sync):
            assert create(client) is BROKEN
        assert "leader-in-sync: partition" in caplog.text
        assert create(client) is FINE
        client.close()


@each_case(
    ("change", "invariant"),
    [
        ({"in_sync_replicas": (1, 9)}, "leader-in-sync"),
        ({"in_sync_replicas": (2, 3)}, "leader-in-sync"),
        ({"eligible_leader_replicas": (2,)}, "leader-in-sync"),
        ({"leader_epoch": -1}, "epochs-rise"),
    ],
)
def test_a_role_that_is_broken_is_not_taken_and_later_another_is(change: dict[str, Any], invariant: str) -> None:
    broker = OneBroker()
    broker.begin(leader=1)
    whole = broker.state
    broker.change(**change)
    assert f"{invariant}: partition {KEY[0]}-0: " in str(broker.replicas.failed[KEY])
    assert KEY not in broker.replicas.roles
    broker.tell(PartitionChanged(*KEY, whole._replace(leader_epoch=2, partition_epoch=9)))
    assert not broker.replicas.failed
    assert KEY in broker.replicas.roles
