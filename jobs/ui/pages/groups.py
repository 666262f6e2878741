"""The pages of consumer groups: all of them, and one with its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkonce.jobs.ui.page import Asked, NoSuchThingError, Page, part
from sparkonce.jobs.ui.site import Site

AT_ONCE = 200
"""Groups or partitions in one part of a table."""


def _all(site: Site, asked: Asked) -> Mapping[str, Any]:
    if site.cluster is None:
        return {"groups": None, "part": None}
    groups, wanted = site.cluster.groups(), asked.query.get("name", "").lower()
    found = [each for each in groups.found.values() if wanted in each.group_id.lower()]
    return {"groups": groups, "part": part(asked, found, AT_ONCE)}


def _one(site: Site, asked: Asked) -> Mapping[str, Any]:
    group_id = asked.query.get("id", "")
    groups = None if site.cluster is None else site.cluster.groups()
    if groups is None or group_id not in groups.found:
        if groups is not None and groups.at_ms is None and groups.problem is not None:
            raise ConnectionError(groups.problem)
        raise NoSuchThingError(f"There is no group {group_id}, or this user may not describe it.")
    group = groups.found[group_id]
    return {"groups": groups, "group": group, "part": part(asked, group.partitions, AT_ONCE)}


GROUPS = Page("/groups", "Groups", "groups.html", _all, menu="Groups")
GROUP = Page("/groups/one", "Group", "group.html", _one)
