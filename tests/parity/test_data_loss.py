"""Records that are gone, and failOnDataLoss: the cases of Spark's KafkaDontFailOnDataLossSuite and of its stress tests.

Spark's suite waits for retention; here the log's start is moved by DeleteRecords, which comes to the same at once.
"""

from __future__ import annotations

import os
import random

import pytest

from sparkonce.connectors.kafka_source.data_loss import DataLossError
from tests.chance import new_seed
from tests.parity.support import Cluster, Stream, numbers, offsets_json

SEED = 7

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.parametrize("cluster", ["rows", "ranges"], indirect=True, scope="module"),
]


def aged(cluster: Cluster) -> tuple[str, dict[str, str]]:
    """Return a topic of fifty records that has lost the first thirty, and options that begin at the first one."""
    topic = cluster.create()
    cluster.send(topic, range(50), 0)
    cluster.forget_records(topic, {0: 30})
    return topic, {"subscribe": topic, "startingOffsets": offsets_json(topic, {0: 0}), "failOnDataLoss": "false"}


def test_a_stream_goes_on_behind_the_gap(cluster: Cluster) -> None:
    """What is left comes once. (Spark has this for its first and for its second API of sources; here is one.)

    Spark: KafkaDontFailOnDataLossSuite "failOnDataLoss=false should not return duplicated records: microbatch v1"
    Spark: KafkaDontFailOnDataLossSuite "failOnDataLoss=false should not return duplicated records: microbatch v2"
    """
    _, options = aged(cluster)
    with cluster.stream(**options) as stream:
        assert stream.process_all() == list(range(30, 50))
        assert stream.process_all() == []


def test_a_batch_query_goes_on_behind_the_gap(cluster: Cluster) -> None:
    """What is left comes once.

    Spark: KafkaDontFailOnDataLossSuite "failOnDataLoss=false should not return duplicated records: batch v1"
    Spark: KafkaDontFailOnDataLossSuite "failOnDataLoss=false should not return duplicated records: batch v2"
    """
    _, options = aged(cluster)
    assert numbers(cluster.batch(**options)) == list(range(30, 50))


def test_the_cause_of_an_error_is_kept(cluster: Cluster) -> None:
    """A task that finds its records gone says which, and what the broker had answered stays with the error.

    Spark: KafkaDataConsumerSuite "SPARK-19886: Report error cause correctly in throwOnDataLoss"
    """
    topic = cluster.create()
    cluster.send(topic, range(50), 0)
    with cluster.stream(subscribe=topic, startingOffsets="earliest") as stream:
        assert stream.plan()
        cluster.forget_records(topic, {0: 30})
        with pytest.raises(DataLossError, match=f"(?s){topic}-0.*0 to 29") as caught:
            stream.tasks()
    assert type(caught.value.__context__ or caught.value.__cause__).__name__ == "OffsetOutOfRangeError"


class Course:
    """A random course of topics that come, grow and go under a stream by pattern; what was sent must arrive."""

    def __init__(self, cluster: Cluster, seed: int, **options: str) -> None:
        self.cluster, self.random = cluster, random.Random(seed)
        self.prefix = cluster.name("stress")
        self.options = options
        self.topics: list[str] = []
        self.sent: list[int] = []

    def name(self) -> str:
        return f"{self.prefix}-{len(self.sent)}-{self.random.randrange(10**9)}"

    def create(self) -> None:
        self.topics.append(self.cluster.create(self.random.randint(1, 5), self.name()))

    def add(self) -> None:
        for topic in self.random.sample(self.topics, min(2, len(self.topics))):
            values = range(len(self.sent), len(self.sent) + self.random.randint(0, 9))
            self.cluster.send(topic, values)
            self.sent += values

    def delete(self) -> None:
        """Never the first, so that there is one."""
        if len(self.topics) > 1:
            self.cluster.delete(self.topics.pop(self.random.randrange(1, len(self.topics))))

    def grow(self) -> None:
        topic = self.random.choice(self.topics)
        self.cluster.grow(topic, self.cluster.partitions(topic) + self.random.randint(1, 3))

    def stream(self) -> Stream:
        return self.cluster.stream(subscribePattern=f"{self.prefix}.*", failOnDataLoss="false", **self.options)


def run_source(cluster: Cluster, seed: int, steps: int) -> None:
    """All that is sent is read once: a topic is deleted only when everything in it has been."""
    course = Course(cluster, seed)
    for _ in range(5):
        course.create()
    with course.stream() as stream:
        stream.process_all()
        for _ in range(steps):
            action = course.random.choice([course.create, course.delete, course.grow, stream.start, course.add])
            if action == course.delete:
                stream.process_all()
            action()
            course.add()
            if course.random.random() < 0.5:
                stream.process_all()
        stream.process_all()
        assert stream.numbers() == course.sent


def test_topics_and_partitions_come_and_go(cluster: Cluster) -> None:
    """Fifteen random steps; many more are in the long run.

    Spark: KafkaSourceStressSuite "stress test with multiple topics and partitions"
    """
    run_source(cluster, seed_of(SEED), 15)


@pytest.mark.soak
@pytest.mark.parametrize("course", range(10))
def test_topics_and_partitions_come_and_go_for_long(cluster: Cluster, course: int) -> None:
    """Spark: KafkaSourceStressSuite "stress test with multiple topics and partitions" """
    run_source(cluster, seed_of(), 100)


def run_loss(cluster: Cluster, seed: int, steps: int) -> None:
    """Topics are deleted and made anew, and records age out, between planning and reading: the query goes on."""
    course = Course(cluster, seed, startingOffsets="earliest", **{"kafkaConsumer.pollTimeoutMs": "200"})
    course.create()
    gone: list[str] = []

    def delete() -> None:
        if len(course.topics) > 1:
            gone.append(course.topics.pop(course.random.randrange(1, len(course.topics))))
            cluster.delete(gone[-1])

    def make_anew() -> None:
        if gone:
            course.topics.append(cluster.create(1, gone.pop(course.random.randrange(len(gone)))))

    def age() -> None:
        topic = course.random.choice(course.topics)
        cluster.forget_records(topic, {0: course.random.randint(0, cluster.end(topic))})

    with course.stream() as stream:
        for _ in range(steps):
            planned = stream.plan() or stream.committed < len(stream.offset_log)
            course.random.choice([course.create, delete, make_anew, age, stream.start])()
            if planned:
                stream.tasks()
            course.add()
        stream.process_all()
        found = stream.numbers()
    assert len(found) == len(set(found)), "a record came twice"
    assert set(found) <= set(course.sent)


def test_topics_are_made_anew_and_records_age(cluster: Cluster) -> None:
    """Twenty random steps; many more are in the long run. Nothing fails, and nothing comes twice.

    Spark: KafkaSourceStressForDontFailOnDataLossSuite "stress test for failOnDataLoss=false"
    """
    run_loss(cluster, seed_of(SEED), 20)


@pytest.mark.soak
@pytest.mark.parametrize("course", range(10))
def test_topics_are_made_anew_and_records_age_for_long(cluster: Cluster, course: int) -> None:
    """Spark: KafkaSourceStressForDontFailOnDataLossSuite "stress test for failOnDataLoss=false" """
    run_loss(cluster, seed_of(), 150)


def seed_of(usual: int | None = None) -> int:
    """Return the seed of a course: the usual one, if it has one, or a new one; `PARITY_SEED` repeats any."""
    if (given := os.environ.get("PARITY_SEED")) is not None:
        return int(given)
    return new_seed() if usual is None else usual
