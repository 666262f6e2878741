"""Three brokers and their ZooKeeper on hosts of their own, whose network and clocks are bad, while clients work.

The hosts are network namespaces behind a switch (`lab.hosts`). What is between them is lost in one direction or both,
delayed or dropped at random; their clocks are apart, and are set; brokers are killed. As in `test_fire.py`, the history
checker judges what idempotent and transactional producers and a group say and what final readers find, and the files
are held to the simulator's invariants. `-rP` shows the faults, with how long each lasted, and the result.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.history import judge, read_history
from lab.hosts.clocks import WallClock
from lab.hosts.network import Host, Network, missing_reason
from lab.hosts.switch import CUT, Direction, Quality
from lab.peers import missing_kafka_reason
from sparkonce.broker_lite.cluster.watching import WatchedImage
from sparkonce.broker_lite.server.zookeeper_observer import ZooKeeperObserver
from tests.cluster.files import check_files
from tests.interop.verifiable_clients import Client
from tests.kafka_files import assert_kafka_finds_nothing_wrong, partitions_below
from tests.zookeeper import CHROOT, ZooKeeper, need_zookeeper

TOPIC = "t"
PARTITIONS = 3
BROKERS = ("1", "2", "3")
ZOOKEEPER = "zookeeper"
CLIENTS = "clients"
PORT = 9092
PROGRESS = 50
"""Records that each producer must have acknowledged between two faults."""
SHORTEST_S, LONGEST_S = 1.0, 6.0
"""Shorter and longer than sessions with ZooKeeper and with the controller."""
IN_SYNC_WITHIN_S = 120.0
APART_S = 300.0
"""The clocks of two hosts differ by twice that at most."""
DAY_S = 86_400
USUAL = Quality(delay_s=0.0005, jitter_s=0.001, loss=0.002)
SLOW = Quality(delay_s=0.05, jitter_s=0.1, loss=0.05)
CONFIG = {
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
}
TRANSACTION_TIMEOUT_S: Final = 900
"""More than clocks are apart: a new coordinator counts from the time of day at which the former one saw the producer."""


def to_and_from(one: str, others: tuple[str, ...]) -> set[Direction]:
    return {(one, other) for other in others} | {(other, one) for other in others}


def cut_directions(kind: str, victim: str, other: str) -> set[Direction]:
    """Return the directions that a partition of this kind cuts; none for other faults."""
    everybody = tuple(name for name in (*BROKERS, ZOOKEEPER, CLIENTS) if name != victim)
    match kind:
        case "one-way":
            return {(victim, other)}
        case "both-ways":
            return to_and_from(victim, (other,))
        case "to-zookeeper":
            return {(victim, ZOOKEEPER)}
        case "from-zookeeper":
            return {(ZOOKEEPER, victim)}
        case "no-zookeeper":
            return to_and_from(victim, (ZOOKEEPER,))
        case "mute":
            return {(victim, each) for each in everybody}
        case "deaf":
            return {(each, victim) for each in everybody}
        case "alone":
            return to_and_from(victim, everybody)
    return set()


FAULTS = (
    "one-way",
    "both-ways",
    "to-zookeeper",
    "from-zookeeper",
    "no-zookeeper",
    "mute",
    "deaf",
    "alone",
    "slow",
    "clock",
    "kill",
    "zookeeper-kill",
)


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
        ours, theirs = os.pipe()
        with open(self._log, "ab") as log, self.host.entered():
            self._process = subprocess.Popen(
                [*self._command, "--parent", str(ours)], stdout=subprocess.PIPE, stderr=log, pass_fds=[ours]
            )
        os.close(ours)
        self._lives = theirs  # closed with this process, which ends the broker

    def wait_started(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        assert process.stdout is not None
        code = process.wait(60)
        process.stdout.close()
        os.close(self._lives)
        return code


@dataclass
class World:
    network: Network
    brokers: dict[str, Broker]
    zookeeper: ZooKeeper
    view: ZooKeeperObserver
    data: Path
    watched: WatchedImage = field(default_factory=WatchedImage)

    def wait_in_sync(self) -> None:
        """Wait until all replicas are in sync, as the controller sees it; fails if its decisions break an invariant."""
        until_s, passing = time.monotonic() + IN_SYNC_WITHIN_S, threading.Event()
        while True:
            for step in self.view.poll():
                self.watched.take(step)
            image = self.watched.image
            late = [
                f"{image.topics[topic].name}-{number}: {state}"
                for (topic, number), state in image.partitions()
                if set(state.in_sync_replicas) != set(state.replicas) or state.leader < 0
            ]
            if not late and image.topics:
                return
            assert time.monotonic() < until_s, f"not in sync after {IN_SYNC_WITHIN_S} s: {late}"
            passing.wait(0.05)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as entered:
        yield entered


def make_world(chance: random.Random, folder: Path, stack: ExitStack) -> World:
    """Start everything; this thread is on the host of the clients then."""
    network = stack.enter_context(Network((*BROKERS, ZOOKEEPER, CLIENTS), chance.getrandbits(32)))
    for direction in network.switch.directions:
        network.switch.set_quality(direction, USUAL)
    with network.hosts[ZOOKEEPER].entered():
        zookeeper = stack.enter_context(ZooKeeper(folder / "zookeeper", network.hosts[ZOOKEEPER].address))
    brokers = {}
    for name in BROKERS:
        clock = WallClock(folder / f"clock-{name}", chance.uniform(-APART_S, APART_S))
        address = network.hosts[name].address
        settings = {**CONFIG, "node.id": name, "port": PORT, "host.name": address}
        settings["zookeeper.connect"] = zookeeper.address + CHROOT
        monotonic_s = chance.randrange(DAY_S)
        brokers[name] = Broker(network.hosts[name], clock, monotonic_s, folder / "data" / name, settings)
        print(f"host {name}: time of day {clock.ahead_s:+.0f} s, monotonic {monotonic_s:+} s")
        stack.callback(brokers[name].kill)
        brokers[name].start()
    for broker in brokers.values():
        broker.wait_started()
    stack.enter_context(network.hosts[CLIENTS].entered())
    admin = AdminClient({"bootstrap.servers": servers(network)})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(BROKERS))])[TOPIC].result(60)
    view = ZooKeeperObserver(zookeeper.address + CHROOT)
    stack.callback(view.close)
    return World(network, brokers, zookeeper, view, folder / "data")


def servers(network: Network) -> str:
    return ",".join(f"{network.hosts[name].address}:{PORT}" for name in BROKERS)


def strike(world: World, kind: str, victim: str, other: str, seconds: float, chance: random.Random) -> None:
    """Let a fault happen, last for a while, and end."""
    switch, broker = world.network.switch, world.brokers[victim]
    cut = cut_directions(kind, victim, other)
    slow = {each for each in switch.directions if victim in each} if kind == "slow" else set()
    for direction in cut | slow:
        switch.set_quality(direction, CUT if direction in cut else SLOW)
    if kind == "kill":
        broker.kill()
    elif kind == "zookeeper-kill":
        world.zookeeper.kill()
    elif kind == "clock":
        broker.clock.set(chance.uniform(-APART_S, APART_S))
    threading.Event().wait(seconds)
    for direction in cut | slow:
        switch.set_quality(direction, USUAL)
    if kind == "kill":
        broker.start()
        broker.wait_started()
    elif kind == "zookeeper-kill":
        with world.network.hosts[ZOOKEEPER].entered():
            world.zookeeper.start()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", [pytest.param(1, marks=pytest.mark.lab), pytest.param(10, marks=pytest.mark.soak)])
def test_several_hosts_lose_and_double_nothing(rounds: int, tmp_path: Path, stack: ExitStack) -> None:
    need_zookeeper()
    if reason := missing_reason():
        pytest.skip(reason)
    seed = int(os.environ.get("FIRE_SEED") or random.SystemRandom().getrandbits(32))
    print(f"FIRE_SEED={seed}")
    chance = random.Random(seed)
    world = make_world(chance, tmp_path, stack)
    world.wait_in_sync()
    clients: list[Client] = []

    def client(module: str, name: str, *more: str) -> Client:
        arguments = ["--bootstrap-servers", servers(world.network), "--topic", TOPIC, *more]
        clients.append(stack.enter_context(Client(module, tmp_path / f"{name}.jsonl", *arguments)))
        return clients[-1]

    def consumer(name: str, *more: str) -> Client:
        return client("verifiable_consumer", name, "--verbose", *more)

    def producer(name: str, *more: str) -> Client:
        return client("verifiable_producer", name, "--value-prefix", name, "--repeating-keys", "17", *more)

    settings = tmp_path / "transactions.properties"
    settings.write_text(f"transaction.timeout.ms={TRANSACTION_TIMEOUT_S * 1000}\n")
    transactional = ("--transactional-id", "x", "--abort-every", "5", "--command-config", str(settings))
    producers = [
        producer("plain", "--throughput", "300"),
        producer("transactions", "--throughput", "100", *transactional),
    ]
    readers = [consumer(name, "--group-id", "g") for name in ("first", "second")]
    readers.append(consumer("committed", "--group-id", "c", "--isolation-level", "read_committed"))

    def acknowledged() -> int:
        return sum(each.counts.get("producer_send_success", 0) for each in producers)

    partitioned_s = 0.0
    partitions = 0
    for number in range(rounds * len(FAULTS)):
        if number % len(FAULTS) == 0:
            kinds = chance.sample(FAULTS, len(FAULTS))
        for each in producers:
            each.wait_for("producer_send_success", each.counts.get("producer_send_success", 0) + PROGRESS)
        kind = kinds[number % len(FAULTS)]
        victim, other = chance.sample(BROKERS, 2)
        seconds = chance.uniform(SHORTEST_S, LONGEST_S)
        before_s, before = time.monotonic(), acknowledged()
        lost = world.network.switch.lost.copy()
        strike(world, kind, victim, other, seconds, chance)
        after_s, during = time.monotonic(), acknowledged() - before
        cut = cut_directions(kind, victim, other)
        lost = {each: world.network.switch.lost[each] - lost[each] for each in cut}
        world.wait_in_sync()
        print(
            f"{number}: {kind} of {victim}{f' to {other}' if other in {e[1] for e in cut} else ''}: "
            f"{after_s - before_s:.1f} s, {sum(lost.values())} frames cut, {during} records acknowledged; "
            f"in sync {time.monotonic() - after_s:.1f} s later",
            flush=True,
        )
        assert not cut or sum(lost.values()) > 0, "the partition has cut nothing"
        partitions += bool(cut)
        partitioned_s += (after_s - before_s) * bool(cut)
    for each in producers:
        assert each.stop() == 0, each.errors.decode()
    for isolation in ("read_uncommitted", "read_committed"):
        final = consumer(isolation, "--assign", "--final", "--isolation-level", isolation, "--timeout", "100")
        assert final.wait() == 0, final.errors.decode()
    for each in readers:
        assert each.stop() == 0, each.errors.decode()
    verdict = judge(read_history([each.file for each in clients]))
    print(
        f"RESULT seed={seed} faults={rounds * len(FAULTS)} partitions={partitions} partitioned_s={partitioned_s:.1f} "
        f"sent={verdict.sent} acknowledged={verdict.acknowledged} unknown={verdict.unknown} "
        f"anomalies={len(verdict.anomalies)}"
    )
    assert verdict.anomalies == ()
    for broker in world.brokers.values():
        assert broker.stop() == 0
    check_files(world.data, world.zookeeper.place)
    stack.close()  # the network is the machine's again
    if missing_kafka_reason() is None:
        assert_kafka_finds_nothing_wrong(partitions_below(world.data), compacted=True)
