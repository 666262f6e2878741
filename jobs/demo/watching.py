"""Live pages about a demo: those of `sparkonce ui` about its broker and its table, and one about its course."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from sparkonce.jobs.demo.report import picture, steps
from sparkonce.jobs.demo.show import Demo
from sparkonce.jobs.ui.page import Page, PageRequest
from sparkonce.jobs.ui.pages.all import PAGES
from sparkonce.jobs.ui.server import UiServer
from sparkonce.jobs.ui.site import Given, Site
from sparkonce.notebook import table


@contextmanager
def served(demo: Demo) -> Iterator[str]:
    """Serve the pages; yield the address of the one about the demo's course."""
    given = Given(kafka={"kafka.bootstrap.servers": demo.broker.bootstrap_servers}, folder=demo.folder.root)

    def data(_: Site, __: PageRequest) -> Mapping[str, Any]:
        events = [*demo.timeline.so_far(), *demo.commits]
        return {
            "doing": demo.doing,
            "flights": demo.flights,
            "rows": 0 if demo.table is None else demo.table.rows,
            "version": None if demo.table is None else demo.table.version,
            "picture": picture(events),
            "steps": table(("Seconds", "Where", "What"), reversed([*steps(events)]), page=True),
        }

    page = Page("/demo", "Demo", "demo.html", data, menu="Demo")
    with closing(Site(given)) as site, UiServer(site, pages=(page, *PAGES)) as server:
        yield f"{server.url}demo"
