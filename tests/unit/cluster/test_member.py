"""A member follows the log: what it tells whom, in which order, and what becomes of its requests to the controller."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.coordination import Step
from sparkonce.broker_lite.cluster.file_coordination import WatchDirectories
from sparkonce.broker_lite.cluster.lifecycle import Identity, Lifecycle
from sparkonce.broker_lite.cluster.looks import LIVELY_MS, LOOK_MS, REST_MS
from sparkonce.broker_lite.cluster.member import FAILOVER_WAIT_MS, ClusterMember, Membership
from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition, PartitionKey
from sparkonce.broker_lite.controller.records import (
    NO_BROKER_EPOCH,
    ControllerElected,
    MetadataRecord,
    ProducerIdsAllocated,
    TopicDeleted,
)
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.replicas import Event, Follows, Gone, Leads, ReplicationSettings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.handling import when
from tests.unit.cluster.scheduling import HandLoop
from tests.unit.cluster.shared import Candidate, SharedClock, SharedStorage
from tests.unit.replication.partition import new_log

INCARNATION = uuid.UUID(int=7)


class Setup:
    """Broker 2 as a member, and broker 1, which is the controller and only that."""

    def __init__(self, watch: WatchDirectories = lambda *_: None, lag_time_max_ms: int = 30_000) -> None:
        self.storage, self.clock = SharedStorage(), SharedClock()
        self.loop = HandLoop(self.clock)
        self.first = Candidate(self.storage, self.clock, 1)
        self.first.service.tick()
        self.first.register(self.clock)
        self.second = Candidate(self.storage, self.clock, 2, watch=watch)
        self.sent: list[tuple[int, Any, Callable[[Any], None]]] = []
        self.logs: dict[PartitionKey, PartitionLog] = {}
        settings = ReplicationSettings(replica_lag_time_max_ms=lag_time_max_ms)
        self.member = ClusterMember(2, self.log_of, settings, self, self.loop, self.clock)
        identity = Identity(2, "c", INCARNATION, (("PLAINTEXT", "there", 2),))
        self.lifecycle = Lifecycle(
            identity, self.storage, "/data", False, 2_000, self.loop, lambda *_: None, lambda: self.member.image
        )
        self.told: list[object] = []
        self.member.listen(self.told.append)
        self.member.on_image.append(self.see)
        self.member.join(Membership(self.second.coordination, self.second.service, self.lifecycle))

    def log_of(self, key: PartitionKey) -> PartitionLog:
        return self.logs.setdefault(key, new_log())

    def send(self, broker_id: int, request: Any, then: Callable[[Any], None]) -> None:
        self.sent.append((broker_id, request, then))

    def see(self, image: ClusterImage) -> None:
        self.told.append(sorted(image.topic_ids))

    def decide(self, decision: Callable[[Controller], list[MetadataRecord]]) -> None:
        self.first.service.decide(lambda controller: (decision(controller), None))
        self.run()

    def run(self, duration_ms: int = LOOK_MS) -> None:
        """Let time pass, in which the controller shows that it is alive."""
        for _ in range(max(duration_ms // LOOK_MS, 1)):
            self.first.service.tick()
            self.loop.run(LOOK_MS)

    def register(self, incarnation: uuid.UUID = INCARNATION) -> None:
        def decision(controller: Controller) -> list[MetadataRecord]:
            records = controller.fence([2]) if 2 in controller.image.brokers else []
            registered, epoch = controller.register(2, incarnation, "there", 2, NO_BROKER_EPOCH, self.clock())
            heard, _ = controller.heartbeat(2, epoch, 1 << 40, False, self.clock())
            return records + registered + heard

        self.decide(decision)


def request() -> Any:
    return apis.request(ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=1)


def answer(error: ErrorCode = ErrorCode.NONE) -> Any:
    return apis.response(ApiKey.ALLOCATE_PRODUCER_IDS, 0, error_code=int(error))


def events(told: list[object]) -> list[Event]:
    return [each for each in told if not isinstance(each, list)]  # type: ignore[misc]


def test_roles_wait_for_this_start_of_the_broker_and_come_after_the_image() -> None:
    setup = Setup()
    key = (uuid.UUID(int=1), 0)
    setup.register(uuid.UUID(int=6))  # a former start
    setup.decide(lambda controller: controller.create_topic("t", key[0], 1, 1, {}, [(2, 1)]))
    assert events(setup.told) == []
    assert setup.member.image.topic_ids == {"t": key[0]}
    assert not setup.member.registered
    setup.register()
    assert setup.member.registered
    assert events(setup.told) == [Follows(key, 1)]
    setup.told.clear()
    setup.decide(lambda controller: controller.create_topic("u", uuid.UUID(int=2), 1, 1, {}, [(2,)]))
    assert setup.told == [["t", "u"], Leads((uuid.UUID(int=2), 0))]
    setup.decide(lambda controller: controller.delete_topic(key[0]))
    assert setup.told[-2:] == [["u"], Gone(key)]


def test_a_listener_that_fails_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    setup = Setup()
    setup.register()

    def fail(_: ClusterImage) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")

    setup.member.on_image.insert(0, fail)
    setup.decide(lambda controller: controller.create_topic("t", uuid.UUID(int=1), 1, 1, {}, [(2,)]))
    assert setup.told[-2:] == [["t"], Leads((uuid.UUID(int=1), 0))]
    assert "no room" in caplog.text


def test_a_record_that_cannot_be_applied_hides_no_later_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    setup.register()
    poll, first = setup.second.coordination.poll, uuid.UUID(int=1)

    def with_a_mistake() -> list[Step]:
        steps = poll()
        for step in steps:
            if isinstance(step, list):
                mistake = TopicDeleted(uuid.UUID(int=9))
                step[:] = [mistake if isinstance(each, ProducerIdsAllocated) else each for each in step]
        return steps

    monkeypatch.setattr(setup.second.coordination, "poll", with_a_mistake)
    service = setup.first.service
    service.decide(lambda controller: controller.allocate_producer_ids(1, controller.image.broker_epoch(1)))
    service.decide(lambda controller: (controller.create_topic("t", first, 1, 1, {}, [(2,)]), None))
    setup.run()
    assert setup.told[-2:] == [["t"], Leads((first, 0))]
    setup.first.read()
    assert setup.member.image.next_offset == setup.first.image.next_offset
    assert "is ignored" in caplog.text


def test_a_mistake_in_what_follows_from_a_change_hides_no_later_ones(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setup = Setup()
    setup.register()
    apply, mistakes = setup.member.replicas.apply, iter([True])

    def mistaken(image: ClusterImage, now_ms: int) -> list[Event]:
        if next(mistakes, False):
            raise ZeroDivisionError
        return apply(image, now_ms)

    monkeypatch.setattr(setup.member.replicas, "apply", mistaken)
    for number, name in enumerate("tu", 1):
        setup.first.service.decide(
            lambda controller, number=number, name=name: (
                controller.create_topic(name, uuid.UUID(int=number), 1, 1, {}, [(2,)]),
                None,
            )
        )
    setup.run()
    assert [each for each in setup.told if isinstance(each, Leads)] == [Leads((uuid.UUID(int=n), 0)) for n in (1, 2)]
    assert "ZeroDivisionError" in caplog.text


def test_every_image_that_is_shown_is_at_a_position_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a broker that dies then, with that position written down, is not let in again."""
    setup = Setup()
    setup.register()
    before = setup.member.image
    snapshot = before.copy()
    snapshot.next_offset += 1
    elected = ControllerElected(1, before.controller_epoch + 1, uuid.UUID(int=8), before.next_offset)
    positions: list[LogPosition | None] = []
    setup.member.on_image.append(lambda _: positions.append(setup.member.safe_position))
    steps: list[Step] = [snapshot, [elected]]
    monkeypatch.setattr(setup.second.coordination, "poll", lambda: steps)
    setup.member.poll()
    assert setup.member.image.controller_epoch == before.controller_epoch + 1
    assert positions
    for position in positions:
        assert position is not None
        assert setup.member.image.contains(position)


def test_a_batch_is_safe_once_there_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller may still be flushing it, and a loss of power would take it: nobody could give it back."""
    setup = Setup()
    elected = ControllerElected(1, 9, uuid.UUID(int=8), 0)
    steps: list[Step] = []
    monkeypatch.setattr(setup.second.coordination, "poll", lambda: steps)
    noted: list[int | None] = []
    setup.member.on_image.append(lambda _: noted.append(getattr(setup.member.safe_position, "offset", None)))
    snapshot = ClusterImage()
    snapshot.next_offset = 1
    steps[:] = [snapshot, [elected], [ProducerIdsAllocated(1000)] * 2, [ProducerIdsAllocated(2000)]]
    setup.member.poll()
    assert (noted, setup.member.image.next_offset) == ([2, 2, 4], 5)


def test_a_partition_is_known_by_its_topics_id() -> None:
    setup = Setup()
    setup.decide(lambda controller: controller.create_topic("t", uuid.UUID(int=1), 1, 1, {}, [(1,)]))
    assert setup.member.key("t", 0) == (uuid.UUID(int=1), 0)
    for topic, index in (("t", 1), ("u", 0)):
        with pytest.raises(KafkaError) as refused:
            setup.member.key(topic, index)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_goes_to_the_controller_until_that_answers() -> None:
    setup, answers = Setup(), []
    setup.member.send_to_controller(request(), answers.append)
    (broker_id, _, then) = setup.sent.pop()
    assert broker_id == 1
    then(answer(ErrorCode.NOT_CONTROLLER))
    setup.run()
    (_, _, then) = setup.sent.pop()
    then(None)
    setup.run()
    (_, _, then) = setup.sent.pop()
    given = answer(ErrorCode.STALE_BROKER_EPOCH)
    then(given)
    assert answers == [given]
    setup.run(200)
    assert setup.sent == []


def test_a_request_that_the_old_controller_has_not_answered_goes_to_the_new_one() -> None:
    setup, answers = Setup(), []
    setup.member.send_to_controller(request(), answers.append)
    (_, _, late) = setup.sent.pop()
    setup.first.die()
    setup.loop.run(3 * LOOK_MS)
    assert setup.member.image.controller_id == 2
    (broker_id, _, then) = setup.sent.pop()
    assert broker_id == 2
    late(answer())
    assert answers == []
    given = answer()
    then(given)
    assert answers == [given]


def test_a_request_that_nobody_answers_is_given_up() -> None:
    setup, answers = Setup(), []
    setup.member.send_to_controller(request(), answers.append, timeout_ms=100)
    setup.run(100 + LOOK_MS)
    assert answers == [None]
    setup.sent.pop()[2](answer())
    assert answers == [None]


def test_who_asks_for_leaders_waits_for_a_death_to_be_noticed() -> None:
    setup, called = Setup(), []
    setup.register()
    third = Candidate(setup.storage, setup.clock, 3)

    def join(controller: Controller) -> list[MetadataRecord]:
        records, epoch = controller.register(3, uuid.uuid4(), "x", 3, NO_BROKER_EPOCH, setup.clock())
        return records + controller.heartbeat(3, epoch, 1 << 40, False, setup.clock())[0]

    setup.decide(join)
    assert not setup.member.misses_a_death()
    third.die()
    assert setup.member.misses_a_death()
    when(setup.member.failover(), lambda _: called.append("noticed"))
    setup.loop.run(LOOK_MS)
    assert called == []
    setup.run()
    assert called == ["noticed"]
    assert not setup.member.misses_a_death()


def test_who_asks_for_leaders_does_not_wait_for_ever() -> None:
    setup, called = Setup(), []
    setup.register()
    setup.first.coordination.locks.release_broker()  # dead, and nobody says so
    when(setup.member.failover(), lambda _: called.append("tired"))
    setup.loop.run(FAILOVER_WAIT_MS // 2)
    assert called == []
    setup.loop.run(FAILOVER_WAIT_MS)
    assert called == ["tired"]


def test_one_who_asks_for_leaders_and_fails_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    setup, called = Setup(), []
    setup.register()
    setup.first.coordination.locks.release_broker()

    def mistaken(_: None) -> None:
        raise ZeroDivisionError("by the test")

    when(setup.member.failover(), mistaken)
    when(setup.member.failover(), lambda _: called.append("told"))
    setup.run()
    assert called == ["told"]
    assert "by the test" in caplog.text


def test_who_leaves_takes_no_more_part() -> None:
    setup = Setup()
    setup.register()
    setup.member.leave()
    setup.member.leave()
    setup.told.clear()
    setup.decide(lambda controller: controller.create_topic("t", uuid.UUID(int=1), 1, 1, {}, [(1,)]))
    assert setup.told == []
    assert setup.first.coordination.is_gone(2)
    assert setup.member.broker_epoch == NO_BROKER_EPOCH


def test_a_mistake_of_one_listener_keeps_no_other_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    """The log has been read by then: what is not heard now is never heard."""
    setup = Setup()

    def mistaken(_: object) -> None:
        raise ZeroDivisionError("by the test")

    setup.member.on_image.insert(0, mistaken)
    setup.member._listeners.insert(0, mistaken)
    setup.register()
    setup.decide(lambda controller: controller.create_topic("t", uuid.uuid4(), 1, 2, {}, [(2, 1)]))
    assert list(setup.member.image.topic_ids) == ["t"]
    assert ["t"] in setup.told
    assert any(isinstance(each, Leads) for each in setup.told)
    assert "by the test" in caplog.text


def test_who_is_out_of_session_takes_its_roles_when_it_is_back() -> None:
    """Whoever listens could do nothing with a role before, and would not hear of it again."""
    setup, key = Setup(), (uuid.UUID(int=1), 0)
    setup.register()
    setup.decide(lambda controller: controller.create_topic("t", key[0], 1, 1, {}, [(2,)]))
    setup.told.clear()
    setup.second.coordination.in_session = False
    setup.run()
    setup.decide(lambda controller: controller.create_topic("u", uuid.UUID(int=2), 1, 1, {}, [(1,)]))
    assert setup.told == [Follows(key, -1), ["t", "u"]]
    setup.second.coordination.in_session = True
    setup.run()
    assert setup.told[2:] == [Leads(key)]


def test_a_role_that_came_while_the_session_lapsed_for_a_moment_is_told_again() -> None:
    """Whoever listens was refused, and no look by the clock has seen that the session was over."""
    setup, key = Setup(), (uuid.UUID(int=1), 0)
    setup.register()
    coordination = setup.second.coordination

    def look(event: Event) -> None:
        coordination.in_session = False
        with pytest.raises(KafkaError):
            setup.member.replicas.leader(event.key)
        coordination.in_session = True

    setup.member._listeners.insert(0, look)
    setup.decide(lambda controller: controller.create_topic("t", key[0], 1, 1, {}, [(2,)]))
    setup.member._listeners.remove(look)
    setup.told.clear()
    setup.run()
    assert setup.told == [Follows(key, -1), Leads(key)]


def test_nobody_is_waited_for_after_a_broker_has_left() -> None:
    setup = Setup()
    setup.register()
    setup.decide(lambda controller: controller.create_topic("t", uuid.UUID(int=1), 1, 1, {}, [(2,)]))
    told: list[ErrorCode] = []
    when(setup.member.safe((uuid.UUID(int=1), 0), 7, 1_000), told.append)
    assert setup.member.acknowledgements.size == 1
    setup.member.leave()
    setup.loop.run(2_000)
    assert (told, setup.member.acknowledgements.size) == ([], 0)


class Reports:
    """A watch on the shared directory that reports when the test says so."""

    def __init__(self) -> None:
        self.report: Callable[[], None] = lambda: None
        self.closed = False

    def watch(self, directories: Sequence[str], then: Callable[[], None]) -> Reports:
        assert len(directories) == 2
        self.report = then
        return self

    def close(self) -> None:
        self.closed = True


def resting(lag_time_max_ms: int = 30_000) -> tuple[Setup, Reports, list[int]]:
    """A member that has nothing to wait for, and the times of its looks from then on."""
    reports, looks = Reports(), []
    setup = Setup(reports.watch, lag_time_max_ms)
    setup.register()
    setup.run(LIVELY_MS + REST_MS)
    setup.member.on_look = lambda: looks.append(setup.clock.ms)
    return setup, reports, looks


def test_at_rest_a_member_looks_seldom_and_applies_what_is_reported_at_once() -> None:
    setup, reports, looks = resting()
    setup.run(5 * REST_MS)
    assert len(looks) == 5
    setup.run(LOOK_MS)
    setup.first.create("t")
    setup.loop.run(0)
    assert "t" not in setup.member.image.topic_ids
    reports.report()
    setup.loop.run(0)
    assert "t" in setup.member.image.topic_ids
    setup.member.leave()
    assert reports.closed


def test_at_rest_followers_that_lag_are_looked_for_as_often_as_the_setting_says() -> None:
    setup, _, looks = resting(lag_time_max_ms=2 * REST_MS)
    ticks: list[int] = []
    setup.member.replicas.tick = lambda now_ms: ticks.append(now_ms) or []  # type: ignore[func-returns-value, method-assign]
    setup.run(5 * REST_MS)
    assert ticks == looks


def test_a_member_takes_over_at_once_when_the_end_of_the_controller_is_reported() -> None:
    setup, reports, _ = resting()
    setup.loop.run(LOOK_MS)
    setup.first.die()
    reports.report()
    setup.loop.run(0)
    assert setup.second.service.active


def test_a_controller_that_hangs_is_replaced_as_soon_as_without_reports() -> None:
    took = []
    for reports in (Reports(), None):
        setup = Setup(reports.watch) if reports is not None else Setup()
        setup.register()
        setup.run(LIVELY_MS + REST_MS)
        began_ms = setup.clock.ms
        while not setup.second.service.active:
            setup.loop.run(LOOK_MS)
        took.append(setup.clock.ms - began_ms)
    with_reports_ms, without_ms = took
    assert with_reports_ms <= without_ms + REST_MS


@pytest.mark.parametrize("awaited", ["a controller that answers", "new leaders"])
def test_a_member_that_waits_does_not_rest(awaited: str) -> None:
    setup, _, looks = resting()
    if awaited == "new leaders":
        setup.member.misses_a_death = lambda: True  # type: ignore[method-assign]
        setup.member.failover()
    else:
        setup.member.send_to_controller(request(), lambda _: None)
    for _ in range(10):
        if setup.sent:
            setup.sent[-1][2](answer(ErrorCode.NOT_CONTROLLER))
        setup.run(LOOK_MS)
    assert len(looks) >= 9
