"""All connections of a broker: their number, their memory, and limits for slow ones.

Theory of operation: every second a sweep checks each connection and compares it with the last sweep. Nothing is timed
while requests are handled. A connection is closed if an incomplete frame takes too long, if it does not read its
responses, or, silently, if it is idle. The memory of incomplete requests and unread responses is counted for all
connections together. At the limit, the connections that hold most are closed, first those without progress since the
last sweep: not the one that needs memory next, which may be little. No connection waits for memory, since it could be
waiting for itself.
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
    """All connections together hold too much memory."""


class BulkTurns:
    """Limits the large requests handled in each round of the loop, across all connections.

    So a small request waits for one very large one at most, or for several that are together as large, however many
    clients load in bulk. If for a while there have been only one client's large requests, that client need not wait for
    turns: it is served once in a round anyway, when its socket is read, and no other request has to come first.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: deque[tuple[object, int, Callable[[], None]]] = deque()
        self._last: object = None
        self._turns_alone = 0

    def book(self, owner: object, size: int, turn: Callable[[], None]) -> None:
        """Schedule `turn` for the turn of `owner`, with a request of `size` bytes."""
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append((owner, size, turn))

    def is_alone(self, owner: object) -> bool:
        """Whether the last turns were all `owner`'s, without a small request in between, and none is scheduled."""
        return self._last is owner and self._turns_alone >= limits.BULK_TURNS_ALONE and not self._waiting

    def small_request(self) -> None:
        """Note a small request: its client may not be alone."""
        self._turns_alone = 0

    def forget(self, owner: object) -> None:
        """Remove an owner whose connection is closed."""
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
    """The bytes held by all connections together."""

    __slots__ = ("limit", "make_room", "used")

    def __init__(self, limit: int, make_room: Callable[[object, str], None] = lambda *_: None) -> None:
        """Begin at 0; `make_room` is called with the owner that needs memory, and why others are closed."""
        self.limit = limit
        self.used = 0
        self.make_room = make_room

    def change(self, more: int, owner: object) -> None:
        """Add bytes held by `owner`, or subtract them, if negative.

        Raises:
            MemoryBoundError: if that exceeds the limit, and no other holds more than the owner; it is counted all the
                same, until the connection is closed.
        """
        self.used += more
        if more > 0 and self.used > self.limit:
            text = f"all connections together hold more than {self.limit} bytes in requests and answers"
            self.make_room(owner, text)
            if self.used > self.limit:
                raise MemoryBoundError(text)


class Progress(Protocol):
    """The progress of a connection, for a sweep."""

    @property
    def requests(self) -> int:
        """How many requests it has sent so far."""

    @property
    def is_served(self) -> bool:
        """Whether the client waits for the broker."""

    @property
    def frame_bytes(self) -> int | None:
        """The size of the incomplete frame, as far as known; None if there is none."""

    @property
    def here_bytes(self) -> int:
        """How many bytes of requests have arrived, but are not handled."""

    @property
    def unsent_bytes(self) -> int:
        """How many bytes of responses it has not read."""


class Watch:
    """The last sweep's state of one connection; times in milliseconds of a monotonic clock."""

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
        """Return why the connection must be closed, if so."""
        if seen.requests != self._requests:
            self._requests = seen.requests
            self._active_ms = now_ms
            self._frame_ms = None
        place = _place(seen)
        self._still, self._place = place == self._place, place
        return self._late_frame(seen, now_ms) or self._late_reader(seen, now_ms)

    def stands_still(self, seen: Progress) -> bool:
        """Whether neither requests nor responses have made progress since the last sweep but one."""
        return self._still and self._place == _place(seen)

    def idle_ms(self, seen: Progress, now_ms: int) -> int:
        """Return how long the connection has been idle."""
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
    """A connection, as the table sees it."""

    watch: Watch

    @property
    def held_bytes(self) -> int:
        """Its share of the memory; 0 once it is closed."""

    @property
    def listener_name(self) -> str:
        """The name of the connection's listener."""

    @property
    def host(self) -> str:
        """The client's address, without the port."""

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
        self.shared_buffer = memoryview(bytearray(limits.READ_BUFFER_BYTES))
        """What connections without a read buffer of their own are read into, one at a time."""
        self.encrypted_buffer = memoryview(bytearray(limits.READ_BUFFER_BYTES))
        """What TLS connections are read into before anything is decrypted."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply changed limits; open connections stay open."""
        self._config = config

    def close(self) -> None:
        """Close every connection, including those being accepted once they are made."""
        self._closed = True
        for member in self:
            member.close()

    def take_shared_buffer(self) -> None:
        """Leave the shared buffer to the connection that was just read into it, and make another."""
        self.shared_buffer = memoryview(bytearray(limits.READ_BUFFER_BYTES))

    def has_room(self) -> bool:
        """Whether one more connection may be accepted; if not, logs why."""
        if self._closed:
            return False
        if len(self._members) < self._config.max_connections:
            return True
        self._note_refusal(f"connection refused: max.connections={self._config.max_connections} are open")
        return False

    def admit(self, member: Member) -> bool:
        """Add a connection, unless there are too many, in total or from its address."""
        if not self.has_room():  # several may have been accepted since the last check
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
        """Remove a connection; does nothing if it was never added."""
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
        """Close the connections that hold most, until there is enough, or until the owner holds most.

        From stalled connections a share beyond the need is released, so that a burst of new connections does not
        check all connections each time.
        """
        for member in self._members:
            if not member.is_served and member is not owner:
                member.shrink()
        ranked = sorted(
            (member is owner or not member.watch.stands_still(member), -member.held_bytes, number, member)
            for number, member in enumerate(self._members)
            if member.held_bytes >= limits.READ_BUFFER_BYTES or member is owner
        )
        ample = self.memory.limit - self.memory.limit // limits.ROOM_SHARE
        for moves, _, _, member in ranked:
            if self.memory.used <= (self.memory.limit if moves else ample) or member is owner:
                break
            member.cut_off(reason)

    def sweep(self) -> None:
        """Check every connection, and close those that are too slow or idle."""
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
