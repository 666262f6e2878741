"""What transaction identifiers stand at: always what delta-rs says of each, whoever commits."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from sparkonce.offset_store.txn_ids import epoch_txn_id, offset_txn_id
from tests.delta_commits import append

MANY = 48
KEYS: list[PartitionKey] = [("s", TopicPartition("t", "AAAAAAAAAAAAAAAAAAAAAA", index)) for index in range(1_000)]


def batch(number: int, keys: list[PartitionKey], epoch: int = 3) -> Commit[None]:
    moved = {key: OffsetRange(number, number + 1, epoch, epoch_before=3 if number else None) for key in keys}
    record = BatchRecord("app", "q", number, f"attempt {number}", moved)
    return Commit(replace(record, fingerprint=Fingerprint.of([number], [number])), Writes.OFFSETS)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.lab) for seed in range(3, 12))])
def test_it_is_what_delta_rs_says_whoever_commits(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    path = tmp_path / "t"
    store = DeltaOffsetStore(Location.parse(str(path)), "app", create_missing=True)
    ids = [name("app", *key) for key in KEYS[:MANY] for name in (offset_txn_id, epoch_txn_id)]
    for number in range(25):
        snapshot = store.snapshot()
        snapshot.next_offsets(KEYS[: rng.choice([2, MANY])])
        fresh = DeltaTable(path)
        assert {each: snapshot.look_up(each) for each in ids} == {each: fresh.transaction_version(each) for each in ids}
        step = rng.randrange(5)
        if step <= 1:
            snapshot.commit(batch(number, KEYS[: rng.choice([1, MANY])], epoch=rng.choice([3, 4])))
        elif step == 2:
            append(DeltaTable(path), {rng.choice(ids): rng.randrange(1_000) for _ in range(3)}, {})
        elif step == 3:
            DeltaTable(path).create_checkpoint()
        elif number > 15:
            shutil.rmtree(path)


def written(path: Path, batches: int) -> DeltaOffsetStore:
    """A store that has read the log as a whole, and got so many batches."""
    store = DeltaOffsetStore(Location.parse(str(path)), "app", create_missing=True)
    for number in range(batches):
        snapshot = store.snapshot()
        assert len(snapshot.next_offsets(KEYS[:MANY])) == (MANY if number else 0)
        snapshot.commit(batch(number, KEYS[:MANY]))
    return store


def test_a_log_without_its_old_commits_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "t"
    store = written(path, 3)
    for number in range(3, 6):
        append(DeltaTable(path), {offset_txn_id("app", *KEYS[0]): number + 1}, {})
    DeltaTable(path).create_checkpoint()
    for version in range(5):
        (path / "_delta_log" / f"{version:020d}.json").unlink()
    assert store.snapshot().next_offsets(KEYS[:MANY]) == dict.fromkeys(KEYS[:MANY], 3) | {KEYS[0]: 6}


def test_a_read_that_fails_leaves_nothing_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = written(tmp_path / "t", 2)

    def fail(*_: object) -> None:
        raise MemoryError

    store.snapshot().commit(batch(2, KEYS[:MANY]))
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "actions_of", fail)
        with pytest.raises(MemoryError):
            store.snapshot()
    assert store.snapshot().last_batch("q") == 2
    assert store.snapshot().next_offsets(KEYS[:MANY]) == dict.fromkeys(KEYS[:MANY], 3)
