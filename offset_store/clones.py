"""Reads a table's clone source from its log.

delta-spark's ``CREATE TABLE … SHALLOW CLONE`` writes one commit that names files of another table by absolute paths. It
copies schema and properties, but no transaction identifiers: the clone has the rows, not the offsets. (PROTOCOL.md of
delta-io/delta does not mention clones; the commit info is `CloneTableBase` in delta-spark 4.4.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkonce.offset_store.locations import Location

OPERATION = "CLONE"
_PATH = re.compile(r"delta\.`(.+)`", re.DOTALL)
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass(frozen=True, slots=True)
class CloneSource:
    """The table, and its version, that a commit took its files from."""

    name: str
    """The name in the commit: a path in ``delta.`…```, or a name of a catalog."""
    version: int | None
    """None if the commit does not have it."""

    @property
    def location(self) -> Location | None:
        """Its location; None if only a catalog knows it."""
        path = _PATH.fullmatch(self.name)
        return Location.parse(path[1].replace("``", "`")) if path else None

    def __str__(self) -> str:
        return f"version {'?' if self.version is None else self.version} of {self.location or self.name}"


def clone_source(info: Mapping[str, Any]) -> CloneSource | None:
    """Read the ``commitInfo`` of a CLONE; None for any other commit."""
    if info.get("operation") != OPERATION:
        return None
    parameters = info.get("operationParameters")
    given = parameters if isinstance(parameters, Mapping) else {}
    version = str(given.get("sourceVersion"))
    return CloneSource(str(given.get("source", "?")), int(version) if version.isdecimal() else None)


def is_outside_table(path: str) -> bool:
    """Whether the path of an ``add`` action is absolute, as those of a clone are."""
    return path.startswith("/") or _ABSOLUTE.match(path) is not None
