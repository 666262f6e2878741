"""Tables that hold rows of ours and no offsets: refused by source and sink, told by the audit, mended by `copy`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.administration import ChangeKind
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.record import Writes
from tests.unit.audit.logs import Table
from tests.unit.recovery.clones import cut_log, shallow_clone
from tests.unit.recovery.recovery_support import APP, QUERY, SOURCE, Pipeline, partition
from tests.unit.sink.query_by_hand import TP, Query


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Versions 1 and 2: batches of ten records."""
    pipeline = Pipeline.create(tmp_path / "table")
    pipeline.commit(0, {0: (0, 10)})
    pipeline.commit(1, {0: (10, 20)})
    return pipeline


@pytest.fixture
def clone(pipeline: Pipeline, tmp_path: Path) -> Pipeline:
    return Pipeline(shallow_clone(pipeline.path, tmp_path / "clone"))


def offsets(*words: object) -> int:
    return main(["offsets", *map(str, words)])


def audit(pipeline: Pipeline, *words: object) -> int:
    return main(["audit", str(pipeline.path), *map(str, words)])


def start(pipeline: Pipeline) -> dict[TopicPartition, int]:
    """Do what a source with ``offsetStore`` does at its start."""
    return dict(DeltaOffsetStore(Location.parse(str(pipeline.path)), APP).read(SOURCE, [partition()]))


def assert_refused(pipeline: Pipeline, says: str = "sparkonce offsets copy") -> None:
    with pytest.raises(OffsetStoreError, match=says):
        start(pipeline)


def test_a_source_does_not_begin_anew_from_a_clone(clone: Pipeline, pipeline: Pipeline) -> None:
    with pytest.raises(OffsetStoreError) as error:
        start(clone)
    assert f"version 0 is a CLONE of version 2 of {pipeline.path}" in str(error.value)
    assert f"sparkonce offsets copy {clone.path}" in str(error.value)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_sink_writes_nothing_into_a_clone(tmp_path: Path, guarantee: str) -> None:
    first = Query(tmp_path, guarantee=guarantee)
    first.write(0, [{"v": 1}])
    shallow_clone(first.table, tmp_path / "clone")
    second = Query(tmp_path, "q2", guarantee, path=str(tmp_path / "clone"))
    second.log(0, 10)
    with pytest.raises(OffsetStoreError, match="sparkonce offsets copy"):
        second.tasks()
    assert DeltaTable(tmp_path / "clone").version() == 0


def test_no_column_is_added_to_a_table_that_is_refused(tmp_path: Path) -> None:
    first = Query(tmp_path)
    first.write(0, [{"v": 1}])
    shallow_clone(first.table, tmp_path / "clone")
    wider = first.schema.fromJson(json.loads(first.schema.json())).add("w", "string")
    second = Query(tmp_path, "q2", schema=wider, path=str(tmp_path / "clone"), mergeSchema="true")
    second.log(0, 10)
    with pytest.raises(OffsetStoreError, match="sparkonce offsets copy"):
        second.tasks()
    assert DeltaTable(tmp_path / "clone").version() == 0


def test_copy_takes_the_offsets_over(clone: Pipeline, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.commit(2, {0: (20, 30)})  # is not in the clone
    assert offsets("copy", clone.path) == 0
    shown = capsys.readouterr().out
    assert f"from version 2 of {pipeline.path}" in shown
    assert "not stored -> 20" in shown
    assert f"query {QUERY} (appId orders): last batch none -> 1" in shown
    assert clone.version == 0
    assert offsets("copy", clone.path, "--apply", "--if-version", 0) == 0
    assert clone.offsets() == {0: 20}
    assert start(clone) == {partition(): 20}
    (entry, _) = clone.opened().entries()
    assert entry.change is not None
    assert entry.change.kind is ChangeKind.COPY
    assert entry.name == "offsets copied by hand"
    clone.commit(2, {0: (20, 25)}, query_id="new")
    assert audit(clone, "--coordinates", "p,x") == 2  # there is no column p
    assert audit(clone) == 0
    told = capsys.readouterr().out
    assert "verdict=proven" in told
    assert "[cloned]" in told
    assert offsets("copy", clone.path) == 1
    assert "holds offsets of appId orders already" in capsys.readouterr().err


def test_copy_of_one_application_from_a_table_that_has_moved(
    clone: Pipeline, pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Pipeline(pipeline.path, "other")
    other.commit(0, {0: (0, 7)})
    moved = pipeline.path.with_name("moved")
    shutil.copytree(pipeline.path, moved)
    shutil.rmtree(pipeline.path)
    assert_refused(clone)
    assert offsets("copy", clone.path) == 1
    assert "name it with --from" in capsys.readouterr().err
    assert offsets("copy", clone.path, "--from", moved, "--app-id", "other") == 1  # of version 2, which has none
    assert offsets("copy", clone.path, "--from", moved, "--from-version", 3, "--app-id", "other", "--apply") == 0
    assert Pipeline(clone.path, "other").offsets() == {0: 7}


def test_a_clone_of_a_clone(clone: Pipeline, tmp_path: Path) -> None:
    again = Pipeline(shallow_clone(clone.path, tmp_path / "again"))
    assert_refused(again)
    assert offsets("copy", again.path, "--apply") == 0
    assert again.offsets() == {0: 20}
    assert_refused(clone)


def test_a_clone_of_rows_of_others_is_none_of_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_deltalake(tmp_path / "others", pa.table({"x": [1, 2]}))
    clone = Pipeline(shallow_clone(tmp_path / "others", tmp_path / "clone"))
    assert start(clone) == {}
    clone.commit(0, {0: (0, 10)})
    assert start(clone) == {partition(): 10}
    assert audit(clone) == 0
    assert offsets("copy", shallow_clone(tmp_path / "others", tmp_path / "second")) == 1
    assert "holds no offsets" in capsys.readouterr().err


def test_a_copy_of_the_folder_keeps_its_offsets(pipeline: Pipeline, tmp_path: Path) -> None:
    shutil.copytree(pipeline.path, tmp_path / "copy")
    assert start(Pipeline(tmp_path / "copy")) == {partition(): 20}


def test_a_clone_is_known_by_its_files_once_its_log_is_cut(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    clone = Pipeline(shallow_clone(query.table, tmp_path / "clone"))
    cut_log(clone.path)
    assert_refused(clone, "elsewhere")
    assert audit(clone) == 1


def test_files_of_ours_that_were_converted_to_a_table(tmp_path: Path) -> None:
    query = Query(tmp_path)
    query.write(0, [{"v": 1}])
    shutil.rmtree(query.table / "_delta_log")
    write_deltalake(tmp_path / "empty", pa.table({"v": pa.array([], pa.int64())}))
    log = query.table / "_delta_log" / f"{0:020d}.json"
    log.parent.mkdir()
    made = (tmp_path / "empty/_delta_log" / log.name).read_text().splitlines()
    kept = [line for line in made if "commitInfo" not in line and '{"add"' not in line]
    (file,) = query.table.glob("*.parquet")
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 0}
    lines = [{"commitInfo": {"operation": "CONVERT"}}, {"add": {**add, "dataChange": True}}]
    log.write_text("\n".join([*map(json.dumps, lines), *kept]))
    assert_refused(Pipeline(query.table), "sparkonce offsets set")


def test_a_result_whose_offsets_live_elsewhere_is_no_store(tmp_path: Path) -> None:
    pipeline = Pipeline.create(tmp_path / "table")
    pipeline.commit(0, {0: (0, 10)}, Writes.ROWS)
    assert start(pipeline) == {}  # a crash between the two commits of at-least-once looks so
    pipeline.commit(1, {0: (10, 20)}, Writes.ROWS)
    assert_refused(pipeline, "offsetStore")
    other = DeltaOffsetStore(Location.parse(str(pipeline.path)), "another application")
    assert other.read(SOURCE, [partition()]) == {}  # whose rows have nothing to do with these
    words = ("--app-id", APP, "--source", SOURCE, "--topic", "shop.orders", "--partition", 0, "--offset", 20)
    assert offsets("set", pipeline.path, *words, "--topic-id", partition().topic_id, "--apply") == 0
    assert start(pipeline) == {partition(): 20}


def test_at_least_once_goes_on_after_a_crash_between_its_first_two_commits(tmp_path: Path) -> None:
    query = Query(tmp_path, guarantee="at-least-once")
    query.write(0, [{"v": 1}])
    (query.table / "_delta_log" / f"{2:020d}.json").unlink()
    query.write(0, [{"v": 1}])
    assert query.rows() == 2


@pytest.mark.parametrize("source_is_there", [True, False])
def test_a_clone_that_was_doubled_is_not_proven(
    clone: Pipeline, pipeline: Pipeline, source_is_there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    clone.commit(0, {0: (0, 20)}, query_id="again")  # as a version without the check wrote
    if not source_is_there:
        (pipeline.path / "_delta_log").rename(pipeline.path / "moved")
    assert audit(clone) == 1
    told = capsys.readouterr().out
    if source_is_there:
        assert "overlap [0, 20): the source of the clone (version 2 of" in told
        assert "verdict=broken" in told
    else:
        assert "cannot be read" in told
        assert "verdict=unproven" in told


def test_a_clone_without_offsets_is_told(clone: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(clone) == 1
    told = capsys.readouterr().out
    assert "[offsets-not-copied]" in told
    assert "sparkonce offsets copy" in told


def test_rows_of_a_clone_are_counted_where_they_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table.create(tmp_path / "table")
    table.batch()
    table.rows([(number, offset) for number in (0, 1) for offset in range(10)])
    copy = Pipeline(shallow_clone(table.path, tmp_path / "clone"))
    assert offsets("copy", copy.path, "--apply") == 0
    twin = Table(copy.path, 1, dict(table.ends))
    twin.batch()
    twin.rows([(number, offset) for number in (0, 1) for offset in range(10, 20)])
    assert audit(copy, "--coordinates", "partition,offset", "--expect-all-rows") == 0
    twin.rows([(1, 13)])
    capsys.readouterr()
    assert audit(copy, "--coordinates", "partition,offset", "--expect-all-rows") == 1
    assert "1 row too many, at offsets [13, 14)" in capsys.readouterr().out


def test_the_query_goes_on_in_the_clone(tmp_path: Path) -> None:
    first = Query(tmp_path)
    first.write(0, [{"v": 1}])
    shallow_clone(first.table, tmp_path / "clone")
    assert offsets("copy", tmp_path / "clone", "--apply") == 0
    second = Query(tmp_path, "q2", path=str(tmp_path / "clone"))
    second.table = tmp_path / "clone"
    second.write(0, [{"v": 1}])  # the same records: they are there
    second.write(1, [{"v": 2}])
    assert DeltaTable(second.table).transaction_version(f"sparkonce/app/offset/kafka/{TP.topic_id}/0") == 20


def test_rows_whose_offsets_are_elsewhere_are_not_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At-least-once with a store of its own: its rows would leave the table, and its records not be read again."""
    ours = Query(tmp_path)
    store = f"delta:{tmp_path / 'store'}"
    other = Query(tmp_path, "q2", "at-least-once", appId="other", offsetStore=store, coveredTwice="true")
    ours.write(0, [{"v": 1}])
    other.write(0, [{"v": 100}])
    version = DeltaTable(ours.table).version()
    ours.write(1, [{"v": 2}])
    other.write(1, [{"v": 200}])
    told = ["rewind", ours.table, "--app-id", "app", "--restore", "--apply", "--to-version"]
    assert offsets(*told, version) == 1
    assert "has rows of appId other, no offsets of which are in this table" in capsys.readouterr().err
    assert {row["v"] for row in ours.read("v")} == {1, 2, 100, 200}
    DeltaTable(ours.table).restore(version)  # by hand, as the message says
    ours.write(2, [{"v": 3}])
    assert offsets(*told, DeltaTable(ours.table).version() - 1) == 0, "what is taken back already is not in the way"
