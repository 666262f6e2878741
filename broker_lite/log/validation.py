"""Whether a batch of a producer may be appended, and in which form.

The header and the checksum are always checked. The records are read only where Kafka's rules need it and the header is
not enough: in a compacted topic every record must have a key, with `message.timestamp.before.max.ms` every
timestamp is checked, and with a `compression.type` other than the producer's the batch is recompressed. Otherwise the
broker does not decompress a batch, unlike Kafka, for speed. The rules are those of Kafka's UnifiedLog and LogValidator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparkonce.broker_lite.log.config import LONG_MAX, LogConfig
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import CorruptBatchError, ErrorCode, KafkaError
from sparkonce.kafka.protocol.record_scan import FoundRecord, find_records, inflate, recompress
from sparkonce.kafka.protocol.records import BatchHeader, check_whole, clear_log_append_time, read_header

_CODECS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_RECORDS_AT_ONCE = 1024
_NO_TIMESTAMP = -1
_ERRORS_SHOWN = 3


class InvalidRecordsError(KafkaError):
    """Some records of a batch are invalid: which ones, and why (Produce returns it from version 8 on, KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


def check_batch(
    config: LogConfig, batch: bytearray | memoryview, now_ms: int, by_coordinator: bool
) -> tuple[bytearray | memoryview, BatchHeader]:
    """Check one batch; return it in the form to append, with its header.

    Raises:
        KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE or INVALID_TIMESTAMP.
    """
    header = _check_whole(config, batch)
    fault = _fault(header, len(batch), by_coordinator)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_RECORD, fault)
    if not config.log_append_time:
        _check_latest(config, header, now_ms)
    if header.is_log_append_time:
        batch, header = _without_append_time(config, batch, header)
    if (
        config.compression_type == "producer"
        and config.message_timestamp_before_max_ms == LONG_MAX
        and "compact" not in config.cleanup_policy
    ):
        return batch, header  # nearly always: the records need not be read
    return _check_inside(config, batch, header, now_ms)


def _check_inside(
    config: LogConfig, batch: bytearray | memoryview, header: BatchHeader, now_ms: int
) -> tuple[bytearray | memoryview, BatchHeader]:
    """Check the records, and recompress them if the topic has its own compression."""
    codec = _CODECS.get(config.compression_type)
    changes = codec is not None and codec != header.compression
    by_record = not config.log_append_time and config.message_timestamp_before_max_ms != LONG_MAX
    if "compact" in config.cleanup_policy or by_record or changes:
        try:
            body = inflate(batch, header)
            _check_records(config, header, body, now_ms if by_record else None)
        except CorruptBatchError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if changes:
            assert codec is not None
            batch = recompress(header, body, codec, _level(config, codec))
            header = read_header(batch)
            _check_size(config, len(batch))
    return batch, header


def _check_whole(config: LogConfig, batch: bytearray | memoryview) -> BatchHeader:
    try:
        header = read_header(batch)
        if header.magic in (0, 1):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"Produce requests may only hold record batches with magic version 2, this has {header.magic}",
            )
        if header.base_offset != 0:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"the batch's base offset is {header.base_offset}, not 0")
        _check_size(config, len(batch))
        check_whole(batch, 0, header)
        return header
    except CorruptBatchError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None


def _check_size(config: LogConfig, size: int) -> None:
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE, f"batch of {size} bytes; max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes; segment.bytes is {config.segment_bytes}"
        )


def _fault(header: BatchHeader, size: int, by_coordinator: bool) -> str | None:
    if header.size != size:
        return f"one batch was expected; {size - header.size} bytes follow it"
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        return f"{header.record_count} records, but the last offset delta is {header.last_offset_delta}"
    if 0 <= header.attributes <= Compression.ZSTD and header.producer_id < 0:
        return None  # nearly always: no flags, and no producer to check
    if header.is_control:
        return "control batches are the broker's alone"
    if header.producer_id >= 0 and (header.producer_epoch < 0 or (header.base_sequence < 0 and not by_coordinator)):
        return f"producer {header.producer_id} without epoch or sequence"
    if header.is_transactional and header.producer_id < 0:
        return "a transactional batch needs a producer id"
    if header.compression > Compression.ZSTD:
        return f"unknown compression codec {header.compression}"
    return None


def _check_latest(config: LogConfig, header: BatchHeader, now_ms: int) -> None:
    latest = header.max_timestamp
    if latest - now_ms > config.message_timestamp_after_max_ms:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the latest timestamp {latest} is more than message.timestamp.after.max.ms="
            f"{config.message_timestamp_after_max_ms} ahead of the broker's {now_ms}",
        )


def _without_append_time(
    config: LogConfig, batch: bytearray | memoryview, header: BatchHeader
) -> tuple[bytearray | memoryview, BatchHeader]:
    """Clear a batch's LogAppendTime flag, which only the broker may set; reject it if records have no other time."""
    if config.log_append_time or header.max_timestamp == _NO_TIMESTAMP:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "producers must not set the timestamp type LogAppendTime")
    if isinstance(batch, memoryview) and batch.readonly:
        batch = bytearray(batch)
    return batch, clear_log_append_time(batch, header)


def _check_records(config: LogConfig, header: BatchHeader, body: bytes, now_ms: int | None) -> None:
    """Check each record: its key in a compacted topic, its timestamp if `now_ms` is set."""
    compacted = "compact" in config.cleanup_policy
    keyless: list[tuple[int, str]] = []
    untimely: list[tuple[int, str]] = []
    index = 0
    for found in find_records(header, body, _RECORDS_AT_ONCE):
        for record in found:
            if record.offset != index:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"record {index} has offset {record.offset} in its batch")
            if compacted and record.key is None:
                keyless.append((index, "Compacted topic cannot accept message without key"))
            elif now_ms is not None and _is_untimely(config, record, now_ms):
                untimely.append((index, f"Timestamp {record.timestamp} is out of range"))
            index += 1
    if untimely:
        raise InvalidRecordsError(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            sorted(keyless + untimely),
        )
    if keyless:
        shown = ", ".join(f"record {at}: {why}" for at, why in keyless[:_ERRORS_SHOWN])
        raise InvalidRecordsError(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(keyless)} record errors in total, and only showing "
            f"the first three errors at most: {shown}",
            keyless,
        )


def _is_untimely(config: LogConfig, record: FoundRecord, now_ms: int) -> bool:
    age_ms = now_ms - record.timestamp
    return record.timestamp != _NO_TIMESTAMP and (
        age_ms > config.message_timestamp_before_max_ms or -age_ms > config.message_timestamp_after_max_ms
    )


def _level(config: LogConfig, codec: Compression) -> int | None:
    """Return the topic's level for a codec (KIP-390)."""
    if codec is Compression.GZIP:
        return config.compression_gzip_level
    if codec is Compression.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec is Compression.ZSTD else None
