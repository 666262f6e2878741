"""Pages that may change a cluster create topics and send messages; others may not, whatever they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Page, expect

from sparkonce.jobs.ui.kafka.changing import send_message
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible, create_topic

pytestmark = pytest.mark.kafka


def test_nothing_is_asked_after_the_end(kafka: Any) -> None:
    """A page may still be read in its thread when the pages end: a connection would be left open."""
    create_topic(kafka.bootstrap_servers, "asked-of")
    site = Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))
    assert site.cluster is not None
    assert site.cluster.settings.of_topic("asked-of").all
    site.close()
    assert site.cluster.members.of("nobody", "classic").all == ()
    assert site.cluster.settings.of_topic("another").all == ()
    for reader in (site.cluster.members, site.cluster.settings):
        assert not reader._answers._client._connections
    with pytest.raises(ConnectionError), site.messages("asked-of"):
        pass


@pytest.fixture(scope="module")
def changing(kafka: Any) -> Iterator[UiServer]:
    given = Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}, allow_changes=True)
    with closing(Site(given)) as site, UiServer(site) as made:
        yield made


def read(servers: str, topic: str, partition: int, count: int) -> list[tuple[bytes | None, bytes | None]]:
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "reader"})) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return [(each.key(), each.value()) for each in consumer.consume(count, 30)]


def test_a_topic_is_created_and_written(kafka: Any, changing: UiServer, page: Page) -> None:
    page.goto(f"{changing.url}topics")
    form = page.get_by_role("form", name="Create a topic")
    form.get_by_label("Name").fill("by-hand")
    form.get_by_label("Partitions").fill("3")
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").first).to_have_text("Created the topic by-hand.")
    check_accessible(page)
    page.get_by_role("form", name="Create a topic").get_by_label("Name").fill("by-hand")
    page.goto(f"{changing.url}topics/by-hand")
    for value in ("<b>one</b>\ntwo", None):
        page.get_by_text("Send a message").click()
        form = page.get_by_role("form", name="Send a message")
        form.get_by_label("Key", exact=True).fill("k")
        form.get_by_label("Partition").fill("2")
        if value is None:
            form.get_by_label("null, which deletes").check()
        else:
            form.get_by_label("Value").fill(value)
        check_accessible(page)
        form.get_by_role("button", name="Send").click()
        expect(page.get_by_role("alert").first).to_have_text("Sent to by-hand.")
    assert read(kafka.bootstrap_servers, "by-hand", 2, 2) == [(b"k", b"<b>one</b>\ntwo"), (b"k", None)]


def test_messages_that_are_sent_at_once_are_all_written(kafka: Any) -> None:
    create_topic(kafka.bootstrap_servers, "at-once")
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    values = {str(number).encode() for number in range(24)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda value: send_message(options, "at-once", None, value, 0), values))
    assert {value for _, value in read(kafka.bootstrap_servers, "at-once", 0, len(values))} == values


def test_what_the_brokers_refuse_is_said(kafka: Any, changing: UiServer, browser_page_without_checks: Page) -> None:
    page = browser_page_without_checks
    create_topic(kafka.bootstrap_servers, "one")
    page.goto(f"{changing.url}topics")
    for name, said in (
        ("one", "TOPIC_ALREADY_EXISTS"),
        ("no/topic", "INVALID_TOPIC_EXCEPTION"),
    ):  # and below: a number that no request can hold
        form = page.get_by_role("form", name="Create a topic")
        form.get_by_label("Name").fill(name)
        form.get_by_role("button", name="Create").click()
        expect(page.get_by_role("alert").first).to_contain_text(f"The brokers refuse it: {said}")
    form = page.get_by_role("form", name="Create a topic")
    form.get_by_label("Name").fill("wide")
    form.get_by_label("Partitions").fill(str(2**40))
    form.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").first).to_contain_text("A topic has 1 to 2,147,483,647 partitions.")
    page.goto(f"{changing.url}topics/one")
    page.get_by_text("Send a message").click()
    form = page.get_by_role("form", name="Send a message")
    form.get_by_label("Partition").fill("7")
    form.get_by_role("button", name="Send").click()
    expect(page.get_by_role("alert").first).to_contain_text("there is no partition 7: the topic has 1 partition")


@pytest.mark.parametrize(
    ("path", "form"),
    [("topics", {"action": "create", "topic": "sneaked"}), ("topics/here", {"action": "send", "value": "sneaked"})],
)
def test_pages_that_may_change_nothing_do_not(
    kafka: Any, ui: UiServer, page: Page, path: str, form: dict[str, str | float | bool]
) -> None:
    create_topic(kafka.bootstrap_servers, "here") if path.endswith("here") else None
    page.goto(f"{ui.url}{path}")
    expect(page.locator("#connection")).to_have_text("live")
    expect(page.locator("form[method=post]")).to_have_count(0)
    answer = page.request.post(f"{ui.url}{path}", form=form, headers={"Origin": ui.url.rstrip("/")})
    assert "These pages may change nothing" in answer.text()
    page.goto(f"{ui.url}topics")
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    expect(page.get_by_text("sneaked")).to_have_count(0)
