"""What must hold of transactions, and that a simulated reader and coordinator do what real ones do."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from uuid import UUID

import pytest

from lab.sim.disk import SimulatedDisk
from lab.sim.judges.atomicity import Asked, Transactions, read_committed
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.log.producer_state import Marker
from sparkonce.broker_lite.replication.invariants import ViolationError
from sparkonce.kafka.protocol.records import Record, encode_batch, read_header

KEY, OTHER = (UUID(int=1), 0), (UUID(int=1), 1)
EPOCH = 3


def violated() -> AbstractContextManager[pytest.ExceptionInfo[ViolationError]]:
    return pytest.raises(ViolationError, match=r"^transactions-atomic: ")


def one_transaction(asked: Asked) -> Transactions:
    found = Transactions()
    attempt = found.begins("a")
    found.sends(attempt, KEY, 1)
    found.sends(attempt, OTHER, 2)
    attempt.asked = asked
    return found


@pytest.mark.parametrize("asked", [Asked.NOTHING, Asked.ABORTED])
def test_nothing_is_read_of_what_was_not_committed(asked: Asked) -> None:
    found = one_transaction(asked)
    found.read(KEY, [(0, 7)])
    found.check_all({KEY: Counter([7]), OTHER: Counter()})
    with violated():
        found.read(KEY, [(0, 1)])
    with violated():
        found.check_all({KEY: Counter(), OTHER: Counter([2])})


def test_everything_is_read_once_of_what_was_committed() -> None:
    found = one_transaction(Asked.COMMITTED)
    found.read(KEY, [(0, 1)])
    found.check_all({KEY: Counter([1]), OTHER: Counter([2])})
    for wrong in (Counter[int](), Counter([1, 1])):
        with violated():
            found.check_all({KEY: wrong, OTHER: Counter([2])})
    found.check_all({OTHER: Counter([2])})  # the other partition may have lost anything


def test_what_nobody_answered_is_read_as_a_whole_or_not_at_all() -> None:
    found = one_transaction(Asked.COMMIT)
    found.read(KEY, [(0, 1)])
    found.check_all({KEY: Counter([1]), OTHER: Counter([2])})
    found.check_all({KEY: Counter(), OTHER: Counter()})
    with violated():
        found.check_all({KEY: Counter([1]), OTHER: Counter()})


def ended_early(asked: Asked) -> Transactions:
    """One whose producer had heard of its first two batches when the end of the transaction before came again."""
    found = Transactions()
    attempt = found.begins("a")
    for crc in (1, 2, 3):
        found.sends(attempt, KEY, crc)
    attempt.acknowledged += [(KEY, 1), (KEY, 2)]
    found.ended_by_earlier(attempt, has_epochs=False)
    attempt.acknowledged.append((KEY, 3))
    found.ended_by_earlier(attempt, has_epochs=False)
    attempt.asked = asked
    return found


@pytest.mark.parametrize("asked", [Asked.NOTHING, Asked.COMMIT, Asked.ABORTED])
def test_what_an_earlier_transactions_end_has_ended_is_still_read_as_a_whole_up_to_there(asked: Asked) -> None:
    found = ended_early(asked)
    found.read(KEY, [(0, 1)])
    for right in ([], [1, 2], [1, 2, 3], [3]):
        found.check_all({KEY: Counter(right)})
    for wrong in ([1], [2, 3], [1, 2, 2], [3, 3]):
        with violated():
            found.check_all({KEY: Counter(wrong)})


def test_what_is_answered_as_committed_is_read_whatever_else_has_ended_it() -> None:
    found = ended_early(Asked.COMMITTED)
    found.check_all({KEY: Counter([1, 2, 3])})
    with violated():
        found.check_all({KEY: Counter([1, 2])})


def test_a_client_with_an_epoch_for_each_transaction_knows_no_such_thing() -> None:
    found = Transactions()
    with violated():
        found.ended_by_earlier(found.begins("a"), has_epochs=True)


def test_a_reader_leaves_out_what_is_aborted_open_or_not_safe() -> None:
    log = PartitionLog.open(SimulatedDisk(), "/t-0", LogConfig(), 0)
    log.be_one_of_several(0)
    crcs: list[int] = []

    def append(producer_id: int, sequence: int) -> None:
        batch = encode_batch(
            [Record(None, b"%d" % len(crcs), 0)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer_id > 0,
        )
        crcs.append(read_header(batch).crc)
        verification = log.producers.begin_verification(producer_id, 0, has_epochs=False)
        log.append(batch, EPOCH, 0, verification)

    def end(producer_id: int, *, committed: bool) -> None:
        crcs.append(-1)
        log.append_marker(Marker(producer_id, 0, committed, 0, 0), EPOCH, 0)

    append(1, 0)
    append(2, 0)
    append(0, 0)
    end(1, committed=False)
    end(2, committed=True)
    append(1, 1)
    end(1, committed=True)
    append(2, 1)
    assert read_committed(log, 0).batches == []
    log.advance_high_watermark(log.log_end_offset)
    found = read_committed(log, 0)
    assert found.batches == [(each, crcs[each]) for each in (1, 2, 5)]
    assert found.next_offset == 7
    assert read_committed(log, 1).batches == found.batches
