"""CreateTopics, versions 2 to 7. Absent: more than one replica."""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import ZERO_UUID

DEFAULT = -1
CONFIGS_FROM = 5
TOPIC_CONFIG_SOURCE = 1


def handle(broker: Broker, request: Request) -> Body:
    """Make topics, each on its own: one that is refused does not stop the others."""
    wanted = request.message()
    names = [each.name for each in wanted.topics]
    results = []
    seen = set()
    for each in wanted.topics:
        if names.count(each.name) > 1:
            if each.name not in seen:
                twice = KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
                results.append(_refused(request, each.name, twice))
        else:
            results.append(_create(broker, request, each, wanted.validate_only))
        seen.add(each.name)
    return request.response(topics=results)


def _create(broker: Broker, request: Request, wanted: Any, validate_only: bool) -> Any:
    try:
        partitions = _partitions(broker, wanted)
        settings = _settings(wanted)
        broker.check_new_topic(wanted.name, partitions, settings)
        topic_id = ZERO_UUID
        if not validate_only:
            topic_id = broker.create_topic(wanted.name, partitions, settings).topic_id
    except KafkaError as error:
        return _refused(request, wanted.name, error)
    version, types = request.version, apis.response_class(request.api_key)
    configs = None
    if version >= CONFIGS_FROM:
        configs = [_config(types, version, name, value) for name, value in settings.items()]
    return types.CreatableTopicResult(
        version=version,
        name=wanted.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=configs,
    )


def _config(types: Any, version: int, name: str, value: str) -> Any:
    return types.CreatableTopicResult.CreatableTopicConfigs(
        version=version,
        name=name,
        value=value,
        read_only=False,
        config_source=TOPIC_CONFIG_SOURCE,
        is_sensitive=False,
    )


def _partitions(broker: Broker, wanted: Any) -> int:
    """Give the number of partitions, from the count or from the assignments."""
    node_id = broker.config.node_id
    if wanted.assignments:
        if (wanted.num_partitions, wanted.replication_factor) != (DEFAULT, DEFAULT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "assignments go with neither a count nor a replication factor")
        indexes = sorted(each.partition_index for each in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions must be numbered from 0 without a gap")
        if any(list(each.broker_ids) != [node_id] for each in wanted.assignments):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is {node_id}")
        return len(indexes)
    if wanted.replication_factor not in (DEFAULT, 1):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {wanted.replication_factor}; there is one broker",
        )
    count: int = wanted.num_partitions
    return broker.config.num_partitions if count == DEFAULT else count


def _settings(wanted: Any) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in wanted.configs:
        if each.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the setting {each.name} has no value")
        settings[each.name] = each.value
    return settings


def _refused(request: Request, name: str, error: KafkaError) -> Any:
    return apis.response_class(request.api_key).CreatableTopicResult(
        version=request.version,
        name=name,
        topic_id=ZERO_UUID,
        error_code=int(error.code),
        error_message=error.message or error.code.name,
        configs=None,
    )
