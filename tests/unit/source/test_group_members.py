"""Assignments in the format of Kafka's consumers, and what is none."""

from __future__ import annotations

import pytest

from sparkonce.kafka.client.groups import assigned_partitions

TWO = bytes.fromhex("0003 00000002 0001 61 00000002 00000000 00000002 0002 6263 00000000 ffffffff")


def test_partitions_by_topic() -> None:
    assert assigned_partitions(TWO) == (("a", (0, 2)), ("bc", ()))


@pytest.mark.parametrize("length", range(29))
def test_what_is_cut_off_is_none(length: int) -> None:
    assert assigned_partitions(TWO[:length]) == ()


@pytest.mark.parametrize("data", [b"\0\1\xff\xff\xff\xff", b"\0\1\0\0\0\1\0\1\xff\0\0\0\0", b"\0\1\0\0\0\1\xff\xfe"])
def test_what_is_no_assignment_is_none(data: bytes) -> None:
    assert assigned_partitions(data) == ()
