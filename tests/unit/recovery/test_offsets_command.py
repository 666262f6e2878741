"""`sparkonce offsets` on tables with batches of ours: what it shows, what it changes, and when it refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kafka.admin import NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import look
from sparkonce.exactly_once.decision import Fresh, Mismatch, decide
from sparkonce.exactly_once.recovery import plan_rewind
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store.administration import NOTHING_KEPT, ChangeKind, OffsetsTable
from sparkonce.offset_store.errors import CommitConflictError, OffsetStoreError
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.reader import DeltaLog
from sparkonce.offset_store.log.storage import LocalStorage
from sparkonce.offset_store.log.table_log import TableLog
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord, Writes
from sparkonce.offset_store.txn_ids import QueryTxn, offset_txn_id
from tests.unit.recovery.recovery_support import APP, QUERY, SOURCE, TOPIC_ID, Pipeline, key, partition

DEADLINE_S = 20


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Versions 1 to 3: batches of ten records of partition 0; the second has five of partition 1, too."""
    pipeline = Pipeline.create(tmp_path / "table")
    pipeline.commit(0, {0: (0, 10)})
    pipeline.commit(1, {0: (10, 20), 1: (100, 105)})
    pipeline.commit(2, {0: (20, 30)})
    return pipeline


def offsets(*words: object) -> int:
    return main(["offsets", *map(str, words)])


def set_offset(pipeline: Pipeline, offset: int, *words: object) -> int:
    wanted = ("--app-id", APP, "--topic", "shop.orders", "--partition", 0, "--offset", offset)
    return offsets("set", pipeline.path, *wanted, *words)


def test_show(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert offsets("show", f"delta:{pipeline.path}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"table {pipeline.path}, version 3"
    assert lines[2] == f"  topic shop.orders, id {TOPIC_ID}, source {SOURCE}"
    assert [each.split() for each in lines[4:6]] == [["0", "30", "version", "3"], ["1", "105", "version", "2"]]
    assert lines[6] == f"  query {QUERY}: last batch 2, version 3"
    assert [each[: each.index(":")] for each in lines[7:]] == ["  version 3", "  version 2"]
    assert lines[8].endswith(f", batch 1 of query {QUERY}")
    assert max(map(len, lines[1:])) <= 80


def test_show_without_the_brokers_has_what_the_table_has(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--bootstrap-servers", "127.0.0.1:1", "--kafka", "socket.connection.setup.timeout.ms=50")
    assert offsets("show", pipeline.path, *words) == 1
    shown = capsys.readouterr()
    assert shown.out.splitlines()[4].split() == ["0", "30", "version", "3"]
    assert shown.err.startswith("sparkonce offsets show: no answer from Kafka at 127.0.0.1:1")
    assert offsets("show", pipeline.path, "--json", *words) == 1
    assert capsys.readouterr().out == ""


def test_show_of_a_table_without_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Pipeline.create(tmp_path / "table")
    assert offsets("show", tmp_path / "table") == 0
    assert "no offsets of sparkonce are stored" in capsys.readouterr().out


@pytest.mark.parametrize(
    "info",
    [
        {"timestamp": "abc"},
        {"timestamp": 10**18},
        {"timestamp": [1], "inCommitTimestamp": True},
        {"operation": "RESTORE", "operationParameters": ["version"]},
        {"operation": "RESTORE", "operationParameters": "7"},
        {"sparkonce": {"kind": "set", "moves": [5], "batches": []}},
        {"sparkonce": {"ranges": [], "appId": "a", "queryId": "q", "batchId": 0, "attemptId": "a", "writes": []}},
    ],
)
def test_what_others_write_into_their_commits_stops_nobody(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], info: dict[str, object]
) -> None:
    theirs = [{"commitInfo": info}, {"txn": {"appId": offset_txn_id(APP, SOURCE, partition(7)), "version": 5}}]
    log = pipeline.path / "_delta_log" / f"{4:020d}.json"
    log.write_text("\n".join(json.dumps(action) for action in theirs))
    pipeline.commit(3, {0: (30, 40)})
    assert offsets("show", pipeline.path) == 0
    assert "version 4: time unknown" in capsys.readouterr().out
    assert offsets("rewind", pipeline.path, "--app-id", APP, "--to-version", 3) == 1
    assert "was not stored at version 3" in capsys.readouterr().err


def test_names_and_ids_outlive_the_log(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """After log clean-up only the checkpoint has the ids, and nothing has the topic's name or the commits."""
    Pipeline(pipeline.path, "other").commit(0, {})
    DeltaTable(str(pipeline.path)).create_checkpoint()
    for version in range(4):
        (pipeline.path / "_delta_log" / f"{version:020d}.json").unlink()
    assert pipeline.offsets() == {0: 30, 1: 105}
    assert offsets("show", pipeline.path) == 0
    shown = capsys.readouterr().out
    assert "no longer kept" in shown
    assert offsets("rewind", pipeline.path, "--app-id", APP, "--to-version", 1) == 1
    assert "version 1 of" in capsys.readouterr().err
    # The id still names the offset.
    assert set_offset(pipeline, 12, "--topic-id", TOPIC_ID, "--apply") == 0
    assert "30 -> 12" in capsys.readouterr().out
    assert pipeline.offsets()[0] == 12


def test_a_dry_run_changes_nothing(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_offset(pipeline, 15) == 0
    assert "records [15, 30) of shop.orders-0 are read again" in (shown := capsys.readouterr().out)
    assert "repeat with --apply --if-version 3" in shown
    assert pipeline.version == 3


def test_set_back_and_forth(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert set_offset(pipeline, 15, "--apply", "--if-version", 3) == 0
    assert pipeline.offsets() == {0: 15, 1: 105}
    assert set_offset(pipeline, 50, "--apply") == 0
    assert "records [15, 50) of shop.orders-0 are never read: lost on purpose" in capsys.readouterr().out
    assert pipeline.offsets() == {0: 50, 1: 105}
    assert set_offset(pipeline, 50, "--apply") == 0
    assert "nothing to change" in capsys.readouterr().out
    assert pipeline.version == 5
    assert pipeline.rows() == sorted([*range(30), *range(100, 105)])


def test_history_and_show_tell_of_the_hand(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    set_offset(pipeline, 15, "--apply")
    newest = pipeline.opened().entries()[0]
    assert newest.change is not None
    assert newest.change.kind is ChangeKind.SET
    assert [(move.key, move.before, move.after) for move in newest.change.moves] == [(key(), 30, 15)]
    capsys.readouterr()
    offsets("show", pipeline.path)
    assert "set by hand" in capsys.readouterr().out
    assert len(pipeline.store().snapshot().history()) == 3, "the batches' own history is as before"


def test_the_hand_is_named_only_where_it_moved_something(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit by hand writes the query's number too, unchanged, so that a driver's commit conflicts with it."""
    set_offset(pipeline, 15, "--apply")
    capsys.readouterr()
    offsets("show", pipeline.path)
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].endswith("version 4")
    assert lines[5].endswith("version 2")
    assert lines[6] == f"  query {QUERY}: last batch 2, version 3"
    assert lines[7].endswith("set by hand")
    assert lines[8].endswith(f", batch 2 of query {QUERY}")
    assert offsets("rewind", pipeline.path, "--restore", "--to-version", 1, "--apply") == 0
    capsys.readouterr()
    offsets("show", pipeline.path)
    assert capsys.readouterr().out.splitlines()[-1].endswith("restore by hand")


def test_a_dry_run_that_is_out_of_date_is_not_applied(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.commit(3, {0: (30, 40)})
    assert set_offset(pipeline, 15, "--apply", "--if-version", 3) == 1
    assert "offsets moved between version 3 and version 4" in capsys.readouterr().err
    assert pipeline.offsets()[0] == 40


def test_compaction_does_not_make_a_dry_run_out_of_date(pipeline: Pipeline) -> None:
    assert main(["compact", str(pipeline.path)]) == 0
    assert pipeline.version > 3
    assert set_offset(pipeline, 15, "--apply", "--if-version", 3) == 0
    assert pipeline.offsets()[0] == 15


def test_it_says_with_which_checkpoint_to_go_on(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Where rows go back, the checkpoint of that version fits again, and a query with state needs it."""
    assert offsets("rewind", pipeline.path, "--app-id", APP, "--to-version", 2, "--apply") == 0
    assert "goes on from its checkpoint. Start it with a new checkpointLocation" in capsys.readouterr().out
    assert offsets("rewind", pipeline.path, "--restore", "--to-version", 1, "--apply") == 0
    assert "Start it from the checkpoint that goes with version 1" in capsys.readouterr().out


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("moved", [0, 1])
def test_a_driver_that_writes_meanwhile_wins(pipeline: Pipeline, restore: bool, moved: int) -> None:
    """Even if it moves another partition than the hand: it carries the query's number, which the hand pins."""
    opened = pipeline.opened()
    change = plan_rewind(opened.stored(), opened.stored(2), opened.entries(), app_id=APP, restore=restore)
    end = pipeline.offsets()[moved]
    pipeline.commit(3, {moved: (end, end + 10)})
    with pytest.raises(CommitConflictError, match="after version 3, from which this change was decided"):
        opened.apply(change)
    assert pipeline.version == 4
    assert pipeline.offsets()[moved] == end + 10


def test_a_driver_decides_anew_after_the_hand(pipeline: Pipeline) -> None:
    snapshot = pipeline.store().snapshot()
    set_offset(pipeline, 15, "--apply")
    record = BatchRecord(APP, QUERY, 3, "late", {(SOURCE, partition()): OffsetRange(30, 40)})
    batch = Batch(record, stateful=False)
    assert isinstance(decide(look(snapshot, batch), batch), Fresh)
    assert isinstance(decide(look(pipeline.store().snapshot(), batch), batch), Mismatch)


def test_a_commit_whose_answer_is_lost_is_found(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pipeline.opened()
    change = plan_rewind(opened.stored(), opened.stored(2), opened.entries(), app_id=APP, restore=False)
    whole = TableLog.commit

    def lossy(self: TableLog, *words: Any) -> int:
        whole(self, *words)
        raise OSError("planted: the answer is lost")

    monkeypatch.setattr(TableLog, "commit", lossy)
    assert opened.apply(change) == 4
    assert pipeline.offsets()[0] == 20


def test_a_commit_that_landed_is_believed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing may not show it yet."""
    opened = pipeline.opened()
    change = plan_rewind(opened.stored(), opened.stored(2), opened.entries(), app_id=APP, restore=False)
    monkeypatch.setattr(OffsetsTable, "_version_of", lambda *_: None)
    assert opened.apply(change) == 4


def test_a_commit_that_fails_is_said(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pipeline.opened()
    change = plan_rewind(opened.stored(), opened.stored(2), opened.entries(), app_id=APP, restore=False)

    def broken(self: TableLog, *words: object) -> int:
        raise OSError("planted: no space")

    monkeypatch.setattr(TableLog, "commit", broken)
    with pytest.raises(OffsetStoreError, match=r"failed\. .* may still be under way: .*\. Why: planted: no space"):
        opened.apply(change)


def test_on_an_object_store_commits_are_fetched_ahead(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two commits after the newest can only be read if they are asked for at the same time."""
    both = threading.Barrier(2)
    whole = DeltaLog.actions

    def together(log: DeltaLog, version: int, kinds: Iterable[str]) -> dict[str, list[Action]]:
        if version in (1, 2):
            both.wait(DEADLINE_S)
        return whole(log, version, kinds)

    wanted, opened = pipeline.opened().entries(), pipeline.opened()
    monkeypatch.setattr(LocalStorage, "is_local", False)
    monkeypatch.setattr(DeltaLog, "actions", together)
    entries = opened.entries()
    assert entries == wanted
    assert [entry.version for entry in entries] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("target", "expected"),
    [(("--to-version", 2), {0: 20, 1: 105}), (("--batches", 2), {0: 10, 1: 100}), (("--batches", 3), {0: 0, 1: 100})],
)
def test_rewind(pipeline: Pipeline, target: tuple[str, int], expected: dict[int, int]) -> None:
    assert offsets("rewind", pipeline.path, "--app-id", APP, *target) == 0
    assert pipeline.version == 3
    assert offsets("rewind", pipeline.path, "--app-id", APP, *target, "--apply") == 0
    assert pipeline.offsets() == expected
    assert len(pipeline.rows()) == 35, "rows stay"
    assert pipeline.opened().stored().batches == {QueryTxn(APP, QUERY): 2}


def test_rewind_to_a_time(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert offsets("rewind", pipeline.path, "--app-id", APP, "--to-timestamp", "2001-01-01") == 1
    assert "younger" in capsys.readouterr().err
    assert offsets("rewind", pipeline.path, "--app-id", APP, "--to-timestamp", "2999-01-01") == 1
    assert "version 3 is not older than the table" in capsys.readouterr().err


def test_restore_takes_rows_offsets_and_batch_numbers_back(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Pipeline(pipeline.path, "other")
    other.commit(0, {0: (0, 3)}, query_id="theirs")
    assert offsets("rewind", pipeline.path, "--restore", "--to-version", 1, "--apply") == 0
    shown = capsys.readouterr().out
    assert "the rows go back to version 1: 3 commits undone, 3 batches among them" in shown
    assert "records [10, 30) of shop.orders-0 are read again; their rows leave the table in this very commit" in shown
    assert pipeline.rows() == list(range(10))
    assert pipeline.offsets() == {0: 10, 1: 100}
    assert other.offsets() == {0: 0}
    assert pipeline.opened().stored().batches == {QueryTxn(APP, QUERY): 0, QueryTxn("other", "theirs"): NOTHING_KEPT}
    # From here the batch that was undone is fresh again, in the old query as in a new one.
    pipeline.commit(1, {0: (10, 20), 1: (100, 105)})
    assert pipeline.rows() == sorted([*range(20), *range(100, 105)])


def test_audit_and_restore_name_the_commits_of_a_compaction(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", str(pipeline.path)]) == 0
    capsys.readouterr()
    assert main(["audit", str(pipeline.path)]) == 0
    shown = capsys.readouterr().out
    assert "  other commits of sparkonce: compaction 1, compaction claim 2\n" in shown
    assert "  skipped, with no record of ours: CREATE TABLE 1\n" in shown
    assert offsets("rewind", pipeline.path, "--restore", "--to-version", 2) == 0
    assert "the others are: compaction, compaction claim; what they wrote" in capsys.readouterr().out
    for kind, words in (("rewound", ["--app-id", APP]), ("restored", ["--restore"])):
        assert offsets("rewind", pipeline.path, *words, "--to-version", 2, "--apply") == 0
        capsys.readouterr()
        main(["audit", str(pipeline.path)])
        assert f"{kind} by hand 1" in capsys.readouterr().out


def test_restore_without_the_files_changes_nothing(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", str(pipeline.path)]) == 0
    DeltaTable(str(pipeline.path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    before = pipeline.rows()
    assert offsets("rewind", pipeline.path, "--restore", "--to-version", 2, "--apply") == 1
    assert "nothing was changed" in capsys.readouterr().err
    assert (pipeline.rows(), pipeline.offsets()) == (before, {0: 30, 1: 105})


def test_restore_in_a_store_of_offsets_only_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Pipeline.create(tmp_path / "offsets")
    for batch_id in range(2):
        store.commit(batch_id, {0: (batch_id * 10, batch_id * 10 + 10)}, Writes.OFFSETS)
    assert offsets("rewind", store.path, "--restore", "--batches", 1, "--apply") == 0
    told = capsys.readouterr().out
    assert "this table holds offsets only" in told
    assert "are read again: duplicates" in told
    assert "leave the table in this very commit" not in told
    assert store.offsets() == {0: 10}


def test_show_warns_of_a_restore_that_left_the_offsets(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    """Delta's own RESTORE moves rows only."""
    DeltaTable(str(pipeline.path)).restore(2)
    pipeline.commit(3, {0: (30, 40)})
    assert offsets("show", pipeline.path) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 1
    assert "version 4 put the rows back to version 2 with RESTORE" in warnings[0]
    assert "records [20, 30) of shop.orders-0" in warnings[0]
    advice = warnings[0].partition("sparkonce offsets ")[2].split()
    assert offsets(*advice, "--apply") == 0
    capsys.readouterr()
    offsets("show", pipeline.path)
    assert "WARNING" not in capsys.readouterr().out
    for batch_id, start in ((2, 20), (3, 30)):
        pipeline.commit(batch_id, {0: (start, start + 10)})
    assert pipeline.rows() == sorted([*range(40), *range(100, 105)])


def test_what_show_writes_set_reads(pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert offsets("show", pipeline.path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    document["applications"][0]["offsets"][1]["nextOffset"] = 101
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(document))
    assert offsets("set", pipeline.path, "--from-json", file, "--apply") == 0
    assert pipeline.offsets() == {0: 30, 1: 101}
    document["applications"][0]["offsets"][1]["nextOffset"] = "101"
    file.write_text(json.dumps(document))
    assert offsets("set", pipeline.path, "--from-json", file, "--apply") == 2
    assert "not a whole number" in capsys.readouterr().err
    file.write_text("[]")
    assert offsets("set", pipeline.path, "--from-json", file, "--apply") == 2
    assert "is not what `sparkonce offsets show --json` writes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"appId": 5}, "appId 5 is not a text"),
        ({"source": None}, "source None is not a text"),
        ({"topic": ["t"]}, "topic ['t'] is not a text"),
        ({"topicId": None}, "topicId None is not a text"),
        ({"topicId": "x/y"}, "'x/y' is not a topic id"),
        ({"topicId": "", "topic": "x/y"}, "there can be no topic 'x/y'"),
        ({"topicId": "", "topic": ""}, "there can be no topic ''"),
        ({"partition": -1}, "partition -1 is not between 0 and 2147483647"),
        ({"partition": 1 << 31}, "is not between 0 and"),
        ({"partition": "0"}, "partition '0' is not a whole number"),
        ({"source": "\ud800"}, "surrogates not allowed"),
    ],
)
def test_a_file_of_what_nobody_would_read(
    pipeline: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, object], said: str
) -> None:
    one = {"source": SOURCE, "topic": "t", "topicId": TOPIC_ID, "partition": 0, "nextOffset": 5} | changed
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"applications": [{"appId": one.pop("appId", APP), "offsets": [one]}]}))
    assert offsets("set", pipeline.path, "--from-json", file) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["x/y", TOPIC_ID[:-1], TOPIC_ID[:-1] + "B", TOPIC_ID + "=", "A" * 22, ""])
def test_topic_ids_that_no_topic_has(pipeline: Pipeline, capsys: pytest.CaptureFixture[str], wrong: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        set_offset(pipeline, 12, "--topic-id", wrong, "--apply")
    assert "is not a topic id: 22 characters" in capsys.readouterr().err
    assert pipeline.version == 3


@pytest.mark.parametrize(
    ("status", "words", "said"),
    [
        (2, ("set", "--topic", "t", "--partition", 0, "--offset", 0), "give --app-id"),
        (1, ("set", "--app-id", "nobody", "--topic", "t", "--partition", 0, "--offset", 0), "has no offsets"),
        (1, ("set", "--app-id", APP, "--topic", "t", "--partition", 0, "--offset", 0), "does not know it"),
        (2, ("set", "--from-json", "x", "--offset", 3), "give --from-json, or"),
        (2, ("set", "--from-json", "/nowhere.json"), "cannot read /nowhere.json"),
        (2, ("rewind", "--to-version", 1), "give --app-id"),
        (1, ("rewind", "--to-version", 1, "--app-id", "nobody"), "no offsets of appId nobody"),
        (1, ("rewind", "--to-version", 3, "--app-id", APP), "not older"),
        (2, ("show", "--bootstrap-servers", "nowhere"), "is not host:port"),
        (2, ("show", "--command-config", "/nowhere/at.all"), "--command-config /nowhere/at.all: there is no such file"),
        (2, ("show", "--kafka", "security.protocol=SSL"), "kafka.bootstrap.servers must be specified"),
    ],
)
def test_refusals(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], status: int, words: tuple[object, ...], said: str
) -> None:
    assert offsets(words[0], pipeline.path, *words[1:]) == status
    assert said in capsys.readouterr().err
    assert pipeline.version == 3


def test_rows_without_offsets_are_not_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = Pipeline.create(tmp_path / "table")
    for batch_id in range(2):
        rows.commit(batch_id, {0: (batch_id, batch_id + 1)}, Writes.ROWS)
    assert offsets("rewind", rows.path, "--restore", "--to-version", 1, "--apply") == 1
    assert "holds no offsets of sparkonce" in capsys.readouterr().err
    assert rows.rows() == [0, 1]


def test_consumer_groups_are_moved_by_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        offsets("show", "group:orders")
    assert "kafka-consumer-groups.sh" in capsys.readouterr().err


def test_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert offsets("show", tmp_path / "none") == 1
    assert "there is no Delta table" in capsys.readouterr().err


def test_with_a_broker(tmp_path: Path, kafka_broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    from kafka import KafkaAdminClient, KafkaProducer

    servers = kafka_broker.bootstrap_servers
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic("shop.orders", 2, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers)
    for _ in range(25):
        producer.send("shop.orders", b"x", partition=0)
    producer.flush()
    producer.close()
    client = Client(read_settings({"kafka.bootstrap.servers": servers}))
    topic_id = client.topics(["shop.orders"])["shop.orders"].topic_id
    client.close()

    pipeline = Pipeline.create(tmp_path / "table")
    wanted = ("--app-id", APP, "--topic", "shop.orders", "--partition", 0, "--bootstrap-servers", servers)
    assert offsets("set", pipeline.path, *wanted, "--offset", 26, "--apply") == 1
    assert "holds offsets 0 to 25; 26 is not among them" in capsys.readouterr().err
    assert offsets("set", pipeline.path, *wanted, "--offset", 10, "--apply") == 0
    pipeline.commit(0, {1: (0, 4)})  # of a topic of that name with another id
    capsys.readouterr()
    assert offsets("show", pipeline.path, "--bootstrap-servers", servers, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    first, second = document["applications"][0]["offsets"]
    there, old = (first, second) if first["topicId"] == topic_id else (second, first)
    assert (there["logStart"], there["logEnd"], there["lag"], there["state"]) == (0, 25, 15, "there")
    assert old["state"] == "recreated"
    assert "the topic was deleted and created again" in document["warnings"][0]
    config = tmp_path / "client.properties"
    config.write_text(f"# as Kafka's tools take it\nbootstrap.servers=nowhere:1\nkafka.bootstrap.servers={servers}\n")
    for named in (("--bootstrap-servers", servers), ("--command-config", config)):
        assert offsets("show", pipeline.path, *named) == 0
        assert "topic recreated" in capsys.readouterr().out
