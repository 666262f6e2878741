"""A pipeline whose store fails again and again, table and checkpoint both: each record comes once in the end.

A proxy before the store makes requests of Spark (s3a) and delta-rs fail, by a rule that changes all the time. When the
query stops, it is started again, as its supervisor would.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from lab.spark_process import Login, SparkProcess
from lab.store.fault_proxy import FaultProxy
from lab.store.faults import COMMIT, DATA_FILE, LISTING, Rule
from lab.store.s3 import S3Store, open_s3
from lab.verify.cells import Result, Shows
from lab.verify.engine import SESSION
from lab.verify.evidence import broken_chain, gather, verdict
from lab.verify.pipelines import Pipeline
from lab.verify.records import Sending, create_topic, make
from sparkonce.broker_lite.embedded import EmbeddedBroker
from sparkonce.exactly_once.guarantee import Guarantee

RECORDS, RECORDS_PER_BATCH = 240, 8
MOST_RUNS = 60
LEAST_STOPS, LEAST_FAULTS = 5, 20
CHANGE_EVERY_S = 0.7
QUICK = {
    "max_retries": "2",
    "retry_timeout": "10s",
    "timeout": "2s",
    "backoff_config.init_backoff": "20ms",
    "backoff_config.max_backoff": "200ms",
}
FAULTS = (
    Rule("SLOW_DOWN", times=2),
    Rule("UNAVAILABLE", "PUT|POST", r"/table/", times=4),
    Rule("CONFLICT", "PUT", COMMIT, conditional=True),
    Rule("NO_ANSWER", "PUT", COMMIT),
    Rule("LOST_ANSWER", "PUT", COMMIT, times=2),
    Rule("LATE", "PUT", COMMIT),
    Rule("LOST_ANSWER", "PUT|POST", DATA_FILE),
    Rule("CUT", "GET", LISTING, skip=1),
    Rule("CUT", "GET", COMMIT),
    Rule("EXPIRED", path=r"/table/"),
    Rule("DENIED", "PUT", r"/table/"),
)


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_each_record_comes_once(tmp_path: Path) -> None:
    stops: list[str] = []
    chance = random.Random(7)
    with (
        open_s3() as store,
        FaultProxy(store.address, tmp_path) as proxy,
        EmbeddedBroker(process=True) as broker,
    ):
        failing = S3Store(proxy.address)
        create_topic(broker.bootstrap_servers, "records")
        acknowledged = Sending.begin(broker.bootstrap_servers, "records", make(list(range(RECORDS)))).finish()
        pipeline = Pipeline(
            "app", broker.bootstrap_servers, "records", str(tmp_path), Guarantee.EXACTLY_ONCE.value,
            Result.APPEND.value, RECORDS_PER_BATCH, stored_in="s3a://bucket/pipeline",
            storage_options={**failing.storage_options, **QUICK},
        )  # fmt: skip
        settings = {**SESSION, **failing.session, "spark.jars": ",".join(failing.jars)}
        with SparkProcess(settings, tmp_path, Login(tmp_path)) as session:
            fired = 0
            for number in range(MOST_RUNS):
                error, hit = follow(session, f"run {number}", pipeline, proxy, chance)
                fired += hit
                if error is None:
                    break
                stops.append(error)
        proxy.use()
        proxy.deliver_late()
        there = Pipeline(
            "app", broker.bootstrap_servers, "records", str(tmp_path), Guarantee.EXACTLY_ONCE.value,
            Result.APPEND.value, RECORDS_PER_BATCH, stored_in=pipeline.stored_in,
            storage_options=store.storage_options,
        )  # fmt: skip
        found = verdict(there, acknowledged, gather(there))
        assert found.contradicts(Shows.NEITHER, 0) is None, stops
        assert broken_chain(there, Result.APPEND) is None
    assert len(stops) >= LEAST_STOPS
    assert fired >= LEAST_FAULTS


def follow(
    session: SparkProcess, name: str, pipeline: Pipeline, proxy: FaultProxy, chance: random.Random
) -> tuple[str | None, int]:
    """Run the pipeline while faults come; returns its error, if it ended with one, and how many requests were hit."""
    fired = 0
    session.start(name, pipeline)
    pause = threading.Event()
    while True:
        over, error = session.ended(name)
        fired += sum(proxy.fired())
        if over:
            proxy.use()
            return error, fired
        proxy.deliver_late()
        proxy.use(chance.choice(FAULTS))
        pause.wait(CHANGE_EVERY_S)
