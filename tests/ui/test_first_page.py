"""The first page names each fault of a running system, its cause and its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Page, expect

from sparkonce import EmbeddedBroker
from sparkonce.connectors.lag.runs import Runs, RunState
from sparkonce.jobs.ui import needs
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import check_accessible, create_topic, produce
from tests.unit.sink import query_by_hand
from tests.unit.sink.query_by_hand import Query


@dataclass(frozen=True)
class System:
    """A broker, a folder of tables and checkpoints, and its pages."""

    servers: str
    folder: Path
    ui: UiServer


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where queries note how they ended
    monkeypatch.setattr(needs, "HUNG_MS", 0)
    monkeypatch.setattr(needs, "LATE_S", 0.0)
    monkeypatch.setattr(query_by_hand, "TP", query_by_hand.TP._replace(topic_id=""))  # the brokers choose one
    folder = tmp_path / "data"
    folder.mkdir()
    with EmbeddedBroker() as broker:
        given = Given(kafka={"kafka.bootstrap.servers": broker.bootstrap_servers}, folder=folder)
        with closing(Site(given)) as site, UiServer(site) as ui:
            yield System(broker.bootstrap_servers, folder, ui)


def made(folder: Path, name: str) -> Query:
    """A query with one batch, whose id is its name."""
    (folder / name).mkdir()
    query = Query(folder / name, name)
    query.write(0, [{"v": 1}])
    return query


def test_each_fault_is_named_with_its_remedy(system: System, page: Page) -> None:
    create_topic(system.servers, "topic")
    create_topic(system.servers, "lagging")
    failed = made(system.folder, "failed")
    made(system.folder, "fenced")
    broken = made(system.folder, "broken")
    page.goto(system.ui.url)
    expect(page.get_by_text("Nothing needs you.")).to_be_visible()
    check_accessible(page)

    Runs().note("failed", RunState.FAILED, "PoisonError: value of topic-0 at offset 7 is no JSON. Set deadLetters")
    Runs().note("fenced", RunState.FENCED, "FencedError: version 2 holds batch 0 of query other")
    next(broken.table.rglob("*.parquet")).unlink()
    producer = Producer({"bootstrap.servers": system.servers, "transactional.id": "left-open"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("topic", b"x")
    producer.flush()
    with closing(Consumer({"bootstrap.servers": system.servers, "group.id": "billing"})) as consumer:
        consumer.commit(offsets=[TopicPartition("lagging", 0, 0)], asynchronous=False)
    found = page.locator("#needs")
    expect(found).to_contain_text("Query app has failed. PoisonError: value of topic-0 at offset 7")
    expect(found).to_contain_text(f"start it again with its checkpoint {failed.checkpoint}")
    expect(found).to_contain_text("Query app was fenced. FencedError: version 2 holds batch 0")
    expect(found).to_contain_text("Stop one of the two drivers;")
    expect(found).to_contain_text("Table broken/table is broken.")
    expect(found).to_contain_text(f"sparkonce audit {broken.table}")
    expect(found).to_contain_text("Transaction left-open is left open. Readers of committed records have waited")
    expect(found).to_contain_text("its next start with this transactional id ends the transaction at once")
    expect(found).to_contain_text("or else Kafka aborts it in")
    behind = found.get_by_text("Group billing falls behind.")
    while not behind.is_visible():
        produce(system.servers, "lagging", [b"more"] * 200)
    expect(found).to_contain_text("Start its consumers.")
    expect(page.locator("tbody tr").first).to_contain_text("failed")
    check_accessible(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    check_accessible(page)
    producer.abort_transaction()
    expect(found).not_to_contain_text("left-open")


def test_a_topic_names_the_queries_that_read_it(system: System, page: Page) -> None:
    create_topic(system.servers, "topic")
    made(system.folder, "a")
    page.goto(f"{system.ui.url}topics/topic")
    page.locator("#q-a").get_by_role("link", name="app").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("app")
    page.locator("#facts").get_by_role("link", name="topic", exact=True).click()
    expect(page.locator("#q-a")).to_contain_text("running")
    check_accessible(page)


def test_what_somebody_selects_stays_until_it_was_copied(system: System, page: Page) -> None:
    broken = made(system.folder, "broken")
    next(broken.table.rglob("*.parquet")).unlink()
    page.goto(system.ui.url)
    found = page.locator("#needs")
    expect(found.get_by_role("button", name="Copy")).to_be_visible()
    found.locator("pre").first.select_text()
    expect(page.locator("#connection")).to_have_text("paused")
    Runs().note("broken", RunState.FAILED, "PoisonError: late news")
    while not page.evaluate("JSON.stringify(held)?.includes('late news')"):
        pass
    assert "sparkonce audit" in page.evaluate("getSelection().toString()")
    page.evaluate("getSelection().removeAllRanges()")
    expect(found).to_contain_text("late news")
    expect(page.locator("#connection")).to_have_text("live")


def test_tables_sort_and_stay_sorted(system: System, page: Page) -> None:
    queries = {name: made(system.folder, name) for name in ("c", "a", "b")}
    page.goto(system.ui.url)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    links = page.locator("tbody th a")

    def order() -> list[str]:
        return [(each.get_attribute("href") or "").rpartition("/")[2] for each in links.all()]

    batch = page.get_by_role("button", name="Last batch")
    queries["a"].write(1, [{"v": 2}])
    batch.click()
    expect(links.first).to_have_attribute("href", "/pipelines/a")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Last batch")
    for number in (1, 2):
        queries["b"].write(number, [{"v": 2}])
    expect(rows.filter(has=page.locator("a[href='/pipelines/b']")).locator("td.number")).to_have_attribute(
        "data-sort", "2"
    )
    expect(links.first).to_have_attribute("href", "/pipelines/b")
    assert order() == ["b", "a", "c"]
    batch.click()
    assert order() == ["c", "a", "b"]
    page.get_by_label("Query or topic").fill("nothing has this name")
    expect(page.get_by_text("No query has that in its name.")).to_be_visible()
    check_accessible(page)
