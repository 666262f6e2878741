"""Offsets of Spark's own Kafka source, taken from its checkpoint; and ours, as its option `startingOffsets`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from sparkonce import EmbeddedBroker
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.administration import ManualChange, OffsetsTable
from tests.delta_commits import of_delta_rs
from tests.spark.source_support import Topics, values
from tests.unit.recovery.recovery_support import Pipeline

APP, TOPIC, SPARKS_QUERY = "orders", "shop.spark", "0f6a6b0e-51a5-4d86-9a5a-2c8f1d3d7a11"
META = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})


@dataclass
class Checkpoint:
    """A checkpoint as Spark's own Kafka source leaves it behind, and the table of Delta's sink."""

    path: Path
    table: Pipeline
    servers: str

    def batch(self, number: int, *lines: object, finished: bool = True) -> None:
        (self.path / "offsets").mkdir(parents=True, exist_ok=True)
        (self.path / "commits").mkdir(exist_ok=True)
        (self.path / "metadata").write_text(json.dumps({"id": SPARKS_QUERY}))
        texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
        (self.path / "offsets" / str(number)).write_text("\n".join(["v1", META, *texts]))
        if finished:
            (self.path / "commits" / str(number)).write_text("v1\n{}")

    def note(self, batch_id: int) -> None:
        """Commit as Delta's sink does."""
        properties = CommitProperties(app_transactions=[Transaction(SPARKS_QUERY, batch_id)])
        file = self.table.write([batch_id])
        table = DeltaTable(str(self.table.path))
        table.create_write_transaction([of_delta_rs(file)], "append", table.schema(), commit_properties=properties)

    def set(self, *words: object) -> int:
        fixed = ["--app-id", APP, "--from-checkpoint", self.path, "--bootstrap-servers", self.servers]
        return main(["offsets", "set", *map(str, [self.table.path, *fixed, *words])])

    def stored(self) -> dict[int, int]:
        return self.table.offsets()


@pytest.fixture
def checkpoint(tmp_path: Path, kafka_broker: EmbeddedBroker) -> Checkpoint:
    topics = Topics(kafka_broker.bootstrap_servers)
    topics.create(3, TOPIC)
    topics.produce(TOPIC, values("record", 9))
    topics.produce(TOPIC, values("record", 5), partition=1)
    return Checkpoint(tmp_path / "checkpoint", Pipeline.create(tmp_path / "table"), kafka_broker.bootstrap_servers)


def line(*offsets: int) -> dict[str, Any]:
    return {TOPIC: {str(number): offset for number, offset in enumerate(offsets)}}


def test_a_batch_counts_if_the_table_holds_it(checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint.batch(0, line(4, 2))
    checkpoint.note(0)
    assert checkpoint.set() == 0
    assert "was not stored; a query without a checkpoint begins at offset 4" in capsys.readouterr().out
    assert checkpoint.stored() == {}
    assert checkpoint.set("--apply") == 0
    assert checkpoint.stored() == {0: 4, 1: 2}
    checkpoint.batch(1, line(6, 5, 0), finished=False)
    assert checkpoint.set("--apply") == 0
    assert "nothing to change" in capsys.readouterr().out
    checkpoint.note(1)
    assert checkpoint.set("--apply") == 0
    assert f"batch 1 of query {SPARKS_QUERY}" in (said := capsys.readouterr().out)
    assert f"records [4, 6) of {TOPIC}-0 are in the table already" in said
    assert checkpoint.stored() == {0: 6, 1: 5, 2: 0}


def test_a_batch_of_a_query_that_still_runs_is_not_counted_twice(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Delta's sink commits the next batch between the look at the table and the commit of the offsets."""
    checkpoint.batch(0, line(4, 2))
    checkpoint.note(0)
    apply = OffsetsTable.apply

    def overtaken(table: OffsetsTable, change: ManualChange) -> int:
        checkpoint.note(1)
        return apply(table, change)

    monkeypatch.setattr(OffsetsTable, "apply", overtaken)
    assert checkpoint.set("--apply") == 1
    assert checkpoint.stored() == {}
    assert "sparkonce offsets set:" in capsys.readouterr().err


def test_a_batch_whose_rows_a_restore_has_removed_does_not_count(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    """RESTORE leaves the number of the last batch in the table."""
    for number in range(2):
        checkpoint.batch(number, line(4 + number, 2, 0))
        checkpoint.note(number)
    table = DeltaTable(str(checkpoint.table.path))
    table.restore(table.version() - 1)
    assert checkpoint.set("--apply") == 1
    assert f"a version before batch 1 of query {SPARKS_QUERY}" in capsys.readouterr().err
    assert checkpoint.stored() == {}
    checkpoint.batch(2, line(6, 2, 0))
    checkpoint.note(2)
    assert checkpoint.set("--apply") == 0
    assert checkpoint.stored() == {0: 6, 1: 2, 2: 0}


def test_rows_that_foreach_batch_wrote_are_taken_with_a_warning(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint.batch(0, line(4, 2, 0))
    assert checkpoint.set("--apply") == 0
    assert "WARNING the table has no batch of this query, as Delta's sink would note it" in capsys.readouterr().out
    assert checkpoint.stored() == {0: 4, 1: 2, 2: 0}


def no_batch(checkpoint: Checkpoint) -> None:
    pass


def unknown_batch(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, line(4, 2), finished=False)


def older_table(checkpoint: Checkpoint) -> None:
    checkpoint.note(0)
    for number in (0, 1):
        checkpoint.batch(number, line(number + 1, 2))


def older_checkpoint(checkpoint: Checkpoint) -> None:
    checkpoint.note(3)
    checkpoint.batch(0, line(4, 2))


def state(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, line(4, 2))
    (checkpoint.path / "state" / "0").mkdir(parents=True)


def two_sources(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, line(4, 2), line(1))


def a_source_without_an_offset_yet(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, line(4, 2), "-")


def file_source(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, {"logOffset": 3})


def rate_source(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, 17)


def past_the_end(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, line(10, 2))


def other_topic(checkpoint: Checkpoint) -> None:
    checkpoint.batch(0, {"shop.other": {"0": 1}})


def recreated_topic(checkpoint: Checkpoint) -> None:
    old = {"shop.spark": {"id": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": {"0": {"origin": 0, "next": 1}}}}
    checkpoint.batch(0, {"source": "kafka", "sparkonce": 1, "topics": old})


@pytest.mark.parametrize(
    ("arrange", "said"),
    [
        (no_batch, "metadata does not exist"),
        (unknown_batch, "whether its rows are there is unknown"),
        (older_table, "the table was set back, or it is not this query's"),
        (older_checkpoint, "the checkpoint is an old copy"),
        (state, "keeps state, which offsets do not carry over"),
        (two_sources, "reads 2 sources"),
        (a_source_without_an_offset_yet, "reads 2 sources"),
        (file_source, "were written neither by kafka_once nor by Spark's Kafka connector"),
        (rate_source, "is of another kind of source"),
        (past_the_end, "ends at offset 9 at"),
        (other_topic, "does not exist at"),
        (recreated_topic, "or was created again"),
    ],
)
def test_refusals(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str], arrange: Callable[[Checkpoint], None], said: str
) -> None:
    arrange(checkpoint)
    assert checkpoint.set("--apply") == 1
    assert said in (error := capsys.readouterr().err)
    assert error.count("\n") == 1
    assert checkpoint.stored() == {}


def starting_offsets(checkpoint: Checkpoint, *words: str) -> int:
    return main(["offsets", "show", str(checkpoint.table.path), "--starting-offsets", *words])


def test_starting_offsets_name_every_partition(checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint.batch(0, line(4, 2))
    checkpoint.note(0)
    assert checkpoint.set("--apply") == 0
    capsys.readouterr()
    assert starting_offsets(checkpoint, "--app-id", APP, "--bootstrap-servers", checkpoint.servers) == 0
    assert json.loads(capsys.readouterr().out) == line(4, 2, -2)


def test_starting_offsets_are_refused_where_they_mean_nothing(
    checkpoint: Checkpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    assert starting_offsets(checkpoint, "--app-id", APP) == 2
    assert "--starting-offsets needs --app-id and --bootstrap-servers" in capsys.readouterr().err
    assert starting_offsets(checkpoint, "--app-id", APP, "--bootstrap-servers", checkpoint.servers) == 1
    assert "no offsets are stored for that appId and source: without --app-id" in capsys.readouterr().err
    checkpoint.table.commit(0, {0: (0, 4)})  # of a topic that these brokers do not have
    assert starting_offsets(checkpoint, "--app-id", APP, "--bootstrap-servers", checkpoint.servers) == 1
    assert "was deleted or created again" in capsys.readouterr().err
