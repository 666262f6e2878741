"""How the two Kafka sinks are struck and judged: the fault in the query, and planted faults in what is found."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab.bench.load import create_topic, fill
from lab.doubled_rows import __main__ as command
from lab.doubled_rows import copying
from lab.doubled_rows.__main__ import Findings, main
from lab.doubled_rows.copying import JVM, OURS, Copy, End, InjectedError, Mark, fault, mark_in, pronounce
from lab.doubled_rows.kills import Input, Kill
from lab.lost_checkpoint import judge
from lab.verify.records import TopicRecord, await_uncommitted, read_topic
from sparkonce import EmbeddedBroker

RECORDS = [(b"UA", b"%d" % number) for number in range(10)]
RIGHT = judge(RECORDS, RECORDS)
TWICE = judge(RECORDS, [*RECORDS, *RECORDS[:4]])
SHORT = judge(RECORDS, RECORDS[1:])
GOOD = Findings({(pipeline, kill): TWICE if pipeline == JVM else RIGHT for kill in Kill for pipeline in (JVM, OURS)})


def copy(folder: Path | None, offset: int) -> Copy:
    return Copy(OURS, "a:1", "in", "out", "app", "/checkpoint", 100, None if folder is None else str(folder), 1, offset)


def rows(partition: int, first: int, last: int) -> pa.RecordBatch:
    offsets = list(range(first, last))
    values = [b"%d" % offset for offset in offsets]
    return pa.RecordBatch.from_pydict(
        {"key": values, "value": values, "partition": [partition] * len(offsets), "offset": offsets}
    )


def test_without_a_fault_key_and_value_pass() -> None:
    passed = list(fault(copy(None, 5))(iter([rows(1, 0, 10)])))
    assert [batch.schema.names for batch in passed] == [["key", "value"]]
    assert passed[0]["value"].to_pylist() == [b"%d" % offset for offset in range(10)]


def run_until_held(folder: Path, batches: Iterator[pa.RecordBatch]) -> tuple[int, list[BaseException]]:
    """Run the step in a thread, let the task that holds fail; give how many batches passed, and what it raised."""
    passed: list[pa.RecordBatch] = []
    raised: list[BaseException] = []

    def task() -> None:
        try:
            for batch in fault(copy(folder, 250))(batches):
                passed.append(batch)  # noqa: PERF402 - what came before the error counts
        except InjectedError as error:
            raised.append(error)

    thread = threading.Thread(target=task)
    thread.start()
    while mark_in(folder) is None and thread.is_alive():
        thread.join(0.01)
    pronounce(folder, End.RAISE)
    thread.join(30)
    assert not thread.is_alive()
    return len(passed), raised


def test_the_first_attempt_holds_at_the_record_and_fails_and_the_next_one_passes(tmp_path: Path) -> None:
    batches = [rows(0, 0, 500), rows(1, 100, 200), rows(1, 200, 300), rows(1, 300, 400)]
    passed, raised = run_until_held(tmp_path, iter(batches))
    assert passed == 2
    assert mark_in(tmp_path) == Mark(partition=1, first=100, at=200)
    assert [str(error) for error in raised] == ["injected failure at record 200 of partition 1"]
    assert len(list(fault(copy(tmp_path, 250))(iter(batches)))) == 4


def test_a_task_that_begins_behind_the_record_is_left_alone(tmp_path: Path) -> None:
    assert len(list(fault(copy(tmp_path, 250))(iter([rows(1, 251, 400), rows(1, 400, 500)])))) == 2
    assert mark_in(tmp_path) is None


def test_a_task_that_dies_takes_its_process_along(tmp_path: Path) -> None:
    pronounce(tmp_path, End.DIE)
    code = (
        "import pathlib, sys; from lab.doubled_rows.copying import Mark, _hold_once; "
        "_hold_once(pathlib.Path(sys.argv[1]), Mark(1, 0, 5))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=command_folder(), check=False)
    assert ended.returncode == -9


def command_folder() -> Path:
    return Path(command.__file__).parents[2]


def test_a_task_that_nobody_judges_ends_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "HOLD_LIMIT_S", 0.0)
    with pytest.raises(InjectedError, match="nobody said"):
        list(fault(copy(tmp_path, 250))(iter([rows(1, 200, 300)])))


def test_the_fault_lies_in_the_last_batch_of_the_largest_partition() -> None:
    records = tuple(TopicRecord(number % 4 // 2, number, b"k", b"%d" % number) for number in range(10))
    assert Input("a:1", "in", 2, records).fault() == (0, 8)


def test_the_line_for_machines() -> None:
    assert GOOD.good
    assert GOOD.result() == (
        "RESULT records=40 jvm_rows=56 jvm_duplicated=16 sparkonce_rows=40 sparkonce_lost=0 sparkonce_duplicated=0"
    )
    alone = Findings({key: count for key, count in GOOD.counts.items() if key[0] == OURS})
    assert alone.good
    assert alone.result() == "RESULT records=40 sparkonce_rows=40 sparkonce_lost=0 sparkonce_duplicated=0"


@pytest.mark.parametrize("kill", Kill)
@pytest.mark.parametrize("fault", [TWICE, SHORT, judge(RECORDS[1:], RECORDS)])
def test_a_fault_of_ours_after_any_kill_fails_the_run(kill: Kill, fault: Any) -> None:
    assert not replace(GOOD, counts={**GOOD.counts, (OURS, kill): fault}).good


@pytest.mark.parametrize("kill", Kill)
def test_a_kill_that_does_not_show_the_fault_of_the_peer_proves_nothing(kill: Kill) -> None:
    assert not replace(GOOD, counts={**GOOD.counts, (JVM, kill): RIGHT}).good


def test_without_the_jars_it_says_what_can_be_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPARK_KAFKA_JARS", "/nowhere/spark-sql-kafka.jar")
    assert main([]) == 2
    said = capsys.readouterr().err
    assert "SPARK_KAFKA_JARS names /nowhere/spark-sql-kafka.jar, which is not there" in said
    assert "--only sparkonce" in said


@pytest.mark.parametrize("words", [["--records", "9999"], ["--records", "300001"], ["--kill", "softly"]])
def test_what_cannot_be_done_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert words[1] in capsys.readouterr().err


def test_a_topic_is_read_to_its_end(kafka_broker: EmbeddedBroker) -> None:
    create_topic(kafka_broker.bootstrap_servers, "doubled", 3)
    fill(kafka_broker.bootstrap_servers, "doubled", 300, [bytes(20)], 3)
    found = read_topic(kafka_broker.bootstrap_servers, "doubled", 3, "read_committed")
    assert [(record.partition, record.offset) for record in found] == [(n // 100, n % 100) for n in range(300)]
    await_uncommitted(kafka_broker.bootstrap_servers, "doubled", 3, {found[-1].value}.__contains__, 30)


def test_rows_that_do_not_come_are_told(kafka_broker: EmbeddedBroker) -> None:
    create_topic(kafka_broker.bootstrap_servers, "silent", 1)
    with pytest.raises(match=r"reading silent on .*, read_uncommitted: not through within 0\.2 s"):
        await_uncommitted(kafka_broker.bootstrap_servers, "silent", 1, bool, 0.2)


def test_readers_leave_out_what_is_open(kafka_broker: EmbeddedBroker) -> None:
    from confluent_kafka import Producer

    create_topic(kafka_broker.bootstrap_servers, "open", 1)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": "doubled-rows"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("open", b"hidden")
    producer.flush(30)
    await_uncommitted(kafka_broker.bootstrap_servers, "open", 1, {b"hidden"}.__contains__, 30)
    assert read_topic(kafka_broker.bootstrap_servers, "open", 1, "read_committed") == []
    producer.commit_transaction(30)
    found = read_topic(kafka_broker.bootstrap_servers, "open", 1, "read_committed")
    assert [record.value for record in found] == [b"hidden"]
