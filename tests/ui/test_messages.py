from __future__ import annotations

import json
import pickle
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from html import unescape
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer

from sparkonce.jobs.cli.main import main
from sparkonce.jobs.cli.peek.decoding import Decoder
from sparkonce.jobs.cli.peek.reading import TopicReader, Wanted
from sparkonce.jobs.ui.kafka import messages
from sparkonce.jobs.ui.kafka.messages import Bounds, Messages, Screen, Search, positions_text, read_positions
from sparkonce.jobs.ui.pages.messages import MESSAGES
from sparkonce.jobs.ui.site import Given, Site
from tests.ui.looking import create_topic
from tests.unit.ui.shown import shown

pytestmark = pytest.mark.kafka

ANY = Search()
READ_COMMITTED = "--kafka isolation.level=read_committed"
# Of each partition the timestamps of its records, which are not in order.
TIMES = {0: [10, 20, 15, 40], 1: [12, 11, 50], 2: []}


@pytest.fixture(scope="module")
def topic(kafka: Any) -> str:
    create_topic(kafka.bootstrap_servers, "mixed", len(TIMES), config={"retention.ms": "-1"})  # they are from 1970
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for partition, times in TIMES.items():
        for at in times:
            producer.produce("mixed", f"value {at}", f"key {at}", partition=partition, timestamp=at * 1000)
    assert producer.flush(30) == 0
    return "mixed"


@pytest.fixture
def reading(kafka: Any, topic: str) -> Iterator[Messages]:
    with closing(TopicReader({"kafka.bootstrap.servers": kafka.bootstrap_servers}, topic)) as reader:
        yield Messages(reader, Decoder(None))


def places(screen: Screen) -> list[tuple[int, int]]:
    return [(each.record.partition, each.record.offset) for each in screen.records]


def after(bounds: Bounds, screen: Screen) -> Bounds:
    return {each: (screen.after[each], end) for each, (_, end) in bounds.items()}


def before(bounds: Bounds, screen: Screen) -> Bounds:
    return {each: (first, screen.before[each]) for each, (first, _) in bounds.items()}


def in_order(found: Sequence[tuple[int, int]]) -> bool:
    return all(
        [offset for each, offset in found if each == partition] == list(range(len(times)))
        for partition, times in TIMES.items()
    )


@pytest.mark.parametrize("size", range(1, 9))
def test_paging_forward_shows_each_record_once(reading: Messages, size: int) -> None:
    bounds = reading.bounds(Wanted())
    assert bounds == {0: (0, 4), 1: (0, 3), 2: (0, 0)}
    found: list[tuple[int, int]] = []
    left = bounds
    while places(screen := reading.forward(left, size, ANY)):
        found += places(screen)
        left = after(left, screen)
    assert in_order(found)
    assert len(found) == 7


@pytest.mark.parametrize("size", range(1, 9))
def test_paging_backward_shows_each_record_once(reading: Messages, size: int) -> None:
    left = reading.bounds(Wanted())
    found: list[tuple[int, int]] = []
    while places(screen := reading.backward(left, size, ANY)):
        found = places(screen) + found
        left = before(left, screen)
    assert in_order(found)
    assert len(found) == 7


def test_a_page_backward_leads_back_forward(reading: Messages) -> None:
    bounds = reading.bounds(Wanted())
    last = reading.backward(bounds, 3, ANY)
    again = reading.forward({each: (last.before[each], end) for each, (_, end) in bounds.items()}, 3, ANY)
    assert sorted(places(again)) == sorted(places(last))


@pytest.mark.parametrize("forward", [True, False])
def test_a_search_finds_by_key_and_by_text(reading: Messages, forward: bool) -> None:
    look = reading.forward if forward else reading.backward
    bounds = reading.bounds(Wanted())
    for search in (Search(b"key 15"), Search(None, "E 15"), Search(b"key 15", "value")):
        screen = look(bounds, 10, search)
        assert places(screen) == [(0, 2)]
        assert (screen.is_whole, screen.looked_at) == (True, 7)
    assert not places(look(bounds, 10, Search(b"key 15", "other")))


@pytest.mark.parametrize("forward", [True, False])
def test_a_search_goes_on_where_it_stopped(
    kafka: Any, topic: str, monkeypatch: pytest.MonkeyPatch, forward: bool
) -> None:
    monkeypatch.setattr(messages, "FIRST_CHUNK", 2)
    monkeypatch.setattr(messages, "CHUNK", 2)
    with closing(TopicReader({"kafka.bootstrap.servers": kafka.bootstrap_servers}, topic)) as reader:
        # Each look at the clock is a second later: the budget is spent after one chunk.
        reading = Messages(reader, Decoder(None), count().__next__)
        left, found, rounds = reading.bounds(Wanted()), list[tuple[int, int]](), 0
        while True:
            screen = (reading.forward if forward else reading.backward)(left, 10, Search(None, "value"))
            found = found + places(screen) if forward else places(screen) + found
            left = after(left, screen) if forward else before(left, screen)
            rounds += 1
            if screen.is_whole:
                break
    assert in_order(found)
    assert rounds > 1


@pytest.mark.parametrize("forward", [True, False])
def test_a_search_that_has_enough_goes_on_within_a_chunk(reading: Messages, forward: bool) -> None:
    left, found = reading.bounds(Wanted()), list[tuple[int, int]]()
    while places(screen := (reading.forward if forward else reading.backward)(left, 2, Search(None, "value"))):
        found = found + places(screen) if forward else places(screen) + found
        left = after(left, screen) if forward else before(left, screen)
    assert sorted(found) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)]


@pytest.mark.parametrize("search", [ANY, Search(None, "value")])
@pytest.mark.parametrize("forward", [True, False])
def test_large_records_are_fewer_at_once_and_none_is_left_out(
    reading: Messages, monkeypatch: pytest.MonkeyPatch, forward: bool, search: Search
) -> None:
    monkeypatch.setattr(messages, "MAX_BYTES", 1)
    left, found = reading.bounds(Wanted()), list[tuple[int, int]]()
    while places(screen := (reading.forward if forward else reading.backward)(left, 10, search)):
        assert search is not ANY or len(screen.records) <= len(TIMES)
        found = found + places(screen) if forward else places(screen) + found
        left = after(left, screen) if forward else before(left, screen)
    assert in_order(found)
    assert len(found) == 7


def test_what_is_kept_of_large_records_is_what_is_shown(kafka: Any) -> None:
    create_topic(kafka.bootstrap_servers, "large")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("large", b"x" * 400_000, b"\n" * 400_000)
    assert producer.flush(30) == 0
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site:
        html = shown(MESSAGES, site, {"topic": "large"})
        kept = pickle.dumps(list(site.screens._results.values()))
    assert "(400,000 characters)" in html
    assert len(kept) < 30_000


def test_the_page_and_its_command_begin_where_the_form_says(kafka: Any, topic: str) -> None:
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site:
        html = shown(MESSAGES, site, {"topic": topic}, partition="0", begin="offset", at=" 2 ")
        assert [f"value {at}" in html for at in TIMES[0]] == [False, False, True, True]
        assert f"-p 0 --offset 2 {READ_COMMITTED} --output pretty" in html
        html = unescape(shown(MESSAGES, site, {"topic": topic}, begin="time", at="1970-01-01T00:00:30", key="key 50"))
        assert [f"value {at}" in html for at in (40, 50)] == [False, True]
        assert f"--from 1970-01-01T00:00:30 '--key=key 50' {READ_COMMITTED} --output pretty" in html
        assert "is too large" in shown(MESSAGES, site, {"topic": topic}, begin="offset", at="1" * 30)


def test_what_is_typed_counts_whatever_is_chosen_beside_it(kafka: Any, topic: str) -> None:
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site:
        for chosen in ("newest", "oldest"):
            html = shown(MESSAGES, site, {"topic": topic}, partition="0", begin=chosen, at="2")
            assert [f"value {at}" in html for at in TIMES[0]] == [False, False, True, True]
            assert '<option value="offset" selected>' in html
            html = shown(MESSAGES, site, {"topic": topic}, begin=chosen, at="1970-01-01T00:00:30")
            assert [f"value {at}" in html for at in (15, 40)] == [False, True]


def test_the_command_shows_what_the_page_does(kafka: Any, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    queries: list[dict[str, str]] = [
        {},
        {"begin": "oldest", "count": "3"},
        {"text": "E 1"},
        {"text": "-", "key": "key 15"},
        {"text": "value", "partition": "0", "begin": "offset", "at": "1"},
        {"partition": "0", "before": "0:3", "count": "2"},
        {"partition": "0", "after": "0:1", "count": "2", "text": "value"},
    ]
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site:
        for query in queries:
            html = unescape(shown(MESSAGES, site, {"topic": topic}, **query))
            (command,) = re.findall('<pre class="command">(sparkonce peek .*)</pre>', html)
            assert main([*shlex.split(command)[1:-1], "json"]) == 0
            printed = [json.loads(line)["value"] for line in capsys.readouterr().out.splitlines()]
            # In their order by time, which the page mixes with that of offsets.
            assert sorted(printed) == sorted(re.findall("<summary>(.*?)</summary>", html)), query
        assert "sparkonce peek" not in shown(MESSAGES, site, {"topic": topic}, before="0:3,1:2,2:0"), "it cannot"


def test_null_and_texts_that_look_like_it_differ(kafka: Any) -> None:
    create_topic(kafka.bootstrap_servers, "nulls")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for value in (None, b"null", b"", b'"null"'):
        producer.produce("nulls", value, value)
    assert producer.flush(30) == 0
    with closing(Site(Given(kafka={"kafka.bootstrap.servers": kafka.bootstrap_servers}))) as site:
        html = unescape(shown(MESSAGES, site, {"topic": "nulls"}, begin="oldest"))
    shown_as = ['<em class="soft">null</em>', '"null"', '""', '""null""']
    assert re.findall("<summary>(.*?)</summary>", html) == shown_as
    assert re.findall('<td class="code">(?!<details)(.*?)</td>', html) == shown_as


def test_positions_are_read_back() -> None:
    assert read_positions(positions_text({3: 7, 0: 12})) == {0: 12, 3: 7}
    for text in ("", "a", "1", "1:", "1:-2", "1:2,"):
        assert read_positions(text) is None
