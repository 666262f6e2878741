"""`sparkonce transactions` on transactions that are really open: what it shows, finishes and aborts, and refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka.admin import KafkaAdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, State
from sparkonce.exactly_once.transactions import DecisionFormatError, PreparedTransaction
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client
from sparkonce.offset_store.group import CommittedOffset
from tests.unit.kafka_sink.transactions_support import (
    DEADLINE_S,
    OUTPUT_TOPIC,
    QUERY,
    SOURCE_TOPIC,
    Pipeline,
    settings_of,
    wait_for_a_row,
)

SLOW_TOPIC = "timed-out"
CLEANUP_MS = 50
"""How often the broker looks for transactions whose time is up."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": CLEANUP_MS}
    with EmbeddedBroker(config=config) as running:
        admin = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
        admin.create_topics([NewTopic(topic, 1, 1) for topic in (SOURCE_TOPIC, OUTPUT_TOPIC, SLOW_TOPIC)])
        admin.close()
        yield running


@pytest.fixture
def pipeline(broker: EmbeddedBroker) -> Iterator[Pipeline]:
    client = Client(settings_of(broker.bootstrap_servers))
    made = Pipeline(client)
    yield made
    made.another_driver().recover()
    client.close()


class Command:
    """`sparkonce transactions` on the broker of this module."""

    def __init__(self, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, action: str, *words: object) -> int:
        self._capsys.readouterr()
        servers = "--bootstrap-servers", self._broker.bootstrap_servers
        status = main(["transactions", action, *servers, *map(str, words)])
        self.out, self.err = self._capsys.readouterr()
        return status

    def listed(self, pipeline: Pipeline) -> tuple[int, dict[str, Any]]:
        """Return the exit status, and what `list --json` says of one application."""
        status = self("list", "--app-id", pipeline.app_id, "--json")
        (application,) = json.loads(self.out)["applications"]
        return status, application


@pytest.fixture
def command(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(broker, capsys)


def state_of(pipeline: Pipeline, prepared: PreparedTransaction) -> State:
    name = prepared.transactional_id
    return pipeline.driver.transactions.describe([name])[name].state


def test_an_undecided_transaction(pipeline: Pipeline, command: Command) -> None:
    open_one = pipeline.task(0)
    status, application = command.listed(pipeline)
    (found,) = application["open"]
    assert status == 0
    assert (found["transactionalId"], found["state"]) == (open_one.transactional_id, "Ongoing")
    assert (found["producerId"], found["epoch"]) == (open_one.producer_id, open_one.epoch)
    assert found["partitions"] == [{"topic": OUTPUT_TOPIC, "partition": 0}]
    assert (found["why"], found["decision"], found["timeoutMs"]) == ("undecided", None, 60_000)
    assert 0 < found["leftMs"] <= 60_000
    assert application["lastDecision"] is None
    assert command("list", "--app-id", pipeline.app_id) == 0
    assert re.search(rf"{re.escape(open_one.transactional_id)} +Ongoing .* {OUTPUT_TOPIC}-0 +undecided", command.out)
    assert f"sparkonce transactions abort --app-id {pipeline.app_id}" in command.out


def test_a_decided_transaction_and_its_finish(pipeline: Pipeline, command: Command) -> None:
    first, second = pipeline.task(0), pipeline.task(1, rows=2)
    pipeline.decide(first, second)
    pipeline.commit(first)
    late = pipeline.task(2)
    status, application = command.listed(pipeline)
    last = application["lastDecision"]
    assert status == 0
    assert {each["transactionalId"]: (each["why"], each["decision"]) for each in application["open"]} == {
        second.transactional_id: ("decided", 1),
        late.transactional_id: ("undecided", None),
    }
    assert (last["number"], last["queryId"], last["batchId"], last["rows"]) == (1, QUERY, 0, 5)
    assert (last["finished"], last["settlement"]) == (False, "finish")
    assert [each["fate"] for each in last["transactions"]] == ["committed", "waits"]
    assert last["ranges"] == {"kafka": {SOURCE_TOPIC: {"id": "", "partitions": {"0": [0, 10]}}}}

    assert command("list", "--app-id", pipeline.app_id) == 0
    assert f"decided by decision 1 (batch 0 of query {QUERY})" in command.out
    assert f"records {SOURCE_TOPIC}-0 [0, 10)" in command.out
    assert "NOT FINISHED" in command.out

    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert "finished decision 1 (batch 0 of query" in command.out
    assert "committed 1 of its transactions now" in command.out
    assert state_of(pipeline, second) is State.COMPLETE_COMMIT
    assert state_of(pipeline, late) is State.ONGOING
    assert pipeline.offsets()[SOURCE_TOPIC, 0].offset == 10
    assert command.listed(pipeline)[1]["lastDecision"]["finished"] is True
    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert "number 1, is finished: nothing to do" in command.out
    pipeline.lose(late)
    assert len(pipeline.visible()) == 5


def test_a_running_query_goes_on_after_a_finish(pipeline: Pipeline, command: Command) -> None:
    decision = pipeline.decide(pipeline.task(0))
    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert pipeline.driver.is_current(pipeline.identity)
    pipeline.driver.finish(decision)  # what it was about to do has been done
    pipeline.next_batch()
    pipeline.decide(pipeline.task(1))
    assert pipeline.driver.log.read().number == 2


def test_a_decision_of_which_nothing_is_left_is_taken_back(
    pipeline: Pipeline, command: Command, broker: EmbeddedBroker
) -> None:
    """One of its transactions really times out, which a reader of committed records waits for."""
    timed_out, waits = pipeline.task(0, timeout_ms=1000, topic=SLOW_TOPIC), pipeline.task(1)
    pipeline.decide(timed_out, waits)
    marker = Producer({"bootstrap.servers": broker.bootstrap_servers})
    marker.produce(SLOW_TOPIC, b"after the time-out")
    marker.flush()
    assert wait_for_a_row(pipeline.client, SLOW_TOPIC) == "after the time-out"
    status, application = command.listed(pipeline)
    assert (status, application["lastDecision"]["settlement"]) == (1, "undo")
    assert [each["fate"] for each in application["lastDecision"]["transactions"]] == ["gone", "waits"]
    assert command("list", "--app-id", pipeline.app_id) == 1
    assert "WARNING 3 of the 6 rows of batch 0" in command.out
    assert "nothing of the batch is visible" in command.out
    assert "1 decided: open until the decision is finished or undone" in command.out

    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert "undid decision 1 (batch 0 of query" in command.out
    assert "is fenced" in command.out
    assert pipeline.offsets()[SOURCE_TOPIC, 0] == CommittedOffset(0)
    assert pipeline.visible() == []
    with pytest.raises(FencedProducerError):
        pipeline.decide(pipeline.task(2))
    status, application = command.listed(pipeline)
    assert (status, application["lastDecision"]["undone"]) == (0, True)
    assert command("list", "--app-id", pipeline.app_id) == 0
    assert "last decision 2: takes back decision 1, batch 0" in command.out


def test_lost_rows_are_named_and_accepted_on_request_only(pipeline: Pipeline, command: Command) -> None:
    visible, lost, waits = pipeline.task(0, rows=4), pipeline.task(1, rows=3), pipeline.task(2, rows=2)
    pipeline.decide(visible, lost, waits)
    pipeline.commit(visible)
    pipeline.lose(lost)
    status, application = command.listed(pipeline)
    assert (status, application["lastDecision"]["settlement"]) == (1, "lost")
    assert command("list", "--app-id", pipeline.app_id) == 1
    assert f"3 of the 9 rows of batch 0 of query {QUERY} (records {SOURCE_TOPIC}-0 [0, 10)) are lost" in command.out

    assert command("finish", "--app-id", pipeline.app_id) == 1
    assert "the output lacks 3 rows" in command.err
    assert lost.transactional_id in command.err
    assert "--accept" in command.err
    assert state_of(pipeline, waits) is State.ONGOING

    assert command("finish", "--app-id", pipeline.app_id, "--accept") == 0
    assert "3 rows in 1 transaction are missing from the output:" in command.out
    assert f"{lost.transactional_id} (producer id {lost.producer_id}, epoch {lost.epoch}): 3 rows, gone" in command.out
    assert f"records {SOURCE_TOPIC}-0 [0, 10); the other 6 rows of these are visible" in command.out
    assert len(pipeline.visible()) == 6
    status, application = command.listed(pipeline)
    assert (status, application["open"], application["lastDecision"]["finished"]) == (0, [], True)
    pipeline.another_driver().recover()  # the next start of the query finds nothing to complain of


def test_transactions_that_kafka_has_forgotten(pipeline: Pipeline, command: Command) -> None:
    forgotten = PreparedTransaction(f"{pipeline.driver.scope.prefix}gone/worker-7", 99_999, 0, 7)
    pipeline.decide(forgotten)
    status, application = command.listed(pipeline)
    assert (status, application["lastDecision"]["settlement"]) == (1, "unknown")
    assert command("list", "--app-id", pipeline.app_id) == 1
    assert "that Kafka no longer knows" in command.out
    assert command("finish", "--app-id", pipeline.app_id) == 1
    assert "was committed is unknown" in command.err
    assert command("finish", "--app-id", pipeline.app_id, "--accept") == 0
    assert "missing, or unknown to Kafka:" in command.out
    assert command.listed(pipeline)[0] == 0


def test_accept_of_what_is_whole_finishes_it(pipeline: Pipeline, command: Command) -> None:
    pipeline.decide(pipeline.task(0))
    assert command("finish", "--app-id", pipeline.app_id, "--accept") == 0
    assert "committed 1 of its transactions now" in command.out
    assert len(pipeline.visible()) == 3


def test_a_decision_without_transactions_of_tasks(pipeline: Pipeline, command: Command) -> None:
    """With atomicVisibility the rows are in the decision's own transaction; and a batch may have no rows."""
    pipeline.decide()
    status, application = command.listed(pipeline)
    assert (status, application["lastDecision"]["settlement"]) == (0, "finish")
    assert command("list", "--app-id", pipeline.app_id) == 0
    assert "no transactions of tasks" in command.out
    assert "all of it is committed" in command.out
    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert "its rows were in the decision's own transaction, or there were none" in command.out


def test_abort(pipeline: Pipeline, command: Command) -> None:
    decided, undecided = pipeline.task(0), pipeline.task(1)
    pipeline.decide(decided)
    assert command("abort", "--app-id", pipeline.app_id) == 0
    assert f"would abort {undecided.transactional_id}\n" in command.out
    assert "would fail" in command.out
    assert "repeat with --apply" in command.out
    assert decided.transactional_id not in command.out
    assert "decision 1 (batch 0" in command.out
    assert state_of(pipeline, undecided) is State.ONGOING

    assert command("abort", "--app-id", pipeline.app_id, "--apply") == 0
    assert f"aborted {undecided.transactional_id}\n" in command.out
    assert state_of(pipeline, undecided) is State.COMPLETE_ABORT or state_of(pipeline, undecided) is State.EMPTY
    assert state_of(pipeline, decided) is State.ONGOING
    with pytest.raises(FencedProducerError):  # so nothing that was aborted can be decided any more
        pipeline.decide(undecided)
    assert command("finish", "--app-id", pipeline.app_id) == 0
    assert len(pipeline.visible()) == 3
    assert command("abort", "--app-id", pipeline.app_id, "--apply") == 0
    assert "nothing to abort" in command.out


def test_abort_of_one_transaction(pipeline: Pipeline, command: Command) -> None:
    pipeline.decide(decided := pipeline.task(0))
    one, ten = pipeline.task(1), pipeline.task(10)
    words = "--app-id", pipeline.app_id, "--apply", "--transactional-id"
    assert command("abort", *words, decided.transactional_id) == 1
    assert "is in decision 1 (batch 0 of query" in command.err
    assert "finish" in command.err
    assert command("abort", *words, "sparkonce/another/x/y") == 1
    assert f"is not a transactional id of appId {pipeline.app_id}" in command.err
    assert command("abort", *words, f"{pipeline.driver.scope.prefix}x/y-0") == 1
    assert "Kafka does not know it" in command.err
    assert command("abort", *words, one.transactional_id) == 0
    assert state_of(pipeline, ten) is State.ONGOING
    assert command("abort", *words, one.transactional_id) == 1
    assert "has no open transaction" in command.err


def test_a_decision_on_its_way(pipeline: Pipeline, command: Command) -> None:
    """A driver that died while it decided: its transaction is shown, and an abort settles it."""
    task = pipeline.task(0)
    pipeline.driver.transactions.add_partitions(pipeline.identity, [(pipeline.decision_topic, 0)])
    pipeline.driver.transactions.add_partitions(pipeline.identity, (), pipeline.app_id)
    status, application = command.listed(pipeline)
    assert status == 0
    assert {each["transactionalId"]: each["why"] for each in application["open"]} == {
        task.transactional_id: "undecided",
        pipeline.driver.scope.driver_id: "deciding",
    }
    words = "--app-id", pipeline.app_id, "--decision-topic", pipeline.decision_topic
    assert command("abort", *words, "--apply") == 0
    assert command.out.count("  aborted ") == 2
    assert command("list", "--app-id", pipeline.app_id) == 0
    assert f"no open transaction and no decision of appId {pipeline.app_id}" in command.out


def test_the_topic_of_decisions_must_be_the_right_one(broker: EmbeddedBroker, command: Command) -> None:
    client = Client(settings_of(broker.bootstrap_servers))
    pipeline = Pipeline(client, decision_topic="decisions-of-one")
    decided = pipeline.task(0)
    pipeline.decide(decided)
    assert command("abort", "--app-id", pipeline.app_id, "--apply") == 1
    assert "has no decision of appId" in command.err
    assert "--decision-topic" in command.err
    assert command("abort", "--app-id", pipeline.app_id, "--decision-topic", "no-such-topic", "--apply") == 1
    assert "topic no-such-topic does not exist" in command.err
    assert command("finish", "--app-id", pipeline.app_id, "--decision-topic", "no-such-topic") == 1
    assert command("finish", "--app-id", pipeline.app_id) == 1
    assert "has no decision of appId" in command.err
    assert command("list", "--decision-topic", "no-such-topic") == 0
    assert "topic no-such-topic does not exist" in command.out
    assert state_of(pipeline, decided) is State.ONGOING
    assert command("finish", "--app-id", pipeline.app_id, "--decision-topic", pipeline.decision_topic) == 0
    assert state_of(pipeline, decided) is State.COMPLETE_COMMIT
    client.close()


def test_list_of_all_applications(pipeline: Pipeline, command: Command, broker: EmbeddedBroker) -> None:
    another = Pipeline(pipeline.client, app_id="an app/with: odd name")
    another.decide(another.task(0))
    pipeline.task(0)
    foreign = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "not-ours"})
    foreign.init_transactions()
    foreign.begin_transaction()
    foreign.produce(OUTPUT_TOPIC, b"foreign")
    foreign.flush()
    try:
        assert command("list") == 0
        assert "appId an app/with: odd name" in command.out
        assert f"appId {pipeline.app_id}" in command.out
        assert "1 more open transaction of other applications" in command.out
        assert "not-ours" not in command.out
        assert command("list", "--app-id", pipeline.app_id) == 0
        assert "2 more open transactions of other applications" in command.out
    finally:
        foreign.abort_transaction()
        another.driver.recover()


def test_a_decision_that_cannot_be_read(broker: EmbeddedBroker, command: Command) -> None:
    """It is told every time: a reader that went on behind it would take an older decision for the last."""
    client = Client(settings_of(broker.bootstrap_servers))
    whole, torn = (Pipeline(client, decision_topic="decisions-torn") for _ in range(2))
    whole.decide(whole.task(0))
    writer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    writer.produce("decisions-torn", b'{"sparkonce": 9}', f"sparkonce/{torn.app_id}")
    writer.flush()
    for _ in range(2):
        with pytest.raises(DecisionFormatError, match="has format 9"):
            torn.driver.log.read()
    topic = "--decision-topic", "decisions-torn"
    assert command("list", *topic) == 1
    assert "has format 9; this version of sparkonce reads 1. With --app-id the other" in command.err
    assert command("list", *topic, "--app-id", torn.app_id) == 1
    assert command("abort", *topic, "--app-id", torn.app_id, "--apply") == 1
    assert command("list", *topic, "--app-id", whole.app_id) == 0
    assert command("finish", *topic, "--app-id", whole.app_id) == 0
    client.close()


def test_the_topic_of_decisions_stays_small(pipeline: Pipeline, broker: EmbeddedBroker) -> None:
    """A driver reads all of it when it starts."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, pipeline.decision_topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (found,) = admin.describe_configs([resource]).values()
    values = {name: entry.value for name, entry in found.result(DEADLINE_S).items()}
    assert (values["cleanup.policy"], values["segment.bytes"]) == ("compact", str(16 << 20))


def test_nothing_at_all(command: Command) -> None:
    assert command("list", "--app-id", "nobody") == 0
    assert "no open transaction and no decision of appId nobody" in command.out


def test_no_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--bootstrap-servers", "127.0.0.1:1", "--kafka", "socket.connection.setup.timeout.ms=1"]
    assert main(["transactions", "list", *words]) == 1
    assert "no answer from Kafka at 127.0.0.1:1" in capsys.readouterr().err
    assert main(["transactions", "list"]) == 2
    assert "--bootstrap-servers HOST:PORT" in capsys.readouterr().err
    assert main(["transactions", "list", "--command-config", str(tmp_path / "no.properties")]) == 2
    assert "there is no such file" in capsys.readouterr().err
