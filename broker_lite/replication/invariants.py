"""The invariants of a cluster, whatever fails; the same for the simulator, for tests and for a running one.

Theory of operation: everything here works on plain views. A log is a list of `Batch`es, each with a hash of itself and
all before it, so that two logs are compared up to a batch by comparing two numbers. A `PartitionHistory` gets each
change of a partition and its replicas, and keeps what no replica may contradict later: the leader of each epoch, the
batch at each offset and epoch, and the records below any leader's high watermark: the safe records.

The invariants, by name (their sources: Kafka's own TLA+ specifications of replication, and Raft's):

    leader-in-sync             the leader is in sync; no replica is both in sync and eligible only
    one-leader                 one broker leads in one leader epoch
    epochs-rise                leader, partition, broker and controller epochs never decrease
    logs-match                 a batch of one offset and epoch is the same in all logs, and so is all before it
    safe-in-sync               all in sync and all eligible leaders have every safe record, unless a power failure has
                               removed it and they have not registered since
    safe-by-minimum            no high watermark advances while the leader's state has eligible leaders: the controller
                               used a larger min.insync.replicas, and they need not have these records
    safe-stays                 a safe record never changes: no other one becomes safe at its offset
    leader-complete            a cleanly elected leader has every safe record
    follower-high-watermark    below a follower's high watermark are all safe records, and only these
    acknowledged-is-safe       a record acknowledged with acks=all is safe, at the offset returned
    read-is-safe               consumers get safe records only
    no-duplicates              a batch of an idempotent producer is safe once, and in the producer's order
    images-equal               brokers that have applied the same records of the metadata log have the same image

An unclean election may lose anything that was safe before it, so the checks start over with it: high watermarks,
acknowledgements and reads of earlier leader epochs are no longer checked, and records that are safe from then on must
be kept as always. If losses of power are not made up for (`promises` is false), only the first four are checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sparkonce.broker_lite.controller.image import ClusterImage
from sparkonce.broker_lite.controller.partition_state import PartitionState, broken_invariant
from sparkonce.kafka.protocol.records import MAX_SEQUENCE, BatchHeader


class ViolationError(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Batch(NamedTuple):
    """One batch of a log. `chain` identifies it and all batches before it."""

    base_offset: int
    last_offset: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    chain: int


def chained(before: Sequence[Batch], header: BatchHeader, base_offset: int, epoch: int) -> Batch:
    """Return the view of a batch that follows others at `base_offset`, in an epoch."""
    last_offset = base_offset + header.last_offset_delta
    chain = hash((before[-1].chain if before else 0, base_offset, last_offset, epoch, header.crc))
    return Batch(
        base_offset, last_offset, epoch, header.crc, header.producer_id, header.producer_epoch, header.base_sequence,
        chain,
    )  # fmt: skip


class Replica(NamedTuple):
    """A replica that must not have lost anything."""

    broker_id: int
    batches: Sequence[Batch]


def count_below(batches: Sequence[Batch], offset: int) -> int:
    """Return how many batches end below `offset`."""
    return bisect_right(batches, offset - 1, key=_last_offset)


def _last_offset(batch: Batch) -> int:
    return batch.last_offset


class PartitionHistory:
    """The history of one partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.promises = True
        self.lossy = False
        """Whether safe records may ever have been lost by design."""
        self.safe: list[Batch] = []
        """The safe records since checks started over."""
        self._promised_from = 0
        self._unpromised_end = 0
        self.leaders: dict[int, int] = {}
        self._placed: dict[tuple[int, int], int] = {}
        self._sequences: dict[int, tuple[int, int]] = {}

    def loses(self, leader_epoch: int) -> None:
        """Start over: the leader of this epoch may lack any safe record."""
        self.lossy, self._promised_from, self._unpromised_end = True, leader_epoch, 0
        self.safe.clear()
        self._sequences.clear()

    def _counts(self, leader_epoch: int) -> bool:
        """Whether records and answers of a leader epoch are checked."""
        return self.promises and leader_epoch >= self._promised_from

    def _is_safe(self, last_offset: int, crc: int) -> bool:
        """Whether a batch is safe; for offsets before checks started over that is unknown, and assumed."""
        count = count_below(self.safe, last_offset + 1)
        if not count or self.safe[count - 1].last_offset < last_offset:
            return last_offset < self._unpromised_end
        return self.safe[count - 1].last_offset == last_offset and self.safe[count - 1].crc == crc

    def appended(self, broker_id: int, batches: Sequence[Batch]) -> None:
        """Check a log whose last batch is new (logs-match)."""
        self._place(broker_id, batches[-1])

    def opened(self, broker_id: int, batches: Sequence[Batch]) -> None:
        """Check a log that was read from a disk (logs-match)."""
        for batch in batches:
            self._place(broker_id, batch)

    def _place(self, broker_id: int, batch: Batch) -> None:
        known = self._placed.setdefault((batch.base_offset, batch.epoch), batch.chain)
        if known != batch.chain:
            self._fail(
                "logs-match",
                f"broker {broker_id} has at offset {batch.base_offset}, epoch {batch.epoch}, "
                "another batch, or another one before it, than another replica has or had",
            )

    def has_safe(self, batches: Sequence[Batch]) -> bool:
        """Whether a log has every safe record."""
        count = len(self.safe)
        return not count or (len(batches) >= count and batches[count - 1].chain == self.safe[-1].chain)

    def check_members(self, members: Iterable[Replica]) -> None:
        """Check that in-sync and eligible replicas have all safe records (safe-in-sync)."""
        if not self.promises:
            return
        for broker_id, batches in members:
            if not self.has_safe(batches):
                end = batches[-1].last_offset + 1 if batches else 0
                self._fail(
                    "safe-in-sync",
                    f"records below {self.safe[-1].last_offset + 1} are safe; broker {broker_id} counts as in sync or "
                    f"eligible, but its log, which ends at {end}, does not have them all",
                )

    def leader_high_watermark(
        self, broker_id: int, batches: Sequence[Batch], offset: int, leader_epoch: int = 0
    ) -> bool:
        """Check a leader's new high watermark (safe-stays, no-duplicates); return whether records have become safe."""
        if not self._counts(leader_epoch):
            return False
        count, known = count_below(batches, offset), len(self.safe)
        both = min(count, known)
        if both and batches[both - 1].chain != self.safe[both - 1].chain:
            self._fail(
                "safe-stays",
                f"broker {broker_id} calls records below {offset} safe; others were safe at these offsets before",
            )
        for batch in batches[known:count]:
            self._check_sequence(batch)
            self.safe.append(batch)
        return count > known

    def check_minimum(self, broker_id: int, state: PartitionState) -> None:
        """Check the state of a leader whose high watermark has just advanced (safe-by-minimum)."""
        if state.eligible_leader_replicas:
            self._fail(
                "safe-by-minimum",
                f"broker {broker_id} calls records safe with {state.in_sync_replicas} in sync, while "
                f"{state.eligible_leader_replicas} may be elected without them",
            )

    def follower_high_watermark(
        self, broker_id: int, batches: Sequence[Batch], offset: int, leader_epoch: int = 0
    ) -> None:
        """Check a follower's new high watermark (follower-high-watermark)."""
        if not self._counts(leader_epoch):
            return
        count, known = count_below(batches, offset), len(self.safe)
        both = min(count, known)
        beyond = count > known and batches[count - 1].last_offset >= self._unpromised_end
        if beyond or (both and batches[both - 1].chain != self.safe[both - 1].chain):
            self._fail(
                "follower-high-watermark",
                f"broker {broker_id} follows with a high watermark of {offset}; what its log has below is not what is "
                "safe",
            )

    def _check_sequence(self, batch: Batch) -> None:
        if batch.producer_id < 0 or batch.base_sequence < 0:
            return
        # For a producer that a partition lost in an unclean election, any first sequence is valid (KIP-360).
        first = batch.base_sequence if self.lossy else 0
        epoch, following = self._sequences.get(batch.producer_id, (batch.producer_epoch, first))
        expected = following if epoch == batch.producer_epoch else 0
        if batch.producer_epoch < epoch or batch.base_sequence != expected:
            self._fail(
                "no-duplicates",
                f"producer {batch.producer_id} has sequence {batch.base_sequence} of epoch {batch.producer_epoch} at "
                f"offset {batch.base_offset}; {expected} of epoch {max(epoch, 0)} comes next",
            )
        following = (batch.base_sequence + batch.last_offset - batch.base_offset + 1) & MAX_SEQUENCE
        self._sequences[batch.producer_id] = (batch.producer_epoch, following)

    def leads(
        self, broker_id: int, epoch: int, batches: Sequence[Batch], current: bool, high_watermark: int = 0
    ) -> None:
        """Check a broker that begins to lead; `current` if the cluster's newest state agrees."""
        known = self.leaders.setdefault(epoch, broker_id)
        if known != broker_id:
            self._fail("one-leader", f"brokers {known} and {broker_id} both lead in epoch {epoch}")
        if self.lossy and self._counts(epoch):
            self._unpromised_end = max(self._unpromised_end, high_watermark)
        if current and self._counts(epoch) and not self.has_safe(batches):
            self._fail(
                "leader-complete",
                f"broker {broker_id} was elected in epoch {epoch} without all of the {len(self.safe)} safe batches",
            )

    def acknowledged(self, last_offset: int, crc: int, leader_epoch: int = 0) -> None:
        """Check an acknowledgement of a batch with acks=all (acknowledged-is-safe)."""
        if self._counts(leader_epoch) and not self._is_safe(last_offset, crc):
            self._fail("acknowledged-is-safe", f"a batch was acknowledged at {last_offset}, but is not safe there")

    def read(self, batches: Iterable[tuple[int, int]], leader_epoch: int = 0) -> None:
        """Check what a consumer received, as last offsets and checksums (read-is-safe)."""
        for last_offset, crc in batches if self._counts(leader_epoch) else ():
            if not self._is_safe(last_offset, crc):
                self._fail("read-is-safe", f"a consumer was given a batch at {last_offset} that is not safe there")

    def changed(self, before: PartitionState | None, after: PartitionState) -> None:
        """Check a new state from the metadata log (leader-in-sync, epochs-rise)."""
        found = broken_invariant(before, after)
        if found is not None:
            self._fail(*found)

    def _fail(self, invariant: str, text: str) -> None:
        raise ViolationError(invariant, f"{self.name}: {text}")


def check_image(before: Mapping[int, int], after: ClusterImage) -> None:
    """Check brokers' epochs, before and now, and that no fenced one is in sync (epochs-rise, leader-in-sync).

    Call it between the batches of the metadata log: within one, a broker may be fenced before its partitions are moved.
    """
    for broker_id, epoch in before.items():
        if after.broker_epoch(broker_id) < epoch:
            raise ViolationError(
                "epochs-rise", f"broker {broker_id} had epoch {epoch}, now {after.broker_epoch(broker_id)}"
            )
    for key, state in after.partitions():
        for broker_id in state.in_sync_replicas:
            if not after.may_join(broker_id):
                raise ViolationError("leader-in-sync", f"{key}: broker {broker_id} is fenced or stopping, and in sync")


def check_images_equal(one: ClusterImage, other: ClusterImage, who: str) -> None:
    """Compare two images of the same offset (images-equal); brokers of former versions have no terms of controllers."""
    if not (one.terms and other.terms):
        one, other = one.copy(), other.copy()
        one.terms = other.terms = ()
    if one != other:
        raise ViolationError("images-equal", f"{who} has another image at offset {one.next_offset} than the log gives")
