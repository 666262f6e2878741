"""The leader of a partition: how far records are safe, and whom it proposes to be in sync (Kafka's Partition)."""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH
from sparkonce.broker_lite.replication.leader import check_leader_epoch
from sparkonce.broker_lite.replication.replica_log import EpochEnd
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.unit.replication.partition import LAG_MS, Led, log_with


def test_the_epoch_is_noted_at_the_end_of_the_log_before_anything_is_served() -> None:
    led = Led(log_with((0, 3)), epoch=2)
    assert led.log.latest_epoch == 2
    assert led.leader.epoch_start_offset == 3
    assert led.log.epoch_end(0) == EpochEnd(0, 3)


def test_the_high_watermark_is_the_least_end_of_those_in_sync() -> None:
    led = Led()
    led.append(5)
    assert not led.fetched(2, 4)
    assert led.high_watermark == 0, "broker 3 is in sync and has not fetched yet"
    assert led.fetched(3, 2)
    assert led.high_watermark == 2
    assert led.fetched(3, 5)
    assert led.high_watermark == 4
    assert led.fetched(2, 5)
    assert led.high_watermark == 5


def test_one_out_of_sync_that_is_far_behind_holds_nothing_up() -> None:
    led = Led(log_with((0, 5)), in_sync=(1, 2), epoch=1)
    led.fetched(3, 1)
    led.append()
    assert led.fetched(2, 6)
    assert led.high_watermark == 6


def test_a_leader_alone_makes_records_safe_by_itself() -> None:
    led = Led(in_sync=(1,))
    led.append(2)
    assert led.high_watermark == 2


def test_one_that_is_proposed_is_waited_for_before_it_is_confirmed() -> None:
    led = Led(log_with((0, 4)), in_sync=(1, 2), epoch=1)
    led.fetched(2, 4)
    led.fetched(3, 4)
    assert led.leader.maximal_in_sync_replicas == {1, 2, 3}
    led.append()
    led.now_ms += LAG_MS + 1  # by now broker 3 counts as caught up no more, but may be in sync all the same
    led.fetched(2, 5)
    assert led.high_watermark == 4
    led.confirm((1, 2, 3))
    assert led.high_watermark == 4
    led.fetched(3, 5)
    assert led.high_watermark == 5


def test_one_that_has_caught_up_is_waited_for_before_it_is_proposed() -> None:
    led = Led(log_with((0, 4)), in_sync=(1,), epoch=1)
    led.fetched(2, 4)
    assert led.leader.take_proposal() is not None
    led.fetched(3, 4)
    assert led.leader.take_proposal() is None, "one proposal at a time"
    led.append()
    led.fetched(2, 5)
    assert led.high_watermark == 4, "broker 3 is about to be proposed"
    led.now_ms += LAG_MS + 1
    led.leader.advance(led.now_ms)
    assert led.high_watermark == 5, "broker 3 has been silent for too long"


def test_one_that_the_cluster_does_not_let_in_is_not_waited_for() -> None:
    led = Led(log_with((0, 4)), in_sync=(1,), epoch=1)
    led.epochs[2] = NO_BROKER_EPOCH
    led.fetched(2, 4)
    assert led.leader.proposal is None
    led.append()
    assert led.high_watermark == 5


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    led = Led(in_sync=(1,), least=2)
    led.append(3)
    assert led.high_watermark == 0
    led.fetched(2, 3)
    assert led.high_watermark == 0, "proposed is not confirmed"
    assert led.confirm((1, 2))
    assert led.high_watermark == 3


def test_never_more_are_asked_for_than_there_are_replicas() -> None:
    led = Led(least=7)
    assert led.leader.min_in_sync_replicas == 3
    led.leader.check_acks_all()


def test_a_smaller_minimum_lets_the_high_watermark_go_on() -> None:
    led = Led(in_sync=(1,), least=2)
    led.append(3)
    led.leader.change_min_in_sync_replicas(1)
    assert led.leader.advance(led.now_ms)
    assert led.high_watermark == 3


def test_acks_all_is_refused_where_too_few_are_in_sync() -> None:
    led = Led(in_sync=(1,), least=2)
    with pytest.raises(KafkaError) as refused:
        led.leader.check_acks_all()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_write_is_acknowledged_when_the_high_watermark_is_past_it() -> None:
    led = Led(in_sync=(1, 2), least=2)
    led.append(2)
    led.fetched(2, 1)
    assert led.leader.is_acknowledged(0)
    assert not led.leader.is_acknowledged(1)


def test_a_write_that_is_safe_but_in_too_few_is_told_so() -> None:
    led = Led(in_sync=(1, 2), least=2)
    led.append()
    led.fetched(2, 1)
    led.now_ms += LAG_MS + 1
    led.append()
    led.leader.shrink(led.now_ms)
    led.confirm((1,))
    assert not led.leader.is_acknowledged(1), "not even safe"
    with pytest.raises(KafkaError) as refused:
        led.leader.is_acknowledged(0)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


# Who is proposed to join.


def test_one_joins_when_it_has_reached_the_high_watermark() -> None:
    led = Led(log_with((0, 4)), in_sync=(1, 2), epoch=0)
    led.fetched(2, 4)
    led.append(2)
    led.fetched(3, 3)
    assert led.leader.take_proposal() is None
    led.fetched(3, 4)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    assert proposal.in_sync_replicas == ((1, 101), (2, 102), (3, 103))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (0, 0)


def test_one_does_not_join_before_it_has_reached_where_the_epoch_began() -> None:
    led = Led(log_with((0, 10), safe=5), in_sync=(1, 2), epoch=1)
    assert led.high_watermark == 5, "broker 2 has not fetched in this epoch"
    led.fetched(3, 5)
    assert led.leader.proposal is None, "KAFKA-7128: records from 5 to 9 may be acknowledged"
    led.fetched(3, 10)
    assert led.leader.proposal is not None


@pytest.mark.parametrize("epoch", [102, 104])
def test_one_does_not_join_by_fetches_of_another_start_of_it(epoch: int) -> None:
    led = Led(in_sync=(1, 2))
    led.fetched(2, 0)
    led.fetched(3, 0, broker_epoch=epoch)
    assert led.leader.proposal is None


def test_one_that_does_not_say_its_epoch_waits_until_it_does() -> None:
    led = Led(in_sync=(1, 2))
    led.fetched(3, 0, broker_epoch=NO_BROKER_EPOCH)
    assert led.leader.take_proposal() is None
    led.fetched(3, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    assert proposal.in_sync_replicas == ((1, 101), (2, NO_BROKER_EPOCH), (3, 103))


def test_a_late_fetch_of_a_former_start_is_not_taken_for_a_new_one() -> None:
    led = Led()
    led.append(4)
    led.fetched(3, 4)
    led.fetched(2, 1, broker_epoch=202)
    led.fetched(2, 4, broker_epoch=102)
    assert led.leader.followers[2].log_end_offset == 1
    assert led.high_watermark == 1


def test_who_is_no_replica_is_refused() -> None:
    with pytest.raises(KafkaError) as refused:
        Led().fetched(9, 0)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Who is proposed to leave.


def test_one_that_is_silent_for_too_long_leaves() -> None:
    led = Led()
    led.append()
    led.now_ms += LAG_MS
    led.fetched(2, 1)
    led.leader.shrink(led.now_ms)
    assert led.leader.proposal is None, "broker 3 has its whole time"
    led.now_ms += 1
    led.leader.shrink(led.now_ms)
    assert led.high_watermark == 0, "in sync until the controller has said so"
    assert led.confirm((1, 2))
    assert led.high_watermark == 1


def test_one_that_has_everything_stays_however_long_it_is_silent() -> None:
    led = Led(in_sync=(1, 2))
    led.append()
    led.fetched(2, 1)
    led.now_ms += 10 * LAG_MS
    led.leader.shrink(led.now_ms)
    assert led.leader.proposal is None


def test_one_that_is_always_a_fetch_behind_stays() -> None:
    led = Led(in_sync=(1, 2))
    led.fetched(2, 0)
    for end in range(1, 10):
        led.append()
        led.now_ms += LAG_MS // 2
        led.fetched(2, end - 1)
        led.leader.shrink(led.now_ms)
        assert led.leader.proposal is None, end


def test_one_that_fetches_but_falls_behind_leaves() -> None:
    led = Led(in_sync=(1, 2))
    for _ in range(4):
        led.append(3)
        led.now_ms += LAG_MS // 2
        led.fetched(2, 1)
    led.leader.shrink(led.now_ms)
    assert led.leader.proposal is not None


# The controller's answers.


def test_an_unanswered_proposal_is_sent_again() -> None:
    led = Led(in_sync=(1, 2))
    led.fetched(3, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    assert led.leader.take_proposal() is None
    led.leader.unanswered(proposal)
    assert led.leader.take_proposal() == proposal


def test_one_who_may_not_be_in_sync_is_not_waited_for_any_more() -> None:
    led = Led(in_sync=(1,))
    led.fetched(2, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    led.append()
    led.epochs[2] = NO_BROKER_EPOCH
    assert led.high_watermark == 0
    assert led.leader.refused(proposal, ErrorCode.INELIGIBLE_REPLICA, led.now_ms)
    assert led.leader.proposal is None
    assert led.high_watermark == 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH])
def test_where_the_controller_knows_more_the_log_is_waited_for(code: ErrorCode) -> None:
    led = Led(in_sync=(1,))
    led.fetched(2, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    led.append()
    assert not led.leader.refused(proposal, code, led.now_ms)
    assert led.leader.take_proposal() is None
    assert led.leader.maximal_in_sync_replicas == {1, 2}
    assert led.high_watermark == 0
    led.leader.changed(led.state._replace(partition_epoch=1), led.now_ms)
    assert led.leader.proposal is None


@pytest.mark.parametrize("code", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_after_any_other_refusal_the_proposal_is_sent_again(code: ErrorCode) -> None:
    led = Led(in_sync=(1,))
    led.fetched(2, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    led.leader.refused(proposal, code, led.now_ms)
    assert led.leader.take_proposal() == proposal
    assert led.leader.maximal_in_sync_replicas == {1, 2}


def test_an_answer_from_another_epoch_changes_nothing() -> None:
    led = Led(in_sync=(1,))
    led.fetched(2, 0)
    proposal = led.leader.take_proposal()
    assert proposal is not None
    assert not led.leader.confirmed(proposal, led.state._replace(leader_epoch=1, partition_epoch=4), led.now_ms)
    assert led.leader.state == led.state


def test_an_older_state_is_not_gone_back_to() -> None:
    led = Led(in_sync=(1,))
    led.fetched(2, 0)
    led.confirm((1, 2))
    assert not led.leader.changed(led.state, led.now_ms)
    assert led.leader.in_sync_replicas == (1, 2)


# What a fetch says of epochs.


def test_a_fetch_with_another_epoch_is_fenced() -> None:
    check_leader_epoch(-1, 3)
    check_leader_epoch(3, 3)
    with pytest.raises(KafkaError) as behind:
        check_leader_epoch(2, 3)
    assert behind.value.code is ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as ahead:
        check_leader_epoch(4, 3)
    assert ahead.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize(
    ("last_epoch", "offset", "parts"),
    [
        (-1, 99, None),  # an old follower says nothing
        (0, 3, None),
        (0, 2, None),
        (0, 4, EpochEnd(0, 3)),
        (1, 4, EpochEnd(0, 3)),  # an epoch that this log never had
        (2, 5, None),
        (2, 6, EpochEnd(2, 5)),
        (3, 5, None),  # this epoch, without a record yet
    ],
)
def test_where_a_followers_log_parts_from_the_leaders(last_epoch: int, offset: int, parts: EpochEnd | None) -> None:
    led = Led(log_with((0, 3), (2, 2)), epoch=3)
    assert led.leader.check_fetch(3, last_epoch, offset) == parts


def test_an_epoch_that_the_leader_cannot_know_is_out_of_range() -> None:
    led = Led(log_with((0, 3)), epoch=3)
    with pytest.raises(KafkaError) as unknown:
        led.leader.check_fetch(3, 4, 3)
    assert unknown.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
