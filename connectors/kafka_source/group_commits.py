"""Committed offsets of a consumer group that follow a query, for lag tools only; never used for a decision.

Callers offer the end offsets of finished batches here. A thread with a client of its own commits them, so a slow
coordinator does not slow the query, and no error fails it: the first of consecutive failures is logged as a warning,
and the thread retries. Each commit fetches the group's offsets first and moves no partition back. Kafka itself does not
compare, so with two processes that commit at the same moment this is best effort.

A group in which a sink stores its offsets (`offset_store.group`) is not changed: the sink commits there, with metadata.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.group import REFRESH_MS, Committed, CommittedOffset, Note, Slot
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.options import OptionError

REFRESH_S = REFRESH_MS / 1000
"""How long until unchanged offsets are committed again, so that they do not expire."""
RETRY_AFTER_S = 10.0
"""Pause after a failure."""
SETTLE_S = 10.0
"""How long a query waits for a commit of its group, once: a new cluster creates __consumer_offsets in that time."""

_EXPECTED = (OffsetStoreError, OSError, KafkaError, ProtocolError, MissingTopicError, OptionError)
"""Errors whose message is enough, without a stack trace."""

_log = logging.getLogger(__name__)


class GroupCommitter:
    """Commits offsets of finished batches to one group; its thread starts with the first offer.

    Only one thread may offer. ``clock`` returns monotonic seconds.
    """

    def __init__(self, settings: ClientSettings, group_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._group_id = group_id
        self._clock = clock
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pending: dict[Slot, int] = {}
        """Offsets to commit; refused ones are put back, unless there is a newer one."""
        self._untried = False
        """Whether any of them has not been tried yet."""
        self._trying: dict[Slot, int] = {}
        self._closed = False
        self._slow = False
        self._known: dict[Slot, int] = {}
        """The newest offsets that the group has or had."""
        self._refreshed_at = clock()
        self._not_before = clock()
        self._warned = False

    def offer(self, finished: Mapping[Slot, int]) -> None:
        """Queue the next offsets of finished batches for a commit; those that the group already has cost nothing."""
        with self._state:
            if self._closed:
                return
            self._refresh()
            newest = {**self._known, **self._trying, **self._pending}
            changed = {slot: offset for slot, offset in finished.items() if newest.get(slot) != offset}
            if changed:
                self._pending.update(changed)
                self._untried = True
            if self._pending and self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"group {self._group_id}", daemon=True)
                self._thread.start()
            self._state.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until each offered offset is committed or refused; returns whether they are.

        After a failure it also waits for the next attempt, RETRY_AFTER_S later.
        """
        with self._state:
            return self._state.wait_for(self._is_settled, timeout_s)

    def settle_once(self, timeout_s: float = SETTLE_S) -> None:
        """As `settle`, but not after a failure; after one timeout, not again until all is settled."""
        rests = self._clock() < self._not_before
        self._slow = not self.settle(0 if self._slow or rests else timeout_s)

    def close(self, timeout_s: float = SETTLE_S) -> None:
        """Commit what was offered, within the timeout, and accept no further offers."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _is_settled(self) -> bool:
        return not self._untried and not self._trying

    def _refresh(self) -> None:
        """Commit the group's offsets again, if the last time was long ago."""
        now = self._clock()
        if now - self._refreshed_at >= REFRESH_S:
            self._refreshed_at = now
            self._untried = self._untried or bool(self._known)
            self._pending = {**self._known, **self._pending}
            self._known = {}

    def _run(self) -> None:
        client = Client(self._settings)
        group = KafkaGroupOffsets(client, self._group_id, option="commitGroup")
        try:
            while True:
                with self._state:
                    while not self._is_due():
                        self._state.wait(self._due_in_s())
                    self._trying, self._pending, self._untried = self._pending, {}, False
                    is_last = self._closed
                if self._trying:
                    self._commit(group, self._trying)
                with self._state:
                    self._trying = {}
                    self._state.notify_all()
                if is_last:
                    return
        finally:
            client.close()

    def _is_due(self) -> bool:
        self._refresh()
        return self._closed or (bool(self._pending) and self._clock() >= self._not_before)

    def _due_in_s(self) -> float:
        at = self._not_before if self._pending else self._refreshed_at + REFRESH_S
        return max(0.0, at - self._clock())

    def _commit(self, group: KafkaGroupOffsets, wanted: Mapping[Slot, int]) -> None:
        try:
            group.update(lambda committed: moved_forward(group, committed, wanted))
        except Exception as error:  # any error: a dead thread would silently stop the commits
            with self._state:
                self._not_before = self._clock() + RETRY_AFTER_S
                if not _names_a_missing_topic(error):
                    self._pending = {**wanted, **self._pending}
            if not self._warned:
                self._warned = True
                said = str(error).removeprefix("kafka_once: ") if isinstance(error, _EXPECTED) else repr(error)
                _log.warning(
                    "kafka_once: %s. The query continues; its group is behind until commits succeed again", said
                )
            return
        if self._warned:
            self._warned = False
            _log.warning("kafka_once: %s accepts offsets again", group)
        with self._state:
            self._known.update(wanted)


def _names_a_missing_topic(error: Exception) -> bool:
    """Whether an offset was refused because its topic is gone: the broker accepted the others."""
    cause = error.__cause__
    return isinstance(cause, KafkaError) and cause.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def moved_forward(group: object, committed: Committed, wanted: Mapping[Slot, int]) -> dict[Slot, CommittedOffset]:
    """Return what to commit so that nothing goes back. Raises OffsetStoreError if ``group`` is a sink's."""
    for slot in sorted(wanted.keys() & committed.keys()):
        note = Note.from_text(committed[slot].metadata)
        if note is not None:
            raise OffsetStoreError(
                f"{group} keeps the offsets of appId {note.app_id!r}, whose sink commits there: leave out commitGroup, "
                "or choose another group id for it"
            )
    return {
        slot: CommittedOffset(offset)
        for slot, offset in wanted.items()
        if slot not in committed or committed[slot].offset <= offset
    }
