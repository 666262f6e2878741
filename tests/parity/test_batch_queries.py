"""Batch queries between two sets of offsets: the cases of Spark's KafkaRelationSuiteBase that need no session.

Those about a DataFrame that is used again are in `spark/test_batch_frames.py`.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from sparkonce.options import OptionError
from tests.parity.support import Batch, Cluster, numbers, offsets_json

pytestmark = pytest.mark.kafka

Topic = tuple[str, list[int]]


def three(cluster: Cluster) -> str:
    """Create a topic of three partitions with the numbers up to 20."""
    topic = cluster.create(3)
    cluster.send(topic, range(10), 0)
    cluster.send(topic, range(10, 20), 1)
    cluster.send(topic, [20], 2)
    return topic


def read(cluster: Cluster, topic: str, **options: Any) -> list[int]:
    return sorted(numbers(cluster.batch(subscribe=topic, **options)))


def test_the_defaults_are_earliest_and_latest(cluster: Cluster) -> None:
    """Without offsets, all is read.

    Spark: KafkaRelationSuiteBase "default starting and ending offsets"
    """
    assert read(cluster, three(cluster)) == list(range(21))


def test_headers(cluster: Cluster) -> None:
    """Headers come in order, also several of one name; a record without has null.

    Spark: KafkaRelationSuiteBase "default starting and ending offsets with headers"
    """
    topic = cluster.create(3)
    expected = {1: [], 2: [("a", b"b"), ("c", b"d")], 3: [("e", b"f"), ("e", b"g")]}
    for number, headers in expected.items():
        cluster.send(topic, [number], number - 1, headers=headers)
    rows = cluster.batch(subscribe=topic, includeHeaders="true")
    found = {int(row["value"]): row["headers"] for row in rows}
    assert found[1] is None
    assert {number: [(each["key"], each["value"]) for each in found[number]] for number in (2, 3)} == {
        number: expected[number] for number in (2, 3)
    }


@pytest.fixture(scope="module")
def timed(cluster: Cluster) -> Topic:
    """A topic of three partitions with ten numbers of each of three times, and the times, and one after them, in ms."""
    topic = cluster.create(3)
    first_ms = int(time.time() * 1000) - 5_000
    times = [first_ms + 1_000 * step for step in range(4)]
    for step in range(3):
        for partition in range(3):
            values = [number for number in range(10 * step, 10 * step + 10) if number % 3 == partition]
            cluster.send(topic, values, partition, timestamp_ms=times[step])
    return topic, times


def at(topic: str, time_ms: int) -> str:
    """Return the JSON of one timestamp for each of three partitions."""
    return offsets_json(topic, dict.fromkeys(range(3), time_ms))


def test_timestamps_for_both_ends(cluster: Cluster, timed: Topic) -> None:
    """The end is before the first record of its time.

    Spark: KafkaRelationSuiteBase "timestamp provided for starting and ending"
    """
    topic, times = timed
    bounds = {"startingOffsetsByTimestamp": at(topic, times[1]), "endingOffsetsByTimestamp": at(topic, times[2])}
    assert read(cluster, topic, **bounds) == list(range(10, 20))


def test_a_timestamp_for_the_start_and_offsets_for_the_end(cluster: Cluster, timed: Topic) -> None:
    """The two ways go together.

    Spark: KafkaRelationSuiteBase "timestamp provided for starting, offset provided for ending"
    """
    topic, times = timed
    bounds = {
        "startingOffsetsByTimestamp": at(topic, times[0]),
        "endingOffsets": offsets_json(topic, {0: -1, 1: -1, 2: 1}),
    }
    assert read(cluster, topic, **bounds) == sorted([2, *(number for number in range(30) if number % 3 != 2)])


def test_offsets_for_the_start_and_a_timestamp_for_the_end(cluster: Cluster, timed: Topic) -> None:
    """The other way round.

    Spark: KafkaRelationSuiteBase "timestamp provided for ending, offset provided for starting"
    """
    topic, times = timed
    bounds = {
        "startingOffsets": offsets_json(topic, {0: -2, 1: -2, 2: 0}),
        "endingOffsetsByTimestamp": at(topic, times[2]),
    }
    assert read(cluster, topic, **bounds) == list(range(20))


def test_a_timestamp_for_the_start_only(cluster: Cluster, timed: Topic) -> None:
    """The end is the latest.

    Spark: KafkaRelationSuiteBase "timestamp provided for starting, ending not provided"
    """
    topic, times = timed
    assert read(cluster, topic, startingOffsetsByTimestamp=at(topic, times[1])) == list(range(10, 30))


def test_a_timestamp_for_the_end_only(cluster: Cluster, timed: Topic) -> None:
    """The start is the earliest.

    Spark: KafkaRelationSuiteBase "timestamp provided for ending, starting not provided"
    """
    topic, times = timed
    assert read(cluster, topic, endingOffsetsByTimestamp=at(topic, times[2])) == list(range(20))


def test_one_timestamp_for_each_end(cluster: Cluster, timed: Topic) -> None:
    """One time serves for all partitions.

    Spark: KafkaRelationSuiteBase "global timestamp provided for starting and ending"
    """
    topic, times = timed
    assert read(cluster, topic, startingTimestamp=times[1], endingTimestamp=times[2]) == list(range(10, 20))


def test_no_record_so_late_at_the_start(cluster: Cluster, timed: Topic) -> None:
    """A start without a match is an error that names the partition.

    Spark: KafkaRelationSuiteBase "no matched offset for timestamp - startingOffsets"
    """
    topic, times = timed
    begin = offsets_json(topic, {0: times[1], 1: times[1], 2: 2**63 - 1})
    with pytest.raises(Exception, match=f"(?i)no offset.*{topic}-2"):
        read(cluster, topic, startingOffsetsByTimestamp=begin)


def test_which_option_wins(cluster: Cluster, timed: Topic) -> None:
    """One timestamp for all beats one for each, and that beats offsets.

    Spark: KafkaRelationSuiteBase "preferences on offset related options"
    """
    topic, times = timed
    weaker = {"startingOffsetsByTimestamp": at(topic, times[1]), "startingOffsets": "earliest"}
    assert read(cluster, topic, startingTimestamp=times[2], **weaker) == list(range(20, 30))
    assert read(cluster, topic, **weaker) == list(range(10, 30))


def test_no_record_so_late_at_the_end(cluster: Cluster, timed: Topic) -> None:
    """An end without a match is the latest.

    Spark: KafkaRelationSuiteBase "no matched offset for timestamp - endingOffsets"
    """
    topic, times = timed
    end = offsets_json(topic, {0: times[1], 1: times[1], 2: 2**63 - 1})
    expected = [*range(10), *(number for number in range(10, 30) if number % 3 == 2)]
    assert read(cluster, topic, endingOffsetsByTimestamp=end) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "t", "startingOffsets": "latest"}, ["startingOffsets", "can't be latest for batch queries"]),
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":-1}}'},
            ["startingOffsets for t-0 can't be latest for batch queries"],
        ),
        ({"subscribe": "t", "endingOffsets": "earliest"}, ["endingOffsets", "can't be earliest for batch queries"]),
        (
            {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
            ["endingOffsets for t-0 can't be earliest for batch queries"],
        ),
        ({}, ["must be", "subscribe", "subscribePattern", "assign"]),
        ({"subscribe": "t", "subscribePattern": "t.*"}, ["only one", "options"]),
        ({"subscribe": "t", "assign": '{"a":[0]}'}, ["only one", "options"]),
        ({"assign": ""}, ["assign"]),
        ({"subscribe": ""}, ["subscribe"]),
        ({"subscribePattern": ""}, ["subscribePattern"]),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], words: list[str]) -> None:
    """Options that cannot work in a batch query are refused before a broker is asked, and named.

    Spark: KafkaRelationSuiteBase "bad batch query options"
    """
    with pytest.raises(OptionError) as caught:
        Batch({"kafka.bootstrap.servers": "127.0.0.1:1", **options})
    assert [word for word in words if word.lower() not in str(caught.value).lower()] == []


def test_read_committed(cluster: Cluster) -> None:
    """Neither open nor aborted transactions are seen.

    Spark: KafkaRelationSuiteBase "read Kafka transactional messages: read_committed"
    """
    topic = cluster.create()
    level = {"kafka.isolation.level": "read_committed"}
    with cluster.transactional() as writer:
        writer.begin(topic, range(1, 6))
        assert read(cluster, topic, **level) == []
        writer.commit(topic)
        assert read(cluster, topic, **level) == list(range(1, 6))
        writer.begin(topic, range(6, 11))
        writer.abort(topic)
        assert read(cluster, topic, **level) == list(range(1, 6))
        writer.write(topic, range(11, 16))
        assert read(cluster, topic, **level) == [*range(1, 6), *range(11, 16)]


def test_read_uncommitted(cluster: Cluster) -> None:
    """All that is there is seen.

    Spark: KafkaRelationSuiteBase "read Kafka transactional messages: read_uncommitted"
    """
    topic = cluster.create()
    level = {"kafka.isolation.level": "read_uncommitted"}
    with cluster.transactional() as writer:
        writer.begin(topic, range(1, 6))
        assert read(cluster, topic, **level) == list(range(1, 6))
        writer.commit(topic)
        assert read(cluster, topic, **level) == list(range(1, 6))
        writer.begin(topic, range(6, 11))
        writer.abort(topic)
        assert read(cluster, topic, **level) == list(range(1, 11))
        writer.write(topic, range(11, 16))
        assert read(cluster, topic, **level) == list(range(1, 16))


UNREACHABLE = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "test"}


def test_start_and_end_of_other_partitions() -> None:
    """The start names three partitions, the end two: refused before a broker is asked.

    Spark: KafkaRelationSuiteBase "topic-partition for start offset and end offset must match"
    """
    start, end = offsets_json("test", {0: 1, 1: 1, 2: 1}), offsets_json("test", {0: 0, 1: 0})
    with pytest.raises(OptionError, match=r"(?s)start.*end.*same.*partitions"):
        Batch({**UNREACHABLE, "startingOffsets": start, "endingOffsets": end})


def test_a_start_after_the_end() -> None:
    """Both are numbers, and in the wrong order: refused before a broker is asked.

    Spark: KafkaRelationSuiteBase "unresolved start offset greater than end offset"
    """
    start, end = (offsets_json("test", dict.fromkeys(range(3), offset)) for offset in (1, 0))
    with pytest.raises(OptionError, match=r"(?s)start offset 1 is greater than.*end offset 0 for.*test.*0"):
        Batch({**UNREACHABLE, "startingOffsets": start, "endingOffsets": end})


def test_a_start_after_the_end_once_resolved(cluster: Cluster) -> None:
    """The end comes from timestamps, and lies before the start.

    Spark: KafkaRelationSuiteBase "resolved start offset greater than end offset (without latest)"
    """
    topic = cluster.create(3)
    now_ms = int(time.time() * 1000)
    for partition in range(3):
        cluster.send(topic, [0], partition, timestamp_ms=now_ms - 1_000)
        cluster.send(topic, [0], partition, timestamp_ms=now_ms)
    bounds = {
        "startingOffsets": offsets_json(topic, dict.fromkeys(range(3), 2)),
        "endingOffsetsByTimestamp": at(topic, now_ms),
    }
    with pytest.raises(Exception, match=rf"(?s)start offset 2 is greater than.*end offset 1 for.*{topic}.*0"):
        read(cluster, topic, **bounds)


def test_a_start_after_the_latest(cluster: Cluster) -> None:
    """The end is the latest, which lies before the start.

    Spark: KafkaRelationSuiteV1 "resolved start offset greater than end offset (with latest)"
    """
    topic = cluster.create(3)
    with pytest.raises(Exception, match=rf"(?s){topic}-0.* 1\b"):
        read(cluster, topic, startingOffsets=json.dumps({topic: {"0": 1, "1": 1, "2": 1}}))
