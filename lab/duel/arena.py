"""The target of two drivers: a table or a topic; its commits, and the judge's verdict.

A topic's decisions are read with librdkafka from the topic that stores them, as any program could.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from lab.bench.load import DEADLINE_S, LoadError, reader
from lab.verify.judge import Row, Verdict, judge, judge_copies, read_rows
from lab.verify.records import create_topic, read_delivered, read_topic
from sparkonce.exactly_once.transactions import Decision, decision_key
from sparkonce.offset_store.delta import DeltaOffsetStore
from sparkonce.offset_store.errors import StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.record import CommittedBatch

APP_ID = "duel"
DECISION_TOPIC = "sparkonce-decisions"
POLL_S = 0.02


class Arena(Protocol):
    """The target that both drivers write to."""

    def version(self) -> int:
        """Return the number of the last commit, below 0 if there is none."""

    def commits_after(self, version: int) -> list[CommittedBatch]:
        """Return the batches committed after a version."""

    def records(self) -> int:
        """Count the distinct records."""

    def judged(self, acknowledged: Sequence[tuple[bytes, bytes]]) -> tuple[Verdict, int]:
        """Compare the rows with what was sent; return also the number of rows."""


class TableArena:
    """A Delta table."""

    def __init__(
        self, bootstrap_servers: str, topic: str, table: str, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._table = table
        self._storage_options = dict(storage_options or {})

    def version(self) -> int:
        """See `Arena`."""
        try:
            return DeltaTable(self._table, storage_options=self._storage_options or None).version()
        except TableNotFoundError:
            return -1

    def commits_after(self, version: int) -> list[CommittedBatch]:
        """See `Arena`."""
        try:
            snapshot = DeltaOffsetStore(Location.parse(self._table), APP_ID, self._storage_options).snapshot()
        except StoreMissingError:
            return []
        return snapshot.history(max(snapshot.version - version, 0))

    def records(self) -> int:
        """See `Arena`."""
        return len({(row.record.partition, row.record.offset) for row in self._rows()})

    def judged(self, acknowledged: Sequence[tuple[bytes, bytes]]) -> tuple[Verdict, int]:
        """See `Arena`."""
        rows = self._rows()
        return judge(acknowledged, read_topic(self._servers, self._topic), rows), len(rows)

    def _rows(self) -> list[Row]:
        return read_rows(self._table, merged=False, storage_options=self._storage_options)


class TopicArena:
    """A topic, and the decisions about its transactions."""

    def __init__(self, bootstrap_servers: str, topic: str, output: str) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._output = output
        create_topic(bootstrap_servers, output)
        self._decisions: list[CommittedBatch] = []
        self._consumer = reader(bootstrap_servers, "read_committed")
        self._next: int | None = None
        """The next unread offset of the decisions; None before there are any."""

    def version(self) -> int:
        """See `Arena`."""
        self._read_on()
        return self._decisions[-1].version if self._decisions else -1

    def commits_after(self, version: int) -> list[CommittedBatch]:
        """See `Arena`."""
        self._read_on()
        return [decided for decided in self._decisions if decided.version > version]

    def records(self) -> int:
        """See `Arena`."""
        return len({each.key for each in read_delivered(self._servers, self._output)})

    def judged(self, acknowledged: Sequence[tuple[bytes, bytes]]) -> tuple[Verdict, int]:
        """See `Arena`."""
        copies = read_delivered(self._servers, self._output)
        return judge_copies(acknowledged, read_topic(self._servers, self._topic), copies), len(copies)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _read_on(self) -> None:
        """Read new decisions; the topic may not exist yet.

        Raises:
            LoadError: if that takes too long.
        """
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(DECISION_TOPIC, 0), timeout=DEADLINE_S)
        except KafkaException:
            return
        if self._next is None:
            self._next = 0
            self._consumer.assign([TopicPartition(DECISION_TOPIC, 0, 0)])
        deadline = time.monotonic() + DEADLINE_S
        while self._next < end:
            if time.monotonic() > deadline:
                raise LoadError(f"reading {DECISION_TOPIC}: still at {self._next} of {end} after {DEADLINE_S:g} s")
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            if message.error() is None:
                self._take(message)
                self._next = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:  # after markers, which are no messages
                self._next = message.offset()

    def _take(self, message: Message) -> None:
        if message.key() == decision_key(APP_ID):
            decision = Decision.from_json(message.value().decode())
            if not decision.undone:
                self._decisions.append(decision.as_committed())
