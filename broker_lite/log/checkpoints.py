"""The small text files beside the segments, in Kafka's formats.

Offsets by partition (`recovery-point-offset-checkpoint` and the like) and leader epochs are a version, a count and one
line for each entry; a last line without a line end was torn by a power failure, and may lack digits.
`partition.metadata` and `meta.properties` are lines of names and values.
"""

from __future__ import annotations

import base64
import logging
import uuid
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sparkonce.broker_lite.log.storage import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'

BROKER_EPOCH = "broker-epoch"
"""Not one of Kafka's files: only members of a cluster keep it, in their data directories."""

_VERSION = 0

logger = logging.getLogger(__name__)


class CheckpointFormatError(Exception):
    """A checkpoint file cannot be read; the message says why."""


class EpochStart(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Return the content of a checkpoint of offsets by (topic, partition)."""
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(data: bytes) -> dict[tuple[str, int], int]:
    """Parse the result of `encode_offsets`. Raises CheckpointFormatError if `data` is invalid."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in _decode(data)}
    except ValueError as error:
        raise CheckpointFormatError(f"a line is not `topic partition offset`: {error}") from None


def read_offsets(files: Files, path: str) -> dict[tuple[str, int], int] | None:
    """Read a file of offsets; None if it is missing or damaged."""
    try:
        return decode_offsets(files.read(path))
    except FileNotFoundError:
        return None
    except CheckpointFormatError as error:
        logger.warning("%s: going on without it: %s", path, error)
        return None


def encode_leader_epochs(epochs: Iterable[EpochStart]) -> bytes:
    """Return the content of a `leader-epoch-checkpoint`."""
    return _encode(f"{epoch} {start}" for epoch, start in epochs)


def decode_leader_epochs(data: bytes) -> list[EpochStart]:
    """Parse the result of `encode_leader_epochs`. Raises CheckpointFormatError if invalid or not increasing."""
    try:
        found = [EpochStart(int(epoch), int(start)) for epoch, start in _decode(data)]
    except ValueError as error:
        raise CheckpointFormatError(f"a line is not `epoch offset`: {error}") from None
    for before, after in pairwise(found):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CheckpointFormatError(f"{after} comes after {before}")
    return found


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in (str(_VERSION), str(len(body)), *body)).encode()


def _decode(data: bytes) -> list[list[str]]:
    if not data.endswith(b"\n"):
        raise CheckpointFormatError("its last line has no end")
    try:
        version, count, *lines = data.decode().splitlines()
        entries = [line.split() for line in lines if line]
        if int(version) != _VERSION or int(count) != len(entries):
            raise CheckpointFormatError(f"version {version} with {len(entries)} entries of {count}")
    except ValueError as error:
        raise CheckpointFormatError(f"no version and count at the start: {error}") from None
    return entries


def encode_uuid(value: uuid.UUID) -> str:
    """Return a UUID as Kafka writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    """Parse the result of `encode_uuid`. Raises CheckpointFormatError if `text` is invalid."""
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise CheckpointFormatError(f"{text!r} is no UUID in base64: {error}") from None


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Return the content of a `partition.metadata`."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
    """Read the topic id from a `partition.metadata`. Raises CheckpointFormatError if there is none."""
    for line in data.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "topic_id":
            return decode_uuid(value.strip())
    raise CheckpointFormatError(f"{PARTITION_METADATA} names no topic_id")


def encode_properties(values: Mapping[str, str]) -> bytes:
    """Return the content of a `meta.properties`."""
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    """Read a `meta.properties`; lines that begin with # are comments."""
    lines = (line.strip() for line in data.decode("utf-8", "replace").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}
