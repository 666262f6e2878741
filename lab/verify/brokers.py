"""The brokers of cells: ours, a real Apache Kafka, or a running one.

Cells with a fault in the broker get their own broker, with its own crash plans: a broker that waits
at a point stops all its clients. That needs our broker, the only one with crash points.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

from lab.peers import QUICK_JVM, RealKafka
from lab.verify.cells import Cell, Kind
from lab.verify.matrix import BROKER_POINTS
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.crash_points import FOLDER_VARIABLE

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
"""Settings that differ from the defaults: some cells wait until the broker times a transaction out."""


class Broker(Protocol):
    """The engine's interface of a broker; only cells that kill it use `kill` and `restart`."""

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` of clients."""

    def kill(self) -> None:
        """SIGKILL."""

    def restart(self) -> None:
        """Start it again on the same port and data; returns when it serves."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The broker of most cells, and the faults that it allows."""

    name: str
    broker: Broker
    may_be_killed: bool
    own_broker: Callable[[Path], CrashableBroker] | None = None
    """Starts a broker for one cell, with crash plans in the given folder."""

    def cannot_run(self, cell: Cell) -> str | None:
        """Return why a cell cannot run here, or None if it can."""
        if cell.point in BROKER_POINTS and self.own_broker is None:
            return f"{self.name} has no crash points inside"
        if cell.kind is Kind.BROKER_KILLED and not self.may_be_killed:
            return f"{self.name} is not ours to kill"
        return None


class CrashableBroker(EmbeddedBroker):
    """Our broker in a separate process with crash plans from a folder."""

    def __init__(self, crash_folder: Path) -> None:
        self._crash_folder = crash_folder
        super().__init__(process=True, config=SETTINGS)

    def _start(self) -> None:
        # The child inherits this process's environment; nothing else is started meanwhile.
        before = os.environ.get(FOLDER_VARIABLE)
        os.environ[FOLDER_VARIABLE] = str(self._crash_folder)
        try:
            super()._start()
        finally:
            if before is None:
                del os.environ[FOLDER_VARIABLE]
            else:
                os.environ[FOLDER_VARIABLE] = before


@contextmanager
def open_kafka(where: str) -> Iterator[Kafka]:
    """Start or connect to the broker ``where``: embedded, real (Maven's Apache Kafka), or the address of a running one.

    Raises:
        ValueError: for another name.
        PeerMissingError: if Apache Kafka is not available.
    """
    if where == "embedded":
        with EmbeddedBroker(process=True, config=SETTINGS) as broker:
            yield Kafka("the embedded broker", broker, may_be_killed=True, own_broker=CrashableBroker)
    elif where == "real":
        with RealKafka(config=SETTINGS, java_options=QUICK_JVM) as kafka:
            yield Kafka("Apache Kafka", kafka, may_be_killed=True)
    elif ":" in where:
        yield Kafka(f"the broker at {where}", SimpleNamespace(bootstrap_servers=where), may_be_killed=False)
    else:
        raise ValueError(f"--kafka {where}: expected embedded, real or host:port")
