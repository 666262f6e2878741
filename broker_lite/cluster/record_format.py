"""The controller's records, and whole images, as JSON: the values in its log.

A record is an object with its kind under `type` and Kafka's camelCase names beside it; a reader ignores unknown
fields, so that fields can be added. Partitions of a snapshot are arrays, in the order of
`PartitionState`, because a cluster may have many.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparkonce.broker_lite.controller import records as kinds
from sparkonce.broker_lite.controller.image import BrokerImage, ClusterImage, LogPosition, TopicImage
from sparkonce.broker_lite.controller.records import MetadataRecord, PartitionState

SNAPSHOT: Final = "Snapshot"


class MetadataFormatError(ValueError):
    """Bytes in the controller's log are not a valid record; the message says why."""


def encode_record(record: MetadataRecord) -> bytes:
    """Return a record as the value of a Kafka record."""
    fields = {_camel(name): _plain(getattr(record, name)) for name in record.__dataclass_fields__}
    return _bytes({"type": type(record).__name__, **fields})


def decode(value: bytes | None) -> MetadataRecord | ClusterImage:
    """Parse a value of the log: a record, or a snapshot, whose `next_offset` the caller must set.

    Raises:
        MetadataFormatError: if it is neither.
    """
    try:
        document = json.loads(value or b"")
        kind = document["type"]
        return _read_snapshot(document) if kind == SNAPSHOT else _READERS[kind](document)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise MetadataFormatError(f"not a record of the controller's log: {error!r}") from error


def encode_snapshot(image: ClusterImage) -> bytes:
    """Return a whole image as the value of a Kafka record."""
    return _bytes(
        {
            "type": SNAPSHOT,
            "controllerId": image.controller_id,
            "controllerEpoch": image.controller_epoch,
            "terms": plain_terms(image.terms),
            "nextProducerId": image.next_producer_id,
            "defaultSettings": image.default_settings,
            "documents": image.documents,
            "brokers": [
                {
                    "brokerId": each.broker_id,
                    "brokerEpoch": each.broker_epoch,
                    "incarnation": str(each.incarnation),
                    "host": each.host,
                    "port": each.port,
                    "fenced": each.fenced,
                    "shuttingDown": each.shutting_down,
                    "listeners": each.listeners,
                }
                for each in image.brokers.values()
            ],
            "topics": [
                {
                    "name": topic.name,
                    "topicId": str(topic.topic_id),
                    "settings": topic.settings,
                    "partitions": [[index, *state] for index, state in topic.partitions.items()],
                }
                for topic in image.topics.values()
            ],
        }
    )


def _read_snapshot(document: Mapping[str, Any]) -> ClusterImage:
    image = ClusterImage()
    image.controller_id, image.controller_epoch = document["controllerId"], document["controllerEpoch"]
    image.terms = read_terms(document.get("terms", []))
    image.next_producer_id = document["nextProducerId"]
    image.default_settings = dict(document.get("defaultSettings", {}))  # absent from old logs
    image.documents = dict(document["documents"])
    for each in document["brokers"]:
        image.brokers[each["brokerId"]] = BrokerImage(
            each["brokerId"],
            each["brokerEpoch"],
            uuid.UUID(each["incarnation"]),
            each["host"],
            each["port"],
            each["fenced"],
            each["shuttingDown"],
            _listeners(each),
        )
    for each in document["topics"]:
        topic = TopicImage(each["name"], uuid.UUID(each["topicId"]), dict(each["settings"]))
        for index, *state in each["partitions"]:
            topic.partitions[index] = _state(state)
        image.topics[topic.topic_id] = topic
        image.topic_ids[topic.name] = topic.topic_id
    return image


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], MetadataRecord]]] = {
    "BrokerRegistered": lambda it: kinds.BrokerRegistered(
        it["brokerId"], uuid.UUID(it["incarnation"]), it["host"], it["port"], _listeners(it)
    ),
    "BrokerChanged": lambda it: kinds.BrokerChanged(
        it["brokerId"], it["brokerEpoch"], it["fenced"], it["shuttingDown"]
    ),
    "TopicCreated": lambda it: kinds.TopicCreated(it["name"], uuid.UUID(it["topicId"]), _settings(it)),
    "TopicDeleted": lambda it: kinds.TopicDeleted(uuid.UUID(it["topicId"])),
    "TopicSettingsChanged": lambda it: kinds.TopicSettingsChanged(uuid.UUID(it["topicId"]), _settings(it)),
    "DefaultSettingsChanged": lambda it: kinds.DefaultSettingsChanged(_settings(it)),
    "PartitionChanged": lambda it: kinds.PartitionChanged(
        uuid.UUID(it["topicId"]), it["partition"], _state(it["state"])
    ),
    "ProducerIdsAllocated": lambda it: kinds.ProducerIdsAllocated(it["nextProducerId"]),
    "DocumentChanged": lambda it: kinds.DocumentChanged(it["name"], it["text"]),
    "ControllerElected": lambda it: kinds.ControllerElected(
        it["controllerId"], it["controllerEpoch"], _incarnation(it), it.get("logEnd", 0)
    ),
}


def plain_terms(terms: Sequence[LogPosition]) -> list[list[object]]:
    """Return where the terms of controllers begin in the log, as JSON."""
    return [[epoch, str(incarnation), offset] for epoch, incarnation, offset in terms]


def read_terms(document: Sequence[Any]) -> tuple[LogPosition, ...]:
    """Parse the result of `plain_terms`."""
    return tuple(LogPosition(epoch, uuid.UUID(incarnation), offset) for epoch, incarnation, offset in document)


def _incarnation(document: Mapping[str, Any]) -> uuid.UUID | None:
    found = document.get("incarnation")  # absent from old records
    return None if found is None else uuid.UUID(found)


def _settings(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in document["settings"])


def _listeners(document: Mapping[str, Any]) -> tuple[tuple[str, str, int], ...]:
    return tuple((name, host, port) for name, host, port in document["listeners"])


def _state(values: Sequence[Any]) -> PartitionState:
    values = [tuple(each) if isinstance(each, list) else each for each in values]
    return PartitionState._make(values)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, uuid.UUID) else value


def _bytes(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
