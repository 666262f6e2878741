"""Creating a topic: CreateTopics, which every broker passes to the controller, or answers with NOT_CONTROLLER."""

from __future__ import annotations

from collections.abc import Mapping

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode

WITH_DEFAULTS_FROM = 4
"""The first version with -1 for the brokers' defaults (KIP-464)."""


def create_topic(
    client: Client, name: str, partitions: int, factor: int = -1, configs: Mapping[str, str] | None = None
) -> tuple[ErrorCode, str]:
    """Ask once for a topic; for use within `Client.retry`. Returns the broker's error, and its message.

    ``factor``: -1 for the brokers' default, or 1 if they know no default.

    Raises:
        OSError, ProtocolError: if no broker answers.
    """
    connection = client.any_connection()
    version = connection.version(ApiKey.CREATE_TOPICS)
    codec = apis.request_class(ApiKey.CREATE_TOPICS).CreatableTopic
    topic = codec(
        version=version,
        name=name,
        num_partitions=partitions,
        replication_factor=1 if factor < 0 and version < WITH_DEFAULTS_FROM else factor,
        assignments=[],
        configs=[
            codec.CreatableTopicConfig(version=version, name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
    answer = client.ask(
        connection, ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=30_000, validate_only=False
    )
    (result,) = answer.topics
    return ErrorCode.of(result.error_code), getattr(result, "error_message", None) or ""
