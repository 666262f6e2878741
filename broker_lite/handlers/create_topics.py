"""CreateTopics, versions 2 to 7 (KIP-464, KIP-525); in a cluster, the controller's to do.

A topic without a replication factor gets `default.replication.factor`, which is refused too if it is beyond the number
of brokers: 1, for a broker by itself.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any, NamedTuple

from broker_lite.handlers.authorization import check_topic
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.create_partitions import check_replicas, known_brokers
from broker_lite.handlers.describe_configs import Entry, topic_entries
from broker_lite.handlers.forwarding import by_the_controller
from broker_lite.handlers.request import Body, Request
from broker_lite.log.directories import check_not_metadata_log
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import ZERO_UUID
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized, authorized_on_cluster

DEFAULT = -1
UNKNOWN = -1
CONFIGS_FROM = 5


class Layout(NamedTuple):
    """How many partitions and replicas a topic gets; `replicas` says where, partition by partition, if it is given."""

    partitions: int
    replication_factor: int
    replicas: tuple[tuple[int, ...], ...] = ()


@by_the_controller
def handle(broker: Broker, request: Request) -> Body:
    """Make topics, each on its own: one that is refused does not stop the others."""
    wanted = request.message()
    counts = Counter(each.name for each in wanted.topics)
    once = [each for each in wanted.topics if counts[each.name] == 1]
    results = [_create(broker, request, each, wanted.validate_only) for each in once]
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_refused(request, name, twice) for name, count in counts.items() if count > 1]
    return request.response(topics=results)


def _create(broker: Broker, request: Request, wanted: Any, validate_only: bool) -> Any:
    try:
        check_not_metadata_log(wanted.name)
        _check_create(broker, request, wanted.name)
        layout = _layout(broker, wanted)
        settings = _settings(wanted)
        broker.check_new_topic(wanted.name, layout.partitions, settings)
        config = broker.logs.config.with_topic_settings(settings)
        topic_id = broker.new_uuid() if validate_only else _made(broker, wanted.name, layout, settings)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        return _refused(request, wanted.name, error)
    version, types = request.version, apis.response_class(request.api_key)
    configs, config_error = None, ErrorCode.NONE
    if not authorized(broker, request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name):
        config_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif version >= CONFIGS_FROM:
        configs = [_config(types, version, each) for each in topic_entries(broker, settings, config)]
    return types.CreatableTopicResult(
        version=version,
        name=wanted.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=int(config_error),
        num_partitions=layout.partitions if config_error is ErrorCode.NONE else UNKNOWN,
        replication_factor=layout.replication_factor if config_error is ErrorCode.NONE else UNKNOWN,
        configs=configs,
    )


def _made(broker: Broker, name: str, layout: Layout, settings: dict[str, str]) -> uuid.UUID:
    """Make a topic; gives its id."""
    if broker.member is None:
        return broker.create_topic(name, layout.partitions, settings).topic_id
    topic_id = broker.new_uuid()
    broker.member.controller.decide(
        lambda controller: (
            controller.create_topic(
                name, topic_id, layout.partitions, layout.replication_factor, settings, layout.replicas
            ),
            None,
        )
    )
    return topic_id


def _check_create(broker: Broker, request: Request, name: str) -> None:
    if not authorized_on_cluster(broker, request, Operation.CREATE, log_denial=False):
        check_topic(broker, request, Operation.CREATE, name)


def _config(types: Any, version: int, entry: Entry) -> Any:
    return types.CreatableTopicResult.CreatableTopicConfigs(
        version=version,
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.setting.sensitive,
    )


def _layout(broker: Broker, wanted: Any) -> Layout:
    """Give partitions and replicas, from the counts or from the assignments."""
    if wanted.assignments:
        return _assigned(broker, wanted)
    factor: int = wanted.replication_factor
    if factor == DEFAULT:
        factor = broker.config.default_replication_factor
    if factor < 1:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    brokers = len(known_brokers(broker))
    if factor > brokers:
        text = (
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
            f"cannot be reached because only {brokers} broker(s) are registered."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    count: int = wanted.num_partitions
    if count == DEFAULT:
        return Layout(broker.config.num_partitions, factor)
    if count < 1:
        text = "Number of partitions was set to an invalid non-positive value."
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, text)
    return Layout(count, factor)


def _assigned(broker: Broker, wanted: Any) -> Layout:
    text = "A manual partition assignment was specified, but"
    if wanted.replication_factor != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} replication factor was not set to -1.")
    if wanted.num_partitions != DEFAULT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text} numPartitions was not set to -1.")
    seen: dict[int, tuple[int, ...]] = {}
    for each in wanted.assignments:
        if each.partition_index in seen:
            twice = f"Found multiple manual partition assignments for partition {each.partition_index}"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, twice)
        check_replicas(broker, each.broker_ids, next(iter(seen.values()), None))
        seen[each.partition_index] = tuple(each.broker_ids)
    if seen.keys() != set(range(len(seen))):
        gap = "partitions should be a consecutive 0-based integer sequence"
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, gap)
    return Layout(len(seen), len(seen[0]), tuple(seen[index] for index in range(len(seen))))


def _settings(wanted: Any) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in wanted.configs:
        if each.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {each.name}")
        settings[each.name] = each.value
    return settings


def _refused(request: Request, name: str, error: KafkaError) -> Any:
    return apis.response_class(request.api_key).CreatableTopicResult(
        version=request.version,
        name=name,
        topic_id=ZERO_UUID,
        error_code=int(error.code),
        error_message=error.message or error.code.name,
        configs=[],
    )
