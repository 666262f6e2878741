"""The latest offset of each key of a log's dirty part: what compaction keeps goes by it.

The map has room for as many keys as `log.cleaner.dedupe.buffer.size` has bytes for. When that is used up, the rest of
the dirty part waits for the next round. Short keys are kept as they are and long ones as a SHA-256, so unlike Kafka's
16 bytes of MD5 no two keys are ever taken for one.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

ENTRY_BYTES: Final = 200
"""What one key costs in memory, measured with keys of 32 bytes: the key, the offset, its share of a growing dict."""
LONGEST_PLAIN_KEY_BYTES: Final = 32


class OffsetMap:
    """Offsets by key, up to a bound. `latest_offset` is the last offset that the map knows of."""

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float = 1.0) -> None:
        self._offsets: dict[bytes, int] = {}
        self.capacity = max(int(memory_bytes / ENTRY_BYTES * load_factor), 1)
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note a record; False if there is no room for another key."""
        if len(self._offsets) >= self.capacity:
            return False
        self._offsets[_short(key)] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the latest offset of a key, -1 if it is not in the dirty part."""
        return self._offsets.get(_short(key), -1)

    def advance(self, offset: int) -> None:
        """Note that the map knows all keys up to `offset`."""
        self.latest_offset = max(self.latest_offset, offset)


def _short(key: bytes) -> bytes:
    # A shortened key is longer than any key that is kept as it is, so the two cannot be mixed up.
    return key if len(key) <= LONGEST_PLAIN_KEY_BYTES else b"#" + sha256(key).digest()
