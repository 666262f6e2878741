"""Which partitions are read, and between which offsets: the cases of ConsumerStrategySuite and KafkaOffsetReaderSuite.

Spark runs each case of the latter by a consumer and by an admin client; ours has one client for all questions.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import KafkaInputPartition
from sparkonce.connectors.kafka_source.source import KafkaOnceReader, KafkaOnceStreamReader
from tests.parity.support import Cluster, offsets_json

pytestmark = pytest.mark.kafka


def assigned(cluster: Cluster, **chosen: str) -> set[tuple[str, int]]:
    planner = Planner(SourceOptions.read(cluster.source_options(**chosen)))
    try:
        return {(tp.topic, tp.partition) for tp in planner.refresh()}
    finally:
        planner.close()


def test_the_first_contact(cluster: Cluster) -> None:
    """The planner's client comes into being with the query, and answers.

    Spark: ConsumerStrategySuite "createAdmin must create admin properly"
    """
    topic = cluster.create()
    assert assigned(cluster, subscribe=topic) == {(topic, 0)}


def test_assigned_partitions(cluster: Cluster) -> None:
    """Those, and no others.

    Spark: ConsumerStrategySuite "AssignStrategy.assignedTopicPartitions must give back all assigned"
    """
    topic, _ = cluster.create(3), cluster.create(2)
    assert assigned(cluster, assign=json.dumps({topic: [0, 2]})) == {(topic, 0), (topic, 2)}


def test_an_assigned_partition_that_is_not_there(cluster: Cluster) -> None:
    """Ours differs on purpose: Spark's connector reads nothing and says nothing, ours names the partition and stops.

    Spark: ConsumerStrategySuite "AssignStrategy.assignedTopicPartitions must skip invalid partitions"
    """
    topic = cluster.create(1)
    with pytest.raises(Exception, match=f"topic {topic} has no partition 1"):
        assigned(cluster, assign=json.dumps({topic: [1]}))


def test_subscribed_topics(cluster: Cluster) -> None:
    """All partitions of each.

    Spark: ConsumerStrategySuite "SubscribeStrategy.assignedTopicPartitions must give back all assigned"
    """
    first, second, _ = cluster.create(2), cluster.create(2), cluster.create(2)
    expected = {(topic, partition) for topic in (first, second) for partition in range(2)}
    assert assigned(cluster, subscribe=f"{first},{second}") == expected


def test_topics_of_a_pattern(cluster: Cluster) -> None:
    """All partitions of each topic that matches.

    Spark: ConsumerStrategySuite "SubscribePatternStrategy.assignedTopicPartitions must give back all assigned"
    """
    prefix = cluster.name("pattern")
    first, second, _ = (
        cluster.create(2, f"{name}-{kind}") for name, kind in ((prefix, 1), (prefix, 2), ("x", prefix[:9]))
    )
    expected = {(topic, partition) for topic in (first, second) for partition in range(2)}
    assert assigned(cluster, subscribePattern=f"{prefix}.*") == expected


Piece = tuple[int, int, int]


def pieces(planned: Any) -> list[Piece]:
    """Return partition, start and end of what tasks read."""
    tasks = [task for task in planned if isinstance(task, KafkaInputPartition)]
    return sorted((piece.partition, piece.start, piece.end) for task in tasks for piece in task.wanted)


def of_batch(cluster: Cluster, topic: str, **bounds: str) -> list[Piece]:
    reader = KafkaOnceReader(SourceOptions.read(cluster.source_options(subscribe=topic, **bounds)))
    return pieces(reader.partitions())


def test_ranges_between_numbers(cluster: Cluster) -> None:
    """Three records for three tasks.

    Spark: KafkaOffsetReaderSuite
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using specific offsets"
    """
    topic = cluster.create()
    cluster.send(topic, range(10), 0)
    bounds = {"startingOffsets": offsets_json(topic, {0: 1}), "endingOffsets": offsets_json(topic, {0: 4})}
    assert of_batch(cluster, topic, minPartitions="3", **bounds) == [(0, 1, 2), (0, 2, 3), (0, 3, 4)]


EARLIEST, LATEST = -2, -1


def test_ranges_between_words(cluster: Cluster) -> None:
    """The outermost ends stay words, for the tasks to ask what they mean then.

    Spark: KafkaOffsetReaderSuite
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using special offsets"
    """
    topic = cluster.create()
    cluster.send(topic, range(4), 0)
    bounds = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    assert of_batch(cluster, topic, minPartitions="3", **bounds) == [(0, EARLIEST, 1), (0, 1, 2), (0, 2, LATEST)]


def test_ranges_of_several_partitions(cluster: Cluster) -> None:
    """One of a hundred and one of three records make four pieces, the outermost ends as they were given.

    Spark: KafkaOffsetReaderSuite
        "SPARK-30656: getOffsetRangesFromUnresolvedOffsets - multiple topic partitions"
    """
    topic = cluster.create(2)
    cluster.send(topic, range(100), 0)
    cluster.send(topic, range(4), 1)
    bounds = {
        "startingOffsets": offsets_json(topic, {0: EARLIEST, 1: EARLIEST}),
        "endingOffsets": offsets_json(topic, {0: LATEST, 1: 3}),
    }
    assert of_batch(cluster, topic, minPartitions="4", **bounds) == [
        (0, EARLIEST, 33),
        (0, 33, 66),
        (0, 66, LATEST),
        (1, EARLIEST, 3),
    ]


def test_a_start_that_names_too_few_partitions(cluster: Cluster) -> None:
    """Two of three: both sets are named.

    Spark: KafkaOffsetReaderSuite "SPARK-48383: START_OFFSET_DOES_NOT_MATCH_ASSIGNED error class"
    """
    topic = cluster.create(3)
    bounds = {
        "startingOffsets": offsets_json(topic, {0: -2, 1: -2}),
        "endingOffsets": offsets_json(topic, {0: -1, 1: 3}),
    }
    with pytest.raises(Exception, match=rf"(?s)startingOffsets.*Specified: .*{topic}-1.*Assigned: .*{topic}-2"):
        of_batch(cluster, topic, minPartitions="4", **bounds)


@pytest.mark.parametrize("specified", [2, 4])
def test_timestamps_for_other_partitions(cluster: Cluster, specified: int) -> None:
    """Two or four of three: both sets are named.

    Spark: KafkaOffsetReaderSuite
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class - partitions assigned: 3, specified: 2"
    Spark: KafkaOffsetReaderSuite
        "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class - partitions assigned: 3, specified: 4"
    """
    topic = cluster.create(3)
    begin = offsets_json(topic, dict.fromkeys(range(specified), 1_000))
    with pytest.raises(Exception, match=rf"(?s)imestamp.*Specified: .*{topic}-{specified - 1}.*Assigned: .*{topic}-2"):
        of_batch(cluster, topic, startingOffsetsByTimestamp=begin)


def test_ranges_of_a_micro_batch(cluster: Cluster) -> None:
    """Between the offsets of a checkpoint, the large range is cut.

    Spark: KafkaOffsetReaderSuite "SPARK-30656: getOffsetRangesFromResolvedOffsets"
    """
    topic = cluster.create(2)
    cluster.send(topic, range(100), 0)
    cluster.send(topic, range(4), 1)
    options = cluster.source_options(subscribe=topic, minPartitions=4)
    reader = KafkaOnceStreamReader(SourceOptions.read(options))
    start, end = ({topic: {"0": first, "1": second}} for first, second in ((0, 0), (100, 3)))
    assert pieces(reader.partitions(start, end)) == [(0, 0, 33), (0, 33, 66), (0, 66, 100), (1, 0, 3)]
    reader.stop()
