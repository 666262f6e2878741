"""Stories of what a follower cuts off its log: by its high watermark, by one question, by leader epochs."""

from __future__ import annotations

from sparkonce.jobs.lab.story.stage import AsksOnce, Stage
from sparkonce.jobs.lab.story.view import Telling


def kip_101_loss(*, old: bool) -> Telling:
    """Let a follower restart, cut a record that it does not know to be safe, and be elected."""
    stage = Stage(2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.step("m1 is written and acknowledged; both know that it is safe: HW 1")
    stage.produce("m2")
    stage.fetch(2)
    stage.step("m2 is written, and broker 2 has it")
    stage.fetch(2, answer_lost=True)
    stage.step(
        "Broker 2 asks from offset 2, so m2 is in both, and acknowledged. The answer is lost: broker 2 still has HW 1"
    )
    stage.restart_in_session(2)
    stage.step(
        "Broker 2 restarts before its session ends, and stays in sync by the controller's word. " + _cut(stage, 2, 2)
    )
    stage.crash(1)
    stage.end_leases(1)
    stage.step("Before broker 2 has fetched again, broker 1 dies. Broker 2 is elected")
    stage.start(1)
    stage.catch_up(1)
    stage.alter_in_sync()
    stage.step(
        "Broker 1 is back and follows" + ("; m2 is beyond the leader's end, and cut off" if stage.lost() else "")
    )
    return stage.tell("high watermark" if old else "leader epoch")


def kip_101_divergence(*, old: bool) -> Telling:
    """Let all lose power, the one that has lost a record lead first, and the other one follow it."""
    stage = Stage(2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.flush(1)
    stage.flush(2)
    stage.step("m1 is written, acknowledged, and on both disks")
    stage.produce("m2")
    stage.catch_up(2)
    stage.flush(1)
    stage.step("m2 is written and acknowledged. Broker 1 has flushed it, broker 2 has it in its page cache only")
    stage.crash(1, 2, power=True)
    stage.end_leases(1, 2)
    stage.step("Both lose power, and broker 2 with it m2")
    stage.start(2, asked=False)
    stage.step("Broker 2 is back first, and leads: the controller of that time did not ask how it had stopped")
    stage.produce("m3")
    stage.step("m3 is written where m2 was")
    stage.start(1, asked=False)
    stage.step("Broker 1 is back, with m1, m2 and HW 2. " + _cut(stage, 1, 2))
    stage.produce("m4")
    stage.catch_up(1)
    stage.alter_in_sync()
    stage.step("m4 is written, and broker 1 fetches from the end of its log")
    return stage.tell("high watermark" if old else "leader epoch")


def kip_279(*, old: bool) -> Telling:
    """Let leadership go there and back so fast that the first leader never follows."""
    stage = (AsksOnce if old else Stage)(2, least=2)
    stage.produce("m1")
    stage.catch_up(2)
    stage.step("m1 is written and acknowledged")
    stage.produce("m2", acks=1)
    stage.step("m2 is written with acks=1; broker 2 has yet to fetch it")
    stage.nodes[1].hears = False
    stage.end_leases(1)
    stage.step("Broker 1 hangs: its lease ends, and broker 2 leads")
    stage.produce("n2", acks=1)
    stage.step("n2 is written to broker 2 with acks=1, at the offset of m2")
    stage.crash(2)
    stage.end_leases(1, 2)
    stage.step("Broker 2 dies. Nobody leads; both are eligible: nothing was acknowledged with acks=all meanwhile")
    stage.nodes[1].hears = True
    stage.heartbeat(1)
    stage.step("Broker 1 goes on, and leads again. It never followed broker 2, so that m2 is still there")
    stage.produce("m3", acks=1)
    stage.step("m3 is written")
    stage.start(2)
    question = "It asks where epoch 1 ends. Broker 1 has no such epoch: epoch 0 ends at 2. "
    stage.fetch(2)
    kept = stage.nodes[2].log.log_end_offset
    stage.step(
        "Broker 2 is back and follows. "
        + question
        + (
            f"Its own log ends there, too: it keeps {kept} records, n2 among them"
            if old
            else f"Broker 2's own epoch 0 ended at 1, so it cuts to {kept} record and asks again"
        )
    )
    stage.catch_up(2)
    stage.alter_in_sync()
    stage.step("Broker 2 has fetched all it could. n2 is lost either way: acks=1 promises no more")
    return stage.tell("one question" if old else "leader epoch")


def kafka_7164(*, old: bool) -> Telling:
    """Let a leader follow for a while and cut its log, and a follower miss that."""
    stage = Stage(3)
    stage.produce("m1")
    stage.fetch(3)
    stage.step(
        "m1 is written to broker 1. Broker 3 has it, broker 2 has not fetched yet, so nobody is told that it is safe"
    )
    stage.nodes[3].hears = False
    stage.nodes[1].hears = False
    stage.end_leases(1)
    stage.step("Broker 1 hangs and loses its lease; broker 2 is elected. Broker 3 is slow to hear of that")
    stage.nodes[1].hears = True
    stage.heartbeat(1)
    stage.catch_up(1)
    stage.step("Broker 1 goes on, follows broker 2, and cuts m1 off")
    stage.alter_in_sync()
    stage.crash(2)
    stage.end_leases(2)
    stage.step("Broker 1 is in sync again. Broker 2 dies, and broker 1 is elected once more")
    stage.produce("m2")
    stage.step("m2 is written where m1 was")
    stage.nodes[3].hears = True
    stage.spread()
    stage.step(
        "Only now broker 3 hears: the epoch is another one, the leader the same. "
        + ("So it goes on with its log as it is" if old else "It begins anew to follow, whoever leads")
    )
    stage.fetch(3)
    stage.step(
        "Broker 3 fetches, m1 still at offset 0" if old else "Broker 3 is told where its log parts, and cuts m1 off"
    )
    stage.produce("m3")
    stage.catch_up(3)
    stage.step("m3 is written, and broker 3 has fetched all it could")
    return stage.tell("same follower" if old else "new follower")


def _cut(stage: Stage, broker_id: int, before: int) -> str:
    now = stage.nodes[broker_id].log.log_end_offset
    return f"It cuts its log to its high watermark, {now}" if now < before else "It cuts nothing off for now"
