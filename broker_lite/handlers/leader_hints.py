"""The current leader, for a client that asked the wrong broker (KIP-951): it need not ask for metadata first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.protocol.produce import LeaderHint, NodeEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkonce.broker_lite.controller.image import ClusterImage
    from sparkonce.broker_lite.handlers.broker import Broker
    from sparkonce.broker_lite.handlers.request import Endpoint


def leader_hint(broker: Broker, topic: str, index: int) -> LeaderHint | None:
    """Return the current leader of a partition; None if there is none, or this broker is standalone."""
    if broker.member is None:
        return None
    image = broker.member.image
    found = image.topic(topic)
    state = None if found is None else found.partitions.get(index)
    return None if state is None or state.leader not in image.brokers else LeaderHint(state.leader, state.leader_epoch)


def endpoints_of_leaders(
    image: ClusterImage, broker_id: int, endpoint: Endpoint, hints: Iterable[LeaderHint]
) -> Sequence[NodeEndpoint]:
    """Return where to reach the brokers that hints name, at their listeners of the same name as ours at `endpoint`."""
    leaders = {hint.leader_id for hint in hints}
    ours = image.brokers.get(broker_id)
    if not leaders or ours is None:
        return ()
    names = {name for name, host, port in ours.listeners if (host, port) == endpoint}
    return [
        NodeEndpoint(node_id, host, port)
        for node_id in sorted(leaders)
        for name, host, port in image.brokers[node_id].listeners
        if name in names
    ]
