"""Eight readers of all pages at once, beside writers: no page fails, and none lacks a row that it should have.

`SECONDS` says for how long, 20 by default: SECONDS=60 .venv/bin/pytest -m lab tests/lab/ui/test_eight_readers.py
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparkonce import EmbeddedBroker, EmbeddedRegistry
from sparkonce.jobs.ui.delta.tables import key_of
from sparkonce.jobs.ui.pages.all import PAGES
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import create_topic
from tests.ui.test_registry_page import avro, request
from tests.unit.sink.query_by_hand import Query

READERS = 8
SECONDS = float(os.environ.get("SECONDS", "20"))
STILL, GROWING, PARTITIONS, RECORDS = "still", "growing", 4, 60
"""Topics; the records of each partition of the first."""
NEWEST = 50
SUBJECT = f"{STILL}-value"
TIMEOUT_S = 60

Check = Callable[[str], None]


def offsets(html: str) -> list[tuple[int, int]]:
    """Return partition and offset of each message on a page."""
    return sorted((int(partition), int(offset)) for partition, offset in re.findall(r'id="m-(\d+)-(\d+)"', html))


def exactly(*expected: tuple[int, int]) -> Check:
    def check(html: str) -> None:
        assert offsets(html) == sorted(expected)

    return check


def newest(html: str) -> None:
    found = [offset for _, offset in offsets(html)]
    assert found == list(range(found[0], found[0] + NEWEST))


def has(*words: str) -> Check:
    def check(html: str) -> None:
        assert [each for each in words if each not in html] == []

    return check


def addresses(table: str, query: str) -> Mapping[str, list[tuple[str, Check]]]:
    """Return requests and what their answers must have, by the page's path."""
    everything = [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]
    messages = [(f"/topics/{STILL}/messages?begin=oldest&count=250", exactly(*everything))]
    for partition in range(PARTITIONS):
        some = exactly(*((partition, offset) for offset in range(7, 32)))
        messages.append((f"/topics/{STILL}/messages?partition={partition}&begin=offset&at=7&count=25", some))
        messages.append((f"/topics/{GROWING}/messages?partition={partition}&count={NEWEST}", newest))
    named = [each.path for each in PAGES if each.menu is not None]
    return {
        "/pipelines": [("/pipelines", has(query, "exactly-once"))],
        "/pipelines/{query}": [(f"/pipelines/{query}", has("topic-0"))],
        "/topics": [("/topics", has(STILL, GROWING, *(f'href="{each}"' for each in named)))],
        "/topics/{topic}": [(f"/topics/{STILL}", has("reader", *(f'id="p-{each}"' for each in range(PARTITIONS))))],
        "/topics/{topic}/messages": messages,
        "/groups": [("/groups", has("reader"))],
        "/groups/one": [("/groups/one?id=reader", has(*(f'id="o-{STILL}-{each}"' for each in range(PARTITIONS))))],
        "/tables": [("/tables", has(table))],
        "/tables/{table}": [(f"/tables/{table}", has("Versions", "Chains"))],
        "/tables/{table}/rows": [(f"/tables/{table}/rows", has("of its newest files", "bigint"))],
        "/tables/{table}/files": [(f"/tables/{table}/files", has("Files of version"))],
        "/tables/{table}/offsets": [(f"/tables/{table}/offsets", has("topic", "app"))],
        "/trace": [("/trace?topic=topic&partition=0&offset=3", has("version 1"))],
        "/transactions": [("/transactions", has("No transaction is open"))],
        "/brokers": [("/brokers", has("controller"))],
        "/brokers/{broker}": [("/brokers/0", has("log.retention"))],
        "/registry": [("/registry", has(SUBJECT))],
        "/registry/subject": [(f"/registry/subject?name={SUBJECT}", has("Version 1", "BACKWARD"))],
    }


@dataclass
class Readers:
    """What they have asked for, and what was wrong."""

    asked: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def read(self, number: int, url: str, requests: list[tuple[str, Check]], until_s: float) -> None:
        """Ask for all pages again and again, each reader in its own order; at least once."""
        order, chance = list(requests), random.Random(number)
        with closing(HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)) as connection:
            while not self.wrong:
                chance.shuffle(order)
                for address, check in order:
                    self.ask(connection, address, check)
                if time.monotonic() > until_s:
                    return

    def ask(self, connection: HTTPConnection, address: str, check: Check) -> None:
        """Ask for a page, and note what is wrong with the answer."""
        connection.request("GET", address)
        answer = connection.getresponse()
        html = answer.read().decode()
        self.asked[address] += 1
        try:
            assert answer.status == 200
            check(html)
        except (AssertionError, IndexError) as error:
            main = html[html.find("<main") :][:1500]
            self.wrong.append(f"GET {address}: {answer.status}: {error!s:.300}\n{main}")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        servers = made.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers})
        for topic in (STILL, GROWING):
            create_topic(servers, topic, PARTITIONS)
            for partition in range(PARTITIONS):
                for number in range(RECORDS):
                    producer.produce(topic, f"value {number}", f"key {number}", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        with closing(Consumer({"bootstrap.servers": servers, "group.id": "reader"})) as consumer:
            at = [TopicPartition(STILL, partition, 5) for partition in range(PARTITIONS)]
            consumer.commit(offsets=at, asynchronous=False)
        yield made


def test_no_page_fails_and_none_lacks_a_row(broker: EmbeddedBroker, tmp_path: Path) -> None:
    query = Query(tmp_path)
    for batch in range(3):
        query.write(batch, [{"v": batch}])
    asked = addresses(key_of(str(query.table)), "q")
    assert asked.keys() == {each.path for each in PAGES}, "every page is read"
    requests = [each for some in asked.values() for each in some]
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    readers, done = Readers(), threading.Event()
    with (
        EmbeddedRegistry(broker.bootstrap_servers) as registry,
        closing(Site(Given(kafka=kafka, folder=tmp_path, registry={"schemaRegistry.url": registry.url}))) as site,
        UiServer(site) as ui,
    ):
        request(f"{registry.url}/subjects/{SUBJECT}/versions", "POST", avro("n"))
        until_s = time.monotonic() + SECONDS
        threads = [
            threading.Thread(target=readers.read, args=(number, ui.url, requests, until_s)) for number in range(READERS)
        ]
        writer = threading.Thread(target=write, args=(broker.bootstrap_servers, query, done))
        for each in (writer, *threads):
            each.start()
        for each in threads:
            each.join()
        done.set()
        writer.join()
    print(f"RESULT requests={readers.asked.total()} wrong={len(readers.wrong)}")
    assert not readers.wrong, "\n".join(readers.wrong)
    assert readers.asked.keys() == {address for address, _ in requests}


def write(servers: str, query: Query, done: threading.Event) -> None:
    """Add to a topic and to a table until the readers are done."""
    producer, batch = Producer({"bootstrap.servers": servers}), 3
    while not done.is_set():
        for partition in range(PARTITIONS):
            producer.produce(GROWING, "more", partition=partition)
        producer.flush(TIMEOUT_S)
        query.write(batch, [{"v": batch}])
        batch += 1
