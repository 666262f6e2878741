"""How records are sent: the ``kafka.*`` options of a producer that concern the records and not the connection."""

from __future__ import annotations

from dataclasses import dataclass

from broker_lite.protocol.compression import Compression

DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
"""The longest that brokers allow by default (``transaction.max.timeout.ms``): how long a decided transaction waits."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What a producer needs to know besides where the cluster is."""

    acks: int = -1
    """-1 for all in-sync replicas, 1 for the leader, 0 for no answer."""
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    batch_bytes: int = DEFAULT_BATCH_BYTES
    """A record batch is closed before it grows past this many bytes, uncompressed; a larger record is one by itself."""
    max_in_flight: int = 5
    """Produce requests on one connection that have no answer yet; 5 at most with idempotence."""
    idempotent: bool = True
    delivery_timeout_ms: int = 120_000
    """How long a record may take from its sending to its acknowledgement, with all retries."""
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
