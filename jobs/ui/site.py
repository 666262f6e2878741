"""The site's data: brokers, tables and checkpoints given to `sparkonce ui`, and the allowed changes.

Folders are searched again each time, since a query may create its table and checkpoint later.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkonce.jobs.ui.delta.paced import PacedResults
from sparkonce.jobs.ui.delta.tables import MAX_TABLES, TableWatch, TableWatches, names_of
from sparkonce.jobs.ui.kafka.messages import Messages
from sparkonce.jobs.ui.kafka.past import Trends
from sparkonce.jobs.ui.kafka.readers import Topics
from sparkonce.jobs.ui.kafka.subjects import Subjects
from sparkonce.jobs.ui.kafka.watch import ClusterWatch
from sparkonce.jobs.ui.rendering import amount
from sparkonce.jobs.ui.result_cache import ResultCache

if TYPE_CHECKING:
    from sparkonce.jobs.ui.own_brokers import OwnBrokers

MAX_DEPTH = 4
"""The maximal depth of tables and checkpoints in a folder."""
MAX_SCREENS = 32
"""The number of cached pages of messages."""
MAX_CHARACTERS = 16 << 20
"""Of the cached pages of messages together."""
MAX_FOLDERS = 5000
"""The maximal number of folders searched."""


@dataclass(frozen=True, slots=True)
class Given:
    """The arguments of the command line."""

    kafka: Mapping[str, str] = field(default_factory=dict)
    """Options of the Kafka client, with the prefix ``kafka.``; empty without brokers."""
    tables: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    folder: Path | None = None
    """Folders to search for tables and checkpoints."""
    registry: Mapping[str, str] = field(default_factory=dict)
    """Options ``schemaRegistry.*``; empty without a registry."""
    storage: Mapping[str, str] = field(default_factory=dict)
    """delta-rs's storage options for the tables."""
    allow_changes: bool = False
    """Whether pages may change offsets."""


class Site:
    """All data of the pages; thread-safe."""

    def __init__(self, given: Given, own: OwnBrokers | None = None) -> None:
        """``own`` are brokers that the pages may kill, start and inject faults into."""
        self.given = given
        self.own = own
        self.cluster = ClusterWatch(given.kafka) if given.kafka else None
        self.delta = TableWatches(given.storage)
        self.screens = ResultCache(MAX_SCREENS, MAX_CHARACTERS)
        self.concluded: PacedResults[Any] = PacedResults()
        """What a page concludes from all tables and checkpoints, by a name."""
        self.lags = Trends()
        """The lags of queries."""
        self.subjects = Subjects(given.registry, self.cluster.options if self.cluster else {})
        self._is_searched = True
        """Whether all folders were searched the last time."""
        self._topics = Topics(self.cluster.options if self.cluster else {}, given.registry)

    def messages(self, topic: str) -> AbstractContextManager[Messages]:
        """Return a reader of a topic's messages, for one user at a time."""
        return self._topics.messages(topic)

    def close(self) -> None:
        """Close all connections."""
        self._topics.close()
        self.subjects.close()
        if self.cluster is not None:
            self.cluster.close()

    def tables(self) -> list[str]:
        """Return the locations of all tables."""
        return list(dict.fromkeys([*self.given.tables, *self._found("_delta_log")]))

    def watches(self) -> tuple[list[TableWatch], str]:
        """Return the followed tables, and what is left out, in words; empty if nothing is."""
        places = self.tables()
        names, watches = names_of(places), [self.delta.at(place) for place in places[:MAX_TABLES]]
        for watch in watches:
            watch.name = names[watch.place]
        more = max(len(places) - MAX_TABLES, 0)
        left_out = f"{amount(more, 'more table')} {'is' if more == 1 else 'are'} left out. " if more else ""
        if not self._is_searched:
            left_out += f"Only the first {MAX_FOLDERS:,} folders in {self.given.folder} were searched for tables."
        return watches, left_out.strip()

    def checkpoints(self) -> list[str]:
        """Return the locations of all checkpoints of streaming queries."""
        return list(dict.fromkeys([*self.given.checkpoints, *self._found("offsets", "metadata")]))

    def _found(self, *names: str) -> list[str]:
        """Return the folders below ours that contain all these names."""
        if self.given.folder is None:
            return []
        folders = list(islice(_folders(str(self.given.folder)), MAX_FOLDERS + 1))
        self._is_searched = len(folders) <= MAX_FOLDERS
        return sorted(path for path, inside in folders[:MAX_FOLDERS] if set(names) <= inside)


def _folders(root: str) -> Iterator[tuple[str, set[str]]]:
    """Yield folders and their contents, the upper ones first; those inside a table or a checkpoint are skipped."""
    waiting = deque([(root, 0)])
    while waiting:
        path, depth = waiting.popleft()
        try:
            with os.scandir(path) as entries:
                here = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:
            continue
        yield path, set(here)
        if depth < MAX_DEPTH and "_delta_log" not in here and not {"offsets", "metadata"} <= set(here):
            below = [name for name, is_folder in sorted(here.items()) if is_folder and not name.startswith(".")]
            waiting += [(os.path.join(path, name), depth + 1) for name in below]
