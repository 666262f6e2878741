"""`topics.json`: the topics of a log directory, with their ids, numbers of partitions and settings.

It also has the latest leader epoch of a standalone broker, the topics whose deletion is unfinished and, for a
member of a cluster, how far it has read the controller's log.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from sparkonce.broker_lite.log import checkpoints, directories
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.storage import Files
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

VERSION: Final = 1
MAX_PARTITIONS: Final = 50_000
"""The most partitions of all topics together: each with records holds open files, and each some memory."""


class DamagedTopicsError(Exception):
    """The file is not valid."""


MetadataPosition = tuple[int, uuid.UUID, int]
"""A position in the controller's log: see `LogPosition`."""


class Entry(NamedTuple):
    """One topic."""

    topic_id: uuid.UUID
    partitions: int
    settings: Mapping[str, str]


class Content(NamedTuple):
    """The content of the file."""

    topics: Mapping[str, Entry]
    leader_epoch: int = 0
    deleted: Mapping[uuid.UUID, str] = MappingProxyType({})
    """The names of deleted topics, by id, whose files or committed offsets may not all be removed."""
    position: MetadataPosition | None = None
    """How far a member of a cluster had read the controller's log."""


def encode(content: Content) -> bytes:
    """Return the file's bytes."""
    topics, leader_epoch, deleted, position = content
    lines = []
    for name in sorted(topics):
        topic_id, partitions, settings = topics[name]
        entry = {"id": checkpoints.encode_uuid(topic_id), "partitions": partitions, "settings": dict(settings)}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")  # json's own indents take ten times as long
    body = ",\n".join(lines)
    gone = json.dumps({checkpoints.encode_uuid(topic_id): name for topic_id, name in deleted.items()})
    head = f'"version": {VERSION}, "leaderEpoch": {leader_epoch}, "deleted": {gone}'
    if position is not None:
        head += f', "metadataPosition": {json.dumps(position, default=str)}'
    return f'{{{head}, "topics": {{\n{body}\n}}}}\n'.encode()


def read(files: Files, path: str) -> Content:
    """Read the file. Raises LogDirectoryError if it is damaged."""
    try:
        return decode(files.read(path))
    except DamagedTopicsError as error:
        raise directories.LogDirectoryError(
            f"{path} cannot be read ({error}): restore it, or remove it to have the topics found by their directories, "
            "without their settings"
        ) from None


def decode(data: bytes) -> Content:
    """Parse the result of `encode`. Raises DamagedTopicsError if invalid: a guess would hide a topic's records."""
    try:
        document: dict[str, Any] = json.loads(data)
        if document["version"] != VERSION:
            raise DamagedTopicsError(f"its version is {document['version']!r}, and this broker knows {VERSION}")
        topics = {name: _entry(name, entry) for name, entry in document["topics"].items()}
        deleted = {checkpoints.decode_uuid(each): str(name) for each, name in document.get("deleted", {}).items()}
        leader_epoch = int(document.get("leaderEpoch", 0))
        position = _position(document.get("metadataPosition"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, KafkaError) as error:
        raise DamagedTopicsError(repr(error)) from None
    except checkpoints.CheckpointFormatError as error:
        raise DamagedTopicsError(str(error)) from None
    if len({entry.topic_id for entry in topics.values()}) < len(topics):
        raise DamagedTopicsError("two topics have the same id")
    return Content(topics, leader_epoch, deleted, position)


def _position(found: Any) -> MetadataPosition | None:
    if found is None:
        return None
    epoch, incarnation, offset = found
    return int(epoch), uuid.UUID(incarnation), int(offset)


def _entry(name: str, entry: Mapping[str, Any]) -> Entry:
    directories.check_topic_name(name)
    partitions, settings = entry["partitions"], entry["settings"]
    if type(partitions) is not int or partitions < 1:
        raise DamagedTopicsError(f"topic {name} has {partitions!r} partitions")
    if not all(isinstance(value, str) for value in settings.values()):
        raise DamagedTopicsError(f"topic {name} has a setting that is no text")
    return Entry(checkpoints.decode_uuid(entry["id"]), partitions, dict(settings))


def config_of(defaults: LogConfig, path: str, name: str, settings: Mapping[str, str]) -> LogConfig:
    """Return a topic's configuration. Raises LogDirectoryError if invalid: a default might delete records."""
    try:
        return defaults.with_topic_settings(settings)
    except KafkaError as error:
        text = f"{path}: topic {name}: {error}: correct it there, or remove the setting"
        raise directories.LogDirectoryError(text) from None


def check_room(have: int, more: int) -> None:
    """Check that `more` partitions do not exceed the limit. Raises KafkaError INVALID_PARTITIONS."""
    if have + more > MAX_PARTITIONS:
        text = f"{more} more partitions besides {have}; all topics together may have {MAX_PARTITIONS}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
