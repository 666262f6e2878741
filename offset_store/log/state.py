"""What a writer must know of a table at one version, moved forward commit by commit. No I/O.

An appender needs no list of the table's files: only protocol, metadata, transaction identifiers, domains and the
newest in-commit timestamp, so its state does not grow with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

from sparkonce.offset_store.log.actions import Action, Actions, Metadata, Protocol

STATE_KINDS = ("protocol", "metaData", "txn", "domainMetadata")
"""The kinds of actions that checkpoints keep and a `TableState` has."""
NEWS_KINDS = (*STATE_KINDS, "commitInfo", "add", "remove")
"""What `TableState.after` and `verdict.judge` look at in a commit."""
IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"
TIMESTAMPS_SINCE = "delta.inCommitTimestampEnablementVersion"
MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
ROW_TRACKING_DOMAIN = "delta.rowTracking"
CLUSTERING_DOMAIN = "delta.clustering"
RESTORE = "RESTORE"


T = TypeVar("T")


class LogError(ValueError):
    """A log that breaks the protocol; the message says how, without the place."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one version."""

    version: int
    protocol: Protocol
    metadata: Metadata
    transactions: Mapping[str, int]
    """The versions of all transaction identifiers."""
    domains: Mapping[str, str]
    """The configuration of each domain that is not removed."""
    timestamp_ms: int | None = None
    """The newest in-commit timestamp, in a table that has them."""
    begun_at: int = field(default=0, compare=False)
    """The version from which on every commit was read."""
    restored_at: int | None = field(default=None, compare=False)
    """The newest RESTORE among these commits."""

    @property
    def next_row_id(self) -> int:
        """The first row id that no row has had ("Row Tracking")."""
        text = self.domains.get(ROW_TRACKING_DOMAIN)
        return 0 if text is None else _read("domainMetadata", _high_water_mark, text) + 1

    def at_commit(self, actions: Actions) -> TableState:
        """Return this state, of a checkpoint, with what only its commit has: the in-commit timestamp."""
        return replace(self, timestamp_ms=_timestamp(self, self.metadata, actions))

    def after(self, actions: Actions) -> TableState:
        """Return the state after one more commit.

        Raises:
            LogError: if its actions cannot follow.
        """
        following = replace(self, version=self.version + 1)
        return _with(following, actions)


def first_state(version: int, actions: Actions) -> TableState:
    """Return the state of a checkpoint's actions, or of the first commit's.

    Raises:
        LogError: if they have no protocol or metadata.
    """
    protocols, metadata = actions["protocol"], actions["metaData"]
    if not protocols or not metadata:
        missing = "protocol" if not protocols else "metadata"
        raise LogError(f"has no {missing}")
    protocol = _read("protocol", Protocol.of, protocols[-1])
    empty = TableState(version, protocol, _read("metadata", Metadata.of, metadata[-1]), {}, {}, begun_at=version)
    return _with(empty, actions)


def _with(state: TableState, actions: Actions) -> TableState:
    protocol = _read("protocol", Protocol.of, actions["protocol"][-1]) if actions["protocol"] else state.protocol
    metadata = _read("metadata", Metadata.of, actions["metaData"][-1]) if actions["metaData"] else state.metadata
    transactions, domains = state.transactions, state.domains
    if actions["txn"]:
        moved = dict(_read("txn", _transaction, txn) for txn in actions["txn"])
        transactions = MappingProxyType({**transactions, **moved})
    if actions["domainMetadata"]:
        written = dict(_read("domainMetadata", _domain, each) for each in actions["domainMetadata"])
        kept = {**domains, **written}
        domains = MappingProxyType({name: text for name, text in kept.items() if text is not None})
    timestamp_ms = _timestamp(state, metadata, actions)
    restored = any(info.get("operation") == RESTORE for info in actions.get("commitInfo") or ())
    restored_at = state.version if restored else state.restored_at
    return TableState(
        state.version, protocol, metadata, transactions, domains, timestamp_ms, state.begun_at, restored_at
    )


def _timestamp(state: TableState, metadata: Metadata, actions: Actions) -> int | None:
    if not metadata.is_on(IN_COMMIT_TIMESTAMPS):
        return None
    infos = actions.get("commitInfo") or []
    found = infos[0].get("inCommitTimestamp") if infos else None
    return state.timestamp_ms if found is None else _read("commitInfo", int, found)


def _transaction(action: Action) -> tuple[str, int]:
    return str(action["appId"]), int(action["version"])


def _domain(action: Action) -> tuple[str, str | None]:
    """Return a domain and its configuration; None if it is removed."""
    return str(action["domain"]), None if action.get("removed") else str(action["configuration"])


def _high_water_mark(text: str) -> int:
    return int(json.loads(text)["rowIdHighWaterMark"])


def _read(kind: str, parse: Callable[[Any], T], value: Any) -> T:
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogError(f"has a {kind} action that cannot be read: {error!r}") from error
