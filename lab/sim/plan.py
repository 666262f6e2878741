"""The plan of a seed: a cluster, its settings, what its clients do, and its faults.

Theory of operation: everything is drawn here, from the seed alone, before anything runs. Each seed has
its own mix: it leaves some kinds of faults out, so that the others occur more often (swarm testing). `steps` are
all external events; a failing seed is shrunk by leaving steps out. What is drawn during a
run (delays, losses) comes from a separate stream for each sender, so that leaving a step out changes little
elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from lab.sim.scheduler import stream
from lab.sim.steps import CLIENTS, Kind, Step
from lab.sim.upgrade_plan import FormerPlan, former_of
from lab.sim.zookeeper.plan import ZooKeeperPlan, has_zookeeper, zookeeper_of
from sparkonce.broker_lite.coordinators.offsets import OFFSETS_TOPIC
from sparkonce.broker_lite.coordinators.transaction_log import TRANSACTIONS_TOPIC
from sparkonce.broker_lite.coordinators.transactions import MAX_EPOCH
from sparkonce.kafka.protocol.records import NO_PRODUCER_EPOCH

SETTLED_MS: Final = 1_200
"""When faults begin: the cluster has come up by then."""
SAFETY_MS: Final = 7_000
"""When faults end."""
JAM_MS: Final = 2_900
"""How long markers are delayed."""


class Durability(Enum):
    """Which losses of power a seed has, and so which guarantees hold."""

    FLUSHED = "flushed"
    """Every batch is flushed before it is acknowledged: any number of losses of power, and no record may be lost."""
    BUDGETED = "budgeted"
    """As Kafka by default: while a broker that lost power is not in sync again, fewer than min.insync.replicas may have
    stopped uncleanly. No record may be lost."""
    NONE = "none"
    """Any losses of power without flushes: safe records may be lost; only the structure is checked."""


class TopicPlan(NamedTuple):
    """A topic of three replicas."""

    name: str
    partitions: int
    minimums: tuple[int, ...]
    """The values of `min.insync.replicas`, the initial one first."""
    by_default: bool
    """Whether it uses the cluster's setting instead of its own."""
    unclean: bool
    """Whether unclean elections may be enabled; changes of its settings disable and enable them."""
    flushed: bool
    segment_bytes: int


class ProducerPlan(NamedTuple):
    """A producer that writes to one partition."""

    topic: int
    partition: int
    acks: int
    idempotent: bool
    in_flight: int


class TransactionalPlan(NamedTuple):
    """A transactional producer that writes to all partitions; several may have the same id."""

    transactional_id: str
    has_epochs: bool
    """Whether each transaction has its own epoch (KIP-890)."""
    timeout_ms: int
    is_hasty: bool
    """Whether it begins two more transactions as soon as one is committed, and aborts the first of them at once."""
    left_at: int
    """The last epoch of a former producer with its id; -1 if there was none."""


class GroupPlan(NamedTuple):
    """A group whose members consume all partitions."""

    group_id: str
    members: int
    static: int
    """The number of members with an instance id (KIP-345)."""
    protocols: tuple[str, ...]
    session_ms: int
    rebalance_ms: int
    delay_ms: int
    """How long a new group waits for more members (`group.initial.rebalance.delay.ms`)."""
    commit_ms: int
    apart_ms: int
    """The interval between the first starts of members."""
    by_heartbeats: bool
    """Whether it uses the protocol of KIP-848."""
    assignor: str | None
    """The server-side assignor that a KIP-848 group requests."""
    differs: bool
    """Whether the members of a KIP-848 group subscribe to different topics."""
    by_pattern: bool
    """Whether the first member of a KIP-848 group subscribes by a pattern."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Times in milliseconds; shorter than Kafka's, in the same proportions."""

    heartbeat_ms: int
    session_ms: int
    lag_ms: int
    fetch_wait_ms: int
    backoff_ms: int
    timeout_ms: int
    rebalance_ms: int
    image_lag_ms: int
    delay_ms: int
    loss: float
    torn: bool


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """All that a seed determines."""

    seed: int
    brokers: int
    durability: Durability
    default_minimum: int
    """The cluster's initial `min.insync.replicas`."""
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    transactional: tuple[TransactionalPlan, ...]
    groups: tuple[GroupPlan, ...]
    settings: Settings
    steps: tuple[Step, ...]
    zookeeper: ZooKeeperPlan | None = None
    """What the cluster rests on; None for files that its brokers share."""
    former: FormerPlan | None = None
    """The brokers of another version, if any."""


MINIMUMS: Final = (1, 2, 3)
"""Later values of the cluster's `min.insync.replicas`."""
OF_ZOOKEEPER: Final = (
    Kind.SERVER_DOWN,
    Kind.SERVER_CUT,
    Kind.SERVERS_DOWN,
    Kind.NO_WAY,
    Kind.SESSION_ENDS,
    Kind.HANG_UP,
    Kind.CONTROLLER_HANGS,
)
"""Only with a ZooKeeper."""
UPGRADES: Final = (Kind.UPGRADE, Kind.DOWNGRADE)
"""Only with brokers of a former version."""
AIMED_AT_ZOOKEEPER: Final = (Kind.LOSE_DECISION, Kind.DEPOSE, Kind.RACK)
"""Faults with a ZooKeeper that wait for their moment (`zookeeper/aimed.py`)."""
LAPSES: Final = (Kind.LAPSE_IN_PROPOSAL, Kind.LAPSE_IN_ROLE)
"""The same, without any other fault: most faults would repair their effect."""
_BY_THEMSELVES: Final = (
    *(Kind.FLIP, Kind.JAM, Kind.LOSE_MARKER, Kind.LOSE_HEARTBEAT, Kind.LIE),
    *(*UPGRADES, *OF_ZOOKEEPER, *AIMED_AT_ZOOKEEPER, *LAPSES),
)
"""Drawn from separate streams: seeds without them stay unchanged. Those with `LAPSES` lose other faults."""
_RARE = (Kind.CRASH_ALL, Kind.FULL, Kind.CLOCK, Kind.BROKEN, Kind.DEFAULTS, Kind.MOVE)
_TRANSACTIONAL = 0.25
"""The share of seeds with transactions."""
_GROUPS = 0.25
"""The share of seeds with groups."""
_BY_HEARTBEATS = 0.4
"""The share of groups of KIP-848."""
_DIFFERENT = 0.4
"""The share of those whose members subscribe to different topics."""
_BY_PATTERN = 0.3
"""The share of those with a member that subscribes by a pattern."""
_FLIPS = 0.5
"""The share of seeds with coordinators in which leaders change without a fault."""
_LOSSES = 0.3
"""The share of seeds with transactions in which leaders die with a marker."""
_LOST_MEMBERS = 0.3
"""The share of seeds with KIP-848 groups in which coordinators die with a member's new epoch."""
_JAMS = 0.15
"""The share of seeds with transactions in which markers are delayed."""
_ZOOKEEPER_SESSION_MS = 600
"""The shortest ZooKeeper session: a heartbeat takes four messages, of which some are retransmitted."""
_DELAYS_IN_SESSION = 40
_OF_ZOOKEEPER = 0.5
"""The number of kinds of ZooKeeper faults in a seed."""
_AIMED = 0.6
"""The share of seeds with a ZooKeeper that have faults there that wait for their moment."""
_LAPSES = 0.5
"""The share of these with no other faults than lapses of sessions."""
_LIES = 0.4
"""The share of seeds with budgeted losses of power that have lying disks."""
_THEMED = 0.4
"""The share of seeds with faults of one theme only."""
_THEMES: tuple[tuple[Kind, ...], ...] = (
    (Kind.AMBUSH, Kind.AMBUSH, Kind.CRASH, Kind.PAUSE),
    (Kind.AMBUSH, Kind.AMBUSH, Kind.PAUSE, Kind.DEAF),
    (Kind.THERE_AND_BACK, Kind.THERE_AND_BACK, Kind.ELECT),
    (Kind.CRASH_LEADER, Kind.POWER, Kind.PAUSE_LEADER),
    (Kind.LAGGARD, Kind.PAUSE, Kind.POWER),
    (Kind.SETTINGS, Kind.SETTINGS, Kind.DEFAULTS, Kind.PAUSE, Kind.CRASH_LEADER, Kind.CRASH_CONTROLLER),
    (Kind.MOVE, Kind.MOVE, Kind.PAUSE, Kind.CRASH, Kind.ELECT),
)


class Coordination(Enum):
    """What a cluster stores its metadata in."""

    FILES = "files"
    ZOOKEEPER = "zookeeper"


def plan_of(seed: int, coordination: Coordination | None = None, beside: str | None = None) -> SeedPlan:
    """Return the plan of a seed; unless `coordination` is given, the seed decides that, too.

    `beside` is a checkout of another version, whose brokers are upgraded to this one.
    """
    plan = _plan_of(seed)
    wanted = has_zookeeper(seed) if coordination is None else coordination is Coordination.ZOOKEEPER
    plan = _on_zookeeper(plan) if wanted else plan
    return plan if beside is None else _upgraded(plan, beside)


def _upgraded(plan: SeedPlan, directory: str) -> SeedPlan:
    """Return the plan with brokers of another version that are upgraded."""
    former, changes = former_of(directory, plan.seed, plan.brokers, SETTLED_MS, SAFETY_MS)
    kinds = {True: Kind.UPGRADE, False: Kind.DOWNGRADE}
    steps = [Step(each.at_ms, kinds[each.is_upgrade], each.broker, amount=each.amount) for each in changes]
    return replace(plan, former=former, steps=tuple(sorted([*plan.steps, *steps], key=_at)))


def _on_zookeeper(plan: SeedPlan) -> SeedPlan:
    """Return the plan with a ZooKeeper and its faults, from a separate stream."""
    session_ms = max(plan.settings.session_ms, _ZOOKEEPER_SESSION_MS, _DELAYS_IN_SESSION * plan.settings.delay_ms)
    plan = replace(plan, settings=replace(plan.settings, session_ms=session_ms))
    zookeeper = zookeeper_of(plan.seed, session_ms)
    rng = stream("zookeeper faults", plan.seed)
    kinds = [kind for kind in OF_ZOOKEEPER if rng.random() < _OF_ZOOKEEPER] or [Kind.SESSION_ENDS]
    steps = [*plan.steps, *_faults_of(plan, rng, kinds, rng.choice((2, 5, 9)))]
    aimed = stream("aimed at zookeeper", plan.seed)
    if aimed.random() < _AIMED:
        kinds = aimed.sample(AIMED_AT_ZOOKEEPER, aimed.choice((1, 2)))
        if aimed.random() < _LAPSES:
            kinds = [aimed.choice(LAPSES) if plan.transactional or plan.groups else Kind.LAPSE_IN_PROPOSAL]
            steps = [step for step in steps if step.kind in CLIENTS]
        steps += _faults_of(plan, aimed, kinds, aimed.choice((2, 4)))
    return replace(plan, zookeeper=zookeeper, steps=tuple(sorted(steps, key=_at)))


def _faults_of(plan: SeedPlan, rng: random.Random, kinds: Sequence[Kind], count: int) -> list[Step]:
    return [
        Step(
            rng.randrange(SETTLED_MS, SAFETY_MS - 300),
            rng.choice(kinds),
            rng.randrange(1, plan.brokers + 1),
            round(rng.choice((0.15, 0.5, 1.0, 1.6, 3.0)) * plan.settings.session_ms),
            rng.randrange(1, 40),
        )
        for _ in range(count)
    ]


def _plan_of(seed: int) -> SeedPlan:
    rng = stream("plan", seed)
    durability = rng.choices(list(Durability), (3, 5, 1))[0]
    topics = tuple(_topic(rng, index, durability) for index in range(rng.choice((1, 1, 2, 3))))
    producers = tuple(_producers(rng, topics))
    brokers = rng.choice((3, 3, 4, 5))
    settings = _settings(rng)
    steps = [*_produces(rng, len(producers)), *_faults(rng, brokers, settings, topics)]
    default = rng.choice((1, 2))
    transactional: tuple[TransactionalPlan, ...] = ()
    if durability is not Durability.NONE and rng.random() < _TRANSACTIONAL:
        transactional = tuple(_transactional(rng, stream("haste", seed)))
        steps += _transacts(rng, len(transactional))
        topics += (_internal(TRANSACTIONS_TOPIC, rng.choice((1, 2)), durability),)
    groups = tuple(_groups(seed)) if durability is not Durability.NONE else ()
    if groups:
        chance = stream("members", seed)
        steps += _members(chance, sum(each.members for each in groups))
        topics += (_internal(OFFSETS_TOPIC, chance.choice((1, 2)), durability),)
    if transactional or groups:
        steps += _flips(seed)
    if transactional:
        steps += _losses(seed)
    if any(group.by_heartbeats for group in groups):
        steps += _lost_members(seed)
    if durability is Durability.BUDGETED and min(min(topic.minimums) for topic in topics) == 2:
        steps += _lies(seed, brokers)
    steps.sort(key=_at)
    plan = SeedPlan(
        seed, brokers, durability, default, topics, producers, transactional, groups, settings, tuple(steps)
    )
    return _jammed(plan) if transactional and stream("jam", seed).random() < _JAMS else plan


def _at(step: Step) -> int:
    return step.at_ms


def _topic(rng: random.Random, index: int, durability: Durability) -> TopicPlan:
    minimums = rng.choice(((1,), (2,), (2,), (2,), (3,), (1, 2), (2, 1), (2, 3), (2, 3, 1)))
    by_default = rng.random() < 0.15
    if by_default:
        minimums = MINIMUMS
    # With one copy, a loss of power loses unflushed records by design.
    flushed = durability is Durability.FLUSHED or (durability is Durability.BUDGETED and min(minimums) == 1)
    unclean = rng.random() < (0.6 if durability is Durability.NONE else 0.15)
    segment_bytes = rng.choice((1 << 20, 1 << 20, 700))
    return TopicPlan(f"t{index}", rng.choice((1, 1, 2)), minimums, by_default, unclean, flushed, segment_bytes)


def _internal(name: str, partitions: int, durability: Durability) -> TopicPlan:
    return TopicPlan(name, partitions, (2,), False, False, durability is Durability.FLUSHED, 1 << 20)


def _producers(rng: random.Random, topics: tuple[TopicPlan, ...]) -> list[ProducerPlan]:
    found = []
    for index, topic in enumerate(topics):
        for partition in range(topic.partitions):
            idempotent = rng.random() < 0.6
            found.append(ProducerPlan(index, partition, -1, idempotent, rng.choice((1, 1, 3, 5)) if idempotent else 1))
            if rng.random() < 0.6:
                found.append(ProducerPlan(index, partition, rng.choice((1, 1, 0)), False, 1))
    return found


def _transactional(rng: random.Random, chance: random.Random) -> list[TransactionalPlan]:
    """Draw producers; drawing from `chance` leaves the rest of the seed unchanged."""
    names = rng.choice((("a",), ("a", "b"), ("a", "a", "b"), ("a", "a")))
    return [
        TransactionalPlan(
            name,
            rng.random() < 0.5,
            rng.choice((600, 1200, 2500)),
            chance.random() < 0.5,
            chance.choice((NO_PRODUCER_EPOCH, NO_PRODUCER_EPOCH, MAX_EPOCH - 2, MAX_EPOCH - 8)),
        )
        for name in names
    ]


def _transacts(rng: random.Random, producers: int) -> list[Step]:
    return [
        Step(rng.randrange(800, SAFETY_MS), Kind.TRANSACT, rng.randrange(producers), amount=rng.randrange(60))
        for _ in range(rng.choice((6, 12, 20)))
    ]


def _groups(seed: int) -> list[GroupPlan]:
    """Draw groups from a separate stream: seeds without them stay unchanged."""
    rng, chance = stream("groups", seed), stream("subscriptions", seed)
    if rng.random() >= _GROUPS:
        return []
    return [
        GroupPlan(
            group_id=name,
            members=rng.choice((1, 2, 2, 3)),
            static=rng.choice((0, 0, 1, 3)),
            protocols=rng.choice((("range",), ("range", "sticky"))),
            session_ms=rng.choice((500, 900, 1500)),
            rebalance_ms=rng.choice((600, 1200)),
            delay_ms=rng.choice((0, 0, 150)),
            commit_ms=rng.choice((60, 200, 400)),
            apart_ms=rng.choice((0, 30, 900)),
            by_heartbeats=rng.random() < _BY_HEARTBEATS,
            assignor=chance.choice((None, None, "uniform", "range")),
            differs=chance.random() < _DIFFERENT,
            by_pattern=chance.random() < _BY_PATTERN,
        )
        for name in rng.choice((("g",), ("g", "h")))
    ]


def _members(rng: random.Random, members: int) -> list[Step]:
    return [
        Step(
            rng.randrange(SETTLED_MS, SAFETY_MS),
            Kind.MEMBER,
            rng.randrange(members),
            rng.choice((20, 200, 700, 1500, 2500)),
            rng.randrange(60),
        )
        for _ in range(rng.choice((3, 6, 12)))
    ]


def _flips(seed: int) -> list[Step]:
    """Draw changes of leaders without a fault, from a separate stream."""
    rng = stream("flips", seed)
    if rng.random() >= _FLIPS:
        return []
    return [
        Step(rng.randrange(SETTLED_MS, SAFETY_MS), Kind.FLIP, 1, rng.choice((60, 200, 500)), rng.randrange(60))
        for _ in range(rng.choice((2, 5, 10)))
    ]


def _losses(seed: int) -> list[Step]:
    """Draw leaders that die right after their response to a marker, from a separate stream."""
    rng = stream("markers", seed)
    if rng.random() >= _LOSSES:
        return []
    return [
        Step(rng.randrange(SETTLED_MS, SAFETY_MS), Kind.LOSE_MARKER, 1, rng.choice((60, 900)))
        for _ in range(rng.choice((1, 3)))
    ]


def _lost_members(seed: int) -> list[Step]:
    """Draw coordinators that die right after sending a member a new epoch, from a separate stream."""
    rng = stream("heartbeats-lost", seed)
    if rng.random() >= _LOST_MEMBERS:
        return []
    return [
        Step(rng.randrange(SETTLED_MS, SAFETY_MS), Kind.LOSE_HEARTBEAT, rng.randrange(6), rng.choice((60, 900)))
        for _ in range(rng.choice((1, 3)))
    ]


def _lies(seed: int, brokers: int) -> list[Step]:
    """Draw disks that do not flush for a while, and losses of power meanwhile, from a separate stream."""
    rng = stream("lying", seed)
    if rng.random() >= _LIES:
        return []
    steps = []
    for _ in range(rng.choice((1, 2, 4))):
        at_ms, target = rng.randrange(SETTLED_MS, SAFETY_MS), 1 + rng.randrange(brokers)
        duration_ms = rng.choice((400, 1_500, 3_000))
        steps.append(Step(at_ms, Kind.LIE, target, duration_ms))
        steps.append(Step(at_ms + rng.randrange(duration_ms), Kind.POWER, target, rng.choice((50, 400, 1_500))))
    return steps


def _jammed(plan: SeedPlan) -> SeedPlan:
    """Return the plan with jams in place of all other faults: a jam takes its time."""
    rng = stream("jams", plan.seed)
    jams = [
        Step(at_ms, Kind.JAM, rng.randrange(4), JAM_MS, rng.randrange(60))
        for at_ms in range(SETTLED_MS, SAFETY_MS - JAM_MS + 1, JAM_MS)
    ]
    steps = [*(step for step in plan.steps if step.kind in (Kind.PRODUCE, Kind.MEMBER)), *jams]
    producers = tuple(each._replace(has_epochs=False, is_hasty=False) for each in plan.transactional)
    return replace(plan, transactional=producers, steps=tuple(sorted(steps, key=_at)))


def _settings(rng: random.Random) -> Settings:
    heartbeat_ms = rng.choice((100, 200, 300))
    return Settings(
        heartbeat_ms=heartbeat_ms,
        session_ms=heartbeat_ms * rng.choice((3, 4, 6)),
        lag_ms=rng.choice((300, 700, 1500)),
        fetch_wait_ms=rng.choice((100, 300, 500)),
        backoff_ms=rng.choice((20, 60, 150)),
        timeout_ms=rng.choice((400, 700)),
        rebalance_ms=rng.choice((0, 600, 1500, 4000)),
        image_lag_ms=rng.choice((2, 15, 80, 400)),
        delay_ms=rng.choice((2, 8, 30)),
        loss=rng.choice((0.0, 0.0, 0.01, 0.04)),
        torn=rng.random() < 0.5,
    )


def _produces(rng: random.Random, producers: int) -> list[Step]:
    count = rng.choice((15, 30, 60))
    return [
        Step(rng.randrange(800, SAFETY_MS), Kind.PRODUCE, rng.randrange(producers), amount=rng.choice((1, 1, 1, 2, 3)))
        for _ in range(count)
    ]


def _faults(rng: random.Random, brokers: int, settings: Settings, topics: tuple[TopicPlan, ...]) -> list[Step]:
    kinds: list[Kind] = [
        kind
        for kind in Kind
        if kind not in (*CLIENTS, *_BY_THEMSELVES) and rng.random() < (0.25 if kind in _RARE else 0.55)
    ]
    kinds = kinds or [Kind.CRASH_LEADER]
    if rng.random() < _THEMED:
        kinds = list(rng.choice(_THEMES))
    if any(topic.unclean for topic in topics):
        kinds += [Kind.DUEL] * 2
    count = rng.choice((3, 6, 10, 16))
    steps = []
    for _ in range(count):
        kind = rng.choice(kinds)
        at_ms = rng.randrange(SETTLED_MS, SAFETY_MS - 300)
        duration_ms = round(rng.choice((0.15, 0.5, 1.0, 1.6, 3.0)) * settings.session_ms)
        steps.append(Step(at_ms, kind, rng.randrange(1, brokers + 1), duration_ms, rng.randrange(1, 40)))
    return steps
