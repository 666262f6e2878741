"""Adds a broker to its cluster, and removes it: the objects of a member. Imported only by brokers in a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.cluster.controller_locks import BEATS_PER_TIMEOUT
from sparkonce.broker_lite.cluster.controller_service import ControllerService
from sparkonce.broker_lite.cluster.coordination import Coordination
from sparkonce.broker_lite.cluster.lifecycle import Identity, Lifecycle
from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.config import BrokerConfig, broker_settings
from sparkonce.broker_lite.controller.controller import ControllerSettings
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION, LogPosition
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.log.log_manager import LOCK_FILE
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.member_mode import MemberMode
from sparkonce.broker_lite.node.shared_files import SharedFiles
from sparkonce.broker_lite.server.listener import Listener, ServerError
from sparkonce.broker_lite.server.peers import PeerNetwork
from sparkonce.broker_lite.server.replica_fetcher import ReplicaFetchers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkonce.broker_lite.server.host import Heart, Host

START_TIMEOUT_S: Final = 60.0
"""How long a broker waits for the cluster to accept it."""
STOP_TIMEOUT_S: Final = 10.0
"""How long a stopping broker waits for others to take over leadership."""
PLAINTEXT: Final = "PLAINTEXT"

logger = logging.getLogger(__name__)


class MemberServerMode:
    """See `ServerMode`: that of a member of a cluster."""

    def __init__(self, config: BrokerConfig, host: Host, coordination: Coordination, cluster_id: str) -> None:
        given = {**config.given, "cluster.id": cluster_id}
        self.config = dataclasses.replace(config, cluster_id=cluster_id, given=given)
        self.broker_mode = MemberMode()
        self.coordination = coordination
        self._host = host

    def join(self, broker: Broker, listeners: Sequence[Listener]) -> ClusterShell:
        """See `ServerMode`."""
        shell = ClusterShell(broker, self._host, self.coordination, listeners)
        shell.join()
        return shell

    def close(self) -> None:
        """See `ServerMode`."""
        self.coordination.close()


class ClusterShell:
    """One broker's membership, from its start to its stop."""

    def __init__(self, broker: Broker, host: Host, coordination: Coordination, listeners: Sequence[Listener]) -> None:
        """Create a member's objects; nothing happens before `join`. Raises ServerError without a brokers' listener."""
        between = _between_brokers(broker.config, listeners)
        loop, clock = asyncio.get_running_loop(), broker.clock
        self._broker = broker
        self._host = host
        self.coordination = coordination
        self.member = member = broker.member
        self._network = PeerNetwork(loop, broker, between.endpoint)
        member.connect(self._network)
        assert isinstance(broker.shared_files, AnnouncedFiles)
        shared_files = SharedFiles(broker, member, broker.shared_files)
        self._fetchers = ReplicaFetchers(broker, member, self._network.connection)
        identity = _identity(broker, [between, *(each for each in listeners if each is not between)])
        self._alive = asyncio.Event()
        self._lifecycle = self._lifecycle_of(identity, loop)
        settings = _controller(broker.config)
        controller = ControllerService(member.broker_id, coordination, settings, clock.now_ms, clock.monotonic_ms)
        controller.on_begin.append(shared_files.lead)
        self._membership = Membership(coordination, controller, self._lifecycle)
        coordination.on_change.append(member.poll_soon)
        lock_id = host.lock_id(f"{broker.logs.log_dir}/{LOCK_FILE}")
        coordination.announce(identity.incarnation, identity.listeners, lock_id)
        self._pulse: Heart | None = None

    def _lifecycle_of(self, identity: Identity, loop: asyncio.AbstractEventLoop) -> Lifecycle:
        member, logs = self.member, self._broker.logs
        lifecycle = Lifecycle(
            identity,
            self._host.storage,
            logs.log_dir,
            logs.clean,
            self._broker.config.broker_heartbeat_interval_ms,
            loop,
            member.send_to_controller,
            lambda: member.image,
            logs.failure,
            lambda: self.coordination.in_session,
            None if logs.metadata_position is None else LogPosition(*logs.metadata_position),
        )
        lifecycle.on_alive = self._alive.set
        return lifecycle

    def join(self) -> None:
        """Load the controller's log, and follow it from now on."""
        self.member.join(self._membership)
        config, clock = self._broker.config, self._broker.clock
        interval_ms = config.controller_quorum_fetch_timeout_ms // BEATS_PER_TIMEOUT
        self._pulse = self._host.pulse(
            lambda: self.coordination.touch(clock.now_ms()), clock, interval_ms, config.broker_session_timeout_ms
        )
        self.member.on_look = self._show_loop
        self.coordination.on_lead = self._begin_pulse
        self._show_loop()

    def _show_loop(self) -> None:
        """Tell the pulse that the loop is running."""
        if self._pulse is not None:
            self._pulse.loop_is_seen(needed=self._membership.controller.active)

    def _begin_pulse(self) -> None:
        """Begin to beat when this broker becomes the controller: its first round may take long."""
        if self._pulse is not None:
            self._pulse.loop_is_seen(needed=True)

    async def register(self) -> None:
        """Register, and wait for acceptance. Raises ServerError if that takes too long, or the cluster has changed."""
        self._lifecycle.start()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._alive.wait()
        except TimeoutError:
            text = f"no controller has taken this broker into its cluster within {START_TIMEOUT_S:.0f} s"
            raise ServerError(f"{text}: {self._where_to_look()}") from None
        if self._lifecycle.refusal:
            raise ServerError(self._lifecycle.refusal)
        logger.info("broker %d is in the cluster, with epoch %d", self.member.broker_id, self.member.broker_epoch)
        self._warn_of_other_settings()

    def _where_to_look(self) -> str:
        controller_id = self.member.image.controller_id
        if controller_id == NO_LEADER or not self.coordination.in_session:
            return self.coordination.advice
        return f"look at the log of broker {controller_id}, the controller, and at this broker's own"

    def _warn_of_other_settings(self) -> None:
        """Log this broker's settings that are ignored because the cluster has decided otherwise."""
        given, known = self._broker.dynamic.static, broker_settings()
        for name, decided in sorted(self.member.image.default_settings.items()):
            if name in given and (ours := known[name].text(known[name].read(given[name]))) != decided:
                logger.warning(
                    "%s=%s of this broker does not count: the cluster goes by %s=%s, which the controller keeps; to "
                    "change that, alter it for all brokers (kafka-configs --entity-type brokers --entity-default)",
                    *(name, ours, name, decided),
                )

    async def hand_over(self) -> None:
        """Let other brokers take over leadership, as far as possible, before this one stops."""
        stopped = asyncio.Event()
        self._lifecycle.stop(stopped.set)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await stopped.wait()
        except TimeoutError:
            logger.warning("no controller has let this broker go within %.0f s: stopping all the same", STOP_TIMEOUT_S)

    def leave(self) -> None:
        """Stop taking part in the cluster."""
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.stop()
        self._fetchers.stop()
        self.member.leave()
        self.coordination.close()
        self._network.close()


def _identity(broker: Broker, listeners: Sequence[Listener]) -> Identity:
    addresses = tuple((each.config.name, each.endpoint.host, each.endpoint.port) for each in listeners)
    return Identity(broker.config.node_id, broker.cluster_id, broker.new_uuid(), addresses)


def _between_brokers(config: BrokerConfig, listeners: Sequence[Listener]) -> Listener:
    """Return the listener that the other brokers of the cluster use."""
    name = config.security.inter_broker_listener_name
    for each in listeners:
        if each.config.protocol == PLAINTEXT and name in (None, each.config.name):
            return each
    raise ServerError(
        f"brokers of a cluster need a {PLAINTEXT} listener among themselves"
        + (f", and inter.broker.listener.name={name} is none" if name else ": add one, for this machine only")
    )


def _controller(config: BrokerConfig) -> ControllerSettings:
    rebalance_ms = config.leader_imbalance_check_interval_seconds * 1000 if config.auto_leader_rebalance_enable else 0
    defaults = {
        MIN_IN_SYNC_REPLICAS: str(config.log.min_insync_replicas),
        UNCLEAN_ELECTION: "true" if config.log.unclean_leader_election_enable else "false",
    }
    return ControllerSettings(config.broker_session_timeout_ms, rebalance_ms, defaults)
