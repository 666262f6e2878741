"""The two that write one table: a query of ours in a thread of this process, and delta-spark in its JVM."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from sparkonce.exactly_once.errors import DeliveryError
from sparkonce.offset_store.clock import now_ms
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.log.checkpoints import write_checkpoint
from sparkonce.offset_store.log.cleanup import clean_up
from sparkonce.offset_store.log.table_log import TableLog
from tests.lab.log.beside.judge import LogJudge
from tests.lab.log.beside.statements import MOST_ROWS, Kind, choose, create
from tests.unit.sink.query_by_hand import Query

SCHEMA = t.StructType([t.StructField("k", t.LongType()), t.StructField("v", t.LongType())])
PAUSES_S = (0.0, 0.0, 0.1, 0.3, 1.0, 4.0)
"""Between batches: some follow at once, and some leave delta-spark the time of a statement."""
MOST_FAILURES = 20
FREE_TRIES = 1
"""Before a statement is repeated while our query waits."""
UPKEEP_EVERY = 25
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
CONFLICTS = ("Concurrent", "DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
GONE = ("RESTORE", "missing", "Not all files from version", "FileNotFound", "BEYOND_DELETED_FILE_RETENTION")


@dataclass(slots=True)
class Ours:
    """A query by hand: batch after batch until it is stopped; what fails is run again, as Spark would."""

    query: Query
    judge: LogJudge
    rng: Random
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held while a batch runs."""
    acknowledged: list[int] = field(default_factory=list)
    next_offset: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    cleaned: int = 0
    """Files of the log that were deleted."""
    error: BaseException | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write batches in the meantime. Raises what has stopped them."""
        thread = threading.Thread(target=self._run, name="ours")
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        self.check()

    def check(self) -> None:
        """Raise what has stopped the batches."""
        if self.error is not None:
            raise RuntimeError("our query has stopped") from self.error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with self.turn:
                    self._batch()
                self._stop.wait(self.rng.choice(PAUSES_S))
        except BaseException as error:
            self.error = error

    def _batch(self) -> None:
        batch_id, end = len(self.acknowledged), self.next_offset + self.rng.randint(1, MOST_ROWS)
        keys = range(self.next_offset, end)
        self.judge.batches[batch_id] = dict.fromkeys(keys, batch_id)
        self.query.log(batch_id, end)
        for _ in range(MOST_FAILURES):
            try:
                self.query.commit(batch_id, self.query.tasks(rows=[{"k": key, "v": batch_id} for key in keys]))
                break
            except (DeliveryError, OffsetStoreError) as error:
                self.refused[type(error).__name__] += 1
                last = error
        else:
            raise last
        self.acknowledged.append(batch_id)
        self.next_offset = end
        self.judge.catch_up()
        if batch_id % UPKEEP_EVERY == UPKEEP_EVERY - 1:
            self._upkeep()

    def _upkeep(self) -> None:
        """Write a checkpoint and clean the log up, as the sink does once a day."""
        self.judge.make_old()
        log = TableLog(Location.parse(str(self.query.table)))
        state = log.state()
        write_checkpoint(log.reader, state, log.reader.listing(), removed_before_ms=None)
        self.cleaned += clean_up(log.reader, state, now_ms=now_ms()).deleted


@dataclass(slots=True)
class Theirs:
    """delta-spark: statement after statement, each repeated until no batch of ours has come first."""

    spark: SparkSession
    kind: Kind
    ours: Ours
    judge: LogJudge
    rng: Random
    number: int = 0
    acknowledged: list[int] = field(default_factory=list)
    """The statements that change rows."""
    done: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def create(self) -> None:
        """Make the table."""
        self.spark.conf.unset(USER_METADATA)
        self.sql(create(self.kind))
        self.judge.catch_up()

    def next(self) -> None:
        """Run one statement."""
        self.number += 1
        self.judge.catch_up()
        chosen = choose(self.rng, self.kind, self.number, self.judge.version, self.ours.next_offset)
        self.judge.statements[self.number] = chosen
        tries = iter([*[False] * FREE_TRIES, True])
        while (alone := next(tries, None)) is not None and not self._run(chosen.kind, chosen.sql, alone=alone):
            self.conflicts[chosen.kind] += 1
        self.judge.catch_up()
        print(f"{self.kind.name} {self.number}: {chosen.kind}, version {self.judge.version}", flush=True)

    def _run(self, kind: str, sql: str, *, alone: bool) -> bool:
        """Run it; return whether it need not be repeated."""
        self.spark.conf.set(USER_METADATA, str(self.number))
        try:
            if alone:
                with self.ours.turn:
                    self.sql(sql)
            else:
                self.sql(sql)
        except Exception as error:  # of many kinds, py4j's among them
            self.judge.catch_up()
            if self.judge.landed["statement", self.number]:
                self.judge.rules.fail("told", f"{sql} is in the log, and failed: {error}")
            if any(each in f"{type(error).__name__} {error}" for each in CONFLICTS):
                return False
            if kind != "restore" or not any(each in str(error) for each in GONE):
                raise
            self.refused[kind] += 1  # files of that version were vacuumed
            return True
        self.done[kind] += 1
        return True

    def sql(self, text: str) -> None:
        """Run a statement for the table `{t}`."""
        self.spark.sql(text.replace("{t}", f"delta.`{self.ours.query.table}`")).collect()
