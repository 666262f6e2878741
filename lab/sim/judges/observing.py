"""How judges observe a broker: by wrapping functions of the production code.

Theory of operation: during a run a function of a class or a module is replaced by a wrapper that calls it, checks
the result, and returns it. A judge changes nothing in the broker: violations are reported to the
world, never raised in the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from lab.sim.judges.ownership import KNOWS_BETTER, Written
from lab.sim.replacing import replaced
from sparkonce.kafka.protocol.errors import KafkaError

if TYPE_CHECKING:
    from lab.sim.judges.watched_log import WatchedLog
    from lab.sim.world import World
    from sparkonce.broker_lite.node.coordinated import Coordinated

Around = Callable[..., Any]
"""Called with the wrapped function and its arguments."""


@contextmanager
def observed(observers: Iterable[tuple[Any, str, Around]]) -> Iterator[None]:
    """Wrap functions for a while: owner, name, and wrapper. A former version need not have all of them."""
    with ExitStack() as stack:
        for owner, name, around in observers:
            if name in vars(owner) or not _is_former(owner):
                stack.enter_context(replaced(owner, name, _calling(around, vars(owner)[name])))
        yield


def _is_former(owner: Any) -> bool:
    module: str = getattr(owner, "__module__", owner.__name__)
    return not module.startswith("sparkonce.")


def _calling(around: Around, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    return call


class CoordinatorPartition:
    """The internal topic's partition that stores a group or transactional id, on the coordinating broker."""

    def __init__(self, world: World, partitions: Coordinated, name: str) -> None:
        self._world = world
        self._led = partitions._partitions
        self._broker_id = self._led.member.broker_id
        self._topic = partitions.topic
        self._index = partitions.index_of(name)
        self._key = (world.image.topic_ids[partitions.topic], self._index)
        self._end = self.log.log_end_offset

    @property
    def log(self) -> WatchedLog:
        """The partition's log on this broker."""
        return self._world.logs[self._broker_id, self._key]

    @property
    def epoch_now(self) -> int:
        """The leader epoch of the broker, as far as it knows."""
        try:
            return self._led.leading(self._topic, self._index).leader_epoch
        except KafkaError:
            return KNOWS_BETTER

    @property
    def is_current(self) -> bool:
        """Whether no other broker has been elected instead."""
        self._world.metadata.look()
        state = self._world.image.partition(self._key)
        return state is not None and (state.leader, state.leader_epoch) == (
            self._broker_id,
            self.epoch_now,
        )

    def written(self) -> Written | None:
        """Return where something was appended since this object was made; None if nothing was."""
        found = (each for each in self.log.batches if each.base_offset >= self._end)
        return next((Written(each.epoch, each.base_offset) for each in found), None)
