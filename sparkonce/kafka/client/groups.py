"""The groups of a cluster: ListGroups, from each broker for those that it coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError


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
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), "list groups")
            found += [
                GroupListing(
                    each.group_id, getattr(each, "group_state", None) or "", getattr(each, "group_type", None) or ""
                )
                for each in answer.groups
            ]
        return sorted(found)

    return client.retry("list groups", attempt)
