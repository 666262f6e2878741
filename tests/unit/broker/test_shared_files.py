"""Files that all brokers of a cluster have alike: which of them are written, and when."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from sparkonce.broker_lite.cluster.controller_service import Decision, Result
from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.node.shared_files import SharedFiles
from sparkonce.broker_lite.sim.disk import SimulatedDisk
from tests.unit.broker.coordinator_cluster import Cluster, Told
from tests.unit.broker.test_transaction_coordinator import World


def test_no_other_file_is_written_than_those_that_brokers_share(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(World())
    broker = cluster.brokers[1]
    assert isinstance(broker.shared_files, AnnouncedFiles)
    storage = broker.shared_files.storage
    assert isinstance(storage, SimulatedDisk)
    shared = SharedFiles(broker, broker.member, broker.shared_files)
    before = {path: bytes(file.data) for path, file in storage.files.items()}
    cluster.image.documents |= {"../elsewhere": "x", "topics.json": "{}", SETTINGS_FILE: "{}"}
    for _ in range(2):
        shared.take(cluster.image)
    after = {path: bytes(file.data) for path, file in storage.files.items()}
    assert after == before | {f"/data/{SETTINGS_FILE}": b"{}"}
    assert caplog.text.count("is ignored") == 2


class Slow(Told):
    """A controller whose decisions are durable when the test says so, as ZooKeeper's answers come later."""

    active = True
    is_written = False

    def __init__(self, cluster: Cluster) -> None:
        self.controller = Controller(cluster.image.copy(), ControllerSettings(), 0)
        self.waiting: list[Callable[[bool], None]] = []

    def decide(self, decision: Decision[Result]) -> Result:
        return decision(self.controller)[1]

    def when_written(self, then: Callable[[bool], None]) -> None:
        self.waiting.append(then)


class Deciding:
    """A broker that is the controller, with the files of a cluster."""

    def __init__(self) -> None:
        self.cluster = Cluster(World())
        self.broker: Broker = self.cluster.brokers[1]
        files = self.broker.shared_files
        assert isinstance(files, AnnouncedFiles)
        assert isinstance(files.storage, SimulatedDisk)
        self.storage = files.storage
        self.files = SharedFiles(self.broker, self.broker.member, files)
        self.slow: Any = Slow(self.cluster)
        self.broker.member._membership = Membership(self.slow, self.slow, self.slow)

    def change(self, **values: str) -> None:
        self.broker.change_settings("", {name.replace("_", "."): value for name, value in values.items()})

    @property
    def on_disk(self) -> str:
        file = self.storage.files.get(f"/data/{SETTINGS_FILE}")
        return "" if file is None else bytes(file.data).decode()

    def apply(self) -> None:
        """Let the broker read what its controller has decided."""
        self.cluster.image.documents = dict(self.slow.controller.image.documents)
        self.cluster.image.next_offset = self.slow.controller.image.next_offset
        self.files.take(self.cluster.image)


def test_the_controller_writes_a_file_when_it_is_decided_for_good() -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    assert deciding.on_disk == ""
    deciding.broker.reload_settings()  # as for other news; the next change builds on this one
    assert deciding.broker.config.log.max_message_bytes == 5_000
    deciding.change(message_max_bytes="5000", log_retention_ms="70000")
    deciding.files.take(deciding.cluster.image)  # which is behind
    assert deciding.broker.config.log.retention_ms == 70_000
    first, second = deciding.slow.waiting
    first(True)
    assert "5000" in deciding.on_disk
    assert "70000" not in deciding.on_disk
    second(True)
    assert "70000" in deciding.on_disk
    deciding.apply()
    assert deciding.broker.config.log.retention_ms == 70_000


@pytest.mark.parametrize("holds", [False, True])
def test_a_controller_that_is_replaced_goes_back_to_what_is_decided_for_good(holds: bool) -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.slow.waiting.pop()(True)
    deciding.apply()
    deciding.change(message_max_bytes="6000")
    deciding.change(message_max_bytes="7000")
    for then in deciding.slow.waiting:
        then(False)
    assert deciding.broker.config.log.max_message_bytes == 5_000
    assert "5000" in deciding.on_disk
    if holds:  # after all: it is not known what becomes of a request without an answer
        deciding.apply()
        assert deciding.broker.config.log.max_message_bytes == 7_000
        assert "7000" in deciding.on_disk


def test_a_first_change_that_does_not_hold_leaves_no_file() -> None:
    deciding = Deciding()
    before = deciding.broker.config.log.max_message_bytes
    deciding.change(message_max_bytes="5000")
    deciding.slow.waiting.pop()(False)
    assert deciding.broker.config.log.max_message_bytes == before
    assert deciding.on_disk == ""


def test_a_file_that_cannot_be_written_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.storage.write_error = OSError(errno.ENOSPC, "no space left on device")
    deciding.slow.waiting.pop()(True)
    assert "no space left" in caplog.text
    deciding.storage.write_error = None
    deciding.broker.reload_settings()
    assert deciding.broker.config.log.max_message_bytes == 5_000
    deciding.apply()
    assert "5000" in deciding.on_disk
    assert deciding.broker.config.log.max_message_bytes == 5_000
