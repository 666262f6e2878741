"""The page *Topics*: all topics of the cluster, and the groups that read them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from sparkonce.jobs.ui.kafka.changing import make_topic
from sparkonce.jobs.ui.kafka.state import GroupState
from sparkonce.jobs.ui.page import Page, PageRequest, RefusedError, part
from sparkonce.jobs.ui.pages.forms import changeable, number_of
from sparkonce.jobs.ui.site import Site

AT_ONCE = 200
"""Topics in one part of the table."""
GROUPS_SHOWN = 4
"""The number of groups per topic, those with the largest lag."""


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    if site.cluster is None:
        return {"topics": None}
    state, groups = site.cluster.state(), site.cluster.groups()
    wanted, internal = asked.query.get("name", "").lower(), "internal" in asked.query
    topics = [
        each
        for each in state.found.topics.values()
        if wanted in each.name.lower() and (internal or not each.is_internal)
    ]
    return {
        "state": state,
        "groups": groups,
        "topics": part(asked, topics, AT_ONCE),
        "readers": _readers(groups.found.values()),
        "sizes": site.cluster.sizes(),
        "shown": GROUPS_SHOWN,
    }


def _readers(groups: Iterable[GroupState]) -> Mapping[str, list[GroupState]]:
    """Return the groups of each topic, by their lag."""
    found: dict[str, list[GroupState]] = defaultdict(list)
    for group in groups:
        for topic in group.topics:
            found[topic].append(group)
    for topic, readers in found.items():
        readers.sort(key=lambda each: (-each.lag_in(topic).offsets, each.group_id))
    return found


def _create(site: Site, _: PageRequest, form: Mapping[str, str]) -> str:
    options, name = changeable(site), form.get("topic", "").strip()
    if not name:
        raise RefusedError("Write the topic's name.")
    partitions = number_of(form, "partitions")
    make_topic(options, name, -1 if partitions is None else partitions)
    return f"Created the topic {name}."


TOPICS = Page("/topics", "Topics", "topics.html", _data, menu="Topics", actions={"create": _create})
