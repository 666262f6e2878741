"""From Kafka to Delta Lake with Spark, with a delivery guarantee that you choose and can prove.

What users import is here; each name is loaded when it is first used, so that ``import sparkonce`` itself costs nothing.
The folders beside it hold the rest, which may change from one version to the next:

- ``connectors``: the source ``kafka_once`` and the sinks ``kafka_once`` and ``delta_once``.
- ``exactly_once``: the commit of a batch, recovery, and the audit.
- ``offset_store``: where the offsets of a result are kept.
- ``broker_lite``: the embedded broker.
- ``registry_lite``: the embedded schema registry.
- ``jobs``: the command line, the live pages and the example jobs.
- ``kafka``: Kafka's protocol and a client, for all of these.
- ``settings``: how the broker and the connectors declare their settings.
- ``crash_points``: where tests inject crashes, for all of these.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkonce.broker_lite.config import BrokerConfig, ConfigError
    from sparkonce.broker_lite.embedded import BrokerStartError, EmbeddedBroker
    from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster
    from sparkonce.connectors.catalogs.tables import table_path
    from sparkonce.connectors.delta_spark.append import AppendWriter
    from sparkonce.connectors.delta_spark.merge import MergeWriter
    from sparkonce.connectors.formats.table_reader import read_stream
    from sparkonce.connectors.formats.table_writer import write_stream
    from sparkonce.connectors.ingest.ingest import ingest
    from sparkonce.connectors.ingest.ingestion import IngestError, Ingestion
    from sparkonce.connectors.ingest.settings import IngestTable
    from sparkonce.connectors.lag.listener import LagListener
    from sparkonce.connectors.lag.state import PartitionLag, QueryLag, SourceLag
    from sparkonce.connectors.reference.typed_options import delta_sink_options, kafka_sink_options, source_options
    from sparkonce.connectors.runtime.failures import explain
    from sparkonce.connectors.session import register, spark_session
    from sparkonce.connectors.sinks.dead_letters import mark
    from sparkonce.connectors.sinks.foreach import SqlResult
    from sparkonce.exactly_once.audit_table import AuditError
    from sparkonce.exactly_once.errors import DeliveryError, FencedError, OffsetMismatchError
    from sparkonce.exactly_once.foreach_batch import ForeachBatch, RowsOnly
    from sparkonce.exactly_once.guarantee import Guarantee
    from sparkonce.jobs.cli.audit_readers import audit
    from sparkonce.offset_store import open_store
    from sparkonce.offset_store.errors import OffsetStoreError
    from sparkonce.offset_store.frame import history_arrow, history_frame
    from sparkonce.offset_store.record import BatchCounts
    from sparkonce.options import OptionError
    from sparkonce.registry_lite.embedded import EmbeddedRegistry
    from sparkonce.registry_lite.topic import RegistryStartError

    __version__: str

_WHERE = {
    "AppendWriter": "connectors.delta_spark.append",
    "AuditError": "exactly_once.audit_table",
    "BatchCounts": "offset_store.record",
    "BrokerConfig": "broker_lite.config",
    "BrokerStartError": "broker_lite.embedded",
    "ConfigError": "broker_lite.config",
    "DeliveryError": "exactly_once.errors",
    "EmbeddedBroker": "broker_lite.embedded",
    "EmbeddedCluster": "broker_lite.embedded_cluster",
    "EmbeddedRegistry": "registry_lite.embedded",
    "FencedError": "exactly_once.errors",
    "ForeachBatch": "exactly_once.foreach_batch",
    "Guarantee": "exactly_once.guarantee",
    "IngestError": "connectors.ingest.ingestion",
    "IngestTable": "connectors.ingest.settings",
    "Ingestion": "connectors.ingest.ingestion",
    "LagListener": "connectors.lag.listener",
    "MergeWriter": "connectors.delta_spark.merge",
    "OffsetMismatchError": "exactly_once.errors",
    "OffsetStoreError": "offset_store.errors",
    "OptionError": "options",
    "PartitionLag": "connectors.lag.state",
    "QueryLag": "connectors.lag.state",
    "RegistryStartError": "registry_lite.topic",
    "RowsOnly": "exactly_once.foreach_batch",
    "SourceLag": "connectors.lag.state",
    "SqlResult": "connectors.sinks.foreach",
    "audit": "jobs.cli.audit_readers",
    "delta_sink_options": "connectors.reference.typed_options",
    "explain": "connectors.runtime.failures",
    "history_arrow": "offset_store.frame",
    "history_frame": "offset_store.frame",
    "ingest": "connectors.ingest.ingest",
    "kafka_sink_options": "connectors.reference.typed_options",
    "mark": "connectors.sinks.dead_letters",
    "open_store": "offset_store",
    "read_stream": "connectors.formats.table_reader",
    "register": "connectors.session",
    "source_options": "connectors.reference.typed_options",
    "spark_session": "connectors.session",
    "table_path": "connectors.catalogs.tables",
    "write_stream": "connectors.formats.table_writer",
}
"""The module from which each name is loaded."""

__all__ = [
    "AppendWriter",
    "AuditError",
    "BatchCounts",
    "BrokerConfig",
    "BrokerStartError",
    "ConfigError",
    "DeliveryError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "EmbeddedRegistry",
    "FencedError",
    "ForeachBatch",
    "Guarantee",
    "IngestError",
    "IngestTable",
    "Ingestion",
    "LagListener",
    "MergeWriter",
    "OffsetMismatchError",
    "OffsetStoreError",
    "OptionError",
    "PartitionLag",
    "QueryLag",
    "RegistryStartError",
    "RowsOnly",
    "SourceLag",
    "SqlResult",
    "__version__",
    "audit",
    "delta_sink_options",
    "explain",
    "history_arrow",
    "history_frame",
    "ingest",
    "kafka_sink_options",
    "mark",
    "open_store",
    "read_stream",
    "register",
    "source_options",
    "spark_session",
    "table_path",
    "write_stream",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("sparkonce")
    elif name in _WHERE:
        try:
            value = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        except ModuleNotFoundError as error:
            from sparkonce.jobs.shared.extras import missing_extra

            remedy = missing_extra(error, name)
            if remedy is None:
                raise
            raise ModuleNotFoundError(f"sparkonce.{name} {remedy}", name=error.name) from None
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
