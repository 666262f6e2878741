"""All replicas of a broker: the cluster's image makes leaders and followers of them, and what follows is told."""

from __future__ import annotations

import errno
import uuid

import pytest

from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import (
    BrokerChanged,
    BrokerRegistered,
    DefaultSettingsChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
)
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.replication.replicas import (
    Follows,
    Gone,
    HighWatermarkMoved,
    Leads,
    Replicas,
    ReplicationSettings,
)
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.unit.replication.partition import LAG_MS, NOW, append, log_with, new_log

TOPIC = uuid.UUID(int=7)
KEY: PartitionKey = (TOPIC, 0)


class OneBroker:
    """Broker 1 of three; `tell` lets it hear of records."""

    def __init__(self, log: PartitionLog | None = None, settings: ReplicationSettings | None = None) -> None:
        self.now_ms = NOW
        self.log = log or new_log()
        self.image = ClusterImage()
        self.replicas = Replicas(1, lambda _: self.log, settings or ReplicationSettings())
        for broker_id in (1, 2, 3):
            self.image.apply(BrokerRegistered(broker_id, uuid.UUID(int=broker_id), "localhost", 9092))
            self.image.apply(BrokerChanged(broker_id, broker_id - 1 + broker_id - 1, fenced=False, shutting_down=False))

    def tell(self, *records: MetadataRecord) -> list[object]:
        for record in records:
            self.image.apply(record)
        return list(self.replicas.apply(self.image, self.now_ms))

    def begin(self, leader: int, in_sync: tuple[int, ...] = (1, 2, 3), **topic: str) -> list[object]:
        settings = tuple((name.replace("_", "."), value) for name, value in topic.items())
        state = PartitionState((1, 2, 3), in_sync, leader, 0, 0)
        return self.tell(TopicCreated("t", TOPIC, settings), PartitionChanged(TOPIC, 0, state))

    @property
    def state(self) -> PartitionState:
        found = self.image.partition(KEY)
        assert found is not None
        return found

    def change(self, **changes: object) -> list[object]:
        now = self.state
        state = now._replace(partition_epoch=now.partition_epoch + 1, **changes)  # type: ignore[arg-type]
        return self.tell(PartitionChanged(TOPIC, 0, state))


def test_who_leads_is_told_once_for_each_epoch() -> None:
    broker = OneBroker()
    assert broker.begin(leader=1) == [Leads(KEY)]
    assert broker.tell() == []
    assert broker.change(in_sync_replicas=(1, 2)) == []
    assert broker.change(leader=2, leader_epoch=1) == [Follows(KEY, 2)]
    assert broker.change(in_sync_replicas=(1, 2, 3)) == []
    assert broker.change(leader=1, leader_epoch=2) == [Leads(KEY)]
    assert broker.change(leader=1, leader_epoch=4) == [Leads(KEY)], "an epoch without a leader was not heard of"


def test_a_change_of_the_epoch_makes_a_new_follower_although_the_leader_is_the_same() -> None:
    """KAFKA-7164: that leader may have been a follower meanwhile, and have cut its log."""
    broker = OneBroker()
    broker.begin(leader=2)
    before = broker.replicas.roles[KEY]
    assert broker.change(leader=2, leader_epoch=2) == [Follows(KEY, 2)]
    assert broker.replicas.roles[KEY] is not before


def test_partitions_are_fetched_from_whoever_leads_them() -> None:
    broker = OneBroker()
    broker.begin(leader=2)
    assert [key for key, _ in broker.replicas.followed(2)] == [KEY]
    assert list(broker.replicas.followed(3)) == []


def test_where_nobody_leads_nothing_is_cut_off_and_the_old_leader_is_refused() -> None:
    broker = OneBroker(log_with((0, 3), safe=1))
    broker.begin(leader=1)
    broker.log.leader_epochs.truncate_from_end(0)  # what is followed by is the high watermark then
    assert broker.change(leader=-1, leader_epoch=1, in_sync_replicas=()) == [Follows(KEY, -1)]
    assert broker.log.log_end_offset == 3
    role = broker.replicas.roles[KEY]
    assert isinstance(role, PartitionFollower)
    assert role.leader_epoch == 1
    assert broker.change(leader=2, leader_epoch=2, in_sync_replicas=(2,)) == [Follows(KEY, 2)]
    assert broker.log.log_end_offset == 1


def test_a_deleted_topic_is_gone() -> None:
    broker = OneBroker()
    broker.begin(leader=1)
    assert broker.tell(TopicDeleted(TOPIC)) == [Gone(KEY)]
    assert not broker.replicas.roles
    assert broker.begin(leader=1) == [Leads(KEY)], "of the same id again: its epochs begin anew"


def test_only_what_is_led_here_is_given() -> None:
    broker = OneBroker()
    broker.begin(leader=2)
    with pytest.raises(KafkaError) as follower:
        broker.replicas.leader(KEY)
    assert follower.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError) as unknown:
        broker.replicas.leader((TOPIC, 9))
    assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_alone_makes_records_safe_by_appending() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,))
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == [HighWatermarkMoved(KEY)]
    assert broker.replicas.appended(KEY, broker.now_ms) == []


def test_a_follower_that_is_left_out_lets_the_high_watermark_go_on() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1, 2))
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == []
    assert broker.change(in_sync_replicas=(1,)) == [], "it had caught up a moment ago, and may come back"
    broker.now_ms += LAG_MS + 1
    assert broker.tell() == [HighWatermarkMoved(KEY)]


def test_a_topics_smaller_minimum_lets_the_high_watermark_go_on() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,), min_insync_replicas="2")
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == []
    events = broker.tell(TopicSettingsChanged(TOPIC, (("min.insync.replicas", "1"),)))
    assert events == [HighWatermarkMoved(KEY)]


def test_a_smaller_minimum_waits_until_nobody_out_of_sync_is_eligible() -> None:
    """KIP-966: the controller went by a larger one when it said who is, and they lack what would be acknowledged."""
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,), min_insync_replicas="2")
    broker.change(eligible_leader_replicas=(2,))
    append(broker.log, 0, b"a")
    broker.tell(TopicSettingsChanged(TOPIC, (("min.insync.replicas", "1"),)))
    broker.replicas.leader(KEY).check_acks_all()
    assert not broker.replicas.leader(KEY).is_acknowledged(0)
    assert broker.change(eligible_leader_replicas=()) == [HighWatermarkMoved(KEY)]
    assert broker.replicas.leader(KEY).is_acknowledged(0)


def test_a_topic_without_a_minimum_of_its_own_goes_by_the_clusters() -> None:
    broker = OneBroker()
    broker.tell(DefaultSettingsChanged((("min.insync.replicas", "2"),)))
    broker.begin(leader=1, in_sync=(1,))
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == []
    assert broker.tell(DefaultSettingsChanged((("min.insync.replicas", "1"),))) == [HighWatermarkMoved(KEY)]


def test_a_topics_larger_minimum_counts_at_once() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,))
    broker.tell(TopicSettingsChanged(TOPIC, (("min.insync.replicas", "2"),)))
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == []
    with pytest.raises(KafkaError):
        broker.replicas.leader(KEY).check_acks_all()


def test_one_about_to_join_that_is_fenced_is_not_waited_for() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1, 3))
    broker.replicas.fetched_by(KEY, 3, broker.image.broker_epoch(3), 0, 0, broker.now_ms)
    leader = broker.replicas.leader(KEY)
    leader.refused(_proposal(broker, 2), ErrorCode.INELIGIBLE_REPLICA, broker.now_ms)
    append(broker.log, 0, b"a")
    broker.replicas.fetched_by(KEY, 3, broker.image.broker_epoch(3), 1, 0, broker.now_ms)
    assert broker.log.high_watermark == 0, "broker 2 has caught up before, and may be proposed"
    fenced = BrokerChanged(2, broker.image.broker_epoch(2), fenced=True, shutting_down=False)
    assert broker.tell(fenced) == [HighWatermarkMoved(KEY)]


def test_one_about_to_join_that_falls_silent_is_not_waited_for_for_ever() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,))
    leader = broker.replicas.leader(KEY)
    leader.refused(_proposal(broker, 2), ErrorCode.INELIGIBLE_REPLICA, broker.now_ms)
    append(broker.log, 0, b"a")
    assert broker.replicas.appended(KEY, broker.now_ms) == []
    broker.now_ms += LAG_MS + 1
    assert broker.replicas.tick(broker.now_ms) == [HighWatermarkMoved(KEY)]


def test_who_is_behind_is_proposed_to_leave_and_the_answer_taken() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1, 2))
    append(broker.log, 0, b"a")
    broker.now_ms += LAG_MS + 1
    reported: list[None] = []
    broker.replicas.on_proposal = lambda: reported.append(None)
    assert broker.replicas.tick(broker.now_ms) == []
    assert broker.replicas.tick(broker.now_ms) == []
    assert len(reported) == 1, "there is something to take: once is enough"
    ((key, proposal),) = broker.replicas.proposals()
    assert key == KEY
    assert broker.replicas.proposals() == []
    assert broker.replicas.proposal_answered(KEY, proposal, None, broker.now_ms) == []
    assert len(reported) == 2
    assert broker.replicas.proposals() == [(KEY, proposal)], "unanswered, so sent again"
    now = broker.state._replace(in_sync_replicas=(1,), partition_epoch=1)
    assert broker.replicas.proposal_answered(KEY, proposal, now, broker.now_ms) == [HighWatermarkMoved(KEY)]
    assert broker.tell(PartitionChanged(TOPIC, 0, now)) == [], "known already"


def test_an_answer_that_comes_after_leadership_is_lost_changes_nothing() -> None:
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1,))
    proposal = _proposal(broker, 2)
    state = broker.state
    broker.change(leader=2, leader_epoch=1, in_sync_replicas=(2,))
    assert broker.replicas.proposal_answered(KEY, proposal, state, broker.now_ms) == []
    assert broker.replicas.proposal_answered(KEY, proposal, ErrorCode.FENCED_LEADER_EPOCH, broker.now_ms) == []
    assert not isinstance(broker.replicas.roles[KEY], PartitionLeader)


def test_who_leads_again_in_the_same_epoch_waits_for_whom_it_had_proposed() -> None:
    """The controller may still accept that; then the one proposed may be elected, and needs what was acknowledged."""
    broker = OneBroker()
    broker.begin(leader=1, in_sync=(1, 3))
    proposal = _proposal(broker, 2)
    broker.replicas.step_down()
    append(broker.log, 0, b"a")
    reported: list[None] = []
    broker.replicas.on_proposal = lambda: reported.append(None)
    broker.tell()
    assert reported, "there is something to take: a broker at rest looks"
    broker.now_ms += LAG_MS + 1
    broker.replicas.fetched_by(KEY, 3, broker.image.broker_epoch(3), 1, 0, broker.now_ms)
    assert broker.log.high_watermark == 0
    assert broker.replicas.proposals() == [(KEY, proposal)], "nobody has taken an answer, so sent again"
    broker.replicas.step_down()
    assert broker.change(in_sync_replicas=(1, 3)) == [Leads(KEY)]
    broker.replicas.fetched_by(KEY, 3, broker.image.broker_epoch(3), 1, 0, broker.now_ms)
    assert broker.log.high_watermark == 1, "the controller has decided otherwise, and can accept it no more"


def _proposal(broker: OneBroker, broker_id: int):  # type: ignore[no-untyped-def]
    """Let a follower fetch from the end, so that it is proposed to join."""
    epoch, end = broker.image.broker_epoch(broker_id), broker.log.log_end_offset
    broker.replicas.fetched_by(KEY, broker_id, epoch, end, 0, broker.now_ms)
    ((_, proposal),) = broker.replicas.proposals()
    return proposal


def test_a_log_that_fails_has_no_role_until_it_is_well_and_holds_up_no_other() -> None:
    broker = OneBroker()
    broker.begin(leader=1)
    other = uuid.UUID(int=8)
    broken = {other}
    logs = {TOPIC: broker.log, other: new_log()}

    def log_of(key: PartitionKey) -> PartitionLog:
        if key[0] in broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no room")
        return logs[key[0]]

    broker.replicas._log_of = log_of
    state = PartitionState((1, 2), (1, 2), 1, 0, 0)
    assert broker.tell(TopicCreated("u", other, ()), PartitionChanged(other, 0, state)) == []
    assert list(broker.replicas.failed) == [(other, 0)]
    with pytest.raises(KafkaError) as refused:
        broker.replicas.leader((other, 0))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    broken.clear()
    assert broker.tell() == [Leads((other, 0))]
    assert broker.replicas.failed == {}
    broken.add(other)
    followed = PartitionState((1, 2), (1, 2), 2, 1, 1)
    assert broker.tell(PartitionChanged(other, 0, followed)) == [Gone((other, 0))], "it leads no more, whatever fails"
    broken.clear()
    assert broker.tell() == [Follows((other, 0), 2)]


class Partitions:
    """Broker 1 of three with partitions 0 and 1, of which it leads the first; the log of that one can be failed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.logs = {index: log_with((0, 2)) for index in (0, 1)}
        self.one = OneBroker()
        self.one.replicas = Replicas(1, lambda key: self.logs[key[1]], ReplicationSettings())
        topic = TopicCreated("t", TOPIC, (("min.insync.replicas", "2"),))
        led = PartitionChanged(TOPIC, 0, PartitionState((1, 2, 3), (1,), 1, 1, 0))
        assert self.one.tell(topic, led, self.second(2, 0)) == [Leads((TOPIC, 0)), Follows((TOPIC, 1), 2)]
        real = PartitionLog.advance_high_watermark

        def failing(log: PartitionLog, offset: int) -> bool:
            if log is self.logs[0]:
                raise OSError(errno.EIO, "?")
            return real(log, offset)

        monkeypatch.setattr(PartitionLog, "advance_high_watermark", failing)

    def second(self, leader: int, epoch: int) -> PartitionChanged:
        return PartitionChanged(TOPIC, 1, PartitionState((1, 2, 3), (2, 3), leader, epoch, epoch))


def test_a_log_that_fails_while_a_high_watermark_moves_takes_no_event_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = Partitions(monkeypatch)
    one = partitions.one
    one.now_ms += LAG_MS + 1
    minimum = TopicSettingsChanged(TOPIC, (("min.insync.replicas", "1"),))
    assert one.tell(minimum, partitions.second(3, 1)) == [Follows((TOPIC, 1), 3)]
    assert list(one.replicas.failed) == [KEY]
    one.replicas.failed.clear()
    assert one.replicas.tick(one.now_ms) == []
    assert list(one.replicas.failed) == [KEY]
    monkeypatch.undo()
    assert one.tell() == [HighWatermarkMoved(KEY)]
    assert not one.replicas.failed
