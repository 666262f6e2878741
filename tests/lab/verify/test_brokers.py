"""A broker of a cell's own: it fails at its points, and nobody else's does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.crash_plans import arm, fired, release
from lab.verify.brokers import CrashableBroker, open_kafka
from lab.verify.records import Sending, create_topic, make, read_topic
from sparkonce.crash_points import FOLDER_VARIABLE


def produced(broker: CrashableBroker, folder: Path, plan: str) -> list[tuple[bytes, bytes]]:
    """Produce while a plan is armed; where it holds, the broker is killed and started again."""
    create_topic(broker.bootstrap_servers, "topic")
    armed = arm(folder, "plan", plan)
    sending = Sending.begin(broker.bootstrap_servers, "topic", make(range(10)))
    restarted = False

    def watch() -> None:
        nonlocal restarted
        if plan.endswith("hold") and not restarted and fired(armed) is not None:
            broker.kill()
            broker.restart()
            release(armed)
            restarted = True

    acknowledged = sending.finish(watch)
    assert fired(armed) is not None
    return acknowledged


@pytest.mark.parametrize("plan", ["broker.appended=raise", "broker.appending=disk-full", "broker.appended=hold"])
def test_records_are_acknowledged_and_there_once(plan: str, tmp_path: Path) -> None:
    with CrashableBroker(tmp_path) as broker:
        acknowledged = produced(broker, tmp_path, plan)
        found = [(record.key, record.value) for record in read_topic(broker.bootstrap_servers, "topic")]
    assert sorted(acknowledged) == sorted(found) == sorted((key, value) for _, key, value in make(range(10)))
    assert FOLDER_VARIABLE not in os.environ


def test_an_address_is_taken_as_it_is_and_other_words_are_not() -> None:
    with open_kafka("127.0.0.1:1") as kafka:
        assert kafka.broker.bootstrap_servers == "127.0.0.1:1"
        assert not kafka.may_be_killed
    with pytest.raises(ValueError, match="expected embedded, real or host:port"), open_kafka("elsewhere"):
        pass
