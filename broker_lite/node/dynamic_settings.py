"""Settings that clients have changed while the broker runs: the broker's own, and those of groups.

Theory of operation: as in Kafka, a broker's setting has up to four values, the first one counting: changed for this
broker, changed for all brokers, given at the start (the properties file), the default. The first two are in a file in
the log directory and survive a restart. A change is checked as a whole, by building the resulting settings; only then
is it written, and only then is it in effect. Topics' own settings are kept with the topics.

As in Kafka since KIP-966, `min.insync.replicas` is that of all brokers from the start, as if a client had set what the
file says, and no broker has its own. In a cluster so is `unclean.leader.election.enable`, since a controller and a
leader with different values may lose records: `decided` has both, from the controller's log, and they take precedence.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sparkonce.broker_lite.config import BrokerConfig, ConfigError, broker_settings
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.storage import Files
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import Setting, SettingError, Update, integer, settings_of

FILE: Final = "dynamic-settings.json"
_VERSION: Final = 1
ALL_BROKERS: Final = ""
"""The resource name of what is changed for all brokers."""
MAX_GROUPS: Final = 10_000
"""The most groups with settings of their own."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings that a KIP-848 group may have of its own (KIP-848, dynamic group settings)."""

    consumer_heartbeat_interval_ms: int = integer(
        5_000,
        "How often the group's members are told to send heartbeats.",
        least=1,
        broker=(("group.consumer.heartbeat.interval.ms", 1),),
    )
    consumer_session_timeout_ms: int = integer(
        45_000,
        "How long the group waits for a member's heartbeat before it removes it.",
        least=1,
        broker=(("group.consumer.session.timeout.ms", 1),),
    )


class DynamicSettings:
    """The changed settings, and the settings in effect."""

    def __init__(self, storage: Files, log_dir: str, static: BrokerConfig) -> None:
        """Load the changes from before the last stop; those that are no longer valid are ignored with a warning."""
        self._storage = storage
        self._path = f"{log_dir}/{FILE}"
        self._static = static
        self._node = str(static.node_id)
        self._brokers: dict[str, dict[str, str]] = {ALL_BROKERS: {}, self._node: {}}
        self._groups: dict[str, dict[str, str]] = {}
        self.decided: Mapping[str, str] = MappingProxyType({})
        """The controller's decisions for all brokers; `reload` puts them into effect."""
        self.config = static
        """The settings in effect."""
        self.reload()

    def reload(self) -> None:
        """Read the file again, as another writer has replaced it.

        Raises:
            LogDirectoryError: if it is damaged; then nothing has changed. Without its settings, such as retention,
                records might be deleted that must be kept.
        """
        brokers, groups = self._read()
        self._brokers = {ALL_BROKERS: {}, self._node: {}}
        self._groups = groups
        self.config = self._effective(self._brokers)
        for resource, values in brokers.items():
            for name, value in self._own(resource, values).items():
                try:
                    self._brokers.setdefault(resource, {})[name] = value
                    self.config = self._effective(self._brokers)
                except ConfigError as error:
                    del self._brokers[resource][name]
                    logger.warning("%s: leaving %s out: %s", self._path, name, error)

    def _read(self) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
        try:
            document = json.loads(self._storage.read(self._path))
            if document.get("version", _VERSION) != _VERSION:
                raise ValueError(f"version {document['version']}")
            brokers, groups = document.get("brokers", {}), document.get("groups", {})
            return {name: dict(of) for name, of in brokers.items()}, {name: dict(of) for name, of in groups.items()}
        except (FileNotFoundError, NotADirectoryError):  # the log manager reports a missing directory
            return {}, {}
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            text = f"{self._path} is damaged ({error!r}): put a copy back, or remove it and set again what it held"
            raise LogDirectoryError(text) from None

    def of_broker(self, resource: str) -> Mapping[str, str]:
        """Return the settings changed for this broker, or for `ALL_BROKERS`."""
        own = self._brokers.get(resource, {})
        if resource == ALL_BROKERS:
            own = {MIN_IN_SYNC_REPLICAS: str(self._static.log.min_insync_replicas), **own, **self.decided}
        return MappingProxyType(own)

    def of_group(self, group_id: str) -> Mapping[str, str]:
        """Return the settings changed for a group."""
        return MappingProxyType(self._groups.get(group_id, {}))

    @property
    def of_all_alone(self) -> frozenset[str]:
        """The settings of which all brokers have a value, always, and no broker its own."""
        return frozenset({MIN_IN_SYNC_REPLICAS, *self.decided})

    @property
    def groups(self) -> list[str]:
        """The groups that have settings of their own."""
        return sorted(self._groups)

    @property
    def static(self) -> Mapping[str, object]:
        """The settings given at the start, by name."""
        return self._static.given

    def group_config(self, group_id: str) -> GroupConfig:
        """Return a group's settings on top of the broker's."""
        return self._group_config(self._groups.get(group_id, {}))

    def check_broker(self, resource: str, values: Mapping[str, str]) -> BrokerConfig:
        """Check whether `values` may replace the changes for this broker or all; return the resulting settings.

        Raises:
            KafkaError: INVALID_REQUEST, as in Kafka, for names that cannot change while the broker runs, and for
                invalid values.
        """
        before = self.of_broker(resource)
        changed = {name: declared(name) for name in values if values[name] != before.get(name)}
        fixed = [name for name, found in changed.items() if found is None or found.update is Update.READ_ONLY]
        if fixed:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {_listed(fixed)}")
        own = [name for name, found in changed.items() if found is not None and found.update is Update.PER_BROKER]
        if own and resource == ALL_BROKERS:
            text = f"Cannot update these configs at default cluster level, broker id must be specified: {_listed(own)}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        # Another broker's settings are checked as if they were this broker's.
        judged = resource if resource == ALL_BROKERS else self._node
        try:
            for name, found in changed.items():
                if found is not None:
                    found.read(values[name])
            return self._effective({**self._brokers, judged: dict(values)})
        except (ConfigError, SettingError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None

    def change_broker(self, resource: str, values: Mapping[str, str]) -> BrokerConfig:
        """Replace the changes for this broker or all; return the settings now in effect.

        Settings that the controller decides are checked, but left to it.
        """
        self.check_broker(resource, values)
        own = self._own(resource, values)
        if self.decided and own == self._brokers.get(resource, {}):
            return self.config
        config = self.check_broker(resource, own)
        self._write({**self._brokers, resource: own}, self._groups)
        if new := [name for name in own.keys() - self._brokers.get(resource, {}) if name not in broker_settings()]:
            logger.warning("%s: kept, but without effect on this broker", _listed(new))
        self._brokers[resource] = own
        if resource in (ALL_BROKERS, self._node):
            self.config = config
        return self.config

    def check_group(self, group_id: str, values: Mapping[str, str]) -> None:
        """Check new settings of a group. Raises KafkaError INVALID_CONFIG for a wrong name or value."""
        if group_id not in self._groups and len(self._groups) >= MAX_GROUPS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{MAX_GROUPS} groups have settings of their own already")
        known = settings_of(GroupConfig)
        for name in values:
            if name not in known:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            config = self._group_config(values)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if config.consumer_heartbeat_interval_ms >= config.consumer_session_timeout_ms:
            text = "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)

    def change_group(self, group_id: str, values: Mapping[str, str]) -> None:
        """Replace a group's settings; as `check_group`."""
        self.check_group(group_id, values)
        groups = {**self._groups, group_id: dict(values)}
        if not values:
            del groups[group_id]
        self._write(self._brokers, groups)
        self._groups = groups

    def _effective(self, brokers: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
        values = {**self.decided, **brokers.get(ALL_BROKERS, {}), **brokers.get(self._node, {})}
        changed = {name: value for name, value in values.items() if name in broker_settings()}
        return BrokerConfig.of({**self._static.given, **changed}) if changed else self._static

    def _own(self, resource: str, values: Mapping[str, str]) -> dict[str, str]:
        others = self.decided if resource == ALL_BROKERS else self.of_all_alone
        return {name: value for name, value in values.items() if name not in others}

    def _group_config(self, own: Mapping[str, str]) -> GroupConfig:
        values = {}
        for setting in settings_of(GroupConfig).values():
            followed = broker_settings()[setting.broker[0][0]]
            values[setting.field] = setting.read(own.get(setting.name, getattr(self.config, followed.field)))
        return GroupConfig(**values)

    def _write(self, brokers: Mapping[str, Mapping[str, str]], groups: Mapping[str, Mapping[str, str]]) -> None:
        document = {"version": _VERSION, "brokers": {name: of for name, of in brokers.items() if of}, "groups": groups}
        text = json.dumps(document, indent=1, sort_keys=True)
        try:
            self._storage.write(self._path, text.encode(), durable=True)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path}: {error}") from error


def declared(name: str) -> Setting | None:
    """Return the declaration of a broker's setting, including those that clients may change without effect."""
    found = broker_settings().get(name)
    if found is not None:
        return found
    from sparkonce.broker_lite.unserved_settings import changeable

    return changeable(name)


def group_settings() -> Mapping[str, Setting]:
    """Return the declarations of a group's settings, by name."""
    return settings_of(GroupConfig)


def _listed(names: list[str]) -> str:
    return f"[{', '.join(sorted(names))}]"
