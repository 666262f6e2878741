"""The files of a Delta table's log: which there are, and its commits, read one by one.

``_delta_log/<version>.json`` has one action in a line; checkpoints hold the state at a version (`checkpoint_files`).
Commits before a checkpoint are cleaned up after a while, so what is older than the oldest kept commit is known from
checkpoints only.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sparkonce.offset_store.errors import LogFileMissingError, OffsetStoreError, plain
from sparkonce.offset_store.locations import Location, check_table_path
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.storage import LOG_FOLDER, LogStorage
from sparkonce.offset_store.log.stores import log_storage
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.store_hints import store_hint_or_options

DAMAGE = "(damage)"
"""A pseudo kind of action: damage of the file itself, as `{"what": …}`; truncated lines are omitted."""
FETCHED_AHEAD = 32
"""Files fetched at the same time, on stores that are not local."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-fA-F-]{36})?\.(parquet|json)")
_FIRST_KEY = re.compile(rb'\s*\{\s*"(\w+)"\s*:\s*(n?)')
"""The kind of an action in a line; a null action may come before another one."""


@dataclass(frozen=True, slots=True)
class LogListing:
    """The files of a log: versions of commits, ascending, and the files of each complete checkpoint."""

    commits: tuple[int, ...]
    checkpoints: Mapping[int, tuple[str, ...]]

    @property
    def newest(self) -> int | None:
        """The newest version; None if there is no table."""
        return max((*self.commits[-1:], *self.checkpoints), default=None)

    def newest_checkpoint(self, version: int) -> int | None:
        """Return the version of the newest checkpoint at or before ``version``."""
        return max((each for each in self.checkpoints if each <= version), default=None)


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The log of one table, for reading."""

    storage: LogStorage
    location: Location
    """Of the table."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options with secrets, which errors must not show."""

    @classmethod
    def open(cls, location: Location, storage_options: Mapping[str, str]) -> DeltaLog:
        """Open the log of the table at ``location``. Raises OffsetStoreError if there cannot be one."""
        check_table_path(location)
        return cls(log_storage(location, storage_options), location, storage_options)

    @property
    def folder(self) -> str:
        """The address of its folder, for messages."""
        return f"{self.location}/{LOG_FOLDER}"

    def listing(self, since: int = 0) -> LogListing:
        """List the files of the versions from ``since`` on. Raises OffsetStoreError if the folder cannot be listed."""
        names = self.names(since)
        commits = sorted(int(found[1]) for found in map(_COMMIT.fullmatch, names) if found)
        return LogListing(tuple(commits), complete_checkpoints(names))

    def names(self, since: int = 0) -> list[str]:
        """Return the names of the files from version ``since`` on, and what sorts after. Raises as `listing`."""
        with hidden_secrets(self.storage_options):
            try:
                return self.storage.names(f"{since:020d}" if since else "")
            except OSError as error:
                raise self.failure(f"cannot list {self.folder}", error) from error

    def actions(self, version: int, kinds: Iterable[str]) -> dict[str, list[Action]]:
        """Return the actions of these kinds (``txn``, ``add``, ``commitInfo``, …) in one commit, in its order.

        Raises:
            LogFileMissingError: if there is no such commit, or it was cleaned up.
            OffsetStoreError: if it cannot be read.
        """
        return self.actions_in(commit_file(version), kinds)

    def actions_in(self, name: str, kinds: Iterable[str]) -> dict[str, list[Action]]:
        """Return the actions of these kinds in a JSON file: a commit, or a V2 checkpoint. Raises as `actions`."""
        return _parse_actions(self._read(name), set(kinds), f"{self.folder}/{name}")

    def actions_of(self, versions: Iterable[int], kinds: Iterable[str]) -> Iterator[dict[str, list[Action]]]:
        """Yield the actions of these kinds in each of some commits, one commit after the other.

        On object stores, where each file is a round trip, increasingly many are fetched ahead, up to `FETCHED_AHEAD`: a
        caller that stops after the first fetches no other.

        Raises:
            LogFileMissingError, OffsetStoreError: as `actions`, when it is that commit's turn.
        """
        kinds = frozenset(kinds)
        if self.storage.is_local:
            for version in versions:
                yield self.actions(version, kinds)
            return
        waiting: deque[Future[dict[str, list[Action]]]] = deque()
        ahead = 1
        with ThreadPoolExecutor(FETCHED_AHEAD, "delta-log") as pool:
            for version in versions:
                waiting.append(pool.submit(self.actions, version, kinds))
                if len(waiting) == ahead:
                    yield waiting.popleft().result()
                    ahead = min(2 * ahead, FETCHED_AHEAD)
            while waiting:
                yield waiting.popleft().result()

    def commit_infos(self, version: int, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the commit infos of the newest commits up to ``version``, newest first, each with its ``version``.

        As delta-rs's ``history``, but read lazily, and by the names of the files: delta-rs (1.6) counts down from the
        version of its handle, but begins with the newest commit of the log, so every commit that came after the handle
        was loaded shifts its numbers by one.

        Raises:
            LogFileMissingError: if there is no commit of that version.
            OffsetStoreError: if one of them cannot be read.
        """
        versions = range(version, -1, -1)
        if limit is not None:
            versions = versions[: max(limit, 0)]
        found = self.actions_of(versions, ("commitInfo",))
        for each in versions:
            try:
                infos = next(found)["commitInfo"]
            except LogFileMissingError:
                if each == version:
                    raise
                return  # the kept commits are an unbroken run
            yield {**(infos[0] if infos else {}), "version": each}

    def _read(self, name: str) -> bytes:
        with hidden_secrets(self.storage_options):
            try:
                return self.storage.read(name)
            except FileNotFoundError as error:
                raise LogFileMissingError(f"{self.folder}/{name} is missing") from error
            except OSError as error:
                raise self.failure(f"cannot read {self.folder}/{name}", error) from error

    def failure(self, what: str, error: Exception) -> OffsetStoreError:
        """Return an error of the store as one of ours, with what to do."""
        why = plain(error)
        return OffsetStoreError(f"{what}: {why}{store_hint_or_options(self.location, why)}")


def commit_file(version: int) -> str:
    """Return the name of a commit's file."""
    return f"{version:020d}.json"


def _parse_actions(data: bytes, kinds: set[str], where: str) -> dict[str, list[Action]]:
    found: dict[str, list[Action]] = {kind: [] for kind in kinds}
    lines = data.split(b"\n")
    damage, parsed = _damage(data, lines) if DAMAGE in kinds else (None, {})
    if damage is not None:
        found[DAMAGE].append({"what": damage})
    for line in lines:
        key = _FIRST_KEY.match(line)
        if not line.strip() or (key is not None and not key[2] and key[1].decode() not in kinds):
            continue
        try:
            actions = dict(parsed[line] if line in parsed else json.loads(line))
        except (ValueError, TypeError, RecursionError) as error:
            if damage is not None:
                continue
            raise OffsetStoreError(f"{where} holds a line that is no JSON object: {line[:200]!r}") from error
        for kind, action in actions.items():
            if kind not in kinds or action is None:
                continue
            if not isinstance(action, dict):
                raise OffsetStoreError(f"{where} has a {kind} action that is no object: {line[:200]!r}")
            found[kind].append(action)
    return found


def _damage(data: bytes, lines: Sequence[bytes]) -> tuple[str | None, dict[bytes, Any]]:
    """Describe how a crash or a disk error damaged a commit's file, None if it is complete; and return what was parsed.

    Only the last line is parsed: files are truncated at their end. Other lines only need to begin and end as objects.
    """
    if not data.strip():
        return f"its file is empty ({len(data)} bytes)", {}
    if b"\0" in data:
        return "its file has zero bytes in it", {}
    numbered = [(number, text) for number, line in enumerate(lines, 1) if (text := line.strip())]
    bad = next((number for number, line in numbered if not (line.startswith(b"{") and line.endswith(b"}"))), None)
    number, last = numbered[-1]
    parsed = {}
    if bad is None:
        try:
            parsed[last] = json.loads(last)
        except (ValueError, RecursionError):
            bad = number
    return None if bad is None else f"line {bad} of its file is no whole JSON object", parsed


def complete_checkpoints(names: Iterable[str]) -> dict[int, tuple[str, ...]]:
    """Group checkpoint files by version; several kinds of one version are equivalent, so one of them is enough."""
    whole: dict[int, tuple[str, ...]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in sorted(each for each in names if ".checkpoint." in each):
        found = _CHECKPOINT.fullmatch(name)
        if found is None:
            continue
        if found[3] is None:
            whole[int(found[1])] = (name,)
        else:
            parts.setdefault((int(found[1]), int(found[3])), []).append(name)
    for (version, count), files in parts.items():
        if len(files) == count:
            whole.setdefault(version, tuple(files))
    return whole
