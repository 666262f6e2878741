"""What the log directory holds that the broker did not make is never removed, whatever the broker is asked to do.

Here it may be Kafka's (the log of its controller, a topic that it was deleting) or anybody's (a backup beside the log).
"""

from __future__ import annotations

import fcntl
import os
import random
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.log import directories
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.log_manager import LogManager, WantedTopic
from sparkonce.broker_lite.log.member_logs import MemberLogs
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError
from sparkonce.kafka.protocol.records import Record
from tests.unit.log.managing import create_topic, delete_topic

NOW = 1_700_000_000_000
METADATA = "__cluster_metadata"
NAMES = ("a", "b-1", "c.d")


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def contents(root: Path) -> Counter[bytes]:
    return Counter(path.read_bytes() for path in root.rglob("*") if path.is_file())


def batch() -> bytearray:
    return records.encode_batch([Record(b"k", b"v", NOW)])


def test_the_name_of_kafkas_metadata_log_is_refused(tmp_path: Path) -> None:
    put(tmp_path / f"{METADATA}-0" / f"{0:020d}.log", b"the log of a controller")
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    for ask in (
        lambda: manager.check_new_topic(METADATA, 1, {}),
        lambda: create_topic(manager, METADATA, 1, uuid.uuid4(), {}, NOW),
    ):
        with pytest.raises(KafkaError) as caught:
            ask()
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert caught.value.message == f"Creation of internal topic {METADATA} is prohibited."
    manager.close(NOW)
    assert (tmp_path / f"{METADATA}-0" / f"{0:020d}.log").read_bytes() == b"the log of a controller"


def test_a_member_of_a_cluster_makes_no_log_of_that_name_either(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    logs = MemberLogs.open(disk, "/data", LogConfig(), NOW)
    finish(logs.take([WantedTopic(name, uuid.uuid4(), 1, [0], {}) for name in (METADATA, "t")], [], NOW))
    assert list(logs.topics) == ["t"]
    assert f"topic {METADATA}: its logs cannot be made here" in caplog.text


def test_a_folder_in_the_way_is_put_aside_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    put(tmp_path / "t-0" / f"{0:020d}.log", b"somebody's log")
    put(tmp_path / "u-0" / "notes.txt", b"somebody's notes")
    (tmp_path / "v-0").mkdir()
    create_topic(manager, "t", 1, uuid.uuid4(), {}, NOW)
    create_topic(manager, "v", 1, uuid.uuid4(), {}, NOW)
    with pytest.raises(KafkaError, match=r"u-0 is there, and holds what is no log: move it away") as caught:
        create_topic(manager, "u", 1, uuid.uuid4(), {}, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.close(NOW)
    assert {b"somebody's log", b"somebody's notes"} <= contents(tmp_path).keys()
    assert "t-0 belongs to no topic: moving it to" in caplog.text


def test_a_creation_that_fails_takes_back_what_it_made(tmp_path: Path) -> None:
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    put(tmp_path / "t-2", b"a file in the way")
    with pytest.raises(KafkaError) as caught:
        create_topic(manager, "t", 4, uuid.uuid4(), {}, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [path.name for path in sorted(tmp_path.iterdir()) if path.name.startswith("t-")] == ["t-2"]
    (tmp_path / "t-2").unlink()
    create_topic(manager, "t", 4, uuid.uuid4(), {}, NOW)
    manager.close(NOW)
    assert not list(tmp_path.glob("*-stray"))


def test_folders_that_hold_no_log_are_no_topics(tmp_path: Path) -> None:
    put(tmp_path / "backup-2024" / "photo.jpg", b"photo")
    put(tmp_path / "old-0" / f"{0:020d}.log", b"")
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    assert list(manager.topics) == ["old"]
    manager.close(NOW)
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    manager.close(NOW)
    assert (tmp_path / "backup-2024" / "photo.jpg").read_bytes() == b"photo"


def test_a_directory_that_kafka_uses_is_in_use(tmp_path: Path) -> None:
    """Java locks with fcntl, which knows nothing of flock."""
    with open(tmp_path / ".lock", "w+b") as held:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        read_end, write_end = os.pipe()
        child = os.fork()  # locks of this kind keep out other processes only
        if not child:
            said = b"opened"
            try:
                LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
            except LogDirectoryError as error:
                said = str(error).encode()
            os.write(write_end, said)
            os._exit(0)
        os.waitpid(child, 0)
        assert b"is in use by another broker" in os.read(read_end, 1000)


def test_kafka_cannot_lock_a_directory_that_the_broker_uses(tmp_path: Path) -> None:
    manager = LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    for _ in range(2):  # another broker of this process, which is refused, must not undo the lock
        with open(tmp_path / ".lock", "r+b") as other, pytest.raises(BlockingIOError):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(LogDirectoryError, match="is in use by another broker"):
            LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW)
    manager.close(NOW)
    with open(tmp_path / ".lock", "r+b") as other:
        fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Trial:
    """A directory with logs of ours and things of others, and what is done to it."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        self.foreign: Counter[bytes] = Counter()
        self.manager = self._open()

    def _open(self) -> LogManager:
        return LogManager.open(DiskStorage(), str(self.root), LogConfig(file_delete_delay_ms=0), NOW)

    def leave(self) -> None:
        """Somebody puts a file somewhere."""
        rng, topic = self.rng, self.rng.choice(NAMES)
        name = rng.choice([f"{0:020d}.log.bak", "backup.deleted", "copy.swap", "x.cleaned", "5.snapshot", "7.log", "n"])
        folder = rng.choice(
            [
                "", f"{topic}-0", f"{topic}-0/deep", f"{METADATA}-0", "notes", "backup-7", f"{topic}-1",
                f"{topic}-0.{uuid.UUID(int=rng.getrandbits(128), version=4).hex}-delete",
            ]
        )  # fmt: skip
        if folder.endswith("-delete") or folder.startswith(METADATA):
            name = f"{0:020d}.log"
        path = self.root / folder / name
        if not path.exists():
            content = b"foreign %d" % rng.getrandbits(64)
            put(path, content)
            self.foreign[content] += 1

    def create(self) -> None:
        topic = self.rng.choice((*NAMES, METADATA))
        create_topic(self.manager, topic, self.rng.randint(1, 3), uuid.uuid4(), {}, NOW)

    def delete(self) -> None:
        delete_topic(self.manager, self.rng.choice(NAMES), NOW)

    def write(self) -> None:
        log = self.manager.partition(self.rng.choice(NAMES), 0)
        log.append(batch(), 0, NOW)
        log.roll(NOW)

    def drop(self) -> None:
        log = self.manager.partition(self.rng.choice(NAMES), 0)
        if len(log.segments) > 1:
            log.drop_segments(1, NOW)

    def restart(self) -> None:
        rng = self.rng
        self.manager.close(NOW) if rng.random() < 0.5 else self.manager.abandon()
        if rng.random() < 0.3:
            (self.root / "topics.json").unlink()
        self.manager = self._open()


@pytest.mark.parametrize("seed", range(12))
def test_nothing_of_others_is_ever_removed(tmp_path: Path, seed: int) -> None:
    trial = Trial(tmp_path, seed)
    steps: list[Callable[[], None]] = [
        trial.leave, trial.leave, trial.create, trial.create, trial.delete, trial.write, trial.drop, trial.restart,
    ]  # fmt: skip
    for _ in range(60):
        step = trial.rng.choice(steps)
        with suppress(KafkaError):
            step()
        missing = trial.foreign - contents(tmp_path)
        assert not missing, f"seed {seed}: {step.__name__} removed {missing}"
    trial.manager.abandon()


def test_what_a_deletion_of_ours_left_goes_at_the_next_start(tmp_path: Path) -> None:
    ours = Path(directories.aside_path(str(tmp_path), "t", 0, directories.DELETED_SUFFIX, uuid.uuid4))
    put(ours / f"{0:020d}.log", b"ours")
    kafkas = tmp_path / f"t-0.{uuid.uuid4().hex}-delete"
    put(kafkas / f"{0:020d}.log", b"Kafka's")
    LogManager.open(DiskStorage(), str(tmp_path), LogConfig(), NOW).close(NOW)
    assert not ours.exists()
    assert (kafkas / f"{0:020d}.log").read_bytes() == b"Kafka's"
