"""The pages *Tables*: all tables; one with its versions, the chain of its offset ranges and the audit; its files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.jobs.ui.delta.files import FilesState
from sparkonce.jobs.ui.delta.followed import AuditState
from sparkonce.jobs.ui.delta.strips import strips
from sparkonce.jobs.ui.delta.tables import PAGE, TableWatch
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.site import Site
from sparkonce.offset_store.errors import OffsetStoreError

GLANCE_S = 0.3
"""The time limit for reading all tables of the list."""
AT_ONCE = 200
"""Tables in one part of the list."""
CHAINS = 100
"""Partitions of the audit in one part of the table."""


@dataclass(frozen=True, slots=True)
class TableSummary:
    """A table in the list."""

    watch: TableWatch
    audit: AuditState | None
    """None before it was read."""
    files: FilesState | None = None
    problem: str = ""

    @property
    def newest(self) -> int | None:
        """Its newest version, if it was read."""
        return None if self.audit is None else self.watch.bounds()[1]


def _list(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watches, left_out = site.watches()
    wanted = asked.query.get("name", "").lower()
    chosen = part(asked, [each for each in watches if wanted in each.place.lower()], AT_ONCE)
    until_s = time.monotonic() + GLANCE_S
    tables = [_glance(watch, until_s) for watch in chosen.items]
    return {"tables": tables, "part": chosen, "are_there": bool(watches), "left_out": left_out}


def _glance(watch: TableWatch, until_s: float) -> TableSummary:
    left_s = until_s - time.monotonic()
    known = watch.followed.known
    if left_s <= 0 and (known is None or known.verdict is None):
        return TableSummary(watch, known)
    try:
        audit = watch.followed.look(max(left_s, 0.0))
        return TableSummary(watch, audit, None if audit.verdict is None else watch.files())
    except (OffsetStoreError, OSError, ValueError) as error:
        return TableSummary(watch, None, None, str(error) or type(error).__name__)


def table_of(site: Site, key: str) -> TableWatch:
    """Return the table of an address. Raises NoSuchThingError if there is none."""
    watch = site.delta.named(key, site.tables())
    if watch is None:
        raise NoSuchThingError(f"No table has the name {key}. It may have been moved, or deleted.")
    return watch


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watch = table_of(site, asked.path["table"])
    audit = watch.look()
    oldest, newest = watch.bounds()
    shown = watch.versions(asked.number("from", newest, newest) if "from" in asked.query else None)
    drawn, left_out = strips(shown[::-1])
    return {
        "watch": watch,
        "audit": audit,
        "growth": watch.followed.growth(),
        "oldest": oldest,
        "newest": newest,
        "versions": shown,
        "strips": drawn,
        "strips_left_out": left_out,
        "chains": part(asked, audit.chains, CHAINS),
        "on_page": PAGE,
    }


def _files(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    watch = table_of(site, asked.path["table"])
    audit = watch.look()
    return {"watch": watch, "lost": audit.lost_files, "files": watch.files(), "unnamed": watch.unnamed()}


def _look_for_unnamed(site: Site, asked: PageRequest, _: Mapping[str, str]) -> str:
    found = table_of(site, asked.path["table"]).unnamed(asked=True)
    assert found is not None
    return f"The folder was looked through as of version {found.version}; nothing was changed."


TABLES = Page("/tables", "Tables", "tables.html", _list, menu="Tables")
TABLE = Page("/tables/{table}", "Table", "table.html", _one)
TABLE_FILES = Page(
    "/tables/{table}/files", "Files", "table_files.html", _files, actions={"unnamed": _look_for_unnamed}, interval_s=1.0
)
