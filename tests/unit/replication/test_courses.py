"""The courses of events in KIP-101 and KIP-279: an older rule loses or splits a log, today's does not."""

from __future__ import annotations

from collections.abc import Callable

from lab.sim.planted.state_machines import PLANTED
from tests.unit.replication.stage import AsksOnce, Stage

TO_HIGH_WATERMARK = next(each.plant for each in PLANTED if each.name == "truncate-to-high-watermark")
"""What a follower did before KIP-101: it cut its log to its own high watermark, which is a fetch behind."""


def a_follower_restarts_and_is_elected() -> Stage:
    """KIP-101, scenario 1."""
    stage = Stage(2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.produce("m2")
    stage.fetch(2)
    stage.fetch(2, answer_lost=True)  # m2 is in both logs, and acknowledged; broker 2's high watermark is still 1
    assert stage.acknowledged == {"m1": 0, "m2": 1}
    stage.restart_in_session(2)  # it stays in sync: nobody has noticed
    stage.crash(1)
    stage.end_leases(1)  # broker 2 is elected
    stage.start(1)
    stage.catch_up(1)
    stage.alter_in_sync()
    return stage


def all_lose_power() -> Stage:
    """KIP-101, scenario 2: who has lost a record leads first, and takes another one at its offset."""
    stage = Stage(2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.flush(1)
    stage.flush(2)
    stage.produce("m2")
    stage.catch_up(2)
    stage.flush(1)  # broker 2 has m2 in its page cache only
    stage.crash(1, 2, power=True)
    stage.end_leases(1, 2)
    stage.start(2, asked=False)  # before KIP-966 the controller did not ask how it had stopped
    stage.produce("m3")
    stage.start(1, asked=False)
    stage.produce("m4")
    stage.catch_up(1)
    stage.alter_in_sync()
    return stage


def leadership_goes_there_and_back(kind: type[Stage]) -> Stage:
    """KIP-279: so fast that the first leader never follows. The offsets that differ are those of acks=1."""
    stage = kind(2, least=2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.produce("m2", acks=1)  # broker 2 has yet to fetch it
    stage.nodes[1].hears = False
    stage.end_leases(1)  # broker 1 hangs, broker 2 leads
    stage.produce("n2", acks=1)  # at the offset of m2
    stage.crash(2)
    stage.end_leases(1, 2)
    stage.nodes[1].hears = True
    stage.heartbeat(1)  # broker 1 leads again, m2 still in its log
    stage.produce("m3", acks=1)
    stage.start(2)
    stage.fetch(2)
    stage.catch_up(2)
    stage.alter_in_sync()
    return stage


def figures(course: Callable[[], Stage]) -> tuple[int, int]:
    """Play a course: acknowledged records that are lost, and offsets at which logs differ."""
    stage = course()
    return len(stage.lost()), stage.diverged()


def test_a_follower_cuts_only_what_its_leader_does_not_have() -> None:
    assert figures(a_follower_restarts_and_is_elected) == (0, 0)
    with TO_HIGH_WATERMARK():
        assert figures(a_follower_restarts_and_is_elected) == (1, 0)


def test_a_follower_cuts_where_the_epoch_of_its_last_record_ended() -> None:
    """By either rule m2 is lost: it was on one disk, and that broker came back second."""
    assert figures(all_lose_power) == (1, 0)
    with TO_HIGH_WATERMARK():
        assert figures(all_lose_power) == (1, 1)


def test_a_follower_asks_until_the_epochs_agree() -> None:
    assert figures(lambda: leadership_goes_there_and_back(Stage))[1] == 0
    assert figures(lambda: leadership_goes_there_and_back(AsksOnce))[1] == 1
