"""The broker's settings, under Kafka's own names.

Theory of operation: one frozen dataclass is the whole declaration (see `sparkonce.settings`). Defaults are Kafka's
unless `kafka_default` has another. The defaults of topic settings (`log.retention.ms` and the like) are declared once,
on the topic's setting, and derived from there: `broker_log_settings`. An unknown name is rejected, with the nearest
known one; a file may contain settings of Kafka's without effect here (`file_settings`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.log.config import LogConfig, topic_settings
from sparkonce.broker_lite.security.settings import (
    LISTENER_PREFIX,
    STANDARD_AUTHORIZER,
    ListenerConfig,
    SecurityConfig,
    listener_configs,
    read_listener_setting,
)
from sparkonce.settings import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Setting,
    SettingError,
    Update,
    boolean,
    double,
    integer,
    long,
    settings_of,
    short,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LONG_MAX", "BrokerConfig", "ConfigError", "broker_settings", "file_settings", "line_of", "read_properties"]

_OTHER_NAMES = {"log.dir": "log.dirs", "broker.id": "node.id"}
"""Kafka's deprecated names of settings."""


class ConfigError(ValueError):
    """A setting does not exist or has an invalid value; the message names both and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Every broker setting except the defaults of topic settings; names of times and sizes end with the unit."""

    host_name: str = text("127.0.0.1", "The address to listen on, and to tell clients. By default only this machine's.")
    port: int = integer(0, "The port to listen on; 0 takes any free one.", most=65535)
    node_id: int = integer(0, "This broker's number, in metadata and in meta.properties.")
    cluster_id: str = text("", "The cluster's id; empty: the one in the data directory, or a new one.")
    log_dirs: str = text(
        "", "The directory that the data lives in, only one. `data_dir` and `--data-dir` beat it.",
        kafka_kind=Kind.LIST,
    )  # fmt: skip
    metrics_port: int = integer(
        -1,
        "The port that Prometheus' metrics are served on, at /metrics; 0: any free one, -1: none.",
        least=-1,
        most=65535,
    )

    log_retention_check_interval_ms: int = long(
        300_000, "How often segments that are too old or too many are looked for.", least=1
    )
    log_cleaner_enable: bool = boolean(True, "Whether topics with cleanup.policy=compact are compacted.")
    log_cleaner_backoff_ms: int = long(
        15_000, "How often logs to compact are looked for, when there was none.", update=Update.CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = long(
        128 << 20, "Bytes of memory for the keys of one round of compaction, taken as they are needed.", least=1000,
        update=Update.CLUSTER_WIDE,
    )  # fmt: skip
    log_cleaner_io_buffer_load_factor: float = double(
        0.9, "How full that memory may be.", least=0, most=1, update=Update.CLUSTER_WIDE
    )
    producer_id_expiration_ms: int = integer(
        86_400_000, "How long a partition remembers a producer that is silent.", least=1, update=Update.CLUSTER_WIDE
    )
    producer_id_expiration_check_interval_ms: int = integer(
        600_000, "How often producers to forget are looked for.", least=1
    )

    num_partitions: int = integer(1, "Partitions of a topic made on first use or without a number.", least=1)
    default_replication_factor: int = integer(
        1,
        "Replicas of a topic made without a number; not more than there are brokers, or making it is refused.",
        least=1,
    )
    auto_create_topics_enable: bool = boolean(True, "Whether topics are made on first use.")
    delete_topic_enable: bool = boolean(True, "Whether clients may delete topics.")

    socket_request_max_bytes: int = integer(
        100 << 20, "The largest request; a larger one ends its connection.", least=1024
    )
    # Data in flight stays in the processor's cache: megabytes in the kernel's automatic buffers made a bulk
    # consumer a tenth slower.
    socket_send_buffer_bytes: int = integer(
        102_400, "The kernel's send buffer of a connection; -1 leaves it to the kernel.", least=-1
    )
    max_connections: int = integer(
        10_000, "Connections at a time; one more is closed at once.", least=0, update=Update.CLUSTER_WIDE,
        kafka_default=str(INT_MAX),
    )  # fmt: skip
    max_connections_per_ip: int = integer(
        INT_MAX, "Connections of one address at a time; one more is closed at once.", update=Update.CLUSTER_WIDE
    )
    connections_max_idle_ms: int = long(
        600_000, "After how long without a request a connection is closed; -1: never.", least=-1
    )
    fetch_max_bytes: int = integer(57_671_680, "The most that one fetch is answered with.", least=1024)
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Fetch sessions at a time (KIP-227); a consumer without one names all its partitions each time."
    )

    group_min_session_timeout_ms: int = integer(6_000, "The least session.timeout.ms of a classic group's member.")
    group_max_session_timeout_ms: int = integer(
        1_800_000, "The largest session.timeout.ms of a classic group's member."
    )
    # Kafka waits for fleets that start together. Here tests start.
    group_initial_rebalance_delay_ms: int = integer(
        0, "How long an empty classic group waits for more members before its first rebalance.", kafka_default="3000"
    )
    group_max_size: int = integer(INT_MAX, "Members of a classic group at most.", least=1)
    group_consumer_session_timeout_ms: int = integer(
        45_000, "How long a KIP-848 group waits for a member's heartbeat before it removes it.", least=1
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5_000, "How often members of KIP-848 groups are told to send heartbeats.", least=1
    )
    group_consumer_max_size: int = integer(INT_MAX, "Members of a KIP-848 group at most.", least=1)
    group_consumer_assignors: str = text(
        "uniform,range", "The server-side assignors that members may ask for, the default first.", kafka_kind=Kind.LIST
    )
    offsets_retention_minutes: int = integer(
        10_080, "How long the offsets of a group without members are kept.", least=1
    )
    offsets_retention_check_interval_ms: int = long(
        600_000, "How often offsets that have expired are looked for.", least=1
    )
    offset_metadata_max_bytes: int = integer(4096, "The longest text that may go with a committed offset.")
    # Kafka has many, to spread groups over brokers. Here there is one broker.
    offsets_topic_num_partitions: int = integer(
        1, "Partitions of __consumer_offsets, when it is made.", least=1, kafka_default="50"
    )

    log_flush_offset_checkpoint_interval_ms: int = integer(
        60_000, "How often recovery points, start offsets and high watermarks are written down."
    )

    transaction_max_timeout_ms: int = integer(900_000, "The largest transaction.timeout.ms of a producer.", least=1)
    transactional_id_expiration_ms: int = integer(
        7 * 24 * 3600 * 1000, "After how long without use a transactional id is forgotten.", least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000, "How often the broker looks for transactions whose time is up, while there are any.", least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        3_600_000, "How often the broker looks for transactional ids to forget.", least=1
    )
    transaction_state_log_num_partitions: int = integer(
        1, "Partitions of __transaction_state, when it is made.", least=1, kafka_default="50"
    )
    transaction_state_log_segment_bytes: int = integer(
        100 << 20, "segment.bytes of __transaction_state, when it is made.", least=1
    )

    metadata_log_dir: str | None = text(
        None,
        "A directory that all brokers of a cluster share, on one machine, for the controller's log. Given, this broker "
        "is a member of that cluster; else it is alone.",
    )
    zookeeper_connect: str | None = text(
        None,
        "In place of metadata.log.dir, for brokers on several machines: host:port of ZooKeeper's servers, with commas "
        "between them, and the cluster's own path, as in zk1:2181,zk2:2181/sparkonce. Needs sparkonce[zookeeper].",
    )
    zookeeper_session_timeout_ms: int = integer(
        18_000,
        "With ZooKeeper: after how long without a sign of life from a broker others may take its place; itself it "
        "leads nothing after two thirds of that without an answer from ZooKeeper.",
        least=1,
    )
    broker_heartbeat_interval_ms: int = integer(
        2_000, "In a cluster: how often a broker tells the controller that it is alive.", least=1
    )
    broker_session_timeout_ms: int = integer(
        9_000, "In a cluster: after how long without a sign of life the controller lets others lead.", least=1
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        2_000, "In a cluster: after how long without a sign of life the controller is replaced.", least=1
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        20 << 20, "In a cluster: after how many bytes the controller's log begins anew with a snapshot.", least=1
    )
    auto_leader_rebalance_enable: bool = boolean(
        True, "In a cluster: whether leadership goes back to the preferred leaders by itself."
    )
    leader_imbalance_check_interval_seconds: int = long(300, "In a cluster: how often it goes back to them.", least=1)
    replica_lag_time_max_ms: int = long(
        30_000, "In a cluster: after how long behind the end of its leader's log a follower is out of sync.", least=1
    )
    replica_fetch_wait_max_ms: int = integer(
        500, "In a cluster: how long a follower's fetch waits for records; less than replica.lag.time.max.ms."
    )
    replica_fetch_min_bytes: int = integer(1, "In a cluster: how many bytes a follower's fetch waits for.")
    replica_fetch_max_bytes: int = integer(
        1 << 20, "In a cluster: bytes of one partition in the answer to a follower's fetch; one batch at least."
    )
    replica_fetch_response_max_bytes: int = integer(
        10 << 20, "In a cluster: bytes of the answer to a follower's fetch; one batch at least."
    )
    replica_fetch_backoff_ms: int = integer(1_000, "In a cluster: how long a follower waits after a fetch that failed.")
    replica_high_watermark_checkpoint_interval_ms: int = long(
        5_000, "In a cluster: how often high watermarks are written down."
    )
    offsets_topic_replication_factor: int = short(
        3, "In a cluster: replicas of __consumer_offsets, which is not made before so many brokers are there."
    )
    transaction_state_log_replication_factor: int = short(
        3, "In a cluster: replicas of __transaction_state, which is not made before so many brokers are there."
    )
    transaction_state_log_min_isr: int = integer(
        2, "In a cluster: min.insync.replicas of __transaction_state, when it is made.", least=1
    )

    authorizer_class_name: str = text(
        "", "Kafka's StandardAuthorizer switches access control lists on; empty: everybody may do everything.",
        choices=("", STANDARD_AUTHORIZER),
    )  # fmt: skip
    super_users: str = text("", "Principals that may do everything, as in User:admin, with semicolons between them.")
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use a resource that no access control list names."
    )

    log: LogConfig = field(default=LogConfig())
    """The values for topics without settings of their own."""
    security: SecurityConfig = field(default=SecurityConfig())
    """Listeners, TLS and SASL, as given."""
    listener_configs: tuple[ListenerConfig, ...] = field(
        default_factory=lambda: listener_configs(SecurityConfig(), {}, "127.0.0.1", 0)
    )
    """The resulting configuration of each listener; never empty."""
    given: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The given settings, by name, parsed; all others have their defaults."""

    @property
    def rests_on(self) -> str:
        """The setting that selects the coordination of this broker's cluster; empty for a standalone broker."""
        return next((name for name, place in self._places().items() if place is not None), "")

    def _places(self) -> dict[str, str | None]:
        """Return the values of the settings that make a broker a member of a cluster."""
        return {"metadata.log.dir": self.metadata_log_dir, "zookeeper.connect": self.zookeeper_connect}

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> BrokerConfig:
        """Parse settings by Kafka's names; values may be text, as in a properties file, or already of the type.

        Raises:
            ConfigError: for an unknown name or an invalid value.
        """
        own, log, security = settings_of(BrokerConfig), broker_log_settings(), settings_of(SecurityConfig)
        values: dict[str, object] = {}
        given: dict[str, object] = {}
        for name, value in settings.items():
            setting = own.get(name) or log.get(name) or security.get(name)
            if setting is None and not name.startswith(LISTENER_PREFIX):
                raise ConfigError(_unknown(name))
            try:
                given[name] = setting.read(value) if setting is not None else read_listener_setting(name, value)
            except SettingError as error:
                raise ConfigError(str(error)) from None
            if name in own:
                values[own[name].field] = given[name]
        if "log_dirs" in values:
            values["log_dirs"] = _one_directory(str(values["log_dirs"]))
        log_config = LogConfig.of_broker(given)
        config = cls(**values, log=log_config, given=MappingProxyType(given))  # type: ignore[arg-type]
        config = replace(config, **_security(config))
        _check(config)
        return config


@cache
def broker_log_settings() -> Mapping[str, Setting]:
    """Return the broker settings that are defaults of topic settings, by name.

    If a topic setting has several of these, the last one has the default and the others have none.
    """
    derived = {}
    for topic in topic_settings().values():
        last = len(topic.broker) - 1
        for index, (name, factor) in enumerate(topic.broker):
            default = None if index < last else topic.default
            if isinstance(default, int) and factor != 1:
                default //= factor
            shorter = factor != 1
            derived[name] = replace(
                topic,
                name=name,
                kind=Kind.INT if shorter else topic.kind,
                default=default,
                documentation=f"For topics without {topic.name}. {topic.documentation}",
                update=Update.READ_ONLY if index else Update.CLUSTER_WIDE,
                broker=(),
            )
    return MappingProxyType(derived)


@cache
def broker_settings() -> Mapping[str, Setting]:
    """Return every setting of a broker, by name."""
    return MappingProxyType({**settings_of(BrokerConfig), **broker_log_settings(), **settings_of(SecurityConfig)})


def _security(config: BrokerConfig) -> dict[str, Any]:
    declared = settings_of(SecurityConfig)
    given = {name: value for name, value in config.given.items() if name in declared}
    security = SecurityConfig(**{declared[name].field: value for name, value in given.items()})  # type: ignore[arg-type]
    try:
        found = listener_configs(security, config.given, config.host_name, config.port)
    except SettingError as error:
        raise ConfigError(str(error)) from None
    return {"security": security, "listener_configs": found}


def _is_unknown_name(name: str) -> bool:
    """Whether neither this broker nor Kafka has a setting of this name."""
    from sparkonce.broker_lite.unserved_settings import is_kafkas

    known = name in broker_settings() or name in _OTHER_NAMES or name.startswith(LISTENER_PREFIX)
    return not known and not is_kafkas(name)


def _unknown(name: str) -> str:
    from sparkonce.broker_lite.unserved_settings import HARMLESS, is_kafkas

    known = broker_settings()
    if name in _OTHER_NAMES:
        return f"broker setting {name!r} is Kafka's and is not served here: use {_OTHER_NAMES[name]}"
    if is_kafkas(name):
        return (
            f"broker setting {name!r} is Kafka's, but it makes no difference here: leave it out"
            if name in HARMLESS
            else f"broker setting {name!r} is Kafka's and is not served here: leave it out"
        )
    import difflib  # imported lazily, for a faster start

    nearest = difflib.get_close_matches(name, known, n=1)
    if not nearest:
        return f"unknown broker setting {name!r}; sparkonce broker --help-settings lists all"
    return f"unknown broker setting {name!r}; the nearest known one is {nearest[0]!r}"


def file_settings(path: str | Path) -> tuple[dict[str, str], list[str]]:
    """Read a properties file that may have been written for Kafka.

    Returns the settings, and warnings about those that were ignored: some have no effect here, others are unknown,
    which is no error in Kafka (a plugin might read them). Those of `controller.listener.names` are ignored, too.

    Raises:
        ConfigError: if the file cannot be read. Unsupported settings are left to `BrokerConfig.of`.
    """
    from sparkonce.broker_lite.unserved_settings import HARMLESS

    found = read_properties(path)
    vain = [name for name in found if name in HARMLESS]
    unknown = [name for name in found if name not in HARMLESS and _is_unknown_name(name)]
    settings = {name: value for name, value in found.items() if name not in {*vain, *unknown}}
    of_controller = {name.strip() for name in found.get("controller.listener.names", "").split(",")}
    for name in ("listeners", "advertised.listeners"):
        if name in settings:
            settings[name] = _without(settings[name], of_controller)
    ignored = [f"these settings make no difference here and are left out: {', '.join(vain)}"] if vain else []
    return settings, ignored + [f"{_unknown(name)}; it is left out" for name in unknown]


def _without(listeners: str, names: set[str]) -> str:
    """Remove a controller's listeners: Kafka may have one in the same process, here there is none."""
    return ",".join(each for each in listeners.split(",") if each.partition("://")[0].strip() not in names)


def read_properties(path: str | Path) -> dict[str, str]:
    """Read a file of ``name=value`` lines; ``#`` and ``!`` begin comments, as in Java's properties.

    Also used for clients' settings, so an error never shows the content of a line: it may be a password.

    Raises:
        ConfigError: if the file cannot be read or a line has no ``=``.
    """
    try:
        with open(path, encoding="utf-8", newline=None) as file:
            text = file.read()
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


def line_of(path: str | Path, name: str) -> int:
    """Return the line of a properties file that sets a name: the last one, which is valid."""
    with open(path, encoding="utf-8", newline=None) as file:
        lines = enumerate(file.read().splitlines(), 1)
        return max(number for number, line in lines if line.partition("=")[0].strip() == name)


def _one_directory(log_dirs: str) -> str:
    found = [each.strip() for each in log_dirs.split(",") if each.strip()]
    if len(found) > 1:
        raise ConfigError(f"log.dirs={log_dirs!r} names {len(found)} directories; data lives in one here: give one")
    return found[0] if found else ""


def _check_member(config: BrokerConfig) -> None:
    """Check the settings that a member of a cluster needs."""
    from sparkonce.broker_lite.security.acls import ANONYMOUS  # imported lazily: most brokers are standalone

    if config.zookeeper_connect is not None:
        _check_zookeeper(config.zookeeper_connect, config.metadata_log_dir)
    elif config.metadata_log_dir is not None and not config.metadata_log_dir.strip():
        raise ConfigError(
            "metadata.log.dir is empty: give the directory that all brokers of the cluster share, or leave it out "
            "for a standalone broker"
        )
    place = f"{config.rests_on}={config.metadata_log_dir or config.zookeeper_connect}"
    if "node.id" not in config.given:
        raise ConfigError(
            f"node.id is missing, and {place} makes this broker a member of a cluster: give each of its brokers a "
            "number of its own, the same at each start"
        )
    if config.authorizer_class_name and ANONYMOUS not in map(str.strip, config.super_users.split(";")):
        raise ConfigError(
            f"authorizer.class.name in a cluster needs super.users={ANONYMOUS} on each broker, since that is who "
            "brokers are to each other; and let nobody but them reach the PLAINTEXT listener that they use "
            "(inter.broker.listener.name), as whoever does may do everything"
        )


_CHROOT = re.compile(r"(?:[^\s/,:]+(?:/[^\s/,:]+)*)?")
_ZOOKEEPER_SERVER = re.compile(r"\s*(?:\[[0-9a-fA-F:.%]+\]|[^\s/:@\[\]]+):\d{1,5}\s*")


def _check_zookeeper(connect: str, metadata_log_dir: str | None) -> None:
    if metadata_log_dir is not None:
        raise ConfigError(
            f"zookeeper.connect={connect} and metadata.log.dir={metadata_log_dir}: a cluster has one place for what "
            "its controller decides; leave one of them out"
        )
    servers, _, path = connect.partition("/")
    if not all(map(_ZOOKEEPER_SERVER.fullmatch, servers.split(","))) or not _CHROOT.fullmatch(path):
        raise ConfigError(
            f"zookeeper.connect={connect}: expected host:port of each server, with commas between them, and one path, "
            "as in zk1:2181,zk2:2181/sparkonce"
        )


def _check(config: BrokerConfig) -> None:
    if config.rests_on:
        _check_member(config)
    if config.replica_fetch_wait_max_ms > config.replica_lag_time_max_ms:
        raise ConfigError("replica.fetch.wait.max.ms must not exceed replica.lag.time.max.ms")
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        raise ConfigError("broker.heartbeat.interval.ms must be at most half of broker.session.timeout.ms")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        raise ConfigError("group.min.session.timeout.ms must not exceed group.max.session.timeout.ms")
    if config.super_users:
        from sparkonce.broker_lite.security.authorizer import super_users  # imported lazily: most brokers have none

        try:
            super_users(config.super_users)
        except SettingError as error:
            raise ConfigError(str(error)) from None
    if config.log.min_compaction_lag_ms > config.log.max_compaction_lag_ms:
        raise ConfigError("log.cleaner.min.compaction.lag.ms must not exceed log.cleaner.max.compaction.lag.ms")
