"""New tables: what the first commit holds, which protocol it takes, and what it must not be put beside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Protocol
from sparkonce.offset_store.log.creation import NewTable
from sparkonce.offset_store.log.protocol_changes import lowest_protocol, merged, raised, to_action
from sparkonce.offset_store.log.table_log import TableLog

COLUMNS = t.StructType([t.StructField("k", t.LongType()), t.StructField("timestamp_ntz", t.StringType())])
NTZ = t.StructType([t.StructField("a", t.ArrayType(t.MapType(t.StringType(), t.TimestampNTZType())))])


def log_at(path: Path) -> TableLog:
    return TableLog(Location.parse(str(path)))


def test_a_new_table_is_what_delta_rs_reads(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "c"
    assert log_at(path).create(NewTable(COLUMNS.json(), ["timestamp_ntz"], "name", "text"))
    assert not log_at(path).create(NewTable(NTZ.json()))
    table = DeltaTable(path)
    metadata, protocol = table.metadata(), table.protocol()
    assert (metadata.name, metadata.description, metadata.partition_columns) == ("name", "text", ["timestamp_ntz"])
    assert metadata.configuration == {}
    assert json.loads(table.schema().to_json()) == json.loads(COLUMNS.json())
    assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
    (entry,) = table.history()
    assert entry["operation"] == "CREATE TABLE"
    assert entry["operationParameters"]["location"] == f"{path.as_uri()}/"
    assert os.listdir(path / "_delta_log") == [f"{0:020d}.json"]
    state = log_at(path).state()
    assert (state.version, state.metadata.id) == (0, str(metadata.id))


def test_a_new_table_takes_the_lowest_protocol() -> None:
    assert to_action(lowest_protocol(COLUMNS.json())) == {"minReaderVersion": 1, "minWriterVersion": 2}
    assert to_action(lowest_protocol(NTZ.json())) == {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["appendOnly", "invariants", "timestampNtz"],
    }


def test_a_protocol_that_is_raised_keeps_what_it_had() -> None:
    old = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"}
    found = raised(Protocol(2, 5), {"timestampNtz"})
    assert found == Protocol(3, 7, frozenset({"columnMapping", "timestampNtz"}), frozenset(old | {"timestampNtz"}))
    assert raised(found, {"timestampNtz"}) is found
    writers_only = Protocol(1, 7, frozenset(), frozenset({"rowTracking"}))
    assert raised(writers_only, {"domainMetadata"}).min_reader_version == 1
    ntz = raised(writers_only, {"timestampNtz"})
    assert ntz == Protocol(3, 7, frozenset({"timestampNtz"}), frozenset({"rowTracking", "timestampNtz"}))


def test_merged_protocols_have_what_either_has() -> None:
    assert merged(Protocol(1, 2), Protocol(2, 5)) == merged(Protocol(2, 5), Protocol(1, 2)) == Protocol(2, 5)
    vectors = Protocol(3, 7, frozenset({"deletionVectors"}), frozenset({"deletionVectors"}))
    old = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "columnMapping"}
    both = Protocol(3, 7, frozenset({"columnMapping", "deletionVectors"}), frozenset(old | {"deletionVectors"}))
    assert merged(vectors, Protocol(2, 5)) == merged(Protocol(2, 5), vectors) == both


@pytest.mark.parametrize("name", ["_last_checkpoint", f"{7:020d}.crc", "_staged_commits", "notes.txt"])
def test_nothing_is_created_beside_something_else(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    (folder / name).touch()
    with pytest.raises(OffsetStoreError, match=f"there is no table at {tmp_path}, .* is not empty: {name}"):
        log_at(tmp_path).create(NewTable(COLUMNS.json()))
    assert os.listdir(folder) == [name]


@pytest.mark.parametrize("name", [".sparkonce-1.tmp", f".{0:020d}.json.1.tmp", f"_commit_{1}.json.tmp", "0.json#1"])
def test_what_a_writer_that_died_left_is_in_nobodys_way(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "_delta_log"
    folder.mkdir()
    (folder / name).touch()
    assert log_at(tmp_path).create(NewTable(COLUMNS.json()))
