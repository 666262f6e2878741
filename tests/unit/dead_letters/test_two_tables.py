"""The sink with two tables, without Spark: the order of its steps, and what a failure leaves in either."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import types as t

from lab.crash_plans import arm
from sparkonce import crash_points
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.parquet import TableWriter
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.sinks.stream_sink import StreamSink, TaskMessage
from sparkonce.connectors.sinks.target import Task
from sparkonce.connectors.values.letters import COLUMN, LETTER
from sparkonce.crash_points import CrashPlans, InjectedCrashError
from sparkonce.exactly_once.errors import DeliveryError, OffsetMismatchError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store.delta import DeltaSnapshot
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.offset_store.record import Commit

SCHEMA = t.StructType([t.StructField("n", t.LongType()), t.StructField(COLUMN, LETTER)])
LETTERS = pa.struct(
    [
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
TP = TopicPartition("topic", "AAAAAAAAAAAAAAAAAAAAAQ", 0)


class Pipeline:
    """A query made by hand over the records 0, 1, 2, …, of which the odd ones are dead letters."""

    def __init__(self, root: Path, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> None:
        self.table, self.letters, self.checkpoint = root / "table", root / "letters", root / "checkpoint"
        self.options = {
            "path": str(self.table),
            "appId": "app",
            "checkpointLocation": str(self.checkpoint),
            "deadLetters": f"table:{self.letters}",
            "deliveryGuarantee": guarantee.value,
        }
        self.begin_query("q", 0)

    def begin_query(self, query_id: str, origin: int) -> None:
        """Begin with a new checkpoint, which reads from ``origin`` on."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        (self.checkpoint / "offsets").mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(f'{{"id":"{query_id}"}}')
        self.origin, self.reached = origin, origin

    def log(self, batch_id: int, end: int) -> None:
        line = SourceOffset("kafka", {TP: Position(self.origin, end)}).to_json()
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")

    def sink(self) -> StreamSink:
        return stream_sink(SinkOptions.read(self.options), SCHEMA)

    def tasks(self, start: int, end: int) -> list[TaskMessage]:
        """Begin the newest batch, and run its two tasks."""
        writer = self.sink()
        writer.begin()
        middle = (start + end) // 2
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamSink, "_task", lambda self, number: Task(number, 0, 0, 0))
            sent: StreamSink = cloudpickle.loads(cloudpickle.dumps(writer))
            messages = [sent.write(iter([rows(*each)])) for each in ((start, middle), (middle, end))]
        return cloudpickle.loads(cloudpickle.dumps(messages))  # type: ignore[no-any-return]

    def run(self, batch_id: int, start: int, end: int) -> None:
        """Log, begin, write and commit; abort if the commit fails, as Spark does."""
        self.log(batch_id, end)
        messages: list[Any] = list(self.tasks(start, end))
        try:
            self.sink().commit(messages, batch_id)
        except Exception:
            self.sink().abort(messages, batch_id)
            raise

    def found(self) -> tuple[list[int], list[int]]:
        """Return the numbers in the table, and those of the dead letters."""
        numbers = DeltaTable(self.table).to_pyarrow_table()["n"].to_pylist()
        return sorted(numbers), sorted(DeltaTable(self.letters).to_pyarrow_table()["offset"].to_pylist())

    def files(self) -> tuple[int, int]:
        return len(list(self.table.glob("*.parquet"))), len(list(self.letters.glob("*.parquet")))


def rows(start: int, end: int) -> pa.RecordBatch:
    letters = [
        {"reason": "odd", "value": str(n).encode(), "topic": "topic", "partition": 0, "offset": n} if n % 2 else None
        for n in range(start, end)
    ]
    return pa.RecordBatch.from_pydict(
        {"n": pa.array(range(start, end), pa.int64()), COLUMN: pa.array(letters, LETTERS)}
    )


def numbers(end: int) -> tuple[list[int], list[int]]:
    return list(range(0, end, 2)), list(range(1, end, 2))


@pytest.mark.parametrize("guarantee", Guarantee)
def test_batches_follow_each_other(tmp_path: Path, guarantee: Guarantee, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline(tmp_path, guarantee)
    for number in range(3):
        pipeline.run(number, number * 8, number * 8 + 8)
        pipeline.run(number, number * 8, number * 8 + 8)
    assert pipeline.found() == numbers(24)
    assert DeltaTable(pipeline.table).to_pyarrow_table().column_names == ["n"]
    assert DeltaTable(pipeline.letters).to_pyarrow_table().column_names == LETTER.names
    for path in (pipeline.table, pipeline.letters):
        assert main(["audit", str(path)]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("end", [4, 12], ids=["a shorter batch", "a longer batch"])
@pytest.mark.parametrize("deleted", [False, True], ids=["the checkpoint kept", "and deleted"])
def test_a_crash_between_the_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: int, deleted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    arm(tmp_path, "between", "app:sink.between_targets@0=raise")
    pipeline = Pipeline(tmp_path)
    with pytest.raises(InjectedCrashError):
        pipeline.run(0, 0, 8)
    assert pipeline.found() == ([], [1, 3, 5, 7])
    assert pipeline.files() == (0, 2)
    if deleted:
        pipeline.begin_query("r", 0)
        pipeline.run(0, 0, end)
        pipeline.run(1, end, 20)
    else:
        pipeline.run(0, 0, 8)
        pipeline.run(1, 8, 20)
    assert pipeline.found() == numbers(20)
    for path in (pipeline.table, pipeline.letters):
        assert main(["audit", str(path)]) == 0, capsys.readouterr().out


def test_a_batch_whose_dead_letters_fail_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)

    def failing(self: DeltaSnapshot, commit: Commit[Any]) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaSnapshot, "commit", failing)
        with pytest.raises(OSError, match="No space left"):
            pipeline.run(0, 0, 8)
    assert (pipeline.found(), pipeline.files()) == (([], []), (0, 0))


def test_a_task_that_fails_discards_the_files_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.log(0, 8)
    close, closed = TableWriter.close, []

    def failing(self: TableWriter) -> Any:
        closed.append(self)
        if len(closed) == 2:
            raise OSError("No space left on device")
        return close(self)

    monkeypatch.setattr(TableWriter, "close", failing)
    with pytest.raises(OSError, match="No space left"):
        pipeline.tasks(0, 8)
    assert len(closed) == 2
    assert pipeline.files() == (0, 0)


def test_a_letter_of_another_batch_stops_the_task(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.log(0, 8)
    with pytest.raises(DeliveryError, match="offset 9 of topic-0, which is no record that kafka_once read"):
        pipeline.tasks(9, 11)
    assert pipeline.files() == (0, 0)


def test_dead_letters_begin_where_the_option_was_added(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, 0, 8)
    pipeline.options["deadLetters"] = f"table:{tmp_path / 'others'}"
    pipeline.letters = tmp_path / "others"
    pipeline.run(1, 8, 12)
    assert pipeline.found() == ([0, 2, 4, 6, 8, 10], [9, 11])


def test_at_most_once_a_task_that_is_tried_again_writes_nothing(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, Guarantee.AT_MOST_ONCE)
    pipeline.log(0, 8)
    writer = pipeline.sink()
    writer.begin()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_task", lambda number: Task(number, 0, 1, 0))
        message = writer.write(iter([rows(0, 8)]))
    assert message.parts == (None, None)


def test_the_command_that_the_message_gives_sets_the_offsets_forward(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, 0, 8)
    pipeline.begin_query("r", 12)
    for missing in (r"table:\S+ has the dead letters of records below 8 only", "a gap with the table's offsets"):
        pipeline.log(0, 16)
        with pytest.raises(OffsetMismatchError, match=missing) as error:
            pipeline.sink().begin()
        words = f"--app-id app --source kafka --topic topic --topic-id {TP.topic_id} --partition 0 --offset 12 --apply"
        path = pipeline.letters if "dead letters" in str(error.value) else pipeline.table
        if path == pipeline.letters:
            assert str(error.value).endswith(f"sparkonce offsets set {path} {words}")
        assert main(["offsets", "set", str(path), *words.split()]) == 0
    pipeline.run(0, 12, 16)
    assert pipeline.found() == ([0, 2, 4, 6, 12, 14], [1, 3, 5, 7, 13, 15])
