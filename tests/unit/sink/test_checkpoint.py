"""Reading Spark's checkpoint: both formats of the offset log, several sources, and what is wrong said clearly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparkonce.exactly_once.batch import read_batch
from sparkonce.exactly_once.checkpoint import Checkpoint
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.offset_store.fingerprint import Fingerprint
from sparkonce.offset_store.offsets import OffsetRange, Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import PartitionKey

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
TP = TopicPartition("topic", "id", 0)
RATE = '{"offset":5,"timestamp":1000}'


def offset(next_offset: int, origin: int = 0, source: str = "default", tp: TopicPartition = TP) -> str:
    return SourceOffset(source, {tp: Position(origin, next_offset)}).to_json()


class Folder:
    """A checkpoint made by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "offsets").mkdir(parents=True)
        (root / "metadata").write_text('{"id":"the-query"}\n')

    def log(self, batch_id: int, lines: list[str], version: str = "v1") -> None:
        (self.root / "offsets" / str(batch_id)).write_text("\n".join([version, METADATA, *lines]))

    def ranges(self, batch_id: int) -> Mapping[PartitionKey, OffsetRange]:
        return read_batch(Checkpoint.open(str(self.root)), batch_id, "app", "attempt").record.ranges


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "checkpoint")


def test_a_batch_leads_from_the_end_of_the_one_before(folder: Folder) -> None:
    folder.log(0, [offset(10, origin=4)])
    folder.log(1, [offset(25, origin=4)])
    (folder.root / "offsets" / ".1.crc").write_text("not a batch")
    assert folder.ranges(0) == {("default", TP): OffsetRange(4, 10)}
    assert folder.ranges(1) == {("default", TP): OffsetRange(10, 25)}
    checkpoint = Checkpoint.open(f"file:{folder.root}")
    assert checkpoint.latest_batch_id() == 1
    assert checkpoint.query_id() == "the-query"


def test_version_2_names_its_lines_and_may_change_their_order(folder: Folder) -> None:
    other = TopicPartition("other", "id2", 3)
    folder.log(0, ["1:" + offset(5, tp=other), "0:" + offset(10)], "v2")
    folder.log(1, ["0:" + offset(12), "1:" + offset(9, tp=other), "rate:" + RATE], "v2")
    assert folder.ranges(1) == {("default", TP): OffsetRange(10, 12), ("default", other): OffsetRange(5, 9)}


def test_other_sources_and_sources_without_an_offset_are_passed_over(folder: Folder) -> None:
    folder.log(0, [RATE, "-"])
    folder.log(1, [RATE, offset(10, origin=3)])
    assert folder.ranges(0) == {}
    assert folder.ranges(1) == {("default", TP): OffsetRange(3, 10)}


def test_a_batch_knows_whether_other_sources_took_part(folder: Folder) -> None:
    for batch_id, (lines, expected) in enumerate(
        [([offset(1), "-"], False), ([offset(2), RATE], True), ([RATE], True)]
    ):
        folder.log(batch_id, lines)
        assert read_batch(Checkpoint.open(str(folder.root)), batch_id, "app", "a").foreign is expected


class Fingerprints:
    """What is told apart, from the files of a checkpoint."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def of(self, start: str, end: str, clock: str = METADATA) -> Fingerprint:
        for batch_id, line in enumerate((start, end)):
            self.folder.log(batch_id, [line])
        path = self.folder.root / "offsets" / "1"
        path.write_text(path.read_text().replace(METADATA, clock))
        found = read_batch(Checkpoint.open(str(self.folder.root)), 1, "app", "attempt").record.fingerprint
        assert found is not None
        return found

    def file_log(self, name: str, *files: tuple[str, int, int]) -> None:
        log = self.folder.root / "sources" / "0"
        log.mkdir(parents=True, exist_ok=True)
        entries = [json.dumps({"path": path, "timestamp": at, "batchId": number}) for path, at, number in files]
        (log / name).write_text("\n".join(["v1", *entries]))


@pytest.fixture
def fingerprints(folder: Folder) -> Fingerprints:
    return Fingerprints(folder)


def test_a_fingerprint_tells_where_our_sources_begin_and_end(fingerprints: Fingerprints) -> None:
    whole = fingerprints.of(offset(10), offset(20))
    assert fingerprints.of(offset(10, origin=4), offset(20, origin=4)) == whole
    others = [fingerprints.of(offset(9), offset(20)), fingerprints.of(offset(10), offset(21))]
    others.append(
        fingerprints.of(offset(10, tp=TP._replace(topic_id="new")), offset(20, tp=TP._replace(topic_id="new")))
    )
    others.append(fingerprints.of(offset(10, source="b"), offset(20, source="b")))
    assert len({whole.inputs, *(each.inputs for each in others)}) == 5
    assert {each.clock for each in others} == {whole.clock}


def test_a_fingerprint_is_the_same_in_every_version(fingerprints: Fingerprints) -> None:
    """Tables hold them: another hash would make a stranger of the last batch of each."""
    assert fingerprints.of(offset(10), offset(20)).to_int() == 4961589498988419145


def test_a_partition_that_stands_still_is_no_part_of_a_fingerprint(fingerprints: Fingerprints) -> None:
    beside = {TP._replace(partition=1): Position(0, 0)}
    lines = [SourceOffset("default", {TP: Position(0, at), **beside}).to_json() for at in (10, 20)]
    assert fingerprints.of(*lines) == fingerprints.of(offset(10), offset(20))


def test_a_fingerprint_tells_the_time_and_not_the_settings(fingerprints: Fingerprints) -> None:
    known = fingerprints.of(offset(1), offset(2))
    conf = fingerprints.of(
        offset(1), offset(2), METADATA.replace('"conf":{}', '"conf":{"spark.sql.shuffle.partitions":"9"}')
    )
    assert conf == known
    for clock in (
        METADATA.replace("1", "2"),
        METADATA.replace('MarkMs":0', 'markMs":5').replace('markMs":0', 'markMs":5'),
    ):
        other = fingerprints.of(offset(1), offset(2), clock)
        assert other.inputs == known.inputs
        assert other.clock != known.clock


def test_a_fingerprint_has_the_text_of_other_sources(fingerprints: Fingerprints) -> None:
    known = fingerprints.of(RATE, RATE.replace("5", "9"))
    assert fingerprints.of(RATE, RATE.replace("5", "8")) != known
    assert fingerprints.of(RATE.replace("5", "6"), RATE.replace("5", "9")) != known


def test_the_number_of_a_file_source_stands_for_its_files(fingerprints: Fingerprints) -> None:
    start, end = '{"logOffset":8}', '{"logOffset":10}'
    without_log = fingerprints.of(start, end)
    fingerprints.file_log("9.compact", ("a", 1, 0), ("b", 2, 9))
    fingerprints.file_log("10", ("d", 4, 10), ("c", 3, 10))
    known = fingerprints.of(start, end)
    assert known != without_log
    fingerprints.file_log("19.compact", ("a", 1, 0), ("b", 2, 9), ("c", 3, 10), ("d", 4, 10), ("e", 5, 19))
    (fingerprints.folder.root / "sources" / "0" / "10").unlink()
    assert fingerprints.of(start, end) == known
    fingerprints.file_log("10", ("c", 3, 10), ("d", 5, 10))
    assert fingerprints.of(start, end) != known
    fingerprints.file_log("10", ("c", 3, 10))
    assert fingerprints.of(start, end) != known
    (fingerprints.folder.root / "sources" / "0" / "10").write_text("v1\nno JSON")
    with pytest.raises(CheckpointError, match="sources/0/10 is not a log of Spark's file source: 'no JSON'"):
        fingerprints.of(start, end)


def test_a_self_union_is_one_range(folder: Folder) -> None:
    folder.log(0, [offset(10), offset(10)])
    assert folder.ranges(0) == {("default", TP): OffsetRange(0, 10)}


def test_two_sources_of_one_name_that_disagree_are_refused(folder: Folder) -> None:
    folder.log(0, [offset(10), offset(8)])
    with pytest.raises(CheckpointError, match=r"both named 'default'.*\[0, 10\) and \[0, 8\).*option\('source'"):
        folder.ranges(0)


def test_two_clusters_with_a_topic_of_one_name_need_two_names(folder: Folder) -> None:
    elsewhere = TopicPartition("topic", "another id", 1)
    folder.log(0, [offset(10), offset(10, tp=elsewhere)])
    with pytest.raises(CheckpointError, match=r"both named 'default' and read a topic topic, of .*: id and another id"):
        folder.ranges(0)
    folder.log(0, [offset(10), offset(10, tp=elsewhere, source="b")])
    assert folder.ranges(0) == {("default", TP): OffsetRange(0, 10), ("b", elsewhere): OffsetRange(0, 10)}


def test_two_names_keep_two_ranges(folder: Folder) -> None:
    folder.log(0, [offset(10, source="a"), offset(8, source="b")])
    assert folder.ranges(0) == {("a", TP): OffsetRange(0, 10), ("b", TP): OffsetRange(0, 8)}


def test_a_source_that_changed_its_name_is_refused(folder: Folder) -> None:
    folder.log(0, [offset(10, source="a")])
    folder.log(1, [offset(12, source="b")])
    with pytest.raises(CheckpointError, match="was named 'a' in batch 0 and is 'b' in batch 1"):
        folder.ranges(1)


def test_state_makes_a_query_stateful(folder: Folder) -> None:
    checkpoint = Checkpoint.open(str(folder.root))
    assert not checkpoint.is_stateful()
    (folder.root / "state").mkdir()
    assert not checkpoint.is_stateful()
    (folder.root / "state" / "0").mkdir()
    assert checkpoint.is_stateful()


def test_what_is_missing_or_unreadable_is_named(folder: Folder) -> None:
    checkpoint = Checkpoint.open(str(folder.root))
    with pytest.raises(CheckpointError, match="holds no batch"):
        checkpoint.latest_batch_id()
    with pytest.raises(CheckpointError, match="offsets/3 does not exist"):
        checkpoint.logged(3)
    folder.log(1, [offset(10)])
    with pytest.raises(CheckpointError, match="offsets/0 does not exist"):
        folder.ranges(1)
    folder.log(0, [offset(10)], "v3")
    with pytest.raises(CheckpointError, match="version 'v3'"):
        folder.ranges(0)
    folder.log(0, ['{"sparkonce":99}'])
    with pytest.raises(CheckpointError, match="format 99"):
        folder.ranges(0)
    (folder.root / "metadata").write_text("{}")
    with pytest.raises(CheckpointError, match="no query id"):
        checkpoint.query_id()


def test_an_unreadable_scheme_is_named() -> None:
    with pytest.raises(CheckpointError, match=r"checkpointLocation=dbfs:.*: cannot read dbfs:"):
        Checkpoint.open("dbfs:/x/y")
