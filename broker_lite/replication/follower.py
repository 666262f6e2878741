"""One partition as a follower sees it: the fetch position, and truncation before it.

Theory of operation (Kafka's AbstractFetcherThread): a follower appends its leader's bytes unchanged. After a change of
leaders its log may have an end that the new leader does not have. Every fetch therefore names the epoch of the last
record; if that epoch ended earlier in the leader's log, the leader returns where, instead of records, and the follower
truncates its log to where both agree. If it does not have the epoch that the leader returns, it truncates to the end of
its own largest epoch below and fetches again, until both have the epoch (KIP-279): one round is not enough after two
fast changes of leaders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkonce.broker_lite.controller.partition_state import NO_LEADER

if TYPE_CHECKING:
    from sparkonce.broker_lite.replication.replica_log import EpochEnd, ReplicaLog


class FetchPosition(NamedTuple):
    """A follower's next fetch; `last_fetched_epoch` is -1 if it has no records."""

    offset: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


class PartitionFollower:
    """The follower of one leader in one leader epoch."""

    def __init__(self, log: ReplicaLog, leader: int, leader_epoch: int) -> None:
        """Begin to follow `leader`, in its epoch; without a leader, nothing is truncated."""
        log.be_one_of_several()
        self.log = log
        self.leader = leader
        self.leader_epoch = leader_epoch
        # Without epochs (the checkpoint file was lost) logs cannot be compared: keep only up to the high watermark.
        if leader != NO_LEADER and log.latest_epoch < 0:
            log.truncate_to(log.high_watermark)

    @property
    def position(self) -> FetchPosition:
        """The position of the next fetch."""
        log = self.log
        return FetchPosition(log.log_end_offset, self.leader_epoch, log.latest_epoch, log.log_start_offset)

    def diverged(self, theirs: EpochEnd) -> None:
        """Truncate the log to where it may match the leader's; `theirs` is its largest epoch not beyond ours."""
        ours = self.log.epoch_end(theirs.epoch)
        end = self.log.log_end_offset
        if ours is None:
            offset = min(theirs.end_offset, end)  # all our epochs are later than the leader's
        elif ours.epoch != theirs.epoch:
            offset = min(ours.end_offset, end)  # fetch again from there
        else:
            offset = min(ours.end_offset, theirs.end_offset, end)
        self.log.truncate_to(offset)

    def out_of_range(self, leader_start_offset: int, leader_end_offset: int) -> bool:
        """Begin at the leader's offsets, since the fetch offset is not in its log; returns whether that is a change.

        A leader that ends before our log, and did not get our epoch, can only have been elected uncleanly. One that
        begins after our end has deleted the records in between. One that has our end, and rejects it, does not know our
        epoch: no leader has had a later one than this one's, so such records do not belong to this partition, but to
        files from elsewhere. Kafka's fetchOffsetAndTruncate does not truncate there.
        """
        if leader_end_offset < self.log.log_end_offset:
            self.log.truncate_to(leader_end_offset)
        elif leader_start_offset > self.log.log_end_offset:
            self.log.begin_at(leader_start_offset)
        elif self.log.latest_epoch > self.leader_epoch:
            known = self.log.epoch_end(self.leader_epoch)
            assert known is not None, "what a log has of an epoch before its latest is always known"
            self.log.truncate_to(known.end_offset)
        else:
            return False  # the leader's log has changed since; its offsets are requested again
        return True

    def overlapped(self, base_offset: int) -> None:
        """Truncate to the base offset of a leader's batch that should follow our log, but overlaps its end.

        Both have the epoch, so that a fetch could not show that the logs differ: ours was changed from outside. Each
        truncation shows one more batch of the leader, until both agree.
        """
        self.log.truncate_to(base_offset)

    def fetched(self, leader_high_watermark: int) -> bool:
        """Apply the leader's high watermark, after its records have been appended; return whether ours has moved."""
        return self.log.advance_high_watermark(leader_high_watermark)
