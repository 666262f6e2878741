"""What judges take a compacted log for: all that it ever had, unless something else has become of it."""

from __future__ import annotations

import pytest

from lab.sim.judges.cleaned_logs import whole
from sparkonce.broker_lite.replication.invariants import Batch, ViolationError, chained
from sparkonce.kafka.protocol.records import Record, encode_batch, read_header


def log_of(*offsets: int, producer_id: int = 7) -> list[Batch]:
    """Return a log with a batch of one record at each of some offsets."""
    found: list[Batch] = []
    for offset in offsets:
        batch = encode_batch([Record(None, b"%d" % offset, 0)], producer_id=producer_id)
        found.append(chained(found, read_header(batch), offset, 1))
    return found


def test_what_was_compacted_is_put_back() -> None:
    assert whole("t-0", log_of(0, 1, 2, 3), log_of(1, 3), cleaned_end=3, log_end=4) == log_of(0, 1, 2, 3)


def test_what_was_appended_and_not_seen_counts() -> None:
    assert whole("t-0", log_of(0, 1), log_of(1, 2), cleaned_end=1, log_end=3) == log_of(0, 1, 2)


def test_a_log_of_which_only_the_end_of_its_compacted_part_is_left_is_whole() -> None:
    assert whole("t-0", log_of(0, 1, 2), [], cleaned_end=2, log_end=2) == log_of(0, 1)


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(log_of(1), id="it ends within what was compacted"),
        pytest.param(log_of(2, 1, 3), id="batches are in another order"),
        pytest.param(log_of(1, 2, 3, producer_id=8), id="a batch is another producer's"),
    ],
)
def test_what_compaction_cannot_have_done_is_a_violation(found: list[Batch]) -> None:
    with pytest.raises(ViolationError, match="logs-match"):
        whole("t-0", log_of(0, 1, 2, 3), found, cleaned_end=3, log_end=found[-1].last_offset + 1)


def test_a_batch_that_was_never_there_is_a_violation() -> None:
    with pytest.raises(ViolationError, match="logs-match"):
        whole("t-0", log_of(0, 2, 3), log_of(1, 3), cleaned_end=3, log_end=4)
