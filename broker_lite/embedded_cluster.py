"""A cluster of several brokers inside a test suite or a script: in threads, or in processes that can be killed.

    with EmbeddedCluster(brokers=3, process=True) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(cluster.leader("orders", 0))

Theory of operation: each broker is an `EmbeddedBroker` with its own folder; they share the folder of the
controller's log, or a ZooKeeper, from which the state of the cluster is also read here, without a client.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Protocol

from sparkonce.broker_lite.cluster.coordination import Step
from sparkonce.broker_lite.cluster.file_coordination import FileCoordination
from sparkonce.broker_lite.cluster.watching import WatchedImage
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionState
from sparkonce.broker_lite.embedded import BrokerStartError, EmbeddedBroker, close_at_exit
from sparkonce.broker_lite.log.checkpoints import META_PROPERTIES
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.broker_lite.replication.invariants import ViolationError

MAX_FACTOR: Final = 3
LOOK_INTERVAL_S: Final = 0.01
NOBODY: Final = -1
ZOOKEEPER: Final = "zookeeper://"
_CONNECT: Final = "zookeeper.connect"
_GIVEN_HERE: Final = frozenset({"log.dirs", "metadata.log.dir", "node.id", _CONNECT})


class EmbeddedCluster:
    """A cluster that runs from construction to `close`; its brokers' ids are 1, 2, and so on.

    Args:
        brokers: the number of brokers.
        data_dir: the data directory: broker 1 uses `data_dir/1` and so on, the controller's log
            `data_dir/metadata`; by default a temporary folder, removed by `close` or at the interpreter's exit.
        process: whether each broker has a separate process, which can be killed and paused, instead of a thread.
        config: settings of all brokers by Kafka's names. Replication factors that are not set are 3, or the number of
            brokers if that is less: those of internal topics, and `default.replication.factor` too.
        of_broker: settings of single brokers by their ids, on top of these; also `zookeeper.connect`, if one reaches
            it at another address.
        coordination: where the controller is elected and its decisions are stored: `zookeeper://HOST:PORT/chroot`; by
            default in files that the brokers share.

    Raises:
        TypeError: for arguments of other types.
        ValueError: for no brokers, settings of an unknown broker, settings that are set here and differ for each broker
            (its id and directories), and for a port that two brokers would listen on.
        ConfigError: for an unknown setting or an invalid value.
        BrokerStartError: if a broker does not start, or `data_dir` is a broker's own.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        process: bool = False,
        config: Mapping[str, object] | None = None,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
        coordination: str | None = None,
    ) -> None:
        _check_arguments(brokers, config, of_broker or {}, coordination)
        self._temporary = data_dir is None
        self._data_dir = Path(tempfile.mkdtemp(prefix="broker_lite-") if data_dir is None else data_dir).absolute()
        self._process = process
        self._of_broker = of_broker or {}
        self._closed = False
        self._not_at_exit: Callable[[], None] = lambda: None
        self._paused: set[int] = set()
        place = _place(self.data_dir, coordination)
        self._settings = {**_factors(brokers), **(config or {}), **place}
        ids = range(1, brokers + 1)
        try:
            configs = {broker_id: BrokerConfig.of(self._settings_of(broker_id)) for broker_id in ids}
            _check_ports(configs)
            _check_not_broker_directory(self._data_dir)
            # With the cluster's settings: a broker's own may have another address of ZooKeeper.
            self._view = _View(_observer(BrokerConfig.of({**self._settings, "node.id": 1})))
        except BaseException:
            self._remove_temporary()
            raise
        self._brokers: dict[int, EmbeddedBroker] = {}
        try:
            self._start(ids)
        except BaseException:
            self.close()
            raise
        self._not_at_exit = close_at_exit(self._close_one_by_one)  # runs before those of its brokers

    def __enter__(self) -> EmbeddedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def data_dir(self) -> Path:
        """The data directory: each broker has a folder named after its id, the controller's log is in `metadata`."""
        return self._data_dir

    @property
    def brokers(self) -> Mapping[int, EmbeddedBroker]:
        """Each broker by its id."""
        return MappingProxyType(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The clients' `bootstrap.servers`: all brokers, also those that are down."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def controller_id(self) -> int:
        """The controller's id in the latest epoch; it may have died since. -1 if no broker runs."""
        image = self.image()
        return NO_LEADER if self._view.nobody_runs() else image.controller_id

    def image(self) -> ClusterImage:
        """Return the controller's image of the cluster; it changes with the next call, so do not keep it."""
        self._check_open()
        return self._view.image()

    @property
    def alive(self) -> set[int]:
        """The live brokers, as the controller sees them; empty if no possible controller runs."""
        image = self.image()
        if self._view.nobody_runs():
            return set()
        return {each.broker_id for each in image.brokers.values() if not each.fenced}

    def leader(self, topic: str, partition: int) -> int:
        """Return the leader of a partition, as the controller sees it; -1 if there is none, as when no broker runs.

        Raises:
            KeyError: if there is no such partition.
        """
        leader = self.state(topic, partition).leader
        return NO_LEADER if self._view.nobody_runs() else leader

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Return the in-sync replicas, or those when the last broker ended, which may lead; raises as `leader`."""
        return self.state(topic, partition).in_sync_replicas

    def state(self, topic: str, partition: int) -> PartitionState:
        """Return the cluster's state of a partition, or that when the last broker ended; raises as `leader`."""
        found = self.image().topic(topic)
        if found is None:
            raise KeyError(f"the cluster has no topic {topic!r}")
        if partition not in found.partitions:
            raise KeyError(f"topic {topic!r} has no partition {partition!r}: it has {len(found.partitions)}, from 0 on")
        return found.partitions[partition]

    def kill(self, broker_id: int) -> None:
        """End a broker's process by SIGKILL; `restart` starts it again.

        Raises:
            ValueError: if there is no such broker; so do the other methods with an id.
            RuntimeError: if the broker is in a thread, or down.
        """
        self._running_process(broker_id, "killed")
        self._brokers[broker_id].kill()
        self._paused.discard(broker_id)

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly, after others have taken over leadership; `restart` starts it again."""
        self.resume(broker_id)
        self._named(broker_id).stop()

    def restart(self, broker_id: int) -> None:
        """Start a broker again, on the same port and data; a running one is stopped cleanly first."""
        self.resume(broker_id)
        self._named(broker_id).restart()

    def pause(self, broker_id: int) -> None:
        """Pause a broker, by SIGSTOP, until `resume`.

        Raises:
            RuntimeError: if the broker is in a thread, or down.
        """
        os.kill(self._running_process(broker_id, "paused"), signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker; does nothing for others."""
        self._named(broker_id)
        if broker_id in self._paused:
            os.kill(self._running_process(broker_id, "resumed"), signal.SIGCONT)
            self._paused.discard(broker_id)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
        """Wait until `condition` holds; `what` describes it in errors.

        Raises:
            TimeoutError: if that takes longer than `timeout_s`.
            TypeError: if `condition` cannot be called.
        """
        if not callable(condition):
            text = f"condition={condition!r}: expected a function, as in wait_until(lambda: 2 not in cluster.alive, …)"
            raise TypeError(text)
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s} s: {what}: {self._view.description()}")
            time.sleep(LOOK_INTERVAL_S)

    def wait_in_sync(self, timeout_s: float = 30.0) -> None:
        """Wait until every partition has a leader and all its replicas are in sync.

        Raises:
            TimeoutError: if that takes longer than `timeout_s`.
        """

        def all_in_sync() -> bool:
            states = [state for _, state in self.image().partitions()]
            return not self._view.nobody_runs() and all(
                set(state.in_sync_replicas) == set(state.replicas) and state.leader != NO_LEADER for state in states
            )

        self.wait_until(all_in_sync, "not all replicas are in sync", timeout_s)

    def close(self) -> None:
        """Stop all brokers cleanly and remove a temporary folder; a second call does nothing."""
        if self._closed:
            return
        self._not_at_exit()
        for broker_id in list(self._paused):
            self.resume(broker_id)
        self._closed = True
        try:
            if self._brokers:
                with ThreadPoolExecutor(len(self._brokers)) as pool:
                    list(pool.map(EmbeddedBroker.close, self._brokers.values()))
        finally:
            self._view.close()
            self._remove_temporary()

    def _close_one_by_one(self) -> None:
        for broker_id, broker in self._brokers.items():  # at the interpreter's exit no thread can be started any more
            self.resume(broker_id)
            broker.close()
        self._brokers.clear()
        self.close()

    def _remove_temporary(self) -> None:
        if self._temporary:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def _start(self, broker_ids: range) -> None:
        with ThreadPoolExecutor(len(broker_ids)) as pool:
            started = {broker_id: pool.submit(self._broker, broker_id) for broker_id in broker_ids}
            errors = []
            for broker_id, future in started.items():
                error = future.exception()
                if error is None:
                    self._brokers[broker_id] = future.result()
                else:
                    errors.append(error)
        if errors:
            raise errors[0]

    def _broker(self, broker_id: int) -> EmbeddedBroker:
        return EmbeddedBroker(
            data_dir=self.data_dir / str(broker_id),
            process=self._process,
            config=self._settings_of(broker_id),
        )

    def _settings_of(self, broker_id: int) -> dict[str, object]:
        return {**self._settings, **self._of_broker.get(broker_id, {}), "node.id": broker_id}

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this cluster has been closed: make another EmbeddedCluster")

    def _named(self, broker_id: int) -> EmbeddedBroker:
        """Return a broker by its id.

        Raises:
            RuntimeError: if the cluster has been closed.
            ValueError: if there is no such broker.
        """
        self._check_open()
        found = self._brokers.get(broker_id)
        if found is None:
            raise ValueError(f"there is no broker {broker_id!r} in this cluster: it has {_ids(len(self._brokers))}")
        return found

    def _running_process(self, broker_id: int, wanted: str) -> int:
        """Return a broker's process id, to do what is `wanted`; raises as `kill`."""
        pid = self._named(broker_id).pid
        if pid is not None:
            return pid
        if self._process:
            raise RuntimeError(
                f"broker {broker_id} is down, and cannot be {wanted}: restart({broker_id}) brings it back"
            )
        text = f"broker {broker_id} runs in a thread, which cannot be {wanted}"
        raise RuntimeError(f"{text}: EmbeddedCluster(process=True) has processes")


class Observer(Protocol):
    """A read-only view of a cluster: a part of `Coordination`."""

    def poll(self) -> list[Step]:
        """Return the new part of the log."""

    def is_gone(self, broker_id: int) -> bool:
        """Whether a broker is known to be dead."""

    def close(self) -> None:
        """Close the view."""


def _place(data_dir: Path, coordination: str | None) -> dict[str, object]:
    """Return the setting that selects the cluster's coordination for brokers."""
    if coordination is not None:
        return {_CONNECT: coordination.removeprefix(ZOOKEEPER)}
    return {"metadata.log.dir": str(data_dir / "metadata")}


def _observer(config: BrokerConfig) -> Observer:
    """Return a view of the cluster of brokers with these settings.

    Raises:
        BrokerStartError: if that fails.
    """
    if config.zookeeper_connect is None:
        try:
            return FileCoordination(DiskStorage(), str(config.metadata_log_dir), NOBODY, 0, 0)
        except OSError as error:
            data_dir = Path(str(config.metadata_log_dir)).parent
            text = f"{data_dir} cannot be used ({error}): choose another data directory"
            raise BrokerStartError(text) from error
    try:
        from sparkonce.broker_lite.server.zookeeper_observer import ZooKeeperObserver  # needs a package of its own

        return ZooKeeperObserver(config.zookeeper_connect, create=True)
    except ModuleNotFoundError as error:
        raise BrokerStartError(f"ZooKeeper needs {error.name}: pip install 'sparkonce[zookeeper]'") from error
    except OSError as error:
        raise BrokerStartError(f"ZooKeeper at {config.zookeeper_connect} cannot be used: {error}") from error


class _View:
    """The cluster according to the controller's log."""

    def __init__(self, coordination: Observer) -> None:
        self._coordination = coordination
        self._is_gone = coordination.is_gone
        self._watched = WatchedImage()

    def image(self) -> ClusterImage:
        """Return the current state of the cluster.

        Raises:
            ViolationError: if the controller's decisions violate an invariant: then this is a bug of the cluster.
        """
        violation: ViolationError | None = None
        for step in self._coordination.poll():
            try:
                self._watched.take(step)
            except ViolationError as error:
                violation = violation or error
        if violation is not None:
            raise violation
        return self._watched.image

    def description(self) -> str:
        """Describe which broker leads which partition, and which brokers are live."""
        image = self.image()
        brokers = [
            f"{each.broker_id}{'(fenced)' if each.fenced else ''}{'(down)' if self._is_gone(each.broker_id) else ''}"
            for each in image.brokers.values()
        ]
        return f"controller {image.controller_id}, brokers {' '.join(brokers)}; {'; '.join(self._partitions(image))}"

    def nobody_runs(self) -> bool:
        """Whether every broker is down, so that the log may be outdated."""
        return all(map(self._is_gone, self._watched.image.brokers))

    def close(self) -> None:
        """Close the log."""
        self._coordination.close()

    @staticmethod
    def _partitions(image: ClusterImage) -> Iterator[str]:
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                in_sync = ",".join(map(str, state.in_sync_replicas))
                yield f"{topic.name}-{index} leader {state.leader} in sync {in_sync}"


def _check_arguments(brokers: object, config: object, of_broker: object, coordination: object) -> None:
    """Check arguments whose errors would show late, or never; raises as the constructor."""
    if not isinstance(brokers, int) or isinstance(brokers, bool):
        raise TypeError(f"brokers={brokers!r}: expected how many")
    if brokers < 1:
        raise ValueError(f"brokers={brokers}: a cluster has one at least")
    if coordination is not None and not (isinstance(coordination, str) and coordination.startswith(ZOOKEEPER)):
        raise ValueError(f"coordination={coordination!r}: expected {ZOOKEEPER}HOST:PORT/chroot, or none for files")
    if not isinstance(of_broker, Mapping):
        raise TypeError(f"of_broker={of_broker!r}: expected settings by ids, as in {{1: {{'num.partitions': 4}}}}")
    for broker_id in of_broker:
        if broker_id not in range(1, brokers + 1) or not isinstance(broker_id, int):
            text = (
                f"of_broker has settings of broker {broker_id!r}, which there is not: the cluster has {_ids(brokers)}"
            )
            raise ValueError(text)
    named = {"config": config or {}} | {f"of_broker[{broker_id}]": of_broker[broker_id] for broker_id in of_broker}
    for name, settings in named.items():
        if not isinstance(settings, Mapping):
            raise TypeError(f"{name}={settings!r}: expected settings by their names, as in {{'num.partitions': 4}}")
        may_be_given = {_CONNECT} if coordination is not None and name != "config" else set()
        for given in sorted(_GIVEN_HERE & set(settings) - may_be_given):
            raise ValueError(f"{name} has {given}, which each broker is given by EmbeddedCluster: leave it out")


def _check_ports(configs: Mapping[int, BrokerConfig]) -> None:
    """Raise ValueError if two brokers would listen on one port; which of them gets it is random."""
    taken: dict[tuple[str, int], int] = {}
    for broker_id, config in configs.items():
        places = {(each.host, each.port) for each in config.listener_configs} | {
            (config.host_name, config.metrics_port)
        }
        for host, port in places:
            if port > 0 and (other := taken.setdefault((host, port), broker_id)) != broker_id:
                text = f"brokers {other} and {broker_id} would both listen on {host}, port {port}"
                raise ValueError(f"{text}: give each its own in of_broker, or leave it out, or 0, for any free one")


def _check_not_broker_directory(data_dir: Path) -> None:
    """Raise BrokerStartError for a broker's own data directory, whose topics the cluster would not have."""
    if (data_dir / META_PROPERTIES).exists():
        raise BrokerStartError(f"{data_dir} is the data directory of a broker: give the cluster another one")


def _ids(brokers: int) -> str:
    return f"brokers 1 to {brokers}" if brokers > 1 else "broker 1 only"


def _factors(brokers: int) -> dict[str, object]:
    factor = min(brokers, MAX_FACTOR)
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min(brokers, 2),
    }
