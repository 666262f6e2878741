"""The ``kafka.*`` options of a reader: what the client supports, ignores, and rejects.

Names are those of Kafka's Java consumer (``ConsumerConfig`` of Kafka 4.3). What all clients share is here as well;
`kafka.client.security` has TLS and authentication, `kafka.client.producer_settings` the producer's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sparkonce.kafka.client.retry import growing
from sparkonce.kafka.client.security import (
    MECHANISMS,
    REFUSED_SECURITY,
    SECURITY,
    SECURITY_WITHOUT_EFFECT,
    Sasl,
    Tls,
    read_security,
)
from sparkonce.options import KAFKA_FORMAT, KAFKA_PREFIX, OptionError, SettingTable
from sparkonce.settings import REQUIRED, boolean, integer, long, settings_of, text

__all__ = [
    "COMMON",
    "MECHANISMS",
    "READER",
    "SECURITY",
    "ClientSettings",
    "Sasl",
    "Tls",
    "client_settings",
    "given_settings",
    "read_servers",
    "read_settings",
]

_CONNECTION, _FETCHING = "The connection", "Fetching"


def read_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read ``host:port`` pairs separated by commas; an IPv6 address stands in brackets."""
    servers = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{each!r} is not host:port")
        servers.append((host.strip("[]"), int(port)))
    if not servers:
        raise ValueError("expected host:port, or several separated by commas")
    return tuple(servers)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The client's configuration. Equal settings share connections within a process."""

    bootstrap_servers: tuple[tuple[str, int], ...] = text(
        REQUIRED,
        "brokers to connect to first",
        parse=read_servers,
        value="host:port, several separated by commas",
        spark=True,
    )
    client_id: str = text("sparkonce", "the name of this client in the brokers' logs and quotas", value="text")
    request_timeout_ms: int = integer(30_000, "how long one request may take", least=1)
    connection_setup_timeout_ms: int = integer(
        10_000,
        "how long opening a connection may take, and the first contact with the cluster",
        name="socket.connection.setup.timeout.ms",
        least=1,
    )
    retry_backoff_ms: int = long(100, "the back-off before a request is retried")
    retry_backoff_max_ms: int = long(1_000, "the maximum back-off, up to which it grows", least=1)
    receive_buffer_bytes: int = text(
        0,
        "the size of a connection's socket buffer",
        default_text="the system's",
        value="whole number",
        parse=lambda text: max(0, int(text)),
    )
    api_timeout_ms: int = integer(
        60_000,
        "how long a request may take with all its retries",
        name="default.api.timeout.ms",
        least=1,
        group=_FETCHING,
    )
    read_committed: bool = text(
        False,
        "`read_committed` skips aborted transactions and stops at the last stable offset",
        name="isolation.level",
        choices=("read_uncommitted", "read_committed"),
        default_text="read_uncommitted",
        parse=lambda level: level == "read_committed",
        group=_FETCHING,
    )
    check_crcs: bool = boolean(True, "whether the checksum of each batch is checked", group=_FETCHING)
    fetch_max_bytes: int = integer(
        8 << 20,
        "the size that one fetch requests; small ranges request less",
        name="max.partition.fetch.bytes",
        least=1,
        group=_FETCHING,
    )
    fetch_max_wait_ms: int = integer(
        500, "how long a broker may wait before it returns an empty response", least=1, group=_FETCHING
    )
    tls: Tls | None = None
    sasl: Sasl | None = None
    refused_ms: int | None = None
    """How long the first contact is tried while all servers refuse connections; None: as while none answers."""

    def first_contact_ms(self, error: Exception | None = None) -> int:
        """Return how long the first contact with the cluster is tried, after ``error`` if there was one."""
        limit_ms = self.connection_setup_timeout_ms
        if self.refused_ms is None or not isinstance(error, ConnectionRefusedError):
            return limit_ms
        return min(limit_ms, self.refused_ms)

    def pauses_s(self) -> Iterator[float]:
        """Yield the pauses between attempts of a request."""
        return growing(self.retry_backoff_ms / 1000, self.retry_backoff_max_ms / 1000)

    @property
    def servers_text(self) -> str:
        """The bootstrap servers as the user wrote them, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap_servers)


_CLIENT = settings_of(ClientSettings, group=_CONNECTION)
COMMON = {name: setting for name, setting in _CLIENT.items() if setting.group == _CONNECTION}
"""Settings common to readers and producers; the names are the same in Kafka's Java consumer and producer."""

MEASURED = "there is no Java client to measure"
SOCKETS = "connections are kept in the worker process, and reopened when they break; all addresses of a host are tried"
LEADERS = "metadata is requested when a topic is first used, and when a leader has moved; all known brokers are tried"
_NO_GROUP = "no group is joined: offsets are in Spark's checkpoint"
_ONE_PARTITION = "a fetch is for one partition and the records that were planned; max.partition.fetch.bytes bounds it"

COMMON_WITHOUT_EFFECT = {
    **SECURITY_WITHOUT_EFFECT,
    **dict.fromkeys(
        [
            "auto.include.jmx.reporter",
            "enable.metrics.push",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ],
        MEASURED,
    ),
    **dict.fromkeys(
        [
            "client.dns.lookup",
            "connections.max.idle.ms",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "send.buffer.bytes",
            "socket.connection.setup.timeout.max.ms",
        ],
        SOCKETS,
    ),
    **dict.fromkeys(["metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms"], LEADERS),
}
"""Settings without effect for readers and producers, and why."""

REFUSED_EVERYWHERE = {
    **REFUSED_SECURITY,
    "config.providers": "values are used unchanged and ${…} is not resolved; set the values themselves",
    "config.providers.*": "values are used unchanged and ${…} is not resolved; set the values themselves",
}
"""Settings that neither readers nor producers support, and what to use instead."""

READER = SettingTable(
    KAFKA_FORMAT,
    {**_CLIENT, **SECURITY},
    "source",
    prefix=KAFKA_PREFIX,
    without_effect={
        **dict.fromkeys(
            [
                "auto.commit.interval.ms",
                "group.id",
                "group.instance.id",
                "group.protocol",
                "group.remote.assignor",
                "heartbeat.interval.ms",
                "max.poll.interval.ms",
                "partition.assignment.strategy",
                "session.timeout.ms",
            ],
            _NO_GROUP,
        ),
        **dict.fromkeys(["fetch.max.bytes", "fetch.min.bytes", "max.poll.records"], _ONE_PARTITION),
        "allow.auto.create.topics": "nothing is created by reading",
        "client.rack": "records are read from the leader of each partition",
        "exclude.internal.topics": "subscribePattern alone decides, as with Kafka's AdminClient",
        "internal.throw.on.fetch.stable.offset.unsupported": "it is only for Kafka's own tests",
        "metadata.max.age.ms": "metadata is requested when a micro-batch is planned",
        **dict.fromkeys(["share.acknowledgement.mode", "share.acquire.mode"], "there is no share group"),
        **COMMON_WITHOUT_EFFECT,
    },
    refused={
        **REFUSED_EVERYWHERE,
        "auto.offset.reset": "set the option startingOffsets instead: it defines where a query without a checkpoint "
        "begins",
        "enable.auto.commit": "offsets are kept in Spark's checkpoint and in the offset store, never committed by a "
        "timer",
        "key.deserializer": "keys arrive as binary; convert them with DataFrame operations, e.g. CAST(key AS STRING)",
        "value.deserializer": "values arrive as binary; convert them with DataFrame operations, e.g. CAST(value AS "
        "STRING)",
        "interceptor.classes": "there is no Java consumer to intercept; transform the DataFrame instead",
    },
)
"""All settings of a reader."""


def read_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read a reader's settings among ``options``, whose names begin with ``kafka.``; others are ignored.

    Raises:
        OptionError: for a setting that is unknown, refused, unreadable or at odds with another. Secrets are not shown.

    """
    return client_settings(given_settings(options), READER)


def command_settings(options: Mapping[str, str]) -> ClientSettings:
    """Read the settings of a command, whose user waits: a cluster that refuses connections is reported soon.

    Raises:
        OptionError: as `read_settings`.
    """
    return for_command(read_settings(options))


def for_command(settings: ClientSettings) -> ClientSettings:
    """Return a command's settings: one that answers late is waited for as ever, one that does not listen is not."""
    return replace(settings, refused_ms=1_500)


def given_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among ``options``, by their names in lower case and without ``kafka.``."""
    given = {key.lower(): text.strip() for key, text in options.items()}
    return {key.removeprefix(KAFKA_PREFIX): text for key, text in given.items() if key.startswith(KAFKA_PREFIX)}


def client_settings(given: Mapping[str, str], table: SettingTable) -> ClientSettings:
    """Read the cluster's address, the authentication, and those settings of a client that ``table`` has.

    Raises:
        OptionError: for a setting that is missing, unreadable or at odds with another. Secrets are not shown.
    """
    table.check(given)
    if not given.get("bootstrap.servers"):
        raise OptionError(
            f"{KAFKA_FORMAT}: option kafka.bootstrap.servers must be specified: host:port of one or more brokers, e.g. "
            'option("kafka.bootstrap.servers", "localhost:9092")'
        )
    values = table.values(given, {name: setting for name, setting in _CLIENT.items() if name in table.settings})
    tls, sasl = read_security(given, table)
    return ClientSettings(**values, tls=tls, sasl=sasl)
