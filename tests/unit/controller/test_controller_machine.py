"""Whatever brokers do and whenever: the cluster stays sound, and no leader lacks what was acknowledged.

The model beside the controller is a set for each partition: which replicas have all that was acknowledged. An
acknowledgement leaves those that are in sync in it; a start after an unclean stop takes a broker out, since it may have
lost what it had not flushed; whoever joins has caught up with the leader. A leader outside that set is a loss, and
allowed only where an election was unclean, or nobody was left but the one that had led last.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, NO_LEADER, PartitionState
from sparkonce.kafka.protocol.errors import KafkaError
from tests.chance import examples
from tests.unit.controller.cluster import TOPIC, Cluster

BROKERS = st.integers(1, 4)
PARTITIONS: list[PartitionKey] = [(TOPIC, 0), (TOPIC, 1)]
REPLICAS = ((1, 2, 3), (4, 3, 2))


class ControllerMachine(RuleBasedStateMachine):
    """Four brokers, two partitions of three replicas."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster(brokers=4)
        self.topic = {"min.insync.replicas": "2"}
        self.cluster.make_topic(*REPLICAS, min_insync_replicas="2")
        self.before = {key: self.state(key) for key in PARTITIONS}
        self.whole = {key: set(self.state(key).replicas) for key in PARTITIONS}
        """Which replicas have all that was acknowledged."""
        self.gone: dict[int, int] = {}
        """Brokers whose process has ended, and the epoch that they know if they stopped cleanly."""
        self.unclean = False

    def state(self, key: PartitionKey) -> PartitionState:
        found = self.cluster.image.partition(key)
        assert found is not None
        return found

    @property
    def least(self) -> int:
        return int(self.topic["min.insync.replicas"])

    @rule(brokers=st.lists(BROKERS, min_size=1, unique=True), clean=st.booleans(), at_once=st.booleans())
    def end(self, brokers: list[int], clean: bool, at_once: bool) -> None:
        """Let processes end, after a clean stop or killed; and their leases, one after the other or at once."""
        for broker_id in brokers:
            if broker_id in self.gone:
                continue
            self.gone[broker_id] = NO_BROKER_EPOCH
            if clean and not self.cluster.image.brokers[broker_id].fenced:
                epoch = self.cluster.image.broker_epoch(broker_id)
                if self.cluster.heartbeat(broker_id, wants_to_stop=True).may_shut_down:
                    self.gone[broker_id] = epoch
            self.settle()
            if not at_once:
                self.let_leases_end(set())

    @rule(others=st.sets(BROKERS))
    def let_leases_end(self, others: set[int]) -> None:
        """Those that are gone are not heard of; nor are some that only hang."""
        self.cluster.silence(*self.gone, *others)
        self.settle()

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), joins=st.booleans())
    def begin(self, data: st.DataObject, joins: bool) -> None:
        """Let a process start that had ended."""
        broker_id = data.draw(st.sampled_from(sorted(self.gone)))
        last_epoch = self.gone[broker_id]
        cleanly = last_epoch == self.cluster.image.broker_epoch(broker_id)
        try:
            self.cluster.register(broker_id, last_epoch)
        except KafkaError:
            return  # its lease has not ended
        del self.gone[broker_id]
        if not cleanly:
            for whole in self.whole.values():
                whole.discard(broker_id)
        self.settle()
        if joins:
            self.heartbeat(broker_id, behind=False)

    @rule(broker_id=BROKERS, behind=st.booleans())
    def heartbeat(self, broker_id: int, behind: bool) -> None:
        if broker_id not in self.gone:
            self.cluster.heartbeat(broker_id, behind=behind)
            self.settle()

    @rule(index=st.integers(0, 1), data=st.data())
    def propose(self, index: int, data: st.DataObject) -> None:
        """Let a leader say who is in sync: those that leave are behind, those that join have caught up with it."""
        key = PARTITIONS[index]
        state = self.state(key)
        if state.leader == NO_LEADER or state.leader in self.gone:
            return
        others = sorted(set(state.replicas) - {state.leader})
        in_sync = [state.leader, *(data.draw(st.lists(st.sampled_from(others), unique=True)) if others else ())]
        joined = set(in_sync) - set(state.in_sync_replicas)
        if joined & self.gone.keys():
            return
        if not isinstance(self.cluster.propose(*in_sync, key=key), KafkaError) and state.leader in self.whole[key]:
            self.whole[key] |= joined
        self.settle()

    @rule(index=st.integers(0, 1))
    def acknowledge(self, index: int) -> None:
        """Let a write be acknowledged: it is in all that are in sync, and in nobody else."""
        state = self.state(PARTITIONS[index])
        if state.leader != NO_LEADER and len(state.in_sync_replicas) >= min(self.least, len(state.replicas)):
            self.whole[PARTITIONS[index]] &= set(state.in_sync_replicas)

    @rule(least=st.integers(1, 3), unclean=st.booleans())
    def change_settings(self, least: int, unclean: bool) -> None:
        self.topic = {"min.insync.replicas": str(least), "unclean.leader.election.enable": str(unclean).lower()}
        self.unclean = unclean
        self.cluster.write(self.cluster.controller.change_settings("t", self.topic))
        self.settle()

    @rule(index=st.integers(0, 1), unclean=st.booleans())
    def elect(self, index: int, unclean: bool) -> None:
        try:
            self.cluster.write(self.cluster.controller.elect(PARTITIONS[index], unclean=unclean))
        except KafkaError:
            return
        self.settle(unclean=unclean)

    @rule(index=st.integers(0, 1), replicas=st.none() | st.lists(BROKERS, min_size=1, max_size=3, unique=True))
    def reassign(self, index: int, replicas: list[int] | None) -> None:
        """Move a partition, or give a move up; one that is not among its replicas any more has nothing of it."""
        try:
            self.cluster.write(self.cluster.controller.reassign(PARTITIONS[index], replicas))
        except KafkaError:
            return
        self.settle()

    @rule()
    def fail_over(self) -> None:
        self.cluster.fail_over()

    @precondition(lambda self: len(self.cluster.log) > 150)
    @rule()
    def look_again_from_the_start(self) -> None:
        assert self.cluster.replay() == self.cluster.image

    def settle(self, *, unclean: bool = False) -> None:
        """Compare each partition with what it was before the last step."""
        for key in PARTITIONS:
            before, now = self.before[key], self.state(key)
            self.before[key] = now
            self.whole[key] &= set(now.replicas)
            assert now.partition_epoch >= before.partition_epoch
            assert now.leader_epoch >= before.leader_epoch
            assert now.leader == before.leader or now.leader_epoch > before.leader_epoch
            if now.leader in (before.leader, NO_LEADER) or now.leader in self.whole[key]:
                continue
            could = self.whole[key] & {*before.in_sync_replicas, *before.eligible_leader_replicas}
            nobody_better = not could and before.last_known_leader in (now.leader, NO_LEADER)
            assert self.unclean or unclean or nobody_better, f"{now} after {before} loses what {could} have"
            self.whole[key] = {now.leader}  # what it has is what counts from now on

    @invariant()
    def states_are_sound(self) -> None:
        image = self.cluster.image
        for key, state in image.partitions():
            assert state.leader == NO_LEADER or state.leader in state.in_sync_replicas
            assert set(state.in_sync_replicas) <= set(state.replicas)
            assert all(image.may_join(each) for each in state.in_sync_replicas)
            assert not set(state.in_sync_replicas) & set(state.eligible_leader_replicas)
            assert bool(state.in_sync_replicas) == (state.leader != NO_LEADER)
            if state.eligible_leader_replicas:
                assert len(state.in_sync_replicas) < self.least
            assert set(state.in_sync_replicas) <= self.whole[key]

    @invariant()
    def a_second_image_is_equal(self) -> None:
        if len(self.cluster.log) <= 150:
            assert self.cluster.replay() == self.cluster.image

    def teardown(self) -> None:
        assert self.cluster.replay() == self.cluster.image


def test_whatever_brokers_do_the_cluster_stays_sound() -> None:
    steps: Any = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
    run_state_machine_as_test(ControllerMachine, settings=steps)  # type: ignore[no-untyped-call]
