"""The lines that Spark hands back from its checkpoint: ours, or those of Spark's own Kafka connector.

Spark's connector writes ``{"topic":{"0":23}}``. Such a line is read as a position that began where it stands, so a
query that changes its format from ``kafka`` to ``kafka_once`` carries on from its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connectors.kafka_once.client import TopicMetadata
from connectors.kafka_once.ranges import check_same_topic
from exactly_once.errors import CheckpointError
from offset_store.offsets import (
    MARK,
    OffsetFormatError,
    OffsetRange,
    Position,
    SourceOffset,
    TopicPartition,
    batch_ranges,
)


def to_document(offset: SourceOffset) -> dict[str, Any]:
    """Give the offset as the JSON object that PySpark wants; its keys are sorted, so equal offsets give equal text."""
    document: dict[str, Any] = json.loads(offset.to_json())
    return document


def read_offset(document: Mapping[str, Any], source: str, topics: Mapping[str, TopicMetadata]) -> SourceOffset:
    """Read an offset from the checkpoint, whichever connector wrote it.

    Raises:
        CheckpointError: if it is of another source, or cannot be read.
        RecreatedTopicError: if one of ``topics`` is not the topic that the offset belongs to.
    """
    if not isinstance(document, dict):
        raise CheckpointError(
            f"the checkpoint's offset {document!r} is of another kind of source: begin with a new checkpointLocation"
        )
    if MARK not in document:
        return _spark_offset(document, source, topics)
    try:
        offset = SourceOffset.from_json(json.dumps(document))
    except OffsetFormatError as error:
        raise CheckpointError(f"the offsets in the checkpoint cannot be read: {error}") from error
    if offset.source != source:
        raise CheckpointError(
            f"the checkpoint belongs to source {offset.source!r}, this query's option source says {source!r}: set it "
            "back, or begin with a new checkpointLocation"
        )
    for tp in offset.positions:
        if tp.topic in topics:
            check_same_topic(tp.topic, tp.topic_id, topics[tp.topic].topic_id)
    return SourceOffset(source, {_with_id(tp, topics): position for tp, position in offset.positions.items()})


def ranges_between(
    start: Mapping[str, Any], end: Mapping[str, Any], source: str, topics: Mapping[str, TopicMetadata]
) -> dict[TopicPartition, OffsetRange]:
    """Give the ranges of the batch between two lines of the checkpoint.

    Raises:
        CheckpointError: if the batch cannot be told from them.
        RecreatedTopicError: as `read_offset`.
    """
    first, last = read_offset(start, source, topics), read_offset(end, source, topics)
    if MARK in end:
        return batch_ranges(first, last)
    if MARK in start:
        raise CheckpointError(
            "batch 0 of this checkpoint was planned by Spark's own Kafka connector and did not finish, and where it "
            'began is known to that connector only: run the query once with format("kafka"), then change the format'
        )
    return {
        tp: OffsetRange(first.positions[tp].next if tp in first.positions else 0, position.next)
        for tp, position in last.positions.items()
    }


def _with_id(tp: TopicPartition, topics: Mapping[str, TopicMetadata]) -> TopicPartition:
    """Give a partition of a line from before Kafka 2.8 the topic's id, if the brokers have one by now."""
    found = topics.get(tp.topic)
    return tp if tp.topic_id or found is None else TopicPartition(tp.topic, found.topic_id, tp.partition)


def _spark_offset(document: Mapping[str, Any], source: str, topics: Mapping[str, TopicMetadata]) -> SourceOffset:
    try:
        return SourceOffset(
            source,
            {
                TopicPartition(topic, topics[topic].topic_id if topic in topics else "", int(partition)): Position(
                    offset, offset
                )
                for topic, partitions in document.items()
                for partition, offset in partitions.items()
            },
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the offsets in the checkpoint were written neither by kafka_once nor by Spark's Kafka connector: "
            f"{json.dumps(document)[:200]}"
        ) from error
