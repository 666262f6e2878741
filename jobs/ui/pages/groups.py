"""The pages of consumer groups: all of them, and one with its partitions."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from sparkonce.jobs.shared.arguments import timestamp_ms, whole_number
from sparkonce.jobs.ui.kafka.moving import Target, fingerprint, move, plan
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, Proposal, RefusedError, part
from sparkonce.jobs.ui.pages.forms import NOT_ALLOWED, changeable, options_of
from sparkonce.jobs.ui.site import Site

ENDS = {"start": "the start of the log", "end": "the end of the log", "offset": "an offset", "time": "a time"}
"""The possible targets of offsets."""
AT_ONCE = 200
"""Groups or partitions in one part of a table."""


def _all(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    if site.cluster is None:
        return {"groups": None, "part": None}
    groups, wanted = site.cluster.groups(), asked.query.get("name", "").lower()
    found = [each for each in groups.found.values() if wanted in each.group_id.lower()]
    return {"groups": groups, "part": part(asked, found, AT_ONCE)}


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    group_id = asked.query.get("id", "")
    if site.cluster is None:
        raise NoSuchThingError("No brokers were named: start it with --bootstrap-servers HOST:PORT.")
    groups, group = site.cluster.group(group_id)
    if group is None:
        if groups.problem is not None:
            raise ConnectionError(groups.problem)
        raise NoSuchThingError(f"There is no group {group_id}, or this user may not describe it.")
    members = site.cluster.members.of(group_id, group.kind)
    shown = part(asked, group.partitions, AT_ONCE)
    return {"groups": groups, "group": group, "members": members, "part": shown, "ends": ENDS}


def _plan(site: Site, asked: PageRequest, form: Mapping[str, str]) -> str | Proposal:
    moves = plan(options_of(site), asked.query.get("id", ""), _target(form))
    if not moves:
        return "Every offset is there already: nothing to change."
    allowed = site.given.allow_changes
    first = "Nothing was changed. This would be:" if allowed else f"Nothing was changed. {NOT_ALLOWED} This would be:"
    fields = {**form, "planned": fingerprint(moves)}
    return Proposal("\n".join([first, *map(str, moves)]), "move" if allowed else "", fields, "Move these offsets")


def _move(site: Site, asked: PageRequest, form: Mapping[str, str]) -> str:
    options, planned = changeable(site), form.get("planned", "")
    moves = move(options, asked.query.get("id", ""), _target(form), planned)
    return "\n".join(["Moved:", *map(str, moves)])


def _target(form: Mapping[str, str]) -> Target:
    topic, partition, to, at = (form.get(name, "").strip() for name in ("topic", "partition", "to", "at"))
    if not topic:
        raise RefusedError("Write the topic.")
    try:
        number = whole_number(partition) if partition else None
        match to:
            case "offset":
                return Target(topic, number, offset=whole_number(at))
            case "time":
                return Target(topic, number, at_ms=timestamp_ms(at))
            case "start" | "end":
                return Target(topic, number, to_start=to == "start", to_end=to == "end")
    except argparse.ArgumentTypeError as error:
        raise RefusedError(f"{error}.") from error
    raise RefusedError("Choose where the offsets are to go.")


GROUPS = Page("/groups", "Groups", "groups.html", _all, menu="Groups")
GROUP = Page("/groups/one", "Group", "group.html", _one, actions={"plan": _plan, "move": _move})
