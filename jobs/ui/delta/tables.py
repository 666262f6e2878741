"""The tables of the pages, each followed once for all pages."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkonce.jobs.ui.delta.files import FilesState, FilesWatch, UnnamedFiles, unnamed_of
from sparkonce.jobs.ui.delta.followed import AuditState, FollowedTable, Reading
from sparkonce.jobs.ui.delta.paced import PAUSE
from sparkonce.jobs.ui.delta.versions import Versions, VersionState
from sparkonce.offset_store.errors import LogFileMissingError
from sparkonce.offset_store.locations import Location

MAX_TABLES = 1000
"""The number of followed tables; the least recently used one is dropped. A page uses no more."""
SHORT_LOG = 2_000
"""Up to this many kept commits, files without a commit are counted without a request."""
PAGE = 50
"""Versions on a page."""
UNNAMED_EVERY_S = 2.0
"""The minimal interval between searches for files without a commit; it grows with their duration."""


def key_of(place: str) -> str:
    """Return a table's name in addresses: the end of its path, and a digest to distinguish tables of the same name."""
    name = "".join(
        c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in place.rstrip("/").rpartition("/")[2]
    )
    return f"{name}-{hashlib.blake2b(os.fsencode(place), digest_size=10).hexdigest()}"


def names_of(places: Iterable[str]) -> dict[str, str]:
    """Return the names of tables on pages: the ends of their paths, as long as it takes to tell them apart."""
    parts = {place: place.rstrip("/").split("/") for place in places}
    names, lengths = dict[str, str](), dict.fromkeys(parts, 1)
    while True:
        names = {place: "/".join(parts[place][-length:]) or place for place, length in lengths.items()}
        shared = {name for name, count in Counter(names.values()).items() if count > 1}
        longer = [place for place, name in names.items() if name in shared and lengths[place] < len(parts[place])]
        if not longer:
            return names
        lengths |= {place: lengths[place] + 1 for place in longer}


@dataclass(slots=True)
class TableWatch:
    """One table."""

    place: str
    followed: FollowedTable
    name: str = ""
    """Its name on pages; by default the end of its path."""
    _files: FilesWatch = field(default_factory=FilesWatch)
    _versions: tuple[Reading, Versions] | None = None
    _unnamed: UnnamedFiles | None = None
    _unnamed_at_s: float = 0.0
    """The next search for unnamed files, by the monotonic clock."""

    def __post_init__(self) -> None:
        self.name = self.name or names_of([self.place])[self.place]

    @property
    def key(self) -> str:
        """Its name in addresses."""
        return key_of(self.place)

    def look(self) -> AuditState:
        """Read new commits: `FollowedTable.look`."""
        return self.followed.look()

    def bounds(self) -> tuple[int, int]:
        """Return the oldest kept version and the newest."""
        log = self.followed.reading().log
        return log.oldest_version, log.newest_version

    def versions(self, newest: int | None = None, count: int = PAGE) -> list[VersionState]:
        """Return some versions, newest first, starting at ``newest`` (or the newest one)."""
        reading = self.followed.reading()
        oldest, last = reading.log.oldest_version, reading.log.newest_version
        first = last if newest is None else max(min(newest, last), oldest)
        return self._reader(reading).read(range(first, max(first - count, oldest - 1), -1))

    def read(self, numbers: Iterable[int]) -> list[VersionState]:
        """Return these versions, in this order, if they are still kept. Raises OffsetStoreError if unreadable."""
        reader, found = self._reader(self.followed.reading()), list[VersionState]()
        for number in numbers:
            with contextlib.suppress(LogFileMissingError):
                found += reader.read([number])
        return found

    def version(self, number: int) -> VersionState:
        """Return one version. Raises LogFileMissingError if it is not kept."""
        return self._reader(self.followed.reading()).read([number])[0]

    def files(self) -> FilesState:
        """Return the data files as known."""
        with self.followed.lock:
            return self._files.look(self.followed.reading().log.table)

    def unnamed(self, *, asked: bool = False) -> UnnamedFiles | None:
        """Return the files that no commit names; None if not requested, and the search would take long."""
        oldest, newest = self.bounds()
        began_s = time.monotonic()
        is_cheap = newest - oldest < SHORT_LOG and self.followed.location.is_local
        if asked or (is_cheap and began_s >= self._unnamed_at_s):
            self._unnamed = unnamed_of(self.followed.location, self.followed.storage_options)
            ended_s = time.monotonic()
            self._unnamed_at_s = ended_s + max(PAUSE * (ended_s - began_s), UNNAMED_EVERY_S)
        return self._unnamed

    def _reader(self, reading: Reading) -> Versions:
        if self._versions is None or self._versions[0] is not reading:  # the table was replaced
            self._versions = reading, Versions(reading.log.log)
        return self._versions[1]


class TableWatches:
    """All tables, for several threads."""

    def __init__(self, storage_options: Mapping[str, str]) -> None:
        self._storage_options = storage_options
        self._lock = threading.Lock()
        self._watches: OrderedDict[str, TableWatch] = OrderedDict()

    def at(self, place: str) -> TableWatch:
        """Return the table at a location. Raises ValueError if it is not one."""
        with self._lock:
            watch = self._watches.pop(place, None)
            if watch is None:
                location = Location.parse(place.removeprefix("delta:"))
                options = {} if location.is_local else self._storage_options
                watch = TableWatch(place, FollowedTable(location, options))
            self._watches[place] = watch
            if len(self._watches) > MAX_TABLES:
                self._watches.popitem(last=False)
            return watch

    def named(self, key: str, places: Iterable[str]) -> TableWatch | None:
        """Return the table among ``places`` with this name in addresses; None if there is none."""
        place = next((each for each in places if key_of(each) == key), None)
        return None if place is None else self.at(place)
