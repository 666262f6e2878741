"""Any order of cut logs, tables that refuse, crashes, restarts, lost checkpoints: no record is lost or doubled.

The broker, its cuts, planner, tables and what catches up are real; a seed is a history of sixty steps over one topic.
Each record has a number of its own, also one that takes the place of another.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from sparkonce.connectors.ingest import catching_up, restarts
from sparkonce.connectors.ingest.routing import Flow
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.kafka.client import client as client_module
from sparkonce.offset_store.offsets import SourceOffset
from tests.parity.support import Cluster
from tests.unit.replaced.brokers import Restorable, restorable
from tests.unit.replaced.pipeline import Pipeline
from tests.unit.replaced.test_cut_while_behind import DIRECT, LENIENT, TOPIC, Course

SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.lab) for seed in range(4, 44))]
STEPS = 60
AT_MOST = (2, 5, 1_000)
"""Records of a batch."""


class Topic:
    """A topic whose log grows and is cut."""

    def __init__(self, broker: Restorable, copy: Path, random: Random) -> None:
        self.broker, self.copy, self.random = broker, copy, random
        self.log: list[int] = []
        """The numbers of the records that it has now."""
        self.copied: list[int] | None = None
        """Those of the copy of its data, if there is one."""
        self.sent = 0

    def send(self) -> None:
        until = self.sent + self.random.randint(1, 6)
        Cluster(self.broker.bootstrap_servers).send(TOPIC, range(self.sent, until), 0)
        self.log += range(self.sent, until)
        self.sent = until

    def copy_or_cut(self) -> None:
        """Each copy is put back once: two logs that begin with one copy would have the same leader epochs."""
        if self.copied is None:
            self.broker.copy()
            self.copied = [*self.log]
            return
        self.broker.put_back()
        shutil.rmtree(self.copy)
        self.log, self.copied = self.copied, None

    def check(self, query: Pipeline) -> None:
        """Check that the table has each record that the log has, and none twice, and that the audit agrees."""
        rows = Counter(query.values())
        assert {number: times for number, times in rows.items() if times > 1} == {}
        assert {*self.log} - rows.keys() == set()
        if rows:
            assert [each for each in query.audit().report.findings if each.problem.is_error] == []


def run_batch(query: Pipeline, random: Random, *, refuses: bool = False) -> None:
    """Run a batch, the last one again if it was not committed in the checkpoint; the driver may die within."""
    stream = query.stream
    if stream.committed == len(stream.offset_log) and not query.plan():
        return
    number = stream.committed
    if random.random() < 0.1:
        return  # after it has planned
    if refuses:
        stream.committed = number + 1
        return
    query.finish()
    if random.random() < 0.1:
        stream.committed = number  # before Spark commits
        query.restart()


class SharedQuery:
    """The shared query of a table that refuses for a while, and the table's own queries."""

    def __init__(self, folder: Path, topic: Topic, random: Random) -> None:
        self.topic, self.random = topic, random
        self.course = Course(folder, topic.broker, maxOffsetsPerTrigger=random.choice(AT_MOST))
        self.refuses = False
        self.own: list[Flow] = []
        """Queries of the table's own that have begun, and have not read yet."""

    def step(self, chance: float) -> None:
        if chance < 0.08:
            self.refuses = not self.refuses
        elif chance < 0.16:
            self.course.query.restart()
        elif chance < 0.2:
            self.course.begin_process()
            self.own.clear()
        elif chance < 0.23:
            self.course.begin_elsewhere(f"shared-{self.random.random()}")
            self.own.clear()
        elif chance < 0.63:
            self.run()
        elif chance < 0.81:
            self.begin_own()
        else:
            self.run_own()

    def run(self) -> None:
        try:
            run_batch(self.course.query, self.random, refuses=self.refuses)
        except DataLossError:
            self.course.leave_out()

    def begin_own(self) -> None:
        """Compare the table with the end of the last batch that Spark has committed, and look after it."""
        if committed := self.course.query.stream.committed:
            end = SourceOffset.from_json(self.course.query.stream.offset_log[committed - 1])
            self.course.catching_up.compare(end, {TOPIC: self.course.flow}, [TOPIC])
        self.own += self.course.begin_own_queries()

    def run_own(self) -> None:
        if self.own and not self.refuses:
            self.course.catch_up(self.own.pop())
            self.own.clear()  # those of a process that has ended

    def settle(self) -> Pipeline:
        """Run what there is until nothing is left."""
        self.refuses = False
        for _ in range(100):
            self.run()
            self.begin_own()
            while self.own:
                self.run_own()
            stream = self.course.query.stream
            if stream.committed == len(stream.offset_log) and not self.course.plan():
                self.begin_own()
                if not self.course.catching_up:
                    return self.course.query
        raise AssertionError("something is left for ever")

    def close(self) -> None:
        self.course.query.close()


class TwoDrivers:
    """Two queries of one application, each of which gets a new checkpoint when it is refused."""

    def __init__(self, folder: Path, topic: Topic, random: Random) -> None:
        self.folder, self.topic, self.random = folder, topic, random
        Cluster(topic.broker.bootstrap_servers).create(name=TOPIC)
        self.queries = [self.begin(), self.begin()]

    def begin(self) -> Pipeline:
        given = {"subscribe": TOPIC, "startingOffsets": "earliest", **DIRECT, **LENIENT, "appId": TOPIC}
        more = {"offsetStore": f"delta:{self.folder}/table", "maxOffsetsPerTrigger": self.random.choice(AT_MOST)}
        options = Cluster(self.topic.broker.bootstrap_servers).source_options(**given, **more)
        return Pipeline(self.folder, options, str(self.random.random()))

    def begin_again(self, number: int) -> None:
        self.queries[number].close()
        self.queries[number] = self.begin()

    def step(self, chance: float) -> None:
        number = self.random.randrange(2)
        if chance < 0.1:
            self.queries[number].restart()
        elif chance < 0.15:
            self.begin_again(number)
        else:
            self.run(number)

    def run(self, number: int) -> None:
        try:
            run_batch(self.queries[number], self.random)
        except DeliveryError:
            self.begin_again(number)

    def settle(self) -> Pipeline:
        """Run one of them with a new checkpoint until nothing is left."""
        self.begin_again(0)
        query = self.queries[0]
        query.run()
        return query

    def close(self) -> None:
        for query in self.queries:
            query.close()


@contextmanager
def history(kind: type[SharedQuery | TwoDrivers], folder: Path, seed: int) -> Iterator[SharedQuery | TwoDrivers]:
    """Yield queries after what the seed says, and close them at the end."""
    random = Random(seed)
    with restorable("ours", folder / "broker") as broker:
        topic = Topic(broker, folder / "broker" / "copy", random)
        with closing(kind(folder, topic, random)) as queries:
            for _ in range(STEPS):
                chance = random.random()
                if chance < 0.25:
                    topic.send()
                elif chance < 0.32:
                    topic.copy_or_cut()
                else:
                    queries.step(random.random())
            yield queries
    for kept in client_module._shared.values():
        kept.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [SharedQuery, TwoDrivers])
def test_no_record_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, kind: type[SharedQuery | TwoDrivers]
) -> None:
    monkeypatch.setattr(restarts, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(catching_up, "AT_ONCE", 3)
    with history(kind, tmp_path, seed) as queries:
        queries.topic.check(queries.settle())
