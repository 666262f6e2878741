"""One batch into several tables, without Spark: whichever commits have landed, each table has its part once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark import cloudpickle
from pyspark.sql import types as t
from pyspark.sql.datasource import WriterCommitMessage

from lab.crash_plans import arm
from sparkonce import crash_points
from sparkonce.connectors.delta_sink.options import SinkOptions
from sparkonce.connectors.delta_sink.table import TableError
from sparkonce.connectors.formats.table_query import stream_sink
from sparkonce.connectors.formats.topic_tables import is_of_one_table
from sparkonce.connectors.sinks.shared_batch import LeftOut, SharedBatchSink, SharedMessage
from sparkonce.connectors.sinks.stream_sink import StreamSink
from sparkonce.connectors.sinks.target import Task
from sparkonce.crash_points import CrashPlans, InjectedCrashError
from sparkonce.exactly_once.batch import BatchEntry
from sparkonce.exactly_once.crash_points import SinkPoint
from sparkonce.exactly_once.errors import DeliveryError, OffsetMismatchError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.jobs.cli.main import main
from sparkonce.offset_store import DeltaOffsetStore, delta
from sparkonce.offset_store.errors import StoreOutageError
from sparkonce.offset_store.locations import Location
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition

SCHEMA = t.StructType([t.StructField("topic", t.StringType()), t.StructField("n", t.LongType())])
TOPICS = ("a", "b", "c")
PARTITIONS = ("a", "a/1", "b", "c")
A_LIFE, A_PARTITION = 10_000, 5_000
"""Between the records of a topic and of one that takes its place, and between those of its partitions."""
Ends = Mapping[str, int]
"""By the names of partitions: that of the topic, and for others than 0 their number."""


lives: Counter[str] = Counter()
"""How often each topic was deleted and created again."""


def partition(name: str) -> TopicPartition:
    topic, _, number = name.partition("/")
    return TopicPartition(topic, f"{topic}AAAAAAAAAAAAAAAAAAAA{chr(ord('A') + lives[topic])}", int(number or 0))


def name_of(tp: TopicPartition) -> str:
    return f"{tp.topic}/{tp.partition}" if tp.partition else tp.topic


class ByHand:
    """The tables of a query without a broker, and its ranges: rows themselves, with the topic as a column."""

    def __init__(self, root: Path, guarantee: Guarantee) -> None:
        self.root, self.guarantee, self.app = root, guarantee, "app"
        self.refusing: dict[str, str] = {}
        """The topics whose tables refuse their rows, and when: begin, write or finish."""
        self.refusal: type[Exception] = TableError
        self.why = ""
        """What else the refusal says."""
        self.unreachable = ""
        """The topic whose table cannot be reached when it is to be finished."""
        self.isolates = False
        self.at_once = 1

    def by_topic(self, handed_over: Iterable[pa.RecordBatch]) -> dict[str, Iterable[pa.RecordBatch]]:
        return {(topic := topic_of(batch)): self._read(topic, batch) for batch in handed_over}

    def _read(self, topic: str, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield batch
        self._refuse(topic, "write")

    def _refuse(self, topic: str, when: str) -> None:
        if (topic, when) == (self.unreachable, "finish"):
            raise ConnectionError(topic)
        if self.refusing.get(topic) == when:
            raise self.refusal(f"{topic} refuses its rows{self.why and ': '}{self.why}")

    def is_isolated(self, error: Exception) -> bool:
        return self.isolates and is_of_one_table(error)

    def of(self, topics: Iterable[str]) -> dict[str, Set[str]]:
        return {f"table of {topic}": {topic} for topic in topics}

    def begun(self, name: str, entry: BatchEntry, attempt_id: str, topics: Set[str]) -> StreamSink:
        self._refuse(name.removeprefix("table of "), "begin")
        sink = self.sink(name)
        sink.begin_batch(sink.batch_of(entry, attempt_id, None, topics))
        return sink

    def sink(self, name: str) -> StreamSink:
        topic = name.removeprefix("table of ")
        given = {"path": str(self.root / topic), "appId": f"{self.app}.{topic}", "checkpointLocation": "elsewhere"}
        sink = stream_sink(SinkOptions.read({**given, "deliveryGuarantee": self.guarantee.value}), SCHEMA)
        if self.refusing.get(topic) == "finish" or topic == self.unreachable:
            sink.finish_batch = lambda *_: self._refuse(topic, "finish")  # type: ignore[method-assign,assignment,return-value]
        return sink


class Pipeline:
    """A query made by hand over the records 0, 1, 2, … of each partition."""

    def __init__(self, root: Path, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> None:
        self.root, self.checkpoint, self.tables = root, root / "checkpoint", ByHand(root, guarantee)
        self.gone: Ends = {}
        """Where logs begin: the records before have expired."""
        self.messages: list[WriterCommitMessage | None] = []
        """Of the tasks of the last batch."""
        self.begin_query("q", {})

    def begin_query(self, query_id: str, origins: Ends) -> None:
        """Begin with a new checkpoint, which reads each partition from its origin on."""
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        for folder in ("offsets", "commits"):
            (self.checkpoint / folder).mkdir(parents=True)
        (self.checkpoint / "metadata").write_text(f'{{"id":"{query_id}"}}')
        self.origins, self.reached = origins, dict(origins)

    def sink(self) -> SharedBatchSink:
        return SharedBatchSink("by hand", str(self.checkpoint), {}, self.tables, self.tables)

    def run(self, batch_id: int, ends: Ends) -> None:
        """Log a batch, begin it, write and commit; abort if the commit fails, as Spark does."""
        positions = {partition(name): Position(self.origins.get(name, 0), end) for name, end in ends.items()}
        line = SourceOffset("kafka", positions).to_json()
        (self.checkpoint / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{line}")
        sink = self.sink()
        sink.begin()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StreamSink, "_task", lambda self, number: Task(number, 0, 0, 0))
            sent: SharedBatchSink = cloudpickle.loads(cloudpickle.dumps(sink))
            moved = [(name, end) for name, end in sorted(ends.items()) if end > self.reached.get(name, 0)]
            parts = [rows(name, max(self.reached.get(name, 0), self.gone.get(name, 0)), end) for name, end in moved]
            written = [sent.write(iter([part])) for part in parts]
        self.messages = cloudpickle.loads(cloudpickle.dumps(written))
        try:
            self.sink().commit(self.messages, batch_id)
        except Exception:
            self.sink().abort(self.messages, batch_id)
            raise
        (self.checkpoint / "commits" / str(batch_id)).write_text("v1\n{}")
        self.reached = dict(ends)

    def found(self) -> dict[str, list[int]]:
        return {
            topic: sorted(DeltaTable(self.root / topic).to_pyarrow_table()["n"].to_pylist())
            for topic in TOPICS
            if DeltaTable.is_deltatable(str(self.root / topic))
        }

    def stored(self) -> dict[str, int]:
        """Return where each table ends by its own offsets; 0 for partitions of which it has none."""
        return dict.fromkeys(PARTITIONS, 0) | self.known()

    def known(self) -> dict[str, int]:
        """Return where each table ends by its own offsets, without partitions of which it has none."""
        ends: dict[str, int] = {}
        for topic in TOPICS:
            own = [partition(name) for name in PARTITIONS if partition(name).topic == topic]
            store = DeltaOffsetStore(Location.parse(str(self.root / topic)), f"app.{topic}", {})
            ends |= {name_of(tp): at for tp, at in store.read("kafka", own).items()}
        return ends


def rows(name: str, start: int, end: int) -> pa.RecordBatch:
    topic, first = partition(name).topic, first_of(name)
    numbers = range(first + start, first + end)
    columns = {"topic": pa.array([topic] * len(numbers), pa.string()), "n": pa.array(numbers, pa.int64())}
    return pa.RecordBatch.from_pydict(columns).replace_schema_metadata({"topic": topic})


def topic_of(batch: pa.RecordBatch) -> str:
    return str(batch.schema.metadata[b"topic"].decode())


def first_of(name: str) -> int:
    """Return what the record at offset 0 holds."""
    tp = partition(name)
    return A_LIFE * lives[tp.topic] + A_PARTITION * tp.partition


FIRST, SECOND = {"a": 4, "b": 2}, {"a": 7, "b": 2, "c": 3}


@pytest.mark.parametrize("at_once", [1, 2])
def test_each_table_has_what_moved_and_others_are_not_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at_once: int
) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.tables.at_once = at_once
    for batch_id, ends in enumerate((FIRST, SECOND)):
        pipeline.run(batch_id, ends)
    assert pipeline.found() == {"a": [*range(7)], "b": [0, 1], "c": [0, 1, 2]}
    assert [DeltaTable(tmp_path / topic).version() for topic in TOPICS] == [2, 1, 1]
    for topic in TOPICS:
        assert main(["audit", str(tmp_path / topic)]) == 0, capsys.readouterr().out
    attempts = [
        each["sparkonce"]["attemptId"] for topic in TOPICS for each in DeltaTable(tmp_path / topic).history()[:-1]
    ]
    assert len({*attempts}) == len(attempts), "tables may share a table of dead letters"


POINTS = [each for each in SinkPoint if each not in (SinkPoint.BETWEEN_TARGETS, SinkPoint.WRITING)]


@pytest.mark.parametrize("guarantee", Guarantee)
@pytest.mark.parametrize("point", POINTS, ids=[each.name for each in POINTS])
@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("deleted", [False, True], ids=["the checkpoint kept", "and deleted"])
def test_a_crash_anywhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    guarantee: Guarantee,
    point: SinkPoint,
    topic: str,
    deleted: bool,
) -> None:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    arm(tmp_path, "crash", f"app.{topic}:{point.value}=raise")
    pipeline = Pipeline(tmp_path, guarantee)
    crashed = False
    for batch_id, ends in enumerate((FIRST, SECOND)):
        try:
            pipeline.run(batch_id, ends)
        except InjectedCrashError:
            crashed = True
            monkeypatch.setattr(delta, "_accounted", set())  # a new process
            if not deleted:
                pipeline.run(batch_id, ends)
            else:
                pipeline.begin_query("another", pipeline.stored())
                ends = {name: max(end, pipeline.stored()[name]) for name, end in ends.items()}
                pipeline.run(0, ends)
                pipeline.run(1, SECOND)
                break
    of_two_commits = point in (SinkPoint.BETWEEN_WRITES, SinkPoint.OFFSETS_LANDED)
    fired = (tmp_path / "crash.fired").exists()
    assert fired == (guarantee is not Guarantee.EXACTLY_ONCE or not of_two_commits)
    assert crashed == (fired and not point.name.endswith("_LANDED")), "after a commit, only its answer is lost"
    found = pipeline.found()
    for name, end in SECOND.items():
        numbers = found.get(name, [])
        if guarantee is not Guarantee.AT_LEAST_ONCE:
            assert len(numbers) == len(set(numbers))
        if guarantee is not Guarantee.AT_MOST_ONCE:
            assert set(numbers) == set(range(end))


@pytest.mark.parametrize("before", [Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE])
def test_the_audit_finds_what_at_most_once_has_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], before: Guarantee
) -> None:
    monkeypatch.setattr(crash_points, "_plans", CrashPlans(None, tmp_path))
    pipeline = Pipeline(tmp_path, before)
    pipeline.run(0, {"a": 4})
    pipeline.tables.guarantee = Guarantee.AT_MOST_ONCE
    arm(tmp_path, "crash", f"app.a:{SinkPoint.BETWEEN_WRITES.value}=raise")
    with pytest.raises(InjectedCrashError):
        pipeline.run(1, {"a": 7})
    pipeline.run(1, {"a": 7})
    assert main(["audit", str(tmp_path / "a"), "--strict"]) == 1
    assert "offsets-without-rows" in capsys.readouterr().out


def test_the_audit_expects_no_rows_where_at_most_once_has_never_had_any(tmp_path: Path) -> None:
    """As in a table of dead letters without any."""
    pipeline = Pipeline(tmp_path, Guarantee.AT_MOST_ONCE)
    pipeline.gone = {"a": 4}
    pipeline.run(0, {"a": 4})
    assert main(["audit", str(tmp_path / "a"), "--strict"]) == 0


def test_a_table_whose_ranges_no_task_was_told_to_read_stops_the_batch(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.tables.by_topic = lambda handed_over: {  # type: ignore[method-assign]
        topic_of(batch): [batch] for batch in handed_over if topic_of(batch) != "b"
    }
    with pytest.raises(DeliveryError, match="reads b, and no task was told to"):
        pipeline.run(0, FIRST)


@pytest.mark.parametrize("when", ["begin", "write", "finish"])
@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_table_that_refuses_is_left_out_and_refused_until_it_has_caught_up(
    tmp_path: Path, guarantee: Guarantee, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(tmp_path, guarantee)
    pipeline.run(0, FIRST)
    pipeline.tables.isolates, pipeline.tables.refusing = True, {"a": when}
    pipeline.run(1, {"a": 6, "b": 3, "c": 1})
    assert "table of a is left out: TableError: a refuses its rows" in caplog.text
    pipeline.tables.refusing = {}
    lost = guarantee is Guarantee.AT_MOST_ONCE and when != "begin"  # its offsets are stored before the rows
    assert pipeline.found() == {"a": [0, 1, 2, 3], "b": [0, 1, 2], "c": [0]}
    files = {*(tmp_path / "a").glob("*.parquet")}
    named = {tmp_path / "a" / each for each in DeltaTable(tmp_path / "a").file_uris()}
    assert files == named, "what was written for it is removed"
    pipeline.run(2, {"a": 9, "b": 3, "c": 1})
    assert pipeline.found()["a"] == ([0, 1, 2, 3, 6, 7, 8] if lost else [0, 1, 2, 3]), "a gap is refused"


@pytest.mark.parametrize("when", ["begin", "write", "finish"])
def test_a_store_that_does_not_answer_is_no_tables_own_trouble(tmp_path: Path, when: str) -> None:
    """Unless another table can be written, or refuses for a reason of its own."""
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates, pipeline.tables.refusing = True, dict.fromkeys(TOPICS, when)
    pipeline.tables.why, pipeline.tables.refusal = "tcp connect error", OSError
    with pytest.raises(StoreOutageError, match="none of 3 tables can be reached: OSError: a refuses its rows: tcp"):
        pipeline.run(0, SECOND)
    assert not any(pipeline.found().values())
    del pipeline.tables.refusing["c"]
    pipeline.run(0, SECOND)
    assert {topic for topic, rows in pipeline.found().items() if rows} == {"c"}
    other = Pipeline(tmp_path / "other")
    other.tables.isolates, other.tables.refusing = True, dict.fromkeys(TOPICS, when)
    other.tables.why = "STRING 'tcp connect error' cannot be cast to INT"
    other.run(0, SECOND)
    assert not any(other.found().values())


def test_why_a_table_is_left_out_is_in_messages_of_its_own_tasks(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates, pipeline.tables.refusing = True, {"a": "begin"}
    pipeline.run(0, SECOND)
    why = {"table of a": LeftOut("TableError: a refuses its rows", store_is_out=False)}
    assert [each.left_out for each in pipeline.messages if isinstance(each, SharedMessage)] == [why, {}, {}]


def test_a_table_that_is_left_out_is_aborted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    aborted: list[tuple[str, bool]] = []
    monkeypatch.setattr(
        StreamSink,
        "abort_batch",
        lambda sink, *_, every_task_answered: aborted.append((sink._app_id, every_task_answered)),
    )
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates, pipeline.tables.refusing, pipeline.tables.unreachable = True, {"a": "finish"}, "c"
    with pytest.raises(ConnectionError):
        pipeline.run(0, SECOND)
    assert aborted == [("app.a", True), ("app.b", True), ("app.c", True)], "by the abort of the whole batch"
    assert "is left out" not in caplog.text
    aborted.clear()
    pipeline.tables.unreachable = ""
    pipeline.run(0, SECOND)
    assert aborted == [("app.a", True)]
    assert caplog.text.count("is left out") == 1
    aborted.clear()
    refused = SharedMessage({}, {"table of a": LeftOut("one of its tasks was refused", store_is_out=False)})
    pipeline.sink().abort([*pipeline.messages, refused], 0)
    assert aborted[0] == ("app.a", False), "no commit of it was tried"


def test_a_table_that_another_driver_writes_stops_the_batch(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates = True
    pipeline.run(0, FIRST)
    other = Pipeline(tmp_path)
    other.begin_query("another", FIRST)
    other.run(0, {"a": 6, "b": 2})
    pipeline.begin_query("q", FIRST)
    with pytest.raises(OffsetMismatchError, match="and another batch was written under this number"):
        pipeline.run(0, {"a": 5, "b": 3})


def test_a_table_whose_rows_a_restore_removed_stops_the_batch(tmp_path: Path) -> None:
    """Its offsets are past the batch, so that it would not count as behind, and its rows would never come back."""
    pipeline = Pipeline(tmp_path)
    pipeline.tables.isolates = True
    pipeline.run(0, {"a": 2, "b": 2})
    before, reached = DeltaTable(tmp_path / "a").version(), pipeline.reached
    pipeline.run(1, {"a": 5, "b": 4})
    pipeline.reached = reached  # the driver is killed before Spark notes the batch
    DeltaTable(tmp_path / "a").restore(before)
    with pytest.raises(OffsetMismatchError, match=r"\(RESTORE\) removed its rows and left the offsets"):
        pipeline.run(1, {"a": 5, "b": 4})


def test_a_partition_whose_records_have_all_expired_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first commit of a query stores its position, so a later query is not refused there."""
    pipeline, table = Pipeline(tmp_path), str(tmp_path / "a")
    pipeline.begin_query("q", {"a/1": 5})
    pipeline.run(0, {"a": 4, "a/1": 5})
    assert pipeline.stored() == {"a": 4, "a/1": 5, "b": 0, "c": 0}
    pipeline.run(1, {"a": 5, "a/1": 5})
    pipeline.begin_query("another", pipeline.stored())
    pipeline.run(0, {"a": 6, "a/1": 5})
    pipeline.run(1, {"a": 6, "a/1": 7})
    first = first_of("a/1")
    assert pipeline.found()["a"] == [*range(6), first + 5, first + 6]
    assert main(["audit", table]) == 0, capsys.readouterr().out
    rewind = ["offsets", "rewind", table, "--to-version", "0", "--app-id", "app.a", "--restore", "--apply"]
    assert main(rewind) == 0, capsys.readouterr().err
    assert pipeline.stored() == {"a": 0, "a/1": 5, "b": 0, "c": 0}
    pipeline.begin_query("a third", pipeline.stored())
    pipeline.run(0, {"a": 6, "a/1": 7})
    assert pipeline.found()["a"] == [*range(6), first + 5, first + 6]
    assert main(["audit", table]) == 0, capsys.readouterr().out


def test_a_new_query_that_begins_past_what_nobody_has_stored_is_still_refused(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, {"a": 4})
    pipeline.begin_query("another", {"a": 4, "a/1": 5})
    with pytest.raises(OffsetMismatchError, match=r"records \[0, 5\) may be in neither"):
        pipeline.run(0, {"a": 6, "a/1": 5})


def test_a_partition_that_a_table_has_refused_is_not_taken_for_one_that_was_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(lives, "a", 0)
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, {"a": 1})
    lives["a"] += 1  # its table has something of the application, and nothing of the new topic
    pipeline.begin_query("another", {})
    pipeline.tables.isolates, pipeline.tables.refusing = True, {"a": "finish"}
    pipeline.run(0, {"a": 2, "a/1": 0})
    pipeline.tables.refusing = {}
    pipeline.run(1, {"a": 2, "a/1": 1})
    assert pipeline.stored() == {"a": 0, "a/1": 1, "b": 0, "c": 0}


def test_an_application_that_goes_on_where_another_has_ended_is_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a partition in which it has read nothing yet."""
    Pipeline(tmp_path).run(0, {"a": 4, "a/1": 3})
    other = Pipeline(tmp_path)
    other.tables.app = "other"
    other.begin_query("another", {"a": 4, "a/1": 3})
    other.run(0, {"a": 6, "a/1": 3})
    assert main(["audit", str(tmp_path / "a")]) == 0, capsys.readouterr().out
    assert "verdict=proven" in capsys.readouterr().out


def test_a_table_put_back_without_a_partition_does_not_go_on_with_it(tmp_path: Path) -> None:
    """The query is known there, and has written other partitions; what it has read of this one is nowhere."""
    pipeline = Pipeline(tmp_path)
    pipeline.run(0, {"a": 4, "a/1": 0})
    copy = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    pipeline.run(1, {"a": 4, "a/1": 3})
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(copy, tmp_path / "a")
    with pytest.raises(OffsetMismatchError, match=r"first of this partition .* has read records \[0, 3\)"):
        pipeline.run(2, {"a": 4, "a/1": 5})
