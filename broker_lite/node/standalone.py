"""A standalone broker: a cluster of one, whose controller is in the same process.

Theory of operation: no other broker decides, so there is no lock except that of the log directory, no log that others
follow, no registration and no heartbeat. The logs of new partitions are created first, if they have files. A decision
is made on the controller's own image, written (`LogManager.keep`), and only then applied here, before it is answered.
If the write fails, the controller reverts to what is written. A decision about thousands of partitions is made and
applied in turns. Other decisions in between build on its part so far: that part is written and applied with them,
before them. So the file never has anything that this broker does not apply.

The image begins with the topics of the log directory; all partitions are led in the leader epoch of this start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sparkonce.broker_lite.cluster.member import Membership
from sparkonce.broker_lite.controller.image import BrokerImage, ClusterImage, TopicImage
from sparkonce.broker_lite.controller.partition_state import PartitionState
from sparkonce.broker_lite.coordinators.internal_topics import INTERNAL_TOPICS
from sparkonce.broker_lite.log.checkpoints import BROKER_EPOCH as BROKER_EPOCH_FILE
from sparkonce.broker_lite.log.directories import LogDirectoryError
from sparkonce.broker_lite.log.log_manager import LogManager
from sparkonce.broker_lite.log.steps import finish
from sparkonce.broker_lite.log.topics_file import Entry
from sparkonce.broker_lite.node.producer_ids import ProducerIds, blocks_in_file
from sparkonce.broker_lite.node.turns import ITEM, WRITTEN, in_units
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError, ProtocolError
from sparkonce.kafka.protocol.primitives import ZERO_UUID

if TYPE_CHECKING:
    import uuid

    from sparkonce.broker_lite.cluster.controller_service import Decision, Result
    from sparkonce.broker_lite.cluster.member import ClusterMember
    from sparkonce.broker_lite.controller.controller import Controller
    from sparkonce.broker_lite.controller.records import MetadataRecord
    from sparkonce.broker_lite.log.storage import Files, Storage
    from sparkonce.broker_lite.node.clock import Clock
    from sparkonce.broker_lite.node.cluster_partitions import ClusterPartitions
    from sparkonce.broker_lite.node.dynamic_settings import DynamicSettings

BROKER_EPOCH: Final = 0


class StandaloneController:
    """Decides for one broker, and applies its decisions there; not thread-safe."""

    active = True
    is_written = True

    def __init__(self, partitions: ClusterPartitions, clock: Clock) -> None:
        self._partitions = partitions
        self._logs = partitions.logs
        self._clock = clock
        self.epoch = self._logs.leader_epoch
        self._controller: Controller | None = None
        self._unwritten: list[list[MetadataRecord]] = []
        """The decisions so far of the request that decides in turns; the controller's image already has them."""
        self._unapplied: deque[_Steps] = deque()
        """Decisions that are not fully applied yet."""

    def decide(self, decision: Decision[Result]) -> Result:
        """Decide; when this returns, all decisions so far are applied.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if the decision cannot be written, then it has no effect; and the errors
                of the decision.
        """
        controller = self._begin()
        try:
            records, result = decision(controller)
        except KafkaError:  # a rejected decision changes nothing
            raise
        except BaseException:
            self._begin_again()
            raise
        self._settle(records)
        finish(self.apply())
        return result

    def check_has_others(self) -> None:
        """Reject a request that only another broker would send; raises ProtocolError."""
        raise ProtocolError("this request is for brokers of a cluster, and this broker is in none")

    def written(self) -> Promise[bool]:
        """Return a complete promise: all decisions are written."""
        promise: Promise[bool] = Promise()
        promise.complete(True)
        return promise

    def prepare(
        self, name: str, topic_id: uuid.UUID, indexes: Collection[int], settings: Mapping[str, str]
    ) -> Generator[int, None, None]:
        """Create the logs of new partitions, so that a disk failure is reported before anything is decided."""
        yield from in_units(self._logs.prepare(name, topic_id, indexes, settings, self._clock.now_ms()))

    def end_preparation(self, name: str, topic_id: uuid.UUID) -> None:
        """Remove the logs of partitions that were not decided."""
        self._logs.end_preparation(name, topic_id)

    def decide_together(self, decisions: Sequence[Decision[object]]) -> Generator[int, None, None]:
        """Decide several things in one write; yields units of work; as `decide`.

        If others decide in between, the part so far is committed with theirs, whatever happens to the rest.
        """
        controller = self._begin()
        try:
            for decision in decisions:
                records = decision(controller)[0]
                self._unwritten.append(records)
                yield ITEM + len(records)
                self._check(controller)
            yield WRITTEN
            self._check(controller)
        except BaseException as error:  # the request has failed: its decisions so far must not be written
            if self._controller is controller and (any(self._unwritten) or not isinstance(error, KafkaError)):
                self._begin_again()
            raise
        self._settle([])
        yield WRITTEN
        yield from self.apply()

    def apply(self) -> Generator[int, None, None]:
        """Apply the decisions, in order; yields units of work."""
        while steps := next((each for each in self._unapplied if not each.is_running), None):
            units = steps.next()
            if units is None:
                self._unapplied.remove(steps)
            else:
                yield units

    def settle(self) -> None:
        """Apply all decisions."""
        finish(self.apply())

    may_rest = True
    """There are no timers."""

    def tick(self) -> None:
        """Do nothing: see `may_rest`."""

    def close(self) -> None:
        """Stop, after applying all decisions."""
        self.settle()

    def _begin(self) -> Controller:
        if self._controller is None:
            # Imported lazily: few brokers decide anything in their first second.
            from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings

            self.settle()
            settings = ControllerSettings(first_leader_epoch=self._logs.leader_epoch)
            self._controller = Controller(self._partitions.member.image.copy(), settings, 0)
        return self._controller

    def _begin_again(self) -> None:
        """Drop unwritten decisions: the next one begins with what is written."""
        self._controller = None
        self._unwritten.clear()

    def _check(self, controller: Controller) -> None:
        """Check that this controller is still the current one."""
        if self._controller is not controller:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "a change before this one could not be written down")

    def _settle(self, records: list[MetadataRecord]) -> None:
        """Write decisions."""
        decided = [each for each in (*self._unwritten, records) if each]
        if not decided:
            return
        assert self._controller is not None
        topics = self._controller.image.topics.values()
        try:
            self._logs.keep({each.name: Entry(each.topic_id, len(each.partitions), each.settings) for each in topics})
        except KafkaError:
            self._begin_again()
            raise
        self._unwritten.clear()
        self._unapplied += [_Steps(self._partitions.change(each)) for each in decided]


class _Steps:
    """The application of one decision; another one may be made in between."""

    __slots__ = ("_steps", "is_running")

    def __init__(self, steps: Generator[int, None, None]) -> None:
        self._steps = steps
        self.is_running = False

    def next(self) -> int | None:
        """Do one step; return its units of work, or None if all is done."""
        self.is_running = True
        try:
            return next(self._steps, None)
        finally:
            self.is_running = False


class _NoOthers:
    """The cluster of a standalone broker: only itself."""

    registered = True
    broker_epoch = BROKER_EPOCH
    in_session = True
    may_rest = True

    def __init__(self) -> None:
        self.on_report: Callable[[], None] = self.close
        """Never called: there are no other brokers."""

    def is_gone(self, _broker_id: int) -> bool:
        """Whether another broker is dead: there is none."""
        return False

    def is_announced(self, _broker_id: int, _incarnation: uuid.UUID) -> bool:
        """Whether another start of a broker is registered: there is none."""
        return False

    def poll(self) -> tuple[()]:
        """Return the decisions of others: none."""
        return ()

    def close(self) -> None:
        """Do nothing."""


class StandaloneMode:
    """See `BrokerMode`: standalone."""

    logs_class = LogManager

    def __init__(self, listeners: Sequence[tuple[str, str, int]] = ()) -> None:
        """Take name, host and port of each listener: where clients reach the broker."""
        self._listeners = tuple(listeners)

    def check(self, storage: Storage, log_dir: str) -> None:
        """Reject a cluster's data: a standalone broker would write other records than the cluster at the same offsets.

        Raises:
            LogDirectoryError: if it is a member's.
        """
        if storage.is_directory(log_dir) and BROKER_EPOCH_FILE in storage.list_directory(log_dir):
            raise LogDirectoryError(
                f"{log_dir} is that of a member of a cluster: give metadata.log.dir, the folder that its brokers "
                "share, or another data directory"
            )

    def files(self, storage: Storage) -> Files:
        """See `BrokerMode`: as all other files."""
        return storage

    def producer_ids(
        self, _member: ClusterMember, storage: Storage, log_dir: str, largest_known: Callable[[], int]
    ) -> ProducerIds:
        """See `BrokerMode`: a file has the start of the next block."""
        return ProducerIds(blocks_in_file(storage, f"{log_dir}/producer-id-block", largest_known))

    def request_topic(
        self, _member: ClusterMember, _dynamic: DynamicSettings, make: Callable[[str], object]
    ) -> Callable[[str], object]:
        """See `BrokerMode`: it is created at once."""
        return make

    def take(self, _storage: Storage, partitions: ClusterPartitions, node_id: int, clock: Clock) -> None:
        """See `BrokerMode`: the cluster image begins with the topics of the log directory."""
        surroundings = _NoOthers()
        membership = Membership(surroundings, StandaloneController(partitions, clock), surroundings)
        partitions.member.be_standalone(membership, self._image(partitions.logs, node_id))

    def coordinated(self, topics: Collection[str]) -> Collection[str]:
        """See `BrokerMode`: those with data; loading all coordinators would take a quarter of the start."""
        return INTERNAL_TOPICS.intersection(topics)

    def _image(self, logs: LogManager, us: int) -> ClusterImage:
        epoch, listeners = logs.leader_epoch, self._listeners
        host, port = listeners[0][1:] if listeners else ("", 0)
        image = ClusterImage()
        image.controller_id, image.controller_epoch = us, epoch
        image.brokers[us] = BrokerImage(us, BROKER_EPOCH, ZERO_UUID, host, port, fenced=False, listeners=listeners)
        state = PartitionState((us,), (us,), us, epoch, 0)
        for topic in logs.topics.values():
            partitions = dict.fromkeys(range(topic.partition_count), state)
            image.topics[topic.topic_id] = TopicImage(topic.name, topic.topic_id, dict(topic.settings), partitions)
            image.topic_ids[topic.name] = topic.topic_id
        return image
