"""A producer that numbers its records and reports in JSON its sends and the broker's acknowledgements.

    sparkonce verifiable-producer --bootstrap-servers localhost:9092 --topic t --max-messages 1000 > producer.jsonl

Theory of operation: in the spirit of Apache Kafka's VerifiableProducer (org.apache.kafka.tools), with the same names,
on librdkafka. An event precedes each record's send; so after a kill of this process, or of the broker,
every record is known to be unsent, acknowledged, failed, or of unknown outcome. Transactions likewise:
an event precedes each commit. `lab.history` checks the output; docs/histories.md lists the events.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sparkonce.jobs.shared.arguments import positive
from sparkonce.jobs.verifiable.client import (
    WAIT_S,
    EventWriter,
    Stop,
    VerifiableClient,
    VerifiableError,
    add_common_arguments,
    client_settings,
    run_client,
)

FIRST_ANSWER_S = 60.0
"""The time limit for a broker's first response; later only delivery.timeout.ms limits an outage. Kafka's own tools wait
equally long for metadata (max.block.ms)."""

TRANSACTION_CALL_S = 10.0
"""How long one call of the transaction API waits before it is repeated."""

_NOT_WRITTEN = frozenset(
    {
        KafkaError._PURGE_QUEUE,
        KafkaError._QUEUE_FULL,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_EXCEPTION,
    }
)
"""Errors after which a record is certainly not in the log; after any other an earlier attempt may have succeeded."""


class VerifiableProducer(VerifiableClient):
    """One run of the producer."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, str], events: EventWriter, stop: Stop) -> None:
        super().__init__(options, settings, events, stop)
        self._producer: Any = None
        self._sent = 0
        self._acknowledged = 0
        self._failed = 0
        self._first_error = ""
        self._transaction: int | None = None
        self._in_transaction = 0
        self._failed_in_transaction = False
        self._transactions = itertools.count()
        self._give_up_at = time.monotonic() + FIRST_ANSWER_S

    @property
    def _is_late(self) -> bool:
        return super()._is_late or self._is_unreachable

    @property
    def _is_unreachable(self) -> bool:
        return self.watch.is_down and time.monotonic() > self._give_up_at

    def run(self) -> bool:
        """Produce until the end; return whether all records were acknowledged.

        Raises:
            VerifiableError, KafkaException: if it cannot continue to send.
        """
        self._producer = Producer(self.watch.settings)
        begin = time.monotonic()
        self._events.write("startup_complete")
        try:
            self._produce(begin)
        finally:
            self._flush()
            self._events.write("shutdown_complete")
            seconds = time.monotonic() - begin
            self._events.write(
                "tool_data",
                sent=self._sent,
                acked=self._acknowledged,
                target_throughput=self._options.throughput,
                avg_throughput=round(self._acknowledged / seconds, 3),
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

    def _produce(self, begin: float) -> None:
        transactional = "transactional.id" in self._settings
        if transactional:
            self._call(self._producer.init_transactions)
            self._note_answer()
        numbers = itertools.count() if self._options.max_messages < 0 else range(self._options.max_messages)
        for number in numbers:
            self._keep_pace(begin, number)
            if self._stop.requested or self._is_late:
                break
            if transactional and self._transaction is None:
                self._begin_transaction()
            self._send(number)
            if self._in_transaction == self._options.transaction_size:
                self._end_transaction()
        if self._transaction is not None:
            # An incomplete transaction is aborted. A last one that is merely smaller is committed.
            self._end_transaction(abort=self._stop.requested or self._is_late)

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
        while True:
            try:
                self._producer.produce(self._options.topic, value, key, on_delivery=partial(self._on_delivery, record))
            except BufferError:  # the queue is full of unacknowledged records
                self._producer.poll(WAIT_S)
                if self._is_late:
                    self._producer.purge()
            except KafkaException as error:
                self._note_error(record, error.args[0], written_perhaps=False)
                if error.args[0].fatal():
                    raise
                return
            else:
                self._producer.poll(0)
                return

    def _on_delivery(self, record: dict[str, Any], error: KafkaError | None, message: Any) -> None:
        if error is not None:
            if error.code() > 0:  # a broker's error; librdkafka's own are negative
                self._note_answer()
            self._note_error(record, error, written_perhaps=error.code() not in _NOT_WRITTEN)
            return
        self._acknowledged += 1
        self._note_answer()
        offset = message.offset()
        place = {"offset": -1 if offset is None else max(offset, -1), "partition": message.partition()}
        self._events.write("producer_send_success", **record, **place)

    def _note_answer(self) -> None:
        self._give_up_at = math.inf
        self.watch.answered()

    def _note_error(self, record: dict[str, Any], error: KafkaError, written_perhaps: bool) -> None:
        self._failed += 1
        self._failed_in_transaction = self._transaction is not None
        self._first_error = self._first_error or error.str()
        outcome = "unknown" if written_perhaps else "failed"
        self._events.write(
            "producer_send_error", **record, outcome=outcome, exception=error.name(), message=error.str()
        )

    def _keep_pace(self, begin: float, number: int) -> None:
        if self._options.throughput > 0:
            due = begin + number / self._options.throughput
            while not self._stop.requested and not self._is_late and (left := due - time.monotonic()) > 0:
                self._producer.poll(min(left, WAIT_S))

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
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._failed += 1
                self._first_error = self._first_error or error.args[0].str()
                self._note_end("transaction_commit", "failed", error)
                self._abort()
                return
            self._note_end("transaction_commit", "unknown", error)
            raise
        self._note_end("transaction_commit", "success")

    def _abort(self) -> None:
        try:
            self._call(self._producer.abort_transaction)
        except KafkaException as error:
            self._note_end("transaction_abort", "unknown", error)
            raise
        self._note_end("transaction_abort", "success")

    def _note_end(self, name: str, outcome: str, error: KafkaException | None = None) -> None:
        said = {} if error is None else {"exception": error.args[0].name(), "message": error.args[0].str()}
        self._events.write(name, transaction=self._transaction, outcome=outcome, **said)

    def _call(self, call: Any) -> None:
        """Repeat a call of the transaction API while its outcome is open, as its contract requires."""
        deadline = min(time.monotonic() + self._options.transaction_deadline, self._deadline)
        while True:
            try:
                call(max(WAIT_S, min(TRANSACTION_CALL_S, deadline - time.monotonic())))
            except KafkaException as error:
                given_up = self._stop.at_once or self._is_unreachable or time.monotonic() > deadline
                if given_up or not error.args[0].retriable():
                    raise
            else:
                return

    def _flush(self) -> None:
        """Wait until every record has its result; limited by delivery.timeout.ms and --timeout."""
        while self._producer.flush(WAIT_S):
            if self._stop.at_once or self._is_late:
                self._producer.purge()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Send numbered records and print an event, a line of JSON, for everything that becomes known about them. "
        "SIGTERM and SIGINT end it in order: what is outstanding is waited for, an open transaction aborted; a second "
        f"signal gives that up. It fails if no broker can be reached for {FIRST_ANSWER_S:.0f} s at the start."
    )
    parser.epilog = (
        "exit status: 0 all records acknowledged, 1 not all, 2 usage. Judge the events with python -m lab.history."
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


def _settings(options: argparse.Namespace) -> dict[str, str]:
    given = {
        "acks": options.acks,
        "enable.idempotence": options.enable_idempotence,
        "transactional.id": options.transactional_id,
    }
    settings = client_settings(options, "verifiable-producer", given)
    if options.abort_every is not None and "transactional.id" not in settings:
        raise VerifiableError("--abort-every aborts transactions: give --transactional-id too, or leave it out")
    # librdkafka's own defaults differ from Java's: keys would go to other partitions, and retries could duplicate.
    settings.setdefault("partitioner", "murmur2_random")
    settings.setdefault("acks", "all")
    settings.setdefault("enable.idempotence", "true" if settings["acks"] in ("all", "-1") else "false")
    return settings


def run(options: argparse.Namespace) -> int:
    """Run the producer; returns the exit status."""
    return run_client(VerifiableProducer, _settings, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the producer by its command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkonce.jobs.verifiable.producer")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
