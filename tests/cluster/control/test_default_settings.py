"""What topics go by that have no settings of their own: one value for the cluster, whatever the brokers' files say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from sparkonce import EmbeddedCluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode
from tests.cluster.control.clients import admin, create
from tests.interop.plain_client import PlainClient

BROKER = 4
LEAST = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    files: dict[int, dict[str, object]] = {1: {LEAST: 2}, 2: {LEAST: 2}, 3: {LEAST: 1, UNCLEAN: "true"}}
    with EmbeddedCluster(brokers=3, of_broker=files) as cluster:
        yield cluster


def shown(client: AdminClient, kind: ResourceType, resource: str, name: str) -> tuple[str, ConfigSource]:
    (future,) = client.describe_configs([ConfigResource(kind, resource)]).values()
    entry = future.result(20)[name]
    return entry.value, ConfigSource(entry.source)


def change(
    cluster: EmbeddedCluster, asked: int, resource: str, *changes: tuple[str, int, str | None]
) -> tuple[ErrorCode, str]:
    """Change settings of a broker, or of all (""), through the broker `asked`; returns the answer."""
    kind = apis.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
    configs = [
        kind.AlterableConfig(version=1, name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    return _answer(cluster, asked, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, kind, resource, configs)


def replace(cluster: EmbeddedCluster, asked: int, **settings: str) -> tuple[ErrorCode, str]:
    """Let these be all settings of all brokers, by the older request; with _ for the dots."""
    kind = apis.request_class(ApiKey.ALTER_CONFIGS).AlterConfigsResource
    configs = [
        kind.AlterableConfig(version=2, name=name.replace("_", "."), value=value) for name, value in settings.items()
    ]
    return _answer(cluster, asked, ApiKey.ALTER_CONFIGS, 2, kind, "", configs)


def _answer(
    cluster: EmbeddedCluster, asked: int, key: ApiKey, version: int, kind: Any, resource: str, configs: list[Any]
) -> tuple[ErrorCode, str]:
    changed = kind(version=version, resource_type=BROKER, resource_name=resource, configs=configs)
    with PlainClient(cluster.brokers[asked].bootstrap_servers) as client:
        (answer,) = client.ask(key, version, resources=[changed], validate_only=False).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


def everywhere(cluster: EmbeddedCluster, name: str, value: str) -> bool:
    return all(
        shown(admin(broker.bootstrap_servers), ResourceType.BROKER, str(broker_id), name)
        == (value, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
        for broker_id, broker in cluster.brokers.items()
    )


def test_brokers_with_different_files_go_by_one_value_that_can_be_changed(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    first = shown(admin(cluster.brokers[1].bootstrap_servers), ResourceType.BROKER, "1", LEAST)[0]
    assert first in ("1", "2"), "that of the broker that was the first controller"
    assert everywhere(cluster, LEAST, first)
    asked = next(each for each in cluster.brokers if each != cluster.controller_id)
    assert change(cluster, asked, "", (LEAST, SET, "3"), (UNCLEAN, SET, "TRUE")) == (ErrorCode.NONE, "")
    cluster.wait_until(lambda: everywhere(cluster, LEAST, "3"), "not all brokers have heard")
    cluster.wait_until(lambda: everywhere(cluster, UNCLEAN, "true"), "not all brokers have heard")
    client = admin(cluster.brokers[asked].bootstrap_servers)
    create(client, "plain", partitions=1)
    create(client, "own", partitions=1, min_insync_replicas="1")
    assert shown(client, ResourceType.TOPIC, "plain", LEAST) == ("3", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert shown(client, ResourceType.TOPIC, "own", LEAST) == ("1", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    caplog.clear()
    cluster.restart(2)
    told = [each.getMessage() for each in caplog.records if "does not count" in each.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("min.insync.replicas=2 of this broker does not count: the cluster goes by")
    assert everywhere(cluster, LEAST, "3")


def test_one_broker_has_no_value_of_its_own_and_all_of_them_always_have_one(cluster: EmbeddedCluster) -> None:
    code, text = change(cluster, 1, "3", (LEAST, SET, "2"))
    assert code is ErrorCode.INVALID_CONFIG
    assert "set it for all" in text
    assert change(cluster, 1, "", (UNCLEAN, SET, "false")) == (ErrorCode.NONE, "")
    before = shown(admin(cluster.bootstrap_servers), ResourceType.BROKER, "1", LEAST)[0]
    code, text = change(cluster, 2, "", (LEAST, DELETE, None))
    assert code is ErrorCode.INVALID_CONFIG
    assert "cannot be removed" in text
    assert change(cluster, 3, "", (LEAST, SET, "0"))[0] is ErrorCode.INVALID_REQUEST
    assert replace(cluster, 1, log_cleaner_backoff_ms="555")[0] is ErrorCode.INVALID_CONFIG
    assert replace(cluster, 1, log_cleaner_backoff_ms="555", min_insync_replicas=before) == (ErrorCode.NONE, "")
    cluster.wait_until(lambda: everywhere(cluster, "log.cleaner.backoff.ms", "555"), "not all brokers have heard")
    assert everywhere(cluster, LEAST, before)
    assert everywhere(cluster, UNCLEAN, "false")
