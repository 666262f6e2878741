"""docs/open_transactions.md: its commands are run, in order, and print what it says; its links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.admin import KafkaAdminClient, NewTopic

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client
from tests.unit.kafka_sink.transactions_support import OUTPUT_TOPIC, SOURCE_TOPIC, Pipeline, settings_of

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "open_transactions.md").read_text()
SERVERS = "localhost:9092"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        admin = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
        admin.create_topics([NewTopic(SOURCE_TOPIC, 1, 1), NewTopic(OUTPUT_TOPIC, 1, 1)])
        admin.close()
        yield running


def killed_between_two_commits(pipeline: Pipeline) -> None:
    first, second = pipeline.task(0), pipeline.task(1)
    pipeline.decide(first, second)
    pipeline.commit(first)
    pipeline.task(2)


def timed_out_between_two_commits(pipeline: Pipeline) -> None:
    pipeline.next_batch()
    first, second = pipeline.task(3), pipeline.task(4)
    pipeline.decide(first, second)
    pipeline.commit(first)
    pipeline.lose(second)


SCENES: dict[str, Callable[[Pipeline], None]] = {
    "What is open, and why": killed_between_two_commits,
    "Rows that are lost": timed_out_between_two_commits,
}


def plain(text: str) -> str:
    """Leave out what differs from run to run, and how lines are broken."""
    text = re.sub(r"127\.0\.0\.1:\d+", SERVERS, text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<time>", text)
    text = re.sub(r"sparkonce/orders/[0-9a-f]{12}/", "sparkonce/orders/<id>/", text)
    text = re.sub(r"\b\d+ s\b", "<time>", text)
    return " ".join(text.split())


def test_the_commands_print_what_the_page_says(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    client = Client(settings_of(broker.bootstrap_servers))
    pipeline = Pipeline(client, app_id="orders", query_id="5b0c7a1e")
    shown = []
    for heading, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", PAGE, re.MULTILINE):
        SCENES.get(heading, lambda _: None)(pipeline)
        for commands, expected in re.findall(r"```bash\n(.*?)```\n\n```text\n(.*?)```", body, re.DOTALL):
            printed = ""
            for line in commands.splitlines():
                words = shlex.split(line.replace(SERVERS, broker.bootstrap_servers))
                assert words[:2] == ["sparkonce", "transactions"]
                main(words[1:])
                printed += "".join(capsys.readouterr())
            assert plain(printed) == plain(expected), printed
            shown.append(heading)
    assert shown == ["What is open, and why", "Finish", "Abort", "Rows that are lost", "Rows that are lost"]
    assert len(pipeline.visible()) == 9
    client.close()


def test_every_link_leads_somewhere() -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", PAGE):
        text = (DOCS / target).read_text() if target else PAGE
        headings = {
            re.sub(r"[^a-z0-9_ -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        }
        assert not anchor or anchor in headings, f"{target}#{anchor}"
