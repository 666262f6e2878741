"""Which handler answers which API.

A handler is imported when its API is first used: importing all of them would take longer than the rest of the start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.protocol.apis import APIS, ApiKey, serves

Handler = Callable[[Broker, Request], Body | None]

HANDLERS: Final[dict[int, str]] = {
    ApiKey.PRODUCE: "produce.handle",
    ApiKey.FETCH: "fetch.handle",
    ApiKey.LIST_OFFSETS: "list_offsets.handle",
    ApiKey.METADATA: "metadata.handle",
    ApiKey.OFFSET_COMMIT: "offset_commit.handle",
    ApiKey.OFFSET_FETCH: "offset_fetch.handle",
    ApiKey.FIND_COORDINATOR: "find_coordinator.handle",
    ApiKey.JOIN_GROUP: "join_group.handle",
    ApiKey.HEARTBEAT: "heartbeat.handle",
    ApiKey.LEAVE_GROUP: "leave_group.handle",
    ApiKey.SYNC_GROUP: "sync_group.handle",
    ApiKey.DESCRIBE_GROUPS: "describe_groups.handle",
    ApiKey.LIST_GROUPS: "list_groups.handle",
    ApiKey.API_VERSIONS: "api_versions.handle",
    ApiKey.CREATE_TOPICS: "create_topics.handle",
    ApiKey.DELETE_TOPICS: "delete_topics.handle",
    ApiKey.INIT_PRODUCER_ID: "init_producer_id.handle",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add_to_transaction.handle_partitions",
    ApiKey.ADD_OFFSETS_TO_TXN: "add_to_transaction.handle_offsets",
    ApiKey.END_TXN: "end_transaction.handle",
    ApiKey.WRITE_TXN_MARKERS: "write_txn_markers.handle",
    ApiKey.TXN_OFFSET_COMMIT: "txn_offset_commit.handle",
    ApiKey.DELETE_GROUPS: "delete_groups.handle",
    ApiKey.SASL_HANDSHAKE: "sasl.handle_handshake",
    ApiKey.SASL_AUTHENTICATE: "sasl.handle_authenticate",
    ApiKey.DESCRIBE_ACLS: "acls.handle_describe",
    ApiKey.CREATE_ACLS: "acls.handle_create",
    ApiKey.DELETE_ACLS: "acls.handle_delete",
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "scram_users.handle_describe",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram_users.handle_alter",
    ApiKey.OFFSET_DELETE: "offset_delete.handle",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "consumer_groups.handle_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "consumer_groups.handle_describe",
    ApiKey.DESCRIBE_CLUSTER: "describe_cluster.handle",
    ApiKey.DESCRIBE_QUORUM: "describe_quorum.handle",
    ApiKey.DELETE_RECORDS: "delete_records.handle",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "offset_for_leader_epoch.handle",
    ApiKey.DESCRIBE_CONFIGS: "describe_configs.handle",
    ApiKey.ALTER_CONFIGS: "alter_configs.handle_alter",
    ApiKey.ALTER_REPLICA_LOG_DIRS: "alter_replica_log_dirs.handle",
    ApiKey.DESCRIBE_LOG_DIRS: "describe_log_dirs.handle",
    ApiKey.CREATE_PARTITIONS: "create_partitions.handle",
    ApiKey.ELECT_LEADERS: "reassignments.handle_elect",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "alter_configs.handle_incremental",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "reassignments.handle_alter",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "reassignments.handle_list",
    ApiKey.DESCRIBE_CLIENT_QUOTAS: "client_quotas.handle",
    ApiKey.LIST_CONFIG_RESOURCES: "list_config_resources.handle",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "describe_topic_partitions.handle",
    ApiKey.DESCRIBE_PRODUCERS: "describe_producers.handle",
    ApiKey.DESCRIBE_TRANSACTIONS: "describe_transactions.handle_describe",
    ApiKey.LIST_TRANSACTIONS: "describe_transactions.handle_list",
    ApiKey.ALTER_PARTITION: "alter_partition.handle",
    ApiKey.ENVELOPE: "envelope.handle",
    ApiKey.BROKER_REGISTRATION: "broker_registration.handle",
    ApiKey.BROKER_HEARTBEAT: "broker_heartbeat.handle",
    ApiKey.ALLOCATE_PRODUCER_IDS: "allocate_producer_ids.handle",
}
"""For each API the module in this folder, and the function in it."""

assert set(HANDLERS) == set(APIS), "advertised and served APIs differ"


@cache
def handler_of(api_key: int) -> Handler:
    """Return what answers an API that is served; its module is loaded when the first request comes."""
    module, _, function = HANDLERS[api_key].partition(".")
    handler: Handler = getattr(import_module(f"sparkonce.broker_lite.handlers.{module}"), function)
    return handler


def handle(broker: Broker, request: Request) -> Body | None:
    """Answer a request; None means that the answer comes later.

    Raises:
        ProtocolError: if the request's bytes are malformed; its connection is to be closed.
    """
    return handler_of(request.api_key)(broker, request)


def answered_version(request: Request) -> int:
    """Return the version of the answer: that of the request, unless it asked ApiVersions beyond what we know."""
    return request.version if serves(request.api_key, request.version) else 0
