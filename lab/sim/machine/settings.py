"""Settings of simulated brokers: times shorter than Kafka's, in the same proportions."""

from __future__ import annotations

from typing import Final

from lab.sim.plan import Durability, SeedPlan
from lab.sim.scheduler import stream
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.security.settings import STANDARD_AUTHORIZER

FIRST_PORT: Final = 9092
"""The first listener's port on each machine; the others follow."""
RETENTION_MS: Final = 300_000
"""Retention of groups without members, transactional ids and producers: longer than a run."""
METRICS_PORT: Final = 9404
INTRUDER: Final = "intruder"
ZOOKEEPER: Final = "zookeeper:2181/sparkonce"
_INTRUDERS: Final = 0.3
"""The share of seeds with an intruder."""
_MEASURED: Final = 0.1
"""The share of seeds whose brokers are asked for metrics."""
_CLEANED: Final = 0.4
"""The share of seeds with compacted logs."""
_WATCHED: Final = 0.7
"""The share of seeds in which brokers are notified of changes in shared files; in others they poll."""
INTERNAL_SEGMENT_BYTES: Final = 1_500
"""For the internal topics, if logs are compacted."""
_IN_PIECES: Final = 0.35
"""The share of seeds in which followers fetch one batch at a time, so that they take long to catch up."""
_WRITTEN_DOWN: Final = 0.5
"""The share of seeds in which brokers write checkpoints often; in others none lives long enough to."""


def has_intruder(seed: int) -> bool:
    """Whether a seed has an intruder."""
    return stream("intruder", seed).random() < _INTRUDERS


def has_metrics(seed: int) -> bool:
    """Whether a seed's brokers are asked for metrics."""
    return stream("metrics", seed).random() < _MEASURED


def has_cleaning(seed: int) -> bool:
    """Whether a seed has compacted logs, and segments and offsets that expire."""
    return stream("deletion-and-retention", seed).random() < _CLEANED


def has_watch(seed: int) -> bool:
    """Whether a seed's machines report changes of shared files."""
    return stream("watch", seed).random() < _WATCHED


def broker_config(plan: SeedPlan, node_id: int, metadata_log_dir: str | None) -> BrokerConfig:
    """Return the settings of a broker; it is standalone without `metadata_log_dir`."""
    settings = plan.settings
    internal = {topic.name: topic.partitions for topic in plan.topics}
    values: dict[str, object] = {
        "node.id": node_id,
        "broker.heartbeat.interval.ms": settings.heartbeat_ms,
        "broker.session.timeout.ms": settings.session_ms,
        "controller.quorum.fetch.timeout.ms": max(settings.session_ms // 2, 200),
        "replica.lag.time.max.ms": max(settings.lag_ms, settings.fetch_wait_ms),
        "replica.fetch.wait.max.ms": settings.fetch_wait_ms,
        "replica.fetch.backoff.ms": settings.backoff_ms,
        "replica.high.watermark.checkpoint.interval.ms": 700,
        "auto.leader.rebalance.enable": settings.rebalance_ms > 0,
        "leader.imbalance.check.interval.seconds": max(settings.rebalance_ms // 1000, 1),
        "min.insync.replicas": plan.default_minimum,
        "log.index.interval.bytes": 200,
        "auto.create.topics.enable": False,
        "offsets.topic.num.partitions": internal.get(OFFSETS_TOPIC, 1),
        "transaction.state.log.num.partitions": internal.get(TRANSACTIONS_TOPIC, 1),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
        "metadata.log.max.record.bytes.between.snapshots": 20_000,
        "group.min.session.timeout.ms": 100,
        "group.consumer.heartbeat.interval.ms": 100,
        "offsets.retention.minutes": RETENTION_MS // 60_000,
        "offsets.retention.check.interval.ms": 700,
        "transactional.id.expiration.ms": RETENTION_MS,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 900,
        "producer.id.expiration.ms": RETENTION_MS,
        "producer.id.expiration.check.interval.ms": 800,
    }
    if metadata_log_dir is not None and plan.zookeeper is not None:
        values["zookeeper.connect"] = ZOOKEEPER
        values["zookeeper.session.timeout.ms"] = settings.session_ms
    elif metadata_log_dir is not None:
        values["metadata.log.dir"] = metadata_log_dir
    if stream("pieces", plan.seed).random() < _IN_PIECES:
        values["replica.fetch.max.bytes"] = values["replica.fetch.response.max.bytes"] = 1
    if has_metrics(plan.seed) and metadata_log_dir is not None:
        values["metrics.port"] = METRICS_PORT
    if stream("checkpoints", plan.seed).random() < _WRITTEN_DOWN:
        values["log.flush.offset.checkpoint.interval.ms"] = 900
    if has_cleaning(plan.seed):
        values |= {
            "log.cleaner.backoff.ms": 150,
            "log.cleaner.min.cleanable.ratio": 0.01,
            "log.retention.check.interval.ms": 300,
            "log.segment.delete.delay.ms": 200,
        }
    if plan.groups:
        values["group.initial.rebalance.delay.ms"] = plan.groups[0].delay_ms
        values["group.consumer.session.timeout.ms"] = max(group.session_ms for group in plan.groups)
    if has_intruder(plan.seed):
        values |= {
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
            "listeners": f"PLAINTEXT://127.0.0.1:{FIRST_PORT},SASL_PLAINTEXT://127.0.0.1:{FIRST_PORT + 1}",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{INTRUDER}="{INTRUDER}";'
            ),
        }
    if plan.durability is Durability.FLUSHED or metadata_log_dir is None:  # nobody else has what is only in memory
        values["log.flush.interval.messages"] = 1
    return BrokerConfig.of(values)
