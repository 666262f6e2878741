"""The brokers, the controller and the partitions as clients see them, from the cluster image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparkonce.broker_lite.cluster.member import ClusterMember
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.partition_state import PartitionState
from sparkonce.broker_lite.log.log_manager import Topic
from sparkonce.broker_lite.node.request import Request
from sparkonce.kafka.protocol.errors import ErrorCode


class Node(NamedTuple):
    """A broker, and its address for clients."""

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


def nodes(member: ClusterMember, request: Request) -> list[Node]:
    """Return all live brokers with a listener of the same name as the one that the request came over."""
    here = Node(member.broker_id, request.endpoint.host, request.endpoint.port)
    brokers = member.image.brokers
    found = [] if here.node_id in brokers else [here]
    listener = _listener(member, request)
    for each in brokers.values():
        if each.broker_id == here.node_id:
            found.append(here)
        elif not each.fenced:
            found += [Node(each.broker_id, host, port) for name, host, port in each.listeners if name == listener]
    return found


def _listener(member: ClusterMember, request: Request) -> str | None:
    us = member.image.brokers.get(member.broker_id)
    listeners = () if us is None else us.listeners
    return next((name for name, *endpoint in listeners if tuple(endpoint) == tuple(request.endpoint)), None)


def partitions(image: ClusterImage, topic: Topic, indexes: Iterable[int]) -> Iterator[tuple[int, PartitionView]]:
    """Yield the partitions of a topic as clients see them."""
    found = image.topics.get(topic.topic_id)
    here = {each.broker_id for each in image.brokers.values() if not each.fenced}
    views: dict[PartitionState | None, PartitionView] = {None: _UNKNOWN}  # most partitions are alike
    for index in indexes:
        state = None if found is None else found.partitions.get(index)
        view = views.get(state)
        if view is None and state is not None:
            view = views[state] = _view(state, [each for each in state.replicas if each not in here])
        yield index, view or _UNKNOWN


def _view(state: PartitionState, offline: list[int]) -> PartitionView:
    return PartitionView(
        ErrorCode.NONE if state.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
        state.leader,
        state.leader_epoch,
        list(state.replicas),
        list(state.in_sync_replicas),
        offline,
        list(state.eligible_leader_replicas),
        [] if state.last_known_leader < 0 else [state.last_known_leader],
    )


_UNKNOWN = PartitionView(ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, [], [], [], [], [])
