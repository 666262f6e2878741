"""An application to which one thing after another happens, and what its readers must see afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkonce.connectors.kafka_sink.decisions import DecisionLog, DecisionTopicError
from sparkonce.connectors.kafka_sink.transactions import State, TransactionClient, TransactionError
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.transactions import Fate
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.offset_store.errors import OffsetStoreError
from tests.unit.kafka_sink.pipeline import (
    INPUT_PARTITIONS,
    Application,
    Incarnation,
    check_nothing_open,
    committed_rows,
    group_offsets,
    rows_of_range,
)

EXPECTED = (DeliveryError, OffsetStoreError, TransactionError, DecisionTopicError, KafkaUnreachableError)
"""What `Target` says it raises; anything else is a mistake."""
SIZE = 2
"""How many records of each partition a batch has."""


@dataclass(slots=True)
class Course:
    """Where an application stands while one thing after another happens to it.

    Batches are numbered from the application's beginning; each query counts its own from 0.
    """

    application: Application
    observer: Client
    done: int = 0
    """How many batches have been written for sure."""
    query_id: str = "query"
    first: int = 0
    """How many were, when this query began."""
    still: int = 0
    """How many batches of this query moved nothing."""
    late: list[str] = field(default_factory=list)
    """The rows of all batches that moved nothing."""
    empty: set[int] = field(default_factory=set)
    """The batches that have no rows, though they move."""
    _rivals: int = 0

    def start(self) -> Incarnation:
        return self.application.start(self.query_id)

    def batch(self, incarnation: Incarnation, number: int) -> Batch:
        """Return the batch that follows the first ``number`` ones."""
        batch_id = number - self.first + self.still
        return self.application.batch(incarnation, batch_id, SIZE * number, SIZE * number + SIZE)

    def run(self, incarnation: Incarnation, number: int) -> None:
        self.application.run(incarnation, self.batch(incarnation, number), self.rows(number))

    def rows(self, number: int) -> list[str]:
        return [] if number in self.empty else rows_of_range(SIZE * number, SIZE * number + SIZE)

    def run_still(self, incarnation: Incarnation) -> None:
        """Write a batch that a watermark runs: it has rows, and moves nothing."""
        batch_id = self.done - self.first + self.still
        stands = self.done * SIZE
        batch = self.application.batch(incarnation, batch_id, stands, stands)
        self.application.run(incarnation, batch, self.rows_of_still())

    def rows_of_still(self) -> list[str]:
        return [f"late-{self.query_id}-{self.still}-{number}" for number in range(3)]

    def begin_only(self) -> None:
        """Another driver of the same checkpoint begins the next batch, and gets no further than its tasks."""
        rival = self.start()
        self.application.write(rival, self.batch(rival, self.done), self.rows(self.done))

    def another_driver(self, batches: int) -> None:
        """Another driver of the same checkpoint writes the next batches."""
        rival = self.start()
        for number in range(batches):
            self.run(rival, self.done + number)

    def another_checkpoint(self) -> None:
        """Another driver, whose checkpoint is new: it begins where the group stands."""
        self._rivals += 1
        start = group_offsets(self.observer, self.application.name).get(0, 0)
        rival = self.application.start(f"beside-{self._rivals}")
        self.application.run(rival, self.application.batch(rival, 0, start, start + SIZE), self.rows(start // SIZE))

    def time_out(self) -> None:
        """End what tasks have left open as a time-out would: all of it, and not once a part of it is committed."""
        transactions, application = TransactionClient(self.observer), self.application
        log = DecisionLog(self.observer, application.decision_topic, application.name)
        driver_id = application.scope.driver_id
        is_deciding = driver_id in transactions.open_transactions(driver_id, (State.ONGOING,))
        unfinished = None if is_deciding else log.read().unfinished
        if unfinished is not None:
            fates = application.driver(self.observer).fates(unfinished.transactions)
            if Fate.COMMITTED in fates.values():
                return
        for name in transactions.open_transactions(application.scope.prefix, (State.ONGOING,)):
            if name != driver_id:
                transactions.init_producer_id(name, 60_000)

    def begin_anew(self) -> None:
        """Lose the checkpoint; the next one begins where the group stands."""
        stands = group_offsets(self.observer, self.application.name)
        assert len(set(stands.values())) <= 1, "a batch moves all partitions or none"
        self.first = self.done = stands.get(0, 0) // SIZE
        self.still = 0
        self._rivals += 1
        self.query_id = f"query-{self._rivals}"

    def recover(self) -> None:
        """Start again with the checkpoint, and see that everything is as if nothing had happened."""
        last = self.start()
        self.run(last, self.done)
        self.run(last, self.done + 1)
        self.done += 2
        self.check()

    def recover_still(self) -> None:
        """As `recover`, for a batch that moves nothing."""
        last = self.start()
        self.run_still(last)
        self.late += self.rows_of_still()
        self.still += 1
        self.run(last, self.done)
        self.done += 1
        self.check()

    def check(self) -> None:
        end = SIZE * self.done
        if self.application.guarantee is Guarantee.EXACTLY_ONCE:
            check_nothing_open(self.observer, self.application)
        seen = committed_rows(self.observer, self.application.topic)
        expected = sorted([row for number in range(self.done) for row in self.rows(number)] + self.late)
        guarantee = self.application.guarantee
        if guarantee is Guarantee.EXACTLY_ONCE:
            assert seen == expected
        elif guarantee is Guarantee.AT_LEAST_ONCE:
            assert set(seen) == set(expected)
        else:
            assert len(seen) == len(set(seen))
            assert set(seen) <= set(expected)
        assert group_offsets(self.observer, self.application.name) == dict.fromkeys(range(INPUT_PARTITIONS), end)
