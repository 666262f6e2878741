"""`topics.json`: which topics a log directory has, with their ids, their numbers of partitions and their settings.

It also keeps the latest leader epoch of a standalone broker.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from broker_lite.log import checkpoints
from broker_lite.protocol.errors import ErrorCode, KafkaError

VERSION: Final = 1
MAX_PARTITIONS: Final = 50_000
"""The most partitions that all topics have together: each holds a file and some memory."""


class DamagedTopicsError(Exception):
    """The file is not what `encode` writes."""


def encode(topics: Mapping[str, tuple[uuid.UUID, int, Mapping[str, str]]], leader_epoch: int) -> bytes:
    """Return the file's content for topics with id, number of partitions and settings, and the latest leader epoch."""
    lines = []
    for name in sorted(topics):
        topic_id, partitions, settings = topics[name]
        entry = {"id": checkpoints.encode_uuid(topic_id), "partitions": partitions, "settings": dict(settings)}
        lines.append(f"{json.dumps(name)}: {json.dumps(entry)}")  # json's own indents take ten times as long
    body = ",\n".join(lines)
    return f'{{"version": {VERSION}, "leaderEpoch": {leader_epoch}, "topics": {{\n{body}\n}}}}\n'.encode()


def decode(data: bytes) -> tuple[dict[str, tuple[uuid.UUID, int, dict[str, str]]], int]:
    """Return what `encode` was given.

    Raises:
        DamagedTopicsError: if it is something else.
    """
    try:
        document: dict[str, Any] = json.loads(data)
        topics = {
            name: (checkpoints.decode_uuid(entry["id"]), int(entry["partitions"]), dict(entry["settings"]))
            for name, entry in document["topics"].items()
        }
        return topics, int(document.get("leaderEpoch", 0))
    except (ValueError, KeyError, TypeError, AttributeError, checkpoints.CheckpointFormatError) as error:
        raise DamagedTopicsError(repr(error)) from None


def check_room(have: int, more: int) -> None:
    """Say whether there may be more partitions.

    Raises:
        KafkaError: INVALID_PARTITIONS.
    """
    if have + more > MAX_PARTITIONS:
        text = f"{more} more partitions besides {have}; all topics together may have {MAX_PARTITIONS}"
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
