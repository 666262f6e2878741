"""One partition for tests: replicas' logs in memory, and what the cluster says of it."""

from __future__ import annotations

from lab.sim.disk import SimulatedDisk
from sparkonce.broker_lite.controller.records import NO_BROKER_EPOCH, PartitionState
from sparkonce.broker_lite.log.config import LogConfig
from sparkonce.broker_lite.log.partition_log import PartitionLog
from sparkonce.broker_lite.replication.leader import PartitionLeader
from sparkonce.kafka.protocol import records
from sparkonce.kafka.protocol.records import Record

NOW = 1_700_000_000_000
LAG_MS = 30_000
Content = list[tuple[int, int, bytes]]


def new_log() -> PartitionLog:
    log = PartitionLog.open(SimulatedDisk(), "/data/t-0", LogConfig(), NOW)
    log.be_one_of_several(0)
    return log


def append(log: PartitionLog, epoch: int, *values: bytes) -> None:
    """Append each value as a batch of its own, as a leader in this epoch does."""
    for value in values:
        log.append(records.encode_batch([Record(None, value, NOW)]), epoch, NOW)


def log_with(*epochs: tuple[int, int], safe: int = 0) -> PartitionLog:
    """Make a log: epochs, each with a count of records; the high watermark is `safe`."""
    log = new_log()
    for epoch, count in epochs:
        log.begin_epoch(epoch)
        append(log, epoch, *[b"%d.%d" % (epoch, each) for each in range(count)])
    log.advance_high_watermark(safe)
    return log


def stored(log: PartitionLog, start: int = 0) -> bytes:
    """Return the whole batches from an offset on, as a leader sends them."""
    return log.read(start, 1 << 20, min_one_batch=True).read() if start < log.log_end_offset else b""


def content(log: PartitionLog) -> Content:
    """Return each record's offset, epoch and value."""
    data = stored(log, log.log_start_offset)
    return [
        (header.base_offset, header.partition_leader_epoch, bytes(each.value or b""))
        for position, header in records.scan(data)
        for each in records.decode_records(data[position : position + header.size])
    ]


class Led:
    """A leader, broker 1 of 1, 2, 3, over a log, and the brokers' epochs (101, 102, 103) as it knows them."""

    def __init__(
        self,
        log: PartitionLog | None = None,
        *,
        in_sync: tuple[int, ...] = (1, 2, 3),
        least: int = 1,
        epoch: int = 0,
    ) -> None:
        self.now_ms = NOW
        self.log = log or new_log()
        self.epochs = {1: 101, 2: 102, 3: 103}
        self.state = PartitionState((1, 2, 3), in_sync, 1, epoch, 0)
        self.leader = PartitionLeader(
            1,
            self.log,
            self.state,
            lambda broker_id: self.epochs.get(broker_id, NO_BROKER_EPOCH),
            min_in_sync_replicas=least,
            lag_time_max_ms=LAG_MS,
            now_ms=NOW,
        )

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def append(self, count: int = 1) -> None:
        append(self.log, self.leader.state.leader_epoch, *[b"value"] * count)
        self.leader.advance(self.now_ms)

    def fetched(self, broker_id: int, offset: int, broker_epoch: int | None = None) -> bool:
        epoch = 100 + broker_id if broker_epoch is None else broker_epoch
        return self.leader.fetched(broker_id, epoch, offset, 0, self.now_ms)

    def confirm(self, in_sync: tuple[int, ...]) -> bool:
        """Let the controller accept what was proposed."""
        proposal = self.leader.take_proposal()
        assert proposal is not None
        assert tuple(each for each, _ in proposal.in_sync_replicas) == in_sync
        now = self.leader.state
        state = now._replace(in_sync_replicas=in_sync, partition_epoch=now.partition_epoch + 1)
        return self.leader.confirmed(proposal, state, self.now_ms)
