"""Apache Kafka's own tools and clients over every security protocol, with access control lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.peers import missing_kafka_reason, run_tool
from sparkonce import EmbeddedBroker
from tests.certificates import Authority
from tests.interop.test_security import PASSWORDS, WAYS, Clients, settings_of

pytestmark = pytest.mark.java
RECORDS = 500


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    reason = missing_kafka_reason()
    if reason is not None:
        pytest.skip(reason)
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    settings = settings_of(authority.issue("broker.pem"), authority)
    with EmbeddedBroker(tmp_path_factory.mktemp("secure") / "data", process=True, config=settings) as broker:
        yield Clients(broker, authority)
        said = Path(broker.data_dir / "broker.log").read_text()
    assert [secret for secret in (*PASSWORDS.values(), "key-pa55", "d0ra-pa55") if secret in said] == []


def properties(clients: Clients, protocol: str, mechanism: str, user: str = "admin", password: str = "") -> Path:
    """Write a Java client's settings into a file."""
    lines = [f"security.protocol={protocol}"]
    if protocol.endswith("SSL"):
        lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={clients.authority.file}"]
    if protocol == "SSL":
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={clients.identities[user].file}"]
    if mechanism:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = f'username="{user}" password="{password or PASSWORDS[user]}"'
        lines += [
            f"sasl.mechanism={mechanism}",
            f"sasl.jaas.config=org.apache.kafka.common.security.{module} required {options};",
        ]
    file = clients.authority.directory / f"{protocol}-{mechanism}-{user}.properties"
    file.write_text("\n".join(lines) + "\n")
    return file


def tool(name: str, *arguments: str) -> str:
    package = "kafka.admin" if name == "ConfigCommand" else "org.apache.kafka.tools"
    result = run_tool(f"{package}.{name}", *arguments)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def produce_and_consume(clients: Clients, protocol: str, mechanism: str) -> None:
    file, servers = str(properties(clients, protocol, mechanism)), clients.broker.listeners[protocol]
    topic = f"java-{protocol}-{mechanism}"
    said = tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "1000", "--throughput", "-1"),
        *("--command-config", file, "--bootstrap-server", servers),
    )
    assert f"{RECORDS} records sent" in said
    said = tool(
        "ConsumerPerformance",
        *("--bootstrap-server", servers, "--topic", topic, "--num-records", str(RECORDS), "--timeout", "30000"),
        *("--command-config", file),
    )
    assert f", {RECORDS}, " in said


@pytest.mark.soak
@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_java_clients(clients: Clients, protocol: str, mechanism: str) -> None:
    produce_and_consume(clients, protocol, mechanism)


def test_acl_command(clients: Clients) -> None:
    common = ["--bootstrap-server", clients.broker.listeners["SASL_SSL"], "--command-config",
              str(properties(clients, "SASL_SSL", "SCRAM-SHA-512"))]  # fmt: skip
    said = tool("AclCommand", *common, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders-",
                "--group", "billing", "--resource-pattern-type", "prefixed")  # fmt: skip
    for each in (
        "ResourcePattern(resourceType=TOPIC, name=orders-, patternType=PREFIXED)",
        "(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)",
        "(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW)",
        "ResourcePattern(resourceType=GROUP, name=billing, patternType=PREFIXED)",
    ):
        assert each in said


@pytest.mark.soak
def test_acl_and_config_command(clients: Clients) -> None:
    servers = clients.broker.listeners["SASL_SSL"]
    common = ["--bootstrap-server", servers, "--command-config",
              str(properties(clients, "SASL_SSL", "SCRAM-SHA-512"))]  # fmt: skip
    tool("AclCommand", *common, "--add", "--allow-principal", "User:dora", "--operation", "All", "--topic", "*",
         "--cluster", "--deny-host", "10.0.0.1", "--deny-principal", "User:eve")  # fmt: skip
    said = tool("AclCommand", *common, "--list", "--principal", "User:dora")
    assert "(principal=User:dora, host=*, operation=ALL, permissionType=ALLOW)" in said
    tool("ConfigCommand", *common, "--alter", "--entity-type", "users", "--entity-name", "dora", "--add-config",
         "SCRAM-SHA-256=[iterations=8192,password=d0ra-pa55]")  # fmt: skip
    dora = str(properties(clients, "SASL_SSL", "SCRAM-SHA-256", "dora", "d0ra-pa55"))
    as_dora = ["--bootstrap-server", servers, "--command-config", dora]
    tool("TopicCommand", *as_dora, "--create", "--topic", "doras")
    assert "doras" in tool("TopicCommand", *as_dora, "--list")
    tool("AclCommand", *common, "--remove", "--force", "--allow-principal", "User:dora", "--operation", "All",
         "--topic", "*", "--cluster")  # fmt: skip
    assert "doras" not in tool("TopicCommand", *as_dora, "--list")
    assert "User:eve" in tool("AclCommand", *common, "--list")
