"""A consumer group as a store, on a broker: what other clients see of it, and what the broker refuses."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.kafka.client.settings import read_settings
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.offset_store import CommitConflictError, GroupOffsetStore, OffsetStoreError, offsets
from sparkonce.offset_store.group import CommittedOffset
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord, Commit, Writes

DEADLINE_S = 30
TP = offsets.TopicPartition("topic", "id", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("topic", 2, 1)])["topic"].result(DEADLINE_S)
        yield running


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    made = Client(read_settings(settings(broker)))
    yield made
    made.close()


@pytest.fixture
def group(client: Client) -> KafkaGroupOffsets:
    return KafkaGroupOffsets(client, f"group-{uuid.uuid4().hex[:8]}")


def settings(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    quick = {"kafka.retry.backoff.ms": "10", "kafka.default.api.timeout.ms": "400"}
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, **quick, **more}


def record(batch_id: int, start: int, end: int, topic: str = "topic", app: str = "app") -> BatchRecord:
    moved = {("kafka", offsets.TopicPartition(topic, "id", 0)): OffsetRange(start, end)}
    return BatchRecord(app, "q", batch_id, f"attempt-{batch_id}", moved)


def commit(group: KafkaGroupOffsets, moved: BatchRecord) -> None:
    GroupOffsetStore(group, moved.app_id).snapshot().commit(Commit(moved, Writes.OFFSETS))


def committed(broker: EmbeddedBroker, group: KafkaGroupOffsets) -> dict[int, int]:
    """Ask as a lag tool does."""
    group_id = str(group).removeprefix("group:")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id]
    return {each.partition: each.offset for each in asked.result(DEADLINE_S).topic_partitions}


def test_what_is_committed_is_read_by_us_and_by_other_clients(broker: EmbeddedBroker, group: KafkaGroupOffsets) -> None:
    assert group.fetch() == {}
    commit(group, record(0, 0, 12))
    commit(group, record(1, 12, 20))
    assert GroupOffsetStore(group, "app").read("kafka", [TP]) == {TP: 20}
    assert [entry.record for entry in GroupOffsetStore(group, "app").snapshot().history()] == [record(1, 12, 20)]
    assert committed(broker, group) == {0: 20}


def test_offsets_survive_the_broker(broker: EmbeddedBroker, group: KafkaGroupOffsets) -> None:
    commit(group, record(0, 0, 12))
    broker.restart()
    commit(group, record(1, 12, 13))
    assert GroupOffsetStore(group, "app").snapshot().last_batch("q") == 1


def test_the_offsets_of_a_consumer_count(broker: EmbeddedBroker, group: KafkaGroupOffsets) -> None:
    group_id = str(group).removeprefix("group:")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id})
    consumer.commit(offsets=[TopicPartition("topic", 0, 33)], asynchronous=False)
    consumer.close()
    assert group.fetch() == {("topic", 0): CommittedOffset(33)}
    assert GroupOffsetStore(group, "app").read("kafka", [TP]) == {TP: 33}


def test_a_group_with_live_members_is_refused_before_and_at_the_commit(
    broker: EmbeddedBroker, group: KafkaGroupOffsets
) -> None:
    vacant = GroupOffsetStore(group, "app").snapshot()
    group_id = str(group).removeprefix("group:")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group_id})
    joined = threading.Event()
    consumer.subscribe(["topic"], on_assign=lambda *_: joined.set())
    try:
        for _ in range(DEADLINE_S):
            consumer.poll(1)
            if joined.is_set():
                break
        assert joined.is_set()
        with pytest.raises(OffsetStoreError, match=r"live members .*state Stable.*choose another group id"):
            GroupOffsetStore(group, "app").snapshot()
        with pytest.raises(OffsetStoreError, match=r"live members \(UNKNOWN_MEMBER_ID\)"):
            vacant.commit(Commit(record(0, 0, 5), Writes.OFFSETS))
        assert GroupOffsetStore(group, "app").read("kafka", [TP]) == {}
    finally:
        consumer.close()


def test_a_rival_is_seen(group: KafkaGroupOffsets) -> None:
    mine = GroupOffsetStore(group, "app").snapshot()
    commit(group, record(0, 0, 9))
    with pytest.raises(CommitConflictError, match=r"another (driver|client)"):
        mine.commit(Commit(record(1, 0, 5), Writes.OFFSETS))


@pytest.mark.parametrize(
    ("moved", "reason"),
    [
        (record(0, 0, 1, app="a" * 5000), r"OFFSET_METADATA_TOO_LARGE.*appId and source.*shorter"),
        (record(0, 0, 1, topic="nowhere"), "UNKNOWN_TOPIC_OR_PARTITION.*the cluster that the source reads from"),
    ],
)
def test_refusals_say_what_to_do(group: KafkaGroupOffsets, moved: BatchRecord, reason: str) -> None:
    with pytest.raises(OffsetStoreError, match=reason):
        commit(group, moved)
    assert group.fetch() == {}


def test_nobody_answers() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.socket.connection.setup.timeout.ms": "200"}
    with pytest.raises(KafkaUnreachableError, match=r"127\.0\.0\.1:1 within .* could not fetch the offsets of group:g"):
        KafkaGroupOffsets(Client(read_settings(options)), "g").fetch()


def test_a_coordinator_that_moved_is_looked_for_anew(group: KafkaGroupOffsets, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker asked is the coordinator no more; the next one is still loading; then the answer gets lost."""
    original, asked = Client.ask, []
    before: list[Exception] = [
        KafkaError(ErrorCode.NOT_COORDINATOR),
        KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ]
    after: list[Exception] = [ConnectionResetError("planted")]

    def ask(self: Client, connection: Any, api_key: ApiKey, version: int, **fields: Any) -> Any:
        asked.append(api_key)
        if api_key is ApiKey.OFFSET_COMMIT and before:
            raise before.pop(0)
        answer = original(self, connection, api_key, version, **fields)
        if api_key is ApiKey.OFFSET_COMMIT and after:
            raise after.pop(0)
        return answer

    monkeypatch.setattr(Client, "ask", ask)
    commit(group, record(0, 0, 5))
    assert (before, after) == ([], [])
    assert (asked.count(ApiKey.OFFSET_COMMIT), asked.count(ApiKey.FIND_COORDINATOR)) == (3, 4)
    assert GroupOffsetStore(group, "app").snapshot().version == 1
