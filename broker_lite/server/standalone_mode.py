"""The server's mode without a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.node.standalone import StandaloneMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.server.host import Host
    from sparkonce.broker_lite.server.listener import Listener


async def enter_mode(
    config: BrokerConfig, _host: Host, _data_dir: str, listeners: Sequence[Listener]
) -> StandaloneServerMode:
    """See `mode.enter_mode`."""
    return StandaloneServerMode(config, listeners)


class StandaloneServerMode:
    """See `ServerMode`, and `Cluster`: there is nothing to register with, and no other broker takes over."""

    def __init__(self, config: BrokerConfig, listeners: Sequence[Listener]) -> None:
        self.config = config
        self.broker_mode = StandaloneMode([(each.config.name, *each.endpoint) for each in listeners])

    def join(self, _broker: Broker, _listeners: Sequence[Listener]) -> StandaloneServerMode:
        """See `ServerMode`."""
        return self

    def close(self) -> None:
        """See `ServerMode`."""

    async def register(self) -> None:
        """See `Cluster`."""

    async def hand_over(self) -> None:
        """See `Cluster`."""

    def leave(self) -> None:
        """See `Cluster`."""
