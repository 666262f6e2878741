"""What batches were, after a restore: later ones have taken the places of those that count again."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import look
from sparkonce.exactly_once.decision import Decision, DifferentBatch, Replay, decide
from sparkonce.exactly_once.recovery import plan_rewind
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.fingerprint import RING, Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, Writes

KEY = ("kafka", TopicPartition("t", "id", 0))
LAST = 2
"""The batch that the table is taken back to."""


def batch(number: int, *, kept: bool = True) -> Batch:
    fingerprint = Fingerprint.of([number], [number]) if kept else None
    record = BatchRecord("app", "q", number, f"a{number}", {KEY: OffsetRange(number, number + 1)}, fingerprint)
    return Batch(record, stateful=True)


def decided(location: Location, given: Batch) -> Decision:
    return decide(look(DeltaOffsetStore(location, "app").snapshot(), given), given)


@pytest.mark.parametrize("kept", [True, False])
def test_the_batch_that_was_last_then_is_a_replay_again(tmp_path: Path, kept: bool) -> None:
    """Without a fingerprint of then, as an earlier version wrote it, nobody can tell, and nobody says otherwise."""
    location = Location.parse(str(tmp_path / "table"))
    store = DeltaOffsetStore(location, "app", create_missing=True)
    for number in (0, 1, LAST, LAST + 1, LAST + RING):
        given = batch(number, kept=kept or number > LAST)
        store.snapshot().commit(Commit(given.record, Writes.ROWS | Writes.OFFSETS))
    table = OffsetsTable.open(location)
    version = next(each.version for each in table.entries() if each.batch and each.batch.record.batch_id == LAST)
    change = plan_rewind(table.stored(), table.stored(version), table.entries(), app_id=None, restore=True)
    table.apply(change)
    assert decided(location, batch(LAST)) == (Replay(LAST) if kept else DifferentBatch(LAST, is_known=False))
