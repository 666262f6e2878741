"""All connections of a broker: how many there are, what they hold, and who is too slow.

Theory of operation: every second a sweep checks each connection and compares it with the last time. Nothing is timed
while requests are served. A connection is closed if a frame that it has begun is not complete in time, if it does not
read its answers, or, silently, if it has been idle. The memory that connections hold, incomplete requests and unread
answers, is counted for all of them together. When the bound is reached, those that hold most are closed, first those
without progress since the last sweep: not the next one that asks, which may need a few bytes only. No connection waits
for memory, since it could be waiting for itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.server import limits


class Loop(Protocol):
    """The part of an event loop that turns need."""

    def call_soon(self, callback: Callable[[], None]) -> object:
        """Call in the next round."""


class MemoryBoundError(Exception):
    """The connections together hold too much."""


class BulkTurns:
    """Lets few large requests be handled in each round of the loop, whatever connections they come from.

    So a small request waits for one very large one at most, or for some that are together as large, however many
    clients load in bulk. When there have been only one client's large requests for a while, that client need not wait
    for turns: it is served once in a round anyway, when its socket is read, and no other request has to go first.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[object, int, Callable[[], None]]] = deque()
        self._last: object = None
        self._turns_alone = 0

    def book(self, owner: object, size: int, turn: Callable[[], None]) -> None:
        """Let `turn` be called when it is the turn of `owner`, for a request of so many bytes."""
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append((owner, size, turn))

    def is_alone(self, owner: object) -> bool:
        """Whether the last turns were all `owner`'s, no small request came in between, and no turn is booked."""
        return self._last is owner and self._turns_alone >= limits.BULK_TURNS_ALONE and not self._waiting

    def small_request(self) -> None:
        """Note a small request: its client may not be alone."""
        self._turns_alone = 0

    def forget(self, owner: object) -> None:
        """Forget an owner that is gone."""
        if self._last is owner:
            self._last = None

    def _run(self) -> None:
        turns, budget = [], limits.BULK_BYTES_PER_ROUND
        while self._waiting and budget > 0:
            owner, size, turn = self._waiting.popleft()
            self._turns_alone = self._turns_alone + 1 if owner is self._last else 0
            self._last = owner
            budget -= size
            turns.append(turn)
        if self._waiting:
            self._loop.call_soon(self._run)
        for turn in turns:
            turn()


class Memory:
    """Bytes that all connections hold together."""

    __slots__ = ("limit", "make_room", "used")

    def __init__(self, limit: int, make_room: Callable[[object, str], None] = lambda *_: None) -> None:
        """Begin with nothing; `make_room` is called with the owner that needs memory, and why others are closed."""
        self.limit = limit
        self.used = 0
        self.make_room = make_room

    def change(self, more: int, owner: object) -> None:
        """Count bytes that `owner` holds from now on, or, if negative, no longer.

        Raises:
            MemoryBoundError: if that is too much, and others do not hold more than the owner; it is counted all the
                same, until the connection is closed.
        """
        self.used += more
        if more > 0 and self.used > self.limit:
            text = f"all connections together hold more than {self.limit} bytes in requests and answers"
            self.make_room(owner, text)
            if self.used > self.limit:
                raise MemoryBoundError(text)


class Progress(Protocol):
    """What a sweep sees of a connection."""

    @property
    def requests(self) -> int:
        """How many requests it has sent so far."""

    @property
    def is_served(self) -> bool:
        """Whether it waits for the broker, not the broker for it."""

    @property
    def frame_bytes(self) -> int | None:
        """How many bytes the frame has that is on its way, as far as known; None if there is none."""

    @property
    def here_bytes(self) -> int:
        """How many bytes of requests are here that have not been handled."""

    @property
    def unsent_bytes(self) -> int:
        """How much of its answers it has not read yet."""


class Watch:
    """What the last sweep saw of one connection; times in milliseconds of a clock that never goes back."""

    __slots__ = ("_active_ms", "_frame_ms", "_place", "_requests", "_stalled_ms", "_still", "_unsent")

    def __init__(self, now_ms: int) -> None:
        self._requests = -1
        self._place: tuple[int, int, int] | None = None
        self._still = False
        self._active_ms = now_ms
        self._frame_ms: int | None = None
        self._unsent = 0
        self._stalled_ms = now_ms

    def look(self, seen: Progress, now_ms: int) -> str | None:
        """Return what the connection is to be cut off for, if anything."""
        if seen.requests != self._requests:
            self._requests = seen.requests
            self._active_ms = now_ms
            self._frame_ms = None
        place = _place(seen)
        self._still, self._place = place == self._place, place
        return self._late_frame(seen, now_ms) or self._late_reader(seen, now_ms)

    def stands_still(self, seen: Progress) -> bool:
        """Whether nothing of its requests has come, nor of its answers gone, since the last sweep but one."""
        return self._still and self._place == _place(seen)

    def idle_ms(self, seen: Progress, now_ms: int) -> int:
        """Return for how long there was nothing to do for the connection."""
        if seen.is_served or seen.unsent_bytes or seen.requests != self._requests:
            self._active_ms = now_ms
        return now_ms - self._active_ms

    def _late_frame(self, seen: Progress, now_ms: int) -> str | None:
        size = seen.frame_bytes
        if size is None or seen.is_served:
            self._frame_ms = None
            return None
        if self._frame_ms is None:
            self._frame_ms = now_ms
        allowed_ms = limits.FRAME_TIMEOUT_MS + size * 1000 // limits.MIN_RECEIVED_BYTES_PER_S
        if now_ms - self._frame_ms <= allowed_ms:
            return None
        return f"its frame of {size} bytes did not get whole within {allowed_ms} ms"

    def _late_reader(self, seen: Progress, now_ms: int) -> str | None:
        unsent = seen.unsent_bytes
        if not unsent or unsent < self._unsent:
            self._stalled_ms = now_ms
        self._unsent = unsent
        if now_ms - self._stalled_ms <= limits.SEND_TIMEOUT_MS:
            return None
        return f"it has not read any of {unsent} bytes of answers for {limits.SEND_TIMEOUT_MS} ms"


def _place(seen: Progress) -> tuple[int, int, int]:
    return seen.requests, seen.here_bytes, seen.unsent_bytes


class Member(Progress, Protocol):
    """A connection, as far as the table needs it."""

    watch: Watch

    @property
    def held_bytes(self) -> int:
        """What it holds of the memory of all; nothing once it is closed."""

    @property
    def listener_name(self) -> str:
        """The listener that the connection came in at."""

    @property
    def host(self) -> str:
        """The address that it comes from, without the port."""

    def cut_off(self, reason: str) -> None:
        """Close with a line in the log."""

    def close(self) -> None:
        """Close silently."""

    def shrink(self) -> None:
        """Release memory that an idle connection does not need."""


class ConnectionTable:
    """The open connections."""

    def __init__(
        self, config: BrokerConfig, loop: Loop, now_ms: Callable[[], int], note_refusal: Callable[[str], object]
    ) -> None:
        self._config = config
        self.bulk_turns = BulkTurns(loop)
        self.now_ms = now_ms
        self._note_refusal = note_refusal
        self._members: dict[Member, None] = {}
        self._by_host: dict[str, int] = {}
        self.memory = Memory(limits.MAX_HELD_BYTES, self._make_room)
        self._closed = False

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed limits; connections that are open stay open."""
        self._config = config

    def close(self) -> None:
        """Close every connection, and those that are still being accepted as soon as they are made."""
        self._closed = True
        for member in self:
            member.close()

    def has_room(self) -> bool:
        """Whether one more connection may come; else says in the log why not."""
        if self._closed:
            return False
        if len(self._members) < self._config.max_connections:
            return True
        self._note_refusal(f"connection refused: max.connections={self._config.max_connections} are open")
        return False

    def admit(self, member: Member) -> bool:
        """Add a connection, unless there are too many, in all or from its address."""
        if not self.has_room():  # several may have been accepted since it was asked before
            return False
        count = self._by_host.get(member.host, 0)
        most = self._config.max_connections_per_ip
        if count >= most:
            self._note_refusal(f"connection from {member.host} refused: max.connections.per.ip={most} are open")
            return False
        self._by_host[member.host] = count + 1
        self._members[member] = None
        return True

    def discard(self, member: Member) -> None:
        """Forget a connection; does nothing if it was never added."""
        if member not in self._members:
            return
        del self._members[member]
        self.bulk_turns.forget(member)
        left = self._by_host[member.host] - 1
        if left:
            self._by_host[member.host] = left
        else:
            del self._by_host[member.host]

    def _make_room(self, owner: object, reason: str) -> None:
        """Cut off those that hold most, until there is enough, or until it is the owner's turn.

        From those that stand still a share is taken beyond what is needed, so that there need not be a look at all
        connections for each of many that come.
        """
        for member in self._members:
            if not member.is_served and member is not owner:
                member.shrink()
        ranked = sorted(
            (member is owner or not member.watch.stands_still(member), -member.held_bytes, number, member)
            for number, member in enumerate(self._members)
            if member.held_bytes > limits.READ_BUFFER_BYTES or member is owner
        )
        ample = self.memory.limit - self.memory.limit // limits.ROOM_SHARE
        for moves, _, _, member in ranked:
            if self.memory.used <= (self.memory.limit if moves else ample) or member is owner:
                break
            member.cut_off(reason)

    def sweep(self) -> None:
        """Look at every connection, and cut off those that are too slow or idle."""
        now_ms = self.now_ms()
        most_idle_ms = self._config.connections_max_idle_ms
        for member in list(self._members):
            reason = member.watch.look(member, now_ms)
            if reason is not None:
                member.cut_off(reason)
                continue
            idle_ms = member.watch.idle_ms(member, now_ms)
            if 0 <= most_idle_ms < idle_ms:
                member.close()
            elif idle_ms > limits.SHRINK_AFTER_MS:
                member.shrink()
