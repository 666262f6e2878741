"""Stories of what an acknowledgement is worth: the high watermark's walk, acks, elections of whoever is left."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from sparkonce.broker_lite.controller.controller import Controller
from sparkonce.broker_lite.controller.election import next_state
from sparkonce.broker_lite.controller.image import PartitionKey
from sparkonce.broker_lite.controller.records import NO_LEADER, PartitionChanged, PartitionState, Record
from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.sim.replacing import replaced
from sparkonce.jobs.lab.story.stage import ALL, Stage
from sparkonce.jobs.lab.story.view import Telling


def high_watermark() -> Telling:
    """How log end offsets and high watermarks go, from an empty log to too few in sync."""
    stage = Stage(3, least=2)
    stage.step("Three replicas in sync, min.insync.replicas is 2. All is empty")
    stage.produce("m1")
    stage.step("m1 is written to the leader with acks=all: its log end offset is 1. Nobody is told yet")
    stage.fetch(2)
    stage.step("Broker 2 asks from offset 0 and gets m1. The leader knows only that it had nothing before")
    stage.fetch(3)
    stage.step("Broker 3 asks from offset 0 and gets m1")
    stage.fetch(2)
    stage.step("Broker 2 asks from offset 1, so it has m1. The leader waits for broker 3, which is in sync, too")
    stage.fetch(3)
    stage.step("Broker 3 asks from offset 1: the HW is 1 and m1 is acknowledged. Broker 3 hears the HW in the answer")
    stage.fetch(2)
    stage.step("Broker 2 hears it with its next fetch")
    stage.produce("m2")
    stage.catch_up(2)
    stage.step("m2 is written, and broker 2 has it. Broker 3 is alive but has ceased to fetch: m2 waits for it")
    stage.pass_lag_time()
    stage.step(
        "replica.lag.time.max.ms has passed: the leader proposes to go on without broker 3. That alone moves nothing"
    )
    stage.alter_in_sync()
    stage.step("The controller agrees. The least end of those in sync is 2: m2 is acknowledged")
    stage.fetch(3)
    stage.step("Broker 3 fetches again and has m2. It is not in sync before it asks from the HW or beyond")
    stage.fetch(3)
    stage.alter_in_sync()
    stage.step("Broker 3 asks from offset 2, is proposed, and is in sync again")
    stage.crash(2, 3)
    stage.end_leases(2, 3)
    refused = stage.produce("m3")
    stage.produce("m4", acks=1)
    stage.step(
        f"Brokers 2 and 3 die. acks=all is refused: {refused.name}. m4 comes in with acks=1, and the HW stands still"
    )
    for broker_id in (2, 3):
        stage.start(broker_id)
        stage.catch_up(broker_id)
        stage.alter_in_sync()
    stage.catch_up(2, 3)
    stage.step("Both are back and in sync: the HW goes on")
    return stage.tell("in-sync replicas")


def acks(setting: int) -> Telling:
    """Let the leader die right after a write: who has been promised what."""
    stage = Stage(3, least=2)
    stage.produce("m1", acks=setting)
    stage.catch_up(2, 3)
    stage.step("m1 is written, and in all replicas")
    stage.produce("m2", acks=setting)
    told = {0: "does not wait for an answer", 1: "is told that it is written", ALL: "is told nothing yet"}[setting]
    stage.step(f"m2 is written to the leader only. Its producer {told}")
    stage.crash(1)
    if setting == 0:
        stage.acknowledged["m3"] = -1  # it goes nowhere; nobody hears of that
        stage.step("Broker 1 dies. The producer sends m3, too, and takes it for written")
    else:
        stage.step("Broker 1 dies")
    stage.end_leases(1)
    stage.step("Broker 2 is elected; it never had m2")
    if setting == ALL:
        stage.produce("m2")
        stage.catch_up(3)
        stage.step("The producer has had no answer, and sends m2 again; now it is acknowledged")
    stage.start(1)
    stage.catch_up(1)
    stage.alter_in_sync()
    stage.step("Broker 1 is back, follows, and cuts off what broker 2 does not have")
    return stage.tell(f"acks {'all' if setting == ALL else setting}")


def unclean_election(*, allowed: bool) -> Telling:
    """Leave only one that is out of sync: it may lead, and lose records, or nobody leads."""
    stage = Stage(2, unclean=allowed)
    stage.produce("m1")
    stage.catch_up(2)
    stage.pass_lag_time()
    stage.produce("m2", "m3")
    stage.pass_lag_time()
    stage.alter_in_sync()
    stage.step("Broker 2 has ceased to fetch and is out of sync; m2 and m3 are acknowledged by broker 1 alone")
    stage.crash(1)
    stage.end_leases(1)
    who = "Broker 2 leads all the same: unclean.leader.election.enable is true" if allowed else "Nobody leads"
    stage.step(f"Broker 1 dies. {who}")
    answer = stage.produce("n2")
    refused = int(answer is not ErrorCode.NONE)
    stage.step(f"n2 is refused: {answer.name}" if refused else "n2 is written where m2 was")
    stage.start(1)
    stage.catch_up(*[each for each in (1, 2) if each != stage.state.leader])
    stage.alter_in_sync()
    stage.step("Broker 1 is back, and cuts off m2 and m3" if allowed else "Broker 1 is back, and leads again")
    if refused:
        stage.produce("n2")
        stage.catch_up(2)
        stage.step("n2 is sent again, and written")
    return stage.tell("unclean election" if allowed else "clean election", refused=refused)


def last_in_sync_stays() -> AbstractContextManager[None]:
    """As before KIP-966: the last one in sync stays so, whatever becomes of it, and nobody else is eligible."""

    def move(
        self: Controller,
        key: PartitionKey,
        state: PartitionState,
        in_sync_replicas: Collection[int],
        *,
        unclean: bool = False,
        forgetful: Collection[int] = (),
        prefer_first: bool = False,
    ) -> list[Record]:
        del forgetful
        kept = in_sync_replicas or state.in_sync_replicas
        changed = next_state(state, kept, self.image.may_join, 1, unclean=unclean, prefer_first=prefer_first)
        return [] if changed == state else self._record([PartitionChanged(*key, changed)])

    return replaced(Controller, "_move", move)


def kip_966(*, old: bool) -> Telling:
    """Let the last one in sync lose power and the end of its log, while others still have all of it."""
    stage = Stage(3, least=2)
    stage.produce("m1")
    stage.catch_up(2, 3)
    stage.step("m1 is acknowledged, in all three; none has flushed it. min.insync.replicas is 2")
    stage.nodes[2].hears = stage.nodes[3].hears = False
    stage.end_leases(2, 3)
    stays = "" if old else ". Without broker 3 nothing can be acknowledged any more, so it stays eligible"
    stage.step(f"Brokers 2 and 3 hang, and lose their leases, one after the other{stays}")
    stage.crash(1, power=True)
    stage.end_leases(1, 2, 3)
    stage.step("Broker 1 loses power, and m1 with it")
    stage.start(1)
    leads = stage.state.leader != NO_LEADER
    stage.step(
        "Broker 1 is back. "
        + ("It was the last in sync, so it leads" if leads else "It may have forgotten: it does not lead")
    )
    for broker_id in (2, 3):
        stage.nodes[broker_id].hears = True
        stage.heartbeat(broker_id)
    stage.step("Brokers 2 and 3 go on" + ("" if old else ". Broker 3 is eligible, and leads"))
    for _ in range(2):
        stage.catch_up(*[each for each in (1, 2, 3) if each != stage.state.leader])
        stage.alter_in_sync()
    stage.step("All follow")
    return stage.tell("last in sync" if old else "eligible leader replicas")
