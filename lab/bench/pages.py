"""`sparkonce ui` in a browser: the time until a large page is shown and updated, and the broker's cost of an open page.

A separate process serves the pages, started as users start it. First paint is Chromium's first contentful
paint, counted from the start of the navigation, of a newly started process. An
update is timed from the record's acknowledgement, or the commit in the log, until the browser shows it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from lab.bench import long_log
from lab.bench.load import create_topic, delete_topic
from lab.bench.results import Bound, Comparison, Missing, Results, say
from lab.bench.settings import (
    BATCHES,
    LIMITS,
    MANY_PARTITIONS,
    PAGES_PARTITIONS,
    PAGES_PIPELINES,
    PAGES_THROUGHPUT,
    PAGES_TOPICS,
    PAGES_VERSIONS,
    PAGES_VERSIONS_COUNT,
    PARTITIONS,
    TARGETS,
    Settings,
)
from lab.bench.sides import in_turn, records_per_second
from lab.bench.tools import produce
from lab.browser import browser_path, launch
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.jobs.shared.jars import PeerMissingError

if TYPE_CHECKING:
    from playwright.sync_api import Page

UPDATES = 20
"""That are timed of each page."""
WAIT_S = 300
"""For a page, or for the end of a long log."""
VALUE_BYTES = 1024
FIRST_PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
CELL_SHOWS = "([row, cell, text]) => document.querySelector(row)?.cells[cell].innerText === text"
HAS_VERDICT = "() => /join without a gap/.test(document.querySelector('#audit')?.innerText)"
NEWEST_IS = "text => document.querySelector('#versions tbody th')?.innerText === text"
END_CELL, HELD_CELL = 7, 2
"""Of a partition's row, its end offset; of a topic's, the offsets that it holds."""
BATCH_IS = "([row, text]) => document.getElementById(row)?.cells[4].innerText === text"
PIPELINES, PIPELINE_VERSIONS = 200, 50


class PagesError(RuntimeError):
    """The pages could not be served."""


def run(settings: Settings, results: Results) -> None:
    """Run the selected benchmarks of pages."""
    chosen = {name: one for name, one in ALL.items() if name in settings.names}
    if not chosen:
        return
    path, remedy = browser_path(), "apt-get install chromium, pip install playwright, or name a browser in CHROMIUM"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        results.missing.append(Missing("chromium", str(error), remedy))
        return
    if path is None:
        results.missing.append(Missing("chromium", "there is no browser", remedy))
        return
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        for name, one in chosen.items():
            page = browser.new_page()
            page.set_default_timeout(1000 * WAIT_S)
            one(name, page, settings, results)
            page.close()
        browser.close()


def _partitions(name: str, page: Page, settings: Settings, results: Results) -> None:
    """Time the page of a topic with 1,000 partitions: first paint, and from an acknowledged record to its row."""
    with EmbeddedBroker(process=True) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, "many", MANY_PARTITIONS)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

        def change(number: int) -> Shown:
            producer.produce("many", b"a", partition=number)
            producer.flush()
            return CELL_SHOWS, [f"#p-{number}", END_CELL, "1"]

        _measured(name, page, ("--bootstrap-servers", servers), "topics/many", change, settings, results)


def _topics(name: str, page: Page, settings: Settings, results: Results) -> None:
    """Time the page of 1,000 topics with three partitions: first paint, and from an acknowledged record to its row."""
    with EmbeddedBroker(process=True) as broker:
        servers = broker.bootstrap_servers
        names = [f"topic-{number:04}" for number in range(MANY_PARTITIONS)]
        for topic in names:
            create_topic(servers, topic, 3)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

        def change(number: int) -> Shown:
            producer.produce(names[number], b"a", partition=0)
            producer.flush()
            return CELL_SHOWS, [f"#t-{names[number]}", HELD_CELL, "1"]

        _measured(name, page, ("--bootstrap-servers", servers), "topics", change, settings, results)


def _pipelines(name: str, page: Page, settings: Settings, results: Results) -> None:
    """Time the first page, of 200 queries with a table each: first paint, and from a commit to its row."""
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as folder:
        say(f"{name}: writing {PIPELINES} tables of {PIPELINE_VERSIONS} versions")
        for number in range(PIPELINES):
            app, query = f"app-{number:03}", f"4bb9d6c8-0000-0000-0000-{number:012}"
            long_log.make(Path(folder, app), PIPELINE_VERSIONS, app=app, query=query)

        def change(number: int) -> Shown:
            version = PIPELINE_VERSIONS + number
            long_log.commit(Path(folder, app), version, app=app, query=query)
            return BATCH_IS, [f"q-{query}", str(version - 1)]

        _measured(name, page, (folder,), "pipelines", change, settings, results)


Shown = tuple[str, object]
"""A function of the browser that says whether a change is shown, and its argument."""


def _measured(
    name: str,
    page: Page,
    served: Sequence[str],
    path: str,
    change: Callable[[int], Shown],
    settings: Settings,
    results: Results,
) -> None:
    """Report the first paints of a page, and how long after a change it shows it."""
    paints, updates = list[float](), list[float]()
    for number in range(settings.rounds + 1):
        with _served(*served) as address:
            paint_ms = _painted(page, f"{address}{path}")
            say(f"{name}: paint {number} of {settings.rounds} {paint_ms:,.0f} ms")
            paints += [paint_ms] if number else []
            for update in range(UPDATES + 1 if number == settings.rounds else 0):
                shows, argument = change(update)
                began_s = time.perf_counter()
                page.wait_for_function(shows, arg=argument)
                updates += [1000 * (time.perf_counter() - began_s)] if update else []
    _report(name, paints, updates, results)


def _versions(name: str, page: Page, settings: Settings, results: Results) -> None:
    """Time the page of a table with 100,000 versions: first paint, and from a commit to its line."""
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as folder:
        table = Path(folder, "table")
        say(f"{name}: writing a log of {PAGES_VERSIONS_COUNT:,} versions")
        long_log.make(table, PAGES_VERSIONS_COUNT)
        _report(name, *_table_shown(name, page, table, PAGES_VERSIONS_COUNT, settings.rounds), results)


def _table_shown(name: str, page: Page, table: Path, versions: int, rounds: int) -> tuple[list[float], list[float]]:
    with _served("--table", str(table)) as address:
        page.goto(f"{address}tables")
        place = page.locator("tbody a").first.get_attribute("href")
    assert place is not None, "every table has a link"
    paints = []
    for number in range(1, rounds + 1):
        with _served("--table", str(table)) as address:
            paints.append(_painted(page, address + place.removeprefix("/")))
            say(f"{name}: paint {number} of {rounds} {paints[-1]:,.0f} ms")
            if number == rounds:
                began_s = time.perf_counter()
                page.wait_for_function(HAS_VERDICT)
                say(f"{name}: the log was read within {time.perf_counter() - began_s:,.0f} s")
                return paints, _commits_shown(page, table, versions)
    raise AssertionError("there is a round")


def _commits_shown(page: Page, table: Path, versions: int) -> list[float]:
    took_ms = []
    for version in range(versions, versions + UPDATES + 1):
        long_log.commit(table, version)
        began_s = time.perf_counter()
        page.wait_for_function(NEWEST_IS, arg=str(version))
        took_ms.append(1000 * (time.perf_counter() - began_s))
    return took_ms[1:]


def _report(name: str, paints: Sequence[float], updates: Sequence[float], results: Results) -> None:
    for what, found in (("paint", paints), ("update", updates)):
        line = f"{name}-{what}-ms"
        results.bounds.append(Bound(line, "ms", tuple(found), (), "none", LIMITS[line]))


@dataclass(frozen=True, slots=True)
class _Way:
    """One side of the comparison of throughputs: which page is open."""

    name: str
    address: str


def _throughput(name: str, page: Page, settings: Settings, results: Results) -> None:
    """Run ProducerPerformance while the page of its topic is open, and while none is; the pages are served in both."""
    rows = settings.rows_of(VALUE_BYTES)
    with ExitStack() as stack:
        broker = stack.enter_context(EmbeddedBroker(process=True))
        servers = broker.bootstrap_servers
        address = stack.enter_context(_served("--bootstrap-servers", servers))
        ways = _Way("page open", f"{address}topics/load"), _Way("page closed", "about:blank")

        def once(way: _Way, _: int) -> float:
            create_topic(servers, "load", PARTITIONS)
            page.goto(way.address)
            speed = produce(servers, "load", rows, VALUE_BYTES, BATCHES["64KiB"])
            page.goto("about:blank")
            delete_topic(servers, "load")
            return speed

        try:
            opened, closed = in_turn(name, ways, 2 * settings.rounds, once, records_per_second)
        except PeerMissingError as error:
            remedy = "its tools are the load: install Java and Maven, or name the folder of its jars in KAFKA_LIBS"
            results.missing.append(Missing("kafka", str(error), remedy))
            return
    results.comparisons.append(Comparison(name, "records/s", opened, closed, ways[1].name, TARGETS[name]))


ALL = {
    PAGES_PARTITIONS: _partitions,
    PAGES_VERSIONS: _versions,
    PAGES_TOPICS: _topics,
    PAGES_PIPELINES: _pipelines,
    PAGES_THROUGHPUT: _throughput,
}


@contextmanager
def _served(*options: str) -> Iterator[str]:
    """Serve pages in a separate process; yield their address.

    Raises:
        PagesError: if they do not answer in time.
    """
    with tempfile.TemporaryDirectory(prefix="bench-pages-") as folder:
        ready = Path(folder, "ready")
        command = [sys.executable, "-m", "sparkonce", "ui", *options, "--port", "0", "--ready-file", str(ready)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            deadline_s = time.monotonic() + WAIT_S
            while not ready.exists():
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise PagesError(f"{' '.join(command)} does not answer")
                time.sleep(0.01)
            yield ready.read_text()
        finally:
            process.terminate()
            process.wait()


def _painted(page: Page, address: str) -> float:
    """Open a page; return the milliseconds until Chromium painted it."""
    page.goto(address)
    return float(page.wait_for_function(FIRST_PAINT).json_value())
