"""Brokers whose data can be put back to what it was: ours, and Apache Kafka as a plain process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from lab.peers import QUICK_JVM, RealKafka
from sparkonce import EmbeddedBroker
from sparkonce.kafka.client import client as client_module


class Restorable(Protocol):
    """A broker, and a copy of its data."""

    bootstrap_servers: str

    def copy(self) -> None:
        """Copy the data as it is, while the broker runs: as a snapshot of the disk would."""

    def put_back(self) -> None:
        """Stop, put the copy in the place of the data, and start again."""

    def restart(self) -> None:
        """Stop and start again, with the data as it is."""


class Ours:
    """`EmbeddedBroker` on a folder of its own."""

    def __init__(self, root: Path, *, process: bool = False) -> None:
        self._data, self._copy = root / "data", root / "copy"
        self.broker = EmbeddedBroker(data_dir=self._data, process=process)
        self.bootstrap_servers = self.broker.bootstrap_servers

    def copy(self) -> None:
        shutil.copytree(self._data, self._copy)

    def put_back(self) -> None:
        self.broker.stop()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self.broker.restart()

    def restart(self) -> None:
        self.broker.restart()

    def close(self) -> None:
        self.broker.close()


class Kafka:
    """Apache Kafka in KRaft mode, broker and controller in one: the copy holds the controller's log too."""

    def __init__(self, root: Path) -> None:
        self._data, self._copy = root / "data", root / "copy"
        self.broker = RealKafka(data_dir=root, java_options=QUICK_JVM)
        self.bootstrap_servers = self.broker.bootstrap_servers

    def copy(self) -> None:
        shutil.copytree(self._data, self._copy)

    def put_back(self) -> None:
        self.broker.kill()
        shutil.rmtree(self._data)
        shutil.copytree(self._copy, self._data)
        self.broker.restart()

    def restart(self) -> None:
        self.broker.kill()
        self.broker.restart()

    def close(self) -> None:
        self.broker.close()


@contextmanager
def restorable(kind: str, root: Path) -> Iterator[Restorable]:
    """Yield a broker of a kind: ``ours``, ``process`` for ours in a process of its own, or ``kafka``."""
    found = Kafka(root) if kind == "kafka" else Ours(root, process=kind == "process")
    try:
        yield found
    finally:
        found.close()
        for kept in client_module._shared.values():
            kept.close()
