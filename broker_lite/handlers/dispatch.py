"""Which handler answers which API."""

from __future__ import annotations

from collections.abc import Callable

from broker_lite.handlers import (
    acls,
    add_to_transaction,
    alter_configs,
    api_versions,
    client_quotas,
    cluster,
    consumer_groups,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_transaction,
    fetch,
    group_admin,
    groups,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    reassignments,
    sasl,
    scram_users,
    txn_offset_commit,
    write_txn_markers,
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
    ApiKey.ADD_PARTITIONS_TO_TXN: add_to_transaction.handle_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: add_to_transaction.handle_offsets,
    ApiKey.END_TXN: end_transaction.handle,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers.handle,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    ApiKey.DELETE_GROUPS: group_admin.handle_delete,
    ApiKey.SASL_HANDSHAKE: sasl.handle_handshake,
    ApiKey.SASL_AUTHENTICATE: sasl.handle_authenticate,
    ApiKey.DESCRIBE_ACLS: acls.handle_describe,
    ApiKey.CREATE_ACLS: acls.handle_create,
    ApiKey.DELETE_ACLS: acls.handle_delete,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_users.handle_describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: scram_users.handle_alter,
    ApiKey.OFFSET_DELETE: offset_delete.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_groups.handle_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_groups.handle_describe,
    ApiKey.DESCRIBE_CLUSTER: cluster.handle_describe_cluster,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
    ApiKey.ALTER_CONFIGS: alter_configs.handle_alter,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: create_partitions.handle,
    ApiKey.ELECT_LEADERS: reassignments.handle_elect,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs.handle_incremental,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.handle_alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.handle_list,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.handle,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources.handle,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions.handle_describe,
    ApiKey.LIST_TRANSACTIONS: describe_transactions.handle_list,
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
