"""Replaces errors that clients do not know, or that are internal to the broker."""

from __future__ import annotations

from sparkonce.kafka.protocol.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_THE_PRODUCER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
_NOT_LED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def producer_error(error: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Return a transaction coordinator's error for a request's version; PRODUCER_FENCED from `fenced_from` on."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the client's error when its offsets could not be written to `__consumer_offsets`."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error if error in _OF_THE_PRODUCER else ErrorCode.COORDINATOR_NOT_AVAILABLE


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the client's error when a coordinator's write was not replicated in time (as Kafka's coordinators)."""
    return ErrorCode.NOT_COORDINATOR if error in _NOT_LED else ErrorCode.COORDINATOR_NOT_AVAILABLE


def join_error(error: ErrorCode) -> ErrorCode:
    """Return JoinGroup's error when the group could not be written; Java's client gives up on all others."""
    return coordinator_error(error) if error is ErrorCode.KAFKA_STORAGE_ERROR else error


def sync_error(error: ErrorCode) -> ErrorCode:
    """Return SyncGroup's error: its clients do not know COORDINATOR_LOAD_IN_PROGRESS."""
    return ErrorCode.REBALANCE_IN_PROGRESS if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


def heartbeat_error(error: ErrorCode) -> ErrorCode:
    """Return Heartbeat's error: none while groups are loading, as sessions restart then."""
    return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


def fetch_error(error: ErrorCode) -> ErrorCode:
    """Return OffsetFetch's error: Java's client before 3.9 does not know COORDINATOR_NOT_AVAILABLE here."""
    return ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error
