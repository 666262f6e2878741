"""A log that is cut and written anew while a batch of it is read: its new records belong to the next batch.

The offsets of the batch were planned from the log that was. Records that took their place since are read by the next
batch, which begins where the log parts, so this one may not read them too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.exactly_once.audit_report import Verdict
from tests.parity.support import Cluster
from tests.unit.replaced.brokers import Restorable, restorable
from tests.unit.replaced.pipeline import Pipeline

KEPT, LOST, NEW = list(range(20)), list(range(20, 30)), list(range(100, 115))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restorable]:
    with restorable("ours", tmp_path / "broker") as found:
        yield found


@pytest.fixture
def topic(broker: Restorable) -> str:
    """Return a topic with thirty records in batches of five, of which the copy of the broker's data has twenty."""
    cluster = Cluster(broker.bootstrap_servers)
    topic = cluster.create()
    for first in range(0, 30, 5):
        if first == len(KEPT):
            broker.copy()
        cluster.send(topic, range(first, first + 5), 0)
    return topic


def options(broker: Restorable, topic: str, **more: object) -> dict[str, str]:
    return Cluster(broker.bootstrap_servers).source_options(
        subscribe=topic,
        startingOffsets="earliest",
        appId="app",
        **{"kafka.max.partition.fetch.bytes": 1, "fetchOffset.retryIntervalMs": 1, **more},
    )


def replacing(broker: Restorable, topic: str, at: int, new: list[int]) -> Callable[[], None]:
    """Have the log cut and written anew when the result is called for the ``at``-th time."""
    calls = count()

    def called() -> None:
        if next(calls) == at:
            broker.put_back()
            Cluster(broker.bootstrap_servers).send(topic, new, 0)

    return called


@pytest.mark.parametrize(
    ("at", "new"),
    [(0, NEW), (0, NEW[:3]), (1, NEW), (4, NEW), (4, NEW[:3]), (6, NEW)],
    ids=["before it is read", "before, and shorter", "in what is kept", "behind it", "behind it, and shorter", "read"],
)
def test_what_replaced_the_records_of_a_batch_is_read_once(
    broker: Restorable, topic: str, tmp_path: Path, at: int, new: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(Pipeline(tmp_path, options(broker, topic, failOnDataLoss="false"))) as pipeline:
        assert pipeline.plan()
        with caplog.at_level(logging.WARNING):
            pipeline.finish(replacing(broker, topic, at, new))
        pipeline.run()
        rows = pipeline.values()
        assert [each for each in rows if each not in LOST] == KEPT + new
        assert len(set(rows)) == len(rows)
        assert f"records [20, 30) of {topic}-0 that this query " in caplog.text
        assert pipeline.audit(broker.bootstrap_servers, "partition,offset,topic").verdict is Verdict.PROVEN


@pytest.mark.parametrize("pieces", [1, 3])
def test_it_stops_and_a_new_start_says_the_same(broker: Restorable, topic: str, tmp_path: Path, pieces: int) -> None:
    given = options(broker, topic, failOnDataLoss="true", minPartitions=pieces)
    with closing(Pipeline(tmp_path, given)) as pipeline:
        assert pipeline.plan()
        with pytest.raises(DataLossError, match=rf"records \[20, 30\) of {topic}-0 that this query was reading"):
            pipeline.finish(replacing(broker, topic, 1, NEW))
        assert pipeline.values() == []
        pipeline.restart()
        with pytest.raises(DataLossError, match=rf"records \[20, 30\) of {topic}-0 .* have been replaced"):
            pipeline.run()


def test_a_leader_that_has_all_records_is_read_on(broker: Restorable, topic: str, tmp_path: Path) -> None:
    calls = count()
    with closing(Pipeline(tmp_path, options(broker, topic, failOnDataLoss="true"))) as pipeline:
        assert pipeline.plan()
        pipeline.finish(lambda: broker.restart() if next(calls) in (0, 2) else None)
        assert pipeline.values() == KEPT + LOST
