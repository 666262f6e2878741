"""Compacted logs of planned topics as the judges see them: with all batches that they ever had.

Theory of operation: compaction changes nothing in a log that matters for replication, so invariants use the
batches as they were appended. A replica that opens a compacted log finds fewer on its disk, and one that is behind
fetches fewer. `whole` and `adopted` restore the missing ones from what is known of that log, or of another replica's,
and report what compaction cannot have caused:

    logs-match    below its compacted end a log has only batches that were there, in that order; beyond it,
                  all of them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sparkonce.broker_lite.replication.invariants import Batch, ViolationError, count_below

if TYPE_CHECKING:
    from lab.sim.judges.watched_log import WatchedLog
    from sparkonce.broker_lite.controller.image import PartitionKey


class CleanedEnds:
    """The offset up to which each replica may lack batches."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, PartitionKey], int] = {}

    def of(self, broker_id: int, key: PartitionKey) -> int:
        """Return the end of a replica's compacted part, 0 if there is none."""
        return self._ends.get((broker_id, key), 0)

    def cleaned(self, broker_id: int, key: PartitionKey, end: int) -> None:
        """Note that a replica may lack batches below an offset."""
        self._ends[broker_id, key] = max(end, self.of(broker_id, key))

    def cut(self, broker_id: int, key: PartitionKey, end: int) -> None:
        """Note that a replica was truncated to an offset."""
        if self.of(broker_id, key) > end:
            self._ends[broker_id, key] = end

    def adopted(self, logs: Mapping[tuple[int, PartitionKey], WatchedLog], key: PartitionKey, log: WatchedLog) -> int:
        """Restore batches that a follower did not fetch as its leader's log is compacted; return up to where, or 0.

        The last batch of `log` was just appended; it is replaced by batches of a replica that was compacted there.
        """
        *before, last = log.batches
        end = before[-1].last_offset + 1 if before else 0
        for (broker_id, each), other in logs.items():
            if each != key or other is log or self.of(broker_id, key) <= end:
                continue
            count, common = count_below(other.batches, last.last_offset + 1), count_below(other.batches, end)
            same = other.batches[common - 1].chain if common else 0
            newest = other.batches[count - 1] if count else None
            # Batches of another epoch are those of a leader that does not know of the next one yet.
            reaches = newest is not None and (newest.last_offset, newest.epoch) == (last.last_offset, last.epoch)
            if reaches and same == (before[-1].chain if before else 0):
                log.batches[-1:] = other.batches[common:count]
                # Whose log it was fetched from is not known: compaction may have written the last batch anew.
                is_within = any(last.base_offset < self.of(each, key) for each, its_key in logs if its_key == key)
                return last.last_offset + 1 if is_within else last.base_offset
        return 0


def whole(name: str, known: Sequence[Batch], found: Iterable[Batch], cleaned_end: int, log_end: int) -> list[Batch]:
    """Return all batches of a log compacted up to an offset, from the known ones and those on disk.

    Its end is no batch's if what followed its compacted part was lost, and nothing is left of that part.

    Raises:
        ViolationError: logs-match.
    """
    batches = list(known[: count_below(known, cleaned_end)])
    offsets = {batch.last_offset: batch for batch in batches}
    end = -1
    for batch in found:
        if batch.last_offset <= end:
            raise ViolationError("logs-match", f"{name}: the batch at {batch.base_offset} comes after {end}")
        end = batch.last_offset
        if batch.base_offset >= cleaned_end:
            batches.append(_chained(batches, batch))
            continue
        was = offsets.get(batch.last_offset)
        if was is None or was.epoch != batch.epoch or was.producer_id != batch.producer_id:
            text = f"{name}: compacted below {cleaned_end}, it has {batch}, which was {was}"
            raise ViolationError("logs-match", text)
    if log_end < cleaned_end:
        raise ViolationError("logs-match", f"{name}: compacted below {cleaned_end}, it ends at {log_end}")
    return batches


def _chained(before: Sequence[Batch], batch: Batch) -> Batch:
    """Return a batch as it follows others."""
    chain = hash((before[-1].chain if before else 0, batch.base_offset, batch.last_offset, batch.epoch, batch.crc))
    return batch._replace(chain=chain)
