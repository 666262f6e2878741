"""A producer that numbers its records and reports in JSON its sends and the broker's acknowledgements.

    sparkonce verifiable-producer --bootstrap-servers localhost:9092 --topic t --max-messages 1000 > producer.jsonl

Theory of operation: in the spirit of Apache Kafka's VerifiableProducer (org.apache.kafka.tools), with the same names,
on kafka-python. An event precedes each record's send; so after a kill of this process, or of the broker,
every record is known to be unsent, acknowledged, failed, or of unknown outcome. Transactions likewise:
an event precedes each commit. `lab.history` checks the output; docs/internals/histories.md lists the events.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, Queue
from typing import Any

from kafka import KafkaProducer
from kafka.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.net import KafkaNetClient

from sparkonce.jobs.shared.arguments import positive
from sparkonce.jobs.verifiable.client import (
    WAIT_S,
    EventWriter,
    Program,
    Stop,
    VerifiableClient,
    VerifiableError,
    add_common_arguments,
    client_settings,
)

FIRST_ANSWER_S = 60.0
"""The time limit for a broker's first response; later only delivery.timeout.ms limits an outage. Kafka's own tools wait
equally long for metadata (max.block.ms)."""

MAX_UNACKNOWLEDGED = 100_000
"""How many records may be under way; the buffer of kafka-python has no bound."""

_NOT_WRITTEN = (InvalidTopicError, MessageSizeTooLargeError)
"""Responses after which a record is certainly not in the log; after any other an earlier attempt may have succeeded."""


class _NetClient(KafkaNetClient):  # type: ignore[misc]
    """Says that a broker is not ready: kafka-python 3.0 loses the request of a transaction where this raises."""

    def await_ready(self, node_id: Any, timeout_ms: int = 30_000) -> bool:
        try:
            return bool(super().await_ready(node_id, timeout_ms))
        except KafkaError:
            return False


class VerifiableProducer(VerifiableClient):
    """One run of the producer."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, Any], events: EventWriter, stop: Stop) -> None:
        super().__init__(options, settings, events, stop)
        self._producer: Any = None
        # No SimpleQueue: before Python 3.13 its `get` waits for ever if its time is over when a signal was handled.
        self._results: Queue[tuple[dict[str, Any], Any]] = Queue()
        """Records with their metadata, or the error, as kafka-python's thread learns them."""
        self._unacknowledged = 0
        self._sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._first_error = ""
        self._transaction: int | None = None
        self._in_transaction = 0
        self._failed_in_transaction = False
        self._transactions = itertools.count()
        self._begun_at = time.monotonic()
        self._give_up_at = self._begun_at + FIRST_ANSWER_S

    @property
    def _is_late(self) -> bool:
        return super()._is_late or self._is_unreachable

    @property
    def _is_unreachable(self) -> bool:
        return self.watch.is_down and time.monotonic() > self._give_up_at

    def run(self) -> bool:
        """Produce until the end; return whether all records were acknowledged.

        Raises:
            VerifiableError, KafkaError: if it cannot continue to send.
        """
        try:
            super().run()
        finally:
            self._events.write(
                "tool_data",
                sent=self._sent,
                acked=self._acknowledged,
                target_throughput=self._options.throughput,
                avg_throughput=round(self._acknowledged / (time.monotonic() - self._begun_at), 3),
            )
        good = self._failed == 0 and self._acknowledged == self._sent
        if self._is_unreachable:
            raise VerifiableError(f"no broker has answered within {FIRST_ANSWER_S:.0f} s")
        if self._is_late and not (good and self._sent == self._options.max_messages):
            raise VerifiableError(
                f"not done within {self._options.timeout} s: {self._acknowledged} of {self._sent} records that were "
                "sent were acknowledged"
            )
        if not good:
            because = f"; the first error: {self._first_error}" if self._first_error else ""
            told = f"error: {self._acknowledged} of {self._sent} records that were sent were acknowledged{because}"
            print(told, file=sys.stderr, flush=True)
        return good

    def _work(self) -> None:
        transactional = "transactional_id" in self._settings
        if transactional:
            if not self._is_connected():
                raise VerifiableError("no broker has answered in time")
            self._call(self._producer.init_transactions)
            self._note_answer()
        numbers = itertools.count() if self._options.max_messages < 0 else range(self._options.max_messages)
        for number in numbers:
            self._keep_pace(number)
            if self._stop.requested or self._is_late:
                break
            if transactional and self._transaction is None:
                self._begin_transaction()
            self._check_not_fatal()
            self._send(number)
            if self._in_transaction == self._options.transaction_size:
                self._end_transaction()
        if self._transaction is not None:
            # An incomplete transaction is aborted. A last one that is merely smaller is committed.
            self._end_transaction(abort=self._stop.requested or self._is_late)

    def _close(self) -> None:
        self._flush()
        if self._producer is not None:
            self._producer.close(timeout=WAIT_S)

    def _check_not_fatal(self) -> None:
        manager = getattr(self._producer, "_transaction_manager", None)
        if manager is not None and manager.has_fatal_error():
            raise manager.last_error

    def _send(self, number: int) -> None:
        prefix, keys = self._options.value_prefix, self._options.repeating_keys
        value = str(number) if prefix is None else f"{prefix}.{number}"
        key = None if keys is None else str(number % keys)
        record = {"key": key, "value": value, "topic": self._options.topic}
        if self._transaction is not None:
            record["transaction"] = self._transaction
            self._in_transaction += 1
        self._events.write("producer_send_started", **record)
        self._sent += 1
        try:
            if not self._is_connected():
                raise KafkaTimeoutError("no broker has answered before the record's time was over")
            future = self._producer.send(self._options.topic, value.encode(), key.encode() if key else None)
        except (KafkaError, ValueError) as error:  # ValueError: no name of a topic
            self._note_error(record, error, written_perhaps=False)
            return
        self._unacknowledged += 1
        future.add_both(lambda result: self._results.put((record, result)))
        self._take_results(0)
        while self._unacknowledged >= MAX_UNACKNOWLEDGED:
            self._take_results(WAIT_S)
            self._purge_if(self._is_late)

    def _is_connected(self) -> bool:
        """Connect, before the first record; a record waits for that as long as for its acknowledgement."""
        if self._producer is None:
            delivery_s = self._settings["delivery_timeout_ms"] / 1000
            until = min(self._deadline, self._give_up_at, time.monotonic() + delivery_s)
            self._producer = self._connect(KafkaProducer, until)
        return self._producer is not None

    def _take_results(self, wait_s: float) -> None:
        """Report what is known of records by now; wait for the first result."""
        try:
            while True:
                record, result = self._results.get(timeout=wait_s) if wait_s else self._results.get_nowait()
                wait_s = 0
                self._unacknowledged -= 1
                if isinstance(result, BaseException):
                    self._note_error(record, result, written_perhaps=not isinstance(result, _NOT_WRITTEN))
                else:
                    self._acknowledged += 1
                    self._note_answer()
                    place = {"offset": max(result.offset, -1), "partition": result.partition}
                    self._events.write("producer_send_success", **record, **place)
        except Empty:
            self.watch.look()

    def _note_answer(self) -> None:
        self._give_up_at = math.inf
        self.watch.answered()

    def _note_error(self, record: dict[str, Any], error: BaseException, written_perhaps: bool) -> None:
        self._failed += 1
        self._failed_in_transaction = self._transaction is not None
        self._first_error = self._first_error or str(error)
        outcome = "unknown" if written_perhaps else "failed"
        self._events.write(
            "producer_send_error", **record, outcome=outcome, exception=type(error).__name__, message=str(error)
        )

    def _keep_pace(self, number: int) -> None:
        if self._options.throughput > 0:
            due = self._begun_at + number / self._options.throughput
            while not self._stop.requested and not self._is_late and (left := due - time.monotonic()) > 0:
                self._take_results(min(left, WAIT_S))

    def _begin_transaction(self) -> None:
        self._transaction = next(self._transactions)
        self._in_transaction = 0
        self._failed_in_transaction = False
        self._events.write("transaction_begin", transaction=self._transaction)
        self._producer.begin_transaction()

    def _end_transaction(self, abort: bool = False) -> None:
        assert self._transaction is not None
        every = self._options.abort_every
        abort = abort or (every is not None and (self._transaction + 1) % every == 0)
        self._flush()
        if abort or self._failed_in_transaction:
            self._abort()
        else:
            self._commit()
        self._transaction = None

    def _commit(self) -> None:
        self._events.write("transaction_commit_started", transaction=self._transaction)
        try:
            self._call(self._producer.commit_transaction)
        except KafkaError as error:
            if self._producer._transaction_manager.has_abortable_error():  # it has not asked for the commit yet
                self._failed += 1
                self._first_error = self._first_error or str(error)
                self._note_end("transaction_commit", "failed", error)
                self._abort()
                return
            self._note_end("transaction_commit", "unknown", error)
            raise
        self._note_end("transaction_commit", "success")

    def _abort(self) -> None:
        try:
            self._call(self._producer.abort_transaction)
        except KafkaError as error:
            self._note_end("transaction_abort", "unknown", error)
            raise
        self._note_end("transaction_abort", "success")

    def _note_end(self, name: str, outcome: str, error: KafkaError | None = None) -> None:
        said = {} if error is None else {"exception": type(error).__name__, "message": str(error)}
        self._events.write(name, transaction=self._transaction, outcome=outcome, **said)

    def _call(self, call: Callable[[], None]) -> None:
        """Make a call of the transaction API, which kafka-python repeats, without a limit, until its outcome is known.

        Raises:
            KafkaError: if it fails, or its outcome is still open at the deadline.
        """
        deadline = min(time.monotonic() + self._options.transaction_deadline, self._deadline)
        outcome: Queue[KafkaError | None] = Queue()

        def make() -> None:
            while True:
                try:
                    call()
                except KafkaTimeoutError:  # of max.block.ms: called again, it goes on waiting
                    continue
                except KafkaError as error:
                    return outcome.put(error)
                return outcome.put(None)

        threading.Thread(target=make, daemon=True).start()
        while True:
            try:
                error = outcome.get(timeout=WAIT_S)
            except Empty:
                self.watch.look()
                if self._stop.at_once or self._is_unreachable or time.monotonic() > deadline:
                    raise KafkaTimeoutError(f"{call.__name__} has not ended") from None
                continue
            if error is not None:
                raise error
            return

    def _flush(self) -> None:
        """Wait until every record has its result; limited by delivery.timeout.ms and --timeout."""
        while self._unacknowledged:
            self._take_results(WAIT_S)
            self._purge_if(self._stop.at_once or self._is_late)

    def _purge_if(self, given_up: bool) -> None:
        """End kafka-python's thread, which fails what is outstanding; its `close` would wait for that first."""
        if given_up:
            self._producer._sender.force_close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Send numbered records and print an event, a line of JSON, for everything that becomes known about them. "
        "SIGTERM and SIGINT end it in order: what is outstanding is waited for, an open transaction aborted; a second "
        f"signal gives that up. It fails if no broker can be reached for {FIRST_ANSWER_S:.0f} s at the start."
    )
    parser.epilog = (
        "exit status: 0 all records acknowledged, 1 not all, 2 usage. In a checkout, python -m lab.history judges the "
        "events."
    )
    add_common_arguments(parser)
    parser.add_argument(
        "--throughput", type=float, default=-1, metavar="N", help="records a second (default: -1, as many as it can)"
    )
    parser.add_argument("--acks", choices=["0", "1", "-1", "all"], help="acknowledgements to wait for (default: all)")
    parser.add_argument(
        "--value-prefix", metavar="TEXT", help="values are TEXT.0, TEXT.1, …: each producer needs its own in one topic"
    )
    parser.add_argument("--repeating-keys", type=positive, metavar="N", help="keys are 0 to N-1, over and over")
    parser.add_argument(
        "--enable-idempotence", choices=["true", "false"], help="default: true, unless acks is 0 or 1, as in Java"
    )
    parser.add_argument("--transactional-id", metavar="ID", help="send in transactions")
    parser.add_argument(
        "--transaction-size", type=positive, default=10, metavar="N", help="records in one (default: 10)"
    )
    parser.add_argument("--abort-every", type=positive, metavar="N", help="abort every Nth transaction on purpose")
    parser.add_argument(
        "--transaction-deadline",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="how long a commit or abort is repeated before its outcome counts as unknown (default: 120)",
    )


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "acks": options.acks,
        "enable.idempotence": options.enable_idempotence,
        "transactional.id": options.transactional_id,
    }
    settings = client_settings(options, "verifiable-producer", given, KafkaProducer.DEFAULT_CONFIG)
    if options.abort_every is not None and "transactional_id" not in settings:
        raise VerifiableError("--abort-every aborts transactions: give --transactional-id too, or leave it out")
    settings.setdefault("acks", "all")
    settings.setdefault("enable_idempotence", settings["acks"] in ("all", -1))
    settings["kafka_client"] = _NetClient
    settings.setdefault("delivery_timeout_ms", KafkaProducer.DEFAULT_CONFIG["delivery_timeout_ms"])
    if options.timeout is not None:  # no call may take longer
        settings.setdefault("max_block_ms", max(1, int(1000 * min(FIRST_ANSWER_S, options.timeout))))
    return settings


PROGRAM = Program("producer", VerifiableProducer, add_arguments, _settings)
run, main = PROGRAM.run, PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
