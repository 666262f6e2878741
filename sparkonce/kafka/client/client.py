"""The client: metadata, offsets and fetches, from the current leaders, through restarts and changes of leaders.

A `Client` keeps a connection per broker and the known leaders. Threads may share it: each attempt of a call is alone on
the connections; pauses and deadlines are not. Every call is retried, with a bounded back-off, on errors that Kafka
calls retriable and on broken connections; the first contact with the cluster has a shorter deadline
(`socket.connection.setup.timeout.ms`) than later calls (`default.api.timeout.ms`), because a wrong address should not
take a minute to be reported (see `Client.reached`).
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TypeVar

from sparkonce.kafka.client import list_offsets
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.list_offsets import Asked
from sparkonce.kafka.client.metadata import (
    Address,
    ClusterMetadata,
    EpochEnd,
    MissingTopicError,
    TopicMetadata,
    leader_of,
    topic_metadata,
)
from sparkonce.kafka.client.outage import Outage
from sparkonce.kafka.client.retry import may_pass, retry
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.options import KAFKA_FORMAT

LATEST, EARLIEST = -1, -2
"""Special timestamps of ListOffsets, and latest and earliest in JSON offsets, as in Spark's connector."""

MAX_BYTES_BEHIND = 64 << 10
"""The most bytes of a request sent behind another: they fit into the broker's socket buffer before it has answered the
first, so the two sides never wait for each other to read."""

REPLICA_ID_FROM = 3
"""The first version of OffsetForLeaderEpoch with a replica id."""
_CONSUMER = -1

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer")


class KafkaUnreachableError(ConnectionError):
    """No broker answered in time; the message names the bootstrap servers."""


@dataclass(frozen=True, slots=True)
class _Question:
    """One encoded request, and its connection."""

    connection: BrokerConnection
    api_key: ApiKey
    version: int
    body: bytearray


@dataclass(frozen=True, slots=True)
class _Description:
    """A decoded Metadata response, and both messages as bytes, to recognize the same response."""

    messages: tuple[bytes, bytes]
    topics: list[Any]
    brokers: dict[int, Address]
    cluster: ClusterMetadata
    known: dict[str, TopicMetadata] = field(default_factory=dict)
    """The topics that were used, by name."""

    def metadata(self, topic: Any) -> TopicMetadata:
        """Return one of ``topics``, the same object each time; raises the broker's error about it."""
        if topic.name not in self.known:
            self.known[topic.name] = topic_metadata(topic, self.brokers)
        return self.known[topic.name]


@dataclass(frozen=True, slots=True)
class _Behind:
    """Offsets that are requested behind the next request about topics."""

    wanted: Mapping[tuple[str, int], int]
    known: Mapping[str, TopicMetadata]
    found: dict[tuple[str, int], int] | None = None
    """None if there was no response, or the topics had changed since ``known``."""


class Client:
    """A client of one cluster; ``named`` is the format or command that uses it, with which lines in the log begin."""

    def __init__(self, settings: ClientSettings, named: str = KAFKA_FORMAT) -> None:
        self.settings = settings
        self.named = named
        self.reached = False
        """Whether this client, or another one of the query, has reached the cluster: its address is not a wrong one."""
        self._connections: dict[Address, BrokerConnection] = {}
        self._known_brokers: list[Address] = []
        self._outage = Outage(settings.servers_text, named)
        self._description: _Description | None = None
        self._behind: _Behind | None = None
        self._alone = threading.RLock()

    def topics(self, names: Iterable[str]) -> dict[str, TopicMetadata]:
        """Return topics by name; each has at least one partition.

        Raises:
            MissingTopicError: if one does not exist, or this user may not describe it.
            KafkaUnreachableError: if no broker answers.
        """
        wanted = sorted(set(names))
        return self.retry("ask for the topics " + ", ".join(wanted), lambda: self.topics_now(wanted))

    def existing_topics(self, names: Iterable[str], forbidden: set[str] | None = None) -> dict[str, TopicMetadata]:
        """Return topics by name, without those that do not exist.

        Those that the client must not describe are added to ``forbidden``, if that is given.

        Raises:
            KafkaUnreachableError: if no broker answers.
            PermissionError: if the client must not describe one.
        """
        wanted = sorted(set(names))

        def attempt() -> dict[str, TopicMetadata]:
            found = self._describe(wanted)
            left_out = {int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
            if forbidden is not None:
                refused = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                forbidden.clear()
                forbidden.update(topic.name for topic in found.topics if topic.error_code == refused)
                left_out.add(refused)
            return {topic.name: found.metadata(topic) for topic in found.topics if topic.error_code not in left_out}

        return self.retry("ask for the topics " + ", ".join(wanted), attempt)

    def matching_topics(self, wanted: Callable[[str], bool]) -> dict[str, TopicMetadata]:
        """Return all topics whose names are ``wanted``, without Kafka's internal ones.

        Raises:
            KafkaUnreachableError: if no broker answers.
        """

        def attempt() -> dict[str, TopicMetadata]:
            found = self._describe(None)
            chosen = (topic for topic in found.topics if not topic.is_internal and wanted(topic.name))
            return {topic.name: found.metadata(topic) for topic in chosen}

        return self.retry("ask for all topics", attempt)

    def cluster(self) -> ClusterMetadata:
        """Return brokers and all topics.

        Raises:
            KafkaUnreachableError: if no broker answers.
        """

        def attempt() -> ClusterMetadata:
            found = self._describe(None).cluster
            if not found.brokers:  # the broker that answered is one itself
                raise KafkaError(found.error or ErrorCode.UNKNOWN_SERVER_ERROR, "brokers and topics")
            return found

        return self.retry("ask for the cluster", attempt)

    def offsets(
        self,
        wanted: Mapping[tuple[str, int], int],
        known: dict[str, TopicMetadata],
        *,
        waits_for_leaders: bool = True,
    ) -> dict[tuple[str, int], int]:
        """Return the offset at a timestamp, LATEST or EARLIEST, of each (topic, partition).

        With ``read_committed`` the latest is the last stable offset. ``known`` saves the request for leaders, and is
        updated if they have changed: the leader epochs in it are those of the results. Unless this
        ``waits_for_leaders``, partitions without one are left out.
        """
        behind, self._behind = self._behind, None
        if behind is not None and behind.found is not None and behind.wanted == wanted:
            return behind.found

        def ask() -> dict[tuple[str, int], int]:
            led = wanted if waits_for_leaders else {at: what for at, what in wanted.items() if _may_be_led(known, *at)}
            return self._offsets(led, known)

        return self._ask_leaders("ask for offsets", ask, wanted, known)

    def send_behind(self, wanted: Mapping[tuple[str, int], int], known: Mapping[str, TopicMetadata]) -> None:
        """Send a request for these offsets right behind the next Metadata request, which saves a round trip.

        If the topics are still as ``known``, so that the requests went to the leaders, the next call of `offsets` with
        the same arguments returns the result. Any failure here is left to that call.
        """
        self._behind = _Behind(wanted, dict(known))

    def epoch_ends(
        self, wanted: Mapping[tuple[str, int], int], known: dict[str, TopicMetadata]
    ) -> dict[tuple[str, int], EpochEnd]:
        """Return where a leader epoch of each (topic, partition) ended (OffsetForLeaderEpoch, KIP-320).

        Empty if a broker does not serve that (before Kafka 2.1). ``known`` is used as by `offsets`.
        """
        return self._ask_leaders("ask for leader epochs", lambda: self._epoch_ends(wanted, known), wanted, known)

    def _ask_leaders(
        self,
        what: str,
        ask: Callable[[], dict[tuple[str, int], _Answer]],
        wanted: Mapping[tuple[str, int], int],
        known: dict[str, TopicMetadata],
    ) -> dict[tuple[str, int], _Answer]:
        def attempt() -> dict[tuple[str, int], _Answer]:
            try:
                return ask()
            except (OSError, KafkaError):
                known.update(self.topics_now(sorted({topic for topic, _ in wanted})))
                raise

        return self.retry(what, attempt) if wanted else {}

    def topics_now(self, names: list[str], *, create: bool = False) -> dict[str, TopicMetadata]:
        """Request topics once, without a retry: for use within `retry`.

        With ``create`` a broker whose ``auto.create.topics.enable`` is true creates missing topics.
        """
        found = self._describe(names, create=create)
        return {topic.name: found.metadata(topic) for topic in found.topics}

    def _describe(self, names: list[str] | None, *, create: bool = False) -> _Description:
        """Request topics, all of them if ``names`` is None.

        The same response to the same request is not decoded again: for topics with thousands of partitions that takes
        longer than the request itself.
        """
        connection = self.any_connection()
        version = connection.version(ApiKey.METADATA)
        request_topic = apis.request_class(ApiKey.METADATA).MetadataRequestTopic
        topics = None if names is None else [request_topic(version=version, name=name) for name in names]
        request = apis.request(ApiKey.METADATA, version, topics=topics, allow_auto_topic_creation=create)
        question = _Question(connection, ApiKey.METADATA, version, apis.encode_request(request, version))
        behind, self._behind = self._behind, None
        (_, response), *offsets = self._exchange(chain([question], self._questions_behind(behind)))
        before, messages = self._description, (bytes(question.body), bytes(response))
        if before is None or before.messages != messages:
            return self._decoded(question, messages)
        if (
            behind is not None
            and offsets
            and all(before.known.get(each.name) is each for each in behind.known.values())
        ):
            with suppress(KafkaError):
                self._behind = replace(behind, found=_decoded_offsets(offsets))
        return before

    def _decoded(self, question: _Question, messages: tuple[bytes, bytes]) -> _Description:
        try:
            answer = apis.decode_response(ApiKey.METADATA, question.version, messages[1])
        except BaseException:
            self.drop(question.connection.address)
            raise
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._known_brokers = list(brokers.values())
        cluster = ClusterMetadata(
            getattr(answer, "cluster_id", None) or "",
            getattr(answer, "controller_id", -1),
            tuple(answer.brokers),
            tuple(answer.topics),
            ErrorCode.of(getattr(answer, "error_code", None) or 0),
        )
        self._description = _Description(messages, answer.topics, brokers, cluster)
        return self._description

    def _questions_behind(self, behind: _Behind | None) -> Iterator[_Question]:
        """Yield the requests to send behind a Metadata request: one to each leader, or none."""
        if behind is None:
            return
        try:
            by_leader = _by_leader(behind.wanted, behind.known)
        except (KafkaError, MissingTopicError):
            return
        if not by_leader.keys() <= self._connections.keys():
            return
        questions = self._offset_questions(by_leader)
        if all(len(each.body) <= MAX_BYTES_BEHIND for each in questions):
            yield from questions

    def connection(self, address: Address) -> BrokerConnection:
        """Return the connection to a broker, opened if needed."""
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BrokerConnection(*address, self.settings)
            self.reached = True
        return connection

    def drop(self, address: Address) -> None:
        """Close a connection that failed."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def interrupt(self, address: Address) -> None:
        """Interrupt a thread that waits on the connection to this broker; `drop` it when the thread has ended."""
        connection = self._connections.get(address)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections; the client may be used again."""
        for address in list(self._connections):
            self.drop(address)

    def retry(self, what: str, attempt: Callable[[], _Result]) -> _Result:
        """Call ``attempt`` until it succeeds, fails permanently, or the deadline has passed; no other thread's at once.

        Raises:
            KafkaUnreachableError: if the last failure was of the network.
            KafkaError: if the last failure was an error code.
        """
        begun_s = time.monotonic()
        limit_ms = self.settings.api_timeout_ms if self.reached else self.settings.first_contact_ms()
        deadline_s = begun_s + limit_ms / 1000

        def note(error: Exception) -> None:
            _log.debug("%s: could not %s (%s), trying again", self.named, what, error)
            if self.reached:
                with self._alone:
                    self._outage.note_failure(what, error, deadline_s - time.monotonic())

        def alone() -> _Result:
            with self._alone:
                result = attempt()
                self._outage.note_answer()
                return result

        def limit_after_ms(error: Exception) -> int:
            return limit_ms if self.reached else self.settings.first_contact_ms(error)

        def passes(error: Exception) -> bool:
            return may_pass(error, self.reached) and time.monotonic() < begun_s + limit_after_ms(error) / 1000

        errors = OSError, ProtocolError, KafkaError
        try:
            return retry(alone, errors, self.settings.pauses_s(), deadline_s=deadline_s, may_pass=passes, note=note)
        except errors as error:
            raise self._final(what, error, limit_after_ms(error)) from error

    def _final(self, what: str, error: Exception, limit_ms: int) -> Exception:
        if isinstance(error, (MissingTopicError, PermissionError, ssl.SSLCertVerificationError, KafkaError)):
            return error
        servers, why = self.settings.servers_text, f"({type(error).__name__}: {error})"
        if isinstance(error, socket.gaierror) and not self.reached:
            return KafkaUnreachableError(
                f"no resolvable bootstrap urls given in bootstrap.servers: {servers} {why}: could not {what}. "
                "Check the host names, and the DNS server."
            )
        hint = " Check that a broker listens there, and kafka.security.protocol."
        if self.reached:
            is_unknown = isinstance(error, socket.gaierror)
            hint = " The host name of a broker is unknown here: check its advertised.listeners." if is_unknown else ""
        return KafkaUnreachableError(
            f"no answer from Kafka at {servers} within {limit_ms} ms {why}: could not {what}.{hint}"
        )

    def any_connection(self) -> BrokerConnection:
        """Return a connection to any broker: an open one, else to a known broker, else to a bootstrap server."""
        for connection in self._connections.values():
            return connection
        failure: Exception | None = None
        for address in dict.fromkeys([*self._known_brokers, *self.settings.bootstrap_servers]):
            try:
                return self.connection(address)
            except (PermissionError, ssl.SSLCertVerificationError):
                raise
            except (OSError, ProtocolError) as error:
                failure = error if failure is None else _more_hopeful(failure, error)
        assert failure is not None
        raise failure

    def all_connections(self) -> list[BrokerConnection]:
        """Return a connection to every broker of the cluster; for use within `retry`.

        Raises:
            OSError, ProtocolError: if one of them cannot be reached.
        """
        self.topics_now([])
        return [self.connection(address) for address in self._known_brokers]

    def ask(self, connection: BrokerConnection, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """Send one request by the generated codecs, and return the decoded response; a failed connection is dropped."""
        body = apis.encode_request(apis.request(api_key, version, **fields), version)
        try:
            return apis.decode_response(api_key, version, connection.request(api_key, version, body))
        except BaseException:  # a response may still be in flight
            self.drop(connection.address)
            raise

    def _exchange(self, questions: Iterable[_Question]) -> list[tuple[_Question, memoryview]]:
        """Send requests, without waiting for the response to one before the next, and return their responses."""
        sent: list[_Question] = []
        try:
            for each in questions:
                sent.append(each)
                each.connection.send(each.api_key, each.version, each.body)
            return [(each, each.connection.receive(bytearray())) for each in sent]
        except BaseException:  # responses may still be in flight
            for each in sent:
                self.drop(each.connection.address)
            raise

    def _offsets(
        self, wanted: Mapping[tuple[str, int], int], metadata: Mapping[str, TopicMetadata]
    ) -> dict[tuple[str, int], int]:
        return _decoded_offsets(self._exchange(self._offset_questions(_by_leader(wanted, metadata))))

    def _offset_questions(self, by_leader: Mapping[Address, Mapping[str, list[Asked]]]) -> list[_Question]:
        questions = []
        for address, topics in by_leader.items():
            connection = self.connection(address)
            version = connection.version(ApiKey.LIST_OFFSETS)
            body = list_offsets.encode_request(
                version,
                topics,
                read_committed=self.settings.read_committed,
                timeout_ms=self.settings.request_timeout_ms,
            )
            questions.append(_Question(connection, ApiKey.LIST_OFFSETS, version, body))
        return questions

    def _epoch_ends(
        self, wanted: Mapping[tuple[str, int], int], metadata: Mapping[str, TopicMetadata]
    ) -> dict[tuple[str, int], EpochEnd]:
        codec = apis.request_class(ApiKey.OFFSET_FOR_LEADER_EPOCH).OffsetForLeaderTopic
        found: dict[tuple[str, int], EpochEnd] = {}
        for address, topics in _by_leader(wanted, metadata).items():
            connection = self.connection(address)
            if not connection.serves(ApiKey.OFFSET_FOR_LEADER_EPOCH):
                return {}
            version = connection.version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
            body = [
                codec(
                    version=version,
                    topic=topic,
                    partitions=[
                        codec.OffsetForLeaderPartition(
                            version=version, partition=partition, current_leader_epoch=current, leader_epoch=epoch
                        )
                        for partition, current, epoch in partitions
                    ],
                )
                for topic, partitions in topics.items()
            ]
            replica = {"replica_id": _CONSUMER} if version >= REPLICA_ID_FROM else {}
            answer = self.ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=body, **replica)
            for result in answer.topics:
                for each in result.partitions:
                    if each.error_code:
                        raise KafkaError(
                            ErrorCode.of(each.error_code), f"leader epochs of {result.topic}-{each.partition}"
                        )
                    found[result.topic, each.partition] = EpochEnd(each.leader_epoch, each.end_offset)
        return found


def _more_hopeful(first: Exception, second: Exception) -> Exception:
    """Return that of two servers' errors which is more likely to pass: a name without an address is the least."""

    def hope(error: Exception) -> int:
        if isinstance(error, socket.gaierror):
            return int(may_pass(error, False))
        return 2 if isinstance(error, ConnectionRefusedError) else 3

    return first if hope(first) > hope(second) else second


def _by_leader(
    wanted: Mapping[tuple[str, int], int], metadata: Mapping[str, TopicMetadata]
) -> dict[Address, dict[str, list[Asked]]]:
    """Return the partitions of each broker, by topic, with their leader epochs and the numbers that are ``wanted``."""
    found: dict[Address, dict[str, list[Asked]]] = defaultdict(lambda: defaultdict(list))
    for (topic, partition), number in wanted.items():
        leader = leader_of(metadata, topic, partition)
        found[leader.address][topic].append((partition, leader.epoch, number))
    return found


def _may_be_led(known: Mapping[str, TopicMetadata], topic: str, partition: int) -> bool:
    """Whether a partition is not known to be without a leader."""
    return topic not in known or known[topic].partitions.get(partition, True) is not None


def _decoded_offsets(answers: Iterable[tuple[_Question, memoryview]]) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for question, body in answers:
        found |= list_offsets.decode_response(question.version, body)
    return found


_shared: dict[tuple[int, ClientSettings, str, str], Client] = {}
READING = "reading"
"""The `use` of a client by the threads that fetch ahead."""


def shared_client(
    settings: ClientSettings, use: str = "", *, named: str = KAFKA_FORMAT, reached: bool = False
) -> Client:
    """Return this process's client for these settings, whose connections are kept from one batch to the next.

    A forked child gets clients of its own. A task that reads in a thread while it writes has a client for each ``use``,
    so that neither waits for the other. ``named``, ``reached``: see `Client`.
    """
    client = _shared.setdefault((os.getpid(), settings, use, named), Client(settings, named))
    client.reached = client.reached or reached
    return client
