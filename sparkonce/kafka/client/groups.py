"""The groups of a cluster: all of them, from each broker for those that it coordinates; and the members of one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.connection import BrokerConnection
from sparkonce.kafka.client.metadata import Address
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

MAX_FIND_COORDINATOR_VERSION = 3
"""The last version with a single group."""
CONSUMER = "consumer"
"""The kind of a group of KIP-848, and the protocol type of consumers in a classic one."""


@dataclass(frozen=True, slots=True, order=True)
class GroupListing:
    """One group; ``state`` and ``kind`` are empty if the broker does not return them."""

    group_id: str
    state: str
    kind: str
    """``classic``, ``consumer``, …"""


def list_groups(client: Client) -> list[GroupListing]:
    """Return all brokers' groups, sorted. Raises KafkaUnreachableError or KafkaError if one does not answer."""

    def attempt() -> list[GroupListing]:
        found = []
        for connection in client.all_connections():
            version = connection.version(ApiKey.LIST_GROUPS)
            answer = client.ask(connection, ApiKey.LIST_GROUPS, version)
            _check(answer.error_code, "list groups")
            found += [
                GroupListing(
                    each.group_id, getattr(each, "group_state", None) or "", getattr(each, "group_type", None) or ""
                )
                for each in answer.groups
            ]
        return sorted(found)

    return client.retry("list groups", attempt)


@dataclass(frozen=True, slots=True, order=True)
class GroupMember:
    """A member of a group."""

    client_id: str
    host: str
    """Its address, as its coordinator sees it, without the slash that Java writes before it."""
    member_id: str
    instance_id: str
    """``group.instance.id``; "" without one."""
    assigned: tuple[tuple[str, tuple[int, ...]], ...]
    """Its partitions, by topic."""


def coordinator_of(client: Client, group_id: str) -> Address:
    """Ask once which broker coordinates a group; for use within `Client.retry`. Raises KafkaError, OSError."""
    connection = client.any_connection()
    version = min(connection.version(ApiKey.FIND_COORDINATOR), MAX_FIND_COORDINATOR_VERSION)
    answer = client.ask(connection, ApiKey.FIND_COORDINATOR, version, key=group_id)
    _check(answer.error_code, "find the coordinator")
    return answer.host, answer.port


def group_members(client: Client, group_id: str, kind: str) -> list[GroupMember]:
    """Return the members of a group of this kind, sorted.

    Raises:
        KafkaUnreachableError: if its coordinator does not answer.
        KafkaError: if it answers with an error.
    """

    def attempt() -> list[GroupMember]:
        connection = client.connection(coordinator_of(client, group_id))
        return sorted((_consumer_members if kind == CONSUMER else _classic_members)(client, connection, group_id))

    return client.retry(f"describe the group {group_id}", attempt)


def _consumer_members(client: Client, connection: BrokerConnection, group_id: str) -> list[GroupMember]:
    version = connection.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
    answer = client.ask(connection, ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=[group_id])
    (group,) = answer.groups
    _check(group.error_code, f"describe the group {group_id}")
    shares = [
        tuple((one.topic_name, tuple(one.partitions)) for one in each.assignment.topic_partitions)
        for each in group.members
    ]
    return [_member(each, each.instance_id, share) for each, share in zip(group.members, shares, strict=True)]


def _classic_members(client: Client, connection: BrokerConnection, group_id: str) -> list[GroupMember]:
    version = connection.version(ApiKey.DESCRIBE_GROUPS)
    answer = client.ask(connection, ApiKey.DESCRIBE_GROUPS, version, groups=[group_id])
    (group,) = answer.groups
    _check(group.error_code, f"describe the group {group_id}")
    is_consumer = group.protocol_type == CONSUMER
    return [
        _member(
            each,
            getattr(each, "group_instance_id", None),
            assigned_partitions(each.member_assignment) if is_consumer else (),
        )
        for each in group.members
    ]


def _member(each: Any, instance_id: str | None, assigned: tuple[tuple[str, tuple[int, ...]], ...]) -> GroupMember:
    return GroupMember(each.client_id, each.client_host.removeprefix("/"), each.member_id, instance_id or "", assigned)


def assigned_partitions(data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Decode the partitions of a `ConsumerProtocolAssignment` (version, topics, user data); () if it is none."""
    found, at = [], 2
    try:
        (topics,) = struct.unpack_from(">i", data, at)
        at += 4
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", data, at)
            name = bytes(data[at + 2 : at + 2 + length]).decode()
            (count,) = struct.unpack_from(">i", data, at + 2 + length)
            at += 6 + length
            found.append((name, struct.unpack_from(f">{count}i", data, at)))
            at += 4 * count
    except (struct.error, UnicodeDecodeError):  # an assignor of the user's own, or no assignment yet
        return ()
    return tuple(found)


def _check(code: int, what: str) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), what)
