"""What a checkpoint keeps, what it is made from, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.checkpoints import CheckpointError, write_checkpoint
from sparkonce.offset_store.log.storage import LocalStorage
from tests.unit.delta_log.logs import PROTOCOL, HandLog, add, domain, metadata, remove, txn, with_features

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 2,
}


@pytest.fixture
def table(tmp_path: Path) -> HandLog:
    made = HandLog(tmp_path / "table")
    made.create()
    return made


def test_the_newest_action_wins(table: HandLog) -> None:
    table.commit(add("a"), add("b%20c"), add("back"), txn("x", 1), txn("y", 5, lastUpdated=7), domain("mine", "1"))
    table.commit(
        remove("a", 10), remove("b c", 20), remove("back"), txn("x", 3), domain("mine", removed=True), domain("o", "2")
    )
    table.commit(add("back", size=2), add("d"), {"metaData": metadata({"some": "property"})})
    written = table.checkpoint(removed_before_ms=10)
    assert written is not None
    assert (written.files, written.actions) == (2, 8)
    assert [(row["path"], row["size"], row["dataChange"]) for row in table.rows(3, "add")] == [
        ("back", 2, False),
        ("d", 1, False),
    ]
    assert [row["path"] for row in table.rows(3, "remove")] == ["b c"], "that of `a` has expired"
    state = table.read(3).state()
    assert (dict(state.transactions), dict(state.domains)) == ({"x": 3, "y": 5}, {"o": "2"})
    assert state.metadata.configuration == {"some": "property"}
    assert {"appId": "y", "version": 5, "lastUpdated": 7} in table.read(3).actions()["txn"]
    hint = json.loads((table.folder / "_last_checkpoint").read_text())
    assert hint == {"version": 3, "size": 8, "sizeInBytes": written.size_bytes, "numOfAddFiles": 2}
    table.delete_before(3)
    assert table.files() == ["back", "d"]
    assert DeltaTable(table.path).transaction_version("x") == 3


def test_a_file_is_named_by_its_deletion_vector_too(tmp_path: Path) -> None:
    table = HandLog(tmp_path / "table")
    table.create(protocol=with_features(readers=("deletionVectors",)))
    table.commit(add("a"), add("b"))
    table.checkpoint()
    vectors = [VECTOR | {"offset": number} for number in range(2)]
    table.commit(remove("a"), add("a", deletionVector=vectors[0]))
    table.checkpoint()
    table.commit(remove("a", deletionVector=vectors[0]), add("a", deletionVector=vectors[1]))
    table.checkpoint()
    assert [row.get("deletionVector") for row in table.rows(2, "add")] == [vectors[0] | {"maxRowIndex": None}, None]
    assert [row.get("deletionVector") for row in table.rows(3, "add")] == [vectors[1] | {"maxRowIndex": None}, None]
    assert len(table.rows(3, "remove")) == 2


@pytest.mark.parametrize("form", ["classic", "parts", "v2 json", "v2 parquet", "v2 inline"])
def test_fields_that_are_not_known_come_from_every_kind_of_checkpoint(tmp_path: Path, form: str) -> None:
    table = HandLog(tmp_path / "table")
    table.create(protocol=with_features("rowTracking", "domainMetadata", readers=("v2Checkpoint",)))
    known = {"tags": {"k": "v"}, "baseRowId": 0, "defaultRowCommitVersion": 1, "clusteringProvider": "liquid"}
    table.commit(
        add("a", **known, future={"x": "1"}, other=7),
        add("b", **known | {"baseRowId": 1}, deletionVector=VECTOR),
        txn("q", 1),
        domain("delta.rowTracking", '{"rowIdHighWaterMark":2}'),
        remove("r", 5, stats="{}", tags={"k": "v"}, size=3),
    )
    table.checkpoint()
    expected = [table.rows(1, kind) for kind in ("add", "remove")]
    assert expected[0][0]["future"] == {"x": "1"}
    assert set(expected[1][0]) == {"path", "deletionTimestamp", "dataChange", "size"}
    stored_as(table, form)
    table.commit(add("c", **known | {"baseRowId": 2}, third=[1, 2]))
    table.delete_before(1)
    written = write_checkpoint(
        table.log,
        table.read(1).state().after(next(iter(table.log.actions_of([2], NEWS)))),
        table.log.listing(),
        removed_before_ms=-1,
    )
    assert written is not None
    files = table.rows(2, "add")
    assert files[:2] == expected[0]
    assert (files[2]["third"], files[2]["baseRowId"]) == ([1, 2], 2)
    assert table.rows(2, "remove") == expected[1]


NEWS = ("protocol", "metaData", "txn", "domainMetadata", "commitInfo", "add", "remove")


def stored_as(table: HandLog, form: str) -> None:
    """Write a classic checkpoint of version 1 anew, in another form."""
    classic = table.folder / f"{1:020d}.checkpoint.parquet"
    rows = pq.read_table(classic)
    is_file = [row["add"] is not None or row["remove"] is not None for row in rows.to_pylist()]
    small, files = rows.filter([not each for each in is_file]), rows.filter(is_file)
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"
    if form == "classic":
        return
    classic.unlink()
    if form == "parts":
        for number, part in enumerate((small, files), 1):
            pq.write_table(part, table.folder / f"{1:020d}.checkpoint.{number:010d}.0000000002.parquet")
        return
    folder = table.folder / "_sidecars"
    folder.mkdir()
    pq.write_table(files.select(["add", "remove"]), folder / "one.parquet")
    sidecar = [{"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    lines = [{k: v for k, v in row.items() if v is not None} for row in small.to_pylist(maps_as_pydicts="strict")]
    head = [{"checkpointMetadata": {"version": 1}}, *lines]
    if form == "v2 parquet":
        keys = dict.fromkeys(key for row in [*head, *sidecar] for key in row)
        columns = {key: [row.get(key) for row in [*head, *sidecar]] for key in keys}
        types = {field.name: field.type for field in rows.schema}
        pq.write_table(
            pa.table({k: pa.array(v, types.get(k)) for k, v in columns.items()}), table.folder / f"{name}.parquet"
        )
        return
    last = sidecar
    if form == "v2 inline":
        last = [without_nulls(row) for row in files.select(["add", "remove"]).to_pylist(maps_as_pydicts="strict")]
    (table.folder / f"{name}.json").write_text("".join(f"{json.dumps(each)}\n" for each in [*head, *last]))


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


def test_typed_statistics_that_are_alone_become_json(table: HandLog) -> None:
    table.commit(add("a"), add("b"))
    table.checkpoint()
    name = table.folder / f"{1:020d}.checkpoint.parquet"
    rows = pq.read_table(name).to_pylist(maps_as_pydicts="strict")
    for row in rows:
        if row["add"]:
            row["add"] |= {"stats": None, "stats_parsed": {"numRecords": 3, "minValues": {"id": 1}}}
    schema = pq.read_schema(name)
    typed = pa.struct([("numRecords", pa.int64()), ("minValues", pa.struct([("id", pa.int64())]))])
    added = pa.field("add", pa.struct([*schema.field("add").type, pa.field("stats_parsed", typed)]))
    pq.write_table(pa.Table.from_pylist(rows, pa.schema([added if f.name == "add" else f for f in schema])), name)
    table.commit(add("c"))
    table.checkpoint()
    assert [row["stats"] for row in table.rows(2, "add")] == ['{"numRecords":3,"minValues":{"id":1}}'] * 2 + [
        '{"numRecords": 1}'
    ]
    assert "stats_parsed" not in table.rows(2, "add")[0]


def test_another_writers_checkpoint_is_left(table: HandLog) -> None:
    table.commit(add("a"))
    assert table.checkpoint() is not None
    before = (table.folder / f"{1:020d}.checkpoint.parquet").read_bytes()
    assert table.checkpoint() is None
    assert (table.folder / f"{1:020d}.checkpoint.parquet").read_bytes() == before


@pytest.mark.parametrize("commits", [1, 4])
def test_a_table_made_again_gets_no_checkpoint_of_the_one_before(
    table: HandLog, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, put = table.commits(3), LocalStorage.put_if_absent

    def replaced_before(storage: LocalStorage, name: str, data: bytes) -> bool:
        shutil.rmtree(table.folder)
        table.folder.mkdir()
        table.commit({"protocol": PROTOCOL}, {"metaData": metadata(table_id="another")})
        for number in range(1, commits):
            table.commit(add(f"g{number}"))
        return put(storage, name, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", replaced_before)
    with pytest.raises(CheckpointError, match="of a table that was replaced by another meanwhile, and is deleted"):
        table.checkpoint(version)
    assert table.names() == [f"{number:020d}.json" for number in range(commits)]


def test_last_checkpoint_never_goes_back_and_may_hold_anything(table: HandLog) -> None:
    hint = table.folder / "_last_checkpoint"
    table.commits(3)
    for garbage in ("", "{", "[]", '{"version": "x"}', '{"version":99}'):
        hint.write_text(garbage)
        (table.folder / "._last_checkpoint.crc").write_text("of Hadoop")
        table.checkpoint()
        if garbage == '{"version":99}':
            assert hint.read_text() == garbage
        else:
            assert json.loads(hint.read_text())["version"] == 3
            assert not (table.folder / "._last_checkpoint.crc").exists()
        (table.folder / f"{3:020d}.checkpoint.parquet").unlink()


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbage", "a part is missing", "no protocol"])
def test_a_damaged_checkpoint_is_not_built_on(table: HandLog, damage: str) -> None:
    table.commits(2)
    table.checkpoint(1)
    table.checkpoint(2)
    name = table.folder / f"{2:020d}.checkpoint.parquet"
    data = name.read_bytes()
    name.unlink()
    if damage == "a part is missing":
        (table.folder / f"{2:020d}.checkpoint.0000000001.0000000002.parquet").write_bytes(data)
    elif damage == "no protocol":
        rows = pq.read_table(pa.BufferReader(data))
        pq.write_table(rows.filter([row["protocol"] is None for row in rows.to_pylist()]), name)
    else:
        name.write_bytes({"truncated": data[: len(data) // 2], "empty": b"", "garbage": b"PAR1" * 99}[damage])
    table.commits(1)
    written = table.checkpoint()
    assert written is not None
    assert written.files == 3
    table.delete_before(3)
    assert table.files() == ["f1", "f2", "f3"]


def test_a_hole_is_named_and_nothing_is_written(table: HandLog) -> None:
    table.commits(5)
    table.checkpoint(2)
    state = table.state()
    (table.folder / f"{4:020d}.json").unlink()
    with pytest.raises(OffsetStoreError, match=r"00004\.json is missing"):
        write_checkpoint(table.log, state, table.log.listing(), removed_before_ms=0)
    assert list(table.log.listing().checkpoints) == [2]


@pytest.mark.parametrize(
    "damage", ["", '{"add":{"path":"f4"', '{"add":{"size":1}}\n', '{"add":{"path":"f4","size":"x"}}\n']
)
def test_a_damaged_commit_is_named_and_nothing_is_written(table: HandLog, damage: str) -> None:
    table.commits(5)
    table.checkpoint(2)
    state = table.state()
    (table.folder / f"{4:020d}.json").write_text(damage)
    with pytest.raises(OffsetStoreError, match=r"version 4 is damaged|00004\.json|not understood"):
        write_checkpoint(table.log, state, table.log.listing(), removed_before_ms=0)
    assert list(table.log.listing().checkpoints) == [2]


def test_a_checkpoint_that_differs_from_the_state_is_not_written(table: HandLog) -> None:
    table.commit(add("a"), txn("lost", 1), domain("d"))
    table.checkpoint()
    name = table.folder / f"{1:020d}.checkpoint.parquet"
    rows = pq.read_table(name)
    pq.write_table(
        rows.filter([row["txn"] is None and row["domainMetadata"] is None for row in rows.to_pylist()]), name
    )
    table.commits(1)
    state = table.state()
    table.delete_before(1)
    with pytest.raises(CheckpointError, match="transaction identifiers, domains"):
        write_checkpoint(table.log, state, table.log.listing(), removed_before_ms=0)
    assert list(table.log.listing().checkpoints) == [1]
