"""The options as typed dictionaries: an editor completes names and values, and mypy finds typing errors.

Made from the declarations, by `sparkonce options --python`. The functions check what they are given at once, as the
format would do later, and return what PySpark's ``options(**…)`` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.kafka_sink.options import KafkaSinkOptions
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.reference.hints import checked

KafkaSource = TypedDict(
    "KafkaSource",
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
        "offsetStore": str,
        "appId": str,
        "source": str,
        "checkpointLocation": str,
        "maxOffsetsPerTrigger": int,
        "minOffsetsPerTrigger": int,
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
        "includeHeaders": bool,
        "columns": str,
        "valueFormat": Literal["binary", "json", "avro", "protobuf", "json-schema"],
        "valueMessage": str,
        "valueSchemaId": int,
        "valueSubject": str,
        "recursiveFieldMaxDepth": int,
        "schemaEvolution": Literal["none", "restart", "add-columns"],
        "includeDeadLetters": bool,
        "valueSchema": str,
        "mode": Literal["PERMISSIVE", "DROPMALFORMED", "FAILFAST"],
        "columnNameOfCorruptRecord": str,
        "dateFormat": str,
        "timestampFormat": str,
        "timestampNTZFormat": str,
        "timeZone": str,
        "keyFormat": Literal["binary", "string", "avro", "protobuf", "json-schema"],
        "keySchema": str,
        "keyMessage": str,
        "keySchemaId": int,
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
        "kafka.bootstrap.servers": str,
        "kafka.client.id": str,
        "kafka.request.timeout.ms": int,
        "kafka.socket.connection.setup.timeout.ms": int,
        "kafka.retry.backoff.ms": int,
        "kafka.retry.backoff.max.ms": int,
        "kafka.receive.buffer.bytes": int,
        "kafka.default.api.timeout.ms": int,
        "kafka.isolation.level": Literal["read_uncommitted", "read_committed"],
        "kafka.check.crcs": bool,
        "kafka.max.partition.fetch.bytes": int,
        "kafka.fetch.max.wait.ms": int,
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
"""Options of the Kafka source."""

KafkaSink = TypedDict(
    "KafkaSink",
    {
        "topic": str,
        "deliveryGuarantee": Literal["at-most-once", "at-least-once", "exactly-once"],
        "appId": str,
        "includeHeaders": bool,
        "valueFormat": Literal["binary", "avro", "protobuf", "json-schema"],
        "valueSchema": str,
        "valueSubject": str,
        "valueMessage": str,
        "keyFormat": Literal["binary", "avro", "protobuf", "json-schema"],
        "keySchema": str,
        "keySubject": str,
        "keyMessage": str,
        "autoRegister": bool,
        "checkpointLocation": str,
        "offsetStore": str,
        "atomicVisibility": bool,
        "decisionTopic": str,
        "sql": str,
        "deadLetters": str,
        "mirror": bool,
        "keepPartitions": bool,
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
        "kafka.bootstrap.servers": str,
        "kafka.client.id": str,
        "kafka.request.timeout.ms": int,
        "kafka.socket.connection.setup.timeout.ms": int,
        "kafka.retry.backoff.ms": int,
        "kafka.retry.backoff.max.ms": int,
        "kafka.receive.buffer.bytes": int,
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
"""Options of the Kafka sink."""

DeltaSink = TypedDict(
    "DeltaSink",
    {
        "path": str,
        "partitionBy": str,
        "mergeSchema": bool,
        "createTable": bool,
        "sql": str,
        "deadLetters": str,
        "table": str,
        "appId": str,
        "checkpointLocation": str,
        "deliveryGuarantee": Literal["at-most-once", "at-least-once", "exactly-once"],
        "offsetStore": str,
        "coveredTwice": bool,
        "beginsLate": bool,
        "idempotencyKey": str,
        "targetFileBytes": int,
        "rowGroupBytes": int,
        "rowGroupRows": int,
        "compression": Literal["snappy", "zstd"],
        "kafka.bootstrap.servers": str,
        "kafka.client.id": str,
        "kafka.request.timeout.ms": int,
        "kafka.socket.connection.setup.timeout.ms": int,
        "kafka.retry.backoff.ms": int,
        "kafka.retry.backoff.max.ms": int,
        "kafka.receive.buffer.bytes": int,
        "kafka.isolation.level": Literal["read_uncommitted", "read_committed"],
        "kafka.check.crcs": bool,
        "kafka.max.partition.fetch.bytes": int,
        "kafka.fetch.max.wait.ms": int,
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
        "kafka.metadata.max.age.ms": int,
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
        "kafka.transaction.timeout.ms": int,
        "kafka.partitioner.ignore.keys": bool,
    },
    total=False,
)
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
