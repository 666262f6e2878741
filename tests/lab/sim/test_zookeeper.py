"""The simulated ZooKeeper: its transactions and sessions, and seeds that find a missing safeguard."""

from __future__ import annotations

import pytest

from lab.sim.campaign import run_one, run_seeds, search
from lab.sim.machine.sockets import Network
from lab.sim.plan import Coordination, plan_of
from lab.sim.run import Run
from lab.sim.scheduler import Scheduler
from lab.sim.zookeeper.ensemble import Ensemble
from lab.sim.zookeeper.leader import Session
from lab.sim.zookeeper.plan import ZooKeeperPlan
from lab.sim.zookeeper.tree import Change, Transaction, Tree
from lab.sim.zookeeper.truth import ZooKeeperTruth
from sparkonce.broker_lite.cluster import zookeeper_nodes as nodes
from sparkonce.broker_lite.cluster.zookeeper_nodes import ANY_VERSION, Check, Create, Delete, Head, SetData
from sparkonce.broker_lite.server.zookeeper_session import BadVersionError, NodeExistsError, NoNodeError

FOUND_BY = {
    "decided-at-once": (0, "decided-is-written"),
    "beats-are-reads": (86, "out-of-session"),
    "lease-without-margin": (86, "out-of-session"),
    "session-kept": (15, "out-of-session"),
    "decision-without-versions": (4, "one-controller"),
    "controller-epoch-unchecked": (0, "one-controller"),
    "proposals-forgotten": (10, "safe-in-sync"),
    "lapses-unnoticed": (195, "liveness"),
}


def follow_until(scheduler: Scheduler, until_ms: int) -> None:
    """Let what was planned happen."""
    while scheduler.step(until_ms):
        pass


def test_a_transaction_is_done_as_a_whole_or_not_at_all() -> None:
    tree = Tree()
    assert tree.apply(Transaction(1, (Create("/a"), Create("/a/b", b"1", ephemeral=True))))[0] is None
    error, changes = tree.apply(Transaction(2, (SetData("/a", b"2", 0), Delete("/a/b", 7))))
    assert (type(error), changes) == (BadVersionError, [])
    assert tree.get("/a").version == 0
    assert isinstance(tree.apply(Transaction(2, (Create("/c"), Create("/a"))))[0], NodeExistsError)
    assert isinstance(tree.apply(Transaction(2, (Check("/c", ANY_VERSION),)))[0], NoNodeError)
    assert tree.children("/a") == ["b"]


def test_ephemeral_nodes_go_with_their_session() -> None:
    tree = Tree()
    tree.apply(Transaction(1, (Create("/a"), Create("/a/b", ephemeral=True))))
    error, changes = tree.apply(Transaction(1, None))
    assert error is None
    assert Change("/a", of_children=True) in changes
    assert (tree.children("/a"), tree.zxid) == ([], 2)


def test_a_server_that_was_cut_off_tells_whom_it_has_heard_as_soon_as_it_hears_the_leader_again() -> None:
    """What the leader asks meanwhile waits in their connection, as TCP sends it again."""
    plan = plan_of(1, Coordination.ZOOKEEPER)
    scheduler = Scheduler()
    zookeeper = ZooKeeperPlan(3, tick_ms=600, sync_limit_ms=2_500, election_ms=600, lag_ms=0, delivery_ms=0)
    ensemble = Ensemble(scheduler, Network(scheduler, 0, plan.settings), 0, zookeeper)
    session = ensemble.sessions[7] = Session(7, 1_200, 1_200, None, None)
    server = ensemble.servers[1]
    follow_until(scheduler, 350)
    server.hear(7)
    server.cut()
    follow_until(scheduler, 1_000)
    assert session.ends_ms == 1_200
    server.heal()
    follow_until(scheduler, 1_150)
    assert 2_200 <= session.ends_ms < 2_350


def test_a_controller_may_decide_in_its_next_session_and_its_next_start_may_not() -> None:
    """As in Kafka, its epoch fences a decision that a client sends before its broker learns of the new session."""
    run = Run(plan_of(1, Coordination.ZOOKEEPER), tracing=False)
    ensemble = run.ensemble
    assert ensemble is not None
    ZooKeeperTruth(run, {}, ensemble)
    for number, client in ((1, "first start"), (2, "first start"), (3, "second start")):
        ensemble.sessions[number] = Session(number, 1_200, 1_200, None, client)
    ensemble.commit(Transaction(1, tuple(nodes.first_nodes("cluster"))))
    ensemble.commit(
        Transaction(1, (Create(nodes.CONTROLLER, ephemeral=True), SetData(nodes.CONTROLLER_EPOCH, b"1", 0)))
    )

    def decide(session: int, number: int) -> None:
        head = SetData(nodes.CHANGES, Head(number, 0, 1, 1).encode(), number - 1)
        change = Create(nodes.change_path(number), nodes.encode_change(1, 0, []))
        assert ensemble.commit(Transaction(session, (Check(nodes.CONTROLLER_EPOCH, 1), head, change))) is None

    decide(1, 1)
    decide(2, 2)
    assert run.violation is None
    decide(3, 3)
    assert run.violation is not None
    assert run.violation.invariant == "one-controller"


@pytest.mark.timeout(300)
def test_the_same_seed_is_the_same_run() -> None:
    plan = plan_of(3, Coordination.ZOOKEEPER)
    assert run_one(plan, None).digest == run_one(plan, None).digest


@pytest.mark.timeout(300)
@pytest.mark.parametrize("bug", FOUND_BY)
def test_a_missing_safeguard_is_found(bug: str) -> None:
    seed, invariant = FOUND_BY[bug]
    outcome, _ = search(bug, [seed], Coordination.ZOOKEEPER)
    assert outcome is not None
    assert outcome.invariant == invariant
    assert not run_seeds([seed], Coordination.ZOOKEEPER).violations, "the seed fails without the bug, too"
