"""Apache Kafka's own transactional copier against the broker, and its tools on the files that this leaves."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lab.peers import kafka_classpath, missing_kafka_reason, run_tool
from sparkonce import EmbeddedBroker
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.chance import new_seed
from tests.interop.plain_client import PlainClient
from tests.interop.tools import KafkaTools
from tests.kafka_files import DUMP, assert_kafka_finds_nothing_wrong
from tests.reading import AT_ONCE, assign

pytestmark = pytest.mark.java
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
DEADLINE_S = 60.0
SOAK_DEADLINE_S = 900.0
ROUNDS = 10
KILLS_IN_A_ROUND = 4
"""In every other round the broker is killed, twenty times in all."""


@pytest.fixture(autouse=True)
def _kafka_is_here() -> None:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)


def fill(broker: EmbeddedBroker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "log_level": 0})
    failures: list[object] = []

    def note(error: object, _: object) -> None:
        failures.extend([error] if error is not None else [])

    for number in range(count):
        producer.produce("in", b"%d" % number, partition=0, on_delivery=note)
        if number % 10_000 == 0:
            producer.flush(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def arguments(broker: EmbeddedBroker, count: int, per_transaction: int) -> list[str]:
    return [
        *("--broker-list", broker.bootstrap_servers, "--transactional-id", "copier", "--consumer-group", "g"),
        *("--input-topic", "in", "--input-partition", "0", "--output-topic", "out"),
        *("--max-messages", str(count), "--transaction-size", str(per_transaction)),
        *("--transaction-timeout", "10000", "--enable-random-aborts", "--use-group-metadata"),
    ]


def committed_values(broker: EmbeddedBroker) -> list[int]:
    """Read all of the output, as a read_committed consumer sees it, in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            **AT_ONCE,
        }
    )
    assign(consumer, [TopicPartition("out", 0, 0)])
    values = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, f"nothing after {len(values)} values"
        if message.error() is not None:
            break  # the end of the partition
        values.append(int(message.value()))
    consumer.close()
    return values


def dump(files: list[Path], *options: str) -> str:
    assert files
    result = run_tool(DUMP, *options, "--files", ",".join(map(str, sorted(files))))
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_copier_copies_and_kafkas_tools_read_what_it_leaves(tmp_path: Path) -> None:
    count = 2_000
    with EmbeddedBroker(tmp_path / "data", config={"log.segment.bytes": 50_000}) as broker:
        fill(broker, count)
        result = run_tool(COPIER, *arguments(broker, count, 100), timeout_s=DEADLINE_S)
        assert result.returncode == 0, result.stdout + result.stderr
        assert committed_values(broker) == list(range(count))
    said = dump(list(tmp_path.glob("data/__transaction_state-0/*.log")), "--transaction-log-decoder")
    assert '"transactionalId":"copier"' in said
    statuses = {int(each) for each in re.findall(r'"transactionStatus":(\d)', said)}
    assert {0, 1, 2, 4} <= statuses <= {0, 1, 2, 3, 4, 5}
    assert '"clientTransactionVersion":2' in said  # Java's clients have taken up KIP-890 part 2
    epochs = [int(each) for each in re.findall(r'"producerEpoch":(\d+)', said)]
    assert epochs == sorted(epochs)
    assert epochs[-1] >= count // 100
    # The copier's aborts are by chance, so there may be no index of them.
    said = dump([*tmp_path.glob("data/out-0/*.txnindex"), *tmp_path.glob("data/out-0/*.snapshot")])
    assert "currentTxnFirstOffset: OptionalLong.empty" in said
    aborts = len(re.findall(r"version: 0 producerId: \d+ firstOffset: \d+ lastOffset: \d+ lastStableOffset", said))
    assert (aborts > 0) == (3 in statuses)


def test_kafkas_command_sees_a_transaction_and_aborts_it() -> None:
    with (
        EmbeddedBroker() as broker,
        PlainClient(broker.bootstrap_servers) as client,
        KafkaTools(broker.bootstrap_servers) as tools,
    ):
        client.create_topic("t")
        producer = client.init_producer("task-1")
        assert client.produce("t", [b"a", b"b"], "task-1", producer) is ErrorCode.NONE
        said = tools.run("TransactionsCommand", "list")
        assert re.search(rf"^task-1\s+0\s+{producer[0]}\s+Ongoing", said.text, re.MULTILINE), said.text
        said = tools.run("TransactionsCommand", "describe", "--transactional-id", "task-1")
        assert re.search(r"\s60000\s.*\st-0\s*$", said.text, re.MULTILINE), said.text
        said = tools.run("TransactionsCommand", "describe-producers", "--topic", "t", "--partition", "0")
        assert re.search(rf"^{producer[0]}\s+{producer[1]}\s+-1\s+1\s+\d+\s+0\s*$", said.text, re.MULTILINE), said.text
        place = ("--topic", "t", "--partition", "0")
        said = tools.run("TransactionsCommand", "abort", *place, "--start-offset", "0")
        assert said.status == 0, said.text
        assert client.list_offset("t", 0, -1, isolation_level=1) == 3


@contextmanager
def copier(broker: EmbeddedBroker, count: int) -> Iterator[subprocess.Popen[bytes]]:
    classpath = kafka_classpath()
    assert classpath is not None
    command = ["java", "-Xmx128m", "-cp", classpath, COPIER, *arguments(broker, count, 500)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


@pytest.mark.soak
@pytest.mark.timeout(SOAK_DEADLINE_S)
def test_copier_and_broker_are_killed_in_turn(tmp_path: Path) -> None:
    """100,000 records; now and then the copier is killed, ten times in all, or the broker, twenty times."""
    count = 100_000
    chance = random.Random(new_seed())
    with EmbeddedBroker(tmp_path / "data", process=True, config={"log.segment.bytes": 2_000_000}) as broker:
        fill(broker, count)
        for number in range(ROUNDS):
            with copier(broker, count) as child:
                read_lines(child, chance.randint(3, 12))
                for _ in range(KILLS_IN_A_ROUND if number % 2 else 0):
                    broker.kill()
                    broker.restart()
                    read_lines(child, 2)
                os.kill(child.pid, signal.SIGKILL)
        with copier(broker, count) as child:
            assert child.stdout is not None
            said = child.stdout.read()
            assert child.wait() == 0, said
        assert committed_values(broker) == list(range(count))
    dumped = dump(list(tmp_path.glob("data/__consumer_offsets-0/*.log")), "--offsets-decoder")
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in dumped
    assert f'"offset":{count}' in dumped
    assert_kafka_finds_nothing_wrong([tmp_path / "data" / "out-0", tmp_path / "data" / "__transaction_state-0"])


def read_lines(child: subprocess.Popen[bytes], count: int) -> None:
    """Wait until the copier has said so many lines, one for each transaction, or has ended."""
    assert child.stdout is not None
    timer = threading.Timer(DEADLINE_S, child.kill)
    timer.start()
    for _ in range(count):
        if not child.stdout.readline():
            break
    timer.cancel()
