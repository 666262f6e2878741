"""Settings by request: described with their sources, changed while the broker runs, kept over restarts.

What is refused, and how, is what Apache Kafka 4.3 answered to the same requests.
"""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from sparkonce import BrokerConfig
from sparkonce.broker_lite.coordinators.consumer_group import ConsumerGroup
from sparkonce.broker_lite.handlers.incremental_alter_configs import Change
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.node.described_settings import ConfigResource, Source
from sparkonce.broker_lite.node.dynamic_settings import FILE
from sparkonce.broker_lite.server.connections import ConnectionTable
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from tests.cases import each_case
from tests.unit.broker.admin_support import NODE, Asked

TOPIC, BROKER, GROUP = int(ConfigResource.TOPIC), int(ConfigResource.BROKER), int(ConfigResource.GROUP)
SET, DELETE, APPEND, SUBTRACT = (int(change) for change in Change)
Op = tuple[str, int, str | None]
OK = (0, None)


def alter(asked: Asked, kind: int, name: str, *ops: Op, validate_only: bool = False) -> tuple[int, str | None]:
    answer = asked.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=[(kind, name, list(ops))], validate_only=validate_only
    )
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def described(asked: Asked, kind: int, name: str, *keys: str) -> dict[str, Any]:
    answer = asked.ask(
        ApiKey.DESCRIBE_CONFIGS,
        3,
        resources=[(kind, name, list(keys) or None)],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = answer.results
    assert result.error_code == 0, result.error_message
    return {each.name: each for each in result.configs}


def value(asked: Asked, kind: int, name: str, key: str) -> tuple[str | None, list[tuple[str, str | None, int]]]:
    config = described(asked, kind, name, key)[key]
    synonyms = [(each.name, each.value, each.source) for each in config.synonyms]
    assert config.config_source == (synonyms[0][2] if synonyms else Source.DEFAULT)
    return config.value, synonyms


def test_a_topics_setting_takes_effect_at_once_and_stays() -> None:
    asked = Asked()
    asked.create("a")
    log = asked.broker.partition("a", 0)
    assert alter(asked, TOPIC, "a", ("max.message.bytes", SET, "100")) == OK
    with pytest.raises(KafkaError) as refused:
        asked.append("a", b"x" * 200)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert asked.broker.partition("a", 0) is log
    asked.restart()
    assert asked.broker.partition("a", 0).config.max_message_bytes == 100
    assert value(asked, TOPIC, "a", "max.message.bytes") == (
        "100",
        [("max.message.bytes", "100", Source.TOPIC), ("message.max.bytes", "1048588", Source.DEFAULT)],
    )
    assert alter(asked, TOPIC, "a", ("max.message.bytes", DELETE, None)) == OK
    asked.append("a", b"x" * 200)
    asked.restart()
    assert value(asked, TOPIC, "a", "max.message.bytes")[0] == "1048588"


def test_lists_are_appended_to_and_taken_from() -> None:
    asked = Asked()
    asked.create("a")

    def policy() -> tuple[str, ...]:
        return asked.broker.partition("a", 0).config.cleanup_policy

    assert alter(asked, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) == OK
    assert policy() == ("delete", "compact")
    assert alter(asked, TOPIC, "a", ("cleanup.policy", APPEND, "compact")) == OK
    assert policy() == ("delete", "compact")
    assert alter(asked, TOPIC, "a", ("cleanup.policy", SUBTRACT, "delete")) == OK
    assert alter(asked, TOPIC, "a", ("cleanup.policy", SUBTRACT, "nope")) == OK
    assert policy() == ("compact",)
    assert alter(asked, TOPIC, "a", ("cleanup.policy", SET, "compact,delete, compact")) == OK
    assert policy() == ("compact", "delete")
    assert value(asked, TOPIC, "a", "cleanup.policy")[0] == "compact,delete"
    for emptied in ("compact,,delete", ",", "delete,"):
        assert alter(asked, TOPIC, "a", ("cleanup.policy", SET, emptied))[0] == ErrorCode.INVALID_CONFIG
    assert alter(asked, TOPIC, "a", ("cleanup.policy", SET, "compact")) == OK
    assert alter(asked, TOPIC, "a", ("cleanup.policy", SUBTRACT, "compact")) == OK
    assert policy() == ()


INVALID = ErrorCode.INVALID_REQUEST
REFUSED: list[tuple[int, str, tuple[Op, ...], ErrorCode, str]] = [
    (TOPIC, "none", (("retention.ms", SET, "5"),), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'none' does not exist"),
    (TOPIC, "", (("retention.ms", SET, "5"),), INVALID, "Default topic resources are not allowed."),
    (TOPIC, "a", (("nope", SET, "5"),), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
    (TOPIC, "a", (("retention.ms", SET, "x"),), ErrorCode.INVALID_CONFIG, "retention.ms"),
    (TOPIC, "a", (("retention.ms", SET, None),), INVALID, "Null value not supported for : retention.ms"),
    (TOPIC, "a", (("retention.ms", APPEND, "5"),), ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms"),
    (TOPIC, "a", (("nope", SUBTRACT, "5"),), ErrorCode.INVALID_CONFIG, "Can't SUBTRACT to key nope"),
    (TOPIC, "a", (("cleanup.policy", APPEND, "tidy"),), ErrorCode.INVALID_CONFIG, "'tidy' is none of"),
    (TOPIC, "a", (("retention.ms", 7, "5"),), INVALID, "Unknown operation 7"),
    (TOPIC, "a", (("retention.ms", SET, "5"), ("retention.ms", SET, "6")), INVALID, "duplicate config keys"),
    (TOPIC, "a", (("retention.ms", SET, "7"), ("nope", SET, "1")), ErrorCode.INVALID_CONFIG, "Unknown topic config"),
    (
        BROKER,
        "3",
        (("num.partitions", SET, "5"),),
        INVALID,
        "Cannot update these configs dynamically: [num.partitions]",
    ),
    (BROKER, "3", (("log.retention.ms", SET, "x"),), INVALID, "log.retention.ms"),
    (BROKER, "3", (("max.connections", SET, "-1"),), INVALID, "must be at least 0"),
    (BROKER, "99", (("log.retention.ms", SET, "5"),), INVALID, "expected 3, but received 99"),
    (BROKER, "abc", (("log.retention.ms", SET, "5"),), INVALID, "Node id must be an integer, but it is: abc"),
    (BROKER, "3", (("log.dir", SET, "/d"),), INVALID, "Cannot update these configs dynamically: [log.dir]"),
    (
        BROKER,
        "3",
        (("ssl.cipher.suites", SET, "x"),),
        INVALID,
        "Cannot update these configs dynamically: [ssl.cipher.su",
    ),
    (BROKER, "3", (("listener.name.x.ssl.keystore.type", SET, "x"),), INVALID, "dynamically: [listener.name.x.ssl"),
    (BROKER, "3", (("leader.replication.throttled.rate", SET, "x"),), INVALID, "expected a whole number"),
    (
        BROKER,
        "3",
        (("process.roles", SET, "broker"),),
        INVALID,
        "Cannot update these configs dynamically: [process.roles]",
    ),
    (BROKER, "", (("num.io.threads", SET, "many"),), INVALID, "num.io.threads='many': expected a whole number"),
    (GROUP, "", (("consumer.session.timeout.ms", SET, "5"),), INVALID, "Default group resources are not allowed."),
    (GROUP, "g", (("nope", SET, "1"),), ErrorCode.INVALID_CONFIG, "Unknown group config name: nope"),
    (GROUP, "g", (("consumer.session.timeout.ms", SET, "0"),), ErrorCode.INVALID_CONFIG, "must be at least 1"),
    (GROUP, "g", (("consumer.session.timeout.ms", SET, "1"),), ErrorCode.INVALID_CONFIG, "must be greater than"),
    (0, "a", (("x", SET, "1"),), INVALID, "Unknown resource type 0"),
]


@each_case("validate_only", [False, True], ids=["done", "tried"])
@each_case(("kind", "name", "ops", "code", "said"), REFUSED)
def test_a_change_that_cannot_be_is_refused_as_a_whole(
    kind: int, name: str, ops: tuple[Op, ...], code: ErrorCode, said: str, validate_only: bool
) -> None:
    asked = Asked()
    asked.create("a")
    before = asked.broker.config
    error, text = alter(asked, kind, name, *ops, validate_only=validate_only)
    assert error == code
    assert said in (text or "")
    assert not asked.broker.logs.topics["a"].settings
    assert asked.broker.config is before


def test_a_resource_named_twice_is_refused() -> None:
    asked = Asked()
    asked.create("a")
    resources = [(TOPIC, "a", [("retention.ms", SET, "5")]), (TOPIC, "a", [("retention.bytes", SET, "5")])]
    answer = asked.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, resources=resources, validate_only=False)
    assert [each.error_code for each in answer.responses] == [INVALID, INVALID]


def test_what_is_only_tried_changes_nothing() -> None:
    asked = Asked()
    asked.create("a")
    assert alter(asked, TOPIC, "a", ("retention.ms", SET, "5"), validate_only=True) == OK
    assert alter(asked, BROKER, "3", ("log.retention.ms", SET, "5"), validate_only=True) == OK
    assert alter(asked, GROUP, "g", ("consumer.session.timeout.ms", SET, "9000"), validate_only=True) == OK
    assert asked.broker.partition("a", 0).config.retention_ms == 7 * 24 * 3_600_000
    assert value(asked, GROUP, "g", "consumer.session.timeout.ms")[0] == "45000"


def test_a_brokers_setting_reaches_the_topics_without_their_own() -> None:
    asked = Asked(log_retention_hours=1)
    asked.create("follows")
    asked.create("own", retention_ms="5")

    def retention() -> list[int]:
        return [asked.broker.partition(name, 0).config.retention_ms for name in ("follows", "own", "later")]

    assert alter(asked, BROKER, "", ("log.retention.ms", SET, "6000")) == OK
    asked.create("later")
    assert retention() == [6000, 5, 6000]
    assert alter(asked, BROKER, "3", ("log.retention.ms", SET, "7000")) == OK
    assert retention() == [7000, 5, 7000]
    asked.restart()
    assert retention() == [7000, 5, 7000]
    synonyms = [
        ("log.retention.ms", "7000", Source.DYNAMIC_BROKER),
        ("log.retention.ms", "6000", Source.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "1", Source.STATIC_BROKER),
        ("log.retention.hours", "168", Source.DEFAULT),
    ]
    assert value(asked, BROKER, "3", "log.retention.ms") == ("7000", synonyms)
    assert value(asked, TOPIC, "follows", "retention.ms") == ("7000", synonyms)
    assert value(asked, TOPIC, "own", "retention.ms") == ("5", [("retention.ms", "5", Source.TOPIC), *synonyms])
    assert described(asked, BROKER, "").keys() == {"min.insync.replicas", "log.retention.ms"}
    assert alter(asked, BROKER, "3", ("log.retention.ms", DELETE, None)) == OK
    assert retention() == [6000, 5, 6000]
    assert alter(asked, BROKER, "", ("log.retention.ms", DELETE, None)) == OK
    assert retention() == [3_600_000, 5, 3_600_000]
    assert list(described(asked, BROKER, "")) == ["min.insync.replicas"]


def test_all_brokers_always_have_one_number_of_replicas_in_sync() -> None:
    """As Kafka with eligible leader replicas (KIP-966); `tests/interop` compares the answers with Kafka's."""
    asked, name = Asked(min_insync_replicas=2), "min.insync.replicas"
    of_file = [(name, "2", Source.STATIC_BROKER), (name, "1", Source.DEFAULT)]
    asked.create("follows")
    for expected in ("2", "3"):
        for_all = (name, expected, Source.DYNAMIC_DEFAULT_BROKER)
        assert value(asked, BROKER, "", name) == (expected, [for_all])
        assert value(asked, BROKER, "3", name) == (expected, [for_all, *of_file])
        assert value(asked, TOPIC, "follows", name) == (expected, [for_all, *of_file])
        assert alter(asked, BROKER, "3", (name, SET, "1"))[0] == ErrorCode.INVALID_CONFIG
        assert alter(asked, BROKER, "", (name, DELETE, None))[0] == ErrorCode.INVALID_CONFIG
        assert alter(asked, BROKER, "", (name, SET, "3")) == OK
        asked.restart()


def test_connections_are_told_of_their_new_limit() -> None:
    asked = Asked()
    told: list[BrokerConfig] = []
    asked.broker.on_settings_changed.append(told.append)
    assert alter(asked, BROKER, "", ("max.connections", SET, "5")) == OK
    assert [config.max_connections for config in told] == [5]

    table = ConnectionTable(BrokerConfig(max_connections=0), asked, lambda: 0, lambda _: None)
    assert not table.has_room()
    table.reconfigure(told[0])
    assert table.has_room()


def test_alter_configs_replaces_all_that_was_set() -> None:
    asked = Asked()
    asked.create("a", segment_ms="10")

    def replace(kind: int, name: str, *values: tuple[str, str | None]) -> int:
        resources = [(kind, name, list(values))]
        (result,) = asked.ask(ApiKey.ALTER_CONFIGS, 1, resources=resources, validate_only=False).responses
        code: int = result.error_code
        return code

    assert replace(TOPIC, "a", ("retention.ms", "9")) == 0
    assert dict(asked.broker.logs.topics["a"].settings) == {"retention.ms": "9"}
    assert replace(TOPIC, "a", ("retention.ms", None)) == INVALID
    assert replace(TOPIC, "a", ("nope", "1")) == ErrorCode.INVALID_CONFIG
    assert replace(TOPIC, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert replace(TOPIC, "a") == 0
    assert not asked.broker.logs.topics["a"].settings
    assert replace(BROKER, "3", ("log.retention.ms", "77")) == 0
    assert replace(BROKER, "3", ("log.retention.bytes", "78")) == 0
    assert dict(asked.broker.dynamic.of_broker("3")) == {"log.retention.bytes": "78"}


def test_a_brokers_settings_are_shown_whole() -> None:
    asked = Asked(ssl_key_password="hunter2", num_partitions=4)
    found = described(asked, BROKER, str(NODE))
    assert found["num.partitions"].value == "4"
    assert found["num.partitions"].read_only
    assert found["num.partitions"].documentation == "Partitions of a topic made on first use or without a number."
    assert not found["log.retention.ms"].read_only
    assert found["log.retention.ms"].value is None
    assert found["log.dirs"].value == "/log"
    secret = found["ssl.key.password"]
    assert (secret.value, secret.is_sensitive) == (None, True)
    assert [(each.value, each.source) for each in secret.synonyms] == [(None, Source.STATIC_BROKER)]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", INVALID),
        (BROKER, "abc", INVALID),
        (GROUP, "", INVALID),
        (0, "a", INVALID),
        (8, "3", INVALID),
    ],
)
def test_what_cannot_be_described(kind: int, name: str, code: ErrorCode) -> None:
    resources = [(kind, name, None)]
    answer = Asked().ask(ApiKey.DESCRIBE_CONFIGS, 1, resources=resources, include_synonyms=False)
    assert [(each.error_code, each.configs) for each in answer.results] == [(code, [])]


def test_a_groups_settings_reach_the_group_and_stay() -> None:
    asked = Asked()
    key = "consumer.session.timeout.ms"
    group = ConsumerGroup("g", asked.broker.groups.settings_of("g"))
    asked.broker.groups._groups["g"] = group
    assert alter(asked, GROUP, "g", (key, SET, "9000")) == OK
    assert group.settings.session_timeout_ms == 9000
    asked.restart()
    assert asked.broker.groups.settings_of("g").session_timeout_ms == 9000
    assert asked.broker.groups.settings_of("other").session_timeout_ms == 45_000
    assert value(asked, GROUP, "g", key) == (
        "9000",
        [(key, "9000", Source.GROUP), (f"group.{key}", "45000", Source.DEFAULT)],
    )
    assert alter(asked, GROUP, "g", (key, DELETE, None)) == OK
    assert asked.broker.dynamic.groups == []


def test_resources_are_listed() -> None:
    asked = Asked()
    asked.create("a")
    alter(asked, GROUP, "g", ("consumer.session.timeout.ms", SET, "9000"))

    def listed(*kinds: int) -> set[tuple[int, str]]:
        answer = asked.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=list(kinds))
        assert answer.error_code == 0
        return {(each.resource_type, each.resource_name) for each in answer.config_resources}

    assert listed() == {(TOPIC, "a"), (BROKER, "3"), (GROUP, "g")}
    assert listed(GROUP) == {(GROUP, "g")}
    assert listed(16) == set()
    assert asked.ask(ApiKey.LIST_CONFIG_RESOURCES, 0).config_resources == []
    unknown = asked.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[99])
    assert unknown.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_what_cannot_be_written_down_does_not_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked()
    asked.create("a")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(asked._storage, "write", full)
    storage_error = ErrorCode.KAFKA_STORAGE_ERROR
    assert alter(asked, TOPIC, "a", ("retention.ms", SET, "5"))[0] == storage_error
    assert alter(asked, BROKER, "3", ("log.retention.ms", SET, "5"))[0] == storage_error
    assert alter(asked, GROUP, "g", ("consumer.session.timeout.ms", SET, "9000"))[0] == storage_error
    monkeypatch.undo()
    assert asked.broker.partition("a", 0).config == LogConfig()
    assert not asked.broker.logs.topics["a"].settings
    assert not asked.broker.dynamic.of_broker("3")
    assert asked.broker.dynamic.groups == []
    assert alter(asked, TOPIC, "a", ("retention.ms", SET, "5")) == OK


def test_no_quota_is_listed() -> None:
    answer = Asked().ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False)
    assert (answer.error_code, answer.entries) == (0, [])


def test_a_setting_without_effect_is_kept_and_shown() -> None:
    """Kafka's tools set such settings, and look whether they have been set."""
    asked, name = Asked(), "num.io.threads"
    before = asked.broker.config
    assert described(asked, BROKER, str(NODE), name) == {}
    assert alter(asked, BROKER, "", (name, SET, "16")) == OK
    assert alter(asked, BROKER, str(NODE), (name, SET, "32"), ("max.connections", SET, "7")) == OK
    assert asked.broker.config.max_connections == 7
    for_all = (name, "16", Source.DYNAMIC_DEFAULT_BROKER)
    for _ in range(2):
        assert value(asked, BROKER, "", name) == ("16", [for_all])
        assert value(asked, BROKER, str(NODE), name) == ("32", [(name, "32", Source.DYNAMIC_BROKER), for_all])
        assert name in described(asked, BROKER, str(NODE))
        asked.restart()
    assert alter(asked, BROKER, str(NODE), (name, DELETE, None), ("max.connections", DELETE, None)) == OK
    assert value(asked, BROKER, str(NODE), name) == ("16", [for_all])
    assert alter(asked, BROKER, "", (name, DELETE, None)) == OK
    assert described(asked, BROKER, str(NODE), name) == {}
    assert asked.broker.config.max_connections == before.max_connections


def test_a_setting_that_nobody_knows_is_kept_as_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    """A plugin might read it, and it might be a password; so Kafka does."""
    asked, name = Asked(), "plugin.token"
    for _ in range(2):
        assert alter(asked, BROKER, str(NODE), (name, SET, "geheim")) == OK
        shown = described(asked, BROKER, str(NODE), name)[name]
        assert (shown.value, shown.read_only, shown.is_sensitive) == (None, True, True)
        assert asked.broker.dynamic.of_broker(str(NODE)) == {name: "geheim"}
        asked.restart()
    assert caplog.text.count("[plugin.token]: kept, but without effect") == 1
    assert "geheim" not in caplog.text
    assert alter(asked, BROKER, str(NODE), (name, DELETE, None)) == OK
    assert described(asked, BROKER, str(NODE), name) == {}


def test_what_no_longer_fits_is_left_out_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    content = json.dumps({"brokers": {"3": {"log.retention.ms": "x", "max.connections": "7"}}}).encode()
    kept = {"max.connections": "7"}
    asked._storage.write(f"/log/{FILE}", content, durable=True)
    asked.restart()
    assert dict(asked.broker.dynamic.of_broker("3")) == kept
    assert FILE in caplog.text


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"null", b'{"version": 2}', b'{"brokers": {"": 1}}'])
def test_a_broker_does_not_start_without_the_settings_that_a_damaged_file_held(content: bytes) -> None:
    """By its defaults, it would delete records after a week that are to stay."""
    asked = Asked()
    assert alter(asked, BROKER, "", ("log.retention.ms", SET, "-1")) == OK
    good = asked._storage.read(f"/log/{FILE}")
    asked._storage.write(f"/log/{FILE}", content, durable=True)
    with pytest.raises(LogDirectoryError, match=f"/log/{FILE} is damaged"):
        asked.restart()
    asked._storage.write(f"/log/{FILE}", good, durable=True)
    asked.broker = asked._open()
    assert asked.broker.config.log.retention_ms == -1
