"""Topics as a target: what a batch may look like, what comes of failures, and what a user is told."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink import driver as driver_module
from sparkonce.connectors.kafka_sink import target as target_module
from sparkonce.connectors.kafka_sink.crash_points import TransactionPoint
from sparkonce.connectors.kafka_sink.decisions import DecisionLog
from sparkonce.connectors.kafka_sink.driver import Driver
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.kafka_sink.spool import FOLDER, Spool, SpoolError
from sparkonce.connectors.kafka_sink.transactions import (
    ProducerIdentity,
    State,
    TransactionClient,
    TransactionError,
)
from sparkonce.exactly_once.batch import Batch
from sparkonce.exactly_once.decision import Stored
from sparkonce.exactly_once.errors import DeliveryError, FencedError, OffsetMismatchError, TransactionsGoneError
from sparkonce.exactly_once.guarantee import Guarantee
from sparkonce.exactly_once.transactions import Decision
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.protocol import apis
from sparkonce.kafka.protocol.apis import ApiKey
from sparkonce.offset_store import clock
from sparkonce.offset_store.errors import OffsetStoreError
from sparkonce.offset_store.offsets import OffsetRange, TopicPartition
from sparkonce.offset_store.record import BatchRecord, PartitionKey
from tests.unit.kafka_sink.pipeline import (
    INPUT,
    INPUT_PARTITIONS,
    SOURCE,
    Application,
    Death,
    Incarnation,
    Machine,
    all_rows,
    check_nothing_open,
    check_whole,
    committed_rows,
    create_topics,
    die,
    group_offsets,
    input_keys,
    lose,
    settings_of,
)
from tests.unit.kafka_sink.test_driver_recovery import at_point


def run(application: Application, incarnation: Incarnation, batch_id: int) -> None:
    application.run(incarnation, application.batch(incarnation, batch_id, 2 * batch_id, 2 * batch_id + 2))


def batch_of(
    application: Application, query_id: str, batch_id: int, ranges: dict[PartitionKey, tuple[int, int]]
) -> Batch:
    extents = {key: OffsetRange(*extent) for key, extent in ranges.items()}
    return Batch(BatchRecord(application.name, query_id, batch_id, f"{query_id}-{batch_id}", extents), False)


def test_what_is_stored(application: Application, observer: Client) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    following = application.batch(incarnation, 1, 2, 4)
    with application.machine.process(application.machine.new_pid()):
        stored = application.target.stored(following)
    assert isinstance(stored, Stored)
    assert (stored.last_batch_id, stored.next_offsets) == (0, dict.fromkeys(input_keys(), 2))


@pytest.mark.parametrize("topic", ["made by the sink", "made before"])
def test_a_driver_whose_clock_is_ahead(
    application: Application, observer: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka refuses records that are more than an hour ahead of its own clock, unless the topic has the broker's time.

    The tasks' clocks are right, so the rows get through, and all of what the driver writes has to get through, too.
    """
    decisions = f"decisions-{application.name}"
    if topic == "made before":
        create_topics(observer, decisions, partitions=1, cleanup_policy="compact")
    ahead_ns = time.time_ns() + 2 * 3_600_000_000_000
    monkeypatch.setattr(clock, "time", SimpleNamespace(time_ns=lambda: ahead_ns))
    incarnation = application.start()
    for batch_id in range(2):
        run(application, incarnation, batch_id)
    check_whole(observer, application, 4)
    log = DecisionLog(observer, decisions, application.name)
    assert (log.read().number, log.read().unfinished) == (2, None)


def test_what_is_stored_of_topics_of_another_cluster(application: Application) -> None:
    """The group has no room for them; whoever asks before a batch is begun must hear of them all the same."""
    elsewhere: PartitionKey = (SOURCE, TopicPartition("elsewhere", "an-id", 0))
    with application.machine.process(application.machine.new_pid()):
        assert application.target.stored(batch_of(application, "new", 0, {elsewhere: (0, 3)})) == Stored(0, None, {})
    application.run(application.start(), batch_of(application, "query", 0, {elsewhere: (0, 3)}), ["a"])
    with application.machine.process(application.machine.new_pid()):
        stored = application.target.stored(batch_of(application, "new", 0, {elsewhere: (3, 5)}))
    assert stored == Stored(1, None, {elsewhere: 3})


def test_a_batch_that_is_there_is_not_written_again(application: Application, observer: Client) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    again = application.start()
    written = application.write(again, application.batch(again, 0, 0, 2))
    assert not written.plan.writes_rows
    assert written.parts == []
    application.finish(again, written)
    check_whole(observer, application, 2)


def test_a_target_names_its_topics_and_its_group(application: Application) -> None:
    target, name = application.target, application.name
    assert str(target) == f"{application.topic} (offsets in group:{name})"
    by_row = RowLayout(None, value=0, topic_column=1)
    assert str(replace(target, layouts=(by_row,))) == f"the topics that rows name (offsets in group:{name})"


def test_a_batch_that_is_begun_twice_in_one_process(application: Application, observer: Client) -> None:
    """The query failed and was started again in the same session; tasks of the first start are still at work."""
    incarnation = application.start()
    run(application, incarnation, 0)
    first = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    second = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    with pytest.raises(DeliveryError):
        application.finish(incarnation, first)
    third = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    with pytest.raises(DeliveryError):
        application.finish(incarnation, second)
    application.abort(incarnation, third)
    run_again = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    application.finish(incarnation, run_again)
    check_whole(observer, application, 4)


def test_the_loser_of_two_drivers_is_told_who_won(application: Application, observer: Client) -> None:
    first, second = application.start(), application.start()
    run(application, first, 0)
    loser = application.write(first, application.batch(first, 1, 2, 4))
    run(application, second, 1)
    with pytest.raises(FencedError, match=r"Another driver runs with the same appId: stop one of the two"):
        application.finish(first, loser)
    check_whole(observer, application, 4)


def test_the_loser_before_anything_was_decided(application: Application, observer: Client) -> None:
    first, second = application.start(), application.start()
    run(application, first, 0)
    loser = application.write(first, application.batch(first, 1, 2, 4))
    winner = application.write(second, application.batch(second, 1, 2, 4))
    with pytest.raises(FencedError, match="has fenced this one"):
        application.finish(first, loser)
    application.finish(second, winner)
    check_whole(observer, application, 4)


def test_a_driver_whose_own_transaction_timed_out_is_not_told_of_another_driver(
    machine: Machine, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"num.partitions": 1, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 20}
    with EmbeddedBroker(config=settings) as broker:
        client = Client(settings_of(broker))
        application = Application(machine, broker, "slow")
        create_topics(client, INPUT, partitions=INPUT_PARTITIONS)
        create_topics(client, application.topic)
        monkeypatch.setattr(target_module, "DRIVER_TIMEOUT_MS", 100)
        incarnation = application.start()
        written = application.write(incarnation, application.batch(incarnation, 0, 0, 2))

        def wait() -> None:
            while client_of_transactions.describe([name])[name].state is State.ONGOING:
                continue

        client_of_transactions, name = TransactionClient(client), application.scope.driver_id
        own = pytest.raises(TransactionsGoneError, match="the driver's own transaction was aborted")
        with at_point(TransactionPoint.DECIDING, wait, monkeypatch), own:
            application.finish(incarnation, written)
        run(application, application.start(), 0)
        check_whole(client, application, 2)
        client.close()
        machine.forget()


def test_what_has_little_time_left_is_not_decided(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end might come too late for a part of it."""
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    with monkeypatch.context() as patch:
        patch.setattr(driver_module, "LEAST_LEFT_MS", 60_000)
        patch.setattr(driver_module, "LEAST_SHARE_LEFT", 1.0)
        with pytest.raises(TransactionsGoneError, match="or not for long"):
            application.finish(incarnation, written)
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def test_the_loser_when_the_winner_wrote_something_else(application: Application, observer: Client) -> None:
    """Its own range is still free, and it is fenced all the same."""
    one, other = ((SOURCE, TopicPartition(INPUT, "", partition)) for partition in range(2))
    first, second = application.start("first"), application.start("second")
    loser = application.write(first, batch_of(application, "first", 0, {one: (0, 3)}), [])
    application.run(second, batch_of(application, "second", 0, {other: (0, 5)}), ["b"])
    with pytest.raises(FencedError, match="has fenced this one"):
        application.finish(first, loser)
    assert group_offsets(observer, application.name) == {1: 5}
    check_nothing_open(observer, application)


def test_an_abort_after_a_commit_that_has_landed_leaves_it_alone(
    application: Application, observer: Client, machine: Machine
) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    application.finish(incarnation, written)
    application.abort(incarnation, written)
    run(application, incarnation, 2)
    check_whole(observer, application, 6)


@pytest.mark.parametrize("offset", range(0, 26, 3))
def test_an_abort_at_any_time(offset: int, application: Application, observer: Client, machine: Machine) -> None:
    """The process that commits dies in the middle; Spark starts another one, and has it abort."""
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    machine.plan(offset, die)
    with suppress(Death):
        application.finish(incarnation, written)
    machine.happenings.clear()
    application.abort(replace(incarnation, commits=machine.new_pid()), written)
    run(application, incarnation, 1)
    run(application, incarnation, 2)
    check_whole(observer, application, 6)


def test_an_abort_never_raises(application: Application, shared_broker: EmbeddedBroker, observer: Client) -> None:
    incarnation = application.start()
    written = application.write(incarnation, application.batch(incarnation, 0, 0, 2))
    with shared_broker.faults.fail("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", api="InitProducerId"):
        application.abort(incarnation, written)
    assert len(TransactionClient(observer).open_transactions(application.scope.prefix)) == 2
    run(application, application.start(), 0)
    check_whole(observer, application, 2)


def test_a_batch_without_rows_moves_the_group(application: Application, observer: Client) -> None:
    incarnation = application.start()
    for batch_id in range(3):
        application.run(incarnation, application.batch(incarnation, batch_id, batch_id, batch_id + 1), [])
    assert group_offsets(observer, application.name) == {0: 3, 1: 3}
    assert committed_rows(observer, application.topic) == []
    check_nothing_open(observer, application)


def test_a_batch_that_moves_nothing_has_rows(application: Application, observer: Client) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    application.run(incarnation, application.batch(incarnation, 1, 2, 2), ["late"])
    again = application.start()
    application.run(again, application.batch(again, 1, 2, 2), ["late"])
    application.run(again, application.batch(again, 2, 2, 4))
    assert committed_rows(observer, application.topic) == sorted([*all_rows(4), "late"])
    check_nothing_open(observer, application)


def test_a_batch_that_has_neither(application: Application, observer: Client) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    application.run(incarnation, application.batch(incarnation, 1, 2, 2), [])
    application.run(incarnation, application.batch(incarnation, 2, 2, 4))
    check_whole(observer, application, 4)


def test_a_query_without_any_source_of_ours(application: Application, observer: Client) -> None:
    """Its batches are known by query and number alone, and so they survive what the checkpoint survives."""
    first = application.start()
    for batch_id in range(2):
        application.run(first, batch_of(application, "query", batch_id, {}), [f"row {batch_id}"])
    again = application.start()
    for batch_id in range(1, 3):
        application.run(again, batch_of(application, "query", batch_id, {}), [f"row {batch_id}"])
    assert committed_rows(observer, application.topic) == ["row 0", "row 1", "row 2"]
    check_nothing_open(observer, application)


def test_two_sources_have_partitions_of_their_own(application: Application, observer: Client) -> None:
    incarnation = application.start()
    one, other = ("one", TopicPartition(INPUT, "", 0)), ("other", TopicPartition(INPUT, "", 1))
    application.run(incarnation, batch_of(application, "query", 0, {one: (0, 3), other: (0, 5)}), ["a"])
    application.run(incarnation, batch_of(application, "query", 1, {one: (3, 3), other: (5, 9)}), ["b"])
    assert group_offsets(observer, application.name) == {0: 3, 1: 9}
    again = application.start()
    written = application.write(again, batch_of(application, "query", 1, {one: (3, 3), other: (5, 9)}), ["b"])
    assert not written.plan.writes_rows
    assert committed_rows(observer, application.topic) == ["a", "b"]


def test_two_sources_cannot_share_a_partition(application: Application, observer: Client) -> None:
    incarnation = application.start()
    keys = [(name, TopicPartition(INPUT, "", 0)) for name in ("one", "other")]
    with pytest.raises(OffsetStoreError, match="a group keeps one offset for each partition"):
        application.write(incarnation, batch_of(application, "query", 0, dict.fromkeys(keys, (0, 3))))


def test_a_topic_id_that_is_learned_later(application: Application, observer: Client) -> None:
    known = observer.topics([INPUT])[INPUT].topic_id
    nameless, named = (SOURCE, TopicPartition(INPUT, "", 0)), (SOURCE, TopicPartition(INPUT, known, 0))
    incarnation = application.start()
    application.run(incarnation, batch_of(application, "query", 0, {nameless: (0, 3)}), ["a"])
    application.run(incarnation, batch_of(application, "query", 1, {named: (3, 5)}), ["b"])
    assert group_offsets(observer, application.name) == {0: 5}
    assert committed_rows(observer, application.topic) == ["a", "b"]


def test_offsets_that_do_not_fit_are_refused_before_anything_is_written(
    application: Application, observer: Client
) -> None:
    run(application, application.start(), 0)
    for query_id, start, problem in (("query", 3, "a gap"), ("query", 1, "an overlap"), ("new", 1, "an overlap")):
        incarnation = application.start(query_id)
        batch_id = 1 if query_id == "query" else 0
        with pytest.raises(OffsetMismatchError, match=problem):
            application.write(incarnation, application.batch(incarnation, batch_id, start, 9))
    check_whole(observer, application, 2)


def test_a_group_with_members_is_refused(application: Application, observer: Client) -> None:
    run(application, application.start(), 0)
    join(observer, application.name)
    incarnation = application.start()
    with pytest.raises(OffsetStoreError, match="has live members"):
        application.write(incarnation, application.batch(incarnation, 1, 2, 4))


def test_a_group_with_members_of_the_newer_protocol_is_refused(application: Application, observer: Client) -> None:
    member = join_newer(observer, application.name)
    with pytest.raises(OffsetStoreError, match="has live members"):
        run(application, application.start(), 0)
    join_newer(observer, application.name, member, LEAVES)
    run(application, application.start(), 0)
    check_whole(observer, application, 2)


LEAVES = -1


def join_newer(client: Client, group_id: str, member_id: str = "m", epoch: int = 0) -> str:
    """Send a heartbeat of KIP-848; the first one joins."""
    subscription = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [INPUT], "topic_partitions": []}
    answer = client.ask(
        client.any_connection(),
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        **({} if epoch else subscription),
    )
    assert answer.error_code == 0, answer
    return str(answer.member_id)


def test_a_timeout_that_brokers_do_not_allow_is_refused_before_the_tasks(
    application: Application, observer: Client
) -> None:
    run(application, application.start(), 0)
    longer = replace(application, transaction_timeout_ms=900_001)
    incarnation = application.start()
    with (
        application.machine.process(incarnation.begins),
        pytest.raises(TransactionError, match=r"900001 ms.*set kafka\.transaction\.timeout\.ms lower"),
    ):
        longer.target.begin(application.batch(incarnation, 1, 2, 4))
    run(application, application.start(), 1)
    check_whole(observer, application, 4)


def join(client: Client, group_id: str) -> None:
    connection = client.any_connection()
    version = min(connection.version(ApiKey.JOIN_GROUP), 3)  # before a member has to join twice
    protocol = apis.request_class(ApiKey.JOIN_GROUP).JoinGroupRequestProtocol
    answer = client.ask(
        connection,
        ApiKey.JOIN_GROUP,
        version,
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol(version=version, name="range", metadata=b"")],
    )
    assert answer.error_code == 0


@pytest.mark.parametrize("weaker", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_a_weaker_guarantee_and_back(weaker: Guarantee, application: Application, observer: Client) -> None:
    run(application, application.start(), 0)
    for batch_id in (1, 2):
        other = replace(application, guarantee=weaker)
        run(other, other.start(), batch_id)
    incarnation = application.start()
    for batch_id in (2, 3, 4):
        run(application, incarnation, batch_id)
    check_whole(observer, application, 10)


def test_the_decision_that_fails_for_good_leaves_nothing_open(
    application: Application, shared_broker: EmbeddedBroker, observer: Client
) -> None:
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    with (
        shared_broker.faults.fail("GROUP_AUTHORIZATION_FAILED", api="AddOffsetsToTxn"),
        pytest.raises(TransactionError, match="READ and DESCRIBE on the group"),
    ):
        application.finish(incarnation, written)
    assert TransactionClient(observer).open_transactions(application.scope.prefix) == []
    run(application, incarnation, 1)
    check_whole(observer, application, 4)


def test_a_decision_whose_answers_are_all_lost_is_found_in_the_log(
    application: Application, observer: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EndTxn took effect, and every answer was lost for as long as the client tries."""
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    end = TransactionClient.end

    def lost(client: TransactionClient, identity: ProducerIdentity, *, commit: bool) -> None:
        monkeypatch.setattr(TransactionClient, "end", end)
        end(client, identity, commit=commit)
        lose()

    monkeypatch.setattr(TransactionClient, "end", lost)
    application.finish(incarnation, written)
    check_whole(observer, application, 4)


def test_speculation_leaves_nothing_open(application: Application, observer: Client) -> None:
    twice = replace(application, twice=True)
    incarnation = twice.start()
    for batch_id in range(3):
        run(twice, incarnation, batch_id)
        check_whole(observer, twice, 2 * batch_id + 2)


def test_a_fenced_driver_leaves_the_spool_to_the_one_that_fenced_it(
    application: Application, observer: Client, tmp_path: Path
) -> None:
    application.options["spool"] = Spool(str(tmp_path))
    first, second = application.start(), application.start()
    loser = application.write(first, application.batch(first, 0, 0, 2))
    winner = application.write(second, application.batch(second, 0, 0, 2))
    with pytest.raises((DeliveryError, SpoolError)):
        application.finish(first, loser)
    application.finish(second, winner)
    check_whole(observer, application, 2)


def test_rows_spooled_on_another_machine_are_asked_for_by_name(
    application: Application, observer: Client, tmp_path: Path
) -> None:
    application.options["spool"] = Spool(str(tmp_path / "driver"))
    incarnation = application.start()
    written = application.write(incarnation, application.batch(incarnation, 0, 0, 4))
    (tmp_path / "driver").rename(tmp_path / "executor")
    with pytest.raises(SpoolError, match="it must be on storage that driver and executors share"):
        application.finish(incarnation, written)
    assert committed_rows(observer, application.topic) == []


@pytest.mark.parametrize("kept", ["nothing", "one record batch", "half a record batch"])
def test_spooled_rows_that_are_not_whole_are_not_sent(
    kept: str, application: Application, observer: Client, tmp_path: Path
) -> None:
    """A file system that lost the end of a file may have lost it between two record batches."""
    application.options["spool"] = Spool(str(tmp_path))
    application.tasks = 1
    incarnation = application.start()
    written = application.write(incarnation, application.batch(incarnation, 0, 0, 40))
    (spooled,) = (tmp_path / FOLDER).iterdir()
    whole = spooled.read_bytes()
    head = struct.Struct(">HiiI")
    topic_length, _, _, length = head.unpack_from(whole)
    first = head.size + topic_length + length
    assert first < len(whole)
    spooled.write_bytes(whole[: {"nothing": 0, "one record batch": first}.get(kept, first - 1)])
    with pytest.raises(SpoolError, match="ends"):
        application.finish(incarnation, written)
    assert committed_rows(observer, application.topic) == []
    application.run(incarnation, application.batch(incarnation, 0, 0, 40))
    check_whole(observer, application, 40)


@pytest.fixture
def quick_broker() -> Iterator[EmbeddedBroker]:
    """Aborts at once what has timed out."""
    name = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with EmbeddedBroker(config={"num.partitions": 1, name: 10}) as running:
        yield running


@pytest.mark.parametrize("is_decided", [False, True])
def test_transactions_that_time_out(
    is_decided: bool, quick_broker: EmbeddedBroker, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(settings_of(quick_broker))
    create_topics(client, INPUT, partitions=2)
    application = Application(machine, quick_broker, "slow", transaction_timeout_ms=300)
    create_topics(client, application.topic)
    incarnation, finish = application.start(), Driver.finish

    def wait(*_: object) -> None:
        transactions = TransactionClient(client)
        while transactions.open_transactions(application.scope.prefix):
            Event().wait(0.01)

    def late(driver: Driver, decision: Decision) -> None:
        wait()
        finish(driver, decision)

    written = application.write(incarnation, application.batch(incarnation, 0, 0, 2))
    if not is_decided:
        wait()
    # On a slow machine they have timed out before the decision all the same.
    problem = "the decision is undone|was not decided" if is_decided else "was not decided"
    monkeypatch.setattr(Driver, "finish", late)
    with pytest.raises(TransactionsGoneError, match=problem):
        application.finish(incarnation, written)
    monkeypatch.setattr(Driver, "finish", finish)
    assert committed_rows(client, application.topic) == []
    # A source without a checkpoint reads this before any driver takes over.
    assert set(group_offsets(client, application.name).values()) <= {0}
    patient = replace(application, transaction_timeout_ms=60_000)
    run(patient, incarnation, 0)
    check_whole(client, patient, 2)
    client.close()


def test_someone_who_ends_a_decided_transaction_by_hand(
    application: Application, observer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was committed, the other aborted: rows are missing, nobody can bring them back, and everybody is told."""
    incarnation = application.start()
    run(application, incarnation, 0)
    written = application.write(incarnation, application.batch(incarnation, 1, 2, 4))
    transactions, finish = TransactionClient(observer), Driver.finish

    def meanwhile(driver: Driver, decision: Decision) -> None:
        first, second = decision.transactions
        committed = ProducerIdentity(first.transactional_id, first.producer_id, first.epoch)
        driver.transactions.end(committed, commit=True)
        transactions.init_producer_id(second.transactional_id, 60_000)
        finish(driver, decision)

    with monkeypatch.context() as patch:
        patch.setattr(Driver, "finish", meanwhile)
        with pytest.raises(TransactionsGoneError, match="the output lacks 2 rows"):
            application.finish(incarnation, written)
    for _ in range(2):
        with pytest.raises(TransactionsGoneError, match=r"finish --app-id app\d+ --accept continues without them"):
            run(application, application.start(), 1)
    seen = committed_rows(observer, application.topic)
    assert len(seen) == len(set(seen)) == 6
    assert TransactionClient(observer).open_transactions(application.scope.prefix, (State.ONGOING,)) == []
