"""Reading a coordinator's topic back, at the start or when this broker comes to lead a partition of it.

Theory of operation: the records of a partition are handed over oldest first. A record that cannot be read, as a later
Kafka may have written it, is logged and ignored: the others still count, and a broker that did not start would serve
none of them. Kafka's CoordinatorLoaderImpl ignores records of unknown types, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.protocol.errors import ProtocolError
from sparkonce.broker_lite.protocol.records import BatchHeader, Record, decode_records, scan

logger = logging.getLogger(__name__)

REPLAY_BYTES = 4 * 1024 * 1024
"""How much is read at a time, in bytes; a batch that is larger is read whole."""

SLICE_BYTES = 128 * 1024
"""The same where requests are served in between: some ten milliseconds of work."""


def replay(log: PartitionLog, take: Callable[[BatchHeader, Record], None]) -> None:
    """Hand over every record of a partition with the header of its batch.

    ``take`` raises ProtocolError for a record that it cannot read, and then has applied nothing of it.
    """
    for _ in replay_slices(log, take, REPLAY_BYTES):
        pass


def replay_slices(
    log: PartitionLog, take: Callable[[BatchHeader, Record], None], slice_bytes: int = SLICE_BYTES
) -> Iterator[None]:
    """Do the same a slice at a time, up to where the log ends by then."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        offset = _replay_from(log, offset, slice_bytes, take)
        yield


def _replay_from(log: PartitionLog, offset: int, max_bytes: int, take: Callable[[BatchHeader, Record], None]) -> int:
    """Hand over the records of one read; return where the next one begins."""
    data = log.read(offset, max_bytes, min_one_batch=True).read()
    next_offset = offset
    for position, header in scan(data):
        next_offset = header.next_offset
        try:
            records = decode_records(memoryview(data)[position : position + header.size])
        except ProtocolError as error:
            logger.error("%s, the batch at offset %d is passed over: %s", log.directory, header.base_offset, error)
            continue
        for record in records:
            try:
                take(header, record)
            except ProtocolError as error:
                logger.error("%s, offset %d is passed over: %s", log.directory, record.offset, error)
    return max(next_offset, offset + 1)
