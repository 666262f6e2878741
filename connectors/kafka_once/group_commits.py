"""Committed offsets of a consumer group that follow a query, for lag tools; no decision is ever taken from them.

Whoever knows that a batch is finished offers its end offsets here. A thread with a client of its own commits them, so a
slow coordinator does not slow the query, and nothing that goes wrong fails it: the first failure of a row is a warning,
and later offers try again. Each commit looks at the group first and moves no partition back. Kafka compares nothing by
itself, so between two processes that commit in the same moment this is an effort, not a promise.

A group that a sink keeps its offsets in (`offset_store.group`) is left alone: the sink commits there, with its notes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from broker_lite.protocol.errors import KafkaError, ProtocolError
from connectors.kafka_once.client import Client, MissingTopicError
from connectors.kafka_once.group_offsets import KafkaGroupOffsets
from connectors.kafka_once.settings import ClientSettings
from offset_store.errors import OffsetStoreError
from offset_store.group import REFRESH_MS, Committed, CommittedOffset, Note, Slot

REFRESH_S = REFRESH_MS / 1000
"""After how long offsets that stand still are committed again, lest the group forget them."""
RETRY_AFTER_S = 10.0
"""How long nothing is tried after a failure: an idle query asks many times a second."""
SETTLE_S = 10.0
"""How long a query waits for a commit of its group, once: a new cluster makes its topic of offsets in that time."""

_FAILURES = (OffsetStoreError, OSError, KafkaError, ProtocolError, MissingTopicError)

_log = logging.getLogger(__name__)


class GroupCommitter:
    """Commits offsets of finished batches to one group; its thread starts with the first offer.

    One thread offers. ``clock`` gives seconds that never go back.
    """

    def __init__(self, settings: ClientSettings, group_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._group_id = group_id
        self._clock = clock
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pending: dict[Slot, int] = {}
        self._busy = False
        self._closed = False
        self._slow = False
        self._known: dict[Slot, int] = {}
        """The newest offsets that the group has, or has left behind."""
        self._refreshed_at = clock()
        self._not_before = clock()
        self._warned = False

    def offer(self, finished: Mapping[Slot, int]) -> None:
        """Have the next offsets of finished batches committed soon; those that the group has cost nothing."""
        now = self._clock()
        with self._state:
            if self._closed or now < self._not_before:
                return
            if now - self._refreshed_at >= REFRESH_S:
                self._known.clear()
                self._refreshed_at = now
            changed = {slot: offset for slot, offset in finished.items() if self._known.get(slot) != offset}
            if not changed:
                return
            self._pending.update(changed)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"group {self._group_id}", daemon=True)
                self._thread.start()
            self._state.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until what was offered is committed or refused, and say whether that is so."""
        with self._state:
            return self._state.wait_for(self._is_settled, timeout_s)

    def settle_once(self, timeout_s: float = SETTLE_S) -> None:
        """Wait likewise; but after it has waited in vain, no more until all is settled."""
        self._slow = not self.settle(0 if self._slow else timeout_s)

    def close(self, timeout_s: float = SETTLE_S) -> None:
        """Commit what was offered, within the timeout, and take nothing more."""
        with self._state:
            self._closed = True
            self._state.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _is_settled(self) -> bool:
        return not self._pending and not self._busy

    def _run(self) -> None:
        client = Client(self._settings)
        group = KafkaGroupOffsets(client, self._group_id, option="commitGroup")
        try:
            while True:
                with self._state:
                    self._state.wait_for(lambda: self._pending or self._closed)
                    wanted, self._pending = self._pending, {}
                    self._busy = bool(wanted)
                if not wanted:
                    return
                self._commit(group, wanted)
                with self._state:
                    self._busy = False
                    self._state.notify_all()
        finally:
            client.close()

    def _commit(self, group: KafkaGroupOffsets, wanted: Mapping[Slot, int]) -> None:
        try:
            group.update(lambda committed: moved_forward(group, committed, wanted))
        except _FAILURES as error:
            with self._state:
                self._not_before = self._clock() + RETRY_AFTER_S
            if not self._warned:
                self._warned = True
                _log.warning("kafka_once: %s. The query goes on; its group is behind until this works again", error)
            return
        if self._warned:
            self._warned = False
            _log.warning("kafka_once: %s takes offsets again", group)
        with self._state:
            self._known.update(wanted)


def moved_forward(group: object, committed: Committed, wanted: Mapping[Slot, int]) -> dict[Slot, CommittedOffset]:
    """Give what to commit so that no partition goes back; those that stand still are committed again.

    Raises:
        OffsetStoreError: if ``group`` holds the offsets of a sink.
    """
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
