"""What clients hear in the place of errors that they do not know, or that are the broker's own affair."""

from __future__ import annotations

from sparkonce.broker_lite.protocol.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_THE_PRODUCER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
_NOT_LED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def producer_error(error: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Return a transaction coordinator's error for a request's version; PRODUCER_FENCED is for those that know it."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return what the client hears when its offsets could not be written to `__consumer_offsets`."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error if error in _OF_THE_PRODUCER else ErrorCode.COORDINATOR_NOT_AVAILABLE


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return what a client hears when the coordinator's partition did not become safe (as Kafka's coordinators)."""
    return ErrorCode.NOT_COORDINATOR if error in _NOT_LED else ErrorCode.COORDINATOR_NOT_AVAILABLE


def join_error(error: ErrorCode) -> ErrorCode:
    """Return what JoinGroup's client hears when the group could not be written: Java's gives up on what is left."""
    return coordinator_error(error) if error is ErrorCode.KAFKA_STORAGE_ERROR else error


def sync_error(error: ErrorCode) -> ErrorCode:
    """Return what SyncGroup's client hears: that the groups are being read back is none of the errors it knows."""
    return ErrorCode.REBALANCE_IN_PROGRESS if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


def heartbeat_error(error: ErrorCode) -> ErrorCode:
    """Return what Heartbeat's client hears: nothing while groups are being read back, as sessions begin anew then."""
    return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


def fetch_error(error: ErrorCode) -> ErrorCode:
    """Return what OffsetFetch's client hears: Java's before 3.9 knows of COORDINATOR_NOT_AVAILABLE elsewhere only."""
    return ErrorCode.NOT_COORDINATOR if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error
