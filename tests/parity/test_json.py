"""Offsets as text: the cases of Spark's JsonUtilsSuite, KafkaSourceOffsetSuite and KafkaOffsetRangeLimitSuite.

Spark's connector writes an offset as `{"topic":{"0":23}}`; ours says more, and reads that too.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_source.checkpoint import read_line
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.options import OptionError
from tests.parity.support import Cluster

UNREACHABLE = {"kafka.bootstrap.servers": "127.0.0.1:1"}
Each = dict[tuple[str, int], int]


def options(**given: str) -> SourceOptions:
    return SourceOptions.read({**UNREACHABLE, **given})


def starting(text: str) -> SourceOptions:
    return options(subscribe="t", startingOffsets=text)


def test_partitions() -> None:
    """The JSON of option assign.

    Spark: JsonUtilsSuite "parsing partitions"
    """
    assert options(assign='{"topicA":[0,1],"topicB":[4,6]}').assigned == {"topicA": (0, 1), "topicB": (4, 6)}


def test_offsets_of_partitions() -> None:
    """Numbers, and the two that mean latest and earliest.

    Spark: JsonUtilsSuite "parsing partitionOffsets"
    """
    rule = starting('{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}').starting
    assert rule is not None
    assert dict(rule.each) == {("topicA", 0): 23, ("topicA", 1): -1, ("topicB", 0): -2}


@pytest.mark.parametrize(
    "text", ['{"topicA":"first"}', '{"topicA":[0,1]}', '{"topicA":{"0":"earliest"}}', '"earliest"', "not json"]
)
def test_json_of_another_form(text: str) -> None:
    """What is no offset is refused, and quoted.

    Spark: JsonUtilsSuite "parsing specificOffsets rejects malformed json"
    """
    with pytest.raises(OptionError) as caught:
        starting(text)
    assert text in str(caught.value)
    assert "startingOffsets" in str(caught.value)


def offset(**next_offsets: int) -> SourceOffset:
    """Return an offset from `topic_partition=next`."""
    positions = {}
    for name, at in next_offsets.items():
        topic, partition = name.split("_")
        positions[TopicPartition(topic, "id", int(partition))] = Position(0, at)
    return SourceOffset("kafka", positions)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (offset(t_0=1), offset(t_0=2)),
        (offset(t_0=1, t_1=0), offset(t_0=2, t_1=1)),
        (offset(t_0=1, T_0=0), offset(t_0=2, T_0=1)),
        (offset(t_0=1), offset(t_0=2, t_1=1)),
        (offset(t_0=1), offset(t_0=2, t_1=3)),
    ],
)
def test_equal_offsets_are_equal_text(one: SourceOffset, two: SourceOffset) -> None:
    """Spark compares the text of offsets: the same one is written alike, another one otherwise.

    Spark: KafkaSourceOffsetSuite "comparison {"t":{"0":1}} <=> {"t":{"0":2}}"
    Spark: KafkaSourceOffsetSuite "comparison {"t":{"0":1,"1":0}} <=> {"t":{"0":2,"1":1}}"
    Spark: KafkaSourceOffsetSuite "comparison {"T":{"0":0},"t":{"0":1}} <=> {"T":{"0":1},"t":{"0":2}}"
    Spark: KafkaSourceOffsetSuite "comparison {"t":{"0":1}} <=> {"t":{"0":2,"1":1}}"
    Spark: KafkaSourceOffsetSuite "comparison {"t":{"0":1}} <=> {"t":{"0":2,"1":3}}"
    """
    backwards = SourceOffset(two.source, dict(reversed([*two.positions.items()])))
    assert two.to_json() == backwards.to_json()
    assert one.to_json() != two.to_json()


@pytest.mark.parametrize("position", [offset(t_0=1), offset(t_0=2, t_1=3)])
def test_there_and_back(position: SourceOffset) -> None:
    """An offset is read back as it was written.

    Spark: KafkaSourceOffsetSuite "basic serialization - deserialization"
    """
    assert SourceOffset.from_json(position.to_json()) == position
    assert read_line(json.loads(position.to_json()), "kafka").offset == position


def test_there_and_back_by_the_log(tmp_path: Path) -> None:
    """Offsets of one and of two sources, as lines of the checkpoint's log, in both versions of it.

    Spark: KafkaSourceOffsetSuite "OffsetSeqLog serialization - deserialization"
    """
    (tmp_path / "offsets").mkdir()
    one, two = offset(t_0=1), offset(t_0=2, t_1=3)
    lines = [one.to_json(), two.to_json()]
    (tmp_path / "offsets" / "0").write_text("\n".join(["v1", "{}", lines[0]]))
    (tmp_path / "offsets" / "1").write_text("\n".join(["v1", "{}", *lines]))
    (tmp_path / "offsets" / "2").write_text("\n".join(["v2", "{}", f"0:{lines[0]}", f"1:{lines[1]}"]))
    checkpoint = Checkpoint.open(str(tmp_path))
    read = [[SourceOffset.from_json(line) for line in checkpoint.logged(n).lines.values()] for n in range(3)]
    assert read == [[one], [one, two], [one, two]]


def test_an_offset_of_spark_2_1() -> None:
    """What Spark's connector has written since 2.1 is read.

    Spark: KafkaSourceOffsetSuite "read Spark 2.1.0 offset format"
    """
    read = read_line({"topic1": {"0": 456, "1": 789}, "topic2": {"0": 0}}, "kafka").offset
    assert {(tp.topic, tp.partition): at.next for tp, at in read.positions.items()} == {
        ("topic1", 0): 456,
        ("topic1", 1): 789,
        ("topic2", 0): 0,
    }


@pytest.mark.kafka
def test_words_for_topics_beside_numbers(cluster: Cluster) -> None:
    """Every assigned partition of a topic takes the topic's word.

    Spark: KafkaOffsetRangeLimitSuite "resolving topic-level offsets against the assigned partitions"
    """
    first, second = cluster.create(2), cluster.create(1)
    cluster.send(first, range(4))
    cluster.send(second, range(10, 14))
    begin = json.dumps({first: "earliest", second: {"0": 3}})
    with cluster.stream(subscribe=f"{first},{second}", startingOffsets=begin) as stream:
        assert stream.process_all() == [0, 1, 2, 3, 13]


@pytest.mark.kafka
def test_numbers_only(cluster: Cluster) -> None:
    """Offsets that name every partition are taken as they are.

    Spark: KafkaOffsetRangeLimitSuite
        "resolving fully enumerated offsets doesn't need the assigned partitions"
    """
    topic = cluster.create()
    cluster.send(topic, range(25))
    with cluster.stream(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 23}})) as stream:
        assert stream.process_all() == [23, 24]


@pytest.mark.kafka
def test_a_word_for_a_topic_that_is_not_read(cluster: Cluster) -> None:
    """A topic that the query does not read is named.

    Spark: KafkaOffsetRangeLimitSuite "resolving a topic-level offset of a topic without assigned partitions fails"
    """
    topic, other = cluster.create(), cluster.name()
    begin = json.dumps({topic: "earliest", other: "earliest"})
    with cluster.stream(subscribe=topic, startingOffsets=begin) as stream, pytest.raises(Exception, match=other):
        stream.process_all()


def test_words_for_topics() -> None:
    """A word for each topic, in any case.

    Spark: JsonUtilsSuite "parsing specificOffsets with topic-level earliest/latest"
    Spark: JsonUtilsSuite "parsing specificOffsets mixing topic-level and partition-level values"
    """
    starting('{"topicA":"earliest","topicB":"latest"}')
    starting('{"topicA":"earliest","topicB":{"0":23,"1":-1},"topicC":"LATEST"}')


def test_a_topic_in_both_forms() -> None:
    """A topic with a word and with numbers is refused.

    Spark: JsonUtilsSuite "parsing specificOffsets rejects a topic given in both forms"
    """
    with pytest.raises(OptionError, match=r"topicA.*both"):
        starting('{"topicA":"earliest","topicA":{"0":23}}')
