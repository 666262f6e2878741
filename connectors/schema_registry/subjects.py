"""Under which subject a schema is registered: the strategies of Confluent's serializers."""

from __future__ import annotations

import json
from typing import Any

from sparkonce.connectors.schema_registry.client import AVRO, JSON_SCHEMA, RegisteredSchema

TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME = "TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy"
STRATEGIES = (TOPIC_NAME, RECORD_NAME, TOPIC_RECORD_NAME)
KEY, VALUE = "key", "value"


def subject_of(strategy: str, topic: str, part: str, schema: RegisteredSchema | str | None = None) -> str:
    """Return the subject of the schema of a topic's keys or values.

    Args:
        strategy: one of `STRATEGIES`; a Java class is accepted by its last name.
        topic: the topic's name.
        part: `KEY` or `VALUE`.
        schema: the schema, or the full name of its record or message; not needed for `TOPIC_NAME`. With Protobuf it
            is always the name, since one schema may have several messages.

    Raises:
        ValueError: the strategy is unknown, or needs a name that the schema does not have.
    """
    name = strategy.rpartition(".")[2]
    if name not in STRATEGIES:
        raise ValueError(f"expected one of {', '.join(STRATEGIES)}, found {strategy!r}")
    if name == TOPIC_NAME:
        return f"{topic}-{part}"
    record = schema if isinstance(schema, str) else record_name(schema)
    if not record:
        raise ValueError(f"{name} needs a schema of a record, which has a name (with JSON Schema its title)")
    return record if name == RECORD_NAME else f"{topic}-{record}"


def record_name(schema: RegisteredSchema | None) -> str | None:
    """Return the full name of an Avro schema's type, or the title of a JSON Schema; None if it has none."""
    if schema is None or schema.kind not in (AVRO, JSON_SCHEMA):
        return None
    try:
        document: Any = json.loads(schema.text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    name = document.get("title" if schema.kind == JSON_SCHEMA else "name")
    if not isinstance(name, str) or not name:
        return None
    space = document.get("namespace")
    qualified = schema.kind == AVRO and "." not in name and isinstance(space, str) and space
    return f"{space}.{name}" if qualified else name
