"""A consumer that reports in JSON its assignments, the records that it reads and its commits.

    python -m sparkonce.jobs.verifiable.consumer --bootstrap-servers localhost:9092 --topic t --group-id g --verbose

Theory of operation: in the spirit of Apache Kafka's VerifiableConsumer (org.apache.kafka.tools), with the same names,
on librdkafka. Records are read one at a time, so that a rebalance, which librdkafka announces from within the same
call, is in the history exactly between the records before and after it. A poll ends when no more records are
available; then it is reported, and its offsets are committed. `lab.history` checks the output; docs/histories.md
lists the events.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sparkonce.jobs.shared.arguments import whole_number
from sparkonce.jobs.verifiable.client import (
    WAIT_S,
    EventWriter,
    Stop,
    VerifiableClient,
    VerifiableError,
    add_common_arguments,
    client_settings,
    connection_settings,
    run_client,
)

REQUEST_S = 30.0
"""Timeout of requests for offsets and partitions."""

_GIVE_UP = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._AUTHENTICATION,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Non-retriable errors; librdkafka retries after any other."""


class VerifiableConsumer(VerifiableClient):
    """One run of the consumer."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, str], events: EventWriter, stop: Stop) -> None:
        super().__init__(options, settings, events, stop)
        self._consumer: Any = None
        self._consumed = 0
        self._poll: list[Any] = []
        self._assigned: dict[int, int] = {}
        """Partition -> everything below this offset has been read."""
        self._log_starts: dict[int, int] = {}
        self._targets: dict[int, int] = {}

    def run(self) -> bool:
        """Consume until the end; return whether it was reached.

        Raises:
            VerifiableError, KafkaException: if it cannot continue to read.
        """
        options = self._options
        self._consumer = Consumer(self.watch.settings)
        self._events.write(
            "startup_complete",
            group_id=options.group_id,
            isolation_level=self._settings["isolation.level"],
            reset_policy=options.reset_policy,
        )
        try:
            if options.assign is not None or options.until_end:
                self._look_up_offsets()
            if options.assign is None:
                self._consumer.subscribe(
                    [options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )
            else:
                self._assign()
            return self._consume()
        finally:
            self._consumer.close()
            self._events.write("shutdown_complete")

    def _consume(self) -> bool:
        while not self._stop.requested:
            self._poll_once()
            if self._options.until_end and self._at_end():
                self._note_end()
                return True
            if self._consumed == self._options.max_messages:
                return True
            if self._is_late:
                raise VerifiableError(f"not done within {self._options.timeout} s, after {self._consumed} records")
        return True

    def _poll_once(self) -> None:
        """Read the available records, up to `max_poll_records`, waiting for the first."""
        wait_s = WAIT_S
        while len(self._poll) < self._options.max_poll_records and self._consumed != self._options.max_messages:
            message = self._consumer.poll(wait_s)
            if message is None:
                break
            wait_s = 0
            self._take(message)
        self._end_poll()

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            self._consumed += 1
            self.watch.answered()
            self._poll.append(message)
            self._assigned[message.partition()] = message.offset() + 1
            if self._options.verbose:
                record = {"key": _text(message.key()), "value": _text(message.value()), "topic": message.topic()}
                self._events.write("record_data", **record, partition=message.partition(), offset=message.offset())
        elif error.code() == KafkaError._PARTITION_EOF:
            # The readable end: past transaction markers, which no poll returns.
            if message.partition() in self._assigned:
                self._assigned[message.partition()] = message.offset()
        elif error.fatal() or error.code() in _GIVE_UP:
            raise KafkaException(error)
        else:
            self.watch.note(error)

    def _end_poll(self, commit: bool = True) -> None:
        """Report the records since the last call as one poll, and commit their offsets."""
        records, self._poll = self._poll, []
        if not records:
            return
        offsets: dict[int, list[int]] = {}
        for message in records:
            offsets.setdefault(message.partition(), []).append(message.offset())
        partitions = [
            {
                "topic": self._options.topic,
                "partition": partition,
                "count": len(those),
                "minOffset": min(those),
                "maxOffset": max(those),
            }
            for partition, those in offsets.items()
        ]
        self._events.write("records_consumed", count=len(records), partitions=partitions)
        if self._options.assign is not None:
            return
        nexts = [TopicPartition(self._options.topic, number, max(those) + 1) for number, those in offsets.items()]
        if self._options.enable_autocommit:
            self._consumer.store_offsets(offsets=nexts)
        elif commit:
            self._commit(nexts)

    def _commit(self, nexts: list[Any]) -> None:
        shown = [{"topic": each.topic, "partition": each.partition, "offset": each.offset} for each in nexts]
        try:
            self._consumer.commit(offsets=nexts, asynchronous=False)
        except KafkaException as error:
            # Others have the partitions now, or the broker is unavailable: the next consumer reads these records again.
            self._events.write("offsets_committed", offsets=shown, success=False, error=error.args[0].str())
        else:
            self._events.write("offsets_committed", offsets=shown, success=True)

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self._end_poll()
        self._assigned.update({each.partition: -1 for each in partitions})
        self._events.write("partitions_assigned", partitions=_named(partitions))

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._end_poll()
        self._forget(partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        self._end_poll(commit=False)
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        for each in partitions:
            self._assigned.pop(each.partition, None)
        self._events.write("partitions_revoked", partitions=_named(partitions))

    def _assign(self) -> None:
        """Assign partitions without a group, starting by the reset policy."""
        chosen = sorted(self._log_starts) if self._options.assign == ALL else self._options.assign
        missing = set(chosen) - set(self._log_starts)
        if missing:
            raise VerifiableError(f"topic {self._options.topic} has no partition {min(missing)}")
        begins = self._targets if self._options.reset_policy == "latest" else self._log_starts
        self._assigned = {number: begins[number] for number in chosen}
        self._consumer.assign([TopicPartition(self._options.topic, number, begins[number]) for number in chosen])
        shown = [{"topic": self._options.topic, "partition": each, "offset": begins[each]} for each in chosen]
        self._events.write("partitions_assigned", partitions=shown)

    def _look_up_offsets(self) -> None:
        """Request the current start and end of each partition, including open transactions."""
        topic = self._consumer.list_topics(self._options.topic, self._request_s()).topics[self._options.topic]
        self.watch.answered()
        if topic.error is not None:
            raise VerifiableError(f"topic {self._options.topic}: {topic.error.str()}")
        admin = AdminClient({"log_level": "2", **connection_settings(self._settings)})
        self._log_starts = self._ask(admin, topic.partitions, OffsetSpec.earliest())
        self._targets = self._ask(admin, topic.partitions, OffsetSpec.latest())

    def _request_s(self) -> float:
        return max(WAIT_S, min(REQUEST_S, self._deadline - time.monotonic()))

    def _ask(self, admin: Any, partitions: Any, which: Any) -> dict[int, int]:
        wanted = {TopicPartition(self._options.topic, number): which for number in partitions}
        answers = admin.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=self._request_s()
        )
        return {each.partition: answer.result().offset for each, answer in answers.items()}

    def _at_end(self) -> bool:
        return bool(self._assigned) and all(self._assigned[each] >= self._targets[each] for each in self._assigned)

    def _note_end(self) -> None:
        partitions = [
            {
                "topic": self._options.topic,
                "partition": number,
                "start_offset": self._log_starts[number],
                "offset": offset,
            }
            for number, offset in sorted(self._assigned.items())
        ]
        self._events.write("end_reached", partitions=partitions, final=self._options.final)


def _named(partitions: list[Any]) -> list[dict[str, Any]]:
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="backslashreplace")


ALL: list[int] = []
"""The meaning of `--assign` alone."""


def _partitions(text: str) -> list[int]:
    try:
        return sorted({whole_number(each) for each in text.split(",")})
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}: give partitions such as 0,1, or no value for all") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Read a topic and print an event, a line of JSON, for every assignment, poll and commit, and with --verbose "
        "for every record. SIGTERM and SIGINT end it in order: offsets are committed and the group is left."
    )
    parser.epilog = (
        "exit status: 0 the end was reached or a signal came, 1 failure, 2 usage. Judge the events (--verbose) with "
        "python -m lab.history."
    )
    add_common_arguments(parser)
    reader = parser.add_mutually_exclusive_group(required=True)
    reader.add_argument("--group-id", metavar="ID", help="join this consumer group")
    reader.add_argument(
        "--assign",
        nargs="?",
        type=_partitions,
        const=ALL,
        metavar="0,1,…",
        help="read these partitions, or all, without a group and without committing",
    )
    parser.add_argument("--verbose", action="store_true", help="print record_data too, which the checker needs")
    parser.add_argument(
        "--isolation-level", choices=["read_uncommitted", "read_committed"], help="default: read_uncommitted"
    )
    parser.add_argument(
        "--reset-policy",
        choices=["earliest", "latest", "none"],
        default="earliest",
        help="where to begin where nothing is committed (default: earliest)",
    )
    parser.add_argument("--enable-autocommit", action="store_true", help="commit by a timer, not after every poll")
    parser.add_argument("--max-poll-records", type=int, default=500, metavar="N", help="of one poll (default: 500)")
    parser.add_argument(
        "--until-end",
        action="store_true",
        help="stop where the topic ended at the start, once the transactions that were open then have ended",
    )
    parser.add_argument(
        "--final",
        action="store_true",
        help="--until-end, and no producer writes any more: the checker then demands every acknowledged record",
    )


def _settings(options: argparse.Namespace) -> dict[str, str]:
    given = {
        # Without a group, librdkafka still requires a name, and never uses it.
        "group.id": options.group_id or "verifiable-consumer-without-group",
        "isolation.level": options.isolation_level,
        "auto.offset.reset": {"none": "error"}.get(options.reset_policy, options.reset_policy),
        "enable.auto.commit": str(options.enable_autocommit).lower(),
        "enable.auto.offset.store": "false",
        "enable.partition.eof": str(options.until_end).lower(),
    }
    settings = client_settings(options, "verifiable-consumer", given)
    # librdkafka's default is read_committed; Kafka's is not.
    settings.setdefault("isolation.level", "read_uncommitted")
    return settings


def run(options: argparse.Namespace) -> int:
    """Run the consumer; returns the exit status."""
    options.until_end |= options.final
    return run_client(VerifiableConsumer, _settings, options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the consumer by its command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sparkonce.jobs.verifiable.consumer")
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
