"""The server-side assignors beside Apache Kafka's own, on random groups."""

from __future__ import annotations

import random
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.peers import kafka_classpath, missing_kafka_reason
from sparkonce.broker_lite.coordinators.assignors import ASSIGNORS, Partitions, Subscriber
from sparkonce.jobs.shared.jars import java_command
from tests.interop.tools import JAVA_OPTIONS

pytestmark = [pytest.mark.java, pytest.mark.soak]
PROGRAM = Path(__file__).parent / "KafkaAssignors.java"
GROUPS = 1_000
SEED = 7
TOPICS = [uuid.UUID(int=number) for number in range(1, 5)]

Case = tuple[str, list[Subscriber], dict[uuid.UUID, int]]


def group(rng: random.Random) -> Case:
    """Make up a group: topics, members, and what each has had until now."""
    topics = rng.sample(TOPICS, rng.randint(1, 3))
    counts = {topic: rng.randint(1, 6) for topic in topics}
    names = rng.sample("abcdefg", rng.randint(1, 5))
    owned: dict[str, dict[uuid.UUID, set[int]]] = {name: {} for name in names}
    for topic, count in counts.items():
        for index in range(count):
            owner = rng.choice([None, *names])
            if owner is not None:
                owned[owner].setdefault(topic, set()).add(index)
    same = frozenset(rng.sample(topics, rng.randint(1, len(topics))))
    alike = rng.random() < 0.6
    members = [
        Subscriber(
            name,
            f"i{rng.randint(0, 9)}{name}" if rng.random() < 0.4 else None,
            same if alike else frozenset(rng.sample(topics, rng.randint(1, len(topics)))),
            {topic: frozenset(indexes) for topic, indexes in owned[name].items()},
        )
        for name in names
    ]
    subscribed = frozenset[uuid.UUID]().union(*(member.topic_ids for member in members))
    return rng.choice(sorted(ASSIGNORS)), members, {t: count for t, count in counts.items() if t in subscribed}


def text_of(share: Partitions) -> str:
    return ",".join(f"{topic.int}:{'.'.join(map(str, sorted(share[topic])))}" for topic in sorted(share))


def line_of(case: Case) -> str:
    assignor, members, counts = case
    fields = [assignor, ",".join(f"{topic.int}:{count}" for topic, count in counts.items())]
    for member in members:
        topics = ",".join(str(topic.int) for topic in member.topic_ids)
        fields.append(f"{member.member_id};{member.instance_id or '-'};{topics};{text_of(member.target)}")
    return "|".join(fields)


def read(line: str) -> dict[str, Partitions]:
    found: dict[str, Partitions] = {}
    for each in line.split(" "):
        name, _, share = each.partition("=")
        topics = [part.split(":") for part in share.split(",") if part]
        found[name] = {uuid.UUID(int=int(t)): frozenset(map(int, indexes.split("."))) for t, indexes in topics}
    return found


def unevenness(shares: Mapping[str, Partitions]) -> int:
    return sum(sum(map(len, share.values())) ** 2 for share in shares.values())


def stayed(members: list[Subscriber], shares: Mapping[str, Partitions]) -> int:
    return sum(
        len(indexes & shares[member.member_id].get(topic, frozenset()))
        for member in members
        for topic, indexes in member.target.items()
    )


def test_range_is_kafkas_and_uniform_is_as_even_and_as_sticky() -> None:
    reason, classpath = missing_kafka_reason(), kafka_classpath()
    if classpath is None:
        pytest.skip(str(reason))
    rng = random.Random(SEED)
    cases = [group(rng) for _ in range(GROUPS)]
    java = subprocess.run(
        [java_command(), *JAVA_OPTIONS, "-cp", classpath, str(PROGRAM)],
        input="\n".join(map(line_of, cases)) + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert java.returncode == 0, java.stderr
    lines = java.stdout.splitlines()
    assert len(lines) == GROUPS
    for case, line in zip(cases, lines, strict=True):
        assignor, members, counts = case
        ours, kafkas = ASSIGNORS[assignor](members, counts), read(line)
        if assignor == "range":
            assert ours == kafkas, line_of(case)
        else:
            assert unevenness(ours) <= unevenness(kafkas), line_of(case)
            if len({member.topic_ids for member in members}) == 1:
                assert stayed(members, ours) >= stayed(members, kafkas), line_of(case)
