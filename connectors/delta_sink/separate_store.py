"""Offsets stored separately from the rows: the store that the option ``offsetStore`` names, and copies into it.

For at-most-once and at-least-once that store is authoritative, and the result table holds rows only. Exactly-once needs
both writes in one commit, so there the table stays authoritative, and the store gets a copy after each commit, for lag
tools and other readers. A copy is never used for a decision. So a failed copy does not fail the batch: it is logged,
and the next batch brings the store up to date, as does the first batch of a new process, since the last one may have
died before it copied.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from sparkonce.connectors.delta_sink.options import FORMAT, SinkOptions
from sparkonce.connectors.runtime.cache import MAX_TABLES, LruCache
from sparkonce.exactly_once.batch import Batch
from sparkonce.kafka.client.client import shared_client
from sparkonce.kafka.client.settings import ClientSettings
from sparkonce.offset_store import OffsetStore, open_store
from sparkonce.offset_store.kafka_group import KafkaGroupOffsets
from sparkonce.offset_store.offsets import OffsetRange
from sparkonce.offset_store.record import BatchRecord, Commit, Writes
from sparkonce.offset_store.secrets import without_secrets
from sparkonce.offset_store.store import Snapshot, SnapshotSource

_log = logging.getLogger(__name__)
_Key = tuple[str, str, ClientSettings | None, tuple[tuple[str, str], ...]]
_kept: LruCache[_Key, OffsetStore] = LruCache(MAX_TABLES)
_complete: set[tuple[str, str]] = set()
"""Stores, each with an application, to which this process has copied everything."""


def separate_store(options: SinkOptions) -> OffsetStore | None:
    """Return this process's store of a query; None if the table has its offsets. Raises ValueError if it names none."""
    spec, settings = options.offset_store, options.kafka
    if spec is None:
        return None
    key = spec, options.app_id, settings, tuple(sorted(options.storage_options.items()))
    groups = (
        None
        if settings is None
        else lambda group_id: KafkaGroupOffsets(shared_client(settings, named=FORMAT), group_id)
    )
    return _kept.get(
        key,
        lambda: open_store(spec, options.app_id, options.storage_options, groups=groups, create_missing=True),
    )


def expect_brokers(options: SinkOptions, batch: Batch) -> None:
    """Have this process wait through an outage of a group's brokers, if an earlier batch has reached them."""
    if options.kafka is not None:
        shared_client(options.kafka, named=FORMAT, reached=batch.record.batch_id > 0)


def copy_offsets(
    table: SnapshotSource, store: OffsetStore, batch: Batch, storage_options: Mapping[str, str] | None = None
) -> bool:
    """Bring ``store`` up to the table's offsets after ``batch``; False, and a warning, if that failed.

    The warning shows no secret of ``storage_options``.
    """
    place = str(store), batch.record.app_id
    try:
        picture = store.snapshot()
        record = _missing(table.snapshot(), picture, batch.record, every=place not in _complete)
        if record.moved:
            picture.commit(Commit(record, Writes.OFFSETS))
    except Exception as error:
        _complete.discard(place)
        _log.warning(
            "delta_once: %s is written; its offsets could not be copied to offsetStore=%s (%s). The next batch copies "
            "them too",
            batch,
            store,
            without_secrets(str(error), storage_options or {}),
        )
        return False
    _complete.add(place)
    return True


def _missing(table: Snapshot, copy: Snapshot, record: BatchRecord, *, every: bool) -> BatchRecord:
    """Return a record that brings a copy up to date: for the partitions that moved, or for ``every`` one of the query.

    A range begins where the copy stood, so that its chain has no gap after a copy that failed; if it knew nothing of
    the partition, where the batch began, or at 0.
    """
    keys = list(record.ranges if every else record.moved)
    stored, copied = table.next_offsets(keys), copy.next_offsets(keys)
    ranges = {}
    for key, end in stored.items():
        if copied.get(key) == end:
            continue
        extent = record.ranges[key]
        epoch = extent.epoch if extent.end == end else None
        if extent.end == end and extent.cut_from is not None and copied.get(key) == extent.cut_from:
            ranges[key] = extent
            continue
        begin = copied.get(key, record.moved[key].start if key in record.moved else 0)
        ranges[key] = OffsetRange(begin if begin < end else 0, end, epoch)
    return replace(record, ranges=ranges)
