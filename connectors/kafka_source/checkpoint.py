"""The offsets in a checkpoint: the lines that Spark passes back, and where Spark's own Kafka connector began.

A line is ours or one of Spark's connector, which writes ``{"topic":{"0":23}}``. Such a line is read as a position that
began there, so a query that changes its format from ``kafka`` to ``kafka_once`` continues from its
checkpoint.

Batch 0 may never have finished, or never been planned. Spark's connector keeps its initial offset in
``<checkpoint>/sources/<number of the source>/0``: a zero byte, ``v1``, and the offset as JSON on the next line; Spark
2.1.0 wrote one byte and the JSON. (KafkaSourceInitialOffsetWriter.) Other sources keep other content in files of that
name, which are ignored. PySpark does not pass the checkpoint's location to a source, so it takes the option
``checkpointLocation``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.kafka.client.metadata import TopicMetadata
from sparkonce.offset_store.offsets import (
    MARK,
    OffsetFormatError,
    OffsetRange,
    Position,
    SourceOffset,
    TopicPartition,
    batch_ranges,
)

_VERSION = "v1"


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
    """Read an offset of either connector from a checkpoint. Raises CheckpointError if not readable, or another's."""
    if not isinstance(document, dict):
        raise CheckpointError(
            f"the checkpoint's offset {document!r} is of another kind of source: use a new checkpointLocation"
        )
    if MARK not in document:
        return Line(SourceOffset(source, spark_positions(document)), ours=False)
    try:
        offset = SourceOffset.from_document(document)
    except OffsetFormatError as error:
        raise CheckpointError(f"the offsets in the checkpoint cannot be read: {error}") from error
    if offset.source != source:
        raise CheckpointError(
            f"the checkpoint belongs to source {offset.source!r}, this query's option source is {source!r}: set it "
            "back, or use a new checkpointLocation"
        )
    return Line(offset, ours=True)


def spark_positions(document: Mapping[str, Any]) -> dict[TopicPartition, Position]:
    """Read a line of Spark's own Kafka connector; its topics have no ids. Raises CheckpointError if it is not one."""
    try:
        return {
            TopicPartition(topic, "", int(partition)): _position(offset)
            for topic, partitions in document.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the offsets in the checkpoint were written neither by kafka_once nor by Spark's Kafka connector: "
            f"{json.dumps(document)[:200]}"
        ) from error


def _position(offset: object) -> Position:
    if type(offset) is not int or offset < 0:
        raise ValueError(f"{offset!r} is not an offset")
    return Position(offset, offset)


def ranges_between(start: Line, end: Line) -> dict[TopicPartition, OffsetRange]:
    """Return a batch's ranges, between two lines; maybe without empty ones. Raises CheckpointError if invalid."""
    if end.ours:
        moved = SourceOffset(end.offset.source, end.offset.moved_since(start.offset))
        return batch_ranges(start.offset, moved)
    if start.ours:
        raise CheckpointError(
            "batch 0 of this checkpoint was planned by Spark's own Kafka connector and did not finish, and where it "
            "began is in the checkpoint only: set the reader's option checkpointLocation to that of the query, "
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


def initial_offset(location: str, end: SourceOffset, storage_options: Mapping[str, str] | None = None) -> SourceOffset:
    """Return the initial offset of the source whose batch 0 ends at ``end``.

    A query with several Kafka sources has several; the one that names the topics of ``end`` is returned.

    Raises:
        CheckpointError: if there is none, it cannot be read, or several different ones fit.
    """
    checkpoint = Checkpoint.open(location, storage_options)
    topics = {tp.topic for tp in end.positions}
    fitting: list[Mapping[TopicPartition, Position]] = []
    for content in _files(checkpoint):
        positions = _positions(content, checkpoint) or {}
        if {tp.topic for tp in positions} == topics and positions not in fitting:
            fitting.append(positions)
    if len(fitting) != 1:
        found = "several different initial offsets" if fitting else "no initial offset"
        raise CheckpointError(
            f"{checkpoint.location}/sources holds {found} of Spark's Kafka connector for the topics "
            f'{", ".join(sorted(topics))}: run the query once with format("kafka"), so that its batch 0 finishes'
        )
    return SourceOffset(end.source, fitting[0])


def initial_offset_if_any(
    location: str, source: str, topics: Collection[str], storage_options: Mapping[str, str] | None = None
) -> SourceOffset | None:
    """Return the initial offset of a query that ended before it planned a batch; None if no file has these topics.

    Raises:
        CheckpointError: if a file cannot be read, or several files for these topics differ.
    """
    checkpoint = Checkpoint.open(location, storage_options)
    if not checkpoint.entries("sources"):
        return None
    fitting: list[Mapping[TopicPartition, Position]] = []
    for content in _files(checkpoint):
        positions = _positions(content, checkpoint) or {}
        if not {tp.topic for tp in positions}.isdisjoint(topics) and positions not in fitting:
            fitting.append(positions)
    if len(fitting) > 1:
        raise CheckpointError(
            f"{checkpoint.location}/sources holds several different initial offsets of Spark's Kafka connector for the "
            f'topics {", ".join(sorted(topics))}: run the query once with format("kafka"), so that its batch 0 finishes'
        )
    return SourceOffset(source, fitting[0]) if fitting else None


def _files(checkpoint: Checkpoint) -> list[bytes]:
    try:
        folders = checkpoint.entries("sources")
        wanted = [f"{folder.path}/0" for folder in sorted(folders, key=lambda each: each.path)]
        found = [info.path for info in checkpoint.filesystem.get_file_info(wanted) if info.type is fs.FileType.File]
        contents = []
        for path in found:
            with checkpoint.filesystem.open_input_stream(path) as stream:
                contents.append(bytes(stream.readall()))
        return contents
    except OSError as error:
        raise CheckpointError(f"cannot read {checkpoint.location}/sources: {error}") from error


def _positions(content: bytes, checkpoint: Checkpoint) -> Mapping[TopicPartition, Position] | None:
    """Read a file; None if another kind of source keeps something else there."""
    body = content if content.startswith(b'{"') else content[1:]
    return _read(body.decode(errors="replace"), checkpoint, noted=content.startswith(b"\0v"))


def _read(body: str, checkpoint: Checkpoint, *, noted: bool) -> Mapping[TopicPartition, Position] | None:
    if noted:
        version, _, body = body.partition("\n")
        if version != _VERSION:
            raise CheckpointError(
                f"{checkpoint.location}/sources holds an initial offset of version {version!r}; this version of "
                f"sparkonce reads {_VERSION}"
            )
    try:
        return spark_positions(json.loads(body))
    except (ValueError, CheckpointError) as error:
        if not noted:
            return None
        raise CheckpointError(
            f"{checkpoint.location}/sources holds an initial offset that cannot be read: {error}"
        ) from error
