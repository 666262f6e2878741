"""The producer against an embedded broker on which things go wrong: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sparkonce import EmbeddedBroker
from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
from sparkonce.connectors.kafka_sink.encoding import RowEncoder
from sparkonce.connectors.kafka_sink.producer import (
    DeliveryRefusedError,
    DeliveryTimeoutError,
    Producer,
    RecordTooLargeError,
    pool,
)
from sparkonce.connectors.kafka_sink.rows import RowLayout
from sparkonce.connectors.kafka_sink.transactions import FencedProducerError, ProducerIdentity, TransactionClient
from sparkonce.connectors.kafka_source.decode import RecordDecoder
from sparkonce.connectors.kafka_source.fetch import RangeFetcher
from sparkonce.connectors.kafka_source.ranges import FetchRange
from sparkonce.kafka.client import connection as connection_module
from sparkonce.kafka.client.client import LATEST, Client
from sparkonce.kafka.client.metadata import Leader, MissingTopicError
from sparkonce.kafka.client.producer_settings import ProducerSettings
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.kafka.protocol.compression import Compression
from sparkonce.kafka.protocol.records import encode_batch
from tests.cases import each_case

PARTITIONS = 3
SMALL = ProducerSettings(batch_bytes=1000, delivery_timeout_ms=20_000)
"""Small batches make many requests, since a request holds one batch of a partition."""
LAYOUT = RowLayout(None, value=1, key=0, topic_column=2)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"num.partitions": PARTITIONS}) as running:
        yield running
    pool.close()


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    opened = Client(settings_of(broker))
    yield opened
    opened.close()
    broker.faults.clear()


def settings_of(broker: EmbeddedBroker, **chosen: Any) -> ClientSettings:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return ClientSettings(((host, int(port)),), retry_backoff_ms=5, retry_backoff_max_ms=50, **chosen)


def rows(topic: str, first: int, end: int) -> pa.RecordBatch:
    numbers = range(first, end)
    return pa.RecordBatch.from_pydict(
        {
            "key": [b"%d" % number for number in numbers],
            "value": [b"%08d" % number + b"." * 92 for number in numbers],
            "topic": [topic] * len(numbers),
        }
    )


class Writer:
    """An encoder and a producer, as a task has them."""

    def __init__(
        self,
        client: Client,
        settings: ProducerSettings = SMALL,
        identity: ProducerIdentity | None = None,
        *,
        idempotent: bool = True,
    ) -> None:
        transactions = TransactionClient(client)
        if identity is None and idempotent:
            identity = transactions.init_producer_id(None, 60_000)
        self.limits: list[tuple[str, int]] = []
        self.producer = Producer(client, settings, identity, transactions, self._limit)
        self.encoder = RowEncoder(LAYOUT, self.producer.topics.partition_count, settings)

    def _limit(self, topic: str, size: int) -> None:
        self.limits.append((topic, size))
        self.encoder.limit(topic, size)

    def write(self, batch: pa.RecordBatch) -> None:
        self.producer.send(self.encoder.encode(batch))

    def flush(self) -> None:
        self.producer.send(self.encoder.finish())
        self.producer.flush()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.producer.close()


def stored(client: Client, topic: str, *, committed: bool = False) -> dict[int, list[int]]:
    """Read the numbers that the values of a topic begin with, partition by partition."""
    reader = Client(replace(client.settings, read_committed=committed))
    found = {}
    known = reader.topics([topic])
    ends = reader.offsets({(topic, partition): LATEST for partition in known[topic].partitions}, known)
    for (_, partition), end in ends.items():
        decoder = RecordDecoder(topic, partition)
        wanted = FetchRange(topic, known[topic].topic_id, partition, 0, end)
        found[partition] = [
            int(value[:8])
            for fetched in (RangeFetcher(reader, decoder, wanted, 10_000).ahead() if end else ())
            for batch in decoder.rows(fetched.data, fetched.scanned, 0, end, fetched.aborted)
            for value in batch.column("value").to_pylist()
        ]
    reader.close()
    return found


def complete_and_in_order(client: Client, topic: str, count: int) -> None:
    found = stored(client, topic)
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(count))


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("acks", [-1, 1])
def test_rows_arrive_in_order(client: Client, acks: int, compression: Compression) -> None:
    topic = f"plain-{acks}-{compression.name}"
    with Writer(client, replace(SMALL, acks=acks, compression=compression)) as writer:
        for first in range(0, 1000, 100):
            writer.write(rows(topic, first, first + 100))
        writer.flush()
        assert writer.producer.rows == 1000
        writer.write(rows(topic, 1000, 1100))
        writer.flush()
    complete_and_in_order(client, topic, 1100)


def test_without_idempotence_and_without_answers(client: Client) -> None:
    with Writer(client, replace(SMALL, acks=0), idempotent=False) as writer:
        writer.write(rows("unanswered", 0, 500))
        writer.flush()
        assert writer.producer.rows == 500
    # The same connection's answer comes behind all of them.
    with Writer(client, idempotent=False) as writer:
        writer.write(rows("unanswered", 500, 501))
        writer.flush()
    complete_and_in_order(client, "unanswered", 501)


Trouble = Callable[[EmbeddedBroker, str], Any]
TROUBLES: dict[str, Trouble] = {
    "lost requests": lambda broker, topic: broker.faults.drop_before(api="Produce", topic=topic, times=2),
    "lost answers": lambda broker, topic: broker.faults.drop_after(api="Produce", topic=topic, nth=2, times=3),
    "moved leader": lambda broker, topic: broker.faults.fail(
        "NOT_LEADER_OR_FOLLOWER", api="Produce", topic=topic, partition=1, nth=2, times=2
    ),
    "too few replicas": lambda broker, topic: broker.faults.fail(
        "NOT_ENOUGH_REPLICAS", api="Produce", topic=topic, times=4
    ),
    "full disk": lambda broker, topic: broker.faults.disk_full(topic=topic, nth=5, times=2),
    "no metadata": lambda broker, topic: (
        broker.faults.fail("NOT_LEADER_OR_FOLLOWER", api="Produce", topic=topic, nth=4, times=1),
        broker.faults.fail("UNKNOWN_TOPIC_OR_PARTITION", api="Metadata", times=2),
    )[0],
}


@each_case("trouble", TROUBLES.values(), ids=list(TROUBLES))
@each_case("known", [True, False], ids=["known producer", "new producer"])
def test_trouble_that_passes_is_not_seen(trouble: Trouble, known: bool) -> None:
    topic = "trouble"
    with EmbeddedBroker(config={"num.partitions": PARTITIONS}) as own:
        client = Client(settings_of(own))
        with Writer(client) as writer:
            first = 30 if known else 0
            writer.write(rows(topic, 0, first))
            writer.flush()
            with trouble(own, topic):
                for begin in range(first, 1000, 50):
                    writer.write(rows(topic, begin, min(begin + 50, 1000)))
                writer.flush()
            assert writer.producer.rows == 1000
        complete_and_in_order(client, topic, 1000)
        client.close()
        pool.close()


def test_a_broker_that_restarts_in_the_middle() -> None:
    with EmbeddedBroker(config={"num.partitions": PARTITIONS}) as own:
        client = Client(settings_of(own))
        with Writer(client) as writer, own.faults.restart(api="Produce", nth=4, after_effect=True):
            for first in range(0, 1000, 50):
                writer.write(rows("restarted", first, first + 50))
            writer.flush()
        complete_and_in_order(client, "restarted", 1000)
        client.close()
        pool.close()


PASSING_ERRORS = ("NOT_LEADER_OR_FOLLOWER", "NOT_ENOUGH_REPLICAS", "REQUEST_TIMED_OUT", "KAFKA_STORAGE_ERROR")


def some_trouble(broker: EmbeddedBroker, topic: str, draw: random.Random) -> None:
    """Let a few requests fail, each in a way of its own, somewhere in the next hundred."""
    faults = broker.faults
    for _ in range(draw.randint(1, 5)):
        where: Any = {"api": "Produce", "topic": topic, "nth": draw.randint(1, 100), "times": draw.randint(1, 3)}
        if draw.random() < 0.5:
            where["partition"] = draw.randrange(PARTITIONS)
        kind = draw.randrange(4)
        if kind == 0:
            faults.drop_before(must_fire=False, **where)
        elif kind == 1:
            faults.drop_after(must_fire=False, **where)
        elif kind == 2:
            faults.delay(draw.randint(1, 20), must_fire=False, **where)
        else:
            faults.fail(draw.choice(PASSING_ERRORS), must_fire=False, **where)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, 300))])
def test_any_trouble_that_passes_is_not_seen(broker: EmbeddedBroker, client: Client, seed: int) -> None:
    draw = random.Random(seed)  # the seed is in the test's name
    topic = f"any-{seed}"
    settings = replace(SMALL, batch_bytes=draw.choice([500, 2000]), max_in_flight=draw.randint(1, 5))
    with Writer(client, settings) as writer:
        some_trouble(broker, topic, draw)
        count = 0
        while count < 1500:
            end = min(count + draw.randint(1, 200), 1500)
            writer.write(rows(topic, count, end))
            count = end
            if draw.random() < 0.1:
                writer.flush()
        writer.flush()
        assert writer.producer.rows == count
    complete_and_in_order(client, topic, count)


def test_leaders_on_two_brokers_that_change_all_the_time(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One broker under two names: so there are two connections, and a partition goes from one to the other."""
    moves = random.Random(1)
    with Writer(client) as writer:
        known = writer.producer.topics.leader

        def leader(topic: str, partition: int) -> Leader:
            return replace(known(topic, partition), host=moves.choice(["127.0.0.1", "localhost"]))

        monkeypatch.setattr(writer.producer.topics, "leader", leader)
        with broker.faults.fail("NOT_LEADER_OR_FOLLOWER", api="Produce", topic="moving", nth=10, times=3):
            for first in range(0, 1000, 50):
                writer.write(rows("moving", first, first + 50))
            writer.flush()
    complete_and_in_order(client, "moving", 1000)


def test_a_request_in_more_parts_than_the_socket_takes_at_a_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "MAX_PARTS", 2)
    with Writer(client, replace(SMALL, batch_bytes=400_000)) as writer:
        writer.write(rows("parts", 0, 20_000))
        writer.flush()
    complete_and_in_order(client, "parts", 20_000)


def test_as_many_requests_in_flight_as_are_allowed(broker: EmbeddedBroker, client: Client) -> None:
    def write_all() -> None:
        writer.write(rows("window", 1, 200))
        writer.flush()

    with Writer(client, replace(SMALL, max_in_flight=2)) as writer:
        writer.write(rows("window", 0, 1))
        writer.flush()
        with broker.faults.pause(api="Produce", topic="window") as paused:
            sending = threading.Thread(target=write_all)
            sending.start()
            paused.wait()
            assert sum(map(len, writer.producer._in_flight.values())) <= 2
            paused.remove()
            sending.join()
    complete_and_in_order(client, "window", 200)


def test_gives_up_after_the_delivery_timeout(broker: EmbeddedBroker, client: Client) -> None:
    with (
        Writer(client, replace(SMALL, delivery_timeout_ms=100)) as writer,
        broker.faults.fail("NOT_ENOUGH_REPLICAS", api="Produce", topic="slow"),
    ):
        writer.write(rows("slow", 0, 1))
        with pytest.raises(DeliveryTimeoutError, match=r"slow-\d .*timeout.ms=100; .*NOT_ENOUGH_REPLICAS"):
            writer.flush()


def test_a_broker_that_never_answers(broker: EmbeddedBroker, client: Client) -> None:
    with (
        Writer(client, replace(SMALL, delivery_timeout_ms=100)) as writer,
        broker.faults.pause(api="Produce", topic="silent"),
    ):
        writer.write(rows("silent", 0, 1))
        with pytest.raises(DeliveryTimeoutError, match=r"silent-\d .*timed out"):
            writer.flush()


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_batches_that_are_too_large_are_cut(compression: Compression) -> None:
    with EmbeddedBroker(config={"num.partitions": 1, "message.max.bytes": 1500}) as own:
        client = Client(settings_of(own))
        with Writer(client, ProducerSettings(compression=compression, batch_bytes=100_000)) as writer:
            for first in range(0, 3000, 500):
                writer.write(rows("cut", first, first + 500))
            writer.flush()
            assert writer.producer.rows == 3000
            assert writer.limits
            assert writer.limits[-1][1] < 100_000
        complete_and_in_order(client, "cut", 3000)
        client.close()
        pool.close()


def test_a_record_that_is_too_large_is_an_error_that_says_so() -> None:
    with EmbeddedBroker(config={"num.partitions": 1, "message.max.bytes": 1500}) as own:
        client = Client(settings_of(own))
        with Writer(client) as writer:
            writer.write(pa.RecordBatch.from_pydict({"key": [b"k"], "value": [b"v" * 3000], "topic": ["big"]}))
            with pytest.raises(RecordTooLargeError, match=r"big-0 takes 30\d\d bytes.*max.message.bytes"):
                writer.flush()
        client.close()
        pool.close()


def test_a_gap_in_the_sequence_that_no_resending_fills(client: Client) -> None:
    with Writer(client) as writer:
        writer.write(rows("gap", 0, 30))
        writer.flush()
        for place in writer.producer._sequences:
            writer.producer._sequences[place] += 5
        writer.write(rows("gap", 30, 60))
        with pytest.raises(DeliveryRefusedError, match=r"gap-\d: OUT_OF_ORDER_SEQUENCE_NUMBER.*lost records"):
            writer.flush()


def test_sequences_wrap_after_the_largest(client: Client) -> None:
    with Writer(client) as writer:
        writer.producer._sequences.update({("wrapped", partition): 2**31 - 3 for partition in range(PARTITIONS)})
        for first in range(0, 100, 10):
            writer.write(rows("wrapped", first, first + 10))
            writer.flush()
        assert all(0 < sequence < 100 for sequence in writer.producer._sequences.values())
    complete_and_in_order(client, "wrapped", 100)


def test_rows_of_a_transaction_are_seen_when_it_is_committed(broker: EmbeddedBroker, client: Client) -> None:
    transactions = TransactionClient(client)
    identity = transactions.init_producer_id("task-1", 60_000)
    asked: list[Any] = []

    def note(request: Any) -> bool:
        asked.append(request)
        return True

    with (
        Writer(client, SMALL, identity) as writer,
        broker.faults.delay(0, api="AddPartitionsToTxn", predicate=note),
    ):
        for first in range(0, 900, 100):
            writer.write(rows("prepared", first, first + 100))
        writer.flush()
        assert writer.producer.rows == 900
    assert 1 <= len(asked) <= PARTITIONS
    assert not any(stored(client, "prepared", committed=True).values())
    transactions.end(identity, commit=True)
    found = stored(client, "prepared", committed=True)
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(900))


def test_a_producer_that_was_fenced_says_so(client: Client) -> None:
    transactions = TransactionClient(client)
    identity = transactions.init_producer_id("fenced-task", 60_000)
    with Writer(client, SMALL, identity) as writer:
        writer.write(rows("fenced", 0, 300))
        writer.flush()
        transactions.init_producer_id("fenced-task", 60_000)
        writer.write(rows("fenced", 300, 400))
        with pytest.raises(FencedProducerError, match="fenced-task"):
            writer.flush()
    assert not any(stored(client, "fenced", committed=True).values())


def test_topics_that_do_not_exist() -> None:
    with EmbeddedBroker(config={"auto.create.topics.enable": False}) as own:
        client = Client(settings_of(own, api_timeout_ms=100))
        with Writer(client) as writer, pytest.raises(MissingTopicError, match=r"\(nowhere\).*create it first"):
            writer.write(rows("nowhere", 0, 1))
        client.close()
        pool.close()


def test_several_topics_in_one_request(broker: EmbeddedBroker, client: Client) -> None:
    with Writer(client) as writer:
        writer.write(pa.concat_batches([rows("left", 0, 100), rows("right", 0, 100), rows("left", 100, 200)]))
        writer.flush()
    complete_and_in_order(client, "left", 200)
    complete_and_in_order(client, "right", 100)


def test_a_batch_that_a_broker_refuses(client: Client) -> None:
    with Writer(client) as writer:
        broken = EncodedBatch("refused", 0, 1, encode_batch([_record()]))
        broken.data[16] = 1  # the magic of a format that this version of Produce does not carry
        writer.producer.send([broken])
        with pytest.raises(DeliveryRefusedError, match="refused-0: "):
            writer.flush()


def test_a_clock_that_is_ahead_is_named(client: Client) -> None:
    with Writer(client) as writer:
        ahead = EncodedBatch("refused", 0, 1, encode_batch([_record(time.time_ns() // 1_000_000 + 2 * 3_600_000)]))
        writer.producer.send([ahead])
        with pytest.raises(DeliveryRefusedError) as error:
            writer.flush()
    for said in (
        "INVALID_TIMESTAMP",
        "this machine's clock",
        "message.timestamp.type=LogAppendTime of the topic refused",
    ):
        assert said in str(error.value)


def _record(timestamp_ms: int = 0) -> Any:
    from sparkonce.kafka.protocol.records import Record

    return Record(b"k", b"00000001", timestamp_ms)


def test_one_that_is_given_up_leaves_no_connection_open(client: Client) -> None:
    """A worker keeps some from task to task, and gives up those it has not used for the longest."""
    producer = Producer(client, ProducerSettings(), None)
    sender = producer._sender
    sender.topics_now([])
    assert sender._connections
    del producer
    gc.collect()
    assert not sender._connections
