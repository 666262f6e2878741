"""The brokers, the controller and the partitions as clients see them.

A standalone broker leads everything. A member of a cluster reports what the cluster image says, as far as it has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from sparkonce.broker_lite.node.broker import Broker, Topic
from sparkonce.broker_lite.node.request import Request
from sparkonce.broker_lite.protocol.errors import ErrorCode


class Node(NamedTuple):
    """A broker, and where a client reaches it."""

    node_id: int
    host: str
    port: int


class PartitionView(NamedTuple):
    """A partition; all are broker ids but for error and epoch."""

    error: ErrorCode
    leader: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]
    eligible: list[int]
    last_known_leader: list[int]


def nodes(broker: Broker, request: Request) -> list[Node]:
    """Return all brokers that are alive and can be reached over a listener of the name that the request came over."""
    here = Node(broker.config.node_id, request.endpoint.host, request.endpoint.port)
    if broker.member is None:
        return [here]
    brokers = broker.member.image.brokers
    found = [] if here.node_id in brokers else [here]
    listener = _listener(broker, request)
    for each in brokers.values():
        if each.broker_id == here.node_id:
            found.append(here)
        elif not each.fenced:
            found += [Node(each.broker_id, host, port) for name, host, port in each.listeners if name == listener]
    return found


def _listener(broker: Broker, request: Request) -> str | None:
    assert broker.member is not None
    us = broker.member.image.brokers.get(broker.config.node_id)
    listeners = () if us is None else us.listeners
    return next((name for name, *endpoint in listeners if tuple(endpoint) == tuple(request.endpoint)), None)


def controller_id(broker: Broker) -> int:
    """Return the controller's id, as far as this broker knows; -1 if there is none."""
    return broker.config.node_id if broker.member is None else broker.member.image.controller_id


def partitions(broker: Broker, topic: Topic, indexes: Iterable[int]) -> Iterator[tuple[int, PartitionView]]:
    """Yield the partitions of a topic as clients see them."""
    if broker.member is None:
        alone = _alone(broker.config.node_id, broker.logs.leader_epoch)
        yield from ((index, alone) for index in indexes)
        return
    image = broker.member.image
    found = image.topics.get(topic.topic_id)
    gone = {each.broker_id for each in image.brokers.values() if each.fenced}
    for index in indexes:
        state = None if found is None else found.partitions.get(index)
        if state is None:
            yield index, _UNKNOWN
            continue
        yield (
            index,
            PartitionView(
                ErrorCode.NONE if state.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                state.leader,
                state.leader_epoch,
                list(state.replicas),
                list(state.in_sync_replicas),
                [each for each in state.replicas if each in gone or each not in image.brokers],
                list(state.eligible_leader_replicas),
                [] if state.last_known_leader < 0 else [state.last_known_leader],
            ),
        )


_UNKNOWN = PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, [], [], [], [], [])


@lru_cache(maxsize=8)
def _alone(node_id: int, leader_epoch: int) -> PartitionView:
    us = [node_id]
    return PartitionView(ErrorCode.NONE, node_id, leader_epoch, us, us, [], [], [])
