"""Other clients over every security protocol; what they may do follows access control lists; no secret is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import pytest
from confluent_kafka import admin as confluent_admin
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

from sparkonce import EmbeddedBroker
from tests.certificates import Authority, Identity
from tests.interop.python_consumer import python_consumer

# kafka-python leaves a socket for the garbage collector now and then.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
DEADLINE_S = 30.0
COUNT = 50
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PASSWORDS = {"admin": "adm1n-pa55", "alice": "al1ce-pa55", "bob": "b0b-pa55"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [("PLAINTEXT", ""), ("SSL", ""), *[(each, mechanism) for each in ("SASL_PLAINTEXT", "SASL_SSL")
                                          for mechanism in MECHANISMS]]  # fmt: skip


def jaas(module: str) -> str:
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    return f"org.apache.kafka.common.security.{module} required {users};"


def settings_of(broker_identity: Identity, authority: Authority) -> dict[str, object]:
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "ssl.keystore.key": broker_identity.key_text("key-pa55"),
        "ssl.key.password": "key-pa55",
        "ssl.keystore.certificate.chain": broker_identity.chain,
        "ssl.truststore.location": str(authority.file),
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/L,DEFAULT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:ANONYMOUS",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
        for mechanism in MECHANISMS:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"] = jaas(module)
    return settings


class Clients:
    """The settings that clients need to reach the broker in one way."""

    def __init__(self, broker: EmbeddedBroker, authority: Authority) -> None:
        self.broker = broker
        self.authority = authority
        self.identities = {
            user: authority.issue(
                f"{user}.pem", [(NameOID.ORGANIZATION_NAME, "Example"), (NameOID.COMMON_NAME, user.upper())]
            )
            for user in PASSWORDS
        }

    def confluent(self, protocol: str, mechanism: str = "", user: str = "admin", **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.broker.listeners[protocol],
            "security.protocol": protocol,
            "log_level": 0,
        }
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority.file)
        if protocol == "SSL":
            settings["ssl.certificate.location"] = settings["ssl.key.location"] = str(self.identities[user].file)
        if mechanism:
            settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORDS[user]}
        return settings | more

    def python(self, protocol: str, mechanism: str = "", user: str = "admin", **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.broker.listeners[protocol],
            "security_protocol": protocol,
        }
        if protocol.endswith("SSL"):
            settings["ssl_cafile"] = str(self.authority.file)
        if protocol == "SSL":
            settings["ssl_certfile"] = settings["ssl_keyfile"] = str(self.identities[user].file)
        if mechanism:
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": PASSWORDS[user],
            }
        return settings | more


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    settings = settings_of(authority.issue("broker.pem"), authority)
    data_dir = tmp_path_factory.mktemp("secure") / "data"
    with EmbeddedBroker(data_dir, process=True, config=settings) as broker:
        command_line = " ".join(psutil.Process(broker.pid).cmdline())
        yield Clients(broker, authority)
    said = Path(data_dir / "broker.log").read_text()
    assert "listening on SASL_SSL://127.0.0.1:" in said
    secrets = [*PASSWORDS.values(), "key-pa55", "wr0ng", "PRIVATE KEY", "sc4r-pa55"]
    assert [secret for secret in secrets if secret in said] == []
    assert "broker_lite" in command_line
    assert [secret for secret in secrets if secret in command_line] == []


def values() -> list[bytes]:
    return [b"value %d" % number for number in range(COUNT)]


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_confluent_kafka(clients: Clients, protocol: str, mechanism: str) -> None:
    topic = f"confluent-{protocol}-{mechanism}"
    settings = clients.confluent(protocol, mechanism)
    producer = confluent_kafka.Producer(settings)
    for value in values():
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    while len(found) < COUNT:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    assert found == values()


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafka_python(clients: Clients, protocol: str, mechanism: str) -> None:
    topic = f"python-{protocol}-{mechanism}"
    settings = clients.python(protocol, mechanism)
    producer = KafkaProducer(**settings)
    for value in values():
        producer.send(topic, value)
    producer.close(timeout=DEADLINE_S)
    with python_consumer(topic, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
        assert [next(consumer).value for _ in range(COUNT)] == values()


def wait_for(future: Any) -> Any:
    return future.result(DEADLINE_S)


def refusal(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        wait_for(future)
    return raised.value.args[0].code()


def test_wrong_passwords(clients: Clients, caplog: pytest.LogCaptureFixture) -> None:
    for mechanism in MECHANISMS:
        errors: list[Any] = []
        settings = clients.confluent("SASL_SSL", mechanism, error_cb=errors.append) | {"sasl.password": "wr0ng"}
        client = confluent_admin.AdminClient(settings)
        while not errors:
            with pytest.raises(confluent_kafka.KafkaException):
                client.list_topics(timeout=0.3)
            client.poll(0)
        assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    wrong = clients.python("SASL_SSL", "PLAIN") | {"sasl_plain_password": "wr0ng", "bootstrap_timeout_ms": 500}
    with pytest.raises(PythonKafkaError):
        KafkaAdminClient(**wrong)
    assert "SaslAuthenticationFailedError: Authentication failed: Invalid username or password" in caplog.text


def acl(principal: str, operation: Any, name: str, resource: Any = confluent_admin.ResourceType.TOPIC) -> Any:
    return confluent_admin.AclBinding(
        resource, name, confluent_admin.ResourcePatternType.PREFIXED, principal, "*", operation,
        confluent_admin.AclPermissionType.ALLOW,
    )  # fmt: skip


def any_acl(**only: Any) -> Any:
    fields = {
        "restype": confluent_admin.ResourceType.ANY, "name": None,
        "resource_pattern_type": confluent_admin.ResourcePatternType.ANY, "principal": None, "host": None,
        "operation": confluent_admin.AclOperation.ANY, "permission_type": confluent_admin.AclPermissionType.ANY,
    }  # fmt: skip
    return confluent_admin.AclBindingFilter(**(fields | only))


@pytest.mark.parametrize(("protocol", "mechanism", "user"), [("SASL_PLAINTEXT", "PLAIN", "alice"), ("SSL", "", "bob")])
def test_access_control_lists(clients: Clients, protocol: str, mechanism: str, user: str) -> None:
    operation, kind = confluent_admin.AclOperation, confluent_admin.ResourceType
    root = confluent_admin.AdminClient(clients.confluent("SASL_SSL", "PLAIN"))
    settings = clients.confluent(protocol, mechanism, user)
    limited = confluent_admin.AdminClient(settings)
    topic, principal = f"acl-{user}", f"User:{user}"
    wait_for(root.create_topics([confluent_admin.NewTopic(topic, 1, 1)])[topic])
    code = confluent_kafka.KafkaError
    assert limited.list_topics(timeout=DEADLINE_S).topics == {}
    assert limited.list_topics(topic, timeout=DEADLINE_S).topics[topic].error.code() == code.TOPIC_AUTHORIZATION_FAILED
    assert refusal(limited.create_topics([confluent_admin.NewTopic("acl-x", 1, 1)])) == code.TOPIC_AUTHORIZATION_FAILED
    assert refusal(limited.delete_topics([topic])) == code.TOPIC_AUTHORIZATION_FAILED
    assert refusal(limited.create_acls([acl(principal, operation.ALL, "")])) == code.CLUSTER_AUTHORIZATION_FAILED
    assert produce_error(settings, topic) == code.TOPIC_AUTHORIZATION_FAILED

    granted = [acl(principal, operation.WRITE, topic), acl(principal, operation.READ, topic)]
    for each in root.create_acls(granted).values():
        wait_for(each)
    assert list(limited.list_topics(timeout=DEADLINE_S).topics) == [topic]
    assert produce_error(settings, topic) is None
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        consume(settings, topic)
    assert raised.value.args[0].code() == code.GROUP_AUTHORIZATION_FAILED
    for each in root.create_acls([acl(principal, operation.READ, topic, kind.GROUP)]).values():
        wait_for(each)
    assert consume(settings, topic) == b"x"

    found = wait_for(root.describe_acls(any_acl(principal=principal)))
    assert len(found) == 3
    match = confluent_admin.ResourcePatternType.MATCH
    applying = any_acl(restype=kind.TOPIC, name=topic + "-more", resource_pattern_type=match, principal=principal)
    (gone,) = [wait_for(each) for each in root.delete_acls([applying]).values()]
    assert sorted(each.operation.name for each in gone) == ["READ", "WRITE"]
    assert limited.list_topics(timeout=DEADLINE_S).topics == {}


def produce_error(settings: dict[str, Any], topic: str) -> Any:
    producer = confluent_kafka.Producer(settings)
    errors: list[Any] = []
    producer.produce(topic, b"x", callback=lambda error, _: errors.append(error and error.code()))
    assert producer.flush(DEADLINE_S) == 0
    return errors[0]


def consume(settings: dict[str, Any], topic: str) -> Any:
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        return message.value()
    finally:
        consumer.close()


def test_scram_users_come_and_go(clients: Clients) -> None:
    root = confluent_admin.AdminClient(clients.confluent("SASL_SSL", "SCRAM-SHA-512"))
    mechanism = confluent_admin.ScramMechanism.SCRAM_SHA_256
    info = confluent_admin.ScramCredentialInfo(mechanism, 8192)
    change: Callable[..., Any] = root.alter_user_scram_credentials
    wait_for(change([confluent_admin.UserScramCredentialUpsertion("carol", info, b"sc4r-pa55")])["carol"])
    found = wait_for(root.describe_user_scram_credentials())
    assert [(each.mechanism, each.iterations) for each in found["carol"].scram_credential_infos] == [(mechanism, 8192)]
    assert {"admin", "alice", "bob", "carol"} <= set(found)
    login = clients.confluent("SASL_PLAINTEXT", "SCRAM-SHA-256")
    login |= {"sasl.username": "carol", "sasl.password": "sc4r-pa55"}
    clients.broker.restart()
    confluent_admin.AdminClient(login).list_topics(timeout=DEADLINE_S)
    root = confluent_admin.AdminClient(clients.confluent("SASL_SSL", "SCRAM-SHA-512"))
    wait_for(
        root.alter_user_scram_credentials([confluent_admin.UserScramCredentialDeletion("carol", mechanism)])["carol"]
    )
    with pytest.raises(confluent_kafka.KafkaException):
        confluent_admin.AdminClient(login).list_topics(timeout=0.5)
