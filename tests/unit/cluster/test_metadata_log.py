"""The controller's log: records and snapshots as bytes, one file for each epoch, torn ends, and what readers take."""

from __future__ import annotations

import json
import uuid
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.cluster import metadata_log
from sparkonce.broker_lite.cluster.metadata_log import (
    DamagedMetadataError,
    MetadataLog,
    MetadataReader,
    read_steps,
    taken,
)
from sparkonce.broker_lite.cluster.record_format import (
    _READERS,
    MetadataFormatError,
    decode,
    encode_record,
    encode_snapshot,
)
from sparkonce.broker_lite.controller import records as kinds
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import MetadataRecord, PartitionState
from sparkonce.kafka.protocol.records import read_header
from tests.unit.cluster.shared import SHARED, SharedStorage

IDS = st.integers(-1, 2**31 - 1)
EPOCHS = st.integers(-1, 2**63 - 1)
TEXTS = st.text(max_size=20)
BROKERS = st.lists(IDS, max_size=4).map(tuple)
STATES = st.builds(PartitionState, BROKERS, BROKERS, IDS, IDS, IDS, BROKERS, IDS)
SETTINGS = st.lists(st.tuples(TEXTS, TEXTS), max_size=3, unique_by=lambda each: each[0]).map(tuple)
LISTENERS = st.lists(st.tuples(TEXTS, TEXTS, IDS), max_size=3).map(tuple)
RECORDS = st.one_of(
    st.builds(kinds.BrokerRegistered, IDS, st.uuids(), TEXTS, IDS, LISTENERS),
    st.builds(kinds.BrokerChanged, IDS, EPOCHS, st.booleans(), st.booleans()),
    st.builds(kinds.TopicCreated, TEXTS, st.uuids(), SETTINGS),
    st.builds(kinds.TopicDeleted, st.uuids()),
    st.builds(kinds.TopicSettingsChanged, st.uuids(), SETTINGS),
    st.builds(kinds.DefaultSettingsChanged, SETTINGS),
    st.builds(kinds.PartitionChanged, st.uuids(), IDS, STATES),
    st.builds(kinds.ProducerIdsAllocated, EPOCHS),
    st.builds(kinds.ControllerElected, IDS, IDS, st.none() | st.uuids(), EPOCHS),
    st.builds(kinds.DocumentChanged, TEXTS, TEXTS),
)


def filled(topics: int = 2) -> ClusterImage:
    image = ClusterImage()
    image.next_offset = 5
    image.apply(kinds.BrokerRegistered(1, uuid.UUID(int=1), "h", 9, (("PLAINTEXT", "h", 9),)))
    image.apply(kinds.BrokerChanged(1, 5, fenced=False, shutting_down=False))
    for number in range(topics):
        topic_id = uuid.UUID(int=100 + number)
        image.apply(kinds.TopicCreated(f"t{number}", topic_id, (("retention.ms", "1"),)))
        image.apply(kinds.PartitionChanged(topic_id, 0, PartitionState((1, 2), (1,), 1, 3, 4, (2,), -1)))
    image.apply(kinds.ProducerIdsAllocated(3000))
    image.apply(kinds.DefaultSettingsChanged((("min.insync.replicas", "2"),)))
    image.apply(kinds.DocumentChanged("acls.json", "{}"))
    image.apply(kinds.ControllerElected(1, 7, uuid.UUID(int=7), 3))
    return image


@given(RECORDS)
def test_a_record_comes_back(record: MetadataRecord) -> None:
    assert decode(encode_record(record)) == record


def test_every_kind_of_record_has_a_form() -> None:
    assert {each.__name__ for each in get_args(MetadataRecord)} == set(_READERS)


def test_a_snapshot_is_the_whole_image() -> None:
    image = filled()
    found = decode(encode_snapshot(image))
    assert isinstance(found, ClusterImage)
    found.next_offset = image.next_offset
    assert found == image


def test_a_snapshot_from_before_default_settings_were_kept_there_is_read() -> None:
    document = json.loads(encode_snapshot(filled()))
    del document["defaultSettings"]
    found = decode(json.dumps(document).encode())
    assert isinstance(found, ClusterImage)
    assert found.default_settings == {}
    assert found.min_in_sync_replicas(uuid.UUID(int=100)) == 1


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{}", b'{"type":"Nothing"}', b'{"type":"TopicCreated"}', b"\xff"])
def test_what_is_no_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(MetadataFormatError):
        decode(value)


def all_of(log: MetadataLog, storage: SharedStorage, epoch: int) -> ClusterImage:
    found, end = read_steps(storage.read(log.path(epoch)))
    assert end == storage.size(log.path(epoch))
    image = ClusterImage()
    for step in found:
        image = taken(image, step)
    return image


def test_an_epoch_begins_with_what_the_former_one_left() -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    changes: list[MetadataRecord] = [kinds.TopicCreated("t", uuid.UUID(int=1)), kinds.ProducerIdsAllocated(1000)]
    offset = image.next_offset
    for each in changes:
        image.apply(each)
    writer.append(changes, offset, 0)
    after, _ = log.begin(2, 3, 0)
    assert (after.controller_id, after.controller_epoch) == (3, 2)
    assert after.topic_ids == {"t": uuid.UUID(int=1)}
    assert after.next_offset == image.next_offset + 2  # the snapshot, and the election
    assert log.epochs() == [2]
    assert all_of(log, storage, 2) == after


@given(st.integers(0, 10_000), st.binary(max_size=100))
def test_a_torn_or_damaged_end_is_nobodys(cut: int, rubbish: bytes) -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    whole = storage.size(log.path(1))
    writer.append([kinds.ProducerIdsAllocated(1000)], image.next_offset, 0)
    content = storage.files[log.path(1)].data
    del content[whole + cut % (len(content) - whole) :]
    content += b"\xff" + rubbish
    after, _ = log.begin(2, 1, 0)
    assert after.next_producer_id == 0
    assert after.next_offset == image.next_offset + 2


def test_a_log_whose_last_batch_is_left_out_is_kept_aside(caplog: pytest.LogCaptureFixture) -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    writer.append([kinds.ProducerIdsAllocated(1000)], image.next_offset, 0)
    storage.files[log.path(1)].data[-3] ^= 1
    damaged = storage.read(log.path(1))
    after, _ = log.begin(2, 1, 0)
    assert after.next_producer_id == 0
    assert log.epochs() == [2]
    kept = f"{log.path(1)}.torn"
    assert storage.read(kept) == damaged
    assert f"is kept as {kept}" in caplog.text


@given(st.integers(0), st.integers(0, 7))
def test_a_damaged_log_is_not_gone_on_from(position: int, bit: int) -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    for number in range(3):
        writer.append([kinds.ProducerIdsAllocated(1000 * number)], image.next_offset + number, 0)
    last = storage.size(log.path(1))
    writer.append([kinds.ProducerIdsAllocated(9000)], image.next_offset + 3, 0)
    content = storage.files[log.path(1)].data
    content[position % last] ^= 1 << bit
    before = bytes(content)
    _, end = read_steps(before)
    if end == len(before):  # of a batch's header its checksum does not guard all: not its offset, nor its epoch
        after, _ = log.begin(2, 1, 0)
        assert after.next_producer_id == 9000
        return
    with pytest.raises(DamagedMetadataError, match=log.path(1)):
        log.begin(2, 1, 0)
    assert log.epochs() == [1]
    assert storage.read(log.path(1)) == before


@pytest.mark.parametrize("left", ["nothing", "the snapshot", "all but a byte"])
def test_what_a_controller_begins_with_is_never_torn(left: str) -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    log.begin(1, 1, 0)
    content = storage.files[log.path(1)].data
    del content[{"nothing": 0, "the snapshot": read_header(content).size, "all but a byte": len(content) - 1}[left] :]
    with pytest.raises(DamagedMetadataError, match="in what its controller began it with"):
        log.begin(2, 1, 0)


def test_a_reader_sees_batches_as_wholes_and_follows_into_the_next_epoch() -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    latest = [1]
    reader = MetadataReader(storage, log, lambda: latest[0])
    assert reader.poll() == []  # claimed, and not begun
    image, writer = log.begin(1, 1, 0)
    first, second = reader.poll()
    assert isinstance(first, ClusterImage)
    assert second == [kinds.ControllerElected(1, 1)]
    writer.append([kinds.ProducerIdsAllocated(1000), kinds.ProducerIdsAllocated(2000)], image.next_offset, 0)
    path = log.path(1)
    whole = bytes(storage.files[path].data)
    del storage.files[path].data[-1:]
    assert reader.poll() == []  # it is being written
    storage.files[path].data[:] = whole
    assert reader.poll() == [[kinds.ProducerIdsAllocated(1000), kinds.ProducerIdsAllocated(2000)]]
    assert reader.poll() == []
    latest[0] = 2
    writer.append([kinds.ProducerIdsAllocated(3000)], image.next_offset + 2, 0)
    assert reader.poll() == []  # it may be too late for that
    log.begin(2, 5, 0)
    snapshot, elected = reader.poll()
    assert isinstance(snapshot, ClusterImage)
    assert snapshot.next_producer_id == 3000
    assert elected == [kinds.ControllerElected(5, 2, log_end=5)]


@pytest.mark.parametrize("sizes", [(1,), (5_000,), (1, 5_000, 1), (5_000, 5_000), (400, 400, 400, 5_000)])
def test_a_batch_is_read_whatever_its_size(sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "MAX_READ_BYTES", 1_000)
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    reader = MetadataReader(storage, log, lambda: 1)
    reader.poll()
    changes: list[list[MetadataRecord]] = [[kinds.DocumentChanged("d", "x" * size)] for size in sizes]
    for number, each in enumerate(changes):
        writer.append(each, image.next_offset + number, 0)
    found = [step for _ in sizes for step in reader.poll()]
    assert found == changes
    assert reader.poll() == []


def test_a_long_batch_that_is_being_written_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_log, "MAX_READ_BYTES", 1_000)
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    reader = MetadataReader(storage, log, lambda: 1)
    reader.poll()
    writer.append([kinds.DocumentChanged("d", "x" * 5_000)], image.next_offset, 0)
    content = storage.files[log.path(1)].data
    whole = bytes(content)
    del content[-1:]
    assert reader.poll() == []
    content[:] = whole
    assert reader.poll() == [[kinds.DocumentChanged("d", "x" * 5_000)]]


def test_what_was_read_while_somebody_claimed_the_next_epoch_is_dropped() -> None:
    storage = SharedStorage()
    log = MetadataLog(storage, SHARED)
    image, writer = log.begin(1, 1, 0)
    latest = iter([1, 2, 2])
    reader = MetadataReader(storage, log, lambda: next(latest))
    assert reader.poll() == []  # the claim came between the two looks
    writer.append([kinds.ProducerIdsAllocated(1000)], image.next_offset, 0)
    assert reader.poll() == []
