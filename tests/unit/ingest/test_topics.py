"""What the ingestion asks the brokers while topics come and go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.ingest.routing import routes
from sparkonce.connectors.ingest.settings import IngestSettings, IngestTable
from sparkonce.connectors.ingest.topics import unread
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.resolving import Offsets
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from tests.parity.support import Cluster


def test_a_topic_deleted_between_two_questions_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker() as broker:
        cluster = Cluster(broker.bootstrap_servers, "rows")
        goes, waits = cluster.create(), cluster.create()
        cluster.send(goes, [1])
        cluster.send(waits, [1, 2])
        table = IngestTable(topics=f"{goes},{waits}", path=f"{tmp_path}/{{topic}}")
        kafka = {"bootstrap.servers": broker.bootstrap_servers}
        settings = IngestSettings.of(table, (), app_id="app", checkpoint=str(tmp_path / "checkpoints"), kafka=kafka)
        (shared,) = routes(settings)[0].queries([])
        planner = Planner(SourceOptions.read(shared.source))
        end = SourceOffset("app", {tp: Position(0, 1) for tp in planner.refresh()})
        planner.close()
        honest, there = Planner.ask, [goes]

        def late(planner: Planner, wanted: Mapping[TopicPartition, int], **more: bool) -> Offsets:
            while there:
                cluster.delete(there.pop())
            return honest(planner, wanted, **more)

        monkeypatch.setattr(Planner, "ask", late)
        assert unread(shared, end) == ({waits}, set())
        assert not there
