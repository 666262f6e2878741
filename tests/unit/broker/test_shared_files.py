"""Files that all brokers of a cluster have alike: which of them are written, and when.

Whose decisions become durable only later is one broker with a controller made for that: in a directory that brokers
share, as scripts have it, they are durable at once.
"""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from lab.sim.disk import SimulatedDisk
from lab.sim.machine.process import DATA
from sparkonce.broker_lite.cluster.controller_service import Decision, Result
from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.node import shared_files
from sparkonce.broker_lite.node.announced_files import AnnouncedFiles
from sparkonce.broker_lite.node.broker import Broker
from sparkonce.broker_lite.node.clock import Clock
from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.node.member_mode import MemberMode
from sparkonce.broker_lite.node.shared_files import SharedFiles
from sparkonce.broker_lite.security.credentials import CREDENTIALS_FILE
from sparkonce.broker_lite.security.scram import SCRAM_MECHANISMS, ScramCredential
from sparkonce.broker_lite.waiting import Promise
from tests.unit.broker.script import CONTROLLER, Script
from tests.unit.broker.test_transaction_coordinator import World as Scheduler

SHA_256 = "SCRAM-SHA-256"


def test_no_other_file_is_written_than_those_that_brokers_share(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_files.logger, "handlers", [caplog.handler])
    with Script() as script:
        script.create_topic("t", [1])
        disks = [each.disk for each in script.brokers.values()]
        before = [set(disk.files) for disk in disks]
        files = script.broker(CONTROLLER).shared_files
        assert isinstance(files, AnnouncedFiles)
        assert files.announce is not None
        for name, text in {"../elsewhere": "x", "topics.json": "{}", SETTINGS_FILE: "{}"}.items():
            files.announce(name, text)
        script.settle()
        assert [set(disk.files) - paths for disk, paths in zip(disks, before, strict=True)] == [
            {f"{DATA}/{SETTINGS_FILE}"}
        ] * len(disks)
        assert [disk.read(f"{DATA}/{SETTINGS_FILE}") for disk in disks] == [b"{}"] * len(disks)
    assert caplog.text.count("is ignored") == 2 * len(disks)


class Slow:
    """A controller whose decisions are durable when the test says so, as ZooKeeper's answers come later."""

    active = registered = True
    is_written = False

    def __init__(self) -> None:
        self.controller = Controller(ClusterImage(), ControllerSettings(), 0)
        self.waiting: list[Promise[bool]] = []

    def decide(self, decision: Decision[Result]) -> Result:
        return decision(self.controller)[1]

    def written(self) -> Promise[bool]:
        self.waiting.append(Promise())
        return self.waiting[-1]


class Deciding:
    """A broker that is the controller, with the files of a cluster."""

    def __init__(self) -> None:
        world, self.storage = Scheduler(), SimulatedDisk()
        clock = Clock(lambda: world.now_ms, lambda: world.now_ms)
        config = BrokerConfig(node_id=1, metadata_log_dir="/metadata")
        self.broker = Broker(config, self.storage, "/data", clock, world, MemberMode())
        assert isinstance(self.broker.shared_files, AnnouncedFiles)
        slow: Any = Slow()
        self.slow: Slow = slow
        self.image = ClusterImage()
        self.broker.member.be_standalone(Membership(slow, slow, slow), self.image)
        self.files = SharedFiles(self.broker, self.broker.member, self.broker.shared_files)

    def change(self, **values: str) -> None:
        self.broker.change_settings("", {name.replace("_", "."): value for name, value in values.items()})

    @property
    def on_disk(self) -> str:
        file = self.storage.files.get(f"/data/{SETTINGS_FILE}")
        return "" if file is None else bytes(file.data).decode()

    def apply(self) -> None:
        """Let the broker read what its controller has decided."""
        self.image.documents = dict(self.slow.controller.image.documents)
        self.image.next_offset = self.slow.controller.image.next_offset
        self.files.take(self.image)


def test_a_new_controller_builds_on_what_its_broker_has_not_applied_yet() -> None:
    deciding = Deciding()
    text = json.dumps({"version": 1, "brokers": {"": {"message.max.bytes": "5000"}}, "groups": {}})
    deciding.slow.controller.image.documents[SETTINGS_FILE] = text
    deciding.slow.controller.image.next_offset = 7
    deciding.files.lead(deciding.slow.controller.image)
    assert deciding.broker.config.log.max_message_bytes == 5_000
    deciding.files.take(deciding.image)  # which is behind
    assert deciding.broker.config.log.max_message_bytes == 5_000
    assert deciding.on_disk == ""
    deciding.apply()
    assert "5000" in deciding.on_disk


def test_the_controller_writes_a_file_when_it_is_decided_for_good() -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    assert deciding.on_disk == ""
    deciding.broker.reload_settings()  # as for other news; the next change builds on this one
    assert deciding.broker.config.log.max_message_bytes == 5_000
    deciding.change(message_max_bytes="5000", log_retention_ms="70000")
    deciding.files.take(deciding.image)  # which is behind
    assert deciding.broker.config.log.retention_ms == 70_000
    first, second = deciding.slow.waiting
    first.complete(True)
    assert "5000" in deciding.on_disk
    assert "70000" not in deciding.on_disk
    second.complete(True)
    assert "70000" in deciding.on_disk
    deciding.apply()
    assert deciding.broker.config.log.retention_ms == 70_000


@pytest.mark.parametrize("holds", [False, True])
def test_a_controller_that_is_replaced_goes_back_to_what_is_decided_for_good(holds: bool) -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.slow.waiting.pop().complete(True)
    deciding.apply()
    deciding.change(message_max_bytes="6000")
    deciding.change(message_max_bytes="7000")
    for then in deciding.slow.waiting:
        then.complete(False)
    assert deciding.broker.config.log.max_message_bytes == 5_000
    assert "5000" in deciding.on_disk
    if holds:  # after all: it is not known what becomes of a request without an answer
        deciding.apply()
        assert deciding.broker.config.log.max_message_bytes == 7_000
        assert "7000" in deciding.on_disk


def test_what_is_decided_for_good_stays_though_the_next_change_does_not_hold() -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.slow.waiting.pop().complete(True)
    deciding.apply()
    deciding.change(message_max_bytes="6000")
    deciding.change(message_max_bytes="7000")
    first, second = deciding.slow.waiting[-2:]
    first.complete(True)
    second.complete(False)  # before the broker has read the first one
    assert deciding.broker.config.log.max_message_bytes == 6_000
    assert "6000" in deciding.on_disk


def test_a_change_that_is_found_in_the_log_holds_though_its_controller_is_over() -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.apply()
    deciding.slow.waiting.pop().complete(False)
    assert deciding.broker.config.log.max_message_bytes == 5_000
    assert "5000" in deciding.on_disk


def test_a_first_change_that_does_not_hold_leaves_no_file() -> None:
    deciding = Deciding()
    before = deciding.broker.config.log.max_message_bytes
    deciding.change(message_max_bytes="5000")
    deciding.slow.waiting.pop().complete(False)
    assert deciding.broker.config.log.max_message_bytes == before
    assert deciding.on_disk == ""


def test_a_file_that_cannot_be_written_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    deciding = Deciding()
    deciding.change(message_max_bytes="5000")
    deciding.storage.write_error = OSError(errno.ENOSPC, "no space left on device")
    deciding.slow.waiting.pop().complete(True)
    assert "no space left" in caplog.text
    deciding.storage.write_error = None
    deciding.broker.reload_settings()
    assert deciding.broker.config.log.max_message_bytes == 5_000
    deciding.apply()
    assert "5000" in deciding.on_disk
    assert deciding.broker.config.log.max_message_bytes == 5_000


def test_a_change_counts_though_its_file_cannot_be_written() -> None:
    deciding = Deciding()
    broker, image = deciding.broker, deciding.image
    mechanism = SCRAM_MECHANISMS[SHA_256]
    broker.scram_credentials.change([], {(SHA_256, "eve"): ScramCredential.of_password(mechanism, b"salt", "x", 4096)})
    deciding.slow.waiting.pop().complete(True)
    deciding.apply()
    assert broker.scram_credentials.get(SHA_256, "eve") is not None
    before = set(deciding.storage.files)

    nobody = json.dumps({"version": 1, "credentials": []})  # as another controller has decided
    settings = json.dumps({"version": 1, "brokers": {"": {"message.max.bytes": "5000"}}, "groups": {}})
    image.documents = {CREDENTIALS_FILE: nobody, SETTINGS_FILE: settings}
    image.next_offset += 2
    deciding.storage.write_error = OSError(errno.ENOSPC, "no space left on device")
    with pytest.raises(OSError, match="no space left"):
        deciding.files.take(image)
    assert broker.scram_credentials.get(SHA_256, "eve") is None
    assert broker.config.log.max_message_bytes == 5_000
    assert set(deciding.storage.files) == before

    deciding.storage.write_error = None
    deciding.files.take(image)
    assert deciding.storage.read(f"/data/{CREDENTIALS_FILE}").decode() == nobody
    assert deciding.on_disk == settings
    assert broker.scram_credentials.get(SHA_256, "eve") is None
