"""What a pipeline has left behind in Kafka is seen by clients that are not ours."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from confluent_kafka import Producer, TopicPartition

from lab.verify.cells import Result
from lab.verify.evidence import gather
from lab.verify.pipelines import Pipeline
from lab.verify.records import Delivered, Sending, create_topic, make, read_delivered
from lab.verify.transactions import held_up, lags, open_transactions
from sparkonce import EmbeddedBroker

APP = "one/app"
ID = f"sparkonce/{quote(APP, safe='')}/1/a-0"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        yield broker.bootstrap_servers


def begun(servers: str, topic: str, transactional_id: str = ID) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "linger.ms": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key", 0)
    producer.flush(30)
    return producer


def test_an_open_transaction_is_seen_until_it_is_ended(servers: str) -> None:
    create_topic(servers, "held")
    producer = begun(servers, "held")
    assert open_transactions(servers, APP) == [f"{ID} is Ongoing"]
    assert open_transactions(servers, "one") == []
    assert held_up(servers, ["held"]) == ["held-0 is stable to 0 of 1"]
    assert read_delivered(servers, "held") == []
    producer.commit_transaction(30)
    assert open_transactions(servers, APP) == []
    assert held_up(servers, ["held"]) == []
    assert read_delivered(servers, "held") == [Delivered(b"key", b"value")]


def test_what_is_aborted_is_not_delivered(servers: str) -> None:
    create_topic(servers, "aborted")
    begun(servers, "aborted").abort_transaction(30)
    assert held_up(servers, ["aborted"]) == []
    assert read_delivered(servers, "aborted") == []


def test_a_lag_is_seen_until_the_offsets_are_the_ends(servers: str) -> None:
    create_topic(servers, "input")
    Sending.begin(servers, "input", make(range(4))).finish()
    assert lags(servers, "reader", "input") == ["input-0 is at -1001 of 2", "input-1 is at -1001 of 2"]
    pipeline = Pipeline("reader", servers, "input", "", "exactly-once", Result.TOPIC.value, 8)
    assert pipeline.output_topic is not None
    create_topic(servers, pipeline.output_topic)
    evidence = gather(pipeline)
    assert len(evidence.in_topic) == 4
    assert evidence.left_behind[0] == "group reader lags: input-0 is at -1001 of 2"
    commit(servers, "reader", {0: 2, 1: 2})
    assert gather(pipeline).left_behind == ()


def commit(servers: str, group: str, offsets: dict[int, int]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition("input", partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()
