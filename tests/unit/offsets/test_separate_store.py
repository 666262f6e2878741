"""Offsets apart from the rows: which store the sink's options name, a table of offsets, and copies that fail."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparkonce.connectors.delta_sink import separate_store as module
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.separate_store import copy_offsets, separate_store
from sparkonce.connectors.runtime.cache import MAX_KEPT, LruCache
from sparkonce.exactly_once.batch import Batch
from sparkonce.offset_store import DeltaOffsetStore, GroupOffsetStore, MemoryOffsetStore, OffsetStoreError
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.creation import NewTable
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, PartitionKey, Writes
from sparkonce.options import OptionError

BOTH = Writes.ROWS | Writes.OFFSETS
ONE: PartitionKey = ("s", TopicPartition("t", "id", 0))
TWO: PartitionKey = ("s", TopicPartition("t", "id", 1))
GIVEN = {"path": "/x/table", "appId": "app", "checkpointLocation": "/c"}
SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture(autouse=True)
def new_process() -> None:
    module._kept.clear()
    module._complete.clear()


def batch(batch_id: int, **ranges: tuple[int, int]) -> Batch:
    keys = {"one": ONE, "two": TWO}
    moved = {keys[name]: OffsetRange(*extent) for name, extent in ranges.items()}
    return Batch(BatchRecord("app", "q", batch_id, f"a{batch_id}", moved), stateful=False)


def write(table: MemoryOffsetStore, written: Batch) -> Batch:
    table.snapshot().commit(Commit(written.record, BOTH, ["f"]))
    return written


class Broken:
    """A store that cannot be reached."""

    def snapshot(self) -> Any:
        raise OffsetStoreError("planted")

    def __str__(self) -> str:
        return "memory"


@pytest.mark.parametrize("spec", ["table", "delta:/x/table", "delta:/x/y/../table/", "delta:file:///x/table"])
def test_the_table_itself_is_not_apart(spec: str) -> None:
    assert separate_store(SinkOptions.read({**GIVEN, "offsetStore": spec})) is None


def test_a_store_is_kept_open_for_its_application(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_kept", LruCache(MAX_KEPT))
    first = separate_store(SinkOptions.read({**GIVEN, "offsetStore": "delta:/x/offsets"}))
    assert str(first) == "delta:/x/offsets"
    assert separate_store(SinkOptions.read({**GIVEN, "offsetStore": "delta:/x/offsets"})) is first
    group = separate_store(SinkOptions.read({**GIVEN, **SERVERS, "offsetStore": "group:g"}))
    other = separate_store(SinkOptions.read({**GIVEN, **SERVERS, "offsetStore": "group:g", "appId": "other"}))
    assert (str(group), group is other) == ("group:g", False)
    for number in range(MAX_KEPT):
        separate_store(SinkOptions.read({**GIVEN, "offsetStore": f"delta:/x/{number}"}))
    assert len(module._kept) == MAX_KEPT


def test_an_outage_of_a_groups_brokers_is_logged_as_the_tables_format(caplog: pytest.LogCaptureFixture) -> None:
    store = separate_store(SinkOptions.read({**GIVEN, **SERVERS, "offsetStore": "group:away"}))
    assert isinstance(store, GroupOffsetStore)
    assert isinstance(store.group, KafkaGroupOffsets)
    for _ in range(2):
        store.group._client._outage.note_failure("planted", OSError(), 1.0)
    store.group._client._outage.note_answer()
    assert [line.split()[0] for line in caplog.messages] == ["delta_once:", "delta_once:"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offsetStore": "group:g"}, r"offsetStore=group:g: option kafka\.bootstrap\.servers must be specified"),
        (
            {"offsetStore": "group:g", **SERVERS, "kafka.acks": "1"},
            r"delta_once: offsetStore=group:g: unknown option 'kafka\.ac",
        ),
        ({"offsetStore": "table", **SERVERS}, r"kafka\.bootstrap\.servers is for offsetStore=group:<id>.*'table'"),
        (SERVERS, r"kafka\.bootstrap\.servers is for offsetStore=group:<id>"),
        ({"offsetStore": "delta:/x/o", **SERVERS}, "Leave it out, or set it on the source"),
        ({"offsetStore": "delta: "}, "write delta:<path of a table> or group:<id>"),
        ({"offsetStore": "group:"}, "write delta:<path of a table> or group:<id>"),
    ],
)
def test_options_that_cannot_work_are_refused(change: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        SinkOptions.read({**GIVEN, **change})


def test_no_secret_is_shown() -> None:
    sasl = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    login = {"kafka.sasl.username": "u", "kafka.sasl.password": "hush"}
    assert "hush" not in repr(SinkOptions.read({**GIVEN, **SERVERS, **sasl, **login, "offsetStore": "group:g"}))


def test_a_table_of_offsets_holds_no_rows(tmp_path: Path) -> None:
    store = DeltaOffsetStore(Location.parse(str(tmp_path / "offsets")), "app", create_missing=True)
    store.snapshot().commit(Commit(batch(0, one=(0, 5)).record, Writes.OFFSETS))
    again = DeltaOffsetStore(Location.parse(str(tmp_path / "offsets")), "app")
    assert again.read("s", [ONE[1]]) == {ONE[1]: 5}
    table = DeltaTable(tmp_path / "offsets")
    assert (table.version(), table.file_uris()) == (1, [])
    assert "never has rows" in str(table.metadata().description)


def test_two_drivers_may_make_the_table_of_offsets_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Location.parse(str(tmp_path / "offsets"))
    original = TableLog.create

    def overtaken(self: TableLog, table: NewTable) -> bool:
        monkeypatch.setattr(TableLog, "create", original)
        DeltaOffsetStore(place, "app", create_missing=True).snapshot()
        return original(self, table)

    monkeypatch.setattr(TableLog, "create", overtaken)
    assert DeltaOffsetStore(place, "app", create_missing=True).snapshot().version == 0


def test_a_table_of_offsets_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = DeltaOffsetStore(Location.parse(str(tmp_path / "file" / "offsets")), "app", create_missing=True)
    with pytest.raises(OffsetStoreError, match="file/offsets"):
        store.snapshot()


def test_each_batch_is_copied() -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    for number in range(3):
        written = write(table, batch(number, one=(number, number + 1), two=(0, 0)))
        assert copy_offsets(table, copy, written)
    assert [commit.writes for commit in copy.commits] == [Writes.OFFSETS] * 3
    assert [commit.record.ranges for commit in copy.commits][2] == {ONE: OffsetRange(2, 3)}
    assert copy.snapshot().last_batch("q") == 2


def test_a_replay_copies_nothing_twice() -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    written = write(table, batch(0, one=(0, 1)))
    assert copy_offsets(table, copy, written)
    module._complete.clear()
    assert copy_offsets(table, copy, written)
    assert len(copy.commits) == 1


def test_a_copy_that_failed_is_made_good_by_the_next_batch(caplog: pytest.LogCaptureFixture) -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    assert copy_offsets(table, copy, write(table, batch(0, one=(0, 1), two=(0, 5))))
    with caplog.at_level(logging.WARNING):
        assert not copy_offsets(table, Broken(), write(table, batch(1, one=(1, 1), two=(5, 9))))  # type: ignore[arg-type]
    assert "batch 1 of query q (appId app) is written; its offsets could not be copied" in caplog.text
    assert "(planted). The next batch copies them too" in caplog.text
    assert copy_offsets(table, copy, write(table, batch(2, one=(1, 4), two=(9, 9))))
    assert copy.read("s", [ONE[1], TWO[1]]) == {ONE[1]: 4, TWO[1]: 9}
    assert copy.commits[-1].record.ranges == {ONE: OffsetRange(1, 4), TWO: OffsetRange(5, 9)}


def test_a_driver_that_died_before_it_copied_is_made_good_by_the_next() -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    write(table, batch(0, one=(0, 1), two=(0, 5)))
    assert copy_offsets(table, copy, write(table, batch(1, one=(1, 3), two=(5, 5))))
    assert copy.read("s", [ONE[1], TWO[1]]) == {ONE[1]: 3, TWO[1]: 5}


def test_offsets_that_were_set_back_are_copied_as_they_are() -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    assert copy_offsets(table, copy, write(table, batch(0, one=(0, 90))))
    write(table, batch(1, one=(0, 10)))
    module._complete.clear()
    assert copy_offsets(table, copy, batch(2, one=(10, 10)))
    assert copy.read("s", [ONE[1]]) == {ONE[1]: 10}


def test_the_chain_of_copies_has_no_gap_after_one_that_failed() -> None:
    table, copy = MemoryOffsetStore("app"), MemoryOffsetStore("app")
    assert copy_offsets(table, copy, write(table, batch(0, one=(0, 5))))
    assert not copy_offsets(table, Broken(), write(table, batch(1, one=(5, 9))))  # type: ignore[arg-type]
    assert copy_offsets(table, copy, write(table, batch(2, one=(9, 12))))
    assert copy.commits[-1].record.ranges == {ONE: OffsetRange(5, 12)}
