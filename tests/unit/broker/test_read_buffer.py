"""The read buffer of a connection: frames come out as they went in, and all memory that it counts is given back."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkonce.broker_lite.config import BrokerConfig
from sparkonce.broker_lite.server import limits
from sparkonce.broker_lite.server.connections import ConnectionTable
from sparkonce.broker_lite.server.read_buffer import ReadBuffer
from sparkonce.kafka.protocol.errors import ProtocolError

NO_LOOP: Any = None
SIZES = st.sampled_from([0, 1, 100, limits.COPIED_BYTES, limits.COPIED_BYTES + 1, 60_000, 300_000, 2_500_000])


def frame(number: int, size: int) -> bytes:
    return struct.pack(">i", size) + bytes([number % 251]) * size


@settings(deadline=None)
@given(
    frames=st.lists(st.tuples(SIZES, st.booleans()), max_size=12),
    reads=st.lists(st.integers(1_000, 400_000), min_size=1, max_size=20),
    limit=st.sampled_from([200_000, 3_000_000, 1 << 30]),
    shrinks=st.booleans(),
)
def test_what_waits_keeps_its_bytes_and_all_memory_is_given_back(
    frames: list[tuple[int, bool]], reads: list[int], limit: int, shrinks: bool
) -> None:
    """Some requests wait, and take the buffer along; two connections share what neither owns."""
    table = ConnectionTable(BrokerConfig.of({}), NO_LOOP, lambda: 0, str)
    table.memory.limit = limit
    buffer, other = ReadBuffer(table, "a", 100 << 20, ""), ReadBuffer(table, "b", 100 << 20, "")
    stream = b"".join(frame(number, size) for number, (size, _) in enumerate(frames))
    position = number = turn = 0
    waiting: list[tuple[int, memoryview, int]] = []
    try:
        while number < len(frames):
            room = buffer.free()
            count = min(len(room), reads[turn % len(reads)], len(stream) - position)
            turn += 1
            room[:count] = stream[position : position + count]
            position += count
            buffer.filled(count)
            while (size := buffer.next_frame_bytes()) >= 0:
                body = buffer.take(size)
                assert bytes(body) == frame(number, size)[4:]
                if frames[number][1]:
                    waiting.append((number, body, buffer.pass_on() if buffer.holds(body) else 0))
                number += 1
            assert not buffer.make_room(), "all that is whole has been taken"
            if shrinks:
                buffer.shrink(to_nothing=False)
            other.free()[:50] = b"\xff" * 50  # another connection reads into what is shared
            other.make_room()
            for which, body, _ in waiting:
                assert bytes(body) == frame(which, frames[which][0])[4:]
        assert position == len(stream)
        if shrinks:
            buffer.shrink(to_nothing=True)
            assert buffer.counted_bytes == sum(passed for _, _, passed in waiting)
    except ProtocolError:  # too much memory in all: the connection is closed
        assert limit < 1 << 30
    if limit == 1 << 30:
        for _, _, passed in waiting[::2]:
            buffer.release(passed)
    buffer.close()
    assert (buffer.counted_bytes, table.memory.used) == (0, 0), "others are closed for what this one does not hold"
    for _, _, passed in waiting[1::2]:
        buffer.release(passed)
    assert (buffer.counted_bytes, table.memory.used) == (0, 0)
