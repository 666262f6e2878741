"""Marks rare events in replication, in the controller and in logs: see `marks.py`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from lab.sim.judges.observed_log import ObservedLog, Watcher
from lab.sim.judges.observing import Around, observed
from lab.sim.marks import Mark
from sparkonce.broker_lite.cluster import acknowledgements
from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.log.local_log import LocalLog
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.broker_lite.waiting import Promise
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lab.sim.world import World
    from sparkonce.broker_lite.controller.controller import InSyncProposal
    from sparkonce.broker_lite.controller.records import MetadataRecord, PartitionState
    from sparkonce.broker_lite.log.local_log import Appended
    from sparkonce.broker_lite.replication.replica_log import EpochEnd, ReplicaLog

_OF_WRITES = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Mark.OUT_OF_ORDER,
    ErrorCode.KAFKA_STORAGE_ERROR: Mark.DISK_FULL,
    ErrorCode.INVALID_TXN_STATE: Mark.VERIFIED_TOO_LATE,
}
_OF_FETCHES = {
    ErrorCode.FENCED_LEADER_EPOCH: Mark.FENCED_FETCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Mark.EARLY_FETCH,
}
_OF_CONTROLLERS = {
    ErrorCode.INELIGIBLE_REPLICA: Mark.REFUSED_INELIGIBLE,
    ErrorCode.INVALID_UPDATE_VERSION: Mark.REFUSED_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH: Mark.REFUSED_LEADER,
    ErrorCode.STALE_BROKER_EPOCH: Mark.STALE_BROKER,
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: Mark.TWO_REGISTRATIONS,
}
_OF_WAITING = {
    ErrorCode.REQUEST_TIMED_OUT: Mark.TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Mark.ACK_LOST,
}
_UNDER_MIN = {ErrorCode.NOT_ENOUGH_REPLICAS: Mark.UNDER_MIN}


def rare_things(world: World) -> AbstractContextManager[None]:
    """Mark the rare events of one world for a while."""
    return observed(_Observer(world).observers)


class _Observer:
    """Marks what it sees."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._diverged: dict[ReplicaLog, PartitionFollower] = {}
        """Logs that were truncated, and not appended to since."""
        self.observers: tuple[tuple[Any, str, Around], ...] = (
            (PartitionLeader, "check_acks_all", self._refusing(_UNDER_MIN)),
            (PartitionLeader, "check_fetch", self._refusing(_OF_FETCHES)),
            (PartitionLeader, "fetched", self._fetched),
            (PartitionFollower, "diverged", self._cut),
            (PartitionLog, "append_as_follower", self._append_as_follower),
            (LocalLog, "append", self._append),
            (Controller, "register", self._refusing(_OF_CONTROLLERS)),
            (Controller, "_checked_broker", self._refusing(_OF_CONTROLLERS)),
            (Controller, "_altered", self._altered),
            (Controller, "fence", self._fence),
            (Controller, "_balance", self._balance),
            (Promise, "complete", self._complete),
        )

    def _note(self, error: KafkaError, marks: Mapping[ErrorCode, Mark]) -> None:
        mark = marks.get(error.code)
        if mark is not None:
            self._world.mark(mark)

    def _refusing(self, marks: Mapping[ErrorCode, Mark]) -> Around:
        """Return a wrapper that marks a function's rejections."""

        def around(ask: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            try:
                return ask(*arguments, **named)
            except KafkaError as error:
                self._note(error, marks)
                raise

        return around

    # Logs.

    def _append(
        self, append: Callable[..., Appended], log: ObservedLog, batch: Any, epoch: int, *rest: Any
    ) -> Appended:
        before = log.log_end_offset
        try:
            appended = append(log, batch, epoch, *rest)
        except KafkaError as error:
            self._note(error, _OF_WRITES)
            raise
        if appended.base_offset < before:
            self._world.mark(Mark.DUPLICATE)
        now = self._world.image.partition(cast("Watcher", log.watcher).key)
        if now is not None and now.leader_epoch > epoch:
            self._world.mark(Mark.OLD_LEADER)
        return appended

    def _append_as_follower(self, append: Callable[..., int], log: ObservedLog, *rest: Any) -> int:
        self._diverged.pop(log, None)
        try:
            return append(log, *rest)
        except KafkaError as error:
            self._note(error, _OF_WRITES)
            raise

    def _cut(self, diverged: Callable[..., None], role: PartitionFollower, theirs: EpochEnd) -> None:
        diverged(role, theirs)
        if self._diverged.get(role.log) is role:
            self._world.mark(Mark.SEVERAL_ROUNDS)
        self._diverged[role.log] = role

    # Leaders.

    def _fetched(
        self, fetched: Callable[..., bool], role: PartitionLeader, broker_id: int, broker_epoch: int, *rest: Any
    ) -> bool:
        follower = role.followers.get(broker_id)
        if follower is not None and follower.broker_epoch > broker_epoch:
            self._world.mark(Mark.STALE_FETCH)
        return fetched(role, broker_id, broker_epoch, *rest)

    def _complete(self, complete: Callable[..., None], promise: Promise[Any], value: Any) -> None:
        mark = _OF_WAITING.get(value) if isinstance(promise, acknowledgements._Waiter) else None
        if mark is not None and promise._execution is not None:
            self._world.mark(mark)
        complete(promise, value)

    # Controllers.

    def _altered(
        self, altered: Callable[..., Any], controller: Controller, leader: int, proposal: InSyncProposal
    ) -> tuple[list[MetadataRecord], PartitionState]:
        before = controller.image.partition(proposal.key)
        try:
            records, now = altered(controller, leader, proposal)
        except KafkaError as error:
            self._note(error, _OF_CONTROLLERS)
            raise
        if before is not None and now is not before:
            fewer = len(now.in_sync_replicas) < len(before.in_sync_replicas)
            self._world.mark(Mark.SHRUNK if fewer else Mark.EXPANDED)
        return records, now

    def _fence(
        self, fence: Callable[..., list[MetadataRecord]], controller: Controller, broker_ids: Any
    ) -> list[MetadataRecord]:
        records = fence(controller, broker_ids)
        if records:
            self._world.mark(Mark.SESSION_ENDED)
        return records

    def _balance(self, balance: Callable[..., list[MetadataRecord]], controller: Controller) -> list[MetadataRecord]:
        records = balance(controller)
        if records:
            self._world.mark(Mark.BALANCED)
        return records
