"""CreateTopics, versions 2 to 7 (KIP-464, KIP-525); forwarded to the controller.

A topic without a replication factor gets `default.replication.factor`, which is rejected too if it exceeds the number
of brokers.

As in Kafka's controller, one request creates at most what fits into one write of its log (`MAX_RECORDS`): a record for
each topic, each setting and each partition. A request beyond that is rejected as a whole.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkonce.broker_lite.log.directories import check_not_metadata_log
from sparkonce.broker_lite.node.authorization import check_topic
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.described_settings import Entry, topic_entries
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.new_topics import NewTopics
from sparkonce.broker_lite.node.replica_assignments import (
    MAX_RECORDS,
    check_replicas,
    too_many_records,
)
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import DESCRIBED, ITEM
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord

DEFAULT = -1
UNKNOWN = -1
CONFIGS_FROM = 5


class Layout(NamedTuple):
    """A topic's number of partitions and replicas; `replicas` are the assignments by partition, if there are any."""

    partitions: int
    replication_factor: int
    replicas: tuple[tuple[int, ...], ...] = ()


class Planned(NamedTuple):
    """A topic that can be created."""

    layout: Layout
    settings: dict[str, str]


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Create topics, each on its own: a rejected one does not stop the others, unless all are too many."""
    wanted = request.message()
    counts = Counter(each.name for each in wanted.topics)
    once = [each for each in wanted.topics if counts[each.name] == 1]
    try:
        _check_partitions(broker, once)
        planned, refused = await _plan(broker, request, once)
        _check_records(planned)
    except KafkaError as error:
        return request.response(topics=[_refused(request, name, error) for name in counts])
    made: dict[str, uuid.UUID | KafkaError]
    if wanted.validate_only:
        made = {name: broker.new_uuid() for name in planned}
    else:
        made = await _make(broker, request, planned)
    results = []
    for each in once:
        outcome = refused.get(each.name) or made[each.name]
        if isinstance(outcome, KafkaError):
            results.append(_refused(request, each.name, outcome))
            await broker.turns.spend(request, ITEM)
        else:
            results.append(_created_topic(broker, request, each.name, outcome, planned[each.name]))
            await broker.turns.spend(request, DESCRIBED)
    twice = KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    results += [_refused(request, name, twice) for name, count in counts.items() if count > 1]
    return request.response(topics=results)


def _check_partitions(broker: Broker, wanted: Iterable[Any]) -> None:
    """Reject too many partitions, as requested, before any other check (ReplicationControlManager.createTopics)."""
    total = 0
    for each in wanted:
        asked = each.num_partitions if each.num_partitions != DEFAULT else broker.config.num_partitions
        total += len(each.assignments) or max(asked, 0)
    if total > MAX_RECORDS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _check_records(planned: Mapping[str, Planned]) -> None:
    if sum(1 + len(settings) + layout.partitions for layout, settings in planned.values()) > MAX_RECORDS:
        raise too_many_records()


async def _plan(
    broker: Broker, request: Request, wanted: Iterable[Any]
) -> tuple[dict[str, Planned], dict[str, KafkaError]]:
    """Return the topics that can be created, and the errors of the others."""
    planned: dict[str, Planned] = {}
    refused: dict[str, KafkaError] = {}
    together = NewTopics(broker.logs)
    for each in wanted:
        await broker.turns.spend(request, ITEM)
        try:
            check_not_metadata_log(each.name)
            _check_create(broker, request, each.name)
            plan = Planned(_layout(broker, each), _settings(each))
            together.add(each.name, plan.layout.partitions, plan.settings)
            planned[each.name] = plan
        except KafkaError as error:
            refused[each.name] = error
    return planned, refused


async def _make(broker: Broker, request: Request, planned: Mapping[str, Planned]) -> dict[str, uuid.UUID | KafkaError]:
    """Let the controller create the topics, in one write; return their ids.

    A standalone broker creates their logs before that, so that a full disk is an error of the request (`prepare`), and
    removes those of topics that are not created after all (`end_preparation`).
    """
    role = broker.member.controller
    made: dict[str, uuid.UUID | KafkaError] = {}
    ids = {name: broker.new_uuid() for name in planned}

    def decision(name: str, controller: Controller) -> tuple[list[MetadataRecord], None]:
        layout, settings = planned[name]
        try:
            return controller.create_topic(
                name, ids[name], layout.partitions, layout.replication_factor, settings, layout.replicas
            ), None
        except KafkaError as error:
            made[name] = error
            return [], None

    try:
        broker.deleted.make_way(planned)
        for name, (layout, settings) in planned.items():
            try:
                await broker.turns.do(request, role.prepare(name, ids[name], range(layout.partitions), settings))
                made[name] = ids[name]
            except KafkaError as error:
                made[name] = error
        decisions = [partial(decision, name) for name in planned if made[name] == ids[name]]
        await broker.turns.do(request, role.decide_together(decisions))
        await broker.turns.spend(request, ITEM * len(planned))
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        undecided = [name for name in planned if broker.topic_by_id(ids[name]) is None]
        made |= {name: error for name in undecided if not isinstance(made.get(name), KafkaError)}
    finally:
        for name in [each for each in ids if made.get(each) != ids[each]]:
            role.end_preparation(name, ids[name])
    return made


def _created_topic(broker: Broker, request: Request, name: str, topic_id: uuid.UUID, planned: Planned) -> Any:
    """Return the response for a created topic."""
    layout, settings = planned
    version, types = request.version, apis.response_class(request.api_key)
    configs, config_error = None, ErrorCode.NONE
    if not authorized(broker, request, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        config_error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif version >= CONFIGS_FROM:
        config = broker.logs.config.with_topic_settings(settings)
        configs = [_config(types, version, each) for each in topic_entries(broker, settings, config)]
    return types.CreatableTopicResult(
        version=version,
        name=name,
        topic_id=topic_id,
        error_code=0,
        error_message=None,
        topic_config_error_code=int(config_error),
        num_partitions=layout.partitions if config_error is ErrorCode.NONE else UNKNOWN,
        replication_factor=layout.replication_factor if config_error is ErrorCode.NONE else UNKNOWN,
        configs=configs,
    )


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
    """Return partitions and replicas, from the counts or from the assignments."""
    if wanted.assignments:
        return _assigned(broker, wanted)
    factor: int = wanted.replication_factor
    if factor == DEFAULT:
        factor = broker.config.default_replication_factor
    if factor < 1:
        text = "Replication factor must be larger than 0, or -1 to use the default value."
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, text)
    brokers = len(broker.member.image.brokers)
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
        check_replicas(broker.member.image.brokers, each.broker_ids, next(iter(seen.values()), None))
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
