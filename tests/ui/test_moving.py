"""Offsets of a group moved by hand, where the answer of the broker is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.errors import RefusedError
from sparkonce.jobs.ui.kafka.moving import Target, fingerprint, move, plan
from tests.ui.looking import create_topic, produce

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        create_topic(made.bootstrap_servers, TOPIC)
        produce(made.bootstrap_servers, TOPIC, ["a", "b", "c"])
        with closing(Consumer({"bootstrap.servers": made.bootstrap_servers, "group.id": "g"})) as consumer:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 2)], asynchronous=False)
        yield made


def test_a_move_whose_answer_was_lost_is_told_as_done(broker: EmbeddedBroker) -> None:
    options, target = {"kafka.bootstrap.servers": broker.bootstrap_servers}, Target(TOPIC, 0, offset=1)
    planned = plan(options, "g", target)
    with broker.faults.drop_after(api="OffsetCommit", times=1):
        assert move(options, "g", target, fingerprint(planned)) == planned
    assert plan(options, "g", target) == []


def test_a_plan_is_carried_out_once(broker: EmbeddedBroker) -> None:
    options, target = {"kafka.bootstrap.servers": broker.bootstrap_servers}, Target(TOPIC, 0, offset=1)
    planned = plan(options, "g", target)
    move(options, "g", target, fingerprint(planned))
    with pytest.raises(RefusedError, match="Nothing was changed: the offsets have moved since they were shown"):
        move(options, "g", target, fingerprint(planned))
