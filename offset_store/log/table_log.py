"""One table's log: the newest state, kept and moved forward, and commits that follow it.

A commit is a file that is put if it is absent. Whoever puts version N+1 first has it; the other reads what landed,
and either follows it with the same actions or must be decided again (`verdict`). Whether a put succeeded is always
known if the store answers: a put whose answer was lost is made again, and of two files of one version only one can be
there, which says by its ``txnId`` whose it is.

A kept state would not notice that its table was deleted and made again at the same place, so the file of its version
is looked at before each use: if it is another one, the log is loaded afresh.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.engine import engine_info
from sparkonce.offset_store.errors import (
    CatalogManagedError,
    CommitConflictError,
    LogFileMissingError,
    OffsetStoreError,
    StoreMissingError,
    plain,
)
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.actions import Actions, by_kind, to_lines
from sparkonce.offset_store.log.checkpoint_files import StoredCheckpoint
from sparkonce.offset_store.log.checkpoints import last_checkpoint
from sparkonce.offset_store.log.creation import NewTable, left_over
from sparkonce.offset_store.log.first_contact import check_store_answers
from sparkonce.offset_store.log.maintenance import Maintained, maintain
from sparkonce.offset_store.log.proposal import Proposal
from sparkonce.offset_store.log.protocol import catalog_feature, unreadable, unwritable
from sparkonce.offset_store.log.reader import DAMAGE, DeltaLog, LogListing, commit_file, complete_checkpoints
from sparkonce.offset_store.log.state import (
    IN_COMMIT_TIMESTAMPS,
    NEWS_KINDS,
    LogError,
    TableState,
    first_state,
)
from sparkonce.offset_store.log.storage import Tag
from sparkonce.offset_store.log.verdict import judge
from sparkonce.offset_store.secrets import hidden_secrets
from sparkonce.offset_store.store_hints import full_disk, store_hint_or_options

_log = logging.getLogger(__name__)
_UNKNOWN = "this version of sparkonce does not know"

COMMIT_ATTEMPTS = 100
"""How often the next version is tried after losing to other commits that do not conflict."""
PUTS = 3
"""How often a put is made whose outcome is unknown."""
LIST_EVERY_MS = 60_000
"""How often a local log is listed to look for holes."""
PAUSED_MS = 60 * 60 * 1000
"""A process that was suspended for longer may find its table's log cleaned up: far less than any sensible retention."""


@dataclass(slots=True)
class TableLog:
    """The log of the table at one location; for one thread."""

    location: Location
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _reader: DeltaLog | None = None
    _state: TableState | None = None
    _tag: Tag | None = None
    _read_ms: int = 0
    """When the newest state was last asked for."""
    _listed_ms: int = 0
    """When a local log was last listed to look for holes."""
    _maintained: Maintained = field(default_factory=lambda: Maintained(None))

    @property
    def reader(self) -> DeltaLog:
        """Reads its files one by one; opened on first use."""
        if self._reader is None:
            self._reader = DeltaLog.open(self.location, self.storage_options)
        return self._reader

    def state(self) -> TableState:
        """Return the newest state.

        Raises:
            StoreMissingError: if there is no table.
            OffsetStoreError: if its log cannot be read, or must not be by this version.
        """
        self._read_ms = now_ms()
        with self._errors("load"):
            if self._state is not None and self._is_kept():
                return self._followed(self._state, self._newest_after(self._state.version))
            check_store_answers(self.location, self.storage_options)
            listing = self._newest_listing()
            if listing.newest is None:
                raise StoreMissingError(f"there is no Delta table at {self.location}")
            tag = self.reader.storage.tag(commit_file(listing.newest))
            return self._keep(self._load(listing, listing.newest), tag)

    def state_at(self, version: int) -> TableState:
        """Return the state at a version. Raises OffsetStoreError if the log no longer has it."""
        with self._errors("load"):
            if self._state is not None and self._state.version <= version and self._is_kept():
                return self._followed(self._state, version)
            return self._load(self.reader.listing(), version)

    def create(self, table: NewTable) -> bool:
        """Make version 0 of a missing table; return whether it is this one: another writer may be faster.

        Raises:
            OSError: if the store does not answer, or refuses: the table may be there, or may yet be.
            OffsetStoreError: if the folder of its log holds something else.
        """
        attempt_id, storage = str(uuid.uuid4()), self.reader.storage
        with hidden_secrets(self.storage_options):
            names = self.reader.names()
            if commit_file(0) in names:
                return False
            strange = left_over(names)
            if strange:
                raise OffsetStoreError(
                    f"there is no table at {self.location}, and {self.reader.folder} is not empty: {strange[0]}"
                    f"{', …' if len(strange) > 1 else ''}. It may be what is left of another table: look at it, and "
                    "move it away, or use another path"
                )
            storage.prepare()
            actions = table.actions(self.location, attempt_id, now_ms(), engine_info())
            return self._put(0, to_lines(actions), attempt_id)

    def commit(self, proposal: Proposal, state: TableState) -> int:
        """Make a commit that was decided from ``state``; return its version.

        Raises:
            CommitConflictError: if another commit after that state must be looked at first.
            OffsetStoreError: if the store does not answer, or refuses: the commit may have landed, or may yet.
        """
        what = unwritable(state.protocol)
        if what is not None:
            raise OffsetStoreError(f"cannot commit to the table {self.location}: it requires {what}, which {_UNKNOWN}")
        attempt_id = str(uuid.uuid4())
        with self._errors("commit to"):
            if state is self._state and not self._is_kept():
                raise CommitConflictError(f"{self.location}: the table was replaced by another meanwhile")
            for _ in range(COMMIT_ATTEMPTS):
                version = state.version + 1
                actions = proposal.actions(state, attempt_id, now_ms(), engine_info())
                if self._put(version, to_lines(actions), attempt_id):
                    self._check_in_force(version)
                    self._landed(state.after(by_kind(actions, NEWS_KINDS)))
                    return version
                state = self._past(state, proposal)
        raise CommitConflictError(f"{self.location}: {COMMIT_ATTEMPTS} other commits were faster than this one")

    def _past(self, state: TableState, proposal: Proposal) -> TableState:
        """Return the state after the commit that has taken the next version.

        Raises:
            CommitConflictError: if the proposal must not follow it.
        """
        version = state.version + 1
        landed = next(self._strict(range(version, version + 1)))
        if proposal.alone:
            raise CommitConflictError(f"{self.location}: version {version} landed meanwhile")
        conflict = judge(proposal.touched, version, landed)
        if conflict is not None:
            raise CommitConflictError(f"{self.location}: {conflict}")
        with self._version_named(version):
            return state.after(landed)

    def _put(self, version: int, data: bytes, attempt_id: str) -> bool:
        """Put a commit's file; return whether the version is ours.

        Raises:
            OSError: if no file of that version is there: ours may yet arrive.
        """
        storage, name = self.reader.storage, commit_file(version)
        for left in range(PUTS if not storage.is_local else 1, 0, -1):
            try:
                if storage.put_if_absent(name, data):
                    return True
            except OSError as error:
                is_ours = self._is_ours(version, attempt_id)
                if is_ours:
                    _log.warning("%s: version %d has landed, though its put failed: %s", self.location, version, error)
                if is_ours is not None:
                    return is_ours
                if left == 1 or isinstance(error, PermissionError):
                    raise
            else:
                return bool(self._is_ours(version, attempt_id))
        return False

    def _is_ours(self, version: int, attempt_id: str) -> bool | None:
        """Whether a version is this attempt's commit; None if there is none."""
        try:
            infos = self.reader.actions(version, ("commitInfo",))["commitInfo"]
        except LogFileMissingError:
            return None
        return any(info.get("txnId") == attempt_id for info in infos)

    def _check_in_force(self, version: int) -> None:
        """Check that a commit did not land where the log was cleaned up meanwhile; in stores, after a long time."""
        paused_ms = now_ms() - self._read_ms
        storage = self.reader.storage
        if not (storage.is_local or paused_ms > PAUSED_MS) or storage.tag(commit_file(version - 1)) is not None:
            return
        if _is_readable(self.reader.names(), version):  # what is gone is older than a checkpoint that is not newer
            return
        storage.delete(commit_file(version))  # else whoever looks for this attempt finds it, and no reader of the table
        raise OffsetStoreError(
            f"version {version} of the table {self.location} was put {paused_ms // 60_000} minutes after the table "
            "was read, and the log before it has been cleaned up since: no reader finds it, so nothing was committed. "
            "Start the query again"
        )

    def _followed(self, state: TableState, newest: int) -> TableState:
        """Return the kept state, moved to a version."""
        if newest == state.version:
            return state
        tag = self.reader.storage.tag(commit_file(newest))
        return self._keep(self._folded(state, newest), tag)

    def _is_kept(self) -> bool:
        """Whether the kept state is of the table that is there."""
        state = self._state
        return state is not None and self.reader.storage.tag(commit_file(state.version)) == self._tag

    def _newest_after(self, version: int) -> int:
        """Return the newest version, at or after one that is there."""
        storage = self.reader.storage
        if not storage.is_local:
            return max(self.reader.listing(version).commits, default=version)
        while storage.tag(commit_file(version + 1)) is not None:
            version += 1
        # A commit that filled a hole would be in the past of later ones. One of two versions is noticed at once.
        if storage.tag(commit_file(version + 2)) is not None:
            return version + 2
        if now_ms() - self._listed_ms > LIST_EVERY_MS:
            self._listed_ms = now_ms()
            return max(self.reader.listing(version).commits, default=version)
        return version

    def _keep(self, state: TableState, tag: Tag | None) -> TableState:
        """Keep a state with a tag that is older than it: so a table that was replaced in between is noticed."""
        self._state, self._tag = (None, None) if tag is None else (state, tag)
        return state

    def _newest_listing(self) -> LogListing:
        """List the log from the checkpoint that ``_last_checkpoint`` names, if it is there; else the whole log."""
        hint = last_checkpoint(self.reader)
        if hint is not None:
            listing = self.reader.listing(hint)
            if hint in listing.checkpoints:
                return listing
        return self.reader.listing()

    def _landed(self, state: TableState) -> None:
        """Write a checkpoint and clean the log up, if they are due; what fails there does not undo the commit."""
        self._maintained = maintain(self.reader, state, last=self._maintained, now_ms=now_ms())
        if self._maintained.problem is not None:
            _log.warning("%s: %s", self.location, self._maintained.problem)

    def _load(self, listing: LogListing, version: int) -> TableState:
        checkpoint = listing.newest_checkpoint(version)
        self._maintained = Maintained(checkpoint)
        state = self._at_first() if checkpoint is None else self._at_checkpoint(listing, checkpoint)
        return self._folded(state, version)

    def _at_first(self) -> TableState:
        actions = next(self._strict(range(1)))
        with self._version_named(0):
            return self._readable(first_state(0, actions))

    def _at_checkpoint(self, listing: LogListing, version: int) -> TableState:
        with self._version_named(version):
            state = self._readable(StoredCheckpoint(self.reader, version, listing.checkpoints[version]).state())
            if state.metadata.is_on(IN_COMMIT_TIMESTAMPS):
                state = state.at_commit(next(self._strict(range(version, version + 1))))
        return state

    def _folded(self, state: TableState, newest: int) -> TableState:
        protocol = state.protocol
        for actions in self._strict(range(state.version + 1, newest + 1)):
            with self._version_named(state.version + 1):
                state = state.after(actions)
        return state if state.protocol == protocol else self._readable(state)

    def _strict(self, versions: range) -> Iterator[Actions]:
        """Yield the actions of commits. Raises OffsetStoreError if one is missing, or its file is damaged."""
        found = self.reader.actions_of(versions, (*NEWS_KINDS, DAMAGE))
        for version in versions:
            try:
                actions = next(found)
            except LogFileMissingError as error:
                raise self._unloadable(
                    f"version {version} is missing from {self.reader.folder}, and other files say that it was there: "
                    "files of _delta_log were deleted by hand, or by a clean-up at this moment"
                ) from error
            if actions[DAMAGE]:
                raise self._unloadable(f"version {version} in {self.reader.folder}: {actions[DAMAGE][0]['what']}")
            yield actions

    def _unloadable(self, why: str) -> OffsetStoreError:
        return OffsetStoreError(f"cannot load the Delta table at {self.location}: {why}")

    @contextmanager
    def _version_named(self, version: int) -> Iterator[None]:
        try:
            yield
        except LogError as error:
            raise self._unloadable(f"version {version} in {self.reader.folder} {error}") from error

    def _readable(self, state: TableState) -> TableState:
        """Return the state of a table whose log this version can read. Raises OffsetStoreError for another."""
        feature = catalog_feature(state.protocol)
        if feature is not None:
            raise CatalogManagedError(f"the table {self.location}: a catalog makes its commits (the feature {feature})")
        what = unreadable(state.protocol)
        if what is not None:
            raise OffsetStoreError(f"the table {self.location} requires {what}, which {_UNKNOWN}")
        return state

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Say of errors of the store which table it was, and what to do; hide secrets."""
        with hidden_secrets(self.storage_options), full_disk(self.location):
            try:
                yield
            except (OSError, ValueError) as error:
                why = plain(error)
                hint = store_hint_or_options(self.location, why)
                raise OffsetStoreError(f"cannot {what} the Delta table at {self.location}: {why}{hint}") from error


def _is_readable(names: Iterable[str], version: int) -> bool:
    """Whether a version can be read from a checkpoint at or before it."""
    there = {*names}
    base = max((each for each in complete_checkpoints(there) if each <= version), default=None)
    return base is not None and {commit_file(each) for each in range(base + 1, version + 1)} <= there
