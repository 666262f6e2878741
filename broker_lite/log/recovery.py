"""Recovery of a partition's log after its broker did not stop cleanly (Kafka's LogLoader).

Everything below the recovery point is known to be flushed. The segments from there on are read batch by batch:
length, magic, checksum, rising offsets. The file is truncated at the first invalid batch, and all later segments are
removed. Indexes are rebuilt on the way. Then the producer state is loaded from the newest readable snapshot and
replayed up to the log end offset; this also rebuilds the transaction indexes of the recovered segments, since only the
producer state knows which transaction a marker aborts.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from sparkonce.broker_lite.log.directories import is_log_file
from sparkonce.broker_lite.log.offset_index import MAX_RELATIVE_OFFSET
from sparkonce.broker_lite.log.producer_snapshot import SUFFIX as SNAPSHOT_SUFFIX
from sparkonce.broker_lite.log.producer_snapshot import CorruptSnapshotError, decode_snapshot
from sparkonce.broker_lite.log.producer_state import CompletedTransaction, Marker, ProducerStates
from sparkonce.broker_lite.log.segment import Segment, file_name
from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.log.transaction_index import AbortedTransaction
from sparkonce.kafka.protocol.control_records import read_end_marker
from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.legacy_records import check_any
from sparkonce.kafka.protocol.records import (
    HEADER_BYTES,
    BatchHeader,
    decode_records,
    read_header,
)

_READ_BYTES = 4 * 1024 * 1024
"""How much of a segment is in memory at once during recovery; one batch may need more."""

logger = logging.getLogger(__name__)


def recover_segments(
    segments: list[Segment], recovery_point: int, holes_allowed: bool, visit: Callable[[BatchHeader], None]
) -> tuple[int, int]:
    """Recover the segments from the recovery point on; whatever lies behind the first invalid batch is removed.

    Returns the base offset of the first segment that was read, and the log end offset. With `holes_allowed`, missing
    offsets between two segments do not end the log. `visit` is called with every valid batch's header.
    """
    bases = [segment.base_offset for segment in segments]
    first = index = max(bisect_right(bases, recovery_point) - 1, 0)
    end_offset = bases[first]
    while index < len(segments):
        segment = segments[index]
        if index > first and segment.base_offset != end_offset and not holes_allowed:
            break  # the end of the segment before it was never flushed, and is missing from a batch boundary on
        before = segment.size
        end_offset = recover_segment(segment, visit)
        index += 1
        if segment.size < before:
            break
    for segment in segments[index:]:
        logger.warning("%s: removing it: it lies behind offset %d", segment.paths()[0], end_offset)
        segment.remove()
    del segments[index:]
    return bases[first], end_offset


def recover_segment(segment: Segment, visit: Callable[[BatchHeader], None]) -> int:
    """Recover a segment: truncate it at the first invalid batch and rebuild its indexes; returns its next offset.

    `visit` is called with every valid batch's header.
    """
    segment.reset_indexes()
    segment.reset_transaction_index()
    next_offset = segment.base_offset
    position = 0
    window = memoryview(b"")
    window_start = 0
    try:
        while position < segment.size:
            window, window_start, header = _window(segment, window, window_start, position)
            check_any(window, position - window_start, header)
            last_offset, size = header.last_offset, header.size
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                raise CorruptBatchError(f"offset {header.base_offset} where {next_offset} was next")
            if last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
                raise CorruptBatchError(f"offset {last_offset} is beyond the segment's reach")
            segment.note(header.max_timestamp, last_offset, position, size)
            visit(header)
            next_offset = last_offset + 1
            position += size
    except CorruptBatchError as error:
        lost = segment.size - position
        logger.warning("%s: cutting %d bytes at position %d: %s", segment.paths()[0], lost, position, error)
        segment.truncate(position)
    segment.write_indexes()
    return next_offset


def _window(segment: Segment, window: memoryview, start: int, position: int) -> tuple[memoryview, int, BatchHeader]:
    """Return a window on the file with the whole batch at `position`, unless the file ends in it, and its header."""
    held = len(window) - (position - start)
    if held >= HEADER_BYTES:
        header = read_header(window, position - start)
        if held >= header.size:
            return window, start, header
    window = memoryview(segment.file.pread(_READ_BYTES, position))
    header = read_header(window)
    if len(window) < header.size <= segment.size - position:
        window = memoryview(segment.file.pread(header.size, position))
    return window, position, header


def load_producers(
    storage: Storage, directory: str, segments: Sequence[Segment], end_offset: int, recovered_from: int
) -> ProducerStates:
    """Return the producer state at `end_offset`; snapshots that are beyond it or damaged are removed.

    The empty transaction indexes of the segments from offset `recovered_from` on are filled on the way.
    """
    states = ProducerStates()
    start = 0
    for offset in sorted(snapshot_offsets(storage, directory), reverse=True):
        path = f"{directory}/{offset:020d}{SNAPSHOT_SUFFIX}"
        if offset <= end_offset:
            try:
                loaded = ProducerStates(decode_snapshot(storage.read(path)))
                if offset <= recovered_from:
                    states, start = loaded, offset
                    break
                continue
            except CorruptSnapshotError as error:
                logger.warning("%s: left out: %s", path, error)
        storage.remove(path)
    if start < end_offset:
        _replay(states, segments, start, _note_aborted(recovered_from))
    for segment in segments:
        if segment.base_offset >= recovered_from:
            segment.write_transaction_index()
    return states


def rebuild_transaction_index(storage: Storage, directory: str, segments: Sequence[Segment], index: int) -> None:
    """Rebuild the transaction index of one segment, from the snapshot before it or from the log's beginning."""
    segment = segments[index]
    segment.reset_transaction_index()
    end_offset = segment.next_offset()
    states, start = _states_before(storage, directory, segment.base_offset)
    if start < end_offset:
        _replay(states, segments[: index + 1], start, _note_aborted(segment.base_offset))
    segment.write_transaction_index(durable=True)  # no clean stop flushes it


def ended_transactions(
    storage: Storage, directory: str, segments: Sequence[Segment], from_offset: int
) -> list[CompletedTransaction]:
    """Return transactions with markers at `from_offset` or beyond, in order. Raises CorruptBatchError or OSError."""
    beyond = (header for _, _, header in _batches(segments, from_offset))
    if not any(header.is_control and header.has_producer_id for header in beyond):
        return []
    found: list[CompletedTransaction] = []

    def note(_segment: Segment, ended: CompletedTransaction) -> None:
        if ended.last_offset >= from_offset:
            found.append(ended)

    states, start = _states_before(storage, directory, from_offset)
    _replay(states, segments, start, note)
    return found


def _states_before(storage: Storage, directory: str, offset: int) -> tuple[ProducerStates, int]:
    """Return the producer state of the latest valid snapshot not beyond `offset`, and the snapshot's offset."""
    for taken_at in sorted(snapshot_offsets(storage, directory), reverse=True):
        if taken_at <= offset:
            path = f"{directory}/{taken_at:020d}{SNAPSHOT_SUFFIX}"
            try:
                return ProducerStates(decode_snapshot(storage.read(path))), taken_at
            except CorruptSnapshotError as error:
                logger.warning("%s: left out: %s", path, error)
    return ProducerStates(), 0


_Note = Callable[[Segment, CompletedTransaction], None]


def _note_aborted(from_offset: int) -> _Note:
    """Return a callback that adds aborted transactions to the indexes of segments from `from_offset` on."""

    def note(segment: Segment, ended: CompletedTransaction) -> None:
        if not ended.committed and segment.base_offset >= from_offset:
            segment.transaction_index.append(AbortedTransaction(*ended[:4]))

    return note


def _batches(segments: Sequence[Segment], start: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """Iterate over the batches from offset `start` on, with their positions."""
    for index, segment in enumerate(segments):
        if index + 1 < len(segments) and segments[index + 1].base_offset <= start:
            continue
        first = segment.find(start)
        for position, header in segment.batches(first.position) if first is not None else ():
            yield segment, position, header


def _replay(states: ProducerStates, segments: Sequence[Segment], start: int, note: _Note) -> None:
    """Apply the batches from offset `start` on; `note` is called with each transaction that ends in them."""
    for segment, position, header in _batches(segments, start):
        if not header.has_producer_id:
            continue
        if header.is_control:
            ended = _replay_marker(states, segment, position, header)
            if ended is not None:
                note(segment, ended)
        else:
            states.update(header, header.last_offset)


def _replay_marker(
    states: ProducerStates, segment: Segment, position: int, header: BatchHeader
) -> CompletedTransaction | None:
    records = decode_records(segment.file.pread(header.size, position))
    found = read_end_marker(records[0]) if records else None  # compaction may have emptied the batch
    if found is None:
        return None
    marker = Marker(header.producer_id, header.producer_epoch, found.committed, found.coordinator_epoch, 0)
    return states.end(marker, header.last_offset, records[0].timestamp)


def snapshot_offsets(storage: Storage, directory: str) -> list[int]:
    """Return the offsets of the producer snapshots in a directory."""
    names = storage.list_directory(directory)
    return [
        int(name.removesuffix(SNAPSHOT_SUFFIX))
        for name in names
        if name.endswith(SNAPSHOT_SUFFIX) and is_log_file(name)
    ]


def remove_stray_snapshots(storage: Storage, directory: str, bases: Sequence[int]) -> None:
    """Remove the producer snapshots that match no segment's base offset, except the last."""
    for offset in sorted(snapshot_offsets(storage, directory))[:-1]:
        if offset not in bases:
            storage.remove(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
