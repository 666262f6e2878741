"""Minutes of brokers that are killed, stopped and paused at random, while topics are made, changed and deleted."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from sparkonce import EmbeddedCluster
from tests.cluster.control.clients import admin

DURATION_S = float(os.environ.get("CLUSTER_SOAK_SECONDS", "120"))
CONFIG = {
    "broker.heartbeat.interval.ms": 200,
    "broker.session.timeout.ms": 1_500,
    "controller.quorum.fetch.timeout.ms": 500,
    "replica.lag.time.max.ms": 2_000,
    "metadata.log.max.record.bytes.between.snapshots": 50_000,
}


class Topics:
    """Makes and deletes topics, and keeps in mind what was answered."""

    def __init__(self, client: AdminClient, rng: random.Random) -> None:
        self._client = client
        self._rng = rng
        self.made: set[str] = set()
        self.deleted: set[str] = set()
        self.unknown: set[str] = set()
        """Topics whose making or deletion was not answered, or with an error that leaves both open."""
        self._number = 0

    def step(self) -> None:
        if self.made and self._rng.random() < 0.4:
            name = self._rng.choice(sorted(self.made))
            self.made.discard(name)
            self._keep(name, self._client.delete_topics([name])[name], self.deleted)
        else:
            self._number += 1
            name = f"t{self._number}"
            self._keep(name, self._client.create_topics([NewTopic(name, 3, 2)])[name], self.made)

    def _keep(self, name: str, future: object, into: set[str]) -> None:
        try:
            future.result(40)  # type: ignore[attr-defined]
        except KafkaException as error:
            code = error.args[0].name()
            assert code in {"_TIMED_OUT", "_TRANSPORT", "INVALID_REPLICATION_FACTOR", "TOPIC_ALREADY_EXISTS",
                            "UNKNOWN_TOPIC_OR_PART", "REQUEST_TIMED_OUT", "_ALL_BROKERS_DOWN"}, code  # fmt: skip
            self.unknown.add(name)
        else:
            into.add(name)


def disturb(cluster: EmbeddedCluster, rng: random.Random, until: float) -> None:
    """Take one broker away at a time, and bring it back."""
    while time.monotonic() < until:
        broker_id = rng.choice([*cluster.brokers, cluster.controller_id])
        kind = rng.choice(["kill", "kill", "stop", "pause", "bounce"])
        if kind == "bounce":
            cluster.kill(broker_id)
            cluster.restart(broker_id)
            continue
        {"kill": cluster.kill, "stop": cluster.stop, "pause": cluster.pause}[kind](broker_id)
        # How long it is away is part of the plan, not a wait for something.
        threading.Event().wait(rng.choice([0.05, 0.5, 2.5]))
        if kind == "pause":
            cluster.resume(broker_id)
        else:
            cluster.restart(broker_id)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_what_the_controller_has_answered_stays(request: pytest.FixtureRequest) -> None:
    seed = int(os.environ.get("CLUSTER_SOAK_SEED", str(random.randrange(2**31))))
    print(f"CLUSTER_SOAK_SEED={seed} CLUSTER_SOAK_SECONDS={DURATION_S:.0f} pytest {request.node.nodeid}")
    rng = random.Random(seed)
    with EmbeddedCluster(brokers=3, process=True, config=CONFIG) as cluster:
        topics = Topics(admin(cluster.bootstrap_servers), rng)
        until = time.monotonic() + DURATION_S
        failed: list[BaseException] = []

        def run() -> None:
            try:
                disturb(cluster, random.Random(seed + 1), until)
            except BaseException as error:
                failed.append(error)

        disturbing = threading.Thread(target=run)
        disturbing.start()
        while disturbing.is_alive():
            topics.step()
        disturbing.join()
        assert not failed, failed
        cluster.wait_until(lambda: cluster.alive == {1, 2, 3}, "not all brokers are alive")
        cluster.wait_in_sync()
        there = set(cluster.image().topic_ids)
        print(f"{len(topics.made)} made, {len(topics.deleted)} deleted, {len(topics.unknown)} unknown")
        assert topics.made <= there
        assert not topics.deleted & there
        for broker in cluster.brokers.values():
            found = set(admin(broker.bootstrap_servers).list_topics(timeout=20).topics)
            assert found == there
