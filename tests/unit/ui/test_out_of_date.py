"""Brokers that are down: every page about them says so, in a way that the browser's "live" gives way to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from urllib.request import urlopen

import pytest

from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from tests.cases import each_case
from tests.unit.sink.query_by_hand import Query

NOBODY = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.socket.connection.setup.timeout.ms": "20",
    "kafka.retry.backoff.ms": "5",
}
ABOUT_BROKERS = ["topics", "groups", "transactions", "brokers", "pipelines", "pipelines/q"]
NEED_BROKERS = ["topics/orders/messages", "groups/one?id=g"]
"""Pages of what no broker has shown yet."""


class Stale(HTMLParser):
    """Whether something on a page is marked as old."""

    found = False

    def handle_starttag(self, _: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found |= "data-stale" in dict(attributes)


def is_stale(url: str) -> bool:
    parser = Stale()
    with urlopen(url, timeout=60) as answer:
        parser.feed(answer.read().decode())
    return parser.found


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tables")
    Query(folder).write(0, [{"v": 1}])
    with closing(Site(Given(kafka=NOBODY, folder=folder))) as site, UiServer(site) as ui:
        yield ui.url


@each_case("page", ABOUT_BROKERS + NEED_BROKERS)
def test_a_page_about_brokers_that_are_down_is_out_of_date(url: str, page: str) -> None:
    assert is_stale(f"{url}{page}")


@each_case("page", ["tables", "trace"])
def test_a_page_about_tables_is_not(url: str, page: str) -> None:
    assert not is_stale(f"{url}{page}")


def test_without_brokers_a_query_is_up_to_date(tmp_path: Path) -> None:
    Query(tmp_path).write(0, [{"v": 1}])
    with closing(Site(Given(folder=tmp_path))) as site, UiServer(site) as ui:
        assert not is_stale(f"{ui.url}pipelines/q")
