"""Offsets that producers have committed within transactions that are still open.

Theory of operation: such a commit is in `__consumer_offsets` already, in a transactional batch, but is not visible
before the marker that ends the transaction there. A commit marker brings it into effect, unless a later commit of the
same key took effect before; an abort marker drops it. Until then, readers that require stable offsets have to retry
(KIP-447). A marker applies to its own partition of `__consumer_offsets` only: others may hold an older one, or none
yet. The rules are those of Kafka's OffsetMetadataManager, of which there is one for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparkonce.broker_lite.coordinators.offsets import OffsetKey, decode_key
from sparkonce.broker_lite.protocol.records import Record


class _Open(NamedTuple):
    """A producer's transaction in one partition of `__consumer_offsets`."""

    partition: int
    producer_id: int


class PendingOffsets:
    """The records that wait, by partition and producer id."""

    def __init__(self) -> None:
        # A record that may no longer take effect is None; its key is unstable all the same.
        self._waiting: dict[_Open, dict[OffsetKey, Record | None]] = {}
        self._open: dict[OffsetKey, set[_Open]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, partition: int, producer_id: int, records: Iterable[Record]) -> None:
        """Add the records of a transactional batch of that partition, with the offsets that they have got."""
        transaction = _Open(partition, producer_id)
        for record in records:
            key = decode_key(record.key)
            if key is not None:
                self._waiting.setdefault(transaction, {})[key] = record
                self._open.setdefault(key, set()).add(transaction)

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether a transaction that is still open has an offset for this key."""
        return key in self._open

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Return the keys of a group that wait."""
        return [key for key in self._open if key.group_id == group_id]

    def keys_of_topic(self, topic: str) -> list[OffsetKey]:
        """Return the keys of a topic that wait."""
        return [key for key in self._open if key.topic == topic]

    def written(self, partition: int, records: Iterable[Record]) -> None:
        """Note non-transactional records: pending ones of the same keys were written before, and have no effect.

        A removal drops pending ones altogether.
        """
        for record in records:
            key = decode_key(record.key) if self._waiting else None
            if key is None:
                continue
            for transaction in [each for each in self._open.get(key, ()) if each.partition == partition]:
                if record.value is None:
                    self._drop(transaction, key)
                else:
                    self._waiting[transaction][key] = None

    def drop(self, partition: int) -> None:
        """Forget one partition: another broker leads it."""
        for transaction in [each for each in self._waiting if each.partition == partition]:
            for key in self._waiting.pop(transaction):
                self._forget(transaction, key)

    def end(self, partition: int, producer_id: int, committed: bool) -> Iterator[Record]:
        """End a producer's transaction in one partition; returns the records that take effect now."""
        transaction = _Open(partition, producer_id)
        waiting = self._waiting.pop(transaction, {})
        for key in waiting:
            self._forget(transaction, key)
        effective = [(key, each) for key, each in waiting.items() if each is not None and committed]
        return iter([self._overtake(partition, key, each) for key, each in effective])

    def _overtake(self, partition: int, key: OffsetKey, record: Record) -> Record:
        """Let a record take effect before older ones of the same key that still wait."""
        for transaction in self._open.get(key, ()):
            other = self._waiting[transaction][key]
            if transaction.partition == partition and other is not None and other.offset < record.offset:
                self._waiting[transaction][key] = None
        return record

    def _drop(self, transaction: _Open, key: OffsetKey) -> None:
        del self._waiting[transaction][key]
        if not self._waiting[transaction]:
            del self._waiting[transaction]
        self._forget(transaction, key)

    def _forget(self, transaction: _Open, key: OffsetKey) -> None:
        self._open[key].discard(transaction)
        if not self._open[key]:
            del self._open[key]
