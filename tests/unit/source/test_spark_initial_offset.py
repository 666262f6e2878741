"""The file in which Spark's own connector keeps where its checkpoint began, in each form that it has had."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkonce.connectors.kafka_source.checkpoint import initial_offset, initial_offset_if_any
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

END = SourceOffset("kafka", {TopicPartition("t", "", 0): Position(9, 9)})
BEGIN = SourceOffset("kafka", {TopicPartition("t", "", 0): Position(5, 5)})


def write(folder: Path, source: int, content: bytes) -> None:
    place = folder / "sources" / str(source)
    place.mkdir(parents=True)
    (place / "0").write_bytes(content)


@pytest.mark.parametrize(
    "content", [b'\0v1\n{"t":{"0":5}}', b'\0{"t":{"0":5}}', b'\x0d{"t":{"0":5}}', b'{{"t":{"0":5}}', b'{"t":{"0":5}}']
)
def test_the_forms_of_the_file(tmp_path: Path, content: bytes) -> None:
    """Spark 2.1.0 put the length before the JSON, in one byte, which no reader has checked since.

    The last is what is left of a file whose first byte an editor or a copy has swallowed.
    """
    write(tmp_path, 0, content)
    assert initial_offset(str(tmp_path), END) == BEGIN
    assert initial_offset(tmp_path.as_uri(), END) == BEGIN


def test_of_several_sources_the_one_with_these_topics_is_meant(tmp_path: Path) -> None:
    write(tmp_path, 0, b'\0v1\n{"other":{"0":7}}')
    write(tmp_path, 1, b'\0v1\n{"t":{"0":5}}')
    write(tmp_path, 2, b'\0v1\n{"t":{"0":5}}')
    (tmp_path / "sources" / "3").mkdir()
    assert initial_offset(str(tmp_path), END) == BEGIN
    write(tmp_path, 4, b'\0v1\n{"t":{"0":6}}')
    with pytest.raises(CheckpointError, match=r'several different initial offsets.*topics t: .*format\("kafka"\)'):
        initial_offset(str(tmp_path), END)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'\0v2\n{"t":{"0":5}}', "of version 'v2'; this version of sparkonce reads v1"),
        (b"\0v1\nnot json", "an initial offset that cannot be read: Expecting value"),
        (b"v1\n1795240971417", "holds no initial offset of Spark's Kafka connector"),
        (b'v1\n{"t":{"0":5}}', "holds no initial offset of Spark's Kafka connector"),
        (b'\0v1\n{"t":5}', "written neither by kafka_once nor by Spark"),
        (b'\0v1\n{"t":{"0":5.5}}', "written neither by kafka_once nor by Spark"),
        (b'\0v1\n{"t":{"0":-2}}', "written neither by kafka_once nor by Spark"),
        (b'\0v1\n{"other":{"0":5}}', "holds no initial offset of Spark's Kafka connector for the topics t"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, content: bytes, reason: str) -> None:
    write(tmp_path, 0, content)
    with pytest.raises(CheckpointError, match=reason):
        initial_offset(str(tmp_path), END)


def test_a_checkpoint_without_sources(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="sources holds no initial offset"):
        initial_offset(str(tmp_path), END)


def test_of_a_query_that_planned_nothing(tmp_path: Path) -> None:
    """A checkpoint may be new, or of other topics; then there is nothing to go by."""
    location = str(tmp_path)
    assert initial_offset_if_any(location, "kafka", {"t"}) is None
    write(tmp_path, 0, b'\0v1\n{"other":{"0":7}}')
    assert initial_offset_if_any(location, "kafka", {"t"}) is None
    write(tmp_path, 1, b'\0v1\n{"t":{"0":5}}')
    assert initial_offset_if_any(location, "kafka", {"t", "new"}) == BEGIN
    write(tmp_path, 2, b'\0v1\n{"t":{"0":6}}')
    with pytest.raises(CheckpointError, match="several different initial offsets"):
        initial_offset_if_any(location, "kafka", {"t"})
