"""Actions of a commit, as far as a writer needs them (PROTOCOL.md, "Actions")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

Action = Mapping[str, Any]
"""One action without its kind, as JSON has it."""
Actions = Mapping[str, list[Action]]
"""The actions of a commit by kind: ``add``, ``txn``, ``commitInfo``, …"""

_UNQUOTED = "/!$&'()+,-.:;=@_~"
"""What stays as it is in the path of a file; a path in the log is a URI (RFC 2396)."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Which versions and features readers and writers of a table must support."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()

    @classmethod
    def of(cls, action: Action) -> Protocol:
        """Read an action. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(
            int(action["minReaderVersion"]),
            int(action["minWriterVersion"]),
            frozenset(action.get("readerFeatures") or ()),
            frozenset(action.get("writerFeatures") or ()),
        )


@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's id, columns and properties."""

    id: str
    schema_json: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    action: Action = field(repr=False, compare=False)
    """The whole action, for a commit that changes parts of it."""

    @classmethod
    def of(cls, action: Action) -> Metadata:
        """Read an action. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(
            str(action["id"]),
            str(action["schemaString"]),
            tuple(action.get("partitionColumns") or ()),
            {str(name): str(value) for name, value in (action.get("configuration") or {}).items()},
            action,
        )

    def is_on(self, name: str) -> bool:
        """Whether a property is true."""
        return self.configuration.get(name, "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class AddFile:
    """A data file that a commit adds."""

    path: str
    """Relative to the table, not encoded for URIs."""
    size: int
    partition_values: Mapping[str, str | None]
    modification_time_ms: int
    statistics: str
    rows: int

    def to_action(self) -> dict[str, Any]:
        """Return it as the log has it."""
        return {
            "path": quote(self.path, safe=_UNQUOTED),
            "partitionValues": dict(self.partition_values),
            "size": self.size,
            "modificationTime": self.modification_time_ms,
            "dataChange": True,
            "stats": self.statistics,
        }


def by_kind(actions: Iterable[tuple[str, Action]], kinds: Iterable[str]) -> dict[str, list[Action]]:
    """Return the actions of these kinds as a reader of the commit finds them."""
    found: dict[str, list[Action]] = {kind: [] for kind in kinds}
    for kind, action in actions:
        if kind in found:
            found[kind].append(action)
    return found


def to_lines(actions: Iterable[tuple[str, Action]]) -> bytes:
    """Return a commit's file: one action in a line."""
    lines = (json.dumps({kind: action}, separators=(",", ":"), ensure_ascii=False) for kind, action in actions)
    return "".join(f"{line}\n" for line in lines).encode()
