"""The lines that Spark hands back from its checkpoint: ours, or those of Spark's own Kafka connector.

Spark's connector writes ``{"topic":{"0":23}}``. Such a line is read as a position that began where it stands, so a
query that changes its format from ``kafka`` to ``kafka_once`` carries on from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.connectors.kafka_client.client import TopicMetadata
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.offset_store.offsets import (
    MARK,
    OffsetFormatError,
    OffsetRange,
    Position,
    SourceOffset,
    TopicPartition,
    batch_ranges,
)


@dataclass(frozen=True, slots=True)
class Line:
    """One offset from the checkpoint, and whether it is one of ours."""

    offset: SourceOffset
    ours: bool

    def with_topic_ids(self, topics: Mapping[str, TopicMetadata]) -> Line:
        """Return the line, in which topics without an id have the one that the brokers know by now.

        Lines of Spark's connector have no ids, nor have ours from brokers before Kafka 2.8.
        """
        positions = self.offset.positions
        if all(tp.topic_id for tp in positions):
            return self
        known = {_with_id(tp, topics): position for tp, position in positions.items()}
        return Line(SourceOffset(self.offset.source, known), self.ours)


def read_line(document: Mapping[str, Any], source: str) -> Line:
    """Read an offset from the checkpoint, whichever connector wrote it.

    Raises:
        CheckpointError: if it is of another source, or cannot be read.
    """
    if not isinstance(document, dict):
        raise CheckpointError(
            f"the checkpoint's offset {document!r} is of another kind of source: begin with a new checkpointLocation"
        )
    if MARK not in document:
        return Line(SourceOffset(source, spark_positions(document)), ours=False)
    try:
        offset = SourceOffset.from_document(document)
    except OffsetFormatError as error:
        raise CheckpointError(f"the offsets in the checkpoint cannot be read: {error}") from error
    if offset.source != source:
        raise CheckpointError(
            f"the checkpoint belongs to source {offset.source!r}, this query's option source says {source!r}: set it "
            "back, or begin with a new checkpointLocation"
        )
    return Line(offset, ours=True)


def spark_positions(document: Mapping[str, Any]) -> dict[TopicPartition, Position]:
    """Read a line of Spark's own Kafka connector; its topics have no ids.

    Raises:
        CheckpointError: if it is none.
    """
    try:
        return {
            TopicPartition(topic, "", int(partition)): Position(offset, offset)
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the offsets in the checkpoint were written neither by kafka_once nor by Spark's Kafka connector: "
            f"{json.dumps(document)[:200]}"
        ) from error


def ranges_between(start: Line, end: Line) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of the batch between two lines of the checkpoint.

    Raises:
        CheckpointError: if they do not define a batch.
    """
    if end.ours:
        return batch_ranges(start.offset, end.offset)
    if start.ours:
        raise CheckpointError(
            "batch 0 of this checkpoint was planned by Spark's own Kafka connector and did not finish, and where it "
            "began is in the checkpoint only: give the reader the option checkpointLocation, the same as the query's, "
            'or run the query once with format("kafka"), then change the format'
        )
    first = start.offset.positions
    return {
        tp: OffsetRange(first[tp].next if tp in first else 0, position.next)
        for tp, position in end.offset.positions.items()
    }


def _with_id(tp: TopicPartition, topics: Mapping[str, TopicMetadata]) -> TopicPartition:
    found = topics.get(tp.topic)
    return tp if tp.topic_id or found is None else TopicPartition(tp.topic, found.topic_id, tp.partition)
