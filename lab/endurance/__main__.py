"""Flights from Kafka to a table on S3, on a Spark cluster, while executors, workers and the driver are killed in turn.

Starts a Spark cluster, a Kafka and an S3 store on this machine, publishes the flights at an even pace, and compares the
table with them in the end. The last line is ``RESULT expected=… rows=… lost=… duplicated=…`` and how many of each kind
were killed; the exit code is 0 only if nothing is lost, nothing is there twice, every column is equal and each kind was
killed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lab import class_archive
from lab.endurance.course import Course, Table, Victim
from lab.endurance.supervised_job import SupervisedJob, run_to_end
from lab.flights_check import Verdict, judge
from lab.job_process import JobFailedError
from lab.peers import RealKafkaCluster
from lab.standalone import StandaloneCluster, StandaloneError
from lab.store.stores import KINDS, open_store
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.broker_lite.embedded_cluster import EmbeddedCluster
from sparkonce.jobs.etl.publish import PublishError, create_topic
from sparkonce.jobs.shared.arguments import empty_folder, working_folder
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.jars import PeerMissingError

TOPIC, PARTITIONS = "flights", 4
KAFKAS = ("embedded", "embedded-cluster", "real-cluster")
CLUSTER_OF = 3
REPLICATED = {"min.insync.replicas": 2, "default.replication.factor": CLUSTER_OF}


def main() -> int:
    """Run the command line; return the exit code."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # to end started processes
    try:
        with working_folder(options.folder, "endurance-") as folder:
            verdict, course = _run(options, folder)
    except PeerMissingError as error:
        print(f"endurance: {error}", file=sys.stderr)
        return USAGE
    except (JobFailedError, PublishError, StandaloneError) as error:
        print(f"endurance: {error}", file=sys.stderr)
        return FAILED
    for column in verdict.columns:
        if not column.equal:
            print(f"column {column.name} differs: {column.source} in the source data, {column.table} in the table")
    counts = " ".join(f"{victim.value}s_killed={course.kills[victim]}" for victim in Victim)
    print(f"{verdict.result} {counts} failures={course.job.failures}")
    return GOOD if verdict.good and all(course.kills[victim] for victim in Victim) else FAILED


def _run(options: argparse.Namespace, folder: Path) -> tuple[Verdict, Course]:
    with (
        _kafka(options.kafka) as (servers, replicas),
        open_store(options.store) as store,
        StandaloneCluster(folder / "cluster") as cluster,
    ):
        create_topic(servers, TOPIC, PARTITIONS, replicas)
        place = store.location(folder) or str(folder)
        table = Table(f"{place}/flights", dict(store.storage_options))
        session = {"spark.master": cluster.url, **_SESSION, **store.session}
        if store.jars:
            session["spark.jars"] = ",".join(store.jars)
        config = folder / "job.toml"
        config.write_text(_config(table, f"{place}/checkpoint", servers, session))
        command = ["-m", "sparkonce.jobs.etl.enrich_flights", "--config", str(config), "--debug"]
        environment = {class_archive.VARIABLE: class_archive.options()}
        with SupervisedJob([*command, "--continuous"], folder / "job.log", environment) as job:
            course = Course(cluster, job, table, options.minutes, options.every, _tell)
            course.run(servers, TOPIC)
        run_to_end(command, folder / "job.log", environment)
        return judge(table.uri, table.storage_options), course


_SESSION = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "1",
    "spark.cores.max": "4",  # two executors on each worker
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
}


def _config(table: Table, checkpoint: str, servers: str, spark: Mapping[str, str]) -> str:
    """Return the job's configuration; a JSON string is a TOML string, too."""
    entries = {
        "app_id": f"flights-{uuid.uuid4().hex[:8]}",
        "table": table.uri,
        "checkpoint": checkpoint,
        "delivery_guarantee": "exactly-once",
        "partition_by": "origin",
        "trigger_interval": "1 second",
    }
    kafka = {
        "kafka.bootstrap.servers": servers,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "20000",
    }
    sections = {"kafka": kafka, "spark": spark, "storage": table.storage_options}
    lines = [f"{name} = {json.dumps(value)}" for name, value in entries.items()]
    for name, section in sections.items():
        lines += ["", f"[{name}]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in section.items())]
    return "\n".join(lines) + "\n"


@contextmanager
def _kafka(kind: str) -> Iterator[tuple[str, int]]:
    """Start a Kafka; yield its address and the replication factor of topics."""
    if kind == "embedded":
        with EmbeddedBroker(process=True) as broker:
            yield broker.bootstrap_servers, 1
    elif kind == "embedded-cluster":
        with (
            TemporaryDirectory(prefix="endurance-kafka-") as folder,
            EmbeddedCluster(CLUSTER_OF, Path(folder), process=True, config=REPLICATED) as cluster,
        ):
            yield cluster.bootstrap_servers, CLUSTER_OF
    else:
        with RealKafkaCluster(CLUSTER_OF, REPLICATED) as kafka:
            yield kafka.bootstrap_servers, CLUSTER_OF


def _tell(line: str) -> None:
    print(line, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long flights are published (default: 10)")
    parser.add_argument("--every", type=float, default=10, metavar="S", help="seconds between kills (default: 10)")
    parser.add_argument("--kafka", choices=KAFKAS, default="embedded", help="default: embedded")
    parser.add_argument("--store", choices=KINDS, default="s3", help="default: s3 (versitygw)")
    parser.add_argument("--folder", type=empty_folder, help="keep the logs there; by default they are removed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
