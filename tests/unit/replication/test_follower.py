"""What a follower cuts off after a change of leaders, and that logs become equal by it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.log.partition_log import OverlappingBatchError, PartitionLog
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.kafka.protocol.records import Record, encode_batch
from tests.chance import examples
from tests.unit.replication.partition import NOW, Led, append, content, log_with, new_log, stored

ROUNDS = 12
"""More questions than any history here needs: each settles an epoch at least."""


def written_by(follower: PartitionFollower) -> PartitionLog:
    """Return the log that the server appends to, of which a follower itself knows the ends only."""
    assert isinstance(follower.log, PartitionLog)
    return follower.log


def follow(follower: PartitionFollower, led: Led, records: int | None = None) -> bool:
    """Fetch once: what the server does with both; returns whether something has changed."""
    position = follower.position
    parts = led.leader.check_fetch(position.leader_epoch, position.last_fetched_epoch, position.offset)
    if parts is not None:
        follower.diverged(parts)
        return True
    if not led.log.log_start_offset <= position.offset <= led.log.log_end_offset:
        follower.out_of_range(led.log.log_start_offset, led.log.log_end_offset)
        return True
    data = stored(led.log, position.offset)
    if records is not None:
        data = data[: len(data) * records // max(led.log.log_end_offset - position.offset, 1)]
    return written_by(follower).append_as_follower(data, follower.leader_epoch, NOW) > 0


def catch_up(follower: PartitionFollower, led: Led) -> int:
    """Follow until nothing changes; returns how many rounds that took."""
    for rounds in range(ROUNDS):
        if not follow(follower, led) and follower.log.log_end_offset == led.log.log_end_offset:
            return rounds
    raise AssertionError(f"still not equal: {content(written_by(follower))} beside {content(led.log)}")


def test_a_fetch_says_where_its_log_ends() -> None:
    follower = PartitionFollower(log_with((0, 2), (3, 1)), 1, 4)
    assert follower.position == FetchPosition(3, 4, 3, 0)
    assert PartitionFollower(new_log(), 1, 4).position == FetchPosition(0, 4, -1, 0)


def test_nothing_is_cut_off_where_the_logs_agree() -> None:
    led = Led(log_with((0, 4)), epoch=1)
    follower = PartitionFollower(log_with((0, 3), safe=1), 1, 1)
    catch_up(follower, led)
    assert content(written_by(follower)) == content(led.log)
    assert follower.log.high_watermark == 1
    assert follower.fetched(3)
    assert follower.log.high_watermark == 3
    assert not follower.fetched(2)


def test_the_high_watermark_is_never_beyond_the_own_end() -> None:
    follower = PartitionFollower(log_with((0, 3)), 1, 1)
    assert follower.fetched(9)
    assert follower.log.high_watermark == 3


def test_an_end_that_the_leader_does_not_have_is_cut_off() -> None:
    led = Led(log_with((0, 2)), epoch=1)
    led.append(2)
    follower = PartitionFollower(log_with((0, 4), safe=3), 1, 1)
    assert catch_up(follower, led) == 2
    assert content(written_by(follower)) == content(led.log)
    assert follower.log.high_watermark == 2


def test_an_epoch_without_records_at_the_end_is_forgotten() -> None:
    """A former leader that appended nothing: its leader never heard of that epoch, and would be asked for ever."""
    led = Led(log_with((0, 1)), epoch=2)
    led.append()
    former = log_with((0, 1), (1, 0))
    assert former.latest_epoch == 1
    follower = PartitionFollower(former, 1, 2)
    catch_up(follower, led)
    assert content(former) == content(led.log)


def test_records_without_epochs_are_kept_up_to_what_is_safe() -> None:
    """Their checkpoint file was lost: nothing can be compared."""
    log = log_with((0, 4), safe=2)
    log.leader_epochs.truncate_from_end(0)
    assert PartitionFollower(log, NO_LEADER, 1).log.log_end_offset == 4, "nobody leads: nothing is cut off"
    assert PartitionFollower(log, 1, 2).log.log_end_offset == 2


def test_a_leader_that_has_none_of_our_epochs_is_begun_from_anew() -> None:
    led = Led(new_log(), epoch=5)
    led.append(2)
    follower = PartitionFollower(log_with((1, 3)), 1, 5)
    catch_up(follower, led)
    assert content(written_by(follower)) == content(led.log)


def test_a_leader_that_begins_after_our_end_is_begun_from_there() -> None:
    follower = PartitionFollower(log_with((0, 3)), 1, 1)
    assert follower.out_of_range(10, 20)
    assert (follower.log.log_start_offset, follower.log.log_end_offset, follower.log.high_watermark) == (10, 10, 10)


@pytest.mark.parametrize(("records", "start"), [(2, 5), (4, 4), (4, 5), (6, 5)])
def test_nothing_differs_before_a_start_that_a_crash_may_take_back(records: int, start: int) -> None:
    """Records that were never safe must not come back in place of deleted ones."""
    led = Led(log_with((0, 3), (1, 3), safe=6), epoch=2)
    led.log.delete_records(start)
    follower = PartitionFollower(log_with((0, records)), 1, 2)
    catch_up(follower, led)
    assert content(written_by(follower)) == content(led.log)
    assert follower.log.log_start_offset == start, "nothing is left of what was there before"


def test_a_leader_that_ends_before_us_is_followed_from_its_end() -> None:
    follower = PartitionFollower(log_with((0, 3)), 1, 1)
    assert follower.out_of_range(0, 2)
    assert follower.log.log_end_offset == 2


def test_records_of_an_epoch_that_nobody_has_led_in_are_cut_off() -> None:
    """Files from elsewhere: the leader has the offset, and has never heard of the epoch."""
    led = Led(log_with((0, 4)), epoch=1)
    led.append(6)
    follower = PartitionFollower(log_with((0, 2), (7, 3), safe=5), 1, 1)
    position = follower.position
    with pytest.raises(KafkaError, match="OFFSET_OUT_OF_RANGE"):
        led.leader.check_fetch(position.leader_epoch, position.last_fetched_epoch, position.offset)
    assert follower.out_of_range(0, 10)
    assert content(written_by(follower)) == content(log_with((0, 2)))
    catch_up(follower, led)
    assert content(written_by(follower)) == content(led.log)


def test_an_epoch_that_nobody_has_led_in_is_forgotten_without_records_too() -> None:
    follower = PartitionFollower(log_with((0, 2), (7, 0)), 1, 1)
    assert follower.out_of_range(0, 2)
    assert follower.position == FetchPosition(2, 1, 0, 0)


def test_an_offset_that_the_leader_has_by_now_is_asked_for_again() -> None:
    follower = PartitionFollower(log_with((0, 3)), 1, 1)
    assert not follower.out_of_range(0, 3)
    assert follower.log.log_end_offset == 3


def test_records_that_the_leaders_next_batch_holds_are_cut_off_until_both_agree() -> None:
    """Files from elsewhere, with an epoch that the leader has, too."""
    led = Led(log_with((0, 1)), epoch=0)
    for values in (3, 4):
        led.log.append(encode_batch([Record(None, b"v", NOW)] * values), 0, NOW)
    follower = PartitionFollower(log_with((0, 6)), 1, 0)
    ends = []
    while True:
        try:
            written_by(follower).append_as_follower(stored(led.log, follower.log.log_end_offset), 0, NOW)
            break
        except OverlappingBatchError as error:
            follower.overlapped(error.base_offset)
            ends.append(follower.log.log_end_offset)
    assert ends == [4]
    assert follower.log.log_end_offset == led.log.log_end_offset == 8
    follower.overlapped(2)
    assert follower.log.log_end_offset == 2


def test_a_follower_does_not_take_records_of_a_later_epoch_than_it_follows() -> None:
    led = Led(log_with((0, 1)), epoch=3)
    led.append()
    follower = PartitionFollower(new_log(), 1, 2)
    written_by(follower).append_as_follower(stored(led.log), follower.leader_epoch, NOW)
    assert content(written_by(follower)) == [(0, 0, b"0.0")]


def test_two_fast_changes_take_two_questions() -> None:
    """KIP-279: the leader never had the follower's epoch, and both have records that the other lacks."""
    led = Led(log_with((0, 2)), epoch=2)
    led.append()
    follower = PartitionFollower(log_with((0, 1), (1, 1)), 1, 2)
    catch_up(follower, led)
    assert content(written_by(follower)) == content(led.log)


# Any history.


@dataclass
class History:
    """Replicas among which leadership goes about; whoever leads appends, others follow now and then."""

    logs: list[PartitionLog] = field(default_factory=lambda: [new_log() for _ in range(3)])
    epoch: int = -1

    def step(self, leader: int, appended: int, followers: list[tuple[int, int]]) -> Led:
        self.epoch += 1
        led = Led(self.logs[leader], in_sync=(1,), epoch=self.epoch)
        append(led.log, self.epoch, *[b"%d.%d" % (self.epoch, each) for each in range(appended)])
        for who, records in followers:
            if who != leader:
                follower = PartitionFollower(self.logs[who], 1, self.epoch)
                for _ in range(records):
                    follow(follower, led, records)
        return led


_steps = st.tuples(
    st.integers(0, 2), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=3)
)


@given(st.lists(_steps, min_size=1, max_size=8))
@settings(max_examples=examples(150), deadline=None)
def test_after_any_history_all_logs_become_the_leaders(steps: list[tuple[int, int, list[tuple[int, int]]]]) -> None:
    """Elections are as unclean as can be here: anybody leads, whatever it has."""
    history = History()
    for step in steps:
        led = history.step(*step)
    for log in history.logs:
        if log is not led.log:
            catch_up(PartitionFollower(log, 1, history.epoch), led)
            assert content(log) == content(led.log)
