"""The newest state of a table, and commits that follow it: beside other writers, and on logs that are damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparkonce.offset_store.errors import (
    CatalogManagedError,
    CommitConflictError,
    OffsetStoreError,
    StoreMissingError,
)
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log import table_log
from sparkonce.offset_store.log.actions import AddFile
from sparkonce.offset_store.log.files import active_files
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.storage import LocalStorage
from sparkonce.offset_store.log.table_log import TableLog
from tests.unit.delta_log.logs import HandLog, Json, add, domain, metadata, remove, txn, with_features

ROW_IDS = "delta.rowTracking"
FILES = [AddFile(f"f{rows}", 1, {}, 0, json.dumps({"numRecords": rows}), rows) for rows in (2, 3)]


@pytest.fixture
def hand(tmp_path: Path) -> HandLog:
    made = HandLog(tmp_path / "t")
    made.create()
    return made


def opened(hand: HandLog) -> TableLog:
    return TableLog(Location.parse(str(hand.path)))


def actions(hand: HandLog, version: int, kind: str) -> list[Json]:
    lines = (hand.folder / f"{version:020d}.json").read_text().splitlines()
    return [action[kind] for action in map(json.loads, lines) if kind in action]


def test_others_that_do_not_matter_are_followed(hand: HandLog) -> None:
    log = opened(hand)
    state = log.state()
    hand.commit(add("theirs"), txn("other", 5))
    hand.commit(remove("theirs"))
    assert log.commit(Proposal({"ours": 1}, {"x": 1}, FILES), state) == 3
    found = log.state()
    assert (found.version, dict(found.transactions)) == (3, {"ours": 1, "other": 5})
    (info,) = actions(hand, 3, "commitInfo")
    assert (info["x"], info["isBlindAppend"], info["operationMetrics"]["numOutputRows"]) == (1, True, "5")
    assert DeltaTable(hand.path).transaction_version("ours") == 1


@pytest.mark.parametrize(
    ("landed", "why"),
    [
        ([txn("ours", 1)], "moved the transaction identifier ours to 1"),
        ([{"metaData": metadata({"delta.appendOnly": "true"})}], "changed the table's metadata"),
        ([{"protocol": with_features("appendOnly")}], "changed the table's protocol"),
        ([{"commitInfo": {"operation": "RESTORE"}}], "restored the table"),
    ],
)
def test_others_that_matter_are_a_conflict(hand: HandLog, landed: list[Json], why: str) -> None:
    log = opened(hand)
    state = log.state()
    hand.commit(*landed)
    with pytest.raises(CommitConflictError, match=f"version 1 {why}"):
        log.commit(Proposal({"ours": 1}), state)
    assert hand.log.listing().newest == 1


@pytest.mark.parametrize("change", [add("new"), remove("old", dataChange=False)])
def test_files_that_are_replaced_must_be_those_that_were_read(hand: HandLog, change: Json) -> None:
    hand.commit(add("old"))
    log = opened(hand)
    state = log.state()
    removed = list(active_files(log.reader, state.version).values())
    hand.commit(change)
    with pytest.raises(CommitConflictError, match="changed the files that are to be replaced"):
        log.commit(Proposal(files=FILES, removed=removed), state)


def test_row_ids_are_made_again_after_a_lost_version(tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "t")
    hand.create(protocol=with_features("rowTracking", "domainMetadata"))
    log = opened(hand)
    state = log.state()
    hand.commit(add("theirs", baseRowId=0, defaultRowCommitVersion=1), domain(ROW_IDS, '{"rowIdHighWaterMark":9}'))
    log.commit(Proposal(files=FILES), state)
    ids = [(each["path"], each["baseRowId"], each["defaultRowCommitVersion"]) for each in actions(hand, 2, "add")]
    assert ids == [("f2", 10, 2), ("f3", 12, 2)]
    assert json.loads(log.state().domains[ROW_IDS]) == {"rowIdHighWaterMark": 14}


def test_timestamps_in_commits_rise_though_the_clock_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand = HandLog(tmp_path / "t")
    hand.create({"delta.enableInCommitTimestamps": "true"}, with_features("inCommitTimestamp"))
    monkeypatch.setattr(table_log, "now_ms", lambda: 5)
    log = opened(hand)
    for _ in range(3):
        log.commit(Proposal({"ours": 1}), log.state())
    found = [actions(hand, version, "commitInfo")[0]["inCommitTimestamp"] for version in (1, 2, 3)]
    assert found == [5, 6, 7]
    assert next(iter(actions(hand, 3, "commitInfo")[0])) == "inCommitTimestamp"


def lost_answer(storage: LocalStorage, name: str, data: bytes) -> bool:
    assert LocalStorage.put_if_absent(storage, name, data)
    raise OSError("no answer")


def lost_request(_: LocalStorage, __: str, ___: bytes) -> bool:
    raise OSError("no answer")


def repeated(storage: LocalStorage, name: str, data: bytes) -> bool:
    """A store that answers the repetition of a request whose answer was lost: the file is there."""
    assert LocalStorage.put_if_absent(storage, name, data)
    return False


@pytest.mark.parametrize(("put", "lands"), [(lost_answer, True), (repeated, True), (lost_request, False)])
def test_whether_a_commit_landed_is_known(
    hand: HandLog, monkeypatch: pytest.MonkeyPatch, put: Callable[..., bool], lands: bool
) -> None:
    log = opened(hand)
    state = log.state()
    with monkeypatch.context() as patch:
        original = LocalStorage.put_if_absent

        def played(storage: LocalStorage, name: str, data: bytes) -> bool:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(LocalStorage, "put_if_absent", original)
                return put(storage, name, data)

        patch.setattr(LocalStorage, "put_if_absent", played)
        if lands:
            assert log.commit(Proposal({"ours": 1}), state) == 1
        else:
            with pytest.raises(OffsetStoreError, match=r"cannot commit to the Delta table at .*: no answer"):
                log.commit(Proposal({"ours": 1}), state)
    assert log.state().version == (1 if lands else 0)


def test_a_put_that_is_not_answered_is_made_again(hand: HandLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalStorage, "is_local", False)
    original, answers = LocalStorage.put_if_absent, [lost_request, lost_request]

    def played(storage: LocalStorage, name: str, data: bytes) -> bool:
        return answers.pop()(storage, name, data) if answers else original(storage, name, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", played)
    log = opened(hand)
    assert log.commit(Proposal({"ours": 1}), log.state()) == 1


def test_a_table_that_was_made_again_is_seen(hand: HandLog) -> None:
    log = opened(hand)
    hand.commit(txn("ours", 1))
    assert log.state().transactions == {"ours": 1}
    shutil.rmtree(hand.path)
    hand.create()
    hand.commit(txn("ours", 7))
    assert log.state().transactions == {"ours": 7}
    shutil.rmtree(hand.path)
    with pytest.raises(StoreMissingError, match="there is no Delta table at"):
        log.state()


def test_a_table_that_is_made_again_while_it_is_read_is_seen(hand: HandLog, monkeypatch: pytest.MonkeyPatch) -> None:
    hand.commit(txn("ours", 1))
    log, whole = opened(hand), LocalStorage.read

    def read(storage: LocalStorage, name: str) -> bytes:
        data = whole(storage, name)
        if name.endswith("1.json") and b'"version": 1' in data:
            shutil.rmtree(hand.path)
            hand.create()
            hand.commit(txn("ours", 7))
        return data

    monkeypatch.setattr(LocalStorage, "read", read)
    assert log.state().transactions == {"ours": 1}
    assert log.state().transactions == {"ours": 7}


@pytest.mark.parametrize("hours", [0, 2])
def test_a_commit_into_the_past_has_not_landed(hand: HandLog, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    """A process is suspended for so long that the log is cleaned up beyond the version that it puts."""
    monkeypatch.setattr(table_log, "now_ms", lambda: 1)
    log = opened(hand)
    state = log.state()
    hand.commits(3)
    hand.checkpoint()
    original = LocalStorage.put_if_absent

    def suspended(storage: LocalStorage, name: str, data: bytes) -> bool:
        if hours:
            hand.delete_before(3)
        return original(storage, name, data)

    monkeypatch.setattr(LocalStorage, "put_if_absent", suspended)
    monkeypatch.setattr(table_log, "now_ms", lambda: 1 + hours * 3_600_000)
    if not hours:
        assert log.commit(Proposal({"ours": 1}), state) == 4
        return
    with pytest.raises(OffsetStoreError, match=r"version 1 .* 120 minutes after .* no reader finds it"):
        log.commit(Proposal({"ours": 1}), state)
    assert log.state().version == 3
    assert "ours" not in log.state().transactions


def test_a_commit_that_is_in_a_checkpoint_stays_when_the_log_before_it_is_cleaned_up(
    hand: HandLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process is suspended right after its put."""
    monkeypatch.setattr(table_log, "now_ms", lambda: 1)
    hand.commits(3)
    log = opened(hand)
    state, original = log.state(), LocalStorage.put_if_absent

    def suspended(storage: LocalStorage, name: str, data: bytes) -> bool:
        landed = original(storage, name, data)
        hand.checkpoint()
        hand.delete_before(4)
        return landed

    monkeypatch.setattr(LocalStorage, "put_if_absent", suspended)
    assert log.commit(Proposal({"ours": 1}), state) == 4
    assert (hand.folder / f"{4:020d}.json").exists()
    assert opened(hand).state().transactions["ours"] == 1


def damaged(hand: HandLog, version: int, text: str | None) -> None:
    path = hand.folder / f"{version:020d}.json"
    path.unlink() if text is None else path.write_text(text)


@pytest.mark.parametrize(
    ("version", "text", "why"),
    [
        (1, None, r"version 1 is missing from .*_delta_log, and other files say that it was there"),
        (0, None, r"version 0 is missing from"),
        (2, "", r"version 2 in .*: its file is empty"),
        (
            2,
            '{"txn":{"appId":"a","version":1}}\n{"add":{"path"',
            r"version 2 in .*: line 2 of its file is no whole",
        ),
        (0, '{"commitInfo":{}}\n', r"version 0 in .* has no protocol"),
        (1, '{"metaData":{"id":"t"}}\n', r"version 1 in .* has a metadata action that cannot be read"),
    ],
)
def test_a_damaged_log_is_refused_by_name(hand: HandLog, version: int, text: str | None, why: str) -> None:
    hand.commit(txn("a", 1))
    hand.commit(txn("a", 2))
    damaged(hand, version, text)
    with pytest.raises(OffsetStoreError, match=why):
        opened(hand).state()


def test_a_hole_that_appears_is_not_filled(hand: HandLog) -> None:
    log = opened(hand)
    log.state()
    hand.commit(txn("a", 1))
    hand.commit(txn("a", 2))
    damaged(hand, 1, None)
    with pytest.raises(OffsetStoreError, match="version 1 is missing"):
        log.state()


@pytest.mark.parametrize(
    ("protocol", "kind", "why"),
    [
        ({"minReaderVersion": 4, "minWriterVersion": 7}, OffsetStoreError, "requires reader version 4"),
        (with_features(readers=("fromTheFuture",)), OffsetStoreError, "requires the reader feature fromTheFuture"),
        (with_features(readers=("catalogManaged",)), CatalogManagedError, "the feature catalogManaged"),
    ],
)
def test_a_protocol_from_the_future_is_not_read(tmp_path: Path, protocol: Json, kind: Any, why: str) -> None:
    hand = HandLog(tmp_path / "t")
    hand.create(protocol=protocol)
    with pytest.raises(kind, match=why):
        opened(hand).state()


def test_a_writer_feature_from_the_future_is_read_and_not_written(tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "t")
    hand.create(protocol=with_features("fromTheFuture"))
    log = opened(hand)
    with pytest.raises(OffsetStoreError, match="it requires the writer feature fromTheFuture"):
        log.commit(Proposal({"ours": 1}), log.state())
    assert hand.names() == [f"{0:020d}.json"]


def test_a_file_system_without_links_is_refused(hand: HandLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    log = opened(hand)
    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(OffsetStoreError, match=r"has no hard links, .* Keep the table on a file system that has them"):
        log.commit(Proposal({"ours": 1}), log.state())
    assert hand.names() == [f"{0:020d}.json"]


def test_an_action_behind_a_null_or_under_an_escaped_name_is_read(hand: HandLog) -> None:
    lines = ['{"cdc":null,"txn":{"appId":"a","version":1}}', '{"\\u0074xn":{"appId":"b","version":2}}', ""]
    (hand.folder / f"{1:020d}.json").write_text("\n".join(lines))
    assert opened(hand).state().transactions == {"a": 1, "b": 2}


@pytest.mark.parametrize("line", ['{*txn":{"appId":"a","version":1}}', '{"txn":5}', "[1]"])
def test_a_line_that_is_no_action_is_refused(hand: HandLog, line: str) -> None:
    hand.commit(txn("a", 1))
    path = hand.folder / f"{1:020d}.json"
    path.write_text(f"{line}\n{path.read_text()}")
    with pytest.raises(OffsetStoreError, match=r"is no (whole )?(JSON )?object"):
        opened(hand).state()


def test_a_commit_is_not_refused_for_the_checksum_of_a_former_file(hand: HandLog) -> None:
    checksum = hand.folder / f".{1:020d}.json.crc"
    checksum.write_bytes(b"crc")
    log = opened(hand)
    log.commit(Proposal({"ours": 1}), log.state())
    assert not checksum.exists()


def test_a_table_that_was_replaced_gets_no_commit_of_the_former_one(hand: HandLog) -> None:
    log = opened(hand)
    hand.commit(txn("ours", 1))
    state = log.state()
    shutil.rmtree(hand.path)
    hand.create()
    with pytest.raises(CommitConflictError, match="replaced by another"):
        log.commit(Proposal({"ours": 2}), state)
    assert len(hand.names()) == 1


def test_a_wide_hole_is_noticed_when_the_log_is_listed(hand: HandLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_log, "now_ms", lambda: 0)
    log = opened(hand)
    log.state()
    for number in (1, 2, 3):
        hand.commit(txn("a", number))
    for version in (1, 2):
        damaged(hand, version, None)
    monkeypatch.setattr(table_log, "now_ms", lambda: table_log.LIST_EVERY_MS + 1)
    with pytest.raises(OffsetStoreError, match="version 1 is missing"):
        log.state()
