"""The simulated disk keeps what it must, and loses what it may."""

from __future__ import annotations

import errno
import random

import pytest

from lab.sim.disk import CutShort, SimulatedDisk


def after_a_loss_of_power(seed: int, *, torn: bool = False, flushed: bytes = b"1234", more: bytes = b"5678") -> bytes:
    disk = SimulatedDisk()
    file = disk.open("/a")
    file.append(flushed)
    file.flush()
    file.append(more)
    disk.lose_power(random.Random(seed), torn)
    return disk.read("/a")


def test_a_loss_of_power_keeps_what_was_flushed_and_any_part_of_the_rest() -> None:
    left = {after_a_loss_of_power(seed) for seed in range(60)}
    assert left == {b"1234", b"12345", b"123456", b"1234567", b"12345678"}


def test_a_torn_end_may_be_zeros() -> None:
    left = {after_a_loss_of_power(seed, torn=True) for seed in range(60)}
    assert all(each.startswith(b"1234") for each in left)
    assert any(each.endswith(b"\0") for each in left)


def test_a_cut_may_be_undone_until_anything_is_flushed() -> None:
    left = set()
    for seed in range(30):
        disk = SimulatedDisk()
        file = disk.open("/a")
        file.append(b"123456")
        file.flush()
        file.truncate(2)
        file.append(b"xy")
        disk.lose_power(random.Random(seed), torn=False)
        left.add(disk.read("/a"))
    assert {b"123456", b"12"} <= left <= {b"123456", b"12", b"12x", b"12xy"}


def test_a_flush_of_another_file_makes_a_cut_durable() -> None:
    for seed in range(30):
        disk = SimulatedDisk()
        file = disk.open("/a")
        file.append(b"123456")
        file.flush()
        file.truncate(2)
        disk.write("/b", b"new", durable=True)
        disk.lose_power(random.Random(seed), torn=False)
        assert disk.read("/a") == b"12"
        assert disk.read("/b") == b"new"


def test_a_file_replaced_without_a_flush_is_the_old_one_or_some_of_the_new() -> None:
    left = set()
    for seed in range(60):
        disk = SimulatedDisk()
        disk.write("/a", b"old", durable=True)
        disk.write("/a", b"new", durable=False)
        disk.lose_power(random.Random(seed), torn=False)
        left.add(disk.read("/a"))
    assert left == {b"old", b"", b"n", b"ne", b"new"}


def test_a_dead_process_loses_nothing() -> None:
    disk = SimulatedDisk()
    disk.open("/a").append(b"1234")
    disk.lock("/lock")
    disk.process_died()
    assert disk.read("/a") == b"1234"
    disk.lock("/lock")


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    disk = SimulatedDisk()
    disk.room = 3
    file = disk.open("/a")
    with pytest.raises(OSError, match="No space left") as refused:
        file.append(b"1234")
    assert refused.value.errno == errno.ENOSPC
    assert disk.read("/a") == b"123"


def test_a_fuse_cuts_a_change_short() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a")
    disk.fuse = 1
    file.append(b"1")
    with pytest.raises(CutShort):
        file.append(b"2")
    with pytest.raises(CutShort):
        disk.write("/b", b"", durable=False)
    assert disk.read("/a") == b"1"
    disk.process_died()
    file.append(b"3")
    assert disk.read("/a") == b"13"


def test_a_broken_disk_is_only_read() -> None:
    disk = SimulatedDisk()
    file = disk.open("/a")
    file.append(b"1")
    disk.broken = True
    for change in (lambda: file.append(b"2"), file.flush, lambda: file.truncate(0), lambda: disk.remove("/a")):
        with pytest.raises(OSError, match="Input/output error"):
            change()
    assert disk.read("/a") == b"1"


def test_a_flush_that_fails_leaves_the_disk_as_it_is_and_is_told_again() -> None:
    disk = SimulatedDisk()
    disk.open("/a").append(b"1")
    disk.flush_errors = [OSError(errno.EIO, "bad")]
    flush = disk.flush_later(["/a"])
    for _ in range(2):
        with pytest.raises(OSError, match="bad"):
            flush.result()
    assert flush.done()
    disk.lose_power(Nothing())
    assert disk.read("/a") == b""


class Nothing(random.Random):
    """Keeps as little as may be kept."""

    def randint(self, a: int, b: int) -> int:
        return a


def test_a_directory_takes_its_files_along() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/a")
    disk.now_ms = 7
    disk.write("/a/x", b"1", durable=True)
    disk.set_modified_ms("/a/x", 3)
    disk.rename("/a", "/b")
    assert disk.read("/b/x") == b"1"
    assert disk.modified_ms("/b/x") == 3
    assert disk.is_directory("/b")
    assert not disk.is_directory("/a")
    with pytest.raises(FileNotFoundError):
        disk.rename("/a", "/c")


def test_what_a_disk_that_lies_has_flushed_may_be_lost() -> None:
    left = set()
    for seed in range(60):
        disk = SimulatedDisk()
        disk.write("/b", b"old", durable=True)
        disk.lies = True
        file = disk.open("/a")
        file.append(b"1234")
        file.flush()
        disk.write("/b", b"new", durable=True)
        disk.lose_power(random.Random(seed))
        left.add((disk.read("/a"), disk.read("/b")))
        assert disk.has_lost == ((disk.read("/a"), disk.read("/b")) != (b"1234", b"new"))
    assert {a for a, _ in left} == {b"", b"1", b"12", b"123", b"1234"}
    assert {b"old", b"new"} <= {b for _, b in left}


def test_a_disk_that_has_lied_keeps_what_is_flushed_from_then_on() -> None:
    disk = SimulatedDisk()
    disk.lies = True
    file = disk.open("/a")
    file.append(b"12")
    file.flush()
    disk.lies = False
    file.append(b"34")
    file.flush()
    disk.lose_power(random.Random(1))
    assert disk.read("/a") == b"1234"


@pytest.mark.parametrize("is_flushed", [True, False])
def test_what_a_disk_that_lies_has_promised_and_lost_is_known(is_flushed: bool) -> None:
    disk = SimulatedDisk()
    disk.lies = True
    file = disk.open("/a")
    file.append(b"12")
    if is_flushed:
        file.flush()
    disk.lose_power(Nothing())
    assert disk.read("/a") == b""
    assert disk.files["/a"].is_damaged == is_flushed


def test_another_disk_is_empty() -> None:
    disk = SimulatedDisk()
    disk.lies = True
    disk.write("/d/a", b"1", durable=True)
    disk.make_directory("/d")
    disk.lose_power(Nothing())
    assert disk.has_lost
    disk.replace()
    assert (disk.files, disk.is_directory("/d"), disk.has_lost) == ({}, False, False)
