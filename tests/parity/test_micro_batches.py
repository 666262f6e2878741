"""What each micro-batch holds: the cases of Spark's KafkaMicroBatchSourceSuiteBase and its V1 and V2 suites."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparkonce.connectors.lag.state import source_lag
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.options import OptionError
from tests.parity.support import Cluster, Stream, offsets_json

pytestmark = pytest.mark.kafka

EARLIEST = {"startingOffsets": "earliest"}


def test_the_initial_offset_is_taken_up_again(cluster: Cluster) -> None:
    """A query that is stopped before it has read anything goes on from where it began, though the topic has grown.

    Spark: KafkaMicroBatchSourceSuiteBase "(de)serialization of initial offsets"
    """
    topic = cluster.create(5)
    with cluster.stream(subscribe=topic) as stream:
        assert stream.process_all() == []
        stream.stop()
        cluster.send(topic, range(10))
        stream.start()
        assert stream.process_all() == list(range(10))


def test_a_limit_beyond_all_numbers(cluster: Cluster) -> None:
    """The largest limit there is is no limit, and overflows nothing.

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-26718 Rate limit set to Long.Max should not overflow integer during
        end offset calculation"
    """
    topic = cluster.create()
    cluster.send(topic, range(5))
    options = {"maxOffsetsPerTrigger": 2**63 - 1, "startingOffsets": offsets_json(topic, {0: 5})}
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.process_all() == []
        cluster.send(topic, range(30, 35))
        assert stream.trigger() == list(range(30, 35))


def test_the_most_of_one_batch_is_shared_out(cluster: Cluster) -> None:
    """Ten records for each batch, by what each partition has, at least one; a single batch of all heeds no limit.

    Spark: KafkaMicroBatchSourceSuiteBase "maxOffsetsPerTrigger"
    """
    topic = cluster.create(3)
    cluster.send(topic, range(100, 201), 0)
    cluster.send(topic, range(10, 21), 1)
    cluster.send(topic, [1], 2)
    options = {"subscribe": topic, "maxOffsetsPerTrigger": 10, **EARLIEST}
    with cluster.stream(**options) as stream:
        assert stream.trigger() == [1, 10, *range(100, 108)]
        assert stream.trigger() == [11, *range(108, 117)]
        stream.start()
        assert stream.trigger() == [12, *range(117, 126)]
        assert stream.trigger() == [13, *range(126, 135)]
    with cluster.stream(**options) as stream:
        assert stream.once() == [1, *range(10, 21), *range(100, 201)]
        stream.stop()
        cluster.send(topic, range(1000, 1011))
        stream.start()
        assert stream.once() == list(range(1000, 1011))


def test_the_rows_read_are_those_written(cluster: Cluster) -> None:
    """A stream from the latest offsets counts the new records only. (The query's progress: see test_stream_queries.)

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-30656: minPartitions"
    """
    topic = cluster.create(3)
    cluster.send(topic, range(10), 0)
    cluster.send(topic, range(10, 20), 1)
    cluster.send(topic, [20], 2)
    with cluster.stream(subscribe=topic, minPartitions=6, **EARLIEST) as stream:
        assert stream.plan()
        tasks = stream.tasks()
        assert len(tasks) >= 6
        assert all(tasks)
        assert stream.numbers() == list(range(21))


def test_a_topic_of_the_pattern_is_deleted(cluster: Cluster) -> None:
    """With failOnDataLoss=false, a deleted topic is left behind, and a new one of the pattern is taken up.

    Spark: KafkaMicroBatchSourceSuiteBase "subscribing topic by pattern with topic deletions"
    """
    prefix = cluster.name()
    first, second = f"{prefix}-seems", f"{prefix}-bad"
    cluster.create(5, first)
    cluster.send(first, [-1])
    with cluster.stream(subscribePattern=f"{prefix}-.*", failOnDataLoss="false") as stream:
        assert stream.process_all() == []
        cluster.send(first, [1, 2, 3])
        assert stream.process_all() == [1, 2, 3]
        cluster.delete(first)
        cluster.create(5, second)
        cluster.send(second, [4, 5, 6])
        assert stream.process_all() == [4, 5, 6]


def test_no_empty_offset_is_noted(cluster: Cluster) -> None:
    """While no topic of the pattern is there, the checkpoint keeps what it had.

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-41375: empty partitions should not record to latest offset"
    """
    prefix = cluster.name()
    topic = cluster.create(5, f"{prefix}-good")
    cluster.send(topic, [-1])
    with cluster.stream(subscribePattern=f"{prefix}-.*", failOnDataLoss="false") as stream:
        assert stream.process_all() == []
        cluster.send(topic, [1, 2, 3])
        assert stream.process_all() == [1, 2, 3]
        cluster.delete(topic)
        assert stream.process_all() == []
        assert all(f'"{topic}"' in line for line in stream.offset_log)


def test_a_topic_is_made_anew_between_batches(cluster: Cluster) -> None:
    """The offsets of the old topic mean nothing in the new one: the query says so and stops.

    Spark: KafkaMicroBatchSourceSuiteBase "subscribe topic by pattern with topic recreation between batches"
    """
    prefix = cluster.name()
    first, second = cluster.create(1, f"{prefix}-good"), cluster.create(1, f"{prefix}-bad")
    cluster.send(first, [1, 3])
    cluster.send(second, [2, 4])
    with cluster.stream(subscribePattern=f"{prefix}-.*", **EARLIEST) as stream:
        assert stream.process_all() == [1, 2, 3, 4]
        stream.stop()
        cluster.recreate(second)
        cluster.send(second, [6])
        stream.start()
        with pytest.raises(Exception, match=f"{second} was deleted and created again"):
            stream.process_all()


def test_topic_level_offsets_and_a_new_topic(cluster: Cluster) -> None:
    """A topic of the pattern that comes later needs no mention in the starting offsets.

    Spark: KafkaMicroBatchSourceSuiteBase
        "topic-level offsets tolerate a new topic matching subscribePattern after the start"
    """
    prefix = cluster.name()
    first, second = cluster.create(1, f"{prefix}-a"), f"{prefix}-b"
    cluster.send(first, [1])
    begin = json.dumps({first: "earliest"})
    with cluster.stream(subscribePattern=f"{prefix}-.*", startingOffsets=begin) as stream:
        assert stream.process_all() == [1]
        cluster.create(1, second)
        cluster.send(second, [2])
        assert stream.process_all() == [2]


def test_a_topic_is_deleted_under_a_running_task(cluster: Cluster) -> None:
    """With failOnDataLoss=false the batch that was planned has no rows, and does not fail.

    Spark: KafkaMicroBatchSourceSuiteBase "delete a topic when a Spark job is running"
    """
    topic = cluster.create()
    cluster.send(topic, range(1, 11))
    options = {"failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": 1000, **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.plan()
        cluster.recreate(topic)
        stream.tasks()
        assert stream.numbers() == []


def of_the_jvm(
    cluster: Cluster, folder: Path, topic: str, initial: bytes, planned: dict[int, int] | None, **options: str
) -> Stream:
    """Return a query with a checkpoint of Spark's connector: batch 0 is ``planned`` up to these offsets, or not yet."""
    (folder / "sources" / "0").mkdir(parents=True)
    (folder / "sources" / "0" / "0").write_bytes(initial)
    given = cluster.source_options(subscribe=topic, checkpointLocation=folder, **options)
    return Stream(given, [] if planned is None else [offsets_json(topic, planned)], committed=0)


@pytest.mark.parametrize("planned", [None, {0: 3, 1: 3, 2: 3}])
@pytest.mark.parametrize("mark", [b"", b"\0v1\n"])
def test_an_initial_offset_of_spark_s_connector(
    cluster: Cluster, tmp_path: Path, mark: bytes, planned: dict[int, int] | None
) -> None:
    """Its file says where a batch 0 begins, as Spark 2.1.0 wrote it and as it is written since, not startingOffsets.

    PySpark does not tell a source where the checkpoint is, so the source has an option of that name.

    Spark: KafkaMicroBatchSourceSuiteBase "deserialization of initial offset written by Spark 2.1.0 (SPARK-19517)"
    """
    topic = cluster.create(3)
    for partition, values in enumerate(([0, 1, 2], [0, 10, 20], [0, 100, 200])):
        cluster.send(topic, values, partition)
    initial = mark + offsets_json(topic, {0: 0, 1: 1, 2: 2}).encode()
    with of_the_jvm(cluster, tmp_path, topic, initial, planned, startingOffsets="latest") as stream:
        assert stream.process_all() == [0, 1, 2, 10, 20, 200]
        cluster.send(topic, [1000])
        assert stream.process_all() == [1000]


def test_an_initial_offset_of_a_version_to_come(cluster: Cluster, tmp_path: Path) -> None:
    """A version that is not known is named.

    Spark: KafkaMicroBatchSourceSuiteBase "deserialization of initial offset written by future version"
    """
    topic = cluster.create(3)
    initial = b"\0v99999\n" + offsets_json(topic, {0: 0, 1: 0, 2: 0}).encode()
    with (
        of_the_jvm(cluster, tmp_path, topic, initial, {0: 0, 1: 0, 2: 0}) as stream,
        pytest.raises(CheckpointError, match=r"(?s)v99999.*reads v1"),
    ):
        stream.process_all()


@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id"])
def test_names_of_groups_are_accepted(cluster: Cluster, option: str) -> None:
    """A query that names a group reads as it would without; no group is joined, so none is seen at the broker.

    Spark: KafkaMicroBatchSourceSuiteBase "allow group.id prefix"
    Spark: KafkaMicroBatchSourceSuiteBase "allow group.id override"
    """
    topic, group = cluster.create(3), cluster.name("group")
    cluster.send(topic, range(30))
    with cluster.stream(subscribe=topic, **{option: group}, **EARLIEST) as stream:
        assert stream.process_all() == list(range(30))
        assert not any(each.startswith(group) for each in cluster.groups())


def run_through_transactions(cluster: Cluster, stream: Stream, topic: str, expected: list[list[list[int]]]) -> None:
    """Write transactions, each value being its offset, and compare the batches of three offsets after each step."""

    def several() -> None:
        for values in ([18], [20], [22, 23]):
            writer.write(topic, values)

    with cluster.transactional() as writer:
        steps = [
            lambda: writer.begin(topic, range(5)),
            lambda: writer.commit(topic),  # the marker is at 5
            lambda: (writer.begin(topic, range(6, 11)), writer.abort(topic)),
            lambda: writer.write(topic, range(12, 17)),
            several,  # the markers are at 19, 21 and 24
        ]
        assert stream.trigger() == []
        for number, (step, batches) in enumerate(zip(steps, expected, strict=True)):
            step()
            assert [stream.trigger() for _ in batches] == batches, f"step {number}"
        assert stream.trigger() == []


def test_read_committed(cluster: Cluster) -> None:
    """Open and aborted transactions are not seen, and a batch of markers alone is empty.

    Spark: KafkaMicroBatchSourceSuiteBase "read Kafka transactional messages: read_committed"
    """
    topic = cluster.create()
    options = {"kafka.isolation.level": "read_committed", "maxOffsetsPerTrigger": 3, **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        expected: list[list[list[int]]] = [
            [[]],
            [[0, 1, 2], [3, 4]],
            [[], []],
            [[12, 13, 14], [15, 16]],
            [[18, 20], [22, 23], []],
        ]
        run_through_transactions(cluster, stream, topic, expected)


def test_read_uncommitted(cluster: Cluster) -> None:
    """Records are read as soon as they are there; only markers are not rows.

    Spark: KafkaMicroBatchSourceSuiteBase "read Kafka transactional messages: read_uncommitted"
    """
    topic = cluster.create()
    options = {"kafka.isolation.level": "read_uncommitted", "maxOffsetsPerTrigger": 3, **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        expected = [
            [[0, 1, 2]],
            [[3, 4]],
            [[6, 7, 8], [9, 10]],
            [[12, 13, 14], [15, 16]],
            [[18, 20], [22, 23], []],
        ]
        run_through_transactions(cluster, stream, topic, expected)


def test_records_that_come_while_a_batch_is_read(cluster: Cluster) -> None:
    """What a task fetches beyond its range belongs to the next batch, and is not lost with it.

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-25495: FetchedData.reset should reset all fields"
    """
    topic = cluster.create()
    options = {"kafka.isolation.level": "read_committed", **EARLIEST}
    with cluster.transactional() as writer, cluster.stream(subscribe=topic, **options) as stream:
        writer.write(topic, range(4))
        assert stream.plan()
        writer.write(topic, range(4, 8))
        assert [[row["offset"] for row in task] for task in stream.tasks()] == [[0, 1, 2, 3]]
        assert stream.process_all() == [4, 5, 6, 7]


def test_keys_and_values_that_are_null(cluster: Cluster) -> None:
    """Null stays null, in each combination.

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-27494: read kafka record containing null key/values."
    """
    topic = cluster.create()
    expected = [(None, None)] * 5 + [(b"%d" % n, None) for n in range(5)] + [(None, b"%d" % n) for n in range(5)]
    with cluster.transactional() as writer:
        keys, values = zip(*expected, strict=True)
        text = {None: None, **{b"%d" % n: n for n in range(5)}}
        writer.begin(topic, [text[value] for value in values], keys=[text[key] for key in keys])
        writer.commit(topic)
    options = {"kafka.isolation.level": "read_committed", **EARLIEST}
    with cluster.stream(subscribe=topic, **options) as stream:
        assert stream.plan()
        assert [(row["key"], row["value"]) for task in stream.tasks() for row in task] == expected


def test_a_timestamp_that_does_not_fit(cluster: Cluster) -> None:
    """A timestamp in nanoseconds is no time that Spark can hold in microseconds: the error names the record and it.

    Spark: KafkaMicroBatchSourceSuiteBase "SPARK-56243: malformed record timestamp throws detailed error"
    """
    topic = cluster.create(1, message_timestamp_after_max_ms=str(2**63 - 1))
    nanoseconds = 1_712_345_678_123_456_789
    cluster.send(topic, [1], 0, timestamp_ms=nanoseconds)
    with cluster.stream(subscribe=topic, **EARLIEST) as stream, pytest.raises(Exception, match=str(nanoseconds)) as e:
        stream.process_all()
    assert topic in str(e.value)
    assert "milliseconds" in str(e.value)


@pytest.mark.parametrize(("least", "expected"), [(None, 1), ("1", 1), ("4", 4)])
def test_the_least_number_of_tasks(cluster: Cluster, least: str | None, expected: int) -> None:
    """A range of a hundred records is cut into as many tasks as are asked for.

    Spark: KafkaMicroBatchV2SourceSuite "minPartitions is supported"
    """
    topic = cluster.create()
    cluster.send(topic, range(100))
    options = {} if least is None else {"minPartitions": least}
    with cluster.stream(subscribe=topic, **options, **EARLIEST) as stream:
        assert stream.plan()
        assert len(stream.tasks()) == expected
        assert stream.numbers() == list(range(100))


@pytest.mark.parametrize("least", ["a", "1.0", "0", "-1"])
def test_numbers_of_tasks_that_cannot_be(least: str) -> None:
    """What is not a positive number is refused.

    Spark: KafkaMicroBatchV2SourceSuite "minPartitions is supported"
    """
    with pytest.raises(OptionError, match="minPartitions"):
        Stream({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "minPartitions": least})


def test_no_latest_offset_before_anything_is_planned(cluster: Cluster) -> None:
    """Asked for what the progress shows before it has planned, the reader has nothing to say, and does not fail.

    Spark: KafkaMicroBatchV2SourceSuite "SPARK-57438: metrics should not NPE when latestPartitionOffsets is null"
    """
    with cluster.stream(subscribe=cluster.create()) as stream:
        assert stream.reader.reportLatestOffset() is None


def test_figures_of_the_lag() -> None:
    """The corner cases: no offset, no latest offset, and two partitions that lag by two and four.

    Spark gives Python sources no place for metrics of their own; the lag listener has them, under Spark's names.

    Spark: KafkaMicroBatchV2SourceSuite "test custom metrics - corner cases"
    """

    def figures(end: str | None, latest: str | None) -> dict[str, float]:
        progress = SimpleNamespace(
            description="kafka", numInputRows=3, startOffset=None, endOffset=end, latestOffset=latest
        )
        return source_lag(0, progress).metrics

    end, latest = '{"a":{"0":1},"b":{"0":2}}', '{"a":{"0":3},"b":{"0":6}}'
    both = {"minOffsetsBehindLatest": 2, "maxOffsetsBehindLatest": 4, "avgOffsetsBehindLatest": 3.0}
    assert figures(end, latest) == both
    assert figures(None, latest) == {}
    assert figures(end, None) == {}
