"""Offsets that follow a query into a consumer group: what lag tools see, and what never happens."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source.group_commits import REFRESH_S, RETRY_AFTER_S, GroupCommitter, moved_forward
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.source import KafkaOnceStreamReader
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store import OffsetStoreError
from sparkonce.offset_store.group import CommittedOffset, Note
from sparkonce.options import OptionError
from tests.interop.python_consumer import python_consumer

DEADLINE_S = 30


def our_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what we logged; the client's own library says so when the machine is slow."""
    return [each.getMessage() for each in caplog.records if each.name.startswith("sparkonce.connectors")]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@dataclass
class Topic:
    broker: EmbeddedBroker
    name: str

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def produce(self, count: int, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for _ in range(count):
            producer.produce(self.name, b"v", partition=partition)
        assert producer.flush(DEADLINE_S) == 0

    def options(self, **more: str) -> dict[str, str]:
        quick = {"kafka.retry.backoff.ms": "10", "kafka.default.api.timeout.ms": "400"}
        quick["kafka.socket.connection.setup.timeout.ms"] = "400"
        return {"kafka.bootstrap.servers": self.servers, "subscribe": self.name, **quick, **more}

    def committed(self, group: str) -> dict[int, int]:
        """Ask as a lag tool does, with another client than ours."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            answer = admin.list_group_offsets(group)
            found = answer.get(group, answer)
            return {tp.partition: entry.offset for tp, entry in found.items() if tp.topic == self.name}
        finally:
            admin.close()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(DEADLINE_S)
    return Topic(broker, name)


@pytest.fixture
def group() -> str:
    return f"lag-{uuid.uuid4().hex[:8]}"


class Query:
    """Calls a reader as Spark does: it plans on from a batch only after the sink has committed it."""

    def __init__(self, topic: Topic, **options: str) -> None:
        given = topic.options(startingOffsets="earliest", **options)
        self.reader = KafkaOnceStreamReader(SourceOptions.read(given))
        self.at: dict[str, Any] = self.reader.initialOffset()

    def plan(self, limit: int | None = None) -> dict[str, Any]:
        end = self.reader.latestOffset(self.at, ReadAllAvailable() if limit is None else ReadMaxRows(limit))
        if self.reader._committer is not None:
            self.reader._committer.settle_once(DEADLINE_S)
        return end

    def batch(self, limit: int | None = None) -> None:
        self.at = self.plan(limit)

    def stop(self) -> None:
        self.reader.stop()


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    made: list[Query] = []
    yield made
    for query in made:
        query.stop()


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def committer(topic: Topic, group: str, clock: Clock) -> Iterator[GroupCommitter]:
    settings = {name: text for name, text in topic.options().items() if name.startswith("kafka.")}
    made = GroupCommitter(read_settings(settings), group, clock)
    yield made
    made.close()


def test_a_finished_batch_is_committed_when_the_next_is_planned(topic: Topic, group: str, queries: list[Query]) -> None:
    topic.produce(5, 0)
    topic.produce(3, 1)
    query = Query(topic, commitGroup=group)
    queries.append(query)
    first = query.plan(limit=4)
    assert topic.committed(group) == {}, "nothing is finished"
    query.at = first
    query.plan(limit=4)
    done = topic.committed(group)
    assert sum(done.values()) == sum(p["next"] for p in first["topics"][topic.name]["partitions"].values()) < 8
    query.batch()
    query.batch()
    assert query.plan() == query.at, "nothing is left, as after the last batch of Trigger.AvailableNow"
    assert topic.committed(group) == {0: 5, 1: 3}


def test_a_query_that_was_stopped_after_a_batch_commits_it_when_it_is_started_again(
    topic: Topic, group: str, queries: list[Query]
) -> None:
    topic.produce(5)
    first, second = (Query(topic, commitGroup=group) for _ in range(2))
    queries += [first, second]
    first.batch()
    first.stop()
    assert topic.committed(group) == {}
    second.at = first.at
    second.plan()
    assert topic.committed(group) == {0: 5, 1: 0}


def test_no_partition_goes_back(topic: Topic, group: str, queries: list[Query], committer: GroupCommitter) -> None:
    topic.produce(9)
    committer.offer({(topic.name, 0): 7})
    assert committer.settle(DEADLINE_S)
    query = Query(topic, commitGroup=group)
    queries.append(query)
    query.batch(limit=4)
    query.plan()
    assert topic.committed(group) == {0: 7, 1: 0}
    query.batch()
    query.plan()
    assert topic.committed(group) == {0: 9, 1: 0}


def test_a_group_with_live_members_is_left_to_them_and_the_query_goes_on(
    topic: Topic, group: str, queries: list[Query], caplog: pytest.LogCaptureFixture
) -> None:
    topic.produce(9)
    query = Query(topic, commitGroup=group)
    queries.append(query)
    settings = {"group_id": group, "enable_auto_commit": False}  # a commit of its own would be taken for the query's
    with python_consumer(topic.name, bootstrap_servers=topic.servers, **settings) as consumer:
        while not consumer.assignment():
            consumer.poll(100)
        with caplog.at_level(logging.WARNING, "sparkonce.connectors"):
            for limit in (2, 2, 2):
                query.batch(limit)
            assert query.plan() != query.at
        assert topic.committed(group) == {}
    (said,) = our_lines(caplog)
    assert f"group:{group} at {topic.servers} has live members (UNKNOWN_MEMBER_ID)" in said
    assert "choose another group id for commitGroup. The query continues" in said


def test_after_a_failure_it_rests_then_tries_again_and_says_that_it_works(
    topic: Topic, group: str, clock: Clock, committer: GroupCommitter, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "sparkonce.connectors"):
        committer.offer({("nowhere", 0): 1})
        assert committer.settle(DEADLINE_S)
        committer.offer({(topic.name, 0): 0})
        committer.settle_once(DEADLINE_S)
        assert not committer.settle(0)
        assert topic.committed(group) == {}
        clock.now += RETRY_AFTER_S
        committer.offer({(topic.name, 0): 0})
        assert committer.settle(DEADLINE_S)
    assert topic.committed(group) == {0: 0}
    failed, accepted = our_lines(caplog)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in failed
    assert "accepts offsets again" in accepted


def test_what_the_group_has_is_asked_for_once_a_day_only(
    broker: EmbeddedBroker, topic: Topic, clock: Clock, committer: GroupCommitter
) -> None:
    asked = broker.faults.delay(0, api="OffsetCommit")
    for _ in range(3):
        committer.offer({(topic.name, 0): 0})
        assert committer.settle(DEADLINE_S)
    assert asked.fired == 1
    clock.now += REFRESH_S
    committer.offer({(topic.name, 0): 0})
    assert committer.settle(DEADLINE_S)
    assert asked.fired == 2
    asked.remove()


def test_a_slow_coordinator_is_waited_for_once(
    broker: EmbeddedBroker, topic: Topic, group: str, committer: GroupCommitter
) -> None:
    with broker.faults.pause(api="OffsetCommit") as held:
        committer.offer({(topic.name, 0): 0})
        committer.settle_once(0.01)
        committer.offer({(topic.name, 0): 0, (topic.name, 1): 0})
        committer.settle_once(10 * DEADLINE_S)
        assert not committer.settle(0), "it did not wait again"
        held.wait(DEADLINE_S)
        held.release()
    committer.close(DEADLINE_S)
    assert topic.committed(group) == {0: 0, 1: 0}


def test_the_end_commits_what_was_offered(topic: Topic, group: str, committer: GroupCommitter) -> None:
    committer.offer({(topic.name, 0): 0})
    committer.close(DEADLINE_S)
    assert topic.committed(group) == {0: 0}
    committer.offer({(topic.name, 1): 0})
    assert topic.committed(group) == {0: 0}
    assert not [each for each in threading.enumerate() if each.name == f"group {group}"]


def test_a_sinks_own_group_is_left_to_it() -> None:
    note = Note("app", "kafka", "q", 3, "attempt", 0, "id", 1, 1).to_text()
    with pytest.raises(OffsetStoreError, match="keeps the offsets of appId 'app', whose sink commits there"):
        moved_forward("group:g", {("t", 0): CommittedOffset(1, note)}, {("t", 0): 5})
    assert moved_forward("group:g", {("t", 1): CommittedOffset(1, note)}, {("t", 0): 5}) == {
        ("t", 0): CommittedOffset(5)
    }


def test_what_stands_still_is_committed_again_and_what_is_ahead_is_not() -> None:
    committed = {("t", 0): CommittedOffset(4, "somebody's"), ("t", 1): CommittedOffset(9)}
    assert moved_forward("group:g", committed, {("t", 0): 4, ("t", 1): 8, ("t", 2): 0}) == {
        ("t", 0): CommittedOffset(4),
        ("t", 2): CommittedOffset(0),
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"commitGroup": " "}, "expected the id of a consumer group"),
        ({"commitGroup": "g", "offsetStore": "group:g", "appId": "a"}, "name the same group"),
    ],
)
def test_a_group_that_cannot_work_is_refused_at_start(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        SourceOptions.read({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **given})


def test_batches_have_no_group() -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", "commitGroup": "g"}
    with pytest.raises(OptionError, match="commitGroup is not valid in batch queries"):
        SourceOptions.read(options).for_batch()
