"""AlterConfigs, versions 0 to 2: replaces all of a topic's, broker's or group's own settings.

As in Kafka since KIP-966 it is refused for all brokers if it does not name their `min.insync.replicas`. In a cluster it
leaves their `unclean.leader.election.enable`, unless it names it. Absent: loggers of brokers, and clients' metrics.
"""

from __future__ import annotations

from typing import Any

from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.config_changes import NewValues, change_resources, given_value
from sparkonce.broker_lite.node.forwarding import by_the_controller
from sparkonce.broker_lite.node.request import Body, Request


@by_the_controller
async def handle(broker: Broker, request: Request) -> Body:
    """Replace all of a resource's own settings by those of the request, whatever values it has."""

    def values(resource: Any) -> NewValues:
        return lambda _before, _known: {each.name: given_value(each) for each in resource.configs}

    return await change_resources(broker, request, values)
