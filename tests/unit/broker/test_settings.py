"""The declarations of settings: held against Apache Kafka's own, which `kafka_4_3_0.json` has noted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from sparkonce import BrokerConfig, ConfigError
from sparkonce.broker_lite.__main__ import main
from sparkonce.broker_lite.config import broker_settings, file_settings
from sparkonce.broker_lite.controller.image import KAFKA_DEFAULTS
from sparkonce.broker_lite.log.config import LogConfig, topic_settings
from sparkonce.broker_lite.node.dynamic_settings import group_settings
from sparkonce.broker_lite.settings_page import sections
from sparkonce.broker_lite.unserved_settings import CHANGEABLE, HARMLESS, is_kafkas
from sparkonce.settings import Setting, SettingError, Update
from tests.cases import each_case

KAFKA: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "kafka_4_3_0.json").read_text())
OURS = {"allow.everyone.if.no.acl.found", "cluster.id", "host.name", "metrics.port", "port", "super.users"}
"""Settings that are ours, or that Kafka's authorizer has and its broker does not list."""
OURS |= {"zookeeper.connect", "zookeeper.session.timeout.ms"}  # Kafka's, up to version 3
NO_DEFAULT_IN_KAFKA = {"node.id", "log.dirs", "advertised.listeners"}

STOCK_FILE = """\
# What a file that comes with Kafka holds.
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=24
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def everything() -> list[Setting]:
    return [setting for _, settings in sections().values() for setting in settings]


@each_case("setting", everything(), ids=lambda setting: setting.name)
def test_each_says_what_it_is_and_can_be_what_it_is_by_default(setting: Setting) -> None:
    assert setting.documentation.endswith((".", ")")), setting.documentation
    assert setting.read(setting.default) == setting.default
    shown = setting.text(setting.default)
    if shown is not None:
        assert setting.read(shown) == setting.default


@each_case("name", broker_settings())
def test_a_brokers_setting_is_as_kafkas(name: str) -> None:
    setting = broker_settings()[name]
    if name in OURS:
        assert name not in KAFKA["broker"]
        return
    kind, default, update = KAFKA["broker"][name]
    assert setting.shown_kind.name == kind
    if name not in NO_DEFAULT_IN_KAFKA:
        assert default == (setting.kafka_default or setting.text(setting.default))
    # What may change here may change there; the other way round a restart may be needed.
    assert setting.update is Update.READ_ONLY or setting.update.value == update


def test_a_topics_settings_are_kafkas() -> None:
    ours = {name: [setting.kind.name, setting.text(setting.default)] for name, setting in topic_settings().items()}
    assert ours == {name: [kind, default] for name, (kind, default, _) in KAFKA["topic"].items()}


def test_a_topics_setting_follows_the_brokers_that_kafkas_follows() -> None:
    for name, (_, _, followed) in KAFKA["topic"].items():
        names = [each for each, _ in topic_settings()[name].broker]
        if followed is not None:
            assert names == [followed]
        assert set(names) <= set(KAFKA["broker"])


def test_every_setting_of_kafkas_is_served_or_named_as_not() -> None:
    served = set(broker_settings())
    assert not [name for name in KAFKA["broker"] if name not in served and not is_kafkas(name)]
    assert not HARMLESS - set(KAFKA["broker"])
    assert not served & HARMLESS, "they are served now: take them out of unserved_settings.py"


def test_what_kafka_lets_clients_change_can_be_changed_here_but_for_security() -> None:
    refused = ("sasl.jaas.", "sasl.mechanism", "ssl.", "principal.", "config.pro", "cordoned.log.dirs", "metric.repo")
    dynamic = {name: (kind, update) for name, (kind, _, update) in KAFKA["broker"].items() if update != "read-only"}
    wanted = {name: declared for name, declared in dynamic.items() if name not in broker_settings()}
    rates = {name for name in CHANGEABLE if name not in KAFKA["broker"]}  # of quotas, which Kafka keeps elsewhere
    ours = {name: (each.kind.name, each.update.value) for name, each in CHANGEABLE.items() if name not in rates}
    assert ours == {name: declared for name, declared in wanted.items() if not name.startswith(refused)}
    assert rates == {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }


def test_help_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help-settings"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    for setting in [*broker_settings().values(), *group_settings().values()]:
        assert f"  {setting.name} (" in said


def test_a_file_that_was_written_for_kafka_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(STOCK_FILE)
    settings, ignored = file_settings(file)
    config = BrokerConfig.of(settings)
    assert (config.node_id, config.log.retention_ms) == (1, 24 * 3600 * 1000)
    assert [listener.name for listener in config.listener_configs] == ["PLAINTEXT"]
    assert "num.io.threads" in ignored[0]
    assert "node.id" not in ignored[0]


def test_a_warning_names_what_a_file_has_in_vain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "num.io.threads=8\nremote.log.storage.system.enable=true\nmy.plugin.color=blue\nlog.retention.hour=5\n"
        "sasl.mechanism.inter.broker.protocol=PLAIN\n"
    )
    with caplog.at_level(logging.WARNING):
        assert main(["--config", str(file), "--data-dir", str(tmp_path / "data")]) == 1
    assert "left out: num.io.threads, sasl.mechanism.inter.broker.protocol" in caplog.text
    assert "unknown broker setting 'my.plugin.color'; sparkonce broker --help-settings lists all; it is" in caplog.text
    assert "unknown broker setting 'log.retention.hour'; the nearest known one is 'log.retention.hours'" in caplog.text
    assert not caplog.handler.filters, "what the caller logs is not bounded after it"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num.io.threads", "is Kafka's, but it makes no difference here"),
        ("remote.log.storage.system.enable", "is Kafka's and is not served here"),
        ("log.retention.hour", "nearest known one is 'log.retention.hours'"),
    ],
)
def test_in_code_only_what_is_served_is_accepted(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig.of({name: "1"})


def test_the_first_of_several_settings_that_is_given_counts() -> None:
    def retention_ms(**settings: object) -> int:
        return BrokerConfig.of({name.replace("_", "."): value for name, value in settings.items()}).log.retention_ms

    assert retention_ms() == LogConfig().retention_ms == 168 * 3_600_000
    assert retention_ms(log_retention_hours=2) == 7_200_000
    assert retention_ms(log_retention_hours=2, log_retention_minutes=3) == 180_000
    assert retention_ms(log_retention_hours=2, log_retention_minutes=3, log_retention_ms=4) == 4
    assert retention_ms(log_retention_hours=-1) == -1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be at most 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "must be at most 1"),
        ("compression.gzip.level", "0", "must be at least 1"),
        ("log.segment.bytes", "2147483648", "must be at most 2147483647"),
        ("num.partitions", "1.5", "expected a whole number"),
        ("auto.create.topics.enable", "1", "expected true or false"),
    ],
)
def test_values_that_do_not_fit_are_named(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        broker_settings()[name].read(value)


def test_a_password_is_not_shown() -> None:
    config = BrokerConfig.of({"ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(config)
    assert broker_settings()["ssl.key.password"].sensitive


def test_what_a_broker_leaves_to_the_controller_has_the_same_defaults_there() -> None:
    known = broker_settings()
    assert {name: known[name].text(known[name].default) for name in KAFKA_DEFAULTS} == dict(KAFKA_DEFAULTS)
