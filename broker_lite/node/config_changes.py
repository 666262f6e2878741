"""Changes of the settings of topics, brokers and groups: AlterConfigs and IncrementalAlterConfigs.

A change is in effect when it is answered, and survives a restart. As in Kafka's `ConfigurationControlManager`, each
resource is changed as a whole or not at all.

`min.insync.replicas` of all brokers can be set, but not removed, and no broker has its own (KIP-966). In a cluster the
same holds of `unclean.leader.election.enable`, and both are the controller's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

from sparkonce.broker_lite.config import broker_settings
from sparkonce.broker_lite.controller.image import UNCLEAN_ELECTION
from sparkonce.broker_lite.log.config import topic_settings
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.described_settings import ConfigResource, check_broker_name
from sparkonce.broker_lite.node.dynamic_settings import ALL_BROKERS, group_settings
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.broker_lite.node.turns import WRITTEN
from sparkonce.broker_lite.security.acls import Operation, ResourceType
from sparkonce.broker_lite.security.authorizer import authorized, authorized_on_cluster
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import Kind, Setting

if TYPE_CHECKING:
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord

NewValues = Callable[[Mapping[str, str], Mapping[str, Setting]], dict[str, str]]
"""From a resource's values and the declarations of its settings to its new values."""


async def change_resources(broker: Broker, request: Request, values: Callable[[Any], NewValues]) -> Body:
    """Change all resources of a request, each on its own; `values` computes the new values of one."""
    wanted, version = request.message(), request.version
    types = apis.response_class(request.api_key).AlterConfigsResourceResponse
    counts = Counter((each.resource_type, each.resource_name) for each in wanted.resources)
    answers = []
    for each in wanted.resources:
        code, text = ErrorCode.NONE, None
        await broker.turns.spend(request, WRITTEN)
        try:
            if counts[each.resource_type, each.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if len({config.name for config in each.configs}) < len(each.configs):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            _change(broker, request, each, values(each), wanted.validate_only)
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                raise
            code, text = error.code, error.message or None
        answers.append(
            types(
                version=version,
                error_code=int(code),
                error_message=text,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    return request.response(responses=answers)


def _change(broker: Broker, request: Request, resource: Any, values: NewValues, validate_only: bool) -> None:
    change = _CHANGES.get(resource.resource_type)
    if change is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    change(broker, request, resource, values, validate_only)


def _change_topic(broker: Broker, request: Request, resource: Any, values: NewValues, validate_only: bool) -> None:
    name: str = resource.resource_name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if not authorized(broker, request, Operation.ALTER_CONFIGS, ResourceType.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    # Appends and subtracts begin with the inherited list, if the topic has none of its own.
    lists = {
        setting.name: setting.text(getattr(topic.config, setting.field)) or ""
        for setting in topic_settings().values()
        if setting.kind is Kind.LIST
    }

    def checked(before: Mapping[str, str]) -> dict[str, str]:
        after = values(Inherited(before, lists), topic_settings())
        broker.logs.config.with_topic_settings(after)
        return after

    def change(controller: Controller) -> tuple[list[MetadataRecord], None]:
        """Begin with the last decision, which this broker may not have applied yet."""
        found = controller.image.topic(name)
        before = found.settings if found is not None else {}
        after = checked(before)
        return (controller.change_settings(name, after) if after != before else []), None

    if validate_only:
        checked(topic.settings)
    else:
        broker.member.controller.decide(change)


def _change_broker(broker: Broker, request: Request, resource: Any, values: NewValues, validate_only: bool) -> None:
    name: str = resource.resource_name
    if not authorized_on_cluster(broker, request, Operation.ALTER_CONFIGS):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if name != ALL_BROKERS:
        check_broker_name(
            broker, name, "Node id must be an integer, but it is: ", "expected {}", broker.member.image.brokers
        )
        name = str(int(name))
    known, given = broker_settings(), broker.config.given
    lists = {
        each.name: each.text(given.get(each.name, each.default)) or ""
        for each in known.values()
        if each.kind is Kind.LIST
    }
    before = broker.dynamic.of_broker(name)
    after = values(Inherited(dict(before), lists), known)
    decided = broker.dynamic.decided
    if UNCLEAN_ELECTION in decided and name == ALL_BROKERS and request.api_key == ApiKey.ALTER_CONFIGS:
        after = {UNCLEAN_ELECTION: before[UNCLEAN_ELECTION]} | after
    broker.dynamic.check_broker(name, after)
    asked = {each.name for each in resource.configs} if name != ALL_BROKERS else before.keys() - after.keys()
    _check_of_all_alone(name, asked & broker.dynamic.of_all_alone)
    if validate_only:
        return
    broker.change_settings(name, after)
    changed = {each: _plain(known[each], after[each]) for each in decided if each in after}
    if changed:
        broker.member.controller.decide(lambda controller: (controller.change_default_settings(changed), None))


def _plain(setting: Setting, value: str) -> str:
    """Return a value in the form in which it is shown."""
    return setting.text(setting.read(value)) or value


def _check_of_all_alone(name: str, wrongly: Set[str]) -> None:
    """Refuse a change of one broker's that only all brokers can have, and a removal of what they always have.

    Raises:
        KafkaError: INVALID_CONFIG.
    """
    for each in sorted(wrongly):
        if name != ALL_BROKERS:
            text = f"{each} cannot be set for broker {name} alone: all brokers of a cluster go by the same value"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{text}; set it for all (no broker's name), or for a topic")
        text = f"{each} of all brokers cannot be removed, as their files may differ (KIP-966); set it to what is wanted"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)


def _change_group(broker: Broker, request: Request, resource: Any, values: NewValues, validate_only: bool) -> None:
    name: str = resource.resource_name
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if not authorized(broker, request, Operation.ALTER_CONFIGS, ResourceType.GROUP, name):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    after = values(broker.dynamic.of_group(name), group_settings())
    if validate_only:
        broker.dynamic.check_group(name, after)
    else:
        broker.dynamic.change_group(name, after)
        broker.groups.settings_changed(name)


_CHANGES: Mapping[int, Callable[[Broker, Request, Any, NewValues, bool], None]] = {
    ConfigResource.TOPIC: _change_topic,
    ConfigResource.BROKER: _change_broker,
    ConfigResource.GROUP: _change_group,
}


class Inherited(dict[str, str]):
    """A resource's own values, with the lists that it inherits."""

    def __init__(self, own: Mapping[str, str], lists: Mapping[str, str]) -> None:
        super().__init__(own)
        self.lists = lists


def given_value(config: Any) -> str:
    """Return the value of a setting in a request. Raises KafkaError INVALID_REQUEST if it has none."""
    if config.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
    value: str = config.value
    return value
