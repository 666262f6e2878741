"""The topics and partitions of a request, and its error response, for every API by its schema.

Theory of operation: Kafka's schemas show which field is a topic's name, which array has the answers and where an
error code belongs, so nothing here is specific to one API. A response with an error code of its own gets the error
there, unless the fault is about topics; else each element of the request is answered, with the error in it and
with Kafka's "unknown" in the other fields. Produce and Fetch have codecs of their own, and their handlers return the
error, partition by partition.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from sparkonce.broker_lite.faults.rules import Place
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey

_ERROR_FIELDS = ("error_code", "partition_error_code")
_INDEX_FIELDS = ("partition_index", "partition")
_TOPIC_RESOURCE = 2
_UNKNOWN: dict[str, Any] = dict.fromkeys(
    (
        "broker_id", "committed_leader_epoch", "committed_offset", "controller_id", "end_offset", "generation_id",
        "leader_epoch", "leader_id", "low_watermark", "node_id", "num_partitions", "offset", "port",
        "producer_epoch", "producer_id", "replication_factor", "timestamp",
    ),
    -1,
)  # fmt: skip
"""Kafka's values of fields without a default in the schema, in a response with an error only."""
_ERRORS_IN_ELEMENTS = frozenset({ApiKey.METADATA})
"""APIs whose own error code is not for errors of topics (KIP-1102)."""

NameOf = Callable[[uuid.UUID], str | None]


def places_of(message: Any, name_of: NameOf) -> Iterator[Place]:
    """Yield the topics and partitions in a request, at any depth; `name_of` resolves topic ids."""
    for field, value in _fields(message):
        if field.is_struct_array():
            for element in value or ():
                yield from _element_places(element, name_of)
        elif field.is_array() and field._entity_type == "topicName":
            for topic in value or ():
                yield topic, None


def _element_places(element: Any, name_of: NameOf) -> Iterator[Place]:
    topic = _topic_of(element, name_of)
    if topic is None:
        yield from places_of(element, name_of)
        return
    alone = True
    for field, value in _fields(element):
        if not (field.is_array() or field.is_struct_array()) or field.name not in ("partitions", "partition_indexes"):
            continue
        for each in value or ():
            alone = False
            yield topic, each if isinstance(each, int) else _index_of(each)
    if alone:
        yield topic, None


def _topic_of(element: Any, name_of: NameOf) -> str | None:
    names = {field.name: value for field, value in _fields(element) if not field.is_struct_array()}
    if names.get("resource_type") == _TOPIC_RESOURCE and "resource_name" in names:
        return str(names["resource_name"])
    for field, value in _fields(element):
        if field._entity_type == "topicName" and not field.is_array() and value is not None:
            return str(value)
    topic_id = names.get("topic_id")
    return name_of(topic_id) if isinstance(topic_id, uuid.UUID) else None


def _index_of(element: Any) -> int | None:
    for name in _INDEX_FIELDS:
        if name in element._struct.fields:
            index: int = getattr(element, name)
            return index
    return None


def pick(message: Any, name_of: NameOf, keep: Callable[[Place], bool]) -> Any:
    """Return a copy of a request with only the topics or partitions that `keep` accepts.

    Elements that are answered as a whole, such as a topic of Metadata or the topics of one group, are kept as a whole.
    """
    picked = copy.copy(message)
    for field, value in _fields(message):
        if field.is_struct_array():
            kept = []
            for element in value or ():
                places = list(_element_places(element, name_of))
                chosen = [place for place in places if keep(place)]
                if not places or len(chosen) == len(places):
                    kept.append(element)
                elif chosen:
                    kept.append(_pick_partitions(element, {index for _, index in chosen}))
            setattr(picked, field.name, kept if value is not None else None)
        elif field.is_array() and field._entity_type == "topicName":
            setattr(picked, field.name, [topic for topic in value or () if keep((topic, None))])
    return picked


def _pick_partitions(element: Any, indexes: set[int | None]) -> Any:
    picked = copy.copy(element)
    for name in ("partitions", "partition_indexes"):
        if name in element._struct.fields:
            chosen = [each for each in getattr(element, name) or () if _partition(each) in indexes]
            setattr(picked, name, chosen)
    return picked


def _partition(each: Any) -> int | None:
    return each if isinstance(each, int) else _index_of(each)


def is_empty(message: Any) -> bool:
    """Whether a request has arrays of elements, all of them empty."""
    arrays = [value for field, value in _fields(message) if field.is_struct_array() or field.is_array()]
    return bool(arrays) and not any(arrays)


def refusal(api_key: int, version: int, message: Any, error_code: int, whole: bool) -> dict[str, Any]:
    """Return the fields of a request's error response; if `whole`, with its own error code if it has one."""
    struct = apis.response_class(api_key)._struct
    top = {field.name: field for field in _in(struct, version)}
    fields = {name: _UNKNOWN[name] for name in top if name in _UNKNOWN}
    if "error_code" in top and whole and api_key not in _ERRORS_IN_ELEMENTS:
        return {**fields, "error_code": error_code}
    results = next((field for field in top.values() if field.is_struct_array() and _holds_error(field, version)), None)
    if results is None:
        return {**fields, "error_code": error_code}
    elements = _first_array(message) or ()
    return {**fields, results.name: [_refused(results, version, element, error_code) for element in elements]}


def _refused(struct: Any, version: int, element: Any, error_code: int) -> Any:
    values: dict[str, Any] = {}
    given = element._struct.fields if hasattr(element, "_struct") else {}
    inside = _in(struct, version)
    own_error = any(field.name in _ERROR_FIELDS for field in inside)
    for field in inside:
        if field.name in _ERROR_FIELDS:
            values[field.name] = error_code
        elif field.is_struct_array() or field.is_array():
            nested = not own_error and field.is_struct_array() and _holds_error(field, version)
            partitions = _first_array(element) or () if nested else ()
            values[field.name] = [_refused(field, version, each, error_code) for each in partitions]
        elif field.name in given:
            values[field.name] = getattr(element, field.name)
        elif not given and not any(name not in _ERROR_FIELDS for name in values):
            values[field.name] = element  # an array of plain names, numbers or ids: the first field has it
        elif field.name in _UNKNOWN:
            values[field.name] = _UNKNOWN[field.name]
        elif field.name == "error_message":
            values[field.name] = "injected by a fault"
    return struct.data_class(version=version, **values)


def _first_array(message: Any) -> Any:
    return next((value for field, value in _fields(message) if field.is_struct_array() or field.is_array()), None)


def _holds_error(struct: Any, version: int) -> bool:
    return any(
        field.name in _ERROR_FIELDS or (field.is_struct_array() and _holds_error(field, version))
        for field in _in(struct, version)
    )


def _in(struct: Any, version: int) -> list[Any]:
    return [field for field in struct.fields.values() if field.for_version_q(version)]


def _fields(element: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the schema and the value of each field that the element's version has."""
    if not hasattr(element, "_struct"):
        return
    version = element.version
    for field in element._struct.fields.values():
        if version is None or field.for_version_q(version):
            yield field, getattr(element, field.name)
