"""What clients change for all brokers: settings of brokers, access control lists, SCRAM credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sparkonce import EmbeddedCluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from tests.cluster.control.clients import admin
from tests.interop.plain_client import PlainClient

BROKER = 4

WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RULE = (ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, config=WITH_ACLS) as cluster:
        yield cluster


def clients(cluster: EmbeddedCluster) -> list[AdminClient]:
    return [admin(broker.bootstrap_servers) for broker in cluster.brokers.values()]


def value(client: AdminClient, broker_id: int) -> str:
    (future,) = client.describe_configs([ConfigResource(ResourceType.BROKER, str(broker_id))]).values()
    found = future.result(20)["log.cleaner.backoff.ms"].value
    assert isinstance(found, str)
    return found


def change(cluster: EmbeddedCluster, asked: int, resource: str, text: str) -> None:
    """Change a setting of a broker, or of all (""), through the broker `asked`."""
    with PlainClient(cluster.brokers[asked].bootstrap_servers) as client:
        kind = apis.request_class(ApiKey.INCREMENTAL_ALTER_CONFIGS).AlterConfigsResource
        config = kind.AlterableConfig(version=1, name="log.cleaner.backoff.ms", config_operation=0, value=text)
        changed = kind(version=1, resource_type=BROKER, resource_name=resource, configs=[config])
        answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[changed], validate_only=False)
        assert [each.error_code for each in answer.responses] == [0]


def test_settings_are_changed_for_all_brokers_or_for_one(cluster: EmbeddedCluster) -> None:
    first, second, third = clients(cluster)
    change(cluster, 1, "", "777")
    cluster.wait_until(lambda: value(first, 1) == "777", "broker 1 has not heard")
    cluster.wait_until(lambda: value(third, 3) == "777", "broker 3 has not heard")
    change(cluster, 3, "2", "888")
    cluster.wait_until(lambda: value(second, 2) == "888", "broker 2 has not heard")
    assert (value(first, 1), value(third, 3)) == ("777", "777")
    cluster.restart(2)
    assert value(second, 2) == "888"


def test_access_control_lists_are_those_of_the_cluster(cluster: EmbeddedCluster) -> None:
    every = clients(cluster)
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for client in every:
        (future,) = client.create_acls([AclBinding(*RULE, AclPermissionType.ALLOW)]).values()
        future.result(20)
        for other in every:
            cluster.wait_until(lambda other=other: len(other.describe_acls(anything).result(20)) == 1, "not heard")
        (future,) = client.delete_acls([anything]).values()
        assert len(future.result(20)) == 1
        for other in every:
            cluster.wait_until(lambda other=other: not other.describe_acls(anything).result(20), "not heard")


def test_scram_credentials_are_those_of_the_cluster(cluster: EmbeddedCluster) -> None:
    first, second, third = clients(cluster)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    (future,) = second.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("alice", info, b"secret", b"salt")]
    ).values()
    future.result(20)
    for client in (first, second, third):
        cluster.wait_until(
            lambda client=client: "alice" in client.describe_user_scram_credentials().result(20), "not heard"
        )
    kept = [path.stat().st_mode & 0o777 for path in cluster.data_dir.glob("metadata/__cluster_metadata-0/*.log")]
    assert kept == [0o600]
