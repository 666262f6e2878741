"""Files that all brokers of a cluster have alike: which of them are written."""

from __future__ import annotations

import pytest

from sparkonce.broker_lite.node.dynamic_settings import FILE as SETTINGS_FILE
from sparkonce.broker_lite.node.shared_files import AnnouncedFiles, SharedFiles
from sparkonce.broker_lite.sim.disk import SimulatedDisk
from tests.unit.broker.coordinator_cluster import Cluster
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
