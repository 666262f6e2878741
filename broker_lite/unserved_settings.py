"""Settings that Apache Kafka 4.3 has and this broker does not.

A properties file may contain those in `HARMLESS`, which have no effect with one event loop and no tiered storage, and
names unknown to Kafka: they are ignored with a warning. All others are rejected, because a user who sets them relies
on them.

Clients may change what Kafka lets them change in a running broker, and as there also what no Kafka has, which a plugin
might read: it is stored and shown, without effect. Refused is what security rests on; nothing rests on Kerberos and on
refreshed logins, which are not served.

Imported only when an unsupported name is used.
"""

from __future__ import annotations

from typing import Final

from sparkonce.broker_lite.security.settings import LISTENER_PREFIX
from sparkonce.settings import Kind, Setting, Update

_HARMLESS = (
    # Threads, queues and buffers that do not exist here.
    """
    background.threads delete.records.purgatory.purge.interval.requests
    fetch.purgatory.purge.interval.requests group.coordinator.append.linger.ms
    group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes group.coordinator.threads
    log.cleaner.io.buffer.size log.cleaner.threads log.initial.task.delay.ms num.io.threads
    num.network.threads num.recovery.threads.per.data.dir num.replica.alter.log.dirs.threads
    num.replica.fetchers offsets.load.buffer.size producer.purgatory.purge.interval.requests
    queued.max.request.bytes queued.max.requests socket.listen.backlog.size socket.receive.buffer.bytes
    transaction.state.log.load.buffer.size
    """
    # Kafka's quorum of controllers, racks, and other parts of a cluster that do not exist here.
    """
    broker.rack controlled.shutdown.enable controller.listener.names
    controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
    controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
    controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms
    controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
    controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
    controller.socket.timeout.ms initial.broker.registration.timeout.ms internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
    metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes metadata.log.segment.ms
    metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms process.roles
    sasl.mechanism.inter.broker.protocol
    replica.selector.class replica.socket.receive.buffer.bytes replica.socket.timeout.ms request.timeout.ms
    server.max.startup.time.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    unclean.leader.election.interval.ms
    """
    # The internal topics, as they are created here.
    """
    offsets.commit.timeout.ms offsets.topic.compression.codec offsets.topic.segment.bytes
    """
    # Windows of quotas; without quotas there is nothing to measure.
    """
    alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
    controller.quota.window.num controller.quota.window.size.seconds quota.window.num
    quota.window.size.seconds replication.quota.window.num replication.quota.window.size.seconds
    """
    # Java's metrics, and telemetry of clients, which is not requested.
    """
    kafka.metrics.polling.interval.secs metrics.num.samples metrics.recording.level metrics.sample.window.ms
    telemetry.max.bytes
    """
    # Tiered storage, which needs remote.log.storage.system.enable.
    """
    follower.fetch.last.tiered.offset.enable remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
    remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
    remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
    remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
    remote.log.metadata.custom.metadata.max.bytes remote.log.reader.max.pending.tasks
    remote.log.reader.threads
    """
    # Share groups and streams groups, which are not served.
    """
    group.share.assignment.interval.ms group.share.assignors group.share.delivery.count.limit
    group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
    group.share.max.assignment.interval.ms group.share.max.delivery.count.limit
    group.share.max.heartbeat.interval.ms group.share.max.partition.max.record.locks
    group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms group.share.max.share.sessions
    group.share.max.size group.share.min.assignment.interval.ms group.share.min.delivery.count.limit
    group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
    group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms
    group.share.partition.max.record.locks group.share.record.lock.duration.ms group.share.session.timeout.ms
    group.streams.assignment.interval.ms group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size
    group.streams.max.standby.replicas group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas group.streams.session.timeout.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
    share.coordinator.load.buffer.size share.coordinator.snapshot.update.records.per.snapshot
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.min.isr
    share.coordinator.state.topic.num.partitions share.coordinator.state.topic.prune.interval.ms
    share.coordinator.state.topic.replication.factor share.coordinator.state.topic.segment.bytes
    share.coordinator.threads share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
    """
)
HARMLESS: Final = frozenset(_HARMLESS.split())
"""Accepted in a file, without effect."""

_CHANGEABLE: Final = {
    Kind.INT: """
        background.threads group.coordinator.cached.buffer.max.bytes group.share.assignment.interval.ms
        group.streams.assignment.interval.ms log.cleaner.io.buffer.size log.cleaner.threads num.io.threads
        num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers remote.fetch.max.wait.ms
        remote.log.manager.copier.thread.pool.size remote.log.manager.expiration.thread.pool.size
        remote.log.manager.follower.thread.pool.size remote.log.reader.threads
        share.coordinator.cached.buffer.max.bytes
        group.consumer.assignment.interval.ms max.connection.creation.rate
    """,
    Kind.LONG: """
        remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
        follower.replication.throttled.rate leader.replication.throttled.rate
        replica.alter.log.dirs.io.max.bytes.per.second
    """,
    Kind.BOOLEAN: "follower.fetch.last.tiered.offset.enable transaction.partition.verification.enable",
    Kind.DOUBLE: "log.cleaner.io.max.bytes.per.second",
    Kind.STRING: "max.connections.per.ip.overrides",
}
_CHANGEABLE_OF_ONE: Final = {
    Kind.SHORT: "sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds",
    Kind.LONG: "sasl.kerberos.min.time.before.relogin",
    Kind.DOUBLE: """
        sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
    """,
    Kind.STRING: "sasl.kerberos.kinit.cmd sasl.kerberos.service.name",
    Kind.LIST: "sasl.kerberos.principal.to.local.rules",
}
CHANGEABLE: Final = {
    name: Setting(name, kind, None, "Kept for Kafka's tools; without effect.", update=update)
    for update, kinds in ((Update.CLUSTER_WIDE, _CHANGEABLE), (Update.PER_BROKER, _CHANGEABLE_OF_ONE))
    for kind, names in kinds.items()
    for name in names.split()
}
"""Those that clients may change while a broker runs."""

_MATTERS = """
    add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms
    alter.config.policy.class.name broker.id client.quota.callback.class config.providers cordoned.log.dirs
    create.topic.policy.class.name early.start.listeners group.consumer.migration.policy
    group.coordinator.rebalance.protocols kafka.metrics.reporters log.cleaner.io.max.bytes.per.second log.dir
    log.dir.failure.timeout.ms log.flush.start.offset.checkpoint.interval.ms max.connection.creation.rate
    max.connections.per.ip.overrides max.request.partition.size.limit metric.reporters principal.builder.class
    security.inter.broker.protocol security.providers transaction.partition.verification.enable
    transaction.two.phase.commit.enable unstable.api.versions.enable unstable.feature.versions.enable
"""
_REFUSED: Final = frozenset(_MATTERS.split())
_PREFIXES: Final = (
    "delegation.token.", "group.consumer.", "group.share.", "remote.log.", "sasl.", "ssl.",
)  # fmt: skip


def is_kafkas(name: str) -> bool:
    """Whether Apache Kafka 4.3 has a broker setting of this name that is not served here."""
    return name in HARMLESS or name in _REFUSED or name.startswith(_PREFIXES)


def changeable(name: str) -> Setting | None:
    """Return the declaration of a setting that clients may change without effect, or None if they may not.

    A name unknown to Kafka may be a password, so its value is never shown, as in Kafka.
    """
    if name in CHANGEABLE:
        return CHANGEABLE[name]
    if is_kafkas(name) or name.startswith(LISTENER_PREFIX):
        return None
    return Setting(name, Kind.PASSWORD, None, "Not known; without effect.", update=Update.CLUSTER_WIDE)
