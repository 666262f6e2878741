"""Changes in directories are reported; a look at a lock is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkonce.broker_lite.log.storage import DiskStorage
from sparkonce.broker_lite.server import directory_watch
from sparkonce.broker_lite.server.directory_watch import DirectoryWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
DEADLINE_S = 30.0


def reported(directory: Path, changes: list[Callable[[], object]]) -> list[bool]:
    """Make changes one after the other; returns which of them were reported before the loop had nothing to do."""

    async def run() -> list[bool]:
        told = asyncio.Event()
        watch = DirectoryWatch.begin([str(directory)], told.set)
        assert watch is not None
        found = []
        try:
            for change in changes:
                told.clear()
                change()
                await asyncio.sleep(0)  # the loop asks once what is readable; what inotify reports is there at once
                await asyncio.sleep(0)
                found.append(told.is_set())
        finally:
            watch.close()
            watch.close()
        return found

    return asyncio.run(run())


def test_what_brokers_do_is_reported_and_that_they_look_is_not(tmp_path: Path) -> None:
    storage, path = DiskStorage(), str(tmp_path / "0000000001.claim")
    lock = storage.lock(path)
    file = storage.open(path)
    found = reported(
        tmp_path,
        [
            lambda: file.append(b"1"),
            lambda: storage.is_locked(path),
            lambda: storage.read(path),
            lambda: storage.list_directory(str(tmp_path)),
            lambda: storage.set_modified_ms(path, 1_000),
            lock.release,
            lambda: storage.write(str(tmp_path / "log"), b"snapshot", durable=False),
            lambda: storage.remove(path),
        ],
    )
    assert found == [True, False, False, False, False, True, True, True]


def test_the_death_of_a_process_with_a_lock_is_reported(tmp_path: Path) -> None:
    holder = (
        "import sys; from sparkonce.broker_lite.log.storage import DiskStorage; "
        "lock = DiskStorage().lock(sys.argv[1]); print('locked', flush=True); sys.stdin.read()"
    )
    path = str(tmp_path / "broker-1.lock")

    async def run() -> None:
        told = asyncio.Event()
        with subprocess.Popen(
            [sys.executable, "-c", holder, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            assert DiskStorage().is_locked(path)
            watch = DirectoryWatch.begin([str(tmp_path)], told.set)
            assert watch is not None
            process.kill()
            async with asyncio.timeout(DEADLINE_S):
                await told.wait()
            process.wait()
            watch.close()
        assert not DiskStorage().is_locked(path)

    asyncio.run(run())


def test_without_inotify_there_is_no_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DirectoryWatch.begin([str(tmp_path / "missing")], lambda: None) is None

    def without(_directories: object) -> int:
        raise AttributeError("inotify_init1")

    monkeypatch.setattr(directory_watch, "_watch", without)
    assert DirectoryWatch.begin([str(tmp_path)], lambda: None) is None
