"""Where a checkpoint of Spark's own Kafka connector began, for a batch 0 that never finished, planned or not.

Spark's connector keeps its initial offset in ``<checkpoint>/sources/<number of the source>/0``: a zero byte, ``v1``,
and the offset as JSON on the next line; Spark 2.1.0 wrote one byte and the JSON. (KafkaSourceInitialOffsetWriter.)
Other sources keep other things in files of that name, which are ignored. PySpark does not tell a source where its
checkpoint is, so the option ``checkpointLocation`` is used.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pyarrow import fs

from sparkonce.connectors.kafka_source.checkpoint import spark_positions
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

_VERSION = "v1"


def initial_offset(location: str, end: SourceOffset, storage_options: Mapping[str, str] | None = None) -> SourceOffset:
    """Return the initial offset of the source whose batch 0 ends at ``end``.

    A query with several Kafka sources has several; the one that names the topics of ``end`` is meant.

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
        CheckpointError: if a file cannot be read, or several that differ speak of these topics.
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
