"""A consumer group's committed offsets, over our own client: the backend of `offset_store.group`.

Commits are those of a simple consumer, which assigns its partitions itself: generation -1 and no member id. Kafka
accepts them only while the group has no members (`ClassicGroup.validateOffsetCommit`,
`ConsumerGroup.validateOffsetCommit`). Both requests are sent in versions that name topics and hold one group, which
every broker from Kafka 0.11 to 4.x serves; absent are topic ids (v10) and several groups at once (v8 of OffsetFetch).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.groups import coordinator_of
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import Committed, CommittedOffset, Slot

MAX_OFFSET_FETCH_VERSION = 7
"""The last version with a single group."""
MAX_OFFSET_COMMIT_VERSION = 8
"""The last version before KIP-848's member errors, which never apply here."""
REQUIRE_STABLE_FROM = 7
EPOCH_FROM = 6
"""From this version on, a commit has the leader epoch of the record before the offset (KIP-320)."""
DEAD = "Dead"
VACANT_STATES = ("", "Empty", DEAD)
"""States in which a group has no members; an unused id is Dead."""
MEMBERSHIP_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)

_Result = TypeVar("_Result")


class KafkaGroupOffsets:
    """One group on the cluster that ``client`` talks to; implements `offset_store.group.GroupOffsets`."""

    def __init__(
        self, client: Client, group_id: str, option: str = "offsetStore", *, require_stable: bool = True
    ) -> None:
        """``option`` is the option with the group's name, for messages.

        Without ``require_stable``, the last committed offset is returned even if an open transaction has a newer one.
        """
        self._client = client
        self._group_id = group_id
        self._option = option
        self._require_stable = require_stable
        self._coordinator: tuple[str, int] | None = None

    def __str__(self) -> str:
        return f"group:{self._group_id}"

    def fetch(self) -> Committed:
        """See `GroupOffsets.fetch`."""
        return self._retry(f"fetch the offsets of {self}", self._fetch)

    def update(self, build: Callable[[Committed], Committed]) -> None:
        """See `GroupOffsets.update`."""

        def attempt() -> None:
            wanted = build(self._fetch())
            if wanted:
                self._commit(wanted)

        self._retry(f"commit offsets to {self}", attempt)

    def check_vacant(self) -> None:
        """See `GroupOffsets.check_vacant`; checks groups of both consumer protocols."""
        state = self._retry(f"describe {self}", self._state)
        if state not in VACANT_STATES:
            raise self._occupied(f"it is in state {state}")

    def _occupied(self, why: str) -> OffsetStoreError:
        return OffsetStoreError(
            f"{self} at {self._client.settings.servers_text} has live members ({why}), so Kafka accepts commits from "
            f"them only. Stop its consumers, or choose another group id for {self._option}"
        )

    def _retry(self, what: str, attempt: Callable[[], _Result]) -> _Result:
        """Call ``attempt`` until it succeeds, finding the coordinator again after a failure."""

        def with_fresh_coordinator() -> _Result:
            try:
                return attempt()
            except (OSError, KafkaError):
                self._coordinator = None
                raise

        try:
            return self._client.retry(what, with_fresh_coordinator)
        except KafkaError as error:
            self._explain(what, error)

    def _explain(self, what: str, error: KafkaError) -> NoReturn:
        if error.code in MEMBERSHIP_ERRORS:
            raise self._occupied(error.code.name) from error
        hints = {
            ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user needs READ and DESCRIBE on the group",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user needs READ on the topic",
            ErrorCode.INVALID_GROUP_ID: f"choose another group id for {self._option}",
            ErrorCode.OFFSET_METADATA_TOO_LARGE: "appId and source are in each offset's metadata: make them shorter, "
            "or raise offset.metadata.max.bytes of the brokers",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "is kafka.bootstrap.servers the cluster that the source reads from?",
        }
        hint = hints.get(error.code)
        raise OffsetStoreError(f"could not {what}: {error}" + (f"; {hint}" if hint else "")) from error

    def _connection(self) -> BrokerConnection:
        """Return the connection to the group's coordinator, which is looked up if needed."""
        if self._coordinator is None:
            self._coordinator = coordinator_of(self._client, self._group_id)
        return self._client.connection(self._coordinator)

    def _state(self) -> str:
        connection = self._connection()
        version = connection.version(ApiKey.DESCRIBE_GROUPS)
        answer = self._client.ask(connection, ApiKey.DESCRIBE_GROUPS, version, groups=[self._group_id])
        (group,) = answer.groups
        if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND or group.group_state == DEAD:
            return self._consumer_state(connection) if connection.serves(ApiKey.CONSUMER_GROUP_DESCRIBE) else DEAD
        _check(group.error_code, "describe the group")
        return str(group.group_state)

    def _consumer_state(self, connection: BrokerConnection) -> str:
        """Describe a group of the newer protocol (KIP-848), which DescribeGroups reports as missing."""
        version = connection.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
        answer = self._client.ask(connection, ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[self._group_id])
        (group,) = answer.groups
        # A broker that knows the request may have the protocol disabled (group.coordinator.rebalance.protocols).
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return DEAD
        if group.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return "unknown: its members read topics that this user may not describe"
        _check(group.error_code, "describe the group")
        return str(group.group_state)

    def _fetch(self) -> dict[Slot, CommittedOffset]:
        connection = self._connection()
        version = min(connection.version(ApiKey.OFFSET_FETCH), MAX_OFFSET_FETCH_VERSION)
        # With it, the offset of an open transaction would be a retriable error instead of the last committed one.
        stable = {"require_stable": self._require_stable} if version >= REQUIRE_STABLE_FROM else {}
        answer = self._client.ask(
            connection, ApiKey.OFFSET_FETCH, version, group_id=self._group_id, topics=None, **stable
        )
        _check(answer.error_code, "fetch offsets")
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                _check(each.error_code, f"{topic.name}-{each.partition_index}")
                if each.committed_offset >= 0:
                    epoch = getattr(each, "committed_leader_epoch", None)
                    found[topic.name, each.partition_index] = CommittedOffset(
                        each.committed_offset, each.metadata or "", None if epoch is None or epoch < 0 else epoch
                    )
        return found

    def _commit(self, wanted: Committed) -> None:
        connection = self._connection()
        version = min(connection.version(ApiKey.OFFSET_COMMIT), MAX_OFFSET_COMMIT_VERSION)
        answer = self._client.ask(
            connection,
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=self._group_id,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=_topics(version, wanted),
        )
        for topic in answer.topics:
            for each in topic.partitions:
                _check(each.error_code, f"{topic.name}-{each.partition_index}")


def _topics(version: int, wanted: Committed) -> list[Any]:
    kind = apis.request_class(ApiKey.OFFSET_COMMIT).OffsetCommitRequestTopic
    by_topic: dict[str, list[Any]] = defaultdict(list)
    for (name, partition), entry in sorted(wanted.items()):
        by_topic[name].append(
            kind.OffsetCommitRequestPartition(
                version=version,
                partition_index=partition,
                committed_offset=entry.offset,
                committed_metadata=entry.metadata,
                **({} if entry.epoch is None or version < EPOCH_FROM else {"committed_leader_epoch": entry.epoch}),
            )
        )
    return [kind(version=version, name=name, partitions=partitions) for name, partitions in by_topic.items()]


def _check(error_code: int, where: str) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code), where)
