"""What pages may change in a cluster, if that is allowed: send a message, create a topic."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing

from sparkonce.connectors.kafka_sink.producer import DeliveryRefusedError, RecordTooLargeError
from sparkonce.connectors.kafka_sink.transactions import TransactionError
from sparkonce.jobs.cli.send import opened_producer, write
from sparkonce.jobs.ui.errors import RefusedError
from sparkonce.kafka.client.client import Client
from sparkonce.kafka.client.producer_settings import of_producer, read_producer
from sparkonce.kafka.client.settings import read_settings
from sparkonce.kafka.client.topic_creation import create_topic
from sparkonce.kafka.protocol.errors import RETRIABLE, ErrorCode, KafkaError
from sparkonce.settings import INT_MAX

NAMED = "sparkonce ui"
PATIENCE = {"kafka.max.block.ms": "5000", "kafka.delivery.timeout.ms": "8000", "kafka.request.timeout.ms": "4000"}
"""The patience of sending, by default: a person waits for it."""
TURN_S = 10.0
"""How long a message waits for another one."""
_sending = threading.Lock()
"""One message at a time: what sends it closes all connections of this process' producers."""


def send_message(
    options: Mapping[str, str], topic: str, key: bytes | None, value: bytes | None, partition: int | None
) -> None:
    """Send a message to a topic that exists. Raises RefusedError if it is not written for certain."""
    connecting, sending = read_producer(of_producer({**PATIENCE, **options}), NAMED)
    if not _sending.acquire(timeout=TURN_S):
        raise RefusedError("It was not written: another message is still being sent. Send it again later.")
    try:
        with opened_producer(connecting, sending, topic, NAMED) as producer:
            write(producer, topic, key, [value], partition)
    except (DeliveryRefusedError, KafkaError, LookupError, OSError, RecordTooLargeError, TransactionError) as error:
        raise RefusedError(f"It may not be written: {str(error).removeprefix('kafka_once: ')}.") from error
    finally:
        _sending.release()


def make_topic(options: Mapping[str, str], name: str, partitions: int) -> None:
    """Create a topic; -1 partitions: as many as the brokers do by default. Raises RefusedError if it may not be."""
    if partitions != -1 and not 1 <= partitions <= INT_MAX:
        raise RefusedError(f"A topic has 1 to {INT_MAX:,} partitions.")
    with closing(Client(read_settings(options), NAMED)) as client:

        def attempt() -> tuple[ErrorCode, str]:
            code, message = create_topic(client, name, partitions)
            if code in RETRIABLE:
                raise KafkaError(code, f"create the topic {name}: {message}")
            return code, message

        try:
            code, message = client.retry(f"create the topic {name}", attempt)
        except (KafkaError, OSError) as error:
            raise RefusedError(f"It may not be created, or be created later: {error}.") from error
    if code is not ErrorCode.NONE:
        raise RefusedError(f"The brokers refuse it: {code.name}{f' ({message})' if message else ''}.")
