"""CreateTopics, versions 2 to 7. Absent: more than one replica."""

from __future__ import annotations

from typing import Any

from broker_lite.handlers.authorization import check_topic
from broker_lite.handlers.broker import Broker
from broker_lite.handlers.request import Body, Request
from broker_lite.protocol import apis
from broker_lite.protocol.errors import ErrorCode, KafkaError
from broker_lite.protocol.primitives import ZERO_UUID
from broker_lite.security.acls import Operation, ResourceType
from broker_lite.security.authorizer import authorized, authorized_on_cluster

DEFAULT = -1
UNKNOWN = -1
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
        _check_create(broker, request, wanted.name)
        partitions = _partitions(broker, wanted)
        settings = _settings(wanted)
        broker.check_new_topic(wanted.name, partitions, settings)
        topic_id = ZERO_UUID
        if not validate_only:
            topic_id = broker.create_topic(wanted.name, partitions, settings).topic_id
    except KafkaError as error:
        return _refused(request, wanted.name, error)
    version, types = request.version, apis.response_class(request.api_key)
    configs, config_error = None, ErrorCode.NONE
    if not authorized(broker, request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, wanted.name):
        config_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif version >= CONFIGS_FROM:
        configs = [_config(types, version, name, value) for name, value in settings.items()]
    return types.CreatableTopicResult(
        version=version,
        name=wanted.name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=int(config_error),
        num_partitions=partitions if config_error is ErrorCode.NONE else UNKNOWN,
        replication_factor=1 if config_error is ErrorCode.NONE else UNKNOWN,
        configs=configs,
    )


def _check_create(broker: Broker, request: Request, name: str) -> None:
    if not authorized_on_cluster(broker, request, Operation.CREATE):
        check_topic(broker, request, Operation.CREATE, name)


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
