"""A pipeline's leftovers in Kafka besides records: open transactions, and the offsets of its group.

Read with kafka-python's and librdkafka's own clients, since they must find what the sink may
have forgotten. An unfinished transaction blocks every read_committed reader of its partitions: so none may be
open, and the last stable offset of each partition must be its log end.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.admin._transactions import TransactionState
from kafka.errors import KafkaError

from lab.bench.load import DEADLINE_S, LoadError, admin_of
from lab.verify.records import PARTITIONS

_OPEN = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
)


def open_transactions(bootstrap_servers: str, app_id: str) -> list[str]:
    """Return a pipeline's unfinished transactions: id and state of each, in words.

    Raises:
        LoadError: if the broker returns an error.
    """
    prefix = f"sparkonce/{quote(app_id, safe='')}/"
    try:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
        try:
            listings = [each for of_broker in admin.list_transactions().values() for each in of_broker]
        finally:
            admin.close()
    except KafkaError as error:
        raise LoadError(f"the transactions of {bootstrap_servers}: {error}") from error
    ours = sorted(each for each in listings if each.transactional_id.startswith(prefix))
    return [f"{each.transactional_id} is {each.state.value}" for each in ours if each.state in _OPEN]


def held_up(bootstrap_servers: str, topics: Sequence[str]) -> list[str]:
    """Return the partitions of ``topics`` whose last stable offset is not their log end offset, in words.

    Raises:
        LoadError: if the broker returns an error.
    """
    admin = admin_of(bootstrap_servers)
    stable = _ends(admin, topics, IsolationLevel.READ_COMMITTED)
    ends = _ends(admin, topics, IsolationLevel.READ_UNCOMMITTED)
    return [
        f"{topic}-{partition} is stable to {stable[topic, partition]} of {end}"
        for (topic, partition), end in ends.items()
        if stable[topic, partition] != end
    ]


def lags(bootstrap_servers: str, group: str, topic: str) -> list[str]:
    """Return the partitions of ``topic`` whose committed offset is not their end, in words.

    Raises:
        LoadError: if the broker returns an error.
    """
    ends = _ends(admin_of(bootstrap_servers), [topic], IsolationLevel.READ_COMMITTED)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 2})
    try:
        committed = consumer.committed([TopicPartition(*each) for each in ends], timeout=DEADLINE_S)
    except KafkaException as error:
        raise LoadError(f"the offsets of group {group}: {error}") from error
    finally:
        consumer.close()
    return [
        f"{each.topic}-{each.partition} is at {each.offset} of {ends[each.topic, each.partition]}"
        for each in committed
        if each.offset != ends[each.topic, each.partition]
    ]


def _ends(admin: AdminClient, topics: Sequence[str], isolation: IsolationLevel) -> dict[tuple[str, int], int]:
    partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
    if not partitions:
        return {}
    wanted = {each: OffsetSpec.latest() for each in partitions}
    try:
        found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=DEADLINE_S)
        return {(each.topic, each.partition): future.result().offset for each, future in found.items()}
    except KafkaException as error:
        raise LoadError(f"the ends of {', '.join(topics)}: {error}") from error
