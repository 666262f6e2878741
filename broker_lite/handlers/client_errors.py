"""What clients hear in the place of errors that they do not know, or that are the broker's own affair."""

from __future__ import annotations

from broker_lite.protocol.errors import ErrorCode

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_THE_PRODUCER = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


def producer_error(error: ErrorCode, version: int, fenced_from: int) -> ErrorCode:
    """Give a transaction coordinator's error to a request's version; PRODUCER_FENCED is for those that know it."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def commit_error(error: ErrorCode) -> ErrorCode:
    """Give what the client hears when its offsets could not be written to `__consumer_offsets`."""
    if error in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error if error in _OF_THE_PRODUCER else ErrorCode.COORDINATOR_NOT_AVAILABLE
