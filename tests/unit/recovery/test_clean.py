"""`sparkonce clean`: what counts as an orphan, and everything that must not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from sparkonce.jobs.cli.housekeeping.orphans import TableFolder
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.reader import DeltaLog
from tests.delta_commits import of_delta_rs
from tests.unit.recovery.recovery_support import Pipeline
from tests.unit.sink.query_by_hand import SCHEMA, make_table, table_actions

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000


def open_folder(path: Path) -> TableFolder:
    return TableFolder.open(Location.parse(str(path)), {})


def through_delta_rs(path: Path) -> TableFolder:
    """The folder as on an object store: through delta-rs's own file system, rooted in the table."""
    filesystem = fs.PyFileSystem(DeltaStorageHandler(str(path)))
    location = Location.parse(str(path))
    return TableFolder(location, {}, filesystem, "", DeltaLog.open(location, {}))


def age(path: Path, hours: float) -> None:
    at_s = (NOW_MS - hours * HOUR_MS) / 1000
    os.utime(path, (at_s, at_s))


def age_all(root: Path, hours: float) -> None:
    for path in root.rglob("*.parquet"):
        age(path, hours)


def put(root: Path, name: str, hours: float = 100) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not even Parquet")
    age(path, hours)
    return path


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline.create(tmp_path / "table")
    for batch_id in range(3):
        pipeline.commit(batch_id, {0: (batch_id * 10, batch_id * 10 + 10)})
    return pipeline


def orphans(folder: TableFolder, hours: float = 24) -> list[str]:
    return [file.path for file in folder.find(int(hours * HOUR_MS), NOW_MS).orphans]


@pytest.mark.parametrize("opened", [open_folder, through_delta_rs])
def test_only_what_no_commit_names(pipeline: Pipeline, opened: object) -> None:
    """The files of old versions stay, though a compaction took them out of the table: time travel needs them."""
    assert callable(opened)
    main(["compact", str(pipeline.path)])
    age_all(pipeline.path, 1000)
    lost = put(pipeline.path, "part-lost.parquet")
    folder = opened(pipeline.path)
    found = folder.find(24 * HOUR_MS, NOW_MS)
    assert [file.path for file in found.orphans] == ["part-lost.parquet"]
    assert (found.orphans[0].size, found.orphans[0].modified_ms) == (16, NOW_MS - 100 * HOUR_MS)
    assert found.named == 4
    assert [file.path for file in folder.delete(found).files] == ["part-lost.parquet"]
    assert not lost.exists()
    for version in range(1, 7):
        wanted = list(range(min(version, 3) * 10))
        at = DeltaTable(str(pipeline.path), version=version).to_pyarrow_table()["x"].to_pylist()
        assert sorted(at) == wanted


def test_what_a_symbolic_link_leads_to_is_not_part_of_the_folder(pipeline: Pipeline, tmp_path: Path) -> None:
    kept = put(tmp_path / "archive", "2025/part-kept.parquet")
    links = pipeline.path / "linked", pipeline.path / "linked.parquet"
    links[0].symlink_to(tmp_path / "archive", target_is_directory=True)
    links[1].symlink_to(kept)
    lost = put(pipeline.path, "part-lost.parquet")
    folder = open_folder(pipeline.path)
    folder.delete(folder.find(24 * HOUR_MS, NOW_MS))
    assert kept.exists()
    assert all(link.is_symlink() for link in links)
    assert not lost.exists()


def test_a_table_behind_a_symbolic_link_is_cleaned(pipeline: Pipeline, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(pipeline.path, target_is_directory=True)
    age_all(pipeline.path, 1000)
    put(pipeline.path, "part-lost.parquet")
    assert orphans(open_folder(link)) == ["part-lost.parquet"]


def test_files_of_a_running_batch_are_young(pipeline: Pipeline) -> None:
    put(pipeline.path, "part-old.parquet", hours=24.1)
    put(pipeline.path, "part-young.parquet", hours=23.9)
    put(pipeline.path, "part-future.parquet", hours=-5)
    found = open_folder(pipeline.path).find(24 * HOUR_MS, NOW_MS)
    assert [file.path for file in found.orphans] == ["part-old.parquet"]
    assert [file.path for file in found.young] == ["part-future.parquet", "part-young.parquet"]


def test_hidden_things_other_tables_and_other_files_stay(pipeline: Pipeline) -> None:
    for name in (
        "_delta_log/00000000000000000009.checkpoint.parquet.tmp",
        "_change_data/cdc-1.parquet",
        "_spark_metadata/x.parquet",
        ".hidden/x.parquet",
        "_temporary.parquet",
        "deletion_vector_a.bin",
        "README.md",
        "inner/_delta_log/00000000000000000000.json",
        "inner/part-0.parquet",
        "inner/day=1/part-0.parquet",
    ):
        put(pipeline.path, name)
    put(pipeline.path, "innermost/part-0.parquet")
    assert orphans(open_folder(pipeline.path)) == ["innermost/part-0.parquet"]


@pytest.mark.parametrize("column", ["day", "_day"])
def test_partition_folders(tmp_path: Path, column: str) -> None:
    """Values that need escapes stand percent-encoded in the folder's name and once more in the log."""
    path = tmp_path / "table"
    values = ["a b", "x%20y/z=1", "ü", None]
    write_deltalake(str(path), pa.table({"x": [1, 2, 3, 4], column: values}), partition_by=[column])
    age_all(path, 1000)
    folders = {found.parent.name for found in path.rglob("part*.parquet")}
    assert len(folders) == 4
    put(path, f"{min(folders)}/part-lost.parquet")
    assert orphans(open_folder(path)) == [f"{min(folders)}/part-lost.parquet"]


ADDRESSES = ("{}", "file:{}", "file://{}", "file://localhost{}", "s3a://bucket{}", "dbfs:/mnt{}", "abfss://c@a.net{}")


@pytest.mark.parametrize("kind", ["add", "remove"])
@pytest.mark.parametrize("through", ["table", "link"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_file_that_is_named_by_any_address_stays(
    pipeline: Pipeline, tmp_path: Path, address: str, through: str, kind: str
) -> None:
    """Clones name files by addresses as another engine spells them, also those that are in the table's own folder."""
    link = tmp_path / "link"
    link.symlink_to(pipeline.path, target_is_directory=True)
    name, lost = put(pipeline.path, "day=1 2/part-absolute.parquet"), put(pipeline.path, "part-lost.parquet")
    written = address.format(str(name).replace(" ", "%20"))
    action = {"path": written, "partitionValues": {}, "size": 16, "modificationTime": 0, "dataChange": True}
    commit = pipeline.path / "_delta_log" / f"{4:020d}.json"
    commit.write_text(json.dumps({kind: action}) + "\n")
    folder = open_folder(pipeline.path if through == "table" else link)
    folder.delete(folder.find(24 * HOUR_MS, NOW_MS))
    assert name.exists()
    assert not lost.exists()


@pytest.mark.parametrize(
    ("retention", "cleaned", "parts"),
    [("interval 1000 weeks", 7, 1), ("interval 1000 weeks", 7, 2), ("interval 0 seconds", 5, 1)],
    ids=["tombstones in the checkpoint", "a checkpoint of two parts", "tombstones in a commit alone"],
)
def test_tombstones_after_log_clean_up(tmp_path: Path, retention: str, cleaned: int, parts: int) -> None:
    """The commits that added the files are gone from the log; what removed them is kept, here or there."""
    pipeline = Pipeline.create(tmp_path / "table", {"delta.deletedFileRetentionDuration": retention})
    for batch_id in range(3):
        pipeline.commit(batch_id, {0: (batch_id, batch_id + 1)})
    main(["compact", str(pipeline.path)])
    table = DeltaTable(str(pipeline.path))
    table.create_checkpoint()
    log = pipeline.path / "_delta_log"
    for version in range(cleaned):
        (log / f"{version:020d}.json").unlink()
    if parts == 2:
        split_checkpoint(log, table.version())
    age_all(pipeline.path, 1000)
    put(pipeline.path, "part-lost.parquet")
    found = open_folder(pipeline.path).find(HOUR_MS, NOW_MS)
    assert [file.path for file in found.orphans] == ["part-lost.parquet"]
    assert found.named == 4


def test_a_version_that_only_a_checkpoint_in_between_holds(tmp_path: Path) -> None:
    """The commits that added and removed its file are gone, and so is its tombstone from the newest checkpoint."""
    pipeline = Pipeline.create(tmp_path / "table", {"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    for batch_id in range(3):
        pipeline.commit(batch_id, {0: (batch_id, batch_id + 1)})
        DeltaTable(str(pipeline.path)).create_checkpoint()
        if batch_id == 1:
            DeltaTable(str(pipeline.path)).delete("x = 1")
    log = pipeline.path / "_delta_log"
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    age_all(pipeline.path, 1000)
    put(pipeline.path, "part-lost.parquet")
    between = DeltaTable(str(pipeline.path), version=2)
    assert sorted(between.to_pyarrow_table()["x"].to_pylist()) == [0, 1]
    assert orphans(open_folder(pipeline.path), 1) == ["part-lost.parquet"]


def split_checkpoint(log: Path, version: int) -> None:
    """Make a checkpoint of two parts out of one."""
    import pyarrow.parquet as pq

    whole = log / f"{version:020d}.checkpoint.parquet"
    rows = pq.read_table(whole)
    whole.unlink()
    (log / "_last_checkpoint").unlink()
    for number, part in enumerate((rows.slice(0, 3), rows.slice(3)), 1):
        pq.write_table(part, log / f"{version:020d}.checkpoint.{number:010d}.{2:010d}.parquet")


def test_a_table_with_a_feature_that_is_unknown_is_left_alone(tmp_path: Path) -> None:
    """PROTOCOL.md, "VACUUM Protocol Check": such a feature may name files in a way of its own."""
    table = tmp_path / "table"
    make_table(table, *table_actions(SCHEMA, features=("vacuumProtocolCheck", "notYetThere")))
    put(table, "part-lost.parquet")
    with pytest.raises(OffsetStoreError, match="writer feature notYetThere: which of its files are used is unknown"):
        open_folder(table).find(24 * HOUR_MS, NOW_MS)


def test_a_log_that_cannot_be_read_makes_no_orphans(pipeline: Pipeline) -> None:
    commit = pipeline.path / "_delta_log" / f"{2:020d}.json"
    DeltaTable(str(pipeline.path)).create_checkpoint()
    commit.write_text('{"add":{"path"')
    put(pipeline.path, "part-lost.parquet")
    with pytest.raises(OffsetStoreError, match="holds a line that is no JSON object"):
        open_folder(pipeline.path).find(HOUR_MS, NOW_MS)


def test_files_in_use_that_were_not_found_in_the_log_stop_it(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the log is checked against delta-rs, so a kind of checkpoint that is not understood costs no file."""
    monkeypatch.setattr(TableFolder, "_paths_of", lambda self, version: [])
    with pytest.raises(OffsetStoreError, match="and 2 more"):
        open_folder(pipeline.path).find(HOUR_MS, NOW_MS)


def test_a_file_that_is_committed_after_the_look_stays(pipeline: Pipeline) -> None:
    folder = open_folder(pipeline.path)
    late = pipeline.write([30])
    age(pipeline.path / late.path, 100)
    put(pipeline.path, "part-lost.parquet")
    found = folder.find(HOUR_MS, NOW_MS)
    assert {file.path for file in found.orphans} == {late.path, "part-lost.parquet"}
    table = DeltaTable(str(pipeline.path))
    table.create_write_transaction([of_delta_rs(late)], "append", table.schema())
    deleted = folder.delete(found)
    assert [file.path for file in deleted.files] == ["part-lost.parquet"]
    assert [file.path for file in deleted.committed_meanwhile] == [late.path]
    assert pipeline.rows() == list(range(31))


def test_a_file_that_cannot_be_deleted_is_told(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    put(pipeline.path, "part-lost.parquet")
    folder = open_folder(pipeline.path)
    found = folder.find(HOUR_MS, NOW_MS)
    # A folder in its place cannot be deleted as a file is, whoever runs the test.
    (pipeline.path / "part-lost.parquet").unlink()
    (pipeline.path / "part-lost.parquet").mkdir()
    deleted = folder.delete(found)
    assert deleted.files == ()
    assert list(deleted.failed) == ["part-lost.parquet"]


def test_the_command(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    lost = pipeline.path / "part-lost.parquet"
    lost.write_bytes(b"x" * 2048)
    os.utime(lost, (0, 0))
    (pipeline.path / "part-running.parquet").write_bytes(b"x")
    assert main(["clean", str(pipeline.path)]) == 0
    shown = capsys.readouterr().out
    assert "data files that its log names: 3" in shown
    assert "1 file (2.0 KiB) that no commit names, older than 7 days" in shown
    assert "1 file (1 B) that no commit names, but younger: kept" in shown
    assert lost.exists()
    assert main(["clean", str(pipeline.path), "--apply"]) == 0
    assert "deleted 1 file (2.0 KiB)" in capsys.readouterr().out
    assert not lost.exists()
    assert (pipeline.path / "part-running.parquet").exists()
    assert pipeline.rows() == list(range(30))


def test_young_files_only_by_force(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    lost = pipeline.path / "part-lost.parquet"
    lost.write_bytes(b"x")
    assert main(["clean", str(pipeline.path), "--older-than", "59m", "--apply"]) == 1
    assert "look like orphans until they are committed" in capsys.readouterr().err
    assert lost.exists()
    os.utime(lost, (0, 0))
    for age, written in (("36h", "36 hours"), ("48h", "2 days"), ("90m", "90 minutes"), ("3601s", "3,601 seconds")):
        assert main(["clean", str(pipeline.path), "--older-than", age]) == 0
        assert f"1 file (1 B) that no commit names, older than {written}\n" in capsys.readouterr().out
    assert main(["clean", str(pipeline.path), "--older-than", "0s", "--force-younger", "--apply"]) == 0
    assert "older than 0 seconds" in capsys.readouterr().out
    assert not lost.exists()


def test_there_must_be_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "part-0.parquet")
    assert main(["clean", str(tmp_path), "--apply"]) == 1
    assert "there is no Delta table" in capsys.readouterr().err
    assert (tmp_path / "part-0.parquet").exists()


@pytest.mark.parametrize("uri", ["foo://bar/x", "http://127.0.0.1:1/x", "abfss://x", "hdfs://h/x"])
def test_a_place_that_delta_rs_cannot_open(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", uri]) == 1
    assert f"sparkonce clean: cannot open the folder {uri}: " in capsys.readouterr().err
