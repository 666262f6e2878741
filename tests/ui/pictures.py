"""Take the pictures of docs/ui.md and of docs/internals/design.md: `python -m tests.ui.pictures docs`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from math import exp, sin
from pathlib import Path
from unittest.mock import patch

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import expect, sync_playwright

from lab.browser import browser_path, launch
from sparkonce.connectors.lag.runs import Runs, RunState
from sparkonce.jobs.ui.own_brokers import OwnBrokers, started
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.log import table_log
from sparkonce.offset_store.offsets import Position, SourceOffset
from tests.ui.looking import create_topic, produce
from tests.ui.screens import make_sheets
from tests.unit.sink.query_by_hand import TP, Query
from tests.unit.ui.test_tracing import SCHEMA

WIDTH, HEIGHT = 1200, 640
SIZES = {
    "orders": [10 + round(8 * sin(minute / 8)) + minute * 7 % 5 for minute in range(60)],
    "payments": [3 + minute * 11 % 4 for minute in range(60)],
    "customers": [2 + round(40 * exp(-((minute - 40) ** 2) / 9)) for minute in range(60)],
    "returns": [8 + minute * 5 % 7 for minute in range(31)],
}
"""Records of each of the batches, one a minute."""
WAITING = {"returns": 7}
"""Records after them."""


class Pipeline(Query):
    """A query of one of the brokers' topics into a table of the topic's name."""

    def __init__(self, folder: Path, topic: str, topic_id: str) -> None:
        place = folder / "checkpoints" / topic
        super().__init__(place, topic, schema=SCHEMA, path=str(folder / topic), appId=topic)
        self.key = TP._replace(topic=topic, topic_id=topic_id)

    def log(self, batch_id: int, end: int, partitions: int = 1) -> None:
        """See `Query.log`."""
        line = SourceOffset("kafka", {self.key: Position(0, end)}).to_json()
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")

    def run(self, sizes: Sequence[int]) -> None:
        """Run a batch in each of the last minutes, the last one now, and note that they are done, as Spark does."""
        done = self.checkpoint / "commits"
        done.mkdir()
        end, now = 0, now_ms()
        for number, size in enumerate(sizes):
            at_ms = now - 60_000 * (len(sizes) - 1 - number)
            rows = [{"partition": 0, "offset": offset, "city": f"c{offset}"} for offset in range(end, end + size)]
            end += size
            with patch.object(table_log, "now_ms", lambda at_ms=at_ms: at_ms):
                self.log(number, end)
                self.commit(number, self.tasks(rows=rows))
            (done / str(number)).write_text("v1\n{}")
            took_ms = 40 + 7 * size % 50
            os.utime(self.checkpoint / "offsets" / str(number), ns=(10**6 * (at_ms - took_ms),) * 2)
            os.utime(done / str(number), ns=(10**6 * at_ms,) * 2)


def main(folder: Path) -> None:
    """Start brokers with something in them, and take the pictures."""
    with ExitStack() as stack:
        tempfile.tempdir = stack.enter_context(tempfile.TemporaryDirectory())  # where queries note how they ended
        data = Path(tempfile.tempdir) / "data"
        servers, brokers = started(3, None, stack)
        given = Given(kafka={"kafka.bootstrap.servers": servers}, folder=data)
        site = stack.enter_context(closing(Site(given, OwnBrokers(brokers))))
        ui = stack.enter_context(UiServer(site))
        _fill(servers)
        _run(servers, data)
        path = browser_path()
        assert path is not None, "there is no browser: apt-get install chromium"
        browser = launch(stack.enter_context(sync_playwright()), path)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(f"{ui.url}topics/orders/messages")
        expect(page.locator("tbody tr")).to_have_count(50)
        page.locator("summary").nth(2).click()
        page.screenshot(path=folder / "ui_messages.png")
        page.goto(f"{ui.url}topics")
        expect(page.locator("#t-orders")).to_contain_text("billing")
        page.screenshot(path=folder / "ui_topics.png")
        page.goto(f"{ui.url}pipelines")
        expect(page.locator("#needs")).to_contain_text("Query returns has failed")
        expect(page.locator("tbody tr")).to_have_count(len(SIZES))
        page.screenshot(path=folder / "ui_pipelines.png", full_page=True)
        page.goto(f"{ui.url}trace?topic=payments&partition=0&offset=17")
        expect(page.locator("#records")).to_contain_text("written once")
        page.locator(".chain").first.screenshot(path=folder / "ui_trace.png")
        make_sheets(browser, ui.url, servers, data, folder / "internals")
        page.goto(f"{ui.url}brokers")
        page.get_by_role("button", name="Kill broker 2").click()
        expect(page.get_by_text("Partitions that are not well")).to_be_visible()
        page.screenshot(path=folder / "ui_brokers.png")
        browser.close()


def _run(servers: str, data: Path) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for name, found in admin.describe_topics(TopicCollection([*SIZES])).items():
        topic_id = str(found.result().topic_id).replace("/", "_").replace("+", "-")
        Pipeline(data, name, topic_id).run(SIZES[name])
        Runs().note(name, RunState.RUNNING)
    why = (
        "MalformedValueError: kafka_once: the record of topic returns, partition 0, at offset 340 has a value that is "
        "no JSON. Correct what writes it, or use includeDeadLetters=true on the source"
    )
    Runs().note("returns", RunState.FAILED, why)


def _fill(servers: str) -> None:
    for name, sizes in SIZES.items():
        partitions = 4 if name == "orders" else 1
        create_topic(servers, name, partitions, replicas=3)
        for partition in range(partitions):
            values = [f'{{"id": {n}, "amount": {n * 7 % 90}.5}}' for n in range(sum(sizes) + WAITING.get(name, 0))]
            produce(servers, name, values, partition)
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "billing"})) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", each, 300) for each in range(4)], asynchronous=False)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payer"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", b"\x00\x01", "k")
    producer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
