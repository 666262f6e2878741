"""The server's part in its broker's cluster: the seat that the broker takes before it opens any logs.

A setting selects the cluster's coordination; without one, the broker is standalone. Modules of one kind of seat
are imported when it is taken, for a faster start.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sparkonce.broker_lite.config import BrokerConfig
    from sparkonce.broker_lite.node.broker import Broker
    from sparkonce.broker_lite.node.mode import BrokerMode
    from sparkonce.broker_lite.server.host import Host
    from sparkonce.broker_lite.server.listener import Listener

_SEATS: Final = {"": "standalone_seat", "metadata.log.dir": "directory_seat", "zookeeper.connect": "zookeeper_seat"}
"""For each setting (`BrokerConfig.rests_on`) the module with its `take_seat`."""


class Cluster(Protocol):
    """A cluster that a broker has joined."""

    async def register(self) -> None:
        """Register the broker, and wait until it is accepted.

        Raises:
            ServerError: if that takes too long, or the cluster has changed.
        """

    async def hand_over(self) -> None:
        """Let other brokers take over leadership, as far as possible, before this one stops."""

    def leave(self) -> None:
        """Leave the cluster."""


class Seat(Protocol):
    """A broker's seat in its cluster."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, with its cluster's id if known."""

    @property
    def mode(self) -> BrokerMode:
        """The broker's mode: standalone, or a member of a cluster."""

    def join(self, broker: Broker, listeners: Sequence[Listener]) -> Cluster:
        """Follow the controller from now on."""

    def close(self) -> None:
        """Release the seat."""


async def take_seat(config: BrokerConfig, host: Host, data_dir: str, listeners: Sequence[Listener]) -> Seat:
    """Take a broker's seat in its cluster.

    Raises:
        ServerError: if the seat belongs to another cluster, is taken, or cannot be reached.
    """
    module = import_module(f"sparkonce.broker_lite.server.{_SEATS[config.rests_on]}")
    take: Callable[[BrokerConfig, Host, str, Sequence[Listener]], Awaitable[Seat]] = module.take_seat
    return await take(config, host, data_dir, listeners)
