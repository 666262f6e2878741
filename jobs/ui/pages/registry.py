"""The page *Registry*: the subjects of a schema registry; and of one of them a version, with its schema."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sparkonce.connectors.schema_registry.client import PROTOBUF, RegisteredSchema, UnknownSchemaError
from sparkonce.jobs.cli.peek.showing import indented, safe
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.site import Site

AT_ONCE = 200
"""Subjects in one part of the table."""
MOST_WIDER = 20
"""A schema that is so many times as long with indentation is shown as it is."""
SUFFIXES = {"-key": "key", "-value": "value"}
"""What a subject's schemas are of, where it is named by its topic (TopicNameStrategy)."""


def _all(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    if not site.subjects.is_given:
        return {"subjects": None}
    wanted = asked.query.get("name", "").lower()
    found, problem = site.subjects.all()
    subjects = part(asked, [each for each in found if wanted in each.lower()], AT_ONCE)
    topics = _topics(site)
    return {"subjects": subjects, "problem": problem, "uses": {name: _use(topics, name) for name in subjects.items}}


def _topics(site: Site) -> Collection[str]:
    return () if site.cluster is None else site.cluster.state().found.topics


def _use(topics: Collection[str], subject: str) -> tuple[str, str] | None:
    """Return the topic of this cluster that a subject is named after, and whether it is of keys or values."""
    for suffix, use in SUFFIXES.items():
        topic = subject.removesuffix(suffix)
        if topic != subject and topic in topics:
            return topic, use
    return None


def _one(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    name, number = asked.query.get("name", ""), asked.number("version", 0)
    if not site.subjects.is_given:
        raise NoSuchThingError("No registry was named: start it with --registry URL.")
    try:
        state, problem = site.subjects.one(name, number or None)
    except UnknownSchemaError as error:
        raise NoSuchThingError(f"{error}.") from error
    return {
        "name": name,
        "state": state,
        "problem": problem,
        "use": _use(_topics(site), name),
        "text": shown_text(state.shown.schema),
        "references": [each for each in state.shown.schema.references if each.direct],
    }


def shown_text(schema: RegisteredSchema) -> str:
    """Return a schema without characters that hide, or that no page can hold."""
    return "\n".join(safe(line) for line in _pretty(schema).split("\n"))


def _pretty(schema: RegisteredSchema) -> str:
    """Return a schema with a line for each part, or as it is where that would show something else."""
    if schema.kind == PROTOBUF:
        return schema.text
    try:
        parsed = json.loads(schema.text, object_pairs_hook=_with_each_name_once)
        json.dumps(parsed, allow_nan=False)
        most = MOST_WIDER * len(schema.text)
        text = indented(parsed, most)
    except (ValueError, RecursionError):
        return schema.text
    return text if len(text) <= most else schema.text


def _with_each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


REGISTRY = Page("/registry", "Registry", "registry.html", _all, menu="Registry", interval_s=5.0)
SUBJECT = Page("/registry/subject", "Subject", "subject.html", _one, interval_s=5.0)
