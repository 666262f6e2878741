"""The page stands by itself and shows what happened."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from lab.flights_check import ColumnChecksum, Verdict
from sparkonce.jobs.demo.report import Event, page

EVENTS = [
    Event("broker", "span", "broker", 0.0, 40.0),
    Event("job", "kill", "run 1: SIGKILL at <source.planned>", 12.5),
    Event("commits", "commit", "version 1: batch 0", 11.0),
]
GOOD = Verdict(3, 3, 0, 0, (ColumnChecksum("carrier", "ab", "ab"),))
VOID = {"meta", "line"}


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    reader = Reader()
    text = page(GOOD, EVENTS, "RESULT expected=3 rows=3 lost=0 duplicated=0")
    reader.feed(text)
    assert reader.open == []
    assert reader.links == []
    assert "http" not in text
    assert "Nothing lost, nothing twice." in text
    assert "run 1: SIGKILL at &lt;source.planned&gt;" in text
    assert re.findall(r"<strong>(\d+)</strong> ([^<]+)", text) == [
        ("3", "of 3 flights"),
        ("1", "1 of the job, 0 of the broker"),
        ("0", "0 lost, 0 twice"),
    ]


def test_a_bad_verdict_says_so() -> None:
    bad = Verdict(3, 4, 0, 1, (ColumnChecksum("carrier", "ab", "cd"),))
    text = page(bad, EVENTS, "RESULT expected=3 rows=4 lost=0 duplicated=1")
    assert "The table is wrong." in text
    assert "DIFFERENT" in text
