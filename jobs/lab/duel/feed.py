"""The producer that keeps the topic filling while the two drivers compete."""

from __future__ import annotations

import threading
from itertools import count

from confluent_kafka import KafkaError, Message, Producer

from sparkonce.jobs.lab.verify.records import RecordsError, make

RECORDS_AT_ONCE = 8
EVERY_S = 0.1
LIMIT_S = 60.0


class Feed(threading.Thread):
    """Sends records, no two alike, to all partitions of a topic until it is ended."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__(name="feed", daemon=True)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        self._over = threading.Event()
        self._acknowledged: list[tuple[bytes, bytes]] = []
        self._failures: list[str] = []

    def run(self) -> None:
        """Send."""
        for first in count(step=RECORDS_AT_ONCE):
            for partition, key, value in make(range(first, first + RECORDS_AT_ONCE)):
                self._producer.produce(self._topic, value, key, partition, on_delivery=self._delivered)
            self._producer.poll(0)
            if self._over.wait(EVERY_S):
                return

    def end(self) -> list[tuple[bytes, bytes]]:
        """Stop sending; returns key and value of each record.

        Raises:
            RecordsError: if not all were acknowledged.
        """
        self._over.set()
        self.join()
        unsent = self._producer.flush(LIMIT_S)
        if unsent or self._failures:
            raise RecordsError(f"{unsent} records were not acknowledged; failures: {self._failures[:3]}")
        return self._acknowledged

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged.append((message.key(), message.value()))
        else:
            self._failures.append(error.str())
