"""IncrementalAlterConfigs v0 and v1 (KIP-339). Absent: loggers of brokers, and clients' metrics."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.config_changes import Inherited, NewValues, change_resources, given_value
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.settings import Kind, Setting


class Change(IntEnum):
    """An operation on one setting (`AlterConfigOp.OpType`)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Change single settings; `change_resources` finds each resource's values, and stores what `_changed` returns."""

    def values(resource: Any) -> NewValues:
        return lambda before, known: _changed(resource.configs, before, known)

    return await change_resources(broker, request, values)


def _changed(configs: Any, before: Mapping[str, str], known: Mapping[str, Setting]) -> dict[str, str]:
    after = dict(before)
    for each in configs:
        name, change = each.name, each.config_operation
        if change == Change.SET:
            after[name] = given_value(each)
        elif change == Change.DELETE:
            after.pop(name, None)
        elif change in (Change.APPEND, Change.SUBTRACT):
            word = Change(change).name
            if name not in known or known[name].kind is not Kind.LIST:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST.")
            begin = before.get(name, before.lists.get(name, "") if isinstance(before, Inherited) else "")
            after[name] = _list(begin, given_value(each), change == Change.APPEND)
        else:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change} on {name}")
    return after


def _list(begin: str, given: str, append: bool) -> str:
    items = [item for item in begin.split(",") if item]
    for item in given.split(","):
        if append and item not in items:
            items.append(item)
        elif not append and item in items:
            items.remove(item)
    return ",".join(items)
