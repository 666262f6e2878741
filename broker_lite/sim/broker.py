"""One simulated broker: what the asyncio shell does for the cores, with calls in place of sockets.

Theory of operation: it registers, tells the controller that it is there, reads the metadata log, and lets `Replicas`
turn what that says into leaders and followers. It goes by the log only from its own registration on: what was decided
about its former start is not for this one. It dies in one of three ways: in order (everything flushed), as a process
(what was written stays), or with its machine (what was not flushed may be gone).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkonce.broker_lite.controller.controller import Heartbeat, InSyncProposal
from sparkonce.broker_lite.controller.image import ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER, PartitionState
from sparkonce.broker_lite.log import directories
from sparkonce.broker_lite.log.checkpoints import HIGH_WATERMARKS, decode_offsets, encode_offsets
from sparkonce.broker_lite.log.config import LONG_MAX, LogConfig
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.broker_lite.replication.replicas import Event, Follows, Gone, Leads, Replicas
from sparkonce.broker_lite.sim.controller_host import ControllerHost
from sparkonce.broker_lite.sim.disk import SimulatedDisk
from sparkonce.broker_lite.sim.fetching import Fetcher, FetchService
from sparkonce.broker_lite.sim.grouping import GroupService
from sparkonce.broker_lite.sim.marks import Mark
from sparkonce.broker_lite.sim.node import Call, Node
from sparkonce.broker_lite.sim.producing import Acknowledgements, ProduceService
from sparkonce.broker_lite.sim.scheduler import stream
from sparkonce.broker_lite.sim.transacting import TransactionService
from sparkonce.broker_lite.sim.watched_log import LogWatcher, WatchedLog

if TYPE_CHECKING:
    from sparkonce.broker_lite.sim.world import World

_CHORES_MS: Final = 100
_CHECKPOINT_MS: Final = 700
_STOP_MS: Final = 1_500
"""How long a broker waits for its partitions to be led by others, before it stops all the same."""
_INDEX_INTERVAL_BYTES: Final = 200


class _Watcher(LogWatcher):
    """Tells the invariants what happens to one replica."""

    def __init__(self, broker: SimulatedBroker, key: PartitionKey) -> None:
        self._world = broker.world
        self._history = broker.world.history_of(key)
        self._broker_id = broker.node_id
        self._replicas = broker.replicas
        self._key = key
        self.followed_epoch: int | None = None
        """The leader epoch in which a follower takes a high watermark just now; None while it does not."""

    def appended(self, log: WatchedLog) -> None:
        self._history.appended(self._broker_id, log.batches)
        if log.batches[-1].base_offset and log.batches[-1].base_offset == log.segments[-1].base_offset:
            self._world.mark(Mark.ROLLED)

    def was_cut(self) -> None:
        self._world.check_member(self._key, self._broker_id)

    def high_watermark_moved(self, log: WatchedLog) -> None:
        end = log.high_watermark
        if self.followed_epoch is not None:
            self._history.follower_high_watermark(self._broker_id, log.batches, end, self.followed_epoch)
        elif self._history.leader_high_watermark(self._broker_id, log.batches, end, log.latest_epoch):
            if self._history.lossy:
                self._world.mark(Mark.SAFE_AGAIN)
            self._world.trace(
                lambda: f"broker {self._broker_id}: {self._history.name} is safe below {log.high_watermark}"
            )
            self._world.check_members(self._key)
            role = self._replicas.roles.get(self._key)
            if isinstance(role, PartitionLeader) and role.state.leader_epoch == log.latest_epoch:
                self._history.check_minimum(self._broker_id, role.state)


class _Held(NamedTuple):
    log: WatchedLog
    watcher: _Watcher


class SimulatedBroker(Node):
    """One broker, started again and again."""

    def __init__(self, broker_id: int, world: World) -> None:
        super().__init__(broker_id, world.scheduler, world.network)
        self.world = world
        self.disk = SimulatedDisk()
        self.disk.blown = self._may_be_cut_short
        self.rng = stream("broker", world.plan.seed, broker_id)
        self.forgot_epoch: int | None = None
        """The broker epoch under which it has lost power last."""
        self.blind_until_ms = 0
        """Until when it reads nothing new in the metadata log."""
        self._stopped_epoch = NO_BROKER_EPOCH
        self._clean = False
        self._keys: list[PartitionKey] = []
        """The replicas that its disk has."""
        self.wants_to_stop = False
        self.host: ControllerHost | None = None
        self._begin()

    def _begin(self) -> None:
        """Know nothing, as a new process."""
        settings = self.world.plan.settings
        self.image = ClusterImage()
        self.replicas = Replicas(self.node_id, self.log, self.world.replication_settings(settings.lag_ms))
        self.broker_epoch = NO_BROKER_EPOCH
        self.host = None
        self.fetches = FetchService(self)
        self.produces = ProduceService(self)
        self.acknowledgements = Acknowledgements(self)
        self.transactions = TransactionService(self)
        self.groups = GroupService(self)
        self.wants_to_stop = False
        self._logs: dict[PartitionKey, _Held] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._altering = False
        self._heartbeat_due = 0
        self._shrink_due_ms = self._checkpoint_due_ms = 0
        self._high_watermarks: dict[tuple[str, int], int] = {}

    # Life and death.

    def start(self) -> None:
        """Start a new process; it registers as soon as it finds a controller."""
        if self.alive:
            return
        self.started()
        self._begin()
        self._clean = self._stopped_epoch != NO_BROKER_EPOCH
        self.disk.room = None
        try:
            self._high_watermarks = decode_offsets(self.disk.read(f"/{HIGH_WATERMARKS}"))
        except FileNotFoundError:
            self._high_watermarks = {}
        self.world.trace(lambda: f"broker {self.node_id} starts")
        self.do(self.incarnation, self._go, ())

    def _go(self) -> None:
        for key in self._keys:
            self.log(key)  # all are recovered before anything else, as an orderly stop later on will vouch for them
        self.learn()
        self._register()
        self.after(1, self._chores)

    def die(self, *, power: bool = False) -> None:
        """End the process, or the machine, as it is."""
        if not self.alive:
            return
        self.world.trace(lambda: f"broker {self.node_id} {'loses power' if power else 'dies'}")
        self.world.stopped_uncleanly(self.node_id, power)
        self._stopped_epoch = NO_BROKER_EPOCH
        self._end()
        if power:
            self.forgot_epoch = self.world.metadata.image.broker_epoch(self.node_id)
            if self.disk.lose_power(self.rng, self.world.plan.settings.torn):
                self.world.mark(Mark.POWER_LOST)
        else:
            self.disk.process_died()

    def _end(self) -> None:
        self.ended()
        if self.host is not None:
            self.host = None
            if self.world.metadata.holder_died():
                self.world.mark(Mark.METADATA_LOST)

    def cut_short(self) -> None:
        """See `Node`."""
        self.world.mark(Mark.CUT_SHORT)
        self.die(power=self.world.dies_with_machine(self))

    def _may_be_cut_short(self) -> bool:
        return self.alive and self.world.may_stop(self.node_id, power=False)

    def cannot_write(self, error: OSError) -> None:
        """See `Node`: what must be written and cannot be ends the broker, as in Kafka with its last log directory."""
        self.world.trace(lambda: f"broker {self.node_id} halts: {error}")
        self.world.mark(Mark.BROKEN if self.disk.broken else Mark.HALTED)
        self.die()
        self.world.start_later(self, 500)

    def stop(self) -> None:
        """Stop in order: first let others lead, then flush everything."""
        if self.alive and not self.wants_to_stop:
            self.wants_to_stop = True
            self._heartbeat(self._heartbeat_due)
            self.after(_STOP_MS, self._stop_now)

    def _stop_now(self) -> None:
        for held in self._logs.values():
            held.log.close(self.now_ms)
        self._checkpoint()
        self.disk.settle()
        self._stopped_epoch = self.broker_epoch
        self.world.trace(lambda: f"broker {self.node_id} has stopped in order")
        self._end()
        self.disk.process_died()

    # The cluster: registration, heartbeats, the metadata log.

    def _to_controller(
        self, handle: Callable[[ControllerHost, Call], None], then: Callable[[Any], None], *, may_double: bool = True
    ) -> None:
        holder = self.world.metadata.holder
        if not holder:
            self.after(20, then, None)
            return

        def deliver(call: Call) -> None:
            host = self.world.brokers[holder].host
            if host is None:
                call.answer(ErrorCode.NOT_CONTROLLER)
            else:
                handle(host, call)

        receiver = self.world.brokers[holder]
        Call(self, receiver, deliver, then, self.world.plan.settings.timeout_ms).send(may_double=may_double)

    def _register(self) -> None:
        incarnation = uuid.UUID(int=(self.node_id << 32) | self.incarnation)
        last_epoch = self._stopped_epoch
        self._to_controller(
            lambda host, call: host.register(call, self.node_id, incarnation, last_epoch), self._registered
        )

    def _registered(self, answer: int | ErrorCode | None) -> None:
        if answer is None or isinstance(answer, ErrorCode):
            self.after(self.world.plan.settings.backoff_ms, self._register)
            return
        self.broker_epoch = answer
        self.learn()
        self._heartbeat(self._heartbeat_due)

    def _heartbeat(self, number: int) -> None:
        if number != self._heartbeat_due or self.broker_epoch == NO_BROKER_EPOCH:
            return
        self._heartbeat_due += 1
        epoch, offset, stops = self.broker_epoch, self.image.next_offset, self.wants_to_stop
        self._to_controller(
            lambda host, call: host.heartbeat(call, self.node_id, epoch, offset, stops), self._heard, may_double=False
        )

    def _heard(self, answer: Heartbeat | ErrorCode | None) -> None:
        settings = self.world.plan.settings
        delay_ms = settings.heartbeat_ms
        if answer is ErrorCode.STALE_BROKER_EPOCH:
            self.broker_epoch = NO_BROKER_EPOCH
            self._register()
            return
        if isinstance(answer, Heartbeat):
            if answer.may_shut_down:
                self.world.mark(Mark.STOPPED)
                self._stop_now()
                return
            if answer.fenced or self.wants_to_stop:
                delay_ms = min(delay_ms, 50)
        else:
            delay_ms = min(delay_ms, settings.backoff_ms)
        self.after(delay_ms, self._heartbeat, self._heartbeat_due)

    def learn(self) -> None:
        """Apply what is new in the metadata log."""
        wait_ms = self.blind_until_ms - self.scheduler.now_ms
        if wait_ms > 0:
            self.after(wait_ms, self.learn)
            return
        for record in self.world.metadata.records[self.image.next_offset :]:
            self.image.apply(record)
        self.world.check_image(self.image, self.node_id)
        if self.goes_by_log:
            events = self.replicas.apply(self.image, self.now_ms)
            for error in self.replicas.failed.values():
                raise error  # the broker halts
            self.publish(events)
            self.send_proposals()

    @property
    def proposes(self) -> bool:
        """Whether a proposal to the controller is under way."""
        return self._altering

    @property
    def goes_by_log(self) -> bool:
        """Whether it has read its own registration, so that what the log says of it is about this start of it."""
        return NO_BROKER_EPOCH != self.broker_epoch < self.image.next_offset

    def publish(self, events: Iterable[Event]) -> None:
        """Act on what has changed for partitions here."""
        for event in events:
            key = event.key
            if isinstance(event, Leads):
                self._led(key)
            elif isinstance(event, (Follows, Gone)):
                self.transactions.coordinators.lost(key)
                self.groups.coordinators.lost(key)
                self.acknowledgements.lost(key)
                self.fetches.wake(key)
                if isinstance(event, Gone):
                    self._forget(key)
                elif event.leader != NO_LEADER:
                    self._fetcher(event.leader).fetch()
            else:
                self.acknowledgements.high_watermark_moved(key)

    def appended(self, key: PartitionKey) -> None:
        """Go on after an append to a partition that is led here."""
        self.publish(self.replicas.appended(key, self.now_ms))
        self.fetches.wake(key)
        self.acknowledgements.high_watermark_moved(key)

    def _led(self, key: PartitionKey) -> None:
        epoch = self.replicas.leader(key).state.leader_epoch
        now = self.world.metadata.image.partition(key)
        current = now is not None and now.leader_epoch == epoch
        self.world.trace(lambda: f"broker {self.node_id} leads {self.world.name_of(key)} in epoch {epoch}")
        log = self.log(key)
        self.world.history_of(key).leads(self.node_id, epoch, log.batches, current, log.high_watermark)
        self.transactions.coordinators.leads(key, epoch)
        self.groups.coordinators.leads(key, epoch)
        self.acknowledgements.high_watermark_moved(key)
        self.fetches.wake(key)

    def _fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(self, leader)
        return fetcher

    def send_proposals(self) -> None:
        """Send what is to be proposed to the controller, one request at a time."""
        if self._altering:
            return
        proposals = self.replicas.proposals()
        if not proposals:
            return
        self._altering = True
        epoch = self.broker_epoch
        again_ms = self.world.faults.proposed(self, proposals)
        wanted = [
            InSyncProposal(key, each.leader_epoch, each.partition_epoch, each.in_sync_replicas)
            for key, each in proposals
        ]

        def alter(host: ControllerHost, call: Call) -> None:
            host.alter(call, self.node_id, epoch, wanted)

        if again_ms:
            self.after(again_ms, self._to_controller, alter, nothing)
        self._to_controller(alter, lambda answers: self._altered(proposals, answers))

    def _altered(
        self,
        proposals: list[tuple[PartitionKey, Proposal]],
        answers: list[PartitionState | ErrorCode] | ErrorCode | None,
    ) -> None:
        self._altering = False
        if isinstance(answers, list):
            for (key, proposal), answer in zip(proposals, answers, strict=True):
                self.publish(self.replicas.proposal_answered(key, proposal, answer, self.now_ms))
            self.send_proposals()
            return
        for key, proposal in proposals:
            self.publish(self.replicas.proposal_answered(key, proposal, None, self.now_ms))
        self.after(self.world.plan.settings.backoff_ms, self.send_proposals)

    # Replicas.

    def log(self, key: PartitionKey) -> WatchedLog:
        """Return the log of a replica, opened if need be."""
        held = self._logs.get(key)
        if held is None:
            held = self._logs[key] = self._open(key)
        return held.log

    def _open(self, key: PartitionKey) -> _Held:
        topic = self.world.topic_of(key)
        directory = f"/{topic.name}-{key[1]}"
        config = LogConfig(
            flush_messages=1 if topic.flushed else LONG_MAX,
            segment_bytes=topic.segment_bytes,
            index_interval_bytes=_INDEX_INTERVAL_BYTES,
        )
        before = self._bytes_of_logs(directory)
        log = WatchedLog.open(self.disk, directory, config, self.now_ms, clean=self._clean)
        log.be_one_of_several(0)
        if self._bytes_of_logs(directory) < before:
            self.world.mark(Mark.TORN)
        if key not in self._keys:
            self._keys.append(key)
        watcher = _Watcher(self, key)
        log.watch(watcher)
        self.world.logs[self.node_id, key] = log
        self.world.history_of(key).opened(self.node_id, log.batches)
        self.follow_high_watermark_of(watcher, log, self._high_watermarks.get((topic.name, key[1]), 0))
        return _Held(log, watcher)

    def _forget(self, key: PartitionKey) -> None:
        """Delete a replica that the partition has no more."""
        held = self._logs.pop(key, None)
        if held is not None:
            held.log.abandon()
            self._keys.remove(key)
            del self.world.logs[self.node_id, key]
            directories.remove_log(self.disk, held.log.directory)

    def _bytes_of_logs(self, directory: str) -> int:
        files = self.disk.files
        return sum(len(files[name].data) for name in files if name.startswith(directory) and name.endswith(".log"))

    def follow_high_watermark(self, key: PartitionKey, role: PartitionFollower, offset: int) -> None:
        """Take a leader's high watermark for a replica that follows."""
        watcher = self._logs[key].watcher
        watcher.followed_epoch = role.leader_epoch
        role.fetched(offset)
        watcher.followed_epoch = None

    @staticmethod
    def follow_high_watermark_of(watcher: _Watcher, log: WatchedLog, offset: int) -> None:
        """Take the high watermark that a replica had when it was checkpointed last."""
        watcher.followed_epoch = 0
        log.advance_high_watermark(offset)
        watcher.followed_epoch = None

    def _chores(self) -> None:
        """Do what is due now and then."""
        self.after(_CHORES_MS, self._chores)
        now_ms = self.scheduler.now_ms
        self.disk.settle()
        if now_ms >= self._shrink_due_ms:
            self._shrink_due_ms = now_ms + self.world.plan.settings.lag_ms // 2
            self.publish(self.replicas.tick(self.now_ms))
            self.send_proposals()
        if now_ms >= self._checkpoint_due_ms:
            self._checkpoint_due_ms = now_ms + _CHECKPOINT_MS
            self._checkpoint()
        self.transactions.coordinators.tick()
        self.groups.coordinators.tick()
        if self.host is not None:
            self.host.tick()
        elif not self.wants_to_stop:
            self._try_lead()

    def _try_lead(self) -> None:
        metadata = self.world.metadata
        if metadata.try_lead(self.node_id):
            self.world.became_controller(self.node_id)
            self.host = ControllerHost(self)

    def first_controller(self) -> None:
        """Become the controller although no broker is registered yet."""
        self._try_lead()

    def _checkpoint(self) -> None:
        """Keep the high watermarks for the next start."""
        offsets = {(self.world.topic_of(key).name, key[1]): held.log.high_watermark for key, held in self._logs.items()}
        if offsets != self._high_watermarks:
            self._high_watermarks = offsets
            self.disk.write(f"/{HIGH_WATERMARKS}", encode_offsets(offsets), durable=True)


def nothing(answer: Any) -> None:
    """Ignore an answer."""
