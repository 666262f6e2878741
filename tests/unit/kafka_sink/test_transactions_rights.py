"""What the Kafka sink and `sparkonce transactions` may do with exactly the rights that docs/kafka_sink.md lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink.decisions import DEFAULT_TOPIC
from sparkonce.jobs.cli.main import main
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.settings import read_settings
from tests.unit.kafka_sink.transactions_support import OUTPUT_TOPIC, SOURCE_TOPIC, Pipeline, settings_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "kafka_sink.md"
APP = "orders"
SECRET = "s3cret-of-alice"
"""Alice runs the query, Lucy only looks, Bob may do nothing."""
USERS = f'user_alice="{SECRET}" user_lucy="lucys-secret" user_bob="bobs-secret"'
NAMES = {
    "<appId>": APP,
    "<decisionTopic>": DEFAULT_TOPIC,
    "<output topic>": OUTPUT_TOPIC,
    "<source topic>": SOURCE_TOPIC,
}


def listed(title: str) -> list[tuple[str, ...]]:
    """Return the table of rights under a heading of the page: resource, name, operations."""
    _, _, section = PAGE.read_text().partition(f"\n### {title}\n")
    rows = [line for line in section.partition("\n##")[0].splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip() for cell in row.split("|")[1:4]) for row in rows]


def bindings(user: str, rights: list[tuple[str, ...]]) -> Iterator[AclBinding]:
    for kind, name, operations in rights:
        for placeholder, value in NAMES.items():
            name = name.replace(placeholder, value)
        prefixed = name.endswith("`, prefix")
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        bare = re.findall("`([^`]+)`", name)[0]
        for operation in re.findall("[A-Z_]+", operations):
            yield AclBinding(
                ResourceType[kind.replace(" ", "_").upper()],
                bare,
                pattern,
                f"User:{user}",
                "*",
                AclOperation[operation],
                AclPermissionType.ALLOW,
            )


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"
        ),
        "connection.failed.authentication.delay.ms": 0,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedBroker(config=config) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        topics = [NewTopic(name, 1, 1) for name in (SOURCE_TOPIC, OUTPUT_TOPIC)]
        for made in admin.create_topics(topics).values():
            made.result()
        wanted = [
            *bindings("alice", listed("The query")),
            *bindings("lucy", listed("`sparkonce transactions list`")),
        ]
        for future in admin.create_acls(wanted).values():
            future.result()
        yield running


def config_file(broker: EmbeddedBroker, folder: Path, user: str, password: str) -> Path:
    path = folder / f"{user}.properties"
    path.write_text(
        f"bootstrap.servers={broker.listeners['SASL_PLAINTEXT']}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{password}";\n'
    )
    return path


def client_of(broker: EmbeddedBroker, user: str, password: str) -> Client:
    return Client(
        read_settings(
            {
                "kafka.bootstrap.servers": broker.listeners["SASL_PLAINTEXT"],
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'username="{user}" password="{password}";',
            }
        )
    )


def test_the_rights_that_are_listed_are_enough(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = client_of(broker, "alice", SECRET)
    pipeline = Pipeline(client, app_id=APP)
    lost = pipeline.task(0)
    pipeline.decide(lost)
    pipeline.lose(lost)
    config = str(config_file(broker, tmp_path, "alice", SECRET))
    common = ["--command-config", config]
    assert main(["transactions", "list", *common]) == 1
    assert main(["transactions", "finish", *common, "--app-id", APP]) == 0  # takes it back, offsets included
    pipeline.task(1)
    assert main(["transactions", "abort", *common, "--app-id", APP, "--apply"]) == 0
    pipeline.identity = pipeline.driver.recover()
    pipeline.decide(pipeline.task(2))
    assert main(["transactions", "finish", *common, "--app-id", APP]) == 0

    lucys = ["--command-config", str(config_file(broker, tmp_path, "lucy", "lucys-secret"))]
    assert main(["transactions", "list", *lucys]) == 0
    shown = capsys.readouterr()
    assert "undid decision 1" in shown.out
    assert "last decision 3" in shown.out
    assert SECRET not in shown.out + shown.err
    client.close()


def test_what_is_refused_says_which_right_is_missing(
    broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Client(settings_of(broker.bootstrap_servers))
    pipeline = Pipeline(root, app_id=APP)
    pipeline.decide(pipeline.task(0))
    pipeline.task(1)
    bobs = ["--command-config", str(config_file(broker, tmp_path, "bob", "bobs-secret"))]
    assert main(["transactions", "list", *bobs]) == 1
    assert f"not allowed to read topic '{DEFAULT_TOPIC}': ask for DESCRIBE and READ on it" in capsys.readouterr().err
    lucys = ["--command-config", str(config_file(broker, tmp_path, "lucy", "lucys-secret"))]
    for words in (["finish"], ["abort", "--apply"]):
        assert main(["transactions", words[0], *lucys, "--app-id", APP, *words[1:]]) == 1
        assert "this user needs WRITE and DESCRIBE on transactional ids" in capsys.readouterr().err
    pipeline.driver.recover()
    root.close()


def test_no_secret_is_told(broker: EmbeddedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "wr0ng-secret"
    config = str(config_file(broker, tmp_path, "alice", wrong))
    assert main(["transactions", "list", "--command-config", config]) == 1
    assert main(["transactions", "list", "--command-config", config, "--kafka", f"sasl.password={wrong}"]) == 1
    torn = tmp_path / "torn.properties"
    torn.write_text(
        f"bootstrap.servers=x:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=NO-SUCH\nsasl.password={SECRET}\n"
    )
    assert main(["transactions", "list", "--command-config", str(torn)]) == 2
    with pytest.raises(SystemExit):
        main(["transactions", "list", "--kafka", SECRET])
    shown = capsys.readouterr()
    assert wrong not in shown.out + shown.err
    assert SECRET not in shown.out + shown.err
    assert shown.err
