"""The verifiable producer and consumer through kills of the broker and of themselves, judged by the history checker.

They are the laboratory's tools, and `make lab` tests what they say; `make test` has what the broker does under them.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.history import AnomalyName, judge, read_history
from lab.history.__main__ import CLEAN, main
from lab.peers import QUICK_JVM, RealKafka, missing_kafka_reason, run_tool
from sparkonce import EmbeddedBroker
from tests.interop.verifiable_clients import Client

PROJECT = Path(__file__).resolve().parents[2]
CONF = PROJECT / "conf"
PARTITIONS = 3
RECORDS = 1500
DEADLINE_S = 60.0

Start = Callable[..., Client]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", process=True, config={"num.partitions": PARTITIONS}) as embedded:
        yield embedded


@pytest.fixture(scope="module")
def real_kafka() -> Iterator[RealKafka]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with RealKafka(java_options=QUICK_JVM) as kafka:
        yield kafka


@pytest.fixture
def clients() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Clients:
    """Starts clients against one broker, and ends them with the test."""

    def __init__(self, servers: str, folder: Path, stack: ExitStack, topic: str = "t") -> None:
        self._common = ["--bootstrap-servers", servers, "--topic", topic]
        self._folder = folder
        self._stack = stack

    def start(self, module: str, name: str, *arguments: str, patch: str = "") -> Client:
        client = Client(module, self._folder / f"{name}.jsonl", *self._common, *arguments, patch=patch)
        return self._stack.enter_context(client)

    def producer(self, name: str, *arguments: str) -> Client:
        return self.start("verifiable_producer", name, "--value-prefix", name, *arguments)

    def consumer(self, name: str, *arguments: str) -> Client:
        return self.start("verifiable_consumer", name, "--verbose", *arguments)

    def final_read(self, name: str, isolation: str = "read_committed") -> Client:
        client = self.consumer(name, "--assign", "--final", "--isolation-level", isolation, "--timeout", "100")
        assert client.wait() == 0, client.errors.decode()
        return client


@pytest.fixture
def ours(broker: EmbeddedBroker, tmp_path: Path, clients: ExitStack) -> Clients:
    return Clients(broker.bootstrap_servers, tmp_path, clients)


def assert_clean(*clients: Client) -> Any:
    """Have the checker judge them all; returns its verdict."""
    verdict = judge(read_history(client.file for client in clients))
    assert verdict.anomalies == ()
    assert verdict.events > 0
    return verdict


def test_nothing_is_lost_while_the_broker_is_killed_and_the_group_changes(
    broker: EmbeddedBroker, ours: Clients
) -> None:
    member = ours.consumer("member", "--group-id", "g")
    producer = ours.producer("p", "--max-messages", str(RECORDS), "--throughput", "1000", "--repeating-keys", "17")
    for acknowledged in (RECORDS // 5, RECORDS // 2):
        producer.wait_for("producer_send_success", acknowledged)
        broker.kill()
        broker.restart()
    member.wait_for("records_consumed")  # it has partitions, so that another member takes some from it
    other = ours.consumer("other", "--group-id", "g")
    assert producer.wait() == 0, producer.errors.decode()
    other.wait_for("partitions_assigned")
    final = ours.final_read("final")
    assert member.stop() == 0, member.errors.decode()
    assert other.stop() == 0, other.errors.decode()

    sent = [f"p.{number}" for number in range(RECORDS)]
    assert sorted(producer.values("producer_send_success")) == sorted(sent)
    assert sorted(final.values("record_data")) == sorted(sent)
    assert set(member.values("record_data")) <= set(sent)
    assert [producer.counts[name] for name in ("startup_complete", "shutdown_complete", "tool_data")] == [1, 1, 1]
    assert member.counts["partitions_revoked"] > 0
    assert member.counts["offsets_committed"] > 0
    verdict = assert_clean(producer, member, other, final)
    assert (verdict.sent, verdict.acknowledged, verdict.unknown) == (RECORDS, RECORDS, 0)


@pytest.mark.lab
def test_a_producer_that_is_killed_leaves_outcomes_open_that_the_checker_allows_for(ours: Clients) -> None:
    producer = ours.producer("p", "--throughput", "2000")
    producer.wait_for("producer_send_success", 200)
    producer.kill()
    final = ours.final_read("final")
    verdict = assert_clean(producer, final)
    assert verdict.sent == len(producer.values("producer_send_started"))
    assert verdict.acknowledged == len(producer.values("producer_send_success"))
    assert verdict.unknown == verdict.sent - verdict.acknowledged


FAILING_POLL = """
import sys
from kafka.consumer.fetcher import Fetcher
from kafka.errors import NodeNotReadyError
from sparkonce.jobs.verifiable import consumer

fetch_records, failed = Fetcher.fetch_records, []

def failing(fetcher, *words, **settings):
    records, idle = fetch_records(fetcher, *words, **settings)
    if records and not failed:
        failed.append(True)
        raise NodeNotReadyError("as when asking a broker that is gone from the metadata for more")
    return records, idle

Fetcher.fetch_records = failing
code = consumer.main(sys.argv[1:])
sys.exit(code if failed else 99)
"""


def test_records_of_a_poll_that_fails_are_read_again(broker: EmbeddedBroker, ours: Clients, tmp_path: Path) -> None:
    """kafka-python had moved its positions beyond them: the consumer skipped what it had never said."""
    producer = ours.producer("plain", "--max-messages", "100")
    assert producer.wait() == 0
    words = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", "t", "--assign", "--final", "--verbose"]
    command = [sys.executable, "-c", FAILING_POLL, *words]
    history = tmp_path / "failing.jsonl"
    with open(history, "wb") as output:
        assert subprocess.run(command, stdout=output, timeout=60).returncode == 0
    verdict = judge(read_history([producer.file, history]))
    assert (verdict.read, verdict.anomalies) == (100, ())


def test_a_member_completes_a_join_that_takes_longer_than_a_poll(broker: EmbeddedBroker, ours: Clients) -> None:
    """kafka-python forgot one that new metadata had made it begin: it polled on, without partitions."""
    with broker.faults.delay(300, api="SyncGroup"):
        member = ours.consumer("member", "--group-id", "g")
        member.wait_for("partitions_assigned")
        assert ours.producer("p", "--max-messages", "5").wait() == 0
        member.wait_for("offsets_committed")
        assert member.stop() == 0


SLOW_SIGNAL = """
import time
from sparkonce.jobs.verifiable.client import Stop

note = Stop._note

def slow(stop, *words):
    note(stop, *words)
    time.sleep(0.3)  # longer than a wait for results, as on a machine with much to do

Stop._note = slow
"""


def test_a_producer_ends_on_a_signal_that_takes_long_to_handle(ours: Clients) -> None:
    """A `SimpleQueue` waits for ever where the handler returns when the time of its `get` is up."""
    words = ["--value-prefix", "p", "--throughput", "0.01"]
    producer = ours.start("verifiable_producer", "p", *words, patch=SLOW_SIGNAL)
    producer.wait_for("producer_send_success")
    assert producer.stop() == 0


def test_sigterm_ends_both_in_order(ours: Clients) -> None:
    producer = ours.producer("p", "--throughput", "500")
    producer.wait_for("producer_send_success", 20)
    consumer = ours.consumer("c", "--group-id", "g")
    consumer.wait_for("offsets_committed")
    assert producer.stop() == 0
    assert consumer.stop() == 0
    assert [event["name"] for event in producer.events[-2:]] == ["shutdown_complete", "tool_data"]
    assert producer.events[-1]["sent"] == producer.events[-1]["acked"] == producer.counts["producer_send_started"]
    assert [event["name"] for event in consumer.events[-2:]] == ["partitions_revoked", "shutdown_complete"]
    assert_clean(producer, consumer)


@pytest.mark.lab
def test_a_broker_that_forgets_is_caught(tmp_path: Path, clients: ExitStack) -> None:
    """The test of the tests: cut the log by hand, as no broker may, and the checker must say what is gone."""
    with EmbeddedBroker(tmp_path / "data", process=True) as broker:
        ours = Clients(broker.bootstrap_servers, tmp_path, clients)
        config = tmp_path / "client.properties"
        config.write_text("batch.size=500\n")  # recovery cuts whole batches: there must be some to keep
        before = ours.producer("before", "--max-messages", "300", "--command-config", str(config))
        assert before.wait() == 0
        early = ours.final_read("early")
        broker.kill()
        log = tmp_path / "data" / "t-0" / f"{0:020}.log"
        with open(log, "r+b") as file:
            file.truncate(log.stat().st_size // 2)
        broker.restart()
        late = ours.final_read("late")
        kept = len(late.values("record_data"))
        assert 0 < kept < 300
        found = judge(read_history([before.file, late.file])).anomalies
        assert {anomaly.name for anomaly in found} == {AnomalyName.LOST_WRITE}
        assert len(found) == 300 - kept

        after = ours.producer("after", "--max-messages", "5")
        assert after.wait() == 0
        last = ours.final_read("last")
        found = judge(read_history([before.file, early.file, after.file, last.file])).anomalies
        assert AnomalyName.INCONSISTENT_OFFSETS in {anomaly.name for anomaly in found}


@pytest.mark.lab
def test_an_unreachable_broker_is_a_failure_without_secrets(
    broker: EmbeddedBroker, ours: Clients, tmp_path: Path
) -> None:
    broker.kill()
    secret = "correct horse battery"
    config = tmp_path / "client.properties"
    config.write_text(
        "delivery.timeout.ms=500\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"sasl.password={secret}\n"
    )
    producer = ours.producer("p", "--max-messages", "3", "--command-config", str(config))
    assert producer.wait() == 1
    errors = [event for event in producer.events if event["name"] == "producer_send_error"]
    assert len(errors) == 3
    assert secret not in producer.file.read_text() + producer.errors.decode()
    consumer = ours.consumer("c", "--group-id", "g", "--timeout", "0.5", "--command-config", str(config))
    assert consumer.wait() == 1
    assert consumer.counts["client_error"] == 1
    assert secret not in consumer.file.read_text() + consumer.errors.decode()


@pytest.mark.lab
def test_a_broker_that_is_not_there_is_said_once_and_within_the_timeout(tmp_path: Path, clients: ExitStack) -> None:
    with socket.socket() as closed:  # bound and not listening: nobody else gets the port, and connections are refused
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]}"
        nobody = Clients(servers, tmp_path, clients)
        for client in (
            nobody.producer("p", "--max-messages", "3", "--timeout", "3"),
            nobody.producer("transactional", "--transactional-id", "x", "--timeout", "3"),
            nobody.consumer("assigned", "--assign", "--final", "--timeout", "3"),
            nobody.consumer("member", "--group-id", "g", "--timeout", "3"),
        ):
            assert client.wait() == 1
            waiting, error = client.errors.decode().splitlines()
            assert waiting.startswith(f"waiting: no broker answers at {servers}: ")
            assert error.startswith("error: ")
            assert f"no broker answers at {servers}: " in error
            assert "Connection refused" in error
            assert client.counts["client_error"] == 1


@pytest.mark.lab
def test_what_is_under_way_at_the_timeout_is_unknown(broker: EmbeddedBroker, ours: Clients) -> None:
    plain = ours.producer("plain", "--throughput", "500", "--timeout", "6")
    transactional = ours.producer("other", "--throughput", "500", "--timeout", "6", "--transactional-id", "x")
    for producer in (plain, transactional):
        producer.wait_for("producer_send_success", 100)
    broker.kill()
    for producer in (plain, transactional):
        assert producer.wait() == 1
        assert "Traceback" not in producer.errors.decode()
        names = [event["name"] for event in producer.events]
        assert names[-3:] == ["shutdown_complete", "tool_data", "client_error"]
        answers = names.count("producer_send_success") + names.count("producer_send_error")
        assert names.count("producer_send_started") == answers
    assert plain.counts["producer_send_error"] > 0
    ends = [
        each["outcome"] for each in transactional.events if each["name"] in ("transaction_commit", "transaction_abort")
    ]
    assert ends[-1] == "unknown"
    broker.restart()
    verdict = assert_clean(plain, transactional, ours.final_read("final", "read_uncommitted"))
    assert verdict.unknown > 0


@pytest.mark.lab
def test_a_producer_that_another_replaces_ends(ours: Clients) -> None:
    first = ours.producer("first", "--throughput", "500", "--transactional-id", "x")
    first.wait_for("transaction_commit", 3)
    second = ours.producer("second", "--max-messages", "50", "--transactional-id", "x")
    assert second.wait() == 0, second.errors.decode()
    assert first.wait() == 1
    assert first.counts["client_error"] == 1
    assert_clean(first, second, ours.final_read("final"))


@pytest.mark.lab
def test_the_configurations_are_read(ours: Clients) -> None:
    producer = ours.producer(
        "p", "--max-messages", "50", "--command-config", str(CONF / "verifiable_producer.properties")
    )
    assert producer.wait() == 0, producer.errors.decode()
    config = str(CONF / "verifiable_consumer.properties")
    consumer = ours.consumer("c", "--group-id", "g", "--until-end", "--timeout", "60", "--command-config", config)
    assert consumer.wait() == 0, consumer.errors.decode()
    assert consumer.events[0]["isolation_level"] == "read_committed"
    assert sorted(consumer.values("record_data")) == sorted(f"p.{number}" for number in range(50))
    assert_clean(producer, consumer)


@pytest.mark.lab
def test_the_commands_of_the_docs_run(broker: EmbeddedBroker, tmp_path: Path) -> None:
    commands = re.search(r"```sh\n(.*?)```", (PROJECT / "docs" / "internals" / "histories.md").read_text(), re.DOTALL)
    assert commands is not None
    script = (
        commands[1].replace("localhost:9092", broker.bootstrap_servers).replace("python -m", f"{sys.executable} -m")
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "sent 1000, must be read 1000, values read 1000" in done.stdout
    assert done.stdout.splitlines()[-1].endswith(" anomalies=0")


@pytest.mark.lab
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("bootstrap.servers=localhost:1\nsasl.jaas.config=s3cret\n", "sasl.username and sasl.password"),
        ("sasl.password s3cret\n", "expected name=value"),
        ("", "no broker is named"),
        (None, "cannot read"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, content: str | None, said: str) -> None:
    config = tmp_path / "client.properties"
    if content is not None:
        config.write_text(content)
    arguments = ["--topic", "t", "--command-config", str(config)]
    for module, more in (("verifiable_producer", []), ("verifiable_consumer", ["--assign"])):
        with Client(module, tmp_path / "out.jsonl", *arguments, *more) as client:
            assert client.wait() == 2
            assert said in client.errors.decode()
            assert "s3cret" not in client.errors.decode()


@pytest.mark.lab
def test_refused_records_are_failures_and_may_not_be_read(ours: Clients, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("max.request.size=1000\n")
    long = ours.start(
        "verifiable_producer",
        "long",
        "--value-prefix",
        "x" * 1000,
        "--max-messages",
        "2",
        "--command-config",
        str(config),
    )
    assert long.wait() == 1
    assert [e["outcome"] for e in long.events if e["name"] == "producer_send_error"] == ["failed", "failed"]
    short = ours.producer("p", "--max-messages", "5")
    assert short.wait() == 0
    assert assert_clean(long, short, ours.final_read("final")).unknown == 0


@pytest.mark.lab
@pytest.mark.java
def test_transactions_on_apache_kafka(real_kafka: RealKafka, tmp_path: Path, clients: ExitStack) -> None:
    """Commits, aborts on purpose, a producer killed within a transaction, and the one that takes its place."""
    kafka = Clients(real_kafka.bootstrap_servers, tmp_path, clients, topic="transactions")
    transactional = ("--transactional-id", "x", "--transaction-size", "7", "--repeating-keys", "11")
    first = kafka.producer("first", *transactional, "--abort-every", "3", "--throughput", "500")
    member = kafka.consumer("member", "--group-id", "g", "--isolation-level", "read_committed")
    first.wait_for("transaction_commit", 8)
    first.kill()
    second = kafka.producer("second", *transactional, "--max-messages", "100", "--abort-every", "4")
    assert second.wait() == 0, second.errors.decode()
    committed, everything = kafka.final_read("committed"), kafka.final_read("everything", "read_uncommitted")
    assert member.stop() == 0, member.errors.decode()

    aborted = {
        (producer, event["transaction"])
        for producer in (first, second)
        for event in producer.events
        if event["name"] == "transaction_abort"
    }
    assert len(aborted) >= 2 + 3
    written_off = {
        value
        for producer in (first, second)
        for value in producer.values("producer_send_success", lambda e, p=producer: (p, e["transaction"]) in aborted)
    }
    assert written_off
    assert not written_off & set(committed.values("record_data"))
    assert written_off <= set(everything.values("record_data"))
    verdict = assert_clean(first, second, member, committed, everything)
    assert verdict.acknowledged > 0

    # Were an abort a commit, the same history would not be clean, and the other way round.
    lie = tmp_path / "lie.jsonl"
    lie.write_text(second.file.read_text().replace('"transaction_abort"', '"transaction_commit"'))
    found = judge(read_history([lie, first.file, committed.file])).anomalies
    assert {anomaly.name for anomaly in found} == {AnomalyName.LOST_WRITE}
    lie.write_text(second.file.read_text().replace('"transaction_commit"', '"transaction_abort"'))
    found = judge(read_history([lie, first.file, committed.file])).anomalies
    assert AnomalyName.ABORTED_READ in {anomaly.name for anomaly in found}


@pytest.mark.lab
@pytest.mark.java
def test_what_kafkas_own_verifiable_clients_say_is_judged_too(
    real_kafka: RealKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = ["--bootstrap-server", real_kafka.bootstrap_servers]
    # The producer does not retry and the consumer waits for every record: what a topic that is still being created
    # refused would be waited for without end.
    admin = AdminClient({"bootstrap.servers": real_kafka.bootstrap_servers})
    admin.create_topics([NewTopic("java", PARTITIONS)])["java"].result(DEADLINE_S)
    files = []
    for name, arguments in (
        ("VerifiableProducer", ["--value-prefix", "7", "--repeating-keys", "5"]),
        ("VerifiableConsumer", ["--group-id", "java", "--verbose"]),
    ):
        done = run_tool(f"org.apache.kafka.tools.{name}", *at, "--topic", "java", "--max-messages", "200", *arguments)
        assert done.returncode == 0, done.stderr
        if name == "VerifiableProducer":
            assert '"acked":200' in done.stdout, done.stdout
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text(done.stdout)
    assert main([str(file) for file in files]) == CLEAN
    assert "sent 200, must be read 200, values read 200" in capsys.readouterr().out
