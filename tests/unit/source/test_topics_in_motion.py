"""Topics and logs that change under a query: what counts as lost, what is asked twice, and where a query goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_source.data_loss import DataLossError
from sparkonce.connectors.kafka_source.options import SourceOptions
from sparkonce.connectors.kafka_source.planner import Planner
from sparkonce.connectors.kafka_source.ranges import RecreatedTopicError
from sparkonce.connectors.kafka_source.reading import read_ranges
from sparkonce.connectors.kafka_source.resolving import Offsets
from sparkonce.connectors.kafka_source.tables import TablesByTopic, TopicsNotReadError
from sparkonce.kafka.client.client import LATEST, Client
from sparkonce.kafka.client.metadata import MissingTopicError, TopicMetadata
from sparkonce.offset_store import OffsetStore, OffsetStoreError
from sparkonce.offset_store.offsets import Position, SourceOffset, TopicPartition
from sparkonce.options import OptionError
from tests.parity.support import Batch, Cluster, Stream, numbers

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"failOnDataLoss": "false", **EARLIEST}
AT_ONCE = {"fetchOffset.retryIntervalMs": "1"}


@pytest.fixture(scope="module", params=["rows", "ranges"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with EmbeddedBroker() as running:
        yield Cluster(running.bootstrap_servers, request.param)


@pytest.fixture
def two(cluster: Cluster) -> tuple[str, str]:
    """Return two topics of one record each, in order."""
    names = (cluster.create(), cluster.create())
    for number, name in enumerate(names):
        cluster.send(name, [number])
    return names


def positions(stream: Stream) -> dict[str, Any]:
    topics: dict[str, Any] = json.loads(stream.offset_log[-1])["topics"]
    return topics


def test_a_deleted_topic_is_lost_data(cluster: Cluster, two: tuple[str, str]) -> None:
    for name in two:
        stays = cluster.create()
        chosen = {"subscribe": f"{name},{stays}", **AT_ONCE}
        with cluster.stream(**chosen, **EARLIEST) as strict, cluster.stream(**chosen, **LENIENT) as lenient:
            assert strict.process_all() == lenient.process_all() != []
            cluster.delete(name)
            cluster.send(stays, [7])
            with pytest.raises(DataLossError, match=f"partitions {name}-0 of the checkpoint are gone.*failOnDataLoss"):
                strict.process_all()
            assert lenient.process_all() == [7]
            assert set(positions(lenient)) == {stays}


@pytest.mark.parametrize("option", ["subscribe", "assign"])
def test_the_advice_for_a_deleted_topic_lasts(cluster: Cluster, option: str) -> None:
    """Not for one batch only: each start asks for the topics that the options name."""
    gone, stays = cluster.create(), cluster.create()

    def chosen(*names: str) -> str:
        return ",".join(names) if option == "subscribe" else json.dumps({name: [0] for name in names})

    with cluster.stream(**{option: chosen(gone, stays)}, **EARLIEST, **AT_ONCE) as stream:
        cluster.send(gone, [1])
        cluster.send(stays, [2])
        assert stream.process_all() == [1, 2]
        cluster.delete(gone)
        with pytest.raises(DataLossError, match=rf"Remove {gone} from {option}, or .* set it to false") as error:
            stream.process_all()
        assert "set subscribe back" not in str(error.value)
        stream.options |= {option: chosen(stays), "failOnDataLoss": "false"}
        for number, fails in ((3, "false"), (4, "false"), (5, "true")):
            stream.options["failOnDataLoss"] = fails
            stream.start()
            cluster.send(stays, [number])
            assert stream.process_all() == [number]
        stream.options[option] = chosen(gone, stays)
        stream.start()
        with pytest.raises(MissingTopicError, match="remove it there if it was deleted"):
            stream.process_all()


def test_partitions_that_are_no_longer_assigned_are_not_called_deleted(cluster: Cluster) -> None:
    name = cluster.create(2)
    with cluster.stream(assign=json.dumps({name: [0, 1]}), **EARLIEST, **AT_ONCE) as stream:
        cluster.send(name, [1])
        assert stream.process_all() == [1]
        stream.options["assign"] = json.dumps({name: [0]})
        stream.start()
        with pytest.raises(DataLossError, match=rf"{name}-1 .* or assign no longer names them.* set assign back"):
            stream.process_all()


def test_a_topic_that_seems_to_be_gone_is_asked_for_again(
    cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that was just started may not know all topics yet."""
    with cluster.stream(subscribe=",".join(two), **EARLIEST, **AT_ONCE) as stream:
        assert stream.process_all() == [0, 1]
        honest, lies = Client.existing_topics, [2]

        def forgetful(client: Client, names: tuple[str, ...], *args: set[str] | None) -> dict[str, TopicMetadata]:
            found = honest(client, names, *args)
            if lies and lies.pop():
                del found[two[1]]
            return found

        monkeypatch.setattr(Client, "existing_topics", forgetful)
        cluster.send(two[1], [9])
        assert stream.process_all() == [9]
        assert not lies


def test_a_topic_that_vanishes_between_two_questions_makes_the_planner_look_anew(
    cluster: Cluster, two: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, failures = Planner.ask, [MissingTopicError("planted")] * 2

    def vanishing(planner: Planner, wanted: Mapping[TopicPartition, int], **more: bool) -> Offsets:
        if failures and LATEST in wanted.values():
            raise failures.pop()
        return honest(planner, wanted, **more)

    with cluster.stream(subscribePattern="|".join(two), **EARLIEST, **AT_ONCE) as stream:
        stream.reader.initialOffset()
        monkeypatch.setattr(Planner, "ask", vanishing)
        assert stream.process_all() == [0, 1]
        assert not failures
        failures += [MissingTopicError("planted")] * 9
        with pytest.raises(MissingTopicError, match="planted"):
            stream.process_all()


def test_a_topic_made_anew_is_another_topic(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, [1, 2])
    with (
        cluster.stream(subscribe=name, **EARLIEST, **AT_ONCE) as strict,
        cluster.stream(subscribe=name, **LENIENT, **AT_ONCE) as lenient,
    ):
        assert strict.process_all() == lenient.process_all() == [1, 2]
        old_id = positions(lenient)[name]["id"]
        cluster.recreate(name, 2)
        cluster.send(name, [3, 4, 5], 0)
        with pytest.raises(RecreatedTopicError, match=r"created again.*failOnDataLoss=false to continue with the new"):
            strict.process_all()
        assert lenient.process_all() == [3, 4, 5]
        now = positions(lenient)[name]
        assert now["id"] != old_id
        assert now["partitions"] == {"0": {"epoch": 0, "next": 3, "origin": 0}, "1": {"next": 0, "origin": 0}}


def test_a_batch_that_was_planned_before_its_topic_was_made_anew(cluster: Cluster) -> None:
    """After a restart, where no task has begun: the range is lost, and nothing of the new topic is read for it."""
    name = cluster.create()
    cluster.send(name, [1, 2])
    for given, expected in ((EARLIEST, None), (LENIENT, [])):
        with cluster.stream(subscribe=name, **given, **AT_ONCE) as stream:
            assert stream.plan()
            cluster.recreate(name)
            cluster.send(name, [3, 4])
            stream.start()
            if expected is None:
                with pytest.raises(RecreatedTopicError):
                    stream.tasks()
            else:
                assert [numbers(task) for task in stream.tasks()] == expected
                assert stream.process_all() == [3, 4]


def test_a_topic_made_anew_that_has_a_table_of_its_own_ends_alone(
    cluster: Cluster, two: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also in a batch that is logged: its range is lost, and nothing of the new topic is read for it."""
    anew, stays = two
    stores = {"offsetStore": f"delta:{tmp_path}/{{topic}}", "appId": "app", "isolateTables": "true"}
    given = cluster.source_options(subscribe=",".join(two), handOver="ranges", **stores, **EARLIEST, **AT_ONCE)
    before, after = (Planner(SourceOptions.read(given)) for _ in range(2))
    begin = before.initial(SourceOptions.read(given).for_stream())
    logged = before.advance(begin, before.latest(begin), None)
    before.close()
    cluster.recreate(anew)
    cluster.send(anew, [7, 8])
    ranges = [each for task in after.batch(begin.to_document(), logged.to_document()) for each in task.wanted]
    assert {each.topic: each.lost for each in ranges} == {anew: True, stays: False}
    line, partitions = after.survey(logged.to_document())
    start = after.adapt(line.offset, partitions)
    ends = after.latest(start)
    after.close()
    assert {tp.topic: (start.positions[tp].next, ends[tp]) for tp in partitions} == {anew: (0, 2), stays: (1, 1)}
    assert start.positions.keys() == {*partitions}
    (warning,) = [record.getMessage() for record in caplog.records if "created again" in record.getMessage()]
    assert f"{anew} was deleted and created again" in warning
    assert "drop this one, or move it away" in warning


def test_lost_records_of_a_topic_that_has_a_table_of_its_own_stop_it_alone(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One log was cut, and one has a new partition whose first records are gone: neither is read any more."""
    cut, grown, stays = names = [cluster.create() for _ in range(3)]
    for name in names:
        cluster.send(name, [1, 2])
    given = cluster.source_options(subscribe=",".join(names), handOver="ranges", **isolated(tmp_path), **AT_ONCE)
    with closing(Planner(SourceOptions.read(given))) as planner:
        at = {cut: 3, grown: 1, stays: 1}
        positions = {tp: Position(at[tp.topic], at[tp.topic]) for tp in planner.refresh()}
        read = SourceOffset("kafka", positions)
        cluster.grow(grown, 2)
        cluster.send(grown, [3, 4], 1)
        cluster.forget_records(grown, {1: 1})
        for _ in range(2):
            _, partitions = planner.survey(read.to_document())
            start = planner.adapt(read, partitions)
            latest = planner.latest(start, waits_for_leaders=False)
            assert start.positions.keys() == read.positions.keys()
            assert {tp.topic: at for tp, at in latest.items()} == {cut: 3, grown: 2, stays: 2}, "what lag is"
            ends = planner.without_those_behind(start, latest)
            assert {tp.topic: at for tp, at in ends.items()} == {cut: 3, grown: 1, stays: 2}
        with pytest.raises(TopicsNotReadError, match=f"(?s)topic {grown}: .*added partition {grown}-1"):
            planner.tables.check_read()
    said = re.findall(r"topic (\S+): Some data.* The topic is not read any more because option failOn", caplog.text)
    assert sorted(said) == sorted([cut, grown])


def test_a_batch_of_a_topic_that_is_lost_is_compared_by_its_task(cluster: Cluster, tmp_path: Path) -> None:
    """It was logged before the log was replaced; what has its offsets now must not be written for it."""
    name = cluster.create()
    cluster.send(name, range(10))
    given = cluster.source_options(subscribe=name, handOver="ranges", **isolated(tmp_path), **AT_ONCE)
    options = SourceOptions.read(given)
    with closing(Planner(options)) as planner:
        (tp,) = planner.refresh()
        ends = [SourceOffset("kafka", {tp: Position(0, at, epoch)}).to_document() for at, epoch in ((5, 0), (8, 7))]
        (task,) = planner.batch(*ends)
    assert [(each.start, each.end) for each in task.wanted] == [(5, 8)]
    with pytest.raises(DataLossError, match="have been replaced"):
        list(read_ranges(options, task.wanted))


def test_a_table_that_cannot_be_read_at_first_is_begun_later(
    cluster: Cluster, two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its log does not begin at 0 any more; with availableNow it is named at the end."""
    away, there = two
    cluster.send(away, [2, 3])
    cluster.forget_records(away, {0: 2})
    given = cluster.source_options(
        subscribe=",".join(two), handOver="ranges", **isolated(tmp_path), **EARLIEST, **AT_ONCE
    )
    honest, refused = TablesByTopic.store, [away]

    def store(tables: TablesByTopic, topic: str) -> OffsetStore:
        if topic in refused:
            raise OffsetStoreError("503 Slow Down")
        return honest(tables, topic)

    monkeypatch.setattr(TablesByTopic, "store", store)
    with closing(Planner(SourceOptions.read(given))) as planner:
        begin = planner.initial(SourceOptions.read(given).for_stream())
        assert {tp.topic for tp in begin.positions} == {there}
        _, partitions = planner.survey(begin.to_document())
        assert {tp.topic for tp in planner.adapt(begin, partitions).positions} == {there}
        planner.without_those_behind(begin, planner.latest(begin))
        with pytest.raises(TopicsNotReadError, match=f"topic {away}: 503 Slow Down"):
            planner.tables.check_read()
        refused.clear()
        begun = planner.adapt(begin, partitions)
        assert {tp.topic: at.next for tp, at in begun.positions.items()} == {away: 2, there: 0}
        assert not planner.tables.lost
        planner.tables.check_read()


def test_a_cut_log_whose_table_cannot_be_read_is_named_at_the_end(
    cluster: Cluster, two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the table can be read: no other topic's table makes that forgotten."""
    cut, _ = two
    given = cluster.source_options(subscribe=",".join(two), handOver="ranges", **isolated(tmp_path))
    tables = TablesByTopic(SourceOptions.read(given))
    start = SourceOffset("kafka", {TopicPartition(name, "", 0): Position(0, 3) for name in two})
    (tp,) = (each for each in start.positions if each.topic == cut)
    with monkeypatch.context() as patch:
        patch.setattr(TablesByTopic, "store", lambda *_: (_ for _ in ()).throw(OffsetStoreError("503")))
        assert tables.after_cut(start, {tp: 1}, lambda _: {}) == ({tp: 3}, {})
    tables.behind(start, {})
    with pytest.raises(TopicsNotReadError, match=f"topic {cut}: 503"):
        tables.check_read()
    assert tables.after_cut(start, {tp: 1}, lambda _: {}) == ({tp: 0}, {tp: Position(0, 0)})
    tables.check_read()


def isolated(folder: Path) -> dict[str, str]:
    """Return options of tables by topic in a folder."""
    return {"offsetStore": f"delta:{folder}/{{topic}}", "appId": "app", "isolateTables": "true"}


def test_a_batch_that_was_planned_before_its_topic_was_deleted(cluster: Cluster, two: tuple[str, str]) -> None:
    gone, stays = two
    given = {"subscribe": f"{gone},{stays}", "minPartitions": "2", **AT_ONCE}
    with cluster.stream(**given, **EARLIEST) as strict, cluster.stream(**given, **LENIENT) as lenient:
        for stream in (strict, lenient):
            assert stream.process_all() == [0, 1]
        cluster.send(gone, [2])
        cluster.send(stays, [3])
        for stream in (strict, lenient):
            assert stream.plan()
        cluster.delete(gone)
        for stream in (strict, lenient):
            stream.start()
        with pytest.raises(DataLossError, match=f"records of {gone}-0 at offsets 1 to 1.*does not exist"):
            strict.tasks()
        assert [number for task in lenient.tasks() for number in numbers(task)] == [3]


def test_an_added_partition_should_begin_at_zero(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, [1])
    with (
        cluster.stream(subscribe=name, **EARLIEST) as strict,
        cluster.stream(subscribe=name, **LENIENT) as lenient,
    ):
        assert strict.process_all() == lenient.process_all() == [1]
        cluster.grow(name, 2)
        cluster.send(name, [2, 3, 4], 1)
        cluster.forget_records(name, {1: 2})
        with pytest.raises(
            DataLossError, match=f"added partition {name}-1 should be .* its log starts from 2.*left. Longer retention"
        ):
            strict.process_all()
        assert lenient.process_all() == [4]


def test_records_that_aged_out_between_batches(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, [0, 1])
    with (
        cluster.stream(subscribe=name, **EARLIEST, **AT_ONCE) as strict,
        cluster.stream(subscribe=name, **LENIENT, **AT_ONCE) as lenient,
    ):
        assert strict.process_all() == lenient.process_all() == [0, 1]
        cluster.send(name, range(2, 8))
        cluster.forget_records(name, {0: 6})
        with pytest.raises(
            DataLossError, match=f"{name}-0 at offsets 2 to 5 are gone: its log begins at 6.* again, .*retention.ms"
        ):
            strict.process_all()
        assert lenient.process_all() == [6, 7]


class CutLog:
    """Makes planners see the log of partition 0 end earlier than it does, as one that was cut would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends: list[int]) -> None:
        honest = Planner.ask

        def ask(planner: Planner, wanted: Mapping[TopicPartition, int], **more: bool) -> Offsets:
            found = honest(planner, wanted, **more)
            if ends and LATEST in wanted.values():
                end = ends.pop(0)
                found = {tp: min(offset, end) for tp, offset in found.items()}
            return found

        monkeypatch.setattr(Planner, "ask", ask)


def test_a_log_that_was_cut(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    name = cluster.create()
    cluster.send(name, range(6))
    with (
        cluster.stream(subscribe=name, **EARLIEST, **AT_ONCE) as strict,
        cluster.stream(subscribe=name, **LENIENT, **AT_ONCE) as lenient,
    ):
        assert strict.process_all() == lenient.process_all() == list(range(6))
        answers = [4] * 4
        CutLog(monkeypatch, answers)
        with pytest.raises(DataLossError, match=f"the offset of partition {name}-0 was changed from 6 to 4"):
            strict.process_all()
        assert not answers, "the question is asked again before"
        answers += [4] * 4
        assert lenient.trigger() == []
        cut = {"cutEpoch": 0, "cutFrom": 6, "epoch": 0, "next": 4, "origin": 4}
        assert positions(lenient)[name]["partitions"] == {"0": cut}
        assert lenient.process_all() == [4, 5]


def test_an_answer_from_before_is_asked_for_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-7703: offsets that are older than those that were read."""
    name = cluster.create()
    cluster.send(name, range(3))
    with cluster.stream(subscribe=name, **EARLIEST, **AT_ONCE) as stream:
        assert stream.process_all() == [0, 1, 2]
        cluster.send(name, [3])
        CutLog(monkeypatch, [1, 2])
        assert stream.process_all() == [3]


def test_a_run_of_what_is_available_never_goes_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its target may be an answer from before the restart; what is read already stays read."""
    name = cluster.create()
    cluster.send(name, range(3))
    with cluster.stream(subscribe=name, **EARLIEST, **AT_ONCE) as stream:
        assert stream.process_all() == [0, 1, 2]
        cluster.send(name, [3])
        CutLog(monkeypatch, [1])
        stream.start()
        assert stream.available_now() == []
        stream.start()
        assert stream.available_now() == [[3]]


def test_least_records_hold_back_a_running_query_only(cluster: Cluster) -> None:
    name = cluster.create()
    limits = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "4", **EARLIEST}
    with cluster.stream(subscribe=name, **limits) as stream, cluster.stream(subscribe=name, **limits) as other:
        cluster.send(name, [0])
        assert stream.trigger() == other.trigger() == [0]
        cluster.send(name, [1, 2])
        assert stream.trigger() == []
        assert other.available_now() == [[1, 2]]
        cluster.send(name, range(3, 8))
        assert stream.trigger() == [1, 2, 3, 4]
        assert stream.trigger() == [5, 6, 7]
        cluster.send(name, [8])
        assert stream.trigger() == []
        assert stream.once() == [8]


def test_a_topic_waits_for_more_records_while_others_are_read(cluster: Cluster) -> None:
    small, large = cluster.create(), cluster.create(2)
    limits = {"minOffsetsPerTopic": "3", "subscribe": f"{small},{large}", **EARLIEST}
    with cluster.stream(**limits) as stream, cluster.stream(**limits) as other:
        cluster.send(small, [0])
        cluster.send(large, [100])
        assert sorted(stream.trigger()) == sorted(other.trigger()) == [0, 100]
        cluster.send(small, [1, 2])
        cluster.send(large, [101, 102], 0)
        cluster.send(large, [103], 1)
        assert sorted(stream.trigger()) == [101, 102, 103]
        assert stream.trigger() == []
        assert sorted(chain.from_iterable(other.available_now())) == [1, 2, 101, 102, 103]
        cluster.send(small, [3])
        assert stream.trigger() == [1, 2, 3]
        cluster.send(small, [4])
        assert stream.trigger() == []
        assert stream.once() == [4]


@pytest.mark.parametrize("least", [{"minOffsetsPerTrigger": "100"}, {"minOffsetsPerTopic": "100"}])
def test_a_delay_that_is_over_lets_few_records_pass(cluster: Cluster, least: dict[str, str]) -> None:
    name = cluster.create()
    with cluster.stream(subscribe=name, maxTriggerDelay="0s", **least, **EARLIEST) as stream:
        for number in range(3):
            cluster.send(name, [number])
            assert stream.trigger() == [number]


def test_offsets_by_timestamp(cluster: Cluster) -> None:
    name = cluster.create(2)
    for partition in (0, 1):
        for at_ms in (1000, 2000, 3000):
            cluster.send(name, [partition * 10_000 + at_ms], partition, timestamp_ms=at_ms)
    cluster.send(name, [4000], 0, timestamp_ms=4000)

    def read(**given: object) -> list[int]:
        return sorted(numbers(cluster.batch(subscribe=name, **given)))

    assert read(startingTimestamp=1500, endingTimestamp=3000) == [2000, 12000]
    each = json.dumps({name: {"0": 2001, "1": 3000}})
    assert read(startingOffsetsByTimestamp=each, endingTimestamp=9999) == [3000, 4000, 13000]
    assert read(endingOffsetsByTimestamp=each, startingOffsets="earliest") == [1000, 2000, 11000, 12000]
    with pytest.raises(OptionError, match=f"no offset matched from option startingTimestamp for partition {name}-1"):
        read(startingTimestamp=3500)
    assert read(startingTimestamp=3500, startingOffsetsByTimestampStrategy="latest") == [4000]
    with pytest.raises(OptionError, match=f"do not match the assigned ones.*Specified: {name}-0. Assigned: {name}-0, "):
        read(startingOffsetsByTimestamp=json.dumps({name: {"0": 5}}))
    each = json.dumps({name: {"0": 4000, "1": 3000}})
    with pytest.raises(
        OptionError, match=r"resolved start offset 3 is greater than the resolved end offset 2 .*Timest"
    ):
        read(startingOffsetsByTimestamp=each, endingTimestamp=2500)
    with cluster.stream(subscribe=name, startingTimestamp=3500, startingOffsetsByTimestampStrategy="latest") as stream:
        assert stream.process_all() == [4000]
        cluster.send(name, [5000], 1)
        assert stream.process_all() == [5000]


def test_a_pattern_names_no_internal_topic_and_may_name_none(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, [1])
    with cluster.stream(subscribePattern=".*", **EARLIEST) as stream:
        stream.process_all()
        assert name in positions(stream)
        assert not [topic for topic in positions(stream) if topic.startswith("__")]
    assert cluster.batch(subscribePattern="no such topic") == []
    with cluster.stream(subscribePattern=f"^{name}-later$") as stream:
        assert stream.process_all() == []
        cluster.create(1, f"{name}-later")
        cluster.send(f"{name}-later", [5])
        assert stream.process_all() == [5]


def test_a_batch_query_about_records_that_are_gone(cluster: Cluster) -> None:
    name = cluster.create()
    cluster.send(name, range(6))
    cluster.forget_records(name, {0: 2})
    begin, end = json.dumps({name: {"0": 1}}), json.dumps({name: {"0": 9}})
    with pytest.raises(
        DataLossError, match=f"startingOffsets for {name}-0 was 1, but .* 2 to 6.*or correct startingOffsets. Longer"
    ):
        cluster.batch(subscribe=name, startingOffsets=begin)
    with pytest.raises(DataLossError, match=f"endingOffsets for {name}-0 was 9, but its log holds offsets 2 to 6"):
        cluster.batch(subscribe=name, endingOffsets=end)
    assert numbers(cluster.batch(subscribe=name, startingOffsets=begin, endingOffsets=end, failOnDataLoss="false")) == [
        2,
        3,
        4,
        5,
    ]


def test_a_batch_0_of_spark_s_connector_that_did_not_finish(cluster: Cluster, tmp_path: Path) -> None:
    """Where it began is in a file of the checkpoint, which the option checkpointLocation names."""
    name = cluster.create()
    cluster.send(name, range(6))
    line, place = json.dumps({name: {"0": 4}}), tmp_path / "sources" / "0"
    place.mkdir(parents=True)
    (place / "0").write_text(f'\0v1\n{{"{name}":{{"0":2}}}}')
    given = cluster.source_options(subscribe=name, checkpointLocation=tmp_path, **EARLIEST)
    with Stream(given, [line], committed=0) as stream:
        assert stream.trigger() == [2, 3]
        assert stream.process_all() == [4, 5]


def test_tasks_of_a_size(cluster: Cluster) -> None:
    name = cluster.create(2)
    cluster.send(name, range(6), 0)
    cluster.send(name, range(6, 8), 1)
    begin, end = (json.dumps({name: {"0": at[0], "1": at[1]}}) for at in ((0, 0), (6, 2)))
    base = {"subscribe": name, "startingOffsets": begin, "endingOffsets": end}
    sizes = {
        (): [8],
        (("maxRecordsPerPartition", "4"),): [3, 3, 2],
        (("maxRecordsPerPartition", "4"), ("minPartitions", "6")): [1, 2, 1, 2, 1, 1],
        (("minPartitions", "2"),): [6, 2],
    }
    for given, expected in sizes.items():
        tasks = Batch(cluster.source_options(**base, **dict(given))).tasks()
        assert [len(task) for task in tasks] == expected
