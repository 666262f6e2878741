"""`sparkonce audit` as a process: what it prints, and its exit status."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable, write_deltalake

from sparkonce import AuditError, EmbeddedBroker, audit
from sparkonce.exactly_once.audit import Scope
from sparkonce.exactly_once.audit_findings import Finding, Problem
from sparkonce.exactly_once.audit_table import Readers, audit_table
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import Writes
from tests.unit.audit.logs import Table, key, partition, record

PROJECT = Path(__file__).resolve().parents[3]
DEADLINE_S = 30
BATCHES = 5
TOPIC_ID = "sblbN6IwRFKme6EAni0UEA"
LAST_LINE = re.compile(
    r"AUDIT commits=\d+ partitions=\d+ gaps=\d+ overlaps=\d+ warnings=\d+ (?:others=\d+ )?"
    r"verdict=(proven|broken|unproven)"
)


@dataclass
class Ended:
    """How a command ended, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Ended:
    """Run the command in this process, which starts sooner than one of its own."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr):
        try:
            status = main(["audit", *map(str, arguments)])
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 1
    return Ended(status, stdout.getvalue(), stderr.getvalue())


def run_process(*arguments: object) -> Ended:
    ended = subprocess.run(
        [sys.executable, "-m", "sparkonce.jobs.cli.main", "audit", *map(str, arguments)],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def last_line(ended: Ended) -> str:
    line = ended.stdout.splitlines()[-1]
    assert LAST_LINE.fullmatch(line)
    return line


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table.create(tmp_path / "table")
    made.batches(BATCHES)
    return made


def test_the_table_of_offsets_of_a_merged_result_is_named(tmp_path: Path) -> None:
    """With storage as it is for both: the result has rows and no offsets, the other offsets and no rows."""
    write_deltalake(tmp_path / "result", pa.table({"id": [1]}))
    ended = run(tmp_path / "result")
    assert ended.stderr.endswith("If they live in another place (offsetStore=delta:<path>), audit that table\n")
    Table.create(tmp_path / "result/_sparkonce").batches(BATCHES)
    ended = run(tmp_path / "result")
    named = re.search(r"holds no offsets\. Those of .* are in (.*): audit that table$", ended.stderr)
    assert (ended.returncode, named is not None) == (1, True), ended.stderr
    assert named is not None
    assert last_line(run(named[1])).endswith("verdict=proven")


def test_the_exit_status_is_for_continuous_integration(table: Table, tmp_path: Path) -> None:
    ended = run_process(table.path)
    assert ended.returncode == 0, ended.stderr
    assert last_line(ended).endswith("verdict=proven")
    table.batch(skip=1)
    ended = run_process(table.path)
    assert ended.returncode == 1, ended.stderr
    assert last_line(ended).endswith("verdict=broken")
    ended = run_process(tmp_path / "none")
    assert ended.returncode == 1
    assert ended.stderr.startswith("sparkonce audit: there is no Delta table at ")
    assert "Traceback" not in ended.stderr


def test_a_good_table_is_proven(table: Table) -> None:
    ended = run(table.path)
    assert ended.returncode == 0, ended.stderr
    assert last_line(ended) == f"AUDIT commits={BATCHES + 1} partitions=2 gaps=0 overlaps=0 warnings=0 verdict=proven"
    assert "Every commit since the table was made is kept" in ended.stdout
    assert re.search(r"app +default +orders-1 +A{21}Q +5 +0 +50 +50", ended.stdout)
    assert not ended.stderr


def test_in_python_it_says_the_same(table: Table) -> None:
    proof = audit(str(table.path))
    assert proof.proven
    assert str(proof) == run(table.path).stdout.rstrip("\n")
    assert "verdict=proven" in proof._repr_html_()
    table.batch(skip=1)
    broken = audit(f"delta:{table.path}", app_id="app")
    assert not broken.proven
    assert "gap [" in broken._repr_html_()


def test_the_audit_asks_the_readers_that_it_is_given(table: Table) -> None:
    """It lies beneath the clients of Kafka and of delta-spark, so its caller brings these."""
    readers = Readers(
        lambda options, chains: {chain.topic: None for chain in chains if options},
        lambda _log, app_ids: [Finding(Problem.STORED_MISMATCH, f"planted for {app_id}") for app_id in app_ids],
        lambda _log: None,
    )
    proof = audit_table(
        Location.parse(str(table.path)),
        Scope(),
        {"kafka.bootstrap.servers": "nowhere:1"},
        None,
        {},
        expect_all_rows=False,
        strict=False,
        readers=readers,
        progress=lambda commits: nullcontext(lambda: None),
    )
    assert {"planted for app"} < {each.message for each in proof.report.findings}
    assert proof.report.counts[Problem.TOPIC_DELETED] == 2


def test_in_python_what_cannot_be_examined_is_an_error(table: Table) -> None:
    with pytest.raises(AuditError, match="holds no offsets of appId another"):
        audit(str(table.path), app_id="another")
    with pytest.raises(ValueError, match="coordinates must say how they are counted"):
        audit(str(table.path), expect_all_rows=True)
    with pytest.raises(ValueError, match="expected PARTITION_COLUMN"):
        audit(str(table.path), coordinates="offset")


def test_a_gap_is_named_with_its_commit(table: Table) -> None:
    version = table.batch(partitions=[1], skip=2)
    ended = run(table.path, "--app-id", "app")
    assert ended.returncode == 1
    assert last_line(ended).endswith("gaps=1 overlaps=0 warnings=0 verdict=broken")
    named = next(line for line in ended.stdout.splitlines() if line.startswith("First bad commit"))
    assert re.match(rf"First bad commit: version {version}, \d{{4}}-.*, batch {BATCHES} of query [0-9a-f-]+: ", named)
    assert "[gap] orders-1 (appId app, source default): gap [50, 52)" in named


def test_the_report_as_json_is_one_document(table: Table) -> None:
    version = table.batch(skip=-1)
    ended = run(table.path, "--json")
    assert ended.returncode == 1
    document = json.loads(ended.stdout)
    assert document["verdict"] == "broken"
    assert document["firstBad"]["version"] == version
    assert document["firstBad"]["problem"] == "overlap"
    assert document["counts"] == {"overlap": 2}
    assert [each["ranges"] for each in document["partitions"]] == [[[0, 59]], [[0, 59]]]
    assert LAST_LINE.fullmatch(ended.stderr.strip())


def test_the_guide_names_every_problem_and_option() -> None:
    guide = (PROJECT / "docs" / "audit.md").read_text()
    findings = (PROJECT / "docs" / "audit_findings.md").read_text()
    named = set(re.findall(r"`([a-z-]+)`", findings))
    assert {problem.value for problem in Problem} <= named
    options = set(re.findall(r"--[a-z-]+", run("--help").stdout)) - {"--help"}
    assert options == set(re.findall(r"`(--[a-z-]+)", guide))


def test_the_log_is_said_to_be_cleaned_up(table: Table) -> None:
    table.clean_up_log()
    table.batches(1)
    ended = run(table.path)
    assert ended.returncode == 0, ended.stderr
    assert f"Versions before {table.version - 1} were cleaned up (delta.logRetentionDuration)" in ended.stdout
    assert f"from what the checkpoint of version {table.version - 1} holds" in ended.stdout


def test_a_warning_is_an_error_under_strict_only(table: Table) -> None:
    version = table.batch(writes=Writes.OFFSETS)
    ended = run(table.path)
    assert ended.returncode == 0
    assert last_line(ended).endswith("warnings=1 verdict=proven")
    ended = run(table.path, "--strict")
    assert ended.returncode == 1
    assert "[offsets-without-rows]" in ended.stdout
    assert f"First bad commit: version {version}, " in ended.stdout
    assert last_line(ended).endswith("verdict=broken")


def test_rows_and_offsets_taken_back_by_our_command_leave_a_whole_chain(table: Table) -> None:
    table.rows([(0, 0)])
    back_to = table.version
    table.batches(2)
    with redirect_stdout(io.StringIO()):
        rewind = ["offsets", "rewind", str(table.path), "--to-version", str(back_to), "--restore", "--apply"]
        assert main(rewind) == 0
    table.ends, table.next_batch = {key(0): BATCHES * 10, key(1): BATCHES * 10}, BATCHES
    table.batches(3)
    ended = run(table.path, "--json")
    assert ended.returncode == 0, ended.stdout
    report = json.loads(ended.stdout)
    assert [each["ranges"] for each in report["partitions"]] == [[[0, BATCHES * 10 + 30]]] * 2
    assert report["counts"] == {"moved-on-purpose": 2}
    assert report["commits"]["manualChanges"] == 1


def test_offsets_that_were_only_set_by_hand_prove_nothing(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "table")
    table.rows([(0, 0), (0, 1), (0, 1)])
    by_hand = [
        "--app-id",
        "app",
        "--source",
        "default",
        "--topic",
        "orders",
        "--topic-id",
        TOPIC_ID,
        "--partition",
        "0",
        "--offset",
        "2",
    ]
    with redirect_stdout(io.StringIO()):
        assert main(["offsets", "set", str(table.path), *by_hand, "--apply"]) == 0
    ended = run(table.path, "--coordinates", "partition,offset", "--expect-all-rows")
    assert ended.returncode == 1, ended.stderr
    assert "3 rows with coordinates that no kept commit covers" in ended.stdout
    assert "there is no range to examine" in ended.stdout
    assert last_line(ended).endswith("verdict=unproven")
    assert json.loads(run(table.path, "--json").stdout)["verdict"] == "unproven"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--app-id", "nobody"], "holds no offsets of appId nobody; appIds there: app"),
        (["--source", "none"], "holds no offsets of source none"),
    ],
)
def test_what_cannot_be_examined_ends_with_one(table: Table, arguments: list[str], message: str) -> None:
    ended = run(table.path, *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert "AUDIT" not in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--expect-all-rows"], "--coordinates must say how they are counted"),
        (["--coordinates", "partition,nowhere"], "there is no column 'nowhere'; the table has partition, offset"),
        (["--coordinates", "partition"], "expected PARTITION_COLUMN,OFFSET_COLUMN"),
        (["--storage", "key"], "argument --storage: expected KEY=VALUE"),
        (["--command-config", "/nowhere/at.all"], "there is no such file"),
        (["--kafka", "security.protocol=SSL"], "kafka.bootstrap.servers must be specified"),
        (["--bootstrap-servers", "nonsense"], "'nonsense' is not host:port"),
    ],
)
def test_a_command_line_that_cannot_be_used_ends_with_two(table: Table, arguments: list[str], message: str) -> None:
    ended = run(table.path, *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "AUDIT" not in ended.stdout


def test_a_damaged_data_file_is_named(table: Table) -> None:
    table.rows([(0, 3)])
    (file,) = table.path.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:100])
    ended = run(table.path, "--coordinates", "partition,offset")
    assert ended.returncode == 1
    assert f"sparkonce audit: the rows of {table.path} cannot be read: " in ended.stderr
    assert file.name in ended.stderr


def test_a_topic_column_of_structs_is_refused(tmp_path: Path) -> None:
    structs = pa.array([{"name": "orders"}], pa.struct([("name", pa.string())]))
    rows = {"partition": pa.array([0], pa.int32()), "offset": pa.array([3], pa.int64()), "topic": structs}
    write_deltalake(tmp_path / "table", pa.table(rows))
    made = Table(tmp_path / "table")
    made.batches(1)
    ended = run(made.path, "--coordinates", "partition,offset,topic")
    assert ended.returncode == 2
    assert "column 'topic' is of type struct<name: string>; topics are texts" in ended.stderr


def test_rows_that_came_twice_are_an_error_and_missing_ones_only_if_all_are_expected(table: Table) -> None:
    everything = [(number, offset) for number in (0, 1) for offset in range(BATCHES * 10)]
    table.rows([each for each in everything if each != (1, 17)])
    table.rows([(0, 990)])
    ended = run(table.path, "--coordinates", "partition,offset")
    assert ended.returncode == 0, ended.stderr
    assert "[missing-allowed] partition 1: 1 offset without a row, at [17, 18)" in ended.stdout
    assert "1 row with coordinates that no kept commit covers" in ended.stdout
    assert run(table.path, "--coordinates", "partition,offset", "--expect-all-rows").returncode == 1
    table.rows([(0, 3), (0, 4)])
    ended = run(table.path, "--coordinates", "partition,offset")
    assert ended.returncode == 1
    assert "[duplicated] partition 0: 2 rows too many, at offsets [3, 5)" in ended.stdout
    assert last_line(ended).endswith("gaps=0 overlaps=0 warnings=1 others=1 verdict=broken")


def test_a_table_with_two_topics_needs_the_column_of_the_topic(table: Table) -> None:
    table.commit(record(BATCHES, {("default", partition(0, "other id", "other")): (0, 5)}))
    ended = run(table.path, "--coordinates", "partition,offset")
    assert ended.returncode == 2
    assert "name the column of the topic too" in ended.stderr


# Beside a broker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def servers(broker: EmbeddedBroker) -> str:
    return broker.bootstrap_servers


def make_topic(servers: str, name: str, records: int) -> str:
    """Make a topic of one partition with some records; returns its id."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1)])[name].result(DEADLINE_S)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(records):
        producer.produce(name, b"record %d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    client = Client(read_settings({"kafka.bootstrap.servers": servers}))
    try:
        return client.topics([name])[name].topic_id
    finally:
        client.close()


def read_topic(path: Path, name: str, topic_id: str, end: int) -> Table:
    """Make a table that has read a topic up to an offset."""
    table = Table.create(path)
    table.commit(record(0, {("default", partition(0, topic_id, name)): (0, end)}))
    return table


def test_the_lag_is_shown_and_no_error(tmp_path: Path, servers: str) -> None:
    table = read_topic(tmp_path / "t", "lagging", make_topic(servers, "lagging", 12), 7)
    config = tmp_path / "client.properties"
    config.write_text("# as Kafka's tools take it\nclient.id=auditor\nkafka.retry.backoff.ms=10\n")
    ended = run(table.path, "--bootstrap-servers", servers, "--command-config", config, "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (found,) = json.loads(ended.stdout)["partitions"]
    assert found["broker"] == {"logStart": 0, "logEnd": 12, "lag": 5}
    text = run(table.path, "--bootstrap-servers", servers).stdout
    assert re.search(r"lagging-0 +\S+ +1 +0 +7 +7 +0 +12 +5", text)


def test_a_recreated_topic_is_an_error(tmp_path: Path, servers: str) -> None:
    old_id = make_topic(servers, "recreated", 3)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["recreated"])["recreated"].result(DEADLINE_S)
    new_id = make_topic(servers, "recreated", 9)
    assert new_id != old_id
    table = read_topic(tmp_path / "t", "recreated", old_id, 3)
    assert_wrong(run(table.path, "--bootstrap-servers", servers), "topic-recreated", new_id)
    table.commit(record(1, {("default", partition(0, new_id, "recreated")): (0, 9)}))
    assert run(table.path, "--bootstrap-servers", servers).returncode == 0


def test_a_topic_shorter_than_what_was_read_is_an_error(tmp_path: Path, servers: str) -> None:
    table = read_topic(tmp_path / "t", "short", make_topic(servers, "short", 4), 5)
    assert_wrong(
        run(table.path, "--bootstrap-servers", servers),
        "log-truncated",
        "5 is stored, and the broker's log ends at 4",
    )


def test_a_deleted_topic_is_an_error(tmp_path: Path, servers: str) -> None:
    table = read_topic(tmp_path / "t", "deleted", "AAAAAAAAAAAAAAAAAAAAAQ", 5)
    assert_wrong(run(table.path, "--bootstrap-servers", servers), "topic-deleted", "the broker has no topic 'deleted'")


def test_a_broker_that_does_not_answer_ends_with_one(table: Table) -> None:
    with EmbeddedBroker() as broker:
        gone = broker.bootstrap_servers
    quickly = ("--kafka", "socket.connection.setup.timeout.ms=200")
    ended = run(table.path, "--bootstrap-servers", gone, *quickly)
    assert ended.returncode == 1
    assert f"no answer from Kafka at {gone}" in ended.stderr
    assert "AUDIT" not in ended.stdout


def test_a_topic_whose_name_was_forgotten_is_found_by_its_id(tmp_path: Path, servers: str) -> None:
    table = read_topic(tmp_path / "t", "forgotten", make_topic(servers, "forgotten", 6), 6)
    table.clean_up_log()
    assert json.loads(run(table.path, "--json").stdout)["partitions"][0]["topic"] == ""
    found = json.loads(run(table.path, "--json", "--bootstrap-servers", servers).stdout)
    assert (found["partitions"][0]["topic"], found["verdict"]) == ("forgotten", "unproven")


def document(ended: Ended) -> Any:
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def assert_wrong(ended: Ended, problem: str, words: str) -> None:
    assert ended.returncode == 1, ended.stderr
    assert words in next(line for line in ended.stdout.splitlines() if f"[{problem}]" in line)
    assert last_line(ended).endswith("verdict=broken")


def test_a_hole_in_the_log_is_told(table: Table) -> None:
    DeltaTable(table.path).create_checkpoint()
    table.batches(2)
    (table.path / "_delta_log" / f"{2:020d}.json").unlink()
    ended = run(table.path)
    assert ended.returncode == 0
    assert "[missing-commit] version 2 is not in the log, and older ones are" in ended.stdout
    assert "were cleaned up" not in ended.stdout
    assert run(table.path, "--strict").returncode == 1
