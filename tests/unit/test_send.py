"""The command `sparkonce send`: values and lines become records, in the partition that Java's producer takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from tests.cases import each_case

MURMUR2 = {"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536}
"""From Kafka's ``UtilsTest.testMurmur2``."""


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.create_topics([NewTopic("three", 3, 1)])
        admin.close()
        yield broker.bootstrap_servers


def records(servers: str, topic: str, partitions: int = 1) -> list[tuple[int, bytes | None, bytes]]:
    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(places)
        left, found = sum(consumer.end_offsets(places).values()), []
        while len(found) < left:
            for each in consumer.poll(timeout_ms=1000).values():
                found += [(record.partition, record.key, record.value) for record in each]
        return found
    finally:
        consumer.close()


class Pipe:
    """Standard input, of which some bytes are there at a time."""

    def __init__(self, *parts: bytes) -> None:
        self.buffer = self
        self._parts = iter((*parts, b""))

    def read1(self, _most: int) -> bytes:
        return next(self._parts)


@each_case(
    "topic, parts, values",
    [
        ("lines", [b"a\nb", b"c\n\n", b"d"], [b"a", b"bc", b"", b"d"]),
        ("ended", [b"a\n"], [b"a"]),
        ("nothing", [], []),
        ("large", [b"x" * 70_000 + b"\n"], [b"x" * 70_000]),
    ],
)
def test_each_line_is_a_record(
    servers: str, monkeypatch: pytest.MonkeyPatch, topic: str, parts: list[bytes], values: list[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(*parts))
    assert main(["send", topic, "--bootstrap-servers", servers]) == 0
    assert [value for _, _, value in records(servers, topic)] == values


def test_a_key_decides_the_partition_unless_one_is_named(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["three", "--bootstrap-servers", servers]
    for key in ("21", "foobar", "a-little-bit-long-string"):
        assert main(["send", *at, "--value", "v", "--key", key]) == 0
    placed = {key: partition for partition, key, _ in records(servers, "three", 3)}
    assert placed == {key.encode(): (number & 0x7FFFFFFF) % 3 for key, number in MURMUR2.items()}
    assert main(["send", *at, "-p", "2", "--value", "placed", "--value", "there"]) == 0
    assert {(2, None, b"placed"), (2, None, b"there")} <= set(records(servers, "three", 3))
    assert main(["send", *at, "-p", "3", "--value", "nowhere"]) == 1
    assert capsys.readouterr().err == "sparkonce send: there is no partition 3: the topic has 3 partitions\n"


def test_what_is_written_before_a_failure_is_counted(
    servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = iter([[b"one", b"two"], [bytes(2_000_000)], [b"never"]])
    monkeypatch.setattr("sparkonce.jobs.cli.send._lines", lambda: parts)
    assert main(["send", "counted", "--bootstrap-servers", servers]) == 1
    assert "at least 2 records in counted, and not all: look before you send again\n" in capsys.readouterr().err
    assert [value for _, _, value in records(servers, "counted")] == [b"one", b"two"]


def test_a_closed_standard_input_is_refused(
    servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["send", "closed", "--bootstrap-servers", servers]) == 2
    assert "standard input is closed: give --value" in capsys.readouterr().err


def test_a_full_disk_below_its_output_does_not_undo_what_is_written(servers: str) -> None:
    command = [sys.executable, "-m", "sparkonce", "send", "unread", "--bootstrap-servers", servers, "--value", "a"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert [value for _, _, value in records(servers, "unread")] == [b"a"]
