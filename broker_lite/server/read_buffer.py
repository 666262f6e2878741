"""The bytes of a connection's requests that are not handled yet: bytes in, frames out.

Theory of operation: frames lie where they were read, and produced records go from there to the file without a copy. A
connection of which nothing is left has no buffer of its own: all such share one, and a connection keeps it when a part
of a frame stays in it. A request that waits takes the buffer along (`pass_on`), since what was decoded from it lies
there. Small requests are copied out before they are handled, which costs less than the buffer that each would take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkonce.broker_lite.server.connections import MemoryBoundError
from sparkonce.broker_lite.server.limits import COPIED_BYTES, MAX_IDLE_READ_BUFFER_BYTES, READ_BUFFER_BYTES
from sparkonce.kafka.protocol.errors import ProtocolError
from sparkonce.kafka.protocol.frames import API_KEY, SIZE, frame_size

if TYPE_CHECKING:
    from sparkonce.broker_lite.server.connections import ConnectionTable

_SIZE_BYTES = SIZE.size
_size_at = SIZE.unpack_from
_NOTHING = memoryview(bytearray())
"""In place of a buffer: another's, which is kept alive by nothing but an idle connection, would stay in memory."""


class ReadBuffer:
    """One connection's read buffer."""

    __slots__ = (
        "_end",
        "_is_closed",
        "_is_own",
        "_owner",
        "_start",
        "_table",
        "_view",
        "counted_bytes",
        "frame_limit",
        "limit_setting",
    )

    def __init__(self, table: ConnectionTable, owner: object, frame_limit: int, limit_setting: str) -> None:
        """Begin empty; its memory is counted in `table`, as the `owner`'s."""
        self._table = table
        self._owner = owner
        self.frame_limit = frame_limit
        """The largest frame that is accepted, in bytes."""
        self.limit_setting = limit_setting
        """The setting that says so."""
        self._view = _NOTHING
        self._is_own = False
        self._start = 0
        self._end = 0
        self._is_closed = False
        self.counted_bytes = 0
        """The memory of this connection: its buffer, and those of its requests that wait."""

    def free(self) -> memoryview:
        """Return the free part, to read into."""
        if self._start == self._end:
            self._start = self._end = 0
            if not self._is_own:
                self._view = self._table.shared_buffer
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Note how many bytes have been read into the free part."""
        self._end += count

    @property
    def size(self) -> int:
        """How many bytes are here."""
        return self._end - self._start

    # Frames.

    def next_frame_bytes(self) -> int:
        """Return the size of the next frame, if all of it is here; else -1.

        Raises:
            FrameSizeError: if its size is out of bounds.
        """
        here = self._end - self._start
        if here < _SIZE_BYTES:
            return -1
        size: int = _size_at(self._view, self._start)[0]
        if not 0 <= size <= self.frame_limit:  # raises the error
            frame_size(self._view[self._start : self._start + _SIZE_BYTES], self.frame_limit, self.limit_setting)
        return size if here >= _SIZE_BYTES + size else -1

    def missing_bytes(self) -> int:
        """How many bytes are missing from the next frame. Raises ProtocolError if the frame's size is out of bounds."""
        if self.next_frame_bytes() >= 0:
            return 0
        return _SIZE_BYTES + (self.next_size or 0) - self.size

    @property
    def next_size(self) -> int | None:
        """The size of the next frame, as far as it is known."""
        if self._end - self._start < _SIZE_BYTES:
            return None
        size: int = _size_at(self._view, self._start)[0]
        return size

    @property
    def next_api_key(self) -> int:
        """The API of the next frame, which is here as a whole."""
        key: int = API_KEY.unpack_from(self._view, self._start + _SIZE_BYTES)[0]
        return key

    def take(self, size: int) -> memoryview:
        """Remove and return the next frame, of that size, which is here as a whole."""
        begin = self._start + _SIZE_BYTES
        self._start = begin + size
        frame = self._view[begin : self._start]
        return frame if size > COPIED_BYTES else memoryview(bytearray(frame))

    # Memory.

    def holds(self, body: memoryview) -> bool:
        """Whether a request's body lies in this buffer."""
        return body.obj is self._view.obj

    def pass_on(self) -> int:
        """Leave the buffer to the request that lies in it; return its size, to be given to `release` in the end."""
        self.keep()
        passed, rest = len(self._view), self._view[self._start : self._end]
        self._start, self._end = 0, len(rest)
        self._is_own = bool(rest)
        self._view = memoryview(bytearray(max(len(rest), READ_BUFFER_BYTES))) if rest else _NOTHING
        self._view[: len(rest)] = rest
        self._count(len(self._view))
        return passed

    def release(self, passed: int) -> None:
        """Note that a request which has taken a buffer of that size has ended; does nothing after `close`."""
        if not self._is_closed:
            self._count(-passed)

    def keep(self) -> None:
        """Keep the buffer that was shared until now, with what is in it."""
        if not self._is_own:
            self._is_own = True
            self._table.take_shared_buffer()
            self._count(len(self._view))

    def make_room(self) -> bool:
        """Make room for the next read; return whether there is none before requests are handled."""
        here, capacity = self._end - self._start, len(self._view)
        if here == 0:
            was_full = self._end == capacity > 0
            self._start = self._end = 0
            if was_full and capacity < MAX_IDLE_READ_BUFFER_BYTES:
                self._rebuild(2 * capacity)
            elif capacity > MAX_IDLE_READ_BUFFER_BYTES:
                self._rebuild(MAX_IDLE_READ_BUFFER_BYTES)
            elif not self._is_own:
                self._view = _NOTHING
            return False
        if (missing := self.missing_bytes()) > capacity - self._end:
            if here + missing <= capacity:
                self._rebuild(capacity)
            elif self._end == capacity:
                # Memory is allocated as bytes arrive, not as announced by a header.
                self._rebuild(min(here + missing, max(4 * capacity, MAX_IDLE_READ_BUFFER_BYTES)))
        self.keep()
        return self._end == len(self._view)

    def shrink(self, *, to_nothing: bool) -> None:
        """Release an empty buffer, or only what it has grown by."""
        if self._start != self._end or not self._is_own:
            return
        if to_nothing:
            self._is_own = False
            self._count(-len(self._view))
            self._view = _NOTHING
        elif len(self._view) > READ_BUFFER_BYTES:
            self._rebuild(READ_BUFFER_BYTES)

    def close(self) -> None:
        """Drop what is here. Nothing is counted any more, even what a request that still runs has taken along.

        The limit closes connections to get memory, and would close others in vain for what no connection holds.
        """
        self._is_closed, self._is_own = True, False
        self._view = _NOTHING
        self._start = self._end = 0
        self._count(-self.counted_bytes)

    def _rebuild(self, capacity: int) -> None:
        here, former = self._end - self._start, self._view
        was_own = self._is_own
        if capacity != len(former):
            self._view = memoryview(bytearray(capacity))
            self._is_own = True
        self._view[:here] = former[self._start : self._end]
        self._start, self._end = 0, here
        if self._view is not former:
            self._count(capacity - (len(former) if was_own else 0))

    def _count(self, more: int) -> None:
        """Count memory, after it has been taken: if there is too much in all, `close` must give it back."""
        self.counted_bytes += more
        try:
            self._table.memory.change(more, self._owner)
        except MemoryBoundError as error:
            raise ProtocolError(str(error)) from None
