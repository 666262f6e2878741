"""Shared by the example jobs: a TOML configuration, a command line, and flights to try a job without a Kafka.

A job that fails ends with one line with the cause, the location and the remedy, and exit status 1. Spark wraps
a Python error into an exception of the JVM, which returns as another one of Python: hundreds of lines around
one. So checks that need no Spark are done before it starts, above all of the topics, and of later errors the
innermost one is reported.
"""

from __future__ import annotations

import argparse
import difflib
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.runtime.failures import explain
from sparkonce.connectors.session import spark_session
from sparkonce.jobs.shared.arguments import CONF, positive
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.extras import missing_extra
from sparkonce.jobs.shared.jars import delta_jars
from sparkonce.kafka.client.client import KafkaUnreachableError
from sparkonce.kafka.client.metadata import MissingTopicError
from sparkonce.kafka.protocol.errors import KafkaError
from sparkonce.options import STORAGE_PREFIX, OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SAMPLE_PARTITIONS = 4
BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
LOG_LEVEL = "spark.log.level"
STORAGE = "storage"
"""The optional section of a configuration."""
CHECKPOINT_SUFFIX = "-checkpoint"
"""The suffix of the checkpoints' names in ``conf``."""
_TRY = "Name another with --bootstrap-servers HOST:PORT, or try the job without a Kafka: --sample 20000"


class JobSettingsError(ValueError):
    """A configuration that cannot be used; the message names the file and the entry."""


class JobError(RuntimeError):
    """A job that cannot do its work; the message says what, where and what to do."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The entries of the file, by their names; see the comments there."""

    app_id: str
    result: str
    """The entry with the result's location: ``table``, or the job's name for it."""
    checkpoint: str
    delivery_guarantee: str
    trigger_interval: str
    kafka: Mapping[str, str]
    """Options of the format `kafka_once`, unchanged."""
    spark: Mapping[str, str]
    """Settings of Spark, unchanged."""
    own: Mapping[str, str]
    """Entries of this job only."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of the object store with table and checkpoint, in delta-rs's form."""

    @property
    def storage_options(self) -> dict[str, str]:
        """The same settings as options of the formats."""
        return {f"{STORAGE_PREFIX}{name}": value for name, value in self.storage.items()}

    @classmethod
    def read(cls, path: Path, own: Sequence[str] = (), result: str = "table") -> JobSettings:
        """Read a file that has the entries ``own`` and ``result`` besides the common ones.

        Raises:
            JobSettingsError: if it is missing, is not TOML, or an entry is missing, unknown or no text or number.
        """
        try:
            document = tomllib.loads(path.read_text())
        except OSError as error:
            raise JobSettingsError(f"cannot read the configuration {path}: {error.strerror}") from error
        except tomllib.TOMLDecodeError as error:
            raise JobSettingsError(f"{path} is not TOML: {error}") from error
        texts = ("app_id", result, "checkpoint", "delivery_guarantee", "trigger_interval", *own)
        needed = [*texts, "kafka", "spark"]
        known = [*needed, STORAGE]
        for name in document:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)
                raise JobSettingsError(f"{path}: unknown entry {name!r}; {hint}")
        for name in needed:
            if name not in document:
                raise JobSettingsError(f"{path}: entry {name!r} is missing")
        values = {name: _text(document[name], path, name) for name in texts}
        kafka = _section(document["kafka"], path, "kafka")
        of_store = next((key for key in kafka if key.lower().startswith(STORAGE_PREFIX)), None)
        if of_store is not None:
            raise JobSettingsError(
                f"{path}: {of_store!r} is in [kafka]: put it into [{STORAGE}], without {STORAGE_PREFIX}, for source, "
                "table and checkpoint alike"
            )
        return cls(
            app_id=values["app_id"],
            result=values[result],
            checkpoint=values["checkpoint"],
            delivery_guarantee=values["delivery_guarantee"],
            trigger_interval=values["trigger_interval"],
            kafka=kafka,
            spark=_section(document["spark"], path, "spark"),
            own={name: values[name] for name in own},
            storage=_section(document.get(STORAGE, {}), path, STORAGE),
        )


def run_job(
    description: str,
    name: str,
    start: Callable[[SparkSession, JobSettings, Mapping[str, Any]], StreamingQuery],
    own: Sequence[str],
    arguments: Sequence[str] | None = None,
    needs_delta_spark: bool = False,
    result: str = "table",
) -> int:
    """Run a job's command line; return the exit status: 0, 1 if it failed, 2 for invalid arguments.

    ``start`` starts the query from a session, the settings, and the keyword arguments of its trigger; ``own`` and
    ``result`` are as for `JobSettings.read`.
    """
    parser = argparse.ArgumentParser(prog=f"python -m sparkonce.jobs.etl.{name}", description=description)
    config = CONF / f"{name}.toml"
    parser.add_argument("--config", type=Path, default=config, help=f"the configuration (default: conf/{name}.toml)")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="instead of those in the configuration")
    parser.add_argument(
        "--continuous", action="store_true", help="go on for ever, every trigger_interval, until interrupted"
    )
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="N",
        help="try the job without a Kafka: start a broker beside the checkpoint, with the first N flights in its topic",
    )
    parser.add_argument("--debug", action="store_true", help="if it fails, show the traces and Spark's own log too")
    options = parser.parse_args(arguments)
    try:
        settings = JobSettings.read(options.config, own, result)
        if options.bootstrap_servers:
            settings = replace(settings, kafka={**settings.kafka, BOOTSTRAP_SERVERS: options.bootstrap_servers})
        if needs_delta_spark:
            settings = with_delta_spark(settings)
        trigger = {"processingTime": settings.trigger_interval} if options.continuous else {"availableNow": True}
        with sample(settings, options.sample) if options.sample else nullcontext(settings) as ready:
            check_topics(ready.kafka)
            _run(name, ready, lambda spark: start(spark, ready, trigger), quiet=not options.debug)
    except ModuleNotFoundError as error:
        print(f"{parser.prog}: {missing_extra(error) or error}", file=sys.stderr)
        return USAGE
    except (JobSettingsError, OptionError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return USAGE
    except Exception as error:
        if options.debug:
            traceback.print_exc()
        hint = "" if options.debug else " (--debug shows the traces)"
        print(f"{parser.prog}: {reason(error)}{hint}", file=sys.stderr)
        return FAILED
    return GOOD


def _run(name: str, settings: JobSettings, start: Callable[[SparkSession], StreamingQuery], *, quiet: bool) -> None:
    spark = spark_session(name, **settings.spark)
    if quiet and LOG_LEVEL not in settings.spark:
        # Spark logs a query's failure with a stack trace before the query ends.
        spark.sparkContext.setLogLevel("OFF")
    try:
        query = start(spark)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
        batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
        rows = sum(progress["numInputRows"] for progress in batches)
        word = "batch" if len(batches) == 1 else "batches"
        print(f"{name}: read {rows} records in {len(batches)} {word}; the result is {settings.result}")
    finally:
        # The state store's maintenance logs many lines when it finds Spark stopped.
        spark.sparkContext.setLogLevel("OFF" if quiet else "ERROR")
        spark.stop()


def with_delta_spark(settings: JobSettings) -> JobSettings:
    """Add delta-spark's jar, from Maven unless configured. Raises PeerMissingError if it cannot be fetched."""
    if {"spark.jars", "spark.jars.packages"} & settings.spark.keys():
        return settings
    return replace(settings, spark={**settings.spark, "spark.jars": ",".join(delta_jars())})


@contextmanager
def sample(settings: JobSettings, flights: int) -> Iterator[JobSettings]:
    """Run a broker with the first ``flights`` flights, stored beside the checkpoint; return settings that use it.

    Raises:
        JobSettingsError: if the configuration does not subscribe to one topic.
    """
    from sparkonce.broker_lite.embedded import EmbeddedBroker
    from sparkonce.jobs.etl import dataset
    from sparkonce.jobs.etl.publish import create_topic, publish

    topic = settings.kafka.get("subscribe", "")
    if not topic or "," in topic:
        raise JobSettingsError("--sample needs one topic in the entry 'subscribe' of [kafka]")
    folder = Path(settings.checkpoint.removesuffix(CHECKPOINT_SUFFIX) + "-broker")
    published = folder.with_name(folder.name + ".published")
    with EmbeddedBroker(data_dir=folder) as broker:
        if not published.exists():
            create_topic(broker.bootstrap_servers, topic, SAMPLE_PARTITIONS)
            messages = dataset.messages(dataset.flights().slice(0, flights))
            count = publish(broker.bootstrap_servers, topic, messages, lambda _: None)
            published.write_text(str(count))
            print(f"published {count} flights to {topic}; the broker's data stays in {folder}")
        elif published.read_text() != str(flights):
            print(f"{topic} has {published.read_text()} flights of an earlier run: remove {folder}* for another number")
        yield replace(settings, kafka={**settings.kafka, BOOTSTRAP_SERVERS: broker.bootstrap_servers})


def _text(value: object, path: Path, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise JobSettingsError(f"{path}: entry {name!r} is no text and no number")
    if value == "":
        raise JobSettingsError(f"{path}: entry {name!r} is empty")
    return str(value)


def _section(value: object, path: Path, name: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise JobSettingsError(f"{path}: {name!r} is a section: [{name}]")
    return {key: _text(each, path, f"{name}.{key}") for key, each in value.items()}


def check_topics(kafka: Mapping[str, str]) -> None:
    """Check with the brokers that a job's topics exist; ``kafka`` has its source's options.

    Raises:
        OptionError: for an invalid option of ``[kafka]``.
        JobError: if no broker answers, or a topic is missing or may not be read.
    """
    options = SourceOptions.read(kafka)
    options.for_stream()
    planner = Planner(options)
    try:
        planner.refresh()
    except KafkaUnreachableError as error:
        raise JobError(f"{error} {_TRY}") from error
    except (MissingTopicError, PermissionError, KafkaError) as error:
        raise JobError(f"{error} (asked of Kafka at {options.settings.servers_text})") from error
    except OSError as error:
        raise JobError(f"cannot talk to Kafka at {options.settings.servers_text}: {error}") from error
    finally:
        planner.close()


def reason(error: BaseException) -> str:
    """Return the line of an error with its cause."""
    return str(error).partition("\n")[0].strip() if isinstance(error, JobError) else explain(error)
