"""Injects the faults of a cluster, and checks that they took effect.

Each fault is a generator that is entered while the pipeline waits at its point. It injects the fault, and waits for
the proof: the Master's report, or that a process is gone. It yields until the run has ended, and may then clean up.
It raises `FaultError` if the fault did not take effect, which makes the cell wrong.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from lab.network import Proxy
from lab.spark_process import Login, SparkProcess
from lab.standalone import Daemon, StandaloneCluster, StandaloneError, wait_for
from lab.verify.cluster.cells import ClusterCell, Fault

LIMIT_S = 60.0
"""The time limit for a fault to take effect."""
_NAMES_OF_JVMS = ("java",)


class FaultError(RuntimeError):
    """The fault did not take effect; the message says what was waited for."""


@dataclass(slots=True)
class Scene:
    """The target of a fault."""

    cell: ClusterCell
    cluster: StandaloneCluster | None
    """None if another process has started it: then faults of its processes are not injected."""
    session: SparkProcess
    links: tuple[Proxy, ...]
    """The proxies for the connections from executors to the driver's RPC and block manager ports."""
    at_point: int
    """The id of the process that waits at the point."""
    release: Callable[[], None]
    """Releases it."""
    note: Callable[[str, str], None]
    """Adds an event to the timeline: its lane, and a text."""

    @property
    def ours(self) -> StandaloneCluster:
        """The cluster, for faults that need one of ours."""
        assert self.cluster is not None, "cells that cannot run here were left out"
        return self.cluster

    def executor(self) -> psutil.Process:
        """Return the executor whose task waits at the point: the JVM above the Python worker."""
        return _jvms_above(self.at_point)[0]

    def worker(self) -> Daemon:
        """Return that executor's Worker."""
        above = {each.pid for each in _jvms_above(self.at_point)}
        return next(worker for worker in self.ours.workers if worker.pid in above)

    def stands(self) -> psutil.Process | None:
        """Return the process at the point; None if it is gone."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.at_point)
        return None

    def wait(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for a condition.

        Raises:
            FaultError: if it does not.
        """
        try:
            wait_for(lambda: happened() or None, lambda: f"not within {LIMIT_S:g} s: {what}", LIMIT_S)
        except StandaloneError as error:
            raise FaultError(str(error)) from None

    def wait_for_end(self, process: psutil.Process | None, what: str) -> None:
        """Wait until a process is gone; note it."""
        self.wait(lambda: process is None or not _runs(process), f"{what} ends")
        self.note("fault", f"{what} has ended")


Steps = Iterator[None]


def _jvms_above(pid: int) -> list[psutil.Process]:
    """Return the JVMs among the ancestors of a process, the nearest first."""
    return [each for each in psutil.Process(pid).parents() if each.name() in _NAMES_OF_JVMS]


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def executor_killed(scene: Scene) -> Steps:
    """Kill the executor's JVM; its Python workers end when its daemon finds that it is gone."""
    stands = scene.stands()
    scene.executor().kill()
    scene.note("fault", "the executor is killed")
    scene.wait_for_end(stands, "its Python worker")
    yield


def worker_killed(scene: Scene) -> Steps:
    """Kill only the Worker; its executors end when they lose their connection to it."""
    stands, executor, worker = scene.stands(), scene.executor(), scene.worker()
    worker.kill()
    scene.note("fault", f"{worker.name} is killed")
    scene.wait_for_end(executor, "its executor")
    scene.wait_for_end(stands, "the Python worker")
    yield


def machine_killed(scene: Scene) -> Steps:
    """Kill the Worker, its executors and their Python workers."""
    worker = scene.worker()
    worker.kill_all()
    scene.note("fault", f"{worker.name} is killed with all that runs there")
    yield


def worker_stopped(scene: Scene) -> Steps:
    """Stop the machine until it is given up, and continue it when others have done its work."""
    stands, worker = scene.stands(), scene.worker()
    worker.pause()
    scene.note("fault", f"{worker.name} stands still with all that runs there")
    scene.wait(lambda: len(scene.ours.live_workers()) == 1, "the Master gives up the Worker that stands still")
    scene.note("fault", "the Master has given it up")
    yield
    scene.release()
    worker.resume()
    scene.note("fault", f"{worker.name} goes on")
    scene.wait(lambda: len(scene.ours.live_workers()) == len(scene.ours.workers), "the Worker is known again")
    scene.wait_for_end(stands, "the Python worker of the attempt that was given up")


def master_restarted(scene: Scene) -> Steps:
    """Kill the Master and restart it: Workers and application reconnect."""
    before = scene.ours.applications()
    if not before:
        raise FaultError("the Master names no application, so there is none that it could recover")
    scene.ours.master.kill()
    scene.note("fault", "the Master is killed")
    scene.ours.restart_master()
    scene.wait(lambda: scene.ours.applications().keys() == before.keys(), f"the Master knows {', '.join(before)} again")
    scene.wait(lambda: len(scene.ours.live_workers()) == len(scene.ours.workers), "the Master knows its Workers again")
    scene.note("fault", f"the Master has recovered {', '.join(before)}")
    scene.release()
    yield


def driver_moved(scene: Scene) -> Steps:
    """Kill the driver, and let its executors notice; `elsewhere` says where it is restarted."""
    executors = list(scene.session.executor_processes())
    if not executors:
        raise FaultError("the driver has no executors")
    scene.session.kill_driver()
    scene.note("fault", "the driver is killed")
    for each in executors:
        scene.wait(lambda process=each: not _runs(process), "an executor without a driver ends")  # type: ignore[misc]
    scene.note("fault", f"its {len(executors)} executors and their Python workers have ended")
    yield


def speculation(scene: Scene) -> Steps:
    """Let the task wait until another attempt has ended the batch, and Spark has ended this one."""
    stands = scene.stands()
    yield
    scene.note("fault", "another attempt has ended the batch")
    with contextlib.suppress(FaultError):  # Spark may leave it running: then it finishes
        scene.wait_for_end(stands, "the attempt that stood still")
    scene.release()


def task_failed(scene: Scene) -> Steps:
    """Nothing to inject: the task has raised, and so will its other attempts."""
    del scene
    yield


def executors_given_back(scene: Scene) -> Steps:
    """Wait until dynamic allocation has released all executors: after the run, if a task waits at the point."""

    def none_left() -> bool:
        cores = scene.ours.applications()
        return bool(cores) and not any(cores.values())  # no application: the Master has not answered

    if scene.cell.in_a_task:
        scene.release()
    else:
        scene.wait(none_left, "all executors are given back while the driver stands still")
        scene.note("fault", "all executors are given back")
        scene.release()
    yield
    if scene.cell.in_a_task:
        scene.wait(none_left, "all executors are given back when the run is over")
        scene.note("fault", "all executors are given back")


def network_stalled(scene: Scene) -> Steps:
    """Stall all connections until the driver has given the executors up."""
    return _parted(scene, Proxy.stall, "the network stalls", "the driver gives up the executors it does not hear of")


def network_cut(scene: Scene) -> Steps:
    """Close all connections until the executors have ended."""
    return _parted(scene, Proxy.cut, "the network is cut", "executors without a driver end")


def _parted(scene: Scene, part: Callable[[Proxy], None], what: str, waits_for: str) -> Steps:
    """Separate executors and driver until the executors have ended; meanwhile the task may finish."""
    executors = _executors(scene)
    for link in scene.links:
        part(link)
    scene.note("fault", what)
    if scene.cell.in_a_task:
        scene.release()
    scene.wait(lambda: not any(map(_runs, executors)), waits_for)
    scene.note("fault", f"{len(executors)} executors have ended")
    _heal(scene)
    yield


def _executors(scene: Scene) -> list[psutil.Process]:
    found = [each for each in scene.session.executor_processes() if each.name() in _NAMES_OF_JVMS]
    if not found:
        raise FaultError("the session has no executors")
    return found


def _heal(scene: Scene) -> None:
    for link in scene.links:
        link.cut()
        link.heal()
    scene.note("fault", "the network is whole again")
    scene.release()


FAULTS: dict[Fault, Callable[[Scene], Steps]] = {
    Fault.EXECUTOR_KILLED: executor_killed,
    Fault.WORKER_KILLED: worker_killed,
    Fault.MACHINE_KILLED: machine_killed,
    Fault.WORKER_STOPPED: worker_stopped,
    Fault.MASTER_RESTARTED: master_restarted,
    Fault.DRIVER_MOVED: driver_moved,
    Fault.SPECULATION: speculation,
    Fault.TASK_FAILED: task_failed,
    Fault.EXECUTORS_GIVEN_BACK: executors_given_back,
    Fault.NETWORK_STALLED: network_stalled,
    Fault.NETWORK_CUT: network_cut,
}
OF_OUR_CLUSTER = frozenset(
    {
        Fault.WORKER_KILLED, Fault.MACHINE_KILLED, Fault.WORKER_STOPPED, Fault.MASTER_RESTARTED,
        Fault.EXECUTORS_GIVEN_BACK, Fault.NETWORK_STALLED, Fault.NETWORK_CUT,
    }
)  # fmt: skip
"""Faults of the cluster and its network, or that query its Master: these need a cluster started for them."""


def elsewhere(folder: Path) -> Login:
    """Return a directory, user, home and path of Python that differ from this process's."""
    folder.mkdir(parents=True, exist_ok=True)
    places = {name: folder / name for name in ("home", "tmp")}
    for path in places.values():
        path.mkdir(exist_ok=True)
    python = sys.executable
    if sys.prefix != sys.base_prefix and Path(python).is_relative_to(sys.prefix):  # the environment by another path
        link = folder / "environment"
        if not link.is_symlink():
            link.symlink_to(sys.prefix)
        python = str(link / Path(python).relative_to(sys.prefix))
    user = {"USER": "another", "LOGNAME": "another", "SPARK_USER": "another", "HADOOP_USER_NAME": "another"}
    return Login(folder, {**user, "HOME": str(places["home"]), "TMPDIR": str(places["tmp"])}, python)
