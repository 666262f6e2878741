"""Producer ids, each assigned only once (KIP-730).

Theory of operation: ids come from a block, which belongs to one broker alone and is never assigned again. In a cluster
the controller assigns the blocks, and the next one is requested when few ids are left. A standalone broker has a file
with the start of the next block, flushed before the first id of a block is assigned. A broker that dies loses the rest
of its block.

The log directory of a former Kafka broker has no such file, as Kafka keeps its blocks with the controller, and after a
restore the file may be older than the logs: the ids begin with a block without any id in the logs, since a partition
may treat a batch under a known id as a duplicate.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.log.storage import Storage
from sparkonce.broker_lite.waiting import Promise, Waiting, begin_in_background
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember

BLOCK_SIZE = 1000
"""As in Kafka: an id that is known to the logs came from the block of this size that it is in."""

PREFETCH_SHARE: Final = 10
"""When at most this fraction (1/n) of a block's ids is left, the next block is requested, as in Kafka."""

AskForBlock = Callable[[], Waiting[range]]
"""Requests a block, and waits for it; an empty one on failure."""

logger = logging.getLogger(__name__)


class ProducerIds:
    """Assigns producer ids."""

    def __init__(self, ask_for_block: AskForBlock, *, asks_early: bool = False) -> None:
        """`asks_early`: request the next block before the current one is used up, as that takes time."""
        self._ask_for_block = ask_for_block
        self._asks_early = asks_early
        self._block = range(0)
        self._next_block = range(0)
        self._block_size = 0
        self._is_asking = False
        self._waiting: list[Promise[None]] = []

    def ready(self) -> Promise[None]:
        """Promise that `take` returns or fails at once: there are ids, or the request for a block has ended."""
        promise: Promise[None] = Promise()
        if not (self._block or self._next_block):
            self._ask()
        if self._is_asking and not (self._block or self._next_block):
            self._waiting.append(promise)
        else:
            promise.complete(None)
        return promise

    def take(self) -> int:
        """Return an id that was never assigned before.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS if there is none; as in Kafka's ProducerIdManager, since every
                client retries after it.
        """
        if not (self._block or self._next_block):
            self._ask()
        if not self._block:
            self._block, self._next_block = self._next_block, range(0)
        if not self._block:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "there are no producer ids yet")
        taken, self._block = self._block[0], self._block[1:]
        if self._asks_early and not self._next_block and len(self._block) * PREFETCH_SHARE <= self._block_size:
            self._ask()
        return taken

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            begin_in_background(self._fetch_block(), "no producer ids are fetched")

    async def _fetch_block(self) -> None:
        try:
            block = await self._ask_for_block()
        except Exception:
            self._take(range(0))
            raise
        self._take(block)

    def _take(self, block: range) -> None:
        self._is_asking = False
        if self._block:
            self._next_block = block or self._next_block
        else:
            self._block = block
        self._block_size = len(block) or self._block_size
        waiting, self._waiting = self._waiting, []
        for promise in waiting:
            promise.complete(None)


def blocks_in_file(storage: Storage, path: str, largest_known: Callable[[], int]) -> AskForBlock:
    """Assign blocks after the last one in a file, and after all ids in the logs.

    `largest_known` is asked for the largest id in the logs, -1 if none.
    """
    known: int | None = None

    async def ask() -> range:
        nonlocal known
        if known is None:  # ids that become known later were assigned here
            known = largest_known()
        try:
            first = max(_written(storage, path), (known // BLOCK_SIZE + 1) * BLOCK_SIZE)
            block = range(first, first + BLOCK_SIZE)
            storage.write(path, b"%d\n" % block.stop, durable=True)
        except OSError as error:
            logger.warning("no more producer ids: %s: %s", path, error)
            return range(0)
        return block

    return ask


def _written(storage: Storage, path: str) -> int:
    try:
        return int(storage.read(path))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        logger.warning("%s is damaged (%s): producer ids go on after those that the logs know", path, error)
        return 0


def blocks_of_controller(member: ClusterMember) -> AskForBlock:
    """Let the cluster's controller assign blocks."""

    async def ask() -> range:
        request = apis.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, 0, broker_id=member.broker_id, broker_epoch=member.broker_epoch
        )
        answer = await member.ask_controller(request)
        if answer is None or answer.error_code:
            why = "no answer" if answer is None else ErrorCode.of(answer.error_code).name
            logger.warning("the controller gave no producer ids: %s", why)
            return range(0)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

    return ask
