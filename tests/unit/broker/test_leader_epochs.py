"""The leader epochs of a broker by itself: higher after each start, so that readers see a log that was replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import leader_of
from sparkonce.kafka.client.settings import read_settings
from tests.parity.support import Cluster


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(data_dir=tmp_path / "data") as found:
        yield found


def epoch(broker: EmbeddedBroker, topic: str) -> int:
    client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    try:
        return leader_of(client.topics([topic]), topic, 0).epoch
    finally:
        client.close()


def test_each_start_leads_in_a_higher_epoch(broker: EmbeddedBroker) -> None:
    topic = Cluster(broker.bootstrap_servers).create()
    assert epoch(broker, topic) == 0
    seen = [0]
    for number in range(3):
        if number:  # one start without a record in its epoch is a start nevertheless
            Cluster(broker.bootstrap_servers).send(topic, [number], 0)
        broker.restart()
        seen.append(epoch(broker, topic))
    assert seen == sorted(set(seen))


def test_two_copies_of_one_directory_lead_in_different_epochs(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Both are started as often: by numbers alone they would be alike."""
    topic = Cluster(broker.bootstrap_servers).create()
    broker.stop()
    for number in range(3):
        shutil.copytree(tmp_path / "data", tmp_path / str(number))
    found = []
    for number in range(3):
        with EmbeddedBroker(data_dir=tmp_path / str(number)) as copy:
            found.append(epoch(copy, topic))
    broker.restart()
    assert len(set(found)) > 1  # of a thousand each: three alike are one in a million


def test_a_directory_whose_logs_know_higher_epochs(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As one that Apache Kafka wrote may."""
    topic = Cluster(broker.bootstrap_servers).create()
    Cluster(broker.bootstrap_servers).send(topic, [1], 0)
    broker.stop()
    (tmp_path / "data" / f"{topic}-0" / "leader-epoch-checkpoint").write_text("0\n1\n70000 0\n")
    broker.restart()
    assert epoch(broker, topic) > 70000


def test_the_epoch_of_a_start_begins_at_the_end_before_anything_is_written_in_it(broker: EmbeddedBroker) -> None:
    """As in Kafka, whose leaders note where their epoch begins (`UnifiedLog.assignEpochStartOffset`)."""
    topic = Cluster(broker.bootstrap_servers).create()
    Cluster(broker.bootstrap_servers).send(topic, range(3), 0)
    broker.restart()
    now = epoch(broker, topic)
    client = Client(read_settings({"kafka.bootstrap.servers": broker.bootstrap_servers}))
    try:
        known = client.topics([topic])
        asked = {0: (0, 3), max(now - 1, 0): (0, 3), now: (now, 3), now + 1: (-1, -1)}
        for wanted, answer in asked.items():
            assert client.epoch_ends({(topic, 0): wanted}, known) == {(topic, 0): answer}
        Cluster(broker.bootstrap_servers).send(topic, range(2), 0)
        for wanted, answer in {**asked, now: (now, 5)}.items():
            assert client.epoch_ends({(topic, 0): wanted}, known) == {(topic, 0): answer}
    finally:
        client.close()
