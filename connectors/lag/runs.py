"""Which queries run, and how they ended: a small file for each, which the listener of its driver leaves.

Spark's checkpoint says what was planned and what was finished, but not whether anybody is still at work: others of this
user on this machine, such as `sparkonce ui`, read it here. Nothing is decided by it.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sparkonce.private_folder import private_folder

EVERY_S = 5.0
"""How often it is noted that nothing has changed."""
KEPT_S = 7 * 86_400
"""Files of queries that were last heard of so long ago are removed."""
MAX_FILES, SWEPT_EVERY = 2_000, 500
"""The oldest files are removed beyond so many. This is looked at for every so many new queries."""
MAX_ERROR = 1_000
"""The characters of an error that are kept."""
_QUERY_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class RunState(StrEnum):
    """What a listener has heard last."""

    RUNNING = "running"
    IDLE = "idle"
    ENDED = "ended"
    FAILED = "failed"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Run:
    """The newest run of a query."""

    state: RunState
    at_ms: int
    """When that was heard, in ms since 1970."""
    pid: int
    """The listener's process."""
    began: str
    """When that process began, as the system tells it: another process may have its number by now."""
    error: str = ""
    """What it ended with, in a line; "" if it did not fail."""

    @property
    def is_heard(self) -> bool:
        """Whether the listener's process is still there."""
        return self.began == _began(self.pid)


class Runs:
    """The notes of all queries of this user on this machine."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use ``folder``, by default one of this user below the machine's folder for temporary files."""
        self._folder = folder
        self._noted: dict[str, tuple[RunState, float]] = {}
        self._until_swept = 0

    def note(self, query_id: str, state: RunState, error: str = "") -> None:
        """Note what was heard of a query, and its error; never raises: only pages would know less."""
        before, now_s = self._noted.get(query_id), time.monotonic()
        if before is not None and before[0] is state and now_s - before[1] < EVERY_S:
            return
        if state in (RunState.RUNNING, RunState.IDLE):
            self._noted[query_id] = state, now_s
        else:
            self._noted.pop(query_id, None)
        with suppress(OSError):
            file = self._file(query_id)
            if file is not None:
                if not file.exists():
                    self._sweep(file.parent)
                pid = os.getpid()
                document = {"state": state, "atMs": time.time_ns() // 1_000_000, "pid": pid, "began": _began(pid)}
                document |= {"error": error[:MAX_ERROR]} if error else {}
                written = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
                try:
                    written.write_text(json.dumps(document))
                    written.replace(file)
                finally:
                    written.unlink(missing_ok=True)  # as when the disk is full

    def forget(self, query_id: str) -> None:
        """Remove the note of a query that goes on without a listener."""
        self._noted.pop(query_id, None)
        with suppress(OSError):
            file = self._file(query_id)
            if file is not None:
                file.unlink(missing_ok=True)

    def find(self, query_id: str) -> Run | None:
        """Return what was noted of a query; None if there is nothing that can be read."""
        try:
            file = self._file(query_id)
            found = {} if file is None else json.loads(file.read_text())
            state, pid, began = RunState(found["state"]), int(found["pid"]), str(found["began"])
            return Run(state, int(found["atMs"]), pid, began, str(found.get("error", "")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _file(self, query_id: str) -> Path | None:
        """Return the file of a query; ids are read from a checkpoint, and name no other file."""
        folder = self._folder or private_folder("sparkonce-runs")
        return folder / f"{query_id}.json" if folder is not None and _QUERY_ID.fullmatch(query_id) else None

    def _sweep(self, folder: Path) -> None:
        """Remove files of queries that were last heard of long ago, and the oldest of too many."""
        self._until_swept -= 1
        if self._until_swept > 0:
            return
        self._until_swept = SWEPT_EVERY
        heard: list[tuple[float, Path]] = []
        for path in folder.glob("*.json*"):
            with suppress(OSError):
                heard.append((path.lstat().st_mtime, path))
        heard.sort()
        for number, (at_s, path) in enumerate(heard, MAX_FILES - len(heard)):
            with suppress(OSError):
                if number < 0 or at_s < time.time() - KEPT_S:
                    path.unlink()


def _began(pid: int) -> str:
    """Return when a process began, "" if that cannot be known; "gone" if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "gone"
    except OSError:
        pass
    return ""
