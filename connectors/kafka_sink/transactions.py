"""Transactions as their coordinators see them: begin, extend, end, and look at them, also from another process.

A transaction belongs to a transactional id, and is distinguished from the next one of that id by the producer's epoch.
Any process that knows id, producer id and epoch can end it with EndTxn. That is how the driver ends what tasks have
written. So that an EndTxn never meets a later transaction, every transaction here begins with InitProducerId, which
gives it an epoch of its own; and requests are sent in the versions before KIP-890's second part (EndTxn 4, Produce 11,
AddPartitionsToTxn 3), in which ending a transaction changes no epoch. Every broker from Kafka 0.11 to 4.x serves them;
looking at transactions (DescribeTransactions, ListTransactions) needs Kafka 3.0 (KIP-664).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NoReturn, TypeVar
from urllib.parse import quote

from sparkonce.connectors.kafka_sink.pipelining import Question, send_pipelined
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.retry import growing, retry
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import RETRIABLE, ErrorCode, KafkaError, ProtocolError
from sparkonce.offset_store.group import CommittedOffset, Slot

MAX_INIT_PRODUCER_ID_VERSION = 4
MAX_ADD_PARTITIONS_VERSION = 3
MAX_ADD_OFFSETS_VERSION = 3
MAX_TXN_OFFSET_COMMIT_VERSION = 4
EPOCH_FROM = 2
"""The first version of it in which each offset has its leader epoch (KIP-320)."""
MAX_END_TXN_VERSION = 4
MAX_LIST_TRANSACTIONS_VERSION = 1
"""The first two that have no pattern, which brokers before Kafka 4.1 do not know: names are compared here."""
MAX_FIND_COORDINATOR_VERSION = 4
SEVERAL_COORDINATORS_FROM = 4
"""From this version of FindCoordinator on one request asks for several keys (KIP-699)."""
FENCING_TIMEOUT_MS = 1
"""The transaction timeout that only fencing sets on a transactional id. So a fenced id can be distinguished from one
that a task has claimed. It is the shortest that Kafka accepts."""
MEMBERSHIP_FROM = 3
"""From this version on TxnOffsetCommit carries a generation and a member (KIP-447); ours is of no member."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.05
"""How long to wait while markers of the transaction before are written: milliseconds, where a back-off is 100."""

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
"""Errors for a producer whose transactional id was claimed by another one, or whose transaction timed out."""

_Result = TypeVar("_Result")
_Address = tuple[str, int]
Partition = tuple[str, int]


class TransactionError(RuntimeError):
    """Kafka rejects a step of a transaction; the message says which, and what to do."""


class FencedProducerError(TransactionError):
    """Another producer has claimed the transactional id since, or its transaction timed out."""


class CoordinatorKind(Enum):
    """What FindCoordinator looks for."""

    GROUP = 0
    TRANSACTION = 1


class State(Enum):
    """Kafka's states of a transaction (`TransactionState`), by their names in requests."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @property
    def is_open(self) -> bool:
        """Whether readers of committed records wait for it."""
        return self in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE)

    @property
    def is_committed(self) -> bool:
        """Whether its end is decided, and is a commit."""
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)


OPEN_STATES = tuple(state for state in State if state.is_open)


@dataclass(frozen=True, slots=True, order=True)
class ProducerIdentity:
    """The identity of a producer at the brokers; without a transactional id it is only idempotent."""

    transactional_id: str | None
    producer_id: int
    epoch: int

    @property
    def name(self) -> str:
        """The transactional id of a producer that has one."""
        assert self.transactional_id is not None, "an idempotent producer has no transactions"
        return self.transactional_id


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The coordinator's description of a transactional id; durations in ms, timestamps in ms since 1970."""

    transactional_id: str
    state: State
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[Partition, ...]

    def is_of(self, identity: ProducerIdentity) -> bool:
        """Whether this is the transaction of that producer, and not an earlier or later one of the same id."""
        return (self.producer_id, self.epoch) == (identity.producer_id, identity.epoch)


class TransactionClient:
    """Requests to transaction and group coordinators over a client. Every call is retried where that may help."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._coordinators: dict[tuple[CoordinatorKind, str], _Address] = {}

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int) -> ProducerIdentity:
        """Claim a transactional id: its open transaction is aborted, and older holders are fenced; or just get an id.

        Raises:
            TransactionError: if the id or the timeout is refused.
            KafkaUnreachableError: if no broker answers in time.
        """

        def attempt() -> ProducerIdentity:
            connection = self._of(transactional_id)
            answer = self._ask(
                connection,
                ApiKey.INIT_PRODUCER_ID,
                MAX_INIT_PRODUCER_ID_VERSION,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms if transactional_id is not None else 2**31 - 1,
            )
            _check(answer.error_code, "")
            return ProducerIdentity(transactional_id, answer.producer_id, answer.producer_epoch)

        what = f"claim the transactional id {transactional_id!r} with a timeout of {timeout_ms} ms"
        return self._retry(what, transactional_id, attempt)

    def fence(self, transactional_ids: Collection[str]) -> None:
        """Abort open transactions of these ids, and fence their producers. Raises as `init_producer_id`."""
        self._for_each(
            "fence transactional ids",
            ApiKey.INIT_PRODUCER_ID,
            MAX_INIT_PRODUCER_ID_VERSION,
            {
                name: {"transactional_id": name, "transaction_timeout_ms": FENCING_TIMEOUT_MS}
                for name in transactional_ids
            },
        )

    def add_partitions(
        self, identity: ProducerIdentity, partitions: Iterable[Partition], group_id: str | None = None
    ) -> None:
        """Add partitions to the transaction, which begins with the first, and then a group's offsets if one is named.

        Both take one round trip.

        Raises:
            FencedProducerError: if another producer has claimed the id.
            TransactionError: if a partition or the group is refused.
        """
        by_topic: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            by_topic[topic].append(partition)

        def attempt() -> None:
            connection = self._of(identity.name)
            questions = [_partitions_question(connection, identity, by_topic)] if by_topic else []
            if group_id is not None:
                questions.append(_group_question(connection, identity, group_id))
            for answer in send_pipelined(self._client, questions):
                _check_added(answer, group_id)

        if by_topic or group_id is not None:
            self._retry(f"extend the transaction of {identity.name!r}", identity.name, attempt)

    def commit_offsets(
        self, identity: ProducerIdentity, group_id: str, offsets: Mapping[Slot, CommittedOffset]
    ) -> None:
        """Commit a group's offsets within the transaction: they count when it is committed (KIP-98, KIP-447).

        Raises:
            FencedProducerError: if another producer has claimed the id.
            TransactionError: if the group has members, or a partition is refused.
        """
        by_topic: dict[str, list[tuple[int, CommittedOffset]]] = defaultdict(list)
        for (topic, partition), offset in sorted(offsets.items()):
            by_topic[topic].append((partition, offset))
        codec = apis.request_class(ApiKey.TXN_OFFSET_COMMIT).TxnOffsetCommitRequestTopic

        def attempt() -> None:
            connection = self._coordinator(CoordinatorKind.GROUP, group_id)
            version = _version(connection, ApiKey.TXN_OFFSET_COMMIT, MAX_TXN_OFFSET_COMMIT_VERSION)
            topics = [
                codec(
                    version=version,
                    name=name,
                    partitions=[
                        codec.TxnOffsetCommitRequestPartition(
                            version=version,
                            partition_index=partition,
                            committed_offset=entry.offset,
                            committed_metadata=entry.metadata,
                            **(
                                {}
                                if entry.epoch is None or version < EPOCH_FROM
                                else {"committed_leader_epoch": entry.epoch}
                            ),
                        )
                        for partition, entry in partitions
                    ],
                )
                for name, partitions in by_topic.items()
            ]
            member = {"generation_id": -1, "member_id": ""} if version >= MEMBERSHIP_FROM else {}
            answer = self._client.ask(
                connection,
                ApiKey.TXN_OFFSET_COMMIT,
                version,
                transactional_id=identity.name,
                group_id=group_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                topics=topics,
                **member,
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    _check(each.error_code, f"group {group_id}, {topic.name}-{each.partition_index}")

        self._retry(f"commit offsets of group {group_id} in a transaction", group_id, attempt)

    def end(self, identity: ProducerIdentity, *, commit: bool) -> None:
        """End the transaction of exactly this epoch.

        Raises:
            FencedProducerError: if another producer has claimed the id, or the transaction timed out.
            TransactionError: if there is no such transaction, or it was ended the other way.
        """

        def attempt() -> None:
            answer = self._ask(
                self._of(identity.name),
                ApiKey.END_TXN,
                MAX_END_TXN_VERSION,
                transactional_id=identity.name,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=commit,
            )
            _check(answer.error_code, identity.name)

        self._retry(f"{'commit' if commit else 'abort'} the transaction of {identity.name!r}", identity.name, attempt)

    def end_all(self, identities: Iterable[ProducerIdentity], *, commit: bool) -> None:
        """End the transactions of exactly these epochs at once. Raises as `end` for the first refusal, after all."""
        self._for_each(
            f"{'commit' if commit else 'abort'} transactions",
            ApiKey.END_TXN,
            MAX_END_TXN_VERSION,
            {
                each.name: {
                    "transactional_id": each.name,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.epoch,
                    "committed": commit,
                }
                for each in identities
            },
        )

    def describe(self, transactional_ids: Collection[str]) -> dict[str, TransactionDescription]:
        """Return coordinators' descriptions of these ids, if known. Raises TransactionError if that is not allowed."""
        found: dict[str, TransactionDescription] = {}
        left = set(transactional_ids)

        def attempt() -> None:
            by_coordinator: dict[_Address, list[str]] = defaultdict(list)
            self._locate(CoordinatorKind.TRANSACTION, left)
            for name in sorted(left):
                by_coordinator[self._address(CoordinatorKind.TRANSACTION, name)].append(name)
            questions = [
                _question(
                    self._client.connection(address), ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": names}
                )
                for address, names in by_coordinator.items()
            ]
            for answer in send_pipelined(self._client, questions):
                for each in answer.transaction_states:
                    if each.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                        _check(each.error_code, each.transactional_id)
                        found[each.transactional_id] = _description(each)
                    left.discard(each.transactional_id)

        self._retry("look at transactions", None, attempt)
        return found

    def open_transactions(self, prefix: str, states: Collection[State] = OPEN_STATES) -> list[str]:
        """Return the transactional ids that begin with ``prefix`` and are in one of the ``states``, sorted.

        These are, if none are given, those of transactions that readers of committed records wait for.

        Raises:
            TransactionError: if this user may not look.
        """
        return sorted(self.states(prefix, states))

    def states(self, prefix: str, wanted: Collection[State]) -> dict[str, State]:
        """Return wanted states of transactional ids with ``prefix``. Raises TransactionError if this is not allowed."""

        def attempt() -> dict[str, State]:
            found: dict[str, State] = {}
            filters = {"state_filters": [state.value for state in wanted], "producer_id_filters": []}
            questions = [
                _question(connection, ApiKey.LIST_TRANSACTIONS, MAX_LIST_TRANSACTIONS_VERSION, filters)
                for connection in self._client.all_connections()
            ]
            for answer in send_pipelined(self._client, questions):
                _check(answer.error_code, "")
                for each in answer.transaction_states:
                    if each.transactional_id.startswith(prefix):
                        found[each.transactional_id] = State(each.transaction_state)
            return found

        return self._retry("list transactions", None, attempt)

    def _for_each(
        self, what: str, api_key: ApiKey, max_version: int, requests: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Make a request for each transactional id, all at once, and again those that may succeed later.

        Raises:
            FencedProducerError, TransactionError: for the first that is refused, when all others were answered.
        """
        left = dict(sorted(requests.items()))
        refused: list[KafkaError] = []

        def attempt() -> None:
            self._locate(CoordinatorKind.TRANSACTION, left)
            questions = [_question(self._of(name), api_key, max_version, fields) for name, fields in left.items()]
            passing: KafkaError | None = None
            for name, answer in zip(list(left), send_pipelined(self._client, questions), strict=True):
                error = KafkaError(ErrorCode.of(answer.error_code), name)
                if error.code in RETRIABLE or error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                    passing = passing or error
                    continue
                del left[name]
                if error.code is not ErrorCode.NONE:
                    refused.append(error)
            if passing is not None:
                raise passing

        if left:
            self._retry(what, None, attempt)
        if refused:
            _explain(what, refused[0])

    def _ask(self, connection: BrokerConnection, api_key: ApiKey, max_version: int, **fields: Any) -> Any:
        return self._client.ask(connection, api_key, _version(connection, api_key, max_version), **fields)

    def _of(self, transactional_id: str | None) -> BrokerConnection:
        if transactional_id is None:
            return self._client.any_connection()
        return self._coordinator(CoordinatorKind.TRANSACTION, transactional_id)

    def _coordinator(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        return self._client.connection(self._address(kind, key))

    def _address(self, kind: CoordinatorKind, key: str) -> _Address:
        self._locate(kind, [key])
        return self._coordinators[kind, key]

    def _locate(self, kind: CoordinatorKind, keys: Iterable[str]) -> None:
        """Find the coordinators that are not known yet, with one request where brokers answer for several."""
        unknown = sorted({key for key in keys if (kind, key) not in self._coordinators})
        if not unknown:
            return
        connection = self._client.any_connection()
        version = _version(connection, ApiKey.FIND_COORDINATOR, MAX_FIND_COORDINATOR_VERSION)
        typed = {"key_type": kind.value} if version > 0 else {}
        if version >= SEVERAL_COORDINATORS_FROM:
            answer = self._client.ask(connection, ApiKey.FIND_COORDINATOR, version, coordinator_keys=unknown, **typed)
            answers = [(each.key, each) for each in answer.coordinators]
        else:
            answers = [
                (key, self._client.ask(connection, ApiKey.FIND_COORDINATOR, version, key=key, **typed))
                for key in unknown
            ]
        for key, found in answers:
            _check(found.error_code, f"find the coordinator of {key}")
            self._coordinators[kind, key] = found.host, found.port
        unanswered = [key for key in unknown if (kind, key) not in self._coordinators]
        if unanswered:
            raise ProtocolError(f"the broker did not return a coordinator for {unanswered[0]!r}")

    def _retry(self, what: str, key: str | None, attempt: Callable[[], _Result]) -> _Result:
        """Call ``attempt`` until it succeeds, finding coordinators again after a failure."""
        deadline_s = time.monotonic() + self._client.settings.api_timeout_ms / 1000

        def once() -> _Result:
            pauses_s = growing(FIRST_PAUSE_S, LONGEST_PAUSE_S)
            try:
                return retry(attempt, KafkaError, pauses_s, deadline_s=deadline_s, may_pass=_is_concurrent)
            except (KafkaError, OSError, ProtocolError):
                self._forget(key)
                raise

        try:
            return self._client.retry(what, once)
        except KafkaError as error:
            _explain(what, error)

    def _forget(self, key: str | None) -> None:
        """Drop the cached coordinator of ``key``, or all."""
        gone = [known for known in self._coordinators if key is None or known[1] == key]
        for known in gone:
            del self._coordinators[known]


def _is_concurrent(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS


def _version(connection: BrokerConnection, api_key: ApiKey, max_version: int) -> int:
    return min(connection.version(api_key), max_version)


def _question(connection: BrokerConnection, api_key: ApiKey, max_version: int, fields: Mapping[str, Any]) -> Question:
    return Question(connection, api_key, _version(connection, api_key, max_version), fields)


def _partitions_question(
    connection: BrokerConnection, identity: ProducerIdentity, by_topic: Mapping[str, list[int]]
) -> Question:
    version = _version(connection, ApiKey.ADD_PARTITIONS_TO_TXN, MAX_ADD_PARTITIONS_VERSION)
    codec = apis.request_class(ApiKey.ADD_PARTITIONS_TO_TXN).AddPartitionsToTxnTopic
    fields = {
        "v3_and_below_transactional_id": identity.name,
        "v3_and_below_producer_id": identity.producer_id,
        "v3_and_below_producer_epoch": identity.epoch,
        "v3_and_below_topics": [
            codec(version=version, name=name, partitions=indexes) for name, indexes in by_topic.items()
        ],
    }
    return Question(connection, ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)


def _group_question(connection: BrokerConnection, identity: ProducerIdentity, group_id: str) -> Question:
    fields = {
        "transactional_id": identity.name,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.epoch,
        "group_id": group_id,
    }
    return _question(connection, ApiKey.ADD_OFFSETS_TO_TXN, MAX_ADD_OFFSETS_VERSION, fields)


def _check_added(answer: Any, group_id: str | None) -> None:
    """Check the response to either question."""
    if isinstance(answer, apis.response_class(ApiKey.ADD_OFFSETS_TO_TXN)):
        return _check(answer.error_code, f"group {group_id}")
    results = [
        (each.partition_error_code, f"{topic.name}-{each.partition_index}")
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    # Others are answered with OPERATION_NOT_ATTEMPTED where one is refused: the reason comes first.
    for code, where in sorted(results, key=lambda each: each[0] == ErrorCode.OPERATION_NOT_ATTEMPTED):
        _check(code, where)
    return None


def _check(error_code: int, where: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code), where)


def _description(answer: Any) -> TransactionDescription:
    return TransactionDescription(
        answer.transactional_id,
        State(answer.transaction_state),
        answer.producer_id,
        answer.producer_epoch,
        answer.transaction_timeout_ms,
        answer.transaction_start_time_ms,
        tuple((topic.topic, partition) for topic in answer.topics for partition in topic.partitions),
    )


_HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user needs WRITE and DESCRIBE on transactional ids that "
    "begin with sparkonce/",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user needs IDEMPOTENT_WRITE on the cluster",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user needs READ and DESCRIBE on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user needs WRITE and DESCRIBE on the topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "if it is a topic of the source: exactly-once commits its offsets on the "
    "cluster that the sink writes to, so it must be there",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "the brokers allow less (transaction.max.timeout.ms): set "
    "kafka.transaction.timeout.ms lower",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, and takes commits from them only: stop them, or choose "
    "another group for offsetStore",
    ErrorCode.ILLEGAL_GENERATION: "the group has members, and takes commits from them only: stop them, or choose "
    "another group for offsetStore",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "appId and source are kept beside each offset: make them shorter, or raise "
    "offset.metadata.max.bytes of the brokers",
}


def _explain(what: str, error: KafkaError) -> NoReturn:
    text = f"could not {what}: {error}"
    if error.code in FENCED:
        raise FencedProducerError(text) from error
    hint = _HINTS.get(error.code)
    raise TransactionError(text + (f"; {hint}" if hint else "")) from error


def transactional_prefix(*parts: str) -> str:
    """Return the prefix of an application's transactional ids; its parts are percent-encoded, so none has a slash."""
    return "/".join(["sparkonce", *(quote(part, safe="") for part in parts), ""])
