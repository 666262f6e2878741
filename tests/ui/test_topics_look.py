from __future__ import annotations

from contextlib import closing

from kafka.admin import KafkaAdminClient

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.kafka.past import EndOffsetHistory
from sparkonce.jobs.ui.kafka.sizes import SizesLook, TopicSize
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


def test_sizes_are_those_that_kafka_python_reads(kafka_broker: EmbeddedBroker) -> None:
    servers = kafka_broker.bootstrap_servers
    create_topic(servers, "sized", 3)
    for partition, count in ((0, 1), (2, 500)):
        produce(servers, "sized", ["value"] * count, partition=partition)
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        (broker,) = admin.describe_log_dirs()
    theirs = {
        (topic["name"], each["partition_index"]): each["partition_size"]
        for folder in broker["log_dirs"]
        for topic in folder["topics"]
        for each in topic["partitions"]
    }
    with closing(SizesLook(read_settings({"kafka.bootstrap.servers": servers}))) as look:
        found = look()
    ours = {(name, number): size for name, topic in found.items() for number, size in topic.partitions.items()}
    assert ours == theirs
    assert found["sized"].size == found["sized"].copies == sum(ours["sized", each] for each in range(3)) > 1_000


def test_a_size_is_not_known_while_a_partition_is_not() -> None:
    size = TopicSize({0: 10, 2: 5}, 15)
    assert [size.of(count) for count in (2, 3)] == [15, None]
