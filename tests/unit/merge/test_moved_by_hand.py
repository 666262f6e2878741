"""Offsets of a MERGE moved by hand: while its driver runs, and after it died between the MERGE and its confirmation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sparkonce.connectors.delta_spark.intents import DeltaIntents
from sparkonce.connectors.delta_spark.sequence import Intent, Landed, NumberedTable, ResultState
from sparkonce.exactly_once.recovery import plan_set
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.administration import CommitEntry, ManualChange, OffsetsTable
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey
from sparkonce.offset_store.txn_ids import OffsetTxn

APP, QUERY, SOURCE = "orders/a", "6f1c", "kafka"
DESPITE = "--despite-unconfirmed"


def partition(number: int) -> TopicPartition:
    return TopicPartition("shop.orders", "topic-id", number)


def record(batch_id: int, ranges: Mapping[int, tuple[int, int]]) -> BatchRecord:
    extents: dict[PartitionKey, OffsetRange] = {
        (SOURCE, partition(number)): OffsetRange(*extent) for number, extent in ranges.items()
    }
    return BatchRecord(APP, QUERY, batch_id, f"attempt-{batch_id}", extents)


@dataclass
class Result:
    """A result of which only the MERGEs matter; the version of each is its number."""

    landed: list[Intent] = field(default_factory=list)

    def look(self) -> ResultState:
        return ResultState(len(self.landed), len(self.landed))

    def write(self, rows: object, intent: Intent) -> None:
        self.landed.append(intent)

    def find(self, sequence: int, since_version: int | None = None) -> Landed | None:
        return Landed(self.landed[sequence - 1], sequence) if sequence <= len(self.landed) else None

    def entries(self) -> Iterator[CommitEntry]:
        return iter(())


@dataclass
class Pipeline:
    """Two partitions, of which batch 0, MERGE 1, has brought the records [0, 100)."""

    path: Path
    result: Result = field(default_factory=Result)

    def table(self) -> NumberedTable:
        """Open both tables anew, as a driver that starts."""
        store = DeltaOffsetStore(Location.parse(str(self.path)), APP, create_missing=True)
        return NumberedTable(self.result, DeltaIntents(store))

    def begin(self, batch: BatchRecord, *, landing: bool) -> None:
        """Go as far as a driver that is killed before its MERGE, or before the confirmation."""
        snapshot = self.table().snapshot()
        intent = Intent(snapshot.state.sequence + 1, batch)
        snapshot.offsets.record(intent)
        if landing:
            self.result.write("rows", intent)

    def opened(self) -> OffsetsTable:
        return OffsetsTable.open(Location.parse(str(self.path)))

    def offsets(self) -> dict[int, int]:
        return {each.partition.partition: at for each, at in self.opened().stored().offsets.items()}

    def by_hand(self, opened: OffsetsTable, wanted: Mapping[int, int]) -> ManualChange:
        keys = {OffsetTxn(APP, SOURCE, partition(number)): offset for number, offset in wanted.items()}
        return plan_set(opened.stored(), keys)

    def command(self, action: str, *words: object) -> int:
        return main(["offsets", action, str(self.path), "--app-id", APP, *map(str, words)])

    def set_offset(self, number: int, offset: int, *words: object) -> int:
        wanted = ("--topic", "shop.orders", "--partition", number, "--offset", offset)
        return self.command("set", *wanted, "--apply", *words)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(tmp_path / "offsets")
    pipeline.begin(record(0, {0: (0, 100), 1: (0, 100)}), landing=True)
    pipeline.table().snapshot()
    assert pipeline.offsets() == {0: 100, 1: 100}
    return pipeline


NEXT = record(1, {0: (100, 200), 1: (100, 150)})


@pytest.mark.parametrize(
    ("moved", "settled", "last_batch"),
    [
        ({0: 50}, {0: 50, 1: 150}, 1),
        ({1: 120}, {0: 200, 1: 120}, 1),
        ({0: 50, 1: 0}, {0: 50, 1: 0}, 0),
        ({}, {0: 200, 1: 150}, 1),
    ],
)
def test_what_landed_is_confirmed_for_each_partition_by_itself(
    pipeline: Pipeline, moved: dict[int, int], settled: dict[int, int], last_batch: int
) -> None:
    pipeline.begin(NEXT, landing=True)
    if moved:
        opened = pipeline.opened()
        opened.apply(pipeline.by_hand(opened, moved))
    snapshot = pipeline.table().snapshot()
    assert pipeline.offsets() == settled
    assert (snapshot.offsets.confirmed, snapshot.last_batch(QUERY)) == (2, last_batch)
    kept = {key: extent for key, extent in NEXT.moved.items() if key[1].partition not in moved}
    if kept:
        assert snapshot.history()[0].record == BatchRecord(APP, QUERY, 1, "attempt-1", kept)
    else:
        assert len(snapshot.history()) == 1, "numbers alone were confirmed: no batch"


def test_a_batch_without_new_records_is_confirmed(pipeline: Pipeline) -> None:
    pipeline.begin(record(1, {}), landing=True)
    assert pipeline.table().snapshot().last_batch(QUERY) == 1


def test_a_merge_recorded_meanwhile_makes_the_hand_fail(pipeline: Pipeline) -> None:
    opened = pipeline.opened()
    change = pipeline.by_hand(opened, {0: 50})
    pipeline.begin(NEXT, landing=False)
    with pytest.raises(CommitConflictError, match="from which this change was decided"):
        opened.apply(change)
    assert pipeline.offsets() == {0: 100, 1: 100}


def test_a_driver_that_looked_before_the_hand_records_no_merge(pipeline: Pipeline) -> None:
    before = pipeline.table().snapshot()
    opened = pipeline.opened()
    opened.apply(pipeline.by_hand(opened, {0: 50}))
    with pytest.raises(CommitConflictError):
        before.offsets.record(Intent(2, NEXT))
    after = pipeline.table().snapshot()
    assert (after.offsets.confirmed, after.offsets.intents(2)) == (1, []), "the hand leaves the numbers as they are"


def test_numbers_that_only_a_checkpoint_knows_are_pinned_too(pipeline: Pipeline) -> None:
    opened = pipeline.opened()
    opened.apply(plan_set(opened.stored(), {OffsetTxn("other", SOURCE, partition(0)): 7}))
    opened = pipeline.opened()
    DeltaTable(pipeline.path).create_checkpoint()
    for version in range(opened.version):
        (pipeline.path / "_delta_log" / f"{version:020d}.json").unlink()
    before, opened = pipeline.table().snapshot(), pipeline.opened()
    opened.apply(pipeline.by_hand(opened, {0: 50}))
    with pytest.raises(CommitConflictError):
        before.offsets.record(Intent(2, NEXT))


@pytest.mark.parametrize("landing", [True, False])
def test_a_merge_that_is_not_confirmed_is_settled_first(
    pipeline: Pipeline, landing: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.begin(NEXT, landing=landing)
    said = f"appId {APP}: write 2 is recorded and not confirmed: it may be in the result. Stop the driver, start"
    version = pipeline.opened().version
    assert pipeline.set_offset(0, 50) == 1
    assert said in capsys.readouterr().err
    assert pipeline.command("rewind", "--to-version", 0) == 1
    assert said in capsys.readouterr().err
    assert pipeline.command("rewind", "--to-version", 0, "--restore", "--apply") == 1
    assert said in capsys.readouterr().err
    assert pipeline.opened().version == version
    assert pipeline.command("show") == 0
    assert f"WARNING {said}" in capsys.readouterr().out
    if landing:
        pipeline.table().snapshot()
        assert pipeline.set_offset(0, 50) == 0
        assert pipeline.offsets() == {0: 50, 1: 150}
        capsys.readouterr()
        assert pipeline.command("show") == 0
        assert "WARNING" not in capsys.readouterr().out
    else:
        assert pipeline.set_offset(0, 50, DESPITE) == 0
        pipeline.table().snapshot()
        assert pipeline.offsets() == {0: 50, 1: 100}


def test_applications_do_not_wait_for_each_other(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.begin(NEXT, landing=False)
    opened = pipeline.opened()
    key = OffsetTxn("other", SOURCE, partition(0))
    opened.apply(plan_set(opened.stored(), {key: 7}))
    words = ("--topic", "shop.orders", "--partition", "0", "--offset", "9", "--apply")
    assert main(["offsets", "set", str(pipeline.path), "--app-id", "other", *words]) == 0
    capsys.readouterr()
    assert main(["offsets", "show", str(pipeline.path), "--app-id", "other"]) == 0
    assert "is recorded" not in capsys.readouterr().out


def test_the_audit_follows_the_hand(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.begin(NEXT, landing=True)
    assert pipeline.set_offset(0, 50, DESPITE) == 0
    pipeline.table().snapshot()
    capsys.readouterr()
    assert main(["audit", str(pipeline.path)]) == 0
    assert "gaps=0 overlaps=0 warnings=1 verdict=proven" in capsys.readouterr().out


def test_the_audit_names_what_merges_and_hands_commit(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Two MERGEs, of which the second is confirmed without its record: a hand moved all of its offsets."""
    pipeline.begin(NEXT, landing=True)
    opened = pipeline.opened()
    opened.apply(pipeline.by_hand(opened, {0: 50, 1: 0}))
    pipeline.table().snapshot()
    capsys.readouterr()
    assert main(["audit", str(pipeline.path)]) == 0
    shown = capsys.readouterr().out
    assert "other commits of sparkonce: write intent 2, write confirmation 2, offsets set by hand 1\n" in shown
    assert "WRITE" not in shown
    assert ", offsets set by hand: [moved-on-purpose] shop.orders-0" in shown
    assert main(["audit", str(pipeline.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commits"]["ofSparkonce"] == {
        "write intent": 2,
        "write confirmation": 2,
        "offsets set by hand": 1,
    }
