"""A controller for tests, with brokers that register and are heard of, and a log that a second image is made from."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings, Heartbeat, InSyncProposal
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, MetadataRecord, PartitionState

NOW = 1_700_000_000_000
LEASE_MS = 9_000
TOPIC = uuid.UUID(int=7)
KEY: PartitionKey = (TOPIC, 0)
ALONE: PartitionKey = (uuid.UUID(int=9), 0)


class Cluster:
    """Brokers 1 to `brokers`, all there; what the controller writes is kept in `log`."""

    def __init__(self, brokers: int = 3, settings: ControllerSettings | None = None) -> None:
        self.now_ms = NOW
        self.settings = settings or ControllerSettings(session_timeout_ms=LEASE_MS)
        self.controller = Controller(ClusterImage(), self.settings, NOW)
        self.log: list[MetadataRecord] = []
        self._incarnations = 0
        for broker_id in range(1, brokers + 1):
            self.start(broker_id)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def state(self) -> PartitionState:
        found = self.image.partition(KEY)
        assert found is not None
        return found

    def write(self, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
        new = list(records)
        self.log += new
        return new

    def replay(self) -> ClusterImage:
        """Make an image from the log alone."""
        image = ClusterImage()
        for record in self.log:
            image.apply(record)
        return image

    def fail_over(self) -> None:
        """Let another controller begin from the log."""
        self.controller = Controller(self.replay(), self.settings, self.now_ms)

    def register(self, broker_id: int, last_epoch: int = NO_BROKER_EPOCH) -> int:
        self._incarnations += 1
        incarnation = uuid.UUID(int=self._incarnations)
        records, epoch = self.controller.register(broker_id, incarnation, "host", 9092, last_epoch, self.now_ms)
        self.write(records)
        return epoch

    def heartbeat(self, broker_id: int, *, wants_to_stop: bool = False, behind: bool = False) -> Heartbeat:
        epoch = self.image.broker_epoch(broker_id)
        applied = epoch if behind else self.image.next_offset
        records, heard = self.controller.heartbeat(broker_id, epoch, applied, wants_to_stop, self.now_ms)
        self.write(records)
        return heard

    def start(self, broker_id: int, last_epoch: int = NO_BROKER_EPOCH) -> int:
        epoch = self.register(broker_id, last_epoch)
        self.heartbeat(broker_id)
        return epoch

    def silence(self, *brokers: int) -> None:
        """Let a lease go by in which these are not heard of."""
        for _ in range(3):
            self.now_ms += LEASE_MS // 2
            for broker_id, broker in self.image.brokers.items():
                if broker_id not in brokers and not broker.fenced:
                    self.heartbeat(broker_id)
            self.write(self.controller.tick(self.now_ms))

    def make_topic(self, *replicas: tuple[int, ...], **settings: str) -> None:
        """Make topic t with these replicas, 1, 2, 3 if none are given; settings with _ for the dots."""
        names = {name.replace("_", "."): value for name, value in settings.items()}
        self.write(self.controller.create_topic("t", TOPIC, 0, 0, names, replicas or ((1, 2, 3),)))

    def make_topic_alone(self) -> None:
        """Make a topic that broker 1 alone has."""
        self.write(self.controller.create_topic("alone", ALONE[0], 1, 1, {}, ((1,),)))

    def propose(self, *in_sync: int, key: PartitionKey = KEY, **changes: object) -> PartitionState | Exception:
        """Let the leader propose who is in sync, by what it must know; `changes` spoil that."""
        state = self.image.partition(key)
        assert state is not None
        with_epochs = tuple((each, self.image.broker_epoch(each)) for each in in_sync)
        proposal = InSyncProposal(key, state.leader_epoch, state.partition_epoch, with_epochs)._replace(**changes)  # type: ignore[arg-type]
        leader = state.leader
        epoch = self.image.broker_epoch(leader)
        records, (answer,) = self.controller.alter_in_sync(leader, epoch, [proposal])
        self.write(records)
        return answer
