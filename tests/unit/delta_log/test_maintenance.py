"""When a checkpoint is due, and what clean-up leaves."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.log.cleanup import Cleaned, clean_up
from sparkonce.offset_store.log.intervals import DAY_MS
from sparkonce.offset_store.log.maintenance import Maintained, commits_between, maintain
from tests.unit.delta_log.logs import HandLog, add, metadata, with_features

NOW_MS = 20_000 * DAY_MS + 5_000
OLD_MS = NOW_MS - 40 * DAY_MS


@pytest.fixture
def table(tmp_path: Path) -> HandLog:
    return HandLog(tmp_path / "table")


def test_a_checkpoint_is_due_as_the_table_says_or_the_sparser_the_more_files() -> None:
    assert [commits_between({}, files) for files in (0, 10_000, 10_200, 50_000, 10**7)] == [100, 100, 102, 500, 1_000]
    assert commits_between({"delta.checkpointInterval": " 7 "}, 10**7) == 7
    assert commits_between({"delta.checkpointInterval": "none"}, 0) == 100


def test_checkpoints_follow_each_other(table: HandLog) -> None:
    table.create({"delta.checkpointInterval": "3"})
    last, written = Maintained(None), []
    for _ in range(10):
        table.commits(1)
        last = maintain(table.log, table.state(), last=last, now_ms=NOW_MS)
        written += [last.written.version] if last.written else []
        assert last.problem is None
    assert written == [3, 6, 9]
    assert (last.checkpoint_version, last.due_at) == (9, 12)


def test_another_writers_checkpoint_counts(table: HandLog) -> None:
    table.create({"delta.checkpointInterval": "3"})
    table.commits(5)
    table.checkpoint(4)
    last = maintain(table.log, table.state(), last=Maintained(None), now_ms=NOW_MS)
    assert (last.checkpoint_version, last.due_at, last.written) == (4, 7, None)


def test_what_goes_wrong_is_said_and_tried_again_later(table: HandLog) -> None:
    table.create({"delta.checkpointInterval": "3"})
    table.commits(4)
    state = table.state()
    (table.folder / f"{2:020d}.json").unlink()
    last = maintain(table.log, state, last=Maintained(None), now_ms=NOW_MS)
    assert (last.checkpoint_version, last.due_at) == (None, 7)
    assert "00002.json is missing" in str(last.problem)
    assert table.log.listing().checkpoints == {}


def aged(table: HandLog, properties: dict[str, str] | None = None, **options: Any) -> None:
    """Make a table with checkpoints at 4, 8 and 12, of which versions up to 9 have expired."""
    table.create(properties, **options)
    table.commits(12)
    for version in (4, 8, 12):
        table.checkpoint(version)
    for name in ("00000000000000000003.crc", f"{0:020d}.{6:020d}.compacted.json", f"{8:020d}.{9:020d}.compacted.json"):
        (table.folder / name).write_text("{}")
    for name in table.names():
        if name[:20].isdecimal() and int(name[:20]) <= 9:
            os.utime(table.folder / name, (OLD_MS / 1000,) * 2)


def versions(table: HandLog) -> tuple[list[int], list[int]]:
    listing = table.log.listing()
    return list(listing.commits), sorted(listing.checkpoints)


def test_what_is_older_than_the_newest_expired_checkpoint_goes(table: HandLog) -> None:
    aged(table)
    assert clean_up(table.log, table.state(), now_ms=NOW_MS) == Cleaned(deleted=8 + 1 + 3)
    assert versions(table) == ([8, 9, 10, 11, 12], [8, 12])
    assert [name for name in table.names() if "compacted" in name or "crc" in name] == []
    assert table.files() == sorted(f"f{n}" for n in range(1, 13))
    assert len(pa_files(table, 9)) == 9
    assert clean_up(table.log, DeltaState.of(table), now_ms=NOW_MS) == Cleaned(deleted=0)


class DeltaState:
    """The newest state of a table whose first commits are gone."""

    @staticmethod
    def of(table: HandLog) -> Any:
        newest = max(table.log.listing().checkpoints)
        return table.read(newest).state()


def pa_files(table: HandLog, version: int) -> list[str]:
    return DeltaTable(table.path, version=version).file_uris()


def test_a_backlog_goes_in_parts_the_oldest_first(table: HandLog) -> None:
    aged(table)
    state = table.state()
    assert clean_up(table.log, state, now_ms=NOW_MS, most=3) == Cleaned(deleted=3, all=False)
    assert versions(table) == (list(range(2, 13)), [4, 8, 12])
    left = [clean_up(table.log, state, now_ms=NOW_MS, most=3) for _ in range(3)]
    assert left[-1] == Cleaned(deleted=3)
    assert versions(table)[0] == [8, 9, 10, 11, 12]


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.enableExpiredLogCleanup": "false"},
        {"delta.logRetentionDuration": "interval 2 months"},
        {"delta.logRetentionDuration": "interval 41 days"},
    ],
)
def test_nothing_goes_that_the_table_keeps(table: HandLog, properties: dict[str, str]) -> None:
    aged(table, properties)
    before = table.names()
    assert clean_up(table.log, table.state(), now_ms=NOW_MS).deleted == 0
    assert table.names() == before


def test_days_are_whole(table: HandLog) -> None:
    """A commit of today minus 40 days and 1 ms after midnight has not expired after 40 days."""
    aged(table, {"delta.logRetentionDuration": "interval 40 days"})
    assert clean_up(table.log, table.state(), now_ms=NOW_MS).deleted == 0
    assert clean_up(table.log, table.state(), now_ms=NOW_MS + DAY_MS).deleted > 0


def test_protected_versions_go_at_once_or_not_at_all(table: HandLog) -> None:
    protocol = with_features("checkpointProtection")
    aged(table, {"delta.requireCheckpointProtectionBeforeVersion": "9"}, protocol=protocol)
    before = table.names()
    assert clean_up(table.log, table.state(), now_ms=NOW_MS).deleted == 0
    assert table.names() == before
    table.commit({"metaData": metadata({"delta.requireCheckpointProtectionBeforeVersion": "8"})})
    assert clean_up(table.log, table.state(), now_ms=NOW_MS, most=1).deleted == 12


@pytest.mark.parametrize("since", [0, 6])
def test_in_commit_timestamps_count_where_there_are_any(table: HandLog, since: int) -> None:
    """Versions up to 5 have expired by them, or, where they begin later, by the times of their files; 4 is a base."""
    on = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": str(since)}
    aged(table, on, protocol=with_features("inCommitTimestamp"))
    for version in range(since, 13):
        name = table.folder / f"{version:020d}.json"
        at_ms = OLD_MS + version if version <= 5 else NOW_MS
        info = json.dumps({"commitInfo": {"inCommitTimestamp": at_ms}})
        name.write_text(name.read_text().replace('{"commitInfo": {}}', info))
        os.utime(name, (OLD_MS / 1000,) * 2)
    clean_up(table.log, table.state(), now_ms=NOW_MS)
    assert versions(table)[0] == list(range(4, 13))


@pytest.mark.parametrize("damage", ["truncated", "hole", "of another table"])
def test_nothing_goes_if_what_stays_is_damaged(table: HandLog, damage: str) -> None:
    aged(table)
    state = table.state()
    if damage == "truncated":
        name = table.folder / f"{8:020d}.checkpoint.parquet"
        name.write_bytes(name.read_bytes()[:-50])
        os.utime(name, (OLD_MS / 1000,) * 2)
    elif damage == "hole":
        (table.folder / f"{10:020d}.json").unlink()
    else:
        other = HandLog(table.path.parent / "other")
        other.create()
        (other.folder / f"{0:020d}.json").write_text(
            (table.folder / f"{0:020d}.json").read_text().replace('"t"', '"u"')
        )
        other.commits(8)
        other.checkpoint()
        os.replace(other.folder / f"{8:020d}.checkpoint.parquet", table.folder / f"{8:020d}.checkpoint.parquet")
    before = table.names()
    with pytest.raises(OffsetStoreError):
        clean_up(table.log, state, now_ms=NOW_MS)
    assert table.names() == before


def test_sidecars_and_temporary_files_go_when_a_day_old_and_unused(table: HandLog) -> None:
    aged(table)
    sidecars = table.folder / "_sidecars"
    sidecars.mkdir()
    used = (
        {"checkpointMetadata": {"version": 12}},
        {"sidecar": {"path": "used.parquet", "sizeInBytes": 1, "modificationTime": 1}},
    )
    lines = "".join(f"{json.dumps(each)}\n" for each in used)
    (table.folder / f"{12:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json").write_text(lines)
    for folder, name, at_ms in [
        (sidecars, "used.parquet", OLD_MS),
        (sidecars, "unused.parquet", OLD_MS),
        (sidecars, "new.parquet", NOW_MS - DAY_MS),
        (sidecars, "foreign.txt", OLD_MS),
        (table.folder, ".sparkonce-old.tmp", OLD_MS),
        (table.folder, ".sparkonce-new.tmp", NOW_MS - DAY_MS),
        (table.folder, ".foreign.tmp", OLD_MS),
    ]:
        (folder / name).write_text("")
        os.utime(folder / name, (at_ms / 1000,) * 2)
    clean_up(table.log, table.state(), now_ms=NOW_MS)
    assert sorted(os.listdir(sidecars)) == ["foreign.txt", "new.parquet", "used.parquet"]
    assert [name for name in table.names() if name.startswith(".")] == [".foreign.tmp", ".sparkonce-new.tmp"]


def test_maintenance_cleans_up_once_a_day(table: HandLog) -> None:
    aged(table, {"delta.checkpointInterval": "2"})
    table.commit(add("x"))
    table.commit(add("y"))
    first = maintain(table.log, table.state(), last=Maintained(12), now_ms=NOW_MS)
    assert first.written is not None
    assert (first.deleted, first.cleaned_day, first.checkpoint_version) == (12, NOW_MS // DAY_MS, 14)
