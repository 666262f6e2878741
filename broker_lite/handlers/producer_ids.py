"""Producer ids, each assigned only once, by a standalone broker (in a cluster: `producer_id_blocks.py`).

Theory of operation: ids are taken from a block; before the first of a block is assigned, the block's end is on the
disk. A broker that dies loses the rest of its block, and never assigns an id twice. A log directory that was a Kafka
broker's has no such file, as Kafka keeps its blocks with the controller: there the ids begin with the first block of
which the logs know no id, since a partition may take a batch under a known id for a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable

from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

BLOCK_SIZE = 1000
"""As in Kafka: an id that is known to the logs came from the block of this size that it is in."""


class ProducerIds:
    """Assigns producer ids."""

    def __init__(self, storage: Storage, path: str, largest_known: Callable[[], int]) -> None:
        """`largest_known` is asked for the largest id in the logs, -1 if none, when there is no file of ours."""
        self._storage = storage
        self._path = path
        self._largest_known = largest_known
        self._next: int | None
        try:
            self._next = self._end = int(storage.read(path))
        except FileNotFoundError:
            self._next, self._end = None, 0

    is_ready = True
    """Whether `take` returns an id at once."""

    def when_asked(self, then: Callable[[], None]) -> None:
        """Call back when `take` may be tried."""
        then()

    def take(self) -> int:
        """Return an id that was never assigned before.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS if the block's end cannot be written; as in Kafka's
                ProducerIdManager, since every client tries again after that one.
        """
        taken = self._next
        if taken is None:
            taken = self._end = (self._largest_known() // BLOCK_SIZE + 1) * BLOCK_SIZE
        if taken == self._end:
            try:
                self._storage.write(self._path, b"%d\n" % (self._end + BLOCK_SIZE), durable=True)
            except OSError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._path}: {error}") from error
            self._end += BLOCK_SIZE
        self._next = taken + 1
        return taken
