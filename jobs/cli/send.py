"""The command `sparkonce send`: values as records of a topic, written once and acknowledged."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

from sparkonce.broker_lite.config import ConfigError
from sparkonce.jobs.shared.arguments import UsageError, add_kafka, whole_number
from sparkonce.jobs.shared.exit_status import FAILED, GOOD, USAGE
from sparkonce.jobs.shared.kafka_options import settings_from
from sparkonce.options import OptionError
from sparkonce.words import counted

if TYPE_CHECKING:
    from io import BufferedReader

    from sparkonce.connectors.kafka_sink.producer import Producer
    from sparkonce.kafka.client.producer_settings import ProducerSettings
    from sparkonce.kafka.client.settings import ClientSettings

_READ_BYTES = 1 << 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = (
        "exit status: 0 all are acknowledged; 1 the brokers do not answer, or refuse; 2 the options cannot be used. "
        "sparkonce peek shows what is there"
    )
    parser.add_argument("topic", metavar="TOPIC", help="it is created, if the brokers create topics")
    add_kafka(parser, "brokers to send to")
    parser.add_argument(
        "--value", action="append", help="a value; repeatable. Without any, each line of standard input is one"
    )
    parser.add_argument("--key", help="the key of all these records, which decides their partition")
    parser.add_argument("-p", "--partition", type=whole_number, help="the partition, whatever the key is")


def run(options: argparse.Namespace) -> int:
    """Send; returns the exit status."""
    from sparkonce.connectors.kafka_sink.producer import DeliveryRefusedError, RecordTooLargeError
    from sparkonce.connectors.kafka_sink.transactions import TransactionError
    from sparkonce.kafka.client.producer_settings import read_producer
    from sparkonce.kafka.protocol.errors import KafkaError

    read, written = partial(read_producer, keeping="sparkonce send"), list[int]()
    try:
        given = settings_from(options, read)
        if not given:
            raise UsageError("--bootstrap-servers is missing: host:port of one or more brokers")
        if options.value is None and sys.stdin is None:
            raise UsageError("standard input is closed: give --value")
        _send(options, *read(given), written)
    except (OptionError, ConfigError, UsageError) as error:
        print(f"sparkonce send: {error}", file=sys.stderr)
        return USAGE
    except (DeliveryRefusedError, KafkaError, LookupError, OSError, RecordTooLargeError, TransactionError) as error:
        print(f"sparkonce send: {str(error).removeprefix('kafka_once: ')}", file=sys.stderr)
        if sum(written):
            told = f"at least {counted(sum(written), 'record')} in {options.topic}, and not all"
            print(f"sparkonce send: {told}: look before you send again", file=sys.stderr)
        return FAILED
    try:
        print(f"{counted(sum(written), 'record')} in {options.topic}", flush=True)
    except OSError:  # they are written, whether anybody can read this or not
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python flushes at exit would fail too
    return GOOD


def _send(
    options: argparse.Namespace, connecting: ClientSettings, sending: ProducerSettings, written: list[int]
) -> None:
    """Send, and add to ``written`` how many records are acknowledged.

    Raises:
        DeliveryRefusedError, KafkaError, LookupError, OSError, RecordTooLargeError, TransactionError: if they cannot
            be written.
    """
    with opened_producer(connecting, sending, options.topic, "sparkonce send") as producer:
        key = None if options.key is None else os.fsencode(options.key)
        try:
            for values in _lines() if options.value is None else [[os.fsencode(each) for each in options.value]]:
                write(producer, options.topic, key, values, options.partition)
        finally:
            written.append(producer.rows)


@contextmanager
def opened_producer(
    connecting: ClientSettings, sending: ProducerSettings, topic: str, named: str
) -> Iterator[Producer]:
    """Open an idempotent producer for a topic. Raises LookupError, KafkaError, OSError or TransactionError."""
    from sparkonce.connectors.kafka_sink.producer import Producer, pool
    from sparkonce.connectors.kafka_sink.topics import Topics
    from sparkonce.connectors.kafka_sink.transactions import TransactionClient
    from sparkonce.kafka.client.client import Client

    with closing(pool), closing(Client(connecting, named)) as client:
        topics = Topics(client)
        topics.partition_count(topic)  # what is wrong with brokers or topic is said by this
        identity = TransactionClient(client).init_producer_id(None, sending.transaction_timeout_ms)
        with closing(Producer(client, sending, identity, topics=topics)) as producer:
            yield producer


def _lines() -> Iterator[Sequence[bytes]]:
    """Yield the lines of standard input, as many as there are at a time."""
    rest = b""
    while read := cast("BufferedReader", sys.stdin.buffer).read1(_READ_BYTES):
        *lines, rest = (rest + read).split(b"\n")
        yield lines
    yield [rest] if rest else []


def write(
    producer: Producer, topic: str, key: bytes | None, values: Sequence[bytes | None], wanted: int | None = None
) -> None:
    """Write values, and wait until they are acknowledged; ``wanted`` is the partition, if that is not the key's."""
    from sparkonce.connectors.kafka_sink.encoded_batch import EncodedBatch
    from sparkonce.kafka.protocol.records import Record, encode_batch

    if not values:
        return
    now_ms = time.time_ns() // 1_000_000
    records = [Record(key, value, now_ms) for value in values]
    partition = _partition(wanted, key, producer.topics.partition_count(topic, wanted))
    producer.send([EncodedBatch(topic, partition, len(records), encode_batch(records))])
    producer.flush()


def _partition(wanted: int | None, key: bytes | None, count: int) -> int:
    """Return the partition that Java's producer takes; without a key any. Raises LookupError if there is none."""
    from kafka.partitioner.default import murmur2

    if wanted is not None:
        if wanted >= count:
            raise LookupError(f"there is no partition {wanted}: the topic has {counted(count, 'partition')}")
        return wanted
    return random.randrange(count) if key is None else (murmur2(key) & 0x7FFFFFFF) % count  # noqa: S311
