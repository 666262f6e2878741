"""The command `sparkonce cluster-check`: whether the replicas of a stopped cluster agree, from their files.

Theory of operation: the controller's log is read from its last snapshot on; then each partition's batches are read
from every broker's directory, with checksums, and checked against the simulator's invariants. A batch of one offset and
leader epoch must be equal on all replicas, and so must all before it; below a high watermark all replicas are equal;
replicas in sync, or eligible to lead, have everything up to it; a producer's sequence numbers are consecutive.
Replicas are compared from the latest of their start offsets. Each broker compacts topics by itself, so of compacted
ones only the ends are compared: they are counted, and their checksums checked.
"""

from __future__ import annotations

import argparse
import mmap
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sparkonce.broker_lite.cluster.metadata_log import (
    CLUSTER_FILE,
    FOLDER,
    MetadataLog,
    damage,
    has_whole_batch,
    is_last_at_full_length,
    read_steps,
)
from sparkonce.broker_lite.cluster.watching import WatchedImage
from sparkonce.broker_lite.config import BrokerConfig, ConfigError
from sparkonce.broker_lite.controller.image import ClusterImage, LogPosition
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER, PartitionState
from sparkonce.broker_lite.embedded_cluster import ZOOKEEPER
from sparkonce.broker_lite.log import checkpoints, meta_properties, topics_file
from sparkonce.broker_lite.log.directories import LogDirectoryError, partition_path
from sparkonce.broker_lite.log.log_manager import LOCK_FILE, TOPICS_FILE
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.broker_lite.replication.invariants import Batch, PartitionHistory, Replica, ViolationError, chained
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.records import BatchHeader, validate

DAMAGED = "whole"
"""Not an invariant of the simulator, whose disks are checked when they are read: batches are complete."""
GONE_BACK = "log-goes-on"
"""Nor is this: the controller's log has all that the brokers have followed. A broker does not join otherwise."""


class ClusterCheckError(Exception):
    """A cluster that cannot be checked; the message says why, and what to do."""


@dataclass(slots=True)
class Report:
    """What was checked, and the findings."""

    partitions: int = 0
    replicas: int = 0
    batches: int = 0
    compacted: int = 0
    """Partitions whose batches are not compared, as each broker compacts its log by itself."""
    left_out: list[int] = field(default_factory=list)
    """Brokers of the cluster without a given directory."""
    unknown: list[str] = field(default_factory=list)
    """Topics on a broker that are not in the controller's log: deleted while it was down, or lost."""
    violations: list[ViolationError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReplicaFiles:
    """A broker's files of a partition."""

    start_offset: int
    """The base offset of its oldest segment."""
    high_watermark: int
    headers: list[BatchHeader]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "exit status: 0 the replicas agree, 1 they do not (see VIOLATION), 2 this is no stopped cluster"
    parser.add_argument(
        "metadata_dir",
        metavar="METADATA_DIR",
        help="the brokers' metadata.log.dir, or zookeeper://HOST:PORT/chroot",
    )
    parser.add_argument("data_dirs", metavar="DATA_DIR", nargs="+", help="the data directory of each broker")


def run(options: argparse.Namespace) -> int:
    """Check, and report the findings; 1 if an invariant is violated, 2 with a message if this is no stopped cluster."""
    try:
        report = check_cluster(options.metadata_dir, options.data_dirs)
    except ClusterCheckError as error:
        print(f"sparkonce cluster-check: {error}", file=sys.stderr)
        return USAGE
    for violation in report.violations:
        print(f"VIOLATION {violation}")
    if report.left_out:
        print(f"NOT LOOKED AT: the replicas of broker {', '.join(map(str, report.left_out))}, whose data was not named")
    for text in report.unknown:
        print(f"NOT IN THE CONTROLLER'S LOG: {text}, which puts it aside (-stray) when it joins")
    print(
        f"RESULT partitions={report.partitions} replicas={report.replicas} batches={report.batches} "
        f"compacted={report.compacted} violations={len(report.violations)}"
    )
    return FAILED if report.violations else GOOD


def check_cluster(metadata_dir: str | Path, data_dirs: Iterable[str | Path]) -> Report:
    """Check the files of a cluster whose brokers are all stopped.

    Args:
        metadata_dir: where the controller's log is: a directory, or `zookeeper://HOST:PORT/chroot`.
        data_dirs: the data directory of each broker; replicas of other brokers are not checked.

    Raises:
        ClusterCheckError: if a directory does not belong to the cluster, or its broker runs.
    """
    image, violations, cluster_id = read_image(metadata_dir)
    brokers = dict(_broker(Path(each), cluster_id) for each in data_dirs)
    report = Report(left_out=sorted(image.brokers.keys() - brokers.keys()), violations=violations)
    for broker_id, folder in brokers.items():
        _check_followed(broker_id, folder, image, report)
    marks = {broker_id: _high_watermarks(folder) for broker_id, folder in brokers.items()}
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            found = {
                broker_id: _read(
                    Path(partition_path(str(brokers[broker_id]), topic.name, index)),
                    topic.topic_id,
                    marks[broker_id].get((topic.name, index), 0),
                    report,
                )
                for broker_id in state.replicas
                if broker_id in brokers
            }
            report.partitions += 1
            if "compact" in topic.settings.get("cleanup.policy", ""):
                report.compacted += 1
                continue
            members = [each for each in trusted(state) if each in found]
            # After an unclean election, a broker that has not returned since may have acknowledged other records.
            believed = members if image.allows_unclean_election(topic.topic_id) else list(found)
            try:
                _check_partition(PartitionHistory(f"{topic.name}-{index}"), found, believed, members)
            except ViolationError as error:
                report.violations.append(error)
    return report


def read_image(metadata_dir: str | Path) -> tuple[ClusterImage, list[ViolationError], str]:
    """Return the cluster by the controller's log, its errors, and the cluster's id. Raises ClusterCheckError."""
    if str(metadata_dir).startswith(ZOOKEEPER):
        return _read_zookeeper(str(metadata_dir).removeprefix(ZOOKEEPER))
    if not (Path(metadata_dir) / FOLDER).is_dir():
        raise ClusterCheckError(f"{metadata_dir} holds no controller's log: name the brokers' metadata.log.dir")
    log = MetadataLog(DiskStorage(), str(metadata_dir))
    epochs = log.epochs()
    if not epochs:
        raise ClusterCheckError(f"{metadata_dir} holds the log of no controller: no broker has ever begun it")
    watched = WatchedImage()
    violations: list[ViolationError] = []
    data = Path(log.path(epochs[-1])).read_bytes()
    steps, end = read_steps(data)
    wrong = damage(data, steps, end)
    if wrong is None and is_last_at_full_length(data, end):
        wrong = f"the last batch, at byte {end} of {len(data)}, is damaged; the next controller would go on without it"
    if wrong is not None:
        violations.append(ViolationError(DAMAGED, f"{log.path(epochs[-1])}: {wrong}"))
    for step in steps:
        try:
            watched.take(step)
        except ViolationError as error:
            violations.append(error)
    return watched.image, violations, _cluster_id(Path(metadata_dir))


def _read_zookeeper(connect: str) -> tuple[ClusterImage, list[ViolationError], str]:
    from sparkonce.broker_lite.server.zookeeper_observer import ZooKeeperObserver  # needs a separate package

    try:
        BrokerConfig.of({"zookeeper.connect": connect, "node.id": 0})
    except ConfigError as error:
        raise ClusterCheckError(str(error)) from None
    try:
        observer = ZooKeeperObserver(connect)
    except OSError as error:
        raise ClusterCheckError(f"ZooKeeper at {connect} cannot be used: {error}") from error
    watched = WatchedImage()
    violations: list[ViolationError] = []
    try:
        for step in observer.poll():
            try:
                watched.take(step)
            except ViolationError as error:
                violations.append(error)
    finally:
        observer.close()
    if not watched.image.brokers:
        raise ClusterCheckError(f"the cluster of ZooKeeper at {connect} has never had a broker")
    return watched.image, violations, observer.cluster_id


def trusted(state: PartitionState) -> list[int]:
    """Return the brokers that must have every safe record: one leads, or would be elected cleanly."""
    known = [*state.in_sync_replicas, *state.eligible_leader_replicas]
    return known or [each for each in (state.last_known_leader,) if each != NO_LEADER]


def _cluster_id(metadata_dir: Path) -> str:
    try:
        return (metadata_dir / CLUSTER_FILE).read_text().strip()
    except FileNotFoundError:
        return ""


def _broker(folder: Path, cluster_id: str) -> tuple[int, Path]:
    try:
        meta = meta_properties.read((folder / checkpoints.META_PROPERTIES).read_bytes())
    except (OSError, checkpoints.CheckpointFormatError) as error:
        raise ClusterCheckError(f"{folder} is no broker's data directory ({error})") from None
    if cluster_id and meta.get("cluster.id", cluster_id) != cluster_id:
        raise ClusterCheckError(
            f"{folder} belongs to cluster.id={meta['cluster.id']}, the controller's log to {cluster_id}"
        )
    try:
        DiskStorage().lock(str(folder / LOCK_FILE)).release()
    except BlockingIOError:
        raise ClusterCheckError(f"a broker runs on {folder}: stop it first, its files change") from None
    return int(meta["node.id"]), folder


def _check_followed(broker_id: int, folder: Path, image: ClusterImage, report: Report) -> None:
    """Compare a broker's position in the controller's log with that log, as its next start does."""
    try:
        epoch = int((folder / checkpoints.BROKER_EPOCH).read_bytes())
        noted = topics_file.read(DiskStorage(), str(folder / TOPICS_FILE))
    except (FileNotFoundError, ValueError):  # it has not been a member yet, or accepts any log
        return
    except LogDirectoryError as error:
        report.violations.append(ViolationError(DAMAGED, str(error)))
        return
    follows = noted.position is None or image.contains(LogPosition(*noted.position))
    if epoch != NO_BROKER_EPOCH and not (follows and epoch <= image.broker_epoch(broker_id)):
        text = (
            f"broker {broker_id} followed another log, or further than offset {image.next_offset}, where this one ends"
        )
        report.violations.append(ViolationError(GONE_BACK, f"{folder}: {text}"))
    unknown = (name for name, topic in noted.topics.items() if topic.topic_id not in image.topics)
    report.unknown += [f"topic {name} of broker {broker_id}" for name in unknown]


def _high_watermarks(folder: Path) -> Mapping[tuple[str, int], int]:
    try:
        return checkpoints.decode_offsets((folder / checkpoints.HIGH_WATERMARKS).read_bytes())
    except FileNotFoundError:
        return {}
    except checkpoints.CheckpointFormatError as error:
        raise ClusterCheckError(f"{folder / checkpoints.HIGH_WATERMARKS}: {error}") from None


def _read(folder: Path, topic_id: uuid.UUID, high_watermark: int, report: Report) -> ReplicaFiles:
    if _is_of_another(folder, topic_id):
        return ReplicaFiles(0, 0, [])
    clean = (folder.parent / checkpoints.CLEAN_SHUTDOWN).exists()
    segments = sorted(folder.glob("*.log"))
    headers: list[BatchHeader] = []
    for path in segments:
        found = list(_batches(path))
        headers += found
        end = sum(header.size for header in found)
        size = path.stat().st_size
        if end < size and not (path == segments[-1] and not clean and _is_torn(path, end)):
            text = f"{path}: at byte {end} of {size} lies no batch that can be read"
            report.violations.append(ViolationError(DAMAGED, text))
    start = int(segments[0].stem) if segments else 0
    report.replicas += folder.is_dir()
    report.batches += len(headers)
    end_offset = headers[-1].next_offset if headers else start
    # Without an orderly stop the checkpoint may be of an earlier topic with the same name.
    if end_offset < high_watermark and (clean or not folder.is_dir()):
        text = f"{folder}: it ends at offset {end_offset}, and had safe records below {high_watermark}"
        report.violations.append(ViolationError(DAMAGED, text))
    return ReplicaFiles(start, high_watermark, headers)


def _is_of_another(folder: Path, topic_id: uuid.UUID) -> bool:
    """Whether a folder belongs to an earlier topic of the same name, recreated while its broker was down."""
    try:
        return checkpoints.decode_partition_metadata((folder / checkpoints.PARTITION_METADATA).read_bytes()) != topic_id
    except (FileNotFoundError, checkpoints.CheckpointFormatError):
        return False


def _is_torn(path: Path, end: int) -> bool:
    """Whether the bytes after `end` may be an incomplete last write, which recovery truncates."""
    with path.open("rb") as file:
        file.seek(end)
        return not has_whole_batch(file.read(), 0)


def _batches(path: Path) -> Iterator[BatchHeader]:
    """Yield the complete batches of a segment."""
    size, position = path.stat().st_size, 0
    if not size:
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        while position < size:
            try:
                header = validate(data, position)
            except ProtocolError:
                return
            position += header.size
            yield header


def _check_partition(
    history: PartitionHistory, found: Mapping[int, ReplicaFiles], believed: Sequence[int], members: Sequence[int]
) -> None:
    """Compare replicas: `believed` have valid high watermarks; `members`: see `trusted`. Raises ViolationError."""
    start = max((each.start_offset for each in found.values()), default=0)
    logs = {broker_id: _views(each.headers, start) for broker_id, each in found.items()}
    for broker_id, batches in logs.items():
        history.opened(broker_id, batches)
    for broker_id in sorted(believed, key=lambda each: each not in members):
        history.leader_high_watermark(broker_id, logs[broker_id], found[broker_id].high_watermark)
    history.check_members(Replica(each, logs[each]) for each in members)


def _views(headers: Iterable[BatchHeader], start: int) -> list[Batch]:
    """Return batches from an offset on for the invariants; if older ones are gone, the first sequence is unknown."""
    views: list[Batch] = []
    for header in headers:
        if header.base_offset >= start:
            view = chained(views, header, header.base_offset, header.partition_leader_epoch)
            views.append(view._replace(producer_id=-1) if start else view)
    return views
