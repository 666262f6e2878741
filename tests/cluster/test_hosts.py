"""Three brokers on hosts of their own, whose network and clocks are bad, while clients of all kinds work.

The hosts are network namespaces behind a switch (`lab.hosts`). What is between them is cut in one direction or both,
or slow and lossy; their clocks are apart, and are set; brokers and ZooKeeper are killed. ZooKeeper is one server on a
host of its own, or three, beside the brokers. As in `test_fire.py` the history checker judges what the clients say, and
the files are held to the simulator's invariants. `pytest -rP` shows the faults, how long each lasted, and the result.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.history import Verdict
from lab.hosts.clocks import WallClock
from lab.hosts.network import Host, Network, missing_reason
from lab.hosts.switch import CUT, Direction, Quality
from lab.peers import missing_kafka_reason
from sparkonce.broker_lite.cluster.watching import WatchedImage
from sparkonce.broker_lite.server.zookeeper_observer import ZooKeeperObserver
from tests.cluster.files import check_files
from tests.cluster.fire import PARTITIONS, TOPIC, Clients
from tests.kafka_files import assert_kafka_finds_nothing_wrong, partitions_below
from tests.zookeeper import CHROOT, ZooKeeper, need_zookeeper

BROKERS = ("1", "2", "3")
ZOOKEEPER = "zookeeper"
CLIENTS = "clients"
PORT = 9092
PROGRESS = 50
"""Records of each producer that must be acknowledged between two faults."""
SHORTEST_S, LONGEST_S = 1.0, 6.0
"""Shorter and longer than sessions with ZooKeeper and with the controller."""
IN_SYNC_WITHIN_S = 120.0
APART_S = 300.0
"""How far the time of day of a host is ahead or behind at most."""
DAY_S = 86_400
USUAL = Quality(delay_s=0.0005, jitter_s=0.001, loss=0.002)
SLOW = Quality(delay_s=0.05, jitter_s=0.1, loss=0.05)
CONFIG = {
    "port": PORT,
    "min.insync.replicas": 2,
    "num.partitions": PARTITIONS,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 2_000,
    "replica.lag.time.max.ms": 3_000,
    "zookeeper.session.timeout.ms": 2_500,
    "leader.imbalance.check.interval.seconds": 1,
}
TRANSACTION_TIMEOUT_MS = 900_000
"""More than clocks are apart, as the next coordinator compares with the time at which the last one saw the producer."""


def both_ways(one: str, *others: str) -> set[Direction]:
    return {(one, other) for other in others} | {(other, one) for other in others}


def all_but(name: str) -> list[str]:
    return [each for each in (*BROKERS, ZOOKEEPER, CLIENTS) if each != name]


CUTS: Mapping[str, Callable[[str, str], set[Direction]]] = {
    "one-way": lambda victim, other: {(victim, other)},
    "both-ways": lambda victim, other: both_ways(victim, other),
    "to-zookeeper": lambda victim, _: {(victim, ZOOKEEPER)},
    "from-zookeeper": lambda victim, _: {(ZOOKEEPER, victim)},
    "no-zookeeper": lambda victim, _: both_ways(victim, ZOOKEEPER),
    "mute": lambda victim, _: {(victim, each) for each in all_but(victim)},
    "deaf": lambda victim, _: {(each, victim) for each in all_but(victim)},
    "alone": lambda victim, _: both_ways(victim, *all_but(victim)),
    "host-dies": lambda victim, _: both_ways(victim, *all_but(victim)),
}
"""The directions that each kind of partition cuts, of a victim and another host."""
FAULTS = (*CUTS, "slow", "clock", "zookeeper-kill", "kill")
KILLS = ("kill", "host-dies")
"""With its host dies what would tell others of it: the ends of its connections."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    victim: str
    other: str
    seconds: float
    ahead_s: float
    """To what a clock is set."""

    @property
    def is_partition(self) -> bool:
        return self.kind in CUTS

    @property
    def directions(self) -> set[Direction]:
        """What it makes worse, where there is such a host."""
        if self.kind == "slow":
            return both_ways(self.victim, *all_but(self.victim))
        return CUTS[self.kind](self.victim, self.other) if self.is_partition else set()

    def __str__(self) -> str:
        match self.kind:
            case "one-way" | "both-ways":
                return f"{self.kind} {self.victim} to {self.other}"
            case "clock":
                return f"clock of {self.victim} set to {self.ahead_s:+.0f} s"
        return f"{self.kind} {self.victim}"


class Broker:
    """A broker's process on its host, which can be killed and started again."""

    def __init__(self, host: Host, clock: WallClock, monotonic_s: int, folder: Path, settings: Mapping[str, object]):
        self.host, self.clock = host, clock
        folder.mkdir(parents=True)
        self._log = folder / "broker.log"
        self._command = [sys.executable, "-m", "lab.hosts.clocks", str(clock.file), str(monotonic_s)]
        self._command += ["sparkonce.broker_lite", "--data-dir", str(folder)]
        self._command += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        of_child, self._lifeline = os.pipe()  # the broker ends when this process does, however that happens
        with open(self._log, "ab") as log, self.host.entered():
            command = [*self._command, "--parent", str(of_child)]
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, pass_fds=[of_child])
        os.close(of_child)

    def wait_until_started(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._ended()

    def _ended(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        code = process.wait(60)
        process.stdout.close()
        os.close(self._lifeline)
        return code


@dataclass
class World:
    network: Network
    servers: Mapping[str, ZooKeeper]
    """ZooKeeper's, by their hosts."""
    brokers: Mapping[str, Broker]
    observer: ZooKeeperObserver
    watched: WatchedImage = field(default_factory=WatchedImage)

    @property
    def faults(self) -> list[str]:
        return [each for each in FAULTS if ZOOKEEPER in self.servers or not each.endswith("-zookeeper")]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{each.host.address}:{PORT}" for each in self.brokers.values())

    def strike(self, fault: Fault) -> None:
        """Begin a fault."""
        for direction in fault.directions & self.network.switch.directions:
            self.network.switch.set_quality(direction, CUT if fault.is_partition else SLOW)
        match fault.kind:
            case "kill" | "host-dies":
                self.brokers[fault.victim].kill()
            case "zookeeper-kill":
                self.servers[self._server_of(fault.victim)].kill()
            case "clock":
                self.brokers[fault.victim].clock.set(fault.ahead_s)

    def heal(self, faults: list[Fault]) -> None:
        """End faults that happened together."""
        for direction in {each for fault in faults for each in fault.directions} & self.network.switch.directions:
            self.network.switch.set_quality(direction, USUAL)
        for place in {self._server_of(fault.victim) for fault in faults if fault.kind == "zookeeper-kill"}:
            with self.network.hosts[place].entered():
                self.servers[place].start()
        killed = [self.brokers[fault.victim] for fault in faults if fault.kind in KILLS]
        for broker in killed:
            broker.start()
        for broker in killed:
            broker.wait_until_started()

    def wait_in_sync(self) -> None:
        """Wait until all replicas are in sync and the preferred leaders lead, so that each broker leads some.

        A partition between two that lead nothing would cut nothing. Fails if the controller's decisions break an
        invariant.
        """
        until_s, passing = time.monotonic() + IN_SYNC_WITHIN_S, threading.Event()
        while late := self._late():
            assert time.monotonic() < until_s, f"not in sync after {IN_SYNC_WITHIN_S} s: {late}"
            passing.wait(0.05)

    def _late(self) -> list[str]:
        for step in self.observer.poll():
            self.watched.take(step)
        image = self.watched.image
        return [
            f"{image.topics[topic].name}-{number}: {state}"
            for (topic, number), state in image.partitions()
            if set(state.in_sync_replicas) != set(state.replicas) or state.leader != state.replicas[0]
        ]

    def _server_of(self, host: str) -> str:
        return host if host in self.servers else ZOOKEEPER


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def make_world(places: tuple[str, ...], chance: random.Random, folder: Path, stack: ExitStack) -> World:
    """Start everything; then this thread is on the clients' host, until the stack ends."""
    names = dict.fromkeys((*BROKERS, *places, CLIENTS))
    network = stack.enter_context(Network(list(names), chance.getrandbits(32)))
    for direction in network.switch.directions:
        network.switch.set_quality(direction, USUAL)
    servers = start_zookeeper(network, places, folder, stack)
    connect = ",".join(each.address for each in servers.values()) + CHROOT
    brokers = {name: make_broker(network.hosts[name], connect, chance, folder) for name in BROKERS}
    for broker in brokers.values():
        stack.callback(broker.kill)
        broker.start()
    for broker in brokers.values():
        broker.wait_until_started()
    stack.enter_context(network.hosts[CLIENTS].entered())
    observer = ZooKeeperObserver(connect)
    stack.callback(observer.close)
    world = World(network, servers, brokers, observer)
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(BROKERS))])[TOPIC].result(60)
    world.wait_in_sync()
    return world


def start_zookeeper(
    network: Network, places: tuple[str, ...], folder: Path, stack: ExitStack
) -> Mapping[str, ZooKeeper]:
    addresses = [network.hosts[place].address for place in places]

    def start(place: str) -> ZooKeeper:
        host = network.hosts[place]
        with host.entered():
            return ZooKeeper(folder / f"zookeeper-{place}", host.address, addresses if len(places) > 1 else ())

    with ThreadPoolExecutor(len(places)) as pool:  # none answers before most are there
        servers = dict(zip(places, pool.map(start, places), strict=True))
    for server in servers.values():
        stack.callback(server.close)
    return servers


def make_broker(host: Host, connect: str, chance: random.Random, folder: Path) -> Broker:
    clock = WallClock(folder / f"clock-{host.name}", chance.uniform(-APART_S, APART_S))
    monotonic_s = chance.randrange(DAY_S)
    print(f"host {host.name}: time of day {clock.ahead_s:+.0f} s, monotonic clock {monotonic_s:+} s")
    settings = {**CONFIG, "node.id": host.name, "host.name": host.address, "zookeeper.connect": connect}
    return Broker(host, clock, monotonic_s, folder / "data" / host.name, settings)


def plan(kinds: list[str], rounds: int, chance: random.Random) -> Iterator[list[Fault]]:
    """Yield faults that happen together: in every other round, from the first on, each kind alone, else two of them."""
    for number in range(rounds):
        together = 1 + number % 2
        for first in chance.sample(kinds, len(kinds)):
            of_them = [first, chance.choice([each for each in kinds if each != first or each == "kill"])]
            seconds = chance.uniform(SHORTEST_S, LONGEST_S)
            hosts = chance.sample(BROKERS, 2)
            yield [
                Fault(kind, victim, other, seconds, chance.uniform(-APART_S, APART_S))
                for kind, victim, other in list(zip(of_them, hosts, hosts[::-1], strict=True))[:together]
            ]


def endure(world: World, clients: Clients, number: int, faults: list[Fault]) -> float:
    """Let faults happen, last and end, wait until all is well again, and report; returns how long they lasted."""
    clients.wait_for_progress(PROGRESS)
    lost, acknowledged, begun_s = world.network.switch.lost.copy(), clients.acknowledged, time.monotonic()
    for fault in sorted(faults, key=lambda each: each.is_partition):  # what is slow may be cut, too
        world.strike(fault)
    threading.Event().wait(faults[0].seconds)
    lasted_s, acknowledged = time.monotonic() - begun_s, clients.acknowledged - acknowledged
    frames = [sum((world.network.switch.lost - lost)[each] for each in fault.directions) for fault in faults]
    world.heal(faults)
    healed_s = time.monotonic()
    world.wait_in_sync()
    print(
        f"{number}: {' and '.join(map(str, faults))}: {lasted_s:.1f} s, {sum(frames)} frames lost, "
        f"{acknowledged} records acknowledged; in sync {time.monotonic() - healed_s:.1f} s later",
        flush=True,
    )
    assert all(count or not fault.is_partition for count, fault in zip(frames, faults, strict=True))
    return lasted_s


def print_result(seed: int, lasted: list[tuple[Fault, float]], verdict: Verdict) -> None:
    partitions = [f"{fault.kind}:{seconds:.1f}" for fault, seconds in lasted if fault.is_partition]
    counts = f"sent={verdict.sent} acknowledged={verdict.acknowledged} unknown={verdict.unknown}"
    print(
        f"RESULT seed={seed} faults={len(lasted)} partitions={len(partitions)} partitions_s={','.join(partitions)} "
        f"{counts} anomalies={len(verdict.anomalies)}"
    )


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(1, marks=[pytest.mark.lab, pytest.mark.timeout(600)]),
        pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(7200)]),
    ],
)
@pytest.mark.parametrize("places", [(ZOOKEEPER,), BROKERS], ids=["zookeeper-apart", "zookeeper-on-each"])
def test_nothing_is_lost_or_doubled(places: tuple[str, ...], rounds: int, tmp_path: Path, stack: ExitStack) -> None:
    need_zookeeper()
    if reason := missing_reason():
        pytest.skip(reason)
    seed = int(os.environ.get("FIRE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"FIRE_SEED={seed}")
    chance = random.Random(seed)
    world = make_world(places, chance, tmp_path, stack)
    settings = tmp_path / "transactions.properties"
    settings.write_text(f"transaction.timeout.ms={TRANSACTION_TIMEOUT_MS}\n")
    clients = Clients(world.bootstrap_servers, tmp_path, stack, "--command-config", str(settings))
    lasted: list[tuple[Fault, float]] = []
    for number, faults in enumerate(plan(world.faults, rounds, chance), 1):
        seconds = endure(world, clients, number, faults)
        lasted += [(each, seconds) for each in faults]
    verdict = clients.judge()
    print_result(seed, lasted, verdict)
    assert verdict.anomalies == ()
    assert [broker.stop() for broker in world.brokers.values()] == [0, 0, 0]
    check_files(tmp_path / "data", f"zookeeper://{','.join(each.address for each in world.servers.values())}{CHROOT}")
    stack.close()  # what follows may need the machine's own network
    if missing_kafka_reason() is None:
        assert_kafka_finds_nothing_wrong(partitions_below(tmp_path / "data"), compacted=True)
