"""Checks of the brokers: whether each is reachable at its advertised address, its API versions, and user rights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparkonce.jobs.cli.doctor.findings import Finding, warning, wrong
from sparkonce.kafka.client.client import Client, KafkaUnreachableError
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import command_settings
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.words import counted

_SOURCE = (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.FETCH)
_SINK = (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN)
_READ, _WRITE = 3, 4
"""Of Kafka's `AclOperation`, as Metadata returns the authorized operations (KIP-430)."""


def examine(options: Mapping[str, str], topics: Sequence[str]) -> Iterator[Finding]:
    """Check the cluster of the ``kafka.*`` options, and topics in it."""
    client = Client(command_settings(options))
    try:
        answer = client.retry("ask for the cluster", lambda: _metadata(client, topics))
    except (OSError, KafkaError, ProtocolError, KafkaUnreachableError, MissingTopicError) as error:
        yield wrong("Kafka", error, "Check the address, kafka.security.protocol and the credentials")
        return
    else:
        yield Finding("Kafka", f"cluster {answer.cluster_id}, {counted(len(answer.brokers), 'broker')}")
        for broker in answer.brokers:
            yield _broker(client, broker)
        for topic in answer.topics:
            yield _topic(topic)
    finally:
        client.close()


def _metadata(client: Client, topics: Sequence[str]) -> Any:
    connection = client.any_connection()
    version = connection.version(ApiKey.METADATA)
    asked = apis.request_class(ApiKey.METADATA).MetadataRequestTopic
    return client.ask(
        connection,
        ApiKey.METADATA,
        version,
        topics=[asked(version=version, name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )


def _broker(client: Client, broker: Any) -> Finding:
    what, place = f"broker {broker.node_id}", f"{broker.host}:{broker.port}"
    try:
        connection = client.connection((broker.host, broker.port))
    except (OSError, ProtocolError) as error:
        return wrong(
            what,
            f"it advertises {place}, which cannot be reached from this machine ({error})",
            "Set advertised.listeners of the broker to an address that the driver and all workers reach",
        )
    for use, needed in (("source", _SOURCE), ("sink", _SINK)):
        missing = [key.name for key in needed if not connection.serves(key)]
        if missing:
            return wrong(what, f"{place} does not serve {', '.join(missing)}", f"The {use} needs a newer Kafka")
    return Finding(what, f"{place}, Fetch v{connection.version(ApiKey.FETCH)}, transactions")


def _topic(topic: Any) -> Finding:
    what = f"topic {topic.name}"
    if topic.error_code != 0:
        return _refused(what, topic.error_code)
    leaderless = [each.partition_index for each in topic.partitions if each.leader_id < 0]
    if leaderless:
        return wrong(what, f"no leader for partitions {leaderless}", "Start the brokers that hold them")
    operations = topic.authorized_operations
    count = len(topic.partitions)
    found = f"{counted(count, 'partition')}"
    if operations is None:  # not returned by the broker
        return Finding(what, found)
    may = [name for name, operation in (("read", _READ), ("write", _WRITE)) if operation in operations]
    if not may:
        return wrong(
            what, f"{found}, this user may neither read nor write", "Allow READ for a source, WRITE for a sink"
        )
    if len(may) == 1:
        needs = "A sink needs WRITE on it" if may == ["read"] else "A source needs READ on it"
        return warning(what, f"{found}, this user may {may[0]} only", needs)
    return Finding(what, f"{found}, this user may read and write")


def _refused(what: str, code: int) -> Finding:
    error = KafkaError(ErrorCode(code)) if code in set(ErrorCode) else f"error {code}"
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return wrong(what, "it does not exist", "Create it, or correct the name")
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return wrong(what, "this user may not see it", "Allow DESCRIBE, and READ or WRITE, on it")
    return wrong(what, error, "Look at the broker's log")
