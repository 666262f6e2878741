"""What `sparkonce audit` reads besides the table: the brokers' topics, and the result of rows that delta-spark wrote.

`AppendWriter` and `MergeWriter` keep the offset table in the result's folder by default. So the result is
found from it, and its log shows whether it has the confirmed writes, and what others did to their rows since.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from sparkonce.connectors.delta_spark.intents import OFFSETS_FOLDER
from sparkonce.exactly_once.audit import Auditor, Scope
from sparkonce.exactly_once.audit_broker import BrokerTopic
from sparkonce.exactly_once.audit_counting import Coordinates
from sparkonce.exactly_once.audit_files import look_for_files
from sparkonce.exactly_once.audit_findings import Chain, Finding, Problem
from sparkonce.exactly_once.audit_report import Examined
from sparkonce.exactly_once.audit_table import AuditError, Readers, audit_table
from sparkonce.jobs.cli.housekeeping.brokers import BrokerView, ask, find_parted
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.offset_store import DELTA
from sparkonce.offset_store.commit_log import CommitLog
from sparkonce.offset_store.errors import OffsetStoreError, StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import Position
from sparkonce.offset_store.txn_ids import intent_txn_id, merge_txn_id

ISOLATION = "kafka.isolation.level"
PROGRESS_FROM_COMMITS = 2_000
"""Logs shorter than this are read before a progress bar would be useful."""
_OF_ROWS = (Problem.ROWS_RESTORED, Problem.ROWS_REMOVED, Problem.REMOVED_TWICE, Problem.DAMAGED)


def result_of(offsets: CommitLog) -> Location | None:
    """Return the table in whose folder this offset table is, by default."""
    folder, _, name = offsets.location.text.rpartition("/")
    return Location(folder, offsets.location.is_local) if name == OFFSETS_FOLDER and folder else None


def offsets_of(result: CommitLog) -> Location | None:
    """Return the table of offsets in the folder of this one; None if there is none, or it cannot be read."""
    try:
        location = Location(f"{result.location.text}/{OFFSETS_FOLDER}", result.location.is_local)
        return CommitLog.open(location, result.log.storage_options).location
    except OffsetStoreError:
        return None


def look_at_result(offsets: CommitLog, app_ids: Iterable[str]) -> Iterator[Finding]:
    """Compare the applications' confirmed writes with the result, and follow later changes of their rows.

    Raises:
        OffsetStoreError: if the result cannot be read.
    """
    numbers = {app_id: offsets.stored([intent_txn_id(app_id), merge_txn_id(app_id)]) for app_id in app_ids}
    confirmed = {app_id: found[merge_txn_id(app_id)] for app_id, found in numbers.items() if len(found) == 2}
    location = result_of(offsets)
    if not confirmed or location is None:
        return
    try:
        result = CommitLog.open(location, offsets.log.storage_options)
    except StoreMissingError:
        yield Finding(Problem.STORED_MISMATCH, f"the result {location}, whose writes are confirmed here, is not there")
        return
    for app_id, number in sorted(confirmed.items()):
        written = result.stored([merge_txn_id(app_id)]).get(merge_txn_id(app_id), 0)
        if written < number:
            message = f"write {number} of appId {app_id} is confirmed here, and the result {location} has "
            message += f"{written or 'none'}: it was deleted, replaced, or dropped transaction ids"
            yield Finding(Problem.STORED_MISMATCH, message)
    auditor = Auditor()
    for commit in result.commits():
        auditor.add(commit)
    yield from look_for_files(location, offsets.log.storage_options, result.table, auditor.files)
    for finding in auditor.finish(result.stored).findings:
        if finding.problem in _OF_ROWS and finding.commit is not None:
            yield Finding(
                finding.problem, f"the result {location}, version {finding.commit.version}: {finding.message}"
            )


def ask_broker(options: Mapping[str, str], chains: Sequence[Chain]) -> dict[str, BrokerTopic | None]:
    """Request the topics' ids and the bounds of their logs; None for a topic that does not exist.

    A chain without a topic name in its kept commits gets the broker's name for its id.

    Raises:
        OptionError: for settings that cannot be read.
        AuditError: if the brokers do not answer, or return an error.
    """
    names = {chain.topic for chain in chains if chain.topic}
    nameless = {chain.topic_id for chain in chains if not chain.topic}
    try:
        # With read_committed the end would be the last stable offset, which a read_uncommitted reader may have passed.
        view = ask({**options, ISOLATION: "read_uncommitted"}, names, nameless)
        for chain in chains:
            chain.topic = chain.topic or view.name_of(chain.topic_id) or ""
        _find_parted(options, view, chains)
    except (OSError, KafkaError, MissingTopicError) as error:
        raise AuditError(f"the broker could not be asked: {error}") from error
    return {name: _broker_topic(view, name) for name in {chain.topic for chain in chains}}


def _find_parted(options: Mapping[str, str], view: BrokerView, chains: Sequence[Chain]) -> None:
    """Note in each chain where the broker's log diverges from what was read; a partition may have several chains."""
    left = [chain for chain in chains if chain.epoch is not None and view.state_of(chain.topic_partition) == "there"]
    while left:
        one_of_each = {chain.topic_partition: chain for chain in left}
        read = {
            tp: Position(chain.stored, chain.stored, chain.epoch)
            for tp, chain in one_of_each.items()
            if chain.stored is not None
        }
        for tp, at in find_parted(options, view.topics, read).items():
            one_of_each[tp].parted_at = at
        done = set(map(id, one_of_each.values()))
        left = [chain for chain in left if id(chain) not in done]


def _broker_topic(view: BrokerView, name: str) -> BrokerTopic | None:
    topic = view.topics.get(name)
    if topic is None:
        return None
    return BrokerTopic(topic.topic_id, {number: view.logs[name, number] for number in topic.partitions})


@contextmanager
def progress(commits: int) -> Iterator[Callable[[], None]]:
    """Show a progress bar on standard error, if that is a terminal and it will take a while."""
    if commits < PROGRESS_FROM_COMMITS or not sys.stderr.isatty():
        yield lambda: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:  # rich comes with the extra "demo" only
        yield lambda: None
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the log", total=commits)
        yield lambda: bar.advance(task)


examine_table = partial(audit_table, readers=Readers(ask_broker, look_at_result, offsets_of), progress=progress)


def audit(
    path: str,
    *,
    app_id: str | None = None,
    source: str | None = None,
    kafka: Mapping[str, str] | None = None,
    coordinates: str | None = None,
    expect_all_rows: bool = False,
    strict: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> Examined:
    """Prove from the log of the table at ``path`` that every offset was written once, as ``sparkonce audit`` does.

    ``kafka`` are ``kafka.*`` options of the source, to compare with the brokers' logs. ``coordinates`` names the
    columns of partition, offset and, if there are several, topic of each row (``"partition,offset,topic"``), to count
    the rows.
    The result shows itself in a notebook and as text; ``.proven`` is the verdict.

    Raises:
        AuditError, OffsetStoreError: if something cannot be checked.
        ValueError, OptionError: for arguments that cannot be used.
    """
    if expect_all_rows and coordinates is None:
        raise ValueError("expect_all_rows says how rows are judged, so coordinates must say how they are counted")
    return examine_table(
        Location.parse(path.removeprefix(DELTA)),
        Scope(app_id, source),
        kafka or {},
        None if coordinates is None else Coordinates.parse(coordinates),
        storage_options or {},
        expect_all_rows=expect_all_rows,
        strict=strict,
    )
