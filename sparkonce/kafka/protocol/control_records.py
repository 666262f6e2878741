"""The record that ends a transaction in a partition, alone in its batch: Kafka's EndTransactionMarker."""

from __future__ import annotations

import struct
from typing import NamedTuple

from sparkonce.kafka.protocol.errors import CorruptBatchError
from sparkonce.kafka.protocol.records import ControlType, Record, control_type, encode_batch

_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The content of the record."""

    committed: bool
    coordinator_epoch: int


def encode_end_marker(
    marker: EndMarker, producer_id: int, producer_epoch: int, timestamp_ms: int, leader_epoch: int
) -> bytearray:
    """Return the control batch with one such record; its base offset is 0."""
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(_KEY.pack(_VERSION, kind), _VALUE.pack(_VERSION, marker.coordinator_epoch), timestamp_ms)
    return encode_batch(
        [record],
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_marker(record: Record) -> EndMarker | None:
    """Parse a control record; None if it is of another type. Raises CorruptBatchError if key or value are too short."""
    kind = control_type(record)
    if kind is None:
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatchError(f"the marker at offset {record.offset} does not name its coordinator's epoch")
    return EndMarker(kind is ControlType.COMMIT, _VALUE.unpack_from(record.value)[1])
