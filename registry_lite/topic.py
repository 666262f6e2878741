"""The topic of a registry's records.

One registry writes at a time: all use one transactional id, so that the broker fences the last one as soon as another
begins (KIP-98), and its uncommitted records are never read. A write returns once its records are committed, and have
been read back from the topic.

After a failed write its outcome may be unknown. Before the next decision a new producer begins, so that the broker ends
the open transaction, and the topic is read to its end.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from sparkonce.kafka.client.retry import retry
from sparkonce.registry_lite.errors import ApiError
from sparkonce.registry_lite.service import Records

_log = logging.getLogger(__name__)
TOPIC = "_schemas"
TIMEOUT_S = 30.0
_POLL_S = 0.1
_POLICY, _COMPACT = "cleanup.policy", "compact"
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
Apply = Callable[[dict[str, Any], dict[str, Any] | None], None]


class RegistryStartError(RuntimeError):
    """The topic cannot be used."""


class SchemaTopic:
    """The topic of one registry, from construction to `close`."""

    def __init__(
        self, bootstrap_servers: str, apply: Apply, reading: threading.Condition, topic: str, kafka: Mapping[str, str]
    ):
        """Read the whole topic, which is created if it does not exist; ``apply`` gets its records, under ``reading``.

        This fences the last registry that wrote to the topic.

        Raises:
            RegistryStartError: if the brokers do not answer, or the topic is not one for schemas.
        """
        self._conf = conf = {"log_level": "2", **kafka, "bootstrap.servers": bootstrap_servers}
        self._topic, self._apply, self._reading = topic, apply, reading
        self._read = 0
        """The offset after the last record that was read."""
        self._stopping = self._fenced = False
        self._producer: Producer | None = None
        self._begun = self._whole = False
        """Whether the producer may write; whether the state has all records of the topic."""
        try:
            _create(AdminClient(conf, logger=_log), topic)
        except KafkaException as error:
            raise self._not_started(error.args[0]) from error
        self._consumer = _consumer(conf, topic)
        self._thread = threading.Thread(target=self._follow, name=f"registry-{topic}", daemon=True)
        self._thread.start()
        try:
            self.settle()
        except ApiError as error:
            self.close()
            raise self._not_started(error.message) from error

    def _not_started(self, why: object) -> RegistryStartError:
        if isinstance(why, KafkaError) and why.code() == KafkaError._TRANSPORT:
            why = "no broker answers there. Check the address, and security.protocol in the Kafka client's settings"
        return RegistryStartError(f"topic {self._topic} at {self._conf['bootstrap.servers']}: {why}")

    def settle(self) -> None:
        """Become the writer, and read to the end, if a write has failed. Raises ApiError if that is not possible."""
        if self._fenced:
            raise _taken_over()
        if self._whole:
            return
        if self._producer is None:
            more = {"transactional.id": f"registry-{self._topic}", "linger.ms": 0}
            self._producer = Producer({**self._conf, **more}, logger=_log)
        try:
            if not self._begun:
                # After a timeout it retries in the background; another producer meanwhile would be fenced by it.
                self._producer.init_transactions(TIMEOUT_S)
                self._begun = True
            self._wait(self._end())
        except KafkaException as error:
            if not error.args[0].retriable():
                self._producer, self._begun = None, False
            raise ApiError(500, 50001, f"Error in the backend datastore: {error.args[0]}") from error
        self._whole = True

    def _end(self) -> int:
        """Return the offset after the topic's last record."""
        place = TopicPartition(self._topic, 0)

        def ask() -> int:
            admin = AdminClient(self._conf, logger=_log)  # a new one: it keeps the leader that it found first
            asked = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=TIMEOUT_S)
            return int(asked[place].result(TIMEOUT_S).offset)

        # An error may come only while the brokers start.
        return retry(ask, KafkaException, repeat(_POLL_S), deadline_s=time.monotonic() + TIMEOUT_S)

    def write(self, records: Records) -> None:
        """Write what was decided after `settle`; return once read. Raises ApiError if that fails, or may have."""
        offsets: list[int] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offsets.append(message.offset())

        # A text that cannot be encoded must not leave a transaction open.
        encoded = [(_bytes(value), _bytes(key)) for key, value in records]
        producer = self._producer
        assert producer is not None, "settle() comes first"
        self._whole = False
        try:
            producer.begin_transaction()
            for value, key in encoded:
                producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(producer, error) from error
        self._wait(max(offsets) + 1)
        self._whole = True

    def _failed(self, producer: Producer, error: KafkaException) -> ApiError:
        """Return the error for a client whose write failed."""
        self._producer, self._begun = None, False
        producer.purge()  # not closed: that would wait for the brokers to abort the transaction
        self._fenced = error.args[0].code() in _FENCED
        if self._fenced:
            return _taken_over()
        _log.warning("topic %s: a write failed: %s", self._topic, error.args[0])
        return ApiError(500, 50001, f"Error in the backend datastore: {error.args[0]}")

    def _wait(self, offset: int) -> None:
        """Wait until the topic is read up to an offset."""
        with self._reading:
            if not self._reading.wait_for(lambda: self._read >= offset or self._stopping, TIMEOUT_S):
                raise ApiError(500, 50001, f"topic {self._topic} was not read up to offset {offset} in {TIMEOUT_S} s")

    def _follow(self) -> None:
        while not self._stopping:
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._take(message)
            elif message is not None and message.error().code() != KafkaError._PARTITION_EOF:
                _log.warning("topic %s: %s", self._topic, message.error())
            position = self._consumer.position([TopicPartition(self._topic, 0)])[0].offset
            end = message.offset() if message is not None and message.error() is not None else None
            with self._reading:
                self._read = max(self._read, position, end if end is not None else 0)
                self._reading.notify_all()

    def _take(self, message: Message) -> None:
        try:
            key = json.loads(message.key())
            value = None if message.value() is None else json.loads(message.value())
            with self._reading:
                self._apply(key, value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            _log.warning("topic %s, offset %d is not a registry's record: %r", self._topic, message.offset(), error)

    def close(self) -> None:
        """Stop reading and writing."""
        self._stopping = True
        with self._reading:
            self._reading.notify_all()
        self._thread.join()
        self._consumer.close()
        self._producer = None


def _taken_over() -> ApiError:
    told = "Another registry has taken over this topic; send what changes schemas to that one"
    return ApiError(500, 50003, told)


def _create(admin: AdminClient, topic: str) -> None:
    """Create the topic if needed. Raises RegistryStartError for partitions or no compaction, or KafkaException."""
    found = admin.list_topics(timeout=TIMEOUT_S).topics.get(topic)  # a request for one topic by name might create it
    if found is not None:
        if len(found.partitions) != 1:
            raise RegistryStartError(f"topic {topic} has {len(found.partitions)} partitions; schemas need one")
        _check_compacted(admin, topic)
        return
    new = NewTopic(topic, 1, config={_POLICY: _COMPACT})
    try:
        admin.create_topics([new], operation_timeout=TIMEOUT_S)[topic].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _check_compacted(admin: AdminClient, topic: str) -> None:
    """Reject a topic whose old records are deleted: schemas would be lost. It may also be a topic of other data.

    Raises:
        RegistryStartError: if it is not compacted, or also deletes.
        KafkaException: if the brokers do not answer.
    """
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        found = admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result(TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        _log.warning("cannot check that topic %s is compacted: DESCRIBE_CONFIGS is not allowed", topic)
        return
    policy = found[_POLICY].value
    if policy != _COMPACT:
        raise RegistryStartError(
            f"topic {topic} has {_POLICY}={policy}, which deletes schemas. If it is the topic of schemas, set "
            f"{_POLICY}={_COMPACT}; else name another with --topic (topic=… in Python)"
        )


def _consumer(conf: Mapping[str, str], topic: str) -> Consumer:
    more = {"group.id": f"registry-{topic}", "enable.auto.commit": False, "isolation.level": "read_committed"}
    more["auto.offset.reset"] = "earliest"
    more |= {"enable.partition.eof": True, "fetch.wait.max.ms": 50, "fetch.error.backoff.ms": 50}
    consumer = Consumer({**more, **conf}, logger=_log)
    consumer.assign([TopicPartition(topic, 0, 0)])  # to look up the beginning takes librdkafka another half second
    return consumer


def _bytes(document: Mapping[str, Any] | None) -> bytes | None:
    return None if document is None else json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
