"""Producer ids, each given out once for all times.

Theory of operation: ids are taken from a block; before the first of a block is given out, the block's end is on the
disk. A broker that dies loses what was left of its block, never gives an id twice.
"""

from __future__ import annotations

from broker_lite.log.storage import Storage

BLOCK_SIZE = 1000


class ProducerIds:
    """Gives out producer ids."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self._path = path
        try:
            self._next = self._end = int(storage.read(path))
        except FileNotFoundError:
            self._next = self._end = 0

    def take(self) -> int:
        """Give an id that was never given before."""
        if self._next == self._end:
            self._storage.write(self._path, b"%d\n" % (self._end + BLOCK_SIZE), durable=True)
            self._end += BLOCK_SIZE
        self._next += 1
        return self._next - 1
