"""Offsets that producers have committed within transactions that are still open.

Theory of operation: such a commit is in `__consumer_offsets` already, in a transactional batch, but nobody sees it
before the marker that ends the transaction there. A commit marker brings it into effect, unless a commit of the same
key that was written later took effect before; an abort marker drops it. While it waits, readers that ask for stable
offsets are told to come back (KIP-447). The rules are those of Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker_lite.coordinators.offsets import OffsetKey, decode_key
from broker_lite.protocol.records import Record


class PendingOffsets:
    """The records that wait, by producer id."""

    def __init__(self) -> None:
        # A record that may no longer take effect is None; its key is unstable all the same.
        self._by_producer: dict[int, dict[OffsetKey, Record | None]] = {}
        self._producers: dict[OffsetKey, set[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def add(self, producer_id: int, records: Iterable[Record]) -> None:
        """Take in the records of a transactional batch, with the offsets that they have got."""
        waiting = self._by_producer.setdefault(producer_id, {})
        for record in records:
            key = decode_key(record.key)
            if key is not None:
                waiting[key] = record
                self._producers.setdefault(key, set()).add(producer_id)

    def is_pending(self, key: OffsetKey) -> bool:
        """Whether a transaction that is still open has an offset for this key."""
        return key in self._producers

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Give the keys of a group that wait."""
        return [key for key in self._producers if key.group_id == group_id]

    def written(self, records: Iterable[Record]) -> None:
        """Note records that took effect by themselves: what waits for the same keys was written before, and loses.

        A removal drops what waits altogether.
        """
        for record in records:
            key = decode_key(record.key) if self._by_producer else None
            if key is None:
                continue
            for producer_id in tuple(self._producers.get(key, ())):
                if record.value is None:
                    self._drop(producer_id, key)
                else:
                    self._by_producer[producer_id][key] = None

    def end(self, producer_id: int, committed: bool) -> Iterator[Record]:
        """End a producer's transaction; gives the records that take effect now."""
        waiting = self._by_producer.pop(producer_id, {})
        for key in waiting:
            self._producers[key].discard(producer_id)
            if not self._producers[key]:
                del self._producers[key]
        return iter([self._overtake(key, each) for key, each in waiting.items() if each is not None and committed])

    def _overtake(self, key: OffsetKey, record: Record) -> Record:
        """Let a record take effect before older ones of the same key that still wait."""
        for producer_id in self._producers.get(key, ()):
            other = self._by_producer[producer_id][key]
            if other is not None and other.offset < record.offset:
                self._by_producer[producer_id][key] = None
        return record

    def _drop(self, producer_id: int, key: OffsetKey) -> None:
        del self._by_producer[producer_id][key]
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]
        self._producers[key].discard(producer_id)
        if not self._producers[key]:
            del self._producers[key]
