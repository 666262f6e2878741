"""Where a stream begins and how it goes on: the cases of Spark's KafkaSourceSuiteBase, which all its sources share."""

from __future__ import annotations

import json
import time

import pytest

from sparkonce.options import OptionError
from tests.parity.support import Cluster, Row, Stream, offsets_json

pytestmark = pytest.mark.kafka

BY_NAME = pytest.mark.parametrize("how", ["subscribe", "subscribePattern"])
HOW = pytest.mark.parametrize("how", ["assign", "subscribe", "subscribePattern"])
FAIL = pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
PARTITIONS = 5


def choose(cluster: Cluster, how: str, partitions: int = PARTITIONS) -> tuple[str, dict[str, str]]:
    """Create a topic, and give the option that reads it."""
    prefix = cluster.name()
    topic = cluster.create(partitions, f"{prefix}-suffix")
    values = {
        "assign": json.dumps({topic: list(range(partitions))}),
        "subscribe": topic,
        "subscribePattern": f"{prefix}-.*",
    }
    return topic, {how: values[how]}


def grow_and_read_on(cluster: Cluster, stream: Stream, topic: str, how: str) -> None:
    """Add partitions while the stream runs, if it is to find them by itself, and read from all."""
    if how != "assign":
        cluster.grow(topic, 10)
    cluster.send(topic, range(40, 60))
    assert stream.process_all() == list(range(40, 60))


@FAIL
@HOW
def test_from_the_latest_offsets(cluster: Cluster, how: str, fail_on_data_loss: str) -> None:
    """What was there before is not read; what comes later is, once, through restarts and on new partitions.

    Spark: KafkaSourceSuiteBase "assign from latest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "assign from latest offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from latest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from latest offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from latest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from latest offsets (failOnDataLoss: false)"
    """
    topic, chosen = choose(cluster, how)
    cluster.send(topic, [-1])
    with cluster.stream(startingOffsets="latest", failOnDataLoss=fail_on_data_loss, **chosen) as stream:
        assert stream.process_all() == []
        cluster.send(topic, [1, 2, 3])
        assert stream.process_all() == [1, 2, 3]
        stream.start()
        assert stream.process_all() == []
        stream.stop()
        cluster.send(topic, [4, 5, 6])
        stream.start()
        assert stream.process_all() == [4, 5, 6]
        cluster.send(topic, [7, 8])
        assert stream.process_all() == [7, 8]
        grow_and_read_on(cluster, stream, topic, how)


@FAIL
@HOW
def test_from_the_earliest_offsets(cluster: Cluster, how: str, fail_on_data_loss: str) -> None:
    """All is read once, through restarts and on new partitions.

    Spark: KafkaSourceSuiteBase "assign from earliest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "assign from earliest offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from earliest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from earliest offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from earliest offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from earliest offsets (failOnDataLoss: false)"
    """
    topic, chosen = choose(cluster, how)
    cluster.send(topic, [1, 2, 3])
    with cluster.stream(startingOffsets="earliest", failOnDataLoss=fail_on_data_loss, **chosen) as stream:
        cluster.send(topic, [4, 5, 6])
        assert stream.process_all() == [1, 2, 3, 4, 5, 6]
        stream.start()
        assert stream.process_all() == []
        stream.stop()
        cluster.send(topic, [7, 8])
        stream.start()
        assert stream.process_all() == [7, 8]
        grow_and_read_on(cluster, stream, topic, how)


@FAIL
@HOW
def test_from_specific_offsets(cluster: Cluster, how: str, fail_on_data_loss: str) -> None:
    """Each partition begins where its number says, -2 at its beginning and -1 at its end.

    Spark: KafkaSourceSuiteBase "assign from specific offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "assign from specific offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from specific offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from specific offsets (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from specific offsets (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from specific offsets (failOnDataLoss: false)"
    """
    topic, chosen = choose(cluster, how)
    for partition in range(PARTITIONS):
        cluster.send(topic, range(10 * partition, 10 * partition + 3), partition)
    begin = offsets_json(topic, {0: -2, 1: -1, 2: 0, 3: 1, 4: 2})
    expected = [0, 1, 2, 20, 21, 22, 31, 32, 42]
    with cluster.stream(startingOffsets=begin, failOnDataLoss=fail_on_data_loss, **chosen) as stream:
        assert stream.process_all() == expected
        stream.start()
        assert stream.process_all() == []
        cluster.send(topic, range(50, 55))
        assert stream.process_all() == list(range(50, 55))


FIRST, SECOND = 1, 2


def send_at_two_times(cluster: Cluster, topic: str) -> dict[int, int]:
    """Write records of two times to all partitions but the last, which has those of the first; give the times in ms."""
    first_ms = int(time.time() * 1000) - 5_000
    times = {FIRST: first_ms, SECOND: first_ms + 1_000}
    for partition, before in enumerate(((0,), (10,), (20, 21), (30, 31), (40, 41, 42))):
        cluster.send(topic, before, partition, timestamp_ms=times[FIRST])
    for partition, after in enumerate(((1, 2), (11, 12), (22,), (32,))):
        cluster.send(topic, after, partition, timestamp_ms=times[SECOND])
    return times


AT_SECOND = [1, 2, 11, 12, 22, 32]


def go_on_from_timestamps(cluster: Cluster, stream: Stream, topic: str, how: str) -> None:
    stream.start()
    assert stream.process_all() == []
    stream.stop()
    cluster.send(topic, [60, 61, 62])
    stream.start()
    assert stream.process_all() == [60, 61, 62]
    grow_and_read_on(cluster, stream, topic, how)


@FAIL
@HOW
def test_from_a_timestamp_for_each_partition(cluster: Cluster, how: str, fail_on_data_loss: str) -> None:
    """Each partition begins at its first record of the time or later; the times count at the first start only.

    Spark: KafkaSourceSuiteBase "assign from specific timestamps (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "assign from specific timestamps (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from specific timestamps (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from specific timestamps (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from specific timestamps (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from specific timestamps (failOnDataLoss: false)"
    """
    topic, chosen = choose(cluster, how)
    times = send_at_two_times(cluster, topic)
    begin = offsets_json(topic, {**dict.fromkeys(range(4), times[SECOND]), 4: times[FIRST]})
    options = {"startingOffsetsByTimestamp": begin, "failOnDataLoss": fail_on_data_loss, **chosen}
    with cluster.stream(**options) as stream:
        assert stream.process_all() == [*AT_SECOND, 40, 41, 42]
        go_on_from_timestamps(cluster, stream, topic, how)


@FAIL
@HOW
def test_from_one_timestamp_for_all(cluster: Cluster, how: str, fail_on_data_loss: str) -> None:
    """One time serves for every partition.

    Spark: KafkaSourceSuiteBase "assign from global timestamp per topic (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "assign from global timestamp per topic (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from global timestamp per topic (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by name from global timestamp per topic (failOnDataLoss: false)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from global timestamp per topic (failOnDataLoss: true)"
    Spark: KafkaSourceSuiteBase "subscribing topic by pattern from global timestamp per topic (failOnDataLoss: false)"
    """
    topic, chosen = choose(cluster, how)
    times = send_at_two_times(cluster, topic)
    cluster.send(topic, [43, 44], 4, timestamp_ms=times[SECOND])  # without a match the query would end
    with cluster.stream(startingTimestamp=times[SECOND], failOnDataLoss=fail_on_data_loss, **chosen) as stream:
        assert stream.process_all() == [*AT_SECOND, 43, 44]
        go_on_from_timestamps(cluster, stream, topic, how)


def check_no_match(cluster: Cluster, topic: str, rule: dict[str, object], second_ms: int) -> None:
    """A partition without a record so late stops the query, unless the strategy is latest."""
    for strategy in ({}, {"startingOffsetsByTimestampStrategy": "error"}):
        with cluster.stream(**rule, **strategy) as stream, pytest.raises(Exception, match=f"{topic}-4"):
            stream.process_all()
    with cluster.stream(**rule, startingOffsetsByTimestampStrategy="latest") as stream:
        assert stream.process_all() == AT_SECOND
        cluster.send(topic, [43, 44, 45], 4, timestamp_ms=second_ms)
        assert stream.process_all() == [43, 44, 45]


@BY_NAME
def test_a_partition_without_a_record_of_its_timestamp(cluster: Cluster, how: str) -> None:
    """Nothing in a partition is as late as its timestamp.

    Spark: KafkaSourceSuiteBase
        "subscribing topic by name from specific timestamps with non-matching starting offset"
    Spark: KafkaSourceSuiteBase
        "subscribing topic by pattern from specific timestamps with non-matching starting offset"
    """
    topic, chosen = choose(cluster, how)
    times = send_at_two_times(cluster, topic)
    begin = offsets_json(topic, dict.fromkeys(range(PARTITIONS), times[SECOND]))
    check_no_match(cluster, topic, {"startingOffsetsByTimestamp": begin, **chosen}, times[SECOND])


@BY_NAME
def test_a_partition_without_a_record_of_the_timestamp_for_all(cluster: Cluster, how: str) -> None:
    """Nothing in one partition is as late as the timestamp for all.

    Spark: KafkaSourceSuiteBase
        "subscribing topic by name from global timestamp per topic with non-matching starting offset"
    Spark: KafkaSourceSuiteBase
        "subscribing topic by pattern from global timestamp per topic with non-matching starting offset"
    """
    topic, chosen = choose(cluster, how)
    times = send_at_two_times(cluster, topic)
    check_no_match(cluster, topic, {"startingTimestamp": times[SECOND], **chosen}, times[SECOND])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "endingOffsets": "latest"}, ["endingOffsets", "not valid in streaming queries"]),
        (
            {"subscribe": "t", "endingOffsetsByTimestamp": '{"t": {"0": 1000}}'},
            ["endingOffsetsByTimestamp", "not valid in streaming queries"],
        ),
        ({}, ["must be", "subscribe", "subscribePattern", "assign"]),
        ({"subscribe": "t", "subscribePattern": "t.*"}, ["only one", "options"]),
        ({"subscribe": "t", "assign": '{"a":[0]}'}, ["only one", "options"]),
        ({"assign": ""}, ["assign"]),
        ({"subscribe": ""}, ["subscribe"]),
        ({"subscribePattern": ""}, ["subscribePattern"]),
        (
            {"subscribe": "t", "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
            ["minOffsetsPerTrigger", "20", "maxOffsetsPerTrigger", "15"],
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: list[str]) -> None:
    """Options that cannot work are refused before a broker is asked, and named.

    Spark: KafkaSourceSuiteBase "bad source options"
    """
    with pytest.raises(OptionError) as caught:
        Stream({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    assert [word for word in words if word.lower() not in str(caught.value).lower()] == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *[("auto.offset.reset", value) for value in ("none", "someValue", "earliest", "latest")],
        *[
            (setting, "someValue")
            for setting in ("enable.auto.commit", "interceptor.classes", "key.deserializer", "value.deserializer")
        ],
    ],
)
def test_settings_of_kafka_that_are_refused(setting: str, value: str) -> None:
    """Settings that would change what is read are refused, whatever their value.

    Spark: KafkaSourceSuiteBase "unsupported kafka configs"
    """
    with pytest.raises(OptionError, match=f"(?is){setting}.*not supported"):
        Stream({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", f"kafka.{setting}": value})


def test_words_of_options_in_any_case(cluster: Cluster) -> None:
    """`earLiEst` and `laTest` are understood; names of topics keep their case.

    Spark: KafkaSourceSuiteBase "get offsets from case insensitive parameters"
    """
    topic = cluster.create(1, cluster.name("Parity-A"))
    cluster.send(topic, range(5))
    for name, value, expected in (
        ("startingOffsets", "earLiEst", [0, 1, 2, 3, 4]),
        ("STARTINGOFFSETS", offsets_json(topic, {0: 3}), [3, 4]),
        ("startingoffsets", "laTest", []),
    ):
        with Stream(cluster.source_options(subscribe=topic) | {name: value}) as stream:
            assert stream.process_all() == expected
    assert [row["offset"] for row in cluster.batch(subscribe=topic, endingOffsets="laTest")] == [0, 1, 2, 3, 4]
    with cluster.stream(subscribe=topic) as stream:  # the default is latest
        assert stream.process_all() == []
    assert len(cluster.batch(subscribe=topic)) == 5  # and earliest to latest of a batch


def test_topic_level_offsets(cluster: Cluster) -> None:
    """A word for a whole topic among the starting offsets: one topic from its beginning, one from its end.

    Spark: KafkaSourceSuiteBase "subscribing topics from topic-level offsets"
    """
    first, second = cluster.create(3), cluster.create(2)
    cluster.send(first, [1, 2, 3], 0)
    cluster.send(second, [11], 0)
    begin = json.dumps({first: "earliest", second: "latest"})
    with cluster.stream(subscribe=f"{first},{second}", startingOffsets=begin) as stream:
        assert stream.process_all() == [1, 2, 3]
        cluster.send(second, [12], 0)
        cluster.send(first, [4])
        assert stream.process_all() == [4, 12]
        stream.start()
        assert stream.process_all() == []


def test_every_column(cluster: Cluster) -> None:
    """The row of a record holds all that Kafka knows of it, in Spark's types.

    Spark: KafkaSourceSuiteBase "Kafka column types"
    """
    topic = cluster.create(1)
    before_ms = int(time.time() * 1000)
    cluster.send(topic, [1], headers=[("a", b"b"), ("c", b"d")])
    with cluster.stream(subscribe=topic, startingOffsets="earliest", includeHeaders="true") as stream:
        stream.process_all()
    row: Row = stream.batches[0][0]
    assert (row["key"], row["value"], row["topic"], row["partition"], row["offset"]) == (None, b"1", topic, 0, 0)
    assert row["timestamp"].timestamp() * 1000 >= before_ms
    assert row["timestampType"] == 0
    assert row["headers"] == [{"key": "a", "value": b"b"}, {"key": "c", "value": b"d"}]
