"""Take the pictures of docs/ui.md: `python -m tests.ui.pictures docs`."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import expect, sync_playwright

from lab.browser import browser_path, launch
from sparkonce.jobs.ui.own_brokers import OwnBrokers, started
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import create_topic, produce

WIDTH, HEIGHT = 1000, 560


def main(folder: Path) -> None:
    """Start brokers with something in them, and take the pictures."""
    with ExitStack() as stack:
        servers, brokers = started(3, None, stack)
        site = stack.enter_context(
            closing(Site(Given(kafka={"kafka.bootstrap.servers": servers}), OwnBrokers(brokers)))
        )
        ui = stack.enter_context(UiServer(site))
        _fill(servers)
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
        page.goto(f"{ui.url}brokers")
        page.get_by_role("button", name="Kill broker 2").click()
        expect(page.get_by_text("Partitions that are not well")).to_be_visible()
        page.screenshot(path=folder / "ui_brokers.png")
        browser.close()


def _fill(servers: str) -> None:
    for name, partitions in (("orders", 4), ("payments", 2), ("returns", 1)):
        create_topic(servers, name, partitions, replicas=3)
    for partition in range(4):
        produce(servers, "orders", [f'{{"id": {n}, "amount": {n * 7 % 90}.5}}' for n in range(400)], partition)
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "billing"})) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", each, 300) for each in range(4)], asynchronous=False)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "payer"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", b"\x00\x01", "k")
    producer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
