"""Each page with real data, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Page, expect

from sparkonce import EmbeddedBroker
from sparkonce.jobs.ui.own_brokers import OwnBrokers, started
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible, create_topic, produce

pytestmark = pytest.mark.kafka


NOT_READY = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""While a cluster makes the topic of its groups' offsets."""


def open_page(page: Page, ui: UiServer, path: str, state: str = "live") -> None:
    page.goto(f"{ui.url}{path}")
    expect(page.locator("#connection")).to_have_text(state)


def only_node(servers: str) -> int:
    """Return the id of a cluster's one node: 0 of ours, 1 of Kafka's."""
    (node,) = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).brokers
    return int(node)


def commit(servers: str, group: str, topic: str, offset: int) -> None:
    with closing(Consumer({"bootstrap.servers": servers, "group.id": group})) as consumer:
        while True:
            try:
                consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
                return
            except KafkaException as error:
                if error.args[0].code() not in NOT_READY:
                    raise


def test_the_address_without_a_page_leads_to_the_first(ui: UiServer, page: Page) -> None:
    open_page(page, ui, "")
    expect(page.get_by_role("link", name="Topics")).to_have_attribute("aria-current", "page")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()


def test_a_topic_has_its_partitions_groups_and_settings(kafka: Any, ui: UiServer, page: Page) -> None:
    create_topic(kafka.bootstrap_servers, "flights", 2, config={"max.message.bytes": "99999"})
    produce(kafka.bootstrap_servers, "flights", ["a"] * 7)
    commit(kafka.bootstrap_servers, "planes", "flights", 3)
    node = only_node(kafka.bootstrap_servers)
    open_page(page, ui, "topics/flights")
    expect(page.locator("#p-0")).to_contain_text(f"0 {node} 0 {node} {node} 0 7 7", use_inner_text=True)
    expect(page.locator("#g-planes")).to_contain_text(re.compile(r"4, \d+\.\d s"))
    produce(kafka.bootstrap_servers, "flights", ["b"], partition=1)
    expect(page.locator("#p-1")).to_contain_text(f"1 {node} 0 {node} {node} 0 1 1", use_inner_text=True)
    expect(page.locator("#settings")).to_contain_text("max.message.bytes")
    page.get_by_text("as they are by default").click()
    expect(page.locator("#defaults")).to_contain_text("retention.ms")
    check_accessible(page)
    expect(page.locator("#defaults")).to_have_attribute("open", "")


def test_messages_are_paged_through_and_searched(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "letters", 2)
    produce(servers, "letters", [f'{{"number": {number}}}' for number in range(40)])
    open_page(page, ui, "topics/letters/messages?count=25")
    expect(page.locator("tbody tr")).to_have_count(25)
    expect(page.locator("tbody tr").first).to_contain_text('{"number":39}')
    produce(servers, "letters", ["<script>alert(1)</script>"], partition=1)
    expect(page.locator("tbody tr").first).to_contain_text("<script>alert(1)</script>")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(16)
    expect(page.locator("tbody tr").last).to_contain_text('{"number":0}')
    page.get_by_role("link", name="Newer").click()
    expect(page.locator("tbody tr").first).to_contain_text('{"number":16}')
    page.get_by_label("With the text").fill('"number":1')
    page.keyboard.press("Enter")
    expect(page.get_by_text("Found 11.")).to_be_visible()
    page.get_by_label("Offset, or time").fill("5")
    page.locator("#begin").select_option("offset")
    page.get_by_label("With the text").fill("")
    page.get_by_label("Partition").fill("0")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr").first).to_contain_text('{"number":5}')
    page.locator("tbody summary").first.click()
    expect(page.locator("details pre.message").first).to_contain_text('"number": 5')
    expect(page.locator("details .field").first).to_have_text('"number"')
    expect(page.locator("details .literal").first).to_have_text("5")
    check_accessible(page)
    page.get_by_label("Offset, or time").fill("soon")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("The offset to begin at: 'soon' is not a whole number, zero or above.")).to_be_visible()


def test_a_message_that_is_open_is_not_swept_away(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "swept")
    produce(servers, "swept", ["one", "two"])
    open_page(page, ui, "topics/swept/messages?count=1")
    for _ in range(2):  # opened, and opened again
        page.locator("summary", has_text="two").click()
        expect(page.locator("#connection")).to_have_text("paused")
        expect(page.locator("details[open] pre.message")).to_contain_text("two")
        page.locator("summary", has_text="two").press("Enter")
        expect(page.locator("#connection")).to_have_text("live")
    page.locator("summary", has_text="two").click()
    expect(page.locator("#connection")).to_have_text("paused")
    produce(servers, "swept", ["three"])
    while "three" not in page.request.get(f"{ui.url}topics/swept/messages?count=1").text():
        pass
    expect(page.locator("details[open] pre.message")).to_contain_text("two")
    page.locator("summary", has_text="two").click()
    expect(page.locator("tbody tr")).to_contain_text("three")


def test_long_names_leave_the_other_columns_where_they_are(kafka: Any, ui: UiServer, page: Page) -> None:
    name, width = "long." + "n" * 240, 1280
    create_topic(kafka.bootstrap_servers, name)
    produce(kafka.bootstrap_servers, name, ["a"])
    commit(kafka.bootstrap_servers, "g" * 240, name, 0)
    page.set_viewport_size({"width": width, "height": 800})
    for path in (f"topics?name={name}", f"groups?name={'g' * 240}", f"topics/{name}", f"topics/{name}/messages"):
        open_page(page, ui, path)
        # In one look, since an update may replace a head between two.
        ends = page.locator("thead th:last-child").evaluate_all("all => all.map(e => e.getBoundingClientRect().right)")
        assert ends, path
        assert max(ends) <= width, f"{path[:9]}: the last column is pushed off"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_a_groups_lag_follows_it(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "orders")
    produce(servers, "orders", ["a"] * 1200)
    commit(servers, "billing/eu", "orders", 0)
    open_page(page, ui, "groups")
    row = page.get_by_role("row").filter(has_text="billing/eu")
    expect(row).to_contain_text(re.compile(r"orders\s+1\u202f200, \d+\.\d s"))
    commit(servers, "billing/eu", "orders", 1199)
    expect(row).to_contain_text(re.compile(r"orders\s+1, \d"))
    check_accessible(page)
    page.get_by_role("link", name="billing/eu").click()
    expect(page.locator("#o-orders-0")).to_contain_text("orders 0 1\u202f199 1\u202f200 1", use_inner_text=True)
    check_accessible(page)
    page.get_by_role("link", name="1\u202f199").click()
    expect(page).to_have_title("orders · Messages · sparkonce")
    expect(page.locator("tbody tr")).to_have_count(1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_members_of_a_group_have_their_share(kafka: Any, ui: UiServer, page: Page, protocol: str) -> None:
    servers, topic = kafka.bootstrap_servers, f"shared-{protocol}"
    create_topic(servers, topic, 2)
    settings = {"bootstrap.servers": servers, "group.id": topic, "group.protocol": protocol, "client.id": "mailer"}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        open_page(page, ui, f"groups/one?id={topic}")
        row = page.locator("#members tbody tr")
        expect(row).to_contain_text(re.compile(rf"mailer\s*[\d.]+\s+{topic}: 0, 1\s"))
        check_accessible(page)
    expect(page.locator("#members")).to_contain_text("Nobody reads as a member of it now.")


def test_an_open_transaction_is_there_until_it_ends(kafka: Any, ui: UiServer, page: Page) -> None:
    create_topic(kafka.bootstrap_servers, "payments")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "payer 1"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("payments", "a")
    producer.flush()
    open_page(page, ui, "transactions")
    row = page.get_by_role("row").filter(has_text="payer 1")
    expect(row).to_contain_text("payments-0")
    check_accessible(page)
    open_page(page, ui, "topics/payments")
    expect(page.locator("#summary")).to_contain_text("Offsets behind open transactions: 1")
    producer.commit_transaction()
    expect(page.locator("#summary")).not_to_contain_text("transactions")
    open_page(page, ui, "transactions")
    expect(row).to_have_count(0)


def test_a_broker_that_is_down_is_shown_and_comes_back(page: Page) -> None:
    with (
        EmbeddedBroker() as broker,
        closing(Site(Given(kafka={"kafka.bootstrap.servers": broker.bootstrap_servers}))) as site,
        UiServer(site) as ui,
    ):
        create_topic(broker.bootstrap_servers, "orders")
        open_page(page, ui, "topics")
        expect(page.locator("#t-orders")).to_be_visible()
        broker.stop()
        expect(page.get_by_text("no answer from Kafka at").first).to_be_visible()
        expect(page.locator("#t-orders")).to_be_visible()
        expect(page.locator("#connection.bad")).to_have_text("out of date")
        broker.restart()
        expect(page.get_by_text("no answer from Kafka at")).to_have_count(0)
        expect(page.locator("#connection.good")).to_have_text("live")
        produce(broker.bootstrap_servers, "orders", ["a"])
        expect(page.locator("#t-orders")).to_contain_text("orders 1 1")
        page.goto("about:blank")  # nothing is followed any more when the server ends


def test_the_token_lets_in(browser_page_without_checks: Page) -> None:
    page = browser_page_without_checks
    with closing(Site(Given())) as site, UiServer(site, token="a-token-for-tests") as ui:
        refused = page.goto(f"{ui.url}topics")
        assert refused is not None
        assert refused.status == 401
        page.goto(ui.entrance)
        expect(page).to_have_url(f"{ui.url}topics")
        expect(page.locator("#connection")).to_have_text("live")


@pytest.fixture(scope="module")
def own() -> Iterator[UiServer]:
    with ExitStack() as stack:
        servers, brokers = started(1, None, stack)
        site = stack.enter_context(
            closing(Site(Given(kafka={"kafka.bootstrap.servers": servers}), OwnBrokers(brokers)))
        )
        yield stack.enter_context(UiServer(site))


def test_a_fault_is_switched_on_and_off(own: UiServer, page: Page) -> None:
    open_page(page, own, "brokers")
    page.locator("#api").select_option("ListGroups")
    page.locator("#error").fill("COORDINATOR_NOT_AVAILABLE")
    page.get_by_role("button", name="Switch on").click()
    expect(page.locator(".said")).to_have_text(
        "Switched on at broker 0: fail with COORDINATOR_NOT_AVAILABLE ListGroups."
    )
    check_accessible(page)
    open_page(page, own, "groups", "out of date")
    expect(page.locator("#problems")).to_contain_text("COORDINATOR_NOT_AVAILABLE")
    open_page(page, own, "brokers")
    expect(page.locator("#f-1 td.number").nth(1)).not_to_have_text("0")
    page.get_by_role("button", name="Switch off").click()
    expect(page.get_by_text("None is switched on.")).to_be_visible()
    open_page(page, own, "groups")
    expect(page.locator("#problems")).to_be_empty()


def test_a_fault_that_cannot_be_says_why(own: UiServer, browser_page_without_checks: Page) -> None:
    page = browser_page_without_checks
    open_page(page, own, "brokers")
    page.locator("#error").fill("NOT_A_LEADER")
    page.get_by_role("button", name="Switch on").click()
    expect(page.locator(".said")).to_contain_text("'NOT_A_LEADER' is no error of Kafka's; the nearest are")


def test_a_broker_is_killed_and_started(own: UiServer, page: Page) -> None:
    open_page(page, own, "brokers")
    page.get_by_role("button", name="Kill broker 0").click()
    expect(page.locator(".said")).to_contain_text("was ended by SIGKILL")
    expect(page.get_by_text("no answer from Kafka at")).to_be_visible()
    page.get_by_role("button", name="Start broker 0").click()
    expect(page.locator(".said")).to_contain_text("Broker 0 runs again")
    expect(page.locator("#problems")).to_be_empty()
    page.get_by_role("link", name="0", exact=True).click()
    expect(page.get_by_role("heading", name="Broker 0")).to_be_visible()
    check_accessible(page)


def test_offsets_of_a_group_are_moved_as_planned(kafka: Any, browser_page_without_checks: Page) -> None:
    page, servers = browser_page_without_checks, kafka.bootstrap_servers
    create_topic(servers, "moved")
    produce(servers, "moved", ["a"] * 9)
    commit(servers, "mover", "moved", 4)
    given = Given(kafka={"kafka.bootstrap.servers": servers}, allow_changes=True)
    with closing(Site(given)) as site, UiServer(site) as ui:
        open_page(page, ui, "groups/one?id=mover")
        page.get_by_role("button", name="Show what would change").click()
        expect(page.locator("p.said")).to_have_text(
            "Nothing was changed. This would be: moved-0: 4 → 0 (4 offsets again)"
        )
        check_accessible(page)
        commit(servers, "mover", "moved", 5)
        page.get_by_role("button", name="Move these offsets").click()
        expect(page.locator("p.said")).to_contain_text("Nothing was changed: the offsets have moved")
        page.locator("#to").select_option("offset")
        page.locator("#at").fill("7")
        page.get_by_role("button", name="Show what would change").click()
        page.get_by_role("button", name="Move these offsets").click()
        expect(page.locator("p.said")).to_have_text("Moved: moved-0: 5 → 7 (2 offsets left out)")
        expect(page.locator("#o-moved-0 td").nth(1)).to_have_text("7")


def test_offsets_are_not_moved_unless_that_is_allowed(kafka: Any, ui: UiServer, page: Page) -> None:
    create_topic(kafka.bootstrap_servers, "kept")
    produce(kafka.bootstrap_servers, "kept", ["a"] * 3)
    commit(kafka.bootstrap_servers, "keeper", "kept", 3)
    open_page(page, ui, "groups/one?id=keeper")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("p.said")).to_contain_text("start them with --allow-changes")
    expect(page.get_by_role("button", name="Move these offsets")).to_have_count(0)


def test_of_1000_partitions_only_what_changes_is_sent(kafka: Any, ui: UiServer, page: Page) -> None:
    servers = kafka.bootstrap_servers
    create_topic(servers, "wide", 1000)
    open_page(page, ui, "topics/wide")
    expect(page.locator("#p-249")).to_be_visible()
    # Kafka names all leaders, then creates one log after another: until then no row is final.
    expect(page.locator("tr[id^=p-]").filter(has_text="\N{EN DASH}")).to_have_count(0)
    kept = page.locator("#p-8").element_handle()
    produce(servers, "wide", ["a"], partition=7)
    expect(page.locator("#p-7 td").nth(6)).to_have_text("1")
    assert kept.evaluate("element => element.isConnected"), "its row was replaced, too"
    page.get_by_role("link", name="Next").click()
    expect(page.locator("#p-250")).to_be_visible()
    expect(page.get_by_text("Part 2 of 4")).to_be_visible()
    open_page(page, ui, "topics/wide/messages")
    expect(page.get_by_text("one is shown at a time")).to_be_visible()
