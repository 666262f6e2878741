"""Controller, leaders and followers together, in any order of events: nothing that was acknowledged is ever lost.

Three brokers with one partition, and a walk for each seed. Processes die and begin again, leases end, brokers hear the
controller late, fetches lose their answers, proposals arrive late, twice or never. Page caches outlive processes, and
elections are clean, so there is no excuse: whoever leads has every record that was acknowledged with acks=all, and logs
agree below high watermarks. That the walks find what they should is tried with rules of former times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest

from lab.sim.planted.state_machines import PLANTED
from sparkonce.broker_lite.controller.controller import Controller, InSyncProposal
from sparkonce.broker_lite.controller.records import NO_LEADER, MetadataRecord, TopicSettingsChanged
from sparkonce.broker_lite.replication.follower import PartitionFollower
from sparkonce.broker_lite.replication.leader import PartitionLeader, Proposal
from sparkonce.kafka.protocol.errors import KafkaError
from tests.unit.replication.stage import KEY, AsksOnce, Node, Stage

STEPS = 60


class Walk:
    """One walk; `log` is what was done, to be read after a failure."""

    def __init__(self, seed: int, stage_class: type[Stage]) -> None:
        self.rng = random.Random(seed)
        self.stage = stage_class(3, least=self.rng.choice([1, 2, 2, 3]))
        self.sent = 0
        self.late: list[tuple[Node, InSyncProposal, Proposal]] = []
        """Proposals on their way."""
        self.epochs: dict[int, int] = {}
        """Who led in which epoch."""
        self.stopped: set[int] = set()
        """Who has stopped cleanly, and will say so."""
        self.log: list[str] = []
        self.ops: dict[Callable[[], None], int] = {
            self.write: 10,
            self.fetch: 24,
            self.propose: 6,
            self.lose: 5,
            self.come_back: 6,
            self.hear_nothing: 2,
            self.restart_quickly: 1,
            self.stop: 1,
            self.change_least: 1,
            self.prefer: 1,
            self.pass_lag_time: 1,
        }

    def go(self) -> None:
        for op in self.rng.choices(list(self.ops), list(self.ops.values()), k=STEPS):
            self.log.append(op.__name__)
            op()
            self.check()
        self.recover()

    def write(self) -> None:
        at = self.stage.state.leader if self.rng.random() < 0.8 else self.rng.randint(1, 3)
        self.sent += 1
        self.stage.produce(f"m{self.sent}", at=at)

    def fetch(self) -> None:
        broker_id = self.rng.randint(1, 3)
        if isinstance(self.stage.nodes[broker_id].role, PartitionFollower):
            records = self.rng.choice([None, None, 0, 1])
            self.stage.fetch(broker_id, records=records, answer_lost=self.rng.random() < 0.25)

    def propose(self) -> None:
        self.late += self.stage.take_proposals()
        self.rng.shuffle(self.late)
        while self.late and self.rng.random() < 0.7:
            node, sent, proposal = self.late.pop()
            known = self.stage.controller.image.broker_epoch(node.broker_id)
            if self.rng.random() < 0.2:
                self.late.append((node, sent, proposal))  # it comes once more
            if not node.alive or node.broker_epoch != known:
                continue
            if self.rng.random() < 0.8:
                self.stage.deliver([(node, sent, proposal)])
            else:
                node.replicas.proposal_answered(KEY, proposal, None, self.stage.now_ms)

    def lose(self) -> None:
        """Let a broker die, or hang and hear nothing, until its lease has ended: the leader more often than others."""
        leader = self.stage.state.leader
        broker_id = leader if leader != NO_LEADER and self.rng.random() < 0.7 else self.rng.randint(1, 3)
        node = self.stage.nodes[broker_id]
        if node.alive and self.rng.random() < 0.5:
            self.stage.crash(broker_id)
        node.hears = False
        self.stage.end_leases(*self.silent())

    def come_back(self) -> None:
        away = self.silent()
        if away:
            node = self.stage.nodes[self.rng.choice(away)]
            node.hears = True
            if not node.alive:
                self.stage.start(node.broker_id, asked=node.broker_id not in self.stopped)
                self.stopped.discard(node.broker_id)
            else:
                self.stage.spread()
                self.stage.heartbeat(node.broker_id)

    def hear_nothing(self) -> None:
        """Let the controller's log be slow to reach a broker, which goes on as it was."""
        self.stage.nodes[self.rng.randint(1, 3)].hears = False

    def restart_quickly(self) -> None:
        """Let a process end and begin again; it registers when its lease is over, which takes leadership away."""
        node = self.stage.nodes[self.rng.randint(1, 3)]
        if node.alive:
            self.stage.crash(node.broker_id)
            self.stage.end_leases(*self.silent())
            node.hears = True
            self.stage.start(node.broker_id)

    def stop(self) -> None:
        node = self.stage.nodes[self.rng.randint(1, 3)]
        if node.alive and node.hears and self.stage.stop(node.broker_id):
            self.stopped.add(node.broker_id)

    def change_least(self) -> None:
        self.stage.change_least(self.rng.randint(1, 3))

    def prefer(self) -> None:
        try:
            self.stage.prefer()
        except KafkaError:
            return

    def pass_lag_time(self) -> None:
        self.stage.pass_lag_time()

    def silent(self) -> list[int]:
        return [each for each, node in self.stage.nodes.items() if not (node.alive and node.hears)]

    def check(self) -> None:
        assert self.stage.lost() == []
        state = self.stage.state
        if state.leader != NO_LEADER:
            assert self.epochs.setdefault(state.leader_epoch, state.leader) == state.leader
            assert state.leader in state.in_sync_replicas
        safe: dict[int, tuple[int, str]] = {}
        for node in self.stage.nodes.values():
            for cell in self.stage.cells(node):
                if node.alive and cell.offset < node.log.high_watermark:
                    record = (cell.epoch, cell.label)
                    assert safe.setdefault(cell.offset, record) == record

    def recover(self) -> None:
        """Let all be well again: everybody is in sync with the same log, and nothing is lost."""
        stage = self.stage
        for node, _, proposal in self.late:
            if node.alive:
                node.replicas.proposal_answered(KEY, proposal, None, stage.now_ms)
        stage.end_leases(*self.silent())
        while self.silent():
            self.come_back()
        for _ in range(4):
            stage.catch_up(*[each for each in stage.nodes if each != stage.state.leader])
            stage.alter_in_sync()
            stage.pass_time(1_000)
        assert stage.state.in_sync_replicas == (1, 2, 3)
        self.check()
        logs = [stage.cells(node) for node in stage.nodes.values()]
        assert logs[0] == logs[1] == logs[2]
        assert {node.log.high_watermark for node in stage.nodes.values()} == {len(logs[0])}


def found_by(seeds: range, stage_class: type[Stage] = Stage) -> int | None:
    """Walk until something is wrong; returns the seed."""
    for seed in seeds:
        walk = Walk(seed, stage_class)
        try:
            walk.go()
        except AssertionError:
            print(f"seed {seed}: {' '.join(walk.log)}")
            return seed
    return None


def test_nothing_acknowledged_is_lost_whatever_happens() -> None:
    for seed in range(100):
        walk = Walk(seed, Stage)
        try:
            walk.go()
        except BaseException:
            print(f"seed {seed}: {' '.join(walk.log)}")
            raise


@pytest.mark.soak
def test_nothing_acknowledged_is_lost_in_many_more_walks() -> None:
    assert found_by(range(100, 20_000)) is None


# Rules that lose something: the walks find each of them. `near` is a seed that does, so that the search is short.


@pytest.mark.parametrize(
    ("bug", "near"),
    [
        ("truncate-to-high-watermark", 202),
        ("confirmed-in-sync-only", 181),
        ("advance-under-min", 3),
    ],
)
def test_a_planted_bug_is_found_out(bug: str, near: int) -> None:
    with next(each.plant for each in PLANTED if each.name == bug)():
        assert found_by(range(near, 4_000)) is not None


def test_one_question_is_found_out() -> None:
    assert found_by(range(326, 4_000), AsksOnce) is not None


def test_who_is_eligible_is_struck_off_before_less_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller strikes them off, and a leader waits until it has: without both, records are lost."""
    by_own_minimum = property(lambda leader: len(leader.in_sync_replicas) < leader.min_in_sync_replicas)
    monkeypatch.setattr(PartitionLeader, "is_below_minimum", by_own_minimum)
    monkeypatch.setattr(Controller, "change_settings", keep_eligible)
    assert found_by(range(175, 4_000)) is not None


def keep_eligible(self: Controller, name: str, settings: Mapping[str, str]) -> list[MetadataRecord]:
    """Let who is eligible stay so when a smaller `min.insync.replicas` lets records be acknowledged again."""
    topic_id = self.image.topic_ids[name]
    return self._record([TopicSettingsChanged(topic_id, tuple(sorted(settings.items())))])
