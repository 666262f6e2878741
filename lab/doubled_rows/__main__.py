"""Copy a topic with Spark's own Kafka sink and with ours, under the same kills, and count what readers see twice.

Flights lie in a topic. Each pipeline copies them to a topic of its own, once for each kill: a task that raises, a task
whose process is killed, a driver that is killed and started again, a checkpoint that is deleted. The first three strike
at the same record of both, when rows of the task are in the output topic already. Spark's pipeline is its JVM
connector's source and sink (``kafka``), ours is ``kafka_once`` on both sides, exactly-once.

The output topics are read with librdkafka as ``read_committed`` readers see them, and held against the records that
were sent. The last line begins with ``RESULT``, its figures are sums over the kills. Exit code: 0 if ours has each
record once after every kill, and Spark's (where it ran) shows duplicates after every kill; 1 if not; 2 if it could not
be run, as where Spark's jars are missing.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lab.bench.load import LoadError, create_topic
from lab.doubled_rows.copying import JVM, OURS
from lab.doubled_rows.kills import Input, Kill, Sessions, run
from lab.lost_checkpoint import Count, judge
from lab.peers import spark_kafka_jars
from lab.spark_process import SessionError
from lab.verify.brokers import open_kafka
from lab.verify.records import read_topic
from sparkonce.jobs.etl import dataset
from sparkonce.jobs.etl.publish import PublishError, publish
from sparkonce.jobs.shared.arguments import empty_folder, working_folder
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.jars import PeerMissingError

LEAST_RECORDS, MOST_RECORDS = 10_000, 300_000
"""Fewer would not fill the buffers between the steps of a query: no row would be sent before its task is struck."""
PARTITIONS = 4
TITLES = {JVM: "kafka -> kafka (Spark's JVM connector)", OURS: "kafka_once -> kafka_once, exactly-once"}
_SESSION = {
    "spark.master": "local[2,4]",  # two cores; a task may fail three times
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",  # so that a task passes its rows on in small batches
}


@dataclass(frozen=True, slots=True)
class Findings:
    """The results, for the table, the last line and the exit code: counts by pipeline and kill."""

    counts: Mapping[tuple[str, Kill], Count]

    @property
    def good(self) -> bool:
        """Whether ours is right after every kill, and the JVM's side, if it ran, shows what ours avoids."""
        return all(
            count.is_right if pipeline == OURS else count.duplicated > 0 and count.unknown == 0
            for (pipeline, _), count in self.counts.items()
        )

    def result(self) -> str:
        """Return the line for machines."""
        ran = [pipeline for pipeline in (JVM, OURS) if any(each == pipeline for each, _ in self.counts)]
        words = [f"records={self._sum(ran[0], 'records')}"]
        for pipeline in ran:
            figures = ("rows", "duplicated") if pipeline == JVM else ("rows", "lost", "duplicated")
            words += [f"{pipeline}_{figure}={self._sum(pipeline, figure)}" for figure in figures]
        return "RESULT " + " ".join(words)

    def _sum(self, pipeline: str, figure: str) -> int:
        return sum(getattr(count, figure) for (each, _), count in self.counts.items() if each == pipeline)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; return the exit code."""
    options = _parse(arguments)
    conf, pipelines = dict(_SESSION), [JVM, OURS] if options.only is None else [options.only]
    try:
        if JVM in pipelines:
            conf["spark.jars"] = ",".join(spark_kafka_jars())
        with working_folder(options.folder, "doubled-rows-") as folder, open_kafka(options.kafka) as kafka:
            source = _send(kafka.broker.bootstrap_servers, options.records)
            with closing(Sessions(conf, folder)) as sessions:
                findings = compare(pipelines, options.kills or list(Kill), source, sessions, folder)
    except PeerMissingError as error:
        print(f"cannot be compared: {error}\nOurs alone: --only {OURS}", file=sys.stderr)
        return USAGE
    except (SessionError, LoadError, PublishError, ValueError) as error:
        print(f"python -m lab.doubled_rows: {error}", file=sys.stderr)
        return USAGE
    print(findings.result())
    return GOOD if findings.good else FAILED


def compare(
    pipelines: Sequence[str], kills: Sequence[Kill], source: Input, sessions: Sessions, folder: Path
) -> Findings:
    """Run every kill with every pipeline, and print a line for each.

    Raises:
        SessionError, LoadError: if a pipeline did not finish.
    """
    counts = {}
    sent = [(record.key, record.value) for record in source.records]
    for kill in kills:
        print(f"\n{kill.title}\n{'':<42}{'records':>9}{'rows':>9}{'lost':>9}{'duplicated':>12}", flush=True)
        for pipeline in pipelines:
            found = [(record.key, record.value) for record in run(kill, pipeline, source, sessions, folder)]
            count = counts[pipeline, kill] = judge(sent, found)
            cells = f"{count.records:>9,}{count.rows:>9,}{count.lost:>9,}{count.duplicated:>12,}"
            print(f"{TITLES[pipeline]:<42}{cells}", flush=True)
    print()
    return Findings(counts)


def _send(bootstrap_servers: str, records: int) -> Input:
    """Publish flights to a new topic, and read back their offsets."""
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap_servers, topic, PARTITIONS)
    publish(bootstrap_servers, topic, dataset.messages(dataset.flights().slice(0, records)), lambda _: None)
    found = tuple(read_topic(bootstrap_servers, topic, PARTITIONS, "read_committed"))
    if len(found) != records:
        raise LoadError(f"{topic} holds {len(found)} of {records} flights that were acknowledged")
    print(f"{records:,} flights lie in {PARTITIONS} partitions of the topic {topic}", flush=True)
    return Input(bootstrap_servers, topic, PARTITIONS, found)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab.doubled_rows",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--records",
        type=int,
        default=20_000,
        help=f"flights, {LEAST_RECORDS:,} to {MOST_RECORDS:,} (default: 20000)",
    )
    parser.add_argument(
        "--kill",
        dest="kills",
        action="append",
        type=Kill,
        metavar="KILL",
        help=f"only this one, may be repeated: {', '.join(kill.value for kill in Kill)}",
    )
    parser.add_argument("--only", choices=[JVM, OURS], help="only this pipeline")
    parser.add_argument(
        "--kafka", default="embedded", help="embedded (default), real (Apache Kafka from Maven) or host:port"
    )
    parser.add_argument(
        "--folder", type=empty_folder, help="keep checkpoints and Spark's log there (default: a temporary one)"
    )
    options = parser.parse_args(arguments)
    if not LEAST_RECORDS <= options.records <= MOST_RECORDS:
        parser.error(f"--records {options.records}: expected {LEAST_RECORDS:,} to {MOST_RECORDS:,}")
    return options


if __name__ == "__main__":
    sys.exit(main())
