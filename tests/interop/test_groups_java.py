"""Kafka's own consumer and tools for groups against the broker, and its reader of `__consumer_offsets`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer

from lab.peers import missing_kafka_reason, run_tool
from sparkonce import EmbeddedBroker
from tests.interop.tools import KafkaTools
from tests.kafka_files import DUMP

pytestmark = pytest.mark.java
GROUPS = "consumer.group.ConsumerGroupCommand"
CONSOLE = "consumer.ConsoleConsumer"
RECORDS = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    with EmbeddedBroker(config={"group.consumer.heartbeat.interval.ms": 200}) as embedded:
        producer = Producer({"bootstrap.servers": embedded.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce("t", b"%d" % number)
        assert producer.flush(60) == 0
        yield embedded


@pytest.fixture(scope="module")
def tools(broker: EmbeddedBroker) -> Iterator[KafkaTools]:
    with KafkaTools(broker.bootstrap_servers) as running:
        yield running


def consume(tools: KafkaTools, group: str, protocol: str) -> None:
    limits = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
    said = tools.do(
        CONSOLE, "--topic", "t", "--group", group, *limits, "--command-property", f"group.protocol={protocol}"
    )
    assert re.findall(r"^\d+$", said, re.MULTILINE) == [str(number) for number in range(RECORDS)], said


def offset_of(tools: KafkaTools, group: str) -> str | None:
    found = re.search(
        rf"^{group}\s+t\s+0\s+(\S+)\s+{RECORDS}\s+", tools.do(GROUPS, "--describe", "--group", group), re.MULTILINE
    )
    return found.group(1) if found else None


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_javas_consumer_and_the_group_command(broker: EmbeddedBroker, tools: KafkaTools, protocol: str) -> None:
    group = f"java-{protocol}"
    consume(tools, group, protocol)
    assert offset_of(tools, group) == str(RECORDS)
    kind = {"consumer": "Consumer", "classic": "Classic"}[protocol]
    assert re.search(rf"^{group}\s+{kind}\s+Empty", tools.do(GROUPS, "--list", "--type", "--state"), re.MULTILINE)
    here = ("--group", group, "--topic", "t")
    tools.do(GROUPS, "--reset-offsets", *here, "--shift-by", "-4", "--execute")
    assert offset_of(tools, group) == str(RECORDS - 4)
    assert "Request succeeded" in tools.do(GROUPS, "--delete-offsets", *here)
    assert offset_of(tools, group) is None
    tools.do(GROUPS, "--reset-offsets", *here, "--to-earliest", "--execute")
    assert "successful" in tools.do(GROUPS, "--delete", "--group", group)
    assert group not in tools.do(GROUPS, "--list")


def test_a_group_that_is_at_work_is_described_and_not_deleted(broker: EmbeddedBroker, tools: KafkaTools) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "busy", "group.protocol": "consumer"}
    consumer = Consumer({**settings, "group.instance.id": "i", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["t"])
        assert consumer.consume(1, 60)
        members = tools.do(GROUPS, "--describe", "--group", "busy", "--members", "--verbose")
        assert re.search(
            r"^busy\s+\S+\s+i\s+/127.0.0.1\s+rdkafka\s+1\s+2\s+t:0\s+2\s+t:0\s*$", members, re.MULTILINE
        ), members
        state = tools.do(GROUPS, "--describe", "--group", "busy", "--state")
        assert re.search(r"^busy\s+\S+\s+\(0\)\s+uniform\s+Stable\s+1\s*$", state, re.MULTILINE), state
        assert "GroupNotEmptyException" in tools.run(GROUPS, "--delete", "--group", "busy").text
        refused = tools.run(GROUPS, "--delete-offsets", "--group", "busy", "--topic", "t").text
        assert "Error" in refused, refused
    finally:
        consumer.close()


def test_kafka_reads_what_we_wrote(broker: EmbeddedBroker, tools: KafkaTools) -> None:
    consume(tools, "read-consumer", "consumer")
    consume(tools, "read-classic", "classic")
    logs = ",".join(str(path) for path in broker.data_dir.glob("__consumer_offsets-*/*.log"))
    said = run_tool(DUMP, "--offsets-decoder", "--files", logs)
    assert said.returncode == 0, said.stderr
    assert "isvalid: false" not in said.stdout
    keys = [json.loads(each) for each in re.findall(r" key: (\{.*?\}\}) payload:", said.stdout)]
    ours = [key for key in keys if "read-" in json.dumps(key)]
    assert {key["type"] for key in ours} == {"1", "2", "3", "5", "6", "7", "8"}
    assert len(keys) == said.stdout.count("| offset: "), "every record was understood"
