"""The topic of decisions: one partition, compacted, one key for each application.

It is read up to the high watermark, not to the last stable offset, so that an open transaction of another application
does not block readers: batches of a transaction are kept until its marker, and count only after a commit marker. A
reader continues where it stopped.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TypeVar

from sparkonce.connectors.kafka_sink.transactions import FENCED, FencedProducerError, ProducerIdentity
from sparkonce.exactly_once.transactions import (
    Decision,
    Decisions,
    app_of_key,
    decision_key,
    finished_key,
    finished_note,
)
from sparkonce.kafka.client.client import EARLIEST, Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.metadata import Leader, MissingTopicError, leader_of
from sparkonce.kafka.client.retry import retry
from sparkonce.kafka.client.topic_creation import create_topic
from sparkonce.kafka.protocol import apis, fetch, produce
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.fetch import FetchPartition, FetchPartitionResult, FetchRequest, FetchTopic
from sparkonce.kafka.protocol.produce import ProducePartition, ProduceRequest, ProduceTopic
from sparkonce.kafka.protocol.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    ControlType,
    Record,
    control_type,
    decode_records,
    encode_batch,
    scan,
)

DEFAULT_TOPIC = "sparkonce-decisions"
PARTITION = 0
MAX_FETCH_VERSION = 12
"""The last version that names topics; ids bring nothing here."""
MAX_PRODUCE_VERSION = 11
MAX_FETCH_BYTES = 4 << 20
CLEANUP_POLICY = "cleanup.policy"
TOPIC_RESOURCE = 2
"""A topic, among the kinds of resources that DescribeConfigs serves."""
TOPIC_CONFIGS: Mapping[str, str] = {
    CLEANUP_POLICY: "compact",
    # The active segment is not compacted: with Kafka's default size, 1 GiB, a start would read days of decisions.
    "segment.bytes": str(16 << 20),
    # Our records have no timestamp: a manually created topic with CreateTime rejects one far ahead of its clock.
    "message.timestamp.type": "LogAppendTime",
}
POLL_S = 0.005
COMPRESSED_FROM_BYTES = 16 << 10
"""A decision about thousands of tasks is compressed, so that it fits the default message size of 1 MiB."""

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class DecisionTopicError(RuntimeError):
    """The topic of decisions is missing and cannot be created, or cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class _Open:
    """The part of a transaction without a marker that a reader has seen."""

    epoch: int
    records: list[Record]


@dataclass(slots=True)
class DecisionLog:
    """The decisions of one application, as far as they have been read; or of all applications, read only."""

    client: Client
    topic: str
    app_id: str | None
    """The application of the decisions; None: all applications."""
    decisions: dict[str, Decisions] = field(default_factory=lambda: defaultdict(Decisions))
    """What has been read, by application."""
    _next: int | None = None
    _leader: Leader | None = None
    _topic_id: str = ""
    _is_kept: bool = False
    """Whether the topic is known to keep its records."""
    _pending: dict[int, _Open] = field(default_factory=dict)
    """Transactions without a marker yet that have needed records, by producer id."""

    def ensure(self) -> None:
        """Create the topic if it is missing, and check that it keeps its records.

        Raises:
            DecisionTopicError: if this user may not, or Kafka refuses it, or records expire in the topic.
            PermissionError: if this user may not see it.
            KafkaUnreachableError: if no broker answers in time.
        """
        try:
            self._recognize()
        except MissingTopicError:
            self._retry(f"create the topic {self.topic}", self._create)
        else:
            return self._check_kept()
        deadline_s = time.monotonic() + self.client.settings.api_timeout_ms / 1000
        try:  # not every broker has its metadata yet
            retry(self._recognize, MissingTopicError, repeat(POLL_S), deadline_s=deadline_s)
        except MissingTopicError as error:
            raise DecisionTopicError(f"the topic {self.topic!r} was created and cannot be found") from error

    def _recognize(self) -> None:
        """Check that this is the topic that was read before; if it was recreated, forget what was read."""
        topic_id = self.client.topics([self.topic])[self.topic].topic_id
        if topic_id != self._topic_id:
            self._forget()
            self._is_kept = False
        self._topic_id = topic_id

    def _check_kept(self) -> None:
        """Check that the topic is only compacted: retention would eventually delete the last decision."""
        if self._is_kept:
            return
        policy = self._retry(f"look at the topic {self.topic}", self._cleanup_policy)
        if policy is None:
            _log.warning(
                "kafka_once: this user may not see whether the topic %s has cleanup.policy=compact, which decisions "
                "need (DESCRIBE_CONFIGS on the topic)",
                self.topic,
            )
        elif {each.strip() for each in policy.split(",")} != {"compact"}:
            raise DecisionTopicError(
                f"the topic {self.topic!r} of decisions has cleanup.policy={policy}: Kafka would delete decisions that "
                "are still needed, and a restart would then lose rows or write them twice. Set it with "
                f"kafka-configs.sh --alter --entity-type topics --entity-name {self.topic} "
                "--add-config cleanup.policy=compact; or name another topic with the option decisionTopic, which is "
                "created if it is missing"
            )
        self._is_kept = True

    def _cleanup_policy(self) -> str | None:
        """Return the topic's setting; None if this user may not see it."""
        connection = self.client.any_connection()
        version = connection.version(ApiKey.DESCRIBE_CONFIGS)
        resource = apis.request_class(ApiKey.DESCRIBE_CONFIGS).DescribeConfigsResource(
            version=version, resource_type=TOPIC_RESOURCE, resource_name=self.topic, configuration_keys=[CLEANUP_POLICY]
        )
        answer = self.client.ask(connection, ApiKey.DESCRIBE_CONFIGS, version, resources=[resource])
        (result,) = answer.results
        if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None
        _check(result.error_code, f"settings of {self.topic}")
        return next((str(each.value) for each in result.configs if each.name == CLEANUP_POLICY), None)

    def read(self) -> Decisions:
        """Read what is new, up to the end; waits for the markers of this application's own transactions.

        Raises:
            DecisionFormatError: if there is a record of ours that cannot be read.
            DecisionTopicError: if the topic is gone, or may not be read.
            KafkaUnreachableError, TimeoutError: if the log cannot be read in time.
        """
        deadline = time.monotonic() + self.client.settings.api_timeout_ms / 1000
        while True:
            self._read_to_end()
            if not self._pending:
                return self.known
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"a transaction of application {self.app_id!r} in topic {self.topic} was neither committed nor "
                    f"aborted for {self.client.settings.api_timeout_ms} ms. The brokers abort it when it times out; "
                    "one that stays longer hangs, and kafka-transactions.sh (find-hanging, abort) ends it"
                )
            time.sleep(POLL_S)

    @property
    def known(self) -> Decisions:
        """The decisions of this application that have been read."""
        return self.decisions[self._own]

    def look(self) -> Mapping[str, Decisions]:
        """Read what is new, without waiting: uncommitted ones are left out, see `deciding`. Raises as `read`."""
        self._read_to_end()
        return self.decisions

    @property
    def deciding(self) -> set[str]:
        """The applications that had a decision in progress at the last read: neither committed nor aborted."""
        keys = (app_of_key(record.key) for pending in self._pending.values() for record in pending.records)
        return {known[0] for known in keys if known is not None}

    def append_decision(self, decision: Decision, identity: ProducerIdentity, sequence: int) -> None:
        """Write a decision within the transaction of ``identity``.

        Raises:
            FencedProducerError: if another driver has claimed the application since.
            DecisionTopicError: if Kafka refuses it.
            KafkaUnreachableError: if no broker answers in time.
        """
        record = Record(decision_key(self._own), decision.to_json().encode(), NO_TIMESTAMP)
        self._append(record, identity, sequence)

    def append_finished(self, number: int) -> None:
        """Mark a decision as finished. Raises DecisionTopicError or KafkaUnreachableError as `append_decision`."""
        self._append(Record(finished_key(self._own), finished_note(number).encode(), NO_TIMESTAMP), None, NO_SEQUENCE)

    @property
    def _own(self) -> str:
        assert self.app_id is not None, "decisions of all applications are only checked"
        return self.app_id

    def _create(self) -> None:
        code, message = create_topic(self.client, self.topic, 1, configs=TOPIC_CONFIGS)
        if code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            raise DecisionTopicError(
                f"exactly-once keeps its decisions in the topic {self.topic!r}, which does not exist, and this user "
                "may not create it. Create it with one partition and cleanup.policy=compact, and allow this user READ "
                "and WRITE on it; or name another topic with the option decisionTopic"
            )
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise KafkaError(code, f"create the topic {self.topic}: {message}")
        if code is ErrorCode.NONE:
            _log.info("kafka_once: created the topic %s, compacted, for decisions", self.topic)

    def _read_to_end(self) -> None:
        while True:
            try:
                result = self._retry(f"read the topic {self.topic}", self._fetch)
            except DecisionTopicError:
                self._forget()
                raise
            assert self._next is not None
            before = self._next
            if isinstance(result.records, memoryview | bytes | bytearray):
                try:
                    self._take(memoryview(result.records))
                except Exception:
                    self._forget()
                    raise
            # A broker returns records below the high watermark that it reports. If there is nothing, compaction has
            # removed the end of the log: the marker of an aborted decision, say, before a segment that is empty yet.
            if self._next >= result.high_watermark or self._next == before:
                return

    def _forget(self) -> None:
        """Start again from the beginning: the next read must not skip what could not be read."""
        self._next = self._leader = None
        self._pending.clear()
        self.decisions.clear()

    def _fetch(self) -> FetchPartitionResult:
        if self._next is None:
            known = self.client.topics_now([self.topic])
            self._next = self.client.offsets({(self.topic, PARTITION): EARLIEST}, known)[self.topic, PARTITION]
        wanted = FetchPartition(PARTITION, self._next, MAX_FETCH_BYTES)
        request = FetchRequest(0, 0, MAX_FETCH_BYTES, [FetchTopic(self.topic, uuid.UUID(int=0), [wanted])])

        def ask(connection: BrokerConnection) -> FetchPartitionResult:
            version = min(connection.version(ApiKey.FETCH), MAX_FETCH_VERSION)
            body = connection.request(ApiKey.FETCH, version, fetch.encode_request(version, request))
            answer = fetch.decode_response(version, body)
            _check(answer.error_code, f"fetch {self.topic}")
            result: FetchPartitionResult = answer.topics[0].partitions[0]
            _check(result.error_code, f"fetch {self.topic}")
            return result

        return self._of_leader(ask)

    def _of_leader(self, ask: Callable[[BrokerConnection], _Result]) -> _Result:
        """Send a request to the partition's leader, which is found again after a failure."""
        if self._leader is None:
            self._leader = leader_of(self.client.topics_now([self.topic]), self.topic, PARTITION)
        leader = self._leader
        try:
            return ask(self.client.connection(leader.address))
        except KafkaError:
            self._leader = None
            raise
        except BaseException:  # a response may still be in flight
            self._leader = None
            self.client.drop(leader.address)
            raise

    def _take(self, data: memoryview) -> None:
        for position, header in scan(data):
            assert self._next is not None
            if header.next_offset <= self._next:
                continue
            self._next = header.next_offset
            records = decode_records(data[position : position + header.size])
            if header.is_control:
                # Compaction keeps a batch without its marker where it must remember the producer.
                pending = self._pending.pop(header.producer_id, None)
                if pending is not None and records and control_type(records[0]) is ControlType.COMMIT:
                    self._count(pending.records)
                continue
            wanted = [record for record in records if self._is_wanted(record)]
            if header.is_transactional and wanted:
                pending = self._pending.get(header.producer_id)
                if pending is None or pending.epoch != header.producer_epoch:
                    # Records of an older epoch without a marker arrived after its end, on a broker before KIP-890.
                    pending = self._pending[header.producer_id] = _Open(header.producer_epoch, [])
                pending.records.extend(wanted)
            else:
                self._count(wanted)

    def _is_wanted(self, record: Record) -> bool:
        known = app_of_key(record.key)
        return known is not None and self.app_id in (None, known[0])

    def _count(self, records: list[Record]) -> None:
        for record in records:
            known = app_of_key(record.key)
            assert known is not None
            self.decisions[known[0]].take(known[1], record.value)

    def _append(self, record: Record, identity: ProducerIdentity | None, sequence: int) -> None:
        batch = encode_batch(
            [record],
            compression=Compression.GZIP if len(record.value or b"") > COMPRESSED_FROM_BYTES else Compression.NONE,
            producer_id=NO_PRODUCER_ID if identity is None else identity.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if identity is None else identity.epoch,
            base_sequence=sequence,
            transactional=identity is not None,
        )
        transactional_id = None if identity is None else identity.name
        topic = ProduceTopic(self.topic, uuid.UUID(int=0), [ProducePartition(PARTITION, batch)])
        request = ProduceRequest(transactional_id, -1, self.client.settings.request_timeout_ms, [topic])

        def ask(connection: BrokerConnection) -> None:
            version = min(connection.version(ApiKey.PRODUCE), MAX_PRODUCE_VERSION)
            body = connection.request(ApiKey.PRODUCE, version, produce.encode_request(version, request))
            (answer,) = produce.decode_response(version, body).topics[0].partitions
            if answer.error_code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                _check(answer.error_code, f"{self.topic}: {answer.error_message or ''}")

        self._retry(f"write to the topic {self.topic}", lambda: self._of_leader(ask))

    def _retry(self, what: str, attempt: Callable[[], _Result]) -> _Result:
        try:
            return self.client.retry(what, attempt)
        except MissingTopicError as error:
            raise DecisionTopicError(
                f"the topic {self.topic!r} of decisions no longer exists, or has no partition 0. If it was "
                "deleted, start the query again: it creates a new one. What was decided and not finished is lost "
                "with the old one"
            ) from error
        except KafkaError as error:
            if error.code in FENCED:
                raise FencedProducerError(f"could not {what}: {error}") from error
            hint = _HINTS.get(error.code)
            raise DecisionTopicError(f"could not {what}: {error}" + (f"; {hint}" if hint else "")) from error


_HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "the topic of decisions ends before what was read of it: it was deleted and created "
    "again, or its records were deleted, while this query ran. Start the query again: it reads the topic from its "
    "beginning, and aborts open transactions. What was decided and not finished is lost with the old topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user needs READ and WRITE on the topic of decisions",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user needs IDEMPOTENT_WRITE on the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user needs WRITE and DESCRIBE on transactional ids that "
    "begin with sparkonce/",
    ErrorCode.MESSAGE_TOO_LARGE: "a decision names every partition and every task of a batch: raise max.message.bytes "
    "of the topic of decisions, or run fewer tasks",
}


def _check(error_code: int, where: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code), where)
