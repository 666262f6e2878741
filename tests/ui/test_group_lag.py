"""How far groups are behind in time, where offsets are no records, and where brokers do not answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.kafka.groups import GroupsLook
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.state import GroupPartition
from sparkonce.jobs.ui.kafka.watch import PATIENCE
from sparkonce.jobs.ui.pages.groups import GROUP, GROUPS
from sparkonce.jobs.ui.pages.topics import TOPICS
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.kafka.client.settings import read_settings
from tests.ui.looking import create_topic, produce
from tests.unit.ui.shown import shown

TOPIC = "orders"
SLOT = TOPIC, 0


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        create_topic(made.bootstrap_servers, TOPIC)
        yield made


class Looking:
    """Looks at one group; tests set how long the logs were before."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        options = {**PATIENCE, "kafka.bootstrap.servers": broker.bootstrap_servers}
        self.past = EndOffsetHistory()
        self.look = GroupsLook(read_settings(options), options, self.past)
        self.servers = broker.bootstrap_servers

    def note(self, ago_s: float, end: int) -> None:
        self.past.note(time.monotonic() - ago_s, {SLOT: end})

    def commit(self, offset: int) -> None:
        with closing(Consumer({"bootstrap.servers": self.servers, "group.id": "g"})) as consumer:
            consumer.commit(offsets=[TopicPartition(*SLOT, offset)], asynchronous=False)

    def partition(self) -> GroupPartition:
        (found,) = self.look()["g"].partitions
        return found


@pytest.fixture
def looking(broker: EmbeddedBroker) -> Iterator[Looking]:
    made = Looking(broker)
    with closing(made.look):
        yield made


def transaction(looking: Looking) -> Producer:
    """Return a producer with a record in an open transaction."""
    producer = Producer({"bootstrap.servers": looking.servers, "transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, "a")
    return producer


def test_a_group_that_has_only_a_marker_left_is_not_behind_in_time(looking: Looking) -> None:
    transaction(looking).commit_transaction()
    looking.commit(1)
    looking.note(1000.0, 0)
    looking.note(990.0, 2)
    found = looking.partition()
    assert (found.lag, found.seconds) == (1, 0.0)
    produce(looking.servers, TOPIC, ["b"])
    looking.note(100.0, 2)
    looking.note(90.0, 3)
    assert 90.0 <= (looking.partition().seconds or 0.0) < 990.0


def test_only_a_marker_written_before_anybody_looked(looking: Looking) -> None:
    transaction(looking).abort_transaction()
    looking.commit(1)
    looking.note(0.0, 2)
    assert looking.partition().seconds == 0.0


def test_a_lag_that_could_not_be_read_once_is_read_again(broker: EmbeddedBroker, looking: Looking) -> None:
    produce(looking.servers, TOPIC, ["a"])
    looking.commit(0)
    looking.note(0.0, 1)
    with broker.faults.drop_before(api="Fetch"):
        assert looking.partition().seconds is None
    found = looking.partition()
    assert found.seconds is not None
    assert found.by_timestamp


def test_an_offset_beyond_the_end_of_the_log_is_no_lag_of_none(looking: Looking) -> None:
    looking.commit(7)
    looking.note(0.0, 5)
    assert not looking.partition().is_beyond  # it may be committed since the ends were looked at
    assert not looking.partition().is_beyond
    looking.note(0.0, 5)
    assert looking.partition().is_beyond
    assert looking.look()["g"].lag.beyond == 1
    looking.note(0.0, 7)
    assert not looking.partition().is_beyond


def test_pages_say_that_an_offset_is_beyond_the_end(looking: Looking) -> None:
    produce(looking.servers, TOPIC, ["a"])
    looking.commit(7)
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": looking.servers}))) as site:
        while "beyond the end of 1 log" not in shown(GROUPS, site):
            site.cluster.group("g")  # type: ignore[union-attr]  # it was given brokers
        html = shown(GROUP, site, id="g")
        assert "belongs to a topic that was recreated" in html
        assert '<span class="good">none</span>' not in html
        assert "beyond the end of 1 log" in shown(TOPICS, site)
