"""A standalone broker is a cluster of one: what its controller decides, and what of that is there after a failure."""

from __future__ import annotations

import errno
from collections.abc import Generator

import pytest

from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.records import MetadataRecord, PartitionState
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import Buffer
from tests.unit.broker.admin_support import NODE, NOW_MS, Asked

FULL_DISK = OSError(errno.ENOSPC, "no space left on device")


@pytest.fixture
def asked() -> Asked:
    return Asked()


def topics(asked: Asked) -> dict[str, int]:
    """Return the topics and their numbers of partitions, by all who know of them."""
    broker = asked.broker
    known = {topic.name: len(topic.partitions) for topic in broker.member.image.topics.values()}
    assert known == {topic.name: len(topic.logs) for topic in broker.topics()}
    assert broker.member.image.topic_ids == {topic.name: topic.topic_id for topic in broker.topics()}
    assert set(broker.member.replicas.roles) == {
        (topic.topic_id, index) for topic in broker.topics() for index in topic.logs
    }
    return known


def creating(asked: Asked, *names: str) -> Generator[int, None, None]:
    """Create topics of two partitions in one write, step by step."""

    def one(name: str, controller: Controller) -> tuple[list[MetadataRecord], None]:
        return controller.create_topic(name, asked.broker.new_uuid(), 2, 1, {}), None

    decisions = [lambda controller, name=name: one(name, controller) for name in names]
    return asked.broker.member.controller.decide_together(decisions)


def deleting(asked: Asked, *names: str) -> Generator[int, None, None]:
    """Delete topics in one write, step by step."""
    ids = [asked.broker.member.image.topic_ids[name] for name in names]
    decisions = [lambda controller, each=each: (controller.delete_topic(each), None) for each in ids]
    return asked.broker.member.controller.decide_together(decisions)


def test_it_leads_all_in_the_epoch_of_its_start(asked: Asked) -> None:
    asked.create("t", 2)
    asked.append("t", b"v", partition=1)
    before = asked.broker.logs.leader_epoch
    asked.restart()
    epoch = asked.broker.logs.leader_epoch
    assert epoch > before
    asked.create("u", 1)
    assert topics(asked) == {"t": 2, "u": 1}
    states = [state for _, state in asked.broker.member.image.partitions()]
    assert states == [PartitionState((NODE,), (NODE,), NODE, epoch, 0)] * 3
    assert asked.broker.leading("t", 1).leader_epoch == asked.broker.leading("u", 0).leader_epoch == epoch
    assert asked.broker.leading("t", 1).replicas is None
    assert asked.broker.leading("t", 1).log.high_watermark == 1


def test_its_log_directory_has_no_files_of_a_cluster(asked: Asked) -> None:
    asked.create("t", 1)
    asked.restart()
    asked.create("u", 1)
    asked.broker.close()
    assert {name for name in asked._storage.list_directory("/log") if not name.startswith(("t-", "u-"))} == {
        ".kafka_cleanshutdown",
        "log-start-offset-checkpoint",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "topics.json",
    }


def test_what_cannot_be_written_down_is_not_decided(asked: Asked) -> None:
    asked.create("t", 1)
    asked._storage.write_error = FULL_DISK
    with pytest.raises(KafkaError) as refused:
        asked.create("u", 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    asked._storage.write_error = None
    assert topics(asked) == {"t": 1}
    asked.create("u", 2)
    assert topics(asked) == {"t": 1, "u": 2}
    asked.crash()
    assert topics(asked) == {"t": 1, "u": 2}


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_was_written_down_and_not_decided_is_taken_back(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, is_closed: bool
) -> None:
    asked.create("t", 1)
    write, failures = asked._storage.write, iter([True, False])

    def fails(path: str, content: Buffer, **options: bool) -> None:
        if not path.endswith("topics.json") or next(failures):
            write(path, content, **options)
        if path.endswith("topics.json"):  # the first time it is there, but the directory cannot be flushed
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(asked._storage, "write", fails)
    with pytest.raises(KafkaError):
        asked.create("u", 1)
    monkeypatch.setattr(asked._storage, "write", write)
    if is_closed:
        asked.restart()
    else:
        asked.broker.logs.flush_due(NOW_MS)
        asked.crash()
    assert topics(asked) == {"t": 1}


def test_a_decision_in_turns_is_seen_when_it_is_written_down(asked: Asked) -> None:
    asked.create("t", 1)
    steps = creating(asked, "a", "b")
    next(steps)
    assert topics(asked) == {"t": 1}
    for _ in steps:
        assert set(asked.broker.logs.topics) <= set(asked.broker.member.image.topic_ids)
    assert topics(asked) == {"t": 1, "a": 2, "b": 2}


def test_what_is_decided_in_between_is_applied_in_order(asked: Asked) -> None:
    steps = creating(asked, "a", "b")
    while "a" not in asked.broker.logs.topics:
        next(steps)
    asked.create("c", 1)
    assert topics(asked) == {"a": 2, "b": 2, "c": 1}
    assert list(steps) == []


@pytest.mark.parametrize("is_closed", [False, True], ids=["goes on", "ends halfway"])
@pytest.mark.parametrize("by_hand", [False, True], ids=["crash", "restart"])
def test_no_deletion_is_written_that_is_not_applied(asked: Asked, is_closed: bool, by_hand: bool) -> None:
    """Else a topic would be gone at the next start that was there, and took records, until then."""
    for name in ("a", "b", "t"):
        asked.create(name, 1)
    steps = deleting(asked, "a", "b")
    next(steps)
    asked.broker.member.controller.decide(
        lambda controller: (controller.change_settings("t", {"retention.ms": "1"}), None)
    )
    known = topics(asked)
    assert "b" in known
    if is_closed:
        steps.close()
        assert topics(asked) == known
    asked.restart() if by_hand else asked.crash()
    assert topics(asked) == known


def test_what_is_decided_in_turns_goes_on_after_what_is_decided_in_between(asked: Asked) -> None:
    for name in ("a", "b", "t"):
        asked.create(name, 1)
    steps = deleting(asked, "a", "b")
    next(steps)
    asked.create("c", 3)
    assert topics(asked) == {"b": 1, "t": 1, "c": 3}
    assert list(steps)
    asked.crash()
    assert topics(asked) == {"t": 1, "c": 3}


def test_what_a_request_has_decided_that_ends_halfway_is_forgotten(asked: Asked) -> None:
    steps = creating(asked, "a", "b")
    next(steps)
    steps.close()
    asked.create("c", 1)
    assert topics(asked) == {"c": 1}
    asked.crash()
    assert topics(asked) == {"c": 1}


@pytest.mark.parametrize("together", [False, True])
def test_what_a_mistake_has_left_of_a_decision_is_forgotten(asked: Asked, together: bool) -> None:
    def mistaken(controller: Controller) -> tuple[list[MetadataRecord], None]:
        controller.create_topic("a", asked.broker.new_uuid(), 2, 1, {})
        raise ZeroDivisionError

    role = asked.broker.member.controller
    decide = (lambda: list(role.decide_together([mistaken]))) if together else (lambda: role.decide(mistaken))
    with pytest.raises(ZeroDivisionError):
        decide()
    asked.create("c", 1)
    assert topics(asked) == {"c": 1}
    asked.crash()
    assert topics(asked) == {"c": 1}


def test_nobody_else_makes_a_topic_that_is_being_decided(asked: Asked) -> None:
    steps = creating(asked, "a", "b")
    next(steps)
    with pytest.raises(KafkaError) as refused:
        asked.create("a", 1)
    assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert list(steps)
    assert topics(asked) == {"a": 2, "b": 2}


def test_a_write_that_fails_in_between_takes_back_what_is_not_written_yet(asked: Asked) -> None:
    asked.create("t", 1)
    steps = creating(asked, "a", "b")
    next(steps)
    asked._storage.write_error = FULL_DISK
    with pytest.raises(KafkaError):
        asked.broker.member.controller.decide(
            lambda controller: (controller.change_settings("t", {"retention.ms": "1"}), None)
        )
    asked._storage.write_error = None
    with pytest.raises(KafkaError) as refused:
        list(steps)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert topics(asked) == {"t": 1}
    asked.create("a", 1)
    asked.crash()
    assert topics(asked) == {"t": 1, "a": 1}
