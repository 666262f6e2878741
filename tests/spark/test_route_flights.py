"""The job from topic to topics: what comes out is what plain Python says, through a crash and a lost checkpoint."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lab.crash_plans import arm, disarm, fired
from lab.verify.records import TopicRecord, read_topic
from sparkonce import EmbeddedBroker
from sparkonce.jobs.etl import dataset, route_flights
from sparkonce.jobs.etl.job_settings import BOOTSTRAP_SERVERS, JobSettings
from sparkonce.jobs.etl.publish import create_topic, publish
from sparkonce.jobs.shared.arguments import CONF

pytestmark = pytest.mark.spark

FLIGHTS = 1_000
PARTITIONS = 2
NOW = {"availableNow": True}
UNUSABLE = [
    (b"XX", b"not JSON"),
    (b"XX", b'{"flight_id": "one", "origin": "JFK", "dest": "LAX", "dep_time": 1}'),
    (b"XX", b'{"flight_id": 1}'),
    (b"XX", b'{"flight_id": 2, "origin": "JFK", "dest": "LAX", "dep_time": 1, "dep_delay": -31}'),
]
"""No flights: no JSON, a field of another type, no airports, and a departure that cannot be."""


@pytest.fixture(scope="module")
def messages() -> list[tuple[bytes, bytes]]:
    flights = list(dataset.messages(dataset.flights().slice(0, FLIGHTS)))
    return [*flights[:250], *UNUSABLE, *flights[250:]]


@pytest.fixture
def broker(messages: list[tuple[bytes, bytes]]) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        create_topic(made.bootstrap_servers, "flights", PARTITIONS)
        assert publish(made.bootstrap_servers, "flights", messages, lambda _: None) == len(messages)
        for topic in ("flights-from-EWR", "flights-from-JFK", "flights-from-LGA", "flights-rejected"):
            create_topic(made.bootstrap_servers, topic, PARTITIONS)
        yield made


def expected(messages: list[tuple[bytes, bytes]]) -> tuple[Counter[tuple[str, str]], Counter[bytes]]:
    """Return route and JSON of the flights that left, and the values of the records that cannot be used."""
    names = dict(zip(*(dataset.airlines()[name].to_pylist() for name in ("carrier", "airline")), strict=True))
    good: Counter[tuple[str, str]] = Counter()
    bad = Counter(value for _, value in UNUSABLE)
    for message in messages:
        if message in UNUSABLE:
            continue
        row = json.loads(message[1])
        if row["dep_time"] is None or row["dep_delay"] < -30:
            bad[message[1]] += 1
            continue
        route = f"{row['origin']}-{row['dest']}"
        hour, minute = divmod(row["sched_dep_time"], 100)
        flight = {
            **{name: row[name] for name in ("flight_id", "carrier", "flight", "tailnum", "distance")},
            **{name: row[name] for name in ("dep_delay", "arr_delay")},
            "airline": names[row["carrier"]],
            "route": route,
            "scheduled": f"{row['year']}-{row['month']:02}-{row['day']:02}T{hour:02}:{minute:02}:00.000",
        }
        good[route, canonical(flight)] += 1
    return good, bad


def canonical(flight: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in flight.items() if value is not None}, sort_keys=True)


def read(broker: EmbeddedBroker, topic: str) -> list[TopicRecord]:
    return read_topic(broker.bootstrap_servers, topic, PARTITIONS, "read_committed")


def test_each_flight_comes_out_once(
    spark: SparkSession,
    broker: EmbeddedBroker,
    messages: list[tuple[bytes, bytes]],
    tmp_path: Path,
    crash_folder: Path,
) -> None:
    job = JobSettings.read(CONF / "route_flights.toml", route_flights.OWN, route_flights.RESULT)
    kafka = {**job.kafka, BOOTSTRAP_SERVERS: broker.bootstrap_servers, "maxOffsetsPerTrigger": "700"}
    job = replace(job, checkpoint=str(tmp_path / "checkpoint"), kafka=kafka)
    plan = arm(crash_folder, "route-flights", "route-flights:transaction.decided@1=raise")
    with pytest.raises(StreamingQueryException, match="injected failure"):
        route_flights.start(spark, job, NOW).awaitTermination()
    assert fired(plan)
    disarm(crash_folder, "route-flights")
    shutil.rmtree(job.checkpoint)
    route_flights.start(spark, job, NOW).awaitTermination()
    good, bad = expected(messages)
    found: Counter[tuple[str, str]] = Counter()
    for airport in ("EWR", "JFK", "LGA"):
        records = read(broker, f"flights-from-{airport}")
        assert all(record.key.startswith(airport.encode()) for record in records)
        found.update((record.key.decode(), canonical(json.loads(record.value))) for record in records)
    assert found == good
    rejected = read(broker, "flights-rejected")
    assert Counter(record.value for record in rejected) == bad
    assert sum(record.key == b"XX" for record in rejected) == len(UNUSABLE)


def test_only_what_says_where_kafka_is_goes_to_the_sink() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "kafka.sasl.username": "me", "kafka.isolation.level": "read_committed"}
    kept = route_flights.connection({**given, "subscribe": "flights"})
    assert kept == {"kafka.bootstrap.servers": "a:1", "kafka.sasl.username": "me"}
