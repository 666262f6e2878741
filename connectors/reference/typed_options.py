"""The options as typed dictionaries: an editor completes names and values, and mypy finds typing errors.

Made from the declarations, by `python -m lab.pages .`. The functions check what they are given at once, as the
format would do later, and return what PySpark's ``options(**…)`` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.reference.hints import checked

_OnlyKafkaSource = TypedDict(
    "_OnlyKafkaSource",
    {
        "subscribe": str,
        "subscribePattern": str,
        "assign": str,
        "startingTimestamp": str,
        "startingOffsetsByTimestamp": str,
        "startingOffsets": str,
        "startingOffsetsByTimestampStrategy": Literal["error", "latest"],
        "endingTimestamp": str,
        "endingOffsetsByTimestamp": str,
        "endingOffsets": str,
        "into": str,
        "isolateTables": bool,
        "untilOffsets": str,
        "source": str,
        "maxOffsetsPerTrigger": int,
        "minOffsetsPerTrigger": int,
        "minOffsetsPerTopic": int,
        "maxTriggerDelay": str,
        "minPartitions": int,
        "maxRecordsPerPartition": int,
        "handOver": Literal["rows", "ranges"],
        "splitPartitions": bool,
        "failOnDataLoss": bool,
        "fetchOffset.numRetries": int,
        "fetchOffset.retryIntervalMs": int,
        "kafkaConsumer.pollTimeoutMs": int,
        "commitGroup": str,
        "groupIdPrefix": str,
        "columns": str,
        "valueFormat": Literal["binary", "json", "avro", "protobuf", "json-schema"],
        "valueSchemaId": int,
        "recursiveFieldMaxDepth": int,
        "schemaEvolution": Literal["none", "restart", "add-columns"],
        "includeDeadLetters": bool,
        "mode": Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"],
        "columnNameOfCorruptRecord": str,
        "dateFormat": str,
        "timestampFormat": str,
        "timestampNTZFormat": str,
        "timeZone": str,
        "keyFormat": Literal["binary", "string", "avro", "protobuf", "json-schema"],
        "keySchemaId": int,
        "kafka.default.api.timeout.ms": int,
    },
    total=False,
)


_Common = TypedDict(
    "_Common",
    {
        "offsetStore": str,
        "appId": str,
        "checkpointLocation": str,
        "kafka.bootstrap.servers": str,
        "kafka.client.id": str,
        "kafka.request.timeout.ms": int,
        "kafka.socket.connection.setup.timeout.ms": int,
        "kafka.retry.backoff.ms": int,
        "kafka.retry.backoff.max.ms": int,
        "kafka.receive.buffer.bytes": int,
        "kafka.security.protocol": Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"],
        "kafka.ssl.truststore.location": str,
        "kafka.ssl.truststore.password": str,
        "kafka.ssl.truststore.type": Literal["PEM", "PKCS12", "JKS"],
        "kafka.ssl.truststore.certificates": str,
        "kafka.ssl.ca.location": str,
        "kafka.ssl.ca.pem": str,
        "kafka.ssl.keystore.location": str,
        "kafka.ssl.keystore.password": str,
        "kafka.ssl.keystore.type": Literal["PEM", "PKCS12", "JKS"],
        "kafka.ssl.keystore.certificate.chain": str,
        "kafka.ssl.keystore.key": str,
        "kafka.ssl.key.password": str,
        "kafka.ssl.certificate.location": str,
        "kafka.ssl.key.location": str,
        "kafka.ssl.endpoint.identification.algorithm": str,
        "kafka.ssl.enabled.protocols": str,
        "kafka.ssl.protocol": Literal["TLS", "TLSv1.2", "TLSv1.3"],
        "kafka.ssl.cipher.suites": str,
        "kafka.sasl.mechanism": Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
        "kafka.sasl.jaas.config": str,
        "kafka.sasl.username": str,
        "kafka.sasl.password": str,
        "kafka.sasl.oauthbearer.token.endpoint.url": str,
        "kafka.sasl.oauthbearer.client.credentials.client.id": str,
        "kafka.sasl.oauthbearer.client.credentials.client.secret": str,
        "kafka.sasl.oauthbearer.scope": str,
        "kafka.sasl.oauthbearer.header.urlencode": bool,
        "kafka.sasl.login.connect.timeout.ms": int,
        "kafka.sasl.login.callback.handler.class": str,
    },
    total=False,
)


_KafkaSourceAndKafkaSink = TypedDict(
    "_KafkaSourceAndKafkaSink",
    {
        "includeHeaders": bool,
        "valueMessage": str,
        "valueSubject": str,
        "valueSchema": str,
        "keySchema": str,
        "keyMessage": str,
        "keySubject": str,
        "schemaRegistry.url": str,
        "schemaRegistry.basic.auth.user.info": str,
        "schemaRegistry.basic.auth.credentials.source": Literal["USER_INFO", "SASL_INHERIT"],
        "schemaRegistry.bearer.auth.token": str,
        "schemaRegistry.bearer.auth.credentials.source": Literal["STATIC_TOKEN", "OAUTHBEARER"],
        "schemaRegistry.bearer.auth.logical.cluster": str,
        "schemaRegistry.bearer.auth.identity.pool.id": str,
        "schemaRegistry.bearer.auth.issuer.endpoint.url": str,
        "schemaRegistry.bearer.auth.client.id": str,
        "schemaRegistry.bearer.auth.client.secret": str,
        "schemaRegistry.bearer.auth.scope": str,
        "schemaRegistry.ssl.ca.location": str,
        "schemaRegistry.ssl.certificate.location": str,
        "schemaRegistry.ssl.key.location": str,
        "schemaRegistry.ssl.key.password": str,
        "schemaRegistry.request.timeout.ms": int,
        "schemaRegistry.max.retries": int,
        "schemaRegistry.retries.wait.ms": int,
        "schemaRegistry.retries.max.wait.ms": int,
        "schemaRegistry.context": str,
    },
    total=False,
)


_KafkaSourceAndDeltaSink = TypedDict(
    "_KafkaSourceAndDeltaSink",
    {
        "kafka.isolation.level": Literal["read_uncommitted", "read_committed"],
        "kafka.check.crcs": bool,
        "kafka.max.partition.fetch.bytes": int,
        "kafka.fetch.max.wait.ms": int,
    },
    total=False,
)


class _OnlyKafkaSink(TypedDict, total=False):
    topic: str
    valueFormat: Literal["binary", "avro", "protobuf", "json-schema"]
    keyFormat: Literal["binary", "avro", "protobuf", "json-schema"]
    autoRegister: bool
    atomicVisibility: bool
    decisionTopic: str
    mirror: bool
    keepPartitions: bool


_KafkaSinkAndDeltaSink = TypedDict(
    "_KafkaSinkAndDeltaSink",
    {
        "deliveryGuarantee": Literal["at-most-once", "at-least-once", "exactly-once"],
        "sql": str,
        "deadLetters": str,
        "kafka.acks": Literal["all", "-1", "1", "0"],
        "kafka.compression.type": Literal["none", "gzip", "snappy", "lz4", "zstd"],
        "kafka.compression.gzip.level": int,
        "kafka.compression.lz4.level": int,
        "kafka.compression.zstd.level": int,
        "kafka.batch.size": int,
        "kafka.max.request.size": int,
        "kafka.max.in.flight.requests.per.connection": int,
        "kafka.delivery.timeout.ms": int,
        "kafka.retries": int,
        "kafka.enable.idempotence": bool,
        "kafka.max.block.ms": int,
        "kafka.metadata.max.age.ms": int,
        "kafka.transaction.timeout.ms": int,
        "kafka.partitioner.ignore.keys": bool,
    },
    total=False,
)


class _OnlyDeltaSink(TypedDict, total=False):
    path: str
    partitionBy: str
    mergeSchema: bool
    createTable: bool
    checkedRules: str
    table: str
    notBeside: str
    coveredTwice: bool
    beginsLate: bool
    idempotencyKey: str
    targetFileBytes: int
    rowGroupBytes: int
    rowGroupRows: int
    compression: Literal["snappy", "zstd"]


class KafkaSource(_OnlyKafkaSource, _Common, _KafkaSourceAndKafkaSink, _KafkaSourceAndDeltaSink):
    """Options of the Kafka source."""


class KafkaSink(_Common, _KafkaSourceAndKafkaSink, _OnlyKafkaSink, _KafkaSinkAndDeltaSink):
    """Options of the Kafka sink."""


class DeltaSink(_Common, _KafkaSourceAndDeltaSink, _KafkaSinkAndDeltaSink, _OnlyDeltaSink):
    """Options of the Delta sink."""


def source_options(options: KafkaSource) -> dict[str, str]:
    """Check options of the Kafka source.

    Example:
        >>> source_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "flights", "minPartitions": 8})
        {'kafka.bootstrap.servers': 'localhost:9092', 'subscribe': 'flights', 'minPartitions': '8'}

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(SourceOptions.read, texts)
    return texts


def kafka_sink_options(options: KafkaSink) -> dict[str, str]:
    """Check options of the Kafka sink, for streams.

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(KafkaSinkOptions.read, texts)
    return texts


def delta_sink_options(options: DeltaSink) -> dict[str, str]:
    """Check options of the Delta sink; here ``path`` or ``table`` is one of them, and ``start()`` takes none.

    Raises:
        OptionError: for what cannot work.
    """
    texts = _texts(options)
    checked(SinkOptions.read_with_name, texts)
    return texts


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
