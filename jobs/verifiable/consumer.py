"""A consumer that reports in JSON its assignments, the records that it reads and its commits.

    python -m sparkonce.jobs.verifiable.consumer --bootstrap-servers localhost:9092 --topic t --group-id g --verbose

Theory of operation: in the spirit of Apache Kafka's VerifiableConsumer (org.apache.kafka.tools), with the same names,
on kafka-python. A poll is reported, and its offsets are committed, before the next one, in which a rebalance may
happen: so that is in the history exactly between the records before and after it. `lab.history` checks the output;
docs/internals/histories.md lists the events.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection
from contextlib import closing, suppress
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import (
    AuthorizationError,
    FencedInstanceIdError,
    KafkaError,
    NoOffsetForPartitionError,
    SaslAuthenticationFailedError,
)

from sparkonce.jobs.shared.arguments import whole_number
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

REQUEST_S = 30.0
"""Timeout of requests for offsets and partitions."""
_GIVE_UP = (AuthorizationError, SaslAuthenticationFailedError, NoOffsetForPartitionError, FencedInstanceIdError)
"""Errors that last; after any other, such as of a broker that is gone from the metadata, the next poll may succeed."""
TOPIC_S = 1
"""How often a member looks whether a topic that was missing has been created."""


class VerifiableConsumer(VerifiableClient, ConsumerRebalanceListener):  # type: ignore[misc]
    """One run of the consumer."""

    def __init__(self, options: argparse.Namespace, settings: dict[str, Any], events: EventWriter, stop: Stop) -> None:
        super().__init__(options, settings, events, stop)
        self._described = {
            "group_id": options.group_id,
            "isolation_level": settings["isolation_level"],
            "reset_policy": options.reset_policy,
        }
        self._consumer: Any = None
        self._consumed = 0
        self._assigned: dict[int, int] = {}
        """Partition -> everything below this offset has been read."""
        self._log_starts: dict[int, int] = {}
        self._targets: dict[int, int] = {}

    def _work(self) -> None:
        self._consumer = self._connect(KafkaConsumer, self._deadline)
        if self._consumer is not None:
            self._begin()
        self._consume()

    def _close(self) -> None:
        if self._consumer is not None:
            # The group notices by its session timeout that a member is gone which cannot say so.
            with suppress(KafkaError):
                self._consumer.close(timeout_ms=int(1000 * self._request_s()))

    def _begin(self) -> None:
        if self._options.assign is not None or self._options.until_end:
            self._look_up_offsets()
        if self._options.assign is None:
            self._consumer.subscribe([self._options.topic], listener=self)
        else:
            self._assign()

    def _consume(self) -> None:
        while not self._stop.requested:
            if self._is_late:
                raise VerifiableError(f"not done within {self._options.timeout} s, after {self._consumed} records")
            self._poll_once()
            if self._options.until_end and self._at_end():
                return self._note_end()
            if self._consumed == self._options.max_messages:
                return None
        return None

    def _poll_once(self) -> None:
        """Read the available records, up to `max_poll_records`, waiting for the first."""
        left = self._options.max_messages - self._consumed
        most = self._options.max_poll_records if left < 0 else min(left, self._options.max_poll_records)
        try:
            found = self._consumer.poll(int(1000 * WAIT_S), most) if most else {}
        except KafkaError as error:
            if isinstance(error, _GIVE_UP):
                raise
            found = {}
            self._go_back()
            time.sleep(WAIT_S)
        self.watch.look()
        for tp, messages in found.items():
            self.watch.answered()
            self._consumed += len(messages)
            self._assigned[tp.partition] = messages[-1].offset + 1
            for message in messages if self._options.verbose else ():
                record = {"key": _text(message.key), "value": _text(message.value), "topic": message.topic}
                self._events.write("record_data", **record, partition=message.partition, offset=message.offset)
        self._end_poll({tp: [message.offset for message in messages] for tp, messages in found.items()})

    def _go_back(self) -> None:
        """Have the next poll go on after what has been reported.

        kafka-python 3.0 moves its positions before it asks for more; if that fails, the records are lost with the poll.
        """
        for place in self._consumer.assignment():
            if (offset := self._assigned.get(place.partition, -1)) >= 0:
                self._consumer.seek(place, offset)

    def _end_poll(self, offsets: dict[Any, list[int]]) -> None:
        """Report records as one poll, and commit their offsets."""
        if not offsets:
            return
        partitions = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "count": len(those),
                "minOffset": min(those),
                "maxOffset": max(those),
            }
            for tp, those in offsets.items()
        ]
        self._events.write("records_consumed", count=sum(map(len, offsets.values())), partitions=partitions)
        if self._options.assign is None and not self._options.enable_autocommit:
            self._commit({tp: max(those) + 1 for tp, those in offsets.items()})

    def _commit(self, nexts: dict[Any, int]) -> None:
        shown = [{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in nexts.items()]
        try:
            offsets = {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in nexts.items()}
            self._consumer.commit(offsets, timeout_ms=int(1000 * self._request_s()))
        except KafkaError as error:
            # Others have the partitions now, or the broker is unavailable: the next consumer reads these records again.
            self._events.write("offsets_committed", offsets=shown, success=False, error=str(error))
        else:
            self._events.write("offsets_committed", offsets=shown, success=True)

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Report an assignment; kafka-python calls it within a poll, from its thread."""
        self._assigned.update({each.partition: -1 for each in assigned})
        self._events.write("partitions_assigned", partitions=_named(assigned))

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        """Report partitions that are given up, or lost."""
        # kafka-python 3.0 forgets a join that new metadata made it begin, if that is not complete when a poll's time is
        # over: it goes on polling, with neither partitions nor heartbeats. What is requested, it does not forget.
        self._consumer._coordinator.request_rejoin()
        for each in revoked:
            self._assigned.pop(each.partition, None)
        if revoked:
            self._events.write("partitions_revoked", partitions=_named(revoked))

    def _assign(self) -> None:
        """Assign partitions without a group, starting by the reset policy."""
        chosen = sorted(self._log_starts) if self._options.assign == ALL else self._options.assign
        missing = set(chosen) - set(self._log_starts)
        if missing:
            raise VerifiableError(f"topic {self._options.topic} has no partition {min(missing)}")
        begins = self._targets if self._options.reset_policy == "latest" else self._log_starts
        self._assigned = {number: begins[number] for number in chosen}
        places = {TopicPartition(self._options.topic, number): begins[number] for number in chosen}
        self._consumer.assign(list(places))
        for place, offset in places.items():
            self._consumer.seek(place, offset)
        shown = [{"topic": self._options.topic, "partition": each, "offset": begins[each]} for each in chosen]
        self._events.write("partitions_assigned", partitions=shown)

    def _look_up_offsets(self) -> None:
        """Request the current start and end of each partition, including open transactions."""
        uncommitted = {**self._settings, "isolation_level": "read_uncommitted"}
        uncommitted |= {"group_id": None, "group_instance_id": None}
        with closing(KafkaConsumer(**uncommitted, bootstrap_timeout_ms=int(1000 * self._request_s()))) as asking:
            numbers = asking.partitions_for_topic(self._options.topic)
            if not numbers:
                raise VerifiableError(f"topic {self._options.topic}: there is no such topic, or it may not be read")
            places = [TopicPartition(self._options.topic, number) for number in numbers]
            for ask, found in (
                (asking.beginning_offsets, self._log_starts),
                (asking.end_offsets, self._targets),
            ):
                answer = ask(places, timeout_ms=int(1000 * self._request_s()))
                found.update({place.partition: offset for place, offset in answer.items()})

    def _request_s(self) -> float:
        return max(WAIT_S, min(REQUEST_S, self._deadline - time.monotonic()))

    def _at_end(self) -> bool:
        for place in self._consumer.assignment():
            # The readable end is past transaction markers, which no poll returns.
            position = self._consumer.position(place, timeout_ms=0) if place.partition in self._assigned else None
            if position is not None:
                self._assigned[place.partition] = position
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


def _named(partitions: Collection[Any]) -> list[dict[str, Any]]:
    return [{"topic": each.topic, "partition": each.partition} for each in sorted(partitions)]


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
        "exit status: 0 the end was reached or a signal came, 1 failure, 2 usage. In a checkout, "
        "python -m lab.history judges the events (--verbose)."
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


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    options.until_end |= options.final
    given = {
        "group.id": options.group_id,
        "isolation.level": options.isolation_level,
        "auto.offset.reset": options.reset_policy,
        "enable.auto.commit": str(options.enable_autocommit and options.assign is None).lower(),
    }
    settings = client_settings(options, "verifiable-consumer", given, KafkaConsumer.DEFAULT_CONFIG)
    settings.setdefault("isolation_level", KafkaConsumer.DEFAULT_CONFIG["isolation_level"])
    settings.setdefault("allow_auto_create_topics", False)
    settings.setdefault("metadata_max_age_ms", TOPIC_S * 1000)
    return settings


PROGRAM = Program("consumer", VerifiableConsumer, add_arguments, _settings)
run, main = PROGRAM.run, PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
