"""A restore of ours: which files, metadata, protocol and row ids a table has after it, and when it is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from sparkonce.exactly_once.recovery import plan_rewind
from sparkonce.offset_store.administration import OffsetsTable
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Protocol
from sparkonce.offset_store.log.checkpoint_rows import file_key
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.table_log import TableLog
from tests.unit.recovery.recovery_support import Pipeline
from tests.unit.sink.query_by_hand import delete_row

ROWS = {"rowTracking", "domainMetadata"}


def features(*names: str, readers: tuple[str, ...] = ()) -> Mapping[str, Any]:
    named = {"writerFeatures": [*names, *readers]} | ({"readerFeatures": list(readers)} if readers else {})
    return {"protocol": {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7, **named}}


class Table:
    """A pipeline's table, to which another writer commits by hand, too."""

    def __init__(self, path: Path) -> None:
        self.pipeline = Pipeline.create(path)
        self.log = TableLog(Location.parse(str(path)))

    def commit(self, *actions: Mapping[str, Any]) -> None:
        version = self.log.state().version + 1
        text = "\n".join(json.dumps(action) for action in actions)
        (self.pipeline.path / "_delta_log" / f"{version:020d}.json").write_text(f"{text}\n")

    def metadata(self, **configuration: str) -> Mapping[str, Any]:
        named = {name.replace("__", "."): value for name, value in configuration.items()}
        return {"metaData": {**self.log.state().metadata.action, "configuration": named}}

    def restore(self, version: int) -> Mapping[str, list[Mapping[str, Any]]]:
        opened = OffsetsTable.open(self.log.location)
        change = plan_rewind(opened.stored(), opened.stored(version), opened.entries(), app_id=None, restore=True)
        kinds = ("commitInfo", "add", "remove", "metaData", "protocol", "domainMetadata", "txn")
        return self.log.reader.actions(opened.apply(change), kinds)

    def files(self, version: int) -> set[tuple[str, str]]:
        return set(active_files(self.log.reader, version))


@pytest.fixture
def table(tmp_path: Path) -> Table:
    found = Table(tmp_path / "table")
    found.pipeline.commit(0, {0: (0, 10)})
    return found


def test_files_are_told_by_path_and_deletion_vector(table: Table) -> None:
    """The same file without its vector is another one: it is removed, and added, in one commit."""
    table.commit(features(readers=("deletionVectors",)))
    table.pipeline.commit(1, {0: (10, 20)})
    delete_row(table.pipeline.path, 3)
    before = table.files(3)
    found = table.restore(3)
    assert table.files(table.log.state().version) == before
    assert [file_key(each)[0] for each in found["add"]] == [file_key(each)[0] for each in found["remove"]]
    assert not any("deletionVector" in each for each in found["add"])
    rows = QueryBuilder().register("t", DeltaTable(table.pipeline.path)).execute("SELECT x FROM t").read_all()
    assert sorted(pa.table(rows)["x"].to_pylist()) == list(range(20))
    (info,) = found["commitInfo"]
    assert (info["operation"], info["operationParameters"]["version"]) == ("RESTORE", 3)
    assert info["operationMetrics"]["numOfFilesAfterRestore"] == "2"
    assert info["isBlindAppend"] is False
    table.restore(4)
    assert table.files(table.log.state().version) == table.files(4)


def test_a_file_or_a_vector_that_is_gone_is_named(table: Table) -> None:
    table.commit(features(readers=("deletionVectors",)))
    table.pipeline.commit(1, {0: (10, 20)})
    delete_row(table.pipeline.path, 3, in_file=True)
    assert DeltaTable(table.pipeline.path).restore(1)
    version = table.log.state().version
    (vector,) = table.pipeline.path.glob("*.bin")
    vector.unlink()
    with pytest.raises(OffsetStoreError, match=rf"nothing was changed: version 4 .* 1 of the .* gone: {vector.name}"):
        table.restore(4)
    gone = next(path for path, _ in table.files(3) - table.files(1))
    (table.pipeline.path / gone).unlink()
    with pytest.raises(OffsetStoreError, match=rf"version 3 .* gone: {gone}\. A VACUUM"):
        table.restore(3)
    assert table.log.state().version == version


def test_the_protocol_is_never_lowered_and_metadata_goes_back_but_for_what_must_not(table: Table) -> None:
    mapped = {"delta__columnMapping__maxColumnId": "5", "delta__enableInCommitTimestamps": "true"}
    version = table.log.state().version
    table.commit(
        {"commitInfo": {"inCommitTimestamp": 5_000_000_000_000}},
        features("inCommitTimestamp", "rowTracking", "domainMetadata", "clustering"),
        table.metadata(
            **mapped,
            delta__rowTracking__materializedRowIdColumnName="r",
            delta__inCommitTimestampEnablementVersion="2",
            other="new",
        ),
        {"domainMetadata": {"domain": "delta.clustering", "configuration": "{}", "removed": False}},
    )
    table.pipeline.commit(1, {0: (10, 20)})
    found = table.restore(version)
    after = table.log.state()
    before = {"appendOnly", "invariants"}
    assert after.protocol.writer_features == {"inCommitTimestamp", *ROWS, "clustering", *before}
    assert after.metadata.configuration == {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.rowTracking.materializedRowIdColumnName": "r",
    }
    assert after.timestamp_ms == found["commitInfo"][0]["inCommitTimestamp"] > 5_000_000_000_000
    assert json.loads(after.domains["delta.clustering"])["clusteringColumns"] == []
    assert not table.restore(version + 1)["protocol"]
    assert table.log.state().metadata.configuration["delta.columnMapping.maxColumnId"] == "5"
    assert table.log.state().domains["delta.clustering"] == "{}"


def test_an_older_protocol_is_merged(table: Table) -> None:
    """A feature that was dropped since comes back, as its version may use it."""
    table.commit(features(readers=("deletionVectors",)))
    version = table.log.state().version
    table.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 3}})
    (protocol,) = table.restore(version)["protocol"]
    assert Protocol.of(protocol).writer_features == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "deletionVectors",
    }


def test_restored_files_keep_their_row_ids(table: Table) -> None:
    before = table.log.state().version
    table.commit(features(*ROWS))
    table.pipeline.commit(1, {0: (10, 20)})
    version = table.log.state().version
    (tracked,) = (add for key, add in active_files(table.log.reader, version).items() if "baseRowId" in add)
    remove = [{"remove": {"path": path, "dataChange": True}} for path, _ in table.files(version)]
    table.commit(*remove)
    first, second = sorted(table.restore(version)["add"], key=lambda add: add["path"] == tracked["path"])
    assert (second["baseRowId"], second["defaultRowCommitVersion"]) == (0, version)
    assert (first["baseRowId"], first["defaultRowCommitVersion"]) == (10, version + 2)
    assert table.log.state().next_row_id == 20
    found = table.restore(before)
    assert not found["add"]
    assert not found["domainMetadata"], "the high-water mark stays"
    assert table.log.state().next_row_id == 20


def test_a_table_that_is_append_only_loses_no_rows(table: Table) -> None:
    table.commit(table.metadata(delta__appendOnly="true"))
    version = table.log.state().version
    table.pipeline.commit(1, {0: (10, 20)})
    with pytest.raises(OffsetStoreError, match=r"cannot be restored: it has delta.appendOnly=true"):
        table.restore(version)
    assert len(table.pipeline.rows()) == 20


def test_files_of_a_checkpoint_with_typed_statistics_only(tmp_path: Path) -> None:
    """They are added again with statistics as JSON, as commits have them."""
    table = Table(tmp_path / "table")
    table.pipeline.commit(0, {0: (0, 10)})
    DeltaTable(table.pipeline.path).create_checkpoint()
    (checkpoint,) = (table.pipeline.path / "_delta_log").glob("*.checkpoint.parquet")
    schema = pq.read_schema(checkpoint)
    rows = pq.read_table(checkpoint).to_pylist()
    stored = next(row["add"] for row in rows if row["add"])
    typed = {**stored, "stats": None, "stats_parsed": {"numRecords": 10}}
    (checkpoint.parent / f"{0:020d}.json").unlink()
    kind = pa.struct([*schema.field("add").type, ("stats_parsed", pa.struct([("numRecords", pa.int64())]))])
    schema = schema.set(schema.get_field_index("add"), pa.field("add", kind))
    changed = [{**row, "add": typed if row["add"] else None} for row in rows]
    pq.write_table(pa.Table.from_pylist(changed, schema), checkpoint)
    table.commit({"remove": {"path": stored["path"], "dataChange": True}})
    (added,) = table.restore(1)["add"]
    assert json.loads(added["stats"]) == {"numRecords": 10}
    assert added.keys().isdisjoint({"stats_parsed", "partitionValues_parsed"})
    assert table.pipeline.rows() == list(range(10))
