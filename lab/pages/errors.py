"""docs/errors.md: the errors that stop a query, a command or a broker, with meaning and remedy.

An error's meaning is the docstring of its class. The remedy here is short: the message has the details of the
case at hand.
"""

from __future__ import annotations

import inspect
from importlib import import_module

WAYS_OUT: dict[str, dict[str, str]] = {
    "exactly_once.errors": {
        "DeliveryError": (
            "The base class of the errors below it in this table. Look at the class that the message begins with."
        ),
        "InternalError": "Report it: sparkonce has a bug. Nothing of the batch was committed.",
        "OffsetMismatchError": (
            "Start with a new `checkpointLocation`, and `offsetStore` with the same `appId` on the source: "
            "[when a query stops](recovery.md)."
        ),
        "FencedError": (
            "Stop one of the two drivers, or give each its own `appId`: [two drivers](recovery.md#two-drivers)."
        ),
        "StatefulRestartError": "Restore the checkpoint, or write to a new table: [recovery](recovery.md).",
        "CheckpointError": (
            "Restore the newest checkpoint; without state, begin with a new one and `offsetStore`: "
            "[recovery](recovery.md)."
        ),
        "PlanError": (
            "Remove what is between source and sink, or set `handOver=rows` on the source: "
            "[direct](direct.md#what-must-not-be-in-between)."
        ),
        "UnknownOutcomeError": "Start the query again when the store responds: the batch is compared again.",
        "FilesGoneError": (
            "Start the query again: the batch is written again. Keep `VACUUM` and lifecycle rules away from "
            "files younger than a batch: [recovery](recovery.md)."
        ),
        "TransactionsGoneError": (
            "Start again; if rows are named as lost, `sparkonce transactions finish --accept`: [writing to "
            "Kafka](kafka_sink.md#when-a-query-stops)."
        ),
    },
    "exactly_once.recovery": {
        "RecoveryError": "The message names what can be done instead; `sparkonce offsets show` lists what is stored.",
    },
    "exactly_once.transactions": {
        "DecisionFormatError": (
            "Something else writes to the topic of decisions: find it, and give this query its own topic."
        ),
    },
    "offset_store.errors": {
        "OffsetStoreError": (
            "Check the address, the network, the rights and the disk that the message names: [object "
            "stores](object_stores.md#when-something-is-wrong)."
        ),
        "RowsWithoutOffsetsError": (
            "`sparkonce offsets copy` or `set`, before the query starts: [recovery](recovery.md)."
        ),
        "StoreOutageError": (
            "Wait for the store: `sparkonce ingest` starts the query again. Else as for `OffsetStoreError`."
        ),
        "StoreMissingError": "Check the path; a table that no query has written has no offsets.",
    },
    "offset_store.offsets": {
        "OffsetFormatError": "Write the offsets as [an offset looks like](kafka_once.md#what-an-offset-looks-like).",
    },
    "options": {
        "OptionError": "Correct the option; `sparkonce options FORMAT NAME` explains it.",
    },
    "kafka.client.client": {
        "KafkaUnreachableError": (
            "Check that a broker listens there, and `kafka.security.protocol`; then `sparkonce doctor`. In an outage, "
            "[queries wait](kafka_once.md#when-brokers-go-away)."
        ),
        "MissingTopicError": "Create the topic, or correct its name.",
    },
    "kafka.client.metadata": {
        "ForbiddenTopicError": "Give the client DESCRIBE and READ on the topic.",
    },
    "kafka.client.connection": {
        "SaslError": "Check `kafka.sasl.mechanism`, user and password, against the broker's listener.",
    },
    "kafka.client.oauth": {
        "TokenError": "Check the client id and secret, or the file that the message names.",
        "TokenServerError": (
            "Check the address of the token endpoint, and its certificate; temporary failures are retried."
        ),
    },
    "connectors.kafka_source.data_loss": {
        "DataLossError": (
            "Find out why the records are gone (retention, deletion, another log); `failOnDataLoss=false` "
            "continues without them: [records that are gone](kafka_once.md#records-that-are-gone)."
        ),
    },
    "connectors.kafka_source.ranges": {
        "NoLeaderError": "Nothing: the topic is read once its partition has a leader, and the others go on.",
        "RecreatedTopicError": "A new `checkpointLocation`: the records of the new topic are other records.",
    },
    "connectors.kafka_source.tables": {
        "TopicsNotReadError": (
            "All other topics are read. The message says what each of these lacks: its [lost "
            "records](kafka_once.md#records-that-are-gone), or a table that cannot be read."
        ),
    },
    "connectors.kafka_source.decode": {
        "CorruptBatchError": (
            "Look at the broker's disk and the log with `kafka-dump-log.sh`; the offset is in the message."
        ),
        "TimestampRangeError": (
            "Correct the producer. Read without the column `timestamp`, or set `includeDeadLetters` on the source."
        ),
    },
    "connectors.kafka_source.java_regex": {
        "PatternError": "Write the pattern in the part of Java's syntax that Python has, or use `subscribe`.",
    },
    "connectors.kafka_source.hand_over": {
        "HandOverError": "With `handOver=ranges`, write the rows as the source returns them: [direct](direct.md).",
    },
    "connectors.delta_sink.schema": {
        "SchemaError": (
            "Cast the columns that are named, or set `mergeSchema` for new ones: [tables and "
            "schemas](delta_once.md#tables-and-schemas)."
        ),
    },
    "connectors.delta_sink.table": {
        "TableError": (
            "Write with [AppendWriter](upserts.md#appendwriter) or [MergeWriter](upserts.md), or to another table."
        ),
    },
    "connectors.delta_sink.compaction": {
        "CompactionError": (
            "The message says what the table or the request lacks: [small files](recovery.md#small-files)."
        ),
    },
    "connectors.ingest.ingestion": {
        "IngestError": "The message holds the error of the query that failed: look that one up here.",
    },
    "connectors.kafka_sink.buffers": {
        "RowError": "Correct the row, or send such rows to [dead letters](dead_letters.md).",
    },
    "connectors.kafka_sink.producer": {
        "DeliveryTimeoutError": (
            "Check the broker and the network; `kafka.delivery.timeout.ms` is the time limit. The batch "
            "is written again."
        ),
        "RecordTooLargeError": "Raise the topic's `max.message.bytes`, or send smaller rows.",
        "DeliveryRefusedError": (
            "The message has the broker's reason: rights, a deleted topic, a setting of the topic."
        ),
    },
    "connectors.kafka_sink.transactions": {
        "TransactionError": (
            "The message names the step and the remedy; `sparkonce transactions list` shows what is open."
        ),
        "FencedProducerError": (
            "Another driver with this `appId` runs, or a transaction timed out: [writing to "
            "Kafka](kafka_sink.md#when-a-query-stops)."
        ),
    },
    "connectors.kafka_sink.decisions": {
        "DecisionTopicError": (
            "Create the topic as the message says, or grant the right to: [the topic of "
            "decisions](kafka_sink.md#the-topic-of-decisions)."
        ),
    },
    "connectors.kafka_sink.spool": {
        "SpoolError": "Use a checkpoint folder that driver and workers share; then start again.",
    },
    "connectors.kafka_sink.administration": {
        "AdministrationError": "The message says what is possible instead: `sparkonce transactions list`.",
    },
    "connectors.schema_registry.client": {
        "RegistryError": "The base class of the errors below it in this table.",
        "UnreachableRegistryError": (
            "Check `schemaRegistry.url` and the network: [schema "
            "registries](schema_registry.md#when-something-is-wrong)."
        ),
        "NotARegistryError": "Check the path of `schemaRegistry.url`, and proxies in between.",
        "RegistryLoginError": "Check the user, its password or token, and its rights.",
        "UnknownSchemaError": "Check the subject and the registry: the values may be of another one.",
        "RejectedSchemaError": "Make the schema compatible with those before it, or change the subject's rule.",
    },
    "connectors.values.evolution": {
        "NoSchemaYetError": "Start when something has been written to the topic, or set `valueSchema`.",
        "SchemaChangedError": "Start the query again: it then reads with the newer schema (`schemaEvolution=restart`).",
        "NewerThanBegunError": "Start the query again: the batch is completed with the schema that it began with.",
        "UnknownWriterError": "Restore the schema in the registry: [schema registries](schema_registry.md).",
    },
    "connectors.values.rows": {
        "MalformedValueError": "Use mode PERMISSIVE, or [dead letters](dead_letters.md); the message names the record.",
    },
    "connectors.values.unwritable": {
        "UnwritableRowError": "Make the column fit the schema, or the schema the column; the message names the field.",
    },
    "connectors.values.avro.schema": {
        "AvroSchemaError": "Correct the schema at the place that is named.",
    },
    "connectors.values.json_schema": {
        "JsonSchemaError": "Correct the schema, or read the values as `json` with types of your own.",
    },
    "connectors.values.protobuf.schema": {
        "ProtobufSchemaError": "Correct the schema at the place that is named.",
    },
    "connectors.runtime.java_check": {
        "JavaError": "Install the Java that the message names, or set `JAVA_HOME`; then `sparkonce doctor`.",
    },
    "connectors.telemetry.switches": {
        "UnsupportedProtocolError": "Set the variable to `http/protobuf`: [traces](observability.md#traces).",
    },
    "broker_lite.config": {
        "ConfigError": "Correct the setting: [settings of the broker](broker_settings.md).",
    },
    "broker_lite.embedded": {
        "BrokerStartError": "Read the output that the message holds: a port in use, a folder that is in use.",
    },
    "broker_lite.faults.faults": {
        "FaultNeverFiredError": "The test did not make the request that the fault waits for: [faults](faults.md).",
    },
    "registry_lite.topic": {
        "RegistryStartError": "The message says what the topic `_schemas` or its broker lacks.",
    },
}
"""The remedy by module and class; in the order of the page."""

NOT_SEEN = frozenset(
    {
        "AuditError",
        "CatalogManagedError",
        "CommitConflictError",
        "ConstantError",
        "CoordinatesError",
        "JsonError",
        "LeadersChangedError",
        "LogError",
        "LogFileMissingError",
        "LogReplacedError",
        "MissingEntryError",
        "OffsetOutOfRangeError",
        "RegexError",
        "RowsError",
        "UnknownOptionError",
    }
)
"""Errors that the connectors catch themselves, and replace by another one or retry; and those of the audit."""

_HEAD = """\
# Errors

<!-- Generated from the code: python -m lab.pages . -->

Spark wraps the error of a query in a stack trace, repeats it, and adds the query's plan. Look for the last line that
begins with `sparkonce.`, which `sparkonce.explain(error)` returns: it names one of these classes, says what is wrong,
where, and what to do. [Recovery](recovery.md) has the steps for each case. Classes that `sparkonce` exports can be
caught by name: [Python API](python_api.md).

Exit statuses of commands: 0 success, 1 something is wrong, 2 the command line cannot be used."""

_TITLES = {
    "exactly_once": "Guarantees",
    "offset_store": "Offsets and stores",
    "options": "Options",
    "kafka": "Kafka",
    "connectors": "Source and sinks",
    "broker_lite": "The embedded broker",
    "registry_lite": "The embedded registry",
}


def markdown() -> str:
    """Return the page."""
    lines = [_HEAD]
    for folder, title in _TITLES.items():
        lines += ["", f"## {title}", "", "| error | what it means | what to do |", "|---|---|---|"]
        for module, ways in WAYS_OUT.items():
            if module.split(".")[0] == folder:
                lines += [_row(module, name, way) for name, way in ways.items()]
    return "\n".join(lines) + "\n"


def _row(module: str, name: str, way: str) -> str:
    error = getattr(import_module(f"sparkonce.{module}"), name)
    meaning = " ".join((inspect.getdoc(error) or "").split()).replace("``", "`").replace("|", "\\|")
    return f"| `{name}` | {meaning} | {way} |"
