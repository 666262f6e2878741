"""Delete Spark's checkpoint and run again: the JVM's pipeline beside ours, on the same records.

Flights lie in a topic of an embedded broker. Each pipeline copies them into a Delta table of its own with
Trigger.AvailableNow; then its checkpoint directory is deleted, as by a cleaner or a move to another cluster, and it
runs again. Spark's Kafka source begins anew where ``startingOffsets`` says, and Delta's sink knows a batch by query id
and batch id, which were in the checkpoint: every row comes a second time. Ours asks the table.

Then a tenth more flights come, and the checkpoints of our two variants are deleted once more. With ``offsetStore`` the
source begins at the table's offsets and reads just the new ones. Without it the source begins at ``earliest``, and its
batch holds old records and new ones. The sink sees the overlap, and stops rather than write the old ones again.

The tables are read with delta-rs, without Spark, and held against the records that were sent. The last line begins with
``RESULT``. Exit code: 0 if ours holds each record once (and the JVM's, where it ran, shows the fault); 1 if not; 2 if
the JVM's jars are missing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from lab.peers import jvm_session
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.connectors.session import spark_session
from sparkonce.jobs.etl import dataset
from sparkonce.jobs.etl.publish import create_topic, publish
from sparkonce.jobs.shared.arguments import empty_folder, working_folder
from sparkonce.jobs.shared.jars import PeerMissingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "flights"
APP_ID = "flights"
MOST_RECORDS = 300_000
"""Of 336,776 flights: a tenth more must be left."""
LATER_PART = 10
"""Records added after the tables were checked: one for so many."""
_SESSION = {"spark.master": "local[2]", "spark.driver.memory": "1g"}
_OUR_ERRORS = "sparkonce."

Record = tuple[bytes, bytes]
"""Key and value. The value contains the flight's number, so all are different."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One way from the topic to its own table; ``title`` is shown in the output."""

    name: str
    title: str
    source: str
    sink: str
    begins_at_table: bool = False

    def source_options(self, table: Path) -> dict[str, str]:
        """Return the options of the source, besides the topic's."""
        return {"offsetStore": f"delta:{table}", "appId": APP_ID} if self.begins_at_table else {}

    def sink_options(self) -> dict[str, str]:
        """Return the options of the sink, besides path and checkpoint."""
        return {"appId": APP_ID} if self.sink == "delta_once" else {}


JVM = Pipeline("jvm", "kafka -> delta (Spark's JVM source, Delta's sink)", "kafka", "delta")
OURS = Pipeline("sparkonce", "kafka_once -> delta_once, offsetStore", "kafka_once", "delta_once", begins_at_table=True)
WITHOUT_STORE = Pipeline("earliest", "kafka_once -> delta_once, no offsetStore", "kafka_once", "delta_once")


@dataclass(frozen=True, slots=True)
class Count:
    """How a table's rows compare with the records that were sent."""

    records: int
    rows: int
    distinct: int
    lost: int
    unknown: int
    """Distinct rows that were never sent."""

    @property
    def duplicated(self) -> int:
        """Rows beyond the first of each record."""
        return self.rows - self.distinct

    @property
    def is_right(self) -> bool:
        """Whether each record is there once, and nothing else."""
        return self.lost == self.duplicated == self.unknown == 0


def judge(sent: Iterable[Record], found: Sequence[Record]) -> Count:
    """Compare the rows of a table with the records that were sent."""
    records, distinct = set(sent), set(found)
    return Count(len(records), len(found), len(distinct), len(records - distinct), len(distinct - records))


@dataclass(frozen=True, slots=True)
class Findings:
    """The results of the run, for the table, the last line and the exit code."""

    counts: Mapping[str, Count]
    """By the pipeline's name, after its checkpoint was deleted and it ran again."""
    later: Count
    """Ours with offsetStore, after more records and one more deletion."""
    refused: str | None
    """The error of ours without offsetStore when there were old and new records; None if it did not stop."""
    untouched: bool
    """Whether that pipeline left its table unchanged."""

    @property
    def good(self) -> bool:
        """Whether ours is right in all cases, and the JVM's side, if it ran, shows the fault."""
        ours = all(count.is_right for name, count in self.counts.items() if name != JVM.name)
        shown = JVM.name not in self.counts or self.counts[JVM.name].duplicated > 0
        return ours and shown and self.later.is_right and self.refused is not None and self.untouched

    def result(self) -> str:
        """Return the line for machines."""
        ours, jvm = self.counts[OURS.name], self.counts.get(JVM.name)
        words = [f"jvm_rows={jvm.rows}"] if jvm else []
        words += [f"sparkonce_rows={ours.rows}", f"records={ours.records}"]
        words += [f"sparkonce_lost={ours.lost}", f"sparkonce_duplicated={ours.duplicated}"]
        words += [f"jvm_duplicated={jvm.duplicated}"] if jvm else []
        return "RESULT " + " ".join(words)


class Run:
    """Pipelines over one topic, each with a table and a checkpoint under ``folder``."""

    def __init__(self, spark: SparkSession, bootstrap_servers: str, folder: Path, partitions: int) -> None:
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers
        self._folder = folder
        self._sent: list[Record] = []
        create_topic(bootstrap_servers, TOPIC, partitions)

    def send(self, records: Sequence[Record]) -> None:
        """Publish more records."""
        publish(self._bootstrap_servers, TOPIC, records, lambda _acknowledged: None)
        self._sent.extend(records)

    def copy(self, pipeline: Pipeline) -> None:
        """Run a pipeline until it has read all available records.

        Raises:
            StreamingQueryException: if it stops with an error.
        """
        table = self._table(pipeline)
        reader = (
            self._spark.readStream.format(pipeline.source)
            .option("kafka.bootstrap.servers", self._bootstrap_servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .options(**pipeline.source_options(table))
        )
        writer = (
            reader.load()
            .select("key", "value")
            .writeStream.format(pipeline.sink)
            .option("checkpointLocation", str(self._checkpoint(pipeline)))
            .options(**pipeline.sink_options())
            .trigger(availableNow=True)
        )
        writer.start(str(table)).awaitTermination()

    def lose_checkpoint(self, pipeline: Pipeline) -> None:
        """Delete a pipeline's checkpoint."""
        shutil.rmtree(self._checkpoint(pipeline))

    def count(self, pipeline: Pipeline) -> Count:
        """Read a pipeline's table with delta-rs and compare it."""
        rows = DeltaTable(self._table(pipeline)).to_pyarrow_table(columns=["key", "value"])
        return judge(self._sent, list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)))

    def version(self, pipeline: Pipeline) -> int:
        """Return the version of a pipeline's table."""
        return DeltaTable(self._table(pipeline)).version()

    def _table(self, pipeline: Pipeline) -> Path:
        return self._folder / pipeline.name / "table"

    def _checkpoint(self, pipeline: Pipeline) -> Path:
        return self._folder / pipeline.name / "checkpoint"


def compare(run: Run, pipelines: Sequence[Pipeline], records: Sequence[Record], more: Sequence[Record]) -> Findings:
    """Run everything; ``more`` records are added after the tables were checked.

    ``pipelines`` has `OURS` and `WITHOUT_STORE`, and `JVM` if its jars are available.
    """
    print(f"{len(records):,} flights go to the topic {TOPIC}")
    run.send(records)
    counts = {}
    for pipeline in pipelines:
        run.copy(pipeline)
        print(f"{pipeline.title}: {run.count(pipeline).rows:,} rows; its checkpoint is deleted, and it runs again")
        run.lose_checkpoint(pipeline)
        run.copy(pipeline)
        counts[pipeline.name] = run.count(pipeline)
    _print_table(pipelines, counts)
    print(f"\n{len(more):,} more flights go to the topic, and our two checkpoints are deleted once more")
    run.send(more)
    run.lose_checkpoint(OURS)
    run.copy(OURS)
    later = run.count(OURS)
    print(f"{OURS.title}: {later.rows:,} rows, {later.lost:,} lost, {later.duplicated:,} duplicated")
    before = run.version(WITHOUT_STORE)
    run.lose_checkpoint(WITHOUT_STORE)
    refused = _refusal(run, WITHOUT_STORE)
    untouched = run.version(WITHOUT_STORE) == before
    print(f"{WITHOUT_STORE.title}: {f'stopped: {refused}' if refused else 'it did not stop'}")
    return Findings(counts, later, refused, untouched)


def _refusal(run: Run, pipeline: Pipeline) -> str | None:
    """Run a pipeline that should stop, and return its error without Spark's wrapping."""
    try:
        run.copy(pipeline)
    except StreamingQueryException as error:
        reasons = [line.strip() for line in str(error).splitlines() if line.strip().startswith(_OUR_ERRORS)]
        if not reasons:
            raise
        return reasons[-1]
    return None


def _print_table(pipelines: Sequence[Pipeline], counts: Mapping[str, Count]) -> None:
    columns = ("records", "rows", "distinct", "lost", "duplicated")
    width = max(len(pipeline.title) for pipeline in pipelines)
    print("\n" + "pipeline".ljust(width) + "".join(column.rjust(12) for column in columns))
    for pipeline in pipelines:
        count = counts[pipeline.name]
        cells = "".join(f"{getattr(count, column):,}".rjust(12) for column in columns)
        print(pipeline.title.ljust(width) + cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit code."""
    options = _parse(arguments)
    conf, pipelines = dict(_SESSION), [OURS, WITHOUT_STORE]
    if not options.only_ours:
        try:
            conf |= jvm_session()
        except PeerMissingError as error:
            print(f"Spark's JVM pipeline cannot run: {error}\nOurs alone: --only-ours", file=sys.stderr)
            return 2
        pipelines.insert(0, JVM)
    flights = list(dataset.messages(dataset.flights().slice(0, options.records + options.records // LATER_PART)))
    with working_folder(options.folder, "lost-checkpoint-") as folder, EmbeddedBroker() as broker:
        spark = spark_session("lost checkpoint", **conf)
        spark.sparkContext.setLogLevel("OFF")
        try:
            run = Run(spark, broker.bootstrap_servers, folder, options.partitions)
            findings = compare(run, pipelines, flights[: options.records], flights[options.records :])
        finally:
            spark.stop()
    print(findings.result())
    return 0 if findings.good else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.lost_checkpoint",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--records", type=int, default=20_000, help=f"flights, 10 to {MOST_RECORDS:,} (default: 20000)")
    parser.add_argument("--partitions", type=int, default=4, help="of the topic (default: 4)")
    parser.add_argument("--only-ours", action="store_true", help="leave out the JVM's pipeline and its jars")
    parser.add_argument(
        "--folder", type=empty_folder, help="keep tables and checkpoints there (default: a temporary one)"
    )
    options = parser.parse_args(arguments)
    if not LATER_PART <= options.records <= MOST_RECORDS:
        parser.error(f"--records {options.records}: there are 10 to {MOST_RECORDS:,} flights to take")
    if options.partitions < 1:
        parser.error(f"--partitions {options.partitions}: expected at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
