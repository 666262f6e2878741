"""One module per API: from request to response. A module is imported when it is first named."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkonce.broker_lite.handlers import (
        add_offsets_to_txn as add_offsets_to_txn,
    )
    from sparkonce.broker_lite.handlers import (
        add_partitions_to_txn as add_partitions_to_txn,
    )
    from sparkonce.broker_lite.handlers import (
        allocate_producer_ids as allocate_producer_ids,
    )
    from sparkonce.broker_lite.handlers import (
        alter_configs as alter_configs,
    )
    from sparkonce.broker_lite.handlers import (
        alter_partition as alter_partition,
    )
    from sparkonce.broker_lite.handlers import (
        alter_partition_reassignments as alter_partition_reassignments,
    )
    from sparkonce.broker_lite.handlers import (
        alter_replica_log_dirs as alter_replica_log_dirs,
    )
    from sparkonce.broker_lite.handlers import (
        alter_user_scram_credentials as alter_user_scram_credentials,
    )
    from sparkonce.broker_lite.handlers import (
        api_versions as api_versions,
    )
    from sparkonce.broker_lite.handlers import (
        broker_heartbeat as broker_heartbeat,
    )
    from sparkonce.broker_lite.handlers import (
        broker_registration as broker_registration,
    )
    from sparkonce.broker_lite.handlers import (
        consumer_group_describe as consumer_group_describe,
    )
    from sparkonce.broker_lite.handlers import (
        consumer_group_heartbeat as consumer_group_heartbeat,
    )
    from sparkonce.broker_lite.handlers import (
        create_acls as create_acls,
    )
    from sparkonce.broker_lite.handlers import (
        create_partitions as create_partitions,
    )
    from sparkonce.broker_lite.handlers import (
        create_topics as create_topics,
    )
    from sparkonce.broker_lite.handlers import (
        delete_acls as delete_acls,
    )
    from sparkonce.broker_lite.handlers import (
        delete_groups as delete_groups,
    )
    from sparkonce.broker_lite.handlers import (
        delete_records as delete_records,
    )
    from sparkonce.broker_lite.handlers import (
        delete_topics as delete_topics,
    )
    from sparkonce.broker_lite.handlers import (
        describe_acls as describe_acls,
    )
    from sparkonce.broker_lite.handlers import (
        describe_client_quotas as describe_client_quotas,
    )
    from sparkonce.broker_lite.handlers import (
        describe_cluster as describe_cluster,
    )
    from sparkonce.broker_lite.handlers import (
        describe_configs as describe_configs,
    )
    from sparkonce.broker_lite.handlers import (
        describe_groups as describe_groups,
    )
    from sparkonce.broker_lite.handlers import (
        describe_log_dirs as describe_log_dirs,
    )
    from sparkonce.broker_lite.handlers import (
        describe_producers as describe_producers,
    )
    from sparkonce.broker_lite.handlers import (
        describe_quorum as describe_quorum,
    )
    from sparkonce.broker_lite.handlers import (
        describe_topic_partitions as describe_topic_partitions,
    )
    from sparkonce.broker_lite.handlers import (
        describe_transactions as describe_transactions,
    )
    from sparkonce.broker_lite.handlers import (
        describe_user_scram_credentials as describe_user_scram_credentials,
    )
    from sparkonce.broker_lite.handlers import (
        elect_leaders as elect_leaders,
    )
    from sparkonce.broker_lite.handlers import (
        end_transaction as end_transaction,
    )
    from sparkonce.broker_lite.handlers import (
        envelope as envelope,
    )
    from sparkonce.broker_lite.handlers import (
        fetch as fetch,
    )
    from sparkonce.broker_lite.handlers import (
        find_coordinator as find_coordinator,
    )
    from sparkonce.broker_lite.handlers import (
        heartbeat as heartbeat,
    )
    from sparkonce.broker_lite.handlers import (
        incremental_alter_configs as incremental_alter_configs,
    )
    from sparkonce.broker_lite.handlers import (
        init_producer_id as init_producer_id,
    )
    from sparkonce.broker_lite.handlers import (
        join_group as join_group,
    )
    from sparkonce.broker_lite.handlers import (
        leave_group as leave_group,
    )
    from sparkonce.broker_lite.handlers import (
        list_config_resources as list_config_resources,
    )
    from sparkonce.broker_lite.handlers import (
        list_groups as list_groups,
    )
    from sparkonce.broker_lite.handlers import (
        list_offsets as list_offsets,
    )
    from sparkonce.broker_lite.handlers import (
        list_partition_reassignments as list_partition_reassignments,
    )
    from sparkonce.broker_lite.handlers import (
        list_transactions as list_transactions,
    )
    from sparkonce.broker_lite.handlers import (
        metadata as metadata,
    )
    from sparkonce.broker_lite.handlers import (
        offset_commit as offset_commit,
    )
    from sparkonce.broker_lite.handlers import (
        offset_delete as offset_delete,
    )
    from sparkonce.broker_lite.handlers import (
        offset_fetch as offset_fetch,
    )
    from sparkonce.broker_lite.handlers import (
        offset_for_leader_epoch as offset_for_leader_epoch,
    )
    from sparkonce.broker_lite.handlers import (
        produce as produce,
    )
    from sparkonce.broker_lite.handlers import (
        sasl_authenticate as sasl_authenticate,
    )
    from sparkonce.broker_lite.handlers import (
        sasl_handshake as sasl_handshake,
    )
    from sparkonce.broker_lite.handlers import (
        sync_group as sync_group,
    )
    from sparkonce.broker_lite.handlers import (
        txn_offset_commit as txn_offset_commit,
    )
    from sparkonce.broker_lite.handlers import (
        write_txn_markers as write_txn_markers,
    )
else:

    def __getattr__(name):
        """Import a module (PEP 562)."""
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from error
