"""Each invariant is violated by what it is there for, and by nothing else."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import BrokerChanged, BrokerRegistered, PartitionState
from sparkonce.broker_lite.replication.invariants import (
    Batch,
    PartitionHistory,
    Replica,
    ViolationError,
    chained,
    check_image,
    check_images_equal,
)
from sparkonce.kafka.protocol.records import Record, encode_batch, read_header

STATE = PartitionState((1, 2, 3), (1, 2), 1, 4, 7, eligible_leader_replicas=(3,))


def log(*batches: tuple[int, str], producer_id: int = -1, sequences: tuple[int, ...] = ()) -> list[Batch]:
    """Return a log of batches of one record: epoch and content of each."""
    found: list[Batch] = []
    for index, (epoch, text) in enumerate(batches):
        sequence = sequences[index] if sequences else -1
        batch = encode_batch(
            [Record(None, text.encode(), 0)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        found.append(chained(found, read_header(batch), index, epoch))
    return found


def history(*safe: tuple[int, str]) -> PartitionHistory:
    found = PartitionHistory("t-0")
    found.leader_high_watermark(1, log(*safe), len(safe))
    return found


def violates(invariant: str) -> pytest.RaisesExc[ViolationError]:
    return pytest.raises(ViolationError, match=f"^{invariant}: ")


def test_equal_logs_match_and_others_do_not() -> None:
    found = PartitionHistory("t-0")
    found.opened(1, log((1, "a"), (2, "b")))
    found.appended(2, log((1, "a"), (2, "b")))
    with violates("logs-match"):
        found.appended(3, log((1, "a"), (2, "c")))


def test_logs_that_differ_before_an_equal_batch_do_not_match() -> None:
    found = PartitionHistory("t-0")
    found.opened(1, log((1, "a"), (3, "b")))
    with violates("logs-match"):
        found.appended(2, log((2, "x"), (3, "b")))


def test_a_safe_record_does_not_change() -> None:
    found = history((1, "a"), (1, "b"))
    assert found.leader_high_watermark(2, log((1, "a"), (1, "b"), (2, "c")), 3)
    assert not found.leader_high_watermark(2, log((1, "a")), 1)
    with violates("safe-stays"):
        found.leader_high_watermark(3, log((1, "a"), (2, "x")), 2)


def test_nothing_is_safe_while_others_may_be_elected_without_it() -> None:
    state = PartitionState((1, 2, 3), (1,), 1, 5, 9)
    PartitionHistory("t-0").check_minimum(1, state)
    with violates("safe-by-minimum"):
        PartitionHistory("t-0").check_minimum(1, state._replace(eligible_leader_replicas=(2,)))


def test_in_sync_replicas_have_all_that_is_safe() -> None:
    found = history((1, "a"), (1, "b"))
    found.check_members([Replica(1, log((1, "a"), (1, "b"), (2, "z")))])
    for forgotten in (log(), log((1, "a")), log((1, "a"), (2, "b"))):
        with violates("safe-in-sync"):
            found.check_members([Replica(2, forgotten)])


def test_a_clean_leader_is_complete_and_alone_in_its_epoch() -> None:
    found = history((1, "a"))
    found.leads(1, 3, log((1, "a")), current=True)
    found.leads(2, 4, [], current=False)
    with violates("one-leader"):
        found.leads(2, 3, log((1, "a")), current=True)
    with violates("leader-complete"):
        found.leads(3, 5, [], current=True)


def test_a_followers_high_watermark_covers_safe_records_only() -> None:
    found = history((1, "a"))
    found.follower_high_watermark(2, log((1, "a"), (1, "b")), 1)
    with violates("follower-high-watermark"):
        found.follower_high_watermark(2, log((1, "a"), (1, "b")), 2)
    with violates("follower-high-watermark"):
        found.follower_high_watermark(2, log((2, "x")), 1)


def test_what_is_acknowledged_or_read_is_safe() -> None:
    found = history((1, "a"), (1, "b"))
    (_, safe), (_, unsafe) = (log((1, "a"), (1, "b")), log((1, "a"), (1, "x")))
    found.acknowledged(1, safe.crc)
    found.read([(1, safe.crc)])
    for last_offset, crc in ((1, unsafe.crc), (0, safe.crc), (2, safe.crc)):
        with violates("acknowledged-is-safe"):
            found.acknowledged(last_offset, crc)
        with violates("read-is-safe"):
            found.read([(last_offset, crc)])


def test_an_idempotent_producer_leaves_no_duplicates_and_no_gaps() -> None:
    batches = ((1, "a"), (1, "b"), (1, "c"))
    PartitionHistory("t-0").leader_high_watermark(1, log(*batches, producer_id=5, sequences=(0, 1, 2)), 3)
    for sequences in ((0, 1, 1), (0, 2, 3), (1, 2, 3)):
        with violates("no-duplicates"):
            PartitionHistory("t-0").leader_high_watermark(1, log(*batches, producer_id=5, sequences=sequences), 3)


def test_where_losses_are_not_made_up_for_records_may_be_lost_but_not_mixed() -> None:
    found = history((1, "a"))
    found.opened(1, log((1, "a")))
    found.promises = False
    found.check_members([Replica(1, [])])
    found.leads(1, 2, [], current=True)
    found.acknowledged(9, 9)
    found.read([(9, 9)])
    assert not found.leader_high_watermark(1, log((2, "x")), 1)
    with violates("logs-match"):
        found.appended(2, log((1, "b")))


def test_an_unclean_election_takes_back_what_was_promised_before_it_and_nothing_after_it() -> None:
    found = history((1, "a"), (1, "b"))
    found.loses(2)
    found.check_members([Replica(3, [])])
    found.leads(3, 2, [], current=True)
    # The old leader goes on for a while: nothing that it says counts.
    old = log((1, "a"), (1, "b"), (1, "c"))
    assert not found.leader_high_watermark(1, old, 3, leader_epoch=1)
    found.follower_high_watermark(2, old, 3, leader_epoch=1)
    found.acknowledged(2, old[2].crc, leader_epoch=1)
    found.read([(2, old[2].crc)], leader_epoch=1)
    new = log((2, "x"))
    assert found.leader_high_watermark(3, new, 1, leader_epoch=2)
    found.acknowledged(0, new[0].crc, leader_epoch=2)
    for wrong in (log(), log((1, "a"))):
        with violates("safe-in-sync"):
            found.check_members([Replica(1, wrong)])
        with violates("leader-complete"):
            found.leads(4, 3, wrong, current=True)
    for check in (found.acknowledged, lambda *told, leader_epoch: found.read([told], leader_epoch)):
        with pytest.raises(ViolationError):
            check(0, old[0].crc, leader_epoch=2)
        with pytest.raises(ViolationError):
            check(1, old[1].crc, leader_epoch=2)


def test_what_an_unclean_leader_called_safe_before_is_believed_until_it_calls_more_safe() -> None:
    found = PartitionHistory("t-0")
    kept = log((1, "a"), (1, "b"), (2, "c"))
    found.loses(2)
    found.leads(3, 2, kept[:2], current=True, high_watermark=2)
    found.follower_high_watermark(1, kept[:2], 2, leader_epoch=2)
    found.read([(1, kept[1].crc)], leader_epoch=2)
    with violates("follower-high-watermark"):
        found.follower_high_watermark(1, kept, 3, leader_epoch=2)
    assert found.leader_high_watermark(3, kept, 3, leader_epoch=2)
    with violates("follower-high-watermark"):
        found.follower_high_watermark(1, log((1, "x")), 1, leader_epoch=2)


@pytest.mark.parametrize(
    ("changes", "invariant"),
    [
        ({"leader": 3, "leader_epoch": 5}, "leader-in-sync"),
        ({"in_sync_replicas": (1, 3)}, "leader-in-sync"),
        ({"in_sync_replicas": (1, 4)}, "leader-in-sync"),
        ({"partition_epoch": 7}, "epochs-rise"),
        ({"leader_epoch": 3}, "epochs-rise"),
        ({"leader": 2}, "epochs-rise"),
        ({"leader_epoch": 5}, "epochs-rise"),
    ],
)
def test_a_state_that_must_not_follow_another(changes: dict[str, Any], invariant: str) -> None:
    found = PartitionHistory("t-0")
    after = STATE._replace(**{"partition_epoch": 8, **changes})
    found.changed(STATE, STATE._replace(leader=2, leader_epoch=5, partition_epoch=8))
    with violates(invariant):
        found.changed(STATE, after)


def test_a_removal_of_a_replica_may_begin_an_epoch() -> None:
    found = PartitionHistory("t-0")
    after = STATE._replace(replicas=(1, 2), eligible_leader_replicas=(), partition_epoch=8)
    found.changed(STATE, after)
    found.changed(STATE, after._replace(leader_epoch=5))


def test_images_are_compared_and_brokers_epochs_rise() -> None:
    one, other = ClusterImage(), ClusterImage()
    for image in (one, other):
        image.apply(BrokerRegistered(1, UUID(int=1), "a", 1))
    check_images_equal(one, other, "broker 1")
    check_image({1: 0}, one)
    with violates("epochs-rise"):
        check_image({1: 2}, one)
    one.apply(BrokerChanged(1, 0, fenced=False, shutting_down=False))
    with violates("images-equal"):
        check_images_equal(one, other, "broker 1")
