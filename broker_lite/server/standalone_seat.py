"""The seat of a standalone broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.node.standalone import StandaloneMode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.server.host import Host
    from sparkonce.broker_lite.server.listener import Listener


async def take_seat(config: BrokerConfig, _host: Host, _data_dir: str, listeners: Sequence[Listener]) -> StandaloneSeat:
    """See `seat.take_seat`."""
    return StandaloneSeat(config, listeners)


class StandaloneSeat:
    """See `Seat`, and `Cluster`: there is nothing to register with, and no other broker takes over."""

    def __init__(self, config: BrokerConfig, listeners: Sequence[Listener]) -> None:
        self.config = config
        self.mode = StandaloneMode([(each.config.name, *each.endpoint) for each in listeners])

    def join(self, _broker: Broker, _listeners: Sequence[Listener]) -> StandaloneSeat:
        """See `Seat`."""
        return self

    def close(self) -> None:
        """See `Seat`."""

    async def register(self) -> None:
        """See `Cluster`."""

    async def hand_over(self) -> None:
        """See `Cluster`."""

    def leave(self) -> None:
        """See `Cluster`."""
