"""The two tables of an exactly-once MERGE as delta-rs sees them; in place of delta-spark's MERGE, a commit like it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock, patch

import pyarrow as pa
import pytest
from delta import exceptions
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake
from deltalake.schema import PrimitiveType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.delta_spark.append import AppendWriter
from sparkonce.connectors.delta_spark.intents import DeltaIntents, intent_from_info, intent_to_info
from sparkonce.connectors.delta_spark.merge import MergeWriter, merging
from sparkonce.connectors.delta_spark.other_rows import OtherRows
from sparkonce.connectors.delta_spark.result import (
    TXN_APP_ID,
    TXN_VERSION,
    USER_METADATA,
    DeltaResult,
    PlainResult,
    session_settings,
)
from sparkonce.connectors.delta_spark.sequence import Intent, Landed, NumberedTable
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery
from sparkonce.exactly_once.errors import OffsetMismatchError
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import CommitConflictError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, Writes
from tests.cases import each_case

KEY = ("s", TopicPartition("t", "id", 0))


class ResultWithoutSpark(DeltaResult):
    """Commits what delta-spark's MERGE would, as far as its log is concerned."""

    def run(self, rows: Any, settings: Mapping[str, str]) -> None:
        table = DeltaTable(self.store.location.text)
        app_id, version = settings.get(TXN_APP_ID), int(settings.get(TXN_VERSION, 0))
        if app_id and (table.transaction_version(app_id) or 0) >= version:
            return
        properties = CommitProperties(
            custom_metadata={"userMetadata": settings[USER_METADATA]},
            app_transactions=[Transaction(app_id, version)] if app_id else None,
        )
        table.create_write_transaction([], "append", table.schema(), commit_properties=properties)


class Tables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        DeltaTable.create(folder / "result", Schema([Field("n", PrimitiveType("long"))]))

    def open(self, app_id: str = "app", *, compares: bool = False) -> NumberedTable:
        """Open both anew, as a driver that starts; one that ``compares`` with other applications."""
        result = DeltaOffsetStore(Location.parse(str(self.folder / "result")), app_id)
        offsets = DeltaOffsetStore(Location.parse(str(self.folder / "offsets")), app_id, create_missing=True)
        without_spark = ResultWithoutSpark(result, "unused", lambda path, rows, settings: None)
        other_rows = OtherRows((result, offsets), False) if compares else None
        return NumberedTable(without_spark, DeltaIntents(offsets), other_rows)


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def batch(batch_id: int, start: int, end: int, attempt: str = "a", query: str = "q", app_id: str = "app") -> Batch:
    return Batch(BatchRecord(app_id, query, batch_id, attempt, {KEY: OffsetRange(start, end)}), stateful=False)


def deliver(table: NumberedTable, incoming: Batch) -> bool:
    delivery = Delivery(table, ORDERS[Guarantee.EXACTLY_ONCE])
    return delivery.finish(incoming, delivery.begin(incoming), ["rows"])


def test_batches_follow_each_other(tables: Tables) -> None:
    for number in range(3):
        assert deliver(tables.open(), batch(number, number, number + 1, f"a{number}"))
    assert not deliver(tables.open(), batch(2, 2, 3, "again"))
    snapshot = tables.open().snapshot()
    assert snapshot.state.sequence == snapshot.offsets.confirmed == 3
    assert snapshot.next_offsets([KEY]) == {KEY: 3}
    assert snapshot.last_batch("q") == 2
    both = Writes.ROWS | Writes.OFFSETS
    seen = [(each.version, each.writes, each.record.attempt_id) for each in snapshot.history()]
    assert seen == [(3, both, "a2"), (2, both, "a1"), (1, both, "a0")]


def test_applications_do_not_meet(tables: Tables) -> None:
    deliver(tables.open(), batch(0, 0, 5))
    deliver(tables.open("b/c"), batch(0, 0, 3, app_id="b/c"))
    deliver(tables.open(), batch(1, 5, 6))
    assert tables.open("b/c").snapshot().state.sequence == 1
    assert tables.open("b/c").snapshot().next_offsets([KEY]) == {KEY: 3}
    assert tables.open().snapshot().next_offsets([KEY]) == {KEY: 6}


def test_rows_of_another_application_are_not_written_again(tables: Tables) -> None:
    deliver(tables.open(compares=True), batch(0, 0, 5))
    with pytest.raises(OffsetMismatchError, match="another appId, 'app', up to offset 5"):
        deliver(tables.open("new", compares=True), batch(0, 0, 5, app_id="new"))
    deliver(tables.open("new", compares=True), batch(0, 5, 9, app_id="new"))
    assert tables.open("new").snapshot().next_offsets([KEY]) == {KEY: 9}


def test_two_first_intents_conflict(tables: Tables) -> None:
    """Whatever they read: the second of them has not seen the first."""
    tables.open("one").snapshot()
    one, two = (tables.open(name, compares=True).snapshot() for name in ("one", "two"))
    both = Writes.ROWS | Writes.OFFSETS
    one.commit(Commit(batch(0, 0, 5, app_id="one").record, both, ("rows",), is_first=True))
    with pytest.raises(CommitConflictError):
        two.commit(Commit(batch(0, 0, 5, app_id="two").record, both, ("rows",), is_first=True))


@pytest.mark.parametrize("log_tells", [True, False])
def test_what_landed_is_confirmed_by_whoever_looks_next(
    tables: Tables, log_tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.open()
    deliver(table, batch(0, 0, 5))
    offsets = table.intents.snapshot()
    abandoned, landing = Intent(2, batch(1, 5, 7, "lost").record), Intent(2, batch(1, 5, 7, "won").record)
    offsets.record(abandoned)
    table.intents.snapshot().record(landing)
    table.result.write("rows", landing)
    if not log_tells:
        monkeypatch.setattr(DeltaResult, "find", lambda *_: None)
    snapshot = tables.open().snapshot()
    assert snapshot.next_offsets([KEY]) == {KEY: 7}
    assert snapshot.offsets.confirmed == 2
    assert snapshot.history(1)[0].record.attempt_id == "won"
    assert snapshot.history(1)[0].version == (2 if log_tells else 5)


def test_a_batch_whose_rows_a_restore_of_the_result_took_out_is_not_passed_over(tables: Tables) -> None:
    for number in range(3):
        deliver(tables.open(), batch(number, number, number + 1, f"a{number}"))
    result = tables.folder / "result"
    write_deltalake(result, pa.table({"n": [1]}), mode="append")
    DeltaTable(result).restore(3)
    assert not deliver(tables.open(), batch(2, 2, 3, "again"))
    DeltaTable(result).restore(2)
    with pytest.raises(OffsetMismatchError, match=r"batch 2 .*version 6 \(RESTORE\) removed its rows and left the off"):
        deliver(tables.open(), batch(2, 2, 3, "again"))


def test_compaction_that_repeats_the_metadata_of_a_merge_is_not_the_merge(tables: Tables) -> None:
    deliver(tables.open(), batch(0, 0, 1))
    table = DeltaTable(tables.folder / "result")
    properties = CommitProperties(custom_metadata={"userMetadata": table.history(1)[0]["userMetadata"]})
    write_deltalake(table, pa.table({"n": [1]}), mode="append")
    write_deltalake(table, pa.table({"n": [2]}), mode="append")
    DeltaTable(tables.folder / "result").optimize.compact(commit_properties=properties)
    DeltaTable(tables.folder / "result").restore(1)
    assert not deliver(tables.open(), batch(0, 0, 1, "again"))


def test_the_merge_with_a_number_is_found(tables: Tables) -> None:
    table = tables.open()
    deliver(table, batch(0, 0, 5))
    deliver(table, batch(1, 5, 6))
    found = table.result.find(1)
    assert found == Landed(Intent(1, batch(0, 0, 5).record), 1)
    assert table.result.find(2, since_version=1) is not None
    assert table.result.find(1, since_version=1) is None
    assert table.result.find(2, since_version=2) is None
    assert table.result.find(3) is None
    assert table.result.find(2, since_version=7) is None, "a result made anew since has lower versions"


def test_only_one_of_two_writers_of_one_picture_gets_to_write(tables: Tables) -> None:
    first, second, third = (tables.open().intents.snapshot() for _ in range(3))
    intent = Intent(1, batch(0, 0, 5).record)
    first.record(intent)
    with pytest.raises(CommitConflictError):
        second.record(intent)
    with pytest.raises(CommitConflictError):
        third.confirm(Landed(intent, 1), move_offsets=True)
    fourth, fifth = (tables.open().intents.snapshot() for _ in range(2))
    fourth.confirm(Landed(intent, 1), move_offsets=False)
    with pytest.raises(CommitConflictError):
        fifth.record(intent)
    after = tables.open().intents.snapshot()
    assert (after.confirmed, after.next_offsets([KEY]), after.history()) == (1, {}, [])
    assert after.intents(1) == [intent]


def test_a_result_made_anew_is_refused(tables: Tables) -> None:
    deliver(tables.open(), batch(0, 0, 5))
    DeltaTable.create(tables.folder / "result", Schema([Field("n", PrimitiveType("long"))]), mode="overwrite")
    assert tables.open().snapshot().state.sequence == 1, "a table that is overwritten keeps its transactions"
    (tables.folder / "result").rename(tables.folder / "moved")
    with pytest.raises(OffsetMismatchError, match="the result was deleted, replaced"):
        tables.open().snapshot()


def test_a_plain_merge_finds_its_own_rows(tables: Tables) -> None:
    table = tables.open()
    assert isinstance(table.result, DeltaResult)
    plain = PlainResult(table.result)
    before = plain.snapshot()
    incoming = batch(0, 0, 5)
    offsets = DeltaOffsetStore(Location.parse(str(tables.folder / "offsets")), "app", create_missing=True)
    assert before.history() == []
    assert (before.last_batch("q"), before.next_offsets([KEY])) == (None, {})
    rows: Any = "rows"
    table.result.run(rows, {USER_METADATA: '{"sparkonce": 1}'})
    table.result.run(rows, {USER_METADATA: "a note of the user's"})
    assert plain.snapshot().history() == []
    assert before.version == 0
    assert plain.snapshot().version == 2
    delivery = Delivery(plain, ORDERS[Guarantee.AT_LEAST_ONCE], offsets)
    assert not delivery.has_landed(incoming.record, 0)


def test_a_plain_merge_numbers_its_history_from_its_own_picture(tables: Tables) -> None:
    """A MERGE of another driver that lands after the picture neither shifts the numbers nor hides a commit."""
    result = tables.open().result
    assert isinstance(result, DeltaResult)

    def merge(attempt: str) -> None:
        info = batch(0, 0, 5, attempt).record.to_commit_info(Writes.ROWS)
        result.run("rows", {USER_METADATA: json.dumps({"sparkonce": info})})  # type: ignore[arg-type]

    merge("mine")
    snapshot = PlainResult(result).snapshot()
    merge("theirs")
    assert [(each.version, each.record.attempt_id) for each in snapshot.history(1)] == [(1, "mine")]


def test_intents_of_one_number_are_found_behind_any_number_of_commits(tables: Tables) -> None:
    table = tables.open()
    deliver(table, batch(0, 0, 5))
    intent = Intent(2, batch(1, 5, 7, "lost").record)
    table.intents.snapshot().record(intent)
    for number in range(3):
        deliver(tables.open("other"), batch(number, number, number + 1, app_id="other"))
    snapshot = table.intents.snapshot()
    assert snapshot.intents(2) == [intent]
    assert [each.record.attempt_id for each in snapshot.intents(1)] == ["a"]
    assert snapshot.intents(3) == []


class Conf:
    """The settings of a session, and what they were while a MERGE ran."""

    def __init__(self, **values: str) -> None:
        self.values = dict(values)
        self.seen: list[dict[str, str]] = []

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        del self.values[name]


def test_a_transaction_of_the_user_would_let_delta_skip_rows(tables: Tables) -> None:
    """Under the guarantees whose writes have no number."""
    written: list[str] = []
    store = DeltaOffsetStore(Location.parse(str(tables.folder / "result")), "app")
    result = PlainResult(DeltaResult(store, "unused", lambda path, rows, settings: written.append(path)))
    conf = Conf(**{TXN_APP_ID: "mine", TXN_VERSION: "0"})
    commit = Commit(batch(0, 0, 5).record, Writes.ROWS, (Mock(DataFrame, sparkSession=Session(conf)),))
    with pytest.raises(
        TableError, match=r"txnAppId is set in the session of the batch: Delta silently skips a write whose"
    ):
        result.snapshot().commit(commit)
    conf.values.clear()
    result.snapshot().commit(commit)
    assert written == ["unused"]


class Session:
    """One session of Spark."""

    def __init__(self, conf: Conf) -> None:
        self.conf = conf


def test_merges_of_one_session_do_not_see_each_others_settings() -> None:
    """A function of foreachBatch may write in threads, and a MERGE has its number from the session."""
    session: Any = Session(Conf())
    entered = threading.Event()

    def another() -> None:
        with session_settings(session, {TXN_VERSION: "2"}):
            entered.set()

    with ThreadPoolExecutor(1) as pool:
        with session_settings(session, {TXN_VERSION: "1"}):
            second = pool.submit(another)
            assert not entered.wait(0.2)
            assert session.conf.values == {TXN_VERSION: "1"}
        second.result()
    assert entered.is_set()
    assert session.conf.values == {}


@each_case("conflict", [name for name in dir(exceptions) if name.endswith("Exception")])
def test_a_conflict_of_delta_spark_is_one_of_ours(conflict: str) -> None:
    conf = Conf(**{USER_METADATA: "the user's"})
    rows = SimpleNamespace(sparkSession=Session(conf))

    def execute() -> None:
        conf.seen.append(dict(conf.values))
        raise getattr(exceptions, conflict)("somebody was quicker")

    store = DeltaOffsetStore(Location.parse("nowhere"), "app")
    result = DeltaResult(store, "file:/nowhere", merging(lambda target, rows: SimpleNamespace(execute=execute)))  # type: ignore[arg-type, return-value]
    intent = Intent(3, batch(0, 0, 5).record)
    with patch("delta.tables.DeltaTable.forPath"), pytest.raises(CommitConflictError, match="somebody was quicker"):
        result.write(rows, intent)  # type: ignore[arg-type]
    assert (conf.seen[0][TXN_APP_ID], conf.seen[0][TXN_VERSION]) == ("sparkonce/app/merge", "3")
    assert '"sequence":3' in conf.seen[0][USER_METADATA]
    assert conf.values == {USER_METADATA: "the user's"}


@pytest.mark.parametrize(
    "info",
    [None, "text", {}, {"sequence": "x"}, {**intent_to_info(Intent(1, batch(0, 0, 1).record), Writes(0)), "ranges": 3}],
)
def test_what_is_no_intent_is_passed_over(info: object) -> None:
    assert intent_from_info(info, "app") is None


def test_intents_are_read_back() -> None:
    intent = Intent(7, batch(3, 10, 20).record)
    assert intent_from_info(intent_to_info(intent, Writes.ROWS), "app") == intent
    assert intent_from_info(intent_to_info(intent, Writes.ROWS), "other") is None


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"keys": ["customerid"]}, "keys: no column 'customerid'; the rows have customer_id, amount"),
        ({"keys": ["CUSTOMER_ID"], "newest_by": "at"}, "newest_by: no column 'at'; the rows have customer_id, amount"),
    ],
)
def test_a_column_that_the_rows_lack_is_named_before_a_table_is_made(
    tmp_path: Path, arguments: dict[str, Any], complaint: str
) -> None:
    writer = MergeWriter(str(tmp_path / "result"), "app", str(tmp_path / "checkpoint"), **arguments)
    with pytest.raises(ValueError, match=complaint):
        writer(SimpleNamespace(columns=["customer_id", "amount"]), 0)  # type: ignore[arg-type]
    assert not (tmp_path / "result").exists()


@pytest.mark.parametrize("offsets", ["result", "result/", "link"])
def test_offsets_do_not_go_into_the_result(tables: Tables, offsets: str) -> None:
    """What was written and what is confirmed would be one number, and no offset would ever move."""
    (tables.folder / "link").symlink_to(tables.folder / "result")
    with pytest.raises(ValueError, match="is the result itself, and its offsets need a table of their own"):
        AppendWriter(str(tables.folder / "result"), "app", "checkpoint", offsets=f"{tables.folder}/{offsets}")
    assert DeltaTable(tables.folder / "result").version() == 0


LINKAGE = "An error occurred: java.lang."


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "NoSuchMethodError: 'void org.apache.spark.sql.LogicalRDD'\n\tat org.x",
            r"another version of Spark than 4\.3\.0 \(NoSuchMethodError: 'void org.*RDD'\).*-spark_4\.3_2",
        ),
        ("NoClassDefFoundError: com/amazonaws/Client\n\tat org.apache.spark.x", "NoClassDefFoundError: com/amazonaws"),
    ],
)
def test_a_delta_spark_for_another_spark_is_named(tmp_path: Path, said: str, told: str) -> None:
    """As delta-spark 4.4 fails on Spark 4.3, above a hundred lines of the JVM's calls; a jar of others is not its."""

    def merge(target: Any, rows: Any) -> Any:
        raise PySparkException(LINKAGE + said)

    result = DeltaResult(DeltaOffsetStore(Location.parse(str(tmp_path)), "app"), str(tmp_path), merging(merge))
    rows: Any = SimpleNamespace(sparkSession=SimpleNamespace(version="4.3.0", conf=Conf()))
    kind = TableError if "apache.spark.sql" in said else PySparkException
    with patch("delta.tables.DeltaTable.forPath"), pytest.raises(kind, match=told):
        result.run(rows, {})


def test_without_delta_spark_nothing_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("delta", "delta.tables"):
        monkeypatch.setitem(sys.modules, name, None)
    writer = AppendWriter(str(tmp_path / "table"), app_id="a", checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(
        ModuleNotFoundError, match=r"pip install 'sparkonce\[delta-spark\]' \(with PySpark 4\.2\), and its jar"
    ):
        writer(cast(Any, SimpleNamespace()), 0)
    assert list(tmp_path.iterdir()) == []
