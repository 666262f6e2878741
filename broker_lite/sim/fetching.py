"""Replication over the simulated network: a follower's fetches, and how a leader answers them.

As Kafka's replica fetcher: one request at a time to each leader, for all partitions that it leads; the leader holds it
back until there is something to send or the wait is over. A partition that was refused is left out for a while.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.log.leader_epochs import EpochEnd
from sparkonce.broker_lite.protocol.errors import ErrorCode, KafkaError
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.broker_lite.replication.leader import check_leader_epoch
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.broker import SimulatedBroker

_MAX_BYTES = 600
"""Of one partition in an answer: a few batches."""


class Fetched(NamedTuple):
    """What a leader sends of one partition."""

    data: bytes
    high_watermark: int


class OutOfRange(NamedTuple):
    """The leader's log does not have the offset; this is what it has."""

    start_offset: int
    end_offset: int


Answer = Fetched | EpochEnd | OutOfRange | ErrorCode


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that waits for something to come."""

    call: Call
    broker_id: int
    positions: list[tuple[PartitionKey, FetchPosition]]
    answered: bool = False


class FetchService:
    """How a broker answers the fetches of followers."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._parked: list[ParkedFetch] = []

    def fetch(
        self, call: Call, broker_id: int, broker_epoch: int, positions: list[tuple[PartitionKey, FetchPosition]]
    ) -> None:
        """Note how far a follower is, and answer when there is something to say."""
        broker = self._broker
        waits = True
        for key, position in positions:
            refused = self._check(key, position)
            if refused is not None:
                waits = False
                continue
            role = broker.replicas.leader(key)
            follower = role.followers.get(broker_id)
            if follower is not None and follower.broker_epoch > broker_epoch:
                broker.world.mark(Mark.STALE_FETCH)
            try:
                events = broker.replicas.fetched_by(
                    key, broker_id, broker_epoch, position.offset, position.log_start_offset, broker.now_ms
                )
            except KafkaError:
                waits = False
                continue
            broker.publish(events)
            waits = waits and position.offset >= role.log.log_end_offset
        broker.send_proposals()
        parked = ParkedFetch(call, broker_id, positions)
        if waits:
            self._parked.append(parked)
            broker.after(broker.world.plan.settings.fetch_wait_ms, self._answer, parked)
        else:
            self._answer(parked)

    def wake(self, key: PartitionKey) -> None:
        """Answer the fetches that wait for this partition."""
        for parked in [each for each in self._parked if any(one == key for one, _ in each.positions)]:
            self._answer(parked)

    def _answer(self, parked: ParkedFetch) -> None:
        if parked.answered:
            return
        parked.answered = True
        if parked in self._parked:
            self._parked.remove(parked)
        answers = [(key, self._read(key, position)) for key, position in parked.positions]
        parked.call.answer(answers)

    def _check(self, key: PartitionKey, position: FetchPosition) -> Answer | None:
        """Return why there is nothing to send: an error, or where the logs part; None if there may be."""
        try:
            role = self._broker.replicas.leader(key)
            diverging = role.check_fetch(position.leader_epoch, position.last_fetched_epoch, position.offset)
        except KafkaError as error:
            if error.code is ErrorCode.FENCED_LEADER_EPOCH:
                self._broker.world.mark(Mark.FENCED_FETCH)
            elif error.code is ErrorCode.UNKNOWN_LEADER_EPOCH:
                self._broker.world.mark(Mark.EARLY_FETCH)
            elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                log = self._broker.replicas.leader(key).log
                return OutOfRange(log.log_start_offset, log.log_end_offset)
            return error.code
        if diverging is None and position.offset > role.log.log_end_offset:
            return OutOfRange(role.log.log_start_offset, role.log.log_end_offset)
        return diverging

    def _read(self, key: PartitionKey, position: FetchPosition) -> Answer:
        refused = self._check(key, position)
        if refused is not None:
            return refused
        log = self._broker.log(key)
        data = b""
        if position.offset < log.log_end_offset:
            data = log.read(position.offset, _MAX_BYTES, True).read()
        return Fetched(data, log.high_watermark)

    def epoch_end(self, call: Call, key: PartitionKey, leader_epoch: int, epoch: int) -> None:
        """Answer OffsetForLeaderEpoch, which followers of former times asked."""
        try:
            role = self._broker.replicas.leader(key)
            check_leader_epoch(leader_epoch, role.state.leader_epoch)
        except KafkaError as error:
            call.answer(error.code)
            return
        call.answer((role.log.epoch_end(epoch),))


@dataclass(slots=True)
class Fetcher:
    """A follower's fetches from one leader."""

    broker: SimulatedBroker
    leader: int
    _busy: bool = False
    _held_back: dict[PartitionKey, int] = field(default_factory=dict)
    _asking: set[PartitionFollower] = field(default_factory=set)
    _diverged: dict[PartitionKey, PartitionFollower] = field(default_factory=dict)

    def fetch(self) -> None:
        """Ask for what comes next, unless that is under way."""
        if self._busy:
            return
        broker, now_ms = self.broker, self.broker.scheduler.now_ms
        wanted = []
        for key, role in broker.replicas.followed(self.leader):
            if self._held_back.get(key, 0) > now_ms:
                continue
            if role.asks_for_epoch:
                self._ask_for_epoch(key, role)
            else:
                wanted.append((key, role))
        if not wanted:
            return
        self._busy = True
        positions = [(key, role.position) for key, role in wanted]
        settings = broker.world.plan.settings
        leader, epoch = broker.world.brokers[self.leader], broker.broker_epoch
        Call(
            broker,
            leader,
            lambda call: leader.fetches.fetch(call, broker.node_id, epoch, positions),
            lambda answers: self._answered(wanted, answers),
            settings.timeout_ms + settings.fetch_wait_ms,
        ).send()

    def _answered(
        self,
        wanted: list[tuple[PartitionKey, PartitionFollower]],
        answers: list[tuple[PartitionKey, Answer]] | None,
    ) -> None:
        self._busy = False
        if answers is None:
            self._hold_back(key for key, _ in wanted)
            return
        for (key, role), (_, answer) in zip(wanted, answers, strict=True):
            if self.broker.replicas.roles.get(key) is role and not self._take(key, role, answer):
                self._hold_back((key,))
        self.fetch()

    def _hold_back(self, keys: Iterable[PartitionKey]) -> None:
        backoff_ms = self.broker.world.plan.settings.backoff_ms
        until_ms = self.broker.scheduler.now_ms + backoff_ms
        for key in keys:
            self._held_back[key] = until_ms
        self.broker.after(backoff_ms, self.fetch)

    def _take(self, key: PartitionKey, role: PartitionFollower, answer: Answer) -> bool:
        """Take what the leader says of one partition; returns whether to go on at once."""
        world = self.broker.world
        if isinstance(answer, Fetched):
            self._diverged.pop(key, None)
            try:
                if answer.data:
                    role.log.append_as_follower(answer.data, role.leader_epoch, self.broker.now_ms)  # type: ignore[attr-defined]
            except KafkaError as error:
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    world.mark(Mark.DISK_FULL)
                return False
            self.broker.follow_high_watermark(key, role, answer.high_watermark)
            return True
        if isinstance(answer, EpochEnd):
            before = role.log.log_end_offset
            role.diverged(answer)
            if role.log.log_end_offset < before:
                world.mark(Mark.TRUNCATED)
            if self._diverged.get(key) is role:
                world.mark(Mark.SEVERAL_ROUNDS)
            self._diverged[key] = role
            world.trace(lambda: f"broker {self.broker.node_id} cuts {world.name_of(key)} at {role.log.log_end_offset}")
            return True
        if isinstance(answer, OutOfRange):
            role.out_of_range(answer.start_offset, answer.end_offset)
        return False

    def _ask_for_epoch(self, key: PartitionKey, role: PartitionFollower) -> None:
        """Ask OffsetForLeaderEpoch once, as the rules of former times want it."""
        if role in self._asking:
            return
        self._asking.add(role)
        broker = self.broker
        leader, epoch = broker.world.brokers[self.leader], broker.log(key).latest_epoch
        Call(
            broker,
            leader,
            lambda call: leader.fetches.epoch_end(call, key, role.leader_epoch, epoch),
            lambda answer: self._told_epoch(key, role, answer),
            broker.world.plan.settings.timeout_ms,
        ).send()

    def _told_epoch(
        self, key: PartitionKey, role: PartitionFollower, answer: tuple[EpochEnd | None] | ErrorCode | None
    ) -> None:
        self._asking.discard(role)
        if isinstance(answer, tuple) and self.broker.replicas.roles.get(key) is role:
            role.epoch_end(answer[0])
            self.fetch()
        else:
            self._hold_back((key,))
