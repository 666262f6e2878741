"""Stories of who must not be let in: a follower or consumer of a former epoch, a broker that has begun anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkonce.broker_lite.protocol.errors import ErrorCode
from sparkonce.broker_lite.replication.follower import FetchPosition, PartitionFollower
from sparkonce.jobs.lab.story.stage import AsksOnce, Stage
from sparkonce.jobs.lab.story.view import Telling


class _NoEpochInFetches(AsksOnce):
    """As before KIP-320: a fetch says an offset and nothing else, and whatever comes is appended."""

    def position(self, follower: PartitionFollower) -> FetchPosition:
        """Leave the epochs out."""
        return super().position(follower)._replace(leader_epoch=-1)

    def takes_epoch(self, follower: PartitionFollower) -> int:
        """Take records of any epoch."""
        del follower
        return 1 << 30


def kafka_6880(*, old: bool) -> Telling:
    """Let a follower that has missed two changes of leaders fetch from the third, which is the first again."""
    stage = (_NoEpochInFetches if old else Stage)(3)
    stage.produce("m1")
    stage.catch_up(2, 3)
    stage.produce("m2")
    stage.fetch(2)
    stage.step("m1 is acknowledged. m2 is on brokers 1 and 2, broker 3 has yet to fetch it")
    stage.nodes[2].hears = stage.nodes[1].hears = False
    stage.end_leases(1, 2)
    stage.step(
        "The controller hears no more of brokers 1 and 2, and broker 3 is elected. Broker 2 still fetches from broker 1"
    )
    stage.nodes[1].hears = True
    stage.heartbeat(1)
    stage.catch_up(1)
    stage.produce("m3")
    stage.catch_up(1)
    stage.alter_in_sync()
    stage.catch_up(1)
    stage.step("Broker 1 follows broker 3, cuts m2 off, has m3, and is in sync")
    refused = stage.fetch(2)
    stage.step(f"Broker 2 knows nothing of this and asks broker 1, as before: {refused.name}. It will try again")
    stage.prefer()
    stage.produce("m4")
    stage.catch_up(3)
    stage.step("The preferred leader is elected: broker 1 leads again, and m4 is written")
    answer = stage.fetch(2)
    came = "It gets m4, and appends it" if answer is ErrorCode.NONE else f"It is refused: {answer.name}"
    stage.step(f"Broker 2 tries again, from offset 2. {came}")
    stage.nodes[2].hears = True
    stage.heartbeat(2)
    stage.catch_up(2)
    stage.alter_in_sync()
    end = "its last record is of the leader's epoch, so there is nothing to cut off" if old else "it cuts m2 off"
    stage.step(f"At last broker 2 hears of the new epoch: {end}")
    return stage.tell("fetch without epoch" if old else "fetch with epoch")


@dataclass
class _Consumer:
    """Reads below the high watermark; knows the epoch of what it has read last."""

    stage: Stage
    checks: bool
    offset: int = 0
    epoch: int = -1
    read: list[str] = field(default_factory=list)
    truncations: int = 0

    def poll(self) -> str:
        """Read what is there; returns what happened."""
        node = self.stage.nodes[self.stage.state.leader]
        end = node.log.epoch_end(self.epoch) if self.checks and self.epoch >= 0 else None
        if end is not None and end.end_offset < self.offset:
            self.truncations += 1
            told = f"asks where epoch {self.epoch} ends: at {end.end_offset}, before its position {self.offset}"
            self.offset = end.end_offset
            return f"{told}. It goes back there, and {self._fetch()}"
        return self._fetch()

    def _fetch(self) -> str:
        node = self.stage.nodes[self.stage.state.leader]
        first = self.offset
        came = [cell for cell in self.stage.cells(node) if first <= cell.offset < node.log.high_watermark]
        for cell in came:
            self.read.append(cell.label)
            self.offset, self.epoch = cell.offset + 1, cell.epoch
        return f"reads {', '.join(cell.label for cell in came) or 'nothing'} from offset {first}"


def kip_320_consumer(*, old: bool) -> Telling:
    """Put other records below a consumer's position, by an unclean election: it must not pass over them."""
    stage = Stage(2, unclean=True)
    consumer = _Consumer(stage, checks=not old)
    stage.produce("m1")
    stage.catch_up(2)
    stage.pass_lag_time()
    stage.produce("m2", "m3")
    stage.pass_lag_time()
    stage.alter_in_sync()
    stage.step("Broker 2 fetches no more and is out of sync; m2 and m3 are acknowledged by broker 1 alone", "")
    stage.step("A consumer reads", "consumer " + consumer.poll())
    stage.crash(1)
    stage.end_leases(1)
    stage.step("Broker 1 dies. Broker 2 is elected uncleanly: m2 and m3 are lost")
    stage.produce("n2", "n3", "n4")
    stage.step("n2, n3 and n4 are written at offsets 1 to 3")
    stage.step("The consumer reads on", "consumer " + consumer.poll())
    stage.start(1)
    stage.catch_up(1)
    stage.alter_in_sync()
    stage.step("Broker 1 is back and follows")
    there = [cell.label for cell in stage.cells(stage.nodes[stage.state.leader])]
    missed = len([label for label in there if label not in consumer.read])
    return stage.tell("position" if old else "position with epoch", missed=missed, truncations=consumer.truncations)


def kip_903(*, old: bool) -> Telling:
    """Let a leader propose a follower that begins anew, empty, before the proposal arrives."""
    stage = Stage(2, absent=[2])
    stage.produce("m1", "m2")
    stage.start(2)
    stage.step("Broker 1 is in sync alone; m1 and m2 are acknowledged. Broker 2 begins")
    stage.catch_up(2)
    proposals = stage.take_proposals()
    stage.step("Broker 2 has caught up. Broker 1 proposes that it be in sync; that is slow to arrive")
    stage.crash(2, power=True)
    stage.end_leases(2)
    stage.start(2)
    stage.step(
        "Meanwhile broker 2 loses power with all that it has not flushed, and registers anew: with another broker epoch"
    )
    (answer,) = stage.deliver(proposals)
    what = "says who is in sync, and is accepted" if old else f"says which start of broker 2 it means: {answer.name}"
    stage.step(f"The proposal arrives. It {what}")
    stage.crash(1)
    stage.end_leases(1)
    now = "Broker 2 is in sync, so it is elected" if old else "Broker 2 is not in sync: nobody leads"
    stage.step(f"Broker 1 dies before broker 2 has fetched. {now}")
    stage.start(1)
    for broker_id in (1, 2):
        if stage.state.leader != broker_id:
            stage.catch_up(broker_id)
    stage.alter_in_sync()
    stage.step("Broker 1 is back")
    return stage.tell("no broker epoch" if old else "broker epoch")


def kafka_7128(*, old: bool) -> Telling:
    """Let a new leader's high watermark lag behind what was acknowledged: reaching that is not being in sync."""
    stage = Stage(3, least=2, absent=[3])
    stage.produce("m1")
    stage.catch_up(2)
    stage.produce("m2", "m3")
    stage.fetch(2)
    stage.fetch(2, answer_lost=True)
    stage.step("m1 to m3 are in brokers 1 and 2, and acknowledged. Broker 2 has not heard of that yet: its HW is 1")
    stage.crash(1)
    stage.end_leases(1)
    stage.step("Broker 1 dies. Broker 2 leads, alone in sync; its HW stands still, since min.insync.replicas is 2")
    stage.start(3)
    stage.fetch(3, records=1)
    stage.step("Broker 3 begins, and has m1")
    stage.fetch(3, records=0)
    answers = stage.alter_in_sync()
    joins = "It has reached the HW and is in sync" if answers else "The HW is not enough: this epoch began at 3"
    stage.step(f"Broker 3 asks from offset 1. {joins}")
    stage.crash(2)
    stage.end_leases(2)
    stage.step(
        "Broker 2 dies" + (". Broker 3 is elected" if answers else ". Brokers 1 and 2 are eligible; nobody leads")
    )
    stage.start(1)
    stage.start(2)
    for _ in range(2):
        stage.catch_up(*[each for each in (1, 2, 3) if each != stage.state.leader])
        stage.alter_in_sync()
    stage.step("Brokers 1 and 2 are back")
    return stage.tell("joins at high watermark" if old else "joins at epoch start")
