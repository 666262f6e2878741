"""A machine that loses power: the broker's process is killed, and what it had not flushed is taken from its files.

What the simulated disk does (`lab/sim/disk.py`), to the files of a real process. Of the bytes behind the last
flush any part from the front may be left; the rest is cut off, or zeros. Names of files are durable at once.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

FORGETFUL = Path(__file__).parent / "forgetful"


class Power:
    """Notes flushes of brokers that are started from now on; `fail` is a loss of power of one that has been killed."""

    def __init__(self, notes: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        notes.mkdir()
        self._notes = notes
        self._chance = random.Random(seed)
        monkeypatch.setenv("FLUSHES_NOTED_IN", str(notes))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(FORGETFUL), os.environ.get("PYTHONPATH")))))

    def fail(self, data_dir: Path) -> int:
        """Take from the files what no flush has followed; returns how many bytes."""
        flushed = self._flushed()
        assert flushed, "no process has noted a flush"
        lost = 0
        for path in sorted(each for each in data_dir.rglob("*") if each.is_file()):
            found = path.stat()
            durable = min(flushed.get(found.st_ino, 0), found.st_size)
            kept = self._chance.randint(durable, found.st_size)
            lost += found.st_size - kept
            os.truncate(path, kept)
            if self._chance.random() < 0.5:
                os.truncate(path, found.st_size)
        return lost

    def _flushed(self) -> dict[int, int]:
        """Return the size at its last flush of each file, by its inode."""
        found: dict[int, int] = {}
        for notes in sorted(self._notes.iterdir(), key=lambda each: each.stat().st_mtime_ns):
            for line in notes.read_text().splitlines():
                inode, size = line.split()
                found[int(inode)] = int(size)
        return found
