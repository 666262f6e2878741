"""A small cluster that does one thing at a time: the real state machines, without a network or a clock.

One controller, and brokers with one replica each of one partition, all in this process. Nothing happens by itself. A
test lets a producer write, a follower fetch once, a response get lost, a process die, a lease end. What decides is what
decides in a broker: `Controller`, `Replicas`, `PartitionLeader`, `PartitionFollower`, `PartitionLog`; logs lie on disks
in memory that forget what was not flushed.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.controller.controller import Controller, ControllerSettings, Heartbeat, InSyncProposal
from sparkonce.broker_lite.controller.image import MIN_IN_SYNC_REPLICAS, UNCLEAN_ELECTION, ClusterImage, PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER, MetadataRecord, PartitionState
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.broker_lite.replication.replicas import Replicas, ReplicationSettings
from sparkonce.kafka.protocol import records as batches
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

TOPIC: Final = uuid.UUID(int=1)
KEY: Final[PartitionKey] = (TOPIC, 0)
LEASE_MS: Final = 9_000
LAG_TIME_MAX_MS: Final = 30_000
ALL: Final = -1
"""acks=all."""
_DIRECTORY: Final = "/data/t-0"
_EVERYTHING: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Cell:
    """One record of one replica."""

    offset: int
    epoch: int
    label: str


class _Forgetful(random.Random):
    """Lets a disk lose all that it may lose."""

    def randint(self, a: int, b: int) -> int:
        """Return the least that is kept."""
        del b
        return a

    def random(self) -> float:
        """Keep files that were replaced as a whole."""
        return 1.0


@dataclass(slots=True)
class Node:
    """One broker: its disk, and its process while it is alive."""

    broker_id: int
    disk: SimulatedDisk = field(default_factory=SimulatedDisk)
    alive: bool = False
    hears: bool = True
    """Whether the controller's log reaches it."""
    broker_epoch: int = NO_BROKER_EPOCH
    high_watermark_checkpoint: int = 0
    log: PartitionLog = field(init=False)
    replicas: Replicas = field(init=False)
    image: ClusterImage = field(init=False)

    @property
    def role(self) -> PartitionLeader | PartitionFollower | None:
        """What it does for the partition by its own idea."""
        return self.replicas.roles.get(KEY) if self.alive else None


@dataclass(frozen=True, slots=True)
class Written:
    """A record that a producer waits for, sent with acks=all."""

    label: str
    offset: int
    leader: int
    leader_epoch: int


class Stage:
    """The cluster. Brokers are numbered from 1; the first one is the preferred leader."""

    def __init__(
        self,
        brokers: int,
        *,
        least: int = 1,
        unclean: bool = False,
        absent: Iterable[int] = (),
    ) -> None:
        """Begin with a new partition; `least` is min.insync.replicas, `absent` brokers come later."""
        self.now_ms = 0
        self._settings = ReplicationSettings(LAG_TIME_MAX_MS)
        self.controller = Controller(ClusterImage(), ControllerSettings(LEASE_MS, 0), 0)
        self._metadata: list[MetadataRecord] = []
        self._incarnations = 0
        self.nodes = {broker_id: Node(broker_id) for broker_id in range(1, brokers + 1)}
        self.acknowledged: dict[str, int] = {}
        """Records that were acknowledged to a producer, with their offsets."""
        self._waiting: list[Written] = []
        topic = {MIN_IN_SYNC_REPLICAS: str(least), UNCLEAN_ELECTION: str(unclean).lower()}
        for broker_id in self.nodes:
            self.start(broker_id)
        for broker_id in absent:
            self.crash(broker_id)
        self.end_leases(*absent)
        self._write(self.controller.create_topic("t", TOPIC, 1, brokers, topic, [tuple(self.nodes)]))

    # What is to be seen.

    @property
    def state(self) -> PartitionState:
        """What the controller says of the partition."""
        found = self.controller.image.partition(KEY)
        assert found is not None
        return found

    def lost(self) -> list[str]:
        """Return the records that were acknowledged and that the leader does not have where they were."""
        if self.state.leader == NO_LEADER:
            return []
        there = {(cell.label, cell.offset) for cell in self.cells(self.nodes[self.state.leader])}
        return [label for label, offset in self.acknowledged.items() if (label, offset) not in there]

    def diverged(self) -> int:
        """Count the offsets at which a replica that is alive has another record than the leader."""
        if self.state.leader == NO_LEADER:
            return 0
        leaders = {cell.offset: (cell.epoch, cell.label) for cell in self.cells(self.nodes[self.state.leader])}
        return len(
            {
                cell.offset
                for node in self.nodes.values()
                if node.alive
                for cell in self.cells(node)
                if leaders.get(cell.offset, (cell.epoch, cell.label)) != (cell.epoch, cell.label)
            }
        )

    def cells(self, node: Node) -> list[Cell]:
        """Return the records of a replica, read from its log."""
        data = _stored(node.log, node.log.log_start_offset)
        found = []
        for position, header in batches.scan(data):
            for delta, record in enumerate(batches.decode_records(data[position : position + header.size])):
                label, offset = (record.value or b"").decode(), header.base_offset + delta
                found.append(Cell(offset, header.partition_leader_epoch, label))
        return found

    # Producers.

    def produce(self, *labels: str, acks: int = ALL, at: int | None = None) -> ErrorCode:
        """Write records, one batch each, to the leader; returns the error, if any."""
        leader = self.state.leader if at is None else at
        node = self.nodes.get(leader)
        role = None if node is None else node.role
        if node is None or not isinstance(role, PartitionLeader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        for label in labels:
            try:
                if acks == ALL:
                    role.check_acks_all()
                batch = batches.encode_batch([batches.Record(None, label.encode(), self.now_ms)])
                offset = node.log.append(batch, role.state.leader_epoch, self.now_ms).base_offset
            except KafkaError as error:
                return error.code
            if acks == ALL:
                self._waiting.append(Written(label, offset, leader, role.state.leader_epoch))
            else:
                self.acknowledged[label] = offset
            node.replicas.appended(KEY, self.now_ms)
        self._acknowledge()
        return ErrorCode.NONE

    def _acknowledge(self) -> None:
        """Acknowledge what is safe to producers; those that sent to a former leader get no response."""
        for written in list(self._waiting):
            role = self.nodes[written.leader].role
            if not isinstance(role, PartitionLeader) or role.state.leader_epoch != written.leader_epoch:
                self._waiting.remove(written)
                continue
            try:
                safe = role.is_acknowledged(written.offset)
            except KafkaError:
                self._waiting.remove(written)  # its producer gets an error: too few replicas have it
                continue
            if safe:
                self._waiting.remove(written)
                self.acknowledged[written.label] = written.offset

    # Followers.

    def position(self, follower: PartitionFollower) -> FetchPosition:
        """Return what a follower's fetch says."""
        return follower.position

    def asks_first(self, follower: PartitionFollower, leader: PartitionLeader) -> bool:
        """Let a follower ask what it asks before it fetches, and cut its log by the answer; returns whether it has."""
        del follower, leader
        return False

    def takes_epoch(self, follower: PartitionFollower) -> int:
        """Return the latest epoch that a follower takes records of."""
        return follower.leader_epoch

    def fetch(self, broker_id: int, *, records: int | None = None, answer_lost: bool = False) -> ErrorCode:
        """Let a follower ask its leader once; returns how it was refused, if it was.

        Args:
            broker_id: who asks whom it believes to lead.
            records: how many records come at most.
            answer_lost: whether the leader handles the request, but the follower gets no response.
        """
        node = self.nodes[broker_id]
        follower = node.role
        assert isinstance(follower, PartitionFollower), f"broker {broker_id} follows nobody"
        source = self.nodes.get(follower.leader)
        if source is None or not isinstance(source.role, PartitionLeader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            self._ask(node, follower, source, source.role, records, answer_lost)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                return error.code
            follower.out_of_range(source.log.log_start_offset, source.log.log_end_offset)
        self._acknowledge()
        return ErrorCode.NONE

    def _ask(
        self,
        node: Node,
        follower: PartitionFollower,
        source: Node,
        leader: PartitionLeader,
        records: int | None,
        answer_lost: bool,
    ) -> None:
        if self.asks_first(follower, leader):
            return
        says = self.position(follower)
        parts = leader.check_fetch(says.leader_epoch, says.last_fetched_epoch, says.offset)
        if parts is not None:
            follower.diverged(parts)
            return
        data = _stored(source.log, says.offset, records)
        source.replicas.fetched_by(
            KEY, node.broker_id, node.broker_epoch, says.offset, says.log_start_offset, self.now_ms
        )
        if not answer_lost:
            node.log.append_as_follower(data, self.takes_epoch(follower), self.now_ms)
            follower.fetched(source.log.high_watermark)

    def catch_up(self, *brokers: int) -> None:
        """Let followers ask until nothing more comes of it, twice with everything: their high watermarks follow."""
        for broker_id in brokers:
            for _ in range(12):
                before = self.cells(self.nodes[broker_id])
                self.fetch(broker_id)
                if self.cells(self.nodes[broker_id]) == before and not self._is_behind(broker_id):
                    break
        for broker_id in brokers:
            self.fetch(broker_id)

    def _is_behind(self, broker_id: int) -> bool:
        role = self.nodes[broker_id].role
        if not isinstance(role, PartitionFollower) or role.leader not in self.nodes:
            return False
        source = self.nodes[role.leader]
        return source.alive and source.log.log_end_offset != role.log.log_end_offset

    # The controller.

    def take_proposals(self) -> list[tuple[Node, InSyncProposal, Proposal]]:
        """Take what leaders would send to the controller."""
        return [
            (node, _as_sent(key, proposal), proposal)
            for node in self.nodes.values()
            if node.alive
            for key, proposal in node.replicas.proposals()
        ]

    def deliver(self, proposals: Iterable[tuple[Node, InSyncProposal, Proposal]]) -> list[ErrorCode]:
        """Let proposals reach the controller, and its answers the leaders; returns the answers' codes."""
        codes = []
        for node, sent, proposal in proposals:
            found, (answer,) = self.controller.alter_in_sync(node.broker_id, node.broker_epoch, [sent])
            self._write(found)
            taken = answer.code if isinstance(answer, KafkaError) else answer
            node.replicas.proposal_answered(KEY, proposal, taken, self.now_ms)
            codes.append(answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE)
        self._acknowledge()
        return codes

    def alter_in_sync(self) -> list[ErrorCode]:
        """Let leaders propose in-sync sets, and receive the responses."""
        return self.deliver(self.take_proposals())

    def prefer(self) -> None:
        """Let the preferred leader lead."""
        self._write(self.controller.elect(KEY, unclean=False))

    def reassign(self, *replicas: int) -> None:
        """Let the partition have other replicas."""
        self._write(self.controller.reassign(KEY, replicas))

    def end_leases(self, *brokers: int) -> None:
        """Let time pass without heartbeats of these brokers until their leases end."""
        for _ in range(2):
            self.now_ms += LEASE_MS // 2
            for node in self.nodes.values():
                if node.alive and node.broker_id not in brokers:
                    self.heartbeat(node.broker_id)
            self._write(self.controller.tick(self.now_ms))

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass in which all that are alive are heard of; then leaders look for followers that are behind."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + LEASE_MS // 2, end_ms)
            for node in self.nodes.values():
                if node.alive and node.hears:
                    self.heartbeat(node.broker_id)
            self._write(self.controller.tick(self.now_ms))
        for node in self.nodes.values():
            if node.alive:
                node.replicas.tick(self.now_ms)

    def pass_lag_time(self) -> None:
        """Let so much time pass that a follower which does not fetch is out of sync."""
        self.pass_time(LAG_TIME_MAX_MS + 1)

    def heartbeat(self, broker_id: int, *, wants_to_stop: bool = False) -> Heartbeat:
        """Let a broker report to the controller that it has applied all of its log; returns the answer."""
        epoch, applied = self.nodes[broker_id].broker_epoch, self.controller.image.next_offset
        found, heard = self.controller.heartbeat(broker_id, epoch, applied, wants_to_stop, self.now_ms)
        self._write(found)
        return heard

    def stop(self, broker_id: int) -> bool:
        """Let a broker ask whether it may stop, and end if so; returns whether it has."""
        may_stop = self.heartbeat(broker_id, wants_to_stop=True).may_shut_down
        if may_stop:
            self.crash(broker_id)
        return may_stop

    def change_least(self, least: int) -> None:
        """Let the topic have another `min.insync.replicas`."""
        topic = self.controller.image.topics[TOPIC]
        self._write(self.controller.change_settings("t", {**topic.settings, MIN_IN_SYNC_REPLICAS: str(least)}))
        self._acknowledge()

    def _write(self, records: list[MetadataRecord]) -> None:
        self._metadata += records
        self.spread()

    def spread(self) -> None:
        """Let all brokers that reach the controller apply what it has written."""
        for node in self.nodes.values():
            if node.alive and node.hears and node.image.next_offset < len(self._metadata):
                for record in self._metadata[node.image.next_offset :]:
                    node.image.apply(record)
                node.replicas.apply(node.image, self.now_ms)

    # Processes and disks.

    def flush(self, broker_id: int) -> None:
        """Bring a broker's log onto its disk."""
        self.nodes[broker_id].log.flush(self.now_ms)

    def crash(self, *brokers: int, power: bool = False) -> None:
        """Let processes die; with `power`, what they had not flushed is lost as well."""
        for broker_id in brokers:
            node = self.nodes[broker_id]
            node.high_watermark_checkpoint = node.log.high_watermark
            node.log.abandon()
            node.alive = False
            if power:
                node.disk.settle()  # what was to be flushed in the background has been, long ago
                node.disk.lose_power(_Forgetful(), torn=False)
            else:
                node.disk.process_died()
            self._open(node)  # what is left, to be checked

    def start(self, broker_id: int, *, asked: bool = True) -> None:
        """Let a broker start, register, and be heard of.

        Args:
            broker_id: who.
            asked: whether the controller asks how it has stopped (KIP-966). If not, it takes it for a clean stop.
        """
        node = self.nodes[broker_id]
        self._begin(node)
        self._incarnations += 1
        last_epoch = NO_BROKER_EPOCH if asked else node.broker_epoch
        found, node.broker_epoch = self.controller.register(
            broker_id, uuid.UUID(int=self._incarnations), "localhost", 9092, last_epoch, self.now_ms
        )
        self._write(found)
        self.heartbeat(broker_id)

    def restart_in_session(self, broker_id: int) -> None:
        """Let a process end and begin again before anybody has noticed: with ZooKeeper, its session went on."""
        self.crash(broker_id)
        self._begin(self.nodes[broker_id])
        self.spread()

    def _begin(self, node: Node) -> None:
        self._open(node)
        node.alive, node.image = True, ClusterImage()
        node.replicas = Replicas(node.broker_id, _always(node), self._settings)

    def _open(self, node: Node) -> None:
        node.log = PartitionLog.open(node.disk, _DIRECTORY, LogConfig(), self.now_ms)
        node.log.be_one_of_several(node.high_watermark_checkpoint)


class AsksOnce(Stage):
    """By KIP-101 alone: a follower asks its leader once where the epoch of its last record ends, and then just fetches.

    Kafka's question of those days was OffsetForLeaderEpoch.
    """

    def __init__(self, brokers: int, **settings: Any) -> None:
        self._have_asked: set[PartitionFollower] = set()
        super().__init__(brokers, **settings)

    def position(self, follower: PartitionFollower) -> FetchPosition:
        """Leave the last record's epoch out."""
        return super().position(follower)._replace(last_fetched_epoch=-1)

    def asks_first(self, follower: PartitionFollower, leader: PartitionLeader) -> bool:
        """Cut the log to where its last epoch ended, or to the high watermark if the leader knows none so early."""
        log, has_asked = follower.log, follower in self._have_asked
        self._have_asked.add(follower)
        if has_asked or log.latest_epoch < 0:
            return False
        theirs = leader.log.epoch_end(log.latest_epoch)
        log.truncate_to(log.high_watermark if theirs is None else min(theirs.end_offset, log.log_end_offset))
        return True


def _as_sent(key: PartitionKey, proposal: Proposal) -> InSyncProposal:
    return InSyncProposal(key, proposal.leader_epoch, proposal.partition_epoch, proposal.in_sync_replicas)


def _always(node: Node) -> Callable[[PartitionKey], PartitionLog]:
    return lambda _: node.log


def _stored(log: PartitionLog, offset: int, records: int | None = None) -> bytes:
    """Return the batches from an offset on, up to so many records."""
    if offset >= log.log_end_offset:
        if offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is beyond the end, {log.log_end_offset}")
        return b""
    limit = None if records is None else offset + records
    return log.read(offset, _EVERYTHING, min_one_batch=True, up_to_offset=limit).read()
