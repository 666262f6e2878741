"""Records of the transaction log: read back as they were written, and Kafka's to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkonce.broker_lite.coordinators.transaction_log import decode_key, decode_value, encode, encode_tombstone
from sparkonce.broker_lite.coordinators.transaction_messages import (
    EPOCH_BUMP,
    LEGACY,
    Transaction,
    TransactionState,
)
from sparkonce.broker_lite.coordinators.transactions import (
    MAX_EPOCH,
)
from sparkonce.kafka.protocol.errors import ProtocolError

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)
longs = st.integers(-1, 2**63 - 1)


@given(
    st.builds(
        Transaction,
        names,
        st.integers(0, 2**63 - 1),
        st.integers(1, 2**31 - 1),
        st.sampled_from([each for each in TransactionState if each is not TransactionState.EMPTY]),
        st.integers(0, MAX_EPOCH),
        previous_producer_id=longs,
        next_producer_id=longs,
        partitions=st.frozensets(st.tuples(names, st.integers(0, 2**31 - 1)), max_size=5),
        start_ms=longs,
        last_update_ms=longs,
        client_version=st.sampled_from([LEGACY, EPOCH_BUMP]),
    )
)
def test_a_record_is_read_back(transaction: Transaction) -> None:
    record = encode(transaction, 1)
    assert record.value is not None
    assert decode_key(record.key) == transaction.transactional_id
    assert decode_value(transaction.transactional_id, record.value) == transaction
    assert encode_tombstone(transaction.transactional_id, 1).key == record.key


def test_the_records_bytes_are_kafkas() -> None:
    transaction = Transaction(
        "x", 5, 60_000, TransactionState.ONGOING, 2, 1, 4, partitions=frozenset({("t", 1), ("t", 0)}), start_ms=7,
        last_update_ms=8, client_version=2,
    )  # fmt: skip
    record = encode(transaction, 1)
    assert record.key == bytes.fromhex("0000 0001 78")
    head = "0001 0000000000000005 0002 0000ea60 01"
    partitions = "02 02 74 03 00000000 00000001 00"
    times = "0000000000000008 0000000000000007"
    tags = "02 00 08 0000000000000004 02 02 0002"
    assert record.value == bytes.fromhex(head + partitions + times + tags)


def test_values_of_version_0_are_read_and_later_ones_refused() -> None:
    value = bytes.fromhex("0000 0000000000000005 0002 0000ea60 01 00000001 0001 74 00000001 00000003") + bytes(16)
    assert decode_value("x", value).partitions == {("t", 3)}
    empty = bytes.fromhex("0000 0000000000000005 0002 0000ea60 00 ffffffff") + bytes(16)
    assert decode_value("x", empty).partitions == frozenset()
    with pytest.raises(ProtocolError, match="version 2"):
        decode_value("x", b"\0\2" + value[2:])
    with pytest.raises(ProtocolError, match="state 9"):
        decode_value("x", value[:16] + b"\x09" + value[17:])
    assert decode_key(b"\0\1\0\0") is None
