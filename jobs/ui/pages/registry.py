"""The page *Registry*: the subjects of a schema registry; and of one of them a version, with its schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparkonce.connectors.schema_registry.client import PROTOBUF, RegisteredSchema, UnknownSchemaError
from sparkonce.jobs.ui.page import NoSuchThingError, Page, PageRequest, part
from sparkonce.jobs.ui.site import Site

AT_ONCE = 200
"""Subjects in one part of the table."""
SUFFIXES = {"-key": "key", "-value": "value"}
"""What a subject's schemas are of, where it is named by its topic (TopicNameStrategy)."""


def _all(site: Site, asked: PageRequest) -> Mapping[str, Any]:
    if not site.subjects.is_given:
        return {"subjects": None}
    wanted = asked.query.get("name", "").lower()
    names = [each for each in site.subjects.all() if wanted in each.lower()]
    subjects = part(asked, names, AT_ONCE)
    return {"subjects": subjects, "uses": {name: _use(site, name) for name in subjects.items}}


def _use(site: Site, subject: str) -> tuple[str, str] | None:
    """Return the topic of this cluster that a subject is named after, and whether it is of keys or values."""
    topics = {} if site.cluster is None else site.cluster.state().found.topics
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
        state = site.subjects.one(name, number or None)
    except UnknownSchemaError as error:
        raise NoSuchThingError(f"{error}.") from error
    return {
        "name": name,
        "state": state,
        "use": _use(site, name),
        "text": _pretty(state.shown.schema),
        "references": [each for each in state.shown.schema.references if each.direct],
    }


def _pretty(schema: RegisteredSchema) -> str:
    if schema.kind == PROTOBUF:
        return schema.text
    try:
        return json.dumps(json.loads(schema.text), indent=2, ensure_ascii=False)
    except ValueError:
        return schema.text


REGISTRY = Page("/registry", "Registry", "registry.html", _all, menu="Registry", interval_s=5.0)
SUBJECT = Page("/registry/subject", "Subject", "subject.html", _one, interval_s=5.0)
