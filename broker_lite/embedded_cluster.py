"""Several brokers that are one cluster, inside a test suite or a script: in threads, or in processes to be killed.

    with EmbeddedCluster(brokers=3, process=True) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.kill(cluster.leader("orders", 0))

Theory of operation: each broker is an `EmbeddedBroker` with a folder of its own; they share the folder of the
controller's log, which is also where what the cluster thinks is read from here, without a client.
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
from typing import Final

from broker_lite.cluster.coordination import LockCoordination
from broker_lite.cluster.metadata_log import MetadataLog, MetadataReader, taken
from broker_lite.controller.image import ClusterImage
from broker_lite.controller.records import NO_LEADER, PartitionState
from broker_lite.embedded import EmbeddedBroker
from broker_lite.log.storage import DiskStorage

MAX_FACTOR: Final = 3
LOOK_INTERVAL_S: Final = 0.01
NOBODY: Final = -1


class EmbeddedCluster:
    """A cluster that runs from construction to `close`; its brokers' ids are 1, 2, and so on.

    Args:
        brokers: how many.
        data_dir: where the data lives; by default a temporary folder that is removed at the end.
        process: whether each broker has a process of its own, which can be killed and paused, instead of a thread.
        config: settings of all brokers by Kafka's names. Factors of replication that are not given are 3, or as many as
            there are brokers: those of internal topics, and `default.replication.factor` too.
        of_broker: settings of single brokers by their ids, on top of these.

    Raises:
        ValueError: for no broker at all.
        ConfigError: for a setting that does not exist or cannot have that value.
        BrokerStartError: if a broker does not start.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        process: bool = False,
        config: Mapping[str, object] | None = None,
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has one at least")
        self._temporary = data_dir is None
        self.data_dir = Path(tempfile.mkdtemp(prefix="broker_lite-") if data_dir is None else data_dir).absolute()
        self._process = process
        self._of_broker = of_broker or {}
        self._paused: set[int] = set()
        self._settings = {**_factors(brokers), **(config or {}), "metadata.log.dir": str(self.data_dir / "metadata")}
        self._view = _View(self._settings["metadata.log.dir"])
        self._brokers: dict[int, EmbeddedBroker] = {}
        self.brokers: Mapping[int, EmbeddedBroker] = MappingProxyType(self._brokers)
        """Each broker by its id."""
        try:
            self._start(range(1, brokers + 1))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> EmbeddedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """What clients call `bootstrap.servers`: all brokers, those too that are down."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def controller_id(self) -> int:
        """Who the controller is, as the latest epoch says; it may have died since."""
        return self._view.image().controller_id

    def image(self) -> ClusterImage:
        """Give the cluster as the controller has it; it changes with the next call, so keep none of it."""
        return self._view.image()

    @property
    def alive(self) -> set[int]:
        """Who is alive, as the controller has it."""
        return {each.broker_id for each in self._view.image().brokers.values() if not each.fenced}

    def leader(self, topic: str, partition: int) -> int:
        """Give who leads a partition; -1 if nobody does.

        Raises:
            KeyError: if there is no such partition.
        """
        return self.state(topic, partition).leader

    def in_sync_replicas(self, topic: str, partition: int) -> tuple[int, ...]:
        """Give who is in sync; as `leader`."""
        return self.state(topic, partition).in_sync_replicas

    def state(self, topic: str, partition: int) -> PartitionState:
        """Give all that the cluster knows of a partition; as `leader`."""
        found = self._view.image().topic(topic)
        if found is None or partition not in found.partitions:
            raise KeyError(f"the cluster has no partition {topic}-{partition}")
        return found.partitions[partition]

    def kill(self, broker_id: int) -> None:
        """End a broker's process by SIGKILL; `restart` brings it back.

        Raises:
            RuntimeError: for a broker in a thread, or one that is down.
        """
        self._brokers[broker_id].kill()
        self._paused.discard(broker_id)

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly, so that others lead before it goes; `restart` brings it back."""
        self.resume(broker_id)
        self._brokers[broker_id].stop()

    def restart(self, broker_id: int) -> None:
        """Start a broker again, on the same port and data; one that is up is stopped cleanly first."""
        self.resume(broker_id)
        self._brokers[broker_id].restart()

    def pause(self, broker_id: int) -> None:
        """Let a broker hang, by SIGSTOP, until `resume`.

        Raises:
            RuntimeError: for a broker in a thread, or one that is down.
        """
        self._signal(broker_id, signal.SIGSTOP)
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        """Let a broker go on that hangs; for any other one nothing happens."""
        if broker_id in self._paused:
            self._signal(broker_id, signal.SIGCONT)
            self._paused.discard(broker_id)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = 30.0) -> None:
        """Wait until `condition` holds; `what` says in words what is waited for.

        Raises:
            TimeoutError: if that takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {timeout_s} s: {what}: {self._view.description()}")
            time.sleep(LOOK_INTERVAL_S)

    def wait_in_sync(self, timeout_s: float = 30.0) -> None:
        """Wait until every replica of every partition is in sync, and every partition is led.

        Raises:
            TimeoutError: if that takes longer than `timeout_s`.
        """

        def all_in_sync() -> bool:
            states = [state for _, state in self._view.image().partitions()]
            return all(
                set(state.in_sync_replicas) == set(state.replicas) and state.leader != NO_LEADER for state in states
            )

        self.wait_until(all_in_sync, "not all replicas are in sync", timeout_s)

    def close(self) -> None:
        """Stop all brokers cleanly and remove a temporary folder; a second call does nothing."""
        for broker_id in list(self._paused):
            self.resume(broker_id)
        try:
            if self._brokers:
                with ThreadPoolExecutor(len(self._brokers)) as pool:
                    list(pool.map(EmbeddedBroker.close, self._brokers.values()))
        finally:
            self._view.close()
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
            config={**self._settings, **self._of_broker.get(broker_id, {}), "node.id": broker_id},
        )

    def _signal(self, broker_id: int, number: signal.Signals) -> None:
        pid = self._brokers[broker_id].pid
        if pid is None:
            raise RuntimeError(f"broker {broker_id} has no running process: only EmbeddedCluster(process=True) can")
        os.kill(pid, number)


class _View:
    """What the cluster thinks, read from the controller's log."""

    def __init__(self, directory: object) -> None:
        storage = DiskStorage()
        coordination = LockCoordination(storage, str(directory), NOBODY, 0)
        self._reader = MetadataReader(storage, MetadataLog(storage, str(directory)), coordination.latest_epoch)
        self._image = ClusterImage()

    def image(self) -> ClusterImage:
        """Give the cluster as it is now."""
        for step in self._reader.poll():
            self._image = taken(self._image, step)
        return self._image

    def description(self) -> str:
        """Say which partitions are led by whom, and which brokers are there."""
        image = self.image()
        brokers = " ".join(f"{each.broker_id}{'(fenced)' if each.fenced else ''}" for each in image.brokers.values())
        return f"controller {image.controller_id}, brokers {brokers}; {'; '.join(self._partitions(image))}"

    def close(self) -> None:
        """Let go of the log."""
        self._reader.close()

    @staticmethod
    def _partitions(image: ClusterImage) -> Iterator[str]:
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                in_sync = ",".join(map(str, state.in_sync_replicas))
                yield f"{topic.name}-{index} leader {state.leader} in sync {in_sync}"


def _factors(brokers: int) -> dict[str, object]:
    factor = min(brokers, MAX_FACTOR)
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": min(brokers, 2),
    }
