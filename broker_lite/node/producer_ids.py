"""Producer ids, each assigned only once: by a standalone broker, or out of the controller's blocks (KIP-730).

Theory of operation: ids are taken from a block; before the first of a block is assigned, the block's end is on the
disk. A broker that dies loses the rest of its block, and never assigns an id twice. A log directory that was a Kafka
broker's has no such file, as Kafka keeps its blocks with the controller: there the ids begin with the first block of
which the logs know no id, since a partition may take a batch under a known id for a duplicate.

In a cluster the controller hands out the blocks. A block belongs to one broker alone, and is never assigned again, so
ids are taken from it without a request. When little is left of it the next one is requested.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember

BLOCK_SIZE = 1000
"""As in Kafka: an id that is known to the logs came from the block of this size that it is in."""

logger = logging.getLogger(__name__)

PREFETCH_SHARE: Final = 10
"""When no more than one in so many of a block's ids is left, the next block is asked for, as in Kafka."""


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


class ProducerIdBlocks:
    """Assigns producer ids; as `ProducerIds`."""

    def __init__(self, member: ClusterMember) -> None:
        self._member = member
        self._block = range(0)
        self._next_block = range(0)
        self._block_size = 0
        self._is_asking = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_ready(self) -> bool:
        """Whether `take` returns an id without a request to the controller."""
        return bool(self._block or self._next_block)

    def when_asked(self, then: Callable[[], None]) -> None:
        """Call back when the controller has answered: `take` may be tried then."""
        self._waiting.append(then)
        self._ask()

    def take(self) -> int:
        """Return an id that was never assigned before.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS if none is at hand yet, after which every client tries again.
        """
        if not self._block:
            self._block, self._next_block = self._next_block, range(0)
        if not self._block:
            self._ask()
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller has been asked for producer ids")
        taken, self._block = self._block[0], self._block[1:]
        if not self._next_block and len(self._block) * PREFETCH_SHARE <= self._block_size:
            self._ask()
        return taken

    def _ask(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        member = self._member
        request = apis.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=member.broker_id, broker_epoch=member.broker_epoch
        )
        member.send_to_controller(request, self._take)

    def _take(self, answer: Any) -> None:
        self._is_asking = False
        if answer is None or answer.error_code:
            why = "no answer" if answer is None else ErrorCode.of(answer.error_code).name
            logger.warning("the controller gave no producer ids: %s", why)
        else:
            block = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
            self._block_size = len(block)
            if self._block:
                self._next_block = block
            else:
                self._block = block
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            try:
                then()
            except Exception:  # the others wait, too
                logger.exception("a request that waited for a producer id was not answered")
