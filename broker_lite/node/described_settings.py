"""The settings of topics, brokers and groups as clients see them.

Values follow Kafka's `ConfigHelper`: a setting's synonyms are its values at all levels, nearest first, and its source
is the level of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from sparkonce.broker_lite.config import broker_log_settings, broker_settings
from sparkonce.broker_lite.log.config import LogConfig, topic_settings
from sparkonce.broker_lite.log.directories import check_topic_name
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.dynamic_settings import ALL_BROKERS, declared, group_settings
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import Setting, Update


class ConfigResource(IntEnum):
    """The kinds of resources with settings (`ConfigResource.Type`); other kinds are not served."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Source(IntEnum):
    """Where a value comes from (`DescribeConfigsResponse.ConfigSource`)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    """The value of a setting at one level."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A setting with its current value."""

    setting: Setting
    value: str | None
    read_only: bool
    synonyms: list[Synonym]

    @property
    def source(self) -> Source:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else Source.DEFAULT


def entries(broker: Broker, request: Request, kind: int, name: str) -> Iterable[Entry]:
    """Return a resource's settings. Raises KafkaError if there is none, or the client may not see it."""
    describe = _DESCRIBED.get(kind)
    if describe is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the settings of resources of type {kind} are not served")
    return describe(broker, request, name)


def topic_entries(broker: Broker, settings: Mapping[str, str], config: LogConfig) -> list[Entry]:
    """Return a topic's settings, from its own and its configuration; also for CreateTopics."""
    found = []
    for setting in topic_settings().values():
        synonyms = []
        value = setting.text(getattr(config, setting.field))
        if setting.name in settings:
            synonyms.append(Synonym(setting.name, value, Source.TOPIC))
        synonyms += _followed(broker, setting)
        found.append(Entry(setting, value, False, synonyms))
    return found


def _topic(broker: Broker, request: Request, name: str) -> list[Entry]:
    if not authorized(broker, request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    check_topic_name(name)
    topic = broker.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_entries(broker, topic.settings, topic.config)


def _broker(broker: Broker, request: Request, name: str) -> list[Entry]:
    if not authorized_on_cluster(broker, request, Operation.DESCRIBE_CONFIGS):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    known = broker_settings()
    if name == ALL_BROKERS:
        changed = [(declared(each), value) for each, value in broker.dynamic.of_broker(ALL_BROKERS).items()]
        shown = [(each, None if each.sensitive else value) for each, value in changed if each is not None]
        return [
            Entry(each, value, _is_unknown(each), [Synonym(each.name, value, Source.DYNAMIC_DEFAULT_BROKER)])
            for each, value in shown
        ]
    check_broker_name(broker, name, "Broker id must be an integer, but it is: ", "expected {} or empty string")
    return [
        Entry(setting, _value(broker, setting), setting.update is Update.READ_ONLY, _broker_synonyms(broker, setting))
        for setting in known.values()
    ] + _without_effect(broker)


def _without_effect(broker: Broker) -> list[Entry]:
    """Return the settings without effect here that clients have changed."""
    names = {**broker.dynamic.of_broker(ALL_BROKERS), **broker.dynamic.of_broker(str(broker.config.node_id))}
    found = []
    for name in names:
        setting = declared(name)
        if setting is not None and name not in broker_settings():
            synonyms = _synonyms(broker, [name], {name: setting})
            found.append(Entry(setting, synonyms[0].value, _is_unknown(setting), synonyms))
    return found


def _is_unknown(setting: Setting) -> bool:
    """Whether Kafka does not know the setting either: it can be set, but is shown as read-only."""
    return setting.sensitive and setting.name not in broker_settings()


def check_broker_name(
    broker: Broker, name: str, no_number: str, expected: str, allowed: Collection[int] | None = None
) -> None:
    """Check that a name is this broker's id, or one of `allowed`. Raises KafkaError INVALID_REQUEST."""
    try:
        number = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{no_number}{name}") from None
    if number not in ((broker.config.node_id,) if allowed is None else allowed):
        expected = expected.format(broker.config.node_id)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expected}, but received {number}")


def _group(broker: Broker, request: Request, name: str) -> list[Entry]:
    if not authorized(broker, request, Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    own, config, found = broker.dynamic.of_group(name), broker.dynamic.group_config(name), []
    for setting in group_settings().values():
        value = setting.text(getattr(config, setting.field))
        synonyms = [Synonym(setting.name, value, Source.GROUP)] if setting.name in own else []
        found.append(Entry(setting, value, False, synonyms + _followed(broker, setting)))
    return found


_DESCRIBED: Mapping[int, Callable[[Broker, Request, str], list[Entry]]] = {
    ConfigResource.TOPIC: _topic,
    ConfigResource.BROKER: _broker,
    ConfigResource.GROUP: _group,
}


def _followed(broker: Broker, setting: Setting) -> list[Synonym]:
    """Return the values of the broker's setting that is the default of a topic's or group's setting."""
    names = [name for name, _ in setting.broker]
    return _synonyms(broker, names, broker_settings()) if names else []


def _broker_synonyms(broker: Broker, setting: Setting) -> list[Synonym]:
    names = [setting.name]
    if setting.name in broker_log_settings():
        for topic in topic_settings().values():
            followed = [name for name, _ in topic.broker]
            if setting.name in followed:
                names = followed
    return _synonyms(broker, names, broker_settings(), setting.name)


def _synonyms(broker: Broker, names: list[str], known: Mapping[str, Setting], first: str = "") -> list[Synonym]:
    """Return the values of these names, by level; as in Kafka, without levels before the name itself."""
    dynamic = broker.dynamic
    places: tuple[tuple[Mapping[str, object], Source], ...] = (
        (dynamic.of_broker(str(broker.config.node_id)), Source.DYNAMIC_BROKER),
        (dynamic.of_broker(ALL_BROKERS), Source.DYNAMIC_DEFAULT_BROKER),
        (dynamic.static, Source.STATIC_BROKER),
        ({name: known[name].default for name in names}, Source.DEFAULT),
    )
    found = []
    for values, source in places:
        for name in names:
            value = values.get(name)
            if value is not None:
                shown = None if known[name].sensitive else known[name].text(value)
                found.append(Synonym(name, shown, source))
    first = first or names[0]
    skipped = next((index for index, each in enumerate(found) if each.name == first), len(found))
    return found[skipped:]


def _value(broker: Broker, setting: Setting) -> str | None:
    if setting.sensitive:
        return None
    actual: dict[str, object] = {"log.dirs": broker.logs.log_dir, "cluster.id": broker.cluster_id}
    return setting.text(actual.get(setting.name, broker.config.given.get(setting.name, setting.default)))
