"""The names in a log directory: partitions, leftovers of deleted ones, topics of another broker.

A directory without `topics.json` is a Kafka broker's, or its file was removed: its topics are found by their
partitions' directories, whose `partition.metadata` has the topic id. Their settings are missing, since Kafka keeps
them in its metadata log. So nothing is deleted or compacted until the settings are set.

Files that the broker did not create are never removed. Of a log's folder only log files are removed, and the folder
if it is then empty. Folders of interrupted deletions are recognised by the version of the UUID in their names, since a
Kafka broker leaves such folders too.
"""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
KRAFT_METADATA_TOPIC: Final = "__cluster_metadata"
"""The log of a Kafka controller, which may lie in a directory that is taken over; it is ignored."""
MAX_TOPIC_NAME: Final = 249
KEEP_ALL: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The settings of topics whose own are unknown: neither retention nor compaction removes anything."""

_PARTITION_DIRECTORY = re.compile(r"([a-zA-Z0-9._-]{1,249})-(\d{1,9})")
_ASIDE_SUFFIX = re.compile(r"\.[0-9a-f]{32}(?:-delete|-stray)$")
_TOPIC_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_TOPIC_NAME}}}")
_OWN_VERSION: Final = "8"
"""Custom UUIDs (RFC 9562); Kafka's are random ones, of version 4."""
_OWN_DELETED = re.compile(rf".*-\d{{1,9}}\.[0-9a-f]{{12}}{_OWN_VERSION}[0-9a-f]{{19}}{DELETED_SUFFIX}")
_LOG_FILE = re.compile(
    r"\d{20}\.(?:log|index|timeindex|txnindex|snapshot)(?:\.(?:cleaned|swap|deleted|tmp))?"
    r"|(?:partition\.metadata|leader-epoch-checkpoint)(?:\.tmp)?"
)

Entry = tuple[uuid.UUID, int, dict[str, str]]
"""A topic's id, number of partitions and settings."""

NewUuid = Callable[[], uuid.UUID]

logger = logging.getLogger(__name__)


class LogDirectoryError(Exception):
    """A log directory cannot be used; the message says why and what to do."""


def partition_path(log_dir: str, topic: str, index: int) -> str:
    """Return a partition's directory."""
    return f"{log_dir}/{topic}-{index}"


def aside_path(log_dir: str, topic: str, index: int, suffix: str, new_uuid: NewUuid) -> str:
    """Return Kafka's name for a stray or deleted partition's directory; a long topic name is truncated to fit."""
    random = new_uuid().hex
    tail = f"-{index}.{random[:12]}{_OWN_VERSION}{random[13:]}{suffix}"
    return f"{log_dir}/{topic[: 255 - len(tail)]}{tail}"


def find_topics(
    storage: Storage, log_dir: str, names: Iterable[str], known: Mapping[str, Mapping[str, str]], new_uuid: NewUuid
) -> dict[str, Entry]:
    """Find the topics of a directory that is taken over by its `names`; those without an id get one.

    `known` has this broker's settings of the internal topics.
    """
    counts: dict[str, int] = {}
    ids: dict[str, uuid.UUID] = {}
    for name in names:
        match = _partition(name)
        if match is None or not holds_log(storage, f"{log_dir}/{name}"):
            continue
        topic, index = match
        counts[topic] = max(counts.get(topic, 0), index + 1)
        topic_id = _written_id(storage, f"{log_dir}/{name}")
        if topic_id is not None:
            ids.setdefault(topic, topic_id)
    found = {
        topic: (ids.get(topic) or new_uuid(), count, dict(known.get(topic, KEEP_ALL)))
        for topic, count in counts.items()
    }
    unknown = sorted(found.keys() - known.keys())
    if unknown:
        logger.warning(
            "%s: taking over %d topics, whose settings are not known (%s%s): nothing of them is deleted or compacted, "
            "as if they had been set to %s; set cleanup.policy and retention.* to what they should be",
            log_dir,
            len(unknown),
            ", ".join(unknown[:10]),
            ", ..." if len(unknown) > 10 else "",
            " ".join(f"{name}={value}" for name, value in KEEP_ALL.items()),
        )
    return found


def _written_id(storage: Storage, directory: str) -> uuid.UUID | None:
    """Return the topic id in a partition's folder, if any."""
    try:
        return checkpoints.decode_partition_metadata(storage.read(f"{directory}/{checkpoints.PARTITION_METADATA}"))
    except (FileNotFoundError, NotADirectoryError, checkpoints.CheckpointFormatError):
        return None


def clear_leftovers(
    storage: Storage,
    log_dir: str,
    names: Iterable[str],
    wanted: Mapping[str, Entry],
    deleted: Collection[uuid.UUID],
    new_uuid: NewUuid,
) -> set[tuple[str, int]]:
    """Finish interrupted deletions; rename directories of unknown topics, as Kafka does.

    A directory whose `partition.metadata` has another topic id belongs to another topic of that name, older or
    newer: the list of topics, or the directory, may be from a backup. Its records must not be read as this topic's.

    `deleted` are the ids of topics whose partitions may not all be removed yet. What cannot be removed is renamed at
    a later start: other topics are served all the same. Returns the partitions whose directories are gone.
    """
    gone: set[tuple[str, int]] = set()
    for name in names:
        path = f"{log_dir}/{name}"
        match = _partition(name)
        if _OWN_DELETED.fullmatch(name):
            remove_log_if_there(storage, path)
        elif match is not None:
            topic, index = match
            entry, written = wanted.get(topic), _written_id(storage, path)
            is_known = entry is not None and index < entry[1] and written in (None, entry[0])
            if is_known or not holds_log(storage, path):
                continue
            if written in deleted:
                remove_log_if_there(storage, path)
            else:
                put_aside(storage, log_dir, topic, index, new_uuid)
            gone.add(match)
    return gone


def put_aside(storage: Storage, log_dir: str, topic: str, index: int, new_uuid: NewUuid) -> None:
    """Rename the folder of a partition of an unknown topic, as Kafka does with stray logs."""
    path, aside = partition_path(log_dir, topic, index), aside_path(log_dir, topic, index, STRAY_SUFFIX, new_uuid)
    written = _written_id(storage, path)
    of_id = "" if written is None else f" of topic id {checkpoints.encode_uuid(written)}"
    logger.warning("%s%s belongs to no topic: moving it to %s", path, of_id, aside)
    storage.rename(path, aside)


def free_path(storage: Storage, log_dir: str, topic: str, index: int, new_uuid: NewUuid) -> str:
    """Return the path of a new partition's folder, which does not exist; a log of that name is renamed.

    Raises:
        OSError: if a folder exists that holds something else.
    """
    path = partition_path(log_dir, topic, index)
    if not storage.is_directory(path):
        with contextlib.suppress(FileNotFoundError):
            storage.size(path)
            raise FileExistsError(f"{path} is there, and is no folder: move it away")
        return path
    if holds_log(storage, path):
        put_aside(storage, log_dir, topic, index, new_uuid)
    elif storage.list_directory(path):
        raise FileExistsError(f"{path} is there, and holds what is no log: move it away")
    return path


def has_partition(storage: Storage, log_dir: str, names: Iterable[str]) -> bool:
    """Whether a partition's log is in a log directory; a topic has at least that of its last partition."""
    return any(_partition(name) is not None and holds_log(storage, f"{log_dir}/{name}") for name in names)


def holds_log(storage: Storage, path: str) -> bool:
    """Whether this is a folder with log files."""
    return storage.is_directory(path) and any(is_log_file(name) for name in storage.list_directory(path))


def is_log_file(name: str) -> bool:
    """Whether a file of a partition's folder is a log file, by its name: Kafka's names, and no others."""
    return _LOG_FILE.fullmatch(name) is not None


def remove_log(storage: Storage, path: str) -> None:
    """Remove a log's files, and its folder unless it holds anything else. Raises OSError if one cannot be removed."""
    names = storage.list_directory(path)
    for name in filter(is_log_file, names):
        storage.remove(f"{path}/{name}")
    left = [name for name in names if not is_log_file(name)]
    if left:
        logger.warning("%s is left, since it holds what is not the log's: %s", path, ", ".join(left[:10]))
    else:
        storage.remove_directory(path)


def remove_log_if_there(storage: Storage, path: str) -> None:
    """Remove a log as `remove_log`; log the failure if it cannot be removed."""
    try:
        if storage.is_directory(path):
            remove_log(storage, path)
    except OSError as error:
        logger.warning("%s: some of its files are still there: %s", path, error)


def check_topic_name(name: str) -> None:
    """Check whether Kafka would accept a topic's name.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION if not; INVALID_REQUEST for the name of the controller's log.
    """
    check_not_metadata_log(name)
    if name in (".", "..") or _TOPIC_NAME.fullmatch(name) is None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{name[:300]!r} is no topic name: 1 to {MAX_TOPIC_NAME} letters, digits, dots, underscores and hyphens, "
            "not . or ..",
        )


def check_not_metadata_log(name: str) -> None:
    """Reject the log of Kafka's controller, whose folder may be here (ControllerApis). Raises KafkaError."""
    if name == KRAFT_METADATA_TOPIC:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")


def _partition(name: str) -> tuple[str, int] | None:
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or match[1] == KRAFT_METADATA_TOPIC or _ASIDE_SUFFIX.search(name):
        return None
    return match[1], int(match[2])
