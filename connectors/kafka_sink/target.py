"""Kafka topics as the target of a sink.

Exactly once: tasks leave their transactions open, and the driver decides about all of them at once (see
`exactly_once.transactions`). At least once and at most once: tasks send without transactions, so rows are visible at
once, and offsets are committed after them or before.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from sparkonce.connectors.kafka_sink.decisions import DecisionTopicError
from sparkonce.connectors.kafka_sink.driver import DRIVER_TIMEOUT_MS, Driver, Scope, shared_driver
from sparkonce.connectors.kafka_sink.result import TopicResult, VisibleRows
from sparkonce.connectors.kafka_sink.spool import Spool, SpoolWriter
from sparkonce.connectors.kafka_sink.tasks import Layout, PlainWriter, Sending, TransactionWriter, process_name
from sparkonce.connectors.kafka_sink.transactions import ProducerIdentity, TransactionError
from sparkonce.connectors.sinks.target import Routing, TargetPlan, Task, TaskWriter, WrappedPlan
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.commit import Delivery, DeliveryPlan, look
from sparkonce.exactly_once.decision import Stored
from sparkonce.exactly_once.guarantee import ORDERS, Guarantee
from sparkonce.exactly_once.refusals import StoreName
from sparkonce.kafka.client.client import shared_client
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.offset_store import GROUP, OffsetStore, open_store
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.record import BatchRecord

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KafkaPlan(WrappedPlan):
    """What was decided about a batch, and under which transactional ids its tasks write."""

    plan: DeliveryPlan
    identity: ProducerIdentity | None = None
    """The identity that the driver claimed for this batch; None without transactions."""
    prefix: str = ""
    """The prefix of its tasks' transactional ids."""


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """The output topics of one query; see `connectors.sinks.target.Target`."""

    client: ClientSettings
    producer: ProducerSettings
    layouts: tuple[Layout, ...]
    guarantee: Guarantee
    app_id: str
    offset_store: str
    """``group:<id>``; without transactions ``delta:<path>`` too."""
    decision_topic: str
    routing: Routing | None = None
    spool: Spool | None = None
    """Where rows are spooled that the driver sends in one transaction; None: each task has its own transaction."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """See `Target`."""
        named = [layout.topic or "the topics that rows name" for layout in self.layouts]
        return f"{' and '.join(named)} (offsets in {self.offset_store})"

    @property
    def offsets_first(self) -> bool:
        """See `Target`."""
        return self.guarantee is Guarantee.AT_MOST_ONCE

    def stored(self, batch: Batch) -> Stored:
        """See `Target.stored`."""
        self._client_for(batch)
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return look(self._offsets().snapshot(), batch)
        driver = self._driver()
        driver.log.ensure()
        driver.group.check_vacant()
        driver.settle_pending()
        return look(TopicResult(driver, None, self.producer).snapshot(), batch)

    def records(self, app_id: str) -> Iterable[BatchRecord]:
        """See `Target.records`: of the last decision, which is of exactly-once."""
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return ()
        last = TopicResult(self._driver(), None, self.producer).snapshot().last
        return () if last is None or last.record.app_id != app_id else (last.record,)

    def begin(self, batch: Batch) -> KafkaPlan:
        """See `Target.begin`. Transactions of an earlier run are finished, undone or aborted first.

        Raises:
            DeliveryError, OffsetStoreError, TransactionError, DecisionTopicError: if the batch must not be written.
        """
        self._client_for(batch)
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            if self.offset_store.startswith(GROUP):
                self._driver().settle_earlier()
            return KafkaPlan(self._delivery(None).begin(batch))
        driver = self._driver()
        longest_ms = self.producer.transaction_timeout_ms
        if self.spool is None:
            identity = driver.begin(batch.record, min(DRIVER_TIMEOUT_MS, longest_ms), longest_ms)
        else:
            identity = driver.begin(batch.record, longest_ms)
            self.spool.clear()
        plan = self._delivery(identity).begin(batch)
        return KafkaPlan(plan, identity, f"{driver.scope.prefix}{process_name()}-{_short(batch.record.query_id)}/")

    def open(self, plan: TargetPlan, task: Task) -> TaskWriter | None:
        """See `Target.open`: with at-most-once, a retried task writes nothing."""
        own = cast(KafkaPlan, plan)
        retried = self.guarantee is Guarantee.AT_MOST_ONCE and task.attempt_number > 0
        if not own.writes_rows or retried:
            return None
        sending = Sending(self.client, self.producer, self.layouts, self.routing, self.app_id)
        if self.guarantee is not Guarantee.EXACTLY_ONCE:
            return PlainWriter(sending, task)
        if self.spool is not None:
            return SpoolWriter(sending, task, self.spool)
        assert own.identity is not None, "exactly-once claims the application for each batch"
        return TransactionWriter(sending, task, own.identity, own.prefix, own.plan.version)

    def finish(self, batch: Batch, plan: TargetPlan, parts: Sequence[object]) -> None:
        """See `Target.finish`. Raises DeliveryError, OffsetStoreError or TransactionError to refuse the batch."""
        own = cast(KafkaPlan, plan)
        self._client_for(batch, is_begun=True)
        # Without transactions the rows are there already, so there is nothing to commit but the offsets.
        self._delivery(own.identity).finish(batch, own.plan, parts if own.identity is not None else ())
        if own.identity is not None and own.writes_rows:
            # What was decided is committed by now, and no other process decides about this query's transactions.
            self._tidy(own, own.identity, lambda: self._driver().abort_but((), own.prefix, own.identity))

    def abort(self, batch: Batch, plan: TargetPlan, parts: Sequence[object], *, every_task_answered: bool) -> None:  # noqa: ARG002
        """See `Target.abort`: transactions are aborted, unless the decision about them has landed."""
        own = cast(KafkaPlan, plan)
        if own.identity is None or not own.writes_rows:
            return
        self._client_for(batch, is_begun=True)
        driver = self._driver()
        try:
            identity = own.identity
            if driver.is_current(identity):
                identity = driver.claim()  # this resolves what the driver had in progress, by commit or abort
            self._tidy(own, identity, lambda: driver.abort_open(own.prefix))
        except Exception as error:
            # Raising here would hide why the batch failed: Spark would only report "Writing job failed".
            _log.warning(
                "kafka_once: batch %d: its transactions stay open until they time out, or the query is started again: "
                "%s",
                own.batch_id,
                error,
            )

    def _tidy(self, plan: KafkaPlan, identity: ProducerIdentity, abort: Callable[[], list[str]]) -> None:
        """Abort rows of tasks whose messages Spark ignored: they failed, or ran twice."""
        try:
            if self.spool is not None and self._driver().is_current(identity):  # else it is another driver's
                self.spool.clear()
            aborted = abort()
        except (TransactionError, DecisionTopicError, OSError) as error:
            _log.warning("kafka_once: batch %d: could not look for unused transactions: %s", plan.batch_id, error)
            return
        if aborted:
            _log.info("kafka_once: batch %d: aborted %d unused transactions", plan.batch_id, len(aborted))

    def _client_for(self, batch: Batch, *, is_begun: bool = False) -> None:
        """Have this process wait through an outage, if the query has reached the brokers before, in whichever."""
        shared_client(self.client, reached=is_begun or batch.record.batch_id > 0)

    def _driver(self) -> Driver:
        group_id = self.offset_store.removeprefix(GROUP)
        return shared_driver(Scope(self.client, self.app_id, self.decision_topic, group_id))

    def _delivery(self, identity: ProducerIdentity | None) -> Delivery:
        order = ORDERS[self.guarantee]
        if identity is None:
            return Delivery(VisibleRows(), order, self._offsets())
        name = StoreName(f"the consumer group {self.offset_store.removeprefix(GROUP)}", self.offset_store)
        topics = tuple(layout.topic for layout in self.layouts if layout.topic is not None)
        return Delivery(
            TopicResult(self._driver(), identity, self.producer, self.spool, topics), order, store_name=name
        )

    def _offsets(self) -> OffsetStore:
        return open_store(
            self.offset_store,
            self.app_id,
            self.storage_options,
            groups=lambda group_id: KafkaGroupOffsets(shared_client(self.client), group_id),
            create_missing=True,
        )


def _short(query_id: str) -> str:
    """Return an id part that separates queries of one process: an abort must not end another query's transactions."""
    return f"{zlib.crc32(query_id.encode()):08x}"
