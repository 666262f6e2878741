"""From a row to its record and back, on tables that our sink wrote: what is known, and above all what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import types as t

from sparkonce.jobs.ui.delta import tracing
from sparkonce.jobs.ui.delta.proof import Level, Statement, prove
from sparkonce.jobs.ui.delta.ranges import Covering, RangeIndex, Restore
from sparkonce.jobs.ui.delta.rows import Condition, ConditionError, UnsearchableError
from sparkonce.jobs.ui.delta.tables import TableWatch, TableWatches
from sparkonce.jobs.ui.delta.tracing import SourceRecord, trace_record, trace_rows
from sparkonce.offset_store.administration import ChangeKind, ManualChange, Move
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.offsets import Position, SourceOffset
from sparkonce.offset_store.record import COMMIT_INFO_KEY, Writes
from sparkonce.offset_store.txn_ids import OffsetTxn
from tests.cases import each_case
from tests.unit.audit.logs import APP, TOPIC, TOPIC_ID, Table, key, partition, record
from tests.unit.sink.query_by_hand import TP, Query

SCHEMA = t.StructType(
    [
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("city", t.StringType()),
    ]
)


def query_with_columns(root: Path, name: str = "q", batches: int = 3, **options: Any) -> Query:
    """A query of ten records a batch, each of which gives a row with its coordinates."""
    query = Query(root, name, schema=SCHEMA, **options)
    for batch in range(batches):
        rows = [{"partition": 0, "offset": 10 * batch + each, "city": f"c{each}"} for each in range(10)]
        query.write(batch, rows)
    return query


def watch_of(path: Path) -> TableWatch:
    watch = TableWatches({}).at(str(path))
    watch.look()
    return watch


def where(text: str) -> list[Condition]:
    return [Condition(*each.split(" ", 2)) for each in text.split(" and ")]


def levels(statements: tuple[Statement, ...]) -> list[Level]:
    return [each.level for each in statements]


def test_a_row_is_of_one_record_batch_and_commit(tmp_path: Path) -> None:
    watch = watch_of(query_with_columns(tmp_path).table)
    found, (trace,) = trace_rows(watch, where("offset = 17"))
    assert found.is_whole
    assert found.ruled_out == 2
    assert trace.row.values == {"partition": 0, "offset": 17, "city": "c7"}
    assert trace.record == SourceRecord("topic", 0, 17)
    assert trace.batch is not None
    assert trace.batch.batch is not None
    assert (trace.batch.version, trace.batch.batch.record.batch_id) == (2, 1)
    (proof,) = trace.proofs
    assert proof.level is Level.PROVEN
    assert "version 2 holds the rows and stores the offsets" in proof.statements[0].text
    assert "since the table was made" in proof.statements[0].text
    assert levels(trace.statements) == [Level.KNOWN] * 3
    assert "one row" in trace.statements[-1].text


def test_without_columns_a_row_is_of_a_batch(tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch in range(2):
        query.write(batch, [{"v": batch}])
    watch = watch_of(query.table)
    _, (trace,) = trace_rows(watch, where("v = 1"))
    assert trace.record is None
    assert trace.batch is not None
    assert trace.batch.version == 2
    assert [(proof.start, proof.end, proof.level) for proof in trace.proofs] == [(10, 20, Level.PROVEN)]
    assert trace.statements[-1].level is Level.UNKNOWN
    assert "one of 10 offsets" in trace.statements[-1].text


def test_a_record_leads_to_its_row(tmp_path: Path) -> None:
    watch = watch_of(query_with_columns(tmp_path).table)
    trace = trace_record(watch, "topic", 0, 25)
    assert [proof.level for proof in trace.proofs] == [Level.PROVEN]
    assert [each.row.values["city"] for each in trace.rows] == ["c5"]
    assert trace.rows[0].record == SourceRecord("topic", 0, 25)
    assert trace.files == ()
    assert trace_record(watch, "id", 0, 25).proofs == trace.proofs


def test_a_record_without_columns_leads_to_the_files_of_its_batch(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}, {"v": 2}])
    trace = trace_record(watch_of(query.table), "topic", 0, 3)
    assert trace.rows == ()
    assert [(each.version, each.rows) for each in trace.files] == [(1, 2)]
    assert levels(trace.statements) == [Level.UNKNOWN]


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "words"),
    [
        ("topic", 0, 30, "Not read yet: the next offset is 30"),
        ("other", 0, 3, "No application has stored offsets of this partition"),
        ("topic", 1, 3, "No application has stored offsets of this partition"),
    ],
)
def test_why_no_commit_covers_a_record(tmp_path: Path, topic: str, partition: int, offset: int, words: str) -> None:
    trace = trace_record(watch_of(query_with_columns(tmp_path).table), topic, partition, offset)
    assert trace.proofs == ()
    assert levels(trace.statements) == [Level.KNOWN if trace.is_elsewhere else Level.UNKNOWN]
    assert trace.is_elsewhere == ((topic, partition) != ("topic", 0))
    assert words in trace.statements[0].text


def test_nothing_is_proven_while_the_log_is_read(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path)
    watch = TableWatches({}).at(str(query.table))
    watch.followed.budget_s = 0.0  # one commit at each look
    watch.look()
    watch.look()
    (owner,) = watch.followed.reading().ranges.owners()
    reading = prove(watch, owner, 0, 1)
    assert reading.level is Level.UNKNOWN
    assert "still being read: 3 of 4 commits" in reading.statements[0].text
    assert prove(watch, owner, 0, 1).level is Level.PROVEN


def test_columns_that_only_look_like_coordinates_are_not_believed(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=SCHEMA)
    query.write(0, [{"partition": 0, "offset": 7_000, "city": "x"}])
    query.write(1, [{"partition": 0, "offset": 3, "city": "y"}])
    watch = watch_of(query.table)
    _, (outside,) = trace_rows(watch, where("city = x"))
    assert outside.record is None
    assert outside.batch is not None
    assert Level.UNKNOWN in levels(outside.statements)
    assert outside.level is Level.UNKNOWN, "its batch is proven, and the row is not of it by its columns"
    _, (elsewhere,) = trace_rows(watch, where("city = y"))
    assert elsewhere.record is None
    assert elsewhere.batch is not None
    assert elsewhere.batch.version == 2
    assert Level.CONTRADICTED in levels(elsewhere.statements)
    assert elsewhere.level is Level.UNKNOWN


def test_a_row_that_is_there_twice_is_not_said_to_be_written_once(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=SCHEMA)
    query.write(0, [{"partition": 0, "offset": at, "city": "x"} for at in (3, 4, 4)])
    watch = watch_of(query.table)
    _, (once, *twice) = trace_rows(watch, where("city = x"))
    assert [each.level for each in (once, *twice)] == [Level.PROVEN, Level.UNKNOWN, Level.UNKNOWN]


def test_nothing_is_proven_of_a_batch_of_which_only_some_partitions_were_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path)
    query.log(0, 10, partitions=2)
    query.commit(0, query.tasks(rows=[{"v": 1}]))
    for most, level in ((2, Level.PROVEN), (1, Level.UNKNOWN)):
        monkeypatch.setattr(tracing, "MAX_RANGES", most)
        _, (trace,) = trace_rows(watch_of(query.table), where("v = 1"))
        assert trace.level is level


def test_two_writes_of_one_attempt_are_one(tmp_path: Path) -> None:
    watch = watch_of(query_with_columns(tmp_path, guarantee="at-least-once", batches=2).table)
    (proof,) = trace_record(watch, "topic", 0, 13).proofs
    assert proof.level is Level.PROVEN
    assert "version 3 holds the rows, and version 4 of the same attempt stores the offsets" in proof.statements[0].text


def test_two_commits_with_the_rows_of_one_record_contradict_it(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.batch(partitions=(0,), writes=Writes.ROWS)
    table.ends.clear()
    table.batch(partitions=(0,), batch_id=0, writes=Writes.ROWS)
    table.ends.clear()
    table.batch(partitions=(0,), batch_id=0, writes=Writes.OFFSETS)
    watch = watch_of(table.path)
    proof = prove(watch, (APP, key(0)), 3, 4)
    assert proof.level is Level.CONTRADICTED
    assert "versions 1 and 2" in proof.statements[0].text


def test_offsets_without_rows_and_rows_without_offsets_are_unknown(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.batch(partitions=(0,), writes=Writes.OFFSETS)
    table.batch(partitions=(1,), writes=Writes.ROWS)
    watch = watch_of(table.path)
    lost, again = prove(watch, (APP, key(0)), 3, 4), prove(watch, (APP, key(1)), 3, 4)
    assert (lost.level, again.level) == (Level.UNKNOWN, Level.UNKNOWN)
    assert "no kept commit of this table holds their rows" in lost.statements[0].text
    assert "no kept commit of this table stores their offsets" in again.statements[0].text


def test_an_overlap_anywhere_keeps_everything_from_being_proven(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.batch()
    table.batch(partitions=(0,), skip=-5)
    watch = watch_of(table.path)
    assert prove(watch, (APP, key(0)), 7, 8).level is Level.CONTRADICTED
    other = prove(watch, (APP, key(1)), 7, 8)
    assert other.level is Level.UNKNOWN
    assert "the audit of this table found what is wrong" in other.statements[0].text


def test_merged_files_lead_to_all_batches_or_by_columns_to_one(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path / "with", batches=3)
    DeltaTable(query.table).optimize.compact()
    _, (trace,) = trace_rows(watch_of(query.table), where("offset = 17"))
    assert trace.added_by is not None
    assert trace.added_by.name == "OPTIMIZE"
    assert trace.record == SourceRecord("topic", 0, 17)
    assert [each.version for each in trace.batches] == [2]
    assert trace.proofs[0].level is Level.PROVEN

    plain = Query(tmp_path / "without")
    for batch in range(3):
        plain.write(batch, [{"v": batch}])
    DeltaTable(plain.table).optimize.compact()
    _, (trace,) = trace_rows(watch_of(plain.table), where("v = 1"))
    assert [each.version for each in trace.batches] == [1, 2, 3]
    assert trace.proofs == ()
    assert trace.record is None


def test_rows_of_others_have_no_record(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    schema = pa.schema(DeltaTable(query.table).schema().to_arrow())
    row = pa.Table.from_pylist([{"partition": 0, "offset": 4, "city": "foreign"}], schema=schema)
    write_deltalake(query.table, row, mode="append")
    watch = watch_of(query.table)
    _, (trace,) = trace_rows(watch, where("city = foreign"))
    assert (trace.record, trace.batches, trace.proofs) == (None, (), ())
    assert "has no record of offsets" in trace.statements[0].text
    found = trace_record(watch, "topic", 0, 4)
    assert "2 rows with its partition and offset" in found.statements[0].text


def test_removed_rows_leave_the_proof_of_what_was_written(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    DeltaTable(query.table).delete("offset = 4")
    watch = watch_of(query.table)
    found = trace_record(watch, "topic", 0, 4)
    assert found.rows == ()
    (proof,) = found.proofs
    assert levels(proof.statements) == [Level.PROVEN, Level.UNKNOWN]
    assert "whether the rows are still there" in proof.statements[1].text
    assert "no row" in found.statements[0].text
    _, (kept,) = trace_rows(watch, where("offset = 5"))
    assert kept.record is None
    assert "rewrote its file" in kept.statements[0].text


def test_a_log_that_was_cleaned_up_says_since_when(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.batches(3)
    table.clean_up_log()
    table.batch(partitions=(0,))
    watch = watch_of(table.path)
    assert "what older ones did is not examined" in prove(watch, (APP, key(0)), 35, 36).statements[0].text
    old = trace_record(watch, TOPIC, 0, 5)
    assert old.proofs == ()
    assert "before the first that is kept" in old.statements[0].text


def test_files_that_nobody_can_read_are_an_error(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    watch = watch_of(query.table)
    for file in query.table.glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match="cannot read"):
        trace_rows(watch, where("offset = 4"))


@pytest.mark.parametrize(
    ("condition", "words"),
    [("none = 1", "there is no column 'none'"), ("offset = x", "'x' is no value"), ("offset ~ 1", "is none of")],
)
def test_conditions_that_do_not_fit(tmp_path: Path, condition: str, words: str) -> None:
    watch = watch_of(query_with_columns(tmp_path, batches=1).table)
    with pytest.raises(ConditionError, match=words):
        trace_rows(watch, where(condition))


@pytest.mark.parametrize(
    ("condition", "cities"),
    [
        ("offset < 2", ["c0", "c1"]),
        ("offset >= 8", ["c8", "c9"]),
        ("city = c3", ["c3"]),
        ("city > c7 and offset != 9", ["c8"]),
        ("partition is null", []),
    ],
)
def test_conditions(tmp_path: Path, condition: str, cities: list[str]) -> None:
    watch = watch_of(query_with_columns(tmp_path, batches=1).table)
    conditions = [Condition("partition", "is null")] if "null" in condition else where(condition)
    _, traces = trace_rows(watch, conditions)
    assert [each.row.values["city"] for each in traces] == cities


def test_rows_of_partitions_whose_values_need_escapes(tmp_path: Path) -> None:
    query = Query(tmp_path, schema=SCHEMA, partitionBy="city")
    query.write(0, [{"partition": 0, "offset": 1, "city": "a b/c=%"}, {"partition": 0, "offset": 2, "city": "d"}])
    watch = watch_of(query.table)
    found, (trace,) = trace_rows(watch, where("offset = 1"))
    assert trace.record == SourceRecord("topic", 0, 1)
    found, (trace,) = trace_rows(watch, [Condition("city", "=", "a b/c=%")])
    assert found.ruled_out == 1
    assert trace.batch is not None


def test_files_that_do_not_show_the_rows_are_not_searched(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=1)
    log = query.table / "_delta_log" / f"{0:020d}.json"
    text = log.read_text()
    log.write_text(text.replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    with pytest.raises(UnsearchableError, match="columnMapping"):
        trace_rows(watch_of(query.table), where("offset = 4"))


def test_offsets_that_were_rewound_by_hand_contradict_what_was_written_twice(tmp_path: Path) -> None:
    query = query_with_columns(tmp_path, batches=2)
    location = Location.parse(str(query.table))
    move = Move(OffsetTxn("app", "kafka", TP._replace(topic="")), 20, 10)
    snapshot = DeltaOffsetStore(location, "app").snapshot()
    change = ManualChange(ChangeKind.REWIND, (move,))
    snapshot.write(Proposal(change.transactions(), {COMMIT_INFO_KEY: change.to_commit_info()}))
    again = Query(tmp_path, "again", schema=SCHEMA)
    line = SourceOffset("kafka", {TP: Position(10, 20)}).to_json()
    (again.checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{line}")
    again.commit(0, again.tasks(rows=[{"partition": 0, "offset": 12, "city": "again"}]))
    watch = watch_of(query.table)
    trace = trace_record(watch, "topic", 0, 12)
    (proof,) = trace.proofs
    assert proof.level is Level.CONTRADICTED
    assert "2 rows with its partition and offset" in trace.statements[0].text
    assert prove(watch, proof.owner, 3, 4).level is Level.PROVEN


@pytest.mark.parametrize(
    ("app_id", "source", "topic_id", "is_same"),
    [
        (APP, "second", TOPIC_ID, True),
        ("other", "default", "", True),  # by Spark's own connector, say
        ("other", "default", "another topic of this name", False),
    ],
)
def test_what_another_application_has_written_too_is_not_proven_to_be_there_once(
    tmp_path: Path, app_id: str, source: str, topic_id: str, is_same: bool
) -> None:
    table = Table.create(tmp_path / "table")
    table.commit(record(0, {key(0): (0, 10)}))
    table.commit(record(1, {key(0): (10, 20)}))
    table.commit(record(2, {(source, partition(0, topic_id)): (0, 10)}, app_id=app_id))
    watch = watch_of(table.path)
    both, own = (prove(watch, (APP, key(0)), *extent) for extent in ((0, 10), (10, 20)))
    assert own.level is Level.PROVEN
    assert both.level is (Level.KNOWN if is_same else Level.PROVEN)
    if is_same:
        assert f"by appId {app_id}, source {source} as well: versions 3" in both.statements[0].text


def test_nothing_is_proven_of_a_table_that_two_applications_have_written_by_topic_id(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.commit(record(0, {key(0): (0, 10)}))
    table.commit(record(1, {key(0): (10, 20)}))
    table.commit(record(2, {("default", partition(0, TOPIC_ID)): (0, 10)}, app_id="other"))
    for extent in ((0, 10), (10, 20)):
        proof = prove(watch_of(table.path), (APP, key(0)), *extent)
        assert proof.level is Level.UNKNOWN
        assert "coveredTwice" in proof.statements[0].text


@pytest.mark.parametrize("path", ["../elsewhere/secret.parquet", "%2e%2e/elsewhere/secret.parquet"])
def test_files_outside_the_table_are_not_read_and_hide_no_others(tmp_path: Path, path: str) -> None:
    query = query_with_columns(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    secret = pa.table({"partition": [0], "offset": [17], "city": ["secret"]})
    pq.write_table(secret, tmp_path / "elsewhere" / "secret.parquet")
    add = {"path": path, "size": 1, "modificationTime": 2**42, "dataChange": True, "partitionValues": {}}
    (query.table / "_delta_log" / f"{4:020d}.json").write_text(json.dumps({"add": add}))
    found, _ = trace_rows(watch_of(query.table), where("offset = 17"))
    assert [row.values["city"] for row in found.rows] == ["c7"]
    assert (found.left, found.is_whole) == (1, False)


@each_case(
    ("restores", "live"),
    [
        (((4, 0),), []),
        (((4, 0), (5, 3)), [1, 2, 3]),
        (((4, 0), (5, 2)), [1, 2]),
        (((4, 2), (5, 3), (6, 1)), [1]),
        (((2, 0), (4, 1)), [1]),  # instead of version 1 it was 3, which the second takes back
        (((2, 0), (4, 1), (5, 3)), [3]),
        (((4, None),), []),
        (((4, None), (5, 3)), [1, 2, 3]),
    ],
)
def test_what_a_restore_took_another_brings_back(restores: tuple[tuple[int, int | None], ...], live: list[int]) -> None:
    index = RangeIndex(restores=[Restore(version, to, with_offsets=True) for version, to in restores])
    taken = {version for version, _ in restores}
    coverings = [
        Covering(version, APP, "default", TOPIC, TOPIC_ID, 0, 0, 10, Writes.ROWS | Writes.OFFSETS)
        for version in range(1, 4)
        if version not in taken
    ]
    assert [each.version for each in coverings if not index.is_undone(each)] == live
