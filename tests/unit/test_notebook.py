"""What objects show in a notebook: escaped, short, without scripts and colours; and nothing raises."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkonce import BatchCounts, LagListener, PartitionLag, SourceLag, open_store
from sparkonce.connectors.ingest.ingestion import Ingestion
from sparkonce.connectors.ingest.routing import Flow
from sparkonce.connectors.lag.state import Batch, LagState
from sparkonce.notebook import MAX_TEXT, SHOWN_ROWS, table
from sparkonce.offset_store import MemoryOffsetStore
from sparkonce.offset_store.group import GroupOffsetStore
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, Commit, Writes

EVIL = "<script>alert('x')</script>"
WORST = 20 * 1024
"""Bytes of the largest of them."""


class Checker(HTMLParser):
    """Fails for what must not be there, and for tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in {"table", "thead", "tbody", "tr", "th", "td", "div", "b"}
        self.open.append(tag)
        for name, value in attrs:
            assert name in {"style", "scope"}
            assert not re.search(r"(?<!-)color:|background|url\(|#[0-9a-f]{3}", value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(html: str) -> str:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert len(html) < WORST
    return html


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", checked(html))
    return [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in rows]


def test_text_is_escaped_and_cut() -> None:
    html = table([EVIL], [[EVIL], ["x" * 1000]], title=EVIL, note=EVIL)
    assert "<script" not in checked(html)
    assert "x" * MAX_TEXT not in html


def test_a_long_table_says_how_much_it_leaves_out() -> None:
    html = table(["n"], [[number] for number in range(10_000)])
    assert len(cells(html)) == SHOWN_ROWS + 1
    assert f"… and {10_000 - SHOWN_ROWS:,} more" in html


def listener(partitions: int = 2) -> LagListener:
    state = LagState()
    lags = tuple(PartitionLag(EVIL, number, 1_000, 1_000 + number) for number in range(partitions))
    source = SourceLag(0, "kafka", "d", 1, lags, 0, 1, sum(range(partitions)), partitions)
    state.progressed(Batch("q", "r", EVIL, 3, 2_000, 1_000, (source,), BatchCounts(rows=990)), 0)
    return LagListener(SimpleNamespace(streams=None), state, lambda: 0.0)  # type: ignore[arg-type]


def test_a_listener_shows_its_queries() -> None:
    _, row = cells(listener()._repr_html_())
    assert row[1:] == ["running", "3", "1,000", "500.0", "990", "1"]
    assert "no query" in LagListener(SimpleNamespace(streams=None), LagState())._repr_html_()  # type: ignore[arg-type]


def test_a_query_shows_its_partitions_those_furthest_behind_first() -> None:
    (query,) = listener(1_000).queries()
    html = query._repr_html_()
    first = next(row for row in cells(html) if row[-1] == "999")
    assert first[1:] == ["999", "1,000", "1,999", "999"]
    assert cells(query.sources[0]._repr_html_())[1] == first
    assert "and 950 more" in html


@pytest.mark.parametrize(
    ("failed", "fenced", "state"), [(False, False, "ended"), (True, False, "failed"), (True, True, "fenced")]
)
def test_an_end_is_shown(failed: bool, fenced: bool, state: str) -> None:
    lag = listener()
    lag._state.ended("q", "r", failed, 1, fenced=fenced)
    assert cells(lag._repr_html_())[1][1] == state


def test_a_store_shows_its_newest_commits() -> None:
    store = MemoryOffsetStore("app")
    nothing: Any = open_store("delta:/no/such/table", "app")
    assert "nothing is stored yet" in checked(nothing._repr_html_())
    ranges = {("kafka", TopicPartition("t", "", 0)): OffsetRange(0, 1_500)}
    record = BatchRecord("app", "q", 0, "attempt", ranges, counts=BatchCounts(rows=1_400))
    store.snapshot().commit(Commit(record, Writes.ROWS | Writes.OFFSETS))
    _, row = cells(store._repr_html_())
    assert row[2:] == ["app", "0", "kafka", "t-0", "0", "1,500", "1,400"]


def test_a_store_says_how_many_ranges_it_does_not_show() -> None:
    store = MemoryOffsetStore("app")
    ranges = {("kafka", TopicPartition("t", "", index)): OffsetRange(0, 1) for index in range(SHOWN_ROWS + 7)}
    store.snapshot().commit(Commit(BatchRecord("app", "q", 0, "attempt", ranges), Writes.ROWS | Writes.OFFSETS))
    assert "and 7 more" in store._repr_html_()


def test_a_store_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").write_text("<no commit>")
    unreadable: Any = open_store(f"delta:{tmp_path}", "app")
    html = checked(unreadable._repr_html_())
    assert str(tmp_path) in html
    assert "<no commit>" not in html


def test_a_group_whose_brokers_do_not_answer_says_so() -> None:
    def ask() -> None:
        raise ConnectionError(f"no answer {EVIL}")

    html = checked(GroupOffsetStore(SimpleNamespace(check_vacant=ask, fetch=ask), "app")._repr_html_())  # type: ignore[arg-type]
    assert "no answer &lt;script&gt;" in html


def test_an_ingestion_shows_its_tables() -> None:
    both: Any = {"checkpoint": "/c", "direct": True, "why": "", "sink": {}}
    secret = {"kafka.sasl.password": "secret"}
    flow = Flow(name="f", topics=EVIL, table=None, path="/data/t", app_id=EVIL, source=secret, **both)
    waiting = Flow(name="w", topics="topic", table="shop.orders", path=None, app_id="w", source={}, **both)
    settings: Any = SimpleNamespace(trigger="once", checkpoint="/c", storage={})
    ingestion: Any = Ingestion(None, settings, (), listener())  # type: ignore[arg-type]
    flow = replace(flow, query_name=EVIL)
    ingestion._tables = {"f": flow, "w": waiting}
    ingestion._running = {"f": SimpleNamespace(flow=flow)}
    html = ingestion._repr_html_()
    _, first, second = cells(html)
    assert first[1:] == ["/data/t", "running", "3", "1,000", "1"]
    assert second == ["topic", "shop.orders", "waiting", "-", "-", "-"]
    assert "secret" not in html
