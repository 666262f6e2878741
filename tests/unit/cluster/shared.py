"""A directory that several brokers share, in memory, and what they are made of there."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from lab.sim.disk import DiskLock, SimulatedDisk
from sparkonce.broker_lite.cluster.controller_service import ControllerService
from sparkonce.broker_lite.cluster.file_coordination import FileCoordination, WatchDirectories
from sparkonce.broker_lite.cluster.metadata_log import taken
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings
from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, MetadataRecord

SHARED = "/shared"
TIMEOUT_MS = 2_000


class SharedStorage(SimulatedDisk):
    """Locks make their files, as on a disk; what is told of each operation may do others in between."""

    def __init__(self) -> None:
        super().__init__()
        self.before_listing: Callable[[], None] | None = None

    def lock(self, path: str) -> DiskLock:
        self.open(path)
        return super().lock(path)

    def list_directory(self, path: str) -> list[str]:
        hook, self.before_listing = self.before_listing, None
        if hook is not None:
            hook()
        return super().list_directory(path)


class SharedClock:
    """Both clocks of all brokers."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


class Candidate:
    """One broker, as far as it takes part in the controller's log; `image` is what it has read."""

    def __init__(
        self,
        storage: SharedStorage,
        clock: SharedClock,
        broker_id: int,
        max_log_bytes: int = 1 << 20,
        watch: WatchDirectories = lambda *_: None,
    ) -> None:
        self.broker_id = broker_id
        self.coordination = FileCoordination(storage, SHARED, broker_id, TIMEOUT_MS, max_log_bytes, watch)
        self.coordination.locks.hold_broker(broker_id)
        self.service = ControllerService(broker_id, self.coordination, ControllerSettings(), clock, clock)
        self.image = ClusterImage()

    def read(self) -> None:
        """Apply what is new in the log."""
        for step in self.coordination.poll():
            self.image = taken(self.image, step)

    def register(self, clock: SharedClock, host: str = "here") -> int:
        """Let the controller, which this must be, know of a broker of this id; returns its epoch."""

        def decision(controller: Controller) -> tuple[list[MetadataRecord], int]:
            return controller.register(self.broker_id, uuid.uuid4(), host, 1, NO_BROKER_EPOCH, clock())

        epoch = self.service.decide(decision)
        self.service.decide(
            lambda controller: controller.heartbeat(self.broker_id, epoch, controller.image.next_offset, False, clock())
        )
        return epoch

    def create(self, name: str) -> None:
        """Make a topic on the brokers that are there; this must be the controller."""
        self.service.decide(lambda controller: (controller.create_topic(name, uuid.uuid4(), 1, 1, {}), None))

    def die(self) -> None:
        """Let go of the locks, as the end of a process does, and of nothing else."""
        self.coordination.locks.resign()
        self.coordination.locks.release_broker()
