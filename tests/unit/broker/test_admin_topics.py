"""Topics, partitions and records by request: what Apache Kafka 4.3 answered to the same requests."""

from __future__ import annotations

import errno
import re
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.node.new_topics import internal_topic_settings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from sparkonce.kafka.protocol.primitives import ZERO_UUID
from tests.cases import each_case
from tests.unit.broker.admin_support import NODE, Asked

Assignments = list[tuple[int, list[int]]]


def create(
    asked: Asked,
    name: str = "b",
    partitions: int = -1,
    factor: int = -1,
    assignments: Assignments | None = None,
    settings: list[tuple[str, str | None]] | None = None,
    **more: Any,
) -> Any:
    wanted = (name, partitions, factor, assignments or [], settings or [])
    answer = asked.ask(
        ApiKey.CREATE_TOPICS, 5, topics=[wanted], timeout_ms=1000, validate_only=more.get("validate_only", False)
    )
    return answer.topics[0]


REFUSED_TOPICS: list[tuple[dict[str, Any], ErrorCode, str]] = [
    ({"factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR, "replication factor of 3 cannot be reached"),
    ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "must be larger than 0, or -1"),
    ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
    ({"partitions": -2}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
    ({"name": ""}, ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic name"),
    ({"name": "a/b"}, ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic name"),
    ({"name": "there"}, ErrorCode.TOPIC_ALREADY_EXISTS, "already exists"),
    ({"name": "the.re", "partitions": 1}, ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with"),
    ({"partitions": 1, "assignments": [(0, [NODE])]}, ErrorCode.INVALID_REQUEST, "numPartitions was not set to -1"),
    ({"factor": 1, "assignments": [(0, [NODE])]}, ErrorCode.INVALID_REQUEST, "replication factor was not set to -1"),
    ({"assignments": [(0, [NODE]), (2, [NODE])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based"),
    ({"assignments": [(0, [77])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 77, but no such broker"),
    ({"assignments": [(0, [NODE, NODE])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 3 more than once"),
    ({"assignments": [(0, [])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list"),
    ({"assignments": [(0, [NODE]), (0, [NODE])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "multiple .* partition 0"),
    ({"settings": [("nope", "1")]}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
    ({"settings": [("retention.ms", "x")]}, ErrorCode.INVALID_CONFIG, "retention.ms"),
    ({"settings": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG, "Null value not supported"),
    ({"settings": [("retention.ms", "-2")]}, ErrorCode.INVALID_CONFIG, "must be at least -1"),
    ({"settings": [("cleanup.policy", "compact,x")]}, ErrorCode.INVALID_CONFIG, "'x' is none of"),
]


@each_case(("wanted", "code", "said"), REFUSED_TOPICS)
def test_a_topic_that_cannot_be_is_refused(wanted: dict[str, Any], code: ErrorCode, said: str) -> None:
    asked = Asked()
    asked.create("there" if wanted.get("name") != "the.re" else "the_re")
    answer = create(asked, **wanted)
    assert answer.error_code == code
    assert re.search(said, answer.error_message), answer.error_message
    assert len(list(asked.broker.topics())) == 1


def test_a_topic_is_answered_with_all_its_settings() -> None:
    asked = Asked(log_retention_hours=1, num_partitions=4)
    answer = create(asked, settings=[("segment.bytes", "2000")])
    assert (answer.error_code, answer.num_partitions, answer.replication_factor) == (0, 4, 1)
    configs = {each.name: (each.value, each.config_source) for each in answer.configs}
    assert len(configs) == 33
    assert configs["segment.bytes"] == ("2000", 1)  # the topic's
    assert configs["retention.ms"] == ("3600000", 5)  # Kafka names the source of log.retention.ms, which is not set
    assert configs["max.message.bytes"] == ("1048588", 5)


def test_assignments_make_partitions() -> None:
    asked = Asked()
    assert create(asked, assignments=[(1, [NODE]), (0, [NODE])]).num_partitions == 2


def test_a_topic_that_is_only_tried_is_not_there() -> None:
    asked = Asked()
    assert create(asked, partitions=1, validate_only=True).error_code == 0
    assert not list(asked.broker.topics())


def test_more_replicas_by_default_are_refused_too(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked(default_replication_factor=2)
    assert create(asked).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(asked, factor=1).error_code == 0
    (topic,) = asked.ask(ApiKey.METADATA, 9, topics=[("auto",)], allow_auto_topic_creation=True).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "topic auto is not created, though a client asks for it: INVALID_REPLICATION_FACTOR (" in caplog.text


def test_internal_topics_are_made_alike_whoever_asks_first() -> None:
    asked = Asked(offsets_topic_num_partitions=5)
    for name, (partitions, settings) in internal_topic_settings(asked.broker.config).items():
        for expected in ((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, 0), (0, True, partitions)):
            (answer,) = asked.ask(ApiKey.METADATA, 9, topics=[(name,)], allow_auto_topic_creation=True).topics
            assert (answer.error_code, answer.is_internal, len(answer.partitions)) == expected
        topic = asked.broker.logs.topics[name]
        assert topic.settings == settings
        assert topic.config.cleanup_policy == ("compact",)


def test_a_broker_that_may_not_know_all_topics_yet_calls_none_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not registered since its start. Kafka does not listen before; unknown may be final to librdkafka."""
    asked = Asked()
    monkeypatch.setattr(ClusterMember, "registered", False)
    for create in (True, False):
        (answer,) = asked.ask(ApiKey.METADATA, 9, topics=[("later",)], allow_auto_topic_creation=create).topics
        assert answer.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert "later" not in asked.broker.logs.topics


def test_a_topic_named_twice_is_refused_and_the_others_are_made() -> None:
    asked = Asked()
    topics = [(name, 1, 1, [], []) for name in ("d", "d", "e")]
    answer = asked.ask(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout_ms=1000, validate_only=False)
    assert [(each.name, each.error_code) for each in answer.topics] == [("e", 0), ("d", ErrorCode.INVALID_REQUEST)]


def grow(asked: Asked, *topics: tuple[str, int, list[tuple[list[int]]] | None], validate_only: bool = False) -> Any:
    answer = asked.ask(ApiKey.CREATE_PARTITIONS, 1, topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    return [(each.error_code, each.error_message) for each in answer.results]


def test_partitions_are_added_and_stay() -> None:
    asked = Asked()
    asked.create("a", 2)
    assert grow(asked, ("a", 4, None), validate_only=True) == [(0, None)]
    assert asked.broker.logs.topics["a"].partition_count == 2
    assert grow(asked, ("a", 3, None)) == [(0, None)]
    assert grow(asked, ("a", 4, [([NODE],)])) == [(0, None)]
    asked.append("a", b"v", partition=3)
    asked.restart()
    assert asked.broker.logs.topics["a"].partition_count == 4
    assert asked.broker.partition("a", 3).log_end_offset == 1


@pytest.mark.parametrize(
    ("wanted", "code", "said"),
    [
        (("a", 2, None), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (("a", 1, None), ErrorCode.INVALID_PARTITIONS, "1 would not be an increase."),
        (("a", -1, None), ErrorCode.INVALID_PARTITIONS, "-1 would not be an increase."),
        (("a", 10_001, None), ErrorCode.INVALID_PARTITIONS, "at most 10000 are possible"),
        (("a", 10_003, None), ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."),
        (("none", 2, None), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (("a", 4, [([NODE],)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition(s), but only 1"),
        (("a", 3, [([77],)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 77"),
        (("a", 3, [([],)]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
    ],
)
def test_partitions_that_cannot_be_are_refused(
    wanted: tuple[str, int, list[tuple[list[int]]] | None], code: ErrorCode, said: str
) -> None:
    asked = Asked()
    asked.create("a", 2)
    ((error, text),) = grow(asked, wanted)
    assert error == code
    assert said in (text or "")
    assert asked.broker.logs.topics["a"].partition_count == 2


def test_a_topic_to_grow_named_twice_is_refused() -> None:
    asked = Asked()
    asked.create("a")
    assert grow(asked, ("a", 4, None), ("a", 5, None)) == [(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]


def delete(asked: Asked, topic: str, *partitions: tuple[int, int]) -> list[tuple[int, int]]:
    answer = asked.ask(ApiKey.DELETE_RECORDS, 1, topics=[(topic, list(partitions))], timeout_ms=1000)
    return [(each.low_watermark, each.error_code) for each in answer.topics[0].partitions]


def test_records_are_deleted() -> None:
    asked = Asked()
    asked.create("a", 2)
    asked.append("a", b"1", b"2", b"3")
    assert delete(asked, "a", (0, 2), (1, -1)) == [(2, 0), (0, 0)]
    assert delete(asked, "a", (0, 1)) == [(2, 0)]  # never backwards
    asked.restart()
    assert asked.broker.partition("a", 0).log_start_offset == 2
    assert delete(asked, "a", (0, -1)) == [(3, 0)]


def test_records_that_cannot_be_deleted() -> None:
    asked = Asked()
    asked.create("a")
    asked.create("kept", cleanup_policy="compact")
    assert delete(asked, "a", (0, 5), (0, -2), (9, 0)) == [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert delete(asked, "none", (0, 0)) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(asked, "kept", (0, 0)) == [(-1, ErrorCode.POLICY_VIOLATION)]


def test_log_directories_are_described() -> None:
    asked = Asked()
    asked.create("a", 2)
    asked.append("a", b"v", partition=1)
    size = asked.broker.partition("a", 1).size

    def described(topics: Any) -> list[tuple[str, list[tuple[int, int]]]]:
        (directory,) = asked.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=topics).results
        assert (directory.error_code, directory.log_dir) == (0, "/log")
        assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)  # what is in memory is on no disk
        return [
            (each.name, [(one.partition_index, one.partition_size) for one in each.partitions])
            for each in directory.topics
        ]

    everything = [("a", [(0, 0), (1, size)])]
    assert size > 0
    assert described(None) == everything
    assert described([]) == []
    assert described([("a", [1, 9]), ("none", [0])]) == [("a", [(1, size)])]


def describe(asked: Asked, names: list[str], limit: int, cursor: tuple[str, int] | None = None) -> Any:
    kind = apis.request_class(ApiKey.DESCRIBE_TOPIC_PARTITIONS).Cursor
    begin = None if cursor is None else kind(version=0, topic_name=cursor[0], partition_index=cursor[1])
    return asked.ask(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[(name,) for name in names],
        response_partition_limit=limit,
        cursor=begin,
    )


def shown(answer: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    topics = [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics]
    cursor = answer.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_topics_are_described_in_parts() -> None:
    asked = Asked()
    asked.create("b", 3)
    asked.create("a", 2)
    assert shown(describe(asked, ["b", "a", "b"], 2000)) == ([("a", [0, 1]), ("b", [0, 1, 2])], None)
    assert shown(describe(asked, [], 3)) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
    assert shown(describe(asked, [], 3, ("b", 1))) == ([("b", [1, 2])], None)
    assert shown(describe(asked, ["a", "b"], 2)) == ([("a", [0, 1])], ("b", 0))
    assert shown(describe(asked, ["a"], 0)) == ([("a", [0])], ("a", 1))
    (partition, *_) = describe(asked, ["a"], 1).topics[0].partitions
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (NODE, [NODE], [NODE])


def test_topics_that_cannot_be_described() -> None:
    asked = Asked()
    asked.create("a")
    answer = describe(asked, ["none", "a/b"], 10)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for cursor in (("zz", 0), ("a", -1)):
        (topic,) = describe(asked, ["a"], 10, cursor).topics
        assert (topic.error_code, topic.partitions) == (ErrorCode.INVALID_REQUEST, [])


def ends(asked: Asked, topic: str, *partitions: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    answer = asked.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-1, topics=[(topic, list(partitions))])
    return [(each.error_code, each.leader_epoch, each.end_offset) for each in answer.topics[0].partitions]


def test_the_ends_of_leader_epochs_are_told() -> None:
    asked = Asked()
    asked.create("a")
    assert ends(asked, "a", (0, -1, 0)) == [(0, 0, 0)]
    asked.append("a", b"1", b"2")
    assert ends(asked, "a", (0, -1, 0), (0, 0, 0), (0, 5, 0), (0, 0, 5), (0, -1, -1), (9, -1, 0)) == [
        (0, 0, 2),
        (0, 0, 2),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
        (0, -1, -1),
        (0, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


def test_no_election_is_needed() -> None:
    asked = Asked()
    asked.create("a")

    def elected(kind: int, topics: Any) -> tuple[int, list[tuple[str, list[tuple[int, int]]]]]:
        answer = asked.ask(ApiKey.ELECT_LEADERS, 1, election_type=kind, topic_partitions=topics, timeout_ms=1000)
        results = [
            (each.topic, [(one.partition_id, one.error_code) for one in each.partition_result])
            for each in answer.replica_election_results
        ]
        return answer.error_code, results

    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elected(0, None) == (0, [("a", [])])
    assert elected(1, [("a", [0, 9]), ("none", [0])]) == (
        0,
        [("a", [(0, ErrorCode.ELECTION_NOT_NEEDED), (9, missing)]), ("none", [(0, missing)])],
    )
    invalid = ErrorCode.INVALID_REQUEST
    assert elected(7, [("a", [0])]) == (invalid, [("a", [(0, invalid)])])


def test_a_partition_moves_to_where_it_is_only() -> None:
    asked = Asked()
    asked.create("a")
    moves = [(0, [NODE]), (0, None), (9, [NODE]), (0, [77])]
    answer = asked.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=[("a", moves), ("none", moves[:1])]
    )
    assert [[one.error_code for one in each.partitions] for each in answer.responses] == [
        [
            0,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ],
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    ]
    assert asked.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=1000, topics=None).topics == []


def test_partitions_that_cannot_be_written_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    asked.create("a")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(asked._storage, "write", full)
    assert create(asked, partitions=2).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert grow(asked, ("a", 3, None))[0][0] == ErrorCode.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    assert [(topic.name, topic.partition_count) for topic in asked.broker.topics()] == [("a", 1)]
    assert create(asked, partitions=2).error_code == 0
    assert grow(asked, ("a", 3, None)) == [(0, None)]


def test_a_topic_that_cannot_be_deleted_on_a_full_disk_stays_whole() -> None:
    asked = Asked()
    asked.create("t", 2)
    asked.append("t", b"a", partition=1)
    (topic,) = asked.broker.topics()
    asked._storage.write_error = OSError(errno.ENOSPC, "No space left on device")
    (said,) = asked.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000).responses
    assert said.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in said.error_message
    assert asked.broker.topic("t") is asked.broker.topic_by_id(topic.topic_id) is topic
    asked._storage.write_error = None
    asked.append("t", b"b", partition=1)
    asked.restart()
    assert asked.broker.partition("t", 1).log_end_offset == 2
    (said,) = asked.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000).responses
    assert (said.error_code, said.error_message) == (0, None)
    asked.restart()
    assert not asked.broker.topics()


def test_files_of_a_deleted_topic_that_cannot_be_removed_do_no_harm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    asked.create("t", 2)
    asked.append("t", b"a")
    asked.append("t", b"b", partition=1)

    def fail(*_: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(asked._storage, "rename", fail)
        (said,) = asked.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout_ms=1000).responses
    assert said.error_code == 0
    assert caplog.text.count("are still there") == 2
    asked.create("t")
    assert asked.broker.partition("t", 0).log_end_offset == 0
    asked.restart()
    assert [topic.partition_count for topic in asked.broker.topics()] == [1]


def test_internal_topics_that_are_taken_over_are_as_the_broker_makes_them() -> None:
    asked = Asked()
    made = {name: asked.broker.internal_topic(name).settings for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)}
    asked.broker.close()
    asked._storage.remove("/log/topics.json")
    asked.broker = asked._open()
    assert {topic.name: topic.settings for topic in asked.broker.topics()} == made
    assert {settings["cleanup.policy"] for settings in made.values()} == {"compact"}


@pytest.mark.parametrize("name", [OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
def test_internal_topics_are_not_deleted(name: str) -> None:
    asked = Asked()
    topic = asked.broker.internal_topic(name)
    for version, wanted in (
        (5, {"topic_names": [name]}),
        (6, {"topics": [(name, ZERO_UUID)]}),
        (6, {"topics": [(None, topic.topic_id)]}),
    ):
        (said,) = asked.ask(ApiKey.DELETE_TOPICS, version, timeout_ms=1000, **wanted).responses
        assert said.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "the broker's own" in said.error_message
    assert asked.broker.topic(name) is topic


def created(asked: Asked, *topics: tuple[str, int, int], validate_only: bool = False) -> dict[str, tuple[int, str]]:
    """Ask for topics with so many partitions and settings; returns error and text of each."""
    known = ("retention.ms", "retention.bytes", "segment.bytes", "flush.ms", "segment.ms")
    settings = [(name, "100000") for name in known]
    wanted = [(name, partitions, 1, [], settings[:count]) for name, partitions, count in topics]
    said = asked.ask(ApiKey.CREATE_TOPICS, 5, topics=wanted, timeout_ms=1000, validate_only=validate_only)
    return {each.name: (each.error_code, each.error_message) for each in said.topics}


@pytest.mark.parametrize("validate_only", [True, False])
def test_one_request_makes_no_more_than_kafkas_controller_writes_at_once(
    monkeypatch: pytest.MonkeyPatch, validate_only: bool
) -> None:
    """As Kafka 4.3 answers: a record for each topic, setting and partition; a first look at the partitions alone."""
    monkeypatch.setattr("sparkonce.broker_lite.node.turns.MAX_UNITS_PER_TURN", 1_000_000)
    asked = Asked()
    refused = int(ErrorCode.POLICY_VIOLATION)
    too_large = (refused, "Unable to perform excessively large batch operation.")
    too_many = (refused, "Excessively large number of partitions per request.")
    for topics, answer in (
        ([("a", 10_000, 0)], too_large),
        ([("a", 10_001, 0)], too_many),
        ([("a", 5_000, 0), ("b", 5_000, 0)], too_large),
        ([("a", 5_000, 0), ("b", 5_001, 0)], too_many),
        ([("a", 9_999, 1)], too_large),
        ([("!!", 5, 0), ("a", 10_001, 0)], too_many),
    ):
        assert created(asked, *topics, validate_only=validate_only) == {name: answer for name, *_ in topics}
    assert not asked.broker.logs.topics
    said = created(asked, ("!!", 1, 0), ("a", 5_000, 2), ("b", 4_996, 0), validate_only=validate_only)
    assert {name: code for name, (code, _) in said.items()} == {"!!": 17, "a": 0, "b": 0}


def test_one_request_deletes_no_more_than_kafkas_controller_writes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkonce.broker_lite.handlers.delete_topics.MAX_RECORDS", 2)
    asked = Asked()
    for name in "abc":
        asked.create(name)
    said = asked.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["a", "b", "c", "none"], timeout_ms=1000).responses
    assert [each.error_code for each in said] == [ErrorCode.POLICY_VIOLATION] * 3 + [3]
    said = asked.ask(ApiKey.DELETE_TOPICS, 5, topic_names=["a", "b"], timeout_ms=1000).responses
    assert [each.error_code for each in said] == [0, 0]
    assert list(asked.broker.logs.topics) == ["c"]
