"""The server's mode: standalone, or a member of a cluster, which it reaches before the broker opens any logs.

A setting selects the cluster's coordination; without one, the broker is standalone. The modules of a mode are
imported when it is entered, for a faster start.
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

_MODES: Final = {"": "standalone_mode", "metadata.log.dir": "directory_mode", "zookeeper.connect": "zookeeper_mode"}
"""For each setting (`BrokerConfig.rests_on`) the module with its `enter_mode`."""


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


class ServerMode(Protocol):
    """What the server does otherwise if there are other brokers; `BrokerMode` is the broker's part of it."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, with its cluster's id if known."""

    @property
    def broker_mode(self) -> BrokerMode:
        """The broker's own mode."""

    def join(self, broker: Broker, listeners: Sequence[Listener]) -> Cluster:
        """Follow the controller from now on."""

    def close(self) -> None:
        """Release the broker's id, and what was opened for the coordination."""


async def enter_mode(config: BrokerConfig, host: Host, data_dir: str, listeners: Sequence[Listener]) -> ServerMode:
    """Enter the mode that the settings select; in a cluster, reach it and reserve the broker's id.

    Raises:
        ServerError: if the cluster is another one or cannot be reached, or a broker of this id runs.
    """
    module = import_module(f"sparkonce.broker_lite.server.{_MODES[config.rests_on]}")
    enter: Callable[[BrokerConfig, Host, str, Sequence[Listener]], Awaitable[ServerMode]] = module.enter_mode
    return await enter(config, host, data_dir, listeners)
