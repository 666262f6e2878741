"""Which failures of a query are outages, and when it is started again after one.

A client waits for brokers for a minute or two, then its query ends. An ingestion starts it again, and again, with
growing pauses. What no outage explains ends the ingestion, as does an outage that outlasts all restarts.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkonce.connectors.kafka_sink.producer import DeliveryTimeoutError
from sparkonce.connectors.runtime.failures import is_behind, raised
from sparkonce.connectors.schema_registry.client import UnreachableRegistryError
from sparkonce.exactly_once.errors import CheckpointError
from sparkonce.kafka.client.client import KafkaUnreachableError
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.offset_store.errors import OffsetStoreError, StoreOutageError
from sparkonce.offset_store.store_hints import is_outage as store_is_out

RESTARTS = 10
"""How often a query is started again without a batch in between; the pauses add up to five minutes."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

_OUTAGES = (KafkaUnreachableError, DeliveryTimeoutError, StoreOutageError, UnreachableRegistryError)
_OF_STORES = (CheckpointError, OffsetStoreError)
_CODES = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.LISTENER_NOT_FOUND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""What brokers answer while others of their cluster are away."""
_ANSWERED = raised(f"{KafkaError.__module__}.{KafkaError.__name__}", rf"({'|'.join(code.name for code in _CODES)})\b")


def is_outage(error: BaseException) -> bool:
    """Return whether an error says that brokers, a schema registry, or the store of all tables do not answer now.

    The checkpoint is often in the same store.
    """
    if any(is_behind(kind, error) for kind in _OF_STORES) and store_is_out(str(error)):
        return True
    return any(is_behind(kind, error) for kind in _OUTAGES) or _ANSWERED.search(str(error)) is not None


@dataclass(frozen=True, slots=True)
class Restart:
    """A query's start after an outage."""

    number: int
    """1 for the first since the query has completed a batch."""
    pause_s: float
    due_s: float

    @classmethod
    def after(cls, before: Restart | None, now_s: float) -> Restart | None:
        """Return the next one after ``before``; None if there were enough."""
        found = cls.next(before, now_s)
        return None if found.number > RESTARTS else found

    @classmethod
    def next(cls, before: Restart | None, now_s: float) -> Restart:
        """Return the next one after ``before``, however many there were."""
        number = 1 if before is None else before.number + 1
        pause_s = min(FIRST_PAUSE_S * 2 ** min(number - 1, 16), LONGEST_PAUSE_S)
        return cls(number, pause_s, now_s + pause_s)


def is_due_again(restart: Restart | None, now_s: float) -> bool:
    """Return whether a query may be started: for the first time, or after the pause of its last restart."""
    return restart is None or now_s >= restart.due_s
