"""Which handler answers which API.

A handler's module is imported when its API is first used: importing all of them would take longer than the rest of the
start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite import handlers
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.waiting import Waiting
from sparkonce.kafka.protocol.apis import APIS, ApiKey

if TYPE_CHECKING:
    import sparkonce.broker_lite.handlers.add_offsets_to_txn
    import sparkonce.broker_lite.handlers.add_partitions_to_txn
    import sparkonce.broker_lite.handlers.allocate_producer_ids
    import sparkonce.broker_lite.handlers.alter_configs
    import sparkonce.broker_lite.handlers.alter_partition
    import sparkonce.broker_lite.handlers.alter_partition_reassignments
    import sparkonce.broker_lite.handlers.alter_replica_log_dirs
    import sparkonce.broker_lite.handlers.alter_user_scram_credentials
    import sparkonce.broker_lite.handlers.api_versions
    import sparkonce.broker_lite.handlers.broker_heartbeat
    import sparkonce.broker_lite.handlers.broker_registration
    import sparkonce.broker_lite.handlers.consumer_group_describe
    import sparkonce.broker_lite.handlers.consumer_group_heartbeat
    import sparkonce.broker_lite.handlers.create_acls
    import sparkonce.broker_lite.handlers.create_partitions
    import sparkonce.broker_lite.handlers.create_topics
    import sparkonce.broker_lite.handlers.delete_acls
    import sparkonce.broker_lite.handlers.delete_groups
    import sparkonce.broker_lite.handlers.delete_records
    import sparkonce.broker_lite.handlers.delete_topics
    import sparkonce.broker_lite.handlers.describe_acls
    import sparkonce.broker_lite.handlers.describe_client_quotas
    import sparkonce.broker_lite.handlers.describe_cluster
    import sparkonce.broker_lite.handlers.describe_configs
    import sparkonce.broker_lite.handlers.describe_groups
    import sparkonce.broker_lite.handlers.describe_log_dirs
    import sparkonce.broker_lite.handlers.describe_producers
    import sparkonce.broker_lite.handlers.describe_quorum
    import sparkonce.broker_lite.handlers.describe_topic_partitions
    import sparkonce.broker_lite.handlers.describe_transactions
    import sparkonce.broker_lite.handlers.describe_user_scram_credentials
    import sparkonce.broker_lite.handlers.elect_leaders
    import sparkonce.broker_lite.handlers.end_transaction
    import sparkonce.broker_lite.handlers.envelope
    import sparkonce.broker_lite.handlers.fetch
    import sparkonce.broker_lite.handlers.find_coordinator
    import sparkonce.broker_lite.handlers.heartbeat
    import sparkonce.broker_lite.handlers.incremental_alter_configs
    import sparkonce.broker_lite.handlers.init_producer_id
    import sparkonce.broker_lite.handlers.join_group
    import sparkonce.broker_lite.handlers.leave_group
    import sparkonce.broker_lite.handlers.list_config_resources
    import sparkonce.broker_lite.handlers.list_groups
    import sparkonce.broker_lite.handlers.list_offsets
    import sparkonce.broker_lite.handlers.list_partition_reassignments
    import sparkonce.broker_lite.handlers.list_transactions
    import sparkonce.broker_lite.handlers.metadata
    import sparkonce.broker_lite.handlers.offset_commit
    import sparkonce.broker_lite.handlers.offset_delete
    import sparkonce.broker_lite.handlers.offset_fetch
    import sparkonce.broker_lite.handlers.offset_for_leader_epoch
    import sparkonce.broker_lite.handlers.produce
    import sparkonce.broker_lite.handlers.sasl_authenticate
    import sparkonce.broker_lite.handlers.sasl_handshake
    import sparkonce.broker_lite.handlers.sync_group
    import sparkonce.broker_lite.handlers.txn_offset_commit
    import sparkonce.broker_lite.handlers.write_txn_markers  # noqa: F401  # used by the name of the package

Handler = Callable[[Broker, Request], Waiting[Body | None]]

HANDLERS: Final[dict[int, Callable[[], Handler]]] = {
    ApiKey.PRODUCE: lambda: handlers.produce.handle,
    ApiKey.FETCH: lambda: handlers.fetch.handle,
    ApiKey.LIST_OFFSETS: lambda: handlers.list_offsets.handle,
    ApiKey.METADATA: lambda: handlers.metadata.handle,
    ApiKey.OFFSET_COMMIT: lambda: handlers.offset_commit.handle,
    ApiKey.OFFSET_FETCH: lambda: handlers.offset_fetch.handle,
    ApiKey.FIND_COORDINATOR: lambda: handlers.find_coordinator.handle,
    ApiKey.JOIN_GROUP: lambda: handlers.join_group.handle,
    ApiKey.HEARTBEAT: lambda: handlers.heartbeat.handle,
    ApiKey.LEAVE_GROUP: lambda: handlers.leave_group.handle,
    ApiKey.SYNC_GROUP: lambda: handlers.sync_group.handle,
    ApiKey.DESCRIBE_GROUPS: lambda: handlers.describe_groups.handle,
    ApiKey.LIST_GROUPS: lambda: handlers.list_groups.handle,
    ApiKey.API_VERSIONS: lambda: handlers.api_versions.handle,
    ApiKey.CREATE_TOPICS: lambda: handlers.create_topics.handle,
    ApiKey.DELETE_TOPICS: lambda: handlers.delete_topics.handle,
    ApiKey.INIT_PRODUCER_ID: lambda: handlers.init_producer_id.handle,
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda: handlers.add_partitions_to_txn.handle,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda: handlers.add_offsets_to_txn.handle,
    ApiKey.END_TXN: lambda: handlers.end_transaction.handle,
    ApiKey.WRITE_TXN_MARKERS: lambda: handlers.write_txn_markers.handle,
    ApiKey.TXN_OFFSET_COMMIT: lambda: handlers.txn_offset_commit.handle,
    ApiKey.DELETE_GROUPS: lambda: handlers.delete_groups.handle,
    ApiKey.SASL_HANDSHAKE: lambda: handlers.sasl_handshake.handle,
    ApiKey.SASL_AUTHENTICATE: lambda: handlers.sasl_authenticate.handle,
    ApiKey.DESCRIBE_ACLS: lambda: handlers.describe_acls.handle,
    ApiKey.CREATE_ACLS: lambda: handlers.create_acls.handle,
    ApiKey.DELETE_ACLS: lambda: handlers.delete_acls.handle,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda: handlers.describe_user_scram_credentials.handle,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda: handlers.alter_user_scram_credentials.handle,
    ApiKey.OFFSET_DELETE: lambda: handlers.offset_delete.handle,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda: handlers.consumer_group_heartbeat.handle,
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda: handlers.consumer_group_describe.handle,
    ApiKey.DESCRIBE_CLUSTER: lambda: handlers.describe_cluster.handle,
    ApiKey.DESCRIBE_QUORUM: lambda: handlers.describe_quorum.handle,
    ApiKey.DELETE_RECORDS: lambda: handlers.delete_records.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: handlers.offset_for_leader_epoch.handle,
    ApiKey.DESCRIBE_CONFIGS: lambda: handlers.describe_configs.handle,
    ApiKey.ALTER_CONFIGS: lambda: handlers.alter_configs.handle,
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda: handlers.alter_replica_log_dirs.handle,
    ApiKey.DESCRIBE_LOG_DIRS: lambda: handlers.describe_log_dirs.handle,
    ApiKey.CREATE_PARTITIONS: lambda: handlers.create_partitions.handle,
    ApiKey.ELECT_LEADERS: lambda: handlers.elect_leaders.handle,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda: handlers.incremental_alter_configs.handle,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda: handlers.alter_partition_reassignments.handle,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda: handlers.list_partition_reassignments.handle,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda: handlers.describe_client_quotas.handle,
    ApiKey.LIST_CONFIG_RESOURCES: lambda: handlers.list_config_resources.handle,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda: handlers.describe_topic_partitions.handle,
    ApiKey.DESCRIBE_PRODUCERS: lambda: handlers.describe_producers.handle,
    ApiKey.DESCRIBE_TRANSACTIONS: lambda: handlers.describe_transactions.handle,
    ApiKey.LIST_TRANSACTIONS: lambda: handlers.list_transactions.handle,
    ApiKey.ALTER_PARTITION: lambda: handlers.alter_partition.handle,
    ApiKey.ENVELOPE: lambda: handlers.envelope.handle,
    ApiKey.BROKER_REGISTRATION: lambda: handlers.broker_registration.handle,
    ApiKey.BROKER_HEARTBEAT: lambda: handlers.broker_heartbeat.handle,
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda: handlers.allocate_producer_ids.handle,
}
"""For each API, what answers it."""

assert set(HANDLERS) == set(APIS), "advertised and served APIs differ"


@cache
def handler_of(api_key: int) -> Handler:
    """Return the handler of a served API."""
    return HANDLERS[api_key]()


def handle(broker: Broker, request: Request) -> Waiting[Body | None]:
    """Return the coroutine that answers a request of a served API.

    It raises:
        ProtocolError: if the request's bytes are malformed; the connection must be closed.
        CloseConnectionError: if there is no response, and the connection must be closed.
        OSError: if the handler cannot read or write its files, and its API has no error for that.
    """
    return handler_of(request.api_key)(broker, request)
