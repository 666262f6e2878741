"""Which handler answers which API."""

from __future__ import annotations

from collections.abc import Callable

from broker_lite.handlers import (
    acls,
    api_versions,
    cluster,
    create_topics,
    delete_topics,
    fetch,
    group_admin,
    groups,
    init_producer_id,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sasl,
    scram_users,
)
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol.apis import APIS, ApiKey, serves

HANDLERS: dict[int, Callable[[Broker, Request], Body | None]] = {
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.OFFSET_COMMIT: offset_commit.handle,
    ApiKey.OFFSET_FETCH: offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: cluster.handle_find_coordinator,
    ApiKey.JOIN_GROUP: groups.handle_join,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave,
    ApiKey.SYNC_GROUP: groups.handle_sync,
    ApiKey.DESCRIBE_GROUPS: group_admin.handle_describe,
    ApiKey.LIST_GROUPS: group_admin.handle_list,
    ApiKey.API_VERSIONS: api_versions.handle,
    ApiKey.CREATE_TOPICS: create_topics.handle,
    ApiKey.DELETE_TOPICS: delete_topics.handle,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.handle,
    ApiKey.DELETE_GROUPS: group_admin.handle_delete,
    ApiKey.SASL_HANDSHAKE: sasl.handle_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl.handle_authenticate,
    ApiKey.DESCRIBE_ACLS: acls.handle_describe,
    ApiKey.CREATE_ACLS: acls.handle_create,
    ApiKey.DELETE_ACLS: acls.handle_delete,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_users.handle_describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram_users.handle_alter,
    ApiKey.DESCRIBE_CLUSTER: cluster.handle_describe_cluster,
}

assert set(HANDLERS) == set(APIS), "advertised and served APIs differ"


def handle(broker: Broker, request: Request) -> Body | None:
    """Answer a request; None means that the answer comes later.

    Raises:
        ProtocolError: if the request's bytes are malformed; its connection is to be closed.
    """
    return HANDLERS[request.api_key](broker, request)


def answered_version(request: Request) -> int:
    """Give the version that the answer is in: that of the request, unless it asked ApiVersions beyond what we know."""
    return request.version if serves(request.api_key, request.version) else 0
