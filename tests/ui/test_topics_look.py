from __future__ import annotations

from contextlib import closing

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.topics import TopicsLook
from sparkonce.kafka.client.settings import read_settings
from tests.ui.looking import create_topic, produce


def test_a_partition_that_answers_with_an_error_does_not_hide_the_others(kafka_broker: EmbeddedBroker) -> None:
    servers = kafka_broker.bootstrap_servers
    create_topic(servers, "orders", 2)
    produce(servers, "orders", ["a", "b"], partition=1)
    with (
        closing(TopicsLook(read_settings({"kafka.bootstrap.servers": servers}), EndOffsetHistory())) as look,
        kafka_broker.faults.fail("NOT_LEADER_OR_FOLLOWER", api="ListOffsets", topic="orders", partition=0),
    ):
        failing, healthy = look().topics["orders"].partitions
    assert (failing.start, failing.stable, failing.end, failing.held) == (None, None, None, 0)
    assert (healthy.start, healthy.stable, healthy.end, healthy.held) == (0, 2, 2, 2)
