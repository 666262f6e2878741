"""Producer ids of a cluster's broker: the controller hands them out in blocks (KIP-730).

Theory of operation: a block belongs to this broker alone, and is never assigned again, so ids are taken from it without
a request. When little is left of it the next one is requested. A broker that dies loses what was left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from sparkonce.broker_lite.protocol import apis
from sparkonce.broker_lite.protocol.apis import ApiKey
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from sparkonce.broker_lite.cluster.member import ClusterMember

logger = logging.getLogger(__name__)

PREFETCH_SHARE: Final = 10
"""When no more than one in so many of a block's ids is left, the next block is asked for, as in Kafka."""


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
                logger.exception("who has waited for a producer id is not answered")
