"""What the tests of the pages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata
from playwright.sync_api import Page

_NOTHING = TopicMetadata()


def create_topic(
    servers: str, name: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, partitions, replicas, config=dict(config or {}))]).values():
        created.result()
    while len(admin.list_topics().topics.get(name, _NOTHING).partitions) < partitions:
        pass  # a broker of a real cluster may not have heard of it yet


def produce(servers: str, topic: str, values: Sequence[str | bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number, value in enumerate(values):
        producer.produce(topic, value, f"k{number}", partition=partition)
    assert producer.flush(30) == 0


def check_accessible(page: Page) -> None:
    """Fail if axe finds anything, in light or dark; in dark only contrasts can be others."""
    for scheme, rules in (("dark", {"runOnly": ["color-contrast"]}), ("light", {})):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        found = Axe().run(page, options={**rules, "resultTypes": ["violations"]})
        assert found.violations_count == 0, found.generate_report()
