"""Adds a broker to its cluster, and removes it again: what a member needs is made and wired here.

Loaded only where a broker is in a cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.cluster.controller_locks import BEATS_PER_TIMEOUT
from sparkonce.broker_lite.cluster.controller_service import ControllerService
from sparkonce.broker_lite.cluster.coordination import Coordination
from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.cluster.lifecycle import Identity, Lifecycle
from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.cluster.metadata_log import CLUSTER_FILE, FOLDER
from sparkonce.broker_lite.config import BrokerConfig, broker_settings
from sparkonce.broker_lite.controller.controller import ControllerSettings
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION
from sparkonce.broker_lite.controller.records import NO_LEADER
from sparkonce.broker_lite.log import checkpoints
from sparkonce.broker_lite.log.directories import holds_log
from sparkonce.broker_lite.log.log_manager import LOCK_FILE
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.shared_files import SharedFiles
from sparkonce.broker_lite.server.listener import Listener, ServerError
from sparkonce.broker_lite.server.peers import PeerNetwork
from sparkonce.broker_lite.server.replica_fetcher import ReplicaFetchers

if TYPE_CHECKING:
    from sparkonce.broker_lite.server.host import Heart, Host

START_TIMEOUT_S: Final = 60.0
"""How long a broker waits for the cluster to accept it."""
MIN_CONNECT_S: Final = 5.0
"""How long a broker waits for ZooKeeper when it starts; or its session's time-out, if that is longer."""
STOP_TIMEOUT_S: Final = 10.0
"""How long a stopping broker waits for others to lead in its place."""
LOCK_ATTEMPTS: Final = 100
LOCK_PAUSE_S: Final = 0.01
"""A lock may be held for a moment by a process that only checks whether it is free."""
PLAINTEXT: Final = "PLAINTEXT"

logger = logging.getLogger(__name__)


async def take_place(config: BrokerConfig, host: Host, data_dir: str) -> tuple[Coordination, str]:
    """Take a broker's place in its cluster before anything of it is opened; returns the cluster's id, too.

    Raises:
        ServerError: if that cannot be, as the place is another cluster's or cannot be reached.
    """
    if config.metadata_log_dir is not None:
        return await _in_directory(config, os.path.abspath(config.metadata_log_dir), host, data_dir)
    return await _in_zookeeper(config, host)


async def _in_zookeeper(config: BrokerConfig, host: Host) -> tuple[Coordination, str]:
    connect, timeout_ms = config.zookeeper_connect, config.zookeeper_session_timeout_ms
    assert connect is not None
    # Imported lazily: only these brokers need it.
    from sparkonce.broker_lite.server.zookeeper import ZooKeeperCoordination

    loop = asyncio.get_running_loop()
    try:
        client = host.zookeeper(connect, timeout_ms, loop)
    except ModuleNotFoundError as error:
        text = f"zookeeper.connect={connect} needs {error.name}: pip install 'sparkonce[zookeeper]'"
        raise ServerError(text) from error
    monotonic_ms = host.clock.monotonic_ms
    coordination = ZooKeeperCoordination(connect, client, config.node_id, loop, monotonic_ms, host.new_uuid)
    try:
        timeout_s = max(timeout_ms / 1000, MIN_CONNECT_S)
        return coordination, await coordination.start(config.cluster_id, timeout_s, create=True)
    except BaseException as error:
        coordination.close()
        if isinstance(error, OSError):
            raise ServerError(f"zookeeper.connect={connect} cannot be used: {error}") from error
        raise


async def _in_directory(config: BrokerConfig, directory: str, host: Host, data_dir: str) -> tuple[Coordination, str]:
    """Use a directory that all brokers share.

    Raises:
        ServerError: if a broker of this id runs, the directory cannot be used or is among this broker's own data, or
            it is another cluster's, or Kafka's.
    """
    storage = host.storage
    shared, own = host.real_path(directory), host.real_path(data_dir)
    if os.path.commonpath([shared, own]) == own:
        where = (
            "is this broker's data directory" if shared == own else f"is in this broker's data directory, {data_dir}"
        )
        text = f"metadata.log.dir={directory} {where}: give another one, that all brokers of the cluster share"
        raise ServerError(text)
    if holds_log(storage, f"{directory}/{FOLDER}"):
        text = f"metadata.log.dir={directory} has the metadata log of an Apache Kafka controller: give another one"
        raise ServerError(text)
    timeout_ms = config.controller_quorum_fetch_timeout_ms
    max_log_bytes = config.metadata_log_max_record_bytes_between_snapshots
    with contextlib.ExitStack() as undo:
        try:
            coordination = FileCoordination(storage, directory, config.node_id, timeout_ms, max_log_bytes, host.watch)
            undo.callback(coordination.close)
            cluster_id = await _cluster_id(host, directory, config.cluster_id)
        except OSError as error:
            text = f"metadata.log.dir={directory} cannot be used ({error}): choose another"
            raise ServerError(text) from error
        if config.cluster_id not in ("", cluster_id):
            text = f"metadata.log.dir={directory} is that of cluster.id={cluster_id}, not {config.cluster_id}"
            raise ServerError(f"{text}: use that, or another directory")
        await _hold_broker(coordination, config.node_id, directory)
        undo.pop_all()
    return coordination, cluster_id


async def _hold_broker(coordination: FileCoordination, node_id: int, directory: str) -> None:
    for _ in range(LOCK_ATTEMPTS):
        if coordination.locks.hold_broker(node_id):
            return
        await asyncio.sleep(LOCK_PAUSE_S)
    raise ServerError(f"a broker with node.id={node_id} runs in the cluster of {directory}: give each its own")


async def _cluster_id(host: Host, directory: str, wanted: str) -> str:
    storage = host.storage
    path = f"{directory}/{CLUSTER_FILE}"
    for _ in range(LOCK_ATTEMPTS):
        try:
            return storage.read(path).decode().strip()
        except FileNotFoundError:
            pass
        try:
            lock = storage.lock(f"{path}.lock")
        except BlockingIOError:
            await asyncio.sleep(LOCK_PAUSE_S)
            continue
        try:
            cluster_id = wanted or checkpoints.encode_uuid(host.new_uuid())
            if CLUSTER_FILE not in storage.list_directory(directory):
                storage.write(path, f"{cluster_id}\n".encode(), durable=True)
        finally:
            lock.release()
    raise OSError(f"{path} is not written by whoever holds its lock")


class ClusterShell:
    """One broker's membership, from its start to its stop."""

    def __init__(
        self,
        broker: Broker,
        host: Host,
        coordination: Coordination,
        listeners: list[Listener],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Make what a member needs; nothing happens before `join`.

        Raises:
            ServerError: if there is no listener for other brokers.
        """
        config = broker.config
        between = _between_brokers(config, listeners)
        storage = host.storage
        self._broker = broker
        self._host = host
        self._alive = asyncio.Event()
        self._network = PeerNetwork(loop, broker, between.endpoint)
        self._coordination = coordination
        clock = broker.clock
        self.member = member = broker.member
        member.connect(self._network)
        assert isinstance(broker.shared_files, AnnouncedFiles)
        SharedFiles(broker, member, broker.shared_files)
        self._fetchers = ReplicaFetchers(broker, member, self._network.connection)
        controller = ControllerService(
            config.node_id,
            coordination,
            _controller(config),
            clock.now_ms,
            clock.monotonic_ms,
        )
        ordered = [between, *(each for each in listeners if each is not between)]
        identity = Identity(
            config.node_id,
            broker.cluster_id,
            broker.new_uuid(),
            tuple((each.config.name, each.endpoint.host, each.endpoint.port) for each in ordered),
        )
        self._lifecycle = Lifecycle(
            identity,
            storage,
            broker.logs.log_dir,
            broker.logs.clean,
            config.broker_heartbeat_interval_ms,
            loop,
            member.send_to_controller,
            lambda: member.image,
            broker.logs.failure,
            lambda: coordination.in_session,
        )
        self._lifecycle.on_alive = self._alive.set
        self._membership = Membership(coordination, controller, self._lifecycle)
        coordination.on_change.append(member.poll_soon)
        lock_id = host.lock_id(f"{broker.logs.log_dir}/{LOCK_FILE}")
        coordination.announce(identity.incarnation, identity.listeners, lock_id)
        self._pulse: Heart | None = None

    def join(self) -> None:
        """Read the controller's log, and follow it from now on."""
        self.member.join(self._membership)
        config, clock = self._broker.config, self._broker.clock
        interval_ms = config.controller_quorum_fetch_timeout_ms // BEATS_PER_TIMEOUT
        self._pulse = self._host.pulse(
            lambda: self._coordination.touch(clock.now_ms()), clock, interval_ms, config.broker_session_timeout_ms
        )
        self.member.on_look = self._show_loop
        self._coordination.on_lead = self._begin_pulse
        self._show_loop()

    def _show_loop(self) -> None:
        """Show the pulse that the loop is running."""
        if self._pulse is not None:
            self._pulse.loop_is_seen(needed=self._membership.controller.active)

    def _begin_pulse(self) -> None:
        """Have the pulse beat during the look in which this broker becomes the controller: it may be a long one."""
        if self._pulse is not None:
            self._pulse.loop_is_seen(needed=True)

    async def register(self) -> None:
        """Register this broker with the cluster, and wait until it is accepted.

        Raises:
            ServerError: if that takes too long, or the cluster is not what it was.
        """
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
        if controller_id == NO_LEADER or not self._coordination.in_session:
            return self._coordination.advice
        return f"look at the log of broker {controller_id}, the controller, and at this broker's own"

    def _warn_of_other_settings(self) -> None:
        """Log which of this broker's settings are ignored, as the cluster has decided otherwise."""
        given, known = self._broker.dynamic.static, broker_settings()
        for name, decided in sorted(self.member.image.default_settings.items()):
            if name in given and (ours := known[name].text(known[name].read(given[name]))) != decided:
                logger.warning(
                    "%s=%s of this broker does not count: the cluster goes by %s=%s, which the controller keeps; to "
                    "change that, alter it for all brokers (kafka-configs --entity-type brokers --entity-default)",
                    *(name, ours, name, decided),
                )

    async def hand_over(self) -> None:
        """Let other brokers take over leadership, as far as they can, before this one stops."""
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
        self._coordination.close()
        self._network.close()


def _between_brokers(config: BrokerConfig, listeners: list[Listener]) -> Listener:
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
