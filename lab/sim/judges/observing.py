"""How judges see what happens inside a broker: they are called around functions of the production code.

Theory of operation: while a run lasts, a function of a class or a module is replaced by one that calls it, looks at
what came of that, and returns the same. A judge changes nothing that the broker does: what is wrong is told to the
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
"""Is called with the function that it is around, and with the arguments of that."""


@contextmanager
def observed(observers: Iterable[tuple[Any, str, Around]]) -> Iterator[None]:
    """Let functions be called by who looks at them, for a while: owner, name, and what is around."""
    with ExitStack() as stack:
        for owner, name, around in observers:
            stack.enter_context(replaced(owner, name, _calling(around, vars(owner)[name])))
        yield


def _calling(around: Around, original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return around(original, *arguments, **named)

    return call


class Place:
    """The partition of an internal topic that keeps a name, as the broker has it that coordinates it."""

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
        """The epoch in which the broker leads, as far as it knows."""
        try:
            return self._led.leading(self._topic, self._index).leader_epoch
        except KafkaError:
            return KNOWS_BETTER

    @property
    def is_current(self) -> bool:
        """Whether no other broker has been elected in its place."""
        self._world.metadata.look()
        state = self._world.image.partition(self._key)
        return state is not None and (state.leader, state.leader_epoch) == (
            self._broker_id,
            self.epoch_now,
        )

    def written(self) -> Written | None:
        """Return where something was appended since this was made; None if nothing was."""
        found = (each for each in self.log.batches if each.base_offset >= self._end)
        return next((Written(each.epoch, each.base_offset) for each in found), None)
