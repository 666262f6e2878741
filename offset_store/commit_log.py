"""A Delta table's kept commits, oldest first, as far as they concern offsets.

Files of old versions are removed from ``_delta_log`` in time (``delta.logRetentionDuration``, 30 days by default), but
only where a checkpoint replaces them. So the kept commits are an unbroken run of versions up to the newest, and if it
does not begin at 0, there is at least one checkpoint near its beginning, whose ``txn`` actions show the offsets that
were stored by then.

delta-rs returns the commit infos of a history, but not the ``txn`` actions of each commit; so the files are read here,
one after the other, and only one is held in memory. On object stores, where each file is
a round trip, a few are fetched ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from deltalake import DeltaTable

from sparkonce.offset_store.administration import CommitEntry, read_entry
from sparkonce.offset_store.data_files import names_of
from sparkonce.offset_store.errors import LogFileMissingError, OffsetStoreError, StoreMissingError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Action
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoint_rows import FileKey, vector_id
from sparkonce.offset_store.log.reader import DAMAGE, DeltaLog, LogListing
from sparkonce.offset_store.record import COMMIT_INFO_KEY
from sparkonce.offset_store.tables import load_table
from sparkonce.offset_store.txn_ids import PREFIX

_KINDS = ("commitInfo", "txn", "add", "remove", DAMAGE)


@dataclass(frozen=True, slots=True)
class LogCommit:
    """One version of a table: its operation, and what it records about offsets."""

    entry: CommitEntry
    transactions: Mapping[str, int]
    """The ``txn`` actions with ids of ours."""
    unreadable: object = None
    """The value of our record's field, if it is neither of a batch nor of a manual change."""
    damage: str | None = None
    """How the commit's file is damaged; None if it is complete."""
    removed_files: int = 0
    """Data files that it removed or replaced with a change of the rows; compaction changes none."""
    added: tuple[FileKey, ...] = ()
    """The data files that it added."""
    removed: tuple[FileKey, ...] = ()
    """The data files that it removed or replaced, whether rows changed or not."""
    others: Mapping[str, int] = field(default_factory=dict)
    """The ``txn`` actions with ids of other writers, such as Delta's own sink."""
    is_overwrite: bool = False
    """Whether it replaced all rows, if there were any."""

    @property
    def version(self) -> int:
        """The version of the table after this commit."""
        return self.entry.version


@dataclass(frozen=True, slots=True)
class StoredState:
    """Our transaction identifiers, as of one version."""

    version: int
    transactions: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CommitLog:
    """The kept commits of a table up to the version that ``table`` shows."""

    location: Location
    table: DeltaTable
    oldest_version: int
    log: DeltaLog
    listing: LogListing

    @classmethod
    def open(cls, location: Location, storage_options: Mapping[str, str] | None = None) -> CommitLog:
        """Open the log of the table at ``location``. Raises StoreMissingError, or OffsetStoreError if not readable."""
        options = dict(storage_options or {})
        log = DeltaLog.open(location, options)
        try:
            table = load_table(location, options)
        except StoreMissingError:
            raise
        except OffsetStoreError as error:
            why = _first_damage(log)
            raise OffsetStoreError(f"{error}" if why is None else f"{why}, so {location} cannot be loaded") from error
        listing = log.listing()
        versions = set(listing.commits)
        oldest = table.version()
        if oldest not in versions:
            raise OffsetStoreError(f"{location}: the log file of the newest version, {oldest}, is missing")
        while oldest - 1 in versions:
            oldest -= 1
        return cls(location, table, oldest, log, listing)

    @property
    def missing_below(self) -> int | None:
        """The version missing right before the oldest one read, if older ones exist: no clean-up leaves such a gap."""
        return self.oldest_version - 1 if self.listing.commits[0] < self.oldest_version else None

    @property
    def newest_version(self) -> int:
        """The version up to which commits are returned; later ones were made while this log was read."""
        return self.table.version()

    def commits(self, first: int | None = None) -> Iterator[LogCommit]:
        """Yield kept commits from version ``first`` on, oldest first. Raises OffsetStoreError if one is missing."""
        versions = range(self.oldest_version if first is None else first, self.newest_version + 1)
        for version, actions in zip(versions, self.log.actions_of(versions, _KINDS), strict=True):
            try:
                yield _commit(version, actions, self.location)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise OffsetStoreError(
                    f"{self.location}: version {version} of the log cannot be read: {error!r}"
                ) from error

    def oldest_state(self) -> StoredState | None:
        """Return ids at the oldest checkpoint before kept commits; None if not needed. Raises OffsetStoreError."""
        if self.oldest_version == 0:
            return None
        useful = [at for at in self.listing.checkpoints if self.oldest_version - 1 <= at <= self.newest_version]
        if not useful:
            raise OffsetStoreError(
                f"{self.location}: versions before {self.oldest_version} are gone from the log, and no checkpoint "
                "replaces them: files of _delta_log were deleted by hand"
            )
        version = min(useful)
        return StoredState(version, _ours(self.checkpoint(version).actions(("txn",))["txn"]))

    def checkpoint(self, version: int) -> StoredCheckpoint:
        """Return a checkpoint of the listing."""
        return StoredCheckpoint(self.log, version, self.listing.checkpoints[version])

    def stored(self, txn_ids: Iterable[str]) -> dict[str, int]:
        """Return the versions of transaction identifiers as delta-rs, an independent reader, sees them."""
        looked_up = {txn_id: self.table.transaction_version(txn_id) for txn_id in txn_ids}
        return {txn_id: version for txn_id, version in looked_up.items() if version is not None}


def _commit(version: int, actions: Mapping[str, list[Action]], location: Location) -> LogCommit:
    info = actions["commitInfo"][0] if actions["commitInfo"] else {}
    transactions = _ours(actions["txn"])
    entry = read_entry(version, info, transactions)
    known = entry.batch is not None or entry.change is not None
    damage = actions[DAMAGE][0]["what"] if actions[DAMAGE] else None
    removed_files = sum(1 for each in actions["remove"] if each.get("dataChange", True))
    added, removed = (tuple(_file(each, location) for each in actions[kind]) for kind in ("add", "remove"))
    unreadable = None if known else info.get(COMMIT_INFO_KEY)
    parameters = info.get("operationParameters")
    is_overwrite = isinstance(parameters, Mapping) and parameters.get("mode") in ("Overwrite", "Complete")
    others = _others(actions["txn"])
    return LogCommit(entry, transactions, unreadable, damage, removed_files, added, removed, others, is_overwrite)


def _file(action: Action, location: Location) -> FileKey:
    """Return what names a file of a commit, and is the same for a path below the table's folder and its address."""
    path = str(action["path"])
    return names_of(path, location)[0], vector_id(action.get("deletionVector"))


def _first_damage(log: DeltaLog) -> str | None:
    """Return which commit after the newest checkpoint prevents readers from loading the table; None if none does."""
    listing = log.listing()
    if not listing.commits:
        return None
    newest = listing.commits[-1]
    after = listing.newest_checkpoint(newest)
    for version in range(listing.commits[0] if after is None else after + 1, newest + 1):
        try:
            damage = log.actions(version, (DAMAGE,))[DAMAGE]
        except LogFileMissingError:
            return f"version {version} is missing from {log.folder}, and later ones are there"
        if damage:
            return f"version {version} in {log.folder}: {damage[0]['what']}"
    return None


def _others(transactions: Iterable[Action]) -> dict[str, int]:
    return {txn["appId"]: int(txn["version"]) for txn in transactions if not txn["appId"].startswith(PREFIX + "/")}


def _ours(transactions: Iterable[Action]) -> dict[str, int]:
    return {txn["appId"]: int(txn["version"]) for txn in transactions if txn["appId"].startswith(PREFIX + "/")}
