"""The page of one topic: its partitions, its groups, its settings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from sparkonce.jobs.ui.kafka.changing import send_message
from sparkonce.jobs.ui.kafka.state import TopicState
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.pages.forms import changeable, number_of
from sparkonce.jobs.ui.pages.pipelines import known_queries
from sparkonce.jobs.ui.site import Site

AT_ONCE = 250
"""Partitions in one part of the table."""


def topic_of(site: Site, name: str) -> TopicState:
    """Return a topic. Raises NoSuchThingError if there is none."""
    if site.cluster is None:
        raise NoSuchThingError("No brokers were named: start it with --bootstrap-servers HOST:PORT.")
    result, found = site.cluster.topic(name)
    if found is None:
        if result.problem is not None:
            raise ConnectionError(result.problem)
        raise NoSuchThingError(f"There is no topic {name}, or this user may not describe it.")
    return found


def _data(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    topic = topic_of(site, asked.path["topic"])
    assert site.cluster is not None, "it has this topic"
    groups = site.cluster.groups()
    queries = site.concluded.get("queries", partial(known_queries, site))  # five times a second is too often
    readers = [each for each in groups.found.values() if topic.name in each.topics]
    return {
        "state": site.cluster.state(),
        "groups": groups,
        "topic": topic,
        "size": site.cluster.sizes().get(topic.name),
        "partitions": part(asked, topic.partitions, AT_ONCE),
        "queries": [each for each in queries.pipelines if topic.name in each.topics],
        "readers": sorted(readers, key=lambda each: (-each.lag_in(topic.name).offsets, each.group_id)),
        "settings": site.cluster.settings.of_topic(topic.name),
    }


def _send(site: Site, asked: PageRequest, form: Mapping[str, str]) -> str:
    options, name = changeable(site), asked.path["topic"]
    topic_of(site, name)  # so that it is not created by this
    text = form.get("value", "").replace("\r\n", "\n")  # browsers send lines of a form with both
    key, value = form.get("key", ""), None if "null" in form else text.encode()
    send_message(options, name, key.encode() or None, value, number_of(form, "partition"))
    return f"Sent to {name}."


TOPIC = Page("/topics/{topic}", "Topic", "topic.html", _data, actions={"send": _send})
