"""What the coordinators of a simulated broker share: partitions of an internal topic come and go with their leadership.

Theory of operation: as in a real broker (`node/coordinated.py`). When the broker comes to lead a
partition, that is read back, which takes a while; what was kept of it is dropped as soon as the broker knows that it
leads no more. A change is appended as a producer with acks=all would do it, and what is answered waits until all that
the partition holds by then is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.protocol.records import Record, encode_batch
from sparkonce.broker_lite.sim.disk import CutShort
from sparkonce.broker_lite.sim.ownership import Written

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker
    from sparkonce.broker_lite.sim.watched_log import WatchedLog

_LOAD_MS = 60
"""How long reading a partition back may take."""

Note = Callable[[Written], None]


def nobody(_: Written) -> None:
    """Note nothing."""


class Coordinator:
    """The names of one partition, as long as it is led here in one epoch."""

    def __init__(self, broker: SimulatedBroker, key: PartitionKey, epoch: int) -> None:
        self._broker = broker
        self._key = key
        self._epoch = epoch
        self.loaded = False
        self.over = False

    @property
    def log(self) -> WatchedLog:
        """The partition's log here."""
        return self._broker.log(self._key)

    def load(self) -> None:
        """Read the partition back, unless it is led by another one already."""
        if not self.over:
            self.read_back()

    def read_back(self) -> None:
        """Read the partition back, and go on with what it holds."""
        raise NotImplementedError

    def dropped(self) -> None:
        """Tell waiting requests that another broker has the partition now."""

    def tick(self) -> None:
        """Do what is due now and then."""
        raise NotImplementedError

    def when_safe(self, then: Callable[[ErrorCode], None]) -> None:
        """Call back when all that the partition holds now is safe."""
        log = self.log
        if log.high_watermark >= log.log_end_offset:
            then(ErrorCode.NONE)
        else:
            self._broker.acknowledgements.when_safe(self._key, log.log_end_offset - 1, then)

    def append(self, records: Iterable[Record], line: Callable[[], str], note: Note = nobody) -> Written:
        """Append one event's records; `line` is for the trace.

        `note` is called with their offsets, also if the process dies in the middle of it: then they may be there.

        Raises:
            KafkaError: if another broker leads, too few are in sync, or the disk is full; then nothing was written.
        """
        broker = self._broker
        role = broker.replicas.leader(self._key)
        role.check_acks_all()
        written = Written(role.state.leader_epoch, self.log.log_end_offset)
        try:
            self.log.append(encode_batch(list(records)), written.epoch, broker.now_ms)
        except CutShort:
            note(written)
            raise
        broker.world.trace(lambda: f"broker {broker.node_id}: {line()}")
        note(written)
        broker.appended(self._key)
        return written


C = TypeVar("C", bound=Coordinator)


class Coordinators(Generic[C]):
    """Those of one internal topic's partitions that a broker leads."""

    def __init__(
        self, broker: SimulatedBroker, topic: str, begin: Callable[[SimulatedBroker, PartitionKey, int], C]
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._begin = begin
        self._of: dict[int, C] = {}

    def __iter__(self) -> Iterator[C]:
        return iter(self._of.values())

    def tick(self) -> None:
        """Let each do what is due now and then."""
        for coordinator in list(self._of.values()) if self._of else ():
            coordinator.tick()

    def leads(self, key: PartitionKey, epoch: int) -> None:
        """Begin to coordinate a partition, if it is one of this topic."""
        if self._broker.world.topic_of(key).name == self._topic:
            self.lost(key)
            coordinator = self._of[key[1]] = self._begin(self._broker, key, epoch)
            self._broker.after(1 + int(self._broker.rng.random() * _LOAD_MS), coordinator.load)

    def lost(self, key: PartitionKey) -> None:
        """Coordinate a partition no more, if it is one of this topic."""
        if self._broker.world.topic_of(key).name == self._topic:
            coordinator = self._of.pop(key[1], None)
            if coordinator is not None:
                coordinator.over = True
                coordinator.dropped()

    def find(self, name: str) -> C | ErrorCode:
        """Return the coordinator of a group or a transactional id, or the client's error if that is not here."""
        coordinator = self._of.get(self._broker.world.coordinator_key(self._topic, name)[1])
        if coordinator is None:
            return ErrorCode.NOT_COORDINATOR
        return coordinator if coordinator.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
