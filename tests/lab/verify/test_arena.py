"""What the duel sees of a topic: the decisions of its application that stand, and the records that are committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from lab.duel.arena import APP_ID, DECISION_TOPIC, TopicArena
from lab.verify.records import create_topic
from sparkonce import EmbeddedBroker
from sparkonce.exactly_once.transactions import Decision, decision_key
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord

KEY = ("default", TopicPartition("input", "id", 0))


def decided(app_id: str, number: int, batch_id: int, undone: bool = False) -> tuple[bytes, bytes]:
    record = BatchRecord(app_id, "query", batch_id, f"attempt-{number}", {KEY: OffsetRange(batch_id, batch_id + 1)})
    decision = Decision(number, record, (), {"query": batch_id}, app_id, 0, undone=undone)
    return decision_key(app_id), decision.to_json().encode()


def send(servers: str, topic: str, *records: tuple[bytes, bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for key, value in records:
        producer.produce(topic, value, key, 0)
    producer.flush(30)


@pytest.fixture
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def test_the_decisions_that_stand_are_commits(servers: str) -> None:
    create_topic(servers, "input")
    arena = TopicArena(servers, "input", "copies")
    try:
        create_topic(servers, DECISION_TOPIC)
        assert arena.version() == -1
        send(servers, DECISION_TOPIC, decided(APP_ID, 1, 0), decided("another", 7, 0), decided(APP_ID, 2, 1))
        assert arena.version() == 2
        send(servers, DECISION_TOPIC, decided(APP_ID, 3, 1, undone=True), decided(APP_ID, 4, 1))
        assert [(each.version, each.record.batch_id) for each in arena.commits_after(1)] == [(2, 1), (4, 1)]
        assert arena.commits_after(4) == []
    finally:
        arena.close()


def test_records_are_counted_once_and_rows_as_often_as_they_are_there(servers: str) -> None:
    create_topic(servers, "input")
    arena = TopicArena(servers, "input", "copies")
    try:
        sent = [(b"k0", b"v0"), (b"k1", b"v1")]
        send(servers, "input", *sent)
        send(servers, "copies", *sent, sent[0])
        assert arena.records() == 2
        verdict, rows = arena.judged(sent)
        assert (verdict.lost, verdict.duplicated, rows) == (0, 1, 3)
    finally:
        arena.close()
