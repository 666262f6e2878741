"""A table that an earlier version of sparkonce, which knew no leader epochs, wrote to for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.exactly_once.audit_report import Verdict
from sparkonce.offset_store import delta
from sparkonce.offset_store.txn_ids import LookUp, transactions_of
from tests.parity.support import Cluster
from tests.unit.replaced.brokers import Restorable, restorable
from tests.unit.replaced.pipeline import Pipeline


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Restorable]:
    with restorable("ours", tmp_path / "broker") as found:
        yield found


def test_an_epoch_that_an_earlier_version_left_behind_is_not_that_of_its_offset(
    broker: Restorable, tmp_path: Path
) -> None:
    """Thirty are written; the broker starts again, in another epoch; the earlier version writes ten, this one more."""
    cluster = Cluster(broker.bootstrap_servers)
    topic = cluster.create()
    options = cluster.source_options(
        subscribe=topic,
        startingOffsets="earliest",
        failOnDataLoss="false",
        appId="app",
        offsetStore=f"delta:{tmp_path / 'table'}",
    )
    cluster.send(topic, range(30), 0)
    with closing(Pipeline(tmp_path, options)) as pipeline:
        assert pipeline.run() == list(range(30))
    broker.restart()
    cluster.send(topic, range(30, 40), 0)
    with pytest.MonkeyPatch.context() as patch, closing(Pipeline(tmp_path, options, "earlier")) as pipeline:
        patch.setattr(Planner, "with_epochs", lambda _self, _start, end: end)
        patch.setattr(delta, "transactions_onto", _of_an_earlier_version)
        assert pipeline.run() == list(range(30, 40))
    cluster.send(topic, range(40, 45), 0)
    with closing(Pipeline(tmp_path, options, "new")) as pipeline:
        assert pipeline.run() == list(range(40, 45))
        assert pipeline.audit(broker.bootstrap_servers, "partition,offset,topic").verdict is Verdict.PROVEN


def _of_an_earlier_version(look_up: LookUp, commit: object) -> dict[str, int]:
    return {name: at for name, at in transactions_of(commit).items() if "/batch/" not in name}  # type: ignore[arg-type]
