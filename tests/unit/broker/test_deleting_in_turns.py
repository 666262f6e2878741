"""Topics that are deleted in turns: what is made, committed or stopped in between."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from lab.sim.disk import SimulatedFile
from sparkonce.broker_lite.coordinators.offsets import CommittedOffset
from sparkonce.broker_lite.node import turns
from sparkonce.broker_lite.node.standalone import StandaloneController
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.handling import handle
from tests.unit.broker.admin_support import NOW_MS
from tests.unit.broker.test_work_per_turn import Turning

NAMES = ["a", "b", "c"]


@pytest.fixture
def deleting(monkeypatch: pytest.MonkeyPatch) -> Turning:
    """Return a broker that has deleted three topics, and done no more than the first turn of that."""
    monkeypatch.setattr(turns, "MAX_UNITS_PER_TURN", 1)
    broker = Turning()
    for name in NAMES:
        broker.create(name, 3)
        for index in range(3):
            broker.append(name, b"v", partition=index)
    broker.broker.groups.commit("g", {(name, 0): CommittedOffset(1, -1, "", NOW_MS) for name in NAMES})
    body = bytes(apis.encode_request(apis.request(ApiKey.DELETE_TOPICS, 4, topic_names=NAMES, timeout_ms=1), 4))
    answers = broker.answers = []
    assert handle(broker.broker, broker.request(ApiKey.DELETE_TOPICS, 4, body), answers) is None
    while broker.broker.topic("c") is not None:
        broker.waiting.popleft()()
    assert not answers
    return broker


def committed(broker: Turning) -> dict[tuple[str, int], int]:
    return {where: each.offset for where, each in broker.broker.groups.offsets.of_group("g").items()}


def answered(broker: Turning) -> dict[str, int]:
    body: Any
    (body,) = broker.answers
    return {
        each.name: each.error_code for each in apis.decode_response(ApiKey.DELETE_TOPICS, 4, b"".join(body)).responses
    }


def test_a_new_topic_of_the_name_has_its_own_offsets_only(deleting: Turning) -> None:
    deleting.create("c", 1)
    assert ("c", 0) not in committed(deleting)
    deleting.broker.groups.commit("g", {("c", 0): CommittedOffset(7, -1, "", NOW_MS)})
    while deleting.waiting:
        deleting.waiting.popleft()()
    assert committed(deleting) == {("c", 0): 7}


def test_a_broker_that_stops_meanwhile_leaves_nothing_of_them(deleting: Turning) -> None:
    deleting.restart()
    assert committed(deleting) == {}
    left = deleting._storage.list_directory("/log")
    assert [name for name in left if name.startswith(("a-", "b-", "c-"))] == []


def test_a_broker_that_is_killed_meanwhile_finishes_at_its_next_start(deleting: Turning) -> None:
    deleting.waiting.clear()
    deleting.crash()
    assert committed(deleting) == {}
    left = deleting._storage.list_directory("/log")
    assert [name for name in left if name.startswith(("a-", "b-", "c-"))] == []
    deleting.crash()
    assert not deleting.broker.logs.deletions


def test_offsets_that_cannot_be_removed_go_at_the_next_start(
    deleting: Turning, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The topics are gone for good by then, so the client hears of no error."""
    with monkeypatch.context() as full_disk:

        def append(_file: SimulatedFile, _data: object) -> None:
            raise OSError(errno.ENOSPC, "no space left on device")

        full_disk.setattr(SimulatedFile, "append", append)
        while deleting.waiting:
            deleting.waiting.popleft()()
    assert set(answered(deleting).values()) == {ErrorCode.NONE}
    assert "offsets of the deleted topic a stay until the next start" in caplog.text
    left = deleting._storage.list_directory("/log")
    assert [name for name in left if name.startswith(("a-", "b-", "c-"))] == []
    deleting.crash()
    assert committed(deleting) == {}
    assert not deleting.broker.logs.deletions


@pytest.mark.parametrize("seed", range(12))
def test_a_topic_made_again_has_no_older_offsets_after_a_loss_of_power(deleting: Turning, seed: int) -> None:
    for log in deleting.broker.logs.topics["__consumer_offsets"].logs.values():
        log.flush(NOW_MS)  # as the system does in time
    deleting.create("c", 1)
    deleting.lose_power(seed)
    assert deleting.broker.topic("c") is not None
    assert ("c", 0) not in committed(deleting)


def test_what_others_have_written_with_theirs_is_deleted_though_the_rest_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "MAX_UNITS_PER_TURN", 1)
    broker = Turning()
    for name in (*NAMES, "t"):
        broker.create(name, 1)
    broker.broker.groups.commit("g", {("a", 0): CommittedOffset(1, -1, "", NOW_MS)})
    body = bytes(apis.encode_request(apis.request(ApiKey.DELETE_TOPICS, 4, topic_names=NAMES, timeout_ms=1), 4))
    answers = broker.answers = []
    assert handle(broker.broker, broker.request(ApiKey.DELETE_TOPICS, 4, body), answers) is None
    role = broker.broker.member.controller
    assert isinstance(role, StandaloneController)
    while not role._unwritten:
        broker.waiting.popleft()()
    role.decide(lambda controller: (controller.change_settings("t", {"retention.ms": "1"}), None))
    broker._storage.write_error = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(KafkaError):
        role.decide(lambda controller: (controller.change_settings("t", {"retention.ms": "2"}), None))
    broker._storage.write_error = None
    while broker.waiting:
        broker.waiting.popleft()()
    assert answered(broker) == {"a": 0, **dict.fromkeys("bc", ErrorCode.KAFKA_STORAGE_ERROR)}
    assert committed(broker) == {}
    assert not broker.broker.logs.deletions
    broker.crash()
    assert {topic.name for topic in broker.broker.topics()} >= {"b", "c", "t"}
    assert broker.broker.topic("a") is None
