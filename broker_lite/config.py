"""The broker's settings, under Kafka's own names.

Theory of operation: one frozen dataclass is the whole declaration. A field's name is the setting's name with
underscores for dots (no broker setting of Kafka has an underscore), its type says how text is read, its default is
Kafka's unless the comment beside it says why not. A name that is not here is refused, with the nearest one that is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

LONG_MAX = 2**63 - 1


class ConfigError(ValueError):
    """A setting that does not exist or cannot have that value; the message names both and the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every setting of the broker; times and sizes in the unit of the name's last word."""

    host_name: str = "127.0.0.1"  # a laptop's broker does not listen to the network unless told to
    port: int = 0  # 0: any free port
    node_id: int = 0
    cluster_id: str = ""  # empty: made up at the first start, kept in meta.properties
    log_dirs: str = ""

    num_partitions: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True

    log_segment_bytes: int = 1 << 30
    log_roll_ms: int = 7 * 24 * 3600 * 1000
    log_index_interval_bytes: int = 4096
    log_index_size_max_bytes: int = 10 * 1024 * 1024
    log_flush_interval_messages: int = LONG_MAX
    log_flush_interval_ms: int = LONG_MAX
    message_max_bytes: int = 1048588

    socket_request_max_bytes: int = 100 * 1024 * 1024
    # Kafka's default too. What is in flight stays in the processor's cache: megabytes in the kernel's own automatic
    # buffers cost a bulk consumer a tenth of its speed. -1 leaves it to the kernel.
    socket_send_buffer_bytes: int = 100 * 1024
    max_connections: int = 10_000
    fetch_max_bytes: int = 57_671_680
    max_incremental_fetch_session_cache_slots: int = 1000

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 0  # Kafka: 3000, for fleets that start together; here tests start
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4096
    offsets_topic_num_partitions: int = 1  # Kafka: 50, to spread groups over brokers; here there is one

    authorizer_class_name: str = ""  # Kafka's StandardAuthorizer switches ours on
    super_users: str = ""  # principals with semicolons between them, for a certificate's name has commas
    allow_everyone_if_no_acl_found: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> BrokerConfig:
        """Read settings by Kafka's names; values may be text, as in a properties file, or already of the type.

        Raises:
            ConfigError: for an unknown name or a value that does not fit.
        """
        known = {field.name.replace("_", "."): field for field in fields(cls)}
        values: dict[str, object] = {}
        for name, value in settings.items():
            field = known.get(name)
            if field is None:
                nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
                raise ConfigError(f"unknown broker setting {name!r}; the nearest known one is {nearest[0]!r}")
            values[field.name] = _read(name, value, str(field.type))
        config = cls(**values)  # type: ignore[arg-type]
        _check(config)
        return config


def read_properties(path: str | Path) -> dict[str, str]:
    """Read a file of ``name=value`` lines; ``#`` and ``!`` begin comments, as in Java's properties.

    Clients' settings are read by it too, so an error never shows what a line holds: it may be a password.

    Raises:
        ConfigError: if the file cannot be read or a line has no ``=``.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
    settings = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ConfigError(f"{path}, line {number}: expected name=value")
        settings[name.strip()] = value.strip()
    return settings


def _read(name: str, value: object, kind: str) -> object:
    if kind == "str":
        return str(value)
    text = str(value).strip().lower()
    if kind == "bool":
        if text in ("true", "false"):
            return text == "true"
        raise ConfigError(f"{name}={value!r}: expected true or false")
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{name}={value!r}: expected a whole number") from None


MINIMUM = {
    "num_partitions": 1,
    "log_segment_bytes": 14,
    "log_roll_ms": 1,
    "log_flush_interval_messages": 1,
    "socket_request_max_bytes": 1024,
    "socket_send_buffer_bytes": -1,
    "max_connections": 1,
    "fetch_max_bytes": 1024,
    "group_max_size": 1,
    "offsets_topic_num_partitions": 1,
}


def _check(config: BrokerConfig) -> None:
    for field in fields(config):
        value = getattr(config, field.name)
        least = MINIMUM.get(field.name, 0)
        if isinstance(value, int) and value < least:
            raise ConfigError(f"{field.name.replace('_', '.')}={value}: must be at least {least}")
    if config.port > 65535:
        raise ConfigError(f"port={config.port}: must be at most 65535")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms must not exceed group.max.session.timeout.ms")
