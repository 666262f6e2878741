"""Offsets of Spark's own Kafka connector: read from its checkpoint, and written as its option.

A query with Spark's Kafka source and Delta's sink has its offsets only in the checkpoint. The last batch of the rows
is in the table: Delta's sink writes a ``txn`` action with each batch, the query's id and the batch's number. So both
together determine where to continue, also if the query was killed between the commit and Spark's own record of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparkonce.connectors.kafka_source.checkpoint import read_line
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.exactly_once.recovery import RecoveryError
from sparkonce.exactly_once.restored import with_restores
from sparkonce.jobs.cli.housekeeping.brokers import BrokerView
from sparkonce.kafka.client.client import EARLIEST
from sparkonce.offset_store.administration import CommitEntry, OffsetsTable, Stored
from sparkonce.offset_store.offsets import TopicPartition
from sparkonce.offset_store.txn_ids import OffsetTxn

_KEEP = "keep the checkpoint and change only the formats: docs/migrating_from_kafka.md"


@dataclass(frozen=True, slots=True)
class SparkProgress:
    """How far a query of Spark's Kafka source has read the rows in its table."""

    query_id: str
    batch_id: int
    offsets: Mapping[TopicPartition, int]
    """The next offset of each partition; Spark's connector uses only topic names."""
    noted_in_table: bool
    """Whether the table has a batch of this query; Delta's sink records each, a `foreachBatch` function none."""


def read_progress(checkpoint: Checkpoint, table: OffsetsTable) -> SparkProgress:
    """Return the offsets at the end of the last batch in the table.

    Raises:
        CheckpointError: if the checkpoint cannot be read, or has other sources than one of Kafka.
        RecoveryError: if the query has state, checkpoint and table do not determine the last batch, or a RESTORE
            has removed the rows of the last batch.
    """
    if checkpoint.is_stateful():
        raise RecoveryError(f"the query of {checkpoint.location} keeps state, which offsets do not carry over: {_KEEP}")
    query_id = checkpoint.query_id()
    noted = table.state.transactions.get(query_id)
    batch_id = _last_batch(checkpoint, query_id, noted, f"the table {table.location}")
    if noted is not None:
        _check_not_restored(table, query_id, batch_id)
    return SparkProgress(query_id, batch_id, _kafka_offsets(checkpoint, batch_id), noted is not None)


def _last_batch(checkpoint: Checkpoint, query_id: str, noted: int | None, table: str) -> int:
    """Return the number of the last batch whose rows are in the table."""
    planned = checkpoint.latest_batch_id()
    finished = any(info.base_name == str(planned) for info in checkpoint.entries("commits"))
    if noted is None:
        if finished:
            return planned
        raise RecoveryError(
            f"batch {planned} of query {query_id} was begun and not finished, and {table} holds no batch of this "
            "query: whether its rows are there is unknown. If it is this query's table, start the query once more as "
            "it was, so that it finishes this batch"
        )
    if noted == planned or (noted == planned - 1 and not finished):
        return noted
    older = "the table was set back, or it is not this query's" if noted < planned else "the checkpoint is an old copy"
    raise RecoveryError(
        f"{checkpoint.location} ends with batch {planned} of query {query_id}, {table} with its batch {noted}: {older}"
        ". Name the checkpoint and the table that were written together"
    )


def _check_not_restored(table: OffsetsTable, query_id: str, batch_id: int) -> None:
    """Reject a batch whose rows are not in the table: Delta's RESTORE keeps the number of the last batch."""
    removed_by: CommitEntry | None = None
    for entry, restore in with_restores(table.entries()):
        removed_by = restore
        if query_id in entry.txn_ids:
            break
    if removed_by is not None:
        raise RecoveryError(
            f"version {removed_by.version} of the table {table.location} is a RESTORE to a version "
            f"before batch {batch_id} of query {query_id}: rows that the checkpoint "
            "counts as written are not there. Set the offsets at which the table's rows end: --topic, --partition and "
            "--offset, or --from-json"
        )


def _kafka_offsets(checkpoint: Checkpoint, batch_id: int) -> dict[TopicPartition, int]:
    logged = checkpoint.logged(batch_id)
    lines = list(logged.lines.values())
    if logged.sources != 1 or not lines:
        raise CheckpointError(
            f"the query of {checkpoint.location} reads {logged.sources} sources, and which of ours each becomes is not "
            f"in the checkpoint: {_KEEP}"
        )
    try:
        document = json.loads(lines[0])
    except ValueError:
        document = lines[0]
    positions = read_line(document, _source_of(document)).offset.positions
    return {tp: position.next for tp, position in positions.items()}


def _source_of(document: object) -> str:
    """Return the source in a line of a checkpoint of ours; Spark's connector has none there."""
    return str(document.get("source", "")) if isinstance(document, dict) else ""


def with_topic_ids(
    progress: SparkProgress, view: BrokerView, app_id: str, source: str, servers: str
) -> dict[OffsetTxn, int]:
    """Return offsets by topic id, as stored. Raises RecoveryError if topics are missing or others now."""
    wanted: dict[OffsetTxn, int] = {}
    for tp, offset in progress.offsets.items():
        topic, log = view.topics.get(tp.topic), view.logs.get((tp.topic, tp.partition))
        if topic is None or log is None or view.state_of(tp) == "recreated":
            raise RecoveryError(
                f"{tp} of the checkpoint does not exist at {servers}, or was created again: name the brokers it is from"
            )
        if offset > log.end:
            raise RecoveryError(
                f"{tp} ends at offset {log.end} at {servers}, before offset {offset} of the checkpoint: the topic was "
                "deleted and created again, or these are other brokers"
            )
        wanted[OffsetTxn(app_id, source, TopicPartition(tp.topic, topic.topic_id, tp.partition))] = offset
    return wanted


def starting_offsets(stored: Stored, view: BrokerView) -> dict[str, dict[str, int]]:
    """Return the value of Spark's option ``startingOffsets``: for each topic all of its partitions.

    ``stored`` has the offsets of one application and one source. Partitions added since are read from their
    start, as by a query that continues.

    Raises:
        RecoveryError: if there are no offsets, their topic was deleted or created again, or a write by delta-spark may
            have moved them.
    """
    if stored.unconfirmed:
        raise RecoveryError(
            "a write is recorded and not confirmed: start the pipeline once more as it was, then repeat"
        )
    found: dict[str, dict[str, int]] = {}
    for key, offset in sorted(stored.offsets.items()):
        tp = key.partition
        if view.state_of(tp) != "there":
            raise RecoveryError(f"{tp}: the topic was deleted or created again, so its offsets mean nothing")
        name = tp.topic or view.name_of(tp.topic_id) or ""
        every = found.setdefault(name, {str(number): EARLIEST for number in view.topics[name].partitions})
        every[str(tp.partition)] = offset
    if not found:
        raise RecoveryError(
            "no offsets are stored for that appId and source: without --app-id and --starting-offsets, all that are "
            "stored are shown"
        )
    return found
