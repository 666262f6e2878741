"""What the records of `__consumer_offsets` say, the last of each key: offsets, and groups of both kinds."""

from __future__ import annotations

from sparkonce.broker_lite.coordinators.consumer_group_image import GroupImage
from sparkonce.broker_lite.coordinators.group_records import ClassicRecord, StoredGroup, decode
from sparkonce.broker_lite.coordinators.offsets import OffsetTable
from sparkonce.broker_lite.protocol.records import Record


class Replayed:
    """The sum of the records: offsets, and groups of both kinds."""

    def __init__(self) -> None:
        self.offsets = OffsetTable()
        self.classic: dict[str, StoredGroup] = {}
        self.consumer: dict[str, GroupImage] = {}

    def take(self, record: Record) -> None:
        """Add one.

        Raises:
            ProtocolError: if it cannot be read; then nothing has changed.
        """
        found = decode(record)
        if found is None:
            self.offsets.replay([record])
        elif isinstance(found, ClassicRecord):
            if found.group is None:
                self.classic.pop(found.group_id, None)
            else:
                self.classic[found.group_id] = found.group
        elif found.change is None:
            self.consumer.pop(found.group_id, None)
        elif record.value is not None or found.group_id in self.consumer:
            # A removal does not bring back a group that compaction has left nothing else of.
            self.consumer.setdefault(found.group_id, GroupImage()).apply(found.change)
