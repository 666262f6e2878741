"""The active controller: requests and time in, records for its log out (a smaller QuorumController).

Theory of operation: every method reads the image, decides, and returns records, which are already applied to the
image. The caller writes the records to the log, durably, before it sends the answer; if that fails, this controller is
discarded, and another one starts from the log. So all state here is in the log, except the leases: the time of each
broker's last heartbeat. A new controller grants every broker a whole lease, from its own start.

A broker is fenced from its registration until its first heartbeat that has caught up with the log, and again when its
lease has expired. A fenced broker leads no partition and is in sync in none. Its epoch is the offset of its
registration: requests of an earlier start of it are ignored (KIP-903).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sparkonce.broker_lite.assertions import BrokenInvariantError, broken
from sparkonce.broker_lite.controller.election import next_state
from sparkonce.broker_lite.controller.image import BrokerImage, ClusterImage, PartitionKey, TopicImage
from sparkonce.broker_lite.controller.partition_state import broken_invariant
from sparkonce.broker_lite.controller.placement import place
from sparkonce.broker_lite.controller.records import (
    NO_BROKER_EPOCH,
    NO_LEADER,
    BrokerChanged,
    BrokerRegistered,
    DefaultSettingsChanged,
    DocumentChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionState,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
    TopicSettingsChanged,
)
from sparkonce.kafka.protocol.errors import ErrorCode, KafkaError

PRODUCER_ID_BLOCK: Final = 1000
"""How many producer ids a broker gets at once."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller's settings; times in milliseconds."""

    session_timeout_ms: int = 9_000
    """The time without a heartbeat after which a broker is fenced."""
    rebalance_interval_ms: int = 300_000
    """How often leadership returns to the preferred leaders; 0 for never."""
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """The initial values for a log without these settings; afterwards the log's values are valid."""
    first_leader_epoch: int = 0
    """The first leader epoch of new partitions."""


class InSyncProposal(NamedTuple):
    """The in-sync replicas that a leader proposes: brokers with the epochs that it knows."""

    key: PartitionKey
    leader_epoch: int
    partition_epoch: int
    in_sync_replicas: tuple[tuple[int, int], ...]


class Heartbeat(NamedTuple):
    """The answer to a broker's heartbeat."""

    fenced: bool
    caught_up: bool
    may_shut_down: bool


class Controller:
    """The state machine; not thread-safe."""

    def __init__(self, image: ClusterImage, settings: ControllerSettings, now_ms: int) -> None:
        self.image = image
        self._settings = settings
        self._heard_ms = dict.fromkeys(image.brokers, now_ms)
        self._balanced_ms = now_ms

    def begin(self) -> list[MetadataRecord]:
        """Return the initial records of the log: to be called first by each controller.

        As Kafka's controller does when eligible leader replicas are enabled (KIP-966).
        """
        known = self.image.default_settings
        return self.change_default_settings(
            {name: value for name, value in self._settings.topic_defaults.items() if name not in known}
        )

    def register(
        self,
        broker_id: int,
        incarnation: uuid.UUID,
        host: str,
        port: int,
        last_epoch: int,
        now_ms: int,
        listeners: tuple[tuple[str, str, int], ...] = (),
    ) -> tuple[list[MetadataRecord], int]:
        """Register a broker that has started; return its epoch.

        `last_epoch` is the epoch that the broker stopped cleanly with, or NO_BROKER_EPOCH: a broker that did not stop
        cleanly may have lost what it had not flushed, and is no longer eligible to lead.

        Raises:
            KafkaError: DUPLICATE_BROKER_REGISTRATION if another one of the same id is alive.
        """
        known = self.image.brokers.get(broker_id)
        if known is not None:
            if known.incarnation == incarnation:
                self._heard_ms[broker_id] = now_ms
                return [], known.broker_epoch
            if not known.fenced and self._has_lease(broker_id, now_ms):
                raise KafkaError(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    f"broker {broker_id} is alive at {known.host}:{known.port}; each broker needs an id of its own",
                )
        records = self._record([BrokerRegistered(broker_id, incarnation, host, port, listeners)])
        self._heard_ms[broker_id] = now_ms
        stopped_cleanly = known is not None and last_epoch == known.broker_epoch
        forgetful = () if stopped_cleanly else (broker_id,)
        records += self._without(broker_id, forgetful)
        return records, self.image.broker_epoch(broker_id)

    def heartbeat(
        self,
        broker_id: int,
        broker_epoch: int,
        next_offset: int,
        wants_to_stop: bool,
        now_ms: int,
        *,
        wants_fence: bool = False,
    ) -> tuple[list[MetadataRecord], Heartbeat]:
        """Handle a heartbeat of a broker that has applied the log up to `next_offset`.

        A broker that may shut down is fenced at the same time, so that its next start need not wait for the end of its
        lease. One whose disk has failed requests to be fenced: it may have lost records, and is not eligible to
        lead.

        Raises:
            KafkaError: STALE_BROKER_EPOCH if it must register again.
        """
        broker = self._checked_broker(broker_id, broker_epoch)
        self._heard_ms[broker_id] = now_ms
        records: list[MetadataRecord] = []
        caught_up = next_offset > broker_epoch
        may_shut_down = False
        # A broker that requests to be fenced may be fenced already, after its session timeout, and still be eligible.
        forgetful = (broker_id,) if wants_fence else ()
        if wants_to_stop:
            if not broker.shutting_down:
                records += self._change(broker_id, fenced=broker.fenced, shutting_down=True)
            if wants_fence or not broker.shutting_down:
                records += self._without(broker_id, forgetful)
            may_shut_down = not any(state.leader == broker_id for _, state in self.image.partitions())
            if may_shut_down and not broker.fenced:
                records += self._change(broker_id, fenced=True, shutting_down=True)
        elif wants_fence:
            if not broker.fenced:
                records += self._change(broker_id, fenced=True, shutting_down=False)
            records += self._without(broker_id, forgetful)
        elif broker.fenced and caught_up:
            records += self._change(broker_id, fenced=False, shutting_down=False)
            records += self._elect_where_nobody_leads()
        return records, Heartbeat(self.image.brokers[broker_id].fenced, caught_up, may_shut_down)

    def alter_in_sync(
        self, broker_id: int, broker_epoch: int, proposals: Iterable[InSyncProposal]
    ) -> tuple[list[MetadataRecord], list[PartitionState | KafkaError]]:
        """Handle a leader's proposals of in-sync replicas; return for each the new state, or the error.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        self._checked_broker(broker_id, broker_epoch)
        records: list[MetadataRecord] = []
        answers: list[PartitionState | KafkaError] = []
        for proposal in proposals:
            try:
                changed, now = self._altered(broker_id, proposal)
            except KafkaError as error:
                answers.append(error)
                continue
            records += changed
            answers.append(now)
        return records, answers

    def _altered(self, leader: int, proposal: InSyncProposal) -> tuple[list[MetadataRecord], PartitionState]:
        state = self.image.partition(proposal.key)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no partition {proposal.key}")
        if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the leader has heard of an epoch that is not in this log")
        if proposal.leader_epoch < state.leader_epoch or state.leader != leader:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"epoch {state.leader_epoch} is led by {state.leader}")
        if proposal.partition_epoch != state.partition_epoch:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"the partition's epoch is {state.partition_epoch}")
        wanted = [broker_id for broker_id, _ in proposal.in_sync_replicas]
        if leader not in wanted or not set(wanted) <= set(state.replicas):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{wanted} cannot be in sync: replicas are {state.replicas}")
        for broker_id, epoch in proposal.in_sync_replicas:
            # A new start of a replica in sync changes the partition's epoch, that of another one does not.
            may_lack_epoch = broker_id in state.in_sync_replicas
            is_latest = epoch == self.image.broker_epoch(broker_id) or (may_lack_epoch and epoch == NO_BROKER_EPOCH)
            if not self.image.may_join(broker_id) or not is_latest:
                raise KafkaError(
                    ErrorCode.INELIGIBLE_REPLICA, f"broker {broker_id} with epoch {epoch} may not be in sync now"
                )
        records = self._move(proposal.key, state, wanted)
        now = self.image.partition(proposal.key)
        assert now is not None
        # The completion of a reassignment is a change of its own: the leader learns of it from the log, as of any
        # other.
        return records + self._end_move(proposal.key, now), now

    def create_topic(
        self,
        name: str,
        topic_id: uuid.UUID,
        partitions: int,
        replication_factor: int,
        settings: Mapping[str, str],
        replicas: Sequence[tuple[int, ...]] = (),
    ) -> list[MetadataRecord]:
        """Create a topic; unless assigned, its replicas are spread over the brokers, live ones first.

        Raises:
            KafkaError: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT.
        """
        if name in self.image.topic_ids:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists")
        placed = replicas or self._place(partitions, replication_factor, len(self.image.topics))
        self._check_placed(placed)
        created = TopicCreated(name, topic_id, tuple(sorted(settings.items())))
        return self._record([created, *self._new_partitions(topic_id, 0, placed)])

    def create_partitions(
        self, name: str, count: int, replicas: Sequence[tuple[int, ...]] = ()
    ) -> list[MetadataRecord]:
        """Increase a topic to `count` partitions.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
                INVALID_REPLICA_ASSIGNMENT.
        """
        topic = self._topic(name)
        now = len(topic.partitions)
        if count <= now:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"topic {name} has {now} partitions already, asked: {count}")
        factor = len(topic.partitions[0].replicas)
        placed = replicas or self._place(count - now, factor, len(self.image.topics) + now)
        self._check_placed(placed)
        return self._record(self._new_partitions(topic.topic_id, now, placed))

    def delete_topic(self, topic_id: uuid.UUID) -> list[MetadataRecord]:
        """Delete a topic by its id: its name may belong to another topic by now.

        Raises:
            KafkaError: UNKNOWN_TOPIC_ID.
        """
        if topic_id not in self.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic with id {topic_id}")
        return self._record([TopicDeleted(topic_id)])

    def change_settings(self, name: str, settings: Mapping[str, str]) -> list[MetadataRecord]:
        """Replace all of a topic's settings; unclean elections that they allow happen at once.

        If a smaller `min.insync.replicas` lets records be acknowledged again, replicas out of sync will not have them,
        and so are no longer eligible.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic_id = self._topic(name).topic_id
        before = self._safety(topic_id)
        records = self._record([TopicSettingsChanged(topic_id, tuple(sorted(settings.items())))])
        moves = list(self.image.topics[topic_id].partitions.items()) if self._safety(topic_id) != before else []
        for index, state in moves:
            records += self._move_if_valid((topic_id, index), state, state.in_sync_replicas)
        return records

    def _safety(self, topic_id: uuid.UUID) -> tuple[int, bool]:
        """Return a topic's settings for elections: min.insync.replicas, and whether unclean elections are allowed."""
        return self.image.min_in_sync_replicas(topic_id), self.image.allows_unclean_election(topic_id)

    def change_default_settings(self, settings: Mapping[str, str]) -> list[MetadataRecord]:
        """Set the defaults for topics without these settings of their own; others keep their values.

        As `change_settings` for each of these topics.
        """
        before = self.image.default_settings
        changed = {name for name, value in settings.items() if before.get(name) != value}
        if not changed:
            return []
        records = self._record([DefaultSettingsChanged(tuple(sorted({**before, **settings}.items())))])
        for key, state in list(self.image.partitions()):
            if not changed <= self.image.topics[key[0]].settings.keys():
                records += self._move_if_valid(key, state, state.in_sync_replicas)
        return records

    def elect(self, key: PartitionKey, *, unclean: bool) -> list[MetadataRecord]:
        """Elect the preferred leader; or, if the partition has no leader, any replica (ElectLeaders).

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE,
                ELECTION_NOT_NEEDED.
        """
        state = self.image.partition(key)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {key}")
        if state.leader == state.replicas[0] or (unclean and state.leader != NO_LEADER):
            raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, f"broker {state.leader} leads")
        records = self._move(key, state, state.in_sync_replicas, unclean=unclean, prefer_first=not unclean)
        if not records and unclean:
            raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"none of {state.replicas} is there")
        if not records:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, f"broker {state.replicas[0]} cannot lead now")
        return records

    def reassign(self, key: PartitionKey, target: Sequence[int] | None) -> list[MetadataRecord]:
        """Reassign a partition to other replicas, the preferred leader first; None cancels a reassignment.

        New replicas copy the partition first. When all of them are in sync, those that are not in `target` are removed.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS.
        """
        state = self.image.partition(key)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {key}")
        before = tuple(each for each in state.replicas if each not in state.adding_replicas)
        if target is None:
            if not (state.adding_replicas or state.removing_replicas):
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no move is under way")
            target = before
        self._check_placed([tuple(target)])
        going = tuple(each for each in before if each not in target)
        coming = tuple(each for each in target if each not in before)
        wanted = state._replace(replicas=(*target, *going), adding_replicas=coming, removing_replicas=going)
        records = self._settle(key, state, wanted)
        return records + self._end_move(key, self.image.topics[key[0]].partitions[key[1]])

    def _end_move(self, key: PartitionKey, state: PartitionState) -> list[MetadataRecord]:
        """Complete a reassignment when all new replicas, and at least one that is kept, are in sync."""
        target = tuple(each for each in state.replicas if each not in state.removing_replicas)
        under_way = state.adding_replicas or state.removing_replicas
        in_sync = set(state.in_sync_replicas)
        if not under_way or not set(state.adding_replicas) <= in_sync or not in_sync & set(target):
            return []
        wanted = state._replace(replicas=target, adding_replicas=(), removing_replicas=())
        with contextlib.suppress(BrokenInvariantError):  # what was decided before it stays
            return self._settle(key, state, wanted)
        return []

    def _settle(self, key: PartitionKey, state: PartitionState, wanted: PartitionState) -> list[MetadataRecord]:
        """Set a partition's replicas; removed ones are not in sync, and do not lead.

        A removal begins a new leader epoch, with the same leader too, as in Kafka's PartitionChangeBuilder: a removed
        replica that has not heard of it still fetches. If it were added again in the same epoch, the leader would take
        these fetches for those of its new log, which is empty.
        """
        if wanted == state:
            return []
        have_all = set(state.in_sync_replicas) or {state.last_known_leader} - {NO_LEADER}
        if have_all and not have_all & set(wanted.replicas):
            text = f"none of {wanted.replicas} is in sync: they would lose what {sorted(have_all)} have"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        least = self.image.min_in_sync_replicas(key[0])
        settled = next_state(wanted, wanted.in_sync_replicas, self.image.may_join, least)
        if settled.partition_epoch == state.partition_epoch:
            settled = settled._replace(partition_epoch=state.partition_epoch + 1)
        if settled.leader_epoch == state.leader_epoch and not set(state.replicas) <= set(settled.replicas):
            settled = settled._replace(leader_epoch=state.leader_epoch + 1)
        return self._record([PartitionChanged(*key, settled)])

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[list[MetadataRecord], range]:
        """Return a block of producer ids for one broker.

        Raises:
            KafkaError: STALE_BROKER_EPOCH.
        """
        self._checked_broker(broker_id, broker_epoch)
        first = self.image.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)
        return self._record([ProducerIdsAllocated(block.stop)]), block

    def change_document(self, name: str, text: str) -> list[MetadataRecord]:
        """Set the text of a file that is the same on all brokers."""
        return self._record([DocumentChanged(name, text)])

    def tick(self, now_ms: int) -> list[MetadataRecord]:
        """Fence silent brokers; periodically return leadership to the preferred leaders."""
        silent = [
            broker.broker_id
            for broker in self.image.brokers.values()
            if not broker.fenced and not self._has_lease(broker.broker_id, now_ms)
        ]
        records = self.fence(silent)
        interval_ms = self._settings.rebalance_interval_ms
        if interval_ms and now_ms - self._balanced_ms >= interval_ms:
            self._balanced_ms = now_ms
            records += self._balance()
        return records

    def misses_heartbeats(self, now_ms: int) -> bool:
        """Whether an unfenced broker has been silent for half of its session timeout."""
        return any(
            not broker.fenced and 2 * self._silent_ms(broker.broker_id, now_ms) > self._settings.session_timeout_ms
            for broker in self.image.brokers.values()
        )

    def fence(self, broker_ids: Iterable[int]) -> list[MetadataRecord]:
        """Fence brokers that are dead, or may be: they lead nothing and are not in sync until their next heartbeat."""
        dead = [each for each in broker_ids if not self.image.brokers[each].fenced]
        records: list[MetadataRecord] = []
        for broker_id in dead:
            records += self._change(broker_id, fenced=True, shutting_down=self.image.brokers[broker_id].shutting_down)
        for broker_id in dead:
            records += self._without(broker_id, ())
        return records

    # Changes of the image: all go through `_record`.

    def _record(self, records: list[MetadataRecord]) -> list[MetadataRecord]:
        """Apply records.

        Raises:
            BrokenInvariantError: if a partition's new state is not valid; then none is applied.
        """
        for record in records:
            if isinstance(record, PartitionChanged):
                key = (record.topic_id, record.partition)
                found = broken_invariant(self.image.partition(key), record.state)
                if found is not None:
                    raise broken(found[0], f"partition {key[0]}-{key[1]}: {found[1]}")
        for record in records:
            self.image.apply(record)
        return records

    def _change(self, broker_id: int, *, fenced: bool, shutting_down: bool) -> list[MetadataRecord]:
        return self._record([BrokerChanged(broker_id, self.image.broker_epoch(broker_id), fenced, shutting_down)])

    def _move(
        self,
        key: PartitionKey,
        state: PartitionState,
        in_sync_replicas: Collection[int],
        *,
        unclean: bool = False,
        forgetful: Collection[int] = (),
        prefer_first: bool = False,
    ) -> list[MetadataRecord]:
        changed = next_state(
            state,
            in_sync_replicas,
            self.image.may_join,
            self.image.min_in_sync_replicas(key[0]),
            unclean=unclean or self.image.allows_unclean_election(key[0]),
            forgetful=forgetful,
            prefer_first=prefer_first,
        )
        return [] if changed == state else self._record([PartitionChanged(*key, changed)])

    def _move_if_valid(
        self, key: PartitionKey, state: PartitionState, in_sync_replicas: Collection[int], **options: Any
    ) -> list[MetadataRecord]:
        """As `_move`; a partition whose new state would not be valid stays as it is, and the others move."""
        with contextlib.suppress(BrokenInvariantError):
            return self._move(key, state, in_sync_replicas, **options)
        return []

    def _without(self, broker_id: int, forgetful: Collection[int]) -> list[MetadataRecord]:
        """Remove a broker that is fenced or about to stop from all in-sync replicas and leaderships."""
        records: list[MetadataRecord] = []
        for key, state in list(self.image.partitions()):
            concerned = (*state.in_sync_replicas, *(state.eligible_leader_replicas if forgetful else ()), state.leader)
            if broker_id in concerned:
                left = [each for each in state.in_sync_replicas if each != broker_id]
                records += self._move_if_valid(key, state, left, forgetful=forgetful)
        return records

    def _elect_where_nobody_leads(self) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        for key, state in list(self.image.partitions()):
            if state.leader == NO_LEADER:
                records += self._move_if_valid(key, state, state.in_sync_replicas)
        return records

    def _balance(self) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        for key, state in list(self.image.partitions()):
            if state.leader not in (NO_LEADER, state.replicas[0]):
                records += self._move_if_valid(key, state, state.in_sync_replicas, prefer_first=True)
        return records

    def _new_partitions(
        self, topic_id: uuid.UUID, first: int, placed: Sequence[tuple[int, ...]]
    ) -> list[MetadataRecord]:
        begun: list[MetadataRecord] = []
        epoch = self._settings.first_leader_epoch
        states: dict[tuple[int, ...], PartitionState] = {}
        for index, replicas in enumerate(placed, first):
            state = states.get(replicas)
            if state is None:
                there = tuple(each for each in replicas if self.image.may_join(each))
                state = states[replicas] = PartitionState(replicas, there, there[0], epoch, 0)
            begun.append(PartitionChanged(topic_id, index, state))
        return begun

    # Queries.

    def _has_lease(self, broker_id: int, now_ms: int) -> bool:
        return self._silent_ms(broker_id, now_ms) < self._settings.session_timeout_ms

    def _silent_ms(self, broker_id: int, now_ms: int) -> int:
        return now_ms - self._heard_ms.get(broker_id, now_ms)

    def _checked_broker(self, broker_id: int, broker_epoch: int) -> BrokerImage:
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"broker {broker_id} has epoch {self.image.broker_epoch(broker_id)} here, not {broker_epoch}",
            )
        return broker

    def _topic(self, name: str) -> TopicImage:
        topic = self.image.topic(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        return topic

    def _place(self, partitions: int, replication_factor: int, first: int) -> list[tuple[int, ...]]:
        there = [broker_id for broker_id in sorted(self.image.brokers) if self.image.may_join(broker_id)]
        away = [broker_id for broker_id in sorted(self.image.brokers) if not self.image.may_join(broker_id)]
        return place(there, away, partitions, replication_factor, first)

    def _check_placed(self, placed: Sequence[tuple[int, ...]]) -> None:
        for replicas in dict.fromkeys(placed):
            if not replicas or len(set(replicas)) != len(replicas) or not set(replicas) <= set(self.image.brokers):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"replicas {replicas} must be different brokers of {sorted(self.image.brokers)}",
                )
            if not any(self.image.may_join(each) for each in replicas):
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of the brokers {replicas} is there")
