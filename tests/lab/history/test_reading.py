"""What the checker cannot read or judge is an error that says where, never a history without anomalies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.history import HistoryError, check_history, events_of, judge, read_history
from lab.history.__main__ import NOT_JUDGED, main
from lab.history.events import Isolation, PartitionOffset, RecordRead, SendSucceeded, Startup

PLACE = {"topic": "t", "partition": 0, "offset": 0}
ACKNOWLEDGED = {"name": "producer_send_success", "client": "p", "key": None, "value": "a", **PLACE}
STARTED = {"name": "producer_send_started", "client": "p", "topic": "t", "value": "a"}
BEGIN = {"name": "transaction_begin", "client": "p", "transaction": 0}
COMMIT = {"name": "transaction_commit", "client": "p", "transaction": 0, "outcome": "success"}


def test_the_output_of_kafkas_own_tools_is_read(tmp_path: Path) -> None:
    """Lines as org.apache.kafka.tools.VerifiableProducer and VerifiableConsumer of 4.3 print them."""
    file = tmp_path / "kafka.jsonl"
    file.write_text(
        '{"timestamp":1795244378826,"name":"startup_complete"}\n'
        '{"timestamp":1795244378192,"name":"producer_send_success","key":"0","value":"7.0","offset":0,"topic":"t",'
        '"partition":0}\n'
        '{"timestamp":1795244379727,"name":"record_data","key":"0","value":"7.0","topic":"t","partition":0,"offset":0}\n'
        '{"timestamp":1795244379728,"name":"records_consumed","count":1,"partitions":[{"topic":"t","partition":0,'
        '"count":1,"minOffset":0,"maxOffset":0}]}\n'
        '{"timestamp":1795244379756,"name":"offsets_committed","offsets":[{"topic":"t","partition":0,"offset":1}],'
        '"success":true}\n'
        '{"timestamp":1795244378206,"name":"tool_data","sent":3,"acked":3,"target_throughput":-1,"avg_throughput":6.4}\n'
    )
    startup, acknowledged, read, *_ = read_history([file])
    assert isinstance(startup, Startup)
    assert startup.isolation is Isolation.READ_UNCOMMITTED
    assert startup.client == str(file)
    assert isinstance(acknowledged, SendSucceeded)
    assert isinstance(read, RecordRead)
    assert acknowledged.place == read.place == PartitionOffset("t", 0, 0)
    assert check_history(read_history([file])) == []


def test_a_line_cut_off_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps(STARTED) + "\n" + json.dumps(ACKNOWLEDGED)[:40])
    assert len(read_history([file])) == 1


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps(STARTED) + "\n" + json.dumps(ACKNOWLEDGED))
    assert len(read_history([file])) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "expected an object"),
        ('{"name": "producer_send_succes"}', "nearest known one is 'producer_send_success'"),
        ('{"name": 1}', "'name' must be text"),
        ('{"name": "record_data", "topic": "t", "partition": 0, "value": "a"}', "'offset' must be a whole number"),
        ('{"name": "record_data", "topic": "t", "partition": 0, "offset": true}', "'offset' must be a whole number"),
        ('{"name": "startup_complete", "isolation_level": "none"}', "read_uncommitted or read_committed"),
        ('{"name": "end_reached", "partitions": {}}', "a list of objects"),
        ('{"name": "end_reached", "partitions": [], "final": 1}', "true or false"),
    ],
)
def test_a_line_that_is_not_understood_is_named(tmp_path: Path, line: str, said: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps(STARTED) + "\n" + line + "\n")
    with pytest.raises(HistoryError) as raised:
        read_history([file])
    assert str(raised.value).startswith(f"{file}:2: ")
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([ACKNOWLEDGED, {**ACKNOWLEDGED, "offset": 1}], "--value-prefix"),
        ([STARTED, {**STARTED, "client": "q"}], "--value-prefix"),
        ([{**STARTED, "value": None}], "without a value"),
        ([{**STARTED, "transaction": 3}], "transaction 3 of p never began"),
        ([BEGIN, BEGIN], "begins a second time"),
        ([BEGIN, COMMIT, {**COMMIT, "name": "transaction_abort"}], "had ended at history:2"),
        ([{"name": "records_consumed", "client": "r", "count": 2, "partitions": []}], "--verbose"),
    ],
)
def test_a_history_that_cannot_be_judged_is_refused(events: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(HistoryError, match=said):
        check_history(events_of(events))


def test_a_client_that_is_started_again_numbers_its_transactions_anew() -> None:
    startup = {"name": "startup_complete", "client": "p"}
    verdict = judge(events_of([startup, BEGIN, COMMIT, startup, BEGIN, COMMIT]))
    assert verdict.anomalies == ()


def test_an_acknowledgement_without_an_offset_demands_nothing() -> None:
    read = {"name": "record_data", "client": "r", "value": "b", **PLACE}
    verdict = judge(events_of([STARTED, {**ACKNOWLEDGED, "offset": -1}, {**STARTED, "value": "b"}, read]))
    assert verdict.anomalies == ()
    assert (verdict.unknown, verdict.unknown_read) == (2, 1)


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_the_command_refuses_a_history_without_events(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.jsonl"
    if content is not None:
        file.write_text(content)
    assert main([str(file)]) == NOT_JUDGED
    assert str(file) in capsys.readouterr().err
